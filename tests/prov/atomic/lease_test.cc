// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The lease of a wide atomic's lock word (atomic/wide.h) as a model with time: initiators that sleep, are late or die
// at every step, in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "atomic/wide.h"
#include "lib/model.h"

namespace {

using tofu::test::search;
using tofu::test::Verdict;

constexpr unsigned most_initiators = 3;
constexpr std::uint8_t hold_at_most = 1, break_after = 3; ///< ticks
static_assert(tofu::WideRunner::hold_at_most * 3 <= tofu::WideRunner::break_after);

/// Each adds a bit of its own to the element.
enum Phase : std::uint8_t {
    trying, ///< -> taken | trying: the CSWAP
    taken,  ///< -> read: the Get behind it
    read,   ///< -> asked: the lease holds, by the clock | taken: it is renewed | trying: it is gone
    asked,  ///< -> put: the Put takes effect
    put,    ///< -> success | error: the CSWAP that frees the lock
    success,
    error,
    dead
};
struct Initiator {
    Phase phase;
    std::uint8_t token; ///< of its lease
    std::uint8_t value; ///< as read
    std::uint8_t age;   ///< of the lease: since the CSWAP was posted
    std::uint8_t seen;  ///< another initiator's token ...
    std::uint8_t watch; ///< ... and since when
};
struct State {
    std::uint8_t element;
    std::uint8_t lock;
    Initiator who[most_initiators];
};

struct Rules {
    unsigned initiators;
    bool asks_before_each_put; ///< else once: a Put that was refused as busy is posted whenever there is room
    bool hears_of_the_end;     ///< what the freeing CSWAP finds counts
    bool may_sleep;            ///< between a look at the clock and the post behind it
    bool may_die;
};

std::uint8_t fresh_token(const State& s, unsigned me)
{
    for (std::uint8_t token = static_cast<std::uint8_t>(me * 8 + 1);; token++)
        if (token != s.lock && std::none_of(std::begin(s.who), std::end(s.who),
                                            [&](const Initiator& i) { return i.token == token || i.seen == token; }))
            return token;
}

/// The CSWAP that takes, breaks or renews.
bool swap_in(State& s, unsigned me, std::uint8_t expect)
{
    Initiator& i = s.who[me];
    const std::uint8_t token = fresh_token(s, me);
    if (s.lock != expect) {
        if (i.seen != s.lock)
            i.watch = 0;
        i.seen = s.lock;
        i.token = 0;
        i.phase = trying;
        return false;
    }
    s.lock = i.token = token;
    i.age = i.seen = i.watch = 0;
    i.phase = taken;
    return true;
}

template <class Emit>
void step(const Rules& rules, const State& now, unsigned me, Emit&& emit)
{
    State s = now;
    Initiator& i = s.who[me];
    switch (i.phase) {
    case trying:
        (void)swap_in(s, me, i.seen != 0 && i.watch >= break_after ? i.seen : 0);
        emit("CSWAP", s);
        return;
    case taken:
        i.value = s.element;
        i.phase = read;
        emit("Get", s);
        return;
    case read:
        if (i.age > hold_at_most) {
            (void)swap_in(s, me, i.token);
            emit("renew", s);
            return;
        }
        i.phase = asked;
        i.age = 0;
        emit("ask the clock", s);
        return;
    case asked:
        s.element = static_cast<std::uint8_t>(i.value | 1u << me);
        i.phase = put;
        i.value = 0;
        emit("Put", s);
        return;
    case put: {
        const bool held = s.lock == i.token;
        if (held)
            s.lock = 0;
        i = {held || !rules.hears_of_the_end ? success : error, 0, 0, 0, 0, 0};
        emit("free", s);
        return;
    }
    case success:
    case error:
    case dead: return;
    }
}

Verdict try_all(const Rules& rules)
{
    State first{};
    for (unsigned me = rules.initiators; me < most_initiators; me++)
        first.who[me].phase = dead;
    const auto ended = [](const Initiator& i) { return i.phase >= success; };
    const auto all_ended = [&](const State& s) { return std::all_of(std::begin(s.who), std::end(s.who), ended); };
    return search(
        first,
        [&](const State& now, auto&& emit) {
            for (unsigned me = 0; me < rules.initiators; me++) {
                step(rules, now, me, emit);
                if (!rules.may_die || ended(now.who[me]) || now.who[me].phase == trying)
                    continue;
                State s = now;
                s.who[me] = {dead, s.who[me].token, 0, 0, 0, 0};
                emit("dies", s);
            }
            State s = now;
            for (Initiator& i : s.who) {
                // A process that is awake posts its requests. A refused Put is late without any sleep.
                if (!rules.may_sleep && (i.phase == put || (i.phase == asked && rules.asks_before_each_put)))
                    return;
                if (i.phase == taken || i.phase == read)
                    i.age = std::min<std::uint8_t>(i.age + 1, hold_at_most + 1);
                if (i.phase == trying && i.seen != 0)
                    i.watch = std::min<std::uint8_t>(i.watch + 1, break_after);
            }
            emit("tick", s);
        },
        [&](const State& s) -> const char* {
            bool told = false; // an error, or a death: the sum is not taken for right
            std::uint8_t added = 0;
            for (unsigned me = 0; me < rules.initiators; me++) {
                told |= s.who[me].phase == error || (rules.may_sleep && s.who[me].phase == dead);
                if (s.who[me].phase == success)
                    added |= static_cast<std::uint8_t>(1u << me);
                if (!rules.may_sleep && s.who[me].phase == error)
                    return "an error without a reason";
            }
            return all_ended(s) && !told && (s.element & added) != added ? "an update is lost without a word" : nullptr;
        },
        all_ended);
}

TEST(LeaseModel, NothingIsLostWithoutSleep)
{
    const Verdict verdict = try_all({3, true, true, false, true});
    EXPECT_EQ(verdict.wrong, "");
    EXPECT_GT(verdict.states, 1000u);
    EXPECT_GT(verdict.ends, 3u);
}

TEST(LeaseModel, AHolderThatSleepsBeyondItsLeaseIsInformed)
{
    for (const Rules& rules : {Rules{2, true, true, true, true}, Rules{3, true, true, true, false}}) {
        const Verdict verdict = try_all(rules);
        EXPECT_EQ(verdict.wrong, "");
        EXPECT_GT(verdict.states, 500u);
    }
}

/// As it was: a Put that met a full queue went out without another look at the clock ...
TEST(LeaseModel, AskingOnceIsNotEnough)
{
    const Verdict verdict = try_all({2, false, false, false, false});
    EXPECT_NE(verdict.wrong.find("an update is lost without a word"), std::string::npos) << verdict.states;
}

/// ... and the result of the freeing CSWAP was not checked.
TEST(LeaseModel, AHolderThatDoesNotListenIsNotInformed)
{
    const Verdict verdict = try_all({2, true, false, true, false});
    EXPECT_NE(verdict.wrong.find("an update is lost without a word"), std::string::npos) << verdict.states;
}

} // namespace
