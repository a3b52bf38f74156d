/* SPDX-License-Identifier: MIT */
/*
 * gdn_decode on any device: per sequence and head, token by token, against a state S [K][V] in place
 *     S = S*exp(g);   S += k (beta * (v - S^T k))^T;   o = scale * S^T q
 * (the recurrence of Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024, equation 10.)
 *
 * Layout    q, k [B][T][H][K], v, o [B][T][HV][V], g, beta [B][T][HV], state [slots][HV][K][V] f32, slot [B]. Head hv
 *           reads q and k of head hv / (HV/H). A slot outside 0 .. slots-1 skips its sequence.
 * Variants  plain: an item owns one column of a state and walks it twice a token, in global memory; any group size.
 *           rows:  a group owns 4*TX columns of a state, in registers: item (x, y) holds columns 4x .. 4x+3 of rows y,
 *                  y + TY, ... Since (S^T q) after the update is exp(g) S^T q + (k . q) delta, one reduction over y
 *                  serves both products, and the state is read once and written once however many tokens there are.
 * Launch    plain: B * HV * V items, rounded up to whole groups.  rows: B * HV * ceil(V / 4TX) groups of TX * TY.
 * Traffic   rows: the state once in and once out; q, k ceil(V / 4TX) times.
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
#ifndef TX
#define TX 8
#define TY 16
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
    const long owner = state_of(slot + slot_at.x, b, SLOTS);
    if (owner < 0)
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

/* ---- rows ---- */

#define ROWS ((K + TY - 1) / TY) /* rows of the state that an item holds */

/* What an item knows after its share of a token's products; summed over y. */
struct products {
    float4 sk, sq;    /* S^T k, S^T q */
    float kk, qq, kq; /* |k|^2, |q|^2, k . q */
};

static inline struct products products_sum(__local float4 (*vectors)[2][TX], __local float4 *scalars, uint x, uint y,
                                           struct products part)
{
    vectors[y][0][x] = part.sk;
    vectors[y][1][x] = part.sq;
    if (x == 0)
        scalars[y] = (float4)(part.kk, part.qq, part.kq, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    struct products sum = {(float4)(0), (float4)(0), 0, 0, 0};
    for (uint i = 0; i < TY; i++) {
        sum.sk += vectors[i][0][x];
        sum.sq += vectors[i][1][x];
        sum.kk += scalars[i].x;
        sum.qq += scalars[i].y;
        sum.kq += scalars[i].z;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

GROUP_SIZE(TX * TY) __kernel void gdn_decode_rows(DECODE_ARGS)
{
    __local float4 vectors[TY][2][TX], scalars[TY];
    const uint x = get_local_id(0) % TX, y = get_local_id(0) / TX;
    const ulong tiles = (V + 4 * TX - 1) / (4 * TX), group = get_group_id(0);
    const ulong hv = group / tiles % HV, b = group / tiles / HV, hk = hv / (HV / H);
    const uint column = (uint)(group % tiles) * 4 * TX + 4 * x;
    const long owner = state_of(slot + slot_at.x, b, SLOTS);
    if (owner < 0)
        return;
    const bool inside = column < V;
    __global float *home = ROW2(state, owner, hv) + column;
    float4 s[ROWS];
    for (uint r = 0; r < ROWS; r++)
        s[r] = inside && y + r * TY < K ? LDA(f32, 4, home + (y + r * TY) * state_at.w) : (float4)(0);
    for (ulong t = 0; t < T; t++) {
        float keys[ROWS];
        struct products part = {(float4)(0), (float4)(0), 0, 0, 0};
        for (uint r = 0; r < ROWS; r++) {
            const uint d = y + r * TY;
            const float query = d < K ? LD(T_Q, ROW3(q, b, t, hk), d) : 0.0f;
            keys[r] = d < K ? LD(T_K, ROW3(k, b, t, hk), d) : 0.0f;
            part.sk += s[r] * keys[r];
            part.sq += s[r] * query;
            part.kk += keys[r] * keys[r];
            part.qq += query * query;
            part.kq += keys[r] * query;
        }
        const struct products sum = products_sum(vectors, scalars, x, y, part);
        const float decay = EXP_GATE(b, t, hv), fk = row_factor(sum.kk, l2norm_eps);
        const float4 value = inside ? LDA(T_V, 4, ROW3(v, b, t, hv) + column) : (float4)(0);
        const float4 delta = fk * BETA(b, t, hv) * (value - decay * fk * sum.sk);
        for (uint r = 0; r < ROWS; r++)
            s[r] = s[r] * decay + keys[r] * delta;
        if (inside && y == 0)
            STA(T_O, 4, ROW3(o, b, t, hv) + column,
                scale * row_factor(sum.qq, l2norm_eps) * (decay * sum.sq + sum.kq * delta));
    }
    for (uint r = 0; r < ROWS; r++)
        if (inside && y + r * TY < K)
            STA(f32, 4, home + (y + r * TY) * state_at.w, s[r]);
}
