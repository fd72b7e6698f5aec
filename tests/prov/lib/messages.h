// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The message protocol of one endpoint (msg/message_engine) over a network inside the process: the test plays the peer,
// which reads and writes message areas. The domain is made up; nothing of an endpoint is there but its two contexts.
// Included by the tests of send and message.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "cq/cq.h"
#include "cq/domain_base.h"
#include "msg/message_engine.h"
#include "prov/lib/fake_domain.h"
#include "prov/lib/fake_net.h"
#include "tx/tx_context.h"

namespace tofu::proto {

using fake::Net;

inline constexpr std::uint64_t own_nonce = fake::domain_nonce, peer_nonce = 0x5555666677778888;
inline constexpr utofu_vcq_id_t peer_home = 77;
inline constexpr unsigned own_index = 3, peer_index = 5;
inline constexpr std::uint32_t ring_slots = 16;
inline constexpr Geometry geometry{1, ring_slots, 1024};
inline constexpr std::uint64_t source_at = 0x80000; ///< the peer's memory for a rendezvous

struct Messages : testing::Test, fake::OverNet {
    Messages()
    {
        setenv("FI_TOFU_RINGS", "1", 1);
        setenv("FI_TOFU_RING_SLOTS", "16", 1);
        Net::reset(1);
        net().prompt = true;
        net().memory.resize(source_at + 65536);
        domain.emplace();
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_TAGGED;
        EXPECT_EQ(CompletionQueue::open(&*domain, &attr, &cq, nullptr), 0);
        peers.emplace(*domain);
        EndpointAddress address{};
        address.magic = address_magic;
        address.version = wire_version;
        address.target_vcq = peer_home;
        address.nonce = peer_nonce;
        address.index = peer_index;
        EXPECT_EQ(peers->insert(address, to), 0);
        peers->changed();
        EXPECT_EQ(vcq.open(domain->backend, 0, false, {}), 0);
        fi_tx_attr tx_attr{};
        tx_attr.size = 4;
        tx.emplace();
        tx->set_up({&*domain, tx_attr, FI_TAGGED | FI_MSG | FI_SOURCE | FI_DIRECTED_RECV, &domain->shared_lock(), round,
                    this});
        EXPECT_EQ(tx->post_from(vcq), 0);
        tx->use(&*peers);
        tx->set_number(own_index, make_address(domain->target_vcq_id(), own_nonce, own_index));
        tx->reports().binding.cq = &CompletionQueue::of(cq);
        rx.binding.cq = &CompletionQueue::of(cq);
        messages.emplace(*tx, rx);
        EXPECT_EQ(messages->open(), 0);
        tx->engines().add(Engine::messages, messages->sender());
        unsetenv("FI_TOFU_RINGS");
        unsetenv("FI_TOFU_RING_SLOTS");
        put(0, AreaHeader{area_magic, wire_version, peer_index, 0, peer_nonce});
        open_gate();
        own_ = static_cast<std::byte*>(net().registered.back().first);
    }
    ~Messages() override
    {
        messages->release_all();
        vcq.drain();
        messages->receiver().cancel_rendezvous();
        messages->receiver().part_from_queue();
        (void)messages->close_area();
        messages.reset();
        tx->detach();
        tx.reset();
        vcq.close();
        rx.binding.cq = nullptr;
        EXPECT_EQ(fi_close(&cq->fid), 0);
        peers.reset();
        domain.reset();
    }
    static bool round(void* self) noexcept
    {
        auto& m = *static_cast<Messages*>(self);
        const bool some = m.vcq.poll() != 0;
        if (!m.tx->pending().empty())
            m.tx->pending().resume();
        m.messages->progress();
        return some;
    }
    void run(unsigned rounds = 70)
    {
        while (rounds-- > 0)
            round(this);
    }
    /// The next entry, as text: "sent", "5 bytes", "error N", or "nothing".
    std::string entry()
    {
        fi_cq_tagged_entry e{};
        const ssize_t n = fi_cq_read(cq, &e, 1);
        if (n == 1)
            return (e.flags & FI_SEND) ? "sent" : std::to_string(e.len) + " bytes";
        fi_cq_err_entry error{};
        if (n == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
            return "error " + std::to_string(error.err);
        return "nothing";
    }

    // --- we send
    ssize_t send(const void* data, std::size_t length, std::uint64_t flags = 0)
    {
        const iovec iov{const_cast<void*>(data), length};
        SendCall call{.iov = &iov, .count = 1, .length = length, .dest = to, .tag = 7, .flags = flags};
        call.packet_flags = flag_tag;
        return messages->sender().send(call);
    }
    /// Anonymous packets until a ring is asked for, which the peer grants.
    void win_ring()
    {
        Envelope said{};
        said.credit_index = no_credit_block;
        for (unsigned n = 0; said.credit_index == no_credit_block; n++) {
            ASSERT_LT(n, 20u);
            open_gate();
            ASSERT_EQ(send("visit", 5), 0);
            EXPECT_EQ(entry(), "sent");
            said = get<Envelope>(anon_slots_offset + slot_size - sizeof(Control) - sizeof said);
        }
        serial = said.serial;
        tell(Grant{static_cast<std::uint32_t>(geometry.ring(0) / slot_size), ring_slots}.word(), LeaseStatus::granted);
        word(doorbells_offset).store(~0ull);
        run(2);
    }
    /// What the peer finds in its ring as packet number `n`, from 1 on.
    bool found(unsigned n, Packet& packet)
    {
        return decode(reinterpret_cast<std::byte*>(net().memory.data() + geometry.ring(0) +
                                                   ((n - 1) % ring_slots) * slot_size),
                      packet) &&
               packet.control.seq == seq_base(peer_nonce) + n;
    }
    std::atomic_ref<std::uint64_t> word(std::uint64_t offset)
    {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(own_ + offset));
    }
    void complete(const Ack& ack, std::uint32_t status)
    {
        word(completion_offset(ack.word)).store(completion_word(ack.seq, status));
    }
    void tell(std::uint64_t consumed, LeaseStatus status)
    {
        word(credit_offset(0)).store(consumed);
        word(credit_offset(0) + offsetof(CreditBlock, status))
            .store(std::uint64_t{serial} << 32 | static_cast<std::uint32_t>(status));
    }
    /// The peer has taken so many slots.
    void credit(std::uint32_t slots) { tell(seq_base(peer_nonce) + slots, LeaseStatus::open); }

