// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_THREAD_SAFE: threads that post reads, writes, atomics and messages through one endpoint, and read, wait for and
// share out one queue and one counter, while others open, close, register, insert and cancel in the same domain.
// FI_THREAD_DOMAIN: threads with a domain each, and one event queue. Worth a run under TSan.
#include "prov/lib/session.h"

#include <array>
#include <atomic>
#include <complex>
#include <cstring>
#include <memory>
#include <thread>

#include <poll.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_eq.h>

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::wait_until;

constexpr unsigned crews = 2;                     ///< of each kind of thread
constexpr unsigned rounds = 60;                   ///< of each thread
constexpr std::size_t lane = 40000;               ///< bytes of the window that one writer owns
const std::size_t sizes[] = {8, 200, 3000, lane}; ///< in the descriptor, in a slot, bounced, as it lies

/// One operation; its address is the context. The thread that reads its entry marks it.
struct Op {
    std::atomic<int> error{0};
    std::atomic<unsigned> ends{0}; // seq_cst: its owner uses what came before
};

/// What all may write: a lane for each writer, and the sums.
struct Shared {
    std::atomic<std::uint64_t> integers;
    std::atomic<double> reals;
    alignas(16) std::complex<double> pair;
    std::atomic<std::uint8_t> lanes[crews * 2][lane];
};

