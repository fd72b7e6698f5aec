// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The messenger's beginning and end, and what its rounds of progress do now and then. See messenger.h.
#include "message/messenger.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "endpoint/endpoint.h"
#include "provider/log.h"
#include "provider/param.h"
#include "queue/domain_base.h"

namespace tofu::proto {

namespace {

constexpr std::size_t returns_per_tick = 64;  // their notices may have been lost
constexpr std::uint64_t tick_ms = 4;
constexpr std::uint64_t watch_ms = 100;

std::uint64_t milliseconds() noexcept
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
}

/// Tells the messengers of this process apart, those with the same home VCQ and number too.
std::uint32_t serial(std::uint64_t nonce) noexcept
{
    static std::atomic<std::uint32_t> made{0};
    return static_cast<std::uint32_t>(nonce) + 0x9e3779b9 * made.fetch_add(1, std::memory_order_relaxed);
}

std::size_t at_most(std::size_t asked, std::size_t limit) noexcept
{
    return asked != 0 && asked < limit ? asked : limit;
}

} // namespace

Messenger::Messenger(Endpoint& endpoint) noexcept
    : SrxPeer(endpoint.rx(), endpoint.rx_context().counters, endpoint.av()), ep_(endpoint), vcq_(endpoint.vcq()), bounces_(endpoint.vcq()),
      wants_source_((endpoint.caps() & FI_SOURCE) != 0), channel_of_(endpoint.av().context_bits()),
      sends_(at_most(endpoint.tx_attr().size, fin_count)),
      backlog_(at_most(endpoint.tx_attr().size, limits::tx_size)), first_seq_(serial(endpoint.domain().nonce())),
      queue_(endpoint.shared_receives() != nullptr
                 ? *endpoint.shared_receives()
                 : own_queue_.emplace((endpoint.caps() & FI_DIRECTED_RECV) != 0, endpoint.min_multi_recv())),
      fetches_(4096)
{
}

Messenger::~Messenger()
{
    open_ = false;
    for (Channel* ch : channels_)
        uncount_claim(*ch); // claims whose HELLO will never come: their rings are free
    fetches_.each([this](Fetch& f) {
        if (f.live)
            let_go(*f.message.in);
    });
    for (SendRequest* r : waiting_fin_)
        for (unsigned i = 0; i < r->ref_count; i++)
            ep_.local_memory().release(r->refs[i]);
    if (own_queue_)
        queue_.leave(*this);
}

int Messenger::open() noexcept
{
    const utofu_onesided_caps& caps = ep_.domain().backend().caps();
    if (caps.max_piggyback_size < 32 || caps.max_putget_size < slot_size ||
        caps.num_reserved_stags <= endpoint_stag(ep_.index())) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: this uTofu library has no piggyback of 32 bytes or no "
                                  "reserved STag %u, which messages need: use another one (FI_TOFU_BACKEND)\n",
                  ep_.index(), endpoint_stag(ep_.index()));
        return -FI_ENOSYS;
    }
    if (int ret = check_params(); ret != 0)
        return ret;
    // Pieces end at multiples of 64 KiB, the page of the hardware.
    max_piece_ = caps.max_putget_size >= 65536 ? caps.max_putget_size & ~std::size_t{65535}
                                               : caps.max_putget_size;
    // Nobody sends to a transmit context, nor data to an endpoint of RMA alone that has nowhere to tell them.
    const bool receives = (ep_.caps() & (FI_MSG | FI_TAGGED)) != 0 || ep_.rx().cq != nullptr;
    const std::size_t rings = ep_.part() == Part::transmit || !receives ? 1 : param_size("rings", 512);
    const Geometry geometry{static_cast<std::uint32_t>(rings),
                            static_cast<std::uint32_t>(param_size("ring_slots", 64))};
    if (!geometry.valid())
        return -FI_EINVAL;
    inbound_.reset(new (std::nothrow) std::unique_ptr<Inbound>[geometry.ring_count]);
    if (inbound_ == nullptr || !queue_.valid())
        return -FI_ENOMEM;
    now_ = milliseconds();
    if (int ret = area_.open(ep_.domain(), ep_.index(), geometry); ret != 0)
        return ret;
    {
        std::lock_guard guard(ep_.lock());
        if (int ret = queue_.join(*this); ret != 0)
            return ret;
    }
    open_ = true;
    return 0;
}

