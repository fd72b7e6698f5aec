// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From a VCQ ID to the mapped queues of the VCQ it names, by a cache of pointers.
#pragma once

#include "job/liveness.h"
#include "job/segment.h"
#include "memory/memory.h"
#include "tni/mrq.h"
#include "topology/ids.h"

#include <cstdint>
#include <utofu.h>

namespace tofu::sim {

/// Written once, before it is published. One that has died is replaced by a new object for the ID's next owner and
/// freed long after, because another thread may be using it.
struct Remote {
    uint64_t key = 0; ///< vcq_key(id)
    const AliveWord* alive_word = nullptr;
    uint32_t tid = 0; ///< what it holds while process and VCQ live
    SegmentHeader* header = nullptr;
    MrqRing mrq;
    RemoteVcq memory; ///< memory/: where its STag table is
    const Peer* peer = nullptr;
    unsigned index = 0;
    bool session = false;
    uint64_t first_flow = 0; ///< where each VCQ counts what it posts to the remote's node

    [[nodiscard]] bool alive() const noexcept { return is_alive(*alive_word, tid); }
};

/// Direct-mapped: a hit is a load and a compare. Entries are Remote pointers.
inline constexpr unsigned remote_cache_bits = 12;
extern SharedWord<uintptr_t> remote_cache[1u << remote_cache_bits];

[[nodiscard]] inline unsigned remote_cache_slot(uint64_t key) noexcept
{
    return static_cast<unsigned>((key * 0x9e3779b97f4a7c15u) >> (64 - remote_cache_bits));
}

/// `scarce`: this process has no descriptor or address space left to find out; a line on stderr says so.
enum class RemoteStatus { found, no_owner, invalid_id, scarce, no_memory };

/// What a post answers to the last three.
[[nodiscard]] constexpr int refusal_of(RemoteStatus status) noexcept
{
    switch (status) {
    case RemoteStatus::scarce: return UTOFU_ERR_BUSY;
    case RemoteStatus::no_memory: return UTOFU_ERR_OUT_OF_MEMORY;
    case RemoteStatus::found:
    case RemoteStatus::no_owner:
    case RemoteStatus::invalid_id: break;
    }
    return UTOFU_ERR_INVALID_VCQ_ID;
}

/// Slow: looks the owner up in the job file and maps its segment. `no_owner`: no process owns such a VCQ now.
[[nodiscard]] RemoteStatus resolve_remote(uint64_t vcq_id, Remote*& remote) noexcept;

/// A live remote, or why there is none.
[[nodiscard]] inline RemoteStatus find_remote(uint64_t vcq_id, Remote*& remote) noexcept
{
    const uint64_t key = vcq_key(vcq_id);
    // Acquire: the object is complete (partner: resolve_remote publishes).
    remote = reinterpret_cast<Remote*>(remote_cache[remote_cache_slot(key)].load_acquire());
    if (remote != nullptr && remote->key == key && remote->alive()) [[likely]]
        return RemoteStatus::found;
    return resolve_remote(vcq_id, remote);
}

/// The ID names a place that exists: coordinates, TNI, CQ, mark.
[[nodiscard]] bool is_possible_vcq_id(uint64_t vcq_id, const Topology& topology) noexcept;

void forget_remotes_in_child() noexcept;

} // namespace tofu::sim
