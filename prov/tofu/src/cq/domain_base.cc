// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See domain_base.h.
#include "cq/domain_base.h"

#include <csignal>
#include <cstring>
#include <ctime>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/params.h"
#include "cq/wait.h"

namespace tofu {

void AutoProgress::choose(bool serialised, bool wanted) noexcept
{
    std::lock_guard guard(mutex_);
    switch_locks(!serialised);
    thread_is_due_.store(wanted, std::memory_order_relaxed); // here and below: the mutex orders all else
}

void AutoProgress::adopt(Lock& lock) noexcept
{
    std::lock_guard guard(mutex_);
    lock.set_enabled(locks_are_on_);
    locks_.push_front(lock);
}

void AutoProgress::drop(Lock& lock) noexcept
{
    std::lock_guard guard(mutex_);
    locks_.remove(lock);
}

// --- users of the thread

int AutoProgress::acquire_thread(WakeSignal* signal) noexcept
{
    std::lock_guard guard(mutex_);
    if (users_ == 0) {
        // From here on the thread meets the application's calls.
        if (!locks_are_on_)
            switch_locks(true);
        if (int error = start(); error != 0)
            return error;
    }
    users_++;
    if (signal == nullptr)
        return 0;
    {
        std::lock_guard signals(signals_mutex_);
        if (signals_.push(signal)) {
            signal->set_helper_thread(true);
            return 0;
        }
    }
    leave();
    return -FI_ENOMEM;
}

int AutoProgress::start_thread() noexcept
{
    if (!thread_is_due_.exchange(false, std::memory_order_relaxed))
        return 0;
    const int error = acquire_thread(nullptr);
    if (error != 0)
        thread_is_due_.store(true, std::memory_order_relaxed);
    return error;
}

void AutoProgress::enable_locks() noexcept
{
    std::lock_guard guard(mutex_);
    if (!locks_are_on_)
        switch_locks(true);
}

void AutoProgress::release_thread(WakeSignal* signal) noexcept
{
    std::lock_guard guard(mutex_);
    {
        std::lock_guard signals(signals_mutex_);
        if (signals_.erase(signal))
            signal->set_helper_thread(false);
    }
    leave();
}

void AutoProgress::close() noexcept
{
    std::lock_guard guard(mutex_);
    while (users_ != 0)
        leave();
}

void AutoProgress::leave() noexcept
{
    if (users_ == 0 || --users_ != 0) // 0: a child of fork
        return;
    stop_.store(true, std::memory_order_relaxed); // partner: run(); the join orders all else
    pthread_join(thread_, nullptr);
}

// --- the thread

int AutoProgress::start() noexcept
{
    stop_.store(false, std::memory_order_relaxed);
    // The application's signals are for its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto body = [](void* self) -> void* {
        static_cast<AutoProgress*>(self)->run();
        return nullptr;
    };
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
    place_thread();
    return 0;
}

/// Sets the thread's processors: the user's, or allowed ones that no thread of the process is bound to. Else it has
/// those of the thread that started it, which an MPI library often has bound to the processor on which it computes.
void AutoProgress::place_thread() noexcept
{
    node::Processors cpus;
    if (param_cpus("progress_cpus", cpus))
        return set_processors(cpus, "FI_TOFU_PROGRESS_CPUS");
    const node::Map* const map = node::Map::of_process();
    if (map == nullptr || !map->is_here())
        return;
    const node::Processors bound = node::bound_of_process(map->allowed());
    if (bound.none())
        return; // the kernel chooses among all
    if (cpus = map->apart_from(bound); cpus.any())
        set_processors(cpus, "processors to which no thread of this process is bound");
}

void AutoProgress::set_processors(const node::Processors& cpus, const char* why) noexcept
{
    char list[128];
    node::write_list(cpus, list, sizeof list);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t i = 0; i < cpus.size(); i++)
        if (cpus[i])
            CPU_SET(i, &set);
    if (const int error = pthread_setaffinity_np(thread_, sizeof set, &set); error != 0) {
        TOFU_WARN(FI_LOG_DOMAIN,
                  "%s (%s): %s: this process may use none of these processors; the thread of automatic progress runs "
                  "where its creator does\n",
                  why, list, std::strerror(error));
    } else {
        std::memcpy(processors_, list, sizeof list);
        TOFU_INFO(FI_LOG_DOMAIN, "thread of automatic progress: processors %s\n", list);
    }
}

void AutoProgress::run() noexcept
{
    static constexpr timespec soon{0, 50000};
    const Deadline never(-1);
    BlockingWait sleeper(&domain_.backend().functions(), never);
    ProgressSource* sources[] = {&everything_};
    while (!stop_.load(std::memory_order_relaxed)) {
        const bool some = everything_.run(true);
        if (!repeat_signals())
            nanosleep(&soon, nullptr);
        else if (some)
            sleeper.restart();
        else
            (void)sleeper.sleep(sources, 1);
    }
}

/// Repeats wake-ups. False: one is still due, because an application holds the mutex of its wait object.
bool AutoProgress::repeat_signals() noexcept
{
    std::lock_guard guard(signals_mutex_);
    bool all = true;
    for (WakeSignal* signal : signals_)
        all = signal->repeat() && all;
    return all;
}

OpenList<DomainBase>& DomainBase::all() noexcept
{
    static constinit OpenList<DomainBase> list;
    return list;
}

int VcqSource::open(vcq::Vcq& vcq, vcq::Sink sink, bool is_target) noexcept
{
    sink.book = &statistics;
    const unsigned spread = spread_.fetch_add(1, std::memory_order_relaxed);
    const int error = vcq.open(*backend, spread, safe || is_target, sink);
    if (error != 0)
        TOFU_WARN(FI_LOG_DOMAIN,
                  "domain: no VCQ on any TNI of this node (%s): close endpoints or domains, run fewer processes per "
                  "node, or set FI_TOFU_PPN if the launcher assigns no control queues to processes\n",
                  fi_strerror(-error));
    return error;
}

void progress_everywhere(DomainBase& own) noexcept
{
    DomainBase::all().each([&own](DomainBase& domain) {
        const bool safe = &domain == &own || !domain.model().serialised;
        if (safe && !domain.model().has_owner)
            (void)domain.auto_progress().everything().run();
    });
}

} // namespace tofu
