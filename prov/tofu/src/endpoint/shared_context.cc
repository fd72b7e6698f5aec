// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See shared_context.h. fi_endpoint(3), "Shared contexts".
#include "endpoint/shared_context.h"

#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "endpoint/calls.h"
#include "info/info.h"
#include "message/calls.h"
#include "progress/domain_base.h"
#include "provider/limits.h"
#include "provider/log.h"
#include "provider/refusal.h"

namespace tofu {

namespace {

SharedTransmit& transmit_of(struct fid* f) noexcept
{
    return SharedTransmit::of(reinterpret_cast<fid_stx*>(f));
}
SharedReceive& receive_of(struct fid* f) noexcept
{
    return SharedReceive::of(reinterpret_cast<fid_ep*>(f));
}

extern "C" {

int tofu_stx_close(struct fid* f) noexcept { return transmit_of(f).close(); }
int tofu_srx_close(struct fid* f) noexcept { return receive_of(f).close(); }
int tofu_srx_control(struct fid*, int command, void*) noexcept
{
    return command == FI_ENABLE ? 0 : -FI_ENOSYS; // it is usable from the start
}

ssize_t tofu_srx_cancel(fid_t f, void* context) noexcept { return receive_of(f).cancel(context); }
int tofu_srx_getopt(fid_t f, int level, int name, void* value, size_t* length) noexcept
{
    return receive_of(f).get_option(level, name, value, length);
}
int tofu_srx_setopt(fid_t f, int level, int name, const void* value, size_t length) noexcept
{
    return receive_of(f).set_option(level, name, value, length);
}
ssize_t tofu_srx_size_left(struct fid_ep* ep) noexcept
{
    return static_cast<ssize_t>(SharedReceive::of(ep).size());
}
}

// queues and counters are those of the endpoints (fi_endpoint(3))
fi_ops transmit_fid_ops = object_ops({.close = tofu_stx_close, .bind = refuses<-FI_EINVAL>});
// queues and counters are those of the endpoints (fi_endpoint(3))
fi_ops receive_fid_ops = object_ops({.close = tofu_srx_close, .bind = refuses<-FI_EINVAL>, .control = tofu_srx_control});
fi_ops_ep transmit_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = refuses<-FI_EOPNOTSUPP>,
    .getopt = refuses<-FI_ENOPROTOOPT>,
    .setopt = refuses<-FI_ENOPROTOOPT>,
    .tx_ctx = refuses<-FI_ENOSYS>,
    .rx_ctx = refuses<-FI_ENOSYS>,
    .rx_size_left = refuses<-FI_EOPNOTSUPP>,
    .tx_size_left = refuses<-FI_EOPNOTSUPP>,
};
fi_ops_ep receive_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = tofu_srx_cancel,
    .getopt = tofu_srx_getopt,
    .setopt = tofu_srx_setopt,
    .tx_ctx = refuses<-FI_ENOSYS>,
    .rx_ctx = refuses<-FI_ENOSYS>,
    .rx_size_left = tofu_srx_size_left,
    .tx_size_left = refuses<-FI_EOPNOTSUPP>,
};
fi_ops_cm receive_cm_ops = cm_ops_with(refuses<-FI_EOPNOTSUPP>);

} // namespace

// --- transmit

int SharedTransmit::open(fid_domain* domain, fi_tx_attr* attr, fid_stx** stx, void* context) noexcept
{
    if (domain == nullptr || stx == nullptr)
        return -FI_EINVAL;
    fi_tx_attr granted{};
    if (attr != nullptr && !narrow_tx(*attr, attr->caps != 0 ? attr->caps : limits::all_caps, granted))
        return -FI_EINVAL;
    DomainBase& owner = DomainBase::of(domain);
    auto* made = new (std::nothrow) SharedTransmit;
    if (made == nullptr)
        return -FI_ENOMEM;
    made->domain_ = &owner;
    if (int ret = made->vcq_.open(owner.backend(), owner.next_spread(), owner.safe_vcqs(),
                                  vcq::Sink{made, nullptr, on_unsignaled_error, &owner.statistics()});
        ret != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "shared transmit context: no VCQ on any TNI of this node: close endpoints "
                                  "or run fewer processes per node\n");
        delete made;
        return ret;
    }
    made->fid.fclass = FI_CLASS_STX_CTX;
    made->fid.context = context;
    made->fid.ops = &transmit_fid_ops;
    made->ops = &transmit_ops;
    owner.hold();
    *stx = made;
    return 0;
}

