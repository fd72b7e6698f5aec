// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See shared_table.h. The file: head, addresses by number, entries; of its maximal length, and sparse where nothing was
// written. Its first byte is locked during a change, its second byte by every process that has it open.
#include "av/shared_table.h"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tofu {

constexpr unsigned tries = 8; ///< to open the file, where others remove it at the same time
constexpr off_t turn_byte = 0;
constexpr off_t users_byte = 1;

constexpr std::size_t numbers_at = 4096;
constexpr std::size_t entries_at = numbers_at + PeerStore::most * sizeof(fi_addr_t);
constexpr std::size_t file_size = entries_at + PeerStore::most * sizeof(Peer);
static_assert(sizeof(PeerStore::Head) <= numbers_at && std::atomic<std::uint64_t>::is_always_lock_free);

PeerStore::~PeerStore()
{
    if (mapped_ == nullptr) {
        for (unsigned chunk = 0; chunk < chunks; chunk++)
            std::free(at((first_chunk << chunk) - first_chunk));
        file_.close(); // where it could not be mapped
        return;
    }
    (void)munmap(mapped_, file_size);
    if (owner_ == getpid() && file_.lock(F_WRLCK, users_byte, 1)) // no other process has it open
        file_.remove();
    file_.close();
}

int PeerStore::share(const char* path, bool as_reader) noexcept
{
    for (unsigned attempt = 0; attempt < tries; attempt++) {
        if (!file_.open(path))
            return errno == EMFILE || errno == ENFILE   ? -FI_EMFILE
                   : errno == ENOMEM || errno == ENOSPC ? -FI_ENOMEM
                                                        : -FI_EACCES;
        // The only process creates the file anew, whatever killed processes have left in it.
        bool usable = false;
        if (file_.lock(F_WRLCK, users_byte, 1)) {
            usable = !as_reader && may_have_size(file_size) && ftruncate(file_.descriptor(), 0) == 0 &&
                     fill(0, numbers_at) && ftruncate(file_.descriptor(), file_size) == 0 && !file_.is_removed();
            if (!usable && !file_.is_removed()) {
                file_.remove();
                file_.close();
                return as_reader ? -FI_ENOENT : -FI_ENOMEM;
            }
            usable = usable && file_.lock(F_RDLCK, users_byte, 1);
        } else {
            if (!file_.lock_within(patience, F_RDLCK, users_byte, 1)) {
                file_.close();
                return -FI_EBUSY;
            }
            usable = !file_.is_removed();
        }
        reader_ = as_reader;
        if (usable && map())
            return 0;
        file_.close();
        if (usable)
            return -FI_ENOMEM;
    }
    return -FI_EACCES;
}

bool PeerStore::map() noexcept
{
    void* const memory = mmap(nullptr, file_size, reader_ ? PROT_READ : PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE, file_.descriptor(), 0);
    if (memory == MAP_FAILED)
        return false;
    mapped_ = static_cast<char*>(memory);
    owner_ = getpid();
    head_ = reinterpret_cast<Head*>(mapped_);
    auto* const entries = reinterpret_cast<Peer*>(mapped_ + entries_at);
    for (unsigned chunk = 0; chunk < chunks; chunk++)
        set_chunk(chunk, entries + (first_chunk << chunk) - first_chunk);
    return true;
}

void PeerStore::set_chunk(unsigned chunk, Peer* entries) noexcept
{
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(entries);
    chunks_[chunk].store(first - (first_chunk << chunk) * sizeof(Peer), std::memory_order_release);
}

/// A write where the file system is full would kill the process: the memory is asked for before.
bool PeerStore::fill(std::size_t from, std::size_t bytes) noexcept
{
    return posix_fallocate(file_.descriptor(), static_cast<off_t>(from), static_cast<off_t>(bytes)) == 0;
}

fi_addr_t* PeerStore::numbers() const noexcept
{
    return mapped_ != nullptr ? reinterpret_cast<fi_addr_t*>(mapped_ + numbers_at) : nullptr;
}

PeerStore::Turn::Turn(PeerStore& store, std::chrono::milliseconds patience) noexcept : store_(store)
{
    const bool patient = patience.count() != 0;
    if (patient)
        store_.lock_.lock();
    else
        while (!store_.lock_.try_lock())
            if (store_.waits_.load(std::memory_order_relaxed)) {
                locked_ = false;
                return;
            }
    store_.waits_.store(patient, std::memory_order_relaxed);
    taken_ = !store_.is_shared() ||
             store_.file_.lock_within(patience, store_.can_change() ? F_WRLCK : F_RDLCK, turn_byte, 1);
    store_.waits_.store(false, std::memory_order_relaxed);
}

PeerStore::Turn::~Turn()
{
    if (taken_ && store_.is_shared())
        (void)store_.file_.lock(F_UNLCK, turn_byte, 1);
    if (locked_)
        store_.lock_.unlock();
}

bool PeerStore::make_next() noexcept
{
    const std::size_t next = head_->size.load(std::memory_order_relaxed);
    if (next >= most)
        return false;
    if (is_shared()) {
        if (next % file_step == 0 && (!fill(numbers_at + next * sizeof(fi_addr_t), file_step * sizeof(fi_addr_t)) ||
                                      !fill(entries_at + next * sizeof(Peer), file_step * sizeof(Peer))))
            return false;
        numbers()[next] = next;
        return true;
    }
    if (at(next) != nullptr)
        return true;
    const unsigned chunk = chunk_of(next + first_chunk);
    auto* const entries = static_cast<Peer*>(std::calloc(first_chunk << chunk, sizeof(Peer)));
    if (entries != nullptr)
        set_chunk(chunk, entries);
    return entries != nullptr;
}

} // namespace tofu
