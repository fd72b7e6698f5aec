// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the provider registers for itself (directory, message areas, blocks that transfers pass through) shares no page
// with anything else of the process: a registered page is not the child's after fork (guide 6.1.4.1). The provider is
// linked in: registrations and the provider's own mappings are watched. Run by make check, over the simulator.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "atomic/atomic.h"
#include "mem/bounce_pool.h"
#include "mem/mr_directory.h"
#include "prov/lib/library.h"
#include "prov/lib/objects.h"
#include "rma/rma.h"

namespace {

using namespace tofu::test;
using tofu::vcq::Functions;

constexpr std::uintptr_t machine_page = 65536; ///< of the machine's

/// Mappings that this program has made by calls of mmap: those of the provider. malloc's are made otherwise.
struct Mapping {
    std::uintptr_t begin, end;
    bool shared; ///< of a file: at whichever page of the system the kernel chose
};
std::mutex mappings_mutex;
std::vector<Mapping>& mappings()
{
    static auto& all = *new std::vector<Mapping>;
    return all;
}

extern "C" char __executable_start, etext; // of the linker
bool is_ours(const void* caller)
{
    return caller >= &__executable_start && caller < &etext;
}

/// What the program under test has for itself; nothing of it is the provider's.
class Arena {
  public:
    static constexpr std::size_t bytes = 4 << 20;
    Arena()
        : base_(reinterpret_cast<std::byte*>(
              syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)))
    {
    }
    std::byte* at(std::size_t offset) const { return base_ + offset; }
    bool has(const void* address) const { return address >= base_ && address < base_ + bytes; }

  private:
    std::byte* base_;
};
const Arena& arena()
{
    static const Arena one;
    return one;
}

struct Registration {
    utofu_vcq_hdl_t vcq;
    utofu_stadd_t stadd;
    std::uintptr_t begin;
    std::size_t size;
};
std::vector<Registration> internals; ///< registered now
std::vector<std::size_t> sizes_seen; ///< ever
Functions library;

/// The mapping of the provider's own in which all pages of these bytes lie, or null.
const Mapping* mapping_of(std::uintptr_t begin, std::size_t size)
{
    std::lock_guard guard(mappings_mutex);
    for (const Mapping& m : mappings()) {
        const std::uintptr_t page = m.shared ? static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)) : machine_page;
        const std::uintptr_t first = begin & ~(page - 1), end = (begin + size + page - 1) & ~(page - 1);
        if (m.begin <= first && end <= m.end)
            return &m;
    }
    return nullptr;
}

void seen(utofu_vcq_hdl_t vcq, utofu_stadd_t stadd, void* address, std::size_t size)
{
    if (arena().has(address))
        return;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    internals.push_back({vcq, stadd, begin, size});
    sizes_seen.push_back(size);
    EXPECT_NE(mapping_of(begin, size), nullptr)
        << size << " registered bytes at " << address << " share a page with what is not the provider's";
}

int reg_mem(utofu_vcq_hdl_t vcq, void* address, std::size_t size, unsigned long flags, utofu_stadd_t* stadd)
{
    const int code = library.reg_mem(vcq, address, size, flags, stadd);
    if (code == UTOFU_SUCCESS)
        seen(vcq, *stadd, address, size);
    return code;
}
int reg_mem_with_stag(utofu_vcq_hdl_t vcq, void* address, std::size_t size, unsigned stag, unsigned long flags,
                      utofu_stadd_t* stadd)
{
    const int code = library.reg_mem_with_stag(vcq, address, size, stag, flags, stadd);
    if (code == UTOFU_SUCCESS)
        seen(vcq, *stadd, address, size);
    return code;
}
int dereg_mem(utofu_vcq_hdl_t vcq, utofu_stadd_t stadd, unsigned long flags)
{
    const auto it = std::find_if(internals.begin(), internals.end(),
                                 [&](const Registration& r) { return r.vcq == vcq && r.stadd == stadd; });
    if (it != internals.end())
        internals.erase(it);
    return library.dereg_mem(vcq, stadd, flags);
}
int free_vcq(utofu_vcq_hdl_t vcq)
{
    const auto left = std::erase_if(internals, [&](const Registration& r) { return r.vcq == vcq; });
    EXPECT_EQ(left, 0u) << "registrations outlive their VCQ: the guide does not say that they end with it";
    return library.free_vcq(vcq);
}

struct Watch : testing::Environment {
    void SetUp() override
    {
        auto& functions = library_functions();
        library = functions;
        functions.reg_mem = reg_mem;
        functions.reg_mem_with_stag = reg_mem_with_stag;
        functions.dereg_mem = dereg_mem;
        functions.free_vcq = free_vcq;
    }
};
const testing::Environment* const watch = testing::AddGlobalTestEnvironment(new Watch);

