// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr between processes over the simulator: keys, rights, bounds and lives of regions, errors of remote access. What
// counts their events is in mr_events_test.cc.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <map>
#include <random>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

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
    }),
              0);
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
        ASSERT_EQ(fi_mr_reg(s.domain, a, 64, remote_access, 0, 5, 0, &first, nullptr), 0);
        EXPECT_EQ(fi_mr_key(first), 5u);
        EXPECT_EQ(fi_mr_reg(s.domain, b, 64, remote_access, 0, 5, 0, &second, nullptr), -FI_ENOKEY);
        ASSERT_EQ(fi_mr_reg(s.domain, b, 64, remote_access, 0, 6, 0, &second, nullptr), 0);
        EXPECT_EQ(fi_close(&s.domain->fid), -FI_EBUSY);
        ASSERT_EQ(fi_close(&first->fid), 0);
        ASSERT_EQ(fi_mr_reg(s.domain, b, 64, remote_access, 0, 5, 0, &first, nullptr), 0);
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
        EXPECT_LT(fi_mr_reg(s.domain, nullptr, SIZE_MAX, remote_access, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_LT(fi_mr_reg(s.domain, a, SIZE_MAX, remote_access, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_EQ(fi_mr_reg(s.domain, a, 32, remote_access, 8, 1, 0, &mr, nullptr),
                  -FI_EINVAL); // "offset ... must be 0"
        EXPECT_LT(fi_mr_reg(s.domain, a, 64, std::uint64_t{1} << 63, 0, 1, 0, &mr, nullptr), 0);
        void* hole = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_EQ(munmap(hole, 1 << 20), 0);
        EXPECT_LT(fi_mr_reg(s.domain, hole, 1 << 20, remote_access, 0, 1, 0, &mr, nullptr), 0);
        EXPECT_EQ(mr, nullptr);
        const iovec two[2] = {{a, 8}, {a + 32, 8}};
        EXPECT_LT(fi_mr_regv(s.domain, two, 2, remote_access, 0, 1, 0, &mr, nullptr), 0);
        // The key is free after all those refusals.
        ASSERT_EQ(fi_mr_regv(s.domain, two, 1, remote_access, 0, 1, 0, &mr, nullptr), 0);
        ASSERT_EQ(fi_close(&mr->fid), 0);
        const Window nothing{0, 2}; // is a region that nothing but nothing reaches
        ASSERT_EQ(fi_mr_reg(s.domain, a, 0, remote_access, 0, nothing.key, 0, &mr, nullptr), 0);
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, a, 0, nullptr, 0, 0, nothing.key, &s); }), 0);
        s.expect(&s, FI_WRITE);
        expect_error(s, 0, nothing, 0, FI_EKEYREJECTED);
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
            for (unsigned set = 0; set < 128; set++) {
                // Kinds of operations beside them grant nothing.
                std::uint64_t access = set & 64 ? FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC : 0;
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
                } else {
                    expect_error(s, 0, w, 0, (access & remote_access) ? FI_EACCES : FI_EKEYREJECTED);
                }
                if (access & FI_REMOTE_READ) {
                    ASSERT_EQ(s.post([&] { return fi_read(s.ep, &value, 8, nullptr, 0, w.base, w.key, &s); }), 0);
                    s.expect(&s, FI_READ);
                } else {
                    expect_error(s, 0, w, 0, (access & remote_access) ? FI_EACCES : FI_EKEYREJECTED, true);
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
                // An inject that fails is reported all the same, once.
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

/// A region that neither begins nor ends with a word. With atomics the owner registers whole words, and the initiator
/// sees to the bounds; without them the TNI does. Either way nothing beside the region is read or changed.
TEST(Mr, AProvidersKeyReachesItsRegionAndNoByteMore)
{
    for (const std::uint64_t caps : {FI_RMA, FI_RMA | FI_ATOMIC})
        for (const std::size_t first : {64u, 65u, 68u, 71u})
            expect_processes(2, [=](const Rank& rank) {
                constexpr std::size_t length = 13;
                Options options;
                options.caps = caps;
                Session s(rank, options);
                alignas(std::uint64_t) static std::uint8_t memory[192];
                std::memset(memory, 3, sizeof(memory));
                auto peers = s.share(memory + first, length);
                fid_mr* aligned = s.reg(memory + 64, 64); // needs no check of its bounds
                EXPECT_EQ(fi_mr_key(aligned) >> 63, 0u);
                if (rank.number == 0) {
                    std::uint8_t bytes[64];
                    std::memset(bytes, 7, sizeof(bytes));
                    const Window& w = peers[1];
                    for (const auto& [offset, length] :
                         std::initializer_list<std::pair<std::int64_t, std::size_t>>{{-1, 1},
                                                                                     {-1, 2},
                                                                                     {-4, 4},
                                                                                     {-8, 8},
                                                                                     {-7, 1},
                                                                                     {-1, 15},
                                                                                     {13, 1},
                                                                                     {12, 2},
                                                                                     {0, 14},
                                                                                     {13, 3},
                                                                                     {16, 8}}) {
                        const std::uint64_t at = w.base + static_cast<std::uint64_t>(offset);
                        const std::size_t size = length; // clang++ 14 does not capture a binding
                        for (const bool read : {false, true}) {
                            ASSERT_EQ(s.post([&] {
                                return read ? fi_read(s.ep, bytes, size, nullptr, 1, at, w.key, &s)
                                            : fi_write(s.ep, bytes, size, nullptr, 1, at, w.key, &s);
                            }),
                                      0);
                            fi_cq_data_entry entry{};
                            fi_cq_err_entry error{};
                            ASSERT_TRUE(s.next(entry, &error)) << offset << ", " << size;
                            EXPECT_TRUE(error.err == FI_EINVAL || error.err == FI_EKEYREJECTED) << error.err;
                        }
                        ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, bytes, size, 1, at, w.key); }), 0);
                        fi_cq_data_entry entry{};
                        fi_cq_err_entry error{};
                        ASSERT_TRUE(s.next(entry, &error)) << offset << ", " << size;
                    }
                    for (std::size_t i = 0; i < sizeof(bytes); i++)
                        EXPECT_EQ(bytes[i], 7);
                    ASSERT_EQ(s.post([&] { return fi_write(s.ep, bytes, length, nullptr, 1, w.base, w.key, &s); }), 0);
                    s.expect(&s, FI_WRITE);
                    std::memset(bytes, 0, length);
                    ASSERT_EQ(s.post([&] { return fi_read(s.ep, bytes, length, nullptr, 1, w.base, w.key, &s); }), 0);
                    s.expect(&s, FI_READ);
                    for (std::size_t i = 0; i < sizeof(bytes); i++)
                        EXPECT_EQ(bytes[i], 7);
                }
                s.barrier();
                for (std::size_t i = 0; i < sizeof(memory); i++)
                    EXPECT_EQ(memory[i], rank.number == 1 && i >= first && i < first + length ? 7 : 3) << i;
            });
}

