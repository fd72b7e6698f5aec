// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The VCQs of this process: their handles, creation and freeing (guide 3.3), their private queues.
#include "tni/vcq.h"

#include "clock/clock.h"
#include "job/flows.h"
#include "job/instruments.h"
#include "job/process.h"
#include "tni/chaos.h"
#include "tni/control.h"
#include "tni/exact.h"
#include "tni/gather.h"
#include "tni/overflow.h"
#include "tni/remote.h"
#include "tni/session.h"
#include "tni/watch.h"
#include "topology/ids.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <sys/mman.h>

namespace tofu::sim {

constinit VcqTable vcq_storage;

namespace {

/// What this process has of each CQ of its node; guarded by Process::slow_path.
struct OwnCq {
    CqMode mode;
    uint8_t components; ///< bit per VCQ
    bool session_ring;  ///< its rings were last used with the capacity of session mode
    bool used_before;
};
OwnCq own_cqs[cqs_per_node];

/// How many CQs of a TNI this process may have in each mode (table 6.2, and what real systems give): one
/// process alone on its node gets 8 in free mode, 7 of them exclusive, 3 in session mode.
struct Limits {
    unsigned free_mode;
    unsigned exclusive;
    unsigned session;
};

unsigned share_of_tni(uint64_t share, unsigned tni) noexcept
{
    return static_cast<unsigned>(std::popcount(share >> (tni * cqs_per_tni) & ((uint64_t{1} << cqs_per_tni) - 1)));
}

Limits limits_of(Process& self, unsigned tni) noexcept
{
    const unsigned share = share_of_tni(self.job().placement().cq_share, tni);
    Limits limits;
    limits.free_mode = std::min(share, 8u);
    limits.exclusive = limits.free_mode > 1 ? limits.free_mode - 1 : limits.free_mode;
    limits.session = std::min(share, self.environment().session_cqs);
    return limits;
}

unsigned count_mode(unsigned tni, CqMode mode) noexcept
{
    const OwnCq* const first = own_cqs + tni * cqs_per_tni;
    return static_cast<unsigned>(
        std::count_if(first, first + cqs_per_tni, [&](const OwnCq& cq) { return cq.mode == mode; }));
}

/// Could this process take one more CQ of a TNI in this mode? Those that the environment keeps for another mode are
/// left alone (guide 4.3.2.1, 4.3.2.2); exclusive VCQs come first, and one CQ is always for the others.
bool leaves_enough(Process& self, unsigned tni, CqMode mode) noexcept
{
    const Environment& environment = self.environment();
    const Limits limits = limits_of(self, tni);
    const unsigned share = share_of_tni(self.job().placement().cq_share, tni);
    const unsigned exclusive = count_mode(tni, CqMode::exclusive);
    const unsigned session = count_mode(tni, CqMode::session);
    const unsigned free_mode = count_mode(tni, CqMode::free_mode);
    const unsigned spare = limits.free_mode == 0 ? 0 : limits.free_mode - 1;
    const unsigned keep_exclusive = std::min(environment.exclusive_cqs, spare);
    const unsigned keep_session = environment.keep_session_cqs
                                      ? std::min(environment.session_cqs, share - std::min(share, keep_exclusive + 1))
                                      : 0;
    const unsigned for_exclusive = mode == CqMode::exclusive ? 0 : keep_exclusive - std::min(keep_exclusive, exclusive);
    const unsigned for_session = mode == CqMode::session ? 0 : keep_session - std::min(keep_session, session);
    const unsigned of_free_mode = mode == CqMode::session ? 0 : exclusive + free_mode + for_exclusive;
    return of_free_mode < limits.free_mode && exclusive + session + free_mode + for_exclusive + for_session < share;
}

/// A free CQ of this process's share; session mode takes them from the end.
int claim_new_cq(Process& self, unsigned tni, CqMode mode, uint8_t components) noexcept
{
    const uint64_t share = self.job().placement().cq_share;
    for (unsigned i = 0; i < cqs_per_tni; i++) {
        const unsigned cq = tni * cqs_per_tni + (mode == CqMode::session ? cqs_per_tni - 1 - i : i);
        if ((share >> cq & 1) == 0 || own_cqs[cq].mode != CqMode::none)
            continue;
        const CqSharing sharing = self.environment().cq_sharing;
        if (self.job().claim_cq(cq, mode, components) || sharing == CqSharing::meet) {
            own_cqs[cq].mode = mode;
            own_cqs[cq].components = components;
            return static_cast<int>(cq);
        }
        if (sharing == CqSharing::refuse)
            return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    return UTOFU_ERR_FULL;
}

void add_component(Process& self, unsigned cq, unsigned component) noexcept
{
    own_cqs[cq].components |= static_cast<uint8_t>(1u << component);
    self.job().update_cq(cq, own_cqs[cq].mode, own_cqs[cq].components);
}

void remove_component(Process& self, unsigned cq, unsigned component) noexcept
{
    own_cqs[cq].components &= static_cast<uint8_t>(~(1u << component));
    if (own_cqs[cq].components == 0) {
        own_cqs[cq].mode = CqMode::none;
        self.job().release_cq(cq);
    } else {
        self.job().update_cq(cq, own_cqs[cq].mode, own_cqs[cq].components);
    }
}

/// A CQ of the mode for one VCQ alone.
int choose_alone(Process& self, unsigned tni, CqMode mode, unsigned& component) noexcept
{
    const Limits limits = limits_of(self, tni);
    component = 0;
    if (mode == CqMode::session) {
        if (limits.session == 0)
            return UTOFU_ERR_NOT_AVAILABLE;
        if (count_mode(tni, CqMode::session) >= limits.session)
            return UTOFU_ERR_FULL;
    } else if (count_mode(tni, CqMode::exclusive) >= limits.exclusive) {
        return UTOFU_ERR_FULL;
    }
    return leaves_enough(self, tni, mode) ? claim_new_cq(self, tni, mode, 1) : UTOFU_ERR_FULL;
}

/// A place in a shared CQ: the component asked for in the first one we have, or the first free one of any.
int choose_shared(Process& self, unsigned tni, int wanted, unsigned& component) noexcept
{
    for (unsigned i = 0; i < cqs_per_tni; i++) {
        const unsigned cq = tni * cqs_per_tni + i;
        if (own_cqs[cq].mode != CqMode::free_mode)
            continue;
        if (wanted != any_component) {
            component = static_cast<unsigned>(wanted);
            if ((own_cqs[cq].components >> component & 1) != 0)
                return UTOFU_ERR_USED;
            add_component(self, cq, component);
            return static_cast<int>(cq);
        }
        component = static_cast<unsigned>(std::countr_one(own_cqs[cq].components));
        if (component < vcqs_per_cq) {
            add_component(self, cq, component);
            return static_cast<int>(cq);
        }
    }
    if (!leaves_enough(self, tni, CqMode::free_mode))
        return UTOFU_ERR_FULL;
    component = wanted == any_component ? 0 : static_cast<unsigned>(wanted);
    return claim_new_cq(self, tni, CqMode::free_mode, static_cast<uint8_t>(1u << component));
}

/// A ring keeps its position from one VCQ to the next of the same place, so that a late writer to the old one
/// cannot disturb the new one; only another capacity starts it over, on fresh pages.
void open_ring(Process& self, Vcq& vcq, std::byte* region, bool session) noexcept
{
    const Environment& environment = self.environment();
    vcq.mrq_capacity = session ? environment.mrq_entries_session : environment.mrq_entries;
    OwnCq& cq = own_cqs[vcq.index / vcqs_per_cq];
    const bool other_capacity =
        cq.used_before && cq.session_ring != session && environment.mrq_entries_session != environment.mrq_entries;
    if (other_capacity) {
        const size_t bytes = vcq_region_bytes(self.segment().mrq_entries);
        const unsigned first = vcq.index / vcqs_per_cq * vcqs_per_cq;
        for (unsigned index = first; index < first + vcqs_per_cq; index++) {
            (void)::madvise(self.segment().vcq_region(index), bytes, MADV_REMOVE);
            vcq_table[index].mrq_head = 0;
        }
    }
    cq.used_before = true;
    cq.session_ring = session;
    VcqControl& control = vcq_control(region);
    vcq.mrq = MrqRing(&control.mrq, reinterpret_cast<MrqSlot*>(region + vcq_mrq_offset),
                      static_cast<unsigned>(std::countr_zero(vcq.mrq_capacity)));
    control.mrq.overflow.store_relaxed(0);
    // What was addressed to an earlier VCQ of this place is not for this one.
    MrqEntry entry;
    while (vcq.mrq.poll(vcq.mrq_head, entry) == MrqRing::Poll::found) {
    }
}

int open_vcq(Process& self, Vcq& vcq, CqMode mode, unsigned long flags) noexcept
{
    const bool session = mode == CqMode::session;
    std::byte* const region = self.segment().vcq_region(vcq.index);
    vcq.mode = mode;
    vcq.thread_safe = (flags & UTOFU_VCQ_FLAG_THREAD_SAFE) != 0;
    uint32_t special = (vcq.thread_safe ? uint32_t{Vcq::locked} : 0) | (session ? uint32_t{Vcq::session} : 0);
    if (self.environment().chaos && !session)
        special |= Vcq::locked | Vcq::chaos; // its thread is another user of the VCQ
    special |= instruments != 0 ? uint32_t{Vcq::watched} : 0;
    // Relaxed: a waiter may still look at the VCQ that was here before (partner: tofu_sim_wait).
    vcq.set_special(special);
    vcq.toq_head = vcq.toq_tail = 0;
    vcq.claimed_polls = 0;
    vcq.me = Claimant(self.job().process(), self.job().incarnation());
    vcq.flows = flow_row(segment_flows(self.segment().base), vcq.index);
    if (vcq.flows == nullptr || !open_vcq_region(self.segment().base, vcq.index, self.segment().mrq_entries))
        return UTOFU_ERR_OUT_OF_MEMORY;
    const Coords coords = self.coords();
    vcq.id = encode_vcq_id({coords, {coords[3], coords[4], coords[5]}, vcq.tni, vcq.cq, vcq.component});
    open_ring(self, vcq, region, session);
    if (!vcq.tcq.open(toq_entries) || !vcq.local_notices.open(vcq.mrq_capacity))
        return UTOFU_ERR_OUT_OF_MEMORY;
    vcq.watch.reset();
    if (instruments != 0 && !open_watch(vcq))
        return UTOFU_ERR_OUT_OF_MEMORY;
    if ((vcq.special & Vcq::chaos) != 0 && !open_chaos(vcq, *self.environment().chaos))
        return UTOFU_ERR_OUT_OF_RESOURCE;
    if (session && !open_session(vcq))
        return UTOFU_ERR_OUT_OF_MEMORY;
    vcq.registrations = self.memory().open_vcq(vcq.index, vcq.component);
    if (vcq.addresses == nullptr)
        vcq.addresses = new (std::nothrow) AddressCache; // kept for the next VCQ of this place
    if (vcq.registrations == nullptr || vcq.addresses == nullptr) {
        vcq.registrations.reset();
        return UTOFU_ERR_OUT_OF_MEMORY;
    }
    vcq.own_memory.table = self.memory().own_table(vcq.index); // there: open_vcq has made it
    vcq.own_memory.vcq = vcq.index;
    vcq.own_memory.serial = RemoteVcq::new_serial();
    return UTOFU_SUCCESS;
}

} // namespace

int create_vcq(unsigned tni, int wanted, unsigned long flags, utofu_vcq_hdl_t& handle) noexcept
{
    Process& self = Process::self();
    if (const int rc = self.enter(); rc != UTOFU_SUCCESS)
        return rc;
    const TurnedCall call(TurnedCall::Kind::sets_up);
    if (call.is_refused())
        return UTOFU_ERR_NOT_AVAILABLE;
    const std::lock_guard guard(self.slow_path());
    watch_for_overflow();
    CqMode mode = CqMode::free_mode;
    mode = (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) != 0 ? CqMode::exclusive : mode;
    mode = (flags & UTOFU_VCQ_FLAG_SESSION_MODE) != 0 ? CqMode::session : mode;
    unsigned component = 0;
    const int cq = mode == CqMode::free_mode ? choose_shared(self, tni, wanted, component)
                                             : choose_alone(self, tni, mode, component);
    if (cq < 0)
        return cq;
    Vcq& vcq = vcq_table[static_cast<unsigned>(cq) * vcqs_per_cq + component];
    vcq.index = static_cast<unsigned>(cq) * vcqs_per_cq + component;
    vcq.tni = static_cast<uint8_t>(tni);
    vcq.cq = static_cast<uint8_t>(static_cast<unsigned>(cq) % cqs_per_tni);
    vcq.component = static_cast<uint8_t>(component);
    if (const int rc = open_vcq(self, vcq, mode, flags); rc != UTOFU_SUCCESS) {
        remove_component(self, static_cast<unsigned>(cq), component);
        return rc;
    }
    // Release: peers and other threads find a complete VCQ (partners: find_remote, find_vcq).
    self.segment().header().vcq_alive[vcq.index].owner.store_release(
        alive_vcq(self.service_tid(), mode == CqMode::session));
    vcq.live.store_release(1);
    watch_vcq(vcq, true);
    if ((vcq.special & Vcq::chaos) != 0)
        vcq.carried_on.store_release(1);
    handle = reinterpret_cast<utofu_vcq_hdl_t>(&vcq);
    return UTOFU_SUCCESS;
}

int free_vcq(utofu_vcq_hdl_t handle) noexcept
{
    Process& self = Process::self();
    if (is_exact() && TurnedCall(TurnedCall::Kind::sets_up).is_refused())
        return UTOFU_ERR_NOT_AVAILABLE;
    // Before the slow path is taken: what is held, or still on its way, may need it to find its target.
    if (Vcq* const vcq = find_vcq(handle); vcq != nullptr && (vcq->special & Vcq::gathering) != 0) {
        start_gathered(*vcq);
    } else if (vcq != nullptr && (vcq->special & Vcq::chaos) != 0) {
        const VcqGuard vcq_guard(*vcq);
        end_chaos(*vcq);
        vcq->set_special(vcq->special & ~uint32_t{Vcq::chaos});
        vcq->carried_on.store_release(0);
    }
    if (is_exact()) {
        if (const Vcq* const vcq = find_vcq(handle))
            drain_exact(vcq);
    }
    const TurnedCall call(TurnedCall::Kind::sets_up);
    const std::lock_guard guard(self.slow_path());
    Vcq* const vcq = find_vcq(handle);
    if (vcq == nullptr)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    vcq->live.store_release(0);
    watch_vcq(*vcq, false);
    if (!self.joined())
        return UTOFU_SUCCESS; // at exit, after the job was left: the CQ may have another owner by now
    self.segment().header().vcq_alive[vcq->index].owner.store_release(0);
    vcq->registrations.reset();
    vcq->tcq.clear();
    vcq->local_notices.clear();
    remove_component(self, vcq->index / vcqs_per_cq, vcq->component);
    return UTOFU_SUCCESS;
}

void finish_vcqs_at_exit() noexcept
{
    end_all_chaos();
    if (is_exact())
        drain_exact(nullptr);
}

void reset_vcqs_in_child() noexcept
{
    for (Vcq& vcq : vcq_table) {
        vcq.live.store_relaxed(0);
        vcq.mrq_head = 0;
        vcq.special = 0;
        vcq.carried_on.store_relaxed(0);
        keep_reachable(vcq.registrations.release()); // its segment is not ours
        new (&vcq.lock) std::mutex;
    }
    std::fill(std::begin(own_cqs), std::end(own_cqs), OwnCq{});
    forget_chaos_in_child();
    forget_exact_in_child();
    forget_remotes_in_child();
}

} // namespace tofu::sim
