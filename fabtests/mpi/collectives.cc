// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, collectives: blocking, non-blocking, with counts of one's own, large.
#include "harness.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace mpitest {
namespace {

// What rank r contributes at place i.
int contribution(int rank, int i)
{
    return (rank + 1) * 1000 + i * 7;
}

std::vector<int> contributions(int rank, int count)
{
    std::vector<int> values(static_cast<size_t>(count));
    for (int i = 0; i < count; i++)
        values[static_cast<size_t>(i)] = contribution(rank, i);
    return values;
}

size_t at(int index)
{
    return static_cast<size_t>(index);
}

} // namespace

void coll_short(const World& world)
{
    const auto n = std::int64_t{world.size};
    for (std::int64_t round = 0; round < 3; round++) {
        MPITEST_CALL(MPI_Barrier(world.comm));
        const std::int64_t mine = world.rank + round;
        std::int64_t sum = 0;
        MPITEST_CALL(MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, world.comm));
        MPITEST_CHECK(sum == n * (n - 1) / 2 + n * round);
        std::vector<std::int64_t> out(at(world.size)), in(at(world.size), -1);
        for (std::int64_t r = 0; r < n; r++)
            out[static_cast<std::size_t>(r)] = (round * n + world.rank) * n + r;
        MPITEST_CALL(MPI_Alltoall(out.data(), 1, MPI_INT64_T, in.data(), 1, MPI_INT64_T, world.comm));
        bool good = true;
        for (std::int64_t r = 0; r < n; r++)
            good = good && in[static_cast<std::size_t>(r)] == (round * n + r) * n + world.rank;
        MPITEST_CHECK(good);
    }
}

namespace {

void broadcast_gather_scatter(const World& world, int count, int root)
{
    const int n = world.size;
    std::vector<int> data = world.rank == root ? contributions(root, count) : std::vector<int>(at(count), -1);
    MPITEST_CALL(MPI_Bcast(data.data(), count, MPI_INT, root, world.comm));
    MPITEST_CHECK(data == contributions(root, count));

    const std::vector<int> mine = contributions(world.rank, count);
    std::vector<int> all(at(world.rank == root ? count * n : 0));
    MPITEST_CALL(MPI_Gather(mine.data(), count, MPI_INT, all.data(), count, MPI_INT, root, world.comm));
    bool good = true;
    for (int r = 0; world.rank == root && r < n; r++) {
        const auto part = contributions(r, count);
        good = good && std::equal(part.begin(), part.end(), all.begin() + r * count);
    }
    MPITEST_CHECK(good);
    std::vector<int> back(at(count), -1);
    MPITEST_CALL(MPI_Scatter(all.data(), count, MPI_INT, back.data(), count, MPI_INT, root, world.comm));
    MPITEST_CHECK(back == mine);
}

void allgather_alltoall(const World& world, int count)
{
    const int n = world.size;
    const std::vector<int> mine = contributions(world.rank, count);
    std::vector<int> all(at(count * n), -1);
    MPITEST_CALL(MPI_Allgather(mine.data(), count, MPI_INT, all.data(), count, MPI_INT, world.comm));
    bool good = true;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < count; i++)
            good = good && all[at(r * count + i)] == contribution(r, i);
    MPITEST_CHECK(good);
    std::vector<int> out(at(count * n));
    std::vector<int> in(at(count * n), -1);
    for (int i = 0; i < count * n; i++)
        out[at(i)] = world.rank * 1'000'000 + i;
    MPITEST_CALL(MPI_Alltoall(out.data(), count, MPI_INT, in.data(), count, MPI_INT, world.comm));
    good = true;
    for (int i = 0; i < count * n; i++)
        good = good && in[at(i)] == (i / count) * 1'000'000 + world.rank * count + i % count;
    MPITEST_CHECK(good);
}

