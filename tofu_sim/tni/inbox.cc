// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Entries of inboxes are added and carried out. See inbox.h.
#include "tni/inbox.h"

#include "clock/clock.h"
#include "tni/execute.h"

#include <algorithm>

namespace tofu::sim {
namespace {

/// A VCQ of this process that reaches the memory of that one.
Vcq& working_vcq(const Remote& remote, Vcq* poster) noexcept
{
    return remote.peer->process == Process::self().job().process() ? vcq_table[remote.index] : *poster;
}

/// Error of the instruction.
int write_entry(const InboxEntry& e, Vcq* poster) noexcept
{
    Remote* const remote = target_of(e.d);
    if (remote == nullptr)
        return UTOFU_ERR_MRQ_PEER;
    const size_t room = e.d.op == Op::put ? InboxEntry::room : max_piggyback;
    const size_t length = std::min<size_t>(e.d.length, room);
    const std::byte* const bytes = e.d.op == Op::put ? e.bytes : reinterpret_cast<const std::byte*>(e.d.data);
    AddressCache& addresses = *working_vcq(*remote, poster).addresses;
    AccessStatus status = addresses.check(remote->memory, e.d.rmt_stadd, length, Need::write);
    if (status == AccessStatus::ok && length != 0)
        status = addresses.put(remote->memory, e.d.rmt_stadd, bytes, length, CopyOrder::last_line);
    return remote_mrq_error(status);
}

void push_entry(const InboxEntry& e, Vcq* poster) noexcept
{
    Remote* const remote = target_of(e.d);
    if (remote != nullptr &&
        !remote->mrq.push(working_vcq(*remote, poster).me, remote_entry(e.d, e.vcq_id), {e.key.when, e.origin}))
        report_remote_overflow(*remote);
}

} // namespace

Remote* target_of(const Descriptor& d) noexcept
{
    Remote* remote = nullptr;
    return find_remote(d.rmt_vcq_id, remote) == RemoteStatus::found ? remote : nullptr;
}

Inbox& own_inbox() noexcept
{
    return segment_inbox(Process::self().segment().base);
}

void add_entry(const Remote& remote, Inbox& inbox, uint32_t index) noexcept
{
    const InboxEntry& e = inbox.entry(index);
    const bool notices = e.stage == InboxStage::notice || (e.d.flags & notice_remote) != 0;
    const Picoseconds wake = notices ? e.noted : e.key.when;
    inbox.add(index);
    expect_arrival(remote.peer->process, wake, inbox.due());
}

void carry_out_first(const Receiver& to) noexcept
{
    const uint32_t index = to.inbox.index_at(0);
    InboxEntry& e = to.inbox.entry(index);
    const Picoseconds when = e.key.when;
    to.inbox.remove_first();
    if (e.stage == InboxStage::write) {
        e.error = write_entry(e, to.poster);
        if (e.error != UTOFU_SUCCESS) {
            e.stage = InboxStage::failed; // its poster frees it
            wake_actor(e.poster, std::max(when, e.told));
            return;
        }
        if ((e.d.flags & notice_remote) != 0) {
            touch_actor(to.process, when);
            e.stage = InboxStage::notice;
            e.key.when = std::max(when, e.noted);
            to.inbox.add(index);
            return;
        }
    } else if (e.stage == InboxStage::notice) {
        push_entry(e, to.poster);
    }
    if (!to.waited)
        wake_actor(to.process, when);
    to.inbox.free(index);
}

void bring_up_to(const Receiver& to, const InboxKey& key) noexcept
{
    bool any = false;
    while (to.inbox.count() != 0 && to.inbox.entry(to.inbox.index_at(0)).key < key) {
        carry_out_first(to);
        any = true;
    }
    if (any)
        set_due(to.process, to.inbox.due());
}

} // namespace tofu::sim
