// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Puts, gets and ARMWs over raw uTofu.
#include "utofu.h"

#include <cstdlib>

namespace tofu::bench {
namespace {

constexpr std::size_t word_at = 8192;
constexpr std::uint64_t high = std::uint64_t{1} << 62;
constexpr unsigned long told_when_sent = UTOFU_ONESIDED_FLAG_TCQ_NOTICE;
constexpr unsigned long told_when_there = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;

} // namespace

// The tail carries the round; strong order makes it arrive last.
double Utofu::ping_pong()
{
    std::byte* out = memory_ + buffer_bytes / 2;
    auto send = [&](std::uint64_t value) {
        if (size_ <= 8) {
            check(u_.put_piggyback8(vcq_, peer().id, value, peer().stadd + place_of(value), size_, 0, 0, nullptr),
                  "put_piggyback8");
        } else {
            make_bytes(out, value);
            store_tail(out, size_, value);
            for (std::size_t at = 0; at < size_;) {
                std::size_t part = size_ - at < (1u << 23) ? size_ - at : (1u << 23);
                at += part;
                check(u_.put(vcq_, peer().id, local_ + buffer_bytes / 2 + at - part,
                             peer().stadd + place_of(value) + at - part, part, 0,
                             UTOFU_ONESIDED_FLAG_STRONG_ORDER | (at == size_ ? told_when_sent : 0), nullptr),
                      "put");
            }
            wait_tcq(1);
        }
        make_room();
    };
    return ping_pong_by(memory_, send, [] {});
}

double Utofu::ping_pong_used()
{
    bytes_matter_ = true;
    return ping_pong();
}

double Utofu::put_completion()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            check(u_.put_piggyback8(vcq_, peer().id, i, peer().stadd, 8, 0, told_when_there, nullptr),
                  "put_piggyback8");
            wait_mrq(1);
        }
    });
}

double Utofu::get_latency()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            get(0);
            wait_mrq(1);
        }
    });
}

double Utofu::put_bandwidth()
{
    if (side_ != 0)
        return serving();
    return timed([&] { windows([&](std::size_t slot) { put(slot, told_when_there); }); });
}

double Utofu::put_both_ways()
{
    double elapsed = all_together([&] { windows([&](std::size_t slot) { put(slot, told_when_there); }); });
    operations_ *= 2;
    return elapsed;
}

double Utofu::get_bandwidth()
{
    if (side_ != 0)
        return serving();
    return timed([&] { windows([&](std::size_t slot) { get(slot); }); });
}

// Memory that the target has just got from the system, filled and registered, each piece written to
// once.
double Utofu::put_once()
{
    auto& told = *reinterpret_cast<utofu_stadd_t*>(control_->side[1].exchange);
    std::size_t pieces = once_pieces(size_);
    if (side_ == 1) {
        std::byte* memory = map_bytes(pieces * size_);
        if (memory == nullptr)
            std::exit(1);
        check(u_.reg_mem(vcq_, memory, pieces * size_, 0, &told), "reg_mem");
        double result = serving();
        check(u_.dereg_mem(vcq_, told, 0), "dereg_mem");
        munmap(memory, pieces * size_);
        return result;
    }
    operations_ = double(pieces);
    return timed([&] {
        for (std::size_t i = 0; i < pieces; ++i) {
            check(u_.put(vcq_, peer().id, local_, told + i * size_, size_, 0, told_when_there, nullptr), "put");
            wait_mrq(1);
        }
    });
}

double Utofu::put_rate()
{
    if (side_ != 0)
        return serving();
    return timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(window)) {
            for (std::size_t slot = 0; slot < window; ++slot)
                if (size_ <= 8)
                    check(u_.put_piggyback8(vcq_, peer().id, slot, peer().stadd + word_at, size_, 0, told_when_sent,
                                            nullptr),
                          "put_piggyback8");
                else
                    put(slot, told_when_sent);
            wait_tcq(window);
        }
    });
}

