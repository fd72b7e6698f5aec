// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Several initiators at once: atomicity on shared elements, and random mixes on elements of one's own that share words
// with those of others.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "../../tests/prov/atomic/oracle.h"
#include "atomic_checks.h"

namespace fabtests {
namespace {

constexpr unsigned updates = 400;

/// Adds of one by all ranks to one element of rank 0: old values are unique overall, shown by their sum and, at
/// each rank, by their growing; nothing is lost.
template <class T>
void count_up(World& w, fi_datatype type, std::size_t offset)
{
    if (!supported(w, FI_SUM, type, true))
        return;
    T one = 1, old = 0, last = 0;
    std::uint64_t sum = 0;
    bool grows = true;
    std::memcpy(w.local(0), &one, sizeof one);
    for (unsigned i = 0; i < updates / sizeof(T); ++i) {
        const Operation o{FI_SUM, type, 1, 0, offset, w.local(0), nullptr, w.local(64)};
        CHECK(w, perform(w, o, Form::plain) == 0);
        std::memcpy(&old, w.local(64), sizeof old);
        grows = grows && (i == 0 || old > last);
        last = old;
        sum += static_cast<std::uint64_t>(old);
    }
    CHECK(w, sizeof(T) == 1 || grows);
    w.shared().word[w.rank()] = sum;
    w.barrier();
    if (w.rank() == 0) {
        std::uint64_t all = 0;
        for (unsigned r = 0; r < w.ranks(); ++r)
            all += w.shared().word[r];
        const std::uint64_t n = updates / sizeof(T) * w.ranks();
        const Operation get{FI_ATOMIC_READ, type, 1, 0, offset, nullptr, nullptr, w.local(64)};
        CHECK(w, perform(w, get, Form::plain) == 0);
        T end = 0;
        std::memcpy(&end, w.local(64), sizeof end);
        CHECK(w, end == static_cast<T>(n));
        if (sizeof(T) > 1)
            CHECK(w, all == n * (n - 1) / 2);
    }
    w.barrier();
}

/// Adds of one by all ranks to many elements at a time, by each rank from another element on, some calls under way.
template <class T>
void count_up_together(World& w, fi_datatype type, std::size_t offset)
{
    if (!supported(w, FI_SUM, type, false))
        return;
    constexpr std::size_t n = 400 / sizeof(T);
    constexpr unsigned bursts = 20, burst = 4;
    std::vector<T> elements(n, 1);
    std::memcpy(w.local(0), elements.data(), n * sizeof(T));
    const std::size_t first = w.rank();
    for (unsigned i = 0; i < bursts; ++i) {
        for (unsigned k = 0; k < burst; ++k) {
            const Operation o{FI_SUM, type, n - first, 0, offset + first * sizeof(T), w.local(0), nullptr, nullptr};
            CHECK(w, post(w, o, Form::msg) == 0);
        }
        for (unsigned k = 0; k < burst; ++k)
            CHECK(w, w.wait() == 0);
    }
    w.barrier();
    const Operation get{FI_ATOMIC_READ, type, n, 0, offset, nullptr, nullptr, w.local(1024)};
    CHECK(w, perform(w, get, Form::msg) == 0);
    std::memcpy(elements.data(), w.local(1024), n * sizeof(T));
    bool complete = true;
    for (std::size_t i = 0; i < n; ++i)
        complete = complete && elements[i] == static_cast<T>(bursts * burst * std::min<std::size_t>(i + 1, w.ranks()));
    CHECK(w, complete);
    w.barrier();
}

/// A lock made of CSWAP guards a plain pair of words.
void guarded(World& w)
{
    if (!supported(w, FI_CSWAP, FI_UINT32, true))
        return;
    constexpr std::size_t lock = 1024, pair = 1040;
    const std::uint32_t mine = w.rank() + 1, none = 0;
    for (unsigned i = 0; i < 100; ++i) {
        std::uint32_t found = 1;
        std::memcpy(w.local(0), &mine, 4);
        std::memcpy(w.local(16), &none, 4);
        while (found != 0) {
            const Operation take{FI_CSWAP, FI_UINT32, 1, 0, lock, w.local(0), w.local(16), w.local(32)};
            if (!CHECK(w, perform(w, take, Form::plain) == 0))
                break;
            std::memcpy(&found, w.local(32), 4);
        }
        std::uint64_t values[2] = {};
        const Operation get{FI_ATOMIC_READ, FI_UINT64, 2, 0, pair, nullptr, nullptr, w.local(64)};
        CHECK(w, perform(w, get, Form::plain) == 0);
        std::memcpy(values, w.local(64), 16);
        CHECK(w, values[0] == values[1]);
        values[0]++, values[1]++;
        std::memcpy(w.local(64), values, 16);
        const Operation put{FI_ATOMIC_WRITE, FI_UINT64, 2, 0, pair, w.local(64), nullptr, nullptr};
        CHECK(w, post(w, put, Form::msg, nullptr, FI_DELIVERY_COMPLETE | FI_COMPLETION) == 0);
        CHECK(w, w.wait() == 0);
        std::memcpy(w.local(0), &none, 4);
        const Operation leave{FI_ATOMIC_WRITE, FI_UINT32, 1, 0, lock, w.local(0), nullptr, w.local(32)};
        CHECK(w, perform(w, leave, Form::plain) == 0);
    }
    w.barrier();
    const Operation get{FI_ATOMIC_READ, FI_UINT64, 2, 0, pair, nullptr, nullptr, w.local(64)};
    CHECK(w, perform(w, get, Form::plain) == 0);
    std::uint64_t values[2];
    std::memcpy(values, w.local(64), 16);
    CHECK(w, values[0] == 100 * w.ranks() && values[1] == values[0]);
    w.barrier();
}

/// Minimum and maximum of what all ranks offered, many under way.
void extremes(World& w)
{
    std::mt19937 random(w.seed() * 31 + w.rank());
    constexpr std::size_t offset = 2048, n = 200;
    std::int32_t low = 0, high = 0;
    auto* const values = reinterpret_cast<std::int32_t*>(w.local(0));
    const std::uint64_t before = fi_cntr_read(w.writes());
    for (std::size_t i = 0; i < n; ++i) {
        values[i] = static_cast<std::int32_t>(random());
        low = std::min(low, values[i]);
        high = std::max(high, values[i]);
        for (fi_op op : {FI_MIN, FI_MAX}) {
            const Operation o{op, FI_INT32, 1, 0, offset + (op == FI_MAX ? 4 : 0), w.local(i * 4), nullptr, nullptr};
            CHECK(w, post(w, o, Form::plain) == 0);
        }
    }
    CHECK(w, w.wait_count(w.writes(), before + 2 * n) == 0);
    w.shared().word[w.rank()] =
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(low)) << 32 | static_cast<std::uint32_t>(high);
    w.barrier();
    if (w.rank() == 0) {
        for (unsigned r = 0; r < w.ranks(); ++r) {
            low = std::min(low, static_cast<std::int32_t>(w.shared().word[r] >> 32));
            high = std::max(high, static_cast<std::int32_t>(w.shared().word[r]));
        }
        const Operation get{FI_ATOMIC_READ, FI_INT32, 2, 0, offset, nullptr, nullptr, w.local(64)};
        CHECK(w, perform(w, get, Form::plain) == 0);
        std::int32_t seen[2];
        std::memcpy(seen, w.local(64), 8);
        CHECK(w, seen[0] == low && seen[1] == high);
    }
    w.barrier();
}

} // namespace

