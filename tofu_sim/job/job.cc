// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the job: its directory and file, the slots of its processes, who owns which CQ and gate.
// Called by: job/process, tni/vcq (CQs), tni/remote (lookup), barrier/ (gates). Calls: job/liveness, files.
//
// Joining and leaving are serialised by flock on the job's directory, which the kernel releases when its
// holder dies. What a killed process left is found by its slot (pid and start time) and taken over.
#include "job/job.h"

#include "job/liveness.h"
#include "job/report.h"
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

constexpr char shm_root[] = "/dev/shm";
constexpr char job_file_name[] = "job";

// Creates or opens a directory that only we may enter.
int open_private_directory(int parent, const char* name, const char* shown, int& fd) noexcept
{
    if (::mkdirat(parent, name, 0700) != 0 && errno != EEXIST) {
        if (errno == ENOENT && parent != AT_FDCWD) {
            return UTOFU_ERR_BUSY; // the last job has just taken the directory above with it: try again
        }
        report("can't create %s: %s; is %s mounted, and may you write there?", shown, std::strerror(errno), shm_root);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT) {
            return UTOFU_ERR_BUSY; // removed by the last process of an ending job: try again
        }
        report("can't open %s: %s; remove it or choose another TOFU_SIM_JOB", shown,
               std::strerror(errno));
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    struct stat status{};
    if (::fstat(fd, &status) != 0 || status.st_uid != ::geteuid() || (status.st_mode & 0077) != 0) {
        report("%s belongs to user %u with mode %03o, but must be ours (user %u) with mode 700: remove it "
               "or choose another TOFU_SIM_JOB",
               shown, status.st_uid, status.st_mode & 0777, ::geteuid());
        ::close(fd);
        fd = -1;
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    return UTOFU_SUCCESS;
}

// A process that was killed takes a while to vanish from the process table, but its files and the word that
// the kernel marks tell at once. And one that has called exec is a process still, but no longer this one: what it
// has at the number of our file is not the segment of this slot.
bool slot_runs(const ProcessSlot& s, uint32_t process) noexcept
{
    if (!process_runs(s.pid, s.start_time)) {
        return false;
    }
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", s.pid, s.segment_fd);
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // whatever it is
    if (fd < 0) {
        return errno != ENOENT; // without the right to look it stays with the process table
    }
    SegmentHeader head{};
    const bool read = ::pread(fd, &head, sizeof head, 0) == ssize_t{sizeof head};
    ::close(fd);
    return read && head.magic == segment_magic && head.process == process &&
           head.incarnation == s.incarnation.raw && (head.alive.owner.raw & alive_tid_mask) != 0;
}

bool lock_for(int fd, int seconds) noexcept
{
    timespec pause{0, 200'000};
    for (int waited_us = 0; waited_us < seconds * 1'000'000; waited_us += 200) {
        if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return true;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return false;
        }
        ::nanosleep(&pause, nullptr);
    }
    return false;
}

} // namespace

uint64_t share_of_cqs(uint32_t ppn, uint32_t local_rank) noexcept
{
    uint64_t share = 0;
    if (ppn <= cqs_per_tni) { // some CQs of each TNI
        const uint32_t count = cqs_per_tni / (ppn == 0 ? 1 : ppn);
        for (uint32_t tni = 0; tni < tnis_per_node; tni++) {
            for (uint32_t cq = 0; cq < count; cq++) {
                const uint32_t first = ppn == 0 ? 0 : local_rank % ppn * count;
                share |= uint64_t{1} << (tni * cqs_per_tni + first + cq);
            }
        }
    } else if (ppn <= cqs_per_node) { // one CQ on each of some TNIs
        const uint32_t count = cqs_per_node / ppn;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t number = local_rank % ppn * count + i;
            share |= uint64_t{1} << (number % tnis_per_node * cqs_per_tni + number / tnis_per_node);
        }
    }
    return share;
}

std::optional<Placement> place_process(const Environment& environment, uint32_t rank) noexcept
{
    const uint32_t nodes = environment.topology.num_nodes();
    uint32_t ppn = environment.ppn;
    if (ppn == 0 && environment.size && *environment.size > nodes) {
        ppn = (*environment.size + nodes - 1) / nodes;
    }
    Placement place;
    place.rank = rank;
    if (ppn != 0) {
        place.node = rank / ppn;
        place.local_rank = rank % ppn;
        if (place.node >= nodes || ppn > cqs_per_node) {
            return std::nullopt;
        }
    } else {
        place.node = rank % nodes;
        place.local_rank = rank / nodes;
    }
    place.cq_share = share_of_cqs(ppn, place.local_rank);
    return place;
}

