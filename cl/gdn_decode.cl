/* SPDX-License-Identifier: MIT */
/*
 * gdn_decode on any device: per sequence and head, token by token, against a state S [K][V] in place
 *     S = S*exp(g);   S += k (beta * (v - S^T k))^T;   o = scale * S^T q
 * (the recurrence of Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024, equation 10.)
 *
 * Layout    q, k [B][T][H][K], v, o [B][T][HV][V], g, beta [B][T][HV], state [slots][HV][K][V] f32, slot [B]. Head hv
 *           reads q and k of head hv / (HV/H). A slot outside 0 .. slots-1 skips its sequence.
 * An item owns one column of a state and walks it twice a token, in global memory.
 * Launch    B * HV * V items, rounded up to whole groups of any size.
 * Numerics  f32.
 */
#include "common.cl"
#include "gdn_gates.cl"

#ifndef K
#define K 128
#define V 128
#define T_Q f32
#define T_K f32
#define T_V f32
#define T_G f32
#define T_BETA f32
#define T_O f32
#endif

#define DECODE_ARGS                                                                                                    \
    IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_G, g), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias),                \
        OUT(f32, state), IN(i32, slot), OUT(T_O, o), const ulong B, const ulong T, const ulong H, const ulong HV,      \
        const ulong SLOTS, const float l2norm_eps, const float scale

#define EXP_GATE(b, t, hv)                                                                                             \
    exp(log_gate(LD(T_G, ROW2(g, b, t), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv))
#define BETA(b, t, hv) beta_value(LD(T_BETA, ROW2(beta, b, t), hv))

__kernel void gdn_decode_plain(DECODE_ARGS)
{
    const ulong id = get_global_id(0), column = id % V, hv = id / V % HV, b = id / V / HV, hk = hv / (HV / H);
    if (b >= B)
        return;
    const ulong owner = state_of(slot + slot_at.x, b, SLOTS);
    if (owner == SKIPPED)
        return;
    __global float *s = ROW2(state, owner, hv) + column;
    for (ulong t = 0; t < T; t++) {
        __global const ELEM(T_Q) *qt = ROW3(q, b, t, hk);
        __global const ELEM(T_K) *kt = ROW3(k, b, t, hk);
        const float decay = EXP_GATE(b, t, hv);
        float sk = 0, kk = 0, qq = 0, out = 0;
        for (uint d = 0; d < K; d++) {
            const float x = LD(T_K, kt, d), y = LD(T_Q, qt, d);
            sk += s[d * state_at.w] * x;
            kk += x * x;
            qq += y * y;
        }
        const float fk = row_factor(kk, l2norm_eps), fq = row_factor(qq, l2norm_eps) * scale;
        const float delta = BETA(b, t, hv) * (LD(T_V, ROW3(v, b, t, hv), column) - decay * fk * sk);
        for (uint d = 0; d < K; d++) {
            const float x = s[d * state_at.w] * decay + LD(T_K, kt, d) * fk * delta;
            s[d * state_at.w] = x;
            out += x * LD(T_Q, qt, d);
        }
        ST(T_O, ROW3(o, b, t, hv), column, out * fq);
    }
}
