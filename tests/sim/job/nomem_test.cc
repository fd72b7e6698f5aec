// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Without memory: each allocation of the library fails once, alone and with all that follow until a call has been
// refused. No call ends the program, each answers that there is no memory (or that it is to be repeated), and repeated
// it works.
#include "lib/harness.h"
#include "lib/starving.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace tofu::sim::test {
namespace {

namespace starving = tofu::test::starving;

constexpr size_t bytes = size_t{1} << 20;

// Until the call is neither refused for want of memory nor to be repeated; what it answers then.
template <typename Call>
int must(const char* what, Call&& call)
{
    int rc = UTOFU_ERR_BUSY;
    unsigned tries = 0;
    EXPECT_TRUE(wait_until([&] {
        rc = call();
        const bool refused = rc == UTOFU_ERR_OUT_OF_MEMORY || rc == UTOFU_ERR_OUT_OF_RESOURCE;
        if (refused || (rc == UTOFU_ERR_BUSY && ++tries > 64))
            starving::heal();
        return !refused && rc != UTOFU_ERR_BUSY;
    })) << what;
    EXPECT_EQ(rc, UTOFU_SUCCESS) << what;
    return rc;
}

std::byte* map_private()
{
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<std::byte*>(memory);
}

std::byte* map_sealed()
{
    const int file = ::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(file, bytes), 0);
    EXPECT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<std::byte*>(memory);
}

// Words of the board: the peer's VCQ and memory, and what it is asked to add to.
enum Word : unsigned { peer_id, peer_stadd, own_id, asked, asked_stadd, answered };

// Of rank 0.
struct Node {
    explicit Node(const Rank& r) : rank(r)
    {
        must("create", [&] { return utofu_create_vcq(0, UTOFU_VCQ_FLAG_THREAD_SAFE, &vcq); });
        EXPECT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
        rank.set(own_id, id);
    }
    utofu_stadd_t add(const void* address, size_t size, unsigned long flags = 0) const
    {
        utofu_stadd_t stadd = 0;
        must("reg", [&] { return utofu_reg_mem(vcq, const_cast<void*>(address), size, flags, &stadd); });
        return stadd;
    }
    void remove(utofu_stadd_t stadd) const { EXPECT_EQ(utofu_dereg_mem(vcq, stadd, 0), UTOFU_SUCCESS); }
    template <typename Post>
    void finish(const char* what, Post&& post) const
    {
        if (must(what, post) == UTOFU_SUCCESS) {
            utofu_mrq_notice notice{};
            void* cbdata = nullptr;
            (void)utofu_poll_tcq(vcq, 0, &cbdata);
            EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS) << what;
        }
    }
    // Own memory to the peer's, and back behind itself.
    void there_and_back(std::byte* memory, utofu_stadd_t stadd, uint64_t value) const
    {
        constexpr unsigned long notice = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER;
        std::memcpy(memory, &value, sizeof value);
        std::memset(memory + bytes / 2, 0, sizeof value);
        finish("put", [&] {
            return utofu_put(vcq, rank.get(peer_id), stadd, rank.get(peer_stadd), bytes / 2, 0, notice, nullptr);
        });
        finish("get", [&] {
            return utofu_get(vcq, rank.get(peer_id), stadd + bytes / 2, rank.get(peer_stadd), bytes / 2, 0, notice,
                             nullptr);
        });
        EXPECT_EQ(std::memcmp(memory, memory + bytes / 2, sizeof value), 0);
        finish("armw", [&] {
            return utofu_armw8(vcq, rank.get(peer_id), UTOFU_ARMW_OP_ADD, 1, rank.get(peer_stadd), 0, notice, nullptr);
        });
    }
    // Has the peer add 1 to the word.
    void be_reached(const std::byte* memory, utofu_stadd_t stadd) const
    {
        uint64_t before = 0;
        std::memcpy(&before, memory, sizeof before);
        rank.set(asked_stadd, stadd);
        rank.set(asked, rank.get(asked) + 1);
        EXPECT_TRUE(wait_until([&] { return rank.get(answered) == rank.get(asked); }));
        uint64_t after = 0;
        std::memcpy(&after, memory, sizeof after);
        EXPECT_EQ(after, before + 1);
    }
    const Rank& rank;
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
};

