/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_o on matrix engines: per chunk of 64 tokens and per head
 *     o = scale * ( (q @ h) * exp(g) + P @ v_new ),    P = [i >= j] (q @ k^T) * exp(g_i - g_j)
 *
 * Layout    q, k [B][T][H][K], v_new [B][T][HV][V], h [B][NT][HV][K][V], g [B][T][HV]; out o [B][T][HV][V]. q, k, v_new
 *           and h of one type, o of any. K and V multiples of 16.
 * Params    SPLIT: groups that share o's columns, each with a P of its own. STAGES: buffers, at least 2.
 * Launch    B*NT * HV * SPLIT groups of 128 items: four warps of 16 rows of o each. Heads are neighbours, as in memory.
 * How       q's lines of depth go by: with each come that line of k and those rows of h, through a ring of STAGES
 *           buffers, and then v_new, a line's worth of tokens at a time. q is read by the warp that needs it, straight
 *           into operands. P never leaves its warp: the sums of q @ k^T stand where a left operand's elements do.
 * Traffic   v_new, h and o once, q and k SPLIT times. Local: STAGES * (8 KB + V lines of MMA_LINE rows).
 * Numerics  mma.cl's; in 16 bits P is rounded once more, scaled. The mask comes before anything is added up, so the
 *           exponentials of what it drops may be infinite. Rows past a short chunk's end count as zero.
 */
#ifndef K
#define K 128
#define V 128
#define T_Q f32
#define T_K f32
#define T_V_NEW f32
#define T_H f32
#define T_O f32
#define MATH 0
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef SPLIT
#define SPLIT 1
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#define MMA_DEPTH K
#include "common.cl"
#include "gdn.cl"
#include "mma.cl"

#define ITEMS 128
#define K_LINES MMA_LINES(K)
#define COLUMNS (V / SPLIT)
#define V_LINES MMA_LINES(COLUMNS)
#define TOKENS (CHUNK / MMA_LINE) /* lines of tokens in a chunk */
#define STEPS (K_LINES + TOKENS)

#define ROWS_SIZE MMA_TILE(MMA_LINE, V_LINES) /* a line's worth of rows of h or v_new, in chunks of 16 bytes */
#define KEYS_SIZE MMA_TILE(CHUNK, 1)          /* a line of k */
#define STAGE (ROWS_SIZE + KEYS_SIZE)

/* What step `s` multiplies by: a line of k and the rows of h that go with it, or rows of v_new. */
MMA_FN void fetch_step(__local uint4 *buffer, uint s, __global const ELEM(T_K) *k, ulong k_pitch,
                       __global const ELEM(T_H) *h, __global const ELEM(T_V_NEW) *v, ulong v_pitch, uint rows)
{
    const uint id = (uint)get_local_id(0);
    if (s < K_LINES) {
        const uint width = K % MMA_LINE == 0 ? MMA_LINE : min((uint)MMA_LINE, K - s * MMA_LINE);
        mma_copy_rows(buffer, V_LINES, V_LINES, MMA_LINE, h + s * MMA_LINE * V, V, width, COLUMNS,
                      id, ITEMS);
        mma_copy_rows(buffer + ROWS_SIZE, 1, 1, CHUNK, k + s * MMA_LINE, k_pitch, rows, width, id, ITEMS);
    } else if (s < STEPS) {
        const uint j = (s - K_LINES) * MMA_LINE;
        mma_copy_rows(buffer, V_LINES, V_LINES, MMA_LINE, v + j * v_pitch, v_pitch,
                      rows > j ? rows - j : 0, COLUMNS, id, ITEMS);
    }
    mma_commit();
}

/* P of rows i and i + 8 and of the line of tokens from j on: from the sums of q @ k^T. */
MMA_FN void gate(struct mma m, float4 *c, __local const ELEM(T_G) *g, uint i, uint j, float scale)
{
    const ELEM(T_G) g0 = g[i], g1 = g[i + 8];
    MMA_UNROLL
    for (uint x = 0; x < MMA_CHUNK; x++) {
        const uint j0 = j + m.col * MMA_CHUNK + x, j1 = j0 + 4 * MMA_CHUNK;
        const float4 y = c[x] * (float4)(mma_exp(GATE_SUM(g0 - g[j0])), mma_exp(GATE_SUM(g0 - g[j1])),
                                         mma_exp(GATE_SUM(g1 - g[j0])), mma_exp(GATE_SUM(g1 - g[j1]))) * scale;
        c[x] = (float4)(i >= j0 ? y.x : 0, i >= j1 ? y.y : 0, i + 8 >= j0 ? y.z : 0, i + 8 >= j1 ? y.w : 0);
    }
}