/// Each byte of such a region takes atomics, the first and the last too; the bytes beside it take none.
TEST(Mr, AtomicsReachEachByteOfARegionThatEndsWithinAWord)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_ATOMIC;
        Session s(rank, options);
        constexpr std::size_t first = 65, length = 13;
        alignas(std::uint64_t) static std::uint8_t memory[192];
        std::memset(memory, 3, sizeof(memory));
        auto peers = s.share(memory + first, length);
        if (rank.number == 0) {
            std::uint8_t one[length];
            std::memset(one, 1, sizeof(one));
            for (std::size_t i = 0; i < length; i++) {
                ASSERT_EQ(s.post([&] {
                    return fi_atomic(s.ep, one, 1, nullptr, 1, peers[1].base + i, peers[1].key, FI_UINT8, FI_SUM, &s);
                }),
                          0);
                s.expect(&s, FI_WRITE);
            }
            ASSERT_EQ(s.post([&] {
                return fi_atomic(s.ep, one, length, nullptr, 1, peers[1].base, peers[1].key, FI_UINT8, FI_SUM, &s);
            }),
                      0);
            s.expect(&s, FI_WRITE);
            for (const std::uint64_t outside : {peers[1].base - 1, peers[1].base + length}) {
                ASSERT_EQ(s.post([&] {
                    return fi_atomic(s.ep, one, 1, nullptr, 1, outside, peers[1].key, FI_UINT8, FI_SUM, &s);
                }),
                          0);
                fi_cq_data_entry entry{};
                fi_cq_err_entry error{};
                ASSERT_TRUE(s.next(entry, &error));
                EXPECT_EQ(error.err, FI_EINVAL);
            }
        }
        s.barrier();
        for (std::size_t i = 0; i < sizeof(memory); i++)
            EXPECT_EQ(memory[i], rank.number == 1 && i >= first && i < first + length ? 5 : 3) << i;
    });
}

