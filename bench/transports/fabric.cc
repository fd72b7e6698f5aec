// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// libfabric as a transport: coming up, what cases are made of, and the list of cases it offers.
#include "fabric.h"

#include <unistd.h>

namespace tofu::bench {

bool Fabric::open()
{
    port_ = std::make_unique<Port>(provider_, Port::Kind::queue);
    std::byte* memory = map_buffer(side_);
    if (memory == nullptr || !port_->open(memory, bytes_of_side(side_)) ||
        !port_->publish(control_->side[side_].exchange))
        return false;
    meet([] { usleep(100); });
    for (int i = 0; i < sides_; ++i)
        if (!port_->insert(control_->side[i].exchange, i))
            return false;
    return true;
}

void Fabric::idle()
{
    if (port_->reap() == 0)
        relax();
}

void Fabric::settle(std::size_t sent, std::size_t received)
{
    while (port_->sent < sent || port_->received < received)
        idle();
    port_->sent -= sent;
    port_->received -= received;
}

double Fabric::serving()
{
    return serve([this] { idle(); });
}

void Fabric::meet_alive()
{
    meet([this] { idle(); });
}

void Fabric::write(std::size_t slot, int side)
{
    const Port::Peer& to = port_->peers[side < 0 ? 1 - side_ : side];
    port_->post([&] {
        return fi_write(port_->ep, port_->memory + slot * size_, size_, fi_mr_desc(port_->mr), to.address,
                        to.base + slot * size_, to.key, &contexts_[slot]);
    });
}

void Fabric::send(std::size_t slot, int side, bool tagged)
{
    fi_addr_t to = port_->peers[side < 0 ? 1 - side_ : side].address;
    const std::byte* from = port_->memory + slot * size_;
    port_->post([&] {
        return tagged ? fi_tsend(port_->ep, from, size_, fi_mr_desc(port_->mr), to, 5, &contexts_[slot])
                      : fi_send(port_->ep, from, size_, fi_mr_desc(port_->mr), to, &contexts_[slot]);
    });
}

void Fabric::inject(std::size_t bytes, int side, std::uint64_t tag)
{
    fi_addr_t to = port_->peers[side < 0 ? 1 - side_ : side].address;
    port_->post([&] { return fi_tinject(port_->ep, port_->memory, bytes, to, tag); });
}

void Fabric::receive(std::byte* in, std::size_t slot, int side, bool tagged)
{
    fi_addr_t from = port_->peers[side < 0 ? 1 - side_ : side].address;
    void* context = &contexts_[window + slot];
    port_->post([&] {
        return tagged ? fi_trecv(port_->ep, in + slot * size_, size_, fi_mr_desc(port_->mr), from, 5, 0, context)
                      : fi_recv(port_->ep, in + slot * size_, size_, fi_mr_desc(port_->mr), from, context);
    });
}

double Fabric::run_case(CaseId id)
{
    port_->sent = port_->received = 0;
    port_->crowded = sides_ > 2;
    static constexpr Offer<Fabric> offers[] = {
        {write_latency, &Fabric::put_latency},
        {write_completion, &Fabric::put_completion},
        {read_latency, &Fabric::get_latency},
        {write_bandwidth, &Fabric::put_bandwidth},
        {write_bidirectional, &Fabric::put_both_ways},
        {write_once, &Fabric::put_once},
        {read_bandwidth, &Fabric::get_bandwidth},
        {inject_rate, &Fabric::inject_writes},
        {write_rate, &Fabric::put_bandwidth},
        {fetch_add, &Fabric::add},
        {fetch_add_polled, &Fabric::add_polled},
        {compare_swap, &Fabric::compare},
        {fetch_min, &Fabric::minimum},
        {fetch_add_contended, &Fabric::add_all},
        {fetch_min_contended, &Fabric::minimum_all},
        {atomic_vector, &Fabric::add_vectors<FI_UINT64>},
        {atomic_single, &Fabric::add_singles<FI_UINT64>},
        {atomic_vector_loop, &Fabric::add_vectors<FI_DOUBLE>},
        {atomic_single_loop, &Fabric::add_singles<FI_DOUBLE>},
        {tagged_latency, &Fabric::tagged_ping_pong},
        {tagged_latency_used, &Fabric::tagged_ping_pong_used},
        {tagged_bandwidth, &Fabric::tagged_stream},
        {message_latency, &Fabric::plain_ping_pong},
        {message_bandwidth, &Fabric::plain_stream},
        {message_rate, &Fabric::tagged_stream},
        {message_rate_small, &Fabric::small_stream},
        {message_behind_receives, &Fabric::ping_pong_behind_receives},
        {queue_empty, &Fabric::read_empty},
        {queue_full, &Fabric::read_full},
        {counter_read, &Fabric::read_counter},
        {counter_write, &Fabric::write_counted},
        {counter_remote, &Fabric::write_remotely_counted},
        {registration, &Fabric::registrations},
        {registration_again, &Fabric::register_again},
        {registration_new, &Fabric::register_new},
        {address_insertion, &Fabric::insertions},
        {many_to_one, &Fabric::storm},
        {many_to_one_write, &Fabric::write_storm},
        {all_to_all, &Fabric::exchange},
    };
    return run_offer(*this, id, offers);
}

Transport* make_fabric(const char* provider)
{
    return new Fabric(provider);
}

} // namespace tofu::bench
