// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of one atomic operation and of its parts: what the entries fill in and the runner works off.
// Used by atomic and its runner; calls nothing.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "atomic/kernel.h"
#include "atomic/table.h"
#include "local/pages.h"
#include "remote/access.h"
#include "remote/event_credits.h"
#include "transfer/pending.h"
#include "transfer/request.h"

namespace tofu {

/// One iov list of the application, addressed by element number.
class Pieces {
  public:
    void clear() noexcept { count_ = 0; }
    void add(void* address, std::size_t elements) noexcept
    {
        if (elements != 0)
            piece_[count_++] = {static_cast<std::byte*>(address), elements};
    }

    /// The memory of element 0 where the list is one piece, else null.
    [[nodiscard]] std::byte* flat() const noexcept
    {
        return count_ == 1 ? piece_[0].address : nullptr;
    }
    /// Copies `n` elements from number `first` on into `out`, one after the other.
    void gather(void* out, std::size_t first, std::size_t n, std::size_t size) const noexcept
    {
        if (count_ == 1) [[likely]]
            std::memcpy(out, piece_[0].address + first * size, n * size);
        else
            walk(static_cast<std::byte*>(out), first, n, size, false);
    }
    /// The other way round.
    void scatter(const void* in, std::size_t first, std::size_t n, std::size_t size) const noexcept
    {
        if (count_ == 1) [[likely]]
            std::memcpy(piece_[0].address + first * size, in, n * size);
        else
            walk(static_cast<std::byte*>(const_cast<void*>(in)), first, n, size, true);
    }

  private:
    struct Piece {
        std::byte* address;
        std::size_t elements;
    };

    void walk(std::byte* flat, std::size_t first, std::size_t n, std::size_t size,
              bool out) const noexcept
    {
        for (unsigned i = 0; i < count_ && n != 0; ++i) {
            const Piece& p = piece_[i];
            if (first >= p.elements) {
                first -= p.elements;
                continue;
            }
            const std::size_t take = n < p.elements - first ? n : p.elements - first;
            std::byte* const at = p.address + first * size;
            std::memcpy(out ? at : flat, out ? flat : at, take * size);
            flat += take * size;
            n -= take;
            first = 0;
        }
    }

    unsigned count_ = 0;
    Piece piece_[max_atomic_iov];
};

/// What an operation is to a target that counts (FI_RMA_EVENT): one notice at its end. For counters of endpoints a
/// fetching one is a read (fi_endpoint(3)); for those of regions it writes (fi_mr(3), fi_mr_bind).
enum class AtomicEvent : std::uint8_t { none, write, read, fetch };

/// An operation that is not one ARMW of one element (transfer/quick.h). `pending` counts word operations, plus one until
/// all words have been started.
struct AtomicOp : Request, PendingOp {
    enum class Step : std::uint8_t {
        resolving, ///< a key was stale -> starting: all are known anew; -> ended: one was refused
        starting,  ///< -> notifying: every word has ended; -> resolving; -> ended
        notifying, ///< the notice at the target found no room -> ended: it was posted
        ended
    };
    struct Piece {
        Target at;
        std::size_t elements;
        std::uint64_t key;
        std::uint64_t address;  ///< what the application said; `at` follows from it and the key
    };

