// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See memory_watch.h.
#include "memory/memory_watch.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace tofu {

namespace {

constexpr unsigned events_at_once = 16;
constexpr unsigned polls_of_reader = 64; // while it handles an event; then it gets our processor, so
constexpr unsigned yields_to_reader = 8; // many times: who has waited for the event may have taken its own from it

std::mutex process_lock; // open() and close()
MemoryWatch* process_watch = nullptr;
unsigned process_users = 0;

std::uint64_t page_size() noexcept
{
    static const auto size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
}

/// A descriptor on which no page fault will ever be reported: faults of system calls need not be let in.
int open_userfaultfd() noexcept
{
    constexpr int flags = O_CLOEXEC | O_NONBLOCK;
    int fd = static_cast<int>(syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY));
    if (fd < 0 && errno == EINVAL) // before Linux 5.11
        fd = static_cast<int>(syscall(SYS_userfaultfd, flags));
    if (fd < 0)
        return -1;
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                   UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    if (ioctl(fd, UFFDIO_API, &api) != 0) {
        ::close(fd);
        return -1;
    }
    return fd;
}

/// One line of /proc/self/maps after the other, without allocating.
class Maps {
  public:
    Maps() noexcept : fd_(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
    ~Maps()
    {
        if (fd_ >= 0)
            ::close(fd_);
    }
    Maps(const Maps&) = delete;
    Maps& operator=(const Maps&) = delete;
    [[nodiscard]] const char* next() noexcept
    {
        for (;;) {
            if (char* end = static_cast<char*>(std::memchr(text_ + at_, '\n', size_ - at_))) {
                *end = '\0';
                const char* line = text_ + at_;
                at_ = static_cast<std::size_t>(end - text_) + 1;
                return line;
            }
            std::memmove(text_, text_ + at_, size_ - at_);
            size_ -= at_;
            at_ = 0;
            const ssize_t n = fd_ < 0 ? 0 : ::read(fd_, text_ + size_, sizeof text_ - size_);
            if (n <= 0)
                return nullptr;
            size_ += static_cast<std::size_t>(n);
        }
    }

  private:
    int fd_;
    std::size_t at_ = 0;
    std::size_t size_ = 0;
    char text_[8192];
};

/// Private and of no file, without a hole.
bool private_anonymous(std::uint64_t begin, std::uint64_t end) noexcept
{
    Maps maps;
    std::uint64_t covered = begin;
    while (const char* line = maps.next()) {
        unsigned long long first, limit, inode;
        char rights[5];
        if (std::sscanf(line, "%llx-%llx %4s %*s %*s %llu", &first, &limit, rights, &inode) != 4)
            return false;
        if (limit <= covered)
            continue;
        if (first > covered || rights[3] != 'p' || inode != 0)
            return false;
        covered = limit;
        if (covered >= end)
            return true;
    }
    return false;
}

} // namespace

MemoryWatch* MemoryWatch::open() noexcept
{
    const std::lock_guard lock(process_lock);
    if (process_watch == nullptr) {
        auto* made = new (std::nothrow) MemoryWatch;
        if (made == nullptr || !made->start()) {
            delete made;
            return nullptr;
        }
        process_watch = made;
    }
    process_users++;
    return process_watch;
}

void MemoryWatch::close() noexcept
{
    const std::lock_guard lock(process_lock);
    if (--process_users != 0)
        return;
    delete process_watch;
    process_watch = nullptr;
}

bool MemoryWatch::start() noexcept
{
    uffd_ = open_userfaultfd();
    stop_ = eventfd(0, EFD_CLOEXEC);
    if (uffd_ < 0 || stop_ < 0)
        return false;
    // The application's signals are for its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    auto body = [](void* self) -> void* {
        static_cast<MemoryWatch*>(self)->read_events();
        return nullptr;
    };
    started_ = pthread_create(&reader_, nullptr, body, this) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started_)
        pthread_setname_np(reader_, "tofu-watch");
    return started_;
}

