// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The job: its directory and file, the slots of its processes; joining and leaving.
//
// Joining and leaving are serialised by flock on the job's directory, which the kernel releases when its
// holder dies. What a killed process left is found by its slot (pid and start time) and taken over.
#include "job/job.h"

#include "job/backoff.h"
#include "job/base_directory.h"
#include "job/kinship.h"
#include "job/liveness.h"
#include "job/oversubscription.h"
#include "job/real_time.h"
#include "job/report.h"
#include "job/segment.h"
#include "job/sweep.h"

#include <utofu.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

/// Creates or opens the job's directory, below one that only we may enter.
int open_job_directory(int base, const char* name, const char* shown, int& fd) noexcept
{
    if (::mkdirat(base, name, 0700) != 0 && errno != EEXIST) {
        if (errno == ENOENT)
            return UTOFU_ERR_BUSY; // the last job has just taken the directory above with it: try again
        const int error = errno;
        report("cannot create %s: %s; %s", shown, std::strerror(error),
               advice_of(error, "choose another TOFU_SIM_JOB"));
        return is_scarcity(error) ? UTOFU_ERR_OUT_OF_RESOURCE : UTOFU_ERR_NOT_AVAILABLE;
    }
    fd = ::openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            return UTOFU_ERR_BUSY; // removed by the last process of an ending job: try again
        const int error = errno;
        report("cannot open %s: %s; %s", shown, std::strerror(error),
               advice_of(error, "remove it or choose another TOFU_SIM_JOB"));
        return is_scarcity(error) ? UTOFU_ERR_OUT_OF_RESOURCE : UTOFU_ERR_NOT_AVAILABLE;
    }
    struct stat status {};
    if (::fstat(fd, &status) != 0 || status.st_uid != ::geteuid() || (status.st_mode & 0077) != 0) {
        report("%s belongs to user %u and has mode %03o instead of user %u and mode 700: remove it or choose another "
               "TOFU_SIM_JOB",
               shown, status.st_uid, status.st_mode & 0777, ::geteuid());
        ::close(fd);
        fd = -1;
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    return UTOFU_SUCCESS;
}

