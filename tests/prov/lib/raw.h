// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer that writes what it likes into an endpoint's message area, beside the protocol.
#pragma once

#include <cstring>

#include <utofu.h>

#include "many_endpoints.h"
#include "msg/wire.h"

namespace tofu::test {

class RawPeer {
  public:
    /// With a VCQ of its own, towards the endpoint that opened the session of rank `target`.
    RawPeer(Session& session, unsigned target, unsigned rings = 1)
        : victim_(address_of_rank(session, target)), geometry_{rings, 64, 1024}
    {
        utofu_tni_id_t* tnis = nullptr;
        std::size_t count = 0;
        EXPECT_EQ(utofu_get_onesided_tnis(&tnis, &count), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_create_vcq(tnis[0], 0, &vcq_), UTOFU_SUCCESS);
        std::free(tnis);
        EXPECT_EQ(utofu_query_stadd(victim_.target_vcq, endpoint_stag(victim_.index), &area_), UTOFU_SUCCESS);
        EXPECT_EQ(utofu_reg_mem(vcq_, &bytes_, sizeof bytes_, 0, &own_), UTOFU_SUCCESS);
    }
    RawPeer(const RawPeer&) = delete;
    RawPeer& operator=(const RawPeer&) = delete;
    ~RawPeer()
    {
        utofu_dereg_mem(vcq_, own_, 0);
        utofu_free_vcq(vcq_);
    }

    [[nodiscard]] const proto::Geometry& geometry() const { return geometry_; }
    [[nodiscard]] const EndpointAddress& victim() const { return victim_; }

    /// All of these wait for the end. At most 256 bytes.
    void put(std::uint64_t offset, const void* data, std::size_t size, bool notice = false)
    {
        std::memcpy(bytes_, data, size);
        finish([&](std::uint64_t edata, unsigned long flags) {
            return utofu_put(vcq_, victim_.target_vcq, own_, area_ + offset, size, edata,
                             flags | (notice ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : 0), nullptr);
        });
    }
    void get(std::uint64_t offset, void* data, std::size_t size)
    {
        finish([&](std::uint64_t edata, unsigned long flags) {
            return utofu_get(vcq_, victim_.target_vcq, own_, area_ + offset, size, edata, flags, nullptr);
        });
        std::memcpy(data, bytes_, size);
    }
    /// The word as it was.
    std::uint64_t cswap(std::uint64_t offset, std::uint64_t from, std::uint64_t to)
    {
        return finish([&](std::uint64_t edata, unsigned long flags) {
            return utofu_cswap8(vcq_, victim_.target_vcq, from, to, area_ + offset, edata, flags, nullptr);
        });
    }
    /// Likewise.
    std::uint64_t add(std::uint64_t offset, std::uint64_t value)
    {
        return finish([&](std::uint64_t edata, unsigned long flags) {
            return utofu_armw8(vcq_, victim_.target_vcq, UTOFU_ARMW_OP_ADD, value, area_ + offset, edata, flags,
                               nullptr);
        });
    }

  private:
    template <class Post>
    std::uint64_t finish(Post&& post)
    {
        EXPECT_EQ(sim::test::posted([&] { return post(1, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE); }), UTOFU_SUCCESS);
        utofu_mrq_notice notice{};
        EXPECT_EQ(sim::test::wait_mrq(vcq_, &notice), UTOFU_SUCCESS);
        void* none = nullptr; // reading the TCQ is what makes room in the TOQ (guide 3.7)
        EXPECT_EQ(utofu_poll_tcq(vcq_, 0, &none), UTOFU_ERR_NOT_FOUND);
        return notice.rmt_value;
    }

    EndpointAddress victim_;
    proto::Geometry geometry_;
    utofu_vcq_hdl_t vcq_ = 0;
    utofu_stadd_t area_ = 0;
    utofu_stadd_t own_ = 0;
    alignas(256) std::uint8_t bytes_[256];
};

} // namespace tofu::test
