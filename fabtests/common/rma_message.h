// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_writemsg and fi_readmsg are given, for one local and one remote segment. Used by the programs for fi_rma(3)
// and fi_mr(3); calls the world.
#pragma once

#include <rdma/fi_rma.h>

#include "world.h"

namespace fabtests {

/// Stays where it is as long as `msg` is in use, for that points into it; its own address is the context.
struct RmaMessage {
    iovec iov;
    fi_rma_iov remote;
    void* desc;
    fi_msg_rma msg{};
    RmaMessage(World& w, void* buffer, std::size_t length, unsigned target, std::size_t offset)
        : iov{buffer, length}, remote{w.address(target, offset), length, w.key(target)}, desc(w.desc())
    {
        msg.msg_iov = &iov;
        msg.desc = &desc;
        msg.iov_count = 1;
        msg.addr = w.peer(target);
        msg.rma_iov = &remote;
        msg.rma_iov_count = 1;
        msg.context = this;
    }
    RmaMessage(const RmaMessage&) = delete;
};

} // namespace fabtests
