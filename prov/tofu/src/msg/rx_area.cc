// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rx_area.h.
#include "msg/rx_area.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/containers.h"
#include "core/log.h"

namespace tofu::proto {

namespace {

/// Memory for an area, all zero. It is a sealed memory file, not private memory: fork() must not replace the pages
/// that the TNI writes to, and the size cannot change.
struct Pages {
    std::byte* base;
    std::size_t bytes;
    int fd;

    friend bool operator==(const Pages& a, const Pages& b) noexcept { return a.base == b.base; }
};

/// Memory of closed areas, for later areas of the same size. The uTofu library and peers may hold on to a shared object
/// as long as its owner lives (the simulator: a descriptor here, a mapping there), so a program that opens endpoints
/// again and again must do so with the same few objects.
class Spare {
  public:
    /// `base` is null: no memory, or no descriptor as errno says.
    [[nodiscard]] Pages acquire(std::size_t bytes) noexcept
    {
        std::lock_guard guard(mutex_);
        leave_to_parent();
        owner_ = getpid();
        const auto oldest =
            std::find_if(left_.begin(), left_.end(), [&](const Pages& pages) { return pages.bytes == bytes; });
        if (left_.size() <= resting || oldest == left_.end())
            return make(bytes);
        const Pages pages = *oldest;
        left_.erase(pages);
        if (clear(pages)) // again, in case a Put came late
            return pages;
        drop(pages);
        return make(bytes);
    }

    void release(const Pages& pages) noexcept
    {
        std::lock_guard guard(mutex_);
        if (owner_ != getpid() || !clear(pages) || !left_.push(pages))
            drop(pages);
    }

    void empty() noexcept
    {
        std::lock_guard guard(mutex_);
        leave_to_parent();
        for (const Pages& pages : left_)
            drop(pages);
        left_ = {}; // its memory too
    }

  private:
    /// Number of areas that rest before reuse, so that a late Put of a TNI reaches memory without an
    /// owner.
    static constexpr std::size_t resting = 8;

