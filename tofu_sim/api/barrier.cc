// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Guide 3.4 and 3.8: virtual barrier gates.
#include "api/exports.h"

#include "barrier/process_vbgs.h"
#include "clock/clock.h"
#include "job/instruments.h"
#include "topology/ids.h"
#include "trace/recorder.h"

#include <algorithm>
#include <optional>

using namespace tofu::sim;

namespace {

constexpr bool is_integer_op(int op) noexcept
{
    return op >= static_cast<int>(ReduceOp::band) && op <= static_cast<int>(ReduceOp::sum);
}

/// Not for NOT_COMPLETED and BUSY, which are no errors.
int result(int code) noexcept
{
    return code == UTOFU_SUCCESS || code == UTOFU_ERR_NOT_COMPLETED || code == UTOFU_ERR_BUSY ? code : fail(code);
}

/// For clock and trace: a round began or ended, or a poll found nothing.
[[gnu::noinline]] int watched(const VbgSet& set, int code, Kind kind, bool began) noexcept
{
    if ((instruments & instrument_trace) != 0) {
        if (code == UTOFU_SUCCESS) {
            trace::Record record{};
            record.time = trace::now();
            record.peer = set.start_gate(); // distinguishes it from others of the process
            record.type = began ? trace::Type::barrier : trace::Type::barrier_done;
            record.what = static_cast<uint8_t>(kind);
            trace::add(record);
        } else if (code == UTOFU_ERR_NOT_COMPLETED && !is_exact()) {
            trace::poll_in_vain();
        }
    }
    return code;
}

[[gnu::noinline]] int start_watched(VbgSet& set, Kind kind, Packet own) noexcept
{
    const TurnedCall turn(TurnedCall::Kind::acts);
    if (turn.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    std::optional<ClockedCall> call;
    if (has_clock()) {
        call.emplace();
        own.time = Network::gate_start(call->spend(figures::post_call), kind != Kind::barrier);
    }
    const VbgSet::Guard guard(set);
    return watched(set, result(set.start(process_vbgs()->circuit(), kind, own)), kind, true);
}

int start(VbgSet& set, Kind kind, const Packet& own) noexcept
{
    if (instruments != 0) [[unlikely]]
        return start_watched(set, kind, own);
    const VbgSet::Guard guard(set);
    return result(set.start(process_vbgs()->circuit(), kind, own));
}

[[gnu::noinline]] int poll_watched(VbgSet& set, Kind kind, Packet& packet) noexcept
{
    TurnedCall turn(TurnedCall::Kind::looks);
    if (turn.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    const Circuit& circuit = process_vbgs()->circuit();
    // In exact mode the end is written before its time.
    const auto look = [&] {
        if (const int bad = set.check(kind); bad != UTOFU_SUCCESS)
            return bad;
        const uint64_t end = is_exact() ? set.ends_at(circuit) : 0;
        const bool early = !turn.may_look() || (end != never && end > clock_now());
        return early ? int{UTOFU_ERR_NOT_COMPLETED} : set.poll(circuit, kind, packet);
    };
    int rc = look();
    if (rc == UTOFU_ERR_NOT_COMPLETED && is_exact() && turn.wait(set.vain_polls(), set.ends_at(circuit)))
        rc = look();
    if (rc != UTOFU_ERR_NOT_COMPLETED)
        turn.found();
    if (has_clock()) {
        ClockedCall call;
        if (rc == UTOFU_ERR_NOT_COMPLETED) {
            call.found_nothing();
        } else {
            if ((instruments & instrument_trace) != 0 && packet.time > clock_now())
                trace::begin_wait(trace::now());
            call.wait_until(packet.time);
            (void)call.spend(figures::found);
        }
    }
    return watched(set, result(rc), kind, false);
}

int poll(utofu_vbg_id_t vbg_id, unsigned long flags, Kind kind, Packet& packet) noexcept
{
    VbgSet* const set = find_vbg_set(vbg_id);
    if (set == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VBG_ID);
    if (flags != 0) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_FLAGS);
    const VbgSet::Guard guard(*set);
    if (instruments != 0) [[unlikely]]
        return poll_watched(*set, kind, packet);
    return result(set->poll(process_vbgs()->circuit(), kind, packet));
}

/// Joins the job if need be: what alloc, and only alloc, may be the first to do. To allocate and to free acts: the
/// processes of a node share its gates.
template <typename Call>
int with_vbgs(TurnedCall::Kind kind, Call call) noexcept
{
    if (const int rc = enter_vbgs(); rc != UTOFU_SUCCESS)
        return fail(rc);
    const TurnedCall turn(kind);
    if (turn.is_refused())
        return fail(UTOFU_ERR_NOT_AVAILABLE);
    return result(call(*process_vbgs()));
}

} // namespace

extern "C" {

int putofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t vbg_ids[])
{
    return with_vbgs(TurnedCall::Kind::acts, [&](Vbgs& vbgs) { return vbgs.alloc(tni_id, num_vbgs, flags, vbg_ids); });
}

int putofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs)
{
    return with_vbgs(TurnedCall::Kind::acts, [&](Vbgs& vbgs) { return vbgs.free(vbg_ids, num_vbgs); });
}

