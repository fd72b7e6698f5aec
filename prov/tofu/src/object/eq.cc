// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See eq.h. fi_eq(3). All of it is slow path: the standard library's containers and locks do.
#include "object/eq.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "object/fabric.h"
#include "provider/log.h"
#include "provider/refusal.h"

namespace tofu {
namespace {

EventQueue& of_fid(struct fid* fid) noexcept
{
    return EventQueue::of(reinterpret_cast<fid_eq*>(fid));
}
int close_eq(struct fid* fid) noexcept
{
    return of_fid(fid).close();
}
int control_eq(struct fid* fid, int command, void* argument) noexcept
{
    return of_fid(fid).wait_object().control(command, argument);
}
ssize_t read(fid_eq* eq, std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept
{
    return EventQueue::of(eq).read(event, buffer, length, flags);
}
ssize_t read_error(fid_eq* eq, fi_eq_err_entry* entry, std::uint64_t flags) noexcept
{
    return EventQueue::of(eq).read_error(entry, flags);
}
ssize_t write(fid_eq* eq, std::uint32_t event, const void* buffer, std::size_t length, std::uint64_t) noexcept
{
    return EventQueue::of(eq).write(event, buffer, length);
}
ssize_t wait_and_read(fid_eq* eq, std::uint32_t* event, void* buffer, std::size_t length, int timeout,
                      std::uint64_t flags) noexcept
{
    return EventQueue::of(eq).wait_and_read(event, buffer, length, timeout, flags);
}
const char* error_text(fid_eq*, int prov_errno, const void*, char* buffer, std::size_t length) noexcept
{
    const char* text = fi_strerror(prov_errno);
    if (buffer != nullptr && length > 0)
        std::snprintf(buffer, length, "%s", text);
    return text;
}

fi_ops fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_eq,
    .bind = refuses<-FI_ENOSYS>,
    .control = control_eq,
    .ops_open = refuses<-FI_ENOSYS>,
    .tostr = nullptr,
    .ops_set = nullptr,
};

fi_ops_eq eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = read,
    .readerr = read_error,
    .write = write,
    .sread = wait_and_read,
    .strerror = error_text,
};

} // namespace

int EventQueue::open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** eq, void* context) noexcept
{
    static constexpr fi_eq_attr defaults{};
    const fi_eq_attr& wish = attr != nullptr ? *attr : defaults;
    if (eq == nullptr || (wish.flags & ~(FI_WRITE | FI_AFFINITY)) != 0)
        return -FI_EINVAL;
    Fabric& owner = Fabric::of(fabric);
    auto* made = new (std::nothrow) EventQueue(owner, (wish.flags & FI_WRITE) != 0);
    if (made == nullptr)
        return -FI_ENOMEM;
    const WaitObject::Owner self{made, ready, nullptr, nullptr};
    if (int error = made->wait_.open(self, wish.wait_obj, wish.wait_set); error != 0) {
        delete made;
        return error;
    }
    made->fid.fclass = FI_CLASS_EQ;
    made->fid.context = context;
    made->fid.ops = &fid_ops;
    made->ops = &eq_ops;
    owner.hold();
    *eq = made;
    return 0;
}

int EventQueue::close() noexcept
{
    if (users_.load(std::memory_order_relaxed) != 0)
        return -FI_EBUSY;
    fabric_.release();
    delete this;
    return 0;
}

bool EventQueue::ready(void* self) noexcept
{
    auto& eq = *static_cast<EventQueue*>(self);
    std::lock_guard guard(eq.mutex_);
    return !eq.events_.empty();
}

// --- writing

void EventQueue::append(Event&& event)
{
    {
        std::lock_guard guard(mutex_);
        events_.push_back(std::move(event));
    }
    arrived_.notify_all(); // who is woken need not take it: FI_PEEK, an error, too little room
    wait_.signal();
}

void EventQueue::post(std::uint32_t event, const fi_eq_entry& entry)
{
    const char* bytes = reinterpret_cast<const char*>(&entry);
    append({event, {bytes, bytes + sizeof(entry)}, {}});
}

void EventQueue::post_error(const fi_eq_err_entry& error)
{
    append({0, {}, error});
}

ssize_t EventQueue::write(std::uint32_t event, const void* buffer, std::size_t length)
{
    if (!writable_ || (buffer == nullptr && length != 0))
        return -FI_EINVAL; // fi_eq(3): only queues opened with FI_WRITE
    const char* bytes = static_cast<const char*>(buffer);
    append({event, {bytes, bytes + length}, {}});
    return static_cast<ssize_t>(length);
}

// --- reading

ssize_t EventQueue::take(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags)
{
    if (events_.empty())
        return -FI_EAGAIN;
    const Event& first = events_.front();
    if (first.error.err != 0)
        return -FI_EAVAIL;
    if (length < first.bytes.size())
        return -FI_ETOOSMALL;
    const auto size = static_cast<ssize_t>(first.bytes.size());
    *event = first.type;
    if (size > 0)
        std::memcpy(buffer, first.bytes.data(), first.bytes.size());
    if ((flags & FI_PEEK) == 0)
        events_.pop_front();
    return size;
}

ssize_t EventQueue::read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags)
{
    std::lock_guard guard(mutex_);
    return take(event, buffer, length, flags);
}

ssize_t EventQueue::read_error(fi_eq_err_entry* entry, std::uint64_t flags)
{
    std::lock_guard guard(mutex_);
    if (events_.empty() || events_.front().error.err == 0)
        return -FI_EAGAIN;
    // There is never provider data; err_data and its size may be a buffer of the caller's (fi_eq(3), since 1.5).
    void* data = entry->err_data_size != 0 ? entry->err_data : nullptr;
    *entry = events_.front().error;
    entry->err_data = data;
    entry->err_data_size = 0;
    if ((flags & FI_PEEK) == 0)
        events_.pop_front();
    return sizeof(*entry);
}

ssize_t EventQueue::wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                                  std::uint64_t flags)
{
    if (!wait_.blocks())
        return -FI_EINVAL;
    std::unique_lock guard(mutex_);
    auto some = [this] { return !events_.empty(); };
    if (timeout_ms < 0)
        arrived_.wait(guard, some);
    else
        arrived_.wait_for(guard, std::chrono::milliseconds(timeout_ms), some);
    return take(event, buffer, length, flags);
}

} // namespace tofu
