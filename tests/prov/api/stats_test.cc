// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What was counted (rdma/fi_ext_tofu.h; fi_tofu(7), "STATISTICS"): each way of a send moves its number and no other,
// numbers survive their endpoint, the table at the end says the same.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>

#include "prov/lib/objects.h"
#include "prov/lib/statistics.h"

namespace {

using namespace tofu::test;

/// What differs.
Numbers since(const Numbers& before, const Numbers& now)
{
    Numbers moved;
    for (const auto& [name, value] : now)
        if (value != before.at(name))
            moved[name] = value - before.at(name);
    return moved;
}

/// Two endpoints that talk; the first send has been.
struct Pair : Objects {
    explicit Pair(const Wishes& wishes = {}) : Objects(wishes)
    {
        cq = open_queue();
        from = add(cq, cq);
        to = add(cq, cq);
        while (counted("ring_granted") == 0 && !testing::Test::HasFailure())
            exchange(8);
    }
    void receive(std::size_t size)
    {
        must(static_cast<int>(fi_trecv(to, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr)));
    }
    void send(std::size_t size)
    {
        post(cq, [&] { return fi_tsend(from, out.data(), size, nullptr, 1, 1, nullptr); });
    }
    void finish(int entries = 2)
    {
        ASSERT_TRUE(eventually([&] {
            fi_cq_tagged_entry entry{};
            return (entries -= fi_cq_read(cq, &entry, 1) == 1) == 0;
        }));
    }
    void exchange(std::size_t size)
    {
        receive(size);
        send(size);
        finish();
    }

    /// Eight bytes the other way.
    void back()
    {
        must(static_cast<int>(fi_trecv(from, in.data(), 8, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr)));
        post(cq, [&] { return fi_tsend(to, out.data(), 8, nullptr, 0, 1, nullptr); });
        finish();
    }

