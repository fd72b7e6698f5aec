// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_THREAD_SAFE: threads that post reads, writes, atomics and messages through one endpoint, and
// read, wait for and share out one queue and one counter. Calls libfabric over the provider over
// the simulator. Worth a run under TSan.
#include "prov_session.h"

#include <array>
#include <atomic>
#include <memory>
#include <thread>

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::wait_until;

constexpr unsigned crews = 2;       ///< of each kind of thread
constexpr unsigned rounds = 60;     ///< of each thread
constexpr std::size_t lane = 40000; ///< bytes of the window that one writer owns
const std::size_t sizes[] = {8, 200, 3000,
                             lane}; ///< in the descriptor, in a slot, bounced, as it lies

/// One operation; its address is the context. Whoever reads its entry marks it.
struct Op {
    std::atomic<unsigned> ends{0};
};

/// What all may write: a lane for each writer, and the sums.
struct Shared {
    std::atomic<std::uint64_t> integers;
    std::atomic<double> reals;
    std::atomic<std::uint8_t> lanes[crews * 2][lane];
};

class Crew {
  public:
    explicit Crew(Session& s, const std::vector<Window>& windows) : s_(s), windows_(windows)
    {
        peer_ = (s.rank.number + 1) % s.rank.size;
    }
    /// Hands out at most three entries, whoever they are for.
    void read_some(bool blocking)
    {
        fi_cq_data_entry entries[3];
        const ssize_t got =
            blocking ? fi_cq_sread(s_.cq, entries, 3, nullptr, 50) : fi_cq_read(s_.cq, entries, 3);
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            if (fi_cq_readerr(s_.cq, &error, 0) == 1) { // else another thread has it
                ADD_FAILURE() << fi_strerror(error.err) << ", uTofu " << error.prov_errno;
                static_cast<Op*>(error.op_context)->ends.fetch_add(1);
            }
        }
        for (ssize_t i = 0; i < got; i++)
            static_cast<Op*>(entries[i].op_context)
                ->ends.fetch_add(1); // seq_cst: the owner uses what it wrote
    }
    /// Posts until it is taken.
    template <class Call>
    void post(Call&& call)
    {
        ssize_t result = -FI_EAGAIN;
        static_cast<void>(wait_until([&] {
            if ((result = call()) == -FI_EAGAIN)
                read_some(false);
            return result != -FI_EAGAIN;
        }));
        ASSERT_EQ(result, 0);
    }
    void await(const Op& op)
    {
        EXPECT_TRUE(wait_until([&] {
            if (op.ends.load() == 0)
                read_some(false);
            return op.ends.load() != 0;
        }));
    }
    /// Writes its lane of the peer and reads it back.
    void write_and_read(unsigned t)
    {
        std::vector<std::uint8_t> out(lane), in(lane);
        const std::uint64_t at =
            windows_[peer_].base + offsetof(Shared, lanes) + (s_.rank.number * crews + t) * lane;
        for (unsigned i = 0; i < rounds; i++) {
            const std::size_t size = sizes[i % 4];
            std::fill_n(out.begin(), size, static_cast<std::uint8_t>(i + t * 100));
            Op written, read;
            post([&] {
                return fi_write(s_.ep, out.data(), size, nullptr, peer_, at, windows_[peer_].key,
                                &written);
            });
            await(written);
            post([&] {
                return fi_read(s_.ep, in.data(), size, nullptr, peer_, at, windows_[peer_].key,
                               &read);
            });
            await(read);
            ASSERT_TRUE(std::equal(in.begin(), in.begin() + size, out.begin())) << "round " << i;
            EXPECT_EQ(written.ends + read.ends, 2u);
        }
    }
    /// Adds one to both of rank 0's sums, all threads of all ranks to the same.
    void add(unsigned)
    {
        const Window& w = windows_[0];
        const std::uint64_t one = 1;
        const double one_real = 1;
        std::uint64_t before = 0, last = 0;
        for (unsigned i = 0; i < rounds; i++) {
            Op fetched, added;
            post([&] {
                return fi_fetch_atomic(s_.ep, &one, 1, nullptr, &before, nullptr, 0,
                                       w.base + offsetof(Shared, integers), w.key, FI_UINT64,
                                       FI_SUM, &fetched);
            });
            post([&] {
                return fi_atomic(s_.ep, &one_real, 1, nullptr, 0, w.base + offsetof(Shared, reals),
                                 w.key, FI_DOUBLE, FI_SUM, &added);
            });
            await(fetched);
            await(added);
            EXPECT_TRUE(i == 0 || before > last);
            last = before;
            EXPECT_EQ(fetched.ends + added.ends, 2u);
        }
    }
    /// Sends to the same thread of the peer and receives from it, in order.
    void talk(unsigned t)
    {
        std::vector<std::uint32_t> out(lane / 4), in(lane / 4);
        for (unsigned i = 0; i < rounds; i++) {
            const std::size_t size = sizes[i % 4];
            out[0] = out[size / 4 - 1] = i * crews + t;
            Op sent, received;
            post([&] { return fi_trecv(s_.ep, in.data(), size, nullptr, peer_, t, 0, &received); });
            post([&] { return fi_tsend(s_.ep, out.data(), size, nullptr, peer_, t, &sent); });
            await(sent);
            await(received);
            ASSERT_EQ(in[0], out[0]);
            ASSERT_EQ(in[size / 4 - 1], out[0]);
            EXPECT_EQ(sent.ends + received.ends, 2u);
        }
    }
    /// All of them at once, with a thread that blocks on the queue and one that waits for the
    /// counter.
    void work()
    {
        std::vector<std::thread> workers;
        for (unsigned t = 0; t < crews; t++) {
            workers.emplace_back([this, t] { write_and_read(t); });
            workers.emplace_back([this, t] { add(t); });
            workers.emplace_back([this, t] { talk(t); });
        }
        std::atomic<bool> over{false};
        std::thread reader([&] {
            while (!over)
                read_some(true);
        });
        // Writes and atomics that change; sends are not bound to it.
        std::thread counter([&] {
            for (unsigned i = 1; i <= crews * rounds; i++)
                EXPECT_EQ(fi_cntr_wait(s_.counter[write_counter], i, 40000), 0);
        });
        for (std::thread& worker : workers)
            worker.join();
        counter.join();
        over = true;
        fi_cq_signal(s_.cq);
        reader.join();
        s_.expect_silence();
        EXPECT_EQ(fi_cntr_readerr(s_.counter[write_counter]), 0u);
    }

  private:
    Session& s_;
    const std::vector<Window>& windows_;
    fi_addr_t peer_;
};

