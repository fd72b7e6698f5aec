// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A reader finds what a recorder has written, also if the writer was killed; a line says why a trace is unreadable.
#include "sim/trace/written.h"
#include "trace/recorder.h"
#include "traces/run.h"

#include <utofu.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

using namespace tofu::sim;
using namespace tofu::sim::trace;

class Traces : public ::testing::Test {
  protected:
    void SetUp() override
    {
        char name[] = "/tmp/tofu-trace-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        directory_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(directory_); }

    [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }
    [[nodiscard]] static Owner owner(const std::string& pattern, uint64_t limit = 1 << 20, uint32_t rank = 3)
    {
        Owner owner{};
        owner.pattern = pattern.c_str();
        owner.limit_bytes = limit;
        owner.job = "job";
        owner.born = 7;
        owner.rank = rank;
        owner.shape[0] = owner.shape[1] = owner.shape[2] = 1;
        return owner;
    }
    // In a child, since a process has one trace; which ends by the signal, or by itself.
    template <typename Body>
    static int in_child(Body&& body)
    {
        const pid_t child = ::fork();
        if (child == 0) {
            body();
            ::_exit(0);
        }
        int status = -1;
        EXPECT_EQ(::waitpid(child, &status, 0), child);
        return status;
    }
    [[nodiscard]] static std::string problem_of(const std::vector<std::string>& paths)
    {
        trace::Run run;
        std::vector<std::string> warnings;
        return read_run(paths, run, warnings);
    }

    const Topology unit_{{1, 1, 1}, 0};
    std::string directory_;
};

Record post_at(uint64_t time)
{
    return some_post(time, 0, 8, 10);
}

TEST_F(Traces, WhatWasWrittenIsRead)
{
    in_child([&] {
        const std::string pattern = path("x.%r.%j");
        if (open(owner(pattern)) != UTOFU_SUCCESS)
            ::_exit(1);
        add(some_record(Type::open_vcq, now(), vcq_of(unit_, 0)));
        add(post_at(now()));
        leave();
    });
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("x.3.job"), trace), "");
    ASSERT_EQ(trace.events.size(), 2u);
    EXPECT_EQ(trace.events[1].record.type, Type::post);
    EXPECT_EQ(trace.events[1].record.bytes, 8u);
    EXPECT_NE(trace.header.ended.raw, 0u);
    EXPECT_FALSE(trace.cut_off);
}

TEST_F(Traces, AKilledProcessLeavesWhatItWroteAndWhatItWaitedFor)
{
    constexpr uint32_t posts = 3 * records_per_chunk + 17;
    const int status = in_child([&] {
        const std::string pattern = directory_;
        (void)!open(owner(pattern));
        for (uint32_t i = 0; i < posts; i++)
            add(post_at(now()));
        poll_in_vain();
        const uint64_t since = now();
        while (now() == since) {
        }
        poll_in_vain();
        ::raise(SIGKILL);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("job.3.trace"), trace), "");
    ASSERT_EQ(trace.events.size(), posts + 1);
    const Record& last = trace.events.back().record;
    EXPECT_EQ(last.type, Type::wait);
    EXPECT_EQ(last.what, static_cast<uint8_t>(End::going_on));
    EXPECT_GT(last.duration, 0u);
    EXPECT_EQ(trace.header.ended.raw, 0u);
    EXPECT_EQ(trace.damaged, 0u);
}

// What stands under the name of a trace and is none stays, be it empty; what an earlier run has left makes room.
TEST_F(Traces, OnlyAnEarlierTraceMakesRoom)
{
    const std::string pattern = path("x");
    const auto opened = [&](unsigned job = 0) {
        return WEXITSTATUS(in_child([&] {
            auto of_job = owner(pattern);
            of_job.born += job;
            ::_exit(open(of_job) == UTOFU_SUCCESS ? 0 : 1);
        }));
    };
    for (const char* const text : {"", "mine"}) {
        std::ofstream(path("x.3")) << text;
        EXPECT_EQ(opened(), 1) << text;
        EXPECT_EQ(std::filesystem::file_size(path("x.3")), std::string(text).size());
    }
    std::filesystem::remove(path("x.3"));
    for (unsigned run = 0; run < 2; run++) { // another job's
        EXPECT_EQ(opened(run), 0) << run;
        ProcessTrace trace;
        EXPECT_EQ(read_trace(path("x.3"), trace), "");
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1); // nothing half made
}

