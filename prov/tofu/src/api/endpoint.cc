// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See endpoint.h.
#include "api/endpoint.h"

#include <algorithm>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "api/contexts.h"
#include "api/endpoint_calls.h"
#include "api/getinfo.h"
#include "atomic/atomic.h"
#include "coll/collectives.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/system.h"
#include "cq/eq.h"
#include "mem/mr.h"
#include "msg/calls.h"
#include "msg/message_engine.h"
#include "rma/rma.h"
#include "tx/remote_memory.h"

namespace tofu {

template <class T, class... More>
static int make_engine(std::unique_ptr<T>& engine, Engine::Kind kind, TxContext& tx, More&... more) noexcept
{
    engine.reset(new (std::nothrow) T(tx, more...));
    if (engine == nullptr)
        return -FI_ENOMEM;
    if constexpr (requires { engine->open(); })
        if (int ret = engine->open(); ret != 0)
            return ret;
    if constexpr (requires { engine->sender(); })
        tx.engines().add(kind, engine->sender());
    else
        tx.engines().add(kind, *engine);
    return 0;
}

EndpointEngines::EndpointEngines() noexcept = default;
EndpointEngines::~EndpointEngines() = default;

int EndpointEngines::make(TxContext& tx, RxContext& rx, bool joins) noexcept
{
    const std::uint64_t caps = tx.config().caps;
    if ((caps & FI_TRIGGER) != 0) {
        DeferredCalls& deferred = *tx.domain().deferred().calls;
        if (int ret = deferred.open(); ret != 0)
            return ret;
        rx.internal_cq = deferred.internal_cq();
    }
    // An endpoint for RMA alone needs messages only for the CQ data of writes, which it sends or which its peers send.
    const bool writes = tx.config().is_open && (expand(caps) & FI_WRITE) != 0;
    const bool data = (caps & FI_RMA) != 0 && (writes || rx.binding.cq != nullptr);
    int ret = 0;
    if ((caps & (FI_MSG | FI_TAGGED)) != 0 || data)
        ret = make_engine(messages, Engine::messages, tx, rx);
    if (ret != 0 || !tx.config().is_open)
        return ret; // a receive context posts nothing, and peers reach its memory without a local engine
    if ((caps & (FI_ATOMIC | FI_RMA)) != 0 && !tx.fast().open(tx))
        return -FI_ENOMEM;
    if ((caps & FI_ATOMIC) != 0)
        ret = make_engine(atomic, Engine::atomic, tx);
    if (ret == 0 && (caps & FI_RMA) != 0)
        ret = make_engine(rma, Engine::rma, tx);
    if (ret == 0 && (caps & FI_COLLECTIVE) != 0 && joins)
        ret = make_engine(collectives, Engine::collectives, tx);
    return ret;
}

void EndpointEngines::drop(TxContext& tx) noexcept
{
    // The engines end registrations with a VCQ that may be shared, which needs its lock.
    std::lock_guard guard(tx.lock());
    rma.reset();
    atomic.reset();
    messages.reset();
    collectives.reset();
    tx.engines().clear();
}

// --- Endpoint: open, enable, progress, close (fi_endpoint(3))

/// The table before fi_enable, when only the queries work: what an endpoint will be able to do can be asked
/// (fi_atomic(3)).
static fi_ops_atomic* queries_alone() noexcept
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

Endpoint::Endpoint(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_EP)
{
    fid.ops = &endpoint_fid_ops;
    fid_ep::ops = &endpoint_ops;
    cm = &endpoint_cm_ops;
    refuse_all(*this, ops_of_disabled);
    endpoint = this;
    EpHandle::tx = &tx_;
    reads_descs = domain.model().valid_descs;
}

Endpoint::~Endpoint() = default;

// --- open

int EndpointConfig::configure(const fi_info* info) noexcept
{
    if (info == nullptr || info->ep_attr == nullptr ||
        (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC))
        return -FI_EINVAL;
    caps = info->caps;
    tx = attr_or_default(info->tx_attr);
    rx = attr_or_default(info->rx_attr);
    // What an application has changed in an info since fi_getinfo: later calls rely on these.
    const std::uint64_t more = caps & (FI_TRIGGER | FI_PEER);
    if ((tx.op_flags & ~(limits::tx_op_flags | more)) != 0 || (rx.op_flags & ~(limits::rx_op_flags | more)) != 0 ||
        tx.inject_size > limits::inject_size) {
        TOFU_WARN(
            FI_LOG_EP_CTRL,
            "endpoint: op_flags or inject_size of the info exceed what fi_getinfo returned: request them by hints\n");
        return -FI_EINVAL;
    }
    address_format = info->addr_format;
    name_key = name_key_of(*info);
    shares_tx = info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT;
    shares_rx = info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
    return 0;
}

int Endpoint::set_up(const fi_info* info) noexcept
{
    EndpointConfig config;
    const int ret = config.configure(info);
    return ret == 0 ? set_up(&config) : ret;
}

int Endpoint::set_up(const EndpointConfig* wish) noexcept
{
    config_ = *wish;
    const EndpointConfig& config = config_;
    DomainBase& domain = owner();
    if (!config.sends || !config.receives)
        fid.fclass = config.sends ? FI_CLASS_TX_CTX : FI_CLASS_RX_CTX;
    if ((config.caps & FI_ATOMIC) && config.sends)
        fid_ep::atomic = queries_alone();
    tx_flags = config.tx.op_flags;
    rx_flags = config.rx.op_flags;
    rx_.attr = config.rx;
    rx_.min_multi_recv = config.min_multi_recv;
    rx_.is_open = config.receives;
    rx_.shares = config.shares_rx;
    const bool shares_lock =
        config.shares_tx || config.shares_rx || (config.caps & FI_PEER) != 0 || domain.model().serialised;
    tx_.set_up({&domain, config.tx, config.caps, shares_lock ? &domain.shared_lock() : nullptr, round, this,
                config.sends, config.shares_tx});
    receive_lock = &tx_.lock();
    if (!config.shares_tx)
        if (int ret = tx_.open_vcq(); ret != 0)
            return ret;
    unsigned number = config.number;
    std::uint16_t incarnation = 0;
    if (config.sends) { // a receive context has a number of its scalable endpoint
        if (int ret = domain.numbers().alloc(1, number, incarnation); ret != 0) {
            tx_.detach();
            return ret;
        }
    }
    tx_.set_number(number, config.parent != nullptr
                               ? config.parent->address()
                               : make_address(domain.target_vcq_id(), endpoint_nonce(domain.nonce(), incarnation),
                                              number, 0, address_flags(config.caps)));
    domain.regions().add_endpoint(number, rx_.counters);
    if (config.parent == nullptr)
        domain.regions().show_endpoint(number, 1, address().nonce);
    return 0;
}

int Endpoint::bind(struct fid* object, std::uint64_t flags) noexcept
{
    if (object == nullptr)
        return -FI_EINVAL;
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (config_.parent != nullptr && object->fclass == FI_CLASS_AV)
        return -FI_EINVAL; // the scalable endpoint has one for all its contexts
    return bound_.add(object, flags);
}

// --- enable

void Endpoint::choose_operations() noexcept
{
    // The calls of a direction that a context does not have are refused; so are receives where a shared receive context
    // is bound, to which the application posts them instead.
    static const fi_ops_msg msg_of[] = {msg_ops, halved(msg_ops, true), halved(msg_ops, false)};
    static const fi_ops_tagged tagged_of[] = {tagged_ops, halved(tagged_ops, true), halved(tagged_ops, false)};
    const std::uint64_t caps = config_.caps;
    const bool sends = tx_.config().is_open;
    const unsigned half = !rx_.is_open || rx_.shared != nullptr ? 1 : sends ? 0 : 2;
    msg = const_cast<fi_ops_msg*>((caps & FI_MSG) ? &msg_of[half] : &ops_of_missing.msg);
    tagged = const_cast<fi_ops_tagged*>((caps & FI_TAGGED) ? &tagged_of[half] : &ops_of_missing.tagged);
    fid_ep::rma = (caps & FI_RMA) && sends ? &rma_ops : &ops_of_missing.rma;
    fid_ep::atomic = (caps & FI_ATOMIC) && sends ? &atomic_ops : &ops_of_missing.atomic;
    collective = engines_.collectives != nullptr ? &coll::collective_ops : &ops_of_missing.collective;
    receives = engines_.messages != nullptr ? &engines_.messages->receiver().queue() : nullptr;
}

void Endpoint::close_area() noexcept
{
    if (!engines_.messages->close_area())
        owner().numbers().set_unsettled(tx_.config().number);
}

int Endpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (config_.parent != nullptr && !tx_.has_peers())
        if (Peers* av = config_.parent->av(); av != nullptr)
            if (int ret = bound_.add_addresses(*av); ret != 0)
                return ret;
    if (int ret = bound_.check(); ret != 0)
        return ret;
    auto& messages = engines_.messages;
    int ret = engines_.make(tx_, rx_, config_.parent == nullptr);
    // With automatic progress the thread starts now if peers may make work for us at any time: messages, CQ data and
    // events need polls. All else starts it when needed (needs_polls()).
    if (ret == 0 && ((config_.caps & (FI_MSG | FI_TAGGED | FI_RMA_EVENT)) || (messages && rx_.binding.cq != nullptr)))
        ret = owner().auto_progress().start_thread();
    if (ret == 0)
        ret = bound_.list(*this, engines_.collectives != nullptr); // rounds pass over it until it is enabled
    if (ret == 0)
        ret = announce();
    if (ret != 0) {
        bound_.unlist(*this);
        if (messages) {
            stop_writers();
            {
                std::lock_guard guard(tx_.lock());
                messages->release_all();
                messages->receiver().part_from_queue();
            }
            close_area();
        }
        engines_.drop(tx_);
        return ret;
    }
    choose_operations();
    std::lock_guard guard(tx_.lock());
    enabled_ = true;
    return 0;
}

