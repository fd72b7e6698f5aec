// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The message protocol of one endpoint (message/messenger) over a network inside the process: the test plays the peer,
// which reads and writes message areas. Rings that are full, packets that can't be, peers that answer with errors or not
// at all. The domain is made up; nothing of an endpoint is there but its two contexts.
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include "context/rx_context.h"
#include "context/own_tx_context.h"
#include "memory/region.h"
#include "message/messenger.h"
#include "send/short.h"
#include "progress/domain_base.h"
#include "prov/lib/fake_domain.h"
#include "prov/lib/fake_net.h"
#include "provider/limits.h"
#include "queue/cq.h"

namespace tofu::proto {
namespace {

using fake::Net;

constexpr std::uint64_t own_nonce = fake::domain_nonce, peer_nonce = 0x5555666677778888;
constexpr utofu_vcq_id_t peer_home = 77;
constexpr unsigned own_index = 3, peer_index = 5;
constexpr std::uint32_t ring_slots = 16;
constexpr Geometry geometry{1, ring_slots, 1024};
constexpr std::uint64_t source_at = 0x80000; ///< the peer's memory for a rendezvous

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
        address.home = peer_home;
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
        tx->set_number(own_index, own_index);
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
        messages->leave();
        vcq.drain();
        messages->part_from_queue();
        messages->close_area();
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
    /// Visits until a ring is asked for, which the peer grants.
    void win_ring()
    {
        Envelope said{};
        said.return_index = no_return;
        for (unsigned n = 0; said.return_index == no_return; n++) {
            ASSERT_LT(n, 20u);
            open_gate();
            ASSERT_EQ(send("visit", 5), 0);
            EXPECT_EQ(entry(), "sent");
            said = get<Envelope>(visits_offset + slot_size - sizeof(Control) - sizeof said);
        }
        serial = said.serial;
        tell(Grant{static_cast<std::uint32_t>(geometry.ring(0) / slot_size), ring_slots}.word(), ReturnStatus::granted);
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
    void fin(const Ack& ack, std::uint32_t status) { word(fin_offset(ack.fin)).store(fin_word(ack.seq, status)); }
    void tell(std::uint64_t consumed, ReturnStatus status)
    {
        word(return_offset(0)).store(consumed);
        word(return_offset(0) + offsetof(ReturnBlock, status))
            .store(std::uint64_t{serial} << 32 | static_cast<std::uint32_t>(status));
    }
    /// The peer has taken so many slots.
    void credit(std::uint32_t slots) { tell(seq_base(peer_nonce) + slots, ReturnStatus::open); }

    // --- we receive
    /// The peer has a ring of ours.
    void greet()
    {
        come(Type::fence, flag_ack, 0, [](PacketWriter& w) { w.put(Ack{1000, 1}); }, 2);
        run(1);
        EXPECT_EQ(get<ReturnBlock>(return_offset(2)).status, static_cast<std::uint32_t>(ReturnStatus::granted));
        EXPECT_EQ(answered({1000, 1}), fin_word(1, 0));
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
    void offer(std::uint32_t n, std::uint64_t tag, const Ack& ack, std::vector<Segment> segments)
    {
        write(n, Type::rts, flag_tag | flag_ack, segments.size(), [&](PacketWriter& w) {
            w.put64(tag);
            w.put(ack);
            for (std::size_t i = segments.size(); i-- > 0;)
                w.put(segments[i]);
            w.put(Rts{peer_home});
        });
    }
    // --- without a ring
    void open_gate() { put(gate_offset, gate_word(peer_nonce, 0, geometry.visit_slots)); }
    /// What the peer finds in slot `n` of its visitors'.
    bool visited(unsigned n, Packet& packet)
    {
        Envelope envelope;
        return read_visit(reinterpret_cast<std::byte*>(net().memory.data() + visits_offset + (n + 1) * slot_size),
                          peer_nonce, envelope, visit_) &&
               envelope.nonce == own_nonce && decode(visit_, packet);
    }
    /// A visit to us; it asks for a ring if there is a return block to tell.
    template <class Body>
    void come(Type type, std::uint8_t flags, std::size_t length, Body&& body, std::uint16_t tell = no_return)
    {
        const std::uint64_t taken = word(gate_offset).fetch_add(gate_step);
        alignas(8) std::byte image[slot_size];
        PacketWriter w(image + slot_size);
        w.control(type, flags, length, visit_seq(taken));
        w.put(Envelope{peer_home, peer_nonce, own_nonce, wire_version, peer_index, peer_index, tell, 9});
        body(w);
        std::memcpy(own_ + visits_offset + (gate_next(taken) + 1) * slot_size - w.size(), w.data(), w.size());
        word(doorbells_offset).store(~0ull);
    }

    /// A message that the peer keeps for us, under number `fin` of its FIN words, which says that it `waits`.
    void come_from_afar(std::uint64_t tag, std::uint32_t fin, std::initializer_list<Segment> segments, bool waits = true)
    {
        put(fin_offset(fin), fin_word(8, waits ? fin_pending : 0));
        come(Type::far_eager, flag_tag | flag_ack, segments.size(), [&](PacketWriter& w) {
            w.put64(tag);
            w.put(Ack{fin, 8});
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
    FinWord answered(const Ack& ack) { return get<FinWord>(fin_offset(ack.fin)); }

    std::optional<fake::Domain> domain;
    vcq::Vcq vcq;
    std::optional<Peers> peers;
    std::optional<OwnTxContext> tx;
    RxContext rx;
    std::optional<Messenger> messages;
    fid_cq* cq = nullptr;
    fi_addr_t to = 0;
    std::byte* own_ = nullptr; ///< our area
    std::uint16_t serial = 0;  ///< under which our ring was granted
    alignas(8) std::byte visit_[slot_size] = {};
    char buffer[8192] = {};
};

// --- sends

TEST_F(Messages, AShortOneIsOverWhenItsPacketIsOut)
{
    win_ring();
    ASSERT_EQ(send("hello", 5), 0);
    EXPECT_EQ(entry(), "sent");
    Packet p;
    ASSERT_TRUE(found(1, p));
    EXPECT_EQ(p.tag, 7u);
    EXPECT_EQ(std::memcmp(p.body, "hello", 5), 0);
}

TEST_F(Messages, ALongerOneTakesAsManySlotsAsItNeeds)
{
    win_ring();
    std::memset(buffer, 'x', sizeof buffer);
    ASSERT_EQ(send(buffer, 200), 0);
    ASSERT_EQ(send(buffer, 700), 0);
    ASSERT_EQ(send("end", 3), 0);
    Packet p;
    ASSERT_TRUE(found(1, p));
    EXPECT_EQ(p.control.length, 200u);
    ASSERT_TRUE(found(2, p));
    EXPECT_EQ(p.type, Type::long_eager);
    EXPECT_EQ(get<char>(geometry.ring(0) + 2 * slot_size + 699), 'x');
    ASSERT_TRUE(found(6, p));
    EXPECT_EQ(std::memcmp(p.body, "end", 3), 0);
}

TEST_F(Messages, WithoutARingWhatFitsIntoOnePacketGoesAsAVisit)
{
    ASSERT_EQ(send("hello", 5), 0);
    ASSERT_EQ(send(buffer, 192, FI_INJECT), 0);
    ASSERT_EQ(send(buffer, 192, FI_DELIVERY_COMPLETE), 0);
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(entry(), "nothing");
    Packet p;
    ASSERT_TRUE(visited(0, p));
    EXPECT_EQ(p.tag, 7u);
    EXPECT_EQ(std::memcmp(p.body, "hello", 5), 0);
    ASSERT_TRUE(visited(1, p));
    EXPECT_EQ(p.control.length, 192u);
    ASSERT_TRUE(visited(2, p));
    ASSERT_EQ(p.control.flags, flag_tag | flag_ack);
    fin(p.ack, 0);
    run(2);
    EXPECT_EQ(entry(), "sent");
    ssize_t ret = -FI_EAGAIN;
    for (unsigned n = 0; n < 4 && ret == -FI_EAGAIN; n++, run(1))
        ret = messages->sender().write_data(to, 99, 4096);
    ASSERT_EQ(ret, 0);
    ASSERT_TRUE(visited(3, p));
    EXPECT_EQ(p.type, Type::write_data);
    EXPECT_EQ(p.data, 99u);
}

/// All that is longer is fetched, so that nothing needs a ring.
TEST_F(Messages, WithoutARingWhatIsLongerIsOfferedByAVisit)
{
    const std::vector<char> text(max_eager + 1, 'y');
    unsigned n = 0;
    for (const std::size_t size : {217, 700, 8192, 8193}) {
        ASSERT_EQ(send(text.data(), size), 0);
        Packet p;
        ASSERT_TRUE(visited(n++, p)) << size;
        const bool kept = size <= max_eager;
        ASSERT_EQ(p.type, kept ? Type::far_eager : Type::rts);
        EXPECT_EQ(entry(), kept ? "sent" : "nothing") << "it lies in a block of ours";
        EXPECT_EQ(tx->all_has_left(), !kept) << "who closes waits for it";
        fin(p.ack, 0);
        run(2);
        EXPECT_EQ(entry(), kept ? "nothing" : "sent");
        EXPECT_TRUE(tx->all_has_left());
    }
    Packet p;
    ASSERT_EQ(send(text.data(), 700, FI_DELIVERY_COMPLETE), 0);
    EXPECT_EQ(entry(), "nothing");
    ASSERT_TRUE(visited(n, p));
    fin(p.ack, 0);
    run(2);
    EXPECT_EQ(entry(), "sent");
}

TEST_F(Messages, AFenceWaitsForVisitsToo)
{
    const Peer* const peer = peers->find(to);
    EXPECT_TRUE(messages->sender().settled(*peer, false));
    ASSERT_EQ(send("a", 1), 0);
    for (unsigned n = 0; n < 20 && !messages->sender().requests().awaits_any(); n++) {
        EXPECT_FALSE(messages->sender().settled(*peer, false));
        run(1);
    }
    Packet p;
    ASSERT_TRUE(visited(1, p));
    EXPECT_EQ(p.type, Type::fence);
    EXPECT_FALSE(messages->sender().idle_towards(*peer)) << "the question is under way";
    fin(p.ack, 0);
    run(2);
    EXPECT_TRUE(messages->sender().settled(*peer, false));
    EXPECT_FALSE(messages->sender().settled(*peer, true)) << "that is another question";
}

/// What was sent before is behind the ring's first packet, and counts as sent to whoever asks there.
TEST_F(Messages, AFenceInARingIsForVisitsToo)
{
    const Peer* const peer = peers->find(to);
    win_ring();
    EXPECT_FALSE(messages->sender().settled(*peer, false));
    Packet p;
    ASSERT_TRUE(found(1, p));
    EXPECT_EQ(p.type, Type::fence);
}

/// The ring is full: as many as tx_attr.size wait, who injects is refused, and all leave in their order.
TEST_F(Messages, WhatFindsNoRoomWaitsInItsOrder)
{
    win_ring();
    const char* const text = "abcdefghijklmnopqrstuvwxyz";
    for (unsigned n = 1; n < ring_slots + 5; n++)
        ASSERT_EQ(send(text + n, 1), 0);
    EXPECT_EQ(send("!", 1), -FI_EAGAIN);
    EXPECT_EQ(send("!", 1, FI_INJECT), -FI_EAGAIN);
    EXPECT_FALSE(tx->all_has_left());
    credit(2);
    run(1);
    credit(7);
    ASSERT_EQ(send(text + ring_slots + 5, 1), 0); // there is room: it passes nobody
    run(1);
    EXPECT_TRUE(tx->all_has_left());
    for (unsigned n = ring_slots + 1; n <= ring_slots + 5; n++) {
        Packet p;
        ASSERT_TRUE(found(n, p));
        EXPECT_EQ(static_cast<char>(p.body[0]), text[n]);
    }
}

TEST_F(Messages, ARendezvousEndsByTheAnswerToItAndNoOther)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    Packet p;
    ASSERT_TRUE(found(1, p));
    ASSERT_EQ(p.type, Type::rts);
    EXPECT_EQ(word(fin_offset(p.ack.fin)).load(), fin_word(p.ack.seq, fin_pending));
    Segment segment;
    std::memcpy(&segment, p.body + sizeof(Rts), sizeof segment);
    EXPECT_EQ(segment.length, sizeof buffer);
    fin({p.ack.fin, p.ack.seq - 1}, 0);
    run();
    EXPECT_EQ(entry(), "nothing");
    fin(p.ack, 0);
    run();
    EXPECT_EQ(entry(), "sent");
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    ASSERT_TRUE(found(2, p));
    fin(p.ack, FI_ENOMEM);
    run();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EREMOTEIO));
}

TEST_F(Messages, APeerThatDiesEndsWhatWaitsForIt)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    ASSERT_EQ(send("x", 1, FI_DELIVERY_COMPLETE), 0);
    messages->sender().lost(UTOFU_ERR_MRQ_PEER, {}, peer_home);
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
    EXPECT_EQ(send("x", 1), -FI_EHOSTDOWN);
    EXPECT_EQ(entry(), "nothing");
}

/// It has closed its endpoint behind its answer, and something else of ours finds that out before the word is looked at.
TEST_F(Messages, WhatAPeerAnsweredBeforeItLeftStands)
{
    win_ring();
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    Packet answered_one, refused_one;
    ASSERT_TRUE(found(1, answered_one));
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    ASSERT_TRUE(found(2, refused_one));
    ASSERT_EQ(send(buffer, sizeof buffer), 0);
    fin(answered_one.ack, 0);
    fin(refused_one.ack, FI_ENOMEM);
    messages->sender().lost(UTOFU_ERR_MRQ_PEER, {}, peer_home);
    std::multiset<std::string> ends{entry(), entry(), entry()};
    EXPECT_EQ(ends, (std::multiset<std::string>{"sent", "error " + std::to_string(FI_EREMOTEIO),
                                                "error " + std::to_string(FI_EHOSTDOWN)}));
    EXPECT_EQ(entry(), "nothing");
}

TEST_F(Messages, AFenceAsksOnceAndIsAnsweredForAllBefore)
{
    win_ring();
    const Peer& peer = *peers->find(to);
    ASSERT_EQ(send("x", 1), 0);
    EXPECT_TRUE(messages->sender().idle_towards(peer));
    EXPECT_FALSE(messages->sender().settled(peer, false));
    EXPECT_FALSE(messages->sender().idle_towards(peer)) << "the question is under way";
    Packet p;
    ASSERT_TRUE(found(2, p));
    EXPECT_EQ(p.type, Type::fence);
    fin(p.ack, 0);
    run();
    EXPECT_TRUE(messages->sender().settled(peer, false));
    EXPECT_EQ(entry(), "sent");
    EXPECT_EQ(entry(), "nothing") << "no operation of the application";
}

// --- receives

TEST_F(Messages, AMessageFindsItsReceiveSoonerOrLater)
{
    greet();
    ASSERT_EQ(receive(1), 0);
    arrive(1, 1, "first");
    arrive(2, 2, "second!");
    run();
    EXPECT_EQ(entry(), "5 bytes");
    EXPECT_EQ(entry(), "nothing");
    ASSERT_EQ(receive(2), 0);
    EXPECT_EQ(entry(), "7 bytes");
    EXPECT_EQ(std::memcmp(buffer, "second!", 7), 0);
}

TEST_F(Messages, VisitsFindTheirReceivesSoonerOrLater)
{
    const auto say = [&](std::uint64_t tag, const char* text, std::uint8_t flags = 0, const Ack& ack = {}) {
        come(Type::eager, static_cast<std::uint8_t>(flag_tag | flags), std::strlen(text), [&](PacketWriter& w) {
            w.put64(tag);
            if (flags != 0)
                w.put(ack);
            std::memcpy(w.reserve(std::strlen(text)), text, std::strlen(text));
        });
    };
    ASSERT_EQ(receive(1), 0);
    say(1, "expected");
    run(1);
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(std::memcmp(buffer, "expected", 8), 0);
    say(2, "late", flag_ack | flag_match, {5, 6});
    say(3, "never");
    run(1);
    EXPECT_EQ(answered({5, 6}), 0u);
    ASSERT_EQ(receive(2), 0);
    EXPECT_EQ(entry(), "4 bytes");
    EXPECT_EQ(answered({5, 6}), fin_word(6, 0)) << "who sent is known as long as that";

    const std::vector<char> text(10000, 'z');
    std::memcpy(net().memory.data() + source_at, text.data(), text.size());
    ASSERT_EQ(receive(4), 0);
    come(Type::rts, flag_tag | flag_ack, 1, [&](PacketWriter& w) {
        w.put64(4);
        w.put(Ack{7, 8});
        w.put(Segment{Net::base + source_at, 8000});
        w.put(Rts{peer_home});
    });
    run(3);
    EXPECT_EQ(entry(), "8000 bytes");
    EXPECT_EQ(buffer[7999], 'z');
    EXPECT_EQ(answered({7, 8}), fin_word(8, 0));
}

/// What does not fit into a visit is in its order all the same: matched, and reported, before what came behind it.
TEST_F(Messages, AMessageFromAfarKeepsItsPlace)
{
    std::memset(net().memory.data() + source_at, 'z', 3000);
    ASSERT_EQ(receive(1), 0);
    ASSERT_EQ(receive(2), 0);
    come_from_afar(1, 7, {{Net::base + source_at, 1000}, {Net::base + source_at + 1000, 2000}});
    come_at_once(2);
    run();
    EXPECT_EQ(entry(), "3000 bytes");
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(buffer[2999], 'z');
    EXPECT_EQ(answered({7, 8}), fin_word(8, 0));
}

/// Nobody awaits it: it is taken, so that its sender need not keep it for longer.
TEST_F(Messages, AMessageFromAfarIsTakenBeforeItsReceiveIsPosted)
{
    std::memset(net().memory.data() + source_at, 'z', max_eager);
    come_from_afar(1, 7, {{Net::base + source_at, max_eager}});
    run();
    EXPECT_EQ(answered({7, 8}), fin_word(8, 0));
    std::memset(net().memory.data() + source_at, 'n', max_eager);
    ASSERT_EQ(receive(1), 0);
    EXPECT_EQ(entry(), std::to_string(max_eager) + " bytes");
    EXPECT_EQ(buffer[max_eager - 1], 'z');
}

/// Its sender has gone, and others may have its memory; or that can't be read, which the sender is told.
TEST_F(Messages, AMessageFromAfarWhoseSenderDoesNotKeepItIsNone)
{
    ASSERT_EQ(receive(1), 0);
    come_from_afar(1, 7, {{Net::base + source_at, 1000}}, false);
    come_from_afar(1, 9, {{4096, 1000}});
    come_at_once(1);
    run();
    EXPECT_EQ(entry(), "8 bytes");
    EXPECT_EQ(answered({7, 8}), fin_word(8, 0)) << "as it was";
    EXPECT_EQ(answered({9, 8}) >> 32, 8u);
    EXPECT_NE(static_cast<std::uint32_t>(answered({9, 8})), fin_pending);
    EXPECT_NE(static_cast<std::uint32_t>(answered({9, 8})), 0u);
}

/// More than are fetched at a time, and one whose slot was written over meanwhile: the others come.
TEST_F(Messages, MessagesFromAfarAreFetchedSomeAtATime)
{
    for (std::uint32_t n = 0; n < 20; n++) {
        ASSERT_EQ(receive(n), 0);
        come_from_afar(n, n, {{Net::base + source_at, 1000}});
    }
    const std::uint32_t taken = gate_next(word(gate_offset).load()) - 20;
    net().window = 1;
    std::byte* const ack = own_ + visits_offset + (taken + 1) * slot_size - sizeof(Control) - sizeof(Envelope) - 8 - 8;
    run(1);
    const Ack other{900, 8};
    std::memcpy(ack, &other, sizeof other);
    run();
    for (unsigned n = 1; n < 20; n++)
        EXPECT_EQ(entry(), "1000 bytes");
    EXPECT_EQ(entry(), "nothing");
}

TEST_F(Messages, AMessageFromAfarThatCannotBeIsDropped)
{
    ASSERT_EQ(receive(1), 0);
    come_from_afar(1, 7, {{Net::base + source_at, 5000}, {Net::base + source_at, 5000}}); // longer than a slot may make it
    come_from_afar(1, 7, {{Net::base + source_at, 0}});
    greet();
    write(1, Type::far_eager, flag_tag | flag_ack, 1, [&](PacketWriter& w) { // in a ring
        w.put64(1);
        w.put(Ack{7, 8});
        w.put(Segment{Net::base + source_at, 1000});
        w.put(Rts{peer_home});
    });
    run();
    EXPECT_EQ(entry(), "nothing");
    EXPECT_EQ(answered({7, 8}), fin_word(8, fin_pending));
}

TEST_F(Messages, ARendezvousIsFetchedAndAnswered)
{
    greet();
    const Ack ack{11, 5};
    std::memset(net().memory.data() + source_at, 'r', 3000);
    ASSERT_EQ(receive(1), 0);
    offer(1, 1, ack, {{Net::base + source_at, 1000}, {Net::base + source_at + 1000, 2000}});
    run();
    EXPECT_EQ(entry(), "3000 bytes");
    EXPECT_EQ(buffer[2999], 'r');
    EXPECT_EQ(answered(ack), fin_word(5, 0));
    ASSERT_EQ(receive(1, 0, 100), 0); // cut off: the sender has done its part
    offer(2, 1, {11, 6}, {{Net::base + source_at, 1000}});
    run();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_ETRUNC));
    EXPECT_EQ(answered(ack), fin_word(6, 0));
}

