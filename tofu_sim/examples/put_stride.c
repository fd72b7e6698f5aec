// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Example: a halo exchange: columns of a matrix by one stride Put (guide 3.7.1.3). Run by tests/sim/tools/examples.sh.
//
// The processes form a ring; each has a matrix with a column of its neighbours' on either side. A column is not
// contiguous: rows blocks of one element, a row apart. utofu_put_stride sends it as one call, with a notice for each
// block.
#include "group.h"

#include <stdio.h>

enum { rows = 48, columns = 10, rounds = 20 };

static uint64_t matrix[rows][columns + 2]; /* 0 and columns + 1: the neighbours' */

static uint64_t value(int rank, int round, int row, int column)
{
    return (((uint64_t)rank * 100 + (uint64_t)round) * 100 + (uint64_t)row) * 100 + (uint64_t)column;
}

int main(void)
{
    struct group group;
    group_begin(&group, 2);

    utofu_vcq_hdl_t vcq;
    uint64_t mine[2];
    uint64_t all[GROUP_MAX][GROUP_WORDS];
    must(utofu_create_vcq(1, 0, &vcq), "utofu_create_vcq");
    must(utofu_query_vcq_id(vcq, &mine[0]), "utofu_query_vcq_id");
    must(utofu_reg_mem(vcq, matrix, sizeof matrix, 0, &mine[1]), "utofu_reg_mem");
    group_exchange(&group, mine, 2, all);

    const int left = (group.rank + group.size - 1) % group.size;
    const int right = (group.rank + 1) % group.size;
    const size_t element = sizeof matrix[0][0], row_bytes = sizeof matrix[0];
    for (int round = 0; round < rounds; round++) {
        for (int row = 0; row < rows; row++)
            for (int column = 1; column <= columns; column++)
                matrix[row][column] = value(group.rank, round, row, column);
        /* Our first column becomes the right border on our left, our last column the left border on our right. */
        must_post(vcq,
                  utofu_put_stride(vcq, all[left][0], mine[1] + element, all[left][1] + (columns + 1) * element,
                                   element, row_bytes, rows, 1, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
                  "utofu_put_stride");
        must_post(vcq,
                  utofu_put_stride(vcq, all[right][0], mine[1] + columns * element, all[right][1], element, row_bytes,
                                   rows, 2, UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE, NULL),
                  "utofu_put_stride");
        for (int got = 0; got < 2 * rows; got++) {
            require(wait_mrq(vcq).notice_type == UTOFU_MRQ_TYPE_RMT_PUT,
                    "the notice is not that of a Put to this process");
        }
        for (int row = 0; row < rows; row++) {
            require(matrix[row][0] == value(left, round, row, columns), "the left border is wrong");
            require(matrix[row][columns + 1] == value(right, round, row, 1), "the right border is wrong");
        }
        group_barrier(&group); /* the borders may be overwritten */
    }
    if (group.rank == 0)
        printf("%d exchanges of columns of %d elements in a ring of %d\n", rounds, rows, group.size);
    must(utofu_free_vcq(vcq), "utofu_free_vcq");
    group_end(&group);
    return 0;
}
