// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, one-sided communication: what must be atomic while all ranks do it at once.
#include "windows.h"

#include <algorithm>

namespace mpitest {
namespace {

// All ranks accumulate `value(rank)` once per round into rank 0; the expected result is given.
template <typename T>
void accumulate_all(const World& world, MPI_Datatype type, MPI_Op op, T start, T (*value)(int rank), T (*apply)(T, T))
{
    constexpr int rounds = 25;
    constexpr int count = 9;
    Window<T> window(world, count, start);
    const std::vector<T> own(count, value(world.rank));
    MPITEST_CALL(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle()));
    for (int i = 0; i < rounds; i++)
        MPITEST_CALL(MPI_Accumulate(own.data(), count, type, 0, 0, count, type, op, window.handle()));
    MPITEST_CALL(MPI_Win_unlock(0, window.handle()));
    MPI_Barrier(world.comm);
    T expected = start;
    for (int round = 0; round < rounds; round++)
        for (int rank = 0; rank < world.size; rank++)
            expected = apply(expected, value(rank));
    MPI_Win_lock(MPI_LOCK_SHARED, world.rank, 0, window.handle());
    for (int i = 0; world.rank == 0 && i < count; i++)
        MPITEST_CHECK(window[i] == expected);
    MPI_Win_unlock(world.rank, window.handle());
    MPI_Barrier(world.comm);
}

} // namespace

void win_accumulate(const World& world)
{
    const auto rank_plus_one = [](int rank) { return rank + 1; };
    accumulate_all<int>(world, MPI_INT, MPI_SUM, 5, rank_plus_one, [](int a, int b) { return a + b; });
    accumulate_all<int>(world, MPI_INT, MPI_MIN, 5000, rank_plus_one, [](int a, int b) { return std::min(a, b); });
    accumulate_all<int>(world, MPI_INT, MPI_MAX, -5, rank_plus_one, [](int a, int b) { return std::max(a, b); });
    accumulate_all<int>(
        world, MPI_INT, MPI_BOR, 0, [](int rank) { return 1 << rank % 31; }, [](int a, int b) { return a | b; });
    accumulate_all<int>(
        world, MPI_INT, MPI_BAND, ~0, [](int rank) { return ~(1 << rank % 31); }, [](int a, int b) { return a & b; });
    accumulate_all<int>(
        world, MPI_INT, MPI_BXOR, 3, [](int rank) { return 1 << rank % 31; }, [](int a, int b) { return a ^ b; });
    accumulate_all<int>(
        world, MPI_INT, MPI_PROD, 7, [](int rank) { return rank % 2 == 0 ? -1 : 1; },
        [](int a, int b) { return a * b; });
    accumulate_all<int64_t>(
        world, MPI_INT64_T, MPI_SUM, 1, [](int rank) { return int64_t{1} << (32 + rank % 8); },
        [](int64_t a, int64_t b) { return a + b; });
    accumulate_all<double>(
        world, MPI_DOUBLE, MPI_SUM, 0.5, [](int rank) { return 0.25 * (rank + 1); },
        [](double a, double b) { return a + b; }); // quarters add up exactly
    accumulate_all<float>(
        world, MPI_FLOAT, MPI_MAX, -1.0f, [](int rank) { return 1.5f * static_cast<float>(rank); },
        [](float a, float b) { return std::max(a, b); });
    accumulate_all<int8_t>(
        world, MPI_INT8_T, MPI_SUM, 1, [](int) { return int8_t{1}; },
        [](int8_t a, int8_t b) { return static_cast<int8_t>(a + b); });
    accumulate_all<int16_t>(
        world, MPI_INT16_T, MPI_SUM, 1, [](int rank) { return static_cast<int16_t>(rank); },
        [](int16_t a, int16_t b) { return static_cast<int16_t>(a + b); });

    // Replace, from several origins: whole elements, from one of them.
    Window<int64_t> window(world, 1, -1);
    const int64_t mine = (int64_t{world.rank} << 32) | world.rank;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle());
    MPITEST_CALL(MPI_Accumulate(&mine, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_REPLACE, window.handle()));
    MPI_Win_unlock(0, window.handle());
    MPI_Barrier(world.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, world.rank, 0, window.handle());
    MPITEST_CHECK(world.rank != 0 || (window[0] >> 32 == (window[0] & 0xffffffff) && window[0] >= 0));
    MPI_Win_unlock(world.rank, window.handle());
    MPI_Barrier(world.comm);
}

