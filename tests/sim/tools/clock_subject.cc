// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A uTofu ping-pong that knows nothing of virtual time: it measures by clock_gettime and gettimeofday. Run by
// tests/sim/tools/clock.sh, under tofu-sim run.
//
// usage: clock_subject BYTES. Each two ranks, 2n and 2n + 1, play; rank 0 prints the time of one way: in nanoseconds,
// and by gettimeofday, which has microseconds, in tenths of one.
// clock_subject BYTES RANKS: all others send to rank 0 at once, 8 messages each; it says when they are there and stays
// until its input ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sched.h>
#include <sys/time.h>
#include <utofu.h>

namespace {

constexpr unsigned rounds = 200;
constexpr unsigned volley = 8;
constexpr size_t most = 1 << 20;
constexpr unsigned component = 3;
constexpr unsigned stag = 7;
alignas(256) unsigned char memory[2 * most];

double monotonic_ns()
{
    timespec now{};
    (void)::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double day_ns()
{
    timeval now{};
    (void)::gettimeofday(&now, nullptr);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_usec) * 1e3;
}

bool wait(utofu_vcq_hdl_t vcq, int type)
{
    for (;;) {
        utofu_mrq_notice notice;
        const int rc = utofu_poll_mrq(vcq, 0, &notice);
        if (rc != UTOFU_ERR_NOT_FOUND)
            return rc == UTOFU_SUCCESS && notice.notice_type == type;
        (void)::sched_yield(); // ranks may be more than cores
    }
}

// The peer is there when an ARMW to it succeeds.
bool find_peer(utofu_vcq_hdl_t vcq, utofu_vcq_id_t peer, utofu_stadd_t stadd)
{
    for (unsigned attempt = 0; attempt < 20'000; attempt++) {
        if (utofu_armw8(vcq, peer, UTOFU_ARMW_OP_OR, 0, stadd + 2 * most - 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
                        nullptr) == UTOFU_SUCCESS &&
            wait(vcq, UTOFU_MRQ_TYPE_LCL_ARMW))
            return true;
        const timespec pause{0, 1'000'000};
        (void)::nanosleep(&pause, nullptr);
    }
    return false;
}

int take_all(utofu_vcq_hdl_t vcq, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!wait(vcq, UTOFU_MRQ_TYPE_RMT_PUT))
            return 3;
    std::puts("there");
    (void)std::fflush(stdout);
    (void)std::getchar();
    return 0;
}

template <typename Put>
int send_all(utofu_vcq_hdl_t vcq, const Put& put)
{
    bool good = true;
    for (unsigned i = 0; i < volley; i++)
        good = good && put(UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE);
    for (unsigned i = 0; i < volley; i++)
        good = good && wait(vcq, UTOFU_MRQ_TYPE_LCL_PUT);
    return good ? 0 : 3;
}

} // namespace

int main(int argc, char** argv)
{
    const size_t bytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 8;
    const unsigned rank = static_cast<unsigned>(std::atoi(std::getenv("TOFU_SIM_RANK")));
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t peer = 0;
    utofu_stadd_t stadd = 0;
    uint8_t coords[6];
    if (bytes > most || utofu_create_vcq_with_cmp_id(0, component, 0, &vcq) != UTOFU_SUCCESS ||
        utofu_reg_mem_with_stag(vcq, memory, sizeof memory, stag, 0, &stadd) != UTOFU_SUCCESS ||
        utofu_query_my_coords(coords) != UTOFU_SUCCESS)
        return 1;
    const unsigned ranks = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    if (ranks != 0 && rank == 0)
        return take_all(vcq, (ranks - 1) * volley);
    coords[5] ^= 1; // nodes of 2n and 2n + 1
    if (ranks != 0)
        std::memset(coords, 0, sizeof coords);
    if (utofu_construct_vcq_id(coords, 0, 0, component, &peer) != UTOFU_SUCCESS || !find_peer(vcq, peer, stadd))
        return 2;
    const auto put = [&](unsigned long flags = UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) {
        return utofu_put(vcq, peer, stadd + most, stadd, bytes, 0, flags, nullptr) == UTOFU_SUCCESS;
    };
    if (ranks != 0)
        return send_all(vcq, put);
    double begin = 0, begin_day = 0;
    for (unsigned round = 0; round <= rounds; round++) {
        if (round == 1) { // the first brings the clocks together
            begin = monotonic_ns();
            begin_day = day_ns();
        }
        const bool good =
            rank % 2 == 0 ? put() && wait(vcq, UTOFU_MRQ_TYPE_RMT_PUT) : wait(vcq, UTOFU_MRQ_TYPE_RMT_PUT) && put();
        if (!good)
            return 3;
    }
    if (rank == 0)
        std::printf("%.0f %.0f\n", (monotonic_ns() - begin) / rounds / 2, (day_ns() - begin_day) / rounds / 2 / 100);
    return 0;
}
