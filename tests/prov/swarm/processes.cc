// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Real processes over tofu_sim as a platform. The process that carries out the program forks one for each of the
// program's and lets them call, one at a time. What the model knows, the calls and their buffers are in memory that all
// share; the provider's objects are each process's own. A process in a call that waits for others lets the first one go
// on meanwhile. See platform.h.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/providers/fi_prov.h>

#include "model.h"
#include "msg/tx_ring.h"
#include "real_time.h"
#include "shared_heap.h"

extern "C" fi_provider* fi_prov_ini(void);

namespace swarm {
namespace {

/// Between the first process and one of the others.
struct Note {
    enum What : std::uint8_t {
        call,   ///< run(call), then answer `done`
        done,   ///< the call has returned
        waits,  ///< it waits for others: these are to run, meanwhile call `others`
        waited, ///< it does not wait any more, and wants to go on
        go      ///< it may
    } what = call;
    void (*run)(void*) = nullptr;
    void* argument = nullptr;
    void (*others)() = nullptr;
};

void send_note(int to, const Note& note)
{
    if (::send(to, &note, sizeof note, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof note))
        _exit(3); // the other side says why
}

/// False: the other side is gone.
bool read_note(int from, Note& note)
{
    ssize_t got = 0;
    do
        got = ::recv(from, &note, sizeof note, 0);
    while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(sizeof note);
}

/// The text of a program gives the seed of the simulator's chaos.
std::uint64_t seed_of(const Program& program)
{
    std::uint64_t sum = 0xcbf29ce484222325u;
    for (const char c : text_of(program))
        sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return sum;
}

class Processes final : public RealTime {
  public:
    Processes()
        : RealTime(std::chrono::seconds(30)) {} // a closed peer that never answers takes 5 s, several a few times that
    ~Processes() override { stop_all(); }

    [[nodiscard]] Program fit(Program program) const override
    {
        program.setup.silent = 0;
        // A process that is killed leaves its vector.
        for (const Command& c : program.commands)
            program.setup.sharedav = c.what == Do::kill ? 0 : program.setup.sharedav;
        return program;
    }
    void begin(const Program& program) override
    {
        const Setup& s = program.setup;
        if (std::getenv("FI_TOFU_BACKEND") == nullptr)
            contradict("FI_TOFU_BACKEND must name libtofucom.so of the simulator");
        static unsigned runs = 0;
        const char* const prefix = std::getenv("TOFU_TEST_JOB_PREFIX");
        job_ = (prefix != nullptr ? std::string(prefix) : "swarm") + "-" + std::to_string(getpid()) + "-" +
               std::to_string(runs++);
        setenv("TOFU_SIM_JOB", job_.c_str(), 1);
        if (s.chaos != 0) {
            std::string chaos = std::to_string(seed_of(program)) + ":late,raw,padding";
            chaos += s.drop != 0 ? ",drop" : "";
            chaos += s.blind != 0 ? ",poll" : "";
            chaos += s.oldtags != 0 ? ",tags" : "";
            setenv("TOFU_SIM_CHAOS", chaos.c_str(), 1);
        }
        // Endpoints are enabled before their addresses are known, so one that is absent is gone.
        tofu::proto::TxRings::absent_limit_ms = 1000;
        share_heap();
    }
    void end() override
    {
        stop_all();
        const std::string files = "/dev/shm/tofu-sim-" + std::to_string(geteuid()) + "/" + job_;
        struct stat status {};
        if (::stat(files.c_str(), &status) == 0)
            contradict("all processes have ended, and %s is left", files.c_str());
    }

    fi_info* find(fi_info& hints) override
    {
        fi_info* found = nullptr;
        return provider().getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, &hints, &found) == 0 ? found : nullptr;
    }
    int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric) override
    {
        return provider().fabric(attr, fabric, nullptr);
    }

