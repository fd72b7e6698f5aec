// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a trace costs: the same calls in a process that is recorded and in one that is not. Run by bench/run and by
// hand.
//
// One process that posts to itself. Prints lines for bench/report: the call by itself and what recording adds to it,
// the best of many rounds, since everything else on the machine only makes it slower.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utofu.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned rounds = 400, calls = 64;

void check(int rc, const char* what)
{
    if (rc != UTOFU_SUCCESS) {
        std::fprintf(stderr, "trace bench: %s: %d\n", what, rc);
        std::_Exit(1);
    }
}

struct Figures {
    double post = 1e9;  // a put of 8 bytes with a notice
    double found = 1e9; // a poll that finds it
    double vain = 1e9;  // a poll that finds nothing
};

template <typename Call>
double once(Call&& call)
{
    const auto began = Clock::now();
    for (unsigned i = 0; i < calls; i++)
        call();
    return std::chrono::duration<double, std::nano>(Clock::now() - began).count() / calls;
}

Figures measure()
{
    utofu_vcq_hdl_t vcq{};
    utofu_vcq_id_t id{};
    utofu_stadd_t stadd{};
    alignas(8) static uint64_t memory[8];
    check(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    check(utofu_query_vcq_id(vcq, &id), "utofu_query_vcq_id");
    check(utofu_reg_mem(vcq, memory, sizeof memory, 0, &stadd), "utofu_reg_mem");
    Figures best;
    for (unsigned round = 0; round < rounds; round++) {
        best.post = std::min(
            best.post, once([&] {
                check(utofu_put_piggyback8(vcq, id, 7, stadd, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, nullptr),
                      "put");
            }));
        best.found = std::min(best.found, once([&] {
                                  utofu_mrq_notice notice;
                                  check(utofu_poll_mrq(vcq, 0, &notice), "poll");
                              }));
        void* cbdata = nullptr;
        if (utofu_poll_tcq(vcq, 0, &cbdata) != UTOFU_ERR_NOT_FOUND) // makes room in the TOQ
            std::_Exit(1);
        best.vain = std::min(best.vain, once([&] {
                                 utofu_mrq_notice notice;
                                 if (utofu_poll_mrq(vcq, 0, &notice) != UTOFU_ERR_NOT_FOUND)
                                     std::_Exit(1);
                             }));
    }
    return best;
}

// In a process of its own, since a trace begins when it joins its job.
Figures in_child(const char* trace)
{
    int ends[2];
    Figures figures;
    if (::pipe(ends) != 0)
        std::exit(1);
    const pid_t child = ::fork();
    if (child == 0) {
        if (trace != nullptr)
            ::setenv("TOFU_SIM_TRACE", trace, 1);
        else
            ::unsetenv("TOFU_SIM_TRACE");
        figures = measure();
        std::exit(::write(ends[1], &figures, sizeof figures) == ssize_t{sizeof figures} ? 0 : 1);
    }
    ::close(ends[1]);
    const bool read = child > 0 && ::read(ends[0], &figures, sizeof figures) == ssize_t{sizeof figures};
    int status = 0;
    if (!read || ::waitpid(child, &status, 0) != child || status != 0) {
        std::fprintf(stderr, "trace bench: the child failed\n");
        std::exit(1);
    }
    ::close(ends[0]);
    return figures;
}

void print(const char* name, double plain, double traced)
{
    std::printf("Trace\t%s\t8\t1\tns\tutofu\t%.5g\n", name, plain);
    std::printf("Trace\t%s, recorded\t8\t1\tns\tutofu\t%.5g\n", name, std::max(traced - plain, 0.0));
}

} // namespace

int main()
{
    char directory[] = "/tmp/tofu-trace-bench-XXXXXX";
    if (::mkdtemp(directory) == nullptr)
        return 1;
    const std::string pattern = std::string(directory) + "/x";
    const Figures plain = in_child(nullptr);
    const Figures traced = in_child(pattern.c_str());
    (void)::unlink((pattern + ".0").c_str());
    (void)::rmdir(directory);
    print("put with a notice", plain.post, traced.post);
    print("poll that finds it", plain.found, traced.found);
    print("poll that finds nothing", plain.vain, traced.vain);
    return 0;
}
