// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the endpoints of a program have done, and what may and must come of it (docs/testing.md, "The model"). It knows
// no call of libfabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rdma/fabric.h>
#include <rdma/fi_trigger.h>

#include "program.h"

namespace swarm {

/// Ends the process with status 3: the model is contradicted. The text goes to stdout.
[[noreturn, gnu::format(printf, 1, 2)]] void contradict(const char* format, ...);

/// A buffer between guards.
class Buffer {
  public:
    explicit Buffer(std::size_t size);
    [[nodiscard]] unsigned char* at() noexcept { return bytes_.data() + guard; }
    [[nodiscard]] const unsigned char* at() const noexcept { return bytes_.data() + guard; }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size() - 2 * guard; }
    /// Whatever is written from now on is seen by is_as_sealed().
    void seal();
    [[nodiscard]] bool is_as_sealed() const;
    /// Are the bytes beside the buffer as they were? `with_words`: those of its first and last word may have changed.
    [[nodiscard]] bool guards_stand(bool with_words = false) const;
    /// Has any byte from `from` on another value than the one that all had at first?
    [[nodiscard]] bool is_touched(std::size_t from) const;

  private:
    static constexpr std::size_t guard = 64;
    [[nodiscard]] std::uint64_t sum() const;
    std::vector<unsigned char> bytes_;
    std::uint64_t seal_ = 0;
};

/// One life of an endpoint.
struct Endpoint {
    enum State : std::uint8_t { open, closed, killed };
    unsigned number = 0; ///< among all lives, in the order of their births
    unsigned process = 0, slot = 0;
    State state = open;
    std::uint64_t opened = 0, ended = 0;
    unsigned contexts = 1; ///< that send, and as many that receive
    /// A context, which can be closed by itself; one that sends can be opened again.
    struct Context {
        bool open = true;
        std::vector<std::uint64_t> ends; ///< of its lives
        void end(std::uint64_t now)
        {
            open = false;
            ends.push_back(now);
        }
    };
    Context tx[2], rx[2];
    const Endpoint* first = nullptr; ///< the first one with its address (Platform::reuses_addresses); null: this one
    Endpoint* pool = nullptr;        ///< what receives for it: the shared context of its process; null: it has its own
    [[nodiscard]] Endpoint& receives_at() noexcept { return pool != nullptr ? *pool : *this; }
    /// Did both have the same address, one after the other?
    [[nodiscard]] bool shares_address(const Endpoint& other) const noexcept
    {
        return (first != nullptr ? first : this) == (other.first != nullptr ? other.first : &other);
    }
    std::string name() const;
};

/// What is posted: its context of libfabric comes first.
struct Operation {
    union {
        fi_context2 context{};
        fi_triggered_context2 triggered;
    };
    enum Kind : std::uint8_t { send, receive, look, access, group } kind = send;
    unsigned number = 0;
    std::uint64_t posted = 0, done_at = 0;
    bool done = false;
    int error = 0;
    unsigned tx = 0, rx = 0; ///< contexts of scalable endpoints
    // It waits for a counter, and is as if not posted meanwhile.
    bool held = false;     ///< its threshold has not been reached
    bool was_held = false; ///< nothing is said of its place among others
    bool apart = false;    ///< a counter of its own shows that it has succeeded, and no entry
    bool recalled = false; ///< it was cancelled before it began
    std::uint64_t threshold = 0;
};

struct Receive;
struct Message : Operation {
    Endpoint *from = nullptr, *to = nullptr;
    bool tagged = false, data = false, silent = false; ///< silent: no entry comes
    std::uint32_t tag = 0, level = 0;
    Receive* taken = nullptr;
    std::size_t tx_life = 0;              ///< of the context that sends it
    const unsigned char* place = nullptr; ///< where it was put
    bool broken = false;                  ///< a receive has ended with an error because of it
    std::unique_ptr<Buffer> buffer;
    std::size_t size = 0;
    /// The states of what sends it and what it was sent to.
    [[nodiscard]] Endpoint::State sender() const noexcept
    {
        return from->state == Endpoint::open && tx_life < from->tx[tx].ends.size() ? Endpoint::closed : from->state;
    }
    [[nodiscard]] std::uint64_t sender_ended() const noexcept
    {
        return tx_life < from->tx[tx].ends.size() ? from->tx[tx].ends[tx_life] : from->ended;
    }
    [[nodiscard]] Endpoint::State receiver() const noexcept
    {
        return to->state == Endpoint::open && !to->rx[rx].open ? Endpoint::closed : to->state;
    }
};

