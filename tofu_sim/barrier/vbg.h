// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The gates of this process: allocation, setting, starting and polling a circuit (guide 3.4, 3.8).
#pragma once

#include "barrier/circuit.h"
#include "topology/topology.h"

#include <utofu.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <span>

namespace tofu::sim {

/// What the gates of a process need of its job. Tests bring their own.
struct VbgHost {
    uint32_t node = 0;
    Topology topology;
    Gates gates;
    CircuitHost circuit;
    /// Allocates or frees a gate of the own node (gate_on_node).
    bool (*claim)(void* context, unsigned gate) noexcept = nullptr;
    void (*release)(void* context, unsigned gate) noexcept = nullptr;
    /// Makes sure that the pages of the gates around this one exist; an error code.
    int (*back)(void* context, GateRef gate) noexcept = nullptr;
};

enum class Kind : uint8_t { none, barrier, integers, doubles };

/// One start/end gate with its relay gates, as one utofu_alloc_vbg gave them.
class VbgSet {
  public:
    /// A lock if it was asked for (UTOFU_VBG_FLAG_THREAD_SAFE).
    class Guard {
      public:
        explicit Guard(VbgSet& set) noexcept : set_(set.thread_safe_ ? &set : nullptr)
        {
            if (set_ != nullptr)
                set_->mutex_.lock();
        }
        ~Guard()
        {
            if (set_ != nullptr)
                set_->mutex_.unlock();
        }
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;

      private:
        VbgSet* set_;
    };

    /// Starts a round with this process's part; BUSY while one is under way.
    [[nodiscard]] int start(const Circuit& circuit, Kind kind, const Packet& own) noexcept;
    /// SUCCESS, INVALID_VBG_ID, or BUSY if no round of this kind is under way.
    [[nodiscard]] int check(Kind kind) const noexcept;
    /// The result of the round, once; BUSY if none of this kind is under way.
    [[nodiscard]] int poll(const Circuit& circuit, Kind kind, Packet& result) noexcept;
    /// With the virtual clock: when the round's end can be found; the end of time while it has not come.
    [[nodiscard]] uint64_t ends_at(const Circuit& circuit) const noexcept;
    [[nodiscard]] GateRef start_gate() const noexcept { return start_gate_; }
    /// Exact mode: see TurnedCall::wait.
    [[nodiscard]] uint64_t& vain_polls() noexcept { return vain_polls_; }
    /// Any thread.
    [[nodiscard]] bool is_under_way() const noexcept
    {
        return used_.load(std::memory_order_relaxed) && kind() != Kind::none;
    }

  private:
    friend class Vbgs;

    [[nodiscard]] int poll_slowly(const Circuit& circuit, Packet& result) noexcept;
    void learn() noexcept;
    void count_turn(const Circuit& circuit) const noexcept;
    [[nodiscard]] int finish(int code, const Packet& result) noexcept;
    [[nodiscard]] Kind kind() const noexcept { return kind_.load(std::memory_order_relaxed); }
    void set_kind(Kind kind) noexcept { kind_.store(kind, std::memory_order_relaxed); }

    std::atomic<bool> used_{false};
    bool thread_safe_ = false;
    bool configured_ = false;
    std::atomic<Kind> kind_{Kind::none}; ///< of the round under way
    uint8_t num_gates_ = 0;
    uint8_t gates_[gates_per_tni] = {}; ///< numbers on the TNI, in the order they were given
    GateRef start_gate_ = null_gate;
    Tag tag_;    ///< of the round under way, or of the last one
    Packet own_; ///< what this process gave
    /// Idle polls of the round, and the number after which the thread yields: fewer when rounds
    /// take long in spite of that, more when they end soon, so that two processes on two cores spin and many on few
    /// do not.
    uint32_t fruitless_ = 0;
    uint32_t patience_ = 64;
    uint64_t slow_since_ns_ = 0;
    uint64_t next_look_ns_ = 0; ///< for dead participants
    uint64_t look_pause_ns_ = 0;
    uint64_t vain_polls_ = 0;
    std::mutex mutex_;
};

class Vbgs {
  public:
    explicit Vbgs(const VbgHost& host) noexcept;

    [[nodiscard]] int alloc(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long flags,
                            utofu_vbg_id_t* vbg_ids) noexcept;
    [[nodiscard]] int free(const utofu_vbg_id_t* vbg_ids, size_t num_vbgs) noexcept;
    [[nodiscard]] int set(const utofu_vbg_setting* settings, size_t num_settings) noexcept;

    /// Whether a round of this process is under way. Its end rings no doorbell. Any thread; slow.
    [[nodiscard]] bool are_under_way() const noexcept;
    /// The set whose start/end gate this is; null: not of this process.
    [[nodiscard]] VbgSet* find(utofu_vbg_id_t vbg_id) noexcept;
    [[nodiscard]] const Circuit& circuit() const noexcept { return circuit_; }

    /// The gate that an ID names; nothing if it is invalid.
    [[nodiscard]] static std::optional<GateRef> gate_of(const Topology& topology, utofu_vbg_id_t vbg_id) noexcept;

  private:
    [[nodiscard]] bool claim_gates(unsigned tni, size_t count, VbgSet& set, unsigned& start) noexcept;
    void release_gates(unsigned tni, std::span<const uint8_t> gates) noexcept;
    [[nodiscard]] int check(const VbgSet& set, const utofu_vbg_setting& setting, GateSetting& out) noexcept;
    void write_gate(GateRef gate, const GateSetting& setting) noexcept;
    [[nodiscard]] int check_end(utofu_vbg_id_t id, bool local, GateRef& gate) noexcept;
    [[nodiscard]] utofu_vbg_id_t id_of(GateRef gate) const noexcept;

    VbgHost host_;
    Circuit circuit_;
    std::mutex slow_path_; ///< alloc, free, set
    VbgSet sets_[tnis_per_node][start_gates_per_tni];
};

} // namespace tofu::sim
