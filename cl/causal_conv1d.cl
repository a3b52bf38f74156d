/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d, portable form: a work-item an output, tap by tap. Any device, type, layout, width and stride.
 *
 * Launch: [B][D][S]: {S + states, D, B}; [B][S][D]: {D, S + states, B}; any local size. With a final state there is one
 * more row (as if a token) for each sequence of a batch entry, whose items store it.
 * Traffic: x and weight W times, from caches.
 */
#include "conv.cl"

__kernel void causal_conv1d_plain(CONV_ARGS)
{
#if LAYOUT == 0
    const ulong t = get_global_id(0), d = get_global_id(1), b = get_global_id(2);
#else
    const ulong d = get_global_id(0), t = get_global_id(1), b = get_global_id(2);
#endif
    if (d >= D)
        return;
    struct sequence s;
    if (t < S) {
        sequence_of(CONV, b, t, &s);
        if (t >= s.begin && t < s.end)
            ST(T_OUT, AT(out, b, d, t), 0, output_at(CONV, &s, d, t));
    }
#if HAS_FINAL_STATE
    else if (t - S < SEQUENCES / B) {
        sequence_number(CONV, b + (t - S), &s);
        store_final_state(CONV, &s, d);
    }
#endif
}
