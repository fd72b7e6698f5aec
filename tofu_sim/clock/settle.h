// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: exact mode: settling with what is outside uTofu: when virtual time stands, and who looks when.
//
// The job settles when a process may have started something outside uTofu: no process gets the turn until nothing is
// under way there any more (clock/quiet). If nothing can continue then, all waiting looks return without a turn
// (a visit), as one of them may find something outside.
#pragma once

#include "clock/turn.h"

namespace tofu::sim {

// Under the lock: nothing continues until it is quiet outside.
void begin_settling() noexcept;
// Looks at processes in the program and outside, if the last look was some time ago; and acts upon what it finds.
void patrol_in_turn() noexcept;
// Wakes the threads that wait in a look, to see whether it has to return.
void wake_all_looks() noexcept;

// The thread that calls uTofu sends something to another thread or process, outside uTofu; and has done so: it waits
// until nothing that this may have started is under way.
void send_outside() noexcept;
void sent_outside() noexcept;

} // namespace tofu::sim
