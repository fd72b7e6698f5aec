// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a program runs on: where its processes are, which provider serves them, and how time goes by. There are three:
// the deterministic network in one process, other providers of libfabric in one process, and real processes over
// tofu_sim (docs/testing.md, "Platforms").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <rdma/fabric.h>

#include "program.h"

namespace swarm {

/// The name of the address vector that all processes share (Setup::sharedav).
inline constexpr const char* shared_vector = "swarm";

class Platform {
  public:
    Platform() = default;
    Platform(const Platform&) = delete;
    Platform& operator=(const Platform&) = delete;
    virtual ~Platform() = default;

    /// "" (the deterministic network), "tcp", "shm" or "sim". Null: there is none of this name.
    static std::unique_ptr<Platform> of(const std::string& name);

    /// The program without what this platform lacks.
    [[nodiscard]] virtual Program fit(Program program) const { return program; }
    /// May another program follow in the same process?
    [[nodiscard]] virtual bool is_repeatable() const { return false; }
    /// Before the first call of libfabric of a program.
    virtual void begin(const Program& program) = 0;
    /// All processes have closed all. Ends the process by contradict() if something is left behind.
    virtual void check_empty() {}
    /// After the last call. Likewise.
    virtual void end() {}

    /// A process that carried out a program has ended before its end.
    virtual void clear_after(int /*process*/) {}

    // --- the provider
    /// Completes the hints, and finds what answers them; null: nothing does.
    [[nodiscard]] virtual fi_info* find(fi_info& hints) = 0;
    virtual int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric) = 0;
    /// A message that was reported as sent arrives although its sender has closed.
    [[nodiscard]] virtual bool delivers_after_close() const { return true; }
    /// An endpoint may have the address of one that was closed.
    [[nodiscard]] virtual bool reuses_addresses() const { return false; }
    /// A domain can be closed when all that was opened in it is.
    [[nodiscard]] virtual bool closes_domains() const { return true; }
    /// Entries name senders whose address is known.
    [[nodiscard]] virtual bool names_senders() const { return true; }

    // --- processes
    /// The following calls are this process's.
    virtual void enter(unsigned process) { process_ = process; }
    [[nodiscard]] unsigned process() const { return process_; }
    virtual void start(unsigned /*process*/) {}
    /// False: its objects of libfabric are still in our memory, and are closed before killed() is called.
    [[nodiscard]] virtual bool kill(unsigned /*process*/) { return true; }
    virtual void killed(unsigned /*process*/) {}
    /// Do the processes of the program share the caller's memory and locks?
    [[nodiscard]] virtual bool is_one_process() const { return true; }
    /// Lets a process call this, and returns when it has. What it refers to is in shared memory, or is a copy.
    template <class Call>
    void on(unsigned process, Call call)
    {
        if (!is_elsewhere(process)) {
            call();
            return;
        }
        Call* const shared = new Call(std::move(call));
        hand_over(
            process, [](void* it) { (*static_cast<Call*>(it))(); }, shared);
        delete shared;
    }
    /// A call of the current process that waits for others, which call `others` meanwhile again and again.
    template <class Call>
    void wait_in(Call&& call, void (*others)())
    {
        begin_wait(others);
        call();
        end_wait();
    }
    [[nodiscard]] virtual bool is_in_wait() const { return false; }

    // --- time
    [[nodiscard]] virtual bool is_in_real_time() const { return false; }
    /// The decisions of the network from here on.
    virtual void seed(std::uint64_t /*seed*/) {}
    /// The network takes some steps.
    virtual void run(unsigned steps) = 0;
    virtual void pass(std::uint64_t nanoseconds) = 0;
    [[nodiscard]] virtual std::uint64_t clock() const = 0;
    /// Is the end of what is awaited still possible, when nothing has come in so many rounds?
    [[nodiscard]] virtual bool is_patient(unsigned rounds) = 0;
    /// The network makes fewer difficulties from here on.
    virtual void calm() {}
    [[nodiscard]] virtual unsigned long long steps() const { return 0; }
    [[nodiscard]] virtual unsigned long long calls() const { return 0; }
    [[nodiscard]] virtual unsigned long long digest() const { return 0; }

  protected:
    [[nodiscard]] virtual bool is_elsewhere(unsigned /*process*/) const { return false; }
    virtual void hand_over(unsigned /*process*/, void (* /*run*/)(void*), void* /*call*/) {}
    virtual void begin_wait(void (* /*others*/)()) {}
    virtual void end_wait() {}

    unsigned process_ = 0;
};

// Each is made in a file of its own.
std::unique_ptr<Platform> make_deterministic();
/// "tcp" or "shm".
std::unique_ptr<Platform> make_other(const std::string& provider);
std::unique_ptr<Platform> make_processes();

} // namespace swarm
