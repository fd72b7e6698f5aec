// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What every example needs: the rank of this process, the VCQs of the others, and an exchange of values.
#include "group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { component = 7, board_stag = 0, scratch_stag = 1 };

/* One cache line of Tofu, so that it is read as a whole. `meeting` is written last. */
struct record {
    uint64_t words[GROUP_WORDS];
    uint64_t meeting;
};

/* Two records in turn: a process that writes the one of barrier m + 2 knows that all have left barrier m. The last word
 * counts the processes that are ready to leave. */
static struct {
    struct record record[2];
    uint64_t leaving;
} board __attribute__((aligned(256)));
static struct record scratch __attribute__((aligned(256)));

void require(int condition, const char* what)
{
    if (!condition) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

void must(int code, const char* what)
{
    if (code != UTOFU_SUCCESS) {
        fprintf(stderr, "%s: uTofu error %d\n", what, code);
        exit(1);
    }
}

void be_patient(unsigned long polls)
{
    static time_t end;
    if (polls % 256 != 255)
        return;
    if (polls == 255)
        end = time(NULL) + 30;
    require(time(NULL) < end, "timed out after 30 seconds");
    sched_yield();
}

void make_room(utofu_vcq_hdl_t vcq, unsigned long polls)
{
    void* cbdata;
    int rc;
    while ((rc = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_SUCCESS) {
    }
    require(rc == UTOFU_ERR_NOT_FOUND, "an operation failed before it was sent");
    be_patient(polls);
}

void* wait_tcq(utofu_vcq_hdl_t vcq)
{
    void* cbdata = NULL;
    int rc;
    for (unsigned long polls = 0; (rc = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_ERR_NOT_FOUND; polls++)
        be_patient(polls);
    must(rc, "utofu_poll_tcq");
    return cbdata;
}

struct utofu_mrq_notice wait_mrq(utofu_vcq_hdl_t vcq)
{
    struct utofu_mrq_notice notice;
    void* cbdata;
    int rc;
    for (unsigned long polls = 0; (rc = utofu_poll_mrq(vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND; polls++)
        be_patient(polls);
    must(rc, "utofu_poll_mrq");
    /* TCQ notices are not needed here, but unread ones take room (guide 3.7). */
    while ((rc = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_SUCCESS) {
    }
    require(rc == UTOFU_ERR_NOT_FOUND, "an instruction failed");
    return notice;
}

static int number(const char* one, const char* other, int otherwise)
{
    const char* text = getenv(one) != NULL ? getenv(one) : getenv(other);
    return text != NULL ? atoi(text) : otherwise;
}

void group_begin(struct group* group, int least)
{
    memset(group, 0, sizeof *group);
    group->rank = number("TOFU_SIM_RANK", "OMPI_COMM_WORLD_RANK", 0);
    group->size = number("TOFU_SIM_SIZE", "OMPI_COMM_WORLD_SIZE", 1);
    require(group->size >= least && group->size <= GROUP_MAX,
            "start by: tofu-sim run -n N PROGRAM, where N is at most 12, and at least 2 for most examples");
    must(utofu_create_vcq_with_cmp_id(0, component, 0, &group->vcq), "utofu_create_vcq_with_cmp_id");
    utofu_stadd_t stadd;
    must(utofu_reg_mem_with_stag(group->vcq, &board, 256, board_stag, 0, &stadd), "utofu_reg_mem_with_stag");
    must(utofu_reg_mem_with_stag(group->vcq, &scratch, 256, scratch_stag, 0, &stadd), "utofu_reg_mem_with_stag");
    /* Each process is alone on a node, so the others have the same CQ of the TNI. */
    utofu_vcq_id_t id;
    uint8_t coords[6];
    utofu_tni_id_t tni;
    utofu_cq_id_t cq;
    uint16_t extra;
    must(utofu_query_vcq_id(group->vcq, &id), "utofu_query_vcq_id");
    must(utofu_query_vcq_info(id, coords, &tni, &cq, &extra), "utofu_query_vcq_info");
    for (int r = 0; r < group->size; r++) {
        uint8_t peer[6] = {0, 0, 0, (uint8_t)(r / 6), (uint8_t)(r / 2 % 3), (uint8_t)(r % 2)};
        require(r != group->rank || memcmp(peer, coords, sizeof peer) == 0,
                "start one process on a node of the first unit, without --ppn");
        must(utofu_construct_vcq_id(peer, tni, cq, component, &group->peers[r]), "utofu_construct_vcq_id");
        must(utofu_set_vcq_id_path(&group->peers[r], NULL), "utofu_set_vcq_id_path");
    }
}

static utofu_stadd_t stadd_of(const struct group* group, int rank, unsigned stag, size_t offset)
{
    utofu_stadd_t stadd;
    must(utofu_query_stadd(group->peers[rank], stag, &stadd), "utofu_query_stadd");
    return stadd + offset;
}

/* Reads the peer's record, once; 0 if that failed: it has not come yet. */
static int look(const struct group* group, int rank, size_t which)
{
    struct utofu_mrq_notice notice;
    void* cbdata;
    int rc = UTOFU_ERR_BUSY; /* says nothing about the peer: try again */
    for (unsigned long polls = 0; rc == UTOFU_ERR_BUSY; polls++) {
        rc = utofu_get(group->vcq, group->peers[rank], stadd_of(group, group->rank, scratch_stag, 0),
                       stadd_of(group, rank, board_stag, which * sizeof(struct record)), sizeof(struct record), 0,
                       UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL);
        if (rc == UTOFU_ERR_BUSY)
            make_room(group->vcq, polls);
    }
    if (rc != UTOFU_SUCCESS)
        return 0;
    for (unsigned long polls = 0;; polls++) {
        rc = utofu_poll_tcq(group->vcq, 0, &cbdata); /* errors, and room in the queue */
        if (rc != UTOFU_ERR_NOT_FOUND && rc != UTOFU_SUCCESS)
            return 0;
        rc = utofu_poll_mrq(group->vcq, 0, &notice);
        if (rc != UTOFU_ERR_NOT_FOUND)
            return rc == UTOFU_SUCCESS;
        be_patient(polls);
    }
}

void group_exchange(struct group* group, const uint64_t* mine, int words, uint64_t all[GROUP_MAX][GROUP_WORDS])
{
    const uint64_t meeting = ++group->meetings;
    struct record* own = &board.record[meeting % 2];
    if (words != 0)
        memcpy(own->words, mine, (size_t)words * sizeof *mine);
    __atomic_store_n(&own->meeting, meeting, __ATOMIC_RELEASE);
    for (int r = 0; r < group->size; r++) {
        for (unsigned long tries = 0; !look(group, r, meeting % 2) || scratch.meeting != meeting; tries++)
            be_patient(tries * 64 + 63); /* a look takes longer than a poll */
        if (all != NULL) {
            /* One get may read the words before the mark: those of a get that began behind the mark are there. */
            require(look(group, r, meeting % 2), "a process has left a barrier");
            memcpy(all[r], scratch.words, sizeof scratch.words);
        }
    }
}

void group_barrier(struct group* group)
{
    group_exchange(group, NULL, 0, NULL);
}

void group_end(struct group* group)
{
    group_barrier(group);
    /* The others may still be looking at our record: all report to process 0, which leaves last. */
    if (group->rank != 0) {
        must_post(group->vcq,
                  utofu_armw8(group->vcq, group->peers[0], UTOFU_ARMW_OP_ADD, 1,
                              stadd_of(group, 0, board_stag, sizeof board.record), 0,
                              UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
                  "utofu_armw8");
        (void)wait_mrq(group->vcq);
        for (unsigned long tries = 0; look(group, 0, 0) && scratch.meeting != UINT64_MAX; tries++)
            be_patient(tries * 64 + 63);
    } else {
        const uint64_t others = (uint64_t)group->size - 1;
        for (unsigned long polls = 0; __atomic_load_n(&board.leaving, __ATOMIC_ACQUIRE) != others; polls++)
            be_patient(polls);
        __atomic_store_n(&board.record[0].meeting, UINT64_MAX, __ATOMIC_RELEASE);
    }
    must(utofu_free_vcq(group->vcq), "utofu_free_vcq");
}
