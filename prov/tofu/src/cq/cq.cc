// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See cq.h. fi_cq(3). Errors stand in the same ring as successes, so that the order of completions is kept: a
// read stops before an error and answers -FI_EAVAIL once the error is first.
#include "cq/cq.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "core/object.h"
#include "cq/domain_base.h"
#include "cq/wait.h"

namespace tofu {
namespace {

constexpr std::size_t default_size = 1024;
constexpr std::size_t smallest_ring = 64;

/// Of entries, by format.
constexpr std::size_t entry_sizes[] = {sizeof(fi_cq_entry), sizeof(fi_cq_entry), sizeof(fi_cq_msg_entry),
                                       sizeof(fi_cq_data_entry), sizeof(fi_cq_tagged_entry)};
static_assert(FI_CQ_FORMAT_CONTEXT == 1 && FI_CQ_FORMAT_MSG == 2 && FI_CQ_FORMAT_DATA == 3 && FI_CQ_FORMAT_TAGGED == 4);

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

fi_ops cq_fid_ops = object_ops({.close = close_object<CompletionQueue>, .control = calls<&CompletionQueue::control>});

fi_ops_cq cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = read_cq,
    .readfrom = calls<&CompletionQueue::read_from>,
    .readerr = calls<&CompletionQueue::read_error>,
    .sread = calls<&CompletionQueue::wait_and_read>,
    .sreadfrom = calls<&CompletionQueue::wait_and_read_from>,
    .signal = calls<&CompletionQueue::signal>,
    .strerror = error_text,
};

} // namespace

CompletionQueue::CompletionQueue(DomainBase& domain) noexcept : Object(&domain, FI_CLASS_CQ), progress_(domain)
{
    fid.ops = &cq_fid_ops;
    ops = &cq_ops;
    domain.auto_progress().adopt(lock_);
}

CompletionQueue::~CompletionQueue()
{
    owner().auto_progress().drop(lock_);
}

int CompletionQueue::set_up(const fi_cq_attr* attr) noexcept
{
    const fi_cq_attr& wish = given(attr);
    if (wish.format < FI_CQ_FORMAT_UNSPEC || wish.format > FI_CQ_FORMAT_TAGGED)
        return -FI_ENOSYS;
    // fi_cq(3): the condition is ignored where nobody waits
    const bool bad_condition = wish.wait_cond < FI_CQ_COND_NONE || wish.wait_cond > FI_CQ_COND_THRESHOLD;
    if ((wish.flags & ~FI_AFFINITY) != 0 || (bad_condition && wish.wait_obj != FI_WAIT_NONE))
        return -FI_EINVAL;
    entry_size_ = entry_sizes[wish.format];
    threshold_ = wish.wait_cond == FI_CQ_COND_THRESHOLD;
    // Small at first: it grows to what is outstanding, whatever size was asked for.
    const std::size_t size =
        std::bit_ceil(std::clamp(wish.size != 0 ? wish.size : default_size, smallest_ring, default_size));
    if (!entries_.open(size))
        return -FI_ENOMEM;
    return wait_.open({this, ready, &progress_, &owner()}, wish.wait_obj, wish.wait_set);
}

void CompletionQueue::write_error(const CqEntry& entry) noexcept
{
    lock_.lock();
    if (reader_.room != 0) { // entries that follow come behind this one
        reader_.size = reader_.taken();
        reader_.room = 0;
    }
    entries_.put(entry);
    lock_.unlock();
    wait_.signal();
}

// --- reading

ssize_t CompletionQueue::take(const Reader& reader) noexcept
{
    std::lock_guard guard(lock_);
    switch (entry_size_) {
    case sizeof(fi_cq_entry): return take_all<sizeof(fi_cq_entry)>(reader);
    case sizeof(fi_cq_msg_entry): return take_all<sizeof(fi_cq_msg_entry)>(reader);
    case sizeof(fi_cq_data_entry): return take_all<sizeof(fi_cq_data_entry)>(reader);
    default: return take_all<sizeof(fi_cq_tagged_entry)>(reader);
    }
}

