// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the level of a fenced operation says of those before it (fi_cq(3), FI_FENCE): they have met it too, whatever
// theirs was. Each pair of message, write and atomic, injected and tracked, with sends that wait for room and without,
// at a receiver that makes progress only when the test says so.
#include <gtest/gtest.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "prov/lib/objects.h"

namespace {

using namespace tofu::test;

enum class Transfer { message, write, atomic };
enum class Before { injected, tracked, waiting };

struct Level : testing::Test {
    Level() : o(wishes()), tx(o.open_queue()), rx(o.open_queue()), receiver(o.add(rx, rx)), sender(o.add(tx, tx))
    {
        Objects::must(
            fi_mr_reg(o.domain, window, sizeof window, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0, 0, &region, nullptr));
        base = reinterpret_cast<std::uintptr_t>(window);
        Objects::post(tx, [&] { return round_of(rx), fi_tinject(sender, &five, 8, 0, first); }); // wins a ring
        receive(first);
    }
    ~Level() override { EXPECT_EQ(fi_close(&region->fid), 0); }
    static Wishes wishes()
    {
        Wishes w;
        w.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_FENCE;
        w.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        return w;
    }
    static ssize_t round_of(fid_cq* cq)
    {
        fi_cq_tagged_entry entries[64];
        return fi_cq_read(cq, entries, 64);
    }
    /// A message of that tag is matched.
    void receive(std::uint64_t tag)
    {
        std::uint64_t into = 0;
        Objects::post(rx, [&] { return fi_trecv(receiver, &into, 8, nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr); });
        ASSERT_TRUE(eventually([&] { return round_of(tx), round_of(rx) > 0; }));
        EXPECT_EQ(into, five);
    }
    ssize_t post(Transfer kind, std::uint64_t flags, std::uint64_t tag, std::uint64_t* at)
    {
        const iovec local{&five, 8};
        const std::uint64_t to = base + 8 * static_cast<std::uint64_t>(at - window);
        if (kind == Transfer::message) {
            const fi_msg_tagged msg{&local, nullptr, 1, 0, tag, 0, nullptr, 0};
            return fi_tsendmsg(sender, &msg, flags);
        }
        if (kind == Transfer::write) {
            const fi_rma_iov remote{to, 8, fi_mr_key(region)};
            const fi_msg_rma msg{&local, nullptr, 1, 0, &remote, 1, nullptr, 0};
            return fi_writemsg(sender, &msg, flags);
        }
        const fi_ioc operand{&five, 1};
        const fi_rma_ioc target{to, 1, fi_mr_key(region)};
        const fi_msg_atomic msg{&operand, nullptr, 1, 0, &target, 1, FI_UINT64, FI_SUM, nullptr, 0};
        return fi_atomicmsg(sender, &msg, flags);
    }
    ssize_t inject(Transfer kind, std::uint64_t tag)
    {
        const std::uint64_t key = fi_mr_key(region);
        return kind == Transfer::message ? fi_tinject(sender, &five, 8, 0, tag)
               : kind == Transfer::write ? fi_inject_write(sender, &five, 8, 0, base, key)
                                         : fi_inject_atomic(sender, &five, 1, 0, base, key, FI_UINT64, FI_SUM);
    }
    /// Returns how many messages of the tag are on their way then.
    unsigned before(Transfer kind, Before how, std::uint64_t tag)
    {
        window[0] = 0;
        for (unsigned i = 0; how == Before::waiting && i < many; i++)
            Objects::must(fi_tsend(sender, &five, 8, nullptr, 0, tag, nullptr));
        if (how == Before::tracked)
            Objects::post(tx, [&] { return post(kind, FI_COMPLETION | FI_TRANSMIT_COMPLETE, tag, window); });
        else if (how == Before::injected || kind != Transfer::message)
            Objects::post(tx, [&] { return inject(kind, tag); });
        return how == Before::waiting ? many : kind == Transfer::message ? 1 : 0;
    }
    [[nodiscard]] bool refused(Transfer kind, std::uint64_t flags, unsigned times = 200)
    {
        for (unsigned i = 0; i < times; i++) {
            round_of(tx);
            if (const ssize_t ret = post(kind, flags, fenced, window + 1); ret != -FI_EAGAIN) {
                EXPECT_EQ(ret, 0);
                return false;
            }
        }
        return true;
    }

