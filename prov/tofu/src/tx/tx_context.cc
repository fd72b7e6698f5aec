// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tx_context.h.
#include "tx/tx_context.h"

#include <new>

#include <rdma/fi_errno.h>

#include "av/peer_table.h"
#include "core/params.h"
#include "cq/domain_base.h"
#include "mem/mr.h"
#include "tx/remote_memory.h"

namespace tofu {

bool Fence::passed(fi_addr_t to, std::uint64_t flags) noexcept
{
    const Peer* const peer = tx_.peers().find(to);
    if (peer == nullptr)
        return true; // an unknown address: the operation itself will be refused
    const bool needs_confirmation = (flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
    const bool matched = (flags & FI_MATCH_COMPLETE) != 0;
    const Engines& engines = tx_.engines();
    const auto all_have = [&] {
        return tx_.vcq().idle() && !tx_.pending().has_pending_for(*peer) &&
               engines.all([&](Engine& e) { return e.idle_towards(*peer); }) && flushed(*peer) &&
               (!needs_confirmation || engines.all([&](Engine& e) { return e.confirmed(*peer, matched); }));
    };
    for (unsigned round = 0; !all_have(); round++) {
        if (round == rounds_of_a_call) {
            (void)tx_.again(Stat::again_fence);
            return false;
        }
        tx_.progress();
    }
    return true;
}

/// Unsignaled posts (injects, messages sent at once) may still be on their way to the peer. They have ended when an
/// ARMW that was posted behind them in strong order has.
bool Fence::flushed(const Peer& peer) noexcept
{
    if (flushing_ || !tx_.vcq().has_unsignaled_to(peer.target_vcq))
        return !flushing_;
    const vcq::Post post = tx_.vcq().fence(peer.target_vcq, *this);
    flushing_ = post == vcq::Post::done;
    return post == vcq::Post::error; // the fenced operation will meet the same error
}

// --- Rails

/// Adds a rail. False: no TNI is unused, or there is no CQ or no memory; it is not tried again.
bool Rails::grow() noexcept
{
    may_grow_ = count_ < std::min(param_size("tnis", most), most);
    if (!may_grow_)
        return false;
    Rail& rail = rails_[count_];
    std::unique_ptr<vcq::Vcq> vcq(new (std::nothrow) vcq::Vcq);
    may_grow_ = vcq != nullptr && domain_->vcqs().open_spare(*vcq) == 0;
    if (may_grow_)
        rail.memory.reset(new (std::nothrow) LocalMemory(*vcq));
    may_grow_ = rail.memory != nullptr;
    if (!may_grow_)
        return false;
    rail.vcq = std::move(vcq);
    own_->link(*rail.vcq);
    rails_[0].memory->link(*rail.memory);
    own_->statistics().count(Stat::rail);
    count_++;
    return true;
}

Rails::Index Rails::acquire(By by, utofu_vcq_id_t peer, std::size_t length) noexcept
{
    if (domain_ == nullptr || length < least_length)
        return 0;
    const auto load = [&](std::size_t rail) -> Load& { return rails_[rail].load[static_cast<unsigned>(by)]; };
    // Best is a rail that has transfers with this peer; next an idle one whose last peer was this one, since
    // registrations may be left there; next an idle one; last the one with the fewest transfers.
    const auto rank = [&](std::size_t rail) {
        const Load& l = load(rail);
        return l.transfers == 0 ? (l.peer == peer ? 1u : 2u) : l.peer == peer ? 0u : 2u + l.transfers;
    };
    std::size_t best = 0;
    for (std::size_t rail = 1; rail < count_; rail++)
        if (rank(rail) < rank(best))
            best = rail;
    if (rank(best) > 2 && may_grow_ && grow())
        best = count_ - 1;
    Load& chosen = load(best);
    chosen.transfers++;
    chosen.peer = peer;
    const auto rail = static_cast<Index>(own + best);
    if (rail != own) {
        own_->statistics().count(Stat::by_rail);
        if (by == By::us)
            own_->request_linked();
    }
    return rail;
}

void Rails::release(By by, Index rail) noexcept
{
    if (rail == 0)
        return;
    rails_[rail - own].load[static_cast<unsigned>(by)].transfers--;
    if (rail != own && by == By::us)
        own_->release_linked();
}

void Rails::release_memory() noexcept
{
    for (Rail& rail : rails_)
        rail.memory.reset();
    domain_ = nullptr;
}

// --- TxContext

TxContext::TxContext() noexcept
{
    register_fork();
}

TxContext::~TxContext()
{
    unregister_fork();
}

bool TxContext::wants_polls() const noexcept
{
    return domain().auto_progress().thread_is_due() &&
           (!peer_memory_->credits.empty() || !pending_.empty() ||
            !engines_.all([](const Engine& engine) { return !engine.needs_polls(); }));
}

void TxContext::call_for_polls() noexcept
{
    (void)domain().auto_progress().start_thread(); // without a thread the application's calls do it
}

void TxContext::set_up(const Config& config) noexcept
{
    config_ = config;
    if (config.lock != nullptr)
        lock_ = config.lock;
}

int TxContext::open_vcq() noexcept
{
    if (int ret = domain().vcqs().open(own_vcq_, {.owner = this, .unsignaled_error = on_unsignaled_error}); ret != 0)
        return ret;
    if (int ret = post_from(own_vcq_); ret != 0)
        return ret;
    rails_.allow(domain());
    return 0;
}

int TxContext::post_from(vcq::Vcq& vcq) noexcept
{
    std::unique_ptr<LocalMemory> memory(new (std::nothrow) LocalMemory(vcq, &domain().regions().descs()));
    peer_memory_.reset(new (std::nothrow)
                           PeerMemory(vcq, domain().model().provider_keys,
                                      KeyReader{domain().target_vcq_id(), domain().regions().directory().area()}));
    if (memory == nullptr || peer_memory_ == nullptr)
        return -FI_ENOMEM;
    if (int ret = domain().regions().attach(*memory, *lock_); ret != 0)
        return ret;
    vcq_ = &vcq;
    rails_.begin(vcq, std::move(memory));
    return 0;
}

void TxContext::detach() noexcept
{
    if (vcq_ != nullptr)
        domain().regions().detach(rails_.memory(Rails::own));
}

void TxContext::set_number(unsigned number, const EndpointAddress& known) noexcept
{
    config_.number = number;
    config_.known = known;
}

void TxContext::close() noexcept
{
    engines_.close();
    if (peer_memory_ != nullptr)
        peer_memory_->credits.close();
}

void TxContext::release_memory() noexcept
{
    peer_memory_.reset();
    rails_.release_memory();
}

void TxContext::on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept
{
    auto& tx = *static_cast<TxContext*>(self);
    if (kind != vcq::Unsignaled::event)
        tx.engines_.on_unsignaled_error(code, kind, peer);
    else if (tx.peer_memory_ != nullptr && left_no_event(code))
        tx.peer_memory_->event_failed(peer);
}

} // namespace tofu
