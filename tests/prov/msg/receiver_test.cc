// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving half of the message protocol: packets in rings and from anonymous senders, offers that are fetched,
// questions, impossible packets.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "core/limits.h"
#include "prov/lib/messages.h"

namespace tofu::proto {
namespace {

TEST_F(Messages, AMessageFindsItsReceiveSoonerOrLater)
{
    greet();
    ASSERT_EQ(receive(1), 0);
    arrive(1, 1, "first");
    arrive(2, 2, "second!");
    run();
    EXPECT_EQ(entry(), "5 bytes");
    EXPECT_EQ(entry(), "nothing");
    ASSERT_EQ(receive(2), 0);
    EXPECT_EQ(entry(), "7 bytes");
    EXPECT_EQ(std::memcmp(buffer, "second!", 7), 0);
}

TEST_F(Messages, AnonymousPacketsFindTheirReceivesSoonerOrLater)
{
    const auto say = [&](std::uint64_t tag, const char* text, std::uint8_t flags = 0, const Ack& ack = {}) {
        come(Type::eager, static_cast<std::uint8_t>(flag_tag | flags), std::strlen(text), [&](PacketWriter& w) {
            w.put64(tag);
            if (flags != 0)
                w.put(ack);
            std::memcpy(w.reserve(std::strlen(text)), text, std::strlen(text));
        });
    };
    ASSERT_EQ(receive(1), 0);
    say(1, "expected");
    run(1);
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(std::memcmp(buffer, "expected", 8), 0);
    say(2, "late", flag_ack | flag_match, {5, 6});
    say(3, "never");
    run(1);
    EXPECT_EQ(answered({5, 6}), 0u);
    ASSERT_EQ(receive(2), 0);
    EXPECT_EQ(entry(), "4 bytes");
    EXPECT_EQ(answered({5, 6}), completion_word(6, 0)) << "the sender is known as long as that";

    const std::vector<char> text(10000, 'z');
    std::memcpy(net().memory.data() + source_at, text.data(), text.size());
    ASSERT_EQ(receive(4), 0);
    put(completion_offset(7), completion_word(8, completion_pending));
    come(Type::rts, flag_tag | flag_ack, 1, [&](PacketWriter& w) {
        w.put64(4);
        w.put(Ack{7, 8});
        w.put(Segment{Net::base + source_at, 8000});
        w.put(Rts{peer_home});
    });
    run(3);
    EXPECT_EQ(entry(), "8000 bytes");
    EXPECT_EQ(buffer[7999], 'z');
    EXPECT_EQ(answered({7, 8}), completion_word(8, 0));
}

/// What does not fit into an anonymous packet is in its order all the same: matched, and reported, before what came
/// behind it.
TEST_F(Messages, AMessageByEagerGetKeepsItsPlace)
{
    std::memset(net().memory.data() + source_at, 'z', 3000);
    ASSERT_EQ(receive(1), 0);
    ASSERT_EQ(receive(2), 0);
    arrive_by_get(1, 7, {{Net::base + source_at, 1000}, {Net::base + source_at + 1000, 2000}});
    come_at_once(2);
    run();
    EXPECT_EQ(entry(), "3000 bytes");
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(buffer[2999], 'z');
    EXPECT_EQ(answered({7, 8}), completion_word(8, 0));
}

/// No receive waits for it: it is taken, so that its sender need not keep it for longer.
TEST_F(Messages, AMessageByEagerGetIsTakenBeforeItsReceiveIsPosted)
{
    std::memset(net().memory.data() + source_at, 'z', max_eager);
    arrive_by_get(1, 7, {{Net::base + source_at, max_eager}});
    run();
    EXPECT_EQ(answered({7, 8}), completion_word(8, 0));
    std::memset(net().memory.data() + source_at, 'n', max_eager);
    ASSERT_EQ(receive(1), 0);
    EXPECT_EQ(entry(), std::to_string(max_eager) + " bytes");
    EXPECT_EQ(buffer[max_eager - 1], 'z');
}

/// Its sender has gone, and others may have its memory; or it cannot be read, which is reported to the sender.
TEST_F(Messages, AMessageByEagerGetWhoseSenderDoesNotKeepItIsNone)
{
    ASSERT_EQ(receive(1), 0);
    arrive_by_get(1, 7, {{Net::base + source_at, 1000}}, false);
    arrive_by_get(1, 9, {{4096, 1000}});
    come_at_once(1);
    run();
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(answered({7, 8}), completion_word(8, 0)) << "as it was";
    EXPECT_EQ(answered({9, 8}) >> 32, 8u);
    EXPECT_NE(static_cast<std::uint32_t>(answered({9, 8})), completion_pending);
    EXPECT_NE(static_cast<std::uint32_t>(answered({9, 8})), 0u);
}

/// A library may report no access to an endpoint that is gone. The first message of such an endpoint shows it; the
/// others are not asked for one after the other.
TEST_F(Messages, MessagesByEagerGetOfASilentSenderEndTogether)
{
    const auto before = std::exchange(tofu::vcq::Vcq::lost_after, std::chrono::milliseconds(5));
    net().silent = true;
    net().broken = Net::base + completion_offset(7);
    ASSERT_EQ(receive(1), 0);
    for (std::uint64_t n = 0; n < 20; n++)
        arrive_by_get(1, 7, {{4096, 1000 + n}});
    come_at_once(1);
    const std::size_t posts = net().posts;
    std::string what = "nothing";
    for (unsigned i = 0; i < 10'000'000 && what == "nothing"; i++) {
        run(1);
        what = entry();
    }
    EXPECT_EQ(what, "8 bytes");
    EXPECT_LT(net().posts - posts, 10u);
    net().silent = false;
    tofu::vcq::Vcq::lost_after = before;
}

/// More than are fetched at a time, and one whose slot was written over meanwhile: the others come.
TEST_F(Messages, MessagesByEagerGetAreFetchedSomeAtATime)
{
    for (std::uint32_t n = 0; n < 20; n++) {
        ASSERT_EQ(receive(n), 0);
        arrive_by_get(n, n, {{Net::base + source_at, 1000}});
    }
    const std::uint32_t taken = slot_counter_next(word(slot_counter_offset).load()) - 20;
    net().window = 1;
    std::byte* const ack =
        own_ + anon_slots_offset + (taken + 1) * slot_size - sizeof(Control) - sizeof(Envelope) - 8 - 8;
    run(1);
    const Ack other{900, 8};
    std::memcpy(ack, &other, sizeof other);
    run();
    for (unsigned n = 1; n < 20; n++)
        EXPECT_EQ(entry(), "1000 bytes");
    EXPECT_EQ(entry(), "nothing");
}

/// There are 256 small blocks; each of these messages takes two.
TEST_F(Messages, BlocksForMessagesByEagerGetAreUsedAgain)
{
    for (std::uint32_t n = 0; n < 600; n++) {
        ASSERT_EQ(receive(n), 0);
        arrive_by_get(n, 7, {{Net::base + source_at, 8}});
        run(8);
        ASSERT_EQ(entry(), "8 bytes") << n;
    }
}

TEST_F(Messages, AMessageByEagerGetThatCannotBeIsDropped)
{
    ASSERT_EQ(receive(1), 0);
    arrive_by_get(1, 7,
                  {{Net::base + source_at, 5000}, {Net::base + source_at, 5000}}); // longer than a slot may make it
    arrive_by_get(1, 7, {{Net::base + source_at, 0}});
    greet();
    write(1, Type::eager_by_get, flag_tag | flag_ack, 1, [&](PacketWriter& w) { // in a ring
        w.put64(1);
        w.put(Ack{7, 8});
        w.put(Segment{Net::base + source_at, 1000});
        w.put(Rts{peer_home});
    });
    run();
    EXPECT_EQ(entry(), "nothing");
    EXPECT_EQ(answered({7, 8}), completion_word(8, completion_pending));
}

TEST_F(Messages, ARendezvousIsFetchedAndAnswered)
{
    greet();
    const Ack ack{11, 5};
    std::memset(net().memory.data() + source_at, 'r', 3000);
    ASSERT_EQ(receive(1), 0);
    offer(1, 1, ack, {{Net::base + source_at, 1000}, {Net::base + source_at + 1000, 2000}});
    run();
    EXPECT_EQ(entry(), "3000 bytes");
    EXPECT_EQ(buffer[2999], 'r');
    EXPECT_EQ(answered(ack), completion_word(5, 0));
    ASSERT_EQ(receive(1, 0, 100), 0); // cut off: the sender has done its part
    offer(2, 1, {11, 6}, {{Net::base + source_at, 1000}});
    run();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_ETRUNC));
    EXPECT_EQ(answered(ack), completion_word(6, 0));
}

