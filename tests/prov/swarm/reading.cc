// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes read their queues: progress, and the entries, which the model judges. See world_impl.h.
#include <algorithm>

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
    Objects& o = *processes_[p].objects;
    fetch_claimed(p);
    look_at_ends(p);
    read_events(p);
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
                 .has_source = source != nullptr && platform_->names_senders(),
                 .source = source});
    }
    return true;
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
void World::let_others_run()
{
    for (unsigned p = 0; p < processes_.size(); p++) {
        const auto waits = [&](const auto& later) { return later->process == p && !later->operation->done; };
        if (!processes_[p].busy &&
            !(platform_->is_one_process() && std::any_of(later_.begin(), later_.end(), waits)))
            read_on(p, 1);
    }
}

} // namespace swarm
