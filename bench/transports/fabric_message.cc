// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages over libfabric, between two and between several processes.
#include "fabric.h"

#include <cstdlib>

namespace tofu::bench {
namespace {

constexpr std::size_t inject_bytes = 64; // what every provider takes
constexpr std::uint64_t token_tag = 6;

} // namespace

double Fabric::tagged_ping_pong()
{
    return ping_pong(true);
}

double Fabric::tagged_ping_pong_used()
{
    bytes_matter_ = true;
    return ping_pong(true);
}

double Fabric::plain_ping_pong()
{
    return ping_pong(false);
}

double Fabric::ping_pong(bool tagged)
{
    std::byte* in = port_->memory + buffer_bytes / 2;
    bool small = size_ <= inject_bytes;
    auto send_one = [&] {
        if (!small)
            send(0, -1, tagged);
        else if (tagged)
            inject(size_);
        else
            port_->post([&] { return fi_inject(port_->ep, port_->memory, size_, peer().address); });
    };
    receive(in, 0, -1, tagged);
    meet_alive();
    double start = now_ns();
    for (std::size_t i = 0; i < iterations_; ++i) {
        if (side_ == 0) {
            make_bytes(port_->memory, i);
            send_one();
        }
        settle(side_ == 0 && !small, 1);
        use_bytes(in);
        if (i + 1 < iterations_)
            receive(in, 0, -1, tagged);
        if (side_ == 1) {
            make_bytes(port_->memory, i);
            send_one();
            settle(!small);
        }
    }
    double elapsed = now_ns() - start;
    operations_ = 2 * double(iterations_);
    meet_alive(); // the other side's last message moves on
    return elapsed;
}

double Fabric::tagged_stream()
{
    return stream(true, false);
}

double Fabric::plain_stream()
{
    return stream(false, false);
}

double Fabric::small_stream()
{
    return stream(true, true);
}

// Windows of sends, each answered by one empty message.
double Fabric::stream(bool tagged, bool injected)
{
    std::byte* half = port_->memory + buffer_bytes / 2;
    std::size_t slots = slots_of(size_);
    std::size_t rounds = (iterations_ + slots - 1) / slots;
    operations_ = double(rounds * slots);
    meet();
    double start = now_ns();
    for (std::size_t round = 0; round < rounds; ++round) {
        if (side_ == 0) {
            port_->post([&] {
                return fi_trecv(port_->ep, nullptr, 0, nullptr, peer().address, token_tag, 0, &contexts_[2 * window]);
            });
            for (std::size_t slot = 0; slot < slots; ++slot)
                if (injected)
                    inject(size_);
                else
                    send(slot, -1, tagged);
            settle(injected ? 0 : slots, 1);
        } else {
            for (std::size_t slot = 0; slot < slots; ++slot)
                receive(half, slot, -1, tagged);
            settle(0, slots);
            inject(0, -1, token_tag);
        }
    }
    double elapsed = now_ns() - start;
    meet_alive();
    return elapsed;
}

// What matching costs when many receives of other tags wait before the one that matches.
double Fabric::ping_pong_behind_receives()
{
    constexpr std::size_t waiting = 10000;
    constexpr std::uint64_t other_tags = 1u << 20;
    static fi_context posted[waiting];
    std::size_t count = 0;
    while (count < waiting) {
        ssize_t ret = fi_trecv(port_->ep, port_->memory, 8, fi_mr_desc(port_->mr), peer().address, other_tags + count,
                               0, &posted[count]);
        if (ret != 0)
            break; // no provider has to take that many
        ++count;
    }
    double elapsed = count == waiting ? ping_pong(true) : -1;
    // Canceled ones come back as errors, which reap() would not take for what they are.
    std::size_t back = 0;
    for (std::size_t i = 0; i < count; ++i) {
        fi_cancel(&port_->ep->fid, &posted[i]);
        fi_cq_err_entry error{};
        fi_cq_tagged_entry entry;
        while (fi_cq_read(port_->cq, &entry, 1) == -FI_EAVAIL && fi_cq_readerr(port_->cq, &error, 0) == 1)
            ++back;
    }
    if (back != count) // not as the manual has it: this team must start again
        std::exit(1);
    return elapsed;
}

// All but side 0 send windows to side 0, which answers each with an empty message.
double Fabric::storm()
{
    constexpr std::size_t slots = 16;
    std::size_t senders = std::size_t(sides_ - 1);
    std::size_t rounds = (iterations_ / senders + slots - 1) / slots;
    operations_ = double(rounds * slots * senders);
    meet();
    double start = now_ns();
    for (std::size_t round = 0; round < rounds; ++round) {
        if (side_ == 0) {
            for (std::size_t slot = 0; slot < slots; ++slot)
                for (int from = 1; from < sides_; ++from)
                    receive(port_->memory, slot, from);
            settle(0, slots * senders);
            for (int to = 1; to < sides_; ++to)
                inject(0, to, token_tag);
        } else {
            port_->post([&] {
                return fi_trecv(port_->ep, nullptr, 0, nullptr, port_->peers[0].address, token_tag, 0,
                                &contexts_[2 * window]);
            });
            for (std::size_t slot = 0; slot < slots; ++slot)
                send(slot, 0);
            settle(slots, 1);
        }
    }
    double elapsed = now_ns() - start;
    meet_alive();
    return elapsed;
}

double Fabric::write_storm()
{
    constexpr std::size_t slots = 16;
    std::size_t writers = std::size_t(sides_ - 1);
    std::size_t rounds = (iterations_ / writers + slots - 1) / slots;
    operations_ = double(rounds * slots * writers);
    return all_together([&] {
        for (std::size_t round = 0; side_ != 0 && round < rounds; ++round) {
            for (std::size_t slot = 0; slot < slots; ++slot)
                write(slot, 0);
            settle(slots);
        }
    });
}

// Each sends one message to each other and waits for those of the others: a round.
double Fabric::exchange()
{
    bool small = size_ <= inject_bytes;
    std::size_t others = std::size_t(sides_ - 1);
    std::byte* in = port_->memory + (bytes_of_side(side_) / 2);
    operations_ = double(iterations_);
    return all_together([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            for (int other = 0; other < sides_; ++other)
                if (other != side_)
                    receive(in, std::size_t(other), other);
            for (int other = 0; other < sides_; ++other)
                if (other != side_) {
                    if (small)
                        inject(size_, other);
                    else
                        send(std::size_t(other), other);
                }
            settle(small ? 0 : others, others);
        }
    });
}

} // namespace tofu::bench
