/* SPDX-License-Identifier: MIT */
/*
 * fp8_quant, portable form: a work-item a group, element by element. Any device, group size, type and layout.
 *
 * Launch: {groups, tokens}, any local size; items past `groups` do nothing.
 * Traffic: x is read twice (the second time from a cache), q and s written once. Neighbouring items stand a group
 * apart, so GPUs want fp8_quant_gpu.cl.
 */
#include "fp8.cl"

__kernel void fp8_quant_plain(IN(T_X, x), OUT(T_Q, q), OUT(T_S, s), const ulong tokens, const ulong groups,
                              const ulong tokens4, const float eps)
{
    const ulong j = get_global_id(0), token = get_global_id(1);
    if (j >= groups)
        return;
    __global const ELEM(T_X) *from = ROW1(x, token) + j * GROUP;
    __global ELEM(T_Q) *to = ROW1(q, token) + j * GROUP;

    uint largest = 0;
    for (uint i = 0; i < GROUP; i++)
        largest = max(largest, abs_bits(LD(T_X, from, i)));
    const float scale = group_scale(largest, eps);
    store_scale(s, s_at, token, j, tokens, tokens4, scale);
    for (uint i = 0; i < GROUP; i++)
        ST(T_Q, to, i, clamp_to_limit(LD(T_X, from, i) / scale));
}
