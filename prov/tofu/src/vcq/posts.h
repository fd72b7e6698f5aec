// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sending half of a VCQ: one-sided communications, each with the notices that are wanted of it, one at a time or in
// batches, and fences. Base of Vcq, which polls; called by the engines and protocols; calls the backend's function table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <utofu.h>

#include "provider/probe.h"
#include "provider/statistics.h"
#include "vcq/backend.h"
#include "vcq/handle.h"
#include "vcq/unsignaled.h"
#include "vcq/window.h"

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

/// Of a put to where somebody polls. The lines that it covers go into the cache there (guide 2.2.11); or, of an inline put,
/// the whole line, whose other bytes become anything.
inline constexpr unsigned long into_cache = UTOFU_ONESIDED_FLAG_CACHE_INJECTION;
inline constexpr unsigned long whole_line = into_cache | UTOFU_ONESIDED_FLAG_PADDING;

/// How to post: which notices, in which order.
struct How {
    When when = When::never;
    bool strong_order = false;  ///< after all earlier posts to the same remote VCQ (guide 6.1.3.1)
    bool remote_notice = false; ///< an MRQ notice at the target as well
    Waiter* waiter = nullptr;   ///< required unless `when` is never
    Unsignaled kind = Unsignaled::message; ///< unless `when` is delivered: message or write
    unsigned long cache = 0;    ///< into_cache, whole_line
};

/// The same for a signaled post (When::delivered) whose owner keeps its flags (delivered_flags) ready.
struct Signaled {
    static constexpr When when = When::delivered;
    Waiter* waiter;
    unsigned long flags;
};

/// The same for a post that nobody waits for, with flags of flags_of.
struct Silent {
    static constexpr When when = When::never;
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

/// The flags of a post that nobody waits for.
constexpr unsigned long flags_of(bool strong_order, bool remote_notice) noexcept
{
    return (strong_order ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0) |
           (remote_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
}
/// Those of a post for a Signaled.
constexpr unsigned long delivered_flags(bool strong_order, bool remote_notice) noexcept
{
    return flags_of(strong_order, remote_notice) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
}

/// What a post has with it to be known by again, and how it is told from the place in the window of another:
///  - EDATA, which comes back by the MRQ: the number of a place, or 0 and `write`, where nobody waits;
///  - cbdata, which comes back by the TCQ: a waiter, or one of these numbers, or `armw`: no waiter lies in the first
///    bytes of memory.
struct Mark {
    static constexpr std::uintptr_t write = Window::size, armw = Window::size + 1;
    static constexpr std::uintptr_t end = armw + 1;

    static constexpr std::uintptr_t of(Unsignaled kind) noexcept
    {
        return kind == Unsignaled::write ? write : kind == Unsignaled::armw ? armw : 0;
    }
    /// Of a number that names no place.
    static constexpr Unsignaled kind_of(std::uintptr_t number) noexcept
    {
        return number == armw ? Unsignaled::armw : number == write ? Unsignaled::write : Unsignaled::message;
    }
    static constexpr std::uint64_t edata_of(Unsignaled kind) noexcept { return kind == Unsignaled::write ? write : 0; }
    static void* cbdata_of(std::uintptr_t number) noexcept { return reinterpret_cast<void*>(number); }
};

/// Its owner's lock serialises all calls.
class Posts : public Handle {
  public:
    // Inlined into the engines. Lengths are within the limits of Backend::caps(): the caller splits. `how`
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

    /// Posts an ARMW that changes nothing, in strong order: with its notice, whatever that says, all that was posted to
    /// the peer before has taken effect or never will (guide 2.2.10). Post::error: nothing can be posted to the peer.
    [[nodiscard]] Post fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept
    {
        return closing_ ? pausing_ ? Post::busy : Post::error : post_fence(peer, waiter);
    }
    /// Has something been posted to the peer without a notice of its effect, and no fence behind it?
    [[nodiscard]] bool has_unsignaled_to(utofu_vcq_id_t peer) const noexcept { return unsignaled_.has(peer); }

    /// A place for a batch (vcq/window.h) of `notices` notices. 0: none is free.
    [[nodiscard]] std::uint8_t open_batch(Waiter* waiter, unsigned notices) noexcept;
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
        void* const place = Mark::cbdata_of(batch);
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

    /// Whose notices are to come.
    [[nodiscard]] Window& window() noexcept { return window_; }
    [[nodiscard]] const Window& window() const noexcept { return window_; }
    /// No post is under way that somebody waits for.
    [[nodiscard]] bool idle() const noexcept { return sent_pending_ == 0 && window_.nobody_waits(); }
    [[nodiscard]] bool is_closing() const noexcept { return closing_; }

  protected:
    ~Posts() = default;
    [[nodiscard]] Post post_fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept;

    std::uint32_t sent_pending_ = 0; ///< posts with When::sent whose TCQ entry is to come
    bool closing_ = false;
    bool pausing_ = false;           ///< closing_ for a while only
    /// The next poll looks into the TCQ (the lowest bit), or at VCQs beside (times beside_step): one test for all.
    std::uint32_t wanted_ = 0;
    static constexpr std::uint32_t tcq_wanted = 1, beside_step = 2;
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

/// Fills in what the call of uTofu wants. False: no place is free, or no memory.
inline bool Posts::admit(const Signaled& how, utofu_vcq_id_t, Ticket& ticket) noexcept
{
    // The place is taken before the post: its notice may be there before the call returns.
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