void run_crew(unsigned ranks, fi_progress progress)
{
    expect_processes(ranks, [progress](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_ATOMIC | FI_TAGGED | FI_DIRECTED_RECV;
        options.counters = true;
        options.progress = progress;
        options.wait = FI_WAIT_UNSPEC;
        Session s(rank, options);
        const auto shared = std::make_unique<Shared>();
        const auto windows = s.share(shared.get(), sizeof(Shared));
        Crew(s, windows).work();
        // A rank that has its completions still serves the others, until all have theirs.
        rank.set(700 + rank.number, 1);
        EXPECT_TRUE(wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            unsigned done = 0;
            for (unsigned r = 0; r < rank.size; r++)
                done += rank.get(700 + r) == 1;
            return done == rank.size;
        }));
        if (rank.number == 0) {
            EXPECT_EQ(shared->integers, rank.size * crews * rounds);
            EXPECT_EQ(shared->reals, rank.size * crews * rounds);
        }
    });
}

TEST(Threads, ShareAnEndpointAndItsQueue)
{
    run_crew(2, FI_PROGRESS_MANUAL);
}
TEST(Threads, ShareThemWithTheThreadOfTheDomain)
{
    run_crew(2, FI_PROGRESS_AUTO);
}
TEST(Threads, ShareThemTalkingToThemselves)
{
    run_crew(1, FI_PROGRESS_MANUAL);
}
/// Which have one CQ each (guide 4.3.2.1: they are distributed to the processes of a node).
TEST(Threads, ShareThemOnANodeFullOfProcesses)
{
    setenv("TOFU_SIM_PPN", "48", 1);
    run_crew(2, FI_PROGRESS_MANUAL);
    unsetenv("TOFU_SIM_PPN");
}

} // namespace
} // namespace tofu::test
