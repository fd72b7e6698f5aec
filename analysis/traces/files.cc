// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The trace files that an argument of the command line names. See files.h.
#include "traces/files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <string_view>
#include <sys/stat.h>

namespace tofu::sim::tools {
namespace {

/// job.3.trace, and what the recorder adds: run.trace.3, or a number that keeps two files apart.
bool is_trace_name(std::string_view name)
{
    for (;;) {
        const size_t dot = name.rfind('.');
        const size_t digits = name.find_last_not_of("0123456789");
        if (dot == name.npos || digits != dot || dot + 1 == name.size())
            return name.ends_with(".trace");
        name.remove_suffix(name.size() - dot);
    }
}

} // namespace

std::string add_trace_files(const char* word, std::vector<std::string>& paths)
{
    struct stat status {};
    if (::stat(word, &status) != 0 || !S_ISDIR(status.st_mode)) {
        paths.emplace_back(word);
        return {};
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(word), ::closedir);
    if (!directory)
        return std::string(word) + ": " + std::strerror(errno);
    const size_t before = paths.size();
    while (const dirent* const entry = ::readdir(directory.get())) {
        const std::string name = entry->d_name;
        if (is_trace_name(name))
            paths.push_back(std::string(word) + "/" + name);
    }
    std::sort(paths.begin() + static_cast<ptrdiff_t>(before), paths.end());
    return paths.size() != before ? std::string() : std::string(word) + " has no file *.trace; name the files";
}

} // namespace tofu::sim::tools
