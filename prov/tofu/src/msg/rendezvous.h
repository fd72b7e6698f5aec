// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving side of a rendezvous: Gets from the sender's memory straight into the user's buffers, then the
// completion word by a CSWAP, which shows that the sender has waited until then and that the bytes are the sender's.
// Part of delivery, which is told of each end; calls vcq and the context's local registrations.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/uio.h>

#include "mem/local_buffer.h"
#include "msg/message.h"
#include "msg/port.h"
#include "tx/operation.h"
#include "tx/pending_queue.h"
#include "tx/tx_context.h"

namespace tofu::proto {

class Fetches;
class Delivery;

struct Fetch : vcq::Waiter, Deferred {
    Fetches* owner = nullptr;
    RecvRequest* receive = nullptr;
    Message message{};
    iovec into[max_segments] = {};
    void* desc[max_segments] = {};
    std::uint8_t into_count = 0;
    std::uint8_t ref_count = 0;
    Rails::Index rail = 0;
    bool live = false;             ///< it has not ended
    std::uint8_t from_index = 0;   ///< position of the next Get
    std::uint8_t into_index = 0;
    bool waiting = false;          ///< it waits for room
    bool ending = false;           ///< the CSWAP that writes the completion word is due or under way
    std::uint64_t from_offset = 0;
    std::uint64_t into_offset = 0;
    std::size_t to_fetch = 0;      ///< bytes for which no Get has been posted
    std::size_t length = 0;        ///< bytes in all
    std::uint32_t pending = 0;
    int err = 0;
    int prov_errno = 0;
    LocalRef refs[max_segments] = {};
};

class Fetches {
  public:
    Fetches(TxContext& tx, Port& port, Delivery& delivery) noexcept;
    Fetches(const Fetches&) = delete;
    Fetches& operator=(const Fetches&) = delete;
    ~Fetches();

    /// Makes a fetch. Null: too many are under way.
    [[nodiscard]] Fetch* make(const Message& message) noexcept;
    /// Starts a fetch whose source and destination are filled in; one with nothing to fetch only writes the completion
    /// word. The fetch may have ended, and be gone, when this returns.
    void start(Fetch& fetch) noexcept;
    [[nodiscard, gnu::always_inline]] bool waits() const noexcept { return !waiting_.empty(); }
    /// Lets the item go on in the next round, like a fetch that found no room.
    void put_off(Deferred& item) noexcept
    {
        waiting_.add(item);
        vcq_.set_busy();
    }
    /// Continues fetches that found no room, in order. Called once per round.
    void resume() noexcept;
    /// Ends all fetches with FI_ECANCELED. Called after the last notice.
    void cancel() noexcept;

  private:
    void advance(Fetch& fetch) noexcept;
    [[nodiscard]] bool get_piece(Fetch& fetch) noexcept;
    void finish(Fetch& fetch) noexcept;
    void finished(Fetch& fetch, const vcq::Notice& notice) noexcept;
    void end(Fetch& fetch, std::size_t length, int err, int prov_errno) noexcept;
    void wait(Fetch& fetch) noexcept;
    static void go_on(Deferred& fetch) noexcept;
    static void on_fetched(vcq::Waiter* waiter, const vcq::Notice& notice) noexcept;

    TxContext& tx_; ///< its VCQ posts the Gets, with its local registrations
    Port& port_;
    vcq::Vcq& vcq_;
    Delivery& delivery_;
    const std::size_t max_piece_; ///< bytes of one Get
    Pool<Fetch> pool_{4096};
    Agenda waiting_; ///< fetches that found no room
};

} // namespace tofu::proto
