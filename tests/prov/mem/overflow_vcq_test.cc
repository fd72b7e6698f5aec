// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// More regions than a VCQ has steering tags: the overflow VCQs of a domain, between processes over the simulator. Tens
// of thousands of keys, order across the VCQs of a peer, every kind of access by way of an overflow VCQ.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

/// Regions of 8 bytes each, in a row of words, with the keys from `key` on.
struct Row {
    Row(Session& session, unsigned count, std::uint64_t key = 0) : words(count), regions(count)
    {
        for (unsigned i = 0; i < count; i++)
            Session::check(fi_mr_reg(session.domain, &words[i], 8, remote_access, 0, key + i, 0, &regions[i], nullptr),
                           "fi_mr_reg");
    }
    ~Row()
    {
        for (fid_mr* mr : regions)
            EXPECT_EQ(mr != nullptr ? fi_close(&mr->fid) : 0, 0);
    }
    std::vector<std::uint64_t> words;
    std::vector<fid_mr*> regions;
};

/// Posts and takes completions as they come; all are successes.
struct Stream {
    explicit Stream(Session& session) : s(session) {}
    template <class Call>
    void post(Call&& call, bool silent = false)
    {
        ssize_t ret = -FI_EAGAIN;
        ASSERT_TRUE(wait_until([&] {
            ret = call();
            if (ret == -FI_EAGAIN || under_way >= 64)
                take();
            return ret != -FI_EAGAIN;
        }));
        ASSERT_EQ(ret, 0);
        under_way += silent ? 0 : 1;
    }
    void take()
    {
        fi_cq_data_entry entries[16];
        const ssize_t got = fi_cq_read(s.cq, entries, 16);
        if (got > 0) {
            under_way -= static_cast<unsigned>(got);
        } else if (got != -FI_EAGAIN) {
            fi_cq_err_entry error{};
            EXPECT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
            ADD_FAILURE() << fi_strerror(error.err) << ", uTofu " << error.prov_errno;
            under_way--;
        }
    }
    void finish()
    {
        EXPECT_TRUE(wait_until([&] {
            take();
            return under_way == 0;
        }));
    }
    Session& s;
    unsigned under_way = 0;
};

/// The same memory of each rank by two ways, the first by its target VCQ and the second by an overflow VCQ: no tag of
/// the target VCQ is left or, with keys of the user's choice, the memory's tag there belongs to the first key. `full`:
/// also then none is left.
struct TwoWays {
    TwoWays(Session& session, void* memory, std::size_t size, bool full = false)
        : one(session.share(memory, size, remote_access, 1000001)),
          fill(session, full || told_apart(session) ? tags_of_a_vcq : 0),
          other(session.share(memory, size, remote_access, 1000002))
    {
        for (unsigned r = 0; r < session.rank.size && told_apart(session); r++)
            EXPECT_TRUE(one[r].key >> 63 == 0 && other[r].key >> 63 == 1);
    }
    static bool told_apart(const Session& session)
    {
        return (session.info->domain_attr->mr_mode & FI_MR_PROV_KEY) != 0;
    }
    [[nodiscard]] const Window& way(unsigned i, unsigned rank) const { return (i % 2 ? other : one)[rank]; }
    std::vector<Window> one;
    Row fill;
    std::vector<Window> other;
};

Options options_of(std::uint64_t caps, int mr_mode, std::uint64_t order = 0)
{
    Options options;
    options.caps = caps;
    options.mr_mode = mr_mode;
    options.tx_order = order;
    return options;
}

template <class Body>
void with_both_kinds_of_keys(unsigned ranks, Body&& body)
{
    for (int mode : {0, provider_keys})
        expect_processes(ranks, [&](const Rank& rank) { body(rank, mode); });
}

// --- tens of thousands

constexpr unsigned count = 50000;

