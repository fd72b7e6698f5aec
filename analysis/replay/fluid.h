// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Competing streams share TNIs and links evenly, by the max-min model of SimGrid.
//
// SimGrid knows two hosts and a pool of links: a route is not looked up but laid down with its stream, each resource on
// it being the link that it got when the first stream came that meets another there. So nothing is made for hundreds of
// thousands of nodes, whose resources are millions.
#pragma once

#include "clock/figures.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tofu::sim::replay {

class Fluid {
  public:
    virtual ~Fluid() = default;

    /// Called within run() only: a stream is over; an alarm rings.
    std::function<void(uint32_t id, Picoseconds when)> ended;
    std::function<void(Picoseconds when)> rang;

    /// Links for the resources of a stream that is about to start. False: there are not as many left.
    [[nodiscard]] virtual bool claim(uint32_t id, const std::vector<uint32_t>& resources) = 0;
    /// Within run(). `work`: how long a resource is busy with it alone.
    virtual void start(uint32_t id, Picoseconds work) = 0;
    virtual void set_alarm(Picoseconds when) = 0;
    /// Until there is neither stream nor alarm.
    virtual void run() = 0;
    [[nodiscard]] virtual const char* version() const noexcept = 0;
};

/// What the module exports: one network with `links` links, at most one in a process, since SimGrid has a single
/// engine. A module, since SimGrid takes longer to load than most jobs of tofu-sim run.
inline constexpr const char* make_fluid_name = "tofu_sim_make_fluid";
using MakeFluid = Fluid*(size_t links);

} // namespace tofu::sim::replay
