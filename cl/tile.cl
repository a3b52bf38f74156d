/* SPDX-License-Identifier: MIT */
/*
 * Matrix products for GPUs by plain multiply-adds: register tiles fed from local memory.
 *
 * A group of TILE_ITEMS = TX * TY items computes CHUNK = 64 rows by COLUMNS = 4*TX columns. Item (x, y) sums MR rows by
 * four columns: rows TILE_ROW(r) = y + r*TY, columns 4*x .. 4*x+3. So per four steps of depth it reads MR + 4 vectors
 * of four floats for 16*MR multiply-adds; rows of a factor are padded by four floats (TILE_PITCH), and neither way to
 * read it meets a bank twice. Factors come in stages of DEPTH: stage, barrier, product, barrier.
 *
 * A kernel must not return before its last barrier, not even all items at once: PoCL 3.1 then drops conditions behind
 * it. Let loops of zero steps do nothing instead.
 *
 * Staging moves four elements at a time, 16 bytes of f32 where VEC says that rows are aligned for it. What lies outside
 * a matrix is not read and counts as zero.
 */
#ifndef WD_TILE
#define WD_TILE

#include "common.cl"
#include "gdn.cl"

#ifndef TX
#define TX 16
#endif
#ifndef MR
#define MR 4
#endif

#define TY (CHUNK / MR)
#define TILE_ITEMS (TX * TY)
#define COLUMNS (4 * TX)
#define DEPTH 32
#define TILE_PITCH(columns) ((columns) + 4)
#define TILE_ROW(r) (tile_y() + (r)*TY)
#define TILE_LOCAL(name, size) __local float name[size] __attribute__((aligned(16)))

static inline uint tile_item(void) { return (uint)get_local_id(0); }
static inline uint tile_x(void) { return tile_item() % TX; }
static inline uint tile_y(void) { return tile_item() / TX; }

/* tile_load_T: four elements at p, of which the first `left` exist; zeros for the others.
 * tile_store_T: the first `left` of four.
 * TILE_TAIL(left): how many there are if not four. The compiler sees that a width of whole fours has none. */
#define TILE_TAIL(left) ((left) > 0 ? (left)&3 : 0)
#define TILE_ACCESS(T)                                                                                                 \
    static inline float4 tile_load_##T(__global const ELEM(T) *p, int left)                                            \
    {                                                                                                                  \
        if (left >= 4)                                                                                                 \
            return LDA(T, 4, p);                                                                                       \
        const int n = TILE_TAIL(left);                                                                                 \
        return (float4)(n > 0 ? LD(T, p, 0) : 0.0f, n > 1 ? LD(T, p, 1) : 0.0f, n > 2 ? LD(T, p, 2) : 0.0f, 0.0f);     \
    }                                                                                                                  \
    static inline void tile_store_##T(__global ELEM(T) *p, float4 v, int left)                                         \
    {                                                                                                                  \
        const int n = TILE_TAIL(left);                                                                                 \
        if (left >= 4) {                                                                                               \
            STA(T, 4, p, v);                                                                                           \
            return;                                                                                                    \
        }                                                                                                              \
        if (n > 0)                                                                                                     \
            ST(T, p, 0, v.x);                                                                                          \
        if (n > 1)                                                                                                     \
            ST(T, p, 1, v.y);                                                                                          \
        if (n > 2)                                                                                                     \
            ST(T, p, 2, v.z);                                                                                          \
    }

TILE_ACCESS(f32)
TILE_ACCESS(f16)
TILE_ACCESS(bf16)

#define TILE_LOAD(T, p, left) CAT(tile_load_, T)(p, left)
#define TILE_STORE(T, p, v, left) CAT(tile_store_, T)(p, v, left)

/* The whole group copies a matrix of ROWS x COLS floats to local memory: rows of `pitch` floats from rows of elements
 * `stride` apart at p, of which `rows` x `cols` exist (either may be negative). `value` says what is kept of x, the four
 * elements at row r, column c. The group takes TILE_STEP whole rows at a time, and ROWS is a multiple of that. */
