// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Barrier circuits as the provider wires them: what gates combine, and whether they can be allocated again. See
// checks.h.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "checks.h"

namespace tofu::check {
namespace {

bool has_gates(const Library& u)
{
#define X(name) &&u.name != nullptr
    return true TOFU_CHECK_GATE_FUNCTIONS(X);
#undef X
}

/// Two members of one node: the first combines the input of the second (gate 1) and sends it the result, the second has
/// a start/end gate alone. In this circuit are all forms that the provider's have: gates without a signal, without a
/// packet.
class Pair {
  public:
    explicit Pair(Side& side) : side_(side)
    {
        utofu_tni_id_t* tnis = nullptr;
        std::size_t count = 0;
        must(side.u.get_barrier_tnis(&tnis, &count), "utofu_get_barrier_tnis");
        const utofu_tni_id_t tni = count != 0 ? tnis[0] : 0;
        std::free(tnis);
        must(side.u.alloc_vbg(tni, 2, 0, first_), "utofu_alloc_vbg");
        must(side.u.alloc_vbg(tni, 1, 0, second_), "utofu_alloc_vbg");
        const utofu_vbg_id_t none = UTOFU_VBG_ID_NULL;
        const std::uint8_t any = UTOFU_PATH_COORD_NULL;
        utofu_vbg_setting of_first[] = {{first_[0], first_[1], none, first_[1], none, {any, 0, 0}},
                                        {first_[1], first_[0], second_[0], first_[0], second_[0], {any, 0, 0}}};
        utofu_vbg_setting of_second[] = {{second_[0], none, first_[1], none, first_[1], {any, 0, 0}}};
        must(side.u.set_vbg(of_first, 2), "utofu_set_vbg");
        must(side.u.set_vbg(of_second, 1), "utofu_set_vbg");
    }
    ~Pair()
    {
        (void)side_.u.free_vbg(first_, 2);
        (void)side_.u.free_vbg(second_, 1);
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    /// Both results are the same, and come; nothing else is an answer.
    std::optional<std::uint64_t> integers(utofu_reduce_op op, std::uint64_t a, std::uint64_t b)
    {
        must(side_.u.reduce_uint64(first_[0], op, &a, 1, 0), "utofu_reduce_uint64");
        must(side_.u.reduce_uint64(second_[0], op, &b, 1, 0), "utofu_reduce_uint64");
        std::uint64_t x = 0, y = 0;
        const bool good = ends([&] { return side_.u.poll_reduce_uint64(first_[0], 0, &x); }) &&
                          ends([&] { return side_.u.poll_reduce_uint64(second_[0], 0, &y); }) && x == y;
        return good ? std::optional(x) : std::nullopt;
    }
    std::optional<double> numbers(double a, double b)
    {
        must(side_.u.reduce_double(first_[0], UTOFU_REDUCE_OP_BFPSUM, &a, 1, 0), "utofu_reduce_double");
        must(side_.u.reduce_double(second_[0], UTOFU_REDUCE_OP_BFPSUM, &b, 1, 0), "utofu_reduce_double");
        double x = 0, y = 0;
        const bool good = ends([&] { return side_.u.poll_reduce_double(first_[0], 0, &x); }) &&
                          ends([&] { return side_.u.poll_reduce_double(second_[0], 0, &y); }) &&
                          std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
        return good ? std::optional(x) : std::nullopt;
    }
    bool barrier()
    {
        must(side_.u.barrier(first_[0], 0), "utofu_barrier");
        const bool alone = side_.u.poll_barrier(first_[0], 0) == UTOFU_SUCCESS;
        must(side_.u.barrier(second_[0], 0), "utofu_barrier");
        return !alone && ends([&] { return side_.u.poll_barrier(first_[0], 0); }) &&
               ends([&] { return side_.u.poll_barrier(second_[0], 0); });
    }

  private:
    template <class Poll>
    static bool ends(Poll&& poll)
    {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
        int code = poll();
        while (code == UTOFU_ERR_NOT_COMPLETED && std::chrono::steady_clock::now() < until)
            code = poll();
        return code == UTOFU_SUCCESS;
    }

    Side& side_;
    utofu_vbg_id_t first_[2] = {};
    utofu_vbg_id_t second_[1] = {};
};

Finding gates(Side& side)
{
    if (!has_gates(side.u))
        return weaker("not exported: collectives work by Puts");
    Pair pair(side);
    if (!pair.barrier())
        return fails("a barrier of two processes ends early, or not within 2 s");
    constexpr std::uint64_t a = 0xf0f0'0000'0000'0001, b = 0xff00'0000'0000'0003;
    const struct {
        utofu_reduce_op op;
        std::uint64_t result;
    } wanted[] = {{UTOFU_REDUCE_OP_BAND, a & b},
                  {UTOFU_REDUCE_OP_BOR, a | b},
                  {UTOFU_REDUCE_OP_BXOR, a ^ b},
                  {UTOFU_REDUCE_OP_MAX, b},
                  {UTOFU_REDUCE_OP_SUM, a + b}};
    for (const auto& [op, result] : wanted)
        if (pair.integers(op, a, b) != result)
            return fails("operation %d of two integers has a wrong result", static_cast<int>(op));
    if (pair.numbers(0.1, 0.2) != 0.1 + 0.2 || pair.numbers(-1.5, 1.5) != 0.0)
        return fails("the sum of two doubles is wrong");
    using L = std::numeric_limits<double>;
    const auto nan = pair.numbers(L::quiet_NaN(), 1);
    const auto both = pair.numbers(L::infinity(), -L::infinity());
    const auto zero = pair.numbers(-0.0, -0.0);
    if (!nan || !both || !zero)
        return fails("sums of NaN, infinity or -0 do not end, or differ between members");
    if (!std::isnan(*nan) || !std::isnan(*both) || !std::signbit(*zero) ||
        pair.numbers(L::infinity(), 1) != L::infinity() ||
        pair.numbers(L::denorm_min(), L::denorm_min()) != 2 * L::denorm_min())
        return weaker("NaN + 1 = %g, inf - inf = %g, -0 + -0 = %g", *nan, *both, *zero);
    return holds("barrier, five operations on integers, sums of doubles");
}

Finding again(Side& side)
{
    if (!has_gates(side.u))
        return weaker("not exported: collectives work by Puts");
    for (int i = 0; i < 100; i++) {
        Pair pair(side);
        if (!pair.barrier())
            return fails("the barrier of circuit %d does not end", i + 1);
    }
    return holds("100 consecutive circuits");
}

constexpr Check list[] = {
    {"gates", "barrier gates combine as the guide describes, also without a signal or a packet", "coll/group", 1,
     gates},
    {"gates-again", "freed gates can form another circuit", "coll/group", 1, again},
};

} // namespace

std::span<const Check> gate_checks()
{
    return list;
}

} // namespace tofu::check
