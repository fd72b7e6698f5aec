// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_SOURCE_ERR: a message from a sender that is in no address vector is reported with its address (fi_cq(3)).
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <rdma/fi_rma.h>

#include "lib/harness.h"
#include "prov/lib/objects.h"

namespace tofu::test {
namespace {

constexpr std::uint64_t wanted = FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE | FI_SOURCE_ERR;

/// A sender that knows the receiver, which does not know it.
class UnknownSources : public testing::Test {
  protected:
    explicit UnknownSources(std::uint64_t caps = wanted, std::uint32_t format = FI_FORMAT_UNSPEC)
        : there(wishes(caps, format)), here(wishes(caps, format)), sent(there.open_queue()), got(here.open_queue()),
          counted(here.open_counter()), from(there.add(sent, sent)), to(here.add(got, got, counted))
    {
        fi_getname(&from->fid, name.data(), &length);
        std::array<char, 64> other{};
        std::size_t size = other.size();
        fi_getname(&to->fid, other.data(), &size);
        EXPECT_EQ(fi_av_insert(there.av, other.data(), 1, &target, 0, nullptr), 1);
        // the first place of our vector, which is our own, is not the sender's
        EXPECT_NE(target, fi_addr_t{0});
    }
    static Wishes wishes(std::uint64_t caps, std::uint32_t format)
    {
        Wishes all;
        all.caps = caps;
        all.addr_format = format;
        all.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        return all;
    }
    void send(std::size_t size, std::uint64_t tag = 5)
    {
        data.assign(size, static_cast<char>(size + tag));
        Objects::post(sent, [&] { return fi_tsend(from, data.data(), size, nullptr, target, tag, nullptr); });
        fi_cq_read(sent, nullptr, 0);
    }
    void receive(std::size_t size, std::uint64_t flags = 0)
    {
        room.assign(size, 0);
        iovec iov{room.data(), size};
        const fi_msg_tagged message{&iov, nullptr, 1, FI_ADDR_UNSPEC, 0, ~std::uint64_t{0}, this, 0};
        ASSERT_EQ(fi_trecvmsg(to, &message, flags), 0);
    }
    /// Of the next entry: what fi_cq_readfrom answers, 1 or -FI_EAVAIL.
    ssize_t next(fi_cq_tagged_entry& entry, fi_addr_t& source)
    {
        ssize_t answer = -FI_EAGAIN;
        EXPECT_TRUE(sim::test::wait_until([&] {
            fi_cq_read(sent, nullptr, 0);
            return (answer = fi_cq_readfrom(got, &entry, 1, &source)) != -FI_EAGAIN;
        }));
        return answer;
    }
    /// The next entry has an unknown source, and nothing else is wrong.
    void expect_unknown_source(std::size_t size, std::uint64_t flags)
    {
        fi_cq_tagged_entry none{};
        fi_addr_t source = 0;
        ASSERT_EQ(next(none, source), -FI_EAVAIL);
        char buffer[64] = {};
        fi_cq_err_entry error{};
        error.err_data = buffer;
        error.err_data_size = sizeof buffer;
        ASSERT_EQ(fi_cq_readerr(got, &error, 0), 1);
        EXPECT_EQ(error.err, FI_EADDRNOTAVAIL);
        EXPECT_EQ(error.prov_errno, 0);
        EXPECT_EQ(error.flags, flags);
        EXPECT_EQ(error.len, size);
        EXPECT_EQ(error.olen, 0u);
        EXPECT_EQ(error.err_data_size, length);
        EXPECT_EQ(error.err_data, buffer);
        EXPECT_TRUE(std::equal(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length), buffer));
    }

    Objects there, here;
    fid_cq* const sent;
    fid_cq* const got;
    fid_cntr* const counted;
    fid_ep* const from;
    fid_ep* const to;
    std::array<char, 64> name{};
    std::size_t length = name.size();
    fi_addr_t target = 0;
    std::vector<char> data, room;
};

TEST_F(UnknownSources, EveryProtocolReportsTheSource)
{
    std::uint64_t messages = 0;
    const auto one = [&](std::size_t size, bool expected) {
        if (expected)
            receive(size);
        send(size);
        if (!expected) {
            fi_cq_tagged_entry none{};
            for (int i = 0; i < 100; i++) // it has come before its receive is there
                EXPECT_EQ(fi_cq_read(got, &none, 1), -FI_EAGAIN);
            receive(size);
        }
        expect_unknown_source(size, FI_RECV | FI_TAGGED);
        EXPECT_EQ(room, data);
        EXPECT_EQ(fi_cntr_read(counted), ++messages);
        EXPECT_EQ(fi_cntr_readerr(counted), 0u) << "it was received";
    };
    for (int round = 0; round < 20; round++) // anonymous packets, until there is a ring
        for (std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{1000}, std::size_t{100000}})
            one(size, round % 2 == 0);
}

