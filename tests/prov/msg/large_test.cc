// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Large messages between processes: lengths up to beyond 4 GiB; buffers that are replaced between transfers and buffers
// that vanish; death in the middle.
#include <array>
#include <csignal>
#include <cstdlib>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prov/lib/session.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;

Options messages()
{
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE;
    return options;
}

constexpr int read_write = PROT_READ | PROT_WRITE;
constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

std::uint8_t byte_of(std::size_t at, unsigned seed)
{
    return static_cast<std::uint8_t>(at * 7 + (at >> 8) * 3 + (at >> 16) + seed);
}
void fill(std::uint8_t* to, std::size_t size, unsigned seed)
{
    for (std::size_t i = 0; i < size; i++)
        to[i] = byte_of(i, seed);
}
/// The first byte that is wrong, or `size`.
std::size_t wrong(const std::uint8_t* bytes, std::size_t size, unsigned seed)
{
    for (std::size_t i = 0; i < size; i++)
        if (bytes[i] != byte_of(i, seed))
            return i;
    return size;
}

TEST(LargeMessage, ArrivesWholeWhateverItsLength)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, messages());
        const std::size_t lengths[] = {16383,   65535,   65536,   65537,          131072,         1000003,
                                       1 << 20, 3 << 20, 9000001, (16 << 20) - 1, (16 << 20) + 1, 40000007};
        std::vector<std::uint8_t> buffer(40000007 + 64);
        unsigned seed = 0;
        for (const std::size_t length : lengths) {
            for (const bool expected : {true, false}) {
                seed++;
                if (rank.number == 0) {
                    fill(buffer.data() + seed, length, seed);
                    if (expected)
                        rank.barrier();
                    ASSERT_EQ(
                        s.post([&] { return fi_tsend(s.ep, buffer.data() + seed, length, nullptr, 1, seed, &seed); }),
                        0);
                    if (!expected)
                        rank.barrier();
                    s.expect(&seed, FI_SEND | FI_TAGGED);
                } else {
                    if (!expected)
                        rank.barrier();
                    std::memset(buffer.data(), 0, length + 64);
                    // Every third has less room than the message has bytes.
                    const std::size_t room = seed % 3 == 0 ? length / 2 + 17 : length;
                    ASSERT_EQ(fi_trecv(s.ep, buffer.data() + 3, room, nullptr, 0, seed, 0, &seed), 0);
                    if (expected)
                        rank.barrier();
                    fi_cq_data_entry entry{};
                    fi_cq_err_entry error{};
                    ASSERT_EQ(s.next(entry, room < length ? &error : nullptr), true);
                    if (room < length) {
                        EXPECT_EQ(error.err, FI_ETRUNC);
                        EXPECT_EQ(error.olen, length - room);
                    } else {
                        EXPECT_EQ(entry.len, length);
                    }
                    EXPECT_EQ(wrong(buffer.data() + 3, room, seed), room) << length;
                    EXPECT_EQ(buffer[2], 0);
                    EXPECT_EQ(buffer[3 + room], 0) << length;
                }
            }
        }
    });
}

TEST(LargeMessage, ManyAtATimeBothWays)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, messages());
        constexpr unsigned count = 24;
        constexpr std::size_t length = 700001;
        std::vector<std::uint8_t> out(count * length), in(count * length);
        for (unsigned round = 0; round < 3; round++) {
            for (unsigned i = 0; i < count; i++) {
                fill(&out[i * length], length, i + round + 50 * rank.number);
                ASSERT_EQ(fi_trecv(s.ep, &in[i * length], length, nullptr, 1 - rank.number, i, 0, &in), 0);
            }
            for (unsigned i = 0; i < count; i++)
                ASSERT_EQ(
                    s.post([&] { return fi_tsend(s.ep, &out[i * length], length, nullptr, 1 - rank.number, i, &out); }),
                    0);
            fi_cq_data_entry entry{};
            for (unsigned i = 0; i < 2 * count; i++)
                ASSERT_TRUE(s.next(entry));
            for (unsigned i = 0; i < count; i++)
                ASSERT_EQ(wrong(&in[i * length], length, i + round + 50 * (1 - rank.number)), length) << i;
            std::memset(in.data(), 0, in.size());
            rank.barrier();
        }
    });
}

