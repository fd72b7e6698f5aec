// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A VCQ, in three layers: creation and registrations (Handle), posts (Posts: Handle), and polls until the end (Vcq:
// Posts). All engines post by it, under the lock of the VCQ's owner. Only this module calls utofu_*.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <utofu.h>

#include "core/log.h"
#include "core/stats.h"
#include "core/system.h"
#include "utofu/library.h"
#include "utofu/tni_allocator.h"
#include "utofu/under_way.h"

namespace tofu::vcq {

// --- Handle: a VCQ of uTofu without communication: created on a TNI and freed, registrations and STADDs

/// The spread of a spare VCQ: it is made on a TNI that no process of the node posts from, or not at all.
inline constexpr unsigned spread_of_spare = ~0u;

/// Not thread-safe: its owner's lock serialises all calls.
class Handle : ForkAware {
  public:
    [[nodiscard]] bool is_open() const noexcept { return handle_ != 0; }
    [[nodiscard]] utofu_vcq_hdl_t handle() const noexcept { return handle_; }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept { return id_; }
    [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }
    /// The uTofu code of the last call that failed; after a failure never UTOFU_SUCCESS.
    [[nodiscard]] int last_error() const noexcept { return last_error_; }
    /// Counts what goes by this VCQ; every layer may add to it.
    [[nodiscard]] Statistics& statistics() noexcept { return statistics_; }

    // --- slow path: a system call on the hardware. 0 or -FI_E*; `stadd` is written on success only
    [[nodiscard]] int reg(const void* addr, std::size_t size, bool read_only, utofu_stadd_t& stadd) noexcept;
    /// Registers under a STag of the caller's choice, which makes the STADD predictable. Address and size are multiples
    /// of caps().stag_address_alignment (256).
    [[nodiscard]] int reg_with_stag(void* addr, std::size_t size, unsigned stag, utofu_stadd_t& stadd) noexcept;
    void dereg(utofu_stadd_t stadd) noexcept;
    /// The STADD of a reserved STag of any VCQ, also a remote one (guide 3.6.1.3).
    [[nodiscard]] int query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept;

  protected:
    Handle() = default;
    ~Handle() = default;
    /// Creates the VCQ, as Vcq::open() says. `book`, if not null, adds up its statistics until it is freed.
    [[nodiscard]] int make(const Backend& backend, unsigned spread, bool thread_safe, StatisticsBook* book) noexcept;
    void free() noexcept;
    /// In a child of fork: nothing reaches the VCQ, and no notice comes (functions_of_child).
    [[nodiscard]] bool is_of_parent() const noexcept;

    Statistics statistics_;
    bool keeps_registrations_ = false; ///< nothing is deregistered before the VCQ is freed
    int last_error_ = 0;
    // Read by each post, so next to the members of Posts.
    const Functions* functions_ = nullptr;
    utofu_vcq_hdl_t handle_ = 0;

  private:
    void in_child() noexcept override;
    template <class Function, class... Args>
    [[nodiscard]] int made(utofu_stadd_t& stadd, Function Functions::*function, Args... args) noexcept;

