/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_o on Hopper's matrix engine: chunk_fwd_o_mma.cl's formula for 16-bit types.
 *
 * Layout    as there; o too of the one 16-bit type. K and V 64 or 128.
 * Launch    B*NT * HV groups of 128 items; heads are neighbours, as in memory.
 * How       q's rows are left operands in registers, h, k and v_new right operands as they lie in local memory. P never
 *           leaves its warp: its sums stand where a left operand's elements do. o takes h's place on the way out.
 * Traffic   v_new, h and o once, q and k once for each head, mostly from cache. Local: 64 rows of q, k and v_new, and h.
 * Numerics  sums are f32; P is rounded once, scaled. Rows past a short chunk's end count as zero.
 */
#ifndef K
#define K 128
#define V 128
#define T_Q bf16
#define T_K bf16
#define T_V_NEW bf16
#define T_H bf16
#define T_O bf16
#endif

#define MMA_TYPE T_K
#include "common.cl"
#include "gdn.cl"
#include "wgmma.cl"

#define TILE(width) ((width) / WG_LINE * WG_PANEL) /* 64 rows */
#define STEPS (K / 16)
#define SUMS (V / 8) /* float4s of 64 tokens' rows */

__kernel GROUP_SIZE(WG_ITEMS)
void chunk_fwd_o_wgmma(IN(T_Q, q), IN(T_K, k), IN(T_V_NEW, v_new), IN(T_H, h), IN(T_G, g), IN(i32, cu_seqlens),
                       OUT(T_O, o), GDN_SIZES, const float scale)
{
    __local uint4 tile_q[TILE(K)] __attribute__((aligned(1024)));
    __local uint4 tile_k[TILE(K)] __attribute__((aligned(1024)));
    __local uint4 tile_h[K / 64 * TILE(V)] __attribute__((aligned(1024)));
    __local uint4 tile_v[TILE(V)] __attribute__((aligned(1024)));
    __local ELEM(T_G) gates[CHUNK];
    MMA_HERE(m, WG_ITEMS);

    const uint group = (uint)get_group_id(0), hv = group % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_chunk chunk = gdn_chunk(group / (uint)HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const uint id = (uint)get_local_id(0), rows = chunk.rows;
    const ulong b = chunk.batch, t = chunk.token;
    if (rows == 0)
        return;

    wg_copy_rows(tile_q, ROW3(q, b, t, hk), q_at.z, rows, K);
    wg_copy_rows(tile_k, ROW3(k, b, t, hk), k_at.z, rows, K);
    mma_commit();
    MMA_UNROLL
    for (uint r = 0; r < K; r += 64)
        wg_copy_rows(tile_h + r / 64 * TILE(V), ROW3(h, b, chunk.index, hv) + r * V, V, 64, V);
    wg_copy_rows(tile_v, ROW3(v_new, b, t, hv), v_new_at.z, rows, V);
    mma_commit();
    if (id < CHUNK)
        gates[id] = ROW2(g, b, t + min(id, rows - 1))[hv];
    MMA_WAIT(1);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);

    float4 p[CHUNK / 8], c[SUMS]; /* P, o */
    uint4 a[STEPS], of_p[4];
    wg_take_all_rows(m, a, tile_q, STEPS);
    wg_begin();
    wg_nk_rows(m, p, a, tile_k, 0, STEPS);
    wg_commit();
    MMA_WAIT(0);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);
    wg_begin();
    MMA_UNROLL
    for (uint s = 0; s < STEPS; s++)
        wg_kn(m, c, SUMS, a[s], tile_h + s / 4 * TILE(V), s % 4, s == 0);
    wg_commit();

    const uint warp = id / MMA_WARP, i = warp * 16 + m.row; /* this item's rows: i and i + 8 */
    const ELEM(T_G) low = gates[i], high = gates[i + 8];
    WG_WAIT(1);
    wg_pin(p, CHUNK / 8);
    MMA_UNROLL
    for (uint n = 0; n < CHUNK / 8; n++) {
        const uint j = 8 * n + 2 * m.col;
        if (n / 2 > warp) { /* above the diagonal */
            p[n] = 0;
            continue;
        }
        const ELEM(T_G) first = gates[j], second = gates[j + 1];
        const float4 x = p[n] * scale *
                         (float4)(mma_exp(GATE_SUM(low - first)), mma_exp(GATE_SUM(low - second)),
                                  mma_exp(GATE_SUM(high - first)), mma_exp(GATE_SUM(high - second)));
        p[n] = (float4)(keep(j <= i, x.x), keep(j + 1 <= i, x.y), keep(j <= i + 8, x.z), keep(j + 1 <= i + 8, x.w));
    }
    MMA_UNROLL
    for (uint s = 0; s < 4; s++)
        of_p[s] = wg_operand(p, s);
    const float2 decay = scale * (float2)(mma_exp(GATE_SUM(low)), mma_exp(GATE_SUM(high)));
    WG_WAIT(0);
    wg_pin(c, SUMS);
    MMA_UNROLL
    for (uint n = 0; n < SUMS; n++)
        c[n] *= decay.xxyy;
    wg_pin(c, SUMS);
    wg_begin();
    MMA_UNROLL
    for (uint s = 0; s < 4; s++)
        wg_kn(m, c, SUMS, of_p[s], tile_v, s, false);
    wg_commit();
    barrier(CLK_LOCAL_MEM_FENCE); /* no one reads h any more */
    WG_WAIT(0);
    wg_pin(c, SUMS);
    MMA_UNROLL
    for (uint s = 0; s < V / 16; s++)
        wg_put_rows(m, tile_h + s / 4 * WG_PANEL, s % 4, wg_operand(c, s));
    barrier(CLK_LOCAL_MEM_FENCE);
    wg_store_rows(ROW3(o, b, t, hv), o_at.z, rows, tile_h, V);
}
