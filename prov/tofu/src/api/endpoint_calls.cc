// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_endpoint(3), fi_cm(3), fi_control(3): the application's calls on an endpoint or an alias of it. The tables are at
// the end.
#include "api/endpoint_calls.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <rdma/fi_errno.h>

#include "api/endpoint.h"
#include "atomic/op_table.h"
#include "core/limits.h"
#include "rma/rma.h"

namespace tofu {

namespace {

EpHandle& handle_of(struct fid* f) noexcept
{
    return EpHandle::of(reinterpret_cast<fid_ep*>(f));
}

constexpr std::uint64_t both_sides = FI_TRANSMIT | FI_RECV;

/// FI_GETOPSFLAG and FI_SETOPSFLAG: the word says by FI_TRANSMIT or FI_RECV which side is meant (fi_endpoint(3)).
std::uint64_t* side_of(EpHandle& handle, std::uint64_t flags) noexcept
{
    switch (flags & both_sides) {
    case FI_TRANSMIT: return &handle.tx_flags;
    case FI_RECV: return &handle.rx_flags;
    default: return nullptr;
    }
}

/// Sets the default flags of the side that the word names. 0, -FI_EINVAL, or -FI_EBADFLAGS for a flag that calls could
/// only ignore.
int set_side(EpHandle& handle, std::uint64_t word) noexcept
{
    std::uint64_t* const side = side_of(handle, word);
    if (side == nullptr)
        return -FI_EINVAL;
    const std::uint64_t flags = word & ~both_sides;
    const std::uint64_t offered = (side == &handle.tx_flags ? limits::tx_op_flags : limits::rx_op_flags) |
                                  (handle.tx->config().caps & FI_TRIGGER);
    if ((flags & ~offered) != 0)
        return -FI_EBADFLAGS;
    *side = flags;
    return 0;
}

// --- fi_ops

int add_alias(EpHandle& of, struct fid** made, std::uint64_t flags) noexcept
{
    if (made == nullptr)
        return -FI_EINVAL;
    if (!of.endpoint->enabled())
        return -FI_EOPBADSTATE;
    auto* handle = new (std::nothrow) EpHandle(of);
    if (handle == nullptr)
        return -FI_ENOMEM;
    handle->fid.ops = &alias_fid_ops;
    if (int ret = set_side(*handle, flags); ret != 0) {
        delete handle;
        return ret;
    }
    of.endpoint->hold();
    *made = &handle->fid;
    return 0;
}

int close_alias(struct fid* f) noexcept
{
    EpHandle& handle = handle_of(f);
    handle.endpoint->release();
    delete &handle;
    return 0;
}

int control(struct fid* f, int command, void* argument) noexcept
{
    EpHandle& handle = handle_of(f);
    switch (command) {
    case FI_ENABLE: return &handle == handle.endpoint ? handle.endpoint->enable() : -FI_EINVAL;
    case FI_ALIAS: {
        auto* wanted = static_cast<struct fi_alias*>(argument);
        return wanted == nullptr ? -FI_EINVAL : add_alias(handle, wanted->fid, wanted->flags);
    }
    case FI_GETOPSFLAG: {
        auto* word = static_cast<std::uint64_t*>(argument);
        std::uint64_t* side = word != nullptr ? side_of(handle, *word) : nullptr;
        if (side == nullptr)
            return -FI_EINVAL;
        *word = *side;
        return 0;
    }
    case FI_SETOPSFLAG:
        return argument != nullptr ? set_side(handle, *static_cast<std::uint64_t*>(argument)) : -FI_EINVAL;
    default: // FI_GETWAIT belongs to queues and counters, FI_BACKLOG to passive endpoints
        return -FI_ENOSYS;
    }
}

// --- fi_ops_ep, fi_ops_cm

int get_option(fid_t f, int level, int name, void* value, std::size_t* length) noexcept
{
    if (level == FI_OPT_ENDPOINT && (name == FI_OPT_FI_HMEM_P2P || name == FI_OPT_XPU_TRIGGER)) // no memory of devices
        return value == nullptr || length == nullptr ? -FI_EINVAL : -FI_EOPNOTSUPP;
    const fi_tx_attr& attr = Endpoint::of(f).tx_context().config().attr;
    const RxContext& rx = Endpoint::of(f).rx_context();
    return get_options({{FI_OPT_CM_DATA_SIZE, 0}, // no connections
                        {FI_OPT_TX_SIZE, attr.size},
                        {FI_OPT_RX_SIZE, rx.attr.size},
                        {FI_OPT_MIN_MULTI_RECV, rx.min_multi_recv},
                        {opt_max_msg_size, limits::max_msg_size},
                        {opt_max_tagged_size, limits::max_msg_size},
                        {opt_max_rma_size, limits::max_msg_size},
                        {opt_max_atomic_size, max_atomic_bytes},
                        {opt_inject_msg_size, attr.inject_size},
                        {opt_inject_tagged_size, attr.inject_size},
                        {opt_inject_rma_size, std::min(attr.inject_size, rma_inject_limit)},
                        {opt_inject_atomic_size, attr.inject_size}},
                       level, name, value, length);
}

int set_option(fid_t f, int level, int name, const void* value, std::size_t length) noexcept
{
    if (level == FI_OPT_ENDPOINT && name == FI_OPT_FI_HMEM_P2P)
        return -FI_EOPNOTSUPP;
    if (level == FI_OPT_ENDPOINT && name == opt_shared_memory_permitted) // none is used, whatever is permitted
        return value == nullptr || length != sizeof(bool) ? -FI_EINVAL : 0;
    return set_multi_recv(Endpoint::of(f).rx_context().min_multi_recv, level, name, value, length);
}

ssize_t rx_size_left(fid_ep* e) noexcept
{
    Endpoint& endpoint = Endpoint::of(e);
    return endpoint.enabled() ? static_cast<ssize_t>(endpoint.rx_context().attr.size) : -FI_EOPBADSTATE;
}

int get_name(fid_t f, void* address, std::size_t* length) noexcept
{
    const Endpoint& endpoint = Endpoint::of(f);
    return write_address(endpoint.address(), endpoint.address_format(), address, length);
}

} // namespace

int get_options(std::initializer_list<Option> has, int level, int name, void* value, std::size_t* length) noexcept
{
    for (const Option& option : has) {
        if (level != FI_OPT_ENDPOINT || name != option.name)
            continue;
        if (value == nullptr || length == nullptr)
            return -FI_EINVAL;
        const std::size_t room = *length;
        *length = sizeof(option.value);
        if (room < sizeof(option.value))
            return -FI_ETOOSMALL;
        std::memcpy(value, &option.value, sizeof(option.value));
        return 0;
    }
    return -FI_ENOPROTOOPT;
}

int set_multi_recv(std::size_t& kept, int level, int name, const void* value, std::size_t length) noexcept
{
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
        return -FI_ENOPROTOOPT;
    if (value == nullptr || length != sizeof(kept))
        return -FI_EINVAL;
    std::memcpy(&kept, value, sizeof(kept));
    return 0;
}

fi_ops endpoint_fid_ops =
    object_ops({.close = bind_member<&Endpoint::close>, .bind = bind_member<&Endpoint::bind>, .control = control});
fi_ops alias_fid_ops = object_ops({.close = close_alias, .bind = unsupported<-FI_EINVAL>, .control = control});
// No tx_size_left: a send may be refused for reasons that lie with the peer, so no number would be a promise.
fi_ops_ep endpoint_ops = context_ops({.cancel = bind_member<&Endpoint::cancel>,
                                      .getopt = get_option,
                                      .setopt = set_option,
                                      .rx_size_left = rx_size_left,
                                      .tx_size_left = unsupported<-FI_ENOSYS>});
fi_ops_cm endpoint_cm_ops = [] {
    fi_ops_cm ops = cm_ops_with(get_name);
    ops.join = bind_member<&Endpoint::join>;
    return ops;
}();

// --- tables of which every call refuses (core/object.h), or every call of one direction

template <int code>
static constexpr RefusingOps refusing() noexcept
{
    constexpr auto no = unsupported<code>;
    constexpr auto never = unsupported<-FI_ENOSYS>;
    return {
        {sizeof(fi_ops_msg), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_rma), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_tagged), no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_atomic), no, no, no, no, no, no, no, no, no, no, no, no, no},
        {sizeof(fi_ops_collective), never, never, never, never, never, never, never, never, never, never, never},
    };
}

RefusingOps ops_of_disabled = refusing<-FI_EOPBADSTATE>();
RefusingOps ops_of_missing = refusing<-FI_EOPNOTSUPP>();

void refuse_all(fid_ep& ep, RefusingOps& ops) noexcept
{
    ep.msg = &ops.msg;
    ep.rma = &ops.rma;
    ep.tagged = &ops.tagged;
    ep.atomic = &ops.atomic;
    ep.collective = &ops.collective;
}

fi_ops_cm cm_ops_with(int (*getname)(fid_t, void*, size_t*)) noexcept
{
    constexpr auto nosys = unsupported<-FI_ENOSYS>;
    return {sizeof(fi_ops_cm), nosys, getname, nosys, nosys, nosys, nosys, nosys, nosys, nosys};
}

} // namespace tofu
