// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq(3), the completions of operations: what is reported (Completion, CqEntry), the unread entries in order
// (Entries, a ring that grows), the queue (CompletionQueue), and queues and counters that another provider owns
// (open_queue, open_counter, forward_entries). Requests and the message protocol write; the application reads, which
// drives progress.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/types.h>

#include "av/address.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/progress.h"
#include "cq/wait.h"

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
    [[nodiscard]] static CqEntry of_unknown_source(const Completion& completion,
                                                   const EndpointAddress& source) noexcept;
    /// Is it such an entry? A failed send may have FI_EADDRNOTAVAIL, too.
    [[nodiscard]] bool has_unknown_source() const noexcept
    {
        return err == FI_EADDRNOTAVAIL && (completion.flags & (FI_RECV | FI_REMOTE_WRITE)) != 0;
    }
    /// Fills in an error entry for fi_cq_readerr(3), except for its error data, which are returned: a sender's address.
    /// `room_for_source`: the application's entry has src_addr, which libfabric 1.20 added at its end.
    [[nodiscard]] std::optional<AddressForm> describe(fi_cq_err_entry& to, bool room_for_source,
                                                      bool textual) const noexcept;
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
    /// Adds a success. Never fails: beyond its size the ring grows. If it cannot grow, its last entry becomes an error
    /// FI_EOVERRUN with the context of the first lost entry. Further entries are lost until there is
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
    /// As !empty(), under the lock or where it is off.
    [[nodiscard]] bool has_some() const noexcept { return head_ != tail_; }
    /// The oldest; null where there is none.
    [[nodiscard]] const CqEntry* first() const noexcept { return has_some() ? &ring_[head_ & mask_] : nullptr; }
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
    /// Called where no more than the last place is free. 0: the ring has grown; FI_EOVERRUN, for the entry in that
    /// place; negative: that place is taken.
    [[nodiscard, gnu::noinline]] int make_room() noexcept
    {
        return grow() ? 0 : tail_ - head_ <= mask_ ? FI_EOVERRUN : -FI_EOVERRUN;
    }
    [[nodiscard]] bool grow() noexcept;

    std::unique_ptr<CqEntry[]> ring_;
    std::size_t mask_ = 0;
    // Counts of entries read and written; the ring holds the entries between.
    mutable std::uint64_t head_ = 0;
    mutable std::uint64_t tail_ = 0;
};

// --- CompletionQueue

class DomainBase;
class Endpoint;

class CompletionQueue final : public Object<CompletionQueue, fid_cq, DomainBase> {
  public:
    explicit CompletionQueue(DomainBase& domain) noexcept;
    ~CompletionQueue();
    /// fi_cq_open(3). 0, -FI_EINVAL, -FI_ENOSYS (a format or a wait object that is not offered), -FI_ENOMEM, or an
    /// error of the wait object.
    [[nodiscard]] int set_up(const fi_cq_attr* attr) noexcept;

    /// Writes an entry. Never fails: beyond its size the queue grows (slow path). Without memory for that, an error
    /// entry FI_EOVERRUN stands for the entries that are lost. Takes the queue's lock; callers hold at most target lock
    /// and endpoint locks.
    [[gnu::always_inline]] void write(const Completion& completion) noexcept
    {
        TOFU_PROBE(complete, this, completion.context);
        if (reader_.room != 0) [[likely]] {
            reader_.write(completion, entry_size_);
            return;
        }
        lock_.lock();
        entries_.put(completion);
        lock_.unlock();
        wait_.signal();
    }
    /// As write(), for what a poll has found: most often a reader has made that poll.
    [[gnu::always_inline]] void write_from_poll(const Completion& completion) noexcept
    {
        if (reader_.room != 0) [[likely]] {
            TOFU_PROBE(complete, this, completion.context);
            reader_.write(completion, entry_size_);
        } else {
            const auto& [context, flags, length, buffer, data, tag, source] = completion;
            write_out_of_line(context, flags, length, buffer, data, tag, source);
        }
    }
    /// Writes an error entry (fi_cq(3), struct fi_cq_err_entry). err is a positive FI_E*, prov_errno a uTofu code or,
    /// after FI_EREMOTEIO, the receiver's FI_E*.
    void write_error(const CqEntry& entry) noexcept;

