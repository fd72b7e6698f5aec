// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What each program that speaks libfabric hints, with the answer by which it would choose us. Run by make check, with
// the provider of the build tree over the simulator; calls libfabric.
#include <gtest/gtest.h>

#include <cstring>

#include "prov/lib/hints.h"

namespace {

using namespace tofu::test;

TEST(InfoConsumers, OpenMpiMtl)
{
    for (fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN}) {
        Info info = ask(
            [&](fi_info& h) {
                h.mode = FI_CONTEXT | FI_CONTEXT2;
                h.caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
                h.tx_attr->msg_order = FI_ORDER_SAS;
                h.rx_attr->msg_order = FI_ORDER_SAS;
                h.rx_attr->op_flags = FI_COMPLETION;
                h.tx_attr->op_flags = FI_COMPLETION;
                h.domain_attr->threading = threading;
                h.domain_attr->cq_data_size = 4;
                h.domain_attr->av_type = FI_AV_MAP;
                h.domain_attr->resource_mgmt = FI_RM_ENABLED;
            },
            FI_VERSION(1, 5));
        ASSERT_NE(info, nullptr);
        EXPECT_EQ(count(info), 1u); // without remote access both styles of keys are the same
        EXPECT_EQ(info->domain_attr->threading, threading);
        EXPECT_EQ(info->domain_attr->av_type, FI_AV_MAP);
        EXPECT_EQ(info->domain_attr->mr_mode, 0);
        EXPECT_EQ(info->mode, 0u);
        EXPECT_GE(info->domain_attr->cq_data_size, 4u);
        EXPECT_NE(info->ep_attr->mem_tag_format >> 56, 0u);
        EXPECT_EQ(info->tx_attr->op_flags, static_cast<std::uint64_t>(FI_COMPLETION));
    }
}

TEST(InfoConsumers, OpenMpi5MtlWithoutRemoteMemory)
{
    Info info = ask(
        [](fi_info& h) {
            h.caps = FI_MSG | FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
            h.domain_attr->mr_mode = FI_MR_ALLOCATED;
            h.domain_attr->threading = FI_THREAD_SAFE;
        },
        FI_VERSION(1, 9));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->domain_attr->mr_mode & ~FI_MR_ALLOCATED, 0);
}

TEST(InfoConsumers, OpenMpiBtl)
{
    Info info = ask(
        [](fi_info& h) {
            h.caps = FI_RMA | FI_ATOMIC;
            h.domain_attr->mr_mode = provider_keys;
            h.tx_attr->iov_limit = 1;
            h.rx_attr->iov_limit = 1;
            h.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
        },
        FI_VERSION(1, 5));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->domain_attr->mr_mode, provider_keys); // first; never FI_MR_ENDPOINT
    // One style of keys: Open MPI deals infos that differ in mr_mode alone out to its ranks in turn.
    EXPECT_EQ(count(info), 1u);
    EXPECT_EQ(info->tx_attr->op_flags, static_cast<std::uint64_t>(FI_DELIVERY_COMPLETE));
    EXPECT_GE(info->ep_attr->max_msg_size, std::size_t{8} << 20);
}

/// What MPICH's netmod ofi does first: it looks at every provider's answer to no hints.
const fi_info* answer_to_no_hints(Info& owner)
{
    fi_info* all = nullptr;
    if (fi_getinfo(fi_version(), nullptr, nullptr, 0, nullptr, &all) != 0)
        return nullptr;
    owner.reset(all);
    while (all != nullptr && std::strcmp(all->fabric_attr->prov_name, "tofu") != 0)
        all = all->next;
    return all;
}

TEST(InfoConsumers, MpichFindsAllItCanWishForWithoutHints)
{
    Info owner;
    const fi_info* ours = answer_to_no_hints(owner);
    ASSERT_NE(ours, nullptr);
    constexpr std::uint64_t wanted = FI_MSG | FI_MULTI_RECV | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_NAMED_RX_CTX;
    EXPECT_EQ(ours->caps & wanted, wanted);
    // It hints all of them: what costs each access something must not come unasked.
    EXPECT_EQ(ours->caps & FI_RMA_EVENT, 0u);
    EXPECT_EQ(ours->ep_attr->type, FI_EP_RDM);
    EXPECT_GE(ours->domain_attr->cq_data_size, 4u);
    EXPECT_GT(ours->domain_attr->max_ep_tx_ctx, 1u);
    // MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS=1 makes these a condition.
    EXPECT_EQ(ours->tx_attr->msg_order & atomic_orders, atomic_orders);
    EXPECT_EQ(ours->rx_attr->msg_order & atomic_orders, atomic_orders);
}

