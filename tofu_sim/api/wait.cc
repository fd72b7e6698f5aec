// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The extras of include/tofu_sim.h: sleeping, statistics, version, job, moved memory.
#include "api/exports.h"

#include "barrier/process_vbgs.h"
#include "clock/clock.h"
#include "job/doorbell.h"
#include "job/flows.h"
#include "job/instruments.h"
#include "job/oversubscription.h"
#include "tni/engine.h"
#include "tni/session.h"
#include "trace/recorder.h"

#include <atomic>

#include "config.h"

#pragma GCC visibility push(default)
#include <tofu_sim.h>
#pragma GCC visibility pop

using namespace tofu::sim;

namespace {

constexpr int gate_pause_ms = 1; ///< between two looks at gates, which ring no bell

bool waits_at_gates() noexcept
{
    const Vbgs* const vbgs = process_vbgs();
    return vbgs != nullptr && vbgs->are_under_way();
}

// Another thread may poll the VCQ meanwhile, or free it and create another in its place (partner: open_vcq).
bool has_notices(Vcq& vcq) noexcept
{
    if (!vcq.tcq.empty() || unread_mrq(vcq) != 0)
        return true;
    if ((std::atomic_ref(vcq.special).load(std::memory_order_relaxed) & Vcq::session) == 0)
        return false;
    const VcqGuard guard(vcq);
    return has_tcq_session(vcq);
}

uint64_t looked_around = 0; ///< exact mode: when tofu_sim_give_way was called last, see TurnedCall::wait

/// The time is that of the virtual clock. The turn may end before: then something outside has to happen, and the caller
/// looks around.
int wait_in_exact_mode(TurnedCall& call, int timeout_ms) noexcept
{
    constexpr Picoseconds millisecond = 1'000'000'000;
    if (timeout_ms == 0)
        return 0;
    const Picoseconds until = timeout_ms < 0 ? never : clock_now() + static_cast<Picoseconds>(timeout_ms) * millisecond;
    return !call.may_look() || call.wait_until(until) || clock_now() < until ? 1 : 0;
}

} // namespace

extern "C" {

const char* tofu_sim_version(void)
{
    return PACKAGE_VERSION;
}

const char* tofu_sim_job(void)
{
    Process& self = Process::self();
    return self.enter() == UTOFU_SUCCESS ? self.environment().job : nullptr;
}

int tofu_sim_wait(utofu_vcq_hdl_t* vcqs, size_t n, int timeout_ms)
{
    if (vcqs == nullptr && n != 0)
        return fail(UTOFU_ERR_INVALID_POINTER);
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    TurnedCall call(TurnedCall::Kind::looks);
    if (call.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    for (size_t i = 0; i < n; i++) {
        Vcq* const vcq = find_vcq(vcqs[i]);
        if (vcq == nullptr)
            return fail(UTOFU_ERR_INVALID_VCQ_HDL);
        if (has_notices(*vcq))
            return 1;
    }
    if (is_exact())
        return wait_in_exact_mode(call, timeout_ms);
    const bool traced = (instruments & instrument_trace) != 0;
    const bool soon = (timeout_ms < 0 || timeout_ms > gate_pause_ms) && waits_at_gates();
    const bool rung =
        doze(self.segment().header(), soon ? gate_pause_ms : timeout_ms, traced ? trace::poll_in_vain : nullptr);
    return rung || soon ? 1 : 0;
}

int tofu_sim_give_way(unsigned times)
{
    Process& self = Process::self();
    if (is_exact()) {
        TurnedCall call(TurnedCall::Kind::looks);
        (void)call.wait(looked_around);
        return 1;
    }
    return self.joined() &&
                   yield_processor(self.job().oversubscription(), self.segment().header(), times, waits_at_gates)
               ? 1
               : 0;
}

int tofu_sim_wake(void)
{
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    ring_doorbell(self.segment().header());
    if (is_exact())
        nudge_self();
    return UTOFU_SUCCESS;
}

int tofu_sim_query_statistics(utofu_tni_id_t tni_id, struct tofu_sim_tni_statistics* statistics)
{
    if (statistics == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (tni_id >= tnis_per_node)
        return fail(UTOFU_ERR_INVALID_TNI_ID);
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return fail(rc);
    const FlowCounters sum = sum_of_tni(self.segment().base, tni_id);
    statistics->operations = sum.operations;
    statistics->bytes = sum.bytes_out + sum.bytes_back;
    return UTOFU_SUCCESS;
}

int tofu_sim_seen(const void* address, size_t length)
{
    if (!has_clock())
        return 0;
    clock_seen(address, length);
    return 1;
}

uint64_t tofu_sim_time(void)
{
    return has_clock() ? clock_now() : 0;
}

int tofu_sim_moved(const void* address, size_t length)
{
    Process& self = Process::self();
    const auto start = reinterpret_cast<uint64_t>(address);
    return self.joined() && start + length >= start && self.memory().has_moved(start, start + length) ? 1 : 0;
}

} // extern "C"
