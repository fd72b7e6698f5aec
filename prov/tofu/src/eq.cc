// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See eq.h. fi_eq(3). All of it is slow path: the standard library's containers and locks do.
#include "eq.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric.h"
#include "log.h"

namespace tofu {
namespace {

int close_eq(struct fid* fid)
{
    return EventQueue::of(reinterpret_cast<fid_eq*>(fid)).close();
}
int bind_eq(struct fid*, struct fid*, std::uint64_t)
{
    return -FI_ENOSYS;
}
int control_eq(struct fid* fid, int command, void* argument)
{
    return EventQueue::of(reinterpret_cast<fid_eq*>(fid)).control(command, argument);
}
int open_eq_ops(struct fid*, const char*, std::uint64_t, void**, void*)
{
    return -FI_ENOSYS;
}
ssize_t read(fid_eq* eq, std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags)
{
    return EventQueue::of(eq).read(event, buffer, length, flags);
}
ssize_t read_error(fid_eq*, fi_eq_err_entry*, std::uint64_t)
{
    return -FI_EAGAIN; // nothing in this provider fails by way of an event
}
ssize_t write(fid_eq* eq, std::uint32_t event, const void* buffer, std::size_t length, std::uint64_t)
{
    return EventQueue::of(eq).write(event, buffer, length);
}
ssize_t wait_and_read(fid_eq* eq, std::uint32_t* event, void* buffer, std::size_t length, int timeout,
                      std::uint64_t flags)
{
    return EventQueue::of(eq).wait_and_read(event, buffer, length, timeout, flags);
}
const char* error_text(fid_eq*, int prov_errno, const void*, char* buffer, std::size_t length)
{
    const char* text = fi_strerror(prov_errno);
    if (buffer != nullptr && length > 0)
        std::snprintf(buffer, length, "%s", text);
    return text;
}

fi_ops fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_eq,
    .bind = bind_eq,
    .control = control_eq,
    .ops_open = open_eq_ops,
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

EventQueue::EventQueue(Fabric& fabric, fi_wait_obj object, bool writable) noexcept
    : fabric_(fabric), wait_object_(object), writable_(writable)
{
}

EventQueue::~EventQueue()
{
    if (event_fd_ >= 0)
        ::close(event_fd_);
}

int EventQueue::open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** eq, void* context)
{
    static constexpr fi_eq_attr defaults{};
    const fi_eq_attr& wish = attr != nullptr ? *attr : defaults;
    if ((wish.flags & ~(FI_WRITE | FI_AFFINITY)) != 0)
        return -FI_EINVAL;
    fi_wait_obj object = wish.wait_obj;
    if (object == FI_WAIT_SET || object == FI_WAIT_POLLFD || object == FI_WAIT_MUTEX_COND)
        return -FI_ENOSYS;
    Fabric& owner = Fabric::of(fabric);
    auto* made = new (std::nothrow) EventQueue(owner, object, (wish.flags & FI_WRITE) != 0);
    if (made == nullptr)
        return -FI_ENOMEM;
    if (object == FI_WAIT_FD && (made->event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        delete made;
        return -FI_ENOMEM;
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
    fabric_.release();
    delete this;
    return 0;
}

int EventQueue::control(int command, void* argument) noexcept
{
    switch (command) {
    case FI_GETWAITOBJ: *static_cast<fi_wait_obj*>(argument) = wait_object_; return 0;
    case FI_GETWAIT:
        if (event_fd_ < 0)
            return -FI_ENODATA;
        *static_cast<int*>(argument) = event_fd_;
        return 0;
    default: return -FI_ENOSYS;
    }
}

ssize_t EventQueue::take(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags)
{
    if (events_.empty())
        return -FI_EAGAIN;
    const Event& first = events_.front();
    if (length < first.bytes.size())
        return -FI_ETOOSMALL;
    const auto size = static_cast<ssize_t>(first.bytes.size());
    *event = first.type;
    if (size > 0)
        std::memcpy(buffer, first.bytes.data(), first.bytes.size());
    if ((flags & FI_PEEK) == 0) {
        events_.pop_front();
        std::uint64_t count = 0;
        if (events_.empty() && event_fd_ >= 0 && ::read(event_fd_, &count, sizeof(count)) < 0)
            TOFU_INFO(FI_LOG_EQ, "event descriptor was not readable\n");
    }
    return size;
}

ssize_t EventQueue::read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags)
{
    std::lock_guard guard(mutex_);
    return take(event, buffer, length, flags);
}

ssize_t EventQueue::wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                                  std::uint64_t flags)
{
    if (wait_object_ == FI_WAIT_NONE)
        return -FI_EINVAL;
    std::unique_lock guard(mutex_);
    auto some = [this] { return !events_.empty(); };
    if (timeout_ms < 0)
        arrived_.wait(guard, some);
    else
        arrived_.wait_for(guard, std::chrono::milliseconds(timeout_ms), some);
    return take(event, buffer, length, flags);
}

ssize_t EventQueue::write(std::uint32_t event, const void* buffer, std::size_t length)
{
    if (!writable_)
        return -FI_EINVAL; // fi_eq(3): only queues opened with FI_WRITE
    std::lock_guard guard(mutex_);
    const char* bytes = static_cast<const char*>(buffer);
    events_.push_back({event, {bytes, bytes + length}});
    const std::uint64_t one = 1;
    if (event_fd_ >= 0 && ::write(event_fd_, &one, sizeof(one)) < 0)
        TOFU_INFO(FI_LOG_EQ, "event descriptor was full\n");
    arrived_.notify_one();
    return static_cast<ssize_t>(length);
}

} // namespace tofu
