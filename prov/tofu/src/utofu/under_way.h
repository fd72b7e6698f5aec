// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is under way from a VCQ: the completion handlers of signaled posts (CompletionTable), and the remote VCQs that
// unsignaled posts have gone to, which a fence has to reach (UnsignaledPeers). Under the lock of the VCQ's owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <utofu.h>

namespace tofu::vcq {

// --- CompletionTable: finds the completion handler of a notice. A signaled post takes a tag, which travels
// as EDATA and comes back with the notice; EDATA is one byte (caps: max_edata_size 1).

/// The end of a communication, for its completion handler. Two words, which are passed in registers.
struct Notice {
    std::int64_t code;   ///< UTOFU_SUCCESS or the UTOFU_ERR_{TCQ,MRQ}_* of this communication
    std::uint64_t value; ///< ARMW: the value before the operation; of others whatever the library says
};

/// Waits for the end of a communication; base of requests. Its function runs in the thread that polls, under the lock
/// of the VCQ's owner, and may post again.
struct CompletionHandler {
    using Function = void (*)(CompletionHandler* self, Notice notice) noexcept;
    Function notify;
};

/// The tags, numbered 1 to size - 1. They are matched one by one, since notices keep their order only per remote VCQ
/// (guide 2.2.10).
class CompletionTable {
  public:
    static constexpr unsigned size = 255;
    /// The values of EDATA. Those that are no tags belong to unsignaled posts (PostTag) and have an entry, too, which
    /// expects no notice: so the handler of any EDATA is found without a comparison.
    static constexpr unsigned edata_values = 256;
    [[nodiscard]] static constexpr bool is_tag(std::uint64_t edata) noexcept { return edata != 0 && edata < size; }
    /// True if all tags are free.
    void reset() noexcept;
    /// The tag that acquire() gives next, or 0: none is free. It lets the owner keep its state by tag
    /// (tx/operation.h), without an allocation.
    [[nodiscard]] std::uint8_t next() const noexcept { return first_free_; }
    [[nodiscard]] unsigned free() const noexcept { return free_count_; }
    [[nodiscard]] bool all_free() const noexcept { return free_count_ == size - 1; }
    /// True if no notice of a post is to come, but for failures of endless batches.
    [[nodiscard]] bool no_waiters() const noexcept { return all_free() || all_quiet(); }

    /// Takes a tag for one notice. 0: none is free.
    [[nodiscard, gnu::always_inline]] std::uint8_t acquire(CompletionHandler* handler) noexcept
    {
        const std::uint8_t number = first_free_;
        if (number == 0) [[unlikely]]
            return 0;
        Entry& entry = entries_[number];
        first_free_ = entry.next_free;
        free_count_--;
        entry.handler = handler;
        entry.expected = 1;
        entry.age = 0;
        return number;
    }
    void release(std::uint8_t number) noexcept
    {
        Entry& entry = entries_[number];
        entry.expected = 0;
        entry.age = 0;
        entry.next_free = first_free_;
        first_free_ = number;
        free_count_++;
    }
    /// Returns the completion handler of a notice: one that does nothing, where it has been notified already.
    [[nodiscard, gnu::always_inline]] CompletionHandler& arrived(std::uint8_t number) noexcept
    {
        Entry& entry = entries_[number];
        CompletionHandler* handler = entry.handler;
        if (entry.expected == 1) [[likely]]
            release(number);
        else if (entry.expected == 0) [[unlikely]]
            handler = &given_up_handler;
        else if (entry.expected != endless) {
            entry.age = 0;
            entry.expected--;
        }
        return *handler;
    }

    // --- batches: posts to one peer that share one tag. Notices of posts to the same remote VCQ come in the order of
    // the posts (guide 2.2.10), so the completion handler can count them.
    /// Makes the tag that of a batch. It is the batch's until its last notice, or `endless`: until close().
    void open(std::uint8_t number, bool endless) noexcept
    {
        entries_[number].open = !endless;
        if (endless)
            entries_[number].expected = CompletionTable::endless;
    }
    /// Announces the notices of `n` posts of a batch that is neither endless nor given up. `last`: there are no more.
    /// The batch is closed if all have come.
    void announce(std::uint8_t number, unsigned n, bool last) noexcept
    {
        Entry& entry = entries_[number];
        entry.expected = static_cast<std::uint16_t>(entry.expected + n - last);
        entry.age = 0;
        entry.open = !last;
        if (entry.expected == 0)
            release(number);
    }
    /// Frees the tag, if it still belongs to `handler`: no notice will come for it any more.
    void close(std::uint8_t number, const CompletionHandler* handler) noexcept
    {
        if (!belongs_to(number, handler))
            return;
        entries_[number].open = false;
        release(number);
    }
    /// Ends an endless batch for which failures may still arrive at any time. Its tag is not freed, so that they
    /// reach no other completion handler, and no_waiters() does not count it.
    void abandon(std::uint8_t number, const CompletionHandler* handler) noexcept
    {
        if (belongs_to(number, handler))
            entries_[number].handler = &given_up_handler;
    }