void Messenger::leave() noexcept
{
    if (!open_)
        return;
    for (Channel* ch : channels_) {
        if (ch->state != ChannelState::open || !flush(*ch) || !room(*ch, 1))
            continue; // the peer finds out by its watch
        std::byte image[32];
        PacketWriter packet(image + sizeof image);
        packet.control(Type::bye, 0, bye_for_good, ch->next_seq);
        (void)put_small(*ch, packet, nullptr);
        ch->state = ChannelState::failed;
        ch->err = FI_ESHUTDOWN;
    }
    open_ = false;
}

void Messenger::part_from_queue() noexcept
{
    if (own_queue_)
        return; // which goes with us
    waiting_fetches_ = nullptr;
    fetches_.each([this](Fetch& f) {
        if (!f.live)
            return;
        for (unsigned i = 0; i < f.ref_count; i++)
            ep_.local_memory().release(f.refs[i]);
        f.live = false;
        if (f.receive != nullptr)
            received(*f.receive, f.message, f.into_count != 0 ? f.into[0].iov_base : nullptr, 0,
                     FI_ECANCELED, 0);
        let_go(*f.message.in);
    });
    queue_.leave(*this);
}

ssize_t Messenger::cancel(void* context) noexcept
{
    return own_queue_ ? own_queue_->cancel(context) : -FI_ENOENT;
}

/// Behind what it announces, which is in order with it. Where the TNI has no room for it the peer finds out in one of
/// its slow rounds.
void Messenger::ring_bell(utofu_vcq_id_t home, utofu_stadd_t area, Bell bell) noexcept
{
    constexpr std::uint16_t rings = 1;
    static_assert(sizeof rings == bell_size);
    (void)vcq_.put_inline(home, &rings, area + bell_offset(bell), sizeof rings, {.strong_order = true});
}

/// Packets and reports that found no room in the queue of the TNI; what peers rang for.
void Messenger::catch_up() noexcept
{
    // seq_cst: pairs with the peer's Put; what is announced from now on rings again
    const std::uint64_t bells = area_.bells().exchange(0, std::memory_order_seq_cst);
    if (rung(bells, Bell::contact))
        scan_claims();
    if (rung(bells, Bell::status))
        look_at_returns(channels_.size());
    wished_ |= rung(bells, Bell::wish);
    if (wished_)
        slow_round();
    if (deferred_ != 0)
        for (Channel* ch : channels_)
            if (ch->deferred_size != 0 && ch->state == ChannelState::open)
                (void)flush(*ch);
    if (!reports_due_)
        return;
    reports_due_ = false;
    for (const Poll& poll : polls_) {
        Inbound& in = *inbound_[poll.ring];
        if (in.greeted &&
            (in.report_due || in.next_seq - 1 - in.reported >= area_.geometry().report_after()))
            report(in);
    }
}

void Messenger::slow_round() noexcept
{
    now_ = milliseconds();
    if (now_ - last_tick_ < tick_ms)
        return;
    last_tick_ = now_;
    if (gone_ != 0)
        close_gone();
    if (fences_due_ != 0)
        answer_fences();
    scan_claims();
    look_at_returns(returns_per_tick);
    if (wished_)
        on_wish();
    wished_ = false;
    if (now_ - last_watch_ < watch_ms)
        return;
    last_watch_ = now_;
    watch();
}

/// New rings, and those of claimants that died before their HELLO.
void Messenger::scan_claims() noexcept
{
    for (unsigned ring = 0; ring < area_.geometry().ring_count; ring++)
        // relaxed: open_ring() reads it again
        if (inbound_[ring] == nullptr && area_.claim(ring).load(std::memory_order_relaxed) != 0)
            open_ring(ring);
}

/// Rings whose senders died and whose packets have all been taken.
void Messenger::close_gone() noexcept
{
    for (std::size_t i = polls_.size(); i-- > 0;) {
        Inbound& in = *inbound_[polls_[i].ring];
        // acquire: as in drain() of poll.cc
        const std::uint64_t word =
            std::atomic_ref<std::uint64_t>(*polls_[i].word).load(std::memory_order_acquire);
        if (in.gone && static_cast<std::uint32_t>(word >> 32) != polls_[i].seq)
            close_ring(in);
    }
}

} // namespace tofu::proto