    utofu_vcq_id_t id_ = 0;
    const Backend* backend_ = nullptr;
    StatisticsBook* book_ = nullptr;
    tni_allocator::TniSlot slot_{}; ///< on the node
};

// --- Posts: posts one-sided communications with the notices that the caller wants, one at a time or in batches, and
// fences. Each post names its completion handler and its completion level.

/// The result of a post. A refusal (busy) has no effect; retry it after a poll.
enum class Post : int {
    done, ///< under way; the notice that was asked for will come
    busy, ///< the TOQ is full, or no tag is free
    error ///< refused for good; Vcq::last_error() has the uTofu code, which is not UTOFU_SUCCESS
};

/// Every VCQ that others post to has a word for fences, under this STag at this offset (mem/mr_directory.h).
inline constexpr unsigned fence_stag = 0;
inline constexpr std::uint64_t fence_offset = 16896;

/// Which notice completes a communication (guide 2.2.10).
enum class CompletionLevel : std::uint8_t {
    never,    ///< none; an error still reaches Sink::unsignaled_error
    sent,     ///< TCQ: the source may be reused
    delivered ///< local MRQ: it took effect at the target (Put, ARMW) or here (Get)
};

/// The kind of an unsignaled communication (no notice reports its effect), for the report of its failure.
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
struct PostOptions {
    CompletionLevel level = CompletionLevel::never;
    bool strong_order = false;             ///< after all earlier posts to the same remote VCQ (guide 6.1.3.1)
    bool remote_notice = false;            ///< an MRQ notice at the target as well
    CompletionHandler* handler = nullptr;  ///< required unless `level` is never
    Unsignaled kind = Unsignaled::message; ///< unless `level` is delivered: message or write
    unsigned long cache = 0;               ///< into_cache, whole_line
};

/// PostOptions of a signaled post (CompletionLevel::delivered) with flags that the caller has prepared
/// (delivered_flags).
struct SignaledArgs {
    static constexpr CompletionLevel level = CompletionLevel::delivered;
    CompletionHandler* handler;
    unsigned long flags;
};

/// PostOptions of an unsignaled post, with flags of flags_of.
struct UnsignaledArgs {
    static constexpr CompletionLevel level = CompletionLevel::never;
    Unsignaled kind;
    unsigned long flags;
};

/// A batch of ARMWs on neighbouring words of a peer, all of one width.
struct Words {
    utofu_vcq_id_t peer;
    utofu_stadd_t remote;
    std::size_t n;
    utofu_armw_op op; ///< unless they are CSWAPs, with ...
    const std::byte* operands;
    const std::byte* compares; ///< ... these
};

/// Where the descriptors of such ARMWs have what distinguishes the words, in bytes from their start.
struct WordLayout {
    static constexpr std::uint8_t none = 1; ///< as size: these are no such descriptors
    std::uint8_t size = 0;                  ///< of a descriptor; 0: not known yet
    std::uint8_t operand = 0;
    std::uint8_t compare = 0;
    std::uint8_t remote = 0;
};

/// The flags of an unsignaled post.
constexpr unsigned long flags_of(bool strong_order, bool remote_notice) noexcept
{
    return (strong_order ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0) |
           (remote_notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0);
}
/// The flags for SignaledArgs.
constexpr unsigned long delivered_flags(bool strong_order, bool remote_notice) noexcept
{
    return flags_of(strong_order, remote_notice) | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
}

/// The values by which the notices of a post are recognised:
///  - EDATA, which comes back by the MRQ here and at the peer: the number of a tag, or 0 or `write` for
///    an unsignaled post. A Put with `write` is a write, a Get or an ARMW with it an event;
///  - cbdata, which comes back by the TCQ: a completion handler, or one of these numbers, or `armw` or `event`. No
///    completion handler lies in the first bytes of memory, so these cannot be confused.
struct PostTag {
    static constexpr std::uintptr_t write = CompletionTable::size, armw = CompletionTable::size + 1,
                                    event = CompletionTable::size + 2;
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
    /// The kind of an unsignaled post, by the cbdata that names no tag.
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
    // Inlined into the engines. The caller splits lengths to the limits of Backend::caps(). `how` is a How,
    // SignaledArgs or UnsignaledArgs; errors of unsignaled posts reach Sink::unsignaled_error.
    template <class Options = PostOptions>
    [[nodiscard, gnu::always_inline]] Post put(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                                               std::size_t length, const Options& how) noexcept
    {
        return post(how, &Functions::put, peer, local, remote, length);
    }
    /// Puts at most caps().max_piggyback_size (32) bytes, which are copied before the call returns.
    template <class Options = PostOptions>
    [[nodiscard, gnu::always_inline]] Post put_inline(utofu_vcq_id_t peer, const void* data, utofu_stadd_t remote,
                                                      std::size_t length, const Options& how) noexcept
    {
        // The table's function reads the bytes only; its type lacks the const.
        return post(how, &Functions::put_piggyback, peer, const_cast<void*>(data), remote, length);
    }
    template <class Options = PostOptions>
    [[nodiscard, gnu::always_inline]] Post get(utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                                               std::size_t length, const Options& how) noexcept
    {
        return post(how, &Functions::get, peer, local, remote, length);
    }
    /// An ARMW, or a CSWAP, on a word of `width` bytes, 4 or 8.
    template <class Options = PostOptions>
    [[nodiscard, gnu::always_inline]] Post armw(unsigned width, utofu_vcq_id_t peer, utofu_armw_op op,
                                                std::uint64_t operand, utofu_stadd_t remote,
                                                const Options& how) noexcept
    {
        return width == 8 ? post(how, &Functions::armw8, peer, op, operand, remote)
                          : post(how, &Functions::armw4, peer, op, static_cast<std::uint32_t>(operand), remote);
    }
    template <class Options = PostOptions>
    [[nodiscard, gnu::always_inline]] Post cswap(unsigned width, utofu_vcq_id_t peer, std::uint64_t compare,
                                                 std::uint64_t swap, utofu_stadd_t remote, const Options& how) noexcept
    {
        return width == 8 ? post(how, &Functions::cswap8, peer, compare, swap, remote)
                          : post(how, &Functions::cswap4, peer, static_cast<std::uint32_t>(compare),
                                 static_cast<std::uint32_t>(swap), remote);
    }

