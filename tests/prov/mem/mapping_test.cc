// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which memory is private and of no file, and which is of one shared file, as new kernels answer and as old ones have
// to be read. The ioctl(2) of the provider is the one here.
// Run by make check.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mem/mem_hooks.h"

namespace {
bool kernel_is_old = false;
}

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept
{
    va_list list;
    va_start(list, request);
    void* const argument = va_arg(list, void*);
    va_end(list);
    if (kernel_is_old) {
        errno = ENOTTY;
        return -1;
    }
    return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

namespace {

using tofu::Pages;

const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
constexpr int read_write = PROT_READ | PROT_WRITE;

/// Pages from `first` to before `limit` of ten, of which [4, 6) are what a test has put there.
class Mappings : public testing::TestWithParam<bool> {
  protected:
    Mappings() { kernel_is_old = GetParam(); }
    ~Mappings() override
    {
        munmap(base_, 10 * page);
        kernel_is_old = false;
    }
    void put(int flags, int fd = -1)
    {
        ASSERT_NE(mmap(base_ + 4 * page, 2 * page, read_write, flags | MAP_FIXED, fd, 0), MAP_FAILED);
    }
    Pages pages(std::size_t first, std::size_t limit)
    {
        const auto base = reinterpret_cast<std::uint64_t>(base_);
        return tofu::pages_of(base + first * page, base + limit * page, nullptr, file_);
    }
    bool good(std::size_t first, std::size_t limit) { return pages(first, limit) == Pages::own; }
    void expect_inside(Pages expected)
    {
        EXPECT_TRUE(good(0, 4));
        EXPECT_TRUE(good(6, 10));
        for (const auto& [first, limit] : {std::pair{0, 10}, {3, 5}, {4, 5}, {5, 6}, {5, 7}})
            EXPECT_EQ(pages(first, limit), expected) << first << " to " << limit;
    }
    tofu::MappedFile file_;
    char* const base_ = static_cast<char*>(mmap(nullptr, 10 * page, read_write, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

TEST_P(Mappings, PrivateOnesOfNoFileAreGoodHoweverManyTheyAre)
{
    EXPECT_TRUE(good(0, 10));
    ASSERT_EQ(mprotect(base_ + 4 * page, 2 * page, PROT_READ), 0); // three of them now
    EXPECT_TRUE(good(0, 10));
    EXPECT_TRUE(good(3, 5));
}
TEST_P(Mappings, AHoleIsNot)
{
    munmap(base_ + 4 * page, 2 * page);
    expect_inside(Pages::unknown);
}
TEST_P(Mappings, SharedMemoryIsOfAFileWithoutAName)
{
    put(MAP_SHARED | MAP_ANONYMOUS);
    expect_inside(Pages::file);
    EXPECT_EQ(std::string(file_.name).rfind("/dev/zero", 0), 0u) << file_.name;
    EXPECT_EQ(file_.begin, reinterpret_cast<std::uint64_t>(base_ + 4 * page));
    EXPECT_EQ(file_.end, reinterpret_cast<std::uint64_t>(base_ + 6 * page));
}
TEST_P(Mappings, ASharedFileIsToldByItsNumber)
{
    const int memory = memfd_create("mapping_test", MFD_CLOEXEC);
    const int other = memfd_create("mapping_test", MFD_CLOEXEC);
    struct stat status {};
    ASSERT_EQ(fstat(memory, &status), 0);
    put(MAP_SHARED, memory);
    expect_inside(Pages::file);
    EXPECT_EQ(file_.device, status.st_dev);
    EXPECT_EQ(file_.inode, status.st_ino);
    EXPECT_EQ(std::string(file_.name).rfind("/memfd:mapping_test", 0), 0u) << file_.name;
    // Two places of it are one file, another is a second one.
    ASSERT_NE(mmap(base_ + 8 * page, page, read_write, MAP_SHARED | MAP_FIXED, memory, 0), MAP_FAILED);
    EXPECT_EQ(pages(0, 10), Pages::file);
    ASSERT_NE(mmap(base_ + 8 * page, page, read_write, MAP_SHARED | MAP_FIXED, other, 0), MAP_FAILED);
    EXPECT_EQ(pages(0, 8), Pages::file);
    EXPECT_EQ(pages(0, 10), Pages::unknown);
    close(memory);
    close(other);
}
TEST_P(Mappings, ALongNameIsNoneAndHidesNothingBehindIt)
{
    std::string path = "/dev/shm/mapping_test." + std::to_string(getpid()) + ".";
    path.resize(sizeof file_.name - 6, 'x');
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        GTEST_SKIP() << "no /dev/shm here";
    unlink(path.c_str());
    put(MAP_SHARED, fd);
    expect_inside(Pages::file);
    EXPECT_STREQ(file_.name, "");
    close(fd);
}
TEST_P(Mappings, WhatTheLibraryHasMovedIsPrivate)
{
    static char* moved;
    moved = base_ + 4 * page;
    const auto library = [](const void* at, std::size_t length) -> int { return at == moved && length <= page; };
    put(MAP_SHARED | MAP_ANONYMOUS);
    const auto base = reinterpret_cast<std::uint64_t>(base_);
    EXPECT_EQ(tofu::pages_of(base, base + 5 * page, library, file_), Pages::own);
    EXPECT_EQ(tofu::pages_of(base + 4 * page, base + 5 * page, library, file_), Pages::own);
    EXPECT_EQ(tofu::pages_of(base, base + 6 * page, library, file_), Pages::file) << "not all of it";
}
/// On a device without a number of its own (tmpfs, overlay, btrfs) as on others.
TEST_P(Mappings, APrivateViewOfAFileIsNot)
{
    const int memory = memfd_create("mapping_test", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(memory, static_cast<off_t>(2 * page)), 0);
    const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    for (const int fd : {memory, program}) {
        put(MAP_PRIVATE, fd);
        expect_inside(Pages::unknown);
    }
    close(memory);
    close(program);
}
/// The kernel's own file, which no other process has.
TEST_P(Mappings, HugePagesAreGood)
{
    constexpr std::size_t huge = 2 << 20;
    void* const pages =
        mmap(nullptr, huge, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        GTEST_SKIP() << "there are no huge pages here";
    const auto at = reinterpret_cast<std::uint64_t>(pages);
    EXPECT_EQ(tofu::pages_of(at, at + huge, nullptr, file_), Pages::own);
    munmap(pages, huge);
}
TEST_P(Mappings, NothingAtAllIsNot)
{
    EXPECT_EQ(tofu::pages_of(page, 2 * page, nullptr, file_), Pages::unknown) << "below all";
    EXPECT_EQ(tofu::pages_of(~std::uint64_t{0} - page, ~std::uint64_t{0}, nullptr, file_), Pages::unknown)
        << "above all";
}

INSTANTIATE_TEST_SUITE_P(Kernel, Mappings, testing::Bool(),
                         [](const auto& info) { return info.param ? "WithoutTheQuestion" : "AsItIs"; });

} // namespace
