// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What DELAY_START holds back. See gather.h.
#include "tni/gather.h"

#include "tni/engine.h"
#include "tni/execute.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tofu::sim {
namespace {

// Sixteen bytes at a time, where the processor can: one locked instruction instead of two or four.
#if defined(__x86_64__)
struct alignas(16) Block {
    uint64_t half[2];
};

[[nodiscard]] Block load(const std::byte* at) noexcept
{
    const auto* const from = reinterpret_cast<const uint64_t*>(at);
    return {{__atomic_load_n(&from[0], __ATOMIC_RELAXED), __atomic_load_n(&from[1], __ATOMIC_RELAXED)}};
}

/// By hand, for compilers call a library's function for it, which may take a lock.
[[nodiscard]] bool replace(std::byte* at, Block found, Block wanted) noexcept
{
    bool done = false;
    asm volatile("lock cmpxchg16b %1"
                 : "=@ccz"(done), "+m"(*reinterpret_cast<Block*>(at)), "+a"(found.half[0]), "+d"(found.half[1])
                 : "b"(wanted.half[0]), "c"(wanted.half[1])
                 : "memory");
    return done;
}

[[nodiscard]] uint64_t half_at(const std::byte* at) noexcept
{
    uint64_t half = 0;
    std::memcpy(&half, at, sizeof half);
    return half;
}

/// By halves, since that is how operands were stored and what `replace` needs.
template <typename Word, typename Change>
[[nodiscard]] uint64_t changed(uint64_t half, const std::byte* operands, const std::byte* compares,
                               Change change) noexcept
{
    const uint64_t by = half_at(operands), expected = half_at(compares);
    if constexpr (sizeof(Word) == 8) {
        return change(half, by, expected);
    } else {
        const uint32_t low = change(uint32_t(half), uint32_t(by), uint32_t(expected));
        const uint32_t high = change(uint32_t(half >> 32), uint32_t(by >> 32), uint32_t(expected >> 32));
        return uint64_t{high} << 32 | low;
    }
}
#endif

/// Each word atomically, in the order of the posts; the old value replaces the operand, if notices
/// report it: a locked instruction waits for the stores before it. `one` is the processor's own way, `change` the same
/// as a function.
template <typename Word, typename One, typename Change>
void apply_row(std::byte* target, Gathered& row, One one, [[maybe_unused]] Change change) noexcept
{
    auto* const operands = reinterpret_cast<Word*>(row.operands);
    const auto* const compares = reinterpret_cast<const Word*>(row.compares);
    const auto single = [&](uint32_t i) {
        operands[i] = one(reinterpret_cast<Word*>(target) + i, operands[i], compares[i]);
    };
    const uint32_t count = row.count;
    [[maybe_unused]] const bool notifies = (row.first.flags & notice_local) != 0;
    uint32_t i = 0;
#if defined(__x86_64__)
    constexpr uint32_t words = 16 / sizeof(Word);
    for (; i < count && reinterpret_cast<uintptr_t>(target + i * sizeof(Word)) % 16 != 0; i++)
        single(i);
    for (; i + words <= count; i += words) {
        std::byte* const at = target + i * sizeof(Word);
        std::byte* const by = row.operands + i * sizeof(Word);
        const std::byte* const expected = row.compares + i * sizeof(Word);
        const Block found = load(at);
        const Block wanted = {{changed<Word>(found.half[0], by, expected, change),
                               changed<Word>(found.half[1], by + 8, expected + 8, change)}};
        if (replace(at, found, wanted)) [[likely]] {
            if (notifies) {
                __atomic_store_n(reinterpret_cast<uint64_t*>(by), found.half[0], __ATOMIC_RELAXED);
                __atomic_store_n(reinterpret_cast<uint64_t*>(by) + 1, found.half[1], __ATOMIC_RELAXED);
            }
            continue;
        }
        for (uint32_t j = i; j < i + words; j++) // another writer is active: no loop, since it could lose for ever
            single(j);
    }
#endif
    for (; i < count; i++)
        single(i);
}

template <typename Word>
void apply_row(std::byte* target, Gathered& row) noexcept
{
    const auto armws = [&](auto op, auto change) {
        apply_row<Word>(
            target, row, [op](Word* at, Word by, Word) { return apply_armw<Word>(at, op, by); },
            [change](Word was, Word by, Word) { return change(was, by); });
    };
    if (row.op == Op::cswap4 || row.op == Op::cswap8) {
        return apply_row<Word>(
            target, row, [](Word* at, Word by, Word expected) { return apply_cswap<Word>(at, expected, by); },
            [](Word was, Word by, Word expected) { return was == expected ? by : was; });
    }
    switch (row.armw_op) {
    case UTOFU_ARMW_OP_SWAP: return armws(UTOFU_ARMW_OP_SWAP, [](Word, Word by) { return by; });
    case UTOFU_ARMW_OP_ADD: return armws(UTOFU_ARMW_OP_ADD, [](Word was, Word by) { return was + by; });
    case UTOFU_ARMW_OP_XOR: return armws(UTOFU_ARMW_OP_XOR, [](Word was, Word by) { return was ^ by; });
    case UTOFU_ARMW_OP_AND: return armws(UTOFU_ARMW_OP_AND, [](Word was, Word by) { return was & by; });
    default: return armws(UTOFU_ARMW_OP_OR, [](Word was, Word by) { return was | by; });
    }
}

/// The local notices, where they were asked for.
template <typename Word>
void notify_row(Vcq& vcq, const Gathered& row) noexcept
{
    MrqEntry entry;
    fill_local_entry(entry, row.first, 0, UTOFU_SUCCESS);
    const auto* const before = reinterpret_cast<const Word*>(row.operands);
    const uint32_t count = std::min(row.count, vcq.local_notices.room());
    for (uint32_t i = 0; i < count; i++, entry.rmt_stadd += sizeof(Word)) {
        entry.rmt_value = before[i];
        vcq.local_notices.next(i).entry = entry;
    }
    vcq.local_notices.push(count);
    if (count != row.count) [[unlikely]]
        end_by_own_overflow(vcq);
}

/// Where the target is not at hand, or not all of it: one after the other, as they would have been posted.
[[gnu::noinline]] void start_singly(Vcq& vcq, const Gathered& row, Remote* remote) noexcept
{
    Descriptor d = row.first;
    for (uint32_t i = 0; i < row.count; i++, d.rmt_stadd += row.size) {
        d.operand = d.compare = 0;
        std::memcpy(&d.operand, row.operands + i * row.size, row.size);
        std::memcpy(&d.compare, row.compares + i * row.size, row.size);
        Execution e{vcq, d, remote};
        const uint32_t position = vcq.toq_tail++;
        execute_armw(e);
        finish(e, nullptr, position); // an ARMW leaves nothing in the TCQ that was not asked for
    }
}

} // namespace

