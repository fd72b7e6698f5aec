// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See model.h.
#include "model.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <unistd.h>

#include "group_model.h"
#include "remote_model.h"

namespace swarm {

void contradict(const char* format, ...)
{
    std::va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::printf("\n");
    std::fflush(stdout);
    _exit(3);
}

// --- bytes

namespace {

constexpr unsigned char untouched = 0xa5;
constexpr std::uint64_t mark = 0x5eed000000000000u;

std::uint64_t word_of(unsigned number, std::size_t word) noexcept
{
    if (word == 0)
        return mark | number;
    std::uint64_t z = (std::uint64_t{number} << 32 | word) * 0x9e3779b97f4a7c15u;
    return z ^ (z >> 29);
}

} // namespace

void fill(unsigned char* to, std::size_t size, unsigned number)
{
    for (std::size_t i = 0; i < size; i += 8) {
        const std::uint64_t word = word_of(number, i / 8);
        std::memcpy(to + i, &word, std::min<std::size_t>(8, size - i));
    }
}

std::size_t right_bytes(const unsigned char* from, std::size_t size, unsigned number)
{
    for (std::size_t i = 0; i < size; i += 8) {
        const std::uint64_t word = word_of(number, i / 8);
        if (std::memcmp(from + i, &word, std::min<std::size_t>(8, size - i)) != 0) {
            while (i < size && from[i] == reinterpret_cast<const unsigned char*>(&word)[i % 8])
                i++;
            return i;
        }
    }
    return size;
}

Buffer::Buffer(std::size_t size) : bytes_(size + 2 * guard, untouched) {}

std::uint64_t Buffer::sum() const
{
    std::uint64_t sum = 0, sums[4] = {1, 2, 3, 4}, words[4];
    std::size_t i = 0;
    for (; i + 32 <= bytes_.size(); i += 32) {
        std::memcpy(words, bytes_.data() + i, 32);
        for (unsigned lane = 0; lane < 4; lane++)
            sums[lane] = (sums[lane] ^ words[lane]) * 0x9e3779b97f4a7c15u;
    }
    for (const std::uint64_t each : sums)
        sum = (sum ^ each ^ each >> 32) * 0x100000001b3u;
    for (; i < bytes_.size(); i++)
        sum = (sum ^ bytes_[i]) * 0x100000001b3u;
    return sum;
}

void Buffer::seal()
{
    seal_ = sum();
}
bool Buffer::is_as_sealed() const
{
    return seal_ == sum();
}
bool Buffer::guards_stand(bool with_words) const
{
    const auto stands = [](unsigned char byte) { return byte == untouched; };
    const auto before = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(at()) % 8);
    const auto behind = static_cast<std::ptrdiff_t>(-reinterpret_cast<std::uintptr_t>(at() + size()) % 8);
    return std::all_of(bytes_.begin(), bytes_.begin() + guard - (with_words ? before : 0), stands) &&
           std::all_of(bytes_.end() - guard + (with_words ? behind : 0), bytes_.end(), stands);
}
bool Buffer::is_touched(std::size_t from) const
{
    const unsigned char* const rest = bytes_.data() + guard + from; // the last guard at least
    const std::size_t count = bytes_.size() - guard - from;
    return rest[0] != untouched || std::memcmp(rest, rest + 1, count - 1) != 0;
}

std::string Endpoint::name() const
{
    return std::to_string(process) + "." + std::to_string(slot) + "#" + std::to_string(number);
}

Model::Model() : remote(std::make_unique<RemoteModel>(time)), groups(std::make_unique<GroupModel>(time)) {}
Model::~Model() = default;

// --- what is posted

Message& Model::new_message(Endpoint& from, Endpoint& to, const Command& command)
{
    auto made = std::make_unique<Message>();
    Message& m = *made;
    m.kind = Operation::send;
    m.number = static_cast<unsigned>(messages.size());
    m.posted = ++time;
    m.from = &from;
    m.to = &to;
    m.size = command.size;
    m.tagged = command.tagged != 0;
    m.tag = command.tag & 3;
    m.level = command.level;
    m.data = command.data != 0 || (!m.tagged && m.size < 8);
    m.silent = m.level == inject;
    m.buffer = std::make_unique<Buffer>(m.size);
    fill(m.buffer->at(), m.size, m.number);
    known_.insert(&m);
    messages.push_back(std::move(made));
    return m;
}

