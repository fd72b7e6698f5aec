// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See eager_by_get.h.
#include "msg/eager_by_get.h"

#include <cstring>

#include "core/log.h"
#include "msg/message.h"

namespace tofu::proto {

EagerGets::Transfer* EagerGets::find(const EagerPayload& payload) noexcept
{
    Transfer* found = nullptr;
    transfers_.each([&](Transfer& f) {
        if (f.live && f.what.home == payload.home && f.what.area == payload.area &&
            f.what.fin.fin == payload.fin.fin && f.what.fin.seq == payload.fin.seq &&
            f.what.length == payload.length)
            found = &f;
    });
    return found;
}

/// Takes a place for a new payload. Null: there is no room now.
EagerGets::Transfer* EagerGets::make(const EagerPayload& payload, std::uint32_t round) noexcept
{
    // A payload that was not asked for in a whole round has lost its anonymous packet: a peer wrote to a slot that was
    // filled already.
    transfers_.each([&](Transfer& f) {
        if (f.live && f.pending == 0 && round - f.round > 1)
            release(f);
    });
    const Bounce bytes = port_.bounces.alloc(payload.length);
    Transfer* const transfer = bytes.data != nullptr ? transfers_.alloc() : nullptr;
    if (transfer == nullptr) {
        if (bytes.data != nullptr)
            port_.bounces.release(bytes);
        return nullptr;
    }
    *transfer = Transfer{{on_notice}};
    transfer->what = payload;
    transfer->live = true;
    transfer->bytes = bytes;
    return transfer;
}

EagerGets::Stage EagerGets::look(const EagerPayload& payload, std::uint32_t round, const std::byte*& bytes) noexcept
{
    Transfer* transfer = find(payload);
    if (transfer == nullptr && (transfer = make(payload, round)) == nullptr)
        return Stage::getting;
    transfer->round = round;
    if (transfer->stage == Stage::getting)
        get(*transfer);
    if (transfer->stage == Stage::asking && transfer->pending == 0)
        judge(*transfer);
    const Stage stage = transfer->stage;
    bytes = transfer->bytes.data;
    if (stage == Stage::lost)
        release(*transfer);
    return stage;
}

/// Posts as many Gets as there is room for. When all bytes are here it reads the sender's completion word.
void EagerGets::get(Transfer& transfer) noexcept
{
    for (; transfer.next < transfer.what.count && transfer.code == UTOFU_SUCCESS; transfer.next++) {
        const Segment& from = transfer.what.segments[transfer.next];
        if (!post(transfer, transfer.what.vcq, transfer.bytes.stadd + transfer.offset, from.stadd, from.length))
            return;
        transfer.offset += from.length;
    }
    if (transfer.pending != 0)
        return;
    if (transfer.word.data == nullptr)
        transfer.word = port_.bounces.alloc(sizeof(CompletionWord));
    transfer.asks = transfer.word.data != nullptr;
    if (transfer.asks && !post(transfer, transfer.what.home, transfer.word.stadd, transfer.what.area + completion_offset(transfer.what.fin.fin), sizeof(CompletionWord)))
        transfer.asks = false;
    if (transfer.asks)
        transfer.stage = Stage::asking;
}

/// As long as the completion word waits for this operation, no other process has the sender's VCQ or memory, so the
/// bytes read before are the sender's. Otherwise nobody waits for the completion word either.
void EagerGets::judge(Transfer& transfer) noexcept
{
    CompletionWord word;
    std::memcpy(&word, transfer.word.data, sizeof word);
    const bool waits = transfer.asked == UTOFU_SUCCESS && word == completion_word(transfer.what.fin.seq, completion_pending);
    if (!waits || transfer.code == UTOFU_SUCCESS) {
        transfer.stage = waits ? Stage::here : Stage::lost;
        return;
    }
    if (put_completion(port_.self.vcq, transfer.what.home, transfer.what.area, transfer.what.fin, fi_error_of(transfer.code)))
        transfer.stage = Stage::lost;
}

/// Posts a Get. False: no room now. An error counts as a Get that was posted and failed.
bool EagerGets::post(Transfer& transfer, utofu_vcq_id_t from, utofu_stadd_t to, utofu_stadd_t at, std::size_t size) noexcept
{
    transfer.pending++; // the notice may come within the post
    const vcq::Post post = port_.self.vcq.get(from, to, at, size, {.when = vcq::When::delivered, .waiter = &transfer});
    if (post == vcq::Post::done)
        return true;
    if (post == vcq::Post::error)
        on_notice(&transfer, {port_.self.vcq.last_error(), 0});
    else
        transfer.pending--;
    return post == vcq::Post::error;
}

void EagerGets::on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& transfer = *static_cast<Transfer*>(waiter);
    transfer.pending--;
    int& code = transfer.asks ? transfer.asked : transfer.code;
    if (code == UTOFU_SUCCESS)
        code = notice.code;
}

void EagerGets::release(const EagerPayload& payload) noexcept
{
    if (Transfer* const transfer = find(payload))
        release(*transfer);
}

void EagerGets::release(Transfer& transfer) noexcept
{
    port_.bounces.release(transfer.bytes);
    if (transfer.word.data != nullptr)
        port_.bounces.release(transfer.word);
    transfer.live = false;
    transfers_.release(&transfer);
}

} // namespace tofu::proto
