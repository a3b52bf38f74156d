/* SPDX-License-Identifier: MIT */
/*
 * WarpDrive: linear-attention and FP8 kernels on any OpenCL device.
 *
 * One header, one library. Kernels are OpenCL C, compiled at run time for the device at hand, cached on
 * disk, and launched with sizes that were tuned or derived for it.
 *
 *   - Every operation is one function: a context, an args struct in which zero means "the default", and a
 *     wd_launch (queue, wait list, event) that means what it means to clEnqueueNDRangeKernel.
 *   - Sizes are in elements unless the name ends in _bytes; times end in _ns.
 *   - The caller owns contexts, queues and buffers that it made. No call blocks except the first use of a
 *     shape class, which compiles (and measures, if asked to); wd_prepare() moves that to start-up.
 *   - Errors are values. wd_last_error() tells this thread the whole story of the last one.
 *   - A wd_context may be used from many threads at once.
 *
 * C11 and C++17.
 */
#ifndef WARPDRIVE_H
#define WARPDRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#ifdef __APPLE__
#include <OpenCL/cl.h>
#else
#include <CL/cl.h>
#endif

#define WD_VERSION_MAJOR 0
#define WD_VERSION_MINOR 1
#define WD_VERSION_PATCH 0

#if defined(__GNUC__)
#define WD_API __attribute__((visibility("default")))
#else
#define WD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---------------------------------------------------------------------------------------- */

/** What a call returns. Values are pinned; new ones are appended. */
typedef enum wd_status {
    WD_OK = 0,
    WD_EINVAL = 1,    /**< an argument is wrong; wd_last_error() names it */
    WD_ENOMEM = 2,    /**< host or device memory is exhausted */
    WD_ENODEVICE = 3, /**< no OpenCL platform or device, or none that matches */
    WD_EBUILD = 4,    /**< the driver refused a kernel; wd_last_error() holds the end of its log */
    WD_EOPENCL = 5,   /**< an OpenCL call failed; wd_last_error() names it and its error code */
    WD_ENOTSUP = 6,   /**< well-formed, but no variant serves it on this device; the reasons are listed */
    WD_EIO = 7,       /**< a file could not be read or written */
} wd_status;

/** One line that says what `status` means. Static storage; never NULL. */
WD_API const char *wd_status_string(wd_status status);

/** The last failure on this thread in full: function, argument or OpenCL call, device, build options and the
 *  end of the build log. Valid until this thread's next failing call; "" if there was none. */
WD_API const char *wd_last_error(void);

/** "0.1.0": the library's version, which may differ from the header's. */
WD_API const char *wd_version(void);

/* ---- Context --------------------------------------------------------------------------------------- */

/** Compiled programs, tuning numbers and limits for one device. Thread-safe. */
typedef struct wd_context wd_context;

/** How much a log line matters. */
typedef enum wd_log_level { WD_LOG_ERROR = 0, WD_LOG_WARNING = 1, WD_LOG_INFO = 2 } wd_log_level;

/** Receives one line without a newline. May be called from any thread that calls into the library. */
typedef void (*wd_log_fn)(void *user, wd_log_level level, const char *line);

/** What to do when no tuning record fits a shape class. */
typedef enum wd_tune_mode {
    WD_TUNE_NEVER = 0,   /**< use the model: a formula from the device's limits. The default; never measures. */
    WD_TUNE_MISSING = 1, /**< measure on the first use, within tune_limit_ms, and keep the result; checks what it
                              measures on all of the host's processors */
} wd_tune_mode;

/** Everything in it may be left zero except struct_size, context and (for contexts of several devices) device. */
typedef struct wd_context_desc {
    size_t struct_size;         /**< sizeof(wd_context_desc) */
    cl_context context;         /**< retained until wd_context_destroy() */
    cl_device_id device;        /**< NULL: the context's first device */
    const char *cache_dir;      /**< NULL: $WARPDRIVE_CACHE_DIR, $XDG_CACHE_HOME/warpdrive or ~/.cache/warpdrive;
                                     "": no disk cache */
    uint64_t cache_limit_bytes; /**< 0: 256 MiB; oldest-used entries go first */
    const char *tuning_file;    /**< NULL: $WARPDRIVE_TUNING_FILE or tuning.tune beside the cache; "": none */
    wd_tune_mode tune;
    unsigned tune_limit_ms; /**< 0: 2000; for one shape class */
    wd_log_fn log;          /**< NULL: silent */
    void *log_user;
} wd_context_desc;

