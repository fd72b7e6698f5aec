// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Another process as seen from here: its files mapped by windows, copies through the kernel, requests. Uses:
// /proc/<pid>/fd, mmap, futex.
#pragma once

#include "memory/memory.h"
#include "memory/mover.h"
#include "memory/vm_copy.h"

#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace tofu::sim {

inline constexpr uint64_t peer_window_bytes = uint64_t{64} << 20;
/// Of all peers together, or a fourth of the mappings that the kernel allows a process: the program wants some, too.
inline constexpr uint32_t max_peer_windows = 16384;

struct PeerRequest {
    RequestKind kind = RequestKind::none;
    uint32_t vcq = 0;
    uint32_t length = 0;
    uint64_t stadd = 0;
    uint64_t operand = 0;
    uint64_t compare = 0;
    ArmwOp operation = ArmwOp::cswap;
    uint64_t old_value = 0; ///< out
};

struct PeerProcess::Impl {
    std::byte* segment = nullptr;
    int pid = 0;
    uint32_t alive_tid = 0;
    SharedWord<uint32_t> copy_forbidden{0}; ///< process_vm_* is not allowed on this process

    [[nodiscard]] bool alive() const noexcept;
    [[nodiscard]] ServiceArea& area() const noexcept
    {
        return *reinterpret_cast<ServiceArea*>(segment_service_area(segment));
    }

    /// The window of a backing that holds `file_offset`: its address here, offset and size; null: not mappable.
    [[nodiscard]] std::byte* window(uint32_t backing, uint64_t file_offset, uint64_t* window_offset,
                                    uint64_t* window_bytes) noexcept;

    enum class CopyResult { ok, fault, forbidden, gone };
    /// Through the kernel. *done: bytes copied, also when it ends early.
    [[nodiscard]] CopyResult copy(uint64_t there, void* here, size_t bytes, Towards towards, CopyOrder order,
                                  size_t* done) noexcept;

    /// Has the owner do it. `data`: source of a write, destination of a read. An owner that does not
    /// answer a request for a move, since it is stopped, has not done it (`unreachable`) after a moment, and at once
    /// from then on: there is another way. For what only the owner can do we wait as long as it lives.
    [[nodiscard]] AccessStatus ask(PeerRequest& request, void* data) noexcept;
    /// Has the owner do a move at some time, or not at all: no thread waits.
    void suggest_move(PeerRequest move) noexcept;
    /// By a debugger or a signal: it will go on, some day.
    [[nodiscard]] bool is_stopped() const noexcept;

    ~Impl();

  private:
    /// The window that begins at `start` of a backing's file, which is opened for each anew: a process has few files,
    /// and peers are many. Null: not to be mapped; *for_good unless a resource is exhausted, or it is beyond the end.
    [[nodiscard]] std::byte* map_object(uint32_t backing, uint64_t start, uint64_t* bytes,
                                        bool* for_good) const noexcept;
    [[nodiscard]] MailboxSlot* claim_slot(uint64_t* state, int64_t deadline) noexcept;
    /// Claims a slot and posts the request in it; null: no slot was free by `deadline`. *posted: the slot's state then.
    [[nodiscard]] MailboxSlot* post(const PeerRequest& request, const void* data, int64_t deadline,
                                    uint64_t* posted) noexcept;
    [[nodiscard]] bool await_answer(MailboxSlot& slot, uint64_t posted, int64_t deadline) noexcept;
    [[nodiscard]] bool is_deaf() noexcept;

    SharedWord<uint64_t> unheard_{0}; ///< 0, or a bell that was not answered in time and a bit above it

    std::mutex mutex_;
    std::unordered_set<uint32_t> refused_; ///< backings
    struct Window {
        std::byte* address;
        uint64_t bytes;
    };
    std::unordered_map<uint64_t, Window> windows_; ///< by backing << 32 | number of the window
};

} // namespace tofu::sim
