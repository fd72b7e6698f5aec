// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Members that die or leave, in a join, before an operation and within: over gates and by Puts, and if the library does
// not report accesses to closed memory.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "coll/lanes.h"
#include "prov/coll/circle.h"
#include "prov/lib/library.h"
#include "prov/lib/silent.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;

/// Words of the board above those of sessions.
enum : unsigned { turn = 600, results = 610 };

struct Way {
    const char* name;
    const char* gates;
    bool silent;
};
void PrintTo(const Way& way, std::ostream* stream) // found by GoogleTest
{
    *stream << way.name;
}
void begin(const Way& way)
{
    setenv("FI_TOFU_GATES", way.gates, 1);
    if (way.silent)
        fall_silent(std::chrono::milliseconds(200));
}

struct Leaving : testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Leaving,
                         testing::Values(Way{"Gates", "on", false}, Way{"Puts", "off", false},
                                         Way{"GatesSilent", "on", true}, Way{"PutsSilent", "off", true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Leaving, AMemberThatDiesEndsWhatIsUnderWayByAnError)
{
    const auto ends = run_processes(4, [](const Rank& rank) {
        begin(GetParam());
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        circle.session.barrier();
        if (rank.number == 2)
            std::_Exit(0);
        std::uint64_t in = 1, out = 0;
        for (int i = 0; i < 3; i++)
            ASSERT_EQ(fi_allreduce(circle.session.ep, &in, 1, nullptr, &out, nullptr, fi_mc_addr(mc), FI_UINT64, FI_SUM,
                                   0, &in),
                      0);
        for (int i = 0; i < 3; i++)
            EXPECT_NE(circle.error_of(&in), 0);
        // And so does what is called later, at once.
        ASSERT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), &in), 0);
        EXPECT_NE(circle.error_of(&in), 0);
        // The others go on without it.
        fid_mc* const rest = circle.join({3, 0, 1});
        circle.barrier(rest);
        for (fid_mc* group : circle.groups)
            EXPECT_EQ(fi_close(&group->fid), 0);
        circle.groups.clear();
        rank.set(results + rank.number, 1);
        EXPECT_TRUE(wait_until([&] { return rank.get(results) + rank.get(results + 1) + rank.get(results + 3) == 3; }));
        std::_Exit(testing::Test::HasFailure());
    });
    for (const auto& end : ends)
        EXPECT_TRUE(end.success()) << end.errors;
}

/// Registered under reserved STags, and not deregistered yet.
std::set<utofu_stadd_t> reserved;

void count_reserved()
{
    constexpr auto more = [](auto go_on, utofu_vcq_hdl_t vcq, void* at, std::size_t size, unsigned stag,
                             unsigned long flags, utofu_stadd_t* stadd) {
        const int code = go_on(vcq, at, size, stag, flags, stadd);
        if (code == UTOFU_SUCCESS)
            reserved.insert(*stadd);
        return code;
    };
    constexpr auto less = [](auto go_on, utofu_vcq_hdl_t vcq, utofu_stadd_t stadd, unsigned long flags) {
        reserved.erase(stadd);
        return go_on(vcq, stadd, flags);
    };
    surround<more, &vcq::Functions::reg_mem_with_stag>(library_functions());
    surround<less, &vcq::Functions::dereg_mem>(library_functions());
}

bool reads_nothing = false; ///< this process does not find others
unsigned inline_puts = 0;

