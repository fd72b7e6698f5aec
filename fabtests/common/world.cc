// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The stage of the conformance programs: processes, endpoints, addresses, barriers. See world.h.
#include "world.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fabtests {
namespace {

bool said(const char* what, int rc)
{
    if (rc == 0)
        return true;
    std::fprintf(stderr, "%s: %s (%d)\n", what, fi_strerror(-rc), rc);
    return false;
}

} // namespace

World::~World()
{
    for (fid* object :
         {ep_ ? &ep_->fid : nullptr, mr_ ? &mr_->fid : nullptr, local_mr_ ? &local_mr_->fid : nullptr,
          writes_ ? &writes_->fid : nullptr, reads_ ? &reads_->fid : nullptr, cq_ ? &cq_->fid : nullptr,
          av_ ? &av_->fid : nullptr, domain_ ? &domain_->fid : nullptr, fabric_ ? &fabric_->fid : nullptr})
        if (object)
            check(fi_close(object) == 0, __FILE__, __LINE__, "fi_close");
    if (info_)
        fi_freeinfo(info_);
    std::free(region_);
    std::free(local_);
}

bool World::ours() const
{
    return std::strcmp(options_.provider, "tofu") == 0;
}

std::uint64_t World::now_ms()
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

/// The provider with these capabilities, null where there is none.
fi_info* World::find(std::uint64_t caps)
{
    fi_info* hints = fi_allocinfo();
    hints->caps = caps;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        options_.user_keys ? 0 : FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    hints->domain_attr->threading = options_.threading;
    hints->tx_attr->op_flags = options_.tx_flags;
    hints->tx_attr->msg_order = options_.msg_order;
    hints->fabric_attr->prov_name = strdup(options_.provider);
    hints->domain_attr->mr_key_size = 2;
    fi_info* found = nullptr;
    if (fi_getinfo(FI_VERSION(1, 11), nullptr, nullptr, 0, hints, &found) != 0)
        found = nullptr;
    fi_freeinfo(hints);
    return found;
}

bool World::open()
{
    std::uint64_t caps = options_.caps;
    info_ = find(caps | options_.wished_caps);
    if (info_ == nullptr) {
        for (std::uint64_t bit = 1; bit != 0; bit <<= 1)
            if ((options_.wished_caps & bit) != 0)
                if (fi_info* with = find(caps | bit); with != nullptr) {
                    caps |= bit;
                    fi_freeinfo(with);
                }
        info_ = find(caps);
    }
    if (!said("fi_getinfo", info_ != nullptr ? 0 : -FI_ENODATA))
        return false;
    fi_av_attr av{};
    av.type = FI_AV_TABLE;
    fi_cq_attr cq{};
    cq.format = FI_CQ_FORMAT_MSG;
    cq.size = 1024;
    fi_cntr_attr cntr{};
    cntr.events = FI_CNTR_EVENTS_COMP;
    if (!said("fi_fabric", fi_fabric(info_->fabric_attr, &fabric_, nullptr)) ||
        !said("fi_domain", fi_domain(fabric_, info_, &domain_, nullptr)) ||
        !said("fi_av_open", fi_av_open(domain_, &av, &av_, nullptr)) ||
        !said("fi_cq_open", fi_cq_open(domain_, &cq, &cq_, nullptr)) ||
        !said("fi_cntr_open", fi_cntr_open(domain_, &cntr, &writes_, nullptr)) ||
        !said("fi_cntr_open", fi_cntr_open(domain_, &cntr, &reads_, nullptr)) ||
        !said("fi_endpoint", fi_endpoint(domain_, info_, &ep_, nullptr)) ||
        !said("fi_ep_bind av", fi_ep_bind(ep_, &av_->fid, 0)) ||
        !said("fi_ep_bind cq", fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)) ||
        !said("fi_ep_bind write", fi_ep_bind(ep_, &writes_->fid, FI_WRITE)) ||
        !said("fi_ep_bind read", fi_ep_bind(ep_, &reads_->fid, FI_READ)) || !said("fi_enable", fi_enable(ep_)))
        return false;

    region_ = static_cast<unsigned char*>(std::aligned_alloc(65536, options_.region_size));
    local_ = static_cast<unsigned char*>(std::aligned_alloc(65536, options_.region_size));
    std::memset(region_, 0, options_.region_size);
    std::memset(local_, 0, options_.region_size);
    if (!said("fi_mr_reg", fi_mr_reg(domain_, region_, options_.region_size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                                     0x100 + rank_, 0, &mr_, nullptr)))
        return false;
    if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) &&
        !said("fi_mr_reg local",
              fi_mr_reg(domain_, local_, options_.region_size, FI_READ | FI_WRITE | FI_SEND | FI_RECV, 0, 0x200 + rank_,
                        0, &local_mr_, nullptr)))
        return false;
    shared_.key[rank_] = fi_mr_key(mr_);
    shared_.base[rank_] = info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? reinterpret_cast<std::uintptr_t>(region_) : 0;
    shared_.name_length[rank_] = sizeof shared_.name[rank_];
    if (!said("fi_getname", fi_getname(&ep_->fid, shared_.name[rank_], &shared_.name_length[rank_])))
        return false;
    barrier();
    for (unsigned r = 0; r < ranks(); ++r)
        if (fi_av_insert(av_, shared_.name[r], 1, &addresses_[r], 0, nullptr) != 1)
            return said("fi_av_insert", -FI_EINVAL);
    barrier();
    return true;
}

