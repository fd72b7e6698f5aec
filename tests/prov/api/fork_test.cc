// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process that has objects open forks: what the child does or keeps changes nothing for its parent and its parent's
// peers. Several processes.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prov/lib/objects.h"
#include "prov/lib/session.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;
using sim::test::wait_until;

/// Forks a child that does this and ends, 60 s later at the latest.
pid_t fork_to(const std::function<void()>& work)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        work();
        _exit(0);
    }
    return child;
}

/// A child that keeps copies of all descriptors until it is destroyed.
class Idle {
  public:
    Idle() : child_(fork_to([] { pause(); })) {}
    ~Idle()
    {
        EXPECT_EQ(kill(child_, SIGKILL), 0);
        EXPECT_EQ(waitpid(child_, nullptr, 0), child_);
    }

  private:
    pid_t child_;
};

constexpr std::size_t sizes[] = {8, 504, 5000, 12000, 20000}; ///< multiples of 8, one for each protocol

std::vector<std::uint64_t> payload(std::size_t size, std::uint64_t round, unsigned from)
{
    return std::vector<std::uint64_t>(size / 8, round << 8 | from);
}

void end_one(Session& s)
{
    fi_cq_data_entry entry{};
    ASSERT_TRUE(wait_until([&] { return fi_cq_read(s.cq, &entry, 1) == 1; }));
}

void send(Session& s, const std::vector<std::uint64_t>& out)
{
    const std::size_t size = out.size() * 8;
    ssize_t posted = -FI_EAGAIN;
    ASSERT_TRUE(wait_until([&] {
        posted = fi_tsend(s.ep, out.data(), size, nullptr, 1 - s.rank.number, size, nullptr);
        if (posted == -FI_EAGAIN)
            (void)fi_cq_read(s.cq, nullptr, 0);
        return posted != -FI_EAGAIN;
    }));
    ASSERT_EQ(posted, 0);
}

void receive(Session& s, std::size_t size, std::uint64_t round)
{
    std::vector<std::uint64_t> in(size / 8);
    ASSERT_EQ(fi_trecv(s.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, size, 0, in.data()), 0);
    end_one(s);
    EXPECT_EQ(in, payload(size, round, 1 - s.rank.number)) << size;
}

/// Rank `from` sends a message of each size, and the other receives them.
void pass(Session& s, unsigned from, std::uint64_t round)
{
    for (const std::size_t size : sizes) {
        const auto out = payload(size, round, from);
        if (s.rank.number == from) {
            send(s, out);
            end_one(s);
        } else {
            receive(s, size, round);
        }
    }
}

