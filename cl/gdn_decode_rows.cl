/* SPDX-License-Identifier: MIT */
/*
 * gdn_decode, form for GPUs: a work-group owns 4 * TX columns of a state, in registers.
 *
 * What is computed and the layout: gdn_decode.cl. Item (x, y) holds columns 4x .. 4x + 3 of ROWS rows from y * ROWS on.
 * Since (S^T q) after the update is exp(g) S^T q + (k . q) delta, one reduction over y serves both products, and the
 * state is read once and written once however many tokens there are. All that the first token needs is loaded before
 * the reduction. It goes through the warp where items can exchange values, and then through local memory.
 *
 * Parameters  TX, TY (powers of two).
 * Launch      B * HV * ceil(V / 4TX) groups of TX * TY.
 * Traffic     the state once in and once out; q, k ceil(V / 4TX) times.
 * Local       2 * (TX + 1) float4 for each warp, or for each y where there are none.
 * Numerics    f32.
 */
#include "common.cl"
#include "gdn_gates.cl"
#include "warp.cl"

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

#define ROWS ((K + TY - 1) / TY) /* rows of the state that an item holds */

/* Items whose values meet by exchange: GANG of them, one above the other; FLOORS gangs meet in local memory. */
#if WARP_ITEMS > TX
#define GANG (WARP_ITEMS / TX < TY ? WARP_ITEMS / TX : TY)
#else
#define GANG 1
#endif
#define FLOORS (TY / GANG)

/* What an item knows after its share of a token's products; summed over y. */
struct products {
    float4 sk, sq;    /* S^T k, S^T q */
    float kk, qq, kq; /* |k|^2, |q|^2, k . q */
};

#if GANG > 1
static inline float4 warp_add4(float4 v, uint mask)
{
    return (float4)(warp_add(v.x, mask), warp_add(v.y, mask), warp_add(v.z, mask), warp_add(v.w, mask));
}
#endif

