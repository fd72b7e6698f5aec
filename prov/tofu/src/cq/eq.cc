// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See eq.h. fi_eq(3). All of it is slow path: its events are malloc'ed one by one.
#include "cq/eq.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "cq/domain_base.h"

namespace tofu {
static const char* error_text(fid_eq*, int prov_errno, const void*, char* buffer, std::size_t length) noexcept
{
    // That of a join that has failed is a uTofu code, which is negative, or 0.
    const char* text = prov_errno < 0 ? utofu_text(prov_errno) : fi_strerror(prov_errno);
    if (buffer != nullptr && length > 0)
        std::snprintf(buffer, length, "%s", text);
    return text;
}

static fi_ops eq_fid_ops =
    object_ops({.close = close_object<EventQueue>, .control = bind_member<&EventQueue::control>});

static fi_ops_eq eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = bind_member<&EventQueue::read>,
    .readerr = bind_member<&EventQueue::read_error>,
    .write = bind_member<&EventQueue::write>,
    .sread = bind_member<&EventQueue::wait_and_read>,
    .strerror = error_text,
};

EventQueue::EventQueue(FabricBase& fabric) noexcept : Object(&fabric, FI_CLASS_EQ)
{
    fid.ops = &eq_fid_ops;
    ops = &eq_ops;
    register_fork();
}

/// No thread of the child waits, or holds the mutex.
void EventQueue::in_child() noexcept
{
    new (&mutex_) std::mutex;
    new (&arrived_) std::condition_variable;
}

int EventQueue::set_up(const fi_eq_attr* attr) noexcept
{
    const fi_eq_attr& wish = attr_or_default(attr);
    if ((wish.flags & ~(FI_WRITE | FI_AFFINITY)) != 0)
        return -FI_EINVAL;
    writable_ = (wish.flags & FI_WRITE) != 0;
    return wait_.open({this, ready, this, nullptr}, wish.wait_obj, wish.wait_set);
}

bool EventQueue::empty_now() noexcept
{
    std::lock_guard guard(mutex_);
    return empty();
}

// --- writing

EventQueue::~EventQueue()
{
    unregister_fork();
    while (!events_.empty())
        drop_first();
}

int EventQueue::append(const struct fid* about, std::uint32_t type, const void* bytes, std::size_t size,
                       const fi_eq_err_entry& error) noexcept
{
    void* const memory = size <= SIZE_MAX - sizeof(Event) ? std::malloc(sizeof(Event) + size) : nullptr;
    if (memory == nullptr)
        return -FI_ENOMEM;
    auto* const event = ::new (memory) Event{nullptr, about, type, size, error};
    if (size != 0)
        std::memcpy(event->bytes(), bytes, size);
    std::lock_guard guard(mutex_);
    events_.push_back(*event);
    return 0;
}

void EventQueue::wake() noexcept
{
    arrived_.notify_all(); // a woken thread may leave it: FI_PEEK, an error, too little room
    wait_.signal();
}

void EventQueue::post(const struct fid* about, std::uint32_t type, const void* bytes, std::size_t size,
                      const fi_eq_err_entry& error) noexcept
{
    if (append(about, type, bytes, size, error) != 0) {
        TOFU_WARN(FI_LOG_EQ, "event queue: no memory for an event, which is lost: read the queue more often\n");
        std::lock_guard guard(mutex_);
        overrun_ = true;
    }
    wake();
}

ssize_t EventQueue::write(std::uint32_t event, const void* buffer, std::size_t length, std::uint64_t) noexcept
{
    if (!writable_ || (buffer == nullptr && length != 0))
        return -FI_EINVAL; // fi_eq(3): only queues opened with FI_WRITE
    if (const int ret = append(nullptr, event, buffer, length, {}); ret != 0)
        return ret;
    wake();
    return static_cast<ssize_t>(length);
}

// --- reading

