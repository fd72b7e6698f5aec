// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_msg and fi_tagged between processes: every length and protocol, order, matching, the flags of receives, errors,
// back-pressure, death.
#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <sys/wait.h>

#include "prov/lib/many_endpoints.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

Options message_options(std::uint64_t more = 0)
{
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV | more;
    return options;
}

std::vector<std::uint8_t> message_pattern(std::size_t size, unsigned seed)
{
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t i = 0; i < size; i++)
        bytes[i] = static_cast<std::uint8_t>(i * 7 + seed + (i >> 8));
    return bytes;
}

const std::size_t message_sizes[] = {0,   1,   8,    15,   16,   17,   24,   25,    216,    217,     232,
                                     240, 241, 1000, 4095, 4096, 4097, 8192, 65536, 100001, 1 << 20, 17 << 20};

void exchange_every_length(const char* chaos)
{
    expect_processes(2, [&](const Rank& rank) {
        if (*chaos != '\0')
            setenv("TOFU_SIM_CHAOS", chaos, 1);
        Session s(rank, message_options());
        const unsigned peer = 1 - rank.number;
        unsigned turn = 0;
        for (std::size_t size : message_sizes) {
            turn++;
            auto bytes = message_pattern(size, turn);
            if (rank.number == 0) {
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, bytes.data(), size, nullptr, peer, turn, &turn); }), 0);
                s.expect(&turn, FI_SEND | FI_TAGGED);
            } else {
                std::vector<std::uint8_t> in(size + 8, 0xee);
                ASSERT_EQ(fi_trecv(s.ep, in.data(), size, nullptr, peer, turn, 0, &in), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.flags, FI_RECV | FI_TAGGED);
                EXPECT_EQ(entry.len, size);
                EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), in.begin())) << size;
                EXPECT_EQ(in[size], 0xee) << size;
            }
        }
    });
}

TEST(Message, EveryLengthArrivesWhole)
{
    exchange_every_length("");
}

/// The rest of a line that is put into a poller's cache has any content (guide 2.2.11).
TEST(Message, EveryLengthArrivesWholeWhateverStandsBesideIt)
{
    exchange_every_length("9:padding");
}

/// By each call that may be short, from any address, into receives that wait.
TEST(Message, EveryShortLengthByEveryCall)
{
    using Send = ssize_t (*)(fid_ep*, const void*, std::size_t);
    static constexpr std::uint64_t data = 0xfedcba9876543210, tag = 0x123456789abcdef0;
    static const Send injects[] = {
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_inject(ep, b, n, 1); },
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_injectdata(ep, b, n, data, 1); },
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_tinject(ep, b, n, 1, tag); },
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_tinjectdata(ep, b, n, data, 1, tag); }};
    static const Send sends[] = {
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_send(ep, b, n, nullptr, 1, nullptr); },
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_senddata(ep, b, n, nullptr, data, 1, nullptr); },
        [](fid_ep* ep, const void* b, std::size_t n) { return fi_tsend(ep, b, n, nullptr, 1, tag, nullptr); },
        [](fid_ep* ep, const void* b, std::size_t n) {
            return fi_tsenddata(ep, b, n, nullptr, data, 1, tag, nullptr);
        }};
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, message_options());
        fi_cq_data_entry entry{};
        for (std::size_t size = 0; size < 300; size++) {
            const auto bytes = message_pattern(size + 8, static_cast<unsigned>(size));
            const bool injected = size % 2 == 0 && size <= s.info->tx_attr->inject_size;
            std::vector<std::uint8_t> in[4];
            for (unsigned i = 0; i < 4 && rank.number == 1; i++) {
                in[i].assign(size + 8, 0xee);
                ASSERT_EQ(i < 2 ? fi_recv(s.ep, &in[i][1], size, nullptr, 0, &in[i])
                                : fi_trecv(s.ep, &in[i][1], size, nullptr, 0, tag, 0, &in[i]),
                          0);
            }
            if (rank.number == 0) {
                ASSERT_EQ(fi_trecv(s.ep, &s, 0, nullptr, 1, 1, 0, &s), 0);
                s.expect(&s, FI_RECV);
                for (unsigned i = 0; i < 4; i++) {
                    ASSERT_EQ(s.post([&] { return (injected ? injects : sends)[i](s.ep, &bytes[size % 8], size); }), 0);
                    if (!injected)
                        s.expect(nullptr, FI_SEND);
                }
                continue;
            }
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, nullptr, 0, 0, 1); }), 0); // they wait
            for (unsigned i = 0; i < 4; i++) {
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.op_context, &in[i]);
                EXPECT_EQ(entry.flags, FI_RECV | (i < 2 ? FI_MSG : FI_TAGGED) | (i % 2 ? FI_REMOTE_CQ_DATA : 0));
                EXPECT_EQ(entry.len, size);
                EXPECT_EQ(entry.data, i % 2 ? data : 0);
                EXPECT_TRUE(std::equal(&in[i][1], &in[i][1] + size, &bytes[size % 8])) << size;
                EXPECT_TRUE(in[i][0] == 0xee && in[i][size + 1] == 0xee) << size;
            }
        }
        s.expect_silence(); // in adversarial mode what was injected leaves by progress
    });
}

