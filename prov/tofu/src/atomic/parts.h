// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ways in which an atomic operation is carried out, except wide elements (wide.h): word by word (words.cc, and
// cswap_loop.cc for CSWAPs), in a batch (armw_batch.cc), in spans (span.cc). Called by the runner under the context's lock and,
// through waiters, by the poll of its VCQ; calls vcq, and ops to move the operation on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "atomic/ops.h"

namespace tofu {

/// Cuts an operation into words, and carries each out by an ARMW or a loop of CSWAPs.
class WordRunner {
  public:
    static constexpr std::size_t max_word_ops = 1024;
    /// The most word operations that one CSWAP carries; it bounds the work of one notice.
    static constexpr unsigned max_group = 64;

    explicit WordRunner(AtomicOps& ops) noexcept : ops_(ops) {}

    /// Starts the word of the next element. False: it can't be started now.
    [[nodiscard]] bool start(AtomicOp& op) noexcept;
    /// Tries element number `first` of the piece, at `at` with `left` neighbours, again: `words` holds the words found
    /// from the aligned word at `base` on. Post::done: it is a word operation now.
    [[nodiscard]] vcq::Post retry(AtomicOp& op, unsigned piece, std::size_t first, const Target& at, std::size_t left,
                                  const std::byte* words, utofu_stadd_t base) noexcept;

  private:
    static void word_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void loop_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void got_word(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void go_on(Deferred& word) noexcept;

    [[nodiscard]] WordOp* make(AtomicOp& op, unsigned piece, std::size_t first, const Target& at,
                               std::size_t left) noexcept;
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

/// Posts the elements of an operation as a batch of ARMWs, which share one place of the window.
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

/// Carries out the loops of neighbouring words together, as spans.
class SpanRunner {
  public:
    static constexpr std::size_t max_spans = 8;
    /// From so many bytes on, neighbouring elements loop as a span. Its Get is one more round trip, shared by all
    /// words.
    static constexpr std::size_t least = 128;

    SpanRunner(AtomicOps& ops, WordRunner& words) noexcept : ops_(ops), words_(words) {}

    /// Are the next elements of the operation a span?
    [[nodiscard]] static bool is_next(const AtomicOp& op) noexcept { return op.in_spans && op.left() * op.size >= least; }
    /// Has the next span words in common with one under way? It would lose them, so it has to wait.
    [[nodiscard]] bool meets_another(const AtomicOp& op) noexcept;
    /// Starts the next span. False: it can't be started now.
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
