// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the checks of blocking calls need: a thread that waits, time, and what a wait has cost.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include "../common/bytes.h"
#include "../common/station.h"

namespace fabtests {

/// Processor time of the calling thread.
inline unsigned busy_ms()
{
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return static_cast<unsigned>((usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                                 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000);
}

/// Runs `wait` in a thread of its own and meanwhile, until it has ended, `nudge` now and then. What the wait
/// answers; -FI_EOTHER where it never ended, and then the program ends.
template <class Wait, class Nudge>
long in_thread(World& w, Wait wait, Nudge nudge)
{
    std::atomic<bool> over{false};
    long result = -FI_EOTHER;
    std::thread thread([&] {
        result = wait();
        over.store(true, std::memory_order_release);
    });
    const std::uint64_t end = World::now_ms() + 1000 * w.patience();
    while (!over.load(std::memory_order_acquire)) {
        if (World::now_ms() > end)
            w.give_up("a thread waits forever");
        nudge();
        ::poll(nullptr, 0, 5);
    }
    thread.join();
    return result;
}

/// A little time for a peer to fall asleep: half of the rounds go without.
inline void dawdle(unsigned round)
{
    if (round % 2)
        ::poll(nullptr, 0, 20);
}

/// Sleeps on a native wait object of an object after fi_trywait, as fi_poll(3) says, until `look` says true. False:
/// it never did.
template <class Look>
bool sleep_on(World& w, fid* object, fi_wait_obj kind, Look look)
{
    const std::uint64_t end = World::now_ms() + 1000 * w.patience();
    int descriptor = -1;
    fi_mutex_cond pair{};
    if (kind == FI_WAIT_FD ? fi_control(object, FI_GETWAIT, &descriptor) != 0
                           : fi_control(object, FI_GETWAIT, &pair) != 0)
        return false;
    if (look())
        return true; // fi_trywait reports new entries, not those seen before
    while (World::now_ms() < end) {
        if (kind == FI_WAIT_MUTEX_COND)
            pthread_mutex_lock(pair.mutex);
        if (fi_trywait(w.fabric(), &object, 1) == 0) {
            if (kind == FI_WAIT_FD) {
                pollfd fd{descriptor, POLLIN, 0};
                ::poll(&fd, 1, 1000);
            } else {
                timespec until{};
                clock_gettime(CLOCK_REALTIME, &until);
                until.tv_sec += 1;
                pthread_cond_timedwait(pair.cond, pair.mutex, &until);
            }
        }
        if (kind == FI_WAIT_MUTEX_COND)
            pthread_mutex_unlock(pair.mutex);
        if (look())
            return true;
    }
    return false;
}

inline ssize_t send_to(World& w, Station& s, unsigned to, std::size_t length = 8, void* context = nullptr)
{
    return s.post([&] { return fi_tsend(s.ep(), w.local(), length, w.desc(), s.peer(to), 1, context); });
}

inline ssize_t recv_any(World& w, Station& s, std::size_t length = 64, void* context = nullptr)
{
    return s.post([&] {
        return fi_trecv(s.ep(), w.local(4096), length, w.desc(), FI_ADDR_UNSPEC, 1, ~std::uint64_t{0}, context);
    });
}

} // namespace fabtests