/// A member gives up its join and closes its endpoint after another one has read its line, and before it has found that
/// member: no word comes.
TEST(GivenUp, AJoinThatFoundNoMemberEndsForThoseThatHaveFoundIt)
{
    expect_processes(2, [](const Rank& rank) {
        surround<[](auto go_on, auto... args) { return reads_nothing ? int{UTOFU_ERR_BUSY} : go_on(args...); },
                 &vcq::Functions::get>(library_functions());
        surround<[](auto go_on, auto... args) {
            inline_puts++;
            return go_on(args...);
        },
                 &vcq::Functions::put_piggyback>(library_functions());
        Circle circle(rank);
        reads_nothing = rank.number == 1;
        inline_puts = 0;
        fid_mc* const group = circle.begin_join(circle.all());
        std::uint32_t event = 0;
        if (rank.number == 1) {
            EXPECT_TRUE(wait_until([&] { return rank.get(results) != 0; }));
            circle.leave(group);
            circle.replace(1);
        } else {
            EXPECT_TRUE(wait_until([&] {
                (void)fi_eq_read(circle.eq, &event, nullptr, 0, 0);
                return inline_puts != 0; // its vote
            }));
            rank.set(results, 1);
            EXPECT_EQ(circle.end_join(group), FI_ESHUTDOWN);
            circle.leave(group);
            circle.replace(1);
        }
        reads_nothing = false;
        circle.barrier(circle.join(circle.all()));
    });
}

/// One member in turn gives up a join before or while the others call.
TEST(GivenUp, JoinsThatAllMembersHaveCalledGiveTheirMemoryBack)
{
    expect_processes(3, [](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "1", 1);
        count_reserved();
        Circle circle(rank);
        const std::size_t without = reserved.size();
        const auto all_have = [&](std::uint64_t done) { // with progress: a member that has left still tells others
            rank.set(results + rank.number, done);
            return wait_until([&] {
                (void)fi_cq_read(circle.session.cq, nullptr, 0);
                return rank.get(results) >= done && rank.get(results + 1) >= done && rank.get(results + 2) >= done;
            });
        };
        for (unsigned i = 0; i < 60; i++) {
            fid_mc* const group = circle.begin_join(circle.all());
            if (rank.number != i % 3)
                EXPECT_NE(circle.end_join(group), 0);
            circle.leave(group);
            if (i % 2 != 0)
                EXPECT_TRUE(all_have(i));
        }
        for (unsigned i = 0; i < 20; i++) {
            fid_mc* const group = circle.join(circle.all());
            circle.barrier(group);
            circle.leave(group);
            EXPECT_TRUE(all_have(100 + i));
        }
        EXPECT_EQ(reserved.size(), without + 1);
        EXPECT_TRUE(all_have(200));
    });
}

unsigned gets = 0;
unsigned questions = 0;              ///< whether an endpoint is open
bool loses_all = false;              ///< this process can put nothing
const Rank* refuses_local = nullptr; ///< reg_mem fails, once the other process has searched for long enough

/// fi_join_collective fails behind the allocation of the memory that neighbours write. None of them has found it, and
/// the next join of the same members has other memory.
TEST(GivenUp, ARejectedJoinIsNotFound)
{
    expect_processes(2, [](const Rank& rank) {
        surround<[](auto go_on, auto... args) {
            gets++;
            return go_on(args...);
        },
                 &vcq::Functions::get>(library_functions());
        surround<[](auto go_on, auto... args) {
            inline_puts++;
            return go_on(args...);
        },
                 &vcq::Functions::put_piggyback>(library_functions());
        surround<[](auto go_on, auto... args) {
            if (refuses_local == nullptr)
                return go_on(args...);
            EXPECT_TRUE(wait_until([&] { return refuses_local->get(results) != 0; }));
            return int{UTOFU_ERR_OUT_OF_MEMORY};
        },
                 &vcq::Functions::reg_mem>(library_functions());
        Circle circle(rank);
        circle.barrier(circle.join(circle.all()));
        circle.session.barrier();
        fid_mc* group = nullptr;
        if (rank.number == 0) {
            refuses_local = &rank;
            fid_av_set* const set = circle.set(circle.all());
            EXPECT_NE(fi_join_collective(circle.session.ep, FI_ADDR_NOTAVAIL, set, 0, &group, nullptr), 0);
            EXPECT_EQ(fi_close(&set->fid), 0);
            refuses_local = nullptr;
        } else {
            inline_puts = gets = 0;
            group = circle.begin_join(circle.all());
            EXPECT_TRUE(wait_until([&] {
                std::uint32_t event = 0;
                (void)fi_eq_read(circle.eq, &event, nullptr, 0, 0);
                return gets >= 50 || inline_puts != 0; // each row was read several times, or the vote was sent
            }));
            EXPECT_EQ(inline_puts, 0u);
            rank.set(results, 1);
        }
        if (rank.number == 0)
            group = circle.begin_join(circle.all());
        EXPECT_EQ(circle.end_join(group), 0);
        circle.barrier(group);
    });
}

