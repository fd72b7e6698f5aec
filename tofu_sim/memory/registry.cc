// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The owner's side: STags of a VCQ, handed out, counted, published (guide 3.6).
#include "memory/registry.h"

#include "job/allocate.h"

#include <algorithm>
#include <cstring>

namespace tofu::sim {
namespace {

/// A free slot is used again when this many others have been freed after it: the memory of the table stays
/// small, and with the generations an STag comes back after a quarter of a million deregistrations.
constexpr size_t slots_at_rest = 256;
constexpr uint32_t generations = ((stag_limit - first_dynamic_stag) >> 1) / dynamic_slots;
constexpr int containing_steps = 8; ///< how far to look for a registration that contains a range

template <typename T>
void store_words(T& to, const T& from) noexcept
{
    static_assert(sizeof(T) % 8 == 0);
    const auto* words = reinterpret_cast<const uint64_t*>(&from);
    // Relaxed: ordered by the sequence word (partner: poster, read_entry).
    for (size_t i = 0; i < sizeof(T) / 8; ++i)
        __atomic_store_n(reinterpret_cast<uint64_t*>(&to) + i, words[i], __ATOMIC_RELAXED);
}

bool same_extents(const std::vector<Extent>& a, const std::vector<Extent>& b) noexcept
{
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Extent)) == 0;
}

/// Does what is published of a registration say the same of a part of it, `offset` behind its first page? Only
/// looks where both are of one kind throughout; otherwise false.
bool is_part_of(const std::vector<Extent>& whole, const std::vector<Extent>& part, uint64_t offset) noexcept
{
    if (offset == 0 && same_extents(whole, part))
        return true;
    return whole.size() == 1 && part.size() == 1 && whole[0].reach == part[0].reach &&
           (whole[0].reach != uint32_t(Reach::mapped) ||
            (whole[0].backing == part[0].backing && whole[0].file_offset + offset == part[0].file_offset));
}

} // namespace

RegisterStatus VcqMemory::Impl::add(uint64_t start, uint64_t bytes, bool read_only, uint32_t stag, uint64_t* stadd)
{
    if (start == 0)
        return RegisterStatus::bad_address;
    if (bytes == 0 || bytes > stadd_offset_mask - page_bytes || start + bytes < start)
        return RegisterStatus::bad_size;
    const bool reserved = stag != no_slot;
    if (reserved && stag >= reserved_stags)
        return RegisterStatus::bad_stag;
    if (slots.size() < reserved_stags)
        slots.resize(reserved_stags);
    if (reserved && slots[stag].hw_stag != 0)
        return RegisterStatus::used;

    // A reserved STag's STADD is known to peers before it is registered, so its offset is always 0.
    const uint64_t base = reserved ? start : page_floor(start);
    if (!process.classify(base, start + bytes, read_only, &scratch))
        return RegisterStatus::bad_address;
    const Key key{start, bytes, read_only};
    if (!reserved && reuse(key, stadd))
        return RegisterStatus::ok;

    // All that needs memory comes first, and what was entered is taken back where something is wanting.
    std::vector<Piece> pieces(1, Piece{start - base, start - base + bytes});
    std::vector<Extent> extents = scratch;
    const uint32_t index = reserved ? stag : take_slot();
    if (index == no_slot)
        return RegisterStatus::full;
    const bool entered = reserved || enter_range(key, index);
    if (!entered || !lock(start, start + bytes)) {
        if (!reserved) {
            ranges.erase(key);
            give_slot(index);
        }
        return RegisterStatus::out_of_memory;
    }
    Slot& slot = slots[index];
    slot.hw_stag = reserved ? reserved_hw_stag(component, stag)
                            : first_dynamic_stag + 2 * (slot.generation * dynamic_slots + (index - reserved_stags)) +
                                  (read_only ? 1 : 0);
    slot.page_base = base;
    slot.read_only = read_only;
    slot.reserved = reserved;
    slot.pieces = std::move(pieces);
    slot.extents = std::move(extents);
    live += reserved ? 0 : 1;
    publish(index);
    *stadd = make_stadd(slot.hw_stag, start - base);
    return RegisterStatus::ok;
}

