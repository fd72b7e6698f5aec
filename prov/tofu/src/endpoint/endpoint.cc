// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of an endpoint: open, bind, enable, progress, close (fi_endpoint(3)). Called through the tables of
// calls.cc and by the objects it is bound to; calls vcq, the engines, domain, av, cq, cntr.
#include "endpoint/endpoint.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "address/address.h"
#include "atomic/engine.h"
#include "endpoint/calls.h"
#include "endpoint/scalable.h"
#include "endpoint/shared_context.h"
#include "info/hints.h"
#include "info/info.h"
#include "memory/directory.h"
#include "memory/region.h"
#include "message/messenger.h"
#include "message/msg.h"
#include "message/tagged.h"
#include "provider/log.h"
#include "queue/eq.h"
#include "remote/event_credits.h"
#include "remote/keys.h"
#include "rma/engine.h"

namespace tofu {

namespace {
constexpr unsigned rounds_per_finder_look = 256; // of progress; between them some thousand may find an endpoint by name
constexpr unsigned fence_polls = 64;             // within the fenced call; then it is refused

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

Endpoint::Endpoint() noexcept = default;
Endpoint::~Endpoint() = default;

// --- open

int Endpoint::open(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) noexcept
{
    if (domain == nullptr || ep == nullptr || info == nullptr || info->ep_attr == nullptr)
        return -FI_EINVAL;
    if (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC)
        return -FI_EINVAL;
    EndpointPlan plan;
    plan.shares_tx = info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT;
    plan.shares_rx = info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
    plan.caps = info->caps;
    if (info->tx_attr != nullptr)
        plan.tx = *info->tx_attr;
    if (info->rx_attr != nullptr)
        plan.rx = *info->rx_attr;
    plan.address_format = info->addr_format;
    plan.name_key = name_key_of(*info);
    plan.context = context;
    return make(DomainBase::of(domain), plan, ep);
}

int Endpoint::make(DomainBase& domain, const EndpointPlan& plan, fid_ep** ep) noexcept
{
    auto* made = new (std::nothrow) Endpoint;
    if (made == nullptr)
        return -FI_ENOMEM;
    if (int ret = made->set_up(domain, plan); ret != 0) {
        delete made;
        return ret;
    }
    *ep = made;
    return 0;
}

int Endpoint::set_up(DomainBase& domain, const EndpointPlan& plan) noexcept
{
    static constexpr std::size_t classes[] = {FI_CLASS_EP, FI_CLASS_TX_CTX, FI_CLASS_RX_CTX};
    fid.fclass = classes[static_cast<unsigned>(plan.part)];
    fid.context = plan.context;
    fid.ops = &endpoint_fid_ops;
    fid_ep::ops = &endpoint_ops;
    cm = &endpoint_cm_ops;
    msg = &ops_of_disabled.msg;
    fid_ep::rma = &ops_of_disabled.rma;
    tagged = &ops_of_disabled.tagged;
    fid_ep::atomic = (plan.caps & FI_ATOMIC) && plan.part != Part::receive ? queries_alone() : &ops_of_disabled.atomic;
    collective = &no_collective_ops;
    endpoint = this;

    domain_ = &domain;
    part_ = plan.part;
    parent_ = plan.parent;
    slot_ = plan.slot;
    caps_ = plan.caps;
    address_format_ = plan.address_format;
    name_key_ = plan.name_key;
    tx_attr_ = plan.tx;
    rx_attr_ = plan.rx;
    tx_flags = tx_attr_.op_flags;
    rx_flags = rx_attr_.op_flags;
    min_multi_recv_ = plan.min_multi_recv;
    wants_shared_tx_ = plan.shares_tx;
    wants_shared_rx_ = plan.shares_rx;
    if (wants_shared_tx_ || wants_shared_rx_ || domain.model().serialised)
        lock_ = &domain.shared_lock();
    receive_lock = lock_;
    if (!wants_shared_tx_) {
        const vcq::Sink sink{this, nullptr, on_orphan};
        if (int ret = own_vcq_.open(domain.backend(), domain.next_spread(), domain.safe_vcqs(), sink); ret != 0) {
            TOFU_WARN(FI_LOG_EP_CTRL, "endpoint: no VCQ on any TNI of this node: close endpoints or run fewer "
                                      "processes per node\n");
            return ret;
        }
        if (int ret = use_vcq(own_vcq_); ret != 0)
            return ret;
    }
    index_ = plan.number;
    if (part_ != Part::receive) { // whose number is one of its scalable endpoint's
        if (int ret = domain.take_numbers(1, index_); ret != 0) {
            if (local_memory_ != nullptr)
                domain.regions().detach(*local_memory_);
            return ret;
        }
        numbered_ = true;
    }
    identity_ = parent_ != nullptr ? parent_->address().index : index_;
    domain.regions().add_counters(index_, counters_);
    domain.hold();
    return 0;
}

/// From now on it posts from this one.
int Endpoint::use_vcq(vcq::Vcq& vcq) noexcept
{
    local_memory_.reset(new (std::nothrow) LocalMemory(vcq));
    remote_keys_.reset(new (std::nothrow) RemoteKeys(vcq, domain_->model().provider_keys));
    if (local_memory_ == nullptr || remote_keys_ == nullptr)
        return -FI_ENOMEM;
    if (int ret = domain_->regions().attach(*local_memory_, *lock_); ret != 0) {
        local_memory_.reset();
        return ret;
    }
    vcq_ = &vcq;
    return 0;
}

EndpointAddress Endpoint::address() const noexcept
{
    if (parent_ != nullptr)
        return parent_->address();
    return {address_magic, wire_version,        address_flags(caps_), static_cast<std::uint8_t>(index_), 0,
            domain_->home_id(), domain_->nonce()};
}

int Endpoint::name(void* buffer, std::size_t* length) const noexcept
{
    return give_address(address(), address_format_, buffer, length);
}

// --- enable

int Endpoint::make_engines() noexcept
{
    const bool messages = (caps_ & (FI_MSG | FI_TAGGED)) != 0;
    // An RMA endpoint takes part in messages for the data of remote completions alone: its own, and its peers'.
    const bool writes = part_ != Part::receive && (expand(caps_) & FI_WRITE) != 0;
    const bool data = (caps_ & FI_RMA) != 0 && (writes || rx_.cq != nullptr);
    if (messages || data) {
        messages_.reset(new (std::nothrow) proto::Messenger(*this));
        if (!messages_)
            return -FI_ENOMEM;
        if (int ret = messages_->open(); ret != 0)
            return ret;
    }
    if (part_ == Part::receive)
        return 0; // others write here without us
    if ((caps_ & (FI_ATOMIC | FI_RMA)) != 0 && !quick_.open(*this))
        return -FI_ENOMEM;
    if (caps_ & FI_ATOMIC) {
        atomic_.reset(new (std::nothrow) AtomicEngine(*this));
        if (!atomic_)
            return -FI_ENOMEM;
        if (int ret = atomic_->open(); ret != 0)
            return ret;
    }
    if (caps_ & FI_RMA) {
        rma_.reset(new (std::nothrow) RmaEngine(*this));
        if (!rma_)
            return -FI_ENOMEM;
        if (int ret = rma_->open(); ret != 0)
            return ret;
    }
    return 0;
}

void Endpoint::choose_operations() noexcept
{
    // A context has one direction: the calls of the other are refused; and receives are posted to the shared context
    // where there is one.
    static const fi_ops_msg msg_of[] = {msg_ops, halved(msg_ops, true), halved(msg_ops, false)};
    static const fi_ops_tagged tagged_of[] = {tagged_ops, halved(tagged_ops, true),
                                              halved(tagged_ops, false)};
    const auto part = static_cast<unsigned>(shared_rx_ != nullptr ? Part::transmit : part_);
    const bool sends = part_ != Part::receive;
    msg = const_cast<fi_ops_msg*>((caps_ & FI_MSG) ? &msg_of[part] : &ops_of_missing.msg);
    tagged = const_cast<fi_ops_tagged*>((caps_ & FI_TAGGED) ? &tagged_of[part]
                                                            : &ops_of_missing.tagged);
    fid_ep::rma = (caps_ & FI_RMA) && sends ? &rma_ops : &ops_of_missing.rma;
    fid_ep::atomic = (caps_ & FI_ATOMIC) && sends ? &atomic_ops : &ops_of_missing.atomic;
    receives = messages_ != nullptr ? &messages_->queue() : nullptr;
}

int Endpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (parent_ != nullptr && av_ == nullptr)
        if (Peers* av = parent_->av(); av != nullptr)
            if (int ret = bind_addresses(*av); ret != 0)
                return ret;
    if (int ret = check_bound(); ret != 0)
        return ret;
    int ret = make_engines();
    // Messages, CQ data and events are taken by a poll, and what was refused for a stale key is tried again by one. The
    // rest calls for the thread when there is something for it to do (needs_polls()).
    if (ret == 0 && ((caps_ & (FI_MSG | FI_TAGGED | FI_RMA_EVENT)) || (messages_ && rx_.cq != nullptr) ||
                     (remote_keys_ && remote_keys_->by_directory())))
        ret = domain_->auto_progress().go_on_alone();
    if (ret == 0)
        ret = list(); // to be passed over until it is enabled
    if (ret == 0)
        ret = announce();
    if (ret != 0) {
        unlist();
        if (messages_) {
            std::lock_guard guard(*lock_);
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
        std::lock_guard guard(*lock_);
        enabled_ = true;
    }
    return 0;
}

/// Under the service name that it was opened for.
int Endpoint::announce() noexcept
{
    names::Announcement& name = part_ == Part::receive ? parent_->announcement() : announcement_;
    int ret = 0;
    if (part_ == Part::receive)
        ret = parent_->announce();
    else if (name_key_ != 0)
        ret = name.open(name_key_, address());
    named_ = name.is_open() ? &name : nullptr;
    return ret;
}

// --- progress

bool Endpoint::progress(bool patient) noexcept
{
    if (patient)
        lock_->lock();
    else if (!lock_->try_lock())
        return false;
    const bool some = progress_locked();
    lock_->unlock();
    return some;
}

bool Endpoint::progress_locked() noexcept
{
    if (!enabled_)
        return false;
    const bool some = vcq_->poll() != 0;
    if (rma_)
        rma_->progress();
    if (atomic_)
        atomic_->progress();
    if (messages_)
        messages_->progress();
    if (event_credits_) [[unlikely]]
        event_credits_->progress();
    if (named_ != nullptr && ++rounds_ % rounds_per_finder_look == 0) [[unlikely]]
        named_->clear();
    return some;
}

bool Endpoint::fence_passed(fi_addr_t to, std::uint64_t flags) noexcept
{
    const Peer* const peer = av_->find(to);
    if (peer == nullptr)
        return true; // there is none: whoever asks finds out
    const bool settles = messages_ && (flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
    const auto passed = [&] {
        return vcq_->idle() && (!rma_ || rma_->idle_towards(*peer)) && (!atomic_ || atomic_->idle()) &&
               (!messages_ || messages_->idle_towards(*peer)) && flushed(*peer) &&
               (!settles || messages_->settled(*peer, (flags & FI_MATCH_COMPLETE) != 0));
    };
    for (unsigned i = 0; i < fence_polls; i++) {
        if (passed())
            return true;
        progress_locked();
    }
    return passed();
}

/// Posts without a waiter (inject, messages sent at once) may still be on their way, and what follows the fenced
/// operation need not be in strong order.
bool Endpoint::flushed(const Peer& peer) noexcept
{
    if (flush_.under_way || !vcq_->is_silent_towards(peer.home))
        return !flush_.under_way;
    flush_.notify = on_flush;
    const vcq::Post post = vcq_->fence(peer.home, flush_);
    flush_.under_way = post == vcq::Post::done;
    return post == vcq::Post::error; // then nothing will be posted
}

/// Even if the ARMW failed: at a peer that can't be reached there is nothing to overtake.
void Endpoint::on_flush(vcq::Waiter* flush, const vcq::Notice&) noexcept
{
    static_cast<Flush*>(flush)->under_way = false;
}

int Endpoint::pay_for_event(const Peer& peer, EventPurse*& purse) noexcept
{
    if (!event_credits_) [[unlikely]]
        event_credits_.reset(new (std::nothrow) EventCredits(*this));
    return event_credits_ ? event_credits_->pay_patiently(peer, purse) : -FI_ENOMEM;
}

bool Endpoint::needs_polls() const noexcept
{
    return event_credits_ != nullptr || (rma_ && rma_->waits()) || (atomic_ && !atomic_->idle());
}

void Endpoint::on_orphan(void* owner, int code, vcq::Orphan kind, utofu_vcq_id_t peer) noexcept
{
    static_cast<Endpoint*>(owner)->lost(code, kind, peer);
}

void Endpoint::lost(int code, vcq::Orphan kind, utofu_vcq_id_t peer) noexcept
{
    if (messages_)
        messages_->peer_failed(peer, code);
    // Messages report their own losses, and a report or a farewell to a peer that has left is none; who sends no
    // unattended writes has nothing else to hear of.
    switch (kind) {
    case vcq::Orphan::message: break;
    case vcq::Orphan::write:
        if (rma_ && rma_->posts_unattended())
            report_orphan(FI_RMA | FI_WRITE, code);
        break;
    case vcq::Orphan::armw:
        if (atomic_ && atomic_->posts_unattended())
            report_orphan(FI_ATOMIC | FI_WRITE, code);
        break;
    }
}

void Endpoint::report_orphan(std::uint64_t op_flags, int utofu_code) noexcept
{
    if (closing_) // what is discarded then is discarded silently (fi_endpoint(3), fi_close)
        return;
    Completion completion;
    completion.flags = op_flags;
    if (tx_.cq != nullptr)
        tx_.cq->write_error(completion, fi_error_of(utofu_code), utofu_code);
    if (counters_.write != nullptr)
        counters_.write->count_error();
}

ssize_t Endpoint::cancel(void* context) noexcept
{
    std::lock_guard guard(*lock_);
    return messages_ ? messages_->cancel(context) : -FI_ENOENT;
}

// --- close

/// Has everything left that was taken? What waits for an answer of its peer alone has.
bool Endpoint::all_has_left() const noexcept
{
    return (!rma_ || rma_->idle()) && (!atomic_ || atomic_->idle()) && (!messages_ || messages_->all_has_left());
}

/// What was injected or reported as sent, and what was taken, leaves: that needs progress, and at times that of the
/// peer. Who is dead fails at once; who does not run holds us up no longer than this. What has not left then is
/// outstanding and discarded (fi_endpoint(3), fi_close).
void Endpoint::let_all_leave() noexcept
{
    constexpr std::chrono::seconds patience{1};
    const auto end = std::chrono::steady_clock::now() + patience;
    while (enabled_ && !all_has_left() && std::chrono::steady_clock::now() < end)
        progress_locked();
}

/// What is under way ends, nothing is begun any more. False: notices are missing, so memory that a communication may
/// still reach has to stay until the VCQ is freed.
bool Endpoint::stop() noexcept
{
    if (vcq_ == nullptr)
        return true;
    bool quiet;
    {
        std::lock_guard guard(*lock_);
        closing_ = true; // from here on errors are silent
        let_all_leave();
        if (messages_)
            messages_->leave();
        if (atomic_)
            atomic_->runner().close(); // else what ends now would begin what is queued
        if (event_credits_)
            event_credits_->close();
        quiet = shared_tx_ != nullptr ? vcq_->quiesce() : vcq_->drain();
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
    std::lock_guard guard(*lock_);
    rma_.reset();
    atomic_.reset();
    messages_.reset();
    event_credits_.reset();
}

/// What an endpoint has before it is enabled; behind drop_engines().
void Endpoint::drop_memory() noexcept
{
    std::lock_guard guard(*lock_);
    remote_keys_.reset();
    local_memory_.reset();
}

int Endpoint::close() noexcept
{
    if (aliases_.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    // Nobody polls it any more, then no peer's notice comes, then what is under way ends.
    unlist();
    domain_->regions().remove_counters(index_);
    if (local_memory_ != nullptr)
        domain_->regions().detach(*local_memory_);
    SharedTransmit* const shared = shared_tx_;
    const bool quiet = stop();
    if (!quiet) // nothing of ours may be given back while a communication may reach it
        own_vcq_.close();
    const bool stays = !quiet && shared != nullptr;
    if (!stays) {
        drop_engines();
        drop_memory();
    } else if (rma_) {
        rma_->mute();
    }
    own_vcq_.close();
    unbind();
    if (numbered_)
        domain_->give_back_numbers(index_, 1);
    if (parent_ != nullptr)
        parent_->drop_context(part_, slot_);
    if (stays) {
        shared->keep(*this);
        return 0;
    }
    domain_->release();
    delete this;
    return 0;
}

void Endpoint::bury() noexcept
{
    DomainBase* const domain = domain_;
    drop_engines();
    drop_memory();
    delete this;
    domain->release();
}

} // namespace tofu
