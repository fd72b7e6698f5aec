// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_endpoint (FI_EP_RDM): a posting VCQ, the objects bound to it, and the engines that use them. Called by
// the application through the operation tables of rma, atomic, msg and tagged; calls those engines.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_endpoint.h>

#include "address/peers.h"
#include "info/names.h"
#include "memory/local_memory.h"
#include "provider/lock.h"
#include "queue/binding.h"
#include "queue/cq.h"
#include "queue/domain_base.h"
#include "queue/progress.h"
#include "transfer/quick.h"
#include "vcq/vcq.h"

namespace tofu {

class AtomicEngine;
class Endpoint;
class EventCredits;
struct EventPurse;
class EventQueue;
class RemoteKeys;
class RmaEngine;
class ScalableEndpoint;
class SharedReceive;
class SharedTransmit;
namespace proto {
class Messenger;
class ReceiveQueue;
}

/// What the application holds: the endpoint itself, an alias of it with operation flags of its own
/// (fi_ep_alias, fi_endpoint(3)), or a shared receive context, which has no endpoint.
struct EndpointFace : fid_ep {
    Endpoint* endpoint = nullptr;
    proto::ReceiveQueue* receives = nullptr; ///< where fi_recv posts, and its lock
    Lock* receive_lock = nullptr;
    std::uint64_t tx_flags = 0; ///< defaults of the calls without a flags argument
    std::uint64_t rx_flags = 0;
};

/// A whole endpoint, or one context of a scalable endpoint: the same engines, for one direction.
enum class Part : std::uint8_t { whole, transmit, receive };

/// What an endpoint or a context is made of.
struct EndpointPlan {
    std::uint64_t caps = 0;
    fi_tx_attr tx{};
    fi_rx_attr rx{};
    std::uint32_t address_format = FI_FORMAT_UNSPEC;
    std::uint64_t name_key = 0; ///< the service name it was opened for (info/names.h), 0: none
    Part part = Part::whole;
    unsigned number = 0;                ///< of a receive context
    unsigned slot = 0;                  ///< of a context in its scalable endpoint
    ScalableEndpoint* parent = nullptr; ///< of a context
    bool shares_tx = false; ///< fi_endpoint(3), FI_SHARED_CONTEXT: a shared context will be bound
    bool shares_rx = false;
    std::size_t min_multi_recv = 64;
    void* context = nullptr;
};

/// The engines, AtomicEngine, RmaEngine and proto::Messenger, are made by enable() where the caps ask for
/// them; each has a constructor (Endpoint&), `int open()` (0 or -FI_E*), and `void progress() noexcept`, called
/// under lock() once per round of progress() after the VCQ was polled. The endpoint's VCQ is closed before
/// the engines go, so that no waiter of theirs is called afterwards.
class Endpoint final : public EndpointFace, public Progressed {
  public:
    /// fi_endpoint(3); holds the domain. 0, -FI_EINVAL (another type of endpoint among others), or as make().
    static int open(fid_domain* domain, fi_info* info, fid_ep** ep, void* context) noexcept;
    /// By the plan: opens a VCQ, unless one is to be shared. 0 or -FI_E*.
    static int make(DomainBase& domain, const EndpointPlan& plan, fid_ep** ep) noexcept;
    static Endpoint& of(fid_ep* e) noexcept { return *static_cast<EndpointFace*>(e)->endpoint; }
    /// Default operation flags of this fid (endpoint or alias).
    static std::uint64_t tx_flags_of(fid_ep* e) noexcept
    {
        return static_cast<EndpointFace*>(e)->tx_flags;
    }
    static std::uint64_t rx_flags_of(fid_ep* e) noexcept
    {
        return static_cast<EndpointFace*>(e)->rx_flags;
    }

    [[nodiscard]] DomainBase& domain() noexcept { return *domain_; }
    [[nodiscard]] Peers& av() noexcept { return *av_; }
    [[nodiscard]] unsigned index() const noexcept { return index_; }
    /// The number in the address that peers know: of a context, that of its scalable endpoint.
    [[nodiscard]] unsigned identity() const noexcept { return identity_; }
    [[nodiscard]] Part part() const noexcept { return part_; }
    [[nodiscard]] std::uint64_t caps() const noexcept { return caps_; }
    [[nodiscard]] EndpointAddress address() const noexcept;

