/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u on Hopper's matrix engine: recompute_w_u_mma.cl's formula, (A * beta) @ v and (A * beta * exp(g)) @ k,
 * for 16-bit types.
 *
 * Layout    as recompute_w_u.cl. k, v, A, w and u of one 16-bit type; K and V 64 or 128.
 * Launch    B*NT * HV groups of 128 items; heads are neighbours, as in memory.
 * How       A's rows are left operands in registers, k and v right operands as they lie in local memory. w and u come 64
 *           columns at a time, so that few registers are needed and many groups wait together, and go out through the
 *           warp's own rows of A, which it has no more use for.
 * Traffic   each tensor once. Local: 64 rows of k, of v and of A.
 * Numerics  sums are f32; A times its scale is rounded once more. Rows past a short chunk's end count as zero. That A
 *           is lower changes nothing.
 */
#ifndef K
#define K 128
#define V 128
#define T_K bf16
#define T_V bf16
#define T_A bf16
#define T_W bf16
#define T_U bf16
#endif

#define MMA_TYPE T_K
#include "common.cl"
#include "gdn.cl"
#include "wgmma.cl"

#define TILE(width) ((width) / WG_LINE * WG_PANEL) /* 64 rows */

/* Two neighbours in a word, times their scales; 0 for those of tokens past the end, where A may hold anything. */
MMA_FN uint scaled(uint word, __local const float *scale, uint column, uint rows)
{
    const float2 x = CAT(mma_unpack_, T_A)(word) * *(__local const float2 *)(scale + column);
    return CAT(mma_pack_, T_A)(column < rows ? x.x : 0, column + 1 < rows ? x.y : 0);
}

MMA_FN void scaled_operand(struct mma m, uint4 to[4], const uint4 a[4], __local const float *scale, uint rows)
{
    MMA_UNROLL
    for (uint s = 0; s < 4; s++) {
        const uint column = 16 * s + 2 * m.col;
        to[s] = (uint4)(scaled(a[s].x, scale, column, rows), scaled(a[s].y, scale, column, rows),
                        scaled(a[s].z, scale, column + 8, rows), scaled(a[s].w, scale, column + 8, rows));
    }
}

/* Makes `width` columns, 64 at a time, and stores their first `rows` rows. */
MMA_FN void make(struct mma m, __global ELEM(MMA_TYPE) *out, ulong pitch, uint rows, const uint4 a[4],
                 __local const uint4 *tile, uint width, __local uint4 *room)
{
    MMA_UNROLL
    for (uint panel = 0; panel < width / WG_LINE; panel++) {
        float4 c[WG_LINE / 8];
        wg_begin();
        MMA_UNROLL
        for (uint s = 0; s < 4; s++)
            wg_kn(m, c, WG_LINE / 8, a[s], tile + panel * WG_PANEL, s, s == 0);
        wg_commit();
        WG_WAIT(0);
        wg_pin(c, WG_LINE / 8);
        MMA_UNROLL
        for (uint s = 0; s < 4; s++)
            wg_put_rows(m, room, s, wg_operand(c, s));
        wg_store_own_rows(out + panel * WG_LINE, pitch, rows, room);
    }
}

__kernel GROUP_SIZE(WG_ITEMS)
void recompute_w_u_wgmma(IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(T_G, g), IN(i32, cu_seqlens),
                         OUT(T_W, w), OUT(T_U, u), GDN_SIZES)
{
    __local uint4 tile_v[TILE(V)] __attribute__((aligned(1024)));
    __local uint4 tile_k[TILE(K)] __attribute__((aligned(1024)));
    __local uint4 tile_a[WG_PANEL] __attribute__((aligned(1024)));
    __local float scale_u[CHUNK] __attribute__((aligned(16))), scale_w[CHUNK] __attribute__((aligned(16)));
    MMA_HERE(m, WG_ITEMS);

    const uint group = (uint)get_group_id(0), hv = group % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_chunk chunk = gdn_chunk(group / (uint)HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const uint id = (uint)get_local_id(0), rows = chunk.rows;
    const ulong b = chunk.batch, t = chunk.token;
    if (rows == 0)
        return;

    wg_copy_rows(tile_a, ROW3(A, b, t, hv), A_at.z, rows, CHUNK);
    wg_copy_rows(tile_v, ROW3(v, b, t, hv), v_at.z, rows, V);
    mma_commit();
    wg_copy_rows(tile_k, ROW3(k, b, t, hk), k_at.z, rows, K);
    mma_commit();
    if (id < CHUNK) {
        const float of_u = id < rows ? ROW2(beta, b, t + id)[hv] : 0;
        scale_u[id] = of_u;
        scale_w[id] = id < rows ? of_u * mma_exp(GATE_SUM(ROW2(g, b, t + id)[hv])) : 0;
    }
    MMA_WAIT(1);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);

    uint4 a[4], scaled_a[4];
    wg_take_all_rows(m, a, tile_a, 4);
    scaled_operand(m, scaled_a, a, scale_u, rows);
    make(m, ROW3(u, b, t, hv), u_at.z, rows, scaled_a, tile_v, V, tile_a);
    scaled_operand(m, scaled_a, a, scale_w, rows);
    MMA_WAIT(0);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);
    make(m, ROW3(w, b, t, hv), w_at.z, rows, scaled_a, tile_k, K, tile_a);
}
