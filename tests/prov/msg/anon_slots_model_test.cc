// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A model of anonymous packets (cases A1 to A13 of docs/wire-protocol.md): three slots, a sender with two messages that
// may die at any step, and one with four. All orders of posts, arrivals and looks at single slots are
// searched. Each rule that anonymous packets rest on is left out once: the search then has to find what goes wrong.
#include "lib/model.h"

#include <gtest/gtest.h>

namespace tofu::test {
namespace {

constexpr unsigned senders = 2;
constexpr unsigned slots = 3;
constexpr unsigned messages[senders] = {2, 4};

/// Which rule is left out.
enum class Without {
    nothing,
    end,            ///< a sender takes what is handed out beyond the run, too (case A6)
    youngest_first, ///< the receiver looks from the oldest slot to the youngest (case A8)
    filled,         ///< a slot that is out goes on offer again (case A2)
    exhausted       ///< a run goes on offer before the last one is handed out (case A7)
};

struct Packet {
    std::uint8_t owner, number; ///< 1 + each; 0: none
};
struct Way {
    std::uint8_t slot; ///< 1 + it; 0: none
    Packet packet;
};
struct Sender {
    std::uint8_t dead, sent, has, full; ///< has: 1 + a slot
    Way out[2];                         ///< on their way, in order
};
struct World {
    Sender s[senders];
    Packet slot[slots];
    std::uint8_t slot_counter_next, slot_counter_end; ///< what peers see
    std::uint8_t next, end;                           ///< what the receiver knows of it
    std::uint8_t is_out[slots], order[slots];         ///< order: 1 + slot, as handed out
    std::uint8_t count, looking, seen; ///< slots out; 1 + those still to be looked at; bits of those seen
    std::uint8_t taken[senders];
    std::uint8_t wrong;
};

void offer(World& w, Without without)
{
    const auto free = [&](unsigned n) { return w.is_out[n] == 0 || without == Without::filled; };
    unsigned first = w.end;
    while (first < slots && !free(first))
        first++;
    if (first == slots)
        for (first = 0; first < slots && !free(first);)
            first++;
    if (first == slots)
        return;
    unsigned end = first;
    while (end < slots && free(end))
        end++;
    w.slot_counter_next = w.next = static_cast<std::uint8_t>(first);
    w.slot_counter_end = w.end = static_cast<std::uint8_t>(end);
}

template <class Emit>
void sender_steps(const World& now, unsigned i, Without without, Emit&& emit)
{
    const Sender& s = now.s[i];
    const auto step = [&](const char* name, auto&& change) {
        World next = now;
        change(next, next.s[i]);
        emit(name, next);
    };
    if (s.dead != 0)
        return;
    if (i == 0)
        step("A dies", [](World&, Sender& a) { // nothing of it arrives any more
            a = {};
            a.dead = 1;
        });
    if (s.out[0].slot != 0)
        step("a packet lands", [](World& w, Sender& a) {
            Packet& there = w.slot[a.out[0].slot - 1];
            if (there.owner != 0)
                w.wrong = 1;
            there = a.out[0].packet;
            a.out[0] = a.out[1];
            a.out[1] = {};
        });
    if (s.has != 0 && s.out[1].slot == 0)
        step("Put", [i](World&, Sender& a) {
            a.out[a.out[0].slot != 0] = {a.has, {static_cast<std::uint8_t>(1 + i), ++a.sent}};
            a.has = 0;
        });
    if (s.has == 0 && s.full == 0 && s.sent < messages[i])
        step("ADD", [&](World& w, Sender& a) {
            if (w.slot_counter_next < w.slot_counter_end || (without == Without::end && w.slot_counter_next < slots))
                a.has = static_cast<std::uint8_t>(1 + w.slot_counter_next);
            else
                a.full = 1;
            w.slot_counter_next++;
        });
    if (s.full != 0 && now.slot_counter_next < now.slot_counter_end)
        step("sees that there are slots", [](World&, Sender& a) { a.full = 0; });
}

template <class Emit>
void receiver_steps(const World& now, Without without, Emit&& emit)
{
    const auto step = [&](const char* name, auto&& change) {
        World next = now;
        change(next);
        emit(name, next);
    };
    if (now.looking == 0)
        step("R begins to look", [](World& w) {
            for (; w.next < w.slot_counter_next && w.next < w.end; w.next++) {
                w.is_out[w.next] = 1;
                if (w.count < slots)
                    w.order[w.count++] = static_cast<std::uint8_t>(1 + w.next);
                else
                    w.wrong = 3;
            }
            w.seen = 0;
            w.looking = static_cast<std::uint8_t>(1 + w.count);
        });
    if (now.looking > 1)
        step("R looks at a slot", [&](World& w) {
            w.looking--;
            const unsigned at = without == Without::youngest_first ? w.count - w.looking : w.looking - 1u;
            if (w.slot[w.order[at] - 1].owner != 0)
                w.seen |= static_cast<std::uint8_t>(1u << at);
        });
    if (now.looking == 1)
        step("R takes what it has seen", [&](World& w) {
            unsigned left = 0;
            for (unsigned at = 0; at < w.count; at++) {
                Packet& packet = w.slot[w.order[at] - 1];
                if ((w.seen >> at & 1) == 0) {
                    w.order[left++] = w.order[at];
                    continue;
                }
                if (packet.number != ++w.taken[packet.owner - 1])
                    w.wrong = 2;
                packet = {};
                w.is_out[w.order[at] - 1] = 0;
            }
            for (unsigned at = left; at < slots; at++)
                w.order[at] = 0;
            w.count = static_cast<std::uint8_t>(left);
            w.looking = w.seen = 0;
            if (w.next == w.end || without == Without::exhausted)
                offer(w, without);
        });
}

Verdict anonymous_packets(Without without)
{
    World first{};
    first.slot_counter_end = first.end = slots;
    return search(
        first,
        [&](const World& now, auto emit) {
            if (now.slot_counter_next > 20)
                return; // each goes beyond the end once for each run
            for (unsigned i = 0; i < senders; i++)
                sender_steps(now, i, without, emit);
            receiver_steps(now, without, emit);
        },
        [](const World& w) -> const char* {
            return w.wrong == 1   ? "a packet is overwritten"
                   : w.wrong == 2 ? "a message is lost, doubled or out of order"
                   : w.wrong == 3 ? "a slot is handed out twice"
                                  : nullptr;
        },
        [](const World& w) { // what the living sent has been taken, whatever the dead have left
            return (w.s[0].dead != 0 || w.taken[0] == messages[0]) && w.taken[1] == messages[1];
        });
}

TEST(AnonymousSendersModel, LosesDoublesAndOverwritesNothing)
{
    const Verdict verdict = anonymous_packets(Without::nothing);
    EXPECT_EQ(verdict.wrong, "");
    EXPECT_GT(verdict.states, 1'000u);
}

TEST(AnonymousSendersModel, FailsWithoutAnyOfItsRules)
{
    for (const Without without : {Without::end, Without::youngest_first, Without::filled, Without::exhausted})
        EXPECT_NE(anonymous_packets(without).wrong, "") << static_cast<int>(without);
}

} // namespace
} // namespace tofu::test
