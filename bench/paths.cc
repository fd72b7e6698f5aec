// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the hot paths of the provider one by one, for callgrind to count their instructions.
// Called by: bench/instructions, under valgrind. Calls: libfabric, valgrind's client requests.
//
// One process with two domains: A posts to B. Each path is run often enough to be warm, then counted call by
// call; what is needed between the calls (completions, receives) is not counted.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <sys/mman.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define COUNT_TOGGLE() CALLGRIND_TOGGLE_COLLECT
#define COUNT_END(name) CALLGRIND_DUMP_STATS_AT(name)
constexpr bool can_count = true;
#else
#define COUNT_TOGGLE() (void)0
#define COUNT_END(name) (void)(name)
constexpr bool can_count = false;
#endif

namespace {

constexpr int calls = 256; ///< counted of each path
constexpr std::size_t memory_bytes = 1 << 16;

void check(long ret, const char* what)
{
    if (ret < 0) {
        std::fprintf(stderr, "paths: %s: %s\n", what, fi_strerror(int(-ret)));
        std::exit(1);
    }
}

struct Side {
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_ep* ep = nullptr;
    fid_mr* mr = nullptr;
    char* memory = nullptr;
    fi_addr_t peer = 0;

    Side()
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
        cq_attr.size = 1024;
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
        check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
        check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
        check(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
        check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
        check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        check(fi_enable(ep), "fi_enable");
        memory = static_cast<char*>(mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        check(fi_mr_reg(domain, memory, memory_bytes,
                        FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV, 0, 1, 0, &mr, nullptr),
              "fi_mr_reg");
    }
    void meet(const Side& other)
    {
        char address[64];
        std::size_t length = sizeof(address);
        check(fi_getname(&other.ep->fid, address, &length), "fi_getname");
        check(fi_av_insert(av, address, 1, &peer, 0, nullptr), "fi_av_insert");
    }
    ~Side()
    {
        for (fid* object : {&ep->fid, &mr->fid, &cq->fid, &av->fid, &domain->fid, &fabric->fid})
            fi_close(object);
        fi_freeinfo(info);
        munmap(memory, memory_bytes);
    }
};

class Paths {
  public:
    Paths()
    {
        a_.meet(b_);
        b_.meet(a_);
    }
    void run()
    {
        auto base = reinterpret_cast<std::uint64_t>(b_.memory);
        std::uint64_t key = fi_mr_key(b_.mr);
        void* desc = fi_mr_desc(a_.mr);
        count("fi_inject_write, 8 B", 0, [&] { return fi_inject_write(a_.ep, a_.memory, 8, a_.peer, base, key); });
        count("fi_write, 8 B", 1, [&] { return fi_write(a_.ep, a_.memory, 8, desc, a_.peer, base, key, &context_); });
        count("fi_write, 4 KiB", 1,
              [&] { return fi_write(a_.ep, a_.memory, 4096, desc, a_.peer, base, key, &context_); });
        count("fi_read, 8 B", 1, [&] { return fi_read(a_.ep, a_.memory, 8, desc, a_.peer, base, key, &context_); });
        count("fi_fetch_atomic, SUM of UINT64", 1, [&] {
            return fi_fetch_atomic(a_.ep, a_.memory, 1, desc, a_.memory + 64, desc, a_.peer, base, key, FI_UINT64,
                                   FI_SUM, &context_);
        });
        count("fi_tinject, 8 B", 0, [&] { return fi_tinject(a_.ep, a_.memory, 8, a_.peer, 1); }, true);
        count("fi_tsend, 64 B", 1, [&] { return fi_tsend(a_.ep, a_.memory, 64, desc, a_.peer, 1, &context_); }, true);
        receives();
        reads();
    }

  private:
    void drain(Side& side, int entries)
    {
        fi_cq_tagged_entry entry;
        for (long polls = 0; entries > 0; ++polls) {
            ssize_t n = fi_cq_read(side.cq, &entry, 1);
            if (n != -FI_EAGAIN)
                check(n, "fi_cq_read");
            entries -= n > 0;
            if (polls > 1000000)
                check(-FI_ETIMEDOUT, "completion");
        }
    }
    template <class F>
    void again(F&& f, const char* what)
    {
        ssize_t ret;
        for (long polls = 0; (ret = f()) == -FI_EAGAIN && polls < 1000000; ++polls)
            drain_empty();
        check(ret, what);
    }
    void drain_empty()
    {
        fi_cq_tagged_entry entry;
        for (Side* side : {&a_, &b_})
            (void)fi_cq_read(side->cq, &entry, 0);
    }
    // f() posts one operation at A that ends in `entries` entries of its CQ; a message is received by B.
    template <class F>
    void count(const char* name, int entries, F&& f, bool message = false)
    {
        for (int i = -calls; i < calls; ++i) {
            if (message)
                again([&] { return fi_trecv(b_.ep, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_); }, "fi_trecv");
            if (i < 0) {
                again(f, name);
            } else {
                COUNT_TOGGLE();
                ssize_t ret = f();
                COUNT_TOGGLE();
                check(ret, name);
            }
            drain(a_, entries);
            drain(b_, message);
            drain_empty();
        }
        COUNT_END(name);
    }
    void receives()
    {
        for (int i = -calls; i < calls; ++i) {
            if (i >= 0)
                COUNT_TOGGLE();
            ssize_t ret = fi_trecv(b_.ep, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_);
            if (i >= 0)
                COUNT_TOGGLE();
            check(ret, "fi_trecv");
            again([&] { return fi_tinject(a_.ep, a_.memory, 8, a_.peer, 1); }, "fi_tinject");
            drain(b_, 1);
        }
        COUNT_END("fi_trecv");
    }
    template <class Before>
    void read(const char* name, Side& side, ssize_t wanted, Before&& before)
    {
        fi_cq_tagged_entry entry;
        for (int i = -calls; i < calls; ++i) {
            before();
            if (i >= 0)
                COUNT_TOGGLE();
            ssize_t n = fi_cq_read(side.cq, &entry, 1);
            if (i >= 0)
                COUNT_TOGGLE();
            if (n != wanted)
                check(-FI_EOTHER, name);
        }
        COUNT_END(name);
    }
    void reads()
    {
        auto base = reinterpret_cast<std::uint64_t>(b_.memory);
        read("fi_cq_read, empty", a_, -FI_EAGAIN, [] {});
        read("fi_cq_read, entry of a write", a_, 1, [&] {
            again([&] { return fi_write(a_.ep, a_.memory, 8, nullptr, a_.peer, base, fi_mr_key(b_.mr), &context_); },
                  "fi_write");
        });
        read("fi_cq_read, entry of a tagged message", b_, 1, [&] {
            again([&] { return fi_trecv(b_.ep, b_.memory, 64, nullptr, b_.peer, 1, 0, &context_); }, "fi_trecv");
            again([&] { return fi_tinject(a_.ep, a_.memory, 8, a_.peer, 1); }, "fi_tinject");
        });
    }

    Side a_, b_;
    fi_context context_{};
};

} // namespace

int main()
{
    if (!can_count) {
        std::fprintf(stderr, "paths: built without valgrind/callgrind.h: nothing can be counted\n");
        return 77;
    }
    Paths().run();
    std::printf("calls\t%d\n", calls);
    return 0;
}
