// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See lanes.h.
#include "coll/lanes.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "coll/group.h"
#include "core/log.h"
#include "core/system.h"
#include "cq/domain_base.h"
#include "mem/mr.h"
#include "tx/tx_context.h"

namespace tofu::coll {

// --- LaneDirectory

/// Allocates the table at its first use, and publishes it in the directory.
int LaneDirectory::make() noexcept
{
    OwnMemory made(directory_rows * sizeof(LaneRow));
    if (!made)
        return -FI_ENOMEM;
    std::memset(made.get(), 0, made.size());
    if (int ret = domain_.target_vcq().reg(made.get(), made.size(), false, stadd_); ret != 0)
        return ret;
    table_ = std::move(made);
    domain_.regions().directory().point_to_lane_directory(stadd_);
    return 0;
}

/// The entry of the key, or with `free` an unused entry. Null: there is none.
LaneEntry* LaneDirectory::find(std::uint64_t key, bool free) noexcept
{
    for (unsigned i = 0; table_ && i < directory_probes; i++)
        for (LaneEntry& entry : std::launder(reinterpret_cast<LaneRow*>(table_.get() + lane_row_offset(key, i)))->entry)
            if (free ? entry.check == LaneEntry::free : entry.check != LaneEntry::free && entry.key == key)
                return &entry;
    return nullptr;
}

int LaneDirectory::open(std::uint64_t key, unsigned cells, Slab& slab) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    if (!table_)
        if (int ret = make(); ret != 0)
            return ret;
    LaneEntry* entry = find(key, false);
    if (entry == nullptr)
        entry = find(key, true);
    if (entry == nullptr) {
        TOFU_WARN(FI_LOG_EP_CTRL, "collective group: too many groups of this domain are open, or wait for members that "
                                  "have not closed them: close some at all members\n");
        return -FI_ENOSPC;
    }
    if (int ret = slabs_.alloc(cells, slab); ret != 0)
        return ret;
    std::atomic_ref(entry->check).store(LaneEntry::hidden, std::memory_order_seq_cst);
    std::atomic_ref(entry->key).store(key, std::memory_order_seq_cst);
    std::atomic_ref(entry->stadd).store(slab.stadd, std::memory_order_seq_cst);
    return 0;
}

/// The check is changed first and last. Partner: Get of Search::query.
void LaneDirectory::show(std::uint64_t key, std::uint64_t state) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    LaneEntry* const entry = find(key, false);
    if (entry == nullptr)
        return;
    const std::uint64_t check = check_of({key, entry->stadd, 0, state}, domain_.nonce());
    std::atomic_ref(entry->check).store(LaneEntry::hidden, std::memory_order_seq_cst);
    std::atomic_ref(entry->state).store(state, std::memory_order_seq_cst);
    std::atomic_ref(entry->check).store(check, std::memory_order_seq_cst);
}

void LaneDirectory::remove(std::uint64_t key) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    if (LaneEntry* const entry = find(key, false); entry != nullptr)
        std::atomic_ref(entry->check).store(LaneEntry::free, std::memory_order_seq_cst);
}

void LaneDirectory::release(const Slab& slab, vcq::Gates& gates, bool keep, bool quiet) noexcept
{
    std::lock_guard guard(domain_.target_lock());
    if (!keep)
        gates.free();
    else if (gates.count() != 0)
        (void)left_.push(gates); // no memory to remember them: they are never freed
    slabs_.release(slab, quiet);
}

void LaneDirectory::close() noexcept
{
    std::lock_guard guard(domain_.target_lock());
    for (vcq::Gates& gates : left_)
        gates.free();
    slabs_.close();
    if (table_)
        domain_.target_vcq().dereg(stadd_);
}

std::uint64_t clock_ms() noexcept
{
    using std::chrono::milliseconds;
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<milliseconds>(Clock::now().time_since_epoch()).count());
}

// --- Lanes: memory

