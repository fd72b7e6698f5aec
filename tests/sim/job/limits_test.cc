// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes without descriptors or addresses, or whose program has closed our files: an error, and no process taken for
// dead.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

struct Node {
    utofu_vcq_hdl_t vcq = 0;

    // An exclusive VCQ of TNI 0 with a word at the same STADD in each process.
    void open(const Rank& rank, uint64_t* words)
    {
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
        ASSERT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem_with_stag(vcq, words, 256, 1, 0, &stadd), UTOFU_SUCCESS);
        rank.set(2 * rank.number, id);
        rank.set(2 * rank.number + 1, stadd);
    }
    [[nodiscard]] int put(const Rank& rank, unsigned to) const
    {
        EXPECT_EQ(posted([&] {
                      return utofu_put_piggyback8(vcq, rank.get(2 * to), 1, rank.get(2 * to + 1), 8, 0,
                                                  UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                  }),
                  UTOFU_SUCCESS);
        utofu_mrq_notice notice;
        return wait_mrq(vcq, &notice);
    }
};

// As the first free number: from now on no descriptor can be opened.
rlim_t lowest_free()
{
    const int fd = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    EXPECT_GE(fd, 0);
    ::close(fd);
    return static_cast<rlim_t>(fd);
}

// Returns what it was.
rlim_t limit_to(decltype(RLIMIT_AS) resource, rlim_t limit)
{
    rlimit now{};
    EXPECT_EQ(::getrlimit(resource, &now), 0);
    const rlim_t before = now.rlim_cur;
    now.rlim_cur = limit;
    EXPECT_EQ(::setrlimit(resource, &now), 0);
    return before;
}

void limit_descriptors(rlim_t limit)
{
    (void)limit_to(RLIMIT_NOFILE, limit);
}

std::string job_directory()
{
    return "/dev/shm/tofu-sim-" + std::to_string(::geteuid()) + "/" + std::getenv("TOFU_SIM_JOB");
}

// All processes at one place, with a CQ of each TNI for it: a process that takes one of a living process is seen at
// once. Numbers of a launcher may be the same.
struct OnePlace {
    OnePlace()
    {
        ::setenv("TOFU_SIM_PPN", "9", 1);
        ::setenv("PMIX_RANK", "0", 1);
    }
    ~OnePlace()
    {
        ::unsetenv("TOFU_SIM_PPN");
        ::unsetenv("PMIX_RANK");
    }
};

alignas(256) uint64_t words[32];

TEST(SimLimits, WithoutDescriptorsNoProcessTakesAnothersCqOrRemovesItsJob)
{
    const OnePlace one_place;
    expect_processes(2, [](const Rank& rank) {
        Node me;
        utofu_vcq_hdl_t other = 0;
        if (rank.number == 0)
            me.open(rank, words);
        rank.barrier();
        if (rank.number == 1) {
            ASSERT_EQ(utofu_create_vcq(1, UTOFU_VCQ_FLAG_EXCLUSIVE, &other), UTOFU_SUCCESS);
            limit_descriptors(lowest_free());
            for (int i = 0; i < 3; i++)
                EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &me.vcq), UTOFU_ERR_FULL);
            utofu_vbg_id_t ids[2];
            EXPECT_EQ(utofu_alloc_vbg(0, 2, 0, ids), UTOFU_SUCCESS);
            rank.set(100, static_cast<uint64_t>(::getpid()));
            return; // the job is left without a descriptor
        }
        EXPECT_TRUE(wait_until([&] { return rank.get(100) != 0; }));
        EXPECT_TRUE(wait_until([&] {
            return ::kill(static_cast<pid_t>(rank.get(100)), 0) != 0 ||
                   ::access(("/proc/" + std::to_string(rank.get(100)) + "/fd/0").c_str(), F_OK) != 0;
        }));
        EXPECT_EQ(::access(job_directory().c_str(), F_OK), 0);
        EXPECT_EQ(me.put(rank, 0), UTOFU_SUCCESS);
    });
}

