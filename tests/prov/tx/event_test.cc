// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Flow control of RMA events: a target that does not run, holders of credits that die, rest or leave, and a pool that a
// peer has overwritten (docs/wire-protocol.md, "Receive queues").
#include <cstdlib>
#include <numeric>

#include <sys/wait.h>

#include "mem/mr_directory.h"
#include "prov/lib/raw.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;
using sim::test::wait_until;

constexpr std::int64_t entries = 2048; // of the target's MRQ: the fewest that there can be

Options event_options()
{
    Options options;
    options.caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
    options.counters = true;
    options.leaves_together = false;
    return options;
}

/// The word of rank 0's pool, and where it lies as seen from its endpoint's area.
std::uint64_t pool_offset(const RawPeer& raw)
{
    utofu_stadd_t directory = 0, area = 0;
    EXPECT_EQ(utofu_query_stadd(raw.victim().target_vcq, directory_stag, &directory), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_query_stadd(raw.victim().target_vcq, endpoint_stag(raw.victim().index), &area), UTOFU_SUCCESS);
    return directory - area + event_pool::offset;
}
std::uint64_t pool_word(RawPeer& raw)
{
    std::uint64_t word = 0;
    raw.get(pool_offset(raw), &word, sizeof word);
    return word;
}

/// An initiator of events of every kind at rank 0.
class Initiator {
  public:
    Initiator(Session& session, const Window& there) : s(session), there(there) {}

    /// The `n`-th operation: accepted or not.
    bool post(std::uint64_t n)
    {
        const std::uint64_t at = there.base + s.rank.number * 64;
        ssize_t ret = 0;
        switch (n % 6) {
        case 0: ret = fi_write(s.ep, &bytes, 8, nullptr, 0, at, there.key, &s); break;
        case 1: ret = fi_inject_write(s.ep, &bytes, 8, 0, at, there.key); break;
        case 2: ret = fi_atomic(s.ep, &one, 1, nullptr, 0, at + 8, there.key, FI_UINT64, FI_SUM, &s); break;
        case 3: ret = fi_inject_atomic(s.ep, &one, 1, 0, at + 8, there.key, FI_UINT64, FI_SUM); break;
        case 4: ret = fi_read(s.ep, bytes, sizeof bytes, nullptr, 0, at, there.key, &s); break;
        case 5:
            ret =
                fi_fetch_atomic(s.ep, &one, 1, nullptr, &before, nullptr, 0, at + 8, there.key, FI_UINT64, FI_SUM, &s);
            break;
        }
        EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN) << fi_strerror(static_cast<int>(-ret));
        reads += ret == 0 && n % 6 >= 4;
        writes += ret == 0 && n % 6 < 4;
        waited += ret == 0 && n % 6 != 1 && n % 6 != 3;
        return ret == 0;
    }
    /// Takes what entries there are; all must be successes.
    void take()
    {
        fi_cq_data_entry entry[16];
        const ssize_t ret = fi_cq_read(s.cq, entry, 16);
        EXPECT_TRUE(ret > 0 || ret == -FI_EAGAIN) << ret;
        waited -= ret > 0 ? static_cast<std::uint64_t>(ret) : 0;
    }
    /// Says so on the board when nothing is accepted for long.
    void post_all(std::uint64_t count)
    {
        unsigned refused = 0;
        for (std::uint64_t n = 0; n < count && !testing::Test::HasFailure();) {
            if (post(n)) {
                n++;
                refused = 0;
            } else if (++refused == 500) {
                s.rank.set(900 + s.rank.number, 1);
            }
            take();
        }
        EXPECT_TRUE(wait_until([&] { return take(), waited == 0; }));
        s.rank.set(910 + s.rank.number, reads);
        s.rank.set(920 + s.rank.number, writes);
    }

    Session& s;
    Window there;
    alignas(256) std::uint8_t bytes[256] = {};
    std::uint64_t one = 1, before = 0;
    std::uint64_t reads = 0, writes = 0, waited = 0;
};

std::uint64_t sum(const Rank& rank, unsigned from)
{
    std::uint64_t all = 0;
    for (unsigned r = 1; r < rank.size; r++)
        all += rank.get(from + r);
    return all;
}

