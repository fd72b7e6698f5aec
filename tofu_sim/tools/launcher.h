// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Starts N processes of a program, watches over them, and leaves none behind.
#pragma once

#include "tools/processors.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <signal.h>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tofu::sim::tools {

struct Launch {
    std::vector<uint32_t> node_of;        ///< the simulated node of each process
    bool bound = true;                    ///< processes of a node get processors of their own where there are enough
    std::string topology;                 ///< a file for HWLOC_XMLFILE; empty: programs see this machine
    std::span<char* const> program;       ///< with its arguments; outlives the launcher
    std::chrono::milliseconds timeout{0}; ///< 0: none
};

class Launcher {
  public:
    explicit Launcher(Launch launch);
    ~Launcher();
    Launcher(const Launcher&) = delete;
    Launcher& operator=(const Launcher&) = delete;

    /// Runs everything to its end; returns the exit status of the command.
    [[nodiscard]] int run();

    /// Cause of the exit status: the program (or its time is up), a program that cannot be executed, or a signal to us.
    enum class End { program, not_executed, signal };
    [[nodiscard]] End ended() const noexcept { return ended_; }

  private:
    using Clock = std::chrono::steady_clock;

    /// running --(a process failed, a signal to stop us, the time is up)--> ending, with SIGTERM or
    /// that signal sent to all; ending --(the grace is over)--> killing, with SIGKILL sent.
    enum class State { running, ending, killing };

    void share_processors(const Processors& processors);
    [[nodiscard]] bool start_all();
    [[nodiscard]] pid_t start_one(uint32_t rank);
    [[noreturn]] void become_process(uint32_t rank, pid_t parent);
    void watch();
    void reap();
    void process_ended(uint32_t rank, int wait_status);
    void handle_signal(int signal_number);
    void end_all(int signal_number, int status);
    void send_all(int signal_number) noexcept;
    void report_exec_failure();
    void kill_descendants() noexcept;
    [[nodiscard]] std::optional<Clock::time_point> next_deadline() const;

    Launch launch_;
    const Processors* processors_ = nullptr; ///< while run() is under way, and there is more than one process
    std::vector<Cpuset> shares_;             ///< by node; empty: processes are not bound
    std::vector<pid_t> pids_;                ///< by rank; 0: not started, or gone
    std::vector<pid_t> foreign_;             ///< children of the program that became this one by exec: they are not
                                             ///< ended
    size_t alive_ = 0;
    State state_ = State::running;
    int status_ = 0;
    End ended_ = End::program;
    std::optional<Clock::time_point> timeout_;
    Clock::time_point kill_at_{};
    sigset_t watched_{};
    sigset_t inherited_{};
    int exec_error_[2] = {-1, -1}; ///< the errno of a failed exec comes through it
};

} // namespace tofu::sim::tools
