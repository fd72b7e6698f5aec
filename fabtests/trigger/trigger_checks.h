// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the checks of fi_trigger(3) have in common: a counter, and an operation of any type to the next rank, which can
// wait for it. Used by this folder; calls the world.
#pragma once

#include <cstdint>

#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include "../common/bytes.h"
#include "../common/world.h"

namespace fabtests {

/// A counter that nothing is bound to.
class Count {
  public:
    explicit Count(World& w);
    Count(const Count&) = delete;
    ~Count();
    fid_cntr* get() const { return counter_; }
    void add(std::uint64_t n) const { (void)fi_cntr_add(counter_, n); }
    /// Waits by this counter alone.
    bool reaches(std::uint64_t value) const;

  private:
    World& w_;
    fid_cntr* counter_ = nullptr;
};

/// A domain beside the world's, and a counter there.
struct Foreign {
    explicit Foreign(World& w);
    Foreign(const Foreign&) = delete;
    ~Foreign();

    World& w;
    fi_info* info; ///< for further endpoints of the world's own domain, too
    fid_domain* domain = nullptr;
    fid_cntr* counter = nullptr;
};

inline constexpr std::size_t op_size = 96;                    ///< bytes of a message, of a read and of a write
inline constexpr std::uint64_t op_tag = 0x7a9;                ///< of tagged ones
inline constexpr std::uint64_t word_before = 40, operand = 2; ///< of atomics: 42 by a sum, 2 by a swap where it is 40

/// One operation on buffers of its own, from this rank to the next or, a receive, from the one before.
struct Operation {
    Operation(World& w, fi_op_type type, void* context);
    Operation(const Operation&) = delete;

    /// fi_sendmsg and its like.
    ssize_t call(std::uint64_t flags);
    /// The request that does the same later.
    fi_deferred_work work(const Count& trigger, std::uint64_t threshold, fid_cntr* done, std::uint64_t flags = 0);
    /// What the other side of a message does: before it may come, and when it may.
    void meet();
    void answer();
    /// Nothing has happened yet, in this process; everything has.
    bool untouched();
    bool happened();

    World& w;
    fi_op_type type;
    unsigned next, before;
    iovec iov, landing;
    void* desc;
    fi_rma_iov remote;
    fi_ioc from, compare, result;
    fi_rma_ioc word;
    fi_msg msg{};
    fi_msg_tagged tagged{};
    fi_msg_rma rma{};
    fi_msg_atomic atomic{};
    fi_msg_fetch fetch{};
    fi_msg_compare with{};
    fi_op_msg op_msg{};
    fi_op_tagged op_tagged{};
    fi_op_rma op_rma{};
    fi_op_atomic op_atomic{};
    fi_op_fetch_atomic op_fetch{};
    fi_op_compare_atomic op_compare{};
};

inline constexpr fi_op_type transfers[] = {
    FI_OP_RECV,  FI_OP_SEND,   FI_OP_TRECV,        FI_OP_TSEND,          FI_OP_READ,
    FI_OP_WRITE, FI_OP_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_COMPARE_ATOMIC,
};

// flag.cc
void check_capability(World& w);
void check_every_transfer(World& w);
void check_order(World& w);
void check_default_flag(World& w);
void check_inject(World& w);
void check_cancel(World& w);
void check_bad_conditions(World& w);
// work.cc
void check_every_work(World& w);
void check_counter_work(World& w);
void check_chain(World& w);
void check_cancel_and_flush(World& w);
void check_failures(World& w);
void check_closing(World& w);
void check_bad_work(World& w);
void check_many(World& w);

} // namespace fabtests
