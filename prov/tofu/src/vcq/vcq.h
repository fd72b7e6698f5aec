// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A virtual control queue: posts one-sided communications and turns the entries of its TCQ and MRQ into
// calls of whoever waits for them. The only code of the provider that calls utofu_* is in this directory.
// Called by the engines, contexts and the domain; calls the backend's function table.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <utofu.h>

#include "provider/probe.h"
#include "provider/statistics.h"
#include "vcq/backend.h"
#include "vcq/places.h"
#include "vcq/unsignaled.h"

namespace tofu::vcq {

/// What became of a post. A refusal (busy) has no effect at all and may be tried again after a poll.
enum class Post : int {
    done, ///< under way; the notice asked for will come
    busy, ///< TOQ full or no free place in the completion window
    error ///< refused for good; Vcq::last_error() has the uTofu code, which is not UTOFU_SUCCESS
};

/// Every VCQ that others post to has a word for fences, under this STag at this offset (memory/directory.h).
inline constexpr unsigned fence_stag = 0;
inline constexpr std::uint64_t fence_offset = 16896;

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
    never,    ///< nobody waits; an error still reaches Sink::unsignaled_error
    sent,     ///< TCQ: the source may be reused
    delivered ///< local MRQ: it took effect at the target (Put, ARMW) or here (Get)
};

/// What an unsignaled communication was, one whose effect no notice tells: for the report of its failure.
enum class Unsignaled : std::uint8_t {
    message, ///< or another part of the protocols
    write,   ///< the application's, which has no other way to hear of it
    armw     ///< likewise
};

/// How to post: which notices, in which order.
struct How {
    When when = When::never;
    bool strong_order = false;  ///< after all earlier posts to the same remote VCQ (guide 6.1.3.1)
    bool remote_notice = false; ///< an MRQ notice at the target as well
    Waiter* waiter = nullptr;   ///< required unless `when` is never
    Unsignaled kind = Unsignaled::message; ///< unless `when` is delivered: message or write
};

/// The same for a signaled post (When::delivered) whose owner keeps its flags (Vcq::delivered_flags) ready.
struct Signaled {
    Waiter* waiter;
    unsigned long flags;
};

/// The same for a post that nobody waits for, with flags of Vcq::flags_of.
struct Silent {
    Unsignaled kind;
    unsigned long flags;
};

/// Neighbouring words of a peer, all of one width, and what ARMWs one behind the other do to them.
struct Words {
    utofu_vcq_id_t peer;
    utofu_stadd_t remote;
    std::size_t n;
    utofu_armw_op op;          ///< unless they are CSWAPs, with ...
    const std::byte* operands;
    const std::byte* compares; ///< ... these
};

/// A notice written by a peer's communication, for whoever owns the VCQ. Nothing in it is trusted.
struct RemoteNotice {
    std::uint8_t type;    ///< UTOFU_MRQ_TYPE_RMT_*
    utofu_vcq_id_t peer;  ///< posting VCQ of the peer
    utofu_stadd_t stadd;  ///< RMT_PUT, RMT_GET: end of the bytes; RMT_ARMW: their start
    bool unsignaled;      ///< nobody at the peer waits for its end (EDATA 0)
};

/// The owner's side of a poll: what is not the answer to a waiter.
struct Sink {
    void* owner = nullptr;
    /// May be null: remote notices are then dropped.
    void (*remote)(void* owner, const RemoteNotice& notice) noexcept = nullptr;
    /// A communication nobody waited for failed, towards `peer` (0: not known). May be null.
    void (*unsignaled_error)(void* owner, int code, Unsignaled kind, utofu_vcq_id_t peer) noexcept = nullptr;
    StatisticsBook* book = nullptr; ///< adds up what is counted; null: nobody reads it
};

/// Owns one VCQ handle. Not thread-safe: its owner's lock serialises all calls.
class Vcq {
  public:
    /// Polls between two looks into a queue that nobody waits for.
    static constexpr unsigned tcq_interval = 16;
    static constexpr unsigned poll_budget = 32;
    /// How long drain() and quiesce() wait behind the last notice that came. Tests wait less.
    static inline std::chrono::milliseconds patience{2000};
    /// What has been under way for so long does not end any more: what lies at a STag that is not there, or no longer,
    /// need not be told by every library. A TNI answers within milliseconds, also for a process that is stopped.
    static inline std::chrono::milliseconds lost_after{5000};

