/* SPDX-License-Identifier: MIT */
/*
 * gdn_prepare on matrix engines; gdn_prepare.cl says what it computes and how its tensors lie. K is a multiple of 16.
 *
 * Launch    B*NT * H * ceil(HV/H / 2) groups of 128 items: a group serves a chunk and two heads that share a head of k,
 *           the last of an odd number alone. Heads are neighbours, as in memory.
 * How       four warps make k k^T, 16 rows each, of which row i holds column i of every L. Of both heads they put L,
 *           transposed, into local memory; its 16 x 16 blocks on the diagonal are inverted by substitution in f32, an
 *           item a column; then a strip of 16 rows of A a warp, the long ones of one head with the short ones of the
 *           other, from its block on the diagonal leftwards: A_ij = -(sum over j < m <= i of A_im L_mj) (I + L_jj)^-1.
 *           Sums serve as left operands as they stand, and go to memory as they stand: an item has four neighbours.
 * Traffic   k once for two heads, the second time mostly from cache with l2norm; q twice; outputs once. Local: 64 rows
 *           of k, which give way to L of both heads.
 * Numerics  mma.cl's; in 16 bits L, the inverses of its blocks and each block of A are rounded once. Differences of
 *           gates come from sums in two floats: a gate of -800 leaves its mild neighbours exact. Tokens past a short
 *           chunk's end count as zero. NaN spreads through the 16 tokens of its block, and from there on.
 */
#ifndef K
#define K 128
#define T_K f32
#define T_GATE f32
#define T_BETA f32
#define T_Q f32
#define T_A f32
#define T_Q_OUT f32
#define T_K_OUT f32
#define MATH 0
#endif
#ifndef HAS_BETA_OUT
#define L2NORM 1
#define HAS_BETA_OUT 1
#define HAS_Q_OUT 1
#define HAS_K_OUT 1
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#define MMA_DEPTH K
#include "common.cl"
#include "gdn_keys_mma.cl"
#include "gdn_solve_mma.cl"

#define ITEMS 128
#define HEADS 2 /* ITEMS / CHUNK */
#define PARTS (CHUNK / 4 / MMA_CHUNK) /* that an item has of a row of k k^T, MMA_CHUNK elements each */

/* What stands in the room of k later: of each head L, then of each the blocks on its diagonal. In uint4. */
#define L_ROOM (CHUNK * L_PITCH / MMA_CHUNK)
#define D_ROOM (D_SIZE / 4)
#define K_ROOM MMA_TILE(CHUNK, K_LINES)
#define ROOM (K_ROOM > HEADS * (L_ROOM + D_ROOM) ? K_ROOM : HEADS * (L_ROOM + D_ROOM))

/* What a group knows of a head's tokens. Between tokens of different blocks exp(g_j - g_i) is a product: what is left of
 * i when j's block begins, and of that at j. So few exponentials are made. Neither overflows: log gates are not
 * positive. */
struct head {
    __local const float2 *gates;
    __local const float *weight; /* minus beta times k's factor */
    __local const float *onward; /* that times exp(g_j - g of its block's first token) */
};

/* Puts what an item has of L's columns i and i + 8, from k k^T, where they belong, and the blocks on the diagonal in D
 * too. Its rows in c are already scaled by their own factors. */
MMA_FN void put_columns(struct mma m, __local ELEM(MMA_TYPE) *L, __local float *D, const float4 c[TOKENS][MMA_CHUNK],
                        uint i, struct head head)
{
    const float2 low = head.gates[i], high = head.gates[i + 8];
    MMA_UNROLL
    for (uint part = 0; part < PARTS; part++) {
        const uint first = part * 4 * MMA_CHUNK, j = first + m.col * MMA_CHUNK;
        float x[2][MMA_CHUNK];
        if (first + 4 * MMA_CHUNK <= i / BLOCK * BLOCK) /* above the diagonal */
            continue;
        if (first > i) {
            const float2 begin = head.gates[j / BLOCK * BLOCK];
            const float left[2] = {since(begin, low), since(begin, high)};
            mma_read_f32(x[0], head.onward + j);
            MMA_UNROLL
            for (uint f = 0; f < MMA_CHUNK; f++) {
                x[1][f] = x[0][f] * left[1] * PART_OF(c[part / 2][f], false, part % 2);
                x[0][f] = x[0][f] * left[0] * PART_OF(c[part / 2][f], true, part % 2);
            }
        } else {
            mma_read_f32(x[0], head.weight + j);
            MMA_UNROLL
            for (uint f = 0; f < MMA_CHUNK; f++) {
                const float2 gate = head.gates[j + f];
                const float weight = x[0][f];
                x[0][f] = keep(j + f > i, weight * since(gate, low) * PART_OF(c[part / 2][f], true, part % 2));
                x[1][f] = keep(j + f > i + 8, weight * since(gate, high) * PART_OF(c[part / 2][f], false, part % 2));
            }
            MMA_UNROLL
            for (uint r = 0; r < 2; r++)
                MMA_UNROLL
                for (uint f = 0; f < MMA_CHUNK; f += 4)
                    if (j / BLOCK == i / BLOCK)
                        *(__local float4 *)(D + D_AT(i + 8 * r, j + f)) =
                            (float4)(x[r][f], x[r][f + 1], x[r][f + 2], x[r][f + 3]);
        }
        MMA_UNROLL
        for (uint r = 0; r < 2; r++)
            put_chunk(L + L_COLUMN(i + 8 * r) * L_PITCH + j, x[r]);
    }
}

