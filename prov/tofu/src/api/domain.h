// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_domain: opens and closes the parts that the objects of a domain share (cq/domain_base.h), and polls the VCQs at
// which peers reach it (Domain). fi_av: addresses of peers (AddressVector).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <rdma/fi_domain.h>

#include "api/triggered.h"
#include "av/address.h"
#include "av/peer_table.h"
#include "coll/lanes.h"
#include "cq/domain_base.h"
#include "cq/eq.h"
#include "mem/mr.h"
#include "msg/copies.h"

namespace tofu {

/// fi_mr(3): the operation table of a domain for memory regions.
extern fi_ops_mr region_ops;

class Domain final : public DomainBase {
  public:
    explicit Domain(FabricBase& fabric) noexcept;
    ~Domain();
    /// fi_domain(3). 0, -FI_EINVAL, -FI_ENOMEM, or an error of the backend, the target VCQ or the thread.
    static int open(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) noexcept;
    [[nodiscard]] int set_up(const fi_info* info) noexcept;
    static Domain& of(fid_domain* d) noexcept { return *static_cast<Domain*>(d); }

    bool progress_domain(bool patient) noexcept override;
    void forget_counter(const Counter& counter) noexcept override;
    void note_reached(const Counter& counter) noexcept override { own_triggered_->note_reached(counter); }
    [[nodiscard]] std::size_t target_vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

    [[nodiscard]] TriggeredQueue& work() noexcept { return *own_triggered_; }
    /// The queue that registrations report to (fi_domain_bind, FI_REG_MR); null: they are synchronous.
    [[nodiscard]] EventQueue* registration_events() const noexcept { return registration_events_; }
    int bind(struct fid* object, std::uint64_t flags) noexcept;
    int close() noexcept;

  private:
    void await_receivers() noexcept;
    void print_placement() const noexcept;
    static void on_remote(void* self, const vcq::RemoteNotice& notice) noexcept;

    Ref<EventQueue> events_;
    EventQueue* registration_events_ = nullptr;
    RegionTable own_regions_{*this};
    coll::LaneDirectory own_lane_directory_{*this};
    proto::OrphanedCopies own_orphaned_copies_{*this};
    std::optional<TriggeredQueue> own_triggered_{std::in_place, *this}; ///< until close()
};

// --- AddressVector: addresses of peers, by index (FI_AV_TABLE and FI_AV_MAP alike: fi_addr_t is the index). The
// engines see the vector as its Peers.

class AddressVector final : public Peers {
  public:
    explicit AddressVector(DomainBase& domain) noexcept;
    static int open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) noexcept;
    /// fi_av_open(3). 0, -FI_EINVAL, -FI_EBADFLAGS, -FI_ENOENT (FI_READ of a name that no process has open),
    /// -FI_EACCES, -FI_ENOMEM.
    [[nodiscard]] int set_up(fi_av_attr* attr) noexcept;
    static AddressVector& of(fid_av* a) noexcept { return *static_cast<AddressVector*>(a); }

    // --- the calls of fi_av's operation table
    int insert(const void* addresses, std::size_t count, fi_addr_t* fi_addrs, std::uint64_t flags,
               void* context) noexcept;
    int insert_named(const char* node, const char* service, fi_addr_t* fi_addr, std::uint64_t flags,
                     void* context) noexcept;
    int remove(fi_addr_t* fi_addrs, std::size_t count, std::uint64_t flags) noexcept;
    int lookup(fi_addr_t fi_addr, void* address, std::size_t* length) noexcept;
    const char* to_text(const void* address, char* text, std::size_t* length) noexcept;
    int bind(struct fid* object, std::uint64_t flags) noexcept;

  private:
    [[nodiscard]] int share(fi_av_attr& attr) noexcept;
    [[nodiscard]] int insert_one(const EndpointAddress& address, fi_addr_t& fi_addr) noexcept;
    [[nodiscard]] static bool text_at(const void* addresses, std::size_t number, char* text) noexcept;
    template <class AddressOf>
    [[nodiscard]] int insert_all(std::size_t count, fi_addr_t* fi_addrs, std::uint64_t flags, void* context,
                                 AddressOf&& address_of) noexcept;

    const bool textual_;        ///< addresses are text (FI_ADDR_STR) instead of EndpointAddress
    bool asynchronous_ = false; ///< FI_EVENT: insertions report to the event queue
    Ref<EventQueue> events_;
};

} // namespace tofu
