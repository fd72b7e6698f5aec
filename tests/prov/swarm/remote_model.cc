// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See remote_model.h.
#include "remote_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace swarm {

std::string Region::name() const
{
    return "region " + std::to_string(process) + "/" + std::to_string(slot) + "#" + std::to_string(number);
}

bool Access::targets_live() const noexcept
{
    return !beyond && initiator() == Endpoint::open && to->state == Endpoint::open && (!data || to->rx[0].open) &&
           std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.region->open; });
}

// --- what is done

Region& RemoteModel::new_region(unsigned process, unsigned slot, std::size_t size)
{
    auto made = std::make_unique<Region>();
    Region& region = *made;
    region.number = static_cast<unsigned>(regions.size());
    region.process = process;
    region.slot = slot;
    region.buffer = std::make_unique<Buffer>(size);
    std::memset(region.buffer->at(), 0, cells_size);
    // What is under way to a region of this process that has ended may come to its successor.
    for (const auto& access : accesses)
        for (const Access::Part& part : access->parts)
            if (part.region->process == process && !part.region->open && (access->silent || !access->done) &&
                access->from != nullptr) {
                region.tainted = true;
                access->moved |= part.region->slot == slot;
            }
    regions.push_back(std::move(made));
    return region;
}

void RemoteModel::end(Region& region, bool lost)
{
    region.open = false;
    region.lost = lost;
    region.ended = ++time_;
}

Access& RemoteModel::new_access(Access::What what, Endpoint& from, Endpoint& to)
{
    auto made = std::make_unique<Access>();
    Access& access = *made;
    access.kind = Operation::access;
    access.number = static_cast<unsigned>(accesses.size());
    access.posted = ++time_;
    access.what = what;
    access.from = &from;
    access.to = &to;
    accesses.push_back(std::move(made));
    return access;
}

void RemoteModel::withdraw(Access& access)
{
    access.parts.clear();
    access.from = access.to = nullptr;
    access.done = true;
}

// --- what comes

void RemoteModel::check_failure(const Access& access, int error) const
{
    if (access.targets_live() && !(times_out && error == FI_ETIMEDOUT))
        contradict("access %u from %s to %s, %s, ended with %s; all of them live", access.number,
                   access.from->name().c_str(), access.to->name().c_str(), access.parts[0].region->name().c_str(),
                   fi_strerror(error));
}

void RemoteModel::on_entry(Access& access, const Entry& entry)
{
    if (access.silent && entry.error == 0)
        contradict("injected access %u has an entry", access.number);
    if (access.done)
        contradict("access %u ended twice", access.number);
    if (access.held && !access.recalled)
        contradict("access %u has begun, and its counter is not at %llu", access.number,
                   static_cast<unsigned long long>(access.threshold));
    if (access.apart && entry.error == 0)
        contradict("access %u, whose end a counter shows, has an entry", access.number);
    access.done = true;
    access.done_at = time_;
    access.error = entry.error;
    if (access.recalled) {
        if (entry.error != FI_ECANCELED)
            contradict("access %u was cancelled before it began, and ended with %s", access.number,
                       entry.error != 0 ? fi_strerror(entry.error) : "success");
        return;
    }
    if (access.what != Access::write && access.buffer != nullptr)
        access.buffer->seal();
    if (entry.error != 0) {
        check_failure(access, entry.error);
        return;
    }
    if (access.parts.empty())
        contradict("access %u by a key of no region succeeded", access.number);
    if (access.beyond && access.parts[0].region->open) // else the next region with its key may be longer
        contradict("access %u reaches beyond %s and succeeded", access.number, access.parts[0].region->name().c_str());
    const std::uint64_t kind = access.what == Access::atomic ? FI_ATOMIC : FI_RMA;
    const std::uint64_t way = access.counts_as_read() ? FI_READ : FI_WRITE;
    if ((entry.flags & kind) == 0 || (entry.flags & way) == 0)
        contradict("access %u ended with the flags %llx", access.number, static_cast<unsigned long long>(entry.flags));
    if (access.what != Access::write)
        return;
    std::memset(access.buffer->at(), 0xdd, access.buffer->size()); // it is the application's again
    for (const Access::Part& part : access.parts)
        if (part.region->open && !part.region->tainted)
            check_bytes(*part.region, part.offset, part.region->buffer->at() + part.offset, part.size, nullptr,
                        &access);
}

