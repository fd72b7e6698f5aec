// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The network of net.h. A post goes through three stages: its bytes are read, they are written (line by line), its end
// is reported. Each is a step of the network, and between two steps anything may happen.
#include "net_impl.h"

#include <algorithm>
#include <cstring>

namespace swarm {

Net* Net::now = nullptr;
unsigned long long Net::made = 0;

Net::Net(const Relaxations& all)
    : relaxations(all), number_(++made), by_place_(Place{most_processes, 0, 0, 0}.index()), was_used_(by_place_.size())
{
    gates_.equip(relaxations.gates, {relaxations.reuse, relaxations.chaos != 0, relaxations.any_gate});
}
Net::~Net() = default;

Net::Vcq* Net::find(utofu_vcq_id_t id) const noexcept
{
    Place place{};
    return Place::of(id, place) ? by_place_[place.index()] : nullptr;
}

Net::Vcq* Net::of(utofu_vcq_hdl_t handle) const noexcept
{
    return handle != 0 && handle <= vcqs_.size() && vcqs_[handle - 1]->alive ? vcqs_[handle - 1].get() : nullptr;
}

// --- time

/// If nothing is under way and no process posts, a caller waits for the clock, which then goes faster and faster. So it
/// does in a long wait for others, which ask now and then whether their peers live.
void Net::tick()
{
    constexpr unsigned long_wait = 2000, steps_in_it = 8;
    calls++;
    time_ += 100;
    waited_ = others != nullptr ? waited_ + 1 : 0;
    const bool waits_long = waited_ > long_wait;
    if (!quiet()) {
        idle_ = 0;
        if (relaxations.chaos != 0)
            run(waits_long ? steps_in_it : dice_.below(4 - std::min(relaxations.chaos, 3u) + 1));
        else
            run_all();
        return;
    }
    if (++idle_ > 64)
        time_ += idle_ > 3000 ? 20000000 : idle_ > 1000 || waits_long ? 1000000 : 20000;
    else if (waits_long)
        time_ += 500000;
}

std::uint64_t Net::time() noexcept
{
    tick();
    if (others != nullptr && !nested_ && dice_.percent(30)) {
        nested_ = true;
        const unsigned caller = process;
        others();
        process = caller;
        nested_ = false;
    }
    return time_;
}

// --- posts

/// Posts all of them, or none.
int Net::post(Vcq& vcq, std::vector<std::unique_ptr<Op>> ops)
{
    idle_ = 0;
    if (vcq.ops.size() + ops.size() > relaxations.toq || dice_.percent(relaxations.busy))
        return UTOFU_ERR_BUSY;
    for (auto& op : ops) {
        op->strong = (op->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0;
        for (const std::uint64_t part : {time_, vcq.id, op->peer, op->length << 8 | op->kind, op->remote & (line - 1)})
            digest = (digest ^ part) * 0x9e3779b97f4a7c15u >> 1;
        vcq.ops.push_back(std::move(op));
    }
    activate(vcq);
    if (relaxations.chaos == 0)
        run_all();
    return UTOFU_SUCCESS;
}

void Net::activate(Vcq& vcq)
{
    if (vcq.active || vcq.ops.empty())
        return;
    vcq.active = true;
    active_.push_back(&vcq);
}

void Net::step()
{
    constexpr std::size_t packets_at_once = 2; // beside one post of each VCQ
    const std::size_t packets = std::min(gates_.under_way(), packets_at_once);
    if (active_.empty() && packets == 0)
        return;
    steps++;
    const std::size_t which = dice_.below(static_cast<unsigned>(active_.size() + packets));
    if (which >= active_.size()) {
        gates_.step();
        return;
    }
    Vcq& vcq = *active_[which];
    const auto most = static_cast<unsigned>(std::min<std::size_t>(window, vcq.ops.size()));
    const unsigned at = relaxations.chaos == 0 ? 0 : dice_.below(most);
    if (!advance(vcq, at)) {
        bool some = false;
        for (std::size_t i = 0; i < vcq.ops.size() && !some; i++)
            some = advance(vcq, i);
        if (!some) {
            vcq.active = false;
            std::erase(active_, &vcq);
        }
    }
    forget(vcq);
}

/// Brings a post into its next stage. False: what was posted before holds it back (guide 2.2.10).
bool Net::advance(Vcq& vcq, std::size_t at)
{
    Op& op = *vcq.ops[at];
    if (op.stage == Op::told)
        return false;
    if (op.strong || op.stage == Op::written)
        for (std::size_t i = 0; i < at; i++)
            if (const Op& before = *vcq.ops[i];
                before.peer == op.peer &&
                (before.stage <= op.stage || (before.is_armw() && before.stage < Op::written)))
                return false;
    carry_out(vcq, op);
    return true;
}

void Net::carry_out(Vcq& vcq, Op& op)
{
    switch (op.stage) {
    case Op::posted:
        read(vcq, op);
        report_sent(vcq);
        return;
    case Op::read: write(vcq, op); return;
    case Op::written: tell(vcq, op); return;
    case Op::told: return;
    }
}

void Net::report_sent(Vcq& vcq)
{
    for (auto& op : vcq.ops) {
        if (op->sent_told)
            continue;
        if (op->stage == Op::posted)
            return;
        op->sent_told = true;
        if (op->tcq_code != UTOFU_SUCCESS || (op->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) != 0)
            vcq.tcq.emplace_back(op->tcq_code, op->cbdata);
    }
}

void Net::read(Vcq& vcq, Op& op)
{
    bool stray = false;
    op.stage = Op::read;
    if (op.kind == Op::put && !op.here) {
        const unsigned char* const from = vcq.at(op.local, op.length, false, stray);
        if (from == nullptr) {
            op.tcq_code = stray ? UTOFU_ERR_TCQ_STADD : UTOFU_ERR_TCQ_LENGTH;
            op.stage = Op::told;
            return;
        }
        op.bytes.assign(from, from + op.length);
    } else if (op.kind == Op::get) {
        Vcq* const target = find(op.peer);
        const unsigned char* const from = target != nullptr ? target->at(op.remote, op.length, false, stray) : nullptr;
        if (from == nullptr) {
            strays++;
            op.code = target == nullptr ? UTOFU_ERR_MRQ_PEER
                      : stray           ? UTOFU_ERR_MRQ_RMT_STADD
                                        : UTOFU_ERR_MRQ_RMT_LENGTH;
            op.mute = relaxations.silent;
            op.stage = Op::written;
            return;
        }
        op.bytes.assign(from, from + op.length);
    }
}

/// Writes one piece. The order of cache lines is free, but for the last one in strong order (guide 6.1.3.1).
void Net::write(Vcq& vcq, Op& op)
{
    if (op.is_armw()) {
        armw(op);
        return;
    }
    Vcq* const target = op.kind == Op::put ? find(op.peer) : &vcq;
    const utofu_stadd_t first = op.kind == Op::put ? op.remote : op.local;
    bool stray = false;
    unsigned char* const to = target != nullptr ? target->at(first, op.length, true, stray) : nullptr;
    if (to == nullptr) {
        strays++;
        op.code = op.kind == Op::get  ? (stray ? UTOFU_ERR_MRQ_LCL_STADD : UTOFU_ERR_MRQ_LCL_LENGTH)
                  : target == nullptr ? UTOFU_ERR_MRQ_PEER
                  : stray             ? UTOFU_ERR_MRQ_RMT_STADD
                                      : UTOFU_ERR_MRQ_RMT_LENGTH;
        op.mute = relaxations.silent && op.kind == Op::put;
        op.stage = Op::written;
        return;
    }
    const std::size_t lead = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    const std::size_t lines = op.length <= lead ? 1 : (lead != 0) + (op.length - lead + line - 1) / line;
    const std::size_t at_once = relaxations.chaos == 0 ? lines : std::max<std::size_t>(1, (lines + 3) / 4);
    const auto pieces = static_cast<std::uint32_t>((lines + at_once - 1) / at_once);
    if (op.left.empty())
        for (std::uint32_t i = 0; i < pieces; i++)
            op.left.push_back(i);
    // The last piece of a strong one goes last.
    const auto choices = static_cast<unsigned>(op.left.size() - (op.strong && op.left.size() > 1 ? 1 : 0));
    const unsigned choice = choices > 1 ? dice_.below(choices) : 0;
    const std::uint32_t piece = op.left[choice];
    op.left.erase(op.left.begin() + choice);
    const auto start_of = [&](std::size_t n) {
        return n == 0 ? 0 : std::min(op.length, lead != 0 ? lead + (n - 1) * line : n * line);
    };
    const std::size_t from = start_of(piece * at_once),
                      end = start_of(std::min<std::size_t>(lines, (piece + 1) * at_once));
    const std::size_t stop = piece + 1 == pieces ? op.length : end;
    if (op.here && (op.flags & UTOFU_ONESIDED_FLAG_PADDING) != 0) { // anything into the rest of its line (guide 2.2.11)
        bool outside = false;
        const std::size_t before = reinterpret_cast<std::uintptr_t>(to) % line;
        for (std::size_t i = 0; i < line; i++)
            if (unsigned char* const byte = target->at(first - before + i, 1, true, outside); byte != nullptr)
                *byte = 0xee;
    }
    if (stop > from)
        std::memcpy(to + from, op.bytes.data() + from, stop - from);
    if (op.left.empty())
        op.stage = Op::written;
}

void Net::armw(Op& op)
{
    Vcq* const target = find(op.peer);
    bool stray = false;
    unsigned char* const at = target != nullptr ? target->at(op.remote, op.width, true, stray) : nullptr;
    op.stage = Op::written;
    if (at == nullptr || reinterpret_cast<std::uintptr_t>(at) % op.width != 0) {
        strays++;
        op.code = target == nullptr ? UTOFU_ERR_MRQ_PEER : stray ? UTOFU_ERR_MRQ_RMT_STADD : UTOFU_ERR_MRQ_RMT_LENGTH;
        op.mute = relaxations.silent;
        return;
    }
    std::uint64_t old = 0;
    std::memcpy(&old, at, op.width);
    std::uint64_t made = old;
    if (op.kind == Op::cswap) {
        made = old == op.compare ? op.operand : old;
    } else {
        switch (op.armw_op) {
        case UTOFU_ARMW_OP_SWAP: made = op.operand; break;
        case UTOFU_ARMW_OP_ADD: made += op.operand; break;
        case UTOFU_ARMW_OP_XOR: made ^= op.operand; break;
        case UTOFU_ARMW_OP_AND: made &= op.operand; break;
        default: made |= op.operand; break;
        }
    }
    std::memcpy(at, &made, op.width);
    op.old = old;
}

void Net::tell(Vcq& vcq, Op& op)
{
    op.stage = Op::told;
    if (op.mute)
        return;
    static constexpr std::uint8_t local_types[] = {UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_MRQ_TYPE_LCL_GET,
                                                   UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_MRQ_TYPE_LCL_ARMW};
    static constexpr std::uint8_t remote_types[] = {UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_MRQ_TYPE_RMT_GET,
                                                    UTOFU_MRQ_TYPE_RMT_ARMW, UTOFU_MRQ_TYPE_RMT_ARMW};
    const bool is_armw = op.is_armw();
    utofu_mrq_notice notice{};
    notice.notice_type = local_types[op.kind];
    notice.vcq_id = op.peer;
    notice.edata = op.edata;
    notice.rmt_value = is_armw ? op.old : op.kind == Op::get ? op.local + op.length : 0;
    notice.lcl_stadd = op.kind == Op::get ? op.local + op.length : 0;
    notice.rmt_stadd = is_armw ? op.remote : op.kind == Op::put ? op.remote + op.length : 0;
    if (op.code != UTOFU_SUCCESS || (op.flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) != 0)
        vcq.mrq.emplace_back(op.code, notice);
    Vcq* const target = find(op.peer);
    if (op.code != UTOFU_SUCCESS || (op.flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) == 0 || target == nullptr)
        return;
    notice.notice_type = remote_types[op.kind];
    notice.vcq_id = vcq.id;
    notice.lcl_stadd = op.kind == Op::get ? op.local + op.length : 0;
    notice.rmt_stadd = is_armw ? op.remote : op.remote + op.length;
    notice.rmt_value = notice.rmt_stadd;
    target->mrq.emplace_back(UTOFU_SUCCESS, notice);
}

/// What has ended makes room.
void Net::forget(Vcq& vcq)
{
    std::erase_if(vcq.ops, [](const auto& op) { return op->stage == Op::told && op->sent_told; });
    if (vcq.ops.empty() && vcq.active) {
        vcq.active = false;
        std::erase(active_, &vcq);
    }
}

// --- the end of VCQs

void Net::finish(Vcq& vcq, bool may_drop)
{
    std::vector<utofu_vcq_id_t> lost_to; // what is ordered behind a lost one is lost, too
    for (auto& op : vcq.ops) {
        bool lost = op->strong && std::find(lost_to.begin(), lost_to.end(), op->peer) != lost_to.end();
        while (!lost && op->stage != Op::told) {
            lost = may_drop && dice_.below(4) == 0;
            if (!lost)
                carry_out(vcq, *op);
        }
        if (lost)
            lost_to.push_back(op->peer);
    }
    vcq.ops.clear();
    forget(vcq);
    vcq.alive = false;
    by_place_[vcq.place.index()] = nullptr;
}

void Net::kill(unsigned victim)
{
    for (auto& vcq : vcqs_)
        if (vcq->alive && vcq->process == victim)
            finish(*vcq, true);
    gates_.kill(victim);
}

void Net::locate(unsigned of, std::uint8_t coords[]) const noexcept
{
    std::memset(coords, 0, 6);
    const auto at = static_cast<std::uint8_t>(of);
    switch (relaxations.layout) {
    case 1: coords[0] = at / 2; return;
    case 2: { // partners of a circuit of all are no neighbours by number
        static constexpr std::uint8_t shuffled[most_processes] = {0, 5, 3, 4, 2, 7, 1, 6};
        coords[0] = shuffled[at % most_processes];
        return;
    }
    case 3:
        coords[0] = at % 2;
        coords[1] = at / 2 % 2;
        coords[4] = at / 4;
        return;
    default: coords[0] = at; return;
    }
}

bool Net::has_vcqs() const
{
    return std::any_of(vcqs_.begin(), vcqs_.end(), [](const auto& vcq) { return vcq->alive; });
}

// --- barrier gates

int Net::start_round(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count)
{
    idle_ = 0;
    for (const std::uint64_t part : {time_, id, std::uint64_t{count} << 8 | static_cast<unsigned>(op)})
        digest = (digest ^ part) * 0x9e3779b97f4a7c15u >> 1;
    const int code = gates_.start(id, op, data, count);
    if (relaxations.chaos == 0)
        run_all();
    return code;
}

} // namespace swarm