/* Over y. A barrier: all items come here. `home` changes from call to call, so that one barrier is enough. */
static inline struct products products_sum(__local float4 (*home)[2][TX + 1], uint x, uint y, struct products p)
{
#if GANG > 1
    #pragma unroll
    for (uint mask = TX; mask < TX * GANG; mask *= 2) {
        p.sk = warp_add4(p.sk, mask);
        p.sq = warp_add4(p.sq, mask);
        p.kk = warp_add(p.kk, mask);
        p.qq = warp_add(p.qq, mask);
        p.kq = warp_add(p.kq, mask);
    }
#endif
#if FLOORS > 1
    if (y % GANG == 0) {
        home[y / GANG][0][x] = p.sk;
        home[y / GANG][1][x] = p.sq;
        if (x == 0)
            home[y / GANG][0][TX] = (float4)(p.kk, p.qq, p.kq, 0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 scalars = (float4)(0);
    p.sk = p.sq = (float4)(0);
    #pragma unroll
    for (uint i = 0; i < FLOORS; i++) {
        p.sk += home[i][0][x];
        p.sq += home[i][1][x];
        scalars += home[i][0][TX];
    }
    p.kk = scalars.x;
    p.qq = scalars.y;
    p.kq = scalars.z;
#endif
    return p;
}

/* ROWS elements from row `first` of q or k; those past K are 0. */
#if ROWS == 16
#define WIDTH 16
#elif ROWS == 8
#define WIDTH 8
#else
#define WIDTH 4
#endif
#if K % TY == 0 && VEC >= ROWS && ROWS == WIDTH
#include "lanes.cl"
#define LOAD_ROWS(T, e, p, first)                                                                                      \
    {                                                                                                                  \
        const VFLOAT v_ = LDA(T, WIDTH, (p) + (first));                                                                \
        UNPACK(e, v_);                                                                                                 \
    }
#else
#define LOAD_ROWS(T, e, p, first)                                                                                      \
    _Pragma("unroll") for (uint r_ = 0; r_ < ROWS; r_++)                                                               \
        (e)[r_] = (first) + r_ < K ? LD(T, p, (first) + r_) : 0.0f;
#endif

/* Rows of a state, `step` elements apart; of an item outside the state zeros, and nothing is stored. */
#define HAS_ROW(r) (inside && (K % TY == 0 || row + (r) < K))
static inline void load_state(float4 s[ROWS], __global const float *home, ulong step, uint row, bool inside)
{
    #pragma unroll
    for (uint r = 0; r < ROWS; r++)
        s[r] = HAS_ROW(r) ? LDA(f32, 4, home + r * step) : (float4)(0);
}

static inline void store_state(__global float *home, const float4 s[ROWS], ulong step, uint row, bool inside)
{
    #pragma unroll
    for (uint r = 0; r < ROWS; r++)
        if (HAS_ROW(r))
            STA(f32, 4, home + r * step, s[r]);
}

GROUP_SIZE(TX * TY) __kernel void gdn_decode_rows(IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_G, g), IN(T_BETA, beta),
    IN(f32, A_log), IN(f32, dt_bias), OUT(f32, state), IN(i32, slot), OUT(T_O, o), const ulong B, const ulong T,
    const ulong H, const ulong HV, const ulong SLOTS, const float l2norm_eps, const float scale)
{
    __local float4 meeting[2][FLOORS][2][TX + 1];
    const uint x = get_local_id(0) % TX, y = get_local_id(0) / TX, row = y * ROWS;
    const ulong group = get_group_id(0), head = group / ((V + 4 * TX - 1) / (4 * TX)), b = divide(head, HV);
    const ulong hv = head - b * HV, hk = divide(hv, divide(HV, H));
    const uint column = (uint)(group % ((V + 4 * TX - 1) / (4 * TX))) * 4 * TX + 4 * x;
    const ulong owner = state_of(slot + slot_at.x, b, SLOTS);
    if (owner == SKIPPED)
        return;
    const bool inside = V % (4 * TX) == 0 || column < V;
    __global float *home = ROW3(state, owner, hv, row) + column;
    float4 s[ROWS];
    /* Addresses of packed rows are known but for the first, which saves registers. */
    const bool packed = state_at.w == V;
    if (packed)
        load_state(s, home, V, row, inside);
    else
        load_state(s, home, state_at.w, row, inside);
    for (ulong t = 0; t < T; t++) {
        float key[ROWS], query[ROWS];
        LOAD_ROWS(T_K, key, ROW3(k, b, t, hk), row)
        LOAD_ROWS(T_Q, query, ROW3(q, b, t, hk), row)
        const float decay = exp(log_gate(LD(T_G, ROW2(g, b, t), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv));
        const float write = beta_value(LD(T_BETA, ROW2(beta, b, t), hv));
        const float4 value = inside ? LDA(T_V, 4, ROW3(v, b, t, hv) + column) : (float4)(0);
        struct products sum = {(float4)(0), (float4)(0), 0, 0, 0};
        #pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            sum.sk += s[r] * key[r];
            sum.sq += s[r] * query[r];
            sum.kk += key[r] * key[r];
            sum.qq += query[r] * query[r];
            sum.kq += key[r] * query[r];
        }
        sum = products_sum(meeting[t % 2], x, y, sum);
        const float fk = row_factor(sum.kk, l2norm_eps);
        const float4 delta = fk * write * (value - decay * fk * sum.sk);
        #pragma unroll
        for (uint r = 0; r < ROWS; r++)
            s[r] = s[r] * decay + key[r] * delta;
        if (inside && y == 0)
            STA(T_O, 4, ROW3(o, b, t, hv) + column,
                scale * row_factor(sum.qq, l2norm_eps) * (decay * sum.sq + sum.kq * delta));
    }
    if (packed)
        store_state(home, s, V, row, inside);
    else
        store_state(home, s, state_at.w, row, inside);
}
