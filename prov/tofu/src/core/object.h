// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Objects of libfabric that the application holds. Their life: reference counts (RefCounted, Ref), and fi_close(3),
// which answers -FI_EBUSY while others use the object. The answer of calls that are not supported (Unsupported). The
// base of all objects (Object), and libfabric's tables of their functions (ObjectCalls). The open objects of one kind
// (OpenList), and the base of fabrics (FabricBase).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "core/containers.h"
#include "core/system.h"

namespace tofu {

/// Counts its users. Any thread.
class RefCounted {
  public:
    void hold() noexcept { users_.fetch_add(1, std::memory_order_relaxed); }
    /// release: what its user has done with it comes before its end (partner: users())
    void release() noexcept { users_.fetch_sub(1, std::memory_order_release); }
    [[nodiscard]] int users() const noexcept { return users_.load(std::memory_order_acquire); }
    [[nodiscard]] bool in_use() const noexcept { return users() != 0; }

  private:
    std::atomic<int> users_{0};
};

/// An object that is used from here, or none.
template <class T>
class Ref {
  public:
    Ref() = default;
    Ref(Ref&& from) noexcept : object_(std::exchange(from.object_, nullptr)) {}
    Ref& operator=(Ref&& from) noexcept
    {
        std::swap(object_, from.object_);
        return *this;
    }
    ~Ref() { *this = nullptr; }
    /// Lets go of the one before.
    Ref& operator=(T* object) noexcept
    {
        if (object != nullptr)
            object->hold();
        if (T* const before = std::exchange(object_, object); before != nullptr)
            before->release();
        return *this;
    }
    operator T*() const noexcept { return object_; }
    T* get() const noexcept { return object_; }
    T* operator->() const noexcept { return object_; }

  private:
    T* object_ = nullptr;
};

// --- Unsupported: the answer of calls that are not offered. libfabric's inline wrappers call through most slots of an
// operation table without a look, so each has to hold a function.

/// One function for each signature.
template <int code, class Signature>
struct UnsupportedCall;
template <int code, class Result, class... Arguments>
struct UnsupportedCall<code, Result(Arguments...)> {
    static Result call(Arguments...) noexcept { return code; }
};

/// Converts to a refusing function of whatever type the slot has.
template <int code>
struct Unsupported {
    template <class Signature>
    constexpr operator Signature*() const noexcept
    {
        return &UnsupportedCall<code, Signature>::call;
    }
};

/// For a slot: the call does nothing and answers `code`, a negative FI_E*.
template <int code>
inline constexpr Unsupported<code> unsupported{};

/// The calls of fid_ops, which every object has (fi_close(3), fi_control(3) and the fi_*_bind of each). Those that are
/// not named answer -FI_ENOSYS.
struct ObjectCalls {
    int (*close)(struct fid* object);
    int (*bind)(struct fid* object, struct fid* other, std::uint64_t flags) = unsupported<-FI_ENOSYS>;
    int (*control)(struct fid* object, int command, void* argument) = unsupported<-FI_ENOSYS>;
    int (*open_ops)(struct fid* object, const char* name, std::uint64_t flags, void** ops,
                    void* context) = unsupported<-FI_ENOSYS>;
};

/// fi_set_ops(3) of every object: nothing can be set. The function also marks our objects: see is_ours().
inline int set_no_ops(struct fid*, const char*, std::uint64_t, void*, void*) noexcept
{
    return -FI_ENOSYS;
}

constexpr fi_ops object_ops(const ObjectCalls& calls) noexcept
{
    return {sizeof(fi_ops), calls.close, calls.bind, calls.control, calls.open_ops, nullptr, set_no_ops};
}

/// Whether the application has passed an object of this class and of this provider. Objects of several providers look
/// alike in a process, and those of others have a different layout behind the handle.
[[nodiscard]] inline bool is_ours(const struct fid* object, std::size_t fclass) noexcept
{
    constexpr std::size_t least = offsetof(fi_ops, ops_set) + sizeof(fi_ops::ops_set);
    return object != nullptr && object->fclass == fclass && object->ops != nullptr && object->ops->size >= least &&
           object->ops->ops_set == set_no_ops;
}

/// Makes a T(owner) and hands it out when its set_up(attr) has answered 0. 0, -FI_EINVAL, -FI_ENOMEM, or that answer.
template <class T, class Owner, class Attr>
int create(Owner& owner, Attr* attr, typename T::Handle** made, void* context) noexcept
{
    if (made == nullptr)
        return -FI_EINVAL;
    std::unique_ptr<T> object(new (std::nothrow) T(owner));
    if (object == nullptr)
        return -FI_ENOMEM;
    if (const int error = object->set_up(attr); error != 0)
        return error;
    object->fid.context = context;
    *made = object.release();
    return 0;
}

/// `HandleType` is the struct that the application holds, `OwnerType` what the object is opened from, and `Base` what
/// is behind the handle where that is more.
template <class Self, class HandleType, class OwnerType, class Base = HandleType>
class Object : public Base, public RefCounted {
  public:
    using Handle = HandleType;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    static Self& of(Handle* handle) noexcept { return static_cast<Self&>(*handle); }
    static Self& of(struct fid* object) noexcept { return of(reinterpret_cast<Handle*>(object)); }
    [[nodiscard]] OwnerType& owner() const noexcept { return static_cast<OwnerType&>(*owner_); }

