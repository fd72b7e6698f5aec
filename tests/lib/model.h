// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Small models of protocols, searched to their end: every state that any order of steps leads to. Used by tests of
// models only; calls nothing.
//
// A state is a struct of fixed-width numbers without padding. `steps(state, emit)` calls emit(name, next) for everything
// that can happen next; `wrong(state)` says what a state violates, or null; `good(state)` names the states in which
// everything is done. From each state one of those must be within reach: a model finds deadlocks, and loops that nothing
// leads out of, as well as states that are wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace tofu::test {

struct Verdict {
    std::string wrong; ///< empty: nothing; else what, and the shortest way there, a step a line
    std::size_t states = 0;
    std::size_t ends = 0; ///< states that are good
};

template <class State, class Steps, class Wrong, class Good>
[[nodiscard]] Verdict search(const State& first, Steps&& steps, Wrong&& wrong, Good&& good,
                             std::size_t most = 5'000'000)
{
    static_assert(std::has_unique_object_representations_v<State>, "no padding: states are compared as bytes");
    struct Hash {
        std::size_t operator()(const State& state) const noexcept
        {
            return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&state), sizeof state});
        }
    };
    struct Equal {
        bool operator()(const State& a, const State& b) const noexcept { return std::memcmp(&a, &b, sizeof a) == 0; }
    };
    struct Way {
        const State* state;
        std::uint32_t from;
        const char* step;
    };
    struct Edge {
        std::uint32_t from, to;
    };
    std::unordered_map<State, std::uint32_t, Hash, Equal> known; // its elements stay where they are
    std::vector<Way> ways;
    std::vector<Edge> edges;
    Verdict verdict;
    const auto enter = [&](const State& state, std::uint32_t from, const char* step) {
        const auto [at, is_new] = known.try_emplace(state, static_cast<std::uint32_t>(ways.size()));
        if (is_new)
            ways.push_back({&at->first, from, step});
        return at->second;
    };
    const auto trace = [&](std::uint32_t at, const char* what) {
        std::vector<const char*> names;
        for (; at != 0; at = ways[at].from)
            names.push_back(ways[at].step);
        verdict.wrong = what;
        for (std::size_t i = names.size(); i-- > 0;)
            verdict.wrong.append("\n  ").append(names[i]);
    };
    enter(first, 0, "");
    for (std::uint32_t at = 0; at < ways.size(); at++) {
        const State state = *ways[at].state;
        verdict.states = ways.size();
        if (const char* const what = wrong(state)) {
            trace(at, what);
            return verdict;
        }
        if (ways.size() > most) {
            verdict.wrong = "too many states for a test";
            return verdict;
        }
        steps(state, [&](const char* step, const State& next) { edges.push_back({at, enter(next, at, step)}); });
    }
    // Backwards from the good states: whatever is not met has no way out.
    std::vector<std::uint32_t> first_edge(ways.size() + 1), sources(edges.size()), todo;
    for (const Edge& edge : edges)
        first_edge[edge.to + 1]++;
    for (std::size_t i = 1; i < first_edge.size(); i++)
        first_edge[i] += first_edge[i - 1];
    std::vector<std::uint32_t> fill(first_edge);
    for (const Edge& edge : edges)
        sources[fill[edge.to]++] = edge.from;
    std::vector<bool> met(ways.size());
    for (std::uint32_t at = 0; at < ways.size(); at++)
        if (good(*ways[at].state)) {
            met[at] = true;
            todo.push_back(at);
        }
    verdict.ends = todo.size();
    while (!todo.empty()) {
        const std::uint32_t at = todo.back();
        todo.pop_back();
        for (std::uint32_t e = first_edge[at]; e < first_edge[at + 1]; e++)
            if (!met[sources[e]]) {
                met[sources[e]] = true;
                todo.push_back(sources[e]);
            }
    }
    for (std::uint32_t at = 0; at < ways.size(); at++)
        if (!met[at]) {
            trace(at, "no way out");
            break;
        }
    return verdict;
}

} // namespace tofu::test