TEST_F(Messages, AGetThatFailsIsToldToBoth)
{
    greet();
    net().broken = Net::base + source_at;
    ASSERT_EQ(receive(1), 0);
    offer(1, 1, {11, 5}, {{Net::base + source_at, 1000}});
    run();
    const std::string said = entry();
    EXPECT_EQ(said.substr(0, 6), "error ");
    EXPECT_EQ(answered({11, 5}), completion_word(5, static_cast<std::uint32_t>(std::stoi(said.substr(6)))));
}

/// Each of two receives has two buffers, and there are two steering tags in all.
TEST_F(Messages, ReceivesThatWaitForSteeringTagsDoNotWaitForEachOther)
{
    greet();
    net().free_stags = 2;
    net().busy_percent = 100;
    for (std::uint32_t n = 1; n <= 2; n++) {
        const iovec iov[] = {{buffer, 500}, {buffer + 500, 500}};
        ASSERT_EQ(messages->receiver().queue().recv({.iov = iov, .count = 2, .source = to, .tag = 1, .tagged = true}),
                  0);
        offer(n, 1, {10 + n, 5}, {{Net::base + source_at, 1000}});
        run();
    }
    net().busy_percent = 0;
    run();
    EXPECT_EQ(entry(), "1000 bytes");
    EXPECT_EQ(entry(), "1000 bytes");
}

