// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, point to point: modes, sizes, order, wildcards, persistent requests, cancel.
#include "harness.h"

#include <algorithm>

namespace mpitest {
namespace {

constexpr size_t max_message = size_t{8} << 20;

int length_of(const MPI_Status& status)
{
    int count = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    return count;
}

} // namespace

void p2p_modes(const World& world)
{
    constexpr int size = 3000;
    std::vector<uint8_t> out(size);
    std::vector<uint8_t> in(size);
    std::vector<uint8_t> attached(8 * (size + MPI_BSEND_OVERHEAD));
    MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
    for (int mode = 0; mode < 8; mode++) {
        MPI_Request receive;
        MPI_Request send = MPI_REQUEST_NULL;
        std::fill(in.begin(), in.end(), 0);
        fill(out, static_cast<uint64_t>(world.rank * 100 + mode));
        MPI_Irecv(in.data(), size, MPI_BYTE, world.previous(), mode, world.comm, &receive);
        MPI_Barrier(world.comm); // a ready send wants its receive posted
        const int to = world.next();
        switch (mode) {
        case 0: MPITEST_CALL(MPI_Send(out.data(), size, MPI_BYTE, to, mode, world.comm)); break;
        case 1: MPITEST_CALL(MPI_Bsend(out.data(), size, MPI_BYTE, to, mode, world.comm)); break;
        case 2: MPITEST_CALL(MPI_Ssend(out.data(), size, MPI_BYTE, to, mode, world.comm)); break;
        case 3: MPITEST_CALL(MPI_Rsend(out.data(), size, MPI_BYTE, to, mode, world.comm)); break;
        case 4: MPITEST_CALL(MPI_Isend(out.data(), size, MPI_BYTE, to, mode, world.comm, &send)); break;
        case 5: MPITEST_CALL(MPI_Ibsend(out.data(), size, MPI_BYTE, to, mode, world.comm, &send)); break;
        case 6: MPITEST_CALL(MPI_Issend(out.data(), size, MPI_BYTE, to, mode, world.comm, &send)); break;
        case 7: MPITEST_CALL(MPI_Irsend(out.data(), size, MPI_BYTE, to, mode, world.comm, &send)); break;
        }
        MPI_Status status;
        MPITEST_CALL(MPI_Wait(&receive, &status));
        MPITEST_CALL(MPI_Wait(&send, MPI_STATUS_IGNORE));
        MPITEST_CHECK(status.MPI_SOURCE == world.previous() && status.MPI_TAG == mode);
        MPITEST_CHECK(length_of(status) == size);
        MPITEST_CHECK(matches(in, static_cast<uint64_t>(world.previous() * 100 + mode), size));
    }
    void* detached = nullptr;
    int bytes = 0;
    MPITEST_CALL(MPI_Buffer_detach(&detached, &bytes));
    MPITEST_CHECK(detached == attached.data());

    // A synchronous send must not complete before its receive is posted.
    if (world.rank == 0 && world.size > 1) {
        MPI_Request send;
        int done = 0;
        MPI_Issend(out.data(), size, MPI_BYTE, 1, 50, world.comm, &send);
        for (int i = 0; i < 100; i++)
            MPI_Test(&send, &done, MPI_STATUS_IGNORE);
        MPITEST_CHECK(done == 0);
        MPI_Send(nullptr, 0, MPI_BYTE, 1, 51, world.comm);
        MPITEST_CALL(MPI_Wait(&send, MPI_STATUS_IGNORE));
    } else if (world.rank == 1) {
        MPI_Recv(nullptr, 0, MPI_BYTE, 0, 51, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CALL(MPI_Recv(in.data(), size, MPI_BYTE, 0, 50, world.comm, MPI_STATUS_IGNORE));
    }
}

void p2p_sizes(const World& world)
{
    std::vector<size_t> sizes = {0, 1, 2, 3};
    for (size_t power = 4; power <= max_message; power *= 2)
        sizes.insert(sizes.end(), {power - 1, power, power + 1});
    std::vector<uint8_t> in(max_message + 2);
    for (const size_t size : sizes) {
        std::vector<uint8_t> out(size);
        fill(out, size * 16 + static_cast<uint64_t>(world.rank));
        in[size] = 0xa5; // the byte behind the message must stay
        MPI_Request receive;
        MPI_Status status;
        MPI_Irecv(in.data(), static_cast<int>(size), MPI_BYTE, world.previous(), 1, world.comm, &receive);
        MPITEST_CALL(MPI_Send(out.data(), static_cast<int>(size), MPI_BYTE, world.next(), 1, world.comm));
        MPI_Wait(&receive, &status);
        MPITEST_CHECK(length_of(status) == static_cast<int>(size));
        MPITEST_CHECK(in[size] == 0xa5);
        MPITEST_CHECK(matches(in, size * 16 + static_cast<uint64_t>(world.previous()), size));
    }
}

void p2p_order(const World& world)
{
    // Eager, rendezvous and empty ones in turn, all with one tag: they must come out as they went
    // in.
    constexpr size_t sizes[] = {64, 1 << 18, 0, 8, 1 << 16, 1 << 20, 1, 4096};
    constexpr int rounds = 12;
    std::vector<std::vector<uint8_t>> out;
    std::vector<MPI_Request> sends;
    for (int i = 0; i < rounds * 8; i++) {
        out.emplace_back(sizes[i % 8]);
        fill(out.back(), static_cast<uint64_t>(world.rank * 1000 + i));
    }
    for (const auto& message : out) {
        sends.emplace_back();
        MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, world.next(), 9, world.comm,
                  &sends.back());
    }
    std::vector<uint8_t> in(1 << 20);
    for (int i = 0; i < rounds * 8; i++) {
        MPI_Status status;
        MPI_Recv(in.data(), 1 << 20, MPI_BYTE, world.previous(), 9, world.comm, &status);
        MPITEST_CHECK(length_of(status) == static_cast<int>(sizes[i % 8]));
        MPITEST_CHECK(matches(in, static_cast<uint64_t>(world.previous() * 1000 + i), sizes[i % 8]));
    }
    MPITEST_CALL(MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE));
}

