// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A transmit context: the VCQ that operations are posted from, its lock, the peers they may name, where they report, and
// what the engines that post from it share: local memory, peers' keys, credits of events. Part of an endpoint, whole or
// of one direction, or of one with a shared VCQ. Set up by endpoint; used by rma, atomic and message; calls vcq, remote,
// memory and, through Engine, the engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rdma/fi_endpoint.h>

#include "context/engine.h"
#include "local/local_memory.h"
#include "provider/lock.h"
#include "transfer/pending.h"
#include "transfer/quick.h"
#include "transfer/request.h"
#include "vcq/vcq.h"

namespace tofu {

class DomainBase;
class EventCredits;
struct EventAccount;
class Peers;
class RemoteKeys;

class TxContext {
  public:
    /// One bounded round of polling the VCQ and of the engines, under the lock. True where the VCQ had something.
    using Round = bool (*)(void* owner) noexcept;
    /// What does not change.
    struct Plan {
        DomainBase* domain = nullptr;
        fi_tx_attr attr{}; ///< as granted
        std::uint64_t caps = 0;
        Lock* lock = nullptr; ///< shared with others; null: one of its own
        Round round = nullptr;
        void* owner = nullptr; ///< of `round`
        bool is_open = true;   ///< false: the application posts nothing, a receive context of a scalable endpoint
    };

    TxContext() noexcept;
    TxContext(const TxContext&) = delete;
    TxContext& operator=(const TxContext&) = delete;
    ~TxContext();

    // --- life, by the endpoint
    void set_up(const Plan& plan) noexcept;
    /// Opens a VCQ of its own and uses it. 0 or -FI_E*.
    [[nodiscard]] int open_vcq() noexcept;
    /// Uses that of a shared transmit context. 0 or -FI_ENOMEM.
    [[nodiscard]] int post_from(vcq::Vcq& vcq) noexcept;
    /// Its own; nothing reaches memory by it any more.
    void close_vcq() noexcept { own_vcq_.close(); }
    /// The region table gives nothing to it any more.
    void detach() noexcept;
    void use(Peers* peers) noexcept { peers_ = peers; }
    /// `number`: in the domain; `identity`: in the address that peers know, of a context that of its scalable endpoint.
    void set_number(unsigned number, unsigned identity) noexcept;
    void add(Engine::Kind kind, Engine& engine) noexcept { engines_[kind] = &engine; }
    /// False: no memory.
    [[nodiscard]] bool open_quick() noexcept { return quick_.open(*this); }
    /// From now on failures are silent.
    void set_closing() noexcept { reports_.closing = true; }
    /// Ends what waits, and gives back what it has at peers; before the VCQ is drained.
    void close() noexcept;
    /// Behind the engines' end. drop_memory(): what it has before there are any.
    void drop_engines() noexcept;
    void drop_memory() noexcept;
    [[nodiscard]] bool is_open() const noexcept { return plan_.is_open; }
    /// False: that of a shared transmit context will be used, and none has been bound yet.
    [[nodiscard]] bool has_vcq() const noexcept { return vcq_ != nullptr; }
    /// Nothing that was taken still has to leave. What waits for an answer of its peer alone has left.
    [[nodiscard]] bool all_has_left() const noexcept;
    [[nodiscard]] Reports& reports() noexcept { return reports_; }

