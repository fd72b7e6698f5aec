// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_close of an endpoint whose peer was killed: before contact, in each protocol, with credits due, in its own close.
// Whatever is outstanding, the close succeeds, what others were sent before arrives there, nothing is reported twice or
// afterwards, and the domain goes on with another endpoint. The provider, linked in, over a simulator whose posts are
// counted: the victim dies in front of a chosen one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "msg/rx_ring.h"
#include "prov/lib/session.h"
#include "prov/lib/silent.h"

namespace tofu::test {
namespace {

using sim::test::wait_until;

enum Who : unsigned { closer, victim, witness };

/// What the victim does, in this order.
enum Phase : unsigned { nothing_yet, contact, eager, rendezvous_out, rendezvous_in, events, atomics, closing, end };
constexpr const char* names[] = {"nothing yet",           "contact", "eager",   "rendezvous, sending",
                                 "rendezvous, receiving", "events",  "atomics", "fi_close"};

/// Shared by the processes of a test.
struct Scene {
    std::atomic<pid_t> victim;
    std::atomic<bool> goes;                ///< the victim closes or dies: what it has to do with may fail
    std::atomic<bool> dies;                ///< it is about to
    std::atomic<bool> slow;                ///< the close took as long as its limit for processes that do not run
    std::atomic<std::uint64_t> address[4]; ///< of the closer's second endpoint
    std::atomic<bool> reopened;
};
Scene* scene = nullptr;

bool armed = false;      ///< this process is the victim, in its last phase
unsigned posts_left = 0; ///< until it dies

void die()
{
    if (testing::Test::HasFailure())
        std::_Exit(1);
    scene->goes = scene->dies = true;
    ::kill(::getpid(), SIGKILL);
}
void before_post()
{
    if (armed && posts_left-- == 0)
        die();
}

/// Dead, though its parent has not been notified yet.
bool is_dead(pid_t pid)
{
    char path[32], text[512];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    text[std::max<ssize_t>(n, 0)] = '\0';
    const char* const name_end = std::strrchr(text, ')');
    return name_end == nullptr || name_end[1] == '\0' || std::strchr("ZX", name_end[2]) != nullptr;
}

struct Memory {
    std::uint64_t words[64]; ///< for atomics, all 1
    std::uint64_t told[64];  ///< what the closer has injected into it
    std::uint8_t room[4096]; ///< for the writes of each rank
};

constexpr std::size_t sizes[] = {8, 100, 3000, 100000}; ///< piggyback, one slot, long eager, rendezvous
constexpr unsigned rounds = 6;                          ///< messages of each size and direction
constexpr unsigned last_words = 60;                     ///< injected into the witness
constexpr std::uint64_t word_tag = 1000, second_tag = 2000;

/// An operation of a rank, reported at most once.
struct Op {
    unsigned peer;
    std::vector<std::uint8_t> bytes;
    std::uint64_t word = 0;
    bool busy = false;
    bool failed = false;
};

class Actor {
  public:
    Actor(const Rank& rank, const Options& options) : rank_(rank), s(std::make_unique<Session>(rank, options))
    {
        for (std::uint64_t& word : memory().words)
            word = 1;
        windows_ = s->share(&memory(), sizeof(Memory));
        if (rank.number == victim)
            scene->victim = ::getpid();
        s->barrier();
    }
    static Memory& memory()
    {
        alignas(65536) static Memory m;
        return m;
    }

