// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Objects of libfabric in one process, for tests of queues, counters, addresses and waiting: endpoints that talk to
// each other.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "prov/lib/hints.h"
#include "prov/lib/statistics.h"

namespace tofu::test {

/// What the objects are opened with.
struct Wishes {
    std::uint64_t caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
    std::uint32_t addr_format = FI_FORMAT_UNSPEC;
    fi_threading threading = FI_THREAD_SAFE;
    fi_progress progress = FI_PROGRESS_MANUAL; ///< of data
    fi_progress control = FI_PROGRESS_MANUAL;
    int mr_mode = 0;
    std::string service; ///< not empty: FI_SOURCE with this service
    std::uint32_t version = FI_VERSION(1, 17);
};

/// Fabric and domain; endpoints are added by add().
class Objects {
  public:
    /// `lasting`: a fabric of the caller's, which outlives these objects, or null.
    explicit Objects(const Wishes& wishes = {}, fid_fabric* lasting = nullptr)
        : fabric(lasting), owns_fabric_(lasting == nullptr)
    {
        const bool named = !wishes.service.empty();
        info = must_find(
            [&](fi_info& hints) {
                hints.caps = wishes.caps;
                hints.addr_format = wishes.addr_format;
                hints.domain_attr->mr_mode = wishes.mr_mode;
                hints.domain_attr->threading = wishes.threading;
                hints.domain_attr->data_progress = wishes.progress;
                hints.domain_attr->control_progress = wishes.control;
            },
            wishes.version, named ? wishes.service.c_str() : nullptr, named ? FI_SOURCE : 0);
        if (owns_fabric_)
            must(fi_fabric(info->fabric_attr, &fabric, nullptr));
        must(fi_domain(fabric, info, &domain, nullptr));
        fi_av_attr attr{};
        must(fi_av_open(domain, &attr, &av, nullptr));
    }
    ~Objects()
    {
        for (fid_ep* ep : endpoints)
            EXPECT_EQ(fi_close(&ep->fid), 0);
        for (struct fid* object : others)
            EXPECT_EQ(fi_close(object), 0);
        EXPECT_EQ(fi_close(&av->fid), 0);
        EXPECT_EQ(fi_close(&domain->fid), 0);
        if (owns_fabric_)
            EXPECT_EQ(fi_close(&fabric->fid), 0);
        fi_freeinfo(info);
    }
    static void must(int result)
    {
        if (result != 0) {
            std::fprintf(stderr, "cannot go on: %s\n", fi_strerror(-result));
            std::abort();
        }
    }

    /// An endpoint that sends through a shared context. No peer has its address; the caller closes it.
    fid_ep* open_sharing(fid_stx* context, fid_cq* cq)
    {
        info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
        fid_ep* ep = nullptr;
        must(fi_endpoint(domain, info, &ep, nullptr));
        must(fi_ep_bind(ep, &context->fid, 0));
        must(fi_ep_bind(ep, &av->fid, 0));
        must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
        must(fi_enable(ep));
        return ep;
    }
    fid_cq* open_queue(fi_wait_obj wait = FI_WAIT_NONE, fi_cq_format format = FI_CQ_FORMAT_TAGGED, std::size_t size = 0,
                       fid_wait* set = nullptr)
    {
        fi_cq_attr attr{};
        attr.wait_obj = wait;
        attr.format = format;
        attr.size = size;
        attr.wait_set = set;
        fid_cq* cq = nullptr;
        must(fi_cq_open(domain, &attr, &cq, this));
        others.push_back(&cq->fid);
        return cq;
    }
    fid_cntr* open_counter(fi_wait_obj wait = FI_WAIT_UNSPEC, fid_wait* set = nullptr)
    {
        fi_cntr_attr attr{};
        attr.wait_obj = wait;
        attr.wait_set = set;
        fid_cntr* cntr = nullptr;
        must(fi_cntr_open(domain, &attr, &cntr, this));
        others.push_back(&cntr->fid);
        return cntr;
    }
    /// An endpoint that completes into these, enabled, and known to all under the address that is its number.
    fid_ep* add(fid_cq* tx, fid_cq* rx, fid_cntr* receives = nullptr, std::uint64_t tx_flags = 0)
    {
        fid_ep* ep = nullptr;
        must(fi_endpoint(domain, info, &ep, nullptr));
        must(fi_ep_bind(ep, &av->fid, 0));
        must(fi_ep_bind(ep, &tx->fid, FI_TRANSMIT | tx_flags));
        must(fi_ep_bind(ep, &rx->fid, FI_RECV));
        if (receives != nullptr)
            must(fi_ep_bind(ep, &receives->fid, FI_RECV));
        must(fi_enable(ep));
        endpoints.push_back(ep);
        char name[64];
        std::size_t length = sizeof(name);
        must(fi_getname(&ep->fid, name, &length));
        EXPECT_EQ(fi_av_insert(av, name, 1, nullptr, 0, nullptr), 1);
        return ep;
    }
    /// Repeats a post until it is taken.
    template <class Post>
    static void post(fid_cq* cq, Post&& call)
    {
        for (int i = 0; i < 10000000; i++) {
            const ssize_t result = call();
            if (result == 0)
                return;
            ASSERT_EQ(result, -FI_EAGAIN);
            fi_cq_read(cq, nullptr, 0);
        }
        FAIL() << "never taken";
    }

    /// A number of the domain's statistics.
    [[nodiscard]] std::uint64_t counted(const std::string& name) const { return test::counted(domain, name); }

    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    std::vector<fid_ep*> endpoints;
    std::vector<struct fid*> others;

  private:
    const bool owns_fabric_;
};

/// Repeats `done` until it holds, ten seconds at most.
template <class Done>
bool eventually(Done&& done)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done())
        if (std::chrono::steady_clock::now() > end)
            return false;
    return true;
}

/// CPU time of this process in seconds.
inline double cpu_seconds()
{
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

} // namespace tofu::test
