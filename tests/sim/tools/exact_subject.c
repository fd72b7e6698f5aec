/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a process does in exact mode, for tests/sim/tools/exact.sh and replay.sh: each prints what it has seen.
 *
 * usage: exact_subject OPERATIONS [SEED]
 *                         Puts, gets and ARMWs of many sizes to all processes, itself included, by numbers from the
 *                         seed, some with addresses that are not registered. It prints a sum over the notices, their
 *                         order, when they came, and its memory at the end. It fails if a notice is missing, or if the
 *                         additions of all are not those of the counter.
 *        idle             One VCQ without traffic is polled, and the time of day is queried for nothing.
 *        leave free|exit  Puts around a ring, from which process 1 leaves early and none frees its VCQ: how many
 *                         puts found their target.
 *        queues           Three VCQs, a put that fails before it is sent, notices read in another order than posted.
 *        bind             On how many processors the calling thread, a new thread and a child run, and on which.
 *        gates            A round is polled as one of another kind.
 *        session          Two descriptors of a VCQ in session mode are sent at one time, by different processes.
 *        count            A wait for two notices without a poll.
 *        stray            A put fails, and its target ends before its poster knows: what the poster learns.
 *        stopped [STOPS]  A process is stopped so often while it computes.
 *        replaced         Process 0 replaces its program twice, process 2 leaves at once. Process 1 waits for a put of
 *                         each of the three programs.
 *        node FILE        What processes of a node divide among themselves; the larger its rank, the sooner a process
 *                         begins. Each prints which number it has taken from FILE, as by a lock, and its gate.
 */
#define _GNU_SOURCE
#include "group.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { room = 65536, places = 4 };

static struct {
    unsigned char bytes[places][room]; /* others write here */
    uint64_t counter;
    uint64_t words[7];
} in __attribute__((aligned(256)));
static unsigned char out[room] __attribute__((aligned(256)));
static unsigned char fetched[room] __attribute__((aligned(256)));

static uint64_t sum = 1;
static uint64_t state;
static uint64_t seen_of_others, seen_own, failed;

static void add(uint64_t value)
{
    sum = (sum ^ value) * 0x9e3779b97f4a7c15u + (sum >> 29);
}

static uint64_t below(uint64_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
}

static uint64_t now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Takes what is there. */
static int look(utofu_vcq_hdl_t vcq)
{
    struct utofu_mrq_notice notice;
    void* cbdata = NULL;
    const int rc = utofu_poll_mrq(vcq, 0, &notice);
    if (utofu_poll_tcq(vcq, 0, &cbdata) == UTOFU_SUCCESS)
        add((uint64_t)(uintptr_t)cbdata);
    if (rc == UTOFU_ERR_NOT_FOUND)
        return 0;
    add(now());
    add((uint64_t)notice.notice_type << 32 | notice.edata);
    add(notice.rmt_value);
    add((uint64_t)(int64_t)rc);
    failed += rc != UTOFU_SUCCESS;
    const int of_others = notice.notice_type == UTOFU_MRQ_TYPE_RMT_PUT ||
                          notice.notice_type == UTOFU_MRQ_TYPE_RMT_GET || notice.notice_type == UTOFU_MRQ_TYPE_RMT_ARMW;
    *(of_others ? &seen_of_others : &seen_own) += 1;
    return 1;
}

struct target {
    uint64_t vcq, stadd;
    uint64_t notices; /* that it will get from us */
};