void check_contention(World& w)
{
    count_up<std::uint64_t>(w, FI_UINT64, 0);
    count_up<std::uint32_t>(w, FI_UINT32, 8);
    count_up<std::uint16_t>(w, FI_UINT16, 14);
    count_up<std::uint8_t>(w, FI_UINT8, 13);
    count_up<float>(w, FI_FLOAT, 16);
    count_up<double>(w, FI_DOUBLE, 24);
    count_up<long double>(w, FI_LONG_DOUBLE, 32);
    count_up_together<std::int16_t>(w, FI_INT16, 4096 + 6);
    count_up_together<float>(w, FI_FLOAT, 5120 + 4);
    count_up_together<double>(w, FI_DOUBLE, 6144);
    guarded(w);
    extremes(w);
    w.barrier();
    std::memset(w.region(), 0, 1 << 16);
    w.barrier();
}

/// Bytes of rank 0's region are dealt out in turn: byte b to rank b % ranks for 1-byte types, and so on by
/// element. Each rank knows what its own hold, whatever the neighbours in the same words do at the same time.
/// Where the elements of each type lie in a region.
struct Area {
    fi_datatype type;
    std::size_t offset;
};
constexpr Area areas[] = {{FI_UINT8, 0x1000},
                          {FI_INT8, 0x2000},
                          {FI_INT16, 0x3000},
                          {FI_UINT16, 0x4000},
                          {FI_INT32, 0x5000},
                          {FI_UINT32, 0x6000},
                          {FI_FLOAT, 0x7000},
                          {FI_INT64, 0x8000},
                          {FI_DOUBLE, 0x9000},
                          {FI_FLOAT_COMPLEX, 0xa000},
                          {FI_DOUBLE_COMPLEX, 0xb000},
                          {FI_LONG_DOUBLE, 0xc000},
                          {FI_LONG_DOUBLE_COMPLEX, 0xd000},
                          {static_cast<fi_datatype>(FI_INT128), 0xe000},
                          {static_cast<fi_datatype>(FI_UINT128), 0xf000}};
