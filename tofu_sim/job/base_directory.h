// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The directory under /dev/shm in which the jobs of this user are, whatever others have put there.
#pragma once

namespace tofu::sim {

inline constexpr char shm_root[] = "/dev/shm";
inline constexpr char job_file_name[] = "job"; ///< in the directory of a job, below this one

struct BaseDirectory {
    int fd = -1;
    char path[64] = {}; ///< also if it does not exist: the one that would be created
};

/// Finds the directory of this user; fd stays -1 if there is none. UTOFU_SUCCESS, UTOFU_ERR_BUSY: it is being made or
/// removed, try again, or an error after a line on stderr.
[[nodiscard]] int find_base_directory(BaseDirectory& base) noexcept;
/// The same, and creates it if there is none.
[[nodiscard]] int make_base_directory(BaseDirectory& base) noexcept;

} // namespace tofu::sim
