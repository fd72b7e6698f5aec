// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See net.h. A post goes through three stages: its bytes are read, they are written (line by line), its end is
// reported. Each is a step of the network, and between two steps anything may happen.
#include "net.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "prov/lib/prepared.h"

namespace swarm {

Net* Net::now = nullptr;
unsigned long long Net::made = 0;

namespace {

constexpr unsigned line = 256;
constexpr std::uint64_t page = 65536;
constexpr unsigned first_tag = 0x1000;
constexpr unsigned window = 12; ///< posts of a VCQ that the network works at

struct Place {
    unsigned node, tni, cq, component;
    [[nodiscard]] std::size_t index() const noexcept
    {
        return ((std::size_t{node} * Net::tnis + tni) * Net::cqs + cq) * Net::components + component;
    }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept
    {
        return std::uint64_t{tni} << 61 | std::uint64_t{node} << 32 | 1u << 27 | component << 24 | cq;
    }
    /// False: no such place.
    static bool of(utofu_vcq_id_t id, Place& place) noexcept
    {
        place = {static_cast<unsigned>(id >> 32 & 0xff), static_cast<unsigned>(id >> 61),
                 static_cast<unsigned>(id & 0xffffff), static_cast<unsigned>(id >> 24 & 7)};
        return place.node < most_processes && place.tni < Net::tnis && place.cq < Net::cqs && (id >> 27 & 1) != 0;
    }
};

struct Region {
    unsigned char* base = nullptr;
    std::size_t size = 0;
    std::uint64_t first = 0; ///< offset of its first byte in its STADDs
    unsigned users = 0;
    bool read_only = false;
};

} // namespace

struct Net::Op {
    enum Kind : std::uint8_t { put, get, armw, cswap };
    enum Stage : std::uint8_t { posted, read, written, told };
    Kind kind = put;
    Stage stage = posted;
    std::uint8_t width = 0; ///< of an ARMW
    bool strong = false, sent_told = false, mute = false;
    bool here = false; ///< a put of what stands in the descriptor
    int armw_op = 0;
    int tcq_code = UTOFU_SUCCESS, code = UTOFU_SUCCESS;
    utofu_vcq_id_t peer = 0;
    utofu_stadd_t local = 0, remote = 0;
    std::size_t length = 0;
    std::uint64_t operand = 0, compare = 0, old = 0, edata = 0;
    unsigned long flags = 0;
    void* cbdata = nullptr;
    std::vector<unsigned char> bytes;
    std::vector<std::uint32_t> left; ///< pieces that are still to be written, by their number

    [[nodiscard]] bool is_armw() const noexcept { return kind == armw || kind == cswap; } ///< reads and writes at once
};

struct Net::Vcq {
    Place place{};
    utofu_vcq_id_t id = 0;
    unsigned process = 0;
    bool alive = false, exclusive = false, active = false;
    Region of_user[reserved];
    std::vector<Region> others;
    std::vector<std::unique_ptr<Op>> ops; ///< in the order of the posts
    std::deque<std::pair<int, void*>> tcq;
    std::deque<std::pair<int, utofu_mrq_notice>> mrq;