void live(const Rank& rank)
{
    std::byte* const memory = map_private();
    std::byte* const sealed = map_sealed();
    for (uint64_t round = 1; round <= 2; round++) {
        const Node node(rank);
        const utofu_stadd_t whole = node.add(memory, bytes);
        const utofu_stadd_t again = node.add(memory, bytes);
        const utofu_stadd_t part = node.add(memory + 8192, 100); // shares the STag
        const utofu_stadd_t read_only = node.add(memory, bytes, UTOFU_REG_MEM_FLAG_READ_ONLY);
        const utofu_stadd_t shared = node.add(sealed, bytes);
        utofu_stadd_t reserved = 0;
        must("reg with STag", [&] { return utofu_reg_mem_with_stag(node.vcq, memory, bytes, 7, 0, &reserved); });
        node.there_and_back(memory, whole, round * 11);
        node.there_and_back(sealed, shared, round * 12);
        node.be_reached(memory + 8192, part); // moves, if the system lets it
        node.be_reached(memory + bytes - 65536, whole + bytes - 65536);
        node.be_reached(sealed + 4096, shared + 4096);
        for (const utofu_stadd_t stadd : {again, part, whole, read_only, shared, reserved})
            node.remove(stadd);
        utofu_vcq_hdl_t other = 0;
        must("create", [&] { return utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &other); });
        utofu_vbg_id_t gates[2];
        must("gates", [&] { return utofu_alloc_vbg(0, 2, 0, gates); });
        EXPECT_EQ(utofu_free_vbg(gates, 2), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vcq(other), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_free_vcq(node.vcq), UTOFU_SUCCESS);
    }
}

void serve(const Rank& rank)
{
    static uint64_t words[bytes / 16];
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
    ASSERT_EQ(utofu_create_vcq(0, 0, &vcq), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_query_vcq_id(vcq, &id), UTOFU_SUCCESS);
    ASSERT_EQ(utofu_reg_mem(vcq, words, sizeof words, 0, &stadd), UTOFU_SUCCESS);
    rank.set(peer_id, id);
    rank.set(peer_stadd, stadd);
    rank.barrier();
    for (uint64_t turn = 1;; turn++) {
        ASSERT_TRUE(wait_until([&] { return rank.get(asked) >= turn; }));
        if (rank.get(asked) == UINT64_MAX)
            return;
        utofu_mrq_notice notice{};
        void* cbdata = nullptr;
        ASSERT_EQ(posted([&] {
                      return utofu_armw8(vcq, rank.get(own_id), UTOFU_ARMW_OP_ADD, 1, rank.get(asked_stadd), 0,
                                         UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr);
                  }),
                  UTOFU_SUCCESS);
        EXPECT_EQ(wait_mrq(vcq, &notice), UTOFU_SUCCESS);
        (void)utofu_poll_tcq(vcq, 0, &cbdata);
        rank.set(answered, turn);
    }
}

// Allocations of a life in which number `number` has failed; `lasting`: and all behind it, until a call is refused.
long live_without(long number, bool lasting)
{
    auto* const all =
        static_cast<long*>(::mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const auto exits = run_processes(2, [&](const Rank& rank) {
        if (rank.number == 1) {
            serve(rank);
            return;
        }
        rank.barrier();
        ASSERT_TRUE(starving::find("libtofucom.so"));
        starving::begin(number, lasting);
        live(rank);
        *all = starving::end();
        rank.set(asked, UINT64_MAX);
    });
    for (const Exit& exit : exits) {
        EXPECT_TRUE(exit.success()) << "allocation " << number << (lasting ? " and all behind it\n" : "\n")
                                    << exit.errors;
    }
    const long count = *all;
    ::munmap(all, sizeof(long));
    return count;
}

class SimNoMemory : public ::testing::TestWithParam<bool> {};

TEST_P(SimNoMemory, EachCallThatIsRefusedWorksLater)
{
    ::setenv("UTOFU_SWAP_PROTECT", "1", 1); // notes of what is locked need memory, too
    const long all = live_without(starving::never, false);
    EXPECT_GT(all, 20);
    for (long number = 1; number <= all && !HasFailure(); number++)
        (void)live_without(number, GetParam());
    ::unsetenv("UTOFU_SWAP_PROTECT");
}

INSTANTIATE_TEST_SUITE_P(OneAndLasting, SimNoMemory, ::testing::Bool());

} // namespace
} // namespace tofu::sim::test
