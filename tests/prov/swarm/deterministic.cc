// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The deterministic network as a platform: the provider is linked in, and all its time and chance come from the
// network. See platform.h and net.h.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include <rdma/providers/fi_prov.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/names.h"
#include "av/peer_table.h"
#include "core/system.h"
#include "model.h"
#include "net.h"
#include "platform.h"
#include "shared_heap.h"
#include "utofu/library.h"

extern "C" fi_provider* fi_prov_ini(void);

namespace swarm {
namespace {

/// Until all has ended: what a closed peer never answers takes 5 s each, one after the other.
constexpr unsigned most_rounds = 60000;

class Deterministic final : public Platform {
  public:
    Deterministic()
    {
        void* const page = mmap(nullptr, job_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        job_ = page != MAP_FAILED ? static_cast<char*>(page) : nullptr;
    }
    ~Deterministic() override
    {
        if (job_ != nullptr)
            (void)munmap(job_, job_size);
    }
    /// A descriptor would need a thread of the provider.
    [[nodiscard]] Program fit(Program program) const override
    {
        program.setup.waits = std::min(program.setup.waits, 1u);
        return program;
    }
    [[nodiscard]] bool is_repeatable() const override { return true; }
    /// Where a program's memory lies does not depend on the programs before it, and none of it is left behind.
    void begin(const Program& program) override
    {
        begin_own_heap();
        const Setup& s = program.setup;
        Relaxations relaxations{.chaos = s.chaos,
                                .busy = s.busy,
                                .blind = s.blind,
                                .drop = s.drop != 0,
                                .silent = s.silent != 0,
                                .same_tag = s.sametag != 0,
                                .reuse = s.reuse != 0,
                                .toq = std::max(s.toq, 4u),
                                .old_tags = s.oldtags != 0,
                                .gates = s.gates,
                                .any_gate = s.anygate != 0,
                                .layout = s.layout};
        // A Get from a shared transmit context that never ends may still write into a shared receive: that is not
        // reported.
        relaxations.silent &= s.form != 4;
        Net::now = net_ = new Net(relaxations);
        library_ = tofu::vcq::Backend(Net::functions(s.gates != 0), Net::caps(), Net::tnis);
        tofu::vcq::backend_of_test = &library_;
        tofu::Clock::of_test = []() noexcept { return Net::now->time(); };
        tofu::Clock::sleep_of_test = [](std::uint64_t time) noexcept { Net::now->pass(time); };
        tofu::Random::of_test = []() noexcept { return random_.next(); };
        random_ = Dice(42);
        tofu::EndpointNumbers::killed_of_test = false;
        tofu::EndpointNumbers::most = std::clamp(s.numbers, 24u, tofu::max_endpoints);
        if (job_ != nullptr)
            std::snprintf(job_, job_size, "%s", library_.functions().job());
    }
    /// The shared vector of the process's job, which it has not closed.
    void clear_after(int) override
    {
        char path[64];
        std::snprintf(path, sizeof path, "/dev/shm/tofu-fi-av-%u-%016" PRIx64, geteuid(),
                      tofu::names::key_of(shared_vector) ^ tofu::names::key_of(job_ != nullptr ? job_ : ""));
        (void)unlink(path);
    }
    void check_empty() override
    {
        // A rail may have been opened while another process's close ran the rounds of all, and counts as that one's.
        if (net_->has_vcqs())
            contradict("all processes have closed all, and there are VCQs");
    }

    fi_info* find(fi_info& hints) override
    {
        fi_info* found = nullptr;
        return provider().getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, &hints, &found) == 0 ? found : nullptr;
    }
    int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric) override
    {
        return provider().fabric(attr, fabric, nullptr);
    }

    void end() override { leave_own_heap(); }

    void enter(unsigned process) override { net_->process = process_ = process; }
    /// The VCQs vanish. What is left in our memory is then cleared away, which has no effect: the network and the
    /// node's files are as the process has left them, and no time goes by.
    bool kill(unsigned process) override
    {
        net_->kill(process);
        killed_at_ = net_->clock();
        tofu::EndpointNumbers::killed_of_test = true;
        return false;
    }
    void killed(unsigned) override
    {
        tofu::EndpointNumbers::killed_of_test = false;
        net_->set_clock(killed_at_);
    }
    bool is_in_wait() const override { return net_->others != nullptr; }

    void seed(std::uint64_t seed) override { net_->seed(seed); }
    void run(unsigned steps) override { net_->run(steps); }
    void pass(std::uint64_t nanoseconds) override { net_->pass(nanoseconds); }
    std::uint64_t clock() const override { return net_->clock(); }
    bool is_patient(unsigned rounds) override { return rounds < most_rounds; }
    void calm() override
    {
        net_->relaxations.busy = std::min(net_->relaxations.busy, 20u);
        net_->relaxations.blind = std::min(net_->relaxations.blind, 20u);
    }
    unsigned long long steps() const override { return net_->steps; }
    unsigned long long calls() const override { return net_->calls; }
    unsigned long long digest() const override { return net_->digest; }

  protected:
    /// A killed process waits for no other one.
    void begin_wait(void (*others)()) override
    {
        if (!tofu::EndpointNumbers::killed_of_test)
            net_->others = others;
    }
    void end_wait() override { net_->others = nullptr; }

  private:
    static fi_provider& provider()
    {
        static fi_provider& linked = *fi_prov_ini();
        return linked;
    }

    static constexpr std::size_t job_size = 64;
    char* job_ = nullptr; ///< the name of the job of the process that carries out a program; shared with its parent
    Net* net_ = nullptr;  ///< of the present program
    tofu::vcq::Backend library_;
    std::uint64_t killed_at_ = 0;
    static inline Dice random_{1};
};

} // namespace

std::unique_ptr<Platform> make_deterministic()
{
    return std::make_unique<Deterministic>();
}

std::unique_ptr<Platform> Platform::of(const std::string& name)
{
    if (name.empty())
        return make_deterministic();
    if (name == "tcp" || name == "shm")
        return make_other(name);
    return name == "sim" ? make_processes() : nullptr;
}

} // namespace swarm
