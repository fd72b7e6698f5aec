// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See progress_thread.h.
#include "progress_thread.h"

#include <csignal>

#include <rdma/fi_errno.h>

#include "log.h"
#include "progress.h"
#include "wait.h"

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
        TOFU_WARN(FI_LOG_DOMAIN, "no thread for automatic progress: use manual progress and FI_WAIT_UNSPEC\n");
        return -FI_EAGAIN;
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

void ProgressThread::run() noexcept
{
    const Deadline never(-1);
    Sleeper sleeper(functions_, never);
    ProgressSet* sets[] = {set_};
    while (!stop_.load(std::memory_order_relaxed)) {
        if (set_->run(true))
            sleeper.restart();
        else
            (void)sleeper.sleep(sets, 1);
    }
}

} // namespace tofu
