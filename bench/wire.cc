// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What each fi_* operation puts on the wire: one-sided operations, bytes, trips that wait for each other, and the time
// that would be on Tofu-D. Run by bench/run and by hand.
//
// usage: wire LIBCOUNTED UTOFU_LIBRARY
// One process with two domains; A does one thing at a time towards B, and both are driven until all
// is over. An operation is done several times, and the one with the fewest trips is shown: others
// may carry what belongs to none of them, such as reports of credits.
#include "counted.h"
#include "frame/objects.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace tofu::bench;

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr std::size_t memory_bytes = 64 * MiB;
constexpr int times = 5;

Wire* wire = nullptr;

struct Side : Objects {
    explicit Side(Keys keys) : Objects({.keys = keys}), memory(map_pages(memory_bytes)), end(add_endpoint()) {}
    char* memory;
    fid_ep* end;
};

struct Pair {
    static Objects::Keys created(int side, Objects::Keys keys)
    {
        wire->creating = side;
        return keys;
    }
    explicit Pair(Objects::Keys keys) : a(created(0, keys)), b(created(1, keys))
    {
        to_b = a.insert(b.end);
        to_a = b.insert(a.end);
    }
    Side a, b;
    fi_addr_t to_a, to_b;
};

class Operations {
  public:
    void run()
    {
        Pair pair(Objects::Keys::of_the_provider);
        first_contact(pair);
        rma(pair);
        atomics(pair);
        messages(pair);
        Pair user(Objects::Keys::of_the_user);
        keys(user);
    }

  private:
    struct Start {
        WireCounts side[wire_sides];
    };
    Start start(const Pair& pair)
    {
        for (int i = 0; i < 64; ++i) { // nothing of what came before is under way
            pair.a.progress();
            pair.b.progress();
        }
        WireCounts* side = wire->side;
        std::uint64_t hops = std::max(side[0].hops, side[1].hops);
        double ns = std::max(side[0].ns, side[1].ns) + 1e9; // links are free by then
        for (int i = 0; i < wire_sides; ++i) {
            side[i].hops = hops;
            side[i].ns = ns;
        }
        return {{side[0], side[1]}};
    }
    // `mine` entries of A's queue and `theirs` of B's end the operation.
    template <class F>
    void measure(const char* name, const Pair& pair, int mine, int theirs, F&& f, int repeat = times)
    {
        std::vector<Start> runs;
        for (int i = 0; i < repeat; ++i) {
            Start before = start(pair);
            pair.a.post(name, pair.b, [&] { return long(f()); });
            // Clocks count up to a side's last entry: what moves later, such as a report of
            // credits, is no part of the operation.
            int left[wire_sides] = {mine, theirs};
            WireCounts ended[wire_sides] = {wire->side[0], wire->side[1]};
            for (long polls = 0; left[0] > 0 || left[1] > 0; ++polls) {
                for (int side = 0; side < wire_sides; ++side) {
                    if (left[side] <= 0)
                        continue;
                    left[side] -= (side ? pair.b : pair.a).progress();
                    ended[side] = wire->side[side];
                }
                check(polls > Objects::patience ? -FI_ETIMEDOUT : 0, name);
            }
            if (theirs == 0) // the target does nothing: it has what has arrived
                ended[1] = wire->side[1];
            runs.push_back(difference(before));
            for (int side = 0; side < wire_sides; ++side) {
                runs.back().side[side].hops = ended[side].hops - before.side[side].hops;
                runs.back().side[side].ns = ended[side].ns - before.side[side].ns;
            }
        }
        auto cost = [](const Start& run) {
            const WireCounts &a = run.side[0], &b = run.side[1];
            return std::pair(std::max(a.hops, b.hops), a.puts + b.puts + a.registrations + b.registrations);
        };
        report(name,
               *std::min_element(runs.begin(), runs.end(),
                                 [&](const Start& x, const Start& y) { return cost(x) < cost(y); }),
               mine);
    }
    static Start difference(const Start& before)
    {
        Start result{};
        for (int i = 0; i < wire_sides; ++i) {
            const WireCounts &now = wire->side[i], &then = before.side[i];
            result.side[i] = {now.puts - then.puts,
                              now.gets - then.gets,
                              now.armws - then.armws,
                              now.registrations - then.registrations,
                              now.injected - then.injected,
                              now.bytes_out - then.bytes_out,
                              now.bytes_back - then.bytes_back,
                              now.hops - then.hops,
                              now.ns - then.ns,
                              now.registered - then.registered};
        }
        return result;
    }
    static void report(const char* name, const Start& run, int mine)
    {
        const WireCounts &a = run.side[0], &b = run.side[1];
        auto line = [&](const char* column, double value) {
            std::printf("On the wire\t%s\t0\t2\t\t%s\t%.4g\n", name, column, value);
        };
        line("Puts", double(a.puts + b.puts));
        line("into the cache", double(a.injected + b.injected));
        line("Gets", double(a.gets + b.gets));
        line("ARMWs", double(a.armws + b.armws));
        std::printf("On the wire\t%s\t0\t2\t\tbytes there\t%llu\n", name,
                    static_cast<unsigned long long>(a.bytes_out + b.bytes_back));
        std::printf("On the wire\t%s\t0\t2\t\tbytes back\t%llu\n", name,
                    static_cast<unsigned long long>(a.bytes_back + b.bytes_out));
        line("registrations", double(a.registrations + b.registrations));
        line("trips to the target", b.hops > 0 ? double(b.hops) : -1);
        line("trips to completion", mine > 0 ? double(a.hops) : -1);
        line("µs to the target", b.hops > 0 ? b.ns / 1000 : -1);
        line("µs to completion", mine > 0 ? a.ns / 1000 : -1);
    }

