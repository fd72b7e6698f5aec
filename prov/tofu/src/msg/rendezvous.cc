// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See rendezvous.h.
#include "msg/rendezvous.h"

#include <algorithm>

#include <rdma/fi_errno.h>

#include "core/log.h"
#include "msg/receiver.h"

namespace tofu::proto {

// --- Message

void Message::pack(Unexpected& to) const noexcept
{
    to.tag = tag;
    to.tagged = tagged;
    to.has_data = has_data;
    to.data = data;
    to.length = length;
    std::memcpy(to.body(), static_cast<const UnexpectedHeader*>(this), sizeof(UnexpectedHeader));
    std::byte* const rest = to.body() + sizeof(UnexpectedHeader);
    if (type == Type::rts) {
        std::memcpy(rest, &vcq, sizeof vcq);
        std::memcpy(rest + sizeof vcq, segments, segment_count * sizeof(Segment));
    } else if (length != 0) {
        std::memcpy(rest, payload, length);
    }
}

Message Message::unpack(const Unexpected& from) noexcept
{
    const std::byte* const rest = payload_of(from);
    const UnexpectedHeader of_it = kept_of(from); // made in its place, it would cover what lies in its tail (GCC 12)
    Message m{of_it, from.tagged, from.has_data, from.tag, from.data, from.length, rest};
    if (m.type == Type::rts) {
        std::memcpy(&m.vcq, rest, sizeof m.vcq);
        std::memcpy(m.segments, rest + sizeof m.vcq, m.segment_count * sizeof(Segment));
    }
    return m;
}

// --- RendezvousReceiver

/// Pieces end at multiples of 64 KiB, the page size of the hardware.
static std::size_t piece_of(std::size_t most) noexcept
{
    return most >= 65536 ? most & ~std::size_t{65535} : most;
}

RendezvousReceiver::RendezvousReceiver(TxContext& tx, RingContext& own, Receiver& receiver) noexcept
    : tx_(tx), own_(own), vcq_(tx.vcq()), receiver_(receiver),
      max_piece_(piece_of(tx.vcq().backend().caps().max_putget_size))
{
}

RendezvousReceiver::~RendezvousReceiver()
{
    pool_.each([](Fetch& f) {
        if (f.live)
            f.message.in->unref();
    });
}

Fetch* RendezvousReceiver::make(const Message& message) noexcept
{
    Fetch* f = pool_.alloc();
    if (f == nullptr)
        return nullptr;
    *f = Fetch{{on_fetched}, {resume}};
    f->owner = this;
    f->live = true;
    f->message = message;
    message.in->users++;
    return f;
}

void RendezvousReceiver::start(Fetch& f) noexcept
{
    f.rail = tx_.rails().acquire(Rails::By::us, f.message.in->known.target_vcq, f.to_fetch);
    advance(f);
}

/// Posts as many Gets as there is room for. `f` may be gone when this returns.
void RendezvousReceiver::advance(Fetch& f) noexcept
{
    f.pending++; // keeps notices that come meanwhile from ending the fetch
    while (f.to_fetch != 0)
        if (!get_piece(f)) {
            f.pending--;
            wait(f);
            return;
        }
    if (--f.pending == 0)
        post_completion(f);
}

/// Registers all buffers of the receive, or none: a fetch that waits holds nothing that another one waits for. 0 or
/// -FI_E*.
static int register_buffers(LocalMemory& memory, Fetch& f) noexcept
{
    int ret = 0;
    for (; ret == 0 && f.ref_count < f.into_count; f.ref_count += ret == 0)
        ret = memory.acquire(f.into[f.ref_count].iov_base, f.into[f.ref_count].iov_len, false, f.refs[f.ref_count],
                             f.desc[f.ref_count]);
    while (ret != 0 && f.ref_count != 0)
        memory.release(f.refs[--f.ref_count]);
    return ret;
}

/// Posts one Get, as long as the sender's segment, the user's segment and the TNI allow. False: no room now.
bool RendezvousReceiver::get_piece(Fetch& f) noexcept
{
    if (f.ref_count != f.into_count) {
        const int ret = register_buffers(tx_.rails().memory(f.rail), f);
        if (ret == -FI_EAGAIN)
            return false;
        if (ret != 0) {
            f.err = -ret;
            f.to_fetch = 0;
            return true;
        }
    }
    while (f.into_offset == f.into[f.into_index].iov_len) {
        f.into_index++;
        f.into_offset = 0;
    }
    const Segment& from = f.message.segments[f.from_index];
    const iovec& into = f.into[f.into_index];
    const std::size_t n = std::min({f.to_fetch, max_piece_, from.length - f.from_offset, into.iov_len - f.into_offset});
    vcq::Vcq& vcq = tx_.rails().vcq(f.rail);
    const vcq::Post post =
        vcq.get(f.message.vcq, f.refs[f.into_index].stadd + f.into_offset, from.stadd + f.from_offset, n,
                {.level = vcq::CompletionLevel::delivered, .handler = &f});
    if (post == vcq::Post::busy)
        return false;
    if (post == vcq::Post::error) {
        f.prov_errno = vcq.last_error();
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

void RendezvousReceiver::on_fetched(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& f = *static_cast<Fetch*>(handler);
    RendezvousReceiver& m = *f.owner;
    if (f.ending) {
        f.pending--;
        m.on_completion_posted(f, notice);
        return;
    }
    if (notice.code != UTOFU_SUCCESS && f.err == 0) {
        f.err = fi_error_of(notice.code);
        f.prov_errno = notice.code;
        f.to_fetch = 0;
    }
    f.pending--;
    if (f.pending == 0 && f.to_fetch == 0 && !f.waiting && m.own_.open)
        m.post_completion(f);
}

/// Called when all bytes have arrived or cannot arrive: notifies the sender. An RTS may be old when it is accepted: its
/// sender may have given up, closed or died since, and another endpoint may have its VCQ ID and steering tags, so that
/// the bytes may be of any origin. As long as the completion word waits for this operation they are the sender's. No
/// other endpoint uses the number in the word, and the CSWAP changes no word of another one.
void RendezvousReceiver::post_completion(Fetch& f) noexcept
{
    const RxRing& in = *f.message.in;
    const Ack& ack = f.message.completion;
    f.ending = true;
    f.pending++; // the notice may come within the post
    const vcq::Post post =
        vcq_.cswap(8, in.known.target_vcq, completion_word(ack.seq, completion_pending),
                   completion_word(ack.seq, static_cast<std::uint32_t>(f.err)), in.area + completion_offset(ack.word),
                   {.level = vcq::CompletionLevel::delivered, .handler = &f});
    if (post == vcq::Post::done)
        return; // `f` may be gone
    f.pending--;
    if (post == vcq::Post::busy)
        wait(f);
    else
        on_completion_posted(f, {vcq_.last_error(), 0});
}

/// The CSWAP has ended: notifies the application.
void RendezvousReceiver::on_completion_posted(Fetch& f, vcq::Notice notice) noexcept
{
    if (!own_.open)
        return;
    const bool waited =
        notice.code == UTOFU_SUCCESS && notice.value == completion_word(f.message.completion.seq, completion_pending);
    if (!waited) {
        f.err = FI_EHOSTDOWN;
        f.prov_errno = notice.code != UTOFU_SUCCESS ? static_cast<int>(notice.code) : int{UTOFU_ERR_MRQ_PEER};
    }
    end(f, f.err == 0 ? f.length : 0, f.err, f.prov_errno);
    pool_.release(&f);
}

/// Reports the end to the application.
void RendezvousReceiver::end(Fetch& f, std::size_t length, int err, int prov_errno) noexcept
{
    for (unsigned i = 0; i < f.ref_count; i++)
        tx_.rails().memory(f.rail).release(f.refs[i]);
    tx_.rails().release(Rails::By::us, f.rail);
    f.live = false;
    if (f.receive != nullptr)
        receiver_.received(*f.receive, f.message, f.into_count != 0 ? f.into[0].iov_base : nullptr, length, err,
                           prov_errno);
    f.message.in->unref();
}

void RendezvousReceiver::wait(Fetch& f) noexcept
{
    f.waiting = true;
    retry_later(f);
}

void RendezvousReceiver::resume(RetryItem& fetch) noexcept
{
    auto& f = static_cast<Fetch&>(fetch);
    f.waiting = false;
    if (f.to_fetch != 0)
        f.owner->advance(f);
    else if (f.pending == 0)
        f.owner->post_completion(f);
}

void RendezvousReceiver::cancel() noexcept
{
    waiting_ = {};
    pool_.each([this](Fetch& f) {
        if (f.live)
            end(f, 0, FI_ECANCELED, 0);
    });
}

// --- EagerGets

EagerGets::Transfer* EagerGets::find(const Message& message) noexcept
{
    Transfer* found = nullptr;
    transfers_.each([&](Transfer& f) {
        if (f.live && f.from == sender_of(message) && f.what.completion == message.completion &&
            f.what.length == message.length)
            found = &f;
    });
    return found;
}

/// Takes a place for a new payload. Null: there is no room now.
EagerGets::Transfer* EagerGets::make(const Message& message, std::uint32_t round) noexcept
{
    // A payload that was not asked for in a whole round has lost its anonymous packet: a peer wrote to a slot that was
    // filled already.
    transfers_.each([&](Transfer& f) {
        if (f.live && f.pending == 0 && round - f.round > 1)
            release(f);
    });
    const Bounce bytes = own_.bounces.alloc(message.length);
    Transfer* const transfer = bytes.data != nullptr ? transfers_.alloc() : nullptr;
    if (transfer == nullptr) {
        if (bytes.data != nullptr)
            own_.bounces.release(bytes);
        return nullptr;
    }
    *transfer = Transfer{{on_notice}};
    transfer->what = message;
    transfer->from = sender_of(message);
    transfer->live = true;
    transfer->bytes = bytes;
    return transfer;
}

EagerGets::Stage EagerGets::look(Message& message, std::uint32_t round) noexcept
{
    Transfer* transfer = find(message);
    const auto is_sender = [&](const DeadSender& gone) {
        return gone.sender == sender_of(message) && gone.round == round;
    };
    if (transfer == nullptr && std::ranges::any_of(dead_senders_, is_sender)) [[unlikely]]
        return Stage::lost;
    if (transfer == nullptr && (transfer = make(message, round)) == nullptr)
        return Stage::getting;
    transfer->round = round;
    if (transfer->stage == Stage::getting)
        get(*transfer);
    if (transfer->stage == Stage::asking && transfer->pending == 0)
        judge(*transfer);
    const Stage stage = transfer->stage;
    message.payload = transfer->bytes.data;
    if (stage == Stage::lost)
        release(*transfer);
    return stage;
}

/// Posts as many Gets as there is room for. When all bytes have arrived it reads the sender's completion word.
void EagerGets::get(Transfer& transfer) noexcept
{
    for (; transfer.next < transfer.what.segment_count && transfer.code == UTOFU_SUCCESS; transfer.next++) {
        const Segment& from = transfer.what.segments[transfer.next];
        if (!post(transfer, transfer.what.vcq, transfer.bytes.stadd + transfer.offset, from.stadd, from.length))
            return;
        transfer.offset += from.length;
    }
    if (transfer.pending != 0)
        return;
    if (transfer.word.data == nullptr)
        transfer.word = own_.bounces.alloc(sizeof(CompletionWord));
    transfer.asks = transfer.word.data != nullptr;
    if (transfer.asks &&
        !post(transfer, transfer.from.target_vcq, transfer.word.stadd,
              transfer.from.area + completion_offset(transfer.what.completion.word), sizeof(CompletionWord)))
        transfer.asks = false;
    if (transfer.asks)
        transfer.stage = Stage::asking;
}

/// As long as the completion word waits for this operation, no other process has the sender's VCQ or memory, so the
/// bytes read before are the sender's. Otherwise no sender waits for the completion word either.
void EagerGets::judge(Transfer& transfer) noexcept
{
    CompletionWord word;
    std::memcpy(&word, transfer.word.data, sizeof word);
    const bool waits =
        transfer.asked == UTOFU_SUCCESS && word == completion_word(transfer.what.completion.seq, completion_pending);
    if (transfer.asked == never_notified) // else each of its messages would be awaited for seconds, one after the other
        dead_senders_[next_dead_senders_++ % max_dead_senders] = {transfer.from, transfer.round};
    if (!waits || transfer.code == UTOFU_SUCCESS) {
        transfer.stage = waits ? Stage::here : Stage::lost;
        return;
    }
    if (put_completion(own_.vcq, transfer.from.target_vcq, transfer.from.area, transfer.what.completion,
                       fi_error_of(transfer.code)))
        transfer.stage = Stage::lost;
}

/// Posts a Get. False: no room now. An error counts as a Get that was posted and failed.
bool EagerGets::post(Transfer& transfer, utofu_vcq_id_t from, utofu_stadd_t to, utofu_stadd_t at,
                     std::size_t size) noexcept
{
    transfer.pending++; // the notice may come within the post
    const vcq::Post post =
        own_.vcq.get(from, to, at, size, {.level = vcq::CompletionLevel::delivered, .handler = &transfer});
    if (post == vcq::Post::done)
        return true;
    if (post == vcq::Post::error)
        on_notice(&transfer, {own_.vcq.last_error(), 0});
    else
        transfer.pending--;
    return post == vcq::Post::error;
}

void EagerGets::on_notice(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    auto& transfer = *static_cast<Transfer*>(handler);
    transfer.pending--;
    int& code = transfer.asks ? transfer.asked : transfer.code;
    if (code == UTOFU_SUCCESS)
        code = notice.code;
}

void EagerGets::release(const Message& message) noexcept
{
    if (Transfer* const transfer = find(message))
        release(*transfer);
}

void EagerGets::release(Transfer& transfer) noexcept
{
    own_.bounces.release(transfer.bytes);
    if (transfer.word.data != nullptr)
        own_.bounces.release(transfer.word);
    transfer.live = false;
    transfers_.release(&transfer);
}

} // namespace tofu::proto
