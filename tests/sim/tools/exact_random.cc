// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A random uTofu program for exact mode, for tests/sim/tools/exact_random.sh. What each process does follows from the
// seed and its rank: it creates and frees VCQs, registers memory, posts all kinds of operations to VCQs of all
// processes (which may not exist yet, or not any more), polls, waits, allocates gates and takes part in rounds, and
// ends in some way. Each step is printed with its time and its result, to the file EXACT_OUT.RANK.
// EXACT_DISTURB=SEED: between calls it computes for a while that this seed decides. That may change nothing.
// EXACT_REPLACE=1: other programs take the place of some processes (execve), and process 0 ends last.
//
// usage: exact_random SEED [STEPS]
#include "exact_program.h"

#include <tofu_sim.h>
#include <utofu.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <sched.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr unsigned tnis = 2;
constexpr unsigned places = 3;     // of VCQs, on each TNI
constexpr size_t room = 64 * 1024; // of each region
constexpr unsigned regions = 2;    // with steering tags that all know
constexpr unsigned cqs_of_a_tni = 9;

struct Place {
    utofu_vcq_hdl_t vcq;
    bool live;
    bool session;
    utofu_stadd_t own; // of `source`, registered without a tag
};

class Program {
  public:
    Program(uint64_t seed, unsigned steps) noexcept
        : rank_(number_of("TOFU_SIM_RANK", 0)), size_(number_of("TOFU_SIM_SIZE", 1)), common_(seed),
          own_(seed * 4099 + rank_ + 1), disturbance_(rank_), steps_(steps)
    {
        ppn_ = std::max<uint64_t>(1, number_of("TOFU_SIM_PPN", 1));
        meet_ = std::getenv("TOFU_SIM_CQS") != nullptr;
        has_sessions_ = common_.one_in(3);
        has_gates_ = common_.one_in(2);
    }

    void run() noexcept
    {
        disturbance_.burn(20);
        for (unsigned i = 0, n = 1 + own_.below(3); i < n; i++)
            create();
        if (has_gates_)
            wire_gates();
        const unsigned mine = steps_ / 2 + own_.below(steps_);
        for (unsigned i = 0; i < mine; i++)
            step();
        end();
    }

    [[nodiscard]] uint64_t rank() const noexcept { return rank_; }
    [[nodiscard]] bool is_replaced() noexcept { return own_.one_in(2); }

  private:
    [[gnu::format(printf, 2, 3)]] void say(const char* format, ...) noexcept
    {
        std::printf("%llu.%llu %llu ", (unsigned long long)rank_, (unsigned long long)++said_,
                    (unsigned long long)tofu_sim_time());
        va_list list;
        va_start(list, format);
        std::vprintf(format, list);
        va_end(list);
        std::putchar('\n');
        disturbance_.burn_in_one_of(40, 3);
    }

    [[nodiscard]] Place& some_place() noexcept { return vcqs_[own_.below(tnis)][own_.below(places)]; }
    [[nodiscard]] Place* some_live() noexcept
    {
        for (unsigned tries = 0; tries < 8; tries++)
            if (Place& p = some_place(); p.live)
                return &p;
        return nullptr;
    }

    void create() noexcept
    {
        const unsigned tni = own_.below(tnis);
        const unsigned place = own_.below(places);
        Place& p = vcqs_[tni][place];
        if (p.live)
            return;
        p.session = has_sessions_ && place == places - 1;
        const int rc = p.session ? utofu_create_vcq(tni, UTOFU_VCQ_FLAG_SESSION_MODE, &p.vcq)
                                 : utofu_create_vcq_with_cmp_id(tni, place, 0, &p.vcq);
        p.live = rc == UTOFU_SUCCESS;
        utofu_vcq_id_t id = 0;
        if (p.live)
            (void)utofu_query_vcq_id(p.vcq, &id);
        say("create %u.%u: %d %llx", tni, place, rc, (unsigned long long)id);
        if (p.live) {
            for (unsigned i = 0; i < regions; i++) {
                utofu_stadd_t stadd = 0;
                if (!own_.one_in(4)) {
                    const int rc2 = utofu_reg_mem_with_stag(p.vcq, memory_[i], room, i, 0, &stadd);
                    say("reg %u: %d %llx", i, rc2, (unsigned long long)stadd);
                }
            }
            const int rc3 = utofu_reg_mem(p.vcq, source_, sizeof source_, 0, &p.own);
            say("reg: %d", rc3);
        }
    }

    void release(Place& p) noexcept
    {
        const int rc = utofu_free_vcq(p.vcq);
        p.live = false;
        say("free: %d", rc);
    }

