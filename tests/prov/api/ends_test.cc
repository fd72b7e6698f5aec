// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_info promises as a size or a count, at its end, one beyond and far beyond: as a wish in hints, and where the
// objects themselves are opened.
#include <cstdint>
#include <functional>
#include <vector>

#include "prov/lib/session.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

struct End {
    const char* name;
    std::size_t most;
    std::size_t& (*of)(fi_info& info);
};

#define TOFU_END(most, place)                                                                                          \
    {                                                                                                                  \
#place, most, [](fi_info & info) -> std::size_t& { return info.place; }                                        \
    }
const End ends[] = {
    TOFU_END(192, tx_attr->inject_size),
    TOFU_END(1024, tx_attr->size),
    TOFU_END(4, tx_attr->iov_limit),
    TOFU_END(4, tx_attr->rma_iov_limit),
    TOFU_END(65536, rx_attr->size),
    TOFU_END(4, rx_attr->iov_limit),
    TOFU_END(std::size_t{1} << 40, ep_attr->max_msg_size),
    TOFU_END(std::size_t{1} << 40, ep_attr->max_order_raw_size),
    TOFU_END(std::size_t{1} << 40, ep_attr->max_order_war_size),
    TOFU_END(std::size_t{1} << 40, ep_attr->max_order_waw_size),
    TOFU_END(64, ep_attr->tx_ctx_cnt),
    TOFU_END(64, ep_attr->rx_ctx_cnt),
    TOFU_END(8, domain_attr->cq_data_size),
    TOFU_END(65536, domain_attr->cq_cnt),
    TOFU_END(65536, domain_attr->cntr_cnt),
    TOFU_END(8, domain_attr->mr_key_size),
    TOFU_END(1, domain_attr->mr_iov_limit),
    TOFU_END(64, domain_attr->max_ep_tx_ctx),
    TOFU_END(64, domain_attr->max_ep_rx_ctx),
    TOFU_END(240, domain_attr->max_ep_stx_ctx),
    TOFU_END(240, domain_attr->max_ep_srx_ctx),
    TOFU_END(240, domain_attr->ep_cnt),
};
#undef TOFU_END

/// What fi_getinfo says of a wish; what it grants.
int ask(const End& end, std::size_t wish, std::size_t& granted)
{
    int ret = 0;
    const Info info = tofu::test::ask([&](fi_info& hints) { end.of(hints) = wish; }, FI_VERSION(1, 17), &ret);
    granted = info != nullptr ? end.of(*info) : 0;
    return ret;
}

TEST(Ends, OfWhatFiInfoPromises)
{
    expect_processes(1, [](const Rank&) {
        for (const End& end : ends) {
            SCOPED_TRACE(end.name);
            std::size_t granted = 0;
            EXPECT_EQ(ask(end, 0, granted), 0);
            EXPECT_LE(granted, end.most);
            EXPECT_EQ(ask(end, end.most, granted), 0);
            EXPECT_EQ(granted, end.most);
            EXPECT_EQ(ask(end, end.most + 1, granted), -FI_ENODATA);
            EXPECT_EQ(ask(end, SIZE_MAX / 2, granted), -FI_ENODATA);
        }
    });
}

TEST(Ends, OfTheEndpointsOfADomain)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_TAGGED;
        options.threading = FI_THREAD_DOMAIN; // more endpoints than a node has CQs
        Session s(rank, options);
        std::vector<fid_ep*> more(s.info->domain_attr->ep_cnt - 1);
        ASSERT_EQ(more.size(), 239u);
        const auto open = [&](fid_ep*& ep) { return fi_endpoint(s.domain, s.info, &ep, nullptr); };
        const auto enable = [&](fid_ep* ep) {
            EXPECT_EQ(fi_ep_bind(ep, &s.av->fid, 0), 0);
            EXPECT_EQ(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV), 0);
            return fi_enable(ep);
        };
        for (fid_ep*& ep : more) {
            ASSERT_EQ(open(ep), 0);
            ASSERT_EQ(enable(ep), 0);
        }
        fid_ep* beyond = nullptr;
        for (int i = 0; i < 3; i++)
            EXPECT_EQ(open(beyond), -FI_ENOSPC);
        EXPECT_EQ(beyond, nullptr);
        ASSERT_EQ(fi_close(&more.back()->fid), 0); // which makes room for one
        ASSERT_EQ(open(more.back()), 0);
        EXPECT_EQ(enable(more.back()), 0);
        EXPECT_EQ(open(beyond), -FI_ENOSPC);
        for (fid_ep* ep : more)
            EXPECT_EQ(fi_close(&ep->fid), 0);
    });
}

