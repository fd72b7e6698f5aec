// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See cq.h.
#include "cq/cq.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "core/peer_abi.h"
#include "cq/counter.h"
#include "cq/domain_base.h"

namespace tofu {

CqEntry CqEntry::of_unknown_source(const Completion& completion, const EndpointAddress& source) noexcept
{
    CqEntry entry{completion, FI_EADDRNOTAVAIL, source.flags << 16 | source.further << 8 | source.index, source.nonce};
    entry.completion.source = source.target_vcq;
    return entry;
}

std::optional<AddressForm> CqEntry::describe(fi_cq_err_entry& to, bool room_for_source, bool textual) const noexcept
{
    constexpr std::size_t source_at = 80;
    static_assert(offsetof(fi_cq_err_entry, err_data_size) + sizeof(std::size_t) == source_at);
    const Completion& c = completion;
    const bool unknown = has_unknown_source();
    const fi_addr_t source = unknown ? FI_ADDR_NOTAVAIL : c.source;
    to.op_context = c.context;
    to.flags = c.flags;
    to.len = c.length;
    to.buf = c.buffer;
    to.data = c.data;
    to.tag = c.tag;
    to.olen = unknown ? 0 : overflow_length;
    to.err = err;
    to.prov_errno = unknown ? 0 : prov_errno;
    if (room_for_source)
        std::memcpy(reinterpret_cast<char*>(&to) + source_at, &source, sizeof(source));
    if (!unknown)
        return {};
    const auto rest = static_cast<unsigned>(prov_errno);
    return AddressForm(make_address(c.source, overflow_length, rest & 0xff, rest >> 8 & 0xff, rest >> 16), textual);
}

bool Entries::open(std::size_t size) noexcept
{
    ring_.reset(new (std::nothrow) CqEntry[size]);
    mask_ = size - 1;
    return ring_ != nullptr;
}

void Entries::put(const CqEntry& entry) noexcept
{
    const int err = tail_ - head_ < mask_ ? 0 : make_room();
    if (err < 0)
        return;
    CqEntry& last = ring_[tail_ & mask_];
    last = entry;
    if (err != 0)
        last.err = err;
    set(tail_, tail_ + 1);
}

bool Entries::grow() noexcept
{
    const std::size_t size = (mask_ + 1) * 2;
    std::unique_ptr<CqEntry[]> larger(new (std::nothrow) CqEntry[size]);
    if (larger == nullptr) {
        TOFU_WARN(FI_LOG_CQ, "completion queue: no memory for more than %zu entries: read the queue more often\n",
                  mask_ + 1);
        return false;
    }
    for (std::uint64_t i = head_; i != tail_; i++)
        larger[i & (size - 1)] = ring_[i & mask_];
    ring_ = std::move(larger);
    mask_ = size - 1;
    return true;
}

// --- CompletionQueue. Errors stand in the same ring as successes, so that the order of completions is kept: a read
// stops before an error and answers -FI_EAVAIL once the error is first.

constexpr std::size_t default_size = 1024;
constexpr std::size_t smallest_ring = 64;

/// Of entries, by format.
constexpr std::size_t entry_sizes[] = {sizeof(fi_cq_entry), sizeof(fi_cq_entry), sizeof(fi_cq_msg_entry),
                                       sizeof(fi_cq_data_entry), sizeof(fi_cq_tagged_entry)};
static_assert(FI_CQ_FORMAT_CONTEXT == 1 && FI_CQ_FORMAT_MSG == 2 && FI_CQ_FORMAT_DATA == 3 && FI_CQ_FORMAT_TAGGED == 4);

static const char* error_text(fid_cq*, int prov_errno, const void*, char* buffer, std::size_t length) noexcept
{
    // uTofu's codes are negative; the positive ones are FI_E* that the receiver of a message had (FI_EREMOTEIO).
    const char* text = prov_errno > 0   ? fi_strerror(prov_errno)
                       : prov_errno < 0 ? utofu_text(prov_errno)
                                        : "not a uTofu code";
    if (buffer != nullptr && length > 0)
        std::snprintf(buffer, length, "%s", text);
    return text;
}

static fi_ops cq_fid_ops =
    object_ops({.close = close_object<CompletionQueue>, .control = bind_member<&CompletionQueue::control>});

static fi_ops_cq cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = read_cq,
    .readfrom = bind_member<&CompletionQueue::read_from>,
    .readerr = bind_member<&CompletionQueue::read_error>,
    .sread = bind_member<&CompletionQueue::wait_and_read>,
    .sreadfrom = bind_member<&CompletionQueue::wait_and_read_from>,
    .signal = bind_member<&CompletionQueue::signal>,
    .strerror = error_text,
};

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
    const fi_cq_attr& wish = attr_or_default(attr);
    if (wish.format < FI_CQ_FORMAT_UNSPEC || wish.format > FI_CQ_FORMAT_TAGGED)
        return -FI_ENOSYS;
    // fi_cq(3): the condition is ignored without a waiter
    const bool bad_condition = wish.wait_cond < FI_CQ_COND_NONE || wish.wait_cond > FI_CQ_COND_THRESHOLD;
    if ((wish.flags & ~FI_AFFINITY) != 0 || (bad_condition && wish.wait_obj != FI_WAIT_NONE))
        return -FI_EINVAL;
    entry_size_ = entry_sizes[wish.format];
    reader_.is_plain = is_longest();
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

