// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The limits of messages at their ends and beyond: rings of every legal size on one side and on both, headers that lie,
// messages and receives by the hundred thousand, memory that ends, a sender that has gone before its rendezvous is
// received.
#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "prov/lib/raw.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;
using sim::test::wait_until;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool plain_memory = false; ///< their shadow and quarantine count as well
#else
constexpr bool plain_memory = true;
#endif

std::vector<std::uint8_t> pattern(std::size_t size, unsigned seed)
{
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t i = 0; i < size; i++)
        bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251 + seed);
    return bytes;
}

/// Each rank sends a message of each size to the other; each arrives as it was sent.
void exchange(Session& s, unsigned slots)
{
    const std::size_t quarter = slots / 4 * proto::slot_size;
    const std::size_t sizes[] = {0,       1,           24,   25,   192,  240,  241,   249,   1024,  1025,
                                 quarter, quarter + 1, 4096, 4097, 8192, 8193, 65535, 65536, 65537, 100000};
    const unsigned peer = 1 - s.rank.number;
    for (const std::size_t size : sizes) {
        const auto out = pattern(size, s.rank.number), expected = pattern(size, peer);
        std::vector<std::uint8_t> in(size + 8, 0xee);
        ASSERT_EQ(fi_trecv(s.ep, in.data(), size, nullptr, peer, size, 0, &in), 0);
        const bool inject = size <= s.info->tx_attr->inject_size;
        ASSERT_EQ(s.post([&] {
            return inject ? fi_tinject(s.ep, out.data(), size, peer, size)
                          : fi_tsend(s.ep, out.data(), size, nullptr, peer, size, &in);
        }),
                  0);
        for (int n = inject ? 1 : 2; n > 0; n--) {
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry)) << size;
            if (entry.flags & FI_RECV)
                EXPECT_EQ(entry.len, size);
        }
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), in.begin())) << size;
        ASSERT_EQ(in[size], 0xee) << size;
    }
}

TEST(Limits, RingsOfEverySizeCarryEveryProtocol)
{
    const struct {
        const char *rings[2], *slots[2];
    } pairs[] = {{{"512", "512"}, {"16", "16"}},   {{"1", "65536"}, {"4096", "16"}}, {{"2", "2"}, {"64", "256"}},
                 {{"512", "1"}, {"4096", "4096"}}, {{"2", "512"}, {"512", "64"}},    {{"65536", "2"}, {"4096", "64"}}};
    for (const auto& pair : pairs)
        expect_processes(2, [&](const Rank& rank) {
            setenv("FI_TOFU_RINGS", pair.rings[rank.number], 1);
            setenv("FI_TOFU_RING_SLOTS", pair.slots[rank.number], 1);
            Session s(rank, many_options());
            for (const char* slots : pair.slots)
                exchange(s, static_cast<unsigned>(std::atoi(slots)));
        });
}

