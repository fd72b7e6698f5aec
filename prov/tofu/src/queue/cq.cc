// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See cq.h. fi_cq(3). Errors stand in the same ring as successes, so that the order of completions is kept: a
// read stops before an error and answers -FI_EAVAIL once the error is first.
#include "queue/cq.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>

#include "progress/domain_base.h"
#include "progress/wait.h"
#include "provider/error.h"
#include "provider/log.h"
#include "provider/refusal.h"

namespace tofu {
namespace {

constexpr std::size_t default_size = 1024;
constexpr std::size_t smallest_ring = 64;
/// fi_cq_err_entry.src_addr of libfabric 1.20 and later, behind what 1.17 declares.
constexpr std::size_t err_source_offset = 80;
static_assert(offsetof(fi_cq_err_entry, err_data_size) + sizeof(std::size_t) == err_source_offset);

CompletionQueue& of_fid(struct fid* fid) noexcept
{
    return CompletionQueue::of(reinterpret_cast<fid_cq*>(fid));
}

// --- formats: each is a prefix of the next but one, fi_cq(3)
inline void copy(const Completion& c, fi_cq_entry& to) noexcept
{
    to = {c.context};
}
inline void copy(const Completion& c, fi_cq_msg_entry& to) noexcept
{
    to = {c.context, c.flags, c.length};
}
inline void copy(const Completion& c, fi_cq_data_entry& to) noexcept
{
    to = {c.context, c.flags, c.length, c.buffer, c.data};
}
inline void copy(const Completion& c, fi_cq_tagged_entry& to) noexcept
{
    to = {c.context, c.flags, c.length, c.buffer, c.data, c.tag};
}

// --- shims
int close_cq(struct fid* fid) noexcept
{
    return of_fid(fid).close();
}
int control_cq(struct fid* fid, int command, void* argument) noexcept
{
    return of_fid(fid).wait_object().control(command, argument);
}
ssize_t read_from(fid_cq* cq, void* buffer, std::size_t count, fi_addr_t* sources) noexcept
{
    return CompletionQueue::of(cq).read(buffer, count, sources);
}
ssize_t read_error(fid_cq* cq, fi_cq_err_entry* entry, std::uint64_t flags) noexcept
{
    return CompletionQueue::of(cq).read_error(entry, flags);
}
ssize_t wait_and_read(fid_cq* cq, void* buffer, std::size_t count, const void* condition, int timeout) noexcept
{
    return CompletionQueue::of(cq).wait_and_read(buffer, count, nullptr, condition, timeout);
}
ssize_t wait_and_read_from(fid_cq* cq, void* buffer, std::size_t count, fi_addr_t* sources,
                           const void* condition, int timeout) noexcept
{
    return CompletionQueue::of(cq).wait_and_read(buffer, count, sources, condition, timeout);
}
int signal(fid_cq* cq) noexcept
{
    // fi_cq(3): "only available if the CQ was configured with a wait object"
    if (CompletionQueue::of(cq).wait_object().kind() == FI_WAIT_NONE)
        return -FI_ENOSYS;
    CompletionQueue::of(cq).signal();
    return 0;
}
const char* error_text(fid_cq*, int prov_errno, const void*, char* buffer, std::size_t length) noexcept
{
    // uTofu's codes are negative; the positive ones are FI_E* that the receiver of a message had (FI_EREMOTEIO).
    const char* text = prov_errno > 0   ? fi_strerror(prov_errno)
                       : prov_errno < 0 ? utofu_text(prov_errno)
                                        : "no uTofu code";
    if (buffer != nullptr && length > 0)
        std::snprintf(buffer, length, "%s", text);
    return text;
}

fi_ops fid_ops = object_ops({.close = close_cq, .control = control_cq});

fi_ops_cq cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = read_cq,
    .readfrom = read_from,
    .readerr = read_error,
    .sread = wait_and_read,
    .sreadfrom = wait_and_read_from,
    .signal = signal,
    .strerror = error_text,
};

} // namespace

CompletionQueue::CompletionQueue(DomainBase& domain, const fi_cq_attr& attr) noexcept
    : domain_(domain), take_(take<fi_cq_entry>), entry_size_(sizeof(fi_cq_entry)),
      threshold_(attr.wait_cond == FI_CQ_COND_THRESHOLD), progress_(domain)
{
    switch (attr.format) {
    case FI_CQ_FORMAT_UNSPEC:
    case FI_CQ_FORMAT_CONTEXT: break;
    case FI_CQ_FORMAT_MSG: take_ = take<fi_cq_msg_entry>; entry_size_ = sizeof(fi_cq_msg_entry); break;
    case FI_CQ_FORMAT_DATA: take_ = take<fi_cq_data_entry>; entry_size_ = sizeof(fi_cq_data_entry); break;
    case FI_CQ_FORMAT_TAGGED: take_ = take<fi_cq_tagged_entry>; entry_size_ = sizeof(fi_cq_tagged_entry); break;
    }
    domain_.auto_progress().adopt(lock_);
}

