// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues, counters, registration and address vectors over libfabric.
#include "fabric.h"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace tofu::bench {

double Fabric::read_empty()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i)
            port_->reap();
    });
}

// Reads of up to 16 entries; only they are timed, not the writes that end in the queue.
double Fabric::read_full()
{
    constexpr std::size_t filled = 128;
    if (side_ != 0)
        return serving();
    size_ = 8;
    double reading = 0;
    timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(filled)) {
            for (std::size_t i = 0; i < filled; ++i)
                write(i % window);
            double start = now_ns();
            settle(filled);
            reading += now_ns() - start;
        }
    });
    return reading;
}

// Other endpoints, whose operations are counted and leave no entry.
Port& Fabric::open_counted(Port::Kind kind)
{
    std::unique_ptr<Port>& port = counted_[kind == Port::Kind::event];
    if (port != nullptr)
        return *port;
    std::size_t quarter = bytes_of_side(side_) / 4;
    std::size_t at = kind == Port::Kind::event ? 3 * quarter : 2 * quarter;
    port = std::make_unique<Port>(provider_, kind);
    if (!port->open(port_->memory + at, quarter) || !port->publish(control_->side[side_].exchange))
        std::exit(1);
    meet_alive();
    for (int i = 0; i < sides_; ++i)
        if (!port->insert(control_->side[i].exchange, i))
            std::exit(1);
    meet_alive();
    return *port;
}

double Fabric::read_counter()
{
    Port& port = open_counted(Port::Kind::counter);
    if (side_ != 0)
        return serve([&] { port.progress(); });
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i)
            fi_cntr_read(port.written);
    });
}

double Fabric::write_counted()
{
    Port& port = open_counted(Port::Kind::counter);
    if (side_ != 0)
        return serve([&] { port.progress(); });
    const Port::Peer& to = port.peers[1];
    std::uint64_t count = fi_cntr_read(port.written);
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            port.post([&] {
                return fi_write(port.ep, port.memory, 8, fi_mr_desc(port.mr), to.address, to.base, to.key,
                                &contexts_[0]);
            });
            port.wait(port.written, ++count);
        }
    });
}

// Ping-pong: each side waits for its counter of remote writes.
double Fabric::write_remotely_counted()
{
    Port& port = open_counted(Port::Kind::event);
    if (!port.remote_counters)
        return -1;
    const Port::Peer& to = port.peers[1 - side_];
    std::uint64_t seen = fi_cntr_read(port.remotely_written);
    meet([&] { port.progress(); });
    double start = now_ns();
    for (std::size_t i = 1; i <= iterations_; ++i) {
        if (side_ == 1)
            port.wait(port.remotely_written, seen + i);
        port.post([&] { return fi_inject_write(port.ep, port.memory, 8, to.address, to.base, to.key); });
        if (side_ == 0)
            port.wait(port.remotely_written, seen + i);
    }
    double elapsed = now_ns() - start;
    operations_ = 2 * double(iterations_);
    meet([&] { port.progress(); });
    return elapsed;
}

namespace {

fid_mr* register_or_leave(fid_domain* domain, std::byte* memory, std::size_t bytes)
{
    fid_mr* mr = nullptr;
    static std::uint64_t key = 1000; // where the program chooses, each another
    if (fi_mr_reg(domain, memory, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, ++key, 0, &mr, nullptr) != 0)
        std::exit(1);
    return mr;
}

} // namespace

double Fabric::registrations()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i)
            fi_close(&register_or_leave(port_->domain, port_->memory + 65536, size_)->fid);
    });
}

// Memory that is registered already, and still is.
double Fabric::register_again()
{
    if (side_ != 0)
        return serving();
    double registering = 0;
    std::vector<fid_mr*> regions(128);
    timed([&] {
        for (; operations_ < double(iterations_); operations_ += double(regions.size())) {
            double start = now_ns();
            for (fid_mr*& mr : regions)
                mr = register_or_leave(port_->domain, port_->memory + 65536, size_);
            registering += now_ns() - start;
            for (fid_mr* mr : regions)
                fi_close(&mr->fid);
        }
    });
    return registering;
}

double Fabric::register_new()
{
    if (side_ != 0)
        return serving();
    operations_ = double(iterations_);
    return timed([&] {
        for (std::size_t i = 0; i < iterations_; ++i) {
            std::byte* memory = map_bytes(size_);
            fi_close(&register_or_leave(port_->domain, memory, size_)->fid);
            munmap(memory, size_);
        }
    });
}

// As many different addresses as a provider accepts of absent peers: made from the
// peer's own.
double Fabric::insertions()
{
    if (side_ != 0)
        return serving();
    std::uint8_t address[256];
    std::size_t length = sizeof(address);
    if (fi_av_lookup(port_->av, peer().address, address, &length) != 0)
        return timed([] {}), -1;
    // Ours have an ID in their second eight bytes, those of tcp a port in their second two; shm's
    // are names of regions, of which only the peer's own exists.
    bool ours = provider_ == "tofu", port = port_->info->addr_format == FI_SOCKADDR_IN;
    std::size_t count = ours ? 158976 : port ? 1024 : 1;
    std::vector<std::uint8_t> addresses(count * length);
    for (std::size_t i = 0; i < count; ++i) {
        std::uint8_t* one = &addresses[i * length];
        std::memcpy(one, address, length);
        if (ours) {
            std::uint64_t home;
            std::memcpy(&home, address + 8, 8);
            home += i << 16;
            std::memcpy(one + 8, &home, 8);
        } else if (port) {
            one[2] = std::uint8_t((10000 + i) >> 8);
            one[3] = std::uint8_t(10000 + i);
        }
    }
    std::vector<fi_addr_t> places(count);
    double inserting = 0;
    bool good = true;
    timed([&] {
        for (; good && operations_ < double(iterations_); operations_ += double(count)) {
            fi_av_attr attr{};
            attr.type = FI_AV_TABLE;
            attr.count = count;
            fid_av* av = nullptr;
            if (fi_av_open(port_->domain, &attr, &av, nullptr) != 0) {
                good = false;
                break;
            }
            double start = now_ns();
            good = fi_av_insert(av, addresses.data(), count, places.data(), 0, nullptr) == int(count);
            inserting += now_ns() - start;
            fi_close(&av->fid);
        }
    });
    return good ? inserting : -1;
}

} // namespace tofu::bench
