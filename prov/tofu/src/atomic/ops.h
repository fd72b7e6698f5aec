// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomic operations under way. The state of an operation (Pieces, AtomicKind, AtomicOp) and of its parts (WordOp,
// Batch, Span, WordSlot); the operations of a context, which wait, start and end (AtomicOps); and the parts that carry
// them out: word by word (WordRunner), in a batch (BatchRunner), in spans (SpanRunner). Wide elements: atomic/wide.h.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "atomic/op_table.h"
#include "core/pool.h"
#include "mem/bounce_pool.h"
#include "mem/local_buffer.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/remote_memory.h"
#include "utofu/vcq.h"

namespace tofu {

/// A list of the application (fi_ioc), addressed by element number.
class Pieces {
  public:
    void clear() noexcept { count_ = 0; }
    void add(void* address, std::size_t bytes) noexcept
    {
        if (bytes != 0)
            piece_[count_++] = {address, bytes};
    }

    /// The memory of element 0, if the list is one piece; else null.
    [[nodiscard]] std::byte* flat() const noexcept
    {
        return count_ == 1 ? static_cast<std::byte*>(piece_[0].iov_base) : nullptr;
    }
    /// Copies `n` elements, from number `first` on, to `out`.
    void gather(void* out, std::size_t first, std::size_t n, std::size_t size) const noexcept
    {
        if (count_ == 1) [[likely]]
            std::memcpy(out, flat() + first * size, n * size);
        else
            tofu::gather(static_cast<std::byte*>(out), piece_, count_, n * size, first * size);
    }
    /// Copies `n` elements from `in` to the list, from number `first` on.
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
    bool multi; ///< takes more than one round trip, so later ordered operations have to wait
    bool reads_operand;
    bool reads_compare;
    bool fetches;
};

/// The RMA event that an operation is to a target that counts events: one notice at its end. For the counters of
/// endpoints a fetching operation is a read (fi_endpoint(3)); for those of regions it is a write (fi_mr(3),
/// fi_mr_bind).
enum class AtomicEvent : std::uint8_t { none, write, read, fetch };

/// An operation that is not one ARMW of one element (tx/operation.h). `pending` counts word operations, plus one
/// until all words have been started.
struct AtomicOp : Request, PendingOp, RemoteSide, AtomicKind {
    class AtomicRunner* runner;
    bool* ended = nullptr;         ///< set at the end, if not null
    bool notifying = false;        ///< every word has ended, and the notice at the target found no room
    AtomicOp* loop_next = nullptr; ///< in the list of operations with several round trips (AtomicOps)
    AtomicOp* loop_prev = nullptr;
    bool strong = false;                   ///< strong order on first posts (message order was promised)
    AtomicEvent event = AtomicEvent::none; ///< the event that the target counts
    bool by_get = false;                   ///< FI_ATOMIC_READ of a region that allows only reading
    Bounce scratch;                        ///< for the Get that is the event at the target
    std::uint8_t at_target = 0;            ///< cursor of the next word: entry of target[] ...
    std::size_t in_target = 0;             ///< ... and byte of that entry
    std::size_t started = 0;               ///< elements in words started so far
    std::size_t total = 0;
    std::uint32_t words = 0; ///< started so far
    Pieces operand;
    Pieces compare;
    Pieces result;
    struct Batch* batch = nullptr;     ///< the batch under way (armw_batch.cc)
    bool in_batch = false;             ///< one ARMW per element, all in one batch
    bool in_spans = false;             ///< its loops may take many words at a time
    std::unique_ptr<std::byte[]> copy; ///< of the unread part of injected data