/// Rank 0: has no processor until all others are stuck, then counts what they have posted, and `more` writes.
void be_stopped(Session& s, unsigned initiators, std::uint64_t each, std::uint64_t more = 0)
{
    ASSERT_TRUE(wait_until([&] { return sum(s.rank, 900) == initiators; }));
    EXPECT_TRUE(wait_until([&] {
        return fi_cntr_read(s.counter[remote_read_counter]) + fi_cntr_read(s.counter[remote_write_counter]) ==
               initiators * each + more;
    }));
    EXPECT_TRUE(wait_until([&] { return sum(s.rank, 910) + sum(s.rank, 920) == initiators * each; }));
    for (int i = 0; i < 100; i++)
        fi_cq_read(s.cq, nullptr, 0);
    EXPECT_EQ(fi_cntr_read(s.counter[remote_read_counter]), sum(s.rank, 910));
    EXPECT_EQ(fi_cntr_read(s.counter[remote_write_counter]), sum(s.rank, 920) + more);
}

void stop_the_target(const Rank& rank, int mr_mode)
{
    constexpr std::uint64_t each = 3000;
    setenv("UTOFU_NUM_MRQ_ENTRIES", "2Ki", 1);
    Options options = event_options();
    options.mr_mode = mr_mode;
    Session s(rank, options);
    std::vector<std::uint8_t> window(4096);
    const auto peers = s.share(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 40 + rank.number);
    if (rank.number == 0)
        be_stopped(s, rank.size - 1, each);
    else
        Initiator(s, peers[0]).post_all(each);
    s.barrier();
}

TEST(Events, ATargetThatDoesNotRunLosesNone)
{
    expect_processes(
        4, [](const Rank& rank) { stop_the_target(rank, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY); });
}

TEST(Events, NorWithKeysOfTheUserAndAnAdversary)
{
    for (const char* seed : {"1", "5", "77"}) {
        setenv("TOFU_SIM_CHAOS", seed, 1);
        expect_processes(3, [](const Rank& rank) { stop_the_target(rank, 0); });
    }
    unsetenv("TOFU_SIM_CHAOS");
}

/// A call that fetches many elements has a notice for each, in the queue of the initiator: so many as there are calls,
/// they fit, though he looks for them no more than a caller does.
TEST(Events, FetchedElementsFitIntoTheQueueOfTheInitiator)
{
    expect_processes(2, [](const Rank& rank) {
        constexpr std::size_t calls = 60, elements = 1024;
        setenv("UTOFU_NUM_MRQ_ENTRIES", "8Ki", 1);
        Options options;
        options.caps = FI_RMA | FI_ATOMIC;
        Session s(rank, options);
        std::vector<std::uint64_t> words(elements);
        const auto peers = s.share(words.data(), elements * 8);
        if (rank.number == 0) {
            const std::vector<std::uint64_t> ones(elements, 1);
            std::vector<std::uint64_t> before(calls * elements);
            std::uint64_t left = calls;
            fi_cq_data_entry entry{};
            const auto read = [&] { left -= fi_cq_read(s.cq, &entry, 1) == 1 ? 1 : 0; };
            for (std::size_t i = 0; i < calls; i++)
                ASSERT_TRUE(wait_until([&] {
                    const ssize_t ret = fi_fetch_atomic(s.ep, ones.data(), elements, nullptr, &before[i * elements],
                                                        nullptr, 1, peers[1].base, peers[1].key, FI_UINT64, FI_SUM, &s);
                    EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN);
                    if (ret != 0)
                        read();
                    return ret == 0;
                }));
            ASSERT_TRUE(wait_until([&] {
                read();
                return left == 0;
            }));
            EXPECT_EQ(std::accumulate(before.begin(), before.end(), std::uint64_t{0}),
                      elements * calls * (calls - 1) / 2);
        }
        s.barrier();
    });
}

/// Writes and atomics to a peer's region that fail: a segment, and with it the event, is outside the region.
void fail_beyond_a_region(Session& s, Initiator& some, const Window& at)
{
    std::uint8_t mine[128] = {};
    const iovec local{mine, sizeof mine};
    for (bool last : {true, false})
        for (int i = 0; i < 20; i++) {
            const fi_rma_iov good{at.base, 64, at.key};
            const fi_rma_iov bad{at.base + (1 << 20), 64, at.key};
            const fi_rma_iov remote[] = {last ? good : bad, last ? bad : good};
            const fi_msg_rma msg{&local, nullptr, 1, 0, remote, 2, &s, 0};
            ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, FI_COMPLETION); }), 0);
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, &error));
            ASSERT_EQ(s.post([&] {
                return fi_fetch_atomic(s.ep, &some.one, 1, nullptr, &some.before, nullptr, 0, bad.addr, bad.key,
                                       FI_UINT64, last ? FI_SUM : FI_MIN, &s);
            }),
                      0);
            ASSERT_TRUE(s.next(entry, &error));
        }
}

