// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A uTofu library of which nothing but Gets is used: each ends at the next poll, as the test says. For units that look
// things up at a peer. Called by remote/keys_test.cc, tests/fuzz/keys.cc; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "utofu/library.h"

namespace tofu::test {

/// Gets that have ended and are not polled yet: code, EDATA.
using EndedGets = std::deque<std::pair<int, std::uint64_t>>;
inline EndedGets* ended_gets = nullptr;

/// The caller adds query_stadd, and get, which reads into memory at the address that is its local STADD.
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
        n->notice_type = UTOFU_MRQ_TYPE_LCL_GET;
        n->edata = ended_gets->front().second;
        const int code = ended_gets->front().first;
        ended_gets->pop_front();
        return code;
    };
    return f;
}

} // namespace tofu::test