    // --- we receive
    /// The peer has a ring of ours.
    void greet()
    {
        come(
            Type::fence, flag_ack, 0,
            [](PacketWriter& w) {
                w.put(Ack{1000, 1});
            },
            2);
        run(1);
        EXPECT_EQ(get<CreditBlock>(credit_offset(2)).status, LeaseStatus::granted);
        EXPECT_EQ(answered({1000, 1}), completion_word(1, 0));
    }
    /// Number `n`, from 1 on.
    template <class Body>
    void write(std::uint32_t n, Type type, std::uint8_t flags, std::size_t length, Body&& body)
    {
        alignas(8) std::byte image[slot_size];
        PacketWriter w(image + slot_size);
        w.control(type, flags, length, seq_base(own_nonce) + n);
        body(w);
        std::byte* const end = own_ + geometry.ring(0) + ((n - 1) % ring_slots + 1) * slot_size;
        std::memcpy(end - w.size(), w.data(), w.size());
    }
    void arrive(std::uint32_t n, std::uint64_t tag, const std::string& text)
    {
        write(n, Type::eager, flag_tag, text.size(), [&](PacketWriter& w) {
            w.put64(tag);
            std::memcpy(w.reserve(text.size()), text.data(), text.size());
        });
    }
    /// An RTS of the peer, whose completion word waits, unless it is no word.
    void offer(std::uint32_t n, std::uint64_t tag, const Ack& ack, std::vector<Segment> segments)
    {
        if (ack.word < completion_count)
            put(completion_offset(ack.word), completion_word(ack.seq, completion_pending));
        write(n, Type::rts, flag_tag | flag_ack, segments.size(), [&](PacketWriter& w) {
            w.put64(tag);
            w.put(ack);
            for (std::size_t i = segments.size(); i-- > 0;)
                w.put(segments[i]);
            w.put(Rts{peer_home});
        });
    }
    void offer_untagged(std::uint32_t n, const Ack& ack, const Segment& segment)
    {
        put(completion_offset(ack.word), completion_word(ack.seq, completion_pending));
        write(n, Type::rts, flag_ack, 1, [&](PacketWriter& w) {
            w.put(ack);
            w.put(segment);
            w.put(Rts{peer_home});
        });
    }
    // --- without a ring
    void open_gate() { put(slot_counter_offset, slot_counter_word(peer_nonce, 0, geometry.anon_slot_count)); }
    /// What the peer finds in slot `n` of its anonymous senders'.
    bool got_anonymous(unsigned n, Packet& packet)
    {
        Envelope envelope;
        return read_anonymous(
                   reinterpret_cast<std::byte*>(net().memory.data() + anon_slots_offset + (n + 1) * slot_size),
                   peer_nonce, envelope, anonymous_) &&
               envelope.nonce == own_nonce && decode(anonymous_, packet);
    }
    /// An anonymous packet to us; it asks for a ring if there is a credit block to tell.
    template <class Body>
    void come(Type type, std::uint8_t flags, std::size_t length, Body&& body, std::uint16_t tell = no_credit_block)
    {
        const std::uint64_t taken = word(slot_counter_offset).fetch_add(slot_counter_step);
        alignas(8) std::byte image[slot_size];
        PacketWriter w(image + slot_size);
        w.control(type, flags, length, anon_seq(taken));
        w.put(Envelope{peer_home, peer_nonce, own_nonce, wire_version, 0, peer_index, peer_index, tell, 9});
        body(w);
        std::memcpy(own_ + anon_slots_offset + (slot_counter_next(taken) + 1) * slot_size - w.size(), w.data(),
                    w.size());
        word(doorbells_offset).store(~0ull);
    }