void p2p_sendrecv(const World& world)
{
    int token = world.rank;
    for (int step = 1; step <= world.size; step++) {
        MPI_Status status;
        MPITEST_CALL(
            MPI_Sendrecv_replace(&token, 1, MPI_INT, world.next(), 3, world.previous(), 3, world.comm, &status));
        MPITEST_CHECK(token == (world.rank + step * (world.size - 1)) % world.size);
    }
    std::vector<uint8_t> out(1 << 20);
    std::vector<uint8_t> in(1 << 20);
    fill(out, static_cast<uint64_t>(world.rank));
    MPITEST_CALL(MPI_Sendrecv(out.data(), 1 << 20, MPI_BYTE, world.next(), 4, in.data(), 1 << 20, MPI_BYTE,
                              world.previous(), 4, world.comm, MPI_STATUS_IGNORE));
    MPITEST_CHECK(matches(in, static_cast<uint64_t>(world.previous()), in.size()));
    int untouched = 42;
    MPITEST_CALL(MPI_Recv(&untouched, 1, MPI_INT, MPI_PROC_NULL, 0, world.comm, MPI_STATUS_IGNORE));
    MPITEST_CHECK(untouched == 42);
}

void p2p_persistent(const World& world)
{
    constexpr int count = 500;
    std::vector<int> out(count);
    std::vector<int> in(count);
    MPI_Request requests[2];
    MPI_Send_init(out.data(), count, MPI_INT, world.next(), 5, world.comm, &requests[0]);
    MPI_Recv_init(in.data(), count, MPI_INT, world.previous(), 5, world.comm, &requests[1]);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < count; i++)
            out[i] = world.rank * 1'000'000 + round * 1000 + i;
        MPITEST_CALL(MPI_Startall(2, requests));
        MPITEST_CALL(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        bool good = true;
        for (int i = 0; i < count; i++)
            good = good && in[i] == world.previous() * 1'000'000 + round * 1000 + i;
        MPITEST_CHECK(good);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

void p2p_wildcards(const World& world)
{
    constexpr int rounds = 50;
    if (world.rank == 0) {
        std::vector<int> next_of(static_cast<size_t>(world.size), 0);
        for (int i = 0; i < rounds * (world.size - 1); i++) {
            int value[2] = {-1, -1};
            MPI_Status status;
            MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, world.comm, &status);
            MPITEST_CHECK(status.MPI_SOURCE == value[0] && status.MPI_TAG == 100 + value[1]);
            MPITEST_CHECK(value[1] == next_of[static_cast<size_t>(status.MPI_SOURCE)]++);
        }
        MPI_Barrier(world.comm);
        // Any source must not mean any tag: the tag asked for comes although others came first.
        for (int i = 1; i < world.size; i++) {
            int value = -1;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, world.comm, &status);
            MPITEST_CHECK(status.MPI_TAG == 7 && value == status.MPI_SOURCE * 7);
        }
        for (int i = 1; i < world.size; i++) {
            int value = -1;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, i, MPI_ANY_TAG, world.comm, &status);
            MPITEST_CHECK(status.MPI_TAG == 6 && value == i * 6);
        }
    } else {
        for (int i = 0; i < rounds; i++) {
            const int value[2] = {world.rank, i};
            MPI_Send(value, 2, MPI_INT, 0, 100 + i, world.comm);
        }
        MPI_Barrier(world.comm);
        const int six = world.rank * 6;
        const int seven = world.rank * 7;
        MPI_Send(&six, 1, MPI_INT, 0, 6, world.comm);
        MPI_Send(&seven, 1, MPI_INT, 0, 7, world.comm);
        MPITEST_CHECK(true);
    }
}