/// One file many times in a row: more addresses than memory.
std::uint8_t* repeated(std::size_t unit, std::size_t times)
{
    const int fd = memfd_create("large_test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(unit)), 0);
    auto* base = static_cast<std::uint8_t*>(mmap(nullptr, unit * times, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0));
    for (std::size_t i = 0; i < times; i++)
        EXPECT_NE(mmap(base + i * unit, unit, read_write, MAP_SHARED | MAP_FIXED, fd, 0), MAP_FAILED);
    close(fd);
    return base;
}

TEST(LargeMessage, BeyondTwoAndFourGiBytes)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer's shadow of 4 GiB of addresses are 16 GiB of memory in each process";
#endif
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, messages());
        constexpr std::size_t unit = std::size_t{32} << 20;
        std::uint8_t* buffer = repeated(unit, 130);
        for (const unsigned bits : {31, 32}) {
            const std::size_t length = (std::size_t{1} << bits) + 12345;
            // The same byte stands wherever an address shows it: what comes later changes nothing, if it is right.
            if (rank.number == 0) {
                fill(buffer, unit, 9);
                rank.barrier();
                ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, buffer, length, nullptr, 1, 9, &s); }), 0);
                s.expect(&s, FI_SEND);
            } else {
                std::memset(buffer, 0, unit);
                rank.barrier();
                ASSERT_EQ(fi_trecv(s.ep, buffer, length, nullptr, 0, 9, 0, &s), 0);
                fi_cq_data_entry entry{};
                ASSERT_TRUE(s.next(entry));
                EXPECT_EQ(entry.len, length);
                EXPECT_EQ(wrong(buffer, unit, 9), unit);
            }
            rank.barrier();
        }
        if (rank.number == 0) {
            const iovec parts[] = {{buffer, std::size_t{1} << 39}, {buffer, (std::size_t{1} << 39) + 1}};
            EXPECT_EQ(fi_sendv(s.ep, parts, nullptr, 2, 1, nullptr), -FI_EMSGSIZE) << "above max_msg_size";
            EXPECT_EQ(s.info->ep_attr->max_msg_size, std::size_t{1} << 40);
        }
    });
}

const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

/// What a program does with memory between two transfers.
struct Change {
    const char* name;
    void (*change)(std::uint8_t* at, std::size_t size);
};
void* map_over(std::uint8_t* at, std::size_t size, int flags, int fd = -1)
{
    return mmap(at, size, read_write, flags | MAP_FIXED, fd, 0);
}
int file_of(std::size_t size, bool sealed)
{
    const int fd = memfd_create("large_test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
    if (sealed)
        EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}
const Change changes[] = {
    {"nothing", [](std::uint8_t*, std::size_t) {}},
    {"munmap and mmap", [](std::uint8_t* at, std::size_t size) { munmap(at, size), map_over(at, size, anonymous); }},
    {"one page", [](std::uint8_t* at, std::size_t) { map_over(at + 5 * page, page, anonymous); }},
    {"mremap of others here",
     [](std::uint8_t* at, std::size_t size) {
         void* other = mmap(nullptr, size, read_write, anonymous, -1, 0);
         mremap(other, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
     }},
    {"MADV_DONTNEED", [](std::uint8_t* at, std::size_t size) { madvise(at, size, MADV_DONTNEED); }},
    {"a shared file",
     [](std::uint8_t* at, std::size_t size) {
         const int fd = file_of(size, false);
         map_over(at, size, MAP_SHARED, fd);
         close(fd);
     }},
    {"another shared file, sealed",
     [](std::uint8_t* at, std::size_t size) {
         const int fd = file_of(size, true);
         map_over(at, size, MAP_SHARED, fd);
         close(fd);
     }},
    {"shared anonymous memory",
     [](std::uint8_t* at, std::size_t size) { map_over(at, size, MAP_SHARED | MAP_ANONYMOUS); }},
    {"a private file",
     [](std::uint8_t* at, std::size_t size) {
         const int fd = file_of(size, true);
         map_over(at, size, MAP_PRIVATE, fd);
         close(fd);
     }},
    {"private memory again", [](std::uint8_t* at, std::size_t size) { map_over(at, size, anonymous); }},
};

/// From rank 0 to rank 1, whole.
void send_and_check(Session& s, const Rank& rank, std::uint8_t* buffer, std::size_t size, unsigned seed)
{
    if (rank.number == 0) {
        fill(buffer, size, seed);
        ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, buffer, size, nullptr, 1, seed, &s); }), 0);
        s.expect(&s, FI_SEND);
    } else {
        std::memset(buffer, 0, size);
        ASSERT_EQ(fi_trecv(s.ep, buffer, size, nullptr, 0, seed, 0, &s), 0);
        fi_cq_data_entry entry{};
        ASSERT_TRUE(s.next(entry));
        ASSERT_EQ(wrong(buffer, size, seed), size);
    }
}

