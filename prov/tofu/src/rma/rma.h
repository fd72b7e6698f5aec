// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_rma: reads and writes of peers' memory. This file has the short way: one segment, one communication, no retry. The
// runner does every other operation. Entered by the application through rma_ops; calls vcq, tx/remote_memory, cq.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fi_rma.h>

#include "mem/bounce_pool.h"
#include "rma/runner.h"
#include "tx/remote_memory.h"
#include "tx/tx_context.h"

namespace tofu {

/// The table of endpoints that may use RMA.
extern fi_ops_rma rma_ops;

inline constexpr std::size_t max_quick_read = 64; ///< bytes that are copied; longer reads go to where they belong

/// The operations of one context; all under its lock.
class RmaEngine final : public Engine {
  public:
    static RmaEngine& of(TxContext& tx) noexcept { return static_cast<RmaEngine&>(*tx.engines()[rma]); }

    explicit RmaEngine(TxContext& tx) noexcept;
    ~RmaEngine();
    [[nodiscard]] RmaRunner& runner() noexcept { return runner_; }
    /// fi_inject_write as one unsignaled Put. 0, or not_quick.
    [[nodiscard]] ssize_t inject_quickly(const void* data, std::size_t length, fi_addr_t to, std::uint64_t address,
                                         std::uint64_t key) noexcept;
    /// fi_write and fi_read of one segment as one communication, with a key that is a bias and the default completion
    /// level: of at most max_inline_ or max_quick_read bytes, or, `in_place`, of up to longest_ in a region whose
    /// registration is kept. 0, -FI_EAGAIN, or `not_quick`: nothing has happened, and the runner has to do it.
    static constexpr ssize_t not_quick = 1;
    template <bool read, bool in_place>
    [[nodiscard]] ssize_t go_quickly(void* buffer, std::size_t length, void* desc, fi_addr_t to, std::uint64_t address,
                                     std::uint64_t key, void* context, std::uint64_t flags) noexcept;
    [[nodiscard]] bool all_has_left() const noexcept override { return runner_.outstanding() == 0; }
    /// Operations under way to other peers count, too: they end soon.
    [[nodiscard]] bool idle_towards(const Peer&) const noexcept override
    {
        return runner_.outstanding() == runner_.waiting().size();
    }
    void close() noexcept override { runner_.close(); }
    /// With a shared VCQ the failed write may be another context's.
    void lost(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t) noexcept override
    {
        if (kind == vcq::Unsignaled::write && (!tx_.plan().shares_vcq || runner_.posted_unsignaled()))
            report_failure(tx_.reports(), FI_RMA | FI_WRITE, nullptr, utofu_code);
    }

  private:
    template <bool read, bool entry>
    static void quick_done(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;
    [[nodiscard]] ssize_t quick_refused(vcq::Post posted) noexcept;
    [[nodiscard, gnu::noinline]] bool make_landing() noexcept;
    [[nodiscard]] bool goes_at_once(const void* buffer, std::size_t length, std::size_t limit, fi_addr_t to,
                                    std::uint64_t address, std::uint64_t key, Target& target) const noexcept;

    // The members that fi_inject_write reads stand together.
    TxContext& tx_;
    vcq::Vcq& vcq_;
    RemoteAccess access_;
    bool plain_inject_; ///< fi_inject_write may go out unsignaled
    std::size_t max_inline_;
    unsigned long inject_flags_;
    unsigned long write_flags_;
    unsigned long read_flags_;
    RmaRunner runner_;
    LocalMemory& memory_;
    std::size_t longest_; ///< longer transfers may take another rail (tx/rails.h), or several communications

    // Quick reads land here, each at its place of the window; allocated and registered at first use.
    OwnMemory landing_;
    utofu_stadd_t landing_stadd_ = 0;
};

/// The condition of all short ways: one segment of 1 to `limit` bytes, and the door to the peer's memory is open.
[[gnu::always_inline]] inline bool RmaEngine::goes_at_once(const void* buffer, std::size_t length, std::size_t limit,
                                                           fi_addr_t to, std::uint64_t address, std::uint64_t key,
                                                           Target& target) const noexcept
{
    return length - 1 < limit && buffer != nullptr && access_.resolve_at_once(to, key, address, target) != nullptr &&
           !runner_.waiting().may_hold(target.vcq);
}

[[gnu::always_inline]] inline ssize_t RmaEngine::inject_quickly(const void* data, std::size_t length, fi_addr_t to, std::uint64_t address,
                                                                std::uint64_t key) noexcept
{
    Target target;
    if (plain_inject_ && goes_at_once(data, length, max_inline_, to, address, key, target)) [[likely]]
        if (vcq_.put_inline(target.vcq, data, target.stadd, length, vcq::Silent{vcq::Unsignaled::write, inject_flags_}) ==
            vcq::Post::done) [[likely]]
            return 0;
    return not_quick;
}

} // namespace tofu
