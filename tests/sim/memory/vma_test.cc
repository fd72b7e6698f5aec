// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is mapped where: the kernel's answers and the text of /proc/self/maps agree.
#include "memory/vma.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace tofu::sim {
namespace {

const auto one_page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));

TEST(MemoryVma, TextAndQueryAgreeOnEveryMapping)
{
    VmaQuery query;
    VmaQuery text;
    text.force_text(true);
    int mappings = 0;
    int changes = 0;
    Vma a;
    for (uint64_t at = 0; query.find(at, &a); at = a.end) {
        Vma b;
        Vma again;
        ASSERT_TRUE(text.find(at, &b));
        // Reading text allocates, and a sanitizer's allocator maps memory for that.
        if (!query.find(at, &again) || again.start != a.start || again.end != a.end) {
            ASSERT_LT(++changes, 100);
            a.end = at; // once more
            continue;
        }
        EXPECT_EQ(a.start, b.start);
        EXPECT_EQ(a.end, b.end);
        EXPECT_EQ(a.inode, b.inode);
        EXPECT_EQ(a.device_major, b.device_major);
        EXPECT_EQ(a.device_minor, b.device_minor);
        EXPECT_EQ(a.shared, b.shared);
        EXPECT_EQ(a.readable, b.readable);
        EXPECT_EQ(a.writable, b.writable);
        EXPECT_EQ(a.executable, b.executable);
        if (a.inode != 0)
            EXPECT_EQ(a.file_offset, b.file_offset);
        EXPECT_EQ(query.name(a.start), text.name(b.start));
        ++mappings;
    }
    EXPECT_GT(mappings, 5);
}

TEST(MemoryVma, AllAreTheSameByTextAndByQuery)
{
    VmaQuery query;
    VmaQuery text;
    text.force_text(true);
    std::vector<Vma> a;
    std::vector<Vma> b;
    a.reserve(10000);
    b.reserve(10000);
    query.all(&a);
    text.all(&b); // the last ones may be the kernel's, which have no answer
    ASSERT_GT(a.size(), 5u);
    size_t same = 0;
    for (const Vma& one : a)
        for (const Vma& other : b)
            same += one.start == other.start && one.end == other.end && one.inode == other.inode;
    EXPECT_GE(same + 3, a.size()); // reading text allocates
}

TEST(MemoryVma, DescribesASharedFile)
{
    const int fd = ::memfd_create("vma-test", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, 8 * one_page), 0);
    struct stat status;
    ASSERT_EQ(::fstat(fd, &status), 0);
    void* base = ::mmap(nullptr, 4 * one_page, PROT_READ, MAP_SHARED, fd, 2 * one_page);
    ASSERT_NE(base, MAP_FAILED);
    for (const bool closed : {false, true}) { // by a program that closes whatever it finds
        const int next = ::dup(fd);
        ::close(next);
        VmaQuery vmas;
        if (closed)
            ASSERT_EQ(::close(next), 0);
        Vma vma;
        ASSERT_TRUE(vmas.find(reinterpret_cast<uint64_t>(base) + one_page, &vma));
        EXPECT_EQ(vma.start, reinterpret_cast<uint64_t>(base));
        EXPECT_EQ(vma.file_offset, 2 * one_page);
        EXPECT_EQ(vma.inode, status.st_ino);
        EXPECT_EQ(makedev(vma.device_major, vma.device_minor), status.st_dev);
        EXPECT_TRUE(vma.shared && vma.readable);
        EXPECT_FALSE(vma.writable || vma.anonymous());
        EXPECT_NE(vmas.name(vma.start).find("memfd:vma-test"), std::string::npos);
    }
    ::munmap(base, 4 * one_page);
    ::close(fd);
}

} // namespace
} // namespace tofu::sim
