// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: a peer's STag table, extents and backings say anything; put, get and ARMW fault nowhere, end, and touch
// nothing but files that the peer offers.
#include "fuzz.h"

#include "memory/access.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim::fuzz {
namespace {

constexpr size_t mrq_entries = 2048;
constexpr size_t around = 4096; // what is written
constexpr uint32_t files = 4;
constexpr size_t file_bytes = 8 * around;

// A segment without a server thread: an access to unmapped memory ends at once, because its process does not live.
struct Peer {
    std::byte* base = nullptr;
    int fds[files];

    Peer()
    {
        base = static_cast<std::byte*>(::mmap(nullptr, segment_total_bytes(mrq_entries), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        require(base != MAP_FAILED, "room for a segment");
        segment_header(base).mrq_entries = mrq_entries;
        for (uint32_t i = 0; i < files; i++) {
            fds[i] = ::memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC);
            require(::ftruncate(fds[i], off_t(file_bytes)) == 0, "room for a file");
            if (i != 0) // the first one could shrink
                require(::fcntl(fds[i], F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seals");
        }
    }
    [[nodiscard]] StagTable& table() const { return *stag_table(base, 0, mrq_entries); }
    [[nodiscard]] ServiceArea& area() const { return *reinterpret_cast<ServiceArea*>(segment_service_area(base)); }
    void offer(Input& input) const
    {
        for (uint32_t i = 0; i < files; i++) {
            struct stat status;
            require(::fstat(fds[i], &status) == 0, "fstat");
            const uint8_t lies = input.take<uint8_t>();
            Backing& backing = area().backings[i];
            backing.kind = lies & 3;
            backing.fd = (lies & 4) != 0 ? int(input.below(64)) - 1 : fds[i];
            backing.device = status.st_dev;
            backing.inode = status.st_ino + ((lies & 8) != 0 ? 1 : 0);
            backing.bytes = input.number(file_bytes);
            backing.sequence.raw = 2;
        }
    }
    void publish(Input& input) const
    {
        StagEntry& entry = table().entries[slot_of_stag(first_dynamic_stag)];
        const uint32_t sequence = entry.sequence.raw;
        entry.hw_stag = input.below(16) != 0 ? first_dynamic_stag : input.take<uint32_t>();
        entry.page_base = input.number(1 << 20);
        entry.first = input.number(0);
        entry.limit = input.number(file_bytes);
        entry.flags = input.take<uint8_t>() & 1;
        entry.extent_count = input.below(4) != 0 ? input.below(6) : uint32_t(input.number(max_extents));
        entry.extent_first = input.below(4) != 0 ? input.below(8) : uint32_t(input.number(extent_pool_size));
        entry.reach = input.below(4) != 0 ? uint32_t(Reach::mapped) : input.take<uint32_t>();
        entry.file_offset = input.number(file_bytes);
        entry.backing = input.below(8) != 0 ? input.below(files) : uint32_t(input.number(max_backings));
        for (uint32_t i = 0, count = input.below(8); i < count; i++) {
            table().extents[(entry.extent_first + i) % extent_pool_size] =
                Extent{input.number(file_bytes), input.number(file_bytes), uint32_t(input.below(files + 1)),
                       input.below(5), 0};
        }
        entry.sequence.raw =
            (sequence & ~1u) + 2; // one that stays odd is waited for long: see tests/sim/memory/hostile_test.cc
    }
};

} // namespace

void stag(Input input)
{
    static const Peer peer;
    static std::byte data[file_bytes + 2 * around];
    constexpr std::byte mark{0xa5};
    peer.offer(input);
    const auto process = PeerProcess::open(peer.base, ::getpid(), 1);
    require(process != nullptr, "memory");
    RemoteVcq vcq;
    vcq.table = &peer.table();
    vcq.serial = RemoteVcq::new_serial();
    vcq.process = process.get();
    AddressCache cache;
    for (unsigned step = 0; step < 32 && !input.empty(); step++) {
        if (step == 0 || input.below(3) == 0)
            peer.publish(input);
        const uint64_t stadd = make_stadd(first_dynamic_stag, input.number(file_bytes) & stadd_offset_mask);
        const size_t length = input.number(file_bytes) % file_bytes;
        uint64_t old = 0;
        std::memset(data, int(mark), around);
        std::memset(data + around + length, int(mark), around);
        switch (input.below(4)) {
        case 0: (void)cache.put(vcq, stadd, data + around, length, CopyOrder::last_line); break;
        case 1: (void)cache.get(vcq, stadd, data + around, length, CopyOrder::relaxed); break;
        case 2: (void)cache.armw(vcq, stadd & ~7ull, 8, ArmwOp(input.below(8)), 1, 0, &old); break;
        default: (void)cache.check(vcq, stadd, length, Need::write); break;
        }
        require(data[around - 1] == mark && data[around + length] == mark, "a get writes at its destination only");
    }
}

} // namespace tofu::sim::fuzz