Receive& Model::new_receive(Endpoint& at, std::size_t size)
{
    auto made = std::make_unique<Receive>();
    Receive& r = *made;
    r.kind = Operation::receive;
    r.number = static_cast<unsigned>(receives.size());
    r.posted = ++time;
    r.at = &at;
    known_.insert(&r);
    r.buffer = std::make_unique<Buffer>(size);
    receives.push_back(std::move(made));
    return r;
}

void Model::withdraw(Message& message)
{
    known_.erase(&message);
    if (&message == messages.back().get())
        messages.pop_back();
    else
        message.to = message.from = nullptr;
}
void Model::withdraw(Receive& receive)
{
    known_.erase(&receive);
    if (&receive == receives.back().get())
        receives.pop_back();
    else
        receive.at = nullptr;
}

// --- entries

/// The entry of a peek. A peek that claims its message becomes the receive of it.
Receive* Model::on_look(Receive& r, const Entry& entry)
{
    if (r.done)
        contradict("peek %u ended twice", r.number);
    r.done = true;
    r.done_at = time;
    r.error = entry.error;
    if (entry.error != 0) {
        if (entry.error != FI_ENOMSG && !(entry.error == FI_ECANCELED && r.state() != Endpoint::open))
            contradict("peek %u at %s ended with %s", r.number, r.at->name().c_str(), fi_strerror(entry.error));
        return nullptr;
    }
    std::vector<Message*> found = candidates(r, entry);
    if (found.size() > 1) {
        r.candidates = std::move(found);
        return claimed(r, entry.length);
    }
    Message* const m = found.empty() ? message_of(r, entry, nullptr) : found[0];
    if (m->taken != nullptr)
        contradict("peek %u found message %u, which receive %u has", r.number, m->number, m->taken->number);
    if (!r.takes(*m))
        contradict("peek %u found message %u, which it does not ask for", r.number, m->number);
    if (entry.length != m->size)
        contradict("peek %u found %zu bytes, message %u has %zu", r.number, entry.length, m->number, m->size);
    if (r.drops) {
        m->taken = &r;
        r.got.push_back(m);
    }
    Receive* const claim = claimed(r, m->size);
    if (claim != nullptr) {
        m->taken = &r;
        r.got.push_back(m);
    }
    return claim;
}

/// A look that has claimed a message of this size becomes the receive of it; null: it has not, or its endpoint is gone.
Receive* Model::claimed(Receive& r, std::size_t size)
{
    if (!r.claims || r.state() != Endpoint::open)
        return nullptr;
    r.kind = Operation::receive;
    r.done = false;
    r.buffer = std::make_unique<Buffer>(size);
    return &r;
}

/// The entry of a look says neither tag nor number of a message without tag and data: it is one of these.
std::vector<Message*> Model::candidates(const Receive& r, const Entry& entry) const
{
    std::vector<Message*> found;
    if (r.tagged || (entry.flags & FI_REMOTE_CQ_DATA) != 0)
        return found;
    for (const auto& m : messages)
        if (m->to != nullptr && !m->recalled && !m->held && m->taken == nullptr && !m->data &&
            m->size == entry.length && r.takes(*m) &&
            (!entry.has_source || entry.source == nullptr || entry.source->shares_address(*m->from)))
            found.push_back(m.get());
    if (found.empty())
        contradict("peek %u at %s found a message of %zu bytes, and there is none", r.number, r.at->name().c_str(),
                   entry.length);
    return found;
}

/// Is it one of those of which a look has dropped one?
bool Model::may_be_dropped(const Message& m) const
{
    return std::any_of(receives.begin(), receives.end(), [&](const auto& r) {
        return r->drops && std::find(r->candidates.begin(), r->candidates.end(), &m) != r->candidates.end();
    });
}

