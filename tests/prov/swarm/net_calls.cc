// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The functions of uTofu over the network of net.h: they check their arguments as the guide says, and post, poll or
// register.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <unistd.h>

#include "net_impl.h"
#include "prov/lib/prepared.h"

namespace swarm {

struct Calls {
    using Place = Net::Place;
    using Region = Net::Region;

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
                    (net.relaxations.reuse || !net.was_used_[Place{place.node, tni, place.cq, c}.index()]))
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
        net.finish(*vcq, net.relaxations.drop);
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
            if (each.users == 0 && net.relaxations.old_tags)
                spare = std::min(spare, at);
            else if (each.users != 0 && net.relaxations.same_tag && each.read_only == read_only && each.base <= base &&
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
        if (vcq == nullptr || vcq->tcq.empty() || net.dice_.percent(net.relaxations.blind))
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
        if (vcq == nullptr || vcq->mrq.empty() || net.dice_.percent(net.relaxations.blind))
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
        Net::now->locate(Net::now->relaxations.layout == 1 ? node * 2 : node, coords);
        *tni = static_cast<utofu_tni_id_t>(of_tni);
        *bg = static_cast<utofu_bg_id_t>(number);
        *extra = 0;
        return UTOFU_SUCCESS;
    }
    static int start_round(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count)
    {
        Net& net = Calls::net();
        return net.dice_.percent(net.relaxations.busy) ? UTOFU_ERR_BUSY : net.start_round(id, op, data, count);
    }
    static int poll_round(utofu_vbg_id_t id, utofu_reduce_op op, void* data)
    {
        Net& net = Calls::net();
        return net.dice_.percent(net.relaxations.blind) ? UTOFU_ERR_NOT_COMPLETED : net.gates_.poll(id, op, data);
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
