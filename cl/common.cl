/* SPDX-License-Identifier: MIT */
/*
 * Shared primitives. Every kernel file starts by including this one, so each compiles alone; the library embeds
 * both and compiles prelude + common.cl + <op>.cl.
 *
 * Element types: a tensor X of type T_X (a macro: f32 f16 bf16 e4m3 e5m2 ue8m0 i32) is declared IN(X) or OUT(X),
 * read by LD(T_X, ptr, i) and written by ST(T_X, ptr, i, value), always as float, rounding half to even.
 * LDV/STV move VN consecutive elements (VN 2, 4, 8, 16) as floatVN; no alignment needed.
 */
#ifndef WD_COMMON
#define WD_COMMON

#ifndef WD_CPU
#define WD_CPU 0
#endif
#ifndef WD_SM
#define WD_SM 0
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

/* ---- Element types ---- */

#define ELEM(T) CAT(elem_, T)
typedef float elem_f32;
typedef half elem_f16; /* a storage type: only vload_half and vstore_half touch it, so no cl_khr_fp16 is needed */
typedef ushort elem_bf16;
typedef uchar elem_e4m3;
typedef uchar elem_e5m2;
typedef uchar elem_ue8m0;
typedef int elem_i32;

/* A tensor parameter: pointer and, as `<name>_at`, offset and outer strides in elements. */
#define IN(T, name) __global const ELEM(T) *restrict name, const ulong4 name##_at
#define OUT(T, name) __global ELEM(T) *restrict name, const ulong4 name##_at
/* The row of `name` at outer indices (i), (i, j), (i, j, k). */
#define ROW1(name, i) (name + name##_at.x + (ulong)(i)*name##_at.y)
#define ROW2(name, i, j) (ROW1(name, i) + (ulong)(j)*name##_at.z)
#define ROW3(name, i, j, k) (ROW2(name, i, j) + (ulong)(k)*name##_at.w)

#endif