    static constexpr std::uint64_t first = 1, earlier = 2, fenced = 3;
    static constexpr unsigned many = 200; ///< more than a ring has slots
    Objects o;
    fid_cq* tx;
    fid_cq* rx;
    fid_ep* receiver;
    fid_ep* sender;
    fid_mr* region = nullptr;
    std::uint64_t base = 0;
    std::uint64_t five = 5;
    alignas(65536) std::uint64_t window[512] = {};
};

constexpr Transfer kinds[] = {Transfer::message, Transfer::write, Transfer::atomic};
constexpr std::uint64_t levels[] = {0, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE};
constexpr Before hows[] = {Before::injected, Before::tracked, Before::waiting};

TEST_F(Level, OfAFencedOperationIsThatOfThoseBeforeIt)
{
    for (Transfer kind : kinds)
        for (Before how : hows)
            for (Transfer then : kinds)
                for (std::uint64_t level : levels) {
                    if (level == FI_MATCH_COMPLETE && then == Transfer::write)
                        continue; // no level of RMA
                    SCOPED_TRACE(testing::Message() << "before " << int(kind) << " how " << int(how) << " then "
                                                    << int(then) << " level " << level);
                    const std::uint64_t flags = FI_FENCE | level;
                    const unsigned messages = before(kind, how, earlier);
                    bool posted = false;
                    const bool must_be_taken = level == FI_DELIVERY_COMPLETE || level == FI_MATCH_COMPLETE;
                    if (messages != 0 && (must_be_taken || how == Before::waiting)) {
                        ASSERT_TRUE(refused(then, flags)); // they lie in the ring
                        for (int i = 0; i < 2000; i++)
                            round_of(rx), round_of(tx);
                        if (level == FI_MATCH_COMPLETE)
                            ASSERT_TRUE(refused(then, flags)); // they were taken, and wait for receives
                    } else {
                        ASSERT_TRUE(eventually([&] {
                            if (must_be_taken) // there were others
                                round_of(rx);
                            return posted = !refused(then, flags, 1);
                        }));
                    }
                    for (unsigned i = 0; i < messages; i++)
                        receive(earlier);
                    if (!posted)
                        ASSERT_TRUE(eventually([&] { return round_of(rx), posted = !refused(then, flags, 1); }));
                    if (kind != Transfer::message)
                        EXPECT_EQ(window[0], five);
                    if (then == Transfer::message)
                        receive(fenced);
                    ASSERT_TRUE(eventually([&] { return round_of(tx), round_of(rx) == -FI_EAGAIN; }));
                }
}

/// The sender's own questions are no sends: nothing is counted or reported for them, also when the peer goes.
TEST_F(Level, AReceiverThatClosesBlocksNoOther)
{
    Objects::post(tx, [&] { return fi_tinject(sender, &five, 8, 0, earlier); });
    ASSERT_TRUE(refused(Transfer::write, FI_FENCE | FI_DELIVERY_COMPLETE));
    ASSERT_EQ(fi_close(&receiver->fid), 0);
    std::erase(o.endpoints, receiver);
    ASSERT_TRUE(eventually([&] { return !refused(Transfer::write, FI_FENCE | FI_DELIVERY_COMPLETE, 1); }));
    ASSERT_TRUE(eventually([&] { return window[1] == five; }));
    fi_cq_tagged_entry entry{};
    ssize_t got = 0;
    ASSERT_TRUE(eventually([&] { return got = fi_cq_read(tx, &entry, 1), got != -FI_EAGAIN; }));
    EXPECT_EQ(got, 1);
    EXPECT_EQ(entry.flags & FI_RMA, FI_RMA);
}

} // namespace
