// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_eq: control events. A connectionless provider has few of its own, those of asynchronous address insertion
// (av.cc); the application may write others. Called by the application through fabric, and by av.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <rdma/fi_eq.h>
#include <sys/types.h>

#include "progress/wait.h"
#include "provider/array.h"
#include "provider/counted.h"

namespace tofu {

class FabricBase;
class Pollable;

class EventQueue final : public fid_eq, public Counted {
  public:
    /// fi_eq_open(3); holds the fabric. 0, -FI_EINVAL, -FI_ENOMEM, or an error of the wait object (-FI_ENOSYS: not
    /// offered).
    static int open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** eq, void* context) noexcept;
    static EventQueue& of(fid_eq* e) noexcept { return *static_cast<EventQueue*>(e); }

    /// An event of the provider's own, or an error in its place. Any thread. Without memory for it the reader finds an
    /// error FI_EOVERRUN.
    void post(std::uint32_t event, const fi_eq_entry& entry);
    void post_error(const fi_eq_err_entry& error);

    /// Whoever reads the queue and finds nothing makes progress of this one: events of endpoints are joins, which go on
    /// by polls (fi_domain(3), control_progress). 0 or -FI_ENOMEM.
    [[nodiscard]] int add(Pollable& endpoint) noexcept;
    void remove(Pollable& endpoint) noexcept;

    // --- the calls of fi_eq's operation table
    ssize_t read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags);
    ssize_t read_error(fi_eq_err_entry* entry, std::uint64_t flags);
    ssize_t wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                          std::uint64_t flags);
    ssize_t write(std::uint32_t event, const void* buffer, std::size_t length);
    [[nodiscard]] WaitObject& wait_object() noexcept { return wait_; }
    int close() noexcept;

  private:
    struct Event {
        Event* next;
        std::uint32_t type;
        std::size_t size;      ///< of its bytes, which follow
        fi_eq_err_entry error; ///< where error.err is not 0: an error instead of an event

        [[nodiscard]] char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
    };
    EventQueue(FabricBase& fabric, bool writable) noexcept : fabric_(fabric), writable_(writable) {}
    ~EventQueue();
    static bool ready(void* self) noexcept;
    ssize_t take(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags);
    /// 0 or -FI_ENOMEM.
    int append(std::uint32_t type, const void* bytes, std::size_t size, const fi_eq_err_entry& error);
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr && !overrun_; }
    [[nodiscard]] bool poll() noexcept;
    void drop_first() noexcept;
    void overrun() noexcept;
    void wake() noexcept;

    FabricBase& fabric_;
    bool writable_;
    std::mutex polled_mutex_; ///< before locks of endpoints; these before mutex_
    Array<Pollable*> polled_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    Event* first_ = nullptr;
    Event** end_ = &first_; ///< where the next one goes
    bool overrun_ = false;  ///< behind the last event some were lost, for want of memory
    WaitObject wait_; ///< last: leaves its wait set before the rest goes
};

} // namespace tofu
