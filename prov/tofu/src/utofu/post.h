// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of a VCQ: posts one-sided communications with the notices that the caller wants, one at a time or in
// batches, and fences. Base of Vcq, which polls. Called by the engines and protocols; calls the backend's function
// table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <utofu.h>

#include "core/log.h"
#include "core/stats.h"
#include "utofu/handle.h"
#include "utofu/library.h"
#include "utofu/unsignaled.h"
#include "utofu/window.h"

namespace tofu::vcq {

/// The result of a post. A refusal (busy) has no effect; retry it after a poll.
enum class Post : int {
    done, ///< under way; the notice that was asked for will come
    busy, ///< the TOQ is full, or the completion window has no free place
    error ///< refused for good; Vcq::last_error() has the uTofu code, which is not UTOFU_SUCCESS
};

/// Every VCQ that others post to has a word for fences, under this STag at this offset (mem/mr_directory.h).
inline constexpr unsigned fence_stag = 0;
inline constexpr std::uint64_t fence_offset = 16896;

/// Which notice completes a communication (guide 2.2.10).
enum class When : std::uint8_t {
    never,    ///< none; an error still reaches Sink::unsignaled_error
    sent,     ///< TCQ: the source may be reused
    delivered ///< local MRQ: it took effect at the target (Put, ARMW) or here (Get)
};

/// The kind of an unsignaled communication (no notice tells of its effect), for the report of its failure.
enum class Unsignaled : std::uint8_t {
    message, ///< a message or another part of the protocols
    write,   ///< a write of the application, which hears of a failure in no other way
    armw,    ///< an atomic of the application, likewise
    event    ///< a Get or an ARMW that is nothing but an event for one more region of an operation
};

/// Flags of a put to memory that is polled. into_cache: the lines that the put covers go into the target's cache (guide
/// 2.2.11). whole_line: an inline put writes the whole line, whose other bytes become undefined.
inline constexpr unsigned long into_cache = UTOFU_ONESIDED_FLAG_CACHE_INJECTION;
inline constexpr unsigned long whole_line = into_cache | UTOFU_ONESIDED_FLAG_PADDING;

/// How to post: the notices, and the order.
struct How {
    When when = When::never;
    bool strong_order = false;  ///< after all earlier posts to the same remote VCQ (guide 6.1.3.1)
    bool remote_notice = false; ///< an MRQ notice at the target as well
    Waiter* waiter = nullptr;   ///< required unless `when` is never
    Unsignaled kind = Unsignaled::message; ///< unless `when` is delivered: message or write
    unsigned long cache = 0;    ///< into_cache, whole_line
};

/// A How for a signaled post (When::delivered) whose flags the caller keeps ready (delivered_flags).
struct Signaled {
    static constexpr When when = When::delivered;
    Waiter* waiter;
    unsigned long flags;
};

/// A How for an unsignaled post, with flags of flags_of.
struct Silent {
    static constexpr When when = When::never;
    Unsignaled kind;
    unsigned long flags;
};

/// A batch of ARMWs on neighbouring words of a peer, all of one width.
struct Words {
    utofu_vcq_id_t peer;
    utofu_stadd_t remote;
    std::size_t n;
    utofu_armw_op op;          ///< unless they are CSWAPs, with ...
    const std::byte* operands;
    const std::byte* compares; ///< ... these
};

/// The flags of an unsignaled post.
constexpr unsigned long flags_of(bool strong_order, bool remote_notice) noexcept
{
    return (strong_order ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0) |
           (remote_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
}
/// The flags for a Signaled.
constexpr unsigned long delivered_flags(bool strong_order, bool remote_notice) noexcept
{
    return flags_of(strong_order, remote_notice) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
}

/// The values by which the notices of a post are recognised:
///  - EDATA, which comes back by the MRQ here and at the peer: the number of a place in the window, or 0 or `write` for an
///    unsignaled post. A Put with `write` is a write, a Get or an ARMW with it an event;
///  - cbdata, which comes back by the TCQ: a waiter, or one of these numbers, or `armw` or `event`. No waiter
///    lies in the first bytes of memory, so these can't be confused.
struct Mark {
    static constexpr std::uintptr_t write = Window::size, armw = Window::size + 1, event = Window::size + 2;
    static constexpr std::uintptr_t end = event + 1;

    static constexpr std::uintptr_t of(Unsignaled kind) noexcept
    {
        switch (kind) {
        case Unsignaled::message: break;
        case Unsignaled::write: return write;
        case Unsignaled::armw: return armw;
        case Unsignaled::event: return event;
        }
        return 0;
    }
    /// The kind of an unsignaled post, by the cbdata that names no place.
    static constexpr Unsignaled kind_of(std::uintptr_t number) noexcept
    {
        return number == event   ? Unsignaled::event
               : number == armw  ? Unsignaled::armw
               : number == write ? Unsignaled::write
                                 : Unsignaled::message;
    }
    /// The same by the notice (UTOFU_MRQ_TYPE_LCL_*) and its EDATA.
    static constexpr Unsignaled kind_of(std::uint8_t type, std::uint64_t edata) noexcept
    {
        if (edata == write)
            return type == UTOFU_MRQ_TYPE_LCL_PUT ? Unsignaled::write : Unsignaled::event;
        return type == UTOFU_MRQ_TYPE_LCL_ARMW ? Unsignaled::armw : Unsignaled::message;
    }
    static constexpr std::uint64_t edata_of(Unsignaled kind) noexcept
    {
        return kind == Unsignaled::write || kind == Unsignaled::event ? write : 0;
    }
    static void* cbdata_of(std::uintptr_t number) noexcept { return reinterpret_cast<void*>(number); }
};

/// The posts of a VCQ. The owner's lock serialises all calls.
class Posts : public Handle {
  public:
    // Inlined into the engines. The caller splits lengths to the limits of Backend::caps(). `how` is a How, a Signaled
    // or a Silent; errors of unsignaled posts reach Sink::unsignaled_error.
    template <class Way = How>
    [[nodiscard, gnu::always_inline]] Post put(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                                               std::size_t length, const Way& how) noexcept
    {
        return post(how, &Functions::put, peer, local, remote, length);
    }
    /// Puts at most caps().max_piggyback_size (32) bytes, which are copied before the call returns.
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
    /// An ARMW, or a CSWAP, on a word of `width` bytes, 4 or 8.
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

    /// Posts an ARMW that changes nothing, in strong order. When its notice comes, whatever that says, all earlier
    /// posts to the peer have taken effect or never will (guide 2.2.10). Post::error: nothing can be posted to the
    /// peer.
    [[nodiscard]] Post fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept
    {
        return closing_ ? pausing_ ? Post::busy : Post::error : post_fence(peer, waiter);
    }
    /// Has anything been posted to the peer unsignaled since the last fence?
    [[nodiscard]] bool has_unsignaled_to(utofu_vcq_id_t peer) const noexcept { return unsignaled_.has(peer); }

    /// Takes a place of the window for a batch of `notices` notices (utofu/window.h). 0: none is free.
    [[nodiscard]] std::uint8_t open_batch(Waiter* waiter, unsigned notices) noexcept;
    /// Posts ARMWs of a batch, at least one. Returns how many were posted; `posted` says what stopped the rest. The
    /// library may hold them back to start them together, with `more` until the next post or start_batch().
    template <class Word, bool swaps>
    [[nodiscard, gnu::always_inline]] std::size_t post_batch(std::uint8_t batch, const Words& words,
                                                             unsigned long flags, bool more, Post& posted) noexcept
    {
        // Copies: the compiler can't know that a post changes none of these.
        const utofu_vcq_hdl_t handle = handle_;
        const auto [peer, first, n, op, operands, compares] = words;
        const auto [armw, cswap] = word_functions<Word>();
        const std::uintptr_t place = batch;
        // The three rows have one count, the address of an operand: so far it is to the word and to the compare.
        const std::byte* at = operands;
        const auto to_remote = first - reinterpret_cast<std::uintptr_t>(operands);
        const auto to_compare = reinterpret_cast<std::uintptr_t>(compares) - reinterpret_cast<std::uintptr_t>(operands);
        const auto word = [](const std::byte* from) {
            Word value;
            std::memcpy(&value, from, sizeof(Word));
            return value;
        };
        int code = UTOFU_SUCCESS;
        const auto post_up_to = [&](const std::byte* end, unsigned long all) {
            for (; at != end; at += sizeof(Word)) {
                const auto count = reinterpret_cast<std::uintptr_t>(at);
                const utofu_stadd_t remote = count + to_remote;
                const auto* const compare = reinterpret_cast<const std::byte*>(count + to_compare);
                if constexpr (swaps)
                    code = cswap(handle, peer, word(compare), word(at), remote, place, all, Mark::cbdata_of(place));
                else
                    code = armw(handle, peer, op, word(at), remote, place, all, Mark::cbdata_of(place));
                if (code != UTOFU_SUCCESS) [[unlikely]]
                    return false;
            }
            return true;
        };
        const std::byte* const end = operands + n * sizeof(Word);
        const std::byte* const held_end = more ? end : end - sizeof(Word); // the last one starts those held back
        const bool done = post_up_to(held_end, flags | UTOFU_ONESIDED_FLAG_DELAY_START) && post_up_to(end, flags);
        posted = done ? Post::done : refuse(code, When::never, 0);
        return static_cast<std::size_t>(at - operands) / sizeof(Word);
    }
    /// Starts what was posted with `more` and has not been followed by another post.
    void start_batch() noexcept
    {
        if (functions_->post_toq != nullptr)
            (void)functions_->post_toq(handle_, nullptr, 0, nullptr);
    }

    /// The posts whose notices are still to come.
    [[nodiscard]] Window& window() noexcept { return window_; }
    [[nodiscard]] const Window& window() const noexcept { return window_; }
    /// True if no signaled post is under way.
    [[nodiscard]] bool idle() const noexcept { return sent_pending_ == 0 && window_.nobody_waits(); }
    [[nodiscard]] bool is_closing() const noexcept { return closing_; }

    // --- What waits for a round of progress of the VCQ's owner says so. Only a hint, which spares polls the look at
    // all that might wait: every full round looks anyway, and says what waits then.
    void set_busy(bool busy = true) noexcept { busy_ = busy; }

  protected:
    ~Posts() = default;
    [[nodiscard]] Post post_fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept;

    std::uint32_t sent_pending_ = 0; ///< posts with When::sent whose TCQ entry is to come
    bool closing_ = false;
    bool pausing_ = false;           ///< closing_ is temporary (quiesce)
    /// Tells the next poll to look into the TCQ (lowest bit) or at further VCQs (times beside_step), by one test for
    /// all.
    std::uint32_t wanted_ = 0;
    static constexpr std::uint32_t tcq_wanted = 1, beside_step = 2;
    std::uint32_t busy_ = 1; ///< see set_busy()
    UnsignaledPeers unsignaled_;
    Window window_;

  private:
    struct Ticket {
        std::uint64_t edata;
        unsigned long flags;
        void* cbdata;
    };
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
        return refuse(code, how.when, ticket.edata);
    }
    template <class Word>
    [[nodiscard]] auto word_functions() const noexcept
    {
        if constexpr (sizeof(Word) == 8)
            return std::pair(functions_->armw8, functions_->cswap8);
        else
            return std::pair(functions_->armw4, functions_->cswap4);
    }
    [[nodiscard, gnu::always_inline]] bool admit(const How& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const Signaled& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const Silent& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept;
    [[gnu::noinline, gnu::cold]] Post no_room() noexcept;
    [[gnu::noinline, gnu::cold]] Post refuse(int code, When when, std::uint64_t edata) noexcept;
};

// --- inline part

/// Turns `how` into the arguments of the uTofu call. False: no place is free, or there is no memory.
inline bool Posts::admit(const Signaled& how, utofu_vcq_id_t, Ticket& ticket) noexcept
{
    // The place is taken before the post, whose notice may be there before the call returns.
    const std::uint8_t number = window_.take(how.waiter);
    ticket = {number, how.flags, Mark::cbdata_of(number)};
    return number != 0;
}

inline bool Posts::admit(const Silent& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept
{
    ticket = {Mark::edata_of(how.kind), how.flags, Mark::cbdata_of(Mark::of(how.kind))};
    return unsignaled_.note(peer);
}

inline bool Posts::admit(const How& how, utofu_vcq_id_t peer, Ticket& ticket) noexcept
{
    const unsigned long flags = flags_of(how.strong_order, how.remote_notice) | how.cache;
    if (how.when == When::delivered)
        return admit(Signaled{how.waiter, flags | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE}, peer, ticket);
    if (!admit(Silent{how.kind, flags}, peer, ticket)) [[unlikely]]
        return false;
    if (how.when == When::sent) {
        ticket.cbdata = how.waiter;
        ticket.flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
        sent_pending_++;
    }
    return true;
}

} // namespace tofu::vcq
