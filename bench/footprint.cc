// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: how much memory the provider takes for each thing a program may have many of.
// Called by: bench/run, people. Calls: libfabric, fork, /proc.
//
// Two processes. The measured one makes many of a thing and divides the growth of its resident memory by their
// number; that counts pages of shared memory (message areas, queues) where they are touched. The other one has
// the endpoints that it talks to.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace {

constexpr int peers = 64;
constexpr int endpoints = 33; ///< the first one also pays for what they share
constexpr int messages = 100; ///< to each peer: more than a ring has slots
constexpr std::size_t addresses = 158976;
constexpr std::size_t regions = 5000;
constexpr std::size_t unexpected = 2000;
constexpr std::size_t page = 4096;
constexpr long patience = 20000000; ///< polls

struct Board {
    std::atomic<int> step{0};
    char address[peers + 1][64];
    std::uint64_t key, base;
};

void check(long ret, const char* what)
{
    if (ret < 0) {
        std::fprintf(stderr, "footprint: %s: %s\n", what, fi_strerror(int(-ret)));
        std::exit(1);
    }
}

double resident()
{
    long all = 0, pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%ld %ld", &all, &pages) != 2)
        check(-FI_EIO, "/proc/self/statm");
    std::fclose(file);
    return double(pages) * double(sysconf(_SC_PAGESIZE));
}

void* map_pages(std::size_t bytes)
{
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(memory == MAP_FAILED ? -FI_ENOMEM : 0, "mmap");
    return memory;
}

/// Libfabric's objects; endpoints are added one by one.
struct Domain {
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    std::vector<fid_ep*> ep;

