// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For users of kfabric and UCX: each statement of docs/mapping.md done by fi_* calls. Any provider (-p). Run by
// tests/prov/pages/mapping.sh and by hand.
#include "desk.h"

namespace {

constexpr fabtests::Case cases[] = {
    {"kfi_atomic_calls", fabtests::kfi_atomic_calls},
    {"kfi_inject_atomic", fabtests::kfi_inject_atomic},
    {"kfi_fetch_calls", fabtests::kfi_fetch_calls},
    {"kfi_compare_calls", fabtests::kfi_compare_calls},
    {"kfi_valid", fabtests::kfi_valid},
    {"kfi_visibility", fabtests::kfi_visibility},
    {"kfi_fenced_message", fabtests::kfi_fenced_message},
    {"kfi_flags", fabtests::kfi_flags},
    {"kfi_remote_signal", fabtests::kfi_remote_signal},
    {"kfi_errors", fabtests::kfi_errors},
    {"kfi_cntr_light", fabtests::kfi_cntr_light},
    {"kfi_cntr_credits", fabtests::kfi_cntr_credits},
    {"kfi_cntr_control", fabtests::kfi_cntr_control},
    {"ucx_am", fabtests::ucx_am},
    {"ucx_am_keep", fabtests::ucx_am_keep},
    {"ucx_stream", fabtests::ucx_stream},
    {"ucx_stream_data", fabtests::ucx_stream_data},
    {"ucx_tag_send", fabtests::ucx_tag_send},
    {"ucx_tag_send_nbr", fabtests::ucx_tag_send_nbr},
    {"ucx_tag_send_sync", fabtests::ucx_tag_send_sync},
    {"ucx_tag_recv", fabtests::ucx_tag_recv},
    {"ucx_tag_recv_nbr", fabtests::ucx_tag_recv_nbr},
    {"ucx_tag_recv_errors", fabtests::ucx_tag_recv_errors},
    {"ucx_tag_probe", fabtests::ucx_tag_probe},
    {"ucx_tag_probe_remove", fabtests::ucx_tag_probe_remove},
    {"ucx_request_status", fabtests::ucx_request_status},
    {"ucx_request_cancel", fabtests::ucx_request_cancel},
    {"ucx_request_free", fabtests::ucx_request_free},
    {"ucx_err_handler", fabtests::ucx_err_handler},
    {"ucx_put_nbi_flush", fabtests::ucx_put_nbi_flush},
    {"ucx_put_nb", fabtests::ucx_put_nb},
    {"ucx_put", fabtests::ucx_put},
    {"ucx_get_nbi_flush", fabtests::ucx_get_nbi_flush},
    {"ucx_get_nb", fabtests::ucx_get_nb},
    {"ucx_get", fabtests::ucx_get},
    {"ucx_atomic_post", fabtests::ucx_atomic_post},
    {"ucx_atomic_fetch", fabtests::ucx_atomic_fetch},
    {"ucx_atomic_add", fabtests::ucx_atomic_add},
    {"ucx_atomic_fadd", fabtests::ucx_atomic_fadd},
    {"ucx_atomic_swap", fabtests::ucx_atomic_swap},
    {"ucx_atomic_cswap", fabtests::ucx_atomic_cswap},
};

} // namespace

const fabtests::Program fabtests::program{{.ranks = 2,
                                           .caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC,
                                           .wished_caps = FI_MULTI_RECV | FI_RMA_EVENT | FI_FENCE,
                                           .msg_order = FI_ORDER_SAS,
                                           .region_size = std::size_t{2} << 20},
                                          cases};
