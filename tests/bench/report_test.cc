// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Medians, ratios, bars and files of the benchmarks' report.
#include "frame/bars.h"
#include "frame/case.h"
#include "frame/report.h"
#include "frame/samples.h"
#include "wellformed.h"

#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace tofu::bench {
namespace {

Series series(const char* name, std::size_t bytes, const char* unit, const char* transport, std::vector<double> samples)
{
    return {"Section", name, bytes, 2, unit, transport, std::move(samples), ""};
}

template <class F>
std::string written(F&& f)
{
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* file = open_memstream(&text, &size);
    f(file);
    std::fclose(file);
    std::string result(text, size);
    std::free(text);
    return result;
}

std::vector<Series> some()
{
    return {series("write, seen by the polling target", 8, "ns", "memory", {100, 110, 90}),
            series("write, seen by the polling target", 8, "ns", "utofu", {150, 121, 99}),
            series("write, seen by the polling target", 64, "ns", "utofu", {151, 155, 153}),
            series("write bandwidth", 1 << 20, "MiB/s", "tofu", {9000, 11000, -1}),
            series("a name with \"quotes\" \\ and a <tag>", 0, "ns", "tcp;ofi_rxm", {1})};
}

TEST(BenchFigure, IsTheMedianWithQuartilesAndIgnoresFailedSamples)
{
    Figure figure = figure_of({5, -1, 1, 3, 2, 4});
    EXPECT_EQ(figure.median, 3);
    EXPECT_EQ(figure.low, 2);
    EXPECT_EQ(figure.high, 4);
    EXPECT_FALSE(figure_of({-1, -1}).valid());
    EXPECT_FALSE(figure_of({}).valid());
}

TEST(BenchRatio, ComparesSamplesOfTheSameRound)
{
    // The machine was twice as slow in the second round: medians alone would say 1.5.
    EXPECT_EQ(ratio_of({10, 20, 30}, {10, 20, 30}).median, 1);
    EXPECT_EQ(ratio_of({20, 80, 20}, {10, 40, 10}).median, 2);
    EXPECT_EQ(ratio_of({20, 20, -1}, {10, 10, 1}).median, 2);
    EXPECT_EQ(ratio_of({30}, {10, 15, 20}).median, 2) << "different runs: the medians";
}

TEST(BenchSamples, SurviveTheFileAndJoinThoseOfAnotherRun)
{
    std::string path = testing::TempDir() + "/bench_samples_" + std::to_string(getpid());
    std::FILE* file = std::fopen(path.c_str(), "w");
    std::fputs("what a program says besides\n", file);
    for (int run = 0; run < 2; ++run)
        for (const Series& s : some())
            write_series(file, s);
    std::fclose(file);
    std::vector<Series> all;
    ASSERT_TRUE(read_series(path.c_str(), all));
    std::remove(path.c_str());
    ASSERT_EQ(all.size(), some().size());
    EXPECT_EQ(all[1].name, "write, seen by the polling target");
    EXPECT_EQ(all[1].transport, "utofu");
    EXPECT_EQ(all[1].bytes, 8u);
    EXPECT_EQ(all[1].samples, (std::vector<double>{150, 121, 99, 150, 121, 99}));
    EXPECT_FALSE(read_series("/no/such/file", all));
}

TEST(BenchBars, AreJudgedByTheMedianOfPairwiseRatios)
{
    int judged = 0;
    for (const BarResult& result : judge_bars(some()))
        if (std::string(result.bar->text) == "8-byte put seen by the target / cache line") {
            EXPECT_NEAR(result.figure.median, 1.1, 1e-9);
            EXPECT_TRUE(result.met);
            ++judged;
        } else if (std::string(result.bar->text) == "fetch add, shm / ours") {
            EXPECT_FALSE(result.figure.valid()) << "not measured is not met";
            EXPECT_FALSE(result.met);
            ++judged;
        }
    EXPECT_EQ(judged, 2);
}

TEST(BenchBars, NameCasesThatThereAre)
{
    // Bars of the transports' cases: a case renamed must not silently leave its bar unmeasured.
    for (const BarResult& result : judge_bars({}))
        for (const Bar::Operand* operand : {&result.bar->over, &result.bar->under}) {
            std::string transport = operand->transport;
            if (operand->name == nullptr || (transport != "utofu" && transport != "shm" && transport != "memory"))
                continue;
            bool found = false;
            for (const Case& c : cases())
                found = found || c.name == std::string(operand->name);
            EXPECT_TRUE(found) << operand->name;
        }
}

TEST(BenchJson, IsJson)
{
    std::string text = written([](std::FILE* file) { write_json(file, some()); });
    EXPECT_TRUE(test::JsonReader(text).whole()) << text;
    EXPECT_NE(text.find("\\\"quotes\\\""), std::string::npos);
    EXPECT_FALSE(test::JsonReader("{\"a\": 01}").whole());
    EXPECT_FALSE(test::JsonReader("[1, 2").whole());
}

TEST(BenchPlot, IsXmlAndHasACurveForEachTransportMeasured)
{
    std::string text = written([](std::FILE* file) { write_plot(file, some()); });
    EXPECT_TRUE(test::is_xml(text)) << text;
    EXPECT_NE(text.find("<polyline"), std::string::npos);
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("inf"), std::string::npos);
    EXPECT_TRUE(test::is_xml(written([](std::FILE* file) { write_plot(file, {}); })));
    EXPECT_FALSE(test::is_xml("<a><b></a></b>"));
}

