// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A trace as a script: the computation, the posts and the waits of each thread.
#pragma once

#include "replay/place.h"
#include "replay/player.h"
#include "traces/run.h"

#include <optional>

namespace tofu::sim::replay {

struct RecordedOptions {
    bool as_recorded = true; ///< the same network, and processes where they were: paths are those of the trace
    bool keep_paths = true;
    double cpu = 1; ///< how many times longer computing takes
};

/// What happens to a transfer, in the order of its keys.
enum class Point : uint8_t { sent, arrived, noted, told };

class Recorded final : public Script {
  public:
    Recorded(const trace::Run& run, const Placement& placement, const RecordedOptions& options);
    [[nodiscard]] uint32_t actors() const override { return static_cast<uint32_t>(threads_.size()); }
    [[nodiscard]] bool next(uint32_t actor, Step& step) override;

    /// Rounds of gates keep what they took in the trace.
    [[nodiscard]] bool has_gates() const noexcept { return !run_.gates.empty(); }

  private:
    enum class What : uint8_t { post, notice, entry, memory, waited, round };
    struct Item {
        uint64_t begin;
        uint64_t end;
        uint32_t number;
        What what;
    };
    struct Thread {
        uint32_t process;
        std::vector<Item> items;
        std::vector<Step> steps;
        size_t at = 0;
        uint64_t done = 0; ///< the end of its last item
    };

    void collect();
    void match();
    void meet();
    void write_steps(Thread& thread, bool until_it_left);
    void write_item(Thread& thread, const Item& item, uint64_t waited);
    void write_computation(Thread& thread, uint64_t time, double factor);
    /// What is waited for may be unknown, or have failed: then it takes what it took. Twice for the same is once.
    void write_wait(Thread& thread, uint32_t transfer, Point point, Picoseconds cost, uint64_t took);
    [[nodiscard]] bool is_waited_for(uint32_t transfer, Point point) const noexcept
    {
        return (waited_for_[transfer] >> static_cast<uint8_t>(point) & 1) != 0;
    }
    [[nodiscard]] uint32_t node_of(uint32_t process, uint32_t recorded) const noexcept;
    [[nodiscard]] Message message_of(uint32_t number) const;

    const trace::Run& run_;
    const Placement& placement_;
    RecordedOptions options_;
    std::vector<Thread> threads_;
    std::vector<uint32_t> of_notice_; ///< transfers, by number of the notice
    std::vector<uint32_t> of_entry_;
    std::vector<std::pair<uint32_t, uint32_t>> group_of_round_; ///< its number, and of how many
    std::vector<uint64_t> round_takes_;                         ///< by group
    std::vector<uint8_t> waited_for_;                           ///< by transfer: what of it, a bit each
};

} // namespace tofu::sim::replay
