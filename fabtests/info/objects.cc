// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of fi_getinfo(3), and fabrics and domains as fi_fabric(3) and fi_domain(3) have them.
#include "info_checks.h"

#include <string>

#include <rdma/fi_tagged.h>

// Poll sets: deprecated since libfabric 2, and still there.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace fabtests {
namespace {

bool same(const void* a, std::size_t a_length, const void* b, std::size_t b_length)
{
    return a_length == b_length && a != nullptr && b != nullptr && std::memcmp(a, b, a_length) == 0;
}

void set(void*& to, std::size_t& length, const void* from, std::size_t size)
{
    std::free(to);
    to = std::malloc(size);
    std::memcpy(to, from, size);
    length = size;
}

} // namespace

/// node, service, flags; src_addr and dest_addr of the hints, and when they are ignored
void info_addresses(World& w)
{
    if (!w.ours())
        return; // names and addresses differ from one provider to the other
    char own[64], other[64];
    std::memcpy(own, w.shared().name[w.rank()], w.shared().name_length[w.rank()]);
    const std::size_t size = w.shared().name_length[w.rank()];
    std::memcpy(other, own, size);
    other[size - 1] = static_cast<char>(other[size - 1] ^ 1);

    Ask kept(w); // no node, no service, no FI_SOURCE: the hints hold
    set(kept.hints->src_addr, kept.hints->src_addrlen, own, size);
    set(kept.hints->dest_addr, kept.hints->dest_addrlen, other, size);
    CHECK(w, kept() == 0);
    CHECK(w, same(kept.info->src_addr, kept.info->src_addrlen, own, size));
    CHECK(w, same(kept.info->dest_addr, kept.info->dest_addrlen, other, size));
    // "src_addr: ignored in hints if FI_SOURCE flag is set"; dest_addr is not
    CHECK(w, kept(FI_SOURCE, version, nullptr, "pages-info") == 0);
    CHECK(w, kept.info->src_addr != nullptr && !same(kept.info->src_addr, kept.info->src_addrlen, own, size));
    CHECK(w, same(kept.info->dest_addr, kept.info->dest_addrlen, other, size));
    // "dest_addr: ignored in hints unless the node and service parameters are NULL or FI_SOURCE flag is set"
    CHECK(w, kept(0, version, "localhost") == 0);
    CHECK(w, same(kept.info->src_addr, kept.info->src_addrlen, own, size));
    CHECK(w, kept.info->dest_addr == nullptr && kept.info->dest_addrlen == 0);
    // FI_NUMERICHOST: "suppress any lengthy name resolution protocol"
    CHECK(w, kept(FI_NUMERICHOST, version, "localhost") == -FI_ENODATA);
    CHECK(w, kept(FI_NUMERICHOST, version, "127.0.0.1") == 0);
    CHECK(w, kept(0, version, "no-such-host.invalid") == -FI_ENODATA);
    CHECK(w, kept(0, version, "localhost", "pages-nobody") == -FI_ENODATA);
}

/// ADDRESSING FORMATS, FI_ADDR_STR: "address_format[://...": as a node without a service, and as addresses
void info_text_addresses(World& w)
{
    Ask a(w);
    a.hints->addr_format = FI_ADDR_STR;
    const int rc = a();
    CHECK(w, rc == 0 || !w.ours());
    if (rc != 0)
        return;
    CHECK(w, a.info->addr_format == FI_ADDR_STR);
    if (!w.ours())
        return;
    CHECK(w, std::memchr(a.info->src_addr, '\0', a.info->src_addrlen) != nullptr);
    CHECK(w, std::strstr(static_cast<char*>(a.info->src_addr), "://") != nullptr);
    fid_domain* domain = nullptr;
    fid_ep* ep = nullptr;
    CHECK(w, fi_domain(w.fabric(), a.info, &domain, nullptr) == 0);
    CHECK(w, fi_endpoint(domain, a.info, &ep, nullptr) == 0);
    char name[128] = {};
    std::size_t length = sizeof name;
    CHECK(w, fi_getname(&ep->fid, name, &length) == 0 && length == std::strlen(name) + 1);
    CHECK(w, a(0, version, name) == 0);
    CHECK(w, same(a.info->dest_addr, a.info->dest_addrlen, name, length));
    CHECK(w, a(0, version, name, "1") == -FI_ENODATA); // "the service parameter must be NULL"
    CHECK(w, fi_close(&ep->fid) == 0 && fi_close(&domain->fid) == 0);
    for (std::uint32_t format : {FI_SOCKADDR, FI_SOCKADDR_IN, FI_ADDR_PSMX2}) { // not ours
        Ask b(w);
        b.hints->addr_format = format;
        CHECK(w, b() == -FI_ENODATA);
    }
}

