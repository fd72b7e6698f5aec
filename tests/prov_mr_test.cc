// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr and the endpoint's own calls between processes over the simulator: keys, rights, lives of regions, errors of
// remote access, options, aliases, names, the order of closing. Run by make check.
#include <gtest/gtest.h>

#include <malloc.h>

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <random>

#include "prov_session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

constexpr std::uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;

Options user_keys(int mode = 0)
{
    Options options;
    options.mr_mode = mode;
    return options;
}

/// Writes 8 bytes to a key and expects this error entry.
void expect_error(Session& s, unsigned peer, const Window& w, std::uint64_t offset, int err, bool read = false)
{
    std::uint64_t value = 1;
    ASSERT_EQ(s.post([&] {
        return read ? fi_read(s.ep, &value, 8, nullptr, peer, w.base + offset, w.key, &value)
                    : fi_write(s.ep, &value, 8, nullptr, peer, w.base + offset, w.key, &value);
    }), 0);
    fi_cq_data_entry entry{};
    fi_cq_err_entry error{};
    ASSERT_TRUE(s.next(entry, &error));
    EXPECT_EQ(error.err, err) << fi_strerror(error.err);
    EXPECT_EQ(error.op_context, &value);
    EXPECT_EQ(error.flags & (FI_RMA | FI_READ | FI_WRITE), FI_RMA | (read ? FI_READ : FI_WRITE));
}

TEST(Mr, AUsersKeyIsUsedOnce)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, user_keys());
        char a[64], b[64];
        fid_mr* first = nullptr;
        fid_mr* second = nullptr;
        ASSERT_EQ(fi_mr_reg(s.domain, a, 64, both, 0, 5, 0, &first, nullptr), 0);
        EXPECT_EQ(fi_mr_key(first), 5u);
        EXPECT_EQ(fi_mr_reg(s.domain, b, 64, both, 0, 5, 0, &second, nullptr), -FI_ENOKEY);
        ASSERT_EQ(fi_mr_reg(s.domain, b, 64, both, 0, 6, 0, &second, nullptr), 0);
        EXPECT_EQ(fi_close(&s.domain->fid), -FI_EBUSY);
        ASSERT_EQ(fi_close(&first->fid), 0);
        ASSERT_EQ(fi_mr_reg(s.domain, b, 64, both, 0, 5, 0, &first, nullptr), 0);
        ASSERT_EQ(fi_close(&first->fid), 0);
        ASSERT_EQ(fi_close(&second->fid), 0);
    });
}

