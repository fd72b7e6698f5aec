// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fork: a child gets its own copy of moved pages and never writes into its parent. The C library calls it around fork.
//
// Moved pages are shared mappings, so fork alone would leave parent and child writing into the same memory, where the
// program expects a copy. Guide 6.1.4.1 permits that a child cannot touch registered pages at all; ours finds in them
// what they held at fork, as long as no other thread of the parent writes meanwhile: the parent makes the copy before,
// so that nothing depends on when the child runs, and the child puts it in its place. VCQs and registrations are the
// parent's; a child that calls uTofu is a new process of the job. Children made by vfork, posix_spawn or clone without
// fork handlers are for exec, and see the parent's own pages.
#include "memory/registry.h"
#include "memory/service.h"

#include "job/allocate.h"
#include "job/report.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

constexpr int populate_write = 23; ///< MADV_POPULATE_WRITE, which older headers lack

/// At multiples of this the C library's allocator begins its arenas, of 64 MiB or less.
constexpr uint64_t arena_alignment = uint64_t{1} << 20;

/// Written by the thread that forks, under the registry lock.
struct ForkState {
    SharedWord<uint64_t> impl{0}; ///< ProcessMemory::Impl*, 0: none
    bool locked = false;
    std::vector<Vma> moved;
    void* copy = MAP_FAILED; ///< of all `moved`, one behind the other
    size_t copy_bytes = 0;
} state;

ProcessMemory::Impl* current() noexcept
{
    return reinterpret_cast<ProcessMemory::Impl*>(state.impl.load_acquire());
}

/// Of a child: what the parent has advised against (MADV_DONTFORK) is not there.
bool is_mapped(const Vma& vma) noexcept
{
    unsigned char resident = 0;
    return ::syscall(SYS_mincore, vma.start, page_bytes, &resident) == 0;
}

/// A private mapping of the same file shows the same bytes. They are copied at once (Linux 5.14), or when written,
/// since the parent may give the file's pages back while others still show them.
void make_private(const Vma& vma, int fd) noexcept
{
    (void)::syscall(SYS_mmap, vma.start, vma.end - vma.start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                    vma.file_offset);
    (void)::madvise(reinterpret_cast<void*>(vma.start), vma.end - vma.start, populate_write);
}

/// The same in the parent, where the kernel can be asked: what was said of `whole`, of which `part` is one, still
/// holds.
void make_private(const ProcessMemory::Impl& impl, const Vma& part, const Vma& whole) noexcept
{
    const Advice advice = advice_of(impl.vmas, whole, part.start);
    make_private(part, impl.arena.fd());
    repeat(advice, part.start, part.end - part.start);
}

/// Parent and child run on the same stack until the child's handler has copied it, so this one cannot wait.
void release_own_stack(ProcessMemory::Impl& impl)
{
    uint64_t start = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    uint64_t end = start + 1;
    pthread_attr_t attributes;
    void* stack = nullptr;
    size_t bytes = 0;
    if (::getpid() != ::syscall(SYS_gettid) && ::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
        if (::pthread_attr_getstack(&attributes, &stack, &bytes) == 0 &&
            start - reinterpret_cast<uint64_t>(stack) < bytes) {
            start = reinterpret_cast<uint64_t>(stack);
            end = start + bytes;
        }
        ::pthread_attr_destroy(&attributes);
    }
    Vma vma;
    bool any = false;
    for (uint64_t at = start; at < end && impl.vmas.find(at, &vma) && vma.start < end; at = vma.end)
        if (impl.arena.is_mapped_by(vma)) {
            make_private(impl, vma, vma);
            any = true;
        }
    if (any)
        impl.republish(start, vma.end);
}

/// Calls `visit` with each range of the mapping, by file offset, that has pages. Holes stay holes.
template <typename Visit>
bool visit_data(int fd, const Vma& vma, Visit&& visit)
{
    const uint64_t end = vma.file_offset + (vma.end - vma.start);
    off_t at = ::lseek(fd, off_t(vma.file_offset), SEEK_DATA);
    while (at >= 0 && uint64_t(at) < end) {
        off_t stop = ::lseek(fd, at, SEEK_HOLE);
        stop = stop < 0 ? off_t(end) : std::min(stop, off_t(end));
        if (!visit(at, stop))
            return false;
        at = ::lseek(fd, stop, SEEK_DATA);
    }
    return true;
}