TEST(Message, OrderHoldsAcrossProtocolsAndUnexpectedOnes)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, message_options());
        const unsigned peer = 1 - rank.number;
        constexpr int count = 300;
        const std::size_t lengths[] = {8, 300, 4096, 20000, 0, 120};
        std::vector<std::vector<std::uint8_t>> out;
        for (int i = 0; i < count; i++)
            out.push_back(message_pattern(lengths[i % 6], static_cast<unsigned>(i)));
        if (rank.number == 0) {
            int sent = 0, ended = 0;
            while (ended < count) {
                if (sent < count && fi_send(s.ep, out[sent].data(), out[sent].size(), nullptr, peer, &out[sent]) == 0)
                    sent++;
                fi_cq_data_entry entry;
                const ssize_t got = fi_cq_read(s.cq, &entry, 1);
                ASSERT_TRUE(got == 1 || got == -FI_EAGAIN);
                ended += got == 1;
            }
        } else {
            for (int i = 0; i < 2000; i++)
                fi_cq_read(s.cq, nullptr, 0); // many come unexpected
            for (int i = 0; i < count; i++) {
                std::vector<std::uint8_t> in(20000);
                ASSERT_EQ(fi_recv(s.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                ASSERT_EQ(entry.len, out[i].size()) << i;
                ASSERT_TRUE(std::equal(out[i].begin(), out[i].end(), in.begin())) << i;
            }
        }
    });
}

/// MPI_Isend may not wait for its peer: a sender that waits for completions is not refused, up to tx_attr.size of them.
TEST(Message, SendsBeyondTheRoomAtThePeerWaitInTheirOrder)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, message_options());
        constexpr unsigned count = 300;
        const std::size_t lengths[] = {8, 400, 4096, 20000};
        std::vector<std::vector<std::uint8_t>> out;
        for (unsigned i = 0; i < count; i++)
            out.push_back(message_pattern(lengths[i % 4], i));
        if (rank.number == 0) {
            const std::uint64_t first = 1;
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &first, 8, 1, 0); }), 0); // they know each other
            for (unsigned i = 0; i < count; i++)
                ASSERT_EQ(fi_tsend(s.ep, out[i].data(), out[i].size(), nullptr, 1, 1, &out[i]), 0) << i;
            EXPECT_EQ(fi_tinject(s.ep, &first, 8, 1, 2), -FI_EAGAIN); // it could not be sent later
            rank.barrier();
            for (unsigned i = 0; i < count; i++) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.flags, FI_SEND | FI_TAGGED);
            }
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &first, 8, 1, 2); }), 0);
            rank.barrier();
            unsigned taken = 0;
            std::uint64_t word = 5;
            while (taken < 5000 && fi_tsend(s.ep, &word, 8, nullptr, 1, 3, nullptr) == 0)
                taken++;
            EXPECT_GE(taken, s.info->tx_attr->size);
            EXPECT_LT(taken, 5000u);
            rank.set(0, taken);
            rank.barrier();
            for (unsigned i = 0; i < taken; i++) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
            }
        } else {
            std::uint64_t in = 0;
            ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &in), 0);
            s.expect(&in, FI_RECV);
            rank.barrier();
            for (unsigned i = 0; i < count; i++) {
                std::vector<std::uint8_t> bytes(20000);
                ASSERT_EQ(fi_trecv(s.ep, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC, 1, 2, &bytes), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                ASSERT_EQ(entry.len, out[i].size()) << i;
                ASSERT_TRUE(std::equal(out[i].begin(), out[i].end(), bytes.begin())) << i;
            }
            ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 2, 0, &in), 0);
            s.expect(&in, FI_RECV);
            rank.barrier();
            rank.barrier();
            for (std::uint64_t i = rank.get(0); i > 0; i--) {
                ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 3, 0, &in), 0);
                s.expect(&in, FI_RECV);
            }
        }
    });
}