int Lanes::open(const Roster& roster) noexcept
{
    const unsigned count = 2 * bits_of(roster.size());
    lanes_.reset(new (std::nothrow) Lane[count]);
    staging_ = OwnMemory(count * slots * sizeof(Slot) + sizeof(LaneRow));
    if (!lanes_ || !staging_)
        return -FI_ENOMEM;
    count_ = count;
    for (unsigned i = 0; i < count_; i++) {
        Lane& lane = lanes_[i];
        lane.lanes = this;
        lane.number = static_cast<std::uint8_t>(i);
        lane.peer = roster.members[member_at(i, roster.rank, roster.size())];
        lane.notify = on_put;
    }
    std::memset(staging_.get(), 0, staging_.size());
    return tx_.domain().lane_directory().open(key_, count, slab_);
}

void Lanes::show(std::uint64_t state) noexcept
{
    if (slab_)
        tx_.domain().lane_directory().show(key_, state);
}

void Lanes::hide() noexcept
{
    if (slab_)
        tx_.domain().lane_directory().remove(key_);
}

int Lanes::register_local() noexcept
{
    if (!staging_)
        return 0;
    const int ret = tx_.vcq().reg(staging_.get(), staging_.size(), false, staging_stadd_);
    staging_registered_ = ret == 0;
    return ret;
}

void Lanes::deregister_local() noexcept
{
    if (std::exchange(staging_registered_, false))
        tx_.vcq().dereg(staging_stadd_);
}

/// An entry whose slab is not quiet stays: a neighbour that calls later finds that this member has given up.
void Lanes::destroy(vcq::Gates& gates, bool keep, bool quiet) noexcept
{
    if (quiet)
        hide();
    if (slab_)
        tx_.domain().lane_directory().release(std::exchange(slab_, {}), gates, keep, quiet);
}

// --- Lanes: posts

vcq::Post Lanes::posted(Lane& lane, vcq::Post post) noexcept
{
    in_flight_ += post == vcq::Post::done;
    if (post == vcq::Post::error)
        fail(lane, fi_error_of(tx_.vcq().last_error()), tx_.vcq().last_error());
    return post;
}

vcq::Post Lanes::get(Lane& lane, vcq::CompletionHandler& handler, utofu_stadd_t from, std::size_t size) noexcept
{
    // No message is sent yet, so the bytes can be read into the first slot.
    return posted(lane, tx_.vcq().get(lane.peer.target_vcq, staged_stadd(lane.number, 0), from, size,
                                      {.level = vcq::CompletionLevel::delivered, .handler = &handler}));
}

vcq::Post Lanes::probe(const Peer& member, vcq::CompletionHandler& handler) noexcept
{
    utofu_stadd_t from = 0;
    if (tx_.vcq().query_stadd(member.target_vcq, directory_stag, from) != 0)
        return vcq::Post::error;
    return read(member, handler, from + directory::endpoint_offset(member.index), sizeof(std::uint64_t));
}

int Lanes::answer_of(const Peer& member, vcq::Notice notice) noexcept
{
    const auto open = answer<std::uint64_t>();
    if (notice.code != UTOFU_SUCCESS)
        return fi_error_of(notice.code);
    return open == member.nonce ? 0 : FI_EHOSTDOWN; // another process may have that VCQ by now
}

vcq::Post Lanes::read(const Peer& member, vcq::CompletionHandler& handler, utofu_stadd_t from,
                      std::size_t size) noexcept
{
    const vcq::Post post = tx_.vcq().get(member.target_vcq, staged_stadd(count_, 0), from, size,
                                         {.level = vcq::CompletionLevel::delivered, .handler = &handler});
    in_flight_ += post == vcq::Post::done;
    return post;
}

vcq::Post Lanes::put_bytes(Lane& lane, const void* from, std::size_t offset, std::size_t size) noexcept
{
    return posted(
        lane, tx_.vcq().put_inline(lane.peer.target_vcq, from, lane.remote + offset, size,
                                   {.level = vcq::CompletionLevel::delivered, .strong_order = true, .handler = &lane}));
}

void Lanes::on_put(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    Lane& lane = *static_cast<Lane*>(handler);
    Lanes& lanes = *lane.lanes;
    lanes.in_flight_--;
    // The slab of a closed group may have been released before the last notice (Endpoint::destroy).
    if (notice.code == UTOFU_SUCCESS || lane.step == Lane::Step::lost || !lanes.slab_) [[likely]]
        return;
    // A member that has left and is beyond the operation under way has released its memory.
    if (kind_of(lanes.area(lane).state_word()) == Word::left && lanes.passed_by(lane)) {
        lane.step = Lane::Step::lost;
        lane.may_be_written = false;
    } else {
        lanes.fail(lane, fi_error_of(notice.code), notice.code);
    }
}

