// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint's message area: the memory that its peers write to (layout: msg/wire.h). The rings register it with the
// home VCQ. Pages are touched only where a peer talks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/lock.h"
#include "core/system.h"
#include "msg/wire.h"
#include "utofu/vcq.h"

namespace tofu::proto {

class Area final : ForkAware {
  public:
    Area() = default;
    /// Takes over what the other one has, which is closed then.
    Area(Area&& other) noexcept;
    Area& operator=(const Area&) = delete;
    ~Area() { close(); }

    /// Maps the area and registers it under the reserved STag of endpoint `index`. Takes the home lock. 0 or
    /// -FI_E*.
    [[nodiscard]] int open(vcq::Vcq& home, Lock& home_lock, std::uint64_t nonce, unsigned index,
                           const Geometry& geometry) noexcept;
    /// Registers the rings that are not registered yet. False: there are none, another thread has the home's lock, or
    /// the registration failed.
    [[nodiscard]] bool grow() noexcept;
    [[nodiscard]] bool is_open() const noexcept { return base_ != nullptr; }
    /// The number of registered rings.
    [[nodiscard]] std::uint32_t open_rings() const noexcept { return open_rings_; }
    /// Deregisters the memory: peers reach it no more, its owner still does. Takes the home lock.
    void hide() noexcept;
    /// Lets peers see that the endpoint is closed, while they still reach the completion words.
    void disown() noexcept;
    void close() noexcept;
    /// Frees the memory that closed areas have left for later ones. Any thread.
    static void drop_spare() noexcept;

    [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
    [[nodiscard]] std::byte* ring(unsigned n) const noexcept { return base_ + geometry_.ring(n); }
    [[nodiscard]] std::byte* anon_slots() const noexcept { return base_ + anon_slots_offset; }
    /// Words that peers' TNIs write; each access pairs with their Put or ARMW.
    [[nodiscard]] std::atomic_ref<std::uint64_t> fin(unsigned n) const noexcept { return word(completion_offset(n)); }
    [[nodiscard]] const void* completion_address(unsigned n) const noexcept { return base_ + completion_offset(n); }
    [[nodiscard]] std::atomic_ref<std::uint64_t> consumed(unsigned n) const noexcept { return word(credit_offset(n)); }
    /// All doorbells in one word. A peer Puts a doorbell behind what it announces.
    [[nodiscard]] std::atomic_ref<std::uint64_t> doorbells() const noexcept { return word(doorbells_offset); }
    [[nodiscard]] std::uint64_t* gate() const noexcept { return reinterpret_cast<std::uint64_t*>(base_ + gate_offset); }
    /// CreditBlock::status and, above, ::check.
    [[nodiscard]] std::atomic_ref<std::uint64_t> status(unsigned n) const noexcept
    {
        return word(credit_offset(n) + offsetof(CreditBlock, status));
    }

  private:
    /// The child gets a private copy at its first write, so its fi_close changes nothing that peers see.
    void in_child() noexcept override;
    [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t offset) const noexcept
    {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(base_ + offset));
    }

    vcq::Vcq* home_ = nullptr;
    Lock* home_lock_ = nullptr;
    int fd_ = -1;
    std::byte* base_ = nullptr;
    std::uint64_t stadd_ = 0;
    std::uint64_t further_ = 0; ///< STADD of the rings that were registered later
    std::uint32_t open_rings_ = 0;
    unsigned index_ = 0;
    bool full_ = false; ///< their registration failed
    bool hidden_ = false;
    Geometry geometry_{};
};

} // namespace tofu::proto