    /// Posts an ARMW that changes nothing, in strong order. When its notice comes, whatever that says, all earlier
    /// posts to the peer have taken effect or never will (guide 2.2.10). Post::error: nothing can be posted to the
    /// peer.
    [[nodiscard]] Post fence(utofu_vcq_id_t peer, CompletionHandler& handler) noexcept
    {
        return closing_ ? pausing_ ? Post::busy : Post::error : post_fence(peer, handler);
    }
    /// Has anything been posted to the peer unsignaled since the last fence?
    [[nodiscard]] bool has_unsignaled_to(utofu_vcq_id_t peer) const noexcept { return unsignaled_.has(peer); }

    /// Takes a tag for a batch (CompletionTable::open). 0: none is free.
    [[nodiscard]] std::uint8_t open_batch(CompletionHandler* handler, bool endless = false) noexcept;
    /// Posts ARMWs of a batch, at least one. Returns how many were posted; `posted` says what stopped the rest.
    template <class Word, bool swaps>
    [[nodiscard]] std::size_t post_batch(std::uint8_t batch, const Words& words, unsigned long flags,
                                         Post& posted) noexcept;

    /// The posts whose notices are still to come.
    [[nodiscard]] CompletionTable& completions() noexcept { return completions_; }
    [[nodiscard]] const CompletionTable& completions() const noexcept { return completions_; }
    /// True if no signaled post is under way.
    [[nodiscard]] bool idle() const noexcept { return sent_pending_ == 0 && completions_.no_waiters(); }
    [[nodiscard]] bool is_closing() const noexcept { return closing_; }

    // --- What waits for a round of progress of the VCQ's owner says so. Only a hint, which spares polls the look at
    // all that might wait: every full round looks anyway, and says what waits then.
    void set_busy(bool busy = true) noexcept { wanted_ = busy ? wanted_ | round_wanted : wanted_ & ~round_wanted; }

  protected:
    ~Posts() = default;
    [[nodiscard]] Post post_fence(utofu_vcq_id_t peer, CompletionHandler& handler) noexcept;

    std::uint32_t sent_pending_ = 0; ///< posts with CompletionLevel::sent whose TCQ entry is to come
    bool closing_ = false;
    bool pausing_ = false; ///< closing_ is temporary (quiesce)
    /// Tells the next poll to look into the TCQ or at further VCQs (times linked_step), and that something waits for a
    /// round of progress (set_busy), by one test for all.
    std::uint32_t wanted_ = round_wanted;
    static constexpr std::uint32_t tcq_wanted = 1, round_wanted = 2, linked_step = 4;
    UnsignaledPeers unsignaled_;
    CompletionTable completions_;

