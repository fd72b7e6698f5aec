// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A unit test runs a part of itself in a child of fork, which has decided nothing that its parent has not.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::test {

/// What `work` returns in a child, 0 to 255; more if a signal ends the child, 20 s later at the latest.
template <class Work>
int in_child(Work&& work)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(work());
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

} // namespace tofu::test