bool holds_counts = false; ///< no count of consumed messages can be posted
unsigned counts_seen = 0;
std::vector<std::uint64_t> words_put;

/// A neighbour gives the memory of a lane to another group behind the last word.
TEST(Closed, NothingFollowsTheLastWordOfAMember)
{
    expect_processes(2, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", "off", 1);
        surround<[](auto go_on, utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, void* data, utofu_stadd_t at,
                    std::size_t size, auto... rest) {
            std::uint64_t word = 0;
            std::memcpy(&word, data, std::min(size, sizeof word));
            const bool is_count = size == sizeof word && word < 1u << 24;
            counts_seen += is_count;
            if (is_count && holds_counts)
                return int{UTOFU_ERR_BUSY};
            if (size == sizeof word)
                words_put.push_back(word);
            return go_on(vcq, peer, data, at, size, rest...);
        },
                 &vcq::Functions::put_piggyback>(library_functions());
        Circle circle(rank);
        fid_mc* const group = circle.join(circle.all());
        std::vector<std::uint64_t> words(1500); // three messages
        holds_counts = true;
        ASSERT_EQ(fi_broadcast(circle.session.ep, words.data(), words.size(), nullptr, fi_mc_addr(group), 1, FI_UINT64,
                               0, &circle),
                  0);
        circle.session.expect(&circle, FI_COLLECTIVE);
        words_put.clear();
        circle.leave(group);
        holds_counts = false;
        if (rank.number == 0) {
            EXPECT_NE(counts_seen, 0u);
            for (unsigned i = 0; i < 1000; i++)
                (void)fi_cq_read(circle.session.cq, nullptr, 0);
            EXPECT_EQ(words_put.size(), 3u); // a word upwards and downwards, a count in one of these lanes
            EXPECT_EQ(coll::kind_of(words_put.back()), coll::Word::left);
        }
        circle.session.barrier();
    });
}

/// The survivors close all their groups with the dead member, one of them before it dies. It never says that it has
/// left.
TEST_P(Leaving, GroupsOfDeadMembersGiveTheirMemoryBack)
{
    const auto ends = run_processes(3, [](const Rank& rank) {
        constexpr unsigned many = 12;
        begin(GetParam());
        setenv("TOFU_SIM_PPN", "1", 1);
        count_reserved();
        Circle circle(rank);
        const std::size_t without = reserved.size();
        std::vector<fid_mc*> groups;
        for (unsigned i = 0; i < many; i++)
            groups.push_back(circle.join(circle.all()));
        const auto all_survivors_have = [&](std::uint64_t done) {
            rank.set(results + rank.number, done);
            return wait_until([&] {
                (void)fi_cq_read(circle.session.cq, nullptr, 0);
                return rank.get(results) >= done && rank.get(results + 1) >= done;
            });
        };
        circle.session.barrier();
        if (rank.number == 2) {
            EXPECT_TRUE(wait_until([&] { return rank.get(results) >= 1 && rank.get(results + 1) >= 1; }));
            std::_Exit(testing::Test::HasFailure());
        }
        circle.leave(groups.back());
        groups.pop_back();
        EXPECT_TRUE(all_survivors_have(1));
        for (fid_mc* group : groups) {
            EXPECT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(group), &circle), 0);
            EXPECT_NE(circle.error_of(&circle), 0);
        }
        for (fid_mc* group : groups)
            circle.leave(group);
        EXPECT_TRUE(all_survivors_have(2));
        EXPECT_GT(reserved.size(), without + 1);
        // Joins look for memory that is free. One arena is kept.
        for (unsigned i = 0; i < 40; i++) {
            fid_mc* const rest = circle.join({0, 1});
            circle.barrier(rest);
            circle.leave(rest);
            EXPECT_TRUE(all_survivors_have(3 + i));
        }
        EXPECT_EQ(reserved.size(), without + 1);
        EXPECT_TRUE(all_survivors_have(100));
        std::_Exit(testing::Test::HasFailure());
    });
    for (const auto& end : ends)
        EXPECT_TRUE(end.success()) << end.errors;
}

