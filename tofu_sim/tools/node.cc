// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-sim node: the topology of a node that this machine is not, for HWLOC_XMLFILE.
#include "tools/command.h"
#include "tools/node_model.h"

#include <cstdio>

namespace tofu::sim::tools {

int node_command(std::span<char* const> words)
{
    const NodeModel* const model = words.size() == 1 ? find_node_model(words[0]) : nullptr;
    if (model == nullptr) {
        std::fputs("tofu-sim: node: use the name of a known topology: a64fx\n", stderr);
        return exit_usage;
    }
    const std::string text = topology_xml(*model);
    if (text.empty())
        return exit_failure;
    std::fputs(text.c_str(), stdout); // whether it arrives: main
    return 0;
}

} // namespace tofu::sim::tools