TEST_F(Messages, AGetThatFailsIsToldToBoth)
{
    greet();
    net().broken = Net::base + source_at;
    ASSERT_EQ(receive(1), 0);
    offer(1, 1, {11, 5}, {{Net::base + source_at, 1000}});
    run();
    const std::string said = entry();
    EXPECT_EQ(said.substr(0, 6), "error ");
    EXPECT_EQ(answered({11, 5}), fin_word(5, static_cast<std::uint32_t>(std::stoi(said.substr(6)))));
}

/// It came before its receive; meanwhile its sender has given up: its memory may be another's.
TEST_F(Messages, ALateReceiveAsksWhetherTheSenderStillWaits)
{
    greet();
    const Ack ack{11, 5};
    put(fin_offset(ack.fin), fin_word(ack.seq, fin_pending));
    offer(1, 1, ack, {{Net::base + source_at, 1000}});
    offer(2, 1, {12, 5}, {{Net::base + source_at, 1000}});
    run();
    ASSERT_EQ(receive(1), 0);
    run();
    EXPECT_EQ(entry(), "1000 bytes");
    ASSERT_EQ(receive(1), 0);
    run();
    EXPECT_EQ(entry(), "error " + std::to_string(FI_EHOSTDOWN));
    EXPECT_EQ(answered({12, 5}), 0u) << "nobody is told";
}

