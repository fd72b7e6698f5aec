// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance, one-sided communication: put and get under each kind of synchronisation.
#include "windows.h"

#include <algorithm>

#include <sys/mman.h>

namespace mpitest {
namespace {

constexpr int slots = 512;

bool block_is(const Window<int>& window, int slot, int count, int first)
{
    bool good = true;
    for (int i = 0; i < count; i++)
        good = good && window[slot + i] == first + i;
    return good;
}

} // namespace

void win_fence(const World& world)
{
    Window<int> window(world, slots * world.size, -1);
    std::vector<int> out(slots);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < slots; i++)
            out[static_cast<size_t>(i)] = round * 100'000 + world.rank * 1000 + i;
        MPITEST_CALL(MPI_Win_fence(MPI_MODE_NOPRECEDE, window.handle()));
        for (int target = 0; target < world.size; target++) { // oneself included
            MPITEST_CALL(
                MPI_Put(out.data(), slots, MPI_INT, target, world.rank * slots, slots, MPI_INT, window.handle()));
        }
        MPITEST_CALL(MPI_Win_fence(0, window.handle()));
        for (int origin = 0; origin < world.size; origin++)
            MPITEST_CHECK(block_is(window, origin * slots, slots, round * 100'000 + origin * 1000));
        std::vector<int> in(slots, -1);
        MPITEST_CALL(MPI_Win_fence(0, window.handle()));
        MPITEST_CALL(MPI_Get(in.data(), slots, MPI_INT, world.next(), world.previous() * slots, slots, MPI_INT,
                             window.handle()));
        MPITEST_CALL(MPI_Win_fence(MPI_MODE_NOSUCCEED, window.handle()));
        MPITEST_CHECK(in[0] == round * 100'000 + world.previous() * 1000);
        MPITEST_CHECK(in[slots - 1] == round * 100'000 + world.previous() * 1000 + slots - 1);
        MPI_Barrier(world.comm);
    }
}

void win_lock(const World& world)
{
    Window<int> window(world, slots * world.size, 0);
    // Under an exclusive lock, reading, adding and writing back loses nothing.
    constexpr int rounds = 40;
    for (int i = 0; i < rounds; i++) {
        int value = -1;
        MPITEST_CALL(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window.handle()));
        MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window.handle());
        MPITEST_CALL(MPI_Win_flush(0, window.handle()));
        value++;
        MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window.handle());
        MPITEST_CALL(MPI_Win_unlock(0, window.handle()));
    }
    MPI_Barrier(world.comm);
    int total = -1;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window.handle());
    MPI_Get(&total, 1, MPI_INT, 0, 0, 1, MPI_INT, window.handle());
    MPI_Win_unlock(0, window.handle());
    MPITEST_CHECK(total == rounds * world.size);
    MPI_Barrier(world.comm);

    // Shared locks, each in its own place; the flush makes a put visible before the unlock.
    std::vector<int> out(slots);
    for (int i = 0; i < slots; i++)
        out[static_cast<size_t>(i)] = world.rank * 1000 + i;
    MPITEST_CALL(MPI_Win_lock_all(0, window.handle()));
    for (int target = 0; target < world.size; target++)
        MPI_Put(out.data(), slots, MPI_INT, target, world.rank * slots, slots, MPI_INT, window.handle());
    MPITEST_CALL(MPI_Win_flush_all(window.handle()));
    std::vector<int> in(slots, -1);
    MPI_Get(in.data(), slots, MPI_INT, world.next(), world.rank * slots, slots, MPI_INT, window.handle());
    MPITEST_CALL(MPI_Win_flush_local(world.next(), window.handle()));
    MPITEST_CALL(MPI_Win_flush(world.next(), window.handle()));
    MPITEST_CHECK(in == out);
    MPI_Barrier(world.comm);
    MPITEST_CALL(MPI_Win_sync(window.handle()));
    for (int origin = 0; origin < world.size; origin++)
        MPITEST_CHECK(block_is(window, origin * slots, slots, origin * 1000));
    MPITEST_CALL(MPI_Win_unlock_all(window.handle()));
    MPI_Barrier(world.comm);
}

