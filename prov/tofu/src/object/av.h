// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av: addresses of peers, by index (FI_AV_TABLE and FI_AV_MAP alike: fi_addr_t is the index). Called by the
// application, and bound to endpoints, which see its Peers (address/peers.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_domain.h>

#include "address/address.h"
#include "address/peers.h"

namespace tofu {

class EventQueue;

class AddressVector final : public Peers {
  public:
    /// fi_av_open(3); holds the domain. 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_ENOSYS (a name: vectors are not shared
    /// between processes), -FI_ENOMEM.
    static int open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) noexcept;
    static AddressVector& of(fid_av* a) noexcept { return *static_cast<AddressVector*>(a); }

    /// Addresses are text (FI_ADDR_STR) instead of EndpointAddress.
    [[nodiscard]] bool textual() const noexcept { return textual_; }

    // --- the calls of fi_av's operation table
    int insert(const void* addresses, std::size_t count, fi_addr_t* places, std::uint64_t flags,
               void* context) noexcept;
    int insert_named(const char* node, const char* service, fi_addr_t* place, std::uint64_t flags,
                     void* context) noexcept;
    int remove(const fi_addr_t* places, std::size_t count, std::uint64_t flags) noexcept;
    int copy(fi_addr_t place, void* address, std::size_t* length) const noexcept;
    int bind(EventQueue& events) noexcept;
    int close() noexcept;

  private:
    AddressVector(DomainBase& domain, bool textual) noexcept;
    ~AddressVector() = default;
    [[nodiscard]] static bool text_at(const void* addresses, std::size_t number, char* text) noexcept;
    [[nodiscard]] int may_insert(std::uint64_t flags) const noexcept;
    [[nodiscard]] int* errors_at(std::uint64_t flags, void* context) const noexcept;
    [[nodiscard]] int insert_one(const EndpointAddress& address, fi_addr_t* result, void* context,
                                 std::size_t number) noexcept;
    [[nodiscard]] int finish(int inserted, void* context) noexcept;

    DomainBase& domain_;
    bool textual_;
    bool asynchronous_ = false; ///< FI_EVENT: insertions report to the event queue
    EventQueue* events_ = nullptr;
};

} // namespace tofu
