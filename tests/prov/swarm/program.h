// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program for the deterministic network: what the network is like, and a list of calls. It can be written as text, a
// call to a line, and read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace swarm {

constexpr unsigned slots = 2; ///< endpoints of a process
constexpr unsigned most_processes = 8;

/// What a call may be.
enum class Do : std::uint8_t {
    send,    ///< at, to, back, tagged, tag, size, level, fence, data, tx, rx, later; count times, if that is not 0
    recv,    ///< at, tagged, tag, any, from, size, rx, later; count times, if that is not 0
    multi,   ///< at, size, count: it is over with fewer than count - 1 bytes left; 0: than usual
    cancel,  ///< at, count: the receive that was posted so many before the last
    peek,    ///< at, tag, any, from; entry: of messages without a tag
    claim,   ///< likewise; what is found is received
    discard, ///< likewise; what is found is dropped
    read,    ///< at: its process reads its queue count times
    spin,    ///< all processes read their queues count times
    run,     ///< the network takes count steps
    pass,    ///< count milliseconds go by
    open,    ///< at: a new endpoint in this slot, unless there is one
    close,   ///< at
    renew,   ///< at: closes the endpoint, and opens others until one has its number
    leave,   ///< at: its process closes all it has
    start,   ///< at: its process opens a domain and an endpoint, unless it has some
    kill,    ///< at: its process is killed
    stop,    ///< at: its process makes no calls until ...
    go,      ///< ... this
    map,    ///< at, region, size: its process opens a region in this slot, unless there is one; second: the same memory
            ///< is a region under another key before
    unmap,  ///< at, region: and closes it
    write,  ///< at, to, region, second, offset, size, level, fence, data, beyond; count times, if that is not 0
    get,    ///< likewise: a read
    atomic, ///< at, to, region, second, cell, fetch, level, fence, later; count times, if that is not 0
    join,   ///< at: its process's first endpoint joins those of all processes
    part,   ///< at, count: and closes the group that was joined so many before the last
    collect, ///< at, count: calls the next operation of that group
    forget,  ///< at, to, back: its process removes the address, unless something is under way to it
    raise,   ///< at: the counter that operations of its process wait for grows by count; entry: and is set back
    recall,  ///< at, count: cancels the operation of its process that waits for the counter, so many before the last
    insist,  ///< at, to, back: an access by a key that no region has, repeated until it is answered
    refuse,  ///< at, to, count: a call with flags that it must refuse (World::refuse)
    context, ///< at, entry, tx, rx: closes or opens a context of a scalable endpoint; entry 0: one that sends
    turn,    ///< at: its process closes its endpoints and its address vector, and opens others
    await,   ///< at, count, entry, rx: its process waits so many milliseconds, for its queue (entry 0), the counter of
             ///< the endpoint's sends or receives (1), or its event queue (2)
    count_
};

/// The levels of completion of a send.
enum Level : std::uint8_t { plain, inject, transmit, delivery, match, level_count };

struct Command {
    Do what = Do::run;
    std::uint32_t at = 0;   ///< an endpoint: process * slots + slot
    std::uint32_t to = 0;   ///< likewise
    std::uint32_t back = 0; ///< not the endpoint that is there now, but one so many before it
    std::uint32_t tagged = 0;
    std::uint32_t tag = 0;  ///< 0 to 3
    std::uint32_t any = 0;  ///< of any tag
    std::uint32_t from = 0; ///< 0: from any source; else 1 + an endpoint
    std::uint32_t size = 0;
    std::uint32_t level = 0;
    std::uint32_t fence = 0;
    std::uint32_t data = 0;
    std::uint32_t count = 0;
    std::uint32_t region = 0, second = 0; ///< regions of the target's process; second: 0: none, else 1 + a slot
    std::uint32_t offset = 0;
    std::uint32_t beyond = 0; ///< the access ends so far behind its region
    std::uint32_t cell = 0;   ///< which word for atomics
    std::uint32_t fetch = 0;
    std::uint32_t tx = 0, rx = 0; ///< which contexts of scalable endpoints send and receive
    std::uint32_t later = 0;      ///< it waits until its process's counter has grown by so many
    std::uint32_t entry = 0;      ///< of what waits: FI_TRIGGER, and an entry tells of its end; else FI_QUEUE_WORK
    std::uint32_t luck = 0;       ///< seeds what the network decides during this call

    friend bool operator==(const Command&, const Command&) = default;
};

struct Setup {
    std::uint32_t processes = 3;
    std::uint32_t chaos = 0, busy = 0, blind = 0, drop = 0, silent = 0, sametag = 1, reuse = 1, oldtags = 1, toq = 2000;
    std::uint32_t rings = 256, ringslots = 128;
    std::uint32_t numbers = 240; ///< of the endpoints of a domain
    std::uint32_t rma = 0;       ///< 1: regions with keys of the provider's choice, 2: of the user's
    std::uint32_t events = 0;    ///< FI_RMA_EVENT, and counters bound to regions
    std::uint32_t order = 0;     ///< all orders of RMA and atomics
    std::uint32_t form = 0;     ///< 1: scalable endpoints, with two contexts of each kind; 2: processes share receives,
                                ///< 3: transmit contexts, 4: both
    std::uint32_t counters = 0; ///< bound to endpoints
    std::uint32_t groups = 0;   ///< collective groups of first endpoints, if these are plain ones
    std::uint32_t triggers = 0; ///< a counter that operations can wait for
    std::uint32_t waits = 0;    ///< 1: wait objects of the provider's choice, 2: descriptors (in real time)
    std::uint32_t sharedav = 0; ///< one address vector for all processes
    std::uint32_t initiator = 0; ///< process 0 has no regions, and the capabilities of an initiator alone
    std::uint32_t apart = 0;     ///< FI_THREAD_DOMAIN: no process makes progress for another in its closes
    std::uint32_t gates = 0;     ///< barrier gates of a TNI; 0: there are none
    std::uint32_t anygate = 0;   ///< a gate takes packets of any other (Freedoms)
    std::uint32_t layout = 0;    ///< where the processes' nodes are (Freedoms)

    friend bool operator==(const Setup&, const Setup&) = default;
};

struct Program {
    Setup setup;
    std::vector<Command> commands;
};

std::string text_of(const Program& program);
std::string text_of(const Command& command);
/// False: `wrong` says what is wrong with it.
bool read_program(const std::string& text, Program& program, std::string& wrong);

} // namespace swarm
