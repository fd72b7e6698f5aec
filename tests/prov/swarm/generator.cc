// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See generator.h. A program is a setup and phases; a phase prefers some calls, so that runs of sends meet runs
// of receives,
// and lives end in between.
#include "generator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "scenes.h"

namespace swarm {
namespace {

using rc::Gen;
namespace gen = rc::gen;

using Number = Gen<std::uint32_t>;

constexpr unsigned places = 3 * slots;
constexpr std::uint32_t most_bytes = 300000; ///< of the buffers of one command

// The random numbers are split as in RapidCheck's gen::build, tuple, pair and container, and a seed's program is the
// one that these draw. But their types take the compiler half a minute: they can shrink, which is left to shorten().

/// A member of T, and what draws it.
template <class T>
struct Field {
    template <class Member>
    Field(Member T::*member, Number drawn)
        : set([member](T& value, std::uint32_t number) { value.*member = static_cast<Member>(number); }),
          number(std::move(drawn))
    {
    }

    std::function<void(T&, std::uint32_t)> set;
    Number number;
};
/// A value with these members drawn, in their order.
template <class T>
Gen<T> drawn(std::vector<Field<T>> fields)
{
    return [fields = std::move(fields)](rc::Random random, int size) {
        T value{};
        (void)random.split(); // gen::build draws the value as well
        for (const Field<T>& field : fields)
            field.set(value, field.number(random.split(), size).value());
        return rc::shrinkable::just(value);
    };
}
/// One number of each.
template <std::size_t count>
Gen<std::array<std::uint32_t, count>> numbers(const Number (&each)[count])
{
    return [each = std::to_array(each)](rc::Random random, int size) {
        std::array<std::uint32_t, count> values;
        for (std::size_t i = 0; i < count; i++)
            values[i] = each[i](random.split(), size).value();
        return rc::shrinkable::just(values);
    };
}

Number just(std::uint32_t number)
{
    return gen::just(number);
}
Number element(std::vector<std::uint32_t> numbers)
{
    return gen::elementOf(std::move(numbers));
}
Number weighted(std::initializer_list<std::pair<std::size_t, std::uint32_t>> numbers)
{
    return gen::weightedElement(numbers);
}
/// 0 to n - 1.
Number below(std::uint32_t n)
{
    return gen::inRange<std::uint32_t>(0, n);
}
/// 1 in so many cases, else 0.
Number once_in(unsigned n)
{
    return gen::map(below(n), [n](std::uint32_t value) { return std::uint32_t{value == n - 1}; });
}
/// First endpoints of processes are taken more often: most are open.
Number place()
{
    return gen::weightedOneOf<std::uint32_t>(
        {{4, gen::map(below(3), [](std::uint32_t p) { return p * slots; })}, {1, below(places)}});
}
Number size()
{
    return gen::weightedOneOf<std::uint32_t>({{12, element({0, 8, 16, 24, 64})},
                                              {8, element({1, 7, 25, 32, 33, 191, 192, 200, 255, 256, 300})},
                                              {12, element({1000, 2000, 4096, 8000, 8192})},
                                              {8, element({8193, 9000, 16384, 16385, 20000, 70000})},
                                              {1, element({200000, 1 << 20})}});
}
Number times()
{
    return weighted({{5, 0}, {1, 3}, {1, 12}, {1, 30}});
}
Number luck()
{
    return gen::oneOf(just(0), below(10000));
}

Gen<Command> form_of(Do what)
{
    const Field<Command> base{&Command::what, just(static_cast<std::uint32_t>(what))};
    const Field<Command> at{&Command::at, place()};
    const Field<Command> lucky{&Command::luck, luck()};
    const Field<Command> tag{&Command::tag, below(3)};
    const Field<Command> any{&Command::any, once_in(3)};
    const Field<Command> from{&Command::from,
                              gen::weightedOneOf<std::uint32_t>({{3, just(0)}, {1, below(places + 1)}})};
    const Field<Command> tx{&Command::tx, below(2)}, rx{&Command::rx, below(2)};
    const Field<Command> later{&Command::later, weighted({{4, 0}, {1, 1}, {1, 2}})};
    const Field<Command> entry{&Command::entry, below(2)};
    switch (what) {
    case Do::send:
        return drawn<Command>(
            {base, at, lucky, tag, Field(&Command::to, place()), Field(&Command::tagged, below(2)),
             Field(&Command::size, size()),
             Field(&Command::level, weighted({{5, plain}, {2, inject}, {1, transmit}, {1, delivery}, {2, match}})),
             Field(&Command::count, times()), Field(&Command::fence, once_in(8)), Field(&Command::data, once_in(3)),
             Field(&Command::back, weighted({{6, 0}, {2, 1}, {1, 2}})), tx, rx, later, entry});
    case Do::recv:
        return drawn<Command>({base, at, lucky, tag, any, from, Field(&Command::tagged, below(2)),
                               Field(&Command::size, gen::weightedOneOf<std::uint32_t>(
                                                         {{8, just(20000)}, {1, just(1 << 20)}, {6, size()}})),
                               Field(&Command::count, times()), rx, later, entry});
    case Do::multi:
        return drawn<Command>({base, at, lucky, Field(&Command::size, element({256, 4096, 20000, 300000})), rx,
                               Field(&Command::count, element({0, 0, 1, 2, 201, 5001}))});
    case Do::peek:
    case Do::claim:
    case Do::discard: return drawn<Command>({base, at, lucky, tag, any, from, rx, Field(&Command::entry, once_in(3))});
    case Do::insist:
        return drawn<Command>({base, at, lucky, Field(&Command::to, place()), Field(&Command::back, below(3))});
    case Do::context: return drawn<Command>({base, at, lucky, tx, rx, entry});
    case Do::refuse:
        return drawn<Command>({base, at, lucky, Field(&Command::to, place()), Field(&Command::count, below(14))});
    case Do::cancel:
    case Do::await:
        return drawn<Command>({base, at, lucky, Field(&Command::count, element({0, 1, 5, 20})),
                               Field(&Command::entry, weighted({{3, 0}, {1, 1}, {1, 2}})), rx});
    case Do::recall:
    case Do::part:
    case Do::collect: return drawn<Command>({base, at, lucky, Field(&Command::count, below(4))});
    case Do::raise:
        return drawn<Command>({base, at, lucky, Field(&Command::count, below(4)), Field(&Command::entry, once_in(3))});
    case Do::forget:
        return drawn<Command>({base, at, lucky, Field(&Command::to, place()), Field(&Command::back, below(2))});
    case Do::read: return drawn<Command>({base, at, lucky, Field(&Command::count, element({1, 2, 5, 20, 60}))});
    case Do::spin: return drawn<Command>({base, lucky, Field(&Command::count, element({2, 10, 40}))});
    case Do::run: return drawn<Command>({base, lucky, Field(&Command::count, element({1, 5, 20, 100}))});
    case Do::map:
        return drawn<Command>({base, at, lucky, Field(&Command::region, below(3)), Field(&Command::second, once_in(3)),
                               Field(&Command::size, element({72, 79, 200, 1000, 4097, 20000}))});
    case Do::unmap: return drawn<Command>({base, at, lucky, Field(&Command::region, below(3))});
    case Do::write:
    case Do::get:
    case Do::atomic:
        return drawn<Command>(
            {base, at, lucky, Field(&Command::to, place()), Field(&Command::region, below(3)),
             Field(&Command::second, weighted({{6, 0}, {1, 1}, {1, 2}, {1, 3}})),
             Field(&Command::offset, gen::oneOf(just(0), below(300))),
             Field(&Command::size, element({0, 1, 8, 8, 31, 33, 200, 257, 3000, 20000})),
             Field(&Command::level, weighted({{5, plain}, {2, inject}, {1, transmit}, {1, delivery}})),
             Field(&Command::fence, once_in(8)), Field(&Command::data, once_in(5)),
             Field(&Command::beyond, gen::map(numbers({once_in(12), below(8)}),
                                              [](const auto& both) { return both[0] * (1 + both[1]); })),
             Field(&Command::cell, below(9)), Field(&Command::fetch, below(2)), Field(&Command::count, times()), tx,
             later, entry});
    case Do::pass:
        return drawn<Command>({base, lucky, Field(&Command::count, element({1, 5, 200, 3000, 20000, 10000000}))});
    default: return drawn<Command>({base, at, lucky});
    }
}

using Likes = std::vector<std::pair<std::uint32_t, Do>>;
Gen<Command> command(const Likes& likes)
{
    std::uint32_t sum = 0;
    for (const auto& like : likes)
        sum += like.first;
    const auto chosen = [likes](std::uint32_t at) {
        for (const auto& [weight, what] : likes) {
            if (at < weight)
                return what;
            at -= weight;
        }
        return Do::run;
    };
    return gen::mapcat(gen::map(below(sum), chosen), form_of);
}

constexpr unsigned message_phases = 11, phases = 15;
const Likes& likes_of(unsigned phase)
{
    static const std::vector<Likes> all = {
        {{8, Do::send},
         {8, Do::recv},
         {2, Do::multi},
         {1, Do::cancel},
         {2, Do::await},
         {6, Do::read},
         {4, Do::spin},
         {2, Do::run},
         {1, Do::pass}},
        {{12, Do::send}, {2, Do::recv}, {2, Do::read}, {2, Do::spin}, {1, Do::run}},
        {{2, Do::send}, {10, Do::recv}, {3, Do::multi}, {2, Do::cancel}, {3, Do::read}, {2, Do::spin}},
        {{4, Do::send},
         {3, Do::recv},
         {2, Do::peek},
         {3, Do::claim},
         {3, Do::discard},
         {1, Do::refuse},
         {4, Do::read},
         {2, Do::spin}},
        {{6, Do::send},
         {5, Do::recv},
         {1, Do::open},
         {2, Do::close},
         {1, Do::renew},
         {1, Do::leave},
         {2, Do::start},
         {1, Do::kill},
         {1, Do::stop},
         {3, Do::go},
         {1, Do::pass},
         {4, Do::read},
         {4, Do::spin}},
        {{1, Do::open}, {1, Do::close}, {2, Do::leave}, {4, Do::start}, {2, Do::kill}, {2, Do::send}, {1, Do::read}},
        {{6, Do::send},
         {5, Do::recv},
         {1, Do::claim},
         {5, Do::context},
         {1, Do::turn},
         {1, Do::stop},
         {2, Do::go},
         {2, Do::read},
         {5, Do::spin}},
        {{1, Do::send}, {2, Do::read}, {10, Do::spin}, {2, Do::run}, {1, Do::pass}},
        {{6, Do::send},
         {4, Do::recv},
         {1, Do::multi},
         {1, Do::peek},
         {1, Do::claim},
         {4, Do::raise},
         {2, Do::recall},
         {2, Do::forget},
         {1, Do::close},
         {1, Do::open},
         {2, Do::read},
         {3, Do::spin}},
        {{6, Do::join},
         {1, Do::part},
         {10, Do::collect},
         {2, Do::await},
         {4, Do::spin},
         {2, Do::read},
         {1, Do::send},
         {1, Do::recv}},
        {{6, Do::join},
         {2, Do::part},
         {6, Do::collect},
         {1, Do::close},
         {2, Do::open},
         {1, Do::renew},
         {1, Do::kill},
         {1, Do::leave},
         {2, Do::start},
         {1, Do::stop},
         {2, Do::go},
         {1, Do::pass},
         {4, Do::spin}},
        {{4, Do::map},
         {1, Do::unmap},
         {6, Do::write},
         {4, Do::get},
         {6, Do::atomic},
         {1, Do::await},
         {4, Do::spin},
         {2, Do::read}},
        {{4, Do::map},
         {3, Do::unmap},
         {6, Do::write},
         {3, Do::get},
         {4, Do::atomic},
         {2, Do::spin},
         {1, Do::send},
         {1, Do::recv},
         {1, Do::pass}},
        {{2, Do::map},
         {1, Do::unmap},
         {6, Do::write},
         {4, Do::get},
         {2, Do::send},
         {4, Do::raise},
         {2, Do::recall},
         {2, Do::forget},
         {1, Do::leave},
         {1, Do::start},
         {3, Do::spin}},
        {{3, Do::map},
         {2, Do::unmap},
         {2, Do::insist},
         {5, Do::write},
         {2, Do::get},
         {4, Do::atomic},
         {1, Do::leave},
         {2, Do::start},
         {1, Do::kill},
         {1, Do::close},
         {1, Do::open},
         {1, Do::stop},
         {3, Do::go},
         {4, Do::spin}},
    };
    return all[phase];
}

Gen<Setup> setup()
{
    return drawn<Setup>({Field(&Setup::chaos, below(4)),
                         Field(&Setup::busy, element({0, 0, 5, 40})),
                         Field(&Setup::blind, element({0, 0, 30})),
                         Field(&Setup::drop, below(2)),
                         Field(&Setup::silent, once_in(6)),
                         Field(&Setup::sametag, element({1, 1, 0})),
                         Field(&Setup::reuse, element({1, 1, 0})),
                         Field(&Setup::oldtags, element({1, 1, 0})),
                         Field(&Setup::toq, element({2000, 2000, 64, 8})),
                         Field(&Setup::rings, element({256, 256, 1, 2})),
                         Field(&Setup::ringslots, element({128, 128, 16, 64})),
                         Field(&Setup::numbers, weighted({{7, 24}, {1, 240}})),
                         Field(&Setup::rma, element({0, 0, 1, 2})),
                         Field(&Setup::events, below(2)),
                         Field(&Setup::order, below(2)),
                         Field(&Setup::initiator, once_in(5)),
                         Field(&Setup::form, element({0, 0, 0, 1, 1, 2, 3, 4})),
                         Field(&Setup::counters, below(2)),
                         Field(&Setup::triggers, once_in(3)),
                         Field(&Setup::groups, once_in(3)),
                         Field(&Setup::waits, element({0, 0, 1, 2})),
                         Field(&Setup::sharedav, once_in(4)),
                         Field(&Setup::apart, once_in(3)),
                         Field(&Setup::gates, element({0, 3, 6, 48, 48})),
                         Field(&Setup::layout, below(4)),
                         Field(&Setup::anygate, below(2)),
                         Field(&Setup::processes, weighted({{10, 3}, {2, 6}, {3, 8}}))});
}

/// What does not matter is as usual.
Setup plain_form(Setup setup)
{
    if (setup.groups == 0)
        setup.gates = 0;
    if (setup.gates != 0) {
        setup.form = 0; // groups have plain endpoints
    } else {
        setup.layout = setup.anygate = 0;
        setup.processes = Setup{}.processes;
    }
    return setup;
}

/// Two endpoints talk for a while, or one does; or one that is gone has a successor, and is remembered.
Gen<std::vector<Command>> scene()
{
    const auto parts = numbers({place(), place(), size(), element({1, 3, 12, 30}), below(2), below(15),
                                weighted({{4, plain}, {1, inject}, {1, delivery}, {2, match}}), luck()});
    return gen::map(parts, [](const auto& drawn) {
        const auto& [from, to, size, count, tagged, kind, level, luck] = drawn;
        Command send{.what = Do::send,
                     .at = from,
                     .to = to,
                     .tagged = tagged,
                     .size = size,
                     .level = level,
                     .count = count,
                     .luck = luck};
        const Command recv{
            .what = Do::recv, .at = to, .tagged = tagged, .any = 1, .size = std::max(size, 64u), .count = count};
        const Command spin{.what = Do::spin, .count = 60, .luck = luck};
        Command another = send;
        another.at = (from + slots) % places;
        std::vector<Command> calls;
        switch (kind) {
        case 0:
        case 1: return calls = {recv, send, spin};
        case 2: return calls = {send, {.what = Do::read, .at = from, .count = 20, .luck = luck}};
        case 3: return calls = {send, spin, recv};
        case 4: return calls = {{.what = Do::leave, .at = to, .luck = luck}, {.what = Do::start, .at = to}};
        case 5: return calls = {{.what = Do::kill, .at = to, .luck = luck}, {.what = Do::start, .at = to}};
        case 6: return calls = {{.what = Do::close, .at = to, .luck = luck}, {.what = Do::open, .at = to}};
        case 7: return calls = {recv, send, spin, {.what = Do::renew, .at = to, .luck = luck}};
        case 8: // one that sleeps remembers what has a successor, and others do not
            return calls = {recv,
                            send,
                            spin,
                            {.what = Do::stop, .at = from},
                            {.what = Do::renew, .at = to, .luck = luck},
                            another,
                            {.what = Do::go, .at = from},
                            send,
                            another,
                            spin,
                            recv,
                            recv,
                            spin};
        case 9: { // two contexts fence behind messages that have not been received
            Command fenced = send;
            fenced.fence = 1;
            fenced.level = match;
            fenced.count = 0;
            Command other = send, other_fenced = fenced;
            send.tx = fenced.tx = 0;
            other.tx = other_fenced.tx = 1;
            return calls = {send, other, spin, fenced, other_fenced, spin, recv, recv, recv, spin};
        }
        case 10:
            return calls = {{.what = Do::stop, .at = to},
                            send,
                            {.what = Do::read, .at = from, .count = 20, .luck = luck},
                            {.what = Do::close, .at = from, .luck = luck},
                            {.what = Do::open, .at = from},
                            {.what = Do::go, .at = to}};
        case 11: { // a multi-receive takes messages that wait for it, while more of them come
            Command waits = send;
            waits.tagged = send.tagged = 0;
            if (level == plain)
                waits.level = match;
            return calls = {waits, spin,  {.what = Do::multi, .at = to, .size = 300000, .luck = luck},
                            send,  waits, spin};
        }
        case 12: // a multi-receive is cancelled while messages are being fetched into it
            send.tagged = 0;
            send.size = std::max(size, 20000u);
            return calls = {{.what = Do::multi, .at = to, .size = 300000},
                            send,
                            {.what = Do::read, .at = to, .count = count, .luck = luck},
                            {.what = Do::cancel, .at = to, .luck = luck},
                            spin};
        case 13: // some of what waits for a counter finds no room before the counter is set back
            send.later = 1;
            return calls = {send, {.what = Do::raise, .at = from, .count = 1, .entry = 1, .luck = luck}, recv, spin};
        default: send.back = 1; return calls = {send, {.what = Do::read, .at = from, .count = 20, .luck = luck}};
        }
    });
}

/// Regions, accesses to them, and in between, in most cases, one that gets another life under its key.
Gen<std::vector<Command>> access_scene()
{
    const auto parts =
        numbers({place(), place(), below(3), below(4), element({1, 3, 12}), below(9), element({8, 200, 3000}), below(5),
                 weighted({{3, plain}, {1, inject}}), luck(), below(2), below(4)});
    return gen::map(parts, [](const auto& drawn) {
        const auto& [from, to, region, second, count, cell, size, kind, level, luck, odd, last] = drawn;
        // Whole words have keys of the provider's choice that are not looked up.
        const Command opens{.what = Do::map, .at = to, .size = 4096 + odd, .region = region};
        Command opens_second = opens;
        opens_second.region = second != 0 ? second - 1 : region;
        opens_second.second = second % 2;
        const Command spin{.what = Do::spin, .count = 60, .luck = luck};
        Command access{.what = kind == 0   ? Do::atomic
                               : kind == 1 ? Do::get
                                           : Do::write,
                       .at = from,
                       .to = to,
                       .size = size,
                       .level = level,
                       .count = count,
                       .region = region,
                       .second = second,
                       .cell = cell,
                       .fetch = kind & 1,
                       .luck = luck};
        Command single = access;
        single.second = 0;
        std::vector<Command> calls{opens, opens_second, single, spin};
        if (kind != 2) {
            calls.push_back({.what = Do::unmap, .at = to, .region = region});
            calls.push_back(opens);
        }
        if (kind == 4) { // two regions in turn, each behind what may have to be repeated
            Command other = single;
            other.count = single.count = 0;
            other.region = opens_second.region;
            for (std::uint32_t i = 0; i < 2 + count % 3; i++) {
                calls.push_back(single);
                calls.push_back(other);
            }
            calls.push_back(single);
        }
        calls.push_back(access);
        access.count = 0;
        access.what = last % 2 != 0 ? Do::get : Do::write;
        access.fence = last / 2;
        access.fetch = 1; // behind atomics, of their word
        calls.push_back(access);
        calls.push_back(spin);
        if (kind == 3) { // its successor's directory answers for it
            calls.push_back({.what = Do::kill, .at = to, .luck = luck});
            calls.push_back({.what = Do::start, .at = to});
            calls.push_back({.what = Do::insist, .at = from, .to = to, .back = 1, .luck = luck});
        }
        return calls;
    });
}

/// All join, once more after one of them is another with the same number.
Gen<std::vector<Command>> join_scene()
{
    return gen::map(numbers({below(3), below(2), luck()}), [](const auto& drawn) {
        const auto& [process, kind, luck] = drawn;
        std::vector<Command> calls;
        const auto join = [&, luck = luck] {
            for (std::uint32_t p = 0; p < 3; p++)
                calls.push_back({.what = Do::join, .at = p * slots, .luck = luck});
            calls.push_back({.what = Do::spin, .count = 40, .luck = luck});
            for (std::uint32_t p = 0; p < 3; p++)
                calls.push_back({.what = Do::collect, .at = p * slots, .luck = luck});
        };
        join();
        calls.push_back({.what = kind == 0 ? Do::renew : Do::part, .at = process * slots, .luck = luck});
        join();
        return calls;
    });
}

/// All processes use one group or two, and while rounds of its gates are under way something happens to a member, or
/// the members close it. Then they join again.
Gen<std::vector<Command>> gate_scene(std::uint32_t processes, Trouble only = Trouble::count_)
{
    return gen::map(
        drawn<GateScene>(
            {Field(&GateScene::trouble, only != Trouble::count_ ? just(static_cast<std::uint32_t>(only))
                                                                : below(static_cast<std::uint32_t>(Trouble::count_))),
             Field(&GateScene::first, below(processes)), Field(&GateScene::victim, below(processes)),
             Field(&GateScene::when, below(processes + 1)), Field(&GateScene::rounds, below(3)),
             Field(&GateScene::pause, element({0, 1, 2, 5, 20})), Field(&GateScene::luck, luck()),
             Field(&GateScene::more_luck, luck())}),
        [processes](GateScene scene) {
            scene.processes = processes;
            return calls_of(scene);
        });
}

/// Up to fifteen calls that the phase likes.
Gen<std::vector<Command>> phase(std::uint32_t kind)
{
    return [call = command(likes_of(kind))](rc::Random random, int size) {
        std::vector<Command> calls(random.split().next() % 16);
        for (Command& each : calls)
            each = call(random.split(), size).value();
        return rc::shrinkable::just(calls);
    };
}

/// Scenes and phases, as one list of calls; with what the setup has.
Gen<std::vector<Command>> commands(const Setup& setup)
{
    const bool remote = setup.rma != 0, groups = setup.groups != 0;
    const auto part =
        gen::weightedOneOf<std::vector<Command>>({{remote ? 2 : 0, access_scene()},
                                                  {groups ? 1 : 0, join_scene()},
                                                  {setup.gates != 0 ? 4 : 0, gate_scene(setup.processes)},
                                                  {1, gen::mapcat(below(remote ? phases : message_phases), phase)},
                                                  {3, scene()}});
    // Gates take any packet only until a process ends, so the scene that needs this may be the first.
    const auto first = gen::weightedOneOf<std::vector<Command>>(
        {{setup.gates != 0 && setup.anygate != 0 ? 2 : 0, gate_scene(setup.processes, Trouble::rest)},
         {1, gen::just(std::vector<Command>{})}});
    return [first, part](rc::Random random, int size) {
        std::vector<Command> all = first(random.split(), size).value();
        rc::Random rest = random.split();
        for (unsigned parts = 0; parts < 15; parts++) {
            const std::vector<Command> next = part(rest.split(), size).value();
            all.insert(all.end(), next.begin(), next.end());
        }
        return rc::shrinkable::just(all);
    };
}

/// Simpler forms of a call, the simplest first.
std::vector<Command> simpler(const Command& command)
{
    std::vector<Command> forms;
    const auto put = [&](std::uint32_t Command::*field, std::uint32_t value) {
        if (command.*field > value) {
            forms.push_back(command);
            forms.back().*field = value;
        }
    };
    for (const auto field :
         {&Command::luck, &Command::fence, &Command::data, &Command::any, &Command::from, &Command::tag,
          &Command::level, &Command::back, &Command::second, &Command::offset, &Command::beyond, &Command::fetch,
          &Command::cell, &Command::region, &Command::tx, &Command::rx, &Command::later, &Command::entry})
        put(field, 0);
    put(&Command::at, command.at / slots * slots);
    put(&Command::to, command.to / slots * slots);
    for (const std::uint32_t simple : {8u, 64u, 300u, 9000u})
        put(&Command::size, simple);
    for (const std::uint32_t simple : {0u, 1u, 3u, 20u, 60u, 200u})
        put(&Command::count, simple);
    return forms;
}

/// Simpler networks.
std::vector<Setup> simpler(const Setup& setup)
{
    std::vector<Setup> forms;
    const Setup usual{};
    for (const auto field :
         {&Setup::chaos,   &Setup::busy,     &Setup::blind,     &Setup::drop,  &Setup::silent,    &Setup::sametag,
          &Setup::reuse,   &Setup::oldtags,  &Setup::toq,       &Setup::rings, &Setup::ringslots, &Setup::numbers,
          &Setup::events,  &Setup::order,    &Setup::initiator, &Setup::form,  &Setup::counters,  &Setup::triggers,
          &Setup::groups,  &Setup::waits,    &Setup::sharedav,  &Setup::apart, &Setup::gates,     &Setup::layout,
          &Setup::anygate, &Setup::processes})
        if (setup.*field != usual.*field) {
            forms.push_back(setup);
            forms.back().*field = usual.*field;
        }
    return forms;
}

} // namespace

Program program_of(std::uint64_t seed)
{
    rc::Random for_setup(seed), for_commands = for_setup.split();
    (void)for_commands.split();
    Program program{plain_form(setup()(for_setup).value()), {}};
    program.commands = commands(program.setup)(for_commands.split()).value();
    for (Command& each : program.commands) // what is long is rare: it would take most of the time
        if (const std::uint32_t most = most_bytes / std::max(each.size, 1u); each.count > most)
            each.count = most;
    return program;
}

Program shorten(Program best, const std::function<bool(const Program&)>& fails)
{
    const auto take = [&](const Program& candidate) {
        const bool good = fails(candidate);
        if (good)
            best = candidate;
        return good;
    };
    for (std::size_t before = best.commands.size() + 1; best.commands.size() < before;) {
        before = best.commands.size();
        for (std::size_t chunk = std::max<std::size_t>(before / 2, 1); chunk != 0; chunk /= 2)
            for (std::size_t at = 0; at < best.commands.size();) {
                Program candidate = best;
                const auto from = candidate.commands.begin() + static_cast<std::ptrdiff_t>(at);
                const std::size_t count = std::min(chunk, best.commands.size() - at);
                candidate.commands.erase(from, from + static_cast<std::ptrdiff_t>(count));
                if (!take(candidate))
                    at += chunk;
            }
    }
    for (const Setup& setup : simpler(best.setup)) {
        Program candidate = best;
        candidate.setup = setup;
        (void)take(candidate);
    }
    for (std::size_t at = 0; at < best.commands.size(); at++)
        for (bool some = true; some;) {
            some = false;
            for (const Command& form : simpler(best.commands[at])) {
                Program candidate = best;
                candidate.commands[at] = form;
                if (take(candidate)) {
                    some = true;
                    break;
                }
            }
        }
    return best;
}

} // namespace swarm
