// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: posts and polls of a VCQ that instruments watch (job/instruments.h): the one place where these are called.
// Called by: tni/. Calls: the instruments.
#include "tni/watch.h"

#include <new>

namespace tofu::sim {

void WatchedDeleter::operator()(Watched* watched) const noexcept
{
    watched->tcq.close();
    watched->local_notices.close();
    delete watched;
}

bool open_watch(Vcq& vcq) noexcept
{
    vcq.watch.reset(new (std::nothrow) Watched);
    return vcq.watch != nullptr && vcq.watch->tcq.open(toq_entries) &&
           vcq.watch->local_notices.open(vcq.mrq_capacity);
}

Watch watch_post(Vcq&, const Descriptor&, const Remote*) noexcept
{
    return {};
}

void watch_poll_tcq(Vcq&, int, const Stamp&) noexcept {}

void watch_poll_mrq(Vcq&, int, const Stamp&, const utofu_mrq_notice&) noexcept {}

} // namespace tofu::sim
