// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Keys as an initiator sees them: buckets whole and torn, lookups over a scripted library, stale keys, overflow VCQs
// and peers that give false answers. Run by make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <rdma/fi_errno.h>

#include "av/peer_table.h"
#include "mem/mr_directory.h"
#include "prov/lib/gets.h"
#include "tx/remote_memory.h"

namespace {

using namespace tofu;
using directory::Bucket;
using directory::Entry;
using directory::Found;

constexpr std::uint64_t nonce = 0xfeedface;
constexpr utofu_vcq_id_t no_vcq = 0xbad;

Entry entry_of(std::uint64_t key, std::uint16_t rights = directory::right_read | directory::right_write,
               std::uint16_t target_vcq = 0)
{
    Entry e{key, 0x1000 + key * 0x100000, 0x2000, 4096, rights, target_vcq, 1, 0};
    e.check = directory::check_of(e, nonce);
    return e;
}

Bucket bucket_of(std::uint64_t next = 0, std::uint32_t log2 = 0)
{
    Bucket b{};
    b.next_stadd = next;
    b.next_log2 = log2;
    b.next_check = directory::check_of(next, log2, nonce);
    return b;
}

TEST(Directory, FindsItsEntryAndNoOther)
{
    Bucket b = bucket_of();
    for (unsigned i = 0; i < Bucket::entries; i++)
        b.entry[i] = entry_of(10 + i);
    Entry e{};
    ASSERT_EQ(directory::find(b, 13, nonce, e), Found::entry);
    EXPECT_EQ(e.stadd_offset, entry_of(13).stadd_offset);
    EXPECT_EQ(directory::find(b, 99, nonce, e), Found::absent);
    EXPECT_EQ(directory::find(b, 0, nonce, e), Found::absent); // an empty entry is not key 0
}

TEST(Directory, EveryFlippedBitIsSeen)
{
    for (std::size_t bit = 0; bit < sizeof(Entry) * 8; bit++) {
        Bucket b = bucket_of();
        b.entry[0] = entry_of(7);
        auto* bytes = reinterpret_cast<unsigned char*>(&b.entry[0]);
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
        Entry e{};
        EXPECT_EQ(directory::find(b, 7, nonce, e), Found::torn) << bit;
    }
    for (std::size_t bit = 0; bit < 16 * 8; bit++) {
        Bucket b = bucket_of(0x5000, 7);
        auto* bytes = reinterpret_cast<unsigned char*>(&b);
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
        Entry e{};
        EXPECT_EQ(directory::find(b, 7, nonce, e), Found::torn) << bit;
    }
}

TEST(Directory, AnotherDomainsBucketIsNotBelieved)
{
    Bucket b = bucket_of();
    b.entry[0] = entry_of(7);
    Entry e{};
    EXPECT_EQ(directory::find(b, 7, nonce + 1, e), Found::torn);
}

/// A peer's two tables; a STADD is an offset: first table at first_at, second at second_at.
struct Peerside {
    static constexpr utofu_stadd_t first_at = 0x100000;
    static constexpr utofu_stadd_t second_at = 0x900000;
    std::vector<Bucket> first = std::vector<Bucket>(1u << directory::first_log2, bucket_of());
    std::vector<Bucket> second;
    test::EndedGets done;
    unsigned gets = 0;
    unsigned torn_reads = 0; ///< the next so many are caught half written
    unsigned busy_each = 0;  ///< each so many-th Get finds the queue full; 0: none does
    int fail = UTOFU_SUCCESS;
    directory::OverflowEntry line[directory::max_overflow_vcqs + 1] = {};
    std::map<utofu_vcq_id_t, std::uint64_t> nonces{{42, nonce},
                                                   {43, nonce}}; ///< what each VCQ has under the STag of directories
    std::map<std::uint64_t, std::uint64_t> words;                ///< of the table of readers, by offset
    unsigned armws = 0;