class Crew {
  public:
    /// `wait`: the wait object of the session's queue.
    Crew(Session& s, const std::vector<Window>& windows, fi_wait_obj wait) : s_(s), windows_(windows), wait_(wait)
    {
        peer_ = (s.rank.number + 1) % s.rank.size;
    }
    /// Hands out at most three entries, for any thread.
    void read_some(bool blocking)
    {
        fi_cq_data_entry entries[3];
        const ssize_t got = blocking ? fi_cq_sread(s_.cq, entries, 3, nullptr, 50) : fi_cq_read(s_.cq, entries, 3);
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            if (fi_cq_readerr(s_.cq, &error, 0) == 1) { // else another thread has it
                Op& op = *static_cast<Op*>(error.op_context);
                op.error = error.err;
                op.ends.fetch_add(1);
            }
        }
        for (ssize_t i = 0; i < got; i++)
            if ((entries[i].flags & FI_REMOTE_WRITE) != 0)
                data_.fetch_add(1);
            else
                static_cast<Op*>(entries[i].op_context)->ends.fetch_add(1);
    }
    /// Posts until it is taken.
    template <class Call>
    void post(Call&& call)
    {
        ssize_t result = -FI_EAGAIN;
        static_cast<void>(wait_until([&] {
            if ((result = call()) == -FI_EAGAIN)
                read_some(false);
            return result != -FI_EAGAIN;
        }));
        ASSERT_EQ(result, 0);
    }
    void await(const Op& op, int error = 0)
    {
        EXPECT_TRUE(wait_until([&] {
            if (op.ends.load() == 0)
                read_some(false);
            return op.ends.load() != 0;
        }));
        EXPECT_EQ(op.error, error) << fi_strerror(op.error);
    }
    /// Writes its lane of the peer, every other time with data for its queue, and reads it back.
    void write_and_read(unsigned t)
    {
        std::vector<std::uint8_t> out(lane), in(lane);
        const std::uint64_t at = windows_[peer_].base + offsetof(Shared, lanes) + (s_.rank.number * crews + t) * lane;
        for (unsigned i = 0; i < rounds; i++) {
            const std::size_t size = sizes[i % 4];
            std::fill_n(out.begin(), size, static_cast<std::uint8_t>(i + t * 100));
            Op written, read;
            post([&] {
                return i % 2 == 0 ? fi_write(s_.ep, out.data(), size, nullptr, peer_, at, windows_[peer_].key, &written)
                                  : fi_writedata(s_.ep, out.data(), size, nullptr, i, peer_, at, windows_[peer_].key,
                                                 &written);
            });
            await(written);
            post([&] { return fi_read(s_.ep, in.data(), size, nullptr, peer_, at, windows_[peer_].key, &read); });
            await(read);
            ASSERT_TRUE(std::equal(in.begin(), in.begin() + size, out.begin())) << "round " << i;
            EXPECT_EQ(written.ends + read.ends, 2u);
        }
    }
    /// Adds one to each of rank 0's sums, all threads of all ranks to the same.
    void add(unsigned)
    {
        const Window& w = windows_[0];
        const std::uint64_t one = 1;
        const double one_real = 1;
        const std::complex<double> one_pair(1, -1);
        std::uint64_t before = 0, last = 0;
        for (unsigned i = 0; i < rounds; i++) {
            Op fetched, added, paired;
            post([&] {
                return fi_fetch_atomic(s_.ep, &one, 1, nullptr, &before, nullptr, 0,
                                       w.base + offsetof(Shared, integers), w.key, FI_UINT64, FI_SUM, &fetched);
            });
            post([&] {
                return fi_atomic(s_.ep, &one_real, 1, nullptr, 0, w.base + offsetof(Shared, reals), w.key, FI_DOUBLE,
                                 FI_SUM, &added);
            });
            post([&] {
                return fi_atomic(s_.ep, &one_pair, 1, nullptr, 0, w.base + offsetof(Shared, pair), w.key,
                                 FI_DOUBLE_COMPLEX, FI_SUM, &paired);
            });
            await(fetched);
            await(added);
            await(paired);
            EXPECT_TRUE(i == 0 || before > last);
            last = before;
            EXPECT_EQ(fetched.ends + added.ends, 2u);
        }
    }
    /// Sends to the same thread of the peer and receives from it, in order.
    void talk(unsigned t)
    {
        std::vector<std::uint32_t> out(lane / 4), in(lane / 4);
        for (unsigned i = 0; i < rounds; i++) {
            const std::size_t size = sizes[i % 4];
            out[0] = out[size / 4 - 1] = i * crews + t;
            Op sent, received;
            post([&] { return fi_trecv(s_.ep, in.data(), size, nullptr, peer_, t, 0, &received); });
            if (i % 8 == 0) {
                post([&] { return fi_tinject(s_.ep, out.data(), size, peer_, t); });
            } else {
                post([&] { return fi_tsend(s_.ep, out.data(), size, nullptr, peer_, t, &sent); });
                await(sent);
            }
            await(received);
            ASSERT_EQ(in[0], out[0]);
            ASSERT_EQ(in[size / 4 - 1], out[0]);
        }
    }
    /// The same without tags: what it receives may be another thread's.
    void speak(unsigned)
    {
        std::vector<std::uint32_t> out(lane / 4), in(lane / 4);
        for (unsigned i = 0; i < rounds; i++) {
            const std::size_t size = sizes[i % 4];
            out[0] = out[size / 4 - 1] = static_cast<std::uint32_t>(size);
            Op sent, received;
            post([&] { return fi_recv(s_.ep, in.data(), lane, nullptr, peer_, &received); });
            post([&] { return fi_send(s_.ep, out.data(), size, nullptr, peer_, &sent); });
            await(sent);
            await(received);
            ASSERT_TRUE(in[0] >= 8 && in[0] <= lane);
            ASSERT_EQ(in[in[0] / 4 - 1], in[0]);
        }
    }
    /// Registers, writes to itself through the region, and closes it.
    void register_and_write(unsigned t)
    {
        std::vector<std::uint8_t> memory(8000), out(8000);
        const auto at = reinterpret_cast<std::uint64_t>(memory.data());
        for (unsigned i = 0; i < rounds; i++) {
            std::fill(out.begin(), out.end(), static_cast<std::uint8_t>(i * 2 + t));
            const std::size_t size = i % 2 == 0 ? 24 : memory.size();
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(s_.domain, memory.data(), size, FI_REMOTE_WRITE, 0, 0, 0, &mr, nullptr), 0);
            Op written;
            post([&] {
                return fi_write(s_.ep, out.data(), size, nullptr, s_.rank.number, at, fi_mr_key(mr), &written);
            });
            await(written);
            EXPECT_EQ(fi_close(&mr->fid), 0);
            ASSERT_TRUE(std::equal(memory.begin(), memory.begin() + size, out.begin()));
        }
    }
    /// Cancels receives for which nothing is sent.
    void cancel(unsigned t)
    {
        std::uint64_t in = 0;
        for (unsigned i = 0; i < rounds; i++) {
            Op received;
            post([&] { return fi_trecv(s_.ep, &in, sizeof in, nullptr, peer_, 1000 + t, 0, &received); });
            EXPECT_EQ(fi_cancel(&s_.ep->fid, &received), 0);
            await(received, FI_ECANCELED);
        }
    }
    /// Gives this process further places in the vector that all use.
    void insert_and_remove(unsigned)
    {
        char name[64], found[64], text[64];
        std::size_t length = sizeof name;
        ASSERT_EQ(fi_getname(&s_.ep->fid, name, &length), 0);
        for (unsigned i = 0; i < rounds; i++) {
            fi_addr_t at = FI_ADDR_NOTAVAIL;
            ASSERT_EQ(fi_av_insert(s_.av, name, 1, &at, 0, nullptr), 1);
            EXPECT_GE(at, s_.rank.size);
            std::size_t size = sizeof found;
            EXPECT_EQ(fi_av_lookup(s_.av, at, found, &size), 0);
            EXPECT_EQ(std::memcmp(found, name, length), 0);
            size = sizeof text;
            EXPECT_NE(fi_av_straddr(s_.av, found, text, &size), nullptr);
            EXPECT_EQ(fi_av_remove(s_.av, &at, 1, 0), 0);
        }
    }
    /// Opens an endpoint with queue and counter, sends itself a message, looks at rank 0's sum, and
    /// closes them.
    void open_and_close(unsigned t)
    {
        for (unsigned i = 0; i < rounds / 10; i++) {
            fi_cq_attr queue{};
            queue.format = FI_CQ_FORMAT_DATA;
            queue.wait_obj = i % 2 == 0 ? FI_WAIT_FD : FI_WAIT_UNSPEC;
            fi_cntr_attr count{};
            fid_cq* cq = nullptr;
            fid_cntr* received = nullptr;
            fid_ep* ep = nullptr;
            ASSERT_EQ(fi_cq_open(s_.domain, &queue, &cq, nullptr), 0);
            ASSERT_EQ(fi_cntr_open(s_.domain, &count, &received, nullptr), 0);
            ASSERT_EQ(fi_endpoint(s_.domain, s_.info, &ep, nullptr), 0);
            ASSERT_EQ(fi_ep_bind(ep, &s_.av->fid, 0), 0);
            ASSERT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
            ASSERT_EQ(fi_ep_bind(ep, &received->fid, FI_RECV), 0);
            ASSERT_EQ(fi_enable(ep), 0);
            use(ep, cq, queue.wait_obj, i * 2 + t);
            EXPECT_EQ(fi_cntr_wait(received, 1, 40000), 0);
            EXPECT_EQ(fi_close(&ep->fid), 0);
            EXPECT_EQ(fi_close(&received->fid), 0);
            EXPECT_EQ(fi_close(&cq->fid), 0);
        }
    }
    void use(fid_ep* ep, fid_cq* cq, fi_wait_obj wait, std::uint64_t out)
    {
        char name[64];
        std::size_t length = sizeof name;
        ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
        fi_addr_t self = FI_ADDR_NOTAVAIL;
        ASSERT_EQ(fi_av_insert(s_.av, name, 1, &self, 0, nullptr), 1);
        std::uint64_t in = ~out, sum = 0;
        const Window& w = windows_[0];
        ASSERT_EQ(fi_trecv(ep, &in, sizeof in, nullptr, self, 7, 0, &in), 0);
        ASSERT_TRUE(wait_until([&] { return fi_tsend(ep, &out, sizeof out, nullptr, self, 7, &out) == 0; }));
        ASSERT_TRUE(wait_until([&] {
            return fi_fetch_atomic(ep, nullptr, 1, nullptr, &sum, nullptr, 0, w.base + offsetof(Shared, integers),
                                   w.key, FI_UINT64, FI_ATOMIC_READ, &sum) == 0;
        }));
        fi_cq_data_entry entry{};
        for (unsigned left = 3; left > 0; left--)
            ASSERT_TRUE(wait_until([&] {
                if (wait == FI_WAIT_UNSPEC)
                    return fi_cq_sread(cq, &entry, 1, nullptr, 50) == 1;
                doze(cq);
                return fi_cq_read(cq, &entry, 1) == 1;
            }));
        EXPECT_EQ(in, out);
        EXPECT_LE(sum, s_.rank.size * crews * rounds);
        EXPECT_EQ(fi_av_remove(s_.av, &self, 1, 0), 0);
    }
    /// Until the descriptor of a queue says that there may be something, or a while has passed.
    void doze(fid_cq* cq)
    {
        int fd = -1;
        ASSERT_EQ(fi_control(&cq->fid, FI_GETWAIT, &fd), 0);
        struct fid* fids[] = {&cq->fid};
        pollfd descriptor{fd, POLLIN, 0};
        if (fi_trywait(s_.fabric, fids, 1) == 0)
            ::poll(&descriptor, 1, 50);
    }
    /// One half writes events, the other reads them; all add to one counter and wait for it.
    void report_and_count(fid_eq* events, fid_cntr* tally, unsigned t)
    {
        for (unsigned i = 0; i < rounds; i++) {
            fi_eq_entry entry{};
            std::uint32_t event = 0;
            constexpr ssize_t size = sizeof entry;
            entry.data = i;
            if (t % 2 == 0) {
                EXPECT_EQ(fi_eq_write(events, FI_NOTIFY, &entry, size, 0), size);
            } else {
                EXPECT_EQ(fi_eq_sread(events, &event, &entry, size, 40000, 0), size);
                EXPECT_EQ(entry.data, i);
            }
            EXPECT_EQ(fi_cntr_add(tally, 1), 0);
            EXPECT_EQ(fi_cntr_wait(tally, i, 40000), 0);
        }
    }
    /// Asks which of queue and counter have something.
    void ask(const std::atomic<bool>& over)
    {
        fi_poll_attr attr{};
        fid_poll* set = nullptr;
        ASSERT_EQ(fi_poll_open(s_.domain, &attr, &set), 0);
        ASSERT_EQ(fi_poll_add(set, &s_.cq->fid, 0), 0);
        ASSERT_EQ(fi_poll_add(set, &s_.counter[write_counter]->fid, 0), 0);
        while (!over) {
            void* contexts[2];
            EXPECT_GE(fi_poll(set, contexts, 2), 0);
            if (wait_ == FI_WAIT_FD)
                doze(s_.cq);
        }
        EXPECT_EQ(fi_poll_del(set, &s_.counter[write_counter]->fid, 0), 0);
        EXPECT_EQ(fi_poll_del(set, &s_.cq->fid, 0), 0);
        EXPECT_EQ(fi_close(&set->fid), 0);
    }
    /// Those that post through the one endpoint, at once.
    void work()
    {
        begin();
        finish();
    }
    /// With those that change the domain's other objects meanwhile.
    void work_with_every_call()
    {
        fi_eq_attr eq_attr{};
        eq_attr.flags = FI_WRITE;
        eq_attr.wait_obj = FI_WAIT_UNSPEC;
        fi_cntr_attr count{};
        fid_eq* events = nullptr;
        fid_cntr* tally = nullptr;
        ASSERT_EQ(fi_eq_open(s_.fabric, &eq_attr, &events, nullptr), 0);
        ASSERT_EQ(fi_cntr_open(s_.domain, &count, &tally, nullptr), 0);
        begin();
        for (unsigned t = 0; t < crews; t++) {
            workers_.emplace_back([this, t] { register_and_write(t); });
            workers_.emplace_back([this, t] { cancel(t); });
            workers_.emplace_back([this, t] { insert_and_remove(t); });
            workers_.emplace_back([this, t] { open_and_close(t); });
            workers_.emplace_back([=, this] { report_and_count(events, tally, t); });
        }
        std::atomic<bool> over{false};
        std::thread asking([&] { ask(over); });
        finish();
        over = true;
        asking.join();
        EXPECT_EQ(fi_cntr_read(tally), crews * rounds);
        EXPECT_EQ(fi_close(&tally->fid), 0);
        EXPECT_EQ(fi_close(&events->fid), 0);
    }

  private:
    void begin()
    {
        for (unsigned t = 0; t < crews; t++) {
            workers_.emplace_back([this, t] { write_and_read(t); });
            workers_.emplace_back([this, t] { add(t); });
            workers_.emplace_back([this, t] { talk(t); });
            workers_.emplace_back([this, t] { speak(t); });
        }
    }
    /// With a thread that blocks on the queue and one that waits for the counter.
    void finish()
    {
        std::atomic<bool> over{false};
        std::thread reader([&] {
            while (!over)
                read_some(true);
        });
        // Writes and atomics that change; sends are not bound to it.
        std::thread counter([&] {
            for (unsigned i = 1; i <= crews * rounds; i++)
                EXPECT_EQ(fi_cntr_wait(s_.counter[write_counter], i, 40000), 0);
        });
        for (std::thread& worker : workers_)
            worker.join();
        counter.join();
        over = true;
        fi_cq_signal(s_.cq);
        reader.join();
        EXPECT_TRUE(wait_until([&] {
            read_some(false);
            return data_.load() == crews * rounds / 2;
        }));
        s_.expect_silence();
        EXPECT_EQ(fi_cntr_readerr(s_.counter[write_counter]), 0u);
    }

    Session& s_;
    const std::vector<Window>& windows_;
    const fi_wait_obj wait_;
    fi_addr_t peer_;
    std::vector<std::thread> workers_;
    std::atomic<unsigned> data_{0}; ///< entries of the peer's writes
};