/** Creates a context on the caller's OpenCL context. *out is NULL on failure. */
WD_API wd_status wd_context_create(const wd_context_desc *desc, wd_context **out);

/** Releases what the context holds. Work already enqueued completes. NULL is allowed. */
WD_API void wd_context_destroy(wd_context *ctx);

/** What the context did so far. */
typedef struct wd_counters {
    size_t struct_size;       /**< sizeof(wd_counters), set by the caller */
    uint64_t compiles;        /**< programs built from source */
    uint64_t memory_hits;     /**< launches whose kernel was at hand */
    uint64_t disk_hits;       /**< programs loaded from the disk cache */
    uint64_t disk_rejects;    /**< entries that were damaged, foreign or refused by the driver */
    uint64_t tuning_user;     /**< shape classes decided by a record of the user's file */
    uint64_t tuning_shipped;  /**< ... by a shipped record */
    uint64_t tuning_model;    /**< ... by the model */
    uint64_t tuning_measured; /**< ... by a measurement in this context */
} wd_counters;

WD_API wd_status wd_context_counters(const wd_context *ctx, wd_counters *out);

/* ---- A front door for programs without OpenCL code of their own -------------------------------------- */

/** Opens a device and makes an OpenCL context and an in-order queue on it, both owned by the new context.
 *  `device`: NULL (best: GPU before CPU), "gpu", "cpu", an index or platform:device as `warpdrive devices`
 *  prints them, or part of a device's name. No match: WD_ENODEVICE, and wd_last_error() lists the choices. */
WD_API wd_status wd_open(const char *device, wd_context **out);

/** The context's OpenCL objects; not retained for the caller. The queue is NULL unless wd_open() made it. */
WD_API cl_context wd_context_cl(const wd_context *ctx);
WD_API cl_device_id wd_context_device(const wd_context *ctx);
WD_API cl_command_queue wd_context_queue(const wd_context *ctx);

/** A buffer of `bytes`, filled from `data` unless that is NULL. Release it with wd_buffer_destroy(). */
WD_API wd_status wd_buffer_create(wd_context *ctx, size_t bytes, const void *data, cl_mem *out);
WD_API void wd_buffer_destroy(cl_mem mem);
/** Blocking copies on the context's own queue (wd_open() only); they wait for what was enqueued there before. */
WD_API wd_status wd_buffer_write(wd_context *ctx, cl_mem mem, size_t offset_bytes, size_t bytes, const void *data);
WD_API wd_status wd_buffer_read(wd_context *ctx, cl_mem mem, size_t offset_bytes, size_t bytes, void *data);

/* ---- Tensors and launches ---------------------------------------------------------------------------- */

/** Element types. Values are pinned. */
typedef enum wd_dtype {
    WD_DTYPE_DEFAULT = 0, /**< the first one that the argument's comment lists */
    WD_F32 = 1,
    WD_F16 = 2,   /**< IEEE binary16; no cl_khr_fp16 needed */
    WD_BF16 = 3,  /**< bfloat16 */
    WD_E4M3 = 4,  /**< OCP FP8 E4M3FN: max 448, no infinities, NaN 0x7F and 0xFF */
    WD_E5M2 = 5,  /**< OCP FP8 E5M2: max 57344 */
    WD_UE8M0 = 6, /**< a power of two, 2^(byte-127); 0xFF is NaN */
    WD_I32 = 7,
    WD_F32X2 = 8, /**< two f32, a value and what f32 rounds off it: running sums of steep gates keep the low bits that
                       their mild neighbours need */
} wd_dtype;

/** Bytes of one element; 0 for WD_DTYPE_DEFAULT and unknown values. */
WD_API size_t wd_dtype_size(wd_dtype dtype);