    /// One entry of the queue, if there is one.
    bool take()
    {
        fi_cq_data_entry entry{};
        const ssize_t got = fi_cq_read(s->cq, &entry, 1);
        if (got == -FI_EAGAIN)
            return false;
        fi_cq_err_entry error{};
        if (got == -FI_EAVAIL) {
            EXPECT_EQ(fi_cq_readerr(s->cq, &error, 0), 1);
        } else {
            EXPECT_EQ(got, 1);
            if ((entry.flags & FI_REMOTE_CQ_DATA) != 0)
                return true; // of a write that came here
        }
        auto* const op = static_cast<Op*>(got == 1 ? entry.op_context : error.op_context);
        if (op == nullptr) { // of what was injected
            EXPECT_TRUE(got != 1 && scene->goes.load()) << fi_strerror(error.err);
            return true;
        }
        EXPECT_TRUE(op->busy) << "reported twice";
        op->busy = false;
        op->failed = got != 1;
        EXPECT_TRUE(got == 1 || (op->peer == victim && scene->goes.load()))
            << "rank " << rank_.number << ", peer " << op->peer << ": " << fi_strerror(error.err) << ", uTofu "
            << error.prov_errno;
        return true;
    }
    bool until(const std::function<bool()>& done)
    {
        return wait_until([&] { return take(), done(); });
    }
    /// Posts; a post to a dead peer may fail.
    template <class Call>
    void post(unsigned peer, Call&& call)
    {
        ssize_t ret = -FI_EAGAIN;
        EXPECT_TRUE(until([&] { return (ret = call()) != -FI_EAGAIN || (peer == victim && scene->goes.load()); }));
        EXPECT_TRUE(ret == 0 || (peer == victim && scene->goes.load())) << fi_strerror(static_cast<int>(-ret));
    }
    template <class Call>
    Op& track(unsigned peer, std::size_t size, Call&& call)
    {
        Op& op = *ops_.emplace_back(std::make_unique<Op>(Op{peer, std::vector<std::uint8_t>(size, 7)}));
        post(peer, [&] {
            op.busy = true; // its end may come within the call
            const ssize_t ret = call(op);
            op.busy = ret == 0;
            return ret;
        });
        return op;
    }
    void send(unsigned to, std::size_t size)
    {
        track(to, size, [&](Op& op) { return fi_tsend(s->ep, op.bytes.data(), size, nullptr, to, size, &op); });
    }
    Op& receive(unsigned from, std::size_t size, std::uint64_t tag)
    {
        return track(from, size,
                     [&](Op& op) { return fi_trecv(s->ep, op.bytes.data(), size, nullptr, from, tag, 0, &op); });
    }
    void write(unsigned to, unsigned i)
    {
        track(to, 8, [&](Op& op) {
            return fi_writedata(s->ep, op.bytes.data(), 8, nullptr, i, to, at(to, offsetof(Memory, room) + 8 * i),
                                windows_[to].key, &op);
        });
    }
    /// By a row of CSWAPs, and under a lock word.
    void update(unsigned peer)
    {
        static const std::uint64_t threes[8] = {3, 3, 3, 3, 3, 3, 3, 3};
        static const long double wide = 3;
        track(peer, 64, [&](Op& op) {
            return fi_fetch_atomic(s->ep, threes, 8, nullptr, op.bytes.data(), nullptr, peer, at(peer, 0),
                                   windows_[peer].key, FI_UINT64, FI_PROD, &op);
        });
        track(peer, 0, [&](Op& op) {
            return fi_atomic(s->ep, &wide, 1, nullptr, peer, at(peer, 128), windows_[peer].key, FI_LONG_DOUBLE, FI_SUM,
                             &op);
        });
    }
    /// A message and a write without any report.
    void inject(unsigned to, std::uint64_t i)
    {
        post(to, [&] { return fi_tinject(s->ep, &i, 8, to, word_tag); });
        post(to, [&] {
            return fi_inject_write(s->ep, &i, 8, to, at(to, offsetof(Memory, told) + 8 * (i % 64)), windows_[to].key);
        });
    }
    [[nodiscard]] std::uint64_t at(unsigned peer, std::size_t offset) const { return windows_[peer].base + offset; }
    [[nodiscard]] bool idle() const
    {
        return std::none_of(ops_.begin(), ops_.end(), [](const auto& op) { return op->busy; });
    }

    // --- the parts

    void live_and_die(Phase last, unsigned before)
    {
        const auto enter = [&](Phase phase) {
            if (phase == last) {
                posts_left = before;
                armed = true;
            }
        };
        /// Until all of a phase has ended. A rank that should die in this phase and still lives dies then.
        const auto leave = [&](Phase phase) {
            EXPECT_TRUE(until([&] { return idle(); })) << names[phase];
            if (phase == last)
                die();
        };
        leave(nothing_yet);
        enter(contact);
        for (const unsigned peer : {closer, witness})
            send(peer, sizes[0]);
        leave(contact);
        enter(eager);
        for (unsigned i = 1; i < rounds; i++)
            send(closer, sizes[0]);
        for (const std::size_t size : {sizes[1], sizes[2]})
            for (unsigned i = 0; i < rounds; i++)
                send(closer, size);
        leave(eager);
        enter(rendezvous_out);
        for (unsigned i = 0; i < rounds; i++)
            send(closer, sizes[3]);
        leave(rendezvous_out);
        enter(rendezvous_in);
        for (const std::size_t size : sizes)
            for (unsigned i = 0; i < rounds; i++)
                receive(closer, size, size);
        leave(rendezvous_in);
        enter(events);
        for (unsigned i = 0; i < 40; i++)
            for (const unsigned peer : {closer, witness})
                write(peer, i);
        leave(events);
        enter(atomics);
        for (unsigned i = 0; i < 4; i++)
            for (const unsigned peer : {closer, witness})
                update(peer);
        leave(atomics);
        for (unsigned i = 0; i < 10; i++)
            inject(closer, i);
        send(closer, 50000); // it is not received
        scene->goes = true;
        enter(closing);
        (void)fi_close(&s->ep->fid);
        die();
    }