TEST(Mr, WhatCannotBeRegisteredIsRefused)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, user_keys());
        fid_mr* mr = nullptr;
        char a[64];
        EXPECT_LT(fi_mr_reg(s.domain, nullptr, SIZE_MAX, both, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_LT(fi_mr_reg(s.domain, a, SIZE_MAX, both, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_LT(fi_mr_reg(s.domain, a, 0, both, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_LT(fi_mr_reg(s.domain, a, 64, std::uint64_t{1} << 63, 0, 1, 0, &mr, nullptr), 0);
        void* hole = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_EQ(munmap(hole, 1 << 20), 0);
        EXPECT_LT(fi_mr_reg(s.domain, hole, 1 << 20, both, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_EQ(mr, nullptr);
        const iovec two[2] = {{a, 8}, {a + 32, 8}};
        EXPECT_LT(fi_mr_regv(s.domain, two, 2, both, 0, 1, 0, &mr, nullptr), 0);
        // The key is free after all those refusals.
        ASSERT_EQ(fi_mr_regv(s.domain, two, 1, both, 0, 1, 0, &mr, nullptr), 0);
        ASSERT_EQ(fi_close(&mr->fid), 0);
    });
}

TEST(Mr, EveryCombinationOfRights)
{
    expect_processes(1, [](const Rank& rank) {
        for (int mode : {0, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY}) {
            Session s(rank, user_keys(mode));
            std::uint64_t memory[8] = {};
            const std::uint64_t bits[] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
            for (unsigned set = 0; set < 64; set++) {
                std::uint64_t access = 0;
                for (unsigned i = 0; i < 6; i++)
                    access |= (set >> i & 1) ? bits[i] : 0;
                fi_mr_attr attr{};
                const iovec iov{memory, sizeof(memory)};
                attr.mr_iov = &iov;
                attr.iov_count = 1;
                attr.access = access;
                attr.requested_key = set;
                attr.context = &attr;
                fid_mr* mr = nullptr;
                ASSERT_EQ(fi_mr_regattr(s.domain, &attr, 0, &mr), 0) << set;
                EXPECT_EQ(mr->fid.context, &attr);
                EXPECT_NE(fi_mr_desc(mr), nullptr);
                const Window w{mode ? reinterpret_cast<std::uint64_t>(memory) : 0, fi_mr_key(mr)};
                std::uint64_t value = 7;
                if (access & FI_REMOTE_WRITE) {
                    ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, w.base, w.key, &s); }), 0);
                    s.expect(&s, FI_WRITE);
                } else if (mode == 0) {
                    expect_error(s, 0, w, 0, (access & both) ? FI_EACCES : FI_EKEYREJECTED);
                }
                if (access & FI_REMOTE_READ) {
                    ASSERT_EQ(s.post([&] { return fi_read(s.ep, &value, 8, nullptr, 0, w.base, w.key, &s); }), 0);
                    s.expect(&s, FI_READ);
                } else if (mode == 0) {
                    expect_error(s, 0, w, 0, (access & both) ? FI_EACCES : FI_EKEYREJECTED, true);
                }
                ASSERT_EQ(fi_close(&mr->fid), 0);
            }
        }
    });
}

TEST(Mr, AProvidersKeyWithoutTheRightIsAnError)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank);
        std::uint64_t memory[8] = {3, 3, 3, 3, 3, 3, 3, 3};
        auto peers = s.share(memory, sizeof(memory), FI_REMOTE_READ);
        auto local = s.share(memory, sizeof(memory), FI_READ | FI_WRITE);
        if (rank.number == 0) {
            std::uint64_t value = 1;
            for (const Window& w : {peers[1], local[1]}) {
                const bool reachable = w.key == peers[1].key;
                ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, w.base, w.key, &s); }), 0);
                fi_cq_data_entry entry{};
                fi_cq_err_entry error{};
                ASSERT_TRUE(s.next(entry, &error));
                EXPECT_NE(error.err, 0);
                EXPECT_EQ(error.prov_errno != 0, reachable);
                EXPECT_EQ(error.err == FI_EKEYREJECTED, !reachable);
                // An inject that fails is told all the same, once.
                ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &value, 8, 1, w.base, w.key); }), 0);
                ASSERT_TRUE(s.next(entry, &error));
                EXPECT_NE(error.err, 0);
                s.expect_silence();
            }
        }
        s.barrier();
        for (std::uint64_t word : memory)
            EXPECT_EQ(word, 3u);
    });
}

TEST(Mr, OutsideTheRegionIsAnErrorAndHarmsNothing)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, user_keys());
        std::vector<std::uint64_t> memory(1024, 3);
        auto peers = s.share(memory.data() + 256, 256 * 8, both, 11);
        if (rank.number == 0) {
            expect_error(s, 1, peers[1], 256 * 8, FI_EINVAL);
            expect_error(s, 1, peers[1], 256 * 8 - 7, FI_EINVAL);
            expect_error(s, 1, peers[1], ~std::uint64_t{7}, FI_EINVAL);
            expect_error(s, 1, {0, 12}, 0, FI_EKEYREJECTED);
            expect_error(s, 1, {0, 12}, 0, FI_EKEYREJECTED, true);
        }
        s.barrier();
        for (std::uint64_t word : memory)
            EXPECT_EQ(word, 3u);
    });
}

TEST(Mr, AClosedRegionIsAnErrorAndItsKeyMayComeBack)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, user_keys());
        std::vector<std::uint64_t> first(1024, 0), second(1024, 0), third(1024, 0);
        const Window w{0, 9};
        fid_mr* mr = nullptr;
        std::uint64_t value = 1;
        auto write = [&](std::uint64_t v) {
            value = v;
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, 80, 9, &s); }), 0);
            s.expect(&s, FI_WRITE);
        };
        if (rank.number == 1) {
            ASSERT_EQ(fi_mr_reg(s.domain, first.data(), 8192, both, 0, 9, 0, &mr, nullptr), 0);
        }
        s.barrier();
        if (rank.number == 0)
            write(101);
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(first[10], 101u);
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
        s.barrier();
        if (rank.number == 0)
            expect_error(s, 1, w, 80, FI_EKEYREJECTED); // remembered, refuted, asked for again
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(first[10], 101u);
            ASSERT_EQ(fi_mr_reg(s.domain, second.data(), 8192, both, 0, 9, 0, &mr, nullptr), 0);
        }
        s.barrier();
        if (rank.number == 0)
            write(102);
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(second[10], 102u);
            ASSERT_EQ(fi_close(&mr->fid), 0);
            ASSERT_EQ(fi_mr_reg(s.domain, third.data(), 8192, both, 0, 9, 0, &mr, nullptr), 0);
        }
        s.barrier();
        if (rank.number == 0)
            write(103); // what was remembered is stale: tried again without a word
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(third[10], 103u);
            EXPECT_EQ(second[10], 102u);
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
    });
}

