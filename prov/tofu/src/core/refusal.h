// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The answer of calls that are not offered. libfabric's inline wrappers call through most slots of an operation table
// without a look, so each has to hold a function. Used wherever such tables are filled in; calls nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace tofu {

/// One function for each signature.
template <int code, class Signature>
struct Refuse;
template <int code, class Result, class... Arguments>
struct Refuse<code, Result(Arguments...)> {
    static Result call(Arguments...) noexcept { return code; }
};

/// Converts to a refusing function of whatever type the slot has.
template <int code>
struct Refusal {
    template <class Signature>
    constexpr operator Signature*() const noexcept
    {
        return &Refuse<code, Signature>::call;
    }
};

/// For a slot: the call does nothing and answers `code`, a negative FI_E*.
template <int code>
inline constexpr Refusal<code> refuses{};

/// The calls of fid_ops, which every object has (fi_close(3), fi_control(3) and the fi_*_bind of each). Those that are
/// not named answer -FI_ENOSYS.
struct ObjectCalls {
    int (*close)(struct fid* object);
    int (*bind)(struct fid* object, struct fid* other, std::uint64_t flags) = refuses<-FI_ENOSYS>;
    int (*control)(struct fid* object, int command, void* argument) = refuses<-FI_ENOSYS>;
    int (*open_ops)(struct fid* object, const char* name, std::uint64_t flags, void** ops,
                    void* context) = refuses<-FI_ENOSYS>;
};

/// fi_set_ops(3) of every object: nothing can be set. The function also marks our objects: see is_ours().
inline int set_no_ops(struct fid*, const char*, std::uint64_t, void*, void*) noexcept { return -FI_ENOSYS; }

constexpr fi_ops object_ops(const ObjectCalls& calls) noexcept
{
    return {sizeof(fi_ops), calls.close, calls.bind, calls.control, calls.open_ops, nullptr, set_no_ops};
}

/// Has the application passed an object of this class, and one of ours? Several providers' objects look alike in a
/// process, and theirs have nothing behind the handle that we know of.
[[nodiscard]] inline bool is_ours(const struct fid* object, std::size_t fclass) noexcept
{
    constexpr std::size_t least = offsetof(fi_ops, ops_set) + sizeof(fi_ops::ops_set);
    return object != nullptr && object->fclass == fclass && object->ops != nullptr && object->ops->size >= least &&
           object->ops->ops_set == set_no_ops;
}

} // namespace tofu