void run_crew(unsigned ranks, fi_progress progress, fi_wait_obj wait = FI_WAIT_UNSPEC,
              void (Crew::*work)() = &Crew::work)
{
    expect_processes(ranks, [=](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_ATOMIC | FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
        options.counters = true;
        options.progress = progress;
        options.wait = wait;
        Session s(rank, options);
        const auto shared = std::make_unique<Shared>();
        const auto windows = s.share(shared.get(), sizeof(Shared));
        Crew crew(s, windows, wait);
        (crew.*work)();
        // A rank that has its completions still serves the others, until all have theirs.
        rank.set(700 + rank.number, 1);
        EXPECT_TRUE(wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            unsigned done = 0;
            for (unsigned r = 0; r < rank.size; r++)
                done += rank.get(700 + r) == 1;
            return done == rank.size;
        }));
        if (rank.number == 0) {
            EXPECT_EQ(shared->integers, rank.size * crews * rounds);
            EXPECT_EQ(shared->reals, rank.size * crews * rounds);
            EXPECT_EQ(shared->pair.real(), rank.size * crews * rounds);
            EXPECT_EQ(shared->pair.imag(), -1.0 * rank.size * crews * rounds);
        }
    });
}

TEST(Threads, ShareAnEndpointAndItsQueue)
{
    run_crew(2, FI_PROGRESS_MANUAL);
}
TEST(Threads, ShareThemWithTheThreadOfTheDomain)
{
    run_crew(2, FI_PROGRESS_AUTO);
}
TEST(Threads, ShareTheDomainInEveryCall)
{
    run_crew(2, FI_PROGRESS_AUTO, FI_WAIT_FD, &Crew::work_with_every_call);
}
/// Queues with descriptors come and go, and with them the domain's thread.
TEST(Threads, ShareTheDomainInEveryCallWithAThreadNowAndThen)
{
    run_crew(2, FI_PROGRESS_MANUAL, FI_WAIT_UNSPEC, &Crew::work_with_every_call);
}
TEST(Threads, ShareThemTalkingToThemselves)
{
    run_crew(1, FI_PROGRESS_MANUAL);
}
/// Which have one CQ each (guide 4.3.2.1: they are distributed to the processes of a node).
TEST(Threads, ShareThemOnANodeFullOfProcesses)
{
    setenv("TOFU_SIM_PPN", "48", 1);
    run_crew(2, FI_PROGRESS_MANUAL);
    unsetenv("TOFU_SIM_PPN");
}

