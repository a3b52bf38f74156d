/* SPDX-License-Identifier: MIT */
/*
 * Matrix products for CPUs: a register block of RB rows by NC vectors of VL floats against a packed panel.
 *
 * A panel is PANEL = NC*VL columns of the right factor, row by row in private memory, converted to float, scaled and
 * padded with zeros on the way in: the product's inner loop reads it in order from the first-level cache, however far
 * apart the rows of the tensor lie. The left factor is packed too, as plain floats, and read an element at a time.
 * RB*NC accumulators, NC panel vectors and one broadcast element want registers: 4 x 2 or 6 x 2 where there are 16,
 * 8 x 2 where there are 32. (The scheme of Goto and van de Geijn: "Anatomy of High-Performance Matrix
 * Multiplication", 2008, with one level of packing.)
 *
 * Pieces are matrices with a constant number of padded rows and columns and a true number of them at run time: the
 * true ones bound loads and stores, so that nothing outside a tensor's rows is touched.
 */
#ifndef WD_CPU_PANEL
#define WD_CPU_PANEL

#include "cpu.cl"

#ifndef RB
#define RB 4
#define NC 2
#endif

#define PANEL (NC * VL)
#define PANELS(columns) (((columns) + PANEL - 1) / PANEL)
/* Columns of `width` from column c on, c a panel's first: a constant where there are whole panels only, which spares
 * the code for others. */
#define PANEL_LEFT(width, c) ((width) % PANEL ? (width) - (c) : PANEL)
#define ROUND_UP(n, step) (((n) + (step)-1) / (step) * (step))
#define UNROLL _Pragma("unroll")

static inline void block_zero(VFLOAT acc[RB][NC])
{
    UNROLL for (uint r = 0; r < RB; r++)
        UNROLL for (uint n = 0; n < NC; n++)
            acc[r][n] = 0;
}

/* acc += a @ b over `depth`, where element (r, d) of a is a[r*row + d*step] and row d of b is a panel's. A product of
 * 64 is a short loop, and eight sums are no more than hide the latency of a multiply-add: it has to be unrolled, but by
 * 4 gdn_forward took 1.4 times as long. */
static inline void block_multiply(VFLOAT acc[RB][NC], const float *a, uint row, uint step, const VFLOAT (*b)[NC],
                                  uint depth)
{
    _Pragma("unroll 2") for (uint d = 0; d < depth; d++, a += step, b++)
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] += a[r * row] * b[0][n];
}

/* panel_load_T: the next `columns` elements at p, at most PANEL of them, as a row of a panel; zeros behind them.
 * panel_store_T: the first `columns` elements of such a row.
 * row_pack_T: `count` elements times `factor` as plain floats, padded with zeros to a multiple of PANEL. */
#define PANEL_ACCESS(T)                                                                                                \
    static inline void panel_load_##T(VFLOAT row[NC], __global const ELEM(T) *p, uint columns)                         \
    {                                                                                                                  \
        UNROLL for (uint n = 0; n < NC; n++) {                                                                         \
            if (columns >= (n + 1) * VL) {                                                                             \
                row[n] = LDVL(T, p + n * VL);                                                                          \
            } else {                                                                                                   \
                float part[VL] = {0};                                                                                  \
                for (uint c = n * VL; c < columns; c++)                                                                \
                    part[c - n * VL] = LD(T, p, c);                                                                    \
                row[n] = CAT(vload, VL)(0, part);                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void panel_store_##T(__global ELEM(T) *p, const VFLOAT row[NC], uint columns)                        \
    {                                                                                                                  \
        UNROLL for (uint n = 0; n < NC; n++) {                                                                         \
            if (columns >= (n + 1) * VL) {                                                                             \
                STVL(T, p + n * VL, row[n]);                                                                           \
            } else {                                                                                                   \
                float part[VL];                                                                                        \
                CAT(vstore, VL)(row[n], 0, part);                                                                      \
                for (uint c = n * VL; c < columns; c++)                                                                \
                    ST(T, p, c, part[c - n * VL]);                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void row_pack_##T(float *out, __global const ELEM(T) *p, uint count, float factor)                   \
    {                                                                                                                  \
        for (uint c = 0; c < count; c += PANEL) {                                                                      \
            VFLOAT row[NC];                                                                                            \
            panel_load_##T(row, p + c, count - c);                                                                     \
            UNROLL for (uint n = 0; n < NC; n++)                                                                       \
                CAT(vstore, VL)(row[n] * factor, 0, out + c + n * VL);                                                 \
        }                                                                                                              \
    }

PANEL_ACCESS(f32)
PANEL_ACCESS(f16)
PANEL_ACCESS(bf16)

/* The first `rows` of a block's rows, `stride` elements apart from p on. Row by row: unrolled, tails and all, it would
 * be most of a kernel's code. */
#define BLOCK_STORE(T, p, stride, acc, rows, columns)                                                                  \
    do {                                                                                                               \
        VFLOAT block_[RB][NC];                                                                                         \
        UNROLL for (uint r_ = 0; r_ < RB; r_++)                                                                        \
            UNROLL for (uint n_ = 0; n_ < NC; n_++)                                                                    \
                block_[r_][n_] = (acc)[r_][n_];                                                                        \
        for (uint r_ = 0; r_ < min((uint)RB, rows); r_++)                                                              \
            PANEL_STORE(T, (p) + r_ * (stride), block_[r_], columns);                                                  \
    } while (0)

/* Asks the cache for `count` elements at p. */
#define ROW_PREFETCH(p, count)                                                                                         \
    for (uint c_ = 0; c_ < (count); c_ += 16)                                                                          \
    PREFETCH((p) + c_)

#define PANEL_LOAD(T, row, p, columns) CAT(panel_load_, T)(row, p, columns)
#define PANEL_STORE(T, p, row, columns) CAT(panel_store_, T)(p, row, columns)
#define ROW_PACK(T, out, p, count, factor) CAT(row_pack_, T)(out, p, count, factor)

#endif
