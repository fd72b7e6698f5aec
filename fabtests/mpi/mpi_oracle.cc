// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MPI_Barrier, MPI_Bcast, MPI_Reduce and MPI_Allreduce of random kinds on random communicators, with messages under
// way, against a sequential model. Run by tests/programs/mpi_preload.sh and by hand, through mpirun.
//
// usage: mpi_oracle [random SEED STEPS | handles SEED STEPS | errors | threads | spawn]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <mpi.h>
#include <unistd.h>

namespace {

constexpr unsigned most_seconds = 60;
int failures = 0, checks = 0;

void check(bool good, const char* what, long step)
{
    checks++;
    if (good || failures++ >= 5)
        return;
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "mpi_oracle: rank %d, step %ld: wrong: %s\n", rank, step, what);
}

/// The same numbers for all ranks that ask for the same.
std::uint64_t mix(std::uint64_t a, std::uint64_t b)
{
    std::uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x632be59bd9b4e019u);
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 29;
}

struct Draw {
    std::uint64_t state;
    unsigned below(unsigned n) { return static_cast<unsigned>((state = mix(state, n)) % n); }
};

// --- reductions

enum class Op { sum, prod, min, max, land, lor, lxor, band, bor, bxor, mine };

/// MPI_Op_create: the first that is not 0; associative, not commutative.
void first_of(void* in, void* inout, int* count, MPI_Datatype*)
{
    for (int i = 0; i < *count; i++)
        if (const long value = static_cast<long*>(in)[i]; value != 0)
            static_cast<long*>(inout)[i] = value;
}

template <class T>
T combine(Op op, T a, T b)
{
    switch (op) {
    case Op::sum: return static_cast<T>(a + b);
    case Op::prod: return static_cast<T>(a * b);
    case Op::min: return std::min(a, b);
    case Op::max: return std::max(a, b);
    case Op::land: return static_cast<T>(a != T{} && b != T{});
    case Op::lor: return static_cast<T>(a != T{} || b != T{});
    case Op::lxor: return static_cast<T>((a != T{}) != (b != T{}));
    case Op::mine: return a != T{} ? a : b;
    default: break;
    }
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(op == Op::band ? a & b : op == Op::bor ? a | b : a ^ b);
    return T{};
}

/// Small numbers: their sums and products are exact in any order, and fit.
template <class T>
T element(Op op, std::uint64_t key, int rank, int i)
{
    const std::uint64_t x = mix(mix(key, static_cast<std::uint64_t>(rank)), static_cast<std::uint64_t>(i));
    if (op == Op::prod)
        return static_cast<T>(rank < 4 ? 1 + x % 2 : 1);
    if (op == Op::band || op == Op::bor || op == Op::bxor)
        return static_cast<T>(x);
    if (op == Op::land || op == Op::lor || op == Op::lxor)
        return static_cast<T>(x % 3 != 0 ? x % 5 : 0);
    return static_cast<T>(static_cast<long>(x % 15) - (std::is_unsigned_v<T> ? 0 : 7));
}

struct Call {
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0, size = 0, count = 0, root = 0;
    bool everybody = false, in_place = false;
    std::uint64_t key = 0;
    long step = 0;
};

template <class T>
void reduce(const Call& call, MPI_Datatype type, Op op, MPI_Op mpi_op)
{
    const auto n = static_cast<std::size_t>(call.count);
    std::vector<T> in(n + 1), out(n + 1, static_cast<T>(3)), expected(n + 1, static_cast<T>(3));
    for (int i = 0; i < call.count; i++) {
        const auto at = static_cast<std::size_t>(i);
        in[at] = element<T>(op, call.key, call.rank, i);
        T sum = element<T>(op, call.key, 0, i);
        for (int r = 1; r < call.size; r++)
            sum = combine<T>(op, sum, element<T>(op, call.key, r, i));
        expected[at] = sum;
    }
    const bool gets = call.everybody || call.rank == call.root;
    // MPICH 4.0.2 copies from MPI_IN_PLACE in MPI_Reduce of long vectors.
    const bool in_place = call.in_place && gets && (call.everybody || n * sizeof(T) <= 1024);
    if (in_place)
        std::copy_n(in.begin(), n, out.begin());
    const void* const from = in_place ? MPI_IN_PLACE : in.data();
    const std::vector<T> before = in;
    if (call.everybody)
        MPI_Allreduce(from, out.data(), call.count, type, mpi_op, call.comm);
    else
        MPI_Reduce(from, gets ? out.data() : nullptr, call.count, type, mpi_op, call.root, call.comm);
    if (gets)
        check(out == expected, call.everybody ? "MPI_Allreduce" : "MPI_Reduce", call.step);
    check(in == before, "the input was changed", call.step);
}