/// No rank leaves a barrier before the last one has entered: each rank in turn is late, after having
/// notified all others by a message before.
void barriers(const World& world)
{
    const int n = world.size;
    for (int late = 0; late < n; late++) {
        int told = 0;
        MPI_Request receive = MPI_REQUEST_NULL;
        if (world.rank != late) {
            MPI_Irecv(&told, 1, MPI_INT, late, 77, world.comm, &receive);
        } else {
            const int one = 1;
            for (int r = 0; r < n; r++)
                if (r != late)
                    MPI_Ssend(&one, 1, MPI_INT, r, 77, world.comm);
        }
        if (world.rank != late)
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
        MPITEST_CALL(MPI_Barrier(world.comm));
        MPITEST_CHECK(world.rank == late || told == 1);
    }
}

} // namespace

void coll_basic(const World& world)
{
    for (const int count : {1, 33, 3000}) {
        for (int root = 0; root < world.size; root++)
            broadcast_gather_scatter(world, count, root);
        allgather_alltoall(world, count);
    }
    barriers(world);
}

void coll_vectors(const World& world)
{
    const int n = world.size;
    std::vector<int> counts(at(n));
    std::vector<int> places(at(n));
    for (int r = 0; r < n; r++) {
        counts[at(r)] = r == 1 ? 0 : 10 + r * 250;                              // one rank has nothing
        places[at(r)] = r == 0 ? 0 : places[at(r - 1)] + counts[at(r - 1)] + 3; // with gaps
    }
    const int total = places[at(n - 1)] + counts[at(n - 1)] + 3;
    std::vector<int> expected(at(total), -1);
    for (int r = 0; r < n; r++) {
        const auto part = contributions(r, counts[at(r)]);
        std::copy(part.begin(), part.end(), expected.begin() + places[at(r)]);
    }
    const int mine = counts[at(world.rank)];
    const auto own = contributions(world.rank, mine);
    std::vector<int> all(at(total), -1);
    MPITEST_CALL(
        MPI_Allgatherv(own.data(), mine, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT, world.comm));
    MPITEST_CHECK(all == expected);
    const int root = n - 1;
    std::vector<int> gathered(at(total), -1);
    MPITEST_CALL(MPI_Gatherv(own.data(), mine, MPI_INT, gathered.data(), counts.data(), places.data(), MPI_INT, root,
                             world.comm));
    MPITEST_CHECK(world.rank != root || gathered == expected);
    std::vector<int> back(at(mine), -1);
    MPITEST_CALL(MPI_Scatterv(expected.data(), counts.data(), places.data(), MPI_INT, back.data(), mine, MPI_INT, root,
                              world.comm));
    MPITEST_CHECK(back == own);

    // To rank r go r + 1 times (own rank + 1) numbers.
    std::vector<int> out_counts(at(n));
    std::vector<int> out_places(at(n));
    std::vector<int> in_counts(at(n));
    std::vector<int> in_places(at(n));
    int out_total = 0;
    int in_total = 0;
    for (int r = 0; r < n; r++) {
        out_counts[at(r)] = in_counts[at(r)] = (r + 1) * (world.rank + 1) * 20;
        out_places[at(r)] = out_total;
        in_places[at(r)] = in_total;
        out_total += out_counts[at(r)];
        in_total += in_counts[at(r)];
    }
    std::vector<int> out(at(out_total));
    std::vector<int> in(at(in_total), -1);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < out_counts[at(r)]; i++)
            out[at(out_places[at(r)] + i)] = world.rank * 100'000 + r * 10'000 + i;
    MPITEST_CALL(MPI_Alltoallv(out.data(), out_counts.data(), out_places.data(), MPI_INT, in.data(), in_counts.data(),
                               in_places.data(), MPI_INT, world.comm));
    bool good = true;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < in_counts[at(r)]; i++)
            good = good && in[at(in_places[at(r)] + i)] == r * 100'000 + world.rank * 10'000 + i;
    MPITEST_CHECK(good);
}