Wishes everything(int mr_mode)
{
    Wishes wishes;
    wishes.caps |= FI_RMA | FI_ATOMIC;
    wishes.mr_mode = mr_mode;
    return wishes;
}

/// Endpoint 0 of the objects with itself: messages, RMA and atomics by each of their ways.
class Traffic {
  public:
    static constexpr std::size_t most = 100000;
    Traffic(Objects& objects, fid_ep* ep, fid_cq* cq) : o_(objects), ep_(ep), cq_(cq)
    {
        EXPECT_EQ(fi_mr_reg(o_.domain, there(), 1 << 20, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                            next_key++, 0, &region_, nullptr),
                  0);
    }
    ~Traffic() { EXPECT_EQ(fi_close(&region_->fid), 0); }
    Traffic(const Traffic&) = delete;
    Traffic& operator=(const Traffic&) = delete;

    void all()
    {
        for (std::size_t size : {std::size_t{8}, std::size_t{400}, std::size_t{3000}, most}) {
            message(size, true);
            message(size, false);
            finish(1, [&] { return fi_write(ep_, here(), size, nullptr, 0, address(), key(), nullptr); });
            finish(1, [&] { return fi_read(ep_, here(), size, nullptr, 0, address(), key(), nullptr); });
        }
        atomics();
    }
    /// Keys beyond the first table of the directory, each looked up once.
    void many_keys(unsigned count)
    {
        std::vector<fid_mr*> regions(count);
        for (unsigned i = 0; i < count; i++)
            ASSERT_EQ(
                fi_mr_reg(o_.domain, there() + i * 16, 16, FI_REMOTE_WRITE, 0, next_key++, 0, &regions[i], nullptr), 0);
        for (fid_mr* region : regions)
            finish(1, [&] { return fi_write(ep_, here(), 16, nullptr, 0, 0, fi_mr_key(region), nullptr); });
        for (fid_mr* region : regions)
            EXPECT_EQ(fi_close(&region->fid), 0);
    }

