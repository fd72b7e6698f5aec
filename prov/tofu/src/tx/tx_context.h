// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A transmit context and the engines that post from it. What the context asks of an engine (Engine), and its engines
// (Engines); FI_FENCE (Fence); the VCQs of its long transfers (Rails); the context, which the engines use and the
// endpoint opens and closes (TxContext); a receive context (RxContext).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include <rdma/fi_endpoint.h>
#include <utofu.h>

#include "core/lock.h"
#include "core/system.h"
#include "cq/counter.h"
#include "mem/local_buffer.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "utofu/vcq.h"

namespace tofu {

// --- Engine, Engines: what a tx context asks of rma, atomic, messages and collectives: when a fence waits, when the
// context closes, and when an unsignaled communication has failed. None of it is on a hot path.

struct Peer;

/// All calls are made under the context's lock.
class Engine {
  public:
    enum Kind : std::uint8_t { rma, atomic, messages, collectives };
    static constexpr unsigned kinds = 4;

    /// True if no operation of the engine is under way to this peer. Operations in the pending queue
    /// (tx/pending_queue.h) do not count: a fence asks that queue itself.
    [[nodiscard]] virtual bool idle_towards(const Peer& peer) const noexcept = 0;
    /// True if nothing that the engine accepted still has to leave the process: the context may be closed at once.
    [[nodiscard]] virtual bool all_has_left() const noexcept = 0;
    /// True if something is under way that only polls can continue.
    [[nodiscard]] virtual bool needs_polls() const noexcept { return false; }
    /// Has the peer taken (`matched`: and matched with receives) what was sent to it? False: the peer is being asked;
    /// call again later.
    [[nodiscard]] virtual bool confirmed(const Peer&, bool) noexcept { return true; }
    /// Cancels what waits. From now on the engine begins nothing.
    virtual void close() noexcept {}
    /// An unsignaled communication to the VCQ `peer` has failed. It may be one of this engine.
    virtual void on_unsignaled_error(int /*utofu_code*/, vcq::Unsignaled, utofu_vcq_id_t /*peer*/) noexcept {}

  protected:
    ~Engine() = default;
};

/// The engines of one context: at most one of each kind, as the caps ask for.
class Engines {
  public:
    void add(Engine::Kind kind, Engine& engine) noexcept { engines_[kind] = &engine; }
    void clear() noexcept { std::fill(std::begin(engines_), std::end(engines_), nullptr); }
    /// May be null.
    [[nodiscard]] Engine* operator[](Engine::Kind kind) const noexcept { return engines_[kind]; }
    template <class Holds>
    [[nodiscard]] bool all(Holds&& holds) const noexcept
    {
        return std::all_of(std::begin(engines_), std::end(engines_),
                           [&](Engine* engine) { return engine == nullptr || holds(*engine); });
    }
    void close() const noexcept
    {
        for (Engine::Kind kind : {Engine::messages, Engine::atomic, Engine::rma, Engine::collectives})
            if (engines_[kind] != nullptr)
                engines_[kind]->close();
    }
    void on_unsignaled_error(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t peer) const noexcept
    {
        for (Engine* engine : engines_)
            if (engine != nullptr)
                engine->on_unsignaled_error(utofu_code, kind, peer);
    }

  private:
    Engine* engines_[Engine::kinds] = {};
};

// --- Fence: FI_FENCE (fi_endpoint(3)): has every operation that a tx context began towards a peer ended?

class TxContext;

/// It is itself the completion handler of an ARMW whose end shows that everything posted to a peer before has ended.
class Fence : vcq::CompletionHandler {
  public:
    explicit Fence(TxContext& tx) noexcept : CompletionHandler{on_flush}, tx_(tx) {}
    /// True if no earlier operation is under way to the peer that `to` names, and all have reached the completion level
    /// that `flags` ask for. Makes some rounds of progress to get there. False: call again later. It is true when
    ///  1. no signaled communication of the VCQ is under way, to whatever peer (these end soon);
    ///  2. no operation to the peer is in the pending queue;
    ///  3. no engine has something under way to the peer that it alone knows of, such as a rendezvous;
    ///  4. unsignaled communications to the peer have taken effect: an ARMW posted behind them has ended;
    ///  5. where `flags` ask for more than delivery to memory, the peer has said that it has taken the messages.
    [[nodiscard]] bool passed(fi_addr_t to, std::uint64_t flags) noexcept;