#define TILE_STEP(COLS) (TILE_ITEMS / ((COLS) / 4))
#define TILE_STAGE(T, out, pitch, ROWS, COLS, p, stride, rows, cols, value)                                            \
    {                                                                                                                  \
        const uint c = tile_item() % ((COLS) / 4) * 4;                                                                 \
        uint r = tile_item() / ((COLS) / 4);                                                                           \
        __global const ELEM(T) *from_ = (p) + r * (stride) + c;                                                        \
        __local float *to_ = (out) + r * (pitch) + c;                                                                  \
        for (uint n_ = 0; n_ < (ROWS) / TILE_STEP(COLS); n_++) {                                                       \
            const float4 x = TILE_LOAD(T, from_, (int)r < (int)(rows) ? (int)(cols) - (int)c : 0);                     \
            *(__local float4 *)to_ = value;                                                                            \
            r += TILE_STEP(COLS);                                                                                      \
            from_ += TILE_STEP(COLS) * (stride);                                                                       \
            to_ += TILE_STEP(COLS) * (pitch);                                                                          \
        }                                                                                                              \
    }

static inline void tile_zero(float4 acc[MR])
{
    _Pragma("unroll") for (uint r = 0; r < MR; r++)
        acc[r] = 0;
}

/* acc += a @ b: a [CHUNK][depth] with rows of a_pitch, b [depth][COLUMNS] with rows of b_pitch. */
static inline void tile_multiply(float4 acc[MR], __local const float *a, uint a_pitch, __local const float *b,
                                 uint b_pitch, uint depth)
{
    a += tile_y() * a_pitch;
    b += 4 * tile_x();
    ROLLED for (uint d = 0; d < depth; d += 4) {
        const float4 b0 = *(__local const float4 *)(b + d * b_pitch);
        const float4 b1 = *(__local const float4 *)(b + (d + 1) * b_pitch);
        const float4 b2 = *(__local const float4 *)(b + (d + 2) * b_pitch);
        const float4 b3 = *(__local const float4 *)(b + (d + 3) * b_pitch);
        _Pragma("unroll") for (uint r = 0; r < MR; r++) {
            const float4 v = *(__local const float4 *)(a + r * TY * a_pitch + d);
            acc[r] += v.x * b0;
            acc[r] += v.y * b1;
            acc[r] += v.z * b2;
            acc[r] += v.w * b3;
        }
    }
}

/* acc += a @ b^T: b [4*TX][depth]; here an item's columns are x, x + TX, x + 2*TX and x + 3*TX. */
static inline void tile_multiply_nt(float4 acc[MR], __local const float *a, uint a_pitch, __local const float *b,
                                    uint b_pitch, uint depth)
{
    a += tile_y() * a_pitch;
    b += tile_x() * b_pitch;
    ROLLED for (uint d = 0; d < depth; d += 4) {
        const float4 b0 = *(__local const float4 *)(b + d);
        const float4 b1 = *(__local const float4 *)(b + TX * b_pitch + d);
        const float4 b2 = *(__local const float4 *)(b + 2 * TX * b_pitch + d);
        const float4 b3 = *(__local const float4 *)(b + 3 * TX * b_pitch + d);
        _Pragma("unroll") for (uint r = 0; r < MR; r++) {
            const float4 v = *(__local const float4 *)(a + r * TY * a_pitch + d);
            acc[r] += v.x * (float4)(b0.x, b1.x, b2.x, b3.x);
            acc[r] += v.y * (float4)(b0.y, b1.y, b2.y, b3.y);
            acc[r] += v.z * (float4)(b0.z, b1.z, b2.z, b3.z);
            acc[r] += v.w * (float4)(b0.w, b1.w, b2.w, b3.w);
        }
    }
}

/* acc += a^T @ b: a [depth][CHUNK]; here an item's rows are TILE_ROW_TN(r): four neighbours at a time. */
#define TILE_ROW_TN(r) (4 * tile_y() + (r) / 4 * 4 * TY + (r) % 4)

static inline void tile_multiply_tn(float4 acc[MR], __local const float *a, uint a_pitch, __local const float *b,
                                    uint b_pitch, uint depth)
{
    a += 4 * tile_y();
    b += 4 * tile_x();
    ROLLED for (uint d = 0; d < depth; d++) {
        const float4 x = *(__local const float4 *)(b + d * b_pitch);
        _Pragma("unroll") for (uint r = 0; r < MR; r += 4) {
            const float4 v = *(__local const float4 *)(a + d * a_pitch + r * TY);
            acc[r] += v.x * x;
            acc[r + 1] += v.y * x;
            acc[r + 2] += v.z * x;
            acc[r + 3] += v.w * x;
        }
    }
}

#endif
