// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See collectives.h.
#include "coll/collectives.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "atomic/op_table.h"
#include "coll/av_set.h"
#include "coll/plan.h"
#include "core/log.h"
#include "cq/eq.h"
#include "tx/ep_handle.h"

namespace tofu::coll {

namespace {

constexpr std::uint64_t known_flags = FI_COMPLETION | FI_MORE | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
                                      FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COLLECTIVE;
// The address of a group: the top bit, which the address of a set never has; a serial number; the index in by_number_.
constexpr std::uint64_t group_bit = std::uint64_t{1} << 63;
constexpr unsigned index_bits = 20;
constexpr std::uint64_t index_mask = (std::uint64_t{1} << index_bits) - 1;
/// Shared by all endpoints, so the address of a group of one endpoint is no address of a group of another.
constinit std::atomic<std::uint64_t> serials{0};
constexpr std::uint64_t serial_mask = (std::uint64_t{1} << (62 - index_bits)) - 1;

std::uint64_t identity_of(const Peer& peer) noexcept
{
    return directory::mix(directory::mix(peer.target_vcq ^ peer.nonce) + peer.index);
}

/// True if the operation needs this buffer of the member.
bool needs_in(const Shape& shape, bool root) noexcept
{
    return shape.coll != FI_BROADCAST && (shape.coll != FI_SCATTER || root);
}
bool needs_out(const Shape& shape, bool root) noexcept
{
    return (shape.coll != FI_REDUCE && shape.coll != FI_GATHER) || root;
}

/// fi_cm(3), fi_join: FI_SEND and FI_RECV restrict what a member may do, subject to the endpoint's capabilities. Both
/// together are no restriction. Each member of a collective sends and receives, so one alone is refused.
int check_join(std::uint64_t flags, std::uint64_t caps) noexcept
{
    constexpr std::uint64_t directions = FI_SEND | FI_RECV;
    if ((flags & ~directions) != FI_COLLECTIVE)
        return -FI_EBADFLAGS;
    const std::uint64_t wanted = flags & directions;
    const std::uint64_t missing = (caps & directions) != 0 ? wanted & ~caps : 0;
    if (wanted == 0 || (wanted == directions && missing == 0))
        return 0;
    TOFU_WARN(FI_LOG_EP_CTRL, "fi_join_collective: %s\n",
              missing != 0
                  ? "the endpoint lacks the capability for a direction in flags: open it with FI_SEND and FI_RECV"
                  : "members send and receive: pass both FI_SEND and FI_RECV, or neither");
    return -FI_EOPNOTSUPP;
}

} // namespace

Collectives::Collectives(TxContext& tx) noexcept : tx_(tx), ops_(std::max<std::size_t>(tx.config().attr.size, 1)) {}

Collectives::~Collectives()
{
    for (Group* group : groups_) {
        group->lanes().deregister_local();
        delete group;
    }
}

// --- groups

Group* Collectives::find(fi_addr_t address) const noexcept
{
    const std::uint64_t index = address & index_mask;
    if ((address & group_bit) == 0 || index >= by_number_.size())
        return nullptr;
    Group* const group = by_number_[index];
    return group != nullptr && group->fi_addr == address ? group : nullptr;
}

/// Collects the members of the set by rank, the hash of the list, which all its joins have in common, and our rank.
int Collectives::collect(const fi_collective_addr& address, Roster& roster, std::uint64_t& list) const noexcept
{
    if (address.set == nullptr || !is_ours(&address.set->fid, FI_CLASS_AV_SET))
        return -FI_EINVAL;
    const AvSet& set = static_cast<const AvSet&>(*address.set);
    if (&set.peers() != &tx_.peers() || set.members().empty() || set.members().size() > max_members)
        return -FI_EINVAL;
    const Group* parent = nullptr; // the group whose members are joined; null: a group of the whole set
    if (address.coll_addr != FI_ADDR_NOTAVAIL && address.coll_addr != set.address()) {
        parent = find(address.coll_addr);
        if (parent == nullptr || !parent->joined())
            return -FI_EINVAL;
    }
    Array<std::uint64_t> names; // sorted, to find duplicates and members that are not in the parent
    Array<std::uint64_t> allowed;
    const unsigned parents = parent != nullptr ? parent->roster().size() : 0;
    if (!roster.members.reserve(set.members().size()) || !names.reserve(set.members().size()) ||
        !allowed.reserve(parents))
        return -FI_ENOMEM;
    for (unsigned i = 0; i < parents; i++)
        allowed.push_reserved(identity_of(parent->roster().members[i]));
    std::sort(allowed.begin(), allowed.end());
    const EndpointAddress& own = tx_.config().known;
    const Peer self{own.target_vcq, own.nonce, own.index, 0, false, 0};
    bool present = false;
    list = parents;
    for (const fi_addr_t at : set.members()) {
        const Peer* const peer = tx_.peers().find(at);
        if (peer == nullptr)
            return -FI_EINVAL; // the address was removed from the vector
        const std::uint64_t name = identity_of(*peer);
        if (parent != nullptr && !std::binary_search(allowed.begin(), allowed.end(), name))
            return -FI_EINVAL;
        if (name == identity_of(self)) {
            roster.rank = roster.size();
            present = true;
        }
        list = directory::mix(list ^ name);
        names.push_reserved(name);
        roster.members.push_reserved(*peer);
    }
    std::sort(names.begin(), names.end());
    const bool twice = std::adjacent_find(names.begin(), names.end()) != names.end();
    if (twice || !present)
        TOFU_WARN(FI_LOG_EP_CTRL, "fi_join_collective: %s: correct the address vector set\n",
                  twice ? "an endpoint is in the set twice" : "this endpoint is not in the set");
    return twice || !present ? -FI_EINVAL : 0;
}

int Collectives::join(EventQueue& events, const void* address, std::uint64_t flags, fid_mc** mc, void* context) noexcept
{
    if (address == nullptr || mc == nullptr)
        return -FI_EINVAL;
    if (const int ret = check_join(flags, tx_.config().caps); ret != 0)
        return ret;
    destroy_left();
    Roster roster;
    std::uint64_t list = 0, number = 0;
    {
        std::lock_guard guard(tx_.lock());
        if (int ret = collect(*static_cast<const fi_collective_addr*>(address), roster, list); ret != 0)
            return ret;
        // If two threads join the same members, the application orders them.
        if (!allocates([&] { joins_.try_emplace(list, 0); }))
            return -FI_ENOMEM;
        number = joins_[list]++;
    }
    const std::uint64_t key = directory::mix(list + number * 0x9e3779b97f4a7c15u);
    std::unique_ptr<Group> group(new (std::nothrow) Group(*this, tx_, {&events, key, static_cast<unsigned>(number)},
                                                          std::move(roster), context));
    int ret = group == nullptr ? -FI_ENOMEM : group->open();
    if (ret == 0)
        ret = enter(*group);
    if (ret != 0) {
        {
            std::lock_guard guard(tx_.lock());
            --joins_[list];
        }
        if (group != nullptr)
            group->destroy(true);
        return ret;
    }
    group->lanes().show(LaneEntry::open); // from here on neighbours may write, and nothing fails
    *mc = group.release();
    return static_cast<int>(tx_.call_locked([] { return ssize_t{0}; }));
}

/// Adds the group to the lists and begins its join.
int Collectives::enter(Group& group) noexcept
{
    std::lock_guard guard(tx_.lock());
    auto index = std::ranges::find(by_number_, nullptr);
    if (index == by_number_.end()) {
        if (by_number_.size() > index_mask)
            return -FI_ENOSPC;
        if (!by_number_.push(nullptr))
            return -FI_ENOMEM;
        index = std::prev(by_number_.end());
    }
    if (!groups_.reserve(groups_.size() + 1))
        return -FI_ENOMEM;
    if (int ret = group.lanes().register_local(); ret != 0)
        return ret;
    group.fi_addr = group_bit | (serials.fetch_add(1, std::memory_order_relaxed) & serial_mask) << index_bits |
                    static_cast<std::uint64_t>(index - by_number_.begin());
    *index = &group;
    hold();
    groups_.push_reserved(&group);
    wake(group);
    group.progress();
    return 0;
}

int Collectives::close_group(Group& group) noexcept
{
    {
        std::lock_guard guard(tx_.lock());
        by_number_[group.fi_addr & index_mask] = nullptr;
        group.closing = true;
        group.leave();
    }
    group.events().forget(group.fid);
    if (group.all_found())
        group.lanes().hide();
    else
        group.lanes().show(LaneEntry::given_up);
    {
        std::lock_guard guard(tx_.lock());
        group.closing = false;
    }
    destroy_left();
    release(); // the application may close the endpoint from here on
    return 0;
}

/// Releases the closed groups into which no peer writes any more.
void Collectives::destroy_left() noexcept
{
    for (;;) {
        Group* found = nullptr;
        {
            std::lock_guard guard(tx_.lock());
            for (Group* group : groups_) {
                if (!tx_.reports().closing) // else a question fails, whether the peer lives or not
                    group->find_dead();
                if (!group->listed_busy && !group->closing && group->is_quiescent()) {
                    found = group;
                    break;
                }
            }
            if (found == nullptr)
                return;
            groups_.erase(found);
            found->lanes().deregister_local();
        }
        found->destroy(true);
        delete found;
    }
}

void Collectives::destroy_all() noexcept
{
    destroy_left();
    for (Group* group : groups_)
        group->destroy(group->is_quiescent());
}

// --- progress

void Collectives::wake(Group& group) noexcept
{
    if (!std::exchange(group.listed_busy, true))
        group.next_busy = std::exchange(busy_, &group);
}

void Collectives::work() noexcept
{
    for (Group** at = &busy_; *at != nullptr;) {
        Group& group = **at;
        group.progress();
        // A group that is woken by progress() is inserted at the front; `at` then moves on to this group again.
        while (*at != &group)
            at = &(*at)->next_busy;
        if (group.busy()) {
            at = &group.next_busy;
        } else {
            group.listed_busy = false;
            *at = group.next_busy;
        }
    }
}

bool Collectives::all_has_left() const noexcept
{
    return std::ranges::all_of(groups_, &Group::idle);
}

bool Collectives::all_quiescent() const noexcept
{
    return std::ranges::all_of(groups_, &Group::is_quiescent);
}

// --- operations

ssize_t Collectives::submit(const Call& call) noexcept
{
    Group* const group = find(call.group);
    if (group == nullptr)
        return -FI_EINVAL;
    if (!group->joined())
        return -FI_EOPBADSTATE;
    if ((call.flags & ~known_flags) != 0)
        return -FI_EBADFLAGS;
    const Shape& shape = call.shape;
    if (int ret = check_support(shape.coll, shape.type, shape.op); ret != 0)
        return ret;
    if (shape.root >= group->roster().size())
        return -FI_EINVAL;
    if (shape.coll != FI_BARRIER && shape.count != 0) {
        const bool root = shape.root == group->roster().rank;
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(shape.count, datatypes[shape.type].size * std::size_t{group->roster().size()},
                                   &bytes) ||
            bytes > max_bytes * group->roster().size() || shape.count > max_bytes / datatypes[shape.type].size)
            return -FI_EMSGSIZE;
        if ((needs_in(shape, root) && call.in == nullptr) || (needs_out(shape, root) && call.out == nullptr))
            return -FI_EINVAL;
    }
    CollectiveOp* op = ops_.alloc();
    if (op == nullptr) {
        tx_.progress();
        op = ops_.alloc();
        if (op == nullptr)
            return -FI_EAGAIN;
    }
    op->shape = shape;
    op->in = call.in;
    op->out = call.out;
    op->report_to(tx_.reports(), FI_COLLECTIVE, call.context, tx_.reports().binding.reports(call.flags));
    op->err = op->prov_errno = 0;
    const int ret = group->submit(*op);
    if (ret != 0)
        ops_.release(op);
    return ret;
}