    [[nodiscard]] utofu_vcq_id_t some_target() noexcept
    {
        const uint64_t to = own_.below(size_);
        const unsigned tni = own_.below(tnis);
        const unsigned place = own_.below(places);
        const bool session = has_sessions_ && place == places - 1;
        const uint64_t share = cqs_of_a_tni / ppn_;
        const uint64_t cq = meet_ ? own_.below(ppn_ + 1) : to % ppn_ * share + (session ? share - 1 : 0);
        const uint64_t node = to / ppn_;
        uint8_t coords[6] = {0, 0, 0, (uint8_t)(node / 6), (uint8_t)(node / 2 % 3), (uint8_t)(node % 2)};
        utofu_vcq_id_t id = 0;
        const int rc = utofu_construct_vcq_id(coords, (utofu_tni_id_t)tni, (utofu_cq_id_t)cq,
                                              (utofu_cmp_id_t)(session ? 0 : place), &id);
        if (rc != UTOFU_SUCCESS)
            say("construct: %d", rc);
        if (own_.one_in(3))
            (void)utofu_set_vcq_id_path(&id, nullptr);
        return id;
    }

    void post() noexcept
    {
        Place* const p = some_live();
        if (p == nullptr)
            return;
        static constexpr size_t sizes[] = {0, 1, 8, 64, 500, 1024, 3000, 3900, 4096, 9000, 20000, 60000};
        const size_t size = sizes[own_.below(own_.one_in(3) ? std::size(sizes) : 7)];
        const utofu_vcq_id_t to = some_target();
        utofu_stadd_t stadd = 0;
        (void)utofu_query_stadd(to, own_.below(regions), &stadd);
        const uint64_t at = own_.below(own_.one_in(2) ? 256 : room - size) / 8 * 8 + (own_.one_in(30) ? room : 0);
        const uint64_t from = p->own + (own_.one_in(30) ? sizeof source_ : own_.below(256));
        unsigned long flags = own_.below(2) * UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE |
                              own_.below(2) * UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                              own_.below(2) * UTOFU_ONESIDED_FLAG_TCQ_NOTICE |
                              (own_.one_in(3) ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0);
        if (has_sessions_ && own_.one_in(3))
            flags |= UTOFU_ONESIDED_FLAG_SPS(1 + own_.below(3));
        if (own_.one_in(8))
            flags |= UTOFU_ONESIDED_FLAG_DELAY_START;
        const uint64_t edata = own_.below(256);
        void* const cbdata = reinterpret_cast<void*>(++posted_);
        uint64_t data[4] = {posted_, posted_ * 3, posted_ * 5, posted_ * 7};
        source_[own_.below(sizeof source_)] = static_cast<unsigned char>(posted_);
        const unsigned kind = own_.below(14);
        int rc = 0;
        switch (kind) {
        case 0:
        case 1:
        case 2:
        case 3: rc = utofu_put(p->vcq, to, from, stadd + at, size, edata, flags, cbdata); break;
        case 4: rc = utofu_put_piggyback(p->vcq, to, data, stadd + at, own_.below(33), edata, flags, cbdata); break;
        case 5: rc = utofu_put_piggyback8(p->vcq, to, posted_, stadd + at, own_.below(9), edata, flags, cbdata); break;
        case 6:
        case 7: rc = utofu_get(p->vcq, to, from, stadd + at, size, edata, flags, cbdata); break;
        case 8:
            rc = utofu_armw8(p->vcq, to, UTOFU_ARMW_OP_ADD, posted_, stadd + own_.below(4) * 8, edata, flags, cbdata);
            break;
        case 9:
            rc = utofu_armw4(p->vcq, to, UTOFU_ARMW_OP_XOR, (uint32_t)posted_, stadd + own_.below(4) * 8, edata, flags,
                             cbdata);
            break;
        case 10:
            rc = utofu_cswap8(p->vcq, to, own_.below(3), posted_, stadd + own_.below(4) * 8, edata, flags, cbdata);
            break;
        case 11:
            rc = utofu_put_stride(p->vcq, to, p->own, stadd + at, 1 + own_.below(200), 256, 1 + own_.below(12), edata,
                                  flags, cbdata);
            break;
        case 12:
            rc = utofu_get_gap(p->vcq, to, p->own, stadd + at, size, edata, flags, own_.below(1920), own_.below(8),
                               cbdata);
            break;
        default:
            rc = utofu_nop(p->vcq, flags & (UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_DELAY_START), cbdata);
        }
        say("post %u to %llx+%llx %zu %lx: %d", kind, (unsigned long long)to, (unsigned long long)at, size, flags, rc);
    }