/** A tensor argument: a view into a buffer of the caller's. All zero means "absent" where that is allowed: an optional
 *  tensor is present if it has a buffer or a type. Views may share a buffer, as slices of a fused projection do, but no
 *  element of an output may be one of another argument.
 *  stride[i] is the distance between neighbours of the i-th outermost dimension; 0 means packed. The
 *  innermost dimension is always contiguous, and so are all dimensions past the third. */
typedef struct wd_tensor {
    cl_mem mem;
    size_t offset;    /**< first element, counted from the buffer's start; no alignment rule */
    size_t stride[3]; /**< outermost first */
    wd_dtype dtype;
} wd_tensor;

/** Where a call goes, with the meaning that clEnqueueNDRangeKernel gives these. A NULL wd_launch uses the
 *  context's own queue (wd_open() only). Queues may be in order or out of order. */
typedef struct wd_launch {
    cl_command_queue queue;
    cl_uint num_wait;
    const cl_event *wait_list;
    cl_event *done; /**< if not NULL: an event, owned by the caller, that completes when the outputs are written */
} wd_launch;

/** How f32 data meets matrix engines. */
typedef enum wd_math {
    WD_MATH_F32 = 0,  /**< errors like f32 multiply-add; matrix engines use split products */
    WD_MATH_TF32 = 1, /**< one TF32 product where the device has one; 10 bits of mantissa */
} wd_math;

/* ---- fp8_quant ----------------------------------------------------------------------------------------
 * Per-group absmax scaling of activations, as in DeepSeek-V3's act_quant and SGLang's
 * per_token_group_quant_fp8:
 *     s = max(max|x| over the group, eps) / M,   q = clamp(x / s, -M, M),   M = 448 (57344 for WD_E5M2 q)
 * with true division. NaN in a group makes its s and all its q NaN and touches no other group. */

typedef enum wd_scale_layout {
    WD_SCALE_ROW = 0,    /**< s[tokens][hidden/group] */
    WD_SCALE_COLUMN = 1, /**< s[hidden/group][tokens rounded up to 4], padding zero */
} wd_scale_layout;

typedef struct wd_fp8_quant_args {
    size_t struct_size; /**< sizeof(wd_fp8_quant_args) */
    size_t tokens, hidden;
    size_t group; /**< divides hidden; 0: 128 */
    wd_tensor x;  /**< in  [tokens][hidden]  f32, f16, bf16 */
    wd_tensor q;  /**< out [tokens][hidden]  f32 (clamped, not rounded), e4m3, e5m2 (rounded half to even) */
    wd_tensor s;  /**< out [tokens][hidden/group] or its transpose  f32, ue8m0 (rounded up, then q is clamped) */
    wd_scale_layout s_layout;
    float eps; /**< 0: 1e-10 */
} wd_fp8_quant_args;

WD_API wd_status wd_fp8_quant(wd_context *ctx, const wd_fp8_quant_args *args, const wd_launch *launch);

/* ---- causal_conv1d ------------------------------------------------------------------------------------
 * Depthwise causal convolution, as in Dao-AILab/causal-conv1d (Mamba, gated delta nets):
 *     out[b,d,t] = act(bias[d] + sum_{k<W} weight[d,k] * x[b,d,t-W+1+k])
 * where x before the sequence's start is initial_state, or zero. */

typedef enum wd_conv_layout {
    WD_LAYOUT_BDS = 0, /**< x and out [B][D][S] */
    WD_LAYOUT_BSD = 1, /**< x and out [B][S][D] */
} wd_conv_layout;

typedef enum wd_act { WD_ACT_NONE = 0, WD_ACT_SILU = 1 } wd_act;