void Lanes::given_up() noexcept
{
    group_.on_member_lost(FI_ESHUTDOWN, 0);
}

void Lanes::fail(Lane& lane, int err, int prov_errno) noexcept
{
    lane.step = Lane::Step::lost;
    lane.may_be_written = false;
    group_.on_member_lost(err, prov_errno);
}

void Lanes::found(Lane& lane, utofu_stadd_t remote) noexcept
{
    lane.remote = remote;
    lane.step = Lane::Step::known;
    lane.owes_word = lane.own_word != 0;
    owes_ |= lane.owes_word;
}

// --- Lanes: words and counts

/// Puts the pending count and word to the peer. False: the VCQ is busy; call again.
bool Lanes::flush(Lane& lane) noexcept
{
    if (lane.step != Lane::Step::known) {
        lane.owes_word = lane.owes_taken = false; // the peer is lost, or found() will set them again
        return true;
    }
    if (lane.owes_taken) {
        const std::uint64_t taken = lane.taken;
        lane.owes_taken = put_bytes(lane, &taken, offsetof(LaneArea, taken), sizeof(taken)) == vcq::Post::busy;
    }
    if (lane.owes_word && !lane.owes_taken && lane.step == Lane::Step::known) { // nothing follows the last word
        const std::uint64_t word = lane.own_word;
        lane.owes_word = put_bytes(lane, &word, offsetof(LaneArea, word), sizeof(word)) == vcq::Post::busy;
    }
    return !lane.owes_taken && !lane.owes_word;
}

void Lanes::flush_all() noexcept
{
    owes_ = false;
    for (Lane& lane : all())
        if ((lane.owes_taken || lane.owes_word) && !flush(lane))
            owes_ = true;
}

void Lanes::write_word(std::uint64_t word) noexcept
{
    for (Lane& lane : all()) {
        lane.own_word = word;
        lane.owes_word = true;
    }
    flush_all();
}

/// The put fails if the member is dead. If the member waits in another operation, the put tells it of ours: otherwise
/// both might wait for each other without a message between them.
void Lanes::probe(std::uint32_t signature) noexcept
{
    const std::uint64_t mine = std::uint64_t{op_} << 32 | signature;
    for (Lane& lane : all())
        if (lane.step == Lane::Step::known)
            (void)put_bytes(lane, &mine, offsetof(LaneArea, probe), sizeof(mine));
}

bool Lanes::passed_by(const Lane& lane) const noexcept
{
    const std::uint64_t word = area(lane).state_word();
    return kind_of(word) != Word::none && static_cast<std::int32_t>(op_of(word) - op_) > 0;
}

// --- Lanes: messages

/// False also if the peer's count is impossible.
bool Lanes::has_room(const Lane& lane) const noexcept
{
    return lane.sent - area(lane).returned() < slots;
}

vcq::Post Lanes::send(Lane& lane, const View& view, std::size_t at, std::size_t size, std::uint32_t signature) noexcept
{
    const std::uint32_t message = lane.sent + 1;
    const std::size_t offset = offsetof(LaneArea, slot) + message % slots * sizeof(Slot);
    Slot& slot = staged(lane.number, message);
    if (size <= Tail::inline_size) {
        view.read(at, slot.tail.payload, size);
    } else if (!lane.half) {
        view.read(at, slot.payload, size);
        const vcq::Post post = posted(
            lane, tx_.vcq().put(lane.peer.target_vcq, staged_stadd(lane.number, message), lane.remote + offset, size,
                                {.level = vcq::CompletionLevel::delivered, .strong_order = true, .handler = &lane}));
        if (post != vcq::Post::done)
            return post;
        lane.half = true;
    }
    slot.tail.signature = signature;
    slot.tail.length = static_cast<std::uint32_t>(size);
    slot.tail.op = op_;
    slot.tail.number = message;
    const vcq::Post post = put_bytes(lane, &slot.tail, offset + offsetof(Slot, tail), sizeof(Tail));
    if (post == vcq::Post::done) {
        lane.half = false;
        lane.sent = message;
    }
    return post;
}

