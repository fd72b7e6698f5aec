// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The hot path: one instruction carried out by the thread that posts it, inlined into each start function.
//
// Inlined, because the operation and most parameters are constants at the call: the descriptor then never exists
// in memory, as long as nothing that is not inlined gets its address; hence the copies below. Order of the effects of
// one instruction: data, remote notice, local notice, TCQ entry.
#pragma once

#include "job/doorbell.h"
#include "tni/chaos.h"
#include "tni/copy.h"
#include "tni/descriptor.h"
#include "tni/flows.h"
#include "tni/notices.h"
#include "tni/overflow.h"
#include "tni/remote.h"
#include "tni/session.h"
#include "tni/vcq.h"
#include "tni/watch.h"

#define TOFU_SIM_HOT [[gnu::always_inline]] inline

namespace tofu::sim {

/// One instruction on its way.
struct Execution {
    Vcq& vcq;
    const Descriptor& d;
    Remote* remote;
    uint64_t old_value = 0; ///< ARMW
    int tcq_error = UTOFU_SUCCESS;
    int mrq_error = UTOFU_SUCCESS;
};

// Of bytes that are not copied here but, for example, by the kernel, where an order has its price. Without the flag the
// guide promises none within a transfer (6.1.3.1).
TOFU_SIM_HOT CopyOrder order_of(const Descriptor& d) noexcept
{
    return (d.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0 ? CopyOrder::last_line : CopyOrder::relaxed;
}

TOFU_SIM_HOT void move_put(Execution& e, const void* data) noexcept
{
    AddressCache& addresses = *e.vcq.addresses;
    std::byte* const target = addresses.find_target(e.remote->memory, e.d.rmt_stadd, e.d.length);
    if (target != nullptr) [[likely]] {
        copy_ordered(target, static_cast<const std::byte*>(data), e.d.length);
        return;
    }
    e.mrq_error = remote_mrq_error(addresses.put(e.remote->memory, e.d.rmt_stadd, data, e.d.length, order_of(e.d)));
}

TOFU_SIM_HOT void execute_put(Execution& e) noexcept
{
    std::byte* source = nullptr;
    const AccessStatus status =
        e.vcq.addresses->translate(e.vcq.own_memory, e.d.lcl_stadd, e.d.length, Need::read, &source);
    if (status != AccessStatus::ok) [[unlikely]] {
        e.tcq_error = local_tcq_error(status);
        return;
    }
    if (e.remote == nullptr) [[unlikely]] {
        e.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    move_put(e, source);
}

/// `target` is aligned.
TOFU_SIM_HOT TOFU_SIM_AS_DEVICE void store_word(std::byte* target, uint64_t word) noexcept
{
    // Release: partner is a reader polling this word.
    __atomic_store_n(reinterpret_cast<uint64_t*>(target), word, __ATOMIC_RELEASE);
}

TOFU_SIM_HOT void execute_put_piggyback(Execution& e) noexcept
{
    if (e.remote == nullptr) [[unlikely]] {
        e.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    std::byte* const target = e.vcq.addresses->find_target(e.remote->memory, e.d.rmt_stadd, e.d.length);
    const auto& data = e.d.data;
    if (target != nullptr && (reinterpret_cast<uintptr_t>(target) | e.d.length) % 8 == 0) [[likely]] {
        if (e.d.length == 8) [[likely]] {
            store_word(target, data[0]);
            return;
        }
        if (e.d.length == 0) [[unlikely]]
            return;
        store_word(target, data[0]);
        if (e.d.length > 8)
            store_word(target + 8, data[1]);
        if (e.d.length > 16)
            store_word(target + 16, data[2]);
        if (e.d.length > 24)
            store_word(target + 24, data[3]);
        return;
    }
    // By a copy: the address of the descriptor's own words would keep all of it in memory.
    const uint64_t copy[] = {data[0], data[1], data[2], data[3]};
    move_put(e, copy);
}

TOFU_SIM_HOT void execute_get(Execution& e) noexcept
{
    if (e.remote == nullptr) [[unlikely]] {
        e.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    AddressCache& addresses = *e.vcq.addresses;
    std::byte* target = nullptr;
    const AccessStatus status = addresses.translate(e.vcq.own_memory, e.d.lcl_stadd, e.d.length, Need::write, &target);
    if (status != AccessStatus::ok) [[unlikely]] {
        // The request reaches the target before the answer finds no place: its errors come first.
        const AccessStatus there = addresses.check(e.remote->memory, e.d.rmt_stadd, e.d.length, Need::read);
        e.mrq_error = there != AccessStatus::ok ? remote_mrq_error(there) : local_mrq_error(status);
        return;
    }
    const std::byte* const source = addresses.find(e.remote->memory, e.d.rmt_stadd, e.d.length, Need::read);
    if (source != nullptr) [[likely]] {
        copy_ordered(target, source, e.d.length);
        return;
    }
    e.mrq_error = remote_mrq_error(addresses.get(e.remote->memory, e.d.rmt_stadd, target, e.d.length, order_of(e.d)));
}

template <typename Word>
TOFU_SIM_HOT Word apply_armw(Word* target, unsigned op, Word operand) noexcept
{
    switch (op) {
    case UTOFU_ARMW_OP_SWAP: return __atomic_exchange_n(target, operand, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_ADD: return __atomic_fetch_add(target, operand, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_XOR: return __atomic_fetch_xor(target, operand, __ATOMIC_SEQ_CST);
    case UTOFU_ARMW_OP_AND: return __atomic_fetch_and(target, operand, __ATOMIC_SEQ_CST);
    default: return __atomic_fetch_or(target, operand, __ATOMIC_SEQ_CST);
    }
}

template <typename Word>
TOFU_SIM_HOT Word apply_cswap(Word* target, Word expected, Word desired) noexcept
{
    __atomic_compare_exchange_n(target, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

template <typename Word>
TOFU_SIM_HOT uint64_t apply(const Descriptor& d, std::byte* address) noexcept
{
    auto* const target = reinterpret_cast<Word*>(address);
    if (d.op == Op::cswap4 || d.op == Op::cswap8)
        return apply_cswap(target, static_cast<Word>(d.compare), static_cast<Word>(d.operand));
    return apply_armw(target, d.armw_op, static_cast<Word>(d.operand));
}

TOFU_SIM_HOT void execute_armw(Execution& e) noexcept
{
    if (e.remote == nullptr) [[unlikely]] {
        e.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    AddressCache& addresses = *e.vcq.addresses;
    const bool wide = e.d.op == Op::armw8 || e.d.op == Op::cswap8;
    const unsigned size = wide ? 8 : 4;
    std::byte* const target = addresses.find(e.remote->memory, e.d.rmt_stadd, size, Need::write);
    if (target != nullptr && reinterpret_cast<uintptr_t>(target) % size == 0) [[likely]] {
        e.old_value = wide ? apply<uint64_t>(e.d, target) : apply<uint32_t>(e.d, target);
        return;
    }
    const bool cswap = e.d.op == Op::cswap4 || e.d.op == Op::cswap8;
    uint64_t old_value = 0;
    e.mrq_error = remote_mrq_error(addresses.armw(e.remote->memory, e.d.rmt_stadd, size,
                                                  cswap ? ArmwOp::cswap : ArmwOp{e.d.armw_op}, e.d.operand, e.d.compare,
                                                  &old_value));
    e.old_value = old_value;
}

[[gnu::noinline]] inline void notify_remote(Remote& remote, Claimant me, const MrqEntry& entry) noexcept
{
    if (!remote.mrq.push(me, entry)) [[unlikely]]
        report_remote_overflow(remote);
}
[[gnu::noinline]] inline void notify_remote(Remote& remote, Claimant me, const MrqEntry& entry,
                                            const Stamp& stamp) noexcept
{
    if (!remote.mrq.push(me, entry, stamp))
        report_remote_overflow(remote);
}

TOFU_SIM_HOT void notify_local(Execution& e) noexcept
{
    if (e.vcq.local_notices.full()) [[unlikely]] {
        end_by_own_overflow(e.vcq);
        return;
    }
    fill_local_entry(e.vcq.local_notices.next().entry, e.d, e.old_value, e.mrq_error);
    e.vcq.local_notices.push();
}

// `watch`: where instruments watch; a constant at each call, like most of the descriptor.
TOFU_SIM_HOT void finish(Execution& e, void* cbdata, uint32_t position, const Watch* watch = nullptr) noexcept
{
    const bool sent = e.tcq_error == UTOFU_SUCCESS;
    if (sent && e.d.op != Op::nop) [[likely]] {
        const bool arrived = e.mrq_error == UTOFU_SUCCESS;
        if (arrived) [[likely]] {
            if ((e.d.flags & notice_remote) != 0) {
                if (watch != nullptr) {
                    notify_remote(*e.remote, e.vcq.me, remote_entry(e.d, e.vcq.id),
                                  {watch->times.noted, watch->origin});
                } else {
                    notify_remote(*e.remote, e.vcq.me, remote_entry(e.d, e.vcq.id));
                }
            }
            ring_doorbell(*e.remote->header);
            if (e.d.sps != 0 && e.remote->session && e.d.op == Op::put) [[unlikely]]
                start_session(e.vcq, *e.remote, e.d.sps, watch != nullptr ? watch->times.arrived : 0);
        }
        if (!arrived || (e.d.flags & notice_local) != 0) {
            notify_local(e);
            if (watch != nullptr)
                stamp_local(e.vcq, {watch->times.told, watch->origin});
        }
    }
    if (!sent || (e.d.flags & notice_tcq) != 0) {
        e.vcq.tcq.push({cbdata, position, e.tcq_error});
        if (watch != nullptr)
            stamp_tcq(e.vcq, {watch->times.sent, watch->origin});
    }
    count(flow_of(e.vcq, e.remote, e.d), e.d.op, e.d.length);
}

TOFU_SIM_HOT void execute(Execution& e) noexcept
{
    switch (e.d.op) {
    case Op::put: execute_put(e); break;
    case Op::put_piggyback: execute_put_piggyback(e); break;
    case Op::get: execute_get(e); break;
    case Op::armw4:
    case Op::armw8:
    case Op::cswap4:
    case Op::cswap8: execute_armw(e); break;
    case Op::nop: break;
    }
}

/// See Vcq::detour. The remote, or null without a target.
[[nodiscard]] int post_by_detour(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata) noexcept;

// The rest of a post: `remote` is null without an owner, and for a NOP.
TOFU_SIM_HOT int post_to(Vcq& vcq, const Descriptor& descriptor, Remote* remote, void* cbdata) noexcept
{
    if ((vcq.special & Vcq::detour) != 0) [[unlikely]] {
        const Descriptor copy = descriptor;
        return post_by_detour(vcq, copy, remote, cbdata);
    }
    Execution e{vcq, descriptor, remote};
    const uint32_t position = vcq.toq_tail++;
    execute(e);
    finish(e, cbdata, position);
    return UTOFU_SUCCESS;
}

// As post() of tni/engine.h: the caller has seen that the TOQ has room.
TOFU_SIM_HOT int post_inline(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept
{
    Remote* remote = nullptr;
    if (descriptor.op != Op::nop) {
        Remote* found = nullptr;
        const RemoteStatus status = find_remote(descriptor.rmt_vcq_id, found);
        remote = found;
        if (status > RemoteStatus::no_owner) [[unlikely]]
            return refusal_of(status);
    }
    return post_to(vcq, descriptor, remote, cbdata);
}

} // namespace tofu::sim
