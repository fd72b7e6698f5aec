// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See av.h. fi_av(3).
#include "object/av.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>

#include <rdma/fi_errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "collective/set.h"
#include "info/info.h"
#include "info/names.h"
#include "progress/domain_base.h"
#include "provider/log.h"
#include "provider/refusal.h"
#include "queue/eq.h"

namespace tofu {

namespace {

AddressVector& of_fid(struct fid* fid) noexcept
{
    return AddressVector::of(reinterpret_cast<fid_av*>(fid));
}

int close_av(struct fid* fid) noexcept
{
    return of_fid(fid).close();
}
int bind_av(struct fid* fid, struct fid* object, std::uint64_t flags) noexcept
{
    if (object == nullptr || object->fclass != FI_CLASS_EQ || flags != 0)
        return -FI_EINVAL;
    return of_fid(fid).bind(EventQueue::of(reinterpret_cast<fid_eq*>(object)));
}
int insert(fid_av* av, const void* addresses, std::size_t count, fi_addr_t* places, std::uint64_t flags,
           void* context) noexcept
{
    return AddressVector::of(av).insert(addresses, count, places, flags, context);
}
int insert_service(fid_av* av, const char* node, const char* service, fi_addr_t* place, std::uint64_t flags,
                   void* context) noexcept
{
    return AddressVector::of(av).insert_named(node, service, place, flags, context);
}
int insert_symmetric(fid_av*, const char*, std::size_t, const char*, std::size_t, fi_addr_t*, std::uint64_t,
                     void*) noexcept
{
    TOFU_WARN(FI_LOG_AV, "address vector: no addresses follow from names here: insert what fi_getname gave\n");
    return -FI_ENOSYS;
}
int remove(fid_av* av, fi_addr_t* places, std::size_t count, std::uint64_t flags) noexcept
{
    return AddressVector::of(av).remove(places, count, flags);
}
int look_up(fid_av* av, fi_addr_t place, void* address, std::size_t* length) noexcept
{
    return AddressVector::of(av).copy(place, address, length);
}
const char* to_text(fid_av* av, const void* address, char* text, std::size_t* length) noexcept
{
    EndpointAddress binary{};
    char full[address_text_size];
    if (AddressVector::of(av).textual()) {
        std::snprintf(full, sizeof(full), "%s", static_cast<const char*>(address));
    } else {
        std::memcpy(&binary, address, sizeof(binary));
        address_to_text(binary, full);
    }
    if (*length > 0)
        std::snprintf(text, *length, "%s", full);
    *length = std::strlen(full) + 1;
    return text;
}

fi_ops fid_ops = object_ops({.close = close_av, .bind = bind_av});

// What newer releases add at the end stays null: libfabric then answers -FI_ENOSYS itself.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
fi_ops_av av_ops = {
    .size = sizeof(fi_ops_av),
    .insert = insert,
    .insertsvc = insert_service,
    .insertsym = insert_symmetric,
    .remove = remove,
    .lookup = look_up,
    .straddr = to_text,
    .av_set = coll::AvSet::open,
};
#pragma GCC diagnostic pop

constexpr const char* text_prefix = "tofu://";
constexpr std::size_t text_prefix_size = 7;

/// As many bytes as are readable there: the kernel copies them, and does not fault. Negative: none.
ssize_t copy_readable(const char* from, void* to, std::size_t size) noexcept
{
    const iovec target{to, size};
    const iovec source{const_cast<char*>(from), size};
    return process_vm_readv(getpid(), &target, 1, &source, 1, 0);
}

} // namespace

AddressVector::AddressVector(DomainBase& domain, bool textual) noexcept
    : Peers(domain), domain_(domain), textual_(textual)
{
}

int AddressVector::open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) noexcept
{
    if (attr == nullptr || (attr->type != FI_AV_UNSPEC && attr->type != FI_AV_MAP && attr->type != FI_AV_TABLE))
        return -FI_EINVAL;
    if ((attr->flags & ~(FI_EVENT | FI_SYMMETRIC | FI_READ)) != 0)
        return -FI_EBADFLAGS;
    if (attr->name == nullptr && (attr->flags & FI_READ) != 0)
        return -FI_EINVAL;
    if (attr->name != nullptr)
        return -FI_ENOSYS; // address vectors shared by name
    if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > max_rx_bits)
        return -FI_EINVAL;
    DomainBase& owner = DomainBase::of(domain);
    auto* made = new (std::nothrow) AddressVector(owner, owner.model().textual_addresses);
    if (made == nullptr)
        return -FI_ENOMEM;
    made->asynchronous_ = (attr->flags & FI_EVENT) != 0;
    if (!made->Peers::open(attr->rx_ctx_bits)) {
        delete made;
        return -FI_ENOMEM;
    }
    made->fid.fclass = FI_CLASS_AV;
    made->fid.context = context;
    made->fid.ops = &fid_ops;
    made->ops = &av_ops;
    if (attr->type == FI_AV_UNSPEC)
        attr->type = FI_AV_TABLE;
    owner.hold();
    *av = made;
    return 0;
}

int AddressVector::close() noexcept
{
    if (in_use())
        return -FI_EBUSY;
    if (events_ != nullptr)
        events_->release();
    domain_.release();
    delete this;
    return 0;
}

int AddressVector::bind(EventQueue& events) noexcept
{
    if (events_ != nullptr)
        return -FI_EINVAL;
    events_ = &events;
    events.hold();
    return 0;
}

