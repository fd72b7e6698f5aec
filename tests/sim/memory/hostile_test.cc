// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reading a peer's segment is harmless, whatever it contains: no fault, no endless loop, no byte outside.
#include "job/liveness.h"
#include "memory/access.h"
#include "memory/peer.h"
#include "memory/service.h"

#include "lib/harness.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tofu::sim {
namespace {

constexpr size_t mrq_entries = 2048;
const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

// A segment of this process without a server thread: an access to unmapped memory ends with peer_gone at once.
class HostilePeer {
  public:
    HostilePeer()
    {
        bytes_ = segment_total_bytes(mrq_entries);
        base_ = static_cast<std::byte*>(
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        segment_header(base_).mrq_entries = mrq_entries;
        vcq.table = stag_table(base_, 0, mrq_entries);
        vcq.serial = RemoteVcq::new_serial();
        process = PeerProcess::open(base_, ::getpid(), 1);
        vcq.process = process.get();
    }
    ~HostilePeer()
    {
        process.reset();
        ::munmap(base_, bytes_);
        for (const int fd : fds_)
            ::close(fd);
    }
    HostilePeer(const HostilePeer&) = delete;
    HostilePeer& operator=(const HostilePeer&) = delete;

    [[nodiscard]] ServiceArea& area() const { return *reinterpret_cast<ServiceArea*>(segment_service_area(base_)); }

    int add_file(uint32_t index, size_t size, int seals, bool lie = false)
    {
        const int fd = ::memfd_create("hostile", MFD_ALLOW_SEALING | MFD_CLOEXEC);
        EXPECT_EQ(::ftruncate(fd, off_t(size)), 0);
        if (seals != 0)
            EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
        fds_.push_back(fd);
        struct stat status;
        EXPECT_EQ(::fstat(fd, &status), 0);
        Backing& backing = area().backings[index];
        backing.kind = uint32_t(BackingKind::sealed);
        backing.fd = fd;
        backing.device = status.st_dev;
        backing.inode = status.st_ino + (lie ? 1 : 0);
        backing.bytes = uint64_t{1} << 50; // not believed
        backing.sequence.raw = 2;
        return fd;
    }

    // Entry of STag 0x1000: `length` bytes of a backing.
    StagEntry& publish(uint32_t backing, uint64_t file_offset, uint64_t length)
    {
        StagEntry& entry = vcq.table->entries[slot_of_stag(first_dynamic_stag)];
        entry.hw_stag = first_dynamic_stag;
        entry.page_base = 0x10000;
        entry.first = 0;
        entry.limit = length;
        entry.extent_count = 1;
        entry.reach = uint32_t(Reach::mapped);
        entry.backing = backing;
        entry.file_offset = file_offset;
        entry.sequence.raw += 2;
        return entry;
    }

    RemoteVcq vcq;
    std::unique_ptr<PeerProcess> process;
    const uint64_t stadd = make_stadd(first_dynamic_stag, 0);

  private:
    std::byte* base_ = nullptr;
    size_t bytes_ = 0;
    std::vector<int> fds_;
};

// Asks for a move of a peer that is not alive, and so for nothing but a slot.
void ask_in_vain(HostilePeer& peer)
{
    AddressCache cache;
    peer.publish(0, 0, page).reach = uint32_t(Reach::movable);
    const uint64_t word = 1;
    EXPECT_EQ(cache.put(peer.vcq, peer.stadd, &word, 8, CopyOrder::relaxed), AccessStatus::peer_gone);
}

// Others tell by the start time in the claim whether the claimant lives: a child of fork has one of its own.
TEST(MemoryMailbox, AChildOfForkClaimsInItsOwnName)
{
    HostilePeer peer;
    ask_in_vain(peer);
    const uint64_t ours = process_start_time(::getpid());
    EXPECT_EQ(claimant_pid(peer.area().slots[0].state.raw), ::getpid());
    EXPECT_EQ(claimant_start(peer.area().slots[0].state.raw), ours & 0x7fff);
    // Start times count in hundredths of a second.
    int status = -1;
    EXPECT_TRUE(test::wait_until([&] {
        const pid_t child = ::fork();
        if (child == 0) {
            const uint64_t start = process_start_time(::getpid());
            if (start == ours)
                ::_exit(2);
            ask_in_vain(peer);
            const uint64_t state = peer.area().slots[0].state.raw;
            ::_exit(claimant_pid(state) == ::getpid() && claimant_start(state) == (start & 0x7fff) ? 0 : 1);
        }
        return ::waitpid(child, &status, 0) == child && status != 2 << 8;
    }));
    EXPECT_EQ(status, 0);
}

// All slots hold requests of processes that were killed before they rang: the next process rings for them.
TEST(MemoryMailbox, ARequesterWithoutASlotRingsForTheDead)
{
    HostilePeer peer;
    segment_header(reinterpret_cast<std::byte*>(&peer.area()) - segment_service_offset).alive.owner.store_release(1);
    const pid_t nobody = 0x3fffff;
    for (MailboxSlot& slot : peer.area().slots)
        slot.state.raw = with_phase(claim_of(0, nobody, 1), SlotPhase::posted);
    std::thread owner([&] {
        EXPECT_TRUE(test::wait_until([&] { return peer.area().bell.load_acquire() != 0; }));
        segment_header(reinterpret_cast<std::byte*>(&peer.area()) - segment_service_offset)
            .alive.owner.store_release(0);
    });
    ask_in_vain(peer);
    owner.join();
}

AccessStatus put8(AddressCache& cache, const HostilePeer& peer, uint64_t offset)
{
    const uint64_t word = 0x1122334455667788;
    return cache.put(peer.vcq, peer.stadd + offset, &word, 8, CopyOrder::relaxed);
}

TEST(MemoryHostile, AnHonestFileIsMapped)
{
    HostilePeer peer;
    AddressCache cache;
    const int fd = peer.add_file(1, 4 * page, F_SEAL_SHRINK);
    peer.publish(1, page, 2 * page);
    EXPECT_EQ(put8(cache, peer, 16), AccessStatus::ok);
    uint64_t word = 0;
    EXPECT_EQ(::pread(fd, &word, 8, page + 16), 8);
    EXPECT_EQ(word, 0x1122334455667788u);
}

TEST(MemoryHostile, FilesThatCouldShrinkAreNotMapped)
{
    HostilePeer peer;
    AddressCache cache;
    peer.add_file(1, 4 * page, 0);
    peer.publish(1, 0, page);
    EXPECT_EQ(put8(cache, peer, 0), AccessStatus::peer_gone);
}

TEST(MemoryHostile, AFileOtherThanTheOneNamedIsNotMapped)
{
    HostilePeer peer;
    AddressCache cache;
    peer.add_file(1, 4 * page, F_SEAL_SHRINK, true);
    peer.publish(1, 0, page);
    EXPECT_EQ(put8(cache, peer, 0), AccessStatus::peer_gone);
}

TEST(MemoryHostile, NothingIsReachedBehindTheEndOfAFile)
{
    HostilePeer peer;
    AddressCache cache;
    peer.add_file(1, 4 * page, F_SEAL_SHRINK);
    peer.publish(1, 3 * page, 1 << 20); // claims a mebibyte, a page is there
    EXPECT_EQ(put8(cache, peer, page - 8), AccessStatus::ok);
    EXPECT_EQ(put8(cache, peer, page), AccessStatus::peer_gone);
    EXPECT_EQ(put8(cache, peer, page - 4), AccessStatus::peer_gone);
    std::vector<std::byte> many(1 << 20);
    EXPECT_EQ(cache.put(peer.vcq, peer.stadd, many.data(), many.size(), CopyOrder::last_line), AccessStatus::peer_gone);
    uint64_t old = 0;
    EXPECT_EQ(cache.armw(peer.vcq, peer.stadd + 2 * page, 8, ArmwOp::add, 1, 0, &old), AccessStatus::peer_gone);
    peer.publish(1, arena_bytes, page);
    EXPECT_EQ(put8(cache, peer, 0), AccessStatus::peer_gone);
    peer.publish(1, 5 * page, page);
    EXPECT_EQ(put8(cache, peer, 0), AccessStatus::peer_gone);
    peer.publish(1, ~uint64_t{0} - 100, page);
    EXPECT_EQ(put8(cache, peer, 0), AccessStatus::peer_gone);
}

TEST(MemoryHostile, AWordThatIsNotAlignedInItsFileIsNoTargetOfArmw)
{
    HostilePeer peer;
    AddressCache cache;
    peer.add_file(1, 4 * page, F_SEAL_SHRINK);
    peer.publish(1, 60, page); // offset 0 is the last word of a cache line, but for half of it
    uint64_t old = 0;
    EXPECT_EQ(cache.armw(peer.vcq, peer.stadd, 8, ArmwOp::add, 1, 0, &old), AccessStatus::unreachable);
    EXPECT_EQ(cache.armw(peer.vcq, peer.stadd, 4, ArmwOp::add, 1, 0, &old), AccessStatus::ok);
    EXPECT_EQ(cache.armw(peer.vcq, peer.stadd + 4, 8, ArmwOp::add, 1, 0, &old), AccessStatus::bad_stadd);
}

TEST(MemoryHostile, AnEntryThatNeverSettlesEndsInAnError)
{
    HostilePeer peer;
    AddressCache cache;
    peer.publish(1, 0, page).sequence.raw |= 1;
    EXPECT_EQ(put8(cache, peer, 0), AccessStatus::unreachable);
}

TEST(MemoryHostile, RandomTablesHarmNoProcess)
{
    HostilePeer peer;
    AddressCache cache;
    std::mt19937_64 random(20240501);
    for (uint32_t i = 0; i < 8; ++i)
        peer.add_file(i, (1 + random() % 20) * page, i % 3 == 0 ? 0 : F_SEAL_SHRINK, i % 5 == 4);
    const auto number = [&](uint64_t limit) { // small, near limits, or anything
        switch (random() % 4) {
        case 0: return random() % (limit + 1);
        case 1: return limit - random() % 16;
        case 2: return random() % 4096;
        default: return random();
        }
    };
    std::vector<std::byte> data(1 << 17);
    for (int round = 0; round < 3000; ++round) {
        StagEntry& entry = peer.publish(uint32_t(number(8)), number(20 * page), number(1 << 20));
        entry.page_base = number(1 << 20);
        entry.first = random() % 3 == 0 ? number(page) : 0;
        entry.reach = uint32_t(random() % 6 == 0 ? random() : 1);
        if (random() % 3 == 0) {
            entry.extent_count = uint32_t(number(max_extents));
            entry.extent_first = uint32_t(number(extent_pool_size));
            for (uint64_t i = 0, end = 0; i < 64; ++i) {
                end += number(64 * 1024);
                peer.vcq.table->extents[(entry.extent_first + i) % extent_pool_size] =
                    Extent{end, number(20 * page), uint32_t(number(8)), uint32_t(random() % 4), 0};
            }
        }
        const uint64_t stadd = peer.stadd + number(1 << 18) % (1 << 19);
        const size_t length = size_t(number(1 << 16) % data.size());
        uint64_t old = 0;
        switch (random() % 4) {
        case 0: (void)cache.put(peer.vcq, stadd, data.data(), length, CopyOrder::last_line); break;
        case 1: (void)cache.get(peer.vcq, stadd, data.data(), length, CopyOrder::relaxed); break;
        case 2: (void)cache.armw(peer.vcq, stadd & ~7ull, 8, ArmwOp::add, 1, 0, &old); break;
        default: (void)put8(cache, peer, number(1 << 18) % (1 << 19)); break;
        }
    }
}

} // namespace
} // namespace tofu::sim
