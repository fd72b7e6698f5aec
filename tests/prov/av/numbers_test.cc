// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Numbers of endpoints: which one a new endpoint gets, in its domain and behind an earlier domain with the same target
// VCQ.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <rdma/fi_errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "av/peer_table.h"
#include "core/system.h"

namespace tofu {
namespace {

std::string path()
{
    return "/dev/shm/tofu-fi-endpoints-" + std::to_string(geteuid());
}

/// Numbers of a domain in a job of this test's own.
class Domain {
  public:
    explicit Domain(std::uint64_t target_vcq, const char* job = nullptr)
    {
        EXPECT_EQ(numbers->open(job != nullptr ? job : own_job().c_str(), target_vcq, 77), 0);
    }
    unsigned alloc(unsigned count = 1)
    {
        unsigned first = ~0u;
        EXPECT_EQ(numbers->alloc(count, first, incarnation), 0);
        return first;
    }
    std::uint16_t incarnation = 0; ///< of what was taken last
    EndpointNumbers* operator->() { return numbers.get(); }
    /// As a killed process does: nothing is given back.
    void abandon() { (void)numbers.release(); }

  private:
    static const std::string& own_job()
    {
        static const std::string name = "numbers-test-" + std::to_string(getpid());
        return name;
    }
    std::unique_ptr<EndpointNumbers> numbers = std::make_unique<EndpointNumbers>();
};

TEST(EndpointNumbers, ANumberIsUsedAgainOnlyWhenAllHaveBeenUsed)
{
    Domain domain(1);
    for (unsigned n = 0; n < max_endpoints; n++) {
        EXPECT_EQ(domain.alloc(), n);
        domain->release(n, 1);
    }
    EXPECT_EQ(domain.alloc(), 0u);
    EXPECT_EQ(domain.alloc(), 1u);
}

TEST(EndpointNumbers, AnEndpointIsNotTakenForAnEarlierOneWithItsNumber)
{
    constexpr std::uint64_t of_domain = 0x222233334444;
    Domain domain(1);
    std::set<std::uint64_t> nonces;
    for (unsigned n = 0; n < 3 * max_endpoints; n++) {
        const unsigned number = domain.alloc();
        const std::uint64_t nonce = endpoint_nonce(of_domain, domain.incarnation);
        EXPECT_EQ(nonce_of_domain(nonce), of_domain);
        EXPECT_TRUE(nonces.insert(nonce).second);
        domain->release(number, 1);
    }
}

TEST(EndpointNumbers, TheNumberGivenBackFirstComesFirst)
{
    Domain domain(1);
    for (unsigned n = 0; n < max_endpoints; n++)
        (void)domain.alloc();
    for (const unsigned n : {7u, 3u, 200u})
        domain->release(n, 1);
    EXPECT_EQ(domain.alloc(), 7u);
    EXPECT_EQ(domain.alloc(), 3u);
    EXPECT_EQ(domain.alloc(), 200u);
    unsigned none = 0;
    EXPECT_EQ(domain->alloc(1, none, domain.incarnation), -FI_ENOSPC);
}

TEST(EndpointNumbers, ContextsHaveNumbersInARow)
{
    Domain domain(1);
    EXPECT_EQ(domain.alloc(8), 0u);
    EXPECT_EQ(domain.alloc(8), 8u);
    for (unsigned n = 16; n < max_endpoints; n++)
        (void)domain.alloc();
    domain->release(8, 8);
    domain->release(100, 1);
    EXPECT_EQ(domain.alloc(8), 8u);
    unsigned none = 0;
    EXPECT_EQ(domain->alloc(2, none, domain.incarnation), -FI_ENOSPC);
}

TEST(EndpointNumbers, AnUnsettledNumberIsTheLastChoice)
{
    Domain domain(1);
    const unsigned stale = domain.alloc();
    domain->set_unsettled(stale);
    domain->release(stale, 1);
    for (unsigned round = 0; round < 2 * max_endpoints; round++) {
        const unsigned n = domain.alloc();
        EXPECT_NE(n, stale);
        domain->release(n, 1);
    }
    for (unsigned n = 1; n < max_endpoints; n++)
        (void)domain.alloc();
    EXPECT_EQ(domain.alloc(), stale);
}

TEST(EndpointNumbers, ASuccessorDoesNotGetWhatIsUnsettled)
{
    Domain keeps_the_file(9);
    {
        Domain first(1);
        (void)first.alloc(3);
        first->set_unsettled(1);
        first->release(0, 3);
    }
    Domain other_vcq(2);
    EXPECT_EQ(other_vcq.alloc(2), 0u);
    Domain next(1);
    EXPECT_EQ(next.alloc(), 0u);
    EXPECT_EQ(next.alloc(), 2u);
    next->release(0, 1);
    next->release(2, 1);
}

TEST(EndpointNumbers, TheSuccessorOfAKilledProcessGetsNoneOfItsNumbers)
{
    // The file outlives this process while programs of other jobs use it.
    const std::string job = "numbers-test-killed-" + std::to_string(getpid());
    const std::string other = "numbers-test-another-" + std::to_string(getpid());
    Domain keeps_the_file(9);
    const pid_t child = fork();
    if (child == 0) {
        Domain killed(3, job.c_str());
        (void)killed.alloc(4);
        killed->release(3, 1);
        killed.abandon();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    Domain next(3, job.c_str());
    EXPECT_EQ(next.alloc(), 3u);
    Domain other_job(3, other.c_str());
    EXPECT_EQ(other_job.alloc(), 0u);
}

/// More VCQs than the file has records: the oldest are forgotten, and nothing else goes wrong.
TEST(EndpointNumbers, MoreHistoriesThanThereAreRecords)
{
    Domain keeps_the_file(9);
    std::vector<Domain> domains;
    for (std::uint64_t target_vcq = 100; target_vcq < 1100; target_vcq++) {
        domains.emplace_back(target_vcq);
        EXPECT_EQ(domains.back().alloc(), 0u);
    }
    for (Domain& domain : domains)
        domain->release(0, 1);
    struct stat file {};
    ASSERT_EQ(stat(path().c_str(), &file), 0);
    EXPECT_LE(file.st_size, 512 * 64);
}

TEST(EndpointNumbers, TheirFileStaysAsLongAsAnotherProcessHasIt)
{
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const Domain domain(21);
        _exit(write(ends[1], "", 1) == 1 ? pause() : 1);
    }
    char ready = 1;
    EXPECT_EQ(read(ends[0], &ready, 1), 1);
    struct stat before {
    }, after{};
    EXPECT_EQ(stat(path().c_str(), &before), 0);
    {
        const Domain domain(22);
    }
    EXPECT_EQ(stat(path().c_str(), &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino);
    EXPECT_EQ(kill(child, SIGKILL), 0);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    const Domain last(23); // removes what the child has left, if no other process has it
    close(ends[0]);
    close(ends[1]);
}

/// All calls that open a file end with this error, in the calling process. False: there are no filters here.
bool refuse_files(std::uint32_t error)
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(EndpointNumbers, AProcessOrASystemWithoutDescriptorsIsAnError)
{
    for (const int error : {EMFILE, ENFILE}) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            if (!refuse_files(static_cast<std::uint32_t>(error)))
                _exit(0);
            _exit(EndpointNumbers().open("numbers-test", 5, 77) == -FI_EMFILE ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << error;
    }
}

/// A question takes no lock: another descriptor's lock is in its way, and its own is not.
TEST(NodeFile, TellsWhetherAnotherHoldsALock)
{
    const std::string name = "/dev/shm/tofu-fi-test-" + std::to_string(getpid());
    NodeFile holder, other;
    ASSERT_TRUE(holder.open(name.c_str()));
    ASSERT_TRUE(other.open(name.c_str()));
    EXPECT_TRUE(other.lock(F_WRLCK, 5, 1, F_OFD_GETLK));
    ASSERT_TRUE(holder.lock(F_WRLCK, 5, 1));
    EXPECT_FALSE(other.lock(F_WRLCK, 5, 1, F_OFD_GETLK));
    EXPECT_TRUE(other.lock(F_WRLCK, 6, 1, F_OFD_GETLK));
    EXPECT_TRUE(holder.lock(F_WRLCK, 5, 1, F_OFD_GETLK));
    holder.remove();
    holder.close();
    other.close();
}

TEST(NodeFile, SignalsDoNotShortenTheWaitForALock)
{
    using namespace std::chrono_literals;
    const std::string name = "/dev/shm/tofu-fi-test-" + std::to_string(getpid());
    NodeFile holder, other;
    ASSERT_TRUE(holder.open(name.c_str()));
    ASSERT_TRUE(other.open(name.c_str()));
    ASSERT_TRUE(holder.lock(F_WRLCK, 5, 1));
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) {};
    sigaction(SIGURG, &action, &before); // a late one is ignored afterwards
    std::thread disturb([&, waiter = pthread_self()] {
        for (const auto end = std::chrono::steady_clock::now() + 200ms; std::chrono::steady_clock::now() < end;) {
            pthread_kill(waiter, SIGURG);
            std::this_thread::sleep_for(100us);
        }
        EXPECT_TRUE(holder.lock(F_UNLCK, 5, 1));
    });
    EXPECT_TRUE(other.lock_within(600ms, F_WRLCK, 5, 1));
    disturb.join();
    sigaction(SIGURG, &before, nullptr);
    holder.remove();
    holder.close();
    other.close();
}

/// Also by a process without standard input, where descriptor 0 is one as any other.
TEST(NodeFile, IsClosedWhateverItsDescriptor)
{
    const int input = dup(STDIN_FILENO);
    ASSERT_GE(input, 0);
    close(STDIN_FILENO);
    NodeFile file;
    EXPECT_TRUE(file.open(("/dev/shm/tofu-fi-test-" + std::to_string(getpid())).c_str()));
    EXPECT_EQ(file.descriptor(), STDIN_FILENO);
    file.remove();
    file.close();
    EXPECT_FALSE(file.is_open());
    EXPECT_EQ(fcntl(STDIN_FILENO, F_GETFD), -1);
    EXPECT_EQ(dup2(input, STDIN_FILENO), STDIN_FILENO);
    close(input);
}

} // namespace
} // namespace tofu