/// One ring is registered at first, the others when that one is taken: each sender has its own in the end.
/// Each call, with a buffer of null that has a length, alone and behind a good one (`some`).
void refuse_null_buffers(Session& s, char (&some)[8])
{
    for (std::size_t length : {1, 8, 100, 192, 1000, 4096, 20000, 1 << 20}) {
        iovec iov[2] = {{some, sizeof(some)}, {nullptr, length}};
        fi_msg msg{iov, nullptr, 2, 0, &s, 0};
        fi_msg_tagged tagged{iov, nullptr, 2, 0, 1, 0, &s, 0};
        EXPECT_EQ(fi_send(s.ep, nullptr, length, nullptr, 0, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_tsend(s.ep, nullptr, length, nullptr, 0, 1, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_senddata(s.ep, nullptr, length, nullptr, 7, 0, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_tsenddata(s.ep, nullptr, length, nullptr, 7, 0, 1, &s), -FI_EINVAL) << length;
        const int inject = length > s.info->tx_attr->inject_size ? -FI_EMSGSIZE : -FI_EINVAL;
        EXPECT_EQ(fi_inject(s.ep, nullptr, length, 0), inject) << length;
        EXPECT_EQ(fi_tinject(s.ep, nullptr, length, 0, 1), inject) << length;
        EXPECT_EQ(fi_injectdata(s.ep, nullptr, length, 7, 0), inject) << length;
        EXPECT_EQ(fi_tinjectdata(s.ep, nullptr, length, 7, 0, 1), inject) << length;
        EXPECT_EQ(fi_sendv(s.ep, iov, nullptr, 2, 0, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_tsendv(s.ep, iov, nullptr, 2, 0, 1, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_sendmsg(s.ep, &msg, 0), -FI_EINVAL) << length;
        EXPECT_EQ(fi_tsendmsg(s.ep, &tagged, 0), -FI_EINVAL) << length;
        EXPECT_EQ(fi_recv(s.ep, nullptr, length, nullptr, 0, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_trecv(s.ep, nullptr, length, nullptr, 0, 1, 0, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_recvv(s.ep, iov, nullptr, 2, 0, &s), -FI_EINVAL) << length;
        EXPECT_EQ(fi_trecvv(s.ep, iov, nullptr, 2, 0, 1, 0, &s), -FI_EINVAL) << length;
        for (std::uint64_t flags : std::initializer_list<std::uint64_t>{0, FI_MULTI_RECV})
            EXPECT_EQ(fi_recvmsg(s.ep, &msg, flags), -FI_EINVAL) << length;
        EXPECT_EQ(fi_trecvmsg(s.ep, &tagged, 0), -FI_EINVAL) << length;
        // fi_tagged(3): a look at what has come uses no buffer.
        EXPECT_EQ(fi_trecvmsg(s.ep, &tagged, FI_PEEK), 0) << length;
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        ASSERT_TRUE(s.next(entry, &error));
        EXPECT_EQ(error.err, FI_ENOMSG);
    }
}

/// As for RMA and atomics (rma/refusal_test.cc): nothing behind the call would notice before it copies.
TEST(Limits, ANullBufferWithALengthIsRefusedByEveryCall)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_MSG | FI_TAGGED;
        Session s(rank, options);
        char some[8] = {};
        refuse_null_buffers(s, some);
        EXPECT_EQ(fi_sendmsg(s.ep, nullptr, 0), -FI_EINVAL);
        EXPECT_EQ(fi_tsendmsg(s.ep, nullptr, 0), -FI_EINVAL);
        EXPECT_EQ(fi_recvmsg(s.ep, nullptr, 0), -FI_EINVAL);
        EXPECT_EQ(fi_trecvmsg(s.ep, nullptr, 0), -FI_EINVAL);
        // Flags that ask for what is not offered.
        const iovec one{some, sizeof(some)};
        const fi_msg msg{&one, nullptr, 1, 0, &s, 0};
        const fi_msg_tagged tagged{&one, nullptr, 1, 0, 1, 0, &s, 0};
        for (const std::uint64_t flag : std::initializer_list<std::uint64_t>{FI_COMMIT_COMPLETE, FI_MULTICAST, FI_RMA,
                                                                             FI_ATOMIC, std::uint64_t{1} << 63}) {
            EXPECT_EQ(fi_sendmsg(s.ep, &msg, flag), -FI_EBADFLAGS) << flag;
            EXPECT_EQ(fi_tsendmsg(s.ep, &tagged, flag), -FI_EBADFLAGS) << flag;
            EXPECT_EQ(fi_recvmsg(s.ep, &msg, flag), -FI_EBADFLAGS) << flag;
            EXPECT_EQ(fi_trecvmsg(s.ep, &tagged, flag), -FI_EBADFLAGS) << flag;
        }
        // With a ring the sender has other ways. An empty message needs no buffer, here as there.
        for (int i = 0; i < 4; i++) {
            ASSERT_EQ(s.post([&] { return fi_trecv(s.ep, nullptr, 0, nullptr, 0, 1, 0, &s); }), 0);
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, nullptr, 0, nullptr, 0, 1, &s); }), 0);
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
            ASSERT_TRUE(s.next(entry));
        }
        refuse_null_buffers(s, some);
        s.expect_silence();
    });
}

TEST(Limits, RingsRegisteredLateCarryMessagesToo)
{
    constexpr unsigned senders = 4, messages = 100;
    expect_processes(1 + senders, [](const Rank& rank) {
        setenv("FI_TOFU_RINGS", "4", 1);
        setenv("FI_TOFU_RING_SLOTS", "4096", 1);
        Session s(rank, many_options());
        if (rank.number != 0) {
            for (unsigned i = 0; i < messages; i++) {
                const auto out = pattern(100, i);
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, out.data(), out.size(), nullptr, 0, i, &s); }), 0);
                s.expect(&s, FI_SEND);
            }
            s.barrier();
            return;
        }
        std::vector<std::uint8_t> in(100);
        for (unsigned i = 0; i < messages * senders; i++) {
            in.assign(100, 0);
            ASSERT_EQ(fi_trecv(s.ep, in.data(), in.size(), nullptr, 1 + i % senders, i / senders, 0, &in), 0);
            s.expect(&in, FI_RECV);
            ASSERT_EQ(in, pattern(100, i / senders));
        }
        s.barrier();
    });
}

