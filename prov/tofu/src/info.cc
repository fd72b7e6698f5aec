// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See info.h. The hints are checked attribute by attribute; each check answers with -FI_ENODATA and a line at
// info level that says which attribute it was. Memory is the C library's: libfabric frees it.
#include "info.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <rdma/fi_errno.h>

#include "attributes.h"
#include "domain.h"
#include "fabric.h"
#include "log.h"
#include "names.h"
#include "vcq/backend.h"

namespace tofu {
namespace {

/// The two ways of registering memory, in the order of preference for a caller that can do both.
enum class KeyStyle { provider, user };

bool refuse(const char* attribute) noexcept
{
    TOFU_INFO(FI_LOG_CORE, "no match: %s\n", attribute);
    return false;
}

/// Room for the attributes of newer libfabric versions, whose free functions look at them.
template <class T>
T* allocate() noexcept
{
    return static_cast<T*>(std::calloc(1, sizeof(T) + 256));
}

constexpr std::uint64_t remote_caps = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Fills in the halves of MSG, TAGGED, RMA and ATOMIC that the caller left open (fi_getinfo(3), "Capabilities").
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
    // fi_getinfo(3): secondary capabilities come unasked if they cost nothing. Events at the target do: each access leaves
    // a notice there, and a target that does not look loses its queue.
    if (hints == nullptr || hints->caps == 0)
        return limits::all_caps & ~FI_RMA_EVENT;
    return expand(hints->caps) | limits::domain_caps;
}

/// The message orders that can be had with these capabilities.
std::uint64_t orders_for(std::uint64_t caps) noexcept
{
    const bool mixed = (caps & FI_RMA) != 0 && (caps & FI_ATOMIC) != 0;
    return limits::msg_order | (mixed ? 0 : limits::unmixed_msg_order);
}

bool is_target(std::uint64_t caps) noexcept
{
    return (caps & (FI_RMA | FI_ATOMIC)) != 0 && (expand(caps) & remote_caps) != 0;
}

// --- the hints

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
    if (hint.total_buffered_recv != 0)
        return refuse("rx_attr->total_buffered_recv");
    return true;
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
    if (hint.name != nullptr && std::strcmp(hint.name, domain_name) != 0)
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
    if ((hint.caps & ~limits::domain_caps) != 0)
        return refuse("domain_attr->caps");
    if (hint.max_ep_tx_ctx > limits::max_contexts || hint.max_ep_rx_ctx > limits::max_contexts ||
        hint.max_ep_stx_ctx > max_endpoints || hint.max_ep_srx_ctx > max_endpoints)
        return refuse("domain_attr->max_ep_*_ctx");
    return true;
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

/// What mr_mode the caller gets for this style of keys, or false where it rules the style out. A hint of 0 rules
/// nothing out before version 1.5 (fi_mr(3), FI_MR_UNSPEC); since then the caller may set only what it can do.
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

// --- the answer

/// Without hints: all that can be had, which is what a caller compares with its wishes. With hints that name no
/// order: that of messages, for the others cost a flag on each transfer.
std::uint64_t granted_order(std::uint64_t caps, const std::uint64_t* hint) noexcept
{
    if (hint == nullptr)
        return orders_for(caps);
    return *hint != 0 ? *hint : FI_ORDER_SAS;
}

void fill_tx(fi_tx_attr& tx, std::uint64_t caps, const fi_tx_attr* hint) noexcept
{
    tx.caps = caps & limits::tx_caps;
    tx.op_flags = hint != nullptr ? hint->op_flags : 0;
    tx.msg_order = granted_order(caps, hint != nullptr ? &hint->msg_order : nullptr);
    tx.inject_size = limits::inject_size;
    tx.size = hint != nullptr && hint->size != 0 ? hint->size : limits::tx_size;
    tx.iov_limit = limits::iov_limit;
    tx.rma_iov_limit = limits::rma_iov_limit;
}

void fill_rx(fi_rx_attr& rx, std::uint64_t caps, const fi_rx_attr* hint) noexcept
{
    rx.caps = caps & limits::rx_caps;
    rx.op_flags = hint != nullptr ? hint->op_flags : 0;
    rx.msg_order = granted_order(caps, hint != nullptr ? &hint->msg_order : nullptr);
    rx.size = hint != nullptr && hint->size != 0 ? hint->size : limits::rx_size;
    rx.iov_limit = limits::iov_limit;
}

void fill_ep(fi_ep_attr& ep, const fi_ep_attr* hint) noexcept
{
    ep.type = FI_EP_RDM;
    ep.protocol = protocol;
    ep.protocol_version = wire_version;
    ep.max_msg_size = limits::max_msg_size;
    ep.max_order_raw_size = limits::max_msg_size;
    ep.max_order_war_size = limits::max_msg_size;
    ep.max_order_waw_size = limits::max_msg_size;
    ep.mem_tag_format =
        hint != nullptr && hint->mem_tag_format != 0 ? hint->mem_tag_format : limits::tag_format;
    ep.tx_ctx_cnt = hint != nullptr && hint->tx_ctx_cnt != 0 ? hint->tx_ctx_cnt : 1;
    ep.rx_ctx_cnt = hint != nullptr && hint->rx_ctx_cnt != 0 ? hint->rx_ctx_cnt : 1;
}

template <class E>
E asked(E hint, E unspecified, E otherwise) noexcept
{
    return hint != unspecified ? hint : otherwise;
}

bool fill_domain(fi_domain_attr& domain, int mr_mode, std::size_t vcqs, const fi_domain_attr* hint) noexcept
{
    static constexpr fi_domain_attr none{};
    const fi_domain_attr& wish = hint != nullptr ? *hint : none;
    domain.name = strdup(domain_name);
    domain.threading = asked(wish.threading, FI_THREAD_UNSPEC, FI_THREAD_SAFE);
    // Automatic progress costs a thread per domain: for those who ask for it.
    domain.control_progress =
        wish.control_progress == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    domain.data_progress = wish.data_progress == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    domain.resource_mgmt = asked(wish.resource_mgmt, FI_RM_UNSPEC, FI_RM_ENABLED);
    domain.av_type = asked(wish.av_type, FI_AV_UNSPEC, FI_AV_TABLE);
    domain.mr_mode = mr_mode;
    domain.mr_key_size = limits::mr_key_size;
    domain.cq_data_size = limits::cq_data_size;
    domain.cq_cnt = limits::object_count;
    domain.ep_cnt = std::min<std::size_t>(vcqs - 1, max_endpoints);
    domain.tx_ctx_cnt = domain.ep_cnt;
    domain.rx_ctx_cnt = domain.ep_cnt;
    // Each context has a VCQ and a number of its own: half of them for either kind.
    const std::size_t contexts = std::clamp<std::size_t>(domain.ep_cnt / 2, 1, limits::max_contexts);
    domain.max_ep_tx_ctx = contexts;
    domain.max_ep_rx_ctx = contexts;
    domain.max_ep_stx_ctx = domain.ep_cnt;
    domain.max_ep_srx_ctx = domain.ep_cnt;
    domain.cntr_cnt = limits::object_count;
    domain.mr_iov_limit = limits::mr_iov_limit;
    domain.mr_cnt = limits::mr_count;
    domain.max_err_data = limits::max_err_data;
    domain.caps = limits::domain_caps;
    return domain.name != nullptr;
}

bool copy_address(const void* from, std::size_t length, void*& to, std::size_t& to_length) noexcept
{
    if (from == nullptr)
        return true;
    to = std::malloc(length);
    if (to == nullptr)
        return false;
    std::memcpy(to, from, length);
    to_length = length;
    return true;
}

/// For a half-made info; fi_freeinfo would import a version of libfabric's symbol.
void release(fi_info* info) noexcept
{
    if (info->domain_attr != nullptr)
        std::free(info->domain_attr->name);
    if (info->fabric_attr != nullptr)
        std::free(info->fabric_attr->name);
    for (void* part : {static_cast<void*>(info->tx_attr), static_cast<void*>(info->rx_attr),
                       static_cast<void*>(info->ep_attr), static_cast<void*>(info->domain_attr),
                       static_cast<void*>(info->fabric_attr), info->src_addr, info->dest_addr,
                       static_cast<void*>(info)})
        std::free(part);
}

fi_info* make(std::uint32_t version, int mr_mode, std::size_t vcqs, const fi_info* hints) noexcept
{
    auto* info = allocate<fi_info>();
    if (info == nullptr)
        return nullptr;
    const std::uint64_t caps = granted_caps(hints);
    info->caps = caps;
    info->addr_format = hints != nullptr ? hints->addr_format : static_cast<std::uint32_t>(FI_FORMAT_UNSPEC);
    info->tx_attr = allocate<fi_tx_attr>();
    info->rx_attr = allocate<fi_rx_attr>();
    info->ep_attr = allocate<fi_ep_attr>();
    info->domain_attr = allocate<fi_domain_attr>();
    info->fabric_attr = allocate<fi_fabric_attr>();
    bool ok = info->tx_attr != nullptr && info->rx_attr != nullptr && info->ep_attr != nullptr &&
              info->domain_attr != nullptr && info->fabric_attr != nullptr;
    if (ok) {
        fill_tx(*info->tx_attr, caps, hints != nullptr ? hints->tx_attr : nullptr);
        fill_rx(*info->rx_attr, caps, hints != nullptr ? hints->rx_attr : nullptr);
        fill_ep(*info->ep_attr, hints != nullptr ? hints->ep_attr : nullptr);
        ok = fill_domain(*info->domain_attr, mr_mode, vcqs,
                         hints != nullptr ? hints->domain_attr : nullptr);
        info->fabric_attr->name = strdup(fabric_name); // prov_name stays null: libfabric fills it in
        info->fabric_attr->prov_version = FI_VERSION(0, 1);
        info->fabric_attr->api_version = version;
        ok = ok && info->fabric_attr->name != nullptr &&
             (hints == nullptr ||
              (copy_address(hints->src_addr, hints->src_addrlen, info->src_addr, info->src_addrlen) &&
               copy_address(hints->dest_addr, hints->dest_addrlen, info->dest_addr,
                            info->dest_addrlen)));
    }
    if (!ok) {
        release(info);
        return nullptr;
    }
    return info;
}

} // namespace

