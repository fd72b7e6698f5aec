// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening and closing of libfabric's objects, and their progress.
#include "fabric.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tofu::bench {

Port::~Port()
{
    for (fid* object : {ep ? &ep->fid : nullptr, mr ? &mr->fid : nullptr, written ? &written->fid : nullptr,
                        remotely_written ? &remotely_written->fid : nullptr, cq ? &cq->fid : nullptr,
                        av ? &av->fid : nullptr, domain ? &domain->fid : nullptr, fabric ? &fabric->fid : nullptr})
        if (object != nullptr)
            fi_close(object);
    if (info != nullptr)
        fi_freeinfo(info);
}

bool Port::fail(const char* what, long code) const
{
    std::fprintf(stderr, "bench: %s: %s: %s\n", provider.c_str(), what, fi_strerror(int(-code)));
    return false;
}

bool Port::open(std::byte* buffer, std::size_t bytes)
{
    memory = buffer;
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | (kind == Kind::event ? FI_RMA_EVENT : 0);
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    // Not every provider has everything: without atomics, then without remote counters.
    int ret = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
    if (ret != 0) {
        atomics = false;
        hints->caps &= ~std::uint64_t(FI_ATOMIC);
        ret = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
    }
    if (ret != 0) {
        remote_counters = false;
        hints->caps &= ~std::uint64_t(FI_RMA_EVENT);
        ret = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
    }
    fi_freeinfo(hints);
    if (ret != 0)
        return fail("fi_getinfo", ret);

    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.size = 4096;
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    fi_cntr_attr cntr_attr{};
    cntr_attr.events = FI_CNTR_EVENTS_COMP;
    std::uint64_t selective = kind != Kind::queue ? FI_SELECTIVE_COMPLETION : 0;
    const char* at = "";
    auto done = [&](const char* what, int code) {
        at = what;
        ret = code;
        return ret == 0;
    };
    bool good = done("fi_fabric", fi_fabric(info->fabric_attr, &fabric, nullptr)) &&
                done("fi_domain", fi_domain(fabric, info, &domain, nullptr)) &&
                done("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr)) &&
                done("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr)) &&
                done("fi_endpoint", fi_endpoint(domain, info, &ep, nullptr)) &&
                done("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0)) &&
                done("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV | selective));
    if (good && kind != Kind::queue) {
        good = done("fi_cntr_open", fi_cntr_open(domain, &cntr_attr, &written, nullptr)) &&
               done("fi_ep_bind", fi_ep_bind(ep, &written->fid, FI_WRITE));
        if (good && kind == Kind::event && remote_counters)
            remote_counters = fi_cntr_open(domain, &cntr_attr, &remotely_written, nullptr) == 0 &&
                              fi_ep_bind(ep, &remotely_written->fid, FI_REMOTE_WRITE) == 0;
    }
    good = good && done("fi_enable", fi_enable(ep)) &&
           done("fi_mr_reg", fi_mr_reg(domain, memory, bytes,
                                       FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV, 0,
                                       77 + std::uint64_t(kind), 0, &mr, nullptr));
    return good || fail(at, ret);
}

namespace {

struct Told {
    std::uint64_t key, base;
    std::size_t length;
    std::uint8_t address[224];
};

} // namespace

bool Port::publish(std::uint8_t* told)
{
    auto* mine = reinterpret_cast<Told*>(told);
    mine->length = sizeof(mine->address);
    int ret = fi_getname(&ep->fid, mine->address, &mine->length);
    mine->key = fi_mr_key(mr);
    bool virt = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    mine->base = virt ? reinterpret_cast<std::uint64_t>(memory) : 0;
    return ret == 0 || fail("fi_getname", ret);
}

bool Port::insert(const std::uint8_t* told, int side)
{
    auto* theirs = reinterpret_cast<const Told*>(told);
    peers[side].key = theirs->key;
    peers[side].base = theirs->base;
    int ret = fi_av_insert(av, theirs->address, 1, &peers[side].address, 0, nullptr);
    return ret == 1 || fail("fi_av_insert", ret);
}

std::size_t Port::reap()
{
    fi_cq_tagged_entry entries[16];
    ssize_t n = fi_cq_read(cq, entries, 16);
    if (n == -FI_EAGAIN)
        return 0;
    if (n < 0) {
        fi_cq_err_entry error{};
        fi_cq_readerr(cq, &error, 0);
        std::fprintf(stderr, "bench: %s: completion error: %s\n", provider.c_str(), fi_strerror(error.err));
        std::exit(1);
    }
    for (ssize_t i = 0; i < n; ++i)
        ++(entries[i].flags & FI_RECV ? received : sent);
    return std::size_t(n);
}

void Port::progress()
{
    if (kind != Kind::queue)
        fi_cntr_read(written);
    reap();
}

void Port::wait(fid_cntr* counter, std::uint64_t count)
{
    while (fi_cntr_read(counter) < count)
        if (fi_cntr_readerr(counter) != 0) {
            std::fprintf(stderr, "bench: %s: a counted operation failed\n", provider.c_str());
            std::exit(1);
        }
}

} // namespace tofu::bench
