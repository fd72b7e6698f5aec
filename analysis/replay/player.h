// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Actors that compute, post and wait, each by its script: threads of a trace, or processes of a pattern.
#pragma once

#include "replay/traffic.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tofu::sim::replay {

struct Step {
    enum class Kind : uint8_t {
        compute, ///< for `time`
        post,    ///< `message`
        wait,    ///< until `key` has happened `count` times; `time` is what finding it takes
        meet,    ///< with `count` others of `key`; goes on `time` after the last
    };
    Kind kind = Kind::compute;
    Picoseconds time = 0;
    Key key = 0;
    uint32_t count = 1;
    Message message;
};

class Script {
  public:
    virtual ~Script() = default;
    [[nodiscard]] virtual uint32_t actors() const = 0;
    /// The actor's next step; false: it has come to its end.
    [[nodiscard]] virtual bool next(uint32_t actor, Step& step) = 0;
};

class Player {
  public:
    Player(Script& script, Traffic& traffic);

    /// Returns how many actors wait for what never happens.
    [[nodiscard]] uint32_t play();
    /// When the last actor was done.
    [[nodiscard]] Picoseconds length() const noexcept { return length_; }

  private:
    static constexpr uint32_t no_index = ~uint32_t{0};
    struct Events {
        uint32_t count = 0;
        Picoseconds last = 0;
    };
    struct Waiter {
        uint32_t actor;
        uint32_t count;
        Picoseconds since;
        Picoseconds cost;
    };

    void go_on(uint32_t actor, Picoseconds now);
    [[nodiscard]] bool wait(uint32_t actor, const Step& step, Picoseconds& now);
    void happen(Key key, Picoseconds when);

    Script& script_;
    Traffic& traffic_;
    std::unordered_map<Key, Events> events_; ///< without a wait yet
    std::unordered_multimap<Key, Waiter> waiters_;
    std::unordered_map<Key, Events> meetings_;
    uint32_t at_work_ = 0;
    Picoseconds length_ = 0;
};

} // namespace tofu::sim::replay
