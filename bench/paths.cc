// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The hot paths of the provider one by one, for callgrind to count their instructions. Run by bench/instructions, under
// valgrind.
//
// One process with two domains: A posts to B. Each path is run often enough to be warm, then
// counted call by call; what is needed between the calls (completions, receives) is not counted.
#include "frame/objects.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define COUNT_TOGGLE() CALLGRIND_TOGGLE_COLLECT
#define COUNT_END(name) CALLGRIND_DUMP_STATS_AT(name)
constexpr bool can_count = true;
#else
#define COUNT_TOGGLE() (void)0
#define COUNT_END(name) (void)(name)
constexpr bool can_count = false;
#endif

namespace {

constexpr int calls = 256; ///< of each path
constexpr int batch = 32;  ///< counted together: some have what the provider does every 64th round at most, others not
constexpr std::size_t memory_bytes = 1 << 16;

using namespace tofu::bench;

/// A domain with one endpoint and one region, and the other one's address.
struct Side : Objects {
    Side() : memory(map_pages(memory_bytes)), end(add_endpoint()), region(add_region(memory, memory_bytes, 1)) {}
    char* memory;
    fid_ep* end;
    fid_mr* region;
    fi_addr_t peer = 0;
};

class Paths {
  public:
    Paths()
    {
        a_.peer = a_.insert(b_.end);
        b_.peer = b_.insert(a_.end);
    }
    void run()
    {
        auto base = reinterpret_cast<std::uint64_t>(b_.memory);
        std::uint64_t key = fi_mr_key(b_.region);
        void* desc = fi_mr_desc(a_.region);
        count("fi_inject_write, 8 B", 0, [&] { return fi_inject_write(a_.end, a_.memory, 8, a_.peer, base, key); });
        count("fi_write, 8 B", 1, [&] { return fi_write(a_.end, a_.memory, 8, desc, a_.peer, base, key, &context_); });
        count("fi_write, 4 KiB", 1,
              [&] { return fi_write(a_.end, a_.memory, 4096, desc, a_.peer, base, key, &context_); });
        count("fi_read, 8 B", 1, [&] { return fi_read(a_.end, a_.memory, 8, desc, a_.peer, base, key, &context_); });
        count("fi_fetch_atomic, SUM of UINT64", 1, [&] {
            return fi_fetch_atomic(a_.end, a_.memory, 1, desc, a_.memory + 64, desc, a_.peer, base, key, FI_UINT64,
                                   FI_SUM, &context_);
        });
        count("fi_atomic, SUM of 512 UINT64", 1, [&] {
            return fi_atomic(a_.end, a_.memory, 512, desc, a_.peer, base, key, FI_UINT64, FI_SUM, &context_);
        });
        count("fi_fetch_atomic, SUM of UINT64, and its entry", 0, [&] {
            const ssize_t ret = fi_fetch_atomic(a_.end, a_.memory, 1, desc, a_.memory + 64, desc, a_.peer, base, key,
                                                FI_UINT64, FI_SUM, &context_);
            a_.finish(ret == 0 ? 1 : 0);
            return ret;
        });
        count("fi_atomic, SUM of 512 DOUBLE, and its entry", 0, [&] {
            const ssize_t ret =
                fi_atomic(a_.end, a_.memory, 512, desc, a_.peer, base, key, FI_DOUBLE, FI_SUM, &context_);
            a_.finish(ret == 0 ? 1 : 0);
            return ret;
        });
        count(
            "fi_tinject, 8 B", 0, [&] { return fi_tinject(a_.end, a_.memory, 8, a_.peer, 1); }, true);
        count(
            "fi_tsend, 64 B", 1, [&] { return fi_tsend(a_.end, a_.memory, 64, desc, a_.peer, 1, &context_); }, true);
        receives();
        reads();
        windows();
        read_many();
        counter();
        many_peers();
        barriers("fi_barrier over gates", "fi_cq_read, entry of a barrier over gates", "on");
        barriers("fi_barrier by Puts", "fi_cq_read, entry of a barrier by Puts", "off");
    }

