// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A virtual control queue: posts one-sided communications and turns the entries of its TCQ and MRQ into
// calls of whoever waits for them. The only code of the provider that calls utofu_* is in this directory.
// Called by endpoints, protocols and the domain; calls the backend's function table.
#pragma once

#include <cstddef>
#include <cstdint>

#include <utofu.h>

#include "vcq/backend.h"

namespace tofu::vcq {

/// What became of a post. A refusal (busy) has no effect at all and may be tried again after a poll.
enum class Post : int {
    done, ///< under way; the notice asked for will come
    busy, ///< TOQ full or no free place in the completion window
    error ///< refused for good; Vcq::last_error() has the uTofu code
};

/// What a waiter is told.
struct Notice {
    int code;            ///< UTOFU_SUCCESS or the UTOFU_ERR_{TCQ,MRQ}_* of this communication
    std::uint64_t value; ///< ARMW: the value before the operation; else 0
};

/// Somebody who waits for the end of a communication; base of requests. Its function runs in the thread
/// that polls, under the lock of the VCQ's owner, and may post again.
struct Waiter {
    using Function = void (*)(Waiter* self, const Notice& notice) noexcept;
    Function notify;
};

/// Which notice completes a communication (guide 2.2.10).
enum class When : std::uint8_t {
    never,    ///< nobody waits; an error still reaches Sink::orphan_error
    sent,     ///< TCQ: the source may be reused
    delivered ///< local MRQ: it took effect at the target (Put, ARMW) or here (Get)
};

/// How to post: which notices, in which order.
struct How {
    When when = When::never;
    bool strong_order = false;  ///< after all earlier posts to the same remote VCQ (guide 6.1.3.1)
    bool remote_notice = false; ///< an MRQ notice at the target as well
    Waiter* waiter = nullptr;   ///< required unless `when` is never
};

/// A notice written by a peer's communication, for whoever owns the VCQ. Nothing in it is trusted.
struct RemoteNotice {
    std::uint8_t type;    ///< UTOFU_MRQ_TYPE_RMT_*
    utofu_vcq_id_t peer;  ///< posting VCQ of the peer
    utofu_stadd_t stadd;  ///< RMT_PUT, RMT_GET: end of the bytes; RMT_ARMW: their start
};

/// The owner's side of a poll: what is not the answer to a waiter.
struct Sink {
    void* owner = nullptr;
    /// May be null: remote notices are then dropped.
    void (*remote)(void* owner, const RemoteNotice& notice) noexcept = nullptr;
    /// A communication nobody waited for failed, towards `peer`. May be null.
    void (*orphan_error)(void* owner, int code, utofu_vcq_id_t peer) noexcept = nullptr;
};

/// Owns one VCQ handle. Not thread-safe: its owner's lock serialises all calls.
class Vcq {
  public:
    /// Polls between two looks into a TCQ that nobody waits for.
    static constexpr unsigned tcq_interval = 16;

    Vcq() = default;
    Vcq(const Vcq&) = delete;
    Vcq& operator=(const Vcq&) = delete;
    ~Vcq() { close(); }

    /// Creates the VCQ on TNI number `spread` modulo those available, or the next one with room. VCQs of one
    /// process may share a CQ, and then guide 2.5 forbids concurrent calls: `thread_safe` asks for a CQ of its own,
    /// else for UTOFU_VCQ_FLAG_THREAD_SAFE. Returns 0 or -FI_E* (-FI_ENOSPC: no VCQ left on this node).
    [[nodiscard]] int open(const Backend& backend, unsigned spread, bool thread_safe,
                           const Sink& sink);
    /// Ends all posting: posts answer Post::error from now on. Polls until what is under way has ended, 100 ms at
    /// most; waiters of a notice that has not come by then are told UTOFU_ERR_MRQ_OTHER (those of
    /// When::sent are not: their only trace lies in the TCQ). Registrations stay until close().
    void drain() noexcept;
    /// Drains and frees the VCQ. Its owner has given back all registrations.
    void close() noexcept;

    [[nodiscard]] bool is_open() const noexcept { return handle_ != 0; }
    [[nodiscard]] utofu_vcq_hdl_t handle() const noexcept { return handle_; }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept { return id_; }
    [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }
    [[nodiscard]] int last_error() const noexcept { return last_error_; }

