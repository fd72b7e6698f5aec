// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only access to peers' memory. The order of communications to a peer with several VCQs (VcqOrder); the keys of
// peers' regions as targets of communications (Target, KeyReader, RemoteKeys); and the object that rma and atomic use,
// one each, for all their communications (RemoteSide, PeerMemory, RemoteMemory). Under the context's lock.
#pragma once

#include <atomic>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fi_errno.h>
#include <utofu.h>

#include "av/peer_table.h"
#include "core/containers.h"
#include "mem/mr_directory.h"
#include "tx/event_credits.h"
#include "tx/operation.h"
#include "utofu/vcq.h"

namespace tofu {

// --- VcqOrder: keeps the order of communications to a peer whose regions are reached by several VCQs, its target VCQ
// and overflow VCQs. Also orders reads behind writes, where that was promised: with strong order a Get waits for
// earlier Gets and a Put for earlier Puts (guide 2.2.10), but a Get may read before an earlier Put has written. rma and
// atomic have one each.
//
// uTofu keeps order from one VCQ to one VCQ (guide 2.2.10). When the VCQ of the peer changes from one communication to
// the next, a fence goes to the former: an ARMW that changes nothing, in strong order, so that its notice comes when
// all before it have taken effect, and after their notices. Until then nothing goes to that peer. Endpoints that never
// met an overflow VCQ skip all this.

class VcqOrder {
  public:
    explicit VcqOrder(vcq::Vcq& vcq) noexcept : vcq_(vcq) {}
    VcqOrder(const VcqOrder&) = delete;
    VcqOrder& operator=(const VcqOrder&) = delete;

    /// An overflow VCQ of a peer has been met: from now on ordered communications have to pass().
    void begin() noexcept { begun_ = true; }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

    /// Orders reads behind writes, from the first operation on.
    void order_reads() noexcept { begun_ = reads_ordered_ = true; }

    /// May a communication with the peer at `target_vcq` go to `vcq`, that VCQ or an overflow VCQ of its domain, now?
    /// False: try again after a poll. `reads`: a Get.
    [[nodiscard]] bool pass(utofu_vcq_id_t target_vcq, utofu_vcq_id_t vcq, bool reads = false) noexcept
    {
        if (!begun_ || (target_vcq == last_target_vcq_ && last_->vcq == vcq && !last_->fenced)) [[likely]]
            return true;
        return pass_peer(target_vcq, vcq, reads);
    }

  private:
    /// The last communication to a peer.
    struct Route : vcq::CompletionHandler {
        utofu_vcq_id_t vcq; ///< it went to this VCQ; 0: it has taken effect
        bool fenced;        ///< the fence is under way
        bool wrote;         ///< one of the communications was no Get
    };
    [[nodiscard, gnu::noinline]] bool pass_peer(utofu_vcq_id_t target_vcq, utofu_vcq_id_t vcq, bool reads) noexcept;
    static void on_fence(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;

    vcq::Vcq& vcq_;
    bool begun_ = false;
    bool reads_ordered_ = false;
    utofu_vcq_id_t last_target_vcq_ = 0; ///< of the peer that passed last; 0: none, or it has to be asked each time
    const Route* last_ = nullptr;
    Map<utofu_vcq_id_t, Route> routes_; ///< by target VCQ: of peers with overflow VCQs, or of all
};

// --- RemoteKeys: turns a key of fi_mr and a remote address into the target of a communication: a VCQ and a steering
// address of the peer. Remote addressing is one addition: STADD of the target = STADD offset + remote address, where
// STADD offset comes from the key. A key of ours (FI_MR_PROV_KEY) *is* the STADD offset: STADD minus base address with
// FI_MR_VIRT_ADDR, the STADD itself with offsets. A key of the user's choice, and one of ours for a region that the
// target VCQ does not reach, is looked up in the directory of the peer's regions (mem/mr_directory.h) by one-sided Get,
// and remembered.

/// The target of a communication.
struct Target {
    utofu_vcq_id_t vcq;
    utofu_stadd_t stadd;
};

/// The domain for which keys are cached.
struct KeyReader {
    utofu_vcq_id_t target_vcq; ///< its target VCQ
    std::byte* area;           ///< its directory memory, in which peers revoke keys (directory::epochs_offset)
};

/// The keys of peers that one context knows; used under its lock. A key of the provider's choice is resolved by an
/// addition; other keys are read from the peer's directory by a Get from the context's VCQ and remembered in a bounded
/// table. Before the first key of a peer is cached, the reader is entered into the peer's table of readers
/// (mem/mr_directory.h); a key that the peer has revoked since is looked up anew.
class RemoteKeys {
  public:
    RemoteKeys(vcq::Vcq& vcq, bool provider_keys, const KeyReader& reader) noexcept;
    ~RemoteKeys();

