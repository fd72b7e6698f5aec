// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The service thread: sleeps until a peer asks for a move, or for an access that only the owner can do. Uses:
// process_vm_* on the process itself.
//
// Slot life: free → claimed → posted (by the requester) → running → done (by us) → free (by the requester).
// A suggestion: running → free. (1) Requester dies claimed or done: the next requester without a free slot takes it
// back. (2) Dies posted: we execute and leave it done. (3) Gives up posted: it takes the slot back by the same
// compare-and-swap that competes with our running. (4) Gives up running: it leaves `abandoned`, and we free the slot.
#include "memory/service.h"

#include "job/allocate.h"
#include "job/liveness.h"
#include "job/service_callback.h"
#include "memory/registry.h"
#include "memory/vm_copy.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <linux/futex.h>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void* __libc_stack_end;

namespace tofu::sim {

void futex_wake(SharedWord<uint32_t>& word, int count) noexcept
{
    (void)::syscall(SYS_futex, &word.raw, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

void futex_wait(SharedWord<uint32_t>& word, uint32_t value, const timespec* timeout) noexcept
{
    (void)::syscall(SYS_futex, &word.raw, FUTEX_WAIT, value, timeout, nullptr, 0);
}

void ring_service(ServiceArea& area) noexcept
{
    area.bell.fetch_add(1);
    futex_wake(area.bell, 1);
}

namespace {
SharedWord<uint64_t> claim_of_ours{0}; ///< that of a slot which was never claimed; 0: not known yet
}

uint64_t claim_by_this_process(uint64_t old) noexcept
{
    uint64_t ours = claim_of_ours.load_relaxed(); // every thread finds out the same
    if (ours == 0) {
        ours = claim_of(0, ::getpid(), process_start_time(::getpid()));
        if (claimant_start(ours) != 0)
            claim_of_ours.store_relaxed(ours);
    }
    return claim_of(old, claimant_pid(ours), claimant_start(ours));
}

void forget_this_process() noexcept
{
    claim_of_ours.store_relaxed(0);
}

bool claimant_is_gone(uint64_t state) noexcept
{
    const ProcessEntry found = look_up_process(claimant_pid(state));
    return !may_run(found.life) || (found.start_time != 0 && claimant_start(state) != 0 &&
                                    claimant_start(state) != (found.start_time & 0x7fff));
}

namespace {

/// Whether the word can be written to now. The kernel finds out, by an atomic access that changes nothing: memory that
/// the program has unmapped or protected is an error and no fault. A change between this and the access remains one.
bool may_write(uint64_t address) noexcept
{
    uint32_t nothing = 0;
    constexpr unsigned long none_woken = 0;
    auto* const word = reinterpret_cast<uint32_t*>(address & ~uint64_t{3});
    return ::syscall(SYS_futex, &nothing, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, none_woken, word,
                     FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, -1)) >= 0;
}

/// What a request asks for, copied out of the slot, which its writer might change meanwhile.
struct Request {
    RequestKind kind;
    uint32_t vcq;
    uint32_t length;
    uint64_t stadd;
    uint64_t operand;
    uint64_t compare;
    ArmwOp operation;
};

AccessStatus execute_armw(const Request& request, uint64_t address, uint64_t* old_value) noexcept
{
    if (!may_write(address))
        return AccessStatus::unreachable;
    *old_value =
        armw_on(reinterpret_cast<void*>(address), request.length, request.operation, request.operand, request.compare);
    return AccessStatus::ok;
}

AccessStatus execute(ProcessMemory::Impl& impl, const Request& request, MailboxSlot& slot) noexcept
{
    const std::lock_guard lock(impl.mutex);
    const auto vcq = impl.vcqs.find(request.vcq);
    if (vcq == impl.vcqs.end())
        return AccessStatus::peer_gone;
    const bool writes = request.kind == RequestKind::write || request.kind == RequestKind::armw;
    VcqMemory::Impl::Slot* entry = nullptr;
    const bool moves = request.kind == RequestKind::move || request.kind == RequestKind::suggestion;
    const uint64_t length = moves ? 1 : request.length;
    const AccessStatus status = vcq->second->look_up(request.stadd, length, writes, &entry);
    if (status != AccessStatus::ok)
        return status;
    const uint64_t address = entry->page_base + (request.stadd & stadd_offset_mask);
    switch (request.kind) {
    case RequestKind::move:
    case RequestKind::suggestion: {
        const uint64_t end = entry->page_base + entry->extents.back().end;
        // The more pieces a region is in already, the more is moved at once: a peer that wanders through it
        // would else ask for each chunk.
        const uint64_t wanted = std::max(request.operand, entry->extents.size() / 4 * move_chunk_bytes);
        const bool moved = or_without_memory(
            false, [&] { return impl.move(address, std::min(wanted, end - address), entry->page_base, end); });
        vcq->second->refresh(slot_of_stag(entry->hw_stag));
        return moved ? AccessStatus::ok : AccessStatus::unreachable;
    }
    case RequestKind::read:
    case RequestKind::write:
        if (length > mailbox_data_bytes)
            return AccessStatus::bad_length;
        return copy_self(slot.data, address, length, writes ? Towards::there : Towards::here, CopyOrder::last_line)
                   ? AccessStatus::ok
                   : AccessStatus::unreachable;
    case RequestKind::armw:
        if ((length != 4 && length != 8) || address % length != 0)
            return AccessStatus::bad_stadd;
        return execute_armw(request, address, &slot.old_value);
    case RequestKind::none: break;
    }
    return AccessStatus::unreachable;
}

void serve(ProcessMemory::Impl& impl, MailboxSlot& slot) noexcept
{
    // Acquire: the request (partner: PeerProcess, post).
    uint64_t state = slot.state.load_acquire();
    if (phase_of(state) != SlotPhase::posted)
        return;
    if (!slot.state.compare_exchange(state, with_phase(state, SlotPhase::running)))
        return; // withdrawn
    state = with_phase(state, SlotPhase::running);
    const Request request{RequestKind(slot.kind), slot.vcq,     slot.length,           slot.stadd,
                          slot.operand,           slot.compare, ArmwOp(slot.operation)};
    slot.result = uint32_t(execute(impl, request, slot));
    const SlotPhase after = request.kind == RequestKind::suggestion ? SlotPhase::free : SlotPhase::done;
    // Release: result and data (partner: await_answer, its acquire of `done`).
    if (!slot.state.compare_exchange(state, with_phase(state, after)) && phase_of(state) == SlotPhase::abandoned)
        (void)slot.state.compare_exchange(state, with_phase(state, SlotPhase::free));
    slot.answered.fetch_add(1);
    futex_wake(slot.answered, INT_MAX);
}

} // namespace

void run_service(ProcessMemory::Impl& impl) noexcept
{
    ServiceArea& area = impl.area();
    while (impl.stop.load_acquire() == 0) {
        // Acquire, before the slots are read: a request posted after this read changes the doorbell.
        const uint32_t bell = area.bell.load_acquire();
        area.heard.store_relaxed(bell); // partner: PeerProcess, is_deaf
        for (MailboxSlot& slot : area.slots)
            serve(impl, slot);
        run_service_callback(segment_header(impl.segment));
        if (impl.stop.load_acquire() == 0)
            futex_wait(area.bell, bell, nullptr); // ended by a ring; stop rings too
    }
}

ProcessMemory::ProcessMemory(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}

namespace {

/// Shows the arena to peers as the first backing of this process. Without an arena they use the mailbox.
void offer_arena(ProcessMemory::Impl& impl) noexcept
{
    if (!impl.arena.open())
        return;
    if (or_without_memory(false, [&] { return impl.threads.open(impl.vmas); }))
        impl.mover.open(impl.arena, impl.lock_pages);
    Backing& arena = impl.area().backings[0];
    arena.kind = uint32_t(BackingKind::arena);
    arena.fd = impl.arena.fd();
    arena.device = impl.arena.device();
    arena.inode = impl.arena.inode();
    arena.bytes = arena_bytes;
    // Release: the backing (partner: PeerProcess, read_backing).
    arena.sequence.store_release(2);
}

/// Starts the service thread and waits until it runs. 0, or an errno: there is no thread.
int start_service(ProcessMemory::Impl& impl) noexcept
{
    SharedWord<uint32_t> started{0};
    sigset_t all;
    sigset_t old;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old); // the thread inherits it: signals are the program's
    impl.service_started = &started;
    const int error = ::pthread_create(
        &impl.service, nullptr,
        [](void* argument) -> void* {
            auto& self = *static_cast<ProcessMemory::Impl*>(argument);
            (void)::pthread_setname_np(::pthread_self(), "tofu-service");
            (void)adopt_service_thread(segment_header(self.segment));
            SharedWord<uint32_t>& word = *self.service_started;
            word.store_release(1);
            futex_wake(word, 1); // may hit a word that is gone: harmless
            run_service(self);
            return nullptr;
        },
        &impl);
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
    while (error == 0 && started.load_acquire() == 0)
        futex_wait(started, 0, nullptr);
    return error;
}

} // namespace

std::unique_ptr<ProcessMemory> ProcessMemory::open(std::byte* segment, bool lock_pages, bool reuse_stags) noexcept
{
    errno = ENOMEM; // unless it is something else
    std::unique_ptr<Impl> made = make_or_null<Impl>();
    if (made == nullptr)
        return nullptr;
    Impl& impl = *made;
    impl.segment = segment;
    impl.mrq_entries = segment_header(segment).mrq_entries;
    impl.main_stack = reinterpret_cast<uint64_t>(__libc_stack_end);
    impl.lock_pages = lock_pages;
    impl.reuse_stags = reuse_stags;
    offer_arena(impl);
    // Yama: let processes of the same user copy from and to us. Elsewhere an unknown option, and not needed.
    (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    set_forkable(&impl);
    std::unique_ptr<ProcessMemory> memory(new (std::nothrow) ProcessMemory(std::move(made)));
    const int error = memory == nullptr ? ENOMEM : start_service(impl);
    if (error == 0)
        return memory;
    set_forkable(nullptr);
    if (memory != nullptr)
        made = std::move(memory->impl_); // it has no thread to wait for
    errno = error;
    return nullptr;
}

ProcessMemory::~ProcessMemory()
{
    if (impl_ == nullptr)
        return;
    if (impl_->inherited()) {
        (void)impl_.release(); // its thread does not exist here, its lock may be held
        return;
    }
    impl_->stop.store_release(1);
    ring_service(impl_->area());
    (void)::pthread_join(impl_->service, nullptr);
    set_forkable(nullptr);
}

std::unique_ptr<VcqMemory> ProcessMemory::open_vcq(unsigned vcq, unsigned component) noexcept
{
    if (vcq >= vcqs_per_node || component >= vcqs_per_cq)
        return nullptr;
    StagTable* own = own_table(vcq);
    if (own == nullptr)
        return nullptr;
    StagTable* table = stag_table(impl_->segment, vcq, impl_->mrq_entries);
    std::unique_ptr<VcqMemory> memory(new (std::nothrow) VcqMemory(*impl_, *table, *own, vcq, component));
    return memory != nullptr && memory->usable() ? std::move(memory) : nullptr;
}

StagTable* ProcessMemory::own_table(unsigned vcq) noexcept
{
    const std::lock_guard lock(impl_->mutex);
    StagTable*& table = impl_->own_tables[vcq];
    if (table == nullptr) {
        void* const pages = ::mmap(nullptr, sizeof(StagTable), PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        table = pages == MAP_FAILED ? nullptr : static_cast<StagTable*>(pages); // valid when zero
    }
    return table;
}

} // namespace tofu::sim
