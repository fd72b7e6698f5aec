// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From a VCQ ID to the mapped queues of the VCQ it names, by a cache of pointers.
#include "tni/remote.h"

#include "job/allocate.h"
#include "job/flows.h"
#include "job/process.h"
#include "job/real_time.h"
#include "job/report.h"

#include <bit>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <unordered_map>
#include <unordered_set>

namespace tofu::sim {

SharedWord<uintptr_t> remote_cache[1u << remote_cache_bits];

namespace {

struct KnownPeer : Peer {
    std::bitset<vcqs_per_node> open_vcqs; ///< which of them are accessible
    std::unique_ptr<PeerProcess> memory_of_peer;
    PeerProcess* memory = nullptr; ///< null: this process
};

/// What was given up, and when: threads that were using it may still be.
template <typename T>
struct Retired {
    T* object;
    time_t since; ///< CLOCK_MONOTONIC
};

/// All that was found, by key and by process; guarded by Process::slow_path.
struct Directory {
    std::unordered_map<uint64_t, Remote*> remotes;
    std::unordered_map<uint64_t, KnownPeer*> peers; ///< slot and incarnation
    std::unordered_set<uint64_t> explained;         ///< pid and error of peers that could not be mapped
    std::deque<Retired<Remote>> old_remotes;
    std::deque<Retired<KnownPeer>> old_peers; ///< dead, buried
};

/// A thread that had found a remote before it was given up is done with it after this time: a call makes no wait,
/// so it would have to be off the CPU, in the middle of one, for as long. In adversarial and exact mode instructions
/// keep their remote for any time, and nothing is taken apart.
constexpr time_t retirement_seconds = 5;

Directory* instance = nullptr; ///< never destroyed: see Process::self

Directory& directory()
{
    if (instance == nullptr)
        instance = new Directory;
    return *instance;
}

time_t seconds_now() noexcept
{
    timespec now{};
    read_real_time(now);
    return now.tv_sec;
}

void retire(Remote& remote)
{
    auto expected = reinterpret_cast<uintptr_t>(&remote);
    (void)remote_cache[remote_cache_slot(remote.key)].compare_exchange(expected, 0);
    directory().old_remotes.push_back({&remote, seconds_now()});
}

/// The pages of a dead peer stay allocated as long as we map them. Zeros take their place: a thread that still
/// holds the object finds an AliveWord of 0, and its writes are not visible to any process.
/// Without memory it stays known, and is buried again.
void bury(KnownPeer& peer)
{
    auto& remotes = directory().remotes;
    for (auto it = remotes.begin(); it != remotes.end();) {
        if (it->second->peer == &peer) {
            retire(*it->second);
            it = remotes.erase(it);
        } else {
            ++it;
        }
    }
    // Writable parts count against the memory of the machine (vm.overcommit_memory=2): only those that were before.
    const auto replace = [](std::byte* start, std::byte* end, int rights) {
        (void)::mmap(start, static_cast<size_t>(end - start), rights,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    };
    std::byte* const flows = peer.base + segment_flows_offset + offsetof(FlowTable, flows);
    replace(peer.base, flows, PROT_READ | PROT_WRITE);
    std::byte* closed = flows;
    for (unsigned index = 0; index < vcqs_per_node; index++) {
        if (peer.open_vcqs[index]) {
            std::byte* const region = peer.vcq_region(index);
            std::byte* const end = region + vcq_region_bytes(peer.mrq_entries);
            if (closed < region)
                replace(closed, region, PROT_NONE);
            replace(region, end, PROT_READ | PROT_WRITE);
            closed = end;
        }
    }
    if (std::byte* const end = peer.base + segment_total_bytes(peer.mrq_entries); closed < end)
        replace(closed, end, PROT_NONE);
    directory().old_peers.push_back({&peer, seconds_now()});
}

void bury_the_dead()
{
    if ((instruments & instrument_exact) != 0)
        return; // when a process is found dead is a matter of this machine, and its inbox has the results of puts
    const Job& job = Process::self().job();
    auto& peers = directory().peers;
    for (auto it = peers.begin(); it != peers.end();) {
        KnownPeer& peer = *it->second;
        // Where its program was replaced (execve), the process itself runs.
        if (peer.memory != nullptr && !peer.alive() && !may_run(job.life(peer.process, peer.incarnation, 16))) {
            bury(peer);
            it = peers.erase(it);
        } else {
            ++it;
        }
    }
}

void take_apart_the_old()
{
    if (Process::self().environment().chaos || (instruments & instrument_exact) != 0)
        return;
    Directory& d = directory();
    const time_t limit = seconds_now() - retirement_seconds;
    for (; !d.old_remotes.empty() && d.old_remotes.front().since < limit; d.old_remotes.pop_front())
        delete d.old_remotes.front().object;
    for (; !d.old_peers.empty() && d.old_peers.front().since < limit; d.old_peers.pop_front()) {
        KnownPeer* const peer = d.old_peers.front().object;
        peer->memory_of_peer.reset();
        (void)::munmap(peer->base, segment_total_bytes(peer->mrq_entries));
        delete peer;
    }
}

/// Why a peer's segment is not available: one line for each peer and reason, since a program may try again at once.
RemoteStatus explain_failure(const ProcessSlot& slot, uint32_t process, int error)
{
    const bool scarce = is_scarcity(error);
    const uint64_t reason = uint64_t{static_cast<uint32_t>(slot.pid)} << 32 | static_cast<uint32_t>(error);
    if (!directory().explained.insert(reason).second)
        return scarce ? RemoteStatus::scarce : RemoteStatus::no_owner;
    if (scarce) {
        report("cannot map the memory of process %d: %s; raise the limits (ulimit -n, -v, or vm.max_map_count)",
               slot.pid, std::strerror(error));
        return RemoteStatus::scarce;
    }
    // One that ends closes its files first, and may not be given a processor for long.
    constexpr int most_looks = 5000;
    const timespec pause{0, 1'000'000};
    for (int looks = 0; may_run(Process::self().job().life(process, slot.incarnation.raw, 16)); looks++) {
        if (looks >= 50 && (looks == most_looks || !look_up_process(slot.pid).ending)) {
            report("process %d runs but cannot be accessed: %s", slot.pid,
                   error == ENOENT ? "it has closed the descriptor of its segment"
                                   : "it denies access to its memory; check whether it changed its user or called "
                                     "prctl(PR_SET_DUMPABLE, 0)");
            break;
        }
        (void)::nanosleep(&pause, nullptr);
    }
    return RemoteStatus::no_owner;
}

RemoteStatus find_peer(uint32_t process, uint32_t incarnation, KnownPeer*& found)
{
    const uint64_t key = uint64_t{incarnation} << 32 | process;
    auto& peers = directory().peers;
    if (const auto it = peers.find(key); it != peers.end()) {
        found = it->second;
        return RemoteStatus::found;
    }
    Process& self = Process::self();
    auto peer = std::make_unique<KnownPeer>();
    if (process == self.job().process() && incarnation == self.job().incarnation()) {
        static_cast<Peer&>(*peer) = self.as_peer();
    } else {
        bury_the_dead();
        take_apart_the_old();
        ProcessSlot slot{};
        if (!self.job().read_slot(process, slot))
            return RemoteStatus::scarce;
        if (slot.used.raw == 0 || slot.incarnation.raw != incarnation)
            return RemoteStatus::no_owner;
        if (const int error = map_peer_segment(slot, process, *peer); error != 0)
            return explain_failure(slot, process, error);
        peer->memory_of_peer = PeerProcess::open(peer->base, peer->pid, peer->tid);
        peer->memory = peer->memory_of_peer.get();
        if (peer->memory == nullptr) {
            (void)::munmap(peer->base, segment_total_bytes(peer->mrq_entries));
            return RemoteStatus::no_memory;
        }
    }
    if (!or_without_memory(false, [&] { return peers.emplace(key, peer.get()).second; })) {
        if (peer->memory != nullptr)
            (void)::munmap(peer->base, segment_total_bytes(peer->mrq_entries));
        throw std::bad_alloc();
    }
    found = peer.release();
    return RemoteStatus::found;
}

std::unique_ptr<Remote> make_remote(uint64_t key, unsigned index, CqMode mode, KnownPeer& peer)
{
    if (peer.memory != nullptr && !peer.open_vcqs[index]) {
        if (!open_vcq_region(peer.base, index, peer.mrq_entries))
            return nullptr;
        peer.open_vcqs[index] = true;
    }
    auto remote = std::make_unique<Remote>();
    std::byte* const region = peer.vcq_region(index);
    remote->key = key;
    remote->alive_word = &peer.header().vcq_alive[index];
    remote->first_flow = path_ids * flow_place(segment_flows(Process::self().segment().base),
                                               Process::self().topology().node_of(decode_coords(key)));
    const bool session = mode == CqMode::session;
    remote->tid = alive_vcq(peer.tid, session);
    remote->header = &peer.header();
    remote->mrq =
        MrqRing(reinterpret_cast<MrqControl*>(region), reinterpret_cast<MrqSlot*>(region + vcq_mrq_offset),
                static_cast<unsigned>(std::countr_zero(session ? peer.mrq_entries_session : peer.mrq_entries_free)));
    remote->peer = &peer;
    remote->index = index;
    remote->session = session;
    remote->memory.table = peer.memory == nullptr ? Process::self().memory().own_table(index)
                                                  : reinterpret_cast<StagTable*>(region + vcq_stag_table_offset);
    remote->memory.alive = remote->alive_word;
    remote->memory.alive_tid = remote->tid;
    remote->memory.vcq = index;
    remote->memory.process = peer.memory;
    remote->memory.serial = RemoteVcq::new_serial();
    return remote;
}

} // namespace

bool is_possible_vcq_id(uint64_t vcq_id, const Topology& topology) noexcept
{
    const VcqAddress a = decode_vcq_id(vcq_id);
    return (vcq_id & vcq_id_mark) != 0 && (vcq_id & vcq_id_zero_bits) == 0 && a.tni < tnis_per_node &&
           a.cq < cqs_per_tni && topology.contains(a.coords) && Topology::contains_path(a.path);
}

namespace {

RemoteStatus find_owner(uint64_t vcq_id, Remote*& remote)
{
    Process& self = Process::self();
    const uint64_t key = vcq_key(vcq_id);
    const VcqAddress a = decode_vcq_id(vcq_id);
    const unsigned cq_of_node = a.tni * cqs_per_tni + a.cq;
    const std::lock_guard guard(self.slow_path());
    auto& remotes = directory().remotes;
    SharedWord<uintptr_t>& cached = remote_cache[remote_cache_slot(key)];
    const auto known = remotes.find(key);
    if (known != remotes.end() && known->second->alive()) {
        remote = known->second;
        cached.store_release(reinterpret_cast<uintptr_t>(remote));
        return RemoteStatus::found;
    }
    const auto word = self.job().read_cq(self.topology().node_of(a.coords), cq_of_node);
    if (!word)
        return RemoteStatus::scarce;
    const OwnerWord owner = OwnerWord::decode(*word);
    if (!owner.taken || (owner.components >> a.component & 1) == 0)
        return RemoteStatus::no_owner;
    ProcessSlot slot{};
    if (!self.job().read_slot(owner.process, slot))
        return owner.process < max_processes ? RemoteStatus::scarce : RemoteStatus::no_owner;
    if ((slot.incarnation.raw & 0xffff) != owner.incarnation)
        return RemoteStatus::no_owner;
    KnownPeer* peer = nullptr;
    if (const RemoteStatus status = find_peer(owner.process, slot.incarnation.raw, peer); status != RemoteStatus::found)
        return status;
    const unsigned index = vcq_index(a.tni, a.cq, a.component);
    const bool session = owner.mode == CqMode::session;
    if (peer->tid == 0 || !is_alive(peer->header().vcq_alive[index], alive_vcq(peer->tid, session)))
        return RemoteStatus::no_owner;
    std::unique_ptr<Remote> made = make_remote(key, index, owner.mode, *peer);
    if (made == nullptr)
        return RemoteStatus::scarce;
    if (const auto old = remotes.find(key); old != remotes.end()) { // finding the peer may have retired it
        retire(*old->second);
        remotes.erase(old);
    }
    remotes.emplace(key, made.get());
    remote = made.release();
    // Release: a reader of the cache finds a complete object (partner: find_remote).
    cached.store_release(reinterpret_cast<uintptr_t>(remote));
    return RemoteStatus::found;
}

} // namespace

RemoteStatus resolve_remote(uint64_t vcq_id, Remote*& remote) noexcept
{
    remote = nullptr;
    if (!is_possible_vcq_id(vcq_id, Process::self().topology()))
        return RemoteStatus::invalid_id;
    return or_without_memory(RemoteStatus::no_memory, [&] { return find_owner(vcq_id, remote); });
}

void forget_remotes_in_child() noexcept
{
    // The mappings were not inherited; what names them is dropped, not destroyed.
    for (SharedWord<uintptr_t>& cached : remote_cache)
        cached.store_relaxed(0);
    keep_reachable(instance);
    instance = nullptr;
}

} // namespace tofu::sim
