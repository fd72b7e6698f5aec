// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the objects of a domain share. Progress without calls of the application, for FI_PROGRESS_AUTO and for wait
// objects that the application sleeps on by its own means: a thread, and the locks, which stay off until there is a
// thread where the threading model allows it (AutoProgress). The domain as its objects see it (DomainModel,
// DomainBase). Progress of all endpoints of the process (progress_everywhere).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <pthread.h>
#include <rdma/fi_domain.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "core/lock.h"
#include "core/node_map.h"
#include "core/object.h"
#include "core/stats.h"
#include "core/system.h"
#include "cq/progress.h"
#include "utofu/vcq.h"

namespace tofu {

// --- AutoProgress: owned by the domain

class WakeSignal;
class DomainBase;

class AutoProgress final : ForkAware {
  public:
    explicit AutoProgress(DomainBase& domain) noexcept : domain_(domain), everything_(domain) { register_fork(); }
    ~AutoProgress()
    {
        unregister_fork();
        close();
    }
    /// `serialised`: locks are off until the thread starts. `wanted`: FI_PROGRESS_AUTO.
    void choose(bool serialised, bool wanted) noexcept;
    /// Stops the thread, even if it has users.
    void close() noexcept;

    /// Every enabled endpoint of the domain.
    [[nodiscard]] ProgressSet& everything() noexcept { return everything_; }
    /// Adds a user of the thread; the first starts it. 0 or -FI_E*. `signal`, which may be null: the thread repeats the
    /// wake-ups of it that could not be delivered at once.
    [[nodiscard]] int acquire_thread(WakeSignal* signal) noexcept;
    /// Removes a user; the last stops the thread and waits for its end, some ten milliseconds.
    void release_thread(WakeSignal* signal) noexcept;
    /// With FI_PROGRESS_AUTO: true until the first start_thread().
    [[nodiscard]] bool thread_is_due() const noexcept { return thread_is_due_.load(std::memory_order_relaxed); }
    /// With FI_PROGRESS_AUTO: starts the thread, because from now on something needs polls to go on (an operation that
    /// is a single communication does not). The caller holds no lock. 0 or -FI_E*.
    [[nodiscard]] int start_thread() noexcept;
    /// Switches the locks on, because another thread of the application is to make progress. The caller's is the one
    /// that serialises the domain's calls, and holds no lock.
    void enable_locks() noexcept;
    /// Where the thread was put; empty: nowhere of its own.
    [[nodiscard]] const char* processors() const noexcept { return processors_; }
    /// Takes in the lock of a queue or the like. adopt() switches it off where the threading model needs none;
    /// acquire_thread() switches all of them on, which no thread holds then, as the application serialises its calls.
    /// Locks that are on stay as they are: threads of the application may be in them.
    void adopt(Lock& lock) noexcept;
    void drop(Lock& lock) noexcept;

  private:
    /// The child has no thread, and nothing unlocks a lock that another thread of the parent held.
    void in_child() noexcept override
    {
        users_ = 0;
        switch_locks(false);
    }
    void switch_locks(bool on) noexcept
    {
        locks_are_on_ = on;
        locks_.each([on](Lock& lock) { lock.set_enabled(on); });
    }
    [[nodiscard]] int start() noexcept;
    void place_thread() noexcept;
    void set_processors(const node::Processors& cpus, const char* why) noexcept;
    void leave() noexcept;
    void run() noexcept;
    [[nodiscard]] bool repeat_signals() noexcept;

    DomainBase& domain_;
    Mutex mutex_; ///< guards the next four; taken before signals_mutex_
    bool locks_are_on_ = true;
    TwoWayList<Lock, &Lock::next, &Lock::back> locks_;
    unsigned users_ = 0; ///< 0: there is no thread
    pthread_t thread_{};
    char processors_[128] = {}; ///< under mutex_
    Mutex signals_mutex_;
    Array<WakeSignal*> signals_; ///< one entry for each user with a signal
    std::atomic<bool> stop_{false};
    std::atomic<bool> thread_is_due_{false}; ///< FI_PROGRESS_AUTO, before start_thread()
    ProgressSet everything_;
};

// --- DomainBase: a domain as its objects see it: the VCQ at which peers reach it, the model that the application
// chose, the locks and the thread. Opened and closed by api/domain.h, which adds what only the application's calls
// need.

class Counter;
class DeferredCalls;
class RegionTable;
namespace coll {
class LaneDirectory;
}
namespace proto {
class OrphanedCopies;
}

/// The attributes of the domain that its objects ask for again and again.
struct DomainModel {
    /// FI_THREAD_DOMAIN: the application's calls come one at a time. All endpoints have one lock, shared_lock(), which
    /// is off, as all locks are, until the domain has a thread of its own. False for FI_PROGRESS_AUTO, with which a
    /// thread may start at any time.
    bool serialised = false;
    bool virtual_addresses = false; ///< FI_MR_VIRT_ADDR: remote addresses are the target's addresses
    bool provider_keys = false;     ///< FI_MR_PROV_KEY
    bool whole_words = false;       ///< FI_ATOMIC, FI_RMA_EVENT: ARMWs of peers reach the words around a region's ends
    bool textual_addresses = false; ///< FI_ADDR_STR
    bool has_owner = false;         ///< FI_PEER: another provider compares sources by their addresses
    std::uint32_t api_version = 0;
    /// Arrays of descs hold what the caller's fi_mr(3) says. It has calls without FI_MR_LOCAL ignore them up to version
    /// 1.21, so their pointer may be anything; from 1.22 on a desc is valid or null. An owner of our queues is not
    /// believed: lnx passes a desc in place of the array (libfabric 2.0, 2.1), or one for several segments (up to 2.6).
    bool valid_descs = false;
};

/// Operations that wait for counters (api/triggered.h).
struct DeferredWork {
    DeferredCalls* calls = nullptr;
    Lock lock;                 ///< guards all of it; taken before endpoints' locks
    std::atomic<int> count{0}; ///< operations that wait or are under way
    [[nodiscard]] bool any() const noexcept { return count.load(std::memory_order_relaxed) != 0; }
};

/// Opens the VCQs of a domain.
struct VcqSource {
    const vcq::Backend* backend = nullptr;
    bool safe = true; ///< VCQs to post from are thread-safe: calls under several locks may meet at a CQ (guide 2.5)
    StatisticsBook statistics; ///< of all VCQs

