// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What fi_rma(3) says of the data: every function moves exactly the bytes it is given.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "../common/rma_message.h"
#include "rma_checks.h"

namespace fabtests {
namespace {

enum class Form { plain, v, msg };

ssize_t transfer(World& w, Form form, bool read, void* buffer, std::size_t length, unsigned target, std::size_t offset,
                 void* context)
{
    RmaMessage m(w, buffer, length, target, offset);
    m.msg.context = context;
    const fi_addr_t peer = m.msg.addr;
    const std::uint64_t address = m.remote.addr, key = m.remote.key;
    return w.post([&]() -> ssize_t {
        switch (form) {
        case Form::plain:
            return read ? fi_read(w.ep(), buffer, length, m.desc, peer, address, key, context)
                        : fi_write(w.ep(), buffer, length, m.desc, peer, address, key, context);
        case Form::v:
            return read ? fi_readv(w.ep(), &m.iov, &m.desc, 1, peer, address, key, context)
                        : fi_writev(w.ep(), &m.iov, &m.desc, 1, peer, address, key, context);
        case Form::msg: break;
        }
        // FI_DELIVERY_COMPLETE: when the entry is there, the bytes are visible at the target.
        return read ? fi_readmsg(w.ep(), &m.msg, FI_COMPLETION)
                    : fi_writemsg(w.ep(), &m.msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
}

/// Waits for the end of a transfer: by the entry where it has one, else by the counter.
int finish(World& w, Form form, bool read, std::uint64_t counted)
{
    if (form == Form::msg)
        return w.wait();
    return w.wait_count(read ? w.reads() : w.writes(), counted + 1);
}

} // namespace

void check_every_call(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    const unsigned before = (w.rank() + w.ranks() - 1) % w.ranks();
    unsigned round = 0;
    for (Form form : {Form::plain, Form::v, Form::msg})
        for (std::size_t size : {std::size_t{1}, std::size_t{8}, std::size_t{33}, std::size_t{500}, std::size_t{4096},
                                 std::size_t{9001}, std::size_t{1} << 20}) {
            ++round;
            const std::size_t offset = 64 + round % 13;
            for (std::size_t i = 0; i < size; ++i)
                w.local()[i] = byte_of(w.rank(), i, round);
            std::uint64_t counted = fi_cntr_read(w.writes());
            CHECK(w, transfer(w, form, false, w.local(), size, next, offset, nullptr) == 0);
            CHECK(w, finish(w, form, false, counted) == 0);
            w.barrier();
            // "fi_write: transfers the data contained in the user-specified data buffer to a remote memory region"
            std::size_t wrong = 0;
            if (form == Form::msg) { // the others promise transmit complete only: read below
                for (std::size_t i = 0; i < size; ++i)
                    wrong += w.region()[offset + i] != byte_of(before, i, round);
                CHECK(w, w.region()[offset - 1] == 0);
                CHECK(w, w.region()[offset + size] == 0);
            }
            CHECK(w, wrong == 0);
            // "fi_read: requests that data be transferred from a remote memory region into the local buffer"
            std::memset(w.local(), 0, size + 1);
            counted = fi_cntr_read(w.reads());
            CHECK(w, transfer(w, form, true, w.local(), size, next, offset, nullptr) == 0);
            CHECK(w, finish(w, form, true, counted) == 0);
            wrong = 0;
            for (std::size_t i = 0; i < size; ++i)
                wrong += w.local()[i] != byte_of(w.rank(), i, round);
            CHECK(w, wrong == 0);
            CHECK(w, w.local()[size] == 0);
            w.barrier();
            std::memset(w.region(), 0, offset + size + 1);
            w.barrier();
        }
}

void check_segments(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    const std::size_t locals = std::min<std::size_t>(w.info().tx_attr->iov_limit, 4);
    const std::size_t remotes = std::min<std::size_t>(w.info().tx_attr->rma_iov_limit, 4);
    std::mt19937 random(w.seed());
    auto cut = [&](std::size_t total, std::size_t parts) {
        std::vector<std::size_t> lengths(parts);
        std::size_t left = total;
        for (std::size_t i = 0; i < parts; ++i) {
            lengths[i] = i + 1 == parts ? left : random() % (left + 1);
            left -= lengths[i];
        }
        return lengths;
    };
    for (unsigned round = 0; round < 40; ++round) {
        const std::size_t total = 1 + random() % (round % 2 ? 30000 : 60);
        const auto here = cut(total, 1 + random() % locals), there = cut(total, 1 + random() % remotes);
        std::vector<iovec> iov;
        std::vector<void*> desc(here.size(), w.desc());
        std::vector<fi_rma_iov> remote;
        for (std::size_t i = 0, at = 0; i < here.size(); at += here[i] + 5, ++i)
            iov.push_back({w.local(at), here[i]});
        for (std::size_t i = 0, at = 0; i < there.size(); at += there[i] + 3, ++i)
            remote.push_back({w.address(next, at), there[i], w.key(next)});
        std::size_t n = 0;
        for (const iovec& v : iov)
            for (std::size_t i = 0; i < v.iov_len; ++i)
                static_cast<unsigned char*>(v.iov_base)[i] = byte_of(w.rank(), n++, round);
        fi_msg_rma msg{};
        msg.msg_iov = iov.data();
        msg.desc = desc.data();
        msg.iov_count = iov.size();
        msg.addr = w.peer(next);
        msg.rma_iov = remote.data();
        msg.rma_iov_count = remote.size();
        msg.context = &msg;
        // "msg_iov ... rma_iov": the bytes are one row, whatever the cuts are.
        void* context = nullptr;
        std::uint64_t flags = 0;
        CHECK(w, w.post([&] { return fi_writemsg(w.ep(), &msg, FI_COMPLETION); }) == 0);
        CHECK(w, w.wait(&context, &flags) == 0);
        CHECK(w, context == &msg);
        CHECK(w, (flags & (FI_RMA | FI_WRITE)) == (FI_RMA | FI_WRITE));
        for (const iovec& v : iov)
            std::memset(v.iov_base, 0, v.iov_len);
        CHECK(w, w.post([&] { return fi_readmsg(w.ep(), &msg, FI_COMPLETION); }) == 0);
        CHECK(w, w.wait(&context, &flags) == 0);
        CHECK(w, (flags & (FI_RMA | FI_READ)) == (FI_RMA | FI_READ));
        std::size_t wrong = 0;
        n = 0;
        for (const iovec& v : iov)
            for (std::size_t i = 0; i < v.iov_len; ++i)
                wrong += static_cast<unsigned char*>(v.iov_base)[i] != byte_of(w.rank(), n++, round);
        CHECK(w, wrong == 0);
    }
    w.barrier();
    std::memset(w.region(), 0, 40000);
    w.barrier();
}

void check_many(World& w)
{
    // Every rank to every rank, itself included, far more than a queue holds; -FI_EAGAIN until there is room.
    constexpr std::size_t each = 2000;
    auto* const values = reinterpret_cast<std::uint64_t*>(w.local());
    for (std::size_t i = 0; i < each; ++i)
        values[i] = (std::uint64_t{w.rank()} << 32) + i + 1;
    const std::uint64_t counted = fi_cntr_read(w.writes());
    for (std::size_t i = 0; i < each; ++i)
        for (unsigned r = 0; r < w.ranks(); ++r)
            CHECK(w, w.post([&] {
                return fi_write(w.ep(), &values[i], 8, w.desc(), w.peer(r), w.address(r, (w.rank() * each + i) * 8),
                                w.key(r), nullptr);
            }) == 0);
    CHECK(w, w.wait_count(w.writes(), counted + each * w.ranks()) == 0);
    // Transmit complete is not delivery: a read after a fence, or by the target itself, shows it.
    auto* const back = reinterpret_cast<std::uint64_t*>(w.local(1 << 20));
    std::size_t wrong = 0;
    for (unsigned r = 0; r < w.ranks(); ++r) {
        const std::uint64_t reads = fi_cntr_read(w.reads());
        CHECK(w, w.post([&] {
            return fi_read(w.ep(), back, each * 8, w.desc(), w.peer(r), w.address(r, w.rank() * each * 8), w.key(r),
                           nullptr);
        }) == 0);
        CHECK(w, w.wait_count(w.reads(), reads + 1) == 0);
        for (std::size_t i = 0; i < each; ++i)
            wrong += back[i] != values[i];
    }
    CHECK(w, wrong == 0);
    w.barrier();
    std::memset(w.region(), 0, each * 8 * w.ranks());
    w.barrier();
}

} // namespace fabtests