  private:
    template <class F>
    void again(F&& f, const char* what)
    {
        a_.post(what, b_, f);
    }
    void look_around()
    {
        for (Side* side : {&a_, &b_})
            (void)fi_cq_read(side->cq, nullptr, 0);
    }
    static void end_of(int call, const char* name)
    {
        if (call >= 0 && (call + 1) % batch == 0)
            COUNT_END(name);
    }
    // f() posts one operation at A that ends in `entries` entries of its CQ; a message is received
    // by B.
    template <class F>
    void count(const char* name, int entries, F&& f, bool message = false)
    {
        for (int i = -calls; i < calls; ++i) {
            if (message)
                again([&] { return fi_trecv(b_.end, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_); }, "fi_trecv");
            if (i < 0) {
                again(f, name);
            } else {
                COUNT_TOGGLE();
                ssize_t ret = f();
                COUNT_TOGGLE();
                check(ret, name);
            }
            a_.finish(entries);
            b_.finish(message);
            look_around();
            end_of(i, name);
        }
    }
    void receives()
    {
        for (int i = -calls; i < calls; ++i) {
            if (i >= 0)
                COUNT_TOGGLE();
            ssize_t ret = fi_trecv(b_.end, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_);
            if (i >= 0)
                COUNT_TOGGLE();
            check(ret, "fi_trecv");
            again([&] { return fi_tinject(a_.end, a_.memory, 8, a_.peer, 1); }, "fi_tinject");
            b_.finish(1);
            end_of(i, "fi_trecv");
        }
    }
    template <class Before>
    void read(const char* name, Side& side, ssize_t wanted, Before&& before)
    {
        fi_cq_tagged_entry entry;
        for (int i = -calls; i < calls; ++i) {
            before();
            if (i >= 0)
                COUNT_TOGGLE();
            ssize_t n = fi_cq_read(side.cq, &entry, 1);
            if (i >= 0)
                COUNT_TOGGLE();
            if (n != wanted)
                check(-FI_EOTHER, name);
            end_of(i, name);
        }
    }
    void reads()
    {
        auto base = reinterpret_cast<std::uint64_t>(b_.memory);
        read("fi_cq_read, empty", a_, -FI_EAGAIN, [] {});
        read("fi_cq_read, entry of a write", a_, 1, [&] {
            again(
                [&] { return fi_write(a_.end, a_.memory, 8, nullptr, a_.peer, base, fi_mr_key(b_.region), &context_); },
                "fi_write");
        });
        read("fi_cq_read, entry of a tagged message", b_, 1, [&] {
            again([&] { return fi_trecv(b_.end, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_); }, "fi_trecv");
            again([&] { return fi_tinject(a_.end, a_.memory, 8, a_.peer, 1); }, "fi_tinject");
        });
    }

    /// What a program of MPI does in a window: 64 receives are posted, and as many messages with CQ data come. Counted
    /// are the last 32 receives and the entries of the first 32 messages.
    void windows()
    {
        constexpr int window = 64;
        const char* const names[] = {"fi_tsenddata, 64 B", "fi_trecv, more than 32 posted",
                                     "fi_cq_read, entry of a message, more than 32 posted"};
        fi_cq_tagged_entry entry;
        for (int path = 0; path < 3; ++path)
            for (int round = -calls / batch; round < calls / batch; ++round) {
                const auto counted = [&](bool wanted, auto&& f, ssize_t result, const char* what) {
                    const bool counts = wanted && round >= 0;
                    if (counts)
                        COUNT_TOGGLE();
                    const ssize_t ret = f();
                    if (counts)
                        COUNT_TOGGLE();
                    check(ret == result ? 0 : -FI_EOTHER, what);
                };
                for (int i = 0; i < window; ++i)
                    counted(
                        path == 1 && i >= window - batch,
                        [&] { return fi_trecv(b_.end, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_); }, 0,
                        names[1]);
                for (int i = 0; i < window; ++i) {
                    counted(
                        path == 0 && i < batch,
                        [&] { return fi_tsenddata(a_.end, a_.memory, 64, nullptr, 5, a_.peer, 1, &context_); }, 0,
                        names[0]);
                    a_.finish(1);
                    counted(
                        path == 2 && i < batch, [&] { return fi_cq_read(b_.cq, &entry, 1); }, 1, names[2]);
                }
                if (round >= 0)
                    COUNT_END(names[path]);
                look_around();
            }
    }