    const Bucket* at(utofu_stadd_t stadd)
    {
        if (stadd >= second_at)
            return &second.at((stadd - second_at) / sizeof(Bucket));
        return &first.at((stadd - first_at) / sizeof(Bucket));
    }
    void read(utofu_vcq_id_t vcq, utofu_stadd_t stadd, std::size_t length, void* to)
    {
        const std::uint64_t offset = stadd - first_at;
        if (length == sizeof(Bucket)) {
            std::memcpy(to, at(stadd), length);
        } else if (offset == directory::domain_header_offset) {
            const directory::DomainHeader contacts{nonces[vcq], 0};
            ASSERT_EQ(length, sizeof(contacts));
            std::memcpy(to, &contacts, length);
        } else {
            const auto number = (offset - directory::overflow_lines_offset) / sizeof(directory::OverflowEntry);
            ASSERT_EQ(length, sizeof(directory::OverflowEntry));
            ASSERT_LE(number, directory::max_overflow_vcqs);
            std::memcpy(to, &line[number], length);
        }
    }
    void open_overflow_vcq(unsigned number, utofu_vcq_id_t vcq)
    {
        line[number] = {vcq, directory::check_of_overflow(vcq, number, nonce)};
        nonces[vcq] = nonce;
    }
    void put(const Entry& e) { first[directory::bucket_of(e.key, directory::first_log2)].entry[0] = e; }
};
Peerside* reached;

vcq::Functions functions()
{
    vcq::Functions f = test::functions_of_gets();
    f.query_stadd = [](utofu_vcq_id_t vcq, unsigned, utofu_stadd_t* s) -> int {
        return *s = Peerside::first_at, vcq == no_vcq ? UTOFU_ERR_INVALID_VCQ_ID : UTOFU_SUCCESS;
    };
    f.get = [](utofu_vcq_hdl_t, utofu_vcq_id_t vcq, utofu_stadd_t local, utofu_stadd_t remote, std::size_t length,
               std::uint64_t edata, unsigned long, void*) -> int {
        reached->gets++;
        if (reached->busy_each != 0 && reached->gets % reached->busy_each == 0)
            return UTOFU_ERR_BUSY;
        if (reached->fail == UTOFU_SUCCESS) {
            auto* to = reinterpret_cast<Bucket*>(local);
            reached->read(vcq, remote, length, to);
            if (reached->torn_reads > 0) {
                reached->torn_reads--;
                to->entry[1].check = 12345;
                to->entry[0].check = 12345;
            }
        }
        reached->done.push_back({reached->fail, edata});
        return UTOFU_SUCCESS;
    };
    f.cswap8 = [](utofu_vcq_hdl_t, utofu_vcq_id_t, std::uint64_t compare, std::uint64_t swap, utofu_stadd_t remote,
                  std::uint64_t edata, unsigned long, void*) -> int {
        std::uint64_t& word = reached->words[remote - Peerside::first_at];
        reached->armws++;
        reached->done.push_back({reached->fail, edata, word, UTOFU_MRQ_TYPE_LCL_ARMW});
        if (word == compare)
            word = swap;
        return UTOFU_SUCCESS;
    };
    return f;
}

struct KeysTest : testing::Test {
    KeysTest()
    {
        reached = &peerside;
        test::ended_gets = &peerside.done;
        EXPECT_EQ(vcq.open(backend, 0, false, {}), 0);
        keys = std::make_unique<RemoteKeys>(vcq, false, KeyReader{reader, area.data()});
    }
    /// Enters the reader at the peer, so that a test counts the Gets of its lookups alone.
    void enlist()
    {
        EXPECT_EQ(ask(0x100000), -FI_EKEYREJECTED);
        peerside.gets = 0;
    }
    void revoke(utofu_vcq_id_t target_vcq)
    {
        ++*reinterpret_cast<std::uint64_t*>(area.data() + directory::epoch_offset(target_vcq));
    }
    /// Asks until there is an answer.
    int ask(std::uint64_t key, std::uint64_t address = 0x2000, std::size_t length = 8,
            std::uint64_t access = FI_REMOTE_WRITE)
    {
        for (int i = 0; i < 2000; i++) {
            const int ret = keys->resolve(peer, key, address, length, access, target);
            if (ret != -FI_EAGAIN)
                return ret;
            vcq.poll();
        }
        return -FI_EAGAIN;
    }
    static constexpr utofu_vcq_id_t reader = 17;
    alignas(8) std::array<std::byte, directory::area_bytes> area{};
    Peerside peerside;
    vcq::Backend backend{functions(), utofu_onesided_caps{}, 1};
    vcq::Vcq vcq;
    std::unique_ptr<RemoteKeys> keys;
    Peer peer{42, nonce, 0, 0, false, 0};
    Target target{};
};

TEST_F(KeysTest, AKnownKeyCostsOneGetOnce)
{
    enlist();
    peerside.put(entry_of(7));
    ASSERT_EQ(ask(7, 0x2010), 0);
    EXPECT_EQ(target.stadd, entry_of(7).stadd_offset + 0x2010);
    for (int i = 0; i < 10; i++)
        ASSERT_EQ(ask(7, 0x2000 + i), 0);
    EXPECT_EQ(peerside.gets, 1u);
}

TEST_F(KeysTest, SeveralAreLookedUpAtATime)
{
    enlist();
    peerside.put(entry_of(7));
    peerside.put(entry_of(8));
    for (const std::uint64_t key : {7, 8})
        EXPECT_EQ(keys->resolve(peer, key, 0x2000, 8, FI_REMOTE_WRITE, target), -FI_EAGAIN);
    for (int i = 0; i < 10; i++)
        vcq.poll();
    for (const std::uint64_t key : {7, 8}) {
        EXPECT_EQ(keys->resolve(peer, key, 0x2000, 8, FI_REMOTE_WRITE, target), 0);
        EXPECT_EQ(target.stadd, entry_of(key).stadd_offset + 0x2000);
    }
    EXPECT_EQ(peerside.gets, 2u);
}

TEST_F(KeysTest, BoundsAndRights)
{
    peerside.put(entry_of(7, directory::right_read));
    EXPECT_EQ(ask(7, 0x2000, 4096, FI_REMOTE_READ), 0);
    EXPECT_EQ(ask(7, 0x2000, 4097, FI_REMOTE_READ), -FI_EINVAL);
    EXPECT_EQ(ask(7, 0x1fff, 2, FI_REMOTE_READ), -FI_EINVAL);
    EXPECT_EQ(ask(7, 0x3000, 1, FI_REMOTE_READ), -FI_EINVAL);
    EXPECT_EQ(ask(7, ~std::uint64_t{0}, 2, FI_REMOTE_READ), -FI_EINVAL);
    EXPECT_EQ(ask(7, 0x2000, ~std::size_t{0}, FI_REMOTE_READ), -FI_EINVAL);
    EXPECT_EQ(ask(7, 0x2000, 8, FI_REMOTE_WRITE), -FI_EACCES);
    EXPECT_EQ(ask(7, 0x2000, 8, FI_REMOTE_READ | FI_REMOTE_WRITE), -FI_EACCES);
}

TEST_F(KeysTest, AnUnknownKeyIsRejectedAndAskedForAgain)
{
    EXPECT_EQ(ask(7), -FI_EKEYREJECTED);
    peerside.put(entry_of(7));
    EXPECT_EQ(ask(7), 0);
}

TEST_F(KeysTest, TornBucketsAreReadAgain)
{
    enlist();
    peerside.put(entry_of(7));
    peerside.torn_reads = 5;
    EXPECT_EQ(ask(7), 0);
    EXPECT_EQ(peerside.gets, 6u);
}

TEST_F(KeysTest, ABucketThatStaysTornEndsInAnError)
{
    enlist();
    peerside.torn_reads = 1000000;
    EXPECT_EQ(ask(7), -FI_EKEYREJECTED);
    EXPECT_LE(peerside.gets, 256u);
}

/// As the bucket of another process does. A Get that finds no room does not begin the lookup anew.
TEST_F(KeysTest, ABucketThatStaysTornEndsInAnErrorThoughTheQueueIsFullNowAndThen)
{
    enlist();
    peerside.torn_reads = 1000000;
    peerside.busy_each = 2;
    EXPECT_EQ(ask(7), -FI_EKEYREJECTED);
    EXPECT_LE(peerside.gets, 512u);
}

TEST_F(KeysTest, TheSecondTableIsOneGetMoreOrTwo)
{
    enlist();
    for (Bucket& b : peerside.first)
        b = bucket_of(Peerside::second_at, 8);
    peerside.second.assign(256, bucket_of());
    peerside.second[directory::bucket_of(900, 8)].entry[3] = entry_of(900);
    EXPECT_EQ(ask(900), 0);
    EXPECT_EQ(peerside.gets, 2u);
    EXPECT_EQ(ask(901), -FI_EKEYREJECTED);
    EXPECT_EQ(peerside.gets, 5u);
    peerside.second[directory::bucket_of(902, 8, 1)].entry[0] = entry_of(902);
    EXPECT_EQ(ask(902), 0);
    EXPECT_EQ(peerside.gets, 8u);
}

TEST_F(KeysTest, AnOverflowVcqProvesItselfOnce)
{
    enlist();
    peerside.put(entry_of(7, directory::right_write, 2));
    peerside.put(entry_of(8, directory::right_write, 2));
    peerside.put(entry_of(9));
    peerside.open_overflow_vcq(2, 77);
    ASSERT_EQ(ask(7, 0x2010), 0);
    EXPECT_EQ(target.vcq, 77u);
    EXPECT_EQ(target.stadd, entry_of(7).stadd_offset + 0x2010);
    EXPECT_EQ(peerside.gets, 3u);
    ASSERT_EQ(ask(8), 0);
    EXPECT_EQ(target.vcq, 77u);
    EXPECT_EQ(peerside.gets, 4u);
    ASSERT_EQ(ask(9), 0);
    EXPECT_EQ(target.vcq, peer.target_vcq);
}

TEST_F(KeysTest, AnOverflowVcqThatIsNotThePeersIsNotBelieved)
{
    for (std::uint16_t target_vcq : {1, 2, 3, 4, 16, 0xffff})
        peerside.put(entry_of(100 + target_vcq, directory::right_write, target_vcq));
    peerside.open_overflow_vcq(2, 77);
    peerside.nonces[77] = nonce + 1; // another domain
    peerside.open_overflow_vcq(3, no_vcq);
    peerside.open_overflow_vcq(4, 78);
    peerside.line[4] = peerside.line[2]; // of another number
    for (std::uint16_t target_vcq : {1, 2, 3, 4, 16, 0xffff})
        EXPECT_EQ(ask(100 + target_vcq), -FI_EKEYREJECTED) << target_vcq;
    peerside.open_overflow_vcq(4, 78);
    EXPECT_EQ(ask(104), 0);
}

TEST_F(KeysTest, AnotherPeersOverflowVcqOfTheNumberIsAnother)
{
    peerside.put(entry_of(7, directory::right_write, 2));
    peerside.open_overflow_vcq(2, 77);
    ASSERT_EQ(ask(7), 0);
    peer.target_vcq = 43;
    peerside.open_overflow_vcq(2, 79);
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.vcq, 79u);
    peer.target_vcq = 42;
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.vcq, 77u);
}

