// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See domain.h (AddressVector). fi_av(3).
#include "api/domain.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include <rdma/fi_errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "api/getinfo.h"
#include "api/names.h"
#include "coll/av_set.h"
#include "core/log.h"
#include "core/object.h"

namespace tofu {

namespace {

int insert_symmetric(fid_av*, const char*, std::size_t, const char*, std::size_t, fi_addr_t*, std::uint64_t,
                     void*) noexcept
{
    TOFU_WARN(FI_LOG_AV, "address vector: cannot resolve names: insert addresses that fi_getname() returned\n");
    return -FI_ENOSYS;
}
fi_ops av_fid_ops = object_ops({.close = close_object<AddressVector>, .bind = bind_member<&AddressVector::bind>});

fi_ops_av av_ops = {
    .size = sizeof(fi_ops_av),
    .insert = bind_member<&AddressVector::insert>,
    .insertsvc = bind_member<&AddressVector::insert_named>,
    .insertsym = insert_symmetric,
    .remove = bind_member<&AddressVector::remove>,
    .lookup = bind_member<&AddressVector::lookup>,
    .straddr = bind_member<&AddressVector::to_text>,
    .av_set = coll::AvSet::open,
};

constexpr const char* text_prefix = "tofu://";
constexpr std::size_t text_prefix_size = 7;

/// Copies as many bytes as are readable; the kernel copies, so nothing faults. Negative: none are.
ssize_t copy_readable(const char* from, void* to, std::size_t size) noexcept
{
    const iovec target{to, size};
    const iovec source{const_cast<char*>(from), size};
    return process_vm_readv(getpid(), &target, 1, &source, 1, 0);
}

} // namespace

AddressVector::AddressVector(DomainBase& domain) noexcept : Peers(domain), textual_(domain.model().textual_addresses)
{
    fid.ops = &av_fid_ops;
    ops = &av_ops;
}

int AddressVector::open(fid_domain* domain, fi_av_attr* attr, fid_av** av, void* context) noexcept
{
    return create<AddressVector>(DomainBase::of(domain), attr, av, context);
}

int AddressVector::set_up(fi_av_attr* attr) noexcept
{
    if (attr == nullptr || (attr->type != FI_AV_UNSPEC && attr->type != FI_AV_MAP && attr->type != FI_AV_TABLE))
        return -FI_EINVAL;
    if ((attr->flags & ~(FI_EVENT | FI_SYMMETRIC | FI_READ)) != 0)
        return -FI_EBADFLAGS;
    if (attr->name == nullptr && (attr->flags & FI_READ) != 0)
        return -FI_EINVAL;
    if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > max_rx_bits)
        return -FI_EINVAL;
    set_rx_bits(attr->rx_ctx_bits);
    if (attr->name != nullptr)
        if (int ret = share(*attr); ret != 0)
            return ret;
    asynchronous_ = (attr->flags & FI_EVENT) != 0;
    if (attr->type == FI_AV_UNSPEC)
        attr->type = FI_AV_TABLE;
    return 0;
}

/// The vector of a name is one for each user, job and node; its addresses are numbers, whatever its type.
int AddressVector::share(fi_av_attr& attr) noexcept
{
    char path[64];
    std::snprintf(path, sizeof(path), "/dev/shm/tofu-fi-av-%u-%016" PRIx64, geteuid(),
                  names::key_of(attr.name) ^ names::job_key());
    const int ret = store().share(path, (attr.flags & FI_READ) != 0);
    if (ret == -FI_ENOENT)
        TOFU_WARN(FI_LOG_AV, "address vector \"%s\": no process has it open, and FI_READ does not create it\n",
                  attr.name);
    else if (ret == -FI_EBUSY)
        TOFU_WARN(FI_LOG_AV,
                  "address vector \"%s\": %s is being created by a stopped process: continue or end that process\n",
                  attr.name, path);
    else if (ret == -FI_EMFILE)
        TOFU_WARN(FI_LOG_AV, "address vector \"%s\": no descriptor for %s: raise the limit (ulimit -n)\n", attr.name,
                  path);
    else if (ret != 0)
        TOFU_WARN(FI_LOG_AV,
                  "address vector \"%s\": %s belongs to another user, or no memory is left for it: remove it, free "
                  "memory in /dev/shm, or raise the limits (ulimit -f, -v)\n",
                  attr.name, path);
    attr.map_addr = ret == 0 ? store().numbers() : attr.map_addr;
    return ret;
}

int AddressVector::bind(struct fid* object, std::uint64_t flags) noexcept
{
    if (!is_ours(object, FI_CLASS_EQ) || flags != 0 || events_ != nullptr ||
        &EventQueue::of(object).owner() != &owner().owner())
        return -FI_EINVAL;
    events_ = &EventQueue::of(object);
    return 0;
}

/// Strings come one behind the other (as fi_getname gives them, and as other providers take them) or as an array
/// of pointers (as fi_av(3) says). No address of this provider looks like a pointer. Other input is read
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
    const auto* fi_addr = static_cast<const char*>(addresses) + number * sizeof(char*);
    const char* pointer = nullptr;
    std::memset(text, 0, address_text_size);
    return copy_readable(fi_addr, &pointer, sizeof(pointer)) == sizeof(pointer) &&
           copy_readable(pointer, text, address_text_size - 1) > 0;
}

/// Finds the endpoint behind a source address that fi_getinfo gave for a service name before any endpoint had that
/// name.
static void complete(EndpointAddress& address) noexcept
{
    if (address.magic == address_magic && address.target_vcq == 0 && address.nonce != 0 &&
        !names::find(address.nonce, address))
        address = {};
}

