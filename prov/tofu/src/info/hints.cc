// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See hints.h. The hints are checked attribute by attribute, against what provider/limits.h promises.
#include "info/hints.h"

#include <cstring>
#include <initializer_list>

#include "info/info.h"
#include "provider/limits.h"
#include "provider/log.h"

namespace tofu {
namespace {

bool refuse(const char* attribute) noexcept
{
    TOFU_INFO(FI_LOG_CORE, "no match: %s\n", attribute);
    return false;
}

constexpr std::uint64_t remote_caps = FI_REMOTE_READ | FI_REMOTE_WRITE;

bool is_target(std::uint64_t caps) noexcept
{
    return (caps & (FI_RMA | FI_ATOMIC)) != 0 && (expand(caps) & remote_caps) != 0;
}

bool fits_ep(const fi_ep_attr& hint) noexcept
{
    if (hint.type != FI_EP_UNSPEC && hint.type != FI_EP_RDM)
        return refuse("ep_attr->type");
    if (hint.protocol != FI_PROTO_UNSPEC && hint.protocol != protocol)
        return refuse("ep_attr->protocol");
    if (hint.protocol == protocol && hint.protocol_version > wire_version)
        return refuse("ep_attr->protocol_version");
    if (hint.max_msg_size > limits::max_msg_size)
        return refuse("ep_attr->max_msg_size");
    if (hint.msg_prefix_size != 0)
        return refuse("ep_attr->msg_prefix_size");
    if (hint.max_order_raw_size > limits::max_msg_size ||
        hint.max_order_war_size > limits::max_msg_size ||
        hint.max_order_waw_size > limits::max_msg_size)
        return refuse("ep_attr->max_order_*_size");
    for (std::size_t contexts : {hint.tx_ctx_cnt, hint.rx_ctx_cnt})
        if (contexts > limits::max_contexts && contexts != FI_SHARED_CONTEXT)
            return refuse("ep_attr->*x_ctx_cnt");
    if (hint.auth_key_size != 0)
        return refuse("ep_attr->auth_key_size");
    return true; // mem_tag_format: every structure of 64 bits is one of ours
}

bool fits_domain(const fi_domain_attr& hint) noexcept
{
    if (hint.name != nullptr && std::strcmp(hint.name, domain_name()) != 0)
        return refuse("domain_attr->name");
    if (hint.av_type != FI_AV_UNSPEC && hint.av_type != FI_AV_MAP && hint.av_type != FI_AV_TABLE)
        return refuse("domain_attr->av_type");
    if (hint.cq_data_size > limits::cq_data_size)
        return refuse("domain_attr->cq_data_size");
    if (hint.auth_key_size != 0)
        return refuse("domain_attr->auth_key_size");
    if (hint.cq_cnt > limits::object_count || hint.cntr_cnt > limits::object_count)
        return refuse("domain_attr->cq_cnt, cntr_cnt");
    if (hint.mr_iov_limit > limits::mr_iov_limit)
        return refuse("domain_attr->mr_iov_limit");
    if (hint.ep_cnt > max_endpoints)
        return refuse("domain_attr->ep_cnt");
    if (hint.max_err_data > limits::max_err_data)
        return refuse("domain_attr->max_err_data");
    if (hint.mr_key_size > limits::mr_key_size)
        return refuse("domain_attr->mr_key_size");
    if ((hint.caps & ~(limits::domain_caps | FI_COLLECTIVE)) != 0)
        return refuse("domain_attr->caps");
    if (hint.max_ep_tx_ctx > limits::max_contexts || hint.max_ep_rx_ctx > limits::max_contexts ||
        hint.max_ep_stx_ctx > max_endpoints || hint.max_ep_srx_ctx > max_endpoints)
        return refuse("domain_attr->max_ep_*_ctx");
    return true;
}

} // namespace

std::uint64_t expand(std::uint64_t caps) noexcept
{
    if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0)
        caps |= FI_SEND | FI_RECV;
    if ((caps & (FI_RMA | FI_ATOMIC)) != 0 &&
        (caps & (FI_READ | FI_WRITE | remote_caps)) == 0)
        caps |= FI_READ | FI_WRITE | remote_caps;
    return caps;
}

