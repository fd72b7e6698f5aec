// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider's group of a communicator, for the communicator's life. Either all its members have one, or none. MPI is
// called by its profiling names.
#pragma once

#include <mpi.h>
#include <rdma/fabric.h>
#include <rdma/fi_collective.h>

namespace tofu_mpi {

class Channel;

/// The group and the properties of a communicator.
struct Group {
    fid_mc* mc = nullptr; ///< null: MPI executes its collectives
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    int rank = 0;
    int size = 0;
    Group* next = nullptr;
};

/// All groups of this process, each an attribute of its communicator. Used by one thread at a time.
class Groups {
  public:
    explicit Groups(Channel& channel) noexcept : channel_(channel) {}
    Groups(const Groups&) = delete;
    Groups& operator=(const Groups&) = delete;

    void open() noexcept;
    /// The group of a communicator other than MPI_COMM_NULL. Null: MPI executes its collectives. The first call for a
    /// communicator is collective.
    [[nodiscard]] const Group* of(MPI_Comm comm) noexcept
    {
        if (comm != last_comm_ && !look_up(comm)) [[unlikely]]
            return nullptr;
        return last_->mc != nullptr ? last_ : nullptr;
    }
    /// Closes all groups. MPI executes later collectives.
    void close() noexcept;

  private:
    [[nodiscard]] bool look_up(MPI_Comm comm) noexcept;
    [[nodiscard]] Group* found(MPI_Comm comm) noexcept;
    void join(MPI_Comm comm, const int* ranks, Group& group) noexcept;
    void leave(Group& group) noexcept;
    static int drop(MPI_Comm comm, int keyval, void* value, void* groups) noexcept;

    Channel& channel_;
    int key_ = MPI_KEYVAL_INVALID;
    bool able_ = true; ///< false after a failed join: a later join of the same members might meet that one
    Group none_;       ///< the entry of communicators without a group
    Group* first_ = nullptr;
    Group* last_ = &none_; ///< the result of the last look_up()
    /// The communicator of last_. It has our attribute, so drop() clears this before MPI reuses the handle.
    MPI_Comm last_comm_ = MPI_COMM_NULL;
};

} // namespace tofu_mpi
