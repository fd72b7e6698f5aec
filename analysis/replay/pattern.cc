// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Traffic without a trace. See pattern.h.
#include "replay/pattern.h"

#include "job/layout.h"
#include "replay/played.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace tofu::sim::replay {
namespace {

/// Of what a process waits for.
Key key_of(uint32_t process, uint32_t round, uint32_t stage) noexcept
{
    return Key{process + 1} << 40 | Key{round} << 20 | stage;
}

/// Stages of a dissemination, a doubling or a tree over `members` processes.
unsigned doublings(uint32_t members) noexcept
{
    return static_cast<unsigned>(std::bit_width(members - 1));
}

class PingPong final : public Pattern {
  public:
    using Pattern::Pattern;
    [[nodiscard]] double of_a_round() const override { return 0.5; }
    [[nodiscard]] std::string unit() const override { return "one way"; }
    [[nodiscard]] std::string remark(double us) const override
    {
        char text[40];
        std::snprintf(text, sizeof text, "%.4g GB/s", bytes() / us / 1e3);
        return text;
    }

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override
    {
        if (process == 0) {
            steps.send(size() - 1, 0, bytes());
            steps.receive(0);
        } else if (process == size() - 1) {
            steps.receive(0);
            steps.send(0, 0, bytes());
        }
    }
};

class Ring final : public Pattern {
  public:
    using Pattern::Pattern;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override
    {
        steps.send((process + 1) % size(), 0, bytes());
        steps.receive(0);
    }
};

class Butterfly final : public Pattern {
  public:
    using Pattern::Pattern;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override
    {
        for (unsigned stage = 0; stage < doublings(size()); stage++) {
            if (const uint32_t partner = process ^ 1u << stage; partner < size()) {
                steps.send(partner, stage, bytes());
                steps.receive(stage);
            }
        }
    }
};

/// Nodes are numbered as they come; a process talks to those of its number on the neighbours, up and down each axis.
class Halo : public Pattern {
  public:
    using Pattern::Pattern;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override
    {
        const Coords here = placement_.topology().coords_of(process / placement_.ppn());
        unsigned messages = 0;
        for (unsigned axis = 0; axis < axes(); axis++) {
            for (const bool up : {true, false}) {
                Coords there = here;
                if (!step(there, axis, up))
                    continue;
                const uint32_t to =
                    placement_.topology().node_of(there) * placement_.ppn() + process % placement_.ppn();
                if (to < size() && to != process) {
                    steps.send(to, 0, bytes());
                    messages++;
                }
            }
        }
        if (messages != 0)
            steps.receive(0, messages);
    }
    [[nodiscard]] virtual unsigned axes() const noexcept = 0;
    /// To the neighbour. False: the grid ends here.
    [[nodiscard]] virtual bool step(Coords& at, unsigned axis, bool up) const noexcept = 0;

    [[nodiscard]] static bool step_along(unsigned& at, unsigned length, bool wraps, bool up) noexcept
    {
        if (!wraps && (up ? at + 1 == length : at == 0))
            return false;
        at = (at + (up ? 1 : length - 1)) % length;
        return true;
    }
};

/// Neighbours of the grid of 2X, 3Y and 2Z are neighbours on the machine: a position along X and A runs through the
/// units and turns in each.
class Halo3 final : public Halo {
  public:
    using Halo::Halo;

  protected:
    void fill(uint32_t process, uint32_t round, Steps& steps) const override
    {
        if (const auto& grid = placement_.grid())
            fill_grid(*grid, process, steps);
        else
            Halo::fill(process, round, steps);
    }
    [[nodiscard]] unsigned axes() const noexcept override { return 3; }
    [[nodiscard]] bool step(Coords& c, unsigned axis, bool up) const noexcept override
    {
        const Topology& topology = placement_.topology();
        const unsigned inner = unit_shape[axis];
        unsigned at = c[axis] * inner + turned(c[axis], c[3 + axis], inner);
        if (!step_along(at, topology.units()[axis] * inner, (topology.wraps() >> axis & 1) != 0, up))
            return false;
        c[axis] = static_cast<uint8_t>(at / inner);
        c[3 + axis] = static_cast<uint8_t>(turned(at / inner, at % inner, inner));
        return true;
    }

