// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: session mode: a pipeline that runs through processes that do nothing (guide 2.2.8.4). Run by
// tests/sim/tools/examples.sh.
//
// Process 0 sends pieces of a message to process 1; each piece that arrives there starts the put of the same piece to
// process 2, and so on to the last one. The relays have written those puts to their session mode VCQ beforehand and
// then only wait for the end. The first put is done from a free mode VCQ; SPS 1: each piece starts one descriptor.
#include "group.h"

#include <stdio.h>

enum { pieces = 16, piece_words = 512 };

static uint64_t message[pieces][piece_words] __attribute__((aligned(256)));

static uint64_t value(int piece, int word)
{
    return (uint64_t)piece * 1000003 + (uint64_t)word * 17 + 1;
}

int main(void)
{
    struct group group;
    group_begin(&group, 2);

    const int last = group.size - 1;
    utofu_vcq_hdl_t vcq;
    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    must(utofu_create_vcq(1, group.rank == 0 ? 0 : UTOFU_VCQ_FLAG_SESSION_MODE, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, message, sizeof message, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);

    if (group.rank == 0) {
        for (int piece = 0; piece < pieces; piece++)
            for (int word = 0; word < piece_words; word++)
                message[piece][word] = value(piece, word);
        group_barrier(&group); /* the relays are ready */
    }
    if (group.rank != last) {
        /* To the end of the pipeline: no step there, but a notice. Pieces stay in order on one path. */
        const int next = group.rank + 1;
        const unsigned long flags = UTOFU_ONESIDED_FLAG_STRONG_ORDER |
                                    (next == last ? UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE : UTOFU_ONESIDED_FLAG_SPS(1));
        for (int piece = 0; piece < pieces; piece++) {
            const size_t offset = (size_t)piece * sizeof message[0];
            must_post(vcq,
                      utofu_put(vcq, all[next][0], mine[1] + offset, all[next][1] + offset, sizeof message[0],
                                (uint64_t)piece, flags, NULL),
                      "utofu_put");
        }
    }
    if (group.rank != 0)
        group_barrier(&group);
    if (group.rank == last) {
        for (int piece = 0; piece < pieces; piece++) {
            const struct utofu_mrq_notice notice = wait_mrq(vcq);
            require(notice.edata == (uint64_t)piece, "pieces came in another order");
            for (int word = 0; word < piece_words; word++)
                require(message[piece][word] == value(piece, word), "a piece is not what was sent");
        }
        printf("%d pieces of %zu bytes through %d relays\n", pieces, sizeof message[0], group.size - 2);
    }
    group_barrier(&group);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
