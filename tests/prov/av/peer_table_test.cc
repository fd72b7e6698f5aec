// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sender of a message as an index of an address vector, also of one that others change meanwhile (processes, here
// vectors that share a file).
#include "av/peer_table.h"

#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using tofu::EndpointAddress;

class Vector : public tofu::Peers {
  public:
    explicit Vector(tofu::RefCounted& domain) : Peers(domain) {}
    using Peers::store;

    [[nodiscard]] fi_addr_t add(std::uint64_t target_vcq)
    {
        EndpointAddress address{};
        address.target_vcq = target_vcq;
        address.nonce = nonce_of(target_vcq);
        fi_addr_t number = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(insert(address, number), 0);
        changed();
        return number;
    }
    void drop(fi_addr_t number)
    {
        EXPECT_EQ(remove(&number, 1), 0);
        changed();
    }
    [[nodiscard]] fi_addr_t who(std::uint64_t target_vcq) { return lookup(target_vcq, nonce_of(target_vcq), 0); }
    /// Differs from peer to peer as random numbers do.
    static std::uint64_t nonce_of(std::uint64_t target_vcq) { return target_vcq * 0x9e3779b97f4a7c15; }
};

class SharedVectors : public testing::Test {
  protected:
    SharedVectors() : path_("/dev/shm/tofu-peers-" + std::to_string(getpid()))
    {
        EXPECT_EQ(one.store().share(path_.c_str(), false), 0);
        EXPECT_EQ(other.store().share(path_.c_str(), false), 0);
    }
    /// Another process, which is stopped in the middle of a change.
    pid_t stop_a_changer()
    {
        const pid_t child = fork();
        if (child == 0) {
            Vector own(domain);
            if (own.store().share(path_.c_str(), false) != 0)
                _exit(1);
            const tofu::PeerStore::Turn turn(own.store());
            (void)raise(SIGSTOP);
            _exit(0);
        }
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
        EXPECT_TRUE(WIFSTOPPED(status));
        return child;
    }
    static void end(pid_t child)
    {
        EXPECT_EQ(kill(child, SIGKILL), 0);
        EXPECT_EQ(waitpid(child, nullptr, 0), child);
    }
    tofu::RefCounted domain;
    Vector one{domain}, other{domain};
    std::string path_;
};

/// Against a model: an insertion takes the lowest place that was removed, else the next new one, and each peer is found
/// at its place. Holes stay open between the pairs of removal and insertion, as in a vector whose peers come and go.
TEST(Vectors, ReuseTheLowestRemovedPlace)
{
    for (const unsigned holes : {0u, 1u, 7u, 300u}) {
        tofu::RefCounted domain;
        Vector v(domain);
        constexpr std::size_t count = 5000;
        std::vector<std::uint64_t> target_vcqs(count);
        std::set<fi_addr_t> removed;
        std::uint64_t next = 1;
        std::mt19937_64 random(holes + 1);
        for (std::size_t i = 0; i < count; i++)
            ASSERT_EQ(v.add(target_vcqs[i] = next++), i);
        EXPECT_EQ(v.who(1), 0u); // makes the index
        const auto remove_one = [&] {
            const std::size_t at = random() % target_vcqs.size();
            if (!removed.insert(at).second)
                return;
            v.drop(at);
            EXPECT_EQ(v.who(target_vcqs[at]), FI_ADDR_NOTAVAIL);
        };
        while (removed.size() < holes)
            remove_one();
        for (int i = 0; i < 20000; i++) {
            if (random() % 2 == 0 && removed.size() < holes + 2) {
                remove_one();
                continue;
            }
            const fi_addr_t expected = removed.empty() ? target_vcqs.size() : *removed.begin();
            if (removed.empty())
                target_vcqs.push_back(0);
            else
                removed.erase(removed.begin());
            target_vcqs[expected] = next++;
            ASSERT_EQ(v.add(target_vcqs[expected]), expected);
            ASSERT_EQ(v.who(target_vcqs[expected]), expected);
        }
        for (std::size_t i = 0; i < target_vcqs.size(); i++)
            ASSERT_EQ(v.who(target_vcqs[i]), removed.contains(i) ? FI_ADDR_NOTAVAIL : i);
    }
}

/// A place that one process removed and another filled is not filled again.
TEST_F(SharedVectors, APlaceThatTheOtherHasFilledIsLeftAlone)
{
    for (std::uint64_t target_vcq = 1; target_vcq <= 8; target_vcq++)
        EXPECT_EQ(one.add(target_vcq), target_vcq - 1);
    one.drop(5);
    one.drop(2);
    EXPECT_EQ(other.add(100), 2u);
    EXPECT_EQ(one.add(101), 5u);
    other.drop(2);
    EXPECT_EQ(one.add(102), 2u);
    EXPECT_EQ(one.add(103), 8u);
    EXPECT_EQ(other.who(100), FI_ADDR_NOTAVAIL);
    EXPECT_EQ(other.who(101), 5u);
    EXPECT_EQ(other.who(102), 2u);
}