/* One operation; 1 if it adds to the counter. */
static int post(utofu_vcq_hdl_t vcq, struct target* to, utofu_stadd_t out_stadd, utofu_stadd_t fetched_stadd,
                uintptr_t number)
{
    static const size_t sizes[] = {0, 1, 8, 100, 1024, 3000, 3900, 4096, 8192, 20000, 65536};
    const size_t size = sizes[below(sizeof sizes / sizeof sizes[0])];
    const uint64_t at = below(places) * room + below(room - size + 1);
    const uint64_t kind = below(8);
    const int stray = below(16) == 0; /* not registered */
    const uint64_t stadd = stray ? to->stadd + sizeof in + room : to->stadd;
    const unsigned long flags = UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE |
                                (below(2) != 0 ? UTOFU_ONESIDED_FLAG_TCQ_NOTICE : 0) |
                                (below(3) == 0 ? UTOFU_ONESIDED_FLAG_STRONG_ORDER : 0);
    void* const cbdata = (void*)number;
    uint64_t data[4] = {number, number, number, number};
    const size_t counter = sizeof in.bytes;
    out[below(room)] = (unsigned char)number;
    to->notices += !stray;
    if (kind < 4) {
        must_post(vcq, utofu_put(vcq, to->vcq, out_stadd, stadd + at, size, number % 256, flags, cbdata), "utofu_put");
    } else if (kind == 4) {
        must_post(vcq,
                  utofu_put_piggyback(vcq, to->vcq, data, stadd + at / 64 * 64, 8 * (1 + below(4)), number % 256, flags,
                                      cbdata),
                  "utofu_put_piggyback");
    } else if (kind == 5) {
        must_post(vcq, utofu_get(vcq, to->vcq, fetched_stadd, stadd + at, size, number % 256, flags, cbdata),
                  "utofu_get");
    } else {
        must_post(vcq, utofu_armw8(vcq, to->vcq, UTOFU_ARMW_OP_ADD, 1, stadd + counter, number % 256, flags, cbdata),
                  "utofu_armw8");
        return !stray;
    }
    return 0;
}

static void add_memory(const unsigned char* bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        add(bytes[i]);
}