void be_written_to(const Rank& rank, Session& s, std::uint64_t* keys)
{
    Row row(s, count);
    for (unsigned i = 0; i < count; i++)
        keys[i] = fi_mr_key(row.regions[i]);
    rank.set(1001, reinterpret_cast<std::uint64_t>(row.words.data()));
    s.barrier();
    s.barrier();
    for (unsigned i = 0; i < count; i++)
        ASSERT_EQ(row.words[i], i + 1u);
    for (unsigned i = 0; i < count; i += 2) {
        ASSERT_EQ(fi_close(&row.regions[i]->fid), 0);
        row.regions[i] = nullptr;
    }
    s.barrier();
    s.barrier();
    for (unsigned i = 0; i < count; i++)
        ASSERT_EQ(row.words[i], i + 1u);
}

void write_to_all(const Rank& rank, Session& s, const std::uint64_t* keys)
{
    s.barrier();
    const std::uint64_t base = (s.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) ? rank.get(1001) : 0;
    auto at = [&](unsigned i) { return base != 0 ? base + i * 8 : 0; };
    std::vector<std::uint64_t> values(count), back(count);
    Stream stream(s);
    for (unsigned i = 0; i < count; i++) {
        values[i] = i + 1;
        stream.post([&] { return fi_write(s.ep, &values[i], 8, nullptr, 1, at(i), keys[i], &s); });
    }
    stream.finish();
    for (unsigned i = 0; i < count; i++)
        stream.post([&] { return fi_read(s.ep, &back[i], 8, nullptr, 1, at(i), keys[i], &s); });
    stream.finish();
    EXPECT_EQ(back, values);
    s.barrier();
    s.barrier();
    std::uint64_t value = ~std::uint64_t{0};
    for (unsigned i = 0; i < count; i += 500) { // closed
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, at(i), keys[i], &s); }), 0);
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        ASSERT_TRUE(s.next(entry, &error)) << i;
    }
    s.barrier();
}

TEST(OverflowVcq, FiftyThousandRegions)
{
    void* keys = mmap(nullptr, count * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    with_both_kinds_of_keys(2, [&](const Rank& rank, int mode) {
        Session s(rank, options_of(FI_RMA, mode));
        if (rank.number == 0)
            write_to_all(rank, s, static_cast<std::uint64_t*>(keys));
        else
            be_written_to(rank, s, static_cast<std::uint64_t*>(keys));
        s.barrier();
    });
    munmap(keys, count * 8);
}

TEST(OverflowVcq, TheLastTagOfAllIsALimitAndComesBack)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, options_of(FI_RMA, provider_keys));
        const auto most = static_cast<unsigned>(s.info->domain_attr->mr_cnt);
        ASSERT_GE(most, count);
        Row row(s, most);
        std::uint64_t word = 0;
        fid_mr* mr = nullptr;
        EXPECT_EQ(fi_mr_reg(s.domain, &word, 8, remote_access, 0, 0, 0, &mr, nullptr), -FI_ENOSPC);
        EXPECT_EQ(fi_mr_reg(s.domain, &word, 8, remote_access, 0, 0, 0, &mr, nullptr), -FI_ENOSPC);
        for (unsigned i : {3 * tags_of_a_vcq, most - 1, 0u}) {
            ASSERT_EQ(fi_close(&row.regions[i]->fid), 0);
            ASSERT_EQ(fi_mr_reg(s.domain, &row.words[i], 8, remote_access, 0, 0, 0, &row.regions[i], nullptr), 0) << i;
            EXPECT_EQ(fi_mr_key(row.regions[i]) >> 63, i == 0 ? 0u : 1u);
            EXPECT_EQ(fi_mr_reg(s.domain, &word, 8, remote_access, 0, 0, 0, &mr, nullptr), -FI_ENOSPC);
        }
    });
}

TEST(OverflowVcq, LocalBuffersInMoreRegionsThanTheirVcqHasTags)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, options_of(FI_RMA, provider_keys));
        constexpr unsigned regions = tags_of_a_vcq + 500;
        constexpr std::size_t size = 2000;
        std::vector<std::uint8_t> mine(regions * 8 + size, 1), window(size);
        const auto w = s.share(window.data(), size)[0];
        Stream stream(s);
        for (unsigned i = 0; i < regions; i++) {
            std::uint8_t* const from = &mine[i * 8];
            fid_mr* mr = s.reg(from, size, FI_READ | FI_WRITE);
            stream.post([&] { return fi_write(s.ep, from, size, fi_mr_desc(mr), 0, w.base, w.key, &s); });
        }
        stream.finish();
        EXPECT_EQ(std::count(window.begin(), window.end(), 1), size);
    });
}

