// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See domain.h.
#include "api/domain.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext_tofu.h>
#include <sched.h>
#include <unistd.h>

#include "api/contexts.h"
#include "api/endpoint.h"
#include "api/getinfo.h"
#include "api/names.h"
#include "atomic/op_table.h"
#include "coll/plan.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/object.h"
#include "core/params.h"
#include "core/system.h"
#include "cq/cq.h"
#include "cq/poll_set.h"
#include "mem/bounce_pool.h"
#include "mem/reg_cache.h"

namespace tofu {

namespace {

/// FI_REG_MR by number: libfabric 2 deprecates the name.
constexpr std::uint64_t reg_mr = std::uint64_t{1} << 59;

/// A raw key is the key itself (raw_attr in api/mr_calls.cc), which any process can use as it is.
int map_raw_key(const struct fi_mr_map_raw* map) noexcept
{
    if (map == nullptr || map->raw_key == nullptr || map->key == nullptr || map->key_size != sizeof(*map->key))
        return -FI_EINVAL;
    if (map->flags != 0)
        return -FI_EBADFLAGS;
    std::memcpy(map->key, map->raw_key, sizeof(*map->key));
    return 0;
}
int control_domain(struct fid* fid, int command, void* argument) noexcept
{
    switch (command) {
    case FI_MAP_RAW_MR: return map_raw_key(static_cast<const struct fi_mr_map_raw*>(argument));
    case FI_UNMAP_KEY: return argument != nullptr ? 0 : -FI_EINVAL;
    case FI_QUEUE_WORK:
    case FI_CANCEL_WORK:
    case FI_FLUSH_WORK:
        return Domain::of(reinterpret_cast<fid_domain*>(fid))
            .work()
            .control(command, static_cast<const fi_deferred_work*>(argument));
    default: return -FI_ENOSYS;
    }
}
int query_domain_atomic(fid_domain*, fi_datatype type, fi_op op, fi_atomic_attr* attr, std::uint64_t flags) noexcept
{
    return query_atomic(type, op, attr, flags);
}

// --- the operations of a domain beyond libfabric's interfaces (rdma/fi_ext_tofu.h)

int read_statistics(struct fid* domain, struct fi_tofu_statistic* list, std::size_t* count) noexcept
{
    if (domain == nullptr || domain->fclass != FI_CLASS_DOMAIN || count == nullptr || (list == nullptr && *count != 0))
        return -FI_EINVAL;
    const auto sums = DomainBase::of(domain).statistics().sums();
    const std::size_t room = *count;
    *count = 0;
    const auto add = [&](const StatisticsBook::Row& row, std::uint64_t value) {
        if (*count < room)
            list[*count] = {row.name, row.meaning, value};
        ++*count;
    };
    for (std::size_t i = 0; i < stats; i++)
        add(StatisticsBook::rows()[i], sums[i]);
    for (const StatisticsBook::OldName& old : StatisticsBook::old_names())
        add(old.row, sums[static_cast<std::size_t>(old.stat)]);
    return 0;
}

fi_tofu_ops_statistics statistics_ops = {sizeof(fi_tofu_ops_statistics), read_statistics};

/// fi_open_ops(3).
int open_extension(struct fid*, const char* name, std::uint64_t flags, void** ops, void*) noexcept
{
    if (name == nullptr || ops == nullptr)
        return -FI_EINVAL;
    if (std::strcmp(name, FI_TOFU_STATISTICS) != 0)
        return -FI_ENOSYS;
    if (flags != 0)
        return -FI_EBADFLAGS;
    *ops = &statistics_ops;
    return 0;
}

// --- the tables

fi_ops domain_fid_ops = object_ops({.close = bind_member<&Domain::close>,
                                    .bind = bind_member<&Domain::bind>,
                                    .control = control_domain,
                                    .open_ops = open_extension});

fi_ops_domain domain_ops = {
    .size = sizeof(fi_ops_domain),
    .av_open = AddressVector::open,
    .cq_open = open_queue,
    .endpoint = Endpoint::open,
    .scalable_ep = ScalableEndpoint::open,
    .cntr_open = open_counter,
    .poll_open = PollSet::open,
    .stx_ctx = SharedTransmit::open,
    .srx_ctx = SharedReceive::open,
    .query_atomic = query_domain_atomic,
    .query_collective = coll::query,
};

/// The one domain of the process whose endpoints may post from VCQs that are not thread-safe. Those of a serialised
/// domain are used by one thread at a time, under the shared lock once it has a thread, and thread-safe ones may share
/// a CQ with them (guide 3.3.4.1); but another domain is another thread's.
constinit std::atomic<const Domain*> unsafe_domain{nullptr};

} // namespace

Domain::Domain(FabricBase& fabric) noexcept : DomainBase(fabric)
{
    fid.ops = &domain_fid_ops;
    ops = &domain_ops;
    mr = &region_ops;
    regions_ = &own_regions_;
    lane_directory_ = &own_lane_directory_;
    orphaned_copies_ = &own_orphaned_copies_;
    deferred_.calls = &*own_triggered_;
}

Domain::~Domain()
{
    if (!vcqs_.safe)
        unsafe_domain.store(nullptr, std::memory_order_release); // partner: set_up(); the VCQs are closed
}

int Domain::open(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) noexcept
{
    const int error = create<Domain>(FabricBase::of(fabric), info, domain, context);
    if (error == 0)
        all().add(of(*domain));
    return error;
}

int Domain::set_up(const fi_info* wish) noexcept
{
    if (wish == nullptr || wish->domain_attr == nullptr || wish->fabric_attr == nullptr)
        return -FI_EINVAL;
    const fi_info& info = *wish;
    if (info.domain_attr->name != nullptr && std::strcmp(info.domain_attr->name, domain_name()) != 0) {
        TOFU_WARN(FI_LOG_DOMAIN, "domain: %s is not supported: use %s\n", info.domain_attr->name, domain_name());
        return -FI_EINVAL;
    }
    if (!has_enumerators(*info.domain_attr)) {
        TOFU_WARN(FI_LOG_DOMAIN,
                  "domain: domain_attr has an invalid enumerator: pass the info that fi_getinfo returned\n");
        return -FI_EINVAL;
    }
    int error = check_params();
    if (error != 0)
        return error;
    RegistrationCache::prepare();
    vcqs_.backend = vcq::Backend::get(error);
    if (vcqs_.backend == nullptr)
        return error;
    const int mr_mode = info.domain_attr->mr_mode;
    // With FI_PEER data_progress is manual, and there is nothing to control.
    const bool wants_thread = info.domain_attr->data_progress == FI_PROGRESS_AUTO ||
                              (info.domain_attr->control_progress == FI_PROGRESS_AUTO && (info.caps & FI_PEER) == 0);
    // FI_THREAD_DOMAIN promises that the application serialises all that shares a domain; every other model lets
    // threads meet at the target VCQ, at a queue or at an endpoint.
    model_.serialised = info.domain_attr->threading == FI_THREAD_DOMAIN && !wants_thread;
    auto_progress_.choose(model_.serialised, wants_thread);
    const Domain* nobody = nullptr;
    // acquire: partner ~Domain()
    vcqs_.safe = !model_.serialised || !unsafe_domain.compare_exchange_strong(nobody, this, std::memory_order_acq_rel);
    model_.virtual_addresses = (mr_mode & (FI_MR_VIRT_ADDR | limits::mr_basic)) != 0;
    model_.provider_keys = (mr_mode & (FI_MR_PROV_KEY | limits::mr_basic)) != 0;
    model_.whole_words = (info.caps & (FI_ATOMIC | FI_RMA_EVENT)) != 0;
    model_.textual_addresses = info.addr_format == FI_ADDR_STR;
    model_.has_owner = (info.caps & FI_PEER) != 0;
    model_.api_version = info.fabric_attr->api_version;
    model_.valid_descs = !model_.has_owner && FI_VERSION_GE(model_.api_version, FI_VERSION(1, 22));
    auto_progress_.adopt(target_lock_);
    auto_progress_.adopt(shared_lock_);
    auto_progress_.adopt(deferred_.lock);
    nonce_ = nonce_of_domain(Random::number(0));
    if (nonce_ == 0)
        nonce_ = nonce_of_domain(reinterpret_cast<std::uintptr_t>(this) | 1);
    nonce_ = names::with_job_mark(nonce_, names::job_key());

    error = vcqs_.open(target_vcq_, {.owner = this, .remote = on_remote}, true);
    if (error != 0)
        return error;
    const auto job = backend().functions().job;
    error = numbers().open(job != nullptr ? job() : nullptr, target_vcq_id(), nonce_);
    return error != 0 ? error : regions_->open();
}

/// fi_domain(3): the queue for asynchronous events of the domain, of which registrations are the only ones.
int Domain::bind(struct fid* object, std::uint64_t flags) noexcept
{
    if (!is_ours(object, FI_CLASS_EQ) || &EventQueue::of(object).owner() != &owner())
        return -FI_EINVAL;
    if ((flags & ~reg_mr) != 0)
        return -FI_EBADFLAGS;
    if (events_ != nullptr)
        return -FI_EINVAL;
    events_ = &EventQueue::of(object);
    if ((flags & reg_mr) != 0)
        registration_events_ = events_;
    return 0;
}

/// Waits until receivers have fetched what closed endpoints have reported as sent, or are gone. Nothing can be fetched
/// afterwards, so the wait ends when live receivers have fetched nothing for a while; slow ones are waited for. A
/// receiver may be an endpoint of this process that depends on the calling thread, so domains with locks make progress
/// here.
void Domain::await_receivers() noexcept
{
    constexpr std::chrono::milliseconds short_while{10};
    constexpr std::chrono::seconds long_while{1};
    if (!own_orphaned_copies_.any())
        return;
    const std::chrono::seconds most{param_size("linger", 300)};
    auto begin = Clock::now();
    std::size_t left = own_orphaned_copies_.messages();
    for (bool warned = false; own_orphaned_copies_.any();) {
        (void)progress_domain(true);
        progress_everywhere(*this);
        if (const std::size_t now = own_orphaned_copies_.messages(); now < left) {
            left = now;
            begin = Clock::now();
        }
        const auto waited = Clock::now() - begin;
        if (waited >= most)
            break;
        if (waited >= long_while && !std::exchange(warned, true))
            TOFU_WARN(FI_LOG_DOMAIN,
                      "domain: fi_close waits for receivers that have not fetched messages: let them make progress or "
                      "close their endpoints; after %lld s without progress (FI_TOFU_LINGER) the messages are lost\n",
                      static_cast<long long>(most.count()));
        if (waited >= short_while)
            Clock::sleep(std::chrono::microseconds(50));
        else
            sched_yield();
    }
}

void Domain::print_placement() const noexcept
{
    char placement[512], text[768];
    describe_placement(placement, sizeof placement);
    const char* const thread = auto_progress_.processors();
    const char* const named = *thread != '\0' ? "; thread of automatic progress: processors " : "";
    const int length = std::snprintf(text, sizeof text, "tofu: placement of process %d: %s%s%s\n",
                                     static_cast<int>(getpid()), placement, named, thread);
    (void)!::write(STDERR_FILENO, text, std::min(static_cast<std::size_t>(length), sizeof text - 1));
}

int Domain::close() noexcept
{
    if (in_use())
        return -FI_EBUSY;
    await_receivers();
    all().remove(*this);
    auto_progress_.close();
    own_triggered_.reset();
    regions_->close();
    lane_directory_->close();
    if (const std::size_t lost = own_orphaned_copies_.close(); lost != 0)
        TOFU_WARN(FI_LOG_DOMAIN,
                  "domain: %zu messages that were reported as sent are lost, since their receivers did not fetch them: "
                  "raise FI_TOFU_LINGER, or let receivers make progress before senders close\n",
                  lost);
    target_vcq_.close();
    if (param_size("stats", 0) != 0) {
        statistics().print();
        print_placement();
    }
    delete this;
    return 0;
}

bool Domain::progress_domain(bool patient) noexcept
{
    if (patient)
        target_lock_.lock();
    else if (!target_lock_.try_lock())
        return false;
    bool some = target_vcq_.poll() != 0;
    some |= regions_->overflow().poll();
    regions_->directory().return_credits();
    target_lock_.unlock();
    if (deferred_.any()) [[unlikely]]
        own_triggered_->progress();
    if (own_orphaned_copies_.any()) [[unlikely]]
        own_orphaned_copies_.progress();
    return some;
}

/// Under the target lock. Notices are of RMA events alone: messages leave none (docs/wire-protocol.md, "Receive
/// queues").
void Domain::on_remote(void* self, const vcq::RemoteNotice& notice) noexcept
{
    static_cast<Domain*>(self)->regions_->remote_event(0, notice);
}

void Domain::forget_counter(const Counter& counter) noexcept
{
    regions_->forget_counter(counter);
}

std::size_t Domain::target_vcqs(utofu_vcq_hdl_t* handles, std::size_t most) noexcept
{
    if (most == 0)
        return 0;
    std::lock_guard guard(target_lock_);
    handles[0] = target_vcq_.handle();
    return 1 + regions_->overflow().handles(handles + 1, most - 1);
}

} // namespace tofu