/// fabric_attr.fabric, domain_attr.domain: "the first opened instance", and restriction to one
void info_instances(World& w)
{
    if (!w.ours())
        return; // others name none, or one of a layer below
    Ask a(w);
    CHECK(w, a() == 0);
    CHECK(w, a.info->fabric_attr->fabric == w.fabric() && a.info->domain_attr->domain == w.domain());
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    CHECK(w, fi_fabric(a.info->fabric_attr, &fabric, nullptr) == 0);
    CHECK(w, fi_domain(fabric, a.info, &domain, nullptr) == 0);
    CHECK(w, a() == 0 && a.info->fabric_attr->fabric == w.fabric());
    a.hints->fabric_attr->fabric = fabric;
    a.hints->domain_attr->domain = domain;
    CHECK(w, a() == 0 && a.info->fabric_attr->fabric == fabric && a.info->domain_attr->domain == domain);
    CHECK(w, fi_close(&domain->fid) == 0);
    CHECK(w, a() == -FI_ENODATA); // it is none any more
    a.hints->domain_attr->domain = nullptr;
    CHECK(w, a() == 0 && a.info->domain_attr->domain == w.domain());
    CHECK(w, fi_close(&fabric->fid) == 0);
}

/// fi_fabric, fi_close: "All items associated with the opened fabric must be released prior"
void info_fabric(World& w)
{
    Ask a(w);
    CHECK(w, a() == 0);
    fid_fabric* fabric = nullptr;
    CHECK(w, fi_fabric(a.info->fabric_attr, &fabric, &a) == 0);
    CHECK(w, fabric->fid.fclass == FI_CLASS_FABRIC && fabric->fid.context == &a);
    fi_eq_attr events{};
    fid_eq* eq = nullptr;
    CHECK(w, fi_eq_open(fabric, &events, &eq, nullptr) == 0);
    if (!CHECK(w, fi_close(&fabric->fid) == -FI_EBUSY))
        return;
    CHECK(w, fi_close(&eq->fid) == 0);
    fid_domain* domain = nullptr;
    CHECK(w, fi_domain(fabric, a.info, &domain, nullptr) == 0);
    if (!CHECK(w, fi_close(&fabric->fid) == -FI_EBUSY))
        return;
    CHECK(w, fi_close(&domain->fid) == 0);
    if (w.ours()) {
        fid_wait* set = nullptr;
        fi_wait_attr attr{};
        attr.wait_obj = FI_WAIT_UNSPEC;
        CHECK(w, fi_wait_open(fabric, &attr, &set) == 0 && fi_close(&fabric->fid) == -FI_EBUSY);
        CHECK(w, fi_close(&set->fid) == 0);
        void* ops = nullptr;
        CHECK(w, fi_open_ops(&fabric->fid, "anything", 0, &ops, nullptr) == -FI_ENOSYS);
        CHECK(w, fi_control(&fabric->fid, FI_GETWAIT, &ops) == -FI_ENOSYS);
        std::free(a.info->fabric_attr->name);
        a.info->fabric_attr->name = strdup("tofu-nowhere");
        fid_fabric* none = nullptr;
        CHECK(w, fi_fabric(a.info->fabric_attr, &none, nullptr) < 0);
    }
    CHECK(w, fi_close(&fabric->fid) == 0);
}

