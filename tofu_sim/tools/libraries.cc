// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where libraries are that came with this command.
#include "tools/libraries.h"

#include <string_view>
#include <unistd.h>

namespace tofu::sim::tools {

std::string find_library(const std::string& name, const std::string& place)
{
    char self[4096];
    const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self);
    const std::string_view path(self, length > 0 ? static_cast<size_t>(length) : 0);
    const std::string directory(path.substr(0, path.rfind('/')));
    for (const std::string& candidate :
         {TOFU_SIM_LIBDIR "/" + place + name, directory + "/../lib/" + place + name, directory + "/../.libs/" + name})
        if (::access(candidate.c_str(), R_OK) == 0)
            return candidate;
    return {};
}

} // namespace tofu::sim::tools
