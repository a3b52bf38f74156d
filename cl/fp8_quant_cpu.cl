/* SPDX-License-Identifier: MIT */
/*
 * fp8_quant, CPU form: a work-item takes a run of groups, in vectors of VL floats. Any group size, type and layout;
 * the GROUP % VL elements at a group's end go one by one.
 *
 * Parameters: VL (vl), STREAM (2: q by non-temporal stores, where its groups are aligned for them).
 * Launch: {items}, local size 1; the items share tokens * groups evenly.
 * Traffic: x once from memory (the second pass over a group hits L1), q and s once.
 * Numerics: q is x / s rounded correctly. Groups with NaN or Inf go one by one.
 */
#include "cpu.cl"
#include "fp8.cl"

#define BYTES_e4m3 1
#define BYTES_e5m2 1

/* ---- VL quotients to q; x is finite, and so is the scale ---- */

static inline void put_f32(__global float *q, VFLOAT ratio, const bool stream)
{
    ratio = ratio > LIMIT ? (VFLOAT)(LIMIT) : ratio;
    ratio = ratio < -LIMIT ? (VFLOAT)(-LIMIT) : ratio;
    if (stream)
        STREAM_VL(f32, q, ratio);
    else
        STVL(f32, q, ratio);
}

static inline void put_bytes(__global uchar *q, CAT(uint, VL) codes, const bool stream)
{
    if (stream)
        STREAM_RAW(uchar, q, CAT(convert_uchar, VL)(codes));
    else
        STORE_RAW(uchar, q, CAT(convert_uchar, VL)(codes));
}

/* The conversions saturate at the limit. */
#define put_e4m3(q, ratio, stream) put_bytes(q, CAT(number_to_e4m3_, VL)(ratio), stream)
#define put_e5m2(q, ratio, stream) put_bytes(q, CAT(number_to_e5m2_, VL)(ratio), stream)

static inline void quantize_vectors(__global const ELEM(T_X) *x, __global ELEM(T_Q) *q, float scale, uint n,
                                    const bool stream)
{
    for (uint i = 0; i < n; i += VL)
        CAT(put_, T_Q)(q + i, LDVL(T_X, x + i) / scale, stream);
}

/* ---- A group ---- */

static inline uint largest_of(__global const ELEM(T_X) *x)
{
    VUINT most = 0;
    for (uint i = 0; i + VL <= GROUP; i += VL) {
        PREFETCH_AHEAD(x + i);
        most = max_bits(most, AS_VUINT(LDVL(T_X, x + i)) & 0x7fffffffu);
    }
    uint largest = max_lane(most);
    for (uint i = GROUP / VL * VL; i < GROUP; i++)
        largest = max(largest, abs_bits(LD(T_X, x, i)));
    return largest;
}

static inline void quantize(__global const ELEM(T_X) *x, __global ELEM(T_Q) *q, float scale)
{
    const uint n = isfinite(scale) ? GROUP / VL * VL : 0;
    if (can_stream(q, BYTES(T_Q)))
        quantize_vectors(x, q, scale, n, true);
    else
        quantize_vectors(x, q, scale, n, false);
    for (uint i = n; i < GROUP; i++)
        ST(T_Q, q, i, clamp_to_limit(LD(T_X, x, i) / scale));
}

WIDE __kernel void fp8_quant_cpu(IN(T_X, x), OUT(T_Q, q), OUT(T_S, s), const ulong tokens, const ulong groups,
                                 const ulong tokens4, const float eps)
{
    const ulong item = get_global_id(0), items = get_global_size(0), total = tokens * groups;
    const ulong end = total * (item + 1) / items;
    ulong g = total * item / items, token = g / groups, j = g % groups;
    for (; g < end; g++) {
        __global const ELEM(T_X) *from = ROW1(x, token) + j * GROUP;
        const float scale = group_scale(largest_of(from), eps);
        store_scale(s, s_at, token, j, tokens, tokens4, scale);
        quantize(from, ROW1(q, token) + j * GROUP, scale);
        if (++j == groups) {
            j = 0;
            token++;
        }
    }
}
