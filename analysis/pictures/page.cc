// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// All pictures of a run in one HTML file. See pictures.h.
#include "pictures/pictures.h"

#include "pictures/svg.h"
#include "traces/exports.h"

#include <algorithm>

namespace tofu::sim::tools {
namespace {

using namespace trace;

/// No fetching, no script: the file is all there is.
constexpr char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>\n"
    "body{margin:0;background:#eef1f4;color:#1b1f24;font:15px/1.5 'DejaVu Sans',Verdana,sans-serif}\n"
    "main{max-width:1440px;margin:0 auto;padding:24px}\n"
    "h1{font-size:24px;margin:0 0 4px}\n"
    "p{margin:4px 0 16px;color:#57606a}\n"
    ".figures{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}\n"
    ".figures div{background:#fff;border:1px solid #c9d1d9;border-radius:8px;padding:10px 18px;min-width:120px}\n"
    ".figures b{display:block;font-size:20px}\n"
    ".figures span{color:#57606a;font-size:13px}\n"
    ".note{background:#fff4d6;border:1px solid #d9a400;border-radius:8px;padding:8px 16px;margin:8px 0;color:#1b1f24}\n"
    "figure{margin:0 0 20px;background:#fff;border:1px solid #c9d1d9;border-radius:8px;overflow-x:auto}\n"
    "svg{display:block;max-width:100%;height:auto}\n"
    "table{border-collapse:collapse;font-size:13px;margin:8px 18px 18px}\n"
    "td,th{padding:3px 14px 3px 0;text-align:right;white-space:nowrap}\n"
    "th{color:#57606a;font-weight:normal;border-bottom:1px solid #c9d1d9}\n"
    "summary{padding:12px 18px;font-weight:bold;cursor:pointer}\n"
    "@media (max-width:900px){svg{max-width:none}}\n"
    "</style>\n";

void put_figure(std::FILE* to, const std::string& value, const char* name)
{
    std::fprintf(to, "<div><b>%s</b><span>%s</span></div>\n", escaped(value).c_str(), name);
}

void put_ranks(const Run& run, std::FILE* to)
{
    const auto times = times_of(run);
    const bool many = times.size() > 64;
    std::fprintf(to,
                 "<figure><details%s><summary>Activity of each rank</summary>\n<table><tr><th>rank</th><th>node</th>"
                 "<th>time</th><th>posting</th><th>waiting</th><th>computing</th></tr>\n",
                 many ? "" : " open");
    for (uint32_t i = 0; i < times.size(); i++) {
        const double total = static_cast<double>(std::max<uint64_t>(times[i].total, 1)) / 100;
        const double posting = static_cast<double>(times[i].posting) / total;
        const double waiting = static_cast<double>(times[i].waiting) / total;
        std::fprintf(to, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%.1f %%</td><td>%.1f %%</td><td>%.1f %%</td></tr>\n",
                     process_label(run, i).c_str(), node_label(run.topology, run.processes[i].node).c_str(),
                     time_text(times[i].total).c_str(), posting, waiting, std::max(100 - posting - waiting, 0.0));
    }
    std::fputs("</table></details></figure>\n", to);
}

} // namespace

void write_page(const Run& run, const std::vector<std::string>& warnings, std::FILE* to)
{
    uint64_t bytes = 0, waited = 0, lived = 0;
    for (const Transfer& transfer : run.transfers)
        bytes += transfer.bytes;
    for (const Times& times : times_of(run)) {
        waited += times.waiting;
        lived += times.total;
    }
    const auto units = run.topology.units();
    std::fputs(page_head, to);
    std::fprintf(to, "<title>%s</title>\n</head>\n<body>\n<main>\n<h1>Job %s</h1>\n", escaped(run.job).c_str(),
                 escaped(run.job).c_str());
    std::fprintf(to, "<p>%s on %u x %u x %u units of the simulated Tofu interconnect D; times are %s</p>\n",
                 escaped(run.processes.front().name).c_str(), units[0], units[1], units[2],
                 run.clock == ClockKind::real ? "real ones of the machine that ran the simulator, not Tofu-D's."
                                              : ("Tofu-D's by the virtual clock: " + run.what_counts() + ".").c_str());
    for (const std::string& warning : warnings)
        std::fprintf(to, "<div class=\"note\">%s</div>\n", escaped(warning).c_str());
    std::fputs("<div class=\"figures\">\n", to);
    put_figure(to, count_text(run.processes.size()), "processes");
    put_figure(to, count_text(run.topology.num_nodes()), "nodes");
    put_figure(to, time_text(run.length), "from first to last");
    put_figure(to, count_text(run.transfers.size()), "operations");
    put_figure(to, bytes_text(bytes), "payload");
    char share[16];
    std::snprintf(share, sizeof share, "%.0f %%",
                  100 * static_cast<double>(waited) / static_cast<double>(std::max<uint64_t>(lived, 1)));
    put_figure(to, share, "of the time waited");
    std::fputs("</div>\n", to);
    for (const std::string& picture :
         {draw_network(network_of(run)), draw_timeline(run), draw_waits(run), draw_sizes(run)}) {
        std::fputs("<figure>\n", to);
        std::fputs(picture.c_str(), to);
        std::fputs("</figure>\n", to);
    }
    put_ranks(run, to);
    std::fputs("</main>\n</body>\n</html>\n", to);
}

} // namespace tofu::sim::tools