/// The array of descs may be anything for a caller of version 1.17.
void write_with_any_array(Session& s, char* x, char* y, std::size_t length, const Window& to)
{
    iovec iov[2] = {{x, length / 2}, {y, length / 2}};
    const fi_rma_iov remote{to.base, length, to.key};
    const fi_msg_rma message{iov, reinterpret_cast<void**>(0x10), 2, 1, &remote, 1, &s, 0};
    ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &message, 0); }), 0);
    s.expect(&s, FI_WRITE);
    ASSERT_EQ(s.post([&] { return fi_writev(s.ep, iov, message.desc, 2, 1, to.base, to.key, &s); }), 0);
    s.expect(&s, FI_WRITE);
}

/// fi_mr(3): a desc says where a buffer is registered already. It may be any value where the caller's version has it
/// ignored, and is another domain's or a closed region's by mistake: what is sent is the buffer all the same.
TEST(Mr, TheBufferIsSentWhateverTheDesc)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank);
        constexpr std::size_t length = 20000;
        std::vector<char> x(65536, 'x'), y(65536, 'y'), target(65536, '.');
        auto peers = s.share(target.data(), target.size());
        fid_domain* second = nullptr;
        ASSERT_EQ(fi_domain(s.fabric, s.info, &second, nullptr), 0);
        fid_mr *pad = nullptr, *of_second = nullptr, *closed = nullptr;
        fid_mr* const own = s.reg(y.data(), y.size(), FI_READ | FI_WRITE, 2);
        ASSERT_EQ(fi_mr_reg(second, target.data(), 100, FI_READ | FI_WRITE, 0, 1, 0, &pad, nullptr), 0);
        ASSERT_EQ(fi_mr_reg(second, x.data(), x.size(), FI_READ | FI_WRITE, 0, 2, 0, &of_second, nullptr), 0);
        ASSERT_EQ(fi_mr_reg(s.domain, x.data(), x.size(), FI_READ | FI_WRITE, 0, 9, 0, &closed, nullptr), 0);
        void* const of_closed = fi_mr_desc(closed);
        ASSERT_EQ(fi_close(&closed->fid), 0);
        void* const descs[] = {fi_mr_desc(own),
                               fi_mr_desc(of_second),
                               of_closed,
                               reinterpret_cast<void*>(0x10),
                               reinterpret_cast<void*>(~std::uintptr_t{7}),
                               target.data(),
                               nullptr};
        unsigned turn = 0;
        // Each desc with each buffer: in the region, in none, and reaching beyond the region.
        for (void* desc : descs)
            for (std::vector<char>* from : {&y, &x, &y}) {
                char* const buffer = from->data() + turn;
                std::fill_n(from->begin(), from->size(), static_cast<char>('a' + turn++ % 26));
                if (rank.number == 0) {
                    ASSERT_EQ(s.post([&] {
                        return fi_write(s.ep, buffer, length, desc, 1, peers[1].base, peers[1].key, &s);
                    }),
                              0);
                    s.expect(&s, FI_WRITE);
                }
                s.barrier();
                if (rank.number == 1) {
                    EXPECT_EQ(target[0], from->front());
                    EXPECT_EQ(target[length - 1], from->front());
                }
                s.barrier();
                if (rank.number == 0) {
                    ASSERT_EQ(
                        s.post([&] { return fi_read(s.ep, buffer, length, desc, 0, peers[0].base, peers[0].key, &s); }),
                        0);
                    s.expect(&s, FI_READ);
                    EXPECT_EQ(buffer[0], '.');
                    EXPECT_EQ(buffer[length - 1], '.');
                }
            }
        if (rank.number == 0)
            write_with_any_array(s, x.data(), y.data(), length, peers[1]);
        s.barrier();
        for (fid_mr* mr : {pad, of_second})
            EXPECT_EQ(fi_close(&mr->fid), 0);
        EXPECT_EQ(fi_close(&second->fid), 0);
    });
}

