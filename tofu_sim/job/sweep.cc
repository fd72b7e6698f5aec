// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Removes the files of other jobs whose processes were all killed, so that none outlives the next start. Once, by the
// first process of a job.
//
// A process that creates or joins a job holds the lock of its directory until it has taken its slot, and after getting
// the lock checks that the directory still exists (job/job.cc). So with the lock held and no slot of a
// running process, the job is empty, and no process can join unnoticed.
#include "job/sweep.h"

#include "job/base_directory.h"
#include "job/liveness.h"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr unsigned max_jobs_looked_at = 64;

/// Whether processes of this user would join it (job/job.cc). Any other directory is no job.
bool is_job(int fd) noexcept
{
    struct stat status {};
    return ::fstat(fd, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 0077) == 0;
}

/// An entry that cannot be opened for lack of a resource may be a job.
bool may_be_in_use(int directory) noexcept
{
    const int file = ::openat(directory, job_file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return errno != ENOENT;
    const bool in_use = may_run(job_life(file));
    ::close(file);
    return in_use;
}

void sweep_job(int base_fd, const char* name) noexcept
{
    const int directory = ::openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0)
        return;
    if (is_job(directory) && ::flock(directory, LOCK_EX | LOCK_NB) == 0 && !may_be_in_use(directory)) {
        // What is not our job file stays, and its directory with it.
        (void)::unlinkat(directory, job_file_name, 0);
        (void)::unlinkat(base_fd, name, AT_REMOVEDIR);
    }
    ::close(directory); // and with it the lock
}

} // namespace

void sweep_dead_jobs(int base_fd, const char* own_name) noexcept
{
    const int copy = ::openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const stream = copy >= 0 ? ::fdopendir(copy) : nullptr;
    if (stream == nullptr) {
        if (copy >= 0)
            ::close(copy);
        return;
    }
    unsigned looked_at = 0;
    while (const dirent* const entry = ::readdir(stream)) {
        if (entry->d_name[0] != '.' && std::strcmp(entry->d_name, own_name) != 0) {
            sweep_job(base_fd, entry->d_name);
            if (++looked_at == max_jobs_looked_at)
                break;
        }
    }
    ::closedir(stream);
}

} // namespace tofu::sim
