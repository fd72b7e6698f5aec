// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A few processes, each with one endpoint and one region that the others reach: the stage of the conformance programs.
// Works with any provider of RDM endpoints.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

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
    bool user_keys = false; ///< own keys and offsets instead of FI_MR_PROV_KEY and FI_MR_VIRT_ADDR
    unsigned seed = 1;
    std::uint64_t caps = FI_ATOMIC | FI_RMA;
    std::uint64_t wished_caps = 0; ///< taken where the provider has them; see World::has()
    std::uint64_t msg_order = 0;
    std::uint64_t tx_flags = 0; ///< default operation flags
    fi_threading threading = FI_THREAD_SAFE;
    std::size_t region_size = 1 << 20;
    unsigned patience = 60;     ///< seconds a wait may take before the program gives up
    const char* only = nullptr; ///< the one case to run
    bool list = false;          ///< list the names of the cases
    bool isolated = false;      ///< each case with processes of its own, so that one that fails ends nothing else
};

class World;

/// One part of a program: what the manual page says, and the checks of it. All ranks run it.
struct Case {
    const char* name;
    void (*body)(World&);
    unsigned min_ranks = 1;
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

/// Something that needs polling while its process waits for others.
class Polled {
  public:
    virtual void poll() = 0;

  protected:
    ~Polled() = default;
};

/// One process's view.
class World {
  public:
    World(const Options& options, Shared& shared, unsigned rank) : options_(options), shared_(shared), rank_(rank) {}
    ~World();
    /// Opens everything and meets the others. False: no such provider here (said on stderr).
    bool open();

    unsigned rank() const { return rank_; }
    unsigned ranks() const { return options_.ranks; }
    unsigned seed() const { return options_.seed; }
    unsigned patience() const { return options_.patience; }
    /// A capability that was asked for or wished for and granted.
    bool has(std::uint64_t cap) const { return (info_->caps & cap) == cap; }
    /// Our own provider: no excuses. Where the manual page leaves a choice, others may choose.
    bool ours() const;
    fid_fabric* fabric() { return fabric_; }
    fid_domain* domain() { return domain_; }
    fid_ep* ep() { return ep_; }
    fid_cq* cq() { return cq_; }
    fid_cntr* writes() { return writes_; }
    fid_cntr* reads() { return reads_; }
    const fi_info& info() const { return *info_; }
    /// The same for a further endpoint of this process, with an address of its own. The caller frees it.
    fi_info* further_info() const;
    Shared& shared() { return shared_; }
    fi_addr_t peer(unsigned rank) const { return addresses_[rank]; }
    /// Remote address and key of a byte of a rank's region.
    std::uint64_t address(unsigned rank, std::size_t offset) const { return shared_.base[rank] + offset; }
    std::uint64_t key(unsigned rank) const { return shared_.key[rank]; }
    unsigned char* region() { return region_; }
    /// Local buffers: registered where the provider wants it.
    unsigned char* local(std::size_t offset = 0) { return local_ + offset; }
    void* desc() { return local_mr_ ? fi_mr_desc(local_mr_) : nullptr; }

    /// Makes progress for initiators that need the target's help.
    void progress();
    void add(Polled& object) { polled_.push_back(&object); }
    void remove(Polled& object) { std::erase(polled_, &object); }
    /// Ends this process: waiting has no end.
    [[noreturn]] void give_up(const char* what);
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
    /// Repeats `look`, with progress, until it says true. False: not within the program's patience.
    template <class F>
    bool until(F look)
    {
        for (std::uint64_t deadline = now_ms() + 1000 * patience(); now_ms() < deadline; progress())
            if (look())
                return true;
        return look();
    }
    /// Behind a barrier: what earlier cases did to a region may be reported late, and does not say which endpoint was
    /// addressed (FI_RMA_EVENT). After this a counter counts the case alone.
    void take_late_events()
    {
        for (unsigned i = 0; i < 2000; ++i)
            progress();
    }
    static std::uint64_t now_ms();
    /// A statement of the manual page, true or not.
    bool check(bool truth, const char* file, int line, const char* what);
    /// Checks that did not hold, of all ranks.
    unsigned failures() const { return shared_.failures.load(std::memory_order_relaxed); }
    /// No entry is in the queue.
    bool quiet();

  private:
    fi_info* find(std::uint64_t caps);

    const Options& options_;
    Shared& shared_;
    std::vector<Polled*> polled_;
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

/// What a program is: the page that its cases are about, in code. Each defines one; main() is common (program.cc).
struct Program {
    Options options; ///< before those of the command line
    std::span<const Case> cases;
};
extern const Program program;

/// Forks the ranks, has each run the cases, and returns the result: 0 all held, 1 something did not, 77 the provider
/// is not there, or cannot what the program is about. With Options::isolated one line for each case.
int run(const Options& options, std::span<const Case> cases);

/// Reads the options that -h lists. False: bad arguments (said on stderr).
bool parse(int argc, char** argv, Options& options);

} // namespace fabtests
