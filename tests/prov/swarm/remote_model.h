// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Regions of memory and what peers do to them: which bytes, sums and counts may come of it (docs/testing.md, "Remote
// memory"). It knows no call of libfabric.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model.h"

namespace swarm {

constexpr std::size_t cells_size = 64; ///< of a region; its first bytes, which are for atomics alone

/// How the words for atomics are used: each by one operation.
struct Cell {
    enum Rule : std::uint8_t { sum, most, exclusive_or, counts_swaps };
    Rule rule;
    unsigned offset, size;
    bool real; ///< a floating-point number
};
constexpr Cell cells[] = {
    {Cell::sum, 0, 8, false},           {Cell::sum, 8, 4, false},   {Cell::sum, 12, 1, false},
    {Cell::sum, 16, 8, true},           {Cell::most, 24, 8, false}, {Cell::exclusive_or, 32, 8, false},
    {Cell::counts_swaps, 40, 8, false}, {Cell::sum, 48, 2, false},  {Cell::sum, 52, 4, true}};
constexpr unsigned cell_count = sizeof cells / sizeof *cells;

/// One life of a region.
struct Region {
    unsigned number = 0, process = 0, slot = 0;
    bool open = true;
    bool lost = false;    ///< its process was killed
    bool tainted = false; ///< what was meant for an earlier one may have come here
    std::uint64_t ended = 0;
    std::unique_ptr<Buffer> buffer;
    std::string name() const;
};

/// An access of a peer to one or two places.
struct Access : Operation {
    enum What : std::uint8_t { write, read, atomic } what = write;
    struct Part {
        Region* region;
        std::size_t offset, size, at; ///< `at`: where its bytes are in the initiator's buffer
    };
    Endpoint *from = nullptr, *to = nullptr;
    std::vector<Part> parts;
    bool moved = false; ///< its effect is open: its key was given to another region meanwhile, or it may have timed out
    bool injected = false; ///< its buffer is the application's when the call returns
    bool silent = false, fence = false, data = false, data_came = false, beyond = false, fetches = false;
    bool of_cell = false; ///< it reads a word for atomics
    unsigned cell = 0;
    std::uint64_t operand = 0;
    std::vector<unsigned char> content; ///< of a write
    std::unique_ptr<Buffer> buffer;     ///< of the initiator

    std::size_t tx_life = 0; ///< of the context that posts it
    [[nodiscard]] Endpoint::State initiator() const noexcept
    {
        return from->state == Endpoint::open && tx_life < from->tx[tx].ends.size() ? Endpoint::closed : from->state;
    }
    [[nodiscard]] bool targets_live() const noexcept;
    /// It has taken effect, or has for certain at the end of the program.
    [[nodiscard]] bool is_certain() const noexcept
    {
        return !moved && !recalled && (done ? error == 0 : silent && targets_live());
    }
    [[nodiscard]] bool counts_as_read() const noexcept { return what == read || fetches; }
};

class RemoteModel {
  public:
    explicit RemoteModel(std::uint64_t& time) : time_(time) {}
    bool ordered = false; ///< the endpoints asked for all orders
    /// What is refused because a key of the user is stale may never end, and is not repeated then.
    bool times_out = false;
    std::vector<std::unique_ptr<Region>> regions;
    std::vector<std::unique_ptr<Access>> accesses;

    Region& new_region(unsigned process, unsigned slot, std::size_t size);
    void end(Region& region, bool lost);
    Access& new_access(Access::What what, Endpoint& from, Endpoint& to);
    void withdraw(Access& access);
    void on_entry(Access& access, const Entry& entry);
    /// An entry that names no operation: the data of a write, or an injected access that failed.
    void on_stray(unsigned process, const Entry& entry);
    /// `to_the_end`: of operations that waited as well, which may be behind a fence until receives are posted.
    [[nodiscard]] std::string missing(bool to_the_end) const;
    /// What a counter of an endpoint may show: of its own accesses, or of those of peers.
    void bounds_of(const Endpoint& at, std::uint64_t kind, Bounds& good, Bounds& bad) const;
    /// When all has come: contents, results, sums.
    void check() const;
    /// May a region's counter of reads or writes show this?
    /// Does a counter of a region have a value that is possible? `last`: else it is wrong.
    [[nodiscard]] bool count_holds(const Region& region, bool reads, std::uint64_t count, bool last) const;

  private:
    [[nodiscard]] bool before(const Access& a, const Access& b) const noexcept;
    void check_bytes(const Region& region, std::size_t offset, const unsigned char* bytes, std::size_t size,
                     const Access* reader, const Access* now) const;
    void check_cells(const Region& region) const;
    void check_cell(const Access& reader, const Access::Part& part) const;
    void check_failure(const Access& access, int error) const;

    std::uint64_t& time_;
};

constexpr std::uint64_t access_mark = std::uint64_t{1} << 40; ///< in the CQ data of writes

} // namespace swarm
