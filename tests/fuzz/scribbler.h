// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer that writes into memory while it is read: what was checked once must not be read again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>

namespace tofu::sim::fuzz {

class Scribbler {
  public:
    Scribbler(void* memory, std::size_t size, std::uint32_t seed)
        : thread_([this, bytes = static_cast<unsigned char*>(memory), size, seed] {
              std::mt19937 random(seed);
              while (!stop_.load(std::memory_order_relaxed)) {
                  const std::size_t at = random() % size;
                  // Not everything turns to noise: each byte comes back.
                  const unsigned char before = std::atomic_ref(bytes[at]).load(std::memory_order_relaxed);
                  std::atomic_ref(bytes[at]).store(static_cast<unsigned char>(random()), std::memory_order_relaxed);
                  std::atomic_ref(bytes[at]).store(before, std::memory_order_relaxed);
              }
          })
    {
    }
    Scribbler(const Scribbler&) = delete;
    Scribbler& operator=(const Scribbler&) = delete;
    ~Scribbler()
    {
        stop_.store(true, std::memory_order_relaxed);
        thread_.join();
    }

  private:
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

} // namespace tofu::sim::fuzz