template <class T>
void any_reduction(const Call& call, MPI_Datatype type, Draw& draw)
{
    static const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_LAND,
                                 MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    const unsigned op = draw.below(std::is_integral_v<T> ? 10 : 4);
    reduce<T>(call, type, static_cast<Op>(op), ops[op]);
}

/// Not the provider's: pairs with an index.
void least_of_pairs(const Call& call)
{
    struct Pair {
        double value;
        int index;
    } in{element<double>(Op::min, call.key, call.rank, 0), call.rank}, out{0, -1};
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE_INT, MPI_MINLOC, call.comm);
    int best = 0;
    for (int r = 1; r < call.size; r++)
        if (element<double>(Op::min, call.key, r, 0) < element<double>(Op::min, call.key, best, 0))
            best = r;
    check(out.index == best && out.value == element<double>(Op::min, call.key, best, 0), "MPI_MINLOC", call.step);
}

// --- broadcast

/// The members need not describe the same ints by the same datatype.
void broadcast(const Call& call, unsigned how)
{
    const auto n = static_cast<std::size_t>(call.count);
    const std::size_t stride = how == 1 ? 2 : 1;
    std::vector<int> data(n * stride + 1, -1);
    for (std::size_t i = 0; i < n && call.rank == call.root; i++)
        data[i * stride] = element<int>(Op::sum, call.key, call.root, static_cast<int>(i));
    if (how == 0) {
        MPI_Bcast(data.data(), call.count, MPI_INT, call.root, call.comm);
    } else {
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_Type_vector(call.count, 1, static_cast<int>(stride), MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Bcast(data.data(), 1, type, call.root, call.comm);
        MPI_Type_free(&type);
    }
    bool good = data[n * stride] == -1;
    for (std::size_t i = 0; i < n; i++)
        good = good && data[i * stride] == element<int>(Op::sum, call.key, call.root, static_cast<int>(i)) &&
               (stride == 1 || data[i * stride + 1] == -1);
    check(good, "MPI_Bcast", call.step);
}

// --- what goes on besides

/// A message to a neighbour that needs both sides' progress: begun before a collective, ended behind it.
class Traffic {
  public:
    Traffic(std::uint64_t key, int rank, int size, bool blocking, long step)
        : in_(1 + mix(key, 1) % 200000, 0), out_(in_.size(), static_cast<char>(1 + rank)), step_(step)
    {
        const int count = static_cast<int>(in_.size());
        from_ = (rank + size - 1) % size;
        MPI_Irecv(in_.data(), count, MPI_CHAR, from_, 7, MPI_COMM_WORLD, &requests_[0]);
        // All receives are posted, so that each send ends, even if ranks are in a collective by then.
        if (blocking && rank % 2 == 1)
            MPI_Send(out_.data(), count, MPI_CHAR, (rank + 1) % size, 7, MPI_COMM_WORLD);
        else
            MPI_Isend(out_.data(), count, MPI_CHAR, (rank + 1) % size, 7, MPI_COMM_WORLD, &requests_[1]);
    }
    void end()
    {
        MPI_Waitall(2, requests_, MPI_STATUSES_IGNORE);
        check(std::count(in_.begin(), in_.end(), static_cast<char>(1 + from_)) == static_cast<long>(in_.size()),
              "a message", step_);
    }

  private:
    std::vector<char> in_, out_;
    long step_;
    int from_ = 0;
    MPI_Request requests_[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

// --- the runs

/// The communicators that the steps draw from. Calls on `comms[which]` may name none (MPI_COMM_NULL).
struct Communicators {
    MPI_Comm comms[6] = {MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm between = MPI_COMM_NULL; ///< an intercommunicator of the two halves

    Communicators(int rank, int size)
    {
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &comms[3]);
        MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, 0, &comms[4]);
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[5]); // not freed by us: MPI_Finalize does
        MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < size / 2 ? size / 2 : 0, 9, &between);
    }
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;
    ~Communicators()
    {
        for (MPI_Comm* comm : {&comms[2], &comms[3], &comms[4], &half, &between})
            if (*comm != MPI_COMM_NULL)
                MPI_Comm_free(comm);
    }
    /// Another communicator of the same members, and maybe in the same memory.
    void renew()
    {
        MPI_Comm_free(&comms[2]);
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]);
    }
};