Receive* Model::on_entry(unsigned process, const Entry& entry)
{
    ++time;
    auto* const operation = static_cast<Operation*>(entry.context);
    if (operation == nullptr || (entry.flags & (FI_REMOTE_WRITE | FI_REMOTE_READ)) != 0) {
        remote->on_stray(process, entry);
        return nullptr;
    }
    if (const auto& all = remote->accesses; std::any_of(all.begin(), all.end(), [&](const auto& each) {
            return each.get() == operation && each->from != nullptr && each->from->process == process;
        })) {
        remote->on_entry(static_cast<Access&>(*operation), entry);
        return nullptr;
    }
    if (groups->owns(operation)) {
        auto& call = static_cast<Collective&>(*operation);
        if (call.join->at->process != process)
            contradict("process %u got the entry of a collective at %s", process, call.join->at->name().c_str());
        groups->on_entry(call, entry);
        return nullptr;
    }
    if (known_.count(operation) == 0)
        contradict("process %u got an entry with a context that was not passed", process);
    if (operation->kind == Operation::send) {
        auto& m = static_cast<Message&>(*operation);
        if (m.from->process != process)
            contradict("process %u got the entry of message %u from %s", process, m.number, m.from->name().c_str());
        on_send(m, entry);
        return nullptr;
    }
    auto& r = static_cast<Receive&>(*operation);
    if (r.at->process != process)
        contradict("process %u got the entry of receive %u at %s", process, r.number, r.at->name().c_str());
    if (r.kind == Operation::look)
        return on_look(r, entry);
    on_receive(r, entry);
    return nullptr;
}

void Model::check_held(const Operation& operation)
{
    if (operation.held && !operation.recalled)
        contradict("%s %u has begun, and its counter is not at %llu",
                   operation.kind == Operation::access ? "access"
                   : operation.kind == Operation::send ? "message"
                                                       : "receive",
                   operation.number, static_cast<unsigned long long>(operation.threshold));
}

void Model::on_count(Operation& operation)
{
    ++time;
    check_held(operation);
    if (operation.kind == Operation::access) {
        auto& access = static_cast<Access&>(operation);
        const bool reads = access.counts_as_read();
        const std::uint64_t kind = access.what == Access::atomic ? FI_ATOMIC : FI_RMA;
        access.apart = false; // the entry that did not come, but for the counter
        remote->on_entry(access, {.context = &access, .flags = kind | (reads ? FI_READ : FI_WRITE)});
        access.apart = true;
        return;
    }
    auto& m = static_cast<Message&>(operation);
    m.done = true;
    m.done_at = time;
    std::memset(m.buffer->at(), 0xdd, m.size);
}

void Model::on_send(Message& m, const Entry& entry)
{
    if (m.silent)
        contradict("injected message %u has an entry", m.number);
    if (m.done)
        contradict("message %u from %s ended twice, %s after %s", m.number, m.from->name().c_str(),
                   entry.error != 0 ? fi_strerror(entry.error) : "success",
                   m.error != 0 ? fi_strerror(m.error) : "success");
    check_held(m);
    m.done = true;
    m.done_at = time;
    m.error = entry.error;
    if (m.apart && entry.error == 0)
        contradict("message %u, whose end a counter shows, has an entry", m.number);
    if (m.recalled) {
        if (entry.error != FI_ECANCELED)
            contradict("message %u was cancelled before it was sent, and ended with %s", m.number,
                       entry.error != 0 ? fi_strerror(entry.error) : "success");
        return;
    }
    if (entry.error == 0) {
        if ((entry.flags & FI_SEND) == 0)
            contradict("message %u ended as a receive", m.number);
        std::memset(m.buffer->at(), 0xdd, m.size); // the buffer is the application's again
    } else if (m.sender() == Endpoint::open && m.receiver() == Endpoint::open) {
        contradict("message %u from %s to %s, both alive, ended with %s", m.number, m.from->name().c_str(),
                   m.to->name().c_str(), fi_strerror(entry.error));
    }
}

/// Which message it is, by what the entry and the payload say.
Message* Model::message_of(const Receive& r, const Entry& entry, const unsigned char* bytes) const
{
    std::uint64_t number = ~std::uint64_t{0};
    if (r.tagged)
        number = entry.tag >> tag_bits;
    else if ((entry.flags & FI_REMOTE_CQ_DATA) != 0)
        number = entry.data;
    else if (bytes != nullptr && entry.length >= 8) {
        std::memcpy(&number, bytes, 8);
        number ^= mark;
    }
    if (number >= messages.size() || messages[number]->to == nullptr)
        contradict("receive %u at %s got %zu bytes that were not sent (%llx)", r.number, r.at->name().c_str(),
                   entry.length, static_cast<unsigned long long>(number));
    Message& m = *messages[number];
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (!m.data || entry.data != number))
        contradict("receive %u got message %llu with the data %llu", r.number, static_cast<unsigned long long>(number),
                   static_cast<unsigned long long>(entry.data));
    if (m.data && (entry.flags & FI_REMOTE_CQ_DATA) == 0 && entry.error == 0 && r.kind != Operation::look)
        contradict("receive %u got message %u without its data", r.number, m.number);
    return &m;
}