/// What was taken and can no longer be sent ends with an error, each send once.
TEST(Message, SendsThatWaitForADeadPeerFail)
{
    expect_processes(2, [](const Rank& rank) {
        Options options = message_options();
        options.leaves_together = false;
        Session s(rank, options);
        std::uint64_t word = rank.number;
        if (rank.number == 1) {
            ASSERT_EQ(fi_trecv(s.ep, &word, 8, nullptr, FI_ADDR_UNSPEC, 0, 0, &word), 0);
            s.expect(&word, FI_RECV);
            rank.barrier();
            rank.barrier();
            _exit(0);
        }
        ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &word, 8, 1, 0); }), 0);
        rank.barrier();
        constexpr unsigned count = 200;
        for (unsigned i = 0; i < count; i++)
            ASSERT_EQ(fi_tsend(s.ep, &word, 8, nullptr, 1, 1, &word), 0);
        rank.barrier();
        unsigned ended = 0, failed = 0;
        EXPECT_TRUE(sim::test::wait_until([&] {
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            const ssize_t got = fi_cq_read(s.cq, &entry, 1);
            if (got == -FI_EAVAIL && fi_cq_readerr(s.cq, &error, 0) == 1) {
                EXPECT_EQ(error.op_context, &word);
                EXPECT_NE(error.err, 0);
                failed++;
            }
            ended += got == 1;
            return ended + failed >= count;
        }));
        EXPECT_EQ(ended + failed, count);
        EXPECT_GT(failed, 0u);
        s.expect_silence();
    });
}

TEST(Message, ReceivesInReverseOrderOfTags)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, message_options());
        constexpr std::uint64_t count = 500;
        if (rank.number == 0) {
            for (std::uint64_t t = 0; t < count; t++)
                ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &t, sizeof t, 1, t); }), 0);
        } else {
            for (std::uint64_t t = count; t-- > 0;) {
                std::uint64_t in = ~t;
                ASSERT_EQ(fi_trecv(s.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, t, 0, &in), 0);
                s.expect(&in, FI_RECV | FI_TAGGED);
                ASSERT_EQ(in, t);
            }
        }
    });
}

TEST(Message, DirectedReceivesTakeOnlyTheirSource)
{
    expect_processes(3, [](const Rank& rank) {
        Session s(rank, message_options());
        if (rank.number != 0) {
            const std::uint64_t me = rank.number;
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &me, 8, 0, 5); }), 0);
        } else {
            std::uint64_t from[2] = {};
            for (std::uint64_t r = 2; r >= 1; r--) {
                ASSERT_EQ(fi_trecv(s.ep, &from[r - 1], 8, nullptr, r, 0, ~0ull, &from[r - 1]), 0);
                s.expect(&from[r - 1], FI_RECV);
                EXPECT_EQ(from[r - 1], r);
            }
        }
    });
}