TEST(SimLimits, AProcessWithoutDescriptorsReachesPeersThatItDoesNotKnowYet)
{
    expect_processes(12, [](const Rank& rank) {
        Node me;
        me.open(rank, words);
        rank.barrier();
        if (rank.number != 0)
            limit_descriptors(lowest_free());
        for (unsigned to = 0; to < rank.size; to++)
            EXPECT_EQ(me.put(rank, to), UTOFU_SUCCESS);
        utofu_stadd_t stadd = 0;
        const std::string block(1 << 20, 'x');
        EXPECT_EQ(utofu_reg_mem(me.vcq, const_cast<char*>(block.data()), block.size(), 0, &stadd), UTOFU_SUCCESS);
        rank.barrier();
    });
}

// What a child answers that joins with a limit, and then without; its lines are counted.
struct Attempt {
    int first = 0;
    int second = 0;
    long lines = 0;
};

Attempt attempt_to_join(const Rank& rank, decltype(RLIMIT_AS) resource, rlim_t limit)
{
    const int errors = ::memfd_create("errors", MFD_CLOEXEC);
    const pid_t pid = ::fork();
    if (pid == 0) {
        (void)::dup2(errors, STDERR_FILENO);
        const rlim_t all = limit_to(resource, limit);
        Node me;
        int rc = utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &me.vcq);
        rank.set(200, static_cast<uint64_t>(static_cast<int64_t>(rc)));
        (void)limit_to(resource, all);
        rc = rc != UTOFU_SUCCESS ? utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &me.vcq) : rc;
        rc = rc == UTOFU_SUCCESS && rank.size > 1 ? me.put(rank, 0) : rc;
        rank.set(201, static_cast<uint64_t>(static_cast<int64_t>(rc)));
        std::exit(0);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    Attempt result{static_cast<int>(rank.get(200)), static_cast<int>(rank.get(201)), 0};
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, ::pread(errors, text.data(), text.size(), 0))));
    result.lines = std::count(text.begin(), text.end(), '\n');
    ::close(errors);
    return result;
}

TEST(SimLimits, JoiningWithAnyNumberOfDescriptorsIsAnErrorWithOneLineOrSucceeds)
{
    for (const bool alone : {false, true}) {
        const auto exits = run_processes(alone ? 1 : 2, [alone](const Rank& rank) {
            Node me;
            if (!alone && rank.number == 0) {
                me.open(rank, words);
                rank.barrier();
                rank.barrier();
                EXPECT_EQ(me.put(rank, 0), UTOFU_SUCCESS);
                return;
            }
            if (!alone)
                rank.barrier();
            const rlim_t none = lowest_free() - 1; // the child has no descriptor of `errors`
            unsigned refused = 0;
            unsigned more = 0;
            for (; more < 32; more++) {
                const Attempt attempt = attempt_to_join(rank, RLIMIT_NOFILE, none + more);
                EXPECT_EQ(attempt.second, UTOFU_SUCCESS) << more;
                if (attempt.first == UTOFU_SUCCESS) {
                    EXPECT_EQ(attempt.lines, 0) << more;
                    break;
                }
                EXPECT_TRUE(attempt.first == UTOFU_ERR_OUT_OF_RESOURCE || attempt.first == UTOFU_ERR_OUT_OF_MEMORY)
                    << more << ": " << attempt.first;
                EXPECT_EQ(attempt.lines, 1) << more;
                refused++;
            }
            EXPECT_GT(refused, 4u);
            EXPECT_LT(more, 32u);
            if (!alone)
                rank.barrier();
        });
        for (const Exit& exit : exits)
            EXPECT_TRUE(exit.success()) << exit.errors;
        EXPECT_FALSE(job_is_left());
    }
}

uint64_t memory_of_process(const std::string& what);

