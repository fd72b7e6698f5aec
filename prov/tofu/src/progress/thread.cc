// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See thread.h.
#include "progress/thread.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>

#include <rdma/fi_errno.h>

#include "progress/progress.h"
#include "progress/wait.h"
#include "provider/log.h"

namespace tofu {

int ProgressThread::start(ProgressSet& set, const vcq::Functions& functions) noexcept
{
    set_ = &set;
    functions_ = &functions;
    stop_.store(false, std::memory_order_relaxed);
    // The application's signals are for its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread_, nullptr, body, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) {
        TOFU_WARN(FI_LOG_DOMAIN,
                  "domain: no thread for automatic progress (%s): raise the limit (ulimit -u), or use manual "
                  "progress and FI_WAIT_UNSPEC\n",
                  std::strerror(error));
        return -FI_ENOMEM; // not -FI_EAGAIN: it would be asked for again at once
    }
    pthread_setname_np(thread_, "tofu-progress");
    running_ = true;
    return 0;
}

void ProgressThread::stop() noexcept
{
    if (!running_)
        return;
    stop_.store(true, std::memory_order_relaxed); // partner: run(); the join orders all else
    pthread_join(thread_, nullptr);
    running_ = false;
}

void* ProgressThread::body(void* self)
{
    static_cast<ProgressThread*>(self)->run();
    return nullptr;
}

int ProgressThread::attend(WakeSignal& signal) noexcept
{
    std::lock_guard guard(signals_mutex_);
    if (!signals_.push(&signal))
        return -FI_ENOMEM;
    signal.attend(true);
    return 0;
}

void ProgressThread::leave(WakeSignal& signal) noexcept
{
    std::lock_guard guard(signals_mutex_);
    if (signals_.erase(&signal))
        signal.attend(false);
}

/// False where a ring is still owed: an application holds the mutex of its wait object.
bool ProgressThread::repeat_signals() noexcept
{
    std::lock_guard guard(signals_mutex_);
    bool all = true;
    for (WakeSignal* signal : signals_)
        all = signal->repeat() && all;
    return all;
}

void ProgressThread::run() noexcept
{
    static constexpr timespec soon{0, 50000};
    const Deadline never(-1);
    Sleeper sleeper(functions_, never);
    ProgressSet* sets[] = {set_};
    while (!stop_.load(std::memory_order_relaxed)) {
        const bool some = set_->run(true);
        if (!repeat_signals())
            nanosleep(&soon, nullptr);
        else if (some)
            sleeper.restart();
        else
            (void)sleeper.sleep(sets, 1);
    }
}

} // namespace tofu