/// Rank 1 gives up each join, and closes its endpoint, before rank 0 has called: it never says that it has left.
TEST_P(Leaving, GroupsOfClosedEndpointsGiveTheirMemoryBack)
{
    expect_processes(2, [](const Rank& rank) {
        begin(GetParam());
        count_reserved();
        Circle circle(rank);
        const std::size_t without = reserved.size();
        for (unsigned i = 0; i < 12; i++) {
            if (rank.number == 1) {
                circle.leave(circle.begin_join(circle.all()));
                circle.close_endpoint();
            }
            circle.session.barrier();
            if (rank.number == 0) {
                fid_mc* const group = circle.begin_join(circle.all());
                EXPECT_NE(circle.end_join(group), 0);
                circle.leave(group);
            }
            circle.session.barrier();
            circle.replace(1);
        }
        for (unsigned i = 0; i < 40; i++) {
            fid_mc* const group = circle.join(circle.all());
            circle.barrier(group);
            circle.leave(group);
            rank.set(results + rank.number, i + 1);
            EXPECT_TRUE(wait_until([&] {
                (void)fi_cq_read(circle.session.cq, nullptr, 0);
                return rank.get(results) > i && rank.get(results + 1) > i;
            }));
        }
        if (rank.number == 0)
            EXPECT_EQ(reserved.size(), without + 1);
        circle.session.barrier();
    });
}

/// Barriers until one ends with an error, which it returns.
int barriers_until_error(Circle& circle, fid_mc* mc)
{
    for (;;) {
        EXPECT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), &circle), 0);
        fi_cq_data_entry entry{};
        ssize_t got = -FI_EAGAIN;
        EXPECT_TRUE(wait_until([&] { return (got = fi_cq_read(circle.session.cq, &entry, 1)) != -FI_EAGAIN; }));
        if (got == 1)
            continue;
        fi_cq_err_entry error{};
        EXPECT_EQ(fi_cq_readerr(circle.session.cq, &error, 0), 1);
        return error.err;
    }
}

TEST_P(Leaving, ADeathWithinABarrierIsReportedToTheOthers)
{
    for (unsigned round = 0; round < 8; round++) {
        const auto ends = run_processes(5, [round](const Rank& rank) {
            begin(GetParam());
            setenv("TOFU_SIM_PPN", "1", 1);
            Circle circle(rank);
            fid_mc* const mc = circle.join(circle.all());
            circle.session.barrier();
            if (rank.number == round % 5) {
                for (unsigned i = 0; i < 5 * round; i++)
                    circle.barrier(mc);
                if (round % 2 != 0)
                    std::_Exit(0);
                (void)fi_barrier(circle.session.ep, fi_mc_addr(mc), &circle);
                std::_Exit(0);
            }
            EXPECT_EQ(barriers_until_error(circle, mc), GetParam().silent ? FI_ETIMEDOUT : FI_EHOSTDOWN);
            rank.set(results + rank.number, 1);
            EXPECT_TRUE(wait_until([&] {
                unsigned done = 0;
                for (unsigned r = 0; r < 5; r++)
                    done += rank.get(results + r) != 0;
                return done == 4;
            }));
            std::_Exit(testing::Test::HasFailure());
        });
        for (const auto& end : ends)
            EXPECT_TRUE(end.success()) << end.errors;
    }
}

bool stuck = false; ///< the gates of this process never end a round