    bool look(Place& p, bool quiet) noexcept
    {
        utofu_mrq_notice n{};
        void* cbdata = nullptr;
        const int tcq = utofu_poll_tcq(p.vcq, 0, &cbdata);
        if (tcq != UTOFU_ERR_NOT_FOUND || !quiet)
            say("tcq: %d %llu", tcq, (unsigned long long)reinterpret_cast<uintptr_t>(cbdata));
        const int mrq = utofu_poll_mrq(p.vcq, 0, &n);
        if (mrq != UTOFU_ERR_NOT_FOUND || !quiet) {
            say("mrq: %d %u %llx %llu %llu %llx", mrq, (unsigned)n.notice_type, (unsigned long long)n.vcq_id,
                (unsigned long long)n.edata, (unsigned long long)n.rmt_value, (unsigned long long)n.lcl_stadd);
        }
        return tcq != UTOFU_ERR_NOT_FOUND || mrq != UTOFU_ERR_NOT_FOUND;
    }

    void poll(unsigned most) noexcept
    {
        for (unsigned i = 0; i < most; i++) {
            Place* const p = some_live();
            if (p == nullptr || look(*p, i % 64 != 0))
                break;
        }
    }

    void memory() noexcept
    {
        uint64_t sum = 1;
        for (const auto& region : memory_) {
            for (size_t i = 0; i < room; i += 8) {
                uint64_t word = 0;
                std::memcpy(&word, region + i, 8);
                sum = (sum ^ word) * 0x9e3779b97f4a7c15u + (sum >> 29);
            }
        }
        say("memory: %llx", (unsigned long long)sum);
    }

    // A few loads of a word that others change, with a way to give others a turn.
    void poll_memory() noexcept
    {
        const auto* const word = reinterpret_cast<const volatile uint64_t*>(memory_[0] + own_.below(8) * 8);
        const uint64_t before = *word;
        const unsigned how = own_.below(3);
        unsigned i = 0;
        for (; i < 6 && *word == before; i++)
            if (how == 0)
                (void)::sched_yield();
            else if (how == 1)
                (void)::usleep(10);
            else
                (void)tofu_sim_give_way(i);
        say("memory poll %u: %u %llx", how, i, (unsigned long long)*word);
    }

    void count_unread() noexcept
    {
        size_t tcq = 0;
        size_t mrq = 0;
        if (Place* const p = some_live()) {
            const int rc = utofu_query_num_unread_tcq(p->vcq, &tcq);
            const int rc2 = utofu_query_num_unread_mrq(p->vcq, &mrq);
            say("unread: %d %zu %d %zu", rc, tcq, rc2, mrq);
        }
    }

    void wait() noexcept
    {
        utofu_vcq_hdl_t list[tnis * places];
        size_t n = 0;
        for (auto& tni : vcqs_) {
            for (auto& p : tni)
                if (p.live)
                    list[n++] = p.vcq;
        }
        const int timeout = own_.one_in(2) ? 0 : 1;
        const int rc = tofu_sim_wait(list, n, timeout);
        say("wait %d: %d", timeout, rc);
    }

    void clock() noexcept
    {
        timespec now{};
        const unsigned n = own_.one_in(4) ? 1 + own_.below(600) : 1;
        for (unsigned i = 0; i < n; i++)
            (void)::clock_gettime(CLOCK_MONOTONIC, &now);
        say("clock %u: %lld.%09ld", n, (long long)now.tv_sec, now.tv_nsec);
    }

    void memory_again() noexcept
    {
        Place* const p = some_live();
        if (p == nullptr)
            return;
        if (own_.one_in(2)) {
            utofu_stadd_t stadd = 0;
            const unsigned i = own_.below(regions);
            const int rc = utofu_reg_mem_with_stag(p->vcq, memory_[i], room, i,
                                                   own_.below(2) * UTOFU_REG_MEM_FLAG_READ_ONLY, &stadd);
            say("reg %u: %d", i, rc);
        } else {
            utofu_vcq_id_t id = 0;
            utofu_stadd_t stadd = 0;
            (void)utofu_query_vcq_id(p->vcq, &id);
            (void)utofu_query_stadd(id, own_.below(regions), &stadd);
            const int rc = utofu_dereg_mem(p->vcq, stadd, 0);
            say("dereg: %d", rc);
        }
    }