    /// Opens a VCQ on the next TNI and CQ: one to post from, or one that is a target too, whose calls are made under
    /// another lock than those of others. 0 or -FI_E*.
    [[nodiscard]] int open(vcq::Vcq& vcq, vcq::Sink sink, bool is_target = false) noexcept;
    /// Opens a VCQ for signaled posts on a TNI that no process of the node posts from. 0, or silently -FI_E*.
    [[nodiscard]] int open_spare(vcq::Vcq& vcq) noexcept
    {
        return vcq.open(*backend, vcq::spread_of_spare, safe, {.book = &statistics});
    }

  private:
    std::atomic<unsigned> spread_{0};
};

class DomainBase : public Object<DomainBase, fid_domain, FabricBase> {
  public:
    explicit DomainBase(FabricBase& fabric) noexcept : Object(&fabric, FI_CLASS_DOMAIN) {}
    /// The domains that are open in this process.
    static OpenList<DomainBase>& all() noexcept;

    [[nodiscard]] const DomainModel& model() const noexcept { return model_; }
    [[nodiscard]] const vcq::Backend& backend() const noexcept { return *vcqs_.backend; }
    [[nodiscard]] VcqSource& vcqs() noexcept { return vcqs_; }

    // --- the target VCQ, target of all remote access to the domain's regions and endpoints: every call under
    // target_lock()
    [[nodiscard]] Lock& target_lock() noexcept { return target_lock_; }
    [[nodiscard]] vcq::Vcq& target_vcq() noexcept { return target_vcq_; }
    [[nodiscard]] utofu_vcq_id_t target_vcq_id() const noexcept { return target_vcq_.id(); }
    /// A random number. With target_vcq_id() it names the domain among all domains, earlier ones with this VCQ ID
    /// included.
    [[nodiscard]] std::uint64_t nonce() const noexcept { return nonce_; }
    /// Polls all VCQs at which peers reach the domain. Takes the target lock; if another thread holds it and `patient`
    /// is false, returns at once. The caller holds no endpoint lock. True if a poll found a notice.
    virtual bool progress_domain(bool patient) noexcept = 0;
    /// fi_close of a counter that is in use: what holds it for late events alone (mem/mr.h) lets go of it.
    virtual void forget_counter(const Counter&) noexcept {}
    /// Called before the counter is set: work whose threshold it has reached (fi_trigger(3)) needs no more of it.
    virtual void note_reached(const Counter&) noexcept {}
    /// Writes the handles of those VCQs to `handles`, at most `most`, and returns how many. Takes the target lock.
    [[nodiscard]] virtual std::size_t target_vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept = 0;

    [[nodiscard]] EndpointNumbers& numbers() noexcept { return numbers_; }
    [[nodiscard]] StatisticsBook& statistics() noexcept { return vcqs_.statistics; }
    /// mem/mr.h
    [[nodiscard]] RegionTable& regions() noexcept { return *regions_; }
    /// coll/lanes.h
    [[nodiscard]] coll::LaneDirectory& lane_directory() noexcept { return *lane_directory_; }
    /// msg/copies.h
    [[nodiscard]] proto::OrphanedCopies& orphaned_copies() noexcept { return *orphaned_copies_; }
    [[nodiscard]] DeferredWork& deferred() noexcept { return deferred_; }
    /// The lock of all endpoints that share a context with others (api/contexts.h), or of all endpoints of a
    /// serialised domain.
    [[nodiscard]] Lock& shared_lock() noexcept { return shared_lock_; }
    /// How long fi_close of an endpoint waits for what was sent to leave. Any thread.
    [[nodiscard]] std::atomic<std::chrono::milliseconds>& closing_patience() noexcept { return closing_patience_; }
    /// Progress without calls of the application, and the locks that are needed because of it.
    [[nodiscard]] AutoProgress& auto_progress() noexcept { return auto_progress_; }

    DomainBase* next_open = nullptr; ///< in the list of open domains

  protected:
    ~DomainBase() = default;

    DomainModel model_{};
    VcqSource vcqs_; ///< destroyed after the VCQs whose statistics it adds up
    std::uint64_t nonce_ = 0;
    AutoProgress auto_progress_{*this};
    Lock target_lock_;
    Lock shared_lock_;
    vcq::Vcq target_vcq_;
    RegionTable* regions_ = nullptr;
    coll::LaneDirectory* lane_directory_ = nullptr;
    proto::OrphanedCopies* orphaned_copies_ = nullptr;
    DeferredWork deferred_;

  private:
    std::atomic<std::chrono::milliseconds> closing_patience_{std::chrono::milliseconds(1000)};
    EndpointNumbers numbers_;
};

// --- Progress of all endpoints of the process, for an object that waits for one of them while it closes

/// One bounded round for the endpoints of the caller's domain, and of each other domain of the process whose locks are
/// on. Those of a domain without locks may be in use by another thread. Left out are also domains with an owner of
/// their receives, which does not expect messages now. The caller holds no lock.
void progress_everywhere(DomainBase& own) noexcept;

} // namespace tofu
