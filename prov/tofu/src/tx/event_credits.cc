// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See event_credits.h.
#include "tx/event_credits.h"

#include <algorithm>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "av/peer_table.h"
#include "core/system.h"

namespace tofu {

constexpr std::uint64_t tick_ms = 100;
constexpr std::uint8_t idle_ticks = 10; // after this number, credits are returned
constexpr std::size_t accounts_per_tick = 256;
constexpr std::uint32_t most_skips = 256; // rounds between two looks into an empty pool
constexpr unsigned closing_polls = 256;

EventCredits::~EventCredits()
{
    if (read_buffer_)
        vcq_.dereg(read_stadd_);
}

/// The account at a peer's domain. Null: no memory. A process that got the VCQ ID of an earlier one has its own
/// account.
CreditAccount* EventCredits::account_of(const Peer& peer) noexcept
{
    const std::uint64_t nonce = nonce_of_domain(peer.nonce);
    if (last_ != nullptr && last_->target_vcq == peer.target_vcq && last_->nonce == nonce) [[likely]]
        return last_;
    if (!read_buffer_) {
        OwnMemory made(sizeof(std::uint64_t));
        if (!made || vcq_.reg(made.get(), made.size(), false, read_stadd_) != 0)
            return nullptr;
        read_buffer_ = std::move(made);
    }
    const auto before = by_target_vcq_.find(peer.target_vcq);
    CreditAccount* found = before != by_target_vcq_.end() ? before->second : nullptr;
    if (found == nullptr || found->nonce != nonce) {
        auto made = std::unique_ptr<CreditAccount>(new (std::nothrow) CreditAccount);
        utofu_stadd_t directory = 0;
        if (made == nullptr || !accounts_.reserve(accounts_.size() + 1) ||
            vcq_.query_stadd(peer.target_vcq, directory_stag, directory) != 0 ||
            !allocates([&] { by_target_vcq_[peer.target_vcq] = made.get(); }))
            return nullptr;
        made->notify = on_answer;
        made->owner = this;
        made->target_vcq = peer.target_vcq;
        made->nonce = nonce;
        made->pool = directory + event_pool::offset;
        found = made.get();
        accounts_.push_reserved(std::move(made));
    }
    return last_ = found;
}

int EventCredits::spend(const Peer& peer, unsigned events, CreditAccount*& account, int& prov_errno) noexcept
{
    CreditAccount* const p = account_of(peer);
    if (p == nullptr) [[unlikely]]
        return -FI_ENOMEM;
    p->used = true;
    if (p->err != 0) [[unlikely]] {
        prov_errno = p->prov_errno;
        return -std::exchange(p->err, 0);
    }
    if (p->held < events || p->held <= p->batch / 2)
        request_credits(*p);
    if (p->held < events) {
        if (p->backoff_left != 0) { // the pool is empty: what is not enough here may be enough elsewhere
            p->owed += std::exchange(p->held, 0);
            return_credits(*p);
        }
        vcq_.statistics().count(Stat::again_credit);
        return -FI_EAGAIN;
    }
    p->held -= events;
    account = p;
    return 0;
}

/// Asks for the next batch of credits, unless an ARMW is under way.
void EventCredits::request_credits(CreditAccount& p) noexcept
{
    if (p.owed != 0)
        return_credits(p);
    if (p.under_way)
        return;
    if (p.backoff_left != 0) {
        p.backoff_left--;
        return;
    }
    p.requested = p.batch;
    p.giving = false;
    if (!post(p, -static_cast<std::int64_t>(p.batch)))
        p.requested = 0;
}

void EventCredits::return_credits(CreditAccount& p) noexcept
{
    if (p.under_way || p.owed == 0)
        return;
    p.giving = true;
    p.requested = p.owed;
    p.owed = 0;
    if (!post(p, p.requested)) {
        p.owed = p.requested;
        p.requested = 0;
    }
}

bool EventCredits::post(CreditAccount& p, std::int64_t credits) noexcept
{
    p.under_way = true; // the notice may come within the post
    const vcq::Post posted = vcq_.armw(8, p.target_vcq, UTOFU_ARMW_OP_ADD, static_cast<std::uint64_t>(credits), p.pool,
                                       {.level = vcq::CompletionLevel::delivered, .handler = &p});
    if (posted == vcq::Post::done)
        return true;
    p.under_way = false;
    if (posted == vcq::Post::error) {
        p.prov_errno = vcq_.last_error();
        p.err = fi_error_of(p.prov_errno);
    }
    return false;
}

void EventCredits::on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    CreditAccount& p = *static_cast<CreditAccount*>(handler);
    p.under_way = false;
    if (notice.code != UTOFU_SUCCESS) { // the peer is gone, and its pool with it
        if (!p.giving) {
            p.prov_errno = notice.code;
            p.err = fi_error_of(notice.code);
        }
        p.requested = 0;
        return;
    }
    if (p.giving)
        p.requested = 0;
    else
        p.owner->on_word(p, notice.value);
    p.owner->return_credits(p);
}