int putofu_set_vbg(struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings)
{
    return with_vbgs(TurnedCall::Kind::sets_up, [&](Vbgs& vbgs) { return vbgs.set(vbg_settings, num_vbg_settings); });
}

int putofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_bg_id_t* bg_id,
                          uint16_t* extra_val)
{
    if (coords == nullptr || tni_id == nullptr || bg_id == nullptr || extra_val == nullptr)
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (const int rc = enter_vbgs(); rc != UTOFU_SUCCESS)
        return fail(rc);
    const auto gate = Vbgs::gate_of(process_topology(), vbg_id);
    if (!gate)
        return fail(UTOFU_ERR_INVALID_VBG_ID);
    const Coords where = decode_coords(vbg_id);
    std::copy(where.begin(), where.end(), coords);
    *tni_id = static_cast<utofu_tni_id_t>(decode_tni(vbg_id));
    *bg_id = static_cast<utofu_bg_id_t>(number_on_tni(*gate));
    *extra_val = 0;
    return UTOFU_SUCCESS;
}

int putofu_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags)
{
    VbgSet* const set = find_vbg_set(vbg_id);
    if (set == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VBG_ID);
    if (flags != 0) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_FLAGS);
    return start(*set, Kind::barrier, barrier_packet());
}

int putofu_reduce_uint64(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
                         unsigned long int flags)
{
    VbgSet* const set = find_vbg_set(vbg_id);
    if (set == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VBG_ID);
    if (!is_integer_op(bits_of(op))) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_OP);
    const auto wanted = static_cast<ReduceOp>(bits_of(op));
    if (data == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (num_data == 0 || num_data > max_uint64_elements || (wanted == ReduceOp::maxloc && num_data % 2 != 0))
        [[unlikely]]
        return fail(UTOFU_ERR_INVALID_NUMBER);
    if (flags != 0) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_FLAGS);
    return start(*set, Kind::integers, integer_packet(wanted, {data, num_data}));
}

int putofu_reduce_double(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
                         unsigned long int flags)
{
    VbgSet* const set = find_vbg_set(vbg_id);
    if (set == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_VBG_ID);
    if (bits_of(op) != UTOFU_REDUCE_OP_BFPSUM) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_OP);
    if (data == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_POINTER);
    if (num_data == 0 || num_data > max_double_elements) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_NUMBER);
    if (flags != 0) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_FLAGS);
    return start(*set, Kind::doubles, double_packet({data, num_data}));
}

int putofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags)
{
    Packet packet;
    return poll(vbg_id, flags, Kind::barrier, packet);
}

int putofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[])
{
    if (data == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_POINTER);
    Packet packet;
    const int rc = poll(vbg_id, flags, Kind::integers, packet);
    if (rc == UTOFU_SUCCESS)
        std::copy_n(packet.words, packet.count, data);
    return rc;
}

int putofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags, double data[])
{
    if (data == nullptr) [[unlikely]]
        return fail(UTOFU_ERR_INVALID_POINTER);
    Packet packet;
    const int rc = poll(vbg_id, flags, Kind::doubles, packet);
    if (rc == UTOFU_SUCCESS)
        for (unsigned i = 0; i < packet.count; i++)
            data[i] = bfp_value(packet, i);
    return rc;
}

} // extern "C"

TOFU_SIM_ALIAS(alloc_vbg);
TOFU_SIM_ALIAS(free_vbg);
TOFU_SIM_ALIAS(set_vbg);
TOFU_SIM_ALIAS(query_vbg_info);
TOFU_SIM_ALIAS(barrier);
TOFU_SIM_ALIAS(reduce_uint64);
TOFU_SIM_ALIAS(reduce_double);
TOFU_SIM_ALIAS(poll_barrier);
TOFU_SIM_ALIAS(poll_reduce_uint64);
TOFU_SIM_ALIAS(poll_reduce_double);
