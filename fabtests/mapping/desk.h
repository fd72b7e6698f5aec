// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the examples of docs/mapping.md share: an endpoint, its neighbour, and short names for what they do.
#pragma once

#include <cstring>

#include "../common/bytes.h"
#include "../common/station.h"

namespace fabtests {

class Desk {
  public:
    explicit Desk(World& world, const StationOptions& options = {.selective = true,
                                                                 .counters = FI_SEND | FI_RECV | FI_READ | FI_WRITE})
        : w(world), s(world, options)
    {
        std::memset(w.region(), 0, 1 << 16);
        w.barrier();
    }
    ~Desk() { w.barrier(); }

    World& w;
    Station s;

    fid_ep* ep() { return s.ep(); }
    unsigned to() const { return (w.rank() + 1) % w.ranks(); }
    unsigned from() const { return (w.rank() + w.ranks() - 1) % w.ranks(); }
    fi_addr_t peer() const { return s.peer(to()); }
    std::uint64_t at(std::size_t offset) const { return w.address(to(), offset); }
    std::uint64_t key() const { return w.key(to()); }
    void* desc() { return w.desc(); }
    /// Local memory of the example; the preceding neighbour writes into its region.
    template <class T = unsigned char>
    T* mine(std::size_t offset = 0)
    {
        return reinterpret_cast<T*>(w.local(offset));
    }
    template <class T>
    T value(std::size_t offset)
    {
        T v;
        std::memcpy(&v, w.region() + offset, sizeof v);
        return v;
    }
    template <class F>
    bool ok(F call)
    {
        return s.post(call) == 0;
    }
    /// Flush: everything that was posted of this kind has ended.
    bool flush(std::uint64_t kind, std::uint64_t posted) { return s.reaches(s.counter(kind), posted); }
    Entry sent() { return s.wait(s.tx()); }
    Entry received() { return s.wait(s.rx()); }
    bool quiet() { return s.quiet(s.tx()) && s.quiet(s.rx()); }
};

// kfabric: kfi_atomic(3), kfi_cntr(3)
void kfi_atomic_calls(World& w);
void kfi_inject_atomic(World& w);
void kfi_fetch_calls(World& w);
void kfi_compare_calls(World& w);
void kfi_valid(World& w);
void kfi_visibility(World& w);
void kfi_fenced_message(World& w);
void kfi_flags(World& w);
void kfi_remote_signal(World& w);
void kfi_errors(World& w);
void kfi_cntr_light(World& w);
void kfi_cntr_credits(World& w);
void kfi_cntr_control(World& w);

// UCX: messages
void ucx_am(World& w);
void ucx_am_keep(World& w);
void ucx_stream(World& w);
void ucx_stream_data(World& w);
void ucx_tag_send(World& w);
void ucx_tag_send_nbr(World& w);
void ucx_tag_send_sync(World& w);
void ucx_tag_recv(World& w);
void ucx_tag_recv_nbr(World& w);
void ucx_tag_recv_errors(World& w);
void ucx_tag_probe(World& w);
void ucx_tag_probe_remove(World& w);
void ucx_request_status(World& w);
void ucx_request_cancel(World& w);
void ucx_request_free(World& w);
void ucx_err_handler(World& w);

// UCX: memory
void ucx_put_nbi_flush(World& w);
void ucx_put_nb(World& w);
void ucx_put(World& w);
void ucx_get_nbi_flush(World& w);
void ucx_get_nb(World& w);
void ucx_get(World& w);
void ucx_atomic_post(World& w);
void ucx_atomic_fetch(World& w);
void ucx_atomic_add(World& w);
void ucx_atomic_fadd(World& w);
void ucx_atomic_swap(World& w);
void ucx_atomic_cswap(World& w);

} // namespace fabtests
