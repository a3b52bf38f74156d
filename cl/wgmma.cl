/* SPDX-License-Identifier: MIT */
/*
 * The matrix primitive of Hopper: four warps multiply together, the right operand straight from local memory, while
 * they go on with something else. Operands are f16 or bf16 (WG_TYPE), sums f32. An item's place is that of its warp's
 * 32 and of the four warps' 128:
 *
 *   C[64][8n]   float4 c[n]    sums: c[j].x and .y are columns 8j + 2 * m.col and the next of row 16 * warp + m.row;
 *                              .z and .w the same of 8 rows on
 *   A[64][16]   uint4          a left operand: columns 16s and on of a C, wg_operand(c, s)
 *   panel       __local uint4[]   a right operand: rows of 64 elements, 128 bytes; chunk h of 16 bytes of row r stands
 *                              at WG_AT(r, h), so that 8 rows meet no bank twice. It begins at a multiple of 1024
 *                              bytes. A wider operand is several panels, one behind the other.
 *
 *   wg_nk(m, c, n, a, panel, s, first)   C += A @ X^T, X columns 16s and on of a panel's 64 rows; n is 8
 *   wg_kn(m, c, n, a, panel, s, first)   C += A @ X, X rows 16s and on; n is 8, or 16: of two panels
 *
 * `first`: C counts as zero before. wg_begin() comes between what items do to C and A and the products that take them,
 * after wg_pin(c, n) where C is not `first`. A group of products ends with wg_commit(); WG_WAIT(n) waits until all
 * groups but the last n are done, in the order in which they began. Till then no one may write over what they read, or
 * touch their C, which then takes wg_pin(c, n). What items wrote into a panel is seen after wg_written(), by those who
 * multiply.
 *
 * The instructions are of sm_90a, which no driver compiles OpenCL C for. They stand in comments, and program.c takes
 * the compiler's PTX, retargets it and takes the comments away. Where mma.cl's instruction is emulated, so are they:
 * every call must be reached by the four warps, which are the whole work-group.
 */
#ifndef WD_WGMMA_CL
#define WD_WGMMA_CL

#ifndef MMA_TYPE
#define MMA_TYPE bf16
#endif
#include "mma.cl"

#if MMA_WIDE
#define WG_TYPE f16 /* of the MMA_PARTS of an f32 */
#else
#define WG_TYPE MMA_TYPE
#endif

#define WG_ITEMS 128
#define WG_LINE 64                            /* elements of a panel's row */
#define WG_PANEL (64 * 8)                     /* chunks of 16 bytes in a panel */
#define WG_AT(r, h) ((r)*8 + ((h) ^ (r) % 8)) /* where chunk h of row r stands */

MMA_FN uint4 wg_operand(const float4 *c, uint s)
{
    const float4 x = c[2 * s], y = c[2 * s + 1];
    return (uint4)(CAT(mma_pack_, WG_TYPE)(x.x, x.y), CAT(mma_pack_, WG_TYPE)(x.z, x.w),
                   CAT(mma_pack_, WG_TYPE)(y.x, y.y), CAT(mma_pack_, WG_TYPE)(y.z, y.w));
}

#if WD_WGMMA
#define WG_WARP_SYNC() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define WG_WARP_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#endif

/* ---- Rows to and from panels ---- */

/* Starts copying 64 rows of `width` elements, of which `rows` are there and the others are zeros; all items take part,
 * and each copies so many rows apart that its chunks stand at even distances. mma_commit() and MMA_WAIT() count it. */
MMA_FN void wg_copy_rows(__local uint4 *panels, __global const ELEM(WG_TYPE) *x, ulong pitch, uint rows, uint width)
{
    const uint id = (uint)get_local_id(0), row = id / (width / 8), h = id % (width / 8);
    panels += h / 8 * WG_PANEL + WG_AT(row, h % 8);
    x += row * pitch + h * 8;
    MMA_UNROLL
    for (uint i = 0; i < 64; i += WG_ITEMS / (width / 8))
        mma_copy(row + i < rows, panels + i * 8, x + i * pitch);
}