typedef struct wd_causal_conv1d_args {
    size_t struct_size;
    size_t B, D, S;
    size_t W;                /**< 1..16 */
    size_t N;                /**< packed sequences: their number; then B is 1 and S the total; 0: not packed */
    wd_tensor x;             /**< in  f32, f16, bf16 */
    wd_tensor weight;        /**< in  [D][W]  f32, f16, bf16 */
    wd_tensor bias;          /**< in  [D], optional  f32, f16, bf16 */
    wd_tensor initial_state; /**< in  [B or N][D][W-1], optional  f32, f16, bf16 */
    wd_tensor cu_seqlens;    /**< in  [N+1] i32: where packed sequences start; with N only */
    wd_tensor out;           /**< out as x  f32, f16, bf16 */
    wd_tensor final_state;   /**< out [B or N][D][W-1], optional: the last W-1 inputs  f32, f16, bf16 */
    wd_conv_layout layout;   /**< packed sequences need WD_LAYOUT_BSD */
    wd_act act;
    const int32_t *cu_seqlens_host; /**< a host copy of cu_seqlens to check, or NULL; read during the call */
} wd_causal_conv1d_args;

WD_API wd_status wd_causal_conv1d(wd_context *ctx, const wd_causal_conv1d_args *args, const wd_launch *launch);

/** A few new tokens against a state, in place: state becomes the last W-1 inputs. T calls of one token equal
 *  one wd_causal_conv1d() of T. */
typedef struct wd_causal_conv1d_update_args {
    size_t struct_size;
    size_t B, D;
    size_t T;         /**< new tokens a sequence; 0: 1 */
    size_t W;         /**< 1..16 */
    size_t slots;     /**< states in `state`; 0: B */
    wd_tensor x;      /**< in    [B][T][D]  f32, f16, bf16 */
    wd_tensor weight; /**< in    [D][W]  f32, f16, bf16 */
    wd_tensor bias;   /**< in    [D], optional  f32, f16, bf16 */
    wd_tensor state;  /**< inout [slots][D][W-1]  f32, f16, bf16 */
    wd_tensor slot;   /**< in    [B] i32, optional: the state of sequence b; where there is none of that number,
                           negative or too high, the sequence is skipped and its out left alone. No two may name the
                           same state. Absent: b itself */
    wd_tensor out;    /**< out   [B][T][D]  f32, f16, bf16 */
    wd_act act;
} wd_causal_conv1d_update_args;

WD_API wd_status wd_causal_conv1d_update(wd_context *ctx, const wd_causal_conv1d_update_args *args,
                                         const wd_launch *launch);

/* ---- Gated delta net ----------------------------------------------------------------------------------
 * The chunked forward pass of gated delta nets (Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024; the
 * kernels of flash-linear-attention), chunks of 64 tokens. Tensors are token-major, [B][T][heads][...].
 * q and k have H heads; v, g, beta and everything made from them have HV, a multiple of H; head hv reads head
 * hv / (HV/H) of q and k. K and V are 1..256. T is any: a sequence's last chunk may be short.
 *
 * g is the running sum of the log gates inside each chunk, natural base, and finite. States are f32. Operations that
 * take the log gates themselves take a lower one than -110 for -110: exp() of that is 0 in f32, and the state is
 * forgotten. So -infinity is a gate like others and makes no NaN; a NaN stays in its sequence.
 *
 * Packed sequences: N > 0, B = 1, T the total, cu_seqlens[N+1] the starts. Each sequence begins a chunk of
 * its own; chunks are numbered through all sequences, and NT, their number, is wd_gdn_chunks(). */

#define WD_GDN_CHUNK 64

/** Chunks that h must hold for one batch entry: ceil(T/64), or for N packed sequences the bound T/64 + N. */
WD_API size_t wd_gdn_chunks(size_t T, size_t N);

