// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the adversarial mode moves data: late, piece by piece (torn: tni/pieces), read before what was posted earlier has
// written (raw), with rubbish around it (padding).
#include "tni/chaos_queue.h"

#include "tni/execute.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tofu::sim {

namespace {

constexpr uint32_t most_ahead = 65536; ///< bytes of a transfer that is read before it is written

/// Reads all of a put or get now. Where that fails, it is the end of it.
void read_ahead(Vcq& vcq, Pending& p) noexcept
{
    AddressCache& addresses = *vcq.addresses;
    std::vector<std::byte> bytes(p.d.length);
    if (p.d.op == Op::put) {
        p.tcq_error = local_tcq_error(
            addresses.get(vcq.own_memory, p.d.lcl_stadd, bytes.data(), bytes.size(), CopyOrder::relaxed));
    } else {
        p.mrq_error = remote_mrq_error(
            addresses.get(p.remote->memory, p.d.rmt_stadd, bytes.data(), bytes.size(), CopyOrder::relaxed));
    }
    if (p.failed()) {
        p.data = Start::complete;
        return;
    }
    p.ahead = std::move(bytes);
}

/// Guide 2.2.10: with strong order reading starts after the reading, writing after the writing of what was posted
/// before.
bool may_read(const ChaosQueue& queue, size_t index) noexcept
{
    return all_before(queue, index, [](const Pending& q) { return q.read(); });
}
bool may_write(const ChaosQueue& queue, size_t index) noexcept
{
    return all_before(queue, index, [](const Pending& q) { return q.written(); });
}

bool can_be_read_ahead(const ChaosQueue& queue, const Pending& p) noexcept
{
    return (p.d.op == Op::put || (p.d.op == Op::get && queue.may(chaos_raw))) && p.d.length != 0 &&
           p.d.length <= most_ahead;
}

enum class Reading : uint8_t { now, perhaps_now }; ///< all of it, before anything is written

/// Both ends are checked when the transfer starts, as the first packet would find out.
void begin_transfer(Vcq& vcq, Pending& p, Reading reading) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    AddressCache& addresses = *vcq.addresses;
    p.data = Start::complete; // unless all is well
    uint64_t source = 0;      // a piggybacked put has no pages
    if (p.d.op == Op::put)
        p.tcq_error = local_tcq_error(addresses.check(vcq.own_memory, p.d.lcl_stadd, p.d.length, Need::read, &source));
    if (p.tcq_error != UTOFU_SUCCESS)
        return;
    if (p.remote == nullptr || !p.remote->alive()) {
        p.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    const bool get = p.d.op == Op::get;
    p.mrq_error = remote_mrq_error(addresses.check(p.remote->memory, p.d.rmt_stadd, p.d.length,
                                                   get ? Need::read : Need::write, get ? &source : nullptr));
    if (get && p.mrq_error == UTOFU_SUCCESS)
        p.mrq_error = local_mrq_error(addresses.check(vcq.own_memory, p.d.lcl_stadd, p.d.length, Need::write));
    if (p.mrq_error != UTOFU_SUCCESS || p.d.length == 0)
        return;
    p.data = Start::moving;
    p.pieces = cut({.destination = get ? p.d.lcl_stadd : p.d.rmt_stadd,
                    .source = source,
                    .length = p.d.length,
                    .strong = p.strong(),
                    .torn = queue.may(chaos_torn)},
                   queue.dice);
    if (reading == Reading::now || (can_be_read_ahead(queue, p) && queue.dice.below(4) == 0))
        read_ahead(vcq, p);
}

/// An ARMW is one step that reads and writes: atomic, and towards puts too (guide 2.2.5 says: towards other updates). A
/// get behind it waits for its reading (guide 2.2.10), so it sees whatever the ARMW has seen, but not for its writing:
/// it may still find the word as it was. It must not read earlier, or a lock taken by a CSWAP would protect nothing.
void let_a_get_pass(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    const Pending& armw = queue.pending[index];
    for (size_t i = index + 1; i < queue.pending.size(); i++) {
        Pending& get = queue.pending[i];
        if (!same_way(get, armw) || get.read())
            continue;
        if (get.data == Start::not_yet && !get.held && get.d.op == Op::get && can_be_read_ahead(queue, get) &&
            queue.dice.below(2) == 0) {
            begin_transfer(vcq, get, Reading::now);
            const size_t width = armw.d.op == Op::armw4 || armw.d.op == Op::cswap4 ? 4 : 8;
            const uint64_t offset = armw.d.rmt_stadd - get.d.rmt_stadd;
            if (offset < get.ahead.size() && get.ahead.size() - offset >= width)
                std::memcpy(get.ahead.data() + offset, &armw.old_value, width); // little-endian, as the machine is
        }
        return;
    }
}

void begin(Vcq& vcq, size_t index) noexcept
{
    Pending& p = vcq.chaos_queue->pending[index];
    if (is_put(p.d.op) || p.d.op == Op::get) {
        begin_transfer(vcq, p, Reading::perhaps_now);
        return;
    }
    p.data = Start::complete;
    if (p.d.op == Op::nop)
        return;
    if (p.remote == nullptr || !p.remote->alive()) {
        p.mrq_error = UTOFU_ERR_MRQ_PEER;
        return;
    }
    Execution e{vcq, p.d, p.remote};
    execute_armw(e);
    p.old_value = e.old_value;
    p.mrq_error = e.mrq_error;
    if (p.mrq_error == UTOFU_SUCCESS) {
        arrived_chaos(vcq, p.remote);
        let_a_get_pass(vcq, index);
    }
}

/// Of a get that was read ahead.
void write_here(Execution& e, const std::byte* bytes) noexcept
{
    std::byte* target = nullptr;
    const AccessStatus status =
        e.vcq.addresses->translate(e.vcq.own_memory, e.d.lcl_stadd, e.d.length, Need::write, &target);
    if (status != AccessStatus::ok) {
        e.mrq_error = local_mrq_error(status);
        return;
    }
    copy_ordered(target, bytes, e.d.length);
}

/// Guide 2.2.11: a piggybacked put with padding writes indefinite values before and behind its data, to the boundaries
/// of the cache lines. Unregistered memory there is not visible to peers.
void pad(Vcq& vcq, const Pending& p, const Piece& piece, Remote& remote) noexcept
{
    std::byte rubbish[order_line_bytes];
    std::memset(rubbish, static_cast<int>(vcq.chaos_queue->dice.below(256)), sizeof rubbish);
    const uint64_t line = (p.d.rmt_stadd + piece.offset) / order_line_bytes * order_line_bytes;
    const uint64_t begin = std::max(p.d.rmt_stadd, line);
    const uint64_t end = std::min(p.d.rmt_stadd + p.d.length, line + order_line_bytes);
    (void)vcq.addresses->put(remote.memory, line, rubbish, begin - line, CopyOrder::relaxed);
    (void)vcq.addresses->put(remote.memory, end, rubbish, line + order_line_bytes - end, CopyOrder::relaxed);
}

void move_piece(Vcq& vcq, Pending& p) noexcept
{
    const Piece piece = p.pieces.back();
    p.pieces.pop_back();
    Descriptor part = p.d;
    part.length = piece.length;
    part.lcl_stadd += piece.offset;
    part.rmt_stadd += piece.offset;
    Execution e{vcq, part, p.remote->alive() ? p.remote : nullptr};
    const std::byte* const ahead = p.ahead.empty() ? nullptr : p.ahead.data() + piece.offset;
    switch (p.d.op) {
    case Op::put:
        if (ahead == nullptr)
            execute_put(e);
        else if (e.remote == nullptr)
            e.mrq_error = UTOFU_ERR_MRQ_PEER;
        else
            move_put(e, ahead);
        break;
    case Op::put_piggyback:
        if ((p.d.flags & UTOFU_ONESIDED_FLAG_PADDING) != 0 && vcq.chaos_queue->may(chaos_padding) &&
            e.remote != nullptr)
            pad(vcq, p, piece, *e.remote);
        std::memmove(part.data, reinterpret_cast<const std::byte*>(p.d.data) + piece.offset, piece.length);
        execute_put_piggyback(e);
        break;
    case Op::get:
        if (ahead == nullptr)
            execute_get(e);
        else
            write_here(e, ahead);
        break;
    case Op::armw4:
    case Op::armw8:
    case Op::cswap4:
    case Op::cswap8:
    case Op::nop: break; // have no pieces
    }
    p.tcq_error = e.tcq_error;
    p.mrq_error = e.mrq_error;
    if (p.failed() || p.pieces.empty()) {
        p.pieces.clear();
        p.data = Start::complete;
    }
    if (e.remote != nullptr) {
        ring_doorbell(*e.remote->header); // memory may be polled line by line
        arrived_chaos(vcq, p.d.op == Op::get ? nullptr : e.remote);
    }
}

} // namespace

bool step_data(Vcq& vcq, size_t index) noexcept
{
    ChaosQueue& queue = *vcq.chaos_queue;
    Pending& p = queue.pending[index];
    if (p.held || p.data == Start::complete)
        return false;
    const bool writes = !p.strong() || may_write(queue, index);
    if (p.data == Start::moving) {
        if (writes)
            move_piece(vcq, p);
        return writes;
    }
    if (writes) {
        begin(vcq, index);
        return true;
    }
    if (!can_be_read_ahead(queue, p) || !may_read(queue, index))
        return false;
    begin_transfer(vcq, p, Reading::now);
    return true;
}

} // namespace tofu::sim