void hold_gates()
{
    constexpr auto poll = [](auto go_on, auto... all) { return stuck ? UTOFU_ERR_NOT_COMPLETED : go_on(all...); };
    surround<poll, &vcq::Functions::poll_barrier>(library_functions());
}

struct LeftBehindBy {
    unsigned members = 4;
    unsigned dead = 0;   ///< 0: none
    bool goes_on = true; ///< the others call the next operation
};

/// Rank 0's round does not end, and the others have ended the operation. Its reason is another member's death, or
/// unknown.
void leave_one_behind(const LeftBehindBy& by)
{
    const auto ends = run_processes(by.members, [&by](const Rank& rank) {
        setenv("FI_TOFU_GATES", "on", 1);
        setenv("TOFU_SIM_PPN", "1", 1);
        hold_gates();
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        circle.barrier(mc);
        circle.session.barrier();
        stuck = rank.number == 0;
        if (rank.number == 0) {
            EXPECT_EQ(barriers_until_error(circle, mc), by.dead != 0 ? FI_EHOSTDOWN : FI_EINVAL);
            rank.set(results, 1);
            std::_Exit(testing::Test::HasFailure());
        }
        circle.barrier(mc);
        if (rank.number == by.dead)
            std::_Exit(0);
        if (by.goes_on) // for the others a probe shows it
            EXPECT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), &circle), 0);
        EXPECT_TRUE(wait_until([&] {
            (void)fi_cq_read(circle.session.cq, nullptr, 0);
            return rank.get(results) != 0;
        }));
        std::_Exit(testing::Test::HasFailure());
    });
    for (const auto& end : ends)
        EXPECT_TRUE(end.success()) << end.errors;
}

TEST(LeftBehind, AMemberWhoseRoundADeathKeepsFromItsEndHearsOfTheDeath)
{
    leave_one_behind({.dead = 2});
}

/// The dead member is no neighbour by lanes, and those that are call nothing more.
TEST(LeftBehind, AMemberWithoutAReportFindsTheDeathItself)
{
    leave_one_behind({.members = 8, .dead = 3, .goes_on = false});
}

TEST(LeftBehind, WhereAllLiveTheMembersHaveCalledDifferentThings)
{
    leave_one_behind({});
}

TEST_P(Leaving, AMemberThatDiesEndsTheJoinByAnError)
{
    const auto ends = run_processes(3, [](const Rank& rank) {
        begin(GetParam());
        Circle circle(rank);
        circle.session.barrier();
        if (rank.number == 1)
            std::_Exit(0);
        fid_mc* const mc = circle.begin_join(circle.all());
        EXPECT_NE(circle.end_join(mc), 0);
        rank.set(results + rank.number, 1);
        EXPECT_TRUE(wait_until([&] { return rank.get(results) + rank.get(results + 2) == 2; }));
        std::_Exit(testing::Test::HasFailure());
    });
    for (const auto& end : ends)
        EXPECT_TRUE(end.success()) << end.errors;
}

/// The domain of the member lives. Rank 4 is no neighbour of rank 1; its neighbour 2 calls when the others have ended.
TEST_P(Leaving, AMemberWhoseEndpointHasClosedEndsTheJoinByAnError)
{
    expect_processes(6, [](const Rank& rank) {
        begin(GetParam());
        Circle circle(rank);
        if (rank.number == 1)
            circle.close_endpoint();
        circle.session.barrier();
        const auto have_ended = [&] {
            return rank.get(results) + rank.get(results + 3) + rank.get(results + 4) + rank.get(results + 5) == 4;
        };
        if (rank.number == 2)
            EXPECT_TRUE(wait_until(have_ended));
        if (rank.number != 1) {
            fid_mc* const mc = circle.begin_join(circle.all());
            EXPECT_EQ(circle.end_join(mc), FI_EHOSTDOWN);
            rank.set(results + rank.number, 1);
            EXPECT_TRUE(wait_until([&] {
                (void)fi_cq_read(circle.session.cq, nullptr, 0);
                return have_ended() && rank.get(results + 2) == 1;
            }));
            circle.leave(mc);
        }
        circle.replace(1);
        circle.barrier(circle.join(circle.all()));
    });
}