TEST(Message, FlagsDataTruncationAndCancel)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, message_options());
        std::uint8_t bytes[6000] = {1, 2, 3};
        if (rank.number == 0) {
            ASSERT_EQ(s.post([&] { return fi_tsenddata(s.ep, bytes, 3, nullptr, ~7ull, 1, 1, &s); }), 0);
            s.expect(&s, FI_SEND);
            for (std::size_t size : {std::size_t{100}, std::size_t{3000}, std::size_t{6000}}) {
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, bytes, size, nullptr, 1, 2, &s); }), 0);
                s.expect(&s, FI_SEND);
            }
            fi_msg_tagged msg{};
            const iovec iov[2] = {{bytes, 2}, {bytes + 2, 1}};
            msg.msg_iov = iov;
            msg.iov_count = 2;
            msg.addr = 1;
            msg.tag = 3;
            msg.context = &msg;
            for (std::uint64_t level : {FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE}) {
                ASSERT_EQ(s.post([&] { return fi_tsendmsg(s.ep, &msg, level | FI_COMPLETION); }), 0);
                s.expect(&msg, FI_SEND | FI_TAGGED);
            }
            EXPECT_EQ(fi_tinject(s.ep, bytes, s.info->tx_attr->inject_size + 1, 1, 9), -FI_EMSGSIZE);
        } else {
            fi_cq_data_entry entry{};
            ASSERT_EQ(fi_trecv(s.ep, bytes, 3, nullptr, FI_ADDR_UNSPEC, 1, 0, bytes), 0);
            ASSERT_TRUE(s.next(entry));
            EXPECT_EQ(entry.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
            EXPECT_EQ(entry.data, ~7ull);
            for (std::size_t size : {std::size_t{100}, std::size_t{3000}, std::size_t{6000}}) {
                ASSERT_EQ(fi_trecv(s.ep, bytes, 10, nullptr, FI_ADDR_UNSPEC, 2, 0, bytes), 0);
                fi_cq_err_entry error{};
                ASSERT_TRUE(s.next(entry, &error));
                EXPECT_EQ(error.err, FI_ETRUNC);
                EXPECT_EQ(error.len, 10u);
                EXPECT_EQ(error.olen, size - 10);
            }
            ASSERT_EQ(fi_trecv(s.ep, bytes, 3, nullptr, FI_ADDR_UNSPEC, 77, 0, &s), 0);
            EXPECT_EQ(fi_cancel(&s.ep->fid, &s), 0);
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.err, FI_ECANCELED);
            EXPECT_EQ(error.op_context, &s);
            for (int i = 0; i < 3; i++) {
                std::uint8_t in[3] = {};
                ASSERT_EQ(fi_trecv(s.ep, in, 3, nullptr, FI_ADDR_UNSPEC, 3, 0, in), 0);
                s.expect(in, FI_RECV);
                EXPECT_EQ(in[1], 2);
            }
        }
    });
}

TEST(Message, MultiReceivePacksAndIsReleasedOnce)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, message_options());
        if (rank.number == 0) {
            for (std::uint64_t i = 0; i < 64; i++)
                ASSERT_EQ(s.post([&] { return fi_inject(s.ep, &i, 8, 1); }), 0);
        } else {
            std::size_t least = 8;
            ASSERT_EQ(fi_setopt(&s.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
            std::uint64_t buffers[2][32];
            for (auto& buffer : buffers) {
                const iovec iov{buffer, sizeof buffer};
                fi_msg msg{};
                msg.msg_iov = &iov;
                msg.iov_count = 1;
                msg.addr = FI_ADDR_UNSPEC;
                msg.context = buffer;
                ASSERT_EQ(fi_recvmsg(s.ep, &msg, FI_MULTI_RECV), 0);
            }
            for (std::uint64_t i = 0; i < 64; i++) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.op_context, buffers[i / 32]);
                EXPECT_EQ(entry.buf, &buffers[i / 32][i % 32]);
                EXPECT_EQ(buffers[i / 32][i % 32], i);
                EXPECT_EQ((entry.flags & FI_MULTI_RECV) != 0, i % 32 == 31);
            }
        }
    });
}

TEST(Message, ToOneself)
{
    expect_processes(1, [](const Rank& rank) {
        Session s(rank, message_options());
        for (std::size_t size : message_sizes) {
            auto out = message_pattern(size, 3);
            std::vector<std::uint8_t> in(size);
            ASSERT_EQ(fi_trecv(s.ep, in.data(), size, nullptr, 0, 1, 0, &in), 0);
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, out.data(), size, nullptr, 0, 1, &out); }), 0);
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
            ASSERT_TRUE(s.next(entry));
            EXPECT_EQ(in, out);
        }
    });
}