/// A receive, or a look at what has come (peek, claim, discard).
struct Receive : Operation {
    Endpoint *at = nullptr, *source = nullptr; ///< source null: any
    bool tagged = false, any = false, multi = false, cancelled = false, sealed = false, claims = false, drops = false;
    std::uint32_t tag = 0;
    std::size_t used = 0;                                    ///< of a multi-receive
    std::size_t min_left = 0;                                ///< likewise: with less it is over
    std::vector<std::pair<std::size_t, std::size_t>> places; ///< of its messages
    std::vector<Message*> got;
    std::vector<Message*> candidates; ///< one of these is what a look has found
    std::unique_ptr<Buffer> buffer;
    [[nodiscard]] Endpoint::State state() const noexcept
    {
        return at->state == Endpoint::open && !at->rx[rx].open ? Endpoint::closed : at->state;
    }
    /// A multi-receive that has a message, and no room for another one.
    [[nodiscard]] bool is_full() const noexcept
    {
        return !places.empty() && (used == buffer->size() || buffer->size() - used < min_left);
    }
    /// Its buffer is the application's again.
    void seal()
    {
        sealed = true;
        buffer->seal();
    }
    [[nodiscard]] bool takes(const Message& m) const noexcept
    {
        return m.to != nullptr && m.to->receives_at().shares_address(*at) && m.rx == rx && m.tagged == tagged &&
               (source == nullptr || source->shares_address(*m.from)) && (!tagged || any || m.tag == tag);
    }
};

/// An entry of a completion queue.
struct Entry {
    void* context = nullptr;
    std::uint64_t flags = 0, data = 0, tag = 0;
    std::size_t length = 0;
    void* buffer = nullptr;
    int error = 0;
    bool has_source = false; ///< `source` counts
    const Endpoint* source = nullptr;
};

constexpr unsigned tag_bits = 8; ///< of a tag; above them is the message's number

class RemoteModel;
class GroupModel;

/// What a counter may show.
struct Bounds {
    std::uint64_t least = 0, most = 0;
    /// One more: for certain, perhaps, or (of what may be) after all.
    void add(bool certain, bool possible, bool must) noexcept
    {
        least += certain || (possible && must);
        most += certain || possible;
    }
    [[nodiscard]] bool holds(std::uint64_t count) const noexcept { return count >= least && count <= most; }
};

class Model {
  public:
    Model();
    ~Model();
    std::uint64_t time = 0; ///< counts events
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    std::vector<std::unique_ptr<Message>> messages;
    std::vector<std::unique_ptr<Receive>> receives;
    std::unique_ptr<RemoteModel> remote;
    std::unique_ptr<GroupModel> groups;

    Message& new_message(Endpoint& from, Endpoint& to, const Command& command);
    Receive& new_receive(Endpoint& at, std::size_t size);
    /// A message was not accepted: it has never been.
    void withdraw(Message& message);
    void withdraw(Receive& receive);
    /// The counter of an operation that has one of its own shows that it has succeeded.
    void on_count(Operation& operation);
    /// Is anything of this process under way to this peer, or to be received from it?
    [[nodiscard]] bool uses(unsigned process, const Endpoint& peer) const;
    /// May a counter of an endpoint, for calls of this kind (FI_SEND and so on), show this?
    /// Does a counter have a value that is possible? `last`: else it is wrong; before, events may still come.
    [[nodiscard]] bool count_holds(const Endpoint& at, std::uint64_t kind, std::uint64_t count, std::uint64_t errors,
                                   bool last) const;
    /// An entry of a process's queue. Returns the claim to be followed by its receive, or null.
    Receive* on_entry(unsigned process, const Entry& entry);

    /// Must this message be received when its receiver looks for it?
    [[nodiscard]] static bool must_arrive(const Message& m) noexcept;
    /// What is missing, empty if nothing is; `to the end`: every message that must arrive has.
    [[nodiscard]] std::string missing(bool to_the_end) const;
    /// Order and matching, when all has come.
    void check_order() const;
    void check_buffers() const;

    bool knows_closing = false; ///< what was reported as sent may be lost if its sender is closed

  private:
    std::unordered_set<const Operation*> known_; ///< what was posted
    static void check_held(const Operation& operation);
    [[nodiscard]] std::vector<Message*> candidates(const Receive& r, const Entry& entry) const;
    static Receive* claimed(Receive& r, std::size_t size);
    [[nodiscard]] bool may_be_dropped(const Message& m) const;
    void on_send(Message& m, const Entry& entry);
    Receive* on_look(Receive& r, const Entry& entry);
    void on_receive(Receive& r, const Entry& entry);
    Message* message_of(const Receive& r, const Entry& entry, const unsigned char* bytes) const;
    void take(Receive& r, Message& m, const Entry& entry, const unsigned char* bytes);
    void failed_receive(Receive& r, const Entry& entry);
    void cut_receive(Receive& r, const Entry& entry);
};

/// Fills and checks the payload of a message.
void fill(unsigned char* to, std::size_t size, unsigned number);
/// How many of the first bytes are right.
std::size_t right_bytes(const unsigned char* from, std::size_t size, unsigned number);

} // namespace swarm