TEST_F(Traces, AFileGrowsToItsLimitAndCountsTheRest)
{
    in_child([&] {
        const std::string pattern = path("x");
        (void)!open(owner(pattern, 2 * chunk_bytes));
        for (uint32_t i = 0; i < 2 * records_per_chunk + 5; i++)
            add(post_at(now()));
    });
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("x.3"), trace), "");
    EXPECT_EQ(trace.events.size(), 2 * records_per_chunk);
    EXPECT_EQ(trace.header.lost.raw, 5u);
    EXPECT_EQ(std::filesystem::file_size(path("x.3")), header_bytes + 2 * chunk_bytes);
}

// Without a check the first byte behind the limit of file sizes ends the process by SIGXFSZ.
TEST_F(Traces, AFileGrowsToTheLimitOfFileSizesAndCountsTheRest)
{
    const auto limit_to = [](uint64_t bytes) {
        const rlimit limit{bytes, RLIM_INFINITY};
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    };
    const int status = in_child([&] {
        const std::string pattern = path("x");
        (void)!open(owner(pattern));
        limit_to(header_bytes + chunk_bytes);
        for (uint32_t i = 0; i < records_per_chunk + 5; i++) {
            add(post_at(now()));
        }
    });
    EXPECT_EQ(status, 0);
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("x.3"), trace), "");
    EXPECT_EQ(trace.events.size(), records_per_chunk);
    EXPECT_EQ(trace.header.lost.raw, 5u);

    const int refused = in_child([&] {
        const std::string pattern = path("y");
        limit_to(header_bytes - 1);
        ::_exit(open(owner(pattern)) == UTOFU_SUCCESS ? 1 : 0);
    });
    EXPECT_EQ(refused, 0);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1); // and leaves no file
}

TEST_F(Traces, ThreadsWriteSideBySide)
{
    constexpr uint32_t each = 5000;
    in_child([&] {
        const std::string pattern = path("x");
        (void)!open(owner(pattern));
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 3; i++)
            threads.emplace_back([] {
                for (uint32_t n = 0; n < each; n++)
                    add(post_at(now()));
            });
        for (std::thread& thread : threads)
            thread.join();
    });
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("x.3"), trace), "");
    EXPECT_EQ(trace.events.size(), 3 * each);
    EXPECT_TRUE(std::is_sorted(trace.events.begin(), trace.events.end(),
                               [](const Event& a, const Event& b) { return a.record.time < b.record.time; }));
}

TEST_F(Traces, AWaitGoesFromTheFirstVainPollToWhatEndsIt)
{
    in_child([&] {
        const std::string pattern = path("x");
        (void)!open(owner(pattern));
        const auto pass_time = [] {
            for (const uint64_t since = now(); now() < since + 1000;) {
            }
        };
        poll_in_vain(); // a single look, and then a post: no wait
        add(post_at(now()));
        poll_in_vain();
        pass_time();
        add(some_record(Type::arrival, now(), 0, 1)); // done for others: it goes on
        add(some_record(Type::notice, now(), vcq_of(unit_, 1), UTOFU_MRQ_TYPE_RMT_PUT));
    });
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("x.3"), trace), "");
    ASSERT_EQ(trace.events.size(), 4u);
    const Record& wait = trace.events[1].record;
    EXPECT_EQ(wait.type, Type::wait);
    EXPECT_EQ(wait.what, static_cast<uint8_t>(End::notice));
    EXPECT_EQ(wait.peer, vcq_of(unit_, 1));
    EXPECT_GE(wait.duration, 1000u);
    EXPECT_EQ(trace.events[2].record.type, Type::arrival);
    EXPECT_EQ(trace.events[3].record.time, wait.time + wait.duration);
}