MemoryWatch::~MemoryWatch()
{
    if (started_) {
        const std::uint64_t one = 1;
        while (::write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
        }
        pthread_join(reader_, nullptr);
    }
    if (uffd_ >= 0)
        ::close(uffd_); // ends every watch; who waits for an event goes on
    if (stop_ >= 0)
        ::close(stop_);
}

/// The thread that reads events. It allocates nothing and takes no lock: who changes the mappings waits for it.
void MemoryWatch::read_events() noexcept
{
    pollfd fds[2] = {{uffd_, POLLIN, 0}, {stop_, POLLIN, 0}};
    while (fds[1].revents == 0) {
        if (::poll(fds, 2, -1) < 0)
            continue;
        if ((fds[0].revents & POLLIN) == 0)
            continue;
        uffd_msg messages[events_at_once];
        // release, and the system call: odd before any event is taken (partner: valid())
        reading_.fetch_add(1, std::memory_order_acq_rel);
        const ssize_t n = ::read(uffd_, messages, sizeof messages);
        for (ssize_t i = 0; i < n / static_cast<ssize_t>(sizeof messages[0]); i++)
            handle(&messages[i]);
        // release: what was handled (partner: valid())
        reading_.fetch_add(1, std::memory_order_release);
    }
}

void MemoryWatch::handle(const void* message) noexcept
{
    uffd_msg event;
    std::memcpy(&event, message, sizeof event);
    switch (event.event) {
    case UFFD_EVENT_REMAP: invalidate(event.arg.remap.from, event.arg.remap.from + event.arg.remap.len); break;
    case UFFD_EVENT_UNMAP: invalidate(event.arg.remove.start, event.arg.remove.end); break;
    case UFFD_EVENT_REMOVE:
        ban(event.arg.remove.start, event.arg.remove.end);
        invalidate(event.arg.remove.start, event.arg.remove.end);
        break;
    default: break; // no other was asked for
    }
}

void MemoryWatch::invalidate(std::uint64_t begin, std::uint64_t end) noexcept
{
    for (Span& span : spans_) {
        // relaxed: who set them live has not registered the pages with the kernel before (partner: watch())
        if (span.begin.load(std::memory_order_relaxed) >= end || span.end.load(std::memory_order_relaxed) <= begin)
            continue;
        State live = State::live;
        span.state.compare_exchange_strong(live, State::stale, std::memory_order_relaxed);
    }
}

void MemoryWatch::ban(std::uint64_t begin, std::uint64_t end) noexcept
{
    const unsigned used = bans_used_.load(std::memory_order_relaxed);
    for (unsigned i = 0; i < used && i < ban_count; i++) {
        Banned& known = bans_[i];
        const std::uint64_t first = known.begin.load(std::memory_order_relaxed);
        const std::uint64_t limit = known.end.load(std::memory_order_relaxed);
        if (begin > limit || end < first)
            continue;
        // A reader sees the old range or the larger one, at worst one end of each: both within the larger.
        known.begin.store(begin < first ? begin : first, std::memory_order_relaxed);
        known.end.store(end > limit ? end : limit, std::memory_order_relaxed);
        return;
    }
    if (used < ban_count) {
        bans_[used].begin.store(begin, std::memory_order_relaxed);
        bans_[used].end.store(end, std::memory_order_relaxed);
    }
    if (used <= ban_count)
        bans_used_.store(used + 1, std::memory_order_release); // partner: banned()
}

bool MemoryWatch::banned(std::uint64_t begin, std::uint64_t end) const noexcept
{
    const unsigned used = bans_used_.load(std::memory_order_acquire);
    if (used > ban_count)
        return true;
    for (unsigned i = 0; i < used; i++)
        if (bans_[i].begin.load(std::memory_order_relaxed) < end &&
            bans_[i].end.load(std::memory_order_relaxed) > begin)
            return true;
    return false;
}