TEST_F(Messages, AnAnswerThatFindsNoRoomIsGivenLater)
{
    greet();
    ASSERT_EQ(receive(1), 0);
    run(); // the ring is known
    write(1, Type::eager, flag_tag | flag_ack, 0, [](PacketWriter& w) {
        w.put64(1);
        w.put(Ack{11, 5});
    });
    net().busy_percent = 100;
    run();
    EXPECT_EQ(entry(), "nothing") << "the packet stays: its sender has to be told";
    net().busy_percent = 0;
    run();
    EXPECT_EQ(entry(), "0 bytes");
    EXPECT_EQ(answered({11, 5}), fin_word(5, 0));
}

TEST_F(Messages, AFenceForMatchedMessagesWaitsForTheirReceives)
{
    greet();
    arrive(1, 1, "early");
    write(2, Type::fence, flag_ack | flag_match, 0, [](PacketWriter& w) { w.put(Ack{11, 5}); });
    write(3, Type::fence, flag_ack, 0, [](PacketWriter& w) { w.put(Ack{12, 5}); });
    run();
    EXPECT_EQ(answered({11, 5}), 0u);
    EXPECT_EQ(answered({12, 5}), fin_word(5, 0)) << "taken it is";
    ASSERT_EQ(receive(1), 0);
    messages->receiver().answer_fences();
    EXPECT_EQ(answered({11, 5}), fin_word(5, 0));
}