void Model::take(Receive& r, Message& m, const Entry& entry, const unsigned char* bytes)
{
    check_held(m);
    check_held(r);
    if (m.recalled)
        contradict("receive %u at %s got message %u, which was cancelled", r.number, r.at->name().c_str(), m.number);
    if (!m.to->receives_at().shares_address(*r.at) || m.rx != r.rx)
        contradict("receive %u at %s got message %u, which %s has sent to %s", r.number, r.at->name().c_str(), m.number,
                   m.from->name().c_str(), m.to->name().c_str());
    if (m.taken != nullptr && m.taken != &r)
        contradict("message %u was received twice, by %u and %u", m.number, m.taken->number, r.number);
    if (!r.takes(m))
        contradict("receive %u at %s does not take message %u from %s (tag %u)", r.number, r.at->name().c_str(),
                   m.number, m.from->name().c_str(), m.tag);
    if (std::find(r.got.begin(), r.got.end(), &m) == r.got.end())
        r.got.push_back(&m);
    else if (!r.claims)
        contradict("receive %u got message %u twice", r.number, m.number);
    m.taken = &r;
    if (entry.has_source && entry.source != nullptr && !entry.source->shares_address(*m.from))
        contradict("receive %u got message %u from %s as one from %s", r.number, m.number, m.from->name().c_str(),
                   entry.source->name().c_str());
    if (r.tagged && (entry.tag & ((1u << tag_bits) - 1)) != m.tag)
        contradict("receive %u got message %u with the tag %llx", r.number, m.number,
                   static_cast<unsigned long long>(entry.tag));
    if (bytes != nullptr)
        if (const std::size_t right = right_bytes(bytes, entry.length, m.number); right != entry.length)
            contradict("receive %u at %s: message %u from %s has wrong bytes from %zu on, of %zu", r.number,
                       r.at->name().c_str(), m.number, m.from->name().c_str(), right, entry.length);
}

void Model::on_receive(Receive& r, const Entry& entry)
{
    const bool of_multi = r.multi;
    if (r.done && r.state() == Endpoint::open)
        contradict("receive %u at %s ended twice (%s)", r.number, r.at->name().c_str(),
                   entry.error != 0 ? fi_strerror(entry.error) : "success");
    if (entry.error != 0) {
        failed_receive(r, entry);
        return;
    }
    if (of_multi && (entry.flags & FI_MULTI_RECV) != 0)
        r.done = true;
    if (!of_multi)
        r.done = true;
    r.done_at = time;
    if (of_multi && (entry.flags & FI_RECV) == 0) { // says only that the buffer is free
        r.seal();
        return;
    }
    if ((entry.flags & FI_RECV) == 0)
        contradict("receive %u ended without FI_RECV", r.number);
    const unsigned char* bytes = r.buffer->at();
    if (of_multi) {
        bytes = static_cast<const unsigned char*>(entry.buffer);
        if (bytes < r.buffer->at() || bytes + entry.length > r.buffer->at() + r.buffer->size())
            contradict("multi-receive %u: %zu bytes at %td of %zu", r.number, entry.length,
                       bytes == nullptr ? std::ptrdiff_t{-1} : bytes - r.buffer->at(), r.buffer->size());
        const auto start = static_cast<std::size_t>(bytes - r.buffer->at());
        for (const auto& [from, end] : r.places)
            if (start < end && from < start + entry.length)
                contradict("multi-receive %u: two messages at %zu", r.number, start);
        r.places.emplace_back(start, start + entry.length);
        r.used = std::max(r.used, start + entry.length);
        if (r.done && r.error == 0 && !r.cancelled && !r.is_full())
            contradict("multi-receive %u is over with %zu of %zu bytes used", r.number, r.used, r.buffer->size());
    }
    if (entry.length > r.buffer->size())
        contradict("receive %u of %zu bytes got %zu", r.number, r.buffer->size(), entry.length);
    Message& m = *message_of(r, entry, bytes);
    if (entry.length != m.size)
        contradict("receive %u got %zu bytes of message %u, which has %zu", r.number, entry.length, m.number, m.size);
    take(r, m, entry, bytes);
    m.place = bytes;
    if (r.done)
        r.seal();
    if (!of_multi && r.buffer->is_touched(entry.length))
        contradict("receive %u at %s: bytes behind message %u were written", r.number, r.at->name().c_str(), m.number);
}

