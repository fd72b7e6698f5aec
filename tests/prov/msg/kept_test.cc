// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages of 9 to 64 KiB between two processes register nothing once their buffers are known, whatever memory these
// are: of the heap, of a thread's stack, shared, moved by the simulator. And never send bytes of before.
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "prov/lib/session.h"
#include "prov/lib/statistics.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr std::size_t most = 64 << 10;
constexpr int read_write = PROT_READ | PROT_WRITE;

Options messages()
{
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | FI_RMA;
    return options;
}

bool cache_can_work()
{
    for (const char* runtime : {"__asan_init", "__tsan_init"})
        if (dlsym(RTLD_DEFAULT, runtime) != nullptr)
            return false;
    void* const library = dlopen("libucm.so.0", RTLD_LAZY | RTLD_LOCAL);
    return library != nullptr;
}

/// Is memory that has no name known to this process (CAP_CHECKPOINT_RESTORE)?
bool opens_mappings()
{
    void* const pages = mmap(nullptr, most, read_write, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char path[80];
    const auto at = reinterpret_cast<unsigned long>(pages);
    std::snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", at, at + most);
    const int fd = open(path, O_PATH | O_CLOEXEC);
    munmap(pages, most);
    return fd >= 0 && close(fd) == 0;
}

struct Talk : Session {
    explicit Talk(const Rank& rank) : Session(rank, messages()) {}
    /// Rank 0 sends and receives, rank 1 the other way round; each message has bytes of its own.
    void ping_pong(std::uint8_t* buffer, std::size_t length)
    {
        for (const unsigned sender : {0u, 1u}) {
            round_++;
            if (rank.number == sender) {
                std::memset(buffer, round_, length);
                ASSERT_EQ(post([&] { return fi_tsend(ep, buffer, length, nullptr, 1 - sender, 1, buffer); }), 0);
                expect(buffer, FI_SEND | FI_TAGGED);
            } else {
                std::memset(buffer, 0, length);
                ASSERT_EQ(fi_trecv(ep, buffer, length, nullptr, sender, 1, 0, buffer), 0);
                expect(buffer, FI_RECV | FI_TAGGED);
                for (std::size_t i = 0; i < length; i += length - 1)
                    ASSERT_EQ(buffer[i], round_) << "old bytes at " << i << " of " << length;
            }
        }
    }
    /// Round trips until `calm` of them in a row have registered nothing. False: they go on for ever.
    bool settles(std::uint8_t* buffer, std::size_t length, int calm)
    {
        std::uint64_t before = counted(domain, "registration");
        int still = 0;
        for (int i = 0; still < calm && i < 30000 && !testing::Test::HasFailure(); i++) {
            ping_pong(buffer, length);
            const std::uint64_t now = counted(domain, "registration");
            still = now == before ? still + 1 : 0;
            before = now;
            // Both must leave together.
            rank.set(600 + rank.number, still >= calm);
            rank.barrier();
            if (still >= calm && rank.get(600 + 1 - rank.number) == 0)
                still = calm - 1;
            rank.barrier();
        }
        return still >= calm;
    }
    void expect_nothing_registered(std::uint8_t* buffer)
    {
        for (const std::size_t length : {9u << 10, 12u << 10, 16u << 10, 20u << 10, 32u << 10, 48u << 10, 64u << 10}) {
            EXPECT_TRUE(settles(buffer, length, 100)) << length;
            const Numbers before = read_statistics(domain);
            constexpr unsigned rounds = 50;
            for (unsigned i = 0; i < rounds; i++)
                ping_pong(buffer, length);
            const Numbers now = read_statistics(domain);
            EXPECT_EQ(now.at("registration") - before.at("registration"), 0u) << length << " bytes";
            EXPECT_EQ(now.at("cache_hit") - before.at("cache_hit"), 2 * rounds) << length << " bytes";
        }
    }

  private:
    std::uint8_t round_ = 0;
};

/// What a process does with a buffer of `most` bytes of some kind.
using Use = std::function<void(std::uint8_t*)>;
using Lend = std::function<void(Talk&, const Use&)>;

void check_kind(const Lend& lend)
{
    if (!cache_can_work())
        GTEST_SKIP() << "no libucm (package libucx0), or a sanitizer: nothing is kept";
    expect_processes(2, [&](const Rank& rank) {
        Talk talk(rank);
        lend(talk, [&](std::uint8_t* buffer) { talk.expect_nothing_registered(buffer); });
    });
}

TEST(KeptMessages, RegisterNothingOfTheHeap)
{
    check_kind([](Talk&, const Use& use) {
        const std::unique_ptr<std::uint8_t[]> bytes(new std::uint8_t[most + 64]);
        use(bytes.get() + 16);
    });
}

TEST(KeptMessages, RegisterNothingOfAStack)
{
    check_kind([](Talk&, const Use& use) {
        std::uint8_t bytes[most];
        use(bytes);
    });
}

void lend_mapping(const Use& use, int flags, int fd)
{
    auto* const bytes = static_cast<std::uint8_t*>(mmap(nullptr, most, read_write, flags, fd, 0));
    ASSERT_NE(bytes, MAP_FAILED);
    use(bytes);
    munmap(bytes, most);
}

TEST(KeptMessages, RegisterNothingOfAFileInMemory)
{
    check_kind([](Talk&, const Use& use) {
        const int fd = memfd_create("kept_test", MFD_CLOEXEC);
        ASSERT_EQ(ftruncate(fd, most), 0);
        lend_mapping(use, MAP_SHARED, fd);
        close(fd);
    });
}

TEST(KeptMessages, RegisterNothingOfSharedAnonymousMemory)
{
    if (!opens_mappings())
        GTEST_SKIP() << "its file is not accessible without CAP_CHECKPOINT_RESTORE: it is registered each time";
    check_kind([](Talk&, const Use& use) { lend_mapping(use, MAP_SHARED | MAP_ANONYMOUS, -1); });
}

bool is_moved(const void* at)
{
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::istringstream(line) >> std::hex >> begin >> dash >> end;
        if (reinterpret_cast<std::uintptr_t>(at) >= begin && reinterpret_cast<std::uintptr_t>(at) < end)
            return line.find("tofu-sim-arena") != std::string::npos;
    }
    return false;
}