int SharedTransmit::join(TxContext& context) noexcept
{
    std::lock_guard guard(domain_->shared_lock());
    return contexts_.push(&context) ? 0 : -FI_ENOMEM;
}

void SharedTransmit::leave(TxContext& context) noexcept
{
    std::lock_guard guard(domain_->shared_lock());
    contexts_.erase(&context);
}

void SharedTransmit::keep(Endpoint& endpoint) noexcept
{
    std::lock_guard guard(domain_->shared_lock());
    endpoint.next_kept = std::exchange(kept_, &endpoint);
}

/// Whose communication it was nobody knows: each looks whether it has to do with the peer.
void SharedTransmit::on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    for (TxContext* context : static_cast<SharedTransmit*>(self)->contexts_)
        context->lost(code, kind, peer);
}

int SharedTransmit::close() noexcept
{
    {
        std::lock_guard guard(domain_->shared_lock());
        if (!contexts_.empty())
            return -FI_EBUSY;
        vcq_.drain();
    }
    vcq_.close();
    while (kept_ != nullptr)
        std::exchange(kept_, kept_->next_kept)->bury();
    domain_->release();
    delete this;
    return 0;
}

// --- receive

SharedReceive::SharedReceive(DomainBase& domain, const fi_rx_attr& attr) noexcept
    : domain_(&domain), queue_((attr.caps & FI_DIRECTED_RECV) != 0, rx_.min_multi_recv)
{
    rx_.attr = attr;
}

int SharedReceive::open(fid_domain* domain, fi_rx_attr* attr, fid_ep** ep, void* context) noexcept
{
    if (domain == nullptr || ep == nullptr)
        return -FI_EINVAL;
    static constexpr fi_rx_attr defaults{}; // all that there is, with sources heeded
    const fi_rx_attr& wish = attr != nullptr ? *attr : defaults;
    fi_rx_attr granted{};
    if (!narrow_rx(wish, wish.caps != 0 ? wish.caps : limits::all_caps, granted))
        return -FI_EINVAL;
    static const fi_ops_msg msg_half = halved(msg_ops, false);
    static const fi_ops_tagged tagged_half = halved(tagged_ops, false);
    DomainBase& owner = DomainBase::of(domain);
    auto* made = new (std::nothrow) SharedReceive(owner, granted);
    if (made == nullptr || !made->queue_.valid()) {
        delete made;
        return -FI_ENOMEM;
    }
    made->fid.fclass = FI_CLASS_SRX_CTX;
    made->fid.context = context;
    made->fid.ops = &receive_fid_ops;
    made->ops = &receive_ops;
    made->cm = &receive_cm_ops;
    made->msg = const_cast<fi_ops_msg*>(&msg_half);
    made->tagged = const_cast<fi_ops_tagged*>(&tagged_half);
    made->rma = &ops_of_missing.rma;
    made->atomic = &ops_of_missing.atomic;
    made->collective = &no_collective_ops;
    made->rx_flags = granted.op_flags;
    made->receives = &made->queue_;
    made->receive_lock = &owner.shared_lock();
    owner.hold();
    *ep = made;
    return 0;
}

bool SharedReceive::agrees(const Peers& av) noexcept
{
    std::lock_guard guard(domain_->shared_lock());
    if (av_ == nullptr || users() == 1)
        av_ = &av;
    return av_ == &av;
}

ssize_t SharedReceive::cancel(void* context) noexcept
{
    std::lock_guard guard(*receive_lock);
    return queue_.cancel(context);
}

int SharedReceive::get_option(int level, int name, void* value, std::size_t* length) noexcept
{
    return get_multi_recv(rx_.min_multi_recv, level, name, value, length);
}

int SharedReceive::set_option(int level, int name, const void* value, std::size_t length) noexcept
{
    std::lock_guard guard(*receive_lock);
    return set_multi_recv(rx_.min_multi_recv, level, name, value, length);
}

int SharedReceive::close() noexcept
{
    if (in_use())
        return -FI_EBUSY;
    domain_->release();
    delete this;
    return 0;
}

} // namespace tofu