CompletionQueue::~CompletionQueue()
{
    domain_.auto_progress().drop(lock_);
}

int CompletionQueue::open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) noexcept
{
    static constexpr fi_cq_attr defaults{};
    const fi_cq_attr& wish = attr != nullptr ? *attr : defaults;
    if (wish.format < FI_CQ_FORMAT_UNSPEC || wish.format > FI_CQ_FORMAT_TAGGED)
        return -FI_ENOSYS;
    // fi_cq(3): the condition is ignored where nobody waits
    const bool bad_condition = wish.wait_cond < FI_CQ_COND_NONE || wish.wait_cond > FI_CQ_COND_THRESHOLD;
    if ((wish.flags & ~FI_AFFINITY) != 0 || (bad_condition && wish.wait_obj != FI_WAIT_NONE))
        return -FI_EINVAL;
    DomainBase& owner = DomainBase::of(domain);
    auto* made = new (std::nothrow) CompletionQueue(owner, wish);
    if (made == nullptr)
        return -FI_ENOMEM;
    // Small at first: it grows to what is outstanding, whatever size was asked for.
    const std::size_t size =
        std::bit_ceil(std::clamp(wish.size != 0 ? wish.size : default_size, smallest_ring, default_size));
    made->ring_.reset(new (std::nothrow) Slot[size]);
    if (made->ring_ == nullptr) {
        delete made;
        return -FI_ENOMEM;
    }
    made->mask_ = size - 1;
    const WaitObject::Owner self{made, ready, &made->progress_, &owner};
    if (int error = made->wait_.open(self, wish.wait_obj, wish.wait_set); error != 0) {
        delete made;
        return error;
    }
    made->fid.fclass = FI_CLASS_CQ;
    made->fid.context = context;
    made->fid.ops = &fid_ops;
    made->ops = &cq_ops;
    owner.hold();
    *cq = made;
    return 0;
}

int CompletionQueue::close() noexcept
{
    if (in_use())
        return -FI_EBUSY;
    domain_.release();
    delete this;
    return 0;
}

// --- writing

/// Where the queue can't grow the entry in its last slot is an error, whatever became of its operation: its context is
/// the first of those that are lost until there is room again.
CompletionQueue::Slot& CompletionQueue::put_beyond() noexcept
{
    if (grow() || tail_ - head_ == mask_) {
        Slot& slot = ring_[tail_ & mask_];
        slot.err = tail_ - head_ == mask_ ? FI_EOVERRUN : 0;
        slot.prov_errno = 0;
        slot.overflow_length = 0;
        return slot;
    }
    std::atomic_ref(tail_).store(tail_ - 1, std::memory_order_relaxed); // as it was, after written()
    return lost_;
}

bool CompletionQueue::grow() noexcept
{
    const std::size_t size = (mask_ + 1) * 2;
    std::unique_ptr<Slot[]> larger(new (std::nothrow) Slot[size]);
    if (larger == nullptr) {
        TOFU_WARN(FI_LOG_CQ, "completion queue: no memory for more than %zu entries: read it more often\n", mask_ + 1);
        return false;
    }
    for (std::uint64_t i = head_; i != tail_; i++)
        larger[i & (size - 1)] = ring_[i & mask_];
    ring_ = std::move(larger);
    mask_ = size - 1;
    return true;
}

void CompletionQueue::write_error(const Completion& completion, int err, int prov_errno,
                                  std::size_t overflow_length) noexcept
{
    lock_.lock();
    Slot& slot = put();
    slot = {completion, slot.err == 0 ? err : slot.err, prov_errno, overflow_length};
    written();
}

// --- reading

