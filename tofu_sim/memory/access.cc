// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The slow side of access.h: reads the target's table, decides the way, fills the cache.
#include "memory/access.h"

#include "job/liveness.h"
#include "memory/announce.h"
#include "memory/peer.h"
#include "memory/service.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <sched.h>

namespace tofu::sim {
namespace {

/// Puts up to here have their memory moved at once, whatever that costs: polling readers expect their words to appear
/// whole and in order (docs/memory-model.md, "Guarantees"), which a copy through the kernel does not promise.
constexpr size_t move_at_once_bytes = 1024;
// Beyond, and where bytes are fetched, the price decides (memory/rent.h). Meanwhile the copies go on: where processes
// are more than processors, the owner's service thread has its turn a millisecond later, or many.

constexpr size_t announced_bytes = size_t{1} << 20; ///< of a copy at once: a move of pages waits for one

constexpr int read_attempts = 100000; ///< of our own entry that keeps changing
/// Of a peer's entry that is being written: its writer may have lost its processor to many others.
constexpr int yields_before_pauses = 1000;
constexpr int pauses_for_writer = 10'000; ///< of a millisecond; those while it is stopped do not count

template <typename T>
T load_relaxed(const T& from) noexcept
{
    return __atomic_load_n(&from, __ATOMIC_RELAXED);
}

bool gone(const RemoteVcq& vcq) noexcept
{
    return vcq.alive != nullptr && !is_alive(*vcq.alive, vcq.alive_tid);
}

} // namespace

/// One access as the target's table describes it: the entry's bounds, and the extent that holds the first byte.
struct AddressCache::Location {
    const SharedWord<uint32_t>* sequence_word;
    uint32_t sequence;
    uint32_t stag;
    bool read_only;
    uint64_t page_base;
    uint64_t offset; ///< of the access
    uint64_t start;  ///< of the extent, as offset from page_base, inside the registered bytes
    uint64_t end;
    uint64_t first; ///< offsets of all registered bytes
    uint64_t limit;
    uint64_t origin; ///< of the extent, before it was clipped: what file_offset belongs to
    Reach reach;
    uint32_t backing;
    uint64_t file_offset;

    [[nodiscard]] AccessStatus read(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need) noexcept;

  private:
    [[nodiscard]] AccessStatus read_once(const StagTable& table, const StagEntry& entry, uint64_t length,
                                         Need need) noexcept;
};

/// A result is only good if the entry's sequence is even and unchanged afterwards, which the caller checks.
AccessStatus AddressCache::Location::read_once(const StagTable& table, const StagEntry& entry, uint64_t length,
                                               Need need) noexcept
{
    if (load_relaxed(entry.hw_stag) != stag)
        return AccessStatus::bad_stadd;
    first = load_relaxed(entry.first);
    limit = load_relaxed(entry.limit);
    if (offset < first || offset >= limit || limit > stadd_offset_mask)
        return AccessStatus::bad_stadd;
    if (length > limit - offset)
        return AccessStatus::bad_length;
    read_only = (load_relaxed(entry.flags) & entry_read_only) != 0;
    if (need == Need::write && read_only)
        return AccessStatus::not_permitted;
    page_base = load_relaxed(entry.page_base);
    const uint32_t count = load_relaxed(entry.extent_count);
    origin = 0;
    end = limit;
    reach = Reach(load_relaxed(entry.reach));
    backing = load_relaxed(entry.backing);
    file_offset = load_relaxed(entry.file_offset);
    if (count > 1) {
        const uint32_t pool_first = load_relaxed(entry.extent_first);
        if (count > max_extents || pool_first > extent_pool_size - count)
            return AccessStatus::unreachable;
        const Extent* extents = table.extents + pool_first;
        uint32_t low = 0; // the first extent whose end is above the offset
        for (uint32_t high = count - 1; low < high;) {
            const uint32_t middle = (low + high) / 2;
            if (load_relaxed(extents[middle].end) > offset)
                high = middle;
            else
                low = middle + 1;
        }
        origin = low == 0 ? 0 : load_relaxed(extents[low - 1].end);
        end = std::min(limit, load_relaxed(extents[low].end));
        reach = Reach(load_relaxed(extents[low].reach));
        backing = load_relaxed(extents[low].backing);
        file_offset = load_relaxed(extents[low].file_offset);
    }
    start = std::max(first, origin);
    return start <= offset && offset < end ? AccessStatus::ok : AccessStatus::unreachable;
}

AccessStatus AddressCache::Location::read(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need) noexcept
{
    stag = uint32_t(stadd >> stadd_offset_bits);
    offset = stadd & stadd_offset_mask;
    const uint32_t slot = slot_of_stag(stag);
    if (slot == no_slot)
        return gone(vcq) ? AccessStatus::peer_gone : AccessStatus::bad_stadd;
    const StagEntry& entry = vcq.table->entries[slot];
    sequence_word = &entry.sequence;
    for (int attempt = 0; attempt < yields_before_pauses + pauses_for_writer; ++attempt) {
        if (gone(vcq))
            return AccessStatus::peer_gone;
        // Acquire, the fields, a fence, the same number again (partner: registry, publish).
        sequence = entry.sequence.load_acquire();
        if ((sequence & 1) == 0) {
            const AccessStatus status = read_once(*vcq.table, entry, length, need);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (entry.sequence.load_relaxed() == sequence)
                return status;
        }
        if (attempt < yields_before_pauses) {
            ::sched_yield();
            continue;
        }
        const timespec pause{0, 1'000'000};
        ::nanosleep(&pause, nullptr);
        if (vcq.process != nullptr && vcq.process->impl().is_stopped())
            --attempt; // in the midst of writing it, which it will end when it goes on
    }
    return AccessStatus::unreachable;
}

/// A transfer that goes piece by piece. `here` is the poster's side.
struct AddressCache::Transfer {
    const RemoteVcq& vcq;
    uint64_t stadd;
    std::byte* here;
    size_t length;
    Need need; ///< write: a put
    CopyOrder order;
    bool asked_to_move = false;