bool VcqMemory::Impl::enter_range(const Key& key, uint32_t index) noexcept
{
    return or_without_memory(false, [&] { return ranges.emplace(key, Use{index, 1}).second; });
}

bool VcqMemory::Impl::reuse(const Key& key, uint64_t* stadd)
{
    auto at = ranges.find(key);
    if (at != ranges.end()) {
        ++at->second.count;
    } else {
        // A range inside one that is registered shares its STag, as on the real system.
        at = ranges.upper_bound(key);
        const uint64_t end = key.start + key.bytes;
        bool found = false;
        for (int i = 0; i < containing_steps && at != ranges.begin() && !found; ++i) {
            --at;
            found = at->first.read_only == key.read_only && at->first.start <= key.start &&
                    at->first.start + at->first.bytes >= end;
        }
        if (!found)
            return false;
        const uint32_t index = at->second.slot;
        const uint64_t first = key.start - slots[index].page_base;
        slots[index].pieces.push_back({first, first + key.bytes});
        const bool entered = enter_range(key, index);
        if (!entered || !lock(key.start, end)) {
            ranges.erase(key);
            slots[index].pieces.pop_back();
            throw std::bad_alloc();
        }
        at = ranges.find(key);
    }
    // The memory below may have been mapped anew since: what is published must be true of it now.
    Slot& slot = slots[at->second.slot];
    *stadd = make_stadd(slot.hw_stag, key.start - slot.page_base);
    if (!is_part_of(slot.extents, scratch, page_floor(key.start) - slot.page_base))
        refresh(at->second.slot);
    return true;
}

VcqMemory::Impl::Piece VcqMemory::Impl::Slot::bounds() const noexcept
{
    Piece all = pieces.front();
    for (const Piece& piece : pieces) {
        all.first = std::min(all.first, piece.first);
        all.limit = std::max(all.limit, piece.limit);
    }
    return all;
}

VcqMemory::Impl::Piece VcqMemory::Impl::published_bounds(const StagEntry& entry) noexcept
{
    return {entry.first, entry.limit};
}

uint32_t VcqMemory::Impl::take_slot()
{
    if (live >= max_dynamic_stags)
        return no_slot;
    if (process.reuse_stags) {
        for (uint32_t index = reserved_stags; index < slots.size(); ++index)
            if (slots[index].hw_stag == 0)
                return index;
    } else if (num_free >= slots_at_rest || slots.size() == stag_slots) {
        const uint32_t index = first_free;
        first_free = slots[index].next_free;
        --num_free;
        slots[index].generation = (slots[index].generation + 1) % generations;
        return index;
    }
    slots.emplace_back();
    return uint32_t(slots.size() - 1);
}

void VcqMemory::Impl::give_slot(uint32_t index) noexcept
{
    if (process.reuse_stags)
        return; // take_slot() looks for it
    (num_free == 0 ? first_free : slots[last_free].next_free) = index;
    last_free = index;
    ++num_free;
}

RegisterStatus VcqMemory::Impl::remove(uint64_t stadd) noexcept
{
    Slot* slot = nullptr;
    if (look_up(stadd, 1, false, &slot) != AccessStatus::ok)
        return RegisterStatus::bad_stadd;
    const uint64_t first = stadd & stadd_offset_mask;
    const auto piece =
        std::find_if(slot->pieces.rbegin(), slot->pieces.rend(), [&](const Piece& p) { return p.first == first; });
    if (piece == slot->pieces.rend())
        return RegisterStatus::bad_stadd;
    const uint32_t index = slot_of_stag(slot->hw_stag);
    if (!slot->reserved) {
        const auto use = ranges.find({slot->page_base + first, piece->limit - first, slot->read_only});
        if (--use->second.count != 0)
            return RegisterStatus::ok;
        ranges.erase(use);
    }
    unlock(*slot, *piece);
    slot->pieces.erase(std::next(piece).base());
    if (!slot->pieces.empty()) {
        if (slot->bounds() != published_bounds(own_table.entries[index]))
            refresh(index);
        return RegisterStatus::ok;
    }
    free_slot(index);
    return RegisterStatus::ok;
}

