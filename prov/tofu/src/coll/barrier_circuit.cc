// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See barrier_circuit.h.
#include "coll/barrier_circuit.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "atomic/op_table.h"
#include "mem/mr_directory.h"

namespace tofu::coll {

// A butterfly of all processes would need log2 n relay gates for each process, of the 192 of a node. A tree within the
// node needs two for each process except the first, which alone is in the butterfly. At 27,648 nodes of four processes
// this is 24 relay gates of a node instead of 64. The path has two more relays, 0.3 us of 12.

/// Lowest first: A, C, X, Y, Z, B.
constexpr unsigned axis_of[] = {3, 5, 0, 1, 2, 4};

/// The key by which nodes are sorted. Nodes at similar coordinates have similar keys.
static std::uint64_t key_of(const vcq::Coords& c) noexcept
{
    std::uint64_t key = 0;
    for (unsigned i = 0; i < std::size(axis_of); i++)
        key |= std::uint64_t{c[axis_of[i]]} << 8 * i;
    return key;
}

void Circuit::add(const vcq::Coords& coords) noexcept
{
    seats_.push_reserved({key_of(coords), static_cast<std::uint32_t>(seats_.size()), 0, 0});
}

bool Circuit::lay_out() noexcept
{
    std::sort(seats_.begin(), seats_.end(), [](const MemberSlot& a, const MemberSlot& b) {
        return a.key != b.key ? a.key < b.key : a.rank < b.rank;
    });
    for (std::uint32_t i = 0; i < seats_.size(); i++) {
        if (i == 0 || seats_[i].key != seats_[i - 1].key)
            if (!first_.push(i))
                return false;
        seats_[i].node = static_cast<std::uint32_t>(first_.size() - 1);
        seats_[i].index = i - first_.back();
        place_.push_reserved(0);
    }
    for (std::uint32_t i = 0; i < seats_.size(); i++)
        place_[seats_[i].rank] = i;
    if (!first_.push(static_cast<std::uint32_t>(seats_.size())))
        return false;
    measure_box();
    return true;
}

/// If the nodes are all combinations of some coordinates on each axis (a box, perhaps with gaps between its planes),
/// they are numbered along its axes. Otherwise they have one number.
void Circuit::measure_box() noexcept
{
    std::uint64_t box = 1;
    for (unsigned i = 0; i < axes; i++) {
        bool there[256] = {};
        for (std::uint32_t node = 0; node < nodes(); node++)
            there[seats_[first_[node]].key >> 8 * i & 0xff] = true;
        digits_[i] = static_cast<std::uint32_t>(std::count(there, there + 256, true));
        box *= digits_[i]; // below 2^48
    }
    if (box == nodes())
        return;
    std::fill(digits_, digits_ + axes, 1);
    digits_[0] = nodes();
}

/// A butterfly along each axis, among the largest power of two of nodes. Each node beyond that is a guest (guide,
/// figure 2.17): it sends its value to one of these nodes first, and receives the result from it at the end. A node can
/// be a guest along one axis, and has guests of its own along the axes before.
void Circuit::between_nodes(std::uint32_t node, Program& program) const noexcept
{
    std::uint32_t guests[axes];
    unsigned has = 0;
    std::uint32_t stride = 1;
    bool guest = false;
    for (unsigned i = 0; i < axes && !guest; stride *= digits_[i++]) {
        const std::uint32_t at = node / stride % digits_[i];
        const std::uint32_t core = std::bit_floor(digits_[i]);
        guest = at >= core;
        if (guest) {
            program.add(ActionKind::send, leader(node - core * stride));
            program.add(ActionKind::replace, leader(node - core * stride));
        } else if (at + core < digits_[i]) {
            guests[has++] = leader(node + core * stride);
            program.add(ActionKind::join, guests[has - 1]);
        }
    }
    stride = 1;
    for (unsigned i = 0; i < axes && !guest; stride *= digits_[i++]) {
        const std::uint32_t at = node / stride % digits_[i];
        for (std::uint32_t bit = 1; bit < std::bit_floor(digits_[i]); bit *= 2) {
            const std::uint32_t other = leader(node - at * stride + (at ^ bit) * stride);
            program.add(ActionKind::send, other);
            program.add(ActionKind::join, other);
        }
    }
    while (has != 0)
        program.add(ActionKind::send, guests[--has]);
}

/// The steps of one member: up the tree of its node, then between the nodes, then down the tree.
void Circuit::program_of(unsigned rank, Program& program) const noexcept
{
    const MemberSlot& seat = seats_[place_[rank]];
    const std::uint32_t first = first_[seat.node];
    const std::uint32_t here = first_[seat.node + 1] - first; // members on this node
    const auto local = [&](std::uint32_t index) { return seats_[first + index].rank; };
    std::uint32_t reach = 1; // distance of the next child
    for (; (seat.index & reach) == 0 && seat.index + reach < here; reach *= 2)
        program.add(ActionKind::join, local(seat.index + reach));
    if (seat.index != 0) {
        const std::uint32_t parent = local(seat.index & (seat.index - 1));
        program.add(ActionKind::send, parent);
        program.add(ActionKind::replace, parent);
    } else {
        between_nodes(seat.node, program);
    }
    while (reach > 1) {
        reach /= 2;
        program.add(ActionKind::send, local(seat.index + reach));
    }
}

/// Assigns a program to gates: visit(action, gate before, gate of the action). A gate waits before it sends. The end
/// half of gate 0 has the last wait of the program, unless its signal would come from gate 0 itself: a signal must come
/// from another gate (guide 3.4.2.1). Returns the number of gates.
template <class Visit>
unsigned Circuit::walk(const Program& program, Visit&& visit) noexcept
{
    unsigned gates = 1;
    unsigned at = 0;
    bool sent = false;
    for (unsigned i = 0; i < program.count; i++) {
        const Action& action = program.action[i];
        const bool send = action.does == ActionKind::send;
        const bool last = i + 1 == program.count;
        const bool fresh = send ? sent : !last || (at == 0 && action.does == ActionKind::join);
        const unsigned before = at;
        if (fresh)
            at = gates++;
        else if (!send)
            at = 0;
        sent = send;
        visit(action, before, at);
    }
    return gates;
}

unsigned Circuit::gate_of(const Program& program, unsigned peer, bool sends) noexcept
{
    unsigned found = 0;
    (void)walk(program, [&](const Action& action, unsigned, unsigned gate) {
        if (action.peer == peer && (action.does == ActionKind::send) == sends)
            found = gate;
    });
    return found;
}

void Circuit::wires_of(unsigned rank, Wires& wires) const noexcept
{
    Program program;
    program_of(rank, program);
    wires = {};
    bool closed = false;
    unsigned end = 0;
    wires.count = walk(program, [&](const Action& action, unsigned before, unsigned gate) {
        Program theirs;
        program_of(action.peer, theirs);
        const bool send = action.does == ActionKind::send;
        const GateAt other{action.peer, gate_of(theirs, rank, !send)};
        GatePlan& plan = wires.gate[gate];
        (send ? plan.packet_to : plan.packet_from) = other;
        closed = !send && gate == 0;
        if ((gate != before || closed) && action.does != ActionKind::replace) {
            wires.gate[before].signal_to = gate;
            plan.signal_from = before;
        }
        end = gate;
    });
    if (!closed) {
        wires.gate[end].signal_to = 0;
        wires.gate[0].signal_from = end;
    }
}

unsigned Circuit::most_gates() const noexcept
{
    unsigned most = 0;
    for (const MemberSlot& seat : seats_) {
        Program program;
        program_of(seat.rank, program);
        most = std::max(most, walk(program, [](const Action&, unsigned, unsigned) {}));
    }
    return most;
}

namespace {

using Form = GateMapping::Form;
constexpr unsigned words = vcq::GateData::words;
constexpr std::uint64_t top = std::uint64_t{1} << 63;

bool integer(const Datatype& d) noexcept
{
    return d.kind == Class::sign || d.kind == Class::nosign;
}
bool is_float(fi_datatype type) noexcept
{
    return type == FI_FLOAT || type == FI_FLOAT_COMPLEX;
}

/// Loads an integer of up to 8 bytes with its sign extended.
std::uint64_t load(const Datatype& d, const std::byte* at) noexcept
{
    std::uint64_t value = 0;
    std::memcpy(&value, at, d.size); // little endian, as all machines with Tofu and of the simulator are
    const unsigned unused = 64 - 8u * d.size;
    return d.kind == Class::sign ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused)
                                 : value;
}

double load_real(bool single, const std::byte* at) noexcept
{
    float narrow = 0;
    double wide = 0;
    if (!single)
        std::memcpy(&wide, at, sizeof(wide));
    else if (std::memcpy(&narrow, at, sizeof(narrow)))
        wide = static_cast<double>(narrow);
    return wide;
}
void store_real(bool single, std::byte* at, double value) noexcept
{
    const float narrow = static_cast<float>(value);
    if (single)
        std::memcpy(at, &narrow, sizeof(narrow));
    else
        std::memcpy(at, &value, sizeof(value));
}

/// A greater number has a greater word, or with `least` a smaller one. 0 stands for NaN; it is below all other words,
/// so a maximum ignores it.
std::uint64_t key_of(fi_datatype type, bool least, const std::byte* at) noexcept
{
    const Datatype& d = datatypes[type];
    std::uint64_t key = 0;
    if (integer(d)) {
        key = load(d, at) ^ (d.kind == Class::sign ? top : 0);
    } else {
        const double value = load_real(is_float(type), at);
        if (value != value)
            return 0;
        const auto bits = std::bit_cast<std::uint64_t>(value);
        key = (bits & top) != 0 ? ~bits : bits | top;
    }
    return least ? ~key : key;
}
void store_key(fi_datatype type, bool least, std::byte* at, std::uint64_t key) noexcept
{
    const Datatype& d = datatypes[type];
    const std::uint64_t value = least ? ~key : key;
    if (integer(d)) {
        const std::uint64_t back = value ^ (d.kind == Class::sign ? top : 0);
        std::memcpy(at, &back, d.size);
    } else if (key == 0) {
        store_real(is_float(type), at, __builtin_nan(""));
    } else {
        store_real(is_float(type), at, std::bit_cast<double>((value & top) != 0 ? value & ~top : ~value));
    }
}

bool is_true(fi_datatype type, const std::byte* at) noexcept
{
    const Datatype& d = datatypes[type];
    return integer(d) ? load(d, at) != 0 : load_real(is_float(type), at) != 0;
}
void store_truth(fi_datatype type, std::byte* at, bool value) noexcept
{
    const std::uint64_t number = value;
    if (integer(datatypes[type]))
        std::memcpy(at, &number, datatypes[type].size);
    else
        store_real(is_float(type), at, value);
}

/// Appends to `used` words the words that the seal yields when `members` equal ones are combined, if there is
/// room. If the seal of one member differs, all members find other words. Returns the new number of words. An
/// exclusive or has no such words: two seals that occur an even number of times each cancel out.
unsigned append_seal(const GateMapping& n, unsigned used, std::uint32_t seal, unsigned members,
                     vcq::GateData& data) noexcept
{
    const std::uint64_t own = seal;
    constexpr std::uint64_t part = 0xfffff; // its sum over any number of members is exact as a double
    if (n.op == UTOFU_REDUCE_OP_SUM && used < words) {
        data.word[used++] = own * members;
    } else if ((n.op == UTOFU_REDUCE_OP_BAND || n.op == UTOFU_REDUCE_OP_BOR) && used < words) {
        data.word[used++] = own | ~own << 32; // a bit that differs becomes equal to its complement
    } else if (n.op == UTOFU_REDUCE_OP_MAX && used + 1 < words) {
        data.word[used++] = own;
        data.word[used++] = ~own; // greatest and least seal
    } else if (n.op == UTOFU_REDUCE_OP_BFPSUM && used < vcq::GateData::reals) {
        data.real[used++] = static_cast<double>((own & part) * members);
    }
    return used;
}

unsigned words_of(const GateMapping& n, std::size_t size) noexcept
{
    switch (n.form) {
    case Form::none:
    case Form::barrier: return 0;
    case Form::bytes:
    case Form::bits: return static_cast<unsigned>((size + 7) / 8);
    case Form::truth: return static_cast<unsigned>((size + 63) / 64);
    case Form::whole:
    case Form::order:
    case Form::real: break;
    }
    return static_cast<unsigned>(size);
}

bool by_bytes(const GateMapping& n) noexcept
{
    return n.form == Form::bytes || n.form == Form::bits;
}

/// Size in bytes of the unit of GateMapping::each: an element, a part of a complex one, or a byte.
std::size_t unit_of(const GateMapping& n, fi_datatype type) noexcept
{
    const Datatype& d = datatypes[type];
    return by_bytes(n) ? 1 : d.size / (d.kind == Class::complex ? 2 : 1);
}

/// Copies unit `i` of a round from memory into its words, unless the form copies bytes; unpack_result() copies it back.
void put(const GateMapping& n, const Shape& s, std::size_t i, const std::byte* from, vcq::GateData& data) noexcept
{
    switch (n.form) {
    case Form::none:
    case Form::barrier:
    case Form::bytes:
    case Form::bits: break;
    case Form::truth: data.word[i / 64] |= std::uint64_t{is_true(s.type, from)} << i % 64; break;
    case Form::whole: data.word[i] = load(datatypes[s.type], from); break;
    case Form::order: data.word[i] = key_of(s.type, s.op == FI_MIN, from); break;
    case Form::real: data.real[i] = load_real(is_float(s.type), from); break;
    }
}

void unpack_result(const GateMapping& n, const Shape& s, std::size_t i, std::byte* to,
                   const vcq::GateData& data) noexcept
{
    switch (n.form) {
    case Form::none:
    case Form::barrier:
    case Form::bytes:
    case Form::bits: break;
    case Form::truth: store_truth(s.type, to, (data.word[i / 64] >> i % 64 & 1) != 0); break;
    case Form::whole: std::memcpy(to, &data.word[i], datatypes[s.type].size); break;
    case Form::order: store_key(s.type, s.op == FI_MIN, to, data.word[i]); break;
    case Form::real: store_real(is_float(s.type), to, data.real[i]); break;
    }
}

GateMapping reduction(const Shape& s) noexcept
{
    const Datatype& d = datatypes[s.type];
    const bool word = d.size <= 8 && d.kind != Class::complex;
    const auto when = [](bool can, const GateMapping& native) { return can ? native : GateMapping{}; };
    switch (s.op) {
    case FI_SUM:
        if (d.kind == Class::complex)
            return when(d.size <= 16, {Form::real, UTOFU_REDUCE_OP_BFPSUM, vcq::GateData::reals, 0, 2 * s.count});
        if (d.kind == Class::real)
            return when(word, {Form::real, UTOFU_REDUCE_OP_BFPSUM, vcq::GateData::reals, 0, s.count});
        return when(word, {Form::whole, UTOFU_REDUCE_OP_SUM, words, 0, s.count});
    case FI_MIN:
    case FI_MAX: return when(word, {Form::order, UTOFU_REDUCE_OP_MAX, words, 0, s.count});
    case FI_LAND: return when(word, {Form::truth, UTOFU_REDUCE_OP_BAND, words * 64, 0, s.count});
    case FI_LOR: return when(word, {Form::truth, UTOFU_REDUCE_OP_BOR, words * 64, 0, s.count});
    case FI_LXOR: return when(word, {Form::truth, UTOFU_REDUCE_OP_BXOR, words * 64, 0, s.count});
    case FI_BAND: return {Form::bits, UTOFU_REDUCE_OP_BAND, words * 8, 0, s.count * d.size};
    case FI_BOR: return {Form::bits, UTOFU_REDUCE_OP_BOR, words * 8, 0, s.count * d.size};
    case FI_BXOR: return {Form::bits, UTOFU_REDUCE_OP_BXOR, words * 8, 0, s.count * d.size};
    default: return {};
    }
}

/// The largest number of rounds for which gates are faster than software (bench/collective). An allreduce takes log2 n
/// trips of Puts. A reduction or a broadcast takes twice as many, since no member may end before all have called.
unsigned most_rounds(fi_collective_op coll, unsigned members) noexcept
{
    const auto half = static_cast<unsigned>(std::bit_width(members)) / 2;
    return std::clamp(half, 1u, coll == FI_ALLREDUCE ? 3u : 5u);
}

} // namespace

