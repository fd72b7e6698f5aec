// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of an endpoint: open, bind, enable, progress, close (fi_endpoint(3)). Called through the tables of
// calls.cc and by the objects it is bound to; calls vcq, the engines, domain, av, cq, cntr.
#include "endpoint/endpoint.h"

#include <chrono>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "address/address.h"
#include "atomic/engine.h"
#include "collective/engine.h"
#include "context/later.h"
#include "endpoint/calls.h"
#include "endpoint/scalable.h"
#include "endpoint/shared_context.h"
#include "info/hints.h"
#include "memory/directory.h"
#include "memory/region.h"
#include "message/calls.h"
#include "message/messenger.h"
#include "queue/eq.h"
#include "remote/event_credits.h"
#include "remote/keys.h"
#include "rma/engine.h"

namespace tofu {

namespace {
constexpr unsigned rounds_per_finder_look = 256; // of progress; between them some thousand may find an endpoint by name

/// Before fi_enable: what an endpoint will be able to do can be asked (fi_atomic(3)).
fi_ops_atomic* queries_alone() noexcept
{
    static fi_ops_atomic table = [] {
        fi_ops_atomic ops = ops_of_disabled.atomic;
        ops.writevalid = atomic_ops.writevalid;
        ops.readwritevalid = atomic_ops.readwritevalid;
        ops.compwritevalid = atomic_ops.compwritevalid;
        return ops;
    }();
    return &table;
}
} // namespace

Endpoint::Endpoint(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_EP)
{
    fid.ops = &endpoint_fid_ops;
    fid_ep::ops = &endpoint_ops;
    cm = &endpoint_cm_ops;
    refuse_all(*this, ops_of_disabled);
    endpoint = this;
    EndpointFace::tx = &tx_;
}

Endpoint::~Endpoint() = default;

// --- open

int EndpointPlan::take(const fi_info* info) noexcept
{
    if (info == nullptr || info->ep_attr == nullptr ||
        (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC))
        return -FI_EINVAL;
    caps = info->caps;
    tx = given(info->tx_attr);
    rx = given(info->rx_attr);
    address_format = info->addr_format;
    name_key = name_key_of(*info);
    shares_tx = info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT;
    shares_rx = info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
    return 0;
}

int Endpoint::set_up(const fi_info* info) noexcept
{
    EndpointPlan plan;
    const int ret = plan.take(info);
    return ret == 0 ? set_up(&plan) : ret;
}

int Endpoint::set_up(const EndpointPlan* wish) noexcept
{
    plan_ = *wish;
    const EndpointPlan& plan = plan_;
    DomainBase& domain = owner();
    if (!plan.sends || !plan.receives)
        fid.fclass = plan.sends ? FI_CLASS_TX_CTX : FI_CLASS_RX_CTX;
    if ((plan.caps & FI_ATOMIC) && plan.sends)
        fid_ep::atomic = queries_alone();
    tx_flags = plan.tx.op_flags;
    rx_flags = plan.rx.op_flags;
    rx_.attr = plan.rx;
    rx_.min_multi_recv = plan.min_multi_recv;
    rx_.is_open = plan.receives;
    const bool shares_lock = plan.shares_tx || plan.shares_rx || domain.model().serialised;
    tx_.set_up({&domain, plan.tx, plan.caps, shares_lock ? &domain.shared_lock() : nullptr, round, this, plan.sends,
                plan.shares_tx});
    receive_lock = &tx_.lock();
    if (!plan.shares_tx)
        if (int ret = tx_.open_vcq(); ret != 0)
            return ret;
    unsigned number = plan.number;
    if (plan.sends) { // else it is one of its scalable endpoint's
        if (int ret = domain.take_numbers(1, number); ret != 0) {
            tx_.detach();
            return ret;
        }
    }
    tx_.set_number(number, plan.parent != nullptr ? plan.parent->address().index : number);
    domain.regions().events().add(number, rx_.counters);
    return 0;
}

EndpointAddress Endpoint::address() const noexcept
{
    if (plan_.parent != nullptr)
        return plan_.parent->address();
    return make_address(owner().home_id(), owner().nonce(), index(), 0, address_flags(caps()));
}

int Endpoint::name(void* buffer, std::size_t* length) const noexcept
{
    return give_address(address(), plan_.address_format, buffer, length);
}

// --- enable

template <class T, class... More>
int Endpoint::make_engine(std::unique_ptr<T>& engine, Engine::Kind kind, More&... more) noexcept
{
    engine.reset(new (std::nothrow) T(tx_, more...));
    if (engine == nullptr)
        return -FI_ENOMEM;
    if constexpr (requires { engine->open(); })
        if (int ret = engine->open(); ret != 0)
            return ret;
    if constexpr (requires { engine->sender(); })
        tx_.engines().add(kind, engine->sender());
    else
        tx_.engines().add(kind, *engine);
    return 0;
}

int Endpoint::make_engines() noexcept
{
    if ((caps() & FI_TRIGGER) != 0) {
        if (int ret = owner().later().open(); ret != 0)
            return ret;
        rx_.relay = owner().later().relay();
    }
    const bool messages = (caps() & (FI_MSG | FI_TAGGED)) != 0;
    // An RMA endpoint takes part in messages for the data of remote completions alone: its own, and its peers'.
    const bool writes = tx_.plan().is_open && (expand(caps()) & FI_WRITE) != 0;
    const bool data = (caps() & FI_RMA) != 0 && (writes || rx_.binding.cq != nullptr);
    int ret = messages || data ? make_engine(messages_, Engine::messages, rx_) : 0;
    if (ret != 0 || !tx_.plan().is_open)
        return ret; // where nothing is posted others write here without us
    if ((caps() & (FI_ATOMIC | FI_RMA)) != 0 && !tx_.quick().open(tx_))
        return -FI_ENOMEM;
    if (caps() & FI_ATOMIC)
        ret = make_engine(atomic_, Engine::atomic);
    if (ret == 0 && (caps() & FI_RMA))
        ret = make_engine(rma_, Engine::rma);
    if (ret == 0 && (caps() & FI_COLLECTIVE) && plan_.parent == nullptr)
        ret = make_engine(collectives_, Engine::collectives);
    return ret;
}

void Endpoint::choose_operations() noexcept
{
    // A context has one direction: the calls of the other are refused; and receives are posted to the shared context
    // where there is one.
    static const fi_ops_msg msg_of[] = {msg_ops, halved(msg_ops, true), halved(msg_ops, false)};
    static const fi_ops_tagged tagged_of[] = {tagged_ops, halved(tagged_ops, true),
                                              halved(tagged_ops, false)};
    const bool sends = tx_.plan().is_open;
    const unsigned half = !rx_.is_open || shared_rx_ != nullptr ? 1 : sends ? 0 : 2;
    msg = const_cast<fi_ops_msg*>((caps() & FI_MSG) ? &msg_of[half] : &ops_of_missing.msg);
    tagged = const_cast<fi_ops_tagged*>((caps() & FI_TAGGED) ? &tagged_of[half] : &ops_of_missing.tagged);
    fid_ep::rma = (caps() & FI_RMA) && sends ? &rma_ops : &ops_of_missing.rma;
    fid_ep::atomic = (caps() & FI_ATOMIC) && sends ? &atomic_ops : &ops_of_missing.atomic;
    collective = collectives_ != nullptr ? &coll::collective_ops : &ops_of_missing.collective;
    receives = messages_ != nullptr ? &messages_->receiver().queue() : nullptr;
}

int Endpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (plan_.parent != nullptr && !tx_.has_peers())
        if (Peers* av = plan_.parent->av(); av != nullptr)
            if (int ret = bind_addresses(*av); ret != 0)
                return ret;
    if (int ret = check_bound(); ret != 0)
        return ret;
    int ret = make_engines();
    // Messages, CQ data and events are taken by a poll, and what was refused for a stale key is tried again by one. The
    // rest calls for the thread when there is something for it to do (needs_polls()).
    if (ret == 0 && ((caps() & (FI_MSG | FI_TAGGED | FI_RMA_EVENT)) || (messages_ && rx_.binding.cq != nullptr) ||
                     tx_.remote_keys().by_directory()))
        ret = owner().auto_progress().go_on_alone();
    if (ret == 0)
        ret = list(); // to be passed over until it is enabled
    if (ret == 0)
        ret = announce();
    if (ret != 0) {
        unlist();
        if (messages_) {
            std::lock_guard guard(tx_.lock());
            messages_->leave();
            messages_->part_from_queue();
        }
        if (messages_)
            messages_->close_area();
        drop_engines();
        return ret;
    }
    choose_operations();
    {
        std::lock_guard guard(tx_.lock());
        enabled_ = true;
    }
    return 0;
}

