// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See vcq.h.
#include "utofu/vcq.h"

#include <rdma/fi_errno.h>

namespace tofu::vcq {

namespace {

constexpr unsigned exclusive_most = 6;

struct Made {
    utofu_vcq_hdl_t handle = 0;
    utofu_vcq_id_t id = 0;
};

void unmake(const Backend& backend, const Functions& functions, const Made& made) noexcept
{
    functions.free_vcq(made.handle);
    tni_allocator::release_cq(backend, made.id);
}

/// Creates a VCQ on the first TNI of the slot that has one with a CQ of no other process. If a TNI returns a CQ that
/// another process has, the CQs of this node are not assigned to processes, and TNIs with other processes are avoided
/// from then on. A spare VCQ is made on the first TNI or not at all.
int create(const Backend& backend, const tni_allocator::TniSlot& slot, unsigned long flags, Made& made,
           bool spare = false) noexcept
{
    const Functions& f = backend.functions();
    int code = UTOFU_ERR_FULL;
    for (std::size_t i = 0, met = 0; i < (spare ? 1 : slot.span); i++) {
        const utofu_tni_id_t tni = backend.tnis()[tni_allocator::tni_of(slot, i)];
        if (met != 0 && !tni_allocator::is_own(backend, tni))
            continue;
        if (const int why = f.create_vcq(tni, flags, &made.handle); why != UTOFU_SUCCESS) {
            code = met != 0 ? code : why;
            continue;
        }
        if (code = f.query_vcq_id(made.handle, &made.id); code != UTOFU_SUCCESS) {
            f.free_vcq(made.handle);
            break;
        }
        if (tni_allocator::claim_cq(backend, made.id, spare))
            break;
        f.free_vcq(made.handle);
        code = UTOFU_ERR_USED;
        met++;
    }
    return code;
}

/// Creates a VCQ on a CQ of its own, unless the process would then have no CQ to share: a process may have a single CQ
/// (48 on a node of Fugaku), and uTofu does not report how many. So this function makes one more VCQ for a moment.
int create_alone(const Backend& backend, const tni_allocator::TniSlot& slot, Made& made) noexcept
{
    if (const int code = create(backend, slot, UTOFU_VCQ_FLAG_EXCLUSIVE, made); code != UTOFU_SUCCESS)
        return code;
    Made another;
    const int code = create(backend, slot, UTOFU_VCQ_FLAG_THREAD_SAFE, another);
    unmake(backend, backend.functions(), code == UTOFU_SUCCESS ? another : made);
    return code;
}

} // namespace

int Handle::make(const Backend& backend, unsigned spread, bool thread_safe, StatisticsBook* book) noexcept
{
    if (is_open() || backend.tni_count() == 0)
        return -FI_EINVAL;
    // The first VCQ of a domain is its target VCQ, which peers send to.
    const bool spare = spread == spread_of_spare;
    const tni_allocator::TniSlot slot =
        tni_allocator::acquire(backend, spread == 0 ? tni_allocator::Traffic::in : tni_allocator::Traffic::out, spare);
    if (slot.span == 0)
        return -FI_EBUSY;
    if (spare && !tni_allocator::is_first_of_tni(slot)) {
        tni_allocator::release(slot);
        return -FI_EBUSY;
    }
    Made made;
    int code = UTOFU_ERR_FULL;
    // A VCQ that is alone on its CQ needs no lock of the library besides its owner's (guide 3.3.4.1). Such CQs are few:
    // only the first VCQs of a domain get one.
    if (thread_safe && spread < exclusive_most)
        code = create_alone(backend, slot, made);
    if (code != UTOFU_SUCCESS && code != UTOFU_ERR_USED)
        code = create(backend, slot, thread_safe ? UTOFU_VCQ_FLAG_THREAD_SAFE : 0, made, spare);
    if (code != UTOFU_SUCCESS) {
        tni_allocator::release(slot);
        return -fi_error_of(code);
    }
    slot_ = slot;
    backend_ = &backend;
    functions_ = &backend.functions();
    (void)functions_of_child(); // in_child() makes no table
    register_fork();
    handle_ = made.handle;
    id_ = made.id;
    book_ = book;
    if (book != nullptr)
        book->add(statistics_);
    return 0;
}

void Handle::free() noexcept
{
    unregister_fork();
    unmake(*backend_, *functions_, {handle_, id_});
    if (book_ != nullptr)
        book_->remove(statistics_);
    tni_allocator::release(slot_);
    handle_ = 0;
    id_ = 0;
}

void Handle::in_child() noexcept
{
    functions_ = &functions_of_child();
}

bool Handle::is_of_parent() const noexcept
{
    return functions_ == &functions_of_child();
}

/// `stadd` is written on success only.
template <class Function, class... Args>
int Handle::made(utofu_stadd_t& stadd, Function Functions::*function, Args... args) noexcept
{
    utofu_stadd_t made = 0;
    const int code = (functions_->*function)(args..., &made);
    if (code == UTOFU_SUCCESS)
        stadd = made;
    else
        last_error_ = code;
    return -fi_error_of(code);
}

int Handle::reg(const void* addr, std::size_t size, bool read_only, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::reg_mem, handle_, const_cast<void*>(addr), size,
                read_only ? UTOFU_REG_MEM_FLAG_READ_ONLY : 0);
}