namespace {

struct Operation {
    MPI_Op op;
    long (*apply)(long, long);
};
const Operation operations[] = {
    {MPI_SUM, [](long a, long b) { return a + b; }},
    {MPI_PROD, [](long a, long b) { return a * b; }},
    {MPI_MIN, [](long a, long b) { return std::min(a, b); }},
    {MPI_MAX, [](long a, long b) { return std::max(a, b); }},
    {MPI_BAND, [](long a, long b) { return a & b; }},
    {MPI_BOR, [](long a, long b) { return a | b; }},
    {MPI_BXOR, [](long a, long b) { return a ^ b; }},
    {MPI_LAND, [](long a, long b) { return long{a != 0 && b != 0}; }},
    {MPI_LOR, [](long a, long b) { return long{a != 0 || b != 0}; }},
    {MPI_LXOR, [](long a, long b) { return long{(a != 0) != (b != 0)}; }},
};
constexpr int many = 600;

long value(int rank, int i)
{
    return (rank * 31L + i * 17L) % 11;
}

/// The result of an operation over element `i` of the first ranks.
long fold(const Operation& operation, int ranks, int i)
{
    long result = value(0, i);
    for (int r = 1; r < ranks; r++)
        result = operation.apply(result, value(r, i));
    return result;
}

std::vector<long> values(int rank, int count)
{
    std::vector<long> all(at(count));
    for (int i = 0; i < count; i++)
        all[at(i)] = value(rank, i);
    return all;
}

void allreduce_reduce_scan(const World& world, const Operation& operation)
{
    constexpr int count = many;
    const std::vector<long> mine = values(world.rank, count);
    std::vector<long> out(count, -99);
    MPITEST_CALL(MPI_Allreduce(mine.data(), out.data(), count, MPI_LONG, operation.op, world.comm));
    bool good = true;
    for (int i = 0; i < count; i++)
        good = good && out[at(i)] == fold(operation, world.size, i);
    MPITEST_CHECK(good);
    const int root = world.size / 2;
    std::vector<long> at_root(count, -99);
    MPITEST_CALL(MPI_Reduce(mine.data(), at_root.data(), count, MPI_LONG, operation.op, root, world.comm));
    MPITEST_CHECK(world.rank != root || at_root == out);
    std::vector<long> scanned(count, -99);
    MPITEST_CALL(MPI_Scan(mine.data(), scanned.data(), count, MPI_LONG, operation.op, world.comm));
    good = world.size > 1 || scanned == mine;
    for (int i = 0; world.size > 1 && i < count; i++) {
        const bool single = world.rank == 0; // nothing was combined: the value itself
        good = good && scanned[at(i)] == (single ? value(0, i) : fold(operation, world.rank + 1, i));
    }
    MPITEST_CHECK(good);
}

void exscan_reduce_scatter(const World& world)
{
    constexpr int count = many;
    const std::vector<long> mine = values(world.rank, count);
    std::vector<long> before(count, -99);
    MPITEST_CALL(MPI_Exscan(mine.data(), before.data(), count, MPI_LONG, MPI_SUM, world.comm));
    MPITEST_CHECK(world.rank == 0 || before[5] == fold(operations[0], world.rank, 5));
    std::vector<long> share(count);
    const std::vector<long> spread = values(world.rank, count * world.size);
    MPITEST_CALL(MPI_Reduce_scatter_block(spread.data(), share.data(), count, MPI_LONG, MPI_SUM, world.comm));
    bool good = true;
    for (int i = 0; i < count; i++)
        good = good && share[at(i)] == fold(operations[0], world.size, world.rank * count + i);
    MPITEST_CHECK(good);
}

} // namespace

void coll_operations(const World& world)
{
    for (const Operation& operation : operations)
        allreduce_reduce_scan(world, operation);
    exscan_reduce_scatter(world);
    struct {
        double value;
        int rank;
    } in = {100.0 - world.rank, world.rank}, out = {0, -1};
    MPITEST_CALL(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE_INT, MPI_MINLOC, world.comm));
    MPITEST_CHECK(out.rank == world.size - 1 && out.value == 101.0 - world.size);
    double sum = 0;
    const double half = 0.5 * (world.rank + 1);
    MPITEST_CALL(MPI_Allreduce(&half, &sum, 1, MPI_DOUBLE, MPI_SUM, world.comm));
    MPITEST_CHECK(sum == 0.25 * world.size * (world.size + 1)); // halves add up exactly
}

