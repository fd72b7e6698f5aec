/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A planted error of order for tests/sim/tools/exact.sh: process 0 puts data and then a flag, process 1 sees the flag
 * and takes the data for complete. Without an argument the flag lacks strong order, so that the guide promises nothing
 * (2.2.10); with "strong" it has it. Each round is a line of data. A second argument makes another thread use uTofu.
 */
#include "group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { rounds = 8, words = 32 };

static struct {
    uint64_t data[rounds][words];
    uint64_t flag;
} in __attribute__((aligned(256))), out __attribute__((aligned(256)));

static utofu_vcq_hdl_t vcq;

static void* other_thread(void* registered)
{
    void* cbdata;
    utofu_vcq_hdl_t another;
    utofu_stadd_t stadd = *(utofu_stadd_t*)registered;
    const int refused = utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_ERR_NOT_AVAILABLE &&
                        utofu_reg_mem(vcq, &out, sizeof out, 0, &stadd) == UTOFU_ERR_NOT_AVAILABLE &&
                        utofu_dereg_mem(vcq, *(utofu_stadd_t*)registered, 0) == UTOFU_ERR_NOT_AVAILABLE &&
                        utofu_create_vcq(2, 0, &another) == UTOFU_ERR_NOT_AVAILABLE &&
                        utofu_free_vcq(vcq) == UTOFU_ERR_NOT_AVAILABLE;
    return refused ? &vcq : NULL;
}

int main(int argc, char** argv)
{
    struct group group;
    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    utofu_stadd_t out_stadd;
    group_begin(&group, 2);
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, &in, sizeof in, 0, &mine[1]), "utofu_reg_mem");
    must(utofu_reg_mem(vcq, &out, sizeof out, 0, &out_stadd), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    const unsigned long order = argc > 1 && strcmp(argv[1], "strong") == 0 ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0;
    int right = 1;
    for (uint64_t round = 0; round < rounds; round++) {
        if (group.rank == 0) {
            const size_t at = (size_t)round * sizeof out.data[0];
            for (int i = 0; i < words; i++)
                out.data[round][i] = round + 1;
            must_post(vcq,
                      utofu_put(vcq, all[1][0], out_stadd + at, all[1][1] + at, sizeof out.data[0], 0, order, NULL),
                      "utofu_put");
            must_post(vcq,
                      utofu_put_piggyback8(vcq, all[1][0], round + 1, all[1][1] + sizeof in.data, 8, 0,
                                           UTOFU_ONESIDED_FLAG_TCQ_NOTICE | order, NULL),
                      "utofu_put_piggyback8");
            (void)wait_tcq(vcq);
        } else if (group.rank == 1) {
            for (unsigned long polls = 255; __atomic_load_n(&in.flag, __ATOMIC_ACQUIRE) != round + 1; polls += 256)
                be_patient(polls);
            for (int i = 0; i < words; i++)
                right = right && __atomic_load_n(&in.data[round][i], __ATOMIC_RELAXED) == round + 1;
        }
        group_barrier(&group);
    }
    if (argc > 2) {
        pthread_t thread;
        void* refused = NULL;
        require(pthread_create(&thread, NULL, other_thread, &out_stadd) == 0, "no thread");
        (void)pthread_join(thread, &refused);
        printf("%s\n", refused != NULL ? "refused" : "served");
    }
    group_barrier(&group);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    require(right, "the flag came before the data");
    return 0;
}