int Handle::reg_with_stag(void* addr, std::size_t size, unsigned stag, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::reg_mem_with_stag, handle_, addr, size, stag, 0);
}

void Handle::dereg(utofu_stadd_t stadd) noexcept
{
    if (is_open() && !keeps_registrations_)
        functions_->dereg_mem(handle_, stadd, 0);
}

int Handle::query_stadd(utofu_vcq_id_t vcq, unsigned stag, utofu_stadd_t& stadd) noexcept
{
    return made(stadd, &Functions::query_stadd, vcq, stag);
}

/// There is no room to note the post's completion handler or its peer.
Post Posts::no_room() noexcept
{
    statistics_.count(Stat::again_post);
    return Post::busy;
}

Post Posts::refuse(int code, CompletionLevel level, std::uint64_t edata) noexcept
{
    if (level == CompletionLevel::delivered)
        completions_.release(static_cast<std::uint8_t>(edata));
    else if (level == CompletionLevel::sent)
        sent_pending_--;
    if (code == UTOFU_ERR_BUSY) {
        statistics_.count(Stat::again_post);
        wanted_ |= tcq_wanted; // reading it makes room in the TOQ (guide 3.7)
        return Post::busy;
    }
    last_error_ = code;
    return Post::error;
}

/// Posts also while the VCQ is closing.
Post Posts::post_fence(utofu_vcq_id_t peer, CompletionHandler& handler) noexcept
{
    utofu_stadd_t area = 0;
    Post posted = Post::error; // no VCQ of this machine: there is no target
    if (query_stadd(peer, fence_stag, area) == 0)
        posted = post_even_closing(SignaledArgs{&handler, delivered_flags(true, false)}, &Functions::armw8, peer,
                                   UTOFU_ARMW_OP_OR, std::uint64_t{0}, area + fence_offset);
    if (posted != Post::busy)
        unsignaled_.fenced(peer);
    return posted;
}

std::uint8_t Posts::open_batch(CompletionHandler* handler, bool endless) noexcept
{
    const std::uint8_t number = closing_ ? std::uint8_t{0} : completions_.acquire(handler);
    if (number != 0)
        completions_.open(number, endless);
    return number;
}

// --- Vcq: its polls, communications that do not end, and its close

/// Entries of an MRQ that are taken in a row.
constexpr unsigned most_notices = 1 << 16;

int Vcq::open(const Backend& backend, unsigned spread, bool thread_safe, const Sink& sink) noexcept
{
    if (int ret = make(backend, spread, thread_safe, sink.book); ret != 0)
        return ret;
    sink_ = sink;
    closing_ = false;
    sent_pending_ = 0;
    wanted_ = round_wanted;
    completions_.reset();
    return 0;
}

