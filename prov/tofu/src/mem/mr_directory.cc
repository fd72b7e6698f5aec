// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The directory of regions as a reader sees it: checks and search in one bucket that came by Get. Called by
// own_directory.cc (owner) and tx/keys.cc (peers). Calls nothing. Nothing in a bucket is trusted.
#include "mem/mr_directory.h"

#include <initializer_list>

namespace tofu::directory {

std::uint64_t check_of(const Entry& entry, std::uint64_t nonce) noexcept
{
    std::uint64_t sum = mix(nonce + 0x7f4a7c15u);
    for (std::uint64_t word : {entry.key, entry.bias, entry.begin, entry.length,
                               std::uint64_t{entry.home} << 48 | std::uint64_t{entry.rights} << 32 |
                                   entry.generation})
        sum = mix(sum ^ word) + 0x9e3779b97f4a7c15u;
    return sum != 0 ? sum : 1; // 0 marks an empty entry
}

std::uint32_t check_of(std::uint64_t next_stadd, std::uint32_t next_log2,
                       std::uint64_t nonce) noexcept
{
    return static_cast<std::uint32_t>(mix(mix(nonce ^ next_stadd) + next_log2) | 1);
}

std::uint64_t check_of_annex(utofu_vcq_id_t vcq, unsigned number, std::uint64_t nonce) noexcept
{
    const std::uint64_t sum = mix(mix(nonce ^ vcq) + number);
    return sum != 0 ? sum : 1; // 0 says that there is none
}

Found find(const Bucket& bucket, std::uint64_t key, std::uint64_t nonce, Entry& entry) noexcept
{
    bool torn = bucket.next_log2 > max_log2 ||
                bucket.next_check != check_of(bucket.next_stadd, bucket.next_log2, nonce);
    for (const Entry& e : bucket.entry) {
        if (e.check == 0)
            continue;
        if (e.check != check_of(e, nonce)) {
            torn = true;
        } else if (e.key == key) {
            entry = e;
            return Found::entry;
        }
    }
    return torn ? Found::torn : Found::absent;
}

} // namespace tofu::directory
