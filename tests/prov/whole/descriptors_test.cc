// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// With few descriptors, or small files: each call of a program's life meets each small number of free descriptors, and
// each of some limits on the size of a file. A call that needs more fails with a code that says so and leaves no
// descriptor open. It succeeds once there are more.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rdma/fi_collective.h>

#include "prov/lib/descriptors.h"
#include "prov/lib/session.h"

namespace {

using namespace tofu::test;
using tofu::sim::test::Exit;
using tofu::sim::test::run_processes;
using tofu::sim::test::wait_until;

/// Calls within a limit of the process, and after a failure without.
class Narrow {
  public:
    /// RLIMIT_NOFILE: at most `least` free descriptors, which have the lowest numbers. RLIMIT_FSIZE: `least` bytes in a
    /// file.
    Narrow(__rlimit_resource resource, unsigned least) : resource_(resource), least_(least)
    {
        EXPECT_EQ(getrlimit(resource_, &all_), 0);
    }

    template <class Call>
    int run(Call&& call)
    {
        const rlimit few{resource_ == RLIMIT_NOFILE ? number_behind(least_) : least_, all_.rlim_max};
        EXPECT_EQ(setrlimit(resource_, &few), 0);
        const int ret = call();
        EXPECT_EQ(setrlimit(resource_, &all_), 0);
        return ret;
    }
    template <class Call>
    void must(const char* what, Call&& call)
    {
        const std::size_t before = open_descriptors();
        int ret = run(call);
        if (ret == 0)
            return;
        failures_++;
        EXPECT_TRUE(ret == -FI_EMFILE || ret == -FI_ENOMEM) << what << ": " << fi_strerror(-ret);
        EXPECT_EQ(open_descriptors(), before)
            << what << " failed with a limit of " << least_ << " and left descriptors";
        ret = call();
        EXPECT_EQ(ret, 0) << what << ": " << fi_strerror(-ret) << ", without a limit after a failure with " << least_;
        if (ret != 0)
            std::_Exit(1);
    }
    [[nodiscard]] unsigned failures() const { return failures_; }

