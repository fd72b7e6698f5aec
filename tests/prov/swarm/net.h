// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A deterministic uTofu in one process: virtual processes with VCQs of their own, and an adversary that draws what the
// guide leaves open from one seed. No thread, no sleep, no clock but its own (docs/testing.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <utofu.h>

#include "dice.h"
#include "gates.h"
#include "program.h"
#include "utofu/library.h"

namespace swarm {

/// Which freedoms of the guide the network takes.
struct Relaxations {
    unsigned chaos = 0;    ///< 0: each post takes effect within its call; else late and in any permitted order, up to 3
    unsigned busy = 0;     ///< percent of posts that find the TOQ full
    unsigned blind = 0;    ///< percent of polls that find nothing although there is something
    bool drop = false;     ///< an operation without a notice may be lost when its VCQ is freed, also in part
    bool silent = false;   ///< an access to what is not there never ends
    bool same_tag = true;  ///< memory that is registered already gets its steering tag again
    bool reuse = true;     ///< VCQ IDs that were given back are given again, at once
    unsigned toq = 2000;   ///< posts of a VCQ under way at a time
    bool old_tags = true;  ///< steering tags that were given back are given again, at once
    unsigned gates = 0;    ///< barrier gates of a TNI
    bool any_gate = false; ///< a gate takes packets of any other, until a domain is closed or a process killed
    unsigned layout = 0;   ///< where nodes are: 0: in a row; 1: two processes to a node; 2: in another order; 3: a box
};

class Net {
  public:
    static constexpr unsigned tnis = 6, cqs = 8, components = 8, reserved = 256;

    explicit Net(const Relaxations& relaxations);
    ~Net();
    /// The one that the table's functions mean.
    static Net* now;
    /// With `gates` also those of barrier gates.
    static tofu::vcq::Functions functions(bool gates);
    static utofu_onesided_caps caps();

    Relaxations relaxations;
    /// The process whose calls these are.
    unsigned process = 0;
    /// What other processes do while one is in a call that does not return at once; null: nothing.
    void (*others)() = nullptr;
    std::uint64_t steps = 0;  ///< of the network, so far
    std::uint64_t calls = 0;  ///< of uTofu, so far
    std::uint64_t digest = 0; ///< of these, so far: what is posted when
    unsigned strays = 0;      ///< accesses to what is not there, so far

    /// The decisions from here on.
    void seed(std::uint64_t seed) noexcept { dice_ = Dice(seed); }
    [[nodiscard]] bool quiet() const noexcept { return active_.empty() && gates_.under_way() == 0; }
    /// Carries out one part of one post, if there is any.
    void step();
    void run(unsigned steps)
    {
        while (steps-- != 0 && !quiet())
            step();
    }
    void run_all()
    {
        while (!quiet())
            step();
    }
    /// Time goes by for all; what is under way takes effect first, for that takes a TNI no longer than milliseconds.
    void pass(std::uint64_t nanoseconds)
    {
        run_all();
        time_ += nanoseconds;
    }
    [[nodiscard]] std::uint64_t time() noexcept;
    /// For what takes no time of the living: the remains of a process that was killed.
    [[nodiscard]] std::uint64_t clock() const noexcept { return time_; }
    void set_clock(std::uint64_t time) noexcept { time_ = time; }
    /// The process ends between two instructions: its VCQs are gone, whatever it has posted may be lost.
    void kill(unsigned process);
    [[nodiscard]] bool has_vcqs() const;

    struct Place;
    struct Region;
    struct Vcq;
    struct Op;

  private:
    friend struct Calls;
    /// Something has called: others may have gone on meanwhile.
    void tick();
    Vcq* find(utofu_vcq_id_t id) const noexcept;
    Vcq* of(utofu_vcq_hdl_t handle) const noexcept;
    /// The coordinates of a process's node.
    void locate(unsigned process, std::uint8_t coords[]) const noexcept;
    /// The number of that node among those of barrier gates.
    [[nodiscard]] unsigned node_of(unsigned process) const noexcept
    {
        return relaxations.layout == 1 ? process / 2 : process;
    }
    int post(Vcq& vcq, std::vector<std::unique_ptr<Op>> ops);
    bool advance(Vcq& vcq, std::size_t at);
    void carry_out(Vcq& vcq, Op& op);
    void read(Vcq& vcq, Op& op);
    void write(Vcq& vcq, Op& op);
    void armw(Op& op);
    void tell(Vcq& vcq, Op& op);
    void report_sent(Vcq& vcq);
    void forget(Vcq& vcq);
    void activate(Vcq& vcq);
    void finish(Vcq& vcq, bool may_drop);
    int start_round(utofu_vbg_id_t id, utofu_reduce_op op, const void* data, std::size_t count);

    static unsigned long long made; ///< networks of this process
    unsigned long long number_;
    Dice dice_;
    BarrierGates gates_{dice_};
    std::uint64_t time_ = 1000000000;
    unsigned idle_ = 0;   ///< calls while nothing is under way
    unsigned waited_ = 0; ///< calls in a wait for others
    bool nested_ = false;
    std::vector<std::unique_ptr<Vcq>> vcqs_; ///< by handle
    std::vector<Vcq*> by_place_;             ///< by node, TNI, CQ and component
    std::vector<bool> was_used_;             ///< likewise
    std::vector<Vcq*> active_;               ///< with posts under way
};

} // namespace swarm
