// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: what each program that speaks libfabric hints, with the answer by which it would choose us, and
// hints that must be refused. Run by make check, with the provider of the build tree over the simulator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace {

// FI_MR_BASIC, FI_MR_SCALABLE and FI_ORDER_STRICT, whose names libfabric 2 deprecates.
constexpr int mr_basic = 1 << 0;
constexpr int mr_scalable = 1 << 1;
constexpr std::uint64_t order_strict = 0x1ff;
constexpr int three_bits = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr std::uint64_t atomic_orders =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

struct Free {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, Free>;

Info new_hints()
{
    Info hints(fi_allocinfo());
    hints->fabric_attr->prov_name = strdup("tofu");
    hints->ep_attr->type = FI_EP_RDM;
    return hints;
}

/// The answer to hints that `fill` completes; `error` is what fi_getinfo returned.
Info ask(const std::function<void(fi_info&)>& fill, std::uint32_t version = FI_VERSION(1, 17), int* error = nullptr,
         const char* node = nullptr, const char* service = nullptr, std::uint64_t flags = 0)
{
    Info hints = new_hints();
    fill(*hints);
    fi_info* found = nullptr;
    const int result = fi_getinfo(version, node, service, flags, hints.get(), &found);
    if (error != nullptr)
        *error = result;
    return Info(result == 0 ? found : nullptr);
}

bool refused(const std::function<void(fi_info&)>& fill)
{
    int error = 0;
    ask(fill, FI_VERSION(1, 17), &error);
    return error == -FI_ENODATA;
}

unsigned count(const Info& info)
{
    unsigned n = 0;
    for (const fi_info* i = info.get(); i != nullptr; i = i->next)
        n++;
    return n;
}

// --- those who use us

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
            h.domain_attr->mr_mode = three_bits;
            h.tx_attr->iov_limit = 1;
            h.rx_attr->iov_limit = 1;
            h.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
        },
        FI_VERSION(1, 5));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->domain_attr->mr_mode, three_bits); // first; never FI_MR_ENDPOINT
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
    constexpr std::uint64_t wanted =
        FI_MSG | FI_MULTI_RECV | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_NAMED_RX_CTX;
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
            EXPECT_EQ(info->tx_attr->msg_order & (FI_ORDER_SAS | atomic_orders),
                      FI_ORDER_SAS | atomic_orders);
            EXPECT_EQ(info->caps & ours->caps, ours->caps);
            EXPECT_EQ(info->domain_attr->mr_mode, 0); // windows with keys of MPICH's
            EXPECT_EQ(info->domain_attr->av_type, FI_AV_TABLE);
        }
}

/// Its configure options: how memory is registered, who progresses, whether waits count or poll; its thread levels.
TEST(InfoConsumers, SandiaOpenShmem)
{
    for (int mode : {0, FI_MR_RMA_EVENT, three_bits, three_bits | FI_MR_ENDPOINT})
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
                    EXPECT_EQ(info->domain_attr->mr_mode & three_bits, mode & three_bits);
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
            h.domain_attr->mr_mode = three_bits | FI_MR_ENDPOINT;
        },
        FI_VERSION(1, 5));
    ASSERT_NE(info, nullptr);
    for (const fi_info* i = info.get(); i != nullptr; i = i->next) {
        const int bits = i->domain_attr->mr_mode & three_bits;
        EXPECT_TRUE(bits == 0 || bits == three_bits);
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
            h.domain_attr->mr_mode = three_bits | FI_MR_LOCAL | FI_MR_ENDPOINT;
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
    EXPECT_NE(ask([&](fi_info& h) { base(h); h.tx_attr->op_flags |= FI_DELIVERY_COMPLETE; }), nullptr);
    EXPECT_NE(ask([&](fi_info& h) {
        base(h);
        h.caps |= FI_ATOMIC | FI_FENCE;
        h.tx_attr->msg_order = h.rx_attr->msg_order = FI_ORDER_ATOMIC_WAW | FI_ORDER_SAS;
    }), nullptr);
}

