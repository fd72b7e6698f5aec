// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// replay [-v] [-p PLATFORM] FILE...: carries out programs, as the generator printed them, over the deterministic
// network, or over tcp, shm or sim (platform.h). Status 0: all was as it must be; 1: it was not. Run by hand, and by
// tests/prov/swarm/programs.sh.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

namespace {

int replay(const char* path, const swarm::Options& options, swarm::Platform& platform)
{
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    swarm::Program program;
    std::string wrong;
    if (!file || !swarm::read_program(text.str(), program, wrong)) {
        std::printf("%s: %s\n", path, file ? wrong.c_str() : "cannot be read");
        return 1;
    }
    program = platform.fit(std::move(program));
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const swarm::Numbers numbers = swarm::run_program(program, options, platform);
        std::printf("%s: as it must be; %llu steps of the network, %llu calls\n", path, numbers.steps, numbers.calls);
        std::fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0)
        platform.clear_after(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        std::printf("signal %d\n", WTERMSIG(status));
    std::printf("%s: not as it must be\n", path);
    return 1;
}

} // namespace

int main(int count, char** arguments)
{
    // Addresses are the same in each run.
    if (const int now = personality(0xffffffff); now != -1 && (now & ADDR_NO_RANDOMIZE) == 0 &&
                                                 personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", arguments);
    swarm::Options options;
    std::unique_ptr<swarm::Platform> platform = swarm::Platform::of("");
    int status = 0;
    for (int i = 1; i < count; i++)
        if (std::strcmp(arguments[i], "-v") == 0)
            options.verbose = true;
        else if (std::strcmp(arguments[i], "-k") == 0)
            options.knows_closing = true;
        else if (std::strcmp(arguments[i], "-p") == 0 && i + 1 < count)
            platform = swarm::Platform::of(arguments[++i]);
        else if (platform == nullptr)
            status = 1;
        else
            status |= replay(arguments[i], options, *platform);
    return status;
}
