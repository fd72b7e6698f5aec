// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A model of ring leases (cases L1 to L16 of docs/wire-protocol.md): one ring of two slots and two senders,
// of which one may die at any step; messages go as anonymous packets or through the ring. The ring begins at the same
// sequence for each owner. All orders of posts, arrivals, notices and looks are searched. Each rule that a lease rests
// on is left out once: the search then has to find what goes wrong.
#include "lib/model.h"

#include <gtest/gtest.h>

namespace tofu::test {
namespace {

constexpr unsigned senders = 2;
constexpr unsigned slots = 2;
constexpr unsigned messages[senders] = {2, 3};

/// Which rule is left out.
enum class Without {
    nothing,
    clearing,        ///< the slots are not cleared before the ring is granted
    anonymous_first, ///< the ring's first packet is taken before its owner's anonymous packets (case L16)
    waiting,         ///< a sender of a release sends anonymous packets at once (case L8)
    place,           ///< a revocation does not say where the ring is (case L6)
    credit,          ///< a sender writes into slots that were not reported
    closing_probe    ///< a probe under way when the ring is closed speaks of its next owner
};

enum Kind : std::uint8_t { none, anonymous, question, data, release };
enum Status : std::uint8_t { open_status, granted, denied, revoked_status, closed };

struct Packet {
    std::uint8_t kind, owner, number;
    std::uint8_t seq; ///< of a question: its serial number
};
struct Block { ///< what the receiver writes into a sender's credit block
    std::uint8_t written, consumed, place, status, serial;
};
enum SenderState : std::uint8_t { idle, asked, open, leaving, dead };
struct Sender {
    std::uint8_t state, serial, sent, next_seq, consumed, leave;
    Packet out[2];   ///< on their way, in order
    Packet inbox[2]; ///< its anonymous packets that have landed, in order
    Block back[1];   ///< on its way to it
    Block block;     ///< its credit block
};
enum Probe : std::uint8_t { no_probe, under_way, says_alive, says_dead };
struct World {
    Sender s[senders];
    Packet slot[slots];
    std::uint8_t owner; ///< 1 + it, 0: the ring is free
    std::uint8_t begun, serial, next_seq, reported, revoked, dead_owner, probe, closing, wrong;
    std::uint8_t taken[senders];
};

template <std::size_t n>
Packet* room(Packet (&list)[n])
{
    for (Packet& p : list)
        if (p.kind == none)
            return &p;
    return nullptr;
}
bool room(const Packet (&list)[2])
{
    return list[1].kind == none;
}
void shift(Packet (&list)[2])
{
    list[0] = list[1];
    list[1] = {};
}

void close_ring(World& w, Without without)
{
    w.dead_owner = 0;
    if (w.probe != no_probe && without != Without::closing_probe) {
        w.closing = 1;
        return;
    }
    w.closing = w.owner = w.begun = w.serial = w.reported = w.revoked = w.next_seq = 0;
}

void take(World& w, const Packet& p)
{
    if (w.taken[p.owner] != p.number)
        w.wrong = 2;
    w.taken[p.owner]++;
}

/// What a sender makes of its credit block.
void read_credit_block(Sender& a)
{
    const Block b = a.block;
    if (a.state == asked && (b.status == granted || b.status == revoked_status)) {
        if (b.place != 0) {
            a.state = open;
            a.next_seq = 1;
            a.consumed = a.leave = 0;
        }
    } else if (a.state == asked && b.status == denied) {
        a.state = idle;
    } else if ((a.state == open || a.state == leaving) && b.place == 0) {
        const unsigned sent = a.next_seq - 1u;
        if (static_cast<std::uint8_t>(sent - b.consumed) <= static_cast<std::uint8_t>(sent - a.consumed))
            a.consumed = b.consumed;
    }
    if (b.status == revoked_status)
        a.leave |= a.state == open;
    if (b.status == closed && a.state == leaving)
        a.state = idle;
    a.block = {};
}

/// Nothing of it arrives any more; what has landed is there.
void die(Sender& a)
{
    a.state = dead;
    a.out[0] = a.out[1] = {};
    a.back[0] = a.block = {};
    a.serial = a.next_seq = a.consumed = a.leave = a.sent = 0;
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
        step("A dies", [](World&, Sender& a) { die(a); });
    const bool to_ring = s.out[0].kind == data || s.out[0].kind == release;
    if (s.out[0].kind != none && (to_ring || room(s.inbox)))
        step("a packet lands", [&](World& w, Sender& a) {
            (to_ring ? w.slot[(a.out[0].seq - 1) % slots] : *room(a.inbox)) = a.out[0];
            shift(a.out);
        });
    if (s.back[0].written != 0)
        step("an answer lands", [](World&, Sender& a) {
            a.block = a.back[0];
            a.back[0] = {};
        });
    if (s.block.written != 0 && s.block.serial == s.serial)
        step("looks at its credit block", [](World&, Sender& a) { read_credit_block(a); });
    if (!room(s.out))
        return;
    const auto say = [i](Sender& a, Kind kind, std::uint8_t serial) {
        *room(a.out) = {kind, static_cast<std::uint8_t>(i), a.sent++, serial};
    };
    const bool may_send_anonymously =
        s.state == idle || s.state == asked || (s.state == leaving && without == Without::waiting);
    if (may_send_anonymously && s.sent < messages[i])
        step("an anonymous packet", [&](World&, Sender& a) { say(a, anonymous, 0); });
    if (s.state == idle && s.sent < messages[i])
        step("an anonymous packet that asks for a ring", [&](World&, Sender& a) {
            a.serial++;
            a.block = {};
            a.state = asked;
            say(a, question, a.serial);
        });
    if (s.state != open || (s.next_seq - 1u - s.consumed >= slots && without != Without::credit))
        return;
    if (s.sent < messages[i])
        step("a message", [i](World&, Sender& a) {
            *room(a.out) = {data, static_cast<std::uint8_t>(i), a.sent++, a.next_seq++};
        });
    // Asked, or because its channel is wanted for another peer.
    step(s.leave != 0 ? "release, as asked" : "release", [i](World&, Sender& a) {
        *room(a.out) = {release, static_cast<std::uint8_t>(i), 0, a.next_seq++};
        a.leave = 0;
        a.state = leaving;
    });
}

/// R takes an anonymous packet, which may ask for the ring.
void accept_anonymous(World& w, unsigned i, bool asks, Without without)
{
    Sender& a = w.s[i];
    take(w, a.inbox[0]);
    if (asks) {
        const bool free = w.owner == 0;
        if (a.state != dead)
            a.back[0] = {1, 0, free, free ? granted : denied, a.inbox[0].seq};
        if (free) {
            w.owner = static_cast<std::uint8_t>(1 + i);
            w.serial = a.inbox[0].seq;
            w.next_seq = 1;
            if (without != Without::clearing)
                for (Packet& p : w.slot)
                    p = {};
        }
    }
    shift(a.inbox);
}

/// Of the receiver, at a ring that has an owner.
template <class Step>
void steps_at_ring(const World& now, const Sender& owner, Without without, Step&& step)
{
    const Packet& p = now.slot[(now.next_seq - 1) % slots];
    const bool there = p.kind != none && p.seq == now.next_seq;
    const bool ready = now.begun != 0 || owner.inbox[0].kind == none || without == Without::anonymous_first;
    const bool must_answer = p.kind == release && owner.state != dead;
    if (there && ready && (!must_answer || owner.back[0].written == 0))
        step("R takes a packet", [&](World& w) {
            if (p.owner + 1 != w.owner)
                w.wrong = 1;
            w.begun = 1;
            w.next_seq++;
            if (p.kind == data) {
                take(w, p);
                return;
            }
            if (must_answer)
                w.s[w.owner - 1].back[0] = {1, static_cast<std::uint8_t>(w.next_seq - 1), 0, closed, w.serial};
            close_ring(w, without);
        });
    if (owner.state != dead && owner.back[0].written == 0) {
        const auto report = [&](World& w) {
            w.reported = static_cast<std::uint8_t>(w.next_seq - 1);
            const auto place = static_cast<std::uint8_t>(w.begun == 0 && without != Without::place);
            w.s[w.owner - 1].back[0] = {1, w.reported, place, w.revoked != 0 ? revoked_status : open_status, w.serial};
        };
        if (now.begun != 0 && now.next_seq - 1u - now.reported == slots)
            step("R reports", report);
        if (now.revoked == 0)
            step("R asks for the ring", [&](World& w) {
                w.revoked = 1;
                report(w);
            });
    }
    if (now.probe == no_probe && now.dead_owner == 0)
        step("R probes", [](World& w) { w.probe = under_way; });
    if (now.dead_owner != 0 && !there)
        step("R frees the ring of a dead one", [&](World& w) { close_ring(w, without); });
}

template <class Emit>
void receiver_steps(const World& now, Without without, Emit&& emit)
{
    const auto step = [&](const char* name, auto&& change) {
        World next = now;
        change(next);
        emit(name, next);
    };
    for (unsigned i = 0; i < senders; i++) {
        const Sender& s = now.s[i];
        const bool asks = s.inbox[0].kind == question;
        if (s.inbox[0].kind == none || (asks && s.state != dead && s.back[0].written != 0))
            continue;
        step("R takes an anonymous packet", [&](World& w) { accept_anonymous(w, i, asks, without); });
    }
    if (now.owner == 0)
        return;
    const Sender& owner = now.s[now.owner - 1];
    if (now.closing == 0)
        steps_at_ring(now, owner, without, step);
    if (now.probe == under_way)
        step("the probe is answered", [&](World& w) { w.probe = owner.state == dead ? says_dead : says_alive; });
    if (now.probe > under_way)
        step("R reads the answer", [&](World& w) {
            const std::uint8_t says = w.probe;
            w.probe = no_probe;
            if (w.closing != 0)
                close_ring(w, without);
            else
                w.dead_owner |= says == says_dead;
        });
}

Verdict ring_lease(Without without)
{
    return search(
        World{},
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
        [](const World& w) { // the ring is free again; what the living sent has been taken
            const bool first_done = w.s[0].state == dead || w.taken[0] == messages[0];
            return first_done && w.taken[1] == messages[1] && w.owner == 0;
        });
}

TEST(RingLeaseModel, LosesDoublesAndMixesUpNothing)
{
    const Verdict verdict = ring_lease(Without::nothing);
    EXPECT_EQ(verdict.wrong, "");
    EXPECT_GT(verdict.states, 10'000u);
}

TEST(RingLeaseModel, FailsWithoutAnyOfItsRules)
{
    for (const Without without : {Without::clearing, Without::anonymous_first, Without::waiting, Without::place,
                                  Without::credit, Without::closing_probe})
        EXPECT_NE(ring_lease(without).wrong, "") << static_cast<int>(without);
}

} // namespace
} // namespace tofu::test
