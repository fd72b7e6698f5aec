// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What communications take here, beside what was published of Tofu-D (docs/fugaku.md). Judges nothing. See checks.h.
#include <algorithm>
#include <chrono>

#include "checks.h"

namespace tofu::check {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start, unsigned n)
{
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / n;
}
/// The middle one of nine samples.
template <class Sample>
double median(Sample&& sample)
{
    double values[9];
    for (double& value : values)
        value = sample();
    std::nth_element(values, values + 4, values + 9);
    return values[4];
}

constexpr std::size_t largest = std::size_t{1} << 20;

/// One line for each figure, beside what is published.
void note(Finding& lines, const char* what, double value, const char* unit, const char* published)
{
    lines.seen += text("%-34s %9.3f %-5s (%s)\n", what, value, unit, published);
}

/// A Put of 8 bytes and its answer, in turn, in microseconds each.
double one_way(Link& link, bool is_first)
{
    constexpr unsigned n = 200;
    std::uint64_t turn = 0;
    return median([&] {
        const auto start = Clock::now();
        for (unsigned i = 0; i < n; i++) {
            turn++;
            if (is_first) {
                link.put_word(turn, 0, strong);
                link.await(0, turn, "a Put's answer");
            } else {
                link.await(0, turn, "a Put");
                link.put_word(turn, 0, strong);
            }
        }
        return since(start, 2 * n);
    });
}

template <class Post>
double round_trip(Link& link, Post&& post)
{
    constexpr unsigned n = 200;
    return median([&] {
        const auto start = Clock::now();
        for (unsigned i = 0; i < n; i++) {
            post();
            (void)link.vcq.must_mrq();
        }
        return since(start, n);
    });
}

double call_of_put(Link& link)
{
    constexpr unsigned n = 200;
    return median([&] {
        const auto start = Clock::now();
        for (unsigned i = 0; i < n; i++)
            link.put_word(i, 64, 0);
        const double took = since(start, n);
        link.put_word(0, 64, strong | local_mrq, 1);
        (void)link.vcq.must_mrq();
        return took;
    });
}

/// GB/s of Puts, 8 under way.
double rate(Link& link, std::size_t length)
{
    return median([&] {
        const auto start = Clock::now();
        for (unsigned i = 0; i < 32; i++) {
            link.put(0, largest, length, local_mrq, 1);
            if (i >= 7)
                (void)link.vcq.must_mrq();
        }
        for (unsigned i = 0; i < 7; i++)
            (void)link.vcq.must_mrq();
        return static_cast<double>(length) / since(start, 32) / 1000;
    });
}

double registering(Link& link, std::size_t length)
{
    return median([&] {
        const auto start = Clock::now();
        for (unsigned i = 0; i < 20; i++) {
            const Memory fresh(length);
            link.vcq.dereg(link.vcq.reg(fresh.at(), length));
        }
        return since(start, 20);
    });
}

} // namespace

Finding measure(Side& side)
{
    Link link(side, 2 * largest);
    Finding lines{Verdict::holds, ""};
    const double put = one_way(link, side.rank() == 0);
    if (side.rank() == 0) {
        note(lines, "Put of 8 bytes, one way", put, "us", "Tofu-D: 0.97 to 1.13 for 1 to 3 hops");
        note(lines, "Get of 8 bytes, round trip", round_trip(link, [&] { link.get(64, 64, 8, local_mrq, 1); }), "us",
             "Tofu-D: 1.48 to 1.80");
        note(lines, "ARMW of 8 bytes, round trip",
             round_trip(link, [&] { link.armw(UTOFU_ARMW_OP_ADD, 1, 64, local_mrq, 1); }), "us",
             "Tofu-D: 1.32 to 1.63");
        note(lines, "the call of a Put of 8 bytes", call_of_put(link), "us", "Tofu-D: about 0.23");
        note(lines, "Puts of 4 KiB, 8 under way", rate(link, 4096), "GB/s", "Tofu-D: 6.2");
        note(lines, "Puts of 1 MiB, 8 under way", rate(link, largest), "GB/s", "Tofu-D: 6.3");
        note(lines, "registering 64 KiB of fresh memory", registering(link, page), "us", "Tofu-D: not published");
        note(lines, "registering 1 MiB of fresh memory", registering(link, largest), "us", "Tofu-D: not published");
        lines.seen += measure_groups(link);
    }
    link.together();
    return side.rank() == 0 ? lines : Finding{};
}

} // namespace tofu::check
