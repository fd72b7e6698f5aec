// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process that sleeps (SIGSTOP) in front of any of its posts, for longer than every time-out: its peers' clock and
// its own go on by hours meanwhile. Nothing is lost, doubled or changed, and all come to their end. The provider,
// linked in, over a simulator whose posts are counted.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "prov/lib/library.h"
#include "prov/lib/session.h"

namespace {

/// What the processes of a test share: their time, and the sleeper.
struct Night {
    std::atomic<std::int64_t> ahead_ms; ///< of the machine's clock
    std::atomic<pid_t> sleeper;         ///< 0: none
    std::atomic<bool> asleep;           ///< the kernel says so
    std::atomic<unsigned> looks;        ///< at the clock, by the others
    std::atomic<unsigned> posts;        ///< of the victim
    std::atomic<unsigned> met[8];
    std::atomic<bool> failed;
    std::atomic<bool> told; ///< the victim was notified that its lease was over
};
Night* night = nullptr;

unsigned own_rank = ~0u, victim = ~0u, sleeps_before = 0;

/// How far the time goes on with each look: small steps first, beyond every time-out at last (ticks of 4 ms, the watch
/// of 100 ms, leases of 300 ms and 1 s, patience of 1 to 10 s, contact 10 s), and then for an hour.
std::int64_t step_ms(unsigned look)
{
    constexpr std::int64_t steps[] = {5, 120, 700, 11'000};
    return look / 32 < std::size(steps) ? steps[look / 32] : 3'600'000;
}
constexpr unsigned most_looks = 4 * 32;

bool is_stopped(pid_t pid)
{
    char path[32], text[512];
    std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char* const name_end = std::strrchr(text, ')');
    return name_end != nullptr && name_end[1] != '\0' && name_end[2] == 'T';
}

void wake()
{
    if (const pid_t pid = night->sleeper.load(); pid != 0)
        ::kill(pid, SIGCONT);
}

/// The time of processes that are awake advances when they read it: no test waits for it.
void look_at_the_clock()
{
    const pid_t pid = night->sleeper.load();
    if (pid == 0 || own_rank == victim || own_rank == ~0u)
        return;
    if (!night->asleep.load()) {
        if (!is_stopped(pid))
            return;
        night->asleep = true;
    }
    const unsigned look = night->looks.fetch_add(1);
    if (look <= most_looks)
        night->ahead_ms += step_ms(look);
    if (look >= most_looks)
        wake();
}

void before_post()
{
    if (own_rank != victim || ++night->posts != sleeps_before)
        return;
    night->sleeper = ::getpid();
    (void)::raise(SIGSTOP);
    night->sleeper = 0;
}

} // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept
{
    const long rc = ::syscall(SYS_clock_gettime, clock, time);
    if (night != nullptr && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
        look_at_the_clock();
        const std::int64_t ahead = night->ahead_ms.load();
        time->tv_sec += ahead / 1000;
        time->tv_nsec += ahead % 1000 * 1'000'000;
        if (time->tv_nsec >= 1'000'000'000) {
            time->tv_sec++;
            time->tv_nsec -= 1'000'000'000;
        }
    }
    return int(rc);
}

namespace tofu::test {
namespace {

using sim::test::expect_processes;

void count_posts()
{
    constexpr auto counted = [](auto next, utofu_vcq_hdl_t vcq, auto... rest) {
        before_post();
        return next(vcq, rest...);
    };
    auto& functions = library_functions();
    surround_posts<counted>(functions);
    surround<counted, &vcq::Functions::free_vcq>(functions);
    functions.yield = nullptr; // time advances when others read it; they would sleep for most of it
}

/// The machine's clock, in seconds.
double real_seconds()
{
    timespec now;
    ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
}

/// `step` makes progress. Bounded by real time.
template <class Step>
bool until(Step&& step)
{
    for (const double end = real_seconds() + 20; !step(); ::sched_yield())
        if (night->failed.load() || real_seconds() > end)
            return false;
    return true;
}

/// All ranks, which make progress meanwhile if there is anything to make it with.
bool meet(unsigned place, unsigned size, Session* s)
{
    night->met[place]++;
    return until([&] {
        if (s != nullptr) {
            fi_cq_read(s->cq, nullptr, 0);
        } else {
            timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
        }
        return night->met[place].load() >= size;
    });
}

/// How a night is spent.
struct Way {
    const char* name;
    std::uint64_t caps;
    int mr_mode;
    std::uint64_t order;
    const char* rings;
    const char* mrq;
};

constexpr std::uint64_t everything = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
constexpr Way ways[] = {
    {"plain", everything, provider_keys, 0, "512", "128Ki"},
    {"rings that are asked back", everything, provider_keys, 0, "1", "128Ki"},
    {"events, keys of the user, order", everything | FI_RMA_EVENT, 0,
     FI_ORDER_SAS | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW, "512", "2Ki"},
};

void PrintTo(const Way& way, std::ostream* stream) // found by GoogleTest
{
    *stream << way.name;
}

/// Some of everything to every other rank, all of it checked.
class Life {
  public:
    Life(const Rank& rank, const Options& options) : session_(std::make_unique<Session>(rank, options)), rank_(rank)
    {
        Session& s = *session_;
        windows_ = s.share(&memory(), sizeof(Memory));
        memory() = {};
        memory().product = 1;
        s.barrier();
    }
    void live()
    {
        messages();
        rma();
        atomics();
        ASSERT_TRUE(meet(0, rank_.size, session_.get()));
        check();
        ASSERT_TRUE(meet(1, rank_.size, session_.get()));
        last_words();
        session_.reset();
        ASSERT_TRUE(meet(2, rank_.size, nullptr));
    }

