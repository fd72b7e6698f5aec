// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See scalable.h. fi_endpoint(3), "Scalable endpoints".
#include "api/scalable.h"

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

namespace tofu {

namespace {

fi_ops scalable_fid_ops = object_ops({.close = close_object<ScalableEndpoint>,
                             .bind = calls<&ScalableEndpoint::bind>,
                             .control = calls<&ScalableEndpoint::control>});

fi_ops_ep ep_ops = context_ops({.getopt = calls<&ScalableEndpoint::get_option>,
                                .setopt = calls<&ScalableEndpoint::set_option>,
                                .tx_ctx = calls<&ScalableEndpoint::open_context<fi_tx_attr>>,
                                .rx_ctx = calls<&ScalableEndpoint::open_context<fi_rx_attr>>});

fi_ops_cm cm_ops = cm_ops_with(calls<&ScalableEndpoint::name>);

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
    if (rx_count_ != 0)
        owner().numbers().give_back(first_, rx_count_);
}

int ScalableEndpoint::set_up(const fi_info* info) noexcept
{
    if (int ret = plan_.take(info); ret != 0)
        return ret;
    plan_.parent = this;
    tx_count_ = contexts_in(info->ep_attr->tx_ctx_cnt);
    const unsigned rx_count = contexts_in(info->ep_attr->rx_ctx_cnt);
    if (tx_count_ == 0 || rx_count == 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "scalable endpoint: it has 1 to %u contexts of either kind, none of them "
                                  "shared: set tx_ctx_cnt and rx_ctx_cnt accordingly\n",
                  limits::max_contexts);
        return -FI_EINVAL;
    }
    const int ret = owner().numbers().take(rx_count, first_);
    rx_count_ = ret == 0 ? rx_count : 0;
    return ret;
}

EndpointAddress ScalableEndpoint::address() const noexcept
{
    return make_address(owner().home_id(), owner().nonce(), first_, rx_count_ - 1, address_flags(plan_.caps));
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

template <class Attr>
int ScalableEndpoint::open_context(int slot, Attr* attr, fid_ep** ep, void* context) noexcept
{
    constexpr bool sends = std::is_same_v<Attr, fi_tx_attr>;
    if (slot < 0 || static_cast<unsigned>(slot) >= (sends ? tx_count_ : rx_count_))
        return -FI_EINVAL;
    EndpointPlan plan = plan_;
    plan.name_key = 0; // the scalable endpoint announces the name
    plan.sends = sends;
    plan.receives = !sends;
    plan.slot = static_cast<unsigned>(slot);
    plan.number = first_ + plan.slot;
    Attr& granted = std::get<Attr&>(std::tie(plan.tx, plan.rx));
    if (attr != nullptr && !narrow(*attr, plan_.caps, granted))
        return -FI_EINVAL;
    const std::uint64_t own = (attr != nullptr ? granted.caps : plan_.caps) & (sends ? limits::tx_caps : limits::rx_caps);
    plan.caps = own | (plan_.caps & limits::domain_caps);

    std::lock_guard guard(mutex_);
    Slot& place = (sends ? tx_ : rx_)[slot];
    if (place != Slot::free) {
        TOFU_WARN(FI_LOG_EP_CTRL, "scalable endpoint: %s context %d %s\n", sends ? "transmit" : "receive", slot,
                  place == Slot::open ? "is open already: close it first"
                                      : "was closed and cannot be had again: open another one");
        return place == Slot::open ? -FI_EBUSY : -FI_EOPBADSTATE;
    }
    if (int ret = create<Endpoint>(owner(), &std::as_const(plan), ep, context); ret != 0)
        return ret;
    place = Slot::open;
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

int ScalableEndpoint::get_option(int level, int name, void* value, std::size_t* length) noexcept
{
    return get_options({{FI_OPT_MIN_MULTI_RECV, plan_.min_multi_recv}}, level, name, value, length);
}

/// Holds for contexts that are opened from now on.
int ScalableEndpoint::set_option(int level, int name, const void* value, std::size_t length) noexcept
{
    return set_multi_recv(plan_.min_multi_recv, level, name, value, length);
}

} // namespace tofu