/// Operations over two regions, each with an event. `gone`: the key of the second one is wrong.
void access_two_regions(Session& s, const Window& first, const Window& second, bool gone)
{
    std::uint8_t mine[128] = {};
    const iovec local{mine, sizeof mine};
    for (int i = 0; i < 20; i++) {
        const std::uint64_t key = second.key + (gone ? std::uint64_t{1} << 40 : 0);
        const fi_rma_iov remote[] = {{first.base, 64, first.key}, {second.base, 64, key}};
        const fi_msg_rma msg{&local, nullptr, 1, 0, remote, 2, &s, 0};
        ASSERT_EQ(s.post([&] { return fi_readmsg(s.ep, &msg, FI_COMPLETION); }), 0);
        const fi_rma_ioc words[] = {{first.base, 1, first.key}, {second.base, 1, key}};
        const fi_ioc two{mine, 2};
        fi_ioc before{mine + 16, 2};
        const fi_msg_atomic sum{&two, nullptr, 1, 0, words, 2, FI_UINT64, FI_SUM, &s, 0};
        ASSERT_EQ(s.post([&] { return fi_fetch_atomicmsg(s.ep, &sum, &before, nullptr, 1, FI_COMPLETION); }), 0);
        for (int end = 0; end < 2; end++) {
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, gone ? &error : nullptr));
        }
    }
}

/// What is taken comes back: by events that are counted, by operations that fail, by endpoints that close.
TEST(Events, NoCreditIsLostOrMade)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1);
        Session s(rank, event_options());
        std::vector<std::uint8_t> window(1 << 16), another(1 << 16);
        const auto peers = s.share(window.data(), window.size());
        const auto others = s.share(another.data(), another.size());
        if (rank.number == 0) {
            EXPECT_TRUE(wait_until([&] {
                fi_cq_read(s.cq, nullptr, 0);
                return rank.get(901) + rank.get(902) == 2;
            }));
            rank.set(903, 1);
            EXPECT_TRUE(wait_until([&] { // what is still in the queue is counted
                fi_cq_read(s.cq, nullptr, 0);
                return rank.get(904) + rank.get(905) == 2;
            }));
            return;
        }
        Initiator some(s, peers[0]);
        some.post_all(700);
        fail_beyond_a_region(s, some, peers[0]);
        for (const bool gone : {false, true})
            access_two_regions(s, peers[0], others[0], gone);
        EXPECT_EQ(fi_close(&s.ep->fid), 0);
        s.ep = nullptr;
        rank.set(900 + rank.number, 1);
        ASSERT_TRUE(wait_until([&] { return rank.get(903) == 1; }));
        RawPeer raw(s, 0);
        EXPECT_TRUE(wait_until([&] { return event_pool::left(pool_word(raw)) == entries / 2; }))
            << event_pool::left(pool_word(raw));
        rank.set(903 + rank.number, 1);
    });
}

/// Unused credits of an account are returned while its endpoint is polled.
TEST(Events, IdleCreditsGoBack)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, event_options());
        std::vector<std::uint8_t> window(4096);
        const auto peers = s.share(window.data(), window.size());
        if (rank.number == 1) {
            Initiator(s, peers[0]).post_all(100);
            RawPeer raw(s, 0);
            EXPECT_LT(event_pool::left(pool_word(raw)), 131072 / 2 - 100);
            rank.set(901, 1);
            EXPECT_TRUE(wait_until([&] {
                fi_cq_read(s.cq, nullptr, 0);
                return event_pool::left(pool_word(raw)) == 131072 / 2;
            }));
            rank.set(902, 1);
            return;
        }
        ASSERT_TRUE(wait_until([&] { return rank.get(901) == 1; }));
        EXPECT_TRUE(wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            return rank.get(902) == 1;
        }));
    });
}

TEST(Events, HoldersThatAreKilledTakeNoMoreThanTheirBatch)
{
    constexpr unsigned initiators = 5;
    const auto exits = run_processes(1 + initiators, [](const Rank& rank) {
        setenv("UTOFU_NUM_MRQ_ENTRIES", "2048", 1);
        Session s(rank, event_options());
        std::vector<std::uint8_t> window(4096);
        const auto peers = s.share(window.data(), window.size());
        if (rank.number == 0) {
            be_stopped(s, 1, 3000, 7 * (2 + 3 + 4 + 5));
            return;
        }
        Initiator one(s, peers[0]);
        if (rank.number != 1) { // dies somewhere within its posts
            for (std::uint64_t n = 0; n < rank.number * 7; n++)
                EXPECT_TRUE(wait_until([&] { return one.take(), one.post(0); }));
            rank.set(930 + rank.number, 1);
            raise(SIGKILL);
        }
        ASSERT_TRUE(wait_until([&] { return sum(rank, 930) == initiators - 1; }));
        one.post_all(3000);
    });
    for (unsigned r : {0u, 1u})
        EXPECT_TRUE(exits[r].success()) << r << ": " << exits[r].errors;
    for (unsigned r = 2; r <= initiators; r++)
        EXPECT_TRUE(WIFSIGNALED(exits[r].status)) << r << ": " << exits[r].errors;
}

