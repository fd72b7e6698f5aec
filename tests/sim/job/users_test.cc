// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Users of one machine: no user enters the job of another, or keeps another from its own job without a message. Runs as
// root, which can become any user.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tofu::sim::test {
namespace {

constexpr uid_t other_user = 64'321;
constexpr uid_t third_user = 64'322;

std::string base_of(uid_t user)
{
    return "/dev/shm/tofu-sim-" + std::to_string(user);
}

bool become(uid_t user)
{
    return ::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0 &&
           ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0; // as a program that this user has started
}

// What a stranger can open of the files of a process.
unsigned files_of(uint64_t pid)
{
    unsigned opened = 0;
    for (int fd = 0; fd < 64; fd++) {
        const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (file >= 0) {
            opened++;
            ::close(file);
        }
    }
    return opened;
}

TEST(SimUsers, JobsOfTheSameNameAreApart)
{
    if (::geteuid() != 0)
        GTEST_SKIP() << "only root can be two users";
    expect_processes(2, [](const Rank& rank) {
        alignas(256) static uint64_t words[32] = {};
        ASSERT_TRUE(rank.number == 0 || become(other_user));
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_id_t id = 0;
        utofu_stadd_t stadd = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        ASSERT_EQ(utofu_reg_mem_with_stag(vcq, words, sizeof words, 1, 0, &stadd), UTOFU_SUCCESS);
        rank.set(10 + rank.number, id);
        rank.set(20 + rank.number, static_cast<uint64_t>(::getpid()));
        rank.barrier();
        const unsigned other = 1 - rank.number;
        ASSERT_EQ(posted([&] {
                      return utofu_put_piggyback8(vcq, rank.get(10 + other), 77, stadd, 8, 0,
                                                  UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                  }),
                  UTOFU_SUCCESS);
        utofu_mrq_notice notice;
        EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_ERR_MRQ_PEER);
        if (rank.number == 1) {
            EXPECT_EQ(::open(base_of(0).c_str(), O_RDONLY | O_DIRECTORY), -1);
            EXPECT_EQ(errno, EACCES);
            EXPECT_EQ(files_of(rank.get(20)), 0u);
        }
        rank.barrier();
        EXPECT_EQ(words[0], 0u);
    });
    EXPECT_NE(::access(base_of(other_user).c_str(), F_OK), 0); // gone with its last process
}

// What of this user is in /dev/shm besides the directory of the plain name.
std::vector<std::string> other_entries_of(uid_t user)
{
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        const std::string path = entry.path();
        if (path.rfind(base_of(user), 0) == 0 && path != base_of(user))
            found.push_back(path);
    }
    return found;
}

// A user that creates another user's directory first, of whatever kind, does not keep it out, and the directory is not
// used: all processes of the user agree on another one, also when they come at the same time and some have been killed
// before.
TEST(SimUsers, ADirectoryOfAnotherUserExcludesNoUser)
{
    if (::geteuid() != 0)
        GTEST_SKIP() << "only root can be two users";
    const std::string base = base_of(third_user);
    const std::string left = base + "~0123456789abcdef"; // by one that was killed
    for (const bool as_directory : {true, false}) {
        const int made = as_directory ? ::mkdir(base.c_str(), 0777) : ::symlink("/tmp", base.c_str());
        ASSERT_EQ(made, 0);
        EXPECT_EQ(::lchown(base.c_str(), other_user, other_user), 0);
        EXPECT_EQ(::mkdir(left.c_str(), 0700), 0);
        EXPECT_EQ(::chown(left.c_str(), third_user, third_user), 0);
        expect_processes(8, [](const Rank& rank) {
            static uint64_t word;
            ASSERT_TRUE(become(third_user));
            rank.barrier();
            utofu_vcq_hdl_t vcq = 0;
            utofu_vcq_id_t id = 0;
            utofu_stadd_t stadd = 0;
            ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
            ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
            ASSERT_EQ(utofu_reg_mem(vcq, &word, sizeof word, 0, &stadd), UTOFU_SUCCESS);
            rank.set(2 * rank.number, id);
            rank.set(2 * rank.number + 1, stadd);
            rank.barrier();
            const unsigned next = (rank.number + 1) % rank.size;
            ASSERT_EQ(posted([&] {
                          return utofu_put_piggyback8(vcq, rank.get(2 * next), 77, rank.get(2 * next + 1), 8, 0,
                                                      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                      }),
                      UTOFU_SUCCESS);
            utofu_mrq_notice notice;
            EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
            EXPECT_EQ(other_entries_of(third_user).size(), 1u);
            rank.barrier();
            EXPECT_EQ(__atomic_load_n(&word, __ATOMIC_ACQUIRE), 77u);
        });
        EXPECT_TRUE(other_entries_of(third_user).empty()); // gone with its last process
        EXPECT_EQ(::remove(base.c_str()), 0);              // and left empty
    }
}

// Peers cannot inspect it, and get a line that says so. They know that it exists.
TEST(SimUsers, AProcessThatIsNotDumpableIsNotReachedButNotDead)
{
    if (::geteuid() != 0)
        GTEST_SKIP() << "root looks into everything, and only root can be another user";
    ::setenv("TOFU_SIM_PPN", "9", 1);
    ::setenv("PMIX_RANK", "0", 1); // at the same place
    const auto exits = run_processes(2, [](const Rank& rank) {
        static uint64_t word;
        ASSERT_TRUE(become(third_user));
        utofu_vcq_hdl_t vcq = 0;
        utofu_vcq_id_t id = 0;
        if (rank.number == 0) {
            ASSERT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_SUCCESS);
            ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
            rank.set(0, id);
            ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
        }
        rank.barrier();
        if (rank.number == 1) {
            utofu_stadd_t stadd = 0;
            EXPECT_EQ(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq), UTOFU_ERR_FULL);
            ASSERT_EQ(utofu_create_vcq(1, 0, &vcq), UTOFU_SUCCESS);
            ASSERT_EQ(utofu_reg_mem(vcq, &word, sizeof word, 0, &stadd), UTOFU_SUCCESS);
            for (int i = 0; i < 3; i++) {
                ASSERT_EQ(posted([&] {
                              return utofu_put_piggyback8(vcq, rank.get(0), 77, stadd, 8, 0,
                                                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                          }),
                          UTOFU_SUCCESS);
                utofu_mrq_notice notice;
                EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_ERR_MRQ_PEER);
            }
        }
        rank.barrier();
    });
    ::unsetenv("TOFU_SIM_PPN");
    ::unsetenv("PMIX_RANK");
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_TRUE(exits[1].success()) << exits[1].errors;
    EXPECT_NE(exits[1].errors.find("runs but cannot be accessed: it denies access"), std::string::npos)
        << exits[1].errors;
    EXPECT_EQ(std::count(exits[1].errors.begin(), exits[1].errors.end(), '\n'), 1) << exits[1].errors;
}

} // namespace
} // namespace tofu::sim::test
