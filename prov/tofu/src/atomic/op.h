// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of one atomic operation and of its parts: what the entries fill in and the runner works off.
// Used by atomic and its runner; calls nothing.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "kernel/kernel.h"
#include "kernel/table.h"
#include "local/bounce.h"
#include "local/iov.h"
#include "remote/access.h"
#include "transfer/agenda.h"
#include "transfer/pending.h"
#include "transfer/request.h"

namespace tofu {

/// One iov list of the application, addressed by element number.
class Pieces {
  public:
    void clear() noexcept { count_ = 0; }
    void add(void* address, std::size_t bytes) noexcept
    {
        if (bytes != 0)
            piece_[count_++] = {address, bytes};
    }

    /// The memory of element 0 where the list is one piece, else null.
    [[nodiscard]] std::byte* flat() const noexcept
    {
        return count_ == 1 ? static_cast<std::byte*>(piece_[0].iov_base) : nullptr;
    }
    /// Copies `n` elements from number `first` on into `out`, one after the other.
    void gather(void* out, std::size_t first, std::size_t n, std::size_t size) const noexcept
    {
        if (count_ == 1) [[likely]]
            std::memcpy(out, flat() + first * size, n * size);
        else
            tofu::gather(static_cast<std::byte*>(out), piece_, count_, n * size, first * size);
    }
    /// The other way round.
    void scatter(const void* in, std::size_t first, std::size_t n, std::size_t size) const noexcept
    {
        if (count_ == 1) [[likely]]
            std::memcpy(flat() + first * size, in, n * size);
        else
            (void)tofu::scatter(piece_, count_, static_cast<const std::byte*>(in), n * size, first * size);
    }

  private:
    unsigned count_ = 0;
    iovec piece_[max_atomic_iov];
};

/// What is done to each element, and by which method.
struct AtomicKind {
    Kernel kernel;
    Method method;
    fi_op op;
    std::uint8_t size; ///< of an element
    bool integer;
    bool multi;        ///< takes more than one round trip: later ones in order must wait
    bool reads_operand;
    bool reads_compare;
    bool fetches;
};

/// What an operation is to a target that counts (FI_RMA_EVENT): one notice at its end. For counters of endpoints a
/// fetching one is a read (fi_endpoint(3)); for those of regions it writes (fi_mr(3), fi_mr_bind).
enum class AtomicEvent : std::uint8_t { none, write, read, fetch };

/// An operation that is not one ARMW of one element (transfer/quick.h). `pending` counts word operations, plus one until
/// all words have been started.
struct AtomicOp : Request, PendingOp, RemoteSide, AtomicKind {
    enum class Step : std::uint8_t {
        resolving, ///< a key was stale -> starting: all are known anew; -> ended: one was refused
        starting,  ///< -> notifying: every word has ended; -> resolving; -> ended
        notifying, ///< the notice at the target found no room -> ended: it was posted
        ended
    };

    class AtomicRunner* runner;
    bool* ended = nullptr;         ///< is told of the end
    Step step = Step::starting;
    AtomicOp* loop_next = nullptr; ///< among the operations with loops, see AtomicOps
    AtomicOp* loop_prev = nullptr;
    bool strong = false;           ///< strong order on first posts (message order was promised)
    AtomicEvent event = AtomicEvent::none; ///< as what the target counts it
    bool took_effect = false;      ///< at least one word: it can't be retried as a whole
    bool by_get = false;           ///< FI_ATOMIC_READ of a region that only allows reading
    Bounce scratch;                ///< of the Get that is its notice at the target
    std::uint8_t at_target = 0;    ///< cursor: entry of target[] ...
    std::size_t in_target = 0;     ///< ... and byte of it, of the next word
    std::size_t started = 0;       ///< elements in words started so far
    std::size_t total = 0;
    std::uint32_t words = 0;       ///< started so far
    Pieces operand;
    Pieces compare;
    Pieces result;
    struct Batch* batch = nullptr; ///< under way, see batch.cc
    bool in_batch = false;         ///< one ARMW an element, all in one batch
    bool in_spans = false;         ///< its loops may take many words at a time
    std::unique_ptr<std::byte[]> copy; ///< of what is left of injected data