/// An owner identifies sources by their AV index, and inserts an address again for each of its users (Open MPI does so
/// for intercommunicators): one address has one index.
int AddressVector::insert_one(const EndpointAddress& address, fi_addr_t& fi_addr) noexcept
{
    return owner().model().has_owner && !store().is_shared() ? insert_once(address, fi_addr)
                                                             : Peers::insert(address, fi_addr);
}

/// Inserts the addresses that `address_of` gives by number. Returns how many were inserted; with FI_EVENT it returns 0,
/// and an event carries the number.
template <class AddressOf>
int AddressVector::insert_all(std::size_t count, fi_addr_t* fi_addrs, std::uint64_t flags, void* context,
                              AddressOf&& address_of) noexcept
{
    if ((flags & ~(FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID)) != 0)
        return -FI_EBADFLAGS;
    const bool named = (flags & FI_AV_USER_ID) != 0;
    if (named && (fi_addrs == nullptr || store().is_shared())) // other processes have names of their own
        return fi_addrs == nullptr ? -FI_EINVAL : -FI_ENOSYS;
    if (asynchronous_ && events_ == nullptr)
        return -FI_ENOEQ;
    if (!store().can_change())
        return -FI_EACCES;
    int* const errors = (flags & FI_SYNC_ERR) != 0 && !asynchronous_ ? static_cast<int*>(context) : nullptr;
    const std::uint64_t job = names::job_key();
    bool out_of_reach = false;
    std::uint64_t inserted = 0;
    int error = 0;
    for (std::size_t i = 0; i < count; i++) {
        const EndpointAddress address = address_of(i);
        fi_addr_t fi_addr = FI_ADDR_NOTAVAIL;
        // A stopped process is waited for only once.
        error = error == FI_EBUSY ? error : address.is_valid() ? insert_one(address, fi_addr) : FI_EINVAL;
        if (error == 0 && named && (error = name(fi_addr, fi_addrs[i])) != 0)
            (void)Peers::remove(&fi_addr, 1);
        if (error == FI_EINVAL)
            TOFU_INFO(FI_LOG_AV, "address %zu of fi_av_insert is not an address of this version (%u)\n", i,
                      wire_version);
        if (fi_addrs != nullptr)
            fi_addrs[i] = error == 0 ? fi_addr : FI_ADDR_NOTAVAIL;
        if (errors != nullptr)
            errors[i] = error;
        inserted += error == 0;
        out_of_reach |= error == 0 && names::is_of_another_job(address.nonce, job);
        if (error != 0 && asynchronous_) {
            fi_eq_err_entry entry{};
            entry.fid = &fid;
            entry.context = context;
            entry.data = i;
            entry.err = error;
            events_->post_error(entry);
        }
    }
    changed();
    if (error == FI_EBUSY)
        TOFU_WARN(FI_LOG_AV, "shared address vector: a process was stopped during a change: continue or end it\n");
    if (out_of_reach)
        TOFU_WARN(FI_LOG_AV, "address vector: an address belongs to another job of the simulator, which this process "
                             "cannot reach: set the same TOFU_SIM_JOB for all processes\n");
    if (!asynchronous_)
        return static_cast<int>(inserted);
    events_->post(FI_AV_COMPLETE, {&fid, context, inserted});
    return 0;
}

int AddressVector::insert(const void* addresses, std::size_t count, fi_addr_t* fi_addrs, std::uint64_t flags,
                          void* context) noexcept
{
    if (addresses == nullptr && count != 0)
        return -FI_EINVAL;
    return insert_all(count, fi_addrs, flags, context, [&](std::size_t i) {
        EndpointAddress address{};
        char text[address_text_size];
        if (!textual_)
            std::memcpy(&address, static_cast<const char*>(addresses) + i * sizeof(address), sizeof(address));
        else if (text_at(addresses, i, text))
            (void)scan_address(text, address);
        complete(address);
        return address;
    });
}

int AddressVector::insert_named(const char* node, const char* service, fi_addr_t* fi_addr, std::uint64_t flags,
                                void* context) noexcept
{
    EndpointAddress address{};
    // the text of an address has no service
    if (node == nullptr || (service != nullptr && address_from_text(node, address)))
        return -FI_EINVAL;
    return insert_all(1, fi_addr, flags, context,
                      [&](std::size_t) { return find_peer(node, service, address) ? address : EndpointAddress{}; });
}

int AddressVector::remove(fi_addr_t* fi_addrs, std::size_t count, std::uint64_t flags) noexcept
{
    if (flags != 0)
        return -FI_EBADFLAGS;
    if (fi_addrs == nullptr && count != 0)
        return -FI_EINVAL;
    if (!store().can_change())
        return -FI_EACCES;
    if (int ret = Peers::remove(fi_addrs, count); ret != 0)
        return ret;
    changed();
    return 0;
}

int AddressVector::lookup(fi_addr_t fi_addr, void* address, std::size_t* length) noexcept
{
    const Peer* peer = find(fi_addr);
    if (peer == nullptr || length == nullptr)
        return -FI_EINVAL;
    const unsigned flags = peer->counts_events ? address_counts_events : 0;
    const AddressForm form(make_address(peer->target_vcq, peer->nonce, peer->index, peer->further, flags), textual_);
    if (address != nullptr)
        std::memcpy(address, form.bytes, std::min(*length, form.size));
    *length = form.size;
    return 0;
}

/// fi_av_straddr(3)
const char* AddressVector::to_text(const void* address, char* text, std::size_t* length) noexcept
{
    EndpointAddress binary{};
    char made[address_text_size];
    const char* full = static_cast<const char*>(address);
    if (!textual_) {
        std::memcpy(&binary, address, sizeof(binary));
        address_to_text(binary, made);
        full = made;
    }
    *length = static_cast<std::size_t>(std::snprintf(text, *length, "%s", full)) + 1;
    return text;
}

} // namespace tofu
