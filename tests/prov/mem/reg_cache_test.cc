// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The registration cache over a library that pins pages as hardware does: memory is replaced between transfers in
// every way the C library has, and what the cache hands out must be of the pages that are there now.
// Run by make check.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/params.h"
#include "mem/local_buffer.h"
#include "mem/mem_hooks.h"
#include "mem/reg_cache.h"

#ifndef MADV_COLD // Linux 5.4
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_WRITE // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

/// The memory that Open MPI was informed of, as long as there is room.
static std::vector<std::pair<std::uintptr_t, std::uintptr_t>> reported;

/// Open MPI's name. Called by several threads at a time only while there is no room.
extern "C" [[gnu::visibility("default")]] void opal_mem_hooks_release_hook(void* begin, std::size_t length, bool)
{
    if (reported.size() < reported.capacity())
        reported.emplace_back(reinterpret_cast<std::uintptr_t>(begin),
                              reinterpret_cast<std::uintptr_t>(begin) + length);
}

namespace {

using tofu::MemoryHooks;
using tofu::RegistrationCache;

/// What the program does with its signals.
std::vector<void (*)(int)> dispositions()
{
    std::vector<void (*)(int)> handlers;
    for (int number = 1; number < SIGRTMIN; number++) {
        struct sigaction action {};
        (void)sigaction(number, nullptr, &action);
        handlers.push_back(action.sa_handler);
    }
    return handlers;
}
const auto dispositions_before = dispositions();

const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
const std::size_t size = 64 * page;
constexpr int read_write = PROT_READ | PROT_WRITE;
constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

/// Numbers of the page frames behind a range; zeros without privilege.
std::vector<std::uint64_t> frames(std::uintptr_t begin, std::size_t length)
{
    static const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const std::uintptr_t first = begin / page;
    std::vector<std::uint64_t> found((begin + length + page - 1) / page - first);
    if (pread(fd, found.data(), found.size() * 8, off_t(first * 8)) != ssize_t(found.size() * 8))
        found.assign(found.size(), 0);
    for (std::uint64_t& word : found)
        word &= (std::uint64_t{1} << 55) - 1;
    return found;
}

/// The library: remembers which frames a registration is of. What is registered inside a registration shares its STADD,
/// and so its frames, until both have ended (guide 3.6).
struct Library {
    struct Region {
        std::uintptr_t begin;
        std::size_t length;
        std::vector<std::uint64_t> pinned;
        unsigned uses = 1;
    };
    /// The region of a STADD, or the end.
    std::map<utofu_stadd_t, Region>::iterator region_of(utofu_stadd_t stadd)
    {
        const auto above = regions.upper_bound(stadd);
        return above == regions.begin() ? regions.end() : std::prev(above);
    }
    std::map<utofu_stadd_t, Region> regions;
    utofu_stadd_t next = utofu_stadd_t{1} << 40;
    unsigned made = 0;
    unsigned refused = 0; ///< of what was asked to be given back
};
Library library;

tofu::vcq::Functions functions()
{
    tofu::vcq::Functions f{};
    f.create_vcq = [](utofu_tni_id_t, unsigned long, utofu_vcq_hdl_t* handle) -> int {
        *handle = 1;
        return UTOFU_SUCCESS;
    };
    f.free_vcq = [](utofu_vcq_hdl_t) -> int { return UTOFU_SUCCESS; };
    f.query_vcq_id = [](utofu_vcq_hdl_t, utofu_vcq_id_t* id) -> int { return *id = 1, UTOFU_SUCCESS; };
    f.poll_tcq = [](utofu_vcq_hdl_t, unsigned long, void**) -> int { return UTOFU_ERR_NOT_FOUND; };
    f.poll_mrq = [](utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice*) -> int { return UTOFU_ERR_NOT_FOUND; };
    f.reg_mem = [](utofu_vcq_hdl_t, void* at, std::size_t length, unsigned long, utofu_stadd_t* stadd) -> int {
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        library.made++;
        for (auto& [shared, region] : library.regions)
            if (begin >= region.begin && begin + length <= region.begin + region.length) {
                region.uses++;
                *stadd = shared + (begin - region.begin);
                return UTOFU_SUCCESS;
            }
        *stadd = library.next;
        library.next += utofu_stadd_t{1} << 40;
        library.regions[*stadd] = {begin, length, frames(begin, length)};
        return UTOFU_SUCCESS;
    };
    f.dereg_mem = [](utofu_vcq_hdl_t, utofu_stadd_t stadd, unsigned long) -> int {
        const auto region = library.region_of(stadd);
        if (region == library.regions.end()) {
            library.refused++;
            return UTOFU_ERR_INVALID_STADD;
        }
        if (--region->second.uses == 0)
            library.regions.erase(region);
        return UTOFU_SUCCESS;
    };
    return f;
}

/// Until earlier changes are distinguished from later ones.
void rest()
{
    timespec begin{}, now{};
    clock_gettime(CLOCK_REALTIME_COARSE, &begin);
    do
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    while (now.tv_sec == begin.tv_sec && now.tv_nsec == begin.tv_nsec);
}

/// A backend, a VCQ and a cache.
class RegistrationCacheTest : public ::testing::Test {
  protected:
    void SetUp() override
    {
        library = Library{};
        hooks_ = MemoryHooks::get();
        if (hooks_ == nullptr)
            GTEST_SKIP() << "libucm is not there (package libucx0), or cannot hook into this program";
        ASSERT_EQ(vcq_.open(backend_, 0, false, {}), 0);
        open({.count = 64});
    }
    void TearDown() override
    {
        cache_.reset();
        EXPECT_TRUE(library.regions.empty()) << "registrations left";
    }