bool narrow_tx(const fi_tx_attr& asked, std::uint64_t caps, fi_tx_attr& granted) noexcept
{
    if (!fits_tx(asked, caps))
        return false;
    const std::uint64_t own = asked.caps != 0 ? asked.caps : caps;
    fill_tx(granted, expand(own), &asked);
    return true;
}

bool narrow_rx(const fi_rx_attr& asked, std::uint64_t caps, fi_rx_attr& granted) noexcept
{
    if (!fits_rx(asked, caps))
        return false;
    const std::uint64_t own = asked.caps != 0 ? asked.caps : caps;
    fill_rx(granted, expand(own), &asked);
    return true;
}

namespace {

/// What node, service and flags of fi_getinfo stand for.
struct Ends {
    EndpointAddress source{};
    EndpointAddress destination{};
    bool to_peer = false;
    bool source_named = false; ///< whatever the hints say of it
    bool destination_named = false;
};

/// fi_getinfo(3): with FI_SOURCE they name this side, else the other one. False: nobody has that name.
bool find_ends(const char* node, const char* service, std::uint64_t flags, Ends& ends) noexcept
{
    const bool here = (flags & FI_SOURCE) != 0;
    ends.source_named = here;
    ends.destination_named = !here && (node != nullptr || service != nullptr);
    ends.source = names::placeholder(here && service != nullptr ? names::key_of(service) : 0);
    if (node == nullptr)
        return true;
    if (!here && address_from_text(node, ends.destination))
        return ends.to_peer = service == nullptr; // the text has everything
    if (!names::is_here(node, (flags & FI_NUMERICHOST) != 0)) {
        TOFU_INFO(FI_LOG_CORE, "%s is neither an address of ours (tofu://...) nor this machine\n", node);
        return false;
    }
    // This machine without a service is no peer yet: its address comes another way (fi_av_insert(3)).
    if (here || service == nullptr)
        return true;
    if (!names::find(names::key_of(service), ends.destination)) {
        TOFU_INFO(FI_LOG_CORE, "no endpoint of this user and job is announced as %s\n", service);
        return false;
    }
    return ends.to_peer = true;
}

/// Replaces an address of an info by one of ours, in the format of the info.
bool set_address(const fi_info& info, const EndpointAddress& address, void*& to, std::size_t& length) noexcept
{
    std::free(to);
    to = nullptr;
    if (info.addr_format != FI_ADDR_STR)
        return copy_address(&address, sizeof(address), to, length);
    char text[address_text_size];
    address_to_text(address, text);
    return copy_address(text, sizeof(text), to, length);
}

bool set_addresses(fi_info& info, const Ends& ends) noexcept
{
    if (ends.destination_named) {
        std::free(std::exchange(info.dest_addr, nullptr));
        info.dest_addrlen = 0;
    }
    return ((info.src_addr != nullptr && !ends.source_named) ||
            set_address(info, ends.source, info.src_addr, info.src_addrlen)) &&
           (!ends.to_peer || set_address(info, ends.destination, info.dest_addr, info.dest_addrlen));
}

/// fi_fabric(3), fi_domain(3): the open instances that the hints name, or else the first ones. False: what they name is
/// not ours.
bool set_instances(fi_info& info, const fi_info* hints) noexcept
{
    const fid_fabric* const fabric = hints && hints->fabric_attr ? hints->fabric_attr->fabric : nullptr;
    const fid_domain* const domain = hints && hints->domain_attr ? hints->domain_attr->domain : nullptr;
    info.fabric_attr->fabric = Fabric::all().find(fabric);
    info.domain_attr->domain = Domain::all().find(domain);
    return (fabric == nullptr || info.fabric_attr->fabric != nullptr) &&
           (domain == nullptr || info.domain_attr->domain != nullptr);
}

} // namespace