/// The message was longer than the room for it.
void Model::cut_receive(Receive& r, const Entry& entry)
{
    if (const auto* const bytes = static_cast<const unsigned char*>(entry.buffer);
        r.multi && entry.length >= 8 && bytes != nullptr) { // one that was too long for the rest of the buffer
        if (bytes < r.buffer->at() || bytes + entry.length != r.buffer->at() + r.buffer->size())
            contradict("multi-receive %u: a message that is too long has %zu bytes at %td of %zu", r.number,
                       entry.length, bytes - r.buffer->at(), r.buffer->size());
        Message& m = *message_of(r, entry, bytes);
        if (m.size <= entry.length)
            contradict("multi-receive %u: message %u of %zu bytes is too long for %zu", r.number, m.number, m.size,
                       entry.length);
        take(r, m, entry, bytes);
        m.place = bytes;
        return;
    }
    if (r.multi) { // with fewer bytes it may not be known which one
        for (const auto& m : messages)
            if (m->taken == nullptr && r.takes(*m) && m->size > entry.length)
                m->broken = true;
        return;
    }
    if (entry.length == 0 && r.buffer->size() != 0) { // nothing was placed, and the entry may not say which it was
        for (const auto& m : messages)
            if (m->taken == nullptr && r.takes(*m) && m->size > r.buffer->size())
                m->broken = true;
        return;
    }
    Entry part = entry;
    part.length = std::min(r.buffer->size(), entry.length);
    Message& m = *message_of(r, part, r.buffer->at());
    if (m.size <= r.buffer->size())
        contradict("receive %u of %zu bytes: message %u of %zu is too long for it", r.number, r.buffer->size(),
                   m.number, m.size);
    part.length = r.buffer->size();
    take(r, m, part, r.buffer->at());
}

void Model::failed_receive(Receive& r, const Entry& entry)
{
    // A multi-receive stays posted behind a message that is lost with its endpoint.
    if (!r.multi || (entry.flags & FI_MULTI_RECV) != 0)
        r.done = true;
    r.done_at = time;
    r.error = entry.error;
    if (r.done)
        r.seal();
    if (entry.error == FI_ECANCELED) {
        // A shared receive that has a message of an endpoint which is closed, or has claimed one, goes with it.
        const auto went = [&](const auto& m) {
            return m->to != nullptr && m->to != r.at && m->receiver() != Endpoint::open &&
                   (m->taken == nullptr || (r.claims && m->taken == &r)) && r.takes(*m);
        };
        if (!r.cancelled && r.state() == Endpoint::open && std::none_of(messages.begin(), messages.end(), went))
            contradict("receive %u was cancelled without a call", r.number);
        return;
    }
    if (entry.error == FI_ETRUNC)
        return cut_receive(r, entry);
    // The sender is gone: which message it was may not be known.
    const auto died = [&](const auto& m) {
        return m->to != nullptr && m->sender() != Endpoint::open && r.takes(*m) &&
               (m->taken == nullptr || m->taken == &r);
    };
    const auto found = std::find_if(messages.begin(), messages.end(), died);
    if (found == messages.end())
        contradict("receive %u at %s ended with %s; all senders live", r.number, r.at->name().c_str(),
                   fi_strerror(entry.error));
    for (const auto& m : messages)
        if (died(m))
            m->broken = true; // one of these
}

// --- what must be

bool Model::must_arrive(const Message& m) noexcept
{
    return m.to != nullptr && m.receiver() == Endpoint::open && m.sender() == Endpoint::open && !m.broken && !m.held &&
           !m.recalled;
}

