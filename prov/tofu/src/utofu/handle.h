// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A VCQ of uTofu without communication: created on a TNI and freed, registrations and STADDs. Base of Vcq. Called by
// the modules that register memory; calls the backend's function table.
#pragma once

#include <cstddef>

#include <utofu.h>

#include "core/stats.h"
#include "utofu/library.h"
#include "utofu/tni_allocator.h"

namespace tofu::vcq {

/// The spread of a spare VCQ: it is made on a TNI that no process of the node posts from, or not at all.
inline constexpr unsigned spread_of_spare = ~0u;

/// Not thread-safe: its owner's lock serialises all calls.
class Handle {
  public:
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    [[nodiscard]] bool is_open() const noexcept { return handle_ != 0; }
    [[nodiscard]] utofu_vcq_hdl_t handle() const noexcept { return handle_; }
    [[nodiscard]] utofu_vcq_id_t id() const noexcept { return id_; }
    [[nodiscard]] const Backend& backend() const noexcept { return *backend_; }
    /// The uTofu code of the last call that failed; after a failure never UTOFU_SUCCESS.
    [[nodiscard]] int last_error() const noexcept { return last_error_; }
    /// Counts what goes by this VCQ; every room may add to it.
    [[nodiscard]] Statistics& statistics() noexcept { return statistics_; }

    // --- slow path: a system call on the hardware. 0 or -FI_E*; `stadd` is written on success only
    [[nodiscard]] int reg(const void* addr, std::size_t size, bool read_only, utofu_stadd_t& stadd) noexcept;
    /// Registers under a STag of the caller's choice, which makes the STADD predictable. Address and size are multiples
    /// of caps().stag_address_alignment (256).
    [[nodiscard]] int reg_with_stag(void* addr, std::size_t size, unsigned stag, utofu_stadd_t& stadd) noexcept;
    void dereg(utofu_stadd_t stadd) noexcept;
    /// The STADD of a reserved STag of any VCQ, also a remote one (guide 3.6.1.3).
    [[nodiscard]] int query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept;

  protected:
    Handle() = default;
    ~Handle() = default;
    /// Creates the VCQ, as Vcq::open() says. `book`, if not null, adds up its statistics until it is freed.
    [[nodiscard]] int make(const Backend& backend, unsigned spread, bool thread_safe, StatisticsBook* book) noexcept;
    void free() noexcept;

    Statistics statistics_;
    bool keeps_registrations_ = false; ///< nothing is deregistered before the VCQ is freed
    int last_error_ = 0;
    // Read by each post, so next to the members of Posts.
    const Functions* functions_ = nullptr;
    utofu_vcq_hdl_t handle_ = 0;

  private:
    template <class Function, class... Args>
    [[nodiscard]] int made(utofu_stadd_t& stadd, Function Functions::*function, Args... args) noexcept;

    utofu_vcq_id_t id_ = 0;
    const Backend* backend_ = nullptr;
    StatisticsBook* book_ = nullptr;
    places::Place place_{}; ///< on the node
};

} // namespace tofu::vcq
