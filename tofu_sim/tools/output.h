// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes a file that is complete or not there; "-" is the standard output. What is no plain file is written to.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace tofu::sim::tools {

/// Devices, pipes and symbolic links are places that the user has made: a new file at their name would remove them.
[[nodiscard]] inline bool is_written_in_place(const std::string& name)
{
    struct stat there {};
    return ::lstat(name.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode);
}

/// `write` gets the stream, which is closed. 0, or an error number.
template <typename Write>
[[nodiscard]] int write_stream(std::FILE* to, Write&& write)
{
    errno = 0;
    write(to);
    const bool good = std::fflush(to) == 0 && std::ferror(to) == 0;
    int error = good ? 0 : errno != 0 ? errno : EIO;
    if (std::fclose(to) != 0 && error == 0)
        error = errno;
    return error;
}

/// `write` gets the stream. Empty, or what went wrong.
template <typename Write>
[[nodiscard]] std::string write_file(const std::string& name, Write&& write)
{
    if (name == "-") {
        write(stdout); // whether it arrives: main
        return {};
    }
    const bool in_place = is_written_in_place(name);
    const std::string place = in_place ? name : name + "." + std::to_string(::getpid()) + ".part";
    std::FILE* const to = std::fopen(place.c_str(), "we");
    if (to == nullptr)
        return "cannot " + std::string(in_place ? "write to " : "create ") + place + ": " + std::strerror(errno);
    int error = write_stream(to, write);
    if (error == 0 && (in_place || std::rename(place.c_str(), name.c_str()) == 0))
        return {};
    error = error != 0 ? error : errno;
    if (!in_place)
        (void)::unlink(place.c_str());
    return "cannot write " + name + ": " + std::strerror(error);
}

} // namespace tofu::sim::tools
