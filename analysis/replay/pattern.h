// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Traffic without a trace: patterns of any size, each step made when it is needed.
#pragma once

#include "replay/place.h"
#include "replay/player.h"

#include <memory>
#include <string>
#include <string_view>

namespace tofu::sim::replay {

struct PatternOptions {
    uint32_t processes = 0;
    uint32_t bytes = 8;
    uint32_t rounds = 0;   ///< 0: as many as the pattern takes
    std::string algorithm; ///< of a collective; empty: the provider's
    uint32_t segment = 0;  ///< bytes
};

/// A script of rounds, each with stages; its description is for the report.
class Pattern : public Script {
  public:
    Pattern(const Placement& placement, const PatternOptions& options) : placement_(placement), options_(options) {}
    [[nodiscard]] uint32_t actors() const override { return options_.processes; }
    [[nodiscard]] bool next(uint32_t actor, Step& step) override;

    [[nodiscard]] uint32_t rounds() const noexcept { return options_.rounds; }
    [[nodiscard]] virtual double of_a_round() const { return 1; } ///< what the reported time is of
    [[nodiscard]] virtual std::string unit() const { return "a round"; }
    /// Of a time by that unit; empty: none.
    [[nodiscard]] virtual std::string remark(double) const { return {}; }
    [[nodiscard]] virtual std::string algorithm() const { return {}; }
    /// About how many there will be in all.
    [[nodiscard]] virtual uint64_t messages() const;

  protected:
    /// What a process does in a round: of these steps the one that is asked for is kept.
    class Steps {
      public:
        Steps(const Pattern& pattern, uint32_t process, uint32_t round, uint32_t wanted, Step& step)
            : pattern_(pattern), process_(process), round_(round), wanted_(wanted), step_(step)
        {
        }
        /// To the process; it waits for `stage` of this round.
        void send(uint32_t to, uint32_t stage, uint32_t bytes);
        void receive(uint32_t stage, uint32_t messages = 1);
        [[nodiscard]] bool found() const noexcept { return found_; }

      private:
        [[nodiscard]] bool is_wanted() noexcept
        {
            const bool wanted = number_++ == wanted_;
            found_ = found_ || wanted;
            return wanted;
        }
        const Pattern& pattern_;
        uint32_t process_;
        uint32_t round_;
        uint32_t wanted_;
        Step& step_;
        uint32_t number_ = 0;
        unsigned sent_ = 0;
        bool found_ = false;
    };

    virtual void fill(uint32_t, uint32_t, Steps&) const {}
    [[nodiscard]] uint32_t size() const noexcept { return options_.processes; }
    [[nodiscard]] uint32_t bytes() const noexcept { return options_.bytes; }

    const Placement placement_;
    PatternOptions options_;

  private:
    struct Place {
        uint32_t round = 0;
        uint32_t step = 0;
    };
    std::vector<Place> places_;
};

/// The names that --pattern takes, and what they are: for help and manual.
struct PatternName {
    const char* name;
    const char* what;
};
inline constexpr PatternName pattern_names[] = {
    {"pingpong", "the first and the last process"},
    {"ring", "each to the next one"},
    {"alltoall", "each sends a block to each other one"},
    {"allgather", "each sends its block to all"},
    {"butterfly", "exchanges over doubling distances"},
    {"barrier", "the provider's algorithm in software: dissemination"},
    {"broadcast", "from the first process to all"},
    {"reduce", "the provider's algorithm in software: up a binomial tree, then a barrier"},
    {"allreduce", "a sum that all processes receive"},
    {"gates", "a barrier by barrier gates"},
    {"gates-sum", "a sum of doubles by barrier gates"},
    {"halo3", "with six neighbours on the three-dimensional grid of nodes"},
    {"halo6", "with all neighbours along the six axes"},
};

/// nullptr: there is none of that name; `gates` and `gates-sum` are no scripts.
[[nodiscard]] std::unique_ptr<Pattern> make_pattern(std::string_view name, const Placement& placement,
                                                    PatternOptions options);

} // namespace tofu::sim::replay