TEST_F(KeysTest, ADeadPeerIsNotAnUnknownKey)
{
    peerside.fail = UTOFU_ERR_MRQ_PEER;
    EXPECT_EQ(ask(7), -FI_EHOSTDOWN);
    peerside.fail = UTOFU_ERR_MRQ_RMT_STADD;
    EXPECT_EQ(ask(7), -FI_EKEYREJECTED);
}

/// The owner may have taken this reader for dead and have removed it: then nothing has revoked the key.
TEST_F(KeysTest, AReaderThatDoubtsAPeerReadsItsKeysAndEntersItselfAgain)
{
    peerside.put(entry_of(7));
    ASSERT_EQ(ask(7), 0);
    peerside.words.clear();
    Entry moved = entry_of(7);
    moved.stadd_offset += 0x40;
    moved.check = directory::check_of(moved, nonce);
    peerside.put(moved);
    keys->suspect(peer.target_vcq + 1); // another peer
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.stadd, entry_of(7).stadd_offset + 0x2000);
    keys->suspect(peer.target_vcq);
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.stadd, moved.stadd_offset + 0x2000);
    EXPECT_EQ(peerside.words[directory::reader_offset(reader, 0)], reader);
}

/// Also where no notice comes: a domain that has been replaced may never answer.
TEST(Doubt, IsCastByAnAccessThatFindsNothingAndByOneThatNeverEnds)
{
    for (const int code :
         {never_notified, int{UTOFU_ERR_MRQ_RMT_STADD}, int{UTOFU_ERR_MRQ_RMT_MEMORY}, int{UTOFU_ERR_MRQ_RMT_LENGTH}})
        EXPECT_TRUE(doubts_target(code)) << code;
    for (const int code : {int{UTOFU_SUCCESS}, int{UTOFU_ERR_MRQ_PEER}, int{UTOFU_ERR_MRQ_LCL_STADD}})
        EXPECT_FALSE(doubts_target(code)) << code;
}