    // --- for the engines; all below under lock()
    [[nodiscard]] Lock& lock() noexcept { return *lock_; }
    [[nodiscard]] vcq::Vcq& vcq() noexcept { return *vcq_; }
    /// Other endpoints post from the VCQ, too: of a failed post without a waiter nobody knows whose it was.
    [[nodiscard]] bool shares_vcq() const noexcept { return shared_tx_ != nullptr; }
    /// The receives of a shared context, or null.
    [[nodiscard]] proto::ReceiveQueue* shared_receives() noexcept;
    [[nodiscard]] LocalMemory& local_memory() noexcept { return *local_memory_; }
    /// STADDs of peers' regions by key, for rma and atomic.
    [[nodiscard]] RemoteKeys& remote_keys() noexcept { return *remote_keys_; }
    /// What rma and atomic keep by places of vcq()'s window.
    [[nodiscard]] QuickOps& quick() noexcept { return quick_; }
    /// What events at peers are paid from; null before the first.
    [[nodiscard]] EventCredits* event_credits() noexcept { return event_credits_.get(); }
    /// EventCredits::pay_patiently, which sees to it that there is one.
    [[nodiscard]] int pay_for_event(const Peer& peer, EventPurse*& purse) noexcept;
    [[nodiscard]] const Binding& tx() const noexcept { return tx_; }
    [[nodiscard]] const Binding& rx() const noexcept { return rx_; }
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] RmaEngine& rma_engine() noexcept { return *rma_; }
    [[nodiscard]] AtomicEngine& atomic_engine() noexcept { return *atomic_; }
    /// Null unless the caps ask for FI_MSG or FI_TAGGED or for remote CQ data.
    [[nodiscard]] proto::Messenger* messenger() noexcept { return messages_.get(); }
    [[nodiscard]] bool enabled() const noexcept { return enabled_; }
    /// What has not ended by now is discarded without a word (fi_endpoint(3), fi_close).
    [[nodiscard]] bool closing() const noexcept { return closing_; }
    /// What the endpoint was opened with (limits, orders); tx_attr, rx_attr as granted.
    [[nodiscard]] const fi_tx_attr& tx_attr() const noexcept { return tx_attr_; }
    [[nodiscard]] const fi_rx_attr& rx_attr() const noexcept { return rx_attr_; }
    /// FI_OPT_MIN_MULTI_RECV.
    [[nodiscard]] const std::size_t& min_multi_recv() const noexcept { return min_multi_recv_; }
    /// Something was accepted that goes on by polls only; under the lock.
    [[nodiscard]] bool needs_polls() const noexcept;
    /// Reports a communication without a waiter that failed: one error entry of the transmit queue, one count.
    void report_orphan(std::uint64_t op_flags, int utofu_code) noexcept;
    /// A communication without a waiter failed, towards `peer`: tells the engines that may have posted it.
    void lost(int utofu_code, vcq::Orphan kind, utofu_vcq_id_t peer) noexcept;

    /// One bounded round of the endpoint's own VCQ and its engines. Takes the lock, or returns at once
    /// where another thread holds it and `patient` is not asked for. True where the VCQ had something.
    bool progress(bool patient) noexcept override;
    [[nodiscard]] const vcq::Vcq& polled() const noexcept override { return *vcq_; }
    /// progress() for the reader of `queue`: messages wait for another round where that is filled by now.
    void look(const CompletionQueue& queue) noexcept;
    /// The same for a caller that holds lock() already. To be called before a refusal (-FI_EAGAIN), so that a program
    /// that does nothing but retry makes progress, and before the entry has changed anything, since waiters run inside.
    bool progress_locked() noexcept;
    /// FI_FENCE: no operation before it is under way to the peer that `to` names, after some rounds of progress if need
    /// be, and all have reached the level that `flags` ask for.
    [[nodiscard]] bool fence_passed(fi_addr_t to, std::uint64_t flags) noexcept;

