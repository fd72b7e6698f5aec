// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every entry of fi_rma and fi_atomic with every kind of key: what the region allows takes effect, what it does not
// changes nothing and is reported by one error entry, also of what was injected. Between processes over the simulator;
// run by make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

constexpr unsigned most = 64; ///< words that a way touches

/// Where a way goes, and what it needs besides.
struct At {
    fid_ep* ep;
    std::uint64_t address;
    std::uint64_t key;
    std::uint64_t* operand; ///< of most words, each the same
    std::uint64_t* compare;
    std::uint64_t* result;
};

/// One entry of the tables of operations. Each turns words of 5 into 9, or reads 5.
struct Way {
    const char* name;
    std::uint64_t needs; ///< rights
    unsigned words;
    std::uint64_t operand;
    bool silent; ///< no entry on success
    ssize_t (*call)(const At& at, void* context);
};

iovec bytes_of(std::uint64_t* words, unsigned n)
{
    return {words, 8 * n};
}

ssize_t write_message(const At& at, unsigned n, void* context, std::uint64_t flags)
{
    const iovec local = bytes_of(at.operand, n);
    const fi_rma_iov remote{at.address, 8 * n, at.key};
    const fi_msg_rma msg{&local, nullptr, 1, 1, &remote, 1, context, 7};
    return fi_writemsg(at.ep, &msg, flags);
}

ssize_t read_message(const At& at, unsigned n, void* context)
{
    const iovec local = bytes_of(at.result, n);
    const fi_rma_iov remote{at.address, 8 * n, at.key};
    const fi_msg_rma msg{&local, nullptr, 1, 1, &remote, 1, context, 0};
    return fi_readmsg(at.ep, &msg, FI_COMPLETION);
}

enum class Form { base, fetch, compare };

ssize_t atomic_message(const At& at, Form form, std::size_t n, fi_datatype type, fi_op op, void* context,
                       std::uint64_t flags)
{
    const fi_ioc operand{at.operand, n};
    const fi_ioc compare{at.compare, n};
    fi_ioc result{at.result, n};
    const fi_rma_ioc remote{at.address, n, at.key};
    fi_msg_atomic msg{};
    msg.msg_iov = &operand;
    msg.iov_count = 1;
    msg.addr = 1;
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.datatype = type;
    msg.op = op;
    msg.context = context;
    switch (form) {
    case Form::base: return fi_atomicmsg(at.ep, &msg, flags);
    case Form::fetch: return fi_fetch_atomicmsg(at.ep, &msg, &result, nullptr, 1, flags);
    case Form::compare: break;
    }
    return fi_compare_atomicmsg(at.ep, &msg, &compare, nullptr, 1, &result, nullptr, 1, flags);
}

ssize_t atomic_list(const At& at, Form form, std::size_t n, fi_op op, void* context)
{
    const fi_ioc operand{at.operand, n};
    const fi_ioc compare{at.compare, n};
    fi_ioc result{at.result, n};
    switch (form) {
    case Form::base: return fi_atomicv(at.ep, &operand, nullptr, 1, 1, at.address, at.key, FI_UINT64, op, context);
    case Form::fetch:
        return fi_fetch_atomicv(at.ep, &operand, nullptr, 1, &result, nullptr, 1, 1, at.address, at.key, FI_UINT64, op,
                                context);
    case Form::compare: break;
    }
    return fi_compare_atomicv(at.ep, &operand, nullptr, 1, &compare, nullptr, 1, &result, nullptr, 1, 1, at.address,
                              at.key, FI_UINT64, op, context);
}

template <fi_datatype type, fi_op op, unsigned n = 1>
ssize_t update(const At& at, void* context)
{
    return fi_atomic(at.ep, at.operand, n, nullptr, 1, at.address, at.key, type, op, context);
}
template <fi_datatype type, fi_op op, unsigned n = 1>
ssize_t inject(const At& at, void*)
{
    return fi_inject_atomic(at.ep, at.operand, n, 1, at.address, at.key, type, op);
}
template <fi_datatype type, fi_op op, unsigned n = 1>
ssize_t fetch(const At& at, void* context)
{
    return fi_fetch_atomic(at.ep, at.operand, n, nullptr, at.result, nullptr, 1, at.address, at.key, type, op, context);
}
template <fi_datatype type, fi_op op, unsigned n = 1>
ssize_t swap(const At& at, void* context)
{
    return fi_compare_atomic(at.ep, at.operand, n, nullptr, at.compare, nullptr, at.result, nullptr, 1, at.address,
                             at.key, type, op, context);
}