TEST(InfoConsumers, NcclPlugin)
{
    Info info = ask(
        [](fi_info& h) {
            h.caps = FI_TAGGED | FI_MSG;
            h.tx_attr->msg_order = h.rx_attr->msg_order = FI_ORDER_SAS;
            h.domain_attr->threading = FI_THREAD_SAFE;
            h.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | three_bits;
        },
        FI_VERSION(1, 6));
    EXPECT_NE(info, nullptr);
    EXPECT_TRUE(refused([](fi_info& h) { h.caps = FI_MSG | FI_RMA | FI_HMEM; }));
}

TEST(Info, GrantsContextsThatAreAskedFor)
{
    Info plain = ask([](fi_info& h) { h.caps = FI_MSG; });
    ASSERT_NE(plain, nullptr);
    EXPECT_EQ(plain->ep_attr->tx_ctx_cnt, 1u);
    EXPECT_EQ(plain->ep_attr->rx_ctx_cnt, 1u);
    EXPECT_EQ(plain->caps & FI_NAMED_RX_CTX, 0u);
    Info scalable = ask([](fi_info& h) {
        h.caps = FI_MSG | FI_NAMED_RX_CTX;
        h.ep_attr->tx_ctx_cnt = 4;
        h.ep_attr->rx_ctx_cnt = 6;
        h.domain_attr->max_ep_tx_ctx = 4;
    });
    ASSERT_NE(scalable, nullptr);
    EXPECT_NE(scalable->caps & FI_NAMED_RX_CTX, 0u);
    // fi_getinfo(3): it says whom transmits can name.
    EXPECT_NE(scalable->tx_attr->caps & FI_NAMED_RX_CTX, 0u);
    EXPECT_EQ(scalable->rx_attr->caps & FI_NAMED_RX_CTX, 0u);
    EXPECT_EQ(scalable->ep_attr->tx_ctx_cnt, 4u);
    EXPECT_EQ(scalable->ep_attr->rx_ctx_cnt, 6u);
    EXPECT_GE(scalable->domain_attr->max_ep_tx_ctx, 6u);
    EXPECT_GE(scalable->domain_attr->max_ep_rx_ctx, 6u);
    Info shared = ask([](fi_info& h) {
        h.caps = FI_TAGGED;
        h.ep_attr->tx_ctx_cnt = h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    });
    ASSERT_NE(shared, nullptr);
    EXPECT_EQ(shared->ep_attr->tx_ctx_cnt, FI_SHARED_CONTEXT);
    EXPECT_EQ(shared->ep_attr->rx_ctx_cnt, FI_SHARED_CONTEXT);
    EXPECT_GT(shared->domain_attr->max_ep_stx_ctx, 1u);
    EXPECT_GT(shared->domain_attr->max_ep_srx_ctx, 1u);
}

// --- what must be refused

TEST(Info, RefusesOtherEndpointTypes)
{
    // Or the layering providers would stack themselves on top of us.
    for (fi_ep_type type : {FI_EP_MSG, FI_EP_DGRAM, FI_EP_SOCK_STREAM})
        if (type != FI_EP_UNSPEC) { // what libfabric 2 makes of the last one
            EXPECT_TRUE(refused([&](fi_info& h) { h.ep_attr->type = type; })) << type;
        }
}

