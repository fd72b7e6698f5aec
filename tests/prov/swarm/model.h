// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the endpoints of a program have done, and what may and must come of it (docs/testing.md, "The model"). It knows
// no call of libfabric. Called by world.cc; ends the process when something has come that must not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rdma/fabric.h>

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
    [[nodiscard]] bool guards_stand() const;
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
    std::uint64_t ended = 0;
    std::string name() const;
};

/// What is posted: its context of libfabric comes first.
struct Operation {
    fi_context2 context{};
    enum Kind : std::uint8_t { send, receive, look, access } kind = send;
    unsigned number = 0;
    std::uint64_t posted = 0, done_at = 0;
    bool done = false;
    int error = 0;
};

struct Receive;
struct Message : Operation {
    Endpoint *from = nullptr, *to = nullptr;
    bool tagged = false, data = false, silent = false; ///< silent: no entry comes
    std::uint32_t tag = 0, level = 0;
    Receive* taken = nullptr;
    bool broken = false; ///< a receive has ended with an error because of it
    std::unique_ptr<Buffer> buffer;
    std::size_t size = 0;
};

/// A receive, or a look at what has come (peek, claim, discard).
struct Receive : Operation {
    Endpoint *at = nullptr, *source = nullptr; ///< source null: any
    bool tagged = false, any = false, multi = false, cancelled = false, sealed = false, claims = false, drops = false;
    std::uint32_t tag = 0;
    std::size_t used = 0;                                    ///< of a multi-receive
    std::vector<std::pair<std::size_t, std::size_t>> places; ///< of its messages
    std::vector<Message*> got;
    std::unique_ptr<Buffer> buffer;
    /// Its buffer is the application's again.
    void seal()
    {
        sealed = true;
        buffer->seal();
    }
    [[nodiscard]] bool takes(const Message& m) const noexcept
    {
        return m.to == at && m.tagged == tagged && (source == nullptr || source == m.from) &&
               (!tagged || any || m.tag == tag);
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

class Model {
  public:
    Model();
    ~Model();
    std::uint64_t time = 0; ///< counts events
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    std::vector<std::unique_ptr<Message>> messages;
    std::vector<std::unique_ptr<Receive>> receives;
    std::unique_ptr<RemoteModel> remote;

    Message& new_message(Endpoint& from, Endpoint& to, const Command& command);
    Receive& new_receive(Endpoint& at, std::size_t size);
    /// A message was not accepted: it has never been.
    void withdraw(Message& message);
    void withdraw(Receive& receive);
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
    void on_send(Message& m, const Entry& entry);
    void on_receive(Receive& r, const Entry& entry);
    Message* message_of(const Receive& r, const Entry& entry, const unsigned char* bytes) const;
    void take(Receive& r, Message& m, const Entry& entry, const unsigned char* bytes);
    void failed_receive(Receive& r, const Entry& entry);
};

/// Fills and checks the payload of a message.
void fill(unsigned char* to, std::size_t size, unsigned number);
/// How many of the first bytes are right.
std::size_t right_bytes(const unsigned char* from, std::size_t size, unsigned number);

} // namespace swarm
