// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What every example needs: the rank of this process, the VCQs of the others, and an exchange of values.
//
// Run an example with  tofu-sim run -n 4 ./put_pingpong_mrq  (2 to 12 processes, one on each node of a unit). Real
// programs use MPI for this. Here uTofu itself does it, because addresses can be known beforehand: a VCQ with a chosen
// component ID on a node has a known ID (guide 3.3.2.2), memory with a chosen STag a known STADD (3.6.1.3).
#ifndef TOFU_SIM_EXAMPLES_GROUP_H
#define TOFU_SIM_EXAMPLES_GROUP_H

#include <stdint.h>
#include <utofu.h>

#define GROUP_MAX 12
#define GROUP_WORDS 7

struct group {
    int rank;
    int size;
    uint64_t meetings;
    utofu_vcq_hdl_t vcq; /* of the group's own traffic; an example makes its own */
    utofu_vcq_id_t peers[GROUP_MAX];
};

/* Joins; ends the program with a message if it cannot, or if there are fewer than `least` processes. */
void group_begin(struct group* group, int least);
/* Gives `words` (at most GROUP_WORDS) to all and gets theirs: all[rank][…]. Returns when all have called. */
void group_exchange(struct group* group, const uint64_t* mine, int words, uint64_t all[GROUP_MAX][GROUP_WORDS]);
void group_barrier(struct group* group);
void group_end(struct group* group);

/* Ends the program with a message unless the condition holds. */
void require(int condition, const char* what);
/* The same for a uTofu function that must succeed. */
void must(int code, const char* what);
/* Posts, again and again while the queue is full: that is no error, and can happen at any time (guide 3.7.1). */
#define must_post(vcq, post, what)                                                                                     \
    do {                                                                                                               \
        int post_code_;                                                                                                \
        for (unsigned long polls_ = 0; (post_code_ = (post)) == UTOFU_ERR_BUSY; polls_++)                              \
            make_room((vcq), polls_);                                                                                  \
        must(post_code_, (what));                                                                                      \
    } while (0)
/* Reads the TCQ, drops what is in it, and gives way to other processes now and then. */
void make_room(utofu_vcq_hdl_t vcq, unsigned long polls);

/* Poll until there is an entry, at most 30 seconds, giving way to other processes. */
void* wait_tcq(utofu_vcq_hdl_t vcq);
struct utofu_mrq_notice wait_mrq(utofu_vcq_hdl_t vcq); /* drops what is in the TCQ */
/* To be called in a loop that waits for memory. */
void be_patient(unsigned long polls);

#endif