void RemoteModel::on_stray(unsigned process, const Entry& entry)
{
    if (entry.error != 0) {
        const bool timed_out = times_out && entry.error == FI_ETIMEDOUT;
        const auto may_fail = [&](const auto& access) {
            const bool may = access->silent && access->from != nullptr && access->from->process == process &&
                             (timed_out || !access->targets_live());
            access->moved = access->moved || (may && timed_out); // the entry does not say which
            return may;
        };
        if (std::count_if(accesses.begin(), accesses.end(), may_fail) == 0)
            contradict("process %u got an error without a context: %s", process, fi_strerror(entry.error));
        return;
    }
    const std::uint64_t number = entry.data - access_mark;
    if ((entry.flags & FI_REMOTE_CQ_DATA) == 0 || entry.data < access_mark || number >= accesses.size() ||
        accesses[number]->to == nullptr || accesses[number]->to->process != process || !accesses[number]->data)
        contradict("process %u got an entry without a cause: flags %llx, data %llx", process,
                   static_cast<unsigned long long>(entry.flags), static_cast<unsigned long long>(entry.data));
    Access& access = *accesses[number];
    if (access.held || access.recalled)
        contradict("the data of access %u, which has not begun, came", access.number);
    if (access.data_came)
        contradict("the data of access %u came twice", access.number);
    access.data_came = true;
    if (access.beyond && access.parts[0].region->open)
        contradict("the data of access %u, which reaches beyond its region, came", access.number);
    for (const Access::Part& part : access.parts)
        if (part.region->open && !part.region->tainted)
            check_bytes(*part.region, part.offset, part.region->buffer->at() + part.offset, part.size, nullptr,
                        &access);
}

// --- what must be

/// Does `a` take effect before `b` for certain?
bool RemoteModel::before(const Access& a, const Access& b) const noexcept
{
    if (a.posted >= b.posted)
        return false;
    if (a.done && a.error == 0 && !a.silent && a.done_at < b.posted)
        return true;
    return !a.moved && !b.moved && !a.was_held && a.from == b.from && a.tx == b.tx && a.tx_life == b.tx_life &&
           a.to == b.to && (b.fence || (ordered && a.what != Access::atomic && b.what != Access::atomic));
}

/// Are these bytes of a region what `reader` may find there; null: what may be there at the end, or, if `now` is not
/// null, at the moment at which this write is known to have taken effect?
void RemoteModel::check_bytes(const Region& region, std::size_t offset, const unsigned char* bytes, std::size_t size,
                              const Access* reader, const Access* now) const
{
    struct Write {
        const Access* access;
        const Access::Part* part;
    };
    constexpr unsigned char untouched = 0xa5;
    std::vector<Write> writes;
    for (const auto& access : accesses)
        if (access->what == Access::write)
            for (const Access::Part& part : access->parts)
                if (part.region == &region && part.offset < offset + size && offset < part.offset + part.size &&
                    !(reader != nullptr && before(*reader, *access)))
                    writes.push_back({access.get(), &part});
    const auto seen = [&](const Access& write) { // for certain
        if (now != nullptr)
            return &write == now || (write.done && write.error == 0);
        return write.is_certain() && (reader == nullptr || before(write, *reader));
    };
    // Between two of these places the same writes cover each byte.
    std::vector<std::size_t> places{offset, offset + size};
    for (const Write& write : writes)
        for (const std::size_t at : {write.part->offset, write.part->offset + write.part->size})
            if (at > offset && at < offset + size)
                places.push_back(at);
    std::sort(places.begin(), places.end());
    std::vector<const Write*> here, last;
    for (std::size_t place = 0; place + 1 < places.size(); place++) {
        const std::size_t from = places[place], end = places[place + 1];
        if (from == end)
            continue;
        here.clear();
        for (const Write& write : writes)
            if (write.part->offset <= from && from < write.part->offset + write.part->size)
                here.push_back(&write);
        const bool overwritten =
            std::any_of(here.begin(), here.end(), [&](const Write* write) { return seen(*write->access); });
        last.clear(); // those that no other has certainly overwritten
        std::copy_if(here.begin(), here.end(), std::back_inserter(last), [&](const Write* write) {
            return std::none_of(here.begin(), here.end(), [&](const Write* later) {
                return seen(*later->access) && before(*write->access, *later->access);
            });
        });
        const auto is_good = [&](std::size_t at, unsigned char byte) {
            return (!overwritten && byte == untouched) ||
                   std::any_of(last.begin(), last.end(), [&](const Write* write) {
                       return write->access->content[write->part->at + at - write->part->offset] == byte;
                   });
        };
        for (std::size_t at = from; at < end; at++)
            if (!is_good(at, bytes[at - offset]))
                contradict(
                    "%s: byte %zu is %02x, which is not possible%s%s", region.name().c_str(), at, bytes[at - offset],
                    reader != nullptr ? (" for access " + std::to_string(reader->number)).c_str() : "",
                    now != nullptr ? (" when access " + std::to_string(now->number) + " has ended").c_str() : "");
    }
}

