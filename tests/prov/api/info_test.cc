// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo: what is granted and what must be refused, addresses, backends. What real programs hint is in
// consumers_test.cc. Run by make check, with the provider of the build tree over the simulator.
#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "prov/lib/hints.h"

namespace {

using namespace tofu::test;

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
    // fi_getinfo(3): it is the destination of transmits.
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
        if (type != FI_EP_UNSPEC) // what libfabric 2 makes of the last one
            EXPECT_TRUE(refused([&](fi_info& h) { h.ep_attr->type = type; })) << type;
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
        [](fi_info& h) {
            h.caps = FI_MSG;
            h.tx_attr->caps = FI_RMA;
        },
        [](fi_info& h) { h.tx_attr->comp_order = order_strict; },
        [](fi_info& h) { h.tx_attr->op_flags = FI_COMMIT_COMPLETE; },
        [](fi_info& h) {
            h.caps = FI_RMA;
            h.domain_attr->mr_mode = mr_basic | mr_scalable;
        },
    };
    for (std::size_t i = 0; i < std::size(fills); i++)
        EXPECT_TRUE(refused(fills[i])) << "number " << i;
}

TEST(Info, RefusesNumbersThatAreNoEnumerators)
{
    using Fill = std::function<void(fi_domain_attr&, int)>;
    const Fill fills[] = {
        [](fi_domain_attr& d, int n) { d.threading = static_cast<fi_threading>(n); },
        [](fi_domain_attr& d, int n) { d.control_progress = static_cast<fi_progress>(n); },
        [](fi_domain_attr& d, int n) { d.data_progress = static_cast<fi_progress>(n); },
        [](fi_domain_attr& d, int n) { d.resource_mgmt = static_cast<fi_resource_mgmt>(n); },
        [](fi_domain_attr& d, int n) { d.av_type = static_cast<fi_av_type>(n); },
    };
    for (std::size_t i = 0; i < std::size(fills); i++)
        for (int n : {-1, 6, 99, INT_MAX})
            EXPECT_TRUE(refused([&](fi_info& h) { fills[i](*h.domain_attr, n); })) << "number " << i << " of " << n;
}

TEST(Info, IgnoresWhatIsAHintOnly)
{
    const Info info = ask([](fi_info& h) { h.rx_attr->total_buffered_recv = 1 << 20; }); // fi_endpoint(3)
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->rx_attr->total_buffered_recv, 0u);
}

TEST(Info, RefusesUnknownNodes)
{
    int error = 0;
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error, "no-such-node.invalid", "9228");
    EXPECT_EQ(error, -FI_ENODATA);
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error, "127.0.0.1", "a service that was not announced");
    EXPECT_EQ(error, -FI_ENODATA);
    ask([](fi_info&) {}, FI_VERSION(1, 17), &error, "tofu://zz", nullptr);
    EXPECT_EQ(error, -FI_ENODATA);
    for (const char* const unspecific : {"0.0.0.0", "224.0.0.1"}) { // a socket can be bound to both
        ask([](fi_info&) {}, FI_VERSION(1, 17), &error, unspecific, nullptr);
        EXPECT_EQ(error, -FI_ENODATA) << unspecific;
    }
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

/// fi_mr(3): the bits say how keys and addresses are used, which is the initiator's part as well as the target's.
TEST(Info, ReturnsTheModeBitsToAnEndpointThatOnlyInitiates)
{
    for (std::uint64_t kind : {FI_RMA, FI_ATOMIC, FI_RMA | FI_ATOMIC})
        for (std::uint64_t side : {FI_READ | FI_WRITE, FI_READ, FI_WRITE, FI_REMOTE_READ | FI_REMOTE_WRITE}) {
            const auto mode_for = [&](int hinted) {
                const Info info = ask([&](fi_info& h) {
                    h.caps = kind | side;
                    h.domain_attr->mr_mode = hinted;
                });
                return info != nullptr && count(info) == 1 ? info->domain_attr->mr_mode : -1;
            };
            EXPECT_EQ(mode_for(provider_keys), provider_keys);
            EXPECT_EQ(mode_for(provider_keys | FI_MR_LOCAL | FI_MR_ENDPOINT), provider_keys);
            EXPECT_EQ(mode_for(FI_MR_VIRT_ADDR | FI_MR_PROV_KEY), 0);
            EXPECT_EQ(mode_for(0), 0);
        }
}

TEST(Info, OldVersionsGetTheOldModes)
{
    for (int mode : {mr_basic, mr_scalable})
        for (std::uint32_t version : {FI_VERSION(1, 4), FI_VERSION(1, 17)}) {
            Info info = ask(
                [&](fi_info& h) {
                    h.caps = FI_RMA;
                    h.domain_attr->mr_mode = mode;
                },
                version);
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
    EXPECT_EXIT(getinfo_with_backend("nonsense"), refused_with_0, "FI_TOFU_BACKEND=nonsense is invalid");
    EXPECT_EXIT(getinfo_with_backend("/no/such/library.so"), refused_with_0, "FI_TOFU_BACKEND: /no/such");
    EXPECT_EXIT(getinfo_with_backend("/lib/x86_64-linux-gnu/libm.so.6"), refused_with_0, "lacks utofu_|cannot open");
}

} // namespace
