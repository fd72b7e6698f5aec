// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The processes of a transport: started, made to run cases, ended.
#pragma once

#include "cores.h"
#include "transport.h"

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

namespace tofu::bench {

class Team {
  public:
    using Maker = std::function<Transport*()>;
    Team(std::string name, Maker make, const Cores& cores);
    Team(Team&& other) = delete;
    ~Team(); ///< lets the processes clean up and ends them

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const Placement& placement() const { return placement_; }
    /// Its processes get these processors from now on; without, the usual ones for their number.
    void place(const Placement* placement);
    /// Starts as many processes as sides; writes a line on stderr if they do not start.
    void start(int sides = 2);
    /// Runs a case once and returns its figure in the case's unit, -1 where it is not offered or
    /// failed. A team that fails is ended and started again, a few times;
    /// one of another number of processes than the case has sides, too: a process that only waits would count as one of
    /// the job's.
    double run(const Case& what, std::size_t size, std::size_t iterations);
    /// Finds how many iterations of the case take about `target_ns`; 0 where it is not offered.
    std::size_t calibrate(const Case& what, std::size_t size, double target_ns);

  private:
    [[noreturn]] void child(int side);
    bool exited();
    void end();
    void leave();

    std::string name_;
    Maker make_;
    const Cores& cores_;
    const Placement* chosen_ = nullptr; ///< null: the usual one
    Placement placement_;               ///< of the processes that run
    std::unique_ptr<Transport> transport_;
    Control* control_ = nullptr;
    pid_t pid_[max_sides];
    bool alive_ = false;
    int sides_ = 0;
    int starts_ = 0;
    int failures_ = 0;
};

} // namespace tofu::bench
