// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A random libfabric program for exact mode, for tests/sim/tools/exact_random.sh. What each process does follows from
// the seed and its rank: messages of all protocols, RMA, atomics, collectives, reads of two queues and of a counter, in
// any order. Each step and each entry is printed with its time, to the file EXACT_OUT.RANK.
// EXACT_DISTURB=SEED: between calls it computes for a while that this seed decides. That may change nothing.
// EXACT_MEET: a name for files by which the processes learn their addresses.
//
// usage: exact_fabric SEED [MESSAGES]
#include "exact_program.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace {

void must(long rc, const char* what)
{
    if (rc != 0) {
        std::fprintf(stderr, "exact_fabric: %s: %s\n", what, fi_strerror(static_cast<int>(-rc)));
        std::_Exit(1);
    }
}

constexpr size_t room = 65536;      // of the window
constexpr unsigned words = 8;       // at its end, for atomics
constexpr unsigned collectives = 6; // the last one when all has been done
constexpr size_t sizes[] = {0, 8, 100, 1000, 4000, 8000, 16000, 70000, 300000};

struct Message {
    uint64_t from, to;
    size_t size;
    std::vector<unsigned char> bytes;
};

struct Peer {
    std::array<char, 256> name;
    size_t length;
    uint64_t key, base;
};

class Program {
  public:
    Program(uint64_t seed, unsigned messages)
        : rank_(number_of("TOFU_SIM_RANK", 0)), size_(number_of("TOFU_SIM_SIZE", 1)), common_(seed),
          own_(seed * 4099 + rank_ + 1), disturbance_(rank_), messages_(messages)
    {
        for (auto& m : messages_) {
            m.from = common_.below(size_);
            m.to = common_.below(size_);
            m.size = sizes[common_.below(common_.one_in(3) ? std::size(sizes) : 5)];
            if (m.from == rank_ || m.to == rank_)
                m.bytes.resize(m.size + 1);
        }
        for (auto& kind : kinds_)
            kind = common_.below(3);
        kinds_[collectives - 1] = 0;
    }

    void run()
    {
        disturbance_.burn(20);
        open();
        meet();
        join();
        uint64_t steps = 0;
        while (!all_posted() || done_ < posted_ || collectives_done_ < collectives) {
            step();
            steps++;
        }
        say("end: %llu steps, window %llx", (unsigned long long)steps,
            (unsigned long long)sum_of(window_, sizeof window_));
        close();
    }

  private:
    [[gnu::format(printf, 2, 3)]] void say(const char* format, ...)
    {
        timespec now{};
        (void)::clock_gettime(CLOCK_MONOTONIC, &now);
        std::printf("%llu.%llu %lld.%09ld ", (unsigned long long)rank_, (unsigned long long)++said_,
                    (long long)now.tv_sec, now.tv_nsec);
        va_list list;
        va_start(list, format);
        std::vprintf(format, list);
        va_end(list);
        std::putchar('\n');
        disturbance_.burn_in_one_of(40, 3);
    }

    // Milliseconds of processor time, at most.
    static uint64_t sum_of(const unsigned char* bytes, size_t size)
    {
        uint64_t sum = 1;
        for (size_t i = 0; i < size; i++)
            sum = (sum ^ bytes[i]) * 0x9e3779b97f4a7c15u + (sum >> 29);
        return sum;
    }

