// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sends, receives of all kinds, cancels, looks at what has come. See world_impl.h.
#include <algorithm>
#include <cstring>

#include "world_impl.h"

namespace swarm {
ssize_t World::post_send(fid_ep* ep, Message& m, fi_addr_t to, const Command& c)
{
    void* const bytes = m.buffer->at();
    const std::uint64_t tag = std::uint64_t{m.number} << tag_bits | m.tag, data = m.number;
    if (c.later != 0)
        return defer(m, ep, to, c);
    if (m.level == inject && c.fence == 0) {
        if (m.tagged)
            return m.data ? fi_tinjectdata(ep, bytes, m.size, data, to, tag) : fi_tinject(ep, bytes, m.size, to, tag);
        return m.data ? fi_injectdata(ep, bytes, m.size, data, to) : fi_inject(ep, bytes, m.size, to);
    }
    if (m.level == plain && c.fence == 0) {
        if (m.tagged)
            return m.data ? fi_tsenddata(ep, bytes, m.size, nullptr, data, to, tag, &m)
                          : fi_tsend(ep, bytes, m.size, nullptr, to, tag, &m);
        return m.data ? fi_senddata(ep, bytes, m.size, nullptr, data, to, &m)
                      : fi_send(ep, bytes, m.size, nullptr, to, &m);
    }
    iovec vector{bytes, m.size};
    const std::uint64_t flags = flags_of(c) | (m.data ? FI_REMOTE_CQ_DATA : 0);
    if (m.tagged) {
        fi_msg_tagged call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = to;
        call.tag = tag;
        call.context = &m;
        call.data = data;
        return fi_tsendmsg(ep, &call, flags);
    }
    fi_msg call{};
    call.msg_iov = &vector;
    call.iov_count = 1;
    call.addr = to;
    call.context = &m;
    call.data = data;
    return fi_sendmsg(ep, &call, flags);
}

/// False: it found no room.
bool World::send(const Command& asked)
{
    Endpoint* const to = life(asked.to, asked.back);
    if (!is_open(asked.at) || to == nullptr || tx(asked.at, asked.tx % life(asked.at).contexts) == nullptr)
        return true;
    const unsigned p = asked.at / slots;
    Objects& o = *processes_[p].objects;
    Command c = asked;
    c.level %= level_count;
    c.later = o.trigger != nullptr ? c.later : 0;
    if (c.later != 0 && c.level == inject)
        c.level = plain;
    platform_->enter(p);
    fi_addr_t address = address_of(p, *to);
    if (c.level == inject)
        c.size = std::min<std::uint32_t>(c.size, static_cast<std::uint32_t>(o.info->tx_attr->inject_size));
    Message& m = model_.new_message(life(c.at), *to, c);
    m.silent = c.level == inject && c.fence == 0;
    m.tx = c.tx % life(c.at).contexts;
    m.rx = c.rx % to->contexts;
    m.tx_life = m.from->tx[m.tx].ends.size();
    if (to->contexts > 1)
        address = fi_rx_addr(address, static_cast<int>(m.rx), rx_bits);
    const bool lives = m.receiver() == Endpoint::open;
    const ssize_t result = try_to(p, [&] { return post_send(tx(c.at, m.tx), m, address, c); });
    if (result == 0) {
        say("  message %u to %s", m.number, to->name().c_str());
        if (m.level == inject)
            std::memset(m.buffer->at(), 0xdd, m.size);
        return true;
    }
    m.held = false;
    model_.withdraw(m);
    say("  no: %s", fi_strerror(static_cast<int>(-result)));
    if (result != -FI_EAGAIN && lives)
        contradict("a send from %s to %s, both alive: %s", life(c.at).name().c_str(), to->name().c_str(),
                   fi_strerror(static_cast<int>(-result)));
    return result != -FI_EAGAIN;
}

/// For the endpoint's own receives, or for those of all of its process.
Receive& World::new_receive(const Command& c, std::size_t size)
{
    Endpoint& at = life(c.at);
    Receive& r = model_.new_receive(at.receives_at(), size);
    r.rx = at.pool == nullptr ? c.rx % at.contexts : 0;
    return r;
}

/// Is there something to post a receive to?
bool World::receives(const Command& c)
{
    return is_open(c.at) && (life(c.at).pool != nullptr || handles(c.at).rx[c.rx % life(c.at).contexts] != nullptr);
}

/// False: it found no room.
bool World::recv(const Command& c)
{
    if (!receives(c))
        return true;
    const unsigned p = c.at / slots;
    platform_->enter(p);
    Endpoint* const source = c.from != 0 ? life(c.from - 1, 0) : nullptr;
    const fi_addr_t from = source != nullptr ? address_of(p, *source) : FI_ADDR_UNSPEC;
    // An untagged message is known by its first 8 bytes.
    Receive& r = new_receive(c, c.tagged != 0 ? c.size : std::max(c.size, 8u));
    r.tagged = c.tagged != 0;
    r.any = c.any != 0;
    r.tag = c.tag & 3;
    r.source = source;
    const std::uint64_t ignore = c.any != 0 ? ~std::uint64_t{0} : ~std::uint64_t{(1u << tag_bits) - 1};
    const ssize_t result = try_to(p, [&]() -> ssize_t {
        if (c.later != 0 && processes_[p].objects->trigger != nullptr && !shares_rx())
            return defer(r, from, ignore, c);
        return r.tagged ? fi_trecv(rx(r), r.buffer->at(), r.buffer->size(), nullptr, from, r.tag, ignore, &r)
                        : fi_recv(rx(r), r.buffer->at(), r.buffer->size(), nullptr, from, &r);
    });
    if (result == 0)
        say("  receive %u", r.number);
    else
        not_posted(r, result);
    return result == 0;
}

void World::multi(const Command& c)
{
    constexpr std::size_t usual_min_left = 64;
    if (!receives(c))
        return;
    Receive& r = new_receive(c, std::max(c.size, 64u));
    r.multi = true;
    r.min_left = c.count != 0 ? c.count - 1 : usual_min_left;
    must(fi_setopt(&rx(r)->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &r.min_left, sizeof r.min_left), "fi_setopt");
    iovec vector{r.buffer->at(), r.buffer->size()};
    fi_msg call{};
    call.msg_iov = &vector;
    call.iov_count = 1;
    call.addr = FI_ADDR_UNSPEC;
    call.context = &r;
    const ssize_t result = try_to(c.at / slots, [&] { return fi_recvmsg(rx(r), &call, FI_MULTI_RECV); });
    if (result == 0)
        say("  receive %u", r.number);
    else
        not_posted(r, result);
}

void World::not_posted(Receive& r, ssize_t result)
{
    if (result != -FI_EAGAIN)
        contradict("a receive at %s: %s", r.at->name().c_str(), fi_strerror(static_cast<int>(-result)));
    model_.withdraw(r);
}

void World::look(const Command& c)
{
    if (!receives(c))
        return;
    const unsigned p = c.at / slots;
    platform_->enter(p);
    Endpoint* const source = c.from != 0 ? life(c.from - 1, 0) : nullptr;
    Receive& r = new_receive(c, 0);
    r.kind = Operation::look;
    r.tagged = c.entry == 0;
    r.any = c.any != 0;
    r.tag = c.tag & 3;
    r.source = source;
    r.claims = c.what == Do::claim;
    r.drops = c.what == Do::discard;
    fi_msg_tagged call{};
    call.addr = source != nullptr ? address_of(p, *source) : FI_ADDR_UNSPEC;
    call.tag = r.tag;
    call.ignore = r.any ? ~std::uint64_t{0} : ~std::uint64_t{(1u << tag_bits) - 1};
    call.context = &r;
    const std::uint64_t flags = FI_PEEK | (r.claims ? FI_CLAIM : 0) | (r.drops ? FI_DISCARD : 0);
    fi_msg plain{};
    plain.addr = call.addr;
    plain.context = &r;
    const ssize_t result =
        try_to(p, [&] { return r.tagged ? fi_trecvmsg(rx(r), &call, flags) : fi_recvmsg(rx(r), &plain, flags); });
    if (result == -FI_ENOMSG) { // permitted: the answer at once
        r.done = true;
        return;
    }
    if (result != 0)
        not_posted(r, result);
}

void World::cancel(const Command& c)
{
    if (!is_open(c.at))
        return;
    platform_->enter(c.at / slots);
    Receive* found = nullptr;
    unsigned left = c.count;
    for (std::size_t i = model_.receives.size(); i-- > 0 && found == nullptr;) {
        Receive& r = *model_.receives[i];
        if (r.at == &life(c.at).receives_at() && r.state() == Endpoint::open && !r.done && !r.cancelled &&
            r.kind == Operation::receive && !r.claims && left-- == 0)
            found = &r;
    }
    if (found == nullptr)
        return;
    say("  receive %u", found->number);
    const ssize_t result = fi_cancel(&rx(*found)->fid, found);
    if (result == 0) {
        found->cancelled = true;
        found->recalled = found->held;
    } else if (result != -FI_ENOENT) {
        contradict("fi_cancel: %s", fi_strerror(static_cast<int>(-result)));
    }
}

/// Receives what was claimed. A claim that finds no room is tried again when its process reads its queue.
/// Not from inside another process's close: the round that it runs may hold the lock of this process's endpoint.
void World::fetch_claimed(unsigned p)
{
    if (platform_->is_in_wait())
        return;
    std::erase_if(claims_, [&](Receive* r) { return r->at->process == p && fetch(*r); });
}

/// False: it found no room.
bool World::fetch(Receive& r)
{
    if (r.state() != Endpoint::open)
        return true;
    iovec vector{r.buffer->at(), r.buffer->size()};
    fi_msg_tagged call{};
    call.msg_iov = &vector;
    call.iov_count = 1;
    call.addr = FI_ADDR_UNSPEC;
    call.tag = r.tag;
    call.ignore = ~std::uint64_t{0};
    call.context = &r;
    fi_msg plain{};
    plain.msg_iov = &vector;
    plain.iov_count = 1;
    plain.addr = FI_ADDR_UNSPEC;
    plain.context = &r;
    const ssize_t result = r.tagged ? fi_trecvmsg(rx(r), &call, FI_CLAIM) : fi_recvmsg(rx(r), &plain, FI_CLAIM);
    // What was claimed for all endpoints of a process goes with the one that it was sent to.
    const auto went = [](const Message* m) { return m->receiver() != Endpoint::open; };
    if (result == -FI_EINVAL && r.at->slot == slots &&
        (std::any_of(r.got.begin(), r.got.end(), went) ||
         std::any_of(r.candidates.begin(), r.candidates.end(), went))) {
        r.done = true;
        return true;
    }
    if (result != 0 && result != -FI_EAGAIN)
        contradict("the claim of receive %u: %s", r.number, fi_strerror(static_cast<int>(-result)));
    return result == 0;
}

/// The key is looked up: in the directory of the peer, or of what has its place. The answer is an error, of the call or
/// of the read, in a bounded time, even if the network has hardly any room.
void World::insist(const Command& c)
{
    Endpoint* const to = life(c.to, c.back);
    if (program_.setup.rma != 2 || program_.setup.silent != 0 || !is_open(c.at) || to == nullptr ||
        tx(c.at, 0) == nullptr || processes_[c.at / slots].busy)
        return;
    constexpr unsigned most_rounds = 3000;
    constexpr std::uint64_t no_key = 77;
    const unsigned p = c.at / slots;
    platform_->enter(p);
    const fi_addr_t address = address_of(p, *to);
    Access& access = model_.remote->new_access(Access::read, life(c.at), *to);
    access.beyond = true;
    access.tx_life = life(c.at).tx[0].ends.size();
    access.buffer = std::make_unique<Buffer>(8);
    ssize_t result = -FI_EAGAIN;
    for (unsigned i = 0; i < most_rounds && result == -FI_EAGAIN; i++) {
        result = fi_read(tx(c.at, 0), access.buffer->at(), 8, nullptr, address, 0, no_key, &access);
        if (result == -FI_EAGAIN) {
            read(p, 2);
            platform_->run(16);
            platform_->enter(p);
        }
    }
    say("  %s", fi_strerror(static_cast<int>(-result)));
    if (result == -FI_EAGAIN)
        contradict("a read from %s of %s by a key of no region is refused for ever, as if there were no room",
                   life(c.at).name().c_str(), to->name().c_str());
    if (result != 0)
        model_.remote->withdraw(access);
}

/// Flags that the manual pages give to other calls, or that do not fit the buffer. Nothing may come of such a call: the
/// model knows no operation with its context.
void World::refuse(const Command& c)
{
    Endpoint* const to = life(c.to, 0);
    if (!is_open(c.at) || to == nullptr || tx(c.at, 0) == nullptr)
        return;
    static Operation nothing;
    static unsigned char bytes[100000];
    const unsigned p = c.at / slots;
    platform_->enter(p);
    fid_ep* const ep = tx(c.at, 0);
    const bool sends_only = is_scalable(c.at % slots);
    fid_ep* const receives_at = shares_rx() ? processes_[p].objects->srx : handles(c.at).rx[0];
    const iovec small{bytes, 8}, large{bytes, sizeof bytes};
    const fi_addr_t address = address_of(p, *to);
    const auto message = [&](const iovec& from) { return fi_msg{&from, nullptr, 1, address, &nothing, 0}; };
    const auto tagged = [&](const iovec& from) { return fi_msg_tagged{&from, nullptr, 1, address, 1, 0, &nothing, 0}; };
    const fi_rma_iov none{0, 8, 1};
    const fi_msg_rma remote{&small, nullptr, 1, address, &none, 1, &nothing, 0};
    const fi_ioc operand{bytes, 1};
    const fi_rma_ioc word{0, 1, 1};
    const fi_msg_atomic atomic{&operand, nullptr, 1, address, &word, 1, FI_UINT64, FI_SUM, &nothing, 0};
    ssize_t result = -FI_EINVAL;
    const fi_msg m = message(small), long_m = message(large);
    const fi_msg_tagged t = tagged(small), long_t = tagged(large);
    const unsigned which = c.count % 14;
    const bool has_rma = program_.setup.rma != 0;
    switch (which) {
    case 0: result = fi_sendmsg(ep, &m, FI_PEEK); break;
    case 1: result = fi_tsendmsg(ep, &t, FI_CLAIM); break;
    case 2: result = fi_tsendmsg(ep, &t, FI_DISCARD | FI_COMPLETION); break;
    case 3: result = fi_sendmsg(ep, &m, FI_MULTICAST); break;
    case 4: result = fi_sendmsg(ep, &long_m, FI_INJECT); break;
    case 5: result = fi_tsendmsg(ep, &long_t, FI_INJECT | FI_COMPLETION); break;
    case 6: result = receives_at != nullptr ? fi_recvmsg(receives_at, &m, FI_DISCARD) : result; break;
    case 7: result = receives_at != nullptr ? fi_trecvmsg(receives_at, &t, FI_DISCARD) : result; break;
    case 8: result = receives_at != nullptr ? fi_trecvmsg(receives_at, &t, FI_CLAIM) : result; break; // of nothing
    case 9: result = receives_at != nullptr ? fi_recvmsg(receives_at, &m, FI_RMA_EVENT) : result; break;
    case 10: result = has_rma ? fi_readmsg(ep, &remote, FI_INJECT) : result; break;
    case 11: result = has_rma ? fi_writemsg(ep, &remote, FI_PEEK) : result; break;
    case 12: result = has_rma ? fi_atomicmsg(ep, &atomic, FI_CLAIM) : result; break;
    default: result = sends_only ? fi_recv(ep, bytes, 8, nullptr, FI_ADDR_UNSPEC, &nothing) : result; break;
    }
    say("  %s", fi_strerror(static_cast<int>(-result)));
    if (result >= 0 || result == -FI_EAGAIN)
        contradict("call %u of those that must be refused at %s: %s", which, life(c.at).name().c_str(),
                   fi_strerror(static_cast<int>(-result)));
}

void World::access(const Command& c)
{
    if (!is_open(c.at) || c.to / slots >= processes_.size() || processes_[c.to / slots].now[c.to % slots] == nullptr)
        return;
    const unsigned p = c.at / slots;
    platform_->enter(p);
    Endpoint& to = life(c.to);
    Command each = c;
    each.level %= level_count;
    each.tx = c.tx % life(c.at).contexts;
    if (tx(c.at, each.tx) == nullptr)
        return;
    each.later = processes_[p].objects->trigger != nullptr ? c.later : 0;
    const Remote::Caller caller{tx(c.at, each.tx),
                                &life(c.at),
                                address_of(p, to),
                                &to,
                                processes_[p].objects->info->tx_attr->inject_size,
                                [&](const std::function<ssize_t()>& call) { return try_to(p, call); },
                                [&](Access& access, const fi_msg_rma& call, std::uint64_t flags) {
                                    return defer(access, tx(each.at, each.tx), call, flags, each);
                                },
                                [&](Access& access, const Remote::AtomicCall& call) {
                                    return defer(access, tx(each.at, each.tx), call, each);
                                }};
    if (const Access* const made = remote_.access(caller, each))
        say("  access %u", made->number);
}

} // namespace swarm
