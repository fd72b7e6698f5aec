// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See getinfo.h. The hints are checked attribute by attribute, against what core/limits.h promises.
#include "api/getinfo.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <rdma/fi_errno.h>

#include "api/names.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/object.h"
#include "core/peer_abi.h"
#include "cq/domain_base.h"
#include "mem/bounce_pool.h"
#include "utofu/library.h"

namespace tofu {

namespace {

constexpr std::uint32_t protocol = 0x746f6675; ///< ep_attr.protocol, a positive int: "tofu"

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
std::uint64_t offered_to_owners() noexcept
{
    return FI_AV_USER_ID | (peer::is_known() ? FI_PEER : 0);
}

bool can_have(std::size_t contexts) noexcept
{
    return contexts <= limits::max_contexts || contexts == FI_SHARED_CONTEXT;
}
/// Several contexts make a scalable endpoint, which has no shared ones (fi_endpoint(3) leaves that to providers).
bool can_have_both(std::size_t tx_contexts, std::size_t rx_contexts) noexcept
{
    const auto [fewer, more] = std::minmax(tx_contexts, rx_contexts);
    return more != FI_SHARED_CONTEXT || fewer == FI_SHARED_CONTEXT || fewer <= 1;
}

/// mem_tag_format: every structure of 64 bits is supported.
bool fits(const fi_ep_attr& hint) noexcept
{
    return possible("ep_attr->",
                    {
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
                        {can_have_both(hint.tx_ctx_cnt, hint.rx_ctx_cnt), "tx_ctx_cnt with that rx_ctx_cnt"},
                        {hint.auth_key_size == 0, "auth_key_size"},
                    });
}

bool fits(const fi_domain_attr& hint) noexcept
{
    return has_enumerators(hint) &&
           possible("domain_attr->",
                    {
                        {hint.name == nullptr || std::strcmp(hint.name, domain_name()) == 0, "name"},
                        {hint.cq_data_size <= limits::cq_data_size, "cq_data_size"},
                        {hint.auth_key_size == 0, "auth_key_size"},
                        {hint.cq_cnt <= limits::object_count, "cq_cnt"},
                        {hint.cntr_cnt <= limits::object_count, "cntr_cnt"},
                        {hint.mr_iov_limit <= limits::mr_iov_limit, "mr_iov_limit"},
                        {hint.ep_cnt <= max_endpoints, "ep_cnt"},
                        {hint.max_err_data <= limits::max_err_data, "max_err_data"},
                        {hint.mr_key_size <= limits::mr_key_size, "mr_key_size"},
                        {(hint.caps & ~(limits::domain_caps | FI_COLLECTIVE | (offered_to_owners() & FI_PEER))) == 0,
                         "caps"},
                        {hint.max_ep_tx_ctx <= limits::max_contexts, "max_ep_tx_ctx"},
                        {hint.max_ep_rx_ctx <= limits::max_contexts, "max_ep_rx_ctx"},
                        {hint.max_ep_stx_ctx <= max_endpoints, "max_ep_stx_ctx"},
                        {hint.max_ep_srx_ctx <= max_endpoints, "max_ep_srx_ctx"},
                    });
}

/// Those of the capabilities that only a provider asks for that will own our queues: FI_PEER, FI_AV_USER_ID.
std::uint64_t owner_caps(const fi_info* hints) noexcept
{
    if (hints == nullptr)
        return 0;
    const std::uint64_t of_domain = hints->domain_attr != nullptr ? hints->domain_attr->caps : 0;
    return (hints->caps & (FI_PEER | FI_AV_USER_ID)) | (of_domain & FI_PEER);
}

/// The capabilities of an info that answers these hints; null: no hints.
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

/// The message orders that are available with these capabilities.
std::uint64_t orders_for(std::uint64_t caps) noexcept
{
    const bool mixed = (caps & FI_RMA) != 0 && (caps & FI_ATOMIC) != 0;
    return limits::msg_order | (mixed ? 0 : limits::unmixed_msg_order);
}

/// Whether all requests of fi_tx_attr or fi_rx_attr can be met with these capabilities.
/// total_buffered_recv: a hint that a provider may ignore. FI_NAMED_RX_CTX is the sender's; MPICH names it for its
/// receive contexts too.
template <class Attr>
bool fits(const Attr& hint, std::uint64_t caps) noexcept
{
    constexpr bool sends = std::is_same_v<Attr, fi_tx_attr>;
    constexpr std::uint64_t side = sends ? limits::tx_caps : limits::rx_caps | FI_NAMED_RX_CTX;
    const char* const structure = sends ? "tx_attr->" : "rx_attr->";
    const bool common = possible(
        structure, {
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

/// Whether all requests of the hints can be met. A false leaves a line at info level that names the attribute. mr_mode
/// and the objects that are named are not checked: see mr_mode_for, and get_info.
bool fits(const fi_info* hints) noexcept
{
    if (hints == nullptr)
        return true;
    const char* const fabric = hints->fabric_attr != nullptr ? hints->fabric_attr->name : nullptr;
    const std::uint64_t caps = granted_caps(hints);
    // An owner says when there is progress, for it serialises that with its own (fi_peer(3), "Peer SRX").
    const bool own_pace =
        (caps & FI_PEER) != 0 && hints->domain_attr != nullptr && hints->domain_attr->data_progress == FI_PROGRESS_AUTO;
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

/// The two ways of registering memory (fi_mr(3)), by the origin of keys.
enum class KeyStyle { provider, user };

/// The mr_mode that the caller gets for this style of keys. False: its hints rule the style out. Before version 1.5 a
/// hint of 0 rules nothing out (fi_mr(3), FI_MR_UNSPEC); since then the caller sets the bits that it can do.
bool mr_mode_for(KeyStyle style, std::uint32_t version, const fi_info* hints, int& mode) noexcept
{
    const int hint = hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->mr_mode : 0;
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

// --- the description of the network interface in an info (fid_nic, fi_nic(3))

// Ajima et al., "The Tofu Interconnect D", CLUSTER 2018: 6.8 GB/s each way.
constexpr std::size_t link_bits_per_s = 54'400'000'000;

/// An interface with its parts. Its strings are the C library's.
struct Nic : fid_nic {
    fi_device_attr device{};
    fi_bus_attr bus{};
    fi_link_attr link{};
    static Nic& of(struct fid* fid) noexcept { return static_cast<Nic&>(*reinterpret_cast<fid_nic*>(fid)); }
    [[nodiscard]] std::array<char**, 4> strings() noexcept
    {
        return {&device.name, &device.driver, &link.address, &link.network_type};
    }
};

int close_nic(struct fid* fid) noexcept
{
    Nic& nic = Nic::of(fid);
    for (char** text : nic.strings())
        std::free(*text);
    delete &nic;
    return 0;
}

/// Null: no memory.
fid_nic* copy_of(const Nic& from) noexcept
{
    auto* const nic = new (std::nothrow) Nic(from);
    if (nic == nullptr)
        return nullptr;
    nic->device_attr = &nic->device;
    nic->bus_attr = &nic->bus;
    nic->link_attr = &nic->link;
    for (char** text : nic->strings())
        *text = *text != nullptr ? strdup(*text) : nullptr;
    return nic;
}

/// fi_dupinfo(3) asks for a copy by FI_DUP.
int control_nic(struct fid* fid, int command, void* argument) noexcept
{
    if (command != FI_DUP)
        return -FI_ENOSYS;
    fid_nic* const copy = copy_of(Nic::of(fid));
    *static_cast<fid_nic**>(argument) = copy; // also a null: libfabric closes what it finds there
    return copy != nullptr ? 0 : -FI_ENOMEM;
}

/// fi_tostr(3) of an info: appends what libfabric's own interfaces show.
int show_nic(const struct fid* fid, char* text, std::size_t size) noexcept
{
    const auto* const nic = reinterpret_cast<const fid_nic*>(fid);
    const auto shown = [](const char* part) { return part != nullptr ? part : "-"; };
    const std::size_t used = strnlen(text, size);
    char placement[512];
    describe_placement(placement, sizeof placement);
    std::snprintf(text + used, size - used,
                  "    nic:\n"
                  "        fi_device_attr:\n            name: %s\n            driver: %s\n"
                  "        fi_bus_attr:\n            bus_type: FI_BUS_UNKNOWN\n"
                  "        fi_link_attr:\n            address: %s\n            mtu: %zu\n            speed: %zu\n"
                  "            state: FI_LINK_UP\n            network_type: %s\n"
                  "        placement:\n            %s\n",
                  shown(nic->device_attr->name), shown(nic->device_attr->driver), shown(nic->link_attr->address),
                  nic->link_attr->mtu, nic->link_attr->speed, shown(nic->link_attr->network_type), placement);
    return 0;
}

fi_ops nic_ops = {.size = sizeof(fi_ops),
                  .close = close_nic,
                  .bind = nullptr,
                  .control = control_nic,
                  .ops_open = nullptr,
                  .tostr = show_nic,
                  .ops_set = nullptr};

/// Describes the interface controller of a node; a domain uses all its TNIs. The caller closes it, or gives it to an
/// info, which then owns it; fi_dupinfo copies it. Null: no memory.
fid_nic* make_nic(const vcq::Backend& backend) noexcept
{
    const vcq::Functions& f = backend.functions();
    const bool simulated = f.job != nullptr;
    const auto text = [](const char* literal) { return const_cast<char*>(literal); }; // of which a copy is made
    Nic nic{};
    nic.fid.fclass = FI_CLASS_NIC;
    nic.fid.ops = &nic_ops;
    nic.device.name = text("tofu");
    nic.device.driver = text(simulated ? "tofu_sim" : "libtofucom");
    nic.bus.bus_type = FI_BUS_UNKNOWN; // on the processor's chip
    // The node's coordinates, x.y.z.a.b.c, unless the query would make the process join the simulator's job, which a
    // mere query of fi_getinfo must not do.
    std::uint8_t c[6] = {};
    char address[6 * 4];
    if (!simulated && f.query_my_coords != nullptr && f.query_my_coords(c) == UTOFU_SUCCESS) {
        std::snprintf(address, sizeof(address), "%u.%u.%u.%u.%u.%u", c[0], c[1], c[2], c[3], c[4], c[5]);
        nic.link.address = address;
    }
    nic.link.mtu = backend.caps().max_mtu;
    nic.link.speed = link_bits_per_s;
    nic.link.state = FI_LINK_UP;
    nic.link.network_type = text("Tofu-D");
    return copy_of(nic);
}

// --- the answer. Memory is the C library's: libfabric frees it.

/// Control queues of a TNI of the Tofu-D that user programs may have (guide, table 6.2): the library has no call for
/// it.
constexpr std::size_t cqs_per_tni = 9;

/// Room for the attributes of newer libfabric versions, whose free functions read them.
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
    attr.op_flags = attr_or_default(hint).op_flags;
    // Without hints: everything that is supported, for the caller to choose from. With hints that name no
    // order: that of messages, since the others cost a flag on each transfer.
    attr.msg_order = hint == nullptr ? orders_for(caps) : asked(hint->msg_order, std::uint64_t{FI_ORDER_SAS});
    attr.size = asked(attr_or_default(hint).size, sends ? limits::tx_size : limits::rx_size);
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
    domain.control_progress = wish.control_progress == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
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
        for (void* part :
             {static_cast<void*>(info->tx_attr), static_cast<void*>(info->rx_attr), static_cast<void*>(info->ep_attr),
              static_cast<void*>(info->domain_attr), static_cast<void*>(info->fabric_attr), info->src_addr,
              info->dest_addr, static_cast<void*>(info)})
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

/// fi_getinfo(3): with FI_SOURCE they name this side, else the other one. False: the name is unknown.
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
        TOFU_INFO(FI_LOG_CORE,
                  "%s is neither an address of this provider (tofu://...) nor this machine: correct the node name\n",
                  node);
        return false;
    }
    // This machine without a service is no peer yet: its address comes another way (fi_av_insert(3)).
    if (here || service == nullptr)
        return true;
    if (!names::find(names::key_of(service), ends.destination)) {
        TOFU_INFO(
            FI_LOG_CORE,
            "no endpoint of this user and job is published as %s: start the server first, or correct the service\n",
            service);
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
    fill_ep(*info->ep_attr, attr_or_default(wish.ep_attr));
    fill_domain(*info->domain_attr, mr_mode, answer.backend, attr_or_default(wish.domain_attr));
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

std::uint64_t expand(std::uint64_t caps) noexcept
{
    if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & (FI_SEND | FI_RECV)) == 0)
        caps |= FI_SEND | FI_RECV;
    if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & (FI_READ | FI_WRITE | remote_caps)) == 0)
        caps |= FI_READ | FI_WRITE | remote_caps;
    return caps;
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

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info) noexcept
{
    Ends ends;
    if (!fits(hints) || !find_ends(node, service, flags, ends))
        return -FI_ENODATA;
    const fi_info& wish = attr_or_default(hints);
    fid_fabric* const named_fabric = attr_or_default(wish.fabric_attr).fabric;
    fid_domain* const named_domain = attr_or_default(wish.domain_attr).domain;
    FabricBase* const fabric = FabricBase::all().find(named_fabric);
    DomainBase* const domain = DomainBase::all().find(named_domain);
    if ((named_fabric != nullptr && fabric == nullptr) || (named_domain != nullptr && domain == nullptr)) {
        TOFU_INFO(FI_LOG_CORE,
                  "no match: the fabric or domain in the hints belongs to another provider: correct or clear it\n");
        return -FI_ENODATA;
    }
    int error = 0;
    const vcq::Backend* backend = vcq::Backend::get(error);
    if (backend == nullptr)
        return error; // -FI_ENODATA, or what is wrong
    const Answer answer{version, wish, hints == nullptr, *backend, ends, fabric, domain};

    // A caller that names the three mode bits gets the style that saves lookups; any other may not handle them and gets
    // the one without duties first. Without RMA and atomics they are the same. A caller that supports both styles gets
    // one: Open MPI's common code distributes infos that differ only in mr_mode over its ranks, as if each were an
    // interface, and ranks with different styles of keys cannot use each other's keys.
    const bool able =
        (attr_or_default(wish.domain_attr).mr_mode & limits::provider_mr_mode) == limits::provider_mr_mode;
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