/// Strings come one behind the other (as fi_getname gives them, and as other providers take them) or as an array
/// of pointers (as fi_av(3) says). No address of ours looks like a pointer; what is neither is looked at
/// with care. False: not readable.
bool AddressVector::text_at(const void* addresses, std::size_t number, char* text) noexcept
{
    if (std::strncmp(static_cast<const char*>(addresses), text_prefix, text_prefix_size) == 0) {
        const char* packed = static_cast<const char*>(addresses) + number * address_text_size;
        const std::size_t length = strnlen(packed, address_text_size - 1);
        std::memcpy(text, packed, length);
        text[length] = '\0';
        return true;
    }
    const auto* place = static_cast<const char*>(addresses) + number * sizeof(char*);
    const char* pointer = nullptr;
    std::memset(text, 0, address_text_size);
    return copy_readable(place, &pointer, sizeof(pointer)) == sizeof(pointer) &&
           copy_readable(pointer, text, address_text_size - 1) > 0;
}

/// What fi_getinfo gave as source, with FI_SOURCE and a service, was before any endpoint had the name: by now one may.
static void complete(EndpointAddress& address) noexcept
{
    if (address.magic == address_magic && address.home == 0 && address.nonce != 0 &&
        !names::find(address.nonce, address))
        address = {};
}

int AddressVector::may_insert(std::uint64_t flags) const noexcept
{
    // FI_AV_USER_ID would have to come back with each receive: refused rather than forgotten
    if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0)
        return -FI_EBADFLAGS;
    return asynchronous_ && events_ == nullptr ? -FI_ENOEQ : 0;
}

/// FI_SYNC_ERR: where to write what became of each address, or null.
int* AddressVector::errors_at(std::uint64_t flags, void* context) const noexcept
{
    return (flags & FI_SYNC_ERR) != 0 && !asynchronous_ ? static_cast<int*>(context) : nullptr;
}

int AddressVector::insert(const void* addresses, std::size_t count, fi_addr_t* places, std::uint64_t flags,
                          void* context) noexcept
{
    if (addresses == nullptr && count != 0)
        return -FI_EINVAL;
    if (int ret = may_insert(flags); ret != 0)
        return ret;
    int* const errors = errors_at(flags, context);
    int inserted = 0;
    for (std::size_t i = 0; i < count; i++) {
        EndpointAddress address{};
        char text[address_text_size];
        if (!textual_)
            std::memcpy(&address, static_cast<const char*>(addresses) + i * sizeof(address), sizeof(address));
        else if (!text_at(addresses, i, text) ||
                 !(address_from_text(text, address) || placeholder_from_text(text, address)))
            address = {};
        complete(address);
        const int error = insert_one(address, places != nullptr ? places + i : nullptr, context, i);
        inserted += error == 0;
        if (errors != nullptr)
            errors[i] = error;
    }
    changed();
    return finish(inserted, context);
}

int AddressVector::insert_named(const char* node, const char* service, fi_addr_t* place, std::uint64_t flags,
                                void* context) noexcept
{
    EndpointAddress address{};
    // the text of an address has no service
    if (node == nullptr || (service != nullptr && address_from_text(node, address)))
        return -FI_EINVAL;
    if (int ret = may_insert(flags); ret != 0)
        return ret;
    if (!find_peer(node, service, address))
        address = {};
    const int error = insert_one(address, place, context, 0);
    if (int* const errors = errors_at(flags, context); errors != nullptr)
        *errors = error;
    changed();
    return finish(error == 0, context);
}

/// What the insertion answers: the number inserted, or, where the vector was opened with FI_EVENT, 0 and an event
/// that carries the number.
int AddressVector::finish(int inserted, void* context) noexcept
{
    if (!asynchronous_)
        return inserted;
    events_->post(FI_AV_COMPLETE, {&fid, context, static_cast<std::uint64_t>(inserted)});
    return 0;
}

/// Returns 0 or a positive FI_E*.
int AddressVector::insert_one(const EndpointAddress& address, fi_addr_t* result, void* context,
                              std::size_t number) noexcept
{
    fi_addr_t index = FI_ADDR_NOTAVAIL;
    int error = FI_EINVAL;
    if (address.sound())
        error = Peers::insert(address, index);
    else
        TOFU_INFO(FI_LOG_AV, "address %zu of fi_av_insert is no address of this version (%u)\n", number,
                  wire_version);
    if (result != nullptr)
        *result = error == 0 ? index : FI_ADDR_NOTAVAIL;
    if (error != 0 && asynchronous_) {
        fi_eq_err_entry entry{};
        entry.fid = &fid;
        entry.context = context;
        entry.data = number;
        entry.err = error;
        events_->post_error(entry);
    }
    return error;
}

int AddressVector::remove(const fi_addr_t* places, std::size_t count, std::uint64_t flags) noexcept
{
    if (flags != 0)
        return -FI_EBADFLAGS;
    if (int ret = Peers::remove(places, count); ret != 0)
        return ret;
    changed();
    return 0;
}

int AddressVector::copy(fi_addr_t number, void* address, std::size_t* length) const noexcept
{
    const Peer* peer = find(number);
    if (peer == nullptr)
        return -FI_EINVAL;
    const EndpointAddress binary{address_magic,
                                 wire_version,
                                 peer->counts_events ? address_counts_events : std::uint8_t{0},
                                 static_cast<std::uint8_t>(peer->index),
                                 peer->further,
                                 peer->home,
                                 peer->nonce};
    char text[address_text_size];
    const void* from = &binary;
    std::size_t size = sizeof(binary);
    if (textual_) {
        address_to_text(binary, text);
        from = text;
        size = sizeof(text);
    }
    if (address != nullptr)
        std::memcpy(address, from, std::min(*length, size));
    *length = size;
    return 0;
}

} // namespace tofu
