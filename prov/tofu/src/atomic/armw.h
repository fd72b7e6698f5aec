// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fast path of an atomic: one element that one ARMW serves, from the call to the entry. It is inlined into the
// entries of atomic.cc, so that the compiler sees the constants of each call.
#pragma once

#include <array>
#include <cstring>

#include <rdma/fi_errno.h>

#include "atomic/atomic.h"
#include "core/log.h"
#include "tx/operation.h"
#include "tx/tx_context.h"

namespace tofu {

/// A call with one local and one remote piece.
struct PlainCall {
    Family family;
    fi_op op;
    fi_datatype type;
    const void* operand;
    const void* compare;
    void* result;
    std::size_t count;
    fi_addr_t to;
    std::uint64_t address;
    std::uint64_t key;
    void* context;
    std::uint64_t flags;
    bool is_inject; ///< fi_inject_atomic: no entry on success
};

/// The access that the target's region must allow.
constexpr std::uint64_t access_of(Family family, fi_op op)
{
    if (op == FI_ATOMIC_READ)
        return FI_REMOTE_READ;
    return family == Family::base ? FI_REMOTE_WRITE : FI_REMOTE_READ | FI_REMOTE_WRITE;
}

/// How the fast path does a pair of operation and datatype: by one ARMW of the element's own width.
struct alignas(4) Native { // fits one register
    std::uint8_t size = 0; ///< 4 or 8; 0: the fast path does not do this pair
    std::uint8_t code = 0; ///< utofu_armw_op, unless the method is cswap
    bool reads = false;    ///< the operation takes no operand
    Fetched fetched = Fetched::nothing;
};

/// The bounds of the table.
inline constexpr unsigned native_ops = 32, native_types = 16;
static_assert(op_count <= native_ops && datatype_count <= native_types);
constexpr unsigned native_index(unsigned op, unsigned type)
{
    return op * native_types + type;
}

/// By family, then by native_index().
inline constexpr auto natives = [] {
    std::array<std::array<Native, native_ops * native_types>, 3> t{};
    for (const Family family : {Family::base, Family::fetch, Family::compare})
        for (unsigned op = 0; op < op_count; ++op)
            for (unsigned type = 0; type < datatype_count; ++type) {
                const std::uint8_t size = datatypes[type].size;
                const Method method = lookup(family, static_cast<fi_op>(op), static_cast<fi_datatype>(type));
                if (is_one_armw(method) && (size == 4 || size == 8))
                    t[static_cast<unsigned>(family)][native_index(op, type)] = {
                        size, static_cast<std::uint8_t>(armw_of(method)), method == Method::read,
                        family == Family::base ? Fetched::nothing
                        : size == 4            ? Fetched::short_word
                                               : Fetched::word};
            }
    return t;
}();

/// The end of a short operation. `size`: bytes of the fetched value, 0 for the base family. `entry`: a success is
/// reported. `counted`: there is a counter.
template <unsigned size, bool entry, bool counted>
void native_done(vcq::CompletionHandler* self, vcq::Notice notice) noexcept
{
    FastOp& op = *static_cast<FastOp*>(self);
    TxContext& tx = *op.context;
    if (notice.code != UTOFU_SUCCESS) [[unlikely]] {
        Atomics::of(tx).native_failed(op, size == 0, entry, notice.code);
        return;
    }
    if constexpr (size != 0)
        std::memcpy(op.result, &notice.value, size);
    if constexpr (entry)
        tx.reports().binding.cq->write_from_poll(
            {.context = op.user_context, .flags = FI_ATOMIC | (size == 0 ? FI_WRITE : FI_READ)});
    if constexpr (counted)
        (size == 0 ? tx.reports().counters.write : tx.reports().counters.read)->count();
}

/// The value of an operand of 4 or 8 bytes; the upper half of a short one is zero.
[[gnu::always_inline]] inline std::uint64_t word_at(const void* from, std::size_t size) noexcept
{
    if (size == 8) {
        std::uint64_t value = 0;
        std::memcpy(&value, from, 8);
        return value;
    }
    std::uint32_t value = 0;
    std::memcpy(&value, from, 4);
    return value;
}

/// The fast path has done nothing: the slow path does the operation, or says why not.
inline constexpr ssize_t not_native = 1;

/// Handles a post that was refused.
[[gnu::noinline, gnu::cold]] inline ssize_t refused(TxContext& tx, vcq::Post posted) noexcept
{
    if (posted == vcq::Post::error)
        return -fi_error_of(tx.vcq().last_error());
    tx.progress();
    return -FI_EAGAIN;
}
/// Handles the result of any post. Never not_native.
[[gnu::always_inline]] inline ssize_t answer(TxContext& tx, vcq::Post posted) noexcept
{
    if (posted == vcq::Post::done) [[likely]]
        return 0;
    const ssize_t refusal = refused(tx, posted);
    if (refusal >= 0)
        __builtin_unreachable();
    return refusal;
}

/// Posts the ARMW.
template <class Options>
[[gnu::always_inline]] inline vcq::Post post_native(vcq::Vcq& vcq, const Native& how, const PlainCall& call,
                                                    const Target& target, const Options& as) noexcept
{
    const std::uint64_t operand = how.reads ? 0 : word_at(call.operand, how.size);
    if (call.family == Family::compare)
        return vcq.cswap(how.size, target.vcq, word_at(call.compare, how.size), operand, target.stadd, as);
    return vcq.armw(how.size, target.vcq, static_cast<utofu_armw_op>(how.code), operand, target.stadd, as);
}

/// The condition of all fast paths: an aligned target, to which a communication may go now.
template <bool indirect>
[[gnu::always_inline]] inline const Peer* find_target(Atomics& engine, const Native& how, const PlainCall& call,
                                                      Target& target) noexcept
{
    const Peer* const peer = indirect ? engine.access().resolve_known(call.to, call.key, call.address, how.size,
                                                                      access_of(call.family, call.op), target)
                                      : engine.access().resolve_open(call.to, call.key, call.address, target);
    const bool goes = peer != nullptr && !(target.stadd & (how.size - 1u)) && // else it lies across two words
                      engine.runner().open_for_native(indirect ? peer->target_vcq : target.vcq);
    return goes ? peer : nullptr;
}

/// Submits a call on the fast path. `indirect`: keys are looked up in a directory. Of a read enough is kept to do it by
/// a Get.
template <bool indirect>
[[gnu::always_inline]] inline ssize_t submit_native(TxContext& tx, const Native& how, const PlainCall& call) noexcept
{
    Atomics& engine = Atomics::of(tx);
    Target target;
    const Peer* const peer = find_target<indirect>(engine, how, call, target);
    if (peer == nullptr) [[unlikely]]
        return not_native;
    if (!indirect && call.is_inject && engine.short_inject()) { // no counter counts it, so it needs no notice
        engine.unsignaled();
        return answer(tx, post_native(tx.vcq(), how, call, target,
                                      vcq::UnsignaledArgs{vcq::Unsignaled::armw, engine.inject_flags()}));
    }
    const std::uint8_t tag = tx.vcq().completions().next();
    if (tag == 0) [[unlikely]]
        return answer(tx, vcq::Post::busy);
    // Where order was promised, the first communication to another VCQ of the peer has to wait.
    if (indirect && engine.runner().ordered && !engine.access().may_go_to(peer->target_vcq, target.vcq)) [[unlikely]]
        return answer(tx, vcq::Post::busy);
    FastOp& op = tx.fast()[tag];
    const bool base = call.family == Family::base;
    op.notify = engine.native_end(how.fetched, !call.is_inject && tx.reports().binding.selects(call.flags));
    op.user_context = call.context;
    op.kept = static_cast<std::uint8_t>((how.reads ? FastOp::kept_read : 0) | (indirect ? FastOp::kept_indirect : 0));
    if (!base)
        op.result = call.result;
    if (indirect || how.reads)
        op.to = call.to;
    if (how.reads) {
        op.vcq = target.vcq;
        op.stadd = target.stadd;
        op.type = static_cast<std::uint8_t>(call.type);
    }
    const vcq::Post posted = post_native(tx.vcq(), how, call, target, vcq::SignaledArgs{&op, engine.native_flags()});
    return answer(tx, posted);
}
[[gnu::noinline]] inline ssize_t submit_by_directory(TxContext& tx, Native how, PlainCall call) noexcept
{
    return submit_native<true>(tx, how, call);
}

} // namespace tofu