TEST(SimLimits, JoiningWithTooFewAddressesIsAnErrorWithOneLine)
{
    expect_processes(1, [](const Rank& rank) {
        constexpr rlim_t mib = 1 << 20;
        const rlim_t used = memory_of_process("VmSize") << 10;
        unsigned refused = 0;
        for (const rlim_t more : {8 * mib, 100 * mib, 1024 * mib, 5000 * mib, 5600 * mib, 6000 * mib, 20000 * mib}) {
            const Attempt attempt = attempt_to_join(rank, RLIMIT_AS, used + more);
            EXPECT_EQ(attempt.second, UTOFU_SUCCESS) << more / mib;
            if (attempt.first != UTOFU_SUCCESS) {
                EXPECT_EQ(attempt.first, UTOFU_ERR_OUT_OF_MEMORY) << more / mib;
                refused++;
            }
            EXPECT_EQ(attempt.lines, attempt.first == UTOFU_SUCCESS ? 0 : 1) << more / mib;
        }
        EXPECT_GE(refused, 4u);
        EXPECT_LT(refused, 7u);
    });
}

// An addition to a word of the poster, then a put to a process that the poster does not know yet and has no room for.
TEST(SimLimits, AShortagePostsNothingOfABatchSoThatARetryRepeatsNothing)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        Node me;
        me.open(rank, words);
        rank.barrier();
        if (rank.number == 0) {
            alignas(8) std::byte batch[256];
            size_t addition = 0;
            size_t put = 0;
            ASSERT_EQ(
                utofu_prepare_armw8(me.vcq, rank.get(0), UTOFU_ARMW_OP_ADD, 1, rank.get(1), 0, 0, batch, &addition),
                UTOFU_SUCCESS);
            ASSERT_EQ(utofu_prepare_put(me.vcq, rank.get(2), rank.get(1), rank.get(3), 8, 0,
                                        UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, batch + addition, &put),
                      UTOFU_SUCCESS);
            const auto post = [&] { return utofu_post_toq(me.vcq, batch, addition + put, nullptr); };
            const auto counter = [] { return __atomic_load_n(&words[0], __ATOMIC_SEQ_CST); };
            words[0] = 0;
            const rlim_t room = rlim_t{8} << 20; // less than a peer needs
            const rlim_t before = limit_to(RLIMIT_AS, (memory_of_process("VmSize") << 10) + room);
            for (int attempt = 0; attempt < 3; attempt++) {
                EXPECT_EQ(post(), UTOFU_ERR_BUSY);
                EXPECT_EQ(counter(), 0u);
            }
            (void)limit_to(RLIMIT_AS, before);
            EXPECT_EQ(posted(post), UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(me.vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(counter(), 1u);
        }
        rank.barrier();
    });
    for (const auto& exit : exits)
        EXPECT_TRUE(exit.success()) << exit.errors;
    EXPECT_NE(exits[0].errors.find("cannot map the memory of process"), std::string::npos) << exits[0].errors;
}

// 12 nodes with 2 processes each.
TEST(SimLimits, AProcessBeyondTheLastPlaceIsRefusedWithOneLine)
{
    ::setenv("TOFU_SIM_SHAPE", "1x1x1", 1);
    ::setenv("TOFU_SIM_PPN", "2", 1);
    expect_processes(1, [](const Rank& rank) {
        for (const unsigned place : {0u, 23u, 24u, 25u, 4096u, 4'000'000u}) {
            ::setenv("TOFU_SIM_RANK", std::to_string(place).c_str(), 1);
            const Attempt attempt = attempt_to_join(rank, RLIMIT_AS, RLIM_INFINITY);
            EXPECT_EQ(attempt.first, place < 24 ? UTOFU_SUCCESS : UTOFU_ERR_OUT_OF_RESOURCE) << place;
            EXPECT_EQ(attempt.lines, place < 24 ? 0 : 2) << place; // one for each attempt
        }
    });
    ::unsetenv("TOFU_SIM_RANK");
    ::unsetenv("TOFU_SIM_PPN");
    ::unsetenv("TOFU_SIM_SHAPE");
}

constexpr char program_text[] = "this is the program's";

// Closes all descriptors but the standard ones, and opens files of the program in their place.
void replace_descriptors(int (&files)[64])
{
    for (int file = 3; file < 1024; file++)
        ::close(file);
    for (int& file : files) {
        file = ::memfd_create("program", 0);
        ASSERT_EQ(::write(file, program_text, sizeof program_text), ssize_t{sizeof program_text});
    }
}

