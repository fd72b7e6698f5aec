// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which receive takes which message. Messages match in the order they came from a peer, receives in the order
// they were posted (fi_tagged(3)). Called by the receiver under the endpoint's lock; calls nothing.
//
// Cost. A posted receive belongs to a *kind*: its mask of ignored bits, and whether it names its source. A
// message looks once per kind in use into a hash table, whatever the number of receives, and takes the oldest
// of the answers. MPI uses a handful of kinds. Beyond max_kinds, receives wait in one list that is searched.
// A receive looks for messages that came early by (source, tag), or by tag alone, through hash tables; only
// with ignored bits does it search the list of all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/fifo_index.h"

namespace tofu::proto {

inline constexpr std::uint64_t any_source = 0; ///< no peer's key is 0

/// Base of a posted receive.
struct Posted {
    std::uint64_t source = any_source;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0; ///< bits of the tag that do not matter
    std::uint64_t order = 0;  ///< when it was posted
    std::uint32_t kind = 0;
    FifoLinks<Posted> links;
};

/// Base of a message nobody waited for yet.
struct Arrived {
    std::uint64_t source = 0;
    std::uint64_t tag = 0;
    Arrived* next = nullptr; ///< all, in order of arrival
    Arrived* prev = nullptr;
    FifoLinks<Arrived> by_both;
    FifoLinks<Arrived> by_tag;
};

class Matcher {
  public:
    void post(Posted& receive) noexcept;
    void withdraw(Posted& receive) noexcept;
    /// The receive that takes a message of `source` with `tag`; it stays posted until withdrawn.
    [[nodiscard]] Posted* match(std::uint64_t source, std::uint64_t tag) const noexcept;
    template <class Wanted>
    [[nodiscard]] Posted* find_posted(Wanted wanted) const noexcept
    {
        return posted_.find_if(wanted);
    }
    [[nodiscard]] std::size_t posted() const noexcept { return posted_.count(); }

    void keep(Arrived& message) noexcept;
    void drop(Arrived& message) noexcept;
    /// The oldest message a receive with these would take.
    [[nodiscard]] Arrived* find(std::uint64_t source, std::uint64_t tag,
                                std::uint64_t ignore) const noexcept;
    [[nodiscard]] Arrived* first() const noexcept { return first_; }
    [[nodiscard]] std::size_t arrived() const noexcept { return arrived_; }

  private:
    static constexpr unsigned max_kinds = 16;
    static constexpr std::uint32_t overflow_kind = max_kinds;
    struct Kind {
        std::uint64_t ignore;
        bool directed;
        std::size_t count;
    };
    [[nodiscard]] std::uint32_t kind_of(std::uint64_t ignore, bool directed) noexcept;
    [[nodiscard]] static MatchKey key_of(const Posted& receive) noexcept;
    [[nodiscard]] Posted* match_overflow(std::uint64_t source, std::uint64_t tag) const noexcept;

    Kind kinds_[max_kinds] = {};
    unsigned kinds_used_ = 0; ///< one past the last that has been in use
    std::size_t overflow_count_ = 0;
    std::uint64_t next_order_ = 1;
    FifoIndex<Posted, &Posted::links> posted_;

    Arrived* first_ = nullptr;
    Arrived* last_ = nullptr;
    std::size_t arrived_ = 0;
    FifoIndex<Arrived, &Arrived::by_both> by_both_;
    FifoIndex<Arrived, &Arrived::by_tag> by_tag_;
};

} // namespace tofu::proto
