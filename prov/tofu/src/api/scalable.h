// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_scalable_ep: one address for several transmit and receive contexts. The scalable endpoint holds what they have in
// common and moves no data itself: each context is an Endpoint of one direction, with a VCQ, a lock and engines of its
// own. Called by the application; calls domain, endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include <rdma/fi_endpoint.h>

#include "api/endpoint.h"
#include "api/names.h"
#include "av/address.h"
#include "core/limits.h"

namespace tofu {

class Peers;
class DomainBase;

/// Receive context i is the domain's endpoint number `first + i`: fi_rx_addr names it by adding. A transmit context has
/// any number; its visits carry the address of the scalable endpoint. The users (core/object.h) are the contexts.
class ScalableEndpoint final : public Object<ScalableEndpoint, fid_ep, DomainBase> {
  public:
    explicit ScalableEndpoint(DomainBase& domain) noexcept;
    ~ScalableEndpoint();
    /// fi_scalable_ep(3). 0, -FI_EINVAL, -FI_ENOSPC (the domain has too few endpoint numbers left).
    [[nodiscard]] int set_up(const fi_info* info) noexcept;

    [[nodiscard]] EndpointAddress address() const noexcept;
    /// Null before fi_scalable_ep_bind.
    [[nodiscard]] Peers* av() noexcept { return av_; }
    /// Announces the service name that it was opened for; later calls do nothing. 0 or -FI_E*.
    int announce() noexcept;
    [[nodiscard]] names::Announcement& announcement() noexcept { return announcement_; }
    /// Called by a context that is being closed.
    void drop_context(bool sends, unsigned slot) noexcept;

    // --- the calls of fi_ep's operation tables
    /// fi_tx_context, fi_rx_context. The type of `attr`, fi_tx_attr or fi_rx_attr, says the direction; it may be null.
    template <class Attr>
    int open_context(int slot, Attr* attr, fid_ep** ep, void* context) noexcept;
    int bind(struct fid* object, std::uint64_t flags) noexcept;
    int control(int command, void* argument) noexcept;
    int name(void* address, std::size_t* length) const noexcept;
    int get_option(int level, int name, void* value, std::size_t* length) noexcept;
    int set_option(int level, int name, const void* value, std::size_t length) noexcept;

  private:
    /// A closed receive context can't be opened again, since peers may still write to its rings.
    enum class Slot : std::uint8_t { free, open, closed };

    Held<Peers> av_;
    EndpointPlan plan_{}; ///< contexts inherit it
    unsigned first_ = 0;  ///< number of receive context 0
    unsigned tx_count_ = 0;
    unsigned rx_count_ = 0; ///< 0: no numbers have been taken
    std::mutex mutex_; ///< guards the members below
    Slot tx_[limits::max_contexts] = {};
    Slot rx_[limits::max_contexts] = {};
    bool announced_ = false;
    names::Announcement announcement_;
};

} // namespace tofu