TEST(Info, RefusesWhatItDoesNotHave)
{
    using Fill = std::function<void(fi_info&)>;
    const Fill fills[] = {
        [](fi_info& h) { h.caps = FI_MSG | FI_MULTICAST; },
        [](fi_info& h) { h.ep_attr->tx_ctx_cnt = 65; },
        [](fi_info& h) { h.ep_attr->rx_ctx_cnt = 65; },
        [](fi_info& h) { h.domain_attr->max_ep_rx_ctx = 65; },
        [](fi_info& h) { h.domain_attr->max_ep_srx_ctx = 1000; },
        [](fi_info& h) { h.addr_format = FI_SOCKADDR_IN; },
        [](fi_info& h) { h.tx_attr->inject_size = 1 << 20; },
        [](fi_info& h) { h.tx_attr->iov_limit = 1000; },
        [](fi_info& h) { h.tx_attr->rma_iov_limit = 1000; },
        [](fi_info& h) { h.rx_attr->iov_limit = 1000; },
        [](fi_info& h) { h.tx_attr->size = std::size_t{1} << 40; },
        [](fi_info& h) { h.rx_attr->size = std::size_t{1} << 40; },
        [](fi_info& h) { h.ep_attr->max_msg_size = SIZE_MAX; },
        [](fi_info& h) { h.ep_attr->protocol = FI_PROTO_EFA; },
        [](fi_info& h) { h.domain_attr->cq_data_size = 16; },
        [](fi_info& h) { h.domain_attr->mr_key_size = 16; },
        [](fi_info& h) { h.domain_attr->name = strdup("eth0"); },
        [](fi_info& h) { h.fabric_attr->name = strdup("ether"); },
        [](fi_info& h) { h.domain_attr->ep_cnt = 100000; },
        [](fi_info& h) { h.domain_attr->mr_iov_limit = 100; },
        [](fi_info& h) { h.caps = FI_MSG; h.tx_attr->caps = FI_RMA; },
        [](fi_info& h) { h.tx_attr->comp_order = order_strict; },
        [](fi_info& h) { h.tx_attr->op_flags = FI_COMMIT_COMPLETE; },
        [](fi_info& h) { h.caps = FI_RMA; h.domain_attr->mr_mode = mr_basic | mr_scalable; },
    };
    for (std::size_t i = 0; i < std::size(fills); i++)
        EXPECT_TRUE(refused(fills[i])) << "number " << i;
}

TEST(Info, RefusesUnknownNodes)
{
    int error = 0;
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error, "no-such-node.invalid", "9228");
    EXPECT_EQ(error, -FI_ENODATA);
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error, "127.0.0.1", "a service nobody announced");
    EXPECT_EQ(error, -FI_ENODATA);
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error, "tofu://zz", nullptr);
    EXPECT_EQ(error, -FI_ENODATA);
}

// --- what is granted

TEST(Info, GrantsNoPrimaryCapabilityBeyondThoseAsked)
{
    constexpr std::uint64_t primary = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
    for (std::uint64_t caps : {FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC}) {
        Info info = ask([&](fi_info& h) { h.caps = caps; });
        ASSERT_NE(info, nullptr);
        EXPECT_EQ(info->caps & primary, caps);
        EXPECT_EQ(info->tx_attr->caps & ~info->caps, 0u);
        EXPECT_EQ(info->rx_attr->caps & ~info->caps, 0u);
        EXPECT_EQ(info->tx_attr->caps & (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE), 0u);
        EXPECT_EQ(info->rx_attr->caps & (FI_SEND | FI_READ | FI_WRITE), 0u);
    }
    Info sender = ask([](fi_info& h) { h.caps = FI_MSG | FI_SEND; });
    ASSERT_NE(sender, nullptr);
    EXPECT_EQ(sender->caps & FI_RECV, 0u);
}

TEST(Info, KeepsToTheBitsOfMrModeThatWereHinted)
{
    for (int bits = 0; bits < 1 << 10; bits += 4) { // without FI_MR_BASIC and FI_MR_SCALABLE
        Info info = ask([&](fi_info& h) {
            h.caps = FI_RMA;
            h.domain_attr->mr_mode = bits;
        });
        ASSERT_NE(info, nullptr) << bits;
        for (const fi_info* i = info.get(); i != nullptr; i = i->next)
            EXPECT_EQ(i->domain_attr->mr_mode & ~bits, 0) << bits;
    }
}