    /// A message that the peer keeps for us, under number `word` of its completion words, which says that it `waits`.
    void arrive_by_get(std::uint64_t tag, std::uint32_t word, std::initializer_list<Segment> segments,
                       bool waits = true)
    {
        put(completion_offset(word), completion_word(8, waits ? completion_pending : 0));
        come(Type::eager_by_get, flag_tag | flag_ack, segments.size(), [&](PacketWriter& w) {
            w.put64(tag);
            w.put(Ack{word, 8});
            for (std::size_t i = segments.size(); i-- > 0;)
                w.put(segments.begin()[i]);
            w.put(Rts{peer_home});
        });
    }
    void come_at_once(std::uint64_t tag)
    {
        come(Type::eager, flag_tag, 8, [&](PacketWriter& w) {
            w.put64(tag);
            w.put64(0);
        });
    }

    ssize_t receive(std::uint64_t tag, std::uint64_t flags = 0, std::size_t room = sizeof buffer)
    {
        const iovec iov{buffer, room};
        return messages->receiver().queue().recv(
            {.iov = &iov, .count = 1, .source = to, .tag = tag, .flags = flags, .context = this, .tagged = true});
    }
    /// Untagged, FI_MULTI_RECV, into the first `room` bytes of the buffer.
    ssize_t receive_many(std::size_t room)
    {
        const iovec iov{buffer, room};
        return messages->receiver().queue().recv(
            {.iov = &iov, .count = 1, .source = to, .flags = FI_MULTI_RECV, .context = this});
    }
    CompletionWord answered(const Ack& ack) { return get<CompletionWord>(completion_offset(ack.word)); }

    std::optional<fake::Domain> domain;
    vcq::Vcq vcq;
    std::optional<Peers> peers;
    std::optional<TxContext> tx;
    RxContext rx;
    std::optional<MessageEngine> messages;
    fid_cq* cq = nullptr;
    fi_addr_t to = 0;
    std::byte* own_ = nullptr; ///< our area
    std::uint16_t serial = 0;  ///< under which our ring was granted
    alignas(8) std::byte anonymous_[slot_size] = {};
    char buffer[8192] = {};
};

} // namespace tofu::proto
