// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving side of a rendezvous: Gets from the sender's memory straight into the user's, then FIN. Part of
// the receiver; calls vcq and the endpoint's local registrations.
#include "message/receiver.h"

#include <cstring>

#include <rdma/fi_errno.h>

#include "provider/error.h"

namespace tofu::proto {

Fetch* Receiver::make_fetch(const Message& message) noexcept
{
    Fetch* f = fetches_.alloc();
    if (f == nullptr)
        return nullptr;
    *f = Fetch{{on_fetched}};
    f->owner = this;
    f->live = true;
    f->message = message;
    f->unverified = message.kept;
    message.in->users++;
    return f;
}

void Receiver::start(Fetch& f) noexcept
{
    f.unverified &= f.to_fetch != 0;
    if (f.unverified)
        ask(f);
    else
        advance(f);
}

/// A message that had to wait: its sender may have closed its endpoint, or died, and another may have got its VCQ IDs
/// and steering tags since. Its FIN word, under a number that no other endpoint gives it, says whether it still waits.
void Receiver::ask(Fetch& f) noexcept
{
    f.answer = port_.bounces.alloc(sizeof(FinWord));
    if (f.answer.data == nullptr) {
        wait(f);
        return;
    }
    const Source& in = *f.message.in;
    f.pending++;
    const vcq::Post post = vcq_.get(in.home, f.answer.stadd, in.area + fin_offset(f.message.fin.fin), sizeof(FinWord),
                                    {.when = vcq::When::delivered, .waiter = &f});
    if (post == vcq::Post::done) [[likely]]
        return; // `f` may be gone
    f.pending--;
    if (post == vcq::Post::error) {
        answered(f, {vcq_.last_error(), 0});
        return;
    }
    port_.bounces.release(f.answer);
    wait(f);
}

void Receiver::answered(Fetch& f, const vcq::Notice& notice) noexcept
{
    FinWord word;
    std::memcpy(&word, f.answer.data, sizeof word);
    port_.bounces.release(f.answer);
    f.unverified = false;
    f.lost = notice.code != UTOFU_SUCCESS || word != fin_word(f.message.fin.seq, fin_pending);
    if (f.lost) {
        f.to_fetch = 0;
        f.prov_errno = notice.code != UTOFU_SUCCESS ? notice.code : UTOFU_ERR_MRQ_PEER;
        f.err = notice.code != UTOFU_SUCCESS ? fi_error_of(notice.code) : FI_EHOSTDOWN;
    }
    if (port_.open)
        advance(f);
}

/// Posts as many Gets as there is room for. Afterwards `f` may be gone.
void Receiver::advance(Fetch& f) noexcept
{
    f.pending++; // ours, so that no notice ends it meanwhile
    while (f.to_fetch != 0)
        if (!get_piece(f)) {
            f.pending--;
            wait(f);
            return;
        }
    if (--f.pending == 0)
        finish(f);
}

/// One Get: as far as the sender's segment, the user's segment and the TNI allow. False: no room now.
bool Receiver::get_piece(Fetch& f) noexcept
{
    while (f.into_offset == f.into[f.into_index].iov_len) {
        f.into_index++;
        f.into_offset = 0;
    }
    const Segment& from = f.message.segments[f.from_index];
    const iovec& into = f.into[f.into_index];
    if (f.ref_count == f.into_index) {
        const int ret = tx_.local_memory().acquire(into.iov_base, into.iov_len, false,
                                                   f.refs[f.ref_count], f.desc[f.ref_count]);
        if (ret == -FI_EAGAIN)
            return false;
        if (ret != 0) {
            f.err = -ret;
            f.to_fetch = 0;
            return true;
        }
        f.ref_count++;
    }
    std::size_t n = f.to_fetch;
    n = n < max_piece_ ? n : max_piece_;
    n = n < from.length - f.from_offset ? n : from.length - f.from_offset;
    n = n < into.iov_len - f.into_offset ? n : into.iov_len - f.into_offset;
    const vcq::Post post =
        vcq_.get(f.message.vcq, f.refs[f.into_index].stadd + f.into_offset,
                 from.stadd + f.from_offset, n, {.when = vcq::When::delivered, .waiter = &f});
    if (post == vcq::Post::busy)
        return false;
    if (post == vcq::Post::error) {
        f.prov_errno = vcq_.last_error();
        f.err = fi_error_of(f.prov_errno);
        f.to_fetch = 0;
        return true;
    }
    f.pending++;
    f.to_fetch -= n;
    f.into_offset += n;
    f.from_offset += n;
    if (f.from_offset == from.length) {
        f.from_index++;
        f.from_offset = 0;
    }
    return true;
}

void Receiver::on_fetched(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& f = *static_cast<Fetch*>(waiter);
    Receiver& m = *f.owner;
    if (f.unverified) [[unlikely]] {
        f.pending--;
        m.answered(f, notice);
        return;
    }
    if (notice.code != UTOFU_SUCCESS && f.err == 0) {
        f.err = fi_error_of(notice.code);
        f.prov_errno = notice.code;
        f.to_fetch = 0;
    }
    f.pending--;
    if (f.pending == 0 && f.to_fetch == 0 && !f.waiting && m.port_.open)
        m.finish(f);
}

/// All bytes are here, or will never be: tell the sender, then the application.
void Receiver::finish(Fetch& f) noexcept
{
    Source& in = *f.message.in;
    const FinWord word = fin_word(f.message.fin.seq, static_cast<std::uint32_t>(f.err));
    if (!f.lost && vcq_.put_inline(in.home, &word, in.area + fin_offset(f.message.fin.fin), sizeof word, {}) ==
                       vcq::Post::busy) {
        wait(f);
        return;
    }
    for (unsigned i = 0; i < f.ref_count; i++)
        tx_.local_memory().release(f.refs[i]);
    if (f.receive != nullptr)
        received(*f.receive, f.message, f.into_count != 0 ? f.into[0].iov_base : nullptr,
                 f.err == 0 ? f.length : 0, f.err, f.prov_errno);
    f.live = false;
    let_go(in);
    fetches_.release(&f);
}

void Receiver::wait(Fetch& f) noexcept
{
    f.waiting = true;
    f.next = nullptr;
    Fetch** end = &waiting_fetches_;
    while (*end != nullptr)
        end = &(*end)->next;
    *end = &f;
}

void Receiver::resume_fetches() noexcept
{
    Fetch* list = waiting_fetches_;
    waiting_fetches_ = nullptr;
    while (list != nullptr) {
        Fetch& f = *list;
        list = f.next;
        f.waiting = false;
        if (f.unverified)
            ask(f);
        else if (f.to_fetch != 0)
            advance(f);
        else if (f.pending == 0)
            finish(f);
    }
}

void Receiver::part_from_queue() noexcept
{
    if (own_queue_)
        return; // which goes with us
    waiting_fetches_ = nullptr;
    fetches_.each([this](Fetch& f) {
        if (!f.live)
            return;
        for (unsigned i = 0; i < f.ref_count; i++)
            tx_.local_memory().release(f.refs[i]);
        f.live = false;
        if (f.receive != nullptr)
            received(*f.receive, f.message, f.into_count != 0 ? f.into[0].iov_base : nullptr, 0,
                     FI_ECANCELED, 0);
        let_go(*f.message.in);
    });
    queue_.leave(*this);
}

} // namespace tofu::proto
