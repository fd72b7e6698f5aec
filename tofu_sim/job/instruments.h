// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which instruments watch this process: the virtual clock (clock/), with exact mode or without (clock/schedule), the
// trace. Each operation asks once; job/process sets them.
#pragma once

#include <cstdint>

namespace tofu::sim {

enum Instrument : uint32_t { instrument_clock = 1, instrument_trace = 2, instrument_exact = 4 };

/// A set of instruments. The thread of exact mode reads it while its process still joins.
class Instruments {
  public:
    operator uint32_t() const noexcept { return __atomic_load_n(&set_, __ATOMIC_RELAXED); }
    void add(Instrument one) noexcept { __atomic_store_n(&set_, set_ | one, __ATOMIC_RELAXED); }
    void clear() noexcept { __atomic_store_n(&set_, 0, __ATOMIC_RELAXED); }

  private:
    uint32_t set_ = 0;
};

/// Set while the process joins its job, before it has a VCQ or a gate, and then left alone. VCQs of a watched process
/// have Vcq::watched among what sends posts and polls the slow road, so that these ask nothing more than before.
extern Instruments instruments;

} // namespace tofu::sim