TEST(InfoConsumers, Mpich)
{
    Info owner;
    const fi_info* ours = answer_to_no_hints(owner);
    ASSERT_NE(ours, nullptr);
    // 4.0 to 5.0 differ in the bits of mr_mode, and the way a library was configured in the threading.
    for (int mode : {0, FI_MR_ENDPOINT | FI_MR_HMEM})
        for (fi_threading threading : {FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_SAFE}) {
            Info info = ask(
                [&](fi_info& h) {
                    h.caps = ours->caps;
                    h.mode = FI_CONTEXT | FI_ASYNC_IOV | FI_RX_CQ_DATA | FI_CONTEXT2;
                    h.tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
                    h.tx_attr->msg_order = FI_ORDER_SAS | atomic_orders;
                    h.rx_attr->op_flags = FI_COMPLETION;
                    h.ep_attr->mem_tag_format = 0x00E0'0000'7FFF'FFFF; // protocol, no source, tag
                    h.domain_attr->mode = FI_RESTRICTED_COMP;
                    h.domain_attr->cq_data_size = 4;
                    h.domain_attr->av_type = FI_AV_TABLE;
                    h.domain_attr->control_progress = FI_PROGRESS_MANUAL;
                    h.domain_attr->data_progress = FI_PROGRESS_MANUAL;
                    h.domain_attr->threading = threading;
                    h.domain_attr->resource_mgmt = FI_RM_ENABLED;
                    h.domain_attr->mr_mode = mode;
                },
                fi_version());
            ASSERT_NE(info, nullptr);
            EXPECT_EQ(info->domain_attr->threading, threading); // else it aborts
            EXPECT_EQ(info->tx_attr->msg_order & (FI_ORDER_SAS | atomic_orders), FI_ORDER_SAS | atomic_orders);
            EXPECT_EQ(info->caps & ours->caps, ours->caps);
            EXPECT_EQ(info->domain_attr->mr_mode, 0); // windows with keys of MPICH's
            EXPECT_EQ(info->domain_attr->av_type, FI_AV_TABLE);
        }
}

/// Its configure options: how memory is registered, which thread progresses, whether waits count or poll; its thread
/// levels.
TEST(InfoConsumers, SandiaOpenShmem)
{
    for (int mode : {0, FI_MR_RMA_EVENT, provider_keys, provider_keys | FI_MR_ENDPOINT})
        for (fi_progress progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL})
            for (std::uint64_t events : {std::uint64_t{FI_RMA_EVENT}, std::uint64_t{FI_FENCE}})
                for (fi_threading threading : {FI_THREAD_DOMAIN, FI_THREAD_SAFE, FI_THREAD_COMPLETION}) {
                    Info info = ask(
                        [&](fi_info& h) {
                            h.caps = FI_RMA | FI_ATOMIC | events;
                            h.domain_attr->data_progress = progress;
                            h.domain_attr->threading = threading;
                            h.domain_attr->resource_mgmt = FI_RM_ENABLED;
                            h.domain_attr->mr_mode = mode;
                            h.domain_attr->mr_key_size = 1;
                            h.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
                            h.tx_attr->inject_size = sizeof(long double);
                        },
                        FI_VERSION(1, 5));
                    ASSERT_NE(info, nullptr);
                    EXPECT_EQ(info->domain_attr->mr_mode & provider_keys, mode & provider_keys);
                    EXPECT_EQ(info->domain_attr->mr_mode & ~mode, 0);
                    EXPECT_EQ(info->domain_attr->data_progress, progress);
                    EXPECT_EQ(info->domain_attr->threading, threading);
                    EXPECT_EQ(info->caps & events, events);
                    EXPECT_EQ(info->mode, 0u); // else it gives up its bounce buffers
                    EXPECT_GE(info->domain_attr->mr_key_size, 1u);
                    EXPECT_GT(info->domain_attr->max_ep_stx_ctx, 0u); // it opens shared contexts without asking
                    EXPECT_GE(info->tx_attr->inject_size, sizeof(long double));
                }
}