    Vcq() = default;
    Vcq(const Vcq&) = delete;
    Vcq& operator=(const Vcq&) = delete;
    ~Vcq() { close(); }

    /// Creates the VCQ on TNI number `spread` modulo those available, or the next one with room. VCQs of one
    /// process may share a CQ, and then guide 2.5 forbids concurrent calls: `thread_safe` asks for a CQ of its own,
    /// else for UTOFU_VCQ_FLAG_THREAD_SAFE. Returns 0 or -FI_E* (-FI_ENOSPC: no VCQ left on this node).
    [[nodiscard]] int open(const Backend& backend, unsigned spread, bool thread_safe,
                           const Sink& sink);
    /// Ends all posting: posts answer Post::error from now on. Polls until all that was posted has taken effect; posts
    /// without a notice are fenced for that, since nothing says that utofu_free_vcq waits for them (guide 3.3.1.3).
    /// Gives up when no notice has come for `patience`, or after five times that: waiters of those that are missing are told
    /// UTOFU_ERR_MRQ_OTHER (those of When::sent are not: their only trace lies in the TCQ), the answer is false, and
    /// the memory that posts may still read and write has to stay until close(). What the waiters deregister stays
    /// registered until then.
    bool drain() noexcept;
    /// Polls until what is under way has ended, as long as drain() does, while posts answer Post::busy; then posting
    /// goes on. For a VCQ of which one of several users leaves; as drain() but for the fences.
    bool quiesce() noexcept;
    /// Drains and frees the VCQ. Its owner has given back all registrations, unless drain() has failed.
    void close() noexcept;

    [[nodiscard]] bool is_open() const noexcept { return handle_ != 0; }
    [[nodiscard]] bool is_closing() const noexcept { return closing_; }
    [[nodiscard]] utofu_vcq_hdl_t handle() const noexcept { return handle_; }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept { return id_; }
    [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }
    [[nodiscard]] int last_error() const noexcept { return last_error_; }
    /// Of all that goes by this VCQ, whichever room counts it.
    [[nodiscard]] Statistics& statistics() noexcept { return statistics_; }

    // --- posts, inlined into the engines. Lengths are within the limits of Backend::caps(): the caller splits. `how`
    // is a How, a Signaled or a Silent; errors of what nobody waits for reach Sink::unsignaled_error.
    template <class Way = How>
    [[nodiscard, gnu::always_inline]] Post put(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                                               std::size_t length, const Way& how) noexcept
    {
        return post(how, &Functions::put, peer, local, remote, length);
    }
    /// At most caps().max_piggyback_size (32) bytes, copied before the call returns.
    template <class Way = How>
    [[nodiscard, gnu::always_inline]] Post put_inline(utofu_vcq_id_t peer, const void* data, utofu_stadd_t remote,
                                                      std::size_t length, const Way& how) noexcept
    {
        // The table's function reads the bytes only; its type lacks the const.
        return post(how, &Functions::put_piggyback, peer, const_cast<void*>(data), remote, length);
    }
    template <class Way = How>
    [[nodiscard, gnu::always_inline]] Post get(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                                               std::size_t length, const Way& how) noexcept
    {
        return post(how, &Functions::get, peer, local, remote, length);
    }
    /// On a word of `width` bytes, 4 or 8; so is the next.
    template <class Way = How>
    [[nodiscard, gnu::always_inline]] Post armw(unsigned width, utofu_vcq_id_t peer, utofu_armw_op op,
                                                std::uint64_t operand, utofu_stadd_t remote, const Way& how) noexcept
    {
        return width == 8 ? post(how, &Functions::armw8, peer, op, operand, remote)
                          : post(how, &Functions::armw4, peer, op, static_cast<std::uint32_t>(operand), remote);
    }
    template <class Way = How>
    [[nodiscard, gnu::always_inline]] Post cswap(unsigned width, utofu_vcq_id_t peer, std::uint64_t compare,
                                                 std::uint64_t swap, utofu_stadd_t remote, const Way& how) noexcept
    {
        return width == 8 ? post(how, &Functions::cswap8, peer, compare, swap, remote)
                          : post(how, &Functions::cswap4, peer, static_cast<std::uint32_t>(compare),
                                 static_cast<std::uint32_t>(swap), remote);
    }
    /// The place that the next post with When::delivered takes, or 0: none is free. What its owner keeps by
    /// places (transfer/quick.h) needs no allocation of its own.
    [[nodiscard]] std::uint8_t next_place() const noexcept { return first_free_; }