std::string Model::missing(bool to_the_end) const
{
    for (const auto& m : messages) {
        if (m->to == nullptr || m->sender() != Endpoint::open || m->held)
            continue;
        const std::string what =
            "message " + std::to_string(m->number) + " from " + m->from->name() + " to " + m->to->name();
        if (!m->done && !m->silent &&
            (to_the_end || (m->receiver() != Endpoint::open && !m->was_held) ||
             (m->taken != nullptr && m->taken->done)))
            return what + " has not ended";
        if (to_the_end && m->taken == nullptr && must_arrive(*m) && !may_be_dropped(*m))
            return what + " was not received";
    }
    for (const auto& m : messages) {
        if (!to_the_end || m->to == nullptr || m->recalled || m->sender() != Endpoint::closed ||
            m->receiver() != Endpoint::open || m->taken != nullptr || m->broken || knows_closing || may_be_dropped(*m))
            continue;
        if ((m->silent || (m->done && m->error == 0 && m->done_at < m->sender_ended())))
            return "message " + std::to_string(m->number) + " from " + m->from->name() + " to " + m->to->name() +
                   ", sent before its sender closed, was not received";
    }
    std::ptrdiff_t drops = std::count_if(receives.begin(), receives.end(),
                                         [](const auto& r) { return r->drops && !r->candidates.empty(); });
    for (const auto& m : messages)
        if (to_the_end && m->to != nullptr && m->taken == nullptr && must_arrive(*m) && may_be_dropped(*m) &&
            --drops < 0)
            return "message " + std::to_string(m->number) + " and others were not received: more than were dropped";
    if (const std::string what = remote->missing(to_the_end); !what.empty())
        return what;
    if (const std::string what = groups->missing(); !what.empty())
        return what;
    for (const auto& r : receives) {
        if (r->at == nullptr || r->state() != Endpoint::open || r->done)
            continue;
        const std::string what = "receive " + std::to_string(r->number) + " at " + r->at->name();
        if (r->cancelled)
            return what + " was cancelled and has not ended";
        if (r->kind == Operation::look || r->claims)
            return what + " (a look) has not ended";
        if (r->multi && r->error == 0 && r->is_full())
            return what + " is full and has not ended";
        if (r->multi || r->held)
            continue;
        for (const auto& m : messages)
            // One that waited may be behind a fence, and that behind messages that have not been received yet.
            if (m->to != nullptr && m->taken == nullptr && must_arrive(*m) && r->takes(*m) && !may_be_dropped(*m) &&
                (to_the_end || !m->was_held))
                return what + " waits, message " + std::to_string(m->number) + " from " + m->from->name() + " as well";
    }
    return {};
}

void Model::check_order() const
{
    for (std::size_t j = 0; j < messages.size(); j++) {
        const Message& later = *messages[j];
        const Receive* const r = later.taken;
        if (later.to == nullptr || r == nullptr)
            continue;
        // Messages of one sender don't overtake each other.
        for (std::size_t i = 0; i < j; i++) {
            const Message& earlier = *messages[i];
            if (earlier.from != later.from || earlier.to != later.to || earlier.tagged != later.tagged ||
                earlier.tx != later.tx || earlier.tx_life != later.tx_life || earlier.was_held || later.was_held ||
                earlier.broken || !r->takes(earlier))
                continue;
            if (earlier.taken == r) { // a multi-receive: entries come as transfers end, places are in order
                if (earlier.place > later.place)
                    contradict("multi-receive %u: message %u from %s to %s has a place before message %u", r->number,
                               later.number, later.from->name().c_str(), later.to->name().c_str(), earlier.number);
                continue;
            }
            if (r->was_held || (earlier.taken != nullptr && earlier.taken->was_held))
                continue;
            if (earlier.taken == nullptr ? must_arrive(earlier) && !may_be_dropped(earlier)
                                         : earlier.taken->posted > r->posted)
                contradict("message %u from %s to %s, received by %u, has overtaken message %u, received by %d",
                           later.number, later.from->name().c_str(), later.to->name().c_str(), r->number,
                           earlier.number, earlier.taken != nullptr ? static_cast<int>(earlier.taken->number) : -1);
        }
        // A message goes to the first receive that takes it. One may still be busy with a message whose sender is gone,
        // or which may have been the one that was too long.
        const auto is_busy = [&](const Receive& other) {
            return std::any_of(messages.begin(), messages.end(), [&](const auto& m) {
                return m->to != nullptr && (m->sender() != Endpoint::open || m->broken) && m->taken == nullptr &&
                       other.takes(*m);
            });
        };
        for (const auto& other : receives)
            if (other->at == r->at && other->rx == r->rx && !other->was_held && !r->was_held &&
                other->posted < r->posted && !other->multi && !other->done && other->kind == Operation::receive &&
                !other->cancelled && !other->claims && other->state() == Endpoint::open && other->takes(later) &&
                !is_busy(*other))
                contradict("message %u went to receive %u, and receive %u, posted before, still waits", later.number,
                           r->number, other->number);
    }
    for (const auto& m : messages)
        if (m->to != nullptr && m->level == match && m->done && !m->recalled && !m->broken && m->error == 0 &&
            m->receiver() == Endpoint::open && m->sender() == Endpoint::open &&
            (m->taken == nullptr ? !may_be_dropped(*m) : m->taken->posted > m->done_at))
            contradict("message %u was reported as matched before there was a receive for it", m->number);
}