fi_info* World::further_info() const
{
    fi_info* info = fi_dupinfo(info_);
    if (!ours() && info->src_addr != nullptr && info->addr_format == FI_SOCKADDR_IN)
        static_cast<std::uint16_t*>(info->src_addr)[1] = 0; // any port
    return info;
}

void World::progress()
{
    (void)fi_cq_read(cq_, nullptr, 0);
    (void)fi_cntr_read(writes_);
    for (Polled* object : polled_)
        object->poll();
}

void World::give_up(const char* what)
{
    std::fprintf(stderr, "rank %u: %s\n", rank_, what);
    shared_.given_up = 1;
    shared_.failures.fetch_add(1);
    std::_Exit(1);
}

void World::barrier()
{
    const unsigned generation = shared_.generation.load(std::memory_order_acquire);
    if (shared_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks()) {
        shared_.arrived.store(0, std::memory_order_relaxed);
        shared_.generation.store(generation + 1, std::memory_order_release);
        return;
    }
    const std::uint64_t deadline = now_ms() + 1000 * patience();
    while (shared_.generation.load(std::memory_order_acquire) == generation) {
        if (ep_)
            progress();
        if (shared_.given_up.load() != 0 || now_ms() > deadline)
            give_up("timed out waiting for the other ranks");
        sched_yield();
    }
}

int World::wait(void** context, std::uint64_t* flags)
{
    const std::uint64_t deadline = now_ms() + 1000 * patience();
    for (;;) {
        fi_cq_msg_entry entry{};
        const ssize_t n = fi_cq_read(cq_, &entry, 1);
        if (n == 1) {
            if (context)
                *context = entry.op_context;
            if (flags)
                *flags = entry.flags;
            return 0;
        }
        if (n == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            if (fi_cq_readerr(cq_, &error, 0) == 1) {
                if (context)
                    *context = error.op_context;
                if (flags)
                    *flags = error.flags;
                return error.err ? error.err : FI_EOTHER;
            }
        } else if (n != -FI_EAGAIN) {
            return static_cast<int>(-n);
        }
        if (now_ms() > deadline)
            give_up("no completion arrived");
    }
}

int World::wait_count(fid_cntr* counter, std::uint64_t value)
{
    const std::uint64_t deadline = now_ms() + 1000 * patience();
    while (fi_cntr_read(counter) < value) {
        fi_cq_msg_entry entry{};
        const ssize_t n = fi_cq_read(cq_, &entry, 1);
        fi_cq_err_entry error{};
        if (n == -FI_EAVAIL && fi_cq_readerr(cq_, &error, 0) == 1)
            return error.err;
        if (now_ms() > deadline)
            return FI_ETIMEDOUT;
    }
    return 0;
}

bool World::quiet()
{
    fi_cq_msg_entry entry{};
    return fi_cq_read(cq_, &entry, 1) == -FI_EAGAIN;
}

bool World::check(bool truth, const char* file, int line, const char* what)
{
    shared_.checks.fetch_add(1, std::memory_order_relaxed);
    if (truth)
        return true;
    if (shared_.failures.fetch_add(1) < 30)
        std::fprintf(stderr, "rank %u: %s:%d: failed: %s\n", rank_, file, line, what);
    return false;
}