/// Also of one who has no ring, and asks again.
TEST_F(Messages, AFenceOfAVisitorWaitsForTheReceivesToo)
{
    come(Type::eager, flag_tag, 8, [](PacketWriter& w) {
        w.put64(1);
        w.put64(0);
    });
    for (const std::uint32_t question : {4u, 5u})
        come(Type::fence, flag_ack | flag_match, 0, [&](PacketWriter& w) { w.put(Ack{11, question}); });
    run(1);
    EXPECT_EQ(answered({11, 5}), 0u);
    ASSERT_EQ(receive(1), 0);
    messages->receiver().answer_fences();
    EXPECT_EQ(answered({11, 5}), fin_word(5, 0));
}

TEST_F(Messages, PacketsThatCannotBeAreDroppedAndNothingElse)
{
    greet();
    ASSERT_EQ(receive(1), 0);
    offer(1, 1, {11, 5}, {{Net::base + source_at, 0}});                      // a segment of nothing
    offer(2, 1, {fin_count, 5}, {{Net::base + source_at, 8}});               // no such FIN word
    offer(3, 1, {11, 5}, {{0, limits::max_msg_size}, {0, limits::max_msg_size}}); // more than a message
    write(4, Type::long_eager, flag_tag, 0, [](PacketWriter& w) { w.put64(1); });
    write(5, Type::long_eager, flag_tag, max_eager + 1, [](PacketWriter& w) { w.put64(1); });
    write(6, Type::eager, flag_tag, slot_size, [](PacketWriter& w) { w.put64(1); });
    write(7, static_cast<Type>(200), 0, 0, [](PacketWriter&) {});
    write(8, Type::write_data, 0, 0, [](PacketWriter& w) { w.put64(8); }); // without its data
    run();
    EXPECT_EQ(entry(), "nothing");
    arrive(9, 1, "sound");
    run();
    EXPECT_EQ(entry(), "5 bytes");
}

} // namespace
} // namespace tofu::proto