/// Under the service name that it was opened for.
int Endpoint::announce() noexcept
{
    names::Announcement& name = tx_.plan().is_open ? announcement_ : plan_.parent->announcement();
    int ret = 0;
    if (!tx_.plan().is_open)
        ret = plan_.parent->announce();
    else if (plan_.name_key != 0)
        ret = name.open(plan_.name_key, address());
    named_ = name.is_open() ? &name : nullptr;
    return ret;
}

// --- progress

bool Endpoint::progress(bool patient) noexcept
{
    if (patient)
        tx_.lock().lock();
    else if (!tx_.lock().try_lock())
        return false;
    const bool some = tx_.progress();
    tx_.lock().unlock();
    return some;
}

/// TxContext::Round.
bool Endpoint::round(void* self) noexcept
{
    Endpoint& ep = *static_cast<Endpoint*>(self);
    if (!ep.enabled_)
        return false;
    const bool some = ep.tx_.vcq().poll() != 0;
    if (!ep.tx_.pending().empty()) [[unlikely]]
        ep.tx_.pending().resume();
    if (ep.atomic_)
        ep.atomic_->progress();
    if (ep.messages_)
        ep.messages_->progress();
    if (ep.collectives_) [[unlikely]]
        ep.collectives_->progress();
    if (EventCredits* const credits = ep.tx_.event_credits(); credits != nullptr) [[unlikely]]
        credits->progress();
    if (ep.named_ != nullptr && ++ep.rounds_ % rounds_per_finder_look == 0) [[unlikely]]
        ep.named_->clear();
    return some;
}

