// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_endpoint(3) says of scalable endpoints and shared contexts.
#include <cstring>

#include "endpoint_checks.h"

namespace fabtests {

Realm::Realm(World& world, std::size_t tx_contexts, std::size_t rx_contexts, std::uint64_t more_caps, int rx_ctx_bits)
    : w(world)
{
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_TAGGED | more_caps;
    hints->ep_attr->type = FI_EP_RDM;
    hints->ep_attr->tx_ctx_cnt = tx_contexts;
    hints->ep_attr->rx_ctx_cnt = rx_contexts;
    hints->domain_attr->mr_mode = w.info().domain_attr->mr_mode;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->fabric_attr->prov_name = strdup(w.info().fabric_attr->prov_name);
    const int found = fi_getinfo(FI_VERSION(1, 11), nullptr, nullptr, 0, hints, &info_);
    fi_freeinfo(hints);
    CHECK(w, found == 0 || !w.ours());
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.rx_ctx_bits = rx_ctx_bits;
    if (found != 0 || fi_domain(w.fabric(), info_, &domain_, nullptr) != 0 ||
        fi_av_open(domain_, &attr, &av_, nullptr) != 0)
        CHECK(w, !w.ours());
}

Realm::~Realm()
{
    close(av_ ? &av_->fid : nullptr);
    close(domain_ ? &domain_->fid : nullptr);
    if (info_ != nullptr)
        fi_freeinfo(info_);
}

fid_cq* Realm::open_queue()
{
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = 256;
    fid_cq* cq = nullptr;
    CHECK(w, fi_cq_open(domain_, &attr, &cq, nullptr) == 0);
    return cq;
}

fi_addr_t Realm::meet(fid* object, unsigned peer)
{
    Shared& shared = w.shared();
    shared.name_length[w.rank()] = sizeof shared.name[0];
    CHECK(w, fi_getname(object, shared.name[w.rank()], &shared.name_length[w.rank()]) == 0);
    w.barrier();
    fi_addr_t at = FI_ADDR_NOTAVAIL;
    CHECK(w, fi_av_insert(av_, shared.name[peer], 1, &at, 0, nullptr) == 1);
    w.barrier();
    return at;
}

int Realm::wait(fid_cq* cq, std::span<fid_cq* const> others, fi_cq_tagged_entry& entry)
{
    int error = -1;
    const bool came = w.until([&] {
        for (fid_cq* other : others)
            (void)fi_cq_read(other, nullptr, 0);
        const ssize_t n = fi_cq_read(cq, &entry, 1);
        fi_cq_err_entry failed{};
        if (n == 1)
            error = 0;
        else if (n == -FI_EAVAIL && fi_cq_readerr(cq, &failed, 0) == 1)
            error = failed.err;
        return error >= 0;
    });
    if (!came)
        w.give_up("no entry arrived");
    return error;
}

namespace {

constexpr unsigned contexts = 3;
constexpr int context_bits = 2;

/// A scalable endpoint with its contexts, each with a queue of its own.
struct Scalable {
    World& w;
    Realm& realm;
    fid_ep* ep = nullptr;
    fid_ep *tx[contexts] = {}, *rx[contexts] = {};
    fid_cq *tx_cq[contexts] = {}, *rx_cq[contexts] = {};
    fid_cq* all[2 * contexts] = {};

