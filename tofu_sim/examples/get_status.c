// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: Get: looking at the others without their help (guide 2.2.4). Run by tests/sim/tools/examples.sh.
//
// Each process computes and keeps its progress in a word of registered memory; process 0 reads the words of the others
// until all are done. They never call a communication function while they compute. EDATA distinguishes the answers.
#include "group.h"

#include <stdio.h>

enum { steps = 2000 };

static uint64_t progress;
static uint64_t seen[GROUP_MAX];

static uint64_t compute(void)
{
    volatile uint64_t sum = 0;
    for (uint64_t step = 1; step <= steps; step++) {
        for (uint64_t i = 0; i < 500; i++)
            sum = sum + step;
        __atomic_store_n(&progress, step, __ATOMIC_RELEASE);
    }
    return sum;
}

int main(void)
{
    struct group group;
    group_begin(&group, 2);

    utofu_vcq_hdl_t vcq;
    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    utofu_stadd_t seen_stadd;
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, &progress, sizeof progress, 0, &mine[1]), "utofu_reg_mem");
    must(utofu_reg_mem(vcq, seen, sizeof seen, 0, &seen_stadd), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);

    if (group.rank != 0) {
        require(compute() == (uint64_t)steps * (steps + 1) / 2 * 500, "computed wrongly");
    } else {
        unsigned long looks = 0;
        for (int done = 0; done != group.size - 1; looks++) {
            for (int r = 1; r < group.size; r++) {
                must_post(vcq,
                          utofu_get(vcq, all[r][0], seen_stadd + (size_t)r * 8, all[r][1], 8, (uint64_t)r,
                                    UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
                          "utofu_get");
            }
            done = 0;
            for (int answers = 1; answers < group.size; answers++) {
                const uint64_t before = looks == 0 ? 0 : seen[0];
                const struct utofu_mrq_notice notice = wait_mrq(vcq);
                require(notice.notice_type == UTOFU_MRQ_TYPE_LCL_GET, "the notice is not that of a Get");
                require(notice.edata > 0 && notice.edata < (uint64_t)group.size, "nobody's answer");
                require(before == seen[0] && seen[notice.edata] <= steps, "read a value that no process wrote");
                done += seen[notice.edata] == steps;
            }
            be_patient(looks);
        }
        printf("%d processes are done, seen in %lu polls\n", group.size - 1, looks);
    }
    group_barrier(&group);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
