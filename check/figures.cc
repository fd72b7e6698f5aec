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

} // namespace

Finding measure(Side& side)
{
    constexpr std::size_t size = std::size_t{1} << 20;
    constexpr unsigned n = 200;
    Link link(side, 2 * size);
    Finding lines{Verdict::holds, ""};
    const auto note = [&](const char* what, double value, const char* unit, const char* published) {
        lines.seen += text("%-34s %9.3f %-5s (%s)\n", what, value, unit, published);
    };
    std::uint64_t turn = 0;
    const double one_way = median([&] {
        const auto start = Clock::now();
        for (unsigned i = 0; i < n; i++) {
            turn++;
            if (side.rank() == 0) {
                link.put_word(turn, 0, strong);
                link.await(0, turn, "a Put's answer");
            } else {
                link.await(0, turn, "a Put");
                link.put_word(turn, 0, strong);
            }
        }
        return since(start, 2 * n);
    });
    if (side.rank() == 0) {
        note("Put of 8 bytes, one way", one_way, "us", "Tofu-D: 0.97 to 1.13 for 1 to 3 hops");
        const auto round_trip = [&](auto&& post) {
            return median([&] {
                const auto start = Clock::now();
                for (unsigned i = 0; i < n; i++) {
                    post();
                    (void)link.vcq.must_mrq();
                }
                return since(start, n);
            });
        };
        note("Get of 8 bytes, round trip", round_trip([&] { link.get(64, 64, 8, local_mrq, 1); }), "us",
             "Tofu-D: 1.48 to 1.80");
        note("ARMW of 8 bytes, round trip", round_trip([&] { link.armw(UTOFU_ARMW_OP_ADD, 1, 64, local_mrq, 1); }),
             "us", "Tofu-D: 1.32 to 1.63");
        note("the call of a Put of 8 bytes", median([&] {
                 const auto start = Clock::now();
                 for (unsigned i = 0; i < n; i++)
                     link.put_word(i, 64, 0);
                 const double took = since(start, n);
                 link.put_word(0, 64, strong | local_mrq, 1);
                 (void)link.vcq.must_mrq();
                 return took;
             }),
             "us", "Tofu-D: about 0.23");
        const auto rate = [&](std::size_t length) {
            return median([&] {
                const auto start = Clock::now();
                for (unsigned i = 0; i < 32; i++) {
                    link.put(0, size, length, local_mrq, 1);
                    if (i >= 7)
                        (void)link.vcq.must_mrq();
                }
                for (unsigned i = 0; i < 7; i++)
                    (void)link.vcq.must_mrq();
                return static_cast<double>(length) / since(start, 32) / 1000;
            });
        };
        note("Puts of 4 KiB, 8 under way", rate(4096), "GB/s", "Tofu-D: 6.2");
        note("Puts of 1 MiB, 8 under way", rate(size), "GB/s", "Tofu-D: 6.3");
        const auto registering = [&](std::size_t length) {
            return median([&] {
                const auto start = Clock::now();
                for (unsigned i = 0; i < 20; i++) {
                    const Memory fresh(length);
                    link.vcq.dereg(link.vcq.reg(fresh.at(), length));
                }
                return since(start, 20);
            });
        };
        note("registering 64 KiB of fresh memory", registering(page), "us", "Tofu-D: not published");
        note("registering 1 MiB of fresh memory", registering(size), "us", "Tofu-D: not published");
        lines.seen += measure_groups(link);
    }
    link.together();
    return side.rank() == 0 ? lines : Finding{};
}

} // namespace tofu::check
