// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The cases over libfabric, the same code for every provider.
#pragma once

#include "pattern.h"
#include "transport.h"

#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <string>

namespace tofu::bench {

/// An endpoint with all that belongs to it, and the peers it knows.
struct Port {
    enum class Kind {
        queue,   ///< completions come to a CQ
        counter, ///< completions are counted only
        event    ///< and what peers write here is counted too (FI_RMA_EVENT)
    };
    Port(std::string provider, Kind kind) : provider(std::move(provider)), kind(kind) {}
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    ~Port(); ///< in order, so that providers with files in /dev/shm remove them

    /// Opens everything; a line on stderr and false where something is refused.
    bool open(std::byte* memory, std::size_t bytes);
    /// What the others need, at most 256 bytes; and what the others gave.
    bool publish(std::uint8_t* told);
    bool insert(const std::uint8_t* told, int side);

    bool fail(const char* what, long code) const;
    std::size_t reap(); ///< reads what the CQ has; ends the process at an error
    template <class F>
    void post(F&& f) ///< until it is accepted
    {
        for (ssize_t ret; (ret = f()) != 0;) {
            if (ret != -FI_EAGAIN) {
                fail("post", ret);
                std::exit(1);
            }
            progress();
            if (crowded) // the process that has to make room may have no processor
                sched_yield();
        }
    }
    void progress();
    void wait(fid_cntr* counter, std::uint64_t count);

    const std::string provider;
    const Kind kind;
    bool atomics = true, remote_counters = true;
    bool crowded = false; ///< more processes than processors: give way while waiting
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_cntr *written = nullptr, *remotely_written = nullptr;
    fid_ep* ep = nullptr;
    fid_mr* mr = nullptr;
    std::byte* memory = nullptr;
    struct Peer {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::uint64_t key = 0, base = 0;
    } peers[max_sides];
    std::size_t sent = 0, received = 0; ///< completions seen and not yet asked for
};

class Fabric final : public Transport {
  public:
    explicit Fabric(const char* provider) : provider_(provider) {}
    bool open() override;

  private:
    double run_case(CaseId id) override;

    // What all cases are made of.
    void settle(std::size_t sent, std::size_t received = 0);
    void idle(); ///< one round of progress
    double serving();
    void meet_alive(); ///< meets the others and keeps messages moving meanwhile
    template <class F>
    double all_together(F&& f); ///< all sides run f; time until the last is through
    void write(std::size_t slot, int side = -1);
    void send(std::size_t slot, int side = -1, bool tagged = true);
    void inject(std::size_t bytes, int side = -1, std::uint64_t tag = 5);
    void receive(std::byte* in, std::size_t slot, int side = -1, bool tagged = true);
    const Port::Peer& peer() const { return port_->peers[1 - side_]; }

    // fabric_rma.cc
    double put_latency();
    double put_completion();
    double get_latency();
    double put_bandwidth();
    double put_both_ways();
    double put_once();
    double get_bandwidth();
    double inject_writes();
    // fabric_atomic.cc
    double add();
    double add_polled();
    double add_all();
    double minimum();
    double minimum_all();
    double compare();
    template <fi_datatype type>
    double add_vectors();
    template <fi_datatype type>
    double add_singles();
    double fetches(fi_op op, int target);
    // fabric_message.cc
    double tagged_ping_pong();
    double tagged_ping_pong_used();
    double plain_ping_pong();
    double ping_pong(bool tagged);
    double tagged_stream();
    double plain_stream();
    double stream(bool tagged, bool injected);
    double small_stream();
    double ping_pong_behind_receives();
    double storm();
    double write_storm();
    double exchange();
    // fabric_object.cc
    static constexpr std::size_t counted_kinds = 2;
    Port& open_counted(Port::Kind kind);
    double read_empty();
    double read_full();
    double read_counter();
    double write_counted();
    double write_remotely_counted();
    double registrations();
    double register_again();
    double register_new();
    double insertions();

    std::string provider_;
    std::unique_ptr<Port> port_, counted_[counted_kinds];
    fi_context contexts_[3 * window] = {};
};

template <class F>
double Fabric::all_together(F&& f)
{
    meet();
    double start = now_ns();
    f();
    meet_alive();
    return now_ns() - start;
}

} // namespace tofu::bench
