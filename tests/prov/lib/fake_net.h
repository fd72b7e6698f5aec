// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A network inside one process for unit tests of the provider: a table of uTofu functions over one block of
// memory, with a seeded adversary that decides when a post takes effect and when its notice comes. A VCQ
// handle is 1 + its number; a STADD is an offset into the memory plus `base`. Used by tests only.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "prov/lib/prepared.h"
#include "utofu/library.h"
#include "utofu/vcq.h"

namespace fake {

struct Net {
    struct Post {
        unsigned vcq;
        int kind; ///< 0 armw, 1 cswap, 2 get, 3 put of `data`, 4 put of what `local` says
        int op;
        unsigned width;
        std::uint64_t operand;
        std::uint64_t compare;
        std::uint64_t stadd;
        std::uint64_t local;
        std::uint64_t peer;
        std::uint64_t edata;
        unsigned long flags;
        unsigned char data[32];
        std::uint64_t number = 0; ///< in the order of its VCQ's posts
        void* cbdata = nullptr;   ///< of kind 4
    };
    /// A notice that waits for those of earlier posts (guide 2.2.10).
    struct Held {
        std::uint64_t number;
        std::uint64_t peer;
        bool done;
        bool told; ///< there is a notice at all
        int code;
        utofu_mrq_notice notice;
    };
    struct Queue {
        std::uint64_t count = 0;
        std::deque<Held> held;
        std::deque<Post> posted; ///< not carried out yet
        std::deque<std::pair<int, utofu_mrq_notice>> mrq;
        std::deque<void*> tcq;
    };

    static constexpr std::uint64_t base = 0x10000;
    std::vector<unsigned char> memory = std::vector<unsigned char>(1 << 16);
    std::vector<Queue> vcqs;
    std::mt19937 random{1};
    unsigned busy_percent = 0;    ///< posts refused
    unsigned window = 1;          ///< how far down its queue the adversary reaches
    bool prompt = false;          ///< carried out within the post
    std::uint64_t broken = 0;     ///< a STADD whose every access fails
    bool silent = false;          ///< no notice comes of what fails
    std::uint64_t refused = 0;    ///< a STADD whose every post is refused for good
    std::size_t refused_from = 0; ///< so are all posts from this one on
    bool read_only_all = false;   ///< ARMW may touch nothing
    std::uint64_t area = 0;       ///< what lies under reserved STags
    std::size_t posts = 0;
    std::size_t rows = 0; ///< of prepared descriptors
    std::size_t swaps = 0;
    std::size_t strays = 0; ///< accesses beyond the memory, which fail
    std::vector<std::tuple<std::uint8_t, std::uint64_t, bool>> remote_notices; ///< type, STADD, EDATA is 0
    std::vector<std::pair<void*, std::size_t>> registered;
    unsigned refused_stag = ~0u; ///< that none is registered under
    unsigned free_stags = ~0u;   ///< that reg_mem has left

    static Net& now()
    {
        static Net net;
        return net;
    }
    static Net& reset(unsigned seed, unsigned window = 1, unsigned busy_percent = 0)
    {
        now() = Net{};
        tofu::vcq::Vcq::patience = std::chrono::milliseconds(50);
        now().random.seed(seed);
        now().vcqs.reserve(64);
        now().window = window;
        now().busy_percent = busy_percent;
        return now();
    }

    unsigned char* at(std::uint64_t stadd) { return memory.data() + (stadd - base); }

    int post(const Post& p) { return post(&p, 1); }
    /// Posts all, or none.
    int post(const Post* all, std::size_t n)
    {
        posts += n == 1 ? 1 : 0;
        for (std::size_t i = 0; i < n; i++)
            if ((refused_from && posts + (n == 1 ? 0 : n) >= refused_from) || (refused && all[i].stadd == refused) ||
                (all[i].kind < 2 && all[i].stadd % all[i].width != 0))
                return UTOFU_ERR_INVALID_ARG;
        if (random() % 100 < busy_percent)
            return UTOFU_ERR_BUSY;
        posts += n == 1 ? 0 : n;
        rows += n == 1 ? 0 : 1;
        for (std::size_t i = 0; i < n; i++) {
            Post p = all[i];
            p.number = vcqs[p.vcq].count++;
            vcqs[p.vcq].held.push_back({p.number, p.peer, false, false, 0, {}});
            vcqs[p.vcq].posted.push_back(p);
            if (prompt)
                step(p.vcq);
        }
        return UTOFU_SUCCESS;
    }