/// It came before its receive; meanwhile its sender has given up: its memory may be another's.
TEST_F(Messages, ALateReceiveFindsOutWhetherTheSenderStillWaits)
{
    greet();
    offer(1, 1, {11, 5}, {{Net::base + source_at, 1000}});
    offer(2, 1, {12, 5}, {{Net::base + source_at, 1000}});
    run();
    put(completion_offset(12), CompletionWord{0});
    ASSERT_EQ(receive(1), 0);
    run();
    EXPECT_EQ(entry(), "1000 bytes");
    ASSERT_EQ(receive(1), 0);
    run();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
    EXPECT_EQ(answered({12, 5}), 0u) << "no sender waits";
}

/// The receive was there first, but the RTS had stood in the ring for long: its sender may be gone all the same, and
/// its number, word and memory another's.
TEST_F(Messages, AnOldRtsIsFoundOutByTheWordOfItsSender)
{
    greet();
    std::uint32_t n = 0;
    for (const CompletionWord now :
         {CompletionWord{0}, completion_word(6, completion_pending), completion_word(6, 0)}) {
        ASSERT_EQ(receive(1), 0);
        offer(++n, 1, {11, 5}, {{Net::base + source_at, 1000}});
        put(completion_offset(11), now);
        run();
        EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
        EXPECT_EQ(answered({11, 5}), now) << "another operation's word stays";
    }
}