void replace_between_transfers(const Rank& rank)
{
    Session s(rank, messages());
    const std::size_t size = 50 * page;
    auto* buffer = static_cast<std::uint8_t*>(mmap(nullptr, size, read_write, anonymous, -1, 0));
    unsigned seed = 0;
    for (const Change& change : changes) {
        // Both sides replace theirs, and then use it often enough for everything that is kept or moved.
        change.change(buffer, size);
        for (int i = 0; i < 40; i++) {
            seed++;
            send_and_check(s, rank, buffer, size, seed);
            ASSERT_FALSE(testing::Test::HasFailure()) << change.name << ", transfer " << i;
        }
    }
}

TEST(LargeMessage, FromMemoryThatIsReplacedBetweenTransfers)
{
    for (const char* cache : {"off", "on"}) {
        setenv("FI_TOFU_MR_CACHE", cache, 1);
        expect_processes(2, replace_between_transfers);
    }
    unsetenv("FI_TOFU_MR_CACHE");
}

/// The first instructions of what changes mappings: of all that memory hooks replace.
std::vector<std::array<unsigned char, 16>> library_code()
{
    std::vector<std::array<unsigned char, 16>> code;
    for (const char* name : {"munmap", "mmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt"}) {
        auto& first = code.emplace_back();
        std::memcpy(first.data(), dlsym(RTLD_DEFAULT, name), first.size());
    }
    return code;
}

/// A thread that is in such a function while its code is replaced returns into the middle of other instructions. So
/// hooks are there when fi_domain() returns, behind which programs start their threads, and nothing is replaced after
/// that.
TEST(LargeMessage, ReplacesNoCodeThatThreadsMayBeIn)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, messages());
        const auto before = library_code();
        std::vector<std::uint8_t> buffer(50 * page);
        for (unsigned i = 0; i < 10; i++) // more often than a buffer comes before it is kept
            send_and_check(s, rank, buffer.data(), buffer.size(), i);
        EXPECT_TRUE(library_code() == before);
    });
}

/// Far from where the kernel looks for room, and where ASan and TSan let a program map: nothing else is mapped there
/// once it has gone.
std::uint8_t* memory_apart(std::size_t size)
{
    auto* at = static_cast<std::uint8_t*>(mmap(reinterpret_cast<void*>(std::uintptr_t{0x551} << 36), size, read_write,
                                               anonymous | MAP_FIXED_NOREPLACE, -1, 0));
    EXPECT_NE(at, MAP_FAILED);
    std::memset(at, 1, size);
    return at;
}

TEST(LargeMessage, WhoseReceiveBufferVanishedIsAnErrorOnBothSides)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, messages());
        constexpr std::size_t size = 1 << 20;
        std::uint8_t* buffer = memory_apart(size);
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        if (rank.number == 1) {
            ASSERT_EQ(fi_trecv(s.ep, buffer, size, nullptr, 0, 1, 0, buffer), 0);
            munmap(buffer, size);
        }
        rank.barrier();
        if (rank.number == 0)
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, buffer, size, nullptr, 1, 1, buffer); }), 0);
        ASSERT_TRUE(s.next(entry, &error));
        EXPECT_EQ(error.op_context, buffer);
        EXPECT_NE(error.err, 0);
        // And everything else goes on.
        std::uint64_t word = 0, out = 77;
        ASSERT_EQ(fi_trecv(s.ep, &word, 8, nullptr, 1 - rank.number, 2, 0, &word), 0);
        ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &out, 8, 1 - rank.number, 2); }), 0);
        s.expect(&word, FI_RECV);
        EXPECT_EQ(word, 77u);
    });
}

