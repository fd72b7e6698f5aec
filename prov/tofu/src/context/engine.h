// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a tx context asks of the engines that post from it (rma, atomic, messages): when a fence waits, at its end, and
// when a communication that nobody waits for has failed; and those that a context has. Implemented by the engines;
// none of it is on a hot path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <utofu.h>

#include "vcq/vcq.h"

namespace tofu {

struct Peer;

/// Everything under the context's lock.
class Engine {
  public:
    enum Kind : std::uint8_t { rma, atomic, messages, collectives };
    static constexpr unsigned kinds = 4;

    /// No operation of it is under way to this peer. With those that wait (transfer/pending.h) it is what a fence asks.
    [[nodiscard]] virtual bool idle_towards(const Peer& peer) const noexcept = 0;
    /// Nothing that was taken still has to leave. The context may be closed at once then.
    [[nodiscard]] virtual bool all_has_left() const noexcept = 0;
    /// Something is under way that goes on by polls only.
    [[nodiscard]] virtual bool needs_polls() const noexcept { return false; }
    /// Has the peer taken (`matched`: and given to receives) what was sent to it? False: it is asked; ask again.
    [[nodiscard]] virtual bool settled(const Peer&, bool) noexcept { return true; }
    /// From now on nothing is begun; what waits is cancelled.
    virtual void close() noexcept = 0;
    /// A communication without a waiter failed, towards the VCQ `peer`; perhaps one of the engine.
    virtual void lost(int utofu_code, vcq::Unsignaled kind, utofu_vcq_id_t peer) noexcept = 0;

  protected:
    ~Engine() = default;
};

/// Those of one context: of each kind one at most, as the caps ask for it.
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