constexpr auto int128 = static_cast<fi_datatype>(FI_INT128);
constexpr std::uint64_t r = FI_REMOTE_READ;
constexpr std::uint64_t w = FI_REMOTE_WRITE;

const Way ways[] = {
    {"write", w, 1, 9, false,
     [](const At& at, void* c) { return fi_write(at.ep, at.operand, 8, nullptr, 1, at.address, at.key, c); }},
    {"write, long", w, 64, 9, false,
     [](const At& at, void* c) { return fi_write(at.ep, at.operand, 512, nullptr, 1, at.address, at.key, c); }},
    {"writev", w, 2, 9, false,
     [](const At& at, void* c) {
         const iovec local[] = {bytes_of(at.operand, 1), bytes_of(at.operand, 1)};
         return fi_writev(at.ep, local, nullptr, 2, 1, at.address, at.key, c);
     }},
    {"writemsg", w, 1, 9, false, [](const At& at, void* c) { return write_message(at, 1, c, FI_COMPLETION); }},
    {"writemsg, inject", w, 1, 9, false,
     [](const At& at, void* c) { return write_message(at, 1, c, FI_COMPLETION | FI_INJECT); }},
    {"writemsg, inject complete", w, 1, 9, false,
     [](const At& at, void* c) { return write_message(at, 1, c, FI_COMPLETION | FI_DELIVERY_COMPLETE); }},
    {"writemsg, fence", w, 1, 9, false,
     [](const At& at, void* c) { return write_message(at, 1, c, FI_COMPLETION | FI_FENCE); }},
    {"inject_write", w, 1, 9, true,
     [](const At& at, void*) { return fi_inject_write(at.ep, at.operand, 8, 1, at.address, at.key); }},
    {"inject_write, long", w, 8, 9, true,
     [](const At& at, void*) { return fi_inject_write(at.ep, at.operand, 64, 1, at.address, at.key); }},
    {"writedata", w, 1, 9, false,
     [](const At& at, void* c) { return fi_writedata(at.ep, at.operand, 8, nullptr, 7, 1, at.address, at.key, c); }},
    {"inject_writedata", w, 1, 9, true,
     [](const At& at, void*) { return fi_inject_writedata(at.ep, at.operand, 8, 7, 1, at.address, at.key); }},
    {"read", r, 1, 0, false,
     [](const At& at, void* c) { return fi_read(at.ep, at.result, 8, nullptr, 1, at.address, at.key, c); }},
    {"read, long", r, 64, 0, false,
     [](const At& at, void* c) { return fi_read(at.ep, at.result, 512, nullptr, 1, at.address, at.key, c); }},
    {"readv", r, 2, 0, false,
     [](const At& at, void* c) {
         const iovec local[] = {bytes_of(at.result, 1), bytes_of(at.result + 1, 1)};
         return fi_readv(at.ep, local, nullptr, 2, 1, at.address, at.key, c);
     }},
    {"readmsg", r, 1, 0, false, [](const At& at, void* c) { return read_message(at, 1, c); }},
    {"atomic", w, 1, 4, false, update<FI_UINT64, FI_SUM>},
    {"atomic, row", w, 8, 4, false, update<FI_UINT64, FI_SUM, 8>},
    {"atomic, loop", w, 1, 9, false, update<FI_UINT64, FI_MAX>},
    {"atomic, span", w, 64, 9, false, update<FI_UINT64, FI_MAX, 64>},
    {"atomic, wide", w, 2, 4, false, update<int128, FI_SUM>},
    {"atomicv", w, 1, 4, false, [](const At& at, void* c) { return atomic_list(at, Form::base, 1, FI_SUM, c); }},
    {"atomicmsg", w, 1, 4, false,
     [](const At& at, void* c) { return atomic_message(at, Form::base, 1, FI_UINT64, FI_SUM, c, FI_COMPLETION); }},
    {"atomicmsg, inject", w, 1, 4, false,
     [](const At& at, void* c) {
         return atomic_message(at, Form::base, 1, FI_UINT64, FI_SUM, c, FI_COMPLETION | FI_INJECT);
     }},
    {"atomicmsg, fence", w, 1, 4, false,
     [](const At& at, void* c) {
         return atomic_message(at, Form::base, 1, FI_UINT64, FI_SUM, c, FI_COMPLETION | FI_FENCE);
     }},
    {"inject_atomic", w, 1, 4, true, inject<FI_UINT64, FI_SUM>},
    {"inject_atomic, 4 bytes", w, 1, 4, true, inject<FI_UINT32, FI_SUM>},
    {"inject_atomic, write", w, 1, 9, true, inject<FI_UINT64, FI_ATOMIC_WRITE>},
    {"inject_atomic, row", w, 8, 4, true, inject<FI_UINT64, FI_SUM, 8>},
    {"inject_atomic, loop", w, 1, 9, true, inject<FI_UINT64, FI_MAX>},
    {"inject_atomic, wide", w, 2, 4, true, inject<int128, FI_SUM>},
    {"fetch_atomic", remote_access, 1, 4, false, fetch<FI_UINT64, FI_SUM>},
    {"fetch_atomic, row", remote_access, 8, 4, false, fetch<FI_UINT64, FI_SUM, 8>},
    {"fetch_atomic, loop", remote_access, 1, 9, false, fetch<FI_UINT64, FI_MAX>},
    {"fetch_atomic, wide", remote_access, 2, 4, false, fetch<int128, FI_SUM>},
    {"fetch_atomic, read", r, 1, 0, false, fetch<FI_UINT64, FI_ATOMIC_READ>},
    {"fetch_atomic, read a row", r, 8, 0, false, fetch<FI_UINT64, FI_ATOMIC_READ, 8>},
    {"fetch_atomicv", remote_access, 1, 4, false,
     [](const At& at, void* c) { return atomic_list(at, Form::fetch, 1, FI_SUM, c); }},
    {"fetch_atomicmsg", remote_access, 1, 4, false,
     [](const At& at, void* c) { return atomic_message(at, Form::fetch, 1, FI_UINT64, FI_SUM, c, FI_COMPLETION); }},
    {"compare_atomic", remote_access, 1, 9, false, swap<FI_UINT64, FI_CSWAP>},
    {"compare_atomic, row", remote_access, 8, 9, false, swap<FI_UINT64, FI_CSWAP, 8>},
    {"compare_atomic, loop", remote_access, 1, 9, false, swap<FI_UINT64, FI_CSWAP_LE>},
    {"compare_atomic, wide", remote_access, 2, 9, false, swap<int128, FI_CSWAP>},
    {"compare_atomicv", remote_access, 1, 9, false,
     [](const At& at, void* c) { return atomic_list(at, Form::compare, 1, FI_CSWAP, c); }},
    {"compare_atomicmsg", remote_access, 1, 9, false,
     [](const At& at, void* c) { return atomic_message(at, Form::compare, 1, FI_UINT64, FI_CSWAP, c, FI_COMPLETION); }},
};