    void leave_to_parent() noexcept
    {
        if (owner_ != getpid()) // a child of fork
            left_.clear();
    }
    /// Zeroes the pages and gives their memory back. MADV_REMOVE would do the same, but QEMU's user mode ignores it.
    static bool clear(const Pages& pages) noexcept
    {
        return fallocate(pages.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(pages.bytes)) == 0;
    }
    static Pages make(std::size_t bytes) noexcept
    {
        if (!may_have_size(bytes)) {
            errno = EFBIG;
            return {nullptr, bytes, -1};
        }
        Pages pages{nullptr, bytes, memfd_create("tofu-area", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
        if (pages.fd < 0)
            return pages;
        void* at = MAP_FAILED;
        if (ftruncate(pages.fd, static_cast<off_t>(bytes)) == 0 &&
            fcntl(pages.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
            at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pages.fd, 0);
        if (at == MAP_FAILED) {
            ::close(pages.fd);
            errno = ENOMEM;
        } else
            pages.base = static_cast<std::byte*>(at);
        return pages;
    }
    static void drop(const Pages& pages) noexcept
    {
        munmap(pages.base, pages.bytes);
        ::close(pages.fd);
    }

    Mutex mutex_;
    Array<Pages> left_;
    pid_t owner_ = 0;
};

Spare& spare() noexcept
{
    // Never destroyed, emptied by cleanup(): programs close endpoints while their static objects are destroyed, and
    // when a program ends libfabric's cleanup comes after the destructors of this library.
    alignas(Spare) static std::byte place[sizeof(Spare)];
    static Spare& all = *new (place) Spare;
    return all;
}

} // namespace

void ReceiveArea::drop_spare() noexcept
{
    spare().empty();
}

ReceiveArea::ReceiveArea(ReceiveArea&& other) noexcept
    : target_vcq_(other.target_vcq_), target_lock_(other.target_lock_), fd_(other.fd_),
      base_(std::exchange(other.base_, nullptr)), stadd_(other.stadd_), further_(other.further_),
      open_rings_(other.open_rings_), index_(other.index_), full_(other.full_), hidden_(other.hidden_),
      geometry_(other.geometry_)
{
    other.unregister_fork();
    if (base_ != nullptr)
        register_fork();
}

void ReceiveArea::in_child() noexcept
{
    (void)mmap(base_, geometry_.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_, 0);
}

int ReceiveArea::open(vcq::Vcq& target_vcq, Lock& target_lock, std::uint64_t nonce, unsigned index,
                      const Geometry& geometry) noexcept
{
    const Pages pages = spare().acquire(geometry.size());
    if (pages.base == nullptr) {
        const bool files = errno == EMFILE || errno == ENFILE;
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: no %s for its receive area of %zu bytes: raise the limit (ulimit %s)\n",
                  index, files ? "descriptor" : "memory", geometry.size(),
                  files            ? "-n"
                  : errno == EFBIG ? "-f"
                                   : "-v");
        return files ? -FI_EMFILE : -FI_ENOMEM;
    }
    place_memory(pages.base, pages.bytes); // of this thread, for its polls
    base_ = pages.base;
    fd_ = pages.fd;
    geometry_ = geometry;
    index_ = index;
    full_ = hidden_ = false;
    open_rings_ = geometry.first_rings(index);
    const AreaHeader header{area_magic, wire_version, static_cast<std::uint16_t>(index), 0, nonce};
    std::memcpy(base_, &header, sizeof header); // before any peer can see it
    *slot_counter() = slot_counter_word(nonce, 0, geometry.anon_slot_count);
    std::lock_guard guard(target_lock);
    const std::size_t bytes = geometry.ring(open_rings_);
    if (int ret = target_vcq.reg_with_stag(base_, bytes, endpoint_stag(index), stadd_); ret != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint %u: cannot register its receive area of %zu bytes: lower FI_TOFU_RINGS\n",
                  index, bytes);
        spare().release(pages);
        base_ = nullptr;
        return ret;
    }
    target_vcq_ = &target_vcq;
    target_lock_ = &target_lock;
    register_fork();
    return 0;
}

bool ReceiveArea::grow() noexcept
{
    // The caller holds the endpoint's lock, which has to be taken after the target lock: so only try_lock() is allowed.
    if (open_rings_ == geometry_.ring_count || full_ || !target_lock_->try_lock())
        return false;
    const std::size_t bytes = geometry_.size() - geometry_.ring(open_rings_);
    full_ = target_vcq_->reg_with_stag(ring(open_rings_), bytes, further_stag(index_), further_) != 0;
    target_lock_->unlock();
    if (full_)
        TOFU_WARN(FI_LOG_EP_CTRL,
                  "endpoint %u: cannot register %zu more bytes: its senders share %u rings; set FI_TOFU_RINGS to that "
                  "number\n",
                  index_, bytes, open_rings_);
    else
        open_rings_ = geometry_.ring_count;
    return !full_;
}

void ReceiveArea::hide() noexcept
{
    if (base_ == nullptr || std::exchange(hidden_, true))
        return;
    std::lock_guard guard(*target_lock_);
    target_vcq_->dereg(stadd_);
    if (open_rings_ != geometry_.first_rings(index_))
        target_vcq_->dereg(further_);
}

void ReceiveArea::mark_closed() noexcept
{
    // relaxed: a peer takes whatever is not the whole header, and no slot counter of this nonce, for that of another
    // process
    word(offsetof(AreaHeader, nonce)).store(0, std::memory_order_relaxed);
    word(slot_counter_offset).store(0, std::memory_order_relaxed);
}

void ReceiveArea::close() noexcept
{
    if (base_ == nullptr)
        return;
    hide();
    unregister_fork();
    spare().release({base_, geometry_.size(), fd_});
    base_ = nullptr;
}

// --- RingContext

bool same_process(const Bounce& answer, std::uint64_t nonce) noexcept
{
    AreaHeader header;
    std::memcpy(&header, answer.data, sizeof header);
    return header.magic == area_magic && header.nonce == nonce;
}

void RingContext::ring_doorbell(utofu_vcq_id_t target_vcq, utofu_stadd_t at, Doorbell bell) noexcept
{
    constexpr std::uint16_t rings = 1;
    static_assert(sizeof rings == doorbell_size);
    (void)vcq.put_inline(target_vcq, &rings, at + doorbell_offset(bell), sizeof rings, {.strong_order = true});
}

} // namespace tofu::proto