void reduction_of_type(unsigned type, const Call& call, Draw& own, MPI_Op mine)
{
    switch (type) {
    case 0: any_reduction<double>(call, MPI_DOUBLE, own); break;
    case 1: any_reduction<int>(call, MPI_INT, own); break;
    case 2: any_reduction<long>(call, MPI_LONG, own); break;
    case 3: any_reduction<float>(call, MPI_FLOAT, own); break;
    case 4: any_reduction<std::uint64_t>(call, MPI_UINT64_T, own); break;
    case 5: any_reduction<signed char>(call, MPI_SIGNED_CHAR, own); break;
    case 6: any_reduction<unsigned short>(call, MPI_UNSIGNED_SHORT, own); break;
    case 7: any_reduction<long double>(call, MPI_LONG_DOUBLE, own); break;
    case 8: reduce<unsigned char>(call, MPI_BYTE, Op::bxor, MPI_BXOR); break;
    case 9: any_reduction<MPI_Aint>(call, MPI_AINT, own); break;
    case 10: reduce<long>(call, MPI_LONG, Op::mine, mine); break;
    case 11: least_of_pairs(call); break;
    }
}

/// One collective call. All ranks draw the same numbers.
void random_step(Draw& draw, long step, const Communicators& all, MPI_Op mine)
{
    const unsigned which = draw.below(8), kind = draw.below(8), type = draw.below(12), length = draw.below(10);
    const unsigned count = length < 5 ? draw.below(7) : length < 9 ? draw.below(200) : draw.below(3000);
    const unsigned root = draw.below(1u << 30);
    Call call;
    call.comm = which < 6 ? all.comms[which] : MPI_COMM_WORLD;
    if (call.comm == MPI_COMM_NULL)
        return;
    call.count = static_cast<int>(count);
    call.everybody = kind < 3;
    call.in_place = root % 5 == 0;
    call.key = draw.state;
    call.step = step;
    MPI_Comm_rank(call.comm, &call.rank);
    MPI_Comm_size(call.comm, &call.size);
    call.root = static_cast<int>(root % static_cast<unsigned>(call.size));
    Draw own{call.key};
    if (kind == 7) {
        MPI_Barrier(call.comm);
        if (which == 7)
            MPI_Barrier(all.between);
    } else if (kind >= 5) {
        // Of nothing by one datatype: Open MPI goes by the count there, and sends elements without bytes.
        broadcast(call,
                  count == 0 ? 0 : static_cast<unsigned>(mix(call.key, static_cast<std::uint64_t>(call.rank)) % 3));
    } else {
        reduction_of_type(type, call, own, mine);
    }
}

void random_steps(std::uint64_t seed, long steps)
{
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    Communicators all(rank, size);
    MPI_Op mine = MPI_OP_NULL;
    MPI_Op_create(first_of, 0, &mine);
    Draw draw{seed};
    for (long step = 0; step < steps; step++) {
        if (step % 16 == 15)
            all.renew();
        const unsigned way = draw.below(4);
        std::optional<Traffic> traffic;
        if (way < 2)
            traffic.emplace(mix(seed, static_cast<std::uint64_t>(step)), rank, size, way == 0, step);
        random_step(draw, step, all, mine);
        if (traffic)
            traffic->end();
    }
    MPI_Op_free(&mine);
}

// --- communicators that come and go

