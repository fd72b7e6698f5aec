// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// All members of a group carry out a collective over queues, with symbols in place of bytes: each cell of memory says
// which element of which members it holds.
#pragma once

#include "schedule/schedule.h"

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tofu::test {

inline constexpr unsigned most_members = 320;

/// An element of a block: its number, and whose contributions are in it. The number counts through a member's whole
/// input; a sum has the number that its operands have in theirs.
struct Cell {
    std::uint32_t element = ~0u;
    std::bitset<most_members> members;
    friend bool operator==(const Cell&, const Cell&) = default;
};
using Cells = std::vector<Cell>;

struct Expected {
    Cells cells;
    bool matters = true; ///< the member has a result
};

[[nodiscard]] inline Cell cell_of(unsigned member, std::size_t element)
{
    Cell cell{static_cast<std::uint32_t>(element), {}};
    cell.members.set(member);
    return cell;
}

/// A member of type Algorithm, which has next(sink) as schedule::Schedule has it. A transfer to a lane or to a member.
template <class Algorithm>
class Member {
  public:
    struct Transfer {
        unsigned peer = 0; ///< rank
        schedule::Blocks blocks;
        schedule::Take take = schedule::Take::copy;
        unsigned behind = schedule::no_send;
        std::uint64_t tag = 0;
        std::size_t done = 0;
    };

    Member(Algorithm algorithm, unsigned rank, unsigned members, Cells in, Cells out)
        : algorithm_(algorithm), rank_(rank),
          members_(members), buffers_{std::move(in), std::move(out), Cells(algorithm.own_bytes())}
    {
        heard.set(rank);
    }

    // The sink.
    void copy(const schedule::Blocks& from, const schedule::Blocks& to)
    {
        const Cells cells = read(from, 0, from.bytes());
        if (cells.size() != to.bytes())
            problem = "a copy to a place of another size";
        else
            store(to, 0, cells, schedule::Take::copy);
    }
    void send(unsigned lane, const schedule::Blocks& b) { send_to(schedule::member_at(lane, rank_, members_), b); }
    void receive(unsigned lane, const schedule::Blocks& b, schedule::Take take, unsigned behind)
    {
        receives.push_back(
            {.peer = schedule::member_at(lane, rank_, members_), .blocks = b, .take = take, .behind = behind});
    }
    void send_to(unsigned peer, const schedule::Blocks& b, std::uint64_t tag = 0)
    {
        sends.push_back({.peer = peer, .blocks = b, .tag = tag});
    }
    void receive_from(unsigned peer, const schedule::Blocks& b, std::uint64_t tag)
    {
        receives.push_back({.peer = peer, .blocks = b, .tag = tag});
    }

    [[nodiscard]] bool next()
    {
        sends.clear();
        receives.clear();
        return algorithm_.next(*this);
    }
    [[nodiscard]] Cells read(const schedule::Blocks& b, std::size_t at, std::size_t size)
    {
        Cells cells;
        b.each(at, size, [&](std::size_t offset, std::size_t, std::size_t take) {
            for (std::size_t i = 0; i < take; i++)
                if (Cell* const cell = find(b, offset + i))
                    cells.push_back(*cell);
        });
        return cells;
    }
    void store(const schedule::Blocks& b, std::size_t at, const Cells& cells, schedule::Take take)
    {
        b.each(at, cells.size(), [&](std::size_t offset, std::size_t done, std::size_t some) {
            for (std::size_t i = 0; i < some; i++)
                if (Cell* const mine = find(b, offset + i))
                    combine(*mine, cells[done + i], take);
        });
    }
    [[nodiscard]] const Cells& out() const { return buffers_[1]; }

    std::vector<Transfer> sends, receives;
    std::bitset<most_members> heard; ///< members that have called, as far as this one can know
    std::string problem;
    bool begun = false;
    bool over = false;

  private:
    Cell* find(const schedule::Blocks& b, std::size_t offset)
    {
        Cells& cells = buffers_[static_cast<unsigned>(b.buffer)];
        if (b.offset + offset < cells.size())
            return &cells[b.offset + offset];
        problem = "a place outside of a buffer";
        return nullptr;
    }
    void combine(Cell& mine, const Cell& theirs, schedule::Take take)
    {
        if (take == schedule::Take::copy) {
            mine = theirs;
            return;
        }
        if (mine.element != theirs.element || (mine.members & theirs.members).any())
            problem = "operands of different elements, or one of them twice";
        mine.members |= theirs.members;
    }

    Algorithm algorithm_;
    unsigned rank_;
    unsigned members_;
    Cells buffers_[3];
};

template <class Algorithm>
class Group {
  public:
    /// `message`: elements of a message at most; `room`: messages that a receiver has room for, of each sender.
    Group(std::size_t message, std::size_t room) : message_(message), room_(room) {}
    void add(Algorithm algorithm, unsigned members, Cells in, Cells out)
    {
        const auto rank = static_cast<unsigned>(member.size());
        member.emplace_back(algorithm, rank, members, std::move(in), std::move(out));
    }

    /// Members take turns in any order. Empty, or what is wrong.
    [[nodiscard]] std::string run(std::mt19937_64& random)
    {
        for (bool over = false; !over;) {
            bool moved = false;
            for (std::size_t i = 0; i < 2 * member.size(); i++)
                moved |= step(static_cast<unsigned>(random() % member.size()));
            over = true;
            for (unsigned m = 0; m < member.size(); m++) {
                if (!member[m].problem.empty())
                    return member[m].problem + ", at member " + std::to_string(m);
                moved |= !member[m].over && step(m);
                over &= member[m].over;
            }
            if (!over && !moved)
                return "all wait for each other";
        }
        for (const auto& [pair, queue] : queues_)
            if (!queue.empty())
                return "a message that no member takes, at " + std::to_string(pair.first);
        return {};
    }
    std::vector<Member<Algorithm>> member;

  private:
    struct Message {
        Cells cells;
        std::bitset<most_members> heard;
        std::uint64_t tag;
    };
    bool step(unsigned m)
    {
        auto& me = member[m];
        if (me.over)
            return false;
        if (!me.begun && !me.next())
            return me.over = true;
        me.begun = true;
        bool moved = false, all = true;
        for (auto& t : me.sends)
            all &= send_some(m, t, moved);
        for (auto& t : me.receives)
            all &= receive_some(m, t, moved);
        me.begun = !all;
        return moved || all;
    }
    static constexpr std::size_t ended = ~std::size_t{0}; // in Transfer::done: an empty transfer is a message, too
    bool send_some(unsigned m, auto& t, bool& moved)
    {
        auto& queue = queues_[{t.peer, m}];
        while (t.done != ended && queue.size() < room_) {
            const std::size_t size = std::min(message_, t.blocks.bytes() - t.done);
            queue.push_back({member[m].read(t.blocks, t.done, size), member[m].heard, t.tag});
            t.done = t.done + size == t.blocks.bytes() ? ended : t.done + size;
            moved = true;
        }
        return t.done == ended;
    }
    bool receive_some(unsigned m, auto& t, bool& moved)
    {
        auto& queue = queues_[{m, t.peer}];
        auto& me = member[m];
        while (t.done != ended && !queue.empty()) {
            if (t.behind != schedule::no_send && me.sends[t.behind].done <= t.done)
                break;
            const Message message = queue.front();
            queue.pop_front();
            if (message.cells.size() != std::min(message_, t.blocks.bytes() - t.done)) {
                me.problem = "a message of another size";
                return false;
            }
            if (message.tag != t.tag)
                me.problem = "a message with another tag";
            me.heard |= message.heard;
            me.store(t.blocks, t.done, message.cells, t.take);
            t.done = t.done + message.cells.size() == t.blocks.bytes() ? ended : t.done + message.cells.size();
            moved = true;
        }
        return t.done == ended;
    }

    std::map<std::pair<unsigned, unsigned>, std::deque<Message>> queues_; ///< by receiver and sender
    std::size_t message_;
    std::size_t room_;
};

// --- what each collective has to do, for blocks of `count` elements

[[nodiscard]] inline Cells input_of(schedule::Kind kind, unsigned member, unsigned members, std::size_t count)
{
    using enum schedule::Kind;
    const bool many = kind == scatter || kind == alltoall || kind == reduce_scatter;
    Cells cells;
    for (std::size_t i = 0; i < count * (many ? members : 1); i++)
        cells.push_back(cell_of(member, i));
    return cells;
}

[[nodiscard]] inline Cells empty_output(schedule::Kind kind, unsigned member, unsigned members, unsigned root,
                                        std::size_t count)
{
    using enum schedule::Kind;
    if (kind == broadcast && member == root)
        return input_of(kind, member, members, count);
    const bool many = kind == gather || kind == allgather || kind == alltoall;
    return Cells(count * (many ? members : 1));
}

[[nodiscard]] inline Expected output_of(schedule::Kind kind, unsigned member, unsigned members, unsigned root,
                                        std::size_t count)
{
    using enum schedule::Kind;
    std::bitset<most_members> all;
    for (unsigned m = 0; m < members; m++)
        all.set(m);
    Expected expected{empty_output(kind, member, members, root, count), true};
    Cells& cells = expected.cells;
    for (std::size_t i = 0; i < cells.size(); i++) {
        const auto block = static_cast<unsigned>(i / count);
        switch (kind) {
        case barrier: break;
        case broadcast: cells[i] = cell_of(root, i); break;
        case reduce: expected.matters = member == root; [[fallthrough]];
        case allreduce: cells[i] = {static_cast<std::uint32_t>(i), all}; break;
        case reduce_scatter: cells[i] = {static_cast<std::uint32_t>(member * count + i), all}; break;
        case gather: expected.matters = member == root; [[fallthrough]];
        case allgather: cells[i] = cell_of(block, i % count); break;
        case scatter: cells[i] = cell_of(root, member * count + i); break;
        case alltoall: cells[i] = cell_of(block, member * count + i % count); break;
        }
    }
    return expected;
}

} // namespace tofu::test