    /// Posts an ARMW that changes nothing, in strong order: with its notice, whatever that says, all that was posted to
    /// the peer before has taken effect or never will (guide 2.2.10). Post::error: nothing can be posted to the peer.
    [[nodiscard]] Post fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept
    {
        return closing_ ? pausing_ ? Post::busy : Post::error : post_fence(peer, waiter);
    }
    /// Has something been posted to the peer without a notice of its effect, and no fence behind it?
    [[nodiscard]] bool has_unsignaled_to(utofu_vcq_id_t peer) const noexcept { return unsignaled_.has(peer); }
    /// The flags of a post for a Signaled.
    static constexpr unsigned long delivered_flags(bool strong_order, bool remote_notice) noexcept
    {
        return flags_of(strong_order, remote_notice) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    }
    /// The flags of a post that nobody waits for.
    static constexpr unsigned long flags_of(bool strong_order, bool remote_notice) noexcept
    {
        return (strong_order ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0) |
               (remote_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
    }

    // --- batches: posts to one peer that share one place. Notices of posts to the same remote VCQ come in the
    // order of the posts (guide 2.2.10), so that the waiter can count.
    static constexpr unsigned endless = 0xffff;
    /// Takes a place for `notices` notices, or for as many as come until close_batch(). 0: none is free.
    [[nodiscard]] std::uint8_t open_batch(Waiter* waiter, unsigned notices) noexcept;
    /// More notices will come.
    void extend_batch(std::uint8_t batch, unsigned more) noexcept
    {
        window_[batch].expected = static_cast<std::uint16_t>(window_[batch].expected + more);
        window_[batch].age = 0;
    }
    /// One notice of those announced will not come. False: it was the last one, and the batch is closed.
    bool shorten_batch(std::uint8_t batch) noexcept { return !one_less(window_[batch]); }
    /// Frees the place, if it is still that of `waiter`: no notice will come for it any more.
    void close_batch(std::uint8_t batch, const Waiter* waiter) noexcept
    {
        if (window_[batch].waiter == waiter)
            give_back(batch);
    }
    /// For an endless batch whose operation is over, but for which failures may still arrive at any time: its place is
    /// not freed, so that they meet nobody else, and idle() does not count it.
    void abandon_batch(std::uint8_t batch, const Waiter* waiter) noexcept
    {
        if (window_[batch].waiter == waiter)
            window_[batch].age = forgotten;
    }
    /// ARMWs of a batch, on words of the type: how many were posted; `posted` says what stopped them. They may start
    /// together, and with what follows where there is `more`.
    template <class Word, bool swaps>
    [[nodiscard, gnu::always_inline]] std::size_t post_batch(std::uint8_t batch, const Words& words,
                                                             unsigned long flags, bool more, Post& posted) noexcept
    {
        const utofu_vcq_hdl_t handle = handle_; // it, and the rest, do not change by a post
        const auto [peer, first, n, op, operands, compares] = words;
        const auto word = [](const std::byte* from, std::size_t i) {
            Word value;
            std::memcpy(&value, from + i * sizeof(Word), sizeof(Word));
            return value;
        };
        const auto [armw, cswap] = word_functions<Word>();
        Place* const place = &window_[batch];
        posted = Post::done;
        for (std::size_t i = 0; i < n; ++i) {
            const bool held = more || i + 1 < n;
            const unsigned long all = flags | (held ? UTOFU_ONESIDED_FLAG_DELAY_START : 0);
            const utofu_stadd_t remote = first + i * sizeof(Word);
            const Word operand = word(operands, i);
            const int code = swaps ? cswap(handle, peer, word(compares, i), operand, remote, batch, all, place)
                                   : armw(handle, peer, op, operand, remote, batch, all, place);
            if (code != UTOFU_SUCCESS) [[unlikely]] {
                posted = refuse(code, When::never, 0);
                return i;
            }
        }
        return n;
    }
    /// Starts what was posted with `more` and then not followed by anything.
    void start_batch() noexcept
    {
        if (functions_->post_toq != nullptr)
            (void)functions_->post_toq(handle_, nullptr, 0, nullptr);
    }

    /// Takes at most `budget` entries off each queue and tells their waiters. Returns how many it took.
    unsigned poll(unsigned budget = poll_budget) noexcept;
    /// The same, inlined: for fi_cq_read, where the cost of the call itself would be felt.
    [[gnu::always_inline]] unsigned poll_inline(unsigned budget = poll_budget) noexcept;

    // --- registrations (slow path: a system call on the hardware); 0 or -FI_E*
    [[nodiscard]] int reg(const void* addr, std::size_t size, bool read_only,
                          utofu_stadd_t& stadd) noexcept;
    /// A predictable STADD; address and size are multiples of caps().stag_address_alignment (256).
    [[nodiscard]] int reg_with_stag(void* addr, std::size_t size, unsigned stag,
                                    utofu_stadd_t& stadd) noexcept;
    void dereg(utofu_stadd_t stadd) noexcept;
    /// STADD of a reserved STag of any VCQ, also a remote one (guide 3.6.1.3). 0 or -FI_E*.
    [[nodiscard]] int query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept;

    /// How many more posts with When::delivered the completion window takes now.
    [[nodiscard]] unsigned window_free() const noexcept { return free_count_; }
    /// No post is under way that somebody waits for.
    [[nodiscard]] bool idle() const noexcept
    {
        return sent_pending_ == 0 && (free_count_ == window_size - 1 || nobody_waits());
    }

    // EDATA is one byte (caps: max_edata_size 1); 0 and 255 mean "nobody waits": 254 usable places.
    static constexpr unsigned window_size = 255;

  private:
    // cbdata tells five things apart: null (nobody waits), write_mark and armw_mark (nobody waits for a write or an
    // ARMW of the application), a place of the window (bit 0 clear; only an error comes through the TCQ) and a waiter
    // of the TCQ entry itself (bit 0 set).
    static constexpr std::uintptr_t sent_bit = 1;
    static_assert(alignof(Waiter) > sent_bit);
    alignas(8) static inline char armw_mark[8] = {};
    alignas(8) static inline char write_mark[8] = {};
    static constexpr std::uint64_t write_edata = window_size;
    static constexpr std::uint64_t edata_of(Unsignaled kind) noexcept { return kind == Unsignaled::write ? write_edata : 0; }
    static constexpr void* mark_of(Unsignaled kind) noexcept
    {
        return kind == Unsignaled::write ? write_mark : kind == Unsignaled::armw ? armw_mark : nullptr;
    }
    /// `waiter` is null where the place is free. The address of a place is the cbdata of its post.
    struct alignas(8) Place {
        Waiter* waiter;
        std::uint8_t next_free;
        std::uint16_t expected = 1; ///< notices until it is free again; 1 but for batches
        std::uint16_t age = 0;      ///< how many times watch() has seen it taken, or `forgotten`
    };
    /// Nobody waits for its notices any more; not free, so that they meet nobody else.
    static constexpr std::uint16_t forgotten = 0xffff;
    static constexpr std::uint16_t lost_age = 3;
    struct Ticket {
        std::uint64_t edata;
        unsigned long flags;
        void* cbdata;
    };

    static constexpr When when_of(const How& how) noexcept { return how.when; }
    static constexpr When when_of(const Signaled&) noexcept { return When::delivered; }
    static constexpr When when_of(const Silent&) noexcept { return When::never; }
    template <class Way, class Function, class... Args>
    [[nodiscard, gnu::always_inline]] Post post(const Way& how, Function Functions::*function, utofu_vcq_id_t peer,
                                                Args... args) noexcept
    {
        if (closing_) [[unlikely]]
            return pausing_ ? no_room() : Post::error;
        return post_even_closing(how, function, peer, args...);
    }
    template <class Way, class Function, class... Args>
    [[nodiscard, gnu::always_inline]] Post post_even_closing(const Way& how, Function Functions::*function,
                                                             utofu_vcq_id_t peer, Args... args) noexcept
    {
        Ticket ticket;
        if (!admit(how, peer, ticket)) [[unlikely]]
            return no_room();
        TOFU_PROBE(post, this, peer);
        const int code = (functions_->*function)(handle_, peer, args..., ticket.edata, ticket.flags, ticket.cbdata);
        if (code == UTOFU_SUCCESS) [[likely]]
            return Post::done;
        return refuse(code, when_of(how), ticket.edata);
    }
    template <class Word>
    [[nodiscard]] auto word_functions() const noexcept
    {
        if constexpr (sizeof(Word) == 8)
            return std::pair(functions_->armw8, functions_->cswap8);
        else
            return std::pair(functions_->armw4, functions_->cswap4);
    }
    [[nodiscard]] Post post_fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept;
    template <class Done>
    [[nodiscard]] bool await(Done&& done) noexcept;
    void give_up(int code, bool for_good, std::uint16_t least_age = 0) noexcept;
    [[nodiscard, gnu::cold]] bool nobody_waits() const noexcept;
    [[gnu::cold]] void watch() noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const How& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const Signaled& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const Silent& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept;
    [[nodiscard, gnu::always_inline]] std::uint8_t take_place(Waiter* waiter) noexcept;
    [[gnu::noinline, gnu::cold]] Post no_room() noexcept;
    [[gnu::noinline, gnu::cold]] Post refuse(int code, When when, std::uint64_t edata) noexcept;
    void give_back(std::uint8_t number) noexcept
    {
        Place& place = window_[number];
        place.waiter = nullptr;
        place.expected = 1;
        place.age = 0;
        place.next_free = first_free_;
        first_free_ = number;
        free_count_++;
    }
    /// A notice of a place has come, or never will. True where it was the last one.
    bool one_less(Place& place) noexcept
    {
        if (place.expected == endless)
            return false;
        if (place.age != forgotten)
            place.age = 0;
        if (--place.expected != 0)
            return false;
        give_back(static_cast<std::uint8_t>(&place - window_));
        return true;
    }
    [[nodiscard]] bool mrq_is_due() const noexcept
    {
        return free_count_ != window_size - 1 || sink_.remote != nullptr;
    }
    template <class Function, class... Args>
    [[nodiscard]] int made(utofu_stadd_t& stadd, Function Functions::*function, Args... args) noexcept;
    [[gnu::cold]] void report_unsignaled_error(int code, Unsignaled kind, utofu_vcq_id_t peer) noexcept;
    [[gnu::noinline]] unsigned poll_tcq(unsigned budget) noexcept;
    [[gnu::noinline, gnu::cold]] unsigned poll_failures() noexcept;
    [[nodiscard, gnu::always_inline]] bool next_notice(utofu_mrq_notice& notice, int& code) noexcept;
    void on_tcq(int code, void* cbdata) noexcept;
    [[gnu::always_inline]] void on_mrq(int code, const utofu_mrq_notice& notice) noexcept;
    void on_remote_mrq(int code, const utofu_mrq_notice& notice) noexcept;

    utofu_vcq_hdl_t handle_ = 0;
    const Functions* functions_ = nullptr;
    utofu_vcq_id_t id_ = 0;
    std::uint32_t sent_pending_ = 0; ///< posts with When::sent whose TCQ entry is to come
    std::uint16_t free_count_ = 0;
    std::uint8_t first_free_ = 0;    ///< 0: none
    bool closing_ = false;
    bool pausing_ = false;           ///< closing_ for a while only
    bool giving_up_ = false;         ///< waiters of lost notices are being told
    bool tcq_wanted_ = false;        ///< the next poll looks into the TCQ
    std::uint8_t polls_ = 0;
    int last_error_ = 0;
    Sink sink_{};
    UnsignaledPeers unsignaled_;
    const Backend* backend_ = nullptr;
    std::chrono::steady_clock::time_point watch_at_; ///< not before
    places::Place place_{};          ///< on the node
    Statistics statistics_;
    Place window_[window_size] = {};
};

// --- inline part

/// Number of the place taken, 0: none is free.
inline std::uint8_t Vcq::take_place(Waiter* waiter) noexcept
{
    const std::uint8_t number = first_free_;
    if (number == 0) [[unlikely]]
        return 0;
    Place& place = window_[number];
    first_free_ = place.next_free;
    free_count_--;
    place.waiter = waiter;
    return number;
}

/// Fills in what the call of uTofu wants. False: no place is free, or no memory.
inline bool Vcq::admit(const Signaled& how, utofu_vcq_id_t, Ticket& ticket) noexcept
{
    // The place is taken before the post: its notice may be there before the call returns.
    const std::uint8_t number = take_place(how.waiter);
    ticket = {number, how.flags, &window_[number]};
    return number != 0;
}

inline bool Vcq::admit(const Silent& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept
{
    ticket = {edata_of(how.kind), how.flags, mark_of(how.kind)};
    return unsignaled_.note(peer);
}

inline bool Vcq::admit(const How& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept
{
    const unsigned long flags = flags_of(how.strong_order, how.remote_notice);
    if (how.when == When::delivered)
        return admit(Signaled{how.waiter, flags | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE}, peer, ticket);
    if (!admit(Silent{how.kind, flags}, peer, ticket)) [[unlikely]]
        return false;
    if (how.when == When::sent) {
        ticket.cbdata =
            reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(how.waiter) | sent_bit);
        ticket.flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
        sent_pending_++;
    }
    return true;
}

inline void Vcq::on_mrq(int code, const utofu_mrq_notice& notice) noexcept
{
    // acquire: the notice before the data it tells of (guide 2.2.10). Nothing says that utofu_poll_mrq() does it; behind
    // an indirect call it is no instruction on x86-64.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint8_t type = notice.notice_type;
    if (type != UTOFU_MRQ_TYPE_LCL_ARMW && type != UTOFU_MRQ_TYPE_LCL_PUT &&
        type != UTOFU_MRQ_TYPE_LCL_GET) {
        on_remote_mrq(code, notice);
        return;
    }
    // Places are matched one by one: notices keep their order only per remote VCQ (guide 2.2.10).
    if (notice.edata == 0 || notice.edata >= window_size) [[unlikely]] {
        if (code != UTOFU_SUCCESS)
            report_unsignaled_error(code,
                     type == UTOFU_MRQ_TYPE_LCL_ARMW ? Unsignaled::armw
                     : notice.edata == write_edata   ? Unsignaled::write
                                                     : Unsignaled::message,
                     notice.vcq_id);
        return;
    }
    Place& place = window_[notice.edata];
    Waiter* waiter = place.waiter;
    if (waiter == nullptr) [[unlikely]] // its end was told already
        return;
    if (place.expected == 1) [[likely]]
        give_back(static_cast<std::uint8_t>(notice.edata));
    else
        one_less(place);
    waiter->notify(waiter, Notice{code, type == UTOFU_MRQ_TYPE_LCL_ARMW ? notice.rmt_value : 0});
}

/// The next of the MRQ. False: there is none, or the poll itself failed.
inline bool Vcq::next_notice(utofu_mrq_notice& notice, int& code) noexcept
{
    code = functions_->poll_mrq(handle_, 0, &notice);
    if (code == UTOFU_SUCCESS) [[likely]]
        return true;
    if (code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH)
        return true;
    if (code != UTOFU_ERR_NOT_FOUND) [[unlikely]]
        last_error_ = code;
    return false;
}

inline unsigned Vcq::poll_inline(unsigned budget) noexcept
{
    if (!is_open()) [[unlikely]]
        return 0;
    unsigned taken = 0;
    // Without a waiter a queue has errors at most, and room to give back: a look now and then will do.
    const bool look = ++polls_ % tcq_interval == 0;
    const bool makes_room = sent_pending_ != 0 || tcq_wanted_ || look;
    if (makes_room) [[unlikely]]
        taken = poll_tcq(budget);
    // Where the TOQ has room again, what was posted must not have filled the MRQ with failures.
    if (!mrq_is_due() && !makes_room) [[likely]]
        return taken;
    utofu_mrq_notice notice;
    int code = UTOFU_SUCCESS;
    for (unsigned i = 0; i < budget && next_notice(notice, code); i++) {
        taken++;
        on_mrq(code, notice);
        if (code != UTOFU_SUCCESS) [[unlikely]]
            return taken + poll_failures();
        if (!mrq_is_due()) // nobody waits for another one
            break;
    }
    return taken;
}

} // namespace tofu::vcq