constexpr std::size_t slots = 24; ///< elements of each rank in an area: strangers in every word

/// Sets an operand to a small real.
void set_real(unsigned char* operand, fi_datatype type, int value)
{
    std::memset(operand, 0, atomic_oracle::size_of(type));
    if (type == FI_FLOAT || type == FI_FLOAT_COMPLEX) {
        const auto f = static_cast<float>(value);
        std::memcpy(operand, &f, sizeof f);
    } else if (type == FI_DOUBLE || type == FI_DOUBLE_COMPLEX) {
        const double d = value;
        std::memcpy(operand, &d, sizeof d);
    } else {
        const long double l = value;
        std::memcpy(operand, &l, sizeof l);
    }
}

/// Atomics on the elements of this rank, and what they must find there.
class RandomAtomics {
  public:
    explicit RandomAtomics(World& w) : w_(w), random_(w.seed() * 991 + w.rank()), model_(std::size(areas))
    {
        for (std::size_t a = 0; a < std::size(areas); ++a)
            model_[a].assign(slots * atomic_oracle::size_of(areas[a].type), 0);
    }
    /// Operations on different elements go out together; then the results are compared.
    void burst(unsigned round)
    {
        for (unsigned i = 0; i < 16; ++i) {
            const Element element{random_() % std::size(areas), random_() % slots};
            if (std::find(used_.begin(), used_.end(), element) == used_.end()) {
                used_.push_back(element);
                send(element, w_.local(i * 256));
            }
        }
        for (std::size_t i = 0; i < sent_.size(); ++i)
            CHECK(w_, w_.wait() == 0);
        for (const Sent& s : sent_)
            if (!s.expected.empty() && !CHECK(w_, atomic_oracle::same_value(s.type, s.result, s.expected.data())))
                std::fprintf(stderr, "  type %d, round %u\n", s.type, round);
        sent_.clear();
        used_.clear();
    }

  private:
    using Element = std::pair<std::size_t, std::size_t>; ///< area, slot
    struct Sent {
        fi_datatype type;
        std::vector<unsigned char> expected; ///< empty: nothing is known of the result
        unsigned char* result;
    };

    /// A random operation of any kind on an element. `buffer`: of its operands and result.
    void send(const Element& element, unsigned char* buffer)
    {
        const auto& [area, slot] = element;
        const fi_datatype type = areas[area].type;
        const unsigned size = atomic_oracle::size_of(type);
        auto op = static_cast<fi_op>(random_() % FI_ATOMIC_OP_LAST);
        if (!supported(w_, op, type, true))
            return;
        unsigned char* const compare = buffer + 64;
        unsigned char* const result = buffer + 128;
        unsigned char* const mine = &model_[area][slot * size];
        for (unsigned k = 0; k < size; ++k)
            buffer[k] = compare[k] = static_cast<unsigned char>(random_() % 2 ? random_() : 0);
        if (!atomic_oracle::is_integer(type))
            for (auto* operand : {buffer, compare})
                set_real(operand, type, static_cast<int>(random_() % 5) - 2);
        if (random_() % 2)
            std::memcpy(compare, mine, size);
        Sent sent{type, {mine, mine + size}, result};
        if ((op == FI_PROD || op == FI_SUM) && !atomic_oracle::is_integer(type) && random_() % 4 == 0) {
            op = FI_ATOMIC_WRITE; // keeps reals small: no infinities, no rounding
            sent.expected.clear();
        }
        atomic_oracle::apply(op, type, mine, buffer, compare);
        sent_.push_back(std::move(sent));
        const std::size_t at = areas[area].offset + (slot * w_.ranks() + w_.rank()) * size;
        const Operation o{op, type, 1, 0, at, buffer, compare, result};
        CHECK(w_, post(w_, o, Form::msg) == 0);
    }

    World& w_;
    std::mt19937 random_;
    std::vector<std::vector<unsigned char>> model_; ///< by area
    std::vector<Sent> sent_;
    std::vector<Element> used_;
};

void check_random(World& w)
{
    RandomAtomics atomics(w);
    for (unsigned round = 0; round < 250; ++round)
        atomics.burst(round);
    w.barrier();
}

} // namespace fabtests
