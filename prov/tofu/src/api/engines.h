// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The engines of an endpoint or a context: fi_enable makes those that the caps ask for, fi_close destroys them. Part of
// an endpoint, whose rounds of progress call each; calls their constructors.
#pragma once

#include <memory>

#include "tx/own_tx_context.h"
#include "tx/rx_context.h"

namespace tofu {

class AtomicEngine;
class RmaEngine;
namespace coll {
class Collectives;
}
namespace proto {
class Messenger;
}

/// The engines; null where the caps do not ask for one. The tx context has a list of those that post from it (Engines).
struct EndpointEngines {
    EndpointEngines() noexcept;
    ~EndpointEngines();
    /// Makes the engines. `joins`: the endpoint may join collective groups. 0 or -FI_E*; after an error the caller
    /// calls drop().
    [[nodiscard]] int make(OwnTxContext& tx, RxContext& rx, bool joins) noexcept;
    /// Destroys the engines. Takes the context's lock.
    void drop(OwnTxContext& tx) noexcept;

    std::unique_ptr<RmaEngine> rma;
    std::unique_ptr<AtomicEngine> atomic;
    std::unique_ptr<proto::Messenger> messages;
    std::unique_ptr<coll::Collectives> collectives;
};

} // namespace tofu