/// What each kind of atomic does when its key has moved to another region since it was looked up: by one ARMW, injected,
/// by a loop of CSWAPs, in a row, under a lock word. All add one to each of their elements.
constexpr unsigned kinds = 6;
ssize_t add_one(Session& s, unsigned kind, std::uint64_t* ones, std::uint64_t* result, long double* wide)
{
    switch (kind) {
    case 0: return fi_atomic(s.ep, ones, 1, nullptr, 1, 80, 9, FI_UINT64, FI_SUM, &s);
    case 1: return fi_inject_atomic(s.ep, ones, 1, 1, 80, 9, FI_UINT64, FI_SUM);
    case 2: return fi_fetch_atomic(s.ep, ones, 1, nullptr, result, nullptr, 1, 80, 9, FI_UINT64, FI_SUM, &s);
    case 3: return fi_fetch_atomic(s.ep, ones, 1, nullptr, result, nullptr, 1, 80, 9, FI_UINT64, FI_MAX, &s);
    case 4: return fi_atomic(s.ep, ones, 100, nullptr, 1, 80, 9, FI_UINT64, FI_SUM, &s);
    default: return fi_atomic(s.ep, wide, 1, nullptr, 1, 80, 9, FI_LONG_DOUBLE, FI_SUM, &s);
    }
}

