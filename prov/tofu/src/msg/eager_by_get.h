// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Payloads of messages that came as anonymous packets and stand in blocks of their senders (Type::eager_by_get). The
// payload is fetched before the message is matched, so that the message is matched and reported in order, like one
// whose payload stands in its slot. Until then the anonymous packet stays in its slot, and so do later anonymous
// packets of its sender. Owned by the receiver, which asks again in each round; calls vcq.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mem/bounce_pool.h"
#include "msg/packet.h"
#include "msg/port.h"
#include "tx/operation.h"

namespace tofu::proto {

/// Where such a payload is, and the completion word that its sender waits for.
struct EagerPayload {
    utofu_vcq_id_t home = 0; ///< the sender's home VCQ
    utofu_stadd_t area = 0;  ///< the sender's area
    Ack fin{};
    std::uint64_t vcq = 0;   ///< the segments belong to it
    unsigned count = 0;
    std::size_t length = 0;  ///< of all segments, at most max_eager
    Segment segments[max_segments] = {};
};

class EagerGets {
  public:
    explicit EagerGets(Port& port) noexcept : port_(port) {}

    enum class Stage : std::uint8_t {
        getting, ///< -> asking: the Gets of the segments have ended
        asking,  ///< reads the completion word. -> here; -> lost: the sender no longer waits, or the bytes can't be read
        here,    ///< the payload is here, until release()
        lost     ///< the payload never comes; the packet is ignored
    };
    /// Begins to fetch a payload that is new, and returns how far it is. `round`: number of the round in which all
    /// anonymous packets are offered. Sets `bytes` for a payload that is here.
    [[nodiscard]] Stage look(const EagerPayload& payload, std::uint32_t round, const std::byte*& bytes) noexcept;
    /// The message has been taken.
    void release(const EagerPayload& payload) noexcept;

  private:
    struct Transfer : vcq::Waiter {
        EagerPayload what{};
        Stage stage = Stage::getting;
        bool live = false;
        std::uint32_t round = 0; ///< the round in which it was last asked for
        unsigned next = 0;       ///< the segment that is fetched next
        unsigned pending = 0;
        bool asks = false;       ///< the Get under way is that of the completion word
        int code = UTOFU_SUCCESS, asked = UTOFU_SUCCESS;
        std::size_t offset = 0;
        Bounce bytes{};
        Bounce word{};
    };
    [[nodiscard]] Transfer* find(const EagerPayload& payload) noexcept;
    [[nodiscard]] Transfer* make(const EagerPayload& payload, std::uint32_t round) noexcept;
    void get(Transfer& transfer) noexcept;
    void judge(Transfer& transfer) noexcept;
    [[nodiscard]] bool post(Transfer& transfer, utofu_vcq_id_t from, utofu_stadd_t to, utofu_stadd_t at, std::size_t size) noexcept;
    void release(Transfer& transfer) noexcept;
    static void on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    static constexpr unsigned at_once = 8; ///< payloads; as many blocks as senders leave free (PacketBuffers)

    Port& port_;
    Pool<Transfer> transfers_{at_once};
};

} // namespace tofu::proto