    /// Finds [address, address + length) of the peer, at its target VCQ or at an overflow VCQ, for an access with
    /// FI_REMOTE_READ and/or FI_REMOTE_WRITE. 0; -FI_EAGAIN while a lookup is under way (nothing has happened; try
    /// again after progress); -FI_ENOMEM; or an error for the operation's entry: -FI_EKEYREJECTED no such key,
    /// -FI_EACCES not allowed, -FI_EINVAL outside the region.
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address, std::size_t length,
                              std::uint64_t access, Target& target) noexcept
    {
        if (!by_directory(key)) [[likely]] {
            target = by_stadd_offset(peer, key, address);
            return 0;
        }
        return resolve_by_directory(peer, key, address, length, access, target);
    }
    /// An access at this target VCQ has failed in a way that a closed region or a replaced domain can explain
    /// (doubts_target()): this domain reads all keys of that domain again, and enters itself there again.
    void suspect(utofu_vcq_id_t target_vcq) noexcept;
    /// A call of the application begins. A reader that is not in a peer's table uses no answer of an earlier call.
    void begin_call() noexcept { calls_++; }
    /// True if a lookup has been begun anew in this call, since its failure was that of an earlier call.
    [[nodiscard]] bool asks_again() const noexcept { return relookup_call_ == calls_; }
    /// True if this reader is not in the peer's table of readers.
    [[nodiscard]] bool looks_up_each_call(const Peer& peer) const noexcept;
    /// True if all keys have to be looked up, because the user chose them.
    [[nodiscard]] bool by_directory() const noexcept { return !provider_keys_; }
    /// True if this key has to be looked up, because the user chose it or it is one of ours that is no STADD offset.
    [[nodiscard]] bool by_directory(std::uint64_t key) const noexcept
    {
        return !provider_keys_ || directory::is_indirect(key);
    }
    /// The target VCQ of the peer that has this VCQ, its target VCQ or an overflow VCQ that has been met.
    [[nodiscard]] utofu_vcq_id_t target_vcq_of(utofu_vcq_id_t vcq) noexcept;
    /// The target for a key that is a STADD offset.
    static Target by_stadd_offset(const Peer& peer, std::uint64_t key, std::uint64_t address) noexcept
    {
        return {peer.target_vcq, key + address};
    }

  private:
    /// The name of a region, or of an overflow VCQ by its number. The nonce distinguishes a peer from an earlier one
    /// with its VCQ ID.
    struct KeyId {
        std::uint64_t target_vcq = 0; ///< the peer's
        std::uint64_t nonce = 0;
        std::uint64_t key = 0;
        auto operator<=>(const KeyId&) const = default;
    };
    struct Lookup;
    struct Known;
    [[nodiscard]] int resolve_by_directory(const Peer& peer, std::uint64_t key, std::uint64_t address,
                                           std::size_t length, std::uint64_t access, Target& target) noexcept;
    [[nodiscard]] int find_key(const KeyId& name) noexcept;
    [[nodiscard]] int begin(Lookup& lookup) noexcept;
    [[nodiscard]] bool answers_this_call(const Lookup& failed) const noexcept;
    [[nodiscard]] Lookup* free_lookup(int& error) noexcept;
    [[nodiscard]] int read_directory(Lookup& lookup, utofu_vcq_id_t vcq, std::size_t offset, std::size_t size) noexcept;
    [[nodiscard]] int post_read(Lookup& lookup, utofu_stadd_t stadd, std::size_t size) noexcept;
    [[nodiscard]] int post(Lookup& lookup) noexcept;
    [[nodiscard]] int read_first_bucket(Lookup& lookup) noexcept;
    [[nodiscard]] int register_reader(Lookup& lookup) noexcept;
    [[nodiscard]] int on_registered(Lookup& lookup, bool listed) noexcept;
    static void on_answer(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept;
    [[nodiscard]] int next_step(Lookup& lookup, std::uint64_t value) noexcept;
    [[nodiscard]] int read_bucket(Lookup& lookup) noexcept;
    [[nodiscard]] int learn(Lookup& lookup) noexcept;
    [[nodiscard]] bool remember(const Known& known) noexcept;
    [[nodiscard]] Known* group_of(const KeyId& name) noexcept;
    [[nodiscard]] Known* find(const KeyId& name) noexcept;
    [[nodiscard]] const Known* recall(const KeyId& name) noexcept;
    [[nodiscard]] std::atomic_ref<std::uint64_t> epoch(utofu_vcq_id_t target_vcq) const noexcept
    {
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(reader_.area + directory::epoch_offset(target_vcq)));
    }
    /// Acquire: partner of the ARMW of KeyReaders::post. The entry is read, or the region reached, after it.
    [[nodiscard]] std::uint32_t epoch_of(utofu_vcq_id_t target_vcq) const noexcept
    {
        return static_cast<std::uint32_t>(epoch(target_vcq).load(std::memory_order_acquire));
    }

