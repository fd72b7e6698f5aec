// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See scenes.h.
#include "scenes.h"

#include <utility>

namespace swarm {
namespace {

class Calls {
  public:
    explicit Calls(const GateScene& scene) : scene_(scene) {}
    std::vector<Command> made;

    void add(Do what, std::uint32_t p, std::uint32_t count = 0)
    {
        made.push_back({.what = what, .at = p % scene_.processes * slots, .count = count, .luck = scene_.luck});
    }
    void all(Do what, std::uint32_t count = 0)
    {
        for (std::uint32_t i = 0; i < scene_.processes; i++)
            add(what, scene_.first + i, count);
    }
    void spin(std::uint32_t count) { made.push_back({.what = Do::spin, .count = count, .luck = scene_.more_luck}); }
    void run(std::uint32_t count) { made.push_back({.what = Do::run, .count = count, .luck = scene_.more_luck}); }
    void pass(std::uint32_t count) { made.push_back({.what = Do::pass, .count = count}); }
    void join()
    {
        all(Do::join);
        spin(80);
    }
    /// All call the next operation, so many times.
    void collect(std::uint32_t times)
    {
        for (std::uint32_t i = 0; i < times; i++) {
            all(Do::collect);
            spin(scene_.pause);
        }
    }

  private:
    const GateScene& scene_;
};

/// What happens when some have called the next operation.
void meet(const GateScene& s, Calls& calls)
{
    calls.run(s.pause);
    switch (s.trouble) {
    case Trouble::parts: calls.add(Do::part, s.victim); return;
    case Trouble::leaves: calls.add(Do::leave, s.victim); return;
    case Trouble::stops: calls.add(Do::stop, s.victim); return;
    case Trouble::die: calls.add(Do::kill, s.first); [[fallthrough]];
    case Trouble::dies:
    case Trouble::renews: calls.add(Do::kill, s.victim); return;
    case Trouble::all_part:
    case Trouble::none:
    case Trouble::two:
    case Trouble::missing:
    case Trouble::half:
    case Trouble::rest:
    case Trouble::count_: return;
    }
}

/// What follows it.
void follow(const GateScene& s, Calls& calls)
{
    const std::uint32_t other = s.victim + 1 + s.more_luck % (s.processes - 1);
    switch (s.trouble) {
    case Trouble::parts: // the others use the former group when the next one has been joined
        calls.spin(6);   // so that it may have freed its gates
        calls.join();
        for (std::uint32_t i = 1; i < s.processes; i++)
            calls.add(Do::collect, s.victim + i, 1);
        calls.collect(3);
        break;
    case Trouble::stops:
        calls.all(Do::collect);
        calls.spin(s.pause);
        calls.pass(200);
        calls.add(Do::go, s.victim);
        break;
    case Trouble::missing:
        calls.run(1 + s.luck % 60);
        calls.add(Do::kill, s.victim);
        calls.spin(60);
        calls.add(Do::collect, other);
        break;
    case Trouble::leaves:
    case Trouble::dies:
    case Trouble::renews:
    case Trouble::die:
    case Trouble::all_part:
    case Trouble::none:
    case Trouble::two:
    case Trouble::half:
    case Trouble::rest:
    case Trouble::count_: break;
    }
    if (s.trouble != Trouble::all_part)
        calls.spin(s.pause * 3);
    if (s.more_luck % 2 != 0) { // some find out only now
        calls.add(Do::collect, other);
        calls.spin(s.pause * 3);
    }
    if (s.trouble == Trouble::renews)
        calls.add(Do::renew, other);
}

} // namespace

std::vector<Command> calls_of(const GateScene& s)
{
    Calls calls(s);
    if (s.trouble == Trouble::half) {
        calls.all(Do::join);
        calls.spin(s.pause + s.luck % 8);
        calls.add(Do::part, s.victim);
        calls.spin(s.more_luck % 8);
    }
    calls.join();
    if (s.trouble == Trouble::two)
        calls.join();
    for (std::uint32_t i = 0; i < s.rounds; i++) {
        calls.all(Do::collect, s.trouble == Trouble::two ? i % 2 : 0);
        calls.spin(s.pause);
    }
    if (s.trouble == Trouble::rest) {
        for (std::uint32_t i = 1; i < s.processes; i++)
            calls.add(Do::part, s.victim + i);
        calls.spin(20 + s.pause); // so that they may have freed their gates
        calls.join();
        calls.spin(80);
        calls.add(Do::collect, s.victim, 1);
        calls.run(s.pause);
        calls.collect(3);
        calls.all(Do::part);
        return std::move(calls.made);
    }
    for (std::uint32_t i = 0; i < s.processes; i++) {
        if (i == s.when && s.trouble == Trouble::all_part)
            break;
        if (i == s.when)
            meet(s, calls);
        calls.add(Do::collect, s.first + i);
        if (s.pause > 1)
            calls.add(Do::read, s.first + i, s.pause);
    }
    follow(s, calls);
    if (s.trouble != Trouble::dies && s.trouble != Trouble::two)
        calls.all(Do::part);
    calls.all(Do::start);
    calls.join();
    calls.collect(2 + s.rounds);
    return std::move(calls.made);
}

} // namespace swarm
