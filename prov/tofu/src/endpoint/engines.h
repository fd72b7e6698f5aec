// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engines of an endpoint or a context: made by fi_enable where the caps ask for them, gone with fi_close. Part of an
// endpoint, whose rounds of progress ask each; calls their constructors.
#pragma once

#include <memory>

#include "context/own_tx_context.h"
#include "context/rx_context.h"

namespace tofu {

class AtomicEngine;
class RmaEngine;
namespace coll {
class Collectives;
}
namespace proto {
class Messenger;
}

/// Null: the caps do not ask for it. The tx context knows those that post from it (Engines).
struct EndpointEngines {
    EndpointEngines() noexcept;
    ~EndpointEngines();
    /// `joins`: FI_COLLECTIVE counts. 0 or -FI_E*; then what was made has to be dropped.
    [[nodiscard]] int make(OwnTxContext& tx, RxContext& rx, bool joins) noexcept;
    /// Takes the lock.
    void drop(OwnTxContext& tx) noexcept;

    std::unique_ptr<RmaEngine> rma;
    std::unique_ptr<AtomicEngine> atomic;
    std::unique_ptr<proto::Messenger> messages;
    std::unique_ptr<coll::Collectives> collectives;
};

} // namespace tofu