    vcq::Vcq& vcq_;
    bool provider_keys_;
    KeyReader reader_;
    std::unique_ptr<Known[]> known_; ///< in groups; grows to max_known
    std::size_t known_size_ = 0;
    std::size_t known_count_ = 0;
    unsigned evicted_ = 0;
    Array<std::unique_ptr<Lookup>> lookups_;
    /// VCQs of peers by their numbers; each has been checked to be the peer's. Number 0: the target VCQ, once this
    /// reader is in its table, or `not_listed`.
    Map<KeyId, utofu_vcq_id_t> known_vcqs_;
    static constexpr utofu_vcq_id_t not_listed = 0;
    std::uint32_t calls_ = 0;
    std::uint32_t relookup_call_ = ~0u; ///< the call that has begun a failed lookup anew
};

// --- RemoteMemory: the only access to peers' memory. It turns an address and a key of a call into the target of a
// communication, and says whether the communication may go there now. rma and atomic have one each and reach remote
// memory only through it, on their fast paths too. Under the context's lock. A fast path carries out an operation as
// one communication. What a fast path must not do is decided here, in one place: an operation that must not go there
// now takes the slow path, which does it or says why not.

/// True for errors with which a call is refused, and nothing has happened. Other errors of resolve() end the operation.
constexpr bool refuses_call(int ret) noexcept
{
    return ret == -FI_EAGAIN || ret == -FI_ENOMEM;
}

/// The remote side of an operation: pieces of one peer's memory, as the call names them and as targets; and the RMA
/// event that the operation causes at a peer that counts events.
struct RemoteSide {
    struct Piece {
        Target at;
        std::size_t length;
        std::uint64_t key;
        std::uint64_t address; ///< as the application gave it; `at` follows from it and the key
    };
    static constexpr std::size_t most = 8;

    /// Adds a piece, unless it is empty.
    void add(std::uint64_t address, std::size_t length, std::uint64_t key) noexcept
    {
        if (length != 0)
            target[targets++] = {{}, length, key, address};
    }

    Peer peer{};
    std::uint64_t access = 0;         ///< the access that the regions must allow
    std::uint8_t align = 1;           ///< required alignment of each piece
    CreditAccount* account = nullptr; ///< has paid for the events; null: no event, or not paid for
    std::uint8_t paid = 0;            ///< events that are paid for and not posted
    bool event_posted = false;        ///< the communication that causes the event is posted and has not failed
    std::uint8_t targets = 0;         ///< entries of target[]
    Piece target[most];

    // An event names one region. Each further one that the operation reads or writes gets one of its own, at the end.
    std::uint8_t further_reads = 0; ///< pieces at such regions that have not been notified, a bit each
    std::uint8_t further_writes = 0;
    /// The event names the region of the piece `carrier`; finds a piece of each other one.
    void find_further(unsigned carrier, bool reads, bool writes) noexcept
    {
        unsigned further = 0;
        for (unsigned i = 0; i < targets; i++) {
            bool known = target[i].key == target[carrier].key;
            for (unsigned before = 0; before < i && !known; before++)
                known = target[before].key == target[i].key;
            further |= (known ? 0u : 1u) << i;
        }
        further_reads = static_cast<std::uint8_t>(reads ? further : 0);
        further_writes = static_cast<std::uint8_t>(writes ? further : 0);
    }
    [[nodiscard]] bool has_further() const noexcept { return (further_reads | further_writes) != 0; }
    [[nodiscard]] unsigned events() const noexcept
    {
        return 1u + static_cast<unsigned>(std::popcount(further_reads) + std::popcount(further_writes));
    }
    /// The communication that causes the event has been posted.
    void event_left() noexcept
    {
        event_posted = true;
        paid--;
    }
    /// It has ended like this.
    void event_ended(int utofu_code) noexcept
    {
        if (event_posted && left_no_event(utofu_code)) {
            event_posted = false;
            paid++;
        }
    }
    /// Takes back what was paid for events that were not posted.
    void refund() noexcept
    {
        if (account != nullptr)
            account->refund(paid);
        account = nullptr;
        paid = 0;
    }
};

/// Result of RemoteMemory::resolve(): a piece is not aligned.
inline constexpr int misaligned = 1;

/// The keys of peers that a context knows, and its credits for events at peers. The engines of the context share both.
struct PeerMemory {
    PeerMemory(vcq::Vcq& vcq, bool provider_keys, const KeyReader& reader) noexcept
        : keys(vcq, provider_keys, reader), credits(vcq)
    {
    }
    /// The event for a further region has failed at this VCQ.
    void event_failed(utofu_vcq_id_t vcq) noexcept { credits.failed(keys.target_vcq_of(vcq)); }
    RemoteKeys keys;
    EventCredits credits;
};

class RemoteMemory {
  public:
    RemoteMemory(vcq::Vcq& vcq, const Peers& peers, PeerMemory& memory) noexcept
        : peers_(peers), at_once_(!memory.keys.by_directory()), keys_(memory.keys), credits_(memory.credits),
          vcq_order_(vcq)
    {
    }
    /// From now on reads are ordered behind writes. This shuts the fast paths, which do not look at earlier operations.
    void order_reads() noexcept
    {
        vcq_order_.order_reads();
        at_once_ = false;
    }

