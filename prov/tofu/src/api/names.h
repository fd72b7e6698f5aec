// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Host and service names for endpoints of one machine, for programs that know nothing else (fi_getinfo(3), node
// and service). A name is an abstract Unix socket that carries the endpoint's address in its own name: the
// kernel forgets it with the process, however that ends. It counts within one user and one job. Called by info
// (fi_getinfo) and endpoint; calls utofu/library for the job.
#pragma once

#include <cstdint>

#include "av/address.h"

namespace tofu::names {

/// A number for the job: processes of another job are out of reach, whatever their names. 0 if the machine has one job
/// at a time.
[[nodiscard]] std::uint64_t job_key() noexcept;

/// The key of a service name: a hash, never 0. It stands for the name in an address that no endpoint has yet.
[[nodiscard]] std::uint64_t key_of(const char* service) noexcept;

/// The source address that fi_getinfo gives; no endpoint has it yet. `key` 0: the endpoint will have no name.
[[nodiscard]] constexpr EndpointAddress placeholder(std::uint64_t key) noexcept
{
    return make_address(0, key, 0);
}

/// Is `node` this machine, by one of its addresses or a name of one? May ask the resolver, unless `numeric` rules out
/// names.
[[nodiscard]] bool is_here(const char* node, bool numeric) noexcept;

/// The endpoint that a process of this user and job has announced under the key. False: none.
[[nodiscard]] bool find(std::uint64_t key, EndpointAddress& address) noexcept;

/// An announced name; the destructor withdraws it.
class Announcement {
  public:
    Announcement() = default;
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;
    ~Announcement();
    /// 0 or -FI_E*.
    [[nodiscard]] int open(std::uint64_t key, const EndpointAddress& address) noexcept;
    [[nodiscard]] bool is_open() const noexcept { return socket_ >= 0; }
    /// Closes the connections of processes that have found the name; each leaves one, and there is room for some
    /// thousand. Any thread.
    void clear() noexcept;

  private:
    int socket_ = -1;
};

} // namespace tofu::names
