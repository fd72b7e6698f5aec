// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_THREAD_DOMAIN and guide 2.5: VCQs that were not made thread-safe and share a CQ are used by one thread at a time,
// whatever threads the domain has of its own, whenever they start, and however many domains there are. The provider is
// linked in, for the library under it is watched; run by make check, over the simulator. Worth a run under TSan.
#include <gtest/gtest.h>

#include <poll.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>

#include <rdma/fi_rma.h>

#include "prov/lib/library.h"
#include "prov/lib/objects.h"

namespace {

using namespace tofu::test;
using tofu::vcq::Functions;

constexpr unsigned cqs_per_tni = 16;

/// Threads in a call for a VCQ of the CQ that is not thread-safe. Relaxed, all of it: TSan must not see order where the
/// provider makes none.
std::array<std::atomic<int>, 16 * cqs_per_tni> users;
std::atomic<unsigned> meetings{0};
std::atomic<unsigned> unsafe_calls{0};

/// The VCQs that are not thread-safe, and their CQs.
struct Unsafe {
    std::atomic<utofu_vcq_hdl_t> vcq{0};
    std::atomic<unsigned> cq{0};
};
std::array<Unsafe, 64> unsafe;

class Visit {
  public:
    explicit Visit(utofu_vcq_hdl_t vcq)
    {
        for (Unsafe& u : unsafe)
            if (u.vcq.load(std::memory_order_relaxed) == vcq)
                users_ = &users[u.cq.load(std::memory_order_relaxed)];
        if (users_ == nullptr)
            return;
        unsafe_calls.fetch_add(1, std::memory_order_relaxed);
        if (users_->fetch_add(1, std::memory_order_relaxed) != 0)
            meetings.fetch_add(1, std::memory_order_relaxed);
        sched_yield(); // calls are short: threads that may meet have time to
    }
    ~Visit()
    {
        if (users_ != nullptr)
            users_->fetch_sub(1, std::memory_order_relaxed);
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

  private:
    std::atomic<int>* users_ = nullptr;
};

Functions library; ///< as it is

int create(utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t* vcq)
{
    const int code = library.create_vcq(tni, flags, vcq);
    if (code != UTOFU_SUCCESS || (flags & UTOFU_VCQ_FLAG_THREAD_SAFE) != 0)
        return code;
    utofu_vcq_id_t id = 0;
    std::uint8_t coords[6] = {};
    utofu_cq_id_t cq = 0;
    std::uint16_t extra = 0;
    EXPECT_EQ(library.query_vcq_id(*vcq, &id), UTOFU_SUCCESS);
    EXPECT_EQ(library.query_vcq_info(id, coords, &tni, &cq, &extra), UTOFU_SUCCESS);
    for (Unsafe& u : unsafe) {
        utofu_vcq_hdl_t nobody = 0;
        if (u.vcq.compare_exchange_strong(nobody, ~utofu_vcq_hdl_t{0})) {
            u.cq = tni * cqs_per_tni + cq;
            u.vcq = *vcq;
            return code;
        }
    }
    ADD_FAILURE() << "too many VCQs";
    return code;
}

int destroy(utofu_vcq_hdl_t vcq)
{
    for (Unsafe& u : unsafe)
        if (u.vcq == vcq)
            u.vcq = 0;
    return library.free_vcq(vcq);
}

/// One process of 48 on a node: it has a single CQ, which all its VCQs share.
struct Crowded : testing::Environment {
    void SetUp() override
    {
        setenv("TOFU_SIM_PPN", "48", 1);
        auto& functions = library_functions();
        library = functions;
        functions.create_vcq = create;
        functions.free_vcq = destroy;
        // STADD management and one-sided communication: the calls that begin with a VCQ.
        constexpr auto watched = [](auto next, utofu_vcq_hdl_t vcq, auto... rest) {
            const Visit visit(vcq);
            return next(vcq, rest...);
        };
        surround_posts<watched>(functions);
        surround<watched, &Functions::reg_mem, &Functions::reg_mem_with_stag, &Functions::dereg_mem,
                 &Functions::poll_tcq, &Functions::poll_mrq>(functions);
    }
};
const testing::Environment* const crowded = testing::AddGlobalTestEnvironment(new Crowded);

Wishes serialised()
{
    Wishes wishes;
    wishes.caps |= FI_RMA;
    wishes.threading = FI_THREAD_DOMAIN;
    return wishes;
}

/// Each test looks at its own calls.
struct Sharing : testing::Test {
    Sharing() { meetings = unsafe_calls = 0; }
    ~Sharing() override
    {
        EXPECT_EQ(meetings, 0u);
        EXPECT_GT(unsafe_calls, 0u); // else nothing was looked at
    }
};

constexpr std::size_t most = 100000;
constexpr std::size_t sizes[] = {8, 3000, most}; ///< in a slot, in several, read by the receiver

/// Messages and writes of one endpoint to another, and what the calls need.
class Traffic {
  public:
    explicit Traffic(Objects& objects) : objects_(objects), in_(most), out_(most) {}
    /// From endpoint `from` to number `to`, which completes into `rx`; `await` waits for `rx` before it is read.
    template <class Await>
    void round(unsigned number, fid_cq* tx, fid_ep* from, fid_cq* rx, fid_ep* into, fi_addr_t to, Await&& await)
    {
        const std::size_t size = sizes[number % std::size(sizes)];
        out_[0] = out_[size - 1] = static_cast<char>(number);
        Objects::post(rx, [&] { return fi_trecv(into, in_.data(), size, nullptr, FI_ADDR_UNSPEC, number, 0, &in_); });
        Objects::post(tx, [&] { return fi_tsend(from, out_.data(), size, nullptr, to, number, &out_); });
        // A thread that makes progress handles both sides.
        finish(rx, &in_, [&] { await(), fi_cq_read(tx, nullptr, 0); });
        finish(tx, &out_, [&] { fi_cq_read(rx, nullptr, 0); });
        EXPECT_EQ(in_[0], static_cast<char>(number));
        EXPECT_EQ(in_[size - 1], static_cast<char>(number));
        fid_mr* region = nullptr;
        ASSERT_EQ(fi_mr_reg(objects_.domain, in_.data(), most, FI_REMOTE_WRITE, 0, number + 1, 0, &region, nullptr), 0);
        out_[0] = static_cast<char>(number + 1);
        Objects::post(tx, [&] { return fi_write(from, out_.data(), size, nullptr, to, 0, fi_mr_key(region), &out_); });
        finish(tx, &out_, [&] { fi_cq_read(rx, nullptr, 0); });
        EXPECT_EQ(in_[0], static_cast<char>(number + 1));
        EXPECT_EQ(fi_close(&region->fid), 0);
    }