    fi_addr_t to;
    std::uint64_t access;       ///< that the target's regions must allow
    class AtomicRunner* runner;
    Step step;
    AtomicOp* loop_next;        ///< among the operations with loops, see AtomicRunner::looping_
    AtomicOp* loop_prev;
    utofu_vcq_id_t home;        ///< the target's home VCQ, by which it is told from others
    Kernel kernel;
    Method method;
    fi_op op;
    std::uint8_t size;          ///< of an element
    std::uint8_t align;         ///< of an element at the target
    bool integer;
    bool multi;                 ///< takes more than one round trip: later ones in order must wait
    bool reads_operand;
    bool reads_compare;
    bool fetches;
    bool strong;                ///< strong order on first posts (message order was promised)
    AtomicEvent event;          ///< as what the target counts it
    bool event_posted;          ///< and has not failed
    EventAccount* account;          ///< that has paid for it; null where nobody has to
    bool by_directory;          ///< a key was looked up, and may have to be once more
    bool retried;               ///< with keys looked up anew
    bool took_effect;           ///< at least one word: it can't be retried as a whole
    bool by_get;                ///< FI_ATOMIC_READ of a region that only allows reading
    std::uint8_t scratch;       ///< place of the Get that is its notice at the target
    std::uint8_t targets;       ///< entries of target[]
    std::uint8_t at_target;     ///< cursor: entry of target[] ...
    std::size_t in_target;      ///< ... and element in it, of the next word
    std::size_t started;        ///< elements in words started so far
    std::size_t total;
    std::uint32_t words;        ///< started so far
    Pieces operand;
    Pieces compare;
    Pieces result;
    struct Batch* batch;            ///< under way, see batch.cc
    bool in_batch;                ///< one ARMW an element, all in one batch
    bool in_spans;              ///< its loops may take many words at a time
    std::unique_ptr<std::byte[]> copy; ///< of what is left of injected data
    Piece target[max_atomic_iov];
};

/// One aligned word at the target under way: up to eight elements of one operation.
struct WordOp : vcq::Waiter {
    AtomicOp* op;
    WordOp* next;             ///< in a slot's chain or the list of those to post again
    std::size_t first;        ///< number of the first element
    utofu_vcq_id_t vcq;       ///< of the target
    utofu_stadd_t word;       ///< aligned to `width`
    std::uint8_t width;       ///< 4 or 8
    std::uint8_t offset;      ///< of the first element in the word
    std::uint8_t elements;
    bool loops;
    std::uint8_t scratch;     ///< place its Get writes to; see AtomicScratch
    std::uint16_t attempts;   ///< lost CSWAPs
    std::uint16_t group;      ///< leader: those of the chain, itself included, that its CSWAP carries
    std::uint32_t due;        ///< tick of the next post
    struct WordSlot* slot;
    std::uint64_t operand;    ///< the elements' operands, at their places in the word
    std::uint64_t compare;
    std::uint64_t before;     ///< the word as this one found it
    std::uint64_t expect;     ///< leader: what the CSWAP in the air compares with
    std::uint64_t desired;    ///< leader: what it swaps in
};

/// The elements of an operation as ARMWs in a batch (batch.cc). Each tells its end where the operation fetches,
/// else the last one does.
struct Batch : vcq::Waiter {
    /// Is told of failures among those that nobody waits for.
    struct Lost : vcq::Waiter {
        Batch* batch;
    };
    AtomicOp* op;
    Lost lost;
    std::uint8_t place;       ///< in the window: of all where it fetches, else of the failures
    bool posted;              ///< all of the operation
    bool broken;              ///< a post was refused for good: what is left is to hear of those before it
    std::uint32_t announced;  ///< posted, but for a last one that tells the end; notices, where it fetches
    std::uint32_t arrived;       ///< notices that have come
    std::uint32_t failed;     ///< of those that nobody waits for
};

/// Registered memory of a context into which Gets of its atomics write, in places of one size; made at first use, and
/// given back with this.
template <std::uint8_t places, std::size_t place_size>
class Scratch {
  public:
    explicit Scratch(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch()
    {
        if (memory_)
            vcq_.dereg(stadd_);
    }

    /// Number of a free place, from 1 on, or 0: none now.
    [[nodiscard]] std::uint8_t alloc() noexcept
    {
        if (!memory_ && !make()) [[unlikely]]
            return 0;
        return free_count_ == 0 ? 0 : free_[--free_count_];
    }
    void release(std::uint8_t place) noexcept { free_[free_count_++] = place; }
    [[nodiscard]] utofu_stadd_t stadd(std::uint8_t place) const noexcept
    {
        return stadd_ + (place - 1u) * place_size;
    }
    [[nodiscard]] std::byte* data(std::uint8_t place) const noexcept
    {
        return memory_.get() + (place - 1u) * place_size;
    }

  private:
    [[gnu::noinline]] bool make() noexcept
    {
        OwnMemory made(places * place_size);
        if (!made || vcq_.reg(made.get(), made.size(), false, stadd_) != 0)
            return false;
        memory_ = std::move(made);
        while (free_count_ < places)
            free_[free_count_] = static_cast<std::uint8_t>(free_count_ + 1), ++free_count_;
        return true;
    }

    vcq::Vcq& vcq_;
    OwnMemory memory_;
    utofu_stadd_t stadd_ = 0;
    std::uint8_t free_[places];
    std::uint8_t free_count_ = 0;
};

/// For single words and wide elements.
using AtomicScratch = Scratch<128, 32>;

/// Neighbouring words of one operation that loop, under way together (span.cc).
struct Span : vcq::Waiter {
    static constexpr std::size_t most = 128; ///< words
    std::uint64_t* found;     ///< the words as they were found last; the Get writes them
    std::uint32_t arrived;
    std::uint32_t words;      ///< to be told of
    std::bitset<most> lost;   ///< words whose CSWAP found another value
    std::uint32_t failed;     ///< those that failed ...
    int code;                 ///< ... and why the last one did
    AtomicOp* op = nullptr;   ///< null while it is in the pool
    Span* next;               ///< in the list of those to go on with
    std::size_t first;        ///< number of the first element
    std::size_t elements;
    Target at;                ///< of the first word, aligned to 8
    std::uint8_t offset;      ///< of the first element in it
    std::uint8_t scratch;     ///< place of `found`
    std::uint8_t place;       ///< in the window, of its CSWAPs; 0 before
    std::uint32_t posted;     ///< CSWAPs
    std::uint32_t tried;      ///< in the end: words looked at whether they have to be tried again
    std::uint64_t desired[most];
};

/// Where CSWAP loops of one context on one word meet, and what was last seen there.
struct WordSlot {
    utofu_vcq_id_t vcq = 0;
    utofu_stadd_t word = 0;
    std::uint64_t value = 0;      ///< last seen; a guess, nothing more
    std::uint8_t width = 0;
    WordOp* active = nullptr;     ///< the leader: has a CSWAP in the air or waits to post one
    WordOp* waiting = nullptr;    ///< those behind it, oldest first
    WordOp* last_waiting = nullptr;
};

} // namespace tofu
