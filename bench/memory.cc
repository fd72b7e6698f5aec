// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a put, a get and an ARMW cost by kind of memory, first and repeated, beside memcpy and process_vm. Run by
// bench/run and by hand.
//
// One process owns memory of each kind, the other posts and polls for its local notice. Prints
// lines for bench/report: what is repeated by the best of five, what can be first only once as it
// was.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utofu.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t big = size_t{16} << 20;
constexpr size_t page = 65536; // the largest that systems have

struct Board {
    std::atomic<uint32_t> step;
    std::atomic<uint64_t> vcq_id;
    std::atomic<uint64_t> stadd;
    std::atomic<uint64_t> bytes;
    std::atomic<uint64_t> address;
    char name[64];
};

void check(int rc, const char* what)
{
    if (rc == UTOFU_SUCCESS)
        return;
    std::fprintf(stderr, "memory bench: %s: %d\n", what, rc);
    std::exit(1);
}

struct Kind {
    const char* name;
    std::function<void*(size_t)> make;
    size_t bytes;
};

alignas(page) char data_array[1 << 20] = {1};
alignas(page) char bss_array[1 << 20];

void* map_shared(size_t bytes, bool sealed)
{
    const int fd = ::memfd_create("bench", MFD_ALLOW_SEALING);
    if (fd < 0 || ::ftruncate(fd, off_t(bytes)) != 0)
        return nullptr;
    if (sealed)
        (void)::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

std::vector<Kind> kinds()
{
    return {
        {"heap", [](size_t n) { return std::calloc(n, 1); }, big + page},
        {"bss", [](size_t) -> void* { return bss_array; }, sizeof bss_array},
        {"data", [](size_t) -> void* { return data_array; }, sizeof data_array},
        {"sealed memfd", [](size_t n) { return map_shared(n, true); }, big},
        {"plain memfd", [](size_t n) { return map_shared(n, false); }, big},
    };
}

void await(Board& board, uint32_t step)
{
    while (board.step.load() != step)
        ::usleep(100);
}

void own(Board& board)
{
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t id;
    check(utofu_create_vcq(0, 0, &vcq), "create_vcq");
    check(utofu_query_vcq_id(vcq, &id), "query_vcq_id");
    board.vcq_id = id;
    uint32_t step = 0;
    for (const Kind& kind : kinds()) {
        void* memory = kind.make(kind.bytes);
        std::memset(memory, 1, kind.bytes);
        utofu_stadd_t stadd;
        check(utofu_reg_mem(vcq, memory, kind.bytes, 0, &stadd), "reg_mem");
        std::snprintf(board.name, sizeof board.name, "%s", kind.name);
        board.stadd = stadd;
        board.bytes = kind.bytes;
        board.address = reinterpret_cast<uint64_t>(memory);
        board.step = ++step;
        await(board, ++step);
    }
    board.stadd = 0;
    board.step = ++step;
    await(board, ++step);
}

struct Poster {
    utofu_vcq_hdl_t vcq;
    uint64_t to;
    std::vector<char> buffer = std::vector<char>(big);
    utofu_stadd_t local;

    void finish(int rc) const
    {
        check(rc, "post");
        utofu_mrq_notice notice;
        while ((rc = utofu_poll_mrq(vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
        }
        check(rc, "poll_mrq");
        void* cbdata;
        (void)utofu_poll_tcq(vcq, 0, &cbdata);
    }
    void put(uint64_t stadd, size_t bytes) const
    {
        finish(utofu_put(vcq, to, local, stadd, bytes, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr));
    }
    void get(uint64_t stadd, size_t bytes) const
    {
        finish(utofu_get(vcq, to, local, stadd, bytes, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr));
    }
    void add(uint64_t stadd) const
    {
        finish(utofu_armw8(vcq, to, UTOFU_ARMW_OP_ADD, 1, stadd, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr));
    }
};

double seconds(int repeat, const std::function<void()>& run)
{
    double best = 1e9;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const auto start = Clock::now();
        for (int i = 0; i < repeat; ++i)
            run();
        best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / repeat);
    }
    return best;
}

double once(const std::function<void()>& run)
{
    const auto start = Clock::now();
    run();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// A line for bench/report.
void say(const char* name, size_t bytes, const char* unit, const char* kind, double value)
{
    std::printf("Kinds of memory\t%s\t%zu\t2\t%s\t%s\t%.5g\n", name, bytes, unit, kind, value);
}

void post(Board& board, pid_t owner)
{
    Poster p;
    check(utofu_create_vcq(0, 0, &p.vcq), "create_vcq");
    std::memset(p.buffer.data(), 2, p.buffer.size());
    check(utofu_reg_mem(p.vcq, p.buffer.data(), big, 0, &p.local), "reg_mem");
    uint32_t step = 0;
    constexpr size_t mib = size_t{1} << 20;
    for (;;) {
        await(board, ++step);
        const uint64_t at = board.stadd;
        if (at == 0)
            break;
        p.to = board.vcq_id;
        const size_t half = std::min<size_t>(board.bytes / 2, mib);
        // First accesses each in a part that nothing has touched yet.
        const double first_big = board.bytes > 8 * mib ? double(mib) / once([&] { p.put(at + 8 * mib, mib); }) : 0;
        const double first_64k = 65536 / once([&] { p.put(at + board.bytes - 65536, 65536); });
        const double first_8 = once([&] { p.put(at, 8); });
        const double put8 = seconds(20000, [&] { p.put(at, 8); });
        const double get8 = seconds(20000, [&] { p.get(at, 8); });
        const double add8 = seconds(5000, [&] { p.add(at + 8); });
        for (int i = 0; i < 40; ++i)
            p.put(at, half);
        const double put64k = 65536 / seconds(500, [&] { p.put(at, 65536); });
        const double put1m = double(half) / seconds(50, [&] { p.put(at, half); });
        const double get1m = double(half) / seconds(50, [&] { p.get(at, half); });
        const char* kind = board.name;
        say("first put", 8, "ns", kind, first_8 * 1e9);
        say("put", 8, "ns", kind, put8 * 1e9);
        say("get", 8, "ns", kind, get8 * 1e9);
        say("armw8", 8, "ns", kind, add8 * 1e9);
        say("first put", 65536, "MiB/s", kind, first_64k / mib);
        if (first_big > 0)
            say("first put", mib, "MiB/s", kind, first_big / mib);
        say("put", 65536, "MiB/s", kind, put64k / mib);
        say("put", half, "MiB/s", kind, put1m / mib);
        say("get", half, "MiB/s", kind, get1m / mib);
        if (std::string(board.name) == "heap") {
            std::vector<char> copy(mib, 1);
            const double own_copy = seconds(50, [&] { std::memcpy(copy.data(), p.buffer.data(), mib); });
            const iovec local{p.buffer.data(), mib};
            const iovec remote{reinterpret_cast<void*>(board.address.load() + 12 * mib), mib};
            const double kernel = seconds(50, [&] { (void)::process_vm_writev(owner, &local, 1, &remote, 1, 0); });
            say("put", mib, "MiB/s", "memcpy", 1 / own_copy);
            say("put", mib, "MiB/s", "process_vm", 1 / kernel);
        }
        board.step = ++step;
    }
    board.step = ++step;
}

} // namespace

int main()
{
    const std::string job = "bench-memory-" + std::to_string(::getpid());
    ::setenv("TOFU_SIM_JOB", job.c_str(), 1);
    auto* board =
        static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t owner = ::fork();
    if (owner == 0) {
        (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
        own(*board);
        return 0;
    }
    const pid_t poster = ::fork();
    if (poster == 0) {
        (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
        post(*board, owner);
        return 0;
    }
    int status = 0;
    int failed = 0;
    for (int i = 0; i < 2; ++i) {
        if (::wait(&status) < 0 || status != 0) {
            failed = 1;
            (void)::kill(owner, SIGKILL);
            (void)::kill(poster, SIGKILL);
        }
    }
    return failed;
}
