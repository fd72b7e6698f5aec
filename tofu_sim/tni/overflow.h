// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of a program whose MRQ overflows (guide chapter 7).
#pragma once

#include "tni/remote.h"
#include "tni/vcq.h"

namespace tofu::sim {

/// A poster found the ring of `remote` full: notifies its owner, whose program ends.
void report_remote_overflow(Remote& remote) noexcept;

/// Our own VCQ: prints the message of the guide and ends this program.
[[noreturn]] void end_by_own_overflow(const Vcq& vcq) noexcept;

/// Lets the service thread end the program when a peer reports an overflow.
void watch_for_overflow() noexcept;

} // namespace tofu::sim