/// How often processes have joined or left the job of a directory; 0 where it has no file yet.
uint32_t changes_in(int directory) noexcept
{
    Oversubscription load{};
    const int fd = ::openat(directory, job_file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool there = fd >= 0 && ::pread(fd, &load, sizeof load, oversubscription_offset) == ssize_t{sizeof load};
    if (fd >= 0)
        ::close(fd);
    return there ? load.changes.raw : 0;
}

/// Waits as long as others get on, and `seconds` more.
bool lock_for(int directory, int seconds) noexcept
{
    Backoff backoff(real_time_ns(), uint64_t(seconds) * 1'000'000'000, 0);
    do {
        if (::flock(directory, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        const timespec pause{0, static_cast<long>(backoff.pause_ns())};
        (void)::nanosleep(&pause, nullptr);
    } while (backoff.lasts(real_time_ns(), changes_in(directory)));
    return false;
}

} // namespace

int Job::open_directory(const char* name) noexcept
{
    BaseDirectory base;
    if (const int rc = make_base_directory(base); rc != UTOFU_SUCCESS)
        return rc;
    base_.keep(base.fd);
    std::memcpy(base_path_, base.path, sizeof base_path_);
    std::snprintf(path_, sizeof path_, "%s/%s", base_path_, name);
    int fd = -1;
    if (const int rc = open_job_directory(base.fd, name, path_, fd); rc != UTOFU_SUCCESS)
        return rc;
    directory_.keep(fd);
    if (!lock_for(fd, 20)) {
        report("%s stays locked: continue or end the stopped process of this job; `fuser %s` shows it", path_, path_);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    // The last process of an ending job may have removed it between our open and our lock.
    struct stat status {};
    return ::fstat(fd, &status) == 0 && status.st_nlink != 0 ? UTOFU_SUCCESS : UTOFU_ERR_BUSY;
}

int Job::open_locked(const Environment& environment) noexcept
{
    std::snprintf(name_, sizeof name_, "%s", environment.job);
    errno = 0;
    pid_namespace_ = own_pid_namespace();
    start_time_ = process_start_time(::getpid());
    if (pid_namespace_ == 0 || start_time_ == 0) {
        if (is_scarcity(errno)) {
            report("cannot read /proc: %s; raise the limit (ulimit -n)", std::strerror(errno));
            return UTOFU_ERR_OUT_OF_RESOURCE;
        }
        report("/proc does not show this process: mount it, since the simulator needs it to see which processes are "
               "alive");
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    int rc = UTOFU_ERR_BUSY;
    for (int attempt = 0; rc == UTOFU_ERR_BUSY && attempt < 1000; attempt++) {
        close_all();
        rc = open_directory(name_);
    }
    if (rc == UTOFU_ERR_BUSY) {
        report("the directory of job '%s' vanishes repeatedly: end the program that removes files in %s", name_,
               shm_root);
        rc = UTOFU_ERR_NOT_AVAILABLE;
    }
    if (rc != UTOFU_SUCCESS) {
        close_all();
        return rc;
    }
    rc = open_file(environment);
    if (rc != UTOFU_SUCCESS)
        give_up();
    return rc;
}

/// Reserves the pages, so that a full /dev/shm is an error now and not a SIGBUS later.
int Job::back_pages(size_t offset, size_t bytes) noexcept
{
    if (::fallocate(FileNow(*this).get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
        report("no space for the job file in %s: %s; free space or enlarge the file system", shm_root,
               std::strerror(errno));
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    return UTOFU_SUCCESS;
}

int Job::start_file(const Environment& environment) noexcept
{
    JobHeader header{};
    header.version = layout_version;
    header.num_nodes = environment.topology.num_nodes();
    std::memcpy(header.shape, environment.topology.units().data(), sizeof header.shape);
    header.wraps = environment.topology.wraps();
    header.ppn = environment.ppn;
    header.clock = static_cast<uint8_t>(environment.clock);
    header.size = environment.states_size ? *environment.size : 0;
    header.each = processes_of_a_node(environment);
    header.pid_namespace = pid_namespace_;
    timespec now{};
    (void)::clock_gettime(CLOCK_REALTIME, &now);
    header.born = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    header.file_bytes = job_file_bytes(header.num_nodes);
    const int fd = file_.get();
    if (::ftruncate(fd, 0) != 0 || ::ftruncate(fd, static_cast<off_t>(header.file_bytes)) != 0) {
        report("cannot allocate the job file in %s: %s; free space or enlarge the file system", shm_root,
               std::strerror(errno));
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    if (const int rc = back_pages(0, job_slots_offset); rc != UTOFU_SUCCESS)
        return rc;
    // The magic goes last: a file without it is started over by the next process.
    header.magic = 0;
    bool written = ::pwrite(fd, &header, sizeof header, 0) == ssize_t{sizeof header};
    written = written && ::pwrite(fd, &job_magic, sizeof job_magic, 0) == ssize_t{sizeof job_magic};
    return written ? UTOFU_SUCCESS : UTOFU_ERR_OUT_OF_MEMORY;
}

namespace {

/// As users set them.
struct ShapeText {
    template <typename Units>
    ShapeText(const Units& units, unsigned wraps, uint32_t ppn) noexcept
    {
        char each[16] = "unset";
        if (ppn != 0)
            std::snprintf(each, sizeof each, "%u", ppn);
        std::snprintf(text, sizeof text, "TOFU_SIM_SHAPE=%ux%ux%u TOFU_SIM_TORUS=%s%s%s%s TOFU_SIM_PPN=%s", units[0],
                      units[1], units[2], wraps == 0 ? "unset" : "", (wraps & 1) != 0 ? "x" : "",
                      (wraps & 2) != 0 ? "y" : "", (wraps & 4) != 0 ? "z" : "", each);
    }
    char text[128];
};

/// Processes of a node.
struct EachText {
    explicit EachText(uint32_t each) noexcept
    {
        if (each == 0)
            std::snprintf(text, sizeof text, "one process on each node in turn");
        else
            std::snprintf(text, sizeof text, "%u processes on each node", each);
    }
    char text[48];
};

} // namespace

int Job::check_file(const Environment& environment, const JobHeader& header) noexcept
{
    if (header.magic != job_magic) {
        report("the file of job '%s' is damaged and in use: end the job or choose another TOFU_SIM_JOB", name_);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    if (header.version == layout_version && header.pid_namespace != pid_namespace_) {
        report("job '%s' runs in another PID namespace (another container?): choose another TOFU_SIM_JOB", name_);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    const auto units = environment.topology.units();
    if (header.version != layout_version) {
        report("job '%s' runs with another version of the simulator: end it or choose another TOFU_SIM_JOB", name_);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    if (std::memcmp(header.shape, units.data(), sizeof header.shape) != 0 ||
        header.wraps != environment.topology.wraps() || header.ppn != environment.ppn) {
        report("job '%s' has %s since its first process, this one has %s: use the same for all processes, or choose "
               "another TOFU_SIM_JOB",
               name_, ShapeText(header.shape, header.wraps, header.ppn).text,
               ShapeText(units.data(), environment.topology.wraps(), environment.ppn).text);
        return UTOFU_ERR_INVALID_ARG;
    }
    if (header.clock != static_cast<uint8_t>(environment.clock)) {
        report("job '%s' has TOFU_SIM_CLOCK=%s since its first process, this one has %s: use the same for all "
               "processes, or choose another TOFU_SIM_JOB",
               name_, name_of(static_cast<ClockMode>(header.clock)), name_of(environment.clock));
        return UTOFU_ERR_INVALID_ARG;
    }
    if (environment.states_size && header.size != 0 && header.size != *environment.size) {
        report(
            "job '%s' has TOFU_SIM_SIZE=%u since its first process, this one has %u: use the same for all processes, "
            "or choose another TOFU_SIM_JOB",
            name_, header.size, *environment.size);
        return UTOFU_ERR_INVALID_ARG;
    }
    // Spawned processes have no size, and a launcher's size is not theirs.
    const uint32_t each = processes_of_a_node(environment);
    if ((environment.states_size || header.size != 0) && header.each != each) {
        report(
            "job '%s' has %s since its first process, this one would have %s, since only some of them have a "
            "TOFU_SIM_SIZE above the number of nodes: set the same for all processes, or choose another TOFU_SIM_JOB",
            name_, EachText(header.each).text, EachText(each).text);
        return UTOFU_ERR_INVALID_ARG;
    }
    return UTOFU_SUCCESS;
}

int Job::open_file(const Environment& environment) noexcept
{
    const int fd = ::openat(directory_.get(), job_file_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    const int error = fd < 0 ? errno : 0;
    file_.keep(fd);
    struct stat status {};
    if (fd < 0 || ::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
        report("cannot open the file of job '%s' in %s: %s; %s", name_, path_,
               error != 0 ? std::strerror(error) : "it is no regular file of this user",
               advice_of(error, "remove it or choose another TOFU_SIM_JOB"));
        return is_scarcity(error) ? UTOFU_ERR_OUT_OF_RESOURCE : UTOFU_ERR_NOT_AVAILABLE;
    }
    // A file that a process may use, of any version, size and PID namespace, is left unchanged.
    if (job_life(fd) == Life::gone) {
        sweep_dead_jobs(base_.get(), name_);
        if (const int rc = start_file(environment); rc != UTOFU_SUCCESS)
            return rc;
    } else {
        JobHeader header{};
        const bool sound =
            ::pread(fd, &header, sizeof header, 0) == ssize_t{sizeof header} &&
            (header.version != layout_version || is_sound_header(header, static_cast<uint64_t>(status.st_size)));
        header.magic = sound ? header.magic : 0;
        if (const int rc = check_file(environment, header); rc != UTOFU_SUCCESS)
            return rc;
    }
    num_nodes_ = environment.topology.num_nodes();
    file_bytes_ = job_file_bytes(num_nodes_);
    std::byte* const mapped = map_sparse(fd, file_bytes_, 0);
    if (mapped == nullptr || !open_sparse(mapped, file_bytes_)) {
        report("cannot map the job file (%zu bytes): %s; raise the limit (ulimit -v)", file_bytes_,
               std::strerror(errno));
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    file_data_ = mapped;
    (void)::madvise(mapped, file_bytes_, MADV_DONTFORK);
    return UTOFU_SUCCESS;
}

ProcessSlot& Job::slot(uint32_t process) const noexcept
{
    return reinterpret_cast<ProcessSlot*>(file_data_ + job_slots_offset)[process];
}

Job::FileNow::FileNow(const Job& job) noexcept : fd_(job.file_.get())
{
    if (fd_ < 0) {
        char path[sizeof job.path_ + sizeof job_file_name];
        std::snprintf(path, sizeof path, "%s/%s", job.path_, job_file_name);
        opened_ = ::open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        fd_ = job.file_.is_file(opened_) ? opened_ : -1;
    }
}

Job::FileNow::~FileNow()
{
    if (opened_ >= 0)
        ::close(opened_);
}

bool Job::read(size_t offset, void* to, size_t bytes) const noexcept
{
    return ::pread(FileNow(*this).get(), to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

bool Job::read_slot(uint32_t process, ProcessSlot& out) const noexcept
{
    return process < max_processes && read(job_slots_offset + process * sizeof out, &out, sizeof out);
}

Life Job::life(uint32_t process, uint32_t incarnation, unsigned bits) const noexcept
{
    if (process >= max_processes)
        return Life::gone; // nonsense
    const uint32_t mask = (1u << bits) - 1;
    if (joined_ && process == process_) // our own lock is not in our way: the file would not show it
        return (incarnation_ & mask) == (incarnation & mask) ? Life::runs : Life::gone;
    ProcessSlot s{};
    if (!read_slot(process, s))
        return Life::unknown;
    if (s.used.raw == 0 || (s.incarnation.raw & mask) != (incarnation & mask))
        return Life::gone;
    return member_life(FileNow(*this).get(), process, s, true);
}

/// Locks it, too: what a process has left that has not released its lock is not taken.
std::optional<uint32_t> Job::find_slot(bool& locked) const noexcept
{
    ProcessSlot s{};
    for (uint32_t process = 0; process < max_processes; process++) {
        if (!read_slot(process, s))
            return std::nullopt;
        if (s.used.raw != 0 && may_run(member_life(file_.get(), process, s, true)))
            continue;
        if (const SlotLock lock = lock_slot(file_.get(), process); lock != SlotLock::in_use) {
            locked = lock == SlotLock::taken;
            return process;
        }
    }
    return std::nullopt;
}

int Job::join(const Environment& environment, int segment_fd) noexcept
{
    bool locked = false;
    const auto free_slot = find_slot(locked);
    if (!free_slot) {
        report("job '%s' already has its %u processes: start another job (TOFU_SIM_JOB)", name_, max_processes);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    const uint32_t rank = environment.rank.value_or(*free_slot);
    const bool states_rank = environment.states_rank && !is_inherited("TOFU_SIM_RANK");
    if (states_rank) {
        if (const int rc = check_rank(rank); rc != UTOFU_SUCCESS)
            return rc;
    }
    const auto place = place_process(environment, rank);
    if (!place) {
        const uint32_t ppn = processes_of_a_node(environment);
        if (environment.ppn == 0 && ppn > cqs_per_node) {
            report("TOFU_SIM_SIZE=%u: these are %u processes for each of %u nodes, at most 54 are possible: enlarge "
                   "TOFU_SIM_SHAPE",
                   environment.size.value_or(0), ppn, environment.topology.num_nodes());
        } else {
            report("process %u does not fit on %u nodes with %u processes each (at most 54): enlarge "
                   "TOFU_SIM_SHAPE or raise TOFU_SIM_PPN",
                   rank, environment.topology.num_nodes(), ppn);
        }
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    placement_ = *place;
    process_ = *free_slot;
    int rc = back_pages(job_slots_offset + process_ * sizeof(ProcessSlot), sizeof(ProcessSlot));
    if (rc == UTOFU_SUCCESS)
        rc = back_pages(job_nodes_offset + placement_.node * sizeof(NodeEntry), sizeof(NodeEntry));
    if (rc != UTOFU_SUCCESS)
        return rc;
    if (environment.states_size)
        reinterpret_cast<JobHeader*>(file_data_)->size = *environment.size; // as it is, or nothing yet
    ProcessSlot& s = slot(process_);
    if (s.used.exchange(0) != 0)            // while it is filled it has no owner
        remove_process(oversubscription()); // for the killed process
    incarnation_ = s.incarnation.load_relaxed() + 1;
    s.incarnation.store_relaxed(incarnation_);
    s.pid = ::getpid();
    s.segment_fd = segment_fd;
    s.start_time = start_time_;
    s.node = placement_.node;
    s.local_rank = placement_.local_rank;
    s.rank = placement_.rank;
    s.cq_share = placement_.cq_share;
    s.holds_lock = locked ? 1 : 0;
    s.states_rank = states_rank ? 1 : 0;
    std::snprintf(s.name, sizeof s.name, "%s", program_invocation_short_name);
    s.used.store_release(1);
    add_process(oversubscription());
    joined_ = true;
    return UTOFU_SUCCESS;
}

void Job::unlock() noexcept
{
    (void)::flock(directory_.get(), LOCK_UN);
}

void Job::remove_files(int directory) noexcept
{
    (void)::unlinkat(directory, job_file_name, 0);
    (void)::rmdir(path_);
    (void)::rmdir(base_path_); // fails while other jobs are in it
}

void Job::leave() noexcept
{
    if (!joined_)
        return;
    joined_ = false;
    const int kept = directory_.get();
    const int opened = kept >= 0 ? -1 : ::open(path_, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int directory = kept >= 0 ? kept : directory_.is_file(opened) ? opened : -1;
    const bool locked = directory >= 0 && lock_for(directory, 5);
    slot(process_).used.store_release(0);
    remove_process(oversubscription());
    unlock_slot(file_.get(), process_);
    // No process cleans up after the last one, and a killed process takes a moment to vanish: tens of milliseconds if
    // many compete for the processor.
    constexpr timespec pause{0, 1'000'000};
    constexpr int most_looks = 500;
    Life life = locked ? job_life(FileNow(*this).get()) : Life::unknown;
    for (int looks = 0; locked && life == Life::unknown && looks < most_looks; looks++) {
        (void)::nanosleep(&pause, nullptr);
        life = job_life(FileNow(*this).get());
    }
    if (locked && life == Life::gone)
        remove_files(directory);
    if (locked)
        (void)::flock(directory, LOCK_UN);
    if (opened >= 0)
        ::close(opened);
}

void Job::give_up() noexcept
{
    if (joined_) {
        joined_ = false;
        slot(process_).used.store_release(0);
        remove_process(oversubscription());
    }
    unlock_slot(file_.get(), process_);
    if (job_life(file_.get()) == Life::gone)
        remove_files(directory_.get());
    (void)::rmdir(path_); // where there was no descriptor for its file
    close_all();          // and with it the lock
}

void Job::forget() noexcept
{
    file_data_ = nullptr; // not mapped in the child
    joined_ = false;
    close_all();
}

void Job::close_all() noexcept
{
    if (file_data_ != nullptr) {
        (void)::munmap(file_data_, file_bytes_);
        file_data_ = nullptr;
    }
    for (KeptFile* const file : {&file_, &directory_, &base_})
        file->close();
}

} // namespace tofu::sim
