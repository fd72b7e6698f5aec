// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What RMA tells of its end: errors after the completion, fences, selective completion, counters and data at the
// target, between processes over the simulator.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "prov/lib/base.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::expect_processes;
using tofu::sim::test::wait_until;

/// FI_INJECT_COMPLETE ends a write when its buffer is free again; a later failure is reported all the same.
TEST(Rma, AWriteThatFailsAfterItsCompletionIsAnErrorEntry)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank);
        std::uint64_t window[64] = {};
        auto peers = s.share(window, sizeof(window), FI_REMOTE_READ);
        std::uint64_t value = 9;
        iovec local{&value, 8};
        fi_rma_iov remote{peers[0].base, 8, peers[0].key};
        fi_msg_rma msg{&local, nullptr, 1, 0, &remote, 1, &local, 0};
        ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, FI_INJECT_COMPLETE | FI_COMPLETION); }), 0);
        s.expect(&local, FI_RMA | FI_WRITE);
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        ASSERT_TRUE(s.next(entry, &error));
        EXPECT_EQ(error.err, FI_EACCES);
        EXPECT_EQ(error.flags, FI_RMA | FI_WRITE);
        EXPECT_EQ(window[0], 0u);
    });
}

/// A key that does not allow a write is the write's failure: the peer is there, and its messages go on.
TEST(Rma, AFailedInjectDoesNotHarmMessages)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_TAGGED;
        Session s(rank, options);
        std::uint64_t window[64] = {};
        auto peers = s.share(window, sizeof(window), FI_REMOTE_READ);
        std::uint64_t value = 9, got = 0;
        for (int round = 0; round < 2; round++) {
            ASSERT_EQ(fi_trecv(s.ep, &got, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &got), 0);
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &value, 8, 0, 1); }), 0);
            s.expect(&got, FI_TAGGED | FI_RECV);
            ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &value, 8, 0, peers[0].base, peers[0].key); }), 0);
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.err, FI_EACCES);
        }
    });
}

/// FI_FENCE waits for all that went to the same peer before, messages that it has not received yet among them, and for
/// nothing that went to another (fi_msg(3)).
TEST(Rma, AFenceWaitsForMessagesToItsPeerAlone)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_TAGGED | FI_ATOMIC;
        Session s(rank, options);
        std::uint64_t window[64] = {};
        auto peers = s.share(window, sizeof(window));
        std::vector<std::uint8_t> big(1 << 20);
        if (rank.number == 1) {
            s.barrier();
            ASSERT_EQ(fi_trecv(s.ep, big.data(), big.size(), nullptr, 0, 1, 0, &big), 0);
            s.expect(&big, FI_TAGGED | FI_RECV);
            return;
        }
        ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, big.data(), big.size(), nullptr, 1, 1, &big); }), 0);
        std::uint64_t value = 9;
        iovec local{&value, 8};
        fi_ioc element{&value, 1};
        const auto fenced = [&](fi_addr_t to, int kind) {
            fi_rma_iov where{peers[to].base, 8, peers[to].key};
            fi_rma_ioc word{peers[to].base, 1, peers[to].key};
            fi_msg_rma write{&local, nullptr, 1, to, &where, 1, &value, 0};
            fi_msg_atomic atomic{&element, nullptr, 1, to, &word, 1, FI_UINT64, FI_SUM, &value, 0};
            fi_msg_tagged message{&local, nullptr, 1, to, 2, 0, &value, 0};
            return kind == 0   ? fi_writemsg(s.ep, &write, FI_FENCE)
                   : kind == 1 ? fi_atomicmsg(s.ep, &atomic, FI_FENCE)
                               : fi_tsendmsg(s.ep, &message, FI_FENCE);
        };
        for (int i = 0; i < 300; i++)
            EXPECT_EQ(fenced(1, i % 3), -FI_EAGAIN) << i;
        EXPECT_EQ(fenced(0, 0), 0);
        s.expect(&value, FI_RMA | FI_WRITE);
        s.barrier();
        EXPECT_EQ(s.post([&] { return fenced(1, 0); }), 0);
        s.expect(&big, FI_TAGGED | FI_SEND);
        s.expect(&value, FI_RMA | FI_WRITE);
    });
}