TEST_F(Messages, AnAnswerThatFindsNoRoomIsGivenLater)
{
    greet();
    ASSERT_EQ(receive(1), 0);
    run(); // the ring is known
    write(1, Type::eager, flag_tag | flag_ack, 0, [](PacketWriter& w) {
        w.put64(1);
        w.put(Ack{11, 5});
    });
    net().busy_percent = 100;
    run();
    EXPECT_EQ(entry(), "nothing") << "the packet stays: its sender has to be notified";
    net().busy_percent = 0;
    run();
    EXPECT_EQ(entry(), "0 bytes");
    EXPECT_EQ(answered({11, 5}), completion_word(5, 0));
}

/// Messages that came before their receive, and no room to tell the sender of one of them that it is received.
TEST_F(Messages, AMultiReceiveTakesWhatCameEarlyInItsOrder)
{
    const auto come = [&](std::uint32_t n, std::uint8_t flags, std::size_t length) {
        write(n, Type::eager, flags, length, [&](PacketWriter& w) {
            if (flags != 0)
                w.put(Ack{11, 5});
            (void)w.reserve(length);
        });
    };
    greet();
    come(1, 0, 8);
    come(2, flag_ack | flag_match, 16);
    come(3, 0, 0);
    run();
    net().busy_percent = 100;
    ASSERT_EQ(receive_many(1000), 0);
    come(4, 0, 24);
    run();
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(entry(), "nothing") << "a later one has overtaken";
    net().busy_percent = 0;
    run(2);
    EXPECT_EQ(answered({11, 5}), completion_word(5, 0));
    for (const char* length : {"16", "0", "24"})
        EXPECT_EQ(entry(), std::string(length) + " bytes");
    EXPECT_EQ(entry(), "nothing");
}

/// Where the message stands, also one of 0 bytes: "the starting location where the receive data was placed".
TEST_F(Messages, AMultiReceiveTellsThePlaceOfEachMessage)
{
    greet();
    ASSERT_EQ(receive_many(1000), 0);
    std::uint32_t n = 0;
    for (std::size_t length : {0, 16, 0, 8})
        write(++n, Type::eager, 0, length, [&](PacketWriter& w) { (void)w.reserve(length); });
    run();
    for (std::size_t at : {0, 0, 16, 16}) {
        fi_cq_tagged_entry e{};
        ASSERT_EQ(fi_cq_read(cq, &e, 1), 1);
        EXPECT_EQ(e.buf, buffer + at);
    }
}

/// Until the last Get has ended the buffer is not the application's.
TEST_F(Messages, AMultiReceiveIsCancelledWhenNothingWritesIntoItAnyMore)
{
    greet();
    net().prompt = false;
    ASSERT_EQ(receive_many(sizeof buffer), 0);
    offer_untagged(1, {11, 5}, {Net::base + source_at, 1000});
    offer_untagged(2, {12, 5}, {Net::base + source_at, 500});
    run(1);
    EXPECT_EQ(messages->receiver().cancel(this), 0);
    EXPECT_EQ(messages->receiver().cancel(this), -FI_ENOENT);
    run();
    EXPECT_EQ(entry(), "nothing");
    for (unsigned part = 0; part < 3; part++) { // the Gets, and what ends each message
        Net::step_all(static_cast<unsigned>(vcq.handle() - 1));
        run();
    }
    fi_cq_tagged_entry e{};
    for (std::size_t length : {1000, 500}) {
        ASSERT_EQ(fi_cq_read(cq, &e, 1), 1);
        EXPECT_EQ(e.len, length);
        EXPECT_EQ(e.flags, FI_RECV | FI_MSG) << "not released yet";
    }
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_read(cq, &e, 1), -FI_EAVAIL);
    ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
    EXPECT_EQ(error.err, FI_ECANCELED);
    EXPECT_EQ(error.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
    EXPECT_EQ(error.op_context, this);
    EXPECT_EQ(entry(), "nothing");
    net().prompt = true;
}