  private:
    struct PostArgs {
        std::uint64_t edata;
        unsigned long flags;
        void* cbdata;
    };
    template <class Options, class Function, class... Args>
    [[nodiscard, gnu::always_inline]] Post post(const Options& how, Function Functions::*function, utofu_vcq_id_t peer,
                                                Args... args) noexcept
    {
        if (closing_) [[unlikely]]
            return pausing_ ? no_room() : Post::error;
        return post_even_closing(how, function, peer, args...);
    }
    template <class Options, class Function, class... Args>
    [[nodiscard, gnu::always_inline]] Post post_even_closing(const Options& how, Function Functions::*function,
                                                             utofu_vcq_id_t peer, Args... args) noexcept
    {
        PostArgs made;
        if (!admit(how, peer, made)) [[unlikely]]
            return no_room();
        TOFU_PROBE(post, this, peer);
        const int code = (functions_->*function)(handle_, peer, args..., made.edata, made.flags, made.cbdata);
        if (code == UTOFU_SUCCESS) [[likely]]
            return Post::done;
        return refuse(code, how.level, made.edata);
    }
    [[nodiscard, gnu::always_inline]] bool admit(const PostOptions& how, utofu_vcq_id_t peer, PostArgs& made) noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const SignaledArgs& how, utofu_vcq_id_t peer, PostArgs& made) noexcept;
    [[nodiscard, gnu::always_inline]] bool admit(const UnsignaledArgs& how, utofu_vcq_id_t peer,
                                                 PostArgs& made) noexcept;
    [[gnu::noinline, gnu::cold]] Post no_room() noexcept;
    [[gnu::noinline, gnu::cold]] Post refuse(int code, CompletionLevel level, std::uint64_t edata) noexcept;

    WordLayout layouts_[2][2]; ///< of post_batch(): of CSWAPs, of words of 8 bytes
};

// --- inline part

/// Turns `how` into the arguments of the uTofu call. False: no tag is free, or there is no memory.
inline bool Posts::admit(const SignaledArgs& how, utofu_vcq_id_t, PostArgs& made) noexcept
{
    // The tag is taken before the post, whose notice may be there before the call returns.
    const std::uint8_t number = completions_.acquire(how.handler);
    made = {number, how.flags, PostTag::cbdata_of(number)};
    return number != 0;
}

inline bool Posts::admit(const UnsignaledArgs& how, utofu_vcq_id_t peer, PostArgs& made) noexcept
{
    made = {PostTag::edata_of(how.kind), how.flags, PostTag::cbdata_of(PostTag::of(how.kind))};
    return unsignaled_.note(peer);
}

inline bool Posts::admit(const PostOptions& how, utofu_vcq_id_t peer, PostArgs& made) noexcept
{
    const unsigned long flags = flags_of(how.strong_order, how.remote_notice) | how.cache;
    if (how.level == CompletionLevel::delivered)
        return admit(SignaledArgs{how.handler, flags | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE}, peer, made);
    if (!admit(UnsignaledArgs{how.kind, flags}, peer, made)) [[unlikely]]
        return false;
    if (how.level == CompletionLevel::sent) {
        made.cbdata = how.handler;
        made.flags |= UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
        sent_pending_++;
    }
    return true;
}

// --- Vcq: polls. It turns the entries of its TCQ and MRQ into calls of their completion handlers.

/// A notice that a peer's communication has written, for the owner of the VCQ. Nothing in it is trusted.
struct RemoteNotice {
    std::uint8_t type;   ///< UTOFU_MRQ_TYPE_RMT_*
    utofu_vcq_id_t peer; ///< the peer's VCQ that posted
    utofu_stadd_t stadd; ///< RMT_PUT, RMT_GET: end of the bytes; RMT_ARMW: their start
    bool unsignaled;     ///< the peer posted it unsignaled (EDATA 0)
    bool further;        ///< it is the event for one more region of an operation (Unsignaled::event)
};