    void advance(size_t bytes) noexcept
    {
        stadd += bytes;
        here += bytes;
        length -= bytes;
    }
};

uint64_t RemoteVcq::new_serial() noexcept
{
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed); // only has to be unique
}

void AddressCache::fill(const RemoteVcq& vcq, const Location& at) noexcept
{
    Line& line = lines_[index(vcq.serial, at.stag)];
    if (line.serial != vcq.serial || line.stag != at.stag || line.sequence != at.sequence) {
        line = Line{};
        line.serial = vcq.serial;
        line.stag = at.stag;
        line.sequence_word = at.sequence_word;
        line.sequence = at.sequence;
    }
    std::byte* base = nullptr;
    uint64_t first = at.start;
    uint64_t limit = at.end;
    if (vcq.process == nullptr) { // any kind of memory: all of it is at its own address
        first = at.first;
        limit = at.limit;
        base = reinterpret_cast<std::byte*>(at.page_base);
    } else if (at.reach == Reach::mapped) {
        uint64_t window_offset = 0;
        uint64_t window_bytes = 0;
        const uint64_t file_offset = at.file_offset + (at.offset - at.origin);
        std::byte* window = vcq.process->impl().window(at.backing, file_offset, &window_offset, &window_bytes);
        if (window != nullptr) {
            // What of the extent lies in the window; both ends as distances from the access.
            const uint64_t below = std::min(at.offset - first, file_offset - window_offset);
            const uint64_t above = std::min(limit - at.offset, window_offset + window_bytes - file_offset);
            first = at.offset - below;
            limit = at.offset + above;
            base = window + (file_offset - window_offset) - at.offset;
        }
    }
    if (base == nullptr) {
        line.rights = 0;
        return;
    }
    line.base = base;
    line.first = first;
    line.limit = limit;
    line.rights = uint32_t(Need::read) | (at.read_only ? 0 : uint32_t(Need::write));
}

AccessStatus AddressCache::check(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need,
                                 uint64_t* address) noexcept
{
    Location at;
    const AccessStatus status = at.read(vcq, stadd, length, need);
    if (status == AccessStatus::ok && address != nullptr)
        *address = at.page_base + at.offset;
    return status;
}

AccessStatus AddressCache::translate_slow(const RemoteVcq& vcq, uint64_t stadd, size_t length, Need need,
                                          std::byte** pointer) noexcept
{
    for (int attempt = 0; attempt < read_attempts; ++attempt) {
        Location at;
        const AccessStatus status = at.read(vcq, stadd, length, need);
        if (status != AccessStatus::ok)
            return status;
        fill(vcq, at);
        *pointer = find(vcq, stadd, length, need);
        if (*pointer != nullptr || vcq.process != nullptr)
            return AccessStatus::ok;
        // Our own memory was moved for a peer between the two looks: the pointer is the same, the sequence is not.
    }
    return AccessStatus::unreachable;
}