TEST_F(KeysTest, AReaderEntersItselfOnceBeforeItCachesAKey)
{
    peerside.put(entry_of(7));
    peerside.put(entry_of(8));
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(peerside.words[directory::reader_offset(reader, 0)], reader);
    EXPECT_EQ(peerside.gets, 2u); // the nonce, the bucket
    ASSERT_EQ(ask(8), 0);
    EXPECT_EQ(peerside.armws, 1u);
}

TEST_F(KeysTest, AReaderTakesNoSlotOfAnother)
{
    peerside.put(entry_of(7));
    peerside.words[directory::reader_offset(reader, 0)] = 99;
    peerside.words[directory::reader_offset(reader, 1)] = 98;
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(peerside.words[directory::reader_offset(reader, 0)], 99u);
    EXPECT_EQ(peerside.words[directory::reader_offset(reader, 2)], reader);
    EXPECT_FALSE(keys->looks_up_each_call(peer));
}

TEST_F(KeysTest, AContextFindsTheEntryOfItsDomain)
{
    peerside.put(entry_of(7));
    peerside.words[directory::reader_offset(reader, 0)] = reader;
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(peerside.armws, 1u);
}

TEST_F(KeysTest, AReaderWithoutASlotLooksAKeyUpInEachCall)
{
    peerside.put(entry_of(7));
    for (unsigned probe = 0; probe < directory::reader_probes; probe++)
        peerside.words[directory::reader_offset(reader, probe)] = 99;
    ASSERT_EQ(ask(7), 0);
    EXPECT_TRUE(keys->looks_up_each_call(peer));
    EXPECT_EQ(peerside.armws, directory::reader_probes);
    const unsigned gets = peerside.gets;
    ASSERT_EQ(ask(7, 0x2008), 0); // another piece of the same call
    EXPECT_EQ(peerside.gets, gets);
    keys->begin_call();
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(peerside.gets, gets + 1);
    EXPECT_EQ(peerside.armws, directory::reader_probes);
}

