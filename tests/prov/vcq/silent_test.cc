// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A library that tells nothing of accesses to what is not registered, or no longer (issue of a second implementation):
// nothing waits for ever. The provider is linked in. Run by make check, over the simulator.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "prov/lib/library.h"
#include "prov/lib/objects.h"
#include "vcq/vcq.h"

namespace {

using namespace tofu::test;
using tofu::vcq::Functions;

bool silent = false;
bool deaf = false; ///< to the ends of ARMWs
int (*poll_mrq)(utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice*);

struct SilentLibrary : testing::Environment {
    void SetUp() override
    {
        Functions& functions = library_functions();
        poll_mrq = functions.poll_mrq;
        functions.poll_mrq = [](utofu_vcq_hdl_t vcq, unsigned long flags, utofu_mrq_notice* notice) {
            int code = poll_mrq(vcq, flags, notice);
            while (deaf && code == UTOFU_SUCCESS && notice->notice_type == UTOFU_MRQ_TYPE_LCL_ARMW)
                code = poll_mrq(vcq, flags, notice);
            while (silent && code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH)
                code = poll_mrq(vcq, flags, notice);
            return code;
        };
    }
};
const testing::Environment* const silent_library = testing::AddGlobalTestEnvironment(new SilentLibrary);

struct Silent : testing::Test {
    Silent() : o(wishes(0)), cq(o.open_queue()), ep(o.add(cq, cq))
    {
        tofu::vcq::Vcq::lost_after = std::chrono::milliseconds(60);
        silent = true;
    }
    ~Silent() override
    {
        silent = false;
        tofu::vcq::Vcq::lost_after = before;
    }
    static Wishes wishes(int mr_mode)
    {
        Wishes w;
        w.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
        w.mr_mode = mr_mode;
        return w;
    }
    fid_mr* open_region(Objects& of, std::uint64_t key)
    {
        fid_mr* mr = nullptr;
        Objects::must(
            fi_mr_reg(of.domain, target, sizeof target, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &mr, nullptr));
        return mr;
    }
    /// A call that is repeated until it is taken, and ends: by an error, or by success.
    template <class Call>
    void ends(const char* what, bool well, Call&& call)
    {
        SCOPED_TRACE(what);
        Objects::post(cq, call);
        fi_cq_tagged_entry entry{};
        ssize_t got = -FI_EAGAIN;
        ASSERT_TRUE(eventually([&] { return got = fi_cq_read(cq, &entry, 1), got != -FI_EAGAIN; }));
        EXPECT_EQ(got, well ? 1 : -FI_EAVAIL);
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
            EXPECT_NE(error.err, 0);
        }
    }
    void all_end(bool well, fi_addr_t peer, std::uint64_t key)
    {
        ends("write", well, [&] { return fi_write(ep, local, 4096, nullptr, peer, 0, key, nullptr); });
        ends("short write", well, [&] { return fi_write(ep, local, 8, nullptr, peer, 0, key, nullptr); });
        ends("read", well, [&] { return fi_read(ep, local, 4096, nullptr, peer, 0, key, nullptr); });
        ends("short read", well, [&] { return fi_read(ep, local, 8, nullptr, peer, 0, key, nullptr); });
        ends("atomic", well,
             [&] { return fi_atomic(ep, local, 1, nullptr, peer, 0, key, FI_UINT64, FI_SUM, nullptr); });
        ends("loop", well, [&] {
            return fi_fetch_atomic(ep, local, 1, nullptr, local + 8, nullptr, peer, 0, key, FI_UINT64, FI_MIN, nullptr);
        });
    }

    std::chrono::milliseconds before = tofu::vcq::Vcq::lost_after;
    Objects o;
    fid_cq* cq;
    fid_ep* ep;
    alignas(8) char local[4096] = {};
    alignas(8) char target[4096] = {};
};

TEST_F(Silent, AccessToARegionThatIsGone)
{
    fid_mr* const other = open_region(o, 8);
    fid_mr* const gone = open_region(o, 7);
    all_end(true, 0, 7); // the key is known from now on
    Objects::must(fi_close(&gone->fid));
    all_end(false, 0, 7);
    all_end(true, 0, 8);
    EXPECT_EQ(fi_close(&other->fid), 0);
}

TEST_F(Silent, AKeyOfADomainThatIsGone)
{
    {
        Objects theirs(wishes(0));
        fid_cq* const their_cq = theirs.open_queue();
        char name[64];
        std::size_t length = sizeof name;
        Objects::must(fi_getname(&theirs.add(their_cq, their_cq)->fid, name, &length));
        ASSERT_EQ(fi_av_insert(o.av, name, 1, nullptr, 0, nullptr), 1);
    }
    all_end(false, 1, 7);
    fid_mr* const region = open_region(o, 8);
    all_end(true, 0, 8);
    EXPECT_EQ(fi_close(&region->fid), 0);
}

/// What has been carried out, although nobody told, is not done again.
TEST_F(Silent, WhatNobodyTellsIsNotRepeated)
{
    fid_mr* const region = open_region(o, 7);
    auto& word = reinterpret_cast<std::uint64_t&>(target);
    const std::uint64_t one = 1;
    std::uint64_t before_it = 0, count = 0;
    const auto add = [&] { return fi_atomic(ep, &one, 1, nullptr, 0, 0, 7, FI_UINT64, FI_SUM, nullptr); };
    const auto fetch_add = [&] {
        return fi_fetch_atomic(ep, &one, 1, nullptr, &before_it, nullptr, 0, 0, 7, FI_UINT64, FI_SUM, nullptr);
    };
    ends("key", true, add);
    EXPECT_EQ(word, ++count);
    for (int round = 0; round < 2; round++) {
        deaf = true;
        Objects::post(cq, add);
        Objects::post(cq, fetch_add);
        for (int i = 0; i < 2; i++) {
            fi_cq_tagged_entry entry{};
            ssize_t got = -FI_EAGAIN;
            ASSERT_TRUE(eventually([&] { return got = fi_cq_read(cq, &entry, 1), got != -FI_EAGAIN; }));
            ASSERT_EQ(got, -FI_EAVAIL);
            fi_cq_err_entry error{};
            ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
            EXPECT_EQ(error.err, FI_ETIMEDOUT);
            EXPECT_NE(std::strstr(fi_cq_strerror(cq, error.prov_errno, nullptr, nullptr, 0), "may still"), nullptr);
        }
        deaf = false;
        EXPECT_EQ(word, count += 2);
        ends("afterwards", true, fetch_add);
        EXPECT_EQ(word, ++count);
    }
    EXPECT_EQ(fi_close(&region->fid), 0);
}

} // namespace