/// Announces the endpoint under the service name that it was opened for.
int Endpoint::announce() noexcept
{
    const bool of_parent = !tx_.config().is_open;
    const int ret = of_parent               ? config_.parent->announce()
                    : config_.name_key != 0 ? own_name_.open(config_.name_key, address())
                                            : 0;
    names::Announcement& name = of_parent ? config_.parent->announcement() : own_name_;
    name_ = name.is_open() ? &name : nullptr;
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
    vcq::Vcq& vcq = ep.tx_.vcq();
    const bool some = vcq.poll_all() != 0;
    if (!ep.tx_.pending().empty()) [[unlikely]]
        ep.tx_.pending().resume();
    const EndpointEngines& engines = ep.engines_;
    if (engines.atomic)
        engines.atomic->progress();
    if (engines.messages)
        engines.messages->progress_fully();
    if (engines.collectives) [[unlikely]]
        engines.collectives->progress();
    if (EventCredits& credits = ep.tx_.peer_memory().credits; !credits.empty()) [[unlikely]]
        credits.progress();
    constexpr unsigned rounds_per_clearing = 256; // its list of processes that have found it has room for some thousand
    if (ep.name_ != nullptr && ++ep.rounds_ % rounds_per_clearing == 0) [[unlikely]]
        ep.name_->clear();
    // Others that post from a shared VCQ may wait, and collectives always do.
    vcq.set_busy(ep.tx_.config().shares_vcq || engines.collectives || (engines.atomic && engines.atomic->waits()) ||
                 (engines.messages && engines.messages->waits()));
    return some;
}

