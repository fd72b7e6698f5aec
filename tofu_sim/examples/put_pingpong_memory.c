// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: Put, and a receiver that watches its memory instead of a queue (guide 2.2.10, 6.1.3.1). Run by
// tests/sim/tools/examples.sh.
//
// The fastest way to learn that data has come is to look at it. Cache lines (256 bytes) of one put may arrive in any
// order; the strong order flag makes the last line come last, so the last byte of the message is the mark: the rest is
// there when it is. The receiving buffer is aligned, and sender and receiver use each other's answers as permission to
// go on.
#include "group.h"

#include <stdio.h>
#include <string.h>

enum { rounds = 1000, length = 1024 };

static unsigned char out[length] __attribute__((aligned(1024)));
static unsigned char in[length] __attribute__((aligned(1024)));

int main(void)
{
    struct group group;
    group_begin(&group, 2);

    utofu_vcq_hdl_t vcq;
    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    utofu_stadd_t out_stadd;
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, in, sizeof in, 0, &mine[1]), "utofu_reg_mem");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &out_stadd), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);

    if (group.rank < 2) {
        const uint64_t* peer = all[1 - group.rank];
        volatile unsigned char* mark = &in[length - 1];
        for (int round = 0; round < 2 * rounds; round++) {
            const unsigned char value = (unsigned char)(1 + round % 255);
            if (round % 2 == group.rank) {
                memset(out, value, sizeof out);
                must_post(vcq,
                          utofu_put(vcq, peer[0], out_stadd, peer[1], sizeof out, 0,
                                    UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_STRONG_ORDER, NULL),
                          "utofu_put");
                (void)wait_tcq(vcq);
            } else {
                for (unsigned long polls = 0; *mark != value; polls++)
                    be_patient(polls);
                __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the mark first, then the rest */
                for (int i = 0; i < length; i++)
                    require(in[i] == value, "the flag arrived before the data");
            }
        }
    }
    if (group.rank == 0)
        printf("%d messages of %d bytes seen in memory, each complete\n", rounds, length);
    group_barrier(&group);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