template <class Entry>
ssize_t CompletionQueue::take(CompletionQueue& cq, void* buffer, std::size_t count,
                              fi_addr_t* sources) noexcept
{
    std::lock_guard guard(cq.lock_);
    auto* const to = static_cast<Entry*>(buffer);
    std::uint64_t head = cq.head_;
    const std::uint64_t tail = cq.tail_;
    std::size_t taken = 0;
    for (; taken < count && head != tail; taken++, head++) {
        const Slot& slot = cq.ring_[head & cq.mask_];
        if (slot.err != 0) [[unlikely]]
            break;
        copy(slot.completion, to[taken]);
        if (sources != nullptr)
            sources[taken] = slot.completion.source;
    }
    if (taken > 0) {
        // From the start where nothing is left, so that short bursts stay in the same cache lines. Relaxed: for
        // who holds no lock both are hints.
        if (head == tail)
            std::atomic_ref(cq.tail_).store(head = 0, std::memory_order_relaxed);
        std::atomic_ref(cq.head_).store(head, std::memory_order_relaxed);
        return static_cast<ssize_t>(taken);
    }
    return head != tail && cq.ring_[head & cq.mask_].err != 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

ssize_t CompletionQueue::read_error(fi_cq_err_entry* entry, std::uint64_t) noexcept
{
    std::lock_guard guard(lock_);
    if (head_ == tail_ || ring_[head_ & mask_].err == 0)
        return -FI_EAGAIN;
    const Slot& slot = ring_[head_ & mask_];
    const Completion& c = slot.completion;
    entry->op_context = c.context;
    entry->flags = c.flags;
    entry->len = c.length;
    entry->buf = c.buffer;
    entry->data = c.data;
    entry->tag = c.tag;
    entry->olen = slot.overflow_length;
    entry->err = slot.err;
    entry->prov_errno = slot.prov_errno;
    // A member of the structure since 1.20; whoever asked for an older interface has no room for it.
    if (FI_VERSION_GE(domain_.model().api_version, FI_VERSION(1, 20)))
        std::memcpy(reinterpret_cast<char*>(entry) + err_source_offset, &c.source, sizeof(c.source));
    // Callers of 1.5 and later may give a buffer for provider data in err_data, and its size in a member that is not
    // there before; there is no data of ours.
    const bool sized = FI_VERSION_GE(domain_.model().api_version, FI_VERSION(1, 5));
    if (!sized || entry->err_data_size == 0)
        entry->err_data = nullptr;
    if (sized)
        entry->err_data_size = 0;
    std::atomic_ref(head_).store(head_ + 1, std::memory_order_relaxed);
    return 1;
}

ssize_t CompletionQueue::wait_and_read(void* buffer, std::size_t count, fi_addr_t* sources,
                                       const void* condition, int timeout_ms) noexcept
{
    if (!wait_.blocks())
        return -FI_EINVAL; // fi_cq(3): blocking reads need a wait object
    const std::size_t wanted =
        threshold_ && condition != nullptr
            ? std::clamp<std::size_t>(reinterpret_cast<std::uintptr_t>(condition), 1, std::max<std::size_t>(count, 1))
            : 1;
    const Deadline deadline(timeout_ms);
    const WaitObject::Blocked blocked(wait_);
    Sleeper sleeper(&domain_.backend().functions(), deadline, wait_.yields());
    ProgressSet* const sets[] = {&progress_};
    char* to = static_cast<char*>(buffer);
    std::size_t taken = 0;
    for (;;) {
        const ssize_t got =
            read(to + taken * entry_size_, count - taken, sources != nullptr ? sources + taken : nullptr);
        if (got > 0)
            taken += static_cast<std::size_t>(got);
        if (taken >= wanted)
            return static_cast<ssize_t>(taken);
        if ((got < 0 && got != -FI_EAGAIN) || (count == 0 && !empty()))
            return taken > 0 ? static_cast<ssize_t>(taken) : got;
        unsigned signals = signals_.load(std::memory_order_acquire);
        if (signals != 0 && signals_.compare_exchange_strong(signals, signals - 1))
            return taken > 0 ? static_cast<ssize_t>(taken) : -FI_EAGAIN;
        progress_.run(true); // patient: see Sleeper
        if (empty() && !sleeper.sleep(sets, 1))
            return taken > 0 ? static_cast<ssize_t>(taken) : -FI_EAGAIN;
    }
}

void CompletionQueue::signal() noexcept
{
    signals_.fetch_add(1, std::memory_order_release);
    wait_.signal();
}

bool CompletionQueue::look() noexcept
{
    if (empty())
        progress_.run();
    return !empty();
}

bool CompletionQueue::ready(void* self) noexcept
{
    auto& cq = *static_cast<CompletionQueue*>(self);
    std::lock_guard guard(cq.lock_);
    return cq.head_ != cq.tail_;
}

} // namespace tofu