/// Of the line at `address`, whose words are at `words`: how many bytes from there the C library writes to in a child
/// before any handler runs. The descriptors of threads name themselves twice (x86-64), an arena's first words are a
/// pointer to what follows them and null. What only looks like it is reached by copy from then on, no worse.
uint64_t written_at_birth(uint64_t address, const uint64_t* words) noexcept
{
#if defined(__x86_64__)
    if (words[0] == address && words[2] == address)
        return 4096; // more than a thread's descriptor has
#endif
    if (address % arena_alignment == 0 && words[0] > address && words[0] - address <= 256 && words[1] == 0)
        return page_bytes;
    return 0;
}

/// The file is read by a mapping of its own, because the program may unmap its memory at any time.
bool release_descriptors(ProcessMemory::Impl& impl, const Vma& vma)
{
    bool any = false;
    (void)visit_data(impl.arena.fd(), vma, [&](off_t at, off_t stop) {
        void* const pages = ::mmap(nullptr, size_t(stop - at), PROT_READ, MAP_SHARED, impl.arena.fd(), at);
        if (pages == MAP_FAILED)
            return true;
        const uint64_t start = vma.start + (uint64_t(at) - vma.file_offset);
        constexpr uint64_t line_words = 8;
        const auto* words = static_cast<const uint64_t*>(pages);
        for (uint64_t address = start; address < start + uint64_t(stop - at); address += 64, words += line_words)
            if (const uint64_t bytes = written_at_birth(address, words); bytes != 0) {
                Vma part = vma;
                part.start = page_floor(address);
                part.end = std::min(page_ceil(address + bytes), vma.end);
                part.file_offset += part.start - vma.start;
                Vma now; // the program may have unmapped it
                if (impl.vmas.find(part.start, &now) && now.start <= part.start && now.end >= part.end &&
                    impl.arena.is_mapped_by(now))
                    make_private(impl, part, now);
                any = true;
            }
        ::munmap(pages, size_t(stop - at));
        return true;
    });
    return any;
}

/// In a child, before any handler runs, the C library writes to the descriptors of all threads and to the allocator's
/// arenas. Where they lie on moved pages these become private, as release_own_stack does.
void release_what_libc_writes(ProcessMemory::Impl& impl)
{
    for (const Vma& vma : state.moved)
        if (release_descriptors(impl, vma))
            impl.republish(vma.start, vma.end);
}

void find_moved(const ProcessMemory::Impl& impl)
{
    impl.vmas.all(&state.moved);
    std::erase_if(state.moved, [&](const Vma& vma) { return !impl.arena.is_mapped_by(vma); });
}

bool copy_out(int fd, const Vma& vma, std::byte* to) noexcept
{
    return visit_data(fd, vma, [&](off_t at, off_t stop) {
        while (at < stop) {
            const long got = ::syscall(SYS_pread64, fd, to + (uint64_t(at) - vma.file_offset), size_t(stop - at), at);
            if (got <= 0)
                return false;
            at += got;
        }
        return true;
    });
}

void discard_copy() noexcept
{
    if (state.copy != MAP_FAILED)
        ::munmap(state.copy, state.copy_bytes);
    state.copy = MAP_FAILED;
}