TEST(Info, OldVersionsGetTheOldModes)
{
    for (int mode : {mr_basic, mr_scalable})
        for (std::uint32_t version : {FI_VERSION(1, 4), FI_VERSION(1, 17)}) {
            Info info = ask([&](fi_info& h) { h.caps = FI_RMA; h.domain_attr->mr_mode = mode; }, version);
            ASSERT_NE(info, nullptr);
            EXPECT_EQ(info->domain_attr->mr_mode, mode);
        }
    Info info = ask([](fi_info& h) { h.caps = FI_RMA; }, FI_VERSION(1, 4));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(count(info), 2u);
}

TEST(Info, PromisesPlainOrdersWhereRmaAndAtomicsDoNotMix)
{
    constexpr std::uint64_t plain = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;
    auto asks = [](std::uint64_t caps) {
        return [caps](fi_info& h) {
            h.caps = caps;
            h.tx_attr->msg_order = plain;
        };
    };
    EXPECT_NE(ask(asks(FI_RMA)), nullptr);
    EXPECT_NE(ask(asks(FI_ATOMIC)), nullptr);
    EXPECT_TRUE(refused(asks(FI_RMA | FI_ATOMIC)));
}

TEST(Info, AddressesAreSetAndCopied)
{
    Info info = ask([](fi_info&) {});
    ASSERT_NE(info, nullptr);
    EXPECT_NE(info->src_addr, nullptr);
    EXPECT_EQ(info->src_addrlen, 24u);
    EXPECT_EQ(info->dest_addr, nullptr);
    EXPECT_EQ(info->fabric_attr->api_version, FI_VERSION(1, 17));
    EXPECT_NE(info->domain_attr->name, nullptr);
    EXPECT_STREQ(info->fabric_attr->prov_name, "tofu");

    const char* text = "tofu://200b16000f000001.010003.0123456789abcdef";
    Info named = ask([](fi_info&) {}, FI_VERSION(1, 17), nullptr, text);
    ASSERT_NE(named, nullptr);
    EXPECT_EQ(named->dest_addrlen, 24u);
    Info textual = ask([](fi_info& h) { h.addr_format = FI_ADDR_STR; }, FI_VERSION(1, 17), nullptr, text);
    ASSERT_NE(textual, nullptr);
    EXPECT_STREQ(static_cast<char*>(textual->dest_addr), text);

    Info again = ask([&](fi_info& h) { // as fi_pingpong does with what its peer sent
        h.dest_addr = std::malloc(24);
        std::memset(h.dest_addr, 7, 24);
        h.dest_addrlen = 24;
    });
    ASSERT_NE(again, nullptr);
    ASSERT_EQ(again->dest_addrlen, 24u);
    EXPECT_EQ(static_cast<char*>(again->dest_addr)[23], 7);
}

// --- what stands below: one clear line, and no other backend in its place

/// In a process of its own: what fi_getinfo answers with this FI_TOFU_BACKEND.
[[noreturn]] void getinfo_with_backend(const char* backend)
{
    setenv("FI_TOFU_BACKEND", backend, 1);
    unsetenv("FI_LOG_LEVEL");
    int error = 0;
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error);
    std::_Exit(error == -FI_ENODATA ? 0 : 1);
}

TEST(InfoBackendDeathTest, ABadBackendIsNamedInOneLine)
{
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto refused_with_0 = testing::ExitedWithCode(0);
    EXPECT_EXIT(getinfo_with_backend("nonsense"), refused_with_0, "FI_TOFU_BACKEND=nonsense is no backend");
    EXPECT_EXIT(getinfo_with_backend("/no/such/library.so"), refused_with_0, "FI_TOFU_BACKEND: /no/such");
    EXPECT_EXIT(getinfo_with_backend("/lib/x86_64-linux-gnu/libm.so.6"), refused_with_0,
                "lacks utofu_|cannot open");
}

} // namespace
