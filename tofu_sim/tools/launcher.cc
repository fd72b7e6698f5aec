// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Starts N processes of a program, watches over them, and leaves none behind.
//
// Each process leads a process group, so that one signal reaches what it starts itself, and dies
// with us (PR_SET_PDEATHSIG). Whatever escapes that by changing its group comes back to us as the
// nearest subreaper, and is killed at the end.
#include "tools/launcher.h"

#include "job/quota.h"
#include "tools/command.h"
#include "tools/time_slices.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace tofu::sim::tools {
namespace {

constexpr std::chrono::seconds grace{3}; ///< between asking a process to end and killing it
constexpr int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

bool ends_us(int signal_number)
{
    return signal_number != SIGUSR1 && signal_number != SIGUSR2;
}

/// Only this thread of the command could have children.
std::vector<pid_t> own_children()
{
    std::vector<pid_t> children;
    const std::string self = std::to_string(::getpid());
    const std::string path = "/proc/self/task/" + self + "/children";
    if (FILE* const file = std::fopen(path.c_str(), "re")) {
        int pid = 0;
        while (std::fscanf(file, "%d", &pid) == 1)
            children.push_back(pid);
        std::fclose(file);
    }
    return children;
}

} // namespace

Launcher::Launcher(Launch launch) : launch_(std::move(launch)), pids_(launch_.node_of.size(), 0)
{
    if (launch_.timeout.count() > 0)
        timeout_ = Clock::now() + launch_.timeout;
}

Launcher::~Launcher()
{
    for (const int fd : exec_error_)
        if (fd >= 0)
            ::close(fd);
}

int Launcher::run()
{
    foreign_ = own_children();
    (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::sigemptyset(&watched_);
    ::sigaddset(&watched_, SIGCHLD);
    for (const int signal_number : passed_on)
        ::sigaddset(&watched_, signal_number);
    // Blocked from here on: sigtimedwait in watch() takes them one by one.
    ::sigprocmask(SIG_BLOCK, &watched_, &inherited_);
    if (::pipe2(exec_error_, O_CLOEXEC | O_NONBLOCK) != 0) {
        std::perror("tofu-sim: pipe");
        return exit_failure;
    }
    // A single process shares no processor: no topology is read for it.
    std::optional<Processors> processors;
    std::optional<ShortTimeSlices> time_slices;
    if (pids_.size() > 1) {
        processors_ = &processors.emplace(quota_processors());
        time_slices.emplace(pids_.size(), *processors);
        share_processors(*processors);
    }
    if (!start_all())
        end_all(SIGKILL, exit_failure);
    else if (time_slices)
        time_slices->start();
    watch();
    kill_descendants();
    return status_;
}

void Launcher::share_processors(const Processors& processors)
{
    if (!launch_.bound)
        return;
    std::vector<uint32_t> processes_of_node(
        *std::max_element(launch_.node_of.begin(), launch_.node_of.end()) + size_t{1}, 0);
    for (const uint32_t node : launch_.node_of)
        processes_of_node[node]++;
    shares_ = processors.shares(processes_of_node);
    if (shares_.empty())
        return;
    constexpr size_t most_shown = 8;
    std::string text;
    for (size_t node = 0; node < std::min(shares_.size(), most_shown); node++)
        text += (node != 0 ? " | " : "") + text_of(shares_[node].get());
    std::fprintf(
        stderr,
        "tofu-sim: the processes of each node are bound to separate processors: %s%s (--bind none: not bound)\n",
        text.c_str(), shares_.size() > most_shown ? " | ..." : "");
}

bool Launcher::start_all()
{
    for (uint32_t rank = 0; rank < pids_.size(); rank++) {
        const pid_t pid = start_one(rank);
        if (pid < 0) {
            std::fprintf(stderr, "tofu-sim: cannot start process %u of %zu: %s\n", rank, pids_.size(),
                         std::strerror(errno));
            return false;
        }
        pids_[rank] = pid;
        alive_++;
    }
    return true;
}

pid_t Launcher::start_one(uint32_t rank)
{
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0)
        become_process(rank, parent);
    if (pid > 0)
        (void)::setpgid(pid, pid); // here and in the child: the first call counts
    return pid;
}