    /// A full queue: 32 entries by one call, which the result is of.
    void read_many()
    {
        constexpr int entries = 32;
        const char* const name = "fi_cq_read, 32 entries of writes";
        auto base = reinterpret_cast<std::uint64_t>(b_.memory);
        fi_cq_tagged_entry entry[entries];
        for (int i = -calls; i < calls; ++i) {
            for (int n = 0; n < entries; ++n)
                again(
                    [&] {
                        return fi_write(a_.end, a_.memory, 8, nullptr, a_.peer, base, fi_mr_key(b_.region), &context_);
                    },
                    "fi_write");
            if (i >= 0)
                COUNT_TOGGLE();
            const ssize_t got = fi_cq_read(a_.cq, entry, entries);
            if (i >= 0)
                COUNT_TOGGLE();
            check(got > 0 ? 0 : -FI_EOTHER, name);
            a_.finish(entries - got);
            end_of(i, name);
        }
    }
    void counter()
    {
        const char* const name = "fi_cntr_read, nothing new";
        fi_cntr_attr attr{};
        fid_cntr* writes = nullptr;
        check(fi_cntr_open(a_.domain, &attr, &writes, nullptr), "fi_cntr_open");
        fid_ep* const end = a_.add_endpoint(writes);
        for (int i = -calls; i < calls; ++i) {
            if (i >= 0)
                COUNT_TOGGLE();
            (void)fi_cntr_read(writes);
            if (i >= 0)
                COUNT_TOGGLE();
            end_of(i, name);
        }
        a_.ep.pop_back();
        fi_close(&end->fid);
        fi_close(&writes->fid);
    }

    /// What a collective of MPI does: a message to each of several peers in turn, from each in turn, and one that was
    /// there before its receive.
    void many_peers()
    {
        constexpr unsigned peers = 4;
        fi_addr_t to[peers], from[peers];
        fid_ep* senders[peers];
        for (unsigned i = 0; i < peers; ++i) {
            senders[i] = a_.add_endpoint();
            to[i] = a_.insert(b_.add_endpoint());
            from[i] = b_.insert(senders[i]);
        }
        unsigned turn = 0;
        count("fi_tinject, 8 B, four peers in turn", 0,
              [&] { return fi_tinject(a_.end, a_.memory, 8, to[turn++ % peers], 1); });
        const auto send = [&](unsigned i) {
            again([&] { return fi_tinject(senders[i % peers], a_.memory, 8, a_.peer, 1); }, "fi_tinject");
        };
        const auto receive = [&](unsigned i) {
            return fi_trecv(b_.end, b_.memory, 64, nullptr, from[i % peers], 1, 0, &context_);
        };
        read("fi_cq_read, entry of a message, four peers in turn", b_, 1, [&] {
            again([&] { return receive(turn); }, "fi_trecv");
            send(turn++);
        });
        bool kept = false;
        const auto receive_last = [&] {
            check(receive(turn - 1), "fi_trecv");
            b_.finish(1);
        };
        read("fi_cq_read, a message comes before its receive", b_, -FI_EAGAIN, [&] {
            if (kept)
                receive_last();
            kept = true;
            send(turn++);
        });
        receive_last();
        read("fi_cq_read, entry of a message that came before its receive", b_, 1, [&] {
            send(turn);
            look_around();
            check(receive(turn++), "fi_trecv");
        });
        for (const bool early : {false, true}) {
            const char* const name = early ? "fi_trecv, the message is there" : "fi_trecv, four peers in turn";
            for (int i = -calls; i < calls; ++i) {
                if (early) {
                    send(turn);
                    for (int look = 0; look < 8; ++look)
                        look_around();
                }
                if (i >= 0)
                    COUNT_TOGGLE();
                const ssize_t ret = receive(turn);
                if (i >= 0)
                    COUNT_TOGGLE();
                check(ret, name);
                if (!early)
                    send(turn);
                turn++;
                b_.finish(1);
                end_of(i, name);
            }
        }
    }

