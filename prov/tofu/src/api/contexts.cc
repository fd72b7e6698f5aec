// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See contexts.h.
#include "api/contexts.h"

#include <tuple>
#include <type_traits>
#include <utility>

#include <rdma/fi_errno.h>

#include "api/endpoint_calls.h"
#include "api/getinfo.h"
#include "av/peer_table.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/domain_base.h"
#include "mem/mr.h"
#include "msg/calls.h"

namespace tofu {

// --- ScalableEndpoint: fi_endpoint(3), "Scalable endpoints"

namespace {

/// fi_getopt, fi_setopt (fi_endpoint(3)): FI_OPT_MIN_MULTI_RECV, which contexts that are opened later inherit.
template <class T>
int get_option(struct fid* object, int level, int name, void* value, std::size_t* length) noexcept
{
    return get_options({{FI_OPT_MIN_MULTI_RECV, T::of(object).min_multi_recv()}}, level, name, value, length);
}
template <class T>
int set_option(struct fid* object, int level, int name, const void* value, std::size_t length) noexcept
{
    std::lock_guard guard(T::of(object).owner().shared_lock());
    return set_multi_recv(T::of(object).min_multi_recv(), level, name, value, length);
}

fi_ops scalable_fid_ops = object_ops({.close = close_object<ScalableEndpoint>,
                                      .bind = bind_member<&ScalableEndpoint::bind>,
                                      .control = bind_member<&ScalableEndpoint::control>});

fi_ops_ep ep_ops = context_ops({.getopt = get_option<ScalableEndpoint>,
                                .setopt = set_option<ScalableEndpoint>,
                                .tx_ctx = bind_member<&ScalableEndpoint::open_context<fi_tx_attr>>,
                                .rx_ctx = bind_member<&ScalableEndpoint::open_context<fi_rx_attr>>});

fi_ops_cm cm_ops = cm_ops_with(bind_member<&ScalableEndpoint::name>);

/// The number of contexts that an info asks for; 0 asks for one (fi_endpoint(3), tx_ctx_cnt). Returns 0 if it asks for
/// more than there can be.
unsigned contexts_in(std::size_t asked) noexcept
{
    return asked == 0 ? 1 : asked <= limits::max_contexts ? static_cast<unsigned>(asked) : 0;
}

} // namespace

ScalableEndpoint::ScalableEndpoint(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_SEP)
{
    fid.ops = &scalable_fid_ops;
    ops = &ep_ops;
    cm = &cm_ops;
    refuse_all(*this, ops_of_missing);
}

ScalableEndpoint::~ScalableEndpoint()
{
    if (rx_count_ == 0)
        return;
    owner().regions().hide_endpoint(first_, rx_count_, address().nonce);
    owner().numbers().release(first_, rx_count_);
}

int ScalableEndpoint::set_up(const fi_info* info) noexcept
{
    if (int ret = config_.configure(info); ret != 0)
        return ret;
    config_.parent = this;
    tx_count_ = contexts_in(info->ep_attr->tx_ctx_cnt);
    const unsigned rx_count = contexts_in(info->ep_attr->rx_ctx_cnt);
    if (tx_count_ == 0 || rx_count == 0) {
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "scalable endpoint: tx_ctx_cnt and rx_ctx_cnt must be 1 to %u, and contexts cannot be shared: "
                  "correct them\n",
                  limits::max_contexts);
        return -FI_EINVAL;
    }
    if (const int ret = owner().numbers().alloc(rx_count, first_, incarnation_); ret != 0)
        return ret;
    rx_count_ = rx_count;
    owner().regions().show_endpoint(first_, rx_count, address().nonce);
    return 0;
}

EndpointAddress ScalableEndpoint::address() const noexcept
{
    return make_address(owner().target_vcq_id(), endpoint_nonce(owner().nonce(), incarnation_), first_, rx_count_ - 1,
                        address_flags(config_.caps));
}

int ScalableEndpoint::announce() noexcept
{
    std::lock_guard guard(mutex_);
    if (announced_ || config_.name_key == 0)
        return 0;
    const int ret = announcement_.open(config_.name_key, address());
    announced_ = ret == 0;
    return ret;
}

// --- contexts

