// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// This process's endpoint of the provider and the addresses of all processes of the job. MPI is called by its profiling
// names.
#pragma once

#include <sys/types.h>

#include <mpi.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

namespace tofu_mpi {

/// Used by one thread at a time, as MPI_THREAD_SERIALIZED promises.
class Channel {
  public:
    Channel() noexcept = default;
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    /// Opens the endpoint. False: a step has failed; the provider logs the reason.
    [[nodiscard]] bool open() noexcept;
    /// Exchanges the addresses; collective over MPI_COMM_WORLD. False: this process has not got all addresses.
    [[nodiscard]] bool meet() noexcept;
    void close() noexcept;

    /// Fills in ranks[r], the rank in MPI_COMM_WORLD of the member with rank r. False: a member belongs to another job.
    /// All members get the same answer.
    [[nodiscard]] bool members(MPI_Comm comm, int* ranks, int size) const noexcept;
    /// Begins to join a group of these ranks. 0 or -FI_E*.
    [[nodiscard]] int join(const int* ranks, int size, fid_mc*& mc) noexcept;
    /// Waits until the join has ended. False: it has failed.
    [[nodiscard]] bool joined(const fid_mc& mc) noexcept;

    /// Posts an operation and waits for its end. 0 or FI_E*, positive. Meanwhile MPI makes progress, since other
    /// members may need a message of this process before they call.
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
    /// 0: the operation has ended. -1: not yet. Otherwise FI_E*.
    [[nodiscard]] int poll() noexcept;
    void progress_of_mpi() noexcept;

    static constexpr unsigned polls_per_test = 32; ///< MPI's progress takes as long as several polls

    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_eq* eq_ = nullptr;
    fid_cq* cq_ = nullptr;
    fid_ep* ep_ = nullptr;
    unsigned polls_ = 0;                   ///< not reset by an operation: many short ones also let MPI make progress
    MPI_Comm own_ = MPI_COMM_NULL;         ///< a copy of MPI_COMM_SELF
    MPI_Request never_ = MPI_REQUEST_NULL; ///< a receive on own_, matched in close(); testing it makes progress
    MPI_Group world_ = MPI_GROUP_NULL;
};

} // namespace tofu_mpi
