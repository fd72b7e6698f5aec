// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the cases over libfabric, the same code for every provider. Called by: main.cc. Calls: fi_*.
#include "bench.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/mman.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

namespace tofu::bench {
namespace {

constexpr std::size_t window = 64;

class Fabric final : public Transport {
  public:
    explicit Fabric(const char* provider) : provider_(provider) {}

    // In order, so that providers with files in /dev/shm remove them.
    ~Fabric() override
    {
        for (fid* object : {ep_ ? &ep_->fid : nullptr, mr_ ? &mr_->fid : nullptr, cq_ ? &cq_->fid : nullptr,
                            av_ ? &av_->fid : nullptr, domain_ ? &domain_->fid : nullptr,
                            fabric_ ? &fabric_->fid : nullptr})
            if (object != nullptr)
                fi_close(object);
        if (info_ != nullptr)
            fi_freeinfo(info_);
    }

    bool open(Control& control, int side) override
    {
        if (!open_objects() || !open_memory())
            return false;
        return connect(control, side);
    }

    double run(Control& control, int side) override
    {
        control_ = &control;
        side_ = side;
        size_ = control.size;
        iterations_ = control.iterations;
        switch (CaseId(control.case_id)) {
        case write_latency:
            return write_ping_pong();
        case write_bandwidth:
            return side ? serve() : one_sided_bandwidth(&Fabric::post_write);
        case read_bandwidth:
            return side ? serve() : one_sided_bandwidth(&Fabric::post_read);
        case inject_rate:
            return side ? serve() : inject();
        case fetch_add:
            return side ? serve() : fetch(FI_SUM);
        case fetch_min:
            return side ? serve() : fetch(FI_MIN);
        case compare_swap:
            return side ? serve() : compare();
        case message_latency:
            return message_ping_pong();
        case message_rate:
            return message_stream() * 1e3;
        case message_bandwidth:
            return message_stream() * double(size_) * 1e9 / 1048576;
        case poll_empty:
            return side ? serve() : poll();
        case registration:
            return side ? serve() : registrations();
        case case_count:
            break;
        }
        return -1;
    }

  private:
    bool fail(const char* what, long code)
    {
        std::fprintf(stderr, "bench: %s: %s: %s\n", provider_.c_str(), what, fi_strerror(int(-code)));
        return false;
    }