    /// Where the next word is ...
    [[nodiscard]] Target next() const noexcept
    {
        return {target[at_target].at.vcq, target[at_target].at.stadd + in_target};
    }
    /// ... and how many elements there are from there on.
    [[nodiscard]] std::size_t left() const noexcept { return (target[at_target].length - in_target) / size; }
};
static_assert(max_atomic_iov <= RemoteSide::most);

/// An aligned word at a peer.
struct RemoteWord {
    utofu_vcq_id_t vcq = 0;
    utofu_stadd_t word = 0;
    std::uint8_t width = 0; ///< 4 or 8
    bool operator==(const RemoteWord&) const = default;
};

/// One word at the target under way: up to eight elements of one operation.
struct WordOp : vcq::Waiter, Deferred, RemoteWord {
    AtomicOp* op;
    WordOp* next = nullptr;     ///< in a slot's chain
    std::size_t first;          ///< number of the first element
    std::uint8_t offset;        ///< of the first element in the word
    std::uint8_t elements;
    bool loops;
    Bounce scratch;             ///< where its Get writes to
    std::uint16_t attempts = 0; ///< lost CSWAPs
    std::uint16_t group;        ///< leader: those of the chain, itself included, that its CSWAP carries
    struct WordSlot* slot = nullptr;
    std::uint64_t operand = 0;  ///< the elements' operands, at their places in the word
    std::uint64_t compare = 0;
    std::uint64_t before;       ///< the word as this one found it
    std::uint64_t expect;       ///< leader: what the CSWAP in the air compares with
    std::uint64_t desired;      ///< leader: what it swaps in
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
    std::uint8_t place;          ///< in the window: of all where it fetches, else of the failures
    bool posted = false;         ///< all of the operation
    bool broken = false;         ///< a post was refused for good: what is left is to hear of those before it
    std::uint32_t announced = 0; ///< posted, but for a last one that tells the end; notices, where it fetches
    std::uint32_t arrived = 0;   ///< notices that have come
    std::uint32_t failed = 0;    ///< of those that nobody waits for
};

/// Neighbouring words of one operation that loop, under way together (span.cc).
struct Span : vcq::Waiter, Deferred {
    static constexpr std::size_t most = 128; ///< words
    std::uint32_t arrived = 0;
    std::uint32_t words;      ///< to be told of
    std::bitset<most> lost;   ///< words whose CSWAP found another value
    std::uint32_t failed = 0; ///< those that failed ...
    int code = UTOFU_SUCCESS; ///< ... and why the last one did
    AtomicOp* op = nullptr;   ///< null while it is in the pool
    std::size_t first;        ///< number of the first element
    std::size_t elements;
    Target at;                ///< of the first word, aligned to 8
    std::uint8_t offset;      ///< of the first element in it
    Bounce scratch;           ///< the words as they were found last; the Get writes them
    std::uint8_t place = 0;   ///< in the window, of its CSWAPs; 0 before
    std::uint32_t posted = 0; ///< CSWAPs
    std::uint32_t tried = 0;  ///< in the end: words looked at whether they have to be tried again
    std::uint64_t desired[most];
    [[nodiscard]] std::uint64_t* found() const noexcept { return reinterpret_cast<std::uint64_t*>(scratch.data); }
};

/// Where CSWAP loops of one context on one word meet, and what was last seen there. Active is the leader, which has a
/// CSWAP in the air or waits to post one.
struct WordSlot : Turns<WordOp>, RemoteWord {
    std::uint64_t value = 0; ///< last seen; a guess, nothing more
};

} // namespace tofu