  private:
    [[nodiscard]] bool flushed(const Peer& peer) noexcept;
    /// The ARMW may have failed: at an unreachable peer there is nothing to overtake.
    static void on_flush(vcq::CompletionHandler* fence, vcq::Notice) noexcept
    {
        static_cast<Fence*>(fence)->flushing_ = false;
    }

    TxContext& tx_;
    bool flushing_ = false; ///< the ARMW is under way
};

// --- Rails: the VCQs by which the long transfers of a transmit context go, its own and further ones on TNIs
// that no process of the node posts from. Transfers with one peer share a link, and therefore a rail; transfers with
// several peers take a rail each. rma and msg use them, under the context's lock.

class DomainBase;

class Rails {
  public:
    /// Shorter transfers stay with the context's own VCQ: they occupy a link for less than 2.6 us.
    static constexpr std::size_t least_length = 16384;
    /// The poster of a transfer: this endpoint, or the peer, which fetches. The two are counted apart, since a TNI
    /// sends and receives at the same time, and the VCQ has notices only of its own posts.
    enum class By : std::uint8_t { peer, us };
    /// The rail of a transfer. 0 and `own` are the context's own VCQ; a transfer with 0 is not counted, because it is
    /// short or may not take a rail.
    using Index = std::uint8_t;
    static constexpr Index own = 1;

    /// Sets the context's own VCQ and its local memory.
    void begin(vcq::Vcq& own, std::unique_ptr<LocalMemory> memory) noexcept
    {
        own_ = &own;
        rails_[0].memory = std::move(memory);
    }
    /// From now on long transfers may take rails, which are opened from this domain.
    void allow(DomainBase& domain) noexcept { domain_ = &domain; }
    /// Chooses the rail of a transfer of `length` bytes with the peer that has this target VCQ. The transfer has it
    /// until release().
    [[nodiscard]] Index acquire(By by, utofu_vcq_id_t peer, std::size_t length) noexcept;
    void release(By by, Index rail) noexcept;
    /// The VCQ of a rail, and the local memory that is registered with that VCQ.
    [[nodiscard]] vcq::Vcq& vcq(Index rail) noexcept { return rail > own ? *rails_[rail - own].vcq : *own_; }
    [[nodiscard]] LocalMemory& memory(Index rail) noexcept { return *rails_[rail > own ? rail - own : 0].memory; }
    /// Frees the local memory of all rails. Called when all transfers have ended.
    void release_memory() noexcept;

  private:
    static constexpr std::size_t most = 8; ///< rails: a node of Tofu-D has six TNIs
    struct Load {
        std::uint32_t transfers = 0; ///< under way
        utofu_vcq_id_t peer = 0;     ///< of the transfer that was begun last
    };
    struct Rail {
        std::unique_ptr<vcq::Vcq> vcq;
        std::unique_ptr<LocalMemory> memory;
        Load load[2]{};
    };
    [[nodiscard]] bool grow() noexcept;

    DomainBase* domain_ = nullptr; ///< null: all transfers stay with the context's own VCQ
    vcq::Vcq* own_ = nullptr;
    std::size_t count_ = 1;
    bool may_grow_ = true;
    Rail rails_[most]; ///< the first is the context's own VCQ, `vcq` is null there
};

// --- TxContext: the VCQ that operations are posted from, its lock, the peers they may name, where they report, and
// what the engines that post from it share: local memory, peers' keys, credits for events.

struct PeerMemory;
class Peers;

/// Everything is used under lock().
class TxContext final : ForkAware {
  public:
    /// One bounded round of polling the VCQ and of the engines, under the lock. True if the poll found a notice.
    using Round = bool (*)(void* owner) noexcept;
    /// The part that does not change once there are engines.
    struct Config {
        DomainBase* domain = nullptr;
        fi_tx_attr attr{}; ///< as granted
        std::uint64_t caps = 0;
        Lock* lock = nullptr; ///< shared with others; null: one of its own
        Round round = nullptr;
        void* owner = nullptr; ///< of `round`
        bool is_open = true;   ///< false: a receive context of a scalable endpoint; the application posts nothing
        /// Other contexts post from the VCQ, too: when an unsignaled post fails, the posting context is unknown.
        bool shares_vcq = false;
        unsigned number = 0;     ///< in the domain
        EndpointAddress known{}; ///< the address that peers know: its own, or its scalable endpoint's
    };