std::string RemoteModel::missing(bool to_the_end) const
{
    for (const auto& access : accesses) {
        if (access->from == nullptr || access->initiator() != Endpoint::open || (access->was_held && !to_the_end))
            continue;
        const std::string what =
            "access " + std::to_string(access->number) + " from " + access->from->name() + " to " + access->to->name();
        if (!access->done && !access->silent && !access->held)
            return what + " has not ended";
        if (access->data && !access->data_came && access->is_certain() && access->targets_live())
            return what + ": its data have not come";
    }
    return {};
}

void RemoteModel::bounds_of(const Endpoint& at, std::uint64_t kind, Bounds& good, Bounds& bad) const
{
    const bool remote = (kind & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0;
    const bool reads = (kind & (FI_READ | FI_REMOTE_READ)) != 0;
    for (const auto& access : accesses) {
        if (access->from == nullptr)
            continue;
        if (!remote) {
            if (access->from != &at || access->apart || access->counts_as_read() != reads)
                continue;
            const bool lives = access->targets_live() && !times_out;
            good.add(access->done && access->error == 0, !access->done, lives && access->silent);
            bad.add(access->done && access->error != 0, !access->done && !(lives && access->silent), false);
            continue;
        }
        if (access->to->process != at.process || (reads && !access->counts_as_read()))
            continue;
        // An operation over several regions counts once, by one of them, and not at all if that is closed before.
        const bool waits = !access->fetches && access->parts.size() == 1;
        const bool in_time =
            !access->parts.empty() && std::all_of(access->parts.begin(), access->parts.end(), [&](const auto& part) {
                const Region& region = *part.region;
                return !region.tainted && (region.open || (waits && access->done && access->done_at < region.ended));
            });
        good.add(false, true,
                 access->is_certain() && access->posted > at.opened && in_time && at.rx[0].open && at.rx[1].open &&
                     access->counts_as_read() == reads);
    }
}

namespace {
std::uint64_t word_at(const unsigned char* bytes, const Cell& cell)
{
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, cell.size);
    if (!cell.real)
        return word;
    if (cell.size == 8)
        return static_cast<std::uint64_t>(std::bit_cast<double>(word));
    return static_cast<std::uint64_t>(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
}
} // namespace

void RemoteModel::check_cells(const Region& region) const
{
    for (unsigned c = 0; c < cell_count; c++) {
        const Cell& cell = cells[c];
        const std::uint64_t mask = cell.size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * cell.size) - 1;
        std::uint64_t sum = 0, bits = 0, most = 0, most_of_all = 0, swaps = 0;
        bool sure = true;
        for (const auto& access : accesses) {
            if (access->what != Access::atomic || access->cell != c)
                continue;
            for (const Access::Part& part : access->parts) {
                if (part.region != &region)
                    continue;
                most_of_all = std::max(most_of_all, access->operand);
                if (!access->is_certain()) {
                    sure = false;
                    continue;
                }
                std::uint64_t old = 0;
                if (access->fetches)
                    std::memcpy(&old, access->buffer->at() + part.at, cell.size);
                sum += access->operand;
                bits ^= access->operand;
                most = std::max(most, access->operand);
                swaps += access->fetches && old + 1 == access->operand;
            }
        }
        const std::uint64_t found = word_at(region.buffer->at() + cell.offset, cell);
        const std::uint64_t wanted = cell.rule == Cell::sum            ? sum & mask
                                     : cell.rule == Cell::exclusive_or ? bits
                                     : cell.rule == Cell::most         ? most
                                                                       : swaps;
        const bool good = cell.rule == Cell::most ? found >= most && found <= most_of_all : !sure || found == wanted;
        if (!good)
            contradict("%s: word %u for atomics is %llu instead of %llu", region.name().c_str(), c,
                       static_cast<unsigned long long>(found), static_cast<unsigned long long>(wanted));
    }
}

