// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See wait.h.
#include "cq/wait.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/log.h"
#include "core/object.h"
#include "cq/domain_base.h"
#include "cq/poll_set.h"
#include "cq/progress.h"

namespace tofu {

namespace {

constexpr int slice_ms = 10; ///< a signal of another thread is seen within this time
/// Polls before the first sleep: something that is about to come then needs no wake-up.
constexpr unsigned busy_rounds = 64;
constexpr std::size_t max_vcqs = 64; ///< handed to the backend; arrivals by other VCQs are seen after a slice

/// An eventfd as wait.h wants it. Neither call blocks: its count is full, or it is 0.
struct EventFd {
    int descriptor;
    void write() const noexcept
    {
        const std::uint64_t one = 1;
        if (::write(descriptor, &one, sizeof(one)) < 0)
            TOFU_INFO(FI_LOG_CQ, "wait descriptor %d was readable already\n", descriptor);
    }
    void read() const noexcept
    {
        std::uint64_t count = 0;
        (void)!::read(descriptor, &count, sizeof(count));
    }
};

} // namespace

Deadline::Deadline(int timeout_ms) noexcept
    : end_(Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0))), never_(timeout_ms < 0)
{
}

int Deadline::left_ms(int most) const noexcept
{
    if (never_)
        return most;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now() + std::chrono::microseconds(999));
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, most));
}

BlockingWait::BlockingWait(const vcq::Functions* functions, const Deadline& deadline, bool yields) noexcept
    : functions_(functions), deadline_(deadline), yields_(yields)
{
}

bool BlockingWait::sleep(ProgressSource* const* sources, std::size_t count) noexcept
{
    if (deadline_.passed())
        return false;
    if (rounds_++ < busy_rounds || yields_) {
        sched_yield();
        return true;
    }
    if (functions_ != nullptr && functions_->wait != nullptr) {
        utofu_vcq_hdl_t vcqs[max_vcqs];
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; i++)
            found += sources[i]->vcqs(vcqs + found, max_vcqs - found);
        if (functions_->wait(vcqs, found, deadline_.left_ms(slice_ms)) >= 0)
            return true;
    }
    // 1 us, doubled up to 1 ms
    const long pause_ns = 1000L << std::min(rounds_ - busy_rounds, 10u);
    Clock::sleep(std::chrono::nanoseconds(std::min(pause_ns, 1000000L)));
    return true;
}

// --- WakeSignal

WakeSignal::~WakeSignal()
{
    unregister_fork();
    if (descriptor_ >= 0)
        close(descriptor_);
    if (kind_ == FI_WAIT_MUTEX_COND) {
        pthread_cond_destroy(&condition_);
        pthread_mutex_destroy(&mutex_);
    }
}