    TxContext() noexcept;
    ~TxContext();

    [[nodiscard]] const Config& config() const noexcept { return config_; }
    [[nodiscard]] Lock& lock() noexcept { return *lock_; }
    [[nodiscard]] vcq::Vcq& vcq() const noexcept { return *vcq_; }
    [[nodiscard]] DomainBase& domain() const noexcept { return *config_.domain; }
    [[nodiscard]] Peers& peers() const noexcept { return *peers_; }
    /// Where operations report. While post_elsewhere() is at work it names another queue.
    [[nodiscard]] const Reports& reports() const noexcept { return reports_; }
    /// The rails of long transfers, and the local memory of each, the context's own VCQ included.
    [[nodiscard]] Rails& rails() noexcept { return rails_; }
    /// Peers' keys and the credits for events at peers, for the RemoteMemory of each engine.
    [[nodiscard]] PeerMemory& peer_memory() noexcept { return *peer_memory_; }
    /// The operations that were accepted and cannot continue yet.
    [[nodiscard]] PendingQueue& pending() noexcept { return pending_; }
    [[nodiscard]] const PendingQueue& pending() const noexcept { return pending_; }
    /// The single communications of rma and atomic, by places of the completion table.
    [[nodiscard]] FastOps& fast() noexcept { return fast_; }
    [[nodiscard]] const Engines& engines() const noexcept { return engines_; }
    [[nodiscard]] Fence& fence() noexcept { return fence_; }
    /// Makes a Round for a caller that holds lock(). An entry calls it before it refuses with -FI_EAGAIN, so that a
    /// program that does nothing but retry makes progress, and before it has changed anything, since completion
    /// handlers run inside.
    bool progress() noexcept { return progresses_ && config_.round(config_.owner); }
    /// The same for a caller that repeats it. False: no progress can be made now.
    bool try_progress() noexcept
    {
        if (progresses_)
            (void)config_.round(config_.owner);
        return progresses_;
    }
    /// Counts the cause of a refusal. Returns -FI_EAGAIN.
    [[nodiscard]] int again(Stat cause) noexcept
    {
        vcq_->statistics().count(cause);
        return -FI_EAGAIN;
    }
    /// Calls `post`, whose operation then reports to `queue`, successes too, instead of to what the context is bound
    /// to. No progress is made inside, or other operations would report to `queue` as well.
    template <class Post>
    ssize_t post_elsewhere(CompletionQueue& queue, Post&& post) noexcept
    {
        Reports elsewhere;
        elsewhere.binding.cq = &queue;
        Reports own = std::exchange(reports_, std::move(elsewhere));
        progresses_ = false;
        const ssize_t ret = post();
        reports_ = std::move(own);
        progresses_ = true;
        return ret;
    }
    /// Makes a call under the lock. Afterwards it starts the thread of automatic progress if what the call accepted
    /// needs polls and the domain has no thread yet.
    template <class Call>
    ssize_t call_locked(Call&& call) noexcept
    {
        lock_->lock();
        const ssize_t ret = call();
        const bool needs_polls = wants_polls();
        lock_->unlock();
        if (needs_polls) [[unlikely]]
            call_for_polls();
        return ret;
    }

