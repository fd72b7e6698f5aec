// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program that is carried out: the processes with their objects of libfabric, the network and the model. Its parts
// are in objects.cc (open and close), messages.cc, reading.cc (progress, entries), groups.cc, counting.cc (counters,
// operations that wait for one), world.cc (all calls, the end). Included by these; calls libfabric, net and model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include "group_model.h"
#include "model.h"
#include "platform.h"
#include "remote.h"
#include "world.h"

namespace swarm {

constexpr std::uint64_t millisecond = 1000000;
constexpr const char* linger = "1"; ///< seconds that a domain waits for receivers
constexpr unsigned most_contexts = 2;
constexpr unsigned counted_kinds = 6;
constexpr std::uint64_t counted[counted_kinds] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};

/// The wait object of queues and counters.
inline fi_wait_obj wait_object(const Setup& setup)
{
    return setup.waits == 0 ? FI_WAIT_NONE : setup.waits == 1 ? FI_WAIT_UNSPEC : FI_WAIT_FD;
}

inline void must(int result, const char* what)
{
    if (result != 0)
        contradict("%s: %s", what, fi_strerror(-result));
}

constexpr int rx_bits = 1; ///< of addresses that name a context

/// The flags of a call with a level and a fence.
inline std::uint64_t flags_of(const Command& c)
{
    constexpr std::uint64_t levels[] = {0, FI_INJECT, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE};
    return levels[c.level % level_count] | (c.fence != 0 ? FI_FENCE : 0);
}

/// What an endpoint has of libfabric. A plain one is its own and only context.
struct Handles {
    fid_ep *ep = nullptr, *tx[most_contexts] = {}, *rx[most_contexts] = {};
    fid_cntr* counters[counted_kinds] = {};
};

/// What a process has opened, in one life of its domain.
struct Objects {
    fi_info *info = nullptr, *plain = nullptr; ///< of the first endpoint, and of the others
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_stx* stx = nullptr;
    fid_ep* srx = nullptr;
    fid_eq* eq = nullptr;
    std::vector<std::pair<Join*, fid_mc*>> groups; ///< open ones
    std::map<std::string, unsigned> joins;         ///< how many of each list of members
    fid_cntr* trigger = nullptr;                   ///< operations wait for it
    Endpoint* pool = nullptr;                      ///< the life of `srx`
    std::vector<Endpoint*> own_peers;              ///< by fi_addr_t
    std::vector<Endpoint*>* peers = &own_peers;    ///< or those of all processes
    std::vector<fid_cntr*> past;                   ///< counters of endpoints that are closed
};

struct Process {
    bool stopped = false;
    std::unique_ptr<Objects> objects; ///< null: dead, or not started
    Handles handles[slots];
    Endpoint* now[slots] = {};
    std::vector<Endpoint*> past[slots]; ///< all lives, the present one last
    bool busy = false;                  ///< in a call that others are let run in
};

/// An operation that waits for a counter, or for its end, which a counter of its own shows.
struct Later {
    Operation* operation;
    unsigned process;
    fid_ep* ep;
    const Endpoint* life;
    fid_cntr* done = nullptr; ///< null: posted with FI_TRIGGER, and ends with an entry
    fi_deferred_work work{};
    fi_op_msg message{};
    fi_op_tagged tagged{};
    fi_op_rma rma{};
    fi_op_atomic atomic{};
    fi_op_fetch_atomic fetch{};
    fi_op_compare_atomic compare{};
};

class World {
  public:
    World(const Program& program, const Options& options, Platform& platform);
    Numbers run();

  private:
    struct Address {
        unsigned char bytes[64];
        friend bool operator==(const Address&, const Address&) = default;
    };

    [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);

    // --- objects.cc
    [[nodiscard]] fi_info* find(unsigned p, bool plain);
    void start(unsigned p);
    void start_here(unsigned p);
    void open_vector(unsigned p);
    void open(unsigned p, unsigned slot);
    void open_handles(unsigned p, unsigned slot);
    void begin_life(unsigned p, unsigned slot);
    Address own_address(unsigned p, unsigned slot);
    void renew(unsigned p, unsigned slot);
    void open_contexts(unsigned p, Handles& handles);
    void open_tx(unsigned p, Handles& handles, int context);
    void turn_context(const Command& c);
    void turn(unsigned p);
    void bind(unsigned p, fid_ep* ep, std::uint64_t queues, const Handles& handles);
    void close(unsigned p, unsigned slot);
    void close_handles(unsigned p, unsigned slot);
    void end_life(Endpoint& life, Endpoint::State state);
    void end_pool(unsigned p, Endpoint::State state);
    void leave(unsigned p);
    void close_objects(unsigned p);
    void kill(unsigned p);
    template <class Lacks>
    void lose_copies(unsigned p, Lacks&& lacks);
    void clear_away(unsigned p);
    void lose_objects(unsigned p);
    /// A call that may wait for the progress of others. A process that was killed waits for no other one.
    template <class Call>
    void while_others_run(Process& process, Call&& call)
    {
        process.busy = true;
        platform_->wait_in(call, [] { here_->let_others_run(); });
        process.busy = false;
    }
    [[nodiscard]] bool is_scalable(unsigned slot) const { return program_.setup.form == 1 && slot == 0; }
    [[nodiscard]] bool shares_rx() const { return program_.setup.form == 2 || program_.setup.form == 4; }
    [[nodiscard]] bool shares_tx() const { return program_.setup.form == 3 || program_.setup.form == 4; }