TEST_F(Messages, AFenceForMatchedMessagesWaitsForTheirReceives)
{
    greet();
    arrive(1, 1, "early");
    write(2, Type::fence, flag_ack | flag_match, 0, [](PacketWriter& w) { w.put(Ack{11, 5}); });
    write(3, Type::fence, flag_ack, 0, [](PacketWriter& w) { w.put(Ack{12, 5}); });
    run();
    EXPECT_EQ(answered({11, 5}), 0u);
    EXPECT_EQ(answered({12, 5}), completion_word(5, 0)) << "taken it is";
    ASSERT_EQ(receive(1), 0);
    messages->receiver().answer_fences();
    EXPECT_EQ(answered({11, 5}), completion_word(5, 0));
}

/// Also of a sender without a ring that asks again.
TEST_F(Messages, AFenceOfAnAnonymousSenderWaitsForTheReceivesToo)
{
    come(Type::eager, flag_tag, 8, [](PacketWriter& w) {
        w.put64(1);
        w.put64(0);
    });
    for (const std::uint32_t question : {4u, 5u})
        come(Type::fence, flag_ack | flag_match, 0, [&](PacketWriter& w) { w.put(Ack{11, question}); });
    run(1);
    EXPECT_EQ(answered({11, 5}), 0u);
    ASSERT_EQ(receive(1), 0);
    messages->receiver().answer_fences();
    EXPECT_EQ(answered({11, 5}), completion_word(5, 0));
}

TEST_F(Messages, PacketsThatCannotBeAreDroppedAndNothingElse)
{
    greet();
    ASSERT_EQ(receive(1), 0);
    offer(1, 1, {11, 5}, {{Net::base + source_at, 0}});                           // a segment of nothing
    offer(2, 1, {completion_count, 5}, {{Net::base + source_at, 8}});             // no such completion word
    offer(3, 1, {11, 5}, {{0, limits::max_msg_size}, {0, limits::max_msg_size}}); // more than a message
    write(4, Type::long_eager, flag_tag, 0, [](PacketWriter& w) { w.put64(1); });
    write(5, Type::long_eager, flag_tag, max_eager + 1, [](PacketWriter& w) { w.put64(1); });
    write(6, Type::eager, flag_tag, slot_size, [](PacketWriter& w) { w.put64(1); });
    write(7, static_cast<Type>(200), 0, 0, [](PacketWriter&) {});
    write(8, Type::write_data, 0, 0, [](PacketWriter& w) { w.put64(8); }); // without its data
    run();
    EXPECT_EQ(entry(), "nothing");
    arrive(9, 1, "sound");
    run();
    EXPECT_EQ(entry(), "5 bytes");
}

/// An endpoint may have FI_MULTI_RECV in its default flags. Then fi_recv posts such a receive.
TEST_F(Messages, AReceiveOfOneBufferMayBeAMultiReceive)
{
    greet();
    ASSERT_EQ(messages->receiver().queue().recv_one({.source = to, .flags = FI_MULTI_RECV, .context = this}, buffer,
                                                    1000, nullptr),
              0);
    for (std::uint32_t n : {1, 2})
        write(n, Type::eager, 0, 16, [&](PacketWriter& w) { (void)w.reserve(16); });
    run();
    for (std::size_t at : {0, 16}) {
        fi_cq_tagged_entry e{};
        ASSERT_EQ(fi_cq_read(cq, &e, 1), 1);
        EXPECT_EQ(e.buf, buffer + at);
        EXPECT_EQ(e.len, 16u);
    }
}

/// fi_cq(3), src_addr of fi_cq_err_entry, which libfabric has from 1.20 on.
TEST_F(Messages, TheErrorOfAReceiveNamesTheSender)
{
    greet();
    ASSERT_EQ(receive(1, 0, 4), 0);
    arrive(1, 1, "too long");
    run();
    CqEntry e{};
    ASSERT_TRUE(CompletionQueue::of(cq).pop(e));
    EXPECT_EQ(e.err, FI_ETRUNC);
    EXPECT_EQ(e.completion.source, to);
}

} // namespace
} // namespace tofu::proto
