// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_domain: the home VCQ, target of all remote access to the domain's regions and endpoints, and the
// lists of what lives in the domain. Called by fabric (open) and by every object below; calls vcq, region.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <rdma/fi_domain.h>

#include "address/address.h"
#include "provider/lock.h"
#include "provider/open_list.h"
#include "queue/progress_thread.h"
#include "vcq/vcq.h"

namespace tofu {

class Bell;
class Endpoint;
class EventQueue;
class Fabric;
class RegionTable;
class ProgressSet;

/// What the domain was opened with, reduced to what its objects ask again and again.
struct DomainModel {
    /// FI_THREAD_DOMAIN: the application's calls come one at a time. Its endpoints have one lock, shared_lock(), off as
    /// all are until the domain has a thread of its own. False for FI_PROGRESS_AUTO, which may get one at any time.
    bool serialised = false;
    bool virtual_addresses = false; ///< FI_MR_VIRT_ADDR: remote addresses are the target's addresses
    bool provider_keys = false;     ///< FI_MR_PROV_KEY
    bool textual_addresses = false; ///< FI_ADDR_STR
    std::uint32_t api_version = 0;
};

class Domain final : public fid_domain {
  public:
    /// fi_domain(3); holds the fabric. 0, -FI_EINVAL, -FI_ENOMEM, or an error of the backend, the home VCQ or the
    /// thread.
    static int open(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) noexcept;
    /// Those open in this process.
    static OpenList<Domain>& all() noexcept;
    static Domain& of(fid_domain* d) noexcept { return *static_cast<Domain*>(d); }

    [[nodiscard]] const DomainModel& model() const noexcept { return model_; }
    [[nodiscard]] const vcq::Backend& backend() const noexcept { return *backend_; }
    /// Whether VCQs to post from are thread-safe ones: calls under different locks may meet at their CQ (guide 2.5).
    [[nodiscard]] bool safe_vcqs() const noexcept { return safe_vcqs_; }

    // --- the home VCQ: every call of it under home_lock()
    [[nodiscard]] Lock& home_lock() noexcept { return home_lock_; }
    [[nodiscard]] vcq::Vcq& home() noexcept { return home_; }
    [[nodiscard]] utofu_vcq_id_t home_id() const noexcept { return home_.id(); }
    [[nodiscard]] std::uint64_t nonce() const noexcept { return nonce_; }
    [[nodiscard]] RegionTable& regions() noexcept { return *regions_; }

    /// Handles of the home VCQ and its annexes, at most `most`; returns how many. Takes the home lock.
    [[nodiscard]] std::size_t homes(utofu_vcq_hdl_t* handles, std::size_t most) noexcept;
    /// Polls the home VCQ and its annexes: counts RMA events. Takes the home lock, or returns at once where another
    /// thread holds it and `patient` is not asked for. No endpoint lock may be held. True where there was something.
    bool progress_home(bool patient = false) noexcept;

    /// The one endpoint lock of all endpoints that share a context with others (endpoint/shared_context.h), or of all endpoints
    /// where the domain is serialised.
    [[nodiscard]] Lock& shared_lock() noexcept { return shared_lock_; }

    // --- progress without calls of the application (FI_PROGRESS_AUTO, wait objects of its own)
    /// Every enabled endpoint of the domain.
    [[nodiscard]] ProgressSet& everything() noexcept { return *everything_; }
    /// Starts the thread with its first user, at any time. 0 or -FI_E*. `bell`: what the thread repeats for it, may be
    /// null.
    [[nodiscard]] int need_thread(Bell* bell) noexcept;
    /// With FI_PROGRESS_AUTO: nobody has called go_on_alone() yet.
    [[nodiscard]] bool thread_is_due() const noexcept { return thread_is_due_.load(std::memory_order_relaxed); }
    /// With FI_PROGRESS_AUTO: from now on there is something that goes on only while somebody polls. What is one
    /// communication does so without. No lock may be held. 0 or -FI_E*.
    [[nodiscard]] int go_on_alone() noexcept;
    /// Stops it with its last.
    void dismiss_thread(Bell* bell) noexcept;
    /// For the locks of queues and the like: adopt() switches a lock off where the threading model needs none, and
    /// need_thread() switches all of them on. Nobody holds one then, as the application serialises its calls.
    void adopt(Lock& lock) noexcept;
    void drop(Lock& lock) noexcept;

    // --- endpoints by number; a number is not used again at once (stale addresses)
    /// `count` numbers in a row, for an endpoint or the receive contexts of a scalable one. 0 or -FI_ENOSPC.
    [[nodiscard]] int take_numbers(unsigned count, unsigned& first) noexcept;
    void give_back_numbers(unsigned first, unsigned count) noexcept;
    void add_endpoint(Endpoint& ep, unsigned index) noexcept;
    void remove_endpoint(unsigned index) noexcept;
    /// The endpoint counts RMA events of regions that are bound to none.
    void count_events(unsigned index) noexcept;
    /// One has come; under home_lock(). As Endpoint::rma_event().
    void rma_event(bool read) noexcept;
    /// Endpoint number `index` (below max_endpoints) or null; under home_lock().
    [[nodiscard]] Endpoint* endpoint_at(unsigned index) const noexcept { return endpoints_[index]; }
    /// Spreads VCQs over TNIs and CQs.
    [[nodiscard]] unsigned next_spread() noexcept { return spread_.fetch_add(1, std::memory_order_relaxed); }

    // --- users count: fi_close answers -FI_EBUSY while any is left
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { users_.fetch_sub(1, std::memory_order_relaxed); }

    int bind(EventQueue& events, std::uint64_t flags) noexcept;
    /// Where registrations report (fi_domain_bind, FI_REG_MR); null: they are synchronous.
    [[nodiscard]] EventQueue* registration_events() const noexcept { return reports_regions_ ? events_ : nullptr; }
    int close() noexcept;

    Domain* next_open = nullptr; ///< the list's

  private:
    Domain() noexcept;
    ~Domain();
    int set_up(Fabric& fabric, const fi_info& info, void* context) noexcept;
    static void on_remote(void* self, const vcq::RemoteNotice& notice) noexcept;

    DomainModel model_{};
    Fabric* fabric_ = nullptr;
    EventQueue* events_ = nullptr;
    bool reports_regions_ = false;
    const vcq::Backend* backend_ = nullptr;
    Lock home_lock_;
    Lock shared_lock_;
    vcq::Vcq home_;
    std::uint64_t nonce_ = 0;
    std::unique_ptr<RegionTable> regions_;
    Endpoint* endpoints_[max_endpoints] = {};
    std::uint64_t counting_[(max_endpoints + 63) / 64] = {}; ///< those of count_events(), a bit each
    std::bitset<max_endpoints> taken_; ///< numbers in use
    unsigned next_index_ = 0;          ///< numbers from here on have never been used
    bool safe_vcqs_ = true;
    std::mutex thread_mutex_; ///< of the five below, which go in reverse order
    bool locks_are_on_ = true;
    LockList locks_;
    std::unique_ptr<ProgressSet> everything_;
    ProgressThread thread_;
    unsigned thread_users_ = 0;
    std::atomic<bool> thread_is_due_{false}; ///< FI_PROGRESS_AUTO, before go_on_alone()
    std::atomic<unsigned> spread_{0};
    std::atomic<int> users_{0};
};

} // namespace tofu
