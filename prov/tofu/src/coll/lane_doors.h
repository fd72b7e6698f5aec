// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table by which the members of a group find each other's memory: it lists the groups that a domain's endpoints
// have joined, and peers read it by Get (docs/wire-protocol.md, "Collective groups"). Owned by the domain; used by
// groups; calls vcq.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include <utofu.h>

#include "core/containers.h"
#include "mem/mr_directory.h"
#include "mem/pages.h"
#include "utofu/barrier_gate.h"

namespace tofu {
class DomainBase;
}

namespace tofu::coll {

/// A line: one group of one endpoint. Only the owner writes it; `check` shows that a reader has got a whole line.
struct DoorLine {
    std::uint64_t key;   ///< of the group and of the member (key_of)
    std::uint64_t stadd; ///< of the member's slab, with the home VCQ; `gone`: the member has given up
    std::uint64_t check; ///< over the two and the domain's nonce; 0 in a free line
    std::uint64_t reserved;
    static constexpr std::uint64_t gone = 0;
};
struct DoorRow {
    static constexpr unsigned lines = 8;
    DoorLine line[lines];
};
static_assert(sizeof(DoorRow) == 256 && std::is_trivially_copyable_v<DoorRow>);
inline constexpr unsigned door_rows = 256;
/// A line lies in one of these rows, counted from that of its key.
inline constexpr unsigned door_choices = 8;
constexpr std::uint64_t door_offset(std::uint64_t key, unsigned choice) noexcept
{
    return (key + choice) % door_rows * sizeof(DoorRow);
}
constexpr std::uint64_t check_of(const DoorLine& line, std::uint64_t nonce) noexcept
{
    return directory::mix(directory::mix(line.key ^ nonce) + line.stadd) | 1;
}

/// All calls take the home lock, except those that count joins, which take a lock of their own.
class Doors {
  public:
    explicit Doors(DomainBase& domain) noexcept : domain_(domain) {}
    /// Registers a member's memory for its peers, and writes its line. 0 or -FI_E* (-FI_ENOSPC: too many groups).
    [[nodiscard]] int open(std::uint64_t key, OwnMemory& slab, utofu_stadd_t& stadd) noexcept;
    /// Removes the line of a member; with `given_up` keeps it and says so in it, since peers may still look for it.
    void shut(std::uint64_t key, bool given_up) noexcept;
    /// Gives the memory back. `quiet`: no peer writes there any more. Else the memory stays until the domain is closed,
    /// or peers would hit whatever is registered under its tag later; so do the gates, since packets may still come to
    /// them.
    void release(OwnMemory&& slab, utofu_stadd_t stadd, vcq::Gates& gates, bool quiet) noexcept;
    /// Counts the joins of a list of members by one endpoint, so that each of the list's groups has a number: how many joins
    /// there were before. The count belongs to the endpoint's address, as peers know it: an endpoint that is closed and
    /// opened again under the same number continues it. False: no memory.
    [[nodiscard]] bool begin_join(std::uint64_t list, unsigned endpoint, std::uint64_t& before) noexcept;
    /// As if the last begin_join() had not been.
    void take_back_join(std::uint64_t list, unsigned endpoint) noexcept;
    /// Deregisters all memory and frees the gates. Called before the home VCQ is closed; the destructor, after that,
    /// frees the memory.
    void close() noexcept;

  private:
    struct Left {
        OwnMemory memory;
        utofu_stadd_t stadd = 0;
        vcq::Gates gates;
    };
    struct Joins {
        std::uint64_t list;
        std::uint64_t count;
        unsigned endpoint;
    };
    [[nodiscard]] Joins* joins_of(std::uint64_t list, unsigned endpoint) noexcept;
    [[nodiscard]] int make() noexcept;
    [[nodiscard]] DoorLine* seek(std::uint64_t key, bool free) noexcept;
    static void write(DoorLine& line, std::uint64_t key, std::uint64_t stadd, std::uint64_t check) noexcept;

    DomainBase& domain_;
    OwnMemory table_;
    utofu_stadd_t stadd_ = 0;
    Array<Left> left_;
    std::mutex joins_mutex_;
    Array<Joins> joins_;
};

} // namespace tofu::coll
