/* SPDX-License-Identifier: MIT */
/*
 * gdn_prepare on any device: per chunk of 64 tokens and per head
 *     g = running sum of the log gates
 *     A = (I + L)^-1,   L_ij = beta_i (k_i . k_j) exp(g_i - g_j) below the diagonal, zero on and above it
 * and, if asked for, beta after its sigmoid and the normalised rows of q and k.
 * (Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024: the UT transform of their section 3.)
 *
 * Layout    k, q, k_out, q_out [B][T][H][K], gate, beta, g, beta_out [B][T][HV], A [B][T][HV][64]. Head hv reads k of
 *           head hv / (HV/H).
 * Variants  plain: an item makes one column of A, and the g and the rows of the token of that number. Column j of the
 *                  inverse obeys the delta rule itself: x_i = -beta_i exp(gate_i) (k_i . s), then
 *                  s = exp(gate_i) s + x_i k_i. So K floats of private memory are all it needs; any group size.
 *           tile:  a group serves a chunk of one head of k: k k^T once, in registers (16 x 16 items with 4 x 4 elements
 *                  each, 16 apart), then for each of the HV/H heads L in local memory, its 16 x 16 diagonal blocks
 *                  inverted column by column, and the block rows below by A_i = -A_ii (L_i A_above).
 * Launch    plain: B*NT * HV * 64 items, rounded up to whole groups.
 *           tile:  B*NT * H groups of 256.
 * Traffic   tile: k twice with l2norm, else once, q twice; all outputs once; 26 KB of local memory.
 * Numerics  f32. Decays are products of exp(gate) (plain) or come from sums in two floats (tile): a gate of -800 leaves
 *           its mild neighbours exact. Tokens past a short chunk's end are not read and count as zero.
 */
#include "common.cl"
#include "gdn.cl"
#include "gdn_gates.cl"

#ifndef K
#define K 128
#define T_K f32
#define T_GATE f32
#define T_BETA f32
#define T_Q f32
#define T_A f32
#define T_Q_OUT f32
#define T_K_OUT f32
#endif
#ifndef HAS_BETA_OUT
#define HAS_BETA_OUT 1
#define HAS_Q_OUT 1
#define HAS_K_OUT 1
#endif

#define PREPARE_ARGS                                                                                                   \
    IN(T_K, k), IN(T_GATE, gate), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias), IN(T_Q, q), IN(i32, cu_seqlens), \
        OUT(T_G, g), OUT(T_A, A), OUT(f32, beta_out), OUT(T_Q_OUT, q_out), OUT(T_K_OUT, k_out), GDN_SIZES,             \
        const float l2norm_eps