TEST(Limits, RingsBeyondTheirRangeAreRefusedWithALine)
{
    setenv("FI_LOG_LEVEL", "warn", 1);
    const char* refused[][2] = {{"0", "64"},     {"65537", "64"},      {"4294967297", "64"}, {"-1", "64"},
                                {"many", "64"},  {"512", "0"},         {"512", "8"},         {"512", "48"},
                                {"512", "8192"}, {"512", "4294967360"}};
    for (const auto& values : refused) {
        const auto exits = run_processes(1, [&](const Rank& rank) {
            setenv("FI_TOFU_RINGS", values[0], 1);
            setenv("FI_TOFU_RING_SLOTS", values[1], 1);
            Session s(rank, many_options()); // ends the process
        });
        EXPECT_FALSE(exits[0].success()) << values[0] << " " << values[1];
        EXPECT_TRUE(exits[0].errors.find("use a ") != std::string::npos) << exits[0].errors;
    }
    unsetenv("FI_LOG_LEVEL");
}

/// Rank 0 grants a ring at `first` of so many slots; it has 64. Rank 1 believes what can be, and is not harmed.
void meet_a_liar(std::uint32_t first, std::uint32_t slots, bool possible)
{
    const auto exits = run_processes(2, [=](const Rank& rank) {
        Session s(rank, many_options());
        const auto near = pattern(4000, 1), far = pattern(100000, 2);
        if (rank.number == 0) {
            RawPeer self(s, 0), other(s, 1);
            ASSERT_TRUE(sim::test::wait_until([&] { return rank.get(1000) == 1; }));
            proto::Envelope asks{}; // the fifth anonymous packet
            self.get(proto::anon_slots_offset + 5 * proto::slot_size - sizeof(proto::Control) - sizeof asks, &asks,
                     sizeof asks);
            ASSERT_LT(asks.credit_index, proto::credit_block_count);
            proto::CreditBlock said{}; // the truth, which clears the ring
            ASSERT_TRUE(sim::test::wait_until([&] {
                (void)fi_cq_read(s.cq, nullptr, 0);
                other.get(proto::credit_offset(asks.credit_index), &said, sizeof said);
                return said.check == asks.serial && said.status == proto::LeaseStatus::granted;
            }));
            const proto::CreditBlock lie{proto::Grant{first, slots}.word(), proto::LeaseStatus::granted, asks.serial};
            other.put(proto::credit_offset(asks.credit_index), &lie, sizeof lie);
            rank.set(1001, 1);
            if (possible) {
                std::vector<std::uint8_t> in(100000);
                ASSERT_EQ(fi_trecv(s.ep, in.data(), in.size(), nullptr, 1, 2, 0, &in), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.len, in.size());
                EXPECT_EQ(in, far);
            }
            return;
        }
        for (unsigned n = 0; n < 5; n++)
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &n, 4, 0, 9); }), 0);
        rank.set(1000, 1);
        ASSERT_TRUE(sim::test::wait_until([&] { return rank.get(1001) == 1; }));
        if (!possible) {
            EXPECT_EQ(s.post([&] { return fi_tsend(s.ep, near.data(), near.size(), nullptr, 0, 1, &s); }), -FI_EIO);
            return;
        }
        // The first makes a block, of 8 KiB, which what is longer must not find.
        ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, near.data(), near.size(), nullptr, 0, 1, &s); }), 0);
        ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, far.data(), far.size(), nullptr, 0, 2, &s); }), 0);
        fi_cq_data_entry entry{};
        ASSERT_TRUE(s.next(entry));
        ASSERT_TRUE(s.next(entry));
    });
    for (const auto& exit : exits)
        EXPECT_TRUE(exit.success()) << exit.errors; // and a line for an impossible value
    EXPECT_EQ(exits[1].errors.find("invalid ring grant") != std::string::npos, !possible) << exits[1].errors;
}