    /// Everything to and from the victim, and last words to the witness.
    void talk()
    {
        for (const std::size_t size : sizes)
            for (unsigned i = 0; i < rounds; i++) {
                receive(victim, size, size);
                send(victim, size);
            }
        for (unsigned i = 0; i < 40; i++)
            write(victim, i);
        update(victim);
    }
    void be_closed(bool notice)
    {
        talk();
        for (unsigned i = 0; i < last_words / 2; i++)
            inject(witness, i);
        EXPECT_TRUE(until([&] { return scene->dies && is_dead(scene->victim); })) << "the victim does not die";
        update(victim); // or be refused
        send(victim, sizes[1]);
        for (unsigned i = last_words / 2; i < last_words; i++)
            inject(witness, i);
        if (notice) {
            for (const auto& op : ops_)
                (void)fi_cancel(&s->ep->fid, op.get()); // receives; else it ends by itself
            EXPECT_TRUE(until([&] { return idle(); })) << "what was posted to the dead does not end";
        }
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(fi_close(&s->ep->fid), 0);
        const auto took = std::chrono::steady_clock::now() - start;
        EXPECT_LT(took, std::chrono::seconds(20));
        scene->slow = took > std::chrono::seconds(1);
        while (take()) {
        }
        for (const auto& op : ops_) {
            op->busy = false; // discarded: they are not reported any more
            std::fill(op->bytes.begin(), op->bytes.end(), std::uint8_t{0x5a});
        }
        open_again();
        EXPECT_TRUE(std::all_of(ops_.begin(), ops_.end(), [](const auto& op) {
            return std::all_of(op->bytes.begin(), op->bytes.end(), [](std::uint8_t b) { return b == 0x5a; });
        })) << "memory was written to after the close";
    }
    void open_again()
    {
        Session::check(fi_endpoint(s->domain, s->info, &s->ep, nullptr), "fi_endpoint");
        Session::check(fi_ep_bind(s->ep, &s->av->fid, 0), "bind av");
        Session::check(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
        Session::check(fi_enable(s->ep), "fi_enable");
        std::uint64_t name[4] = {};
        std::size_t length = sizeof name;
        Session::check(fi_getname(&s->ep->fid, name, &length), "fi_getname");
        for (unsigned i = 0; i < 4; i++)
            scene->address[i] = name[i];
        scene->reopened = true;
        std::vector<std::unique_ptr<Op>> before;
        before.swap(ops_);
        send(witness, sizes[3]);
        Op& answer = receive(witness, sizes[2], second_tag);
        EXPECT_TRUE(until([&] { return idle(); })) << "the second endpoint does not work";
        EXPECT_FALSE(answer.failed);
        before.swap(ops_);
    }

    void witness_it()
    {
        receive(victim, sizes[0], sizes[0]);
        for (unsigned i = 0; i < 4; i++) { // outstanding at the end
            send(victim, sizes[3]);
            receive(victim, sizes[2], 5);
            update(victim);
        }
        for (std::uint64_t i = 0; i < last_words; i++) {
            const Op& op = receive(closer, 8, word_tag);
            ASSERT_TRUE(until([&] { return !op.busy; })) << "word " << i << " has not come";
            std::uint64_t word = 0;
            std::memcpy(&word, op.bytes.data(), 8);
            EXPECT_EQ(word, i);
        }
        EXPECT_TRUE(until([&] {
            for (std::uint64_t i = 0; i < last_words; i++)
                if (std::atomic_ref(memory().told[i]).load() != i)
                    return false;
            return true;
        })) << "a write has not come";
        ASSERT_TRUE(until([&] { return scene->reopened.load(); }));
        std::uint64_t name[4];
        for (unsigned i = 0; i < 4; i++)
            name[i] = scene->address[i];
        fi_addr_t second = 0;
        ASSERT_EQ(fi_av_insert(s->av, name, 1, &second, 0, nullptr), 1);
        receive(static_cast<unsigned>(second), sizes[3], sizes[3]);
        track(closer, sizes[2],
              [&](Op& op) { return fi_tsend(s->ep, op.bytes.data(), sizes[2], nullptr, second, second_tag, &op); });
        EXPECT_TRUE(until([&] {
            return std::none_of(ops_.begin(), ops_.end(),
                                [](const auto& op) { return op->busy && op->peer != victim; });
        })) << "the second endpoint does not answer";
    }

  private:
    const Rank& rank_;
    std::unique_ptr<Session> s;
    std::vector<Window> windows_;
    std::vector<std::unique_ptr<Op>> ops_;
};

struct Way {
    const char* name;
    std::uint64_t events;
    int mr_mode;
    const char* rings;
    const char* mrq; ///< with events, small: credits are scarce
    const char* chaos;
    bool silent = false; ///< survivors get no report of failed accesses
};
constexpr Way ways[] = {{"Plain", 0, provider_keys, "512", "128Ki", nullptr},
                        {"EventsAndOneRing", FI_RMA_EVENT, 0, "1", "2Ki", nullptr},
                        {"Adversary", 0, provider_keys, "1", "128Ki", "5"},
                        {"SilentWithEventsAndOneRing", FI_RMA_EVENT, 0, "1", "2Ki", nullptr, true}};

void PrintTo(const Way& way, std::ostream* stream) // found by GoogleTest
{
    *stream << way.name;
}

/// True: the close took its time, as if the dead could come back.
bool lose(const Way& way, Phase last, unsigned before, bool notice)
{
    SCOPED_TRACE(testing::Message() << "killed before post " << before << " of " << names[last]
                                    << (notice ? ", noticed" : ""));
    static void* const memory =
        ::mmap(nullptr, sizeof(Scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    scene = new (memory) Scene{};
    const auto exits = sim::test::run_processes(3, [&](const Rank& rank) {
        setenv("FI_TOFU_RINGS", way.rings, 1);
        setenv("UTOFU_NUM_MRQ_ENTRIES", way.mrq, 1);
        if (way.chaos != nullptr)
            setenv("TOFU_SIM_CHAOS", way.chaos, 1);
        surround_posts<[](auto next, utofu_vcq_hdl_t vcq, auto... rest) {
            before_post();
            return next(vcq, rest...);
        }>(library_functions());
        if (way.silent && rank.number != victim) {
            fall_silent(std::chrono::milliseconds(100));
            proto::TxRings::absent_limit_ms = 1000;
        }
        Options options;
        options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | way.events;
        options.mr_mode = way.mr_mode;
        options.leaves_together = false;
        Actor actor(rank, options);
        if (rank.number == victim)
            actor.live_and_die(last, before);
        rank.number == closer ? actor.be_closed(notice) : actor.witness_it();
    });
    for (const unsigned r : {closer, witness}) {
        EXPECT_TRUE(exits[r].success()) << r << ": " << exits[r].errors;
        // The simulator may take a process whose threads are still ending for one that has closed its files, and says
        // so.
        EXPECT_TRUE(exits[r].errors.empty() || exits[r].errors.find("runs but cannot be accessed") != std::string::npos)
            << r << ": " << exits[r].errors;
    }
    EXPECT_TRUE(WIFSIGNALED(exits[victim].status)) << exits[victim].errors;
    if (sim::test::job_is_left()) // the last thread of the victim may end after the survivors have left
        sim::test::clear_last_job();
    EXPECT_FALSE(sim::test::job_is_left());
    return scene->slow;
}

class Killed : public testing::TestWithParam<Way> {};

TEST_P(Killed, PeersHoldNoCloseUp)
{
    unsigned slow = 0;
    for (unsigned phase = 0; phase < end && !HasFailure(); phase++)
        for (const unsigned before : {0u, 1u, 5u})
            if (!GetParam().silent || before == 1)
                slow += lose(GetParam(), static_cast<Phase>(phase), before, before == 1);
    EXPECT_LE(slow, 4u); // of 24, or 8: the machine may be busy
}

INSTANTIATE_TEST_SUITE_P(Ways, Killed, testing::ValuesIn(ways),
                         [](const auto& test) { return std::string(test.param.name); });

} // namespace
} // namespace tofu::test
