// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The polls of a VCQ, communications that do not end, and its close. See vcq.h.
#include "utofu/vcq.h"

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/system.h"

namespace tofu::vcq {

namespace {

/// Entries of an MRQ that are taken in a row.
constexpr unsigned most_notices = 1 << 16;

} // namespace

int Vcq::open(const Backend& backend, unsigned spread, bool thread_safe, const Sink& sink) noexcept
{
    if (int ret = make(backend, spread, thread_safe, sink.book); ret != 0)
        return ret;
    sink_ = sink;
    closing_ = false;
    sent_pending_ = 0;
    wanted_ = 0;
    window_.reset();
    return 0;
}

/// Polls until all has ended. False: given up. Notices that have come count however late we are; but a peer can send
/// notices for ever, so after the time no more than most_notices are taken.
template <class Done>
bool Vcq::await(Done&& done) noexcept
{
    const auto start = Clock::now();
    auto last = start;
    unsigned late = most_notices / Window::size;
    for (std::uint32_t before = 0; !done();) {
        bool some = poll(Window::size) != 0;
        std::uint32_t under_way = Window::size - window_.free() + sent_pending_;
        for (Vcq* other = beside(); other != nullptr; other = other->beside()) {
            some |= other->poll(Window::size) != 0;
            under_way += Window::size - other->window_.free();
        }
        const auto now = Clock::now();
        if (under_way != before)
            last = now;
        before = under_way;
        if ((now - last >= patience || now - start >= 5 * patience) && (!some || late-- == 0))
            return done();
    }
    return true;
}

/// Window::give_up(). Memory that a communication may still reach stays registered.
bool Vcq::give_up(int code, bool for_good, std::uint16_t least_age) noexcept
{
    keeps_registrations_ = true;
    const bool some = window_.give_up(code, for_good, least_age);
    keeps_registrations_ = false;
    return some;
}

/// Called from time to time: a communication that never ends counts as an access to a STag that does not exist.
void Vcq::watch() noexcept
{
    const auto now = Clock::now();
    if (keeps_registrations_ || now < watch_at_)
        return;
    watch_at_ = now + lost_after / (Window::lost_age - 1);
    if (!window_.grow_older())
        return;
    // A thread that has not polled for so long may find the notices in the queue.
    for (unsigned taken = Window::size, i = 0; taken >= Window::size && i < most_notices / Window::size; i++)
        taken = poll(Window::size);
    if (give_up(never_told, false, Window::lost_age))
        TOFU_WARN(FI_LOG_EP_DATA,
                  "vcq 0x%llx: some communications have not ended for %lld ms: taken as failed; does the "
                  "peer live, and what they reach?\n",
                  static_cast<unsigned long long>(id()), static_cast<long long>(lost_after.count()));
}

bool Vcq::drain() noexcept
{
    if (!is_open() || closing_)
        return true;
    for (Vcq* each = this; each != nullptr; each = each->beside()) {
        each->closing_ = true;
        each->last_error_ = UTOFU_ERR_MRQ_OTHER; // why posts are refused from now on: an error is never UTOFU_SUCCESS
    }
    static constinit Waiter fenced{[](Waiter*, const Notice&) noexcept {}};
    std::size_t hand = 0;
    const bool quiet = await([&] {
        return unsignaled_.visit(hand, [this](utofu_vcq_id_t peer) { return post_fence(peer, fenced) != Post::busy; }) &&
               all_idle();
    });
    for (Vcq* each = this; each != nullptr; each = each->beside())
        each->give_up(UTOFU_ERR_MRQ_OTHER, true);
    return quiet;
}

bool Vcq::all_idle() const noexcept
{
    const Vcq* each = this;
    while (each != nullptr && each->idle())
        each = each->beside();
    return each == nullptr;
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
    for (Vcq* other = beside(); other != nullptr; other = other->beside())
        other->free();
    beside_.store(nullptr, std::memory_order_relaxed);
    free();
    unsignaled_.clear();
}

// --- polls

unsigned Vcq::poll(unsigned budget) noexcept
{
    return poll_inline(budget);
}

/// Looks at what not every poll has to look at: the TCQ, and VCQs beside.
unsigned Vcq::poll_others(unsigned budget) noexcept
{
    unsigned taken = poll_tcq(budget);
    if (wanted_ >= beside_step)
        for (Vcq* other = beside(); other != nullptr; other = other->beside())
            if (!other->window_.all_free())
                taken += other->poll(budget);
    return taken;
}

unsigned Vcq::poll_tcq(unsigned budget) noexcept
{
    wanted_ &= ~tcq_wanted;
    if (polls_ == 0 && !window_.all_free())
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
    wanted_ |= tcq_wanted; // there may be more
    return budget;
}

/// After a failure takes all entries: only the TOQ limits how many unsignaled posts can fail, such as those to a peer
/// that is gone, and an MRQ that overflows ends the process (guide, chapter 7).
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
    const auto number = reinterpret_cast<std::uintptr_t>(cbdata);
    if (number >= Mark::end) {
        auto* const waiter = static_cast<Waiter*>(cbdata);
        sent_pending_--;
        waiter->notify(waiter, Notice{code, 0});
        return;
    }
    if (code == UTOFU_SUCCESS) [[likely]]
        return;
    if (number == 0 || number >= Window::size) {
        sink_.unsignaled_error(sink_.owner, code, Mark::kind_of(number), 0);
        return;
    }
    // The post never left the node, so its MRQ notice will not come (guide 2.2.12).
    if (Waiter* const waiter = window_.arrived(static_cast<std::uint8_t>(number)); waiter != nullptr)
        waiter->notify(waiter, Notice{code, 0});
}

void Vcq::on_remote_mrq(int code, const utofu_mrq_notice& notice) noexcept
{
    const std::uint8_t type = notice.notice_type; // no other type allows a conclusion
    const bool known = type == UTOFU_MRQ_TYPE_RMT_PUT || type == UTOFU_MRQ_TYPE_RMT_GET || type == UTOFU_MRQ_TYPE_RMT_ARMW;
    // A peer's EDATA names nothing of ours; it only tells whether the post was signaled, and what else it was.
    const bool further = type != UTOFU_MRQ_TYPE_RMT_PUT && notice.edata == Mark::edata_of(Unsignaled::event);
    if (known && code == UTOFU_SUCCESS && sink_.remote != nullptr)
        sink_.remote(sink_.owner, RemoteNotice{type, notice.vcq_id, notice.rmt_stadd, notice.edata == 0, further});
}

} // namespace tofu::vcq
