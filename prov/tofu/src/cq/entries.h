// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The unread entries of a completion queue, in order: a ring that grows. Part of cq.h, under the queue's lock; calls
// nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "av/address.h"

namespace tofu {

/// A successful completion in the widest format. A reader gets the part that its format has.
struct Completion {
    void* context = nullptr;
    std::uint64_t flags = 0; ///< FI_SEND | FI_TAGGED, FI_RMA | FI_WRITE, ... as the manual page fi_cq(3) says
    std::size_t length = 0;
    void* buffer = nullptr;
    std::uint64_t data = 0;
    std::uint64_t tag = 0;
    fi_addr_t source = FI_ADDR_NOTAVAIL;
};

struct CqEntry {
    Completion completion;
    int err = 0; ///< FI_E*; 0 for a success
    int prov_errno = 0;
    std::size_t overflow_length = 0;

    /// Marks a success whose sender is in no address vector (FI_SOURCE_ERR). It is read as an error FI_EADDRNOTAVAIL
    /// with the sender's address as error data, which lies in members that such an entry does not use otherwise.
    [[nodiscard]] static CqEntry of_unknown_source(const Completion& completion, const EndpointAddress& source) noexcept;
    /// Is it such an entry? A failed send may have FI_EADDRNOTAVAIL, too.
    [[nodiscard]] bool has_unknown_source() const noexcept
    {
        return err == FI_EADDRNOTAVAIL && (completion.flags & (FI_RECV | FI_REMOTE_WRITE)) != 0;
    }
    /// Fills in an error entry for fi_cq_readerr(3), except for its error data, which are returned: a sender's address.
    /// `room_for_source`: the application's entry has src_addr, which libfabric 1.20 added at its end.
    [[nodiscard]] std::optional<AddressForm> tell(fi_cq_err_entry& to, bool room_for_source, bool textual) const noexcept;
};

class Entries {
  public:
    /// Makes room for `size` entries at first, a power of 2. False: no memory.
    [[nodiscard]] bool open(std::size_t size) noexcept;
    /// Any thread; only a hint without the lock.
    [[nodiscard]] bool empty() const noexcept
    {
        return std::atomic_ref(tail_).load(std::memory_order_relaxed) ==
               std::atomic_ref(head_).load(std::memory_order_relaxed);
    }
    /// Adds a success. Never fails: beyond its size the ring grows. Where it can't grow its last place gets an error
    /// FI_EOVERRUN with the context of the first that is lost; further ones are lost without a trace until there is
    /// room again.
    [[gnu::always_inline]] void put(const Completion& c) noexcept
    {
        int err = 0;
        if (tail_ - head_ >= mask_) [[unlikely]]
            if (err = make_room(); err < 0)
                return;
        CqEntry& entry = ring_[tail_ & mask_];
        // One by one: an inlined caller then needs no Completion in memory.
        entry.completion.context = c.context;
        entry.completion.flags = c.flags;
        entry.completion.length = c.length;
        entry.completion.buffer = c.buffer;
        entry.completion.data = c.data;
        entry.completion.tag = c.tag;
        entry.completion.source = c.source;
        entry.err = err;
        set(tail_, tail_ + 1);
    }
    /// Likewise.
    void put(const CqEntry& entry) noexcept;
    /// The oldest; null where there is none.
    [[nodiscard]] const CqEntry* first() const noexcept { return head_ != tail_ ? &ring_[head_ & mask_] : nullptr; }
    /// The oldest entries, at most `most`, as far as they stand one behind the other in memory.
    struct Run {
        const CqEntry* next;
        const CqEntry* end;
    };
    [[nodiscard]] Run waiting(std::size_t most) const noexcept
    {
        const CqEntry* const next = &ring_[head_ & mask_];
        return {next, next + std::min({most, tail_ - head_, mask_ + 1 - (head_ & mask_)})};
    }
    void pop(std::size_t count = 1) noexcept
    {
        set(head_, head_ + count);
        if (head_ == tail_) { // from the start: short bursts stay in the same cache lines
            set(tail_, 0);
            set(head_, 0);
        }
    }

  private:
    /// relaxed: empty() is only a hint, all else is under the lock
    static void set(std::uint64_t& count, std::uint64_t value) noexcept
    {
        std::atomic_ref(count).store(value, std::memory_order_relaxed);
    }
    [[nodiscard, gnu::noinline]] int make_room() noexcept;
    [[nodiscard]] bool grow() noexcept;

    std::unique_ptr<CqEntry[]> ring_;
    std::size_t mask_ = 0;
    // Counts of entries read and written; the ring holds the entries between.
    mutable std::uint64_t head_ = 0;
    mutable std::uint64_t tail_ = 0;
};

} // namespace tofu
