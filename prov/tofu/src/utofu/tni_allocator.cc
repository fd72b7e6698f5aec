// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// See tni_allocator.h. There is one file for each user. It is empty: its bytes, which are only locked, are the slots
// of all nodes and jobs, of which the simulator has several on one machine.
#include "utofu/tni_allocator.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include <unistd.h>

#include "core/log.h"
#include "core/node_map.h"
#include "core/params.h"
#include "core/system.h"

namespace tofu::vcq::tni_allocator {
namespace {

constexpr unsigned most = 1024;     ///< slots of a kind: a node of Tofu-D has 432 VCQs with eight to a CQ
constexpr unsigned tries = 8;       ///< to open the file, where others remove it at the same time
constexpr unsigned cqs_of_tni = 64; ///< at most

/// The process's number on its node, as launchers set it: Open MPI and PMIx, MPICH's Hydra, PALS, Slurm, Flux.
unsigned local_rank() noexcept
{
    for (const char* name : {"PMIX_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID",
                             "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID"}) {
        const char* const text = std::getenv(name);
        char* end = nullptr;
        const unsigned long rank = text != nullptr ? std::strtoul(text, &end, 10) : 0;
        if (text != nullptr && end != text && *end == '\0' && rank < most)
            return static_cast<unsigned>(rank);
    }
    return 0;
}

/// The kinds of bytes: slots of VCQs of a kind (the values of Traffic), CQs, or the TNIs of one process.
enum class Bytes : unsigned { in, out, cqs, shares };

/// The first byte of a kind for the node within its job.
off_t first_byte(const Backend& backend, Bytes bytes) noexcept
{
    const Functions& f = backend.functions();
    Hash hash;
    hash.add(f.job != nullptr ? f.job() : nullptr);
    std::uint8_t coords[6] = {};
    if (f.query_my_coords != nullptr)
        (void)f.query_my_coords(coords);
    for (const std::uint8_t coordinate : coords)
        hash.add(coordinate);
    return static_cast<off_t>((hash.value & 0xffffffffffff) * 4 + static_cast<unsigned>(bytes)) * most;
}

struct Cq {
    utofu_tni_id_t tni = 0;
    utofu_cq_id_t number = 0;
    unsigned index = most; ///< among those of the node; `most` if unknown
};
Cq cq_of(const Backend& backend, utofu_vcq_id_t vcq) noexcept
{
    Cq cq;
    std::uint8_t coords[6] = {};
    std::uint16_t extra = 0;
    const auto query = backend.functions().query_vcq_info;
    if (query != nullptr && query(vcq, coords, &cq.tni, &cq.number, &extra) == UTOFU_SUCCESS &&
        cq.number < cqs_of_tni && cq.tni < most / cqs_of_tni)
        cq.index = cq.tni * cqs_of_tni + cq.number;
    return cq;
}

// The slots of this process, under the mutex.
constinit Mutex mutex;
pid_t owner = 0;
constinit NodeFile file;
unsigned users = 0;
unsigned blind[2] = {};
off_t first_of[2] = {};
constinit std::optional<unsigned> share;
std::array<std::uint16_t, most> vcqs_of_cq{};
constinit std::array<std::bitset<most>, 2> held;

void drop() noexcept
{
    file.close();
    share.reset(); // the locks go with the file
    vcqs_of_cq = {};
}

/// A child of fork shares the file description, and with it the parent's slots, so it opens the file anew.
void renew_after_fork() noexcept
{
    if (owner == getpid())
        return;
    owner = getpid();
    drop();
    held = {};
    users = 0;
}

bool open() noexcept
{
    char path[64];
    std::snprintf(path, sizeof(path), "/dev/shm/tofu-fi-%u", geteuid());
    return file.is_open() || file.open(path);
}

/// Finds one of `parts` parts of the TNIs for this process alone. False: other processes have all.
bool take_share(const Backend& backend, unsigned parts, unsigned wanted) noexcept
{
    const off_t first = first_byte(backend, Bytes::shares);
    for (unsigned i = 0; i < parts && !share; i++)
        if (const unsigned n = (wanted + i) % parts; file.lock(F_WRLCK, first + n, 1))
            share = n;
    return share.has_value();
}

/// The turn of this process among those of its node, by what its first thread is bound to.
node::Seat own_seat() noexcept
{
    const node::Map* const map = node::Map::of_several_groups();
    return map != nullptr ? map->seat_of(node::processors_of_thread(getpid())) : node::Seat{};
}

/// The order in which slots are tried: first those of the seat, which no other seat has, one TNI after the other; then
/// all, from the lowest on.
class Order {
  public:
    Order(const node::Seat& seat, unsigned span) noexcept : next_(seat.of != 0 ? seat.number : most), step_(seat.of)
    {
        while (step_ != 0 && std::gcd(step_, span) != 1)
            step_++;
    }
    /// `most`: there is none left.
    unsigned next() noexcept
    {
        if (next_ >= most)
            return lowest_ < most ? lowest_++ : most;
        return std::exchange(next_, next_ + step_);
    }

