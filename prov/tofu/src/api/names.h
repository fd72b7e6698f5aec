// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What finds endpoints of one machine without an address: the mark of a job in a domain's nonce, and host and service
// names (key_of, find, Announcement).
#pragma once

#include <cstdint>

#include "av/address.h"
#include "core/system.h"

namespace tofu::names {

// --- the mark of a job: the lower 16 bits of a domain's nonce identify its job (job_key) on a machine with several
// jobs. An address vector warns of an address of another job, where nothing that is sent arrives.

inline constexpr std::uint64_t job_mark_bits = 0xffff;

/// The nonce with the mark of the job; as it is where `job_key` is 0.
[[nodiscard]] constexpr std::uint64_t with_job_mark(std::uint64_t nonce, std::uint64_t job_key) noexcept
{
    if (job_key == 0)
        return nonce;
    const std::uint64_t marked = (nonce & ~job_mark_bits) | (job_key & job_mark_bits);
    return marked != 0 ? marked : job_mark_bits + 1;
}
[[nodiscard]] constexpr bool is_of_another_job(std::uint64_t nonce, std::uint64_t job_key) noexcept
{
    return job_key != 0 && ((nonce ^ job_key) & job_mark_bits) != 0;
}

// --- Announcement: host and service names for endpoints of one machine, for programs that know nothing else
// (fi_getinfo(3), node and service). A name is an abstract Unix socket that carries the endpoint's address in its own
// name: the kernel forgets it with the process, however that ends. It counts within one user and one job.

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
    ~Announcement();
    /// 0 or -FI_E*.
    [[nodiscard]] int open(std::uint64_t key, const EndpointAddress& address) noexcept;
    [[nodiscard]] bool is_open() const noexcept { return socket_.get() >= 0; }
    /// Closes the connections of processes that have found the name; each leaves one, and there is room for some
    /// thousand. Any thread.
    void clear() noexcept;

  private:
    OwnDescriptor socket_;
};

} // namespace tofu::names
