// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posts and polls of a VCQ that instruments watch (job/instruments.h): the one place where these are called.
//
// All out of line, on the slow road that Vcq::watched leads to.
#pragma once

#include "clock/network.h"
#include "tni/descriptor.h"
#include "tni/remote.h"
#include "tni/vcq.h"

#include <unordered_map>

namespace tofu::sim {

/// Of one instruction: when it gets where, by the virtual clock (picoseconds; zeros without it), and its number in the
/// trace.
struct Watch {
    Picoseconds posted = 0;  ///< the call begins
    Picoseconds started = 0; ///< the TNI hears of it
    Times times;
    uint64_t origin = 0;
    uint64_t began = 0;  ///< by the trace's clock: the call
    bool unsent = false; ///< exact mode: it has failed when it was to be sent
};

/// Where an instruction has failed. Unsent: its error is an entry of the TCQ. Later: a notice to its poster. Either
/// comes without its flag, too (guide 3.7), and is all that comes.
enum class Failure : uint8_t { none, unsent, later };
[[nodiscard]] inline Failure failure_of(int tcq_error, int mrq_error) noexcept
{
    return tcq_error != 0 ? Failure::unsent : mrq_error != 0 ? Failure::later : Failure::none;
}

/// What became of an instruction, for the trace.
struct Done {
    bool late;        ///< it will be reported by watch_arrival or watch_relay
    uint64_t arrived; ///< by the trace's clock
    Failure failure;
    uint32_t position; ///< in the TOQ
};

/// Where the VCQ has sent to, and when what it sent last arrives there (strong order).
struct WatchedWay {
    Way way;
    Picoseconds arrived = 0;
    Picoseconds noted = 0; ///< exact mode: notices come in the order of posting
    Picoseconds told = 0;
};

/// Beside the private queues of the VCQ: a stamp for each entry there.
struct Watched {
    PrivateRing<Stamp> tcq;
    PrivateRing<Stamp> local_notices;
    std::unordered_map<uint64_t, WatchedWay> ways; ///< by source, target and path
    /// Exact mode: behind the last descriptor that has left, and when; which polls found nothing; more of the
    /// adversarial mode's steps are due.
    uint32_t sent = 0;
    Picoseconds last_sent = 0;
    uint64_t vain_tcq = 0;
    uint64_t vain_mrq = 0;
    bool ticks = false;
};

/// When the VCQ is created: false without memory.
[[nodiscard]] bool open_watch(Vcq& vcq) noexcept;

/// The VCQ is complete, or about to be freed.
void watch_vcq(const Vcq& vcq, bool opened) noexcept;

/// An instruction is posted and about to be carried out; not afterwards, since its target may see the bytes at once.
[[nodiscard]] Watch watch_post(Vcq& vcq, const Descriptor& descriptor, const Remote* remote) noexcept;

/// When the instruction was executed without a report yet; 0 without a trace.
[[nodiscard]] uint64_t watch_moment() noexcept;
void watch_posted(const Vcq& vcq, const Descriptor& descriptor, const Watch& watch, const Done& outcome) noexcept;
/// The adversarial mode has carried out what was posted at that position.
void watch_arrival(const Vcq& vcq, const Descriptor& descriptor, const Done& outcome) noexcept;
/// We have carried out what waited in a VCQ of session mode.
struct Relayed {
    uint32_t node; ///< of that VCQ
    unsigned index;
    Picoseconds arrived; ///< by the virtual clock
    Failure failure;
};
void watch_relay(const Relayed& relayed, const Descriptor& descriptor) noexcept;

/// The entry that the VCQ takes out of its own queue next; zeros if it is not watched.
[[nodiscard]] inline Stamp take_tcq_stamp(Vcq& vcq) noexcept
{
    if (vcq.watch == nullptr || vcq.watch->tcq.empty())
        return {};
    const Stamp stamp = vcq.watch->tcq.front();
    vcq.watch->tcq.pop();
    return stamp;
}
[[nodiscard]] inline Stamp take_local_stamp(Vcq& vcq) noexcept
{
    if (vcq.watch == nullptr || vcq.watch->local_notices.empty())
        return {};
    const Stamp stamp = vcq.watch->local_notices.front();
    vcq.watch->local_notices.pop();
    return stamp;
}

/// With every entry that goes into these queues, watched or not.
inline void stamp_tcq(Vcq& vcq, const Stamp& stamp) noexcept
{
    if (vcq.watch != nullptr)
        vcq.watch->tcq.push(stamp);
}
inline void stamp_local(Vcq& vcq, const Stamp& stamp) noexcept
{
    if (vcq.watch != nullptr)
        vcq.watch->local_notices.push(stamp);
}

/// A descriptor of a session mode VCQ that begins at `start`: `from` is the VCQ it was posted to, `poster` the one
/// whose thread carries it out.
[[nodiscard]] Times watch_session(Vcq& poster, const Remote& from, const Descriptor& descriptor, const Remote* to,
                                  Picoseconds start) noexcept;

/// The ends of polls: an entry or a notice with this stamp was found, or nothing (UTOFU_ERR_NOT_FOUND).
/// `hidden`: something may be there, but this look did not find it.
void watch_poll_tcq(Vcq& vcq, int result, const Stamp& stamp, bool hidden) noexcept;
void watch_poll_mrq(Vcq& vcq, int result, const Stamp& stamp, const utofu_mrq_notice& notice, bool hidden) noexcept;

} // namespace tofu::sim
