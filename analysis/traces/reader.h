// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A trace file of a process, checked: its contents are in bounds after it was read.
#pragma once

#include "trace/format.h"

#include <string>
#include <vector>

namespace tofu::sim::trace {

struct Event {
    Record record;
    uint32_t thread = 0;
};

struct ProcessTrace {
    std::string path;
    FileHeader header{};
    std::vector<Event> events; ///< by time; of a thread in its order
    uint64_t damaged = 0;      ///< records that no recorder writes
    bool cut_off = false;      ///< chunks are missing that were written
};

/// What a record may hold is what a recorder can have written.
[[nodiscard]] bool is_sound_record(const Record& record, const FileHeader& header) noexcept;

/// Empty, or why nothing can be read, with what to do.
[[nodiscard]] std::string read_trace(const std::string& path, ProcessTrace& trace);

} // namespace tofu::sim::trace