void Launcher::become_process(uint32_t rank, pid_t parent)
{
    (void)::setpgid(0, 0);
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
        ::_exit(exit_failure); // we died before the line above
    ::setenv("TOFU_SIM_RANK", std::to_string(rank).c_str(), 1);
    if (!launch_.topology.empty()) {
        for (const char* const other : {"HWLOC_SYNTHETIC", "HWLOC_COMPONENTS", "HWLOC_THISSYSTEM"})
            ::unsetenv(other); // they would be asked first, or say that this is the machine
        ::setenv("HWLOC_XMLFILE", launch_.topology.c_str(), 1);
    }
    if (!shares_.empty())
        (void)processors_->bind(shares_[launch_.node_of[rank]].get()); // unbound it runs as well
    // A process group in the background would stop when it reads from the terminal.
    if (rank != 0 || ::isatty(STDIN_FILENO) != 0) {
        const int null = ::open("/dev/null", O_RDONLY);
        if (null > STDIN_FILENO) {
            ::dup2(null, STDIN_FILENO);
            ::close(null);
        }
    }
    ::sigprocmask(SIG_SETMASK, &inherited_, nullptr);
    ::execvp(launch_.program[0], launch_.program.data()); // main's argv ends with a null pointer
    const int error = errno;
    (void)!::write(exec_error_[1], &error, sizeof error);
    ::_exit(error == ENOENT ? exit_not_found : exit_not_executable);
}

std::optional<Launcher::Clock::time_point> Launcher::next_deadline() const
{
    switch (state_) {
    case State::running: return timeout_;
    case State::ending: return kill_at_;
    case State::killing: break;
    }
    return std::nullopt;
}

void Launcher::watch()
{
    while (true) {
        reap();
        if (alive_ == 0)
            return;
        int signal_number = 0;
        const auto deadline = next_deadline();
        if (deadline) {
            const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(*deadline - Clock::now());
            timespec wait{};
            if (left.count() > 0) {
                wait.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
                wait.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
            }
            signal_number = ::sigtimedwait(&watched_, nullptr, &wait);
        } else {
            signal_number = ::sigwaitinfo(&watched_, nullptr);
        }
        if (signal_number > 0) {
            if (signal_number != SIGCHLD)
                handle_signal(signal_number);
        } else if (errno == EAGAIN && state_ == State::running) {
            std::fprintf(stderr, "tofu-sim: timeout: ending %zu processes\n", alive_);
            end_all(SIGTERM, exit_timeout);
        } else if (errno == EAGAIN) {
            state_ = State::killing;
            send_all(SIGKILL);
        }
    }
}

void Launcher::reap()
{
    int wait_status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0) {
        for (uint32_t rank = 0; rank < pids_.size(); rank++) {
            if (pids_[rank] == pid) {
                pids_[rank] = 0;
                alive_--;
                // Its group may have more members.
                if (state_ != State::running)
                    (void)::kill(-pid, SIGKILL);
                process_ended(rank, wait_status);
                break;
            }
        }
    }
}

void Launcher::process_ended(uint32_t rank, int wait_status)
{
    int status = 0;
    if (WIFEXITED(wait_status))
        status = WEXITSTATUS(wait_status);
    else if (WIFSIGNALED(wait_status))
        status = 128 + WTERMSIG(wait_status);
    if (status == 0 || state_ != State::running)
        return;
    if (status == exit_not_found || status == exit_not_executable)
        report_exec_failure();
    if (WIFSIGNALED(wait_status)) {
        std::fprintf(stderr, "tofu-sim: process %u was ended by signal %d (%s)\n", rank, WTERMSIG(wait_status),
                     ::strsignal(WTERMSIG(wait_status)));
    }
    end_all(SIGTERM, status);
}

void Launcher::report_exec_failure()
{
    int error = 0;
    if (::read(exec_error_[0], &error, sizeof error) == ssize_t{sizeof error}) {
        std::fprintf(stderr, "tofu-sim: cannot run %s: %s\n", launch_.program[0], std::strerror(error));
        ended_ = End::not_executed;
    }
}

void Launcher::handle_signal(int signal_number)
{
    if (!ends_us(signal_number)) {
        send_all(signal_number);
    } else if (state_ == State::running) {
        ended_ = End::signal;
        end_all(signal_number, 128 + signal_number);
    } else { // a second signal means that the user does not want to wait
        state_ = State::killing;
        send_all(SIGKILL);
    }
}

void Launcher::end_all(int signal_number, int status)
{
    state_ = State::ending;
    status_ = status;
    kill_at_ = Clock::now() + grace;
    send_all(signal_number);
}

void Launcher::send_all(int signal_number) noexcept
{
    for (const pid_t pid : pids_)
        if (pid > 0 && ::kill(-pid, signal_number) != 0)
            (void)::kill(pid, signal_number);
}

/// Orphans of our processes have become our children. Each round kills a generation.
void Launcher::kill_descendants() noexcept
{
    const auto until = Clock::now() + grace;
    while (Clock::now() < until) {
        auto children = own_children();
        std::erase_if(children,
                      [this](pid_t pid) { return std::find(foreign_.begin(), foreign_.end(), pid) != foreign_.end(); });
        if (children.empty())
            return;
        for (const pid_t pid : children)
            (void)::kill(pid, SIGKILL);
        for (const pid_t pid : children)
            (void)::waitpid(pid, nullptr, 0); // ends: SIGKILL was sent
    }
}

} // namespace tofu::sim::tools