TEST(Mr, AtomicsFollowAKeyToItsNewRegion)
{
    expect_processes(2, [](const Rank& rank) {
        Options options = user_keys();
        options.caps |= FI_ATOMIC;
        Session s(rank, options);
        std::vector<std::uint64_t> ones(100, 1);
        std::vector<std::uint64_t> memory[kinds + 1];
        for (auto& m : memory)
            m.assign(1024, 0);
        long double one = 1;
        fid_mr* mr = nullptr;
        for (unsigned kind = 0; kind <= kinds; kind++) {
            // The first region makes the key known, each one after it takes the key over.
            if (rank.number == 1) {
                ASSERT_EQ(mr != nullptr ? fi_close(&mr->fid) : 0, 0);
                ASSERT_EQ(fi_mr_reg(s.domain, memory[kind].data(), 8192, both, 0, 9, 0, &mr, nullptr), 0);
            }
            s.barrier();
            if (rank.number == 0) {
                std::uint64_t result = 7;
                const unsigned what = kind == 0 ? 0 : kind - 1;
                ASSERT_EQ(s.post([&] { return add_one(s, what, ones.data(), &result, &one); }), 0);
                if (what != 1)
                    s.expect(&s, what == 2 || what == 3 ? FI_READ : FI_WRITE);
                EXPECT_EQ(result, what == 2 || what == 3 ? 0u : 7u);
                if (what == 1) { // whatever comes after it has waited for it
                    std::uint64_t zero = 0;
                    ASSERT_EQ(s.post([&] {
                        return fi_fetch_atomic(s.ep, &zero, 1, nullptr, &result, nullptr, 1, 88, 9, FI_UINT64,
                                               FI_BOR, &s);
                    }), 0);
                    s.expect(&s, FI_READ);
                    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(10);
                    for (result = 0; result == 0 && std::chrono::steady_clock::now() < bound;) {
                        ASSERT_EQ(s.post([&] {
                            return fi_fetch_atomic(s.ep, &zero, 1, nullptr, &result, nullptr, 1, 80, 9,
                                                   FI_UINT64, FI_BOR, &s);
                        }), 0);
                        s.expect(&s, FI_READ);
                    }
                    EXPECT_EQ(result, 1u);
                }
            }
            s.barrier();
            if (rank.number == 1) {
                const auto& m = memory[kind];
                if (kind == kinds) {
                    long double sum;
                    std::memcpy(&sum, &m[10], sizeof(sum));
                    EXPECT_EQ(sum, 1.0L);
                } else {
                    for (unsigned i = 0; i < (kind == 5 ? 100 : 1); i++)
                        EXPECT_EQ(m[10 + i], 1u) << "kind " << kind;
                }
            }
        }
        if (rank.number == 1) {
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
    });
}

/// Programs with keys of their own (MPICH's windows) give a key to one region after the other, of any size and place.
TEST(Mr, AKeyMayComeBackForARegionWithOtherBoundsAndRights)
{
    expect_processes(2, [](const Rank& rank) {
        Options options = user_keys();
        options.caps |= FI_ATOMIC;
        Session s(rank, options);
        std::vector<std::uint64_t> memory(1024, 0);
        std::uint64_t* const words = memory.data();
        // The first of a pair makes the key known, the second one allows what the first did not.
        const struct {
            void* base;
            std::size_t length;
            std::uint64_t access;
        } regions[] = {{words, 64, both},        {words, 8192, both},
                       {words, 8192, both},      {words, 8192, FI_REMOTE_WRITE},
                       {words, 8192, both},      {words, 64, both},
                       {words, 8192, both},      {reinterpret_cast<char*>(words) + 4, 8000, both},
                       {words, 8192, both}};
        std::uint64_t value = 0, one = 1, result = 0;
        fid_mr* mr = nullptr;
        for (unsigned i = 0; i < std::size(regions); i++) {
            if (rank.number == 1) {
                ASSERT_EQ(mr != nullptr ? fi_close(&mr->fid) : 0, 0);
                ASSERT_EQ(fi_mr_reg(s.domain, regions[i].base, regions[i].length, regions[i].access, 0, 9, 0,
                                    &mr, nullptr), 0);
            }
            s.barrier();
            if (rank.number == 0) {
                const bool first = i == 0 || i == 3 || i == 5 || i == 7;
                const std::uint64_t at = first ? 8 : 4000;
                value = 100 + i;
                if (i == 7) { // an address that is aligned in neither region but this one
                    ASSERT_EQ(s.post([&] {
                        return fi_atomic(s.ep, &one, 1, nullptr, 1, 4, 9, FI_UINT64, FI_SUM, &s);
                    }), 0);
                    s.expect(&s, FI_WRITE);
                } else if (i == 2 || i == 4) { // fetching asks for both rights
                    ASSERT_EQ(s.post([&] {
                        return fi_fetch_atomic(s.ep, &one, 1, nullptr, &result, nullptr, 1, at, 9, FI_UINT64,
                                               FI_SUM, &s);
                    }), 0);
                    s.expect(&s, FI_READ);
                } else {
                    ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 1, at, 9, &s); }), 0);
                    s.expect(&s, FI_WRITE);
                }
                if (first && i != 7)
                    expect_error(s, 1, {0, 9}, regions[i].length, FI_EINVAL); // found to be true, not repeated
            }
            s.barrier();
        }
        if (rank.number == 1) {
            EXPECT_EQ(memory[500], 108u);
            EXPECT_EQ(memory[1], 106u); // 105, and one more
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
    });
}

TEST(Mr, ManyKeysOverflowIntoTheSecondTable)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, user_keys());
        constexpr unsigned count = 1500; // the first table holds at most 320
        std::vector<std::uint64_t> memory(count);
        std::vector<fid_mr*> made;
        std::mt19937_64 random(7); // the same keys on both sides
        std::vector<std::uint64_t> keys;
        for (unsigned i = 0; i < count; i++)
            keys.push_back(i % 2 ? random() : i);
        for (unsigned i = 0; i < count; i++) {
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(s.domain, &memory[i], 8, both, 0, keys[i], 0, &mr, nullptr), 0) << i;
            made.push_back(mr);
        }
        s.barrier();
        const unsigned peer = 1 - rank.number;
        for (unsigned i = 0; i < count; i++) {
            std::uint64_t value = i + 1;
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, peer, 0, keys[i], &s); }), 0);
            s.expect(&s, FI_WRITE);
        }
        s.barrier();
        for (unsigned i = 0; i < count; i++)
            ASSERT_EQ(memory[i], i + 1u);
        for (unsigned i = 0; i < count; i += 2) {
            ASSERT_EQ(fi_close(&made[i]->fid), 0);
        }
        s.barrier();
        for (unsigned i = 0; i < count; i += 50)
            expect_error(s, peer, {0, keys[i]}, 0, FI_EKEYREJECTED);
        for (unsigned i = 1; i < count; i += 50) {
            std::uint64_t value = i + 7;
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, peer, 0, keys[i], &s); }), 0);
            s.expect(&s, FI_WRITE);
        }
        s.barrier();
        for (unsigned i = 1; i < count; i += 2)
            ASSERT_EQ(fi_close(&made[i]->fid), 0);
    });
}

