// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The parts of the program for fi_endpoint(3), and what they share. All ranks call each.
#pragma once

#include "../queues/queue_checks.h"

namespace fabtests {

/// An endpoint that is not enabled yet, closed at the end. Null: refused, which only others may do.
struct Bare {
    World& w;
    fid_ep* ep = nullptr;
    explicit Bare(World& world) : w(world)
    {
        fi_info* info = w.further_info();
        const int rc = fi_endpoint(w.domain(), info, &ep, this);
        fi_freeinfo(info);
        CHECK(w, rc == 0 || !w.ours());
        if (rc != 0)
            ep = nullptr;
    }
    Bare(const Bare&) = delete;
    ~Bare()
    {
        if (ep != nullptr)
            CHECK(w, fi_close(&ep->fid) == 0);
    }
    explicit operator bool() const { return ep != nullptr; }
};

/// A domain beside the world's with an address vector: for endpoints of other kinds. `why` tells what was refused.
class Realm {
  public:
    Realm(World& world, std::size_t tx_contexts, std::size_t rx_contexts, std::uint64_t more_caps, int rx_ctx_bits);
    Realm(const Realm&) = delete;
    ~Realm();
    /// False: the provider has not got it. Others only.
    bool opened() const { return av_ != nullptr; }
    const fi_info& info() const { return *info_; }
    fid_domain* domain() { return domain_; }
    fid_av* av() { return av_; }
    fid_cq* open_queue();
    /// Of another rank's object of the same kind: all ranks call it.
    fi_addr_t meet(fid* object, unsigned peer);
    void close(fid* object)
    {
        if (object != nullptr)
            CHECK(w, fi_close(object) == 0);
    }
    /// The next entry of a queue, with progress for `others`. Its error, or 0.
    int wait(fid_cq* cq, std::span<fid_cq* const> others, fi_cq_tagged_entry& entry);

  private:
    World& w;
    fi_info* info_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
};

void ep_scalable(World& world); ///< fi_scalable_ep, fi_tx_context, fi_rx_context
void ep_scalable_refusals(World& world);
void ep_shared_transmit(World& world); ///< fi_stx_context
void ep_shared_receive(World& world);  ///< fi_srx_context

} // namespace fabtests