/// The next message of the lane, without those of operations that have ended here. A call drops at most as many
/// messages as there are slots, so that a peer that sends more of them does not block this process.
Lanes::Head Lanes::head(Lane& lane, Tail& tail) noexcept
{
    for (unsigned dropped = 0; dropped < slots; dropped++) {
        const std::uint32_t message = lane.taken + 1;
        Tail& at = area(lane).slot[message % slots].tail;
        // Acquire: the rest of the slot was put before. Partner: the sender's put in strong order.
        if (std::atomic_ref(at.number).load(std::memory_order_acquire) != message)
            return Head::none;
        std::memcpy(&tail, &at, sizeof(tail));
        if (static_cast<std::int32_t>(tail.op - op_) >= 0)
            return Head::there;
        if (!accept(lane))
            return Head::later;
    }
    return Head::later;
}

bool Lanes::accept(Lane& lane) noexcept
{
    lane.taken++;
    if (lane.taken % schedule::messages_per_credit != 0)
        return true;
    const Lane::Step before = lane.step;
    lane.owes_taken = true;
    if (!flush(lane))
        owes_ = true;
    return lane.step == before;
}

// --- Search

constexpr std::uint64_t pause_ms = 1; // between two reads for a member that has not called yet

bool Search::open(const Roster& roster) noexcept
{
    const auto lanes = lanes_.all();
    queries_.reset(new (std::nothrow) Query[lanes.size()]);
    if (!queries_)
        return false;
    for (Lane& lane : lanes) {
        Query& query = queries_[lane.number];
        query.search = this;
        query.lane = &lane;
        query.key = key_of(group_, member_at(lane.number, roster.rank, roster.size()));
        query.notify = on_read;
    }
    unknown_ = static_cast<unsigned>(lanes.size());
    again_.search = this;
    again_.notify = on_read_again;
    return true;
}

void Search::progress() noexcept
{
    for (const Lane& lane : lanes_.all())
        query(queries_[lane.number]);
}

void Search::fail(Query& query, int err, int prov_errno) noexcept
{
    unknown_--;
    lanes_.fail(*query.lane, err, prov_errno);
}

void Search::query(Query& query) noexcept
{
    Lane& lane = *query.lane;
    if (lane.step != Lane::Step::unknown || query.reading || (query.due != 0 && clock_ms() < query.due))
        return;
    utofu_stadd_t from = query.table + lane_row_offset(query.key, query.choice);
    std::size_t size = sizeof(LaneRow);
    if (query.asks || query.table == 0) {
        if (tx_.vcq().query_stadd(lane.peer.target_vcq, directory_stag, from) != 0) {
            fail(query, FI_EADDRNOTAVAIL, 0);
            return;
        }
        from += query.asks ? directory::endpoint_offset(lane.peer.index) : directory::lane_directory_word_offset;
        size = query.asks ? sizeof(std::uint64_t) : sizeof(directory::LaneDirectoryEntry);
    }
    const vcq::Post post = lanes_.get(lane, query, from, size);
    query.reading = post == vcq::Post::done;
    if (post == vcq::Post::error)
        unknown_--;
}

void Search::on_read(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    Query& query = *static_cast<Query*>(handler);
    query.reading = false;
    const std::byte* const at = query.search->lanes_.got(*query.lane);
    if (notice.code == UTOFU_SUCCESS)
        query.search->on_row(query, at);
    else
        query.search->fail(query, fi_error_of(notice.code), notice.code);
}

