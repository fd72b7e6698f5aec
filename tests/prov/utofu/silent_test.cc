// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A library that tells nothing of accesses to what is not registered, or no longer (issue of a second implementation):
// nothing waits for ever. The provider is linked in. Run by make check, over the simulator.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "av/address.h"
#include "msg/rx_ring.h"
#include "prov/lib/objects.h"
#include "prov/lib/silent.h"

namespace {

using namespace tofu::test;

struct Silent : testing::Test {
    Silent() : o(wishes(0)), cq(o.open_queue()), ep(o.add(cq, cq)) { fall_silent(std::chrono::milliseconds(60)); }
    ~Silent() override
    {
        silent = false;
        tofu::vcq::Vcq::lost_after = before;
    }
    static Wishes wishes(int mr_mode)
    {
        Wishes w;
        w.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
        w.mr_mode = mr_mode;
        return w;
    }
    fid_mr* open_region(Objects& of, std::uint64_t key)
    {
        fid_mr* mr = nullptr;
        Objects::must(
            fi_mr_reg(of.domain, target, sizeof target, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &mr, nullptr));
        return mr;
    }
    /// A call that is repeated until it is taken, and ends: by an error, or by success.
    template <class Call>
    void ends(const char* what, bool well, Call&& call)
    {
        SCOPED_TRACE(what);
        Objects::post(cq, call);
        fi_cq_tagged_entry entry{};
        ssize_t got = -FI_EAGAIN;
        ASSERT_TRUE(eventually([&] { return got = fi_cq_read(cq, &entry, 1), got != -FI_EAGAIN; }));
        EXPECT_EQ(got, well ? 1 : -FI_EAVAIL);
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            EXPECT_EQ(fi_cq_readerr(cq, &error, 0), 1);
            EXPECT_NE(error.err, 0);
        }
    }
    void all_end(bool well, fi_addr_t peer, std::uint64_t key)
    {
        ends("write", well, [&] { return fi_write(ep, local, 4096, nullptr, peer, 0, key, nullptr); });
        ends("short write", well, [&] { return fi_write(ep, local, 8, nullptr, peer, 0, key, nullptr); });
        ends("read", well, [&] { return fi_read(ep, local, 4096, nullptr, peer, 0, key, nullptr); });
        ends("short read", well, [&] { return fi_read(ep, local, 8, nullptr, peer, 0, key, nullptr); });
        ends("atomic", well,
             [&] { return fi_atomic(ep, local, 1, nullptr, peer, 0, key, FI_UINT64, FI_SUM, nullptr); });
        ends("loop", well, [&] {
            return fi_fetch_atomic(ep, local, 1, nullptr, local + 8, nullptr, peer, 0, key, FI_UINT64, FI_MIN, nullptr);
        });
    }

    std::chrono::milliseconds before = tofu::vcq::Vcq::lost_after;
    Objects o;
    fid_cq* cq;
    fid_ep* ep;
    alignas(8) char local[4096] = {};
    alignas(8) char target[4096] = {};
};

TEST_F(Silent, AccessToARegionThatIsGone)
{
    fid_mr* const other = open_region(o, 8);
    fid_mr* const gone = open_region(o, 7);
    all_end(true, 0, 7); // the key is known from now on
    Objects::must(fi_close(&gone->fid));
    all_end(false, 0, 7);
    all_end(true, 0, 8);
    EXPECT_EQ(fi_close(&other->fid), 0);
}

TEST_F(Silent, AKeyOfADomainThatIsGone)
{
    {
        Objects theirs(wishes(0));
        fid_cq* const their_cq = theirs.open_queue();
        char name[64];
        std::size_t length = sizeof name;
        Objects::must(fi_getname(&theirs.add(their_cq, their_cq)->fid, name, &length));
        ASSERT_EQ(fi_av_insert(o.av, name, 1, nullptr, 0, nullptr), 1);
    }
    all_end(false, 1, 7);
    fid_mr* const region = open_region(o, 8);
    all_end(true, 0, 8);
    EXPECT_EQ(fi_close(&region->fid), 0);
}

/// An operation that was executed without a report is not repeated.
TEST_F(Silent, AnUnreportedOperationIsNotRepeated)
{
    fid_mr* const region = open_region(o, 7);
    auto& word = reinterpret_cast<std::uint64_t&>(target);
    const std::uint64_t one = 1;
    std::uint64_t before_it = 0, count = 0;
    const auto add = [&] { return fi_atomic(ep, &one, 1, nullptr, 0, 0, 7, FI_UINT64, FI_SUM, nullptr); };
    const auto fetch_add = [&] {
        return fi_fetch_atomic(ep, &one, 1, nullptr, &before_it, nullptr, 0, 0, 7, FI_UINT64, FI_SUM, nullptr);
    };
    ends("key", true, add);
    EXPECT_EQ(word, ++count);
    for (int round = 0; round < 2; round++) {
        deaf = true;
        Objects::post(cq, add);
        Objects::post(cq, fetch_add);
        for (int i = 0; i < 2; i++) {
            fi_cq_tagged_entry entry{};
            ssize_t got = -FI_EAGAIN;
            ASSERT_TRUE(eventually([&] { return got = fi_cq_read(cq, &entry, 1), got != -FI_EAGAIN; }));
            ASSERT_EQ(got, -FI_EAVAIL);
            fi_cq_err_entry error{};
            ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
            EXPECT_EQ(error.err, FI_ETIMEDOUT);
            EXPECT_NE(std::strstr(fi_cq_strerror(cq, error.prov_errno, nullptr, nullptr, 0), "may still"), nullptr);
        }
        deaf = false;
        EXPECT_EQ(word, count += 2);
        ends("afterwards", true, fetch_add);
        EXPECT_EQ(word, ++count);
    }
    EXPECT_EQ(fi_close(&region->fid), 0);
}