  private:
    static constexpr unsigned most = 3;
    static constexpr std::size_t large = 20000;
    static constexpr std::size_t sizes[] = {8, 8, 1000, 1000, large, large};
    static constexpr std::uint64_t last_tag = 99;

    struct Memory {
        std::uint64_t sum;
        double product;
        alignas(16) long double wide;
        alignas(256) std::uint8_t from[most][large + 64];
    };
    struct Op {
        unsigned ends = 0;
        std::vector<std::uint8_t> bytes;
    };

    static Memory& memory()
    {
        alignas(65536) static Memory m;
        return m;
    }
    static std::vector<std::uint8_t> pattern(std::size_t size, unsigned from, unsigned to, unsigned number)
    {
        std::vector<std::uint8_t> bytes(size);
        for (std::size_t i = 0; i < size; i++)
            bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + from * 31 + to * 57 + number * 13 + 1);
        return bytes;
    }
    template <class Visit>
    void peers(Visit&& visit)
    {
        for (unsigned peer = 0; peer < rank_.size; peer++)
            if (peer != rank_.number)
                visit(peer);
    }
    void take()
    {
        fi_cq_data_entry entry{};
        for (ssize_t got = 0; (got = fi_cq_read(session_->cq, &entry, 1)) != -FI_EAGAIN;) {
            if (got == 1 && (entry.flags & FI_REMOTE_CQ_DATA) != 0) {
                EXPECT_LT(entry.data, most);
                data_[entry.data % most]++;
            } else if (got == 1) {
                static_cast<Op*>(entry.op_context)->ends++;
            } else {
                fi_cq_err_entry error{};
                ASSERT_EQ(fi_cq_readerr(session_->cq, &error, 0), 1);
                // docs/wire-protocol.md, Regions: an initiator that sleeps between its look at the clock and its Put
                // gets an error.
                ASSERT_TRUE(rank_.number == victim && error.err == FI_EIO && error.op_context == &wide_)
                    << "rank " << rank_.number << ": " << fi_strerror(error.err) << ", flags " << error.flags
                    << ", uTofu " << error.prov_errno;
                night->told = true;
                wide_.ends++;
            }
        }
    }
    template <class Call>
    void post(const char* what, Call&& call)
    {
        ssize_t ret = -FI_EAGAIN;
        ASSERT_TRUE(until([&] { return ret = call(), take(), ret != -FI_EAGAIN; })) << what << " is refused";
        ASSERT_EQ(ret, 0) << what << ": " << fi_strerror(static_cast<int>(-ret));
    }
    void expect_end(const char* what, const Op& op)
    {
        ASSERT_TRUE(until([&] { return take(), op.ends != 0; })) << what << " does not end";
    }

