// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: a VCQ with blocking put, get and ARMW, for the tests of memory.
// Called by: tests/memory_*. Calls: utofu, tests/sim_harness.
#pragma once

#include "sim_harness.h"

#include <cstring>
#include <gtest/gtest.h>

#include <sys/mman.h>

namespace tofu::sim::test {

struct Node {
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;

    Node()
    {
        EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_THREAD_SAFE, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        own_ = ::mmap(nullptr, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        own_stadd_ = add(own_, 1 << 22);
    }

    [[nodiscard]] utofu_stadd_t add(void* address, size_t size, unsigned long flags = 0) const
    {
        utofu_stadd_t stadd = 0;
        EXPECT_EQ(utofu_reg_mem(vcq, address, size, flags, &stadd), UTOFU_SUCCESS);
        return stadd;
    }
    void remove(utofu_stadd_t stadd) const { EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS); }

    int put(utofu_vcq_id_t to, utofu_stadd_t stadd, const void* data, size_t size) const
    {
        std::memcpy(own_, data, size);
        return finish(utofu_put(vcq, to, own_stadd_, stadd, size, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr));
    }
    int get(utofu_vcq_id_t from, utofu_stadd_t stadd, void* data, size_t size) const
    {
        const int rc = finish(
            utofu_get(vcq, from, own_stadd_, stadd, size, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr));
        std::memcpy(data, own_, size);
        return rc;
    }
    int add8(utofu_vcq_id_t to, utofu_stadd_t stadd, uint64_t value, uint64_t* old = nullptr) const
    {
        return finish(utofu_armw8(vcq, to, UTOFU_ARMW_OP_ADD, value, stadd, 0,
                                  UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
                      old);
    }
    int put8(utofu_vcq_id_t to, utofu_stadd_t stadd, uint64_t value) const { return put(to, stadd, &value, 8); }
    int get8(utofu_vcq_id_t from, utofu_stadd_t stadd, uint64_t* value) const { return get(from, stadd, value, 8); }

  private:
    [[nodiscard]] int finish(int posted, uint64_t* old = nullptr) const
    {
        if (posted != UTOFU_SUCCESS)
            return posted;
        void* cbdata = nullptr;
        (void)utofu_poll_tcq(vcq, 0, &cbdata); // makes room in the TOQ
        utofu_mrq_notice notice{};
        const int rc = wait_mrq(vcq, &notice);
        if (old != nullptr)
            *old = notice.rmt_value;
        return rc;
    }
    void* own_ = nullptr;
    utofu_stadd_t own_stadd_ = 0;
};

} // namespace tofu::sim::test
