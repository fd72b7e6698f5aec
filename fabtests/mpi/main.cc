// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// mpi_conformance: runs the parts one by one, each bounded in time, and sums up. Run by tests/programs/mpi_*.sh and by
// hand.
//
// usage: mpi_conformance [--list] [PART...]     (a PART is a prefix of names: "win" runs all
// windows) Status 0: every check of every rank passed.
#include "harness.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <signal.h>
#include <unistd.h>

namespace {

constexpr unsigned part_seconds = 120;

struct Part {
    const char* name;
    const char* checks;
    void (*run)(const mpitest::World& world);
};

using namespace mpitest;

constexpr Part parts[] = {
    {"p2p_modes", "send, bsend, ssend, rsend and their non-blocking kinds", p2p_modes},
    {"p2p_sizes", "0 bytes to 8 MiB, around every power of two", p2p_sizes},
    {"p2p_order", "messages of one pair never overtake, small after large", p2p_order},
    {"p2p_sendrecv", "sendrecv and sendrecv_replace around the ring", p2p_sendrecv},
    {"p2p_persistent", "persistent requests, started repeatedly", p2p_persistent},
    {"p2p_wildcards", "any source, any tag, and matching by tag", p2p_wildcards},
    {"p2p_self", "messages to the own rank", p2p_self},
    {"p2p_cancel", "a receive that never matches is cancelled", p2p_cancel},
    {"p2p_many_requests", "a thousand requests a rank, completed out of order", p2p_many_requests},
    {"probe_blocking", "probe and iprobe return source, tag and count", probe_blocking},
    {"probe_matched", "mprobe, improbe, mrecv, imrecv", probe_matched},
    {"probe_unknown_length", "receives sized by probe, from any source", probe_unknown_length},
    {"unexpected_flood", "4000 unexpected messages a peer", unexpected_flood},
    {"unexpected_sea", "120,000 unexpected messages before the one awaited", unexpected_sea},
    {"posted_sea", "70,000 receives at a time", posted_sea},
    {"unexpected_reverse", "unexpected messages received in reverse order of tags", unexpected_reverse},
    {"unexpected_large", "unexpected messages of 2 MiB", unexpected_large},
    {"datatype_vector", "columns of matrices", datatype_vector},
    {"datatype_struct", "structures, resized, contiguous", datatype_struct},
    {"datatype_indexed", "indexed, hindexed, subarray, pack and unpack", datatype_indexed},
    {"datatype_truncation", "a message that is too long is MPI_ERR_TRUNCATE", datatype_truncation},
    {"coll_short", "barrier, allreduce and alltoall of 8 bytes, also with hundreds of ranks", coll_short},
    {"coll_basic", "barrier, bcast, gather, scatter, allgather, alltoall", coll_basic},
    {"coll_vectors", "gatherv, scatterv, allgatherv, alltoallv", coll_vectors},
    {"coll_operations", "reduce, allreduce, scan, exscan, reduce_scatter; all operations", coll_operations},
    {"coll_nonblocking", "ibarrier, ibcast, iallreduce, ialltoall, several at once", coll_nonblocking},
    {"coll_large", "collectives of 4 MiB", coll_large},
    {"comm_dup_split", "dup, split, create, ranks and groups", comm_dup_split},
    {"comm_isolation", "the same tag in two communicators never matches", comm_isolation},
    {"comm_intercomm", "intercommunicator of two halves, and merged", comm_intercomm},
    {"win_fence", "put and get between fences", win_fence},
    {"win_lock", "shared and exclusive locks, lock_all, flush", win_lock},
    {"win_pscw", "post, start, complete, wait", win_pscw},
    {"win_accumulate", "accumulate by all on one, every operation", win_accumulate},
    {"win_fetch_and_op", "fetch_and_op and get_accumulate: unique tickets", win_fetch_and_op},
    {"win_compare_and_swap", "compare_and_swap: a lock, and each swap once", win_compare_and_swap},
    {"win_datatypes", "put and get of derived types", win_datatypes},
    {"win_requests", "rput, rget, raccumulate", win_requests},
    {"win_large", "put and get of 4 MiB, dynamic and allocated windows", win_large},
    {"win_remapped", "put from where a window was before its memory was unmapped", win_remapped},
};

constexpr long told_failures = 5; // of a part and rank; the rest is only counted

const char* current_part = "start";
long checks_done = 0;
long checks_failed = 0;

// Async-signal-safe: says which part hangs, then ends the job (the launcher kills the others).
void out_of_time(int)
{
    const auto say = [](const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); };
    say("mpi_conformance: part ");
    say(current_part);
    say(" took too long\n");
    ::_exit(99);
}

