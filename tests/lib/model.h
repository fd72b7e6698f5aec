// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Small models of protocols, searched to their end: every state that any order of steps leads to. Used by tests of
// models only; calls nothing.
//
// A state is a struct of fixed-width numbers without padding. `steps(state, emit)` calls emit(name, next) for
// everything that can happen next; `wrong(state)` says what a state violates, or null; `good(state)` names the states
// in which everything is done. From each state one of those must be within reach: a model finds deadlocks, and loops
// that nothing leads out of, as well as states that are wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tofu::test {

struct Verdict {
    std::string wrong; ///< empty: nothing; else what, and the shortest way there, a step a line
    std::size_t states = 0;
    std::size_t ends = 0; ///< states that are good
};

/// The states that have been met, in the order in which they were, and the steps between them.
template <class State>
class StateGraph {
    static_assert(std::has_unique_object_representations_v<State>, "no padding: states are compared as bytes");

  public:
    /// Enters a state that `step` leads to from state number `from`. The first state is entered from 0.
    void enter(const State& state, std::uint32_t from, const char* step)
    {
        const auto [at, is_new] = known_.try_emplace(state, static_cast<std::uint32_t>(ways_.size()));
        if (is_new)
            ways_.push_back({&at->first, from, step});
        edges_.push_back({from, at->second});
    }
    [[nodiscard]] std::size_t size() const { return ways_.size(); }
    [[nodiscard]] const State& operator[](std::uint32_t number) const { return *ways_[number].state; }
    /// `what`, and the shortest way to a state, a step a line.
    [[nodiscard]] std::string trace(std::uint32_t at, const char* what) const
    {
        std::vector<const char*> names;
        for (; at != 0; at = ways_[at].from)
            names.push_back(ways_[at].step);
        std::string text = what;
        for (std::size_t i = names.size(); i-- > 0;)
            text.append("\n  ").append(names[i]);
        return text;
    }
    /// For each state: does some way lead from it to a state of `targets`?
    [[nodiscard]] std::vector<bool> leading_to(std::vector<std::uint32_t> targets) const
    {
        std::vector<std::uint32_t> first_edge(ways_.size() + 1), sources(edges_.size());
        for (const Edge& edge : edges_)
            first_edge[edge.to + 1]++;
        for (std::size_t i = 1; i < first_edge.size(); i++)
            first_edge[i] += first_edge[i - 1];
        std::vector<std::uint32_t> fill(first_edge);
        for (const Edge& edge : edges_)
            sources[fill[edge.to]++] = edge.from;
        std::vector<bool> met(ways_.size());
        for (const std::uint32_t target : targets)
            met[target] = true;
        while (!targets.empty()) {
            const std::uint32_t at = targets.back();
            targets.pop_back();
            for (std::uint32_t e = first_edge[at]; e < first_edge[at + 1]; e++)
                if (!met[sources[e]]) {
                    met[sources[e]] = true;
                    targets.push_back(sources[e]);
                }
        }
        return met;
    }

  private:
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
    std::unordered_map<State, std::uint32_t, Hash, Equal> known_; // its elements stay where they are
    std::vector<Way> ways_;
    std::vector<Edge> edges_;
};

template <class State, class Steps, class Wrong, class Good>
[[nodiscard]] Verdict search(const State& first, Steps&& steps, Wrong&& wrong, Good&& good,
                             std::size_t most = 5'000'000)
{
    StateGraph<State> graph;
    Verdict verdict;
    std::vector<std::uint32_t> ends;
    graph.enter(first, 0, "");
    for (std::uint32_t at = 0; at < graph.size(); at++) {
        const State state = graph[at];
        verdict.states = graph.size();
        if (const char* const what = wrong(state)) {
            verdict.wrong = graph.trace(at, what);
            return verdict;
        }
        if (graph.size() > most) {
            verdict.wrong = "too many states for a test";
            return verdict;
        }
        if (good(state))
            ends.push_back(at);
        steps(state, [&](const char* step, const State& next) { graph.enter(next, at, step); });
    }
    verdict.ends = ends.size();
    const std::vector<bool> has_way_out = graph.leading_to(std::move(ends));
    for (std::uint32_t at = 0; at < graph.size(); at++)
        if (!has_way_out[at]) {
            verdict.wrong = graph.trace(at, "no way out");
            break;
        }
    return verdict;
}

} // namespace tofu::test
