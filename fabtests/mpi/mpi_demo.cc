// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An MPI program on the simulated torus: placement, speed, correctness, and the path that it went. Run by tools/demo,
// tests/programs/mpi_demo.sh.
//
// usage: mpi_demo [--any-path]
// Status 0: results are right and the messages went through pml cm, mtl ofi, the tofu provider and
// a uTofu library. --any-path: do not insist on the path, to compare with other transports.
#include "path_proof.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mpi.h>
#include <thread>
#include <vector>

namespace {

using mpidemo::Backend;
using mpidemo::LoadedParts;

constexpr size_t max_size = size_t{4} << 20;
constexpr int stream_depth = 16; // messages in flight when bandwidth is measured

int rank = 0;
int size = 0;

// Processes that only wait must not take the cores from those that are measured.
void wait_idly()
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (done == 0) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(rank < 2 ? 0 : 5));
    }
}

void show_places(const Backend& backend)
{
    struct Place {
        std::array<uint8_t, 6> coords;
        uint8_t known;
        char host[57];
    } mine{};
    mine.known = backend.coordinates(mine.coords) ? 1 : 0;
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MPI_Get_processor_name(host, &length);
    std::snprintf(mine.host, sizeof mine.host, "%.56s", host);
    std::vector<Place> places(static_cast<size_t>(size));
    MPI_Gather(&mine, sizeof mine, MPI_BYTE, places.data(), sizeof mine, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    std::printf("placement (X,Y,Z,A,B,C)\n");
    for (int r = 0; r < size; r++) {
        const Place& place = places[static_cast<size_t>(r)];
        if (place.known != 0) {
            std::printf("  rank %d at (%u,%u,%u,%u,%u,%u)\n", r, place.coords[0], place.coords[1], place.coords[2],
                        place.coords[3], place.coords[4], place.coords[5]);
        } else {
            std::printf("  rank %d on %s, without coordinates\n", r, place.host);
        }
    }
}

int repetitions(size_t bytes)
{
    return bytes <= 4096 ? 2000 : bytes <= 65536 ? 500 : 40;
}

// Half a round trip, in microseconds, between ranks 0 and 1.
double measure_latency(std::vector<char>& buffer, size_t bytes)
{
    const int count = static_cast<int>(bytes);
    const int rounds = repetitions(bytes);
    double start = 0;
    for (int i = -rounds / 10; i < rounds; i++) {
        if (i == 0)
            start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(buffer.data(), count, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer.data(), count, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer.data(), count, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer.data(), count, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - start) / rounds / 2 * 1e6;
}

// MB/s of a stream from rank 0 to rank 1, each window of it acknowledged.
double measure_bandwidth(std::vector<char>& buffer, size_t bytes)
{
    const int count = static_cast<int>(bytes);
    const int windows = std::max(2, repetitions(bytes) / stream_depth);
    double start = 0;
    for (int i = -1; i < windows; i++) {
        if (i == 0)
            start = MPI_Wtime();
        MPI_Request requests[stream_depth];
        for (MPI_Request& request : requests)
            if (rank == 0)
                MPI_Isend(buffer.data(), count, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
            else
                MPI_Irecv(buffer.data(), count, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &request);
        MPI_Waitall(stream_depth, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(nullptr, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(nullptr, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    return static_cast<double>(bytes) * stream_depth * windows / (MPI_Wtime() - start) / 1e6;
}

void show_speed()
{
    if (rank == 0)
        std::printf("\nranks 0 and 1:    bytes   latency (us)   bandwidth (MB/s)\n");
    std::vector<char> buffer(max_size, 1);
    for (size_t bytes = 0; rank < 2 && size > 1 && bytes <= max_size; bytes = bytes == 0 ? 8 : bytes * 4) {
        const double latency = measure_latency(buffer, bytes);
        const double bandwidth = bytes == 0 ? 0 : measure_bandwidth(buffer, bytes);
        if (rank == 0) {
            std::printf("             %10zu %14.2f %18.1f\n", bytes, latency, bandwidth);
            std::fflush(stdout);
        }
    }
    wait_idly();
}

// The sum over all ranks r of (r + 1) * (i + 1) is (i + 1) * size * (size + 1) / 2.
bool check_allreduce()
{
    bool good = true;
    for (const int count : {1, 1000, 250'000}) {
        std::vector<long> in(static_cast<size_t>(count));
        std::vector<long> out(static_cast<size_t>(count), -1);
        for (int i = 0; i < count; i++)
            in[static_cast<size_t>(i)] = (rank + 1L) * (i + 1L);
        MPI_Allreduce(in.data(), out.data(), count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        long wrong = 0;
        for (int i = 0; i < count; i++)
            wrong += out[static_cast<size_t>(i)] != (i + 1L) * size * (size + 1) / 2 ? 1 : 0;
        long all_wrong = 0;
        MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) {
            std::printf("%sallreduce of %d sums: last one is %ld, expected %ld: %s\n", count == 1 ? "\n" : "", count,
                        out.back(), count * (size * (size + 1L) / 2), all_wrong == 0 ? "right on all ranks" : "WRONG");
        }
        good = good && all_wrong == 0;
    }
    return good;
}

// Counts what is posted while rank 0 sends `messages` to rank 1: each must cost an operation, and
// their bytes must be moved by operations of one side or the other.
bool check_counters(const Backend& backend)
{
    constexpr int messages = 64;
    constexpr int bytes = 128 << 10;
    if (size < 2)
        return true;
    std::vector<char> buffer(bytes, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const Backend::Counts before = backend.counts();
    for (int i = 0; i < messages; i++)
        if (rank == 0)
            MPI_Send(buffer.data(), bytes, MPI_BYTE, 1, 4, MPI_COMM_WORLD);
        else if (rank == 1)
            MPI_Recv(buffer.data(), bytes, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    const Backend::Counts after = backend.counts();
    uint64_t own[2] = {rank < 2 ? after.operations - before.operations : 0, rank < 2 ? after.bytes - before.bytes : 0};
    uint64_t sum[2] = {0, 0};
    MPI_Allreduce(own, sum, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    const bool good = sum[0] >= messages && sum[1] >= uint64_t{messages} * bytes;
    if (rank == 0) {
        std::printf("  %d messages of %d bytes: ranks 0 and 1 posted %llu uTofu operations with %llu "
                    "bytes: %s\n",
                    messages, bytes, static_cast<unsigned long long>(sum[0]), static_cast<unsigned long long>(sum[1]),
                    good ? "yes" : "NO");
    }
    return good;
}

bool show_path(const LoadedParts& parts, const Backend& backend)
{
    const bool has_counters = backend.has_statistics();
    const bool own =
        (parts.built_in || (parts.pml_cm && parts.mtl_ofi && !parts.other_pml)) && parts.provider && backend.is_open();
    int mine = own ? 1 : 0;
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0) {
        const auto yes = [](bool good) { return good ? "yes" : "NO"; };
        std::printf("\npath of the messages\n");
        std::printf("  requested of Open MPI: pml '%s', mtl '%s', provider '%s'\n",
                    mpidemo::control_variable("pml").c_str(), mpidemo::control_variable("mtl").c_str(),
                    mpidemo::control_variable("mtl_ofi_provider_include").c_str());
        if (parts.built_in)
            std::printf("  pml and mtl are built into Open MPI: see the operation counters below\n");
        else
            std::printf("  pml cm is loaded: %s, no other pml: %s, mtl ofi: %s\n", yes(parts.pml_cm),
                        yes(!parts.other_pml), yes(parts.mtl_ofi));
        std::printf("  provider: %s\n", parts.provider ? parts.provider_path.c_str() : "NOT LOADED");
        std::printf("  uTofu library: %s\n", parts.backend_path.empty() ? "NOT LOADED" : parts.backend_path.c_str());
        std::printf("  the same on all ranks: %s\n", yes(all != 0));
    }
    bool counted = !parts.built_in; // then there is no other proof
    if (all != 0 && has_counters)
        counted = check_counters(backend);
    else if (rank == 0)
        std::printf("  no operation counters (only the simulator has them)\n");
    return all != 0 && counted;
}

} // namespace

int main(int argc, char** argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const bool any_path = argc > 1 && std::strcmp(argv[1], "--any-path") == 0;
    const LoadedParts parts = mpidemo::find_loaded_parts();
    bool right = false;
    bool path = false;
    {
        const Backend backend(parts.backend_path);
        show_places(backend);
        show_speed();
        right = check_allreduce();
        path = show_path(parts, backend);
    }
    const bool good = right && (path || any_path);
    if (rank == 0) {
        std::printf("\nmpi_demo: %d ranks; results %s; path %s: %s\n", size, right ? "right" : "WRONG",
                    path ? "Open MPI, cm, ofi, tofu, uTofu" : "not through uTofu", good ? "PASSED" : "FAILED");
    }
    MPI_Finalize();
    return good ? 0 : 1;
}