    void open(RegistrationCache::Limits limits)
    {
        cache_.reset();
        cache_ = RegistrationCache::make(vcq_, *hooks_, limits);
        ASSERT_NE(cache_, nullptr);
    }
    /// One transfer from a buffer. True: with a registration that was kept.
    bool transfer(void* at, std::size_t length)
    {
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        const std::uint64_t hits = cache_->counts().hits;
        utofu_stadd_t stadd = 0;
        const unsigned number = cache_->acquire(begin, length, true, stadd);
        if (number == RegistrationCache::none)
            return false;
        expect_current(stadd, at, length);
        cache_->release(number);
        return cache_->counts().hits != hits;
    }
    /// What the hardware would reach are the frames that were pinned.
    static void expect_current(utofu_stadd_t stadd, const void* at, std::size_t length)
    {
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        const auto region = library.region_of(stadd);
        ASSERT_NE(region, library.regions.end());
        const std::uintptr_t offset = stadd - region->first;
        EXPECT_EQ(region->second.begin + offset, begin);
        const auto now = frames(begin, length);
        const std::size_t skip = begin / page - region->second.begin / page;
        EXPECT_TRUE(std::equal(now.begin(), now.end(), region->second.pinned.begin() + std::ptrdiff_t(skip)))
            << "stale";
    }
    /// Transfers until the registration is kept. False: it never is, also when the file that it may be of has rested.
    bool warm(void* at, std::size_t length)
    {
        for (int i = 0; i < 4000; i++) {
            if (transfer(at, length))
                return true;
            if (i % 400 == 399)
                rest();
        }
        return false;
    }

