// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomics on elements that no single ARMW holds: double complex, long double and its complex, 128-bit integers, and
// complex floats that lie across two words. The runner calls it, under the context's lock.
//
// Each domain keeps a row of lock words in its directory area (mem/mr_directory.h), which its target VCQ and its
// overflow VCQs reach under the same STag. An element belongs to one of them by its STADD, and is locked by the VCQ
// that it is reached by. An initiator takes the lock by CSWAP and, in the same round trip, Gets the element (strong
// order: it is read after the CSWAP); then it Puts the new value and frees the lock, again in one round trip. Nothing
// else ever touches such elements atomically, so the lock orders all there is to order.
//
// A lock is a lease, for its holder may die or never poll again. The word holds a token of the holder's,
// different each time. An initiator that finds the same token for `break_after` swaps in its own. A holder reads the
// clock right before each attempt to post its Put; later than `hold_at_most` after it posted its CSWAP it renews the
// lease first, by a CSWAP of its token for a new one, and begins again if that fails. The gap between the two times is
// far beyond what a Put can be under way. What no clock can exclude is a holder that is stopped between its look and
// its post: it learns from the CSWAP that frees the lock, which finds another token, and its operation ends with an
// error. So no update is lost without a word (tests/prov/atomic/lease_test.cc tries all there is).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "atomic/ops.h"
#include "core/pool.h"
#include "core/system.h"

namespace tofu {

/// The lock words of a target VCQ.
namespace locks {
/// STADDs of one memory agree in their low 8 bits however often it is registered (stag_address_alignment), so the
/// choice rests on these alone.
inline constexpr unsigned count = 32;
constexpr unsigned index_of(utofu_stadd_t element) noexcept
{
    return static_cast<unsigned>(element >> 3) % count;
}
} // namespace locks

/// One wide element under way.
struct WideOp : RetryItem {
    static constexpr std::size_t most = 32; ///< bytes
    enum class State : std::uint8_t {
        waiting, ///< for the next try -> locking
        locking, ///< CSWAP and Get in the air -> putting | waiting (it is held, or the Get found no room)
        putting  ///< Put and the freeing CSWAP in the air or to be posted -> waiting (lease ran out)
    };
    struct Part : vcq::CompletionHandler {
        WideOp* op;
    };

    Part lock; ///< hears of CSWAPs on the lock word
    Part data; ///< hears of Gets and Puts
    AtomicOp* op;
    WideOp* next = nullptr; ///< in its slot's chain
    std::size_t first;      ///< number of the element
    utofu_vcq_id_t vcq;     ///< of the target, for element and lock word
    utofu_stadd_t element;
    utofu_stadd_t lock_word;
    std::uint64_t expect = 0; ///< what the CSWAP compares with: 0, or a token to be broken or renewed
    std::uint64_t token;
    std::uint64_t seen = 0;                           ///< another initiator's token ...
    std::chrono::steady_clock::time_point seen_since; ///< ... and since when
    std::chrono::steady_clock::time_point posted_at;  ///< the last CSWAP that took or renewed the lock
    std::uint8_t attempts = 0;
    WaitList<WideOp>* slot;
    Bounce before; ///< the element as it was found
    std::uint8_t in_air = 0;
    State state = State::waiting;
    bool lock_won;
    bool have_data;
    bool put_posted;
    bool wrote; ///< the Put was posted
    bool free_posted;
    int code = UTOFU_SUCCESS;
    alignas(16) std::byte value[most];
    std::byte operand[most];
    std::byte compare[most];
};

class WideRunner {
  public:
    static constexpr std::size_t max_word_ops = 96;
    static constexpr std::chrono::milliseconds break_after{1000};
    static constexpr std::chrono::milliseconds hold_at_most{300};
    /// Replaced by tests.
    static inline std::chrono::steady_clock::time_point (*now)() noexcept = &Clock::now;

    explicit WideRunner(AtomicOps& ops) noexcept : ops_(ops) {}

    /// Takes over the element number `first` at `element`. busy: not now, nothing has happened.
    [[nodiscard]] vcq::Post start(AtomicOp& op, std::size_t first, const Target& element) noexcept;

  private:
    static constexpr unsigned slot_count = 128;

    static void lock_answer(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    static void data_answer(vcq::CompletionHandler* self, vcq::Notice notice) noexcept;
    void resume(WideOp& f) noexcept;
    [[nodiscard]] bool took(WideOp& f, vcq::Post posted) noexcept;
    void post_lock(WideOp& f) noexcept;
    [[nodiscard]] bool post_put(WideOp& f) noexcept;
    void judge_lock(WideOp& f) noexcept;
    void compute(WideOp& f) noexcept;
    void begin_again(WideOp& f, std::uint64_t expect) noexcept;
    void judge_free(WideOp& f, vcq::Notice notice) noexcept;
    void later(WideOp& f, std::uint32_t within = 1) noexcept;
    void end(WideOp& f) noexcept;
    [[nodiscard]] std::uint64_t next_token() noexcept;

    AtomicOps& ops_;
    std::uint64_t token_ = 0;
    WaitList<WideOp> slots_[slot_count];
    Pool<WideOp> pool_{max_word_ops};
};

} // namespace tofu
