// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How much memory the provider takes for each thing a program may have many of. Run by bench/run and by hand.
//
// Two processes. The measured one makes many of a thing and divides what it then has more by their number: of resident
// memory, which in the simulator has the touched pages of peers' areas too; of the heap; and, in a second run with
// libcounted.so in between, of registered memory, which a TNI pins. The other one has the endpoints that it talks to.
#include "counted.h"
#include "frame/objects.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int peers = 32; ///< that have rings: an endpoint registers so many at first, and all the others for the next
constexpr int endpoints = 5;  ///< that register rings as they need them; the first one also pays for what they share
constexpr int messages = 100; ///< to each peer: more than a ring has slots
constexpr std::size_t addresses = 158976; ///< nodes of Fugaku
constexpr std::size_t regions = 5000;
constexpr std::size_t unexpected = 2000;
const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
constexpr std::size_t queue_size = 512; ///< entries of a CQ

using namespace tofu::bench;

struct Board {
    std::atomic<int> step{0};
    char address[peers + 1][64]; ///< the last one is the measured process's
    std::uint64_t key, base;
};

/// Bytes of each kind; those that are not looked at stay 0.
struct Bytes {
    double resident = 0, heap = 0, registered = 0;
};

const Wire* wire = nullptr; ///< of libcounted.so, where that is in between

double resident()
{
    long all = 0, pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%ld %ld", &all, &pages) != 2)
        check(-FI_EIO, "/proc/self/statm");
    std::fclose(file);
    return double(pages) * double(sysconf(_SC_PAGESIZE));
}

Bytes bytes()
{
    if (wire != nullptr)
        return {0, 0, double(wire->side[0].registered)};
#if __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 heap = mallinfo2();
#else
    const struct mallinfo heap = mallinfo(); // right up to 2 GiB
#endif
    return {resident(), double(heap.uordblks + heap.hblkhd), 0};
}

// Both processes keep their messages moving while they wait for each other.
void await(Board& board, int step, const Objects& domain)
{
    for (long polls = 0; board.step.load() < step; ++polls) {
        domain.progress();
        check(polls > Objects::patience ? -FI_ETIMEDOUT : 0, "the other process");
    }
}

void put_address(fid_ep* ep, char (&place)[64])
{
    std::size_t length = sizeof(place);
    check(fi_getname(&ep->fid, place, &length), "fi_getname");
}

void serve(Board& board)
{
    Objects domain({.queue_size = queue_size});
    for (int i = 0; i < peers; ++i) {
        domain.add_endpoint();
        put_address(domain.ep.back(), board.address[i]);
    }
    char* memory = map_pages(page);
    board.key = fi_mr_key(domain.add_region(memory, page, 1));
    board.base = reinterpret_cast<std::uint64_t>(memory);
    fi_context context{};
    board.step.store(1);
    await(board, 2, domain);
    fi_addr_t measured = 0;
    check(fi_av_insert(domain.av, board.address[peers], 1, &measured, 0, nullptr), "fi_av_insert");
    // What the measured process sends, then as much back.
    for (fid_ep* ep : domain.ep)
        for (int i = 0; i < messages; ++i)
            check(fi_trecv(ep, memory, 64, nullptr, FI_ADDR_UNSPEC, 1, 0, &context), "fi_trecv");
    domain.finish(peers * messages);
    board.step.store(3);
    await(board, 4, domain);
    auto inject = [&](fid_ep* ep, std::uint64_t tag) {
        domain.post("fi_tinject", domain, [&] { return fi_tinject(ep, memory, 64, measured, tag); });
    };
    for (int i = 0; i < messages; ++i)
        inject(domain.ep[0], 1);
    await(board, 5, domain);
    for (std::size_t i = 0; i < unexpected; ++i)
        inject(domain.ep[0], 3);
    inject(domain.ep[0], 4);
    await(board, 6, domain);
    for (int i = 0; i < messages; ++i)
        for (fid_ep* ep : domain.ep)
            inject(ep, 1);
    await(board, 7, domain);
    fid_ep* const further = domain.add_endpoint();
    for (int i = 0; i < messages; ++i)
        inject(further, 1);
    await(board, 8, domain);
}

class Measured {
  public:
    explicit Measured(Board& board) : board_(board)
    {
        Bytes before = bytes();
        domain_ = new Objects({.queue_size = queue_size});
        say("process with a domain, an AV and a CQ", 1, before);
    }
    ~Measured() { delete domain_; }

    void run()
    {
        domain_->add_endpoint();
        Bytes before = bytes();
        for (int i = 1; i < endpoints; ++i)
            domain_->add_endpoint();
        say("endpoint", endpoints - 1, before);
        put_address(domain_->ep[0], board_.address[peers]);
        await(board_, 1, *domain_);
        insert();
        talk();
        grow();
        hold();
        board_.step.store(8);
    }

  private:
    static void say(const char* what, double count, const Bytes& before)
    {
        const Bytes now = bytes();
        const auto row = [&](const char* kind, double more) {
            std::printf("Memory\t%s\t0\t1\tbytes\t%s\t%.0f\n", what, kind, std::max(0.0, more / count));
        };
        if (wire == nullptr) {
            row("resident", now.resident - before.resident);
            row("heap", now.heap - before.heap);
        } else {
            row("registered", now.registered - before.registered);
        }
        std::fflush(stdout);
    }