  private:
    /// The application's own grid, a ring along each axis.
    void fill_grid(const Grid& grid, uint32_t process, Steps& steps) const
    {
        const uint32_t node = process / placement_.ppn();
        const Grid here{node % grid[0], node / grid[0] % grid[1], node / grid[0] / grid[1]};
        unsigned messages = 0;
        for (unsigned axis = 0; axis < 3; axis++) {
            for (const bool up : {true, false}) {
                if (grid[axis] < 2 || (grid[axis] == 2 && up != (here[axis] == 0)))
                    continue;
                Grid there = here;
                there[axis] = (here[axis] + (up ? 1 : grid[axis] - 1)) % grid[axis];
                const uint32_t to = ((there[2] * grid[1] + there[1]) * grid[0] + there[0]) * placement_.ppn() +
                                    process % placement_.ppn();
                if (to < size()) {
                    steps.send(to, 0, bytes());
                    messages++;
                }
            }
        }
        if (messages != 0)
            steps.receive(0, messages);
    }
    [[nodiscard]] static unsigned turned(unsigned unit, unsigned at, unsigned length) noexcept
    {
        return unit % 2 == 0 ? at : length - 1 - at;
    }
};

class Halo6 final : public Halo {
  public:
    using Halo::Halo;

  protected:
    [[nodiscard]] unsigned axes() const noexcept override { return 6; }
    [[nodiscard]] bool step(Coords& c, unsigned axis, bool up) const noexcept override
    {
        const Topology& topology = placement_.topology();
        const unsigned length = axis < 3 ? topology.units()[axis] : unit_shape[axis - 3];
        const bool wraps = axis == 4 || (axis < 3 && (topology.wraps() >> axis & 1) != 0);
        unsigned at = c[axis];
        if (!step_along(at, length, wraps && length > 2, up))
            return false;
        c[axis] = static_cast<uint8_t>(at);
        return true;
    }
};

template <typename Kind>
std::unique_ptr<Pattern> make(const Placement& placement, const PatternOptions& options)
{
    return std::make_unique<Kind>(placement, options);
}

} // namespace

void Pattern::Steps::send(uint32_t to, uint32_t stage, uint32_t bytes)
{
    const unsigned number = sent_++;
    if (!is_wanted())
        return;
    const Placement& placement = pattern_.placement_;
    step_.kind = Step::Kind::post;
    Message& m = step_.message;
    m.from = placement.node_of(process_);
    m.to = placement.node_of(to);
    m.length = bytes;
    m.kind = Transit::Kind::put;
    m.from_tni = static_cast<uint8_t>((process_ % placement.ppn() + number) % tnis_per_node);
    m.to_tni = static_cast<uint8_t>((to % placement.ppn() + number) % tnis_per_node);
    m.path = placement.path(m.from, m.to);
    m.arrived = key_of(to, round_, stage);
}

void Pattern::Steps::receive(uint32_t stage, uint32_t messages)
{
    if (is_wanted()) {
        step_.kind = Step::Kind::wait;
        step_.key = key_of(process_, round_, stage);
        step_.count = messages;
        step_.time = messages * figures::found;
    }
}

bool Pattern::next(uint32_t actor, Step& step)
{
    places_.resize(size());
    for (Place& place = places_[actor]; place.round < options_.rounds; place = {place.round + 1, 0}) {
        Steps steps(*this, actor, place.round, place.step, step);
        fill(actor, place.round, steps);
        if (steps.found()) {
            place.step++;
            return true;
        }
    }
    return false;
}

/// Those of some processes in one round, for all.
uint64_t Pattern::messages() const
{
    constexpr uint32_t most = 64;
    const uint32_t sample = std::min(size(), most);
    uint64_t count = 0;
    for (uint32_t i = 0; i < sample; i++) {
        const auto process = static_cast<uint32_t>(uint64_t{i} * size() / sample);
        for (uint32_t wanted = 0, found = 1; found != 0; wanted++) {
            Step step;
            Steps steps(*this, process, 0, wanted, step);
            fill(process, 0, steps);
            found = steps.found() ? 1 : 0;
            count += found != 0 && step.kind == Step::Kind::post ? 1 : 0;
        }
    }
    return count * size() / sample * rounds();
}

std::unique_ptr<Pattern> make_pattern(std::string_view name, const Placement& placement, PatternOptions options)
{
    using Maker = std::unique_ptr<Pattern> (*)(const Placement&, const PatternOptions&);
    constexpr std::pair<const char*, Maker> known[] = {{"pingpong", make<PingPong>},
                                                       {"ring", make<Ring>},
                                                       {"butterfly", make<Butterfly>},
                                                       {"halo3", make<Halo3>},
                                                       {"halo6", make<Halo6>}};
    for (const auto& [word, maker] : known) {
        if (name == word) {
            options.rounds = options.rounds != 0 ? options.rounds : 10;
            return maker(placement, options);
        }
    }
    options.rounds = std::max(options.rounds, 1u);
    return make_collective(name, placement, options);
}

} // namespace tofu::sim::replay
