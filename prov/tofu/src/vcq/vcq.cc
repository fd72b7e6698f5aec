// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posts and polls of one VCQ, and the window that tells whose notice an MRQ entry is. See vcq.h.
#include "vcq/vcq.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <rdma/fi_errno.h>

#include "provider/error.h"
#include "provider/log.h"

namespace tofu::vcq {

namespace {

constexpr unsigned exclusive_most = 6;
/// Of an MRQ taken in a row.
constexpr unsigned most_notices = 1 << 16;

struct Made {
    utofu_vcq_hdl_t handle = 0;
    utofu_vcq_id_t id = 0;
};

void unmake(const Backend& backend, const Made& made) noexcept
{
    backend.functions().free_vcq(made.handle);
    places::release(backend, made.id);
}

/// On the first TNI of the place that gives one whose CQ no other process has. Once it has given one that another has,
/// nobody has parted the CQs of this node, and TNIs where others are are left alone.
int create(const Backend& backend, const places::Place& place, unsigned long flags, Made& made) noexcept
{
    const Functions& f = backend.functions();
    int code = UTOFU_ERR_FULL;
    for (std::size_t i = 0, met = 0; i < place.span; i++) {
        const utofu_tni_id_t tni = backend.tnis()[places::tni_of(place, i)];
        if (met != 0 && !places::is_own(backend, tni))
            continue;
        if (const int why = f.create_vcq(tni, flags, &made.handle); why != UTOFU_SUCCESS) {
            code = met != 0 ? code : why;
            continue;
        }
        if (code = f.query_vcq_id(made.handle, &made.id); code != UTOFU_SUCCESS) {
            f.free_vcq(made.handle);
            break;
        }
        if (places::claim(backend, made.id))
            break;
        f.free_vcq(made.handle);
        code = UTOFU_ERR_USED;
        met++;
    }
    return code;
}

/// On a CQ of its own, unless the process would then have none to share: a process may have a single CQ (48 on a node
/// of Fugaku), and uTofu tells nobody how many. So one more VCQ is made for a moment.
int create_alone(const Backend& backend, const places::Place& place, Made& made) noexcept
{
    if (const int code = create(backend, place, UTOFU_VCQ_FLAG_EXCLUSIVE, made); code != UTOFU_SUCCESS)
        return code;
    Made another;
    const int code = create(backend, place, UTOFU_VCQ_FLAG_THREAD_SAFE, another);
    unmake(backend, code == UTOFU_SUCCESS ? another : made);
    return code;
}

Waiter nobody{[](Waiter*, const Notice&) noexcept {}};

} // namespace

int Vcq::open(const Backend& backend, unsigned spread, bool thread_safe, const Sink& sink)
{
    if (is_open() || backend.tni_count() == 0)
        return -FI_EINVAL;
    // The first VCQ of a domain is its home, which peers send to.
    const places::Place place = places::take(backend, spread == 0 ? places::Traffic::in : places::Traffic::out);
    if (place.span == 0)
        return -FI_EBUSY;
    Made made;
    int code = UTOFU_ERR_FULL;
    // Alone on its CQ, a VCQ needs no lock of the library's beside that of its owner (guide 3.3.4.1). Such CQs
    // are few: only the first VCQs of a domain.
    if (thread_safe && spread < exclusive_most)
        code = create_alone(backend, place, made);
    if (code != UTOFU_SUCCESS && code != UTOFU_ERR_USED)
        code = create(backend, place, thread_safe ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0, made);
    if (code != UTOFU_SUCCESS) {
        places::give(place);
        return -fi_error_of(code);
    }
    place_ = place;
    backend_ = &backend;
    functions_ = &backend.functions();
    handle_ = made.handle;
    id_ = made.id;
    sink_ = sink;
    if (sink.book != nullptr)
        sink.book->add(statistics_);
    closing_ = false;
    sent_pending_ = 0;
    for (unsigned n = 1; n < window_size; n++)
        window_[n] = {nullptr, static_cast<std::uint8_t>((n + 1) % window_size), 1};
    first_free_ = 1;
    free_count_ = window_size - 1;
    return 0;
}

/// False: given up. What has come counts however late we are; but a peer can send notices for ever, so of those that
/// come after the time no more than most_notices are taken.
template <class Done>
bool Vcq::await(Done&& done) noexcept
{
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto last = start;
    unsigned late = most_notices / window_size;
    for (std::uint32_t before = 0; !done();) {
        const bool some = poll(window_size) != 0;
        const std::uint32_t under_way = window_size - free_count_ + sent_pending_;
        const auto now = Clock::now();
        if (under_way != before)
            last = now;
        before = under_way;
        if ((now - last >= patience || now - start >= 5 * patience) && (!some || late-- == 0))
            return done();
    }
    return true;
}

/// Tells those of an age whose notices have not come. For good, their places are free again; else these are not given
/// back, so that a late notice is not taken for another's.
void Vcq::give_up(int code, bool for_good, std::uint16_t least_age) noexcept
{
    giving_up_ = true;
    for (unsigned n = 1; n < window_size; n++) {
        Place& place = window_[n];
        Waiter* const waiter = place.waiter;
        if (waiter == nullptr || place.age < least_age || (place.age == forgotten && least_age != 0))
            continue;
        const unsigned missing = place.expected == endless ? 1 : place.expected;
        place.age = forgotten;
        if (waiter == &nobody)
            continue;
        place.waiter = &nobody;
        if (for_good)
            give_back(static_cast<std::uint8_t>(n));
        for (unsigned i = 0; i < missing; i++)
            waiter->notify(waiter, Notice{code, 0});
    }
    giving_up_ = false;
}

bool Vcq::nobody_waits() const noexcept
{
    return std::all_of(std::begin(window_) + 1, std::end(window_),
                       [](const Place& place) { return place.waiter == nullptr || place.age == forgotten; });
}

/// From time to time: what never ends is taken for an access to a STag that is not there. Its place is used again only
/// when there is no other.
void Vcq::watch() noexcept
{
    const auto now = std::chrono::steady_clock::now();
    if (giving_up_ || now < watch_at_)
        return;
    watch_at_ = now + lost_after / (lost_age - 1);
    const bool used_up = free_count_ == 0;
    bool some = false;
    for (unsigned n = 1; n < window_size; n++) {
        Place& place = window_[n];
        if (place.waiter == &nobody && place.age == forgotten && used_up)
            give_back(static_cast<std::uint8_t>(n));
        else if (place.waiter != nullptr && place.age != forgotten && place.expected != endless)
            some |= ++place.age >= lost_age;
    }
    // Who has not polled for as long may find them in the queue.
    for (unsigned taken = window_size, i = 0; some && taken >= window_size && i < most_notices / window_size; i++)
        taken = poll(window_size);
    if (!some || std::none_of(std::begin(window_), std::end(window_), [](const Place& place) {
            return place.waiter != nullptr && place.age >= lost_age && place.age != forgotten;
        }))
        return;
    TOFU_WARN(FI_LOG_EP_DATA,
              "vcq 0x%llx: some communications have not ended for %lld ms: taken as failed; does the "
              "peer live, and what they reach?\n",
              static_cast<unsigned long long>(id_), static_cast<long long>(lost_after.count()));
    give_up(UTOFU_ERR_MRQ_RMT_STADD, false, lost_age);
}

bool Vcq::drain() noexcept
{
    if (!is_open() || closing_)
        return true;
    closing_ = true;
    last_error_ = UTOFU_ERR_MRQ_OTHER; // why posts are refused from now on: an error is never UTOFU_SUCCESS
    std::size_t hand = 0;
    const bool quiet = await([&] {
        unsignaled_.visit(hand, [this](utofu_vcq_id_t peer) { return post_fence(peer, nobody) != Post::busy; });
        return unsignaled_.empty() && idle();
    });
    give_up(UTOFU_ERR_MRQ_OTHER, true);
    return quiet;
}

bool Vcq::quiesce() noexcept
{
    if (!is_open() || closing_)
        return true;
    closing_ = pausing_ = true;
    const bool quiet = await([this] { return idle(); });
    give_up(UTOFU_ERR_MRQ_OTHER, false);
    closing_ = pausing_ = false;
    return quiet;
}

void Vcq::close() noexcept
{
    if (!is_open())
        return;
    drain();
    unmake(*backend_, {handle_, id_});
    if (sink_.book != nullptr)
        sink_.book->remove(statistics_);
    places::give(place_);
    handle_ = 0;
    id_ = 0;
    unsignaled_.clear();
}

// --- posts

/// There is no place for its notice or peer.
Post Vcq::no_room() noexcept
{
    statistics_.count(Stat::again_post);
    return Post::busy;
}

Post Vcq::refuse(int code, When when, std::uint64_t edata) noexcept
{
    if (when == When::delivered)
        give_back(static_cast<std::uint8_t>(edata));
    else if (when == When::sent)
        sent_pending_--;
    if (code == UTOFU_ERR_BUSY) {
        statistics_.count(Stat::again_post);
        tcq_wanted_ = true; // reading it makes room in the TOQ (guide 3.7)
        return Post::busy;
    }
    last_error_ = code;
    return Post::error;
}

/// Also while the VCQ is closing.
Post Vcq::post_fence(utofu_vcq_id_t peer, Waiter& waiter) noexcept
{
    utofu_stadd_t area = 0;
    Post posted = Post::error; // no VCQ of this machine: nothing is there
    if (query_stadd(peer, fence_stag, area) == 0)
        posted = post_even_closing(Signaled{&waiter, delivered_flags(true, false)}, &Functions::armw8, peer,
                                   UTOFU_ARMW_OP_OR, std::uint64_t{0}, area + fence_offset);
    if (posted != Post::busy)
        unsignaled_.fenced(peer);
    return posted;
}

std::uint8_t Vcq::open_batch(Waiter* waiter, unsigned notices) noexcept
{
    const std::uint8_t number = closing_ ? std::uint8_t{0} : take_place(waiter);
    if (number != 0)
        window_[number].expected = static_cast<std::uint16_t>(notices);
    return number;
}

// --- polls

unsigned Vcq::poll(unsigned budget) noexcept
{
    return poll_inline(budget);
}

unsigned Vcq::poll_tcq(unsigned budget) noexcept
{
    tcq_wanted_ = false;
    if (polls_ == 0 && free_count_ != window_size - 1)
        watch();
    for (unsigned taken = 0; taken < budget; taken++) {
        void* cbdata = nullptr;
        const int code = functions_->poll_tcq(handle_, 0, &cbdata);
        if (code == UTOFU_ERR_NOT_FOUND)
            return taken;
        if (code != UTOFU_SUCCESS && (code > UTOFU_ERR_TCQ_OTHER || code < UTOFU_ERR_TCQ_LENGTH)) {
            last_error_ = code; // the poll itself failed: there is no entry
            return taken;
        }
        on_tcq(code, cbdata);
    }
    tcq_wanted_ = true; // there may be more
    return budget;
}

/// Behind one that failed all others are taken: of posts that nobody waits for the TOQ alone limits how many can fail,
/// to a peer that is gone for example, and an MRQ that overflows ends the process (guide, chapter 7).
unsigned Vcq::poll_failures() noexcept
{
    utofu_mrq_notice notice;
    int code = UTOFU_SUCCESS;
    unsigned taken = 0;
    for (; taken < most_notices && next_notice(notice, code); taken++)
        on_mrq(code, notice);
    return taken;
}

void Vcq::on_tcq(int code, void* cbdata) noexcept
{
    const auto word = reinterpret_cast<std::uintptr_t>(cbdata);
    if (word & sent_bit) {
        auto* waiter = reinterpret_cast<Waiter*>(word & ~sent_bit);
        sent_pending_--;
        waiter->notify(waiter, Notice{code, 0});
        return;
    }
    if (code == UTOFU_SUCCESS) [[likely]]
        return;
    if (cbdata != nullptr && cbdata != armw_mark && cbdata != write_mark) {
        // Never left the node, so its MRQ notice will not come (guide 2.2.12).
        auto* place = static_cast<Place*>(cbdata);
        Waiter* waiter = place->waiter;
        if (waiter == nullptr)
            return;
        one_less(*place);
        waiter->notify(waiter, Notice{code, 0});
        return;
    }
    report_unsignaled_error(code, cbdata == armw_mark ? Unsignaled::armw : cbdata == write_mark ? Unsignaled::write : Unsignaled::message, 0);
}

void Vcq::report_unsignaled_error(int code, Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    if (sink_.unsignaled_error != nullptr)
        sink_.unsignaled_error(sink_.owner, code, kind, peer);
}

void Vcq::on_remote_mrq(int code, const utofu_mrq_notice& notice) noexcept
{
    switch (notice.notice_type) {
    case UTOFU_MRQ_TYPE_RMT_PUT:
    case UTOFU_MRQ_TYPE_RMT_GET:
    case UTOFU_MRQ_TYPE_RMT_ARMW:
        // A peer's EDATA can name nothing of ours; whether there is one tells.
        if (code == UTOFU_SUCCESS && sink_.remote != nullptr)
            sink_.remote(sink_.owner,
                         RemoteNotice{notice.notice_type, notice.vcq_id, notice.rmt_stadd, notice.edata == 0});
        return;
    default: // no type of the guide: nothing can be concluded from it
        return;
    }
}

// --- registrations

/// `stadd` is written on success only.
template <class Function, class... Args>
int Vcq::made(utofu_stadd_t& stadd, Function Functions::*function, Args... args) noexcept
{
    utofu_stadd_t made = 0;
    const int code = (functions_->*function)(args..., &made);
    if (code == UTOFU_SUCCESS)
        stadd = made;
    else
        last_error_ = code;
    return -fi_error_of(code);
}

int Vcq::reg(const void* addr, std::size_t size, bool read_only, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::reg_mem, handle_, const_cast<void*>(addr), size,
                read_only ? UTOFU_REG_MEM_FLAG_READ_ONLY : 0);
}

int Vcq::reg_with_stag(void* addr, std::size_t size, unsigned stag, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::reg_mem_with_stag, handle_, addr, size, stag, 0);
}

void Vcq::dereg(utofu_stadd_t stadd) noexcept
{
    if (is_open() && !giving_up_)
        functions_->dereg_mem(handle_, stadd, 0);
}

int Vcq::query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::query_stadd, vcq, stag);
}

} // namespace tofu::vcq
