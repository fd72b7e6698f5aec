// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: Put, and notices in the MRQ that report the arrival of the data (guide 2.2.3, 2.2.10). Run by
// tests/sim/tools/examples.sh.
//
// Processes 0 and 1 throw a message to and fro. The sender asks for two notices: TCQ (its buffer may be changed
// again) and, at the receiver, MRQ (the data is in memory). EDATA carries the number of the round.
#include "group.h"

#include <stdio.h>
#include <string.h>

enum { rounds = 1000, length = 1500 };

static unsigned char out[length];
static unsigned char in[length];

static void fill(int round)
{
    memset(out, round & 0xff, sizeof out);
    out[length - 1] = (unsigned char)(round >> 8);
}

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
        for (int round = 0; round < 2 * rounds; round++) {
            if (round % 2 == group.rank) {
                fill(round);
                must_post(vcq,
                          utofu_put(vcq, peer[0], out_stadd, peer[1], sizeof out, round & 0xff,
                                    UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, out),
                          "utofu_put");
                require(wait_tcq(vcq) == out, "the TCQ returned another pointer");
            } else {
                const struct utofu_mrq_notice notice = wait_mrq(vcq);
                require(notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT,
                        "the notice is not that of a Put to this process");
                require(notice.edata == (uint64_t)(round & 0xff), "the notice of another round");
                fill(round);
                require(memcmp(in, out, sizeof in) == 0, "the data is not what was sent");
            }
        }
    }
    if (group.rank == 0)
        printf("%d messages of %d bytes in each direction, all with correct data\n", rounds, length);
    group_barrier(&group);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
