// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See wire.h.
#include "msg/wire.h"

namespace tofu::proto {

// --- the header of a peer's area, and what an anonymous sender left in ours

HeaderCheck read_header(const AreaHeader& header, std::uint64_t nonce, std::uint32_t index) noexcept
{
    if (header.magic != area_magic || header.version != wire_version)
        return HeaderCheck::other_version;
    return header.nonce != nonce || header.index != index ? HeaderCheck::other_process : HeaderCheck::usable;
}

bool read_anonymous(const std::byte* end, std::uint64_t nonce, Envelope& envelope,
                    std::byte (&packet)[slot_size]) noexcept
{
    Control control;
    std::memcpy(&control, end - sizeof control, sizeof control);
    std::memcpy(&envelope, end - sizeof control - sizeof envelope, sizeof envelope);
    std::memset(packet, 0, sizeof envelope);
    std::memcpy(packet + sizeof envelope, end - slot_size, slot_size - sizeof envelope - sizeof control);
    std::memcpy(packet + slot_size - sizeof control, &control, sizeof control);
    const Type type = control.type;
    return (envelope.version_flags & 127) == wire_version && known_address(envelope).is_valid() &&
           envelope.target_nonce == nonce && envelope.index < max_endpoints &&
           (envelope.credit_index < credit_block_count || envelope.credit_index == no_credit_block) &&
           (type == Type::eager || type == Type::eager_by_get || type == Type::rts || type == Type::write_data ||
            type == Type::fence);
}

// --- packets: the only place where bytes of a message written by a peer get a meaning

namespace {

/// Takes fixed-size pieces off the end of a slot; false when it would pass the slot's start.
class Reader {
  public:
    explicit Reader(const std::byte* slot) noexcept : slot_(slot) {}
    template <class T>
    [[nodiscard]] bool read(T& out) noexcept
    {
        const std::byte* at = take_bytes(sizeof(T));
        if (at == nullptr)
            return false;
        std::memcpy(&out, at, sizeof(T));
        return true;
    }
    [[nodiscard]] const std::byte* take_bytes(std::size_t n) noexcept
    {
        n = (n + 7) & ~std::size_t{7};
        if (n > end_)
            return nullptr;
        end_ -= n;
        return slot_ + end_;
    }

  private:
    const std::byte* slot_;
    std::size_t end_ = slot_size - sizeof(Control);
};

} // namespace

bool decode(const std::byte* slot, Packet& p) noexcept
{
    std::memcpy(&p.control, slot + slot_size - sizeof(Control), sizeof(Control));
    p.type = p.control.type;
    const std::uint8_t flags = p.control.flags;
    if (flags & ~(flag_tag | flag_data | flag_ack | flag_match))
        return false;
    Reader r(slot);
    p.data = p.tag = 0;
    p.ack = {};
    p.body = nullptr;
    if ((flags & flag_data) && !r.read(p.data))
        return false;
    if ((flags & flag_tag) && !r.read(p.tag))
        return false;
    if (flags & flag_ack) {
        if (!r.read(p.ack) || p.ack.word >= completion_count)
            return false;
    }
    switch (p.type) {
    case Type::eager: p.body = r.take_bytes(p.control.length); return p.body != nullptr;
    case Type::long_eager: // its length is checked against the ring
        return true;
    case Type::rts:
    case Type::eager_by_get:
        if (p.control.length < 1 || p.control.length > max_segments || !(flags & flag_ack))
            return false;
        p.body = r.take_bytes(p.control.length * sizeof(Segment) + sizeof(Rts));
        return p.body != nullptr;
    case Type::write_data: p.body = r.take_bytes(8); return p.body != nullptr && (flags & flag_data);
    case Type::fence: return (flags & ~flag_match) == flag_ack && p.control.length == 0;
    case Type::release: // the rings' own
    case Type::none: return false;
    }
    return false; // a number that is no Type
}

} // namespace tofu::proto
