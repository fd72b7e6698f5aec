// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the provider's group of a communicator, for the communicator's life: all its members have one, or none has.
// Calls MPI by its profiling names.
#pragma once

#include <mpi.h>
#include <rdma/fabric.h>
#include <rdma/fi_collective.h>

namespace tofu_mpi {

class Channel;

/// What is known of a communicator.
struct Group {
    fid_mc* mc = nullptr; ///< null: its collectives are MPI's
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    int rank = 0;
    int size = 0;
    Group* next = nullptr;
};

/// All of this process, as attributes of their communicators.
class Groups {
  public:
    explicit Groups(Channel& channel) noexcept : channel_(channel) {}
    Groups(const Groups&) = delete;
    Groups& operator=(const Groups&) = delete;

    void open() noexcept;
    /// Of a communicator that is none of MPI_COMM_NULL; null where its collectives are MPI's. The first call of a
    /// communicator is collective.
    [[nodiscard]] const Group* of(MPI_Comm comm) noexcept
    {
        if (comm != last_comm_ && !look_up(comm)) [[unlikely]]
            return nullptr;
        return last_->mc != nullptr ? last_ : nullptr;
    }
    /// All; what is called from now on goes to MPI.
    void close() noexcept;

  private:
    [[nodiscard]] bool look_up(MPI_Comm comm) noexcept;
    [[nodiscard]] Group* found(MPI_Comm comm) noexcept;
    void join(MPI_Comm comm, const int* ranks, Group& group) noexcept;
    void leave(Group& group) noexcept;
    static int drop(MPI_Comm comm, int keyval, void* value, void* groups) noexcept;

    Channel& channel_;
    int key_ = MPI_KEYVAL_INVALID;
    bool able_ = true; ///< until a join has failed: the next one of the same members might meet another of theirs
    Group none_;       ///< of communicators without
    Group* first_ = nullptr;
    Group* last_ = &none_; ///< the last one asked for
    /// Its communicator, which has our attribute: drop() clears this before MPI gives the handle to another one.
    MPI_Comm last_comm_ = MPI_COMM_NULL;
};

} // namespace tofu_mpi