/// fi_mr(3): "The raw key support functions are usable with all registered memory regions, even if FI_MR_RAW has not
/// been set."
TEST(Mr, RawKeysAreMappedToWhatReachesTheRegion)
{
    for (int mode : {0, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY})
        expect_processes(1, [mode](const Rank& rank) {
            Session s(rank, user_keys(mode));
            std::uint64_t memory[8] = {};
            fid_mr* mr = s.reg(memory, sizeof(memory), remote_access, 77);
            std::uint8_t raw[16];
            std::uint64_t base = 1, key = 0, value = 9;
            std::size_t size = 4;
            EXPECT_EQ(fi_mr_raw_attr(mr, &base, raw, &size, 0), -FI_ETOOSMALL);
            EXPECT_EQ(size, s.info->domain_attr->mr_key_size);
            size = sizeof(raw);
            ASSERT_EQ(fi_mr_raw_attr(mr, &base, raw, &size, 0), 0);
            EXPECT_EQ(fi_mr_map_raw(s.domain, base, raw, size + 1, &key, 0), -FI_EINVAL);
            ASSERT_EQ(fi_mr_map_raw(s.domain, base, raw, size, &key, 0), 0);
            const std::uint64_t start = mode != 0 ? base : 0;
            ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, start + 8, key, &s); }), 0);
            s.expect(&s, FI_WRITE);
            EXPECT_EQ(memory[1], 9u);
            EXPECT_EQ(fi_mr_unmap_key(s.domain, key), 0);
        });
}

TEST(Mr, OutsideTheRegionIsAnErrorAndHarmsNothing)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, user_keys());
        std::vector<std::uint64_t> memory(1024, 3);
        auto peers = s.share(memory.data() + 256, 256 * 8, remote_access, 11);
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
        if (rank.number == 1)
            ASSERT_EQ(fi_mr_reg(s.domain, first.data(), 8192, remote_access, 0, 9, 0, &mr, nullptr), 0);
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
            expect_error(s, 1, w, 80, FI_EKEYREJECTED); // remembered, and refused by the TNI
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(first[10], 101u);
            ASSERT_EQ(fi_mr_reg(s.domain, second.data(), 8192, remote_access, 0, 9, 0, &mr, nullptr), 0);
        }
        s.barrier();
        if (rank.number == 0)
            write(102);
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(second[10], 102u);
            ASSERT_EQ(fi_close(&mr->fid), 0);
            ASSERT_EQ(fi_mr_reg(s.domain, third.data(), 8192, remote_access, 0, 9, 0, &mr, nullptr), 0);
        }
        s.barrier();
        if (rank.number == 0)
            write(103); // what was remembered has been revoked
        s.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(third[10], 103u);
            EXPECT_EQ(second[10], 102u);
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
    });
}

/// What each kind of atomic does when its key has moved to another region since it was looked up: by one ARMW,
/// injected, by a loop of CSWAPs, in a row, under a lock word. All add one to each of their elements.
constexpr unsigned kinds_of_access = 6;
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

/// Fetches a word at `offset` of the region, until it is not 0 or 10 seconds have passed.
std::uint64_t fetch_until_set(Session& s, std::uint64_t offset)
{
    std::uint64_t zero = 0, result = 0;
    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (result == 0 && std::chrono::steady_clock::now() < bound) {
        EXPECT_EQ(s.post([&] {
            return fi_fetch_atomic(s.ep, &zero, 1, nullptr, &result, nullptr, 1, offset, 9, FI_UINT64, FI_BOR, &s);
        }),
                  0);
        s.expect(&s, FI_READ);
    }
    return result;
}

