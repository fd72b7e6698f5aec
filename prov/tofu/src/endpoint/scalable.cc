// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See scalable.h. fi_endpoint(3), "Scalable endpoints".
#include "endpoint/scalable.h"

#include <new>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "endpoint/calls.h"
#include "info/info.h"
#include "progress/domain_base.h"
#include "provider/log.h"
#include "provider/refusal.h"

namespace tofu {

namespace {

ScalableEndpoint& scalable_of(struct fid* f) noexcept
{
    return ScalableEndpoint::of(reinterpret_cast<fid_ep*>(f));
}

extern "C" {

int tofu_sep_close(struct fid* f) noexcept { return scalable_of(f).close(); }
int tofu_sep_bind(struct fid* f, struct fid* object, uint64_t flags) noexcept
{
    return scalable_of(f).bind(object, flags);
}
int tofu_sep_control(struct fid* f, int command, void* argument) noexcept
{
    return scalable_of(f).control(command, argument);
}
int tofu_sep_getopt(fid_t f, int level, int name, void* value, size_t* length) noexcept
{
    return scalable_of(f).get_option(level, name, value, length);
}
int tofu_sep_setopt(fid_t f, int level, int name, const void* value, size_t length) noexcept
{
    return scalable_of(f).set_option(level, name, value, length);
}
int tofu_sep_tx_ctx(struct fid_ep* ep, int index, struct fi_tx_attr* attr, struct fid_ep** tx,
                    void* context) noexcept
{
    return ScalableEndpoint::of(ep).open_context(true, index, attr, nullptr, tx, context);
}
int tofu_sep_rx_ctx(struct fid_ep* ep, int index, struct fi_rx_attr* attr, struct fid_ep** rx,
                    void* context) noexcept
{
    return ScalableEndpoint::of(ep).open_context(false, index, nullptr, attr, rx, context);
}
int tofu_sep_getname(fid_t f, void* address, size_t* length) noexcept
{
    return scalable_of(f).name(address, length);
}
}

fi_ops fid_ops = object_ops({.close = tofu_sep_close, .bind = tofu_sep_bind, .control = tofu_sep_control});

fi_ops_ep ep_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = refuses<-FI_EOPNOTSUPP>,
    .getopt = tofu_sep_getopt,
    .setopt = tofu_sep_setopt,
    .tx_ctx = tofu_sep_tx_ctx,
    .rx_ctx = tofu_sep_rx_ctx,
    .rx_size_left = refuses<-FI_EOPNOTSUPP>,
    .tx_size_left = refuses<-FI_EOPNOTSUPP>,
};

fi_ops_cm cm_ops = cm_ops_with(tofu_sep_getname);

/// Contexts that an info asks for; none is one (fi_endpoint(3), tx_ctx_cnt). 0: more than there can be.
unsigned contexts_in(std::size_t asked) noexcept
{
    return asked == 0 ? 1 : asked <= limits::max_contexts ? static_cast<unsigned>(asked) : 0;
}

} // namespace

int ScalableEndpoint::open(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) noexcept
{
    if (domain == nullptr || ep == nullptr || info == nullptr || info->ep_attr == nullptr)
        return -FI_EINVAL;
    if (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC)
        return -FI_EINVAL;
    auto* made = new (std::nothrow) ScalableEndpoint;
    if (made == nullptr)
        return -FI_ENOMEM;
    if (int ret = made->set_up(DomainBase::of(domain), *info, context); ret != 0) {
        delete made;
        return ret;
    }
    *ep = made;
    return 0;
}

int ScalableEndpoint::set_up(DomainBase& domain, const fi_info& info, void* context) noexcept
{
    tx_count_ = contexts_in(info.ep_attr->tx_ctx_cnt);
    rx_count_ = contexts_in(info.ep_attr->rx_ctx_cnt);
    if (tx_count_ == 0 || rx_count_ == 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "scalable endpoint: it has 1 to %u contexts of either kind, none of them "
                                  "shared: set tx_ctx_cnt and rx_ctx_cnt accordingly\n",
                  limits::max_contexts);
        return -FI_EINVAL;
    }
    plan_.caps = info.caps;
    if (info.tx_attr != nullptr)
        plan_.tx = *info.tx_attr;
    if (info.rx_attr != nullptr)
        plan_.rx = *info.rx_attr;
    plan_.address_format = info.addr_format;
    plan_.name_key = name_key_of(info);
    plan_.parent = this;
    if (int ret = domain.take_numbers(rx_count_, first_); ret != 0)
        return ret;
    fid.fclass = FI_CLASS_SEP;
    fid.context = context;
    fid.ops = &fid_ops;
    ops = &ep_ops;
    cm = &cm_ops;
    msg = &ops_of_missing.msg;
    rma = &ops_of_missing.rma;
    tagged = &ops_of_missing.tagged;
    atomic = &ops_of_missing.atomic;
    collective = &no_collective_ops;
    domain_ = &domain;
    domain.hold();
    return 0;
}

