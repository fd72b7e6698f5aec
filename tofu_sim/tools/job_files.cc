// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The jobs of this user as the tofu-sim command sees them: from outside, reading only.
#include "tools/job_files.h"

#include "job/base_directory.h"
#include "job/liveness.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim::tools {
namespace {

constexpr char job_file_name[] = "job";

File open_own_directory(int parent, const char* name)
{
    File directory(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (directory.is_open() && (::fstat(directory.get(), &status) != 0 || status.st_uid != ::geteuid()))
        return {};
    return directory;
}

struct CloseDirectory {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

std::vector<std::string> list_entries(const File& directory)
{
    std::vector<std::string> names;
    const int copy = ::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0)
        return names;
    const std::unique_ptr<DIR, CloseDirectory> stream(::fdopendir(copy));
    if (!stream) {
        ::close(copy);
        return names;
    }
    while (const dirent* const entry = ::readdir(stream.get())) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..")
            names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

bool header_is_sound(const JobHeader& header, off_t file_size)
{
    return header.version == layout_version && is_sound_header(header, static_cast<uint64_t>(file_size));
}

/// An array of the job's file, `stride` bytes from one to the next; only those that have been written.
template <typename T>
void visit_backed(const JobView& job, size_t area, size_t stride, uint32_t count,
                  const std::function<void(uint32_t, const T&)>& visit)
{
    const auto one = std::make_unique<T>();
    for (uint32_t i = 0; i < count; i++) {
        // Most have never been touched, and reading would touch none of them either.
        const off_t data = ::lseek(job.file.get(), static_cast<off_t>(area + i * stride), SEEK_DATA);
        if (data < static_cast<off_t>(area))
            return;
        i = static_cast<uint32_t>((static_cast<size_t>(data) - area) / stride);
        if (i >= count || ::pread(job.file.get(), one.get(), sizeof(T), static_cast<off_t>(area + i * stride)) !=
                              static_cast<ssize_t>(sizeof(T)))
            return;
        visit(i, *one);
    }
}

} // namespace

File& File::operator=(File&& other) noexcept
{
    std::swap(fd_, other.fd_);
    return *this;
}

File::~File()
{
    if (fd_ >= 0)
        ::close(fd_);
}

int File::release() noexcept
{
    return std::exchange(fd_, -1);
}

std::string base_path()
{
    BaseDirectory base;
    (void)find_base_directory(base);
    const File file(base.fd);
    return base.path;
}

File open_base()
{
    BaseDirectory base;
    (void)find_base_directory(base);
    return File(base.fd);
}

std::vector<std::string> list_jobs(const File& base)
{
    return base.is_open() ? list_entries(base) : std::vector<std::string>();
}

std::optional<JobView> open_job(const File& base, const std::string& name)
{
    JobView job;
    job.name = name;
    job.directory = open_own_directory(base.get(), name.c_str());
    if (!job.directory.is_open())
        return std::nullopt;
    job.file = File(::openat(job.directory.get(), job_file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    job.open_error = job.file.is_open() ? 0 : errno;
    JobHeader header{};
    struct stat status {};
    if (job.file.is_open() && ::fstat(job.file.get(), &status) == 0 &&
        ::pread(job.file.get(), &header, sizeof header, 0) == ssize_t{sizeof header} &&
        header_is_sound(header, status.st_size))
        job.header = header;
    return job;
}

std::vector<ProcessView> read_processes(const JobView& job)
{
    std::vector<ProcessView> processes;
    const bool same_namespace = !job.header || job.header->pid_namespace == own_pid_namespace();
    for (uint32_t slot = 0; slot < max_processes; slot++) {
        ProcessView view;
        view.slot = slot;
        const auto offset = static_cast<off_t>(job_slots_offset + slot * sizeof view.entry);
        if (!job.file.is_open() ||
            ::pread(job.file.get(), &view.entry, sizeof view.entry, offset) != ssize_t{sizeof view.entry})
            break;
        if (view.entry.used.raw != 0) {
            view.running = may_run(member_life(job.file.get(), slot, view.entry, same_namespace));
            processes.push_back(view);
        }
    }
    return processes;
}

NodeEntry read_node(const JobView& job, uint32_t node)
{
    NodeEntry entry{};
    if (job.header && node < job.header->num_nodes) {
        const auto offset = static_cast<off_t>(job_nodes_offset + node * sizeof entry);
        if (::pread(job.file.get(), &entry, sizeof entry, offset) != ssize_t{sizeof entry})
            return NodeEntry{};
    }
    return entry;
}

void visit_gates(const JobView& job, const std::function<void(uint32_t, const TniGates&)>& visit)
{
    if (job.header) {
        visit_backed<TniGates>(job, job_gates_offset(job.header->num_nodes), tni_gates_bytes,
                               job.header->num_nodes * tnis_per_node, visit);
    }
}

void visit_calendars(const JobView& job, const std::function<void(uint32_t, const NodeCalendars&)>& visit)
{
    if (job.header && job.header->clock != 0) {
        visit_backed<NodeCalendars>(job, job_clock_offset(job.header->num_nodes), clock_node_bytes,
                                    job.header->num_nodes, visit);
    }
}

SegmentView::~SegmentView()
{
    if (base_ != nullptr)
        ::munmap(base_, bytes_);
}

bool SegmentView::open(const ProcessView& process)
{
    const std::string path =
        "/proc/" + std::to_string(process.entry.pid) + "/fd/" + std::to_string(process.entry.segment_fd);
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)); // whatever it is
    SegmentHeader head{};
    struct stat status {};
    if (!file.is_open() || ::fstat(file.get(), &status) != 0 ||
        ::pread(file.get(), &head, sizeof head, 0) != ssize_t{sizeof head})
        return false;
    // Sealed against shrinking, or a peer that truncates it would kill us by SIGBUS.
    const int seals = ::fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || head.magic != segment_magic || head.version != layout_version ||
        !std::has_single_bit(head.mrq_entries) || head.mrq_entries > max_mrq_entries ||
        static_cast<uint64_t>(status.st_size) != segment_total_bytes(head.mrq_entries))
        return false;
    void* const mapped =
        ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
    if (mapped == MAP_FAILED)
        return false;
    base_ = static_cast<std::byte*>(mapped);
    bytes_ = static_cast<size_t>(status.st_size);
    mrq_entries_ = head.mrq_entries;
    mrq_free_ = head.mrq_entries_free;
    mrq_session_ = head.mrq_entries_session;
    return true;
}

Removal remove_job(const File& base, const std::string& name)
{
    const auto job = open_job(base, name);
    if (!job)
        return errno == ENOENT ? Removal::removed : Removal::failed;
    // A joining process holds this lock (job/job.cc) and checks again once it has it: with the lock held
    // no process can join between the check of the processes and the removal.
    if (::flock(job->directory.get(), LOCK_EX | LOCK_NB) != 0)
        return Removal::in_use;
    if (job->file.is_open() ? may_run(job_life(job->file.get())) : job->open_error != ENOENT)
        return Removal::in_use; // perhaps; it is unknown
    for (const std::string& entry : list_entries(job->directory))
        (void)::unlinkat(job->directory.get(), entry.c_str(), 0);
    if (::unlinkat(base.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
        return Removal::failed;
    return Removal::removed;
}

} // namespace tofu::sim::tools
