// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_eq: control events. A connectionless provider makes none by itself; the application may write its own.
// Called by the application through fabric; calls nothing below.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include <rdma/fi_eq.h>
#include <sys/types.h>

namespace tofu {

class Fabric;

class EventQueue final : public fid_eq {
  public:
    static int open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** eq, void* context);
    static EventQueue& of(fid_eq* e) noexcept { return *static_cast<EventQueue*>(e); }

    // --- the calls of fi_eq's operation table
    ssize_t read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags);
    ssize_t wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                          std::uint64_t flags);
    ssize_t write(std::uint32_t event, const void* buffer, std::size_t length);
    int control(int command, void* argument) noexcept;
    int close() noexcept;

  private:
    struct Event {
        std::uint32_t type;
        std::vector<char> bytes;
    };
    EventQueue(Fabric& fabric, fi_wait_obj object, bool writable) noexcept;
    ~EventQueue();
    ssize_t take(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags);

    Fabric& fabric_;
    fi_wait_obj wait_object_;
    bool writable_;
    int event_fd_ = -1; ///< readable while an event waits; FI_WAIT_FD only
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Event> events_;
};

} // namespace tofu