    /// Are the fast paths open that need no lookup of keys? Once an overflow VCQ has been met they stay shut.
    [[nodiscard]] bool at_once() const noexcept { return at_once_; }
    /// The peer, and the target for `address`. Null: shut for this peer (it counts events, which have to be paid for)
    /// or for this key (it has to be looked up).
    [[nodiscard, gnu::always_inline]] const Peer* resolve_at_once(fi_addr_t to, std::uint64_t key,
                                                                  std::uint64_t address, Target& target) const noexcept
    {
        return at_once_ ? resolve_open(to, key, address, target) : nullptr;
    }
    /// The same where at_once() holds.
    [[nodiscard, gnu::always_inline]] const Peer* resolve_open(fi_addr_t to, std::uint64_t key, std::uint64_t address,
                                                               Target& target) const noexcept
    {
        const Peer* const peer = peers_.find(to);
        if (peer == nullptr || peer->counts_events || directory::is_indirect(key)) [[unlikely]]
            return nullptr;
        target = RemoteKeys::by_stadd_offset(*peer, key, address);
        return peer;
    }
    /// The same where keys are looked up; null also where this key is not known yet.
    [[nodiscard]] const Peer* resolve_known(fi_addr_t to, std::uint64_t key, std::uint64_t address, std::size_t length,
                                            std::uint64_t access, Target& target) noexcept
    {
        const Peer* const peer = peers_.find(to);
        keys_.begin_call();
        return peer != nullptr && !peer->counts_events && resolve(*peer, key, address, length, access, target) == 0
                   ? peer
                   : nullptr;
    }

