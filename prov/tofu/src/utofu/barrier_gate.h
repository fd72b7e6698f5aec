// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Gates: one process's gates of a barrier circuit (uTofu guide 2.3), which a collective group takes, wires, starts and
// polls.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/types.h>
#include <utofu.h>

#include "utofu/library.h"

namespace tofu::vcq {

using Coords = std::uint8_t[6];
/// The coordinates X, Y, Z, A, B, C of the node of a peer's VCQ. False: the library knows no such VCQ.
[[nodiscard]] bool coords_of(const Backend& backend, utofu_vcq_id_t vcq, Coords& coords) noexcept;
/// The coordinates of the node of a gate. False: the library knows no such gate.
[[nodiscard]] bool coords_of_gate(const Backend& backend, utofu_vbg_id_t gate, Coords& coords) noexcept;

/// Operands and results of a round of a circuit (guide, table 6.5). BFPSUM uses `real`, all others use `word`.
union GateData {
    static constexpr unsigned words = 6;
    static constexpr unsigned reals = 3;
    std::uint64_t word[words];
    double real[reals];
};

/// The gates of one circuit. Not thread-safe: the owner's lock serialises start and poll (guide 2.5).
class Gates {
  public:
    /// The most gates of a circuit: a start/end gate and all relay gates of a TNI.
    static constexpr unsigned most = 33;

    /// Takes `count` gates of one TNI, of number `spread` modulo those there are or of the next one that has as many.
    /// False: no TNI has enough, or its gates lack what GateData needs, or the library has no gates. Any thread.
    [[nodiscard]] bool alloc(const Backend& backend, unsigned count, unsigned spread) noexcept;
    /// Gives the gates back. Any thread; no packet may be on its way to them.
    void free() noexcept;
    [[nodiscard]] unsigned count() const noexcept { return count_; }
    /// The IDs of the gates; the first is the start/end gate.
    [[nodiscard]] const utofu_vbg_id_t* ids() const noexcept { return ids_; }
    /// Wires all of them. UTOFU_SUCCESS, or the library's error.
    [[nodiscard]] int set(utofu_vbg_setting* settings) noexcept { return functions_->set_vbg(settings, count_); }

    /// Starts a round. UTOFU_SUCCESS; UTOFU_ERR_BUSY, without effect; another error.
    [[nodiscard]] int start(utofu_reduce_op op, GateData& data, std::size_t count) noexcept
    {
        if (op == UTOFU_REDUCE_OP_BARRIER)
            return functions_->barrier(ids_[0], 0);
        if (op == UTOFU_REDUCE_OP_BFPSUM)
            return functions_->reduce_double(ids_[0], op, data.real, count, 0);
        return functions_->reduce_uint64(ids_[0], op, data.word, count, 0);
    }
    /// Polls the round that was started with `op`. UTOFU_SUCCESS and the result, UTOFU_ERR_NOT_COMPLETED, or an error.
    [[nodiscard]] int poll(utofu_reduce_op op, GateData& data) noexcept
    {
        if (op == UTOFU_REDUCE_OP_BARRIER)
            return functions_->poll_barrier(ids_[0], 0);
        if (op == UTOFU_REDUCE_OP_BFPSUM)
            return functions_->poll_reduce_double(ids_[0], 0, data.real);
        return functions_->poll_reduce_uint64(ids_[0], 0, data.word);
    }

  private:
    const Functions* functions_ = nullptr;
    pid_t owner_ = 0; ///< a child of fork frees nothing
    unsigned count_ = 0;
    utofu_vbg_id_t ids_[most] = {};
};

} // namespace tofu::vcq
