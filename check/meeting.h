// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How the two processes of a check speak to each other without uTofu: by files in a directory that both see, which may
// be on different nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finding.h"

namespace tofu::check {

class Meeting {
  public:
    /// Files of this check: DIR/CHECK.*.
    Meeting(std::string directory, std::string check, int rank)
        : stem_(std::move(directory) + "/" + std::move(check) + "."), rank_(rank)
    {
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    /// Waits for the other's words, while it lives; throws Silence, or Stop without a verdict where it has stopped.
    [[nodiscard]] std::vector<std::uint64_t> swap(const std::vector<std::uint64_t>& mine);
    /// Neither returns before the other has come.
    void together() { (void)swap({}); }

    void leave_finding(const Finding& finding);
    [[nodiscard]] std::optional<Finding> finding_of(int rank) const;

  private:
    [[nodiscard]] std::string path(int rank, std::string_view what) const;

    std::string stem_;
    int rank_;
    unsigned meetings_ = 0;
};

/// The file as a whole, or nothing where there is none yet.
[[nodiscard]] std::optional<std::string> read_file(const std::string& path);
/// Appears as a whole or not at all.
void write_file(const std::string& path, std::string_view bytes);

} // namespace tofu::check