/// fi_domain, fi_domain_bind, fi_open_ops, fi_set_ops: "unknown or not supported ... -FI_ENOSYS"
void info_domain(World& w)
{
    Ask a(w);
    CHECK(w, a() == 0);
    fid_domain *first = nullptr, *second = nullptr;
    CHECK(w, fi_domain(w.fabric(), a.info, &first, &a) == 0);
    CHECK(w, fi_domain(w.fabric(), a.info, &second, nullptr) == 0);
    CHECK(w, first->fid.fclass == FI_CLASS_DOMAIN && first->fid.context == &a);
    CHECK(w, first != second);
    if (w.ours()) {
        void* ops = nullptr;
        CHECK(w, fi_open_ops(&first->fid, "anything", 0, &ops, nullptr) == -FI_ENOSYS);
        CHECK(w, fi_set_ops(&first->fid, "anything", 0, &ops, nullptr) == -FI_ENOSYS);
        CHECK(w, fi_domain_bind(first, &w.cq()->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_domain_bind(first, nullptr, 0) == -FI_EINVAL);
        fi_eq_attr events{};
        fid_eq* eq = nullptr;
        CHECK(w, fi_eq_open(w.fabric(), &events, &eq, nullptr) == 0);
        CHECK(w, fi_domain_bind(first, &eq->fid, FI_MORE) == -FI_EBADFLAGS);
        CHECK(w, fi_domain_bind(first, &eq->fid, 0) == 0 && fi_domain_bind(first, &eq->fid, 0) == -FI_EINVAL);
        CHECK(w, fi_close(&first->fid) == 0 && fi_close(&eq->fid) == 0);
        first = nullptr;
        std::free(a.info->domain_attr->name);
        a.info->domain_attr->name = strdup("tofu-nowhere");
        fid_domain* none = nullptr;
        CHECK(w, fi_domain(w.fabric(), a.info, &none, nullptr) == -FI_EINVAL);
        fid_domain* peer = nullptr; // "Mainly used for opening peer domain"
        CHECK(w, fi_domain2(w.fabric(), a.info, &peer, FI_PEER, nullptr) == -FI_ENOSYS);
    }
    CHECK(w, first == nullptr || fi_close(&first->fid) == 0);
    CHECK(w, fi_close(&second->fid) == 0);
}

/// fi_close: "All objects associated with the opened domain must be released prior to calling fi_close, otherwise the
/// call will return -FI_EBUSY"
void info_domain_busy(World& w)
{
    Ask a(w);
    a.hints->caps = FI_MSG | FI_RMA;
    CHECK(w, a() == 0);
    static unsigned char memory[4096];
    for (unsigned kind = 0; kind < (w.ours() ? 8u : 5u); ++kind) {
        fid_domain* domain = nullptr;
        CHECK(w, fi_domain(w.fabric(), a.info, &domain, nullptr) == 0);
        union {
            fid_av* av;
            fid_cq* cq;
            fid_cntr* cntr;
            fid_ep* ep;
            fid_mr* mr;
            fid_poll* poll;
            fid_stx* stx;
        } made{};
        fi_av_attr av{};
        av.type = FI_AV_TABLE;
        fi_cq_attr cq{};
        fi_cntr_attr cntr{};
        fi_poll_attr poll{};
        int rc = -1;
        switch (kind) {
        case 0: rc = fi_av_open(domain, &av, &made.av, nullptr); break;
        case 1: rc = fi_cq_open(domain, &cq, &made.cq, nullptr); break;
        case 2: rc = fi_cntr_open(domain, &cntr, &made.cntr, nullptr); break;
        case 3: rc = fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ, 0, 77, 0, &made.mr, nullptr); break;
        case 4: rc = fi_poll_open(domain, &poll, &made.poll); break;
        case 5: rc = fi_endpoint(domain, a.info, &made.ep, nullptr); break;
        case 6: rc = fi_stx_context(domain, a.info->tx_attr, &made.stx, nullptr); break;
        case 7: rc = fi_srx_context(domain, a.info->rx_attr, &made.ep, nullptr); break;
        }
        CHECK(w, rc == 0 || !w.ours());
        if (rc == 0) {
            if (!CHECK(w, fi_close(&domain->fid) == -FI_EBUSY))
                continue;                           // it is gone, and what hangs on it
            CHECK(w, fi_close(&made.av->fid) == 0); // every kind begins with its fid
        }
        CHECK(w, fi_close(&domain->fid) == 0);
    }
}

} // namespace fabtests