void win_pscw(const World& world)
{
    Window<int> window(world, slots, -1);
    MPI_Group everyone;
    MPI_Comm_group(world.comm, &everyone);
    MPI_Group origin;
    MPI_Group target;
    const int previous = world.previous();
    const int next = world.next();
    MPI_Group_incl(everyone, 1, &previous, &origin);
    MPI_Group_incl(everyone, 1, &next, &target);
    std::vector<int> out(slots);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < slots; i++)
            out[static_cast<size_t>(i)] = round * 10'000 + world.rank * 1000 + i;
        MPITEST_CALL(MPI_Win_post(origin, 0, window.handle()));
        MPITEST_CALL(MPI_Win_start(target, 0, window.handle()));
        MPI_Put(out.data(), slots, MPI_INT, next, 0, slots, MPI_INT, window.handle());
        MPITEST_CALL(MPI_Win_complete(window.handle()));
        if (round % 2 == 0) {
            MPITEST_CALL(MPI_Win_wait(window.handle()));
        } else {
            int done = 0;
            while (done == 0)
                MPI_Win_test(window.handle(), &done);
        }
        MPITEST_CHECK(block_is(window, 0, slots, round * 10'000 + previous * 1000));
    }
    MPI_Group_free(&origin);
    MPI_Group_free(&target);
    MPI_Group_free(&everyone);
}

void win_datatypes(const World& world)
{
    constexpr int n = 40;
    Window<int> window(world, n * n, -1);
    MPI_Datatype column;
    MPI_Type_vector(n, 1, n, MPI_INT, &column);
    MPI_Type_commit(&column);
    std::vector<int> row(n);
    for (int i = 0; i < n; i++)
        row[static_cast<size_t>(i)] = world.rank * 100 + i;
    MPITEST_CALL(MPI_Win_fence(0, window.handle()));
    MPITEST_CALL(MPI_Put(row.data(), n, MPI_INT, world.next(), 3, 1, column, window.handle()));
    MPITEST_CALL(MPI_Win_fence(0, window.handle()));
    bool good = true;
    for (int i = 0; i < n * n; i++)
        good = good && window[i] == (i % n == 3 ? world.previous() * 100 + i / n : -1);
    MPITEST_CHECK(good);
    std::vector<int> back(n, -1);
    MPITEST_CALL(MPI_Get(back.data(), n, MPI_INT, world.next(), 3, 1, column, window.handle()));
    MPITEST_CALL(MPI_Win_fence(0, window.handle()));
    MPITEST_CHECK(back == row);
    std::vector<int> matrix(n * n, -1);
    MPITEST_CALL(MPI_Get(&matrix[7], 1, column, world.next(), 3, 1, column, window.handle()));
    MPITEST_CALL(MPI_Win_fence(0, window.handle()));
    good = true;
    for (int i = 0; i < n * n; i++)
        good = good && matrix[static_cast<size_t>(i)] == (i % n == 7 ? world.rank * 100 + i / n : -1);
    MPITEST_CHECK(good);
    MPI_Type_free(&column);
}

void win_requests(const World& world)
{
    Window<int> window(world, slots, 0);
    constexpr int pieces = 32;
    constexpr int each = slots / pieces;
    std::vector<int> out(slots);
    std::vector<int> in(slots, -1);
    for (int i = 0; i < slots; i++)
        out[static_cast<size_t>(i)] = world.rank * 1000 + i;
    std::vector<MPI_Request> requests(pieces);
    MPI_Win_lock_all(0, window.handle());
    for (int i = 0; i < pieces; i++) {
        MPITEST_CALL(MPI_Rput(&out[static_cast<size_t>(i * each)], each, MPI_INT, world.next(), i * each, each, MPI_INT,
                              window.handle(), &requests[static_cast<size_t>(i)]));
    }
    MPITEST_CALL(MPI_Waitall(pieces, requests.data(), MPI_STATUSES_IGNORE));
    MPI_Win_flush_all(window.handle());
    MPI_Barrier(world.comm);
    for (int i = 0; i < pieces; i++) {
        MPITEST_CALL(MPI_Rget(&in[static_cast<size_t>(i * each)], each, MPI_INT, world.next(), i * each, each, MPI_INT,
                              window.handle(), &requests[static_cast<size_t>(i)]));
    }
    MPITEST_CALL(MPI_Waitall(pieces, requests.data(), MPI_STATUSES_IGNORE));
    MPITEST_CHECK(in == out);
    MPI_Barrier(world.comm);
    const int one = 1;
    MPI_Request request;
    MPITEST_CALL(MPI_Raccumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window.handle(), &request));
    MPITEST_CALL(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Win_unlock_all(window.handle());
    MPI_Barrier(world.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, world.rank, 0, window.handle());
    MPITEST_CHECK(world.rank != 0 || window[0] == world.previous() * 1000 + world.size);
    MPI_Win_unlock(world.rank, window.handle());
    MPI_Barrier(world.comm);
}