    /// Carries out one post of a VCQ: any of the first `window` that strong order does not hold back.
    void step(unsigned vcq)
    {
        auto& queue = vcqs[vcq].posted;
        if (queue.empty())
            return;
        std::size_t pick = random() % (queue.size() < window ? queue.size() : window);
        for (std::size_t i = 1; i <= pick; ++i)
            if (queue[i].flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER) {
                pick = i - 1;
                break;
            }
        const Post p = queue[pick];
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(pick));
        execute(p);
    }

    /// Carries out all there is.
    static void step_all(unsigned vcq)
    {
        while (!now().vcqs[vcq].posted.empty())
            now().step(vcq);
    }

    void execute(const Post& p)
    {
        utofu_mrq_notice notice{};
        int code = UTOFU_SUCCESS;
        notice.notice_type = p.kind == 2   ? UTOFU_MRQ_TYPE_LCL_GET
                             : p.kind >= 3 ? UTOFU_MRQ_TYPE_LCL_PUT
                                           : UTOFU_MRQ_TYPE_LCL_ARMW;
        notice.edata = p.edata;
        if (p.flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE)
            vcqs[p.vcq].tcq.push_back(p.cbdata);
        const bool stray = p.stadd < base || p.stadd + p.width > base + memory.size();
        strays += stray;
        if (stray || (broken && p.stadd == broken)) {
            code = UTOFU_ERR_MRQ_RMT_STADD;
        } else if (p.kind == 2) {
            std::memcpy(reinterpret_cast<void*>(p.local), at(p.stadd), p.width);
        } else if (read_only_all) {
            code = UTOFU_ERR_MRQ_RMT_STADD;
        } else if (p.kind >= 3) {
            if (p.flags & UTOFU_ONESIDED_FLAG_PADDING) { // anything into the rest of its line (guide 2.2.11)
                const std::uint64_t line = (p.stadd - base) / 256 * 256;
                std::memset(memory.data() + line, 0xee, std::min<std::size_t>(256, memory.size() - line));
            }
            std::memcpy(at(p.stadd), p.kind == 3 ? p.data : reinterpret_cast<const void*>(p.local), p.width);
        } else {
            std::uint64_t old = 0, made = 0;
            std::memcpy(&old, at(p.stadd), p.width);
            made = old;
            if (p.kind == 1) {
                ++swaps;
                if (old == p.compare)
                    made = p.operand;
            } else {
                switch (p.op) {
                case UTOFU_ARMW_OP_SWAP: made = p.operand; break;
                case UTOFU_ARMW_OP_ADD: made += p.operand; break;
                case UTOFU_ARMW_OP_XOR: made ^= p.operand; break;
                case UTOFU_ARMW_OP_AND: made &= p.operand; break;
                case UTOFU_ARMW_OP_OR: made |= p.operand; break;
                }
            }
            std::memcpy(at(p.stadd), &made, p.width);
            notice.rmt_value = old;
        }
        if (p.flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)
            remote_notices.emplace_back(p.kind == 2 ? UTOFU_MRQ_TYPE_RMT_GET : UTOFU_MRQ_TYPE_RMT_ARMW, p.stadd,
                                        p.edata == 0);
        const bool told = code != UTOFU_SUCCESS ? !silent : (p.flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) != 0;
        tell(vcqs[p.vcq], p, told, code, notice);
    }