TEST(InfoConsumers, Gasnet)
{
    Info info = ask(
        [](fi_info& h) {
            h.caps = FI_RMA | FI_MSG | FI_MULTI_RECV;
            h.mode = FI_CONTEXT;
            h.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
            h.domain_attr->control_progress = FI_PROGRESS_MANUAL;
            h.domain_attr->resource_mgmt = FI_RM_ENABLED;
            h.domain_attr->av_type = FI_AV_TABLE;
            h.domain_attr->mr_mode = provider_keys | FI_MR_ENDPOINT;
        },
        FI_VERSION(1, 5));
    ASSERT_NE(info, nullptr);
    for (const fi_info* i = info.get(); i != nullptr; i = i->next) {
        const int bits = i->domain_attr->mr_mode & provider_keys;
        EXPECT_TRUE(bits == 0 || bits == provider_keys);
        EXPECT_EQ(i->mode, 0u);
    }
}

TEST(InfoConsumers, Mercury)
{
    Info info = ask(
        [](fi_info& h) {
            h.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
            h.mode = FI_ASYNC_IOV | FI_CONTEXT;
            h.addr_format = FI_ADDR_STR;
            h.tx_attr->op_flags = FI_INJECT_COMPLETE;
            h.domain_attr->mr_mode = provider_keys | FI_MR_LOCAL | FI_MR_ENDPOINT;
            h.domain_attr->control_progress = FI_PROGRESS_MANUAL;
            h.domain_attr->data_progress = FI_PROGRESS_MANUAL;
        },
        FI_VERSION(1, 13));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->addr_format, static_cast<std::uint32_t>(FI_ADDR_STR));
    EXPECT_GT(static_cast<int>(info->ep_attr->protocol), 0);
    ASSERT_NE(info->src_addr, nullptr);
    EXPECT_LE(info->src_addrlen, 64u);
    EXPECT_EQ(std::strlen(static_cast<char*>(info->src_addr)) + 1, info->src_addrlen);
}

TEST(InfoConsumers, Chapel)
{
    auto base = [](fi_info& h) {
        h.caps = FI_MSG | FI_MULTI_RECV | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM;
        h.tx_attr->op_flags = FI_COMPLETION;
        h.rx_attr->op_flags = FI_COMPLETION;
        h.tx_attr->msg_order = h.rx_attr->msg_order = FI_ORDER_SAS;
        h.domain_attr->threading = FI_THREAD_DOMAIN;
        h.domain_attr->resource_mgmt = FI_RM_ENABLED;
        h.domain_attr->av_type = FI_AV_TABLE;
        h.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    };
    Info info = ask(base, fi_version());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->domain_attr->mr_mode, 0); // FI_MR_ALLOCATED was not offered: keys of the user
    EXPECT_GE(info->domain_attr->max_ep_rx_ctx, 1u);
    EXPECT_NE(ask([&](fi_info& h) {
                  base(h);
                  h.tx_attr->op_flags |= FI_DELIVERY_COMPLETE;
              }),
              nullptr);
    EXPECT_NE(ask([&](fi_info& h) {
                  base(h);
                  h.caps |= FI_ATOMIC | FI_FENCE;
                  h.tx_attr->msg_order = h.rx_attr->msg_order = FI_ORDER_ATOMIC_WAW | FI_ORDER_SAS;
              }),
              nullptr);
}

TEST(InfoConsumers, NcclPlugin)
{
    Info info = ask(
        [](fi_info& h) {
            h.caps = FI_TAGGED | FI_MSG;
            h.tx_attr->msg_order = h.rx_attr->msg_order = FI_ORDER_SAS;
            h.domain_attr->threading = FI_THREAD_SAFE;
            h.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | provider_keys;
        },
        FI_VERSION(1, 6));
    EXPECT_NE(info, nullptr);
    EXPECT_TRUE(refused([](fi_info& h) { h.caps = FI_MSG | FI_RMA | FI_HMEM; }));
}

} // namespace