    /// For the table of the owner: create() by what the application passes.
    template <class OwnerHandle, class Attr>
    static int open(OwnerHandle* owner, Attr* attr, Handle** made, void* context) noexcept
    {
        return create<Self>(OwnerType::of(owner), attr, made, context);
    }

  protected:
    explicit Object(RefCounted* owner, std::size_t fclass) noexcept : Base{}, owner_(owner)
    {
        this->fid.fclass = fclass;
        if (owner_ != nullptr)
            owner_->hold();
    }
    ~Object()
    {
        if (owner_ != nullptr)
            owner_->release();
    }

  private:
    RefCounted* const owner_; ///< null: a fabric
};

/// For the table of a T: fi_close(3).
template <class T>
int close_object(struct fid* fid) noexcept
{
    T& object = T::of(reinterpret_cast<typename T::Handle*>(fid));
    if (object.in_use())
        return -FI_EBUSY;
    delete &object;
    return 0;
}

/// What the application asks for, or all zeroes where it leaves that open.
template <class Attr>
const Attr& attr_or_default(const Attr* attr) noexcept
{
    static constexpr Attr nothing{};
    return attr != nullptr ? *attr : nothing;
}

/// Converts to a function for whatever slot of a table: it calls the member of the object behind its first argument. A
/// member without a result answers 0.
template <auto member>
struct BindMember {
    template <class Result, class Fid, class... Arguments>
    using Slot = Result (*)(Fid*, Arguments...);

    template <class Result, class Fid, class... Arguments>
    constexpr operator Slot<Result, Fid, Arguments...>() const noexcept
    {
        return [](Fid* fid, Arguments... arguments) -> Result {
            auto& self = object_of(member, fid);
            if constexpr (std::is_void_v<decltype((self.*member)(arguments...))>)
                return (self.*member)(arguments...), Result{};
            else
                return (self.*member)(arguments...);
        };
    }

  private:
    template <class T, class Member, class Fid>
    static auto& object_of(Member T::*, Fid* fid) noexcept
    {
        return T::of(reinterpret_cast<typename T::Handle*>(fid));
    }
};
template <auto member>
inline constexpr BindMember<member> bind_member{};

// --- OpenList: the objects of one kind that are open in the process, oldest first: fi_getinfo names the first fabric
// and domain (fi_fabric(3), fi_domain(3)).

/// Linked through the objects' `next_open`, so that nothing is left to be destroyed when the process ends. Any
/// thread.
template <class Object>
class OpenList {
  public:
    void add(Object& object) noexcept
    {
        std::lock_guard guard(mutex_);
        list_.push_back(object);
    }
    void remove(const Object& object) noexcept
    {
        std::lock_guard guard(mutex_);
        list_.remove(object);
    }
    /// Calls `visit` with each object, which stays open meanwhile.
    template <class Visit>
    void each(Visit&& visit) noexcept
    {
        std::lock_guard guard(mutex_);
        list_.each(visit);
    }
    /// `wanted` where it is one of these, the first of them for null, else null.
    template <class Handle>
    [[nodiscard]] Object* find(const Handle* wanted) noexcept
    {
        std::lock_guard guard(mutex_);
        Object* found = wanted == nullptr ? list_.first() : nullptr;
        list_.each([&](Object& object) { found = static_cast<const Handle*>(&object) == wanted ? &object : found; });
        return found;
    }

  private:
    Mutex mutex_;
    List<Object, &Object::next_open> list_;
};

// --- FabricBase: a fabric as the objects opened from it see it

class FabricBase : public Object<FabricBase, fid_fabric, RefCounted> {
  public:
    FabricBase() noexcept : Object(nullptr, FI_CLASS_FABRIC) {}
    ~FabricBase() { all().remove(*this); }
    /// Those open in this process.
    static OpenList<FabricBase>& all() noexcept
    {
        static constinit OpenList<FabricBase> list;
        return list;
    }

    FabricBase* next_open = nullptr; ///< the list's
};

} // namespace tofu