    /// Finds the targets of all pieces, for every long way. As RemoteKeys::resolve(), or `misaligned`.
    [[nodiscard]] int resolve(RemoteSide& side) noexcept
    {
        int ret = 0;
        for (unsigned i = 0; i < side.targets && ret == 0; i++) {
            RemoteSide::Piece& piece = side.target[i];
            ret = resolve(side.peer, piece.key, piece.address, piece.length, side.access, piece.at);
            if (ret == 0 && (piece.at.stadd & (side.align - 1u)) != 0) [[unlikely]]
                ret = misaligned;
        }
        return ret;
    }
    /// resolve() for a new call; calls `progress` for some rounds as long as a lookup is under way. -FI_EAGAIN: the
    /// application has to repeat the call. `progress` returns false where no progress can be made.
    template <class Progress>
    [[nodiscard]] int resolve_now(RemoteSide& side, Progress&& progress) noexcept
    {
        // Enough to get the answer now, where a repeated call would look the key up again.
        constexpr unsigned until_answered = 1u << 16;
        keys_.begin_call();
        int ret = resolve(side);
        if (ret != -FI_EAGAIN) [[likely]]
            return ret;
        const unsigned most = keys_.looks_up_each_call(side.peer) ? until_answered : rounds_of_a_call;
        for (unsigned n = 0; n < (keys_.asks_again() ? until_answered : most) && progress(); n++) {
            ret = resolve(side);
            if (ret != -FI_EAGAIN)
                break;
        }
        return ret;
    }
    /// Pays for the events of an operation at a peer that counts events. As EventCredits::spend().
    [[nodiscard]] int spend(RemoteSide& side, int& prov_errno) noexcept
    {
        const int ret = credits_.spend(side.peer, side.events(), side.account, prov_errno);
        if (ret == 0)
            side.paid = static_cast<std::uint8_t>(side.events());
        return ret;
    }
    /// Notifies the further regions of an operation that has taken effect. busy: continue later. Nothing waits for
    /// these events: where one fails its region has been closed since.
    [[nodiscard]] vcq::Post notify_further(RemoteSide& side) noexcept
    {
        constexpr vcq::UnsignaledArgs how{vcq::Unsignaled::event, vcq::flags_of(false, true)};
        for (std::uint8_t* left : {&side.further_reads, &side.further_writes})
            for (; *left != 0; *left &= static_cast<std::uint8_t>(*left - 1)) {
                const Target at = side.target[std::countr_zero(*left)].at;
                const vcq::Post posted = credits_.post_event(at.vcq, at.stadd, left == &side.further_reads, how);
                if (posted == vcq::Post::busy)
                    return posted;
                side.paid -= posted == vcq::Post::done;
            }
        return vcq::Post::done;
    }
    /// Posts the event of an operation without bytes, at a region or, where it names none, at the peer's own word.
    template <class Args>
    [[nodiscard]] vcq::Post post_empty(const RemoteSide& side, bool read, const Args& how) noexcept
    {
        return credits_.post_event(side.target[0].at.vcq, side.target[0].at.stadd, read, how);
    }
    /// Makes target[0] of an operation without bytes a byte of the region that the call names, if it names one: at the
    /// address or, behind the last byte, before it. 0, -FI_EINVAL: no such region; or a refusal of the call.
    template <class Progress>
    [[nodiscard]] int find_empty(RemoteSide& side, std::uint64_t address, std::uint64_t key,
                                 Progress&& progress) noexcept
    {
        int ret = -FI_EINVAL;
        for (std::uint64_t at : {address, address - 1}) {
            side.targets = 1;
            side.target[0] = {{}, 1, key, at};
            ret = resolve_now(side, progress);
            side.targets = 0;
            if (ret != -FI_EINVAL)
                break;
        }
        return ret == 0 || refuses_call(ret) ? ret : -FI_EINVAL;
    }
    /// Makes target[0] of an operation without bytes the peer's word for events that belong to no region. False: it
    /// cannot be reached.
    [[nodiscard]] bool find_event_word(RemoteSide& side) noexcept
    {
        utofu_stadd_t area = 0;
        const bool there = credits_.query_directory(side.peer.target_vcq, area);
        side.target[0].at = {side.peer.target_vcq, area + directory::event_offset};
        return there;
    }
    /// spend() for a new call; calls `progress` for some rounds as long as there are no credits.
    template <class Progress>
    [[nodiscard]] int spend_now(RemoteSide& side, int& prov_errno, Progress&& progress) noexcept
    {
        int ret = spend(side, prov_errno);
        for (unsigned polls = rounds_of_a_call; ret == -FI_EAGAIN && polls != 0 && progress(); polls--)
            ret = spend(side, prov_errno);
        return ret;
    }
    /// A communication with the peer at `target_vcq` has ended with this code. As RemoteKeys::suspect().
    void ended(utofu_vcq_id_t target_vcq, int utofu_code) noexcept
    {
        if (doubts_target(utofu_code)) [[unlikely]]
            keys_.suspect(target_vcq);
    }

    /// True if communications have to ask may_go_to(): some peer is reached by several VCQs.
    [[nodiscard]] bool is_ordering() const noexcept { return vcq_order_.begun(); }
    /// May a communication of an ordered operation with the peer at `target_vcq` go to `vcq` now? False: try again
    /// after a poll. As VcqOrder::pass().
    [[nodiscard]] bool may_go_to(utofu_vcq_id_t target_vcq, utofu_vcq_id_t vcq, bool reads = false) noexcept
    {
        return vcq_order_.pass(target_vcq, vcq, reads);
    }

  private:
    [[nodiscard]] int resolve(const Peer& peer, std::uint64_t key, std::uint64_t address, std::size_t length,
                              std::uint64_t access, Target& target) noexcept
    {
        const int ret = keys_.resolve(peer, key, address, length, access, target);
        if (ret == 0 && target.vcq != peer.target_vcq) [[unlikely]]
            note_overflow_vcq();
        return ret;
    }
    [[gnu::noinline, gnu::cold]] void note_overflow_vcq() noexcept
    {
        vcq_order_.begin();
        at_once_ = false;
    }

    const Peers& peers_;
    bool at_once_;
    RemoteKeys& keys_;
    EventCredits& credits_;
    VcqOrder vcq_order_; ///< orders the engine's communications to peers with overflow VCQs
};

} // namespace tofu
