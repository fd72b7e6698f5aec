// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The life of an endpoint: open, bind, enable, progress, close (fi_endpoint(3)). Called through the tables of
// endpoint_ops.cc and by the objects it is bound to; calls vcq, the engines, domain, av, cq, cntr.
#include "endpoint.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <new>
#include <utility>

#include <rdma/fi_errno.h>

#include "atomic.h"
#include "endpoint_ops.h"
#include "eq.h"
#include "info.h"
#include "log.h"
#include "msg.h"
#include "proto/messenger.h"
#include "region.h"
#include "rma.h"
#include "tagged.h"

namespace tofu {

namespace {

constexpr std::uint64_t tx_counts = FI_SEND | FI_READ | FI_WRITE;
constexpr std::uint64_t rx_counts = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;

} // namespace

Endpoint::Endpoint() noexcept = default;
Endpoint::~Endpoint() = default;

// --- open

int Endpoint::open(fid_domain* domain, fi_info* info, fid_ep** ep, void* context)
{
    if (domain == nullptr || ep == nullptr || info == nullptr || info->ep_attr == nullptr)
        return -FI_EINVAL;
    if (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC)
        return -FI_EINVAL;
    if (info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT ||
        info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT)
        return -FI_ENOSYS;
    auto* made = new (std::nothrow) Endpoint;
    if (made == nullptr)
        return -FI_ENOMEM;
    if (int ret = made->set_up(Domain::of(domain), *info, context); ret != 0) {
        delete made;
        return ret;
    }
    *ep = made;
    return 0;
}

/// The name that fi_getinfo left in the source address, 0 where there is none.
static std::uint64_t name_key_of(const fi_info& info) noexcept
{
    EndpointAddress source{};
    if (info.src_addr == nullptr)
        return 0;
    if (info.addr_format == FI_ADDR_STR) {
        if (!placeholder_from_text(static_cast<const char*>(info.src_addr), source))
            return 0;
    } else if (info.src_addrlen == sizeof(source)) {
        std::memcpy(&source, info.src_addr, sizeof(source));
    }
    return source.magic == address_magic && source.home == 0 ? source.nonce : 0;
}

int Endpoint::set_up(Domain& domain, const fi_info& info, void* context) noexcept
{
    fid.fclass = FI_CLASS_EP;
    fid.context = context;
    fid.ops = &endpoint_fid_ops;
    fid_ep::ops = &endpoint_ops;
    cm = &endpoint_cm_ops;
    msg = &ops_of_disabled.msg;
    fid_ep::rma = &ops_of_disabled.rma;
    tagged = &ops_of_disabled.tagged;
    fid_ep::atomic = &ops_of_disabled.atomic;
    collective = &no_collective_ops;
    endpoint = this;

    domain_ = &domain;
    caps_ = info.caps;
    address_format_ = info.addr_format;
    name_key_ = name_key_of(info);
    if (info.tx_attr != nullptr)
        tx_attr_ = *info.tx_attr;
    if (info.rx_attr != nullptr)
        rx_attr_ = *info.rx_attr;
    tx_flags = tx_attr_.op_flags;
    rx_flags = rx_attr_.op_flags;
    const bool locks = domain.model().locks;
    lock_.set_enabled(locks);
    const vcq::Sink sink{this, nullptr, on_orphan};
    if (int ret = vcq_.open(domain.backend(), domain.next_spread(), locks, sink); ret != 0) {
        TOFU_WARN(FI_LOG_EP_CTRL, "endpoint: no VCQ on any TNI of this node: close endpoints or run fewer "
                                  "processes per node\n");
        return ret;
    }
    if (int ret = domain.add_endpoint(*this, index_); ret != 0)
        return ret;
    local_memory_ = std::make_unique<LocalMemory>(vcq_);
    remote_keys_ = std::make_unique<RemoteKeys>(vcq_, domain.model().provider_keys);
    domain.regions().attach(*local_memory_, lock_);
    domain.hold();
    return 0;
}

EndpointAddress Endpoint::address() const noexcept
{
    return {address_magic, wire_version, static_cast<std::uint8_t>(index_), 0, domain_->home_id(),
            domain_->nonce()};
}

int Endpoint::name(void* buffer, std::size_t* length) const noexcept
{
    if (length == nullptr)
        return -FI_EINVAL;
    const EndpointAddress own = address();
    char text[address_text_size];
    const void* form = &own;
    std::size_t size = sizeof(own);
    if (address_format_ == FI_ADDR_STR) {
        address_to_text(own, text);
        form = text;
        size = std::strlen(text) + 1;
    }
    const std::size_t room = *length;
    *length = size;
    if (buffer == nullptr || room < size)
        return -FI_ETOOSMALL;
    std::memcpy(buffer, form, size);
    return 0;
}

// --- bind

int Endpoint::bind(struct fid* object, std::uint64_t flags) noexcept
{
    if (object == nullptr)
        return -FI_EINVAL;
    if (enabled_)
        return -FI_EOPBADSTATE;
    switch (object->fclass) {
    case FI_CLASS_CQ:
        return bind_queue(CompletionQueue::of(reinterpret_cast<fid_cq*>(object)), flags);
    case FI_CLASS_CNTR:
        return bind_counter(Counter::of(reinterpret_cast<fid_cntr*>(object)), flags);
    case FI_CLASS_AV:
        return bind_addresses(AddressVector::of(reinterpret_cast<fid_av*>(object)));
    case FI_CLASS_EQ: // an RDM endpoint raises no events of its own; the binding is allowed
        if (eq_ != nullptr)
            return -FI_EINVAL;
        eq_ = &EventQueue::of(reinterpret_cast<fid_eq*>(object));
        eq_->hold();
        return 0;
    case FI_CLASS_STX_CTX:
    case FI_CLASS_SRX_CTX:
        return -FI_ENOSYS;
    default:
        return -FI_EINVAL;
    }
}

int Endpoint::bind_queue(CompletionQueue& cq, std::uint64_t flags) noexcept
{
    if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
        return -FI_EBADFLAGS;
    const bool tx = (flags & FI_TRANSMIT) != 0;
    const bool rx = (flags & FI_RECV) != 0;
    if ((!tx && !rx) || (tx && tx_.cq != nullptr) || (rx && rx_.cq != nullptr))
        return -FI_EINVAL;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    for (auto [wanted, side] : {std::pair{tx, &tx_}, std::pair{rx, &rx_}}) {
        if (!wanted)
            continue;
        side->cq = &cq;
        side->selective = selective;
        cq.hold();
    }
    return 0;
}

int Endpoint::bind_counter(Counter& counter, std::uint64_t flags) noexcept
{
    if (flags == 0 || (flags & ~(tx_counts | rx_counts)) != 0)
        return flags == 0 ? -FI_EINVAL : -FI_EBADFLAGS;
    const std::pair<std::uint64_t, Counter**> slots[] = {
        {FI_SEND, &counters_.send},
        {FI_RECV, &counters_.recv},
        {FI_READ, &counters_.read},
        {FI_WRITE, &counters_.write},
        {FI_REMOTE_READ, &counters_.remote_read},
        {FI_REMOTE_WRITE, &counters_.remote_write},
    };
    for (auto [flag, slot] : slots)
        if ((flags & flag) != 0 && *slot != nullptr)
            return -FI_EINVAL;
    for (auto [flag, slot] : slots)
        if ((flags & flag) != 0) {
            *slot = &counter;
            counter.hold();
        }
    return 0;
}

int Endpoint::bind_addresses(AddressVector& av) noexcept
{
    if (av_ != nullptr)
        return -FI_EINVAL;
    av_ = &av;
    av.hold();
    return 0;
}

/// The domain's set, and each queue and counter once, however many of its sides the endpoint is bound to.
template <class Visit>
void Endpoint::visit_progress_sets(Visit&& visit) noexcept
{
    visit(domain_->everything());
    if (tx_.cq != nullptr)
        visit(tx_.cq->progress());
    if (rx_.cq != nullptr && rx_.cq != tx_.cq)
        visit(rx_.cq->progress());
    Counter* all[] = {counters_.send, counters_.recv,        counters_.read,
                      counters_.write, counters_.remote_read, counters_.remote_write};
    for (Counter** c = std::begin(all); c != std::end(all); ++c)
        if (*c != nullptr && std::find(std::begin(all), c, *c) == c)
            visit((*c)->progress());
}

void Endpoint::unbind() noexcept
{
    if (listed_)
        visit_progress_sets([this](ProgressSet& set) { set.remove(*this); });
    listed_ = false;
    for (Binding* side : {&tx_, &rx_})
        if (side->cq != nullptr)
            std::exchange(side->cq, nullptr)->release();
    for (Counter** slot : {&counters_.send, &counters_.recv, &counters_.read, &counters_.write,
                           &counters_.remote_read, &counters_.remote_write})
        if (*slot != nullptr)
            std::exchange(*slot, nullptr)->release();
    if (av_ != nullptr)
        std::exchange(av_, nullptr)->release();
    if (eq_ != nullptr)
        std::exchange(eq_, nullptr)->release();
}

// --- enable

int Endpoint::check_bound() const noexcept
{
    if (av_ == nullptr)
        return -FI_ENOAV;
    // A side that can complete operations of its own needs where to report. Receives without a queue or a counter
    // are possible (fi_endpoint(3) asks for queues of the operations that are used): nobody sees them end.
    const std::uint64_t directions = caps_ & (FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                                              FI_REMOTE_READ | FI_REMOTE_WRITE);
    const bool transmits =
        directions == 0 || (directions & (FI_SEND | FI_READ | FI_WRITE)) != 0;
    const bool bound = tx_.cq != nullptr || counters_.send != nullptr ||
                       counters_.read != nullptr || counters_.write != nullptr;
    if (transmits && !bound)
        return -FI_ENOCQ;
    return 0;
}

int Endpoint::make_engines() noexcept
{
    const bool messages = (caps_ & (FI_MSG | FI_TAGGED)) != 0;
    // An RMA endpoint takes part in messages for the data of remote completions alone.
    if (messages || ((caps_ & FI_RMA) != 0 && rx_.cq != nullptr)) {
        messages_.reset(new (std::nothrow) proto::Messenger(*this));
        if (!messages_)
            return -FI_ENOMEM;
        if (int ret = messages_->open(); ret != 0)
            return ret;
    }
    if (caps_ & FI_ATOMIC) {
        atomic_.reset(new (std::nothrow) AtomicEngine(*this));
        if (!atomic_)
            return -FI_ENOMEM;
        if (int ret = atomic_->open(); ret != 0)
            return ret;
    }
    if (caps_ & FI_RMA) {
        rma_.reset(new (std::nothrow) RmaEngine(*this));
        if (!rma_)
            return -FI_ENOMEM;
        if (int ret = rma_->open(); ret != 0)
            return ret;
    }
    return 0;
}

int Endpoint::enable() noexcept
{
    if (enabled_)
        return -FI_EOPBADSTATE;
    if (int ret = check_bound(); ret != 0)
        return ret;
    if (int ret = make_engines(); ret != 0) {
        rma_.reset();
        atomic_.reset();
        messages_.reset();
        return ret;
    }
    msg = (caps_ & FI_MSG) ? &msg_ops : &ops_of_missing.msg;
    tagged = (caps_ & FI_TAGGED) ? &tagged_ops : &ops_of_missing.tagged;
    fid_ep::rma = (caps_ & FI_RMA) ? &rma_ops : &ops_of_missing.rma;
    fid_ep::atomic = (caps_ & FI_ATOMIC) ? &atomic_ops : &ops_of_missing.atomic;
    {
        std::lock_guard guard(lock_);
        enabled_ = true;
    }
    visit_progress_sets([this](ProgressSet& set) { set.add(*this); });
    listed_ = true;
    if (name_key_ != 0)
        return announcement_.open(name_key_, address());
    return 0;
}

// --- progress

bool Endpoint::progress(bool patient) noexcept
{
    if (patient)
        lock_.lock();
    else if (!lock_.try_lock())
        return false;
    const bool some = progress_locked();
    lock_.unlock();
    return some;
}

bool Endpoint::progress_locked() noexcept
{
    if (!enabled_)
        return false;
    const bool some = vcq_.poll() != 0;
    if (rma_)
        rma_->progress();
    if (atomic_)
        atomic_->progress();
    if (messages_)
        messages_->progress();
    return some;
}

void Endpoint::area_notice(const vcq::RemoteNotice&, std::uint64_t offset) noexcept
{
    std::lock_guard guard(lock_);
    if (messages_)
        messages_->area_notice(offset);
}

void Endpoint::rma_event(std::uint8_t notice_type) noexcept
{
    Counter* counter = notice_type == UTOFU_MRQ_TYPE_RMT_GET ? counters_.remote_read
                                                             : counters_.remote_write;
    if (counter != nullptr)
        counter->count();
}

void Endpoint::on_orphan(void* owner, int code, utofu_vcq_id_t peer) noexcept
{
    auto& ep = *static_cast<Endpoint*>(owner);
    if (ep.messages_)
        ep.messages_->peer_failed(peer, code);
    // Messages report their own losses; who sends no unattended writes has nothing else to hear of.
    if (ep.rma_ && ep.rma_->posts_unattended())
        ep.report_orphan(FI_RMA | FI_WRITE, code);
}

void Endpoint::report_orphan(std::uint64_t op_flags, int utofu_code) noexcept
{
    Completion completion;
    completion.flags = op_flags;
    if (tx_.cq != nullptr)
        tx_.cq->write_error(completion, fi_error_of(utofu_code), utofu_code);
    if (counters_.write != nullptr)
        counters_.write->count_error();
}

ssize_t Endpoint::cancel(void* context) noexcept
{
    std::lock_guard guard(lock_);
    return messages_ ? messages_->cancel(context) : -FI_ENOENT;
}

// --- close

int Endpoint::close() noexcept
{
    if (aliases_.load(std::memory_order_acquire) != 0)
        return -FI_EBUSY;
    // Nobody polls it any more, then no peer's notice comes, then what is under way ends.
    if (listed_)
        visit_progress_sets([this](ProgressSet& set) { set.remove(*this); });
    listed_ = false;
    domain_->remove_endpoint(index_);
    domain_->regions().detach(*local_memory_);
    {
        std::lock_guard guard(lock_);
        if (messages_)
            messages_->leave();
        vcq_.drain();
        enabled_ = false;
    }
    rma_.reset();
    atomic_.reset();
    messages_.reset();
    remote_keys_.reset();
    local_memory_.reset();
    vcq_.close();
    unbind();
    domain_->release();
    delete this;
    return 0;
}

} // namespace tofu