/// Its answer may be older than the region that the next call is about.
TEST_F(KeysTest, AReaderWithoutASlotUsesNoAnswerOfAnEarlierCall)
{
    for (unsigned probe = 0; probe < directory::reader_probes; probe++)
        peerside.words[directory::reader_offset(reader, probe)] = 99;
    enlist();
    peerside.put(entry_of(7));
    keys->begin_call();
    ASSERT_EQ(keys->resolve(peer, 7, 0x2000, 8, FI_REMOTE_WRITE, target), -FI_EAGAIN);
    vcq.poll();
    Entry moved = entry_of(7);
    moved.stadd_offset += 0x40;
    moved.check = directory::check_of(moved, nonce);
    peerside.put(moved);
    keys->begin_call();
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.stadd, moved.stadd_offset + 0x2000);
}

/// The call that asked was refused and is not repeated. The owner registers the region, and a later call uses it.
TEST_F(KeysTest, AFailureIsNoAnswerToALaterCall)
{
    enlist();
    for (const bool answered : {true, false}) {
        const std::uint64_t key = answered ? 7 : 8;
        keys->begin_call();
        ASSERT_EQ(keys->resolve(peer, key, 0x2000, 8, FI_REMOTE_WRITE, target), -FI_EAGAIN);
        if (answered)
            vcq.poll();
        peerside.put(entry_of(key));
        keys->begin_call();
        EXPECT_EQ(ask(key), 0);
        EXPECT_TRUE(keys->asks_again());
        keys->begin_call();
        EXPECT_FALSE(keys->asks_again());
    }
}

/// The answers come after the call that asked for them has been refused, each time.
TEST_F(KeysTest, AFailureIsReportedThoughEachAnswerComesAfterItsCall)
{
    enlist();
    int ret = -FI_EAGAIN;
    for (int call = 0; call < 100 && ret == -FI_EAGAIN; call++) {
        keys->begin_call();
        ret = keys->resolve(peer, 7, 0x2000, 8, FI_REMOTE_WRITE, target);
        vcq.poll();
    }
    EXPECT_EQ(ret, -FI_EKEYREJECTED);
    peerside.put(entry_of(7));
    keys->begin_call();
    EXPECT_EQ(ask(7), 0);
}