/// Where a poll reports what has no completion handler.
struct Sink {
    void* owner = nullptr;
    /// Takes the notices of peers. Null: they are dropped.
    void (*remote)(void* owner, const RemoteNotice& notice) noexcept = nullptr;
    /// An unsignaled communication to the VCQ `peer` (0: not known) has failed.
    void (*unsignaled_error)(void* owner, int code, Unsignaled kind,
                             utofu_vcq_id_t peer) noexcept = [](void*, int, Unsignaled, utofu_vcq_id_t) noexcept {};
    StatisticsBook* book = nullptr; ///< adds up the VCQ's statistics; null: they are not read
};

/// Owns one VCQ handle. Not thread-safe: its owner's lock serialises all calls.
class Vcq final : public Posts {
  public:
    /// Polls between two looks into a queue in which no notice is awaited.
    static constexpr unsigned tcq_interval = 16;
    static constexpr unsigned poll_budget = 32;
    /// How long drain() and quiesce() wait after the last notice that came. Tests set it lower.
    static inline std::chrono::milliseconds patience{2000};
    /// A communication that has been under way for so long counts as failed. Not every library reports a communication
    /// to a STag that does not exist (any more). A TNI answers within milliseconds, also for a stopped process.
    static inline std::chrono::milliseconds lost_after{5000};

    Vcq() = default;
    ~Vcq() { close(); }

    /// Creates the VCQ on TNI number `spread` modulo those available, or the next one with room. VCQs of one
    /// process may share a CQ, and then guide 2.5 forbids concurrent calls: `thread_safe` asks for a CQ of its own,
    /// else for UTOFU_VCQ_FLAG_THREAD_SAFE. Returns 0 or -FI_E* (-FI_ENOSPC: no VCQ left on this node).
    [[nodiscard]] int open(const Backend& backend, unsigned spread, bool thread_safe, const Sink& sink) noexcept;
    /// Ends all posting: from now on posts answer Post::error. Polls until everything posted has taken effect;
    /// unsignaled posts are fenced for that, since nothing says that utofu_free_vcq waits for them (guide 3.3.1.3).
    /// True: all has ended. False: no notice has arrived for `patience`, or it took five times that in all. Completion
    /// handlers whose notices are missing have then got UTOFU_ERR_MRQ_OTHER (except those of CompletionLevel::sent,
    /// whose only trace lies in the TCQ), and memory that posts may still read or write has to stay until close().
    /// Until then deregistrations have no effect.
    bool drain() noexcept;
    /// Polls as drain() does, without fences, while posts answer Post::busy; afterwards posting goes on. For a VCQ that
    /// one of several users leaves.
    bool quiesce() noexcept;
    /// Drains and frees the VCQ. The owner has ended all registrations before, unless drain() has failed.
    void close() noexcept;

    // --- VCQs beside: further VCQs of the same owner, which posts from them signaled only. They are drained and closed
    // with this one, and polled while one of them is wanted.
    void link(Vcq& another) noexcept
    {
        another.linked_.store(linked(), std::memory_order_relaxed);
        linked_.store(&another, std::memory_order_release); // partner: linked(), of threads that gather handles
    }
    /// Any thread.
    [[nodiscard]] Vcq* linked() const noexcept { return linked_.load(std::memory_order_acquire); }
    void request_linked() noexcept { wanted_ += linked_step; }
    void release_linked() noexcept { wanted_ -= linked_step; }

    /// Has a poll or a round of progress more to do than to look for the notices of signaled posts?
    [[nodiscard, gnu::always_inline]] bool has_work() const noexcept { return (sent_pending_ | wanted_) != 0; }
    /// Takes the notices that are awaited, where has_work() is false. Returns how many entries it took.
    [[gnu::always_inline]] unsigned poll_notices(unsigned budget = poll_budget) noexcept;
    /// A poll of a full round: it looks into the TCQ, too.
    unsigned poll_all() noexcept
    {
        polls_ |= tcq_interval - 1;
        return poll();
    }
    /// Takes at most `budget` entries off each queue and calls their completion handlers. Returns how many entries it
    /// took.
    unsigned poll(unsigned budget = poll_budget) noexcept;
    /// poll(), inlined: for fi_cq_read, where the cost of the call itself would be felt.
    [[gnu::always_inline]] unsigned poll_inline(unsigned budget = poll_budget) noexcept;