#define LOG_GATE(b, t, hv)                                                                                             \
    log_gate(LD(T_GATE, ROW2(gate, b, t), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv)
#define BETA(b, t, hv) beta_value(LD(T_BETA, ROW2(beta, b, t), hv))

/* ---- plain ---- */

static inline float k_factor(__global const ELEM(T_K) *row, float eps)
{
    float squares = 0;
    for (uint d = 0; L2NORM && d < K; d++)
        squares += LD(T_K, row, d) * LD(T_K, row, d);
    return row_factor(squares, eps);
}

static inline float q_factor(__global const ELEM(T_Q) *row, float eps)
{
    float squares = 0;
    for (uint d = 0; L2NORM && d < K; d++)
        squares += LD(T_Q, row, d) * LD(T_Q, row, d);
    return row_factor(squares, eps);
}

__kernel void gdn_prepare_plain(PREPARE_ARGS)
{
    const ulong id = get_global_id(0), hv = id / CHUNK % HV, c = id / CHUNK / HV, hk = hv / (HV / H);
    const uint j = id % CHUNK;
    if (c >= B * NT)
        return;
    const struct gdn_chunk chunk = gdn_chunk(c, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;

    float2 sum = (float2)(0);
    float s[K]; /*  sum over m < i of x_m exp(g_i - g_m) k_m */
    for (uint d = 0; d < K; d++)
        s[d] = 0;
    for (uint i = 0; i < chunk.rows; i++) {
        float x = 0;
        if (i <= j)
            sum = sum_add(sum, LOG_GATE(b, t + i, hv));
        if (i >= j) {
            __global const ELEM(T_K) *row = ROW3(k, b, t + i, hk);
            const float factor = k_factor(row, l2norm_eps), decay = exp(LOG_GATE(b, t + i, hv));
            float dot = 0;
            for (uint d = 0; d < K; d++)
                dot += LD(T_K, row, d) * factor * s[d];
            x = i == j ? 1.0f : -BETA(b, t + i, hv) * decay * dot;
            for (uint d = 0; d < K; d++)
                s[d] = s[d] * decay + x * factor * LD(T_K, row, d);
        }
        ST(T_A, ROW3(A, b, t + i, hv), j, x);
    }
    if (j >= chunk.rows)
        return;
    ROW2(g, b, t + j)[hv] = GATE_PAIR(sum);
#if HAS_BETA_OUT
    ROW2(beta_out, b, t + j)[hv] = BETA(b, t + j, hv);
#endif
    if (hv % (HV / H))
        return;
#if HAS_K_OUT
    const float fk = k_factor(ROW3(k, b, t + j, hk), l2norm_eps);
    for (uint d = 0; d < K; d++)
        ST(T_K_OUT, ROW3(k_out, b, t + j, hk), d, fk * LD(T_K, ROW3(k, b, t + j, hk), d));
#endif
#if HAS_Q_OUT
    const float fq = q_factor(ROW3(q, b, t + j, hk), l2norm_eps);
    for (uint d = 0; d < K; d++)
        ST(T_Q_OUT, ROW3(q_out, b, t + j, hk), d, fq * LD(T_Q, ROW3(q, b, t + j, hk), d));
#endif
}

/* ---- tile ---- */

#define TILE 16            /* items along each side of the group, and rows of a block of L */
#define DEPTH 32           /* columns of k that pass through local memory at a time */
#define PAD (DEPTH + 1)    /* so that items of a column meet different banks */
#define LD_L (CHUNK + 1)
#define GROUP (TILE * TILE)

/* kk[r][c] = k_i . k_j for i = y + 16r, j = x + 16c, c <= r. `stage` holds CHUNK*PAD floats. */
static inline void keys_product(float kk[4][4], __local float *stage, __global const ELEM(T_K) *rows, ulong stride,
                                uint count)
{
    const uint x = get_local_id(0) % TILE, y = get_local_id(0) / TILE;
    for (uint r = 0; r < 4; r++)
        for (uint c = 0; c < 4; c++)
            kk[r][c] = 0;
    for (uint d0 = 0; d0 < K; d0 += DEPTH) {
        for (uint e = get_local_id(0); e < CHUNK * DEPTH; e += GROUP) {
            const uint i = e / DEPTH, d = e % DEPTH;
            stage[i * PAD + d] = i < count && d0 + d < K ? LD(T_K, rows + i * stride, d0 + d) : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = 0; d < DEPTH; d++) {
            float left[4], right[4];
            for (uint r = 0; r < 4; r++) {
                left[r] = stage[(y + TILE * r) * PAD + d];
                right[r] = stage[(x + TILE * r) * PAD + d];
            }
            for (uint r = 0; r < 4; r++)
                for (uint c = 0; c <= r; c++)
                    kk[r][c] += left[r] * right[c];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* gate[0] + ... + gate[last], last < CHUNK. */
static inline float2 running_sum(__local const float *gate, uint last)
{
    float2 sum = (float2)(0);
    for (uint m = 0; m < CHUNK; m++)
        sum = sum_add(sum, m <= last ? gate[m] : 0.0f);
    return sum;
}

/* Overwrites L (unit lower triangular without its diagonal, rows LD_L apart) by (I + L)^-1, zeros above the diagonal.
 * `stage`: TILE * CHUNK floats. */
static inline void invert(__local float *L, __local float *stage)
{
    const uint id = get_local_id(0), x = id % TILE, y = id / TILE;
    float column[TILE];
    __local float *diagonal = L + (y % 4) * TILE * (LD_L + 1);
    if (id < CHUNK) /* column x of diagonal block y */
        for (uint i = 0; i < TILE; i++) {
            float v = i == x ? 1.0f : 0.0f;
            for (uint m = 0; m < i; m++)
                v -= diagonal[i * LD_L + m] * column[m];
            column[i] = v;
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id < CHUNK)
        for (uint i = 0; i < TILE; i++)
            diagonal[i * LD_L + x] = column[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    ROLLED for (uint block = 1; block < CHUNK / TILE; block++) {
        __local float *row = L + (block * TILE + y) * LD_L;
        for (uint c = 0; c < block; c++) { /* stage = L_i A_above */
            float v = 0;
            for (uint m = c * TILE; m < block * TILE; m++)
                v += row[m] * L[m * LD_L + c * TILE + x];
            stage[y * CHUNK + c * TILE + x] = v;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint c = 0; c < block; c++) { /* A_i = -A_ii stage */
            float v = 0;
            for (uint m = 0; m < TILE; m++)
                v -= row[block * TILE + m] * stage[m * CHUNK + c * TILE + x];
            row[c * TILE + x] = v;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#if HAS_Q_OUT
/* q_out = q divided by its norm, a row for each 16 items at a time. `stage`: CHUNK * PAD floats. */
static inline void normalise_queries(__local float *stage, __global const ELEM(T_Q) *rows, ulong stride,
                                     __global ELEM(T_Q_OUT) *out, ulong out_stride, uint count, float eps)
{
    const uint x = get_local_id(0) % TILE, y = get_local_id(0) / TILE;
    for (uint i = y; i < CHUNK; i += TILE) {
        float squares = 0;
        for (uint d = x; L2NORM && i < count && d < K; d += TILE)
            squares += LD(T_Q, rows + i * stride, d) * LD(T_Q, rows + i * stride, d);
        stage[i * PAD + x] = squares;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = y; i < count; i += TILE) {
        float squares = 0;
        for (uint m = 0; m < TILE; m++)
            squares += stage[i * PAD + m];
        for (uint d = x; d < K; d += TILE)
            ST(T_Q_OUT, out + i * out_stride, d, row_factor(squares, eps) * LD(T_Q, rows + i * stride, d));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

GROUP_SIZE(GROUP) __kernel void gdn_prepare_tile(PREPARE_ARGS)
{
    __local float stage[CHUNK * PAD], L[CHUNK * LD_L], weight[CHUNK], factor[CHUNK];
    __local float2 sum[CHUNK];
    const uint id = get_local_id(0), x = id % TILE, y = id / TILE;
    const ulong hk = get_group_id(0) % H;
    const struct gdn_chunk chunk = gdn_chunk(get_group_id(0) / H, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;
    const uint rows = chunk.rows;
    if (rows == 0)
        return;

    float kk[4][4];
    keys_product(kk, stage, ROW3(k, b, t, hk), k_at.z, rows);
    for (uint r = 0; r < 4; r++)
        if (x == y)
            factor[y + TILE * r] = row_factor(kk[r][r], l2norm_eps);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint r = 0; r < 4; r++)
        for (uint c = 0; c <= r; c++)
            kk[r][c] *= factor[y + TILE * r] * factor[x + TILE * c];
#if HAS_K_OUT
    for (uint e = id; e < rows * K; e += GROUP)
        ST(T_K_OUT, ROW3(k_out, b, t + e / K, hk), e % K, factor[e / K] * LD(T_K, ROW3(k, b, t + e / K, hk), e % K));
#endif
#if HAS_Q_OUT
    normalise_queries(stage, ROW3(q, b, t, hk), q_at.z, ROW3(q_out, b, t, hk), q_out_at.z, rows, l2norm_eps);
#endif

    for (ulong hv = hk * (HV / H); hv < (hk + 1) * (HV / H); hv++) {
        if (id < CHUNK) {
            stage[id] = id < rows ? LOG_GATE(b, t + id, hv) : 0.0f;
            weight[id] = id < rows ? BETA(b, t + id, hv) : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const float2 running = running_sum(stage, id);
        if (id < CHUNK)
            sum[id] = running;
        if (id < rows) {
            ROW2(g, b, t + id)[hv] = GATE_PAIR(running);
#if HAS_BETA_OUT
            ROW2(beta_out, b, t + id)[hv] = weight[id];
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint r = 0; r < 4; r++)
            for (uint c = 0; c <= r; c++) {
                const uint i = y + TILE * r, j = x + TILE * c;
                const float2 since = sum[i] - sum[j];
                L[i * LD_L + j] = j < i ? weight[i] * kk[r][c] * exp(since.x + since.y) : 0.0f;
            }
        barrier(CLK_LOCAL_MEM_FENCE);
        invert(L, stage);
        for (uint e = id; e < rows * CHUNK; e += GROUP) {
            const uint i = e / CHUNK, j = e % CHUNK;
            ST(T_A, ROW3(A, b, t + i, hv), j, j <= i ? L[i * LD_L + j] : 0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