  private:
    static std::byte* here() { return arena().at(0); }
    static std::byte* there() { return arena().at(1 << 20); }
    static std::byte* result() { return arena().at(2 << 20); }
    std::uint64_t address() const
    {
        return (o_.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(there()) : 0;
    }
    std::uint64_t key() const { return fi_mr_key(region_); }

    template <class Call>
    void finish(int completions, Call&& call)
    {
        Objects::post(cq_, std::forward<Call>(call));
        fi_cq_tagged_entry entry{};
        for (int i = 0; i < completions; i++)
            ASSERT_TRUE(eventually([&] { return fi_cq_read(cq_, &entry, 1) == 1; }));
    }
    void message(std::size_t size, bool expected)
    {
        const auto receive = [&] { return fi_trecv(ep_, result(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr); };
        const auto send = [&] { return fi_tsend(ep_, here(), size, nullptr, 0, 7, nullptr); };
        if (expected) {
            finish(0, receive);
            finish(2, send);
            return;
        }
        finish(0, send);
        for (int i = 0; i < 1000; i++) // it arrives without a waiter
            fi_cq_read(cq_, nullptr, 0);
        finish(2, receive);
    }
    void atomics()
    {
        std::memset(there(), 0, 1 << 16);
        const auto fetch = [&](std::size_t count, fi_datatype type, fi_op op) {
            finish(1, [&] {
                return fi_fetch_atomic(ep_, here(), count, nullptr, result(), nullptr, 0, address(), key(), type, op,
                                       nullptr);
            });
        };
        std::memset(here(), 0, 1 << 16);
        fetch(1, FI_UINT64, FI_SUM);
        fetch(4, FI_UINT64, FI_SUM);
        fetch(1, FI_UINT64, FI_ATOMIC_READ);
        fetch(1, FI_INT16, FI_MIN);
        fetch(100, FI_DOUBLE, FI_SUM);
        fetch(1, FI_DOUBLE_COMPLEX, FI_SUM);
    }

    static inline std::uint64_t next_key = 1;
    Objects& o_;
    fid_ep* ep_;
    fid_cq* cq_;
    fid_mr* region_ = nullptr;
};

bool was_seen(std::size_t size)
{
    return std::find(sizes_seen.begin(), sizes_seen.end(), size) != sizes_seen.end();
}

TEST(Internals, ShareNoPageWithTheHeap)
{
    using tofu::BouncePool;
    for (int mode : {FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, 0}) {
        Objects o(everything(mode));
        fid_cq* cq = o.open_queue();
        fid_ep* ep = o.add(cq, cq);
        Traffic traffic(o, ep, cq);
        traffic.all();
        if (mode == 0)
            traffic.many_keys(1500);
    }
    EXPECT_TRUE(internals.empty());
    // else there was nothing to look at
    EXPECT_TRUE(was_seen(tofu::directory::area_bytes));
    EXPECT_TRUE(was_seen(sizeof(tofu::directory::Bucket) << (tofu::directory::first_log2 + 1)));
    EXPECT_TRUE(was_seen(sizeof(tofu::directory::Bucket))); // a lookup's
    EXPECT_TRUE(was_seen(BouncePool::blocks_of[0] * BouncePool::small_size));
    EXPECT_TRUE(was_seen(BouncePool::blocks_of[1] * BouncePool::large_size));
    EXPECT_TRUE(was_seen(tofu::vcq::CompletionTable::size * tofu::max_fast_read));
    EXPECT_TRUE(was_seen(std::size_t{128} * 32));                                                  // words of atomics
    EXPECT_TRUE(was_seen(tofu::SpanRunner::max_spans * tofu::Span::most * sizeof(std::uint64_t))); // of spans
}

/// The VCQ of a shared context lives on, and what was registered with it for an endpoint goes with the endpoint.
TEST(Internals, GoWithTheEndpointWhoseContextStays)
{
    Objects o(everything(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY));
    fid_stx* shared = nullptr;
    ASSERT_EQ(fi_stx_context(o.domain, nullptr, &shared, nullptr), 0);
    fid_cq* cq = o.open_queue();
    const std::size_t before = internals.size();
    fid_ep* const ep = o.open_sharing(shared, cq);
    char name[64];
    std::size_t length = sizeof(name);
    ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
    ASSERT_EQ(fi_av_insert(o.av, name, 1, nullptr, 0, nullptr), 1);
    Traffic(o, ep, cq).all();
    EXPECT_GT(internals.size(), before);
    EXPECT_EQ(fi_close(&ep->fid), 0);
    EXPECT_EQ(internals.size(), before);
    EXPECT_EQ(fi_close(&shared->fid), 0);
}

/// What the driver of the machine does to pages that are registered at fork.
void keep_from_children(int advice)
{
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (const Registration& r : internals) {
        const std::uintptr_t first = r.begin & ~(page - 1), end = (r.begin + r.size + page - 1) & ~(page - 1);
        ASSERT_EQ(madvise(reinterpret_cast<void*>(first), end - first, advice), 0) << std::strerror(errno);
    }
}

TEST(Internals, AreAllThatAChildOfForkDoesNotHave)
{
    std::vector<std::string> heap; // blocks of all small sizes, old ones and new ones
    const auto more = [&heap] {
        for (std::size_t size = 24; size < 2000; size += 8)
            heap.emplace_back(size, static_cast<char>(size));
    };
    more();
    Objects o(everything(0));
    fid_cq* cq = o.open_queue();
    fid_ep* ep = o.add(cq, cq);
    more();
    Traffic traffic(o, ep, cq);
    for (int i = 0; i < 3; i++) {
        traffic.all();
        more();
        traffic.many_keys(10);
        more();
    }
    keep_from_children(MADV_DONTFORK);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(20);
        for (const std::string& block : heap)
            if (block != std::string(block.size(), static_cast<char>(block.size())))
                _exit(2);
        more();
        heap.clear();
        heap.shrink_to_fit();
        more();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    keep_from_children(MADV_DOFORK);
    traffic.all();
    traffic.many_keys(10);
}

} // namespace

extern "C" void* mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) noexcept
{
    const long made = syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    if (made != -1 && is_ours(__builtin_return_address(0))) {
        std::lock_guard guard(mappings_mutex);
        const auto begin = static_cast<std::uintptr_t>(made);
        const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
        mappings().push_back({begin, (begin + length + page - 1) & ~(page - 1), fd >= 0});
    }
    return reinterpret_cast<void*>(made);
}

extern "C" int munmap(void* address, std::size_t length) noexcept
{
    if (is_ours(__builtin_return_address(0))) {
        std::lock_guard guard(mappings_mutex);
        const auto begin = reinterpret_cast<std::uintptr_t>(address);
        const std::uintptr_t end = begin + length;
        std::vector<Mapping> left;
        for (const Mapping& m : mappings()) {
            if (m.begin < std::min(begin, m.end))
                left.push_back({m.begin, std::min(begin, m.end), m.shared});
            if (std::max(end, m.begin) < m.end)
                left.push_back({std::max(end, m.begin), m.end, m.shared});
        }
        mappings().swap(left);
    }
    return static_cast<int>(syscall(SYS_munmap, address, length));
}