/// What a key can be.
struct Kind {
    const char* name;
    std::uint64_t rights;
    bool overflow;
};
const Kind kinds[] = {
    {"reading and writing", remote_access, false},
    {"reading only", r, false},
    {"writing only", w, false},
    {"at an overflow", remote_access, true},
    {"reading at an overflow", r, true},
    {"writing at an overflow", w, true},
};
constexpr unsigned kind_count = sizeof kinds / sizeof kinds[0];

class Accesses {
  public:
    explicit Accesses(Session& s) : s_(s)
    {
        for (unsigned kind = 0; kind < kind_count; kind++) {
            if (kinds[kind].overflow && fill_.empty())
                fill_up();
            regions_[kind] = s.share(memory(kind), 8 * most, kinds[kind].rights, 1000 + kind)[1];
            judges_[kind] = s.share(memory(kind), 4096, remote_access, 2000 + kind)[1];
        }
    }
    ~Accesses()
    {
        s_.barrier();
        for (fid_mr* mr : fill_)
            EXPECT_EQ(fi_close(&mr->fid), 0);
    }
    void try_all()
    {
        for (unsigned kind = 0; kind < kind_count && !testing::Test::HasFatalFailure(); kind++)
            try_ways(kind);
        try_ways(0); // where an overflow VCQ has been met
    }

