// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See everywhere.h.
#include "cq/everywhere.h"

#include "cq/domain_base.h"

namespace tofu {

void progress_everywhere(DomainBase& own) noexcept
{
    DomainBase::all().each([&own](DomainBase& domain) {
        const bool safe = &domain == &own || !domain.model().serialised;
        if (safe && !domain.model().has_owner)
            (void)domain.auto_progress().everything().run();
    });
}

} // namespace tofu
