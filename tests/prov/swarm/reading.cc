// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes read their queues: progress, and the entries, which the model judges. See world_impl.h.
#include <algorithm>

#include <poll.h>

#include "world_impl.h"

namespace swarm {

void World::read(unsigned p, unsigned times)
{
    Process& process = processes_[p];
    if (process.objects == nullptr || process.stopped)
        return;
    const unsigned caller = platform_->process();
    platform_->enter(p);
    for (unsigned i = 0; i < times; i++)
        if (!read_once(p))
            break;
    platform_->enter(caller);
}

/// The same from outside the process.
void World::read_on(unsigned p, unsigned times)
{
    if (processes_[p].objects != nullptr && !processes_[p].stopped)
        platform_->on(p, [this, p, times] { read(p, times); });
}

/// False: the process is gone.
bool World::read_once(unsigned p)
{
    fetch_claimed(p);
    look_at_ends(p);
    read_events(p);
    fi_cq_tagged_entry entries[4];
    fi_addr_t sources[4];
    const ssize_t got = fi_cq_readfrom(processes_[p].objects->cq, entries, 4, sources);
    take_entries(p, got, entries, sources);
    return true;
}

/// What a call has read.
void World::take_entries(unsigned p, ssize_t got, const fi_cq_tagged_entry* entries, const fi_addr_t* sources)
{
    Objects& o = *processes_[p].objects;
    if (got == -FI_EAGAIN)
        return;
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
        return;
    }
    if (got < 0)
        contradict("fi_cq_readfrom: %s", fi_strerror(static_cast<int>(-got)));
    for (ssize_t i = 0; i < got; i++) {
        const Endpoint* const source = sources[i] < o.peers->size() ? (*o.peers)[sources[i]] : nullptr;
        note(p, {.context = entries[i].op_context,
                 .flags = entries[i].flags,
                 .data = entries[i].data,
                 .tag = entries[i].tag,
                 .length = entries[i].len,
                 .buffer = entries[i].buf,
                 .error = 0,
                 .has_source = source != nullptr && platform_->names_senders(),
                 .source = source});
    }
}

// --- waits

/// A call that waits until something comes or its time is over. The other processes go on meanwhile.
void World::await(const Command& c)
{
    const unsigned p = c.at / slots;
    constexpr unsigned most = 20;
    const auto milliseconds = static_cast<int>(std::min(c.count, most));
    if (program_.setup.waits == 0 || processes_[p].busy)
        return;
    switch (c.entry % 3) {
    case 0:
        if (program_.setup.waits == 1)
            await_entries(p, milliseconds);
        else
            await_descriptor(p, milliseconds);
        return;
    case 1: await_counter(c, milliseconds); return;
    default: await_event(p, milliseconds); return;
    }
}

void World::await_entries(unsigned p, int milliseconds)
{
    fi_cq_tagged_entry entries[4];
    fi_addr_t sources[4];
    ssize_t got = 0;
    const std::uint64_t start = platform_->clock();
    while_others_run(processes_[p], [&] {
        got = fi_cq_sreadfrom(processes_[p].objects->cq, entries, 4, sources, nullptr, milliseconds);
    });
    platform_->enter(p);
    if (got == -FI_EAGAIN)
        check_wait("fi_cq_sreadfrom", start, milliseconds);
    take_entries(p, got, entries, sources);
}

void World::await_descriptor(unsigned p, int milliseconds)
{
    Objects& o = *processes_[p].objects;
    fid* queues[] = {&o.cq->fid};
    const int result = fi_trywait(o.fabric, queues, 1);
    if (result != 0 && result != -FI_EAGAIN)
        contradict("fi_trywait: %s", fi_strerror(-result));
    if (result == 0) {
        pollfd descriptor{-1, POLLIN, 0};
        must(fi_control(&o.cq->fid, FI_GETWAIT, &descriptor.fd), "FI_GETWAIT");
        while_others_run(processes_[p], [&] { (void)poll(&descriptor, 1, milliseconds); });
        platform_->enter(p);
    }
    (void)read_once(p);
}

void World::await_counter(const Command& c, int milliseconds)
{
    const unsigned p = c.at / slots;
    fid_cntr* const counter = is_open(c.at) ? handles(c.at).counters[c.rx % 2] : nullptr;
    if (counter == nullptr)
        return;
    const std::uint64_t threshold = fi_cntr_read(counter) + 1, errors = fi_cntr_readerr(counter);
    int result = 0;
    const std::uint64_t start = platform_->clock();
    while_others_run(processes_[p], [&] { result = fi_cntr_wait(counter, threshold, milliseconds); });
    platform_->enter(p);
    if (result == -FI_ETIMEDOUT)
        check_wait("fi_cntr_wait", start, milliseconds);
    else if (result == -FI_EAVAIL ? fi_cntr_readerr(counter) == errors
                                  : result != 0 || fi_cntr_read(counter) < threshold)
        contradict("fi_cntr_wait for %llu of %s: %s, the counter is %llu", static_cast<unsigned long long>(threshold),
                   life(c.at).name().c_str(), fi_strerror(-result),
                   static_cast<unsigned long long>(fi_cntr_read(counter)));
}

void World::await_event(unsigned p, int milliseconds)
{
    fid_eq* const eq = processes_[p].objects->eq;
    if (eq == nullptr)
        return;
    fi_eq_entry entry{};
    std::uint32_t event = 0;
    ssize_t got = 0;
    const std::uint64_t start = platform_->clock();
    while_others_run(processes_[p], [&] { got = fi_eq_sread(eq, &event, &entry, sizeof entry, milliseconds, 0); });
    platform_->enter(p);
    if (got == -FI_EAGAIN)
        check_wait("fi_eq_sread", start, milliseconds);
    take_event(p, got, event, entry);
}

/// It has ended for want of time.
void World::check_wait(const char* what, std::uint64_t start, int milliseconds)
{
    const std::uint64_t took = platform_->clock() - start;
    constexpr std::uint64_t too_much = 10000; // milliseconds; the clock of an idle network makes large steps
    if (took < static_cast<std::uint64_t>(milliseconds) * millisecond || took > too_much * millisecond)
        contradict("%s for %d ms ended without a result after %.3f ms", what, milliseconds,
                   static_cast<double>(took) / millisecond);
}

void World::note(unsigned p, const Entry& entry)
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

/// In one process also from inside a round of another's endpoint, whose lock is then held. Deferred work would wait for
/// it: its process makes no calls meanwhile. The provider's own rounds go on.
bool World::may_run(unsigned p) const
{
    const auto waits = [&](const auto& later) { return later->process == p && !later->operation->done; };
    return !processes_[p].busy && !(platform_->is_one_process() && std::any_of(later_.begin(), later_.end(), waits));
}

void World::let_others_run()
{
    for (unsigned p = 0; p < processes_.size(); p++)
        if (may_run(p))
            read_on(p, 1);
}

} // namespace swarm