  private:
    template <class Done>
    [[nodiscard]] bool await(Done&& done) noexcept;
    bool give_up(int code, bool for_good, std::uint16_t least_age = 0) noexcept;
    [[gnu::cold]] void watch() noexcept;
    /// True if a completion handler expects an entry of the MRQ, or peers may write some.
    [[nodiscard]] bool mrq_is_due() const noexcept { return !completions_.all_free() || sink_.remote != nullptr; }
    [[gnu::noinline]] unsigned poll_others(unsigned budget) noexcept;
    unsigned poll_tcq(unsigned budget) noexcept;
    [[nodiscard]] bool all_idle() const noexcept;
    [[gnu::noinline, gnu::cold]] unsigned poll_failures(int code, utofu_mrq_notice notice) noexcept;
    void on_tcq(int code, void* cbdata) noexcept;
    [[gnu::always_inline]] void on_mrq(int code, const utofu_mrq_notice& notice) noexcept;
    void on_remote_mrq(int code, const utofu_mrq_notice& notice) noexcept;

    std::uint8_t polls_ = 0;
    std::atomic<Vcq*> linked_{nullptr}; ///< head of the list of VCQs beside
    Sink sink_{};
    std::chrono::steady_clock::time_point watch_at_; ///< not before
};

// --- inline part

inline void Vcq::on_mrq(int code, const utofu_mrq_notice& notice) noexcept
{
    // acquire: reads the notice before its data (guide 2.2.10). No document says that utofu_poll_mrq()
    // does so. On x86-64 this is no instruction.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint8_t type = notice.notice_type;
    if (type != UTOFU_MRQ_TYPE_LCL_ARMW && type != UTOFU_MRQ_TYPE_LCL_PUT && type != UTOFU_MRQ_TYPE_LCL_GET) {
        on_remote_mrq(code, notice);
        return;
    }
    if (code != UTOFU_SUCCESS && !CompletionTable::is_tag(notice.edata)) [[unlikely]] {
        sink_.unsignaled_error(sink_.owner, code, PostTag::kind_of(type, notice.edata), notice.vcq_id);
        return;
    }
    CompletionHandler& handler = completions_.arrived(static_cast<std::uint8_t>(notice.edata));
    handler.notify(&handler, Notice{code, notice.rmt_value});
}

inline unsigned Vcq::poll_inline(unsigned budget) noexcept
{
    if (!is_open()) [[unlikely]]
        return 0;
    unsigned taken = 0;
    // A queue without awaited notices can only hold errors and room to release: an occasional poll is enough.
    const bool look = ++polls_ % tcq_interval == 0;
    const bool makes_room = sent_pending_ != 0 || (wanted_ & ~round_wanted) != 0 || look;
    if (makes_room) [[unlikely]]
        taken = poll_others(budget);
    // When the TOQ has room again, the posts before must not have filled the MRQ with failures.
    if (!mrq_is_due() && !makes_room) [[likely]]
        return taken;
    return taken + poll_notices(budget);
}

inline unsigned Vcq::poll_notices(unsigned budget) noexcept
{
    utofu_mrq_notice notice;
    unsigned left = budget;
    do {
        if (const int code = functions_->poll_mrq(handle_, 0, &notice); code != UTOFU_SUCCESS) [[unlikely]]
            return budget - left + (code == UTOFU_ERR_NOT_FOUND ? 0 : poll_failures(code, notice));
        on_mrq(UTOFU_SUCCESS, notice);
    } while (--left != 0 && mrq_is_due()); // as long as a completion handler expects another one
    return budget - left;
}

} // namespace tofu::vcq
