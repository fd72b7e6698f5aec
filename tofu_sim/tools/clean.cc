// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-sim clean: removes the files of jobs without a running process.
#include "tools/command.h"
#include "tools/job_files.h"

#include <algorithm>
#include <cstdio>

namespace tofu::sim::tools {

int clean_command(std::span<char* const> words)
{
    for (const char* const word : words) {
        if (word[0] == '-') {
            std::fprintf(stderr, "tofu-sim: clean: '%s' is not the name of a job\n", word);
            return exit_usage;
        }
    }
    const File base = open_base();
    const auto existing = list_jobs(base);
    std::vector<std::string> names(words.begin(), words.end());
    const bool all = names.empty();
    if (all)
        names = existing;
    int status = 0;
    for (const std::string& name : names) {
        if (std::find(existing.begin(), existing.end(), name) == existing.end()) {
            std::fprintf(stderr, "tofu-sim: no job '%s' in %s\n", name.c_str(), base_path().c_str());
            status = exit_failure;
            continue;
        }
        switch (remove_job(base, name)) {
        case Removal::removed: std::printf("%s: removed\n", name.c_str()); break;
        case Removal::in_use:
            std::printf("%s: in use, kept\n", name.c_str());
            status = all ? status : exit_failure;
            break;
        case Removal::failed:
            std::fprintf(stderr, "tofu-sim: cannot remove %s/%s\n", base_path().c_str(), name.c_str());
            status = exit_failure;
            break;
        }
    }
    return status;
}

} // namespace tofu::sim::tools
