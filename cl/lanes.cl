/* SPDX-License-Identifier: MIT */
/* Vectors of WIDTH floats that are also looked at float by float. For GPU forms, whose loops over lanes are unrolled,
 * so that the arrays stay in registers. WIDTH: 2 4 8 16. */
#ifndef WD_LANES
#define WD_LANES

#include "common.cl"

#define VFLOAT CAT(float, WIDTH)

/* Spreads v over e[0 .. WIDTH - 1], and takes such a vector from there. */
#define UNPACK(e, v) CAT(UNPACK_, WIDTH)(e, v)
#define UNPACK_2(e, v) (e)[0] = (v).s0, (e)[1] = (v).s1
#define UNPACK_4(e, v) UNPACK_2(e, (v).lo), UNPACK_2((e) + 2, (v).hi)
#define UNPACK_8(e, v) UNPACK_4(e, (v).lo), UNPACK_4((e) + 4, (v).hi)
#define UNPACK_16(e, v) UNPACK_8(e, (v).lo), UNPACK_8((e) + 8, (v).hi)

#define PACK(e) CAT(PACK_, WIDTH)(e)
#define PACK_2(e) (float2)((e)[0], (e)[1])
#define PACK_4(e) (float4)((e)[0], (e)[1], (e)[2], (e)[3])
#define PACK_8(e) (float8)(LIST_8(e))
#define PACK_16(e) (float16)(LIST_8(e), LIST_8((e) + 8))
#define LIST_8(e) (e)[0], (e)[1], (e)[2], (e)[3], (e)[4], (e)[5], (e)[6], (e)[7]

#endif