AccessStatus AddressCache::put_slow(const RemoteVcq& target, uint64_t stadd, const void* source, size_t length,
                                    CopyOrder order) noexcept
{
    Transfer transfer{target, stadd,       const_cast<std::byte*>(static_cast<const std::byte*>(source)),
                      length, Need::write, order};
    return transfer_slow(transfer);
}

AccessStatus AddressCache::get_slow(const RemoteVcq& target, uint64_t stadd, void* destination, size_t length,
                                    CopyOrder order) noexcept
{
    Transfer transfer{target, stadd, static_cast<std::byte*>(destination), length, Need::read, order};
    return transfer_slow(transfer);
}

AccessStatus AddressCache::transfer_slow(Transfer& transfer) noexcept
{
    do {
        Location at;
        const AccessStatus found = at.read(transfer.vcq, transfer.stadd, transfer.length, transfer.need);
        if (found != AccessStatus::ok || transfer.length == 0)
            return found;
        const size_t before = transfer.length;
        const AccessStatus status = transfer_piece(transfer, at);
        if (status != AccessStatus::ok)
            return status;
        if (transfer.length != before)
            transfer.asked_to_move = false; // progress: the next piece may ask again
    } while (transfer.length != 0);
    return AccessStatus::ok;
}

/// Either advances the transfer, or changes how the same piece will be reached by the next call.
AccessStatus AddressCache::transfer_piece(Transfer& transfer, const Location& at) noexcept
{
    const uint64_t end = transfer.vcq.process == nullptr ? at.limit : at.end;
    const size_t bytes = size_t(std::min<uint64_t>(transfer.length, end - at.offset));
    if (at.reach == Reach::mapped || transfer.vcq.process == nullptr) {
        fill(transfer.vcq, at);
        const Line& line = lines_[index(transfer.vcq.serial, at.stag)];
        if (line.rights != 0) {
            const size_t part = size_t(std::min<uint64_t>(bytes, line.limit - at.offset));
            std::byte* there = line.base + at.offset;
            if (transfer.need == Need::write)
                copy_bytes(there, transfer.here, part, transfer.order);
            else
                copy_bytes(transfer.here, there, part, transfer.order);
            transfer.advance(part);
            return AccessStatus::ok;
        }
    } else if (at.reach == Reach::movable && !transfer.asked_to_move) {
        Heat& heat = heat_of(transfer.vcq, at.page_base + at.offset);
        const bool at_once = transfer.need == Need::write && bytes <= move_at_once_bytes && !heat.refused;
        if (at_once || heat.rent.pay(bytes)) {
            transfer.asked_to_move = true;
            PeerRequest request;
            request.kind = RequestKind::move;
            request.vcq = transfer.vcq.vcq;
            request.stadd = transfer.stadd;
            request.operand = bytes;
            if (at_once) {
                const AccessStatus status = transfer.vcq.process->impl().ask(request, nullptr);
                heat.refused = status != AccessStatus::ok;
                return status == AccessStatus::peer_gone ? status : AccessStatus::ok;
            }
            transfer.vcq.process->impl().suggest_move(request);
        }
    }
    return transfer_by_copy(transfer, at, bytes);
}

AddressCache::Heat& AddressCache::heat_of(const RemoteVcq& vcq, uint64_t address) noexcept
{
    // Buffers are apart by pages, and often by powers of two.
    const uint64_t mixed = (address / page_bytes + (vcq.serial << 40)) * 0x9e3779b97f4a7c15;
    auto& set = heats_[mixed >> 32 & (heat_sets - 1)];
    Heat* coldest = &set[0]; // or one that was never used: what was refused stays known
    for (Heat& heat : set) {
        if (heat.serial == vcq.serial && heat.address == address)
            return heat;
        if (coldest->serial != 0 && (heat.serial == 0 || heat.rent.paid() < coldest->rent.paid()))
            coldest = &heat;
    }
    *coldest = {.serial = vcq.serial, .address = address};
    return *coldest;
}