/// Memory that is mapped before fork: if it were mapped afterwards, the child would show what the parent has written
/// since.
void copy_moved(const ProcessMemory::Impl& impl) noexcept
{
    state.copy_bytes = 0;
    for (const Vma& vma : state.moved)
        state.copy_bytes += vma.end - vma.start;
    if (state.copy_bytes != 0)
        state.copy = ::mmap(nullptr, state.copy_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t at = 0;
    for (const Vma& vma : state.moved) {
        std::byte* const to = static_cast<std::byte*>(state.copy) + at;
        if (state.copy != MAP_FAILED && !copy_out(impl.arena.fd(), vma, to))
            discard_copy();
        if (state.copy != MAP_FAILED && is_kept_from_dumps(impl.vmas, vma))
            (void)::madvise(to, vma.end - vma.start, MADV_DONTDUMP); // the child's, when it is in its place
        at += vma.end - vma.start;
    }
}

void before_fork() noexcept
{
    ProcessMemory::Impl* impl = current();
    if (impl == nullptr)
        return;
    impl->mutex.lock(); // no move is under way, and the child gets a lock that it can release
    state.locked = true;
    state.moved.clear();
    if (impl->arena.empty())
        return;
    release_own_stack(*impl);
    const bool found = or_without_memory(false, [&] {
        find_moved(*impl);
        release_what_libc_writes(*impl);
        find_moved(*impl);
        return true;
    });
    if (!found) {
        report("no memory to record registered pages: a child of this fork may share them with its parent; raise the "
               "limit (ulimit -v)");
        state.moved.clear();
    }
    copy_moved(*impl);
}

void after_in_parent() noexcept
{
    if (!state.locked)
        return;
    discard_copy();
    state.locked = false;
    current()->mutex.unlock();
}

/// Puts the parent's copy, from byte `at` on, in the place of the mapping.
void put_copy(const Vma& vma, size_t at, int fd) noexcept
{
    const size_t bytes = vma.end - vma.start;
    if (state.copy == MAP_FAILED || ::syscall(SYS_mremap, static_cast<std::byte*>(state.copy) + at, bytes, bytes,
                                              MREMAP_MAYMOVE | MREMAP_FIXED, vma.start) == -1)
        make_private(vma, fd); // no memory: at least no write goes back
}

/// Other threads of the parent may have moved mappings (mremap) or unmapped them since it made its list, so the child
/// looks at its own, which nothing changes. A mapping that is not in the list where it is now has no copy.
void replace_mapped(const VmaQuery& own, const ProcessMemory::Impl& impl) noexcept
{
    Vma vma;
    size_t at = 0; // in the copy
    auto listed = state.moved.begin();
    for (uint64_t next = 0; own.find(next, &vma); next = vma.end) {
        if (!impl.arena.is_mapped_by(vma))
            continue;
        for (; listed != state.moved.end() && listed->end <= vma.start; ++listed) // both are in order of address
            at += listed->end - listed->start;
        const uint64_t into = listed != state.moved.end() ? vma.start - listed->start : 0;
        if (listed != state.moved.end() && listed->start <= vma.start && vma.end <= listed->end &&
            listed->file_offset + into == vma.file_offset)
            put_copy(vma, at + into, impl.arena.fd());
        else
            make_private(vma, impl.arena.fd());
    }
}

/// The same where the kernel does not answer at once: each mapping of the list that is there.
void replace_listed(const ProcessMemory::Impl& impl) noexcept
{
    size_t at = 0;
    for (const Vma& vma : state.moved) {
        if (is_mapped(vma))
            put_copy(vma, at, impl.arena.fd());
        at += vma.end - vma.start;
    }
}

/// System calls only: other threads of the parent may have held any lock.
void after_in_child() noexcept
{
    forget_this_process();
    if (!state.locked)
        return;
    ProcessMemory::Impl* impl = current();
    state.impl.store_release(0);
    if (!impl->arena.empty()) {
        const VmaQuery own;
        if (own.answers_at_once())
            replace_mapped(own, *impl);
        else
            replace_listed(*impl);
    }
    discard_copy();      // what is not in its place
    impl->mover.close(); // it would act on the parent
    state.locked = false;
    impl->mutex.unlock();
}

/// When the library is loaded, and not when it is first used: in a child, handlers run in the order in which they were
/// installed, and those of others had better find the child's own pages.
[[gnu::constructor]] void install_fork_handlers() noexcept
{
    (void)::pthread_atfork(before_fork, after_in_parent, after_in_child);
}

} // namespace

void set_forkable(ProcessMemory::Impl* impl) noexcept
{
    state.impl.store_release(reinterpret_cast<uint64_t>(impl));
}

} // namespace tofu::sim