namespace {

/// One process: opens its world and runs the cases.
[[noreturn]] void be_rank(const Options& options, Shared& shared, unsigned rank, std::span<const Case> cases)
{
    alarm(4 * options.patience + 10);
    {
        World world(options, shared, rank);
        if (!world.open()) {
            shared.given_up = 1;
            std::_Exit(77);
        }
        for (const Case& one : cases) {
            const unsigned before = world.failures();
            one.body(world);
            world.barrier();
            if (rank == 0 && world.failures() != before)
                std::fprintf(stderr, "in case %s\n", one.name);
        }
        world.barrier();
    }
    std::exit(0);
}

struct Outcome {
    int result; ///< as run() returns it
    unsigned checks, failures;
};

/// The cases with processes of their own.
Outcome run_together(const Options& options, std::span<const Case> cases)
{
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return {1, 0, 0};
    Shared& shared = *new (memory) Shared{};
    std::fflush(nullptr);
    pid_t children[max_ranks];
    for (unsigned r = 0; r < options.ranks; ++r)
        if ((children[r] = fork()) == 0)
            be_rank(options, shared, r, cases);
    int result = 0;
    for (unsigned r = 0; r < options.ranks; ++r) {
        int status = 0;
        if (children[r] < 0 || waitpid(children[r], &status, 0) < 0)
            result = 1;
        else if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            result = 77;
        else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            std::fprintf(stderr, "rank %u ended with status %#x\n", r, status);
            shared.given_up = 1; // the others need not wait for it
            if (result != 77)
                result = 1;
        }
    }
    if (result == 0 && shared.failures != 0)
        result = 1;
    const Outcome outcome{result, shared.checks.load(), shared.failures.load()};
    munmap(memory, sizeof(Shared));
    return outcome;
}

} // namespace

int run(const Options& options, std::span<const Case> all)
{
    std::vector<Case> cases;
    for (const Case& one : all) {
        if (options.list)
            std::printf("%s\n", one.name);
        if (options.only != nullptr ? std::strcmp(one.name, options.only) == 0 : options.ranks >= one.min_ranks)
            cases.push_back(one);
    }
    if (options.list)
        return 0;
    if (cases.empty()) {
        std::fprintf(stderr, "unknown case: -l lists all\n");
        return 2;
    }
    Outcome sum{0, 0, 0};
    const std::size_t at_once = options.isolated ? 1 : cases.size();
    for (std::size_t i = 0; i < cases.size(); i += at_once) {
        const Outcome one = run_together(options, std::span(cases).subspan(i, at_once));
        sum.checks += one.checks;
        sum.failures += one.failures;
        if (sum.result == 0 || one.result == 77)
            sum.result = one.result;
        if (options.isolated)
            std::printf("%-24s %s\n", cases[i].name, one.result == 0 ? "holds" : "FAILED");
        std::fflush(stdout);
    }
    std::printf("%s: %u ranks, %zu cases, %u checks, %u failed%s\n", options.provider, options.ranks, cases.size(),
                sum.checks, sum.failures, sum.result == 77 ? ", provider not found" : "");
    return sum.result;
}

static void usage(std::FILE* to, const char* program, const Options& defaults)
{
    std::fprintf(
        to,
        "usage: %s [options]\n"
        "Checks the statements of a manual page of libfabric, case by case.\n"
        "  -p PROVIDER  the provider (%s)\n"
        "  -n RANKS     number of processes (%u)\n"
        "  -k           with keys of the user's choice and offsets, instead of the provider's keys and addresses\n"
        "  -o           with ordered atomics (FI_ORDER_ATOMIC_*)\n"
        "  -s SEED      seed of random values\n"
        "  -t CASE      only this case\n"
        "  -l           list the names of the cases\n"
        "  -e           run each case in separate processes, and print a line for each\n"
        "  -w SECONDS   time limit of a wait (%u)\n"
        "Status: 0 all checks pass, 1 a check fails, 2 bad arguments, 77 no such provider.\n",
        program, defaults.provider, defaults.ranks, defaults.patience);
}

bool parse(int argc, char** argv, Options& options)
{
    int option;
    while ((option = getopt(argc, argv, "p:n:kos:t:lew:h")) != -1) {
        switch (option) {
        case 'p': options.provider = optarg; break;
        case 'n': options.ranks = static_cast<unsigned>(std::atoi(optarg)); break;
        case 'k': options.user_keys = true; break;
        case 'o':
            options.msg_order = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
            break;
        case 's': options.seed = static_cast<unsigned>(std::atoi(optarg)); break;
        case 't': options.only = optarg; break;
        case 'l': options.list = true; break;
        case 'e': options.isolated = true; break;
        case 'w': options.patience = static_cast<unsigned>(std::atoi(optarg)); break;
        case 'h': usage(stdout, argv[0], options); std::exit(0);
        default: usage(stderr, argv[0], options); return false;
        }
    }
    if (options.ranks == 0 || options.ranks > max_ranks) {
        std::fprintf(stderr, "%s: 1 to %u ranks\n", argv[0], max_ranks);
        return false;
    }
    return true;
}

} // namespace fabtests
