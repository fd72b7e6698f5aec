// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A rendezvous moved by both sides. See share.h. Part of the messenger; calls vcq and the endpoint's local
// registrations.
//
// Why nothing is moved after the end. The receiver ends when (1) the claim word says that all chunks are taken, (2)
// its own Gets have ended and (3) the sender has reported as many chunks as it took, which it does in strong order
// behind its last Put. Its invitation has landed before, too. The sender goes when FIN has come and nothing of its own
// is under way. What may still come late is a compare-and-swap for a word that has changed since.
#include "message/share.h"

#include <algorithm>
#include <atomic>
#include <new>

#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "endpoint/endpoint.h"
#include "message/messenger.h"
#include "provider/error.h"

namespace tofu::proto {

namespace {
constexpr std::align_val_t slab_alignment{4096};

/// Does the application still have this memory? A processor that copies from what has gone is killed, where a TNI
/// would report an error. The call looks at mappings only; about 0.2 us.
bool mapped(const std::byte* at, std::size_t length) noexcept
{
    static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(at) & ~(page - 1);
    const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(at) + length;
    return msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) == 0;
}
} // namespace

ShareBlocks::~ShareBlocks()
{
    if (memory_ == nullptr)
        return;
    vcq_.dereg(stadd_);
    ::operator delete(memory_, slab_alignment);
}

std::uint16_t ShareBlocks::alloc() noexcept
{
    if (free_.empty() && !make())
        return none;
    const std::uint16_t block = free_.back();
    free_.pop_back();
    return block;
}

bool ShareBlocks::make() noexcept
{
    if (memory_ != nullptr)
        return false; // all in use: a message without help
    auto* memory = static_cast<std::uint64_t*>(
        ::operator new(count * block_size, slab_alignment, std::nothrow));
    if (memory == nullptr)
        return false;
    std::fill_n(memory, count * block_size / 8, 0);
    if (vcq_.reg(memory, count * block_size, false, stadd_) != 0) {
        ::operator delete(memory, slab_alignment);
        return false;
    }
    memory_ = memory;
    free_.reserve(count);
    for (std::uint16_t i = count; i-- > 0;)
        free_.push_back(i);
    return true;
}

// --- the sender

/// Where an invitation may be Put, or 0: the receiver moves it alone.
utofu_stadd_t Messenger::offer_help(SendRequest& r, const SendCall& call) noexcept
{
    r.help.step = Help::Step::none;
    r.help.ending = false;
    if (share_from_ == 0 || call.length < share_from_ || r.ref_count != 1 ||
        r.channel->peer.home == ep_.domain().home_id())
        return 0;
    const std::uint16_t block = offers_.alloc();
    if (block == ShareBlocks::none)
        return 0;
    // relaxed: the peer learns of the block by the RTS
    std::atomic_ref<std::uint64_t>(offers_.words(block)[3]).store(0, std::memory_order_relaxed);
    r.help.notify = on_help;
    r.help.request = &r;
    r.help.step = Help::Step::offered;
    r.help.flying = false;
    r.help.failed = false;
    r.help.block = block;
    r.help.ours = 0;
    r.help.length = call.length;
    for (std::size_t i = 0; i < call.count; i++)
        if (call.iov[i].iov_len != 0)
            r.help.from = static_cast<const std::byte*>(call.iov[i].iov_base);
    return offers_.stadd(block);
}

/// Goes on as far as it goes now.
void Messenger::help(SendRequest& r) noexcept
{
    Help& h = r.help;
    const Ack ack{r.fin, r.seq};
    if (h.step == Help::Step::offered) {
        const std::uint64_t* words = offers_.words(h.block);
        // acquire: pairs with the receiver's Put, whose last word comes last
        const std::uint64_t what =
            std::atomic_ref<const std::uint64_t>(words[3]).load(std::memory_order_acquire);
        const std::uint64_t length = (what & 0xffffffffff) + 1;
        // The first chunk is the receiver's: a length of one leaves us none, and no honest peer asks for it.
        if (what == 0 || what != invitation_word(ack, length) || length > h.length || chunks_of(length) < 2)
            return;
        h.to = {words[0], words[1], words[2], what};
        h.length = length;
        h.taken = 1; // the first chunk is the receiver's
        h.step = Help::Step::claim;
    }
    if (!h.busy() || h.flying)
        return;
    vcq::Post post = vcq::Post::done;
    const vcq::How how{.when = vcq::When::delivered, .strong_order = true, .waiter = &h};
    h.flying = true; // the notice may come within the post
    if (h.step == Help::Step::claim) {
        post = vcq_.cswap8(h.to.vcq, claim_word(ack, h.taken), claim_word(ack, h.taken + 1), h.to.claims, how);
    } else if (h.step == Help::Step::put) {
        const std::uint64_t at = (h.taken - 1) * chunk_of(h.length);
        const std::uint64_t size = std::min(chunk_of(h.length), h.length - at);
        if (!mapped(h.from + at, size)) [[unlikely]] {
            h.flying = false;
            helped(r, {UTOFU_ERR_MRQ_LCL_STADD, 0});
            return;
        }
        post = vcq_.put(h.to.vcq, r.refs[0].stadd + at, h.to.into + at, size, how);
    } else {
        const std::uint64_t word = report_word(ack, h.ours, h.failed);
        post = vcq_.put_inline(h.to.vcq, &word, h.to.claims + 8, sizeof word, how);
    }
    if (post == vcq::Post::done)
        return;
    h.flying = false;
    if (post == vcq::Post::error)
        helped(r, {vcq_.last_error(), 0});
}

