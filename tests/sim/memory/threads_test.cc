// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every kind of memory is reached by a peer while signals, forks, futexes and the end of threads have to do with it, by
// root and by an ordinary user.
#include "leader.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <linux/futex.h>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace tofu::sim::test {
namespace {

constexpr size_t largest_page = 65536; // on aarch64
constexpr size_t words_used = 8;       // by a peer, as a futex, and by a child

using Use = std::function<void(uint64_t*)>;

// Runs in a thread of its own: makes the memory, hands it to `use`, and takes it back.
struct Kind {
    const char* name;
    void (*with)(const Use& use);
};

void on_mapping(const Use& use, int flags, int fd, size_t bytes = 4 * page)
{
    void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    ASSERT_NE(base, MAP_FAILED);
    use(static_cast<uint64_t*>(base));
    ::munmap(base, bytes);
}

constexpr int huge_page_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
constexpr size_t huge_page = size_t{2} << 20;

/// One, and one for the copy of a child.
bool huge_pages_are_there()
{
    void* const base = ::mmap(nullptr, 2 * huge_page, PROT_READ | PROT_WRITE, huge_page_flags, -1, 0);
    return base != MAP_FAILED && ::munmap(base, 2 * huge_page) == 0;
}

void on_file(const Use& use, int flags)
{
    const int fd = ::memfd_create("threads", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(fd, 4 * page), 0);
    on_mapping(use, flags, fd);
    ::close(fd);
}

// The page of the peer's words is the page of the frames of signals.
void on_signal_stack(const Use& use)
{
    const size_t bytes = 16 * page;
    auto* const base =
        static_cast<char*>(::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    stack_t before = {};
    stack_t mine = {};
    mine.ss_sp = base;
    mine.ss_size = bytes + page / 2;
    EXPECT_EQ(::sigaltstack(&mine, &before), 0);
    use(reinterpret_cast<uint64_t*>(base + bytes + page - 8 * words_used));
    EXPECT_EQ(::sigaltstack(&before, nullptr), 0);
    ::munmap(base, 2 * bytes);
}

void on_coroutine(const Use& use)
{
    on_coroutine_stack([&] {
        alignas(256) uint64_t words[words_used] = {};
        use(words);
    });
}

alignas(256) thread_local uint64_t of_thread[words_used];
alignas(256) uint64_t* const of_first_thread = of_thread;
alignas(256) uint64_t shared_words[words_used] = {1};
alignas(largest_page) uint64_t shared_zeros[2 * largest_page / 8]; // its first page may belong to the file

constexpr Kind kinds[] = {
    {"Heap",
     [](const Use& use) {
         static_assert(8 * words_used <= 256);
         auto* const words = static_cast<uint64_t*>(std::aligned_alloc(256, 256));
         use(words);
         std::free(words);
     }},
    {"Stack",
     [](const Use& use) {
         alignas(256) uint64_t words[words_used] = {};
         use(words);
     }},
    {"ThreadLocal", [](const Use& use) { use(of_thread); }},
    {"ThreadLocalOfTheFirst", [](const Use& use) { use(of_first_thread); }},
    {"SignalStack", on_signal_stack},
    {"StackOfACoroutine", on_coroutine},
    {"Initialised", [](const Use& use) { use(shared_words); }},
    {"Zeroed", [](const Use& use) { use(shared_zeros + largest_page / 8); }},
    {"PrivateMapping", [](const Use& use) { on_mapping(use, MAP_PRIVATE | MAP_ANONYMOUS, -1); }},
    {"SharedMapping", [](const Use& use) { on_mapping(use, MAP_SHARED | MAP_ANONYMOUS, -1); }},
    {"HugePage", [](const Use& use) { on_mapping(use, huge_page_flags, -1, huge_page); }},
    {"PrivateFile", [](const Use& use) { on_file(use, MAP_PRIVATE); }},
    {"SharedFile", [](const Use& use) { on_file(use, MAP_SHARED); }},
};

std::atomic<uint64_t> signals_seen{0};

void take_signals()
{
    struct sigaction action = {};
    action.sa_handler = [](int) { signals_seen.fetch_add(1, std::memory_order_relaxed); };
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
}

// A thread that gets as many signals as fit into the time for which the object lives, and one at least.
class Storm {
  public:
    explicit Storm(pthread_t target)
        : sender_([this, target] {
              do
                  EXPECT_EQ(::pthread_kill(target, SIGUSR1), 0);
              while (!over_);
          })
    {
    }
    ~Storm()
    {
        over_ = true;
        sender_.join();
    }

  private:
    std::atomic<bool> over_{false};
    std::thread sender_;
};

long futex(uint64_t* word, int operation, uint32_t value, const timespec* limit = nullptr)
{
    return ::syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, limit, nullptr, 0);
}

void child_has_its_own(uint64_t* words, bool shared)
{
    const uint64_t before = words[0];
    const pid_t child = ::fork();
    if (child == 0) {
        const bool good = words[0] == before;
        words[1] = 77;
        ::_exit(good ? 0 : 1);
    }
    int status = -1;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    EXPECT_EQ(status, 0);
    EXPECT_EQ(words[1], shared ? 77u : 0u);
}

void once(Node& node, Leader& peer, const Kind& kind, bool forks)
{
    constexpr uint64_t adds = 2;
    std::atomic<uint64_t> stadd{0};
    std::atomic<bool> storm_is_over{false};
    std::thread owner([&] {
        kind.with([&](uint64_t* words) {
            std::memset(words, 0, 8 * words_used);
            std::thread sleeper([&] {
                const timespec limit{20, 0};
                while (__atomic_load_n(&words[2], __ATOMIC_ACQUIRE) == 0)
                    if (futex(&words[2], FUTEX_WAIT, 0, &limit) != 0 && errno == ETIMEDOUT) {
                        ADD_FAILURE() << "a sleeping thread was not woken";
                        return;
                    }
            });
            const utofu_stadd_t mine = node.add(words, 8 * words_used);
            stadd = mine;
            while (!storm_is_over) { // at work, so that signals and time slices fall into moves
            }
            __atomic_store_n(&words[2], 1, __ATOMIC_RELEASE);
            (void)futex(&words[2], FUTEX_WAKE, 1);
            sleeper.join();
            EXPECT_EQ(words[0], adds);
            if (forks)
                child_has_its_own(words, std::string(kind.name).find("Shared") == 0);
            node.remove(mine);
        });
    });
    EXPECT_TRUE(wait_until([&] { return stadd.load() != 0; }));
    {
        const Storm storm(owner.native_handle());
        for (uint64_t i = 0; i < adds; ++i)
            EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
    }
    storm_is_over = true;
    owner.join(); // the word that the kernel wakes may be on a page that has moved
}

class MemoryThreads : public ::testing::TestWithParam<std::tuple<As, Kind>> {};

TEST_P(MemoryThreads, SignalsForksAndFutexesMeetMoves)
{
    const Kind& kind = std::get<1>(GetParam());
    if (kind.name == std::string("HugePage") && !huge_pages_are_there())
        GTEST_SKIP() << "this system has no two huge pages free: sysctl vm.nr_hugepages=2";
    lead(
        [&](Node& node, Leader& peer) {
            take_signals();
            for (int round = 0; round < 30 && !::testing::Test::HasFailure(); ++round)
                once(node, peer, kind, round % 8 == 7);
            EXPECT_GT(signals_seen.load(), 0u);
        },
        std::get<0>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(EveryKind, MemoryThreads,
                         ::testing::Combine(::testing::Values(As::is, As::ordinary), ::testing::ValuesIn(kinds)),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param) == As::is ? "" : "Ordinary") +
                                    std::get<1>(test.param).name;
                         });

