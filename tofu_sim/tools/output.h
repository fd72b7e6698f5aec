// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Role: writes a file that is complete or not there; "-" is the standard output.
// Called by: tools/trace, tools/show. Calls: stdio.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <unistd.h>

namespace tofu::sim::tools {

// `write` gets the stream. Empty, or what went wrong.
template <typename Write>
[[nodiscard]] std::string write_file(const std::string& name, Write&& write)
{
    if (name == "-") {
        write(stdout);
        return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? std::string() : "can't write to the standard output";
    }
    const std::string unfinished = name + "." + std::to_string(::getpid()) + ".part";
    std::FILE* const to = std::fopen(unfinished.c_str(), "we");
    if (to == nullptr) {
        return "can't create " + unfinished + ": " + std::strerror(errno);
    }
    write(to);
    const bool good = std::fflush(to) == 0 && std::ferror(to) == 0;
    int error = good ? 0 : errno;
    if (std::fclose(to) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && std::rename(unfinished.c_str(), name.c_str()) == 0) {
        return {};
    }
    error = error != 0 ? error : errno;
    (void)::unlink(unfinished.c_str());
    return "can't write " + name + ": " + std::strerror(error);
}

} // namespace tofu::sim::tools
