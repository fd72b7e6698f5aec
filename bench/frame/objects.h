// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The provider's objects for programs that measure the provider alone. Every refusal ends the program with a line that
// says what was refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <vector>

namespace tofu::bench {

/// Ends the program if `ret` is an error of libfabric.
void check(long ret, const char* what);
/// Pages with something in them.
char* map_pages(std::size_t bytes);

/// A domain with an AV and a CQ, and the endpoints added to it.
struct Objects {
    enum class Keys { of_the_provider, of_the_user };
    struct Wishes {
        Keys keys = Keys::of_the_provider;
        std::size_t queue_size = 1024;
        fi_progress progress = FI_PROGRESS_UNSPEC;
        fi_wait_obj wait = FI_WAIT_NONE; ///< of the queue
    };
    explicit Objects(const Wishes& wishes);
    Objects() : Objects(Wishes{}) {}
    Objects(const Objects&) = delete;
    Objects& operator=(const Objects&) = delete;
    ~Objects();

    /// `writes`: counts its writes; closed by the caller, after the endpoint.
    fid_ep* add_endpoint(fid_cntr* writes = nullptr);
    /// The region's rights are all there are; closed with the rest.
    fid_mr* add_region(char* memory, std::size_t bytes, std::uint64_t key);
    fi_addr_t insert(fid_ep* theirs) const;
    /// Takes what the queue has, up to 32 entries; returns how many.
    int progress() const;
    /// Progress until `entries` have come, within a bound.
    void finish(long entries) const;
    /// Posts until it is accepted; between the tries this side and `other` make progress.
    template <class F>
    void post(const char* what, const Objects& other, F&& f) const
    {
        long ret;
        for (long polls = 0; (ret = f()) == -FI_EAGAIN && polls < patience; ++polls) {
            progress();
            other.progress();
        }
        check(ret, what);
    }

    static constexpr long patience = 20000000; ///< polls
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    std::vector<fid_ep*> ep;
    std::vector<fid_mr*> mr;
};

} // namespace tofu::bench
