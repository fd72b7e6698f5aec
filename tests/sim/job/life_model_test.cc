// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Joining and leaving a job, as job/job.cc does it, in every order of steps, with processes killed at any of them.
//
// Three processes join a job, take the same CQ, and leave; one more comes from another job and sweeps. Any of them can
// be killed at each step, and each check of another may have no result (no descriptor left). No running process may
// lose its slot, its CQ or the job's files. If an unknown result is taken for "gone", one does.
#include "lib/model.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tofu::sim::test {
namespace {

constexpr unsigned num_members = 3;
constexpr uint8_t nobody = 255;

enum Step : uint8_t {
    outside, // next: waits for the lock of the directory
    locked,  // has it: checks whether any process is in the file, and starts over if not
    checked, // takes a slot
    member,  // may take the CQ; leaves
    leaving, // has the lock again, has given its slot back
    done,
    dead,
};

struct State {
    uint8_t step[num_members];
    uint8_t file_of[num_members]; // number of the file that it has open
    uint8_t slot_of[num_members]; // its slot there
    uint8_t slots[2];             // of the job file: the process in it
    uint8_t cq;                   // whose the CQ is, as the file says
    uint8_t lock;                 // of the directory: its holder
    uint8_t exists;               // the directory and its file
    uint8_t file;                 // its number: another one each time it is made
    uint8_t sweeps;               // that the other job still makes
    uint8_t robbed;               // a running process has lost something
    uint8_t kills;                // that may still come
    uint8_t unknowns;             // looks that may still fail
};

// What the looker believes, and what is left of the failures afterwards.
struct Look {
    bool may_run;
    uint8_t unknowns;
};

bool runs(const State& s, uint8_t who)
{
    return who != nobody && s.step[who] != dead && s.step[who] != done;
}

// Calls `then` for each possible result of a check of a member.
template <bool Unknown_is_gone, typename Then>
void look_at(const State& s, uint8_t who, Then&& then)
{
    then(Look{runs(s, who), s.unknowns});
    if (who != nobody && s.unknowns != 0)
        then(Look{!Unknown_is_gone, static_cast<uint8_t>(s.unknowns - 1)});
}

// A slot or CQ changes hands, or the files go.
void rob(State& s, uint8_t owner)
{
    s.robbed |= runs(s, owner) && s.step[owner] != leaving ? 1 : 0;
}

// True if a process is in the file. Both slots are checked.
template <bool Unknown_is_gone, typename Then>
void look_at_all(const State& s, Then&& then)
{
    look_at<Unknown_is_gone>(s, s.slots[0], [&](Look first) {
        State next = s;
        next.unknowns = first.unknowns;
        look_at<Unknown_is_gone>(next, s.slots[1], [&](Look second) {
            then(Look{first.may_run || second.may_run, second.unknowns});
        });
    });
}

void remove_files(State& s)
{
    rob(s, s.slots[0]);
    rob(s, s.slots[1]);
    s.exists = 0;
    s.slots[0] = s.slots[1] = s.cq = nobody;
}

template <bool Unknown_is_gone, class Emit>
void take_slot_steps(const State& s, uint8_t me, Emit&& emit)
{
    look_at<Unknown_is_gone>(s, s.slots[0], [&](Look first) {
        State after = s;
        after.unknowns = first.unknowns;
        if (!first.may_run) {
            rob(after, s.slots[0]);
            after.slots[0] = me;
            after.slot_of[me] = 0;
            after.step[me] = member;
            after.lock = nobody;
            emit("take the first slot", after);
            return;
        }
        look_at<Unknown_is_gone>(after, s.slots[1], [&](Look second) {
            State last = after;
            last.unknowns = second.unknowns;
            last.lock = nobody;
            last.step[me] = done; // full
            if (!second.may_run) {
                rob(last, s.slots[1]);
                last.slots[1] = me;
                last.slot_of[me] = 1;
                last.step[me] = member;
            }
            emit("take the second slot, or find the job full", last);
        });
    });
}

template <bool Unknown_is_gone, class Emit>
void steps_of_a_member(const State& s, uint8_t me, Emit&& emit)
{
    State next = s;
    if (s.cq != me) {
        look_at<Unknown_is_gone>(s, s.cq, [&](Look look) {
            State after = s;
            after.unknowns = look.unknowns;
            if (!look.may_run) {
                rob(after, s.cq);
                after.cq = me;
                emit("take the CQ", after);
            }
        });
    }
    if (s.lock == nobody) {
        next.lock = me;
        next.step[me] = leaving;
        next.cq = s.cq == me ? nobody : s.cq;
        if (next.slots[s.slot_of[me]] == me && s.exists != 0 && s.file_of[me] == s.file)
            next.slots[s.slot_of[me]] = nobody;
        emit("give back CQ and slot, with the lock held", next);
    }
}

template <bool Unknown_is_gone, typename Emit>
void member_steps(const State& s, uint8_t me, Emit&& emit)
{
    State next = s;
    switch (static_cast<Step>(s.step[me])) {
    case outside:
        if (s.lock == nobody) {
            next.lock = me;
            next.step[me] = locked;
            next.file += s.exists == 0 ? 1 : 0;
            next.exists = 1;
            emit("lock the directory, which is made if need be", next);
        }
        break;
    case locked:
        look_at_all<Unknown_is_gone>(s, [&](Look look) {
            State after = s;
            after.unknowns = look.unknowns;
            if (!look.may_run) { // start the file over
                rob(after, s.slots[0]);
                rob(after, s.slots[1]);
                after.slots[0] = after.slots[1] = after.cq = nobody;
            }
            after.file_of[me] = s.file;
            after.step[me] = checked;
            emit("look into the file", after);
        });
        break;
    case checked: take_slot_steps<Unknown_is_gone>(s, me, emit); break;
    case member: steps_of_a_member<Unknown_is_gone>(s, me, emit); break;
    case leaving:
        look_at_all<Unknown_is_gone>(s, [&](Look look) {
            State after = s;
            after.unknowns = look.unknowns;
            if (!look.may_run)
                remove_files(after);
            after.step[me] = done;
            after.lock = nobody;
            emit("remove the files if no process is left", after);
        });
        break;
    case done:
    case dead: break;
    }
    if (s.kills != 0 && runs(s, me)) {
        State killed = s;
        killed.kills--;
        killed.step[me] = dead;
        killed.lock = s.lock == me ? nobody : s.lock; // the kernel gives it back
        emit("kill", killed);
    }
}

template <bool Unknown_is_gone>
tofu::test::Verdict search_all()
{
    State first{};
    for (unsigned i = 0; i < num_members; i++) {
        first.step[i] = outside;
        first.slot_of[i] = first.file_of[i] = nobody;
    }
    first.slots[0] = first.slots[1] = first.cq = first.lock = nobody;
    first.sweeps = 1;
    first.kills = 2;
    first.unknowns = 2;
    return tofu::test::search(
        first,
        [](const State& s, auto&& emit) {
            for (uint8_t me = 0; me < num_members; me++)
                member_steps<Unknown_is_gone>(s, me, emit);
            if (s.sweeps != 0 && s.lock == nobody && s.exists != 0) // in one step: it holds the lock
                look_at_all<Unknown_is_gone>(s, [&](Look look) {
                    State after = s;
                    after.unknowns = look.unknowns;
                    after.sweeps--;
                    if (!look.may_run)
                        remove_files(after);
                    emit("another job sweeps", after);
                });
        },
        [](const State& s) -> const char* {
            return s.robbed != 0 ? "a process that runs has lost its slot, its CQ or its files" : nullptr;
        },
        [](const State& s) {
            for (uint8_t me = 0; me < num_members; me++)
                if (runs(s, me))
                    return false;
            return s.lock == nobody;
        });
}

TEST(SimLifeModel, ARunningProcessLosesNothing)
{
    const auto verdict = search_all<false>();
    EXPECT_EQ(verdict.wrong, "");
    EXPECT_GT(verdict.states, 10'000u);
    EXPECT_GT(verdict.ends, 100u);
}

TEST(SimLifeModel, FindsTheProcessThatIsTakenForDeadWhereUnknownMeansGone)
{
    const auto verdict = search_all<true>();
    EXPECT_NE(verdict.wrong.find("has lost its slot"), std::string::npos) << verdict.states << " states";
}

} // namespace
} // namespace tofu::sim::test
