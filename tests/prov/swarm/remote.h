// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Carries out the calls of a program that concern regions: opens and closes them, reads, writes, atomics.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include "remote_model.h"

namespace swarm {

class Remote {
  public:
    static constexpr unsigned region_slots = 3; ///< of a process

    /// An atomic operation, in the form that takes flags.
    struct AtomicCall {
        fi_msg_atomic message;
        const fi_ioc *compare, *result; ///< null: without
        std::uint64_t flags;
        ssize_t post(fid_ep* ep, std::uint64_t flags) const;
    };

    /// Whose calls they are, and how a call that finds no room is repeated.
    struct Caller {
        fid_ep* ep;
        Endpoint* life;
        fi_addr_t to_address;
        Endpoint* to;
        std::size_t inject_size;
        std::function<ssize_t(const std::function<ssize_t()>&)> try_to;
        std::function<ssize_t(Access&, const fi_msg_rma&, std::uint64_t flags)> defer; ///< of what waits for a counter
        std::function<ssize_t(Access&, const AtomicCall&)> defer_atomic;
    };

    Remote(RemoteModel& model, const Setup& setup) : model_(model), setup_(setup) {}
    void open(unsigned process, fid_domain* domain, int mr_mode, const Command& command);
    /// Does nothing where there is no such region.
    void close(unsigned process, unsigned slot, bool killed);
    /// Closes all regions of a process and then their counters.
    void close_all(unsigned process, bool killed);
    /// A process and its objects are gone.
    void lose_all(unsigned process);
    /// What regions' counters show, of those that are closed as well.
    [[nodiscard]] bool counts_hold(unsigned process, bool last);
    /// A read, a write or an atomic. What it returned is 0, -FI_EAGAIN or an error that the model permits; null:
    /// nothing was called.
    const Access* access(const Caller& caller, const Command& command);

  private:
    /// A region, and what it has of libfabric.
    struct Held {
        Region* region = nullptr;
        fid_mr* mr = nullptr;       ///< null: closed
        fid_mr* twin = nullptr;     ///< another region of the same memory, with a key that no access uses
        fid_cntr* counters[2] = {}; ///< of reads and writes
        std::uint64_t key = 0, base = 0;
    };
    [[nodiscard]] Held* find(unsigned process, unsigned slot);
    [[nodiscard]] bool add_part(Access& access, const Command& command, unsigned slot, std::size_t& at);
    [[nodiscard]] ssize_t post(const Caller& caller, Access& access, const Command& command);
    [[nodiscard]] ssize_t post_atomic(const Caller& caller, Access& access, const Command& command);

    RemoteModel& model_;
    const Setup& setup_;
    std::vector<Held> held_; ///< all lives
};

/// What the endpoints of a process ask for.
void ask_for_remote(fi_info& hints, const Setup& setup, unsigned process);

} // namespace swarm
