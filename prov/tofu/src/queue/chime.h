// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The rule by which a descriptor that many ring and any may silence loses no wake-up. Used by wait and wait_set;
// tests/prov/queue/chime_test.cc runs this very code in every order of its steps. Calls what it is given.
//
// `ringing` saves system calls: who finds it set leaves the descriptor as it is. So it may be set, with nobody about to
// write, only while the descriptor is readable or somebody is going to look. Hence
//   1. what is announced is there before strike();
//   2. hush() reads the descriptor first and clears the flag then: a ring in between that does not write is seen by the
//      look that follows, one that does write comes after the clearing. The other way round the read takes the write of
//      a ring that has set the flag, and nobody writes again;
//   3. a bell is hushed before the first of all that ring it is looked at, and all are looked at: a second hush would
//      take the ring of one that was looked at already;
//   4. where something was found the bell is struck again: another thread may sleep on the same descriptor for it.
#pragma once

#include <atomic>

namespace tofu::chime {

template <class Flag, class Line>
void strike(Flag& ringing, Line& line)
{
    // acq_rel: what was written before is seen by whoever clears the flag and then looks (partner: hush())
    if (!ringing.exchange(true, std::memory_order_acq_rel))
        line.write();
}

template <class Flag, class Line>
void hush(Flag& ringing, Line& line)
{
    // Whatever the flag says: who has set it may not have written yet, and its write is late.
    line.read();
    (void)ringing.exchange(false, std::memory_order_acq_rel); // partner: strike()
}

} // namespace tofu::chime
