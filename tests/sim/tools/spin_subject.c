// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A program that never yields: each process spins on its own memory until its neighbour has put a number there, and
// calls nothing meanwhile. usage: spin_subject ROUNDS; a round goes once through all processes. Run by
// tests/sim/tools/oversubscribed.sh.
#include "tofu_sim/examples/group.h"

#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t word __attribute__((aligned(256)));

int main(int argc, char** argv)
{
    struct group group;
    group_begin(&group, 2);
    const uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    utofu_vcq_hdl_t vcq;
    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    must(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, (void*)&word, sizeof word, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);

    const uint64_t* next = all[(group.rank + 1) % group.size];
    for (uint64_t round = 1; round <= rounds; round++) {
        const uint64_t awaited = group.rank == 0 ? round - 1 : round;
        while (word != awaited) {
        }
        must_post(vcq, utofu_put_piggyback8(vcq, next[0], round, next[1], sizeof word, 0, 0, NULL),
                  "utofu_put_piggyback8");
        make_room(vcq, 1);
    }
    group_barrier(&group);
    if (group.rank == 0) {
        require(word == rounds, "the last word is not that of the last round");
        printf("%llu rounds\n", (unsigned long long)rounds);
    }
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