/// Asks the kernel whether all of it is still watched and no event is on its way. The call would lift write
/// protection; there is none to lift.
bool MemoryWatch::confirm(const Span& span) const noexcept
{
    uffdio_writeprotect ask{};
    ask.range.start = span.begin.load(std::memory_order_relaxed);
    ask.range.len = span.end.load(std::memory_order_relaxed) - ask.range.start;
    ask.mode = UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
    return ioctl(uffd_, UFFDIO_WRITEPROTECT, &ask) == 0;
}

WatchTicket MemoryWatch::watch(std::uintptr_t begin, std::uintptr_t end) noexcept
{
    const std::uint64_t first = begin & ~(page_size() - 1);
    const std::uint64_t limit = (end + page_size() - 1) & ~(page_size() - 1);
    const std::lock_guard lock(slow_);
    if (banned(first, limit))
        return {};
    Span* span = nullptr;
    for (unsigned tries = 0; tries < span_count && span == nullptr; tries++) {
        Span& candidate = spans_[next_];
        next_ = (next_ + 1) % span_count;
        if (candidate.state.load(std::memory_order_relaxed) == State::free)
            span = &candidate;
    }
    if (span == nullptr)
        return {};
    if (++serials_ == 0)
        serials_ = 1;
    span->serial = serials_;
    span->begin.store(first, std::memory_order_relaxed);
    span->end.store(limit, std::memory_order_relaxed);
    span->state.store(State::live, std::memory_order_release);
    // From here on each change of these mappings finds the span live.
    const WatchTicket ticket{static_cast<std::uint32_t>(span - spans_), span->serial};
    uffdio_register ask{};
    ask.range = {first, limit - first};
    ask.mode = UFFDIO_REGISTER_MODE_WP;
    const bool registered = ioctl(uffd_, UFFDIO_REGISTER, &ask) == 0;
    // Looked at after it is watched, and asked about again afterwards: else it might have been replaced in between.
    // A range that was being discarded when it was first looked for above has been banned by now.
    if (registered && private_anonymous(first, limit) && valid(ticket) && !banned(first, limit))
        return ticket;
    release(*span, registered);
    return {};
}

// Why a change that happened before this call is seen. The kernel counts "mappings are changing" up before the
// change becomes visible to anybody and down after the event has been read, and refuses confirm() in between. So
// where it does not refuse, the event has been read: within a period of odd reading_, since the thread reads at no
// other time. Then either reading_ is still odd here, or its even value is that of a time when the span was stale.
bool MemoryWatch::valid(WatchTicket ticket) noexcept
{
    const Span& span = spans_[ticket.span];
    if (span.state.load(std::memory_order_relaxed) != State::live || !confirm(span))
        return false;
    // The call above before the loads below.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (unsigned polls = 0; !settled(); polls++) {
        if (polls == polls_of_reader + yields_to_reader)
            return false;
        if (polls >= polls_of_reader)
            sched_yield();
    }
    return span.state.load(std::memory_order_relaxed) == State::live;
}

void MemoryWatch::unwatch(WatchTicket ticket) noexcept
{
    const std::lock_guard lock(slow_);
    Span& span = spans_[ticket.span];
    if (!ticket || span.serial != ticket.serial)
        return;
    release(span, span.state.load(std::memory_order_relaxed) == State::live);
}

/// `registered`: the kernel still reports changes of these pages to us.
void MemoryWatch::release(Span& span, bool registered) noexcept
{
    uffdio_range range{};
    range.start = span.begin.load(std::memory_order_relaxed);
    range.len = span.end.load(std::memory_order_relaxed) - range.start;
    // Nobody will be told about these pages any more: who shares some of them may no longer rely on it.
    invalidate(range.start, range.start + range.len);
    // Where they were replaced somebody else may be watching by now, whom older kernels would cut off.
    if (registered)
        (void)ioctl(uffd_, UFFDIO_UNREGISTER, &range);
    span.serial = 0;
    span.state.store(State::free, std::memory_order_release);
}

} // namespace tofu
