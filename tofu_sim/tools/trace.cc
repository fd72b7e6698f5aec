// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// tofu-sim trace: puts the traces of a job's processes together and turns them into something to look at.
#include "pictures/pictures.h"
#include "tools/command.h"
#include "tools/output.h"
#include "traces/exports.h"
#include "traces/files.h"
#include "traces/part.h"
#include "traces/summary.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sys/stat.h>
#include <utility>

namespace tofu::sim::tools {
namespace {

struct TraceOptions {
    const char* json = nullptr;
    const char* otf2 = nullptr;
    const char* goal = nullptr;
    const char* svg = nullptr;
    const char* html = nullptr;
    const char* counters = nullptr;
    const char* channel_buffer = nullptr;
    const char* from = nullptr;
    const char* to = nullptr;
    uint32_t buffer = figures::channel_buffer;
    std::vector<std::string> paths;

    [[nodiscard]] bool nothing_to_write() const noexcept
    {
        return json == nullptr && otf2 == nullptr && goal == nullptr && svg == nullptr && html == nullptr &&
               counters == nullptr;
    }
};

int complain(const std::string& what)
{
    std::fprintf(stderr, "tofu-sim: %s\n", what.c_str());
    return exit_failure;
}

int parse(std::span<char* const> words, TraceOptions& options)
{
    struct Option {
        const char* name;
        const char*& value;
    };
    const Option known[] = {{"--json", options.json},
                            {"--otf2", options.otf2},
                            {"--goal", options.goal},
                            {"--svg", options.svg},
                            {"--html", options.html},
                            {"--counters", options.counters},
                            {"--channel-buffer", options.channel_buffer},
                            {"--from", options.from},
                            {"--to", options.to}};
    for (size_t i = 0; i < words.size(); i++) {
        const std::string_view word = words[i];
        if (word[0] != '-' || word == "-") {
            if (const std::string problem = add_trace_files(words[i], options.paths); !problem.empty())
                return complain(problem);
            continue;
        }
        const size_t equals = word.find('=');
        const auto* const option = std::find_if(std::begin(known), std::end(known),
                                                [&](const Option& o) { return word.substr(0, equals) == o.name; });
        if (option == std::end(known)) {
            std::fprintf(stderr, "tofu-sim: trace: unknown option %s: see tofu-sim --help\n", words[i]);
            return exit_usage;
        }
        if (equals != std::string_view::npos) {
            option->value = words[i] + equals + 1;
        } else if (i + 1 < words.size()) {
            option->value = words[++i];
        } else {
            std::fprintf(stderr, "tofu-sim: %s: its value is missing\n", option->name);
            return exit_usage;
        }
    }
    if (const char* const text = options.channel_buffer; text != nullptr) {
        const auto [end, error] = std::from_chars(text, text + std::strlen(text), options.buffer);
        if (error != std::errc() || *end != '\0' || options.buffer > most_channel_buffer) {
            std::fprintf(stderr, "tofu-sim: --channel-buffer: %s\n", channel_buffer_expected);
            return exit_usage;
        }
    }
    if (options.paths.empty()) {
        std::fputs("tofu-sim: trace needs the files of TOFU_SIM_TRACE, or their directory\n", stderr);
        return exit_usage;
    }
    return 0;
}

/// "250us" in nanoseconds; without a unit, microseconds. Nothing for any other text.
std::optional<uint64_t> parse_time(std::string_view text)
{
    constexpr std::pair<std::string_view, double> units[] = {
        {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"", 1e3}};
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
    const auto* const unit =
        std::find_if(std::begin(units), std::end(units), [&](const auto& u) { return u.first == rest; });
    constexpr double longest = 1e18;
    if (error != std::errc() || unit == std::end(units) || !(value >= 0 && value * unit->second <= longest))
        return std::nullopt;
    return static_cast<uint64_t>(value * unit->second);
}

/// Cuts the run to the part that is asked for; times are those since the first message between processes. Empty, or
/// what is wrong. `note`: which part it is.
std::string take_part(const TraceOptions& options, trace::Run& run, std::string& note)
{
    const uint64_t zero = trace::first_message(run);
    const uint64_t whole = run.length;
    const bool all = options.from != nullptr && std::strcmp(options.from, "start") == 0;
    std::optional<uint64_t> from = 0, to = whole - zero;
    if (options.from != nullptr && !all)
        from = parse_time(options.from);
    if (options.to != nullptr)
        to = parse_time(options.to);
    if (!from || !to) {
        return std::string(from ? "--to " : "--from ") + (from ? options.to : options.from) +
               ": use a time such as 1.5ms, 200us or 3s" + (from ? "" : ", or start");
    }
    if (*from >= *to || *from >= whole - zero) {
        return "--from must be earlier than --to and than the end of the run, which is " + time_text(whole - zero) +
               " after the first message";
    }
    const uint64_t begin = all ? 0 : zero + *from;
    const uint64_t end = std::min(whole, zero + *to);
    const bool first = !all && *from == 0 && zero != 0;
    if (begin != 0 || end != whole) {
        note = "from " +
               (first ? std::string("the first message between processes")
                : all ? "the start"
                      : time_text(*from)) +
               " to " + (end == whole ? std::string("the end") : time_text(end - zero)) + ": " +
               time_text(end - begin) + " of a run of " + time_text(whole) +
               (zero != 0 && first ? "; --from start shows all" : "");
        trace::cut(run, begin, end);
    }
    return {};
}

/// Into a directory, which is made if need be.
std::string write_pictures(const trace::Run& run, const std::string& directory)
{
    if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
        return "cannot create " + directory + ": " + std::strerror(errno);
    const std::pair<const char*, std::string> pictures[] = {{"network", draw_network(network_of(run))},
                                                            {"timeline", draw_timeline(run)},
                                                            {"waits", draw_waits(run)},
                                                            {"sizes", draw_sizes(run)}};
    for (const auto& [name, picture] : pictures) {
        const auto write = [&picture = picture](std::FILE* to) { std::fputs(picture.c_str(), to); };
        if (const std::string problem = write_file(directory + "/" + name + ".svg", write); !problem.empty())
            return problem;
    }
    return {};
}

} // namespace

int trace_command(std::span<char* const> words)
{
    TraceOptions options;
    if (const int status = parse(words, options); status != 0)
        return status;
    trace::Run run;
    std::vector<std::string> warnings;
    if (const std::string problem = trace::read_run(options.paths, run, warnings); !problem.empty())
        return complain(problem);
    for (const std::string& warning : warnings)
        std::fprintf(stderr, "tofu-sim: %s\n", warning.c_str());
    std::string note;
    if (const std::string wrong = take_part(options, run, note); !wrong.empty()) {
        std::fprintf(stderr, "tofu-sim: %s\n", wrong.c_str());
        return exit_usage;
    }
    if (!note.empty())
        warnings.push_back("A part: " + note);
    std::string problem;
    const auto to_file = [&](const char* name, auto&& write) {
        if (name != nullptr && problem.empty())
            problem = write_file(name, write);
    };
    to_file(options.json, [&](std::FILE* to) { write_chrome(run, to); });
    to_file(options.goal, [&](std::FILE* to) { write_goal(run, to); });
    if (options.otf2 != nullptr && problem.empty())
        problem = write_otf2(run, options.otf2);
    to_file(options.counters, [&](std::FILE* to) {
        LinkLoads loads = loads_of(run);
        add_credit(run, loads, options.buffer);
        print_counters(run.topology, loads, true, to);
    });
    to_file(options.html, [&](std::FILE* to) { write_page(run, warnings, to); });
    if (options.svg != nullptr && problem.empty())
        problem = write_pictures(run, options.svg);
    if (!problem.empty())
        return complain(problem);
    if (options.nothing_to_write()) {
        print_summary(run, stdout);
        if (!note.empty())
            std::printf("%s\n", note.c_str());
    }
    return 0;
}

} // namespace tofu::sim::tools
