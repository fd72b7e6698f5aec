// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Other providers of libfabric as platforms, all processes of a program in one: tcp;ofi_rxm over the loopback
// interface, and shm. Features that they lack are left out of the program. A failure here is a mistake of the model, or
// a defect of theirs. See platform.h.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "real_time.h"

namespace swarm {
namespace {

class OtherProvider final : public RealTime {
  public:
    /// Loads libfabric's providers here, once, and not in each process that carries out a program.
    explicit OtherProvider(bool is_tcp) : RealTime(std::chrono::seconds(30)), is_tcp_(is_tcp)
    {
        setenv("FI_PROVIDER", is_tcp_ ? "tcp,ofi_rxm" : "shm", 1);
        unsetenv("FI_PROVIDER_PATH");
        fi_info* found = nullptr;
        if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, FI_PROV_ATTR_ONLY, nullptr, &found) == 0)
            fi_freeinfo(found);
    }

    [[nodiscard]] Program fit(Program program) const override
    {
        Setup& s = program.setup;
        s.silent = s.initiator = s.triggers = s.groups = s.form = s.chaos = s.busy = s.blind = s.drop = 0;
        s.rma = is_tcp_ && s.rma != 0 ? 2 : 0; // keys of the user
        s.order = s.events = 0;                // neither has fi_mr_bind
        s.waits = s.sharedav = 0;
        s.counters = 0; // tcp counts failed accesses as sends
        // Shm loses all but the first of several unexpected messages that an endpoint has sent to itself.
        std::erase_if(program.commands, [&](const Command& c) {
            return !can(c.what) || (!is_tcp_ && c.what == Do::send && c.at == c.to);
        });
        // A multi-receive of tcp never ends if it is cancelled.
        const auto is = [](Do what) { return [what](const Command& c) { return c.what == what; }; };
        if (std::any_of(program.commands.begin(), program.commands.end(), is(Do::multi)))
            std::erase_if(program.commands, is(Do::cancel));
        for (Command& c : program.commands) {
            c.fence = 0;
            if (c.what == Do::peek || c.what == Do::claim || c.what == Do::discard)
                c.entry = 0;
            // A write has ended when it was sent; with FI_DELIVERY_COMPLETE, when it is there.
            if (c.what == Do::write)
                c.level = delivery;
            else if (c.level == match || c.level == delivery)
                c.level = plain;
        }
        return program;
    }
    void begin(const Program&) override {}

    [[nodiscard]] fi_info* find(fi_info& hints) override
    {
        std::free(hints.fabric_attr->prov_name);
        hints.fabric_attr->prov_name = strdup(is_tcp_ ? "tcp;ofi_rxm" : "shm");
        hints.caps &= ~std::uint64_t{FI_FENCE};
        if (!is_tcp_)
            hints.domain_attr->mr_mode |= FI_MR_VIRT_ADDR;
        fi_info* found = nullptr;
        const int result = fi_getinfo(FI_VERSION(1, 17), is_tcp_ ? "127.0.0.1" : nullptr, nullptr,
                                      is_tcp_ ? FI_SOURCE : 0, &hints, &found);
        return result == 0 ? found : nullptr;
    }
    int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric) override { return fi_fabric(attr, fabric, nullptr); }
    [[nodiscard]] bool delivers_after_close() const override { return false; }
    [[nodiscard]] bool reuses_addresses() const override { return true; }
    /// Tcp keeps what a closed endpoint had under way.
    [[nodiscard]] bool closes_domains() const override { return !is_tcp_; }
    /// Shm gives any address to a sender that was not inserted, and tcp that of a later endpoint to one that has
    /// closed.
    [[nodiscard]] bool names_senders() const override { return false; }
    /// What shm has of a process that ended early.
    void clear_after(int process) override
    {
        for (unsigned endpoint = 0; endpoint < slots * most_processes; endpoint++)
            (void)shm_unlink(
                ("/" + std::to_string(process) + ":" + std::to_string(geteuid()) + ":" + std::to_string(endpoint))
                    .c_str());
    }

  private:
    [[nodiscard]] bool can(Do what) const
    {
        switch (what) {
        case Do::kill:
        case Do::stop:
        case Do::go:
        case Do::join:
        case Do::part:
        case Do::collect:
        case Do::raise:
        case Do::insist:
        case Do::refuse: // each has flags of its own
        case Do::turn:
        case Do::context:
        case Do::recall: return false;
        // Tcp keeps a domain whose endpoint was closed with sends under way, and reports 0 bytes of what it drops.
        case Do::leave:
        case Do::start:
        case Do::renew:
        case Do::discard: return false;
        // Shm looks for no message, gives the address of what is closed to the next, and hangs in process_vm_readv
        // where a multi-receive is full.
        case Do::peek:
        case Do::claim:
        case Do::close:
        case Do::multi: return is_tcp_;
        default: return true;
        }
    }
    bool is_tcp_;
};

} // namespace

std::unique_ptr<Platform> make_other(const std::string& provider)
{
    return std::make_unique<OtherProvider>(provider == "tcp");
}

} // namespace swarm