    bool open_objects()
    {
        fi_info* hints = fi_allocinfo();
        hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
        hints->mode = FI_CONTEXT;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        hints->fabric_attr->prov_name = strdup(provider_.c_str());
        int ret = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_);
        if (ret != 0) {
            atomics_ = false; // tcp;ofi_rxm has none
            hints->caps &= ~std::uint64_t(FI_ATOMIC);
            ret = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_);
        }
        fi_freeinfo(hints);
        if (ret != 0)
            return fail("fi_getinfo", ret);
        fi_cq_attr cq_attr{};
        cq_attr.format = FI_CQ_FORMAT_TAGGED;
        cq_attr.size = 4096;
        fi_av_attr av_attr{};
        av_attr.type = FI_AV_TABLE;
        if ((ret = fi_fabric(info_->fabric_attr, &fabric_, nullptr)) != 0)
            return fail("fi_fabric", ret);
        if ((ret = fi_domain(fabric_, info_, &domain_, nullptr)) != 0)
            return fail("fi_domain", ret);
        if ((ret = fi_av_open(domain_, &av_attr, &av_, nullptr)) != 0)
            return fail("fi_av_open", ret);
        if ((ret = fi_cq_open(domain_, &cq_attr, &cq_, nullptr)) != 0)
            return fail("fi_cq_open", ret);
        if ((ret = fi_endpoint(domain_, info_, &ep_, nullptr)) != 0)
            return fail("fi_endpoint", ret);
        if ((ret = fi_ep_bind(ep_, &av_->fid, 0)) != 0 ||
            (ret = fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV)) != 0)
            return fail("fi_ep_bind", ret);
        if ((ret = fi_enable(ep_)) != 0)
            return fail("fi_enable", ret);
        return true;
    }

    bool open_memory()
    {
        memory_ = static_cast<std::byte*>(mmap(nullptr, buffer_bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        if (memory_ == MAP_FAILED)
            return false;
        int ret = fi_mr_reg(domain_, memory_, buffer_bytes,
                            FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV, 0,
                            77, 0, &mr_, nullptr);
        return ret == 0 || fail("fi_mr_reg", ret);
    }

    bool connect(Control& control, int side)
    {
        struct Mine {
            std::uint64_t key, base;
            std::size_t length;
            std::uint8_t address[224];
        };
        auto* mine = reinterpret_cast<Mine*>(control.exchange[side]);
        mine->length = sizeof(mine->address);
        int ret = fi_getname(&ep_->fid, mine->address, &mine->length);
        if (ret != 0)
            return fail("fi_getname", ret);
        mine->key = fi_mr_key(mr_);
        bool virt = info_->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
        mine->base = virt ? reinterpret_cast<std::uint64_t>(memory_) : 0;
        meet(control, side);
        auto* theirs = reinterpret_cast<Mine*>(control.exchange[1 - side]);
        key_ = theirs->key;
        base_ = theirs->base;
        ret = fi_av_insert(av_, theirs->address, 1, &peer_, 0, nullptr);
        return ret == 1 || fail("fi_av_insert", ret);
    }

    // --- progress and completions
    std::size_t reap()
    {
        fi_cq_tagged_entry entries[16];
        ssize_t n = fi_cq_read(cq_, entries, 16);
        if (n == -FI_EAGAIN)
            return 0;
        if (n < 0) {
            fi_cq_err_entry error{};
            fi_cq_readerr(cq_, &error, 0);
            std::fprintf(stderr, "bench: %s: completion error: %s\n", provider_.c_str(),
                         fi_strerror(error.err));
            std::exit(1);
        }
        for (ssize_t i = 0; i < n; ++i)
            ++(entries[i].flags & FI_RECV ? received_ : sent_);
        return std::size_t(n);
    }
    template <class F>
    void post(F&& f)
    {
        for (ssize_t ret; (ret = f()) != 0;) {
            if (ret != -FI_EAGAIN) {
                fail("post", ret);
                std::exit(1);
            }
            reap();
        }
    }
    // Waits for completions of posts and of receives, those seen while posting included.
    void settle(std::size_t sent, std::size_t received = 0)
    {
        while (sent_ < sent || received_ < received)
            reap();
        sent_ -= sent;
        received_ -= received;
    }
    double serve()
    {
        meet(*control_, 1);
        while (!control_->stop.load(std::memory_order_acquire))
            reap();
        return 0;
    }
    template <class F>
    double timed(F&& f)
    {
        meet(*control_, 0);
        double start = now_ns();
        f();
        double ns = now_ns() - start;
        control_->stop.store(1, std::memory_order_release);
        return ns;
    }

    // --- cases
    double write_ping_pong()
    {
        // word 0 is written by the peer, word 64 is where it came from
        auto* in = reinterpret_cast<volatile std::uint64_t*>(memory_);
        auto* out = reinterpret_cast<std::uint64_t*>(memory_ + 4096);
        *in = 0;
        meet(*control_, side_);
        double start = now_ns();
        for (std::uint64_t i = 1; i <= iterations_; ++i) {
            if (side_ == 0)
                send_word(out, i);
            while (*in != i)
                if (!one_sided())
                    reap();
            if (side_ == 1)
                send_word(out, i);
        }
        double ns = now_ns() - start;
        meet(*control_, side_);
        return ns / double(iterations_) / 2;
    }
    void send_word(std::uint64_t* out, std::uint64_t value)
    {
        *out = value;
        post([&] { return fi_inject_write(ep_, out, 8, peer_, base_, key_); });
    }
    // Providers that execute at the target need its progress; ours does not: then it only polls memory.
    bool one_sided() const { return provider_ == "tofu"; }

    ssize_t post_write(std::size_t slot)
    {
        return fi_write(ep_, memory_ + slot * size_, size_, fi_mr_desc(mr_), peer_, base_ + slot * size_,
                        key_, &contexts_[slot]);
    }
    ssize_t post_read(std::size_t slot)
    {
        return fi_read(ep_, memory_ + slot * size_, size_, fi_mr_desc(mr_), peer_, base_ + slot * size_,
                       key_, &contexts_[slot]);
    }
    double one_sided_bandwidth(ssize_t (Fabric::*operation)(std::size_t))
    {
        std::size_t slots = buffer_bytes / size_ < window ? buffer_bytes / size_ : window;
        if (slots > 16 && size_ >= 65536)
            slots = 16;
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; i += slots) {
                for (std::size_t slot = 0; slot < slots; ++slot)
                    post([&] { return (this->*operation)(slot); });
                settle(slots);
            }
        });
        std::size_t rounds = (iterations_ + slots - 1) / slots;
        return double(rounds * slots * size_) / ns * 1e9 / 1048576;
    }
    double inject()
    {
        std::uint64_t word = 1;
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i)
                post([&] { return fi_inject_write(ep_, &word, 8, peer_, base_ + 8192, key_); });
        });
        return double(iterations_) / ns * 1e3;
    }
    double fetch(fi_op op)
    {
        if (!atomics_) {
            timed([] {});
            return -1;
        }
        auto* operand = reinterpret_cast<std::uint64_t*>(memory_ + 4096);
        auto* result = operand + 8;
        *operand = op == FI_SUM ? 1 : 1u << 30;
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                if (op == FI_MIN)
                    --*operand; // so that every operation changes the word
                post([&] {
                    return fi_fetch_atomic(ep_, operand, 1, fi_mr_desc(mr_), result, fi_mr_desc(mr_), peer_,
                                           base_ + 8192, key_, FI_UINT64, op, &contexts_[0]);
                });
                settle(1);
            }
        });
        return ns / double(iterations_);
    }
    double compare()
    {
        if (!atomics_) {
            timed([] {});
            return -1;
        }
        auto* operand = reinterpret_cast<std::uint64_t*>(memory_ + 4096);
        auto* result = operand + 8;
        auto* expected = operand + 16;
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                *expected = *result;
                *operand = i;
                post([&] {
                    return fi_compare_atomic(ep_, operand, 1, fi_mr_desc(mr_), expected, fi_mr_desc(mr_),
                                             result, fi_mr_desc(mr_), peer_, base_ + 16384, key_, FI_UINT64,
                                             FI_CSWAP, &contexts_[0]);
                });
                settle(1);
            }
        });
        return ns / double(iterations_);
    }
    double message_ping_pong()
    {
        std::byte* in = memory_ + buffer_bytes / 2;
        bool small = size_ <= 64;
        post_receive(in, 0);
        meet(*control_, side_);
        double start = now_ns();
        for (std::size_t i = 0; i < iterations_; ++i) {
            if (side_ == 0)
                send(small, 0);
            settle(side_ == 0 && !small, 1);
            if (i + 1 < iterations_)
                post_receive(in, 0);
            if (side_ == 1) {
                send(small, 0);
                if (!small)
                    settle(1);
            }
        }
        double ns = now_ns() - start;
        drain();
        return ns / double(iterations_) / 2;
    }
    void send(bool small, std::size_t slot)
    {
        if (small)
            post([&] { return fi_tinject(ep_, memory_, size_, peer_, 5); });
        else
            post([&] {
                return fi_tsend(ep_, memory_ + slot * size_, size_, fi_mr_desc(mr_), peer_, 5,
                                &contexts_[slot]);
            });
    }
    void post_receive(std::byte* in, std::size_t slot)
    {
        post([&] {
            return fi_trecv(ep_, in + slot * size_, size_, fi_mr_desc(mr_), peer_, 5, 0,
                            &contexts_[window + slot]);
        });
    }
    // Messages per nanosecond: windows of sends, each answered by one empty message.
    double message_stream()
    {
        std::byte* half = memory_ + buffer_bytes / 2;
        std::size_t slots = buffer_bytes / 2 / size_ < window ? buffer_bytes / 2 / size_ : window;
        if (slots > 16 && size_ >= 65536)
            slots = 16;
        std::size_t rounds = (iterations_ + slots - 1) / slots;
        meet(*control_, side_);
        double start = now_ns();
        for (std::size_t round = 0; round < rounds; ++round) {
            if (side_ == 0) {
                post([&] {
                    return fi_trecv(ep_, nullptr, 0, nullptr, peer_, 6, 0, &contexts_[2 * window]);
                });
                for (std::size_t slot = 0; slot < slots; ++slot)
                    send(false, slot);
                settle(slots, 1);
            } else {
                for (std::size_t slot = 0; slot < slots; ++slot)
                    post_receive(half, slot);
                settle(0, slots);
                post([&] { return fi_tinject(ep_, memory_, 0, peer_, 6); });
            }
        }
        double ns = now_ns() - start;
        drain();
        return double(rounds * slots) / ns;
    }
    // Keeps the other side's last message moving until both are through.
    void drain()
    {
        std::uint32_t mine = control_->meet[side_].fetch_add(1, std::memory_order_acq_rel) + 1;
        while (control_->meet[1 - side_].load(std::memory_order_acquire) < mine)
            reap();
    }
    double poll()
    {
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i)
                reap();
        });
        return ns / double(iterations_);
    }
    double registrations()
    {
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                fid_mr* mr = nullptr;
                if (fi_mr_reg(domain_, memory_, size_, FI_REMOTE_WRITE, 0, 1000, 0, &mr, nullptr) != 0)
                    std::exit(1);
                fi_close(&mr->fid);
            }
        });
        return ns / double(iterations_);
    }

    std::string provider_;
    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_cq* cq_ = nullptr;
    fid_ep* ep_ = nullptr;
    fid_mr* mr_ = nullptr;
    std::byte* memory_ = nullptr;
    fi_addr_t peer_ = FI_ADDR_UNSPEC;
    std::uint64_t key_ = 0, base_ = 0;
    bool atomics_ = true;
    Control* control_ = nullptr;
    int side_ = 0;
    std::size_t size_ = 0, iterations_ = 0, sent_ = 0, received_ = 0;
    fi_context contexts_[2 * window + 1] = {};
};

} // namespace

Transport* make_fabric(const char* provider)
{
    return new Fabric(provider);
}

} // namespace tofu::bench