    void first_contact(Pair& pair)
    {
        check(fi_trecv(pair.b.end, pair.b.memory, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &context_), "fi_trecv");
        measure(
            "fi_tinject, 8 B, first contact", pair, 0, 1,
            [&] { return fi_tinject(pair.a.end, pair.a.memory, 8, pair.to_b, 1); }, 1);
        check(fi_trecv(pair.a.end, pair.a.memory, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &context_), "fi_trecv");
        pair.b.post("fi_tinject", pair.a, [&] { return fi_tinject(pair.b.end, pair.b.memory, 8, pair.to_a, 1); });
        pair.a.finish(1);
    }
    void rma(Pair& pair)
    {
        Side& a = pair.a;
        fid_mr* mr = pair.b.add_region(pair.b.memory, memory_bytes, 1);
        auto base = reinterpret_cast<std::uint64_t>(pair.b.memory);
        std::uint64_t key = fi_mr_key(mr);
        auto write = [&](std::size_t size, std::uint64_t flags) {
            iovec iov{a.memory, size};
            fi_rma_iov rma{base, size, key};
            fi_msg_rma msg{&iov, nullptr, 1, pair.to_b, &rma, 1, &context_, 0};
            return fi_writemsg(a.end, &msg, flags | FI_COMPLETION);
        };
        measure("fi_inject_write, 8 B", pair, 0, 0,
                [&] { return fi_inject_write(a.end, a.memory, 8, pair.to_b, base, key); });
        measure("fi_write, 8 B", pair, 1, 0, [&] { return write(8, 0); });
        measure("fi_write, 8 B, FI_INJECT_COMPLETE", pair, 1, 0, [&] { return write(8, FI_INJECT_COMPLETE); });
        measure("fi_write, 4 KiB", pair, 1, 0, [&] { return write(4 * KiB, 0); });
        measure("fi_write, 1 MiB", pair, 1, 0, [&] { return write(MiB, 0); });
        measure("fi_write, 32 MiB", pair, 1, 0, [&] { return write(32 * MiB, 0); });
        measure("fi_writedata, 8 B", pair, 1, 1,
                [&] { return fi_writedata(a.end, a.memory, 8, nullptr, 7, pair.to_b, base, key, &context_); });
        auto read = [&](std::size_t size) {
            return fi_read(a.end, a.memory, size, nullptr, pair.to_b, base, key, &context_);
        };
        measure("fi_read, 8 B", pair, 1, 0, [&] { return read(8); });
        measure("fi_read, 4 KiB", pair, 1, 0, [&] { return read(4 * KiB); });
        measure("fi_read, 1 MiB", pair, 1, 0, [&] { return read(MiB); });
        key_ = key;
        base_ = base;
    }
    void atomics(Pair& pair)
    {
        auto fetch = [&](fi_op op, fi_datatype type, std::size_t count = 1) {
            return fi_fetch_atomic(pair.a.end, pair.a.memory, count, nullptr, pair.a.memory + 64 * KiB, nullptr,
                                   pair.to_b, base_, key_, type, op, &context_);
        };
        auto* operand = reinterpret_cast<std::int64_t*>(pair.a.memory);
        measure("fi_inject_atomic, SUM of UINT64", pair, 0, 0, [&] {
            return fi_inject_atomic(pair.a.end, pair.a.memory, 1, pair.to_b, base_, key_, FI_UINT64, FI_SUM);
        });
        measure("fi_fetch_atomic, SUM of UINT64", pair, 1, 0, [&] { return fetch(FI_SUM, FI_UINT64); });
        measure("fi_compare_atomic, CSWAP of UINT64", pair, 1, 0, [&] {
            return fi_compare_atomic(pair.a.end, pair.a.memory, 1, nullptr, pair.a.memory + 64, nullptr,
                                     pair.a.memory + 128, nullptr, pair.to_b, base_, key_, FI_UINT64, FI_CSWAP,
                                     &context_);
        });
        measure(
            "fi_fetch_atomic, MIN of INT64, first", pair, 1, 0, [&] { return *operand = -1, fetch(FI_MIN, FI_INT64); },
            1);
        measure("fi_fetch_atomic, MIN of INT64, again", pair, 1, 0,
                [&] { return --*operand, fetch(FI_MIN, FI_INT64); });
        measure("fi_fetch_atomic, SUM of 512 UINT64", pair, 1, 0, [&] { return fetch(FI_SUM, FI_UINT64, 512); });
        measure("fi_fetch_atomic, SUM of 512 DOUBLE", pair, 1, 0, [&] { return fetch(FI_SUM, FI_DOUBLE, 512); });
        measure("fi_fetch_atomic, SUM of DOUBLE_COMPLEX", pair, 1, 0, [&] { return fetch(FI_SUM, FI_DOUBLE_COMPLEX); });
    }
    void messages(Pair& pair)
    {
        auto send = [&](const char* name, std::size_t size, std::uint64_t flags) {
            measure(name, pair, 1, 1, [&, posted = false]() mutable {
                if (!posted)
                    check(fi_trecv(pair.b.end, pair.b.memory, size, nullptr, FI_ADDR_UNSPEC, 2, 0, &context_),
                          "fi_trecv");
                iovec iov{pair.a.memory, size};
                fi_msg_tagged msg{&iov, nullptr, 1, pair.to_b, 2, 0, &context_, 0};
                ssize_t ret = fi_tsendmsg(pair.a.end, &msg, flags | FI_COMPLETION);
                posted = ret == -FI_EAGAIN;
                return ret;
            });
        };
        measure("fi_tinject, 8 B", pair, 0, 1, [&, posted = false]() mutable {
            if (!posted)
                check(fi_trecv(pair.b.end, pair.b.memory, 8, nullptr, FI_ADDR_UNSPEC, 2, 0, &context_), "fi_trecv");
            ssize_t ret = fi_tinject(pair.a.end, pair.a.memory, 8, pair.to_b, 2);
            posted = ret == -FI_EAGAIN;
            return ret;
        });
        send("fi_tsend, 8 B", 8, 0);
        send("fi_tsend, 8 B, FI_DELIVERY_COMPLETE", 8, FI_DELIVERY_COMPLETE);
        send("fi_tsend, 64 B", 64, 0);
        send("fi_tsend, 1 KiB", KiB, 0);
        send("fi_tsend, 4 KiB", 4 * KiB, 0);
        send("fi_tsend, 64 KiB", 64 * KiB, 0);
        send("fi_tsend, 1 MiB", MiB, 0);
        send("fi_tsend, 32 MiB", 32 * MiB, 0);
    }
    // Keys of the user's choice are looked up at the target once.
    void keys(Pair& pair)
    {
        pair.b.add_region(pair.b.memory, memory_bytes, 4711);
        auto write = [&] { return fi_write(pair.a.end, pair.a.memory, 8, nullptr, pair.to_b, 0, 4711, &context_); };
        measure("fi_write, 8 B, a key of the user, first use", pair, 1, 0, write, 1);
        measure("fi_write, 8 B, a key of the user", pair, 1, 0, write);
    }

    fi_context context_{};
    std::uint64_t key_ = 0, base_ = 0;
};

} // namespace

int main(int argc, char** argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: wire LIBCOUNTED UTOFU_LIBRARY\n");
        return 2;
    }
    alarm(60);
    setenv("COUNTED_LIBRARY", argv[2], 1);
    setenv("FI_TOFU_BACKEND", argv[1], 1);
    setenv("TOFU_SIM_JOB", ("wire-" + std::to_string(getpid())).c_str(), 1);
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    wire = library != nullptr ? static_cast<Wire*>(dlsym(library, "counted_wire")) : nullptr;
    if (wire == nullptr) {
        std::fprintf(stderr, "wire: %s\n", dlerror());
        return 1;
    }
    Operations().run();
    return 0;
}