// --- order: none is kept by the TNI between the two ways

void write_and_read_in_turns(const Rank& rank, int mode, const char* seed)
{
    setenv("TOFU_SIM_CHAOS", seed, 1);
    Session s(rank, options_of(FI_RMA, mode, FI_ORDER_RMA_WAW | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR));
    alignas(256) static std::uint64_t memory[64];
    TwoWays ways(s, memory, sizeof(memory));
    constexpr unsigned rounds = 120;
    if (rank.number == 0) {
        std::vector<std::uint64_t> values(rounds + 1), before(rounds + 1, ~std::uint64_t{0}), after(before);
        Stream stream(s);
        for (unsigned i = 1; i <= rounds; i++) {
            values[i] = i;
            const Window& here = ways.way(i / 2, 1);
            const Window& there = ways.way(i / 2 + 1, 1);
            const std::uint64_t offset = 8 * (i % 3);
            stream.post([&] { return fi_read(s.ep, &before[i], 8, nullptr, 1, there.base + offset, there.key, &s); });
            if (i % 5 == 0)
                stream.post([&] { return fi_inject_write(s.ep, &values[i], 8, 1, here.base + offset, here.key); },
                            true);
            else
                stream.post(
                    [&] { return fi_write(s.ep, &values[i], 8, nullptr, 1, here.base + offset, here.key, &s); });
            stream.post([&] { return fi_read(s.ep, &after[i], 8, nullptr, 1, there.base + offset, there.key, &s); });
        }
        stream.finish();
        for (unsigned i = 1; i <= rounds; i++) {
            EXPECT_EQ(before[i], i > 3 ? i - 3 : 0) << i;
            EXPECT_EQ(after[i], i) << i;
        }
    }
    s.barrier();
    for (unsigned i = rounds - 2; i <= rounds; i++)
        EXPECT_EQ(memory[i % 3], rank.number == 1 ? i : 0u);
}

TEST(OverflowVcq, WritesAndReadsKeepTheirOrderAcrossWays)
{
    for (const char* seed : {"5", "6"})
        with_both_kinds_of_keys(2, [&](const Rank& rank, int mode) { write_and_read_in_turns(rank, mode, seed); });
}

void swap_in_turns(const Rank& rank, int mode)
{
    setenv("TOFU_SIM_CHAOS", "7", 1);
    constexpr std::uint64_t order = FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR;
    Session s(rank, options_of(FI_RMA | FI_ATOMIC, mode, order));
    alignas(256) static std::uint64_t memory[64];
    TwoWays ways(s, memory, sizeof(memory));
    if (rank.number == 0) {
        // Each finds what the one before has left: an ARMW, now and then a row of them, a loop of CSWAPs.
        constexpr unsigned rounds = 100;
        std::vector<std::uint64_t> written(rounds * 4, 2), found(rounds * 4);
        Stream stream(s);
        for (unsigned i = 0; i < rounds; i++) {
            const Window& w = ways.way(i, 1);
            const fi_op op = i % 20 == 19 ? FI_MAX : FI_ATOMIC_WRITE;
            written[i * 4] = i + 1;
            stream.post([&] {
                return fi_fetch_atomic(s.ep, &written[i * 4], i % 5 == 4 ? 4 : 1, nullptr, &found[i * 4], nullptr, 1,
                                       w.base, w.key, FI_UINT64, op, &s);
            });
        }
        stream.finish();
        for (unsigned i = 0; i < rounds; i++)
            EXPECT_EQ(found[i * 4], i) << i;
    }
    s.barrier();
}

TEST(OverflowVcq, AtomicsKeepTheirOrderAcrossWays)
{
    with_both_kinds_of_keys(2, swap_in_turns);
}

// --- each kind of access