void win_fetch_and_op(const World& world)
{
    constexpr int rounds = 100;
    Window<int64_t> window(world, 2, 0);
    std::vector<int64_t> tickets(rounds, -1);
    const int64_t one = 1;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle());
    for (int64_t& ticket : tickets) {
        MPITEST_CALL(MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, 0, MPI_SUM, window.handle()));
        MPI_Win_flush(0, window.handle());
    }
    MPI_Win_unlock(0, window.handle());
    MPITEST_CHECK(std::is_sorted(tickets.begin(), tickets.end()));
    std::vector<int64_t> all(static_cast<size_t>(rounds * world.size));
    MPI_Allgather(tickets.data(), rounds, MPI_INT64_T, all.data(), rounds, MPI_INT64_T, world.comm);
    std::sort(all.begin(), all.end());
    bool unique = true; // every ticket from 0 was drawn by exactly one rank
    for (size_t i = 0; i < all.size(); i++)
        unique = unique && all[i] == static_cast<int64_t>(i);
    MPITEST_CHECK(unique);
    int64_t seen = -1;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle());
    MPITEST_CALL(MPI_Fetch_and_op(nullptr, &seen, MPI_INT64_T, 0, 0, MPI_NO_OP, window.handle()));
    MPI_Win_unlock(0, window.handle());
    MPITEST_CHECK(seen == rounds * world.size);
    MPI_Barrier(world.comm);

    std::vector<double> add(50, 1.0);
    std::vector<double> before(50, -1.0);
    Window<double> doubles(world, 50, 0.0);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, doubles.handle());
    for (int i = 0; i < 10; i++) {
        MPITEST_CALL(MPI_Get_accumulate(add.data(), 50, MPI_DOUBLE, before.data(), 50, MPI_DOUBLE, 0, 0, 50, MPI_DOUBLE,
                                        MPI_SUM, doubles.handle()));
        MPI_Win_flush(0, doubles.handle());
        MPITEST_CHECK(before[49] >= i && before[49] < 10.0 * world.size);
    }
    MPI_Win_unlock(0, doubles.handle());
    MPI_Barrier(world.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, world.rank, 0, doubles.handle());
    MPITEST_CHECK(world.rank != 0 || (doubles[0] == 10.0 * world.size && doubles[49] == 10.0 * world.size));
    MPI_Win_unlock(world.rank, doubles.handle());
    MPI_Barrier(world.comm);
}

void win_compare_and_swap(const World& world)
{
    // Word 0 is a lock taken by compare-and-swap, word 1 is counted up under it by plain get and
    // put.
    constexpr int rounds = 20;
    Window<int32_t> window(world, 2, 0);
    const int32_t free_word = 0;
    const int32_t mine = world.rank + 1;
    MPI_Win_lock_all(0, window.handle());
    for (int i = 0; i < rounds; i++) {
        int32_t found = -1;
        do {
            MPI_Compare_and_swap(&mine, &free_word, &found, MPI_INT32_T, 0, 0, window.handle());
            MPI_Win_flush(0, window.handle());
        } while (found != free_word);
        int32_t value = -1;
        MPI_Get(&value, 1, MPI_INT32_T, 0, 1, 1, MPI_INT32_T, window.handle());
        MPI_Win_flush(0, window.handle());
        value++;
        MPI_Put(&value, 1, MPI_INT32_T, 0, 1, 1, MPI_INT32_T, window.handle());
        MPI_Win_flush(0, window.handle());
        MPI_Compare_and_swap(&free_word, &mine, &found, MPI_INT32_T, 0, 0, window.handle());
        MPI_Win_flush(0, window.handle());
        MPITEST_CHECK(found == mine); // no other rank changed the lock while this one held it
    }
    MPI_Win_unlock_all(window.handle());
    MPI_Barrier(world.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, world.rank, 0, window.handle());
    MPITEST_CHECK(world.rank != 0 || (window[0] == 0 && window[1] == rounds * world.size));
    MPI_Win_unlock(world.rank, window.handle());
    MPI_Barrier(world.comm);
}

} // namespace mpitest
