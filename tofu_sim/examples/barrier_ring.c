// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: barrier gates: a circuit for any number of processes, barriers and reductions on it (guide 2.3). Run by
// tests/sim/tools/examples.sh.
//
// The circuit is a ring that is passed twice. In the first turn each process has a gate that joins what comes from
// before (a packet) with its own part (a signal of the start gate); process 0 gets everything. In the second turn the
// result is handed on (packets), and each process ends (a signal to its start/end gate).
//
//   gather:  0.start -> 1.gather -> 2.gather -> … -> 0.turn        (i.start signals i.gather)
//   spread:  0.turn -> 1.spread -> 2.spread -> … -> last.spread    (0.turn and i.spread signal the start/end gates)
#include "group.h"

#include <stdio.h>

enum { start = 0, turn = 1, gather = 1, spread = 2, gates = 3, rounds = 500 };

static int wait_reduction(utofu_vbg_id_t id, double* sum)
{
    int rc;
    for (unsigned long polls = 0; (rc = utofu_poll_reduce_double(id, 0, sum)) == UTOFU_ERR_NOT_COMPLETED; polls++)
        be_patient(polls);
    return rc;
}

static void set_up(const struct group* group, uint64_t all[GROUP_MAX][GROUP_WORDS])
{
    const int me = group->rank, before = me - 1, after = (me + 1) % group->size;
    const uint64_t* my = all[me];
    struct utofu_vbg_setting s[gates];
    for (int i = 0; i < gates; i++) {
        s[i].vbg_id = my[i];
        s[i].src_lcl_vbg_id = s[i].src_rmt_vbg_id = UTOFU_VBG_ID_NULL;
        s[i].dst_lcl_vbg_id = s[i].dst_rmt_vbg_id = UTOFU_VBG_ID_NULL;
        s[i].dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
    }
    if (me == 0) {
        s[start].dst_rmt_vbg_id = all[1][gather];
        s[turn].src_rmt_vbg_id = all[group->size - 1][gather];
        s[turn].dst_rmt_vbg_id = all[1][spread];
        s[turn].dst_lcl_vbg_id = my[start];
        s[start].src_lcl_vbg_id = my[turn];
    } else {
        s[start].dst_lcl_vbg_id = my[gather];
        s[gather].src_lcl_vbg_id = my[start];
        s[gather].src_rmt_vbg_id = all[before][before == 0 ? start : gather];
        s[gather].dst_rmt_vbg_id = after == 0 ? all[0][turn] : all[after][gather];
        s[spread].src_rmt_vbg_id = all[before][before == 0 ? turn : spread];
        s[spread].dst_rmt_vbg_id = after == 0 ? UTOFU_VBG_ID_NULL : all[after][spread];
        s[spread].dst_lcl_vbg_id = my[start];
        s[start].src_lcl_vbg_id = my[spread];
    }
    must(utofu_set_vbg(s, gates), "utofu_set_vbg");
}

int main(void)
{
    struct group group;
    group_begin(&group, 2);

    utofu_tni_id_t tni = (utofu_tni_id_t)(group.rank % 6);
    utofu_vbg_id_t my[gates];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    must(utofu_alloc_vbg(tni, gates, 0, my), "utofu_alloc_vbg");
    group_exchange(&group, my, gates, all);
    set_up(&group, all);
    group_barrier(&group); /* no barrier communication before all gates are set */

    for (int round = 0; round < rounds; round++) {
        must(utofu_barrier(my[start], 0), "utofu_barrier");
        int rc;
        for (unsigned long polls = 0; (rc = utofu_poll_barrier(my[start], 0)) == UTOFU_ERR_NOT_COMPLETED; polls++)
            be_patient(polls);
        must(rc, "utofu_poll_barrier");

        double part = round + 0.25 * group.rank, sum = 0;
        must(utofu_reduce_double(my[start], UTOFU_REDUCE_OP_BFPSUM, &part, 1, 0), "utofu_reduce_double");
        must(wait_reduction(my[start], &sum), "utofu_poll_reduce_double");
        const double n = group.size;
        require(sum == n * round + 0.25 * n * (n - 1) / 2, "the sum is wrong");
    }
    if (group.rank == 0)
        printf("%d barriers and sums of %d processes\n", rounds, group.size);
    group_barrier(&group); /* no process frees a gate that others still use */
    must(utofu_free_vbg(my, gates), "utofu_free_vbg");
    group_end(&group);
    return 0;
}