static int idle(void)
{
    struct utofu_mrq_notice notice;
    utofu_vcq_hdl_t vcq;
    struct timeval* volatile no_time = NULL;
    struct timezone zone;
    must(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    require(gettimeofday(no_time, &zone) == 0 && gettimeofday(no_time, NULL) == 0, "gettimeofday without a time");
    for (int polls = 0; polls < 3000; polls++)
        require(utofu_poll_mrq(vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND, "a notice without a sender");
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    return 0;
}

static int leave(const char* how)
{
    enum { puts = 200 };
    struct group group;
    uint64_t mine[2], all[GROUP_MAX][GROUP_WORDS];
    utofu_vcq_hdl_t vcq;
    int reached = 0;
    group_begin(&group, 2);
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    const uint64_t* const next = all[(group.rank + 1) % group.size];
    for (int i = 0; i < puts; i++) {
        if (group.rank == 1 && i == puts / 2) {
            if (strcmp(how, "exit") == 0)
                exit(0);
            if (strcmp(how, "free") == 0)
                must(utofu_free_vcq(vcq), "utofu_free_vcq");
            return 0;
        }
        must_post(vcq, utofu_put(vcq, next[0], mine[1], next[1], 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
                  "utofu_put");
        struct utofu_mrq_notice notice;
        int rc;
        while ((rc = utofu_poll_mrq(vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
        }
        require(rc == UTOFU_SUCCESS || rc == UTOFU_ERR_MRQ_PEER, "utofu_poll_mrq");
        reached += rc == UTOFU_SUCCESS;
    }
    printf("%d: %d of %d\n", group.rank, reached, puts);
    return 0;
}

static int queues(void)
{
    enum { length = 1 << 20, gets = 50 };
    static unsigned char from[length], to[length];
    utofu_vcq_hdl_t vcqs[3];
    utofu_vcq_id_t ids[3];
    utofu_stadd_t source, stadds[3];
    void* cbdata;
    int rc;
    for (int i = 0; i < 3; i++) {
        must(utofu_create_vcq((utofu_tni_id_t)i, 0, &vcqs[i]), "utofu_create_vcq");
        must(utofu_query_vcq_id(vcqs[i], &ids[i]), "utofu_query_vcq_id");
        must(utofu_reg_mem(vcqs[i], to, length, 0, &stadds[i]), "utofu_reg_mem");
    }
    must(utofu_reg_mem(vcqs[0], from, length, 0, &source), "utofu_reg_mem");
    must_post(vcqs[0],
              utofu_put(vcqs[0], ids[1], source + length, stadds[1], 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
              "utofu_put");
    while ((rc = utofu_poll_tcq(vcqs[0], 0, &cbdata)) == UTOFU_ERR_NOT_FOUND) {
    }
    require(rc != UTOFU_SUCCESS, "a put from memory that is not registered was sent");
    must_post(vcqs[0],
              utofu_put(vcqs[0], ids[1], source, stadds[1], 8, 0,
                        UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
              "utofu_put");
    (void)wait_tcq(vcqs[0]);
    (void)wait_mrq(vcqs[0]);
    must_post(vcqs[0],
              utofu_put(vcqs[0], ids[1], source, stadds[1], length, 0, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
              "utofu_put");
    must_post(vcqs[0], utofu_put(vcqs[0], ids[2], source, stadds[2], 8, 0, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
              "utofu_put");
    (void)wait_mrq(vcqs[2]); /* long before the first one */
    for (int i = 0; i < gets; i++) {
        must_post(vcqs[0],
                  utofu_get(vcqs[0], ids[2], source, stadds[2], 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
                  "utofu_get");
        (void)wait_mrq(vcqs[0]);
    }
    (void)wait_mrq(vcqs[1]);
    return 0;
}

/* Process 1 ends between the arrival of a put to memory that it has not registered, and the time at which process 0 may
 * know of that. */
static int stray(void)
{
    struct group group;
    uint64_t mine[2], all[GROUP_MAX][GROUP_WORDS];
    utofu_vcq_hdl_t vcq;
    struct utofu_mrq_notice notice;
    int rc;
    group_begin(&group, 2);
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, out, 256, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    if (group.rank == 1) {
        (void)wait_mrq(vcq);
        must(utofu_nop(vcq, 0, NULL), "utofu_nop");
        exit(0);
    }
    must(utofu_put(vcq, all[1][0], mine[1], all[1][1], 8, 0, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL), "utofu_put");
    must(utofu_put(vcq, all[1][0], mine[1], all[1][1] + room, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
         "utofu_put");
    while ((rc = utofu_poll_mrq(vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND) {
    }
    printf("%d\n", rc);
    return 0;
}

/* Process 0 computes, and is stopped and continued meanwhile. Process 1 puts to itself until it has the other's put,
 * and prints how often. */
static int stopped(int stops)
{
    const struct timespec briefly = {0, 100000};
    struct group group;
    uint64_t mine[2], all[GROUP_MAX][GROUP_WORDS];
    utofu_vcq_hdl_t vcq;
    int status = 0;
    group_begin(&group, 2);
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    if (group.rank == 1) {
        struct utofu_mrq_notice notice = {0};
        int puts = 0;
        for (; notice.notice_type != UTOFU_MRQ_TYPE_RMT_PUT; puts++) {
            must_post(vcq, utofu_put(vcq, mine[0], mine[1], mine[1], 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL),
                      "utofu_put");
            notice = wait_mrq(vcq);
        }
        printf("%d\n", puts);
    } else if (group.rank == 0) {
        const pid_t child = fork();
        for (int i = 0; child == 0 && i < stops; i++) {
            const struct timespec pause = {0, (long)(10 + below(30)) * 1000000};
            (void)nanosleep(&pause, NULL);
            (void)kill(getppid(), SIGSTOP);
            (void)nanosleep(&briefly, NULL);
            (void)kill(getppid(), SIGCONT);
        }
        if (child == 0)
            _exit(0);
        while (waitpid(child, &status, WNOHANG) == 0) {
        }
        must_post(vcq, utofu_put(vcq, all[1][0], mine[1], all[1][1], 8, 0, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
                  "utofu_put");
    }
    group_end(&group);
    return 0;
}

/* Waits by numbers of unread entries, without a poll. */
static int count(void)
{
    utofu_vcq_hdl_t vcq;
    utofu_vcq_id_t id;
    utofu_stadd_t stadd;
    size_t unread;
    must(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &id), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &stadd), "utofu_reg_mem");
    for (int i = 0; i < 2; i++)
        must(utofu_put(vcq, id, stadd, stadd, 8, 0, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE, NULL), "utofu_put");
    do {
        must(utofu_query_num_unread_mrq(vcq, &unread), "utofu_query_num_unread_mrq");
    } while (unread < 2);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    return 0;
}

/* As the kernel knows it. */
static int processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return syscall(SYS_sched_getaffinity, 0, sizeof set, &set) > 0 ? CPU_COUNT(&set) : -1;
}

static void* count_in_thread(void* count)
{
    *(int*)count = processors();
    return NULL;
}

static int bind_one(void)
{
    const int before = processors();
    cpu_set_t set;
    pthread_t thread;
    utofu_vcq_hdl_t vcq;
    struct utofu_mrq_notice notice;
    int in_thread = 0;
    int status = 0;
    must(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    require(utofu_poll_mrq(vcq, 0, &notice) == UTOFU_ERR_NOT_FOUND, "a notice without a sender");
    const int bound = processors();
    require(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");
    const int asked = CPU_COUNT(&set);
    require(pthread_create(&thread, NULL, count_in_thread, &in_thread) == 0, "pthread_create");
    (void)pthread_join(thread, NULL);
    const pid_t child = fork();
    if (child == 0)
        _exit(processors());
    require(waitpid(child, &status, 0) == child, "waitpid");
    printf("%s %d %d %d\n", bound == before ? "all" : "one", asked == before, in_thread == before,
           WEXITSTATUS(status) == before);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    return 0;
}

/* Processes 3 and 1 each start a descriptor of process 2. The second one is short and counts as sent when the first one
 * is, which has gaps: at one time, though its starter has the smaller rank. Both have an entry in the TCQ. */
static int session(void)
{
    struct group group;
    uint64_t mine[2], all[GROUP_MAX][GROUP_WORDS];
    utofu_vcq_hdl_t vcq;
    group_begin(&group, 4);
    must(utofu_create_vcq(1, group.rank == 2 ? UTOFU_VCQ_FLAG_SESSION_MODE : 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    for (uintptr_t i = 0; group.rank == 2 && i < 2; i++) {
        must(utofu_put_gap(vcq, all[0][0], mine[1], all[0][1], i == 0 ? room : 8, 0, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, 0,
                           i == 0 ? 16 : 0, (void*)(i + 1)),
             "utofu_put_gap");
    }
    group_barrier(&group);
    if (group.rank == 1)
        (void)wait_mrq(vcq);
    if (group.rank % 2 == 1) {
        must_post(vcq, utofu_put(vcq, all[2][0], mine[1], all[2][1], 8, 0, UTOFU_ONESIDED_FLAG_SPS(1), NULL),
                  "utofu_put");
    }
    if (group.rank == 3) {
        must_post(vcq, utofu_put(vcq, all[1][0], mine[1], all[1][1], 8, 0, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
                  "utofu_put");
    }
    for (uintptr_t i = 0; group.rank == 2 && i < 2; i++)
        require(wait_tcq(vcq) == (void*)(i + 1), "the entries come in the order of posting");
    group_end(&group);
    return 0;
}

/* A round of one gate, which ends later by the clock. */
static int gates(void)
{
    utofu_vbg_id_t gate;
    double sum = 0;
    int rc;
    must(utofu_alloc_vbg(0, 1, 0, &gate), "utofu_alloc_vbg");
    struct utofu_vbg_setting setting = {.vbg_id = gate,
                                        .src_lcl_vbg_id = UTOFU_VBG_ID_NULL,
                                        .src_rmt_vbg_id = UTOFU_VBG_ID_NULL,
                                        .dst_lcl_vbg_id = UTOFU_VBG_ID_NULL,
                                        .dst_rmt_vbg_id = UTOFU_VBG_ID_NULL};
    setting.dst_path_coords[0] = UTOFU_PATH_COORD_NULL;
    must(utofu_set_vbg(&setting, 1), "utofu_set_vbg");
    must(utofu_barrier(gate, 0), "utofu_barrier");
    require(utofu_poll_reduce_double(gate, 0, &sum) == UTOFU_ERR_BUSY, "a poll of another kind finds no round");
    while ((rc = utofu_poll_barrier(gate, 0)) == UTOFU_ERR_NOT_COMPLETED) {
    }
    must(rc, "utofu_poll_barrier");
    must(utofu_free_vbg(&gate, 1), "utofu_free_vbg");
    return 0;
}

static int divide(const char* file)
{
    const int rank = atoi(getenv("TOFU_SIM_RANK"));
    uint8_t coords[6];
    utofu_vbg_id_t gate;
    utofu_tni_id_t tni;
    utofu_bg_id_t number;
    uint16_t extra;
    utofu_vcq_hdl_t vcq;
    for (const clock_t until = clock() + (3 - rank) * CLOCKS_PER_SEC / 50; clock() < until;) {
    }
    must(utofu_query_my_coords(coords), "utofu_query_my_coords");
    const int taken = open(file, O_WRONLY | O_APPEND | O_CREAT, 0600);
    require(taken >= 0 && write(taken, "x", 1) == 1, "the file can be written");
    const long place = (long)lseek(taken, 0, SEEK_CUR);
    close(taken);
    must(utofu_alloc_vbg(0, 1, 0, &gate), "utofu_alloc_vbg");
    must(utofu_query_vbg_info(gate, coords, &tni, &number, &extra), "utofu_query_vbg_info");
    printf("%d: %ld %d\n", rank, place, number);
    must(utofu_create_vcq(0, 0, &vcq), "utofu_create_vcq");
    (void)look(vcq);
    (void)look(vcq); /* the others have their turn before this process gives its gate back */
    return 0;
}

/* Posts all operations, and reads queues in between. The additions that were posted. */
static uint64_t post_all(utofu_vcq_hdl_t vcq, struct target* targets, int size, utofu_stadd_t out_stadd,
                         utofu_stadd_t fetched_stadd, uintptr_t operations)
{
    uint64_t additions = 0;
    for (uintptr_t i = 1; i <= operations; i++) {
        additions += (uint64_t)post(vcq, &targets[below((uint64_t)size)], out_stadd, fetched_stadd, i);
        for (uint64_t looks = below(4); looks > 0; looks--)
            (void)look(vcq);
    }
    while (seen_own < operations)
        (void)look(vcq);
    return additions;
}

/* Waits for the notices that the others have caused here, and compares the counters with the additions. */
static void check_all(utofu_vcq_hdl_t vcq, struct group* group, const struct target* targets, uint64_t additions)
{
    uint64_t mine[GROUP_WORDS];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    uint64_t expected = 0, added = 0, counted = 0;
    memset(mine, 0, sizeof mine);
    for (int i = 0; i < group->size; i++)
        mine[i] = targets[i].notices;
    mine[6] = additions;
    group_exchange(group, mine, GROUP_WORDS, all);
    for (int i = 0; i < group->size; i++) {
        expected += all[i][group->rank];
        added += all[i][6];
    }
    while (seen_of_others < expected)
        (void)look(vcq);
    mine[0] = __atomic_load_n(&in.counter, __ATOMIC_RELAXED);
    group_exchange(group, mine, 1, all);
    for (int i = 0; i < group->size; i++)
        counted += all[i][0];
    require(counted == added, "the counters are not the sum of the additions");
}

/* Operations of all kinds that cross, drawn from a seed. */
static int cross(uintptr_t operations, uint64_t seed)
{
    struct group group;
    struct target targets[GROUP_MAX];
    uint64_t mine[GROUP_WORDS];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    utofu_vcq_hdl_t vcq;
    utofu_stadd_t out_stadd, fetched_stadd;
    group_begin(&group, 2);
    require(group.size <= 6, "at most 6 processes");
    state = seed * 1000003 + (uint64_t)group.rank;
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, &in, sizeof in, 0, &mine[1]), "utofu_reg_mem");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &out_stadd), "utofu_reg_mem");
    must(utofu_reg_mem(vcq, fetched, sizeof fetched, 0, &fetched_stadd), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);
    for (int i = 0; i < group.size; i++)
        targets[i] = (struct target){all[i][0], all[i][1], 0};
    const uint64_t additions = post_all(vcq, targets, group.size, out_stadd, fetched_stadd, operations);
    group_barrier(&group); /* and all additions have been made */
    check_all(vcq, &group, targets, additions);
    add_memory(in.bytes[0], sizeof in.bytes);
    add_memory(fetched, sizeof fetched);
    printf("%d: %016llx, %llu failed\n", group.rank, (unsigned long long)sum, (unsigned long long)failed);
    group_barrier(&group);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}

/* `to`: the receiver's VCQ ID and STADD, for a program that takes the place of another. */
static int replaced(const char* program, int life, uint64_t* to)
{
    enum { programs = 3 };
    struct group group;
    uint64_t mine[2], all[GROUP_MAX][GROUP_WORDS];
    utofu_vcq_hdl_t vcq;
    char texts[3][24];
    if (life == 0)
        group_begin(&group, 3);
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, out, sizeof out, 0, &mine[1]), "utofu_reg_mem");
    if (life == 0) {
        group_exchange(&group, mine, 2, all);
        memcpy(to, all[1], 2 * sizeof *to);
        for (int i = 0; group.rank == 1 && i < programs; i++)
            (void)wait_mrq(vcq);
        if (group.rank != 0)
            return 0;
    }
    must_post(vcq,
              utofu_put(vcq, to[0], mine[1], to[1], 8, 0,
                        UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
              "utofu_put");
    (void)wait_mrq(vcq);
    if (++life == programs)
        return 0;
    (void)snprintf(texts[0], sizeof texts[0], "%d", life);
    (void)snprintf(texts[1], sizeof texts[1], "%llu", (unsigned long long)to[0]);
    (void)snprintf(texts[2], sizeof texts[2], "%llu", (unsigned long long)to[1]);
    (void)execl("/proc/self/exe", program, "replaced", texts[0], texts[1], texts[2], (char*)NULL);
    return 1;
}

int main(int argc, char** argv)
{
    if (argc > 1 && strcmp(argv[1], "replaced") == 0) {
        uint64_t to[2] = {argc > 4 ? strtoull(argv[3], NULL, 10) : 0, argc > 4 ? strtoull(argv[4], NULL, 10) : 0};
        return replaced(argv[0], argc > 2 ? atoi(argv[2]) : 0, to);
    }
    if (argc > 1 && strcmp(argv[1], "bind") == 0)
        return bind_one();
    if (argc > 1 && strcmp(argv[1], "gates") == 0)
        return gates();
    if (argc > 2 && strcmp(argv[1], "node") == 0)
        return divide(argv[2]);
    if (argc > 1 && strcmp(argv[1], "session") == 0)
        return session();
    if (argc > 1 && strcmp(argv[1], "stray") == 0)
        return stray();
    if (argc > 1 && strcmp(argv[1], "stopped") == 0)
        return stopped(argc > 2 ? atoi(argv[2]) : 0);
    if (argc > 1 && strcmp(argv[1], "count") == 0)
        return count();
    if (argc > 1 && strcmp(argv[1], "queues") == 0)
        return queues();
    if (argc > 1 && strcmp(argv[1], "idle") == 0)
        return idle();
    if (argc > 1 && strcmp(argv[1], "leave") == 0)
        return leave(argc > 2 ? argv[2] : "");
    return cross(argc > 1 ? strtoul(argv[1], NULL, 10) : 100, argc > 2 ? strtoul(argv[2], NULL, 10) : 1);
}
