// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What messages cost where an endpoint has more peers than rings, or more than channels: many endpoints of a few
// processes, each process on a node of its own. Run by bench/run and by hand.
//
// Time from the first message to the last entry, divided by the number of messages; so processors are what counts.
// Peers have not talked before. Prints a line a series for bench/report.
#include "frame/objects.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <rdma/fi_tagged.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace tofu::bench;
using Clock = std::chrono::steady_clock;

constexpr unsigned most_endpoints = 4200;
constexpr unsigned longest = 120; ///< seconds, of one measurement

/// What the processes of a measurement share.
struct Board {
    std::atomic<unsigned> arrived;
    char names[most_endpoints][64];
    double us;
};

/// The senders and receivers: `processes` of `each` endpoints; the first process has `first` ones.
struct Peers {
    unsigned processes, each, first;
    bool to_first;   ///< all send to the first endpoint, or
    bool from_first; ///< it sends to all; else all send to all
    unsigned rounds;
    std::size_t size;
    const char* rings;

    [[nodiscard]] unsigned of(unsigned process) const { return process == 0 ? first : each; }
    [[nodiscard]] unsigned begin(unsigned process) const { return process == 0 ? 0 : first + (process - 1) * each; }
    [[nodiscard]] unsigned all() const { return begin(processes); }
    [[nodiscard]] long messages() const
    {
        const long pairs = to_first || from_first ? all() - first : long(all()) * all();
        return pairs * rounds;
    }
};

class Process {
  public:
    Process(const Peers& peers, unsigned number, Board& board) : peers_(peers), number_(number), board_(board)
    {
        for (unsigned i = 0; i < peers.of(number); i++) {
            std::size_t length = sizeof(board.names[0]);
            check(fi_getname(&objects_.add_endpoint()->fid, board.names[peers.begin(number) + i], &length),
                  "fi_getname");
        }
        barrier();
        for (unsigned i = 0; i < peers.all(); i++)
            check(fi_av_insert(objects_.av, board.names[i], 1, nullptr, 0, nullptr) - 1, "fi_av_insert");
        expected_ = received() * long(objects_.ep.size());
        for (fid_ep* ep : objects_.ep)
            for (long n = received(); n > 0; n--)
                check(fi_recv(ep, in_.data(), peers.size, nullptr, FI_ADDR_UNSPEC, nullptr), "fi_recv");
    }
    void run()
    {
        barrier();
        const auto begin = Clock::now();
        const bool sends = peers_.from_first ? number_ == 0 : !peers_.to_first || number_ != 0;
        for (unsigned round = 0; sends && round < peers_.rounds; round++)
            for (unsigned to = peers_.from_first ? peers_.first : 0; to < (peers_.to_first ? 1 : peers_.all()); to++)
                for (fid_ep* ep : objects_.ep)
                    send(ep, to);
        for (long polls = 0; came_ < expected_; polls++) {
            progress();
            check(polls > Objects::patience ? -FI_ETIMEDOUT : 0, "messages");
        }
        barrier();
        if (number_ == 0)
            board_.us =
                std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / double(peers_.messages());
        barrier();
    }

  private:
    [[nodiscard]] long received() const
    {
        if (peers_.to_first)
            return number_ == 0 ? peers_.messages() : 0;
        return peers_.from_first ? (number_ == 0 ? 0 : peers_.rounds) : long(peers_.all()) * peers_.rounds;
    }
    void send(fid_ep* ep, unsigned to)
    {
        long ret;
        for (long polls = 0; (ret = fi_send(ep, out_.data(), peers_.size, nullptr, to, nullptr)) == -FI_EAGAIN &&
                             polls < Objects::patience;
             polls++)
            progress();
        check(ret, "fi_send");
        expected_++;
    }
    void progress() { came_ += objects_.progress(); }
    void barrier()
    {
        board_.arrived++;
        for (const unsigned all = ++barriers_ * peers_.processes; board_.arrived < all;)
            progress();
    }

    const Peers& peers_;
    unsigned number_;
    Board& board_;
    Objects objects_{{.queue_size = 16384}};
    std::vector<char> in_ = std::vector<char>(8192), out_ = in_;
    unsigned barriers_ = 0;
    long expected_ = 0; ///< entries
    long came_ = 0;
};

/// Microseconds a message, or the program's end.
double measure(const Peers& peers)
{
    void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared == MAP_FAILED ? -FI_ENOMEM : 0, "mmap");
    Board& board = *new (shared) Board{};
    std::vector<pid_t> children;
    for (unsigned number = 0; number < peers.processes; number++) {
        const pid_t child = fork();
        check(child, "fork");
        if (child == 0) {
            alarm(longest);
            setenv("TOFU_SIM_PPN", "1", 1);
            setenv("TOFU_SIM_SHAPE", "2x1x1", 1);
            setenv("FI_TOFU_RINGS", peers.to_first && number != 0 ? "1" : peers.rings, 1);
            Process(peers, number, board).run();
            std::exit(0);
        }
        children.push_back(child);
    }
    bool good = true;
    while (!children.empty()) {
        int status = 0;
        std::erase(children, wait(&status));
        good &= status == 0;
        for (const pid_t child : children)
            if (!good) // they would wait for the failed process
                kill(child, SIGKILL);
    }
    check(good ? 0 : -FI_EOTHER, "a process");
    const double us = board.us;
    munmap(shared, sizeof(Board));
    return us;
}

} // namespace

int main(int argc, char** argv)
{
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const struct {
        const char* name;
        Peers peers;
    } series[] = {
        {"252 senders to one, one message each", {19, 14, 1, true, false, 1, 8, "512"}},
        {"4,104 senders to one, one message each", {19, 228, 1, true, false, 1, 8, "512"}},
        {"alltoall of 96, 512 rings", {2, 48, 48, false, false, 8, 8, "512"}},
        {"alltoall of 96, 16 rings", {2, 48, 48, false, false, 8, 8, "16"}},
        {"alltoall of 96, 512 rings", {2, 48, 48, false, false, 8, 1024, "512"}},
        {"alltoall of 96, 16 rings", {2, 48, 48, false, false, 8, 1024, "16"}},
        {"one to 960, in turn", {9, 120, 1, false, true, 8, 8, "2"}},
        {"one to 1,920, in turn", {9, 240, 1, false, true, 8, 8, "2"}},
    };
    for (const auto& [name, peers] : series) {
        if (quick && peers.all() > 300)
            continue;
        std::string samples;
        for (int round = 0; round < (quick ? 1 : 5); round++)
            samples += (round != 0 ? "," : "") + std::to_string(measure(peers));
        std::printf("Many peers\t%s\t%zu\t%u\tus\ttofu\t%s\n", name, peers.size, peers.processes, samples.c_str());
        std::fflush(stdout);
    }
    return 0;
}
