// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A second endpoint of each process, made as a check wants it: queues of any format and wait object, counters of any
// binding, an address vector that knows all ranks.
#pragma once

#include <cstdint>

#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "world.h"

namespace fabtests {

struct StationOptions {
    fi_cq_format format = FI_CQ_FORMAT_TAGGED;
    fi_wait_obj wait = FI_WAIT_NONE;
    fid_wait* wait_set = nullptr; ///< for FI_WAIT_SET
    fi_cq_wait_cond condition = FI_CQ_COND_NONE;
    std::size_t queue_size = 1024;
    bool selective = false;
    bool one_queue = false;     ///< the same for both directions
    std::uint64_t counters = 0; ///< FI_SEND | FI_RECV | ...: one counter for each
    fi_wait_obj counter_wait = FI_WAIT_NONE;
    std::size_t min_multi_recv = 0;
    bool events = false;      ///< bound to an event queue
    bool knows_others = true; ///< their addresses are in the address vector
};

/// One entry of a queue: a success, or an error with its code.
struct Entry {
    fi_cq_tagged_entry ok{};
    fi_cq_err_entry error{}; ///< err 0: a success
    fi_addr_t source = FI_ADDR_NOTAVAIL;
};

/// All ranks make theirs at the same time: it meets the others.
class Station final : public Polled {
  public:
    explicit Station(World& world, const StationOptions& options = {});
    Station(const Station&) = delete;
    ~Station();

    /// False: the provider has not got what the options ask for (the reason is in refusal()). Others only.
    bool opened() const { return refusal_ == 0; }
    int refusal() const { return refusal_; }
    fid_ep* ep() { return ep_; }
    fid_av* av() { return av_; }
    fid_cq* tx() { return tx_; }
    fid_cq* rx() { return rx_; }
    fid_eq* eq() { return eq_; } ///< StationOptions::events
    fid_cntr* counter(std::uint64_t flag);
    fi_addr_t peer(unsigned rank) const { return addresses_[rank]; }
    void poll() override;

    /// The next entry of a queue of format TAGGED; gives up when none comes.
    Entry wait(fid_cq* cq);
    bool quiet(fid_cq* cq);
    /// Waits until the counter has the value.
    bool reaches(fid_cntr* counter, std::uint64_t value);
    template <class F>
    ssize_t post(F call)
    {
        ssize_t rc;
        while ((rc = call()) == -FI_EAGAIN)
            world_.progress();
        return rc;
    }

  private:
    int open();
    int open_queues();
    int open_counters();
    int meet();

    static constexpr unsigned counter_kinds = 6;
    World& world_;
    const StationOptions options_;
    int refusal_ = 0;
    fid_av* av_ = nullptr;
    fid_cq* tx_ = nullptr;
    fid_cq* rx_ = nullptr;
    fid_eq* eq_ = nullptr;
    fid_cntr* counters_[counter_kinds] = {};
    fid_ep* ep_ = nullptr;
    fi_addr_t addresses_[max_ranks] = {};
};

} // namespace fabtests