    void messages()
    {
        constexpr unsigned count = std::size(sizes);
        static Op sends[most][count], receives[most][count];
        fid_ep* const ep = session_->ep;
        const auto receive = [&](unsigned peer, unsigned i) {
            receives[peer][i].bytes.assign(sizes[i] + 1, 0xee);
            post("trecv", [&] {
                return fi_trecv(ep, receives[peer][i].bytes.data(), sizes[i], nullptr, peer, i, 0, &receives[peer][i]);
            });
        };
        for (unsigned i = 0; i < count; i += 2)
            peers([&](unsigned peer) { receive(peer, i); });
        for (unsigned i = 0; i < count; i++)
            peers([&](unsigned peer) {
                Op& op = sends[peer][i];
                op.bytes = pattern(sizes[i], rank_.number, peer, i);
                const iovec local{op.bytes.data(), sizes[i]};
                const fi_msg_tagged msg{&local, nullptr, 1, peer, i, 0, &op, 0};
                post("tsend",
                     [&] { return fi_tsendmsg(ep, &msg, FI_COMPLETION | (i % 2 != 0 ? FI_DELIVERY_COMPLETE : 0)); });
            });
        for (unsigned i = 1; i < count; i += 2)
            peers([&](unsigned peer) { receive(peer, i); });
        peers([&](unsigned peer) {
            for (unsigned i = 0; i < count; i++) {
                expect_end("a receive", receives[peer][i]);
                expect_end("a send", sends[peer][i]);
                EXPECT_EQ(sends[peer][i].ends, 1u);
                EXPECT_EQ(receives[peer][i].ends, 1u);
                auto expected = pattern(sizes[i], peer, rank_.number, i);
                expected.push_back(0xee);
                EXPECT_TRUE(receives[peer][i].bytes == expected) << sizes[i] << " bytes of " << peer;
            }
        });
    }
    void rma()
    {
        fid_ep* const ep = session_->ep;
        peers([&](unsigned peer) {
            static Op write[most], data[most], read[most];
            const std::uint64_t key = windows_[peer].key;
            const std::uint64_t at =
                windows_[peer].base + offsetof(Memory, from) + rank_.number * sizeof memory().from[0];
            write[peer].bytes = pattern(large, rank_.number, peer, 70);
            read[peer].bytes.resize(large);
            post("write",
                 [&] { return fi_write(ep, write[peer].bytes.data(), large, nullptr, peer, at, key, &write[peer]); });
            expect_end("write", write[peer]);
            post("writedata", [&] {
                return fi_writedata(ep, write[peer].bytes.data(), 8, nullptr, rank_.number, peer, at + large, key,
                                    &data[peer]);
            });
            post("inject_write",
                 [&] { return fi_inject_write(ep, write[peer].bytes.data(), 8, peer, at + large + 8, key); });
            post("read",
                 [&] { return fi_read(ep, read[peer].bytes.data(), large, nullptr, peer, at, key, &read[peer]); });
            expect_end("writedata", data[peer]);
            expect_end("read", read[peer]);
            EXPECT_TRUE(read[peer].bytes == write[peer].bytes);
            EXPECT_EQ(write[peer].ends + data[peer].ends + read[peer].ends, 3u);
        });
    }
    void atomics()
    {
        fid_ep* const ep = session_->ep;
        const std::uint64_t one = 1, at = windows_[0].base, key = windows_[0].key;
        const double two = 2;
        const long double three = 3;
        static Op sum, product;
        std::uint64_t before = ~std::uint64_t{0};
        post("fetch_atomic", [&] {
            return fi_fetch_atomic(ep, &one, 1, nullptr, &before, nullptr, 0, at, key, FI_UINT64, FI_SUM, &sum);
        });
        expect_end("fetch_atomic", sum);
        EXPECT_LT(before, rank_.size);
        post("a loop", [&] {
            return fi_atomic(ep, &two, 1, nullptr, 0, at + offsetof(Memory, product), key, FI_DOUBLE, FI_PROD,
                             &product);
        });
        expect_end("a loop", product);
        post("a wide one", [&] {
            return fi_atomic(ep, &three, 1, nullptr, 0, at + offsetof(Memory, wide), key, FI_LONG_DOUBLE, FI_SUM,
                             &wide_);
        });
        expect_end("a wide one", wide_);
        EXPECT_EQ(sum.ends + product.ends + wide_.ends, 3u);
    }
    void check()
    {
        ASSERT_TRUE(until([&] { // CQ data are read by any poll
            take();
            unsigned all = 0;
            peers([&](unsigned peer) { all += data_[peer]; });
            return all == rank_.size - 1;
        }));
        peers([&](unsigned peer) {
            EXPECT_EQ(data_[peer], 1u);
            const auto expected = pattern(large, peer, rank_.number, 70);
            EXPECT_EQ(std::memcmp(memory().from[peer], expected.data(), large), 0);
            EXPECT_EQ(std::memcmp(memory().from[peer] + large, expected.data(), 8), 0);
            EXPECT_EQ(std::memcmp(memory().from[peer] + large + 8, expected.data(), 8), 0);
        });
        if (rank_.number == 0) {
            EXPECT_EQ(memory().sum, rank_.size);
            EXPECT_EQ(memory().product, static_cast<double>(1u << rank_.size));
            EXPECT_TRUE(night->told || memory().wide == 3.0L * rank_.size) << static_cast<double>(memory().wide);
        }
    }
    /// What was injected arrives, though its sender closes at once.
    void last_words()
    {
        static Op receives[most];
        static std::uint64_t words[most];
        peers([&](unsigned peer) {
            const std::uint64_t word = rank_.number + 1;
            post("tinject", [&] { return fi_tinject(session_->ep, &word, 8, peer, last_tag); });
        });
        peers([&](unsigned peer) {
            post("trecv",
                 [&] { return fi_trecv(session_->ep, &words[peer], 8, nullptr, peer, last_tag, 0, &receives[peer]); });
        });
        peers([&](unsigned peer) {
            expect_end("the last receive", receives[peer]);
            EXPECT_EQ(words[peer], peer + 1);
        });
    }

