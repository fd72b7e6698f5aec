// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_eq: control events. A connectionless provider has few of its own: of asynchronous address insertion
// (api/av.cc) and of joins (module coll), which a waiter continues by its polls. The application may write others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <rdma/fi_eq.h>
#include <sys/types.h>

#include "core/containers.h"
#include "core/object.h"
#include "cq/progress.h"
#include "cq/wait.h"

namespace tofu {

class DomainBase;

class EventQueue final : public Object<EventQueue, fid_eq, FabricBase>, public ProgressSource, ForkAware {
  public:
    explicit EventQueue(FabricBase& fabric) noexcept;
    ~EventQueue();
    /// fi_eq_open(3). 0, -FI_EINVAL, or an error of the wait object (-FI_ENOSYS: not offered).
    [[nodiscard]] int set_up(const fi_eq_attr* attr) noexcept;

    /// Adds an event of the provider's own, or an error in its place. Any thread. Without memory for it the reader
    /// finds an error FI_EOVERRUN.
    void post(std::uint32_t event, const fi_eq_entry& entry) noexcept
    {
        post(entry.fid, event, &entry, sizeof(entry), {});
    }
    void post_error(const fi_eq_err_entry& error) noexcept { post(error.fid, 0, nullptr, 0, error); }

    /// Removes the events, errors included, of an object that is closed: another object may get its address.
    void forget(const struct fid& object) noexcept;

    /// Adds an endpoint whose progress is made by any reader or waiter that finds the queue empty: the events of
    /// endpoints are those of joins, which go on by polls (fi_domain(3), control_progress). 0 or -FI_ENOMEM.
    [[nodiscard]] int add(Pollable& endpoint, DomainBase& domain) noexcept;
    /// A join of the endpoint begins. Where the application may wait for its event by its own means, on a descriptor or
    /// a condition, the domain's thread polls from now on until remove(). If the queue is that of several domains, a
    /// domain of FI_THREAD_DOMAIN gets locks. 0 or an error of the thread. The caller holds no lock.
    [[nodiscard]] int need_polls(const Pollable& endpoint) noexcept;
    void remove(Pollable& endpoint) noexcept;

    // --- of ProgressSource: the endpoints that were added
    bool run(bool patient) noexcept override;
    [[nodiscard]] std::size_t vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept override;

    // --- the calls of fi_eq's operation table
    ssize_t read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept;
    ssize_t read_error(fi_eq_err_entry* entry, std::uint64_t flags) noexcept;
    ssize_t wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms, std::uint64_t flags);
    ssize_t write(std::uint32_t event, const void* buffer, std::size_t length, std::uint64_t flags) noexcept;
    int control(int command, void* argument) noexcept { return wait_.control(command, argument); }
    [[nodiscard]] WaitObject& wait_object() noexcept { return wait_; }

  private:
    struct Event {
        Event* next;
        const struct fid* about; ///< null: written by the application
        std::uint32_t type;
        std::size_t size;      ///< of its bytes, which follow in memory
        fi_eq_err_entry error; ///< if error.err is not 0: an error instead of an event

        [[nodiscard]] char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
    };
    void in_child() noexcept override;
    static bool ready(void* self) noexcept { return !static_cast<EventQueue*>(self)->empty_now(); }
    ssize_t pop(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept;
    void post(const struct fid* about, std::uint32_t type, const void* bytes, std::size_t size,
              const fi_eq_err_entry& error) noexcept;
    /// 0 or -FI_ENOMEM.
    int append(const struct fid* about, std::uint32_t type, const void* bytes, std::size_t size,
               const fi_eq_err_entry& error) noexcept;
    [[nodiscard]] bool empty() const noexcept { return events_.empty() && !overrun_; }
    [[nodiscard]] bool empty_now() noexcept; ///< takes mutex_
    void drop_first() noexcept { std::free(&events_.pop_front()); }
    void wake() noexcept;

    struct Polled {
        Pollable* endpoint = nullptr;
        DomainBase* domain = nullptr;
        bool has_thread = false;  ///< the domain's thread polls because of it
        bool has_locks = false;   ///< any thread may poll it
        std::thread::id joiner{}; ///< the thread that has begun its last join
        bool operator==(const Polled& other) const noexcept { return endpoint == other.endpoint; }
    };
    [[nodiscard]] bool has_several_domains() const noexcept;
    /// May this thread poll the endpoint? With FI_THREAD_DOMAIN one thread at a time uses a domain, without locks. The
    /// readers of a queue of several domains may be the threads of the others.
    [[nodiscard]] static bool may_poll(const Polled& polled, bool several_domains) noexcept
    {
        return polled.has_locks || !several_domains || polled.joiner == std::this_thread::get_id();
    }
    bool writable_ = false; ///< FI_WRITE
    Mutex polled_mutex_;    ///< taken before locks of endpoints, which are taken before mutex_
    Array<Polled> polled_;
    std::mutex mutex_;
    std::condition_variable arrived_; ///< an event, or the first endpoint to poll
    bool polls_ = false;              ///< there are endpoints to poll
    List<Event, &Event::next> events_;
    bool overrun_ = false; ///< events after the last one were lost, for want of memory
    WaitObject wait_;      ///< last member: leaves its wait set before the others are destroyed
};

} // namespace tofu
