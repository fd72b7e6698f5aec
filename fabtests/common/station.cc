// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See station.h.
#include "station.h"

#include <sched.h>

namespace fabtests {
namespace {

constexpr std::uint64_t kinds[] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};

} // namespace

Station::Station(World& world, const StationOptions& options) : world_(world), options_(options)
{
    refusal_ = open();
    // What ours refuses is a failure; of others it is to be known.
    CHECK(world_, refusal_ == 0 || !world_.ours());
    world_.barrier();
    if (refusal_ == 0) {
        world_.add(*this);
        refusal_ = meet();
        CHECK(world_, refusal_ == 0);
    }
    world_.barrier();
}

Station::~Station()
{
    if (refusal_ == 0) {
        world_.barrier();
        world_.remove(*this);
    }
    if (ep_ != nullptr)
        CHECK(world_, fi_close(&ep_->fid) == 0);
    for (fid_cntr* counter : counters_)
        if (counter != nullptr)
            CHECK(world_, fi_close(&counter->fid) == 0);
    if (rx_ != nullptr && rx_ != tx_)
        CHECK(world_, fi_close(&rx_->fid) == 0);
    if (tx_ != nullptr)
        CHECK(world_, fi_close(&tx_->fid) == 0);
    if (av_ != nullptr)
        CHECK(world_, fi_close(&av_->fid) == 0);
    if (eq_ != nullptr)
        CHECK(world_, fi_close(&eq_->fid) == 0);
}

int Station::open_queues()
{
    fi_cq_attr attr{};
    attr.format = options_.format;
    attr.size = options_.queue_size;
    attr.wait_obj = options_.wait;
    attr.wait_set = options_.wait_set;
    attr.wait_cond = options_.condition;
    if (int rc = fi_cq_open(world_.domain(), &attr, &tx_, this); rc != 0)
        return rc;
    if (!options_.one_queue)
        return fi_cq_open(world_.domain(), &attr, &rx_, this);
    rx_ = tx_;
    return 0;
}

int Station::open_counters()
{
    for (unsigned i = 0; i < counter_kinds; ++i) {
        if ((options_.counters & kinds[i]) == 0)
            continue;
        fi_cntr_attr attr{};
        attr.wait_obj = options_.counter_wait;
        if (int rc = fi_cntr_open(world_.domain(), &attr, &counters_[i], this); rc != 0)
            return rc;
        if (int rc = fi_ep_bind(ep_, &counters_[i]->fid, kinds[i]); rc != 0)
            return rc;
    }
    return 0;
}

int Station::open()
{
    fi_av_attr av{};
    av.type = FI_AV_TABLE;
    if (int rc = fi_av_open(world_.domain(), &av, &av_, nullptr); rc != 0)
        return rc;
    if (int rc = open_queues(); rc != 0)
        return rc;
    fi_info* info = world_.further_info();
    const int made = fi_endpoint(world_.domain(), info, &ep_, this);
    fi_freeinfo(info);
    if (made != 0)
        return made;
    const std::uint64_t selective = options_.selective ? FI_SELECTIVE_COMPLETION : 0;
    int rc = fi_ep_bind(ep_, &av_->fid, 0);
    if (options_.one_queue) {
        if (rc == 0)
            rc = fi_ep_bind(ep_, &tx_->fid, FI_TRANSMIT | FI_RECV | selective);
    } else {
        if (rc == 0)
            rc = fi_ep_bind(ep_, &tx_->fid, FI_TRANSMIT | selective);
        if (rc == 0)
            rc = fi_ep_bind(ep_, &rx_->fid, FI_RECV | selective);
    }
    fi_eq_attr events{};
    events.wait_obj = FI_WAIT_NONE;
    if (rc == 0 && options_.events && (rc = fi_eq_open(world_.fabric(), &events, &eq_, nullptr)) == 0)
        rc = fi_ep_bind(ep_, &eq_->fid, 0);
    if (rc == 0)
        rc = open_counters();
    if (rc == 0 && options_.min_multi_recv != 0)
        rc = fi_setopt(&ep_->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &options_.min_multi_recv,
                       sizeof options_.min_multi_recv);
    return rc == 0 ? fi_enable(ep_) : rc;
}

int Station::meet()
{
    Shared& shared = world_.shared();
    const unsigned rank = world_.rank();
    shared.name_length[rank] = sizeof shared.name[rank];
    if (int rc = fi_getname(&ep_->fid, shared.name[rank], &shared.name_length[rank]); rc != 0)
        return rc;
    world_.barrier();
    for (unsigned r = 0; r < world_.ranks() && options_.knows_others; ++r)
        if (fi_av_insert(av_, shared.name[r], 1, &addresses_[r], 0, nullptr) != 1)
            return -FI_EOTHER;
    return 0;
}

fid_cntr* Station::counter(std::uint64_t flag)
{
    for (unsigned i = 0; i < counter_kinds; ++i)
        if (kinds[i] == flag)
            return counters_[i];
    return nullptr;
}

void Station::poll()
{
    (void)fi_cq_read(tx_, nullptr, 0);
    if (rx_ != tx_)
        (void)fi_cq_read(rx_, nullptr, 0);
}

Entry Station::wait(fid_cq* cq)
{
    const std::uint64_t deadline = World::now_ms() + 1000 * world_.patience();
    for (;;) {
        Entry entry;
        const ssize_t n = fi_cq_readfrom(cq, &entry.ok, 1, &entry.source);
        if (n == 1)
            return entry;
        if (n == -FI_EAVAIL && fi_cq_readerr(cq, &entry.error, 0) == 1)
            return entry;
        if (World::now_ms() > deadline)
            world_.give_up("no entry arrived");
        world_.progress();
        sched_yield();
    }
}

bool Station::quiet(fid_cq* cq)
{
    fi_cq_tagged_entry entry{};
    return fi_cq_read(cq, &entry, 1) == -FI_EAGAIN;
}

bool Station::reaches(fid_cntr* counter, std::uint64_t value)
{
    return world_.until([&] { return fi_cntr_read(counter) >= value; });
}

} // namespace fabtests
