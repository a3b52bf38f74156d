/* SPDX-License-Identifier: MIT */
/*
 * Where sequences and chunks lie: what every kernel of the gated delta net asks before it touches a token.
 *
 * Batched: each of the B batch entries is one sequence of T tokens and has NT = ceil(T/64) chunks. Packed
 * (HAS_CU_SEQLENS): one batch entry holds N sequences back to back; sequence s is tokens cu_seqlens[s] up to
 * cu_seqlens[s+1]. Each begins a chunk of its own, chunks are numbered through all sequences, and NT = T/64 + N is a
 * bound on their number, so that the last few numbers may name no chunk. Either way a sequence's last chunk may be
 * short, and a sequence may be empty.
 *
 * Offsets that only the device knows are clamped to a rising order inside 0 .. T: no value makes a kernel touch a
 * token outside its tensors, or a chunk past NT. The walk along cu_seqlens is linear: N loads of one cached row.
 */
#ifndef WD_GDN
#define WD_GDN

#ifndef HAS_CU_SEQLENS
#define HAS_CU_SEQLENS 0
#endif
#ifndef T_CU_SEQLENS
#define T_CU_SEQLENS i32
#endif

#ifndef T_G
#define T_G f32 /* of running sums of gates: f32 or f32x2 */
#endif

#define CHUNK 64 /* WD_GDN_CHUNK */

/* A running sum of gates, or the difference of two, as a float; as a float and what it rounds off; and one made of
 * those. */
#define GATE_SUM(g) CAT(gate_sum_, T_G)(g)
#define GATE_PARTS(g) CAT(gate_parts_, T_G)(g)
#define GATE_PAIR(sum) CAT(gate_pair_, T_G)(sum)
static inline float gate_sum_f32(float g) { return g; }
static inline float gate_sum_f32x2(float2 g) { return g.x + g.y; }
static inline float2 gate_parts_f32(float g) { return (float2)(g, 0); }
static inline float2 gate_parts_f32x2(float2 g) { return g; }
static inline float gate_pair_f32(float2 sum) { return sum.x + sum.y; }
static inline float2 gate_pair_f32x2(float2 sum) { return sum; }

/* sum + x, with what the float rounds off (Knuth's two-sum). */
static inline float2 sum_add(float2 sum, float x)
{
    const float high = sum.x + x, part = high - sum.x;
    return (float2)(high, sum.y + ((sum.x - (high - part)) + (x - part)));
}

/* The kernel arguments that are sizes, in the tables' order. K and V are macros. */
#define GDN_SIZES const ulong B, const ulong T, const ulong H, const ulong HV, const ulong N, const ulong NT

struct gdn_sequence {
    ulong batch;       /* which batch entry its tokens are in */
    ulong begin, end;  /* its tokens there */
    ulong first_chunk; /* the number of its first chunk there */
};

struct gdn_chunk {
    ulong batch;
    ulong token; /* its first */
    uint rows;   /* its tokens, 1 .. 64; 0: there is no such chunk */
    ulong index; /* its number in the batch entry: where h keeps its state */
};

/* The walk itself: steps `seq`, which stands before sequence s, onto it. */
static inline void gdn_step(struct gdn_sequence *seq, ulong s, __global const int *cu_seqlens, ulong T)
{
    seq->first_chunk += (seq->end - seq->begin + CHUNK - 1) / CHUNK;
    seq->begin = clamp((ulong)max(cu_seqlens[s], 0), seq->end, T);
    seq->end = clamp((ulong)max(cu_seqlens[s + 1], 0), seq->begin, T);
}

/* Sequence s of B (batched) or N (packed). */
static inline struct gdn_sequence gdn_sequence(ulong s, __global const int *cu_seqlens, ulong T)
{
    struct gdn_sequence seq = {0, 0, 0, 0};
#if HAS_CU_SEQLENS
    for (ulong i = 0; i <= s; i++)
        gdn_step(&seq, i, cu_seqlens, T);
#else
    seq.batch = s;
    seq.end = T;
#endif
    return seq;
}

/* Chunk c of the B*NT that all batch entries may have. */
static inline struct gdn_chunk gdn_chunk(ulong c, __global const int *cu_seqlens, ulong T, ulong N, ulong NT)
{
    struct gdn_chunk chunk = {(uint)c / (uint)NT, 0, 0, (uint)c % (uint)NT};
    struct gdn_sequence seq = {0, 0, T, 0};
#if HAS_CU_SEQLENS
    seq.end = 0;
    for (ulong s = 0; s < N; s++) {
        gdn_step(&seq, s, cu_seqlens, T);
        if (chunk.index < seq.first_chunk + (seq.end - seq.begin + CHUNK - 1) / CHUNK)
            break;
    }
#endif
    chunk.token = seq.begin + (chunk.index - seq.first_chunk) * CHUNK;
    chunk.rows = chunk.token < seq.end ? (uint)min(seq.end - chunk.token, (ulong)CHUNK) : 0;
    return chunk;
}

#endif