/// A window of a program, into which peers have written before it serves messages.
TEST(KeptMessages, RegisterNothingOfMovedMemory)
{
    check_kind([](Talk& talk, const Use& use) {
        auto* const bytes =
            static_cast<std::uint8_t*>(mmap(nullptr, most, read_write, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        const Window peer = talk.share(bytes, most)[1 - talk.rank.number];
        std::uint64_t word = 1;
        ASSERT_EQ(talk.post([&] {
            return fi_write(talk.ep, &word, sizeof word, nullptr, 1 - talk.rank.number, peer.base, peer.key, &word);
        }),
                  0);
        talk.expect(&word, FI_WRITE | FI_RMA);
        talk.barrier();
        if (!is_moved(bytes))
            std::fprintf(stderr, "nothing is moved here: userfaultfd is refused\n");
        use(bytes);
    });
}

/// The same addresses, other memory: by the owner's calls and by another process that has the file.
TEST(KeptMessages, SendWhatIsThereWhateverReplacesSharedMemory)
{
    expect_processes(2, [](const Rank& rank) {
        Talk talk(rank);
        constexpr std::size_t length = 16 << 10;
        const int fd = memfd_create("kept_test", MFD_CLOEXEC);
        ASSERT_EQ(ftruncate(fd, length), 0);
        auto* const bytes = static_cast<std::uint8_t*>(mmap(nullptr, length, read_write, MAP_SHARED, fd, 0));
        ASSERT_NE(bytes, MAP_FAILED);
        const std::function<void()> ways[] = {
            [&] { fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, length); },
            [&] { (void)!ftruncate(fd, 0), (void)!ftruncate(fd, length); },
            [&] { madvise(bytes, length, MADV_REMOVE); },
            [&] { mmap(bytes, length, read_write, MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS, -1, 0); },
            [&] { mmap(bytes, length, read_write, MAP_SHARED | MAP_FIXED, fd, 0); },
            [&] { mmap(bytes, length, read_write, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0); },
        };
        for (const auto& replace : ways) {
            if (cache_can_work() && opens_mappings())
                EXPECT_TRUE(talk.settles(bytes, length, 5));
            for (int i = 0; i < 10; i++)
                talk.ping_pong(bytes, length);
            replace();
            for (int i = 0; i < 10; i++)
                talk.ping_pong(bytes, length); // looks at the bytes
        }
        munmap(bytes, length);
        close(fd);
    });
}

} // namespace
} // namespace tofu::test
