// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The interface of the memory layer: registering one's own memory, reaching that of others. See registry, peer, access,
// service.
#pragma once

#include "memory/layout.h"

#include <memory>

namespace tofu::sim {

enum class AccessStatus : uint32_t {
    ok = 0,
    bad_stadd,     ///< no such STag, stale, or the first byte is not registered  (..._STADD)
    bad_length,    ///< the first byte is registered, the last one is not          (..._LENGTH)
    not_permitted, ///< write or ARMW to a read-only registration                  (..._MEMORY)
    unreachable,   ///< the owner has unmapped the memory or cannot be asked       (..._MEMORY)
    peer_gone,     ///< the owner died or freed the VCQ                            (MRQ_PEER)
};

enum class RegisterStatus : uint32_t {
    ok = 0,
    full,          ///< UTOFU_ERR_FULL
    used,          ///< UTOFU_ERR_USED: this reserved STag
    bad_address,   ///< UTOFU_ERR_INVALID_ADDRESS: not mapped, or not writable without the read-only flag
    bad_size,      ///< UTOFU_ERR_INVALID_SIZE: zero, or beyond the address space
    bad_stag,      ///< UTOFU_ERR_INVALID_STAG
    bad_stadd,     ///< UTOFU_ERR_INVALID_STADD: not registered (any more)
    out_of_memory, ///< UTOFU_ERR_OUT_OF_MEMORY
};

enum class ArmwOp : uint32_t { cswap = 0, swap = 1, add = 2, bit_xor = 3, bit_and = 4, bit_or = 5 };

/// How the bytes of one put or get become visible at their destination. Each byte is stored exactly once in
/// either case, aligned 1, 2, 4 and 8 byte transfers in one store, and all of it is visible before a
/// store-release that follows.
enum class CopyOrder : uint8_t {
    relaxed,   ///< any order
    last_line, ///< the last 256-byte line after all others, and its last byte last (guide 6.1.3.1)
};

// ---- The owner's side ----

class VcqMemory;

/// One per process, made after its segment. Thread-safe.
class ProcessMemory {
  public:
    /// `segment` must outlive the object. Starts the service thread, which adopts the segment's alive words
    /// first thing: when this returns, segment.alive holds its thread id. nullptr: no memory, threads or files.
    /// `lock_pages`: registered memory is kept from being swapped out (UTOFU_SWAP_PROTECT).
    /// `reuse_stags`: a freed STag is given again at once.
    [[nodiscard]] static std::unique_ptr<ProcessMemory> open(std::byte* segment, bool lock_pages = false,
                                                             bool reuse_stags = false) noexcept;
    ~ProcessMemory(); ///< stops and joins the service thread

    ProcessMemory(const ProcessMemory&) = delete;
    ProcessMemory& operator=(const ProcessMemory&) = delete;

    /// Makes the STag table of the VCQ at `vcq` (index on the node) usable. The result must go before this.
    [[nodiscard]] std::unique_ptr<VcqMemory> open_vcq(unsigned vcq, unsigned component) noexcept;

    /// What the VCQ at `vcq` has registered, for this process itself: in private memory, where no peer can write.
    /// Valid until the process ends, empty while there is no VCQ. nullptr: no memory for it.
    [[nodiscard]] StagTable* own_table(unsigned vcq) noexcept;

    /// Are all pages of [start, end) in the arena? Any thread.
    [[nodiscard]] bool has_moved(uint64_t start, uint64_t end) const noexcept;

    // In a child of fork the parent's object does nothing, and moved pages are copied: by handlers that are installed
    // when the library is loaded. Those of a child run in order of installation, so that they come before others, which
    // allocate.

    struct Impl;
    Impl& impl() noexcept { return *impl_; }

  private:
    explicit ProcessMemory(std::unique_ptr<Impl> impl) noexcept;
    std::unique_ptr<Impl> impl_;
};

/// STADD management of one VCQ (guide 3.6). Thread-safe. Destroying it makes all its STADDs invalid.
class VcqMemory {
  public:
    VcqMemory(ProcessMemory::Impl& process, StagTable& table, StagTable& own_table, unsigned vcq,
              unsigned component) noexcept;
    ~VcqMemory();
    VcqMemory(const VcqMemory&) = delete;
    VcqMemory& operator=(const VcqMemory&) = delete;

    /// `stag` is no_slot for utofu_reg_mem, else the reserved STag. *stadd is set on success only. Alignment to
    /// stag_address_alignment is the caller's to check.
    [[nodiscard]] RegisterStatus add(void* address, size_t size, bool read_only, uint32_t stag,
                                     uint64_t* stadd) noexcept;
    [[nodiscard]] RegisterStatus remove(uint64_t stadd) noexcept;

    [[nodiscard]] bool usable() const noexcept { return impl_ != nullptr; } ///< false: no memory for it

    struct Impl;
    Impl& impl() noexcept { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

// ---- The poster's side ----

/// Another process as seen from here: its files and mappings. Shared by all VCQs of this process. Thread-safe.
class PeerProcess {
  public:
    /// `segment`: the peer's, mapped here. `alive_tid`: what its alive word held when it was attached.
    /// Not for the process itself, whose memory needs none (RemoteVcq::process null).
    [[nodiscard]] static std::unique_ptr<PeerProcess> open(std::byte* segment, int pid, uint32_t alive_tid) noexcept;
    ~PeerProcess();
    PeerProcess(const PeerProcess&) = delete;
    PeerProcess& operator=(const PeerProcess&) = delete;

    struct Impl;
    Impl& impl() noexcept { return *impl_; }

  private:
    explicit PeerProcess(std::unique_ptr<Impl> impl) noexcept;
    std::unique_ptr<Impl> impl_;
};

/// A VCQ whose memory is reached: of a peer, or of this process (loopback, and the local side of a transfer).
/// Cheap to make and to copy; `serial` must come from new_serial() and distinguishes it from any other, earlier or
/// later.
struct RemoteVcq {
    StagTable* table = nullptr;       ///< of a peer: in its segment; of this process: ProcessMemory::own_table
    const AliveWord* alive = nullptr; ///< of the VCQ; may be null for VCQs of this process
    uint32_t alive_tid = 0;
    uint32_t vcq = 0;               ///< index on its node
    PeerProcess* process = nullptr; ///< null: this process
    uint64_t serial = 0;

    [[nodiscard]] static uint64_t new_serial() noexcept;
};

[[nodiscard]] inline StagTable* stag_table(std::byte* segment, unsigned vcq, size_t mrq_entries) noexcept
{
    return reinterpret_cast<StagTable*>(segment + vcq_region_offset(vcq, mrq_entries) + vcq_stag_table_offset);
}

} // namespace tofu::sim
