// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where peers of an address vector lie, alone: chunks and their edges; a file that processes share, those that end
// without a word, files that are not ours.
#include "av/shared_table.h"

#include <chrono>
#include <csignal>
#include <map>
#include <new>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using tofu::Peer;
using tofu::PeerStore;

std::string path_of_test()
{
    return "/dev/shm/tofu-store-" + std::to_string(getpid());
}

bool is_there(const std::string& path)
{
    return access(path.c_str(), F_OK) == 0;
}

/// Fills the next place, as an address vector does.
bool add(PeerStore& store, std::uint64_t target_vcq)
{
    const PeerStore::Turn turn(store);
    if (!turn.is_taken() || !store.make_next())
        return false;
    const std::uint64_t number = store.head().size.fetch_add(1);
    *store.at(number) = Peer{target_vcq, ~target_vcq, 1, 0, false, ++store.head().uses};
    return true;
}

TEST(PeerStore, PlacesStayWhereTheyAre)
{
    PeerStore store;
    EXPECT_EQ(store.at(0), nullptr);
    std::vector<Peer*> seen;
    for (std::uint64_t n = 0; n < 8000; n++) { // 1,024 + 2,048 + 4,096 and some
        ASSERT_TRUE(add(store, n + 1));
        seen.push_back(store.at(n));
    }
    for (std::uint64_t n = 0; n < seen.size(); n++) {
        ASSERT_EQ(store.at(n), seen[n]);
        ASSERT_EQ(seen[n]->target_vcq, n + 1);
        ASSERT_TRUE(n == 0 || seen[n] != seen[n - 1]);
    }
    EXPECT_EQ(store.numbers(), nullptr);
}

TEST(PeerStore, WhatIsNoPlaceIsNone)
{
    PeerStore store;
    ASSERT_TRUE(add(store, 1));
    for (const std::uint64_t number :
         {std::uint64_t{1024}, std::uint64_t{PeerStore::most - 1}, std::uint64_t{PeerStore::most}, ~std::uint64_t{0},
          ~std::uint64_t{0} - 1023, ~std::uint64_t{0} - 1024})
        EXPECT_EQ(store.at(number), nullptr) << number;
}

