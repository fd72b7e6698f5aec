// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a program as if the kernel were Linux 4.18, as far as a program can observe it: system calls, advice to madvise
// and ioctls that came later are refused, as that kernel refuses what it does not know. Run by
// tests/prov/whole/portable.sh. Status 77: filters are not available here.
//
// usage: old_kernel PROGRAM [ARGUMENTS]
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

#if defined(__x86_64__)
constexpr uint32_t first_later_call = 335; // behind rseq
#else
constexpr uint32_t first_later_call = 294; // the generic table
#endif
constexpr uint32_t first_later_advice = 20, last_later_advice = 25; // MADV_COLD to MADV_COLLAPSE
constexpr uint32_t userfault_new = 0xaa00;                          // USERFAULTFD_IOC_NEW: there was no such device
constexpr uint32_t userfault_api = 0xc018aa3f;                      // UFFDIO_API: nor protection against writes
constexpr uint32_t procmap_query = 0xc0686611;                      // PROCMAP_QUERY
constexpr long pidfd_open_call = 434;                               // everywhere

constexpr uint32_t low_half_of(unsigned argument)
{
    return uint32_t(offsetof(seccomp_data, args) + argument * sizeof(uint64_t));
}

bool refuse_what_came_later()
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first_later_call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half_of(2)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first_later_advice, 0, 8),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last_later_advice, 7, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half_of(1)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, userfault_api, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, userfault_new, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, procmap_query, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

} // namespace

int main(int count, char** arguments)
{
    if (count < 2 || !refuse_what_came_later()) {
        std::perror(count < 2 ? "old_kernel PROGRAM" : "old_kernel: no filter of system calls");
        return 77;
    }
    if (syscall(pidfd_open_call, getpid(), 0) != -1 || errno != ENOSYS) {
        std::fputs("old_kernel: a later system call is not refused\n", stderr);
        return 99;
    }
    execvp(arguments[1], arguments + 1);
    std::perror(arguments[1]);
    return 99;
}