/// Polls until all has ended. False: given up. Notices that have come count however late we are; but a peer can send
/// notices for ever, so after the time no more than most_notices are taken.
template <class Done>
bool Vcq::await(Done&& done) noexcept
{
    if (is_of_parent())
        return done();
    const auto start = Clock::now();
    auto last = start;
    unsigned late = most_notices / CompletionTable::size;
    for (std::uint32_t before = 0; !done();) {
        bool some = poll(CompletionTable::size) != 0;
        std::uint32_t under_way = CompletionTable::size - completions_.free() + sent_pending_;
        for (Vcq* other = linked(); other != nullptr; other = other->linked()) {
            some |= other->poll(CompletionTable::size) != 0;
            under_way += CompletionTable::size - other->completions_.free();
        }
        const auto now = Clock::now();
        if (under_way != before)
            last = now;
        before = under_way;
        if ((now - last >= patience || now - start >= 5 * patience) && (!some || late-- == 0))
            return done();
    }
    return true;
}

/// CompletionTable::give_up(). Memory that a communication may still reach stays registered.
bool Vcq::give_up(int code, bool for_good, std::uint16_t least_age) noexcept
{
    keeps_registrations_ = true;
    const bool some = completions_.give_up(code, for_good, least_age);
    keeps_registrations_ = false;
    return some;
}

/// Called from time to time: a communication that never ends counts as an access to a STag that does not exist.
void Vcq::watch() noexcept
{
    const auto now = Clock::now();
    if (keeps_registrations_ || now < watch_at_)
        return;
    watch_at_ = now + lost_after / (CompletionTable::lost_age - 1);
    if (!completions_.grow_older())
        return;
    // A thread that has not polled for so long may find the notices in the queue.
    for (unsigned taken = CompletionTable::size, i = 0;
         taken >= CompletionTable::size && i < most_notices / CompletionTable::size; i++)
        taken = poll(CompletionTable::size);
    if (give_up(never_notified, false, CompletionTable::lost_age))
        TOFU_WARN(FI_LOG_EP_DATA,
                  "vcq 0x%llx: operations timed out after %lld ms and were failed: check that the peer is alive and "
                  "its memory is still registered\n",
                  static_cast<unsigned long long>(id()), static_cast<long long>(lost_after.count()));
}

bool Vcq::drain() noexcept
{
    if (!is_open() || closing_)
        return true;
    for (Vcq* each = this; each != nullptr; each = each->linked()) {
        each->closing_ = true;
        each->last_error_ = UTOFU_ERR_MRQ_OTHER; // why posts are refused from now on: an error is never UTOFU_SUCCESS
    }
    static constinit CompletionHandler fenced{[](CompletionHandler*, Notice) noexcept {}};
    std::size_t hand = 0;
    const bool quiet = await([&] {
        return unsignaled_.visit(hand, [this](utofu_vcq_id_t peer) {
            return post_fence(peer, fenced) != Post::busy;
        }) && all_idle();
    });
    for (Vcq* each = this; each != nullptr; each = each->linked())
        each->give_up(UTOFU_ERR_MRQ_OTHER, true);
    return quiet;
}

bool Vcq::all_idle() const noexcept
{
    const Vcq* each = this;
    while (each != nullptr && each->idle())
        each = each->linked();
    return each == nullptr;
}

bool Vcq::quiesce() noexcept
{
    if (!is_open() || closing_)
        return true;
    closing_ = pausing_ = true;
    const bool quiet = await([this] { return idle(); });
    give_up(UTOFU_ERR_MRQ_OTHER, false);
    closing_ = pausing_ = false;
    return quiet;
}

void Vcq::close() noexcept
{
    if (!is_open())
        return;
    drain();
    for (Vcq* other = linked(); other != nullptr; other = other->linked())
        other->free();
    linked_.store(nullptr, std::memory_order_relaxed);
    free();
    unsignaled_.clear();
}

