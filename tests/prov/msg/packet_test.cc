// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets of messages as they are written and read, whole and at random.
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "msg/wire.h"

namespace tofu::proto {
namespace {

alignas(8) std::byte slot[slot_size];

TEST(Wire, ReadsWhatItWrote)
{
    std::memset(slot, 0x55, sizeof slot);
    PacketWriter w(slot + slot_size);
    w.control(Type::eager, flag_tag | flag_data | flag_ack, 5, 77);
    w.put64(0xda7a);
    w.put64(0x7a9);
    w.put(Ack{3, 9});
    std::memcpy(w.reserve(5), "hello", 5);
    EXPECT_EQ(w.size(), 40u);
    Packet p;
    ASSERT_TRUE(decode(slot, p));
    EXPECT_EQ(p.type, Type::eager);
    EXPECT_EQ(p.control.seq, 77u);
    EXPECT_EQ(p.data, 0xda7au);
    EXPECT_EQ(p.tag, 0x7a9u);
    EXPECT_EQ(p.ack.word, 3u);
    EXPECT_EQ(p.ack.seq, 9u);
    EXPECT_EQ(std::memcmp(p.body, "hello", 5), 0);
}

TEST(Wire, TaggedEightBytesFitIntoADescriptor)
{
    EXPECT_LE(overhead(flag_tag) + 8, 32u);
    EXPECT_LE(overhead(0) + 24, 32u);
}

TEST(Wire, FuzzedSlotsNeverLeadOutside)
{
    std::mt19937_64 random(1);
    unsigned good = 0;
    for (int round = 0; round < 200000; round++) {
        for (std::size_t i = 0; i < slot_size; i += 8) {
            const std::uint64_t v = random();
            std::memcpy(slot + i, &v, 8);
        }
        slot[slot_size - 8] = static_cast<std::byte>(random() % 9); // mostly a type
        slot[slot_size - 7] = static_cast<std::byte>(random() % 18);
        if (random() % 2)
            slot[slot_size - 5] = std::byte{0};
        Packet p;
        if (!decode(slot, p))
            continue;
        good++;
        EXPECT_LT(p.ack.word, completion_count);
        std::size_t length = 0;
        if (p.type == Type::eager)
            length = p.control.length;
        else if (p.type == Type::rts)
            length = sizeof(Rts) + p.control.length * sizeof(Segment);
        if (p.body != nullptr) {
            ASSERT_GE(p.body, slot);
            ASSERT_LE(p.body + length, slot + slot_size - sizeof(Control));
        }
    }
    EXPECT_GT(good, 1000u);
}

/// A slot that was never used holds 0: no packet may be expected there under that number.

} // namespace
} // namespace tofu::proto
