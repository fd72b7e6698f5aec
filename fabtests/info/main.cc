// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3), fi_fabric(3) and fi_domain(3), statement by statement, and the refusal of what fi_trigger(3) offers;
// any provider (-p). Run by make check and by hand.
#include "info_checks.h"

#include <cstring>
#include <string>
#include <thread>

namespace fabtests {

namespace {

/// Only these fields may be zero in an info; sizes of addresses fit the addresses.
void check_whole(World& w, const fi_info& info)
{
    CHECK(w, info.tx_attr != nullptr && info.rx_attr != nullptr && info.ep_attr != nullptr);
    CHECK(w, info.domain_attr != nullptr && info.fabric_attr != nullptr);
    CHECK(w, info.domain_attr->name != nullptr && info.fabric_attr->name != nullptr);
    CHECK(w, info.fabric_attr->prov_name != nullptr);
    CHECK(w, info.caps != 0 && info.ep_attr->max_msg_size != 0);
    CHECK(w, info.ep_attr->type != FI_EP_UNSPEC);
    CHECK(w, (info.src_addr != nullptr) == (info.src_addrlen != 0));
    CHECK(w, (info.dest_addr != nullptr) == (info.dest_addrlen != 0));
    CHECK(w, info.domain_attr->cq_data_size == 0 || info.domain_attr->cq_data_size >= 4); // fi_domain(3)
    CHECK(w, info.ep_attr->msg_prefix_size % 8 == 0);                                     // fi_endpoint(3)
    // tx and rx capabilities are a subset of the endpoint's
    CHECK(w, (info.tx_attr->caps & ~info.caps) == 0 || !w.ours());
    CHECK(w, (info.rx_attr->caps & ~info.caps) == 0 || !w.ours());
}

/// DESCRIPTION: nothing given is everything there is; what does not match is -FI_ENODATA and no list
void lists(World& w)
{
    Ask all(w);
    CHECK(w, all() == 0 && all.info != nullptr);
    for (const fi_info* info = all.info; info != nullptr; info = info->next)
        check_whole(w, *info);
    fi_info* some = nullptr;
    CHECK(w, fi_getinfo(version, nullptr, nullptr, 0, nullptr, &some) == 0 && some != nullptr);
    for (const fi_info* info = some; info != nullptr; info = info->next)
        CHECK(w, info->domain_attr != nullptr && info->fabric_attr != nullptr);
    fi_freeinfo(some);
    Ask none(w);
    free(none.hints->fabric_attr->prov_name);
    none.hints->fabric_attr->prov_name = strdup("no-such-provider");
    none.info = all.info; // to be overwritten
    const int rc = fi_getinfo(version, nullptr, nullptr, 0, none.hints, &none.info);
    CHECK(w, rc == -FI_ENODATA && none.info == nullptr);
}

/// version: what a program asked for; FI_PROV_ATTR_ONLY
void versions(World& w)
{
    for (unsigned minor : {1u, 4u, 5u, 9u, 17u}) {
        Ask a(w);
        CHECK(w, a(0, FI_VERSION(1, minor)) == 0 || !w.ours());
        if (a.info != nullptr)
            CHECK(w, a.info->fabric_attr->api_version == FI_VERSION(1, minor));
    }
    Ask late(w);
    CHECK(w, late(0, FI_VERSION(99, 0)) < 0);
    Ask only(w);
    CHECK(w, only(FI_PROV_ATTR_ONLY) == 0);
    unsigned entries = 0; // "exactly one" of each provider
    for (const fi_info* info = only.info; info != nullptr; info = info->next)
        if (std::strcmp(info->fabric_attr->prov_name, w.info().fabric_attr->prov_name) == 0) {
            CHECK(w, info->fabric_attr->prov_version != 0);
            entries++;
        }
    CHECK(w, entries == 1 || !w.ours()); // a stack of two is named otherwise
}

/// "a provider must support the requested value or fail the operation"; "Output values will be greater than or equal"
void limits(World& w)
{
    struct Limit {
        std::size_t& (*of)(fi_info&);
        bool optimum; ///< "the optimal number": no limit
    };
    static constexpr Limit all[] = {
        {[](fi_info& i) -> std::size_t& { return i.tx_attr->inject_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.tx_attr->iov_limit; }, false},
        {[](fi_info& i) -> std::size_t& { return i.tx_attr->rma_iov_limit; }, false},
        {[](fi_info& i) -> std::size_t& { return i.tx_attr->size; }, true},
        {[](fi_info& i) -> std::size_t& { return i.rx_attr->iov_limit; }, false},
        {[](fi_info& i) -> std::size_t& { return i.rx_attr->size; }, true},
        {[](fi_info& i) -> std::size_t& { return i.ep_attr->max_msg_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.ep_attr->max_order_raw_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.ep_attr->max_order_war_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.ep_attr->max_order_waw_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->cq_data_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->mr_key_size; }, false},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->mr_iov_limit; }, false},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->max_err_data; }, false},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->ep_cnt; }, true},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->cq_cnt; }, true},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->cntr_cnt; }, true},
        {[](fi_info& i) -> std::size_t& { return i.domain_attr->mr_cnt; }, true},
    };
    Ask plain(w);
    CHECK(w, plain() == 0);
    for (const Limit& limit : all) {
        const std::size_t most = limit.of(*plain.info);
        if (most == 0)
            continue;
        for (std::size_t wanted : {std::size_t{1}, most}) {
            Ask a(w);
            limit.of(*a.hints) = wanted;
            CHECK(w, a() == 0 && limit.of(*a.info) >= wanted);
        }
        Ask more(w);
        limit.of(*more.hints) = ~std::size_t{0} / 2;
        const int rc = more();
        CHECK(w, limit.optimum || rc == -FI_ENODATA || limit.of(*more.info) >= ~std::size_t{0} / 2);
    }
    for (std::size_t contexts : {1u, 2u, 1000000u}) {
        Ask a(w);
        a.hints->ep_attr->tx_ctx_cnt = a.hints->ep_attr->rx_ctx_cnt = contexts;
        const int rc = a();
        CHECK(w, rc == 0 || (rc == -FI_ENODATA && (contexts > 2 || !w.ours())));
        if (rc == 0)
            CHECK(w, a.info->ep_attr->tx_ctx_cnt >= contexts && a.info->ep_attr->rx_ctx_cnt >= contexts);
    }
}

