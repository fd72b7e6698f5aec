// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How many operations the threads of a process do together (MPI_THREAD_MULTIPLE): each with a transmit context and a
// queue of its own, and all with one endpoint and one queue. Run by bench/run and by hand.
//
// A domain that is FI_THREAD_SAFE; each thread writes 8 bytes into memory of the same process, a window of writes at a
// time, and reads their completions. Prints a line a series for bench/report. Where there are fewer processors than
// threads, the most that can be hoped for is the rate of as many threads as there are processors.
#include "frame/objects.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rdma/fi_rma.h>
#include <sched.h>

namespace {

using namespace tofu::bench;
using Clock = std::chrono::steady_clock;

constexpr unsigned most_threads = 8;
constexpr unsigned window = 16; ///< writes under way of a thread
constexpr int rounds = 5;

/// What a thread posts to, and where it ends.
struct Way {
    fid_ep* ep;
    fid_cq* cq;
};

/// One domain with a target, an endpoint that all share, and a context for each.
class Contexts {
  public:
    Contexts()
    {
        fi_info* hints = fi_allocinfo();
        hints->caps = FI_RMA;
        hints->ep_attr->type = FI_EP_RDM;
        hints->ep_attr->tx_ctx_cnt = most_threads;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->domain_attr->threading = FI_THREAD_SAFE;
        hints->fabric_attr->prov_name = strdup("tofu");
        check(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_), "fi_getinfo");
        fi_freeinfo(hints);
        check(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
        check(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
        fi_av_attr attr{};
        attr.type = FI_AV_TABLE;
        check(fi_av_open(domain_, &attr, &av_, nullptr), "fi_av_open");
        check(fi_mr_reg(domain_, memory_, sizeof(memory_), FI_REMOTE_WRITE, 0, 0, 0, &mr_, nullptr), "fi_mr_reg");
        check(fi_scalable_ep(domain_, info_, &scalable_, nullptr), "fi_scalable_ep");
        check(fi_scalable_ep_bind(scalable_, &av_->fid, 0), "fi_scalable_ep_bind");
        for (unsigned t = 0; t < most_threads; t++) {
            Way& way = own_.emplace_back(Way{nullptr, open_queue()});
            check(fi_tx_context(scalable_, static_cast<int>(t), nullptr, &way.ep, nullptr), "fi_tx_context");
            check(fi_ep_bind(way.ep, &way.cq->fid, FI_TRANSMIT), "fi_ep_bind");
            check(fi_enable(way.ep), "fi_enable");
        }
        check(fi_enable(scalable_), "fi_enable");
        info_->ep_attr->tx_ctx_cnt = 1;
        shared_.cq = open_queue();
        check(fi_endpoint(domain_, info_, &shared_.ep, nullptr), "fi_endpoint");
        check(fi_ep_bind(shared_.ep, &av_->fid, 0), "fi_ep_bind");
        check(fi_ep_bind(shared_.ep, &shared_.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        check(fi_enable(shared_.ep), "fi_enable");
        char name[64];
        std::size_t length = sizeof(name);
        check(fi_getname(&shared_.ep->fid, name, &length), "fi_getname");
        check(fi_av_insert(av_, name, 1, nullptr, 0, nullptr), "fi_av_insert");
    }
    Contexts(const Contexts&) = delete;
    ~Contexts()
    {
        for (const Way& way : own_)
            fi_close(&way.ep->fid);
        fi_close(&scalable_->fid);
        fi_close(&shared_.ep->fid);
        for (const Way& way : own_)
            fi_close(&way.cq->fid);
        for (struct fid* one : {&shared_.cq->fid, &mr_->fid, &av_->fid, &domain_->fid, &fabric_->fid})
            fi_close(one);
        fi_freeinfo(info_);
    }

    /// Millions of writes in a second.
    double rate(unsigned threads, bool shared, std::chrono::milliseconds time)
    {
        std::atomic<bool> over{false};
        std::atomic<std::uint64_t> all{0};
        std::vector<std::thread> crew;
        const auto begin = Clock::now();
        for (unsigned t = 0; t < threads; t++)
            crew.emplace_back([&, t] {
                std::uint64_t done = 0;
                for (; !over; done += window)
                    write_window(shared ? shared_ : own_[t], t);
                all += done;
            });
        std::this_thread::sleep_for(time);
        over = true;
        for (std::thread& one : crew)
            one.join();
        return double(all) / std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }

  private:
    fid_cq* open_queue()
    {
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_CONTEXT;
        fid_cq* cq = nullptr;
        check(fi_cq_open(domain_, &attr, &cq, nullptr), "fi_cq_open");
        return cq;
    }
    /// Entries of a shared queue go to any reader: their contexts name the owner.
    void write_window(const Way& way, unsigned thread)
    {
        std::atomic<unsigned> left{window};
        std::uint64_t& word = memory_[8 * thread]; // on a line of its own
        std::uint64_t value = thread;
        unsigned posted = 0;
        for (long looks = 0; left != 0; looks++) {
            check(looks > Objects::patience ? -FI_ETIMEDOUT : 0, "completions");
            while (posted < window) {
                const ssize_t ret = fi_write(way.ep, &value, 8, nullptr, 0, reinterpret_cast<std::uintptr_t>(&word),
                                             fi_mr_key(mr_), &left);
                if (ret == -FI_EAGAIN)
                    break;
                check(ret, "fi_write");
                posted++;
            }
            fi_cq_entry entries[window];
            const ssize_t n = fi_cq_read(way.cq, entries, window);
            if (n == -FI_EAGAIN) {
                sched_yield(); // the owner of entries that another thread holds may have to run for that
                continue;
            }
            check(n, "fi_cq_read");
            for (ssize_t i = 0; i < n; i++)
                static_cast<std::atomic<unsigned>*>(entries[i].op_context)->fetch_sub(1);
        }
    }

    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_mr* mr_ = nullptr;
    fid_ep* scalable_ = nullptr;
    std::deque<Way> own_;
    Way shared_{};
    alignas(256) std::uint64_t memory_[8 * most_threads] = {};
};

} // namespace

int main(int argc, char** argv)
{
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const std::chrono::milliseconds time(quick ? 5 : 100);
    Contexts contexts;
    contexts.rate(2, true, time); // warms up
    for (const bool shared : {false, true})
        for (const unsigned threads : {1u, 2u, 4u, most_threads}) {
            std::string samples;
            for (int round = 0; round < (quick ? 1 : rounds); round++)
                samples += (round != 0 ? "," : "") + std::to_string(contexts.rate(threads, shared, time));
            std::printf("Threads\t8-byte write, %u thread%s, %s\t8\t1\tM/s\ttofu\t%s\n", threads,
                        threads > 1 ? "s" : "", shared ? "one endpoint for all" : "a context each", samples.c_str());
        }
    return 0;
}