    // --- communications that do not end
    static constexpr std::uint16_t lost_age = 3; ///< calls of grow_older() after the last notice
    /// Has any tag reached that age? If no tag is free, given up tags of that age are used again.
    [[nodiscard]] bool grow_older() noexcept;
    /// Gives up the completion handlers of an age whose notices are missing, and notifies them of each. False: there
    /// was none. `for good`: their tags, and those of all batches, are free again; else not, so that a late notice is
    /// not taken for that of another completion handler.
    bool give_up(int code, bool for_good, std::uint16_t least_age = 0) noexcept;

  private:
    /// The completion handler of tags that were given up. They are not free, so that late notices reach no other
    /// completion handler.
    static void ignore(CompletionHandler*, Notice) noexcept {}
    static constinit inline CompletionHandler given_up_handler{ignore};
    static constexpr std::uint16_t endless = 0xffff; ///< notices of a batch that lasts until it is closed
    struct Entry {
        CompletionHandler* handler = nullptr; ///< of the last user, where the tag is free
        std::uint8_t next_free = 0;
        bool open = false;          ///< a batch of which not all is posted: one of `expected` is no post's
        std::uint16_t expected = 0; ///< notices until the tag is free again; 1 except for batches; 0: it is free
        std::uint16_t age = 0;
        [[nodiscard]] bool is_free() const noexcept { return expected == 0; }
        /// Are all notices of posts there?
        [[nodiscard]] bool is_quiet() const noexcept
        {
            return expected == open || expected == endless || handler == &given_up_handler;
        }
    };
    [[nodiscard]] bool belongs_to(std::uint8_t number, const CompletionHandler* handler) const noexcept
    {
        return !entries_[number].is_free() && entries_[number].handler == handler;
    }
    [[nodiscard, gnu::cold]] bool all_quiet() const noexcept;

    std::uint16_t free_count_ = 0;
    std::uint8_t first_free_ = 0; ///< 0: none
    Entry entries_[edata_values];
};

// --- UnsignaledPeers: the remote VCQs that have unsignaled posts under way: posts since the last fence whose effect no
// notice reports. A post to the same peer as the last one costs one comparison, another post costs one lookup in a
// table.

class UnsignaledPeers {
  public:
    /// Notes an unsignaled post that is about to be made. False: no memory, so the post must not be made.
    [[nodiscard, gnu::always_inline]] bool note(utofu_vcq_id_t peer) noexcept
    {
        return last_ == peer || note_other(peer);
    }
    /// A fence has been posted, whose notice confirms all posts before it.
    void fenced(utofu_vcq_id_t peer) noexcept;
    [[nodiscard]] bool has(utofu_vcq_id_t peer) const noexcept
    {
        const std::size_t at = find(peer);
        return size_ != 0 && table_[at].peer == peer && table_[at].unsignaled;
    }
    void clear() noexcept;
    /// Calls `fence(peer)` for each peer as long as it answers true. False: some peers are left. `hand` is the place to
    /// go on from; begin with 0.
    template <class Fence>
    [[nodiscard]] bool visit(std::size_t& hand, Fence&& fence)
    {
        for (; hand < size_; hand++)
            if (table_[hand].unsignaled && !fence(table_[hand].peer))
                return false;
        return true;
    }

  private:
    struct Entry {
        utofu_vcq_id_t peer = none;
        bool unsignaled = false;
    };
    static constexpr utofu_vcq_id_t none = ~utofu_vcq_id_t{0}; // no VCQ has this ID

    /// The entry of a peer, or the free entry where it belongs. The table must not be empty.
    [[nodiscard]] std::size_t find(utofu_vcq_id_t peer) const noexcept
    {
        std::size_t at = size_ == 0 ? 0 : (peer * 0x9e3779b97f4a7c15u >> 32) & (size_ - 1);
        while (size_ != 0 && table_[at].peer != peer && table_[at].peer != none)
            at = (at + 1) & (size_ - 1);
        return at;
    }
    /// Notes a peer that is not `last_`. False: no memory.
    [[gnu::noinline]] bool note_other(utofu_vcq_id_t peer) noexcept
    {
        if (!has(peer) && !note_slowly(peer))
            return false;
        last_ = peer;
        return true;
    }
    [[nodiscard]] bool note_slowly(utofu_vcq_id_t peer) noexcept;
    [[nodiscard]] bool grow() noexcept;

    utofu_vcq_id_t last_ = none;     ///< the peer noted last, while it has unsignaled posts
    std::unique_ptr<Entry[]> table_; ///< every peer that was ever noted; its size is a power of two, half of it free
    std::size_t size_ = 0;
    std::size_t used_ = 0;
};

} // namespace tofu::vcq
