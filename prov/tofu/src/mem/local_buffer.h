// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Buffers of the user on this side of a transfer: the bytes of their segments (visit_bytes and copies), and their
// registration with a VCQ (LocalRef, LocalMemory). All engines use it, under the lock of the VCQ's owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <sys/uio.h>

#include "core/containers.h"
#include "utofu/vcq.h"

namespace tofu {

// --- The bytes of a user's segments: runs of them, and copies between them and contiguous memory

/// Calls `use(bytes, n)` for each run of the `length` bytes that begin `skip` bytes into the segments. These are
/// iovecs, or of a class derived from iovec.
template <class Segment, class Use>
void visit_bytes(const Segment* iov, std::size_t count, std::size_t skip, std::size_t length, Use&& use) noexcept
{
    for (std::size_t i = 0; i < count && length != 0; i++) {
        const std::size_t n = std::min(iov[i].iov_len - std::min(skip, iov[i].iov_len), length);
        if (n != 0)
            use(static_cast<std::byte*>(iov[i].iov_base) + skip, n);
        skip -= std::min(skip, iov[i].iov_len);
        length -= n;
    }
}

/// Copies from the segments. `skip` and `length` together are at most the sum of the segments.
inline void gather(std::byte* to, const iovec* iov, std::size_t count, std::size_t length,
                   std::size_t skip = 0) noexcept
{
    visit_bytes(iov, count, skip, length, [&](const std::byte* from, std::size_t n) {
        std::memcpy(to, from, n);
        to += n;
    });
}

/// Copies to the segments, and returns for how many bytes there was room.
inline std::size_t scatter(const iovec* iov, std::size_t count, const std::byte* from, std::size_t length,
                           std::size_t skip = 0) noexcept
{
    std::size_t done = 0;
    visit_bytes(iov, count, skip, length, [&](std::byte* to, std::size_t n) {
        std::memcpy(to, from + done, n);
        done += n;
    });
    return done;
}

/// A null pointer with a length names no memory. Every call of the application refuses it: nothing else would stop a
/// copy from it.
[[nodiscard, gnu::always_inline]] inline bool is_null(const void* buffer, std::size_t length) noexcept
{
    return buffer == nullptr && length != 0;
}
[[nodiscard, gnu::always_inline]] inline bool any_null(const iovec* iov, std::size_t count) noexcept
{
    for (std::size_t i = 0; i < count; i++)
        if (is_null(iov[i].iov_base, iov[i].iov_len))
            return true;
    return false;
}

/// Logs why the call is refused. -FI_EINVAL.
[[nodiscard, gnu::cold]] int refuse_null() noexcept;

/// The sum of the segments. False: it does not fit into a size_t.
inline bool total_length(const iovec* iov, std::size_t count, std::size_t& total) noexcept
{
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
            return false;
    total = sum;
    return true;
}

// --- LocalMemory: registers local buffers with a VCQ, which sends from them or receives into them: finds an existing
// registration, or registers the buffer for one transfer.

class Descs;
class MemoryRegion;
class RegistrationCache;

/// A local buffer as the posting VCQ knows it. The caller gives it back by LocalMemory::release when the communication
/// is over.
struct LocalRef {
    utofu_stadd_t stadd = 0;
    std::uint32_t cache_slot = 0; ///< of LocalMemory; 0: nothing to release
};

/// Registrations of local buffers with one VCQ, under that VCQ's owner's lock.
class LocalMemory {
  public:
    /// `descs`: of the domain; null: descs are ignored.
    explicit LocalMemory(vcq::Vcq& vcq, const Descs* descs = nullptr) noexcept;
    /// Ends all registrations, released or not.
    ~LocalMemory();
    /// Registers [address, address + length) with the VCQ, or finds it registered. 0 or -FI_E* (-FI_EAGAIN: no STADD
    /// left until others are released). `desc` is what the application passed (fi_mr_desc). A buffer in an open region
    /// of the domain keeps its registration until the region is closed, for the first max_kept regions. Any other
    /// buffer, and any with another desc, is registered for this transfer, or found in the cache if there is one
    /// (reg_cache.h).
    [[nodiscard]] int acquire(const void* address, std::size_t length, bool read_only, LocalRef& ref,
                              void* desc = nullptr) noexcept;
    void release(const LocalRef& ref) noexcept;
    /// As acquire(), for a buffer in a region whose registration is kept, so that there is nothing to release. False:
    /// there is no such registration, nor room for one.
    [[nodiscard, gnu::always_inline]] bool find_in_region(const void* desc, const void* address, std::size_t length,
                                                          bool read_only, utofu_stadd_t& stadd) noexcept
    {
        if (desc == nullptr)
            return false;
        return find_kept(desc, reinterpret_cast<std::uintptr_t>(address), length, read_only, stadd) ||
               (may_keep_ && descs_ != nullptr && acquire_region(desc, address, length, read_only, stadd) == 0);
    }
    /// Adds the local memory of a further VCQ of the same owner, which gets the same descs: regions forgotten here are
    /// forgotten there.
    void link(LocalMemory& another) noexcept
    {
        another.descs_ = descs_;
        another.linked_ = linked_;
        linked_ = &another;
    }
    /// Ends the registration that is kept for a region that is being closed.
    void forget(const MemoryRegion& region) noexcept;

  private:
    struct Kept {
        const void* desc; ///< of a region that is open
        std::uintptr_t base;
        std::size_t length;
        utofu_stadd_t stadd;
        bool read_only;
    };
    struct Transient {
        utofu_stadd_t stadd;
        std::uint32_t next_free; ///< 0: the last; or in_use
    };
    static constexpr std::uint32_t in_use = ~0u;
    static constexpr std::size_t max_kept = 256;
    /// A handful of regions per endpoint is the rule; a linear look stays in one or two cache lines.
    [[nodiscard]] bool find_kept(const void* desc, std::uintptr_t address, std::size_t length, bool read_only,
                                 utofu_stadd_t& stadd) const noexcept
    {
        for (const Kept& kept : kept_) {
            const std::uintptr_t offset = address - kept.base;
            if (kept.desc != desc || (!read_only && kept.read_only) || offset > kept.length ||
                length > kept.length - offset)
                continue;
            stadd = kept.stadd + offset;
            return true;
        }
        return false;
    }
    /// -FI_ENOSPC: the buffer is not in a region of the domain, or the region is not among those whose registration is
    /// kept.
    [[nodiscard, gnu::noinline]] int acquire_region(const void* desc, const void* address, std::size_t length,
                                                    bool read_only, utofu_stadd_t& stadd) noexcept;
    static constexpr std::uint32_t cached = 0x80000000; ///< in cache_slot: the rest is a number of the cache
    vcq::Vcq& vcq_;
    LocalMemory* linked_ = nullptr;
    std::unique_ptr<RegistrationCache> cache_;
    bool cache_asked_for_ = false;
    const Descs* descs_;
    Array<Kept> kept_;
    bool may_keep_ = true;       ///< false: there was no room for another one, and none has ended since
    Array<Transient> transient_; ///< [0] unused
    std::uint32_t first_free_ = 0;
};

} // namespace tofu
