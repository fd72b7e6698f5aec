// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which memory is private and of no file, as new kernels answer and as old ones have to be read.
// Run by make check; links local/mapping.cc, whose ioctl(2) is the one here.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "local/mapping.h"

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
    bool good(std::size_t first, std::size_t limit) const
    {
        const auto base = reinterpret_cast<std::uint64_t>(base_);
        return tofu::private_anonymous(base + first * page, base + limit * page);
    }
    void expect_only_around()
    {
        EXPECT_TRUE(good(0, 4));
        EXPECT_TRUE(good(6, 10));
        for (const auto& [first, limit] : {std::pair{0, 10}, {3, 5}, {4, 5}, {5, 6}, {5, 7}}) {
            EXPECT_FALSE(good(first, limit)) << first << " to " << limit;
        }
    }
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
    expect_only_around();
}
TEST_P(Mappings, SharedMemoryIsNot)
{
    put(MAP_SHARED | MAP_ANONYMOUS);
    expect_only_around();
}
/// On a device without a number of its own (tmpfs, overlay, btrfs) as on others: who has the file exchanges its pages.
TEST_P(Mappings, AFileIsNot)
{
    const int memory = memfd_create("mapping_test", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(memory, static_cast<off_t>(2 * page)), 0);
    const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    for (const auto& [fd, flags] : {std::pair{memory, MAP_SHARED}, {memory, MAP_PRIVATE}, {program, MAP_PRIVATE}}) {
        put(flags, fd);
        expect_only_around();
    }
    close(memory);
    close(program);
}
/// The kernel's own file, which nobody else has.
TEST_P(Mappings, HugePagesAreGood)
{
    constexpr std::size_t huge = 2 << 20;
    void* const pages = mmap(nullptr, huge, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        GTEST_SKIP() << "there are no huge pages here";
    const auto at = reinterpret_cast<std::uint64_t>(pages);
    EXPECT_TRUE(tofu::private_anonymous(at, at + huge));
    munmap(pages, huge);
}
TEST_P(Mappings, NothingAtAllIsNot)
{
    EXPECT_FALSE(tofu::private_anonymous(page, 2 * page)) << "below all";
    EXPECT_FALSE(tofu::private_anonymous(~std::uint64_t{0} - page, ~std::uint64_t{0})) << "above all";
}

INSTANTIATE_TEST_SUITE_P(Kernel, Mappings, testing::Bool(), [](const auto& info) {
    return info.param ? "WithoutTheQuestion" : "AsItIs";
});

} // namespace
