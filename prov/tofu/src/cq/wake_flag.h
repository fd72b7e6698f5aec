// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A descriptor with a flag in front of it that saves system calls. Any thread may raise it or clear it, and no wake-up
// is lost. Used by wait and wait_set; tests/prov/cq/wake_flag_test.cc runs this code in every order of its steps.
// Calls the functions that it is given.
//
// A thread that finds the flag set does not write to the descriptor. So while the flag is set, the descriptor is
// readable, or a thread is about to write to it, or a thread is about to look for events. Hence
//   1. an event is visible before raise() is called for it;
//   2. clear() reads the descriptor first and clears the flag then. A raise() in between that does not write is covered by
//      the look for events that follows; one that writes comes after the clearing. In the other order the read would take
//      the write of a raise() that has set the flag, and nobody would write again;
//   3. of several objects that share a descriptor, clear() is called once, before the first is looked at, and all are
//      looked at: a second clear() would take the wake-up of one that was looked at already;
//   4. where something was found, raise() is called again: another thread may sleep on the same descriptor for it.
#pragma once

#include <atomic>

namespace tofu::wake_flag {

template <class Flag, class Line>
void raise(Flag& raised, Line& line)
{
    // acq_rel: what was written before is seen by whoever clears the flag and then looks (partner: clear())
    if (!raised.exchange(true, std::memory_order_acq_rel))
        line.write();
}

template <class Flag, class Line>
void clear(Flag& raised, Line& line)
{
    // Whatever the flag says: the thread that has set it may not have written yet.
    line.read();
    (void)raised.exchange(false, std::memory_order_acq_rel); // partner: raise()
}

} // namespace tofu::wake_flag
