// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The runner: cuts atomic operations into words at the target, carries out each word by an ARMW or a loop of CSWAPs,
// and completes the operation when the last word has ended. Its parts: words.cc (those that wait,
// the cutting, native ARMWs), loop.cc (loops), span.cc (neighbouring words that loop), batch.cc
// (ARMWs in a batch), end.cc (ends). Called by atomic under the context's lock and, through waiters, by the poll
// of its VCQ; calls vcq and request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "atomic/op.h"
#include "atomic/wide.h"
#include "remote/access.h"
#include "transfer/pending.h"
#include "vcq/vcq.h"

namespace tofu {

class AtomicRunner {
  public:
    /// Completion places left to the context's other engines.
    static constexpr unsigned window_reserve = 48;
    static constexpr std::size_t max_ops = 512;
    static constexpr std::size_t max_word_ops = 1024;
    static constexpr std::size_t max_batches = 64;
    static constexpr std::size_t max_spans = 8;
    /// How many notices a batch may have on their way when it is the only one. Several batches share: all max_batches of
    /// them have 5000 at most, far below what an MRQ holds for the VCQs of its CQ.
    static constexpr std::uint32_t max_announced = 1024;
    /// Word operations that one CSWAP carries at most: bounds the work of one notice.
    static constexpr unsigned max_group = 64;

    AtomicRunner(vcq::Vcq& vcq, Pending& pending, RemoteAccess& access) noexcept;
    AtomicRunner(const AtomicRunner&) = delete;
    AtomicRunner& operator=(const AtomicRunner&) = delete;

    /// Each operation takes effect after the earlier ones to the same peer.
    void set_ordered(bool on) noexcept { ordered_ = on; }
    [[nodiscard]] bool ordered() const noexcept { return ordered_; }

    // --- one element, one ARMW
    /// May an operation towards the peer at `home` be posted at once? False: others have to go before it.
    [[nodiscard]] bool open_for_native(utofu_vcq_id_t home) const noexcept
    {
        return !waiting_.may_hold(home) && (!ordered_ || looping_ == nullptr || !loops_at(home));
    }
    /// May it go to this VCQ of the peer at `home` now? Where order was promised, a change of the VCQ has to wait.
    [[nodiscard]] bool native_may_go_to(utofu_vcq_id_t home, utofu_vcq_id_t vcq) noexcept
    {
        return !ordered_ || access_.may_go_to(home, vcq);
    }
    // --- everything else
    /// Null when too many are under way (-FI_EAGAIN for the caller).
    [[nodiscard]] AtomicOp* alloc() noexcept;
    void release(AtomicOp* op) noexcept { ops_.renew(op); }
    /// Takes the operation over: starts what can be started now, progress() does the rest. With `inject` the
    /// operand and compare lists are not read any more when the call returns.
    void submit(AtomicOp* op, bool inject) noexcept;

    /// Watches one operation: watched() is true until it has ended. To be called before submit(), which may end it.
    void watch(const AtomicOp* op) noexcept { watched_ = op; }
    void unwatch() noexcept { watched_ = nullptr; }
    [[nodiscard]] bool watched() const noexcept { return watched_ != nullptr; }

    /// Takes over an operation that was refused on the short way: begins once its keys are known anew.
    void submit_anew(AtomicOp* op) noexcept
    {
        ++outstanding_;
        begin_again(*op);
    }

    /// Operations that have not ended, and those of them that do not wait in a line.
    [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_; }
    [[nodiscard]] std::size_t under_way() const noexcept { return outstanding_ - waiting_.size(); }
    /// Some of those under way have to be posted again.
    [[nodiscard]] bool wants_progress() const noexcept
    {
        return outstanding_ != 0 && !agenda_.empty();
    }
    void progress() noexcept { agenda_.round(); }
    void close() noexcept;

    // --- for the wide elements
    [[nodiscard]] WideRunner& wide() noexcept { return wide_; }
    /// The end of one word or wide element. The operation may be gone afterwards.
    void settle_part(AtomicOp& op, int code) noexcept;

