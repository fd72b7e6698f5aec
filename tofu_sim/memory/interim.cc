// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: interim implementation of memory.h and access.h, to be replaced by registry, peer, access, service.
// Called by: tni/, api/. Calls: memfd, mmap, process_vm.
//
// Private memory is moved into a memfd at registration (file offset = address) without freezing writers.
#include "job/liveness.h"
#include "memory/access.h"
#include "memory/memory.h"

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <csignal>
#include <unistd.h>

namespace tofu::sim {

struct ProcessMemory::Impl {
    std::byte* segment = nullptr;
    int arena = -1;
    uint64_t inode = 0;
    std::mutex lock;
    SharedWord<uint32_t> ready{0};
    SharedWord<uint32_t> stop{0};
};

namespace {

struct Range {
    ProcessMemory::Impl* process;
    uintptr_t first, last;
    bool writable, done;
};

// On another thread than the one that registers, whose stack may be what is moved.
void* move_range(void* argument) noexcept
{
    auto& range = *static_cast<Range*>(argument);
    std::FILE* const maps = std::fopen("/proc/self/maps", "re");
    char line[512];
    uintptr_t covered = range.first;
    struct Piece { uintptr_t first, last; int prot; };
    Piece pieces[64];
    int count = 0;
    while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
        uintptr_t first = 0, last = 0;
        char perms[8] = {};
        unsigned long inode = 0;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*x %*s %lu", &first, &last, perms, &inode) != 4)
            continue;
        if (last <= range.first || first >= range.last)
            continue;
        if (first > covered || perms[0] != 'r' || (range.writable && perms[1] != 'w'))
            break;
        covered = last;
        if (perms[3] == 'p' && count < 64)
            pieces[count++] = {std::max(first, range.first), std::min(last, range.last),
                               PROT_READ | (perms[1] == 'w' ? PROT_WRITE : 0)};
    }
    if (maps != nullptr)
        std::fclose(maps);
    if (covered < range.last)
        return nullptr;
    for (int i = 0; i < count; i++) {
        const Piece& p = pieces[i];
        for (uintptr_t at = p.first; at < p.last;) {
            const ssize_t n = ::pwrite(range.process->arena, reinterpret_cast<void*>(at), p.last - at, off_t(at));
            if (n <= 0)
                return nullptr;
            at += size_t(n);
        }
        if (::mmap(reinterpret_cast<void*>(p.first), p.last - p.first, p.prot, MAP_SHARED | MAP_FIXED,
                   range.process->arena, off_t(p.first)) == MAP_FAILED)
            return nullptr;
    }
    range.done = true;
    return nullptr;
}

void* service(void* argument) noexcept
{
    auto& impl = *static_cast<ProcessMemory::Impl*>(argument);
    adopt_service_thread(segment_header(impl.segment));
    impl.ready.store_release(1);
    (void)::syscall(SYS_futex, &impl.ready.raw, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    while (impl.stop.load_acquire() == 0)
        (void)::syscall(SYS_futex, &impl.stop.raw, FUTEX_WAIT, 0, nullptr, nullptr, 0);
    return nullptr;
}

ServiceArea& area_of(std::byte* segment) noexcept
{
    return *reinterpret_cast<ServiceArea*>(segment_service_area(segment));
}

} // namespace

ProcessMemory::ProcessMemory(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
ProcessMemory::~ProcessMemory() = default;
bool ProcessMemory::in_forked_child() noexcept { return false; }

std::unique_ptr<ProcessMemory> ProcessMemory::open(std::byte* segment) noexcept
{
    auto impl = std::make_unique<Impl>();
    impl->segment = segment;
    impl->arena = ::memfd_create("tofu-sim-arena", MFD_CLOEXEC);
    struct stat status{};
    if (impl->arena < 0 || ::ftruncate(impl->arena, off_t{1} << 47) != 0 || ::fstat(impl->arena, &status) != 0)
        return nullptr;
    Backing& backing = area_of(segment).backings[0];
    backing.kind = uint32_t(BackingKind::arena);
    backing.fd = impl->arena;
    backing.inode = status.st_ino;
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error = ::pthread_create(&thread, nullptr, service, impl.get());
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0)
        return nullptr;
    while (impl->ready.load_acquire() == 0)
        (void)::syscall(SYS_futex, &impl->ready.raw, FUTEX_WAIT, 0, nullptr, nullptr, 0);
    return std::unique_ptr<ProcessMemory>(new ProcessMemory(std::move(impl)));
}

struct VcqMemory::Impl {
    ProcessMemory::Impl& process;
    StagTable& table;
    unsigned component;
    std::mutex lock;
    uint32_t next = 0;
    std::map<uint32_t, uint32_t> uses{};
};

std::unique_ptr<VcqMemory> ProcessMemory::open_vcq(unsigned vcq, unsigned component) noexcept
{
    return std::make_unique<VcqMemory>(
        *impl_, *stag_table(impl_->segment, vcq, segment_header(impl_->segment).mrq_entries), vcq, component);
}

VcqMemory::VcqMemory(ProcessMemory::Impl& process, StagTable& table, unsigned, unsigned component) noexcept
    : impl_(new Impl{process, table, component, {}})
{
}

VcqMemory::~VcqMemory()
{
    for (StagEntry& entry : impl_->table.entries)
        if (entry.hw_stag != 0) {
            entry.sequence.fetch_add(2);
            entry.hw_stag = 0;
        }
}

RegisterStatus VcqMemory::add(void* address, size_t size, bool read_only, uint32_t stag, uint64_t* stadd) noexcept
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    const uintptr_t page = start & ~uintptr_t{4095};
    if (size > (uintptr_t{1} << 40) || start + size < start)
        return RegisterStatus::bad_size;
    const std::lock_guard guard(impl_->lock);
    Range range{&impl_->process, page, (start + size + 4095) & ~uintptr_t{4095}, !read_only, false};
    {
        const std::lock_guard process_guard(impl_->process.lock);
        pthread_t mover;
        if (::pthread_create(&mover, nullptr, move_range, &range) != 0)
            return RegisterStatus::out_of_memory;
        ::pthread_join(mover, nullptr);
    }
    if (!range.done)
        return RegisterStatus::bad_address;
    uint32_t hw = 0;
    if (stag != no_slot) {
        hw = reserved_hw_stag(impl_->component, stag);
        if (impl_->table.entries[stag].hw_stag != 0)
            return RegisterStatus::used;
    } else {
        for (uint32_t slot = reserved_stags; slot < stag_slots; slot++) {
            StagEntry& entry = impl_->table.entries[slot];
            if (entry.hw_stag != 0 && entry.page_base == page && (entry.flags == 1) == read_only &&
                entry.limit >= start - page + size && entry.first <= start - page) {
                impl_->uses[entry.hw_stag]++;
                *stadd = make_stadd(entry.hw_stag, start - page);
                return RegisterStatus::ok;
            }
        }
        for (uint32_t tries = 0; tries < dynamic_slots && hw == 0; tries++) {
            const uint32_t candidate = first_dynamic_stag + impl_->next * 2 + (read_only ? 1 : 0);
            impl_->next = (impl_->next + 1) % (dynamic_slots * 512);
            if (impl_->table.entries[slot_of_stag(candidate)].hw_stag == 0)
                hw = candidate;
        }
        if (hw == 0)
            return RegisterStatus::full;
    }
    StagEntry& entry = impl_->table.entries[slot_of_stag(hw)];
    const uint32_t sequence = entry.sequence.load_relaxed();
    entry.sequence.store_seq(sequence + 1);
    entry.page_base = stag != no_slot ? start : page;
    entry.first = start - entry.page_base;
    entry.limit = entry.first + size;
    entry.flags = read_only ? entry_read_only : 0;
    entry.hw_stag = hw;
    entry.sequence.store_seq(sequence + 2);
    impl_->uses[hw] = 1;
    *stadd = make_stadd(hw, entry.first);
    return RegisterStatus::ok;
}

