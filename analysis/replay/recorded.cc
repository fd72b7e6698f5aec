// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A trace as a script. See recorded.h.
//
// What a thread does follows what it did before, and what it found: a notice, an entry of its TCQ, bytes for which it
// waited. Whether it had to wait for them in the trace does not matter; here it may have to.
#include "replay/recorded.h"

#include "topology/ids.h"

#include <utofu.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace tofu::sim::replay {
namespace {

using namespace trace;

constexpr Picoseconds ns = 1000;

constexpr Key key_of(uint32_t transfer, Point point) noexcept
{
    return (Key{transfer} + 1) * 4 + static_cast<uint8_t>(point);
}
constexpr Key key_of_group(uint32_t group) noexcept
{
    return Key{1} << 63 | group;
}

enum class Family : uint8_t { put, get, armw };
Family family_of(Op op) noexcept
{
    return op == Op::get ? Family::get : op == Op::put || op == Op::put_piggyback ? Family::put : Family::armw;
}
Family family_of_notice(uint8_t type) noexcept
{
    switch (type) {
    case UTOFU_MRQ_TYPE_LCL_PUT:
    case UTOFU_MRQ_TYPE_RMT_PUT: return Family::put;
    case UTOFU_MRQ_TYPE_LCL_GET:
    case UTOFU_MRQ_TYPE_RMT_GET: return Family::get;
    default: return Family::armw;
    }
}

bool is_own(uint8_t type) noexcept
{
    return type == UTOFU_MRQ_TYPE_LCL_PUT || type == UTOFU_MRQ_TYPE_LCL_GET || type == UTOFU_MRQ_TYPE_LCL_ARMW;
}

/// First in, first out, for each queue.
template <typename Name>
class Queues {
  public:
    void push(const Name& name, uint32_t transfer) { queues_[name].push_back(transfer); }
    [[nodiscard]] uint32_t pop(const Name& name)
    {
        const auto found = queues_.find(name);
        if (found == queues_.end() || found->second.empty())
            return no_index;
        const uint32_t transfer = found->second.front();
        found->second.pop_front();
        return transfer;
    }

  private:
    std::map<Name, std::deque<uint32_t>> queues_;
};

} // namespace

Recorded::Recorded(const Run& run, const Placement& placement, const RecordedOptions& options)
    : run_(run), placement_(placement), options_(options)
{
    match();
    meet();
    collect();
}

/// Finds the waiter of a post: notices and entries come in the order of posts from one VCQ to another, of one kind
/// (guide 2.2.10). What goes to another VCQ of the same process has an order of its own.
void Recorded::match()
{
    Queues<std::tuple<uint32_t, uint16_t, uint32_t, uint16_t, Family>> remote;
    Queues<std::tuple<uint32_t, uint16_t, Family>> own;
    Queues<std::pair<uint32_t, uint16_t>> tcq;
    for (uint32_t i = 0; i < run_.transfers.size(); i++) {
        const Transfer& transfer = run_.transfers[i];
        if (transfer.told && !transfer.failed && transfer.to != no_index)
            remote.push({transfer.to, transfer.to_vcq, transfer.from, transfer.vcq, family_of(transfer.op)}, i);
        if (transfer.mine) // the poster sees a failure, too
            own.push({transfer.from, transfer.vcq, family_of(transfer.op)}, i);
        if (transfer.tcq)
            tcq.push({transfer.from, transfer.vcq}, i);
    }
    for (const Notice& notice : run_.notices) {
        const Family family = family_of_notice(notice.type);
        of_notice_.push_back(is_own(notice.type)
                                 ? own.pop({notice.process, notice.vcq, family})
                                 : remote.pop({notice.process, notice.vcq, notice.peer, notice.peer_vcq, family}));
    }
    for (const Entry& entry : run_.entries)
        of_entry_.push_back(tcq.pop({entry.process, entry.vcq}));
}