/// The application of the child may have the number in a set of descriptors, so the number stays. No thread of the
/// child holds the mutex or sleeps on the condition.
void WakeSignal::in_child() noexcept
{
    if (descriptor_ < 0) {
        mutex_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        condition_ = PTHREAD_COND_INITIALIZER;
        return;
    }
    const int own = eventfd(raised_.load(std::memory_order_relaxed) ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (own >= 0 && dup3(own, descriptor_, O_CLOEXEC) >= 0) {
        ::close(own);
        return;
    }
    ::close(std::exchange(descriptor_, -1));
}

int WakeSignal::open(fi_wait_obj kind) noexcept
{
    switch (kind) {
    case FI_WAIT_FD:
        descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (descriptor_ < 0)
            return errno == ENOMEM ? -FI_ENOMEM : -FI_EMFILE;
        register_fork();
        break;
    case FI_WAIT_MUTEX_COND: {
        // see raise(); by value, since glibc 2.34 gave the functions of attributes new versions
        mutex_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        pthread_cond_init(&condition_, nullptr);
        register_fork();
        break;
    }
    default: return -FI_ENOSYS;
    }
    kind_ = kind;
    return 0;
}

void WakeSignal::raise() noexcept
{
    if (kind_ == FI_WAIT_MUTEX_COND) {
        // Needs the mutex: an application that has looked (fi_trywait) and does not sleep yet holds it. That look makes
        // progress, and may raise this signal itself, or wait for a lock that our caller holds: so only try_lock().
        raised_.store(true, std::memory_order_release); // partner: repeat()
        if (helper_threads_.load(std::memory_order_relaxed) != 0) {
            (void)repeat();
            return;
        }
        // The event is made by a call such as fi_av_insert whose thread holds the mutex. All sleeping threads
        // have then released the mutex, and receive the broadcast.
        const bool locked = pthread_mutex_lock(&mutex_) == 0; // else EDEADLK
        pthread_cond_broadcast(&condition_);
        if (locked)
            pthread_mutex_unlock(&mutex_);
        return;
    }
    EventFd event_fd{descriptor_};
    wake_flag::raise(raised_, event_fd);
}

bool WakeSignal::repeat() noexcept
{
    if (kind_ != FI_WAIT_MUTEX_COND || !raised_.load(std::memory_order_relaxed))
        return true;
    if (pthread_mutex_trylock(&mutex_) != 0)
        return false;
    // acquire: pairs with raise(), also the last one, since the woken thread must see its cause
    (void)raised_.exchange(false, std::memory_order_acquire);
    pthread_cond_broadcast(&condition_);
    pthread_mutex_unlock(&mutex_);
    return true;
}

void WakeSignal::clear() noexcept
{
    if (kind_ != FI_WAIT_FD)
        return;
    EventFd event_fd{descriptor_};
    wake_flag::clear(raised_, event_fd);
}

int WakeSignal::control(fi_wait_obj kind, int command, void* argument) noexcept
{
    if (command != FI_GETWAITOBJ && command != FI_GETWAIT)
        return -FI_ENOSYS;
    if (argument == nullptr)
        return -FI_EINVAL;
    if (command == FI_GETWAITOBJ)
        *static_cast<fi_wait_obj*>(argument) = kind;
    else if (kind_ == FI_WAIT_FD)
        *static_cast<int*>(argument) = descriptor_;
    else if (kind_ == FI_WAIT_MUTEX_COND)
        *static_cast<fi_mutex_cond*>(argument) = {&mutex_, &condition_};
    else
        return -FI_ENODATA;
    return 0;
}

// --- WaitObject

WaitObject::~WaitObject()
{
    // The thread first: it knows the signal, which may be the set's, and the application may close the set from
    // remove() on.
    if (has_thread_)
        owner_.domain->auto_progress().release_thread(signal_);
    if (set_ != nullptr)
        set_->remove(*this);
}

int WaitObject::open(const Owner& owner, fi_wait_obj kind, fid_wait* set) noexcept
{
    owner_ = owner;
    int missing = 0;
    const vcq::Backend* const backend = owner.domain != nullptr ? &owner.domain->backend() : vcq::Backend::get(missing);
    functions_ = backend != nullptr ? &backend->functions() : nullptr;
    bool needs_thread = false;
    switch (kind) {
    case FI_WAIT_NONE:
    case FI_WAIT_UNSPEC:
    case FI_WAIT_YIELD: break;
    case FI_WAIT_FD:
    case FI_WAIT_MUTEX_COND:
        if (int error = own_.open(kind); error != 0)
            return error;
        signal_ = &own_;
        needs_thread = true;
        break;
    case FI_WAIT_SET:
        if (set == nullptr || !is_ours(&set->fid, FI_CLASS_WAIT))
            return -FI_EINVAL;
        if (int error = WaitSet::of(set).add(*this); error != 0)
            return error;
        set_ = &WaitSet::of(set);
        signal_ = set_->wake_signal();
        needs_thread = signal_ != nullptr;
        break;
    default: TOFU_INFO(FI_LOG_CQ, "wait object %d is not supported\n", kind); return -FI_ENOSYS;
    }
    kind_ = kind;
    if (needs_thread && owner_.domain != nullptr) {
        if (int error = owner_.domain->auto_progress().acquire_thread(signal_); error != 0)
            return error;
        has_thread_ = true;
    }
    return 0;
}

void WaitObject::wake() noexcept
{
    if (owner_.domain != nullptr)
        owner_.domain->statistics().count(Stat::wake_up);
    if (signal_ != nullptr)
        signal_->raise();
    // Without the backend's help sleeps are short (BlockingWait).
    if (sleepers_.load(std::memory_order_relaxed) != 0 && functions_ != nullptr && functions_->wake != nullptr)
        functions_->wake();
}

bool WaitObject::poll() noexcept
{
    if (owner_.progress != nullptr)
        owner_.progress->run(true);
    const bool some = owner_.ready(owner_.object);
    if (some && signal_ != nullptr)
        signal_->rearm();
    return some;
}

} // namespace tofu
