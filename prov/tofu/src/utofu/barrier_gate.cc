// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See barrier_gate.h.
#include "utofu/barrier_gate.h"

#include <cstdlib>

#include <unistd.h>

namespace tofu::vcq {

static bool has_gates(const Functions& f) noexcept
{
#define TOFU_HAS(name) &&f.name != nullptr
    return true TOFU_GATE_FUNCTIONS(TOFU_HAS);
#undef TOFU_HAS
}

static bool suffices(const Functions& f, utofu_tni_id_t tni) noexcept
{
    constexpr unsigned long needed = UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER | UTOFU_BARRIER_CAP_REDUCE_OP_BAND |
                                     UTOFU_BARRIER_CAP_REDUCE_OP_BOR | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR |
                                     UTOFU_BARRIER_CAP_REDUCE_OP_MAX | UTOFU_BARRIER_CAP_REDUCE_OP_SUM |
                                     UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM;
    utofu_barrier_caps* caps = nullptr;
    return f.query_barrier_caps(tni, &caps) == UTOFU_SUCCESS && caps != nullptr &&
           (caps->reduce_ops & needed) == needed && caps->max_uint64_reduction >= GateData::words &&
           caps->max_double_reduction >= GateData::reals;
}

bool coords_of(const Backend& backend, utofu_vcq_id_t vcq, Coords& coords) noexcept
{
    utofu_tni_id_t tni = 0;
    utofu_cq_id_t cq = 0;
    std::uint16_t extra = 0;
    return backend.functions().query_vcq_info(vcq, coords, &tni, &cq, &extra) == UTOFU_SUCCESS;
}

bool coords_of_gate(const Backend& backend, utofu_vbg_id_t gate, Coords& coords) noexcept
{
    utofu_tni_id_t tni = 0;
    utofu_bg_id_t bg = 0;
    std::uint16_t extra = 0;
    return backend.functions().query_vbg_info(gate, coords, &tni, &bg, &extra) == UTOFU_SUCCESS;
}

bool Gates::alloc(const Backend& backend, unsigned count, unsigned spread) noexcept
{
    const Functions& f = backend.functions();
    utofu_tni_id_t* tnis = nullptr;
    std::size_t found = 0;
    if (count > most || !has_gates(f) || f.get_barrier_tnis(&tnis, &found) != UTOFU_SUCCESS)
        return false;
    functions_ = &f;
    owner_ = getpid();
    for (std::size_t i = 0; i < found && count_ == 0; i++) {
        const utofu_tni_id_t tni = tnis[(spread + i) % found];
        if (suffices(f, tni) && f.alloc_vbg(tni, count, 0, ids_) == UTOFU_SUCCESS)
            count_ = count;
    }
    std::free(tnis); // the caller's by guide 3.2.1.2
    return count_ != 0;
}

void Gates::free() noexcept
{
    if (count_ != 0 && owner_ == getpid())
        (void)functions_->free_vbg(ids_, count_);
    count_ = 0;
}

} // namespace tofu::vcq
