// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// TNI slots of VCQs (utofu/tni_allocator.h) where there is no file to lock: the launcher's number decides. And where
// its name in /dev/shm, which every user may write to, is not a file of this user: nothing of that is followed, used or
// removed. Run by make check; each test in a process of its own, with a /dev/shm of its own.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/log.h"
#include "lib/child.h"
#include "prov/lib/fake_net.h"
#include "utofu/tni_allocator.h"

namespace {

using namespace tofu::vcq::tni_allocator;

int warnings = 0; // of this process
std::string warned_of;

} // namespace

// Of libfabric, which is not called here.
extern "C" int fi_log_enabled(const fi_provider*, fi_log_level level, fi_log_subsys)
{
    return level == FI_LOG_WARN ? 1 : 0;
}
extern "C" void fi_log(const fi_provider*, fi_log_level, fi_log_subsys, const char*, int, const char* format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    std::vsnprintf(line, sizeof line, format, list);
    va_end(list);
    warnings++;
    warned_of = line;
}

namespace {

constexpr int denied = 77;
constexpr const char* target = "/dev/shm/target";
constexpr const char* ranks[] = {"PMIX_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "MPI_LOCALRANKID", "PALS_LOCAL_RANKID",
                                 "SLURM_LOCALID",   "FLUX_TASK_LOCAL_ID"};

const tofu::vcq::Backend& backend()
{
    static const tofu::vcq::Backend one{fake::functions(), {}, 6};
    return one;
}
std::string path()
{
    return "/dev/shm/tofu-fi-" + std::to_string(geteuid());
}

bool tell(const char* file, const std::string& text)
{
    const int fd = open(file, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return done;
}
/// An empty /dev/shm that no other process sees.
bool go_apart()
{
    const unsigned user = geteuid(), group = getegid();
    if (user == 0 ? unshare(CLONE_NEWNS) != 0
                  : unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !tell("/proc/self/setgroups", "deny") ||
                        !tell("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") ||
                        !tell("/proc/self/gid_map", "0 " + std::to_string(group) + " 1"))
        return false;
    return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0;
}

template <class Work>
int apart(Work&& work)
{
    return test::in_child([&] {
        warnings = 0;
        for (const char* name : ranks)
            unsetenv(name);
        return go_apart() ? work() : denied;
    });
}
#define SKIP_IF_DENIED(result)                                                                                         \
    if ((result) == denied)                                                                                            \
    GTEST_SKIP() << "no mount namespace for this user here"

int lowest_descriptor()
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

/// What stands under the name is refused, left as it is, and the launcher's number taken.
int refused()
{
    struct stat before {
    }, after{};
    const int descriptor = lowest_descriptor();
    setenv("PMIX_LOCAL_RANK", "3", 1);
    if (lstat(path().c_str(), &before) != 0)
        return 1;
    for (unsigned i = 0; i < 3; i++) {
        const TniSlot in = acquire(backend(), Traffic::in), out = acquire(backend(), Traffic::out);
        if (in.holder || out.holder)
            return 2;
        if (in.number != 3 + i || out.number != 3 + i || tni_of(in) != (3 + i) % 6 || tni_of(out) != 5 - (3 + i) % 6)
            return 3;
        release(in);
        release(out);
    }
    if (lstat(path().c_str(), &after) != 0 || after.st_ino != before.st_ino)
        return 4;
    if (warnings != 1 || warned_of.find(path()) == std::string::npos)
        return 6;
    return lowest_descriptor() == descriptor ? 0 : 5;
}

TEST(TniAllocator, AFileOfThisUserIsUsedAndGoesWithTheLast)
{
    const int result = apart([] {
        const TniSlot a = acquire(backend(), Traffic::in), b = acquire(backend(), Traffic::in);
        if (!a.holder || !b.holder || a.number != 0 || b.number != 1 || access(path().c_str(), F_OK) != 0)
            return 1;
        release(a);
        const TniSlot c = acquire(backend(), Traffic::in);
        if (!c.holder || c.number != 0)
            return 2;
        release(b);
        release(c);
        return access(path().c_str(), F_OK) != 0 ? 0 : 3;
    });
    SKIP_IF_DENIED(result);
    EXPECT_EQ(result, 0);
}

TEST(TniAllocator, ASymbolicLinkIsNotFollowed)
{
    for (bool dangling : {false, true}) {
        const int result = apart([dangling] {
            if (!dangling)
                close(open(target, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
            if (symlink(target, path().c_str()) != 0)
                return 10;
            if (const int why = refused(); why != 0)
                return why;
            return (access(target, F_OK) != 0) == dangling ? 0 : 11; // neither made nor removed
        });
        SKIP_IF_DENIED(result);
        EXPECT_EQ(result, 0);
    }
}

TEST(TniAllocator, WhatIsNoFileIsNotUsed)
{
    for (mode_t kind : {S_IFIFO, S_IFDIR}) {
        const int result = apart([kind] {
            if ((kind == S_IFIFO ? mkfifo(path().c_str(), 0600) : mkdir(path().c_str(), 0700)) != 0)
                return 10;
            return refused();
        });
        SKIP_IF_DENIED(result);
        EXPECT_EQ(result, 0) << kind;
    }
}

TEST(TniAllocator, AFileOfAnotherUserIsNotUsed)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can be two users";
    const int result = apart([] {
        constexpr uid_t me = 54321;
        const std::string mine = "/dev/shm/tofu-fi-" + std::to_string(me);
        const int fd = open(mine.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || fchmod(fd, 0666) != 0 || close(fd) != 0 || seteuid(me) != 0)
            return 10;
        return refused();
    });
    SKIP_IF_DENIED(result);
    EXPECT_EQ(result, 0);
}

TEST(TniAllocator, TheLaunchersNumberByAnyOfItsNames)
{
    for (const char* name : ranks) {
        const int result = apart([name] {
            if (mkdir(path().c_str(), 0700) != 0)
                return 10;
            setenv(name, "5", 1);
            const TniSlot slot = acquire(backend(), Traffic::in);
            return !slot.holder && slot.number == 5 ? 0 : 1;
        });
        SKIP_IF_DENIED(result);
        EXPECT_EQ(result, 0) << name;
    }
}

TEST(TniAllocator, WhatIsNoNumberIsNotTheLaunchers)
{
    for (const char* text : {"", "x", "5x", "-1", "99999999999999999999", "1024"}) {
        const int result = apart([text] {
            if (mkdir(path().c_str(), 0700) != 0)
                return 10;
            setenv("PMIX_LOCAL_RANK", text, 1);
            setenv("SLURM_LOCALID", "2", 1); // the next that is one
            const TniSlot slot = acquire(backend(), Traffic::in);
            return !slot.holder && slot.number == 2 ? 0 : 1;
        });
        SKIP_IF_DENIED(result);
        EXPECT_EQ(result, 0) << '"' << text << '"';
    }
}

} // namespace