    /// The target of the next word ...
    [[nodiscard]] Target next() const noexcept
    {
        return {target[at_target].at.vcq, target[at_target].at.stadd + in_target};
    }
    /// ... and the number of elements from there on in its piece.
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

/// A word operation under way at one word of the target: up to eight elements of one operation.
struct WordOp : vcq::CompletionHandler, RetryItem, RemoteWord {
    AtomicOp* op;
    WordOp* next = nullptr; ///< in the chain of a slot
    std::size_t first;      ///< number of the first element
    std::uint8_t offset;    ///< of the first element in the word
    std::uint8_t elements;
    bool loops;
    Bounce scratch;             ///< where its Get writes
    std::uint16_t attempts = 0; ///< lost CSWAPs
    std::uint16_t combined;     ///< leader: number of operations, itself included, that its CSWAP carries
    struct WordSlot* slot = nullptr;
    std::uint64_t operand = 0; ///< the elements' operands, at their places in the word
    std::uint64_t compare = 0;
    std::uint64_t before;  ///< the word as this operation found it
    std::uint64_t expect;  ///< leader: what the CSWAP in the air compares with
    std::uint64_t desired; ///< leader: what it swaps in
};

/// The elements of an operation as ARMWs in a batch (armw_batch.cc). If the operation fetches, each ARMW has a notice;
/// else the last one only.
struct Batch : vcq::CompletionHandler {
    /// Hears of failures of the ARMWs that have no notice.
    struct Lost : vcq::CompletionHandler {
        Batch* batch;
    };
    AtomicOp* op;
    Lost lost;
    std::uint8_t tag;            ///< completion tag: of all ARMWs if it fetches, else of failures
    bool posted = false;         ///< the whole operation is posted
    bool broken = false;         ///< a post was refused for good; the earlier ones still have to end
    std::uint32_t announced = 0; ///< ARMWs posted, except a last one with a notice of its own
    std::uint32_t arrived = 0;   ///< notices that have come
};

/// Neighbouring words of one operation whose loops are under way together (cswap_loop.cc).
struct Span : vcq::CompletionHandler, RetryItem {
    static constexpr std::size_t most = 128; ///< words
    std::uint32_t arrived = 0;
    std::uint32_t words;      ///< notices that will come in all
    std::bitset<most> lost;   ///< words whose CSWAP found another value
    int code = UTOFU_SUCCESS; ///< of the last failure of a CSWAP
    AtomicOp* op = nullptr;   ///< null while it is in the pool
    std::size_t first;        ///< number of the first element
    std::size_t elements;
    Target at;                ///< of the first word, aligned to 8
    std::uint8_t offset;      ///< of the first element in it
    Bounce scratch;           ///< the words as they were last found; the Get writes here
    std::uint8_t tag = 0;     ///< completion tag of its CSWAPs; 0 before these
    std::uint32_t posted = 0; ///< CSWAPs posted
    std::uint32_t tried = 0;  ///< at the end: words checked for whether they have lost
    std::uint64_t desired[most];
    [[nodiscard]] std::uint64_t* found() const noexcept { return reinterpret_cast<std::uint64_t*>(scratch.data); }
};

/// Where the CSWAP loops of one context on one word queue up, and the value last seen there. The active one is the
/// leader, which has a CSWAP under way or waits to post one.
struct WordSlot : WaitList<WordOp>, RemoteWord {
    std::uint64_t value = 0; ///< last seen; a guess, nothing more
};

// --- AtomicOps: the atomic operations of one context: which wait, how far each has been started, how each ends; and
// the members that the parts share that carry them out

class AtomicOps {
  public:
    static constexpr std::size_t max_ops = 512;
    /// Completion tags that are left to the context's other engines.
    static constexpr unsigned window_reserve = 48;

    AtomicOps(vcq::Vcq& vcq, PendingQueue& pending, RemoteMemory& access, AtomicRunner& runner) noexcept;

    /// Makes an operation. Null: too many are under way.
    [[nodiscard]] AtomicOp* alloc() noexcept;
    void release(AtomicOp* op) noexcept { ops_.renew(op); }
    /// The number of operations that have not ended.
    [[nodiscard]] std::size_t outstanding() const noexcept { return ops_.in_use(); }
    /// The operations that wait to be started, or to notify their targets.
    [[nodiscard]] PendingQueue::SubQueue& waiting() noexcept { return waiting_; }
    [[nodiscard]] const PendingQueue::SubQueue& waiting() const noexcept { return waiting_; }
    /// Is an operation that takes several round trips under way at this peer?
    [[nodiscard]] bool loops_at(utofu_vcq_id_t target_vcq) const noexcept
    {
        return looping_ != nullptr && find_loop(target_vcq);
    }