/// Two domains of this process, whose endpoints know each other; the second one may go.
struct SilentPeer : Silent {
    SilentPeer()
    {
        open_theirs();
        to_them = insert(o.av, name_of(their_ep));
        tofu::proto::TxRings::absent_limit_ms = 1000;
    }
    ~SilentPeer() override
    {
        tofu::proto::TxRings::absent_limit_ms = absent_limit_before;
        if (theirs)
            close_theirs();
    }
    static std::string name_of(fid_ep* ep)
    {
        char name[64];
        std::size_t length = sizeof name;
        Objects::must(fi_getname(&ep->fid, name, &length));
        return {name, length};
    }
    /// Of the endpoint that they will open next: indices and incarnations are given in turn.
    [[nodiscard]] std::string name_of_next() const
    {
        std::string name = name_of(their_ep);
        auto& address = reinterpret_cast<tofu::EndpointAddress&>(name[0]);
        address.index++;
        address.nonce += std::uint64_t{1} << tofu::domain_nonce_bits;
        return name;
    }
    static fi_addr_t insert(fid_av* av, const std::string& name)
    {
        fi_addr_t address = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(av, name.data(), 1, &address, 0, nullptr), 1);
        return address;
    }
    void open_theirs()
    {
        theirs = std::make_unique<Objects>(wishes(0));
        their_cq = theirs->open_queue();
        their_ep = theirs->add(their_cq, their_cq);
        to_us = insert(theirs->av, name_of(ep));
    }
    void close_theirs() { theirs.reset(); }
    void open_theirs_again()
    {
        open_theirs();
        to_them = insert(o.av, name_of(their_ep));
    }
    /// What is read next of a queue, while the other one makes progress too; FI_E* or 0.
    static int next(fid_cq* of, fid_cq* other)
    {
        fi_cq_tagged_entry entry{};
        ssize_t got = -FI_EAGAIN;
        EXPECT_TRUE(eventually([&] {
            if (other != nullptr)
                (void)fi_cq_read(other, nullptr, 0);
            return got = fi_cq_read(of, &entry, 1), got != -FI_EAGAIN;
        })) << "it does not end";
        if (got != -FI_EAVAIL)
            return got == 1 ? 0 : -1;
        fi_cq_err_entry error{};
        EXPECT_EQ(fi_cq_readerr(of, &error, 0), 1);
        return error.err;
    }
    void send(fid_ep* from, fid_cq* from_cq, fi_addr_t to, std::size_t size)
    {
        Objects::post(from_cq, [&] { return fi_tsend(from, bytes.data(), size, nullptr, to, 5, nullptr); });
    }
    void receive(fid_ep* at, std::size_t size)
    {
        Objects::must(static_cast<int>(fi_trecv(at, room.data(), size, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr)));
    }
    void await_failures(unsigned more)
    {
        const unsigned before = failures;
        EXPECT_TRUE(eventually([&] {
            (void)fi_cq_read(cq, nullptr, 0);
            (void)fi_cq_read(their_cq, nullptr, 0);
            return failures >= before + more;
        })) << "it is tried once only";
    }
    /// Messages both ways, of a kind that goes through a ring and of one that is fetched.
    void talk()
    {
        for (const std::size_t size : {std::size_t{8}, large}) {
            receive(their_ep, size);
            send(ep, cq, to_them, size);
            EXPECT_EQ(next(their_cq, cq), 0);
            EXPECT_EQ(next(cq, their_cq), 0);
            receive(ep, size);
            send(their_ep, their_cq, to_us, size);
            EXPECT_EQ(next(cq, their_cq), 0);
            EXPECT_EQ(next(their_cq, cq), 0);
        }
    }

    static constexpr std::size_t large = 1 << 20;
    std::uint64_t absent_limit_before = tofu::proto::TxRings::absent_limit_ms;
    std::unique_ptr<Objects> theirs;
    fid_cq* their_cq = nullptr;
    fid_ep* their_ep = nullptr;
    fi_addr_t to_us = 0, to_them = 0;
    std::vector<char> bytes = std::vector<char>(large, 'b'), room = std::vector<char>(large);
};