/// Takes entries until the first error, for a queue whose entries have this size.
template <std::size_t entry_size>
ssize_t CompletionQueue::take_all(Reader reader) noexcept
{
    for (;;) {
        const auto [next, end] = entries_.waiting(reader.room);
        const CqEntry* first = next;
        for (; first != end && first->err == 0; first++)
            reader.take(first->completion, entry_size);
        if (first == next)
            break;
        entries_.pop(static_cast<std::size_t>(first - next));
    }
    if (reader.taken() != 0)
        return static_cast<ssize_t>(reader.taken());
    const CqEntry* const first = entries_.first();
    return first != nullptr && first->err != 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

bool CompletionQueue::take(CqEntry& entry) noexcept
{
    if (empty())
        return false;
    std::lock_guard guard(lock_);
    const CqEntry* const first = entries_.first();
    if (first == nullptr)
        return false;
    entry = *first;
    entries_.pop();
    return true;
}

ssize_t CompletionQueue::read_error(fi_cq_err_entry* entry, std::uint64_t) noexcept
{
    std::lock_guard guard(lock_);
    const CqEntry* const first = entries_.first();
    if (first == nullptr || first->err == 0)
        return -FI_EAGAIN;
    const auto asks_for = [&](unsigned minor) {
        return FI_VERSION_GE(owner().model().api_version, FI_VERSION(1, minor));
    };
    const auto data = first->tell(*entry, asks_for(20), owner().model().textual_addresses);
    // Callers of 1.5 and later may give a buffer for our data in err_data, and its size in a member that is not there
    // before. Others are lent ours until they read this queue's errors again.
    const bool sized = asks_for(5);
    const bool lent = !sized || entry->err_data_size == 0;
    const std::size_t size = !data ? 0 : lent ? data->size : std::min(entry->err_data_size, data->size);
    if (lent)
        entry->err_data = data ? err_data_ : nullptr;
    if (data)
        std::memcpy(entry->err_data, data->bytes, size);
    if (sized)
        entry->err_data_size = size;
    entries_.pop();
    return 1;
}

ssize_t CompletionQueue::wait_and_read_from(void* buffer, std::size_t count, fi_addr_t* sources,
                                            const void* condition, int timeout_ms) noexcept
{
    if (!wait_.blocks())
        return -FI_EINVAL; // fi_cq(3): blocking reads need a wait object
    const std::size_t wanted =
        threshold_ && condition != nullptr
            ? std::clamp<std::size_t>(reinterpret_cast<std::uintptr_t>(condition), 1, std::max<std::size_t>(count, 1))
            : 1;
    WaitObject::Blocked blocked(wait_, timeout_ms);
    char* to = static_cast<char*>(buffer);
    std::size_t taken = 0;
    for (;;) {
        const ssize_t got =
            read_from(to + taken * entry_size_, count - taken, sources != nullptr ? sources + taken : nullptr);
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
        if (empty() && !blocked.sleep())
            return taken > 0 ? static_cast<ssize_t>(taken) : -FI_EAGAIN;
    }
}

int CompletionQueue::signal() noexcept
{
    if (wait_.kind() == FI_WAIT_NONE)
        return -FI_ENOSYS; // fi_cq(3): "only available if the CQ was configured with a wait object"
    signals_.fetch_add(1, std::memory_order_release);
    wait_.signal();
    return 0;
}

bool CompletionQueue::news() noexcept
{
    if (empty())
        progress_.run();
    return !empty();
}

bool CompletionQueue::ready(void* self) noexcept
{
    auto& cq = *static_cast<CompletionQueue*>(self);
    std::lock_guard guard(cq.lock_);
    return !cq.entries_.empty();
}

} // namespace tofu