    std::unique_ptr<Session> session_;
    const Rank& rank_;
    std::vector<Window> windows_;
    Op wide_;
    unsigned data_[most] = {};
};

/// One night; how many posts the victim had.
unsigned spend(const Way& way, unsigned who, unsigned before)
{
    static void* const memory =
        ::mmap(nullptr, sizeof(Night), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    night = new (memory) Night{};
    victim = who;
    sleeps_before = before;
    expect_processes(3, [&](const Rank& rank) {
        setenv("FI_TOFU_RINGS", way.rings, 1);
        setenv("UTOFU_NUM_MRQ_ENTRIES", way.mrq, 1);
        struct Guard {
            ~Guard()
            {
                if (testing::Test::HasFailure())
                    night->failed = true;
                wake();
            }
        } guard;
        Options options;
        options.caps = way.caps;
        options.mr_mode = way.mr_mode;
        options.tx_order = way.order;
        options.leaves_together = false;
        count_posts();
        Life life(rank, options);
        own_rank = rank.number; // from here on
        life.live();
    });
    const unsigned posts = night->posts.load();
    EXPECT_TRUE(before == 0 || posts < before || night->ahead_ms.load() > 3'600'000) << "no process has waited";
    return posts;
}

class Sleep : public testing::TestWithParam<Way> {};

TEST_P(Sleep, BeforeAnyPostHarmsNothing)
{
    constexpr unsigned nights = 16; // of each victim: they are long where there are few processors
    for (const unsigned who : {0u, 1u}) {
        const unsigned posts = spend(GetParam(), who, 0);
        const unsigned step = posts / nights + 1;
        for (unsigned n = 1 + who % step; n <= posts && !HasFailure(); n += step) {
            SCOPED_TRACE("rank " + std::to_string(who) + " sleeps before post " + std::to_string(n) + " of " +
                         std::to_string(posts));
            spend(GetParam(), who, n);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, Sleep, testing::ValuesIn(ways));

} // namespace
} // namespace tofu::test
