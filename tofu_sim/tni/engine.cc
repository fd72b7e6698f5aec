// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: executes descriptors: whoever posts, moves the bytes and writes the notices.
// Called by: api/ (post, poll), tni/session, tni/chaos. Calls: tni/remote, tni/vcq, memory/.
#include "tni/engine.h"

#include "tni/execute.h"

namespace tofu::sim {
int post(Vcq& vcq, const Descriptor& descriptor, void* cbdata) noexcept
{
    return post_inline(vcq, descriptor, cbdata);
}

int poll_tcq(Vcq& vcq, void*& cbdata) noexcept
{
    const bool chaos = (vcq.special & Vcq::chaos) != 0;
    if ((vcq.special & Vcq::session) != 0) [[unlikely]] {
        return poll_tcq_session(vcq, cbdata);
    }
    if (chaos) [[unlikely]] {
        stir_chaos(vcq);
    }
    if (vcq.tcq.empty()) {
        // All that was posted, or has got so far, is complete: room for as much again.
        vcq.toq_head = chaos ? settled_chaos(vcq) : vcq.toq_tail;
        return UTOFU_ERR_NOT_FOUND;
    }
    const TcqEntry& entry = vcq.tcq.front();
    const int result = entry.result;
    cbdata = entry.cbdata;
    vcq.toq_head = entry.toq_position + 1;
    vcq.tcq.pop();
    return result;
}

namespace {

int deliver(const MrqEntry& entry, utofu_mrq_notice& notice) noexcept
{
    notice = {};
    notice.notice_type = entry.type;
    notice.vcq_id = entry.vcq_id;
    notice.edata = entry.edata;
    notice.rmt_value = entry.rmt_value;
    notice.lcl_stadd = entry.lcl_stadd;
    notice.rmt_stadd = entry.rmt_stadd;
    return entry.result;
}

// The entry in front is being written. Its writer needs nanoseconds, unless it was stopped or killed: ask
// the process table now and then, and skip what a dead one left.
[[gnu::noinline]] void examine_claim(Vcq& vcq) noexcept
{
    if (++vcq.claimed_polls % 1024 != 0) {
        return;
    }
    bool valid = false;
    const Claimant holder = vcq.mrq.claimant_at(vcq.mrq_head, valid);
    if (!valid || !Process::self().job().runs(holder.process(), holder.incarnation(), 14)) {
        vcq.mrq.abort_claim(vcq.mrq_head, holder);
    }
}

} // namespace

int poll_mrq(Vcq& vcq, utofu_mrq_notice& notice) noexcept
{
    if ((vcq.special & Vcq::chaos) != 0) [[unlikely]] {
        stir_chaos(vcq);
    }
    // Our own notices first: that of a put must not come after the peer's answer to it.
    if (!vcq.local_notices.empty()) {
        const int result = deliver(vcq.local_notices.front().entry, notice);
        vcq.local_notices.pop();
        return result;
    }
    MrqEntry entry;
    switch (vcq.mrq.poll(vcq.mrq_head, entry)) {
    case MrqRing::Poll::found: vcq.claimed_polls = 0; return deliver(entry, notice);
    case MrqRing::Poll::nothing: vcq.claimed_polls = 0; break;
    case MrqRing::Poll::claimed: examine_claim(vcq); break;
    }
    return UTOFU_ERR_NOT_FOUND;
}

} // namespace tofu::sim
