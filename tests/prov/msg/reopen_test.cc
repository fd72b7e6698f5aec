// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint that is closed and opened again by the same process is a new peer: what was known of the old one must not
// reach it. Several processes.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <dlfcn.h>
#include <rdma/providers/fi_prov.h>

#include "prov/lib/many_endpoints.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr unsigned rounds = 6;
constexpr unsigned name_of_server = 1000; // words of the board, above the session's
constexpr std::size_t name_size = 32;

fi_addr_t insert(Session& s, const void* name)
{
    fi_addr_t at = FI_ADDR_NOTAVAIL;
    EXPECT_EQ(fi_av_insert(s.av, name, 1, &at, 0, nullptr), 1);
    return at;
}

void send(Session& s, fi_addr_t to, const void* bytes, std::size_t size, std::uint64_t flags)
{
    iovec iov{const_cast<void*>(bytes), size};
    fi_msg msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to;
    msg.context = &iov;
    ASSERT_EQ(s.post([&] { return fi_sendmsg(s.ep, &msg, FI_COMPLETION | flags); }), 0);
    s.expect(&iov, FI_SEND);
}

void receive(Session& s, void* bytes, std::size_t size)
{
    ASSERT_EQ(fi_recv(s.ep, bytes, size, nullptr, FI_ADDR_UNSPEC, bytes), 0);
    s.expect(bytes, FI_RECV);
}

/// Knows no peer: a client sends its address.
void serve(const Rank& rank, const Options& options, std::uint64_t flags)
{
    Session s(rank, options);
    Session::check(fi_enable(s.ep), "fi_enable");
    std::uint64_t name[name_size / 8] = {};
    std::size_t length = sizeof(name);
    ASSERT_EQ(fi_getname(&s.ep->fid, name, &length), 0);
    for (unsigned i = 0; i < name_size / 8; i++)
        rank.set(name_of_server + i, name[i]);
    rank.barrier();
    for (unsigned round = 1; round <= rounds && !testing::Test::HasFailure(); round++) {
        char client[name_size] = {};
        receive(s, client, sizeof(client));
        const fi_addr_t peer = insert(s, client);
        for (unsigned i = 0; i < 3 && !testing::Test::HasFailure(); i++) {
            const unsigned out = round * 10 + i;
            unsigned in = 0;
            send(s, peer, &out, sizeof(out), flags);
            receive(s, &in, sizeof(in));
            EXPECT_EQ(in, out + 1);
        }
    }
}

/// Opens all objects anew for each round, and is gone as soon as its last completion is there.
void be_clients(const Rank& rank, const Options& options, std::uint64_t flags)
{
    rank.barrier();
    for (unsigned round = 1; round <= rounds && !testing::Test::HasFailure(); round++) {
        Session s(rank, options);
        Session::check(fi_enable(s.ep), "fi_enable");
        std::uint64_t server[name_size / 8];
        for (unsigned i = 0; i < name_size / 8; i++)
            server[i] = rank.get(name_of_server + i);
        const fi_addr_t peer = insert(s, server);
        char own[name_size] = {};
        std::size_t length = sizeof(own);
        ASSERT_EQ(fi_getname(&s.ep->fid, own, &length), 0);
        send(s, peer, own, sizeof(own), flags);
        for (unsigned i = 0; i < 3 && !testing::Test::HasFailure(); i++) {
            unsigned in = 0;
            receive(s, &in, sizeof(in));
            EXPECT_EQ(in, round * 10 + i);
            const unsigned out = in + 1;
            send(s, peer, &out, sizeof(out), flags);
        }
    }
}

/// As fi_rdm_multi_client of libfabric's own tests does.
void reopen(std::uint64_t flags)
{
    expect_processes(2, [flags](const Rank& rank) {
        Options options;
        options.caps = FI_MSG;
        options.enable = false;
        options.leaves_together = false;
        if (rank.number == 0)
            serve(rank, options, flags);
        else
            be_clients(rank, options, flags);
    });
}

/// Entries of a directory of /proc.
unsigned entries(const char* directory)
{
    unsigned count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory))
        count++;
    return count;
}

/// A uTofu library may remember shared objects for the life of the process.
TEST(Reopened, AnEndpointLeavesNoDescriptorBehind)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_MSG;
        const auto reopen_often = [&rank, &options] {
            for (unsigned i = 0; i < 40; i++) {
                Session s(rank, options);
                unsigned in = 0;
                ASSERT_EQ(fi_recv(s.ep, &in, sizeof(in), nullptr, FI_ADDR_UNSPEC, &in), 0);
                ASSERT_EQ(s.post([&] { return fi_inject(s.ep, &i, sizeof(i), rank.number); }), 0);
                s.expect(&in, FI_RECV);
                EXPECT_EQ(in, i);
            }
        };
        reopen_often();
        const unsigned before = entries("/proc/self/fd");
        reopen_often();
        EXPECT_EQ(entries("/proc/self/fd"), before);
    });
}

/// Mappings of memory that messages come to.
unsigned areas()
{
    unsigned count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        count += line.find("/memfd:tofu-area") != std::string::npos;
    return count;
}

/// libfabric calls cleanup() before it unloads a provider, whose static objects are gone then.
TEST(Reopened, AnUnloadedProviderLeavesNoMemoryBehind)
{
    expect_processes(1, [](const Rank& rank) {
        Options options;
        options.caps = FI_MSG;
        for (unsigned i = 0; i < 3; i++)
            Session s(rank, options);
        EXPECT_GE(areas(), 2u) << "nothing is left to later endpoints, or it has another name";
        const std::string path = std::string(std::getenv("FI_PROVIDER_PATH")) + "/libtofu-fi.so";
        void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
        ASSERT_NE(library, nullptr) << path;
        const auto begin = reinterpret_cast<fi_provider* (*)()>(dlsym(library, "fi_prov_ini"));
        ASSERT_NE(begin, nullptr);
        ASSERT_NE(begin()->cleanup, nullptr);
        begin()->cleanup();
        EXPECT_EQ(areas(), 0u);
        Session s(rank, options); // as good as new
        dlclose(library);
    });
}