/// Rank 1 opens an endpoint again under the number of the closed one.
TEST_P(Leaving, TheSuccessorOfAClosedEndpointIsNoMember)
{
    expect_processes(3, [](const Rank& rank) {
        begin(GetParam());
        EndpointNumbers::most = 4; // for the endpoint, and for memory of groups
        Circle circle(rank);
        circle.leave(circle.join(circle.all()));
        const EndpointAddress before = circle.address_of(1);
        EndpointAddress after{};
        for (unsigned i = 0; i == 0 || (i < 8 && after.index != before.index); i++) {
            circle.replace(1);
            after = circle.address_of(1);
        }
        EXPECT_EQ(after.index, before.index);
        EXPECT_NE(after.nonce, before.nonce);
        fi_addr_t closed = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(circle.session.av, &before, 1, &closed, 0, nullptr), 1);
        if (rank.number != 1) {
            fid_mc* const mc = circle.begin_join({0, closed, 2});
            EXPECT_EQ(circle.end_join(mc), FI_EHOSTDOWN);
        }
        circle.barrier(circle.join(circle.all()));
        circle.session.barrier();
    });
}

/// Rank 1 has an endpoint that is not enabled, then enabled, and joins late. Each time the others ask many times.
TEST_P(Leaving, AMemberThatIsLateIsWaitedFor)
{
    expect_processes(3, [](const Rank& rank) {
        begin(GetParam());
        surround<[](auto go_on, utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                    std::size_t size, auto... rest) {
            questions += size == sizeof(std::uint64_t);
            return go_on(vcq, peer, local, remote, size, rest...);
        },
                 &vcq::Functions::get>(library_functions());
        Circle circle(rank);
        circle.replace(1, false);
        fid_mc* mc = nullptr;
        if (rank.number != 1)
            mc = circle.begin_join(circle.all());
        for (const unsigned stage : {1, 2}) {
            if (rank.number != 1) {
                questions = 0;
                std::uint32_t event = 0;
                EXPECT_TRUE(wait_until([&] {
                    EXPECT_EQ(fi_eq_read(circle.eq, &event, nullptr, 0, 0), -FI_EAGAIN);
                    return questions >= 5;
                }));
            }
            circle.session.barrier();
            if (rank.number == 1 && stage == 1)
                circle.enable();
            circle.session.barrier();
        }
        if (rank.number == 1)
            mc = circle.begin_join(circle.all());
        EXPECT_EQ(circle.end_join(mc), 0);
        circle.barrier(mc);
    });
}

/// Rank 1 finds rank 0, takes it for dead, and closes its endpoint. Rank 0 has found it.
TEST(GivenUp, AJoinEndsIfAMemberHasTakenThisOneForDead)
{
    expect_processes(2, [](const Rank& rank) {
        surround<[](auto go_on, auto... args) { return loses_all ? int{UTOFU_ERR_INVALID_ARG} : go_on(args...); },
                 &vcq::Functions::put_piggyback>(library_functions());
        surround<[](auto go_on, auto... args) { return loses_all ? int{UTOFU_ERR_INVALID_ARG} : go_on(args...); },
                 &vcq::Functions::put>(library_functions());
        surround<[](auto go_on, auto... args) {
            inline_puts++;
            return go_on(args...);
        },
                 &vcq::Functions::put_piggyback>(library_functions());
        Circle circle(rank);
        loses_all = rank.number == 1;
        inline_puts = 0;
        fid_mc* group = nullptr;
        if (rank.number == 1) {
            EXPECT_TRUE(wait_until([&] { return rank.get(results) != 0; }));
            group = circle.begin_join(circle.all());
            rank.set(results + 1, 1);
            EXPECT_TRUE(wait_until([&] { return rank.get(results) == 2; }));
            EXPECT_NE(circle.end_join(group), 0);
            circle.leave(group);
            circle.close_endpoint();
        } else {
            group = circle.begin_join(circle.all());
            rank.set(results, 1);
            std::uint32_t event = 0;
            EXPECT_TRUE(wait_until([&] {
                (void)fi_eq_read(circle.eq, &event, nullptr, 0, 0);
                return inline_puts != 0; // its vote: it has found the other one
            }));
            rank.set(results, 2);
            EXPECT_EQ(circle.end_join(group), FI_EHOSTDOWN);
        }
        loses_all = false;
        circle.session.barrier();
    });
}