    tofu::vcq::Backend backend_{functions(), utofu_onesided_caps{}, 1};
    tofu::vcq::Vcq vcq_;
    MemoryHooks* hooks_ = nullptr;
    std::unique_ptr<RegistrationCache> cache_;
};

char* fresh(std::size_t length = size)
{
    auto* at = static_cast<char*>(mmap(nullptr, length, read_write, anonymous, -1, 0));
    EXPECT_NE(at, MAP_FAILED);
    std::memset(at, 1, length);
    return at;
}

TEST_F(RegistrationCacheTest, KeepsWhatStaysTheSame)
{
    char* buffer = fresh();
    ASSERT_TRUE(warm(buffer, size));
    const unsigned made = library.made;
    for (int i = 0; i < 100; i++) {
        std::memset(buffer, i, size);
        EXPECT_TRUE(transfer(buffer, size));
        EXPECT_TRUE(transfer(buffer + 100, size / 2)) << "a part of it";
    }
    EXPECT_EQ(library.made, made);
    EXPECT_EQ(cache_->counts().stale, 0u);
    munmap(buffer, size);
}

/// The buffer of a ping-pong is sent and received into in turn. A registration for sends would be of no use to the
/// receives, which would be given one more.
TEST_F(RegistrationCacheTest, KeepsWhatIsReadAndWrittenOnce)
{
    char* buffer = fresh();
    utofu_stadd_t stadd = 0;
    for (int i = 0; i < 20; i++)
        if (const unsigned number = cache_->acquire(reinterpret_cast<std::uintptr_t>(buffer), size, i % 2 == 0, stadd);
            number != RegistrationCache::none)
            cache_->release(number);
    EXPECT_EQ(cache_->counts().kept, 1u);
    EXPECT_EQ(cache_->counts().hits, 17u);
    munmap(buffer, size);
}

/// Allocators and languages' runtimes give advice of memory in use, and so does the simulator where it moves pages.
TEST_F(RegistrationCacheTest, KeepsWhatAdviceLeavesInPlace)
{
    char* buffer = fresh();
    ASSERT_TRUE(warm(buffer, size));
    const unsigned made = library.made;
    for (const int advice : {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTFORK, MADV_DOFORK,
                             MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_POPULATE_WRITE}) {
        (void)madvise(buffer, size, advice); // of an old kernel: EINVAL
        std::memset(buffer, advice, size);
        EXPECT_TRUE(transfer(buffer, size)) << advice;
    }
    EXPECT_EQ(library.made, made);
    munmap(buffer, size);
}

/// A replacement that libucm refuses (mremap to a fixed address, in version 1.13) changes nothing.
struct Way {
    const char* name;
    std::function<bool(char*)> replace; ///< false: nothing was replaced
    bool leaves_files = false;          ///< shows the same pages of a file as before
};

char* over(char* at, std::size_t length, int flags = anonymous, int fd = -1)
{
    return static_cast<char*>(mmap(at, length, read_write, flags | MAP_FIXED, fd, 0));
}

int memory_file()
{
    const int fd = memfd_create("reg_cache_test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, off_t(size)), 0);
    return fd;
}

const Way ways[] = {
    {"munmap and mmap", [](char* at) { return munmap(at, size) == 0 && over(at, size) == at; }},
    {"mmap over it", [](char* at) { return over(at, size) == at; }},
    {"mmap over one page in the middle", [](char* at) { return over(at + 7 * page, page) == at + 7 * page; }},
    {"mmap over the last page", [](char* at) { return over(at + size - page, page) == at + size - page; }},
    {"another thread",
     [](char* at) {
         std::thread([at] { munmap(at, size), over(at, size); }).join();
         return true;
     }},
    {"mremap away, to a fixed address",
     [](char* at) {
         void* there = mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, fresh());
         const bool moved = there != MAP_FAILED;
         over(at, size);
         if (moved)
             munmap(there, size);
         return true;
     }},
    {"mremap away, to a larger place",
     [](char* at) {
         mmap(at + size, page, PROT_NONE, anonymous | MAP_FIXED_NOREPLACE, -1, 0); // no room to grow
         void* there = mremap(at, size, 2 * size, MREMAP_MAYMOVE);
         munmap(there, 2 * size);
         return there != at && over(at, size) == at;
     }},
    {"mremap of others to it",
     [](char* at) {
         void* others = fresh();
         if (mremap(others, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
             return true;
         munmap(others, size);
         return false;
     }},
#ifdef MREMAP_DONTUNMAP
    {"mremap that leaves the mapping",
     [](char* at) {
         void* there = mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
         return there != MAP_FAILED && munmap(there, size) == 0;
     }},
#endif
    {"mremap to a smaller size and back",
     [](char* at) {
         EXPECT_EQ(mremap(at, size, size / 2, 0), at);
         EXPECT_EQ(mremap(at, size / 2, size, 0), at);
         return true;
     },
     true},
    {"MADV_DONTNEED", [](char* at) { return madvise(at, size, MADV_DONTNEED) == 0; }, true},
    {"MADV_DONTNEED of one page", [](char* at) { return madvise(at + 3 * page, page, MADV_DONTNEED) == 0; }, true},
    {"MADV_FREE", [](char* at) { return madvise(at, size, MADV_FREE) == 0; }},
    {"a shared file",
     [](char* at) {
         const int fd = memory_file();
         over(at, size, MAP_SHARED, fd);
         return close(fd) == 0;
     }},
    {"a private file",
     [](char* at) {
         const int fd = memory_file();
         over(at, size, MAP_PRIVATE, fd);
         return close(fd) == 0;
     }},
    {"shmat over it",
     [](char* at) {
         const int id = shmget(IPC_PRIVATE, size, 0600);
         const bool there = shmat(id, at, SHM_REMAP) == at;
         shmctl(id, IPC_RMID, nullptr);
         return there;
     }},
};

/// May this process open memory by its mapping?
bool opens_mappings()
{
    char path[80];
    void* const pages = mmap(nullptr, page, read_write, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const auto at = reinterpret_cast<unsigned long>(pages);
    std::snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", at, at + page);
    const int fd = open(path, O_PATH | O_CLOEXEC);
    munmap(pages, page);
    return fd >= 0 && close(fd) == 0;
}

/// `size` bytes of some kind of memory that stays the same, and the file that it is of.
struct Memory {
    char* at = nullptr;
    int fd = -1;
    std::string path;
};
void give_back(const Memory& memory)
{
    munmap(memory.at, size);
    close(memory.fd);
    if (!memory.path.empty())
        unlink(memory.path.c_str());
}
struct Kind {
    const char* name;
    bool by_mapping; ///< there is no other way to its file
    std::function<Memory()> make;
};
char* shared(int fd, std::size_t length = size, char* at = nullptr)
{
    return static_cast<char*>(mmap(at, length, read_write, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0));
}
const Kind kinds[] = {
    {"memfd", false,
     [] {
         const int fd = memory_file();
         return Memory{shared(fd), fd, {}};
     }},
    {"memfd, closed", true,
     [] {
         const int fd = memory_file();
         char* const at = shared(fd);
         close(fd);
         return Memory{at, -1, {}};
     }},
    {"a file of /dev/shm, closed", false,
     [] {
         const std::string path = "/dev/shm/cache_test." + std::to_string(getpid());
         const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
         EXPECT_EQ(ftruncate(fd, off_t(size)), 0);
         char* const at = shared(fd);
         close(fd);
         return Memory{at, -1, path};
     }},
    {"shared anonymous", true,
     [] {
         void* const at = mmap(nullptr, size, read_write, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
         return Memory{static_cast<char*>(at), -1, {}};
     }},
    {"System V", true,
     [] {
         const int id = shmget(IPC_PRIVATE, size, 0600);
         const Memory made{static_cast<char*>(shmat(id, nullptr, 0)), -1, {}};
         shmctl(id, IPC_RMID, nullptr);
         return made;
     }},
    {"half a memfd, half private", false,
     [] {
         const int fd = memory_file();
         char* const at = fresh();
         shared(fd, size / 2, at);
         return Memory{at, fd, {}};
     }},
};

/// How the pages of a file are replaced under a mapping that stays.
struct FileWay {
    const char* name;
    bool by_descriptor;
    std::function<bool(const Memory&)> replace;
};
bool punch(int fd, off_t at, off_t length)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length) == 0;
}
bool cut(int fd)
{
    return ftruncate(fd, 0) == 0 && ftruncate(fd, off_t(size)) == 0;
}
/// By another process that has the file.
template <class F>
bool in_child(F&& f)
{
    const pid_t child = fork();
    if (child == 0)
        _exit(f() ? 0 : 1);
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}
const FileWay file_ways[] = {
    {"MADV_REMOVE", false, [](const Memory& m) { return madvise(m.at, size / 2, MADV_REMOVE) == 0; }},
    {"MADV_REMOVE of one page", false,
     [](const Memory& m) { return madvise(m.at + 3 * page, page, MADV_REMOVE) == 0; }},
    {"MADV_REMOVE by another process", false,
     [](const Memory& m) { return in_child([&] { return madvise(m.at + 5 * page, page, MADV_REMOVE) == 0; }); }},
    {"a hole", true, [](const Memory& m) { return punch(m.fd, 0, off_t(size)); }},
    {"a hole of one page", true, [](const Memory& m) { return punch(m.fd, off_t(7 * page), off_t(page)); }},
    {"a hole by another process", true,
     [](const Memory& m) { return in_child([&] { return punch(m.fd, 0, off_t(page)); }); }},
    {"ftruncate", true, [](const Memory& m) { return cut(m.fd); }},
    {"ftruncate by another process", true, [](const Memory& m) { return in_child([&] { return cut(m.fd); }); }},
};

TEST_F(RegistrationCacheTest, KeepsSharedMemoryThatStaysTheSame)
{
    for (const Kind& kind : kinds) {
        SCOPED_TRACE(kind.name);
        const Memory memory = kind.make();
        std::memset(memory.at, 1, size);
        ASSERT_EQ(warm(memory.at, size), !kind.by_mapping || opens_mappings());
        const unsigned made = library.made;
        for (int i = 0; i < 100 && (!kind.by_mapping || opens_mappings()); i++) {
            std::memset(memory.at, i, size);
            EXPECT_TRUE(transfer(memory.at, size));
            EXPECT_TRUE(transfer(memory.at + 100, size / 2)) << "a part of it";
            EXPECT_EQ(library.made, made);
        }
        give_back(memory);
    }
}

TEST_F(RegistrationCacheTest, IsNeverStaleWhateverReplacesSharedMemory)
{
    const auto check = [&](const Kind& kind, const char* way, auto&& replace) {
        SCOPED_TRACE(std::string(kind.name) + ": " + way);
        for (int round = 0; round < 2; round++) {
            const Memory memory = kind.make();
            std::memset(memory.at, 1, size);
            ASSERT_TRUE(warm(memory.at, size)) << "round " << round;
            const bool replaced = replace(memory);
            std::memset(memory.at, 2, size);
            const bool hit = transfer(memory.at, size);
            EXPECT_FALSE(replaced && hit) << "handed out a registration of other pages";
            for (int i = 0; i < 20; i++)
                (void)transfer(memory.at, size); // looks at the frames
            give_back(memory);
        }
    };
    for (const Kind& kind : kinds) {
        if (kind.by_mapping && !opens_mappings())
            continue;
        for (const Way& way : ways)
            check(kind, way.name, [&](const Memory& memory) { return way.replace(memory.at) && !way.leaves_files; });
        for (const FileWay& way : file_ways) {
            const Memory probe = kind.make();
            if (!way.by_descriptor || probe.fd >= 0)
                check(kind, way.name, way.replace);
            give_back(probe);
        }
    }
}

/// The time of a change is that of a clock that stands still for milliseconds.
TEST_F(RegistrationCacheTest, SeesEachOfManyChangesInATick)
{
    const int fd = memory_file();
    char* const at = shared(fd);
    for (int round = 0; round < 4000; round++) {
        ASSERT_TRUE(punch(fd, 0, off_t(page)));
        std::memset(at, round, 2 * page);
        if (round % 100 == 0) {
            open({.count = 64});                                  // which has not been disappointed yet
            ASSERT_TRUE(warm(at, 2 * page)) << "round " << round; // behind the end of the tick
        }
        for (int i = 0; i < round % 100; i++)
            (void)transfer(at, 2 * page);
        ASSERT_TRUE(punch(fd, 0, off_t(page)));
        std::memset(at, round + 1, 2 * page);
        ASSERT_FALSE(transfer(at, 2 * page)) << "round " << round;
    }
    munmap(at, size);
    close(fd);
}

/// Of a change in the tick that still goes on another one might have the time. Newer kernels have finer times, with
/// which no test of the cache itself would show that.
TEST(MemoryFileTest, TellsNothingBeforeTheTickOfTheLastChangeIsOver)
{
    const int fd = memory_file();
    char* const at = shared(fd);
    const auto begin = reinterpret_cast<std::uint64_t>(at);
    tofu::MappedFile mapped;
    ASSERT_EQ(tofu::pages_of(begin, begin + size, nullptr, mapped), tofu::Pages::file);
    tofu::MemoryFile file;
    ASSERT_TRUE(file.open(mapped));
    tofu::ChangeTime since = 0;
    unsigned early = 0;
    for (int i = 0; i < 200; i++) {
        ASSERT_TRUE(punch(fd, 0, off_t(page)));
        early += file.begin(since); // the tick may end in between
    }
    EXPECT_LT(early, 100u);
    bool told = false;
    for (int i = 0; i < 1000 && !told; i++) { // a tick may come late
        rest();
        told = file.begin(since);
    }
    ASSERT_TRUE(told);
    EXPECT_TRUE(file.unchanged(since));
    ASSERT_TRUE(punch(fd, 0, off_t(page)));
    EXPECT_FALSE(file.unchanged(since));
    file.close();
    munmap(at, size);
    close(fd);
}

/// A program may close descriptors that it does not know, and have others at their numbers.
TEST_F(RegistrationCacheTest, NoticesThatItsDescriptorIsAnother)
{
    const int fd = memory_file();
    char* const at = shared(fd);
    std::memset(at, 1, size);
    ASSERT_TRUE(warm(at, size));
    struct stat ours {
    }, one{};
    ASSERT_EQ(fstat(fd, &ours), 0);
    int kept = 3;
    while (kept < 1000 &&
           (kept == fd || fstat(kept, &one) != 0 || one.st_ino != ours.st_ino || one.st_dev != ours.st_dev))
        kept++;
    ASSERT_LT(kept, 1000);
    const int other = memory_file();
    ASSERT_EQ(dup2(other, kept), kept);
    EXPECT_FALSE(transfer(at, size));
    EXPECT_TRUE(warm(at, size)) << "by a descriptor anew";
    cache_.reset();
    EXPECT_EQ(fstat(kept, &one), 0) << "the program's was closed";
    close(kept);
    close(other);
    munmap(at, size);
    close(fd);
}

/// A file that the program has given up takes memory no longer than until the next registration is kept.
TEST_F(RegistrationCacheTest, LetsGoOfFilesThatAreMappedNoMore)
{
    const int fd = memory_file();
    struct stat file {};
    ASSERT_EQ(fstat(fd, &file), 0);
    char* const at = shared(fd);
    std::memset(at, 1, size);
    ASSERT_TRUE(warm(at, size));
    munmap(at, size);
    close(fd);
    char* const other = fresh();
    ASSERT_TRUE(warm(other, size));
    for (int i = 3; i < 1000; i++) {
        struct stat one {};
        EXPECT_FALSE(fstat(i, &one) == 0 && one.st_ino == file.st_ino && one.st_dev == file.st_dev) << i;
    }
    munmap(other, size);
}

TEST_F(RegistrationCacheTest, KeepsMemoryOfNoMoreFilesThanItWatches)
{
    std::vector<Memory> many;
    open({.count = 256});
    for (unsigned i = 0; i < MemoryHooks::file_count + 2; i++) {
        const int fd = memory_file();
        many.push_back({shared(fd), fd, {}});
        EXPECT_EQ(warm(many.back().at, page), i < MemoryHooks::file_count) << i;
    }
    EXPECT_TRUE(transfer(many[0].at, page));
    munmap(many[0].at, size);
    EXPECT_TRUE(warm(many.back().at, page)) << "there is room";
    for (const Memory& memory : many)
        give_back(memory);
}

TEST_F(RegistrationCacheTest, IsNeverStaleWhateverReplacesTheMemory)
{
    for (const Way& way : ways) {
        SCOPED_TRACE(way.name);
        for (int round = 0; round < 3; round++) {
            char* buffer = fresh();
            ASSERT_TRUE(warm(buffer, size)) << "round " << round;
            const bool replaced = way.replace(buffer);
            std::memset(buffer, 2, size);
            const bool hit = transfer(buffer, size);
            EXPECT_FALSE(replaced && hit) << "handed out a registration of other pages";
            for (int i = 0; i < 20; i++)
                (void)transfer(buffer, size); // looks at the frames
            munmap(buffer, size);
        }
    }
}

/// A transfer from a part of a kept registration holds all of its pages, also those that the program replaces
/// meanwhile. A registration of these would share the STADD of the old ones.
TEST_F(RegistrationCacheTest, IsNeverStaleBesideATransferFromAnotherPart)
{
    constexpr bool read_only = true;
    const std::size_t half = size / 2;
    for (const bool advice : {false, true}) {
        SCOPED_TRACE(advice ? "madvise" : "mmap over it");
        tofu::LocalMemory memory(vcq_);
        tofu::LocalRef first, second;
        char* const below = fresh(3 * size);
        char* const buffer = below + size;
        char* const other = buffer + half;
        for (int i = 0; i < 10; i++) {
            ASSERT_EQ(memory.acquire(buffer, size, read_only, first), 0);
            memory.release(first);
        }
        ASSERT_EQ(library.regions.size(), 1u) << "not kept";
        ASSERT_EQ(memory.acquire(buffer, half, read_only, first), 0);
        ASSERT_TRUE(advice ? madvise(other, half, MADV_DONTNEED) == 0 : over(other, half) == other);
        std::memset(other, 2, half);
        int ret = memory.acquire(other, half, read_only, second);
        EXPECT_TRUE(ret == 0 || ret == -FI_EAGAIN);
        for (char* const neighbour : {below, buffer + size}) {
            tofu::LocalRef third;
            ASSERT_EQ(memory.acquire(neighbour, size, read_only, third), 0) << "shares no page with it";
            memory.release(third);
        }
        memory.release(first);
        if (ret != 0)
            ret = memory.acquire(other, half, read_only, second);
        ASSERT_EQ(ret, 0);
        expect_current(second.stadd, other, half);
        memory.release(second);
        munmap(below, 3 * size);
    }
}

/// libucm 1.13 loses the address; pages may not go anywhere else then.
TEST_F(RegistrationCacheTest, LetsPagesMoveToAFixedAddressOrNotAtAll)
{
    char* const from = fresh();
    char* const to = fresh();
    std::memset(to, 2, size);
    void* const there = mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    if (there == MAP_FAILED) {
        EXPECT_EQ(errno, EINVAL);
        EXPECT_EQ(std::count(to, to + size, 2), std::ptrdiff_t(size));
        EXPECT_EQ(std::count(from, from + size, 1), std::ptrdiff_t(size));
        munmap(from, size);
    } else {
        ASSERT_EQ(there, to);
        EXPECT_EQ(std::count(to, to + size, 1), std::ptrdiff_t(size));
    }
    munmap(to, size);
}

TEST_F(RegistrationCacheTest, SeesTheHeapShrinkAndGrow)
{
    auto* begin = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(sbrk(0)) + page - 1) & ~(page - 1));
    ASSERT_EQ(brk(begin + size), 0);
    std::memset(begin, 1, size);
    ASSERT_TRUE(warm(begin, size));
    ASSERT_EQ(brk(begin + 10 * page), 0);
    ASSERT_EQ(brk(begin + size), 0);
    std::memset(begin, 2, size);
    EXPECT_FALSE(transfer(begin, size));
    EXPECT_EQ(cache_->counts().stale, 1u);
    ASSERT_EQ(brk(begin), 0);
}

TEST_F(RegistrationCacheTest, KeepsNothingThatMayChangeUnseen)
{
    const int disk = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    auto* const file = static_cast<char*>(mmap(nullptr, page, PROT_READ, MAP_SHARED, disk, 0));
    EXPECT_FALSE(warm(file, page)) << "on a disk";
    munmap(file, page);
    close(disk);
    const int fd = memory_file();
    char* const half = fresh();
    over(half + size / 2, size / 2, MAP_PRIVATE, fd);
    std::memset(half, 1, size);
    EXPECT_FALSE(warm(half, size)) << "a private view, of which a page may be the file's or not";
    const int another = memory_file();
    shared(fd, size / 2, half);
    shared(another, size / 2, half + size / 2);
    EXPECT_FALSE(warm(half, size)) << "two files";
    munmap(half, size);
    close(another);
    close(fd);
}

TEST_F(RegistrationCacheTest, ForgetsTheOldestAndTellsNeighboursApart)
{
    std::vector<char*> buffers;
    for (int i = 0; i < 100; i++)
        buffers.push_back(fresh(16 * page));
    for (char* buffer : buffers)
        EXPECT_TRUE(warm(buffer, 16 * page));
    EXPECT_LE(library.regions.size(), 64u);
    EXPECT_TRUE(transfer(buffers.back(), 16 * page));
    // Two watched ranges in one mapping: one goes, the other stays good or is found out.
    char* both = fresh();
    ASSERT_TRUE(warm(both, size / 2));
    ASSERT_TRUE(warm(both + size / 2, size / 2));
    over(both + size - page, page);
    std::memset(both + size - page, 1, page);
    EXPECT_TRUE(warm(both, size / 2));
    EXPECT_FALSE(transfer(both + size / 2, size / 2));
    EXPECT_TRUE(cache_->trim());
    EXPECT_TRUE(library.regions.empty());
    for (char* buffer : buffers)
        munmap(buffer, 16 * page);
    munmap(both, size);
}

TEST_F(RegistrationCacheTest, KeepsNoMoreThanItsLimits)
{
    const auto kept_bytes = [] {
        std::size_t bytes = 0;
        for (const auto& [stadd, region] : library.regions)
            bytes += region.length;
        return bytes;
    };
    std::vector<char*> buffers;
    for (int i = 0; i < 10; i++)
        buffers.push_back(fresh());
    for (const std::size_t count : {1u, 2u, 9u, 10u, 11u}) {
        open({.count = count});
        for (char* buffer : buffers)
            EXPECT_TRUE(warm(buffer, size)) << count;
        EXPECT_EQ(library.regions.size(), std::min<std::size_t>(count, 10));
    }
    for (const std::size_t bytes : {size - 1, size, size + 1, 3 * size, 10 * size}) {
        open({.count = 64, .bytes = bytes});
        for (char* buffer : buffers)
            EXPECT_EQ(warm(buffer, size), bytes >= size) << bytes;
        EXPECT_LE(kept_bytes(), bytes);
        EXPECT_EQ(library.regions.size(), bytes / size);
    }
    for (char* buffer : buffers)
        munmap(buffer, size);
}

TEST_F(RegistrationCacheTest, IsThereWhenTheEnvironmentWantsIt)
{
    fi_param* defined = nullptr; // libfabric defines its own when it is asked for the first time
    int count = 0;
    ASSERT_EQ(fi_getparams(&defined, &count), 0);
    fi_freeparams(defined);
    tofu::define_params();
    setenv("FI_TOFU_MR_CACHE", "on", 1);
    const auto made = [&](const char* name, const char* value) {
        setenv(name, value, 1);
        const bool there = RegistrationCache::make(vcq_) != nullptr;
        unsetenv(name);
        return there;
    };
    EXPECT_TRUE(made("FI_MR_CACHE_MONITOR", "memhooks"));
    EXPECT_FALSE(made("FI_MR_CACHE_MONITOR", "disabled"));
    EXPECT_FALSE(made("FI_MR_CACHE_MONITOR", "userfaultfd")) << "not supported";
    EXPECT_TRUE(made("FI_MR_CACHE_MAX_COUNT", "1"));
    EXPECT_TRUE(made("FI_MR_CACHE_MAX_COUNT", "1000000"));
    EXPECT_FALSE(made("FI_MR_CACHE_MAX_COUNT", "0"));
    EXPECT_FALSE(made("FI_MR_CACHE_MAX_SIZE", "0"));
    EXPECT_FALSE(made("FI_TOFU_MR_CACHE", "off"));
    unsetenv("FI_TOFU_MR_CACHE");
}

/// libucm's patches replace those of Open MPI, whose cache of registrations would be stale for ever.
TEST_F(RegistrationCacheTest, PassesOnToOpenMpiWhatItsHooksDoNotSeeAnyMore)
{
    reported.reserve(64);
    for (const Way& way : ways) {
        SCOPED_TRACE(way.name);
        char* const buffer = fresh();
        const auto begin = reinterpret_cast<std::uintptr_t>(buffer);
        reported.clear();
        const bool replaced = way.replace(buffer);
        EXPECT_TRUE(!replaced || std::any_of(reported.begin(), reported.end(), [&](const auto& range) {
            return range.first < begin + size && range.second > begin;
        }));
        munmap(buffer, size);
    }
    char* const buffer = fresh();
    reported.clear();
    (void)madvise(buffer, size, MADV_WILLNEED);
    EXPECT_TRUE(reported.empty());
    munmap(buffer, size);
    decltype(reported)().swap(reported);
}

/// libucs would print backtraces for a program that crashes, and keep it alive when its terminal goes.
TEST_F(RegistrationCacheTest, LeavesTheSignalsToTheProgram)
{
    EXPECT_EQ(dispositions(), dispositions_before);
}

/// One thread takes memory away, another gets the same addresses at once and sends from them.
TEST_F(RegistrationCacheTest, HoldsWhenThreadsTakeMemoryFromEachOther)
{
    char* place = fresh();
    if (frames(reinterpret_cast<std::uintptr_t>(place), page)[0] == 0)
        GTEST_SKIP() << "page frames are not visible without privilege";
    constexpr unsigned rounds = 300;
    std::atomic<unsigned> given{1}, taken{0};
    std::thread thief([&] {
        for (unsigned round = 1; round <= rounds; round++) {
            while (given < round) {
            }
            munmap(place, size);
            taken = round;
        }
    });
    for (unsigned round = 1; round < rounds; round++) {
        // The address is free as soon as the kernel says so, which is before the other thread returns.
        while (mmap(place, size, read_write, anonymous | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0) != place) {
        }
        for (int i = 0; i < 1000 && !transfer(place, size); i++) { // until it is kept
        }
        while (taken < round) {
        }
        given = round + 1;
    }
    thief.join();
    EXPECT_GT(cache_->counts().kept, 0u);
    EXPECT_GT(cache_->counts().stale, 0u);
}

/// An endpoint that closes with operations still in its queues leaves a VCQ that may be others' as it found it.
TEST(LocalMemoryTest, ItsEndLeavesNothingRegistered)
{
    library = Library{};
    const tofu::vcq::Backend backend(functions(), utofu_onesided_caps{}, 1);
    tofu::vcq::Vcq vcq;
    ASSERT_EQ(vcq.open(backend, 0, false, {}), 0);
    char buffer[4][page];
    {
        tofu::LocalMemory memory(vcq);
        tofu::LocalRef refs[4];
        for (int i = 0; i < 4; i++)
            ASSERT_EQ(memory.acquire(buffer[i], page, false, refs[i]), 0);
        EXPECT_EQ(library.regions.size(), 4u);
        memory.release(refs[1]);
        memory.release(refs[2]);
        ASSERT_EQ(memory.acquire(buffer[1], page, false, refs[1]), 0);
        EXPECT_EQ(library.regions.size(), 3u);
    }
    EXPECT_TRUE(library.regions.empty());
    EXPECT_EQ(library.refused, 0u) << "given back twice";
}

} // namespace
