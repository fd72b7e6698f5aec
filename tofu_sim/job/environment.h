// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every environment variable the core of the simulator reads, checked once (guide 4.3.2; man tofu_sim.7). Once, when
// the process joins its job.
#pragma once

#include "clock/figures.h"
#include "job/layout.h"
#include "job/relaxations.h"
#include "topology/topology.h"

#include <cstdint>
#include <optional>

namespace tofu::sim {

/// How CQs are assigned, so that no two processes of a node take the same CQ (guide 4.1.2).
enum class CqSharing : uint8_t {
    shares, ///< each process has its share of them, as after the vendor's MPI_Init
    refuse, ///< not assigned: each takes the lowest free one of the TNI, and a second process fails
    meet,   ///< not assigned: both have it, and messages go to the first process
};

struct Environment {
    char job[65] = "default"; ///< a file name
    Topology topology;
    uint32_t ppn = 0; ///< processes per node, 0: not given
    std::optional<uint32_t> rank;
    std::optional<uint32_t> size;
    bool states_rank = false;              ///< `rank` is TOFU_SIM_RANK, not a launcher's
    bool states_size = false;              ///< `size` holds for all processes of the job
    uint32_t mrq_entries = 131072;         ///< free mode VCQs
    uint32_t mrq_entries_session = 131072; ///< session mode VCQs
    uint32_t exclusive_cqs = 0;            ///< CQs of a TNI kept for exclusive VCQs
    uint32_t session_cqs = 3;              ///< CQs of a TNI that session mode VCQs may have
    bool keep_session_cqs = false;         ///< and that others must leave to them: asked for, not the default
    std::optional<Chaos> chaos;            ///< the adversarial mode
    bool launched = false;                 ///< the job is the launcher's
    ClockMode clock = ClockMode::none;
    uint32_t cpu_permille = 0; ///< what computing takes there, in thousandths of what it takes here
    uint32_t channel_buffer = figures::channel_buffer;
    bool one_processor = true; ///< of this machine, for all threads that take turns (exact mode)
    CqSharing cq_sharing = CqSharing::shares;
    bool swap_protect = false; ///< registered memory is locked
    char trace[256] = "";      ///< file names (trace/recorder.h); none: nothing is recorded
    uint32_t trace_mib = 64;   ///< as large as one may become

    /// UTOFU_SUCCESS or UTOFU_ERR_INVALID_ARG after one line on stderr.
    [[nodiscard]] int read() noexcept;
};

/// As TOFU_SIM_CLOCK says it.
[[nodiscard]] const char* name_of(ClockMode mode) noexcept;

/// "8192", "8ki", "2Mi", … to the nearest allowed number of MRQ entries, upwards when two are equally near
/// (guide 4.3.2.3); nothing if it is no number at all.
[[nodiscard]] std::optional<uint32_t> parse_mrq_entries(const char* text) noexcept;

} // namespace tofu::sim
