// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Servers of one user with the same service in different jobs: each client finds the one that it can reach. Several
// processes.
#include <cstdlib>
#include <string>

#include <unistd.h>

#include "prov/lib/objects.h"
#include "prov/lib/session.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;
using sim::test::run_processes;

constexpr std::size_t address_size = 24;

/// Announces itself, tells its address by words 3 * rank ... of the board, and stays until all have looked.
void serve(const Rank& rank, const std::string& service)
{
    Objects objects({.service = service});
    fid_cq* const cq = objects.open_queue();
    fid_ep* const ep = objects.add(cq, cq);
    std::uint64_t name[address_size / 8] = {};
    std::size_t length = sizeof(name);
    ASSERT_EQ(fi_getname(&ep->fid, name, &length), 0);
    ASSERT_EQ(length, address_size);
    for (unsigned i = 0; i < 3; i++)
        rank.set(3 * rank.number + i, name[i]);
    rank.barrier();
    rank.barrier();
}

TEST(Names, CountWithinOneJob)
{
    const std::string service = "names-" + std::to_string(getpid());
    constexpr unsigned jobs = 2;
    expect_processes(2 * jobs, [&](const Rank& rank) {
        const unsigned job = rank.number % jobs;
        const char* const base = std::getenv("TOFU_SIM_JOB");
        const std::string mine =
            std::string(base != nullptr ? base : "names").substr(0, 60) + "-" + std::to_string(job);
        setenv("TOFU_SIM_JOB", mine.c_str(), 1);
        if (rank.number < jobs) {
            serve(rank, service);
            return;
        }
        rank.barrier();
        if (const Info info = ask([](fi_info&) {}, FI_VERSION(1, 17), nullptr, "127.0.0.1", service.c_str())) {
            std::uint64_t name[address_size / 8] = {};
            EXPECT_EQ(info->dest_addrlen, address_size);
            std::memcpy(name, info->dest_addr, address_size);
            for (unsigned i = 0; i < 3; i++)
                EXPECT_EQ(name[i], rank.get(3 * job + i)) << "the client of job " << job;
        } else {
            ADD_FAILURE() << "fi_getinfo does not find the service";
        }
        rank.barrier();
    });
}

/// Nothing arrives there, and a VCQ ID of one job may be that of a process of the other.
TEST(Names, AnAddressOfAnotherJobIsSaidToBeOne)
{
    const char* const base = std::getenv("TOFU_SIM_JOB");
    const std::string stem = std::string(base != nullptr ? base : "names").substr(0, 60) + "-apart-";
    for (const bool apart : {false, true}) {
        const auto exits = run_processes(2, [&](const Rank& rank) {
            setenv("TOFU_SIM_JOB", (stem + (apart ? std::to_string(rank.number) : "both")).c_str(), 1);
            setenv("FI_LOG_LEVEL", "warn", 1);
            Session session(rank); // inserts the addresses of both
        });
        for (const auto& exit : exits) {
            EXPECT_TRUE(exit.success()) << exit.errors;
            EXPECT_EQ(exit.errors.find("an address belongs to another job") != std::string::npos, apart) << exit.errors;
        }
    }
}

} // namespace
} // namespace tofu::test
