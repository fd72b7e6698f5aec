// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keys of the user's choice that were given to other regions: each operation reaches the new region, exactly once, in
// the order of the calls. Between processes over the simulator; run by make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

constexpr std::size_t words = 2048;   ///< of a region
constexpr std::size_t alias_from = 8; ///< the alias begins at this word

/// Regions of the target (rank 1), which rank 0 reaches by three keys: `lasting` is always memory[0], `moving`
/// memory[1] or memory[2], `alias` a part of memory[2].
class Regions {
  public:
    static constexpr std::uint64_t lasting = 1, moving = 2, alias = 3;

    Regions(const Rank& rank, Options options) : s(rank, with_keys_of_the_user(options)), target(rank.number == 1)
    {
        for (auto& each : memory)
            each.resize(words);
        if (target) {
            (void)s.reg(memory[0].data(), 8 * words, remote_access, lasting);
            (void)s.reg(memory[2].data() + alias_from, 8 * (words - alias_from), remote_access, alias);
            moving_ = open_moving();
        }
        s.barrier();
    }
    ~Regions()
    {
        s.barrier();
        if (moving_ != nullptr)
            EXPECT_EQ(fi_close(&moving_->fid), 0);
    }
    static Options with_keys_of_the_user(Options options)
    {
        options.caps |= FI_RMA | FI_ATOMIC | FI_MSG;
        options.mr_mode = 0;
        return options;
    }
    /// The initiator gets to know the keys. Then `moving` is given to the other memory, and what the initiator knows of
    /// it is stale. Both ranks call it.
    void make_stale()
    {
        std::uint64_t word = 0;
        for (std::uint64_t key : {lasting, moving, alias})
            if (!target) {
                ASSERT_EQ(s.post([&] { return fi_read(s.ep, &word, 8, nullptr, 1, 0, key, &s); }), 0);
                s.expect(&s, FI_READ);
            }
        s.barrier();
        if (target) {
            EXPECT_EQ(fi_close(&moving_->fid), 0);
            at_ = 3 - at_;
            moving_ = open_moving();
        }
        s.barrier();
    }
    [[nodiscard]] std::vector<std::uint64_t>& moved() { return memory[at_]; }

    Session s;
    bool target;
    std::vector<std::uint64_t> memory[3]; ///< of the target

  private:
    [[nodiscard]] fid_mr* open_moving()
    {
        fid_mr* mr = nullptr;
        EXPECT_EQ(fi_mr_reg(s.domain, memory[at_].data(), 8 * words, remote_access, 0, moving, 0, &mr, nullptr), 0);
        return mr;
    }
    unsigned at_ = 1;
    fid_mr* moving_ = nullptr;
};

// --- one operation over two regions

/// What the initiator has at hand.
struct Mine {
    std::vector<std::uint64_t> operand = std::vector<std::uint64_t>(2 * words, 4);
    std::vector<std::uint64_t> compare = std::vector<std::uint64_t>(2 * words, 5);
    std::vector<std::uint64_t> result = std::vector<std::uint64_t>(2 * words, 77);
};

/// An operation whose pieces have `bytes` each. The target's words are 5 before and `after` behind it.
struct Way {
    const char* name;
    std::size_t bytes;
    std::uint64_t after;
    bool reads; ///< it brings what the target had, and counts as a read there
    ssize_t (*call)(Session& s, const fi_rma_iov (&at)[2], Mine& mine);
};

enum class Form { base, fetch, compare };

template <fi_datatype type, fi_op op, Form form>
ssize_t atomic(Session& s, const fi_rma_iov (&at)[2], Mine& mine)
{
    const std::size_t size = type == static_cast<fi_datatype>(FI_INT128) ? 16 : type == FI_UINT32 ? 4 : 8;
    const std::size_t n = at[0].len / size;
    const fi_ioc operand{mine.operand.data(), 2 * n}, compare{mine.compare.data(), 2 * n};
    fi_ioc result{mine.result.data(), 2 * n};
    const fi_rma_ioc remote[2] = {{at[0].addr, n, at[0].key}, {at[1].addr, n, at[1].key}};
    const fi_msg_atomic msg{&operand, nullptr, 1, 1, remote, 2, type, op, &s, 0};
    switch (form) {
    case Form::base: return fi_atomicmsg(s.ep, &msg, FI_COMPLETION);
    case Form::fetch: return fi_fetch_atomicmsg(s.ep, &msg, &result, nullptr, 1, FI_COMPLETION);
    case Form::compare: break;
    }
    return fi_compare_atomicmsg(s.ep, &msg, &compare, nullptr, 1, &result, nullptr, 1, FI_COMPLETION);
}
ssize_t write(Session& s, const fi_rma_iov (&at)[2], Mine& mine)
{
    const iovec local{mine.operand.data(), 2 * at[0].len};
    const fi_msg_rma msg{&local, nullptr, 1, 1, at, 2, &s, 0};
    return fi_writemsg(s.ep, &msg, FI_COMPLETION);
}
ssize_t read(Session& s, const fi_rma_iov (&at)[2], Mine& mine)
{
    const iovec local{mine.result.data(), 2 * at[0].len};
    const fi_msg_rma msg{&local, nullptr, 1, 1, at, 2, &s, 0};
    return fi_readmsg(s.ep, &msg, FI_COMPLETION);
}

