// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a tx context asks of the engines that post from it (rma, atomic, messages, collectives): when a fence waits,
// when the context closes, and when an unsignaled communication has failed. Engines is the list of a context's engines.
// Implemented by the engines; none of it is on a hot path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <utofu.h>

#include "utofu/vcq.h"

namespace tofu {

struct Peer;

/// All calls are made under the context's lock.
class Engine {
  public:
    enum Kind : std::uint8_t { rma, atomic, messages, collectives };
    static constexpr unsigned kinds = 4;

    /// True if no operation of the engine is under way to this peer. Operations in the pending queue
    /// (tx/pending_queue.h) do not count: a fence asks that queue itself.
    [[nodiscard]] virtual bool idle_towards(const Peer& peer) const noexcept = 0;
    /// True if nothing that the engine accepted still has to leave the process: the context may be closed at once.
    [[nodiscard]] virtual bool all_has_left() const noexcept = 0;
    /// True if something is under way that only polls can continue.
    [[nodiscard]] virtual bool needs_polls() const noexcept { return false; }
    /// Has the peer taken (`matched`: and matched with receives) what was sent to it? False: the peer is being asked;
    /// call again later.
    [[nodiscard]] virtual bool settled(const Peer&, bool) noexcept { return true; }
    /// Cancels what waits. From now on the engine begins nothing.
    virtual void close() noexcept = 0;
    /// An unsignaled communication to the VCQ `peer` has failed. It may be one of this engine.
    virtual void lost(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept = 0;

  protected:
    ~Engine() = default;
};

/// The engines of one context: at most one of each kind, as the caps ask for.
class Engines {
  public:
    void add(Engine::Kind kind, Engine& engine) noexcept { engines_[kind] = &engine; }
    void clear() noexcept { std::fill(std::begin(engines_), std::end(engines_), nullptr); }
    /// May be null.
    [[nodiscard]] Engine* operator[](Engine::Kind kind) const noexcept { return engines_[kind]; }
    template <class Holds>
    [[nodiscard]] bool all(Holds&& holds) const noexcept
    {
        return std::all_of(std::begin(engines_), std::end(engines_),
                           [&](Engine* engine) { return engine == nullptr || holds(*engine); });
    }
    void close() const noexcept
    {
        for (Engine::Kind kind : {Engine::messages, Engine::atomic, Engine::rma, Engine::collectives})
            if (engines_[kind] != nullptr)
                engines_[kind]->close();
    }
    void lost(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t peer) const noexcept
    {
        for (Engine* engine : engines_)
            if (engine != nullptr)
                engine->lost(utofu_code, kind, peer);
    }

  private:
    Engine* engines_[Engine::kinds] = {};
};

} // namespace tofu
