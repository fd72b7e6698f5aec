// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A run as Chrome's trace events. See exports.h.
#include "traces/exports.h"

#include <map>
#include <set>

namespace tofu::sim::tools {
namespace {

using namespace trace;

constexpr uint32_t arrivals_track = 0;

/// Text in quotes: whatever a program may be called.
std::string quoted(const std::string& text)
{
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20 || byte >= 0x7f) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", byte);
            out += code;
        } else {
            out += c;
        }
    }
    return out + '"';
}

class ChromeWriter {
  public:
    ChromeWriter(const Run& run, std::FILE* to) : run_(run), to_(to) {}

    void write()
    {
        std::fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"job\":", to_);
        std::fprintf(to_, "%s,\"clock\":\"%s\"},\n\"traceEvents\":[\n", quoted(run_.job).c_str(),
                     run_.clock == ClockKind::real ? "real" : "tofud");
        name_processes();
        for (const Computation& span : run_.computations) {
            slice(span.process, span.thread, span.began, span.ended, "compute", "compute");
            std::fputs("}", to_);
        }
        for (const Wait& wait : run_.waits)
            write_wait(wait);
        for (size_t i = 0; i < run_.transfers.size(); i++)
            write_transfer(i, run_.transfers[i]);
        for (const Notice& notice : run_.notices) {
            next();
            std::fprintf(
                to_,
                "{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"notice\",\"name\":\"notice: %s\",\"pid\":%u,\"tid\":%u,\"ts\":",
                notice_name(notice.type), notice.process, notice.thread);
            time(notice.time);
            if (notice.peer != no_index)
                std::fprintf(to_, ",\"args\":{\"from rank\":%s}", rank(notice.peer).c_str());
            std::fputs("}", to_);
        }
        size_t number = 0;
        for (const Gates& gates : run_.gates) {
            // Asynchronous: a thread does other things between start and end.
            mark("b", number, gates, gates.began);
            if (gates.ended != 0)
                mark("e", number, gates, gates.ended);
            number++;
        }
        std::fputs("\n]}\n", to_);
    }

  private:
    void next()
    {
        std::fputs(first_ ? "" : ",\n", to_);
        first_ = false;
    }
    /// Microseconds, to the nanosecond.
    void time(uint64_t ns)
    {
        std::fprintf(to_, "%llu.%03u", static_cast<unsigned long long>(ns / 1000), static_cast<unsigned>(ns % 1000));
    }
    [[nodiscard]] std::string rank(uint32_t process) const { return quoted(process_label(run_, process)); }

    /// Left open, for arguments.
    void slice(uint32_t process, uint32_t thread, uint64_t began, uint64_t ended, const char* category,
               const char* name)
    {
        next();
        std::fprintf(to_, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":", category, name,
                     process, thread);
        time(began);
        std::fputs(",\"dur\":", to_);
        time(ended > began ? ended - began : 0);
    }
    void mark(const char* phase, size_t number, const Gates& gates, uint64_t when)
    {
        next();
        std::fprintf(to_,
                     "{\"ph\":\"%s\",\"cat\":\"gates\",\"id\":%zu,\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":", phase,
                     number, round_name(gates.round), gates.process, gates.thread);
        time(when);
        std::fputs("}", to_);
    }

    void metadata(const char* name, uint32_t process, uint32_t thread, const std::string& key, const std::string& value)
    {
        next();
        std::fprintf(to_, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{\"%s\":%s}}", name, process,
                     thread, key.c_str(), value.c_str());
    }
    void name_processes()
    {
        std::map<uint32_t, std::set<uint32_t>> threads;
        for (const Computation& span : run_.computations)
            threads[span.process].insert(span.thread);
        for (const Wait& wait : run_.waits)
            threads[wait.process].insert(wait.thread);
        for (const Transfer& transfer : run_.transfers)
            threads[transfer.from].insert(transfer.thread);
        for (uint32_t i = 0; i < run_.processes.size(); i++) {
            const Process& process = run_.processes[i];
            metadata("process_name", i, 0, "name",
                     quoted("rank " + process_label(run_, i) + "  node " + node_label(run_.topology, process.node) +
                            "  " + process.name));
            metadata("process_sort_index", i, 0, "sort_index", std::to_string(i));
            metadata("thread_name", i, arrivals_track, "name", "\"arrivals\"");
            for (const uint32_t thread : threads[i])
                metadata("thread_name", i, thread, "name", quoted("thread " + std::to_string(thread)));
        }
    }

    void write_wait(const Wait& wait)
    {
        const std::string name =
            wait.awaited == no_index ? std::string("wait") : "wait for rank " + process_label(run_, wait.awaited);
        slice(wait.process, wait.thread, wait.began, wait.ended, "wait", name.c_str());
        std::fprintf(to_, ",\"args\":{\"ended by\":\"%s\"}}", end_name(wait.end));
    }

    void write_transfer(size_t number, const Transfer& transfer)
    {
        slice(transfer.from, transfer.thread, transfer.posted, transfer.returned, "post", op_name(transfer.op));
        std::fprintf(to_, ",\"args\":{\"bytes\":%u", transfer.bytes);
        if (transfer.to != no_index)
            std::fprintf(to_, ",\"to rank\":%s", rank(transfer.to).c_str());
        else if (transfer.to_node != no_index)
            std::fprintf(to_, ",\"to node\":\"%s\"", node_label(run_.topology, transfer.to_node).c_str());
        if (transfer.count != 1)
            std::fprintf(to_, ",\"in a row\":%u", transfer.count);
        std::fprintf(to_, ",\"path\":%u%s}}", transfer.path, transfer.failed ? ",\"failed\":true" : "");
        if (transfer.to == no_index || transfer.arrived == 0)
            return;
        slice(transfer.to, arrivals_track, transfer.arrived, transfer.arrived + 1, "arrival", op_name(transfer.op));
        std::fprintf(to_, ",\"args\":{\"bytes\":%u,\"from rank\":%s}}", transfer.bytes, rank(transfer.from).c_str());
        arrow("s", "", number, transfer.from, transfer.thread, transfer.posted);
        arrow("f", ",\"bp\":\"e\"", number, transfer.to, arrivals_track, transfer.arrived);
    }
    void arrow(const char* phase, const char* more, size_t number, uint32_t process, uint32_t thread, uint64_t when)
    {
        next();
        std::fprintf(
            to_, "{\"ph\":\"%s\"%s,\"cat\":\"transfer\",\"name\":\"transfer\",\"id\":%zu,\"pid\":%u,\"tid\":%u,\"ts\":",
            phase, more, number, process, thread);
        time(when);
        std::fputs("}", to_);
    }

    const Run& run_;
    std::FILE* to_;
    bool first_ = true;
};

} // namespace

std::string process_label(const Run& run, uint32_t process)
{
    const Process& own = run.processes[process];
    const bool twice = (process > 0 && run.processes[process - 1].rank == own.rank) ||
                       (process + 1 < run.processes.size() && run.processes[process + 1].rank == own.rank);
    std::string label = std::to_string(own.rank);
    if (twice) {
        label += '.';
        label += std::to_string(own.pid);
    }
    return label;
}

std::string node_label(const Topology& topology, uint32_t node)
{
    const Coords c = topology.coords_of(node);
    char text[32];
    std::snprintf(text, sizeof text, "(%u,%u,%u,%u,%u,%u)", c[0], c[1], c[2], c[3], c[4], c[5]);
    return text;
}

void write_chrome(const Run& run, std::FILE* to)
{
    ChromeWriter(run, to).write();
}

} // namespace tofu::sim::tools