    // Addresses are made from a peer's own: another home VCQ each, in the second eight bytes.
    void insert()
    {
        std::vector<char> many(addresses * 24);
        for (std::size_t i = 0; i < addresses; ++i) {
            std::uint64_t home;
            std::memcpy(&many[i * 24], board_.address[0], 24);
            std::memcpy(&home, &many[i * 24 + 8], 8);
            home += i << 16;
            std::memcpy(&many[i * 24 + 8], &home, 8);
        }
        fi_av_attr attr{};
        attr.type = FI_AV_TABLE;
        attr.count = addresses;
        fid_av* av = nullptr;
        Bytes before = bytes();
        check(fi_av_open(domain_->domain, &attr, &av, nullptr), "fi_av_open");
        check(fi_av_insert(av, many.data(), addresses, nullptr, 0, nullptr), "fi_av_insert");
        say("peer in the AV", double(addresses), before);
        fi_close(&av->fid);
        for (int i = 0; i < peers; ++i)
            check(fi_av_insert(domain_->av, board_.address[i], 1, &peer_[i], 0, nullptr), "fi_av_insert");
    }
    void talk()
    {
        board_.step.store(2);
        auto send_to = [&](fi_addr_t peer) {
            for (int i = 0; i < messages; ++i)
                domain_->post("fi_tinject", *domain_, [&] { return fi_tinject(ep(), memory_, 64, peer, 1); });
        };
        // The first one makes the endpoint's blocks for packets, which serve all.
        Bytes before = bytes();
        send_to(peer_[0]);
        say("endpoint that sends", 1, before);
        before = bytes();
        std::for_each(peer_ + 1, peer_ + peers, send_to);
        await(board_, 3, *domain_);
        say("further peer sent to", peers - 1, before);
        // Posted before they are sent, so that none of them has to be kept ...
        auto receive = [&](std::uint64_t tag, int count) {
            for (int i = 0; i < count; ++i)
                check(fi_trecv(ep(), memory_, 64, nullptr, FI_ADDR_UNSPEC, tag, 0, &context_), "fi_trecv");
        };
        receive(1, messages);
        board_.step.store(4);
        domain_->finish(messages);
        // ... and these for good: nothing is measured that used their memory again.
        before = bytes();
        receive(4, 1);
        board_.step.store(5);
        domain_->finish(1);
        say("unexpected message of 64 B", double(unexpected), before);
        before = bytes();
        receive(1, peers * messages);
        say("posted receive", peers * messages, before);
        before = bytes();
        board_.step.store(6);
        domain_->finish(peers * messages);
        say("peer that sends", peers - 1, before);
    }
    void grow()
    {
        for (int i = 0; i < messages; ++i)
            check(fi_trecv(ep(), memory_, 64, nullptr, FI_ADDR_UNSPEC, 1, 0, &context_), "fi_trecv");
        Bytes before = bytes();
        board_.step.store(7);
        domain_->finish(messages);
        say("the other rings of an endpoint", 1, before);
    }
    void hold()
    {
        char* memory = map_pages(regions * page);
        Bytes before = bytes();
        for (std::size_t i = 0; i < regions; ++i)
            domain_->add_region(memory + i * page, page, 100 + i);
        say("region", double(regions), before);

        // As many as are accepted without a look at the queue.
        before = bytes();
        long writes = 0;
        while (writes < 100000 &&
               fi_write(domain_->ep[1], memory_, 8, nullptr, peer_[0], board_.base, board_.key, &context_) == 0)
            ++writes;
        if (writes > 0)
            say("outstanding write", double(writes), before);
        domain_->finish(writes);
    }
    fid_ep* ep() { return domain_->ep[0]; }

    Board& board_;
    Objects* domain_ = nullptr;
    fi_addr_t peer_[peers] = {};
    char memory_[64] = {};
    fi_context context_{};
};

/// One run; `counted` and `library` as in wire.cc, or null.
int run(const char* counted, const char* library)
{
    if (counted != nullptr) {
        setenv("COUNTED_LIBRARY", library, 1);
        setenv("FI_TOFU_BACKEND", counted, 1);
        void* handle = dlopen(counted, RTLD_NOW | RTLD_GLOBAL);
        wire = handle != nullptr ? static_cast<const Wire*>(dlsym(handle, "counted_wire")) : nullptr;
        if (wire == nullptr) {
            std::fprintf(stderr, "footprint: %s\n", dlerror());
            return 1;
        }
    }
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    auto* board = new (memory) Board;
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(*board);
        std::_Exit(0);
    }
    {
        Measured measured(*board);
        measured.run();
    }
    int status = 0;
    waitpid(other, &status, 0);
    return status == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 1 && argc != 3) {
        std::fprintf(stderr, "usage: footprint [LIBCOUNTED UTOFU_LIBRARY]\n");
        return 2;
    }
    alarm(60);
    setenv("TOFU_SIM_JOB", ("footprint-" + std::to_string(getpid())).c_str(), 1);
    unsetenv("FI_PROVIDER");
    return argc == 3 ? run(argv[1], argv[2]) : run(nullptr, nullptr);
}