TEST(Message, AStormEndsInBackPressureAndNothingIsLost)
{
    expect_processes(4, [](const Rank& rank) {
        setenv("FI_TOFU_UNEXPECTED_BYTES", "65536", 1);
        Session s(rank, message_options());
        constexpr std::uint64_t count = 2000;
        if (rank.number != 0) {
            for (std::uint64_t i = 0; i < count; i++)
                ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &i, 8, 0, rank.number); }), 0);
        } else {
            for (int i = 0; i < 1000; i++)
                fi_cq_read(s.cq, nullptr, 0);
            std::uint64_t expected[4] = {};
            for (std::uint64_t i = 0; i < 3 * count; i++) {
                std::uint64_t in = ~0ull;
                ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 0, 3, &in), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                bool fits = false;
                for (unsigned r = 1; r < 4 && !fits; r++)
                    if (expected[r] == in) {
                        expected[r]++;
                        fits = true;
                    }
                ASSERT_TRUE(fits) << in;
            }
        }
    });
}

/// Rank 1 dies while rank 0 waits for it; ranks 0 and 2 go on. `size` chooses the protocol.
void lose_a_peer(std::size_t size)
{
    const auto exits = sim::test::run_processes(3, [size](const Rank& rank) {
        Session s(rank, message_options());
        std::vector<std::uint8_t> bytes(size);
        std::uint8_t word = 0;
        if (rank.number == 1) {
            // Known to both others before it dies.
            for (fi_addr_t to : {0, 2})
                ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &word, 1, to, 1); }), 0);
            rank.set(1000, 1);
            while (rank.get(1001) != 1 || rank.get(1002) != 1)
                fi_cq_read(s.cq, nullptr, 0);
            raise(SIGKILL);
        }
        ASSERT_EQ(fi_trecv(s.ep, &word, 1, nullptr, 1, 1, 0, &word), 0);
        s.expect(&word, FI_RECV);
        if (rank.number == 0) {
            // These are not received: the first waits for the completion word, and once the ring is full posts are
            // refused.
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, bytes.data(), size, nullptr, 1, 2, &bytes); }), 0);
            rank.set(1001, 1);
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            ASSERT_TRUE(s.next(entry, &error));
            EXPECT_EQ(error.op_context, &bytes);
            EXPECT_NE(error.err, 0);
            EXPECT_NE(s.post([&] { return fi_tsend(s.ep, &word, 1, nullptr, 1, 3, &word); }), 0);
        }
        if (rank.number == 2)
            rank.set(1002, 1);
        const unsigned other = 2 - rank.number;
        for (std::uint64_t i = 0; i < 100; i++) { // the living
            std::uint64_t in = ~i;
            ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, other, 10 + i, 0, &in), 0);
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &i, 8, other, 10 + i); }), 0);
            s.expect(&in, FI_RECV);
            EXPECT_EQ(in, i);
        }
        leave_without(s, 1);
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(WIFSIGNALED(exits[1].status));
    EXPECT_TRUE(exits[2].success()) << exits[2].errors;
}

TEST(Message, ARankKilledInARendezvousLeavesTheOthersWorking)
{
    lose_a_peer(1 << 20);
}

TEST(Message, AllToAllOfManyRanks)
{
    expect_processes(16, [](const Rank& rank) {
        Session s(rank, message_options());
        for (std::size_t size : {std::size_t{8}, std::size_t{2000}, std::size_t{50000}}) {
            std::vector<std::vector<std::uint8_t>> in(rank.size, std::vector<std::uint8_t>(size));
            std::vector<std::vector<std::uint8_t>> out;
            for (unsigned r = 0; r < rank.size; r++) {
                out.push_back(message_pattern(size, rank.number * 16 + r));
                ASSERT_EQ(fi_trecv(s.ep, in[r].data(), size, nullptr, r, size, 0, &in[r]), 0);
            }
            unsigned ended = 0, sent = 0;
            EXPECT_TRUE(sim::test::wait_until([&] {
                if (sent < rank.size) {
                    const unsigned to = (rank.number + sent) % rank.size;
                    sent += fi_tsend(s.ep, out[to].data(), size, nullptr, to, size, &out[to]) == 0;
                }
                fi_cq_data_entry entry;
                ended += fi_cq_read(s.cq, &entry, 1) == 1;
                return ended == 2 * rank.size;
            }));
            for (unsigned r = 0; r < rank.size; r++)
                EXPECT_EQ(in[r], message_pattern(size, r * 16 + rank.number)) << r;
        }
    });
}

} // namespace
} // namespace tofu::test
