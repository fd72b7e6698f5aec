// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_av: addresses of peers, by index (FI_AV_TABLE and FI_AV_MAP alike: fi_addr_t is the index). The engines see the
// vector as its Peers (av/peer_table.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_domain.h>

#include "av/address.h"
#include "av/peer_table.h"
#include "cq/domain_base.h"
#include "cq/eq.h"

namespace tofu {

class AddressVector final : public Peers {
  public:
    explicit AddressVector(DomainBase& domain) noexcept;
    static int open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) noexcept;
    /// fi_av_open(3). 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_ENOENT (FI_READ of a name that no process has open),
    /// -FI_EACCES, -FI_ENOMEM.
    [[nodiscard]] int set_up(fi_av_attr* attr) noexcept;
    static AddressVector& of(fid_av* a) noexcept { return *static_cast<AddressVector*>(a); }

    // --- the calls of fi_av's operation table
    int insert(const void* addresses, std::size_t count, fi_addr_t* places, std::uint64_t flags,
               void* context) noexcept;
    int insert_named(const char* node, const char* service, fi_addr_t* place, std::uint64_t flags,
                     void* context) noexcept;
    int remove(fi_addr_t* places, std::size_t count, std::uint64_t flags) noexcept;
    int look_up(fi_addr_t place, void* address, std::size_t* length) noexcept;
    const char* to_text(const void* address, char* text, std::size_t* length) noexcept;
    int bind(struct fid* object, std::uint64_t flags) noexcept;

  private:
    [[nodiscard]] int share(fi_av_attr& attr) noexcept;
    [[nodiscard]] int place_for(const EndpointAddress& address, fi_addr_t& place) noexcept;
    [[nodiscard]] static bool text_at(const void* addresses, std::size_t number, char* text) noexcept;
    template <class AddressOf>
    [[nodiscard]] int insert_all(std::size_t count, fi_addr_t* places, std::uint64_t flags, void* context,
                                 AddressOf&& address_of) noexcept;

    const bool textual_;        ///< addresses are text (FI_ADDR_STR) instead of EndpointAddress
    bool asynchronous_ = false; ///< FI_EVENT: insertions report to the event queue
    Held<EventQueue> events_;
};

} // namespace tofu
