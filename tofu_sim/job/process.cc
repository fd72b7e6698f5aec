// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// This process as a member of its job: joined on the first uTofu call that needs it, left at exit.
#include "job/process.h"

#include "clock/clock.h"
#include "job/descriptors.h"
#include "job/doorbell.h"
#include "job/flows.h"
#include "job/instruments.h"
#include "job/liveness.h"
#include "job/report.h"
#include "trace/recorder.h"

#include <utofu.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <pthread.h>
#include <unistd.h>

namespace tofu::sim {

Instruments instruments;

namespace {

alignas(Process) std::byte process_storage[sizeof(Process)];
pthread_once_t process_once = PTHREAD_ONCE_INIT;

} // namespace

Process& Process::self() noexcept
{
    // Constructed once and never destroyed: other threads may still post while the program exits.
    (void)::pthread_once(&process_once, [] {
        new (process_storage) Process;
        (void)::pthread_atfork(nullptr, nullptr, [] { Process::self().reset_in_child(); });
    });
    return *std::launder(reinterpret_cast<Process*>(process_storage));
}

void keep_reachable(void* object) noexcept
{
    static void* volatile kept[2048];
    static unsigned count = 0;
    if (object != nullptr && count < std::size(kept))
        kept[count++] = object;
}

int Process::enter() noexcept
{
    if (joined()) [[likely]]
        return UTOFU_SUCCESS;
    const std::lock_guard guard(join_mutex_);
    switch (static_cast<State>(state_.load_acquire())) {
    case joined_state: return UTOFU_SUCCESS;
    case failed_state: return error_;
    case left_state: return UTOFU_ERR_NOT_AVAILABLE;
    case outside_state: break;
    }
    error_ = join();
    if (error_ == UTOFU_ERR_OUT_OF_RESOURCE || error_ == UTOFU_ERR_OUT_OF_MEMORY)
        return error_; // it may have more when it tries again
    state_.store_release(error_ == UTOFU_SUCCESS ? joined_state : failed_state);
    return error_;
}

int Process::join() noexcept
{
    environment_ = Environment();
    if (const int rc = environment_.read(); rc != UTOFU_SUCCESS)
        return rc;
    // Before the service thread and the job's lock: with one thread the kernel answers at once, with more it
    // waits for all processors, which takes long on a machine with much to do.
    register_poster();
    if (const int rc = segment_.create(environment_.mrq_entries, environment_.mrq_entries_session); rc != UTOFU_SUCCESS)
        return rc;
    if (const int rc = job_.open_locked(environment_); rc != UTOFU_SUCCESS) {
        segment_.destroy();
        return rc;
    }
    int rc = job_.join(environment_, segment_.file.number());
    if (rc == UTOFU_SUCCESS) {
        coords_ = environment_.topology.coords_of(job_.placement().node);
        SegmentHeader& header = segment_.header();
        header.process = job_.process();
        header.incarnation = job_.incarnation();
        header.node = job_.placement().node;
        header.magic = segment_magic;
        pid_ = ::getpid();
        memory_ = ProcessMemory::open(segment_.base, environment_.swap_protect,
                                      environment_.chaos && (environment_.chaos->relaxations & chaos_tags) != 0);
        service_tid_ = header.alive.owner.load_acquire();
        if (memory_ == nullptr) {
            report("cannot start the service thread: %s; raise the limit (ulimit -u)", std::strerror(errno));
            rc = UTOFU_ERR_OUT_OF_RESOURCE;
        }
    }
    if (rc == UTOFU_SUCCESS && !keep_spare()) {
        report("no descriptor is left to find peers: %s; raise the limit (ulimit -n)", std::strerror(errno));
        rc = UTOFU_ERR_OUT_OF_RESOURCE;
    }
    if (rc == UTOFU_SUCCESS && environment_.clock != ClockMode::none)
        rc = start_clock(*this);
    if (rc == UTOFU_SUCCESS && environment_.trace[0] != '\0')
        rc = open_trace();
    if (rc == UTOFU_SUCCESS) {
        job_.unlock();
    } else {
        if (is_exact())
            leave_schedule();
        instruments.clear();
        memory_.reset();
        job_.give_up();
        segment_.destroy();
    }
    return rc;
}

int Process::open_trace() noexcept
{
    const Placement& place = job_.placement();
    trace::Owner owner{};
    owner.pattern = environment_.trace;
    owner.limit_bytes = uint64_t{environment_.trace_mib} << 20;
    owner.job = environment_.job;
    owner.born = job_.born();
    owner.rank = place.rank;
    owner.node = place.node;
    owner.size = environment_.size.value_or(0);
    owner.ppn = environment_.ppn;
    std::copy_n(environment_.topology.units().data(), std::size(owner.shape), owner.shape);
    owner.wraps = environment_.topology.wraps();
    owner.cpu_permille = environment_.cpu_permille;
    const int rc = trace::open(owner);
    if (rc == UTOFU_SUCCESS)
        instruments.add(instrument_trace);
    return rc;
}

Peer Process::as_peer() const noexcept
{
    Peer peer;
    peer.base = segment_.base;
    peer.process = job_.process();
    peer.incarnation = job_.incarnation();
    peer.pid = pid_;
    peer.mrq_entries = segment_.mrq_entries;
    peer.mrq_entries_free = environment_.mrq_entries;
    peer.mrq_entries_session = environment_.mrq_entries_session;
    peer.tid = service_tid_;
    return peer;
}

bool Process::is_reachable() noexcept
{
    const auto has_owner = [](const AliveWord& word) { return word.owner.load_relaxed() != 0; };
    const auto is_ours = [&](const GateWord& gate) { return owns(gate); };
    const auto& vcqs = segment_.header().vcq_alive;
    const auto& gates = job_.own_node().gates;
    return std::any_of(std::begin(vcqs), std::end(vcqs), has_owner) ||
           std::any_of(std::begin(gates), std::end(gates), is_ours);
}

bool Process::owns(const GateWord& gate) const noexcept
{
    const OwnerWord owner = OwnerWord::decode(gate.word.load_acquire());
    return owner.taken && owner.process == job_.process() && owner.incarnation == (job_.incarnation() & 0xffff);
}

void Process::vanish() noexcept
{
    SegmentHeader& header = segment_.header();
    // Release: from here on posts to us end with MRQ_PEER (partner: is_alive).
    for (AliveWord& word : header.vcq_alive)
        word.owner.store_release(0);
    header.alive.owner.store_release(0);
    for (unsigned cq = 0; cq < cqs_per_node; cq++)
        job_.release_cq(cq);
    for (GateWord& gate : job_.own_node().gates)
        if (owns(gate))
            gate.word.store_release(0);
}

void Process::leave() noexcept
{
    if (!joined() || pid_ != ::getpid())
        return;
    finish_vcqs_at_exit();
    // Exact mode: other processes see it vanish, which therefore has its time like the freeing of a VCQ. Where there
    // is nothing to see, it takes no turn: how a process ends is a matter of its launcher.
    std::optional<TurnedCall> turn;
    if (is_exact() && is_reachable())
        turn.emplace(TurnedCall::Kind::sets_up);
    trace::leave();
    state_.store_release(left_state);
    vanish();
    turn.reset();
    if (is_exact())
        leave_schedule(); // others continue: nothing of this process changes after that
    job_.leave();
}

void Process::reset_in_child() noexcept
{
    if (has_clock())
        reset_clock_in_child();
    instruments.clear();
    trace::forget_in_child();
    reset_vcqs_in_child();
    reset_vbgs_in_child();
    reset_flows_in_child();
    segment_.file.close();
    reset_spare_in_child();
    keep_reachable(memory_.release());
    job_.forget();
    // Locks may have been held by threads that the child does not have: start from nothing.
    new (this) Process;
}

namespace {

[[gnu::destructor]] void leave_at_exit() noexcept
{
    Process::self().leave();
}

} // namespace
} // namespace tofu::sim
