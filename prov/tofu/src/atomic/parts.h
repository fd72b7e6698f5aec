// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ways in which an atomic operation is carried out, but for wide elements (wide.h): word by word (words.cc, and
// loop.cc for CSWAPs), in a batch (batch.cc), in spans (span.cc). Called by the runner under the context's lock and, through
// waiters, by the poll of its VCQ; calls vcq, and ops for what becomes of the operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "atomic/ops.h"

namespace tofu {

/// Words at the target: an operation is cut into them, and each is carried out by an ARMW or a loop of CSWAPs.
class WordRunner {
  public:
    static constexpr std::size_t max_word_ops = 1024;
    /// Word operations that one CSWAP carries at most: bounds the work of one notice.
    static constexpr unsigned max_group = 64;

    explicit WordRunner(AtomicOps& ops) noexcept : ops_(ops) {}

    /// Starts the word of the next element. False: not now.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;
    /// Element number `first`, at `at` with `left` neighbours, once more: `words` holds what was found from the aligned
    /// word at `base` on. Post::done: it has become one more of the operation's.
    [[nodiscard]] vcq::Post retry(AtomicOp& op, std::size_t first, const Target& at, std::size_t left,
                                  const std::byte* words, utofu_stadd_t base) noexcept;

  private:
    static void word_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void loop_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void got_word(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void go_on(Deferred& word) noexcept;

    [[nodiscard]] WordOp* make(AtomicOp& op, std::size_t first, const Target& at, std::size_t left) noexcept;
    [[nodiscard]] vcq::Post post_native(WordOp& f) noexcept;
    [[nodiscard]] vcq::Post get_word(WordOp& f) noexcept;
    void get_again(WordOp& f) noexcept;
    void settle(WordOp& f, std::uint64_t before, int code) noexcept;

    // --- loops
    [[nodiscard]] WordSlot& slot_of(const WordOp& f) noexcept;
    [[nodiscard]] vcq::Post begin_loop(WordOp& f, const std::uint64_t* found = nullptr) noexcept;
    [[nodiscard]] vcq::Post post_group(WordOp& leader) noexcept;
    void compute_group(WordOp& leader, std::uint64_t value) noexcept;
    void repost(WordOp& leader) noexcept;
    void end_group(WordOp& leader, std::uint64_t value, int code) noexcept;

    static constexpr unsigned slot_count = 512;

    AtomicOps& ops_;
    Pool<WordOp> pool_{max_word_ops};
    std::unique_ptr<WordSlot[]> slots_;
};

/// Batches: the elements of an operation as ARMWs one behind the other, with one place of the window for all of them.
class BatchRunner {
  public:
    static constexpr std::size_t max_batches = 64;
    /// How many notices a batch may have on their way when it is the only one. Several batches share: all max_batches of
    /// them have 5000 at most, far below what an MRQ holds for the VCQs of its CQ.
    static constexpr std::uint32_t max_announced = 1024;

    explicit BatchRunner(AtomicOps& ops) noexcept : ops_(ops) {}

    /// Can the operation be carried out so?
    [[nodiscard]] static bool fits(const AtomicOp& op) noexcept;
    /// Posts what can be posted now. False when something is left for later.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;
    /// Ends a batch that was not wholly posted, and that nothing more can be posted of.
    void leave(Batch& batch) noexcept;

  private:
    static void on_notice(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void on_lost(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    [[nodiscard]] bool open(AtomicOp& op) noexcept;
    template <class Word>
    [[nodiscard]] std::size_t post_run(AtomicOp& op, std::size_t n, vcq::Post& posted) noexcept;
    [[nodiscard]] bool failed(AtomicOp& op) noexcept;
    [[nodiscard]] bool end_broken(Batch& batch) noexcept;
    void end(Batch& batch) noexcept;

    AtomicOps& ops_;
    Pool<Batch> pool_{max_batches};
};

/// Spans: neighbouring words that loop, under way together.
class SpanRunner {
  public:
    static constexpr std::size_t max_spans = 8;
    /// Bytes of neighbouring elements from which on they loop as a span: its Get is one more round trip, shared by all.
    static constexpr std::size_t least = 128;

    SpanRunner(AtomicOps& ops, WordRunner& words) noexcept : ops_(ops), words_(words) {}

    /// Are the operation's next elements one?
    [[nodiscard]] static bool is_next(const AtomicOp& op) noexcept { return op.in_spans && op.left() * op.size >= least; }
    /// Has it words in common with another one? It would lose these, so it waits.
    [[nodiscard]] bool meets_another(const AtomicOp& op) noexcept;
    /// Starts it. False: not now.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;

  private:
    static void on_get(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void on_notice(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void go_on(Deferred& span) noexcept;
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