void win_large(const World& world)
{
    constexpr int size = 4 << 20;
    uint8_t* memory = nullptr;
    MPI_Win allocated;
    MPITEST_CALL(MPI_Win_allocate(size, 1, MPI_INFO_NULL, world.comm, &memory, &allocated));
    std::fill_n(memory, size, 0);
    std::vector<uint8_t> out(size);
    std::vector<uint8_t> in(size);
    fill(out, static_cast<uint64_t>(world.rank));
    MPI_Win_fence(0, allocated);
    MPITEST_CALL(MPI_Put(out.data(), size, MPI_BYTE, world.next(), 0, size, MPI_BYTE, allocated));
    MPI_Win_fence(0, allocated);
    bool good = true;
    for (int i = 0; i < size; i++)
        good = good && memory[i] == pattern_byte(static_cast<uint64_t>(world.previous()), static_cast<uint64_t>(i));
    MPITEST_CHECK(good);
    MPITEST_CALL(MPI_Get(in.data(), size, MPI_BYTE, world.previous(), 0, size, MPI_BYTE, allocated));
    MPI_Win_fence(0, allocated);
    const int origin = (world.previous() + world.size - 1) % world.size;
    MPITEST_CHECK(matches(in, static_cast<uint64_t>(origin), in.size()));
    MPI_Win_free(&allocated);

    MPI_Win dynamic;
    MPITEST_CALL(MPI_Win_create_dynamic(MPI_INFO_NULL, world.comm, &dynamic));
    std::vector<uint8_t> attached(1 << 16);
    MPITEST_CALL(MPI_Win_attach(dynamic, attached.data(), static_cast<MPI_Aint>(attached.size())));
    MPI_Aint address = 0;
    MPI_Get_address(attached.data(), &address);
    std::vector<MPI_Aint> addresses(static_cast<size_t>(world.size));
    MPI_Allgather(&address, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, world.comm);
    MPI_Win_fence(0, dynamic);
    MPITEST_CALL(MPI_Put(out.data(), 1 << 16, MPI_BYTE, world.next(), addresses[static_cast<size_t>(world.next())],
                         1 << 16, MPI_BYTE, dynamic));
    MPI_Win_fence(0, dynamic);
    MPITEST_CHECK(matches(attached, static_cast<uint64_t>(world.previous()), attached.size()));
    MPI_Barrier(world.comm);
    MPITEST_CALL(MPI_Win_detach(dynamic, attached.data()));
    MPI_Win_free(&dynamic);
}

/// An MPI library may keep the registration of a window, and must notice that its memory is unmapped. Otherwise it
/// takes the registration for that of what is mapped at one of its addresses later.
void win_remapped(const World& world)
{
    constexpr int size = 1 << 20;
    constexpr int rights = PROT_READ | PROT_WRITE;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void* const old = mmap(nullptr, 2 * size, rights, flags, -1, 0);
    MPITEST_CHECK(old != MAP_FAILED);
    MPI_Win window;
    MPITEST_CALL(MPI_Win_create(old, 2 * size, 1, MPI_INFO_NULL, world.comm, &window));
    MPI_Win_free(&window);
    munmap(old, 2 * size);

    uint8_t* const half = static_cast<uint8_t*>(old) + size;
    MPITEST_CHECK(mmap(half, size, rights, flags | MAP_FIXED, -1, 0) == half);
    std::vector<uint8_t> bytes(size);
    fill(bytes, static_cast<uint64_t>(world.rank));
    std::copy(bytes.begin(), bytes.end(), half);
    std::fill(bytes.begin(), bytes.end(), 0);
    MPITEST_CALL(MPI_Win_create(bytes.data(), size, 1, MPI_INFO_NULL, world.comm, &window));
    MPI_Win_lock_all(0, window);
    MPITEST_CALL(MPI_Put(half, size, MPI_BYTE, world.next(), 0, size, MPI_BYTE, window));
    MPI_Win_unlock_all(window);
    MPI_Barrier(world.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, world.rank, 0, window);
    MPITEST_CHECK(matches(bytes, static_cast<uint64_t>(world.previous()), bytes.size()));
    MPI_Win_unlock(world.rank, window);
    MPI_Win_free(&window);
    munmap(half, size);
}

} // namespace mpitest