void close_all_in_child(Session& s)
{
    const pid_t child = fork_to([&] {
        for (fid* object : {&s.ep->fid, &s.cq->fid, &s.av->fid, &s.domain->fid, &s.fabric->fid})
            (void)fi_close(object);
    });
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

/// The parent sleeps on a descriptor that the child's looks do not clear. The event was there before the fork.
TEST(Fork, ALookOfAChildClearsNoSignalOfItsParent)
{
    const auto exits = run_processes(1, [](const Rank& rank) {
        Session s(rank);
        fid_eq* eq = nullptr;
        fi_eq_attr attr{};
        attr.wait_obj = FI_WAIT_FD;
        attr.flags = FI_WRITE;
        Session::check(fi_eq_open(s.fabric, &attr, &eq, nullptr), "fi_eq_open");
        pollfd readable{-1, POLLIN, 0};
        Session::check(fi_control(&eq->fid, FI_GETWAIT, &readable.fd), "FI_GETWAIT");
        fid* const all[] = {&eq->fid};
        ASSERT_EQ(fi_trywait(s.fabric, const_cast<fid**>(all), 1), 0);
        ASSERT_EQ(poll(&readable, 1, 0), 0);
        fi_eq_entry event{};
        ASSERT_GT(fi_eq_write(eq, FI_NOTIFY, &event, sizeof event, 0), 0);
        const pid_t child = fork_to([&] {
            std::uint32_t kind = 0;
            fi_eq_entry taken{};
            const bool there = poll(&readable, 1, 0) == 1;
            const bool came = fi_eq_read(eq, &kind, &taken, sizeof taken, 0) > 0;
            const bool may_sleep = fi_trywait(s.fabric, const_cast<fid**>(all), 1) == 0;
            _exit(there && came && may_sleep && poll(&readable, 1, 0) == 0 ? 0 : 1);
        });
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        EXPECT_EQ(poll(&readable, 1, 0), 1);
        EXPECT_EQ(fi_close(&eq->fid), 0);
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
}

/// The peer sends while the children close, so they find messages that their parent has not taken yet.
TEST(Fork, AChildMayCloseWhatItInherited)
{
    for (const fi_progress progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO})
        expect_processes(2, [&](const Rank& rank) {
            Session s(rank, {.caps = FI_TAGGED, .progress = progress});
            pass(s, 0, 1);
            pass(s, 1, 1);
            for (std::uint64_t round = 2; round < 8; round++) {
                if (rank.number == 0)
                    close_all_in_child(s);
                pass(s, 1, round);
            }
            pass(s, 0, 8);
        });
}

/// At the time of the fork other threads of the parent hold mutexes of the provider, or sleep on its conditions.
TEST(Fork, AChildMayCloseWhatThreadsOfItsParentUse)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, {.caps = FI_TAGGED});
        std::atomic<bool> over{false};
        fi_cq_attr cq_attr{};
        cq_attr.wait_obj = FI_WAIT_MUTEX_COND;
        fid_cq* slept_on = nullptr;
        ASSERT_EQ(fi_cq_open(s.domain, &cq_attr, &slept_on, nullptr), 0);
        fi_mutex_cond sleep{};
        ASSERT_EQ(fi_control(&slept_on->fid, FI_GETWAIT, &sleep), 0);
        fi_eq_attr eq_attr{};
        eq_attr.wait_obj = FI_WAIT_UNSPEC;
        eq_attr.flags = FI_WRITE;
        fid_eq* eq = nullptr;
        ASSERT_EQ(fi_eq_open(s.fabric, &eq_attr, &eq, nullptr), 0);
        std::thread closes([&] { // an end of a thread takes milliseconds, under a mutex of the domain
            cq_attr.wait_obj = FI_WAIT_FD;
            while (!over.load()) {
                fid_cq* cq = nullptr;
                if (fi_cq_open(s.domain, &cq_attr, &cq, nullptr) == 0)
                    (void)fi_close(&cq->fid);
            }
        });
        std::thread sleeps([&] {
            pthread_mutex_lock(sleep.mutex);
            while (!over.load())
                pthread_cond_wait(sleep.cond, sleep.mutex);
            pthread_mutex_unlock(sleep.mutex);
        });
        std::thread waits([&] {
            fi_eq_entry entry{};
            std::uint32_t event = 0;
            (void)fi_eq_sread(eq, &event, &entry, sizeof entry, -1, 0);
        });
        for (int round = 0; round < 10; round++) {
            const pid_t child = fork_to([&] {
                for (fid* object :
                     {&s.ep->fid, &s.cq->fid, &slept_on->fid, &s.av->fid, &eq->fid, &s.domain->fid, &s.fabric->fid})
                    (void)fi_close(object);
            });
            int status = -1;
            EXPECT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0) << round;
            if (status != 0)
                break;
        }
        over = true;
        closes.join();
        fi_eq_entry entry{};
        EXPECT_GT(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), 0);
        waits.join();
        pthread_mutex_lock(sleep.mutex);
        pthread_cond_broadcast(sleep.cond);
        pthread_mutex_unlock(sleep.mutex);
        sleeps.join();
        EXPECT_EQ(fi_close(&slept_on->fid), 0);
        EXPECT_EQ(fi_close(&eq->fid), 0);
    });
}

/// Opens an endpoint that is announced under the service, and runs `work` before all is closed.
void announce(const std::string& service, const std::function<void()>& work)
{
    Objects objects({.service = service});
    fid_cq* const cq = objects.open_queue();
    objects.add(cq, cq);
    work();
}

bool is_announced(const std::string& service)
{
    return ask([](fi_info&) {}, FI_VERSION(1, 17), nullptr, "127.0.0.1", service.c_str(), 0) != nullptr;
}

TEST(Fork, ANameEndsWithItsEndpointWhileAChildLives)
{
    expect_processes(1, [](const Rank&) {
        const std::string service = "fork-" + std::to_string(getpid());
        std::optional<Idle> child;
        announce(service, [&] {
            child.emplace();
            EXPECT_TRUE(is_announced(service));
        });
        EXPECT_FALSE(is_announced(service));
    });
}

TEST(Fork, TheTnisOfAKilledProcessAreFreeWhileItsChildLives)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        setenv("FI_TOFU_PPN", "1", 1);
        setenv("TOFU_SIM_PPN", "4", 1);
        if (rank.number == 0) {
            const Session s(rank, {.enable = false, .leaves_together = false});
            rank.set(600, static_cast<std::uint64_t>(fork_to([] { pause(); })));
            raise(SIGKILL);
        }
        ASSERT_TRUE(wait_until([&] { return rank.get(600) != 0; }));
        ASSERT_TRUE(wait_until([&] {
            const Info info = ask([](fi_info&) {});
            fid_fabric* fabric = nullptr;
            fid_domain* domain = nullptr;
            EXPECT_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
            const bool opened = fi_domain(fabric, info.get(), &domain, nullptr) == 0;
            if (opened)
                EXPECT_EQ(fi_close(&domain->fid), 0);
            EXPECT_EQ(fi_close(&fabric->fid), 0);
            return opened;
        }));
        EXPECT_EQ(kill(static_cast<pid_t>(rank.get(600)), SIGKILL), 0);
    });
    EXPECT_NE(exits[0].status, 0);
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
}

} // namespace
} // namespace tofu::test
