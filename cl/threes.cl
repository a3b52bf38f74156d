/* SPDX-License-Identifier: MIT */
/*
 * VL rows of three floats, between the order of memory (row after row, in three vectors) and a vector for each place in
 * a row. 3 and VL have no factor in common, so what belongs together stands in different lanes of the three vectors:
 * two blends gather it, one permutation puts it in order, and back.
 */
#ifndef WD_THREES
#define WD_THREES

#include "cpu.cl"

#if VL == 4
#define LANES_1 (int4)(0, -1, 0, 0)
#define LANES_2 (int4)(0, 0, -1, 0)
#define TAKE_0(x) (x).s0321
#define TAKE_1(x) (x).s1032
#define TAKE_2(x) (x).s2103
#define GIVE_0(x) (x).s0001
#define GIVE_1(x) (x).s1122
#define GIVE_2(x) (x).s2333
#elif VL == 8
#define LANES_1 (int8)(0, -1, 0, 0, -1, 0, 0, -1)
#define LANES_2 (int8)(0, 0, -1, 0, 0, -1, 0, 0)
#define TAKE_0(x) (x).s03614725
#define TAKE_1(x) (x).s14725036
#define TAKE_2(x) (x).s25036147
#define GIVE_0(x) (x).s00011122
#define GIVE_1(x) (x).s23334445
#define GIVE_2(x) (x).s55666777
#else
#define LANES_1 (int16)(0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0)
#define LANES_2 (int16)(0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0)
#define TAKE_0(x) (x).s0369cf258be147ad
#define TAKE_1(x) (x).s147ad0369cf258be
#define TAKE_2(x) (x).s258be147ad0369cf
#define GIVE_0(x) (x).s0001112223334445
#define GIVE_1(x) (x).s55666777888999aa
#define GIVE_2(x) (x).sabbbcccdddeeefff
#endif

/* Lanes 0, 3, 6.. of p, 1, 4, 7.. of q, 2, 5, 8.. of r. */
#define BLEND(p, q, r) select(select(p, q, LANES_1), r, LANES_2)

/* x[k]: place k of all rows; m[0..2]: the rows as they lie in memory. */
static inline void take_threes(VFLOAT x[3], const VFLOAT m[3])
{
    const VFLOAT b = m[VL == 8 ? 1 : 2], c = m[VL == 8 ? 2 : 1]; /* 8 leaves 2 when divided by 3, 4 and 16 leave 1 */
    x[0] = TAKE_0(BLEND(m[0], b, c));
    x[1] = TAKE_1(BLEND(c, m[0], b));
    x[2] = TAKE_2(BLEND(b, c, m[0]));
}

static inline void give_threes(VFLOAT m[3], const VFLOAT x[3])
{
    m[0] = BLEND(GIVE_0(x[0]), GIVE_0(x[1]), GIVE_0(x[2]));
#if VL == 8
    m[1] = BLEND(GIVE_1(x[2]), GIVE_1(x[0]), GIVE_1(x[1]));
    m[2] = BLEND(GIVE_2(x[1]), GIVE_2(x[2]), GIVE_2(x[0]));
#else
    m[1] = BLEND(GIVE_1(x[1]), GIVE_1(x[2]), GIVE_1(x[0]));
    m[2] = BLEND(GIVE_2(x[2]), GIVE_2(x[0]), GIVE_2(x[1]));
#endif
}

#endif
