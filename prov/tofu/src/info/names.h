// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Host and service names for endpoints of one machine, for programs that know nothing else (fi_getinfo(3), node
// and service). A name is an abstract Unix socket that carries the endpoint's address in its own name: the
// kernel forgets it with the process, however that ends. It counts within one user and one job. Called by info
// (fi_getinfo) and endpoint; calls vcq/backend for the job.
#pragma once

#include <cstdint>

#include "address/address.h"

namespace tofu::names {

/// Stands for the job: processes of another one are out of reach, whatever their names. 0 where the machine has one job
/// at a time.
[[nodiscard]] std::uint64_t job_key() noexcept;

/// What stands for a service name in an address that is still to be given: a hash, never 0.
[[nodiscard]] std::uint64_t key_of(const char* service) noexcept;

/// The source address of fi_getinfo: no endpoint has it yet. `key` 0: nobody is to find it by name.
[[nodiscard]] constexpr EndpointAddress placeholder(std::uint64_t key) noexcept
{
    return make_address(0, key, 0);
}

/// Is `node` this machine: one of its addresses, or a name of one? May ask the resolver, unless names are ruled out
/// (`numeric`).
[[nodiscard]] bool is_here(const char* node, bool numeric) noexcept;

/// The endpoint that a process of this user and job has announced under the key. False: none.
[[nodiscard]] bool find(std::uint64_t key, EndpointAddress& address) noexcept;

/// An announced name; withdrawn with the object.
class Announcement {
  public:
    Announcement() = default;
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;
    ~Announcement();
    /// 0 or -FI_E*.
    [[nodiscard]] int open(std::uint64_t key, const EndpointAddress& address) noexcept;
    [[nodiscard]] bool is_open() const noexcept { return socket_ >= 0; }
    /// Lets go of those who have found it: each leaves a connection, and there is room for some thousand. Any thread.
    void clear() noexcept;

  private:
    int socket_ = -1;
};

} // namespace tofu::names