TEST_F(UnknownSources, RemoteDataOfAWriteToo)
{
    std::uint64_t word = 0, value = 7;
    fid_mr* mr = nullptr;
    ASSERT_EQ(fi_mr_reg(here.domain, &word, sizeof word, FI_REMOTE_WRITE, 0, 1, 0, &mr, nullptr), 0);
    Objects::post(sent, [&] {
        return fi_writedata(from, &value, sizeof value, nullptr, 99, target, reinterpret_cast<std::uint64_t>(&word),
                            fi_mr_key(mr), nullptr);
    });
    fi_cq_tagged_entry none{};
    fi_addr_t source = 0;
    ASSERT_EQ(next(none, source), -FI_EAVAIL);
    fi_cq_err_entry error{}; // without a buffer one is lent
    ASSERT_EQ(fi_cq_readerr(got, &error, 0), 1);
    EXPECT_EQ(error.err, FI_EADDRNOTAVAIL);
    EXPECT_EQ(error.data, 99u);
    EXPECT_EQ(error.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    ASSERT_EQ(error.err_data_size, length);
    EXPECT_TRUE(std::equal(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length),
                           static_cast<char*>(error.err_data)));
    EXPECT_EQ(word, 7u);
    EXPECT_EQ(fi_close(&mr->fid), 0);
}

TEST_F(UnknownSources, AReportedSourceIsInserted)
{
    receive(8);
    send(8);
    fi_cq_tagged_entry entry{};
    fi_addr_t source = 0, place = 0;
    ASSERT_EQ(next(entry, source), -FI_EAVAIL);
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(got, &error, 0), 1);
    ASSERT_EQ(fi_av_insert(here.av, error.err_data, 1, &place, 0, nullptr), 1);
    receive(8);
    send(8);
    ASSERT_EQ(next(entry, source), 1);
    EXPECT_EQ(source, place);
    // and it leads back
    char answer = 3, in = 0;
    ASSERT_EQ(fi_recv(from, &in, 1, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    Objects::post(got, [&] { return fi_send(to, &answer, 1, nullptr, place, nullptr); });
    EXPECT_TRUE(sim::test::wait_until([&] {
        fi_cq_read(sent, nullptr, 0);
        return in == 3;
    }));
    ASSERT_EQ(next(entry, source), 1); // of the send
    // A peer that was removed is unknown again.
    ASSERT_EQ(fi_av_remove(here.av, &place, 1, 0), 0);
    receive(8);
    send(8);
    expect_unknown_source(8, FI_RECV | FI_TAGGED);
}

TEST_F(UnknownSources, ASmallBufferGetsWhatItHolds)
{
    receive(8);
    send(8);
    fi_cq_tagged_entry none{};
    fi_addr_t source = 0;
    ASSERT_EQ(next(none, source), -FI_EAVAIL);
    char buffer[16];
    std::fill(std::begin(buffer), std::end(buffer), 'x');
    fi_cq_err_entry error{};
    error.err_data = buffer;
    error.err_data_size = 4;
    ASSERT_EQ(fi_cq_readerr(got, &error, 0), 1);
    EXPECT_EQ(error.err_data_size, 4u);
    EXPECT_TRUE(std::equal(buffer, buffer + 4, name.begin()));
    EXPECT_EQ(buffer[4], 'x');
}

TEST_F(UnknownSources, WhatIsWrongWithTheMessageComesFirst)
{
    receive(4);
    send(8);
    fi_cq_tagged_entry none{};
    fi_addr_t source = 0;
    ASSERT_EQ(next(none, source), -FI_EAVAIL);
    fi_cq_err_entry error{};
    ASSERT_EQ(fi_cq_readerr(got, &error, 0), 1);
    EXPECT_EQ(error.err, FI_ETRUNC);
    EXPECT_EQ(error.olen, 4u);
    EXPECT_EQ(error.err_data_size, 0u);
}

/// Addresses as text are reported as text.
class UnknownSourcesAsText : public UnknownSources {
  protected:
    UnknownSourcesAsText() : UnknownSources(wanted, FI_ADDR_STR) {}
};
TEST_F(UnknownSourcesAsText, AreToldAsText)
{
    EXPECT_EQ(std::string(name.data()).substr(0, 7), "tofu://");
    receive(8);
    send(8);
    expect_unknown_source(8, FI_RECV | FI_TAGGED);
}

TEST_F(UnknownSources, NeedFiSource)
{
    fi_info* hints = fi_dupinfo(here.info);
    fi_info* found = nullptr;
    hints->caps &= ~FI_SOURCE;
    hints->rx_attr->caps = 0;
    EXPECT_EQ(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &found), -FI_ENODATA);
    hints->caps |= FI_SOURCE;
    EXPECT_EQ(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &found), 0);
    fi_freeinfo(found);
    fi_freeinfo(hints);
}

/// An endpoint with FI_SOURCE alone gets successes (fi_cq(3)).
class KnownOrNot : public UnknownSources {
  protected:
    KnownOrNot() : UnknownSources(wanted & ~FI_SOURCE_ERR) {}
};
TEST_F(KnownOrNot, AreReportedAsUnknown)
{
    EXPECT_EQ(here.info->caps & FI_SOURCE_ERR, 0u);
    receive(8);
    send(8);
    fi_cq_tagged_entry entry{};
    fi_addr_t source = 0;
    ASSERT_EQ(next(entry, source), 1);
    EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
}

} // namespace
} // namespace tofu::test