TEST(Mr, KeysComeAndGoWhilePeersLook)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, user_keys());
        std::vector<std::uint64_t> memory(400, 5);
        if (rank.number == 1) {
            // Neighbours of key 0 in every bucket change all the time; key 0 stays and must always be found.
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(s.domain, memory.data(), 8, both, 0, 0, 0, &mr, nullptr), 0);
            s.barrier();
            std::mt19937 random(1);
            std::map<std::uint64_t, fid_mr*> others;
            while (rank.get(900) == 0) {
                const std::uint64_t key = 1 + random() % 399;
                if (auto it = others.find(key); it != others.end()) {
                    ASSERT_EQ(fi_close(&it->second->fid), 0);
                    others.erase(it);
                } else {
                    ASSERT_EQ(fi_mr_reg(s.domain, &memory[key], 8, both, 0, key, 0, &others[key], nullptr), 0);
                }
            }
            for (auto& [key, other] : others)
                ASSERT_EQ(fi_close(&other->fid), 0);
            ASSERT_EQ(fi_close(&mr->fid), 0);
        } else {
            s.barrier();
            std::mt19937 random(2);
            for (int i = 0; i < 3000; i++) {
                const std::uint64_t key = i % 3 ? 1 + random() % 399 : 0;
                std::uint64_t value = 0;
                ASSERT_EQ(s.post([&] { return fi_read(s.ep, &value, 8, nullptr, 1, 0, key, &s); }), 0);
                fi_cq_data_entry entry{};
                ssize_t ret = 0;
                ASSERT_TRUE(wait_until([&] { return (ret = fi_cq_read(s.cq, &entry, 1)) != -FI_EAGAIN; }));
                if (ret == 1) {
                    ASSERT_EQ(value, 5u);
                } else {
                    fi_cq_err_entry error{};
                    ASSERT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
                    ASSERT_NE(key, 0u) << fi_strerror(error.err);
                }
            }
            rank.set(900, 1);
        }
        s.barrier();
    });
}

TEST(Mr, ALocalBufferInARegionNeedsNoOther)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank);
        std::vector<std::uint8_t> window(1 << 20), mine(1 << 20, static_cast<std::uint8_t>(rank.number + 1));
        auto peers = s.share(window.data(), window.size());
        const unsigned peer = 1 - rank.number;
        for (int round = 0; round < 3; round++) {
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(s.domain, mine.data(), mine.size(), FI_READ | FI_WRITE, 0, 0, 0, &mr, nullptr), 0);
            for (std::size_t size : {std::size_t{40}, std::size_t{600}, std::size_t{9000}, mine.size()}) {
                ASSERT_EQ(s.post([&] {
                    return fi_write(s.ep, mine.data(), size, fi_mr_desc(mr), peer, peers[peer].base,
                                    peers[peer].key, &s);
                }), 0);
                s.expect(&s, FI_WRITE);
                ASSERT_EQ(s.post([&] {
                    return fi_read(s.ep, mine.data(), size, fi_mr_desc(mr), peer, peers[peer].base,
                                   peers[peer].key, &s);
                }), 0);
                s.expect(&s, FI_READ);
            }
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
        s.barrier();
        for (std::uint8_t byte : window)
            ASSERT_EQ(byte, peer + 1);
    });
}

