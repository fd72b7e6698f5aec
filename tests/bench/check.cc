// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Are the files of a bench/run what they should be? Run by run.sh.
//
// usage: bench_check JSON SVG WORD...     Each WORD must be in the JSON.
#include "wellformed.h"

#include <cstdio>
#include <fstream>
#include <sstream>

namespace {

std::string content(const char* path)
{
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 3)
        return 2;
    std::string json = content(argv[1]), svg = content(argv[2]);
    int failures = 0;
    auto expect = [&](bool good, const char* what) {
        if (!good) {
            std::printf("FAIL: %s\n", what);
            ++failures;
        }
    };
    expect(tofu::test::JsonReader(json).whole(), "the JSON is none");
    expect(tofu::test::is_xml(svg) && svg.find("<polyline") != std::string::npos, "the SVG is none, or empty");
    for (int i = 3; i < argc; ++i)
        expect(json.find(argv[i]) != std::string::npos, argv[i]);
    return failures != 0;
}