TEST(Rma, SelectiveCompletionReportsWhatIsFlagged)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.selective = true;
        options.counters = true;
        Session s(rank, options);
        std::uint64_t window[64] = {};
        auto peers = s.share(window, sizeof(window));
        std::uint64_t value = 9;
        iovec local{&value, 8};
        fi_rma_iov remote{peers[0].base, 8, peers[0].key};
        fi_msg_rma msg{&local, nullptr, 1, 0, &remote, 1, &local, 0};
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, peers[0].base, peers[0].key, &s); }), 0);
        ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, 0); }), 0);
        ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &value, 8, 0, peers[0].base, peers[0].key); }), 0);
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[write_counter]) == 3; }));
        s.expect_silence();
        ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, FI_COMPLETION); }), 0);
        s.expect(&local, FI_RMA | FI_WRITE);
        ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, FI_INJECT); }), 0);
        ASSERT_EQ(s.post([&] { return fi_writemsg(s.ep, &msg, FI_INJECT | FI_COMPLETION); }), 0);
        s.expect(&local, FI_RMA | FI_WRITE);
        s.expect_silence();
        ASSERT_EQ(s.post([&] { return fi_readmsg(s.ep, &msg, 0); }), 0);
        EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[read_counter]) == 1; }));
        EXPECT_EQ(fi_cntr_read(s.counter[write_counter]), 6u);
        s.expect_silence();
    });
}

/// fi_endpoint(3): the default flags are those of calls that have none of their own; fi_rma(3): an inject has no entry.
TEST(Rma, InjectsKnowNothingOfDefaultFlags)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_MSG;
        options.tx_op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        Session s(rank, options);
        std::uint64_t window[2] = {};
        const Window w = s.share(window, sizeof(window))[0];
        std::uint64_t value = 9;
        ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, &value, 8, 0, w.base, w.key); }), 0);
        ASSERT_EQ(s.post([&] { return fi_inject_writedata(s.ep, &value, 8, 77, 0, w.base + 8, w.key); }), 0);
        fi_cq_data_entry entry{};
        ASSERT_TRUE(s.next(entry));
        EXPECT_EQ(entry.data, 77u);
        EXPECT_EQ(entry.flags, std::uint64_t{FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA});
        s.expect_silence();
        EXPECT_TRUE(wait_until([&] { return std::atomic_ref(window[0]) == 9 && std::atomic_ref(window[1]) == 9; }));
        ASSERT_EQ(s.post([&] { return fi_write(s.ep, &value, 8, nullptr, 0, w.base, w.key, &s); }), 0);
        s.expect(&s, FI_RMA | FI_WRITE);
    });
}

TEST(Rma, TheTargetCountsOneEventForEachOperation)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_RMA_EVENT;
        options.counters = true;
        Session s(rank, options);
        std::vector<std::uint8_t> window(1 << 25);
        auto peers = s.share(window.data(), window.size());
        const unsigned peer = 1 - rank.number;
        const Window there = peers[peer];
        std::vector<std::uint8_t> mine(window.size() / 2 + 10, static_cast<std::uint8_t>(rank.number + 1));
        std::uint64_t expected = 0;
        for (std::size_t size : {std::size_t{8}, std::size_t{100}, std::size_t{100000}, mine.size()}) {
            ASSERT_EQ(
                s.post([&] { return fi_write(s.ep, mine.data(), size, nullptr, peer, there.base, there.key, &s); }), 0);
            expected++;
            // Counted when the bytes are there, with nothing but the counter driven.
            EXPECT_TRUE(wait_until([&] { return fi_cntr_read(s.counter[remote_write_counter]) == expected; }));
            for (std::size_t i = 0; i < size; i++)
                ASSERT_EQ(window[i], peer + 1) << i << " of " << size;
            s.expect(&s, FI_RMA | FI_WRITE);
            s.barrier();
            std::memset(window.data(), 0, size);
            s.barrier();
        }
        ASSERT_EQ(s.post([&] { return fi_inject_write(s.ep, mine.data(), 8, peer, there.base, there.key); }), 0);
        ASSERT_EQ(
            s.post([&] { return fi_read(s.ep, mine.data(), mine.size(), nullptr, peer, there.base, there.key, &s); }),
            0);
        EXPECT_TRUE(wait_until([&] {
            return fi_cntr_read(s.counter[remote_write_counter]) == expected + 1 &&
                   fi_cntr_read(s.counter[remote_read_counter]) == 1;
        }));
        s.expect(&s, FI_RMA | FI_READ);
        s.barrier();
        EXPECT_EQ(fi_cntr_read(s.counter[remote_write_counter]), expected + 1);
    });
}