TEST(Mr, CountersOfARegionCountItsEvents)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        Session s(rank, options);
        fid_cntr* counter = nullptr;
        fi_cntr_attr attr{};
        ASSERT_EQ(fi_cntr_open(s.domain, &attr, &counter, nullptr), 0);
        std::uint64_t counted[16] = {}, other[16] = {};
        auto peers = s.share(counted, sizeof(counted));
        ASSERT_EQ(fi_mr_bind(s.regions.back(), &counter->fid, FI_REMOTE_WRITE), 0);
        EXPECT_EQ(fi_close(&counter->fid), -FI_EBUSY);
        ASSERT_EQ(fi_mr_enable(s.regions.back()), 0);
        auto others = s.share(other, sizeof(other));
        const unsigned peer = 1 - rank.number;
        std::uint64_t value = 1;
        for (unsigned i = 0; i < 10; i++)
            for (const Window& w : {peers[peer], others[peer]}) {
                ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, peer, w.base, w.key, &s); }), 0);
                s.expect(&s, FI_WRITE);
            }
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(counter) == 10; }));
        s.barrier();
        EXPECT_EQ(fi_cntr_read(counter), 10u);
        s.barrier();
        ASSERT_EQ(fi_close(&s.regions.front()->fid), 0);
        s.regions.erase(s.regions.begin());
        ASSERT_EQ(fi_close(&counter->fid), 0);
    });
}

/// A region may lie within another one: what is written behind it is an event of the outer one alone.
TEST(Mr, CountersOfARegionCountAroundARegionWithinIt)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        Session s(rank, options);
        fid_cntr* counter[2] = {};
        fi_cntr_attr attr{};
        std::uint64_t memory[512] = {};
        auto outer = s.share(memory, sizeof(memory));
        s.reg(memory + 64, 64);
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_EQ(fi_cntr_open(s.domain, &attr, &counter[i], nullptr), 0);
            ASSERT_EQ(fi_mr_bind(s.regions[i], &counter[i]->fid, FI_REMOTE_WRITE), 0);
        }
        std::uint64_t value = 1;
        for (unsigned word : {0, 63, 72, 500}) {
            ASSERT_EQ(s.post([&] {
                return fi_write(s.ep, &value, 8, nullptr, 0, outer[0].base + word * 8, outer[0].key, &s);
            }), 0);
            s.expect(&s, FI_WRITE);
        }
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(counter[0]) == 4; }));
        EXPECT_EQ(fi_cntr_read(counter[1]), 0u);
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_EQ(fi_close(&s.regions[i]->fid), 0);
            ASSERT_EQ(fi_close(&counter[i]->fid), 0);
        }
        s.regions.clear();
    });
}

/// The endpoint that a region is bound to may go first, and one that it can't be bound to is none of its.
TEST(Mr, ARegionMayOutliveItsEndpoint)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        options.counters = true;
        Session s(rank, options);
        std::uint64_t memory[2][8] = {};
        auto left = s.share(memory[0], sizeof(memory[0]));
        auto refused = s.share(memory[1], sizeof(memory[1]));
        fid_domain* elsewhere = nullptr;
        fid_ep *ep = nullptr, *stranger = nullptr;
        ASSERT_EQ(fi_domain(s.fabric, s.info, &elsewhere, nullptr), 0);
        ASSERT_EQ(fi_endpoint(elsewhere, s.info, &stranger, nullptr), 0);
        EXPECT_EQ(fi_mr_bind(s.regions[1], &stranger->fid, 0), -FI_EINVAL);
        ASSERT_EQ(fi_endpoint(s.domain, s.info, &ep, nullptr), 0);
        ASSERT_EQ(fi_mr_bind(s.regions[0], &ep->fid, 0), 0);
        mallopt(M_PERTURB, 0x5a); // what has been freed shows
        ASSERT_EQ(fi_close(&ep->fid), 0);
        std::uint64_t value = 1;
        for (const Window& w : {left[0], refused[0]}) {
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, w.base, w.key, &s); }), 0);
            s.expect(&s, FI_WRITE);
        }
        // Only the one that is bound to none counts for the endpoints of the domain.
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[remote_write_counter]) == 1; }));
        ASSERT_EQ(fi_close(&stranger->fid), 0);
        ASSERT_EQ(fi_close(&elsewhere->fid), 0);
    });
}