/// A round of gates ends for no process before all have begun it: those that overlap belong together.
void Recorded::meet()
{
    struct Group {
        Round round;
        uint64_t last_began;
        uint64_t first_ended;
        uint64_t last_ended;
        std::vector<uint32_t> members; ///< processes
    };
    std::vector<Group> groups;
    std::vector<uint32_t> number_of(run_.gates.size(), no_index);
    size_t oldest = 0; // of the groups that may still get members
    for (uint32_t i = 0; i < run_.gates.size(); i++) {
        const Gates& gates = run_.gates[i];
        if (gates.ended == 0)
            continue;
        while (oldest < groups.size() && groups[oldest].first_ended <= gates.began)
            oldest++;
        size_t at = oldest;
        for (; at < groups.size(); at++) {
            const Group& group = groups[at];
            if (group.round == gates.round && group.first_ended > gates.began &&
                std::find(group.members.begin(), group.members.end(), gates.process) == group.members.end())
                break;
        }
        if (at == groups.size())
            groups.push_back({gates.round, 0, ~uint64_t{0}, 0, {}});
        Group& group = groups[at];
        group.last_began = std::max(group.last_began, gates.began);
        group.first_ended = std::min(group.first_ended, gates.ended);
        group.last_ended = std::max(group.last_ended, gates.ended);
        group.members.push_back(gates.process);
        number_of[i] = static_cast<uint32_t>(at);
    }
    for (const Group& group : groups)
        round_takes_.push_back(group.last_ended - group.last_began);
    for (const uint32_t number : number_of) {
        group_of_round_.push_back(
            {number, number == no_index ? 0 : static_cast<uint32_t>(groups[number].members.size())});
    }
}

void Recorded::collect()
{
    std::map<std::pair<uint32_t, uint32_t>, Thread> threads;
    const auto add = [&](uint32_t process, uint32_t thread, const Item& item) {
        Thread& it = threads[{process, thread}];
        it.process = process;
        it.items.push_back(item);
    };
    const uint64_t found = run_.clock == ClockKind::real ? 0 : figures::found / ns;
    const auto before = [&](uint64_t time) { return time - std::min(time, found); };
    for (uint32_t i = 0; i < run_.transfers.size(); i++) {
        const Transfer& transfer = run_.transfers[i];
        add(transfer.from, transfer.thread, {transfer.posted, transfer.returned, i, What::post});
    }
    for (uint32_t i = 0; i < run_.waits.size(); i++) {
        const Wait& wait = run_.waits[i];
        const bool told = wait.end == End::notice || wait.end == End::tcq || wait.end == End::barrier;
        add(wait.process, wait.thread, {wait.began, wait.ended, i, told ? What::waited : What::memory});
    }
    for (uint32_t i = 0; i < run_.notices.size(); i++) {
        const Notice& notice = run_.notices[i];
        add(notice.process, notice.thread, {before(notice.time), notice.time, i, What::notice});
    }
    for (uint32_t i = 0; i < run_.entries.size(); i++) {
        const Entry& entry = run_.entries[i];
        add(entry.process, entry.thread, {before(entry.time), entry.time, i, What::entry});
    }
    for (uint32_t i = 0; i < run_.gates.size(); i++) {
        const Gates& gates = run_.gates[i];
        if (gates.ended != 0)
            add(gates.process, gates.thread, {gates.began, gates.ended, i, What::round});
    }
    for (auto& [name, thread] : threads) {
        std::stable_sort(thread.items.begin(), thread.items.end(), [](const Item& a, const Item& b) {
            return std::tuple(a.begin, a.end, a.what) < std::tuple(b.begin, b.end, b.what);
        });
        threads_.push_back(std::move(thread));
    }
    std::map<uint32_t, Thread*> last; // of a process, the one that did something until the end
    for (Thread& thread : threads_) {
        for (const Item& item : thread.items)
            thread.done = std::max(thread.done, item.end);
        Thread*& best = last[thread.process];
        best = best == nullptr || best->done < thread.done ? &thread : best;
    }
    waited_for_.resize(run_.transfers.size());
    for (Thread& thread : threads_)
        write_steps(thread, last[thread.process] == &thread);
}

void Recorded::write_computation(Thread& thread, uint64_t time, double factor)
{
    if (time != 0) {
        Step step;
        step.time = static_cast<Picoseconds>(static_cast<double>(time * ns) * factor);
        thread.steps.push_back(step);
    }
}

void Recorded::write_wait(Thread& thread, uint32_t transfer, Point point, Picoseconds cost, uint64_t took)
{
    if (transfer == no_index || run_.transfers[transfer].to_node == no_index || run_.transfers[transfer].failed) {
        write_computation(thread, took, 1);
        return;
    }
    if (is_waited_for(transfer, point))
        return;
    waited_for_[transfer] = static_cast<uint8_t>(waited_for_[transfer] | 1u << static_cast<uint8_t>(point));
    Step step;
    step.kind = Step::Kind::wait;
    step.key = key_of(transfer, point);
    step.time = cost;
    thread.steps.push_back(step);
}

void Recorded::write_item(Thread& thread, const Item& item, uint64_t waited)
{
    Step step;
    switch (item.what) {
    case What::post: {
        const Transfer& transfer = run_.transfers[item.number];
        step.kind = transfer.to_node != no_index && !transfer.failed ? Step::Kind::post : Step::Kind::compute;
        step.time = figures::post_call;
        step.key = item.number; // the message is made when it is posted
        thread.steps.push_back(step);
        break;
    }
    case What::notice: {
        const Point point = is_own(run_.notices[item.number].type) ? Point::told : Point::noted;
        write_wait(thread, of_notice_[item.number], point, figures::found, item.end - item.begin + waited);
        break;
    }
    case What::entry:
        write_wait(thread, of_entry_[item.number], Point::sent, figures::found, item.end - item.begin + waited);
        break;
    case What::memory: // finding it is in what follows
        write_wait(thread, run_.waits[item.number].transfer, Point::arrived, 0, item.end - item.begin);
        break;
    case What::round: {
        const auto [group, members] = group_of_round_[item.number];
        step.kind = Step::Kind::meet;
        step.key = key_of_group(group);
        step.count = members;
        step.time = round_takes_[group] * ns;
        thread.steps.push_back(step);
        break;
    }
    case What::waited: break; // what follows says for what
    }
}

void Recorded::write_steps(Thread& thread, bool until_it_left)
{
    const Process& process = run_.processes[thread.process];
    uint64_t done = process.began;
    uint64_t waited = 0; // until what comes next
    write_computation(thread, done, 1);
    for (const Item& item : thread.items) {
        write_computation(thread, item.begin - std::min(item.begin, done), options_.cpu);
        write_item(thread, item, waited);
        waited = item.what == What::waited ? item.end - item.begin : 0;
        done = std::max(done, item.end);
    }
    thread.items = {};
    if (until_it_left)
        write_computation(thread, process.ended - std::min(process.ended, done), options_.cpu);
}

uint32_t Recorded::node_of(uint32_t process, uint32_t recorded) const noexcept
{
    if (options_.as_recorded)
        return recorded;
    return process != no_index ? placement_.node_of(process)
                               : placement_.at(recorded % placement_.topology().num_nodes());
}

Message Recorded::message_of(uint32_t number) const
{
    const Transfer& transfer = run_.transfers[number];
    Message m;
    if (transfer.to_node == no_index)
        return m;
    m.from = node_of(transfer.from, transfer.from_node);
    m.to = node_of(transfer.to, transfer.to_node);
    m.length = transfer.bytes;
    switch (family_of(transfer.op)) {
    case Family::put: m.kind = transfer.op == Op::put_piggyback ? Transit::Kind::piggyback : Transit::Kind::put; break;
    case Family::get: m.kind = Transit::Kind::get; break;
    case Family::armw: m.kind = Transit::Kind::armw; break;
    }
    m.from_tni = transfer.from_tni;
    m.to_tni = transfer.to_tni;
    const bool known = Topology::contains_path(decode_path(transfer.path));
    m.path = options_.as_recorded && options_.keep_paths && known ? transfer.path : placement_.path(m.from, m.to);
    const auto key = [&](Point point) { return is_waited_for(number, point) ? key_of(number, point) : 0; };
    m.sent = key(Point::sent);
    m.arrived = key(Point::arrived);
    m.noted = key(Point::noted);
    m.told = key(Point::told);
    return m;
}

bool Recorded::next(uint32_t actor, Step& step)
{
    Thread& thread = threads_[actor];
    if (thread.at == thread.steps.size())
        return false;
    step = thread.steps[thread.at++];
    if (step.kind == Step::Kind::post)
        step.message = message_of(static_cast<uint32_t>(step.key));
    return true;
}

} // namespace tofu::sim::replay