TEST(Rma, DataOfAWriteReachesTheTargetsQueueAfterTheBytes)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_MSG;
        Session s(rank, options);
        std::vector<std::uint8_t> window(1 << 20);
        auto peers = s.share(window.data(), window.size());
        const unsigned peer = 1 - rank.number;
        const Window there = peers[peer];
        std::vector<std::uint8_t> mine(window.size());
        std::uint64_t data = 0xfedcba9876543210u;
        // Both as writer and as target: entries of both kinds come in any order.
        auto both_entries = [&](void* context, std::size_t size, std::uint64_t expected) {
            bool written = context == nullptr;
            for (bool received = false; !written || !received;) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry))
                    << size << " bytes: " << (written ? "no data of the peer" : "no end of the write");
                if (entry.flags & FI_REMOTE_WRITE) {
                    received = true;
                    EXPECT_EQ(entry.flags & (FI_RMA | FI_REMOTE_CQ_DATA), FI_RMA | FI_REMOTE_CQ_DATA);
                    EXPECT_EQ(entry.data, expected);
                    EXPECT_EQ(entry.len, size);
                    EXPECT_EQ(window[0], peer + 1 + size % 7);
                    EXPECT_EQ(window[size - 1], peer + 1 + size % 7);
                } else {
                    written = true;
                    EXPECT_EQ(entry.op_context, context);
                }
            }
        };
        for (std::size_t size : {std::size_t{1}, std::size_t{32}, std::size_t{1000}, window.size()}) {
            std::memset(mine.data(), static_cast<int>(rank.number + 1 + size % 7), size);
            data++;
            ASSERT_EQ(s.post([&] {
                return fi_writedata(s.ep, mine.data(), size, nullptr, data, peer, there.base, there.key, &mine);
            }),
                      0);
            both_entries(&mine, size, data);
            s.barrier();
        }
        std::memset(mine.data(), static_cast<int>(rank.number + 1 + 8 % 7), 8);
        ASSERT_EQ(s.post([&] { return fi_inject_writedata(s.ep, mine.data(), 8, data, peer, there.base, there.key); }),
                  0);
        both_entries(nullptr, 8, data);
        s.barrier();
        s.expect_silence();
    });
}

/// The region lives, and the endpoint does not: the bytes arrive, and an error entry says that the data do not.
TEST(Rma, UnreadableDataAreAnErrorOfTheInject)
{
    expect_processes(2, [](const Rank& rank) {
        Options options;
        options.caps = FI_RMA | FI_MSG;
        Session s(rank, options);
        std::uint64_t window[4] = {};
        const Window there = s.share(window, sizeof(window))[1];
        const auto inject = [&](std::uint64_t i) {
            EXPECT_EQ(s.post([&] { return fi_inject_writedata(s.ep, &i, 8, i, 1, there.base + 8 * i, there.key); }), 0);
        };
        fi_cq_data_entry entry{};
        if (rank.number == 0) {
            inject(0); // the two are in contact
            EXPECT_TRUE(wait_until([&] { return fi_cq_read(s.cq, nullptr, 0), rank.get(900) == 1; }));
        } else {
            EXPECT_TRUE(s.next(entry));
            EXPECT_EQ(fi_close(&s.ep->fid), 0);
            s.ep = nullptr;
            rank.set(900, 1);
        }
        for (std::uint64_t i = 1; i < 4 && rank.number == 0; i++) { // the first learns of the end, the others know it
            inject(i);
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.err, FI_EHOSTDOWN);
            EXPECT_EQ(error.flags, FI_RMA | FI_WRITE);
        }
        s.barrier();
        for (std::uint64_t i = 0; i < 4 && rank.number == 1; i++)
            EXPECT_EQ(std::atomic_ref(window[i]), i);
    });
}

