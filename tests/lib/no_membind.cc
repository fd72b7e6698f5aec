// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs a program whose memory cannot be bound to NUMA nodes: the system calls for it say EPERM, as under the filter of
// a container. Run by tests/prov/core/plugin.sh. Status 77: filters are not available here.
//
// usage: no_membind PROGRAM [ARGUMENTS]
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

bool refuse_binding()
{
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_mempolicy, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_get_mempolicy, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

} // namespace

int main(int count, char** arguments)
{
    if (count < 2 || !refuse_binding()) {
        std::perror(count < 2 ? "no_membind PROGRAM" : "no_membind: no filter of system calls");
        return 77;
    }
    if (syscall(SYS_set_mempolicy, 0, nullptr, 0UL) != -1 || errno != EPERM) {
        std::fputs("no_membind: binding is not refused\n", stderr);
        return 99;
    }
    execvp(arguments[1], arguments + 1);
    std::perror(arguments[1]);
    return 99;
}