    // --- for the engines; all below under lock()
    [[nodiscard]] Lock& lock() noexcept { return *lock_; }
    [[nodiscard]] vcq::Vcq& vcq() const noexcept { return *vcq_; }
    /// Other contexts post from the VCQ, too: of a failed post without a waiter nobody knows whose it was.
    [[nodiscard]] bool shares_vcq() const noexcept { return vcq_ != &own_vcq_; }
    [[nodiscard]] DomainBase& domain() const noexcept { return *plan_.domain; }
    [[nodiscard]] Peers& peers() const noexcept { return *peers_; }
    [[nodiscard]] Peers* peers_or_null() const noexcept { return peers_; }
    [[nodiscard]] unsigned number() const noexcept { return number_; }
    [[nodiscard]] unsigned identity() const noexcept { return identity_; }
    [[nodiscard]] std::uint64_t caps() const noexcept { return plan_.caps; }
    [[nodiscard]] const fi_tx_attr& attr() const noexcept { return plan_.attr; }
    /// These three say something else while post_elsewhere() is at work.
    [[nodiscard]] const Reports& reports() const noexcept { return reports_; }
    [[nodiscard]] const Binding& binding() const noexcept { return reports_.binding; }
    [[nodiscard]] const TxCounters& counters() const noexcept { return reports_.counters; }
    [[nodiscard]] LocalMemory& local_memory() noexcept { return *local_memory_; }
    /// STADDs of peers' regions by key.
    [[nodiscard]] RemoteKeys& remote_keys() noexcept { return *remote_keys_; }
    /// What was accepted and can't go on yet.
    [[nodiscard]] Pending& pending() noexcept { return pending_; }
    /// What rma and atomic keep by places of vcq()'s window.
    [[nodiscard]] QuickOps& quick() noexcept { return quick_; }
    /// The engine of this kind, or null where the caps do not ask for it.
    [[nodiscard]] Engine* engine(Engine::Kind kind) const noexcept { return engines_[kind]; }
    /// What events at peers are paid from; null before the first.
    [[nodiscard]] EventCredits* event_credits() noexcept { return event_credits_.get(); }
    /// EventCredits::pay(), after some rounds of progress if need be.
    [[nodiscard]] int pay_for_event(const Peer& peer, EventAccount*& account, int& prov_errno) noexcept;
    /// A Round for a caller that holds lock() already. To be called before a refusal (-FI_EAGAIN), so that a program
    /// that does nothing but retry makes progress, and before the entry has changed anything, since waiters run inside.
    bool progress() noexcept { return plan_.round(plan_.owner); }
    /// -FI_EAGAIN, and its cause counted.
    [[nodiscard]] int again(Stat cause) noexcept
    {
        vcq_->statistics().count(cause);
        return -FI_EAGAIN;
    }
    /// Has `post` post an operation that reports to `queue`, successes too, instead of where the context is bound to.
    /// No progress is made inside: others would report there as well.
    template <class Post>
    ssize_t post_elsewhere(CompletionQueue& queue, Post&& post) noexcept
    {
        Reports elsewhere;
        elsewhere.binding.cq = &queue;
        Reports own = std::exchange(reports_, std::move(elsewhere));
        const Round round = std::exchange(plan_.round, [](void*) noexcept { return false; });
        const ssize_t ret = post();
        reports_ = std::move(own);
        plan_.round = round;
        return ret;
    }
    /// FI_FENCE: no operation before it is under way to the peer that `to` names, after some rounds of progress if need
    /// be, and all have reached the level that `flags` ask for. That is so when
    ///  1. no communication of the VCQ is under way whose end anybody waits for, to whatever peer: that ends soon;
    ///  2. nothing waits for the peer in the pending queue;
    ///  3. no engine has something under way to the peer that it alone knows of, such as a rendezvous;
    ///  4. what was posted to the peer without anybody waiting for its end has taken effect: an ARMW behind it has;
    ///  5. where more is asked for than delivery to memory, the peer says that it has taken the messages.
    [[nodiscard]] bool fence_passed(fi_addr_t to, std::uint64_t flags) noexcept;
    /// Takes a call in under lock(): what was accepted may need somebody who polls.
    template <class Call>
    ssize_t take(Call&& call) noexcept
    {
        lock_->lock();
        const ssize_t ret = call();
        const bool needs_polls = wants_polls();
        lock_->unlock();
        if (needs_polls) [[unlikely]]
            call_for_polls();
        return ret;
    }
    /// Something was accepted that goes on by polls only, and the domain has nobody yet who polls by himself
    /// (FI_PROGRESS_AUTO): call_for_polls() once the lock is released.
    [[nodiscard]] bool wants_polls() const noexcept;
    void call_for_polls() noexcept;
    /// A communication without a waiter failed, towards `peer`: tells the engines, one of which may have posted it.
    void lost(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

  private:
    /// The ARMW of a fence: when it has ended, so has all that was posted to the peer's home before.
    struct Flush : vcq::Waiter {
        bool under_way = false;
    };
    [[nodiscard]] bool flushed(const Peer& peer) noexcept;
    static void on_flush(vcq::Waiter* flush, const vcq::Notice& notice) noexcept;
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;

    Lock* lock_ = &own_lock_;
    vcq::Vcq* vcq_ = nullptr; ///< its own, or that of a shared transmit context
    Held<Peers> peers_;
    Reports reports_;
    Pending pending_;
    Engine* engines_[Engine::kinds] = {};
    QuickOps quick_;
    std::unique_ptr<LocalMemory> local_memory_;
    std::unique_ptr<RemoteKeys> remote_keys_;
    std::unique_ptr<EventCredits> event_credits_;
    Flush flush_;
    unsigned number_ = 0;
    unsigned identity_ = 0;
    Plan plan_;
    Lock own_lock_;
    vcq::Vcq own_vcq_;
};

} // namespace tofu
