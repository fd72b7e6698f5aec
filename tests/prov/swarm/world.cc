// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See world.h. The course of a program: its network, its calls, and what must have come in the end.
#include "world.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "world_impl.h"

namespace swarm {

World::World(const Program& program, const Options& options, Platform& platform)
    : program_(program), options_(options), platform_(&platform), remote_(*model_.remote, program_.setup)
{
    const Setup& s = program_.setup;
    setenv("FI_TOFU_RINGS", std::to_string(std::clamp(s.rings, 1u, 256u)).c_str(), 1);
    setenv("FI_TOFU_RING_SLOTS", std::to_string(s.ringslots).c_str(), 1);
    setenv("FI_TOFU_MR_CACHE", "off", 1);
    setenv("FI_TOFU_LINGER", linger, 1);
    model_.knows_closing = options.knows_closing || !platform.delivers_after_close();
    model_.remote->ordered = s.order != 0;
    model_.remote->times_out = s.silent != 0 && s.rma == 2;
    here_ = this;
}

Numbers World::run()
{
    processes_.resize(std::clamp(program_.setup.processes, 1u, most_processes));
    for (unsigned p = 0; p < processes_.size(); p++)
        start(p);
    for (const Command& command : program_.commands) {
        platform_->seed(command.luck * 0x9e3779b97f4a7c15u + 1);
        say("%s", text_of(command).c_str());
        carry_out(command);
    }
    finish();
    platform_->end();
    return {platform_->steps(), platform_->calls(), platform_->digest()};
}

void World::say(const char* format, ...)
{
    if (!options_.verbose)
        return;
    std::va_list arguments;
    va_start(arguments, format);
    std::printf("%12.3f ms  ", static_cast<double>(platform_->clock()) / 1e6);
    std::vprintf(format, arguments);
    std::printf("\n");
    std::fflush(stdout); // a crash may follow
    va_end(arguments);
}

void World::carry_out(const Command& c)
{
    const unsigned p = c.at / slots;
    switch (c.what) {
    case Do::spin: spin(c.count); return;
    case Do::run: platform_->run(c.count); return;
    case Do::pass: platform_->pass(c.count * millisecond); return;
    case Do::start:
        if (p < processes_.size() && processes_[p].objects == nullptr)
            start(p);
        return;
    case Do::kill:
        if (p < processes_.size() && processes_[p].objects != nullptr)
            kill(p);
        return;
    case Do::stop:
        if (is_usable(c.at))
            processes_[p].stopped = true;
        return;
    case Do::go:
        if (p < processes_.size())
            processes_[p].stopped = false;
        return;
    default:
        if (is_usable(c.at))
            platform_->on(p, [this, c] { carry_out_here(c); });
        return;
    }
}

/// Rounds of all processes, fewer where nothing comes and nothing is posted any more.
void World::spin(unsigned rounds)
{
    constexpr unsigned most_idle = 20; // the provider does some things in a few rounds only
    std::uint64_t news = 0;
    for (unsigned idle = 0; rounds-- != 0 && idle < most_idle;) {
        for (unsigned n = 0; n < processes_.size(); n++)
            read_on(n, 1);
        const std::uint64_t now = model_.time + platform_->steps();
        idle = platform_->is_in_real_time() || std::exchange(news, now) != now ? 0 : idle + 1;
    }
}

/// A call that a process makes for itself.
void World::carry_out_here(const Command& c)
{
    const unsigned p = c.at / slots, slot = c.at % slots;
    platform_->enter(p);
    switch (c.what) {
    case Do::send:
        for (unsigned i = 0; i < std::max(c.count, 1u); i++)
            (void)send(c);
        return;
    case Do::recv:
        for (unsigned i = 0; i < std::max(c.count, 1u); i++)
            (void)recv(c);
        return;
    case Do::multi: multi(c); return;
    case Do::cancel: cancel(c); return;
    case Do::peek:
    case Do::claim:
    case Do::discard: look(c); return;
    case Do::read: read(p, c.count); return;
    case Do::open:
        if (!is_open(c.at))
            open(p, slot);
        return;
    case Do::close:
        if (is_open(c.at))
            close(p, slot);
        return;
    case Do::renew:
        if (is_open(c.at) && program_.setup.reuse != 0) // else there are not VCQ IDs enough
            renew(p, slot);
        return;
    case Do::leave: leave(p); return;
    case Do::map:
        remote_.open(p, processes_[p].objects->domain, processes_[p].objects->info->domain_attr->mr_mode, c);
        return;
    case Do::unmap: remote_.close(p, c.region, false); return;
    case Do::write:
    case Do::get:
    case Do::atomic:
        for (unsigned i = 0; i < std::max(c.count, 1u); i++)
            access(c);
        return;
    case Do::join: join(c); return;
    case Do::part: part(c); return;
    case Do::collect: collect(c); return;
    case Do::forget: forget(c); return;
    case Do::raise: raise(c); return;
    case Do::recall: recall(c); return;
    case Do::insist: insist(c); return;
    case Do::refuse: refuse(c); return;
    case Do::context: turn_context(c); return;
    case Do::turn: turn(p); return;
    case Do::await: await(c); return;
    case Do::spin:
    case Do::run:
    case Do::pass:
    case Do::start:
    case Do::kill:
    case Do::stop:
    case Do::go:
    case Do::count_: return;
    }
}

// --- the end

/// Rounds of progress until nothing is missing, and some more for what comes too much. Entries may come one after the
/// other, each after a time-out.
void World::settle(bool to_the_end, unsigned more)
{
    std::uint64_t news = 0, looked_at = 0;
    bool lacks = true;
    for (unsigned round = 0, idle = 0; platform_->is_patient(idle); round++) {
        idle = std::exchange(news, model_.time) != model_.time ? 0 : idle + 1;
        for (unsigned p = 0; p < processes_.size(); p++)
            read_on(p, 3);
        platform_->run(64);
        if (round % 4 == 3) {
            platform_->pass(millisecond * (1 + round / 16));
            if (std::exchange(looked_at, model_.time) != model_.time || round % 64 == 63)
                lacks = !model_.missing(to_the_end).empty();
            if (!lacks && more-- == 0)
                return;
        }
    }
    contradict("%s, for a long time", model_.missing(to_the_end).c_str());
}

void World::finish()
{
    platform_->seed(7);
    platform_->calm();
    for (Process& process : processes_)
        process.stopped = false;
    raise_all();
    say("--- all go on");
    settle(false, 2);
    say("--- whatever was sent is received");
    receive_all();
    settle(true, 3);
    model_.check_order();
    model_.remote->check();
    say("--- each sends to each");
    ping_all();
    model_.check_buffers();
    if (program_.setup.events != 0)
        settle(true, 60); // the provider looks for events of peers in a few rounds only, and finds a few in each
    // A look makes progress. What ends in it counts before its entry has been read: then the next look holds.
    bool hold = counts_hold(false);
    for (unsigned i = 0; i < 20 && !hold; i++) {
        settle(true, 60); // fewer where polls find nothing
        hold = counts_hold(false);
    }
    if (!hold)
        (void)counts_hold(true);
    say("--- all leave");
    for (unsigned p = 0; p < processes_.size(); p++)
        carry_out({.what = Do::leave, .at = p * slots});
    model_.check_buffers();
    if (was_killed_) { // the last process that ends normally removes the node's files
        start(0);
        carry_out({.what = Do::leave, .at = 0});
    }
}

void World::raise_all()
{
    for (unsigned p = 0; p < processes_.size(); p++)
        if (std::ranges::any_of(later_, [p](const auto& l) { return l->process == p && l->operation->held; }))
            carry_out({.what = Do::raise, .at = p * slots, .count = 1000});
}

void World::receive_all()
{
    std::vector<const Endpoint*> seen; // several endpoints may share their receives
    for (unsigned at = 0; at < processes_.size() * slots; at++) {
        if (!is_open(at) || std::count(seen.begin(), seen.end(), &life(at).receives_at()) != 0)
            continue;
        seen.push_back(&life(at).receives_at());
        for (unsigned kind = 0; kind < 2 * life(at).contexts; kind++) {
            const unsigned tagged = kind % 2, context = kind / 2;
            std::uint32_t longest = 0;
            unsigned count = 0;
            for (const auto& m : model_.messages)
                if (m->to != nullptr && &m->to->receives_at() == seen.back() && m->rx == context &&
                    m->taken == nullptr && m->tagged == (tagged != 0)) {
                    longest = std::max(longest, static_cast<std::uint32_t>(m->size));
                    count++;
                }
            for (unsigned i = 0; i < count; i++)
                recv_surely({.what = Do::recv, .at = at, .tagged = tagged, .any = 1, .size = longest, .rx = context});
        }
    }
}

/// A receive at the end of the program, whatever it takes to find room.
void World::recv_surely(const Command& c)
{
    for (unsigned round = 0; platform_->is_patient(round); round++) {
        platform_->on(c.at / slots, [this, c] { had_room_ = recv(c); });
        if (had_room_)
            return;
        for (unsigned p = 0; p < processes_.size(); p++)
            read_on(p, 2);
        platform_->pass(millisecond);
    }
    contradict("%s can post no receive: FI_EAGAIN for ever", life(c.at).name().c_str());
}

/// Each pair of living endpoints works, with each of their contexts.
void World::ping_all()
{
    const auto most = static_cast<unsigned>(processes_.size()) * slots;
    // A fence whose answer does not come refuses all that follow.
    const bool fences = std::any_of(program_.commands.begin(), program_.commands.end(),
                                    [](const Command& c) { return c.what == Do::send && c.fence != 0; });
    for (unsigned from = 0; from < most; from++)
        for (unsigned to = 0; to < most; to++)
            for (unsigned t = 0; is_open(from) && is_open(to) && t < life(from).contexts; t++)
                for (unsigned r = 0; r < life(to).contexts; r++) {
                    if (!has_contexts(from, t, to, r))
                        continue;
                    // From this sender alone: a message of one that is gone may still come.
                    ping({.what = Do::recv, .at = to, .tagged = 1, .any = 1, .from = 1 + from, .size = 64, .rx = r},
                         {.what = Do::send,
                          .at = from,
                          .to = to,
                          .tagged = 1,
                          .size = 16,
                          .level = fences ? match : inject,
                          .fence = fences,
                          .tx = t,
                          .rx = r});
                }
    settle(true, 5);
}

void World::ping(const Command& receive, const Command& message)
{
    recv_surely(receive);
    for (unsigned round = 0; platform_->is_patient(round); round++) {
        platform_->on(message.at / slots, [this, message] { had_room_ = send(message); });
        if (had_room_)
            return;
        for (unsigned p = 0; p < processes_.size(); p++)
            read_on(p, 2);
        platform_->pass(millisecond);
    }
    contradict("%s can send nothing to %s, both alive: FI_EAGAIN for ever", life(message.at).name().c_str(),
               life(message.to).name().c_str());
}

Numbers run_program(const Program& program, const Options& options, Platform& platform)
{
    platform.begin(program);
    // What is registered with the provider lives to the end of the process, and other processes share the rest. Where
    // another program follows, it goes with all memory of this one.
    static World* world = nullptr;
    world = new World(program, options, platform);
    return world->run();
}

} // namespace swarm