bool find_peer(const char* node, const char* service, EndpointAddress& peer) noexcept
{
    Ends ends;
    if (!find_ends(node, service, 0, ends) || !ends.to_peer)
        return false;
    peer = ends.destination;
    return true;
}

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info)
{
    Ends ends;
    if (!fits(hints) || !find_ends(node, service, flags, ends))
        return -FI_ENODATA;
    int error = 0;
    const vcq::Backend* backend = vcq::Backend::get(error);
    if (backend == nullptr)
        return error == -FI_EINVAL || error == -FI_ENOSYS ? error : -FI_ENODATA;
    const std::size_t vcqs = backend->tni_count() * 9 * backend->caps().num_cmp_ids;

    // A caller that names the three mode bits gets the style that saves look-ups first; any other may not
    // handle them and gets the one without duties first. Without remote access to memory they are the same.
    const int hint = hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->mr_mode : 0;
    const bool able = (hint & limits::provider_mr_mode) == limits::provider_mr_mode;
    const KeyStyle styles[] = {able ? KeyStyle::provider : KeyStyle::user,
                               able ? KeyStyle::user : KeyStyle::provider};
    fi_info* first = nullptr;
    fi_info** end = &first;
    for (KeyStyle style : styles) {
        int mode = 0;
        // Not both for whoever is able: Open MPI's common code deals infos that differ in mr_mode alone out
        // to its ranks in turn, as if each were an interface, and ranks with different styles of keys
        // can't use each other's.
        if ((able && style == KeyStyle::user) || !mr_mode_for(style, version, hints, mode))
            continue;
        if (first != nullptr && first->domain_attr->mr_mode == mode)
            continue;
        fi_info* made = make(version, mode, vcqs, hints);
        if (made != nullptr && !set_instances(*made, hints)) {
            TOFU_INFO(FI_LOG_CORE, "no match: the fabric or domain in the hints is not one of ours\n");
            release(made);
            break;
        }
        if (made != nullptr && !set_addresses(*made, ends)) {
            release(made);
            made = nullptr;
        }
        if (made == nullptr) {
            if (first == nullptr)
                return -FI_ENOMEM;
            break;
        }
        *end = made;
        end = &made->next;
    }
    if (first == nullptr)
        return -FI_ENODATA;
    *info = first;
    return 0;
}

} // namespace tofu