/// Takes entries until the first error, for a queue whose entries have this size.
template <std::size_t entry_size>
[[gnu::always_inline]] inline ssize_t CompletionQueue::take_all(void* buffer, std::size_t count,
                                                                fi_addr_t* sources) noexcept
{
    Reader reader{buffer, count, count, sources};
    bool ends;
    do {
        const auto [next, end] = entries_.waiting(reader.room);
        const CqEntry* first = next;
        for (; first != end && first->err == 0; first++)
            reader.write(first->completion, entry_size);
        ends = first != end;
        entries_.pop(static_cast<std::size_t>(first - next));
    } while (!ends && reader.room != 0 && entries_.has_some());
    if (reader.taken() != 0)
        return static_cast<ssize_t>(reader.taken());
    const CqEntry* const first = entries_.first();
    return first != nullptr && first->err != 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

ssize_t CompletionQueue::drain(void* buffer, std::size_t count, fi_addr_t* sources) noexcept
{
    std::lock_guard guard(lock_);
    switch (entry_size_) {
    case sizeof(fi_cq_entry): return take_all<sizeof(fi_cq_entry)>(buffer, count, sources);
    case sizeof(fi_cq_msg_entry): return take_all<sizeof(fi_cq_msg_entry)>(buffer, count, sources);
    case sizeof(fi_cq_data_entry): return take_all<sizeof(fi_cq_data_entry)>(buffer, count, sources);
    default: return take_all<sizeof(fi_cq_tagged_entry)>(buffer, count, sources);
    }
}

bool CompletionQueue::pop(CqEntry& entry) noexcept
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
    const auto data = first->describe(*entry, asks_for(20), owner().model().textual_addresses);
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

ssize_t CompletionQueue::wait_and_read_from(void* buffer, std::size_t count, fi_addr_t* sources, const void* condition,
                                            int timeout_ms)
{
    if (!wait_.blocks())
        return -FI_EINVAL; // fi_cq(3): blocking reads need a wait object
    const std::size_t wanted =
        threshold_ && condition != nullptr
            ? std::clamp<std::size_t>(reinterpret_cast<std::uintptr_t>(condition), 1, std::max<std::size_t>(count, 1))
            : 1;
    char* to = static_cast<char*>(buffer);
    std::size_t taken = 0;
    ssize_t otherwise = -FI_EAGAIN;
    wait_.block(Deadline(timeout_ms), [&]() noexcept {
        do {
            const ssize_t got =
                read_from(to + taken * entry_size_, count - taken, sources != nullptr ? sources + taken : nullptr);
            if (got > 0)
                taken += static_cast<std::size_t>(got);
            if (taken >= wanted)
                return true;
            if ((got < 0 && got != -FI_EAGAIN) || (count == 0 && !empty())) {
                otherwise = got;
                return true;
            }
            unsigned signals = signals_.load(std::memory_order_acquire);
            if (signals != 0 && signals_.compare_exchange_strong(signals, signals - 1))
                return true;
            progress_.run(true);
        } while (!empty());
        return false;
    });
    return taken > 0 ? static_cast<ssize_t>(taken) : otherwise;
}

int CompletionQueue::signal() noexcept
{
    if (wait_.kind() == FI_WAIT_NONE)
        return -FI_ENOSYS; // fi_cq(3): "only available if the CQ was configured with a wait object"
    signals_.fetch_add(1, std::memory_order_release);
    wait_.signal();
    return 0;
}

bool CompletionQueue::has_events() noexcept
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

// An entry goes through the ring of our queue, as in any queue, so no operation has to look where it reports. The
// owner drives progress by fi_cq_read without a buffer, and gets the entries then.

namespace {

/// Hangs on fid.context of our object, for which the application has no other use.
struct QueueLink {
    peer::Cq& owner;
    Mutex turn;
    bool full = false; ///< the owner did not take `last`
    CqEntry last{};

    /// Forwards an entry. False: the owner cannot accept it now.
    [[nodiscard]] bool forward(bool textual) noexcept
    {
        const Completion& c = last.completion;
        if (last.err == 0)
            return owner.owner->write(&owner, c.context, c.flags, c.length, c.buffer, c.data, c.tag, c.source) == 0;
        struct {
            fi_cq_err_entry known;
            fi_addr_t source[2]; // which our header may not have
        } error{};
        auto data = last.describe(error.known, true, textual);
        error.known.err_data = data ? data->bytes : nullptr;
        error.known.err_data_size = data ? data->size : 0;
        return owner.owner->write_error(&owner, &error.known) == 0;
    }
};

struct CounterLink {
    peer::Cntr& owner;
    Mutex turn;
    std::uint64_t forwarded = 0;
    std::uint64_t forwarded_errors = 0;
};

template <class Link, class Handle>
Link& link_of(Handle& object) noexcept
{
    return *static_cast<Link*>(object.fid.context);
}

/// fi_close of a T with such a Link.
template <class T, class Link, int (*close)(struct fid*)>
int close_linked(struct fid* fid) noexcept
{
    Link* const link = &link_of<Link>(T::of(fid));
    const int ret = close(fid);
    if (ret == 0)
        delete link;
    return ret;
}

ssize_t make_progress(fid_cq* cq, void*, std::size_t) noexcept
{
    CompletionQueue& queue = CompletionQueue::of(cq);
    (void)queue.read_from(nullptr, 0, nullptr);
    forward_entries(queue);
    return -FI_EAGAIN;
}

std::uint64_t make_progress(fid_cntr* cntr) noexcept
{
    Counter& counter = Counter::of(cntr);
    CounterLink& link = link_of<CounterLink>(*cntr);
    const std::lock_guard guard(link.turn);
    for (const std::uint64_t now = counter.read(); link.forwarded != now; link.forwarded++)
        link.owner.owner->inc(&link.owner);
    for (const std::uint64_t now = counter.read_errors(); link.forwarded_errors != now; link.forwarded_errors++)
        link.owner.owner->inc_error(&link.owner);
    return 0;
}

constexpr auto never = unsupported<-FI_ENOSYS>;
int close_counter(struct fid* fid) noexcept
{
    return Counter::of(fid).close();
}
fi_ops queue_fid_ops = object_ops({.close = close_linked<CompletionQueue, QueueLink, close_object<CompletionQueue>>});
fi_ops counter_fid_ops = object_ops({.close = close_linked<Counter, CounterLink, close_counter>});
fi_ops_cq queue_ops = {sizeof(fi_ops_cq), make_progress, never, never, never, never, never, error_text};
fi_ops_cntr counter_ops = {sizeof(fi_ops_cntr), make_progress, never, never, never, never, never, never};

/// With FI_PEER: creates an object with a Link to the owner's object, which `context` names.
template <class T, class Link, class Owned, class Attr, class Ops>
int open(fid_domain* domain, Attr* wish, typename T::Handle** made, void* context, fi_ops& fid_ops, Ops& ops) noexcept
{
    if ((attr_or_default(wish).flags & FI_PEER) == 0)
        return T::open(domain, wish, made, context);
    Owned* const owner = peer::imported<Owned>(context);
    if (owner == nullptr)
        return -FI_EINVAL;
    Attr attr = *wish;
    attr.flags &= ~FI_PEER;
    std::unique_ptr<Link> link(new (std::nothrow) Link{*owner, {}});
    if (link == nullptr)
        return -FI_ENOMEM;
    if (int ret = T::open(domain, &attr, made, link.get()); ret != 0)
        return ret;
    (void)link.release(); // the object's
    (*made)->fid.ops = &fid_ops;
    (*made)->ops = &ops;
    return 0;
}

} // namespace

int open_queue(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq, void* context) noexcept
{
    return open<CompletionQueue, QueueLink, peer::Cq>(domain, attr, cq, context, queue_fid_ops, queue_ops);
}

int open_counter(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context) noexcept
{
    return open<Counter, CounterLink, peer::Cntr>(domain, attr, cntr, context, counter_fid_ops, counter_ops);
}

void forward_entries(CompletionQueue& queue) noexcept
{
    if (queue.fid.ops != &queue_fid_ops)
        return;
    QueueLink& link = link_of<QueueLink>(queue);
    const std::lock_guard guard(link.turn);
    while (link.full || queue.pop(link.last)) {
        link.full = !link.forward(queue.owner().model().textual_addresses);
        if (link.full)
            return;
    }
}

} // namespace tofu
