// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Actors that compute, post and wait, each by its script. See player.h.
#include "replay/player.h"

#include <algorithm>

namespace tofu::sim::replay {
namespace {

constexpr Picoseconds furthest_ahead = 10'000'000;

} // namespace

Player::Player(Script& script, Traffic& traffic) : script_(script), traffic_(traffic)
{
    traffic_.happened = [this](Key key, Picoseconds when) { happen(key, when); };
}

uint32_t Player::play()
{
    at_work_ = script_.actors();
    for (uint32_t actor = 0; actor < script_.actors(); actor++)
        go_on(actor, 0);
    traffic_.run();
    return at_work_;
}

/// An actor may be ahead of what is on its way: what it posts then begins later.
void Player::go_on(uint32_t actor, Picoseconds now)
{
    for (Step step; script_.next(actor, step); step = {}) {
        switch (step.kind) {
        case Step::Kind::compute: now += step.time; break;
        case Step::Kind::post:
            now += figures::post_call;
            traffic_.carry(step.message, now);
            if (now > traffic_.now() + furthest_ahead) { // what it does next would only wait in the queue of events
                const Key key = Key{0xfffffd} << 40 | actor;
                waiters_.insert({key, {actor, 1, now, 0}});
                traffic_.remind(key, now);
                return;
            }
            break;
        case Step::Kind::wait:
            if (!wait(actor, step, now))
                return;
            break;
        case Step::Kind::meet: {
            Events& meeting = meetings_[step.key];
            meeting.last = std::max(meeting.last, now);
            waiters_.insert({step.key, {actor, 1, now, 0}});
            if (++meeting.count == step.count) {
                traffic_.remind(step.key, meeting.last + step.time);
                meetings_.erase(step.key);
            }
            return;
        }
        }
    }
    length_ = std::max(length_, now);
    at_work_--;
}

bool Player::wait(uint32_t actor, const Step& step, Picoseconds& now)
{
    const auto found = events_.find(step.key);
    if (found == events_.end() || found->second.count < step.count) {
        waiters_.insert({step.key, {actor, step.count, now, step.time}});
        return false;
    }
    now = std::max(now, found->second.last) + step.time;
    events_.erase(found);
    return true;
}

void Player::happen(Key key, Picoseconds when)
{
    auto [waiter, end] = waiters_.equal_range(key);
    if (waiter == end) {
        Events& events = events_[key];
        events.count++;
        events.last = when;
        return;
    }
    const auto found = events_.find(key);
    const uint32_t count = 1 + (found != events_.end() ? found->second.count : 0);
    if (count < waiter->second.count) {
        events_[key] = {count, when};
        return;
    }
    if (found != events_.end())
        events_.erase(found);
    std::vector<Waiter> list; // of a meeting there are several
    for (; waiter != end; ++waiter)
        list.push_back(waiter->second);
    waiters_.erase(key);
    std::sort(list.begin(), list.end(), [](const Waiter& a, const Waiter& b) { return a.actor < b.actor; });
    for (const Waiter& one : list)
        go_on(one.actor, std::max(one.since, when) + one.cost);
}

} // namespace tofu::sim::replay