    Domain()
    {
        fi_info* hints = fi_allocinfo();
        hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        hints->fabric_attr->prov_name = strdup("tofu");
        check(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
        fi_freeinfo(hints);
        fi_cq_attr cq_attr{};
        cq_attr.format = FI_CQ_FORMAT_TAGGED;
        cq_attr.size = 512;
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
        check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
        check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
    }
    ~Domain()
    {
        for (fid_ep* one : ep)
            fi_close(&one->fid);
        for (fid* object : {&cq->fid, &av->fid, &domain->fid, &fabric->fid})
            fi_close(object);
        fi_freeinfo(info);
    }
    void add_endpoint()
    {
        fid_ep* one = nullptr;
        check(fi_endpoint(domain, info, &one, nullptr), "fi_endpoint");
        check(fi_ep_bind(one, &av->fid, 0), "fi_ep_bind");
        check(fi_ep_bind(one, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        check(fi_enable(one), "fi_enable");
        ep.push_back(one);
    }
    int progress()
    {
        fi_cq_tagged_entry entries[32];
        ssize_t n = fi_cq_read(cq, entries, 32);
        if (n == -FI_EAGAIN)
            sched_yield(); // the other process may have the same processor
        else
            check(n, "fi_cq_read");
        return n > 0 ? int(n) : 0;
    }
    template <class F>
    void post(F&& f, const char* what)
    {
        ssize_t ret;
        for (long polls = 0; (ret = f()) == -FI_EAGAIN && polls < patience; ++polls)
            progress();
        check(ret, what);
    }
    void finish(long entries)
    {
        for (long polls = 0; entries > 0; ++polls) {
            entries -= progress();
            check(polls > patience ? -FI_ETIMEDOUT : 0, "completions");
        }
    }
};

// Both processes keep their messages moving while they wait for each other.
void await(Board& board, int step, Domain& domain)
{
    for (long polls = 0; board.step.load() < step; ++polls) {
        domain.progress();
        check(polls > patience ? -FI_ETIMEDOUT : 0, "the other process");
    }
}

void put_address(fid_ep* ep, char (&place)[64])
{
    std::size_t length = sizeof(place);
    check(fi_getname(&ep->fid, place, &length), "fi_getname");
}

void serve(Board& board)
{
    Domain domain;
    for (int i = 0; i < peers; ++i) {
        domain.add_endpoint();
        put_address(domain.ep.back(), board.address[i]);
    }
    auto* memory = static_cast<char*>(map_pages(page));
    fid_mr* mr = nullptr;
    check(fi_mr_reg(domain.domain, memory, page, FI_REMOTE_WRITE, 0, 1, 0, &mr, nullptr), "fi_mr_reg");
    board.key = fi_mr_key(mr);
    board.base = reinterpret_cast<std::uint64_t>(memory);
    fi_context context{};
    board.step.store(1);
    await(board, 2, domain);
    fi_addr_t measured = 0;
    check(fi_av_insert(domain.av, board.address[peers], 1, &measured, 0, nullptr), "fi_av_insert");
    // What the measured process sends, then as much back.
    for (fid_ep* ep : domain.ep)
        for (int i = 0; i < messages; ++i)
            domain.post([&] { return fi_trecv(ep, memory, 64, nullptr, FI_ADDR_UNSPEC, 1, 0, &context); }, "fi_trecv");
    domain.finish(peers * messages);
    board.step.store(3);
    await(board, 4, domain);
    auto inject = [&](fid_ep* ep, std::uint64_t tag) {
        domain.post([&] { return fi_tinject(ep, memory, 64, measured, tag); }, "fi_tinject");
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
    fi_close(&mr->fid);
}

class Measured {
  public:
    explicit Measured(Board& board) : board_(board)
    {
        double before = resident();
        domain_ = new Domain;
        say("process with a domain, an AV and a CQ", 1, before);
    }
    ~Measured() { delete domain_; }

    void run()
    {
        domain_->add_endpoint();
        double before = resident();
        for (int i = 1; i < endpoints; ++i)
            domain_->add_endpoint();
        say("endpoint", endpoints - 1, before);
        put_address(domain_->ep[0], board_.address[peers]);
        await(board_, 1, *domain_);
        insert();
        talk();
        hold();
        board_.step.store(7);
    }

  private:
    static void say(const char* what, double count, double before)
    {
        std::printf("Memory\t%s\t0\t1\tbytes\ttofu\t%.4g\n", what, max(0, (resident() - before) / count));
        std::fflush(stdout);
    }
    static double max(double a, double b) { return a > b ? a : b; }

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
        double before = resident();
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
        double before = resident();
        for (int i = 0; i < messages; ++i)
            for (fi_addr_t peer : peer_)
                domain_->post([&] { return fi_tinject(ep(), memory_, 64, peer, 1); }, "fi_tinject");
        await(board_, 3, *domain_);
        say("peer sent to", peers, before);
        // Posted before they are sent, so that none of them has to be kept ...
        auto receive = [&](std::uint64_t tag, int count) {
            for (int i = 0; i < count; ++i)
                check(fi_trecv(ep(), memory_, 64, nullptr, FI_ADDR_UNSPEC, tag, 0, &context_), "fi_trecv");
        };
        receive(1, messages);
        board_.step.store(4);
        domain_->finish(messages);
        // ... and these for good: nothing is measured that used their memory again.
        before = resident();
        receive(4, 1);
        board_.step.store(5);
        domain_->finish(1);
        say("unexpected message of 64 B", double(unexpected), before);
        before = resident();
        receive(1, peers * messages);
        say("posted receive", peers * messages, before);
        before = resident();
        board_.step.store(6);
        domain_->finish(peers * messages);
        say("peer that sends", peers - 1, before);
    }
    void hold()
    {
        auto* memory = static_cast<char*>(map_pages(regions * page));
        std::vector<fid_mr*> mr(regions);
        double before = resident();
        for (std::size_t i = 0; i < regions; ++i)
            check(fi_mr_reg(domain_->domain, memory + i * page, page, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 100 + i, 0,
                            &mr[i], nullptr),
                  "fi_mr_reg");
        say("region", double(regions), before);

        // As many as are accepted without a look at the queue.
        before = resident();
        long writes = 0;
        while (writes < 100000 && fi_write(domain_->ep[1], memory_, 8, nullptr, peer_[0], board_.base, board_.key, &context_) == 0)
            ++writes;
        if (writes > 0)
            say("outstanding write", double(writes), before);
        domain_->finish(writes);

        for (fid_mr* one : mr)
            fi_close(&one->fid);
    }
    fid_ep* ep() { return domain_->ep[0]; }

    Board& board_;
    Domain* domain_ = nullptr;
    fi_addr_t peer_[peers] = {};
    alignas(64) char memory_[page] = {};
    fi_context context_{};
};

} // namespace

int main()
{
    alarm(60);
    setenv("TOFU_SIM_JOB", ("footprint-" + std::to_string(getpid())).c_str(), 1);
    unsetenv("FI_PROVIDER");
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    auto* board = new (memory) Board;
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(*board);
        return 0;
    }
    {
        Measured measured(*board);
        measured.run();
    }
    int status = 0;
    waitpid(other, &status, 0);
    return status == 0 ? 0 : 1;
}