/// Its STags are not there for a time, and the first word that goes to it is an ARMW. It is waited for, as long as it
/// takes, whether that is reported or not.
TEST_F(SilentPeer, AnEndpointThatIsEnabledLater)
{
    tofu::proto::TxRings::absent_limit_ms = absent_limit_before;
    for (const bool told : {false, true}) {
        SCOPED_TRACE(told);
        fall_silent(std::chrono::milliseconds(60));
        silent = !told;
        const std::string next_one = name_of_next();
        send(ep, cq, insert(o.av, next_one), 8);
        await_failures(told ? 100 : 3); // reported at once, it is asked again at the clock's next tick, of 1 to 4 ms
        their_ep = theirs->add(their_cq, their_cq);
        ASSERT_EQ(name_of(their_ep), next_one);
        receive(their_ep, 8);
        EXPECT_EQ(next(their_cq, cq), 0);
        EXPECT_EQ(next(cq, their_cq), 0);
    }
}

TEST_F(SilentPeer, AnEndpointThatIsNeverEnabled)
{
    send(ep, cq, insert(o.av, name_of_next()), 8);
    EXPECT_EQ(next(cq, their_cq), FI_ETIMEDOUT);
}

/// The peer has granted slots of which we get no notice, and which stay unfilled.
TEST_F(SilentPeer, AnAnswerToTheFirstWordThatDoesNotCome)
{
    deaf = true;
    send(ep, cq, to_them, 8);
    await_failures(3);
    deaf = false;
    receive(their_ep, 8);
    EXPECT_EQ(next(their_cq, cq), 0);
    EXPECT_EQ(next(cq, their_cq), 0);
    talk();
}

/// The owner waits for the reader of a key before it opens another region. Its other threads do not.
TEST_F(SilentPeer, AReaderThatDoesNotAnswerHoldsUpOneCallAlone)
{
    fall_silent(std::chrono::milliseconds(600));
    fid_mr* const read = open_region(o, 7);
    fid_mr* const spare = open_region(o, 8);
    Objects::post(their_cq, [&] { return fi_write(their_ep, local, 8, nullptr, to_us, 0, 7, nullptr); });
    EXPECT_EQ(next(their_cq, cq), 0);
    EXPECT_EQ(fi_close(&read->fid), 0);
    deaf = true;
    std::atomic<bool> opened{false};
    std::thread opens([&] {
        EXPECT_EQ(fi_close(&open_region(o, 9)->fid), 0);
        opened = true;
    });
    const unsigned before = failures;
    EXPECT_TRUE(eventually([&] { return failures != before; })); // it has been asked
    fid_mr* own = nullptr;
    EXPECT_EQ(fi_mr_reg(o.domain, local, sizeof local, FI_SEND | FI_RECV, 0, 10, 0, &own, nullptr), 0);
    EXPECT_EQ(fi_mr_reg(o.domain, local, sizeof local, FI_SEND | FI_RECV, 0, 9, 0, &own, nullptr), -FI_ENOKEY);
    EXPECT_EQ(fi_close(&own->fid), 0);
    EXPECT_EQ(fi_close(&spare->fid), 0);
    EXPECT_FALSE(opened);
    opens.join();
    deaf = false;
    EXPECT_TRUE(opened);
}

TEST_F(SilentPeer, ASenderThatIsGoneBeforeItsMessageIsFetched)
{
    talk();
    send(their_ep, their_cq, to_us, large);
    close_theirs();
    receive(ep, large);
    EXPECT_NE(next(cq, nullptr), 0);
    open_theirs_again();
    talk();
}

TEST_F(SilentPeer, AReceiverThatIsGoneBeforeItFetches)
{
    talk();
    send(ep, cq, to_them, large);
    close_theirs();
    EXPECT_NE(next(cq, nullptr), 0);
    open_theirs_again();
    talk();
}

TEST_F(SilentPeer, AReceiverThatIsGoneWhileItsRingIsFilled)
{
    talk();
    close_theirs();
    ssize_t ret = 0;
    EXPECT_TRUE(eventually([&] {
        (void)fi_cq_read(cq, nullptr, 0);
        ret = fi_tinject(ep, bytes.data(), 8, to_them, 5);
        return ret != 0 && ret != -FI_EAGAIN;
    })) << "the sender waits for room for ever";
    open_theirs_again();
    talk();
}

TEST_F(SilentPeer, ASenderThatIsGoneBeforeItHearsWhatWasTaken)
{
    constexpr int messages = 40; // more than are taken out of a ring before the sender gets credit
    talk();
    for (int i = 0; i < messages; i++)
        Objects::post(their_cq, [&] { return fi_tinject(their_ep, bytes.data(), 8, to_us, 5); });
    close_theirs();
    for (int i = 0; i < messages; i++)
        receive(ep, 8);
    for (int i = 0; i < messages; i++)
        EXPECT_EQ(next(cq, nullptr), 0);
    open_theirs_again();
    talk();
}

} // namespace
