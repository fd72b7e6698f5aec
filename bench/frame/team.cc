// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See team.h.
#include "team.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tofu::bench {
namespace {

constexpr double start_bound_ns = 20e9;
constexpr double case_bound_ns = 4e9;
constexpr int most_failures = 6;

} // namespace

Team::Team(std::string name, Maker make, const Cores& cores)
    : name_(std::move(name)), make_(std::move(make)), cores_(cores)
{
    std::fill(std::begin(pid_), std::end(pid_), -1);
}

Team::~Team()
{
    if (alive_)
        leave();
}

void Team::child(int side)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)cores_.pin(placement_, side); // main.cc says so where processors are not known
    setenv("TOFU_SIM_RANK", std::to_string(side).c_str(), 1);
    setenv("TOFU_SIM_JOB", ("bench-" + std::to_string(getppid()) + "-" + std::to_string(starts_) + name_).c_str(), 1);
    Control& control = *control_;
    transport_->join(control, side);
    if (!transport_->open())
        _exit(1);
    control.ready.fetch_add(1);
    for (std::uint32_t round = 1;; ++round) {
        // A side with nothing to do sleeps, so that the team whose turn it is has the processors.
        while (control.round.load(std::memory_order_acquire) < round)
            usleep(500);
        if (control.case_id < 0) {
            transport_.reset();
            std::exit(0);
        }
        transport_->run();
        control.side[side].done.store(round, std::memory_order_release);
    }
}

void Team::place(const Placement* placement)
{
    if (alive_ && (placement != nullptr ? *placement : cores_.usual(sides_)).processors != placement_.processors)
        leave();
    chosen_ = placement;
}

void Team::start(int sides)
{
    sides_ = sides;
    ++starts_;
    placement_ = chosen_ != nullptr ? *chosen_ : cores_.usual(sides);
    void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    control_ = new (memory) Control;
    control_->sides = sides;
    transport_.reset(make_());
    std::fflush(nullptr);
    for (int side = 0; side < sides; ++side)
        if ((pid_[side] = fork()) == 0)
            child(side);
    double bound = now_ns() + start_bound_ns;
    while (control_->ready.load() < sides) {
        if (exited() || now_ns() > bound) {
            std::fprintf(stderr, "bench: %s is omitted: it did not start\n", name_.c_str());
            ++failures_;
            end();
            return;
        }
        usleep(1000);
    }
    alive_ = true;
}

bool Team::exited()
{
    for (pid_t& pid : pid_)
        if (pid > 0 && waitpid(pid, nullptr, WNOHANG) == pid) {
            pid = -1;
            return true;
        }
    return false;
}

void Team::end()
{
    for (pid_t& pid : pid_) {
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        pid = -1;
    }
    if (control_ != nullptr)
        munmap(control_, sizeof(Control));
    control_ = nullptr;
    alive_ = false;
}

void Team::leave()
{
    control_->case_id = -1;
    control_->round.fetch_add(1, std::memory_order_acq_rel);
    for (int i = 0; i < 3000; ++i) {
        while (exited()) {
        }
        if (std::all_of(std::begin(pid_), std::end(pid_), [](pid_t pid) { return pid < 0; }))
            break;
        usleep(1000);
    }
    end();
}

double Team::run(const Case& what, std::size_t size, std::size_t iterations)
{
    if (alive_ && sides_ != what.sides)
        leave();
    if (!alive_ && failures_ < most_failures)
        start(what.sides);
    if (!alive_ || iterations == 0)
        return -1;
    Control& control = *control_;
    control.case_id = what.id;
    control.sides = what.sides;
    control.size = size;
    control.iterations = iterations;
    control.elapsed = -1;
    control.stop.store(0);
    for (auto& side : control.side)
        side.meet.store(0);
    std::uint32_t round = control.round.fetch_add(1, std::memory_order_acq_rel) + 1;
    double bound = now_ns() + case_bound_ns;
    auto done = [&] {
        return std::all_of(control.side, control.side + sides_,
                           [&](auto& side) { return side.done.load(std::memory_order_acquire) >= round; });
    };
    while (!done()) {
        if (exited() || now_ns() > bound) {
            std::fprintf(stderr, "bench: %s failed in \"%s\", %zu bytes\n", name_.c_str(), what.name, size);
            ++failures_;
            end();
            return -1;
        }
        usleep(500);
    }
    if (control.elapsed < 0 || control.operations <= 0)
        return -1;
    switch (what.unit) {
    case Unit::ns: return control.elapsed / control.operations;
    case Unit::mib_per_s: return control.operations * double(size) / control.elapsed * 1e9 / 1048576;
    case Unit::mega_per_s: return control.operations / control.elapsed * 1e3;
    }
    return -1;
}

std::size_t Team::calibrate(const Case& what, std::size_t size, double target_ns)
{
    // Both tries also warm up caches, mappings and registrations.
    std::size_t iterations = size >= 65536 ? 2 : 64;
    for (int attempt = 0; attempt < 3; ++attempt) {
        if (run(what, size, iterations) < 0)
            return 0;
        double wanted = double(iterations) * target_ns / std::max(control_->elapsed, 1.0);
        bool near = wanted < 4 * double(iterations);
        iterations = std::size_t(std::clamp(wanted, 2.0, 4e6));
        if (near)
            break;
    }
    return iterations;
}

} // namespace tofu::bench
