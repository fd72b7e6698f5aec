// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VCQs of this process: their handles, creation and freeing (guide 3.3), their private queues.
#pragma once

#include "job/layout.h"
#include "job/process.h"
#include "memory/access.h"
#include "memory/memory.h"
#include "tni/control.h"
#include "tni/mrq.h"
#include "tni/private_ring.h"

#include <utofu.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace tofu::sim {

struct Remote;
struct ChaosQueue;
struct Gathered;
struct Watched;
struct ChaosDeleter {
    void operator()(ChaosQueue* queue) const noexcept;
};

struct GatheredDeleter {
    void operator()(Gathered* gathered) const noexcept;
};

struct WatchedDeleter {
    void operator()(Watched* watched) const noexcept;
};

struct TcqEntry {
    void* cbdata;
    uint32_t toq_position; ///< of its descriptor
    int32_t result;        ///< UTOFU_SUCCESS or UTOFU_ERR_TCQ_*
};

/// What the owner of a session mode VCQ remembers of a descriptor in its shared TOQ.
struct SessionCallback {
    void* cbdata;
    bool notice; ///< a TCQ entry was asked for
    uint32_t length;
    FlowCounters* flow;
};

struct LocalNotice {
    MrqEntry entry;
};

/// A VCQ of this process. Objects live in one static table and are never destroyed; a handle is the address of
/// one, and stays recognisable, and invalid, after the VCQ was freed.
struct alignas(512) Vcq {
    /// Set last on creation and cleared first on freeing (partner: find_vcq).
    SharedWord<uint32_t> live;
    /// Whether posts and polls take the slow road: a lock, session mode, adversarial mode, instruments; or instructions
    /// are held. Written by set_special() while other threads may look.
    uint32_t special;

    /// TOQ: positions of descriptors; those in [toq_head, toq_tail) have an unread TCQ entry.
    uint32_t toq_head;
    uint32_t toq_tail;
    PrivateRing<TcqEntry> tcq;
    PrivateRing<LocalNotice> local_notices;

    /// MRQ: our end of the ring that peers write.
    MrqRing mrq;
    uint64_t mrq_head;
    uint32_t claimed_polls; ///< consecutive polls that found a claim in front
    uint32_t mrq_capacity;
    SharedWord<uint32_t> idle_mrq_polls; ///< consecutive polls of the MRQ that found nothing: a hint

    AddressCache* addresses; ///< translations of STADDs, local and remote
    RemoteVcq own_memory;    ///< our own side of a transfer

    std::unique_ptr<SessionCallback[]> session_cbdata; ///< session mode only
    uint32_t idle_polls;

    uint64_t id; ///< with our own A, B, C as path
    Claimant me{0, 0};
    FlowCounters* flows; ///< its row of counters, by Remote::first_flow and path ID
    uint32_t index;
    uint8_t tni;
    uint8_t cq;
    uint8_t component;
    CqMode mode;
    bool thread_safe;

    /// Whether the thread of the adversarial mode may go to this VCQ: set when it is complete, cleared under `lock`
    /// before it is taken apart (partner: may_carry_on in tni/chaos).
    SharedWord<uint32_t> carried_on;
    std::unique_ptr<ChaosQueue, ChaosDeleter> chaos_queue; ///< adversarial mode only
    std::unique_ptr<Gathered, GatheredDeleter> gathered;   ///< held by DELAY_START; once there was any
    std::unique_ptr<Watched, WatchedDeleter> watch;        ///< with instruments only
    std::unique_ptr<VcqMemory> registrations;              ///< our STADDs
    std::mutex lock;                                       ///< thread-safe VCQs, and all of them in adversarial mode

    enum Special : uint32_t { locked = 1, session = 2, chaos = 4, gathering = 8, watched = 16 };
    /// Those that change what a post and a poll do.
    static constexpr uint32_t detour = session | chaos | watched;
    /// relaxed: a thread that waits for notices only looks for `session`, which does not change (partner: has_notices)
    void set_special(uint32_t to) noexcept { std::atomic_ref(special).store(to, std::memory_order_relaxed); }
};

/// Never destroyed: other threads may still post while the program exits.
union VcqTable {
    Vcq slots[vcqs_per_node];
    constexpr VcqTable() noexcept : slots{} {}
    ~VcqTable() {}
};
extern VcqTable vcq_storage;
inline constexpr Vcq (&vcq_table)[vcqs_per_node] = vcq_storage.slots;

/// The VCQ of a handle, or nullptr for a foreign or freed one. Two compares and a load.
[[nodiscard]] inline Vcq* find_vcq(utofu_vcq_hdl_t handle) noexcept
{
    const uintptr_t offset = handle - reinterpret_cast<uintptr_t>(&vcq_table[0]);
    if (offset >= sizeof vcq_table || offset % sizeof(Vcq) != 0) [[unlikely]]
        return nullptr;
    auto* const vcq = reinterpret_cast<Vcq*>(handle);
    // Acquire: a live VCQ is complete (partner: create_vcq).
    return vcq->live.load_acquire() != 0 ? vcq : nullptr;
}

inline constexpr int any_component = -1;

/// `component` is any_component for utofu_create_vcq. Any thread.
[[nodiscard]] int create_vcq(unsigned tni, int component, unsigned long flags, utofu_vcq_hdl_t& handle) noexcept;
[[nodiscard]] int free_vcq(utofu_vcq_hdl_t handle) noexcept;

/// Takes the VCQ's lock if it has one.
class VcqGuard {
  public:
    explicit VcqGuard(Vcq& vcq) noexcept : vcq_((vcq.special & Vcq::locked) != 0 ? &vcq : nullptr)
    {
        if (vcq_ != nullptr)
            vcq_->lock.lock();
    }
    ~VcqGuard()
    {
        if (vcq_ != nullptr)
            vcq_->lock.unlock();
    }
    VcqGuard(const VcqGuard&) = delete;
    VcqGuard& operator=(const VcqGuard&) = delete;

  private:
    Vcq* vcq_;
};

} // namespace tofu::sim
