// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A uTofu library of which Gets and CSWAPs are used: each ends at the next poll, as the test says. For units that look
// things up at a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "utofu/library.h"

namespace tofu::test {

/// A Get or a CSWAP that has ended and is not polled yet.
struct Ended {
    int code;
    std::uint64_t edata;
    std::uint64_t value = 0; ///< of a CSWAP: the word before it
    std::uint8_t type = UTOFU_MRQ_TYPE_LCL_GET;
};
using EndedGets = std::deque<Ended>;
inline EndedGets* ended_gets = nullptr;

/// The caller adds query_stadd, and get (and cswap8), which reads into memory at the address that is its local STADD.
inline vcq::Functions functions_of_gets()
{
    vcq::Functions f{};
    f.create_vcq = [](utofu_tni_id_t, unsigned long, utofu_vcq_hdl_t* h) -> int { return *h = 1, UTOFU_SUCCESS; };
    f.free_vcq = [](utofu_vcq_hdl_t) -> int { return UTOFU_SUCCESS; };
    f.query_vcq_id = [](utofu_vcq_hdl_t, utofu_vcq_id_t* id) -> int { return *id = 1, UTOFU_SUCCESS; };
    f.reg_mem = [](utofu_vcq_hdl_t, void* a, std::size_t, unsigned long, utofu_stadd_t* s) -> int {
        return *s = reinterpret_cast<std::uintptr_t>(a), UTOFU_SUCCESS;
    };
    f.dereg_mem = [](utofu_vcq_hdl_t, utofu_stadd_t, unsigned long) -> int { return UTOFU_SUCCESS; };
    f.poll_tcq = [](utofu_vcq_hdl_t, unsigned long, void**) -> int { return UTOFU_ERR_NOT_FOUND; };
    f.poll_mrq = [](utofu_vcq_hdl_t, unsigned long, utofu_mrq_notice* n) -> int {
        if (ended_gets->empty())
            return UTOFU_ERR_NOT_FOUND;
        *n = {};
        const Ended ended = ended_gets->front();
        ended_gets->pop_front();
        n->notice_type = ended.type;
        n->edata = ended.edata;
        n->rmt_value = ended.value;
        return ended.code;
    };
    return f;
}

} // namespace tofu::test
