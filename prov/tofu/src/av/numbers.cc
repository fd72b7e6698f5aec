// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See numbers.h. The history is a file in memory, one for each user and node: 512 records of 64 bytes, each the
// unsettled numbers of one home VCQ. A number in use is written down as unsettled, so that it is unsettled when its
// process is killed. Byte 0 is locked for a change of records; each process with a domain has a read lock on byte 1.
#include "av/numbers.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include <rdma/fi_errno.h>
#include <unistd.h>

#include "core/log.h"
#include "core/system.h"

namespace tofu {
namespace {

struct Record {
    std::uint64_t key = 0; ///< 0: none
    std::uint64_t used = 0;///< seconds since 1970: when it was changed last
    std::uint64_t unsettled[(max_endpoints + 63) / 64] = {};
    std::uint64_t reserved[2] = {};
};
static_assert(sizeof(Record) == 64);

constexpr unsigned record_count = 512;
constexpr unsigned probes = 16; ///< records in which a key may stand
constexpr std::chrono::milliseconds patience{200};
constexpr int open_tries = 8; ///< another process may remove the file at the same time

constexpr off_t place_of(std::uint64_t key, unsigned probe) noexcept
{
    return static_cast<off_t>((key + probe) % record_count * sizeof(Record));
}

/// The file of this process, under the mutex.
constinit std::mutex mutex;
constinit NodeFile file;
pid_t owner = 0;
unsigned domains = 0; ///< that use it

bool join() noexcept
{
    if (owner != getpid()) { // a child of fork shares the description, and with it its parent's locks
        file.close();
        owner = getpid();
        domains = 0;
    }
    char path[64];
    std::snprintf(path, sizeof path, "/dev/shm/tofu-fi-endpoints-%u", geteuid());
    for (int attempt = 0; !file.is_open() && attempt < open_tries; attempt++)
        if (!file.open(path) || !file.lock_within(patience, F_RDLCK, 1, 1) || file.is_removed())
            file.close();
    domains += file.is_open();
    return file.is_open();
}

void part(bool may_outlive) noexcept
{
    if (owner != getpid() || --domains != 0)
        return;
    // The last process of all removes the file, unless a peer on another node may still write.
    if (file.lock(F_WRLCK, 1, 1)) {
        bool needed = false;
        Record record;
        for (unsigned n = 0; may_outlive && !needed && n < record_count; n++)
            needed = pread(file.descriptor(), &record, sizeof record, place_of(n, 0)) == sizeof record && record.key != 0;
        if (!needed)
            file.remove();
    }
    file.close();
}

/// The record of a key, or the free one or oldest one that it takes.
off_t find(std::uint64_t key, Record& record) noexcept
{
    off_t at = place_of(key, 0);
    std::optional<Record> oldest;
    for (unsigned probe = 0; probe < probes; probe++) {
        Record found; // where the file ends: a free one
        (void)pread(file.descriptor(), &found, sizeof found, place_of(key, probe));
        if (found.key != key && oldest && (found.key == 0 ? 0 : found.used) >= oldest->used)
            continue;
        oldest = found.key == 0 ? Record{} : found;
        at = place_of(key, probe);
        if (found.key == key)
            break;
    }
    record = oldest->key == key ? *oldest : Record{};
    return at;
}

/// Lets `use` read or change the record of a key. False: there is no file, or it can't be locked.
template <class Use>
bool with_record(std::uint64_t key, Use&& use) noexcept
{
    std::lock_guard guard(mutex);
    if (owner != getpid() || !file.is_open() || !file.lock_within(patience, F_WRLCK, 0, 1))
        return false;
    Record record;
    const off_t at = find(key, record);
    if (use(record))
        (void)pwrite(file.descriptor(), &record, sizeof record, at);
    (void)file.lock(F_UNLCK, 0, 1);
    return true;
}

std::uint64_t key_of(const char* job, std::uint64_t home) noexcept
{
    std::uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
    for (; job != nullptr && *job != '\0'; job++)
        add(static_cast<unsigned char>(*job));
    for (unsigned i = 0; i < sizeof home; i++)
        add(static_cast<unsigned char>(home >> 8 * i));
    return hash | 1;
}

} // namespace

void EndpointNumbers::open(const char* job, std::uint64_t home, std::uint64_t random) noexcept
{
    {
        std::lock_guard guard(mutex);
        if (!join()) {
            TOFU_WARN(FI_LOG_DOMAIN, "domain: cannot open /dev/shm/tofu-fi-endpoints-%u: the number of the first endpoint "
                                     "is random, and a stopped peer of an earlier process may write into it in one of "
                                     "%u cases; make /dev/shm writable, or remove the file with this name\n",
                      geteuid(), unsigned{max_endpoints});
            start_ = static_cast<unsigned>(random % max_endpoints);
            return;
        }
    }
    key_ = key_of(job, home);
    may_outlive_ = job == nullptr;
    (void)with_record(key_, [this](const Record& record) {
        for (unsigned n = 0; n < max_endpoints; n++)
            unsettled_[n] = record.key == key_ && (record.unsettled[n / 64] >> n % 64 & 1) != 0;
        return false;
    });
}

EndpointNumbers::~EndpointNumbers()
{
    if (key_ == 0)
        return;
    std::lock_guard guard(mutex);
    part(may_outlive_ || killed_of_test);
}

void EndpointNumbers::save() const noexcept
{
    if (key_ == 0 || killed_of_test)
        return;
    const Set unsettled = taken_ | unsettled_;
    (void)with_record(key_, [&](Record& record) {
        record = {};
        if (unsettled.any()) {
            record.key = key_;
            record.used = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                std::chrono::system_clock::now().time_since_epoch()).count());
        }
        for (unsigned n = 0; n < max_endpoints; n++)
            record.unsettled[n / 64] |= std::uint64_t{unsettled[n]} << n % 64;
        return true;
    });
}

int EndpointNumbers::take(unsigned count, unsigned& first) noexcept
{
    constexpr std::uint64_t never = ~std::uint64_t{0};
    std::lock_guard guard(mutex_);
    const auto age = [this](unsigned n) -> std::uint64_t { // large: used lately
        return taken_[n] ? never : given_back_[n] + (std::uint64_t{unsettled_[n]} << 32);
    };
    std::uint64_t best = never;
    for (unsigned i = 0; i < max_endpoints && best != 0; i++) {
        const unsigned from = (start_ + i) % max_endpoints;
        if (from + count > max_endpoints)
            continue;
        std::uint64_t latest = 0;
        for (unsigned n = from; n < from + count; n++)
            latest = std::max(latest, age(n));
        if (latest < best) {
            best = latest;
            first = from;
        }
    }
    if (best == never) {
        TOFU_WARN(FI_LOG_EP_CTRL, "domain: all its %u numbers for endpoints and receive contexts are in use: "
                                  "close some, or open another domain\n", unsigned{max_endpoints});
        return -FI_ENOSPC;
    }
    for (unsigned n = first; n < first + count; n++) {
        taken_.set(n);
        unsettled_.reset(n);
    }
    save();
    return 0;
}

void EndpointNumbers::set_unsettled(unsigned number) noexcept
{
    std::lock_guard guard(mutex_);
    unsettled_.set(number);
}

void EndpointNumbers::give_back(unsigned first, unsigned count) noexcept
{
    std::lock_guard guard(mutex_);
    calls_++;
    for (unsigned n = first; n < first + count; n++) {
        taken_.reset(n);
        given_back_[n] = calls_;
    }
    save();
}

} // namespace tofu
