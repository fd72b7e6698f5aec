// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the parts of mpi_conformance share: ranks, checks that are counted, data that can be checked.
#pragma once

#include <cstdint>
#include <mpi.h>
#include <stddef.h>
#include <vector>

namespace mpitest {

// Of the communicator a part works on.
struct World {
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int size = 0;

    [[nodiscard]] int next() const { return (rank + 1) % size; }
    [[nodiscard]] int previous() const { return (rank + size - 1) % size; }
};

// Counts a check; the first failures of a part are printed, with rank, file and line.
void check(bool good, const char* what, const char* file, int line);
// A line on stdout from rank 0 of the world: a figure or a skipped check, with its reason.
__attribute__((format(printf, 2, 3))) void note(const World& world, const char* format, ...);

#define MPITEST_CHECK(what) ::mpitest::check((what), #what, __FILE__, __LINE__)
#define MPITEST_CALL(call) ::mpitest::check((call) == MPI_SUCCESS, #call, __FILE__, __LINE__)

// Byte i of the message number `key`: differs by message and by place, so that nothing that landed
// in the wrong buffer, shifted, or torn goes unnoticed.
[[nodiscard]] constexpr uint8_t pattern_byte(uint64_t key, uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ULL ^ (key + 1) * 0xc2b2ae3d27d4eb4fULL;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ULL;
    return static_cast<uint8_t>(x >> 56);
}

void fill(std::vector<uint8_t>& data, uint64_t key);
// True if all of [0, size) is as fill() makes it.
[[nodiscard]] bool matches(const std::vector<uint8_t>& data, uint64_t key, size_t size);

// The parts, each in its file.
void p2p_modes(const World& world);
void p2p_sizes(const World& world);
void p2p_order(const World& world);
void p2p_sendrecv(const World& world);
void p2p_persistent(const World& world);
void p2p_wildcards(const World& world);
void p2p_self(const World& world);
void p2p_cancel(const World& world);
void p2p_many_requests(const World& world);
void probe_blocking(const World& world);
void probe_matched(const World& world);
void probe_unknown_length(const World& world);
void unexpected_flood(const World& world);
void unexpected_sea(const World& world);
void posted_sea(const World& world);
void unexpected_reverse(const World& world);
void unexpected_large(const World& world);
void datatype_vector(const World& world);
void datatype_struct(const World& world);
void datatype_indexed(const World& world);
void datatype_truncation(const World& world);
void coll_basic(const World& world);
void coll_short(const World& world);
void coll_vectors(const World& world);
void coll_operations(const World& world);
void coll_nonblocking(const World& world);
void coll_large(const World& world);
void comm_dup_split(const World& world);
void comm_isolation(const World& world);
void comm_intercomm(const World& world);
void win_fence(const World& world);
void win_lock(const World& world);
void win_pscw(const World& world);
void win_accumulate(const World& world);
void win_fetch_and_op(const World& world);
void win_compare_and_swap(const World& world);
void win_datatypes(const World& world);
void win_requests(const World& world);
void win_large(const World& world);
void win_remapped(const World& world);

} // namespace mpitest