    void query() noexcept
    {
        uint8_t coords[6];
        utofu_tni_id_t* list = nullptr;
        size_t n = 0;
        switch (own_.below(3)) {
        case 0: {
            const int rc = utofu_query_my_coords(coords);
            say("coords: %d %u%u%u", rc, coords[3], coords[4], coords[5]);
            break;
        }
        case 1: {
            const int rc = utofu_get_onesided_tnis(&list, &n);
            say("tnis: %d %zu", rc, n);
            std::free(list);
            break;
        }
        default: {
            utofu_vcq_id_t id = some_target();
            utofu_path_id_t path = 0;
            const int rc = utofu_get_path_id(id, nullptr, &path);
            say("path: %d %u", rc, (unsigned)path);
        }
        }
    }

    // ---- Gates: a circuit with the neighbour, rounds that begin and end at any time ----

    void wire_gates() noexcept
    {
        const int rc = utofu_alloc_vbg(0, 2, 0, gates_);
        say("alloc: %d %llx %llx", rc, (unsigned long long)gates_[0], (unsigned long long)gates_[1]);
        utofu_vbg_id_t theirs[2] = {};
        gated_ = rc == UTOFU_SUCCESS && (rank_ ^ 1) < size_ && exchange(rank_ ^ 1, theirs);
        if (!gated_)
            return;
        utofu_vbg_setting s[2] = {};
        for (auto& one : s) {
            one.src_lcl_vbg_id = one.src_rmt_vbg_id = one.dst_lcl_vbg_id = one.dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
            one.dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
        }
        s[0].vbg_id = gates_[0];
        s[0].dst_rmt_vbg_id = theirs[1];
        s[0].dst_lcl_vbg_id = s[0].src_lcl_vbg_id = gates_[1];
        s[1].vbg_id = gates_[1];
        s[1].src_lcl_vbg_id = s[1].dst_lcl_vbg_id = gates_[0];
        s[1].src_rmt_vbg_id = theirs[0];
        const int rc2 = utofu_set_vbg(s, 2);
        say("set: %d", rc2);
    }

    // Both put their gates to the other's board, until they arrive there.
    bool exchange(uint64_t other, utofu_vbg_id_t theirs[2]) noexcept
    {
        utofu_vcq_hdl_t vcq = 0;
        utofu_stadd_t stadd = 0;
        constexpr unsigned component = 7;
        int rc = utofu_create_vcq_with_cmp_id(0, component, 0, &vcq);
        say("board: %d", rc);
        (void)utofu_reg_mem_with_stag(vcq, board_, 256, 5, 0, &stadd);
        const uint64_t node = other / ppn_;
        uint8_t coords[6] = {0, 0, 0, (uint8_t)(node / 6), (uint8_t)(node / 2 % 3), (uint8_t)(node % 2)};
        utofu_vcq_id_t id = 0;
        const uint64_t cq = meet_ ? 0 : other % ppn_ * (cqs_of_a_tni / ppn_);
        (void)utofu_construct_vcq_id(coords, 0, (utofu_cq_id_t)cq, component, &id);
        (void)utofu_query_stadd(id, 5, &stadd);
        uint64_t data[3] = {gates_[0], gates_[1], 1};
        utofu_mrq_notice n{};
        void* cbdata = nullptr;
        bool arrived = false;
        auto* const there = reinterpret_cast<volatile uint64_t*>(board_);
        for (unsigned i = 0; i < 300 && (!arrived || there[2] == 0); i++) {
            if (!arrived) {
                rc = utofu_put_piggyback(vcq, id, data, stadd, sizeof data, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                                         nullptr);
                while (rc == UTOFU_SUCCESS && (rc = utofu_poll_mrq(vcq, 0, &n)) == UTOFU_ERR_NOT_FOUND)
                    rc = UTOFU_SUCCESS;
                arrived = rc == UTOFU_SUCCESS && n.notice_type == UTOFU_MRQ_TYPE_LCL_PUT;
            } else {
                (void)utofu_poll_mrq(vcq, 0, &n);
            }
            (void)utofu_poll_tcq(vcq, 0, &cbdata);
        }
        theirs[0] = there[0];
        theirs[1] = there[1];
        say("board: %d %llx %llx", arrived ? 1 : 0, (unsigned long long)theirs[0], (unsigned long long)theirs[1]);
        rc = utofu_free_vcq(vcq);
        say("board: %d", rc);
        return there[2] != 0;
    }