// --- polls

unsigned Vcq::poll(unsigned budget) noexcept
{
    return poll_inline(budget);
}

/// Looks at what not every poll has to look at: the TCQ, and VCQs beside.
unsigned Vcq::poll_others(unsigned budget) noexcept
{
    unsigned taken = poll_tcq(budget);
    if (wanted_ >= linked_step)
        for (Vcq* other = linked(); other != nullptr; other = other->linked())
            if (!other->completions_.all_free())
                taken += other->poll(budget);
    return taken;
}

unsigned Vcq::poll_tcq(unsigned budget) noexcept
{
    wanted_ &= ~tcq_wanted;
    if (polls_ == 0 && !completions_.all_free())
        watch();
    for (unsigned taken = 0; taken < budget; taken++) {
        void* cbdata = nullptr;
        const int code = functions_->poll_tcq(handle_, 0, &cbdata);
        if (code == UTOFU_ERR_NOT_FOUND)
            return taken;
        if (code != UTOFU_SUCCESS && (code > UTOFU_ERR_TCQ_OTHER || code < UTOFU_ERR_TCQ_LENGTH)) {
            last_error_ = code; // the poll itself failed: there is no entry
            return taken;
        }
        on_tcq(code, cbdata);
    }
    wanted_ |= tcq_wanted; // there may be more
    return budget;
}

/// After a failure takes all entries: only the TOQ limits how many unsignaled posts can fail, such as those to a peer
/// that is gone, and an MRQ that overflows ends the process (guide, chapter 7). `code` came with the first entry, or
/// says that the poll itself has failed.
unsigned Vcq::poll_failures(int code, utofu_mrq_notice notice) noexcept
{
    const auto is_entry = [&] {
        return code == UTOFU_SUCCESS || (code <= UTOFU_ERR_MRQ_OTHER && code >= UTOFU_ERR_MRQ_RMT_LENGTH);
    };
    unsigned taken = 0;
    while (is_entry()) {
        on_mrq(code, notice);
        if (++taken == most_notices)
            return taken;
        code = functions_->poll_mrq(handle_, 0, &notice);
    }
    if (code != UTOFU_ERR_NOT_FOUND)
        last_error_ = code;
    return taken;
}

void Vcq::on_tcq(int code, void* cbdata) noexcept
{
    const auto number = reinterpret_cast<std::uintptr_t>(cbdata);
    if (number >= PostTag::end) {
        auto* const handler = static_cast<CompletionHandler*>(cbdata);
        sent_pending_--;
        handler->notify(handler, Notice{code, 0});
        return;
    }
    if (code == UTOFU_SUCCESS) [[likely]]
        return;
    if (!CompletionTable::is_tag(number)) {
        sink_.unsignaled_error(sink_.owner, code, PostTag::kind_of(number), 0);
        return;
    }
    // The post never left the node, so its MRQ notice will not come (guide 2.2.12).
    CompletionHandler& handler = completions_.arrived(static_cast<std::uint8_t>(number));
    handler.notify(&handler, Notice{code, 0});
}

void Vcq::on_remote_mrq(int code, const utofu_mrq_notice& notice) noexcept
{
    const std::uint8_t type = notice.notice_type; // no other type allows a conclusion
    const bool known =
        type == UTOFU_MRQ_TYPE_RMT_PUT || type == UTOFU_MRQ_TYPE_RMT_GET || type == UTOFU_MRQ_TYPE_RMT_ARMW;
    // A peer's EDATA names no local completion handler; it only says whether the post was signaled, and of which kind
    // it was.
    const bool further = type != UTOFU_MRQ_TYPE_RMT_PUT && notice.edata == PostTag::edata_of(Unsignaled::event);
    if (known && code == UTOFU_SUCCESS && sink_.remote != nullptr)
        sink_.remote(sink_.owner, RemoteNotice{type, notice.vcq_id, notice.rmt_stadd, notice.edata == 0, further});
}

} // namespace tofu::vcq
