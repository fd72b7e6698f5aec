// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A rendezvous whose bytes are moved by both sides: the receiver Gets, the sender Puts, chunk by chunk, each
// the next that nobody has taken. Data of share.cc; the words are in docs/wire-protocol.md.
//
// Worth it where a post is carried out by the processor that makes it: two copy faster than one. An offer need
// not be taken, and a sender that does not look round is not waited for unless it has taken a chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/bounce.h"
#include "ring/wire.h"
#include "vcq/vcq.h"

namespace tofu::proto {

struct Fetch;
struct SendRequest;

/// What a receiver Puts where an RTS has offered help: 32 bytes at a multiple of 64.
struct Invitation {
    std::uint64_t vcq;    ///< of the receiver; to it belong
    std::uint64_t into;   ///< STADD of the first byte, and
    std::uint64_t claims; ///< STADD of the claim word; the report word stands behind it
    std::uint64_t what;   ///< of invitation_word()
};
static_assert(sizeof(Invitation) == 32 && sizeof(Invitation) <= 64);

/// Bytes to be moved, 1 to 2^40, and who is meant.
constexpr std::uint64_t invitation_word(const Ack& ack, std::uint64_t length)
{
    return (std::uint64_t{ack.seq & 0xffffff} << 40) | (length - 1);
}
/// How many chunks are taken, by either side. Tells messages apart: a late compare-and-swap for an earlier one
/// changes nothing.
constexpr std::uint64_t claim_word(const Ack& ack, std::uint32_t taken)
{
    return (std::uint64_t{ack.seq} << 32) | (std::uint64_t{ack.fin & 0xff} << 24) | taken;
}
constexpr std::uint32_t taken_of(std::uint64_t claims) { return claims & 0xffffff; }
/// The sender has moved so many chunks and will move no more.
constexpr std::uint64_t report_word(const Ack& ack, std::uint32_t chunks, bool failed)
{
    return (std::uint64_t{ack.seq} << 32) | (std::uint64_t{failed} << 31) | chunks;
}

/// Both sides cut alike: an eighth of it, 16 to 256 KiB.
constexpr std::uint64_t chunk_of(std::uint64_t length)
{
    const std::uint64_t eighth = (length / 8 + 4095) & ~std::uint64_t{4095};
    return eighth < 16384 ? 16384 : eighth > 262144 ? 262144 : eighth;
}
constexpr std::uint32_t chunks_of(std::uint64_t length)
{
    return static_cast<std::uint32_t>((length + chunk_of(length) - 1) / chunk_of(length));
}

/// Registered blocks of 64 bytes that peers write to. They stay registered until the endpoint goes: what comes
/// late meets a block of the same kind and does not fit its words.
class ShareBlocks {
  public:
    static constexpr std::uint16_t none = 0xffff;

    explicit ShareBlocks(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    ShareBlocks(const ShareBlocks&) = delete;
    ShareBlocks& operator=(const ShareBlocks&) = delete;
    ~ShareBlocks();

    [[nodiscard]] std::uint16_t alloc() noexcept;
    void release(std::uint16_t block) noexcept { free_.push_back(block); }
    [[nodiscard]] std::uint64_t* words(std::uint16_t block) const noexcept
    {
        return memory_ + std::size_t{block} * (block_size / 8);
    }
    [[nodiscard]] utofu_stadd_t stadd(std::uint16_t block) const noexcept
    {
        return stadd_ + std::size_t{block} * block_size;
    }

  private:
    static constexpr std::size_t block_size = 64;
    static constexpr unsigned count = 128;
    [[gnu::noinline]] bool make() noexcept;

    vcq::Vcq& vcq_;
    std::uint64_t* memory_ = nullptr;
    utofu_stadd_t stadd_ = 0;
    std::vector<std::uint16_t> free_;
};

/// The sender's part: of a SendRequest.
struct Help : vcq::Waiter {
    enum class Step : std::uint8_t {
        none,    ///< nothing was offered, or all is over
        offered, ///< -> claim: an invitation has come
        claim,   ///< CSWAP due or under way: -> put; -> report: all are taken, some by us; -> none: none by us
        put,     ///< a Put due or under way: -> claim; -> report: it failed
        report   ///< a Put of the report due or under way: -> none
    };
    SendRequest* request = nullptr;
    Step step = Step::none;
    bool flying = false; ///< the post of this step is under way
    bool failed = false;
    bool ending = false; ///< the request ends with the following when nothing is under way any more
    std::uint16_t block = ShareBlocks::none;
    std::uint32_t taken = 0; ///< chunks, by both, as far as we know
    std::uint32_t ours = 0;
    int end_err = 0;
    int end_prov_errno = 0;
    std::uint64_t length = 0;
    const std::byte* from = nullptr;
    Invitation to{};

    [[nodiscard]] bool busy() const noexcept { return step != Step::none && step != Step::offered; }
};

/// The receiver's part: of a Fetch.
struct Share : vcq::Waiter {
    struct Life : vcq::Waiter {
        Fetch* fetch = nullptr;
    };
    Fetch* fetch = nullptr;
    Life life{};
    Bounce scratch{};      ///< where a sign of life is read to; null: none is awaited
    bool on = false;
    bool open = false;     ///< chunks may be left
    bool flying = false;   ///< a CSWAP is under way
    bool get_due = false;  ///< of the chunk before `taken`
    bool awaiting = false; ///< in the list of those that wait for the sender's report
    bool doubted = false;  ///< no sign of life when last asked for
    std::uint16_t block = ShareBlocks::none;
    std::uint32_t taken = 0;
    std::uint32_t ours = 0;
    std::uint32_t theirs = 0; ///< known when no longer open
    std::uint32_t next = 0;   ///< chunk of the Get that is due
};

} // namespace tofu::proto