  private:
    static std::uint64_t* memory(unsigned kind)
    {
        alignas(65536) static std::uint64_t pages[kind_count][512];
        return pages[kind];
    }
    /// The tags of the target VCQ.
    void fill_up()
    {
        static std::uint64_t words[tags_of_a_vcq];
        for (unsigned i = 0; i < tags_of_a_vcq; i++) {
            fid_mr* mr = nullptr;
            ASSERT_EQ(fi_mr_reg(s_.domain, &words[i], 8, remote_access, 0, 10000 + i, 0, &mr, nullptr), 0);
            fill_.push_back(mr);
        }
    }
    void try_ways(unsigned kind)
    {
        for (const Way& way : ways) {
            SCOPED_TRACE(std::string(way.name) + ", " + kinds[kind].name);
            try_way(kind, way);
            if (testing::Test::HasFailure())
                return;
        }
    }
    void try_way(unsigned kind, const Way& way)
    {
        const bool allowed = (kinds[kind].rights & way.needs) == way.needs;
        const bool reads = way.operand == 0;
        std::uint64_t before[most], operand[most], compare[most], result[most] = {};
        std::fill_n(before, most, 5);
        std::fill_n(operand, most, way.operand);
        std::fill_n(compare, most, 5);
        judge(kind, before, true);
        const At at{s_.ep, regions_[kind].base, regions_[kind].key, operand, compare, result};
        char context = 0;
        ASSERT_EQ(s_.post([&] { return way.call(at, &context); }), 0);
        std::fill_n(operand, way.silent ? most : 0, 77); // it is the caller's again
        if (!allowed) {
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            ASSERT_TRUE(s_.next(entry, &error));
            EXPECT_NE(error.err, 0);
        } else if (!way.silent) {
            s_.expect(&context, reads || way.needs == remote_access ? FI_READ : FI_WRITE);
        }
        std::uint64_t now[most];
        const std::uint64_t after = allowed && !reads ? 9 : 5;
        const auto settled = [&] {
            judge(kind, now, false);
            for (unsigned i = 0; i < most; i++)
                if (now[i] != (i < way.words ? after : 5))
                    return false;
            return true;
        };
        EXPECT_TRUE(way.silent && allowed ? wait_until(settled) : settled()) << now[0] << " " << now[way.words - 1];
        for (unsigned i = 0; i < most && (way.needs & r); i++)
            EXPECT_EQ(result[i], allowed && i < way.words ? 5u : 0u) << i;
        fi_cq_data_entry entry{};
        ASSERT_EQ(fi_cq_read(s_.cq, &entry, 1), -FI_EAGAIN);
    }
    /// Sets or gets the words behind the tests' back.
    void judge(unsigned kind, std::uint64_t* words, bool write)
    {
        const Window& at = judges_[kind];
        ASSERT_EQ(s_.post([&] {
            return write ? fi_write(s_.ep, words, 8 * most, nullptr, 1, at.base, at.key, words)
                         : fi_read(s_.ep, words, 8 * most, nullptr, 1, at.base, at.key, words);
        }),
                  0);
        s_.expect(words, write ? FI_WRITE : FI_READ);
    }

    Session& s_;
    std::vector<fid_mr*> fill_;
    Window regions_[kind_count];
    Window judges_[kind_count];
};

constexpr unsigned tried = 1001; ///< word of the board

void try_accesses(int mr_mode, std::uint64_t caps, std::uint64_t order)
{
    expect_processes(2, [=](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_ATOMIC | FI_MSG | caps;
        options.mr_mode = mr_mode;
        options.tx_order = order;
        Session s(rank, options);
        Accesses accesses(s);
        if (rank.number == 0) {
            accesses.try_all();
            rank.set(tried, 1);
            return;
        }
        fi_cq_data_entry entry{}; // of CQ data
        EXPECT_TRUE(wait_until([&] { return fi_cq_read(s.cq, &entry, 1), rank.get(tried) == 1; }));
    });
}

TEST(RemoteMemoryAccess, KeysOfTheProvider)
{
    try_accesses(provider_keys, 0, 0);
}
TEST(RemoteMemoryAccess, KeysOfTheUser)
{
    try_accesses(0, 0, 0);
}
TEST(RemoteMemoryAccess, InOrder)
{
    try_accesses(provider_keys, 0, FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR);
}
TEST(RemoteMemoryAccess, WhereEventsArePaidFor)
{
    try_accesses(provider_keys, FI_RMA_EVENT, 0);
}

} // namespace