void p2p_self(const World& world)
{
    for (const size_t size : {size_t{0}, size_t{8}, size_t{5000}, size_t{1} << 21}) {
        std::vector<uint8_t> out(size);
        std::vector<uint8_t> in(size);
        fill(out, size);
        MPI_Request requests[2];
        MPI_Isend(out.data(), static_cast<int>(size), MPI_BYTE, world.rank, 2, world.comm, &requests[0]);
        MPI_Irecv(in.data(), static_cast<int>(size), MPI_BYTE, world.rank, 2, world.comm, &requests[1]);
        MPITEST_CALL(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        MPITEST_CHECK(matches(in, size, size));
    }
}

void p2p_cancel(const World& world)
{
    int value = 17;
    MPI_Request receive;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, world.previous(), 999, world.comm, &receive);
    MPITEST_CALL(MPI_Cancel(&receive));
    MPITEST_CALL(MPI_Wait(&receive, &status));
    int cancelled = 0;
    MPI_Test_cancelled(&status, &cancelled);
    MPITEST_CHECK(cancelled != 0 && value == 17);
    MPI_Barrier(world.comm);
    // The place is free again: the next receive with this tag gets the next message.
    MPI_Irecv(&value, 1, MPI_INT, world.previous(), 999, world.comm, &receive);
    MPI_Send(&world.rank, 1, MPI_INT, world.next(), 999, world.comm);
    MPITEST_CALL(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    MPITEST_CHECK(value == world.previous());
}

void p2p_many_requests(const World& world)
{
    constexpr int each = 1000;
    constexpr int ints = 32;
    std::vector<int> out(each * ints);
    std::vector<int> in(each * ints, -1);
    std::vector<MPI_Request> receives(each);
    std::vector<MPI_Request> sends(each);
    for (int i = 0; i < each * ints; i++)
        out[i] = world.rank * 10'000'000 + i;
    // Receives are posted from the last tag to the first, against the order of sending.
    for (int i = each - 1; i >= 0; i--)
        MPI_Irecv(&in[i * ints], ints, MPI_INT, world.previous(), i, world.comm, &receives[i]);
    for (int i = 0; i < each; i++)
        MPI_Isend(&out[i * ints], ints, MPI_INT, world.next(), i, world.comm, &sends[i]);
    int completed = 0;
    std::vector<int> indices(each);
    while (completed < each) {
        int some = 0;
        MPI_Waitsome(each, receives.data(), &some, indices.data(), MPI_STATUSES_IGNORE);
        if (some == MPI_UNDEFINED)
            break;
        completed += some;
    }
    MPITEST_CHECK(completed == each);
    MPITEST_CALL(MPI_Waitall(each, sends.data(), MPI_STATUSES_IGNORE));
    long wrong = 0;
    for (int i = 0; i < each * ints; i++)
        wrong += in[i] != world.previous() * 10'000'000 + i ? 1 : 0;
    MPITEST_CHECK(wrong == 0);
}

} // namespace mpitest