    void round() noexcept
    {
        if (!gated_)
            return;
        uint64_t data[2] = {rank_ + rounds_, rounds_};
        if (own_.one_in(2)) {
            const bool sums = rounds_ % 3 == 1;
            const int rc =
                sums ? utofu_reduce_uint64(gates_[0], UTOFU_REDUCE_OP_SUM, data, 2, 0) : utofu_barrier(gates_[0], 0);
            say("round %llu: %d", (unsigned long long)rounds_, rc);
        } else {
            const bool sums = rounds_ % 3 == 1;
            int rc = UTOFU_ERR_NOT_COMPLETED;
            const unsigned most = own_.one_in(2) ? 1 : 10;
            unsigned i = 0;
            for (; i < most && rc == UTOFU_ERR_NOT_COMPLETED; i++)
                rc = sums ? utofu_poll_reduce_uint64(gates_[0], 0, data) : utofu_poll_barrier(gates_[0], 0);
            say("poll round %llu: %d %llu %u", (unsigned long long)rounds_, rc, (unsigned long long)data[0], i);
            rounds_ += rc == UTOFU_SUCCESS ? 1 : 0;
        }
    }

    void more_gates() noexcept
    {
        utofu_vbg_id_t gate = 0;
        if (extra_ == 0) {
            const int rc = utofu_alloc_vbg(own_.below(2), 1, 0, &gate);
            extra_ = rc == UTOFU_SUCCESS ? gate : 0;
            say("alloc: %d %llx", rc, (unsigned long long)gate);
        } else {
            const int rc = utofu_free_vbg(&extra_, 1);
            extra_ = 0;
            say("free gate: %d", rc);
        }
    }

    void step() noexcept
    {
        switch (own_.below(26)) {
        case 0: create(); break;
        case 1:
            if (Place* const p = some_live(); p != nullptr && own_.one_in(2))
                release(*p);
            break;
        case 2: poll(40); break;
        case 3:
        case 4:
        case 5: poll(1 + own_.below(4)); break;
        case 6: memory(); break;
        case 7: poll_memory(); break;
        case 8: count_unread(); break;
        case 9: wait(); break;
        case 10: clock(); break;
        case 11: memory_again(); break;
        case 12: query(); break;
        case 13:
        case 14:
        case 15: round(); break;
        case 16:
            if (has_gates_)
                more_gates();
            break;
        case 17: disturbance_.burn(10); break;
        default: post();
        }
    }

    void end() noexcept
    {
        const unsigned how = own_.below(4);
        say("end %u", how);
        if (how == 0) {
            for (auto& tni : vcqs_) {
                for (auto& p : tni)
                    if (p.live)
                        release(p);
            }
        } else if (how == 1) {
            poll(40);
        } else if (how == 2 && gated_) {
            const int rc = utofu_free_vbg(gates_, 2);
            say("free gates: %d", rc);
        }
        memory();
    }

    uint64_t rank_;
    uint64_t size_;
    uint64_t ppn_;
    Dice common_; // the same in all processes
    Dice own_;
    Disturbance disturbance_;
    unsigned steps_;
    bool has_sessions_;
    bool has_gates_;
    bool meet_; // processes of a node want the same CQs
    uint64_t said_ = 0;
    uint64_t posted_ = 0;
    uint64_t rounds_ = 0;
    bool gated_ = false;
    utofu_vbg_id_t gates_[2] = {};
    utofu_vbg_id_t extra_ = 0;
    Place vcqs_[tnis][places] = {};
    alignas(256) unsigned char memory_[regions][room] = {};
    alignas(256) unsigned char source_[room] = {};
    alignas(256) unsigned char board_[256] = {};
};

/// A job lasts as long as one of its processes. They are the children of one launcher.
void outlive_the_others() noexcept
{
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", ::getppid(), ::getppid());
    for (int alive = 2; alive > 1; (void)::usleep(1000)) {
        std::FILE* const children = std::fopen(path, "re");
        for (alive = 0; children != nullptr && std::fscanf(children, "%*d") == 0;)
            alive++;
        if (children != nullptr)
            (void)std::fclose(children);
    }
}

} // namespace

int main(int argc, char** argv)
{
    if (const char* const name = std::getenv("EXACT_OUT"); name != nullptr) {
        char path[256];
        std::snprintf(path, sizeof path, "%s.%s", name, std::getenv("TOFU_SIM_RANK"));
        if (std::freopen(path, "w", stdout) == nullptr)
            return 1;
    }
    const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
    static Program program(seed, argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 100);
    program.run();
    if (std::getenv("EXACT_REPLACE") == nullptr)
        return 0;
    if (program.rank() == 0) {
        outlive_the_others();
    } else if (program.is_replaced()) {
        ::unsetenv("EXACT_REPLACE");
        const std::string next = std::to_string(seed + 1);
        (void)::execl("/proc/self/exe", argv[0], next.c_str(), "40", nullptr);
    }
    return 0;
}