/* Stores `rows` of such rows. */
MMA_FN void wg_store_rows(__global ELEM(WG_TYPE) *x, ulong pitch, uint rows, __local const uint4 *panels, uint width)
{
    const uint id = (uint)get_local_id(0), row = id / (width / 8), h = id % (width / 8);
    panels += h / 8 * WG_PANEL + WG_AT(row, h % 8);
    x += row * pitch + h * 8;
    MMA_UNROLL
    for (uint i = 0; i < 64; i += WG_ITEMS / (width / 8))
        if (row + i < rows)
            MMA_STORE4(uint, (__global uint *)(x + i * pitch), panels[i * 8]);
}

/* ---- Operands to and from panels ---- */

/* A step of an operand or of packed sums, as wg_operand() has it. wg_take_rows, wg_put_rows: the warp's 16 rows,
 * columns 16s and on. wg_take_columns, wg_put_columns: transposed, the warp's 16 columns, rows 16s and on. */
#if MMA_BULK
MMA_FN uint wg_place(__local const uint4 *panel, uint row, uint h) { return (uint)(size_t)(panel + WG_AT(row, h)); }

MMA_FN uint wg_row_place(__local const uint4 *panel, uint s)
{
    const uint id = (uint)get_local_id(0);
    return wg_place(panel, id / MMA_WARP * 16 + id % 16, 2 * s + id % MMA_WARP / 16);
}

MMA_FN uint wg_column_place(__local const uint4 *panel, uint s)
{
    const uint id = (uint)get_local_id(0);
    return wg_place(panel, 16 * s + id % MMA_WARP / 16 * 8 + id % 8, id / MMA_WARP * 2 + id % 16 / 8);
}

/* Four matrices of 8 rows of 16 bytes, of which each item says where one row is. */
#define WG_MATRICES(x, way, place)                                                                                     \
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" way ".shared.b16 {%0,%1,%2,%3}, [%4];"                            \
                     : "=r"((x).x), "=r"((x).y), "=r"((x).z), "=r"((x).w)                                              \
                     : "r"(place)                                                                                      \
                     : "memory")
#define WG_LOAD(name, place, way)                                                                                      \
    MMA_FN uint4 name(struct mma m, __local const uint4 *panel, uint s)                                                \
    {                                                                                                                  \
        uint4 x;                                                                                                       \
        WG_MATRICES(x, way, place(panel, s));                                                                          \
        return x;                                                                                                      \
    }
#define WG_STORE(name, place, way)                                                                                     \
    MMA_FN void name(struct mma m, __local uint4 *panel, uint s, uint4 x)                                              \
    {                                                                                                                  \
        __asm__ volatile("stmatrix.sync.aligned.m8n8.x4" way ".shared.b16 [%0], {%1,%2,%3,%4};"                        \
                         :                                                                                             \
                         : "r"(place(panel, s)), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)                                \
                         : "memory");                                                                                  \
    }
WG_LOAD(wg_take_rows, wg_row_place, "")
WG_LOAD(wg_take_columns, wg_column_place, ".trans")
WG_STORE(wg_put_rows, wg_row_place, "")
WG_STORE(wg_put_columns, wg_column_place, ".trans")
#else
/* Where element (row, column) stands, in elements. */
MMA_FN uint wg_spot(uint row, uint column) { return WG_AT(row, column / 8) * 8 + column % 8; }

/* Two neighbours, of which the second is in the next row if transposed. */
MMA_FN uint wg_take_word(__local const uint4 *panel, uint row, uint column, bool transposed)
{
    __local const ushort *x = (__local const ushort *)panel;
    return transposed ? x[wg_spot(column, row)] | (uint)x[wg_spot(column + 1, row)] << 16
                      : x[wg_spot(row, column)] | (uint)x[wg_spot(row, column + 1)] << 16;
}

MMA_FN void wg_put_word(__local uint4 *panel, uint row, uint column, bool transposed, uint x)
{
    __local ushort *to = (__local ushort *)panel;
    to[transposed ? wg_spot(column, row) : wg_spot(row, column)] = (ushort)x;
    to[transposed ? wg_spot(column + 1, row) : wg_spot(row, column + 1)] = (ushort)(x >> 16);
}

MMA_FN uint4 wg_take(struct mma m, __local const uint4 *panel, uint s, bool transposed)
{
    const uint row = (uint)get_local_id(0) / MMA_WARP * 16 + m.row, column = 16 * s + 2 * m.col;
    return (uint4)(
        wg_take_word(panel, row, column, transposed), wg_take_word(panel, row + 8, column, transposed),
        wg_take_word(panel, row, column + 8, transposed), wg_take_word(panel, row + 8, column + 8, transposed));
}

