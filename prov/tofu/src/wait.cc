// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See wait.h.
#include "wait.h"

#include <algorithm>
#include <ctime>

#include <rdma/fi_errno.h>
#include <sched.h>

#include "domain.h"
#include "progress.h"

namespace tofu {
namespace {

constexpr int slice_ms = 10;         ///< a signal of another thread is seen within this time
constexpr unsigned busy_rounds = 64; ///< looks before the first sleep: what is about to come saves a wake-up
constexpr std::size_t max_vcqs = 64; ///< handed to the backend; arrivals by other VCQs are seen after a slice

} // namespace

Deadline::Deadline(int timeout_ms) noexcept
    : end_(std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0))),
      never_(timeout_ms < 0)
{
}

bool Deadline::passed() const noexcept
{
    return !never_ && std::chrono::steady_clock::now() >= end_;
}

int Deadline::left_ms(int most) const noexcept
{
    if (never_)
        return most;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end_ - std::chrono::steady_clock::now() + std::chrono::microseconds(999));
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, most));
}

Sleeper::Sleeper(Domain& domain, ProgressSet& set, const Deadline& deadline) noexcept
    : domain_(domain), set_(set), deadline_(deadline)
{
}

bool Sleeper::sleep() noexcept
{
    if (deadline_.passed())
        return false;
    if (rounds_++ < busy_rounds) {
        sched_yield();
        return true;
    }
    if (auto wait = domain_.backend().functions().wait) {
        utofu_vcq_hdl_t vcqs[max_vcqs];
        const std::size_t count = set_.vcqs(vcqs, max_vcqs);
        if (wait(vcqs, count, deadline_.left_ms(slice_ms)) >= 0)
            return true;
    }
    // 1 us, doubled up to 1 ms
    const long pause_ns = 1000L << std::min(rounds_ - busy_rounds, 10u);
    const timespec pause{0, std::min(pause_ns, 1000000L)};
    nanosleep(&pause, nullptr);
    return true;
}

bool wait_object_offered(fi_wait_obj object) noexcept
{
    return object == FI_WAIT_NONE || object == FI_WAIT_UNSPEC || object == FI_WAIT_YIELD;
}

int open_wait_set(fid_fabric*, fi_wait_attr*, fid_wait**)
{
    return -FI_ENOSYS;
}

int try_wait(fid_fabric*, struct fid**, int)
{
    return -FI_ENOSYS;
}

int open_poll_set(fid_domain*, fi_poll_attr*, fid_poll**)
{
    return -FI_ENOSYS;
}

} // namespace tofu
