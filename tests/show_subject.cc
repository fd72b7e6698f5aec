// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A small uTofu program for tests of tofu-sim: makes two VCQs, puts to itself, then waits to be
// told. Called by: tests/show_test.sh, under tofu-sim run. Calls: utofu_*.
//
// Prints "ready", then waits until its standard input ends, and frees nothing: an exit must do.
#include <cstdint>
#include <cstdio>
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
        utofu_reg_mem(vcq, memory, sizeof memory, 0, &stadd) != UTOFU_SUCCESS) {
        return false;
    }
    for (int i = 0; i < puts; i++) {
        // The remote notices stay unread: they are what `show` counts.
        if (utofu_put(vcq, id, stadd, stadd + bytes, bytes, 1,
                      UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, nullptr) != UTOFU_SUCCESS) {
            return false;
        }
    }
    size_t unread = 0;
    while (utofu_query_num_unread_mrq(vcq, &unread) == UTOFU_SUCCESS && unread < puts) {
    }
    return unread == puts;
}

} // namespace

int main()
{
    utofu_vcq_hdl_t first = 0;
    utofu_vcq_hdl_t second = 0;
    if (utofu_create_vcq(2, 0, &first) != UTOFU_SUCCESS ||
        utofu_create_vcq_with_cmp_id(3, 5, 0, &second) != UTOFU_SUCCESS || !put_to_oneself(first)) {
        std::fputs("show_subject: uTofu refuses\n", stderr);
        return 1;
    }
    std::puts("ready");
    std::fflush(stdout);
    char byte = 0;
    while (::read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