MMA_FN void wg_put(struct mma m, __local uint4 *panel, uint s, bool transposed, uint4 x)
{
    const uint row = (uint)get_local_id(0) / MMA_WARP * 16 + m.row, column = 16 * s + 2 * m.col;
    wg_put_word(panel, row, column, transposed, x.x);
    wg_put_word(panel, row + 8, column, transposed, x.y);
    wg_put_word(panel, row, column + 8, transposed, x.z);
    wg_put_word(panel, row + 8, column + 8, transposed, x.w);
}
#define wg_take_rows(m, panel, s) wg_take(m, panel, s, false)
#define wg_take_columns(m, panel, s) wg_take(m, panel, s, true)
#define wg_put_rows(m, panel, s, x) wg_put(m, panel, s, false, x)
#define wg_put_columns(m, panel, s, x) wg_put(m, panel, s, true, x)
#endif

/* ---- The instruction ---- */

#if WD_WGMMA

#define WG_C4(c, j) "+f"(c[j].x), "+f"(c[j].y), "+f"(c[j].z), "+f"(c[j].w)
#define WG_ASM "//sm_90a: "

MMA_FN void wg_begin(void) { __asm__ volatile(WG_ASM "wgmma.fence.sync.aligned;" ::: "memory"); }
MMA_FN void wg_commit(void) { __asm__ volatile(WG_ASM "wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define WG_WAIT(n) __asm__ volatile(WG_ASM "wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory")
/* From here on the items of these four warps have n registers each, fewer ("dec") or more ("inc") than before, which
 * others of the group must have given up. The assembler heeds it only where what a group's items begin with is certain:
 * where GROUP_SIZE() leaves them fewer than they could use, and local memory has room for no other group. */
#define WG_REGISTERS(way, n) __asm__ volatile(WG_ASM "setmaxnreg." way ".sync.aligned.u32 %0;" ::"n"(n) : "memory")

/* Here n float4s of a C stand in their registers: the compiler, which knows of no group, would touch them earlier after
 * WG_WAIT(), or later before wg_begin(). */
MMA_FN void wg_pin(float4 *c, uint n)
{
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        __asm__ volatile("" : WG_C4(c, j)::"memory");
}

MMA_FN void wg_written(void) { __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* What the instruction is told of an operand in panels of 128 bytes' swizzle: where it begins, and how far the next
 * panel and the next 8 rows are. */
MMA_FN ulong wg_panel(__local const uint4 *at)
{
    return (ulong)(((uint)(size_t)at & 0x3ffff) >> 4) | (ulong)(WG_PANEL * 16 >> 4) << 16 |
           (ulong)(8 * 128 >> 4) << 32 | 1ul << 62;
}

#if CAT(MMA_IS_F16_, WG_TYPE)
#define WG_TYPES "k16.f32.f16.f16"
#else
#define WG_TYPES "k16.f32.bf16.bf16"
#endif
#define WG_C16(c, j) WG_C4(c, j), WG_C4(c, j + 1), WG_C4(c, j + 2), WG_C4(c, j + 3)
#define WG_C32(c, j) WG_C16(c, j), WG_C16(c, j + 4)
#define WG_C64(c, j) WG_C32(c, j), WG_C32(c, j + 8)
#define WG_NAMES_32                                                                                                    \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"   \
    "%30,%31"
#define WG_NAMES_64                                                                                                    \
    WG_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,"    \
                "%56,%57,%58,%59,%60,%61,%62,%63"

/* One instruction for `n` columns, of so deep a step of such types. The names are those of the asm's operands: sums, a,
 * the descriptor, not `first`. `transposed`: ", 0" or ", 1", or nothing where types may not be. */
#define WG_PRODUCT(n, types, names, a_names, x_name, more_name, transposed, sums)                                      \
    __asm__ volatile(WG_ASM "{ .reg .pred p; setp.ne.b32 p, " more_name                                                \
                            ", 0; wgmma.mma_async.sync.aligned.m64n" n types " {" names "}, {" a_names "}, " x_name    \
                            ", p, 1, 1" transposed "; }"                                                               \
                     : sums                                                                                            \
                     : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(x), "r"(first ? 0 : 1))
#define WG_PRODUCTS(types, transposed)                                                                                 \
    do {                                                                                                               \
        if (n == 8)                                                                                                    \
            WG_PRODUCT("64", types, WG_NAMES_32, "%32,%33,%34,%35", "%36", "%37", transposed, WG_C32(c, 0));           \
        else                                                                                                           \
            WG_PRODUCT("128", types, WG_NAMES_64, "%64,%65,%66,%67", "%68", "%69", transposed, WG_C64(c, 0));          \
    } while (0)

MMA_FN void wg_nk(struct mma m, float4 *c, uint n, uint4 a, __local const uint4 *panel, uint s, bool first)
{
    const ulong x = wg_panel(panel) + 2 * s;
    WG_PRODUCTS(WG_TYPES, ", 0");
}

MMA_FN void wg_kn(struct mma m, float4 *c, uint n, uint4 a, __local const uint4 *panel, uint s, bool first)
{
    const ulong x = wg_panel(panel) + s * 16 * 8;
    WG_PRODUCTS(WG_TYPES, ", 1");
}

#else

#define wg_begin()
#define wg_commit()
#define WG_WAIT(n)
#define wg_pin(c, n)
#define wg_written()

MMA_FN float wg_float_f16(ushort x) { return mma_unpack_f16(x).x; }
MMA_FN float wg_float_bf16(ushort x) { return mma_unpack_bf16(x).x; }

/* Element (row, column) of panels. */
MMA_FN float wg_element(__local const uint4 *panel, uint row, uint column)
{
    const uint at = WG_AT(row, column % WG_LINE / 8) * 8 + column % 8;
    return CAT(wg_float_, WG_TYPE)(((__local const ushort *)(panel + column / WG_LINE * WG_PANEL))[at]);
}

/* What the instruction makes of n of a C's float4s. */
MMA_FN void wg_emulated(struct mma m, float4 *c, uint n, uint4 a, __local const uint4 *panel, uint s, bool transposed,
                        bool first)
{
    vstore4(a, 0, m.exchange + (m.row * 4 + m.col) * MMA_EXCHANGE);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < n; j++) {
        float4 sum = first ? (float4)(0) : c[j];
        for (uint k = 0; k < 16; k++) {
            __local const uint *from = m.exchange + (m.row * 4 + k % 8 / 2) * MMA_EXCHANGE + k / 8 * 2;
            const float low = CAT(wg_float_, WG_TYPE)((ushort)(from[0] >> k % 2 * 16));
            const float high = CAT(wg_float_, WG_TYPE)((ushort)(from[1] >> k % 2 * 16));
            const uint column = 8 * j + 2 * m.col, depth = 16 * s + k;
            const float x = transposed ? wg_element(panel, depth, column) : wg_element(panel, column, depth);
            const float y = transposed ? wg_element(panel, depth, column + 1) : wg_element(panel, column + 1, depth);
            sum += (float4)(low * x, low * y, high * x, high * y);
        }
        c[j] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#define wg_nk(m, c, n, a, panel, s, first) wg_emulated(m, c, n, a, panel, s, false, first)
#define wg_kn(m, c, n, a, panel, s, first) wg_emulated(m, c, n, a, panel, s, true, first)

#endif

/* ---- Whole rows ---- */

/* The warp's 16 rows of a tile of panels, `steps` steps of a left operand. */
MMA_FN void wg_take_all_rows(struct mma m, uint4 *a, __local const uint4 *tile, uint steps)
{
    MMA_UNROLL
    for (uint s = 0; s < steps; s++)
        a[s] = wg_take_rows(m, tile + s / 4 * WG_PANEL, s % 4);
}

/* C[64][64] (+)= A @ X^T, X the 64 rows of a tile of panels: steps `from` to `to` of it, of which 0 is the first. */
MMA_FN void wg_nk_rows(struct mma m, float4 c[8], const uint4 *a, __local const uint4 *tile, uint from, uint to)
{
    MMA_UNROLL
    for (uint s = from; s < to; s++)
        wg_nk(m, c, 8, a[s], tile + s / 4 * WG_PANEL, s % 4, s == 0);
}

#endif
