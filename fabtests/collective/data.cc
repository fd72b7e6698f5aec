// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the collectives of fi_collective(3) do with data, and how they end.
#include "collective_checks.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include <rdma/fi_cm.h>

namespace fabtests {
namespace {

template <class T>
constexpr fi_datatype type_of()
{
    if constexpr (std::is_floating_point_v<T>)
        return sizeof(T) == 4 ? FI_FLOAT : FI_DOUBLE;
    constexpr bool sign = std::is_signed_v<T>;
    switch (sizeof(T)) {
    case 1: return sign ? FI_INT8 : FI_UINT8;
    case 2: return sign ? FI_INT16 : FI_UINT16;
    case 4: return sign ? FI_INT32 : FI_UINT32;
    default: return sign ? FI_INT64 : FI_UINT64;
    }
}

template <class T>
T apply(fi_op op, T a, T b)
{
    switch (op) {
    case FI_MIN: return std::min(a, b);
    case FI_MAX: return std::max(a, b);
    case FI_SUM: return static_cast<T>(a + b);
    case FI_PROD: return static_cast<T>(a * b);
    case FI_LOR: return static_cast<T>(a != 0 || b != 0);
    case FI_LAND: return static_cast<T>(a != 0 && b != 0);
    case FI_LXOR: return static_cast<T>((a != 0) != (b != 0));
    default: break;
    }
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(op == FI_BOR ? a | b : op == FI_BAND ? a & b : a ^ b);
    return a;
}

/// Every reduction of one type, by the three calls that reduce, against one value after the other.
template <class T>
void reduce_all(World& w, Party& p, fi_addr_t group)
{
    constexpr std::size_t count = 5;
    const auto value = [](unsigned rank, std::size_t i) { return static_cast<T>((rank + i) % 4); };
    for (int code = FI_MIN; code <= FI_BXOR; ++code) {
        const auto op = static_cast<fi_op>(code);
        fi_collective_attr attr{};
        attr.op = op;
        attr.datatype = type_of<T>();
        const bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR;
        const int rc = fi_query_collective(w.domain(), FI_ALLREDUCE, &attr, 0);
        CHECK(w, !w.ours() || rc == (bits && std::is_floating_point_v<T> ? -FI_EOPNOTSUPP : 0));
        if (rc != 0)
            continue;
        T in[count * max_ranks], expected[count * max_ranks], out[count];
        for (std::size_t i = 0; i < count * w.ranks(); ++i) {
            in[i] = value(w.rank(), i);
            expected[i] = value(0, i);
            for (unsigned r = 1; r < w.ranks(); ++r)
                expected[i] = apply(op, expected[i], value(r, i));
        }
        const auto is = [&](const T* values) { return std::equal(out, out + count, values); };
        std::memset(out, 0x55, sizeof out);
        CHECK(w, p.done([&] {
            return fi_allreduce(p.ep(), in, count, nullptr, out, nullptr, group, attr.datatype, op, 0, nullptr);
        }) && is(expected));
        std::memset(out, 0x55, sizeof out);
        const unsigned root = static_cast<unsigned>(code) % w.ranks();
        CHECK(w, p.done([&] {
            return fi_reduce(p.ep(), in, count, nullptr, out, nullptr, group, root, attr.datatype, op, 0, nullptr);
        }) && (w.rank() != root || is(expected)));
        std::memset(out, 0x55, sizeof out);
        CHECK(w, p.done([&] {
            return fi_reduce_scatter(p.ep(), in, count, nullptr, out, nullptr, group, attr.datatype, op, 0, nullptr);
        }) && is(expected + count * w.rank()));
    }
}

} // namespace

/// The pictures of the page, of three peers.
void check_pictures(World& w)
{
    Party p(w);
    if (w.rank() >= 3) {
        w.barrier();
        return;
    }
    const unsigned rank = w.rank();
    const std::vector<fi_addr_t> peers = p.all();
    fid_mc* const mc = p.join({peers[0], peers[1], peers[2]});
    const fi_addr_t group = fi_mc_addr(mc);
    fid_ep* const ep = p.ep();
    // [1] [5] [9]  ->  all ranks
    Words buf = rank == 0 ? Words{1, 5, 9} : Words(3);
    CHECK(w, p.done([&] { return fi_broadcast(ep, buf.data(), 3, nullptr, group, 0, FI_INT32, 0, nullptr); }));
    CHECK(w, (buf == Words{1, 5, 9}));
    // "Each peer sends a piece of its data to the other peers."
    const std::int32_t row = static_cast<std::int32_t>(rank);
    Words in{row + 1, row + 5, row + 9}, out(3);
    CHECK(w, p.done([&] {
        return fi_alltoall(ep, in.data(), 1, nullptr, out.data(), nullptr, group, FI_INT32, 0, nullptr);
    }));
    CHECK(w, (out == Words{1 + 4 * row, 2 + 4 * row, 3 + 4 * row}));
    in = {1, 5, 9};
    CHECK(w, p.done([&] {
        return fi_allreduce(ep, in.data(), 3, nullptr, out.data(), nullptr, group, FI_INT32, FI_SUM, 0, nullptr);
    }));
    CHECK(w, (out == Words{3, 15, 27}));
    Words one{1 + 4 * row}, slice(1);
    CHECK(w, p.done([&] {
        return fi_allgather(ep, one.data(), 1, nullptr, out.data(), nullptr, group, FI_INT32, 0, nullptr);
    }));
    CHECK(w, (out == Words{1, 5, 9}));
    CHECK(w, p.done([&] {
        return fi_reduce_scatter(ep, in.data(), 1, nullptr, slice.data(), nullptr, group, FI_INT32, FI_SUM, 0, nullptr);
    }));
    CHECK(w, slice[0] == 3 + 12 * row);
    out = {-1, -1, -1};
    CHECK(w, p.done([&] {
        return fi_reduce(ep, in.data(), 3, nullptr, rank == 0 ? out.data() : nullptr, nullptr, group, 0, FI_INT32,
                         FI_SUM, 0, nullptr);
    }));
    CHECK(w, (out == (rank == 0 ? Words{3, 15, 27} : Words{-1, -1, -1})));
    Words whole{3, 15, 27};
    CHECK(w, p.done([&] {
        return fi_scatter(ep, rank == 0 ? whole.data() : nullptr, 1, nullptr, slice.data(), nullptr, group, 0, FI_INT32,
                          0, nullptr);
    }));
    CHECK(w, slice[0] == 3 + 12 * row);
    out = {-1, -1, -1};
    CHECK(w, p.done([&] {
        return fi_gather(ep, one.data(), 1, nullptr, rank == 0 ? out.data() : nullptr, nullptr, group, 0, FI_INT32, 0,
                         nullptr);
    }));
    CHECK(w, (out == (rank == 0 ? Words{1, 5, 9} : Words{-1, -1, -1})));
    w.barrier();
}

/// "A barrier does not complete locally until all peers have invoked the barrier call. This signifies to the local
/// application that work by peers that completed prior to them calling barrier has finished."
void check_barrier(World& w)
{
    Party p(w);
    fid_mc* const mc = p.join(p.all());
    auto* const called = w.shared().word;
    called[w.rank()] = 0;
    w.barrier();
    for (unsigned round = 1; round <= 20; ++round) {
        if (w.rank() == round % w.ranks()) // late, until the others have polled without success
            for (unsigned i = 0; i < 200; ++i)
                w.progress();
        std::atomic_ref(called[w.rank()]).store(round);
        const std::uint64_t flags = round % 2 != 0 ? 0 : FI_COMPLETION;
        CHECK(w, p.done(
                     [&] {
                         return round % 3 == 0 ? fi_barrier(p.ep(), fi_mc_addr(mc), &round)
                                               : fi_barrier2(p.ep(), fi_mc_addr(mc), flags, &round);
                     },
                     &round));
        for (unsigned r = 0; r < w.ranks(); ++r)
            CHECK(w, std::atomic_ref(called[r]).load() >= round);
    }
    w.barrier();
}

/// "The reduce call supports the same datatype and atomic operation as fi_allreduce."
void check_reductions(World& w)
{
    Party p(w);
    fid_mc* const mc = p.join(p.all());
    const fi_addr_t group = fi_mc_addr(mc);
    reduce_all<std::int8_t>(w, p, group);
    reduce_all<std::uint8_t>(w, p, group);
    reduce_all<std::int16_t>(w, p, group);
    reduce_all<std::uint16_t>(w, p, group);
    reduce_all<std::int32_t>(w, p, group);
    reduce_all<std::uint32_t>(w, p, group);
    reduce_all<std::int64_t>(w, p, group);
    reduce_all<std::uint64_t>(w, p, group);
    reduce_all<float>(w, p, group);
    reduce_all<double>(w, p, group);
    w.barrier();
}

/// From one element to far more than a packet carries, from each root; several at a time.
void check_sizes(World& w)
{
    Party p(w);
    fid_mc* const mc = p.join(p.all());
    const fi_addr_t group = fi_mc_addr(mc);
    for (const std::size_t count : {1u, 3u, 100u, 5000u, 70000u}) {
        const unsigned root = static_cast<unsigned>(count) % w.ranks();
        std::vector<std::uint64_t> data(count), sum(count), in(count);
        for (std::size_t i = 0; i < count; ++i) {
            in[i] = i * (w.rank() + 1);
            data[i] = w.rank() == root ? i * 31 + count : 0;
        }
        CHECK(w, p.station().post([&] {
            return fi_broadcast(p.ep(), data.data(), count, nullptr, group, root, FI_UINT64, 0, &data);
        }) == 0);
        CHECK(w, p.station().post([&] {
            return fi_allreduce(p.ep(), in.data(), count, nullptr, sum.data(), nullptr, group, FI_UINT64, FI_SUM, 0,
                                &sum);
        }) == 0);
        CHECK(w, p.ends(&data) && p.ends(&sum)); // one group: in the order of the calls
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i)
            wrong += (data[i] != i * 31 + count) + (sum[i] != i * w.ranks() * (w.ranks() + 1) / 2);
        CHECK(w, wrong == 0);
    }
    w.barrier();
}