RegisterStatus VcqMemory::remove(uint64_t stadd) noexcept
{
    const std::lock_guard guard(impl_->lock);
    const uint32_t hw = uint32_t(stadd >> stadd_offset_bits);
    const uint32_t slot = slot_of_stag(hw);
    if (slot == no_slot || impl_->table.entries[slot].hw_stag != hw)
        return RegisterStatus::bad_stadd;
    if (--impl_->uses[hw] == 0) {
        StagEntry& entry = impl_->table.entries[slot];
        entry.sequence.fetch_add(1);
        entry.hw_stag = 0;
        entry.sequence.fetch_add(1);
    }
    return RegisterStatus::ok;
}

struct PeerProcess::Impl {
    int arena = -1;
    std::mutex lock;
    std::map<std::pair<uint64_t, uint64_t>, std::byte*> mapped{}; // pages of the peer's address space
};

PeerProcess::PeerProcess(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
PeerProcess::~PeerProcess() { ::close(impl_->arena); }

std::unique_ptr<PeerProcess> PeerProcess::open(std::byte* segment, int pid, uint32_t, uint32_t) noexcept
{
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, area_of(segment).backings[0].fd);
    auto impl = std::make_unique<Impl>();
    impl->arena = ::open(path, O_RDWR | O_CLOEXEC);
    if (impl->arena < 0)
        return nullptr;
    return std::unique_ptr<PeerProcess>(new PeerProcess(std::move(impl)));
}