std::uint64_t granted_caps(const fi_info* hints) noexcept
{
    // fi_getinfo(3): secondary capabilities come unasked if they cost nothing. Events at the target do: each access
    // leaves a notice there, and a target that does not look loses its queue.
    if (hints == nullptr || hints->caps == 0)
        return limits::all_caps & ~FI_RMA_EVENT;
    return expand(hints->caps) | limits::domain_caps;
}

std::uint64_t orders_for(std::uint64_t caps) noexcept
{
    const bool mixed = (caps & FI_RMA) != 0 && (caps & FI_ATOMIC) != 0;
    return limits::msg_order | (mixed ? 0 : limits::unmixed_msg_order);
}

bool fits_tx(const fi_tx_attr& hint, std::uint64_t caps) noexcept
{
    if ((hint.caps & ~(caps & (limits::tx_caps | limits::domain_caps))) != 0)
        return refuse("tx_attr->caps");
    if ((hint.op_flags & ~limits::tx_op_flags) != 0)
        return refuse("tx_attr->op_flags");
    if ((hint.msg_order & ~orders_for(caps)) != 0)
        return refuse("tx_attr->msg_order");
    if (hint.comp_order != 0)
        return refuse("tx_attr->comp_order");
    if (hint.inject_size > limits::inject_size)
        return refuse("tx_attr->inject_size");
    if (hint.size > limits::tx_size)
        return refuse("tx_attr->size");
    if (hint.iov_limit > limits::iov_limit)
        return refuse("tx_attr->iov_limit");
    if (hint.rma_iov_limit > limits::rma_iov_limit)
        return refuse("tx_attr->rma_iov_limit");
    return true;
}

bool fits_rx(const fi_rx_attr& hint, std::uint64_t caps) noexcept
{
    // FI_NAMED_RX_CTX is the sender's; MPICH names it for its receive contexts too.
    if ((hint.caps & ~(caps & (limits::rx_caps | limits::domain_caps | FI_NAMED_RX_CTX))) != 0)
        return refuse("rx_attr->caps");
    if ((hint.op_flags & ~limits::rx_op_flags) != 0)
        return refuse("rx_attr->op_flags");
    if ((hint.msg_order & ~orders_for(caps)) != 0)
        return refuse("rx_attr->msg_order");
    if (hint.comp_order != 0)
        return refuse("rx_attr->comp_order");
    if (hint.size > limits::rx_size)
        return refuse("rx_attr->size");
    if (hint.iov_limit > limits::iov_limit)
        return refuse("rx_attr->iov_limit");
    return true; // total_buffered_recv: a hint that a provider may ignore
}

bool fits(const fi_info* hints) noexcept
{
    if (hints == nullptr)
        return true;
    if ((hints->caps & ~limits::all_caps) != 0)
        return refuse("caps");
    if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_ADDR_STR)
        return refuse("addr_format");
    const std::uint64_t caps = granted_caps(hints);
    if (hints->fabric_attr != nullptr && hints->fabric_attr->name != nullptr &&
        std::strcmp(hints->fabric_attr->name, fabric_name) != 0)
        return refuse("fabric_attr->name");
    return (hints->tx_attr == nullptr || fits_tx(*hints->tx_attr, caps)) &&
           (hints->rx_attr == nullptr || fits_rx(*hints->rx_attr, caps)) &&
           (hints->ep_attr == nullptr || fits_ep(*hints->ep_attr)) &&
           (hints->domain_attr == nullptr || fits_domain(*hints->domain_attr));
}

bool mr_mode_for(KeyStyle style, std::uint32_t version, const fi_info* hints, int& mode) noexcept
{
    const int hint =
        hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->mr_mode : 0;
    const bool old = FI_VERSION_LT(version, FI_VERSION(1, 5));
    const int old_style = style == KeyStyle::user ? limits::mr_scalable : limits::mr_basic;
    if (old || (hint & (limits::mr_basic | limits::mr_scalable)) != 0) {
        mode = old_style;
        return hint == old_style || (old && hint == 0);
    }
    mode = style == KeyStyle::provider && is_target(granted_caps(hints)) ? limits::provider_mr_mode : 0;
    return hints == nullptr || (hint & mode) == mode;
}

} // namespace tofu