template <class Attr>
int ScalableEndpoint::open_context(int slot, Attr* attr, fid_ep** ep, void* context) noexcept
{
    constexpr bool sends = std::is_same_v<Attr, fi_tx_attr>;
    if (slot < 0 || static_cast<unsigned>(slot) >= (sends ? tx_count_ : rx_count_))
        return -FI_EINVAL;
    EndpointConfig config = config_;
    config.name_key = 0; // the scalable endpoint announces the name
    config.sends = sends;
    config.receives = !sends;
    config.slot = static_cast<unsigned>(slot);
    config.number = first_ + config.slot;
    Attr& granted = std::get<Attr&>(std::tie(config.tx, config.rx));
    if (attr != nullptr && !narrow(*attr, config_.caps, granted))
        return -FI_EINVAL;
    const std::uint64_t own =
        (attr != nullptr ? granted.caps : config_.caps) & (sends ? limits::tx_caps : limits::rx_caps);
    config.caps = own | (config_.caps & limits::domain_caps);

    std::lock_guard guard(mutex_);
    Slot& state = (sends ? tx_ : rx_)[slot];
    if (state != Slot::free) {
        TOFU_WARN(FI_LOG_EP_CTRL, "scalable endpoint: %s context %d %s\n", sends ? "transmit" : "receive", slot,
                  state == Slot::open ? "is already open: close it first"
                                      : "was closed and cannot be opened again: open another one");
        return state == Slot::open ? -FI_EBUSY : -FI_EOPBADSTATE;
    }
    if (int ret = create<Endpoint>(owner(), &std::as_const(config), ep, context); ret != 0)
        return ret;
    state = Slot::open;
    hold();
    if (attr != nullptr)
        *attr = granted;
    return 0;
}

void ScalableEndpoint::drop_context(bool sends, unsigned slot) noexcept
{
    {
        std::lock_guard guard(mutex_);
        if (sends)
            tx_[slot] = Slot::free;
        else
            rx_[slot] = Slot::closed;
    }
    release(); // the application may close the scalable endpoint from here on
}

// --- its other calls

int ScalableEndpoint::bind(struct fid* object, std::uint64_t flags) noexcept
{
    // Queues and counters belong to contexts (fi_endpoint(3), fi_scalable_ep_bind).
    if (!is_ours(object, FI_CLASS_AV) || flags != 0 || av_ != nullptr)
        return -FI_EINVAL;
    Peers& av = Peers::of(object);
    if (&av.owner() != &owner())
        return -FI_EDOMAIN;
    av_ = &av;
    return 0;
}

int ScalableEndpoint::control(int command, void*) noexcept
{
    if (command != FI_ENABLE) // all other commands are for contexts
        return -FI_ENOSYS;
    return av_ != nullptr ? announce() : -FI_ENOAV;
}

// --- SharedTransmit, SharedReceive: fi_endpoint(3), "Shared contexts"

namespace {

int control_receives(struct fid*, int command, void*) noexcept
{
    return command == FI_ENABLE ? 0 : -FI_ENOSYS; // shared receives are usable from the start
}

// Nothing can be bound: queues and counters are those of the endpoints (fi_endpoint(3)).
fi_ops transmit_fid_ops = object_ops({.close = close_object<SharedTransmit>, .bind = unsupported<-FI_EINVAL>});
fi_ops receive_fid_ops =
    object_ops({.close = close_object<SharedReceive>, .bind = unsupported<-FI_EINVAL>, .control = control_receives});
fi_ops_ep transmit_ops = context_ops({});
fi_ops_ep receive_ops = context_ops({.cancel = bind_member<&SharedReceive::cancel>,
                                     .getopt = get_option<SharedReceive>,
                                     .setopt = set_option<SharedReceive>,
                                     .rx_size_left = bind_member<&SharedReceive::size_left>});
fi_ops_cm receive_cm_ops = cm_ops_with(unsupported<-FI_EOPNOTSUPP>);

} // namespace

// --- transmit

SharedTransmit::SharedTransmit(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_STX_CTX)
{
    fid.ops = &transmit_fid_ops;
    ops = &transmit_ops;
}

SharedTransmit::~SharedTransmit()
{
    {
        std::lock_guard guard(owner().shared_lock());
        vcq_.drain();
    }
    vcq_.close();
    while (kept_ != nullptr)
        std::exchange(kept_, kept_->next_kept)->destroy();
}