  private:
    template <class Await>
    static void finish(fid_cq* cq, void* context, Await&& await)
    {
        fi_cq_tagged_entry entry{};
        ssize_t got = -FI_EAGAIN;
        ASSERT_TRUE(eventually([&] {
            await();
            got = fi_cq_read(cq, &entry, 1);
            return got != -FI_EAGAIN;
        }));
        ASSERT_EQ(got, 1);
        EXPECT_EQ(entry.op_context, context);
    }

    Objects& objects_;
    std::vector<char> in_, out_;
};

/// As programs sleep on the descriptor of a queue.
void sleep_on(fid_fabric* fabric, fid_cq* cq)
{
    int fd = -1;
    ASSERT_EQ(fi_control(&cq->fid, FI_GETWAIT, &fd), 0);
    struct fid* fids[] = {&cq->fid};
    if (fi_trywait(fabric, fids, 1) != 0)
        return;
    pollfd p{fd, POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 10000), 1);
}

TEST_F(Sharing, AThreadMayStartBehindEndpoints)
{
    for (fi_wait_obj wait : {FI_WAIT_FD, FI_WAIT_MUTEX_COND}) {
        Objects o(serialised());
        Traffic traffic(o);
        fid_cq* tx = o.open_queue();
        fid_cq* plain = o.open_queue();
        fid_ep* early = o.add(tx, plain);
        for (unsigned i = 0; i < 6; i++)
            traffic.round(i, tx, early, plain, early, 0, [] {});
        fid_cq* rx = o.open_queue(FI_WAIT_FD);
        fid_cntr* counter = o.open_counter(wait);
        fid_ep* late = o.add(tx, rx, counter);
        for (unsigned i = 0; i < 200; i++) {
            traffic.round(i, tx, early, rx, late, 1, [&] { sleep_on(o.fabric, rx); });
            if (i % 50 == 0) { // others come and go meanwhile
                fid_ep* short_lived = o.add(tx, tx);
                traffic.round(i, tx, short_lived, rx, late, 1, [&] { sleep_on(o.fabric, rx); });
                EXPECT_EQ(fi_close(&short_lived->fid), 0);
                o.endpoints.pop_back();
            }
        }
        EXPECT_EQ(fi_cntr_wait(counter, 204, 10000), 0);
    }
}

TEST_F(Sharing, AThreadMayStartBehindASharedTransmitContext)
{
    Objects o(serialised());
    Traffic traffic(o);
    fid_stx* shared = nullptr;
    ASSERT_EQ(fi_stx_context(o.domain, nullptr, &shared, nullptr), 0);
    fid_cq* tx = o.open_queue();
    fid_cq* rx = o.open_queue(FI_WAIT_FD);
    fid_ep* receiver = o.add(rx, rx);
    fid_ep* const sender = o.open_sharing(shared, tx);
    for (unsigned i = 0; i < 200; i++)
        traffic.round(i, tx, sender, rx, receiver, 0, [&] { sleep_on(o.fabric, rx); });
    EXPECT_EQ(fi_close(&sender->fid), 0);
    EXPECT_EQ(fi_close(&shared->fid), 0);
}

TEST_F(Sharing, DomainsOfTwoThreadsDoNotMeet)
{
    Objects one(serialised()), other(serialised());
    std::barrier together(2);
    const auto work = [&together](Objects& o) {
        Traffic traffic(o);
        fid_cq* tx = o.open_queue();
        fid_cq* rx = o.open_queue();
        fid_ep* a = o.add(tx, tx);
        fid_ep* b = o.add(rx, rx);
        together.arrive_and_wait();
        for (unsigned i = 0; i < 300; i++)
            traffic.round(i, tx, a, rx, b, 1, [] {});
    };
    std::thread second([&] { work(other); });
    work(one);
    second.join();
}

/// One domain after another: each finds that none is left.
TEST_F(Sharing, ADomainAloneHasNoLocksUnderIt)
{
    for (int i = 0; i < 2; i++) {
        unsafe_calls = 0;
        Objects o(serialised());
        Traffic traffic(o);
        fid_cq* tx = o.open_queue();
        fid_cq* rx = o.open_queue();
        fid_ep* a = o.add(tx, rx);
        traffic.round(1, tx, a, rx, a, 0, [] {});
        EXPECT_GT(unsafe_calls, 0u);
    }
}

} // namespace