  private:
    unsigned next_;
    unsigned step_;
    unsigned lowest_ = 0;
};

/// Has this process or another a higher slot of the same TNI? Seats leave lower ones free.
bool has_more(unsigned kind, off_t first, unsigned n, unsigned span) noexcept
{
    for (unsigned m = n + span; m < most; m += span)
        if (held[kind][m] || !file.lock(F_WRLCK, first + m, 1, F_OFD_GETLK))
            return true;
    return false;
}

} // namespace

TniSlot acquire(const Backend& backend, Traffic traffic, bool spare) noexcept
{
    const node::Seat seat = own_seat(); // before the mutex: the first call reads the topology
    std::lock_guard guard(mutex);
    renew_after_fork();
    const auto kind = static_cast<unsigned>(traffic);
    const off_t first = first_byte(backend, static_cast<Bytes>(kind));
    const auto tnis = static_cast<unsigned>(backend.tni_count());
    const auto processes = static_cast<unsigned>(param_size("ppn", 0));
    const unsigned span = processes == 0 ? tnis : std::max(tnis / processes, 1u);
    for (unsigned attempt = 0; attempt < tries && open(); attempt++) {
        if (processes != 0 && !take_share(backend, tnis / span, seat.number)) {
            drop();
            warn_user("tofu: FI_TOFU_PPN=%u: all %u TNIs are in use by other processes: start at most that many "
                      "processes per node",
                      processes, tnis);
            return {traffic, 0, 0, 0, 0};
        }
        Order order(spare || share ? node::Seat{} : seat, span);
        for (unsigned n = order.next(); n < most; n = order.next()) {
            // The locks of one description do not exclude each other, but this process knows its own. No other process
            // counts if the TNIs belong to this process alone.
            if (held[kind][n] || (spare && seat.of != 0 && !share && has_more(kind, first, n, span)) ||
                (!share && !file.lock(F_WRLCK, first + n, 1)))
                continue;
            if (users == 0 && file.is_removed()) // between our open() and the lock: others would not see our locks
                break;
            held[kind].set(n);
            first_of[kind] = first;
            users++;
            return {traffic, n, owner, share.value_or(0) * span, span};
        }
        if (users != 0)
            break; // all are taken
        drop();
    }
    if (!file.is_open())
        FI_WARN_ONCE(&provider, FI_LOG_CORE,
                     "cannot open /dev/shm/tofu-fi-%u: TNIs are assigned by the launcher's number, and two processes "
                     "with the same control queue are not detected; make /dev/shm writable, or remove that file\n",
                     geteuid());
    // The launcher's number says which TNIs, or which of them.
    const unsigned rank = processes == 0 ? 0 : share.value_or(local_rank()) % (tnis / span);
    const unsigned number = ((processes == 0 ? local_rank() : 0) + blind[kind]++) % most;
    return {traffic, number, 0, rank * span, span};
}

void release(const TniSlot& slot) noexcept
{
    if (slot.holder != getpid()) // it is free, or held by the parent of this process
        return;
    std::lock_guard guard(mutex);
    const auto kind = static_cast<unsigned>(slot.traffic);
    held[kind].reset(slot.number);
    (void)file.lock(F_UNLCK, first_of[kind] + slot.number, 1);
    if (--users != 0)
        return;
    // The last process of all removes the file: no other has a byte.
    if (file.lock(F_WRLCK, 0, 0))
        file.remove();
    drop();
}

bool claim_cq(const Backend& backend, utofu_vcq_id_t vcq, bool spare) noexcept
{
    const Cq cq = cq_of(backend, vcq);
    std::lock_guard guard(mutex);
    if (cq.index == most || !file.is_open() || owner != getpid())
        return true; // unknown
    if (vcqs_of_cq[cq.index] == 0 && !file.lock(F_WRLCK, first_byte(backend, Bytes::cqs) + cq.index, 1)) {
        if (!spare)
            warn_user("tofu: control queue %u of TNI %u belongs to another process (uTofu User's Guide 4.1.2): set "
                      "FI_TOFU_PPN to the number of processes per node, or use a launcher that assigns control queues",
                      cq.number, cq.tni);
        return false;
    }
    vcqs_of_cq[cq.index]++;
    return true;
}

void release_cq(const Backend& backend, utofu_vcq_id_t vcq) noexcept
{
    const Cq cq = cq_of(backend, vcq);
    std::lock_guard guard(mutex);
    if (cq.index != most && file.is_open() && owner == getpid() && vcqs_of_cq[cq.index] != 0 &&
        --vcqs_of_cq[cq.index] == 0)
        (void)file.lock(F_UNLCK, first_byte(backend, Bytes::cqs) + cq.index, 1);
}

bool is_own(const Backend& backend, utofu_tni_id_t tni) noexcept
{
    std::lock_guard guard(mutex);
    const off_t first = first_byte(backend, Bytes::cqs) + tni * off_t{cqs_of_tni};
    return !file.is_open() || file.lock(F_WRLCK, first, cqs_of_tni, F_OFD_GETLK);
}

} // namespace tofu::vcq::tni_allocator