TEST_F(Traces, OldTracesMakeRoomAndOtherFilesStay)
{
    const auto record = [&](uint64_t born) {
        return in_child([&] {
            const std::string pattern = path("x");
            Owner own = owner(pattern);
            own.born = born;
            ::_exit(open(own) == UTOFU_SUCCESS ? 0 : 1);
        });
    };
    EXPECT_EQ(record(1), 0);
    EXPECT_EQ(record(2), 0); // of another run: it goes
    ProcessTrace trace;
    ASSERT_EQ(read_trace(path("x.3"), trace), "");
    EXPECT_EQ(trace.header.born, 2u);
    EXPECT_EQ(record(2), 0); // of this one, by another process with that rank
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 2);
    std::filesystem::remove(path("x.3"));
    std::ofstream(path("x.3")) << "a private letter of more than two hundred bytes " << std::string(300, '.');
    EXPECT_NE(record(3), 0);
    EXPECT_GT(std::filesystem::file_size(path("x.3")), 300u);
}

TEST_F(Traces, WhatIsNoTraceSaysWhatToDo)
{
    const FileHeader good = some_header(0, 0, unit_);
    EXPECT_NE(problem_of({path("none")}).find("No such file"), std::string::npos);
    std::ofstream(path("text")) << std::string(500, 'x');
    EXPECT_NE(problem_of({path("text")}).find("is not a trace; use the files"), std::string::npos);
    ASSERT_TRUE(write_trace(path("cut"), good, {}));
    std::filesystem::resize_file(path("cut"), 100);
    EXPECT_NE(problem_of({path("cut")}).find("ends within its header"), std::string::npos);
    FileHeader other = good;
    other.version = 9;
    ASSERT_TRUE(write_trace(path("version"), other, {}));
    EXPECT_NE(problem_of({path("version")}).find("has version 9, this tofu-sim reads 3; use the tofu-sim"),
              std::string::npos);
    other = good;
    other.shape[1] = 0;
    ASSERT_TRUE(write_trace(path("shape"), other, {}));
    EXPECT_NE(problem_of({path("shape")}).find("has an invalid header"), std::string::npos);
    ASSERT_TRUE(write_trace(path("good"), good, {}));
    ASSERT_TRUE(write_trace(path("other"), some_header(1, 1, unit_, 8), {}));
    EXPECT_NE(problem_of({path("good"), path("other")}).find("another run of that name"), std::string::npos);
    EXPECT_NE(problem_of({path("good"), path("good")}).find("name each once"), std::string::npos);
    FileHeader clocked = some_header(1, 1, unit_);
    clocked.clock = ClockKind::virtual_tofud;
    ASSERT_TRUE(write_trace(path("clocked"), clocked, {}));
    EXPECT_NE(problem_of({path("good"), path("clocked")}).find("different clocks"), std::string::npos);
    EXPECT_NE(problem_of({}).find("no trace found"), std::string::npos);
    EXPECT_EQ(problem_of({path("good")}), "");
}

TEST_F(Traces, ACutOffFileIsReadAsFarAsItGoes)
{
    std::vector<Record> records;
    for (uint64_t i = 0; i < 100; i++)
        records.push_back(post_at(2000 + i));
    FileHeader header = some_header(0, 0, unit_);
    header.chunks.raw = 1;
    ASSERT_TRUE(write_trace(path("x"), header, records));
    std::filesystem::resize_file(path("x"), header_bytes + sizeof(ChunkHeader) + 40 * sizeof(Record) + 5);
    trace::Run run;
    std::vector<std::string> warnings;
    ASSERT_EQ(read_run(std::vector{path("x")}, run, warnings), "");
    EXPECT_EQ(run.transfers.size(), 40u);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("incomplete"), std::string::npos);
}

