// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See eager_by_get.h.
#include "msg/eager_by_get.h"

#include <cstring>

#include "core/log.h"
#include "msg/message.h"

namespace tofu::proto {

FarPayloads::Far* FarPayloads::find(const FarPayload& payload) noexcept
{
    Far* found = nullptr;
    fars_.each([&](Far& f) {
        if (f.live && f.what.home == payload.home && f.what.area == payload.area &&
            f.what.fin.fin == payload.fin.fin && f.what.fin.seq == payload.fin.seq &&
            f.what.length == payload.length)
            found = &f;
    });
    return found;
}

/// Takes a place for a new payload. Null: there is no room now.
FarPayloads::Far* FarPayloads::make(const FarPayload& payload, std::uint32_t round) noexcept
{
    // A payload that was not asked for in a whole round has lost its anonymous packet: a peer wrote to a slot that was
    // filled already.
    fars_.each([&](Far& f) {
        if (f.live && f.pending == 0 && round - f.round > 1)
            release(f);
    });
    const Bounce bytes = port_.bounces.alloc(payload.length);
    Far* const far = bytes.data != nullptr ? fars_.alloc() : nullptr;
    if (far == nullptr) {
        if (bytes.data != nullptr)
            port_.bounces.release(bytes);
        return nullptr;
    }
    *far = Far{{on_notice}};
    far->what = payload;
    far->live = true;
    far->bytes = bytes;
    return far;
}

FarPayloads::Stage FarPayloads::look(const FarPayload& payload, std::uint32_t round, const std::byte*& bytes) noexcept
{
    Far* far = find(payload);
    if (far == nullptr && (far = make(payload, round)) == nullptr)
        return Stage::getting;
    far->round = round;
    if (far->stage == Stage::getting)
        get(*far);
    if (far->stage == Stage::asking && far->pending == 0)
        judge(*far);
    const Stage stage = far->stage;
    bytes = far->bytes.data;
    if (stage == Stage::lost)
        release(*far);
    return stage;
}

/// Posts as many Gets as there is room for. When all bytes are here it reads the sender's completion word.
void FarPayloads::get(Far& far) noexcept
{
    for (; far.next < far.what.count && far.code == UTOFU_SUCCESS; far.next++) {
        const Segment& from = far.what.segments[far.next];
        if (!post(far, far.what.vcq, far.bytes.stadd + far.offset, from.stadd, from.length))
            return;
        far.offset += from.length;
    }
    if (far.pending != 0)
        return;
    if (far.word.data == nullptr)
        far.word = port_.bounces.alloc(sizeof(CompletionWord));
    far.asks = far.word.data != nullptr;
    if (far.asks && !post(far, far.what.home, far.word.stadd, far.what.area + completion_offset(far.what.fin.fin), sizeof(CompletionWord)))
        far.asks = false;
    if (far.asks)
        far.stage = Stage::asking;
}

/// As long as the completion word waits for this operation, no other process has the sender's VCQ or memory, so the
/// bytes read before are the sender's. Otherwise nobody waits for the completion word either.
void FarPayloads::judge(Far& far) noexcept
{
    CompletionWord word;
    std::memcpy(&word, far.word.data, sizeof word);
    const bool waits = far.asked == UTOFU_SUCCESS && word == completion_word(far.what.fin.seq, completion_pending);
    if (!waits || far.code == UTOFU_SUCCESS) {
        far.stage = waits ? Stage::here : Stage::lost;
        return;
    }
    if (put_completion(port_.self.vcq, far.what.home, far.what.area, far.what.fin, fi_error_of(far.code)))
        far.stage = Stage::lost;
}

/// Posts a Get. False: no room now. An error counts as a Get that was posted and failed.
bool FarPayloads::post(Far& far, utofu_vcq_id_t from, utofu_stadd_t to, utofu_stadd_t at, std::size_t size) noexcept
{
    far.pending++; // the notice may come within the post
    const vcq::Post post = port_.self.vcq.get(from, to, at, size, {.when = vcq::When::delivered, .waiter = &far});
    if (post == vcq::Post::done)
        return true;
    if (post == vcq::Post::error)
        on_notice(&far, {port_.self.vcq.last_error(), 0});
    else
        far.pending--;
    return post == vcq::Post::error;
}

void FarPayloads::on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept
{
    auto& far = *static_cast<Far*>(waiter);
    far.pending--;
    int& code = far.asks ? far.asked : far.code;
    if (code == UTOFU_SUCCESS)
        code = notice.code;
}

void FarPayloads::release(const FarPayload& payload) noexcept
{
    if (Far* const far = find(payload))
        release(*far);
}

void FarPayloads::release(Far& far) noexcept
{
    port_.bounces.release(far.bytes);
    if (far.word.data != nullptr)
        port_.bounces.release(far.word);
    far.live = false;
    fars_.release(&far);
}

} // namespace tofu::proto