/** u = A @ (v * beta),  w = A @ (k * beta * exp(g)), chunk by chunk. */
typedef struct wd_recompute_w_u_args {
    size_t struct_size;
    size_t B, T, H;
    size_t HV; /**< 0: H */
    size_t K, V;
    size_t N;             /**< packed sequences; 0: not packed */
    wd_tensor k;          /**< in  [B][T][H][K]    f32, f16, bf16 */
    wd_tensor v;          /**< in  [B][T][HV][V]   f32, f16, bf16 */
    wd_tensor beta;       /**< in  [B][T][HV]      f32 */
    wd_tensor A;          /**< in  [B][T][HV][64]  f32, f16, bf16 */
    wd_tensor g;          /**< in  [B][T][HV]      f32, f32x2 */
    wd_tensor cu_seqlens; /**< in  [N+1] i32, with N only */
    wd_tensor w;          /**< out [B][T][HV][K]   f32, f16, bf16 */
    wd_tensor u;          /**< out [B][T][HV][V]   f32, f16, bf16 */
    wd_math math;
    bool A_is_lower;                /**< promise: A is lower triangular in each chunk, as wd_gdn_prepare() makes it;
                                         what stands above the diagonal may then be taken for zero */
    const int32_t *cu_seqlens_host; /**< a host copy to check, or NULL */
} wd_recompute_w_u_args;

WD_API wd_status wd_recompute_w_u(wd_context *ctx, const wd_recompute_w_u_args *args, const wd_launch *launch);

/** The recurrence over chunks: store h; v_new = u - w @ h; h = h*exp(g_last) + k^T @ (v_new * exp(g_last - g)). */
typedef struct wd_chunk_fwd_h_args {
    size_t struct_size;
    size_t B, T, H;
    size_t HV; /**< 0: H */
    size_t K, V;
    size_t N;                /**< packed sequences; 0: not packed */
    wd_tensor k;             /**< in  [B][T][H][K]       f32, f16, bf16 */
    wd_tensor w;             /**< in  [B][T][HV][K]      f32, f16, bf16 */
    wd_tensor u;             /**< in  [B][T][HV][V]      f32, f16, bf16 */
    wd_tensor g;             /**< in  [B][T][HV]         f32, f32x2 */
    wd_tensor initial_state; /**< in  [B or N][HV][K][V] f32, optional: zero */
    wd_tensor cu_seqlens;    /**< in  [N+1] i32, with N only */
    wd_tensor h;             /**< out [B][NT][HV][K][V]  f32, f16, bf16: the state before each chunk */
    wd_tensor v_new;         /**< out [B][T][HV][V]      f32, f16, bf16 */
    wd_tensor final_state;   /**< out [B or N][HV][K][V] f32, optional */
    wd_math math;
    const int32_t *cu_seqlens_host; /**< a host copy to check, or NULL */
} wd_chunk_fwd_h_args;

WD_API wd_status wd_chunk_fwd_h(wd_context *ctx, const wd_chunk_fwd_h_args *args, const wd_launch *launch);

/** o = scale * ( (q @ h) * exp(g) + [i>=j] (q @ k^T * exp(g_i - g_j)) @ v_new ) */
typedef struct wd_chunk_fwd_o_args {
    size_t struct_size;
    size_t B, T, H;
    size_t HV; /**< 0: H */
    size_t K, V;
    size_t N;             /**< packed sequences; 0: not packed */
    wd_tensor q;          /**< in  [B][T][H][K]      f32, f16, bf16 */
    wd_tensor k;          /**< in  [B][T][H][K]      f32, f16, bf16 */
    wd_tensor v_new;      /**< in  [B][T][HV][V]     f32, f16, bf16 */
    wd_tensor h;          /**< in  [B][NT][HV][K][V] f32, f16, bf16 */
    wd_tensor g;          /**< in  [B][T][HV]        f32, f32x2 */
    wd_tensor cu_seqlens; /**< in  [N+1] i32, with N only */
    wd_tensor o;          /**< out [B][T][HV][V]     f32, f16, bf16 */
    float scale;          /**< 0: K^-0.5 */
    wd_math math;
    const int32_t *cu_seqlens_host; /**< a host copy to check, or NULL */
} wd_chunk_fwd_o_args;

WD_API wd_status wd_chunk_fwd_o(wd_context *ctx, const wd_chunk_fwd_o_args *args, const wd_launch *launch);

/** How beta is given. */
typedef enum wd_beta_mode {
    WD_BETA_VALUE = 0,   /**< beta itself */
    WD_BETA_SIGMOID = 1, /**< b, and beta = sigmoid(b), as Qwen3-Next computes it */
} wd_beta_mode;