GateMapping gate_mapping_of(const Shape& shape, unsigned members) noexcept
{
    GateMapping native;
    if (shape.coll == FI_BARRIER || shape.count == 0)
        native = {Form::barrier, UTOFU_REDUCE_OP_BARRIER, 1, 0, 1};
    else if (shape.coll == FI_BROADCAST)
        native = {Form::bytes, UTOFU_REDUCE_OP_SUM, words * 8, 0, shape.count * datatypes[shape.type].size};
    else if (shape.coll == FI_ALLREDUCE || shape.coll == FI_REDUCE)
        native = reduction(shape);
    if (native.form == Form::none || native.total > std::size_t{most_rounds(shape.coll, members)} * native.each)
        return {};
    native.rounds = static_cast<std::uint16_t>((native.total + native.each - 1) / native.each);
    return native;
}

std::uint32_t seal_of(std::uint64_t group, std::uint32_t operation, unsigned round, std::uint32_t signature) noexcept
{
    const std::uint64_t call = std::uint64_t{operation} << 32 | signature;
    return static_cast<std::uint32_t>(directory::mix(directory::mix(directory::mix(group) + round) ^ call));
}

unsigned pack(const GateMapping& n, const Shape& shape, unsigned round, const std::byte* in, std::uint32_t seal,
              vcq::GateData& data) noexcept
{
    std::memset(&data, 0, sizeof(data));
    if (n.form == Form::none || n.form == Form::barrier)
        return 0;
    const std::size_t size = n.size(round);
    const std::size_t unit = unit_of(n, shape.type);
    const std::size_t at = n.at(round) * unit;
    if (in != nullptr && by_bytes(n))
        std::memcpy(data.word, in + at, size);
    else if (in != nullptr)
        for (std::size_t i = 0; i < size; i++)
            put(n, shape, i, in + at + i * unit, data);
    return append_seal(n, words_of(n, size), seal, 1, data);
}

bool unpack(const GateMapping& n, const Shape& shape, unsigned round, std::byte* out, std::uint32_t seal,
            unsigned members, const vcq::GateData& data) noexcept
{
    if (n.form == Form::none || n.form == Form::barrier)
        return true;
    const std::size_t size = n.size(round);
    const unsigned used = words_of(n, size);
    vcq::GateData agreed{};
    const unsigned end = append_seal(n, used, seal, members, agreed);
    if (!std::equal(data.word + used, data.word + end, agreed.word + used))
        return false;
    if (out == nullptr)
        return true;
    const std::size_t unit = unit_of(n, shape.type);
    out += n.at(round) * unit;
    if (by_bytes(n))
        std::memcpy(out, data.word, size);
    else
        for (std::size_t i = 0; i < size; i++)
            unpack_result(n, shape, i, out + i * unit, data);
    return true;
}

} // namespace tofu::coll