    /// Notices of posts to one peer come in the order of the posts, whatever the order of their effects.
    static void tell(Queue& queue, const Post& p, bool told, int code, const utofu_mrq_notice& notice)
    {
        for (Held& held : queue.held)
            if (held.number == p.number)
                held = {p.number, p.peer, true, told, code, notice};
        for (std::size_t i = 0; i < queue.held.size();) {
            const Held held = queue.held[i];
            bool first = held.done;
            for (std::size_t before = 0; before < i; ++before)
                first = first && queue.held[before].peer != held.peer;
            if (!first) {
                ++i;
                continue;
            }
            if (held.told)
                queue.mrq.emplace_back(held.code, held.notice);
            queue.held.erase(queue.held.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
};

inline int create_vcq(utofu_tni_id_t, unsigned long, utofu_vcq_hdl_t* handle)
{
    Net::now().vcqs.emplace_back();
    *handle = Net::now().vcqs.size();
    return UTOFU_SUCCESS;
}
inline int free_vcq(utofu_vcq_hdl_t)
{
    return UTOFU_SUCCESS;
}
inline int query_vcq_id(utofu_vcq_hdl_t handle, utofu_vcq_id_t* id)
{
    *id = handle;
    return UTOFU_SUCCESS;
}
inline int armw4(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_armw_op op, std::uint32_t value, utofu_stadd_t stadd,
                 std::uint64_t edata, unsigned long flags, void*)
{
    return Net::now().post({unsigned(h - 1), 0, op, 4, value, 0, stadd, 0, peer, edata, flags, {}, 0});
}
inline int armw8(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_armw_op op, std::uint64_t value, utofu_stadd_t stadd,
                 std::uint64_t edata, unsigned long flags, void*)
{
    return Net::now().post({unsigned(h - 1), 0, op, 8, value, 0, stadd, 0, peer, edata, flags, {}, 0});
}
inline int cswap4(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, std::uint32_t compare, std::uint32_t swap,
                  utofu_stadd_t stadd, std::uint64_t edata, unsigned long flags, void*)
{
    return Net::now().post({unsigned(h - 1), 1, 0, 4, swap, compare, stadd, 0, peer, edata, flags, {}, 0});
}
inline int cswap8(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, std::uint64_t compare, std::uint64_t swap,
                  utofu_stadd_t stadd, std::uint64_t edata, unsigned long flags, void*)
{
    return Net::now().post({unsigned(h - 1), 1, 0, 8, swap, compare, stadd, 0, peer, edata, flags, {}, 0});
}
/// Local STADDs are addresses of this process.
inline int get(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote, std::size_t length,
               std::uint64_t edata, unsigned long flags, void*)
{
    return Net::now().post({unsigned(h - 1), 2, 0, unsigned(length), 0, 0, remote, local, peer, edata, flags, {}, 0});
}
inline int put(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, utofu_stadd_t local, utofu_stadd_t remote, std::size_t length,
               std::uint64_t edata, unsigned long flags, void* cbdata)
{
    return Net::now().post(
        {unsigned(h - 1), 4, 0, unsigned(length), 0, 0, remote, local, peer, edata, flags, {}, 0, cbdata});
}
inline int put_piggyback(utofu_vcq_hdl_t h, utofu_vcq_id_t peer, void* data, utofu_stadd_t remote, std::size_t length,
                         std::uint64_t edata, unsigned long flags, void*)
{
    Net::Post p{unsigned(h - 1), 3, 0, unsigned(length), 0, 0, remote, 0, peer, edata, flags, {}, 0};
    std::memcpy(p.data, data, length);
    return Net::now().post(p);
}
/// What a fixture over the net has at hand: the net, and values in its memory.
struct OverNet {
    static Net& net() { return Net::now(); }
    template <class T>
    static void put(std::uint64_t offset, const T& value)
    {
        std::memcpy(net().memory.data() + offset, &value, sizeof value);
    }
    template <class T>
    static T get(std::uint64_t offset)
    {
        T value;
        std::memcpy(&value, net().memory.data() + offset, sizeof value);
        return value;
    }
};

/// Any reserved STag: `area` in the memory.
inline int query_stadd(utofu_vcq_id_t, unsigned, utofu_stadd_t* stadd)
{
    *stadd = Net::base + Net::now().area;
    return UTOFU_SUCCESS;
}
inline int reg_mem(utofu_vcq_hdl_t, void* addr, std::size_t size, unsigned long, utofu_stadd_t* stadd)
{
    if (Net::now().free_stags == 0)
        return UTOFU_ERR_FULL;
    Net::now().free_stags--;
    Net::now().registered.emplace_back(addr, size);
    *stadd = reinterpret_cast<std::uintptr_t>(addr);
    return UTOFU_SUCCESS;
}
inline int reg_mem_with_stag(utofu_vcq_hdl_t h, void* addr, std::size_t size, unsigned stag, unsigned long flags,
                             utofu_stadd_t* stadd)
{
    return stag == Net::now().refused_stag ? UTOFU_ERR_FULL : reg_mem(h, addr, size, flags, stadd);
}
inline int dereg_mem(utofu_vcq_hdl_t, utofu_stadd_t, unsigned long)
{
    Net::now().free_stags++;
    return UTOFU_SUCCESS;
}
inline int post_toq(utofu_vcq_hdl_t h, void* descriptors, std::size_t size, void*)
{
    std::vector<Net::Post> all;
    for (const auto& d : tofu::test::PreparedArmw::read_all(descriptors, size))
        all.push_back({unsigned(h - 1),
                       d.swaps,
                       d.op,
                       d.width,
                       d.operand,
                       d.compare,
                       d.remote,
                       0,
                       d.peer,
                       d.edata,
                       d.flags,
                       {},
                       0});
    return Net::now().post(all.data(), all.size());
}
inline int poll_tcq(utofu_vcq_hdl_t h, unsigned long, void** cbdata)
{
    auto& tcq = Net::now().vcqs[h - 1].tcq;
    if (tcq.empty())
        return UTOFU_ERR_NOT_FOUND;
    *cbdata = tcq.front();
    tcq.pop_front();
    return UTOFU_SUCCESS;
}
inline int poll_mrq(utofu_vcq_hdl_t h, unsigned long, utofu_mrq_notice* notice)
{
    auto& mrq = Net::now().vcqs[h - 1].mrq;
    if (mrq.empty())
        return UTOFU_ERR_NOT_FOUND;
    const int code = mrq.front().first;
    *notice = mrq.front().second;
    mrq.pop_front();
    return code;
}

inline tofu::vcq::Functions functions()
{
    tofu::vcq::Functions f{};
    f.create_vcq = create_vcq;
    f.free_vcq = free_vcq;
    f.query_vcq_id = query_vcq_id;
    f.armw4 = armw4;
    f.armw8 = armw8;
    f.cswap4 = cswap4;
    f.cswap8 = cswap8;
    f.post_toq = post_toq;
    tofu::test::add_prepare(f);
    f.get = get;
    f.put = put;
    f.put_piggyback = put_piggyback;
    f.query_stadd = query_stadd;
    f.reg_mem = reg_mem;
    f.reg_mem_with_stag = reg_mem_with_stag;
    f.dereg_mem = dereg_mem;
    f.poll_tcq = poll_tcq;
    f.poll_mrq = poll_mrq;
    return f;
}

/// And two VCQs, of a domain and of an endpoint, whose posts are carried out at once.
struct OverVcqs : OverNet {
    explicit OverVcqs(std::size_t memory)
    {
        Net::reset(1);
        net().prompt = true;
        net().memory.resize(memory);
        caps.max_piggyback_size = 32;
        caps.max_putget_size = 1 << 24;
        caps.num_reserved_stags = 256;
        backend.emplace(functions(), caps, 1);
        EXPECT_EQ(target_vcq.open(*backend, 0, false, {}), 0);
        EXPECT_EQ(vcq.open(*backend, 0, false, {}), 0);
        lock.set_enabled(false);
    }

    utofu_onesided_caps caps{};
    std::optional<tofu::vcq::Backend> backend;
    tofu::vcq::Vcq target_vcq, vcq;
    tofu::Lock lock;
};

} // namespace fake