    [[nodiscard]] ProgressSet& progress() noexcept { return progress_; }
    /// True if there is nothing to read. Any thread; only a hint while other threads read and write.
    [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
    /// Takes the next entry, a success or an error, of a queue that the provider itself reads. False: there is none.
    [[nodiscard]] bool pop(CqEntry& entry) noexcept;
    /// True if the reader whose call makes progress has received nothing yet.
    [[nodiscard]] bool reader_is_empty() const noexcept { return reader_.taken() == 0 && empty(); }
    // --- the calls of fi_cq's operation table (fi_cq(3)). Any thread, which holds no lock: a read runs a round of
    // progress, and takes the queue's lock for entries in the ring. It returns the number of entries, -FI_EAGAIN, or
    // -FI_EAVAIL if an error is first. Those that wait answer -FI_EAGAIN at their time-out and after signal(),
    // -FI_EINVAL for FI_WAIT_NONE and FI_WAIT_SET, and fewer than FI_CQ_COND_THRESHOLD asks for if an error comes.
    // signal(): 0, or -FI_ENOSYS without a wait object.
    ssize_t read(void* buffer, std::size_t count) noexcept;
    ssize_t read_from(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    ssize_t read_error(fi_cq_err_entry* entry, std::uint64_t flags) noexcept;
    ssize_t wait_and_read(void* buffer, std::size_t count, const void* condition, int timeout_ms)
    {
        return wait_and_read_from(buffer, count, nullptr, condition, timeout_ms);
    }
    ssize_t wait_and_read_from(void* buffer, std::size_t count, fi_addr_t* sources, const void* condition,
                               int timeout_ms);
    int signal() noexcept;
    int control(int command, void* argument) noexcept { return wait_.control(command, argument); }
    [[nodiscard]] WaitObject& wait_object() noexcept { return wait_; }
    /// For poll sets: makes progress if the queue is empty. True if it has an entry then.
    [[nodiscard]] bool has_events() noexcept;

  private:
    static bool ready(void* self) noexcept;
    /// write(). The parts of a Completion, which its caller need not have in memory then.
    [[gnu::noinline]] void write_out_of_line(void* context, std::uint64_t flags, std::size_t length, void* buffer,
                                             std::uint64_t data, std::uint64_t tag, fi_addr_t source) noexcept
    {
        write({context, flags, length, buffer, data, tag, source});
    }
    [[nodiscard, gnu::noinline]] ssize_t read_waiting(void* buffer, std::size_t count) noexcept;
    [[nodiscard, gnu::noinline]] ssize_t read_packets(void* buffer, std::size_t count, Endpoint& endpoint,
                                                      PollHint hint) noexcept;
    [[nodiscard, gnu::noinline]] ssize_t read_notices(void* buffer, std::size_t count, Endpoint& endpoint) noexcept;
    [[nodiscard]] ssize_t close_read() noexcept;
    [[nodiscard, gnu::noinline]] ssize_t read_slowly(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    /// The buffer of a reading call.
    struct Reader {
        void* to = nullptr;
        std::size_t room = 0;
        std::size_t size = 0;         ///< room at first
        fi_addr_t* sources = nullptr; ///< of fi_cq_readfrom
        bool is_plain = false;        ///< entries of the longest format, and no sources
        [[nodiscard]] std::size_t taken() const noexcept { return size - room; }
        [[gnu::always_inline]] void write(const Completion& c, std::size_t entry_size) noexcept
        {
            auto* const entry = static_cast<fi_cq_tagged_entry*>(to);
            room--;
            if (is_plain) [[likely]] {
                *entry = {c.context, c.flags, c.length, c.buffer, c.data, c.tag};
                to = entry + 1;
                return;
            }
            // Each format is a prefix of the next, fi_cq(3).
            entry->op_context = c.context;
            if (entry_size > sizeof(fi_cq_entry)) {
                entry->flags = c.flags;
                entry->len = c.length;
            }
            if (entry_size > sizeof(fi_cq_msg_entry)) {
                entry->buf = c.buffer;
                entry->data = c.data;
            }
            if (entry_size > sizeof(fi_cq_data_entry))
                entry->tag = c.tag;
            to = static_cast<char*>(to) + entry_size;
            if (sources != nullptr)
                *sources++ = c.source;
        }
    };
    [[nodiscard]] ssize_t drain(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    template <std::size_t entry_size>
    [[nodiscard, gnu::always_inline]] ssize_t take_all(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    /// Entries go into this buffer from now on, until it is full or an entry has to be kept.
    [[gnu::always_inline]] void begin_read(void* buffer, std::size_t count) noexcept
    {
        reader_.to = buffer;
        reader_.room = reader_.size = count;
    }
    /// Ends that, and returns the number of entries taken.
    [[gnu::always_inline]] std::size_t end_read() noexcept
    {
        const std::size_t taken = reader_.taken();
        reader_.room = reader_.size = 0;
        return taken;
    }

    [[nodiscard]] bool is_longest() const noexcept { return entry_size_ == sizeof(fi_cq_tagged_entry); }

    std::size_t entry_size_ = 0; ///< of the queue's format
    bool threshold_ = false;     ///< FI_CQ_COND_THRESHOLD
    Lock lock_;
    /// A reader that needs no lock while it makes progress: entries go straight into its buffer instead of through the
    /// ring. Set within read_from() only. It has no room while there are entries in the ring, which come first.
    Reader reader_;
    Entries entries_;
    ProgressSet progress_;
    std::atomic<unsigned> signals_{0};
    char err_data_[limits::max_err_data]; ///< lent to the application by read_error()
    WaitObject wait_; ///< last member: leaves its wait set and the thread before the others are destroyed
};

/// fi_cq_read of the operation table (api/cq_read.cc).
ssize_t read_cq(fid_cq* cq, void* buffer, std::size_t count) noexcept;

// --- Queues and counters that another provider owns (fi_peer(3), FI_PEER of fi_cq_open and fi_cntr_open). They
// work like all others, but are not read: their entries and counts are forwarded to the owner.

/// fi_cq_open(3), fi_cntr_open(3). With FI_PEER `context` names the owner's object. -FI_EINVAL: it does not, or the
/// interface of this libfabric is not known.
int open_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) noexcept;
int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) noexcept;

/// Hands the entries of the queue on to its owner, if it has one, in order. The caller holds no lock that the owner's
/// calls may take; it may hold the context's.
void forward_entries(CompletionQueue& queue) noexcept;

} // namespace tofu