    /// One member of a group of two.
    struct Member {
        explicit Member(Side& side)
        {
            const std::uint64_t caps = side.info->caps;
            side.info->caps |= FI_COLLECTIVE;
            fi_eq_attr attr{};
            check(fi_eq_open(side.fabric, &attr, &eq, nullptr), "fi_eq_open");
            check(fi_endpoint(side.domain, side.info, &end, nullptr), "fi_endpoint");
            check(fi_ep_bind(end, &side.av->fid, 0), "fi_ep_bind");
            check(fi_ep_bind(end, &side.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
            check(fi_ep_bind(end, &eq->fid, 0), "fi_ep_bind");
            check(fi_enable(end), "fi_enable");
            side.info->caps = caps;
        }
        void join(Side& side, fid_ep* first, fid_ep* second)
        {
            fi_av_set_attr attr{};
            attr.count = 2;
            attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
            check(fi_av_set(side.av, &attr, &set, nullptr), "fi_av_set");
            for (fid_ep* one : {first, second})
                check(fi_av_set_insert(set, side.insert(one)), "fi_av_set_insert");
            check(fi_join_collective(end, FI_ADDR_NOTAVAIL, set, 0, &group, nullptr), "fi_join_collective");
        }
        bool joined()
        {
            std::uint32_t event = 0;
            fi_eq_entry entry{};
            return fi_eq_read(eq, &event, &entry, sizeof(entry), 0) > 0;
        }
        ~Member()
        {
            for (struct fid* one : {&group->fid, &set->fid, &end->fid, &eq->fid})
                fi_close(one);
        }
        fid_eq* eq = nullptr;
        fid_ep* end = nullptr;
        fid_av_set* set = nullptr;
        fid_mc* group = nullptr;
    };
    /// The call of the first of two members, and its last read.
    void barriers(const char* name, const char* name_of_read, const char* gates)
    {
        setenv("FI_TOFU_GATES", gates, 1);
        Member a(a_), b(b_);
        a.join(a_, a.end, b.end);
        b.join(b_, a.end, b.end);
        bool done[2] = {};
        for (long polls = 0; !done[0] || !done[1]; ++polls) {
            done[0] = done[0] || a.joined();
            done[1] = done[1] || b.joined();
            check(polls > Objects::patience ? -FI_ETIMEDOUT : 0, name);
        }
        fi_cq_tagged_entry entry;
        for (const bool counts_read : {false, true})
            for (int i = -calls; i < calls; ++i) {
                const auto toggle = [&](bool wanted) {
                    if (i >= 0 && wanted)
                        COUNT_TOGGLE();
                };
                toggle(!counts_read);
                ssize_t ret = fi_barrier(a.end, fi_mc_addr(a.group), &context_);
                toggle(!counts_read);
                check(ret, name);
                check(fi_barrier(b.end, fi_mc_addr(b.group), &context_), name);
                toggle(counts_read);
                ret = fi_cq_read(a_.cq, &entry, 1);
                toggle(counts_read);
                if (ret != 1)
                    a_.finish(1);
                b_.finish(1);
                look_around();
                end_of(i, counts_read ? name_of_read : name);
            }
    }

    Side a_, b_;
    fi_context context_{};
};

} // namespace

int main()
{
    if (!can_count) {
        std::fprintf(stderr, "paths: built without valgrind/callgrind.h: cannot count instructions\n");
        return 77;
    }
    Paths().run();
    std::printf("calls\t%d\n", batch);
    return 0;
}