TEST(Limits, AGrantThatLiesDecidesNothingOfTheSendersOwn)
{
    setenv("FI_LOG_LEVEL", "warn", 1);
    const auto first = static_cast<std::uint32_t>(proto::Geometry{512, 64, 1024}.rings() / proto::slot_size);
    meet_a_liar(first, 4096, true); // it begins where the real one does
    for (const auto& [at, slots] : {std::pair{0u, 64u}, {first, 0u}, {first, 48u}, {first, 8192u}, {~0u, ~0u}})
        meet_a_liar(at, slots, false);
    unsetenv("FI_LOG_LEVEL");
}

std::size_t pages_of(unsigned field)
{
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    unsigned long n[2] = {};
    EXPECT_EQ(std::fscanf(file, "%lu %lu", &n[0], &n[1]), 2);
    std::fclose(file);
    return n[field] * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
std::size_t address_space()
{
    return pages_of(0);
}
std::size_t resident_bytes()
{
    return pages_of(1);
}

constexpr std::uint64_t awaited = 7; ///< tag

/// More than 64 MiB held at 632 bytes each, and then the one that is awaited first.
TEST(Limits, AMessageBehindManyUnexpectedOnesIsReceived)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, many_options());
        constexpr std::uint64_t count = 120000;
        if (rank.number == 1) {
            for (std::uint64_t i = 0; i <= count; i++)
                ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &i, 8, 0, i == count ? awaited : 1); }), 0);
            return;
        }
        const std::size_t before = resident_bytes();
        std::uint64_t in = 0;
        ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, 1, awaited, 0, &in), 0);
        s.expect(&in, FI_RECV);
        EXPECT_EQ(in, count);
        if (plain_memory)
            EXPECT_LT((resident_bytes() - before) / count, 200u) << "bytes a message of 8";
        for (std::uint64_t i = 0; i < count; i++) {
            ASSERT_EQ(fi_trecv(s.ep, &in, 8, nullptr, i % 2 ? 1 : FI_ADDR_UNSPEC, 1, 0, &in), 0);
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
            ASSERT_EQ(in, i);
        }
    });
}

TEST(Limits, MoreReceivesThanTheQueueIsSaidToHoldArePosted)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, many_options());
        constexpr std::uint64_t count = 70000;
        ASSERT_GT(count, s.info->rx_attr->size);
        std::vector<std::uint64_t> in(count, ~std::uint64_t{0});
        if (rank.number == 0) {
            const std::size_t before = resident_bytes();
            for (std::uint64_t i = 0; i < count; i++)
                ASSERT_EQ(fi_trecv(s.ep, &in[i], 8, nullptr, 1, i, 0, &in[i]), 0) << i;
            if (plain_memory)
                EXPECT_LT((resident_bytes() - before) / count, 200u) << "bytes a receive";
            s.barrier();
            for (std::uint64_t i = 0; i < count; i++) {
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
            }
            for (std::uint64_t i = 0; i < count; i++)
                ASSERT_EQ(in[i], i);
            return;
        }
        s.barrier();
        for (std::uint64_t i = count; i-- > 0;)
            ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &i, 8, 0, i); }), 0);
    });
}

