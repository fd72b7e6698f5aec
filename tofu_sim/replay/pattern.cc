// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: traffic that nobody has recorded. See pattern.h.
// Called by: tools/replay. Calls: replay/place, replay/player.
#include "replay/pattern.h"

#include "job/layout.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace tofu::sim::replay {
namespace {

// Of what a process waits for.
Key key_of(uint32_t process, uint32_t round, uint32_t stage) noexcept
{
    return Key{process + 1} << 40 | Key{round} << 20 | stage;
}

// Stages of a dissemination, a doubling or a tree over so many.
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

// A round is one distance; where not all are taken, those that are spread evenly.
class AllToAll final : public Pattern {
  public:
    using Pattern::Pattern;
    [[nodiscard]] std::string unit() const override { return "a distance"; }
    [[nodiscard]] std::string remark(double us) const override
    {
        char text[80];
        std::snprintf(text, sizeof text, "%.4g ms for all %u distances", us * (size() - 1) / 1e3, size() - 1);
        return text;
    }

  protected:
    void fill(uint32_t process, uint32_t round, Steps& steps) const override
    {
        const auto distance = static_cast<uint32_t>(1 + uint64_t{round} * (size() - 1) / rounds());
        steps.send(static_cast<uint32_t>((uint64_t{process} + distance) % size()), 0, bytes());
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

// As in prov/tofu/src/coll/plan.cc.
class Barrier : public Pattern {
  public:
    using Pattern::Pattern;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override { disseminate(process, 0, steps); }
    void disseminate(uint32_t process, uint32_t first, Steps& steps) const
    {
        for (unsigned k = 0; k < doublings(size()); k++) {
            steps.send(static_cast<uint32_t>((uint64_t{process} + (uint64_t{1} << k)) % size()), first + k, 0);
            steps.receive(first + k);
        }
    }
};

class Broadcast final : public Barrier {
  public:
    using Barrier::Barrier;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override
    {
        const unsigned bits = doublings(size());
        const unsigned reach = process == 0 ? bits : static_cast<unsigned>(std::countr_zero(process));
        if (process != 0) {
            steps.receive(0);
        }
        for (unsigned k = reach; k-- > 0;) {
            if (const uint64_t child = process + (uint64_t{1} << k); child < size()) {
                steps.send(static_cast<uint32_t>(child), 0, bytes());
            }
        }
        disseminate(process, 1, steps);
    }
};

class AllReduce final : public Pattern {
  public:
    using Pattern::Pattern;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const override
    {
        constexpr uint32_t doubling_limit = 16384, ring_slice = 1024;
        if (bytes() > doubling_limit && bytes() / size() >= ring_slice) {
            for (uint32_t stage = steps.skip(2); stage < 2 * (size() - 1) && !steps.found(); stage++) {
                steps.send((process + 1) % size(), stage, bytes() / size());
                steps.receive(stage);
            }
            return;
        }
        const unsigned m = static_cast<unsigned>(std::bit_width(size())) - 1;
        const uint32_t whole = 1u << m;
        const bool helps = process < whole && uint64_t{process} + whole < size();
        if (process >= whole) {
            steps.send(process - whole, m, bytes());
            steps.receive(m + 1);
            return;
        }
        if (helps) {
            steps.receive(m);
        }
        for (unsigned k = 0; k < m; k++) {
            steps.send(process ^ 1u << k, k, bytes());
            steps.receive(k);
        }
        if (helps) {
            steps.send(process + whole, m + 1, bytes());
        }
    }
};

// Nodes are numbered as they come; a process talks to those of its number on the neighbours, up and down each axis.
class Halo : public Pattern {
  public:
    using Pattern::Pattern;

  protected:
    void fill(uint32_t process, uint32_t, Steps& steps) const final
    {
        const Coords here = placement_.topology().coords_of(process / placement_.ppn());
        unsigned messages = 0;
        for (unsigned axis = 0; axis < axes(); axis++) {
            for (const bool up : {true, false}) {
                Coords there = here;
                if (!step(there, axis, up)) {
                    continue;
                }
                const uint32_t to = placement_.topology().node_of(there) * placement_.ppn() + process % placement_.ppn();
                if (to < size() && to != process) {
                    steps.send(to, 0, bytes());
                    messages++;
                }
            }
        }
        if (messages != 0) {
            steps.receive(0, messages);
        }
    }
    [[nodiscard]] virtual unsigned axes() const noexcept = 0;
    // To the neighbour. False: the grid ends here.
    [[nodiscard]] virtual bool step(Coords& at, unsigned axis, bool up) const noexcept = 0;

    [[nodiscard]] static bool step_along(unsigned& at, unsigned length, bool wraps, bool up) noexcept
    {
        if (!wraps && (up ? at + 1 == length : at == 0)) {
            return false;
        }
        at = (at + (up ? 1 : length - 1)) % length;
        return true;
    }
};

// Neighbours of the grid of 2X, 3Y and 2Z are neighbours on the machine: a position along X and A runs through the units
// and turns in each.
class Halo3 final : public Halo {
  public:
    using Halo::Halo;

  protected:
    [[nodiscard]] unsigned axes() const noexcept override { return 3; }
    [[nodiscard]] bool step(Coords& c, unsigned axis, bool up) const noexcept override
    {
        const Topology& topology = placement_.topology();
        const unsigned inner = unit_shape[axis];
        unsigned at = c[axis] * inner + turned(c[axis], c[3 + axis], inner);
        if (!step_along(at, topology.units()[axis] * inner, (topology.wraps() >> axis & 1) != 0, up)) {
            return false;
        }
        c[axis] = static_cast<uint8_t>(at / inner);
        c[3 + axis] = static_cast<uint8_t>(turned(at / inner, at % inner, inner));
        return true;
    }

  private:
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
        if (!step_along(at, length, wraps && length > 2, up)) {
            return false;
        }
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
    if (!is_wanted()) {
        return;
    }
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

uint32_t Pattern::Steps::skip(uint32_t steps) noexcept
{
    number_ = wanted_ - wanted_ % steps;
    return wanted_ / steps;
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

std::unique_ptr<Pattern> make_pattern(std::string_view name, const Placement& placement, PatternOptions options)
{
    using Maker = std::unique_ptr<Pattern> (*)(const Placement&, const PatternOptions&);
    constexpr std::pair<const char*, Maker> known[] = {
        {"pingpong", make<PingPong>}, {"ring", make<Ring>},           {"alltoall", make<AllToAll>},
        {"butterfly", make<Butterfly>}, {"barrier", make<Barrier>}, {"broadcast", make<Broadcast>},
        {"allreduce", make<AllReduce>}, {"halo3", make<Halo3>},     {"halo6", make<Halo6>}};
    for (const auto& [word, maker] : known) {
        if (name == word) {
            const uint32_t distances = options.processes - 1;
            if (name == "alltoall") {
                options.rounds = std::min(options.rounds != 0 ? options.rounds : 64, std::max(distances, 1u));
            }
            options.rounds = options.rounds != 0 ? options.rounds : 10;
            return maker(placement, options);
        }
    }
    return nullptr;
}

} // namespace tofu::sim::replay
