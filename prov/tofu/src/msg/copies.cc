// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See copies.h.
#include "msg/copies.h"

#include <utility>

#include "core/system.h"
#include "cq/domain_base.h"

namespace tofu::proto {

constexpr std::uint64_t probe_ms = 20; // between two questions whether a receiver lives

OrphanedCopies::OrphanedCopies(DomainBase& domain) noexcept
    : domain_(domain),
      answers_(std::in_place, domain.target_vcq(), BouncePool::Kind{BouncePool::small_size, 1}, BouncePool::Kind{})
{
    probe_.notify = on_probe;
}

void OrphanedCopies::adopt(std::unique_ptr<Copies> copies, ReceiveArea&& area, unsigned number) noexcept
{
    std::lock_guard guard(mutex_);
    copies->area.emplace(std::move(area));
    copies->area->mark_closed();
    copies->number = number;
    copies->next = std::move(first_);
    first_ = std::move(copies);
    count_.fetch_add(1, std::memory_order_relaxed);
}

void OrphanedCopies::progress() noexcept
{
    std::unique_ptr<Copies> ended;
    {
        std::unique_lock guard(mutex_, std::try_to_lock);
        if (!guard)
            return; // another thread is at it
        watch();
        ended = collect_ended();
    }
    drop(std::move(ended));
}

/// Releases the copies that have been fetched. Returns the endpoints that have none left.
std::unique_ptr<Copies> OrphanedCopies::collect_ended() noexcept
{
    std::unique_ptr<Copies> ended;
    for (std::unique_ptr<Copies>* at = &first_; *at != nullptr;) {
        Copies& copies = **at;
        copies.each([&](Copy& copy) {
            // acquire: pairs with the receiver's Put of the word; its Gets ended before
            const CompletionWord word = copies.area->completion(copy.word).load(std::memory_order_acquire);
            if (static_cast<std::uint32_t>(word >> 32) == copy.seq &&
                static_cast<std::uint32_t>(word) != completion_pending)
                copies.release(copy);
        });
        if (copies.in_use() != 0) {
            at = &copies.next;
            continue;
        }
        std::unique_ptr<Copies> one = std::exchange(*at, std::move(copies.next));
        one->next = std::exchange(ended, nullptr);
        ended = std::move(one);
        count_.fetch_sub(1, std::memory_order_relaxed);
    }
    return ended;
}

/// Closes areas and gives their numbers back. Takes the target lock.
void OrphanedCopies::drop(std::unique_ptr<Copies> all) noexcept
{
    while (all != nullptr) {
        all->area.reset();
        domain_.numbers().release(all->number, 1);
        all = std::exchange(all->next, nullptr);
    }
}

std::size_t OrphanedCopies::messages() noexcept
{
    std::lock_guard guard(mutex_);
    return count_messages();
}

/// Under the mutex.
std::size_t OrphanedCopies::count_messages() const noexcept
{
    std::size_t count = 0;
    for (const Copies* each = first_.get(); each != nullptr; each = each->next.get())
        count += each->in_use();
    return count;
}

std::size_t OrphanedCopies::close() noexcept
{
    // A Get that is not answered counts as failed after some seconds (Vcq::lost_after).
    for (bool under_way = true; under_way;) {
        std::lock_guard guard(domain_.target_lock());
        domain_.target_vcq().poll();
        under_way = probe_.under_way;
        if (!under_way)
            answers_.reset();
    }
    std::lock_guard guard(mutex_);
    std::unique_ptr<Copies> fetched = collect_ended();
    const std::size_t lost = count_messages();
    drop(std::move(fetched));
    drop(std::exchange(first_, nullptr));
    count_.store(0, std::memory_order_relaxed);
    return lost;
}

// --- receivers that are gone

/// Asks one receiver after the other whether it lives, by a read of its area's header.
void OrphanedCopies::watch() noexcept
{
    if (!domain_.target_lock().try_lock())
        return;
    if (!probe_.under_way) {
        if (std::exchange(probe_.gone, false))
            release_for(probe_);
        if (const std::uint64_t now = milliseconds(); now - probed_at_ >= probe_ms) {
            probed_at_ = now;
            start_probe();
        }
    }
    domain_.target_lock().unlock();
}

/// The copies for this receiver are not fetched any more.
void OrphanedCopies::release_for(const Probe& gone) noexcept
{
    for (Copies* each = first_.get(); each != nullptr; each = each->next.get())
        each->each([&](Copy& copy) {
            if (copy.receiver == gone.receiver)
                each->release(copy);
        });
}

void OrphanedCopies::start_probe() noexcept
{
    const std::size_t in_all = count_messages();
    if (in_all == 0)
        return;
    const Copy* next = nullptr;
    std::size_t before = turn_++ % in_all;
    for (Copies* each = first_.get(); each != nullptr; each = each->next.get())
        each->each([&](Copy& copy) {
            if (before-- == 0)
                next = &copy;
        });
    if (probe_.answer.data == nullptr)
        probe_.answer = answers_->alloc(sizeof(AreaHeader));
    if (probe_.answer.data == nullptr)
        return;
    probe_.receiver = next->receiver;
    probe_.under_way = true; // the notice may come within the post
    const vcq::Post post =
        domain_.target_vcq().get(next->receiver.target_vcq, probe_.answer.stadd, next->receiver.area,
                                 sizeof(AreaHeader), {.level = vcq::CompletionLevel::delivered, .handler = &probe_});
    if (post == vcq::Post::done)
        return;
    probe_.under_way = false;
    probe_.gone = post == vcq::Post::error;
}

void OrphanedCopies::on_probe(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& probe = *static_cast<Probe*>(handler);
    probe.under_way = false;
    probe.gone = notice.code != UTOFU_SUCCESS || !same_process(probe.answer, probe.receiver.nonce);
}

} // namespace tofu::proto