EndpointAddress ScalableEndpoint::address() const noexcept
{
    return {address_magic,
            wire_version,
            address_flags(plan_.caps),
            static_cast<std::uint8_t>(first_),
            static_cast<std::uint8_t>(rx_count_ - 1),
            domain_->home_id(),
            domain_->nonce()};
}

int ScalableEndpoint::name(void* buffer, std::size_t* length) const noexcept
{
    return give_address(address(), plan_.address_format, buffer, length);
}

int ScalableEndpoint::announce() noexcept
{
    std::lock_guard guard(mutex_);
    if (announced_ || plan_.name_key == 0)
        return 0;
    const int ret = announcement_.open(plan_.name_key, address());
    announced_ = ret == 0;
    return ret;
}

// --- contexts

int ScalableEndpoint::open_context(bool sends, int slot, fi_tx_attr* tx, fi_rx_attr* rx, fid_ep** ep,
                                   void* context) noexcept
{
    if (ep == nullptr || slot < 0 || static_cast<unsigned>(slot) >= (sends ? tx_count_ : rx_count_))
        return -FI_EINVAL;
    EndpointPlan plan = plan_;
    plan.name_key = 0; // the name is ours
    plan.sends = sends;
    plan.receives = !sends;
    plan.slot = static_cast<unsigned>(slot);
    plan.number = first_ + plan.slot;
    plan.context = context;
    if (tx != nullptr && !narrow_tx(*tx, plan_.caps, plan.tx))
        return -FI_EINVAL;
    if (rx != nullptr && !narrow_rx(*rx, plan_.caps, plan.rx))
        return -FI_EINVAL;
    const std::uint64_t own = sends ? (tx != nullptr ? plan.tx.caps : plan_.caps) & limits::tx_caps
                                    : (rx != nullptr ? plan.rx.caps : plan_.caps) & limits::rx_caps;
    plan.caps = own | (plan_.caps & limits::domain_caps);

    std::lock_guard guard(mutex_);
    Slot& place = (sends ? tx_ : rx_)[slot];
    if (place != Slot::free) {
        TOFU_WARN(FI_LOG_EP_CTRL, "scalable endpoint: %s context %d %s\n", sends ? "transmit" : "receive", slot,
                  place == Slot::open ? "is open already: close it first"
                                      : "was closed and cannot be had again: open another one");
        return place == Slot::open ? -FI_EBUSY : -FI_EOPBADSTATE;
    }
    fid_ep* made = nullptr;
    if (int ret = Endpoint::make(*domain_, plan, &made); ret != 0)
        return ret;
    place = Slot::open;
    contexts_.fetch_add(1, std::memory_order_relaxed);
    if (tx != nullptr)
        *tx = plan.tx;
    if (rx != nullptr)
        *rx = plan.rx;
    *ep = made;
    return 0;
}

void ScalableEndpoint::drop_context(bool sends, unsigned slot) noexcept
{
    std::lock_guard guard(mutex_);
    if (sends)
        tx_[slot] = Slot::free;
    else
        rx_[slot] = Slot::closed;
    contexts_.fetch_sub(1, std::memory_order_release); // partner: close()
}

// --- the rest of its life

int ScalableEndpoint::bind(struct fid* object, std::uint64_t flags) noexcept
{
    // Queues and counters belong to contexts (fi_endpoint(3), fi_scalable_ep_bind).
    if (object == nullptr || object->fclass != FI_CLASS_AV || flags != 0 || av_ != nullptr)
        return -FI_EINVAL;
    Peers& av = Peers::of(reinterpret_cast<fid_av*>(object));
    if (&av.owner() != domain_)
        return -FI_EDOMAIN;
    av_ = &av;
    av_->hold();
    return 0;
}

int ScalableEndpoint::control(int command, void*) noexcept
{
    if (command != FI_ENABLE) // the other commands are for contexts
        return -FI_ENOSYS;
    return av_ != nullptr ? announce() : -FI_ENOAV;
}

int ScalableEndpoint::get_option(int level, int name, void* value, std::size_t* length) noexcept
{
    return get_multi_recv(plan_.min_multi_recv, level, name, value, length);
}

/// For contexts opened from now on.
int ScalableEndpoint::set_option(int level, int name, const void* value, std::size_t length) noexcept
{
    return set_multi_recv(plan_.min_multi_recv, level, name, value, length);
}

int ScalableEndpoint::close() noexcept
{
    if (contexts_.load(std::memory_order_acquire) != 0) // partner: drop_context()
        return -FI_EBUSY;
    if (av_ != nullptr)
        av_->release();
    domain_->give_back_numbers(first_, rx_count_);
    domain_->release();
    delete this;
    return 0;
}

} // namespace tofu
