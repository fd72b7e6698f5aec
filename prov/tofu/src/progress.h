// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only poll loop: what a completion queue or a counter drives when it is read. Called by cq, cntr and
// wait; calls the domain's home VCQ and the endpoints bound to the object.
#pragma once

#include <cstddef>
#include <vector>

#include <utofu.h>

#include "lock.h"

namespace tofu {

class Domain;
class Endpoint;

/// The endpoints that complete into one queue or counter. Endpoints add themselves when they are bound
/// and remove themselves when they are closed.
class ProgressSet {
  public:
    explicit ProgressSet(Domain& domain) noexcept;
    ProgressSet(const ProgressSet&) = delete;
    ProgressSet& operator=(const ProgressSet&) = delete;
    ~ProgressSet();
    void add(Endpoint& endpoint);
    void remove(Endpoint& endpoint) noexcept;
    [[nodiscard]] bool empty() const noexcept { return endpoints_.empty(); }

    /// One bounded round: home VCQ, then each endpoint once. Any thread; skips what another thread is
    /// polling already, or waits for its turn where `patient` (before a sleep: wait.h). True where a VCQ had
    /// something.
    bool run(bool patient = false) noexcept;
    /// Handles of the VCQs whose arrivals matter to the set, at most `most`; returns how many.
    [[nodiscard]] std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept;

  private:
    Domain& domain_;
    Lock lock_;
    std::vector<Endpoint*> endpoints_;
};

} // namespace tofu
