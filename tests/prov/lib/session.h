// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One process's objects of libfabric over the provider, and its peers' addresses and keys, for tests of several
// processes.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "hints.h"
#include "lib/harness.h"

namespace tofu::test {

using sim::test::Rank;

/// How a session is opened.
struct Options {
    std::uint64_t caps = FI_RMA;
    int mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    std::uint64_t tx_order = 0;
    std::uint64_t tx_op_flags = 0;
    fi_threading threading = FI_THREAD_SAFE;
    fi_progress progress = FI_PROGRESS_MANUAL;
    fi_wait_obj wait = FI_WAIT_NONE; ///< of the queue
    bool selective = false;
    bool counters = false;       ///< read, write and, with FI_RMA_EVENT, remote_read, remote_write
    bool transmits_only = false; ///< the queue is bound for FI_TRANSMIT alone
    bool enable = true;
    bool leaves_together = true; ///< the destructor waits for all ranks first
};

/// A window of memory of a peer.
struct Window {
    std::uint64_t base; ///< remote address of its first byte
    std::uint64_t key;
};

/// Opens everything, inserts all ranks (fi_addr_t is the rank), closes all in order. Words 0 ... 511 of the
/// board belong to it.
class Session {
  public:
    Session(const Rank& rank, const Options& options = {}) : rank(rank), options(options)
    {
        info = must_find([&](fi_info& hints) {
            hints.caps = options.caps;
            hints.domain_attr->mr_mode = options.mr_mode;
            hints.domain_attr->threading = options.threading;
            hints.domain_attr->data_progress = options.progress;
            hints.tx_attr->msg_order = options.tx_order;
            hints.tx_attr->op_flags = options.tx_op_flags;
            hints.rx_attr->msg_order = options.tx_order;
        });
        check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
        check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
        fi_cq_attr cq_attr{};
        cq_attr.format = FI_CQ_FORMAT_DATA;
        cq_attr.size = 4096;
        cq_attr.wait_obj = options.wait;
        check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
        check(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
        check(fi_ep_bind(ep, &av->fid, 0), "bind av");
        check(fi_ep_bind(ep, &cq->fid,
                         FI_TRANSMIT | (options.transmits_only ? 0 : FI_RECV) |
                             (options.selective ? FI_SELECTIVE_COMPLETION : 0)),
              "bind cq");
        if (options.counters) {
            fi_cntr_attr attr{};
            const std::uint64_t flags[] = {FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
            for (int i = 0; i < ((options.caps & FI_RMA_EVENT) != 0 ? 4 : 2); i++) {
                check(fi_cntr_open(domain, &attr, &counter[i], nullptr), "fi_cntr_open");
                check(fi_ep_bind(ep, &counter[i]->fid, flags[i]), "bind cntr");
            }
        }
        if (options.enable) {
            check(fi_enable(ep), "fi_enable");
            exchange_addresses();
        }
    }
    ~Session()
    {
        if (options.leaves_together)
            barrier();
        for (fid_mr* mr : regions)
            EXPECT_EQ(fi_close(&mr->fid), 0);
        if (ep != nullptr)
            EXPECT_EQ(fi_close(&ep->fid), 0);
        for (fid_cntr* c : counter)
            if (c != nullptr)
                EXPECT_EQ(fi_close(&c->fid), 0);
        EXPECT_EQ(fi_close(&cq->fid), 0);
        EXPECT_EQ(fi_close(&av->fid), 0);
        EXPECT_EQ(fi_close(&domain->fid), 0);
        EXPECT_EQ(fi_close(&fabric->fid), 0);
        fi_freeinfo(info);
    }

    static void check(int ret, const char* what)
    {
        if (ret != 0) {
            ADD_FAILURE() << what << ": " << fi_strerror(-ret);
            std::fprintf(stderr, "%s: %s\n", what, fi_strerror(-ret));
            std::_Exit(1);
        }
    }

    /// All ranks; makes no progress.
    void barrier() { rank.barrier(); }

    /// Inserts the addresses of all ranks, or of these; an address is its rank. Collective.
    void exchange_addresses(std::vector<unsigned> ranks = {})
    {
        char name[64];
        std::size_t length = sizeof(name);
        check(fi_getname(&ep->fid, name, &length), "fi_getname");
        ASSERT_LE(length, 32u);
        std::uint64_t words[4] = {};
        std::memcpy(words, name, length);
        for (unsigned i = 0; i < 4; i++)
            rank.set(rank.number * 4 + i, words[i]);
        barrier();
        if (ranks.empty())
            for (unsigned r = 0; r < rank.size; r++)
                ranks.push_back(r);
        for (const unsigned r : ranks) {
            for (unsigned i = 0; i < 4; i++)
                words[i] = rank.get(r * 4 + i);
            fi_addr_t at = 0;
            ASSERT_EQ(fi_av_insert(av, words, 1, &at, 0, nullptr), 1);
            ASSERT_EQ(at, r);
        }
        barrier();
    }

    fid_mr* reg(void* address, std::size_t length, std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE,
                std::uint64_t key = 0)
    {
        fid_mr* mr = nullptr;
        check(fi_mr_reg(domain, address, length, access, 0, key, 0, &mr, nullptr), "fi_mr_reg");
        regions.push_back(mr);
        return mr;
    }

    /// Registers, publishes, and returns the data of the others. Collective. Words 512 ...
    std::vector<Window> share(void* address, std::size_t length,
                              std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE, std::uint64_t key = 0)
    {
        fid_mr* mr = reg(address, length, access, key);
        const bool addresses = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
        rank.set(512 + rank.number * 2, addresses ? reinterpret_cast<std::uint64_t>(address) : 0);
        rank.set(513 + rank.number * 2, fi_mr_key(mr));
        barrier();
        std::vector<Window> all;
        for (unsigned r = 0; r < rank.size; r++)
            all.push_back({rank.get(512 + r * 2), rank.get(513 + r * 2)});
        barrier();
        return all;
    }

    /// Calls until it is no longer refused for lack of room, reading no completion but driving progress.
    template <class Call>
    ssize_t post(Call&& call)
    {
        ssize_t ret = -FI_EAGAIN;
        static_cast<void>(sim::test::wait_until([&] {
            ret = call();
            if (ret == -FI_EAGAIN)
                fi_cq_read(cq, nullptr, 0);
            return ret != -FI_EAGAIN;
        }));
        return ret;
    }

    /// The next entry; false when none comes in time. Errors come with `error`.
    bool next(fi_cq_data_entry& entry, fi_cq_err_entry* error = nullptr)
    {
        ssize_t ret = 0;
        const bool came = sim::test::wait_until([&] {
            ret = fi_cq_read(cq, &entry, 1);
            return ret != -FI_EAGAIN;
        });
        if (!came) {
            ADD_FAILURE() << "no completion";
            return false;
        }
        if (ret == 1) {
            if (error != nullptr)
                ADD_FAILURE() << "a success instead of an error";
            return error == nullptr;
        }
        fi_cq_err_entry e{};
        EXPECT_EQ(ret, -FI_EAVAIL);
        EXPECT_EQ(fi_cq_readerr(cq, &e, 0), 1);
        if (error == nullptr) {
            ADD_FAILURE() << "error entry: " << fi_strerror(e.err) << ", uTofu " << e.prov_errno;
            return false;
        }
        *error = e;
        return true;
    }
    /// One success with this context and these flags.
    void expect(void* context, std::uint64_t flags)
    {
        fi_cq_data_entry entry{};
        if (next(entry)) {
            EXPECT_EQ(entry.op_context, context);
            EXPECT_EQ(entry.flags & flags, flags);
        }
    }
    /// The queue is empty after some rounds of progress.
    void expect_silence()
    {
        fi_cq_data_entry entry{};
        for (int i = 0; i < 100; i++)
            ASSERT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
    }

    const Rank& rank;
    Options options;
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_ep* ep = nullptr;
    fid_cntr* counter[4] = {};
    std::vector<fid_mr*> regions;
};

enum { read_counter, write_counter, remote_read_counter, remote_write_counter };

} // namespace tofu::test
