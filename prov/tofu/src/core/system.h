// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a process asks the kernel for: time (Clock), random numbers (Random), and files that the processes of its node
// share (NodeFile), by names that they make alike (Hash). A test may have a time and random numbers of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <new>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/types.h>

namespace tofu {

// --- Clock: a steady clock, and a cheap one for work that is due every few milliseconds

/// The steady clock of all waits with a bound.
struct Clock {
    using duration = std::chrono::steady_clock::duration;
    using time_point = std::chrono::steady_clock::time_point;

    /// The time of a test, in nanoseconds; null: that of the system. Set before the first domain is opened.
    static inline std::uint64_t (*of_test)() noexcept = nullptr;

    /// The sleep of a test, in nanoseconds, where it has a time of its own.
    static inline void (*sleep_of_test)(std::uint64_t) noexcept = nullptr;

    static time_point now() noexcept
    {
        if (of_test != nullptr) [[unlikely]]
            return time_point(std::chrono::nanoseconds(of_test()));
        return std::chrono::steady_clock::now();
    }
    static void sleep(std::chrono::nanoseconds time) noexcept
    {
        if (sleep_of_test != nullptr) [[unlikely]]
            return sleep_of_test(static_cast<std::uint64_t>(time.count()));
        const timespec wanted{static_cast<time_t>(time.count() / 1000000000),
                              static_cast<long>(time.count() % 1000000000)};
        (void)nanosleep(&wanted, nullptr);
    }
};

/// Milliseconds since some time in the past, as of the last tick of the kernel.
inline std::uint64_t milliseconds() noexcept
{
    if (Clock::of_test != nullptr) [[unlikely]]
        return Clock::of_test() / 1000000;
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
}

// --- Random: numbers that no other process has, for nonces, tokens and first sequence numbers

struct Random {
    /// The source of a test; null: the kernel. Set before the first domain is opened.
    static inline std::uint64_t (*of_test)() noexcept = nullptr;

    /// `otherwise` where the kernel has none.
    static std::uint64_t number(std::uint64_t otherwise) noexcept
    {
        if (of_test != nullptr) [[unlikely]]
            return of_test();
        std::uint64_t bits = 0;
        return getrandom(&bits, sizeof bits, 0) == static_cast<ssize_t>(sizeof bits) ? bits : otherwise;
    }
};

// --- Hash: FNV-1a, of names that the processes of a node make alike

struct Hash {
    std::uint64_t value = 0xcbf29ce484222325u;

    void add(unsigned char byte) noexcept { value = (value ^ byte) * 0x100000001b3u; }
    /// A text, or null.
    void add(const char* text) noexcept
    {
        for (; text != nullptr && *text != '\0'; text++)
            add(static_cast<unsigned char>(*text));
    }
};

// --- ForkAware: what a child of fork must leave to its parent

/// An object that a child of fork shares with its parent but must not use. From register_fork() to unregister_fork()
/// in_child() is called in each child before fork() returns there. Both may be called by any thread. vfork and exec
/// call nothing.
class ForkAware {
  public:
    ForkAware() = default;
    ForkAware(const ForkAware&) = delete;
    ForkAware& operator=(const ForkAware&) = delete;

  protected:
    ~ForkAware() = default;
    void register_fork() noexcept;
    void unregister_fork() noexcept;
    /// The child has no other thread, so it takes no lock; it allocates nothing.
    virtual void in_child() noexcept = 0;

  private:
    friend struct ForkRegistry;
    ForkAware* next_ = nullptr;
};

/// A mutex that is free in a child of fork, whichever thread of the parent had it: the child has no other thread, which
/// would unlock it.
class Mutex {
  public:
    void lock() noexcept { get().lock(); }
    [[nodiscard]] bool try_lock() noexcept { return get().try_lock(); }
    void unlock() noexcept { mutex_.unlock(); }

    /// How often fork() has returned in a child, from the first process on.
    static inline std::atomic<unsigned> children{0};

  private:
    static constexpr unsigned renewing = ~0u;
    [[nodiscard]] std::mutex& get() noexcept
    {
        const unsigned now = children.load(std::memory_order_relaxed); // there was one thread when it changed
        // acquire: pairs with the release below, by the thread of the child that was first
        for (unsigned of = of_.load(std::memory_order_acquire); of != now; of = of_.load(std::memory_order_acquire)) {
            if (of == renewing || !of_.compare_exchange_strong(of, renewing, std::memory_order_acquire))
                continue;
            new (&mutex_) std::mutex;
            of_.store(now, std::memory_order_release);
        }
        return mutex_;
    }

    std::mutex mutex_;
    std::atomic<unsigned> of_{0}; ///< the value of `children` for which mutex_ is valid
};

/// A descriptor whose lock or name exists as long as any copy of it. A child closes its copy: otherwise it would hold
/// what its parent has released, or held when it was killed.
class OwnDescriptor final : ForkAware {
  public:
    /// Negative: there is none, as in a child.
    [[nodiscard]] int get() const noexcept { return descriptor_; }
    void hold(int descriptor) noexcept;
    void close() noexcept;

  private:
    void in_child() noexcept override;

    int descriptor_ = -1;
};

// --- NodeFile: a file in memory that the processes of a user share on their node, and locks on its bytes, which the
// kernel releases when their holder ends (fcntl(2), open file description locks)

/// Whether a file of this process may have this size (RLIMIT_FSIZE, ulimit -f). A call that would make it larger ends
/// the process by SIGXFSZ, and a write behind the limit does so even inside the file: ask before.
[[nodiscard]] bool may_have_size(std::uint64_t bytes) noexcept;

/// The owner closes it; an owner that lives as long as the process leaves that to the kernel.
class NodeFile {
  public:
    /// Opens the file, and creates it if it does not exist. False, and errno: it cannot be opened, or belongs to
    /// another user (EACCES).
    [[nodiscard]] bool open(const char* path) noexcept;
    [[nodiscard]] bool is_open() const noexcept { return file_.get() >= 0; }
    [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
    /// True if its name is gone, or leads to another file by now.
    [[nodiscard]] bool is_removed() const noexcept;
    void remove() noexcept;
    void close() noexcept { file_.close(); }

    /// F_RDLCK, F_WRLCK or F_UNLCK of `bytes` bytes (0: all that follow). F_OFD_SETLK: whether it was locked.
    /// F_OFD_GETLK: whether it is available. The locks of one process do not exclude each other.
    bool lock(short type, off_t from, off_t bytes, int command = F_OFD_SETLK) noexcept;
    /// The same by F_OFD_SETLK, repeated for `patience` while another process, perhaps a stopped one, has the lock.
    bool lock_within(std::chrono::milliseconds patience, short type, off_t from, off_t bytes) noexcept;

  private:
    OwnDescriptor file_;
    char path_[64] = {};
};

} // namespace tofu
