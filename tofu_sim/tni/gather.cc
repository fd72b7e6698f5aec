// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: what DELAY_START holds back. See gather.h.
// Called by: api/onesided, tni/engine, tni/vcq. Calls: tni/execute.
#include "tni/gather.h"

#include "tni/engine.h"
#include "tni/execute.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tofu::sim {
namespace {

constexpr uint32_t any_notice = notice_remote | notice_local | notice_tcq;

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

// By hand, for compilers call a library's function for it, which may take a lock.
[[nodiscard]] bool replace(std::byte* at, Block found, Block wanted) noexcept
{
    bool done = false;
    asm volatile("lock cmpxchg16b %1"
                 : "=@ccz"(done), "+m"(*reinterpret_cast<Block*>(at)), "+a"(found.half[0]), "+d"(found.half[1])
                 : "b"(wanted.half[0]), "c"(wanted.half[1])
                 : "memory");
    return done;
}

template <typename Word, typename Change>
[[nodiscard]] Block changed(Block block, const std::byte* operands, Change change) noexcept
{
    if constexpr (sizeof(Word) == 8) {
        const auto* const operand = reinterpret_cast<const uint64_t*>(operands);
        return {{change(block.half[0], operand[0]), change(block.half[1], operand[1])}};
    } else {
        for (uint64_t& half : block.half) {
            uint64_t operand = 0;
            std::memcpy(&operand, operands + (&half - block.half) * 8, 8);
            const uint32_t low = change(uint32_t(half), uint32_t(operand));
            const uint32_t high = change(uint32_t(half >> 32), uint32_t(operand >> 32));
            half = uint64_t{high} << 32 | low;
        }
        return block;
    }
}
#endif

// Each word atomically, in the order of the posts. `one` is the processor's own way, `change` the same as a function.
template <typename Word, typename One, typename Change>
void apply_row(std::byte* target, const std::byte* operands, uint32_t count, One one, [[maybe_unused]] Change change) noexcept
{
    const auto single = [&](uint32_t i) {
        one(reinterpret_cast<Word*>(target) + i, reinterpret_cast<const Word*>(operands)[i]);
    };
    uint32_t i = 0;
#if defined(__x86_64__)
    constexpr uint32_t words = 16 / sizeof(Word);
    for (; i < count && reinterpret_cast<uintptr_t>(target + i * sizeof(Word)) % 16 != 0; i++) {
        single(i);
    }
    for (; i + words <= count; i += words) {
        std::byte* const at = target + i * sizeof(Word);
        const Block found = load(at);
        if (!replace(at, found, changed<Word>(found, operands + i * sizeof(Word), change))) [[unlikely]] {
            for (uint32_t j = i; j < i + words; j++) { // somebody else is at it: without a loop that could lose for ever
                single(j);
            }
        }
    }
#endif
    for (; i < count; i++) {
        single(i);
    }
}

template <typename Word>
void apply_row(unsigned op, std::byte* target, const std::byte* operands, uint32_t count) noexcept
{
    const auto row = [&](auto one, auto change) { apply_row<Word>(target, operands, count, one, change); };
    switch (op) {
    case UTOFU_ARMW_OP_SWAP:
        return row([](Word* at, Word by) { (void)apply_armw<Word>(at, UTOFU_ARMW_OP_SWAP, by); },
                   [](auto, auto by) { return by; });
    case UTOFU_ARMW_OP_ADD:
        return row([](Word* at, Word by) { (void)apply_armw<Word>(at, UTOFU_ARMW_OP_ADD, by); },
                   [](auto was, auto by) { return was + by; });
    case UTOFU_ARMW_OP_XOR:
        return row([](Word* at, Word by) { (void)apply_armw<Word>(at, UTOFU_ARMW_OP_XOR, by); },
                   [](auto was, auto by) { return was ^ by; });
    case UTOFU_ARMW_OP_AND:
        return row([](Word* at, Word by) { (void)apply_armw<Word>(at, UTOFU_ARMW_OP_AND, by); },
                   [](auto was, auto by) { return was & by; });
    default:
        return row([](Word* at, Word by) { (void)apply_armw<Word>(at, UTOFU_ARMW_OP_OR, by); },
                   [](auto was, auto by) { return was | by; });
    }
}

// Where the target is not at hand, or not all of it: one after the other, as they would have been posted.
[[gnu::noinline]] void start_singly(Vcq& vcq, const Gathered& row, Remote* remote) noexcept
{
    Descriptor d = row.first;
    for (uint32_t i = 0; i < row.count; i++, d.rmt_stadd += row.size) {
        d.operand = 0;
        std::memcpy(&d.operand, row.operands + i * row.size, row.size);
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
    if (vcq.special != 0 || (d.flags & any_notice) != 0) {
        return false;
    }
    if (vcq.gathered == nullptr) {
        vcq.gathered.reset(new (std::nothrow) Gathered);
    }
    Remote* remote = nullptr;
    if (vcq.gathered == nullptr || find_remote(d.rmt_vcq_id, remote) != RemoteStatus::found) {
        return false;
    }
    Gathered& row = *vcq.gathered;
    row.first = d;
    row.rmt_vcq_id = d.rmt_vcq_id;
    row.edata = d.edata;
    row.flags = flags;
    row.armw_op = d.armw_op;
    row.size = d.op == Op::armw8 ? 8 : 4;
    row.rmt_stadd = d.rmt_stadd + row.size;
    row.room = std::min(toq_room(vcq), Gathered::most);
    row.count = 1;
    std::memcpy(row.operands, &d.operand, row.size);
    vcq.special = Vcq::gathering;
    return true;
}

void start_gathered(Vcq& vcq) noexcept
{
    Gathered& row = *vcq.gathered;
    const Descriptor& d = row.first;
    vcq.special &= ~uint32_t{Vcq::gathering};
    Remote* remote = nullptr;
    if (find_remote(d.rmt_vcq_id, remote) != RemoteStatus::found) {
        remote = nullptr; // died since
    }
    std::byte* const target =
        remote == nullptr ? nullptr
                          : vcq.addresses->find(remote->memory, d.rmt_stadd, size_t{row.count} * row.size, Need::write);
    if (target == nullptr || reinterpret_cast<uintptr_t>(target) % row.size != 0) {
        start_singly(vcq, row, remote);
        return;
    }
    vcq.toq_tail += row.count;
    if (row.size == 8) {
        apply_row<uint64_t>(d.armw_op, target, row.operands, row.count);
    } else {
        apply_row<uint32_t>(d.armw_op, target, row.operands, row.count);
    }
    ring_doorbell(*remote->header);
    count(flow_of(vcq, remote, d), d.op, 0, row.count);
}

} // namespace tofu::sim
