// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random collectives in random groups, several at a time, against a sequential model.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "prov/coll/circle.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

struct Running {
    Case what;
    unsigned number = 0; ///< in the group
    Bytes in, out;
};

struct Group {
    std::vector<fi_addr_t> members;
    fid_mc* mc = nullptr;  ///< null: this rank is no member
    unsigned number = ~0u; ///< of this rank in the group
};

Group random_group(Circle& circle, const Rank& rank, std::mt19937_64& random)
{
    Group group;
    group.members = circle.all();
    std::shuffle(group.members.begin(), group.members.end(), random);
    group.members.resize(1 + random() % group.members.size());
    for (unsigned i = 0; i < group.members.size(); i++)
        if (group.members[i] == rank.number)
            group.number = i;
    if (group.number != ~0u)
        group.mc = circle.join(group.members);
    return group;
}

/// Calls the collective. The result is `running` until its entry has come.
void start(Circle& circle, const Group& group, const Case& what, std::vector<std::unique_ptr<Running>>& running)
{
    auto run = std::make_unique<Running>();
    run->what = what;
    run->number = group.number;
    run->in = input_of(what, group.number);
    run->out = Bytes(out_bytes(what, group.number), std::byte{0xee});
    if (what.coll == FI_BROADCAST && group.number == what.root)
        run->out = run->in;
    ASSERT_EQ(circle.call(what, group.mc, run->in.data(), run->out.data(), run.get()), 0);
    running.push_back(std::move(run));
}

/// Reads an entry if there is one, and compares the result of its operation.
void read_one(Circle& circle, std::size_t& ended)
{
    fi_cq_data_entry entry{};
    const ssize_t ret = fi_cq_read(circle.session.cq, &entry, 1);
    ASSERT_TRUE(ret == 1 || ret == -FI_EAGAIN) << "an error entry";
    if (ret != 1)
        return;
    ended++;
    const Running& end = *static_cast<Running*>(entry.op_context);
    ASSERT_EQ(entry.flags, std::uint64_t{FI_COLLECTIVE});
    ASSERT_EQ(end.out, output_of(end.what, end.number))
        << "collective " << end.what.coll << " type " << end.what.type << " op " << end.what.op << " count "
        << end.what.count << " root " << end.what.root << " members " << end.what.members;
}

/// All ranks draw the same numbers, so that they know what the others do.
void random_groups(const Rank& rank, std::uint64_t seed, unsigned rounds, std::size_t most)
{
    Circle circle(rank);
    std::mt19937_64 random(seed);
    for (unsigned round = 0; round < rounds && !testing::Test::HasFailure(); round++) {
        std::vector<Group> groups(1 + random() % 3);
        for (Group& group : groups)
            group = random_group(circle, rank, random);
        std::vector<std::unique_ptr<Running>> running;
        std::size_t ended = 0;
        for (unsigned i = 0; i < 24; i++) {
            const Group& group = groups[random() % groups.size()];
            const Case what = random_case(random, static_cast<unsigned>(group.members.size()), most);
            const bool look = random() % 2 == 0;
            if (group.mc == nullptr)
                continue;
            start(circle, group, what, running);
            if (look)
                read_one(circle, ended);
        }
        ASSERT_TRUE(wait_until([&] {
            read_one(circle, ended);
            return ended == running.size() || testing::Test::HasFailure();
        })) << ended
            << " of " << running.size() << " operations end";
        for (const Group& group : groups)
            if (group.mc != nullptr)
                circle.leave(group.mc);
    }
}

/// Over gates where they can, and by Puts alone.
struct Collectives : testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gates, Collectives, testing::Values("on", "off"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Collectives, RandomOnesInRandomGroupsEndAsTheModelSays)
{
    expect_processes(5, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", GetParam(), 1);
        random_groups(rank, 11, 12, 300);
    });
}

TEST_P(Collectives, LongVectorsToo)
{
    expect_processes(4, [](const Rank& rank) {
        setenv("FI_TOFU_GATES", GetParam(), 1);
        random_groups(rank, 12, 4, 30000);
    });
}

TEST(CollectivesOfANode, OfSeveralProcessesOfANodeToo)
{
    expect_processes(7, [](const Rank& rank) {
        setenv("TOFU_SIM_PPN", "3", 1);
        random_groups(rank, 13, 4, 60);
    });
}

} // namespace
} // namespace tofu::test
