// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The layout of message areas, which endpoints write to each other: the area's geometry, header and credit blocks, its
// slots, and the packets in them. docs/wire-protocol.md specifies it; both change together with wire_version.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "av/address.h"

namespace tofu::proto {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian, as Tofu's CPUs are");

// --- the area

/// A slot is one cache line of the A64FX, so a packet crosses none. Nothing relies on lines being written as a whole
/// (guide 2.2.10): the receiver polls the last word, which strong order puts last (guide 6.1.3.1).
inline constexpr std::size_t slot_size = 256;
inline constexpr std::uint64_t area_magic = 0x6165726155664f54; // "TOfUarea"

/// The first bytes of an area. A peer Gets them if the slot counter is not what it expects, and to probe whether the
/// owner lives.
struct AreaHeader {
    std::uint64_t magic;
    std::uint16_t version;
    std::uint16_t index; ///< of the endpoint in its domain
    std::uint32_t none;
    std::uint64_t nonce; ///< of the address; distinguishes this endpoint from earlier ones with its VCQ ID and index
};
static_assert(sizeof(AreaHeader) == 24 && std::is_trivially_copyable_v<AreaHeader>);

/// Doorbells: fields of 2 bytes into which peers Put anything but 0, and which the owner reads as one word of 8 bytes
/// in each round. They replace notices, which would pile up at an owner that does not run.
inline constexpr std::uint64_t doorbells_offset = 64;
enum class Doorbell : std::uint8_t {
    anonymous = 0, ///< an anonymous packet has come
    status = 1     ///< a credit block has a new status, not only a new count
};
inline constexpr std::size_t doorbell_size = 2;
constexpr std::uint64_t doorbell_offset(Doorbell bell)
{
    return doorbells_offset + static_cast<unsigned>(bell) * doorbell_size;
}
/// Does the word say that the doorbell has been rung?
constexpr bool rung(std::uint64_t doorbells, Doorbell bell)
{
    return (doorbells >> (8 * doorbell_size * static_cast<unsigned>(bell)) & 0xffff) != 0;
}

enum class LeaseStatus : std::uint32_t {
    open = 0,
    granted = 1, ///< this ring is yours
    denied = 2,  ///< no ring is free: request again later
    revoked = 3, ///< other senders starve: release the ring. It may also be the first status of a ring
    closed = 4   ///< the answer to a release, and the last status of this ring
};

/// The words by which a receiver reports on the sender's ring. One per outgoing channel, in the sender's
/// area.
struct CreditBlock {
    std::uint64_t consumed; ///< slots taken out of the ring; a Grant until the first packet has been taken
    LeaseStatus status;
    std::uint32_t check; ///< the serial number under which the ring was asked for
};
static_assert(sizeof(CreditBlock) == 16);
/// One peer writes a block, and the thread that has the endpoint's lock reads it. Four blocks share a line of the
/// A64FX, which costs a round of the caches when two peers report at the same time; a stride of 256 bytes would cost
/// 192 KiB more.
inline constexpr std::size_t credit_stride = 64;

/// The end of a rendezvous or of an acknowledged message, in the sender's area: (seq << 32) | status. The
/// status is a positive FI_E* or 0, or completion_pending: the sender waits, and its memory may be read.
using CompletionWord = std::uint64_t;
inline constexpr std::uint32_t completion_pending = 0xffffffff;
constexpr CompletionWord completion_word(std::uint32_t seq, std::uint32_t status)
{
    return (std::uint64_t{seq} << 32) | status;
}

inline constexpr unsigned credit_block_count = 1024;
inline constexpr unsigned completion_count = 1024;
inline constexpr std::uint64_t credits_offset = 256;
inline constexpr std::uint64_t completions_offset = credits_offset + credit_block_count * credit_stride;
/// Slots for anonymous packets, of senders that have no ring here (rx_ring.h).
inline constexpr std::uint64_t anon_slots_offset = completions_offset + completion_count * sizeof(CompletionWord);
static_assert(anon_slots_offset % slot_size == 0);
inline constexpr unsigned max_anon_slots = 4096;

inline constexpr unsigned min_ring_slots = 16;
inline constexpr unsigned max_ring_slots = 4096;
inline constexpr unsigned max_ring_count = 65536;
/// No payload in a ring is longer, however large the peer says its rings are: the sender gathers it into one of its
/// blocks first (BouncePool::large_size), and Control::length has 16 bits.
inline constexpr std::uint32_t max_eager = 8192;

/// The longest payload that goes through a ring. Even a message of that length which skips the ring's end (see
/// long_slots) needs at most half of the ring, while up to a quarter may be unreported.
[[nodiscard]] constexpr std::uint32_t eager_limit_of(std::uint32_t ring_slots)
{
    constexpr auto limit = static_cast<std::uint32_t>(max_eager / slot_size);
    return (ring_slots / 4 < limit ? ring_slots / 4 : limit) * slot_size;
}

/// The offsets in an area that depend on the number and the size of its rings.
struct Geometry {
    std::uint32_t ring_count = 0;
    std::uint32_t ring_slots = 0;
    std::uint32_t anon_slot_count = 0;

