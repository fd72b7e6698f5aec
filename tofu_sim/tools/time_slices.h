// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Short turns for processes that outnumber the processors, whatever they do with them.
//
// A program that spins on its own memory makes no call in which it could yield, and the kernel lets it run until
// its time slice is over or, where slices end with the clock's tick, for 4 ms. We ask for slices of 0.1 ms (Linux 6.12
// and later), and on each processor a thread of the command wakes up as often: then the kernel chooses the next thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace tofu::sim::tools {

class Processors;

class ShortTimeSlices {
  public:
    /// Before the first process is started, which inherits the slices: says on stderr what it does where `processes`
    /// outnumber the processors that can run at a time, else nothing.
    ShortTimeSlices(size_t processes, const Processors& processors);
    ~ShortTimeSlices();
    ShortTimeSlices(const ShortTimeSlices&) = delete;
    ShortTimeSlices& operator=(const ShortTimeSlices&) = delete;

    /// After the last process has been forked.
    void start();

  private:
    void wake_on(int processor) const noexcept;

    std::vector<int> processors_; ///< none: each process has one
    std::vector<std::thread> threads_;
    std::atomic<bool> over_{false};
};

} // namespace tofu::sim::tools
