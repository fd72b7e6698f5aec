// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Nodes that this machine is not: what hwloc finds in this process and its children while a Node is there. Used by
// tests of what is decided from a topology.
#pragma once

#include <cstdlib>
#include <string>

#include <unistd.h>

#include <hwloc.h>

namespace tofu::test {

/// In hwloc's own words. Of the A64FX the 4 groups of 12 compute cores; of the other, hardware threads, too.
inline constexpr const char* a64fx = "NUMANode:4 L2:1(size=8MB) L1d:12 Core:1 PU:1";
inline constexpr const char* two_sockets = "Package:2 NUMANode:1 L3:1 L2:8 L1d:1 Core:1 PU:2";
inline constexpr const char* sixty_four = "Package:2 NUMANode:1 L3:1 L2:32 L1d:1 Core:1 PU:1";

class Node {
  public:
    /// `allowed`: processors in hwloc's list syntax that a container is restricted to.
    explicit Node(const char* synthetic, const char* allowed = nullptr)
    {
        ::unsetenv("HWLOC_SYNTHETIC");
        ::unsetenv("HWLOC_XMLFILE");
        if (allowed == nullptr) {
            ::setenv("HWLOC_SYNTHETIC", synthetic, 1);
            return;
        }
        hwloc_topology_t topology = nullptr;
        hwloc_topology_init(&topology);
        hwloc_topology_set_synthetic(topology, synthetic);
        hwloc_topology_load(topology);
        hwloc_bitmap_t set = hwloc_bitmap_alloc();
        hwloc_bitmap_list_sscanf(set, allowed);
        hwloc_topology_restrict(topology, set, 0);
        hwloc_bitmap_free(set);
        char* text = nullptr;
        int length = 0;
        hwloc_topology_export_xmlbuffer(topology, &text, &length, 0);
        take(std::string(text, std::size_t(length) - 1));
        hwloc_free_xmlbuffer(topology, text);
        hwloc_topology_destroy(topology);
    }
    /// Of a file with this text, which may be no topology at all.
    static Node of_text(const std::string& text) { return Node(text, 0); }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node()
    {
        ::unsetenv("HWLOC_SYNTHETIC");
        ::unsetenv("HWLOC_XMLFILE");
        if (!path_.empty())
            (void)::unlink(path_.c_str());
    }

  private:
    Node(const std::string& text, int) { take(text); }

    void take(const std::string& text)
    {
        path_ = "/tmp/tofu-node-XXXXXX";
        const int file = ::mkstemp(path_.data());
        (void)!::write(file, text.data(), text.size());
        ::close(file);
        ::setenv("HWLOC_XMLFILE", path_.c_str(), 1);
    }

    std::string path_;
};

} // namespace tofu::test
