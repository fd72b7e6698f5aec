// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Small MPI benchmarks: latency, bandwidth, message rate, collectives, windows. Run by bench/mpi/run and by hand,
// through mpirun.
//
// usage: mpi_bench TRANSPORT [start|p2p|sizes|collectives|short|oversubscribed|windows]...
// One line for bench/report for each figure: the median of five tries of some milliseconds.
// TRANSPORT is what the lines call what was measured.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <string>
#include <vector>

namespace {

constexpr int tries = 5;
constexpr double try_seconds = 0.01;
constexpr double warm_up_seconds = 0.2;
constexpr double short_warm_up_seconds = 0.03; // thousands of messages: of what settles within hundreds
constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr std::size_t memory_bytes = 16 * MiB;
constexpr int window_size = 64;

const char* transport = "";
const char* section = "MPI";
int rank = 0, ranks = 0;
std::vector<char> memory(memory_bytes);

void say(const char* name, std::size_t bytes, const char* unit, double value)
{
    if (rank == 0)
        std::printf("%s\t%s\t%zu\t%d\t%s\t%s\t%.5g\n", section, name, bytes, ranks, unit, transport, value);
}

// Seconds of one of `f(n)`'s n repetitions: as many as fill a try, agreed on by all. Not before the transports have
// settled: registrations are kept from the second use on, and the simulator moves memory from which much is copied,
// once.
template <class F>
double time_of(F&& f, double warm_up = warm_up_seconds)
{
    long n = 4;
    double elapsed = 0;
    for (const double begin = MPI_Wtime(); elapsed < warm_up;) {
        f(n);
        elapsed = MPI_Wtime() - begin;
        MPI_Bcast(&elapsed, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    for (int attempt = 0; attempt < 12; ++attempt) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        f(n);
        elapsed = MPI_Wtime() - start;
        MPI_Bcast(&elapsed, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (elapsed > try_seconds / 4)
            break;
        n *= 4;
    }
    n = std::max(1L, long(double(n) * try_seconds / std::max(elapsed, 1e-9)));
    MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    std::vector<double> times;
    for (int i = 0; i < tries; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        f(n);
        times.push_back((MPI_Wtime() - start) / double(n));
    }
    std::sort(times.begin(), times.end());
    return times[tries / 2];
}

void exchange(char* buffer, std::size_t size, long n)
{
    for (long i = 0; i < n; ++i)
        if (rank == 0) {
            MPI_Send(buffer, int(size), MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, int(size), MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, int(size), MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, int(size), MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
}

void ping_pong(std::size_t size)
{
    say("latency", size, "ns", 1e9 / 2 * time_of([&](long n) { exchange(memory.data(), size, n); }));
}

// The sizes around the limit between what is copied and what is fetched, by where the program has its buffer; and what
// the first 30 messages of a buffer cost that no message has used before.
void sizes()
{
    constexpr std::size_t some[] = {9 * KiB, 12 * KiB, 16 * KiB, 20 * KiB, 32 * KiB, 48 * KiB, 64 * KiB};
    const auto warm = [&](const char* name, std::size_t size, char* buffer) {
        std::memset(buffer, 1, size);
        say(name, size, "ns", 1e9 / 2 * time_of([&](long n) { exchange(buffer, size, n); }, short_warm_up_seconds));
    };
    for (const std::size_t size : some) {
        char* const buffer = static_cast<char*>(std::malloc(size));
        warm("latency, malloc", size, buffer);
        std::free(buffer);
    }
    for (const std::size_t size : some) {
        char* buffer = nullptr;
        MPI_Alloc_mem(MPI_Aint(size), MPI_INFO_NULL, &buffer);
        warm("latency, MPI_Alloc_mem", size, buffer);
        MPI_Free_mem(buffer);
    }
    for (const std::size_t size : some) {
        char buffer[64 * KiB];
        warm("latency, stack", size, buffer);
    }
    for (const std::size_t size : some) {
        constexpr std::size_t buffers = 31, messages = 30;
        std::vector<char*> fresh;
        std::vector<double> times;
        for (std::size_t i = 0; i < buffers; ++i)
            fresh.push_back(static_cast<char*>(std::malloc(size)));
        for (char* const buffer : fresh) {
            std::memset(buffer, 1, size);
            MPI_Barrier(MPI_COMM_WORLD);
            const double start = MPI_Wtime();
            exchange(buffer, size, messages / 2);
            times.push_back((MPI_Wtime() - start) / messages);
        }
        std::sort(times.begin(), times.end());
        say("latency, first 30 messages", size, "ns", 1e9 * times[buffers / 2]);
        for (char* const buffer : fresh)
            std::free(buffer);
    }
}

// Seconds of one message in windows that are answered by an empty one: from each rank of the first `pairs` to one of
// the next.
double stream(std::size_t size, int window, int pairs = 1)
{
    const bool sends = rank < pairs;
    const int other = sends ? rank + pairs : rank - pairs;
    std::vector<MPI_Request> requests(static_cast<std::size_t>(window));
    double seconds = time_of([&](long n) {
        for (long i = 0; i < n && rank < 2 * pairs; ++i) {
            for (int slot = 0; slot < window; ++slot) {
                char* at = memory.data() + std::size_t(slot) * size % memory_bytes;
                if (sends)
                    MPI_Isend(at, int(size), MPI_CHAR, other, 2, MPI_COMM_WORLD, &requests[std::size_t(slot)]);
                else
                    MPI_Irecv(at, int(size), MPI_CHAR, other, 2, MPI_COMM_WORLD, &requests[std::size_t(slot)]);
            }
            MPI_Waitall(window, requests.data(), MPI_STATUSES_IGNORE);
            if (sends)
                MPI_Recv(nullptr, 0, MPI_CHAR, other, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Send(nullptr, 0, MPI_CHAR, other, 3, MPI_COMM_WORLD);
        }
    });
    return seconds / window;
}

void point_to_point()
{
    for (std::size_t size : {std::size_t{0}, std::size_t{8}, KiB, 4 * KiB, 64 * KiB, MiB})
        ping_pong(size);
    for (std::size_t size : {4 * KiB, 64 * KiB, MiB})
        say("bandwidth", size, "MiB/s", double(size) / double(MiB) / stream(size, 16));
    say("message rate", 64, "M/s", 1e-6 / stream(64, window_size));
}

void barrier()
{
    double seconds = time_of([](long n) {
        for (long i = 0; i < n; ++i)
            MPI_Barrier(MPI_COMM_WORLD);
    });
    say("barrier", 0, "ns", seconds * 1e9);
}

void collectives()
{
    for (std::size_t count : {std::size_t{1}, std::size_t{128}, 8 * KiB}) {
        auto* in = reinterpret_cast<double*>(memory.data());
        double* out = in + memory_bytes / 2 / sizeof(double);
        double seconds = time_of([&](long n) {
            for (long i = 0; i < n; ++i)
                MPI_Allreduce(in, out, int(count), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        });
        say("allreduce", count * sizeof(double), "ns", seconds * 1e9);
    }
    barrier();
}

// What tofu-mpi(7) takes to the provider.
void short_collectives()
{
    section = "MPI collectives";
    char* const in = memory.data();
    char* const out = in + memory_bytes / 2;
    const auto each = [](const char* name, std::size_t size, auto&& call) {
        say(name, size, "ns", 1e9 * time_of([&](long n) {
                                  for (long i = 0; i < n; ++i)
                                      call(int(size));
                              }));
    };
    barrier();
    for (std::size_t size : {std::size_t{8}, std::size_t{48}, KiB}) {
        each("allreduce", size,
             [&](int bytes) { MPI_Allreduce(in, out, bytes / int(sizeof(long)), MPI_LONG, MPI_SUM, MPI_COMM_WORLD); });
        each("reduce", size,
             [&](int bytes) { MPI_Reduce(in, out, bytes / int(sizeof(long)), MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD); });
        each("bcast", size, [&](int bytes) { MPI_Bcast(in, bytes, MPI_CHAR, 0, MPI_COMM_WORLD); });
    }
    section = "MPI";
}

// What more ranks than processors do to each other: collectives by size, and pairs that send windows at a time.
void oversubscribed()
{
    char* const in = memory.data();
    char* const out = in + memory_bytes / 2;
    const MPI_Comm world = MPI_COMM_WORLD;
    auto collective = [](const char* name, std::size_t size, auto&& call) {
        say(name, size, "ns", 1e9 * time_of([&](long n) {
                                  for (long i = 0; i < n; ++i)
                                      call(int(size));
                              }));
    };
    for (std::size_t size : {std::size_t{8}, KiB, 16 * KiB, 64 * KiB, MiB}) {
        collective("allreduce", size,
                   [&](int bytes) { MPI_Allreduce(in, out, bytes / int(sizeof(double)), MPI_DOUBLE, MPI_SUM, world); });
        collective("alltoall", size,
                   [&](int bytes) { MPI_Alltoall(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, world); });
        collective("bcast", size, [&](int bytes) { MPI_Bcast(in, bytes, MPI_CHAR, 0, world); });
        collective("allgather", size,
                   [&](int bytes) { MPI_Allgather(in, bytes, MPI_CHAR, out, bytes, MPI_CHAR, world); });
    }
    barrier();
    for (std::size_t size : {std::size_t{8}, 4 * KiB, 64 * KiB})
        say("pairs", size, "M/s", 1e-6 * (ranks / 2) / stream(size, 32, ranks / 2));
}

// Rank 0 works on rank 1's window; the others wait in a barrier.
void windows()
{
    // Of the program's own memory: what MPI allocates for a window on one machine it shares without
    // any transport.
    std::vector<char> exposed(memory_bytes);
    MPI_Win window;
    MPI_Win_create(exposed.data(), MPI_Aint(memory_bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    auto alone = [&](auto&& f) {
        return time_of([&](long n) {
            for (long i = 0; i < n && rank == 0; ++i)
                f();
            MPI_Barrier(MPI_COMM_WORLD);
        });
    };
    auto put = [&](std::size_t size) {
        MPI_Put(memory.data(), int(size), MPI_CHAR, 1, 0, int(size), MPI_CHAR, window);
        MPI_Win_flush(1, window);
    };
    auto get = [&](std::size_t size) {
        MPI_Get(memory.data(), int(size), MPI_CHAR, 1, 0, int(size), MPI_CHAR, window);
        MPI_Win_flush(1, window);
    };
    say("put and flush", 8, "ns", 1e9 * alone([&] { put(8); }));
    say("get and flush", 8, "ns", 1e9 * alone([&] { get(8); }));
    say("put bandwidth", MiB, "MiB/s", 1 / alone([&] { put(MiB); }));
    say("get bandwidth", MiB, "MiB/s", 1 / alone([&] { get(MiB); }));
    long one = 1, zero = 0, old = 0;
    say("fetch-and-op and flush", 8, "ns", 1e9 * alone([&] {
                                               MPI_Fetch_and_op(&one, &old, MPI_LONG, 1, 64, MPI_SUM, window);
                                               MPI_Win_flush(1, window);
                                           }));
    say("compare-and-swap and flush", 8, "ns", 1e9 * alone([&] {
                                                   MPI_Compare_and_swap(&one, &zero, &old, MPI_LONG, 1, 128, window);
                                                   MPI_Win_flush(1, window);
                                               }));
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

} // namespace

int main(int argc, char** argv)
{
    const auto start = std::chrono::steady_clock::now();
    MPI_Init(&argc, &argv);
    const std::chrono::duration<double, std::milli> init = std::chrono::steady_clock::now() - start;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || ranks < 2) {
        std::fprintf(stderr, "usage: mpirun -n RANKS mpi_bench TRANSPORT "
                             "[start|p2p|sizes|collectives|short|oversubscribed|windows]...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    transport = argv[1];
    std::memset(memory.data(), 1, memory_bytes);
    for (int i = 2; i < argc; ++i) {
        std::string part = argv[i];
        if (part == "start")
            say("MPI_Init", 0, "ms", init.count());
        else if (part == "p2p")
            point_to_point();
        else if (part == "sizes")
            sizes();
        else if (part == "collectives")
            collectives();
        else if (part == "short")
            short_collectives();
        else if (part == "oversubscribed")
            oversubscribed();
        else if (part == "windows")
            windows();
    }
    MPI_Finalize();
    return 0;
}