void add_by_both_ways(const Rank& rank, int mode)
{
    Session s(rank, options_of(FI_RMA | FI_ATOMIC, mode));
    struct Sums {
        std::uint64_t word;
        std::uint16_t half;
        std::uint64_t row[20];
        alignas(16) long double wide;
    };
    alignas(256) static Sums sums;
    TwoWays ways(s, &sums, sizeof(sums));
    constexpr unsigned rounds = 200;
    const std::vector<std::uint64_t> ones(20, 1);
    const std::uint16_t half = 1;
    const long double wide = 1;
    Stream stream(s);
    for (unsigned i = 0; i < rounds; i++) {
        const Window& w = ways.way(i + rank.number, 0); // rank 0 at itself, too
        auto add = [&](const void* operand, std::size_t n, std::size_t offset, fi_datatype type) {
            stream.post(
                [&] { return fi_atomic(s.ep, operand, n, nullptr, 0, w.base + offset, w.key, type, FI_SUM, &s); });
        };
        add(ones.data(), 1, offsetof(Sums, word), FI_UINT64);
        add(&half, 1, offsetof(Sums, half), FI_UINT16);
        add(ones.data(), 20, offsetof(Sums, row), FI_UINT64);
        add(&wide, 1, offsetof(Sums, wide), FI_LONG_DOUBLE);
    }
    stream.finish();
    s.barrier();
    const unsigned all = rank.number == 0 ? rounds * rank.size : 0;
    EXPECT_EQ(sums.word, all);
    EXPECT_EQ(sums.half, all);
    EXPECT_EQ(sums.wide, static_cast<long double>(all));
    for (std::uint64_t word : sums.row)
        EXPECT_EQ(word, all);
    s.barrier();
}

TEST(OverflowVcq, AtomicsByBothWaysMissNothing)
{
    with_both_kinds_of_keys(3, add_by_both_ways);
}

void count_events(const Rank& rank, int mode)
{
    Options options = options_of(FI_RMA | FI_ATOMIC | FI_RMA_EVENT, mode);
    options.counters = true;
    Session s(rank, options);
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    fid_cntr* counter = nullptr;
    Session::check(fi_cntr_open(s.domain, &attr, &counter, nullptr), "fi_cntr_open");
    alignas(256) static std::uint64_t memory[64];
    {
        TwoWays ways(s, memory, sizeof(memory));
        ASSERT_EQ(fi_mr_bind(s.regions.back(), &counter->fid, FI_REMOTE_WRITE), 0); // that of the overflow VCQ
        s.barrier();
        if (rank.number == 1) {
            // No other thread polls: the overflow VCQ wakes the sleeper.
            EXPECT_EQ(fi_cntr_wait(counter, 1, 20000), 0);
            EXPECT_EQ(memory[0], 1u);
            s.barrier();
            EXPECT_EQ(fi_cntr_wait(counter, 4, 20000), 0);
            EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[remote_write_counter]) == 5; }));
            EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[remote_read_counter]) == 1; }));
        } else {
            Stream stream(s);
            std::uint64_t one = 1, back = 0;
            std::uint64_t pair[2] = {3, 4};
            const Window& target_vcq = ways.way(0, 1);
            const Window& overflow = ways.way(1, 1);
            stream.post([&] { return fi_write(s.ep, &one, 8, nullptr, 1, overflow.base, overflow.key, &s); });
            stream.finish();
            s.barrier();
            stream.post([&] {
                return fi_atomic(s.ep, &one, 1, nullptr, 1, overflow.base, overflow.key, FI_UINT64, FI_SUM, &s);
            });
            stream.post([&] { return fi_read(s.ep, &back, 8, nullptr, 1, overflow.base, overflow.key, &s); });
            // One operation to both: one event, of the last piece, behind all bytes.
            const iovec local{pair, 16};
            for (bool last : {false, true}) {
                const Window& a = last ? target_vcq : overflow;
                const Window& b = last ? overflow : target_vcq;
                const fi_rma_iov remote[2] = {{a.base + 64, 8, a.key}, {b.base + 72, 8, b.key}};
                fi_msg_rma msg{&local, nullptr, 1, 1, remote, 2, &s, 0};
                stream.post([&] { return fi_writemsg(s.ep, &msg, FI_COMPLETION); });
            }
            stream.post([&] { return fi_inject_write(s.ep, &one, 8, 1, overflow.base + 80, overflow.key); }, true);
            stream.finish();
        }
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(memory[0], 2u);
            EXPECT_EQ(memory[8], 3u);
            EXPECT_EQ(memory[9], 4u);
            EXPECT_EQ(memory[10], 1u);
        }
        s.barrier();
        EXPECT_EQ(fi_close(&s.regions.back()->fid), 0);
        s.regions.pop_back();
    }
    EXPECT_EQ(fi_close(&counter->fid), 0);
}

