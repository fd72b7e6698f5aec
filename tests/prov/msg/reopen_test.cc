// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An endpoint that is closed and opened again by the same process is a new peer: what was known of the old one must
// not reach it. Several processes. Calls libfabric over the provider over the simulator.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <dlfcn.h>
#include <rdma/providers/fi_prov.h>

#include "prov/lib/session.h"

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
