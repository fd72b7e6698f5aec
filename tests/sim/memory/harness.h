// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A VCQ with blocking put, get and ARMW, and what every kind of memory must pass.
#pragma once

#include "lib/harness.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>

#include <functional>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace tofu::sim::test {

inline const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

struct Node {
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;

    Node()
    {
        EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_THREAD_SAFE, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        own_ = ::mmap(nullptr, own_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        own_stadd_ = add(own_, own_bytes);
    }

    [[nodiscard]] utofu_stadd_t add(void* address, size_t size, unsigned long flags = 0) const
    {
        utofu_stadd_t stadd = 0;
        EXPECT_EQ(utofu_reg_mem(vcq, address, size, flags, &stadd), UTOFU_SUCCESS);
        return stadd;
    }
    void remove(utofu_stadd_t stadd) const { EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS); }

    int put(utofu_vcq_id_t to, utofu_stadd_t stadd, const void* data, size_t size, unsigned long flags = 0) const
    {
        EXPECT_LE(size, own_bytes);
        std::memcpy(own_, data, std::min(size, own_bytes));
        return finish(posted([&] {
            return utofu_put(vcq, to, own_stadd_, stadd, size, 0, flags | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                             nullptr);
        }));
    }
    int get(utofu_vcq_id_t from, utofu_stadd_t stadd, void* data, size_t size) const
    {
        const int rc = finish(posted([&] {
            return utofu_get(vcq, from, own_stadd_, stadd, size, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
        }));
        EXPECT_LE(size, own_bytes);
        std::memcpy(data, own_, std::min(size, own_bytes));
        return rc;
    }
    int add8(utofu_vcq_id_t to, utofu_stadd_t stadd, uint64_t value, uint64_t* old = nullptr) const
    {
        return finish(posted([&] {
                          return utofu_armw8(vcq, to, UTOFU_ARMW_OP_ADD, value, stadd, 0,
                                             UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                      }),
                      old);
    }
    int put8(utofu_vcq_id_t to, utofu_stadd_t stadd, uint64_t value) const { return put(to, stadd, &value, 8); }
    int get8(utofu_vcq_id_t from, utofu_stadd_t stadd, uint64_t* value) const { return get(from, stadd, value, 8); }

  private:
    [[nodiscard]] int finish(int started, uint64_t* old = nullptr) const
    {
        if (started != UTOFU_SUCCESS)
            return started;
        void* cbdata = nullptr;
        (void)utofu_poll_tcq(vcq, 0, &cbdata); // makes room in the TOQ
        utofu_mrq_notice notice{};
        const int rc = wait_mrq(vcq, &notice);
        if (old != nullptr)
            *old = notice.rmt_value;
        return rc;
    }
    static constexpr size_t own_bytes = size_t{1} << 23; // more than 100 pages of 64 KiB
    void* own_ = nullptr;
    utofu_stadd_t own_stadd_ = 0;
};

/// The owner's side of exercise(): registers the memory, adds to a word of it, and checks what the peer has done.
inline void own(const Rank& rank, Node& node, void* base, size_t bytes, uint64_t adds)
{
    auto* words = static_cast<uint64_t*>(base);
    const size_t count = bytes / 8;
    for (size_t i = 0; i < count; ++i)
        words[i] = i + 100;
    const size_t skip = 2; // not registered: the first and last two words
    const utofu_stadd_t stadd = node.add(words + skip, (count - 2 * skip) * 8);
    rank.set(10, stadd);
    rank.set(11, (count - 2 * skip) * 8);
    rank.barrier();                     // registered
    for (uint64_t i = 0; i < adds; ++i) // CPU atomics against ARMW, from before the first access
        __atomic_fetch_add(&words[skip + 1], 1, __ATOMIC_RELAXED);
    rank.barrier(); // the peer is done
    EXPECT_EQ(words[skip], 7777u);
    EXPECT_EQ(words[skip + 1], 101u + skip + 2 * adds);
    EXPECT_EQ(words[count - skip - 1], 8888u);
    EXPECT_EQ(words[0], 100u);
    EXPECT_EQ(words[1], 101u);
    EXPECT_EQ(words[count - 2], count - 2 + 100);
    EXPECT_EQ(words[count - 1], count - 1 + 100);
    for (size_t i = skip + 3; i < count - skip - 1; ++i)
        ASSERT_EQ(words[i], (i - skip) * 3) << i;
    // Written by the owner, seen by the peer.
    __atomic_store_n(&words[skip], 4321, __ATOMIC_RELEASE);
    rank.barrier();
    rank.barrier();
    node.remove(stadd);
    rank.barrier();
    rank.barrier();
}

/// The peer's accesses while the memory is registered: within it, and one byte outside on either side.
inline void access_all(Node& node, uint64_t to, uint64_t stadd, size_t bytes, uint64_t adds)
{
    uint64_t value = 0;
    for (uint64_t i = 0; i < adds; ++i)
        ASSERT_EQ(node.add8(to, stadd + 8, 1), UTOFU_SUCCESS);
    EXPECT_EQ(node.get8(to, stadd, &value), UTOFU_SUCCESS);
    EXPECT_EQ(value, 102u);
    EXPECT_EQ(node.put8(to, stadd, 7777), UTOFU_SUCCESS);
    EXPECT_EQ(node.put8(to, stadd + bytes - 8, 8888), UTOFU_SUCCESS);
    std::vector<uint64_t> many(bytes / 8);
    for (size_t i = 0; i < many.size(); ++i)
        many[i] = i * 3;
    EXPECT_EQ(node.put(to, stadd + 24, &many[3], bytes - 32), UTOFU_SUCCESS);
    std::vector<uint64_t> back(bytes / 8);
    EXPECT_EQ(node.get(to, stadd, back.data(), bytes), UTOFU_SUCCESS);
    EXPECT_EQ(std::memcmp(&back[3], &many[3], bytes - 32), 0);
    EXPECT_EQ(node.put8(to, stadd + bytes - 7, 1), UTOFU_ERR_MRQ_RMT_LENGTH);
    EXPECT_EQ(node.put8(to, stadd + bytes, 1), UTOFU_ERR_MRQ_RMT_STADD);
    EXPECT_EQ(node.put8(to, stadd - 1, 1), UTOFU_ERR_MRQ_RMT_STADD);
    EXPECT_EQ(node.get8(to, stadd + bytes - 7, &value), UTOFU_ERR_MRQ_RMT_LENGTH);
    EXPECT_EQ(node.get8(to, stadd - 1, &value), UTOFU_ERR_MRQ_RMT_STADD);
    EXPECT_EQ(node.add8(to, stadd + bytes, 1), UTOFU_ERR_MRQ_RMT_STADD);
}

// The owner's part runs `use` with memory of some kind; the peer's part is the same for all kinds.
// Registered: `bytes` at `base`, multiple of 8, not aligned to pages, with live neighbours on both sides.
inline void exercise(const Rank& rank, const std::function<void(const std::function<void(void*, size_t)>&)>& use,
                     uint64_t adds = 20000)
{
    Node node;
    rank.set(rank.number, node.id);
    rank.barrier();
    if (rank.number == 0) {
        use([&](void* base, size_t bytes) { own(rank, node, base, bytes, adds); });
        return;
    }
    rank.barrier();
    const uint64_t to = rank.get(0);
    const uint64_t stadd = rank.get(10);
    access_all(node, to, stadd, rank.get(11), adds);
    rank.barrier(); // done
    rank.barrier();
    uint64_t value = 0;
    EXPECT_EQ(node.get8(to, stadd, &value), UTOFU_SUCCESS);
    EXPECT_EQ(value, 4321u);
    rank.barrier();
    rank.barrier(); // deregistered
    EXPECT_EQ(node.put8(to, stadd, 1), UTOFU_ERR_MRQ_RMT_STADD);
    EXPECT_EQ(node.get8(to, stadd, &value), UTOFU_ERR_MRQ_RMT_STADD);
    EXPECT_EQ(node.add8(to, stadd, 1), UTOFU_ERR_MRQ_RMT_STADD);
    rank.barrier();
}

} // namespace tofu::sim::test
