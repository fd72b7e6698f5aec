// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See getinfo.h: what the hints ask for is judged in hints.h; here the answer is filled in. Memory is the C library's:
// libfabric frees it.
#include "api/getinfo.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include <rdma/fi_errno.h>

#include "api/hints.h"
#include "api/names.h"
#include "api/nic.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/domain_base.h"
#include "utofu/library.h"

namespace tofu {
namespace {

/// Control queues of a TNI of the Tofu-D that user programs may have (guide, table 6.2): no call of the library tells.
constexpr std::size_t cqs_per_tni = 9;

/// Room for the attributes of newer libfabric versions, whose free functions look at them.
template <class T>
T* allocate() noexcept
{
    return static_cast<T*>(std::calloc(1, sizeof(T) + 256));
}

/// The value of a hint, or `otherwise` if the hint is zero, which leaves it open.
template <class T>
T asked(T hint, T otherwise) noexcept
{
    return hint != T{} ? hint : otherwise;
}

template <class Attr>
void fill(Attr& attr, std::uint64_t caps, const std::type_identity_t<Attr>* hint) noexcept
{
    constexpr bool sends = std::is_same_v<Attr, fi_tx_attr>;
    attr.caps = caps & (sends ? limits::tx_caps : limits::rx_caps);
    attr.op_flags = given(hint).op_flags;
    // Without hints: all that can be had, which is what a caller compares with its wishes. With hints that name no
    // order: that of messages, for the others cost a flag on each transfer.
    attr.msg_order = hint == nullptr ? orders_for(caps) : asked(hint->msg_order, std::uint64_t{FI_ORDER_SAS});
    attr.size = asked(given(hint).size, sends ? limits::tx_size : limits::rx_size);
    attr.iov_limit = limits::iov_limit;
    if constexpr (sends) {
        attr.inject_size = limits::inject_size;
        attr.rma_iov_limit = limits::rma_iov_limit;
    }
}

void fill_ep(fi_ep_attr& ep, const fi_ep_attr& wish) noexcept
{
    ep.type = FI_EP_RDM;
    ep.protocol = protocol;
    ep.protocol_version = wire_version;
    ep.max_msg_size = limits::max_msg_size;
    ep.max_order_raw_size = limits::max_msg_size;
    ep.max_order_war_size = limits::max_msg_size;
    ep.max_order_waw_size = limits::max_msg_size;
    ep.mem_tag_format = asked(wish.mem_tag_format, limits::tag_format);
    ep.tx_ctx_cnt = asked(wish.tx_ctx_cnt, std::size_t{1});
    ep.rx_ctx_cnt = asked(wish.rx_ctx_cnt, std::size_t{1});
}

static_assert(FI_THREAD_UNSPEC == 0 && FI_RM_UNSPEC == 0 && FI_AV_UNSPEC == 0);

/// Fills in the attributes of a domain; without memory it gets no name.
void fill_domain(fi_domain_attr& domain, int mr_mode, const vcq::Backend& backend, const fi_domain_attr& wish) noexcept
{
    const std::size_t vcqs = backend.tni_count() * cqs_per_tni * backend.caps().num_cmp_ids;
    domain.name = strdup(domain_name());
    domain.threading = asked(wish.threading, FI_THREAD_SAFE);
    // Automatic progress costs a thread per domain, so only callers that ask for it get it.
    domain.control_progress =
        wish.control_progress == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    domain.data_progress = wish.data_progress == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
    domain.resource_mgmt = asked(wish.resource_mgmt, FI_RM_ENABLED);
    domain.av_type = asked(wish.av_type, FI_AV_TABLE);
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
    domain.caps = limits::domain_caps | FI_COLLECTIVE; // MPICH looks for it here
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
struct Release {
    void operator()(fi_info* info) const noexcept
    {
        if (info->domain_attr != nullptr)
            std::free(info->domain_attr->name);
        if (info->fabric_attr != nullptr)
            std::free(info->fabric_attr->name);
        if (info->nic != nullptr)
            fi_close(&info->nic->fid);
        for (void* part : {static_cast<void*>(info->tx_attr), static_cast<void*>(info->rx_attr),
                           static_cast<void*>(info->ep_attr), static_cast<void*>(info->domain_attr),
                           static_cast<void*>(info->fabric_attr), info->src_addr, info->dest_addr,
                           static_cast<void*>(info)})
            std::free(part);
    }
};
using Info = std::unique_ptr<fi_info, Release>;

/// The two ends that node, service and flags of fi_getinfo name.
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

/// The part that all infos of one answer have in common.
struct Answer {
    std::uint32_t version;
    const fi_info& wish; ///< the hints, or all zeroes
    bool any;            ///< there are no hints
    const vcq::Backend& backend;
    Ends ends;
    fid_fabric* fabric; ///< fi_fabric(3), fi_domain(3): the open ones that the hints name, or else the first ones
    fid_domain* domain;
};

bool fill_addresses(fi_info& info, const Ends& ends, const fi_info& wish) noexcept
{
    const bool textual = info.addr_format == FI_ADDR_STR;
    const AddressForm source(ends.source, textual);
    const AddressForm destination(ends.destination, textual);
    const bool ours = wish.src_addr == nullptr || ends.source_named;
    return copy_address(ours ? source.bytes : wish.src_addr, ours ? source.size : wish.src_addrlen, info.src_addr,
                        info.src_addrlen) &&
           (ends.to_peer ? copy_address(destination.bytes, destination.size, info.dest_addr, info.dest_addrlen)
                         : ends.destination_named ||
                               copy_address(wish.dest_addr, wish.dest_addrlen, info.dest_addr, info.dest_addrlen));
}

/// Null: no memory.
Info make(const Answer& answer, int mr_mode) noexcept
{
    Info info(allocate<fi_info>());
    if (info == nullptr)
        return nullptr;
    const fi_info& wish = answer.wish;
    info->caps = granted_caps(answer.any ? nullptr : &wish);
    info->addr_format = wish.addr_format;
    info->tx_attr = allocate<fi_tx_attr>();
    info->rx_attr = allocate<fi_rx_attr>();
    info->ep_attr = allocate<fi_ep_attr>();
    info->domain_attr = allocate<fi_domain_attr>();
    info->fabric_attr = allocate<fi_fabric_attr>();
    if (info->tx_attr == nullptr || info->rx_attr == nullptr || info->ep_attr == nullptr ||
        info->domain_attr == nullptr || info->fabric_attr == nullptr)
        return nullptr;
    fill(*info->tx_attr, info->caps, wish.tx_attr);
    fill(*info->rx_attr, info->caps, wish.rx_attr);
    fill_ep(*info->ep_attr, given(wish.ep_attr));
    fill_domain(*info->domain_attr, mr_mode, answer.backend, given(wish.domain_attr));
    if ((info->caps & FI_PEER) != 0) {
        info->domain_attr->caps |= FI_PEER;
        info->ep_attr->protocol_version = 1; // lnx takes it for that of its own protocol; addresses have ours
    }
    info->domain_attr->domain = answer.domain;
    info->fabric_attr->fabric = answer.fabric;
    info->fabric_attr->name = strdup(fabric_name); // prov_name stays null: libfabric fills it in
    info->fabric_attr->prov_version = FI_VERSION(1, 0);
    info->fabric_attr->api_version = answer.version;
    info->nic = make_nic(answer.backend);
    if (info->domain_attr->name == nullptr || info->fabric_attr->name == nullptr || info->nic == nullptr ||
        !fill_addresses(*info, answer.ends, wish))
        return nullptr;
    return info;
}

} // namespace

template <class Attr>
bool narrow(const Attr& asked, std::uint64_t caps, Attr& granted) noexcept
{
    if (!fits(asked, caps))
        return false;
    fill(granted, expand(asked.caps != 0 ? asked.caps : caps), &asked);
    return true;
}
template bool narrow(const fi_tx_attr&, std::uint64_t, fi_tx_attr&) noexcept;
template bool narrow(const fi_rx_attr&, std::uint64_t, fi_rx_attr&) noexcept;

const char* domain_name() noexcept
{
    int error = 0;
    const vcq::Backend* const backend = vcq::Backend::get(error);
    // Of the libraries the simulator alone has jobs.
    return backend != nullptr && backend->functions().job != nullptr ? "tofu-sim" : "tofu-d";
}

bool find_peer(const char* node, const char* service, EndpointAddress& peer) noexcept
{
    Ends ends;
    if (!find_ends(node, service, 0, ends) || !ends.to_peer)
        return false;
    peer = ends.destination;
    return true;
}

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info) noexcept
{
    Ends ends;
    if (!fits(hints) || !find_ends(node, service, flags, ends))
        return -FI_ENODATA;
    const fi_info& wish = given(hints);
    fid_fabric* const named_fabric = given(wish.fabric_attr).fabric;
    fid_domain* const named_domain = given(wish.domain_attr).domain;
    FabricBase* const fabric = FabricBase::all().find(named_fabric);
    DomainBase* const domain = DomainBase::all().find(named_domain);
    if ((named_fabric != nullptr && fabric == nullptr) || (named_domain != nullptr && domain == nullptr)) {
        TOFU_INFO(FI_LOG_CORE, "no match: the fabric or domain in the hints is not one of ours\n");
        return -FI_ENODATA;
    }
    int error = 0;
    const vcq::Backend* backend = vcq::Backend::get(error);
    if (backend == nullptr)
        return error == -FI_EINVAL || error == -FI_ENOSYS ? error : -FI_ENODATA;
    const Answer answer{version, wish, hints == nullptr, *backend, ends, fabric, domain};

    // A caller that names the three mode bits gets the style that saves lookups; any other may not handle them and gets
    // the one without duties first. Without RMA and atomics they are the same. Not both for whoever is able:
    // Open MPI's common code deals infos that differ in mr_mode alone out to its ranks in turn, as if each were an
    // interface, and ranks with different styles of keys can't use each other's.
    const bool able = (given(wish.domain_attr).mr_mode & limits::provider_mr_mode) == limits::provider_mr_mode;
    Info first;
    for (KeyStyle style : {able ? KeyStyle::provider : KeyStyle::user, KeyStyle::provider}) {
        int mode = 0;
        if (!mr_mode_for(style, version, hints, mode) || (first != nullptr && first->domain_attr->mr_mode == mode))
            continue;
        Info made = make(answer, mode);
        if (made == nullptr && first == nullptr)
            return -FI_ENOMEM;
        if (first == nullptr)
            first = std::move(made);
        else
            first->next = made.release();
    }
    if (first == nullptr)
        return -FI_ENODATA;
    *info = first.release();
    return 0;
}

} // namespace tofu