TEST(BenchTables, ShowMediansSpreadAndRatios)
{
    std::vector<Series> all = {series("x", 8, "ns", "tofu", {10, 10, 10}), series("x", 8, "ns", "shm", {40, 42, 38}),
                               series("y", 8, "M/s", "tofu", {10, 10, 10}), series("y", 8, "M/s", "shm", {40, 40, 40})};
    std::string text = written([&](std::FILE* file) { write_tables(file, all, Style::markdown); });
    EXPECT_NE(text.find("| x | 8 B | ns | 10 ±0% | 40 ±3% (4.00x) |"), std::string::npos) << text;
    EXPECT_NE(text.find("| y | 8 B | M/s | 10 ±0% | 40 ±0% (0.25x) |"), std::string::npos) << text;
}

TEST(BenchSharing, KeepsRowsApartAndIsNotCompared)
{
    const char* put = "write, seen by the polling target";
    std::vector<Series> all = {series(put, 8, "ns", "tofu", {10}), series(put, 8, "ns", "shm", {40}),
                               series(put, 8, "ns", "tofu", {100})};
    all[0].sharing = all[1].sharing = "L2";
    all[2].sharing = "the machine";
    std::string text = written([&](std::FILE* file) { write_tables(file, all, Style::markdown); });
    EXPECT_NE(text.find("sharing L2 | 8 B | ns | 10 | 40 (4.00x) |"), std::string::npos) << text;
    EXPECT_NE(text.find("sharing the machine | 8 B | ns | 100 | - |"), std::string::npos) << text;
    EXPECT_NE(find(all, put, 8, "shm", 0, &all[0]), nullptr);
    EXPECT_EQ(find(all, put, 8, "shm", 0, &all[2]), nullptr) << "taken on other processors";

    std::string path = testing::TempDir() + "/bench_sharing_" + std::to_string(getpid());
    std::FILE* file = std::fopen(path.c_str(), "w");
    for (const Series& s : all)
        write_series(file, s);
    std::fclose(file);
    std::vector<Series> again;
    ASSERT_TRUE(read_series(path.c_str(), again));
    std::remove(path.c_str());
    ASSERT_EQ(again.size(), 3u);
    EXPECT_EQ(again[2].sharing, "the machine");
    EXPECT_EQ(again[2].samples, std::vector<double>{100}) << "not joined with those of another placement";
}

} // namespace
} // namespace tofu::bench