void VcqMemory::Impl::free_slot(uint32_t index) noexcept
{
    Slot& slot = slots[index];
    const bool reserved = slot.reserved;
    for (const Piece& piece : slot.pieces)
        unlock(slot, piece);
    slot.pieces.clear();
    slot.hw_stag = 0;
    slot.extents.clear();
    publish(index);
    if (!reserved) {
        give_slot(index);
        --live;
    }
}

bool VcqMemory::Impl::lock(uint64_t start, uint64_t end) noexcept
{
    return !process.lock_pages || process.locks.add(page_floor(start), page_ceil(end));
}

void VcqMemory::Impl::unlock(const Slot& slot, Piece piece) noexcept
{
    if (process.lock_pages)
        process.locks.remove(page_floor(slot.page_base + piece.first), page_ceil(slot.page_base + piece.limit));
}

void VcqMemory::Impl::remove_all() noexcept
{
    for (uint32_t index = 0; index < slots.size(); ++index)
        if (slots[index].hw_stag != 0)
            free_slot(index);
    ranges.clear();
}

AccessStatus VcqMemory::Impl::look_up(uint64_t stadd, uint64_t length, bool write, Slot** found) noexcept
{
    const uint32_t hw_stag = uint32_t(stadd >> stadd_offset_bits);
    const uint32_t index = slot_of_stag(hw_stag);
    if (index >= slots.size() || slots[index].hw_stag != hw_stag)
        return AccessStatus::bad_stadd;
    Slot& slot = slots[index];
    const auto [first, limit] = slot.bounds();
    const uint64_t offset = stadd & stadd_offset_mask;
    if (offset < first || offset >= limit)
        return AccessStatus::bad_stadd;
    if (length > limit - offset)
        return AccessStatus::bad_length;
    if (write && slot.read_only)
        return AccessStatus::not_permitted;
    *found = &slot;
    return AccessStatus::ok;
}

void VcqMemory::Impl::refresh(uint32_t index) noexcept
{
    Slot& slot = slots[index];
    const Piece bounds = slot.bounds();
    const uint64_t limit = bounds.limit;
    // Not: unmapped meanwhile, and each access fails; or there is no memory to describe it, and all goes by copy.
    const bool described = or_without_memory(
        false, [&] { return process.classify(slot.page_base, slot.page_base + limit, slot.read_only, &scratch); });
    const Extent by_copy{limit, 0, 0, uint32_t(Reach::fixed), 0};
    if (!described)
        scratch.assign(1, by_copy); // has room for one
    // Posters start over with an entry that changes: do not write it without a change.
    if (bounds == published_bounds(own_table.entries[index]) && same_extents(slot.extents, scratch))
        return;
    if (!or_without_memory(false, [&] { return slot.extents = scratch, true; }))
        slot.extents.assign(1, by_copy); // has one already
    publish(index);
}

/// Case analysis. The reader copies an entry between two loads of its sequence. (1) Both even and equal: the
/// copy is one published state. (2) Odd or different: it reads again, a bounded number of times, since the
/// writer never sleeps in between; a writer killed there leaves it odd, and the reader then finds it dead.
void VcqMemory::Impl::publish(uint32_t index) noexcept
{
    Slot& slot = slots[index];
    StagEntry next{};
    next.sequence.raw = own_table.entries[index].sequence.load_relaxed() + 1;
    uint32_t first = 0;
    if (slot.hw_stag != 0) {
        const Piece bounds = slot.bounds();
        next.first = bounds.first;
        next.limit = bounds.limit;
        const uint32_t count = uint32_t(slot.extents.size());
        if (count > 1 && (count > max_extents || !take_extents(count, &first)))
            slot.extents.assign(1, Extent{next.limit, 0, 0, uint32_t(Reach::fixed), 0});
        next.hw_stag = slot.hw_stag;
        next.page_base = slot.page_base;
        next.flags = slot.read_only ? entry_read_only : 0;
        next.extent_count = uint32_t(slot.extents.size());
        next.extent_first = first;
        next.reach = slot.extents[0].reach;
        next.file_offset = slot.extents[0].file_offset;
        next.backing = slot.extents[0].backing;
    }
    write_entry(own_table, index, next, slot);
    write_entry(table, index, next, slot);
    if (slot.extent_count != 0)
        give_extents(slot.extent_first, slot.extent_count);
    slot.extent_first = first;
    slot.extent_count = slot.hw_stag != 0 && slot.extents.size() > 1 ? uint32_t(slot.extents.size()) : 0;
}