// Two processes on neighbouring nodes: 1 waits in memory for a put of 0, and 0 for the notice of one of 1.
class Pair : public Traces {
  protected:
    void read(const std::vector<Record>& first, const std::vector<Record>& second)
    {
        std::vector<Record> a = {some_record(Type::open_vcq, 1000, vcq_of(unit_, 0))};
        std::vector<Record> b = {some_record(Type::open_vcq, 1000, vcq_of(unit_, 5))};
        a.insert(a.end(), first.begin(), first.end());
        b.insert(b.end(), second.begin(), second.end());
        ASSERT_TRUE(write_trace(path("0"), some_header(0, 0, unit_), a));
        ASSERT_TRUE(write_trace(path("1"), some_header(1, 5, unit_), b));
        std::vector<std::string> warnings;
        ASSERT_EQ(read_run(std::vector{path("1"), path("0")}, run_, warnings), "");
        EXPECT_TRUE(warnings.empty());
    }
    trace::Run run_;
};

TEST_F(Pair, WaitsKnowTheirPeer)
{
    read({some_post(5000, vcq_of(unit_, 5), 4096, 700), some_wait(5200, 4000, End::notice, vcq_of(unit_, 5)),
          some_record(Type::notice, 9200, vcq_of(unit_, 5), UTOFU_MRQ_TYPE_RMT_PUT)},
         {some_wait(2000, 3800, End::post), some_post(8000, vcq_of(unit_, 0), 8, 900)});
    ASSERT_EQ(run_.transfers.size(), 2u);
    EXPECT_EQ(run_.transfers[0].to, 1u);
    EXPECT_EQ(run_.transfers[0].arrived, 4700u); // since the first joined
    ASSERT_EQ(run_.waits.size(), 2u);
    EXPECT_EQ(run_.waits[0].awaited, 1u); // of 0
    EXPECT_EQ(run_.waits[0].transfer, 1u);
    EXPECT_EQ(run_.waits[1].awaited, 0u);
    EXPECT_EQ(run_.waits[1].transfer, 0u);
}

TEST_F(Pair, LatePostsArriveByTheirPosition)
{
    Record first = some_post(2000, vcq_of(unit_, 5), 10 | flag_late, 0);
    Record second = some_post(2100, vcq_of(unit_, 5), 20 | flag_late, 1);
    Record of_second = some_record(Type::arrival, 3000, vcq_of(unit_, 5), 1);
    of_second.arrival = 1;
    Record of_first = some_record(Type::arrival, 4000, vcq_of(unit_, 5), 1);
    read({first, second, of_second, of_first}, {});
    ASSERT_EQ(run_.transfers.size(), 2u);
    EXPECT_EQ(run_.transfers[0].arrived, 3000u);
    EXPECT_EQ(run_.transfers[1].arrived, 2000u);
}

TEST_F(Pair, ARelayCarriesOutWhatAnotherHasPosted)
{
    Record waiting = some_post(2000, vcq_of(unit_, 5), 10 | flag_late, 0);
    waiting.vcq = 3;
    Record relay = some_record(Type::relay, 6000, vcq_of(unit_, 5), 1);
    relay.vcq = 3;
    relay.duration = 0; // node
    read({waiting}, {relay});
    ASSERT_EQ(run_.transfers.size(), 1u);
    EXPECT_EQ(run_.transfers[0].from, 0u);
    EXPECT_EQ(run_.transfers[0].arrived, 5000u);
}

TEST_F(Pair, BetweenItsCallsAThreadComputes)
{
    read({some_post(5000, vcq_of(unit_, 5), 8, 100), some_post(9000, vcq_of(unit_, 5), 8, 100)}, {});
    ASSERT_EQ(run_.computations.size(), 2u);
    EXPECT_EQ(run_.computations[1].began, 4100u);
    EXPECT_EQ(run_.computations[1].ended, 8000u);
}

TEST_F(Pair, NonsenseIsLeftOut)
{
    Record nonsense = some_record(Type::post, 3000, vcq_of(unit_, 5), 99);
    Record early = some_post(10, vcq_of(unit_, 5), 8, 100);
    ASSERT_TRUE(write_trace(path("0"), some_header(0, 0, unit_), {nonsense, early, post_at(4000)}));
    std::vector<std::string> warnings;
    ASSERT_EQ(read_run(std::vector{path("0")}, run_, warnings), "");
    EXPECT_EQ(run_.transfers.size(), 1u);
    EXPECT_EQ(run_.transfers[0].to, no_index);
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_EQ(warnings[0], "2 records are invalid and were omitted");
}

} // namespace