    Scalable(World& world, Realm& r) : w(world), realm(r)
    {
        const int rc = fi_scalable_ep(realm.domain(), const_cast<fi_info*>(&realm.info()), &ep, this);
        CHECK(w, rc == 0 || !w.ours());
        if (rc != 0) {
            ep = nullptr;
            return;
        }
        CHECK(w, fi_scalable_ep_bind(ep, &realm.av()->fid, 0) == 0);
        for (unsigned i = 0; i < contexts; ++i) {
            // "Providers will return the actual attributes assigned to the context"
            fi_tx_attr sends = *realm.info().tx_attr;
            sends.inject_size = 0;
            CHECK(w, fi_tx_context(ep, static_cast<int>(i), i == 1 ? &sends : nullptr, &tx[i], &tx[i]) == 0);
            CHECK(w, i != 1 || !w.ours() || sends.inject_size == realm.info().tx_attr->inject_size);
            CHECK(w, fi_rx_context(ep, static_cast<int>(i), nullptr, &rx[i], &rx[i]) == 0);
            CHECK(w, tx[i]->fid.context == &tx[i] && rx[i]->fid.context == &rx[i]);
            CHECK(w, tx[i]->fid.fclass == FI_CLASS_TX_CTX && rx[i]->fid.fclass == FI_CLASS_RX_CTX);
            all[i] = tx_cq[i] = realm.open_queue();
            all[contexts + i] = rx_cq[i] = realm.open_queue();
            CHECK(w, fi_ep_bind(tx[i], &tx_cq[i]->fid, FI_TRANSMIT) == 0);
            CHECK(w, fi_ep_bind(rx[i], &rx_cq[i]->fid, FI_RECV) == 0);
        }
        CHECK(w, fi_enable(ep) == 0);
        for (unsigned i = 0; i < contexts; ++i)
            CHECK(w, fi_enable(tx[i]) == 0 && fi_enable(rx[i]) == 0);
    }
    Scalable(const Scalable&) = delete;
    ~Scalable()
    {
        if (ep == nullptr)
            return;
        for (unsigned i = 0; i < contexts; ++i) {
            if (w.ours())
                CHECK(w, fi_close(&ep->fid) == -FI_EBUSY); // "there must be no opened transmit contexts, or receive"
            realm.close(&tx[i]->fid);
            realm.close(&rx[i]->fid);
            realm.close(&tx_cq[i]->fid);
            realm.close(&rx_cq[i]->fid);
        }
        realm.close(&ep->fid);
    }
};

} // namespace

/// SCALABLE ENDPOINTS: any transmit context reaches any receive context by name (fi_rx_addr), each with a queue of its
/// own, behind "a single transport level address"
void ep_scalable(World& w)
{
    Realm realm(w, contexts, contexts, FI_NAMED_RX_CTX, context_bits);
    if (!realm.opened())
        return;
    Scalable s(w, realm);
    if (s.ep == nullptr)
        return;
    CHECK(w, s.ep->fid.fclass == FI_CLASS_SEP && s.ep->fid.context == &s);
    const fi_addr_t peer = realm.meet(&s.ep->fid, next(w));
    fi_cq_tagged_entry entry{};
    for (unsigned from = 0; from < contexts; ++from)
        for (unsigned to = 0; to < contexts; ++to) {
            unsigned round = from * contexts + to;
            fill(w.local(), 300, w.rank(), round);
            CHECK(w, fi_trecv(s.rx[to], w.local(4096), 300, w.desc(), FI_ADDR_UNSPEC, round, 0, &round) == 0);
            w.barrier();
            const fi_addr_t address = fi_rx_addr(peer, static_cast<int>(to), context_bits);
            CHECK(w, w.until([&] {
                for (fid_cq* cq : s.all)
                    (void)fi_cq_read(cq, nullptr, 0);
                return fi_tsend(s.tx[from], w.local(), 300, w.desc(), address, round, &s) == 0;
            }));
            CHECK(w, realm.wait(s.rx_cq[to], s.all, entry) == 0 && entry.op_context == &round);
            CHECK(w, realm.wait(s.tx_cq[from], s.all, entry) == 0 && entry.op_context == &s);
            CHECK(w, wrong(w.local(4096), 300, before(w), round) == 0);
            for (fid_cq* cq : s.all)
                CHECK(w, fi_cq_read(cq, &entry, 1) == -FI_EAGAIN); // no other context has heard of it
            w.barrier();
        }
}

void ep_scalable_refusals(World& w)
{
    if (!w.ours())
        return;
    Realm realm(w, contexts, contexts, FI_NAMED_RX_CTX, context_bits);
    Scalable s(w, realm);
    fid_ep* none = nullptr;
    // "cannot be used directly for communication operations"
    CHECK(w, fi_tsend(s.ep, w.local(), 8, w.desc(), 0, 0, nullptr) < 0);
    CHECK(w, fi_trecv(s.ep, w.local(), 8, w.desc(), FI_ADDR_UNSPEC, 0, 0, nullptr) < 0);
    CHECK(w, fi_tx_context(s.ep, contexts, nullptr, &none, nullptr) == -FI_EINVAL);
    CHECK(w, fi_rx_context(s.ep, -1, nullptr, &none, nullptr) == -FI_EINVAL);
    // "a transmit context behaves similar to a send-only endpoint"
    CHECK(w, fi_trecv(s.tx[0], w.local(), 8, w.desc(), FI_ADDR_UNSPEC, 0, 0, nullptr) < 0);
    CHECK(w, fi_tsend(s.rx[0], w.local(), 8, w.desc(), 0, 0, nullptr) < 0);
    // queues are the contexts'; the address vector is the endpoint's, and implicitly theirs
    CHECK(w, fi_scalable_ep_bind(s.ep, &s.tx_cq[0]->fid, FI_TRANSMIT) == -FI_EINVAL);
    CHECK(w, fi_scalable_ep_bind(s.ep, &realm.av()->fid, 0) == -FI_EINVAL);
    // of another domain
    Realm other(w, contexts, contexts, FI_NAMED_RX_CTX, context_bits);
    fid_ep* fresh = nullptr;
    CHECK(w, fi_scalable_ep(realm.domain(), const_cast<fi_info*>(&realm.info()), &fresh, nullptr) == 0);
    CHECK(w, fi_scalable_ep_bind(fresh, &other.av()->fid, 0) == -FI_EDOMAIN);
    CHECK(w, fi_enable(fresh) == -FI_ENOAV);
    realm.close(&fresh->fid);
}

namespace {

/// Two endpoints that share, each with a queue for either side.
struct Pair {
    World& w;
    Realm& realm;
    fid_ep* ep[2] = {};
    fid_cq* all[4] = {};
    fid_cq** tx = all;
    fid_cq** rx = all + 2;

