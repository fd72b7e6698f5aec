// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See hints.h. The hints are checked attribute by attribute, against what core/limits.h promises.
#include "api/hints.h"

#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "api/getinfo.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/peer_abi.h"

namespace tofu {
namespace {

/// A hint, and whether it can be met.
struct Ask {
    bool possible;
    const char* attribute;
};
bool possible(const char* structure, std::initializer_list<Ask> asks) noexcept
{
    for (const Ask& ask : asks)
        if (!ask.possible) {
            TOFU_INFO(FI_LOG_CORE, "no match: %s%s\n", structure, ask.attribute);
            return false;
        }
    return true;
}

constexpr std::uint64_t remote_caps = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Does the enumerator exist? A caller in C can write any number, so its type says nothing (fi_getinfo(3): a provider
/// that does not know what is asked for returns no info). `last`: the largest enumerator, of all releases.
template <class Enum>
constexpr bool is_one_of(Enum value, unsigned last) noexcept
{
    return static_cast<std::make_unsigned_t<std::underlying_type_t<Enum>>>(value) <= last;
}
constexpr unsigned control_unified = 3; ///< FI_PROGRESS_CONTROL_UNIFIED, which libfabric 2 adds

/// The capabilities that only an owner of our queues asks for (fi_peer(3)). They are not given unasked.
std::uint64_t offered_to_owners() noexcept { return FI_AV_USER_ID | (peer::is_known() ? FI_PEER : 0); }

bool can_have(std::size_t contexts) noexcept
{
    return contexts <= limits::max_contexts || contexts == FI_SHARED_CONTEXT;
}

/// mem_tag_format: every structure of 64 bits is one of ours.
bool fits(const fi_ep_attr& hint) noexcept
{
    return possible("ep_attr->", {
        {hint.type == FI_EP_UNSPEC || hint.type == FI_EP_RDM, "type"},
        {hint.protocol == FI_PROTO_UNSPEC || hint.protocol == protocol, "protocol"},
        {hint.protocol != protocol || hint.protocol_version <= wire_version, "protocol_version"},
        {hint.max_msg_size <= limits::max_msg_size, "max_msg_size"},
        {hint.msg_prefix_size == 0, "msg_prefix_size"},
        {hint.max_order_raw_size <= limits::max_msg_size, "max_order_raw_size"},
        {hint.max_order_war_size <= limits::max_msg_size, "max_order_war_size"},
        {hint.max_order_waw_size <= limits::max_msg_size, "max_order_waw_size"},
        {can_have(hint.tx_ctx_cnt), "tx_ctx_cnt"},
        {can_have(hint.rx_ctx_cnt), "rx_ctx_cnt"},
        {hint.auth_key_size == 0, "auth_key_size"},
    });
}

bool fits(const fi_domain_attr& hint) noexcept
{
    return has_enumerators(hint) && possible("domain_attr->", {
        {hint.name == nullptr || std::strcmp(hint.name, domain_name()) == 0, "name"},
        {hint.cq_data_size <= limits::cq_data_size, "cq_data_size"},
        {hint.auth_key_size == 0, "auth_key_size"},
        {hint.cq_cnt <= limits::object_count, "cq_cnt"},
        {hint.cntr_cnt <= limits::object_count, "cntr_cnt"},
        {hint.mr_iov_limit <= limits::mr_iov_limit, "mr_iov_limit"},
        {hint.ep_cnt <= max_endpoints, "ep_cnt"},
        {hint.max_err_data <= limits::max_err_data, "max_err_data"},
        {hint.mr_key_size <= limits::mr_key_size, "mr_key_size"},
        {(hint.caps & ~(limits::domain_caps | FI_COLLECTIVE | (offered_to_owners() & FI_PEER))) == 0, "caps"},
        {hint.max_ep_tx_ctx <= limits::max_contexts, "max_ep_tx_ctx"},
        {hint.max_ep_rx_ctx <= limits::max_contexts, "max_ep_rx_ctx"},
        {hint.max_ep_stx_ctx <= max_endpoints, "max_ep_stx_ctx"},
        {hint.max_ep_srx_ctx <= max_endpoints, "max_ep_srx_ctx"},
    });
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
    // leaves a notice there, and a target that does not look loses its queue. So does the look for FI_TRIGGER in calls.
    // FI_SOURCE_ERR makes errors of what had been successes.
    const std::uint64_t of_owner = owner_caps(hints);
    if (hints == nullptr || (hints->caps & ~of_owner) == 0)
        return (limits::all_caps & ~(FI_RMA_EVENT | FI_TRIGGER | FI_SOURCE_ERR)) | of_owner;
    return expand(hints->caps) | limits::domain_caps | of_owner;
}

std::uint64_t owner_caps(const fi_info* hints) noexcept
{
    if (hints == nullptr)
        return 0;
    const std::uint64_t of_domain = hints->domain_attr != nullptr ? hints->domain_attr->caps : 0;
    return (hints->caps & (FI_PEER | FI_AV_USER_ID)) | (of_domain & FI_PEER);
}

std::uint64_t orders_for(std::uint64_t caps) noexcept
{
    const bool mixed = (caps & FI_RMA) != 0 && (caps & FI_ATOMIC) != 0;
    return limits::msg_order | (mixed ? 0 : limits::unmixed_msg_order);
}

/// total_buffered_recv: a hint that a provider may ignore. FI_NAMED_RX_CTX is the sender's; MPICH names it for its
/// receive contexts too.
template <class Attr>
bool fits(const Attr& hint, std::uint64_t caps) noexcept
{
    constexpr bool sends = std::is_same_v<Attr, fi_tx_attr>;
    constexpr std::uint64_t side = sends ? limits::tx_caps : limits::rx_caps | FI_NAMED_RX_CTX;
    const char* const structure = sends ? "tx_attr->" : "rx_attr->";
    const bool common = possible(structure, {
        {(hint.caps & ~(caps & (side | limits::domain_caps))) == 0, "caps"},
        {(hint.op_flags & ~(sends ? limits::tx_op_flags : limits::rx_op_flags)) == 0, "op_flags"},
        {(hint.msg_order & ~orders_for(caps)) == 0, "msg_order"},
        {hint.comp_order == 0, "comp_order"},
        {hint.size <= (sends ? limits::tx_size : limits::rx_size), "size"},
        {hint.iov_limit <= limits::iov_limit, "iov_limit"},
    });
    if constexpr (sends)
        return common && possible(structure, {{hint.inject_size <= limits::inject_size, "inject_size"},
                                              {hint.rma_iov_limit <= limits::rma_iov_limit, "rma_iov_limit"}});
    else
        return common;
}
template bool fits(const fi_tx_attr&, std::uint64_t) noexcept;
template bool fits(const fi_rx_attr&, std::uint64_t) noexcept;

bool fits(const fi_info* hints) noexcept
{
    if (hints == nullptr)
        return true;
    const char* const fabric = hints->fabric_attr != nullptr ? hints->fabric_attr->name : nullptr;
    const std::uint64_t caps = granted_caps(hints);
    // An owner says when there is progress, for it serialises that with its own (fi_peer(3), "Peer SRX").
    const bool own_pace = (caps & FI_PEER) != 0 && hints->domain_attr != nullptr &&
                          hints->domain_attr->data_progress == FI_PROGRESS_AUTO;
    // fi_getinfo(3): with FI_SOURCE. The owner of a queue knows sources by its own vector.
    const bool paired = (caps & FI_SOURCE_ERR) == 0 || (caps & (FI_SOURCE | FI_PEER)) == FI_SOURCE;
    return possible("", {{(hints->caps & ~(limits::all_caps | offered_to_owners())) == 0 && paired, "caps"},
                         {!own_pace, "domain_attr->data_progress"},
                         {hints->addr_format == FI_FORMAT_UNSPEC || hints->addr_format == FI_ADDR_STR, "addr_format"},
                         {fabric == nullptr || std::strcmp(fabric, fabric_name) == 0, "fabric_attr->name"}}) &&
           (hints->tx_attr == nullptr || fits(*hints->tx_attr, caps)) &&
           (hints->rx_attr == nullptr || fits(*hints->rx_attr, caps)) &&
           (hints->ep_attr == nullptr || fits(*hints->ep_attr)) &&
           (hints->domain_attr == nullptr || fits(*hints->domain_attr));
}

bool has_enumerators(const fi_domain_attr& attr) noexcept
{
    return possible("domain_attr->", {
        {is_one_of(attr.threading, FI_THREAD_ENDPOINT), "threading"},
        {is_one_of(attr.control_progress, control_unified), "control_progress"},
        {is_one_of(attr.data_progress, FI_PROGRESS_MANUAL), "data_progress"},
        {is_one_of(attr.resource_mgmt, FI_RM_ENABLED), "resource_mgmt"},
        {is_one_of(attr.av_type, FI_AV_TABLE), "av_type"},
    });
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
    // Initiators too: the bits say which keys an endpoint can use, its own domain's and its peers' alike.
    const bool uses_keys = (granted_caps(hints) & (FI_RMA | FI_ATOMIC)) != 0;
    mode = style == KeyStyle::provider && uses_keys ? limits::provider_mr_mode : 0;
    return hints == nullptr || (hint & mode) == mode;
}

} // namespace tofu
