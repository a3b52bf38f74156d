/* SPDX-License-Identifier: MIT */
/* Items of a warp that exchange values without local memory: NVIDIA from sm_70 on, by inline PTX. Work-groups are whole
 * warps, and all items of a warp come here together. */
#ifndef WD_WARP
#define WD_WARP

#include "common.cl"

#if WD_SM >= 70
#define WARP_ITEMS 32

/* The value of the item whose number differs in the bits of `mask`. */
static inline uint warp_exchange(uint v, uint mask)
{
    uint r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
    return r;
}

/* v + the same of the item whose number differs in the bits of `mask`. */
static inline float warp_add(float v, uint mask) { return v + as_float(warp_exchange(as_uint(v), mask)); }
#else
#define WARP_ITEMS 1
#endif

#endif
