// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tofu-sim command: run, show, trace, replay, node, clean (man/tofu-sim.1).
#include "tools/command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <span>

namespace {

constexpr char help_text[] =
    "usage: tofu-sim run -n N [options] PROGRAM [ARGUMENTS]\n"
    "       tofu-sim show [options] [JOB...]\n"
    "       tofu-sim trace [options] FILE|DIRECTORY...\n"
    "       tofu-sim replay [options] FILE|DIRECTORY...\n"
    "       tofu-sim replay [options] --pattern NAME\n"
    "       tofu-sim node NAME\n"
    "       tofu-sim clean [JOB...]\n"
    "\n"
    "run: starts N processes of one job on the simulated interconnect, without MPI.\n"
    "  -n N, --np N          processes\n"
    "  --shape XxYxZ         units of 2x3x2 nodes along X, Y and Z (TOFU_SIM_SHAPE)\n"
    "  --torus AXES          axes that wrap around, of x, y, z (TOFU_SIM_TORUS)\n"
    "  --ppn P               processes of a node, 1 to 54 (TOFU_SIM_PPN)\n"
    "  --job NAME            job to start or to join (default: a new name)\n"
    "  --chaos SEED[:LIST]   adversarial mode (TOFU_SIM_CHAOS)\n"
    "  --clock               virtual time, that of Tofu-D (TOFU_SIM_CLOCK), for programs too\n"
    "  --exact               the same, and processes proceed in the order of their clocks: runs are reproducible\n"
    "  --seeds A-B[:LIST]    --exact with each seed of the adversarial mode until a run fails\n"
    "  --cpu FACTOR          ratio of computing time on the target to that on this machine (TOFU_SIM_CPU)\n"
    "  --node a64fx          programs that ask hwloc see this node, not this machine (HWLOC_XMLFILE)\n"
    "  --bind WHICH          node (default): the processes of each node are bound to separate processors, if there\n"
    "                        are enough; none: not bound\n"
    "  --timeout SECONDS     kill all processes after this time and exit with 124\n"
    "  --library-path DIR    put DIR in front of LD_LIBRARY_PATH\n"
    "\n"
    "If a process fails, the others are ended, and the command exits with its status (128 + signal\n"
    "for a signal). INT, TERM, HUP, QUIT, USR1 and USR2 are forwarded. Process 0 reads standard\n"
    "input unless that is a terminal; the others read nothing.\n"
    "\n"
    "show: lists jobs with their processes, placement, queues and counters; or one of these:\n"
    "  --vcqs                also lists each VCQ with its queue\n"
    "  --svg FILE            the network of one job, with links coloured by their traffic\n"
    "  --counters            the counters of each port that the machine has as well\n"
    "\n"
    "trace: merges the files of TOFU_SIM_TRACE; prints a summary, or writes (- is standard\n"
    "output):\n"
    "  --from TIME, --to TIME  a part, such as 200us to 1.5ms since the first message between processes; default:\n"
    "                        from there to the end; --from start: all\n"
    "  --json FILE           Chrome's trace events, for ui.perfetto.dev\n"
    "  --otf2 DIRECTORY      Open Trace Format 2, for Vampir and others\n"
    "  --goal FILE           GOAL, for LogGOPSim and others\n"
    "  --html FILE           one self-contained page with all pictures\n"
    "  --svg DIRECTORY       the same pictures as files: network, timeline, waits, sizes\n"
    "  --counters FILE       as show --counters, exact\n"
    "  --channel-buffer B    bytes of a port's virtual channel, to compute its cycles without credit\n"
    "\n"
    "replay: the same traffic on another network, or a pattern without a trace; prints times, the hottest\n"
    "links and the bisection's share. Traces need SimGrid, or --share 0.\n"
    "  --shape, --torus, --ppn  as for run, up to 24x23x24 (158,976 nodes); default: as recorded\n"
    "  --placement WHICH     order (of nodes), random:SEED, snake, or box:XxYxZ (nodes)\n"
    "  --paths WHICH         recorded, spread, target or source: the corner at which a route turns\n"
    "  --link GB/S           of a link and a TNI (Tofu-D: 6.8)\n"
    "  --cpu FACTOR          ratio of computing time to the recorded one\n"
    "  --share N             maximal number of competing messages that SimGrid computes at a time; others are\n"
    "                        served in turn (default: 5000 for a trace, 0 for a pattern)\n"
    "  --pattern NAME        pingpong, ring, butterfly, halo3, halo6, gates, gates-sum, or one of the provider's\n"
    "                        collectives: barrier, broadcast, reduce, allreduce, allgather, alltoall\n"
    "  --algorithm NAME      of broadcast: binomial, chain, double-tree, scatter-allgather; of allreduce:\n"
    "                        provider, doubling, ring; of allgather: bruck, ring; of alltoall: bruck, pairwise,\n"
    "                        linear\n"
    "  --segment B           bytes of a message of chain and double-tree (16384)\n"
    "  -n N, --bytes B, --rounds R  processes of the pattern, bytes of a message, number of rounds\n"
    "\n"
    "node: writes the topology of a node for HWLOC_XMLFILE, as run --node sets it, to standard output: a64fx.\n"
    "\n"
    "clean: removes files of jobs that have no running process.\n";

struct Command {
    const char* name;
    int (*run)(std::span<char* const> words);
};

constexpr Command commands[] = {
    {"run", tofu::sim::tools::run_command},     {"show", tofu::sim::tools::show_command},
    {"trace", tofu::sim::tools::trace_command}, {"replay", tofu::sim::tools::replay_command},
    {"node", tofu::sim::tools::node_command},   {"clean", tofu::sim::tools::clean_command},
};

bool asks_for_help(const char* word)
{
    return std::strcmp(word, "--help") == 0 || std::strcmp(word, "-h") == 0;
}

/// What was printed has arrived, or the command has failed.
int finish(int status)
{
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return status;
    // An error of an earlier write has left its mark, but not its number.
    std::fprintf(stderr, "tofu-sim: cannot write to standard output: %s\n",
                 errno != 0 ? std::strerror(errno) : "its output is not complete");
    return status != 0 ? status : tofu::sim::tools::exit_failure;
}

} // namespace

int main(int argc, char** argv)
{
    using tofu::sim::tools::exit_usage;
    if (argc < 2) {
        std::fputs(help_text, stderr);
        return exit_usage;
    }
    const char* const name = argv[1];
    const std::span<char* const> words(argv + 2, static_cast<size_t>(argc - 2));
    const auto* const command = std::find_if(std::begin(commands), std::end(commands),
                                             [name](const Command& c) { return std::strcmp(c.name, name) == 0; });
    const bool known = command != std::end(commands);
    if (asks_for_help(name) || std::strcmp(name, "help") == 0 || (known && !words.empty() && asks_for_help(words[0]))) {
        std::fputs(help_text, stdout);
        return finish(0);
    }
    if (known)
        return finish(command->run(words));
    std::fprintf(stderr, "tofu-sim: no command '%s': use run, show, trace, replay, node, clean or --help\n", name);
    return exit_usage;
}
