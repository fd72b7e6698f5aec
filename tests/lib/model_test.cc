// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The search for models finds what is wrong, what is stuck and what goes round for ever.
#include "model.h"

#include <gtest/gtest.h>

namespace tofu::test {
namespace {

/// Two that want two locks each, and take them in the orders given.
struct Locks {
    std::uint8_t holder[2]; ///< 0: free, else 1 + number of the holder
    std::uint8_t at[2];     ///< steps done: 2 locks, then both are given back
};

Verdict two_locks(bool same_order, bool gives_up)
{
    return search(
        Locks{},
        [&](const Locks& now, auto emit) {
            for (std::uint8_t who = 0; who < 2; who++) {
                const unsigned lock = (now.at[who] + (same_order ? 0 : who)) % 2;
                Locks next = now;
                if (now.at[who] < 2 && now.holder[lock] == 0) {
                    next.holder[lock] = static_cast<std::uint8_t>(1 + who);
                    next.at[who]++;
                    emit(who == 0 ? "A locks" : "B locks", next);
                } else if (now.at[who] == 2 || (gives_up && now.at[who] == 1)) {
                    for (auto& holder : next.holder)
                        if (holder == 1 + who)
                            holder = 0;
                    next.at[who] = now.at[who] == 2 ? 3 : 0;
                    emit(who == 0 ? "A unlocks" : "B unlocks", next);
                }
            }
        },
        [](const Locks& now) -> const char* { return now.at[0] == 2 && now.at[1] == 2 ? "both inside" : nullptr; },
        [](const Locks& now) { return now.at[0] == 3 && now.at[1] == 3; });
}

TEST(Model, FindsNothingWhereNothingIs)
{
    EXPECT_EQ(two_locks(true, false).wrong, "");
    EXPECT_EQ(two_locks(false, true).wrong, "");
    EXPECT_EQ(two_locks(true, false).ends, 1u);
}

TEST(Model, FindsADeadlockByTheShortestWay)
{
    EXPECT_EQ(two_locks(false, false).wrong, "no way out\n  A locks\n  B locks");
}

TEST(Model, FindsWhatIsWrongAndLoopsWithoutAnEnd)
{
    struct Count {
        std::uint64_t n;
    };
    const auto round = [](const Count& now, auto emit) { emit("next", Count{(now.n + 1) % 5}); };
    EXPECT_EQ(search(
                  Count{}, round, [](const Count& c) { return c.n == 2 ? "two" : nullptr; },
                  [](const Count&) { return true; })
                  .wrong,
              "two\n  next\n  next");
    EXPECT_EQ(search(
                  Count{}, round, [](const Count&) -> const char* { return nullptr; },
                  [](const Count& c) { return c.n == 7; })
                  .wrong,
              "no way out");
}

} // namespace
} // namespace tofu::test