void coll_nonblocking(const World& world)
{
    constexpr int count = 2000;
    constexpr int rounds = 10;
    const int n = world.size;
    for (int round = 0; round < rounds; round++) {
        const int root = round % n;
        auto bcast = world.rank == root ? contributions(root, count) : std::vector<int>(count, -1);
        const auto mine = contributions(world.rank, count);
        std::vector<int> sum(count, -1);
        std::vector<int> all(at(count * n), -1);
        std::vector<int> out(at(n));
        std::vector<int> in(at(n), -1);
        std::iota(out.begin(), out.end(), world.rank * n);
        MPI_Request requests[5];
        MPITEST_CALL(MPI_Ibcast(bcast.data(), count, MPI_INT, root, world.comm, &requests[0]));
        MPITEST_CALL(MPI_Iallreduce(mine.data(), sum.data(), count, MPI_INT, MPI_SUM, world.comm, &requests[1]));
        MPITEST_CALL(MPI_Iallgather(mine.data(), count, MPI_INT, all.data(), count, MPI_INT, world.comm, &requests[2]));
        MPITEST_CALL(MPI_Ialltoall(out.data(), 1, MPI_INT, in.data(), 1, MPI_INT, world.comm, &requests[3]));
        MPITEST_CALL(MPI_Ibarrier(world.comm, &requests[4]));
        // Point to point goes on beside them.
        int token = world.rank;
        MPI_Sendrecv_replace(&token, 1, MPI_INT, world.next(), 1, world.previous(), 1, world.comm, MPI_STATUS_IGNORE);
        MPITEST_CHECK(token == world.previous());
        MPITEST_CALL(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE));
        MPITEST_CHECK(bcast == contributions(root, count));
        bool good = true;
        for (int i = 0; i < count; i++)
            good = good && sum[at(i)] == 1000 * n * (n + 1) / 2 + n * i * 7;
        for (int r = 0; r < n; r++)
            good = good && in[at(r)] == r * n + world.rank && all[at(r * count + 9)] == contribution(r, 9);
        MPITEST_CHECK(good);
    }
}

void coll_large(const World& world)
{
    constexpr int count = 1 << 20; // ints: 4 MiB
    std::vector<int> data(count);
    for (int i = 0; i < count; i++)
        data[at(i)] = world.rank == 0 ? i * 3 : -1;
    MPITEST_CALL(MPI_Bcast(data.data(), count, MPI_INT, 0, world.comm));
    bool good = true;
    for (int i = 0; i < count; i++) {
        good = good && data[at(i)] == i * 3;
        data[at(i)] = world.rank + i % 1000;
    }
    MPITEST_CHECK(good);
    std::vector<int> sum(count);
    MPITEST_CALL(MPI_Allreduce(data.data(), sum.data(), count, MPI_INT, MPI_SUM, world.comm));
    good = true;
    for (int i = 0; i < count; i++)
        good = good && sum[at(i)] == world.size * (world.size - 1) / 2 + world.size * (i % 1000);
    MPITEST_CHECK(good);
    const int block = count / world.size;
    std::vector<int> in(count, -1);
    for (int i = 0; i < count; i++)
        data[at(i)] = world.rank * 4 + i;
    MPITEST_CALL(MPI_Alltoall(data.data(), block, MPI_INT, in.data(), block, MPI_INT, world.comm));
    good = true;
    for (int i = 0; i < block * world.size; i++)
        good = good && in[at(i)] == (i / block) * 4 + world.rank * block + i % block;
    MPITEST_CHECK(good);
}

} // namespace mpitest