    // --- reading.cc
    void read(unsigned p, unsigned times);
    bool read_once(unsigned p);
    void take_entries(unsigned p, ssize_t got, const fi_cq_tagged_entry* entries, const fi_addr_t* sources);
    void await(const Command& c);
    void await_entries(unsigned p, int milliseconds);
    void await_descriptor(unsigned p, int milliseconds);
    void await_counter(const Command& c, int milliseconds);
    void await_event(unsigned p, int milliseconds);
    void check_wait(const char* what, std::uint64_t start, int milliseconds);
    void note(unsigned p, const Entry& entry);
    /// May a process make calls while another one waits in a call?
    [[nodiscard]] bool may_run(unsigned p) const;
    void let_others_run();

    // --- which endpoint is meant
    [[nodiscard]] bool is_usable(unsigned place) const
    {
        const unsigned p = place / slots;
        return p < processes_.size() && processes_[p].objects != nullptr && !processes_[p].stopped;
    }
    [[nodiscard]] bool is_open(unsigned place) const
    {
        return is_usable(place) && processes_[place / slots].now[place % slots] != nullptr;
    }
    [[nodiscard]] Handles& handles(unsigned place) { return processes_[place / slots].handles[place % slots]; }
    [[nodiscard]] Endpoint& life(unsigned place) { return *processes_[place / slots].now[place % slots]; }
    /// The endpoint that is or was there; null: there was none.
    [[nodiscard]] Endpoint* life(unsigned place, unsigned back);
    [[nodiscard]] fid_ep* tx(unsigned place, unsigned context) { return handles(place).tx[context]; }
    /// Where its receives are posted.
    [[nodiscard]] fid_ep* rx(const Receive& receive);
    [[nodiscard]] bool has_contexts(unsigned from, unsigned t, unsigned to, unsigned r)
    {
        return handles(from).tx[t] != nullptr && handles(to).rx[r] != nullptr;
    }
    fi_addr_t address_of(unsigned p, Endpoint& peer);
    void forget(const Command& c);
    /// Repeats a call that finds no room a few times. What it returned last.
    template <class Call>
    ssize_t try_to(unsigned p, Call&& call)
    {
        constexpr unsigned most_retries = 4;
        ssize_t result = -FI_EAGAIN;
        for (unsigned i = 0; i < most_retries && result == -FI_EAGAIN; i++) {
            platform_->enter(p);
            result = call();
            if (result == -FI_EAGAIN) {
                read(p, 2);
                platform_->run(16);
            }
        }
        return result;
    }

    // --- messages.cc
    ssize_t post_send(fid_ep* ep, Message& m, fi_addr_t to, const Command& c);
    bool send(const Command& asked);
    Receive& new_receive(const Command& c, std::size_t size);
    bool receives(const Command& c);
    bool recv(const Command& c);
    void recv_surely(const Command& c);
    void multi(const Command& c);
    void not_posted(Receive& r, ssize_t result);
    void look(const Command& c);
    void insist(const Command& c);
    void refuse(const Command& c);
    void cancel(const Command& c);
    void fetch_claimed(unsigned p);
    bool fetch(Receive& r);
    void access(const Command& c);

    // --- counting.cc
    void open_counters(unsigned p, Handles& handles);
    bool counts_hold(bool last);
    bool counts_of_hold(unsigned p, bool last);
    ssize_t defer(Message& m, fid_ep* ep, fi_addr_t to, const Command& c);
    ssize_t defer(Access& access, fid_ep* ep, const fi_msg_rma& call, std::uint64_t flags, const Command& c);
    std::unique_ptr<Later> hold_back(Operation& operation, fid_ep* ep, const Command& c);
    ssize_t queue(std::unique_ptr<Later> later, ssize_t result);
    ssize_t queue_work(std::unique_ptr<Later> later, unsigned p);
    ssize_t defer(Receive& r, fi_addr_t from, std::uint64_t ignore, const Command& c);
    ssize_t defer(Access& access, fid_ep* ep, const Remote::AtomicCall& call, const Command& c);
    void raise(const Command& c);
    void recall(const Command& c);
    void look_at_ends(unsigned p);
    void forget_later(unsigned p);

    // --- groups.cc
    void join(const Command& c);
    void part(const Command& c);
    void collect(const Command& c);
    void close_groups(unsigned p);
    void read_events(unsigned p);
    void take_event(unsigned p, ssize_t got, std::uint32_t event, const fi_eq_entry& entry);

    // --- world.cc
    void carry_out(const Command& c);
    void carry_out_here(const Command& c);
    void spin(unsigned rounds);
    void read_on(unsigned p, unsigned times);
    void raise_all();
    void settle(bool to_the_end, unsigned more);
    void finish();
    void receive_all();
    void ping_all();
    void ping(const Command& receive, const Command& send);

    const Program program_;
    Options options_;
    Platform* platform_;
    Model model_;
    Remote remote_;
    std::vector<Process> processes_;
    std::vector<Address> addresses_;      ///< by the endpoint's number
    std::vector<Endpoint*> shared_peers_; ///< of the vector of all processes
    unsigned sharers_ = 0;                ///< of this vector
    std::vector<Receive*> claims_;        ///< whose receive is to be posted
    std::vector<std::unique_ptr<Later>> later_;
    bool was_killed_ = false; ///< some process
    bool counts_hold_ = false;
    bool had_room_ = false; ///< the last call of a ping, or the last receive at the end
    static inline World* here_ = nullptr;
};

} // namespace swarm