/// An initiator believes nothing of it: an error entry, and nothing that would overflow anything; the word is left as
/// it was.
TEST(Events, NonsenseInThePoolIsAnErrorOfTheOperation)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, event_options());
        std::vector<std::uint8_t> window(4096);
        const auto peers = s.share(window.data(), window.size());
        if (rank.number == 0) {
            EXPECT_TRUE(wait_until([&] {
                fi_cq_read(s.cq, nullptr, 0);
                return rank.get(901) == 1;
            }));
            EXPECT_EQ(fi_cntr_read(s.counter[remote_write_counter]), 1u);
            return;
        }
        RawPeer raw(s, 0);
        const std::uint64_t good = pool_word(raw);
        const std::uint64_t mine = 5;
        auto write = [&] {
            return s.post([&] { return fi_write(s.ep, &mine, 8, nullptr, 0, peers[0].base, peers[0].key, &s); });
        };
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        const std::uint64_t nonce = good >> 32;
        const std::pair<std::uint64_t, int> bad[] = {
            {0, FI_EHOSTDOWN},
            {~0ull, FI_EHOSTDOWN},
            {good ^ 1ull << 40, FI_EHOSTDOWN},
            {event_pool::word(nonce, event_pool::most_entries + 1), FI_EIO},
            {event_pool::word(nonce, -event_pool::most_overdrawn - 1), FI_EIO},
        };
        for (const auto& [word, err] : bad) {
            raw.put(pool_offset(raw), &word, sizeof word);
            ASSERT_EQ(write(), 0);
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.err, err) << std::hex << word;
            EXPECT_TRUE(wait_until([&, put = word] {
                fi_cq_read(s.cq, nullptr, 0);
                return pool_word(raw) == put;
            }));
        }
        const std::uint64_t empty = event_pool::word(nonce, 0); // no nonsense: refused until there is one
        raw.put(pool_offset(raw), &empty, sizeof empty);
        for (int i = 0; i < 50; i++)
            ASSERT_EQ(fi_write(s.ep, &mine, 8, nullptr, 0, peers[0].base, peers[0].key, &s), -FI_EAGAIN);
        EXPECT_TRUE(wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            return pool_word(raw) == empty;
        }));
        raw.put(pool_offset(raw), &good, sizeof good);
        ASSERT_EQ(write(), 0);
        s.expect(&s, FI_RMA | FI_WRITE);
        rank.set(901, 1);
    });
}

/// An endpoint that continues to inject into closed memory gets error entries, but not without bound: each failure is
/// an entry of its own MRQ.
TEST(Events, FailuresDoNotFillTheOwnReceiveQueue)
{
    expect_processes(2, [](const Rank& rank) {
        setenv("UTOFU_NUM_MRQ_ENTRIES", "8Ki", 1);
        Options options;
        options.caps = FI_RMA;
        Session s(rank, options);
        std::vector<std::uint8_t> window(4096);
        const auto peers = s.share(window.data(), window.size());
        if (rank.number == 0)
            return;
        const std::uint64_t word = 7;
        unsigned failed = 0, accepted = 0;
        while (accepted < 40000) {
            for (int i = 0; i < 16; i++)
                accepted += fi_inject_write(s.ep, &word, 8, 0, peers[0].base + (1 << 24), peers[0].key) == 0;
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            if (fi_cq_read(s.cq, &entry, 1) == -FI_EAVAIL)
                failed += fi_cq_readerr(s.cq, &error, 0) == 1;
        }
        EXPECT_GT(failed, 0u);
    });
}

TEST(Events, EntriesOfAQueueAreReadAsTheGuideSays)
{
    const std::pair<const char*, std::int64_t> all[] = {
        {nullptr, 131072}, {"", 131072},      {"many", 131072},  {"8k", 131072},   {"-1", 131072},
        {"0", 2048},       {"2048", 2048},    {"5119", 2048},    {"5120", 8192},   {"8KI", 8192},
        {"32ki", 32768},   {"128Ki", 131072}, {"512Ki", 524288}, {"2mI", 2097152}, {"99999999999999999999Mi", 2097152},
    };
    for (const auto& [text, number] : all)
        EXPECT_EQ(event_pool::entries_of(text), number) << (text != nullptr ? text : "null");
}

} // namespace
} // namespace tofu::test