    [[nodiscard]] constexpr bool valid() const
    {
        return ring_count >= 1 && ring_count <= max_ring_count && std::has_single_bit(ring_slots) &&
               ring_slots >= min_ring_slots && ring_slots <= max_ring_slots && anon_slot_count <= max_anon_slots;
    }
    [[nodiscard]] constexpr std::uint64_t rings() const
    {
        // 64 KiB pages of the hardware: no ring shares a page with words that others write often
        return (anon_slots_offset + std::uint64_t{anon_slot_count} * slot_size + 65535) & ~std::uint64_t{65535};
    }
    [[nodiscard]] constexpr std::uint64_t ring(unsigned n) const
    {
        return rings() + std::uint64_t{n} * ring_slots * slot_size;
    }
    [[nodiscard]] constexpr std::uint64_t size() const { return ring(ring_count); }
    /// The number of rings, 1 MiB, with which the area of endpoint `index` is registered at first, since registered
    /// memory is pinned. The other rings follow under the further STag, if the endpoint has one.
    [[nodiscard]] constexpr std::uint32_t first_rings(unsigned index) const
    {
        return index < growing_endpoints ? std::min(ring_count, max_ring_slots / ring_slots) : ring_count;
    }
    [[nodiscard]] constexpr std::uint32_t eager_limit() const { return eager_limit_of(ring_slots); }
    /// Slots taken out before the receiver reports them.
    [[nodiscard]] constexpr std::uint32_t report_after() const { return ring_slots / 4; }
};

/// The place of a ring that a receiver has granted, as a credit block holds it: {number of its first slot, in the area
/// or, with the highest bit set, in the memory under the further STag: 32 bits, number of its slots: 32}.
struct Grant {
    static constexpr std::uint32_t further = std::uint32_t{1} << 31;
    std::uint32_t first = 0;
    std::uint32_t slots = 0; ///< 0: the word was no possible grant