void Utofu::adds(int target)
{
    for (std::size_t i = 0; i < iterations_; ++i) {
        check(u_.armw8(vcq_, peers_[target].id, UTOFU_ARMW_OP_ADD, 1, peers_[target].stadd + word_at, 0,
                       told_when_there, nullptr),
              "armw8");
        wait_mrq(1);
    }
}

double Utofu::add()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] { adds(1); });
}

// The target's core wants the line all the time, and no service is asked of it.
double Utofu::add_polled()
{
    if (side_ != 0)
        return serve([this] { (void)*reinterpret_cast<const volatile std::uint64_t*>(memory_ + word_at); });
    return add();
}

double Utofu::add_all()
{
    operations_ = double(iterations_) * sides_;
    return all_together([&] { adds(0); });
}

double Utofu::swap()
{
    if (side_ != 0)
        return serving();
    std::uint64_t seen = 0;
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            check(u_.cswap8(vcq_, peer().id, seen, i, peer().stadd + 2 * word_at, 0, told_when_there, nullptr),
                  "cswap8");
            seen = wait_mrq(1);
        }
    });
}

// A plain loop: guess, swap, take what was there for the next guess.
void Utofu::lower(int target)
{
    std::uint64_t guess = high;
    for (std::size_t i = 0; i < iterations_; ++i) {
        std::uint64_t wanted = high - i * max_sides - std::size_t(side_) - 1;
        while (guess > wanted) {
            check(u_.cswap8(vcq_, peers_[target].id, guess, wanted, peers_[target].stadd + word_at, 0, told_when_there,
                            nullptr),
                  "cswap8");
            std::uint64_t seen = wait_mrq(1);
            guess = seen == guess ? wanted : seen;
        }
    }
}

double Utofu::swap_all()
{
    if (side_ == 0)
        *reinterpret_cast<volatile std::uint64_t*>(memory_ + word_at) = high;
    operations_ = double(iterations_) * sides_;
    return all_together([&] { lower(0); });
}

double Utofu::add_singles()
{
    if (side_ != 0)
        return serving();
    return timed([&] {
        windows([&](std::size_t slot) {
            check(u_.armw8(vcq_, peer().id, UTOFU_ARMW_OP_ADD, 1, peer().stadd + word_at + 8 * slot, 0, told_when_there,
                           nullptr),
                  "armw8");
        });
    });
}

double Utofu::put_storm()
{
    constexpr std::size_t slots = 16;
    std::size_t writers = std::size_t(sides_ - 1), rounds = (iterations_ / writers + slots - 1) / slots;
    operations_ = double(rounds * slots * writers);
    return all_together([&] {
        for (std::size_t round = 0; side_ != 0 && round < rounds; ++round) {
            for (std::size_t slot = 0; slot < slots; ++slot)
                put(slot, told_when_there, 0);
            wait_mrq(slots);
        }
    });
}

// Each puts into a place of its own at each other, the tail last, and waits for what the others
// put.
double Utofu::exchange()
{
    std::size_t half = bytes_of_side(2) / 2;
    auto in = [&](int from) { return std::size_t(from) * size_; };
    for (int other = 0; other < sides_; ++other)
        store_tail(memory_ + in(other), size_, 0);
    std::byte* out = memory_ + half;
    operations_ = double(iterations_);
    return all_together([&] {
        for (std::uint64_t i = 1; i <= iterations_; ++i) {
            store_tail(out, size_, i);
            for (int other = 0; other < sides_; ++other)
                if (other != side_)
                    check(u_.put(vcq_, peers_[other].id, local_ + half, peers_[other].stadd + in(side_), size_, 0,
                                 UTOFU_ONESIDED_FLAG_STRONG_ORDER | told_when_sent, nullptr),
                          "put");
            wait_tcq(std::size_t(sides_ - 1));
            for (int other = 0; other < sides_; ++other)
                while (other != side_ && !tail_is(memory_ + in(other), size_, i) &&
                       !tail_is(memory_ + in(other), size_, i + 1))
                    relax();
        }
    });
}

} // namespace tofu::bench
