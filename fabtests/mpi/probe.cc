// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, probes and unexpected messages.
#include "harness.h"

#include <numeric>

namespace mpitest {
namespace {

int bytes_of(const MPI_Status& status)
{
    int count = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    return count;
}

} // namespace

void probe_blocking(const World& world)
{
    for (const int size : {0, 1, 100, 5000, 300'000}) {
        std::vector<uint8_t> out(static_cast<size_t>(size));
        fill(out, static_cast<uint64_t>(size + world.rank));
        MPI_Request send;
        MPI_Isend(out.data(), size, MPI_BYTE, world.next(), size % 1000, world.comm, &send);
        MPI_Status status;
        MPITEST_CALL(MPI_Probe(world.previous(), MPI_ANY_TAG, world.comm, &status));
        MPITEST_CHECK(status.MPI_SOURCE == world.previous() && status.MPI_TAG == size % 1000);
        MPITEST_CHECK(bytes_of(status) == size);
        int flag = 0;
        MPITEST_CALL(MPI_Iprobe(MPI_ANY_SOURCE, size % 1000, world.comm, &flag, &status));
        MPITEST_CHECK(flag != 0 && bytes_of(status) == size); // a probe takes nothing away
        MPITEST_CALL(MPI_Iprobe(world.previous(), 31'000, world.comm, &flag, &status));
        MPITEST_CHECK(flag == 0);
        std::vector<uint8_t> in(static_cast<size_t>(size));
        MPI_Recv(in.data(), size, MPI_BYTE, world.previous(), size % 1000, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(matches(in, static_cast<uint64_t>(size + world.previous()), in.size()));
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        MPI_Barrier(world.comm);
    }
}

void probe_matched(const World& world)
{
    for (const int size : {0, 16, 4000, 2'000'000}) {
        std::vector<uint8_t> first(static_cast<size_t>(size));
        std::vector<uint8_t> second(8);
        fill(first, static_cast<uint64_t>(size * 4 + world.rank));
        fill(second, static_cast<uint64_t>(world.rank));
        MPI_Request sends[2];
        MPI_Isend(first.data(), size, MPI_BYTE, world.next(), 12, world.comm, &sends[0]);
        MPI_Isend(second.data(), 8, MPI_BYTE, world.next(), 12, world.comm, &sends[1]);
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        MPITEST_CALL(MPI_Mprobe(world.previous(), 12, world.comm, &message, &status));
        MPITEST_CHECK(bytes_of(status) == size);
        // The message is taken: a receive gets the one behind it.
        std::vector<uint8_t> in_second(8);
        MPI_Recv(in_second.data(), 8, MPI_BYTE, world.previous(), 12, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(matches(in_second, static_cast<uint64_t>(world.previous()), 8));
        std::vector<uint8_t> in(static_cast<size_t>(size));
        if (size == 16) {
            MPI_Request receive;
            MPITEST_CALL(MPI_Imrecv(in.data(), size, MPI_BYTE, &message, &receive));
            MPITEST_CALL(MPI_Wait(&receive, &status));
        } else {
            MPITEST_CALL(MPI_Mrecv(in.data(), size, MPI_BYTE, &message, &status));
        }
        MPITEST_CHECK(message == MPI_MESSAGE_NULL);
        MPITEST_CHECK(matches(in, static_cast<uint64_t>(size * 4 + world.previous()), in.size()));
        int flag = 1;
        MPITEST_CALL(MPI_Improbe(MPI_ANY_SOURCE, 12, world.comm, &flag, &message, &status));
        MPITEST_CHECK(flag == 0);
        MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
        MPI_Barrier(world.comm);
    }
}

void probe_unknown_length(const World& world)
{
    constexpr int rounds = 40;
    const auto size_of = [](int rank, int round) { return (rank * 7919 + round * 104'729) % 70'000; };
    if (world.rank != 0) {
        for (int i = 0; i < rounds; i++) {
            std::vector<uint8_t> out(static_cast<size_t>(size_of(world.rank, i)));
            fill(out, static_cast<uint64_t>(world.rank * rounds + i));
            MPI_Send(out.data(), static_cast<int>(out.size()), MPI_BYTE, 0, i, world.comm);
        }
        MPITEST_CHECK(true);
        return;
    }
    for (int i = 0; i < rounds * (world.size - 1); i++) {
        MPI_Status status;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, world.comm, &status);
        const int size = bytes_of(status);
        MPITEST_CHECK(size == size_of(status.MPI_SOURCE, status.MPI_TAG));
        std::vector<uint8_t> in(static_cast<size_t>(size));
        MPI_Recv(in.data(), size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(matches(in, static_cast<uint64_t>(status.MPI_SOURCE * rounds + status.MPI_TAG), in.size()));
    }
}

void unexpected_flood(const World& world)
{
    constexpr int each = 4000;
    std::vector<MPI_Request> sends;
    std::vector<int> values(each);
    std::iota(values.begin(), values.end(), world.rank * each);
    // No rank receives before all ranks have sent everything: if the library holds back,
    // its progress runs inside the calls below.
    for (int i = 0; i < each; i++) {
        sends.emplace_back();
        MPI_Isend(&values[static_cast<size_t>(i)], 1, MPI_INT, world.next(), 21, world.comm, &sends.back());
    }
    for (int i = 0; i < each; i++) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, world.previous(), 21, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(value == world.previous() * each + i);
    }
    MPITEST_CALL(MPI_Waitall(each, sends.data(), MPI_STATUSES_IGNORE));
}

/// One message is awaited behind more unexpected ones than any queue of fixed size holds.
void unexpected_sea(const World& world)
{
    constexpr int count = 120'000;
    if (world.rank == 0) {
        std::vector<int> values(count);
        std::iota(values.begin(), values.end(), 0);
        std::vector<MPI_Request> sends(count + 1);
        for (size_t i = 0; i < count; i++)
            MPI_Isend(&values[i], 1, MPI_INT, 1, 31, world.comm, &sends[i]);
        MPI_Isend(values.data(), 1, MPI_INT, 1, 32, world.comm, &sends[count]);
        MPITEST_CALL(MPI_Waitall(count + 1, sends.data(), MPI_STATUSES_IGNORE));
    } else if (world.rank == 1) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, 0, 32, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(value == 0);
        int wrong = 0;
        for (int i = 0; i < count; i++) {
            MPI_Recv(&value, 1, MPI_INT, 0, 31, world.comm, MPI_STATUS_IGNORE);
            wrong += value != i;
        }
        MPITEST_CHECK(wrong == 0);
    }
}

/// More receives are posted than any queue of fixed size holds, and the last is the first to be served.
void posted_sea(const World& world)
{
    constexpr int count = 70'000;
    std::vector<int> values(count, -1);
    if (world.rank == 0) {
        MPI_Barrier(world.comm);
        for (int i = count - 1; i >= 0; i--)
            MPI_Send(&i, 1, MPI_INT, 1, i % 30'000, world.comm);
    } else if (world.rank == 1) {
        std::vector<MPI_Request> receives(count);
        for (int i = 0; i < count; i++)
            MPI_Irecv(&values[static_cast<size_t>(i)], 1, MPI_INT, 0, i % 30'000, world.comm,
                      &receives[static_cast<size_t>(i)]);
        MPI_Barrier(world.comm);
        MPITEST_CALL(MPI_Waitall(count, receives.data(), MPI_STATUSES_IGNORE));
        // Of those with one tag, the receive that was posted first has the message that was sent first.
        int wrong = 0;
        for (int i = 0; i < count; i++) {
            int others = (count - 1 - i % 30'000) / 30'000; // the last receive of this tag is so many rounds on
            wrong += values[static_cast<size_t>(i)] != (others - i / 30'000) * 30'000 + i % 30'000;
        }
        MPITEST_CHECK(wrong == 0);
    } else {
        MPI_Barrier(world.comm);
    }
}

void unexpected_reverse(const World& world)
{
    constexpr int each = 400;
    const auto size_of = [](int tag) { return 1 + tag * 37 % 9000; };
    std::vector<std::vector<uint8_t>> out;
    std::vector<MPI_Request> sends;
    for (int tag = 0; tag < each; tag++) {
        out.emplace_back(static_cast<size_t>(size_of(tag)));
        fill(out.back(), static_cast<uint64_t>(world.rank * each + tag));
    }
    for (int tag = 0; tag < each; tag++) {
        sends.emplace_back();
        MPI_Isend(out[static_cast<size_t>(tag)].data(), size_of(tag), MPI_BYTE, world.next(), tag, world.comm,
                  &sends.back());
    }
    std::vector<uint8_t> in(10'000);
    for (int tag = each - 1; tag >= 0; tag--) {
        MPI_Status status;
        MPI_Recv(in.data(), 10'000, MPI_BYTE, world.previous(), tag, world.comm, &status);
        MPITEST_CHECK(bytes_of(status) == size_of(tag));
        MPITEST_CHECK(
            matches(in, static_cast<uint64_t>(world.previous() * each + tag), static_cast<size_t>(size_of(tag))));
    }
    MPI_Waitall(each, sends.data(), MPI_STATUSES_IGNORE);
}

void unexpected_large(const World& world)
{
    constexpr int count = 6;
    constexpr int size = 2 << 20;
    std::vector<std::vector<uint8_t>> out(count, std::vector<uint8_t>(size));
    std::vector<MPI_Request> sends(count);
    for (int i = 0; i < count; i++) {
        fill(out[static_cast<size_t>(i)], static_cast<uint64_t>(world.rank * count + i));
        MPI_Isend(out[static_cast<size_t>(i)].data(), size, MPI_BYTE, world.next(), i, world.comm,
                  &sends[static_cast<size_t>(i)]);
    }
    MPI_Barrier(world.comm);
    std::vector<uint8_t> in(size);
    for (int i = count - 1; i >= 0; i--) {
        MPI_Recv(in.data(), size, MPI_BYTE, world.previous(), i, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(matches(in, static_cast<uint64_t>(world.previous() * count + i), in.size()));
    }
    MPI_Waitall(count, sends.data(), MPI_STATUSES_IGNORE);
}

} // namespace mpitest
