// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Collective groups: which process has joined which group, which results its operations may and must have
// (docs/testing.md, "Groups"). It knows no call of libfabric.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model.h"

namespace swarm {

/// One member's part in a group. Members with the same list and serial number are in the same group.
struct Join : Operation {
    Endpoint* at = nullptr;
    std::vector<Endpoint*> members; ///< by rank
    std::string list;               ///< the addresses of the members
    unsigned serial = 0;            ///< how often the process has joined this list before
    unsigned rank = 0, calls = 0;
    bool closed = false;
    bool joined() const noexcept { return done && error == 0 && !closed; }
};

/// An operation of a group, as one member has called it. The group's n-th operation is the same for all members.
struct Collective : Operation {
    enum What : std::uint8_t { barrier, sum, broadcast, count_ } what = barrier;
    Join* join = nullptr;
    unsigned index = 0;
    std::vector<std::uint64_t> in, out;
};

class GroupModel {
  public:
    explicit GroupModel(std::uint64_t& time) : time_(time) {}
    std::vector<std::unique_ptr<Join>> joins;
    std::vector<std::unique_ptr<Collective>> calls;

    Join& new_join(Endpoint& at, std::vector<Endpoint*> members, std::string list, unsigned serial);
    Collective& new_call(Join& join);
    void withdraw_last_call() { calls.back()->join->calls--, calls.pop_back(); }
    void on_join(unsigned process, Join* join, int error);
    [[nodiscard]] bool owns(const Operation* operation) const;
    void on_entry(Collective& call, const Entry& entry);
    [[nodiscard]] std::string missing() const;

  private:
    [[nodiscard]] const Join* of(const Join& join, unsigned rank) const;
    [[nodiscard]] bool is_whole(const Join& join) const;
    [[nodiscard]] bool is_gone(const Join& join, unsigned rank) const;
    [[nodiscard]] bool hears_of_a_loss(const Join& join) const;
    [[nodiscard]] bool must_end(const Join& join) const;
    [[nodiscard]] bool has_ended(const Join& join, unsigned index) const;
    [[nodiscard]] bool must_end(const Collective& call) const;
    std::uint64_t& time_;
};

} // namespace swarm