    // --- for the parts
    vcq::Vcq& vcq;
    RemoteMemory& access; ///< in the runner's order
    RetryList retry_list; ///< parts that go on in later rounds; closed at the end
    BouncePool scratch;   ///< blocks that Gets write to: words, wide elements, spans

    /// Whether the completion table has room for one communication, and `more` besides?
    [[nodiscard]] bool has_room(unsigned more = 0) const noexcept
    {
        return vcq.completions().free() > window_reserve + more;
    }
    /// Handles a refused post of a part. 0: the part goes on in a later round; else the code that it ends with, because
    /// there are no later rounds or the post was refused for good.
    [[nodiscard]] int retry_later(RetryItem& item, vcq::Post posted) noexcept
    {
        if (posted == vcq::Post::error)
            return vcq.last_error();
        if (retry_list.closed())
            return UTOFU_ERR_MRQ_OTHER;
        retry_list.add(item);
        vcq.set_busy();
        return UTOFU_SUCCESS;
    }
    /// Handles the result of a post of `elements`, which `pending` counts already. False: it was refused, and nothing
    /// has changed.
    [[nodiscard]] bool took(AtomicOp& op, vcq::Post posted, std::size_t elements) noexcept;
    /// Advances by the number of further elements that have been started.
    void advance(AtomicOp& op, std::size_t elements) noexcept;
    /// Stops an operation that has failed: no further word is started.
    void abandon(AtomicOp& op, int err, int code) noexcept;
    void abandon(AtomicOp& op, int code) noexcept { abandon(op, fi_error_of(code), code); }
    /// Something that `pending` counts has ended. The operation may be gone afterwards.
    void end_one(AtomicOp& op, int code) noexcept;
    /// The end of one word, span or wide element, likewise.
    void end_part(AtomicOp& op, int code) noexcept;

    // --- for the runner
    /// PendingQueue::SubQueue::Steps::resume for an operation that notifies its target.
    [[nodiscard]] BlockReason notify_target(AtomicOp& op) noexcept;
    void finish(AtomicOp& op) noexcept;
    void end(AtomicOp& op) noexcept;

  private:
    static void event_done(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    [[nodiscard]] bool find_loop(utofu_vcq_id_t target_vcq) const noexcept;
    [[nodiscard]] vcq::Post post_event(AtomicOp& op) noexcept;

    AtomicRunner& runner_;
    AtomicOp* looping_ = nullptr; ///< list of operations of several round trips under way
    PendingQueue::SubQueue waiting_;
    Pool<AtomicOp> ops_{max_ops};
};

// --- WordRunner, BatchRunner, SpanRunner: how an operation is carried out: word by word and in spans
// (atomic/cswap_loop.cc), in a batch (atomic/armw_batch.cc)

/// Cuts an operation into words, and carries each out by an ARMW or a loop of CSWAPs.
class WordRunner {
  public:
    static constexpr std::size_t max_word_ops = 1024;
    /// The most word operations that one CSWAP carries; it bounds the work of one notice.
    static constexpr unsigned max_combined = 64;

    explicit WordRunner(AtomicOps& ops) noexcept : ops_(ops) {}

    /// Starts the word of the next element. False: it cannot be started now.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;
    /// Tries element number `first`, at `at` with `left` neighbours, again: `words` holds the words found from the
    /// aligned word at `base` on. Post::done: it is a word operation now.
    [[nodiscard]] vcq::Post retry(AtomicOp& op, std::size_t first, const Target& at, std::size_t left,
                                  const std::byte* words, utofu_stadd_t base) noexcept;

