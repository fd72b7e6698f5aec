// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, communicators: their members, and the separation of their messages.
#include "harness.h"

namespace mpitest {

void comm_dup_split(const World& world)
{
    MPI_Comm copy;
    MPITEST_CALL(MPI_Comm_dup(world.comm, &copy));
    int result = MPI_UNEQUAL;
    MPI_Comm_compare(world.comm, copy, &result);
    MPITEST_CHECK(result == MPI_CONGRUENT);
    int sum = 0;
    MPITEST_CALL(MPI_Allreduce(&world.rank, &sum, 1, MPI_INT, MPI_SUM, copy));
    MPITEST_CHECK(sum == world.size * (world.size - 1) / 2);
    MPI_Comm_free(&copy);

    // Odd and even, ranked backwards.
    MPI_Comm half;
    MPITEST_CALL(MPI_Comm_split(world.comm, world.rank % 2, -world.rank, &half));
    int rank = -1;
    int size = -1;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    const int members = (world.size + 1 - world.rank % 2) / 2;
    MPITEST_CHECK(size == members && rank == members - 1 - world.rank / 2);
    std::vector<int> all(static_cast<size_t>(size), -1);
    MPITEST_CALL(MPI_Allgather(&world.rank, 1, MPI_INT, all.data(), 1, MPI_INT, half));
    for (int i = 0; i < size; i++)
        MPITEST_CHECK(all[static_cast<size_t>(i)] == world.rank % 2 + 2 * (members - 1 - i));
    MPI_Comm_free(&half);

    MPI_Comm none;
    MPITEST_CALL(MPI_Comm_split(world.comm, world.rank == 0 ? MPI_UNDEFINED : 1, 0, &none));
    MPITEST_CHECK((none == MPI_COMM_NULL) == (world.rank == 0));
    if (none != MPI_COMM_NULL)
        MPI_Comm_free(&none);
    // Many, to see that the resources of one are released.
    for (int i = 0; i < 50; i++) {
        MPI_Comm again;
        MPITEST_CALL(MPI_Comm_dup(world.comm, &again));
        int one = 1;
        int total = 0;
        MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, again);
        MPITEST_CHECK(total == world.size);
        MPI_Comm_free(&again);
    }
}

void comm_isolation(const World& world)
{
    MPI_Comm first;
    MPI_Comm second;
    MPI_Comm_dup(world.comm, &first);
    MPI_Comm_dup(world.comm, &second);
    const int values[2] = {world.rank * 10 + 1, world.rank * 10 + 2};
    MPI_Request sends[2];
    // Sent in one order, received in the other: only the communicator distinguishes them.
    MPI_Isend(&values[0], 1, MPI_INT, world.next(), 5, first, &sends[0]);
    MPI_Isend(&values[1], 1, MPI_INT, world.next(), 5, second, &sends[1]);
    int value = -1;
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, second, MPI_STATUS_IGNORE);
    MPITEST_CHECK(value == world.previous() * 10 + 2);
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, first, MPI_STATUS_IGNORE);
    MPITEST_CHECK(value == world.previous() * 10 + 1);
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
    MPI_Comm_free(&first);
    MPI_Comm_free(&second);
}

void comm_intercomm(const World& world)
{
    if (world.size < 2) {
        MPITEST_CHECK(world.size == 1); // needs two sides
        return;
    }
    const int side = world.rank < world.size / 2 ? 0 : 1;
    MPI_Comm half;
    MPI_Comm_split(world.comm, side, world.rank, &half);
    MPI_Comm between;
    MPITEST_CALL(MPI_Intercomm_create(half, 0, world.comm, side == 0 ? world.size / 2 : 0, 33, &between));
    int others = 0;
    MPI_Comm_remote_size(between, &others);
    MPITEST_CHECK(others == (side == 0 ? world.size - world.size / 2 : world.size / 2));
    int sum = 0;
    MPITEST_CALL(MPI_Allreduce(&world.rank, &sum, 1, MPI_INT, MPI_SUM, between));
    int expected = 0;
    for (int r = 0; r < world.size; r++)
        expected += (r < world.size / 2 ? 0 : 1) != side ? r : 0;
    MPITEST_CHECK(sum == expected); // the other side's ranks
    MPI_Comm merged;
    MPITEST_CALL(MPI_Intercomm_merge(between, side, &merged));
    int rank = -1;
    MPI_Comm_rank(merged, &rank);
    MPITEST_CHECK(rank == world.rank);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

} // namespace mpitest