void GatheredDeleter::operator()(Gathered* gathered) const noexcept
{
    delete gathered;
}

bool gather_first(Vcq& vcq, const Descriptor& d, unsigned long flags) noexcept
{
    if (vcq.special != 0)
        return false;
    if (vcq.gathered == nullptr)
        vcq.gathered.reset(new (std::nothrow) Gathered);
    Remote* remote = nullptr;
    if (vcq.gathered == nullptr || find_remote(d.rmt_vcq_id, remote) != RemoteStatus::found)
        return false;
    Gathered& row = *vcq.gathered;
    row.first = d;
    row.rmt_vcq_id = d.rmt_vcq_id;
    row.edata = d.edata;
    row.flags = flags;
    row.armw_op = d.armw_op;
    row.op = d.op;
    row.size = d.op == Op::armw8 || d.op == Op::cswap8 ? 8 : 4;
    row.rmt_stadd = d.rmt_stadd + row.size;
    row.room = std::min(toq_room(vcq), Gathered::most);
    row.count = 1;
    std::memcpy(row.operands, &d.operand, row.size);
    std::memcpy(row.compares, &d.compare, row.size);
    vcq.set_special(Vcq::gathering);
    return true;
}

void start_gathered(Vcq& vcq) noexcept
{
    Gathered& row = *vcq.gathered;
    const Descriptor& d = row.first;
    vcq.set_special(vcq.special & ~uint32_t{Vcq::gathering});
    Remote* remote = nullptr;
    if (find_remote(d.rmt_vcq_id, remote) != RemoteStatus::found)
        remote = nullptr; // died since
    std::byte* const target =
        remote == nullptr ? nullptr
                          : vcq.addresses->find(remote->memory, d.rmt_stadd, size_t{row.count} * row.size, Need::write);
    if (target == nullptr || reinterpret_cast<uintptr_t>(target) % row.size != 0) {
        start_singly(vcq, row, remote);
        return;
    }
    vcq.toq_tail += row.count;
    if (row.size == 8)
        apply_row<uint64_t>(target, row);
    else
        apply_row<uint32_t>(target, row);
    ring_doorbell(*remote->header);
    if ((d.flags & notice_local) != 0)
        row.size == 8 ? notify_row<uint64_t>(vcq, row) : notify_row<uint32_t>(vcq, row);
    count(flow_of(vcq, remote, d), d.op, 0, row.count);
}

