// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fabric, domain and address vector of a rank, and how to post and wait, for tests that make endpoints of several
// kinds.
#pragma once

#include <array>
#include <cstdint>

#include "session.h"

namespace tofu::test {

using sim::test::wait_until;

inline void check(int ret, const char* what)
{
    Session::check(ret, what);
}

/// Fabric, domain and address vector of one rank.
struct Base {
    explicit Base(std::uint64_t caps, int rx_bits, std::size_t tx_count = 1, std::size_t rx_count = 1,
                  fi_threading threading = FI_THREAD_COMPLETION)
        : bits(rx_bits)
    {
        info = must_find([&](fi_info& hints) {
            hints.caps = caps;
            hints.ep_attr->tx_ctx_cnt = tx_count;
            hints.ep_attr->rx_ctx_cnt = rx_count;
            hints.domain_attr->threading = threading;
        });
        check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
        check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        fi_av_attr attr{};
        attr.type = FI_AV_TABLE;
        attr.rx_ctx_bits = rx_bits;
        check(fi_av_open(domain, &attr, &av, nullptr), "fi_av_open");
    }
    ~Base()
    {
        EXPECT_EQ(fi_close(&av->fid), 0);
        EXPECT_EQ(fi_close(&domain->fid), 0);
        EXPECT_EQ(fi_close(&fabric->fid), 0);
        fi_freeinfo(info);
    }
    [[nodiscard]] fid_cq* queue() const
    {
        fi_cq_attr attr{};
        attr.format = FI_CQ_FORMAT_TAGGED;
        attr.size = 1024;
        fid_cq* cq = nullptr;
        check(fi_cq_open(domain, &attr, &cq, nullptr), "fi_cq_open");
        return cq;
    }
    [[nodiscard]] fi_addr_t insert(struct fid* endpoint) const
    {
        char name[64];
        std::size_t length = sizeof(name);
        check(fi_getname(endpoint, name, &length), "fi_getname");
        fi_addr_t at = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(av, name, 1, &at, 0, nullptr), 1);
        return at;
    }
    /// The addresses of all ranks, by rank, the first of which is `first`.
    void exchange(const Rank& rank, struct fid* endpoint, fi_addr_t first = 0) const
    {
        std::array<std::uint64_t, 4> words{};
        std::size_t length = sizeof(words);
        check(fi_getname(endpoint, words.data(), &length), "fi_getname");
        for (unsigned i = 0; i < 4; i++)
            rank.set(rank.number * 4 + i, words[i]);
        rank.barrier();
        for (unsigned r = 0; r < rank.size; r++) {
            for (unsigned i = 0; i < 4; i++)
                words[i] = rank.get(r * 4 + i);
            fi_addr_t at = FI_ADDR_NOTAVAIL;
            ASSERT_EQ(fi_av_insert(av, words.data(), 1, &at, 0, nullptr), 1);
            ASSERT_EQ(at, first + r);
        }
        rank.barrier();
    }

    int bits;
    fi_info* info = nullptr;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
};

/// Repeats a post until it is taken.
template <class Post>
ssize_t post(fid_cq* cq, Post&& call)
{
    ssize_t result = -FI_EAGAIN;
    static_cast<void>(wait_until([&] {
        result = call();
        if (result == -FI_EAGAIN)
            fi_cq_read(cq, nullptr, 0);
        return result != -FI_EAGAIN;
    }));
    return result;
}
/// The next entry of a queue. False: none came.
inline bool next(fid_cq* cq, fi_cq_tagged_entry& entry, fi_addr_t* source = nullptr)
{
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    ssize_t got = -FI_EAGAIN;
    const bool came = wait_until([&] {
        got = fi_cq_readfrom(cq, &entry, 1, &from);
        return got != -FI_EAGAIN;
    });
    if (source != nullptr)
        *source = from;
    return came && got == 1;
}
inline bool empty(fid_cq* cq)
{
    fi_cq_tagged_entry entry;
    for (int i = 0; i < 100; i++)
        if (fi_cq_read(cq, &entry, 1) != -FI_EAGAIN)
            return false;
    return true;
}

} // namespace tofu::test
