// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Payloads of messages that came as visits and stand in blocks of their senders (Type::far_eager): they are fetched
// before the message is looked at, so that it is matched and reported in its order, as one that stands in its slot. Until
// then the visit stays where it is, and with it what its sender has sent behind it. Owned by the receiver, which asks
// again and again; calls vcq.
#pragma once

#include <cstddef>
#include <cstdint>

#include "area/packet.h"
#include "local/bounce.h"
#include "ring/port.h"
#include "transfer/request.h"

namespace tofu::proto {

/// Where such a payload is, and who waits for FIN.
struct FarPayload {
    utofu_vcq_id_t home = 0; ///< the sender's,
    utofu_stadd_t area = 0;  ///< and its area
    Ack fin{};
    std::uint64_t vcq = 0;   ///< the segments belong to it
    unsigned count = 0;
    std::size_t length = 0;  ///< of all segments, at most max_eager
    Segment segments[max_segments] = {};
};

class FarPayloads {
  public:
    explicit FarPayloads(Port& port) noexcept : port_(port) {}

    enum class Stage : std::uint8_t {
        getting, ///< -> asking: the Gets of the segments have ended
        asking,  ///< -> here; -> lost: the sender does not wait any more, or the bytes can't be read
        here,    ///< until release()
        lost     ///< never: the packet counts for nothing
    };
    /// How far it is; begun, if it is new. `round` grows with each time that all visits are offered. Of one that is here
    /// `bytes` is told.
    [[nodiscard]] Stage look(const FarPayload& payload, std::uint32_t round, const std::byte*& bytes) noexcept;
    /// The message has been taken.
    void release(const FarPayload& payload) noexcept;

  private:
    struct Far : vcq::Waiter {
        FarPayload what{};
        Stage stage = Stage::getting;
        bool live = false;
        std::uint32_t round = 0; ///< in which it was last asked for
        unsigned next = 0;       ///< segment
        unsigned pending = 0;
        bool asks = false;       ///< Gets are those of the FIN word
        int code = UTOFU_SUCCESS, asked = UTOFU_SUCCESS;
        std::size_t offset = 0;
        Bounce bytes{};
        Bounce word{};
    };
    [[nodiscard]] Far* find(const FarPayload& payload) noexcept;
    [[nodiscard]] Far* make(const FarPayload& payload, std::uint32_t round) noexcept;
    void get(Far& far) noexcept;
    void judge(Far& far) noexcept;
    [[nodiscard]] bool post(Far& far, utofu_vcq_id_t from, utofu_stadd_t to, utofu_stadd_t at, std::size_t size) noexcept;
    void release(Far& far) noexcept;
    static void on_notice(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    static constexpr unsigned at_once = 8; ///< the blocks that senders leave (PacketBuffers)

    Port& port_;
    Pool<Far> fars_{at_once};
};

} // namespace tofu::proto