void VcqMemory::Impl::write_entry(StagTable& to, uint32_t index, const StagEntry& next, const Slot& slot) noexcept
{
    StagEntry& entry = to.entries[index];
    entry.sequence.store_relaxed(next.sequence.raw);
    __atomic_thread_fence(__ATOMIC_RELEASE); // odd before any change (partner: poster, Location::read)
    store_words(entry, next);
    for (uint32_t i = 0; next.extent_count > 1 && i < next.extent_count; ++i)
        store_words(to.extents[next.extent_first + i], slot.extents[i]);
    // Release: the whole entry before its even number (partner: poster, Location::read and AddressCache::find).
    entry.sequence.store_release(next.sequence.raw + 1);
}

bool VcqMemory::Impl::take_extents(uint32_t count, uint32_t* first) noexcept
{
    for (auto run = free_extents.begin(); run != free_extents.end(); ++run) {
        if (run->second < count)
            continue;
        *first = run->first;
        auto node = free_extents.extract(run); // needs no memory
        if (node.mapped() > count) {
            node.key() += count;
            node.mapped() -= count;
            free_extents.insert(std::move(node));
        }
        return true;
    }
    return false;
}

void VcqMemory::Impl::give_extents(uint32_t first, uint32_t count) noexcept
{
    auto next = free_extents.lower_bound(first);
    if (next != free_extents.end() && next->first == first + count) {
        count += next->second;
        next = free_extents.erase(next);
    }
    if (next != free_extents.begin() && std::prev(next)->first + std::prev(next)->second == first)
        std::prev(next)->second += count;
    else // without memory for a note of them they rest until the VCQ is freed
        (void)or_without_memory(false, [&] { return free_extents.emplace(first, count).second; });
}

bool ProcessMemory::has_moved(uint64_t start, uint64_t end) const noexcept
{
    Vma vma;
    for (; start < end; start = vma.end)
        if (!impl_->vmas.find(start, &vma) || vma.start > start || !impl_->arena.is_mapped_by(vma))
            return false;
    return true;
}

VcqMemory::VcqMemory(ProcessMemory::Impl& process, StagTable& table, StagTable& own_table, unsigned vcq,
                     unsigned component) noexcept
    : impl_(make_or_null<Impl>(process, table, own_table, vcq, component))
{
    if (impl_ == nullptr)
        return;
    const std::lock_guard lock(process.mutex);
    if (!or_without_memory(false, [&] { return process.vcqs[vcq] = impl_.get(), true; }))
        impl_.reset();
}

VcqMemory::~VcqMemory()
{
    if (impl_ == nullptr || impl_->process.inherited())
        return;
    const std::lock_guard lock(impl_->process.mutex);
    impl_->remove_all();
    impl_->process.vcqs.erase(impl_->vcq);
}

RegisterStatus VcqMemory::add(void* address, size_t size, bool read_only, uint32_t stag, uint64_t* stadd) noexcept
{
    const auto start = reinterpret_cast<uint64_t>(address);
    const std::lock_guard lock(impl_->process.mutex);
    return or_without_memory(RegisterStatus::out_of_memory, [&] {
        if (impl_->process.mover.user_mode_only())
            impl_->process.threads.note_caller(start, start + size);
        return impl_->add(start, size, read_only, stag, stadd);
    });
}

RegisterStatus VcqMemory::remove(uint64_t stadd) noexcept
{
    const std::lock_guard lock(impl_->process.mutex);
    return impl_->remove(stadd);
}

} // namespace tofu::sim
