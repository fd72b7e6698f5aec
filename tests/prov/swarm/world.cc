// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See world.h.
#include "world.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "av/peer_table.h"
#include "core/system.h"
#include "model.h"
#include "net.h"
#include "prov/lib/hints.h"
#include "prov/lib/linked.h"
#include "remote.h"
#include "utofu/library_of_test.h"

namespace swarm {
namespace {

constexpr unsigned most_retries = 4;   ///< of a call that finds no room
constexpr unsigned most_rounds = 5000; ///< until all has ended
constexpr std::uint64_t millisecond = 1000000;
constexpr const char* linger = "1"; ///< seconds that a domain waits for receivers

void must(int result, const char* what)
{
    if (result != 0)
        contradict("%s: %s", what, fi_strerror(-result));
}

/// What a process has opened, in one life of its domain.
struct Objects {
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    std::vector<Endpoint*> peers; ///< by fi_addr_t
};

struct Process {
    bool stopped = false;
    std::unique_ptr<Objects> objects; ///< null: dead, or not started
    fid_ep* ep[slots] = {};
    Endpoint* now[slots] = {};
    std::vector<Endpoint*> past[slots]; ///< all lives, the present one last
    bool busy = false;                  ///< in a call that others are let run in
};

class World {
  public:
    World(const Program& program, const Options& options)
        : program_(program), options_(options), remote_(*model_.remote, program.setup)
    {
        const Setup& s = program.setup;
        setenv("FI_TOFU_RINGS", std::to_string(std::clamp(s.rings, 1u, 256u)).c_str(), 1);
        setenv("FI_TOFU_RING_SLOTS", std::to_string(s.ringslots).c_str(), 1);
        setenv("FI_TOFU_MR_CACHE", "off", 1);
        setenv("FI_TOFU_LINGER", linger, 1);
        net_.freedoms = {s.chaos,       s.busy,         s.blind,      s.drop != 0,
                         s.silent != 0, s.sametag != 0, s.reuse != 0, std::max(s.toq, 4u), s.oldtags != 0};
        Net::now = &net_;
        backend_ = tofu::vcq::Backend(Net::functions(), Net::caps(), Net::tnis);
        tofu::vcq::backend_of_test = &backend_;
        tofu::Clock::of_test = []() noexcept { return Net::now->time(); };
        tofu::Clock::sleep_of_test = [](std::uint64_t time) noexcept { Net::now->pass(time); };
        tofu::Random::of_test = []() noexcept { return random_.next(); };
        random_ = Dice(42);
        model_.knows_closing = options.knows_closing;
        model_.remote->ordered = s.order != 0;
        model_.remote->times_out = s.silent != 0 && s.rma == 2;
        here_ = this;
    }

    Numbers run()
    {
        processes_.resize(std::clamp(program_.setup.processes, 1u, Net::most_processes));
        for (unsigned p = 0; p < processes_.size(); p++)
            start(p);
        for (const Command& command : program_.commands) {
            net_.seed(command.luck * 0x9e3779b97f4a7c15u + 1);
            say("%s", text_of(command).c_str());
            carry_out(command);
        }
        finish();
        return {net_.steps, net_.calls};
    }

  private:
    [[gnu::format(printf, 2, 3)]] void say(const char* format, ...)
    {
        if (!options_.verbose)
            return;
        std::va_list arguments;
        va_start(arguments, format);
        std::printf("%12.3f ms  ", static_cast<double>(net_.clock()) / 1e6);
        std::vprintf(format, arguments);
        std::printf("\n");
        std::fflush(stdout); // a crash may follow
        va_end(arguments);
    }

    // --- objects

