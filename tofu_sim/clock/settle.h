// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Exact mode: settling: virtual time stands still while anything is under way outside uTofu.
//
// The job settles when a process may have started something outside uTofu: no process gets the turn until nothing is
// under way there any more (clock/quiet). If no process can continue then, all waiting polls return without a turn
// (a visit), since one of the programs may find something outside.
#pragma once

#include "clock/turn.h"

namespace tofu::sim {

/// Begins to settle: no process gets the turn until it is quiet outside. Called under the lock.
void begin_settling() noexcept;
/// Makes a patrol and a sample of look_outside(), if one is due, and acts on the result.
void patrol_in_turn() noexcept;
/// Wakes the threads that wait in a poll, so that they check whether it has to return.
void wake_all_looks() noexcept;

/// Called before and after the thread that calls uTofu sends something to another thread or process outside uTofu.
/// send_outside() returns when no other process is in the program: such a process might see the answer at once, or at
/// its next poll. sent_outside() returns when nothing that the send may have started is under way any more.
void send_outside() noexcept;
void sent_outside() noexcept;

} // namespace tofu::sim
