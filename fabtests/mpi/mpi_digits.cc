// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What tests/programs/mpi_exact.sh compares between runs: the times of collectives and long messages, to the digit. Run
// by tests/programs/mpi_exact.sh, through mpirun.
#include <cstddef>
#include <cstdio>
#include <mpi.h>
#include <vector>

namespace {

int rank = 0;
int ranks = 0;

template <typename Call>
void time_of(const char* what, int bytes, int times, Call call)
{
    const double began = MPI_Wtime();
    for (int i = 0; i < times; ++i)
        call();
    const double took = MPI_Wtime() - began;
    if (rank == 0)
        std::printf("%s %d %.9f\n", what, bytes, took);
}

} // namespace

int main(int argc, char** argv)
{
    constexpr int longest = 1 << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::vector<char> out(std::size_t(longest) * std::size_t(ranks), char(rank));
    std::vector<char> in(out.size());
    for (int i = 0; i < 10; ++i) {
        double mine = rank, sum = 0;
        time_of("allreduce", 8, 1, [&] { MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
    }
    for (int bytes = 1; bytes <= 65536; bytes *= 16)
        time_of("alltoall", bytes, 3,
                [&] { MPI_Alltoall(out.data(), bytes, MPI_CHAR, in.data(), bytes, MPI_CHAR, MPI_COMM_WORLD); });
    const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int bytes = 8192; bytes <= longest; bytes *= 2)
        time_of("rendezvous", bytes, 3, [&] {
            MPI_Sendrecv(out.data(), bytes, MPI_CHAR, next, 1, in.data(), bytes, MPI_CHAR, before, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        });
    MPI_Finalize();
    return 0;
}