/// CAPABILITIES: primary ones when asked for and only then, modifiers where none is named, secondary ones or
/// -FI_ENODATA
void capabilities(World& w)
{
    constexpr std::uint64_t primary[] = {FI_MSG,          FI_TAGGED,    FI_RMA,          FI_ATOMIC, FI_DIRECTED_RECV,
                                         FI_NAMED_RX_CTX, FI_MULTICAST, FI_VARIABLE_MSG, FI_HMEM,   FI_COLLECTIVE};
    constexpr std::uint64_t messages = FI_SEND | FI_RECV;
    constexpr std::uint64_t memory = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    for (std::uint64_t kind : {FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC}) {
        Ask a(w);
        a.hints->caps = kind;
        const int rc = a();
        CHECK(w, rc == 0 || !w.ours());
        if (rc != 0)
            continue;
        const std::uint64_t implied = kind == FI_MSG || kind == FI_TAGGED ? messages : memory;
        CHECK(w, (a.info->caps & (kind | implied)) == (kind | implied));
        for (std::uint64_t other : primary)
            CHECK(w, other == kind || (a.info->caps & other) == 0);
        CHECK(w, (a.info->tx_attr->caps & kind) != 0 || !w.ours());
    }
    for (std::uint64_t modifier : {FI_SEND, FI_RECV}) {
        Ask a(w);
        a.hints->caps = FI_MSG | modifier;
        const int rc = a();
        CHECK(w, rc == 0 || !w.ours());
        if (rc == 0)
            CHECK(w, (a.info->caps & messages) == modifier);
    }
    for (std::uint64_t modifier : {FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE}) {
        Ask a(w);
        a.hints->caps = FI_RMA | modifier;
        const int rc = a();
        CHECK(w, rc == 0 || !w.ours());
        if (rc == 0)
            CHECK(w, (a.info->caps & memory) == modifier);
    }
    for (std::uint64_t secondary : {FI_MULTI_RECV, FI_SOURCE, FI_SHARED_AV, FI_TRIGGER, FI_FENCE, FI_LOCAL_COMM,
                                    FI_REMOTE_COMM, FI_SOURCE | FI_SOURCE_ERR, FI_RMA_PMEM, FI_RMA_EVENT}) {
        Ask a(w);
        a.hints->caps = FI_MSG | FI_RMA | secondary;
        const int rc = a();
        CHECK(w, rc == 0 ? (a.info->caps & secondary) == secondary : rc == -FI_ENODATA);
    }
}