/// fi_join (fi_cm(3)): of collective groups alone, by an endpoint that is one address.
int Endpoint::join(const void* address, std::uint64_t flags, fid_mc** mc, void* context) noexcept
{
    if ((flags & FI_COLLECTIVE) == 0)
        return -FI_ENOSYS; // no multicast
    if (!enabled_)
        return -FI_EOPBADSTATE;
    if (!collectives_)
        return -FI_EOPNOTSUPP;
    if (eq_ == nullptr)
        return -FI_ENOEQ;
    return collectives_->join(*eq_, address, flags, mc, context);
}

ssize_t Endpoint::cancel(void* context) noexcept
{
    ssize_t ret = -FI_ENOENT;
    {
        std::lock_guard guard(tx_.lock());
        if (messages_)
            ret = messages_->receiver().cancel(context);
    }
    return ret == -FI_ENOENT && (caps() & FI_TRIGGER) != 0 ? owner().later().cancel(tx_, context) : ret;
}

// --- close

/// What was injected or reported as sent, and what was taken, leaves: that needs progress, and at times that of the
/// peer. Who is dead fails at once; who does not run holds us up no longer than this. What has not left then is
/// outstanding and discarded (fi_endpoint(3), fi_close).
void Endpoint::let_all_leave() noexcept
{
    constexpr std::chrono::seconds patience{1};
    const auto end = std::chrono::steady_clock::now() + patience;
    while (enabled_ && !tx_.all_has_left() && std::chrono::steady_clock::now() < end)
        tx_.progress();
}

/// What is under way ends, nothing is begun any more. False: notices are missing, so memory that a communication may
/// still reach has to stay until the VCQ is freed.
bool Endpoint::stop() noexcept
{
    if (!tx_.has_vcq())
        return true;
    bool quiet;
    {
        std::lock_guard guard(tx_.lock());
        tx_.reports().closing = true;
        let_all_leave();
        tx_.close();
        quiet = tx_.plan().shares_vcq ? tx_.vcq().quiesce() : tx_.vcq().drain();
        enabled_ = false;
        if (messages_)
            messages_->part_from_queue();
    }
    if (messages_)
        messages_->close_area(); // takes the home lock, which comes before ours
    return quiet;
}

void Endpoint::drop_engines() noexcept
{
    // Registrations with a VCQ of others go under their lock.
    std::lock_guard guard(tx_.lock());
    rma_.reset();
    atomic_.reset();
    messages_.reset();
    collectives_.reset();
    tx_.drop_engines();
}

/// What an endpoint has before it is enabled; behind drop_engines().
void Endpoint::drop_memory() noexcept
{
    std::lock_guard guard(tx_.lock());
    tx_.drop_memory();
}

int Endpoint::close() noexcept
{
    if (in_use() || (collectives_ && collectives_->in_use()))
        return -FI_EBUSY;
    // Nobody polls it any more, then no peer's notice comes, then what is under way ends.
    unlist();
    owner().regions().events().remove(index());
    tx_.detach();
    SharedTransmit* const shared = shared_tx_;
    const bool quiet = stop();
    if ((caps() & FI_TRIGGER) != 0)
        owner().later().forget(tx_, quiet);
    if (!quiet) // nothing of ours may be given back while a communication may reach it
        tx_.close_vcq();
    if (collectives_)
        collectives_->bury_all();
    const bool stays = !quiet && shared != nullptr;
    if (!stays) {
        drop_engines();
        drop_memory();
    } else if (rma_) {
        rma_->runner().mute();
    }
    tx_.close_vcq();
    unbind();
    if (tx_.plan().is_open)
        owner().give_back_numbers(index(), 1);
    if (plan_.parent != nullptr)
        plan_.parent->drop_context(tx_.plan().is_open, plan_.slot);
    if (stays) {
        shared->keep(*this);
        return 0;
    }
    delete this;
    return 0;
}

void Endpoint::bury() noexcept
{
    drop_engines();
    drop_memory();
    delete this;
}

} // namespace tofu