  private:
    /// The limit is on the number: below it lie exactly `spare` free ones.
    static rlim_t number_behind(unsigned spare)
    {
        std::vector<int> gaps;
        for (unsigned i = 0; i < spare; i++)
            gaps.push_back(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
        const int next = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
        close(next);
        for (const int fd : gaps)
            close(fd);
        return static_cast<rlim_t>(next);
    }

    const __rlimit_resource resource_;
    const unsigned least_;
    unsigned failures_ = 0;
    rlimit all_{};
};

/// libfabric itself loads its providers once, before any limit.
void load_providers()
{
    fi_info* hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("no such provider");
    fi_info* found = nullptr;
    EXPECT_EQ(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &found), -FI_ENODATA);
    fi_freeinfo(hints);
}

struct Life {
    fid_fabric* fabric = nullptr;
    fid_eq* eq = nullptr;
    fid_wait* set = nullptr;
    fid_domain* domain = nullptr;
    fid_av* av = nullptr;
    fid_cq* cq = nullptr;
    fid_cntr* counter = nullptr;
    fid_ep* ep = nullptr;
    fid_mr* heap_region = nullptr;
    fid_mr* file_region = nullptr;
    fi_addr_t self = FI_ADDR_NOTAVAIL;
    std::array<char, 64> name{};
};

void open_all(Narrow& narrow, fi_info* info, Life& o)
{
    narrow.must("fi_fabric", [&] { return fi_fabric(info->fabric_attr, &o.fabric, nullptr); });
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_FD;
    narrow.must("fi_eq_open", [&] { return fi_eq_open(o.fabric, &eq_attr, &o.eq, nullptr); });
    fi_wait_attr wait_attr{};
    wait_attr.wait_obj = FI_WAIT_FD;
    narrow.must("fi_wait_open", [&] { return fi_wait_open(o.fabric, &wait_attr, &o.set); });
    narrow.must("fi_domain", [&] { return fi_domain(o.fabric, info, &o.domain, nullptr); });
    const std::string shared = "descriptors-" + std::to_string(getpid());
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    av_attr.name = shared.c_str();
    narrow.must("fi_av_open", [&] { return fi_av_open(o.domain, &av_attr, &o.av, nullptr); });
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_attr.wait_obj = FI_WAIT_FD;
    narrow.must("fi_cq_open", [&] { return fi_cq_open(o.domain, &cq_attr, &o.cq, nullptr); });
    fi_cntr_attr counter_attr{};
    counter_attr.wait_obj = FI_WAIT_SET;
    counter_attr.wait_set = o.set;
    narrow.must("fi_cntr_open", [&] { return fi_cntr_open(o.domain, &counter_attr, &o.counter, nullptr); });
    narrow.must("fi_endpoint", [&] { return fi_endpoint(o.domain, info, &o.ep, nullptr); });
    EXPECT_EQ(fi_ep_bind(o.ep, &o.av->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(o.ep, &o.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_ep_bind(o.ep, &o.counter->fid, FI_SEND), 0);
    narrow.must("fi_enable", [&] { return fi_enable(o.ep); });
    std::size_t length = o.name.size();
    EXPECT_EQ(fi_getname(&o.ep->fid, o.name.data(), &length), 0);
    narrow.must("fi_av_insert",
                [&] { return fi_av_insert(o.av, o.name.data(), 1, &o.self, 0, nullptr) == 1 ? 0 : -FI_ENOMEM; });
}

/// Two entries, and no error.
void finish_two(Narrow& narrow, Life& o, const char* what)
{
    unsigned found = 0;
    narrow.must(what, [&] {
        const bool came = wait_until([&] {
            fi_cq_tagged_entry entry{};
            const ssize_t got = fi_cq_read(o.cq, &entry, 1);
            EXPECT_TRUE(got == 1 || got == -FI_EAGAIN) << what << ": " << got;
            found += got == 1;
            return found == 2 || got == -FI_EAVAIL;
        });
        return came ? 0 : -FI_EOTHER;
    });
}

void use(Narrow& narrow, Life& o)
{
    constexpr std::size_t large = 300000;
    std::vector<char> heap(large, 'x'), in(large);
    const int file = memfd_create("descriptors-test", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, large), 0);
    auto* const mapped = static_cast<char*>(mmap(nullptr, large, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    ASSERT_NE(mapped, MAP_FAILED);
    close(file);
    constexpr std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    narrow.must("fi_mr_reg",
                [&] { return fi_mr_reg(o.domain, heap.data(), large, access, 0, 1, 0, &o.heap_region, nullptr); });
    narrow.must("fi_mr_reg of a file",
                [&] { return fi_mr_reg(o.domain, mapped, large, access, 0, 2, 0, &o.file_region, nullptr); });
    for (const std::size_t size : {std::size_t{8}, std::size_t{5000}, large})
        for (char* const out : {heap.data(), mapped}) {
            std::memset(out, static_cast<char>('a' + size % 7), size);
            narrow.must("fi_trecv", [&] {
                return static_cast<int>(fi_trecv(o.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr));
            });
            narrow.must("fi_tsend",
                        [&] { return static_cast<int>(fi_tsend(o.ep, out, size, nullptr, o.self, 7, nullptr)); });
            finish_two(narrow, o, "a message");
            EXPECT_EQ(std::memcmp(in.data(), out, size), 0) << size;
        }
    EXPECT_EQ(fi_close(&o.heap_region->fid), 0);
    EXPECT_EQ(fi_close(&o.file_region->fid), 0);
    munmap(mapped, large);
}

void close_all(Narrow& narrow, Life& o)
{
    for (struct fid* object :
         {&o.ep->fid, &o.counter->fid, &o.cq->fid, &o.av->fid, &o.domain->fid, &o.set->fid, &o.eq->fid, &o.fabric->fid})
        EXPECT_EQ(narrow.run([&] { return fi_close(object); }), 0);
}

/// A process that lives its life within the limit. `failures`: the calls that failed, and succeeded without it.
void live(__rlimit_resource resource, unsigned least, unsigned& failures)
{
    const auto exits = run_processes(1, [&](const Rank&) {
        load_providers();
        const int errors = dup(STDERR_FILENO); // a file, which must not grow within the limit
        if (resource == RLIMIT_FSIZE)
            EXPECT_GE(dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO), 0);
        Narrow narrow(resource, least);
        Info hints = new_hints();
        hints->caps = FI_TAGGED | FI_MSG | FI_RMA;
        hints->domain_attr->mr_mode = 0;
        fi_info* info = nullptr;
        // libfabric answers -FI_ENODATA, whatever the provider has said
        narrow.must("fi_getinfo", [&] {
            const int ret = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &info);
            return ret == -FI_ENODATA ? -FI_EMFILE : ret;
        });
        Life life;
        open_all(narrow, info, life);
        use(narrow, life);
        close_all(narrow, life);
        fi_freeinfo(info);
        dprintf(errors, "\nfailures: %u\n", narrow.failures()); // behind what the library has said
    });
    ASSERT_TRUE(exits[0].success()) << "a limit of " << least << ": " << exits[0].errors;
    const std::size_t at = exits[0].errors.rfind("failures: ");
    ASSERT_NE(at, std::string::npos) << exits[0].errors;
    ASSERT_EQ(std::sscanf(exits[0].errors.c_str() + at, "failures: %u", &failures), 1) << exits[0].errors;
}

TEST(Descriptors, EachCallWithEachSmallNumberOfThemSucceedsOrSaysWhatIsMissing)
{
    unsigned refused = 0;
    unsigned failures = 1;
    for (unsigned spare = 0; spare < 32 && failures != 0; spare++) {
        ASSERT_NO_FATAL_FAILURE(live(RLIMIT_NOFILE, spare, failures));
        refused += failures != 0;
    }
    EXPECT_EQ(failures, 0u);
    EXPECT_GT(refused, 4u);
}

// What makes a file too large ends the process by a signal (SIGXFSZ), unless the limit is looked at before.
TEST(FileSizes, EachCallWithALimitOnThemSucceedsOrSaysWhatIsMissing)
{
    unsigned failures = 0;
    for (const unsigned bytes : {0u, 4096u, 1u << 20}) {
        ASSERT_NO_FATAL_FAILURE(live(RLIMIT_FSIZE, bytes, failures));
        EXPECT_GE(failures, 3u) << "the library, a shared vector, a receive area";
    }
}

} // namespace