/// The capability is the target's (fi_getinfo(3)); fi_mr_bind(3) counts what modifies the region, fetching or not.
TEST(Mr, CountersOfARegionCountWhateverModifiesItByEndpointsWithoutTheCapability)
{
    for (int mode : {FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 0})
        expect_processes(2, [mode](const Rank& rank) {
            const bool target = rank.number == 0;
            Options options;
            options.caps = FI_RMA | FI_ATOMIC | (target ? FI_RMA_EVENT : 0);
            options.mr_mode = mode;
            options.counters = target;
            Session s(rank, options);
            alignas(8) std::uint64_t memory[64] = {};
            fid_cntr* counter = nullptr;
            fi_cntr_attr attr{};
            attr.wait_obj = FI_WAIT_UNSPEC;
            const Window there = s.share(memory, sizeof(memory))[0];
            if (target) {
                ASSERT_EQ(fi_cntr_open(s.domain, &attr, &counter, nullptr), 0);
                ASSERT_EQ(fi_mr_bind(s.regions.back(), &counter->fid, FI_REMOTE_WRITE), 0);
            }
            s.barrier();
            constexpr std::uint64_t writes = 5, fetches = 5, times = 3;
            if (!target) {
                std::uint64_t one = 1, old = 0;
                float number = 1, found = 0;
                auto ends = [&](int posted) {
                    ASSERT_EQ(posted, 0);
                    s.expect(&s, 0);
                };
                for (unsigned i = 0; i < times; i++) {
                    ends(s.post([&] { return fi_write(s.ep, &one, 8, nullptr, 0, there.base, there.key, &s); }));
                    ends(s.post([&] { return fi_write(s.ep, memory, 500, nullptr, 0, there.base, there.key, &s); }));
                    ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &one, 8, 0, there.base, there.key); }), 0);
                    ends(s.post([&] {
                        return fi_atomic(s.ep, &one, 1, nullptr, 0, there.base, there.key, FI_UINT64, FI_SUM, &s);
                    }));
                    ASSERT_EQ(s.post([&] {
                        return fi_inject_atomic(s.ep, &one, 1, 0, there.base, there.key, FI_UINT64, FI_SUM);
                    }), 0);
                    for (fi_op op : {FI_SUM, FI_ATOMIC_WRITE, FI_MAX})
                        ends(s.post([&] {
                            return fi_fetch_atomic(s.ep, &one, 1, nullptr, &old, nullptr, 0, there.base, there.key,
                                                   FI_UINT64, op, &s);
                        }));
                    ends(s.post([&] {
                        return fi_compare_atomic(s.ep, &one, 1, nullptr, &one, nullptr, &old, nullptr, 0, there.base,
                                                 there.key, FI_UINT64, FI_CSWAP, &s);
                    }));
                    ends(s.post([&] {
                        return fi_fetch_atomic(s.ep, &number, 1, nullptr, &found, nullptr, 0, there.base + 8, there.key,
                                               FI_FLOAT, FI_SUM, &s);
                    }));
                    ends(s.post([&] {
                        return fi_fetch_atomic(s.ep, nullptr, 1, nullptr, &old, nullptr, 0, there.base, there.key,
                                               FI_UINT64, FI_ATOMIC_READ, &s);
                    }));
                    ends(s.post([&] { return fi_read(s.ep, &old, 8, nullptr, 0, there.base, there.key, &s); }));
                }
            } else {
                EXPECT_EQ(fi_cntr_wait(counter, times * (writes + fetches), 10000), 0);
                EXPECT_TRUE(wait_until([&] {
                    return fi_cntr_read(s.counter[remote_write_counter]) == times * writes &&
                           fi_cntr_read(s.counter[remote_read_counter]) == times * (fetches + 2);
                }));
            }
            s.barrier();
            if (target) {
                EXPECT_EQ(fi_cntr_read(counter), times * (writes + fetches));
                ASSERT_EQ(fi_close(&s.regions.front()->fid), 0);
                s.regions.erase(s.regions.begin());
                ASSERT_EQ(fi_close(&counter->fid), 0);
            }
        });
}