/// A read of a word finds all atomics that are before it for certain, and none that is behind it.
void RemoteModel::check_cell(const Access& reader, const Access::Part& part) const
{
    const Cell& cell = cells[reader.cell];
    std::uint64_t least = 0, most = 0;
    for (const auto& access : accesses) {
        const bool here = access->what == Access::atomic && access->cell == reader.cell && !access->recalled &&
                          std::any_of(access->parts.begin(), access->parts.end(),
                                      [&](const Access::Part& each) { return each.region == part.region; });
        if (!here || before(reader, *access))
            continue;
        const std::uint64_t sure = access->is_certain() && before(*access, reader) ? access->operand : 0;
        least = cell.rule == Cell::sum ? least + sure : std::max(least, sure);
        most = cell.rule == Cell::sum ? most + access->operand : std::max(most, access->operand);
    }
    if (const std::uint64_t found = word_at(reader.buffer->at() + part.at, cell); found < least || found > most)
        contradict("access %u from %s has read %llu in word %u of %s; %llu to %llu are possible", reader.number,
                   reader.from->name().c_str(), static_cast<unsigned long long>(found), reader.cell,
                   part.region->name().c_str(), static_cast<unsigned long long>(least),
                   static_cast<unsigned long long>(most));
}

void RemoteModel::check() const
{
    for (const auto& region : regions) {
        if (region->lost)
            continue;
        // A region is registered with the words of its ends (fi_tofu(7)). A late write knows the bounds of another one.
        if (!region->buffer->guards_stand(region->tainted))
            contradict("%s: bytes beside it were written", region->name().c_str());
        if (!region->open) {
            if (!region->buffer->is_as_sealed() && !region->tainted)
                contradict("%s was written after it was closed", region->name().c_str());
            continue;
        }
        if (region->tainted)
            continue;
        check_bytes(*region, cells_size, region->buffer->at() + cells_size, region->buffer->size() - cells_size,
                    nullptr, nullptr);
        check_cells(*region);
    }
    for (const auto& access : accesses) {
        if (access->from == nullptr || access->what == Access::write || access->buffer == nullptr)
            continue;
        if (!access->buffer->guards_stand())
            contradict("access %u: bytes beside its buffer were written", access->number);
        if (access->recalled && access->buffer->is_touched(0))
            contradict("access %u was cancelled before it began, and its buffer was written", access->number);
        if (!access->done || access->error != 0 || access->silent || access->moved || access->recalled)
            continue;
        if (!access->buffer->is_as_sealed())
            contradict("access %u: its buffer was written after it had ended", access->number);
        // What a read finds by the key of a closed region is open: its STADD may be that of other memory by then.
        for (const Access::Part& part : access->parts) {
            if (access->what != Access::read || part.region->tainted ||
                (!part.region->open && access->done_at >= part.region->ended))
                continue;
            if (access->of_cell)
                check_cell(*access, part);
            else
                check_bytes(*part.region, part.offset, access->buffer->at() + part.at, part.size, access.get(),
                            nullptr);
        }
    }
}

bool RemoteModel::count_holds(const Region& region, bool reads, std::uint64_t count, bool last) const
{
    std::uint64_t least = 0, most = 0;
    for (const auto& access : accesses) {
        const bool here = std::any_of(access->parts.begin(), access->parts.end(),
                                      [&](const Access::Part& part) { return part.region == &region; });
        if (!here || (reads && !access->counts_as_read()))
            continue;
        // The event of an access is behind it, and may find the region closed. Some kinds are not waited for: those of
        // a killed process may not have left.
        const bool waits = !access->fetches && access->parts.size() == 1;
        const bool in_time = (region.open && (waits || access->initiator() != Endpoint::killed)) ||
                             (waits && access->done && access->done_at < region.ended);
        least += access->is_certain() && in_time && access->counts_as_read() == reads;
        most++; // one that fetches and writes may count as both
    }
    const bool holds = region.tainted || (count >= least && count <= most);
    if (!holds && last)
        contradict("%s: its counter of %s is %llu; %llu to %llu were made", region.name().c_str(),
                   reads ? "reads" : "writes", static_cast<unsigned long long>(count),
                   static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
    return holds;
}

} // namespace swarm