/// To oneself: 4 elements and 2^40 bytes are taken or refused for another reason, more are refused for this one.
TEST(Ends, OfTheVectorsOfACall)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_MSG | FI_TAGGED | FI_RMA;
        Session s(rank, options);
        char byte[8] = {};
        const auto windows = s.share(byte, sizeof byte);
        iovec iov[8];
        for (iovec& one : iov)
            one = {byte, 1};
        const auto calls = [&](std::size_t count) {
            return std::vector<ssize_t>{
                fi_recvv(s.ep, iov, nullptr, count, 0, nullptr),
                fi_trecvv(s.ep, iov, nullptr, count, 0, 1, 0, nullptr),
                fi_sendv(s.ep, iov, nullptr, count, 0, nullptr),
                fi_tsendv(s.ep, iov, nullptr, count, 0, 1, nullptr),
                fi_writev(s.ep, iov, nullptr, count, 0, windows[0].base, windows[0].key, nullptr),
                fi_readv(s.ep, iov, nullptr, count, 0, windows[0].base, windows[0].key, nullptr)};
        };
        for (std::size_t beyond : {std::size_t{5}, std::size_t{1} << 40, SIZE_MAX})
            for (ssize_t ret : calls(beyond))
                EXPECT_EQ(ret, -FI_EINVAL) << beyond;
        for (std::size_t beyond : {(std::size_t{1} << 40) + 1, SIZE_MAX}) {
            EXPECT_EQ(fi_send(s.ep, byte, beyond, nullptr, 0, nullptr), -FI_EMSGSIZE);
            EXPECT_EQ(fi_tsend(s.ep, byte, beyond, nullptr, 0, 1, nullptr), -FI_EMSGSIZE);
            EXPECT_EQ(fi_write(s.ep, byte, beyond, nullptr, 0, windows[0].base, windows[0].key, nullptr), -FI_EMSGSIZE);
            EXPECT_EQ(fi_read(s.ep, byte, beyond, nullptr, 0, windows[0].base, windows[0].key, nullptr), -FI_EMSGSIZE);
        }
        for (std::size_t beyond : {std::size_t{193}, std::size_t{1} << 40, SIZE_MAX}) {
            EXPECT_EQ(fi_inject(s.ep, byte, beyond, 0), -FI_EMSGSIZE);
            EXPECT_EQ(fi_tinject(s.ep, byte, beyond, 0, 1), -FI_EMSGSIZE);
            EXPECT_EQ(fi_inject_write(s.ep, byte, beyond, 0, windows[0].base, windows[0].key), -FI_EMSGSIZE);
        }
        s.expect_silence();
    });
}

/// FI_OPT_MAX_*_SIZE and FI_OPT_INJECT_*_SIZE of libfabric 2: so much is taken, one byte more is not.
TEST(Ends, AreThoseThatTheOptionsTell)
{
    expect_processes(1, [](const Rank& rank) {
        enum : int {
            max_msg = 12,
            max_tagged,
            max_rma,
            max_atomic,
            inject_msg,
            inject_tagged,
            inject_rma,
            inject_atomic
        };
        Options options;
        options.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
        Session s(rank, options);
        const auto told = [&](int option) {
            std::size_t value = 0, length = sizeof(value);
            EXPECT_EQ(fi_getopt(&s.ep->fid, FI_OPT_ENDPOINT, option, &value, &length), 0) << option;
            return value;
        };
        std::vector<std::uint8_t> memory(told(max_atomic) + 1), bytes(memory.size()), in(told(inject_msg));
        const Window w = s.share(memory.data(), memory.size())[0];
        std::uint8_t* const from = bytes.data();
        const auto check = [&](int option, auto&& call) {
            const std::size_t size = told(option);
            EXPECT_GT(size, 0u) << option;
            EXPECT_EQ(s.post([&] { return call(size); }), 0) << option;
            EXPECT_EQ(call(size + 1), -FI_EMSGSIZE) << option;
        };
        ASSERT_EQ(fi_recv(s.ep, in.data(), in.size(), nullptr, 0, nullptr), 0);
        ASSERT_EQ(fi_trecv(s.ep, in.data(), in.size(), nullptr, 0, 1, 0, nullptr), 0);
        check(inject_msg, [&](std::size_t n) { return fi_inject(s.ep, from, n, 0); });
        check(inject_tagged, [&](std::size_t n) { return fi_tinject(s.ep, from, n, 0, 1); });
        check(inject_rma, [&](std::size_t n) { return fi_inject_write(s.ep, from, n, 0, w.base, w.key); });
        check(inject_atomic,
              [&](std::size_t n) { return fi_inject_atomic(s.ep, from, n, 0, w.base, w.key, FI_UINT8, FI_SUM); });
        check(max_atomic, [&](std::size_t n) {
            return fi_atomic(s.ep, from, n, nullptr, 0, w.base, w.key, FI_UINT8, FI_ATOMIC_WRITE, nullptr);
        });
        fi_cq_data_entry entry{};
        for (int i = 0; i < 3; i++) // the receives and the atomic
            EXPECT_TRUE(s.next(entry));
        EXPECT_EQ(told(max_msg), s.info->ep_attr->max_msg_size); // more than there is memory: OfTheVectorsOfACall
        EXPECT_EQ(told(max_tagged), s.info->ep_attr->max_msg_size);
        EXPECT_EQ(told(max_rma), s.info->ep_attr->max_msg_size);
        s.expect_silence();
    });
}

} // namespace
} // namespace tofu::test
