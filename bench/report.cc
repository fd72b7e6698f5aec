// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Puts together what the programs of bench/ measured: tables, bars, JSON, curves. Run by bench/run.
#include "frame/report.h"

#include <cstdio>
#include <cstring>
#include <string>

namespace {

using namespace tofu::bench;

int usage(int code)
{
    std::fprintf(code ? stderr : stdout, "usage: report [--json FILE] [--svg FILE] [--markdown FILE] SAMPLES...\n"
                                         "Prints the tables of what bench --samples and its sisters wrote.\n");
    return code;
}

template <class F>
bool write_file(const char* path, F&& f)
{
    if (path == nullptr)
        return true;
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) {
        std::perror(path);
        return false;
    }
    f(file);
    return std::fclose(file) == 0;
}

} // namespace

int main(int argc, char** argv)
{
    const char *json = nullptr, *svg = nullptr, *markdown = nullptr;
    std::vector<Series> all;
    for (int i = 1; i < argc; ++i) {
        std::string option = argv[i];
        if (option == "--help")
            return usage(0);
        const char** path = option == "--json"       ? &json
                            : option == "--svg"      ? &svg
                            : option == "--markdown" ? &markdown
                                                     : nullptr;
        if (path != nullptr && i + 1 < argc)
            *path = argv[++i];
        else if (option.starts_with("--"))
            return usage(2);
        else if (!read_series(argv[i], all))
            return 1;
    }
    if (all.empty())
        return usage(2);
    write_tables(stdout, all, Style::text);
    write_bars(stdout, all, Style::text);
    bool good = write_file(json, [&](std::FILE* file) { write_json(file, all); }) &&
                write_file(svg, [&](std::FILE* file) { write_plot(file, all); }) &&
                write_file(markdown, [&](std::FILE* file) {
                    write_tables(file, all, Style::markdown);
                    write_bars(file, all, Style::markdown);
                });
    return good ? 0 : 1;
}
