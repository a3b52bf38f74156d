/* SPDX-License-Identifier: MIT */
/* What the walks along a sequence on matrix engines share: where the chunks of `seq` lie, of which there are `chunks`
 * and the last has `last_rows` tokens, and how what is not a matrix comes. All items go round equally often: PoCL 3.1
 * loses other loops here. */
#ifndef WD_GDN_WALK
#define WD_GDN_WALK

#include "gdn.cl"
#include "mma.cl"

#ifndef T_G
#define T_G f32 /* FORWARD has no gates */
#endif

#define ROWS_OF(c) ((c) + 1 < chunks ? CHUNK : last_rows)
#define AT(x, c, head) ROW3(x, b, seq.begin + (ulong)(c)*CHUNK, head) /* a chunk's first row */
#define OF(x, c, head) ROW3(x, b, seq.first_chunk + (c), head)        /* what there is of a chunk */

/* Copies `chunks` of 16 bytes as they lie, item `id` of `items` its share. */
MMA_FN void copy_tile(__local uint4 *to, __global const void *from, uint chunks, uint id, uint items)
{
    for (uint first = 0; first < chunks; first += items)
        if (first + id < chunks)
            mma_copy(true, to + first + id, (__global const uint4 *)from + first + id);
}

/* Past the end the last of `rows`. */
MMA_FN void copy_gates(__local ELEM(T_G) *to, __global const ELEM(T_G) *from, ulong pitch, uint rows, uint id,
                       uint items)
{
    for (uint first = 0; first < CHUNK; first += items)
        for (uint word = 0; first + id < CHUNK && word < sizeof *to / sizeof(float); word++)
            mma_copy_word((__local float *)(to + first + id) + word,
                          (__global const float *)(from + min(first + id, rows - 1) * pitch) + word);
}

#endif