void Collectives::end(CollectiveOp& op) noexcept
{
    if (op.err == 0)
        tx_.vcq().statistics().count(op.native.rounds != 0 ? Stat::collective_gates : Stat::collective_puts);
    complete(op);
    ops_.release(&op);
}

// fi_collective(3): the calls of the application, each a thin entry over Collectives::submit.

namespace {

ssize_t submit(fid_ep* fid, const Collectives::Call& call) noexcept
{
    TxContext& tx = *EpHandle::of(fid).tx;
    return tx.call_locked([&] { return Collectives::of(tx).submit(call); });
}

/// The root is a rank in the group. An impossible rank is rejected.
constexpr unsigned root_of(fi_addr_t address) noexcept
{
    return address < ~0u ? static_cast<unsigned>(address) : ~0u;
}

ssize_t barrier2(fid_ep* ep, fi_addr_t group, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{}, nullptr, nullptr, group, flags, context});
}
ssize_t barrier(fid_ep* ep, fi_addr_t group, void* context) noexcept
{
    return barrier2(ep, group, EpHandle::of(ep).tx_flags & ~FI_INJECT, context);
}
ssize_t broadcast(fid_ep* ep, void* buf, size_t count, void*, fi_addr_t group, fi_addr_t root, fi_datatype type,
                  uint64_t flags, void* context) noexcept
{
    return submit(ep, {{FI_BROADCAST, type, FI_NOOP, count, root_of(root)}, nullptr, buf, group, flags, context});
}
/// Calls with a block of each member.
template <fi_collective_op coll>
ssize_t exchange(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group,
                 fi_datatype type, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{coll, type, FI_NOOP, count, 0}, buf, result, group, flags, context});
}