TEST(OverflowVcq, ItsEventsAreCountedAndWakeWaiters)
{
    with_both_kinds_of_keys(2, count_events);
}

void write_data(const Rank& rank, int mode)
{
    setenv("TOFU_SIM_CHAOS", "9", 1);
    Session s(rank, options_of(FI_RMA | FI_MSG, mode));
    alignas(256) static std::uint8_t memory[1 << 16];
    TwoWays ways(s, memory, sizeof(memory));
    constexpr unsigned rounds = 12;
    std::vector<std::uint8_t> bytes(sizeof(memory));
    for (unsigned i = 0; i < rounds; i++) {
        const std::size_t size = i % 3 == 0 ? 8 : i % 3 == 1 ? 100 : sizeof(memory);
        std::fill(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(i + 1));
        if (rank.number == 0) {
            const Window& w = ways.way(i / 3, 1);
            Stream stream(s);
            if (size <= 100)
                stream.post([&] { return fi_inject_writedata(s.ep, bytes.data(), size, i, 1, w.base, w.key); }, true);
            else
                stream.post([&] { return fi_writedata(s.ep, bytes.data(), size, nullptr, i, 1, w.base, w.key, &s); });
            stream.finish();
            EXPECT_TRUE(wait_until([&] {
                stream.take(); // what was injected goes on behind the call
                return rank.get(900) == i + 1;
            }));
        } else {
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
            EXPECT_EQ(entry.data, i);
            for (std::size_t at = 0; at < size; at++)
                ASSERT_EQ(memory[at], i + 1);
            rank.set(900, i + 1);
        }
    }
    s.barrier();
}

TEST(OverflowVcq, DataComesBehindTheBytes)
{
    with_both_kinds_of_keys(2, write_data);
}

void close_and_open(const Rank& rank, int mode)
{
    Session s(rank, options_of(FI_RMA | FI_ATOMIC, mode));
    static std::uint64_t memory[4];
    TwoWays ways(s, &memory[0], 8, true);
    fid_mr* mr = nullptr;
    Window stale{};
    for (unsigned i = 0; i < 3; i++) {
        if (rank.number == 1) {
            ASSERT_EQ(fi_mr_reg(s.domain, &memory[1 + i], 8, remote_access, 0, 1000077, 0, &mr, nullptr), 0);
            rank.set(900, fi_mr_key(mr));
            rank.set(901, mode != 0 ? reinterpret_cast<std::uint64_t>(&memory[1 + i]) : 0);
        }
        s.barrier();
        if (rank.number == 0) {
            Stream stream(s);
            std::uint64_t value = i + 5;
            const Window w{rank.get(901), rank.get(900)};
            EXPECT_EQ(mode != 0 && w.key == stale.key, false);
            stream.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, w.base, w.key, &s); });
            stream.finish(); // no order between the two was asked for
            stream.post([&] { return fi_atomic(s.ep, &value, 1, nullptr, 1, w.base, w.key, FI_UINT64, FI_SUM, &s); });
            stream.finish();
            stale = w;
        }
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(memory[1 + i], 2 * (i + 5));
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
        s.barrier();
        if (rank.number == 0) {
            std::uint64_t value = 99;
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, stale.base, stale.key, &s); }), 0);
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.err, FI_EKEYREJECTED);
            ASSERT_EQ(s.post([&] {
                return fi_atomic(s.ep, &value, 1, nullptr, 1, stale.base, stale.key, FI_UINT64, FI_SUM, &s);
            }),
                      0);
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.err, FI_EKEYREJECTED);
        }
        s.barrier();
    }
}

TEST(OverflowVcq, AClosedRegionsKeyIsAnErrorAndNoOtherRegions)
{
    with_both_kinds_of_keys(2, close_and_open);
}

} // namespace