bool are_intact(const int (&files)[64])
{
    return std::all_of(std::begin(files), std::end(files), [](int file) {
        char there[sizeof program_text] = {};
        return ::pread(file, there, sizeof there, 0) == ssize_t{sizeof there} &&
               std::memcmp(there, program_text, sizeof program_text) == 0;
    });
}

// New queues and gates after that, also one of session mode, whose ring has another size and so fresh pages.
void open_more(utofu_vcq_hdl_t own)
{
    utofu_vcq_hdl_t vcq = 0;
    utofu_vbg_id_t ids[2];
    EXPECT_EQ(utofu_free_vcq(own), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_SESSION_MODE, &vcq), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_create_vcq(3, 0, &vcq), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_alloc_vbg(0, 2, 0, ids), UTOFU_SUCCESS);
}

// A program may close whatever it did not open, and open files of its own at the same numbers.
TEST(SimLimits, AProgramThatClosesAllDescriptorsStaysAliveAndKeepsItsFiles)
{
    const OnePlace one_place;
    ::setenv("UTOFU_NUM_MRQ_ENTRIES_SESSION", "2048", 1);
    const auto exits = run_processes(3, [](const Rank& rank) {
        Node me;
        int files[64] = {};
        if (rank.number == 0)
            me.open(rank, words);
        rank.barrier();
        if (rank.number != 0)
            ASSERT_EQ(utofu_create_vcq(rank.number, UTOFU_VCQ_FLAG_EXCLUSIVE, &me.vcq), UTOFU_SUCCESS);
        if (rank.number == 1)
            EXPECT_EQ(me.put(rank, 0), UTOFU_SUCCESS);
        rank.barrier();
        if (rank.number == 0)
            replace_descriptors(files);
        rank.barrier();
        if (rank.number != 0) {
            utofu_vcq_hdl_t vcq = 0;
            EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_ERR_FULL); // rank 0 has it
            // Processes with earlier contact still reach it; the others get an error that says why.
            EXPECT_EQ(me.put(rank, 0), rank.number == 1 ? UTOFU_SUCCESS : UTOFU_ERR_MRQ_PEER);
        }
        rank.barrier();
        if (rank.number == 0) {
            open_more(me.vcq);
            const pid_t pid = ::fork();
            if (pid == 0)
                ::_exit(are_intact(files) ? 0 : 1);
            int status = -1;
            EXPECT_EQ(::waitpid(pid, &status, 0), pid);
            EXPECT_EQ(status, 0);
            EXPECT_TRUE(are_intact(files));
        }
        rank.barrier();
    });
    ::unsetenv("UTOFU_NUM_MRQ_ENTRIES_SESSION");
    for (unsigned i = 0; i < 3; i++)
        EXPECT_TRUE(exits[i].success()) << i << ": " << exits[i].errors;
    EXPECT_EQ(exits[1].errors, "");
    EXPECT_NE(exits[2].errors.find("runs but cannot be accessed: it has closed the descriptor"), std::string::npos)
        << exits[2].errors;
    EXPECT_EQ(std::count(exits[2].errors.begin(), exits[2].errors.end(), '\n'), 1);
    EXPECT_FALSE(job_is_left());
}

