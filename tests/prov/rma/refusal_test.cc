// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What RMA, atomics and registrations refuse at the call (fi_rma(3), fi_atomic(3), fi_mr(3)): null where bytes are
// needed, more than the limits say, promises that are not kept.
#include <gtest/gtest.h>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;

constexpr std::size_t short_length = 8;  ///< goes in a descriptor
constexpr std::size_t long_length = 100; ///< by a bounce buffer, or where it is

template <class Body>
void by_both_kinds_of_keys(std::uint64_t caps, Body&& body)
{
    for (int mode : {0, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY})
        expect_processes(1, [&](const Rank& rank) {
            Options options;
            options.caps = caps;
            options.mr_mode = mode;
            Session s(rank, options);
            std::uint64_t memory[64];
            std::fill_n(memory, 64, 3);
            const Window w = s.share(memory, sizeof(memory))[0];
            body(s, w);
            s.expect_silence();
            for (std::uint64_t word : memory)
                EXPECT_EQ(word, 3u);
        });
}

TEST(Refusal, RmaNeedsItsLocalBuffers)
{
    by_both_kinds_of_keys(FI_RMA, [](Session& s, const Window& w) {
        char some[8] = {};
        for (std::size_t length : {short_length, long_length}) {
            const iovec iov[2] = {{some, sizeof(some)}, {nullptr, length}};
            EXPECT_EQ(fi_write(s.ep, nullptr, length, nullptr, 0, w.base, w.key, &s), -FI_EINVAL);
            EXPECT_EQ(fi_read(s.ep, nullptr, length, nullptr, 0, w.base, w.key, &s), -FI_EINVAL);
            EXPECT_EQ(fi_inject_write(s.ep, nullptr, length, 0, w.base, w.key), -FI_EINVAL);
            EXPECT_EQ(fi_writedata(s.ep, nullptr, length, nullptr, 1, 0, w.base, w.key, &s), -FI_EINVAL);
            EXPECT_EQ(fi_inject_writedata(s.ep, nullptr, length, 1, 0, w.base, w.key), -FI_EINVAL);
            EXPECT_EQ(fi_writev(s.ep, iov, nullptr, 2, 0, w.base, w.key, &s), -FI_EINVAL);
            EXPECT_EQ(fi_readv(s.ep, iov, nullptr, 2, 0, w.base, w.key, &s), -FI_EINVAL);
        }
        EXPECT_EQ(fi_writev(s.ep, nullptr, nullptr, 1, 0, w.base, w.key, &s), -FI_EINVAL);
        EXPECT_EQ(fi_writemsg(s.ep, nullptr, 0), -FI_EINVAL);
        EXPECT_EQ(fi_readmsg(s.ep, nullptr, 0), -FI_EINVAL);
        // Nothing needs no buffer.
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, nullptr, 0, nullptr, 0, w.base, w.key, &s); }), 0);
        s.expect(&s, FI_WRITE);
    });
}

TEST(Refusal, RmaIsNoLongerThanTheEndpointSays)
{
    by_both_kinds_of_keys(FI_RMA, [](Session& s, const Window& w) {
        char some[8] = {};
        const std::size_t length = s.info->ep_attr->max_msg_size + 1;
        EXPECT_EQ(fi_write(s.ep, some, length, nullptr, 0, w.base, w.key, &s), -FI_EMSGSIZE);
        EXPECT_EQ(fi_read(s.ep, some, length, nullptr, 0, w.base, w.key, &s), -FI_EMSGSIZE);
        EXPECT_EQ(fi_inject_write(s.ep, some, length, 0, w.base, w.key), -FI_EMSGSIZE);
    });
}

TEST(Refusal, AtomicsTakeNoMoreElementsThanTheQueriesSay)
{
    by_both_kinds_of_keys(FI_ATOMIC, [](Session& s, const Window& w) {
        std::uint64_t some = 0;
        std::size_t most = 0;
        ASSERT_EQ(fi_atomicvalid(s.ep, FI_UINT64, FI_SUM, &most), 0);
        for (std::size_t count : {most + 1, most * 64}) {
            fi_ioc iov{&some, count};
            EXPECT_EQ(fi_atomic(s.ep, &some, count, nullptr, 0, w.base, w.key, FI_UINT64, FI_SUM, &s), -FI_EMSGSIZE);
            EXPECT_EQ(fi_atomicv(s.ep, &iov, nullptr, 1, 0, w.base, w.key, FI_UINT64, FI_SUM, &s), -FI_EMSGSIZE);
            EXPECT_EQ(
                fi_fetch_atomicv(s.ep, &iov, nullptr, 1, &iov, nullptr, 1, 0, w.base, w.key, FI_UINT64, FI_SUM, &s),
                -FI_EMSGSIZE);
            EXPECT_EQ(fi_compare_atomicv(s.ep, &iov, nullptr, 1, &iov, nullptr, 1, &iov, nullptr, 1, 0, w.base, w.key,
                                         FI_UINT64, FI_CSWAP, &s),
                      -FI_EMSGSIZE);
        }
    });
}

/// Memory that outlives a power failure is not offered: neither a region nor a completion may promise it.
TEST(Refusal, NothingIsDurable)
{
    by_both_kinds_of_keys(FI_RMA | FI_ATOMIC, [](Session& s, const Window& w) {
        std::uint64_t word = 1;
        const iovec iov{&word, 8};
        const fi_rma_iov at{w.base, 8, w.key};
        const fi_msg_rma write{&iov, nullptr, 1, 0, &at, 1, &s, 0};
        EXPECT_EQ(fi_writemsg(s.ep, &write, FI_COMMIT_COMPLETE), -FI_EBADFLAGS);
        const fi_ioc ioc{&word, 1};
        const fi_rma_ioc element{w.base, 1, w.key};
        const fi_msg_atomic add{&ioc, nullptr, 1, 0, &element, 1, FI_UINT64, FI_SUM, &s, 0};
        EXPECT_EQ(fi_atomicmsg(s.ep, &add, FI_COMMIT_COMPLETE), -FI_EBADFLAGS);
        fid_mr* mr = nullptr;
        EXPECT_EQ(fi_mr_reg(s.domain, &word, 8, FI_REMOTE_WRITE, 0, 9, FI_RMA_PMEM, &mr, nullptr), -FI_EBADFLAGS);
    });
}

} // namespace
