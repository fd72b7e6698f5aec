// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: this process's endpoint of the provider and the addresses of all processes of the job. Calls MPI by
// its profiling names.
#pragma once

#include <sys/types.h>

#include <mpi.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

namespace tofu_mpi {

/// One thread at a time uses it, as MPI_THREAD_SERIALIZED promises.
class Channel {
  public:
    Channel() noexcept = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    /// False: no provider, or no queue of it is left.
    [[nodiscard]] bool open() noexcept;
    /// Collective over MPI_COMM_WORLD. False: this process knows not all.
    [[nodiscard]] bool meet() noexcept;
    void close() noexcept;

    /// Rank in MPI_COMM_WORLD by rank in the communicator. False: a member is of another job, as all members find.
    [[nodiscard]] bool members(MPI_Comm comm, int* ranks, int size) const noexcept;
    /// Begins a join of these. 0 or libfabric's error.
    [[nodiscard]] int join(const int* ranks, int size, fid_mc*& mc) noexcept;
    /// Waits for the end of a join. False: it has failed.
    [[nodiscard]] bool joined(const fid_mc& mc) noexcept;

    /// Posts, and waits for the end: 0 or libfabric's error, positive. MPI makes progress meanwhile, since others may
    /// need a message of ours before they call.
    template <class Post>
    [[nodiscard]] int run(Post&& post) noexcept
    {
        ssize_t rc = 0;
        while ((rc = post(ep_)) == -FI_EAGAIN)
            if (const int err = poll(); err > 0)
                return err;
        int err = static_cast<int>(-rc);
        if (rc == 0)
            while ((err = poll()) < 0) {
            }
        return err;
    }

  private:
    /// 0: the operation has ended, -1: not yet; or its error.
    [[nodiscard]] int poll() noexcept;
    void progress_of_mpi() noexcept;

    static constexpr unsigned polls_per_test = 32; ///< MPI's progress costs several of our polls

    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_eq* eq_ = nullptr;
    fid_cq* cq_ = nullptr;
    fid_ep* ep_ = nullptr;
    unsigned polls_ = 0;                   ///< across operations, so that MPI gets its turn behind many short ones too
    MPI_Comm own_ = MPI_COMM_NULL;         ///< of this process alone
    MPI_Request never_ = MPI_REQUEST_NULL; ///< a receive there, until close(): testing it only makes progress
    MPI_Group world_ = MPI_GROUP_NULL;
};

} // namespace tofu_mpi
