// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A part of a run. See part.h.
#include "traces/part.h"

#include <algorithm>
#include <utility>

namespace tofu::sim::trace {
namespace {

class Cutter {
  public:
    Cutter(Run& run, uint64_t from, uint64_t to) : run_(run), from_(from), to_(to) {}

    void cut()
    {
        for (Process& process : run_.processes) {
            process.began = clipped(process.began);
            process.ended = clipped(process.ended);
        }
        cut_transfers();
        keep(run_.waits, [this](Wait& wait) {
            wait.transfer = wait.transfer != no_index ? numbers_[wait.transfer] : no_index;
            return clip(wait);
        });
        keep(run_.notices, [this](Notice& notice) { return shift(notice.time); });
        keep(run_.entries, [this](Entry& entry) { return shift(entry.time); });
        keep(run_.gates, [this](Gates& gates) {
            gates.ended = gates.ended <= to_ && gates.ended > from_ ? gates.ended - from_ : 0;
            return shift(gates.began);
        });
        keep(run_.computations, [this](Computation& computation) {
            return clip(computation) && computation.ended - computation.began >= least_computation;
        });
        run_.length = to_ - from_;
    }

  private:
    [[nodiscard]] uint64_t clipped(uint64_t time) const noexcept { return std::clamp(time, from_, to_) - from_; }
    [[nodiscard]] bool shift(uint64_t& time) const noexcept
    {
        const bool inside = time >= from_ && time <= to_;
        time -= from_;
        return inside;
    }
    /// What has a beginning and an end. False: nothing of it is in the part.
    [[nodiscard]] bool clip(auto& span) const noexcept
    {
        const bool inside = span.began < to_ && span.ended > from_;
        span.began = clipped(span.began);
        span.ended = clipped(span.ended);
        return inside;
    }
    template <typename Item, typename Take>
    static void keep(std::vector<Item>& items, Take&& take)
    {
        size_t kept = 0;
        for (Item& item : items)
            if (take(item))
                items[kept++] = std::move(item);
        items.erase(items.begin() + static_cast<ptrdiff_t>(kept), items.end());
    }

    void cut_transfers()
    {
        numbers_.assign(run_.transfers.size(), no_index);
        uint32_t number = 0, kept = 0;
        keep(run_.transfers, [&](Transfer& transfer) {
            transfer.arrived = transfer.arrived > from_ && transfer.arrived <= to_ ? transfer.arrived - from_ : 0;
            transfer.returned = clipped(transfer.returned);
            const bool inside = shift(transfer.posted);
            numbers_[number++] = inside ? kept++ : no_index;
            return inside;
        });
        for (auto& list : run_.arrivals) {
            keep(list, [this](uint32_t& transfer) {
                transfer = numbers_[transfer];
                return transfer != no_index && run_.transfers[transfer].arrived != 0;
            });
        }
    }

    Run& run_;
    uint64_t from_;
    uint64_t to_;
    std::vector<uint32_t> numbers_; ///< of transfers, by what they were
};

} // namespace

uint64_t first_message(const Run& run) noexcept
{
    uint64_t first = run.length;
    for (const Transfer& transfer : run.transfers)
        if (transfer.to != transfer.from && transfer.to_node != no_index)
            first = std::min(first, transfer.posted);
    for (const Gates& gates : run.gates)
        first = std::min(first, gates.began);
    return first == run.length ? 0 : first;
}

void cut(Run& run, uint64_t from, uint64_t to)
{
    Cutter(run, from, to).cut();
}

} // namespace tofu::sim::trace