/** From raw gates to what the chunk kernels read: g = running sum of the gates per chunk, and
 *  A = (I + strictly_lower(beta_i * (k_i . k_j) * exp(g_i - g_j)))^-1 per chunk.
 *  With A_log and dt_bias the gates are raw: gate = -exp(A_log) * softplus(gate + dt_bias). */
typedef struct wd_gdn_prepare_args {
    size_t struct_size;
    size_t B, T, H;
    size_t HV; /**< 0: H */
    size_t K;
    size_t N;             /**< packed sequences; 0: not packed */
    wd_tensor k;          /**< in  [B][T][H][K]    f32, f16, bf16 */
    wd_tensor gate;       /**< in  [B][T][HV]      f32, f16, bf16: log gates, or raw ones with A_log */
    wd_tensor beta;       /**< in  [B][T][HV]      f32, f16, bf16 */
    wd_tensor A_log;      /**< in  [HV] f32, optional; with dt_bias */
    wd_tensor dt_bias;    /**< in  [HV] f32, optional; with A_log */
    wd_tensor q;          /**< in  [B][T][H][K]    f32, f16, bf16, optional: to be normalised into q_out */
    wd_tensor cu_seqlens; /**< in  [N+1] i32, with N only */
    wd_tensor g;          /**< out [B][T][HV]      f32, f32x2 */
    wd_tensor A;          /**< out [B][T][HV][64]  f32, f16, bf16; columns past a short chunk's end are zero */
    wd_tensor beta_out;   /**< out [B][T][HV]      f32, optional: beta after beta_mode */
    wd_tensor q_out;      /**< out [B][T][H][K]    f32, f16, bf16, with q and l2norm */
    wd_tensor k_out;      /**< out [B][T][H][K]    f32, f16, bf16, optional with l2norm */
    wd_beta_mode beta_mode;
    bool l2norm;      /**< divide each q and k row by sqrt(sum of squares + l2norm_eps) first */
    float l2norm_eps; /**< 0: 1e-6 */
    wd_math math;
    const int32_t *cu_seqlens_host; /**< a host copy to check, or NULL */
} wd_gdn_prepare_args;

WD_API wd_status wd_gdn_prepare(wd_context *ctx, const wd_gdn_prepare_args *args, const wd_launch *launch);

/** The whole forward pass: q, k, v, log gates and beta to o and the final state. */
typedef struct wd_gdn_forward_args {
    size_t struct_size;
    size_t B, T, H;
    size_t HV; /**< 0: H */
    size_t K, V;
    size_t N;                /**< packed sequences; 0: not packed */
    wd_tensor q;             /**< in  [B][T][H][K]       f32, f16, bf16 */
    wd_tensor k;             /**< in  [B][T][H][K]       f32, f16, bf16 */
    wd_tensor v;             /**< in  [B][T][HV][V]      f32, f16, bf16 */
    wd_tensor g;             /**< in  [B][T][HV]         f32, f16, bf16: log gates, or raw ones with A_log */
    wd_tensor beta;          /**< in  [B][T][HV]         f32, f16, bf16 */
    wd_tensor A_log;         /**< in  [HV] f32, optional; with dt_bias */
    wd_tensor dt_bias;       /**< in  [HV] f32, optional; with A_log */
    wd_tensor initial_state; /**< in  [B or N][HV][K][V] f32, optional: zero */
    wd_tensor cu_seqlens;    /**< in  [N+1] i32, with N only */
    wd_tensor o;             /**< out [B][T][HV][V]      f32, f16, bf16 */
    wd_tensor final_state;   /**< out [B or N][HV][K][V] f32, optional */
    wd_beta_mode beta_mode;
    bool l2norm;
    float l2norm_eps; /**< 0: 1e-6 */
    float scale;      /**< 0: K^-0.5 */
    wd_math math;
    cl_mem workspace; /**< wd_workspace_bytes() of scratch, not shared with a call in flight; NULL: allocated for
                           the call */
    const int32_t *cu_seqlens_host; /**< a host copy to check, or NULL */
} wd_gdn_forward_args;