TEST(Mr, AtomicsFollowAKeyToItsNewRegion)
{
    expect_processes(2, [](const Rank& rank) {
        Options options = user_keys();
        options.caps |= FI_ATOMIC;
        Session s(rank, options);
        std::vector<std::uint64_t> ones(100, 1);
        std::vector<std::uint64_t> memory[kinds_of_access + 1];
        for (auto& m : memory)
            m.assign(1024, 0);
        long double one = 1;
        fid_mr* mr = nullptr;
        for (unsigned kind = 0; kind <= kinds_of_access; kind++) {
            // The first region makes the key known, each one after it takes the key over.
            if (rank.number == 1) {
                ASSERT_EQ(mr != nullptr ? fi_close(&mr->fid) : 0, 0);
                ASSERT_EQ(fi_mr_reg(s.domain, memory[kind].data(), 8192, remote_access, 0, 9, 0, &mr, nullptr), 0);
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
                        return fi_fetch_atomic(s.ep, &zero, 1, nullptr, &result, nullptr, 1, 88, 9, FI_UINT64, FI_BOR,
                                               &s);
                    }),
                              0);
                    s.expect(&s, FI_READ);
                    EXPECT_EQ(fetch_until_set(s, 80), 1u);
                }
            }
            s.barrier();
            if (rank.number == 1) {
                const auto& m = memory[kind];
                if (kind == kinds_of_access) {
                    long double sum;
                    std::memcpy(&sum, &m[10], sizeof(sum));
                    EXPECT_EQ(sum, 1.0L);
                } else {
                    for (unsigned i = 0; i < (kind == 5 ? 100 : 1); i++)
                        EXPECT_EQ(m[10 + i], 1u) << "kind " << kind;
                }
            }
        }
        if (rank.number == 1)
            ASSERT_EQ(fi_close(&mr->fid), 0);
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
        } regions[] = {{words, 64, remote_access},   {words, 8192, remote_access},
                       {words, 8192, remote_access}, {words, 8192, FI_REMOTE_WRITE},
                       {words, 8192, remote_access}, {words, 64, remote_access},
                       {words, 8192, remote_access}, {reinterpret_cast<char*>(words) + 4, 8000, remote_access},
                       {words, 8192, remote_access}};
        std::uint64_t value = 0, one = 1, result = 0;
        fid_mr* mr = nullptr;
        for (unsigned i = 0; i < std::size(regions); i++) {
            if (rank.number == 1) {
                ASSERT_EQ(mr != nullptr ? fi_close(&mr->fid) : 0, 0);
                ASSERT_EQ(
                    fi_mr_reg(s.domain, regions[i].base, regions[i].length, regions[i].access, 0, 9, 0, &mr, nullptr),
                    0);
            }
            s.barrier();
            if (rank.number == 0) {
                const bool first = i == 0 || i == 3 || i == 5 || i == 7;
                const std::uint64_t at = first ? 8 : 4000;
                value = 100 + i;
                if (i == 7) { // an address that is aligned in neither region but this one
                    ASSERT_EQ(s.post([&] { return fi_atomic(s.ep, &one, 1, nullptr, 1, 4, 9, FI_UINT64, FI_SUM, &s); }),
                              0);
                    s.expect(&s, FI_WRITE);
                } else if (i == 2 || i == 4) { // fetching asks for both rights
                    ASSERT_EQ(s.post([&] {
                        return fi_fetch_atomic(s.ep, &one, 1, nullptr, &result, nullptr, 1, at, 9, FI_UINT64, FI_SUM,
                                               &s);
                    }),
                              0);
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
            ASSERT_EQ(fi_mr_reg(s.domain, &memory[i], 8, remote_access, 0, keys[i], 0, &mr, nullptr), 0) << i;
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
        for (unsigned i = 0; i < count; i += 2)
            ASSERT_EQ(fi_close(&made[i]->fid), 0);
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
            ASSERT_EQ(fi_mr_reg(s.domain, memory.data(), 8, remote_access, 0, 0, 0, &mr, nullptr), 0);
            s.barrier();
            std::mt19937 random(1);
            std::map<std::uint64_t, fid_mr*> others;
            while (rank.get(900) == 0) {
                const std::uint64_t key = 1 + random() % 399;
                if (auto it = others.find(key); it != others.end()) {
                    ASSERT_EQ(fi_close(&it->second->fid), 0);
                    others.erase(it);
                } else {
                    ASSERT_EQ(fi_mr_reg(s.domain, &memory[key], 8, remote_access, 0, key, 0, &others[key], nullptr), 0);
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
                    return fi_write(s.ep, mine.data(), size, fi_mr_desc(mr), peer, peers[peer].base, peers[peer].key,
                                    &s);
                }),
                          0);
                s.expect(&s, FI_WRITE);
                ASSERT_EQ(s.post([&] {
                    return fi_read(s.ep, mine.data(), size, fi_mr_desc(mr), peer, peers[peer].base, peers[peer].key,
                                   &s);
                }),
                          0);
                s.expect(&s, FI_READ);
            }
            ASSERT_EQ(fi_close(&mr->fid), 0);
        }
        s.barrier();
        for (std::uint8_t byte : window)
            ASSERT_EQ(byte, peer + 1);
    });
}