/* Stores a strip of A: rows i and i + 8 begin at low and high; x begins with the block on the diagonal. */
MMA_FN void store_strip(struct mma m, const float4 x[8], uint strip, __global ELEM(T_A) *low, __global ELEM(T_A) *high,
                        bool low_there, bool high_there)
{
    MMA_UNROLL
    for (uint n = 0; n < BLOCKS; n++) {
        const uint at = (strip - n) % BLOCKS * BLOCK + 4 * m.col; /* past block 0 those above the diagonal */
        const bool below = n <= strip;
        const float4 a = x[2 * n], b = x[2 * n + 1];
        if (low_there)
            CAT(mma_store4_, T_A)(low + at, (float4)(keep(below, a.x), keep(below, a.y), keep(below, b.x),
                                                     keep(below, b.y)));
        if (high_there)
            CAT(mma_store4_, T_A)(high + at, (float4)(keep(below, a.z), keep(below, a.w), keep(below, b.z),
                                                      keep(below, b.w)));
    }
}

/* Chunks of a row, dealt to its four items. */
#define FOR_CHUNKS(m, at) for (uint at = (m).col * MMA_CHUNK; at < K; at += 4 * MMA_CHUNK)

#if HAS_Q_OUT
MMA_FN float square_sum(struct mma m, __global const ELEM(T_Q) *row)
{
    float sum = 0;
    FOR_CHUNKS(m, at) {
        float f[MMA_CHUNK];
        CAT(mma_load_, T_Q)(f, row + at);
        for (uint n = 0; n < MMA_CHUNK; n++)
            sum += f[n] * f[n];
    }
    return sum;
}

MMA_FN void store_query(struct mma m, __global ELEM(T_Q_OUT) *to, __global const ELEM(T_Q) *row, float factor)
{
    FOR_CHUNKS(m, at) {
        float f[MMA_CHUNK];
        CAT(mma_load_, T_Q)(f, row + at);
        for (uint n = 0; n < MMA_CHUNK; n++)
            f[n] *= factor;
        CAT(mma_store_, T_Q_OUT)(to + at, f);
    }
}
#endif

#if HAS_K_OUT
MMA_FN void store_key(struct mma m, __global ELEM(T_K_OUT) *to, __local const uint4 *tile, uint row, float factor)
{
    FOR_CHUNKS(m, at) {
        float f[MMA_CHUNK];
        CAT(mma_read_, T_K)(f, (__local const ELEM(T_K) *)(tile + MMA_AT(row, at / MMA_CHUNK, K_LINES)));
        for (uint n = 0; n < MMA_CHUNK; n++)
            f[n] *= factor;
        CAT(mma_store_, T_K_OUT)(to + at, f);
    }
}
#endif