bool is_chosen(const Part& part, int argc, char** argv)
{
    const int first = argc > 1 && std::strcmp(argv[1], "--forever") == 0 ? 2 : 1;
    bool chosen = argc <= first;
    for (int i = first; i < argc; i++)
        chosen = chosen || std::strncmp(part.name, argv[i], std::strlen(argv[i])) == 0;
    return chosen;
}

// True if nothing failed on any rank.
bool run_part(const Part& part, const World& world, long (&totals)[2])
{
    current_part = part.name;
    checks_done = 0;
    checks_failed = 0;
    ::alarm(part_seconds);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    part.run(world);
    long own[2] = {checks_done, checks_failed};
    long sum[2] = {0, 0};
    MPI_Allreduce(own, sum, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    ::alarm(0);
    // A part that checked nothing has passed nothing.
    const bool good = sum[1] == 0 && sum[0] > 0;
    if (world.rank == 0) {
        std::printf("%-4s %-22s %6ld checks %6.2f s  %s\n", good ? "ok" : "FAIL", part.name, sum[0],
                    MPI_Wtime() - start, part.checks);
        std::fflush(stdout);
    }
    totals[0] += sum[0];
    totals[1] += sum[1];
    return good;
}

} // namespace

namespace mpitest {

void check(bool good, const char* what, const char* file, int line)
{
    checks_done++;
    if (good)
        return;
    if (checks_failed++ < told_failures) {
        int rank = -1;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        std::fprintf(stderr, "rank %d: %s: failed: %s (%s:%d)\n", rank, current_part, what, file, line);
    }
}

void note(const World& world, const char* format, ...)
{
    if (world.rank == 0) {
        va_list arguments;
        va_start(arguments, format);
        std::printf("     %s: ", current_part);
        std::vprintf(format, arguments);
        std::printf("\n");
        va_end(arguments);
    }
}

void fill(std::vector<uint8_t>& data, uint64_t key)
{
    for (size_t i = 0; i < data.size(); i++)
        data[i] = pattern_byte(key, i);
}

bool matches(const std::vector<uint8_t>& data, uint64_t key, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] != pattern_byte(key, i))
            return false;
    return size <= data.size();
}

} // namespace mpitest

int main(int argc, char** argv)
{
    if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
        for (const Part& part : parts)
            std::printf("%-22s %s\n", part.name, part.checks);
        return 0;
    }
    ::signal(SIGALRM, out_of_time);
    MPI_Init(&argc, &argv);
    World world;
    world.comm = MPI_COMM_WORLD;
    MPI_Comm_rank(world.comm, &world.rank);
    MPI_Comm_size(world.comm, &world.size);
    int run = 0;
    int failed = 0;
    long totals[2] = {0, 0};
    const bool forever = argc > 1 && std::strcmp(argv[1], "--forever") == 0;
    do {
        for (const Part& part : parts) {
            if (is_chosen(part, argc, argv)) {
                run++;
                failed += run_part(part, world, totals) ? 0 : 1;
            }
        }
    } while (forever && failed == 0);
    const bool good = run > 0 && failed == 0;
    if (world.rank == 0) {
        std::printf("mpi_conformance: %d ranks, %d parts, %d failed; %ld checks, %ld failed: %s\n", world.size, run,
                    failed, totals[0], totals[1], good ? "PASSED" : "FAILED");
    }
    MPI_Finalize();
    return good ? 0 : 1;
}