    [[nodiscard]] constexpr bool is_further() const { return (first & further) != 0; }
    /// Offset from the STADD of the area, or of the memory under the further STag.
    [[nodiscard]] constexpr std::uint64_t offset() const { return std::uint64_t{first & ~further} * slot_size; }
    [[nodiscard]] constexpr std::uint64_t word() const { return std::uint64_t{slots} << 32 | first; }
};
/// The grant of ring `n` of endpoint `index`.
[[nodiscard]] constexpr Grant grant_of(const Geometry& geometry, unsigned index, std::uint32_t n)
{
    const std::uint32_t first = geometry.first_rings(index);
    const std::uint64_t at = n < first ? geometry.ring(n) : geometry.ring(n) - geometry.ring(first);
    return {static_cast<std::uint32_t>(at / slot_size) | (n < first ? 0 : Grant::further), geometry.ring_slots};
}
/// Reads a grant that the endpoint with that index has made.
[[nodiscard]] constexpr Grant read_grant(std::uint64_t word, unsigned index)
{
    const Grant grant{static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
    const bool possible = std::has_single_bit(grant.slots) && grant.slots >= min_ring_slots &&
                          grant.slots <= max_ring_slots &&
                          (grant.is_further() ? index < growing_endpoints : grant.offset() >= anon_slots_offset);
    return possible ? grant : Grant{};
}

/// What the header of an area, read by a Get, says to a sender that means the endpoint with this nonce and index.
enum class HeaderCheck : std::uint8_t {
    usable,
    other_version,
    other_process ///< its VCQ ID, or its index, belongs to another endpoint by now
};
[[nodiscard]] HeaderCheck read_header(const AreaHeader& header, std::uint64_t nonce, std::uint32_t index) noexcept;

/// How many slots the receiver has taken: what it `reported` in its credit block, unless that is less than what we knew
/// `before` or more than we have `sent`.
[[nodiscard]] constexpr std::uint32_t clamp_reported(std::uint32_t reported, std::uint32_t sent, std::uint32_t before)
{
    return sent - reported <= sent - before ? reported : before;
}

constexpr std::uint64_t credit_offset(unsigned n)
{
    return credits_offset + n * credit_stride;
}
constexpr std::uint64_t completion_offset(unsigned n)
{
    return completions_offset + n * sizeof(CompletionWord);
}

// --- packets

/// The sequence numbers of an area's rings begin here, so that a packet for an earlier endpoint with the same VCQ ID
/// and STag is not accepted as one of this endpoint. It is a multiple of every ring_slots, so that slot indices do not
/// depend on it, and less than 2^31, so that number 0, which an unused slot holds, comes only when all slots have been
/// used.
constexpr std::uint32_t seq_base(std::uint64_t nonce)
{
    return static_cast<std::uint32_t>((nonce * 0x9e3779b97f4a7c15) >> 33) & ~(max_ring_slots - 1);
}

/// The slot counter, at which a sender without a ring takes an anonymous slot: {the next slot: 24 bits, the end of the
/// slots on offer: 16, check: 24}. A sender that adds slot_counter_step has the slot that was next, if it is before the
/// end; else there is none.
inline constexpr std::uint64_t slot_counter_offset = 128;
inline constexpr std::uint64_t slot_counter_step = std::uint64_t{1} << 40;
constexpr std::uint32_t slot_counter_next(std::uint64_t word)
{
    return static_cast<std::uint32_t>(word >> 40);
}
constexpr std::uint32_t slot_counter_end(std::uint64_t word)
{
    return word >> 24 & 0xffff;
}
/// The check: the wire version (5 bits), and 19 bits that follow from the endpoint's nonce.
constexpr std::uint32_t slot_counter_check(std::uint64_t nonce)
{
    return (wire_version & 31u) << 19 | seq_base(nonce) >> 12;
}
constexpr bool slot_counter_version_ok(std::uint64_t word)
{
    return (word >> 19 & 31) == (wire_version & 31);
}
constexpr bool slot_counter_is_of(std::uint64_t word, std::uint64_t nonce)
{
    return (word & 0xffffff) == slot_counter_check(nonce);
}
constexpr std::uint64_t slot_counter_word(std::uint64_t nonce, std::uint32_t next, std::uint32_t end)
{
    return std::uint64_t{next} << 40 | std::uint64_t{end} << 24 | slot_counter_check(nonce);
}
/// The sequence number of all anonymous packets: that of the first packet of a ring, so that an anonymous slot
/// can be read as a ring.
constexpr std::uint32_t anon_seq(std::uint64_t word)
{
    return static_cast<std::uint32_t>(word & 0x7ffff) * 4096 + 1;
}
static_assert(max_ring_slots == 4096);

/// The types of packets. The rings use none and release, the protocol above uses the others.
enum class Type : std::uint8_t {
    none = 0,         ///< in an anonymous slot: the sender had no use for it
    eager = 2,        ///< the payload stands in the slot
    long_eager = 3,   ///< the payload stands in the slots behind
    rts = 4,          ///< rendezvous: the receiver fetches the payload
    write_data = 5,   ///< remote CQ data of an RMA write: no receive is consumed
    release = 6,      ///< the last packet of a sender: the ring is free again
    fence = 7,        ///< write the completion word when everything before has been taken; with flag_match, matched
    eager_by_get = 8, ///< anonymous, longer than its slot: as eager, but the payload stands in the sender's memory
};

/// Control::length of a release: is LeaseStatus::closed waited for?
enum class Release : std::uint16_t {
    for_good = 0, ///< no: the area it would be written to is about to go
    of_ring = 1   ///< yes: only the ring is released
};

/// The last 8 bytes of a packet and of its slot, written last; the receiver polls `seq`.
struct Control {
    Type type;
    std::uint8_t flags;
    std::uint16_t length; ///< eager, long_eager: bytes of payload; rts, eager_by_get: segments; release: a Release
    std::uint32_t seq;    ///< number of this slot's use: counts slots, from seq_base + 1
};
static_assert(sizeof(Control) == 8 && max_eager <= UINT16_MAX);

/// Describes the sender, in the packet of an anonymous sender; stands directly before the control word.
struct Envelope {
    std::uint64_t target_vcq;   ///< the sender's target VCQ
    std::uint64_t nonce;        ///< the sender's
    std::uint64_t target_nonce; ///< of the endpoint that the packet is meant for
    std::uint8_t version_flags; ///< wire_version, and in the top bit the flag of the address below
    std::uint8_t further;       ///< from the address that peers know: the sender's, or its scalable endpoint's
    std::uint8_t index;         ///< of the sending endpoint, which has the area
    std::uint8_t identity;      ///< the index in the address that peers know
    std::uint16_t credit_index; ///< credit block for the answer, if the packet requests a ring; else no_credit_block
    std::uint16_t serial;       ///< to be echoed in CreditBlock::check
};
static_assert(sizeof(Envelope) == 32 && wire_version < 128 && address_counts_events == 1);
constexpr std::uint8_t envelope_version_flags(const EndpointAddress& known) noexcept
{
    return static_cast<std::uint8_t>(known.flags << 7 | wire_version);
}
/// The address by which peers know the sender. It is sound if read_anonymous() has read the envelope.
constexpr EndpointAddress known_address(const Envelope& who) noexcept
{
    return make_address(who.target_vcq, who.nonce, who.identity, who.further, who.version_flags >> 7);
}
inline constexpr std::uint16_t no_credit_block = 0xffff;
/// The distance of Envelope::credit_index from the end of the slot.
inline constexpr std::size_t credit_index_before_end =
    sizeof(Control) + sizeof(Envelope) - offsetof(Envelope, credit_index);

/// Reads an anonymous slot, which ends at `end`, as a slot of a ring: `packet` gets a copy without the envelope, which
/// no peer can change. False: it is no packet for the endpoint with `nonce`.
[[nodiscard]] bool read_anonymous(const std::byte* end, std::uint64_t nonce, Envelope& envelope,
                                  std::byte (&packet)[slot_size]) noexcept;

/// Builds a packet that ends at `end` (of a slot, or of its image), from its end to its start: control, envelope, data,
/// tag, ack, body.
class PacketWriter {
  public:
    explicit PacketWriter(std::byte* end) noexcept : end_(end) {}

    void put64(std::uint64_t v) noexcept { put(v); }
    template <class T>
    void put(const T& body) noexcept
    {
        static_assert(sizeof(T) % 8 == 0 && std::is_trivially_copyable_v<T>);
        size_ += sizeof(T);
        std::memcpy(end_ - size_, &body, sizeof(T));
    }
    /// Room for `n` bytes of payload, starting at a multiple of 8.
    [[nodiscard]] std::byte* reserve(std::size_t n) noexcept
    {
        size_ += (n + 7) & ~std::size_t{7};
        return end_ - size_;
    }
    /// Writes the control word; called first.
    void control(Type type, std::uint8_t flags, std::size_t length, std::uint32_t seq) noexcept
    {
        put(Control{type, flags, static_cast<std::uint16_t>(length), seq});
    }
    [[nodiscard]] const std::byte* data() const noexcept { return end_ - size_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

  private:
    std::byte* end_;
    std::size_t size_ = 0;
};

/// The slots of a long eager message whose header is slot use number `seq` .
struct LongSlots {
    std::uint32_t first; ///< slot index of the payload
    std::uint32_t count; ///< payload slots
    std::uint32_t total; ///< with the header and those skipped at the ring's end
};
constexpr LongSlots long_slots(std::uint32_t seq, std::uint32_t length, std::uint32_t ring_slots)
{
    std::uint32_t header = (seq - 1) & (ring_slots - 1);
    auto count = static_cast<std::uint32_t>((length + slot_size - 1) / slot_size);
    std::uint32_t first = header + 1;
    std::uint32_t skip = 0;
    if (first + count > ring_slots) { // the payload is contiguous: start again at slot 0
        skip = ring_slots - first;
        first = 0;
    }
    return {first & (ring_slots - 1), count, 1 + skip + count};
}

// --- what stands in the slots of a ring: messages, answers that are asked for, data of RMA writes. The words and
// tables are in docs/wire-protocol.md.

inline constexpr std::uint8_t flag_tag = 1;   ///< a tagged message; the tag is in the packet
inline constexpr std::uint8_t flag_data = 2;  ///< remote CQ data is in the packet
inline constexpr std::uint8_t flag_ack = 4;   ///< an Ack is in the packet: write the completion word when taken
inline constexpr std::uint8_t flag_match = 8; ///< with flag_ack: only when matched (FI_MATCH_COMPLETE)

struct Ack {
    std::uint32_t word; ///< index of the completion word
    std::uint32_t seq;
    bool operator==(const Ack&) const noexcept = default;
};
static_assert(sizeof(Ack) == 8);

/// A piece of the payload of a rendezvous in the sender's memory.
struct Segment {
    std::uint64_t stadd;
    std::uint64_t length;
};
inline constexpr unsigned max_segments = 4;

/// Body of an RTS or of an eager-by-get message, before its segments.
struct Rts {
    std::uint64_t vcq; ///< the STADDs belong to it
};

/// Bytes of a packet before its payload is added.
constexpr std::size_t overhead(std::uint8_t flags)
{
    return sizeof(Control) + ((flags & flag_tag) ? 8 : 0) + ((flags & flag_data) ? 8 : 0) +
           ((flags & flag_ack) ? sizeof(Ack) : 0);
}
constexpr std::size_t inline_room(std::uint8_t flags)
{
    return slot_size - overhead(flags);
}

/// A packet as read out of a slot, its lengths checked against the slot.
struct Packet {
    Control control;
    Type type = Type::none;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    Ack ack{};
    const std::byte* body = nullptr; ///< eager: payload; others: their structures
};

/// False for bytes that are no packet of a message. `slot` is read as it lies in the area: its owner never writes it
/// while the receiver has not reported it, but a hostile one might, so that everything is copied or bounded.
[[nodiscard]] bool decode(const std::byte* slot, Packet& packet) noexcept;

} // namespace tofu::proto