/// The ring stands while there is no memory, and goes on when there is; receives are refused clearly.
TEST(Limits, WithoutMemoryNothingIsLost)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers end a process that has no memory";
#endif
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, many_options());
        constexpr std::uint64_t count = 1000;
        constexpr std::size_t size = 192;
        std::uint8_t bytes[size] = {};
        if (rank.number == 1) {
            unsigned refused = 0;
            for (std::uint64_t i = 0; i < count; i++) {
                std::memcpy(bytes, &i, sizeof i);
                ASSERT_TRUE(wait_until([&] {
                    if (i != 0 && rank.get(1001) == 0)
                        return false;
                    const ssize_t ret = fi_tinject(s.ep, bytes, size, 0, 1);
                    if (ret == -FI_EAGAIN && ++refused == 2000)
                        rank.set(1000, 1); // held back
                    fi_cq_read(s.cq, nullptr, 0);
                    return ret == 0;
                })) << i;
            }
            return;
        }
        // The way of everything is trodden once before.
        ASSERT_EQ(fi_trecv(s.ep, bytes, size, nullptr, 1, 1, 0, &s), 0);
        s.expect(&s, FI_RECV);
        const rlimit little{address_space() + (4 << 20), RLIM_INFINITY}, all{RLIM_INFINITY, RLIM_INFINITY};
        ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
        std::uint64_t posted = 0;
        ssize_t ret = 0;
        while (posted < 1000000 && (ret = fi_trecv(s.ep, bytes, size, nullptr, 1, 2, 0, bytes)) == 0)
            posted++;
        rank.set(1001, 1);
        const bool stood = wait_until([&] {
            fi_cq_read(s.cq, nullptr, 0);
            return rank.get(1000) == 1;
        });
        ASSERT_EQ(setrlimit(RLIMIT_AS, &all), 0);
        EXPECT_TRUE(stood) << "nothing held the sender back";
        EXPECT_EQ(ret, -FI_ENOMEM) << posted;
        for (std::uint64_t i = 1; i < count; i++) {
            ASSERT_EQ(fi_trecv(s.ep, bytes, size, nullptr, 1, 1, 0, bytes), 0);
            fi_cq_data_entry entry{};
            ASSERT_TRUE(s.next(entry));
            std::uint64_t number;
            std::memcpy(&number, bytes, sizeof number);
            ASSERT_EQ(number, i);
        }
    });
}

/// What a rendezvous that was kept names may be another's by the time that it is received: here the completion word, as
/// if the VCQ ID and the steering tags had come to another endpoint. The receive ends with an error, and no word is
/// changed.
TEST(Limits, ARendezvousWhoseSenderHasGoneIsNotReceived)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, many_options());
        const auto bytes = pattern(100000, 3);
        if (rank.number == 1) {
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, bytes.data(), bytes.size(), nullptr, 0, 1, &s); }), 0);
            s.barrier();
            s.barrier();
            return; // closes with the send under way
        }
        s.barrier();
        std::uint64_t none = 0;
        ASSERT_TRUE(wait_until([&] { // it is there
            EXPECT_EQ(fi_trecvmsg(
                          s.ep,
                          [] {
                              static fi_msg_tagged msg{};
                              msg.addr = FI_ADDR_UNSPEC;
                              msg.tag = 1;
                              return &msg;
                          }(),
                          FI_PEEK),
                      0);
            fi_cq_data_entry entry{};
            fi_cq_err_entry error{};
            if (fi_cq_read(s.cq, &entry, 1) == 1)
                return true;
            EXPECT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
            return false;
        }));
        RawPeer raw(s, 1);
        for (unsigned i = 0; i < proto::completion_count; i++)
            raw.put(proto::completion_offset(i), &none, sizeof none);
        std::vector<std::uint8_t> in(bytes.size(), 0xee);
        ASSERT_EQ(fi_trecv(s.ep, in.data(), in.size(), nullptr, 1, 1, 0, &in), 0);
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        EXPECT_TRUE(s.next(entry, &error));
        EXPECT_EQ(error.err, FI_EHOSTDOWN);
        EXPECT_EQ(error.op_context, &in);
        for (unsigned i = 0; i < proto::completion_count; i++) {
            std::uint64_t word = 1;
            raw.get(proto::completion_offset(i), &word, sizeof word);
            ASSERT_EQ(word, 0u) << i;
        }
        s.barrier();
    });
}

/// Its address answers no more, or another's does.
TEST(Limits, ARendezvousOfAnEndpointThatWasClosedIsNotRead)
{
    expect_processes(2, [](const Rank& rank) {
        Options options = many_options();
        options.leaves_together = false;
        const auto bytes = pattern(100000, 4);
        if (rank.number == 1) {
            {
                Session s(rank, options);
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, bytes.data(), bytes.size(), nullptr, 0, 1, &s); }), 0);
                s.barrier();
            }
            rank.barrier();
            rank.barrier();
            return;
        }
        Session s(rank, options);
        s.barrier();
        rank.barrier();
        std::vector<std::uint8_t> in(bytes.size(), 0xee);
        ASSERT_EQ(fi_trecv(s.ep, in.data(), in.size(), nullptr, 1, 1, 0, &in), 0);
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        EXPECT_TRUE(s.next(entry, &error));
        EXPECT_NE(error.err, 0);
        EXPECT_EQ(in, std::vector<std::uint8_t>(in.size(), 0xee)) << "read from a peer";
        rank.barrier();
    });
}

} // namespace
} // namespace tofu::test