    // --- posts. Lengths are within the limits of Backend::caps(): the caller splits.
    [[nodiscard]] Post put(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                           std::size_t length, const How& how) noexcept;
    /// At most caps().max_piggyback_size (32) bytes, copied before the call returns.
    [[nodiscard]] Post put_inline(utofu_vcq_id_t peer, const void* data, utofu_stadd_t remote,
                                  std::size_t length, const How& how) noexcept;
    /// put_inline that nobody waits for, as short as it can be; its error reaches Sink::orphan_error.
    [[nodiscard]] Post put_unattended(utofu_vcq_id_t peer, const void* data, utofu_stadd_t remote,
                                      std::size_t length, unsigned long flags) noexcept
    {
        const int code = functions_->put_piggyback(handle_, peer, const_cast<void*>(data), remote,
                                                   length, 0, flags, nullptr);
        return code == UTOFU_SUCCESS ? Post::done : refuse(code, How{}, Ticket{});
    }
    /// The flags of a post for put_unattended().
    static constexpr unsigned long flags_of(bool strong_order, bool remote_notice) noexcept
    {
        return (strong_order ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0) |
               (remote_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
    }
    [[nodiscard]] Post get(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                           std::size_t length, const How& how) noexcept;
    [[nodiscard]] Post armw4(utofu_vcq_id_t peer, utofu_armw_op op, std::uint32_t operand,
                             utofu_stadd_t remote, const How& how) noexcept;
    [[nodiscard]] Post armw8(utofu_vcq_id_t peer, utofu_armw_op op, std::uint64_t operand,
                             utofu_stadd_t remote, const How& how) noexcept;
    [[nodiscard]] Post cswap4(utofu_vcq_id_t peer, std::uint32_t compare, std::uint32_t swap,
                              utofu_stadd_t remote, const How& how) noexcept;
    [[nodiscard]] Post cswap8(utofu_vcq_id_t peer, std::uint64_t compare, std::uint64_t swap,
                              utofu_stadd_t remote, const How& how) noexcept;

    /// Takes at most `budget` entries off each queue and tells their waiters. Returns how many it took.
    unsigned poll(unsigned budget = 32) noexcept;

    // --- registrations (slow path: a system call on the hardware); 0 or -FI_E*
    [[nodiscard]] int reg(const void* addr, std::size_t size, bool read_only,
                          utofu_stadd_t& stadd) noexcept;
    /// A predictable STADD; address and size are multiples of caps().stag_address_alignment (256).
    [[nodiscard]] int reg_with_stag(void* addr, std::size_t size, unsigned stag,
                                    utofu_stadd_t& stadd) noexcept;
    void dereg(utofu_stadd_t stadd) noexcept;
    /// STADD of a reserved STag of any VCQ, also a remote one (guide 3.6.1.3). 0 or -FI_E*.
    [[nodiscard]] int query_stadd(utofu_vcq_id_t vcq, unsigned stag,
                                  utofu_stadd_t& stadd) const noexcept;

    /// How many more posts with When::delivered the completion window takes now.
    [[nodiscard]] unsigned window_free() const noexcept { return free_count_; }
    /// No post is under way that somebody waits for.
    [[nodiscard]] bool idle() const noexcept
    {
        return free_count_ == window_size - 1 && sent_pending_ == 0;
    }

  private:
    // EDATA is one byte (caps: max_edata_size 1) and 0 means "nobody waits": 255 usable places.
    static constexpr unsigned window_size = 256;
    /// `waiter` is null where the place is free. The address of a place is the cbdata of its post.
    struct alignas(8) Place {
        Waiter* waiter;
        std::uint8_t next_free;
    };
    struct Ticket {
        std::uint64_t edata;
        unsigned long flags;
        void* cbdata;
    };

    [[nodiscard]] bool admit(const How& how, Ticket& ticket) noexcept;
    [[nodiscard]] Post settle(int code, const How& how, const Ticket& ticket) noexcept;
    [[gnu::noinline]] Post refuse(int code, const How& how, const Ticket& ticket) noexcept;
    void give_back(std::uint8_t number) noexcept;
    unsigned poll_tcq(unsigned budget) noexcept;
    void on_tcq(int code, void* cbdata) noexcept;
    void on_mrq(int code, const utofu_mrq_notice& notice) noexcept;

    utofu_vcq_hdl_t handle_ = 0;
    const Functions* functions_ = nullptr;
    utofu_vcq_id_t id_ = 0;
    std::uint32_t sent_pending_ = 0; ///< posts with When::sent whose TCQ entry is to come
    std::uint16_t free_count_ = 0;
    std::uint8_t first_free_ = 0;    ///< 0: none
    bool closing_ = false;
    bool tcq_wanted_ = false;        ///< the next poll looks into the TCQ
    std::uint8_t polls_ = 0;
    int last_error_ = 0;
    Sink sink_{};
    const Backend* backend_ = nullptr;
    Place window_[window_size] = {};
};

} // namespace tofu::vcq