/// Each change by one of them, each question to one of them: the answer is that of the list.
TEST_F(SharedVectors, FindAllMembers)
{
    std::mt19937 random(5);
    std::vector<std::uint64_t> target_vcqs; // by number; 0: free
    for (std::uint64_t step = 1; step <= 1500; step++) {
        Vector& vector = random() % 2 == 0 ? one : other;
        const std::size_t n = target_vcqs.empty() ? 0 : random() % target_vcqs.size();
        if (random() % 4 != 0 || target_vcqs.empty() || target_vcqs[n] == 0) {
            const fi_addr_t number = vector.add(step);
            ASSERT_LE(number, target_vcqs.size());
            target_vcqs.resize(std::max<std::size_t>(target_vcqs.size(), number + 1));
            ASSERT_EQ(target_vcqs[number], 0u);
            target_vcqs[number] = step;
        } else {
            vector.drop(n);
            target_vcqs[n] = 0;
        }
        Vector& asked = random() % 2 == 0 ? one : other;
        const std::size_t m = random() % target_vcqs.size();
        if (target_vcqs[m] != 0)
            ASSERT_EQ(asked.who(target_vcqs[m]), m) << step;
        ASSERT_EQ(asked.who(step + 1'000'000), FI_ADDR_NOTAVAIL);
    }
}

/// A receiver waits for no peer, and also finds peers that it did not know before.
TEST_F(SharedVectors, AreReadWhileTheirWriterIsStopped)
{
    const fi_addr_t before = other.add(1);
    EXPECT_EQ(one.who(1), before);
    const fi_addr_t behind = other.add(2);
    const pid_t child = stop_a_changer();
    EXPECT_EQ(one.who(1), before);
    EXPECT_EQ(one.who(2), behind);
    EXPECT_EQ(one.who(3), FI_ADDR_NOTAVAIL);
    end(child);
    EXPECT_EQ(one.who(3), FI_ADDR_NOTAVAIL);
    EXPECT_EQ(one.who(2), behind);
}

/// Nor for a thread that waits for that process.
TEST_F(SharedVectors, AreAskedWhileAThreadWaitsToChangeThem)
{
    // However slow this machine is, the thread does not give up before all answers have come.
    const auto before_this = std::exchange(tofu::PeerStore::patience, std::chrono::seconds(60));
    const fi_addr_t before = other.add(1);
    EXPECT_EQ(one.who(1), before);
    const pid_t child = stop_a_changer();
    int inserted = -1;
    std::thread changer([&] {
        EndpointAddress address{};
        address.target_vcq = 2;
        fi_addr_t number = 0;
        inserted = one.insert(address, number);
    });
    for (int i = 0; i < 100; i++) { // an answer that waits for the thread comes when that has given up
        EXPECT_EQ(one.who(1), before);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    end(child);
    changer.join();
    EXPECT_EQ(inserted, 0);
    tofu::PeerStore::patience = before_this;
}

/// FI_AV_USER_ID.
TEST(Peers, ANameLastsAsLongAsItsPlaceIsFilled)
{
    tofu::RefCounted domain;
    Vector v(domain);
    const fi_addr_t first = v.add(1), second = v.add(2);
    EXPECT_EQ(v.name(second, 4711), 0);
    EXPECT_EQ(v.who(1), first);
    EXPECT_EQ(v.who(2), 4711u);
    v.drop(second);
    EXPECT_EQ(v.who(2), FI_ADDR_NOTAVAIL);
    EXPECT_EQ(v.add(3), second);
    EXPECT_EQ(v.who(3), second);
}

/// For owners (fi_peer(3)), which compare indices.
TEST(Peers, APeerThatIsInsertedTwiceHasOneIndex)
{
    tofu::RefCounted domain;
    Vector v(domain);
    (void)v.add(1);
    EndpointAddress address{};
    address.target_vcq = 2;
    address.nonce = Vector::nonce_of(address.target_vcq);
    fi_addr_t at[3] = {};
    for (fi_addr_t& place : at) {
        ASSERT_EQ(v.insert_once(address, place), 0);
        v.changed();
        EXPECT_EQ(place, 1u);
    }
    EXPECT_EQ(v.remove(at, 2), 0);
    EXPECT_EQ(v.who(2), 1u);
    EXPECT_EQ(v.remove(at, 1), 0);
    EXPECT_EQ(v.who(2), FI_ADDR_NOTAVAIL);
    EXPECT_EQ(v.remove(at, 1), -FI_EINVAL);
}

/// They differ in their index alone.
TEST(Peers, EndpointsOfOneDomainAreToldApart)
{
    constexpr unsigned endpoints = 240;
    tofu::RefCounted domain;
    Vector v(domain);
    EndpointAddress address{};
    address.target_vcq = 3;
    address.nonce = Vector::nonce_of(address.target_vcq);
    for (unsigned i = 0; i < endpoints; i++) {
        fi_addr_t place = FI_ADDR_NOTAVAIL;
        address.index = static_cast<std::uint8_t>(i);
        ASSERT_EQ(v.insert(address, place), 0);
        EXPECT_EQ(place, i);
    }
    v.changed();
    for (unsigned i = 0; i < endpoints; i++)
        EXPECT_EQ(v.lookup(address.target_vcq, address.nonce, i), i);
}

TEST(Peers, WatchersAreToldOfEachChange)
{
    tofu::RefCounted domain;
    Vector v(domain);
    unsigned told[2] = {};
    tofu::Peers::Watcher watchers[2];
    for (unsigned i = 0; i < 2; i++) {
        watchers[i] = {[](void* count) noexcept { ++*static_cast<unsigned*>(count); }, &told[i]};
        v.watch(watchers[i]);
    }
    (void)v.add(1);
    v.unwatch(watchers[0]);
    v.drop(0);
    v.unwatch(watchers[1]);
    (void)v.add(2);
    EXPECT_EQ(told[0], 1u);
    EXPECT_EQ(told[1], 2u);
}

} // namespace
