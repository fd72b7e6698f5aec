// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: users of one machine: nobody enters the job of another, nor bars him from his own without a word.
// Called by: make check; as root, who can be anybody. Calls: the public interface, files.
#include "sim_harness.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

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
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can be two users";
    }
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

// Who makes the directory of another before him keeps him out, and he learns why; none of it is used.
TEST(SimUsers, ADirectoryThatAnotherHasMadeIsRefused)
{
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can be two users";
    }
    const std::string base = base_of(third_user);
    ASSERT_EQ(::mkdir(base.c_str(), 0777), 0);
    EXPECT_EQ(::chmod(base.c_str(), 0777), 0);
    EXPECT_EQ(::chown(base.c_str(), other_user, other_user), 0);
    const auto exits = run_processes(1, [](const Rank&) {
        ASSERT_TRUE(become(third_user));
        utofu_vcq_hdl_t vcq = 0;
        EXPECT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_ERR_NOT_AVAILABLE);
    });
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
    EXPECT_NE(exits[0].errors.find(base + " belongs to user " + std::to_string(other_user)), std::string::npos)
        << exits[0].errors;
    EXPECT_EQ(::rmdir(base.c_str()), 0); // and left empty
}

} // namespace
} // namespace tofu::sim::test
