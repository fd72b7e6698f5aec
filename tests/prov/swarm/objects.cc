// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opens and closes processes and endpoints, kills processes. See world_impl.h.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "av/address.h"
#include "world_impl.h"

namespace swarm {
namespace {

/// What all endpoints of a process ask for; the caller adds contexts.
void ask(fi_info& hints, const Setup& setup, unsigned process)
{
    hints.caps = FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_FENCE;
    hints.tx_attr->msg_order = hints.rx_attr->msg_order = FI_ORDER_SAS;
    hints.domain_attr->threading = setup.apart != 0 ? FI_THREAD_DOMAIN : FI_THREAD_SAFE;
    if (setup.form == 1)
        hints.caps |= FI_NAMED_RX_CTX;
    if (setup.groups != 0 && setup.form == 0)
        hints.caps |= FI_COLLECTIVE;
    if (setup.triggers != 0)
        hints.caps |= FI_TRIGGER;
    ask_for_remote(hints, setup, process);
}

} // namespace

// --- opening

fi_info* World::find(unsigned p, bool plain)
{
    fi_info* const hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("tofu");
    hints->ep_attr->type = FI_EP_RDM;
    ask(*hints, program_.setup, p);
    if (program_.setup.form == 1 && !plain)
        hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = most_contexts;
    if (shares_tx())
        hints->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    if (shares_rx())
        hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    fi_info* const found = platform_->find(*hints);
    fi_freeinfo(hints);
    if (found == nullptr)
        contradict("fi_getinfo finds nothing");
    return found;
}

void World::start(unsigned p)
{
    platform_->start(p);
    platform_->on(p, [this, p] { start_here(p); });
}

void World::start_here(unsigned p)
{
    Process& process = processes_[p];
    platform_->enter(p);
    process.objects = std::make_unique<Objects>();
    Objects& o = *process.objects;
    o.info = find(p, false);
    if (program_.setup.form == 1)
        o.plain = find(p, true);
    must(platform_->open_fabric(o.info->fabric_attr, &o.fabric), "fi_fabric");
    must(fi_domain(o.fabric, o.info, &o.domain, nullptr), "fi_domain");
    if (program_.setup.sharedav != 0) {
        o.peers = &shared_peers_;
        sharers_++;
    }
    open_vector(p);
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_TAGGED;
    cq.size = 4096;
    cq.wait_obj = wait_object(program_.setup);
    must(fi_cq_open(o.domain, &cq, &o.cq, nullptr), "fi_cq_open");
    if (program_.setup.groups != 0 && program_.setup.form == 0) {
        fi_eq_attr eq{};
        eq.wait_obj = wait_object(program_.setup);
        must(fi_eq_open(o.fabric, &eq, &o.eq, nullptr), "fi_eq_open");
    }
    if (shares_tx())
        must(fi_stx_context(o.domain, o.info->tx_attr, &o.stx, nullptr), "fi_stx_context");
    if (shares_rx()) {
        must(fi_srx_context(o.domain, o.info->rx_attr, &o.srx, nullptr), "fi_srx_context");
        auto pool = std::make_unique<Endpoint>();
        pool->number = static_cast<unsigned>(model_.endpoints.size());
        pool->process = p;
        pool->slot = slots;
        o.pool = pool.get();
        addresses_.emplace_back();
        model_.endpoints.push_back(std::move(pool));
    }
    if (program_.setup.triggers != 0) {
        fi_cntr_attr attr{};
        must(fi_cntr_open(o.domain, &attr, &o.trigger, nullptr), "fi_cntr_open");
    }
    open(p, 0);
}

void World::open_vector(unsigned p)
{
    Objects& o = *processes_[p].objects;
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.name = program_.setup.sharedav != 0 ? shared_vector : nullptr;
    attr.rx_ctx_bits = program_.setup.form == 1 ? rx_bits : 0;
    must(fi_av_open(o.domain, &attr, &o.av, nullptr), "fi_av_open");
}

void World::open(unsigned p, unsigned slot)
{
    open_handles(p, slot);
    begin_life(p, slot);
}

World::Address World::own_address(unsigned p, unsigned slot)
{
    Address address{};
    std::size_t length = sizeof address.bytes;
    must(fi_getname(&processes_[p].handles[slot].ep->fid, address.bytes, &length), "fi_getname");
    return address;
}

void World::open_handles(unsigned p, unsigned slot)
{
    platform_->enter(p);
    Objects& o = *processes_[p].objects;
    Handles& h = processes_[p].handles[slot];
    h = {};
    open_counters(p, h);
    if (is_scalable(slot)) {
        must(fi_scalable_ep(o.domain, o.info, &h.ep, nullptr), "fi_scalable_ep");
        open_contexts(p, h);
    } else {
        must(fi_endpoint(o.domain, o.plain != nullptr ? o.plain : o.info, &h.ep, nullptr), "fi_endpoint");
        h.tx[0] = h.rx[0] = h.ep;
        must(fi_ep_bind(h.ep, &o.av->fid, 0), "fi_ep_bind");
        if (o.eq != nullptr && slot == 0)
            must(fi_ep_bind(h.ep, &o.eq->fid, 0), "fi_ep_bind of an event queue");
        if (o.stx != nullptr)
            must(fi_ep_bind(h.ep, &o.stx->fid, 0), "fi_ep_bind of a shared transmit context");
        if (o.srx != nullptr)
            must(fi_ep_bind(h.ep, &o.srx->fid, 0), "fi_ep_bind of a shared receive context");
        bind(p, h.ep, FI_TRANSMIT | FI_RECV, h);
    }
    must(fi_enable(h.ep), "fi_enable");
}

void World::begin_life(unsigned p, unsigned slot)
{
    Process& process = processes_[p];
    const Address address = own_address(p, slot);
    auto life = std::make_unique<Endpoint>();
    life->number = static_cast<unsigned>(model_.endpoints.size());
    life->process = p;
    life->slot = slot;
    life->opened = ++model_.time;
    life->contexts = is_scalable(slot) ? most_contexts : 1;
    life->pool = process.objects->pool;
    for (const auto& other : model_.endpoints)
        if (other->process == p && other->slot < slots && addresses_[other->number] == address) {
            if (!platform_->reuses_addresses())
                contradict("%s has the address of %s", life->name().c_str(), other->name().c_str());
            life->first = other.get();
            break;
        }
    addresses_.push_back(address);
    process.now[slot] = life.get();
    process.past[slot].push_back(life.get());
    model_.endpoints.push_back(std::move(life));
}

/// A domain gives its endpoints' numbers in turn, so many others lie between two with the same number. They have the
/// same VCQ ID and steering tag, but not the same address.
void World::renew(unsigned p, unsigned slot)
{
    constexpr std::size_t until_nonce = offsetof(tofu::EndpointAddress, nonce);
    const Address old = addresses_[processes_[p].now[slot]->number];
    close(p, slot);
    constexpr unsigned most_numbers = 300;
    for (unsigned i = 0; i < most_numbers; i++) {
        open_handles(p, slot);
        if (std::memcmp(own_address(p, slot).bytes, old.bytes, until_nonce) == 0 || i + 1 == most_numbers)
            break;
        close_handles(p, slot);
    }
    begin_life(p, slot);
}

void World::open_contexts(unsigned p, Handles& h)
{
    must(fi_scalable_ep_bind(h.ep, &processes_[p].objects->av->fid, 0), "fi_scalable_ep_bind");
    for (int i = 0; i < static_cast<int>(most_contexts); i++) {
        open_tx(p, h, i);
        must(fi_rx_context(h.ep, i, nullptr, &h.rx[i], nullptr), "fi_rx_context");
        bind(p, h.rx[i], FI_RECV, h);
        must(fi_enable(h.rx[i]), "fi_enable of a context");
    }
}

void World::open_tx(unsigned p, Handles& h, int context)
{
    must(fi_tx_context(h.ep, context, nullptr, &h.tx[context], nullptr), "fi_tx_context");
    bind(p, h.tx[context], FI_TRANSMIT, h);
    must(fi_enable(h.tx[context]), "fi_enable of a context");
}

/// The queue, and the counters of what such a context does.
void World::bind(unsigned p, fid_ep* ep, std::uint64_t queues, const Handles& h)
{
    must(fi_ep_bind(ep, &processes_[p].objects->cq->fid, queues), "fi_ep_bind");
    for (unsigned i = 0; i < counted_kinds; i++) {
        const bool transmits = (counted[i] & (FI_SEND | FI_READ | FI_WRITE)) != 0;
        if (h.counters[i] != nullptr && (queues & (transmits ? FI_TRANSMIT : FI_RECV)) != 0)
            must(fi_ep_bind(ep, &h.counters[i]->fid, counted[i]), "fi_ep_bind of a counter");
    }
}

// --- closing

void World::end_life(Endpoint& life, Endpoint::State state)
{
    life.state = state;
    life.ended = model_.time;
}

void World::close_handles(unsigned p, unsigned slot)
{
    Process& process = processes_[p];
    Handles& h = process.handles[slot];
    if (slot == 0)
        close_groups(p);
    for (unsigned i = 0; i < most_contexts; i++)
        for (fid_ep* const context : {h.tx[i], h.rx[i]})
            if (context != nullptr && context != h.ep)
                while_others_run(process, [&] { must(fi_close(&context->fid), "fi_close of a context"); });
    while_others_run(process, [&] { must(fi_close(&h.ep->fid), "fi_close of an endpoint"); });
    for (fid_cntr* const counter : h.counters)
        if (counter != nullptr)
            process.objects->past.push_back(counter);
    h = {};
    process.now[slot] = nullptr;
}

/// What an endpoint had posted is the application's again.
void World::close(unsigned p, unsigned slot)
{
    Process& process = processes_[p];
    Endpoint& life = *process.now[slot];
    platform_->enter(p);
    end_life(life, Endpoint::closed);
    close_handles(p, slot);
    for (auto& r : model_.receives)
        if (r->at == &life && !r->sealed)
            r->seal();
}

/// What waits for a counter names its context, so there are none of these operations.
void World::turn_context(const Command& c)
{
    if (!is_open(c.at) || !is_scalable(c.at % slots) || program_.setup.triggers != 0)
        return;
    const unsigned p = c.at / slots;
    Process& process = processes_[p];
    Handles& h = handles(c.at);
    Endpoint& at = life(c.at);
    platform_->enter(p);
    const bool sends = c.entry == 0;
    const unsigned which = (sends ? c.tx : c.rx) % most_contexts;
    fid_ep*& context = sends ? h.tx[which] : h.rx[which];
    Endpoint::Context& state = sends ? at.tx[which] : at.rx[which];
    if (context != nullptr) {
        state.end(++model_.time);
        while_others_run(process, [&] { must(fi_close(&context->fid), "fi_close of a context"); });
        context = nullptr;
        for (auto& r : model_.receives)
            if (!sends && r->at == &at && r->rx == which && !r->sealed)
                r->seal();
    } else if (sends) {
        open_tx(p, h, static_cast<int>(which));
        state.open = true;
    } else {
        fid_ep* again = nullptr;
        if (const int result = fi_rx_context(h.ep, static_cast<int>(which), nullptr, &again, nullptr);
            result != -FI_EOPBADSTATE)
            contradict("fi_rx_context of one that was closed: %s", fi_strerror(-result));
    }
}

/// Endpoints of shared contexts have one address vector; when all are closed, the next ones may have another.
void World::turn(unsigned p)
{
    Objects& o = *processes_[p].objects;
    if (program_.setup.sharedav != 0 || program_.setup.triggers != 0)
        return;
    for (unsigned s = 0; s < slots; s++)
        if (processes_[p].now[s] != nullptr)
            close(p, s);
    platform_->enter(p);
    read(p, 64); // entries name places of the former one
    fid_av* const former = o.av;
    open_vector(p);
    must(fi_close(&former->fid), "fi_close of an address vector");
    o.own_peers.clear();
    open(p, 0);
}

void World::end_pool(unsigned p, Endpoint::State state)
{
    Endpoint* const pool = processes_[p].objects->pool;
    if (pool == nullptr)
        return;
    end_life(*pool, state);
    for (auto& r : model_.receives)
        if (r->at == pool && !r->sealed)
            r->seal();
}

void World::leave(unsigned p)
{
    Process& process = processes_[p];
    for (unsigned s = 0; s < slots; s++)
        if (process.now[s] != nullptr)
            close(p, s);
    end_pool(p, Endpoint::closed);
    read(p, 64);
    remote_.close_all(p, false);
    close_objects(p);
    // A receiver that makes no calls for FI_TOFU_LINGER seconds loses what the domain has for it. In one process, and
    // without `apart`, the close makes progress for all receivers.
    const bool only_its_own = program_.setup.apart != 0 || !platform_->is_one_process();
    lose_copies(p, [&](unsigned to) { return only_its_own && (processes_[to].stopped || !may_run(to)); });
}

/// The domain of the process is gone, and with it the copies of its closed endpoints.
template <class Lacks>
void World::lose_copies(unsigned p, Lacks&& lacks)
{
    for (auto& m : model_.messages)
        if (m->from->process == p && m->sender() != Endpoint::open && m->to != nullptr && m->taken == nullptr &&
            lacks(m->to->process))
            m->broken = true;
}

void World::close_objects(unsigned p)
{
    Process& process = processes_[p];
    Objects& o = *process.objects;
    platform_->enter(p);
    forget_later(p);
    if (o.srx != nullptr)
        must(fi_close(&o.srx->fid), "fi_close of a shared receive context");
    if (o.stx != nullptr)
        must(fi_close(&o.stx->fid), "fi_close of a shared transmit context");
    for (fid_cntr* const counter : o.past)
        must(fi_close(&counter->fid), "fi_close of a counter");
    if (o.trigger != nullptr)
        must(fi_close(&o.trigger->fid), "fi_close of a counter");
    if (o.eq != nullptr)
        must(fi_close(&o.eq->fid), "fi_close of an event queue");
    must(fi_close(&o.cq->fid), "fi_close of a completion queue");
    must(fi_close(&o.av->fid), "fi_close of an address vector");
    if (program_.setup.sharedav != 0 && --sharers_ == 0)
        shared_peers_.clear();
    int result = 0;
    while_others_run(process, [&] { result = fi_close(&o.domain->fid); });
    if (platform_->closes_domains()) {
        must(result, "fi_close of a domain");
        must(fi_close(&o.fabric->fid), "fi_close of a fabric");
    }
    fi_freeinfo(o.info);
    if (o.plain != nullptr)
        fi_freeinfo(o.plain);
    process.objects.reset();
    if (std::none_of(processes_.begin(), processes_.end(), [](const Process& each) { return each.objects != nullptr; }))
        platform_->check_empty();
}

void World::kill(unsigned p)
{
    Process& process = processes_[p];
    platform_->enter(p);
    process.stopped = true; // it reads nothing
    lose_copies(p, [](unsigned) { return true; });
    if (platform_->kill(p))
        lose_objects(p);
    else
        clear_away(p);
    platform_->killed(p);
    was_killed_ = true;
    process.stopped = false;
}

/// What a process that was killed has in our memory is closed.
void World::clear_away(unsigned p)
{
    Process& process = processes_[p];
    setenv("FI_TOFU_LINGER", "0", 1);
    for (unsigned s = 0; s < slots; s++)
        if (process.now[s] != nullptr) {
            end_life(*process.now[s], Endpoint::killed);
            close_handles(p, s);
        }
    end_pool(p, Endpoint::killed);
    remote_.close_all(p, true);
    close_objects(p);
    setenv("FI_TOFU_LINGER", linger, 1);
}

/// What it had in its own memory is gone.
void World::lose_objects(unsigned p)
{
    Process& process = processes_[p];
    for (unsigned s = 0; s < slots; s++) {
        if (process.now[s] != nullptr)
            end_life(*process.now[s], Endpoint::killed);
        process.now[s] = nullptr;
        process.handles[s] = {};
    }
    for (const auto& [join, mc] : process.objects->groups)
        join->closed = true;
    end_pool(p, Endpoint::killed);
    remote_.lose_all(p);
    std::erase_if(later_, [p](const auto& later) { return later->process == p; });
    process.objects.reset();
}

// --- addresses

Endpoint* World::life(unsigned place, unsigned back)
{
    if (place / slots >= processes_.size())
        return nullptr;
    const auto& past = processes_[place / slots].past[place % slots];
    if (back >= past.size())
        return nullptr;
    // An address is that of the last endpoint that had it.
    Endpoint& meant = *past[past.size() - 1 - back];
    return *std::find_if(past.rbegin(), past.rend(), [&](const Endpoint* each) { return each->shares_address(meant); });
}

fid_ep* World::rx(const Receive& r)
{
    Process& process = processes_[r.at->process];
    return r.at->slot == slots ? process.objects->srx : process.handles[r.at->slot].rx[r.rx];
}

fi_addr_t World::address_of(unsigned p, Endpoint& peer)
{
    std::vector<Endpoint*>& peers = *processes_[p].objects->peers;
    const auto is_it = [&](const Endpoint* each) { return each != nullptr && each->shares_address(peer); };
    const auto known = std::find_if(peers.begin(), peers.end(), is_it);
    if (known != peers.end())
        return static_cast<fi_addr_t>(known - peers.begin());
    fi_addr_t at = FI_ADDR_NOTAVAIL;
    if (fi_av_insert(processes_[p].objects->av, addresses_[peer.number].bytes, 1, &at, 0, nullptr) != 1)
        contradict("fi_av_insert of %s failed", peer.name().c_str());
    peers.resize(std::max<std::size_t>(peers.size(), at + 1));
    if (peers[at] != nullptr)
        contradict("fi_av_insert of %s gives the address of %s", peer.name().c_str(), peers[at]->name().c_str());
    peers[at] = &peer;
    return at;
}

/// Removes the address of a peer that nothing of this process is under way to; it is inserted again when it is used.
void World::forget(const Command& c)
{
    Endpoint* const peer = life(c.to, c.back);
    const unsigned p = c.at / slots;
    if (!is_usable(c.at) || peer == nullptr)
        return;
    Objects& o = *processes_[p].objects;
    std::vector<Endpoint*>& peers = *o.peers;
    const auto is_it = [&](const Endpoint* each) { return each != nullptr && each->shares_address(*peer); };
    const auto known = std::find_if(peers.begin(), peers.end(), is_it);
    if (known == peers.end() || model_.uses(p, *peer))
        return;
    for (unsigned other = 0; other < processes_.size(); other++)
        if (program_.setup.sharedav != 0 && model_.uses(other, *peer))
            return;
    platform_->enter(p);
    fi_addr_t at = static_cast<fi_addr_t>(known - peers.begin());
    must(fi_av_remove(o.av, &at, 1, 0), "fi_av_remove");
    *known = nullptr;
}

} // namespace swarm