/// "The completion, ordering, and atomicity of collective operations match those defined for point to point atomic
/// operations": an entry where one is wanted, a count.
void check_completions(World& w)
{
    Party p(w, true);
    fid_mc* const mc = p.join(p.all());
    fid_cntr* const counter = p.station().counter(FI_WRITE);
    const std::uint64_t before = fi_cntr_read(counter);
    int context = 0;
    CHECK(w, p.station().post([&] { return fi_barrier2(p.ep(), fi_mc_addr(mc), 0, &context); }) == 0);
    CHECK(w, p.station().reaches(counter, before + 1));
    CHECK(w, p.quiet()); // FI_SELECTIVE_COMPLETION
    CHECK(w, p.done([&] { return fi_barrier2(p.ep(), fi_mc_addr(mc), FI_COMPLETION, &context); }, &context));
    CHECK(w, p.station().reaches(counter, before + 2) && fi_cntr_readerr(counter) == 0);
    CHECK(w, p.quiet());
    w.barrier();
}

/// What is refused has no effect: the group goes on.
void check_refusals(World& w)
{
    Party p(w);
    fid_mc* const mc = p.join(p.all());
    const fi_addr_t group = fi_mc_addr(mc);
    if (w.ours()) {
        std::uint64_t a[2] = {}, b[2] = {};
        fid_ep* const ep = p.ep();
        // "The requested atomic operation is not supported on this endpoint."
        CHECK(w, fi_allreduce(ep, a, 1, nullptr, b, nullptr, group, FI_DOUBLE, FI_BAND, 0, nullptr) == -FI_EOPNOTSUPP);
        CHECK(w, fi_reduce(ep, a, 1, nullptr, b, nullptr, group, 0, FI_INT32, FI_ATOMIC_READ, 0, nullptr) ==
                     -FI_EOPNOTSUPP);
        CHECK(w, fi_broadcast(ep, a, 1, nullptr, group, 0, FI_VOID, 0, nullptr) == -FI_EOPNOTSUPP);
        CHECK(w, fi_allgather(ep, a, 1, nullptr, b, nullptr, group, static_cast<fi_datatype>(99), 0, nullptr) ==
                     -FI_EOPNOTSUPP);
        // "exceeds that supported by the underlying provider"
        fi_collective_attr attr{};
        attr.datatype = FI_UINT64;
        CHECK(w, fi_query_collective(w.domain(), FI_BROADCAST, &attr, 0) == 0);
        CHECK(w, fi_broadcast(ep, a, attr.datatype_attr.count + 1, nullptr, group, 0, FI_UINT64, 0, nullptr) ==
                     -FI_EMSGSIZE);
        // Roots that are no member, groups that there are not, flags of other calls, no buffer.
        CHECK(w, fi_broadcast(ep, a, 1, nullptr, group, w.ranks(), FI_UINT64, 0, nullptr) == -FI_EINVAL);
        CHECK(w, fi_gather(ep, a, 1, nullptr, b, nullptr, group, FI_ADDR_UNSPEC, FI_UINT64, 0, nullptr) == -FI_EINVAL);
        CHECK(w, fi_barrier(ep, p.station().peer(0), nullptr) == -FI_EINVAL);
        CHECK(w, fi_barrier(ep, FI_ADDR_UNSPEC, nullptr) == -FI_EINVAL);
        CHECK(w, fi_barrier2(ep, group, FI_REMOTE_CQ_DATA, nullptr) == -FI_EBADFLAGS);
        CHECK(w, fi_allreduce(ep, nullptr, 1, nullptr, b, nullptr, group, FI_UINT64, FI_SUM, 0, nullptr) == -FI_EINVAL);
        CHECK(w, fi_allgather(ep, a, 1, nullptr, nullptr, nullptr, group, FI_UINT64, 0, nullptr) == -FI_EINVAL);
        // An endpoint without the capability.
        fi_info* info = w.further_info();
        info->caps &= ~FI_COLLECTIVE;
        fid_ep* plain = nullptr;
        CHECK(w, fi_endpoint(w.domain(), info, &plain, nullptr) == 0);
        CHECK(w, fi_barrier(plain, group, nullptr) < 0);
        CHECK(w, fi_close(&plain->fid) == 0);
        fi_freeinfo(info);
    }
    CHECK(w, p.quiet());
    CHECK(w, p.done([&] { return fi_barrier(p.ep(), group, nullptr); }));
    w.barrier();
}

} // namespace fabtests