  private:
    static void word_done(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void loop_done(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void got_word(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void resume(RetryItem& word) noexcept;

    [[nodiscard]] WordOp* make(AtomicOp& op, std::size_t first, const Target& at, std::size_t left) noexcept;
    [[nodiscard]] vcq::Post post_native(WordOp& f) noexcept;
    [[nodiscard]] vcq::Post get_word(WordOp& f) noexcept;
    void get_again(WordOp& f) noexcept;
    void complete(WordOp& f, std::uint64_t before, int code) noexcept;

    // --- loops
    [[nodiscard]] vcq::Post begin_loop(WordOp& f, const std::uint64_t* found = nullptr) noexcept;
    [[nodiscard]] vcq::Post post_combined(WordOp& leader) noexcept;
    void compute_combined(WordOp& leader, std::uint64_t value) noexcept;
    void repost(WordOp& leader) noexcept;
    void end_combined(WordOp& leader, std::uint64_t value, int code) noexcept;

    static constexpr unsigned slot_count = 512;

    AtomicOps& ops_;
    Pool<WordOp> pool_{max_word_ops};
    std::unique_ptr<WordSlot[]> slots_;
};

/// Posts the elements of an operation as a batch of ARMWs, which share one completion tag.
class BatchRunner {
  public:
    static constexpr std::size_t max_batches = 64;
    /// The most notices that a batch may have under way when it is the only one. Several batches share: all max_batches
    /// of them have at most 5000, far below what an MRQ holds for the VCQs of its CQ.
    static constexpr std::uint32_t max_announced = 1024;

    explicit BatchRunner(AtomicOps& ops) noexcept : ops_(ops) {}

    /// Can the operation be carried out as a batch?
    [[nodiscard]] static bool fits(const AtomicOp& op) noexcept;
    /// Posts as many elements as can be posted now. False: some are left for later.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;
    /// Ends a batch of which not everything was posted, and nothing more can be.
    void close(Batch& batch) noexcept;

  private:
    static void on_notice(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void on_lost(vcq::CompletionHandler* self, vcq::Notice notice) noexcept
    {
        note(*static_cast<Batch::Lost*>(self)->batch->op, notice.code);
    }
    [[nodiscard]] bool open(AtomicOp& op) noexcept;
    template <class Word>
    [[nodiscard]] std::size_t post_run(AtomicOp& op, std::size_t n, vcq::Post& posted) noexcept;
    [[nodiscard]] bool failed(AtomicOp& op) noexcept;
    [[nodiscard]] bool end_broken(Batch& batch) noexcept;
    void announce_no_more(Batch& batch) noexcept;
    void end(Batch& batch) noexcept;

    AtomicOps& ops_;
    Pool<Batch> pool_{max_batches};
};

/// Carries out the loops of neighbouring words together, as spans.
class SpanRunner {
  public:
    static constexpr std::size_t max_spans = 8;
    /// From this number of bytes on, neighbouring elements loop as a span. Its Get is one more round trip, shared by
    /// all words.
    static constexpr std::size_t least = 128;

    SpanRunner(AtomicOps& ops, WordRunner& words) noexcept : ops_(ops), words_(words) {}

    /// Are the next elements of the operation a span?
    [[nodiscard]] static bool is_next(const AtomicOp& op) noexcept
    {
        return op.in_spans && op.left() * op.size >= least;
    }
    /// Has the next span words in common with one under way? It would lose them, so it has to wait.
    [[nodiscard]] bool overlaps_another(const AtomicOp& op) noexcept;
    /// Starts the next span. False: it cannot be started now.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;

  private:
    static void on_get(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void on_notice(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void resume(RetryItem& span) noexcept;
    void post(Span& span) noexcept;
    void all_arrived(Span& span) noexcept;
    void end(Span& span) noexcept;
    [[nodiscard]] vcq::Post retry_word(Span& span) noexcept;
    void release(Span& span) noexcept;

    AtomicOps& ops_;
    WordRunner& words_;
    Pool<Span> pool_{max_spans};
};

} // namespace tofu