void Messenger::on_help(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Help& h = *static_cast<Help*>(waiter);
    h.flying = false;
    Messenger& m = *h.request->owner;
    if (m.open_)
        m.helped(*h.request, notice);
}

/// A step has ended.
void Messenger::helped(SendRequest& r, const vcq::Notice& notice) noexcept
{
    Help& h = r.help;
    const Ack ack{r.fin, r.seq};
    const bool good = notice.code == UTOFU_SUCCESS;
    switch (h.step) {
    case Help::Step::claim:
        if (good && notice.value == claim_word(ack, h.taken)) {
            h.taken++;
            h.ours++;
            h.step = Help::Step::put;
        } else {
            const std::uint32_t taken = taken_of(notice.value);
            const bool more = good && notice.value == claim_word(ack, taken) && taken > h.taken &&
                              taken < chunks_of(h.length);
            h.taken = taken;
            if (!more)
                h.step = h.ours != 0 ? Help::Step::report : Help::Step::none;
        }
        break;
    case Help::Step::put:
        h.failed = !good;
        h.step = good && h.taken < chunks_of(h.length) ? Help::Step::claim : Help::Step::report;
        break;
    case Help::Step::report: h.step = Help::Step::none; break;
    case Help::Step::none:
    case Help::Step::offered: return;
    }
    help(r);
}

// --- the receiver

/// Invites the sender and begins. False: nothing has happened, it goes the plain way.
bool Messenger::start_shared(Fetch& f) noexcept
{
    const Message& m = f.message;
    if (m.offer == 0 || share_from_ == 0 || f.length < share_from_ || m.segment_count != 1 || f.into_count != 1)
        return false;
    Share& s = f.share;
    s.block = claims_.alloc();
    if (s.block == ShareBlocks::none)
        return false;
    if (ep_.local_memory().acquire(f.into[0].iov_base, f.into[0].iov_len, false, f.refs[0], f.desc[0]) != 0) {
        claims_.release(s.block);
        return false; // the plain way says why
    }
    std::uint64_t* words = claims_.words(s.block);
    // relaxed: the sender learns of the words by the invitation
    std::atomic_ref<std::uint64_t>(words[0]).store(claim_word(m.fin, 1), std::memory_order_relaxed);
    std::atomic_ref<std::uint64_t>(words[1]).store(0, std::memory_order_relaxed);
    const Invitation invitation{vcq_.id(), f.refs[0].stadd, claims_.stadd(s.block),
                                invitation_word(m.fin, f.length)};
    f.pending++; // the invitation's
    if (vcq_.put_inline(m.vcq, &invitation, m.offer, sizeof invitation,
                        {.when = vcq::When::delivered, .strong_order = true, .waiter = &f}) != vcq::Post::done) {
        f.pending--;
        ep_.local_memory().release(f.refs[0]);
        claims_.release(s.block);
        return false;
    }
    f.ref_count = 1;
    f.to_fetch = 0;
    s.notify = on_claimed;
    s.fetch = &f;
    s.on = s.open = s.get_due = true;
    s.flying = s.awaiting = s.doubted = false;
    s.scratch = {};
    s.taken = s.ours = 1;
    s.theirs = 0;
    s.next = 0;
    drive(f);
    return true;
}

/// Posts what is due. Afterwards `f` may be gone.
void Messenger::drive(Fetch& f) noexcept
{
    Share& s = f.share;
    const Message& m = f.message;
    if (s.get_due) {
        const std::uint64_t at = s.next * chunk_of(f.length);
        f.pending++;
        const vcq::Post post =
            vcq_.get(m.vcq, f.refs[0].stadd + at, m.segments[0].stadd + at,
                     std::min<std::uint64_t>(chunk_of(f.length), f.length - at),
                     {.when = vcq::When::delivered, .waiter = &f});
        if (post != vcq::Post::done)
            f.pending--;
        if (post == vcq::Post::busy) {
            wait(f);
            return;
        }
        s.get_due = false;
        if (post == vcq::Post::error)
            fetch_failed(f, vcq_.last_error());
    }
    if (s.open && !s.flying && f.pending < 3) {
        // After an error the rest is taken at once, so that the sender gets none of it.
        const std::uint32_t wish = f.err == 0 ? s.taken + 1 : chunks_of(f.length);
        s.flying = true; // the notice may come within the post
        const vcq::Post post =
            vcq_.cswap8(vcq_.id(), claim_word(m.fin, s.taken), claim_word(m.fin, wish), claims_.stadd(s.block),
                        {.when = vcq::When::delivered, .waiter = &s});
        if (post == vcq::Post::busy) {
            s.flying = false;
            wait(f);
            return;
        }
        if (post == vcq::Post::error)
            claimed(f, {vcq_.last_error(), 0});
        return;
    }
    end_shared(f);
}

