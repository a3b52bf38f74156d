/* SPDX-License-Identifier: MIT */
/*
 * The host's own processors, for what trials do there: inputs, references and comparisons of shapes as large as
 * models use take seconds on one. No call of an operation comes here.
 */
#ifndef WD_PARALLEL_H
#define WD_PARALLEL_H

#include <stddef.h>

/** Calls piece(user, i) for every i in [0, n), on as many threads as there are processors, and waits for all. Pieces
 *  run in any order and must not depend on each other. One piece, or no threads to be had: the caller does it all. */
void wd_parallel(size_t n, void (*piece)(void *user, size_t i), void *user);

/* Work on many elements in pieces that are worth a thread's while. */
enum { WD_BLOCK = 1 << 16 };

struct wd_range {
    size_t first, end;
};

static inline size_t wd_blocks(size_t n, size_t block)
{
    return n / block + (n % block != 0);
}

/** The i-th of wd_blocks(n, block). */
static inline struct wd_range wd_block(size_t n, size_t block, size_t i)
{
    const size_t first = i * block;
    return (struct wd_range){first, n - first < block ? n : first + block};
}

#endif
