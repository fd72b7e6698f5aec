// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: the cases over raw utofu_* calls, as a uTofu program of one's own would do them: what the provider
// above is measured against. Called by: main.cc. Calls: the uTofu library, by dlopen.
#include "bench.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <sys/mman.h>

#include <utofu.h>

namespace tofu::bench {
namespace {

constexpr std::size_t window = 64;
constexpr std::size_t max_put = (1u << 24) - 1;

class Utofu final : public Transport {
  public:
    explicit Utofu(const char* library) : library_(library) {}

    bool open(Control& control, int side) override
    {
        void* lib = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (lib == nullptr) {
            std::fprintf(stderr, "bench: %s\n", dlerror());
            return false;
        }
        bool all = true;
        auto find = [&](auto& pointer, const char* name) {
            pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(lib, name));
            all = all && pointer != nullptr;
        };
        find(create_, "utofu_create_vcq");
        find(query_id_, "utofu_query_vcq_id");
        find(reg_, "utofu_reg_mem");
        find(dereg_, "utofu_dereg_mem");
        find(put_, "utofu_put");
        find(piggyback8_, "utofu_put_piggyback8");
        find(get_, "utofu_get");
        find(armw8_, "utofu_armw8");
        find(cswap8_, "utofu_cswap8");
        find(poll_tcq_, "utofu_poll_tcq");
        find(poll_mrq_, "utofu_poll_mrq");
        if (!all || create_(0, 0, &vcq_) != UTOFU_SUCCESS)
            return false;
        memory_ = static_cast<std::byte*>(mmap(nullptr, buffer_bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        struct Mine {
            utofu_vcq_id_t id;
            utofu_stadd_t stadd;
        };
        auto* mine = reinterpret_cast<Mine*>(control.exchange[side]);
        if (memory_ == MAP_FAILED || query_id_(vcq_, &mine->id) != UTOFU_SUCCESS ||
            reg_(vcq_, memory_, buffer_bytes, 0, &mine->stadd) != UTOFU_SUCCESS)
            return false;
        meet(control, side);
        auto* theirs = reinterpret_cast<Mine*>(control.exchange[1 - side]);
        local_ = mine->stadd;
        peer_ = theirs->id;
        remote_ = theirs->stadd;
        return true;
    }

    double run(Control& control, int side) override
    {
        control_ = &control;
        side_ = side;
        size_ = control.size;
        iterations_ = control.iterations;
        switch (CaseId(control.case_id)) {
        case write_latency:
        case message_latency: // what a message costs at least: its bytes put where the receiver looks
            return ping_pong();
        case write_bandwidth:
        case message_bandwidth:
            return side ? serve() : bandwidth(false);
        case read_bandwidth:
            return side ? serve() : bandwidth(true);
        case inject_rate:
        case message_rate:
            return side ? serve() : rate();
        case fetch_add:
            return side ? serve() : add();
        case compare_swap:
        case fetch_min: // its best case: one compare and swap
            return side ? serve() : swap();
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
    void check(int code, const char* what)
    {
        if (code != UTOFU_SUCCESS) {
            std::fprintf(stderr, "bench: utofu: %s: %d\n", what, code);
            std::exit(1);
        }
    }
    double serve()
    {
        meet(*control_, 1);
        while (!control_->stop.load(std::memory_order_acquire)) {
        }
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
    void wait_tcq(std::size_t count)
    {
        while (count > 0) {
            void* data;
            int code = poll_tcq_(vcq_, 0, &data);
            if (code == UTOFU_ERR_NOT_FOUND)
                continue;
            check(code, "poll_tcq");
            --count;
        }
    }
    std::uint64_t wait_mrq(std::size_t count)
    {
        utofu_mrq_notice notice{};
        while (count > 0) {
            int code = poll_mrq_(vcq_, 0, &notice);
            if (code == UTOFU_ERR_NOT_FOUND)
                continue;
            check(code, "poll_mrq");
            --count;
        }
        make_room();
        return notice.rmt_value;
    }
    // Without it the TOQ fills up, whether or not TCQ notices were asked for (guide 3.7).
    void make_room()
    {
        void* data;
        while (poll_tcq_(vcq_, 0, &data) != UTOFU_ERR_NOT_FOUND) {
        }
    }

    // The last eight bytes carry the round; strong order makes them arrive last.
    double ping_pong()
    {
        std::size_t tail = size_ - 8;
        auto* in = reinterpret_cast<volatile std::uint64_t*>(memory_ + tail);
        auto* out = reinterpret_cast<std::uint64_t*>(memory_ + buffer_bytes / 2 + tail);
        *in = 0;
        meet(*control_, side_);
        double start = now_ns();
        for (std::uint64_t i = 1; i <= iterations_; ++i) {
            if (side_ == 0)
                send(out, i);
            while (*in != i) {
            }
            if (side_ == 1)
                send(out, i);
        }
        double ns = now_ns() - start;
        meet(*control_, side_);
        return ns / double(iterations_) / 2;
    }
    void send(std::uint64_t* out, std::uint64_t value)
    {
        if (size_ == 8) {
            check(piggyback8_(vcq_, peer_, value, remote_, 8, 0, 0, nullptr), "put_piggyback8");
            make_room();
            return;
        }
        *out = value;
        check(put_(vcq_, peer_, local_ + buffer_bytes / 2, remote_, size_, 0,
                   UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr),
              "put");
        wait_tcq(1);
    }
    double bandwidth(bool reading)
    {
        std::size_t slots = buffer_bytes / size_ < window ? buffer_bytes / size_ : window;
        if (slots > 16 && size_ >= 65536)
            slots = 16;
        std::size_t rounds = (iterations_ + slots - 1) / slots;
        double ns = timed([&] {
            for (std::size_t round = 0; round < rounds; ++round) {
                std::size_t posts = 0;
                for (std::size_t slot = 0; slot < slots; ++slot)
                    for (std::size_t at = 0; at < size_; at += max_put, ++posts)
                        check((reading ? get_ : put_)(vcq_, peer_, local_ + slot * size_ + at,
                                                      remote_ + slot * size_ + at,
                                                      size_ - at < max_put ? size_ - at : max_put, 0,
                                                      UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
                              "put or get");
                wait_mrq(posts);
            }
        });
        return double(rounds * slots * size_) / ns * 1e9 / 1048576;
    }
    double rate()
    {
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; i += window) {
                for (std::size_t slot = 0; slot < window; ++slot)
                    if (size_ == 8)
                        check(piggyback8_(vcq_, peer_, i, remote_ + 8192, 8, 0,
                                          UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr),
                              "put_piggyback8");
                    else
                        check(put_(vcq_, peer_, local_, remote_ + slot * size_, size_, 0,
                                   UTOFU_ONESIDED_FLAG_TCQ_NOTICE, nullptr),
                              "put");
                wait_tcq(window);
            }
        });
        return double((iterations_ + window - 1) / window * window) / ns * 1e3;
    }
    double add()
    {
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                check(armw8_(vcq_, peer_, UTOFU_ARMW_OP_ADD, 1, remote_ + 8192, 0,
                             UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
                      "armw8");
                wait_mrq(1);
            }
        });
        return ns / double(iterations_);
    }
    double swap()
    {
        std::uint64_t seen = 0;
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                check(cswap8_(vcq_, peer_, seen, i, remote_ + 16384, 0,
                              UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
                      "cswap8");
                seen = wait_mrq(1);
            }
        });
        return ns / double(iterations_);
    }
    double poll()
    {
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                void* data;
                utofu_mrq_notice notice;
                if (poll_tcq_(vcq_, 0, &data) != UTOFU_ERR_NOT_FOUND ||
                    poll_mrq_(vcq_, 0, &notice) != UTOFU_ERR_NOT_FOUND)
                    std::exit(1);
            }
        });
        return ns / double(iterations_);
    }
    double registrations()
    {
        double ns = timed([&] {
            for (std::size_t i = 0; i < iterations_; ++i) {
                utofu_stadd_t stadd;
                check(reg_(vcq_, memory_ + 65536, size_, 0, &stadd), "reg_mem");
                check(dereg_(vcq_, stadd, 0), "dereg_mem");
            }
        });
        return ns / double(iterations_);
    }

    std::string library_;
    decltype(&::utofu_create_vcq) create_ = nullptr;
    decltype(&::utofu_query_vcq_id) query_id_ = nullptr;
    decltype(&::utofu_reg_mem) reg_ = nullptr;
    decltype(&::utofu_dereg_mem) dereg_ = nullptr;
    decltype(&::utofu_put) put_ = nullptr;
    decltype(&::utofu_put_piggyback8) piggyback8_ = nullptr;
    decltype(&::utofu_get) get_ = nullptr;
    decltype(&::utofu_armw8) armw8_ = nullptr;
    decltype(&::utofu_cswap8) cswap8_ = nullptr;
    decltype(&::utofu_poll_tcq) poll_tcq_ = nullptr;
    decltype(&::utofu_poll_mrq) poll_mrq_ = nullptr;

    std::byte* memory_ = nullptr;
    utofu_vcq_hdl_t vcq_ = 0;
    utofu_vcq_id_t peer_ = 0;
    utofu_stadd_t local_ = 0, remote_ = 0;
    Control* control_ = nullptr;
    int side_ = 0;
    std::size_t size_ = 0, iterations_ = 0;
};

} // namespace

Transport* make_utofu(const char* library)
{
    return new Utofu(library);
}

} // namespace tofu::bench