/// A writer that receives nothing has no queue for it.
void write_without_receive_queue(const Rank& rank, std::uint64_t caps)
{
    const bool writes = rank.number == 0;
    const Base b(FI_RMA | (writes ? FI_WRITE : FI_REMOTE_WRITE), 0);
    if (writes)
        b.info->caps = caps;
    fid_cq* const cq = b.queue();
    fid_ep* ep = nullptr;
    check(fi_endpoint(b.domain, b.info, &ep, nullptr), "fi_endpoint");
    check(fi_ep_bind(ep, &b.av->fid, 0), "bind av");
    check(fi_ep_bind(ep, &cq->fid, writes ? FI_TRANSMIT : FI_RECV), "bind cq");
    check(fi_enable(ep), "fi_enable");
    b.exchange(rank, &ep->fid);
    std::uint64_t word = writes ? 5 : 0;
    fid_mr* mr = nullptr;
    check(fi_mr_reg(b.domain, &word, sizeof(word), FI_REMOTE_WRITE, 0, 7, 0, &mr, nullptr), "fi_mr_reg");
    rank.barrier();
    fi_cq_tagged_entry entry{};
    if (writes) {
        ASSERT_EQ(post(cq, [&] { return fi_writedata(ep, &word, 8, nullptr, 77, 1, 0, 7, &word); }), 0);
        ASSERT_TRUE(next(cq, entry));
        EXPECT_EQ(entry.op_context, &word);
    } else {
        ASSERT_TRUE(next(cq, entry));
        EXPECT_EQ(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        EXPECT_EQ(entry.data, 77u);
        EXPECT_EQ(word, 5u);
    }
    rank.barrier();
    for (struct fid* object : {&mr->fid, &ep->fid, &cq->fid})
        EXPECT_EQ(fi_close(object), 0);
}

TEST(Rma, AWriterOfDataNeedsNoReceiveQueue)
{
    for (std::uint64_t caps : {FI_RMA | FI_WRITE, FI_RMA}) // the second says the same, fi_getinfo(3)
        expect_processes(2, [caps](const Rank& rank) { write_without_receive_queue(rank, caps); });
}

/// What fi_close discards it discards silently (fi_endpoint(3)), by whichever way it was posted.
TEST(RmaClose, ErrorsThatComeWithTheCloseAreNotReported)
{
    expect_processes(2, [](const Rank& rank) {
        alignas(65536) static std::uint64_t words[1024];
        for (unsigned way = 0; way < 6; way++) {
            Options options;
            options.caps = FI_RMA | FI_ATOMIC;
            options.counters = way % 2 == 1; // with a counter nothing goes out unsignaled
            Session s(rank, options);
            const auto there = s.share(words, sizeof words, FI_REMOTE_READ)[1]; // a write to it fails
            if (rank.number == 1)
                continue;
            std::uint64_t word = 1, result = 0;
            for (unsigned i = 0; i < 8; i++) {
                ssize_t ret = 0;
                switch (way) {
                case 0: ret = fi_write(s.ep, &word, 8, nullptr, 1, there.base, there.key, &s); break;
                case 1: ret = fi_inject_write(s.ep, &word, 8, 1, there.base, there.key); break;
                case 2: ret = fi_inject_write(s.ep, &word, 8, 1, there.base, there.key); break;
                case 3: ret = fi_write(s.ep, words, 8192, nullptr, 1, there.base, there.key, &s); break;
                case 4: ret = fi_inject_atomic(s.ep, &word, 1, 1, there.base, there.key, FI_UINT64, FI_SUM); break;
                default:
                    ret = fi_fetch_atomic(s.ep, &word, 1, nullptr, &result, nullptr, 1, there.base, there.key,
                                          FI_UINT64, FI_SUM, &s);
                }
                EXPECT_EQ(ret, 0) << way;
            }
            ASSERT_EQ(fi_close(&s.ep->fid), 0);
            s.ep = nullptr;
            fi_cq_data_entry entry{};
            EXPECT_EQ(fi_cq_read(s.cq, &entry, 1), -FI_EAGAIN) << way;
            for (fid_cntr* counter : s.counter)
                EXPECT_EQ(counter != nullptr ? fi_cntr_readerr(counter) : 0u, 0u) << way;
        }
    });
}

/// Threads of this process that poll for a domain.
unsigned progress_threads()
{
    unsigned found = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        found += name == "tofu-progress";
    }
    return found;
}

/// With FI_PROGRESS_AUTO: what is one communication goes on in the TNI.
TEST(RmaProgress, AThreadPollsOnlyWhereSomethingNeedsIt)
{
    expect_processes(1, [](const Rank& rank) {
        static std::uint64_t words[64], result;
        Options options;
        options.progress = FI_PROGRESS_AUTO;
        options.caps = FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        options.transmits_only = true; // no data of remote writes is taken
        Session s(rank, options);
        const auto self = s.share(words, sizeof words)[0];
        std::uint64_t one = 1;
        const auto read = [&](int count) {
            fi_cq_data_entry entry{};
            for (int i = 0; i < count; i++)
                ASSERT_TRUE(s.next(entry));
        };
        ASSERT_EQ(fi_write(s.ep, &one, 8, nullptr, 0, self.base, self.key, &s), 0);
        ASSERT_EQ(fi_read(s.ep, &result, 8, nullptr, 0, self.base, self.key, &s), 0);
        ASSERT_EQ(fi_write(s.ep, words + 8, 256, nullptr, 0, self.base + 256, self.key, &s), 0);
        ASSERT_EQ(fi_atomic(s.ep, &one, 1, nullptr, 0, self.base, self.key, FI_UINT64, FI_SUM, &s), 0);
        read(4);
        EXPECT_EQ(progress_threads(), 0u);
        ASSERT_EQ(fi_atomic(s.ep, &one, 1, nullptr, 0, self.base, self.key, FI_UINT64, FI_PROD, &s), 0); // a loop
        EXPECT_EQ(progress_threads(), 1u);
        read(1);
    });
    for (std::uint64_t caps : {std::uint64_t{FI_MSG}, std::uint64_t{FI_RMA | FI_RMA_EVENT}})
        expect_processes(1, [caps](const Rank& rank) {
            Options options;
            options.progress = FI_PROGRESS_AUTO;
            options.caps = caps;
            options.transmits_only = caps != FI_MSG;
            Session s(rank, options);
            EXPECT_EQ(progress_threads(), 1u);
        });
}

} // namespace
