// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A few processes, each with one endpoint and one region that the others reach: the stage of the conformance
// programs. Works with any provider of RDM endpoints. Called by fabtests/*; calls libfabric.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

namespace fabtests {

inline constexpr unsigned max_ranks = 16;

struct Options {
    const char* provider = "tofu";
    unsigned ranks = 4;
    bool user_keys = false; ///< keys of ours and offsets instead of FI_MR_PROV_KEY and FI_MR_VIRT_ADDR
    unsigned seed = 1;
    std::uint64_t caps = FI_ATOMIC | FI_RMA;
    std::uint64_t msg_order = 0;
    std::uint64_t tx_flags = 0; ///< default operation flags
    fi_threading threading = FI_THREAD_SAFE;
    std::size_t region_size = 1 << 20;
};

/// What all processes share; made before they fork.
struct Shared {
    std::atomic<unsigned> arrived;
    std::atomic<unsigned> generation;
    std::atomic<unsigned> failures;
    std::atomic<unsigned> checks;
    std::atomic<unsigned> given_up;
    unsigned char name[max_ranks][64];
    std::size_t name_length[max_ranks];
    std::uint64_t key[max_ranks];
    std::uint64_t base[max_ranks];
    std::uint64_t word[max_ranks]; ///< free for the programs
};

/// One process's view.
class World {
  public:
    World(const Options& options, Shared& shared, unsigned rank)
        : options_(options), shared_(shared), rank_(rank)
    {
    }
    ~World();
    /// Opens everything and meets the others. False: no such provider here (said on stderr).
    bool open();

    unsigned rank() const { return rank_; }
    unsigned ranks() const { return options_.ranks; }
    unsigned seed() const { return options_.seed; }
    fid_domain* domain() { return domain_; }
    fid_ep* ep() { return ep_; }
    fid_cq* cq() { return cq_; }
    fid_cntr* writes() { return writes_; }
    fid_cntr* reads() { return reads_; }
    const fi_info& info() const { return *info_; }
    Shared& shared() { return shared_; }
    fi_addr_t peer(unsigned rank) const { return addresses_[rank]; }
    /// Remote address and key of a byte of a rank's region.
    std::uint64_t address(unsigned rank, std::size_t offset) const { return shared_.base[rank] + offset; }
    std::uint64_t key(unsigned rank) const { return shared_.key[rank]; }
    unsigned char* region() { return region_; }
    /// Local buffers: registered where the provider wants it.
    unsigned char* local(std::size_t offset = 0) { return local_ + offset; }
    void* desc() { return local_mr_ ? fi_mr_desc(local_mr_) : nullptr; }

    /// Makes progress for those who need the target's help.
    void progress();
    /// All ranks; bounded: after 60 seconds the program gives up.
    void barrier();
    /// Waits for one completion of the endpoint. 0, or the error entry's positive code.
    int wait(void** context = nullptr, std::uint64_t* flags = nullptr);
    /// Waits until a counter has the value. 0; an error of the queue meanwhile; FI_ETIMEDOUT.
    int wait_count(fid_cntr* counter, std::uint64_t value);
    /// Repeats a call while it answers -FI_EAGAIN.
    template <class F>
    ssize_t post(F call)
    {
        ssize_t rc;
        while ((rc = call()) == -FI_EAGAIN)
            progress();
        return rc;
    }
    /// A statement of the manual page, true or not.
    bool check(bool truth, const char* file, int line, const char* what);
    /// No entry is in the queue.
    bool quiet();

  private:
    const Options& options_;
    Shared& shared_;
    unsigned rank_;
    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_av* av_ = nullptr;
    fid_cq* cq_ = nullptr;
    fid_cntr* writes_ = nullptr;
    fid_cntr* reads_ = nullptr;
    fid_ep* ep_ = nullptr;
    fid_mr* mr_ = nullptr;
    fid_mr* local_mr_ = nullptr;
    unsigned char* region_ = nullptr;
    unsigned char* local_ = nullptr;
    fi_addr_t addresses_[max_ranks] = {};
};

#define CHECK(world, what) (world).check((what), __FILE__, __LINE__, #what)

/// Forks the ranks, runs `body` in each, and tells the result: 0 all held, 1 something did not, 77 the provider is
/// not there.
int run(const Options& options, void (*body)(World&));

/// -p PROVIDER, -n RANKS, -k (user keys), -s SEED, -o (atomics in order). False: bad arguments (said on stderr).
bool parse(int argc, char** argv, Options& options);

} // namespace fabtests
