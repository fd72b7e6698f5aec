// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See eq.h. fi_eq(3). All of it is slow path: its events are malloc'ed one by one.
#include "queue/eq.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "fid/refusal.h"
#include "progress/progress.h"
#include "provider/log.h"

namespace tofu {
namespace {

const char* error_text(fid_eq*, int prov_errno, const void*, char* buffer, std::size_t length) noexcept
{
    const char* text = fi_strerror(prov_errno);
    if (buffer != nullptr && length > 0)
        std::snprintf(buffer, length, "%s", text);
    return text;
}

fi_ops fid_ops = object_ops({.close = close_object<EventQueue>, .control = calls<&EventQueue::control>});

fi_ops_eq eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = calls<&EventQueue::read>,
    .readerr = calls<&EventQueue::read_error>,
    .write = calls<&EventQueue::write>,
    .sread = calls<&EventQueue::wait_and_read>,
    .strerror = error_text,
};

} // namespace

EventQueue::EventQueue(FabricBase& fabric) noexcept : Object(&fabric, FI_CLASS_EQ)
{
    fid.ops = &fid_ops;
    ops = &eq_ops;
}

int EventQueue::set_up(const fi_eq_attr* attr) noexcept
{
    const fi_eq_attr& wish = given(attr);
    if ((wish.flags & ~(FI_WRITE | FI_AFFINITY)) != 0)
        return -FI_EINVAL;
    writable_ = (wish.flags & FI_WRITE) != 0;
    return wait_.open({this, ready, nullptr, nullptr}, wish.wait_obj, wish.wait_set);
}

bool EventQueue::ready(void* self) noexcept
{
    auto& eq = *static_cast<EventQueue*>(self);
    std::lock_guard guard(eq.mutex_);
    return !eq.empty();
}

// --- writing

EventQueue::~EventQueue()
{
    while (first_ != nullptr)
        drop_first();
}

int EventQueue::append(std::uint32_t type, const void* bytes, std::size_t size, const fi_eq_err_entry& error) noexcept
{
    void* const memory = size <= SIZE_MAX - sizeof(Event) ? std::malloc(sizeof(Event) + size) : nullptr;
    if (memory == nullptr)
        return -FI_ENOMEM;
    auto* const event = ::new (memory) Event{nullptr, type, size, error};
    if (size != 0)
        std::memcpy(event->bytes(), bytes, size);
    {
        std::lock_guard guard(mutex_);
        *end_ = event;
        end_ = &event->next;
    }
    return 0;
}

void EventQueue::drop_first() noexcept
{
    Event* const event = first_;
    first_ = event->next;
    if (first_ == nullptr)
        end_ = &first_;
    std::free(event);
}

void EventQueue::wake() noexcept
{
    arrived_.notify_all(); // who is woken need not take it: FI_PEEK, an error, too little room
    wait_.signal();
}

void EventQueue::post(std::uint32_t type, const void* bytes, std::size_t size, const fi_eq_err_entry& error) noexcept
{
    if (append(type, bytes, size, error) != 0) {
        TOFU_WARN(FI_LOG_EQ, "event queue: no memory for an event: it is lost\n");
        std::lock_guard guard(mutex_);
        overrun_ = true;
    }
    wake();
}

ssize_t EventQueue::write(std::uint32_t event, const void* buffer, std::size_t length, std::uint64_t) noexcept
{
    if (!writable_ || (buffer == nullptr && length != 0))
        return -FI_EINVAL; // fi_eq(3): only queues opened with FI_WRITE
    if (const int ret = append(event, buffer, length, {}); ret != 0)
        return ret;
    wake();
    return static_cast<ssize_t>(length);
}

// --- reading

ssize_t EventQueue::take(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept
{
    if (first_ == nullptr)
        return overrun_ ? -FI_EAVAIL : -FI_EAGAIN;
    if (first_->error.err != 0)
        return -FI_EAVAIL;
    // Without a buffer it is only asked which event there is, as libfabric's own queues let one do.
    const std::size_t size = buffer != nullptr ? first_->size : 0;
    if (length < size)
        return -FI_ETOOSMALL;
    if (event != nullptr)
        *event = first_->type;
    if (size > 0)
        std::memcpy(buffer, first_->bytes(), size);
    if ((flags & FI_PEEK) == 0)
        drop_first();
    return static_cast<ssize_t>(size);
}

ssize_t EventQueue::read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept
{
    std::unique_lock guard(mutex_);
    if (empty()) {
        guard.unlock();
        (void)poll();
        guard.lock();
    }
    return take(event, buffer, length, flags);
}

int EventQueue::add(Pollable& endpoint) noexcept
{
    std::lock_guard guard(polled_mutex_);
    return polled_.push(&endpoint) ? 0 : -FI_ENOMEM;
}

void EventQueue::remove(Pollable& endpoint) noexcept
{
    std::lock_guard guard(polled_mutex_);
    (void)polled_.erase(&endpoint);
}

/// False: there is nobody to poll.
bool EventQueue::poll() noexcept
{
    std::lock_guard guard(polled_mutex_);
    for (Pollable* const endpoint : polled_)
        (void)endpoint->progress(false);
    return !polled_.empty();
}

ssize_t EventQueue::read_error(fi_eq_err_entry* entry, std::uint64_t flags) noexcept
{
    std::lock_guard guard(mutex_);
    if (first_ != nullptr ? first_->error.err == 0 : !overrun_)
        return -FI_EAGAIN;
    fi_eq_err_entry lost{};
    lost.err = FI_EOVERRUN;
    // There is never provider data; err_data and its size may be a buffer of the caller's (fi_eq(3), since 1.5).
    void* data = entry->err_data_size != 0 ? entry->err_data : nullptr;
    *entry = first_ != nullptr ? first_->error : lost;
    entry->err_data = data;
    entry->err_data_size = 0;
    if ((flags & FI_PEEK) != 0)
        return sizeof(*entry);
    if (first_ != nullptr)
        drop_first();
    else
        overrun_ = false;
    return sizeof(*entry);
}

ssize_t EventQueue::wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                                  std::uint64_t flags) noexcept
{
    if (!wait_.blocks())
        return -FI_EINVAL;
    using namespace std::chrono;
    const auto end = steady_clock::now() + milliseconds(timeout_ms);
    constexpr milliseconds slice{1}; // between polls, where there is somebody to poll
    std::unique_lock guard(mutex_);
    const auto some = [this] { return !empty(); };
    while (!some() && (timeout_ms < 0 || steady_clock::now() < end)) {
        guard.unlock();
        const bool polled = poll();
        guard.lock();
        if (polled)
            arrived_.wait_for(guard, slice, some);
        else if (timeout_ms < 0)
            arrived_.wait(guard, some);
        else
            arrived_.wait_until(guard, end, some);
    }
    return take(event, buffer, length, flags);
}

} // namespace tofu
