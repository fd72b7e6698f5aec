// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tx_context.h.
#include "context/tx_context.h"

#include <algorithm>
#include <new>

#include <rdma/fi_errno.h>

#include "address/peers.h"
#include "memory/region.h"
#include "progress/domain_base.h"
#include "provider/log.h"
#include "remote/event_credits.h"
#include "remote/keys.h"

namespace tofu {

namespace {
constexpr unsigned rounds_of_a_call = 64; // of progress within a call that has to wait; then it is refused
} // namespace

TxContext::TxContext() noexcept = default;
TxContext::~TxContext() = default;

// --- life

void TxContext::set_up(const Plan& plan) noexcept
{
    plan_ = plan;
    if (plan.lock != nullptr)
        lock_ = plan.lock;
}

int TxContext::open_vcq() noexcept
{
    DomainBase& domain = *plan_.domain;
    const vcq::Sink sink{this, nullptr, on_unsignaled_error, &domain.statistics()};
    if (int ret = own_vcq_.open(domain.backend(), domain.next_spread(), domain.safe_vcqs(), sink); ret != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint: no VCQ on any TNI of this node: close endpoints or run fewer "
                                  "processes per node\n");
        return ret;
    }
    return post_from(own_vcq_);
}

int TxContext::post_from(vcq::Vcq& vcq) noexcept
{
    local_memory_.reset(new (std::nothrow) LocalMemory(vcq));
    remote_keys_.reset(new (std::nothrow) RemoteKeys(vcq, plan_.domain->model().provider_keys));
    if (local_memory_ == nullptr || remote_keys_ == nullptr)
        return -FI_ENOMEM;
    if (int ret = plan_.domain->regions().attach(*local_memory_, *lock_); ret != 0) {
        local_memory_.reset();
        return ret;
    }
    vcq_ = &vcq;
    return 0;
}

void TxContext::detach() noexcept
{
    if (local_memory_ != nullptr)
        plan_.domain->regions().detach(*local_memory_);
}

void TxContext::set_number(unsigned number, unsigned identity) noexcept
{
    number_ = number;
    identity_ = identity;
}

void TxContext::close() noexcept
{
    for (Engine* engine : {engines_[Engine::messages], engines_[Engine::atomic], engines_[Engine::rma], engines_[Engine::collectives]})
        if (engine != nullptr)
            engine->close();
    if (event_credits_)
        event_credits_->close();
}

void TxContext::drop_engines() noexcept
{
    std::fill(std::begin(engines_), std::end(engines_), nullptr);
    event_credits_.reset();
}

void TxContext::drop_memory() noexcept
{
    remote_keys_.reset();
    local_memory_.reset();
}

bool TxContext::all_has_left() const noexcept
{
    return pending_.empty() && std::all_of(std::begin(engines_), std::end(engines_), [](const Engine* e) {
               return e == nullptr || e->all_has_left();
           });
}

// --- what waits

bool TxContext::fence_passed(fi_addr_t to, std::uint64_t flags) noexcept
{
    const Peer* const peer = peers_->find(to);
    if (peer == nullptr)
        return true; // there is none: whoever asks finds out
    const bool settles = (flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
    const bool matched = (flags & FI_MATCH_COMPLETE) != 0;
    const auto all = [&](auto&& holds) {
        return std::all_of(std::begin(engines_), std::end(engines_),
                           [&](Engine* e) { return e == nullptr || holds(*e); });
    };
    const auto passed = [&] {
        return vcq_->idle() && !pending_.waits_for(*peer) && all([&](Engine& e) { return e.idle_towards(*peer); }) &&
               flushed(*peer) && (!settles || all([&](Engine& e) { return e.settled(*peer, matched); }));
    };
    for (unsigned i = 0; i < rounds_of_a_call; i++) {
        if (passed())
            return true;
        progress();
    }
    if (passed())
        return true;
    (void)again(Stat::again_fence);
    return false;
}

/// Posts without a waiter (inject, messages sent at once) may still be on their way, and what follows the fenced
/// operation need not be in strong order.
bool TxContext::flushed(const Peer& peer) noexcept
{
    if (flush_.under_way || !vcq_->has_unsignaled_to(peer.home))
        return !flush_.under_way;
    flush_.notify = on_flush;
    const vcq::Post post = vcq_->fence(peer.home, flush_);
    flush_.under_way = post == vcq::Post::done;
    return post == vcq::Post::error; // then nothing will be posted
}

/// Even if the ARMW failed: at a peer that can't be reached there is nothing to overtake.
void TxContext::on_flush(vcq::Waiter* flush, const vcq::Notice&) noexcept
{
    static_cast<Flush*>(flush)->under_way = false;
}

int TxContext::pay_for_event(const Peer& peer, EventAccount*& account, int& prov_errno) noexcept
{
    if (!event_credits_) [[unlikely]]
        event_credits_.reset(new (std::nothrow) EventCredits(*vcq_, number_));
    if (!event_credits_) [[unlikely]]
        return -FI_ENOMEM;
    int ret = event_credits_->pay(peer, account, prov_errno);
    for (unsigned i = 0; ret == -FI_EAGAIN && i < rounds_of_a_call; i++) {
        progress();
        ret = event_credits_->pay(peer, account, prov_errno);
    }
    return ret;
}

bool TxContext::wants_polls() const noexcept
{
    return plan_.domain->auto_progress().thread_is_due() &&
           (event_credits_ != nullptr || !pending_.empty() || std::any_of(std::begin(engines_), std::end(engines_), [](const Engine* e) {
                return e != nullptr && e->needs_polls();
            }));
}

void TxContext::call_for_polls() noexcept
{
    (void)plan_.domain->auto_progress().go_on_alone(); // without a thread the application's calls do it
}

// --- what failed and nobody waits for

void TxContext::on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    static_cast<TxContext*>(self)->lost(code, kind, peer);
}

void TxContext::lost(int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    for (Engine* engine : engines_)
        if (engine != nullptr)
            engine->lost(code, kind, peer);
}

} // namespace tofu