    Pair(World& world, Realm& r, fid* shared) : w(world), realm(r)
    {
        for (unsigned i = 0; i < 2; ++i) {
            CHECK(w, fi_endpoint(realm.domain(), const_cast<fi_info*>(&realm.info()), &ep[i], nullptr) == 0);
            tx[i] = realm.open_queue();
            rx[i] = realm.open_queue();
            CHECK(w, fi_ep_bind(ep[i], &realm.av()->fid, 0) == 0);
            CHECK(w, fi_ep_bind(ep[i], &tx[i]->fid, FI_TRANSMIT) == 0);
            CHECK(w, fi_ep_bind(ep[i], &rx[i]->fid, FI_RECV) == 0);
            if (w.ours())
                CHECK(w, fi_enable(ep[i]) == -FI_EOPBADSTATE); // "must be bound to the endpoint"
            CHECK(w, fi_ep_bind(ep[i], shared, 0) == 0);
            if (w.ours())
                CHECK(w, fi_ep_bind(ep[i], shared, 0) == -FI_EINVAL); // "only ... a single" one
            CHECK(w, fi_enable(ep[i]) == 0);
        }
    }
    Pair(const Pair&) = delete;
    ~Pair()
    {
        w.barrier();
        for (unsigned i = 0; i < 2; ++i) {
            realm.close(&ep[i]->fid);
            realm.close(&tx[i]->fid);
            realm.close(&rx[i]->fid);
        }
    }
    void send(unsigned by, fi_addr_t to, void* context)
    {
        CHECK(w, w.until([&] {
            for (fid_cq* cq : all)
                (void)fi_cq_read(cq, nullptr, 0);
            return fi_tsend(ep[by], w.local(), 8, w.desc(), to, 1, context) == 0;
        }));
    }
};

} // namespace

/// SHARED CONTEXTS, fi_stx_context: "Completed operations are posted to the CQs bound to the endpoint."
void ep_shared_transmit(World& w)
{
    Realm realm(w, FI_SHARED_CONTEXT, 0, 0, 0);
    if (!realm.opened())
        return;
    fid_stx* shared = nullptr;
    const int rc = fi_stx_context(realm.domain(), realm.info().tx_attr, &shared, &w);
    CHECK(w, rc == 0 || !w.ours());
    if (rc != 0)
        return;
    CHECK(w, shared->fid.fclass == FI_CLASS_STX_CTX && shared->fid.context == &w);
    {
        Pair p(w, realm, &shared->fid);
        if (w.ours())
            CHECK(w, fi_close(&shared->fid) == -FI_EBUSY);
        const fi_addr_t peers[2] = {realm.meet(&p.ep[0]->fid, next(w)), realm.meet(&p.ep[1]->fid, next(w))};
        fi_cq_tagged_entry entry{};
        for (unsigned from = 0; from < 2; ++from)
            for (unsigned to = 0; to < 2; ++to) {
                CHECK(w, fi_trecv(p.ep[to], w.local(4096), 8, w.desc(), FI_ADDR_UNSPEC, 1, 0, &entry) == 0);
                w.barrier();
                p.send(from, peers[to], &from);
                CHECK(w, realm.wait(p.rx[to], p.all, entry) == 0 && entry.op_context == &entry);
                CHECK(w, realm.wait(p.tx[from], p.all, entry) == 0 && entry.op_context == &from);
                for (fid_cq* cq : p.all)
                    CHECK(w, fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
                w.barrier();
            }
    }
    realm.close(&shared->fid);
}

/// fi_srx_context: "post receive buffers directly to a shared receive context, with the buffers usable by any endpoint
/// bound"; "must also share the same address vector"
void ep_shared_receive(World& w)
{
    Realm realm(w, 0, FI_SHARED_CONTEXT, 0, 0);
    if (!realm.opened())
        return;
    fid_ep* shared = nullptr;
    const int rc = fi_srx_context(realm.domain(), realm.info().rx_attr, &shared, &w);
    CHECK(w, rc == 0 || !w.ours());
    if (rc != 0)
        return;
    CHECK(w, shared->fid.fclass == FI_CLASS_SRX_CTX && shared->fid.context == &w);
    {
        Pair p(w, realm, &shared->fid);
        const fi_addr_t peers[2] = {realm.meet(&p.ep[0]->fid, next(w)), realm.meet(&p.ep[1]->fid, next(w))};
        fi_cq_tagged_entry entry{};
        for (unsigned round = 0; round < 4; ++round) {
            const unsigned to = round % 2;
            CHECK(w, fi_trecv(shared, w.local(4096), 8, w.desc(), FI_ADDR_UNSPEC, 1, 0, &round) == 0);
            w.barrier();
            p.send(round / 2, peers[to], &p);
            CHECK(w, realm.wait(p.rx[to], p.all, entry) == 0 && entry.op_context == &round);
            CHECK(w, realm.wait(p.tx[round / 2], p.all, entry) == 0 && entry.op_context == &p);
            for (fid_cq* cq : p.all)
                CHECK(w, fi_cq_read(cq, &entry, 1) == -FI_EAGAIN);
            w.barrier();
        }
        if (w.ours()) {
            CHECK(w, fi_close(&shared->fid) == -FI_EBUSY);
            CHECK(w, fi_trecv(p.ep[0], w.local(), 8, w.desc(), FI_ADDR_UNSPEC, 1, 0, nullptr) < 0);
            CHECK(w, fi_ep_bind(shared, &p.rx[0]->fid, FI_RECV) == -FI_EINVAL); // "not associated with" queues
            fi_av_attr attr{};
            attr.type = FI_AV_TABLE;
            fid_av* another = nullptr;
            fid_ep* third = nullptr;
            CHECK(w, fi_av_open(realm.domain(), &attr, &another, nullptr) == 0);
            CHECK(w, fi_endpoint(realm.domain(), const_cast<fi_info*>(&realm.info()), &third, nullptr) == 0);
            CHECK(w, fi_ep_bind(third, &another->fid, 0) == 0 && fi_ep_bind(third, &shared->fid, 0) == 0);
            CHECK(w, fi_ep_bind(third, &p.tx[0]->fid, FI_TRANSMIT | FI_RECV) == 0);
            CHECK(w, fi_enable(third) == -FI_EINVAL);
            realm.close(&third->fid);
            realm.close(&another->fid);
        }
    }
    realm.close(&shared->fid);
}

} // namespace fabtests