int SharedTransmit::set_up(const fi_tx_attr* attr) noexcept
{
    fi_tx_attr granted{};
    if (attr != nullptr && !narrow(*attr, attr->caps != 0 ? attr->caps : limits::all_caps, granted))
        return -FI_EINVAL;
    return owner().vcqs().open(vcq_, {.owner = this, .unsignaled_error = on_unsignaled_error});
}

int SharedTransmit::join(TxContext& context) noexcept
{
    std::lock_guard guard(owner().shared_lock());
    if (!contexts_.push(&context))
        return -FI_ENOMEM;
    hold();
    return 0;
}

void SharedTransmit::leave(TxContext& context) noexcept
{
    {
        std::lock_guard guard(owner().shared_lock());
        contexts_.erase(&context);
    }
    release(); // the application may close us from here on
}

void SharedTransmit::keep(Endpoint& endpoint) noexcept
{
    std::lock_guard guard(owner().shared_lock());
    endpoint.next_kept = std::exchange(kept_, &endpoint);
}

/// The context that posted the communication is unknown, so each one checks whether it uses the peer. The credit
/// of a failed event is then lost, since a refund by two contexts would be wrong.
void SharedTransmit::on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    if (kind == vcq::Unsignaled::event)
        return;
    for (TxContext* context : static_cast<SharedTransmit*>(self)->contexts_)
        context->engines().on_unsignaled_error(code, kind, peer);
}

// --- receive

SharedReceive::SharedReceive(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_SRX_CTX)
{
    static const fi_ops_msg msg_half = halved(msg_ops, false);
    static const fi_ops_tagged tagged_half = halved(tagged_ops, false);
    fid.ops = &receive_fid_ops;
    ops = &receive_ops;
    cm = &receive_cm_ops;
    refuse_all(*this, ops_of_missing);
    msg = const_cast<fi_ops_msg*>(&msg_half);
    tagged = const_cast<fi_ops_tagged*>(&tagged_half);
    receive_lock = &domain.shared_lock();
    reads_descs = domain.model().valid_descs;
}

int SharedReceive::open(fid_domain* domain, fi_rx_attr* attr, fid_ep** made, void* context) noexcept
{
    if ((attr_or_default(attr).op_flags & FI_PEER) == 0)
        return create<SharedReceive>(DomainBase::of(domain), attr, made, context);
    return create<SharedReceive>(DomainBase::of(domain), peer::imported<peer::Srx>(context), made, nullptr);
}

int SharedReceive::set_up(peer::Srx* of_owner) noexcept
{
    if (of_owner == nullptr)
        return -FI_EINVAL;
    static fi_ops_ep closed_ops = context_ops({.cancel = unsupported<-FI_ENOSYS>});
    ops = &closed_ops;
    static RefusingOps not_here = ops_of_missing;
    refuse_all(*this, not_here);
    queue_.emplace(false, rx_.min_multi_recv);
    queue_->belong_to(owner_.emplace(*of_owner, *queue_, *receive_lock));
    return queue_->valid() ? 0 : -FI_ENOMEM;
}

int SharedReceive::set_up(const fi_rx_attr* attr) noexcept
{
    const fi_rx_attr& wish = attr_or_default(attr); // null asks for all caps, FI_DIRECTED_RECV included
    if (!narrow(wish, wish.caps != 0 ? wish.caps : limits::all_caps, rx_.attr))
        return -FI_EINVAL;
    rx_flags = rx_.attr.op_flags;
    receives = &queue_.emplace((rx_.attr.caps & FI_DIRECTED_RECV) != 0, rx_.min_multi_recv);
    return queue_->valid() ? 0 : -FI_ENOMEM;
}

bool SharedReceive::join(const Peers& av) noexcept
{
    std::lock_guard guard(owner().shared_lock());
    if (joined_ != 0 && av_ != &av)
        return false;
    av_ = &av;
    joined_++;
    return true;
}

void SharedReceive::leave() noexcept
{
    std::lock_guard guard(owner().shared_lock());
    joined_--;
}

ssize_t SharedReceive::cancel(void* context) noexcept
{
    std::lock_guard guard(*receive_lock);
    return queue_->cancel(context);
}

} // namespace tofu