/// MODE: bits that the caller does not name are not required of it
void modes(World& w)
{
    Ask a(w);
    a.hints->domain_attr->mr_mode = w.info().domain_attr->mr_mode;
    const int rc = a();
    CHECK(w, rc == 0 || !w.ours());
    for (const fi_info* info = a.info; info != nullptr; info = info->next)
        CHECK(w,
              info->mode == 0 && info->tx_attr->mode == 0 && info->rx_attr->mode == 0 && info->domain_attr->mode == 0);
    Ask able(w);
    able.hints->mode = ~std::uint64_t{0};
    CHECK(w, able() == 0);
    if (w.ours())
        CHECK(w, able.info->mode == 0); // "will clear mode bits that are not necessary"
}

/// Enumerations: what is asked for comes back, or -FI_ENODATA; FI_THREAD_SAFE and both tables of addresses
void choices(World& w)
{
    for (fi_threading threading :
         {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_ENDPOINT}) {
        Ask a(w);
        a.hints->domain_attr->threading = threading;
        const int rc = a();
        CHECK(w, rc == 0 || (threading != FI_THREAD_SAFE && !w.ours())); // "required to support FI_THREAD_SAFE"
        CHECK(w, rc != 0 || a.info->domain_attr->threading == threading || !w.ours());
    }
    for (fi_progress progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
        Ask a(w);
        a.hints->domain_attr->control_progress = a.hints->domain_attr->data_progress = progress;
        const int rc = a();
        CHECK(w, rc == 0 || !w.ours());
        CHECK(w, rc != 0 || a.info->domain_attr->data_progress == progress || !w.ours());
    }
    for (fi_resource_mgmt management : {FI_RM_ENABLED, FI_RM_DISABLED}) {
        Ask a(w);
        a.hints->domain_attr->resource_mgmt = management;
        CHECK(w, a() == 0 || !w.ours());
    }
    for (fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
        Ask a(w);
        a.hints->domain_attr->av_type = type;
        const int rc = a();
        CHECK(w, rc == 0 || !w.ours());
        CHECK(w, rc != 0 || a.info->domain_attr->av_type == type || a.info->domain_attr->av_type == FI_AV_UNSPEC);
    }
    for (fi_ep_type type : {FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM}) {
        Ask a(w);
        a.hints->ep_attr->type = type;
        const int rc = a();
        CHECK(w, rc == -FI_ENODATA || (rc == 0 && a.info->ep_attr->type == type));
        CHECK(w, !w.ours() || (rc == 0) == (type == FI_EP_RDM));
    }
    for (std::uint64_t order = 1; order <= FI_ORDER_ATOMIC_WAW; order <<= 1) {
        Ask a(w);
        a.hints->caps = FI_MSG | FI_RMA;
        a.hints->tx_attr->msg_order = order;
        const int rc = a();
        CHECK(w, rc == -FI_ENODATA || (rc == 0 && (a.info->tx_attr->msg_order & order) == order));
    }
}

/// Names: those of an answer are hints for the same answer, others for none
void names(World& w)
{
    Ask first(w);
    CHECK(w, first() == 0);
    for (bool domain : {false, true}) {
        Ask a(w), b(w);
        char*& good = domain ? a.hints->domain_attr->name : a.hints->fabric_attr->name;
        char*& bad = domain ? b.hints->domain_attr->name : b.hints->fabric_attr->name;
        good = strdup(domain ? first.info->domain_attr->name : first.info->fabric_attr->name);
        bad = strdup("tofu-nowhere");
        CHECK(w, a() == 0);
        for (const fi_info* info = a.info; info != nullptr; info = info->next)
            CHECK(w, std::strcmp(domain ? info->domain_attr->name : info->fabric_attr->name, good) == 0);
        CHECK(w, b() == -FI_ENODATA);
    }
    // An answer is a hint for itself.
    Ask again(w);
    fi_freeinfo(again.hints);
    again.hints = fi_dupinfo(first.info);
    CHECK(w, again() == 0);
    CHECK(w, again.info != nullptr && again.info->caps == first.info->caps);
}