void Messenger::on_claimed(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Fetch& f = *static_cast<Share*>(waiter)->fetch;
    if (f.owner->open_)
        f.owner->claimed(f, notice);
}

void Messenger::claimed(Fetch& f, const vcq::Notice& notice) noexcept
{
    Share& s = f.share;
    const Ack& ack = f.message.fin;
    const std::uint32_t total = chunks_of(f.length);
    s.flying = false;
    if (notice.code != UTOFU_SUCCESS) {
        fetch_failed(f, notice.code); // our own memory: it will not come back
        s.open = false;
    } else if (notice.value == claim_word(ack, s.taken)) {
        if (f.err == 0) {
            s.next = s.taken++;
            s.ours++;
            s.get_due = true;
            s.open = s.taken < total;
        } else {
            s.open = false;
        }
    } else {
        s.taken = std::min(taken_of(notice.value), total);
        s.open = s.taken < total;
    }
    if (!s.open)
        s.theirs = s.taken - s.ours;
    if (!f.waiting)
        drive(f);
}

/// Over, or waiting for the sender's report?
void Messenger::end_shared(Fetch& f) noexcept
{
    Share& s = f.share;
    if (s.open || s.flying || s.get_due || f.waiting)
        return;
    if (s.theirs != 0) {
        // acquire: pairs with the sender's Put, which comes behind its bytes
        const std::uint64_t report =
            std::atomic_ref<std::uint64_t>(claims_.words(s.block)[1]).load(std::memory_order_acquire);
        const Ack& ack = f.message.fin;
        if (report == report_word(ack, s.theirs, false)) {
            s.theirs = 0;
        } else if (report == report_word(ack, s.theirs, true)) {
            fetch_failed(f, UTOFU_ERR_MRQ_OTHER);
            s.theirs = 0;
        } else if (!s.awaiting) {
            s.awaiting = true;
            awaiting_.push_back(&f);
        }
    }
    if (s.theirs != 0 || f.pending != 0)
        return;
    if (s.awaiting) {
        s.awaiting = false;
        awaiting_.erase(std::find(awaiting_.begin(), awaiting_.end(), &f));
    }
    finish(f);
}

void Messenger::fetch_failed(Fetch& f, int utofu_code) noexcept
{
    if (f.err != 0)
        return;
    f.prov_errno = utofu_code;
    f.err = fi_error_of(utofu_code);
}

void Messenger::poll_reports() noexcept
{
    for (std::size_t i = awaiting_.size(); i-- > 0;)
        if (i < awaiting_.size())
            end_shared(*awaiting_[i]);
}

/// Every 100 ms: who has taken a chunk and is no more will not report. Its ring may have gone without it.
void Messenger::watch_reports() noexcept
{
    for (Fetch* f : awaiting_) {
        Share& s = f->share;
        if (s.scratch.data != nullptr)
            continue;
        s.scratch = bounces_.alloc(sizeof(AreaHeader));
        if (s.scratch.data == nullptr)
            return;
        s.life.notify = on_share_life;
        s.life.fetch = f;
        f->pending++;
        if (vcq_.get(f->message.home, s.scratch.stadd, f->message.area, sizeof(AreaHeader),
                     {.when = vcq::When::delivered, .waiter = &s.life}) == vcq::Post::done)
            continue;
        f->pending--;
        bounces_.release(s.scratch);
        s.scratch = {};
    }
}

void Messenger::on_share_life(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    Fetch& f = *static_cast<Share::Life*>(waiter)->fetch;
    Share& s = f.share;
    Messenger& m = *f.owner;
    const bool lives = notice.code == UTOFU_SUCCESS && m.same_process(s.scratch, f.message.nonce);
    m.bounces_.release(s.scratch);
    s.scratch = {};
    f.pending--;
    if (!m.open_)
        return;
    if (!lives && s.theirs != 0 && s.doubted) {
        m.fetch_failed(f, notice.code != UTOFU_SUCCESS ? notice.code : UTOFU_ERR_MRQ_PEER);
        s.theirs = 0;
    }
    s.doubted = !lives; // the first time its report may still be on its way
    m.end_shared(f);
}

} // namespace tofu::proto