    void start(unsigned process) override
    {
        Worker& worker = workers_[process];
        if (worker.pid != 0)
            return;
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
            std::abort();
        std::fflush(stdout);
        const pid_t first = getpid();
        worker.pid = fork();
        if (worker.pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != first)
                _exit(3);
            for (const Worker& other : workers_)
                if (other.socket >= 0)
                    ::close(other.socket);
            ::close(ends[0]);
            serve(process, ends[1]);
        }
        ::close(ends[1]);
        worker.socket = ends[0];
    }
    bool kill(unsigned process) override
    {
        Worker& worker = workers_[process];
        ::kill(worker.pid, SIGKILL);
        waitpid(worker.pid, nullptr, 0);
        ::close(worker.socket);
        worker = {};
        return true;
    }
    [[nodiscard]] bool is_one_process() const override { return false; }

  protected:
    [[nodiscard]] bool is_elsewhere(unsigned process) const override { return here_ != static_cast<int>(process); }
    void hand_over(unsigned process, void (*run)(void*), void* argument) override
    {
        if (here_ >= 0)
            contradict("process %d calls for process %u", here_, process);
        const int socket = workers_[process].socket;
        send_note(socket, {.what = Note::call, .run = run, .argument = argument});
        for (Note note; note.what != Note::done;) {
            if (!read_note(socket, note))
                fail(process);
            if (note.what == Note::waits)
                run_others(process, note.others);
        }
    }
    void begin_wait(void (*others)()) override { send_note(socket_, {.what = Note::waits, .others = others}); }
    void end_wait() override
    {
        Note note{.what = Note::waited};
        send_note(socket_, note);
        if (!read_note(socket_, note))
            _exit(3);
    }

  private:
    struct Worker {
        pid_t pid = 0; ///< 0: none
        int socket = -1;
    };

    static fi_provider& provider()
    {
        static fi_provider& linked = *fi_prov_ini();
        return linked;
    }

    /// The life of a process of the program.
    [[noreturn]] void serve(unsigned process, int socket)
    {
        here_ = static_cast<int>(process);
        socket_ = socket;
        for (Note note; read_note(socket, note);) {
            note.run(note.argument);
            std::fflush(stdout);
            send_note(socket, {.what = Note::done});
        }
        std::exit(0); // not _exit: the library leaves the job in its destructor
    }

    /// The others run until the process does not wait any more.
    void run_others(unsigned process, void (*others)())
    {
        const int socket = workers_[process].socket;
        for (pollfd ready{socket, POLLIN, 0}; poll(&ready, 1, 0) == 0;)
            others();
        Note note;
        if (!read_note(socket, note))
            fail(process);
        send_note(socket, {.what = Note::go});
    }

    /// A process has ended of itself: it has said why, or has crashed.
    [[noreturn]] void fail(unsigned process)
    {
        int status = 0;
        waitpid(std::exchange(workers_[process].pid, 0), &status, 0);
        for (const Worker& worker : workers_)
            if (worker.pid != 0)
                ::kill(worker.pid, SIGKILL);
        for (const Worker& worker : workers_)
            if (worker.pid != 0)
                waitpid(worker.pid, nullptr, 0);
        if (WIFSIGNALED(status))
            contradict("process %u ended with signal %d", process, WTERMSIG(status));
        std::fflush(stdout);
        _exit(3);
    }

    void stop_all()
    {
        for (unsigned p = 0; p < most_processes; p++) {
            const Worker worker = std::exchange(workers_[p], Worker{});
            if (worker.pid == 0)
                continue;
            ::close(worker.socket);
            int status = 0;
            waitpid(worker.pid, &status, 0);
            if (status != 0)
                contradict("process %u has ended with status %x", p, static_cast<unsigned>(status));
        }
    }

    std::string job_;
    Worker workers_[most_processes];
    int here_ = -1; ///< which process of the program this one is; -1: the first one
    int socket_ = -1;
};

} // namespace

std::unique_ptr<Platform> make_processes()
{
    return std::make_unique<Processes>();
}

} // namespace swarm