__kernel GROUP_SIZE(ITEMS)
void gdn_prepare_mma(IN(T_K, k), IN(T_GATE, gate), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias), IN(T_Q, q),
                     IN(i32, cu_seqlens), OUT(T_G, g), OUT(T_A, A), OUT(f32, beta_out), OUT(T_Q_OUT, q_out),
                     OUT(T_K_OUT, k_out), GDN_SIZES, const float l2norm_eps)
{
    __local uint4 room[ROOM] MMA_TILE_ALIGNED;
    __local ELEM(MMA_TYPE) *const L = (__local ELEM(MMA_TYPE) *)room;
    __local float *const D = (__local float *)(room + HEADS * L_ROOM);
    __local float2 sums[2 * ITEMS], gates[ITEMS];
    __local float weight[ITEMS] __attribute__((aligned(16))), onward[ITEMS] __attribute__((aligned(16)));
#if L2NORM
    __local float factor[CHUNK];
#endif
#if HAS_Q_OUT
    __local float squares[CHUNK][4]; /* of q, by an item's part of a row */
#endif
    MMA_HERE(m, ITEMS);

    const uint id = (uint)get_local_id(0), warp = id / MMA_WARP;
    const uint sharing = (uint)HV / (uint)H, pairs = (sharing + 1) / 2;
    const uint group = (uint)get_group_id(0), pair = group % pairs, hk = group / pairs % (uint)H;
    const uint hv = hk * sharing + 2 * pair, heads = min(sharing - 2 * pair, 2u);
    const uint served = MMA_SKIP(true) ? heads : HEADS;
    const struct gdn_chunk chunk = gdn_chunk(group / pairs / (uint)H, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const uint rows = chunk.rows;
    if (MMA_SKIP(rows == 0))
        return;
    const ulong b = chunk.batch, t = chunk.token;

    mma_copy_rows(room, K_LINES, K_LINES, CHUNK, ROW3(k, b, t, hk), k_at.z, rows, K, id, ITEMS);
    mma_commit();

    /* Two by two: items of the first head, items of the second. */
    const uint token = id % CHUNK, own = hv + id / CHUNK;
    const bool there = token < rows && id / CHUNK < heads;
    float of_gate = 0, of_beta = 0;
    if (there) {
        of_gate = log_gate(LD(T_GATE, ROW2(gate, b, t + token), own), A_log + A_log_at.x, dt_bias + dt_bias_at.x, own);
        of_beta = beta_value(LD(T_BETA, ROW2(beta, b, t + token), own));
#if HAS_BETA_OUT
        ROW2(beta_out, b, t + token)[own] = of_beta;
#endif
    }
    const float2 sum = running_sum(of_gate, sums, ITEMS);
    if (there)
        ROW2(g, b, t + token)[own] = GATE_PAIR(sum);
    gates[id] = sum;

    const uint i = warp * BLOCK + m.row; /* this item's rows of k and columns of L: i and i + 8 */
#if HAS_Q_OUT
    MMA_LOOP
    for (uint r = 0; r < 2; r++)
        if (pair == 0 && i + 8 * r < rows)
            squares[i + 8 * r][m.col] = square_sum(m, ROW3(q, b, t + i + 8 * r, hk));
#endif
    MMA_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    float4 c[TOKENS][MMA_CHUNK] = {{0}};
    MMA_LOOP
    for (uint l = 0; l < K_LINES; l++) {
        struct mma_a a[4];
        tile_operand(m, a, room, i, l);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            if (!MMA_SKIP((j + 1) * MMA_LINE <= warp * BLOCK)) /* above the diagonal of L */
                mma_nk(m, c[j], MMA_CHUNK, a, room, K_LINES, j * MMA_LINE, l);
    }
#if L2NORM
    diagonal_factors(m, factor, c, i, l2norm_eps);
    barrier(CLK_LOCAL_MEM_FENCE);
    of_beta *= factor[token];
    MMA_UNROLL
    for (uint n = 0; n < CHUNK / 8; n++)
        c[n / MMA_CHUNK][n % MMA_CHUNK] *= (float4)((float2)factor[i], (float2)factor[i + 8]);
#endif
    weight[id] = -of_beta;
    onward[id] = -of_beta * since(sum, gates[id / BLOCK * BLOCK]);
#if HAS_K_OUT || HAS_Q_OUT
    MMA_LOOP
    for (uint r = 0; r < 2; r++) {
        const uint row = i + 8 * r;
        if (pair > 0 || row >= rows)
            continue;
#if HAS_K_OUT
        store_key(m, ROW3(k_out, b, t + row, hk), room, row, factor[row]);
#endif
#if HAS_Q_OUT
        store_query(m, ROW3(q_out, b, t + row, hk), ROW3(q, b, t + row, hk),
                    row_factor(squares[row][0] + squares[row][1] + squares[row][2] + squares[row][3], l2norm_eps));
#endif
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    MMA_LOOP
    for (uint n = 0; n < served; n++) {
        const struct head head = {gates + n * CHUNK, weight + n * CHUNK, onward + n * CHUNK};
        put_columns(m, L + n * CHUNK * L_PITCH, D + n * D_SIZE, c, i, head);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    invert_diagonals(L, D);
    barrier(CLK_LOCAL_MEM_FENCE);

    MMA_LOOP
    for (uint n = 0; n < served; n++) {
        const uint strip = n ? BLOCKS - 1 - warp : warp, row = strip * BLOCK + m.row;
        float4 x[8];
        solve_inverse(m, x, L + n * CHUNK * L_PITCH, strip);
        store_strip(m, x, strip, ROW3(A, b, t + row, hv + n), ROW3(A, b, t + row + 8, hv + n),
                    n < heads && row < rows, n < heads && row + 8 < rows);
    }
}
