// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_cq: completions of operations. Requests and the message protocol write; the application reads, which drives
// progress. Calls progress and wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <rdma/fi_eq.h>
#include <sys/types.h>

#include "av/address.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/object.h"
#include "cq/entries.h"
#include "cq/progress.h"
#include "cq/wait.h"

namespace tofu {

class DomainBase;
class Endpoint;

class CompletionQueue final : public Object<CompletionQueue, fid_cq, DomainBase> {
  public:
    explicit CompletionQueue(DomainBase& domain) noexcept;
    ~CompletionQueue();
    /// fi_cq_open(3). 0, -FI_EINVAL, -FI_ENOSYS (a format or a wait object that is not offered), -FI_ENOMEM, or an error
    /// of the wait object.
    [[nodiscard]] int set_up(const fi_cq_attr* attr) noexcept;

    /// Writes an entry. Never fails: beyond its size the queue grows (slow path). Without memory for that, an error
    /// entry FI_EOVERRUN stands for the entries that are lost. Takes the queue's lock; callers hold at most home and
    /// endpoint locks.
    [[gnu::always_inline]] void write(const Completion& completion) noexcept
    {
        TOFU_PROBE(complete, this, completion.context);
        if (reader_.room != 0) [[likely]] {
            reader_.take(completion, entry_size_);
            return;
        }
        lock_.lock();
        entries_.put(completion);
        lock_.unlock();
        wait_.signal();
    }
    /// As write(), for what a poll has found: most often a reader has made that poll.
    [[gnu::always_inline]] void hand_over(const Completion& completion) noexcept
    {
        if (reader_.room != 0) [[likely]] {
            TOFU_PROBE(complete, this, completion.context);
            reader_.take(completion, entry_size_);
        } else {
            const auto& [context, flags, length, buffer, data, tag, source] = completion;
            keep(context, flags, length, buffer, data, tag, source);
        }
    }
    /// Writes an error entry (fi_cq(3), struct fi_cq_err_entry). err is a positive FI_E*, prov_errno a uTofu code or,
    /// after FI_EREMOTEIO, the receiver's FI_E*.
    void write_error(const CqEntry& entry) noexcept;

    [[nodiscard]] ProgressSet& progress() noexcept { return progress_; }
    /// True if there is nothing to read. Any thread; only a hint while other threads read and write.
    [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
    /// Takes the next entry, a success or an error, of a queue that the provider itself reads. False: there is none.
    [[nodiscard]] bool take(CqEntry& entry) noexcept;
    /// True if the reader whose call makes progress has received nothing yet.
    [[nodiscard]] bool reader_waits() const noexcept { return reader_.taken() == 0 && empty(); }
    // --- the calls of fi_cq's operation table
    ssize_t read(void* buffer, std::size_t count) noexcept;
    ssize_t read_from(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    ssize_t read_error(fi_cq_err_entry* entry, std::uint64_t flags) noexcept;
    ssize_t wait_and_read(void* buffer, std::size_t count, const void* condition, int timeout_ms) noexcept
    {
        return wait_and_read_from(buffer, count, nullptr, condition, timeout_ms);
    }
    ssize_t wait_and_read_from(void* buffer, std::size_t count, fi_addr_t* sources, const void* condition,
                               int timeout_ms) noexcept;
    int signal() noexcept;
    int control(int command, void* argument) noexcept { return wait_.control(command, argument); }
    [[nodiscard]] WaitObject& wait_object() noexcept { return wait_; }
    /// For poll sets: makes progress if the queue is empty. True if it has an entry then.
    [[nodiscard]] bool news() noexcept;

  private:
    static bool ready(void* self) noexcept;
    /// write(). The parts of a Completion, which its caller need not have in memory then.
    [[gnu::noinline]] void keep(void* context, std::uint64_t flags, std::size_t length, void* buffer, std::uint64_t data,
                                std::uint64_t tag, fi_addr_t source) noexcept
    {
        write({context, flags, length, buffer, data, tag, source});
    }
    [[nodiscard, gnu::noinline]] ssize_t read_packets(Endpoint& endpoint, std::size_t ring, void* buffer,
                                                      std::size_t count) noexcept;
    [[nodiscard, gnu::noinline]] ssize_t read_notices(Endpoint& endpoint, void* buffer, std::size_t count) noexcept;
    [[nodiscard]] ssize_t close_read() noexcept;
    [[nodiscard, gnu::noinline]] ssize_t read_slowly(void* buffer, std::size_t count, fi_addr_t* sources) noexcept;
    /// The buffer of a reading call.
    struct Reader {
        void* to = nullptr;
        std::size_t room = 0;
        std::size_t size = 0;         ///< room at first
        fi_addr_t* sources = nullptr; ///< of fi_cq_readfrom
        [[nodiscard]] std::size_t taken() const noexcept { return size - room; }
        [[gnu::always_inline]] void take(const Completion& c, std::size_t entry_size) noexcept
        {
            auto* const entry = static_cast<fi_cq_tagged_entry*>(to);
            room--;
            if (entry_size == sizeof(fi_cq_tagged_entry) && sources == nullptr) [[likely]] {
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
    [[nodiscard]] ssize_t take(const Reader& reader) noexcept;
    template <std::size_t entry_size>
    [[nodiscard]] ssize_t take_all(Reader reader) noexcept;
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

/// fi_cq_read of the operation table (cq_read.cc).
ssize_t read_cq(fid_cq* cq, void* buffer, std::size_t count) noexcept;

} // namespace tofu
