// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: ARMW: a game of tickets and a lock, played in the memory of process 0 (guide 2.2.5). Run by
// tests/sim/tools/examples.sh.
//
// Each process, also process 0, draws tickets from a counter with ADD until none is left: each ticket goes to one
// player. With the tickets it updates a sum of three words that no single ARMW could change, under a lock taken with
// compare-and-swap and released with SWAP. At the end the sums must be right.
#include "group.h"

#include <stdio.h>

enum { tickets = 3000 };

static struct {
    uint64_t next;
    uint64_t lock; /* 0: free, else rank + 1 */
    uint64_t count, sum, squares;
} table __attribute__((aligned(256)));
static struct {
    uint64_t count, sum, squares;
} hand __attribute__((aligned(256)));

static utofu_vcq_hdl_t vcq;
static utofu_vcq_id_t owner;
static utofu_stadd_t stadd_of_table, stadd_of_hand;

/* The old value, which comes with the local notice. */
static uint64_t old_value(void)
{
    const struct utofu_mrq_notice notice = wait_mrq(vcq);
    require(notice.notice_type == UTOFU_MRQ_TYPE_LCL_ARMW, "the notice is not that of an ARMW");
    return notice.rmt_value;
}

static uint64_t draw(void)
{
    must_post(
        vcq,
        utofu_armw8(vcq, owner, UTOFU_ARMW_OP_ADD, 1, stadd_of_table, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
        "utofu_armw8");
    return old_value();
}

static void lock(uint64_t me)
{
    for (unsigned long tries = 0;; tries++) {
        must_post(vcq,
                  utofu_cswap8(vcq, owner, 0, me, stadd_of_table + 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
                  "utofu_cswap8");
        if (old_value() == 0)
            return;
        be_patient(tries);
    }
}

static void unlock(uint64_t me)
{
    must_post(vcq,
              utofu_armw8(vcq, owner, UTOFU_ARMW_OP_SWAP, 0, stadd_of_table + 8, 0,
                          UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
              "utofu_armw8");
    require(old_value() == me, "another process held the lock");
}

/* Moves the sums to our hand, or back; waits until it is done. */
static void move(int fetch)
{
    const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE;
    if (fetch)
        must_post(vcq, utofu_get(vcq, owner, stadd_of_hand, stadd_of_table + 16, 24, 0, flags, NULL), "utofu_get");
    else
        must_post(vcq, utofu_put(vcq, owner, stadd_of_hand, stadd_of_table + 16, 24, 0, flags, NULL), "utofu_put");
    (void)wait_mrq(vcq);
}

int main(void)
{
    struct group group;
    group_begin(&group, 1);

    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, &table, sizeof table, 0, &mine[1]), "utofu_reg_mem");
    must(utofu_reg_mem(vcq, &hand, sizeof hand, 0, &stadd_of_hand), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    owner = all[0][0];
    stadd_of_table = all[0][1];

    const uint64_t me = (uint64_t)group.rank + 1;
    uint64_t drawn = 0, sum = 0, squares = 0;
    for (uint64_t ticket; (ticket = draw()) < tickets; drawn++) {
        sum += ticket;
        squares += ticket * ticket;
    }
    lock(me);
    move(1);
    hand.count += drawn;
    hand.sum += sum;
    hand.squares += squares;
    move(0);
    unlock(me);
    group_barrier(&group);

    if (group.rank == 0) {
        const uint64_t n = tickets - 1;
        require(table.count == tickets, "a ticket was drawn twice or not at all");
        require(table.sum == n * (n + 1) / 2, "the sum is wrong");
        require(table.squares == n * (n + 1) * (2 * n + 1) / 6, "the sum of squares is wrong");
        printf("%d tickets drawn by %d processes, each once\n", tickets, group.size);
    }
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