/// Sizes on both sides of each change of method, at odd addresses.
TEST(Mr, ATransferWithinARegionMovesItsBytesAndNoOther)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank);
        constexpr std::size_t room = 40000, margin = 3;
        std::vector<std::uint8_t> window(room), mine(2 * room);
        auto peers = s.share(window.data(), window.size());
        const unsigned peer = 1 - rank.number;
        fid_mr* const mr = s.reg(mine.data(), mine.size(), FI_READ | FI_WRITE, 2);
        for (std::size_t size : {1, 8, 9, 32, 33, 64, 65, 511, 512, 513, 8192, 8193, 16383, 16384, 16385, 30000}) {
            for (std::size_t i = 0; i < size; i++)
                mine[margin + i] = static_cast<std::uint8_t>(i * 7 + size + rank.number);
            std::uint8_t* const back = mine.data() + room + margin;
            std::memset(mine.data() + room, 0xee, room);
            ASSERT_EQ(s.post([&] {
                return fi_write(s.ep, mine.data() + margin, size, fi_mr_desc(mr), peer, peers[peer].base + margin,
                                peers[peer].key, &s);
            }),
                      0);
            s.expect(&s, FI_WRITE);
            ASSERT_EQ(s.post([&] {
                return fi_read(s.ep, back, size, fi_mr_desc(mr), peer, peers[peer].base + margin, peers[peer].key, &s);
            }),
                      0);
            s.expect(&s, FI_READ);
            EXPECT_EQ(std::memcmp(back, mine.data() + margin, size), 0) << size;
            EXPECT_EQ(back[-1], 0xee) << size;
            EXPECT_EQ(back[size], 0xee) << size;
            s.barrier();
            EXPECT_EQ(window[margin], static_cast<std::uint8_t>(size + peer)) << size;
            EXPECT_EQ(window[margin + size - 1], static_cast<std::uint8_t>((size - 1) * 7 + size + peer)) << size;
            EXPECT_EQ(window[margin - 1], 0) << size;
            EXPECT_EQ(window[margin + size], 0) << size;
            s.barrier();
            std::fill(window.begin(), window.end(), 0);
            s.barrier();
        }
        s.expect_silence();
    });
}

/// The registrations of a limited number of regions are kept.
TEST(Mr, ManyRegionsOfLocalBuffers)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank);
        constexpr std::size_t count = 300, size = 200;
        std::vector<std::uint8_t> window(count * size), mine(count * size);
        auto peers = s.share(window.data(), window.size());
        const unsigned peer = 1 - rank.number;
        for (unsigned round = 1; round <= 2; round++) {
            std::vector<fid_mr*> regions(count);
            for (std::size_t i = 0; i < count; i++)
                ASSERT_EQ(fi_mr_reg(s.domain, &mine[i * size], size, FI_READ | FI_WRITE, 0, 1000 + i, 0, &regions[i],
                                    nullptr),
                          0)
                    << i;
            for (std::size_t i = 0; i < count; i++) {
                void* const desc = fi_mr_desc(regions[i]);
                std::memset(&mine[i * size], static_cast<int>(i * round + rank.number), size);
                const std::uint64_t there = peers[peer].base + i * size;
                ASSERT_EQ(s.post([&] {
                    return fi_write(s.ep, &mine[i * size], size, desc, peer, there, peers[peer].key, &s);
                }),
                          0)
                    << i;
                s.expect(&s, FI_WRITE);
                std::memset(&mine[i * size], 0, size);
                ASSERT_EQ(s.post([&] {
                    return fi_read(s.ep, &mine[i * size], size, desc, peer, there, peers[peer].key, &s);
                }),
                          0)
                    << i;
                s.expect(&s, FI_READ);
                EXPECT_EQ(mine[i * size], static_cast<std::uint8_t>(i * round + rank.number)) << i;
                EXPECT_EQ(mine[i * size + size - 1], static_cast<std::uint8_t>(i * round + rank.number)) << i;
            }
            for (fid_mr* mr : regions)
                ASSERT_EQ(fi_close(&mr->fid), 0);
        }
        s.barrier();
        for (std::size_t i = 0; i < count; i++)
            ASSERT_EQ(window[i * size + size - 1], static_cast<std::uint8_t>(i * 2 + peer)) << i;
        s.barrier();
    });
}

} // namespace
