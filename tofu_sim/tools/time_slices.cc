// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Short turns for processes that outnumber the processors, whatever they do with them.
#include "tools/time_slices.h"

#include "job/short_slices.h"
#include "tools/processors.h"

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <sched.h>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

namespace tofu::sim::tools {
namespace {

constexpr long turn_ns = 100'000;

} // namespace

ShortTimeSlices::ShortTimeSlices(size_t processes, const Processors& processors)
{
    if (processors.at_a_time() >= processes || processors.allowed().empty())
        return;
    processors_ = processors.allowed();
    ask_for_short_slices();
    std::fprintf(stderr, "tofu-sim: more processes (%zu) than processors (%s): time slices of 0.1 ms\n", processes,
                 processors.text().c_str());
}

ShortTimeSlices::~ShortTimeSlices()
{
    over_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_)
        thread.join();
}

void ShortTimeSlices::start()
{
    for (const int processor : processors_) {
        try {
            threads_.emplace_back([this, processor] { wake_on(processor); });
        } catch (const std::system_error&) {
            return; // turns are longer then
        }
    }
}

void ShortTimeSlices::wake_on(int processor) const noexcept
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    (void)::prctl(PR_SET_TIMERSLACK, 1);
    if (::sched_setaffinity(0, sizeof one, &one) != 0)
        return; // it has been taken from us
    constexpr timespec turn{0, turn_ns};
    while (!over_.load(std::memory_order_relaxed))
        (void)::nanosleep(&turn, nullptr);
}

} // namespace tofu::sim::tools