constexpr unsigned step_word = 900;

fid_ep* open_endpoint(Session& s)
{
    fid_ep* ep = nullptr;
    Session::check(fi_endpoint(s.domain, s.info, &ep, nullptr), "fi_endpoint");
    Session::check(fi_ep_bind(ep, &s.av->fid, 0), "bind av");
    Session::check(fi_ep_bind(ep, &s.cq->fid, FI_TRANSMIT | FI_RECV), "bind cq");
    Session::check(fi_enable(ep), "fi_enable");
    return ep;
}

void say_name(Session& s, fid_ep* ep, unsigned step)
{
    std::uint64_t name[name_size / 8] = {};
    std::size_t length = sizeof name;
    ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
    for (unsigned i = 0; i < name_size / 8; i++)
        s.rank.set(name_of_server + i, name[i]);
    s.rank.set(step_word, step);
}

/// Makes progress until a step is reached.
void await(Session& s, unsigned step)
{
    EXPECT_TRUE(sim::test::wait_until([&] {
        (void)fi_cq_read(s.cq, nullptr, 0);
        return s.rank.get(step_word) >= step;
    })) << step;
}

fi_addr_t hear_name(Session& s, unsigned step)
{
    await(s, step);
    std::uint64_t name[name_size / 8];
    for (unsigned i = 0; i < name_size / 8; i++)
        name[i] = s.rank.get(name_of_server + i);
    return insert(s, name);
}

/// Keeps a message that waits for its match, is closed, and has a successor with its number.
void be_replaced(Session& s, unsigned messages)
{
    fid_ep* const old = open_endpoint(s);
    const EndpointAddress old_address = address_of(old);
    say_name(s, old, 1);
    unsigned in = 0;
    for (unsigned i = 0; i < messages; i++) {
        ASSERT_EQ(fi_recv(old, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &in), 0);
        s.expect(&in, FI_RECV);
    }
    const bool kept = sim::test::wait_until([&] {
        fi_msg_tagged look{};
        look.ignore = ~std::uint64_t{0};
        look.addr = FI_ADDR_UNSPEC;
        EXPECT_EQ(fi_trecvmsg(old, &look, FI_PEEK), 0);
        fi_cq_data_entry entry{};
        ssize_t ret = -FI_EAGAIN;
        while (ret == -FI_EAGAIN)
            ret = fi_cq_read(s.cq, &entry, 1);
        fi_cq_err_entry error{};
        return ret == 1 || fi_cq_readerr(s.cq, &error, 0) != 1;
    });
    EXPECT_TRUE(kept);
    ASSERT_EQ(fi_close(&old->fid), 0);
    fid_ep* next = open_endpoint(s);
    for (unsigned i = 0; i < max_endpoints && address_of(next).index != old_address.index; i++) {
        ASSERT_EQ(fi_close(&next->fid), 0);
        next = open_endpoint(s);
    }
    EXPECT_NE(address_of(next).nonce, old_address.nonce); // the number may be unsettled, and be another one then
    say_name(s, next, 2);
    ASSERT_EQ(fi_recv(next, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &in), 0);
    s.expect(&in, FI_RECV);
    EXPECT_EQ(in, 77u);
    await(s, 3);
    ASSERT_EQ(fi_close(&next->fid), 0);
}

/// Sends to both.
void send_to_both(Session& s, unsigned messages)
{
    const fi_addr_t old = hear_name(s, 1);
    unsigned out = 1;
    for (unsigned i = 0; i < messages; i++)
        send(s, old, &out, sizeof out, FI_DELIVERY_COMPLETE);
    iovec iov{&out, sizeof out};
    fi_msg_tagged waits{};
    waits.msg_iov = &iov;
    waits.iov_count = 1;
    waits.addr = old;
    waits.context = &waits;
    ASSERT_EQ(s.post([&] { return fi_tsendmsg(s.ep, &waits, FI_COMPLETION | FI_MATCH_COMPLETE); }), 0);
    const fi_addr_t next = hear_name(s, 2);
    EXPECT_NE(next, old);
    fi_cq_data_entry entry{};
    fi_cq_err_entry error{};
    if (s.next(entry, &error))
        EXPECT_EQ(error.err, FI_EHOSTDOWN);
    EXPECT_EQ(error.op_context, &waits);
    EXPECT_EQ(s.post([&] { return fi_inject(s.ep, &out, sizeof out, old); }), -FI_EHOSTDOWN);
    out = 77;
    send(s, next, &out, sizeof out, FI_DELIVERY_COMPLETE);
    s.rank.set(step_word, 3);
}

/// 240 endpoints of a domain later. Without a ring, and with one.
TEST(Reopened, ASuccessorWithTheSameNumberHasAnotherAddress)
{
    for (const unsigned messages : {0u, 20u})
        expect_processes(2, [messages](const Rank& rank) {
            Options options;
            options.caps = FI_MSG | FI_TAGGED;
            Session s(rank, options);
            if (rank.number == 0)
                send_to_both(s, messages);
            else
                be_replaced(s, messages);
        });
}

TEST(Reopened, EndpointsOfAProcessAreReachedOneAfterTheOther)
{
    reopen(0);
}

TEST(Reopened, DeliveryIsKnownThoughThePeerLeavesAtOnce)
{
    reopen(FI_DELIVERY_COMPLETE);
}

} // namespace
} // namespace tofu::test
