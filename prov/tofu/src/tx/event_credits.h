// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Flow control of RMA events (FI_RMA_EVENT). Each event is a notice in the target's MRQ, and an MRQ that overflows ends
// the target's process (guide, chapter 7). So a domain keeps a pool of credits, one for each notice that it has room
// for; an initiator takes some by ARMW and pays one for each event. rma and atomic reach it through tx/remote_memory.h.
// Layout and argument: docs/wire-protocol.md, "Receive queues".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "av/address.h"
#include "core/containers.h"
#include "mem/bounce_pool.h"
#include "mem/mr_directory.h"
#include "utofu/vcq.h"

namespace tofu {

struct Peer;

/// Does this error say that the communication left no notice at the target?
inline bool left_no_event(int utofu_code) noexcept
{
    return is_stale(utofu_code) || (utofu_code <= UTOFU_ERR_TCQ_OTHER && utofu_code >= UTOFU_ERR_TCQ_LENGTH);
}

/// The credits that a context has at one domain.
struct CreditAccount : vcq::CompletionHandler {
    class EventCredits* owner = nullptr;
    std::uint64_t target_vcq = 0;
    std::uint64_t nonce = 0;
    utofu_stadd_t pool = 0;
    std::uint32_t held = 0;
    std::uint32_t owed = 0;      ///< credits to be returned
    std::uint32_t requested = 0; ///< credits that the ARMW under way takes; 0 if it only reads, or returns
    std::uint32_t batch = 1;     ///< credits to take next; 0: look at the pool first
    std::uint32_t backoff = 0;   ///< rounds to let pass after a look that found no credits; grows with each such look
    std::uint32_t backoff_left = 0;
    bool under_way = false; ///< an ARMW is under way; there is one at a time
    bool giving = false;    ///< that ARMW gives credits back
    bool used = false;      ///< an event was paid for since the last tick
    std::uint8_t idle = 0;  ///< ticks without use
    int err = 0;            ///< positive FI_E*: the pool cannot be reached
    int prov_errno = 0;

    /// Takes back what was paid for events that will not come.
    void refund(unsigned events) noexcept { held += events; }
};

/// All accounts of a context; used under its lock.
class EventCredits {
  public:
    /// An ARMW takes 1/64 of the credits that are left, so that idle holders leave most of them to others: at least 1,
    /// and at most this many, since credits are lost when their holder dies.
    static constexpr std::int64_t most_at_once = 64;
    static constexpr std::int64_t fraction = 64;

    explicit EventCredits(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    /// True if there are no accounts: no operation went to a peer that counts events.
    [[nodiscard]] bool empty() const noexcept { return accounts_.empty(); }

    ~EventCredits();
    /// Pays for `events` events at `peer`, all or none. 0, and `account` has paid; -FI_EAGAIN: credits have been asked
    /// for, or the pool is empty; -FI_ENOMEM; another -FI_E* with `prov_errno`, which ends the operation.
    [[nodiscard]] int spend(const Peer& peer, unsigned events, CreditAccount*& account, int& prov_errno) noexcept;
    /// Posts an event that has been paid for and carries nothing: a read or a write of the region at `at`. A read needs
    /// that bytes can be read there.
    template <class Options>
    [[nodiscard]] vcq::Post post_event(utofu_vcq_id_t vcq, utofu_stadd_t at, bool read, const Options& how) noexcept
    {
        return read ? vcq_.get(vcq, read_stadd_, at, 1, how)
                    : vcq_.armw(4, vcq, UTOFU_ARMW_OP_OR, 0, at & ~utofu_stadd_t{3}, how);
    }
    /// The STADD of the memory of a domain that lies under its reserved STag. False: there is no such VCQ.
    [[nodiscard]] bool query_directory(utofu_vcq_id_t target_vcq, utofu_stadd_t& stadd) const noexcept
    {
        return vcq_.query_stadd(target_vcq, directory_stag, stadd) == 0;
    }
    /// An event that was posted unsignaled to the domain at `target_vcq` has failed, and left no notice.
    void failed(utofu_vcq_id_t target_vcq) noexcept;
    /// Returns credits that have not been used for a while. Called once per round.
    void progress() noexcept
    {
        if (++rounds_ % rounds_per_look == 0) [[unlikely]]
            tick();
    }
    /// Returns all credits. Called before the VCQ is drained.
    void close() noexcept;

  private:
    static constexpr unsigned rounds_per_look = 64;
    [[nodiscard]] CreditAccount* account_of(const Peer& peer) noexcept;
    void request_credits(CreditAccount& account) noexcept;
    void return_credits(CreditAccount& account) noexcept;
    [[nodiscard]] bool post(CreditAccount& account, std::int64_t credits) noexcept;
    static void on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    void on_word(CreditAccount& account, std::uint64_t word) noexcept;
    [[gnu::noinline]] void tick() noexcept;

    vcq::Vcq& vcq_;
    CreditAccount* last_ = nullptr;
    Map<std::uint64_t, CreditAccount*> by_target_vcq_; ///< the latest account of each target VCQ
    Array<std::unique_ptr<CreditAccount>> accounts_;
    OwnMemory read_buffer_; ///< what events that are reads bring, which nothing looks at
    utofu_stadd_t read_stadd_ = 0;
    std::size_t next_ = 0; ///< the account that tick() looks at next
    std::uint32_t rounds_ = 0;
    std::uint64_t last_tick_ = 0; ///< milliseconds
};

} // namespace tofu