// Another version may have files of another size: no reason to reinitialise a file that is in use.
TEST(SimLimits, AJobOfAnotherVersionIsLeftAloneWhileItRuns)
{
    const auto exits = run_processes(2, [](const Rank& rank) {
        Node me;
        const std::string file = job_directory() + "/job";
        struct stat before {};
        if (rank.number == 0) {
            me.open(rank, words);
            const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
            const uint32_t version = 99;
            ASSERT_EQ(::fstat(fd, &before), 0);
            ASSERT_EQ(::pwrite(fd, &version, sizeof version, 8), ssize_t{sizeof version});
            ASSERT_EQ(::ftruncate(fd, before.st_size + 4096), 0);
            ::close(fd);
        }
        rank.barrier();
        if (rank.number == 1) {
            EXPECT_EQ(utofu_create_vcq(0, 0, &me.vcq), UTOFU_ERR_NOT_AVAILABLE);
            // Nor is it swept by the start of another job.
            const std::string other = std::string(std::getenv("TOFU_SIM_JOB")) + "-other";
            const pid_t pid = ::fork();
            if (pid == 0) {
                ::setenv("TOFU_SIM_JOB", other.c_str(), 1);
                ::execl("/proc/self/exe", "sim_processes", "--gtest_filter=SimLimits.DISABLED_Joins",
                        "--gtest_also_run_disabled_tests", nullptr);
                ::_exit(127);
            }
            int status = -1;
            EXPECT_EQ(::waitpid(pid, &status, 0), pid);
            EXPECT_EQ(status, 0);
        }
        rank.barrier();
        if (rank.number == 0) {
            struct stat after {};
            EXPECT_EQ(::stat(file.c_str(), &after), 0);
            EXPECT_EQ(after.st_size, before.st_size + 4096);
            EXPECT_EQ(me.put(rank, 0), UTOFU_SUCCESS);
        }
    });
    for (const Exit& exit : exits)
        EXPECT_TRUE(exit.success()) << exit.errors;
    EXPECT_NE(exits[1].errors.find("runs with another version of the simulator"), std::string::npos) << exits[1].errors;
    EXPECT_FALSE(job_is_left());
}

TEST(SimLimits, DISABLED_Joins) // of the test above
{
    utofu_vcq_hdl_t vcq = 0;
    EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
}

// "VmLck" and the like, in KiB.
uint64_t memory_of_process(const std::string& what)
{
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind(what + ":", 0) == 0)
            return std::stoull(line.substr(what.size() + 1));
    return 0;
}

// What vm.overcommit_memory=2 counts: private writable mappings, whether with MAP_NORESERVE or not.
uint64_t counted_kib()
{
    std::ifstream maps("/proc/self/maps");
    uint64_t sum = 0;
    for (std::string line; std::getline(maps, line);) {
        uint64_t start = 0;
        uint64_t end = 0;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, rights) == 3 && rights[1] == 'w' && rights[3] == 'p')
            sum += (end - start) / 1024;
    }
    return sum;
}

// The tables are sparse: gigabytes of addresses, of which a few pages are used.
TEST(SimLimits, WhatIsReservedIsNeitherLockedNorCounted)
{
    const auto exits = run_processes(3, [](const Rank& rank) {
        constexpr uint64_t most_kib = 256 << 10;
        const uint64_t before = counted_kib();
        rlimit limit{};
        (void)::getrlimit(RLIMIT_MEMLOCK, &limit);
        if ((::geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY) || ::mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
            std::exit(77); // the limit counts addresses, whether there are pages or not
        Node me;
        me.open(rank, words);
        rank.barrier();
        EXPECT_EQ(me.put(rank, 0), UTOFU_SUCCESS);
        EXPECT_EQ(me.put(rank, 1), UTOFU_SUCCESS);
        EXPECT_LT(memory_of_process("VmLck"), most_kib);
        EXPECT_LT(counted_kib() - before, most_kib);
        rank.barrier();
        if (rank.number == 2)
            ::raise(SIGKILL);
        // Also of a peer that is dead, and of what is locked once everything is there. It may take its time to die: the
        // TOQ is emptied meanwhile.
        utofu_mrq_notice notice;
        EXPECT_TRUE(wait_until([&] {
            void* sent = nullptr;
            (void)utofu_poll_tcq(me.vcq, 0, &sent);
            (void)posted([&] {
                return utofu_put_piggyback8(me.vcq, rank.get(4), 1, rank.get(5), 8, 0,
                                            UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
            });
            return wait_mrq(me.vcq, &notice) == UTOFU_ERR_MRQ_PEER;
        }));
        EXPECT_LT(counted_kib() - before, most_kib);
        EXPECT_EQ(::mlockall(MCL_CURRENT), 0);
        EXPECT_LT(memory_of_process("VmRSS"), most_kib);
    });
    ASSERT_TRUE(WIFEXITED(exits[0].status));
    if (WEXITSTATUS(exits[0].status) == 77)
        GTEST_SKIP() << "the limit of locked memory is too low (ulimit -l)";
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    EXPECT_FALSE(job_is_left());
}

} // namespace
} // namespace tofu::sim::test