ssize_t EventQueue::pop(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept
{
    Event* const first = events_.first();
    if (first == nullptr)
        return overrun_ ? -FI_EAVAIL : -FI_EAGAIN;
    if (first->error.err != 0)
        return -FI_EAVAIL;
    // Without a buffer it is only asked which event there is, as libfabric's own queues let one do.
    const std::size_t size = buffer != nullptr ? first->size : 0;
    if (length < size)
        return -FI_ETOOSMALL;
    if (event != nullptr)
        *event = first->type;
    if (size > 0)
        std::memcpy(buffer, first->bytes(), size);
    if ((flags & FI_PEEK) == 0)
        drop_first();
    return static_cast<ssize_t>(size);
}

ssize_t EventQueue::read(std::uint32_t* event, void* buffer, std::size_t length, std::uint64_t flags) noexcept
{
    std::unique_lock guard(mutex_);
    if (empty()) {
        guard.unlock();
        (void)run(false);
        guard.lock();
    }
    return pop(event, buffer, length, flags);
}

// --- progress

int EventQueue::add(Pollable& endpoint, DomainBase& domain) noexcept
{
    std::lock_guard guard(polled_mutex_);
    if (!polled_.push({&endpoint, &domain, false, !domain.model().serialised}))
        return -FI_ENOMEM;
    {
        std::lock_guard events(mutex_);
        polls_ = true;
    }
    arrived_.notify_all(); // a waiter that had nothing to poll
    return 0;
}

bool EventQueue::has_several_domains() const noexcept
{
    return std::any_of(polled_.begin(), polled_.end(),
                       [this](const Polled& polled) { return polled.domain != polled_[0].domain; });
}

int EventQueue::need_polls(const Pollable& endpoint) noexcept
{
    std::lock_guard guard(polled_mutex_);
    const auto polled =
        std::find_if(polled_.begin(), polled_.end(), [&](const Polled& one) { return one.endpoint == &endpoint; });
    if (polled == polled_.end())
        return 0;
    DomainBase& domain = *polled->domain;
    polled->joiner = std::this_thread::get_id();
    // The owner of a peer's objects makes all progress by its own calls (fi_peer(3)).
    if (WakeSignal* const signal = wait_.wake_signal();
        signal != nullptr && !polled->has_thread && !domain.model().has_owner) {
        if (int ret = domain.auto_progress().acquire_thread(signal); ret != 0)
            return ret;
        polled->has_thread = true;
    }
    const bool several_domains = has_several_domains();
    if (several_domains)
        domain.auto_progress().enable_locks();
    for (Polled& one : polled_)
        one.has_locks |= one.domain == &domain && (several_domains || polled->has_thread);
    return 0;
}

void EventQueue::remove(Pollable& endpoint) noexcept
{
    Polled found;
    {
        std::lock_guard guard(polled_mutex_);
        for (const Polled& polled : polled_)
            if (polled.endpoint == &endpoint)
                found = polled;
        (void)polled_.erase({&endpoint});
        std::lock_guard events(mutex_);
        polls_ = !polled_.empty();
    }
    if (found.has_thread)
        found.domain->auto_progress().release_thread(wait_.wake_signal());
}

bool EventQueue::run(bool patient) noexcept
{
    std::lock_guard guard(polled_mutex_);
    bool some = false;
    const bool several_domains = has_several_domains();
    for (const Polled& polled : polled_)
        if (may_poll(polled, several_domains))
            some |= polled.endpoint->progress(patient);
    return some;
}

/// The answers of members come to the endpoints' VCQs, and what members put to the target VCQ.
std::size_t EventQueue::vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    std::lock_guard guard(polled_mutex_);
    std::size_t count = 0;
    const DomainBase* before = nullptr;
    const bool several_domains = has_several_domains();
    for (const Polled& polled : polled_) {
        if (!may_poll(polled, several_domains))
            continue;
        if (std::exchange(before, polled.domain) != polled.domain)
            count += polled.domain->target_vcqs(handles + count, most - count);
        count += vcqs_of(*polled.endpoint, handles + count, most - count);
    }
    return count;
}

void EventQueue::forget(const struct fid& object) noexcept
{
    std::lock_guard guard(mutex_);
    events_.each([&](Event& event) {
        if (event.about == &object && events_.remove(event))
            std::free(&event);
    });
}

ssize_t EventQueue::read_error(fi_eq_err_entry* entry, std::uint64_t flags) noexcept
{
    std::lock_guard guard(mutex_);
    const Event* const first = events_.first();
    if (first != nullptr ? first->error.err == 0 : !overrun_)
        return -FI_EAGAIN;
    fi_eq_err_entry lost{};
    lost.err = FI_EOVERRUN;
    // There is never provider data; err_data and its size may be a buffer of the caller's (fi_eq(3), since 1.5).
    void* data = entry->err_data_size != 0 ? entry->err_data : nullptr;
    *entry = first != nullptr ? first->error : lost;
    entry->err_data = data;
    entry->err_data_size = 0;
    if ((flags & FI_PEEK) != 0)
        return sizeof(*entry);
    if (first != nullptr)
        drop_first();
    else
        overrun_ = false;
    return sizeof(*entry);
}

ssize_t EventQueue::wait_and_read(std::uint32_t* event, void* buffer, std::size_t length, int timeout_ms,
                                  std::uint64_t flags)
{
    if (!wait_.blocks())
        return -FI_EINVAL;
    const Deadline deadline(timeout_ms);
    ssize_t got = -FI_EAGAIN;
    wait_.block(deadline, [&]() noexcept {
        if (empty_now())
            (void)run(true);
        std::unique_lock guard(mutex_);
        if (!polls_)
            deadline.await(arrived_, guard, [this] { return !empty() || polls_; });
        got = pop(event, buffer, length, flags);
        return got != -FI_EAGAIN;
    });
    return got;
}

} // namespace tofu
