// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress of all endpoints of the process, for an object that waits for one of them while it closes. Called by
// endpoint and domain; calls the progress sets of all domains.
#pragma once

namespace tofu {

class DomainBase;

/// One bounded round for the endpoints of the caller's domain, and of each other domain of the process whose locks are
/// on. Those of a domain without locks may be in use by another thread. Left out are also domains with an owner of
/// their receives, which does not expect messages now. The caller holds no lock.
void progress_everywhere(DomainBase& own) noexcept;

} // namespace tofu