TEST(Endpoint, OptionsNamesAndAliases)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.selective = true;
        Session s(rank, options);
        std::size_t value = 0, length = sizeof(value);
        ASSERT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
        value = 4096;
        ASSERT_EQ(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)), 0);
        value = 0;
        ASSERT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
        EXPECT_EQ(value, 4096u);
        EXPECT_EQ(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4), -FI_EINVAL);
        length = 4;
        EXPECT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), -FI_ETOOSMALL);
        EXPECT_EQ(length, sizeof(value));
        EXPECT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, 4711, &value, &length), -FI_ENOPROTOOPT);

        length = 0;
        EXPECT_EQ(fi_getname(&s.ep->fid, nullptr, &length), -FI_ETOOSMALL);
        std::vector<char> name(length);
        EXPECT_EQ(fi_getname(&s.ep->fid, name.data(), &length), 0);
        length = 3;
        EXPECT_EQ(fi_getname(&s.ep->fid, name.data(), &length), -FI_ETOOSMALL);
        EXPECT_EQ(length, name.size());

        std::uint64_t memory = 0, one = 1;
        auto peers = s.share(&memory, 8);
        fid_ep* loud = nullptr;
        ASSERT_EQ(fi_ep_alias(s.ep, &loud, FI_TRANSMIT | FI_COMPLETION), 0);
        EXPECT_EQ(fi_close(&s.ep->fid), -FI_EBUSY);
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, &one, 8, nullptr, 0, peers[0].base, peers[0].key, &s); }), 0);
        ASSERT_EQ(s.post([&] { return fi_write(loud, &one, 8, nullptr, 0, peers[0].base, peers[0].key, loud); }), 0);
        s.expect(loud, FI_RMA | FI_WRITE);
        s.expect_silence();
        ASSERT_EQ(fi_close(&loud->fid), 0);
    });
}

TEST(Endpoint, AtomicsQueuedAtItsCloseEndOnceEach)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps |= FI_ATOMIC;
        Session s(rank, options);
        constexpr std::size_t count = 300; // words for a loop of CSWAPs each: more than a window has places
        std::vector<std::uint64_t> memory(count, 1), operand(count, 3);
        auto peers = s.share(memory.data(), count * 8);
        std::vector<unsigned> ends(40);
        for (unsigned& end : ends)
            ASSERT_EQ(s.post([&] {
                return fi_atomic(s.ep, operand.data(), count, nullptr, 0, peers[0].base, peers[0].key, FI_UINT64,
                                 FI_PROD, &end);
            }), 0);
        ASSERT_EQ(fi_close(&s.ep->fid), 0);
        s.ep = nullptr;
        for (;;) {
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            const ssize_t ret = fi_cq_read(s.cq, &entry, 1);
            if (ret == -FI_EAGAIN)
                break;
            if (ret == -FI_EAVAIL) {
                ASSERT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
            }
            ++*static_cast<unsigned*>(ret == 1 ? entry.op_context : error.op_context);
        }
        EXPECT_EQ(ends, std::vector<unsigned>(ends.size(), 1u));
    });
}

TEST(Endpoint, NothingWorksBeforeItIsEnabledAndBound)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.enable = false;
        Session s(rank, options);
        char byte = 0;
        EXPECT_EQ(fi_write(s.ep, &byte, 1, nullptr, 0, 0, 0, nullptr), -FI_EOPBADSTATE);
        EXPECT_EQ(fi_send(s.ep, &byte, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
        EXPECT_EQ(fi_ep_bind(s.ep, &s.cq->fid, FI_TRANSMIT), -FI_EINVAL); // is bound already
        EXPECT_EQ(fi_ep_bind(s.ep, &s.cq->fid, std::uint64_t{1} << 62), -FI_EBADFLAGS);
        EXPECT_EQ(fi_close(&s.cq->fid), -FI_EBUSY);
        EXPECT_EQ(fi_close(&s.av->fid), -FI_EBUSY);
        fid_ep* bare = nullptr;
        ASSERT_EQ(fi_endpoint(s.domain, s.info, &bare, nullptr), 0);
        EXPECT_EQ(fi_enable(bare), -FI_ENOAV);
        ASSERT_EQ(fi_ep_bind(bare, &s.av->fid, 0), 0);
        EXPECT_EQ(fi_enable(bare), -FI_ENOCQ);
        ASSERT_EQ(fi_close(&bare->fid), 0);
        ASSERT_EQ(fi_enable(s.ep), 0);
        EXPECT_EQ(fi_enable(s.ep), -FI_EOPBADSTATE);
        EXPECT_EQ(fi_tsend(s.ep, &byte, 1, nullptr, 0, 0, nullptr), -FI_EOPNOTSUPP);
        EXPECT_EQ(fi_write(s.ep, &byte, 1, nullptr, 17, 0, 0, nullptr), -FI_EINVAL); // no such peer
    });
}

} // namespace