// Rights of the mapping that holds `address`, as /proc/self/maps has them.
std::string rights_at(uint64_t address)
{
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uint64_t start = 0;
        uint64_t end = 0;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, rights) == 3 && start <= address && address < end)
            return rights;
    }
    return "";
}

// Where the threads are is found out by a descriptor, and a program may have used up its own.
TEST(MemoryThreadsLimits, StacksStayWhereTheyAreAlsoWithoutDescriptors)
{
    if (!memory_moves())
        GTEST_SKIP() << "nothing moves here";
    lead([&](Node& node, Leader& peer) {
        alignas(largest_page) static uint64_t other[2 * largest_page / 8];
        std::atomic<uint64_t*> of_owner{nullptr};
        std::atomic<bool> over{false};
        std::thread owner([&] {
            alignas(256) uint64_t words[words_used] = {};
            of_owner = words;
            while (!over) {
            }
            EXPECT_EQ(words[0], 1u);
        });
        EXPECT_TRUE(wait_until([&] { return of_owner.load() != nullptr; }));
        uint64_t* const words = of_owner;
        const utofu_stadd_t stadd = node.add(words, 8 * words_used);
        const utofu_stadd_t beside = node.add(other + page / 8, page);
        rlimit limit = {};
        ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
        const rlimit none = {0, limit.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
        EXPECT_EQ(peer.ask(add_one, stadd), UTOFU_SUCCESS);
        EXPECT_EQ(peer.ask(add_one, beside), UTOFU_SUCCESS);
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
        EXPECT_EQ(rights_at(reinterpret_cast<uint64_t>(words)), "rw-p");
        over = true;
        owner.join();
        node.remove(stadd);
        node.remove(beside);
    });
}

} // namespace
} // namespace tofu::sim::test