constexpr auto int128 = static_cast<fi_datatype>(FI_INT128);

const Way ways[] = {
    {"write", 8, 4, false, write},
    {"write, long", 8 * words, 4, false, write},
    {"read", 8, 5, true, read},
    {"read, long", 8 * words, 5, true, read},
    {"sum", 8, 9, false, atomic<FI_UINT64, FI_SUM, Form::base>},
    {"sum, row", 800, 9, false, atomic<FI_UINT64, FI_SUM, Form::base>},
    {"xor, short elements", 48, 1, false, atomic<FI_UINT32, FI_BXOR, Form::base>},
    {"loop", 24, 20, false, atomic<FI_UINT64, FI_PROD, Form::base>},
    {"span", 8 * 300, 20, false, atomic<FI_UINT64, FI_PROD, Form::base>},
    {"wide", 32, 9, false, atomic<int128, FI_SUM, Form::base>},
    {"fetch sum", 8, 9, true, atomic<FI_UINT64, FI_SUM, Form::fetch>},
    {"fetch sum, row", 800, 9, true, atomic<FI_UINT64, FI_SUM, Form::fetch>},
    {"fetch loop", 24, 20, true, atomic<FI_UINT64, FI_PROD, Form::fetch>},
    {"fetch span", 8 * 300, 20, true, atomic<FI_UINT64, FI_PROD, Form::fetch>},
    {"fetch wide", 32, 9, true, atomic<int128, FI_SUM, Form::fetch>},
    {"atomic read", 24, 5, true, atomic<FI_UINT64, FI_ATOMIC_READ, Form::fetch>},
    {"compare", 8, 4, true, atomic<FI_UINT64, FI_CSWAP, Form::compare>},
    {"compare, row", 800, 4, true, atomic<FI_UINT64, FI_CSWAP, Form::compare>},
    {"compare loop", 24, 4, true, atomic<FI_UINT64, FI_CSWAP_GE, Form::compare>},
};

void expect_words(const std::vector<std::uint64_t>& memory, const Way& way)
{
    for (std::size_t i = 0; i < words; i++)
        ASSERT_EQ(memory[i], i < way.bytes / 8 ? way.after : 5) << "word " << i;
}

/// Rank 0: the operation succeeds, and has read what the target had.
void initiate(Regions& r, const Way& way, bool stale_first)
{
    Mine mine;
    const fi_rma_iov stale{0, way.bytes, Regions::moving}, fresh{0, way.bytes, Regions::lasting};
    const fi_rma_iov at[2] = {stale_first ? stale : fresh, stale_first ? fresh : stale};
    ASSERT_EQ(r.s.post([&] { return way.call(r.s, at, mine); }), 0);
    r.s.expect(&r.s, way.reads ? FI_READ : FI_WRITE);
    for (std::size_t i = 0; i < mine.result.size(); i++)
        ASSERT_EQ(mine.result[i], way.reads && i < way.bytes / 4 ? 5u : 77u) << "word " << i;
}

/// Each way over a region whose key is fresh and one whose key is stale. `events`: the target counts them.
void try_ways(std::uint64_t order, bool events)
{
    expect_processes(2, [=](const Rank& rank) {
        Options options;
        options.tx_order = order;
        options.caps = events && rank.number == 1 ? FI_RMA_EVENT : 0;
        options.counters = events && rank.number == 1;
        Regions r(rank, options);
        std::uint64_t counts[2] = {}; // reads, writes
        for (const Way& way : ways)
            for (const bool stale_first : {true, false}) {
                SCOPED_TRACE(std::string(way.name) + (stale_first ? ", stale first" : ", fresh first"));
                r.make_stale();
                for (auto& each : r.memory)
                    std::fill(each.begin(), each.end(), 5);
                r.s.barrier();
                if (!r.target)
                    initiate(r, way, stale_first);
                r.s.barrier();
                if (r.target) {
                    expect_words(r.memory[0], way);
                    expect_words(r.moved(), way);
                    counts[0] += 3 + way.reads; // make_stale() has read three words
                    counts[1] += !way.reads;
                }
                for (unsigned i = 0; i < 2 && r.target && events; i++) {
                    fid_cntr* const counter = r.s.counter[i == 0 ? remote_read_counter : remote_write_counter];
                    ASSERT_TRUE(wait_until([&] { return fi_cntr_read(counter) >= counts[i]; }));
                    ASSERT_EQ(fi_cntr_read(counter), counts[i]);
                }
                r.s.barrier();
            }
    });
}