TEST(PeerStore, HoldsTheWholeMachineAndNoMore)
{
    const std::string path = path_of_test();
    PeerStore store;
    ASSERT_EQ(store.share(path.c_str(), false), 0);
    EXPECT_GE(PeerStore::most, std::size_t{158'976} * 48);
    store.head().size = PeerStore::most - 1; // the file is empty in between
    EXPECT_NE(store.at(PeerStore::most - 1), nullptr);
    EXPECT_TRUE(add(store, 1));
    EXPECT_FALSE(add(store, 2));
}

TEST(PeerStore, IsSharedAndTheLastOneRemovesTheFile)
{
    const std::string path = path_of_test();
    {
        PeerStore reader;
        EXPECT_EQ(reader.share(path.c_str(), true), -FI_ENOENT) << "no process has it open";
        EXPECT_FALSE(is_there(path));
    }
    PeerStore reader;
    {
        PeerStore writer, other;
        ASSERT_EQ(writer.share(path.c_str(), false), 0);
        ASSERT_EQ(other.share(path.c_str(), false), 0);
        ASSERT_EQ(reader.share(path.c_str(), true), 0);
        EXPECT_TRUE(writer.can_change());
        EXPECT_FALSE(reader.can_change());
        for (std::uint64_t n = 0; n < 3000; n++)
            ASSERT_TRUE(add(n % 2 == 0 ? writer : other, n + 1));
    }
    EXPECT_TRUE(is_there(path)) << "one still reads";
    EXPECT_EQ(reader.head().size, 3000u);
    for (std::uint64_t n = 0; n < 3000; n++) {
        ASSERT_EQ(reader.at(n)->target_vcq, n + 1);
        ASSERT_EQ(reader.numbers()[n], n);
    }
    reader.~PeerStore();
    EXPECT_FALSE(is_there(path));
    new (&reader) PeerStore;
}

TEST(PeerStore, ManyProcessesFillIt)
{
    const std::string path = path_of_test();
    PeerStore store;
    ASSERT_EQ(store.share(path.c_str(), false), 0);
    constexpr int processes = 4;
    constexpr std::uint64_t each = 2000;
    pid_t children[processes];
    for (pid_t& child : children)
        if ((child = fork()) == 0) {
            PeerStore own;
            bool good = own.share(path.c_str(), false) == 0;
            for (std::uint64_t n = 0; n < each && good; n++)
                good = add(own, static_cast<std::uint64_t>(getpid()) << 32 | n);
            _exit(good ? 0 : 1);
        }
    for (const pid_t child : children) {
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    ASSERT_EQ(store.head().size, processes * each);
    std::map<std::uint64_t, std::uint64_t> next;
    for (std::uint64_t n = 0; n < processes * each; n++) {
        const std::uint64_t target_vcq = store.at(n)->target_vcq;
        EXPECT_EQ(target_vcq & 0xffffffff, next[target_vcq >> 32]++); // all of each one's, in its order
    }
}

TEST(PeerStore, AWriterThatEndsBlocksNoOther)
{
    const std::string path = path_of_test();
    PeerStore store;
    ASSERT_EQ(store.share(path.c_str(), false), 0);
    const pid_t child = fork();
    if (child == 0) {
        PeerStore own;
        if (own.share(path.c_str(), false) != 0)
            _exit(1);
        const PeerStore::Turn turn(own);
        _exit(turn.is_taken() && own.make_next() ? 0 : 1); // between memory and number
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_TRUE(add(store, 7));
    EXPECT_EQ(store.head().size, 1u);
    EXPECT_EQ(store.at(0)->target_vcq, 7u);
}

/// A process that has the turn, and is stopped until the guard goes.
class Stopped {
  public:
    template <class Begin>
    explicit Stopped(Begin&& begin) : child_(fork())
    {
        if (child_ == 0)
            begin([] {
                (void)raise(SIGSTOP);
                _exit(0);
            });
        int status = 0;
        EXPECT_EQ(waitpid(child_, &status, WUNTRACED), child_);
        EXPECT_TRUE(WIFSTOPPED(status));
    }
    Stopped(const Stopped&) = delete;
    ~Stopped()
    {
        (void)kill(child_, SIGKILL);
        EXPECT_EQ(waitpid(child_, nullptr, 0), child_);
    }

  private:
    pid_t child_;
};

class PeerStorePatience : public testing::Test {
  protected:
    PeerStorePatience() { PeerStore::patience = std::chrono::milliseconds(20); }
    ~PeerStorePatience() override { PeerStore::patience = before_; }

  private:
    std::chrono::milliseconds before_ = PeerStore::patience;
};

TEST_F(PeerStorePatience, TheWaitForAStoppedWriterIsBounded)
{
    const std::string path = path_of_test();
    PeerStore store;
    ASSERT_EQ(store.share(path.c_str(), false), 0);
    {
        const Stopped process([&](auto stop) {
            PeerStore own;
            if (own.share(path.c_str(), false) != 0)
                _exit(1);
            const PeerStore::Turn turn(own);
            stop();
        });
        EXPECT_FALSE(add(store, 7));
        PeerStore reader;
        EXPECT_EQ(reader.share(path.c_str(), true), 0) << "opening is no change";
    }
    EXPECT_TRUE(add(store, 7));
}

TEST_F(PeerStorePatience, TheWaitForAStoppedCreatorIsBounded)
{
    const std::string path = path_of_test();
    {
        const Stopped process([&](auto stop) {
            tofu::NodeFile file;
            if (!file.open(path.c_str()) || !file.lock(F_WRLCK, 1, 1)) // the byte of its users
                _exit(1);
            stop();
        });
        PeerStore store;
        EXPECT_EQ(store.share(path.c_str(), false), -FI_EBUSY);
    }
    PeerStore store;
    EXPECT_EQ(store.share(path.c_str(), false), 0);
}

TEST(PeerStore, WhatTheKilledHaveLeftIsForgotten)
{
    const std::string path = path_of_test();
    const pid_t child = fork();
    if (child == 0) {
        PeerStore own;
        _exit(own.share(path.c_str(), false) == 0 && add(own, 9) ? 0 : 1); // without its destructor
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    ASSERT_TRUE(is_there(path));
    PeerStore store;
    ASSERT_EQ(store.share(path.c_str(), false), 0);
    EXPECT_EQ(store.head().size, 0u);
    ASSERT_TRUE(add(store, 1));
    EXPECT_EQ(store.at(0)->target_vcq, 1u);
}

TEST(PeerStore, AFileOfAnotherKindIsLeftAlone)
{
    const std::string path = path_of_test();
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    {
        PeerStore store;
        EXPECT_EQ(store.share(path.c_str(), false), -FI_EACCES);
    }
    ASSERT_EQ(rmdir(path.c_str()), 0);
    ASSERT_EQ(symlink("/etc/hostname", path.c_str()), 0);
    {
        PeerStore store;
        EXPECT_EQ(store.share(path.c_str(), false), -FI_EACCES);
    }
    ASSERT_EQ(unlink(path.c_str()), 0);
}

TEST(PeerStore, AChildOfForkRemovesNothing)
{
    const std::string path = path_of_test();
    PeerStore store;
    ASSERT_EQ(store.share(path.c_str(), false), 0);
    const pid_t child = fork();
    if (child == 0) {
        store.~PeerStore();
        _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(is_there(path));
    EXPECT_TRUE(add(store, 1));
}

} // namespace