  private:
    static const Pending::Stream::Steps steps;
    static void word_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void loop_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void got_word(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void event_done(vcq::Waiter* self, const vcq::Notice& notice) noexcept;

    [[nodiscard]] bool loops_at(utofu_vcq_id_t home) const noexcept;
    [[nodiscard]] bool may_go_on(const AtomicOp& op) noexcept;
    [[nodiscard]] Lack start(AtomicOp& op) noexcept;
    [[nodiscard]] bool start_word(AtomicOp& op) noexcept;
    void cut_word(const AtomicOp& op, const Target& at, std::size_t left, WordOp& f) const noexcept;
    [[nodiscard]] WordOp* new_word_op(AtomicOp& op, std::size_t first, const Target& at, std::size_t left) noexcept;
    [[nodiscard]] vcq::Post post_native(WordOp& f) noexcept;
    [[nodiscard]] vcq::Post get_word(WordOp& f) noexcept;
    [[nodiscard]] vcq::Post post_event(AtomicOp& op) noexcept;
    [[nodiscard]] bool took(AtomicOp& op, vcq::Post posted, std::size_t elements) noexcept;
    void advance(AtomicOp& op, std::size_t elements) noexcept;
    void keep_injected(AtomicOp& op) noexcept;
    void abandon(AtomicOp& op, int err, int code) noexcept;
    void abandon(AtomicOp& op, int code) noexcept;
    void end_one(AtomicOp& op, int code) noexcept;
    void settle_word(WordOp& f, std::uint64_t before, int code) noexcept;
    void finish(AtomicOp& op) noexcept;
    void begin_again(AtomicOp& op) noexcept;
    void prepare(AtomicOp& op, bool inject) noexcept;
    [[nodiscard]] Lack go_on(AtomicOp& op) noexcept;
    [[nodiscard]] Lack notify_target(AtomicOp& op) noexcept;
    void through(AtomicOp& op) noexcept;
    void cancel(AtomicOp& op) noexcept;
    void end(AtomicOp& op) noexcept;

    // --- batches (batch.cc)
    static void batch_notice(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void batch_lost(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    [[nodiscard]] static bool fits_batch(const AtomicOp& op) noexcept;
    [[nodiscard]] bool start_batch(AtomicOp& op) noexcept;
    [[nodiscard]] bool open_batch(AtomicOp& op) noexcept;
    template <class Word>
    [[nodiscard]] std::size_t post_run(AtomicOp& op, std::size_t n, vcq::Post& posted) noexcept;
    void skip_to_last(AtomicOp& op) noexcept;
    [[nodiscard]] bool batch_failed(AtomicOp& op) noexcept;
    [[nodiscard]] bool end_broken(Batch& batch) noexcept;
    void leave_batch(Batch& batch) noexcept;
    void end_batch(Batch& batch) noexcept;

    // --- spans (span.cc)
    static void got_span(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    static void span_notice(vcq::Waiter* self, const vcq::Notice& notice) noexcept;
    [[nodiscard]] static bool is_span(const AtomicOp& op, std::size_t left) noexcept
    {
        return op.in_spans && left * op.size >= least_span;
    }
    [[nodiscard]] bool meets_span(const AtomicOp& op) noexcept;
    [[nodiscard]] bool start_span(AtomicOp& op, const Target& at, std::size_t left) noexcept;
    void post_span(Span& span) noexcept;
    void all_arrived(Span& span) noexcept;
    void end_span(Span& span) noexcept;
    [[nodiscard]] vcq::Post retry_word(Span& span) noexcept;
    void release_span(Span& span) noexcept;
    static void go_on_with_span(Deferred& span) noexcept;

    // --- loops
    [[nodiscard]] WordSlot& slot_of(const WordOp& f) noexcept;
    [[nodiscard]] vcq::Post begin_loop(WordOp& f, const std::uint64_t* found = nullptr) noexcept;
    [[nodiscard]] vcq::Post post_group(WordOp& leader) noexcept;
    void compute_group(WordOp& leader, std::uint64_t value) noexcept;
    void repost(WordOp& leader) noexcept;
    void end_group(WordOp& leader, std::uint64_t value, int code) noexcept;
    static void go_on_with_word(Deferred& word) noexcept;

    static constexpr unsigned slot_count = 512;
    /// Bytes of neighbouring elements from which on they loop as a span: its Get is one more round trip, shared by all.
    static constexpr std::size_t least_span = 128;

    vcq::Vcq& vcq_;
    RemoteAccess& access_;           ///< in the runner's order
    bool ordered_ = false;
    std::size_t outstanding_ = 0;
    AtomicOp* looping_ = nullptr;    ///< operations with loops, started and not completed
    Pending::Stream waiting_;        ///< not wholly started, or ended but for their notice at the target
    Agenda agenda_;                  ///< what goes on in later rounds; closed at the end
    const AtomicOp* watched_ = nullptr; ///< compared, never read
    BouncePool scratch_;             ///< where Gets write to: words and wide elements, spans
    WideRunner wide_;
    Pool<AtomicOp> ops_{max_ops};
    Pool<WordOp> word_ops_{max_word_ops};
    Pool<Batch> batches_{max_batches};
    Pool<Span> span_pool_{max_spans};
    std::unique_ptr<WordSlot[]> slots_;
};

} // namespace tofu