uint64_t RemoteVcq::new_serial() noexcept
{
    static SharedWord<uint64_t> last{0};
    return last.fetch_add(1) + 1;
}

AccessStatus AddressCache::translate_slow(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need,
                                          std::byte** pointer) noexcept
{
    const uint32_t stag = uint32_t(stadd >> stadd_offset_bits);
    const uint64_t offset = stadd & stadd_offset_mask;
    const uint32_t slot = slot_of_stag(stag);
    if (slot == no_slot)
        return AccessStatus::bad_stadd;
    StagEntry& entry = vcq.table->entries[slot];
    const uint32_t sequence = entry.sequence.load_acquire();
    const uint64_t base = entry.page_base, first = entry.first, limit = entry.limit;
    const bool read_only = entry.flags == entry_read_only;
    if ((sequence & 1) != 0 || entry.hw_stag != stag || offset < first || (offset >= limit && length != 0))
        return AccessStatus::bad_stadd;
    if (entry.sequence.load_seq() != sequence)
        return AccessStatus::bad_stadd;
    if (length > limit - offset)
        return AccessStatus::bad_length;
    if (read_only && need == Need::write)
        return AccessStatus::not_permitted;
    auto* address = reinterpret_cast<std::byte*>(base);
    if (vcq.process != nullptr) {
        auto& peer = vcq.process->impl();
        const std::lock_guard guard(peer.lock);
        const uint64_t from = (base + first) & ~uint64_t{4095};
        const uint64_t to = (base + limit + 4095) & ~uint64_t{4095};
        std::byte*& window = peer.mapped[{from, to}];
        if (window == nullptr) {
            void* const memory = ::mmap(nullptr, to - from, PROT_READ | PROT_WRITE, MAP_SHARED, peer.arena, off_t(from));
            if (memory == MAP_FAILED)
                return AccessStatus::unreachable;
            window = static_cast<std::byte*>(memory);
        }
        address = window + (base - from);
    }
    Line& line = lines_[index(vcq.serial, stag)];
    line = {vcq.serial, stag, sequence, &entry.sequence, address, first, limit, read_only ? 1u : 3u, 0, 0};
    *pointer = address + offset;
    return AccessStatus::ok;
}

AccessStatus AddressCache::check(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need) noexcept
{
    std::byte* pointer = nullptr;
    return translate(vcq, stadd, length, need, &pointer);
}

AccessStatus AddressCache::put(const RemoteVcq& target, uint64_t stadd, const void* source, size_t length,
                               CopyOrder) noexcept
{
    std::byte* pointer = nullptr;
    const AccessStatus status = translate(target, stadd, length, Need::write, &pointer);
    if (status == AccessStatus::ok)
        std::memmove(pointer, source, length);
    return status;
}

AccessStatus AddressCache::get(const RemoteVcq& target, uint64_t stadd, void* destination, size_t length,
                               CopyOrder) noexcept
{
    std::byte* pointer = nullptr;
    const AccessStatus status = translate(target, stadd, length, Need::read, &pointer);
    if (status == AccessStatus::ok)
        std::memmove(destination, pointer, length);
    return status;
}

namespace {
template <typename Word>
uint64_t apply(std::byte* at, ArmwOp op, uint64_t operand, uint64_t compare) noexcept
{
    auto* const word = reinterpret_cast<Word*>(at);
    const Word value = Word(operand);
    switch (op) {
    case ArmwOp::cswap: {
        Word expected = Word(compare);
        __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        return expected;
    }
    case ArmwOp::swap: return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    case ArmwOp::add: return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
    case ArmwOp::bit_xor: return __atomic_fetch_xor(word, value, __ATOMIC_SEQ_CST);
    case ArmwOp::bit_and: return __atomic_fetch_and(word, value, __ATOMIC_SEQ_CST);
    case ArmwOp::bit_or: return __atomic_fetch_or(word, value, __ATOMIC_SEQ_CST);
    }
    return 0;
}
} // namespace

AccessStatus AddressCache::armw(const RemoteVcq& target, uint64_t stadd, unsigned size, ArmwOp op,
                                uint64_t operand, uint64_t compare, uint64_t* old_value) noexcept
{
    std::byte* pointer = nullptr;
    const AccessStatus status = translate(target, stadd, size, Need::write, &pointer);
    if (status != AccessStatus::ok)
        return status;
    if (reinterpret_cast<uintptr_t>(pointer) % size != 0)
        return AccessStatus::bad_stadd;
    *old_value = size == 8 ? apply<uint64_t>(pointer, op, operand, compare)
                           : apply<uint32_t>(pointer, op, operand, compare);
    return AccessStatus::ok;
}

} // namespace tofu::sim
