// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The limits that the provider promises in fi_info: sizes, counts, capabilities, orders. api/getinfo reports them, and
// the engines must keep them. No code.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

namespace tofu {
namespace limits {

/// FI_MR_BASIC and FI_MR_SCALABLE by number: libfabric 2 deprecates the names, but programs still ask for them.
inline constexpr int mr_basic = 1 << 0;
inline constexpr int mr_scalable = 1 << 1;

inline constexpr std::size_t inject_size = 192;
inline constexpr std::size_t max_msg_size = std::size_t{1} << 40;
inline constexpr std::size_t iov_limit = 4;
inline constexpr std::size_t rma_iov_limit = 4;
inline constexpr std::size_t tx_size = 1024;
inline constexpr std::size_t rx_size = 65536; ///< posted receives are bounded by memory only
inline constexpr std::size_t cq_data_size = 8;
inline constexpr std::size_t mr_key_size = 8;
inline constexpr std::size_t mr_iov_limit = 1;
inline constexpr std::size_t mr_count = 16 * 6144; ///< STags of a target VCQ and 15 overflow VCQs (mem/mr.h)
inline constexpr std::size_t object_count = 65536; ///< completion queues, counters: bounded by memory only
inline constexpr std::size_t max_err_data = 48;    ///< a source that is in no address vector, as text (FI_SOURCE_ERR)
inline constexpr unsigned max_contexts = 64;       ///< of one kind, of a scalable endpoint
inline constexpr std::uint64_t tag_format = ~std::uint64_t{0};

inline constexpr std::uint64_t tx_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE |
                                         FI_FENCE | FI_NAMED_RX_CTX | FI_COLLECTIVE | FI_TRIGGER;
inline constexpr std::uint64_t rx_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ |
                                         FI_REMOTE_WRITE | FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR |
                                         FI_MULTI_RECV | FI_RMA_EVENT | FI_COLLECTIVE | FI_TRIGGER;
inline constexpr std::uint64_t domain_caps = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV;
inline constexpr std::uint64_t all_caps = tx_caps | rx_caps | domain_caps;

inline constexpr std::uint64_t tx_op_flags =
    FI_INJECT | FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
inline constexpr std::uint64_t rx_op_flags = FI_COMPLETION | FI_MULTI_RECV;

/// The orders within an engine. Every remote access goes from one VCQ to the peer's target VCQ, so the strong order
/// flag keeps these (guide 6.1.3.1); it is used only where tx_attr.msg_order asks for more than FI_ORDER_SAS. Fences
/// keep reads behind writes, and the order between a peer's target VCQ and its overflow VCQs (tx/remote_memory.h).
inline constexpr std::uint64_t msg_order = FI_ORDER_SAS | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR |
                                           FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                                           FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;

/// The orders among RMA and atomics together, which are kept only where an endpoint has one of the two: an atomic that
/// is a loop of compare-and-swaps may still be under way when an RMA that was posted after it has taken effect.
inline constexpr std::uint64_t unmixed_msg_order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW;

/// The mr_mode for keys and addresses of the provider's choice, which cost peers no lookup.
inline constexpr int provider_mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

} // namespace limits

/// The bytes that the processor fetches at once: 256 on the A64FX. A wrong value only costs speed.
#ifdef __aarch64__
inline constexpr std::size_t processor_line = 256;
#else
inline constexpr std::size_t processor_line = 64;
#endif
/// Every processor's cache line is a multiple of it, so an object of at most this size and alignment lies in one line.
inline constexpr std::size_t least_line = 64;

} // namespace tofu