    void open()
    {
        fi_info* const hints = fi_allocinfo();
        hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_COLLECTIVE;
        hints->mode = FI_CONTEXT;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
        must(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info_), "fi_getinfo");
        fi_freeinfo(hints);
        must(fi_fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
        must(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
        fi_av_attr av{};
        av.type = FI_AV_TABLE;
        must(fi_av_open(domain_, &av, &av_, nullptr), "fi_av_open");
        fi_eq_attr eq{};
        eq.wait_obj = FI_WAIT_NONE;
        must(fi_eq_open(fabric_, &eq, &eq_, nullptr), "fi_eq_open");
        fi_cq_attr cq{};
        cq.format = FI_CQ_FORMAT_TAGGED;
        cq.wait_obj = FI_WAIT_NONE;
        for (auto& queue : queues_)
            must(fi_cq_open(domain_, &cq, &queue, nullptr), "fi_cq_open");
        fi_cntr_attr counter{};
        counter.events = FI_CNTR_EVENTS_COMP;
        counter.wait_obj = FI_WAIT_NONE;
        must(fi_cntr_open(domain_, &counter, &counter_, nullptr), "fi_cntr_open");
        must(fi_endpoint(domain_, info_, &ep_, nullptr), "fi_endpoint");
        must(fi_ep_bind(ep_, &av_->fid, 0), "fi_ep_bind");
        must(fi_ep_bind(ep_, &eq_->fid, 0), "fi_ep_bind");
        must(fi_ep_bind(ep_, &queues_[0]->fid, FI_TRANSMIT), "fi_ep_bind");
        must(fi_ep_bind(ep_, &queues_[1]->fid, FI_RECV), "fi_ep_bind");
        must(fi_ep_bind(ep_, &counter_->fid, FI_WRITE | FI_READ), "fi_ep_bind");
        must(fi_enable(ep_), "fi_enable");
        must(fi_mr_reg(domain_, window_, sizeof window_, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
                       &mr_, nullptr),
             "fi_mr_reg");
    }

    // Files that are written in a turn, and looked for between calls.
    void meet()
    {
        const std::string meet = std::getenv("EXACT_MEET");
        Peer own{};
        own.length = own.name.size();
        must(fi_getname(&ep_->fid, own.name.data(), &own.length), "fi_getname");
        own.key = fi_mr_key(mr_);
        own.base = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(window_) : 0;
        const std::string mine = meet + std::to_string(rank_);
        std::FILE* file = std::fopen((mine + ".new").c_str(), "w");
        if (file == nullptr || std::fwrite(&own, sizeof own, 1, file) != 1 || std::fclose(file) != 0 ||
            std::rename((mine + ".new").c_str(), mine.c_str()) != 0)
            must(-FI_EIO, "EXACT_MEET");
        for (uint64_t peer = 0; peer < size_; peer++) {
            while ((file = std::fopen((meet + std::to_string(peer)).c_str(), "r")) == nullptr)
                (void)::usleep(1000);
            peers_.push_back({});
            if (std::fread(&peers_.back(), sizeof(Peer), 1, file) != 1)
                must(-FI_EIO, "EXACT_MEET");
            (void)std::fclose(file);
            fi_addr_t at = 0;
            must(fi_av_insert(av_, peers_.back().name.data(), 1, &at, 0, nullptr) == 1 && at == peer ? 0 : -FI_EIO,
                 "fi_av_insert");
        }
    }

    void join()
    {
        fi_av_set_attr attr{};
        attr.count = size_;
        attr.start_addr = 0;
        attr.end_addr = size_ - 1;
        attr.stride = 1;
        must(fi_av_set(av_, &attr, &set_, nullptr), "fi_av_set");
        fi_addr_t address = 0;
        must(fi_av_set_addr(set_, &address), "fi_av_set_addr");
        must(fi_join_collective(ep_, address, set_, 0, &group_, nullptr), "fi_join_collective");
        uint32_t event = 0;
        fi_eq_entry entry{};
        while (fi_eq_read(eq_, &event, &entry, sizeof entry, 0) < 0) {
            (void)look(0);
            (void)look(1);
        }
        say("joined: %u", event);
    }

    // An entry, or false.
    bool look(unsigned queue)
    {
        fi_cq_tagged_entry e{};
        const ssize_t n = fi_cq_read(queues_[queue], &e, 1);
        if (n == -FI_EAGAIN)
            return false;
        if (n != 1) {
            fi_cq_err_entry error{};
            (void)fi_cq_readerr(queues_[queue], &error, 0);
            say("queue %u: %zd, error %d", queue, n, error.err);
            must(-FI_EIO, "fi_cq_read");
        }
        const size_t context = static_cast<fi_context*>(e.op_context) - contexts_.data();
        const Message* const m = context < messages_.size() ? &messages_[context] : nullptr;
        say("queue %u: %zu flags %llx length %zu tag %llu sum %llx", queue, context, (unsigned long long)e.flags, e.len,
            (unsigned long long)e.tag,
            queue == 1 && m != nullptr ? (unsigned long long)sum_of(m->bytes.data(), m->size) : 0ull);
        if (context == collective_context) {
            say("collective: %llu", (unsigned long long)result_);
            collectives_done_++;
        } else {
            done_++;
        }
        return true;
    }

    [[nodiscard]] bool all_posted() const
    {
        return sent_ == messages_.size() && received_ == messages_.size() && others_ == 0;
    }

    // What was posted, or could not be now.
    void posted(const char* what, ssize_t rc, uint64_t number)
    {
        say("%s %llu: %zd", what, (unsigned long long)number, rc);
        if (rc == 0)
            posted_++;
        else if (rc != -FI_EAGAIN)
            must(rc, what);
    }

    void send()
    {
        while (sent_ < messages_.size() && messages_[sent_].from != rank_)
            sent_++;
        if (sent_ == messages_.size())
            return;
        Message& m = messages_[sent_];
        std::fill(m.bytes.begin(), m.bytes.end(), static_cast<unsigned char>(sent_ + 1));
        // To itself: the receive has the same buffer, and the same bytes.
        const ssize_t rc = fi_tsend(ep_, m.bytes.data(), m.size, nullptr, m.to, sent_, &contexts_[sent_]);
        posted("send", rc, sent_);
        sent_ += rc == 0 ? 1 : 0;
    }

    void receive()
    {
        while (received_ < messages_.size() && messages_[received_].to != rank_)
            received_++;
        if (received_ == messages_.size())
            return;
        Message& m = messages_[received_];
        const ssize_t rc =
            fi_trecv(ep_, m.bytes.data(), m.bytes.size(), nullptr, FI_ADDR_UNSPEC, received_, 0, &contexts_[received_]);
        posted("receive", rc, received_);
        received_ += rc == 0 ? 1 : 0;
    }

    void access()
    {
        if (others_ == 0)
            return;
        const uint64_t to = own_.below(size_);
        const size_t size = sizes[1 + own_.below(own_.one_in(3) ? 6 : 3)];
        const uint64_t at = own_.below(room - words * 8 - size) / 8 * 8;
        const uint64_t word = room - 8 * (1 + own_.below(words));
        unsigned char* const here = buffers_[others_ % std::size(buffers_)];
        auto* const operand = reinterpret_cast<uint64_t*>(here);
        const Peer& p = peers_[to];
        void* const context = &contexts_[collective_context + others_];
        ssize_t rc = 0;
        switch (own_.below(5)) {
        case 0:
            std::memset(here, static_cast<int>(others_ + rank_), size);
            rc = fi_write(ep_, here, size, nullptr, to, p.base + at, p.key, context);
            break;
        case 1: rc = fi_read(ep_, here, size, nullptr, to, p.base + at, p.key, context); break;
        case 2:
            *operand = others_;
            rc = fi_atomic(ep_, operand, 1, nullptr, to, p.base + word, p.key, FI_UINT64, FI_SUM, context);
            break;
        case 3:
            *operand = others_;
            rc = fi_fetch_atomic(ep_, operand, 1, nullptr, operand + 1, nullptr, to, p.base + word, p.key, FI_UINT64,
                                 FI_BXOR, context);
            break;
        default:
            *operand = others_;
            operand[2] = 0;
            rc = fi_compare_atomic(ep_, operand, 1, nullptr, operand + 2, nullptr, operand + 1, nullptr, to,
                                   p.base + word, p.key, FI_UINT64, FI_CSWAP, context);
        }
        posted("access", rc, others_);
        others_ -= rc == 0 ? 1 : 0;
    }

    void collect()
    {
        if (collectives_posted_ > collectives_done_ || collectives_posted_ == collectives ||
            (collectives_posted_ == collectives - 1 && (!all_posted() || done_ < posted_)))
            return;
        const fi_addr_t group = fi_mc_addr(group_);
        fi_context* const context = &contexts_[collective_context];
        operand_ = rank_ + collectives_posted_;
        ssize_t rc = 0;
        switch (kinds_[collectives_posted_]) {
        case 0: rc = fi_barrier(ep_, group, context); break;
        case 1:
            rc = fi_allreduce(ep_, &operand_, 1, nullptr, &result_, nullptr, group, FI_UINT64, FI_SUM, 0, context);
            break;
        default: rc = fi_broadcast(ep_, &operand_, 1, nullptr, group, 0, FI_UINT64, 0, context);
        }
        say("collective %u: %zd", collectives_posted_, rc);
        if (rc == 0)
            collectives_posted_++;
        else if (rc != -FI_EAGAIN)
            must(rc, "collective");
    }

    void step()
    {
        switch (own_.below(12)) {
        case 0:
        case 1: send(); break;
        case 2:
        case 3: receive(); break;
        case 4:
        case 5: access(); break;
        case 6: collect(); break;
        case 7: say("counter: %llu", (unsigned long long)fi_cntr_read(counter_)); break;
        default:
            for (uint64_t i = own_.below(20), queue = own_.below(2); i > 0 && look(static_cast<unsigned>(queue)); i--) {
            }
        }
    }

    void close()
    {
        for (fid* const object : {&group_->fid, &set_->fid, &ep_->fid, &mr_->fid, &queues_[0]->fid, &queues_[1]->fid,
                                  &counter_->fid, &eq_->fid, &av_->fid, &domain_->fid, &fabric_->fid})
            must(fi_close(object), "fi_close");
        fi_freeinfo(info_);
        say("closed");
    }

    uint64_t rank_, size_;
    Dice common_, own_;
    Disturbance disturbance_;
    std::vector<Message> messages_;
    uint64_t kinds_[collectives];
    uint64_t said_ = 0;
    size_t sent_ = 0, received_ = 0; // messages that were posted, or are not ours
    size_t others_ = 60;             // accesses that are still to be posted
    uint64_t posted_ = 0, done_ = 0;
    unsigned collectives_posted_ = 0, collectives_done_ = 0;
    uint64_t operand_ = 0, result_ = 0;
    std::vector<Peer> peers_;
    static constexpr size_t collective_context = 1000;
    std::vector<fi_context> contexts_ = std::vector<fi_context>(collective_context + 100);
    alignas(256) unsigned char window_[room] = {};
    unsigned char buffers_[64][room] = {};

    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_eq* eq_ = nullptr;
    fid_cq* queues_[2] = {};
    fid_cntr* counter_ = nullptr;
    fid_ep* ep_ = nullptr;
    fid_mr* mr_ = nullptr;
    fid_av_set* set_ = nullptr;
    fid_mc* group_ = nullptr;
};

} // namespace

int main(int argc, char** argv)
{
    if (const char* const name = std::getenv("EXACT_OUT"); name != nullptr) {
        char path[256];
        std::snprintf(path, sizeof path, "%s.%s", name, std::getenv("TOFU_SIM_RANK"));
        if (std::freopen(path, "w", stdout) == nullptr)
            return 1;
        (void)std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    }
    static Program program(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1,
                           argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 60);
    program.run();
    return 0;
}