TEST_F(KeysTest, NoSlotOfASuccessorIsTaken)
{
    peerside.put(entry_of(7));
    peerside.nonces[42] = nonce + 1;
    EXPECT_EQ(ask(7), -FI_EKEYREJECTED);
    EXPECT_EQ(peerside.armws, 0u);
}

TEST_F(KeysTest, ARevokedKeyIsLookedUpAgain)
{
    peerside.put(entry_of(7));
    ASSERT_EQ(ask(7), 0);
    Entry moved = entry_of(7);
    moved.stadd_offset += 0x40;
    moved.check = directory::check_of(moved, nonce);
    peerside.put(moved);
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.stadd, entry_of(7).stadd_offset + 0x2000); // it has not been revoked
    revoke(peer.target_vcq);
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.stadd, moved.stadd_offset + 0x2000);
    EXPECT_EQ(peerside.armws, 1u); // the reader stays in the table
}

/// The Get may have read the entry before the owner withdrew it.
TEST_F(KeysTest, AKeyThatIsRevokedDuringItsLookupIsNotUsed)
{
    enlist();
    peerside.put(entry_of(7));
    ASSERT_EQ(keys->resolve(peer, 7, 0x2000, 8, FI_REMOTE_WRITE, target), -FI_EAGAIN);
    revoke(peer.target_vcq);
    Entry moved = entry_of(7);
    moved.stadd_offset += 0x40;
    moved.check = directory::check_of(moved, nonce);
    peerside.put(moved);
    ASSERT_EQ(ask(7), 0);
    EXPECT_EQ(target.stadd, moved.stadd_offset + 0x2000);
}

TEST_F(KeysTest, ManyKeysOfManyPeersAreKeptApart)
{
    for (std::uint64_t key = 0; key < 64; key++) {
        Bucket& b = peerside.first[directory::bucket_of(key, directory::first_log2)];
        for (Entry& e : b.entry)
            if (e.check == 0) {
                e = entry_of(key);
                break;
            }
    }
    for (int round = 0; round < 3; round++)
        for (std::uint64_t target_vcq = 1; target_vcq < 300; target_vcq++) {
            peer.target_vcq = target_vcq;
            const std::uint64_t key = target_vcq % 8;
            const int ret = ask(key);
            if (ret != 0) // more than five of 64 keys may meet in one bucket
                continue;
            ASSERT_EQ(target.stadd, entry_of(key).stadd_offset + 0x2000);
        }
}

TEST_F(KeysTest, ThousandsOfKeysStayKnown)
{
    for (Bucket& b : peerside.first)
        b = bucket_of(Peerside::second_at, 16);
    peerside.second.assign(1u << 16, bucket_of());
    for (std::uint64_t key = 0; key < 20000; key++)
        peerside.second[directory::bucket_of(key, 16)].entry[0] = entry_of(key);
    std::vector<bool> there(20000);
    for (int round = 0; round < 2; round++)
        for (std::uint64_t key = 0; key < 20000; key++) {
            const unsigned before = peerside.gets;
            const bool found = (round == 0 || there[key]) && ask(key) == 0; // the later of two in a bucket
            there[key] = found && (round == 0 || peerside.gets == before);
        }
    EXPECT_GT(std::count(there.begin(), there.end(), true), 16000);
}

TEST_F(KeysTest, KeysOfOursAreAnAdditionUnlessTheyAreListed)
{
    RemoteKeys plain(vcq, true, KeyReader{reader, area.data()});
    ASSERT_EQ(plain.resolve(peer, 0x1000, 0x34, 8, FI_REMOTE_READ, target), 0);
    EXPECT_EQ(target.vcq, peer.target_vcq);
    EXPECT_EQ(target.stadd, 0x1034u);
    EXPECT_EQ(peerside.gets, 0u);
    const std::uint64_t listed = directory::indirect_bit | 5;
    peerside.put(entry_of(listed));
    keys = std::make_unique<RemoteKeys>(vcq, true, KeyReader{reader, area.data()});
    ASSERT_EQ(ask(listed), 0);
    EXPECT_EQ(target.stadd, entry_of(listed).stadd_offset + 0x2000);
}

} // namespace