/// Reductions.
template <fi_collective_op coll>
ssize_t combine(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group,
                fi_datatype type, fi_op op, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{coll, type, op, count, 0}, buf, result, group, flags, context});
}

ssize_t reduce(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group, fi_addr_t root,
               fi_datatype type, fi_op op, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{FI_REDUCE, type, op, count, root_of(root)}, buf, result, group, flags, context});
}

/// Blocks of all members, from the root or to the root.
template <fi_collective_op coll>
ssize_t move(fid_ep* ep, const void* buf, size_t count, void*, void* result, void*, fi_addr_t group, fi_addr_t root,
             fi_datatype type, uint64_t flags, void* context) noexcept
{
    return submit(ep, {{coll, type, FI_NOOP, count, root_of(root)}, buf, result, group, flags, context});
}

} // namespace

fi_ops_collective collective_ops = {
    .size = sizeof(fi_ops_collective),
    .barrier = barrier,
    .broadcast = broadcast,
    .alltoall = exchange<FI_ALLTOALL>,
    .allreduce = combine<FI_ALLREDUCE>,
    .allgather = exchange<FI_ALLGATHER>,
    .reduce_scatter = combine<FI_REDUCE_SCATTER>,
    .reduce = reduce,
    .scatter = move<FI_SCATTER>,
    .gather = move<FI_GATHER>,
    .msg = unsupported<-FI_ENOSYS>, // no manual page describes it, and no call of libfabric reaches it
    .barrier2 = barrier2,
};

} // namespace tofu::coll
