// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See group.h.
#include "group.h"

#include <cstddef>
#include <memory>
#include <new>

#include <rdma/fi_collective.h>

#include "channel.h"

namespace tofu_mpi {

namespace {

/// True if all members pass true. Uses MPI's own reduction, since the communicator has no group yet.
bool all(MPI_Comm comm, bool mine) noexcept
{
    int good = mine ? 1 : 0;
    return PMPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && good == 1;
}

} // namespace

void Groups::open() noexcept
{
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop, &key_, this) != MPI_SUCCESS)
        able_ = false;
}

void Groups::close() noexcept
{
    while (first_ != nullptr)
        leave(*first_);
    if (key_ != MPI_KEYVAL_INVALID)
        PMPI_Comm_free_keyval(&key_);
}

/// Sets last_ and last_comm_ to the communicator. False: the handle is invalid, which MPI's own call will report. Such
/// a handle is not kept: no callback would say when MPI gives it to a new communicator.
bool Groups::look_up(MPI_Comm comm) noexcept
{
    void* value = nullptr;
    int present = 0;
    if (PMPI_Comm_get_attr(comm, key_, &value, &present) != MPI_SUCCESS)
        return false;
    last_ = present != 0 ? static_cast<Group*>(value) : found(comm);
    last_comm_ = comm;
    return true;
}

/// Creates the entry of a new communicator. All members get the same result: they compare the same ranks, and vote on
/// everything else.
Group* Groups::found(MPI_Comm comm) noexcept
{
    int inter = 0;
    Group seen;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &seen.rank);
    PMPI_Comm_size(comm, &seen.size);
    Group* group = &none_;
    if (inter == 0 && seen.size > 1) {
        group = new (std::nothrow) Group(seen);
        std::unique_ptr<int[]> ranks(new (std::nothrow) int[static_cast<std::size_t>(seen.size)]);
        if (group == nullptr || ranks == nullptr)
            PMPI_Abort(MPI_COMM_WORLD, 1); // otherwise the other members would wait for this one's vote
        group->next = first_;
        first_ = group;
        if (channel_.members(comm, ranks.get(), seen.size))
            join(comm, ranks.get(), *group);
    }
    // Without the attribute the next call would be the first one of this member only.
    if (PMPI_Comm_set_attr(comm, key_, group) != MPI_SUCCESS)
        PMPI_Abort(MPI_COMM_WORLD, 1);
    return group;
}

/// Joins a group. A join ends only when all members have called. So the members vote twice: whether all could call, and
/// whether the join of all has succeeded.
void Groups::join(MPI_Comm comm, const int* ranks, Group& group) noexcept
{
    fid_mc* mc = nullptr;
    able_ = able_ && channel_.join(ranks, group.size, mc) == 0;
    if (all(comm, able_) && all(comm, channel_.joined(*mc))) {
        group.mc = mc;
        group.address = fi_mc_addr(mc);
    } else if (mc != nullptr) {
        (void)fi_close(&mc->fid);
    }
}

void Groups::leave(Group& group) noexcept
{
    for (Group** at = &first_; *at != nullptr; at = &(*at)->next)
        if (*at == &group) {
            *at = group.next;
            break;
        }
    if (group.mc != nullptr)
        (void)fi_close(&group.mc->fid);
    group.mc = nullptr;
}

/// Called when the communicator is freed: by MPI_Comm_free, MPI_Comm_disconnect, or MPI_Finalize after close(). A
/// communicator without a group also has the attribute, since MPI may reuse its handle in this process only.
int Groups::drop(MPI_Comm, int, void* value, void* groups) noexcept
{
    auto& self = *static_cast<Groups*>(groups);
    auto* group = static_cast<Group*>(value);
    self.last_comm_ = MPI_COMM_NULL;
    self.last_ = &self.none_;
    if (group == &self.none_)
        return MPI_SUCCESS;
    self.leave(*group);
    delete group;
    return MPI_SUCCESS;
}

} // namespace tofu_mpi
