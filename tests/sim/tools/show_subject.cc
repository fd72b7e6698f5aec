// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A small uTofu program for tests of tofu-sim: makes three VCQs, puts to itself, then waits for a line. Run by
// tests/sim/tools/show.sh, under tofu-sim run.
//
// Prints "ready", then waits until its standard input ends, and frees nothing: an exit must do. Of two, one waits
// (be-reached), and the other, after a line, puts to it, gets from it and sends it barrier packets by a path with a
// corner (reach).
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <unistd.h>
#include <utofu.h>

namespace {

constexpr int puts = 5;
constexpr size_t bytes = 64;
uint8_t memory[2 * bytes];

bool put_to_oneself(utofu_vcq_hdl_t vcq)
{
    utofu_vcq_id_t id = 0;
    utofu_stadd_t stadd = 0;
    if (utofu_query_vcq_id(vcq, &id) != UTOFU_SUCCESS ||
        utofu_reg_mem(vcq, memory, sizeof memory, 0, &stadd) != UTOFU_SUCCESS)
        return false;
    for (int i = 0; i < puts; i++) {
        // All remote notices but one stay unread: they are what `show` counts.
        if (utofu_put(vcq, id, stadd, stadd + bytes, bytes, 1, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr) !=
            UTOFU_SUCCESS)
            return false;
    }
    size_t unread = 0;
    while (utofu_query_num_unread_mrq(vcq, &unread) == UTOFU_SUCCESS && unread < puts) {
    }
    utofu_mrq_notice notice;
    while (unread == puts && utofu_poll_mrq(vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND) {
    }
    return utofu_query_num_unread_mrq(vcq, &unread) == UTOFU_SUCCESS && unread == puts - 1;
}

bool told_to_go_on()
{
    char byte = 0;
    return ::read(STDIN_FILENO, &byte, 1) > 0;
}

// To the process at (0,1,0,0,0,0) by (0,2,0): B-, Y+, B+; and to a process that does not exist.
bool reach()
{
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_id_t id = 0;
    utofu_vcq_id_t nobody = 0;
    utofu_stadd_t here = 0;
    utofu_stadd_t there = 0;
    uint8_t coords[6] = {0, 1, 0, 0, 0, 0};
    uint8_t path[3] = {0, 2, 0};
    if (utofu_create_vcq(4, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq) != UTOFU_SUCCESS ||
        utofu_reg_mem(vcq, memory, sizeof memory, 0, &here) != UTOFU_SUCCESS ||
        utofu_construct_vcq_id(coords, 0, 0, 6, &nobody) != UTOFU_SUCCESS ||
        utofu_construct_vcq_id(coords, 0, 0, 7, &id) != UTOFU_SUCCESS ||
        utofu_set_vcq_id_path(&id, path) != UTOFU_SUCCESS || utofu_query_stadd(id, 3, &there) != UTOFU_SUCCESS)
        return false;
    constexpr unsigned long notice = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    utofu_mrq_notice arrived;
    const auto end_of = [&](int rc) {
        int end = rc == UTOFU_SUCCESS ? UTOFU_ERR_NOT_FOUND : rc;
        while (end == UTOFU_ERR_NOT_FOUND)
            end = utofu_poll_mrq(vcq, 0, &arrived);
        return end;
    };
    return end_of(utofu_put(vcq, nobody, here, there, 12, 0, notice, nullptr)) == UTOFU_ERR_MRQ_PEER &&
           end_of(utofu_put(vcq, id, here, there, 100, 0, notice, nullptr)) == UTOFU_SUCCESS &&
           end_of(utofu_get(vcq, id, here, there, 30, 0, notice, nullptr)) == UTOFU_SUCCESS;
}

// A barrier gate that waits for no input and sends a packet a round to the process at (0,1,0,0,0,0): rounds of them,
// over path coordinates or, by null, the shortest way.
bool send_packets(int rounds, utofu_vbg_id_t gate, const uint8_t* path)
{
    utofu_vbg_setting setting = {gate,
                                 UTOFU_VBG_ID_NULL,
                                 UTOFU_VBG_ID_NULL,
                                 UTOFU_VBG_ID_NULL,
                                 gate ^ (utofu_vbg_id_t{1} << 40),
                                 {UTOFU_PATH_COORD_NULL, 0, 0}}; // Y is 1 there
    if (path != nullptr)
        std::memcpy(setting.dst_path_coords, path, 3);
    if (utofu_set_vbg(&setting, 1) != UTOFU_SUCCESS)
        return false;
    for (int i = 0; i < rounds; i++)
        if (utofu_barrier(gate, 0) != UTOFU_SUCCESS || utofu_poll_barrier(gate, 0) != UTOFU_SUCCESS)
            return false;
    return true;
}

// Three by (0,2,0), four the shortest way, and one of a gate that is freed.
bool send_all_packets()
{
    const uint8_t path[3] = {0, 2, 0};
    utofu_vbg_id_t gate = 0;
    return utofu_alloc_vbg(1, 1, 0, &gate) == UTOFU_SUCCESS && send_packets(3, gate, path) &&
           send_packets(4, gate, nullptr) && utofu_alloc_vbg(5, 1, 0, &gate) == UTOFU_SUCCESS &&
           send_packets(1, gate, path) && utofu_free_vbg(&gate, 1) == UTOFU_SUCCESS;
}

// A VCQ of a known place with memory of a known name.
bool be_reached()
{
    alignas(256) static uint8_t target[256];
    utofu_vcq_hdl_t vcq = 0;
    utofu_stadd_t stadd = 0;
    return utofu_create_vcq_with_cmp_id(0, 7, 0, &vcq) == UTOFU_SUCCESS &&
           utofu_reg_mem_with_stag(vcq, target, sizeof target, 3, 0, &stadd) == UTOFU_SUCCESS;
}

bool make_vcqs()
{
    utofu_vcq_hdl_t first = 0;
    utofu_vcq_hdl_t second = 0;
    utofu_vcq_hdl_t session = 0;
    return utofu_create_vcq(2, 0, &first) == UTOFU_SUCCESS &&
           utofu_create_vcq(2, UTOFU_VCQ_FLAG_SESSION_MODE, &session) == UTOFU_SUCCESS &&
           utofu_create_vcq_with_cmp_id(3, 5, 0, &second) == UTOFU_SUCCESS && put_to_oneself(first);
}

} // namespace

int main(int argc, char** argv)
{
    const bool reaches = argc > 1 && std::strcmp(argv[1], "reach") == 0;
    const bool is_reached = argc > 1 && !reaches;
    const bool good = reaches      ? told_to_go_on() && reach() && send_all_packets()
                      : is_reached ? be_reached()
                                   : make_vcqs();
    if (!good) {
        std::fputs("show_subject: uTofu refuses\n", stderr);
        return 1;
    }
    std::puts(reaches ? "reached" : "ready");
    std::fflush(stdout);
    if (is_reached)
        ::pause(); // the input is the other's; the launcher ends us
    while (told_to_go_on()) {
    }
    return 0;
}
