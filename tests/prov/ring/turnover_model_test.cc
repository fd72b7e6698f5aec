// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A model of turnover (the numbered cases of prov/tofu/src/ring/turnover.cc): one ring of two slots, a sender with two
// messages that may die at any step, and one with a single message; the ring begins at the same sequence for each owner. All orders
// of posts, arrivals, notices and looks are searched. Each rule that turnover rests on is left out once: the search
// then has to find what goes wrong. Calls tests/lib/model.h.
#include "lib/model.h"

#include <gtest/gtest.h>

namespace tofu::test {
namespace {

constexpr unsigned senders = 2;
constexpr unsigned slots = 2;
constexpr unsigned messages[senders] = {2, 1};

/// Which rule is left out.
enum class Without {
    nothing,
    clearing,      ///< the slots are not cleared before the claim word is freed
    count,         ///< a claim without HELLO counts as an orphan, whatever the count says (case 3)
    second_look,   ///< is the HELLO there by now? (case 2)
    notice,        ///< a sender takes itself off the count before its HELLO has landed (case 2)
    credit,        ///< a sender writes into slots that were not reported
    closing_probe  ///< a probe under way when the ring is closed speaks of its next owner
};

enum Kind : std::uint8_t { none, hello, data, bye };
enum Status : std::uint8_t { open_status, give_back, closed };

struct Packet {
    std::uint8_t kind, owner, number, seq;
};
struct Block { ///< what the receiver writes into a sender's return block
    std::uint8_t written, consumed, status, serial;
};
enum SenderState : std::uint8_t { idle, claiming, won, lost, greeted, leaving, dead };
struct Sender {
    std::uint8_t state, counted, hello_landed, serial, sent, next_seq, consumed, leave;
    Packet out[2]; ///< on their way, in order
    Block back[1]; ///< on its way to it
    Block block;   ///< its return block
};
enum Probe : std::uint8_t { no_probe, asked, says_alive, says_dead, says_no_claim };
struct World {
    Sender s[senders];
    Packet slot[slots];
    std::uint8_t claim;    ///< 1 + the owner, 0: free
    std::uint8_t inbound;  ///< the receiver knows of the claim
    std::uint8_t greeted, serial, next_seq, reported, asked_back, gone, probe, probe_for, closing, wrong;
    std::uint8_t taken[senders];
};

Packet* room(Sender& s)
{
    for (Packet& p : s.out)
        if (p.kind == none)
            return &p;
    return nullptr;
}
Block* room_back(Sender& s)
{
    for (Block& b : s.back)
        if (b.written == 0)
            return &b;
    return nullptr;
}

void close_ring(World& w, Without without)
{
    w.gone = 0;
    if (w.probe != no_probe && without != Without::closing_probe) {
        w.closing = 1;
        return;
    }
    w.closing = w.inbound = w.greeted = w.serial = w.reported = w.asked_back = 0;
    w.next_seq = 1;
    if (without != Without::clearing)
        for (Packet& p : w.slot)
            p = {};
    w.claim = 0;
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
    if (s.state == dead)
        return;
    if (i == 0)
        step("A dies", [](World&, Sender& a) { // nothing of it arrives any more
            a.state = dead;
            a.out[0] = a.out[1] = {};
            a.back[0] = a.block = {};
            a.serial = a.next_seq = a.consumed = a.counted = a.hello_landed = a.leave = a.sent = 0;
        });
    if (s.out[0].kind != none)
        step("a packet lands", [](World& w, Sender& a) {
            w.slot[(a.out[0].seq - 1) % slots] = a.out[0];
            a.hello_landed |= a.out[0].kind == hello;
            a.out[0] = a.out[1];
            a.out[1] = {};
        });
    if (s.back[0].written != 0)
        step("a report lands", [](World&, Sender& a) {
            a.block = a.back[0];
            a.back[0] = {};
        });
    if (s.counted != 0 && (s.hello_landed != 0 || (without == Without::notice && s.state == greeted)))
        step("the notice of HELLO", [](World&, Sender& a) { a.counted = 0; });
    if (s.block.written != 0 && s.block.serial == s.serial &&
        (s.state == greeted || s.state == leaving))
        step("looks at its return block", [](World&, Sender& a) {
            const unsigned sent = a.next_seq - 1u;
            if (static_cast<std::uint8_t>(sent - a.block.consumed) <= static_cast<std::uint8_t>(sent - a.consumed))
                a.consumed = a.block.consumed;
            if (a.block.status == give_back)
                a.leave |= a.state == greeted;
            if (a.block.status == closed && a.state == leaving)
                a.state = idle;
            a.block.written = a.block.consumed = a.block.status = a.block.serial = 0;
        });
    switch (static_cast<SenderState>(s.state)) {
    case idle:
        if (s.sent < messages[i] && s.counted == 0)
            step("counts itself, posts its CSWAP", [](World&, Sender& a) {
                a.counted = 1;
                a.hello_landed = 0;
                a.state = claiming;
            });
        break;
    case claiming:
        step("the CSWAP is carried out", [i](World& w, Sender& a) {
            a.state = w.claim == 0 ? won : lost;
            if (w.claim == 0)
                w.claim = static_cast<std::uint8_t>(1 + i);
        });
        break;
    case lost:
        step("the ring was taken", [](World&, Sender& a) {
            a.counted = 0;
            a.state = idle;
        });
        break;
    case won:
        if (room(const_cast<Sender&>(s)) != nullptr)
            step("HELLO", [i](World&, Sender& a) {
                a.serial = (a.serial + 1) % 2;
                a.next_seq = 2;
                a.consumed = a.leave = 0;
                a.block = {};
                *room(a) = {hello, static_cast<std::uint8_t>(i), 0, 1};
                a.state = greeted;
            });
        break;
    case greeted: {
        if (room(const_cast<Sender&>(s)) == nullptr || (s.next_seq - 1u - s.consumed >= slots && without != Without::credit))
            break;
        if (s.sent < messages[i])
            step("a message", [i](World&, Sender& a) {
                *room(a) = {data, static_cast<std::uint8_t>(i), a.sent++, a.next_seq++};
            });
        // Asked, or because its channel is wanted for another peer.
        if (s.leave != 0 || s.sent == messages[i])
            step(s.leave != 0 ? "BYE, as asked" : "BYE", [i](World&, Sender& a) {
            *room(a) = {bye, static_cast<std::uint8_t>(i), 0, a.next_seq++};
            a.leave = 0;
            a.state = leaving;
        });
        break;
    }
    case leaving:
    case dead: break;
    }
}

template <class Emit>
void receiver_steps(const World& now, Without without, Emit&& emit)
{
    const auto step = [&](const char* name, auto&& change) {
        World next = now;
        change(next);
        emit(name, next);
    };
    if (now.inbound == 0) {
        if (now.claim != 0)
            step("R finds the claim", [](World& w) { w.inbound = 1; });
    } else if (now.closing == 0) {
        const Packet& p = now.slot[(now.next_seq - 1) % slots];
        const bool there = p.kind != none && p.seq == now.next_seq;
        const Sender& owner = now.s[now.claim - 1];
        const bool must_answer = p.kind == bye && owner.state != dead;
        if (there && (!must_answer || room_back(const_cast<Sender&>(owner)) != nullptr))
            step("R takes a packet", [&](World& w) {
                if (p.owner + 1 != w.claim)
                    w.wrong = 1;
                w.next_seq++;
                if (p.kind == hello) {
                    w.greeted = 1;
                    w.serial = w.s[p.owner].serial;
                } else if (p.kind == data) {
                    if (w.taken[p.owner] != p.number)
                        w.wrong = 2;
                    w.taken[p.owner]++;
                } else {
                    if (must_answer)
                        *room_back(w.s[w.claim - 1]) = {1, static_cast<std::uint8_t>(w.next_seq - 1), closed, w.serial};
                    close_ring(w, without);
                }
            });
        const bool may_report = now.greeted != 0 && owner.state != dead && room_back(const_cast<Sender&>(owner)) != nullptr;
        if (may_report && now.next_seq - 1u - now.reported == slots)
            step("R reports", [](World& w) {
                w.reported = static_cast<std::uint8_t>(w.next_seq - 1);
                *room_back(w.s[w.claim - 1]) = {1, w.reported, w.asked_back != 0 ? give_back : open_status, w.serial};
            });
        if (may_report && now.asked_back == 0)
            step("R asks for the ring", [](World& w) {
                w.asked_back = 1;
                w.reported = static_cast<std::uint8_t>(w.next_seq - 1);
                *room_back(w.s[w.claim - 1]) = {1, w.reported, give_back, w.serial};
            });
        if (now.probe == no_probe && now.gone == 0)
            step("R probes", [](World& w) {
                w.probe = asked;
                w.probe_for = w.greeted;
            });
        if (now.gone != 0 && !there)
            step("R frees the ring of a dead one", [&](World& w) { close_ring(w, without); });
    }
    if (now.probe == asked && now.claim != 0) {
        const Sender& owner = now.s[now.claim - 1];
        step("the probe is answered", [&](World& w) {
            w.probe = owner.state == dead                                                  ? says_dead
                      : w.probe_for == 0 && (owner.counted == 0 || without == Without::count) ? says_no_claim
                                                                                           : says_alive;
        });
    }
    if (now.probe > asked)
        step("R reads the answer", [&](World& w) {
            const std::uint8_t says = w.probe;
            w.probe = no_probe;
            if (w.closing != 0) {
                close_ring(w, without);
                return;
            }
            if (w.inbound == 0)
                return;
            const Packet& p = w.slot[(w.next_seq - 1) % slots];
            const bool there = p.kind != none && p.seq == w.next_seq;
            w.gone |= says == says_dead || (says == says_no_claim &&
                                            (without == Without::second_look || (w.greeted == 0 && !there)));
        });
}

Verdict turnover(Without without)
{
    World first{};
    first.next_seq = 1;
    return search(
        first,
        [&](const World& now, auto emit) {
            for (unsigned i = 0; i < senders; i++)
                sender_steps(now, i, without, emit);
            receiver_steps(now, without, emit);
        },
        [](const World& w) -> const char* {
            return w.wrong == 1   ? "a packet counts as another sender's"
                   : w.wrong == 2 ? "a message is lost, doubled or out of order"
                                  : nullptr;
        },
        [](const World& w) { // the ring is free again or has a living owner; what the living sent has been taken
            const bool first_done = w.s[0].state == dead || w.taken[0] == messages[0];
            const bool free = w.claim == 0 || w.s[w.claim - 1].state != dead;
            return first_done && w.taken[1] == messages[1] && free;
        });
}

TEST(TurnoverModel, LosesDoublesAndMixesUpNothing)
{
    const Verdict verdict = turnover(Without::nothing);
    EXPECT_EQ(verdict.wrong, "");
    EXPECT_GT(verdict.states, 10'000u);
}

TEST(TurnoverModel, FailsWithoutAnyOfItsRules)
{
    for (const Without without : {Without::clearing, Without::count, Without::second_look, Without::notice,
                                  Without::credit, Without::closing_probe})
        EXPECT_NE(turnover(without).wrong, "") << static_cast<int>(without);
}

} // namespace
} // namespace tofu::test
