// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A VCQ of uTofu: made on a TNI, freed, and what is asked of it apart from communication: registrations and STADDs.
// Base of Vcq; called by whoever registers memory; calls the backend's function table.
#pragma once

#include <cstddef>

#include <utofu.h>

#include "provider/statistics.h"
#include "vcq/backend.h"
#include "vcq/places.h"

namespace tofu::vcq {

/// The spread of a VCQ that one can do without: on a TNI that nobody of the node posts from, or not at all.
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
    /// Why the last call failed that did; never UTOFU_SUCCESS behind one.
    [[nodiscard]] int last_error() const noexcept { return last_error_; }
    /// Of all that goes by this VCQ, whichever room counts it.
    [[nodiscard]] Statistics& statistics() noexcept { return statistics_; }

    // --- slow path: a system call on the hardware; 0 or -FI_E*, and `stadd` is written on success only
    [[nodiscard]] int reg(const void* addr, std::size_t size, bool read_only, utofu_stadd_t& stadd) noexcept;
    /// A predictable STADD; address and size are multiples of caps().stag_address_alignment (256).
    [[nodiscard]] int reg_with_stag(void* addr, std::size_t size, unsigned stag, utofu_stadd_t& stadd) noexcept;
    void dereg(utofu_stadd_t stadd) noexcept;
    /// STADD of a reserved STag of any VCQ, also a remote one (guide 3.6.1.3).
    [[nodiscard]] int query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept;

  protected:
    Handle() = default;
    ~Handle() = default;
    /// Creates the VCQ, as Vcq::open() says. Until it is freed what it counts is added up in `book`, if there is one.
    [[nodiscard]] int make(const Backend& backend, unsigned spread, bool thread_safe, StatisticsBook* book) noexcept;
    void free() noexcept;

    Statistics statistics_;
    bool keeps_registrations_ = false; ///< nothing is deregistered before it is freed
    int last_error_ = 0;
    // What each post looks at, next to what Posts has.
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