constexpr std::uint64_t all_orders = FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW |
                                     FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |
                                     FI_ORDER_ATOMIC_WAW;

TEST(StaleKeys, EachWayReachesTheNewRegionOnce)
{
    try_ways(0, false);
}
TEST(StaleKeys, EachWayReachesTheNewRegionOnceInOrder)
{
    try_ways(all_orders, false);
}
TEST(StaleKeys, EachOperationIsOneEvent)
{
    try_ways(0, true);
}

// --- order

/// How the earlier operation goes to a word by the stale key, and the later one to the same word by a fresh one.
struct Pair {
    const char* name;
    ssize_t (*earlier)(Session& s, const std::uint64_t* value, std::uint64_t address, std::uint64_t key, void* context);
    bool silent; ///< the earlier one has no entry
};

const Pair pairs[] = {
    {"write",
     [](Session& s, const std::uint64_t* value, std::uint64_t address, std::uint64_t key, void* context) {
         return fi_write(s.ep, value, 8, nullptr, 1, address, key, context);
     },
     false},
    {"inject write",
     [](Session& s, const std::uint64_t* value, std::uint64_t address, std::uint64_t key, void*) {
         return fi_inject_write(s.ep, value, 8, 1, address, key);
     },
     true},
    {"atomic",
     [](Session& s, const std::uint64_t* value, std::uint64_t address, std::uint64_t key, void* context) {
         return fi_atomic(s.ep, value, 1, nullptr, 1, address, key, FI_UINT64, FI_ATOMIC_WRITE, context);
     },
     false},
    {"inject atomic",
     [](Session& s, const std::uint64_t* value, std::uint64_t address, std::uint64_t key, void*) {
         return fi_inject_atomic(s.ep, value, 1, 1, address, key, FI_UINT64, FI_ATOMIC_WRITE);
     },
     true},
};

/// The later operation is called before anything is known of the earlier one.
void overtake(const Pair& pair)
{
    expect_processes(2, [&](const Rank& rank) {
        Options options;
        options.tx_order = all_orders;
        Regions r(rank, options);
        r.make_stale();
        if (!r.target) {
            const bool atomics = pair.earlier == pairs[2].earlier || pair.earlier == pairs[3].earlier;
            const std::uint64_t first = 1, second = 2;
            char context = 0;
            ASSERT_EQ(r.s.post([&] { return pair.earlier(r.s, &first, 8 * alias_from, Regions::moving, &context); }),
                      0);
            ASSERT_EQ(
                r.s.post([&] { return pairs[atomics ? 2 : 0].earlier(r.s, &second, 0, Regions::alias, &context); }), 0);
            for (unsigned i = pair.silent; i < 2; i++)
                r.s.expect(&context, FI_WRITE);
        }
        r.s.barrier();
        if (r.target)
            EXPECT_EQ(r.memory[2][alias_from], 2u);
    });
}

TEST(StaleKeys, AnOperationIsNotOvertaken)
{
    for (const char* seed : {"", "1"}) {
        if (*seed != 0)
            setenv("TOFU_SIM_CHAOS", seed, 1);
        for (const Pair& pair : pairs) {
            SCOPED_TRACE(pair.name);
            overtake(pair);
        }
    }
    unsetenv("TOFU_SIM_CHAOS");
}

TEST(StaleKeys, AnOperationOverTwoRegionsIsNotOvertaken)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.tx_order = FI_ORDER_RMA_WAW;
        Regions r(rank, options);
        for (unsigned i = 0; i < 2; i++) {
            r.make_stale();
            if (!r.target) {
                const std::uint64_t first[2] = {1, 1}, second = 2;
                const iovec local{const_cast<std::uint64_t*>(first), 16};
                const fi_rma_iov stale{0, 8, Regions::moving}, fresh{0, 8, Regions::lasting};
                const fi_rma_iov at[2] = {i == 0 ? stale : fresh, i == 0 ? fresh : stale};
                const fi_msg_rma msg{&local, nullptr, 1, 1, at, 2, &r.s, 0};
                ASSERT_EQ(r.s.post([&] { return fi_writemsg(r.s.ep, &msg, FI_COMPLETION); }), 0);
                ASSERT_EQ(r.s.post([&] { return fi_write(r.s.ep, &second, 8, nullptr, 1, 0, Regions::lasting, &r.s); }),
                          0);
                r.s.expect(&r.s, FI_WRITE);
                r.s.expect(&r.s, FI_WRITE);
            }
            r.s.barrier();
            if (r.target) {
                EXPECT_EQ(r.memory[0][0], 2u);
                EXPECT_EQ(r.moved()[0], 1u);
            }
        }
    });
}

} // namespace