TEST_P(Leaving, ClosingCancelsAndTellsTheOthers)
{
    expect_processes(3, [](const Rank& rank) {
        begin(GetParam());
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        std::uint64_t in = 1, out = 0;
        if (rank.number == 0) { // has called, and leaves before the others call
            ASSERT_EQ(fi_allreduce(circle.session.ep, &in, 1, nullptr, &out, nullptr, fi_mc_addr(mc), FI_UINT64, FI_SUM,
                                   0, &in),
                      0);
            circle.leave(mc);
            EXPECT_EQ(circle.error_of(&in), FI_ECANCELED);
            circle.session.barrier();
        } else {
            circle.session.barrier();
            ASSERT_EQ(fi_allreduce(circle.session.ep, &in, 1, nullptr, &out, nullptr, fi_mc_addr(mc), FI_UINT64, FI_SUM,
                                   0, &in),
                      0);
            // What the first has begun on gates ends well; what comes behind it doesn't.
            if (GetParam().gates == std::string("on")) {
                fi_cq_data_entry entry{};
                fi_cq_err_entry error{};
                ASSERT_TRUE(wait_until([&] { return fi_cq_read(circle.session.cq, &entry, 1) != -FI_EAGAIN; }));
                (void)fi_cq_readerr(circle.session.cq, &error, 0);
                ASSERT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), &in), 0);
            }
            EXPECT_NE(circle.error_of(&in), 0);
        }
        circle.session.barrier();
    });
}

/// Rank 3 is no neighbour of rank 0, which leaves. All its neighbours have left, too, when it looks at their words.
TEST_P(Leaving, AMemberThatLooksLateHearsThatAnotherHasLeft)
{
    expect_processes(6, [](const Rank& rank) {
        begin(GetParam());
        Circle circle(rank);
        fid_mc* const mc = circle.join(circle.all());
        circle.session.barrier();
        const auto have_left = [&] {
            return rank.get(results + 1) + rank.get(results + 2) + rank.get(results + 4) + rank.get(results + 5) == 4;
        };
        if (rank.number == 0) {
            circle.leave(mc);
        } else {
            ASSERT_EQ(fi_barrier(circle.session.ep, fi_mc_addr(mc), &circle), 0);
            if (rank.number == 3)
                EXPECT_TRUE(wait_until(have_left));
            EXPECT_EQ(circle.error_of(&circle), FI_ESHUTDOWN);
            if (rank.number != 3)
                circle.leave(mc);
            rank.set(results + rank.number, 1);
        }
        EXPECT_TRUE(wait_until([&] {
            (void)fi_cq_read(circle.session.cq, nullptr, 0);
            return have_left() && rank.get(results + 3) == 1;
        }));
        circle.session.barrier();
    });
}

TEST_P(Leaving, AJoinThatOneGivesUpEndsForTheOthers)
{
    expect_processes(3, [](const Rank& rank) {
        begin(GetParam());
        Circle circle(rank);
        if (rank.number == 2)
            ASSERT_TRUE(wait_until([&] { return rank.get(turn) == 1; }));
        fid_mc* const mc = circle.begin_join(circle.all());
        if (rank.number == 0) {
            circle.leave(mc);
            rank.set(turn, 1);
        } else {
            EXPECT_NE(circle.end_join(mc), 0);
        }
        circle.session.barrier();
    });
}

} // namespace
} // namespace tofu::test