    void start(unsigned p)
    {
        Process& process = processes_[p];
        net_.process = p;
        process.objects = std::make_unique<Objects>();
        Objects& o = *process.objects;
        o.info = tofu::test::must_find([&](fi_info& hints) {
            hints.caps = FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_FENCE;
            hints.tx_attr->msg_order = hints.rx_attr->msg_order = FI_ORDER_SAS;
            hints.domain_attr->threading = FI_THREAD_SAFE;
            ask_for_remote(hints, program_.setup, p);
        });
        must(fi_fabric(o.info->fabric_attr, &o.fabric, nullptr), "fi_fabric");
        must(fi_domain(o.fabric, o.info, &o.domain, nullptr), "fi_domain");
        fi_av_attr av{};
        av.type = FI_AV_TABLE;
        must(fi_av_open(o.domain, &av, &o.av, nullptr), "fi_av_open");
        fi_cq_attr cq{};
        cq.format = FI_CQ_FORMAT_TAGGED;
        cq.size = 4096;
        must(fi_cq_open(o.domain, &cq, &o.cq, nullptr), "fi_cq_open");
        open(p, 0);
    }

    void open(unsigned p, unsigned slot)
    {
        Process& process = processes_[p];
        net_.process = p;
        Objects& o = *process.objects;
        fid_ep*& ep = process.ep[slot];
        must(fi_endpoint(o.domain, o.info, &ep, nullptr), "fi_endpoint");
        must(fi_ep_bind(ep, &o.av->fid, 0), "fi_ep_bind");
        must(fi_ep_bind(ep, &o.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        must(fi_enable(ep), "fi_enable");
        auto life = std::make_unique<Endpoint>();
        life->number = static_cast<unsigned>(model_.endpoints.size());
        life->process = p;
        life->slot = slot;
        Address address{};
        std::size_t length = sizeof address.bytes;
        must(fi_getname(&ep->fid, address.bytes, &length), "fi_getname");
        addresses_.push_back(address);
        process.now[slot] = life.get();
        process.past[slot].push_back(life.get());
        model_.endpoints.push_back(std::move(life));
    }

    void end_life(Endpoint& life, Endpoint::State state)
    {
        life.state = state;
        life.ended = model_.time;
    }

    /// A call that may wait for the progress of others. A process that was killed waits for nobody.
    template <class Call>
    void while_others_run(Process& process, Call&& call)
    {
        process.busy = true;
        if (!tofu::EndpointNumbers::killed_of_test)
            net_.others = [] { here_->let_others_run(); };
        call();
        net_.others = nullptr;
        process.busy = false;
    }

    /// What an endpoint had posted is the application's again.
    void close(unsigned p, unsigned slot)
    {
        Process& process = processes_[p];
        Endpoint& life = *process.now[slot];
        net_.process = p;
        end_life(life, Endpoint::closed);
        while_others_run(process, [&] { must(fi_close(&process.ep[slot]->fid), "fi_close of an endpoint"); });
        process.now[slot] = nullptr;
        process.ep[slot] = nullptr;
        for (auto& r : model_.receives)
            if (r->at == &life && !r->sealed)
                r->seal();
    }

    void leave(unsigned p)
    {
        Process& process = processes_[p];
        for (unsigned s = 0; s < slots; s++)
            if (process.now[s] != nullptr)
                close(p, s);
        read(p, 64);
        remote_.close_all(p, false);
        close_objects(p);
    }

    void close_objects(unsigned p)
    {
        Process& process = processes_[p];
        Objects& o = *process.objects;
        net_.process = p;
        must(fi_close(&o.cq->fid), "fi_close of a completion queue");
        must(fi_close(&o.av->fid), "fi_close of an address vector");
        while_others_run(process, [&] { must(fi_close(&o.domain->fid), "fi_close of a domain"); });
        must(fi_close(&o.fabric->fid), "fi_close of a fabric");
        fi_freeinfo(o.info);
        process.objects.reset();
        if (net_.has_vcqs(p))
            contradict("process %u has closed all, and has VCQs", p);
    }

    /// The VCQs vanish; then what is left in our memory is cleared away, which nobody notices: the network and the node's
    /// files are as the process has left them, and no time goes by.
    void kill(unsigned p)
    {
        Process& process = processes_[p];
        net_.process = p;
        net_.kill(p);
        const std::uint64_t now = net_.clock();
        tofu::EndpointNumbers::killed_of_test = true;
        setenv("FI_TOFU_LINGER", "0", 1);
        process.stopped = true; // it reads nothing
        for (unsigned s = 0; s < slots; s++) {
            if (process.now[s] == nullptr)
                continue;
            end_life(*process.now[s], Endpoint::killed);
            must(fi_close(&process.ep[s]->fid), "fi_close of a killed endpoint");
            process.now[s] = nullptr;
            process.ep[s] = nullptr;
        }
        remote_.close_all(p, true);
        close_objects(p);
        setenv("FI_TOFU_LINGER", linger, 1);
        tofu::EndpointNumbers::killed_of_test = false;
        was_killed_ = true;
        process.stopped = false;
        net_.set_clock(now);
    }

    // --- progress

    void read(unsigned p, unsigned times)
    {
        Process& process = processes_[p];
        if (process.objects == nullptr || process.stopped)
            return;
        const unsigned caller = net_.process;
        net_.process = p;
        for (unsigned i = 0; i < times; i++)
            if (!read_once(p))
                break;
        net_.process = caller;
    }

    /// False: the process is gone.
    bool read_once(unsigned p)
    {
        Objects& o = *processes_[p].objects;
        fetch_claimed(p);
        fi_cq_tagged_entry entries[4];
        fi_addr_t sources[4];
        const ssize_t got = fi_cq_readfrom(o.cq, entries, 4, sources);
        if (got == -FI_EAGAIN)
            return true;
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            char data[64];
            error.err_data = data;
            error.err_data_size = sizeof data;
            if (fi_cq_readerr(o.cq, &error, 0) != 1)
                contradict("fi_cq_readerr has no entry after FI_EAVAIL");
            note(p, {.context = error.op_context,
                     .flags = error.flags,
                     .data = error.data,
                     .tag = error.tag,
                     .length = error.len,
                     .buffer = error.buf,
                     .error = error.err});
            return true;
        }
        if (got < 0)
            contradict("fi_cq_readfrom: %s", fi_strerror(static_cast<int>(-got)));
        for (ssize_t i = 0; i < got; i++) {
            const Endpoint* const source = sources[i] < o.peers.size() ? o.peers[sources[i]] : nullptr;
            note(p, {.context = entries[i].op_context,
                     .flags = entries[i].flags,
                     .data = entries[i].data,
                     .tag = entries[i].tag,
                     .length = entries[i].len,
                     .buffer = entries[i].buf,
                     .error = 0,
                     .has_source = source != nullptr,
                     .source = source});
        }
        return true;
    }

    void note(unsigned p, const Entry& entry)
    {
        const auto* const operation = static_cast<const Operation*>(entry.context);
        say("  process %u: entry of %s %u, flags %llx, %zu bytes%s%s", p,
            (entry.flags & FI_SEND) != 0 ? "message" : "receive", operation != nullptr ? operation->number : ~0u,
            static_cast<unsigned long long>(entry.flags), entry.length, entry.error != 0 ? ", " : "",
            entry.error != 0 ? fi_strerror(entry.error) : "");
        if (Receive* const claim = model_.on_entry(p, entry); claim != nullptr)
            claims_.push_back(claim);
        fetch_claimed(p);
    }

    /// Receives what was claimed. A claim that finds no room is tried again when its process reads its queue.
    void fetch_claimed(unsigned p)
    {
        std::erase_if(claims_, [&](Receive* r) { return r->at->process == p && fetch(*r); });
    }

    /// False: it found no room.
    bool fetch(Receive& r)
    {
        if (r.at->state != Endpoint::open)
            return true;
        iovec vector{r.buffer->at(), r.buffer->size()};
        fi_msg_tagged call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = FI_ADDR_UNSPEC;
        call.tag = r.tag;
        call.ignore = ~std::uint64_t{0};
        call.context = &r;
        const ssize_t result = fi_trecvmsg(processes_[r.at->process].ep[r.at->slot], &call, FI_CLAIM);
        if (result != 0 && result != -FI_EAGAIN)
            contradict("the claim of receive %u: %s", r.number, fi_strerror(static_cast<int>(-result)));
        return result == 0;
    }

    void let_others_run()
    {
        for (unsigned p = 0; p < processes_.size(); p++)
            if (!processes_[p].busy)
                read(p, 1);
    }

    // --- calls

    [[nodiscard]] bool is_usable(unsigned place) const
    {
        const unsigned p = place / slots;
        return p < processes_.size() && processes_[p].objects != nullptr && !processes_[p].stopped;
    }
    [[nodiscard]] bool is_open(unsigned place) const
    {
        return is_usable(place) && processes_[place / slots].now[place % slots] != nullptr;
    }
    [[nodiscard]] fid_ep* ep(unsigned place) { return processes_[place / slots].ep[place % slots]; }
    [[nodiscard]] Endpoint& life(unsigned place) { return *processes_[place / slots].now[place % slots]; }
    /// The endpoint that is or was there; null: there was none.
    [[nodiscard]] Endpoint* life(unsigned place, unsigned back)
    {
        if (place / slots >= processes_.size())
            return nullptr;
        const auto& past = processes_[place / slots].past[place % slots];
        return back < past.size() ? past[past.size() - 1 - back] : nullptr;
    }

    fi_addr_t address_of(unsigned p, Endpoint& peer)
    {
        Objects& o = *processes_[p].objects;
        const auto known = std::find(o.peers.begin(), o.peers.end(), &peer);
        if (known != o.peers.end())
            return static_cast<fi_addr_t>(known - o.peers.begin());
        fi_addr_t at = FI_ADDR_NOTAVAIL;
        if (fi_av_insert(o.av, addresses_[peer.number].bytes, 1, &at, 0, nullptr) != 1)
            contradict("fi_av_insert of %s failed", peer.name().c_str());
        o.peers.resize(std::max<std::size_t>(o.peers.size(), at + 1));
        o.peers[at] = &peer;
        return at;
    }

    /// Repeats a call that finds no room a few times. What it returned last.
    template <class Call>
    ssize_t try_to(unsigned p, Call&& call)
    {
        ssize_t result = -FI_EAGAIN;
        for (unsigned i = 0; i < most_retries && result == -FI_EAGAIN; i++) {
            net_.process = p;
            result = call();
            if (result == -FI_EAGAIN) {
                read(p, 2);
                net_.run(16);
            }
        }
        return result;
    }

    static constexpr std::uint64_t flags_of(const Command& c)
    {
        constexpr std::uint64_t levels[] = {0, FI_INJECT, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
                                            FI_MATCH_COMPLETE};
        return levels[c.level % level_count] | (c.fence != 0 ? FI_FENCE : 0);
    }

    ssize_t post_send(fid_ep* ep, Message& m, fi_addr_t to, const Command& c)
    {
        void* const bytes = m.buffer->at();
        const std::uint64_t tag = std::uint64_t{m.number} << tag_bits | m.tag, data = m.number;
        if (m.level == inject && c.fence == 0) {
            if (m.tagged)
                return m.data ? fi_tinjectdata(ep, bytes, m.size, data, to, tag)
                              : fi_tinject(ep, bytes, m.size, to, tag);
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
    bool send(const Command& asked)
    {
        Endpoint* const to = life(asked.to, asked.back);
        if (!is_open(asked.at) || to == nullptr)
            return true;
        Command c = asked;
        c.level %= level_count;
        const unsigned p = c.at / slots;
        net_.process = p;
        const fi_addr_t address = address_of(p, *to);
        if (c.level == inject)
            c.size = std::min<std::uint32_t>(
                c.size, static_cast<std::uint32_t>(processes_[p].objects->info->tx_attr->inject_size));
        Message& m = model_.new_message(life(c.at), *to, c);
        m.silent = c.level == inject && c.fence == 0;
        const ssize_t result = try_to(p, [&] { return post_send(ep(c.at), m, address, c); });
        if (result == 0) {
            say("  message %u to %s", m.number, to->name().c_str());
            if (m.level == inject)
                std::memset(m.buffer->at(), 0xdd, m.size);
            return true;
        }
        model_.withdraw(m);
        say("  no: %s", fi_strerror(static_cast<int>(-result)));
        if (result != -FI_EAGAIN && to->state == Endpoint::open)
            contradict("a send from %s to %s, both alive: %s", life(c.at).name().c_str(), to->name().c_str(),
                       fi_strerror(static_cast<int>(-result)));
        return result != -FI_EAGAIN;
    }

    /// False: it found no room.
    bool recv(const Command& c)
    {
        if (!is_open(c.at))
            return true;
        const unsigned p = c.at / slots;
        net_.process = p;
        Endpoint* const source = c.from != 0 ? life(c.from - 1, 0) : nullptr;
        const fi_addr_t from = source != nullptr ? address_of(p, *source) : FI_ADDR_UNSPEC;
        // An untagged message is known by its first 8 bytes.
        Receive& r = model_.new_receive(life(c.at), c.tagged != 0 ? c.size : std::max(c.size, 8u));
        r.tagged = c.tagged != 0;
        r.any = c.any != 0;
        r.tag = c.tag & 3;
        r.source = source;
        const std::uint64_t ignore = c.any != 0 ? ~std::uint64_t{0} : ~std::uint64_t{(1u << tag_bits) - 1};
        const ssize_t result = try_to(p, [&] {
            return r.tagged ? fi_trecv(ep(c.at), r.buffer->at(), r.buffer->size(), nullptr, from, r.tag, ignore, &r)
                            : fi_recv(ep(c.at), r.buffer->at(), r.buffer->size(), nullptr, from, &r);
        });
        if (result == 0)
            say("  receive %u", r.number);
        else
            not_posted(r, result);
        return result == 0;
    }

    /// A receive at the end of the program, whatever it takes to find room.
    void recv_surely(const Command& c)
    {
        for (unsigned round = 0; round < most_rounds; round++) {
            if (recv(c))
                return;
            for (unsigned p = 0; p < processes_.size(); p++)
                read(p, 2);
            net_.pass(millisecond);
        }
        contradict("%s can post no receive: FI_EAGAIN for ever", life(c.at).name().c_str());
    }

    void multi(const Command& c)
    {
        if (!is_open(c.at))
            return;
        Receive& r = model_.new_receive(life(c.at), std::max(c.size, 64u));
        r.multi = true;
        iovec vector{r.buffer->at(), r.buffer->size()};
        fi_msg call{};
        call.msg_iov = &vector;
        call.iov_count = 1;
        call.addr = FI_ADDR_UNSPEC;
        call.context = &r;
        const ssize_t result = try_to(c.at / slots, [&] { return fi_recvmsg(ep(c.at), &call, FI_MULTI_RECV); });
        if (result == 0)
            say("  receive %u", r.number);
        else
            not_posted(r, result);
    }

    void not_posted(Receive& r, ssize_t result)
    {
        if (result != -FI_EAGAIN)
            contradict("a receive at %s: %s", r.at->name().c_str(), fi_strerror(static_cast<int>(-result)));
        model_.withdraw(r);
    }

    void look(const Command& c)
    {
        if (!is_open(c.at))
            return;
        const unsigned p = c.at / slots;
        net_.process = p;
        Endpoint* const source = c.from != 0 ? life(c.from - 1, 0) : nullptr;
        Receive& r = model_.new_receive(life(c.at), 0);
        r.kind = Operation::look;
        r.tagged = true;
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
        const ssize_t result = try_to(p, [&] { return fi_trecvmsg(ep(c.at), &call, flags); });
        if (result == -FI_ENOMSG) { // permitted: the answer at once
            r.done = true;
            return;
        }
        if (result != 0)
            not_posted(r, result);
    }

    void cancel(const Command& c)
    {
        if (!is_open(c.at))
            return;
        net_.process = c.at / slots;
        Receive* found = nullptr;
        unsigned left = c.count;
        for (std::size_t i = model_.receives.size(); i-- > 0 && found == nullptr;) {
            Receive& r = *model_.receives[i];
            if (r.at == &life(c.at) && !r.done && !r.cancelled && r.kind == Operation::receive && !r.claims &&
                left-- == 0)
                found = &r;
        }
        if (found == nullptr)
            return;
        say("  receive %u", found->number);
        const ssize_t result = fi_cancel(&ep(c.at)->fid, found);
        if (result == 0)
            found->cancelled = true;
        else if (result != -FI_ENOENT)
            contradict("fi_cancel: %s", fi_strerror(static_cast<int>(-result)));
    }

    void access(const Command& c)
    {
        if (!is_open(c.at) || c.to / slots >= processes_.size() || processes_[c.to / slots].now[c.to % slots] == nullptr)
            return;
        const unsigned p = c.at / slots;
        net_.process = p;
        Endpoint& to = life(c.to);
        Command each = c;
        each.level %= level_count;
        const Remote::Caller caller{
            ep(c.at), &life(c.at), address_of(p, to), &to, processes_[p].objects->info->tx_attr->inject_size,
            [&](const std::function<ssize_t()>& call) { return try_to(p, call); }};
        if (const Access* const made = remote_.access(caller, each))
            say("  access %u", made->number);
    }

    void carry_out(const Command& c)
    {
        const unsigned p = c.at / slots, slot = c.at % slots;
        switch (c.what) {
        case Do::send:
            for (unsigned i = 0; i < std::max(c.count, 1u); i++)
                (void)send(c);
            return;
        case Do::recv:
            for (unsigned i = 0; i < std::max(c.count, 1u); i++)
                (void)recv(c);
            return;
        case Do::spin:
            for (unsigned i = 0; i < c.count; i++)
                for (unsigned n = 0; n < processes_.size(); n++)
                    read(n, 1);
            return;
        case Do::multi: multi(c); return;
        case Do::cancel: cancel(c); return;
        case Do::peek:
        case Do::claim:
        case Do::discard: look(c); return;
        case Do::read:
            if (is_usable(c.at))
                read(p, c.count);
            return;
        case Do::run: net_.run(c.count); return;
        case Do::pass: net_.pass(c.count * millisecond); return;
        case Do::open:
            if (is_usable(c.at) && !is_open(c.at))
                open(p, slot);
            return;
        case Do::close:
            if (is_open(c.at))
                close(p, slot);
            return;
        case Do::leave:
            if (is_usable(c.at))
                leave(p);
            return;
        case Do::start:
            if (p < processes_.size() && processes_[p].objects == nullptr)
                start(p);
            return;
        case Do::kill:
            if (p < processes_.size() && processes_[p].objects != nullptr)
                kill(p);
            return;
        case Do::map:
            if (is_usable(c.at)) {
                net_.process = p;
                remote_.open(p, processes_[p].objects->domain, c);
            }
            return;
        case Do::unmap:
            if (is_usable(c.at)) {
                net_.process = p;
                remote_.close(p, c.region, false);
            }
            return;
        case Do::write:
        case Do::get:
        case Do::atomic:
            for (unsigned i = 0; i < std::max(c.count, 1u); i++)
                access(c);
            return;
        case Do::stop:
            if (is_usable(c.at))
                processes_[p].stopped = true;
            return;
        case Do::go:
            if (p < processes_.size())
                processes_[p].stopped = false;
            return;
        case Do::count_: return;
        }
    }

    // --- the end

    /// Rounds of progress until nothing is missing, and some more for what comes too much. Entries may come one after the
    /// other, each after a time-out.
    void settle(bool to_the_end)
    {
        unsigned more = 40;
        std::uint64_t news = 0;
        for (unsigned round = 0, last = 0; round - last < most_rounds; round++) {
            if (std::exchange(news, model_.time) != model_.time)
                last = round;
            for (unsigned p = 0; p < processes_.size(); p++)
                read(p, 3);
            net_.run(64);
            if (round % 4 == 3) {
                net_.pass(millisecond * (1 + round / 16));
                if (model_.missing(to_the_end).empty() && more-- == 0)
                    return;
            }
        }
        contradict("%s, after %u rounds", model_.missing(to_the_end).c_str(), most_rounds);
    }

    void finish()
    {
        net_.seed(7);
        net_.freedoms.busy = std::min(net_.freedoms.busy, 20u);
        net_.freedoms.blind = std::min(net_.freedoms.blind, 20u);
        for (Process& process : processes_)
            process.stopped = false;
        say("--- all go on");
        settle(false);
        say("--- whatever was sent is received");
        receive_all();
        settle(true);
        model_.check_order();
        model_.remote->check();
        say("--- each sends to each");
        ping_all();
        model_.check_buffers();
        for (unsigned p = 0; p < processes_.size(); p++)
            if (processes_[p].objects != nullptr)
                remote_.check_counts(p);
        say("--- all leave");
        for (unsigned p = 0; p < processes_.size(); p++)
            if (processes_[p].objects != nullptr)
                leave(p);
        model_.check_buffers();
        if (was_killed_) { // who ends in an orderly way and last removes the node's files
            start(0);
            leave(0);
        }
    }

    void receive_all()
    {
        for (unsigned p = 0; p < processes_.size(); p++)
            for (unsigned s = 0; s < slots; s++)
                if (is_open(p * slots + s))
                    for (unsigned tagged = 0; tagged < 2; tagged++) {
                        std::uint32_t longest = 0;
                        unsigned count = 0;
                        for (const auto& m : model_.messages)
                            if (m->to == processes_[p].now[s] && m->taken == nullptr && m->tagged == (tagged != 0)) {
                                longest = std::max(longest, static_cast<std::uint32_t>(m->size));
                                count++;
                            }
                        for (unsigned i = 0; i < count; i++)
                            recv_surely(
                                {.what = Do::recv, .at = p * slots + s, .tagged = tagged, .any = 1, .size = longest});
                    }
    }

    /// Each pair of living endpoints works.
    void ping_all()
    {
        const auto most = static_cast<unsigned>(processes_.size()) * slots;
        for (unsigned from = 0; from < most; from++)
            for (unsigned to = 0; to < most; to++) {
                if (!is_open(from) || !is_open(to))
                    continue;
                // From this sender alone: a message of one that is gone may still come.
                recv_surely({.what = Do::recv, .at = to, .tagged = 1, .any = 1, .from = 1 + from, .size = 64});
                const Command c{.what = Do::send, .at = from, .to = to, .tagged = 1, .size = 16, .level = inject};
                bool sent = false;
                for (unsigned round = 0; round < most_rounds && !sent; round++) {
                    sent = send(c);
                    if (!sent) {
                        for (unsigned p = 0; p < processes_.size(); p++)
                            read(p, 2);
                        net_.pass(millisecond);
                    }
                }
                if (!sent)
                    contradict("%s can send nothing to %s, both alive: FI_EAGAIN for ever", life(from).name().c_str(),
                               life(to).name().c_str());
            }
        settle(true);
    }

    struct Address {
        unsigned char bytes[64];
    };

    const Program& program_;
    Options options_;
    Net net_;
    tofu::vcq::Backend backend_;
    Model model_;
    Remote remote_;
    std::vector<Process> processes_;
    std::vector<Address> addresses_; ///< by the endpoint's number
    std::vector<Receive*> claims_;   ///< whose receive is to be posted
    bool was_killed_ = false;        ///< some process
    static inline Dice random_{1};
    static inline World* here_ = nullptr;
};

} // namespace

Numbers run_program(const Program& program, const Options& options)
{
    static std::unique_ptr<World> world; // what is registered with the provider lives to the end of the process
    world = std::make_unique<World>(program, options);
    return world->run();
}

} // namespace swarm
