// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Cuts a transfer into the pieces that the adversarial mode writes, in an order that the guide permits.
#include "tni/pieces.h"

#include <algorithm>

namespace tofu::sim {
namespace {

constexpr uint64_t line = 256;   ///< utofu_onesided_caps::cache_line_size
constexpr uint64_t page = 65536; ///< of the system of the guide
constexpr uint64_t word = 8;
constexpr unsigned max_lines = 24; ///< of one transfer; longer ones move in runs of lines

/// [offset, end) as pieces, cut in front of some of its words.
void tear(std::vector<Piece>& pieces, const Transfer& t, uint32_t offset, uint32_t end, Dice& dice) noexcept
{
    uint32_t start = offset;
    const auto first = static_cast<uint32_t>(word - (t.destination + offset) % word);
    for (uint32_t at = offset + first; at < end; at += word) {
        if (dice.below(2) == 0) {
            pieces.push_back({start, at - start});
            start = at;
        }
    }
    pieces.push_back({start, end - start});
}

void shuffle(std::vector<Piece>& pieces, size_t from, size_t to, Dice& dice) noexcept
{
    for (size_t i = to; i > from + 1; i--)
        std::swap(pieces[i - 1], pieces[from + dice.below(static_cast<uint32_t>(i - from))]);
}

} // namespace

std::vector<Piece> cut(const Transfer& t, Dice& dice) noexcept
{
    std::vector<Piece> pieces;
    const uint64_t lines = (t.destination % line + t.length + line - 1) / line;
    const uint64_t run = std::max<uint64_t>(1, lines / max_lines);
    size_t held_back = 0; // by strong order: the first of those that come behind all others
    for (uint32_t offset = 0; offset < t.length;) {
        const uint64_t at = t.destination + offset;
        const uint64_t count = t.length - offset > run * line ? run : 1;
        const auto end =
            static_cast<uint32_t>(std::min<uint64_t>((at / line + count) * line - t.destination, t.length));
        const uint64_t in_page = page - (t.source + offset) % page;
        const uint64_t in_line = line - at % line;
        held_back = pieces.size();
        if (in_page < std::min<uint64_t>(in_line, end - offset)) {
            const auto middle = static_cast<uint32_t>(offset + in_page);
            const auto line_end = static_cast<uint32_t>(std::min<uint64_t>(offset + in_line, end));
            tear(pieces, t, offset, middle, dice);
            held_back = pieces.size();
            tear(pieces, t, middle, line_end, dice);
            offset = line_end;
        } else if (t.torn && count == 1) {
            tear(pieces, t, offset, end, dice);
            offset = end;
        } else {
            // A run ends before a line whose bytes come from two pages.
            const uint64_t whole = in_page < end - offset ? (at + in_page) / line * line - at : end - offset;
            pieces.push_back({offset, static_cast<uint32_t>(whole)});
            offset += static_cast<uint32_t>(whole);
        }
    }
    std::reverse(pieces.begin(), pieces.end());
    const size_t last = pieces.size() - held_back; // how many those are
    if (t.strong) {
        shuffle(pieces, last, pieces.size(), dice);
        shuffle(pieces, 1, last, dice);
    } else {
        shuffle(pieces, 0, pieces.size(), dice);
    }
    return pieces;
}

} // namespace tofu::sim
