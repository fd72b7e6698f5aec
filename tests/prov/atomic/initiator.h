// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An initiator of atomics over the network with an adversary, and how its operations are made and driven to their
// ends. Used by the tests of the runner; calls the runner and the VCQ.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "atomic/atomic.h"
#include "mem/mr_directory.h"
#include "prov/atomic/oracle.h"
#include "prov/lib/fake_net.h"

namespace tofu::test {

using fake::Net;
using tofu::AtomicOp;
using tofu::AtomicRunner;
using Ends = std::map<void*, std::vector<int>>;

/// Where the lock words of wide elements lie in the memory.
inline constexpr std::uint64_t locks_at = 0xf000;

struct Initiator {
    tofu::vcq::Backend backend;
    tofu::vcq::Vcq vcq;
    tofu::PendingQueue pending;
    tofu::PeerMemory memory{vcq, true, {}};
    // The targets are known: no peer is looked up.
    tofu::RemoteMemory access{vcq, *static_cast<const tofu::Peers*>(static_cast<void*>(&pending)), memory};
    std::unique_ptr<AtomicRunner> runner;
    Ends ends;

    explicit Initiator(const tofu::vcq::Functions& functions = fake::functions()) : backend(functions, {}, 1)
    {
        Net::now().area = locks_at - tofu::directory::locks_offset;
        EXPECT_EQ(vcq.open(backend, 0, false, {}), 0);
        runner = std::make_unique<AtomicRunner>(vcq, pending, access);
    }
    ~Initiator() { vcq.close(); } // before the runner goes, as the endpoint does

    void round()
    {
        vcq.poll();
        if (!pending.empty())
            pending.resume();
        if (!runner->ops.retry_list.empty())
            runner->ops.retry_list.round();
    }
};

struct Shape {
    fi_op op;
    fi_datatype type;
    std::uint64_t offset; ///< into the memory
    std::size_t count;
    void* operand;
    void* compare;
    void* result;
};

inline Family family_of(fi_op op)
{
    return op >= FI_CSWAP ? tofu::Family::compare : tofu::Family::fetch;
}

inline AtomicOp* make(Initiator& who, const Shape& s, void* context = nullptr)
{
    AtomicOp* op = who.runner->ops.alloc();
    if (!op)
        return nullptr;
    op->reports = static_cast<const tofu::Reports*>(static_cast<void*>(&who.ends));
    op->completion.context = context;
    op->peer.target_vcq = 1;
    op->links.key = 1;
    op->kernel = tofu::kernel_of(s.op, s.type);
    op->method = tofu::lookup(family_of(s.op), s.op, s.type);
    op->op = s.op;
    op->size = tofu::datatypes[s.type].size;
    op->integer = atomic_oracle::is_integer(s.type);
    op->multi = op->method == tofu::Method::loop || op->method == tofu::Method::wide;
    op->reads_operand = s.op != FI_ATOMIC_READ;
    op->reads_compare = s.op >= FI_CSWAP;
    op->fetches = s.result != nullptr;
    op->strong = who.runner->ordered;
    op->total = s.count;
    if (op->reads_operand)
        op->operand.add(s.operand, s.count * op->size);
    if (op->reads_compare)
        op->compare.add(s.compare, s.count * op->size);
    if (s.result)
        op->result.add(s.result, s.count * op->size);
    op->add(0, s.count * op->size, 0);
    op->target[0].at = {1, Net::base + s.offset};
    return op;
}

/// Lets the network and the initiators go on, in random turns, until all have ended. False: they did not.
inline bool run(std::vector<Initiator*> all, unsigned limit = 2000000)
{
    Net& net = Net::now();
    for (unsigned i = 0; i < limit; ++i) {
        const auto who = net.random() % all.size();
        net.step(unsigned(all[who]->vcq.handle() - 1));
        if (net.random() % 2)
            all[who]->round();
        if (i % 64 == 0 &&
            std::all_of(all.begin(), all.end(), [](auto* x) { return x->runner->ops.outstanding() == 0; }))
            return true;
    }
    return false;
}

} // namespace tofu::test