int Job::open_directory(const char* name) noexcept
{
    char base[64];
    std::snprintf(base, sizeof base, "%s/tofu-sim-%u", shm_root, ::geteuid());
    char shown[160];
    std::snprintf(shown, sizeof shown, "%s/%s", base, name);
    if (const int rc = open_private_directory(AT_FDCWD, base, base, base_fd_); rc != UTOFU_SUCCESS) {
        return rc;
    }
    if (const int rc = open_private_directory(base_fd_, name, shown, directory_fd_);
        rc != UTOFU_SUCCESS) {
        return rc;
    }
    if (!lock_for(directory_fd_, 20)) {
        report("%s stays locked: is a process of this job stopped? `fuser %s` tells which", shown, shown);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    // The last process of an ending job may have removed it between our open and our lock.
    struct stat status{};
    return ::fstat(directory_fd_, &status) == 0 && status.st_nlink != 0 ? UTOFU_SUCCESS : UTOFU_ERR_BUSY;
}

int Job::open_locked(const Environment& environment) noexcept
{
    std::snprintf(name_, sizeof name_, "%s", environment.job);
    if (own_pid_namespace() == 0) {
        report("there is no /proc that knows this process: mount one, or nobody can tell who is alive");
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    int rc = UTOFU_ERR_BUSY;
    for (int attempt = 0; rc == UTOFU_ERR_BUSY && attempt < 1000; attempt++) {
        close_all();
        rc = open_directory(name_);
    }
    if (rc == UTOFU_SUCCESS) {
        rc = open_file(environment);
    }
    if (rc != UTOFU_SUCCESS) {
        close_all();
    }
    return rc;
}

// Reserves the pages, so that a full /dev/shm is an error now and not a SIGBUS later.
int Job::back_pages(size_t offset, size_t bytes) noexcept
{
    if (::fallocate(file_fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
        report("no room for the job file in %s: %s; free some or enlarge it", shm_root,
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
    header.pid_namespace = own_pid_namespace();
    header.file_bytes = job_file_bytes(header.num_nodes);
    if (::ftruncate(file_fd_, 0) != 0 ||
        ::ftruncate(file_fd_, static_cast<off_t>(header.file_bytes)) != 0) {
        report("can't size the job file in %s: %s; free some or enlarge it", shm_root, std::strerror(errno));
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    if (const int rc = back_pages(0, job_slots_offset); rc != UTOFU_SUCCESS) {
        return rc;
    }
    // The magic goes last: a file without it is started over by the next process.
    header.magic = 0;
    bool written = ::pwrite(file_fd_, &header, sizeof header, 0) == ssize_t{sizeof header};
    written = written && ::pwrite(file_fd_, &job_magic, sizeof job_magic, 0) == ssize_t{sizeof job_magic};
    return written ? UTOFU_SUCCESS : UTOFU_ERR_OUT_OF_MEMORY;
}

int Job::check_file(const Environment& environment, const JobHeader& header) noexcept
{
    if (header.version == layout_version && header.pid_namespace != own_pid_namespace()) {
        report("job '%s' runs in another PID namespace (another container?): choose another TOFU_SIM_JOB", name_);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    const auto units = environment.topology.units();
    if (header.version != layout_version) {
        report("job '%s' runs with another version of the simulator: end it or choose another TOFU_SIM_JOB",
               name_);
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    if (std::memcmp(header.shape, units.data(), sizeof header.shape) != 0 ||
        header.wraps != environment.topology.wraps() || header.ppn != environment.ppn) {
        report("job '%s' has TOFU_SIM_SHAPE=%ux%ux%u TOFU_SIM_TORUS=%s%s%s TOFU_SIM_PPN=%u since its first "
               "process, this one has %ux%ux%u: give all processes the same, or choose another TOFU_SIM_JOB",
               name_, header.shape[0], header.shape[1], header.shape[2],
               (header.wraps & 1) != 0 ? "x" : "", (header.wraps & 2) != 0 ? "y" : "",
               (header.wraps & 4) != 0 ? "z" : "", header.ppn, units[0], units[1], units[2]);
        return UTOFU_ERR_INVALID_ARG;
    }
    return UTOFU_SUCCESS;
}

int Job::open_file(const Environment& environment) noexcept
{
    file_fd_ = ::openat(directory_fd_, job_file_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status{};
    if (file_fd_ < 0 || ::fstat(file_fd_, &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != ::geteuid()) {
        report("can't open the file of job '%s' in %s: %s; remove it or choose another TOFU_SIM_JOB", name_, shm_root,
               std::strerror(errno));
        return UTOFU_ERR_NOT_AVAILABLE;
    }
    JobHeader header{};
    const bool started = ::pread(file_fd_, &header, sizeof header, 0) == ssize_t{sizeof header} &&
                         is_sound_header(header, static_cast<uint64_t>(status.st_size));
    // Of processes of another namespace we can't say that they are gone.
    const bool foreign = started && header.version == layout_version &&
                         header.pid_namespace != own_pid_namespace();
    if (!foreign && (!started || count_running() == 0)) {
        sweep_dead_jobs(base_fd_, name_);
        if (const int rc = start_file(environment); rc != UTOFU_SUCCESS) {
            return rc;
        }
    } else if (const int rc = check_file(environment, header); rc != UTOFU_SUCCESS) {
        return rc;
    }
    num_nodes_ = environment.topology.num_nodes();
    file_bytes_ = job_file_bytes(num_nodes_);
    void* const mapped =
        ::mmap(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_fd_, 0);
    if (mapped == MAP_FAILED) {
        report("can't map the job file (%zu bytes): %s; raise the limit (ulimit -v)", file_bytes_,
               std::strerror(errno));
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    file_ = static_cast<std::byte*>(mapped);
    (void)::madvise(mapped, file_bytes_, MADV_DONTFORK);
    return UTOFU_SUCCESS;
}

ProcessSlot& Job::slot(uint32_t process) const noexcept
{
    return reinterpret_cast<ProcessSlot*>(file_ + job_slots_offset)[process];
}

bool Job::read_slot(uint32_t process, ProcessSlot& out) const noexcept
{
    const auto offset = static_cast<off_t>(job_slots_offset + process * sizeof out);
    return process < max_processes && ::pread(file_fd_, &out, sizeof out, offset) == ssize_t{sizeof out};
}

uint64_t Job::read_cq(uint32_t node, unsigned cq_of_node) const noexcept
{
    uint64_t word = 0;
    const auto offset = static_cast<off_t>(job_nodes_offset + node * sizeof(NodeEntry) +
                                           offsetof(NodeEntry, cqs) + cq_of_node * sizeof(CqWord));
    return ::pread(file_fd_, &word, sizeof word, offset) == ssize_t{sizeof word} ? word : 0;
}

uint64_t Job::read_gate(uint32_t node, unsigned gate_of_node) const noexcept
{
    uint64_t word = 0;
    const auto offset = static_cast<off_t>(job_nodes_offset + node * sizeof(NodeEntry) +
                                           offsetof(NodeEntry, gates) + gate_of_node * sizeof(GateWord));
    return ::pread(file_fd_, &word, sizeof word, offset) == ssize_t{sizeof word} ? word : 0;
}

bool Job::runs(uint32_t process, uint32_t incarnation, unsigned bits) const noexcept
{
    ProcessSlot s{};
    const uint32_t mask = (1u << bits) - 1;
    return read_slot(process, s) && s.used.raw != 0 &&
           (s.incarnation.raw & mask) == (incarnation & mask) && slot_runs(s, process);
}

uint32_t Job::count_running() const noexcept
{
    uint32_t running = 0;
    ProcessSlot block[64];
    for (uint32_t first = 0; first < max_processes; first += 64) {
        const auto offset = static_cast<off_t>(job_slots_offset + first * sizeof(ProcessSlot));
        if (::pread(file_fd_, block, sizeof block, offset) != ssize_t{sizeof block}) {
            break;
        }
        for (uint32_t i = 0; i < 64; i++) {
            running += block[i].used.raw != 0 && slot_runs(block[i], first + i) ? 1 : 0;
        }
    }
    return running;
}

std::optional<uint32_t> Job::find_slot() const noexcept
{
    ProcessSlot s{};
    for (uint32_t process = 0; process < max_processes; process++) {
        if (!read_slot(process, s)) {
            return std::nullopt;
        }
        if (s.used.raw == 0 || !slot_runs(s, process)) {
            return process;
        }
    }
    return std::nullopt;
}

int Job::join(const Environment& environment, int segment_fd) noexcept
{
    const auto free_slot = find_slot();
    if (!free_slot) {
        report("job '%s' has its %u processes already: start another one (TOFU_SIM_JOB)", name_, max_processes);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    const uint32_t rank = environment.rank.value_or(*free_slot);
    const auto place = place_process(environment, rank);
    if (!place) {
        report("process %u does not fit on %u nodes with %u processes each (at most 54): enlarge "
               "TOFU_SIM_SHAPE or raise TOFU_SIM_PPN",
               rank, environment.topology.num_nodes(), environment.ppn);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    placement_ = *place;
    process_ = *free_slot;
    int rc = back_pages(job_slots_offset + process_ * sizeof(ProcessSlot), sizeof(ProcessSlot));
    if (rc == UTOFU_SUCCESS) {
        rc = back_pages(job_nodes_offset + placement_.node * sizeof(NodeEntry), sizeof(NodeEntry));
    }
    if (rc != UTOFU_SUCCESS) {
        return rc;
    }
    start_time_ = process_start_time(::getpid());
    ProcessSlot& s = slot(process_);
    s.used.store_release(0); // while it is filled it is nobody's
    incarnation_ = s.incarnation.load_relaxed() + 1;
    s.incarnation.store_relaxed(incarnation_);
    s.pid = ::getpid();
    s.segment_fd = segment_fd;
    s.start_time = start_time_;
    s.node = placement_.node;
    s.local_rank = placement_.local_rank;
    s.rank = placement_.rank;
    s.cq_share = placement_.cq_share;
    std::snprintf(s.name, sizeof s.name, "%s", program_invocation_short_name);
    s.used.store_release(1);
    joined_ = true;
    return UTOFU_SUCCESS;
}

void Job::unlock() noexcept
{
    (void)::flock(directory_fd_, LOCK_UN);
}

void Job::remove_files() noexcept
{
    char base[64];
    std::snprintf(base, sizeof base, "%s/tofu-sim-%u", shm_root, ::geteuid());
    (void)::unlinkat(directory_fd_, job_file_name, 0);
    (void)::unlinkat(base_fd_, name_, AT_REMOVEDIR);
    (void)::rmdir(base); // fails while other jobs are in it
}

void Job::leave() noexcept
{
    if (!joined_) {
        return;
    }
    joined_ = false;
    const bool locked = lock_for(directory_fd_, 5);
    slot(process_).used.store_release(0);
    if (locked && count_running() == 0) {
        remove_files();
    }
    if (locked) {
        unlock();
    }
}

void Job::forget() noexcept
{
    file_ = nullptr; // not mapped in the child
    joined_ = false;
    close_all();
}

void Job::close_all() noexcept
{
    if (file_ != nullptr) {
        (void)::munmap(file_, file_bytes_);
        file_ = nullptr;
    }
    for (int* fd : {&file_fd_, &directory_fd_, &base_fd_}) {
        if (*fd >= 0) {
            ::close(*fd);
            *fd = -1;
        }
    }
}

NodeEntry& Job::own_node() const noexcept
{
    return reinterpret_cast<NodeEntry*>(file_ + job_nodes_offset)[placement_.node];
}

uint64_t Job::cq_word(CqMode mode, uint8_t components) const noexcept
{
    return OwnerWord{process_, incarnation_, mode, components, true}.encode();
}

bool Job::claim_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept
{
    SharedWord<uint64_t>& word = own_node().cqs[cq_of_node].word;
    uint64_t seen = word.load_acquire();
    const OwnerWord owner = OwnerWord::decode(seen);
    if (owner.taken && runs(owner.process, owner.incarnation, 16)) {
        return false;
    }
    return word.compare_exchange(seen, cq_word(mode, components));
}

void Job::update_cq(unsigned cq_of_node, CqMode mode, uint8_t components) noexcept
{
    own_node().cqs[cq_of_node].word.store_release(cq_word(mode, components));
}

void Job::release_cq(unsigned cq_of_node) noexcept
{
    own_node().cqs[cq_of_node].word.store_release(0);
}

bool Job::claim_gate(unsigned gate_of_node) noexcept
{
    SharedWord<uint64_t>& word = own_node().gates[gate_of_node].word;
    uint64_t seen = word.load_acquire();
    const OwnerWord owner = OwnerWord::decode(seen);
    if (owner.taken && runs(owner.process, owner.incarnation, 16)) {
        return false;
    }
    return word.compare_exchange(seen, cq_word(CqMode::none, 0));
}

void Job::release_gate(unsigned gate_of_node) noexcept
{
    own_node().gates[gate_of_node].word.store_release(0);
}

std::byte* Job::gate_area() const noexcept
{
    return file_ + job_gates_offset(num_nodes_);
}

int Job::back_gates(uint32_t node, unsigned tni) noexcept
{
    const size_t index = size_t{node} * tnis_per_node + tni;
    return back_pages(job_gates_offset(num_nodes_) + index * tni_gates_bytes, tni_gates_bytes);
}

} // namespace tofu::sim
