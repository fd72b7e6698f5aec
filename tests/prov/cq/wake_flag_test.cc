// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The flag of wait objects (cq/wait.h), its own code in every order of its steps: ringers, waiters that poll the
// descriptor, members of a wait set.
#include <gtest/gtest.h>

#include <cstdint>

#include "cq/wait.h"
#include "lib/model.h"

namespace {

using tofu::test::search;
using tofu::test::Verdict;

constexpr unsigned members = 2, ringers = 3, waiters = 2, longest = 8;

/// What an actor has seen since it began its call: run again, the call goes on from there.
struct Seen {
    std::uint8_t value[longest];
    std::uint8_t count;
};
enum Phase : std::uint8_t { trying, taking, asleep, absent };
struct Ringer {
    Seen seen;
    std::uint8_t rings_left;
};
struct Waiter {
    Seen seen;
    Phase phase;
};
struct State {
    std::uint8_t raised;
    std::uint8_t line; ///< readable where it is not 0
    std::uint8_t unread[members];
    Ringer ringer[ringers];
    Waiter waiter[waiters];
};

/// Stands for all that is shared: lets an actor take one step beyond what it has seen, and ends its call there.
struct Stop {};
class Step {
  public:
    Step(State& state, Seen& seen) : state_(state), seen_(seen) {}
    template <class Access>
    std::uint8_t operator()(Access&& access)
    {
        if (at_ < seen_.count)
            return seen_.value[at_++];
        if (taken_)
            throw Stop{};
        taken_ = true;
        seen_.count++;
        return seen_.value[at_++] = static_cast<std::uint8_t>(access(state_));
    }

  private:
    State& state_;
    Seen& seen_;
    unsigned at_ = 0;
    bool taken_ = false;
};
struct Flag {
    Step& step;
    bool exchange(bool value, std::memory_order) const
    {
        return step([&](State& s) { return std::exchange(s.raised, std::uint8_t{value}); }) != 0;
    }
};
struct Line {
    Step& step;
    void write() const
    {
        step([](State& s) { return ++s.line; });
    }
    void read() const
    {
        step([](State& s) { return std::exchange(s.line, std::uint8_t{0}) != 0; });
    }
};

/// How waiters go about it; the first is the provider's way.
enum class Way { ours, clears_first, clears_each, keeps_quiet };

void clear(Way way, Flag flag, Line line)
{
    if (way != Way::clears_first)
        tofu::wake_flag::clear(flag, line);
    else if (flag.exchange(false, std::memory_order_acq_rel))
        line.read();
}

/// fi_trywait. True: something was found.
bool try_wait(Way way, Step& step)
{
    Flag flag{step};
    Line line{step};
    bool some = false;
    if (way != Way::clears_each)
        clear(way, flag, line);
    for (unsigned m = 0; m < members; m++) {
        if (way == Way::clears_each)
            clear(way, flag, line);
        some |= step([&](State& s) { return s.unread[m] != 0; }) != 0;
    }
    if (some && way != Way::keeps_quiet)
        tofu::wake_flag::raise(flag, line);
    return some;
}

/// Runs one step of a call; true where the call has ended.
template <class Call>
bool advance(State& state, Seen& seen, Call&& call)
{
    try {
        Step step(state, seen);
        call(step);
    } catch (const Stop&) {
        return false;
    }
    seen = {};
    return true;
}

/// Ringer i announces for a member of its own and raises it; waiter w reads its own member alone, or all where it is
/// alone.
Verdict play(Way way, const std::uint8_t (&rings)[ringers], unsigned sleepers)
{
    State first{};
    for (unsigned i = 0; i < ringers; i++)
        first.ringer[i].rings_left = rings[i];
    for (unsigned w = 0; w < waiters; w++)
        first.waiter[w].phase = w < sleepers ? trying : absent;
    const auto steps = [&](const State& now, auto emit) {
        for (unsigned i = 0; i < ringers; i++) {
            if (now.ringer[i].rings_left == 0)
                continue;
            State next = now;
            Ringer& r = next.ringer[i];
            if (advance(next, r.seen, [&](Step& step) {
                    step([&](State& s) { return ++s.unread[i % members]; });
                    Flag flag{step};
                    Line line{step};
                    tofu::wake_flag::raise(flag, line);
                }))
                r.rings_left--;
            emit("a ringer's step", next);
        }
        for (unsigned w = 0; w < sleepers; w++) {
            State next = now;
            Waiter& waiter = next.waiter[w];
            switch (now.waiter[w].phase) {
            case trying: {
                bool some = false;
                if (advance(next, waiter.seen, [&](Step& step) { some = try_wait(way, step); }))
                    waiter.phase = some ? taking : asleep;
                emit("a waiter tries", next);
                break;
            }
            case taking:
                for (unsigned m = 0; m < members; m++)
                    if (sleepers == 1 || m == w)
                        next.unread[m] = 0;
                waiter.phase = trying;
                emit("a waiter takes", next);
                break;
            case asleep:
                if (now.line == 0)
                    break;
                waiter.phase = trying;
                emit("a waiter wakes", next);
                break;
            case absent: break;
            }
        }
    };
    const auto good = [&](const State& s) {
        for (const Ringer& r : s.ringer)
            if (r.rings_left != 0)
                return false;
        for (unsigned w = 0; w < sleepers; w++)
            if (s.waiter[w].phase != asleep)
                return false;
        return s.unread[0] == 0 && s.unread[1] == 0;
    };
    return search(
        first, steps, [](const State&) -> const char* { return nullptr; }, good);
}

TEST(WakeFlagModel, NoThreadSleepsBesideAnEvent)
{
    const Verdict one = play(Way::ours, {2, 1, 1}, 1);
    EXPECT_EQ(one.wrong, "");
    EXPECT_GT(one.ends, 0u);
    const Verdict two = play(Way::ours, {1, 1, 0}, 2);
    EXPECT_EQ(two.wrong, "");
    EXPECT_GT(two.ends, 0u);
    RecordProperty("states", static_cast<int>(one.states + two.states));
}

/// What the model must find: each of the rules of wake_flag (cq/wait.h) is there for a reason.
TEST(WakeFlagModel, EveryOtherOrderLosesAWakeUp)
{
    const std::string lost = "no way out";
    EXPECT_EQ(play(Way::clears_first, {2, 0, 1}, 1).wrong.substr(0, lost.size()), lost);
    EXPECT_EQ(play(Way::clears_each, {1, 1, 0}, 1).wrong.substr(0, lost.size()), lost);
    EXPECT_EQ(play(Way::keeps_quiet, {1, 1, 0}, 2).wrong.substr(0, lost.size()), lost);
}

} // namespace