namespace {

using CopyResult = PeerProcess::Impl::CopyResult;

CopyResult write_by_copy(PeerProcess::Impl& peer, uint64_t there, std::byte* here, size_t bytes, CopyOrder order,
                         size_t* done) noexcept
{
    CopyResult result = CopyResult::ok;
    for (*done = 0; *done < bytes && result == CopyResult::ok;) {
        const size_t part = std::min(bytes - *done, announced_bytes);
        const AnnouncedCopy announced(peer.area(), there + *done, part);
        size_t copied = 0;
        result = announced.may_begin() ? peer.copy(there + *done, here + *done, part, Towards::there, order, &copied)
                                       : CopyResult::forbidden;
        *done += copied;
    }
    return result;
}

} // namespace

AccessStatus AddressCache::transfer_by_copy(Transfer& transfer, const Location& at, size_t bytes) noexcept
{
    PeerProcess::Impl& peer = transfer.vcq.process->impl();
    const uint64_t there = at.page_base + at.offset;
    size_t done = 0;
    const CopyResult result = transfer.need == Need::read
                                  ? peer.copy(there, transfer.here, bytes, Towards::here, transfer.order, &done)
                                  : write_by_copy(peer, there, transfer.here, bytes, transfer.order, &done);
    if (result == CopyResult::gone)
        return AccessStatus::peer_gone;
    transfer.advance(done);
    // Not allowed, or a fault: the page is being moved, or is not there. The owner knows.
    return result == CopyResult::ok ? AccessStatus::ok
                                    : transfer_by_owner(transfer, std::min<size_t>(bytes - done, mailbox_data_bytes));
}

AccessStatus AddressCache::transfer_by_owner(Transfer& transfer, size_t bytes) noexcept
{
    while (bytes != 0) {
        PeerRequest request;
        request.kind = transfer.need == Need::write ? RequestKind::write : RequestKind::read;
        request.vcq = transfer.vcq.vcq;
        request.stadd = transfer.stadd;
        request.length = uint32_t(std::min<size_t>(bytes, mailbox_data_bytes));
        const AccessStatus status = transfer.vcq.process->impl().ask(request, transfer.here);
        if (status != AccessStatus::ok)
            return status;
        transfer.advance(request.length);
        bytes -= request.length;
    }
    return AccessStatus::ok;
}

AccessStatus AddressCache::armw(const RemoteVcq& target, uint64_t stadd, unsigned size, ArmwOp op, uint64_t operand,
                                uint64_t compare, uint64_t* old_value) noexcept
{
    // A page holds the word whole, and offset 0 is the start of a page.
    if (stadd % size != 0)
        return AccessStatus::bad_stadd;
    std::byte* word = find(target, stadd, size, Need::write);
    int own_attempts = 0;
    for (bool asked = false; word == nullptr;) {
        Location at;
        AccessStatus status = at.read(target, stadd, size, Need::write);
        if (status != AccessStatus::ok)
            return status;
        fill(target, at);
        word = find(target, stadd, size, Need::write);
        if (word != nullptr)
            break;
        if (target.process == nullptr) { // our own memory, moved between the two looks: as in translate_slow
            if (++own_attempts == read_attempts)
                return AccessStatus::unreachable;
            continue;
        }
        if (at.reach == Reach::movable && !asked) {
            asked = true;
            PeerRequest request;
            request.kind = RequestKind::move;
            request.vcq = target.vcq;
            request.stadd = stadd;
            request.operand = size;
            if (target.process->impl().ask(request, nullptr) == AccessStatus::peer_gone)
                return AccessStatus::peer_gone;
            continue;
        }
        const bool changed = at.sequence_word->load_acquire() != at.sequence;
        if (changed && at.reach == Reach::mapped)
            continue; // moved or registered anew between our two looks
        PeerRequest request;
        request.kind = RequestKind::armw;
        request.vcq = target.vcq;
        request.length = size;
        request.stadd = stadd;
        request.operand = operand;
        request.compare = compare;
        request.operation = op;
        status = target.process->impl().ask(request, nullptr);
        if (status == AccessStatus::ok)
            *old_value = request.old_value;
        return status;
    }
    // An owner that is mistaken about its file: a word across two cache lines would stop the whole machine for a
    // moment, and the kernel may end or slow down a process that does that.
    if (reinterpret_cast<uintptr_t>(word) % size != 0)
        return AccessStatus::unreachable;
    *old_value = armw_on(word, size, op, operand, compare);
    return AccessStatus::ok;
}

} // namespace tofu::sim
