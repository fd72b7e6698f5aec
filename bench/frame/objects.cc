// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See objects.h.
#include "objects.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <sys/mman.h>

namespace tofu::bench {

void check(long ret, const char* what)
{
    if (ret < 0) {
        std::fprintf(stderr, "bench: %s: %s\n", what, fi_strerror(int(-ret)));
        std::exit(1);
    }
}

char* map_pages(std::size_t bytes)
{
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(memory == MAP_FAILED ? -FI_ENOMEM : 0, "mmap");
    return static_cast<char*>(memory);
}

Objects::Objects(const Wishes& wishes)
{
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        wishes.keys == Keys::of_the_provider ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY : 0;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = hints->domain_attr->control_progress = wishes.progress;
    hints->fabric_attr->prov_name = strdup("tofu");
    check(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.size = wishes.queue_size;
    cq_attr.wait_obj = wishes.wait;
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
    check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
}

Objects::~Objects()
{
    for (fid_ep* one : ep)
        fi_close(&one->fid);
    for (fid_mr* one : mr)
        fi_close(&one->fid);
    fi_close(&cq->fid);
    fi_close(&av->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
}

fid_ep* Objects::add_endpoint(fid_cntr* writes)
{
    fid_ep* one = nullptr;
    check(fi_endpoint(domain, info, &one, nullptr), "fi_endpoint");
    check(fi_ep_bind(one, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(one, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    if (writes != nullptr)
        check(fi_ep_bind(one, &writes->fid, FI_WRITE), "fi_ep_bind");
    check(fi_enable(one), "fi_enable");
    ep.push_back(one);
    return one;
}

fid_mr* Objects::add_region(char* memory, std::size_t bytes, std::uint64_t key)
{
    fid_mr* one = nullptr;
    check(fi_mr_reg(domain, memory, bytes, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV, 0,
                    key, 0, &one, nullptr),
          "fi_mr_reg");
    mr.push_back(one);
    return one;
}

fi_addr_t Objects::insert(fid_ep* theirs) const
{
    char address[64];
    std::size_t length = sizeof(address);
    fi_addr_t place = FI_ADDR_UNSPEC;
    check(fi_getname(&theirs->fid, address, &length), "fi_getname");
    check(fi_av_insert(av, address, 1, &place, 0, nullptr), "fi_av_insert");
    return place;
}

int Objects::progress() const
{
    fi_cq_tagged_entry entries[32];
    ssize_t n = fi_cq_read(cq, entries, 32);
    if (n == -FI_EAGAIN) {
        sched_yield(); // the awaited process may have the same processor
        return 0;
    }
    check(n, "fi_cq_read");
    return int(n);
}

void Objects::finish(long entries) const
{
    for (long polls = 0; entries > 0; ++polls) {
        entries -= progress();
        check(polls > patience ? -FI_ETIMEDOUT : 0, "completions");
    }
}

} // namespace tofu::bench