/// Evaluates the word that the pool held when p.moving credits were taken. It is not trusted: it may belong to another
/// domain, or a hostile process may have written it.
void EventCredits::on_word(CreditAccount& p, std::uint64_t word) noexcept
{
    const std::uint32_t asked = std::exchange(p.requested, 0);
    if (!event_pool::is_valid(word, p.nonce)) {
        p.owed += asked; // returns what was taken
        const bool other = word >> 32 != (p.nonce & 0xffffffff);
        p.prov_errno = other ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_OTHER;
        p.err = other ? FI_EHOSTDOWN : FI_EIO;
        TOFU_INFO(FI_LOG_EP_DATA,
                  "vcq 0x%llx: the event pool of peer 0x%llx has invalid contents: its memory is damaged; restart that "
                  "process\n",
                  static_cast<unsigned long long>(vcq_.id()), static_cast<unsigned long long>(p.target_vcq));
        return;
    }
    const std::int64_t found = event_pool::left(word);
    const auto got = static_cast<std::uint32_t>(std::clamp<std::int64_t>(found, 0, asked));
    p.held += got;
    p.owed += asked - got;
    if (found <= 0) {
        p.batch = 0; // after an empty pool look before taking: many that try to take would keep it empty
        p.backoff = std::min(p.backoff * 2 + 1, most_skips);
        p.backoff_left = p.backoff;
        return;
    }
    p.backoff = p.backoff_left = 0;
    p.batch = static_cast<std::uint32_t>(std::clamp<std::int64_t>((found - got) / fraction, 1, most_at_once));
}

void EventCredits::failed(utofu_vcq_id_t target_vcq) noexcept
{
    if (const auto account = by_target_vcq_.find(target_vcq); account != by_target_vcq_.end())
        account->second->refund(1);
}

void EventCredits::tick() noexcept
{
    const std::uint64_t now = milliseconds();
    if (now - last_tick_ < tick_ms)
        return;
    last_tick_ = now;
    for (std::size_t i = 0; i < accounts_.size() && i < accounts_per_tick; i++) {
        CreditAccount& p = *accounts_[next_++ % accounts_.size()];
        p.idle = p.used ? std::uint8_t{0} : static_cast<std::uint8_t>(std::min(p.idle + 1, int{idle_ticks}));
        p.used = false;
        if (p.idle == idle_ticks)
            p.owed += std::exchange(p.held, 0);
        return_credits(p);
    }
}

void EventCredits::close() noexcept
{
    for (auto& account : accounts_) {
        for (unsigned i = 0; i < closing_polls && (account->under_way || account->held + account->owed != 0); i++) {
            account->owed += std::exchange(account->held, 0);
            return_credits(*account);
            (void)vcq_.poll();
        }
    }
}

} // namespace tofu