bool Model::count_holds(const Endpoint& at, std::uint64_t kind, std::uint64_t count, std::uint64_t errors,
                        bool last) const
{
    Bounds good, bad;
    if (kind == FI_SEND)
        for (const auto& m : messages) {
            if (m->from != &at || m->apart || m->to == nullptr)
                continue;
            good.add(m->done && m->error == 0, !m->done, must_arrive(*m));
            bad.add(m->done && m->error != 0, !m->done && !must_arrive(*m), false);
        }
    else if (kind == FI_RECV)
        for (const auto& r : receives) {
            if (r->at != &at)
                continue;
            const bool open_end = r->was_held || r->multi || r->drops || r->claims || r->kind == Operation::look;
            for (std::size_t i = 0; i < r->got.size(); i++)
                good.add(!open_end && r->error == 0, open_end, false);
            good.add(false, open_end, false);
            bad.add(r->done && r->error != 0 && !open_end, open_end, false);
            if (r->multi) // what does not fit is an error for each message
                bad.most += messages.size();
        }
    else
        remote->bounds_of(at, kind, good, bad);
    const auto name = kind == FI_SEND    ? "sends"
                      : kind == FI_RECV  ? "receives"
                      : kind == FI_READ  ? "reads"
                      : kind == FI_WRITE ? "writes"
                                         : "accesses of peers";
    const bool holds = good.holds(count) && bad.holds(errors);
    if (!holds && last)
        contradict("%s: its counter of %s is %llu with %llu errors; %llu to %llu and %llu to %llu were made",
                   at.name().c_str(), name, static_cast<unsigned long long>(count),
                   static_cast<unsigned long long>(errors), static_cast<unsigned long long>(good.least),
                   static_cast<unsigned long long>(good.most), static_cast<unsigned long long>(bad.least),
                   static_cast<unsigned long long>(bad.most));
    return holds;
}

/// A message of the peer whose entry has not been read counts, too: the entry names its place in the vector.
bool Model::uses(unsigned process, const Endpoint& peer) const
{
    const auto of = [&](const Endpoint* from, const Endpoint* to) {
        return from != nullptr && from->process == process && to != nullptr && to->shares_address(peer);
    };
    return std::any_of(messages.begin(), messages.end(),
                       [&](const auto& m) {
                           return (of(m->from, m->to) && (m->silent ? m->taken == nullptr : !m->done)) ||
                                  (of(m->to, m->from) && m->taken == nullptr);
                       }) ||
           std::any_of(receives.begin(), receives.end(),
                       [&](const auto& r) { return of(r->at, r->source) && !r->done; }) ||
           std::any_of(remote->accesses.begin(), remote->accesses.end(),
                       [&](const auto& access) { return of(access->from, access->to) && !access->done; });
}

void Model::check_buffers() const
{
    for (const auto& r : receives) {
        if (r->at == nullptr || r->state() == Endpoint::killed)
            continue;
        if (!r->buffer->guards_stand())
            contradict("receive %u at %s: bytes beside the buffer were written", r->number, r->at->name().c_str());
        if (r->sealed && !r->buffer->is_as_sealed())
            contradict("receive %u at %s: its buffer was written after it had ended", r->number, r->at->name().c_str());
    }
}

} // namespace swarm
