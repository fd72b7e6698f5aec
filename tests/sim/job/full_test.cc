// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// /dev/shm with any number of pages or files left, or that may not be written: an error and a line that says why, never
// a SIGBUS. Needs a mount namespace of its own and is skipped where none can be had.
#include "lib/harness.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
constexpr size_t pages = 512;

void write_text(const char* path, const std::string& text)
{
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0) << path;
    ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size())) << path;
    ::close(fd);
}

// A file system of our own instead of /dev/shm. False: not allowed here.
bool enter_own_shm(const std::string& options, unsigned long flags = 0)
{
    const uid_t uid = ::geteuid();
    const gid_t gid = ::getegid();
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
            return false;
        write_text("/proc/self/setgroups", "deny");
        write_text("/proc/self/uid_map", std::to_string(uid) + " " + std::to_string(uid) + " 1");
        write_text("/proc/self/gid_map", std::to_string(gid) + " " + std::to_string(gid) + " 1");
    }
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tofu-test", "/dev/shm", "tmpfs", flags, ("mode=1777," + options).c_str()) == 0;
}

size_t free_pages()
{
    struct statvfs status {};
    EXPECT_EQ(::statvfs("/dev/shm", &status), 0);
    return status.f_bfree;
}

// Takes all but `left` pages.
void fill(int file, size_t left)
{
    ASSERT_EQ(::ftruncate(file, 0), 0);
    ASSERT_GE(free_pages(), left);
    const size_t take = free_pages() - left;
    if (take != 0)
        ASSERT_EQ(::fallocate(file, 0, 0, static_cast<off_t>(take * page)), 0) << std::strerror(errno);
    ASSERT_EQ(free_pages(), left);
}

// What a program does that needs pages in /dev/shm: joins, makes VCQs, and gates on each TNI. Returns the first error.
int use_everything()
{
    utofu_vcq_hdl_t vcq = 0;
    if (const int rc = utofu_create_vcq(0, 0, &vcq); rc != UTOFU_SUCCESS)
        return rc;
    static uint64_t words[2];
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
    EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
    EXPECT_EQ(utofu_reg_mem(vcq, words, sizeof words, 0, &stadd), UTOFU_SUCCESS);
    EXPECT_EQ(posted([&] {
                  return utofu_put_piggyback8(vcq, id, 7, stadd, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
              }),
              UTOFU_SUCCESS);
    utofu_mrq_notice notice{};
    EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
    EXPECT_EQ(words[0], 7u);
    for (utofu_tni_id_t tni = 0; tni < 6; tni++) {
        utofu_vbg_id_t gates[2];
        if (const int rc = utofu_alloc_vbg(tni, 2, 0, gates); rc != UTOFU_SUCCESS)
            return rc;
    }
    return UTOFU_SUCCESS;
}

struct Outcome {
    int status = 0;
    int rc = 0;
    std::string errors;
};

Outcome run_once()
{
    auto* const result =
        static_cast<int*>(::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int errors = ::memfd_create("stderr", MFD_CLOEXEC);
    Outcome outcome;
    const pid_t pid = ::fork();
    if (pid == 0) {
        (void)::dup2(errors, STDERR_FILENO);
        *result = use_everything();
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    ::waitpid(pid, &outcome.status, 0);
    outcome.rc = *result;
    char text[4096];
    const ssize_t size = ::pread(errors, text, sizeof text, 0);
    outcome.errors.assign(text, size > 0 ? static_cast<size_t>(size) : 0);
    ::close(errors);
    ::munmap(result, page);
    return outcome;
}

// In a process of its own, which has the small /dev/shm. 77: not allowed.
int try_all_fillings()
{
    if (!enter_own_shm("size=" + std::to_string(pages * page)))
        return 77;
    const int file = ::open("/dev/shm/filling", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_GE(file, 0);
    unsigned refused = 0;
    unsigned served = 0;
    for (size_t left = 0; left < 80 && !::testing::Test::HasFailure(); left++) {
        fill(file, left);
        const Outcome outcome = run_once();
        EXPECT_EQ(outcome.status, 0) << "with " << left << " pages: " << outcome.errors;
        if (outcome.rc == UTOFU_SUCCESS) {
            served++;
            EXPECT_EQ(outcome.errors, "");
        } else {
            refused++;
            EXPECT_EQ(outcome.rc, UTOFU_ERR_OUT_OF_MEMORY) << "with " << left << " pages: " << outcome.errors;
            EXPECT_NE(outcome.errors.find("/dev/shm"), std::string::npos) << outcome.errors;
        }
    }
    EXPECT_GT(refused, 3u);
    EXPECT_GT(served, 3u);
    return ::testing::Test::HasFailure() ? 1 : 0;
}

// The root of the file system is one of them.
int try_files(unsigned most)
{
    if (!enter_own_shm("nr_inodes=" + std::to_string(most)))
        return 77;
    const Outcome outcome = run_once();
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.rc, UTOFU_ERR_OUT_OF_RESOURCE) << outcome.errors;
    EXPECT_NE(outcome.errors.find("no inode is left in /dev/shm"), std::string::npos) << outcome.errors;
    return ::testing::Test::HasFailure() ? 1 : 0;
}

int try_read_only()
{
    if (!enter_own_shm("size=1m", MS_RDONLY))
        return 77;
    const Outcome outcome = run_once();
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.rc, UTOFU_ERR_NOT_AVAILABLE) << outcome.errors;
    EXPECT_NE(outcome.errors.find("create files in /dev/shm"), std::string::npos) << outcome.errors;
    return ::testing::Test::HasFailure() ? 1 : 0;
}

// In a child. 77: not allowed here.
template <typename Body>
int status_of(Body&& body)
{
    const pid_t pid = ::fork();
    if (pid == 0)
        std::exit(body());
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr const char* no_namespace = "no mount namespace may be made here";

TEST(SimFull, ASharedMemoryFileSystemWithoutRoomIsAnErrorThatSaysSo)
{
    const int status = status_of(try_all_fillings);
    if (status == 77)
        GTEST_SKIP() << no_namespace;
    EXPECT_EQ(status, 0);
}

TEST(SimFull, ASharedMemoryFileSystemWithoutInodesIsAnErrorThatSaysSo)
{
    for (unsigned most = 1; most <= 3; most++) { // the claim or the directory of jobs, the job's, and its file
        const int status = status_of([most] { return try_files(most); });
        if (status == 77)
            GTEST_SKIP() << no_namespace;
        EXPECT_EQ(status, 0) << most;
    }
}

TEST(SimFull, ASharedMemoryFileSystemThatMayNotBeWrittenIsAnErrorThatSaysSo)
{
    const int status = status_of(try_read_only);
    if (status == 77)
        GTEST_SKIP() << no_namespace;
    EXPECT_EQ(status, 0);
}

} // namespace
} // namespace tofu::sim::test