/// fi_join (fi_cm(3)), for collective groups only.
int Endpoint::join(const void* address, std::uint64_t flags, fid_mc** mc, void* context) noexcept
{
    if ((flags & FI_COLLECTIVE) == 0)
        return -FI_ENOSYS; // there is no multicast
    if (!enabled_)
        return -FI_EOPBADSTATE;
    if (!engines_.collectives)
        return -FI_EOPNOTSUPP;
    if (bound_.events() == nullptr)
        return -FI_ENOEQ;
    if (int ret = bound_.events()->need_polls(*this); ret != 0)
        return ret;
    return engines_.collectives->join(*bound_.events(), address, flags, mc, context);
}

ssize_t Endpoint::cancel(void* context) noexcept
{
    ssize_t ret = -FI_ENOENT;
    {
        std::lock_guard guard(tx_.lock());
        if (engines_.messages)
            ret = engines_.messages->receiver().cancel(context);
    }
    return ret == -FI_ENOENT && (config_.caps & FI_TRIGGER) != 0 ? owner().deferred().calls->cancel(tx_, context) : ret;
}

// --- close

/// Makes progress until `done` holds, under the lock, or for `patience`. Returns how many rounds that took; negative:
/// not within the time. A peer may be another endpoint of this process, or wait for one while it closes its own, so all
/// of them make progress.
template <class Done>
int Endpoint::make_progress_until(Done&& done, std::chrono::milliseconds patience) noexcept
{
    const auto end = Clock::now() + patience;
    for (int rounds = 0;; rounds++) {
        {
            std::lock_guard guard(tx_.lock());
            if (done())
                return rounds;
            if (Clock::now() >= end)
                return -1;
            tx_.progress();
        }
        progress_everywhere(owner());
    }
}

/// Waits until everything that was injected, reported as sent or accepted has left the process. Some of it needs the
/// progress of peers: operations to a dead peer fail at once, a stopped peer holds us up for a second at most. What was
/// accepted and has not left by then counts as outstanding and is discarded (fi_endpoint(3), fi_close); what was
/// reported as sent stays with the domain (msg/copies.h). The next endpoint mostly has the same peers, so it waits half
/// as long.
void Endpoint::drain_sends() noexcept
{
    constexpr std::chrono::milliseconds most{1000}, least{10};
    std::atomic<std::chrono::milliseconds>& patience = owner().closing_patience();
    const auto mine = patience.load(std::memory_order_relaxed);
    const int rounds = make_progress_until([this] { return tx_.all_has_left(); }, mine);
    if (rounds != 0)
        patience.store(rounds > 0 ? most : std::max(mine / 2, least), std::memory_order_relaxed);
}