    Region* region(unsigned tag) noexcept
    {
        if (tag >= first_tag) {
            const std::size_t at = (tag - first_tag) / 2;
            return at < others.size() && others[at].users != 0 ? &others[at] : nullptr;
        }
        const unsigned base = (8 + place.component) << 8;
        return tag >= base && tag < base + reserved && of_user[tag - base].users != 0 ? &of_user[tag - base] : nullptr;
    }
    /// Null: the bytes are not all registered.
    unsigned char* at(utofu_stadd_t stadd, std::size_t length, bool writes, bool& stray_tag) noexcept
    {
        Region* const found = region(static_cast<unsigned>(stadd >> 40));
        stray_tag = found == nullptr || (writes && found->read_only);
        if (stray_tag)
            return nullptr;
        const std::uint64_t offset = (stadd & 0xffffffffff) - found->first; // below the start: huge
        return offset <= found->size && length <= found->size - offset ? found->base + offset : nullptr;
    }
};

Net::Net(const Freedoms& all)
    : freedoms(all), number_(++made), by_place_(Place{most_processes, 0, 0, 0}.index()), was_used_(by_place_.size())
{
    gates_.equip(freedoms.gates, {freedoms.reuse, freedoms.chaos != 0, freedoms.any_gate});
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
        if (freedoms.chaos != 0)
            run(waits_long ? steps_in_it : dice_.below(4 - std::min(freedoms.chaos, 3u) + 1));
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
    if (vcq.ops.size() + ops.size() > freedoms.toq || dice_.percent(freedoms.busy))
        return UTOFU_ERR_BUSY;
    for (auto& op : ops) {
        op->strong = (op->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) != 0;
        for (const std::uint64_t part : {time_, vcq.id, op->peer, op->length << 8 | op->kind, op->remote & (line - 1)})
            digest = (digest ^ part) * 0x9e3779b97f4a7c15u >> 1;
        vcq.ops.push_back(std::move(op));
    }
    activate(vcq);
    if (freedoms.chaos == 0)
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
    const unsigned at = freedoms.chaos == 0 ? 0 : dice_.below(most);
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
            op.mute = freedoms.silent;
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
        op.mute = freedoms.silent && op.kind == Op::put;
        op.stage = Op::written;
        return;
    }
    const std::size_t lead = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    const std::size_t lines = op.length <= lead ? 1 : (lead != 0) + (op.length - lead + line - 1) / line;
    const std::size_t at_once = freedoms.chaos == 0 ? lines : std::max<std::size_t>(1, (lines + 3) / 4);
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
        op.mute = freedoms.silent;
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
    switch (freedoms.layout) {
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

// --- the table

struct Calls {
    static Net& net()
    {
        Net::now->tick();
        return *Net::now;
    }
    static utofu_onesided_caps& caps()
    {
        static utofu_onesided_caps all = Net::caps();
        return all;
    }
    static int get_tnis(utofu_tni_id_t** ids, std::size_t* count)
    {
        *ids = static_cast<utofu_tni_id_t*>(std::malloc(Net::tnis * sizeof(utofu_tni_id_t)));
        for (unsigned i = 0; i < Net::tnis; i++)
            (*ids)[i] = static_cast<utofu_tni_id_t>(i);
        *count = Net::tnis;
        return UTOFU_SUCCESS;
    }
    static int query_caps(utofu_tni_id_t, utofu_onesided_caps** found)
    {
        *found = &caps();
        return UTOFU_SUCCESS;
    }
    /// The lowest place that is free: what was given back is used again at once.
    static int create(utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t* handle)
    {
        Net& net = Calls::net();
        const bool exclusive = (flags & UTOFU_VCQ_FLAG_EXCLUSIVE) != 0;
        Place place{net.process, tni, 0, 0};
        for (; place.cq < Net::cqs; place.cq++) {
            unsigned used = 0, free = Net::components;
            bool alone = false;
            for (unsigned c = Net::components; c-- > 0;) {
                const Net::Vcq* const there = net.by_place_[Place{place.node, tni, place.cq, c}.index()];
                used += there != nullptr;
                alone |= there != nullptr && there->exclusive;
                if (there == nullptr &&
                    (net.freedoms.reuse || !net.was_used_[Place{place.node, tni, place.cq, c}.index()]))
                    free = c;
            }
            if (alone || free == Net::components || (exclusive && (used != 0 || place.cq == Net::cqs - 1)))
                continue;
            place.component = free;
            auto made = std::make_unique<Net::Vcq>();
            made->place = place;
            made->id = place.id();
            made->process = net.process;
            made->alive = true;
            made->exclusive = exclusive;
            net.by_place_[place.index()] = made.get();
            net.was_used_[place.index()] = true;
            net.vcqs_.push_back(std::move(made));
            *handle = net.vcqs_.size();
            return UTOFU_SUCCESS;
        }
        return UTOFU_ERR_FULL;
    }
    static int free(utofu_vcq_hdl_t handle)
    {
        Net& net = Calls::net();
        Net::Vcq* const vcq = net.of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        net.finish(*vcq, net.freedoms.drop);
        if (std::none_of(net.vcqs_.begin(), net.vcqs_.end(),
                         [&](const auto& other) { return other->alive && other->process == vcq->process; }))
            net.gates_.close_off(); // gates that others may send to are freed with the domain
        return UTOFU_SUCCESS;
    }
    static int query_id(utofu_vcq_hdl_t handle, utofu_vcq_id_t* id)
    {
        const Net::Vcq* const vcq = Net::now->of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        *id = vcq->id;
        return UTOFU_SUCCESS;
    }
    static int query_info(utofu_vcq_id_t id, std::uint8_t coords[], utofu_tni_id_t* tni, utofu_cq_id_t* cq,
                          std::uint16_t* extra)
    {
        Place place{};
        if (!Place::of(id, place))
            return UTOFU_ERR_INVALID_VCQ_ID;
        Net::now->locate(place.node, coords);
        *tni = static_cast<utofu_tni_id_t>(place.tni);
        *cq = static_cast<utofu_cq_id_t>(place.cq);
        *extra = static_cast<std::uint16_t>(8 + place.component);
        return UTOFU_SUCCESS;
    }
    /// Programs do not meet, whether they run at the same time (utofu/tni_allocator) or one after another
    /// (av/peer_table).
    static const char* job()
    {
        static const auto start = std::chrono::steady_clock::now().time_since_epoch().count();
        static char name[64];
        std::snprintf(name, sizeof name, "swarm-%d-%lld-%llu", static_cast<int>(getpid()),
                      static_cast<long long>(start), Net::now->number_);
        return name;
    }
    static int coords(std::uint8_t coords[])
    {
        Net::now->locate(Net::now->process, coords);
        return UTOFU_SUCCESS;
    }
    static int reg(utofu_vcq_hdl_t handle, void* addr, std::size_t size, unsigned long flags, utofu_stadd_t* stadd)
    {
        Net& net = Calls::net();
        Net::Vcq* const vcq = net.of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        if (size == 0)
            return UTOFU_ERR_INVALID_SIZE;
        auto* const base = static_cast<unsigned char*>(addr);
        const bool read_only = (flags & UTOFU_REG_MEM_FLAG_READ_ONLY) != 0;
        std::vector<Region>& all = vcq->others;
        std::size_t at = 0, spare = all.size();
        for (; at < all.size(); at++) {
            const Region& each = all[at];
            if (each.users == 0 && net.freedoms.old_tags)
                spare = std::min(spare, at);
            else if (each.users != 0 && net.freedoms.same_tag && each.read_only == read_only && each.base <= base &&
                     base + size <= each.base + each.size)
                break;
        }
        if (at == all.size()) {
            at = spare;
            if (at == all.size())
                all.emplace_back();
            all[at] = {base, size, reinterpret_cast<std::uintptr_t>(base) & (page - 1), 0, read_only};
        }
        all[at].users++;
        const unsigned tag = first_tag + static_cast<unsigned>(at) * 2;
        *stadd = (std::uint64_t{tag} << 40) + all[at].first + static_cast<std::uint64_t>(base - all[at].base);
        return UTOFU_SUCCESS;
    }
    static int reg_with_tag(utofu_vcq_hdl_t handle, void* addr, std::size_t size, unsigned tag, unsigned long flags,
                            utofu_stadd_t* stadd)
    {
        Net::Vcq* const vcq = Calls::net().of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        if (tag >= Net::reserved)
            return UTOFU_ERR_INVALID_STAG;
        if (reinterpret_cast<std::uintptr_t>(addr) % line != 0)
            return UTOFU_ERR_INVALID_ADDRESS;
        if (size == 0 || size % line != 0)
            return UTOFU_ERR_INVALID_SIZE;
        if (vcq->of_user[tag].users != 0)
            return UTOFU_ERR_USED;
        vcq->of_user[tag] = {static_cast<unsigned char*>(addr), size, 0, 1,
                             (flags & UTOFU_REG_MEM_FLAG_READ_ONLY) != 0};
        *stadd = reserved_stadd(vcq->place, tag);
        return UTOFU_SUCCESS;
    }
    /// Peers compute these, so the offset is 0 wherever the memory lies.
    static utofu_stadd_t reserved_stadd(const Place& place, unsigned tag)
    {
        return std::uint64_t{((8 + place.component) << 8) + tag} << 40;
    }
    static int query_stadd(utofu_vcq_id_t id, unsigned tag, utofu_stadd_t* stadd)
    {
        Place place{};
        if (!Place::of(id, place))
            return UTOFU_ERR_INVALID_VCQ_ID;
        if (tag >= Net::reserved)
            return UTOFU_ERR_INVALID_STAG;
        *stadd = reserved_stadd(place, tag);
        return UTOFU_SUCCESS;
    }
    static int dereg(utofu_vcq_hdl_t handle, utofu_stadd_t stadd, unsigned long)
    {
        Net::Vcq* const vcq = Calls::net().of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        Region* const region = vcq->region(static_cast<unsigned>(stadd >> 40));
        if (region == nullptr)
            return UTOFU_ERR_INVALID_STADD;
        region->users--;
        return UTOFU_SUCCESS;
    }

    /// Fills in what all posts have. A code, as that of the call.
    static int fill(Net::Op& op, utofu_vcq_id_t peer, utofu_stadd_t remote, std::size_t length, std::uint64_t edata,
                    unsigned long flags, void* cbdata)
    {
        Place place{};
        if (!Place::of(peer, place))
            return UTOFU_ERR_INVALID_VCQ_ID;
        if (edata > 0xff)
            return UTOFU_ERR_INVALID_EDATA;
        if (length > caps().max_putget_size)
            return UTOFU_ERR_INVALID_SIZE;
        if (op.is_armw() && remote % op.width != 0)
            return UTOFU_ERR_INVALID_STADD;
        op.peer = peer;
        op.remote = remote;
        op.length = length;
        op.edata = edata;
        op.flags = flags;
        op.cbdata = cbdata;
        return UTOFU_SUCCESS;
    }
    static int start(utofu_vcq_hdl_t handle, Net::Op&& op, utofu_vcq_id_t peer, utofu_stadd_t remote,
                     std::size_t length, std::uint64_t edata, unsigned long flags, void* cbdata)
    {
        Net& net = Calls::net();
        Net::Vcq* const vcq = net.of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        if (const int code = fill(op, peer, remote, length, edata, flags, cbdata); code != UTOFU_SUCCESS)
            return code;
        std::vector<std::unique_ptr<Net::Op>> one;
        one.push_back(std::make_unique<Net::Op>(std::move(op)));
        return net.post(*vcq, std::move(one));
    }
    static int put(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                   std::size_t length, std::uint64_t edata, unsigned long flags, void* cbdata)
    {
        Net::Op op;
        op.kind = Net::Op::put;
        op.local = local;
        return start(h, std::move(op), peer, remote, length, edata, flags, cbdata);
    }
    static int put_piggyback(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, void* data, utofu_stadd_t remote,
                             std::size_t length, std::uint64_t edata, unsigned long flags, void* cbdata)
    {
        if (length > caps().max_piggyback_size)
            return UTOFU_ERR_INVALID_SIZE;
        Net::Op op;
        op.kind = Net::Op::put;
        op.here = true;
        op.bytes.assign(static_cast<unsigned char*>(data), static_cast<unsigned char*>(data) + length);
        return start(h, std::move(op), peer, remote, length, edata, flags, cbdata);
    }
    static int get(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote,
                   std::size_t length, std::uint64_t edata, unsigned long flags, void* cbdata)
    {
        Net::Op op;
        op.kind = Net::Op::get;
        op.local = local;
        return start(h, std::move(op), peer, remote, length, edata, flags, cbdata);
    }
    template <class Word>
    static int armw(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_armw_op which, Word operand, utofu_stadd_t remote,
                    std::uint64_t edata, unsigned long flags, void* cbdata)
    {
        Net::Op op;
        op.kind = Net::Op::armw;
        op.width = sizeof(Word);
        op.armw_op = which;
        op.operand = operand;
        return start(h, std::move(op), peer, remote, sizeof(Word), edata, flags, cbdata);
    }
    template <class Word>
    static int cswap(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, Word compare, Word swap, utofu_stadd_t remote,
                     std::uint64_t edata, unsigned long flags, void* cbdata)
    {
        Net::Op op;
        op.kind = Net::Op::cswap;
        op.width = sizeof(Word);
        op.operand = swap;
        op.compare = compare;
        return start(h, std::move(op), peer, remote, sizeof(Word), edata, flags, cbdata);
    }
    static int post_toq(utofu_vcq_hdl_t handle, void* descriptors, std::size_t size, void* cbdata)
    {
        Net& net = Calls::net();
        Net::Vcq* const vcq = net.of(handle);
        if (vcq == nullptr)
            return UTOFU_ERR_INVALID_VCQ_HDL;
        std::vector<std::unique_ptr<Net::Op>> all;
        for (const auto& d : tofu::test::PreparedArmw::read_all(descriptors, size)) {
            auto& op = *all.emplace_back(std::make_unique<Net::Op>());
            op.kind = d.swaps != 0 ? Net::Op::cswap : Net::Op::armw;
            op.width = d.width;
            op.armw_op = d.op;
            op.operand = d.operand;
            op.compare = d.compare;
            if (const int code = fill(op, d.peer, d.remote, d.width, d.edata, d.flags, cbdata); code != UTOFU_SUCCESS)
                return code;
        }
        return net.post(*vcq, std::move(all));
    }
    static int poll_tcq(utofu_vcq_hdl_t handle, unsigned long, void** cbdata)
    {
        Net& net = Calls::net();
        Net::Vcq* const vcq = net.of(handle);
        if (vcq == nullptr || vcq->tcq.empty() || net.dice_.percent(net.freedoms.blind))
            return UTOFU_ERR_NOT_FOUND;
        const auto [code, data] = vcq->tcq.front();
        vcq->tcq.pop_front();
        *cbdata = data;
        return code;
    }
    static int poll_mrq(utofu_vcq_hdl_t handle, unsigned long, utofu_mrq_notice* notice)
    {
        Net& net = Calls::net();
        Net::Vcq* const vcq = net.of(handle);
        if (vcq == nullptr || vcq->mrq.empty() || net.dice_.percent(net.freedoms.blind))
            return UTOFU_ERR_NOT_FOUND;
        const int code = vcq->mrq.front().first;
        *notice = vcq->mrq.front().second;
        vcq->mrq.pop_front();
        return code;
    }

    // --- barrier gates

    static int get_barrier_tnis(utofu_tni_id_t** ids, std::size_t* count)
    {
        *ids = static_cast<utofu_tni_id_t*>(std::malloc(BarrierGates::tnis * sizeof(utofu_tni_id_t)));
        for (unsigned i = 0; i < BarrierGates::tnis; i++)
            (*ids)[i] = static_cast<utofu_tni_id_t>(i);
        *count = BarrierGates::tnis;
        return UTOFU_SUCCESS;
    }
    static int query_barrier_caps(utofu_tni_id_t, utofu_barrier_caps** found)
    {
        static utofu_barrier_caps all{0,
                                      UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER | UTOFU_BARRIER_CAP_REDUCE_OP_BAND |
                                          UTOFU_BARRIER_CAP_REDUCE_OP_BOR | UTOFU_BARRIER_CAP_REDUCE_OP_BXOR |
                                          UTOFU_BARRIER_CAP_REDUCE_OP_MAX | UTOFU_BARRIER_CAP_REDUCE_OP_SUM |
                                          UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM,
                                      BarrierGates::words, BarrierGates::reals};
        *found = &all;
        return UTOFU_SUCCESS;
    }
    static int alloc_vbg(utofu_tni_id_t tni, std::size_t count, unsigned long, utofu_vbg_id_t* ids)
    {
        Net& net = Calls::net();
        return net.gates_.alloc(net.process, net.node_of(net.process), tni, count, ids);
    }
    static int free_vbg(utofu_vbg_id_t* ids, std::size_t count)
    {
        Net& net = Calls::net();
        return net.gates_.free(ids, count);
    }
    static int set_vbg(utofu_vbg_setting* settings, std::size_t count)
    {
        Net& net = Calls::net();
        return net.gates_.set(settings, count);
    }
    /// The coordinates are those of any process on the node.
    static int query_vbg_info(utofu_vbg_id_t id, std::uint8_t coords[], utofu_tni_id_t* tni, utofu_bg_id_t* bg,
                              std::uint16_t* extra)
    {
        unsigned node = 0, of_tni = 0, number = 0;
        if (!BarrierGates::place_of(id, node, of_tni, number))
            return UTOFU_ERR_INVALID_VBG_ID;
        Net::now->locate(Net::now->freedoms.layout == 1 ? node * 2 : node, coords);
        *tni = static_cast<utofu_tni_id_t>(of_tni);
        *bg = static_cast<utofu_bg_id_t>(number);
        *extra = 0;
        return UTOFU_SUCCESS;
    }
    static int start_round(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count)
    {
        Net& net = Calls::net();
        return net.dice_.percent(net.freedoms.busy) ? UTOFU_ERR_BUSY : net.start_round(id, op, data, count);
    }
    static int poll_round(utofu_vbg_id_t id, utofu_reduce_op op, void* data)
    {
        Net& net = Calls::net();
        return net.dice_.percent(net.freedoms.blind) ? UTOFU_ERR_NOT_COMPLETED : net.gates_.poll(id, op, data);
    }
    static int barrier(utofu_vbg_id_t id, unsigned long)
    {
        return start_round(id, UTOFU_REDUCE_OP_BARRIER, nullptr, 0);
    }
    static int poll_barrier(utofu_vbg_id_t id, unsigned long)
    {
        return poll_round(id, UTOFU_REDUCE_OP_BARRIER, nullptr);
    }
    static int reduce_words(utofu_vbg_id_t id, utofu_reduce_op op, std::uint64_t* data, std::size_t count,
                            unsigned long)
    {
        return op == UTOFU_REDUCE_OP_BARRIER || op == UTOFU_REDUCE_OP_BFPSUM ? UTOFU_ERR_INVALID_OP
                                                                             : start_round(id, op, data, count);
    }
    static int poll_words(utofu_vbg_id_t id, unsigned long, std::uint64_t* data)
    {
        return poll_round(id, UTOFU_REDUCE_OP_SUM, data);
    }
    static int reduce_reals(utofu_vbg_id_t id, utofu_reduce_op op, double* data, std::size_t count, unsigned long)
    {
        return op != UTOFU_REDUCE_OP_BFPSUM ? UTOFU_ERR_INVALID_OP : start_round(id, op, data, count);
    }
    static int poll_reals(utofu_vbg_id_t id, unsigned long, double* data)
    {
        return poll_round(id, UTOFU_REDUCE_OP_BFPSUM, data);
    }
};

int Net::start_round(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count)
{
    idle_ = 0;
    for (const std::uint64_t part : {time_, id, std::uint64_t{count} << 8 | static_cast<unsigned>(op)})
        digest = (digest ^ part) * 0x9e3779b97f4a7c15u >> 1;
    const int code = gates_.start(id, op, data, count);
    if (freedoms.chaos == 0)
        run_all();
    return code;
}

utofu_onesided_caps Net::caps()
{
    utofu_onesided_caps caps{};
    caps.flags = UTOFU_ONESIDED_CAP_FLAG_ARMW;
    caps.armw_ops = UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP | UTOFU_ONESIDED_CAP_ARMW_OP_SWAP |
                    UTOFU_ONESIDED_CAP_ARMW_OP_ADD | UTOFU_ONESIDED_CAP_ARMW_OP_XOR | UTOFU_ONESIDED_CAP_ARMW_OP_AND |
                    UTOFU_ONESIDED_CAP_ARMW_OP_OR;
    caps.num_cmp_ids = components;
    caps.num_reserved_stags = reserved;
    caps.cache_line_size = line;
    caps.stag_address_alignment = line;
    caps.max_toq_desc_size = 64;
    caps.max_putget_size = (std::size_t{1} << 24) - 1;
    caps.max_piggyback_size = 32;
    caps.max_edata_size = 1;
    caps.max_mtu = 1920;
    caps.max_gap = 255;
    return caps;
}

tofu::vcq::Functions Net::functions(bool gates)
{
    tofu::vcq::Functions f{};
    f.get_onesided_tnis = Calls::get_tnis;
    f.query_onesided_caps = Calls::query_caps;
    f.create_vcq = Calls::create;
    f.free_vcq = Calls::free;
    f.query_vcq_id = Calls::query_id;
    f.query_vcq_info = Calls::query_info;
    f.reg_mem = Calls::reg;
    f.reg_mem_with_stag = Calls::reg_with_tag;
    f.query_stadd = Calls::query_stadd;
    f.dereg_mem = Calls::dereg;
    f.put = Calls::put;
    f.put_piggyback = Calls::put_piggyback;
    f.get = Calls::get;
    f.armw4 = Calls::armw<std::uint32_t>;
    f.armw8 = Calls::armw<std::uint64_t>;
    f.cswap4 = Calls::cswap<std::uint32_t>;
    f.cswap8 = Calls::cswap<std::uint64_t>;
    f.post_toq = Calls::post_toq;
    tofu::test::add_prepare(f);
    f.poll_tcq = Calls::poll_tcq;
    f.poll_mrq = Calls::poll_mrq;
    f.query_my_coords = Calls::coords;
    f.job = Calls::job;
    if (!gates)
        return f;
    f.get_barrier_tnis = Calls::get_barrier_tnis;
    f.query_barrier_caps = Calls::query_barrier_caps;
    f.alloc_vbg = Calls::alloc_vbg;
    f.free_vbg = Calls::free_vbg;
    f.set_vbg = Calls::set_vbg;
    f.query_vbg_info = Calls::query_vbg_info;
    f.barrier = Calls::barrier;
    f.poll_barrier = Calls::poll_barrier;
    f.reduce_uint64 = Calls::reduce_words;
    f.poll_reduce_uint64 = Calls::poll_words;
    f.reduce_double = Calls::reduce_reals;
    f.poll_reduce_double = Calls::poll_reals;
    return f;
}

} // namespace swarm