TEST(LargeMessage, WhoseSendBufferVanishedHarmsNoOther)
{
    expect_processes(2, [](const Rank& rank) {
        Session s(rank, messages());
        constexpr std::size_t size = 1 << 20;
        std::uint8_t* buffer = memory_apart(size);
        fi_cq_data_entry entry{};
        if (rank.number == 0) {
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, buffer, size, nullptr, 1, 1, buffer); }), 0);
            munmap(buffer, size);
        }
        rank.barrier();
        if (rank.number == 1)
            ASSERT_EQ(fi_trecv(s.ep, buffer, size, nullptr, 0, 1, 0, buffer), 0);
        // Its pages may still be at hand or not: an entry comes, of either kind.
        ssize_t got = 0;
        ASSERT_TRUE(sim::test::wait_until([&] { return (got = fi_cq_read(s.cq, &entry, 1)) != -FI_EAGAIN; }));
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            EXPECT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
            EXPECT_EQ(error.op_context, buffer);
        }
        std::uint64_t word = 0, out = 77;
        ASSERT_EQ(fi_trecv(s.ep, &word, 8, nullptr, 1 - rank.number, 2, 0, &word), 0);
        ASSERT_EQ(s.post([&] { return fi_tinject(s.ep, &out, 8, 1 - rank.number, 2); }), 0);
        s.expect(&word, FI_RECV);
        EXPECT_EQ(word, 77u);
    });
}

/// Rank `victim` is killed while large messages go both ways; the other gets an entry for each of its own and
/// nothing touches its buffers afterwards.
void lose(unsigned victim, unsigned delay_us)
{
    const auto exits = run_processes(2, [victim, delay_us](const Rank& rank) {
        Session s(rank, messages());
        constexpr unsigned count = 8;
        constexpr std::size_t length = 3000000;
        std::vector<std::uint8_t> out(length), in(count * length);
        const unsigned peer = 1 - rank.number;
        for (unsigned i = 0; i < count; i++)
            ASSERT_EQ(fi_trecv(s.ep, &in[i * length], length, nullptr, peer, i, 0, &in), 0);
        for (unsigned i = 0; i < count; i++)
            ASSERT_EQ(s.post([&] { return fi_tsend(s.ep, out.data(), length, nullptr, peer, i, &out); }), 0);
        rank.barrier();
        if (rank.number == victim) {
            timespec start, now;
            clock_gettime(CLOCK_MONOTONIC, &start);
            do {
                fi_cq_read(s.cq, nullptr, 0);
                clock_gettime(CLOCK_MONOTONIC, &now);
            } while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < delay_us);
            raise(SIGKILL);
        }
        unsigned sends = 0, receives = 0;
        std::uint64_t quiet = 0;
        static_cast<void>(sim::test::wait_until([&] {
            fi_cq_data_entry entry{};
            const ssize_t got = fi_cq_read(s.cq, &entry, 1);
            void* context = entry.op_context;
            if (got == -FI_EAVAIL) {
                fi_cq_err_entry error{};
                EXPECT_EQ(fi_cq_readerr(s.cq, &error, 0), 1);
                context = error.op_context;
            }
            if (got != -FI_EAGAIN) {
                quiet = 0;
                (context == &out ? sends : receives)++;
            }
            return sends == count && ++quiet > 20000; // receives without a message stay posted
        }));
        EXPECT_EQ(sends, count);
        EXPECT_LE(receives, count);
        std::vector<std::uint8_t> before = in;
        for (int i = 0; i < 20000; i++)
            fi_cq_read(s.cq, nullptr, 0);
        EXPECT_EQ(before, in) << "written to after the end";
        std::_Exit(testing::Test::HasFailure() ? 1 : 0); // the barrier of the end lacks one
    });
    EXPECT_TRUE(exits[1 - victim].success()) << exits[1 - victim].errors;
    EXPECT_TRUE(WIFSIGNALED(exits[victim].status));
}

TEST(LargeMessage, WhosePeerIsKilledEnds)
{
    for (const unsigned delay : {0u, 1500u})
        for (const unsigned victim : {0u, 1u})
            lose(victim, delay);
    sim::test::clear_last_job();
}

} // namespace
} // namespace tofu::test
