// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The failure of an operation that has no request. Apart from complete(), for which tests of atomics have their own.
#include "transfer/request.h"

namespace tofu {

void report_failure(const Reports& to, std::uint64_t flags, void* context, int utofu_code) noexcept
{
    Request request;
    request.report_to(to, flags, context, true);
    note(request, utofu_code);
    complete(request);
}

} // namespace tofu