    // --- the calls of fi_ep's operation tables (calls.cc)
    int bind(struct fid* object, std::uint64_t flags) noexcept;
    int enable() noexcept;
    int close() noexcept;
    int control(int command, void* argument, EndpointFace& face) noexcept;
    int alias(const EndpointFace& of, struct fid** made, std::uint64_t flags) noexcept;
    int name(void* address, std::size_t* length) const noexcept;
    ssize_t cancel(void* context) noexcept;
    int get_option(int level, int name, void* value, std::size_t* length) noexcept;
    int set_option(int level, int name, const void* value, std::size_t length) noexcept;
    /// Behind close(), of one whose memory the VCQ of a shared transmit context may still reach: that has been freed.
    void bury() noexcept;
    Endpoint* next_kept = nullptr; ///< among those that such a context keeps
    void drop_alias() noexcept { aliases_.fetch_sub(1, std::memory_order_relaxed); }

  private:
    /// The ARMW of a fence: when it has ended, so has all that was posted to `home` before.
    struct Flush : vcq::Waiter {
        bool under_way = false;
    };
    Endpoint() noexcept;
    ~Endpoint();
    [[nodiscard]] bool flushed(const Peer& peer) noexcept;
    static void on_flush(vcq::Waiter* flush, const vcq::Notice& notice) noexcept;
    int set_up(DomainBase& domain, const EndpointPlan& plan) noexcept;
    int bind_queue(CompletionQueue& cq, std::uint64_t flags) noexcept;
    int bind_counter(Counter& counter, std::uint64_t flags) noexcept;
    int bind_addresses(Peers& av) noexcept;
    int bind_shared(SharedTransmit& shared) noexcept;
    int bind_shared(SharedReceive& shared) noexcept;
    int use_vcq(vcq::Vcq& vcq) noexcept;
    [[nodiscard]] bool all_has_left() const noexcept;
    void let_all_leave() noexcept;
    [[nodiscard]] bool stop() noexcept;
    void drop_engines() noexcept;
    void drop_memory() noexcept;
    int check_bound() const noexcept;
    template <class Visit>
    void visit_progress_sets(Visit&& visit) noexcept;
    [[nodiscard]] int list() noexcept;
    void unlist() noexcept;
    void choose_operations() noexcept;
    static void on_orphan(void* owner, int code, vcq::Orphan kind, utofu_vcq_id_t peer) noexcept;
    int make_engines() noexcept;
    int announce() noexcept;
    void unbind() noexcept;

    DomainBase* domain_ = nullptr;
    Peers* av_ = nullptr;
    Lock* lock_ = &own_lock_; ///< or the domain's shared one
    vcq::Vcq* vcq_ = nullptr; ///< its own, or that of a shared transmit context
    SharedTransmit* shared_tx_ = nullptr;
    SharedReceive* shared_rx_ = nullptr;
    Lock own_lock_;
    vcq::Vcq own_vcq_;
    QuickOps quick_;
    Flush flush_;
    std::uint64_t caps_ = 0;
    Part part_ = Part::whole;
    unsigned index_ = 0;
    unsigned identity_ = 0;
    unsigned slot_ = 0; ///< of a context
    ScalableEndpoint* parent_ = nullptr; ///< of a context
    bool wants_shared_tx_ = false; ///< FI_SHARED_CONTEXT
    bool wants_shared_rx_ = false;
    bool numbered_ = false; ///< index_ goes back to the domain
    bool listed_ = false; ///< in the progress sets of what it is bound to
    bool enabled_ = false;
    bool closing_ = false;
    std::atomic<int> aliases_{0};
    Binding tx_{};
    Binding rx_{};
    Counters counters_{};
    fi_tx_attr tx_attr_{};
    fi_rx_attr rx_attr_{};
    std::size_t min_multi_recv_ = 64;
    EventQueue* eq_ = nullptr; ///< held so that it is not closed first
    std::uint32_t address_format_ = FI_FORMAT_UNSPEC;
    std::uint64_t name_key_ = 0; ///< the service name it was opened for (info/names.h), 0: none
    names::Announcement announcement_;
    names::Announcement* named_ = nullptr; ///< it, or that of its scalable endpoint, while finders connect to it
    unsigned rounds_ = 0;                  ///< of progress, where it has a name
    std::unique_ptr<LocalMemory> local_memory_;
    std::unique_ptr<RemoteKeys> remote_keys_;
    std::unique_ptr<EventCredits> event_credits_;
    std::unique_ptr<RmaEngine> rma_;
    std::unique_ptr<AtomicEngine> atomic_;
    std::unique_ptr<proto::Messenger> messages_;
};

} // namespace tofu