    fid_cq* cq;
    fid_ep *from, *to;
    std::vector<char> out = std::vector<char>(1 << 20, 'x'), in = std::vector<char>(1 << 20);
};

TEST(Statistics, TellTheWayOfEachSend)
{
    Pair pair;
    const Numbers none = read_statistics(pair.domain);
    EXPECT_EQ(none.at("ring_granted"), 1u);
    const std::pair<std::size_t, Numbers> cases[] = {
        {8, {{"send_short", 1}}},
        {100, {{"send_slot", 1}}},
        {2000, {{"send_long", 1}}},
        {1 << 20, {{"registration", 2}, {"send_rendezvous", 1}}},
    };
    const Numbers before = read_statistics(pair.domain);
    pair.back();
    Numbers anonymous = since(before, read_statistics(pair.domain));
    anonymous.erase("again_contact");
    EXPECT_EQ(anonymous, (Numbers{{"send_anonymous", 1}})) << "nothing was sent that way before";
    for (const auto& [size, expected] : cases) {
        const Numbers before = read_statistics(pair.domain);
        pair.exchange(size);
        EXPECT_EQ(since(before, read_statistics(pair.domain)), expected) << size;
    }
}

/// Programs of earlier versions find their names, behind all others.
TEST(Statistics, OldNamesHaveTheValuesOfTheNewOnes)
{
    Pair pair;
    fi_tofu_ops_statistics* const ops = statistics_of(pair.domain);
    std::size_t count = 0;
    ASSERT_EQ(ops->read(&pair.domain->fid, nullptr, &count), 0);
    std::vector<fi_tofu_statistic> list(count);
    ASSERT_EQ(ops->read(&pair.domain->fid, list.data(), &count), 0);
    std::map<std::string, std::uint64_t> all;
    for (const fi_tofu_statistic& one : list)
        all[one.name] = one.value;
    EXPECT_EQ(all.at("ring_claimed"), 1u);
    const std::pair<const char*, const char*> names[] = {{"send_visit", "send_anonymous"},
                                                         {"visit_lost", "anonymous_lost"},
                                                         {"ring_claimed", "ring_granted"},
                                                         {"branch", "rail"},
                                                         {"by_branch", "by_rail"}};
    for (const auto& [old_name, name] : names)
        EXPECT_EQ(all.at(old_name), all.at(name)) << old_name;
    // A short list is filled as far as it goes.
    std::size_t few = 3;
    ASSERT_EQ(ops->read(&pair.domain->fid, list.data(), &few), 0);
    EXPECT_EQ(few, count);
}

TEST(Statistics, CountUnexpectedMessages)
{
    Pair pair;
    const Numbers before = read_statistics(pair.domain);
    for (int i = 0; i < 3; i++)
        pair.send(100);
    pair.finish(3); // the sends; with them the messages are found
    ASSERT_TRUE(eventually([&] {
        (void)fi_cq_read(pair.cq, nullptr, 0);
        return since(before, read_statistics(pair.domain))["unexpected"] == 3;
    }));
    EXPECT_EQ(since(before, read_statistics(pair.domain)),
              (Numbers{{"send_slot", 3}, {"unexpected", 3}, {"unexpected_bytes", 300}}));
    for (int i = 0; i < 3; i++)
        pair.receive(100);
    pair.finish(3);
}

TEST(Statistics, CountRefusalsByCause)
{
    Pair pair;
    const Numbers before = read_statistics(pair.domain);
    // No thread reads the queue, and the receiver makes its own rounds only: the ring fills, then those that may wait
    // do.
    ssize_t ret = 0;
    std::uint64_t taken = 0;
    for (; ret == 0 && taken < 100000; taken += ret == 0)
        ret = fi_tsend(pair.from, pair.out.data(), 8, nullptr, 1, 1, nullptr);
    ASSERT_EQ(ret, -FI_EAGAIN);
    Numbers moved = since(before, read_statistics(pair.domain));
    EXPECT_GE(moved["again_ring"], 1u);
    EXPECT_EQ(moved["again_operations"], 1u);
    EXPECT_EQ(moved["send_short"] + moved["send_waited"], taken);
    for (std::uint64_t i = 0; i < taken; i++)
        pair.receive(8);
    pair.finish(static_cast<int>(2 * taken));
}

TEST(Statistics, StandInTheManual)
{
    std::ifstream file(std::string(std::getenv("TOFU_TOP_SRCDIR")) + "/man/fi_tofu.7");
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    Pair pair;
    for (const auto& [name, value] : read_statistics(pair.domain))
        EXPECT_NE(page.find("\n\\fB" + name + "\\fR|"), std::string::npos) << name;
}

TEST(Statistics, OutliveTheirEndpoint)
{
    Pair pair;
    for (int i = 0; i < 5; i++)
        pair.exchange(8);
    const Numbers before = read_statistics(pair.domain);
    for (fid_ep* ep : pair.endpoints)
        EXPECT_EQ(fi_close(&ep->fid), 0);
    pair.endpoints.clear();
    EXPECT_EQ(since(before, read_statistics(pair.domain)), (Numbers{{"ring_returned", 1}}));
}

TEST(Statistics, AreOfOneDomain)
{
    Pair pair;
    Pair other;
    const Numbers before = read_statistics(pair.domain);
    other.exchange(8);
    EXPECT_EQ(since(before, read_statistics(pair.domain)), Numbers{});
}

TEST(Statistics, AnswerBadCallsWithErrors)
{
    Pair pair;
    void* ops = nullptr;
    EXPECT_EQ(fi_open_ops(&pair.domain->fid, "tofu_no_such_thing", 0, &ops, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_open_ops(&pair.domain->fid, nullptr, 0, &ops, nullptr), -FI_EINVAL);
    EXPECT_EQ(fi_open_ops(&pair.domain->fid, FI_TOFU_STATISTICS, 0, nullptr, nullptr), -FI_EINVAL);
    EXPECT_EQ(fi_open_ops(&pair.domain->fid, FI_TOFU_STATISTICS, 1, &ops, nullptr), -FI_EBADFLAGS);
    EXPECT_EQ(fi_open_ops(&pair.cq->fid, FI_TOFU_STATISTICS, 0, &ops, nullptr), -FI_ENOSYS);
    auto* const known = statistics_of(pair.domain);
    EXPECT_EQ(known->size, sizeof(fi_tofu_ops_statistics));
    std::size_t count = 1;
    EXPECT_EQ(known->read(nullptr, nullptr, &count), -FI_EINVAL);
    EXPECT_EQ(known->read(&pair.domain->fid, nullptr, &count), -FI_EINVAL);
    EXPECT_EQ(known->read(&pair.domain->fid, nullptr, nullptr), -FI_EINVAL);
    EXPECT_EQ(known->read(&pair.cq->fid, nullptr, &count), -FI_EINVAL);
    fi_tofu_statistic list[2] = {{"", "", 0}, {"untouched", "", 7}};
    EXPECT_EQ(known->read(&pair.domain->fid, list, &count), 0);
    EXPECT_STREQ(list[0].name, "send_short");
    EXPECT_STREQ(list[1].name, "untouched");
    EXPECT_GT(count, 20u);
    std::vector<fi_tofu_statistic> all(count);
    EXPECT_EQ(known->read(&pair.domain->fid, all.data(), &count), 0);
    for (const fi_tofu_statistic& one : all)
        EXPECT_GT(std::strlen(one.meaning), 10u) << one.name;
}

/// In a process of its own, whose stderr is read.
TEST(Statistics, ArePrintedAtTheEndWhereAskedFor)
{
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "statistics", "--gtest_also_run_disabled_tests",
              "--gtest_filter=Statistics.DISABLED_OfATalk", nullptr);
        _exit(127);
    }
    close(ends[1]);
    std::string text;
    char piece[512];
    for (ssize_t n; (n = ::read(ends[0], piece, sizeof piece)) > 0;)
        text.append(piece, static_cast<std::size_t>(n));
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_NE(text.find("tofu: statistics of process " + std::to_string(child)), std::string::npos) << text;
    EXPECT_NE(text.find("  send_anonymous                5  anonymous packets: packets of sends that used no ring\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("send_slot"), std::string::npos) << text;
    const std::string placement = "tofu: placement of process " + std::to_string(child) + ": memory: ";
    EXPECT_NE(text.find(placement), std::string::npos) << text;
}

TEST(Statistics, DISABLED_OfATalk) // started by the test above, before anything of libfabric is there
{
    setenv("FI_TOFU_STATS", "1", 1);
    Pair pair;
    for (int i = 0; i < 7; i++)
        pair.exchange(8);
}

} // namespace
