// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See match.h.
#include "msg/match.h"

namespace tofu::proto {

std::uint32_t Matcher::other_kind(std::uint64_t ignore, bool directed) noexcept
{
    std::uint32_t free = overflow_kind;
    for (std::uint32_t k = 0; k < kinds_used_; k++) {
        if (kinds_[k].ignore == ignore && kinds_[k].directed == directed)
            return last_kind_ = k;
        if (kinds_[k].count == 0)
            free = k;
    }
    if (free == overflow_kind) {
        if (kinds_used_ == max_kinds)
            return overflow_kind;
        free = kinds_used_++;
    }
    kinds_[free] = {ignore, directed, 0};
    return last_kind_ = free;
}

/// Posts a receive into the tables, behind all others; the receives that were compared one by one move there first.
void Matcher::enter(Posted& receive) noexcept
{
    const unsigned few = few_posted_;
    few_posted_ = 0;
    for (unsigned i = 0; i < few; i++)
        enter(*few_[i]);
    receive.order = next_order_++;
    receive.kind = kind_of(receive.ignore, receive.source != any_source);
    if (receive.kind == overflow_kind) [[unlikely]]
        overflow_count_++;
    else
        kinds_[receive.kind].count++;
    posted_.push(receive);
}

void Matcher::drop_kinds() noexcept
{
    while (kinds_used_ > kept_kinds && kinds_[kinds_used_ - 1].count == 0)
        kinds_used_--;
}

Posted* Matcher::match_overflow(std::uint64_t source, std::uint64_t tag) const noexcept
{
    Posted* p = posted_.front({0, 0, overflow_kind});
    for (; p != nullptr; p = p->links.next)
        if (p->takes(source, tag))
            return p;
    return nullptr;
}

void Matcher::enter(UnexpectedLinks& m) noexcept
{
    by_both_.push(m);
    by_tag_.push(m);
}

void Matcher::leave(UnexpectedLinks& m) noexcept
{
    by_both_.remove(m);
    by_tag_.remove(m);
    indexed_ = first_ != nullptr;
}

/// Behind the first message, which does not suit.
UnexpectedLinks* Matcher::search(std::uint64_t source, std::uint64_t tag, std::uint64_t ignore) noexcept
{
    if (ignore != 0 || (!indexed_ && arrived_ <= few_messages)) {
        UnexpectedLinks* m = first_->next;
        while (m != nullptr && !m->suits(source, tag, ignore))
            m = m->next;
        return m;
    }
    for (UnexpectedLinks* m = indexed_ ? nullptr : first_; m != nullptr; m = m->next)
        enter(*m);
    indexed_ = true;
    return source == any_source ? by_tag_.front({0, tag, 0}) : by_both_.front({source, tag, 0});
}

} // namespace tofu::proto