/// Evaluates the bytes of a read. A entry counts only with a matching check.
void Search::on_row(Query& query, const std::byte* at) noexcept
{
    Lane& lane = *query.lane;
    query.due = 0;
    if (std::exchange(query.asks, false)) {
        std::uint64_t open = 0;
        std::memcpy(&open, at, sizeof(open));
        if (open != lane.peer.nonce)
            fail(query, FI_EHOSTDOWN, 0);
        return;
    }
    if (query.table == 0) {
        directory::LaneDirectoryEntry entry;
        std::memcpy(&entry, at, sizeof(entry));
        if (entry.nonce != nonce_of_domain(lane.peer.nonce))
            fail(query, FI_EHOSTDOWN, 0); // another process has the VCQ now
        else if (entry.stadd != 0 && entry.check == directory::check_of_lane_directory(entry.stadd, entry.nonce))
            query.table = entry.stadd;
        else
            on_missing(query);
        return;
    }
    LaneRow row;
    std::memcpy(&row, at, sizeof(row));
    const LaneEntry* const entry = entry_of(query, row);
    if (entry == nullptr) {
        query.choice = (query.choice + 1) % directory_probes;
        if (query.choice == 0)
            on_missing(query);
    } else {
        unknown_--;
        lanes_.found(lane, entry->stadd + mirror(lane.number) * sizeof(LaneArea));
        if (entry->state == LaneEntry::given_up)
            lanes_.given_up();
    }
}

/// The peer has not called yet, or will never call.
void Search::on_missing(Query& query) noexcept
{
    const std::uint64_t time = clock_ms();
    query.due = time + pause_ms;
    if (query.asked == 0)
        query.asked = time;
    query.asks = time >= query.asked + again_after_ms;
    if (query.asks)
        query.asked = time;
}

const LaneEntry* Search::entry_of(const Query& query, const LaneRow& row) const noexcept
{
    const auto found = std::ranges::find_if(row.entry, [&](const LaneEntry& entry) {
        return entry.key == query.key && entry.check == check_of(entry, nonce_of_domain(query.lane->peer.nonce));
    });
    return found != std::end(row.entry) ? found : nullptr;
}

void Search::read_again() noexcept
{
    const std::uint64_t time = clock_ms();
    if (again_.due == 0)
        again_.due = time + again_after_ms;
    if (time < again_.due || again_.reading)
        return;
    again_.due = time + again_after_ms;
    const auto lanes = lanes_.all();
    again_.reading = true; // the notice may come within the post
    if (again_.asks) {
        const vcq::Post post = lanes_.probe(lanes[again_.lane].peer, again_);
        again_.reading &= post == vcq::Post::done;
        again_.asks &= post != vcq::Post::error;
        return;
    }
    for (std::size_t i = 0; i < lanes.size(); i++) {
        again_.lane = (again_.lane + 1) % lanes.size();
        const Lane& lane = lanes[again_.lane];
        LaneArea& area = lanes_.area(lane);
        // One that waits in the vote would say that it leaves. Its death is found by probes, once the search is over.
        if (lane.step != Lane::Step::known || area.state_word() != 0 || (area.awaited() != 0 && over()))
            continue;
        const Query& query = queries_[again_.lane];
        again_.reading &= lanes_.read(lane.peer, again_, query.table + lane_row_offset(query.key, query.choice),
                                      sizeof(LaneRow)) == vcq::Post::done;
        return;
    }
    again_.reading = false;
}

/// A peer that takes this member for dead removes its entry and says nothing.
void Search::on_read_again(vcq::CompletionHandler* handler, vcq::Notice notice) noexcept
{
    Again& again = *static_cast<Again*>(handler);
    Search& search = *again.search;
    Lanes& lanes = search.lanes_;
    Lane& lane = lanes.all()[again.lane];
    again.reading = false;
    if (std::exchange(again.asks, false)) {
        // The word of an endpoint that has closed would be here: it was put before.
        if (lanes.answer_of(lane.peer, notice) != 0 && lanes.area(lane).state_word() == 0)
            lanes.fail(lane, FI_EHOSTDOWN, 0);
        return;
    }
    const LaneRow row = lanes.answer<LaneRow>();
    if (notice.code != UTOFU_SUCCESS) {
        if (lane.step == Lane::Step::known)
            lanes.fail(lane, fi_error_of(notice.code), notice.code);
        return;
    }
    const LaneEntry* const entry = search.entry_of(search.queries_[again.lane], row);
    again.asks = entry == nullptr;
    if (entry != nullptr && entry->state == LaneEntry::given_up)
        lanes.given_up();
}

} // namespace tofu::coll