WD_API wd_status wd_gdn_forward(wd_context *ctx, const wd_gdn_forward_args *args, const wd_launch *launch);

/** One token (or a few) per sequence against a state, in place, token by token:
 *  S = S*exp(g);  S += k (beta * (v - S^T k))^T;  o = scale * S^T q.  T calls of one token equal one forward. */
typedef struct wd_gdn_decode_args {
    size_t struct_size;
    size_t B;
    size_t T; /**< new tokens a sequence; 0: 1 */
    size_t H;
    size_t HV; /**< 0: H */
    size_t K, V;
    size_t slots;      /**< states in `state`; 0: B */
    wd_tensor q;       /**< in    [B][T][H][K]       f32, f16, bf16 */
    wd_tensor k;       /**< in    [B][T][H][K]       f32, f16, bf16 */
    wd_tensor v;       /**< in    [B][T][HV][V]      f32, f16, bf16 */
    wd_tensor g;       /**< in    [B][T][HV]         f32, f16, bf16: log gates, or raw ones with A_log */
    wd_tensor beta;    /**< in    [B][T][HV]         f32, f16, bf16 */
    wd_tensor A_log;   /**< in    [HV] f32, optional; with dt_bias */
    wd_tensor dt_bias; /**< in    [HV] f32, optional; with A_log */
    wd_tensor state;   /**< inout [slots][HV][K][V]  f32 */
    wd_tensor slot;    /**< in    [B] i32, optional: the state of sequence b; where there is none of that number,
                            negative or too high, the sequence is skipped and its o left alone. No two may name the
                            same state. Absent: b itself */
    wd_tensor o;       /**< out   [B][T][HV][V]      f32, f16, bf16 */
    wd_beta_mode beta_mode;
    bool l2norm;
    float l2norm_eps; /**< 0: 1e-6 */
    float scale;      /**< 0: K^-0.5 */
} wd_gdn_decode_args;

WD_API wd_status wd_gdn_decode(wd_context *ctx, const wd_gdn_decode_args *args, const wd_launch *launch);

/* ---- Questions about a call --------------------------------------------------------------------------- */

/** Names an operation and the type of its args struct. Values are pinned. */
typedef enum wd_op_id {
    WD_OP_FP8_QUANT = 1,            /**< wd_fp8_quant_args */
    WD_OP_CAUSAL_CONV1D = 2,        /**< wd_causal_conv1d_args */
    WD_OP_RECOMPUTE_W_U = 3,        /**< wd_recompute_w_u_args */
    WD_OP_CHUNK_FWD_H = 4,          /**< wd_chunk_fwd_h_args */
    WD_OP_CHUNK_FWD_O = 5,          /**< wd_chunk_fwd_o_args */
    WD_OP_CAUSAL_CONV1D_UPDATE = 6, /**< wd_causal_conv1d_update_args */
    WD_OP_GDN_PREPARE = 7,          /**< wd_gdn_prepare_args */
    WD_OP_GDN_FORWARD = 8,          /**< wd_gdn_forward_args */
    WD_OP_GDN_DECODE = 9,           /**< wd_gdn_decode_args */
} wd_op_id;

/** True: the call with these args succeeds (memory permitting). False: wd_last_error() says why not. */
WD_API bool wd_supported(wd_context *ctx, wd_op_id op, const void *args);

/** Compiles, and tunes if the context does, what a call with these args needs; enqueues nothing. The tensors'
 *  cl_mem may be NULL here: a non-zero dtype says that an optional tensor is present. */
WD_API wd_status wd_prepare(wd_context *ctx, wd_op_id op, const void *args);

/** Scratch bytes that a call with these args needs; 0 for most. */
WD_API wd_status wd_workspace_bytes(wd_context *ctx, wd_op_id op, const void *args, size_t *bytes);

/** How a call with these args would run, and why, as text that the context keeps nothing of: `text` receives at
 *  most `text_bytes`, always terminated. `json`: one JSON object instead of lines for people. */
WD_API wd_status wd_query(wd_context *ctx, wd_op_id op, const void *args, bool json, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif
