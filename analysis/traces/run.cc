// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The merged traces of a job's processes. See run.h.
#include "traces/run.h"

#include "job/layout.h"
#include "topology/ids.h"

#include <utofu.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <map>
#include <set>

namespace tofu::sim::trace {
namespace {

/// Which process had a VCQ when.
class Owners {
  public:
    void add(uint64_t vcq_id, uint64_t from, uint32_t process) { owners_[vcq_key(vcq_id)].push_back({from, process}); }
    void sort()
    {
        for (auto& [key, spans] : owners_)
            std::sort(spans.begin(), spans.end());
    }
    [[nodiscard]] uint32_t find(uint64_t vcq_id, uint64_t time) const
    {
        const auto found = owners_.find(vcq_key(vcq_id));
        if (found == owners_.end())
            return no_index;
        const auto& spans = found->second;
        const auto after = std::upper_bound(spans.begin(), spans.end(), std::pair(time, no_index));
        return after == spans.begin() ? after->second : std::prev(after)->second;
    }

  private:
    std::map<uint64_t, std::vector<std::pair<uint64_t, uint32_t>>> owners_;
};

class Builder {
  public:
    Builder(std::vector<ProcessTrace>& traces, Run& run) : traces_(traces), run_(run) {}

    void build()
    {
        start_ = traces_.front().header.started;
        for (const ProcessTrace& trace : traces_)
            start_ = std::min(start_, trace.header.started);
        for (uint32_t i = 0; i < traces_.size(); i++)
            add_process(i);
        owners_.sort();
        for (uint32_t i = 0; i < traces_.size(); i++) {
            for (const Event& event : traces_[i].events)
                add_event(i, event);
            add_computations(i);
            finish_process();
        }
        complete_late();
        order();
        explain_waits();
    }

  private:
    [[nodiscard]] uint64_t since(uint64_t time) const noexcept { return time - start_; }

    void add_process(uint32_t number)
    {
        const ProcessTrace& trace = traces_[number];
        const FileHeader& header = trace.header;
        uint64_t last = header.started;
        for (const Event& event : trace.events) {
            const Record& record = event.record;
            if (record.type == Type::open_vcq)
                owners_.add(record.peer, since(record.time), number);
            last = std::max(last, end_of(record));
        }
        const uint64_t left = header.ended.raw;
        run_.processes.push_back({header.rank, header.node, header.pid, header.name, since(header.started),
                                  since(std::max(left, last)), left == 0, header.lost.raw, trace.damaged,
                                  trace.cut_off});
        run_.length = std::max(run_.length, run_.processes.back().ended);
    }

    static uint64_t end_of(const Record& record) noexcept
    {
        switch (record.type) {
        case Type::post: return record.time + record.duration;
        case Type::wait: return record.time + (uint64_t{record.arrival} << 32 | record.duration);
        default: return record.time;
        }
    }

    [[nodiscard]] uint32_t node_of(uint64_t vcq_id) const noexcept
    {
        const Coords coords = decode_coords(vcq_id);
        return run_.topology.contains(coords) ? run_.topology.node_of(coords) : no_index;
    }

    /// The VCQ's number on its node.
    [[nodiscard]] static uint16_t index_of(uint64_t vcq_id) noexcept
    {
        const VcqAddress a = decode_vcq_id(vcq_id);
        return static_cast<uint16_t>(vcq_index(a.tni, a.cq, a.component));
    }

    void add_event(uint32_t process, const Event& event)
    {
        const Record& record = event.record;
        const uint64_t time = since(record.time);
        switch (record.type) {
        case Type::post: add_post(process, event); break;
        case Type::arrival: end_late(record, time); break;
        case Type::relay: relays_.push_back({record, time}); break;
        case Type::wait:
            run_.waits.push_back(
                {time, since(end_of(record)), process, event.thread, no_index, no_index, End{record.what}});
            if (record.peer != 0 && End{record.what} == End::notice)
                run_.waits.back().awaited = owners_.find(record.peer, time);
            break;
        case Type::notice:
            run_.notices.push_back({time, process, event.thread, owners_.find(record.peer, time), record.vcq,
                                    record.what, index_of(record.peer)});
            break;
        case Type::tcq: run_.entries.push_back({time, process, event.thread, record.vcq}); break;
        case Type::barrier:
            open_gates_[record.peer] = run_.gates.size();
            run_.gates.push_back({time, 0, process, event.thread, Round{record.what}});
            break;
        case Type::barrier_done:
            if (const auto found = open_gates_.find(record.peer); found != open_gates_.end()) {
                run_.gates[found->second].ended = time;
                open_gates_.erase(found);
            }
            break;
        case Type::open_vcq:
        case Type::close_vcq:
        case Type::none: break;
        }
    }

    void add_post(uint32_t process, const Event& event)
    {
        const Record& record = event.record;
        Transfer transfer{};
        transfer.posted = since(record.time);
        transfer.returned = since(end_of(record));
        transfer.from = process;
        transfer.from_node = run_.processes[process].node;
        transfer.op = Op{record.what};
        transfer.to = transfer.to_node = no_index;
        if (transfer.op != Op::nop) {
            transfer.to = owners_.find(record.peer, transfer.posted);
            transfer.to_node = node_of(record.peer);
        }
        const bool atomic = transfer.op >= Op::armw4 && transfer.op <= Op::cswap8;
        transfer.thread = event.thread;
        transfer.bytes = atomic ? 0 : record.bytes & bytes_mask;
        transfer.count = atomic ? std::max(record.bytes & bytes_mask, 1u) : 1;
        transfer.vcq = record.vcq;
        transfer.path = static_cast<uint8_t>(record.peer >> 28 & 0xf);
        transfer.told = (record.bytes & flag_told) != 0;
        set_outcome(transfer, record);
        transfer.from_tni = static_cast<uint8_t>(record.vcq / (vcqs_per_node / tnis_per_node));
        transfer.to_tni = static_cast<uint8_t>(decode_tni(record.peer) % tnis_per_node);
        transfer.to_vcq = index_of(record.peer);
        if ((record.bytes & flag_late) != 0) {
            // From its process's own posts; those of session mode are found again by the VCQ.
            late_[{record.vcq, record.arrival}] = run_.transfers.size();
            waiting_[{transfer.from_node, record.vcq}].push_back(run_.transfers.size());
        } else if (!transfer.failed) {
            transfer.arrived = transfer.posted + record.arrival;
        }
        run_.transfers.push_back(transfer);
    }

    /// What its poster finds of it.
    static void set_outcome(Transfer& transfer, const Record& record) noexcept
    {
        transfer.failed = (record.bytes & flag_failed) != 0;
        transfer.mine = (record.bytes & flag_mine) != 0;
        transfer.tcq = (record.bytes & flag_tcq) != 0;
    }

    static void end(Transfer& transfer, const Record& record, uint64_t time) noexcept
    {
        set_outcome(transfer, record);
        transfer.arrived = transfer.failed ? 0 : std::max(time, transfer.posted);
    }

    void end_late(const Record& record, uint64_t time)
    {
        const auto found = late_.find({record.vcq, record.arrival});
        if (found != late_.end()) {
            end(run_.transfers[found->second], record, time);
            late_.erase(found);
        }
    }

    /// A process computes from when it joined, by the thread that is the first to do something.
    void add_computations(uint32_t process)
    {
        std::map<uint32_t, uint64_t> ends;
        size_t first = run_.computations.size();
        for (const Event& event : traces_[process].events) {
            const uint64_t time = since(event.record.time);
            const bool is_first = ends.empty();
            const auto [end, is_new] = ends.try_emplace(event.thread, is_first ? run_.processes[process].began : time);
            if (time >= end->second + least_computation)
                run_.computations.push_back({end->second, time, process, event.thread});
            end->second = std::max(end->second, since(end_of(event.record)));
        }
        std::stable_sort(run_.computations.begin() + static_cast<ptrdiff_t>(first), run_.computations.end(),
                         [](const Computation& a, const Computation& b) { return a.thread < b.thread; });
    }

    /// The following records belong to another process with other positions and gates.
    void finish_process()
    {
        late_.clear();
        open_gates_.clear();
    }

    /// Relays carry out what waits in a VCQ in its order; where that process has no trace, they speak for it.
    void complete_late()
    {
        std::stable_sort(relays_.begin(), relays_.end(),
                         [](const Relay& a, const Relay& b) { return a.time < b.time; });
        for (const Relay& relay : relays_) {
            const Record& record = relay.record;
            auto& queue = waiting_[{record.duration, record.vcq}];
            while (!queue.empty() && run_.transfers[queue.front()].arrived != 0)
                queue.pop_front();
            if (!queue.empty()) {
                end(run_.transfers[queue.front()], record, relay.time);
                queue.pop_front();
            }
        }
    }

    void order()
    {
        std::stable_sort(run_.transfers.begin(), run_.transfers.end(),
                         [](const Transfer& a, const Transfer& b) { return a.posted < b.posted; });
        std::stable_sort(run_.notices.begin(), run_.notices.end(),
                         [](const Notice& a, const Notice& b) { return a.time < b.time; });
        std::stable_sort(run_.gates.begin(), run_.gates.end(),
                         [](const Gates& a, const Gates& b) { return a.began < b.began; });
        run_.arrivals.resize(run_.processes.size());
        for (uint32_t i = 0; i < run_.transfers.size(); i++) {
            const Transfer& transfer = run_.transfers[i];
            run_.length = std::max({run_.length, transfer.arrived, transfer.returned});
            if (transfer.to != no_index && transfer.arrived != 0)
                run_.arrivals[transfer.to].push_back(i);
        }
        for (auto& list : run_.arrivals) {
            std::stable_sort(list.begin(), list.end(), [this](uint32_t a, uint32_t b) {
                return run_.transfers[a].arrived < run_.transfers[b].arrived;
            });
        }
    }

    /// The last that arrived at a process until a moment, from a process or from any other; no_index: none since
    /// `from`.
    [[nodiscard]] uint32_t last_arrival(uint32_t process, uint64_t from, uint64_t until, uint32_t sender) const
    {
        const auto& list = run_.arrivals[process];
        // A poster's bytes are seen a little before it has read the clock behind them.
        const uint64_t slack = run_.clock == ClockKind::real ? 1000 : 1;
        auto at = std::upper_bound(list.begin(), list.end(), until + slack, [this](uint64_t time, uint32_t number) {
            return time < run_.transfers[number].arrived;
        });
        while (at != list.begin()) {
            const uint32_t number = *--at;
            const Transfer& transfer = run_.transfers[number];
            if (transfer.arrived < from)
                return no_index;
            if (transfer.posted <= until && transfer.op != Op::get &&
                (sender != no_index ? transfer.from == sender : transfer.from != process))
                return number;
        }
        return no_index;
    }

    /// A process that found nothing but later continued has seen bytes arrive in memory, or has got a notice. A round
    /// of gates ends for all when the last has come.
    void explain_waits()
    {
        for (Wait& wait : run_.waits) {
            if (wait.end == End::barrier) {
                const auto after =
                    std::upper_bound(run_.gates.begin(), run_.gates.end(), wait.ended,
                                     [](uint64_t time, const Gates& gates) { return time < gates.began; });
                for (auto at = after; at != run_.gates.begin() && std::prev(at)->began >= wait.began; --at) {
                    if (std::prev(at)->process != wait.process) {
                        wait.awaited = std::prev(at)->process;
                        break;
                    }
                }
                continue;
            }
            if (wait.end == End::tcq || wait.end == End::going_on)
                continue;
            wait.transfer = last_arrival(wait.process, wait.began, wait.ended, wait.awaited);
            if (wait.transfer != no_index)
                wait.awaited = run_.transfers[wait.transfer].from;
            if (wait.awaited == wait.process)
                wait.awaited = no_index;
        }
    }

    struct Relay {
        Record record;
        uint64_t time;
    };

    std::vector<ProcessTrace>& traces_;
    Run& run_;
    uint64_t start_ = 0;
    Owners owners_;
    std::map<std::pair<uint16_t, uint32_t>, size_t> late_;                ///< of the process at hand, by VCQ and
                                                                          ///< position
    std::map<std::pair<uint32_t, uint16_t>, std::deque<size_t>> waiting_; ///< by node and VCQ
    std::map<uint64_t, size_t> open_gates_;                               ///< of the process at hand
    std::vector<Relay> relays_;
};

std::string compare(const ProcessTrace& first, const ProcessTrace& other)
{
    const FileHeader& a = first.header;
    const FileHeader& b = other.header;
    if (a.born != b.born || std::string_view(a.job) != b.job) {
        return first.path + " is of job " + a.job + " and " + other.path + " of " +
               (std::string_view(a.job) == b.job ? "another run of that name" : "job " + std::string(b.job)) +
               "; use the files of one run, or record into an empty directory";
    }
    if (!std::equal(std::begin(a.shape), std::end(a.shape), std::begin(b.shape)) || a.wraps != b.wraps) {
        return first.path + " and " + other.path +
               " have different shapes, although they belong to one job; record the run again";
    }
    if (a.clock != b.clock) {
        return first.path + " and " + other.path +
               " have different clocks; set TOFU_SIM_CLOCK for all processes or none";
    }
    return {};
}

void warn(const Run& run, std::vector<std::string>& warnings)
{
    uint64_t lost = 0, damaged = 0;
    size_t killed = 0, cut = 0;
    for (const Process& process : run.processes) {
        lost += process.lost;
        damaged += process.damaged;
        killed += process.killed ? 1 : 0;
        cut += process.cut_off ? 1 : 0;
    }
    if (run.expected > run.processes.size()) {
        warnings.push_back(std::to_string(run.processes.size()) + " of " + std::to_string(run.expected) +
                           " processes have a trace here; the others are missing in the results");
    }
    if (killed != 0)
        warnings.push_back(std::to_string(killed) + " processes were killed or still run");
    if (cut != 0)
        warnings.push_back(std::to_string(cut) + " files are incomplete: their ends are missing");
    if (lost != 0) {
        warnings.push_back(std::to_string(lost) +
                           " records were dropped since their trace was full; raise TOFU_SIM_TRACE_MIB");
    }
    if (damaged != 0)
        warnings.push_back(std::to_string(damaged) + " records are invalid and were omitted");
}

} // namespace

std::string read_run(std::span<const std::string> paths, Run& run, std::vector<std::string>& warnings)
{
    run = {};
    std::vector<ProcessTrace> traces(paths.size());
    for (size_t i = 0; i < paths.size(); i++) {
        if (std::string problem = read_trace(paths[i], traces[i]); !problem.empty())
            return problem;
        if (std::string problem = compare(traces.front(), traces[i]); !problem.empty())
            return problem;
    }
    if (traces.empty())
        return "no trace found; use the files of TOFU_SIM_TRACE, or their directory";
    std::sort(traces.begin(), traces.end(), [](const ProcessTrace& a, const ProcessTrace& b) {
        return std::pair(a.header.rank, a.header.pid) < std::pair(b.header.rank, b.header.pid);
    });
    for (size_t i = 1; i < traces.size(); i++) {
        const FileHeader& a = traces[i - 1].header;
        const FileHeader& b = traces[i].header;
        if (a.pid == b.pid && a.rank == b.rank && a.started == b.started)
            return traces[i - 1].path + " and " + traces[i].path + " are the same trace; name each once";
    }
    const FileHeader& first = traces.front().header;
    run.job = first.job;
    run.topology = Topology({first.shape[0], first.shape[1], first.shape[2]}, first.wraps);
    run.clock = first.clock;
    run.cpu_permille = first.cpu_permille;
    run.expected = first.size;
    Builder(traces, run).build();
    warn(run, warnings);
    return {};
}

const char* op_name(Op op) noexcept
{
    switch (op) {
    case Op::put: return "put";
    case Op::put_piggyback: return "put (piggyback)";
    case Op::get: return "get";
    case Op::armw4: return "armw4";
    case Op::armw8: return "armw8";
    case Op::cswap4: return "cswap4";
    case Op::cswap8: return "cswap8";
    case Op::nop: return "nop";
    }
    return "?";
}

const char* round_name(Round round) noexcept
{
    switch (round) {
    case Round::barrier: return "barrier";
    case Round::integers: return "reduce (integers)";
    case Round::doubles: return "reduce (doubles)";
    }
    return "?";
}

std::string Run::what_counts() const
{
    if (cpu_permille == 0)
        return "communication alone";
    char text[96];
    std::snprintf(text, sizeof text, "communication, and computation at %g times the time of this machine",
                  cpu_permille / 1000.0);
    return text;
}

const char* end_name(End end) noexcept
{
    switch (end) {
    case End::going_on: return "going on";
    case End::post: return "a post";
    case End::notice: return "a notice";
    case End::tcq: return "a TCQ entry";
    case End::barrier: return "a barrier";
    case End::other: return "memory";
    }
    return "?";
}

const char* notice_name(uint8_t type) noexcept
{
    switch (type) {
    case UTOFU_MRQ_TYPE_LCL_PUT: return "own put";
    case UTOFU_MRQ_TYPE_LCL_GET: return "own get";
    case UTOFU_MRQ_TYPE_LCL_ARMW: return "own armw";
    case UTOFU_MRQ_TYPE_RMT_PUT: return "put";
    case UTOFU_MRQ_TYPE_RMT_GET: return "get";
    case UTOFU_MRQ_TYPE_RMT_ARMW: return "armw";
    default: return "notice";
    }
}

} // namespace tofu::sim::trace
