// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What all objects of libfabric have in common: they are opened from another, which stays until they are closed; the
// application calls them through tables of functions; and who is in use answers fi_close(3) with -FI_EBUSY. Base of all
// that the application holds; calls nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include "core/counted.h"

namespace tofu {

/// `HandleType` is the struct that the application holds, `OwnerType` what the object is opened from, and `Base` what is
/// behind the handle where that is more.
template <class Self, class HandleType, class OwnerType, class Base = HandleType>
class Object : public Base, public Counted {
  public:
    using Handle = HandleType;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    static Self& of(Handle* handle) noexcept { return static_cast<Self&>(*handle); }
    static Self& of(struct fid* object) noexcept { return of(reinterpret_cast<Handle*>(object)); }
    [[nodiscard]] OwnerType& owner() const noexcept { return static_cast<OwnerType&>(*owner_); }

    /// For the table of the owner: create() by what the application passes.
    template <class OwnerHandle, class Attr>
    static int open(OwnerHandle* owner, Attr* attr, Handle** made, void* context) noexcept;

  protected:
    explicit Object(Counted* owner, std::size_t fclass) noexcept : Base{}, owner_(owner)
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
    Counted* const owner_; ///< null: a fabric
};

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

template <class Self, class HandleType, class OwnerType, class Base>
template <class OwnerHandle, class Attr>
int Object<Self, HandleType, OwnerType, Base>::open(OwnerHandle* owner, Attr* attr, Handle** made, void* context) noexcept
{
    return create<Self>(OwnerType::of(owner), attr, made, context);
}

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
const Attr& given(const Attr* attr) noexcept
{
    static constexpr Attr nothing{};
    return attr != nullptr ? *attr : nothing;
}

/// Converts to a function for whatever slot of a table: it calls the member of the object behind its first argument. A
/// member without a result answers 0.
template <auto member>
struct Calls {
    template <class Result, class Fid, class... Arguments>
    using Slot = Result (*)(Fid*, Arguments...);

    template <class Result, class Fid, class... Arguments>
    constexpr operator Slot<Result, Fid, Arguments...>() const noexcept
    {
        return [](Fid* fid, Arguments... arguments) noexcept -> Result {
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
inline constexpr Calls<member> calls{};

} // namespace tofu
