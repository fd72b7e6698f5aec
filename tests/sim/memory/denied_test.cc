// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory is reached on systems that refuse userfaultfd, process_vm_*, queries of mappings, or populating.
#include "harness.h"

#include <cerrno>
#include <cstddef>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace tofu::sim::test {
namespace {

enum Denied : unsigned {
    userfault = 1,
    process_copy = 2,
    map_query = 4,
    thread_query = 8,
    populate = 16,
    features = 32,
    several_pieces = 64 // ends the process that copies more than one piece by a call of process_vm_*
};

constexpr uint32_t userfault_new = 0xaa00;     // USERFAULTFD_IOC_NEW on /dev/userfaultfd
constexpr uint32_t userfault_api = 0xc018aa3f; // UFFDIO_API: a kernel without the features asked for says EINVAL
constexpr uint32_t procmap_query = 0xc0686611; // PROCMAP_QUERY on /proc/self/maps

// Refuses system calls in this process and its threads, from now on.
void deny(unsigned what)
{
    std::vector<sock_filter> program;
    const auto load = [&](size_t offset) { program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, uint32_t(offset))); };
    const auto refuse = [&](uint32_t value, uint32_t error) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
    };
    load(offsetof(seccomp_data, nr));
    if ((what & userfault) != 0)
        refuse(SYS_userfaultfd, EPERM);
    if ((what & process_copy) != 0) {
        refuse(SYS_process_vm_readv, EPERM);
        refuse(SYS_process_vm_writev, EPERM);
    }
    if ((what & thread_query) != 0)
        refuse(SYS_get_robust_list, EPERM);
    if ((what & several_pieces) != 0) { // not one of the two: the next four are left out
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0));
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 4));
        load(offsetof(seccomp_data, args) + 4 * sizeof(uint64_t)); // of the pieces there; low half first
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 1, 0, 1));
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    if ((what & populate) != 0) { // MADV_POPULATE_READ and _WRITE: where it is another call, the next five are left out
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 6));
        load(offsetof(seccomp_data, args) + 2 * sizeof(uint64_t));
        refuse(22, EINVAL);
        refuse(23, EINVAL);
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    load(offsetof(seccomp_data, args) + sizeof(uint64_t)); // the request; low half first
    if ((what & userfault) != 0)
        refuse(userfault_new, EPERM);
    if ((what & features) != 0)
        refuse(userfault_api, EINVAL);
    if ((what & map_query) != 0)
        refuse(procmap_query, ENOTTY);
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

void exercise_without(unsigned what, size_t words)
{
    if (!filters_calls())
        GTEST_SKIP() << "no system call can be refused here";
    expect_processes(2, [=](const Rank& rank) {
        deny(what);
        exercise(
            rank,
            [=](const auto& run) {
                std::vector<uint64_t> memory(words);
                run(memory.data(), words * 8);
            },
            2000);
    });
}

TEST(MemoryDenied, WithoutUserfaultfd)
{
    exercise_without(userfault, 200);
    exercise_without(userfault, 100000);
}

// A process that cannot find out where the kernel writes moves nothing.
TEST(MemoryDenied, WithoutKnowledgeOfThreads)
{
    exercise_without(thread_query, 100000);
}

TEST(MemoryDenied, WithoutCopiesThroughTheKernel)
{
    exercise_without(process_copy, 200);
    exercise_without(process_copy, 100000);
}

TEST(MemoryDenied, WithNothingButTheMailbox)
{
    exercise_without(userfault | process_copy, 200);
    exercise_without(userfault | process_copy, 100000);
}

TEST(MemoryDenied, WithMappingsReadAsText)
{
    exercise_without(map_query, 100000);
    exercise_without(map_query | userfault | process_copy, 100000);
}

// What has come since Linux 4.18 (RHEL 8): write protection by userfaultfd, queries of mappings, populating.
TEST(MemoryDenied, OnTheKernelOfRHEL8)
{
    exercise_without(features | map_query | populate, 200);
    exercise_without(features | map_query | populate, 100000);
}

// Pieces in an order have their price, so only the flag gets them.
TEST(MemoryDenied, TheKernelCopiesInOnePieceWithoutStrongOrder)
{
    if (!filters_calls())
        GTEST_SKIP() << "no system call can be refused here";
    static uint64_t words[3000] = {1}; // .data: reached through the kernel, always
    expect_processes(2, [](const Rank& rank) {
        Node node;
        rank.set(rank.number, node.id);
        rank.set(2 + rank.number, node.add(words, sizeof words));
        rank.barrier();
        if (rank.number == 1) {
            deny(several_pieces);
            std::vector<uint64_t> there(3000, 5);
            EXPECT_EQ(node.put(rank.get(0), rank.get(2), there.data(), sizeof words), UTOFU_SUCCESS);
            there.assign(3000, 0);
            EXPECT_EQ(node.get(rank.get(0), rank.get(2), there.data(), sizeof words), UTOFU_SUCCESS);
            EXPECT_EQ(there, std::vector<uint64_t>(3000, 5));
        }
        rank.barrier();
    });
}

} // namespace
} // namespace tofu::sim::test
