// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The driver: starts the transports and makes them run the same cases in turn; prints medians, spread and ratios. Run
// by bench/run and by hand.
#include "frame/cores.h"
#include "frame/report.h"
#include "frame/team.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string>
#include <vector>

namespace tofu::bench {
namespace {

struct Options {
    const char* library = "libtofucom.so";
    std::string providers = "tofu,shm,tcp;ofi_rxm";
    const char* json = nullptr;
    const char* samples = nullptr;
    const char* only = "";
    std::string sharing; ///< empty: the usual placement, and rows of the others
    int rounds = 7;
    double sample_ns = 8e6;
    double seconds = 240; ///< of the whole run; rounds are left out where it would take longer
    std::size_t most_bytes = ~std::size_t{0};
};

int usage(int code)
{
    std::fprintf(
        code ? stderr : stdout,
        "usage: bench [--case WORD] [--rounds N] [--sample-ms N] [--seconds N] [--max-bytes N] "
        "[--quick]\n"
        "             [--sharing WHAT]\n"
        "             [--utofu LIBRARY] [--providers a,b,...] [--samples FILE] [--json FILE]\n"
        "Measures the limits of the machine, raw uTofu calls and libfabric providers (default "
        "tofu,shm,tcp;ofi_rxm)\n"
        "in turn and prints medians; behind ± half the distance of the quartiles; in brackets how "
        "many times as\n"
        "good \"tofu\" is.\n"
        "  --case WORD      only cases whose name or section has WORD in it; --case list: their "
        "names\n"
        "  --sharing WHAT   two sides have processors that share this, and not less: --sharing list\n"
        "                   (default: distinct cores with the nearest common cache; a few rows of the others)\n"
        "  --seconds N      of all together (default 240): slow rows get fewer rounds\n"
        "  --quick          one short round, few sizes\n"
        "  --samples FILE   every sample, for bench/report\n");
    return code;
}

int list_cases()
{
    for (const Case& c : cases())
        std::printf("%-20s %s\n", c.section, c.name);
    return 0;
}

bool parse(int argc, char** argv, Options& o, int& code)
{
    for (int i = 1; i < argc; ++i) {
        std::string option = argv[i];
        if (option == "--quick") {
            o.rounds = 1;
            o.sample_ns = 2e5;
            o.seconds = 20;
            o.most_bytes = std::size_t{1} << 20;
            continue;
        }
        if (option == "--help" || i + 1 >= argc) {
            code = usage(option == "--help" ? 0 : 2);
            return false;
        }
        const char* value = argv[++i];
        if (option == "--utofu")
            o.library = value;
        else if (option == "--providers")
            o.providers = value;
        else if (option == "--rounds")
            o.rounds = std::max(1, std::atoi(value));
        else if (option == "--sample-ms")
            o.sample_ns = std::max(0.01, std::atof(value)) * 1e6;
        else if (option == "--seconds")
            o.seconds = std::atof(value);
        else if (option == "--max-bytes")
            o.most_bytes = std::size_t(std::atoll(value));
        else if (option == "--json")
            o.json = value;
        else if (option == "--samples")
            o.samples = value;
        else if (option == "--case")
            o.only = value;
        else if (option == "--sharing")
            o.sharing = value;
        else {
            code = usage(2);
            return false;
        }
    }
    return true;
}

bool wanted(const Case& c, std::size_t size, const Options& o)
{
    return (std::strstr(c.name, o.only) != nullptr || std::strstr(c.section, o.only) != nullptr) && size >= c.first &&
           size <= c.last && size <= std::max(o.most_bytes, c.first);
}

struct Row {
    const Case* what;
    std::size_t size;
    const Placement* placement; ///< null: the usual one
};

// One row: all teams in turn, round by round, until there are enough or it is late; one at least.
std::vector<Series> measure(std::list<Team>& teams, bool pinned, const Row& row, const Options& o, double until_ns)
{
    const Case& c = *row.what;
    std::vector<Series> all;
    std::vector<std::size_t> iterations;
    for (Team& team : teams) {
        team.place(row.placement);
        iterations.push_back(team.calibrate(c, row.size, o.sample_ns));
        all.push_back({c.section,
                       c.name,
                       row.size,
                       c.sides,
                       unit_name(c.unit),
                       team.name(),
                       {},
                       pinned ? sharing_name(team.placement().sharing) : ""});
    }
    for (int round = 0; round < o.rounds && (round == 0 || now_ns() < until_ns); ++round) {
        std::size_t i = 0;
        for (Team& team : teams) {
            if (iterations[i] > 0)
                all[i].samples.push_back(team.run(c, row.size, iterations[i]));
            ++i;
        }
    }
    return all;
}

// What is measured once for each kind of sharing that the machine has: time and bandwidth.
bool shows_sharing(const Case& c, std::size_t size)
{
    return ((c.id == write_latency || c.id == tagged_latency) && size == 8) ||
           ((c.id == write_bandwidth || c.id == tagged_bandwidth) && size == std::size_t{1} << 20);
}

std::vector<Row> rows_of(const Options& o, const Placement* chosen, const std::vector<Placement>& others)
{
    std::vector<Row> rows;
    auto add = [&](const Case& c, std::size_t size) {
        if (!wanted(c, size, o))
            return;
        rows.push_back({&c, size, c.sides == 2 ? chosen : nullptr});
        if (chosen == nullptr && shows_sharing(c, size))
            for (const Placement& other : others)
                rows.push_back({&c, size, &other});
    };
    for (const Case& c : cases()) {
        if (c.first == 0)
            add(c, 0);
        for (std::size_t size : sizes())
            add(c, size);
    }
    return rows;
}

// The placements of two sides, the usual one first.
std::vector<Placement> placements(const Cores& cores)
{
    std::vector<Placement> all = cores.placements(2);
    const Sharing usual = cores.usual(2).sharing;
    std::stable_partition(all.begin(), all.end(), [&](auto& p) { return p.sharing == usual; });
    return all;
}

// Also the words of --sharing; a line of the table of conditions each.
int list_placements()
{
    const Cores cores;
    const char* what = "two sides share";
    for (const Placement& placement : placements(cores)) {
        std::printf("%s\t%s\n", what, placement.text().c_str());
        what = "some rows also";
    }
    return 0;
}

/// All transports that the options name, each with its processes.
std::list<Team> start_teams(const Options& o, const Cores& cores, const Placement* chosen)
{
    std::list<Team> teams;
    teams.emplace_back("memory", make_memory, cores);
    teams.emplace_back("process_vm", make_process_vm, cores);
    teams.emplace_back(
        "utofu", [&o] { return make_utofu(o.library); }, cores);
    for (std::size_t at = 0; at < o.providers.size();) {
        std::size_t comma = std::min(o.providers.find(',', at), o.providers.size());
        std::string name = o.providers.substr(at, comma - at);
        teams.emplace_back(
            name, [name] { return make_fabric(name.c_str()); }, cores);
        at = comma + 1;
    }
    for (Team& team : teams) {
        team.place(chosen);
        team.start();
    }
    return teams;
}

int run(const Options& o)
{
    const Cores cores;
    std::vector<Placement> others = placements(cores);
    const Placement* chosen = nullptr;
    if (!cores.can_pin())
        std::fputs("bench: hwloc does not describe this machine: sides are neither pinned nor compared by shared "
                   "caches (unset HWLOC_XMLFILE and HWLOC_SYNTHETIC)\n",
                   stderr);
    if (!o.sharing.empty()) {
        const auto found =
            std::find_if(others.begin(), others.end(), [&](auto& p) { return sharing_name(p.sharing) == o.sharing; });
        if (found == others.end()) {
            std::fprintf(stderr, "bench: no two processors of this machine share only %s: see --sharing list\n",
                         o.sharing.c_str());
            return 2;
        }
        chosen = &*found;
    } else {
        others.erase(others.begin(), cores.can_pin() ? others.begin() + 1 : others.end());
    }
    std::list<Team> teams = start_teams(o, cores, chosen);
    std::FILE* samples = o.samples != nullptr ? std::fopen(o.samples, "w") : nullptr;
    std::vector<Series> all;
    const char* section = "";
    std::vector<Series> part;
    auto flush = [&] {
        if (!part.empty())
            write_tables(stdout, part, Style::text);
        std::fflush(stdout);
        part.clear();
    };
    auto rows = rows_of(o, chosen, others);
    double start = now_ns(), pace = o.seconds * 1e9 / double(std::max<std::size_t>(rows.size(), 1));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const char* const next = rows[i].what->section;
        if (std::strcmp(section, next) != 0)
            flush();
        section = next;
        // What earlier rows left of their time is there for the later ones.
        for (Series& series : measure(teams, cores.can_pin(), rows[i], o, start + pace * double(i + 1))) {
            if (samples != nullptr && !series.samples.empty()) {
                write_series(samples, series);
                std::fflush(samples);
            }
            part.push_back(series);
            all.push_back(std::move(series));
        }
    }
    flush();
    if (samples != nullptr)
        std::fclose(samples);
    if (o.json != nullptr) {
        std::FILE* json = std::fopen(o.json, "w");
        if (json == nullptr) {
            std::perror(o.json);
            return 1;
        }
        write_json(json, all);
        std::fclose(json);
    }
    return all.empty() ? 1 : 0;
}

} // namespace
} // namespace tofu::bench

int main(int argc, char** argv)
{
    tofu::bench::Options options;
    int code = 0;
    if (!tofu::bench::parse(argc, argv, options, code))
        return code;
    if (std::strcmp(options.only, "list") == 0)
        return tofu::bench::list_cases();
    if (options.sharing == "list")
        return tofu::bench::list_placements();
    unsetenv("FI_PROVIDER");
    return tofu::bench::run(options);
}
