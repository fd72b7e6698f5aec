// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-mpi(7): collective groups of the provider execute a program's MPI_Barrier, MPI_Bcast, MPI_Reduce and
// MPI_Allreduce if they support them; MPI executes all others. MPI programs are started with this library preloaded. It
// calls MPI by its profiling names (MPI-3.1, 14.2).
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include <mpi.h>
#include <rdma/fi_errno.h>

#include "channel.h"
#include "group.h"
#include "types.h"

namespace tofu_mpi {
namespace {

constexpr int default_bytes = 1024;
constexpr int most_bytes = 1 << 20; // above this, MPI's pipelines are as fast
constexpr int default_wait = 60;    // seconds

/// The reason why this process does not take part, or `able`. The minimum over all processes decides.
enum State : int { threads = 0, no_provider = 1, no_addresses = 2, able = 3 };
constexpr const char* reasons[] = {
    "the program has asked for MPI_THREAD_MULTIPLE",
    "a process cannot open an endpoint of the provider tofu (set FI_LOG_LEVEL=warn to see the reason)",
    "a process has not got the addresses of all others",
};

Channel channel;
Groups groups{channel};
bool ready = false;
std::size_t limit = 0; ///< bytes
std::unique_ptr<char[]> packed;
long by_provider = 0, by_mpi = 0;

/// The value of an environment variable; `otherwise` if it is not set or not a number from 0 to `most`.
int number(const char* name, int otherwise, int most) noexcept
{
    const char* const text = std::getenv(name);
    if (text == nullptr || *text == '\0')
        return otherwise;
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && errno == 0 && value >= 0 && value <= most)
        return static_cast<int>(value);
    std::fprintf(stderr, "tofu-mpi: %s=%s: use a number from 0 to %d\n", name, text, most);
    return otherwise;
}

/// Replaces the answers by the minimum over all processes. A process without this library does not call, so the wait
/// has a bound. After that the job ends, since the processes may disagree whether the reduction has completed.
void agree(int (&answers)[2], int seconds) noexcept
{
    MPI_Request request = MPI_REQUEST_NULL;
    PMPI_Iallreduce(MPI_IN_PLACE, answers, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (int done = 0; done == 0;) {
        PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done == 0 && std::chrono::steady_clock::now() > deadline) {
            std::fprintf(stderr,
                         "tofu-mpi: not all processes have answered within %d seconds: preload the library in each "
                         "process of the job (mpirun -x LD_PRELOAD=...), or in none\n",
                         seconds);
            PMPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

/// True if MPI_Pack adds nothing to the data, so that its output can be sent.
bool packs_plainly() noexcept
{
    int value = 1, position = 0;
    char room[64];
    return PMPI_Pack(&value, 1, MPI_INT, room, sizeof(room), &position, MPI_COMM_SELF) == MPI_SUCCESS &&
           position == sizeof(value);
}

void begin() noexcept
{
    int size = 0, rank = 0, level = MPI_THREAD_SINGLE;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Query_thread(&level);
    if (size < 2)
        return;
    int answers[2] = {able, number("TOFU_MPI_BYTES", default_bytes, most_bytes)};
    packed.reset(new (std::nothrow) char[most_bytes]);
    if (level == MPI_THREAD_MULTIPLE)
        answers[0] = threads; // threads could join groups of the same members in any order
    else if (packed == nullptr || !packs_plainly() || !channel.open())
        answers[0] = no_provider;
    agree(answers, number("TOFU_MPI_WAIT", default_wait, INT_MAX));
    if (answers[0] == able) {
        answers[0] = channel.meet() ? able : no_addresses;
        PMPI_Allreduce(MPI_IN_PLACE, answers, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    if (answers[0] == able) {
        limit = static_cast<std::size_t>(answers[1]);
        groups.open();
        ready = true;
    } else {
        channel.close();
        if (rank == 0)
            std::fprintf(stderr, "tofu-mpi: off: %s\n", reasons[answers[0]]);
    }
}

void end() noexcept
{
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Barrier(MPI_COMM_WORLD); // no process is in a collective after this
    ready = false;
    groups.close();
    channel.close();
    if (rank == 0 && number("TOFU_MPI_STATS", 0, 1) == 1)
        std::fprintf(stderr, "tofu-mpi: rank 0: %ld collectives by the provider, %ld by MPI\n", by_provider, by_mpi);
}

/// The group that executes a collective, if `fits`. All members get the same answer.
const Group* group_for(MPI_Comm comm, bool fits) noexcept
{
    const Group* const group = ready && fits && comm != MPI_COMM_NULL ? groups.of(comm) : nullptr;
    by_mpi += group == nullptr;
    return group;
}

/// Executes a collective to its end. A failure calls the error handler of the communicator.
template <class Post>
int run(const char* name, MPI_Comm comm, Post&& post) noexcept
{
    by_provider++;
    const int err = channel.run(post);
    if (err == 0)
        return MPI_SUCCESS;
    std::fprintf(stderr,
                 "tofu-mpi: %s: %s: do all members call the same, with the same count, datatype, operation and root?\n",
                 name, fi_strerror(err));
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

struct Reduction {
    const Type* type = nullptr;
    fi_op op = FI_NOOP;
    bool fits = false;

    Reduction(int count, MPI_Datatype mpi_type, MPI_Op mpi_op) noexcept
    {
        if (!ready || count <= 0)
            return;
        type = type_of(mpi_type);
        fits =
            type != nullptr && static_cast<std::size_t>(count) * type->size <= limit && operation_of(mpi_op, *type, op);
    }
};

bool is_rank(int root, const Group& group) noexcept
{
    return root >= 0 && root < group.size;
}

int barrier(MPI_Comm comm) noexcept
{
    const Group* const group = group_for(comm, true);
    if (group == nullptr)
        return PMPI_Barrier(comm);
    return run("MPI_Barrier", comm, [&](fid_ep* ep) { return fi_barrier(ep, group->address, nullptr); });
}

int allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) noexcept
{
    const Reduction how(count, type, op);
    const Group* const group = group_for(comm, how.fits);
    if (group == nullptr)
        return PMPI_Allreduce(in, out, count, type, op, comm);
    return run("MPI_Allreduce", comm, [&](fid_ep* ep) {
        return fi_allreduce(ep, in == MPI_IN_PLACE ? out : in, static_cast<std::size_t>(count), nullptr, out, nullptr,
                            group->address, how.type->fi, how.op, 0, nullptr);
    });
}

int reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) noexcept
{
    const Reduction how(count, type, op);
    const Group* const group = group_for(comm, how.fits);
    if (group == nullptr || !is_rank(root, *group))
        return PMPI_Reduce(in, out, count, type, op, root, comm);
    return run("MPI_Reduce", comm, [&](fid_ep* ep) {
        return fi_reduce(ep, in == MPI_IN_PLACE ? out : in, static_cast<std::size_t>(count), nullptr, out, nullptr,
                         group->address, static_cast<fi_addr_t>(root), how.type->fi, how.op, 0, nullptr);
    });
}

/// Members may describe the same bytes by different datatypes (MPI-3.1, 5.4), so only the number of bytes decides. Data
/// that are not contiguous are packed.
int bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) noexcept
{
    int size = 0;
    const bool sized = ready && count > 0 && type != MPI_DATATYPE_NULL && PMPI_Type_size(type, &size) == MPI_SUCCESS;
    const std::size_t bytes = static_cast<std::size_t>(size) * static_cast<std::size_t>(sized ? count : 0);
    const Group* const group = group_for(comm, sized && bytes > 0 && bytes <= limit);
    if (group == nullptr || !is_rank(root, *group))
        return PMPI_Bcast(buffer, count, type, root, comm);
    const bool plain = type_of(type) != nullptr;
    const bool is_root = root == group->rank;
    int position = 0;
    if (!plain && is_root)
        PMPI_Pack(buffer, count, type, packed.get(), most_bytes, &position, comm);
    const int err = run("MPI_Bcast", comm, [&](fid_ep* ep) {
        return fi_broadcast(ep, plain ? buffer : packed.get(), bytes, nullptr, group->address,
                            static_cast<fi_addr_t>(root), FI_UINT8, 0, nullptr);
    });
    if (err != MPI_SUCCESS || plain || is_root)
        return err;
    return PMPI_Unpack(packed.get(), static_cast<int>(bytes), &position, buffer, count, type, comm);
}

} // namespace
} // namespace tofu_mpi

extern "C" {

#define TOFU_MPI_EXPORT __attribute__((visibility("default")))

TOFU_MPI_EXPORT int MPI_Init(int* argc, char*** argv)
{
    const int err = PMPI_Init(argc, argv);
    if (err == MPI_SUCCESS)
        tofu_mpi::begin();
    return err;
}
TOFU_MPI_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided)
{
    const int err = PMPI_Init_thread(argc, argv, required, provided);
    if (err == MPI_SUCCESS)
        tofu_mpi::begin();
    return err;
}
TOFU_MPI_EXPORT int MPI_Finalize()
{
    if (tofu_mpi::ready)
        tofu_mpi::end();
    return PMPI_Finalize();
}
TOFU_MPI_EXPORT int MPI_Barrier(MPI_Comm comm)
{
    return tofu_mpi::barrier(comm);
}
TOFU_MPI_EXPORT int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
    return tofu_mpi::bcast(buffer, count, datatype, root, comm);
}
TOFU_MPI_EXPORT int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                               int root, MPI_Comm comm)
{
    return tofu_mpi::reduce(sendbuf, recvbuf, count, datatype, op, root, comm);
}
TOFU_MPI_EXPORT int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                                  MPI_Comm comm)
{
    return tofu_mpi::allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}
}
