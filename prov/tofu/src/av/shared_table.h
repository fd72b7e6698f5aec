// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PeerStore: the memory of an address vector's peers. It is the process's own or, if the vector has a name (fi_av(3)),
// a file that the processes of a node share.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>

#include "core/lock.h"
#include "core/system.h"

namespace tofu {

/// One peer. `target_vcq` 0 marks a free entry.
struct Peer {
    std::uint64_t target_vcq;
    std::uint64_t nonce;
    std::uint16_t index;      ///< endpoint number in its domain
    std::uint8_t further;     ///< receive contexts after the first, with the numbers that follow
    bool counts_events;       ///< operations that target it carry a notice (address_counts_events)
    std::uint32_t generation; ///< number of this use of the index, unique in the vector; lets caches notice a removal
};

/// Places lie in chunks, each twice as long as the one before. Chunks never move, so at() needs no lock.
class PeerStore {
    static constexpr std::size_t first_chunk = 1024; ///< entries
    static constexpr unsigned chunks = 13;

  public:
    /// 8.4 million entries: enough for 158,976 nodes with 48 endpoints each.
    static constexpr std::size_t most = first_chunk * ((std::size_t{1} << chunks) - 1);

    /// State that changes with the indices. Only the holder of the turn uses the members that are not atomic.
    struct Head {
        std::atomic<std::uint64_t> size;       ///< entries that were ever filled
        std::atomic<std::uint32_t> generation; ///< changes with every insertion and removal
        std::uint32_t uses;                    ///< of entries: insertions and removals, ever
        std::uint64_t free_places;             ///< below size
        std::uint64_t first_free;              ///< no free entry lies below it
    };

    ~PeerStore();

    /// Shares the entries with all processes that name the same file; the first makes the file, the last removes it.
    /// Called before the first insertion. A reader changes nothing, and needs a file that another process has open. 0,
    /// -FI_ENOENT (a reader found no file), -FI_EMFILE, -FI_EACCES (the file of another user), -FI_EBUSY (its maker
    /// has been stopped), -FI_ENOMEM.
    [[nodiscard]] int share(const char* path, bool as_reader) noexcept;
    [[nodiscard]] bool is_shared() const noexcept { return mapped_ != nullptr; }
    [[nodiscard]] bool can_change() const noexcept { return !reader_; }
    /// The addresses by number, for programs that read them from memory (fi_av_attr, map_addr); null unless shared.
    [[nodiscard]] fi_addr_t* numbers() const noexcept;

    [[nodiscard]] Peer* at(std::uint64_t number) const noexcept
    {
        if (number >= most) [[unlikely]]
            return nullptr; // such as FI_ADDR_UNSPEC
        const std::uint64_t n = number + first_chunk;
        // acquire: the chunk's zeroes, and a filled entry, come before its number is known (partner: make_next())
        const std::uintptr_t origin = chunks_[chunk_of(n)].load(std::memory_order_acquire);
        if (origin == 0)
            return nullptr;
        Peer* const entry = reinterpret_cast<Peer*>(origin + n * sizeof(Peer));
        if (entry == nullptr)
            __builtin_unreachable(); // spares each caller a second test
        return entry;
    }
    [[nodiscard]] Head& head() const noexcept { return *head_; }

    /// How long a process waits for another one that has the turn and may have been stopped. Tests set it lower.
    static inline std::chrono::milliseconds patience{2000};
    /// The turn: the right to change the entries. It excludes the other threads of the process and, where `taken`, the
    /// other processes. A process that dies gives it back.
    class Turn {
      public:
        /// Waits for other threads, and for other processes for `patience` at most. Without patience it does not wait
        /// for a thread that waits for a process either.
        explicit Turn(PeerStore& store, std::chrono::milliseconds patience = PeerStore::patience) noexcept;
        Turn(const Turn&) = delete;
        ~Turn();
        [[nodiscard]] bool is_taken() const noexcept { return taken_; }
        /// True if not even the other threads of this process are excluded.
        [[nodiscard]] bool is_shared() const noexcept { return !locked_; }

      private:
        PeerStore& store_;
        bool locked_ = true;
        bool taken_ = false;
    };
    /// Allocates the next entry, number head().size. The caller has the turn. False: no memory, or no further entry.
    [[nodiscard]] bool make_next() noexcept;

  private:
    static constexpr std::size_t file_step = 1024; ///< entries that the file grows by
    /// `n`: an index of an entry, plus first_chunk.
    static constexpr unsigned chunk_of(std::uint64_t n) noexcept
    {
        return static_cast<unsigned>(std::bit_width(n) - std::bit_width(first_chunk));
    }
    void set_chunk(unsigned chunk, Peer* entries) noexcept;
    [[nodiscard]] bool map() noexcept;
    [[nodiscard]] bool fill(std::size_t from, std::size_t bytes) noexcept;

    /// For each chunk the address that entry -first_chunk would have if the chunk went on downwards; 0: no chunk yet.
    std::atomic<std::uintptr_t> chunks_[chunks] = {};
    Head own_{};
    Head* head_ = &own_;
    Lock lock_;
    std::atomic<bool> waits_{false}; ///< the thread that has the lock waits for another process
    NodeFile file_;
    char* mapped_ = nullptr;
    bool reader_ = false;
    pid_t owner_ = 0; ///< a child of fork shares the parent's locks, so it removes nothing
};

} // namespace tofu
