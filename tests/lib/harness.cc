// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a test's body in several processes of one simulated job, with bounded waits.
#include "harness.h"

#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <new>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

// The machine's own: a test may set the one of its process ahead.
struct Clock {
    static std::chrono::nanoseconds now()
    {
        timespec time{};
        (void)::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
        return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    }
};
constexpr std::chrono::seconds wait_limit(40);
constexpr std::chrono::seconds run_limit(120);
constexpr uid_t nobody = 65534;

std::string job_name;

std::string read_all(int fd)
{
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<size_t>(n));
    return text;
}

// The body's stderr goes to a file of memory, so that a full pipe cannot stop it.
[[noreturn]] void child(const Rank& rank, int errors, const std::function<void(const Rank&)>& body)
{
    (void)::dup2(errors, STDERR_FILENO);
    ::setenv("TOFU_SIM_JOB", job_name.c_str(), 1);
    if (std::getenv("TOFU_SIM_RANK") == nullptr && std::getenv("PMIX_RANK") == nullptr)
        ::setenv("TOFU_SIM_RANK", std::to_string(rank.number).c_str(), 1);
    body(rank);
    const bool failed = ::testing::Test::HasFailure();
    if (failed)
        rank.board->failed.fetch_add(1);
    // exit, not _exit: the library leaves the job in its destructor.
    std::exit(failed ? 1 : 0);
}

} // namespace

void Rank::barrier() const
{
    const uint32_t round = board->round.load();
    if (board->arrived.fetch_add(1) + 1 == size) {
        board->arrived.store(0);
        board->round.fetch_add(1);
        (void)::syscall(SYS_futex, &board->round, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        return;
    }
    // Asleep, so that many processes on few cores leave them to processes with work.
    const auto end = Clock::now() + wait_limit;
    const timespec look_again{0, 100'000'000};
    while (board->round.load() == round) {
        if (Clock::now() > end || board->failed.load() != 0) {
            ADD_FAILURE() << "process " << number << " waits too long for the others";
            std::exit(1);
        }
        (void)::syscall(SYS_futex, &board->round, FUTEX_WAIT, round, &look_again, nullptr, 0);
    }
}

namespace {

std::vector<Exit> run_in_job(unsigned size, const std::function<void(const Rank&)>& body)
{
    void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* const board = new (memory) Board{};
    std::vector<pid_t> pids(size);
    std::vector<int> errors(size);
    for (unsigned i = 0; i < size; i++) {
        errors[i] = ::memfd_create("stderr", MFD_CLOEXEC);
        pids[i] = ::fork();
        if (pids[i] == 0)
            child({i, size, board}, errors[i], body);
    }
    std::vector<Exit> exits(size);
    const auto end = Clock::now() + run_limit;
    for (unsigned i = 0; i < size; i++) {
        while (::waitpid(pids[i], &exits[i].status, WNOHANG) == 0) {
            if (Clock::now() > end) {
                ADD_FAILURE() << "process " << i << " does not end: killed";
                ::kill(pids[i], SIGKILL);
                ::waitpid(pids[i], &exits[i].status, 0);
                break;
            }
            ::usleep(200);
        }
        ::lseek(errors[i], 0, SEEK_SET);
        exits[i].errors = read_all(errors[i]);
        ::close(errors[i]);
    }
    ::munmap(memory, sizeof(Board));
    return exits;
}

} // namespace

std::vector<Exit> run_processes(unsigned size, const std::function<void(const Rank&)>& body)
{
    static unsigned runs = 0;
    // tests/run_limited finds by its prefix what a test leaves behind.
    const char* const prefix = std::getenv("TOFU_TEST_JOB_PREFIX");
    job_name = (prefix != nullptr ? prefix : "test-" + std::to_string(::getpid())) + "-" + std::to_string(runs++);
    return run_in_job(size, body);
}

void rejoin_last_job(const std::function<void(const Rank&)>& body)
{
    const auto exits = run_in_job(1, body);
    EXPECT_TRUE(exits[0].success()) << exits[0].errors;
}

void clear_last_job()
{
    rejoin_last_job([](const Rank&) {
        utofu_vcq_hdl_t vcq = 0;
        ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vcq(vcq), UTOFU_SUCCESS);
    });
}

void expect_processes(unsigned size, const std::function<void(const Rank&)>& body)
{
    const auto exits = run_processes(size, body);
    for (unsigned i = 0; i < size; i++) {
        EXPECT_TRUE(exits[i].success()) << "process " << i << " ended with status " << exits[i].status;
        EXPECT_EQ(exits[i].errors, "") << "process " << i << " wrote to stderr";
    }
    EXPECT_FALSE(job_is_left());
}

bool job_is_left()
{
    const auto is_there = [](uid_t user) {
        const std::string path = "/dev/shm/tofu-sim-" + std::to_string(user) + "/" + job_name;
        struct stat status {};
        return ::stat(path.c_str(), &status) == 0;
    };
    return is_there(::geteuid()) || is_there(nobody);
}

std::string become_ordinary()
{
    if (::geteuid() != 0)
        return "";
    for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            return "root may not drop capabilities here";
    if (::setgroups(0, nullptr) != 0 || ::setresgid(nobody, nobody, nobody) != 0 ||
        ::setresuid(nobody, nobody, nobody) != 0)
        return "root may not become another user here";
    // As after exec: otherwise no process may inspect this one, not even itself.
    return ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 ? "" : "the process cannot be made dumpable";
}

bool memory_moves()
{
    const auto device = [] {
        const int fd = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        const int made = fd < 0 ? -1 : ::ioctl(fd, _IO(0xAA, 0x00), O_CLOEXEC); // USERFAULTFD_IOC_NEW
        ::close(fd);
        return made;
    };
    int fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | 1)); // UFFD_USER_MODE_ONLY
    if (fd < 0)
        fd = device();
    uffdio_api api = {};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP; // of arm64 since Linux 6.10
    const bool protects = fd >= 0 && ::ioctl(fd, UFFDIO_API, &api) == 0;
    ::close(fd);
    return protects;
}

bool filters_calls()
{
    // Where filters are known, the one that is not there is what is wrong.
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) != 0 && errno == EFAULT;
}

bool wait_until(const std::function<bool()>& done)
{
    const auto end = Clock::now() + wait_limit;
    for (unsigned polls = 0; !done(); polls++) {
        if (polls % 64 == 63) {
            if (Clock::now() > end)
                return false;
            ::usleep(polls < 640 ? 0 : 50); // the cores are for processes with work
        }
    }
    return true;
}

int wait_tcq(utofu_vcq_hdl_t vcq, void** cbdata)
{
    int rc = UTOFU_ERR_NOT_FOUND;
    (void)wait_until([&] { return (rc = utofu_poll_tcq(vcq, 0, cbdata)) != UTOFU_ERR_NOT_FOUND; });
    return rc;
}

int wait_mrq(utofu_vcq_hdl_t vcq, utofu_mrq_notice* notice)
{
    int rc = UTOFU_ERR_NOT_FOUND;
    (void)wait_until([&] { return (rc = utofu_poll_mrq(vcq, 0, notice)) != UTOFU_ERR_NOT_FOUND; });
    return rc;
}

} // namespace tofu::sim::test