namespace {

/// Adds the further words of prepared descriptors, `count` of them in all. False: one of them does not belong to the
/// row.
template <Op op>
bool fill_row(Gathered& row, const std::byte* descriptors, size_t count) noexcept
{
    using Word = WordOf<op>;
    constexpr size_t size = op == Op::cswap8 ? large_descriptor_bytes : small_descriptor_bytes;
    for (size_t i = 1; i < count; i++) {
        PreparedWord word;
        if (!decode_word(descriptors, op, descriptors + i * size, word) ||
            word.rmt_stadd != row.first.rmt_stadd + i * sizeof(Word))
            return false;
        reinterpret_cast<Word*>(row.operands)[i] = static_cast<Word>(word.operand);
        if constexpr (is_cswap<op>)
            reinterpret_cast<Word*>(row.compares)[i] = static_cast<Word>(word.compare);
    }
    row.count = static_cast<uint32_t>(count);
    return true;
}

bool fill_row(Gathered& row, const std::byte* descriptors, size_t count) noexcept
{
    switch (row.op) {
    case Op::armw4: return fill_row<Op::armw4>(row, descriptors, count);
    case Op::armw8: return fill_row<Op::armw8>(row, descriptors, count);
    case Op::cswap4: return fill_row<Op::cswap4>(row, descriptors, count);
    case Op::cswap8: return fill_row<Op::cswap8>(row, descriptors, count);
    case Op::put:
    case Op::put_piggyback:
    case Op::get:
    case Op::nop: break;
    }
    return false;
}

} // namespace

bool start_prepared(Vcq& vcq, const std::byte* descriptors, size_t bytes) noexcept
{
    Descriptor d;
    const auto size = decode_descriptor(descriptors, bytes, d);
    const bool is_word = d.op == Op::armw4 || d.op == Op::armw8 || d.op == Op::cswap4 || d.op == Op::cswap8;
    if (!size || bytes < 2 * *size || bytes % *size != 0 || !is_word || (d.flags & (notice_remote | notice_tcq)) != 0 ||
        !gather_first(vcq, d, d.flags))
        return false;
    vcq.set_special(vcq.special & ~uint32_t{Vcq::gathering}); // it starts now, or not as a row
    const size_t count = bytes / *size;
    if (count > vcq.gathered->room || !fill_row(*vcq.gathered, descriptors, count))
        return false;
    start_gathered(vcq);
    return true;
}

} // namespace tofu::sim