    // --- For the owner, the endpoint: opened, bound to the objects it uses, closed.
    void set_up(const Config& config) noexcept;
    /// Opens a VCQ of its own and uses it. 0 or -FI_E*.
    [[nodiscard]] int open_vcq() noexcept;
    /// Uses that of a shared transmit context. 0 or -FI_ENOMEM.
    [[nodiscard]] int post_from(vcq::Vcq& vcq) noexcept;
    /// Frees the context's own VCQ; from then on none of its communications reaches memory.
    void close_vcq() noexcept { own_vcq_.close(); }
    /// Leaves the region table: regions that are opened or closed from now on are not reported to this context.
    void detach() noexcept;
    void use(Peers* peers) noexcept { peers_ = peers; }
    [[nodiscard]] bool has_peers() const noexcept { return peers_ != nullptr; }
    /// `number`: in the domain. `known`: the address that peers know; a context has that of its scalable endpoint.
    void set_number(unsigned number, const EndpointAddress& known) noexcept;
    [[nodiscard]] Reports& reports() noexcept { return reports_; }
    [[nodiscard]] Engines& engines() noexcept { return engines_; }
    /// False: the context will use the VCQ of a shared transmit context, and none has been bound yet.
    [[nodiscard]] bool has_vcq() const noexcept { return vcq_ != nullptr; }
    /// True if nothing that was accepted still has to leave the process. What only waits for an answer of its peer has
    /// left.
    [[nodiscard]] bool all_has_left() const noexcept
    {
        return pending_.empty() && engines_.all([](const Engine& e) { return e.all_has_left(); });
    }
    /// Cancels what waits, and gives credits back to peers. Called before the VCQ is drained.
    void close() noexcept;
    /// Frees what the context had before it had engines: registrations, keys, credits.
    void release_memory() noexcept;

  private:
    /// Nothing unlocks the lock if another thread of the parent held it.
    void in_child() noexcept override { own_lock_.set_enabled(false); }
    static void on_unsignaled_error(void* self, int code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept;
    /// True if something was accepted that only polls can continue, and the domain (FI_PROGRESS_AUTO) has no thread yet
    /// that polls: call_for_polls() once the lock is released.
    [[nodiscard]] bool wants_polls() const noexcept;
    void call_for_polls() noexcept;

    Lock* lock_ = &own_lock_;
    vcq::Vcq* vcq_ = nullptr; ///< its own, or that of a shared transmit context
    Ref<Peers> peers_;
    Reports reports_;
    bool progresses_ = true; ///< false inside post_elsewhere()
    PendingQueue pending_;
    Engines engines_;
    FastOps fast_;
    Rails rails_;
    std::unique_ptr<PeerMemory> peer_memory_;
    Fence fence_{*this};
    Config config_;
    Lock own_lock_;
    vcq::Vcq own_vcq_;
};

// --- RxContext: the queue and counters that arrivals are reported to, and the rules for receives

namespace proto {
class ReceiveQueue;
}

struct RxContext {
    Binding binding{}; ///< the queue of receives
    RxCounters counters{};
    fi_rx_attr attr{};                      ///< as granted
    std::size_t min_multi_recv = 64;        ///< FI_OPT_MIN_MULTI_RECV
    CompletionQueue* internal_cq = nullptr; ///< for receives of deferred work, which have FI_TRIGGER (api/triggered.h)
    bool shares = false;                    ///< fi_endpoint(3), FI_SHARED_CONTEXT: `shared` has to be bound
    proto::ReceiveQueue* shared = nullptr;  ///< the receives of a shared context; null: the context's own
    /// The queue to which a receive with these flags reports.
    [[nodiscard]] CompletionQueue* queue_of(std::uint64_t flags) const noexcept
    {
        return (flags & FI_TRIGGER) != 0 ? internal_cq : binding.cq.get();
    }
    [[nodiscard]] Counter* counter_of(std::uint64_t flags) const noexcept
    {
        return (flags & FI_TRIGGER) != 0 ? nullptr : counters.recv.get();
    }
    [[nodiscard]] bool reports(std::uint64_t flags) const noexcept
    {
        return (flags & FI_TRIGGER) != 0 || binding.reports(flags);
    }
    bool is_open = true; ///< false for a transmit context of a scalable endpoint, which receives nothing
};

} // namespace tofu