/// What a new communicator must compute: the members are those that its group says, whatever its handle named before.
void used(MPI_Comm comm, long step)
{
    MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    MPI_Comm_group(comm, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int size = 0, rank = 0, here = 0;
    MPI_Group_size(group, &size);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_rank(MPI_COMM_WORLD, &here);
    long expected = 0, first = 0, sum = 0;
    for (int member = 0; member < size; member++) {
        int there = 0;
        MPI_Group_translate_ranks(group, 1, &member, world, &there);
        expected += 1 + there * there;
        first = member == size - 1 ? 1 + there : first;
    }
    const long mine = 1 + here * here;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    check(sum == expected, "a sum over a new communicator", step);
    long value = rank == size - 1 ? 1 + here : 0;
    MPI_Bcast(&value, 1, MPI_LONG, size - 1, comm);
    check(value == first, "a broadcast over a new communicator", step);
    MPI_Barrier(comm);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

/// All ranks call it with the same draws. MPI_COMM_NULL where this rank is no member.
MPI_Comm new_communicator(Draw& draw, int rank, int size)
{
    MPI_Comm comm = MPI_COMM_NULL;
    const int pick = static_cast<int>(draw.below(static_cast<unsigned>(size)));
    switch (draw.below(8)) {
    case 0: MPI_Comm_dup(MPI_COMM_WORLD, &comm); break;
    case 1: MPI_Comm_split(MPI_COMM_WORLD, rank == pick, -rank, &comm); break; // one is alone
    case 2: MPI_Comm_split(MPI_COMM_WORLD, rank == pick ? MPI_UNDEFINED : 0, 0, &comm); break;
    case 3: MPI_Comm_dup(MPI_COMM_SELF, &comm); break;
    case 4: {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
        MPI_Barrier(MPI_COMM_WORLD); // while it is under way
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    }
    case 5: {
        MPI_Group world = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_excl(world, 1, &pick, &some);
        if (rank != pick)
            MPI_Comm_create_group(MPI_COMM_WORLD, some, 11, &comm);
        MPI_Group_free(&some);
        MPI_Group_free(&world);
        break;
    }
    default: { // by way of an intercommunicator, which is used, too
        const bool low = rank < (size + 1) / 2;
        MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? (size + 1) / 2 : 0, 9, &between);
        MPI_Barrier(between);
        MPI_Intercomm_merge(between, low, &comm);
        MPI_Comm_free(&between);
        MPI_Comm_free(&half);
    }
    }
    return comm;
}

/// Ranks free what others do not have, so that a handle comes back at one rank that is new at another.
void handles(std::uint64_t seed, long steps)
{
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm comms[3] = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
    Draw draw{seed};
    for (long step = 0; step < steps; step++) {
        MPI_Comm& comm = comms[draw.below(3)];
        const bool disconnects = draw.below(4) == 0;
        const bool uses = draw.below(4) != 0;
        if (comm != MPI_COMM_NULL) {
            if (uses)
                used(comm, step); // the last one that this rank asks for before it goes
            disconnects ? MPI_Comm_disconnect(&comm) : MPI_Comm_free(&comm);
        }
        comm = new_communicator(draw, rank, size);
        if (comm != MPI_COMM_NULL)
            used(comm, step);
    }
    for (MPI_Comm& comm : comms)
        if (comm != MPI_COMM_NULL)
            MPI_Comm_free(&comm);
}

/// Members with different calls get an error, and the communicator stays valid.
/// MPI's own collectives need not notice.
void errors()
{
    int rank = 0;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    long in[2] = {1, 1}, out[2] = {0, 0};
    check(MPI_Allreduce(in, out, rank == 0 ? 1 : 2, MPI_LONG, MPI_SUM, comm) != MPI_SUCCESS, "a mismatch is reported",
          0);
    check(MPI_Barrier(comm) == MPI_SUCCESS, "a barrier after it", 1);
    // Refused by MPI itself, as without any library.
    check(MPI_Bcast(in, 1, MPI_LONG, -7, comm) != MPI_SUCCESS, "an invalid root", 2);
    check(MPI_Allreduce(in, out, -1, MPI_LONG, MPI_SUM, comm) != MPI_SUCCESS, "a negative count", 3);
    check(MPI_Barrier(comm) == MPI_SUCCESS, "a barrier after these", 4);
    MPI_Comm_free(&comm);
}

/// Starts as many again, and all of them talk; those that were started do the same from their side.
void spawn(const char* program)
{
    char run[] = "spawn";
    char* arguments[] = {run, nullptr};
    int here = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &here);
    MPI_Comm parent = MPI_COMM_NULL, between = MPI_COMM_NULL, all = MPI_COMM_NULL;
    MPI_Comm_get_parent(&parent);
    const bool first = parent == MPI_COMM_NULL;
    if (first)
        MPI_Comm_spawn(program, arguments, here, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
    else
        between = parent;
    MPI_Intercomm_merge(between, first ? 0 : 1, &all);
    int rank = 0, size = 0, sum = 0;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    check(size == 2 * here, "the size of both worlds", 0);
    const int mine = 1 + rank;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all);
    check(sum == size * (size + 1) / 2, "a sum over both worlds", 1);
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{5000}, std::size_t{300000}}) {
        std::vector<char> in(bytes, 0), out(bytes, static_cast<char>(1 + rank));
        const int other = (rank + here) % size; // in the other world
        const int count = static_cast<int>(bytes);
        MPI_Sendrecv(out.data(), count, MPI_CHAR, other, 3, in.data(), count, MPI_CHAR, other, 3, all,
                     MPI_STATUS_IGNORE);
        check(std::count(in.begin(), in.end(), static_cast<char>(1 + other)) == static_cast<long>(bytes),
              "a message between the worlds", static_cast<long>(bytes));
    }
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
}

} // namespace

int main(int argc, char** argv)
{
    const std::string run = argc > 1 ? argv[1] : "random";
    ::alarm(most_seconds);
    int level = 0;
    if (run == "threads")
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&argc, &argv);
    const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (run == "errors")
        errors();
    else if (run == "spawn")
        spawn(argv[0]);
    else if (run == "handles")
        handles(seed, argc > 3 ? std::strtol(argv[3], nullptr, 10) : 40);
    else
        random_steps(seed, argc > 3 ? std::strtol(argv[3], nullptr, 10) : 100);
    int all[2] = {checks, failures}, sum[2] = {0, 0}, rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(all, sum, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("mpi_oracle: %d checks, %d failed: %s\n", sum[0], sum[1],
                    sum[0] > 0 && sum[1] == 0 ? "PASSED" : "FAILED");
    MPI_Finalize();
    return sum[0] > 0 && sum[1] == 0 ? 0 : 1;
}