__kernel GROUP_SIZE(ITEMS)
void chunk_fwd_o_mma(IN(T_Q, q), IN(T_K, k), IN(T_V_NEW, v_new), IN(T_H, h), IN(T_G, g), IN(i32, cu_seqlens),
                     OUT(T_O, o), GDN_SIZES, const float scale)
{
    __local uint4 ring[STAGES * (ROWS_SIZE + KEYS_SIZE)] MMA_TILE_ALIGNED;
    __local ELEM(T_G) gates[CHUNK];
    MMA_HERE(m, ITEMS);

    const uint group = (uint)get_group_id(0) / SPLIT, column = (uint)get_group_id(0) % SPLIT * COLUMNS;
    const ulong hv = group % (uint)HV, hk = (uint)hv / ((uint)HV / (uint)H);
    const struct gdn_chunk chunk = gdn_chunk(group / (uint)HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    if (chunk.rows == 0)
        return;
    const ulong b = chunk.batch, t = chunk.token;
    const uint rows = chunk.rows;
    __global const ELEM(T_K) *k0 = ROW3(k, b, t, hk);
    __global const ELEM(T_V_NEW) *v0 = ROW3(v_new, b, t, hv) + column;
    __global const ELEM(T_H) *h0 = ROW3(h, b, chunk.index, hv) + column;
    MMA_UNROLL
    for (uint s = 0; s + 1 < STAGES; s++)
        fetch_step(ring + s * STAGE, s, k0, k_at.z, h0, v0, v_new_at.z, rows);

    const uint id = (uint)get_local_id(0), i = id / MMA_WARP * 16 + m.row; /* this item's rows: i and i + 8 */
    if (id < CHUNK)
        gates[id] = id < rows ? ROW2(g, b, t + id)[hv] : 0;
    __global const ELEM(T_Q) *low = ROW3(q, b, t + min(i, rows - 1), hk); /* rows past the end go nowhere */
    __global const ELEM(T_Q) *high = ROW3(q, b, t + min(i + 8, rows - 1), hk);
    uint4 next[4];
    mma_fetch(m, next, low, high, 0, K);

    float4 p[TOKENS][MMA_CHUNK] = {{0}}, c[V_LINES][MMA_CHUNK] = {{0}};
    struct mma_a a[4];
    MMA_LOOP
    for (uint s = 0; s < K_LINES; s++) {
        __local const uint4 *buffer = ring + s % STAGES * STAGE;
        MMA_WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        fetch_step(ring + (s + STAGES - 1) % STAGES * STAGE, s + STAGES - 1, k0, k_at.z, h0, v0, v_new_at.z, rows);
        mma_fetched(m, a, next);
        mma_fetch(m, next, low, high, s + 1 < K_LINES ? s + 1 : s, K);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            mma_nk(m, p[j], MMA_CHUNK, a, buffer + ROWS_SIZE, 1, j * MMA_LINE, 0);
        MMA_UNROLL
        for (uint line = 0; line < V_LINES; line++)
            mma_kn(m, c[line], a, buffer, V_LINES, 0, line);
    }

    const float e0 = scale * mma_exp(GATE_SUM(gates[i])), e1 = scale * mma_exp(GATE_SUM(gates[i + 8]));
    MMA_UNROLL
    for (uint line = 0; line < V_LINES; line++) {
        MMA_UNROLL
        for (uint j = 0; j < MMA_CHUNK; j++)
            c[line][j] *= (float4)(e0, e0, e1, e1);
    }
    MMA_UNROLL
    for (uint j = 0; j < TOKENS; j++) {
        const uint s = K_LINES + j;
        gate(m, p[j], gates, i, j * MMA_LINE, scale);
        mma_operand(m, a, p[j]);
        MMA_WAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        fetch_step(ring + (s + STAGES - 1) % STAGES * STAGE, s + STAGES - 1, k0, k_at.z, h0, v0, v_new_at.z, rows);
        MMA_UNROLL
        for (uint line = 0; line < V_LINES; line++) {
            if (!MMA_SKIP(j * MMA_LINE > i - m.row + 15)) /* all of P is masked */
                mma_kn(m, c[line], a, ring + s % STAGES * STAGE, V_LINES, 0, line);
        }
    }

    __global ELEM(T_O) *out = ROW3(o, b, t + i, hv) + column;
    MMA_UNROLL
    for (uint line = 0; line < V_LINES; line++)
        MMA_STORE_LINE(T_O, m, c[line], line, out, out + 8 * o_at.z, COLUMNS, i < rows, i + 8 < rows);
}