/// A domain of FI_THREAD_DOMAIN with two endpoints, which are bound to an event queue.
struct OwnDomain {
    OwnDomain(Session& s, fid_eq* events)
    {
        Session::check(fi_domain(s.fabric, s.info, &domain, nullptr), "fi_domain");
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        Session::check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
        fi_cq_attr cq_attr{};
        cq_attr.format = FI_CQ_FORMAT_DATA;
        Session::check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
        for (fid_ep*& ep : eps) {
            Session::check(fi_endpoint(domain, s.info, &ep, nullptr), "fi_endpoint");
            Session::check(fi_ep_bind(ep, &av->fid, 0), "bind av");
            Session::check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
            Session::check(fi_ep_bind(ep, &events->fid, 0), "bind eq");
            Session::check(fi_enable(ep), "fi_enable");
            char name[64];
            std::size_t length = sizeof(name);
            Session::check(fi_getname(&ep->fid, name, &length), "fi_getname");
            EXPECT_EQ(fi_av_insert(av, name, 1, nullptr, 0, nullptr), 1);
        }
    }
    OwnDomain(const OwnDomain&) = delete;
    ~OwnDomain()
    {
        for (fid_ep* ep : eps)
            EXPECT_EQ(fi_close(&ep->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);
        EXPECT_EQ(fi_close(&av->fid), 0);
        EXPECT_EQ(fi_close(&domain->fid), 0);
    }
    /// Sends messages from one endpoint to the other.
    void talk()
    {
        char out[3000], in[sizeof out];
        for (unsigned i = 0; i < 4; i++) {
            const std::size_t length = sizes[i % 3];
            std::memset(out, static_cast<int>(i), length);
            ASSERT_EQ(fi_trecv(eps[1], in, length, nullptr, FI_ADDR_UNSPEC, i, 0, in), 0);
            ASSERT_TRUE(wait_until([&] {
                const ssize_t ret = fi_tsend(eps[0], out, length, nullptr, 1, i, out);
                return ret != -FI_EAGAIN ? ret == 0 : (fi_cq_read(cq, nullptr, 0), false);
            }));
            fi_cq_data_entry entry{};
            for (unsigned left = 2; left > 0; left--)
                ASSERT_TRUE(wait_until([&] { return fi_cq_read(cq, &entry, 1) == 1; }));
            ASSERT_EQ(std::memcmp(in, out, length), 0);
        }
    }
    /// Both join a group, and wait for that by the event queue alone.
    void join(fid_eq* events)
    {
        fi_av_set_attr attr{};
        attr.count = 2;
        attr.end_addr = 1;
        attr.stride = 1;
        fid_av_set* set = nullptr;
        Session::check(fi_av_set(av, &attr, &set, nullptr), "fi_av_set");
        fid_mc* groups[2] = {};
        for (unsigned i = 0; i < 2; i++)
            Session::check(fi_join_collective(eps[i], FI_ADDR_NOTAVAIL, set, 0, &groups[i], nullptr), "join");
        for (unsigned i = 0; i < 2; i++) {
            fi_eq_entry entry{};
            std::uint32_t event = 0;
            constexpr ssize_t size = sizeof entry;
            ASSERT_EQ(fi_eq_sread(events, &event, &entry, size, 40000, 0), size);
            ASSERT_EQ(event, static_cast<std::uint32_t>(FI_JOIN_COMPLETE));
        }
        for (fid_mc* group : groups)
            EXPECT_EQ(fi_close(&group->fid), 0);
        EXPECT_EQ(fi_close(&set->fid), 0);
    }

    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_ep* eps[2] = {};
};

/// The queue belongs to no domain. A thread that waits for its own joins there meets no other thread's domain.
TEST(Threads, WithADomainEachShareAnEventQueue)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE;
        options.threading = FI_THREAD_DOMAIN;
        options.enable = false;
        Session s(rank, options);
        fi_eq_attr attr{};
        attr.wait_obj = FI_WAIT_UNSPEC;
        fid_eq* events = nullptr;
        Session::check(fi_eq_open(s.fabric, &attr, &events, nullptr), "fi_eq_open");
        {
            OwnDomain joins(s, events), talks(s, events);
            std::atomic<bool> over{false};
            std::thread another([&] {
                while (!over)
                    talks.talk();
            });
            for (unsigned i = 0; i < 1000; i++)
                joins.join(events);
            over = true;
            another.join();
        }
        EXPECT_EQ(fi_close(&events->fid), 0);
    });
}

} // namespace
} // namespace tofu::test