/// fi_allocinfo, fi_dupinfo, fi_tostr, fi_strerror, fi_version
void helpers(World& w)
{
    fi_info* empty = fi_allocinfo();
    CHECK(w, empty != nullptr && empty->tx_attr != nullptr && empty->fabric_attr != nullptr && empty->caps == 0);
    fi_freeinfo(empty);
    Ask a(w);
    CHECK(w, a() == 0);
    fi_info* twin = fi_dupinfo(a.info);
    CHECK(w, twin != nullptr && twin->next == nullptr); // "a single fi_info structure"
    CHECK(w, twin->domain_attr != a.info->domain_attr && twin->domain_attr->name != a.info->domain_attr->name);
    CHECK(w, std::strcmp(twin->domain_attr->name, a.info->domain_attr->name) == 0);
    CHECK(w, twin->src_addrlen == a.info->src_addrlen);
    CHECK(w, twin->src_addr == nullptr || (twin->src_addr != a.info->src_addr &&
                                           std::memcmp(twin->src_addr, a.info->src_addr, twin->src_addrlen) == 0));
    const std::string text = fi_tostr(twin, FI_TYPE_INFO);
    for (const char* part : {"FI_EP_", static_cast<const char*>(twin->domain_attr->name),
                             static_cast<const char*>(twin->fabric_attr->prov_name)})
        CHECK(w, text.find(part) != std::string::npos);
    fi_freeinfo(twin);
    CHECK(w, FI_MAJOR(fi_version()) >= 1);
    for (int error : {0, FI_EAGAIN, FI_ENODATA, int{FI_ENOCQ}, int{FI_EOPBADSTATE}, int{FI_ETRUNC}, int{FI_ENOEQ}})
        CHECK(w, fi_strerror(error) != nullptr && fi_strerror(error)[0] != '\0');
}

/// NOTES: "Multiple threads may call fi_getinfo simultaneously"
void threads(World& w)
{
    std::vector<std::thread> all;
    for (unsigned t = 0; t < 4; ++t)
        all.emplace_back([&] {
            for (unsigned i = 0; i < 20; ++i) {
                Ask a(w);
                CHECK(w, a() == 0);
            }
        });
    for (std::thread& thread : all)
        thread.join();
}

/// fi_nic(3): the interface of an info, of a copy of it, and as text; a copy lives without the original
void nic(World& w)
{
    fi_info* twin = nullptr;
    {
        Ask a(w);
        CHECK(w, a() == 0);
        CHECK(w, a.info->nic != nullptr || !w.ours());
        if (a.info->nic == nullptr)
            return;
        twin = fi_dupinfo(a.info);
        CHECK(w, twin != nullptr && twin->nic != nullptr && twin->nic != a.info->nic);
    }
    const fid_nic& copy = *twin->nic;
    CHECK(w, copy.fid.fclass == FI_CLASS_NIC);
    CHECK(w, copy.device_attr != nullptr && copy.bus_attr != nullptr && copy.link_attr != nullptr);
    if (w.ours()) {
        CHECK(w, copy.device_attr->name != nullptr && copy.link_attr->network_type != nullptr);
        CHECK(w, copy.link_attr->mtu == 1920 && copy.link_attr->speed == 54'400'000'000);
        CHECK(w, std::string(fi_tostr(twin, FI_TYPE_INFO)).find("network_type: Tofu-D") != std::string::npos);
    }
    fi_freeinfo(twin);
}

constexpr Case cases[] = {
    {"lists", lists},
    {"versions", versions},
    {"limits", limits},
    {"capabilities", capabilities},
    {"modes", modes},
    {"choices", choices},
    {"names", names},
    {"helpers", helpers},
    {"nic", nic},
    {"threads", threads},
    {"addresses", info_addresses},
    {"text_addresses", info_text_addresses},
    {"instances", info_instances},
    {"fabric", info_fabric},
    {"domain", info_domain},
    {"domain_busy", info_domain_busy},
};

} // namespace

const Program program{{.ranks = 1, .caps = FI_TAGGED}, cases};

} // namespace fabtests