/// Waits until no peer can write to the endpoint's area or to the memory of its groups any more. A peer that makes
/// progress answers in microseconds. The wait excludes other peers: without their answer only an endpoint number stays
/// unsettled (EndpointNumbers).
void Endpoint::stop_writers() noexcept
{
    const auto have_stopped = [this] {
        return (!engines_.messages || engines_.messages->stop_writers()) &&
               (!engines_.collectives || engines_.collectives->all_quiescent());
    };
    (void)make_progress_until(have_stopped, std::chrono::milliseconds(10));
}

/// Ends what is under way and begins nothing more. False: some notices have not come, so memory that a communication
/// may still reach has to stay until the VCQ is freed.
bool Endpoint::stop() noexcept
{
    if (!tx_.has_vcq())
        return true;
    {
        std::lock_guard guard(tx_.lock());
        tx_.reports().closing = true;
    }
    if (enabled_) {
        drain_sends();
        stop_writers();
    }
    bool quiet;
    {
        std::lock_guard guard(tx_.lock());
        tx_.close();
        quiet = tx_.config().shares_vcq ? tx_.vcq().quiesce() : tx_.vcq().drain();
        enabled_ = false;
        if (engines_.messages) {
            if (quiet)
                engines_.messages->receiver().cancel_rendezvous();
            engines_.messages->receiver().part_from_queue();
        }
    }
    if (engines_.messages) { // both take the target lock, which has to be taken before ours
        leaves_copies_ = engines_.messages->hand_over_to(owner().orphaned_copies());
        if (leaves_copies_) // anonymous slots are not polled any more
            owner().numbers().set_unsettled(tx_.config().number);
        else
            close_area();
    }
    return quiet;
}

void Endpoint::release_all() noexcept
{
    engines_.drop(tx_);
    std::lock_guard guard(tx_.lock());
    tx_.release_memory();
}

int Endpoint::close() noexcept
{
    if (in_use() || (engines_.collectives && engines_.collectives->in_use()))
        return -FI_EBUSY;
    // First deferred work that waits ends: any thread's progress may begin it, and exchanges the reports of the context
    // for that moment (post_elsewhere). Then polls of the endpoint end, then notices of peers, then operations under
    // way.
    const bool defers = (config_.caps & FI_TRIGGER) != 0;
    if (defers)
        owner().deferred().calls->cancel_waiting(tx_);
    bound_.unlist(*this);
    const unsigned number = tx_.config().number;
    owner().regions().remove_endpoint(number);
    tx_.detach();
    SharedTransmit* const shared = bound_.shared_transmit();
    const bool quiet = stop();
    if (defers)
        owner().deferred().calls->forget(tx_, quiet);
    const bool stays = !quiet && shared != nullptr;
    if (!quiet) { // a communication may still reach our memory: the VCQ goes before anything is freed or reported
        tx_.close_vcq();
        std::lock_guard guard(tx_.lock());
        if (engines_.messages && !stays) // else Gets may write later: no entry reports a free buffer
            engines_.messages->receiver().cancel_rendezvous();
    }
    if (engines_.collectives)
        engines_.collectives->destroy_all();
    if (!stays)
        release_all();
    else if (engines_.rma)
        engines_.rma->detach_handlers();
    tx_.close_vcq();
    if (stays) // another thread may close the shared context as soon as nothing uses it
        shared->hold();
    bound_.release_all();
    if (!stays)
        release_number();
    if (config_.parent != nullptr)
        config_.parent->drop_context(tx_.config().is_open, config_.slot);
    if (stays) {
        shared->keep(*this);
        shared->release();
        return 0;
    }
    delete this;
    return 0;
}

/// Called when no post of the endpoint is under way any more: peers rely on that when they find it closed.
void Endpoint::release_number() noexcept
{
    if (!tx_.config().is_open)
        return; // a receive context has a number of its scalable endpoint
    const unsigned number = tx_.config().number;
    if (config_.parent == nullptr)
        owner().regions().hide_endpoint(number, 1, address().nonce);
    if (!leaves_copies_)
        owner().numbers().release(number, 1);
}

void Endpoint::destroy() noexcept
{
    release_all();
    release_number();
    delete this;
}

} // namespace tofu
