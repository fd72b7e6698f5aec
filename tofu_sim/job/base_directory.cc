// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The directory under /dev/shm in which the jobs of this user are, whatever others have put there.
//
// Every user may create entries of any name in /dev/shm, but cannot remove those of others (it is sticky). The
// directory is tofu-sim-<uid>; if another user has taken that name, tofu-sim-<uid>.<random>, found by its owner. All
// processes of a user have to choose the same one, and there is no lock that another user could not hold. So a process
// that creates a directory makes a claim first, tofu-sim-<uid>~<random>, which is a directory too:
//   1. make the claim and lock it (flock);
//   2. look for other claims of this user: one that is locked is a rival, give up and begin again; one that is not was
//      left by a killed process, remove it, with the lock held;
//   3. look for the directory again, and if there is none, create it: by its plain name, or by renaming the claim.
// Of two that are at 3 at the same time one has made its claim before the other looked (2), and was seen.
#include "job/base_directory.h"

#include "job/descriptors.h"
#include "job/report.h"

#include <utofu.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr char of_another_name = '.';
constexpr char of_a_claim = '~';

struct Descriptor {
    int fd;
    explicit Descriptor(int number) noexcept : fd(number) {}
    ~Descriptor()
    {
        if (fd >= 0)
            ::close(fd);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
};

struct CloseDirectory {
    void operator()(DIR* stream) const noexcept { ::closedir(stream); }
};

int report_failure(const char* verb, const char* path) noexcept
{
    const int error = errno;
    report("cannot %s %s: %s; %s", verb, path, std::strerror(error),
           advice_of(error, "check that /dev/shm is mounted"));
    return is_scarcity(error) ? UTOFU_ERR_OUT_OF_RESOURCE : UTOFU_ERR_NOT_AVAILABLE;
}

/// Opens a directory of this user. BUSY: there is none, or it belongs to another user; an error is reported.
int open_own(const char* path, int& fd) noexcept
{
    struct stat status {};
    if (::lstat(path, &status) != 0 || status.st_uid != ::geteuid())
        return UTOFU_ERR_BUSY;
    if (!S_ISDIR(status.st_mode) || (status.st_mode & 0077) != 0) {
        report("%s has mode %06o instead of being a directory of mode 700: remove it", path, status.st_mode);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    // The owner cannot have changed meanwhile: no other user may remove the directory.
    fd = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? UTOFU_ERR_BUSY : report_failure("open", path);
    return UTOFU_SUCCESS;
}

/// Calls `visit` with the path of each entry of this user that is the plain name, `mark` and more, until it returns
/// true.
template <typename Visit>
int visit_own(const BaseDirectory& plain, char mark, Visit&& visit) noexcept
{
    const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(shm_root));
    if (stream == nullptr)
        return report_failure("look into", shm_root);
    const char* const name = plain.path + sizeof shm_root; // behind the slash
    const size_t length = std::strlen(name);
    while (const dirent* const entry = ::readdir(stream.get())) {
        char path[sizeof plain.path];
        if (std::strncmp(entry->d_name, name, length) != 0 || entry->d_name[length] != mark ||
            std::snprintf(path, sizeof path, "%s/%.40s", shm_root, entry->d_name) >= int{sizeof path})
            continue;
        struct stat status {};
        if (::lstat(path, &status) == 0 && status.st_uid == ::geteuid() && S_ISDIR(status.st_mode) && visit(path))
            break;
    }
    return UTOFU_SUCCESS;
}

void name_plain(BaseDirectory& base) noexcept
{
    base.fd = -1;
    std::snprintf(base.path, sizeof base.path, "%s/tofu-sim-%u", shm_root, ::geteuid());
}

/// Whether another process is creating it. Removes the claims of killed processes.
int look_for_rivals(const BaseDirectory& plain, const char* claim, bool& rival) noexcept
{
    rival = false;
    return visit_own(plain, of_a_claim, [&](const char* path) {
        if (std::strcmp(path, claim) == 0)
            return false;
        const Descriptor other(::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (other.fd >= 0 && ::flock(other.fd, LOCK_EX | LOCK_NB) == 0)
            (void)::rmdir(path);
        else
            rival = other.fd >= 0 || errno != ENOENT;
        return rival;
    });
}

int make_with_claim(const char* claim, uint64_t random, BaseDirectory& base) noexcept
{
    if (const int rc = find_base_directory(base); rc != UTOFU_SUCCESS || base.fd >= 0)
        return rc;
    if (::mkdir(base.path, 0700) == 0)
        return open_own(base.path, base.fd);
    if (errno != EEXIST)
        return report_failure("create", base.path);
    char other[sizeof base.path];
    std::snprintf(other, sizeof other, "%.40s%c%016" PRIx64, base.path, of_another_name, random);
    if (::rename(claim, other) != 0)
        return UTOFU_ERR_BUSY;
    std::memcpy(base.path, other, sizeof other);
    return open_own(base.path, base.fd);
}

} // namespace

int find_base_directory(BaseDirectory& base) noexcept
{
    name_plain(base);
    if (const int rc = open_own(base.path, base.fd); rc != UTOFU_ERR_BUSY)
        return rc;
    const BaseDirectory plain = base;
    int found = UTOFU_SUCCESS;
    const int rc = visit_own(plain, of_another_name, [&](const char* path) {
        std::snprintf(base.path, sizeof base.path, "%s", path);
        found = open_own(path, base.fd);
        return true;
    });
    return rc != UTOFU_SUCCESS ? rc : found;
}

int make_base_directory(BaseDirectory& base) noexcept
{
    if (const int rc = find_base_directory(base); rc != UTOFU_SUCCESS || base.fd >= 0)
        return rc;
    uint64_t random = 0;
    if (::getrandom(&random, sizeof random, GRND_NONBLOCK) != ssize_t{sizeof random}) {
        timespec now{};
        (void)::clock_gettime(CLOCK_MONOTONIC, &now); // guessing it yields only an unused name
        random = static_cast<uint64_t>(now.tv_nsec) << 32 ^ static_cast<uint64_t>(::getpid());
    }
    char claim[sizeof base.path];
    std::snprintf(claim, sizeof claim, "%.40s%c%016" PRIx64, base.path, of_a_claim, random);
    if (::mkdir(claim, 0700) != 0)
        return errno == EEXIST ? UTOFU_ERR_BUSY : report_failure("create", claim);
    const Descriptor held(::open(claim, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    bool rival = true;
    int rc = UTOFU_SUCCESS;
    if (held.fd < 0 && errno != ENOENT)
        rc = report_failure("open", claim);
    else if (held.fd >= 0 && ::flock(held.fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(held.fd, &status) == 0 &&
             status.st_nlink != 0) // else another process took it for a leftover
        rc = look_for_rivals(base, claim, rival);
    if (rc == UTOFU_SUCCESS)
        rc = rival ? UTOFU_ERR_BUSY : make_with_claim(claim, random, base);
    (void)::rmdir(claim); // not there any more if it was renamed
    if (rival && rc == UTOFU_ERR_BUSY) {
        const timespec pause{0, static_cast<long>(random % 1'000'000)}; // not in step with the rival
        (void)::nanosleep(&pause, nullptr);
    }
    return rc;
}

} // namespace tofu::sim
