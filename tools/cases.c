/* SPDX-License-Identifier: MIT */
#include "cases.h"

enum { BENCH = CASE_BENCH_GPU | CASE_BENCH_CPU };

const struct op_case op_cases[] = {
    {"fp8_quant", "tokens=37,hidden=384,group=128", CASE_VERIFY_F32},
    {"fp8_quant", "tokens=37,hidden=384,group=128,q_dtype=e4m3", CASE_VERIFY},
    {"fp8_quant", "tokens=5,hidden=300,group=100,q_dtype=e4m3,s_dtype=ue8m0,s_layout=column", CASE_VERIFY_F32},
    {"fp8_quant", "tokens=3,hidden=129,group=43,q_dtype=e5m2", CASE_VERIFY_F32},
    {"fp8_quant", "tokens=256,hidden=4096,group=128", BENCH},
    {"fp8_quant", "tokens=256,hidden=8192,group=128", CASE_BENCH_GPU},
    {"fp8_quant", "tokens=1024,hidden=7168,group=128", CASE_DEMO},
    {"fp8_quant", "tokens=4096,hidden=7168,group=128", BENCH},
    {"fp8_quant", "tokens=4096,hidden=7168,group=128,q_dtype=e4m3", BENCH},

    {"fp8_quant", "tokens=3,hidden=128,group=64", CASE_TINY},
    {"fp8_quant", "tokens=3,hidden=40,group=20,q_dtype=e4m3,s_dtype=ue8m0,s_layout=column", CASE_TINY},

    {"causal_conv1d", "B=2,D=33,S=70,W=4,bias,initial_state,final_state,act=silu", CASE_VERIFY_F32},
    {"causal_conv1d", "B=2,D=48,S=37,W=3,layout=bsd,bias,initial_state,final_state", CASE_VERIFY},
    {"causal_conv1d", "B=1,D=16,S=5,W=16,initial_state,final_state", CASE_VERIFY_F32},
    {"causal_conv1d", "B=1,D=40,S=90,W=4,N=3,cu_seqlens,layout=bsd,bias,initial_state,final_state", CASE_VERIFY_F32},
    {"causal_conv1d", "B=1,D=1536,S=2048,W=4,bias", CASE_BENCH_GPU},
    {"causal_conv1d", "B=1,D=2560,S=2048,W=4,bias", BENCH | CASE_DEMO},
    {"causal_conv1d", "B=1,D=2560,S=4096,W=4,bias", BENCH},
    {"causal_conv1d", "B=4,D=8192,S=8192,W=4,bias", CASE_BENCH_GPU},

    {"causal_conv1d", "B=1,D=5,S=41,W=4,bias,initial_state,final_state,act=silu", CASE_TINY},
    {"causal_conv1d", "B=1,D=12,S=20,W=3,N=2,cu_seqlens,layout=bsd,initial_state,final_state", CASE_TINY},

    {"recompute_w_u", "B=2,T=100,H=2,HV=4,K=64,V=128", CASE_VERIFY},
    {"recompute_w_u", "B=1,T=70,H=1,HV=1,K=100,V=60", CASE_VERIFY_F32},
    {"recompute_w_u", "B=1,T=200,H=2,HV=2,K=128,V=128,N=3,cu_seqlens", CASE_VERIFY_F32},
    {"recompute_w_u", "B=1,T=100,H=1,HV=2,K=128,V=64,math=tf32", CASE_VERIFY_F32},
    {"recompute_w_u", "B=1,T=100,H=2,HV=2,K=64,V=64,A_is_lower", CASE_VERIFY_F32},
    {"recompute_w_u", "B=2,T=1024,H=3,HV=3,K=64,V=64", BENCH},
    {"recompute_w_u", "B=2,T=1536,H=4,HV=4,K=128,V=128", BENCH},
    {"recompute_w_u", "B=1,T=2048,H=4,HV=8,K=128,V=128", CASE_DEMO},
    {"recompute_w_u", "B=1,T=8192,H=32,HV=32,K=128,V=128", CASE_BENCH_GPU},

    {"recompute_w_u", "B=1,T=20,H=1,HV=2,K=9,V=5", CASE_TINY},
    {"recompute_w_u", "B=1,T=5,H=1,HV=1,K=9,V=1", CASE_TINY},

    {"chunk_fwd_h", "B=2,T=100,H=2,HV=4,K=64,V=128,initial_state,final_state", CASE_VERIFY},
    {"chunk_fwd_h", "B=1,T=200,H=1,HV=1,K=100,V=60,final_state", CASE_VERIFY_F32},
    {"chunk_fwd_h", "B=1,T=200,H=2,HV=2,K=128,V=128,N=3,cu_seqlens,initial_state,final_state", CASE_VERIFY_F32},
    {"chunk_fwd_h", "B=1,T=100,H=1,HV=2,K=128,V=64,math=tf32,final_state", CASE_VERIFY_F32},
    {"chunk_fwd_h", "B=2,T=1024,H=3,HV=3,K=64,V=64", BENCH},
    {"chunk_fwd_h", "B=2,T=1536,H=4,HV=4,K=128,V=128", BENCH},
    {"chunk_fwd_h", "B=1,T=2048,H=4,HV=8,K=128,V=128", CASE_DEMO},
    {"chunk_fwd_h", "B=1,T=8192,H=32,HV=32,K=128,V=128", CASE_BENCH_GPU},

    {"chunk_fwd_h", "B=1,T=70,H=1,HV=1,K=9,V=5,N=2,cu_seqlens,initial_state,final_state", CASE_TINY},

    {"chunk_fwd_o", "B=2,T=100,H=2,HV=4,K=64,V=128", CASE_VERIFY},
    {"chunk_fwd_o", "B=1,T=70,H=1,HV=1,K=100,V=60", CASE_VERIFY_F32},
    {"chunk_fwd_o", "B=1,T=200,H=2,HV=2,K=128,V=128,N=3,cu_seqlens", CASE_VERIFY_F32},
    {"chunk_fwd_o", "B=1,T=100,H=1,HV=2,K=128,V=64,math=tf32", CASE_VERIFY_F32},
    {"chunk_fwd_o", "B=2,T=1024,H=3,HV=3,K=64,V=64", BENCH},
    {"chunk_fwd_o", "B=2,T=1536,H=4,HV=4,K=128,V=128", BENCH},
    {"chunk_fwd_o", "B=1,T=2048,H=4,HV=8,K=128,V=128", CASE_DEMO},
    {"chunk_fwd_o", "B=1,T=8192,H=32,HV=32,K=128,V=128", CASE_BENCH_GPU},

    {"chunk_fwd_o", "B=1,T=20,H=1,HV=1,K=9,V=5", CASE_TINY},

    {"causal_conv1d_update", "B=3,D=33,T=1,W=4,bias,act=silu", CASE_VERIFY},
    {"causal_conv1d_update", "B=5,D=48,T=2,W=3,slots=7,slot", CASE_VERIFY_F32},
    {"causal_conv1d_update", "B=64,D=8192,W=4,bias,act=silu", BENCH | CASE_DEMO},

    {"causal_conv1d_update", "B=4,D=9,T=2,W=3,slots=5,slot,bias", CASE_TINY},

    {"gdn_prepare", "B=2,T=100,H=2,HV=4,K=64", CASE_VERIFY},
    {"gdn_prepare", "B=1,T=70,H=1,HV=1,K=100,q,q_out,k_out,beta_out,l2norm,beta_mode=sigmoid,A_log,dt_bias",
     CASE_VERIFY_F32},
    {"gdn_prepare",
     "B=1,T=150,H=2,HV=6,K=128,N=3,cu_seqlens,q,q_out,k_out,beta_out,l2norm,beta_mode=sigmoid,A_log,dt_bias",
     CASE_VERIFY},
    {"gdn_prepare", "B=1,T=8192,H=16,HV=32,K=128", CASE_BENCH_GPU},
    {"gdn_prepare", "B=1,T=2048,H=4,HV=8,K=128", CASE_BENCH_CPU | CASE_DEMO},

    {"gdn_prepare", "B=1,T=20,H=1,HV=1,K=9,q,q_out,k_out,beta_out,l2norm", CASE_TINY},

    {"gdn_forward", "B=2,T=100,H=2,HV=4,K=64,V=128,initial_state,final_state", CASE_VERIFY},
    {"gdn_forward", "B=1,T=70,H=1,HV=1,K=100,V=60,final_state,l2norm,beta_mode=sigmoid,A_log,dt_bias", CASE_VERIFY_F32},
    {"gdn_forward", "B=1,T=200,H=2,HV=2,K=128,V=128,N=3,cu_seqlens,initial_state,final_state", CASE_VERIFY_F32},
    {"gdn_forward", "B=1,T=8192,H=16,HV=32,K=128,V=128,initial_state,final_state", CASE_BENCH_GPU},
    {"gdn_forward", "B=1,T=2048,H=4,HV=8,K=128,V=128,initial_state,final_state", CASE_BENCH_CPU | CASE_DEMO},

    {"gdn_forward", "B=1,T=66,H=1,HV=1,K=5,V=5,initial_state,final_state", CASE_TINY},

    {"gdn_decode", "B=3,H=2,HV=4,K=64,V=128", CASE_VERIFY},
    {"gdn_decode", "B=5,T=2,H=1,HV=1,K=100,V=60,slots=7,slot", CASE_VERIFY_F32},
    {"gdn_decode", "B=1,H=16,HV=32,K=128,V=128", BENCH},
    {"gdn_decode", "B=16,H=16,HV=32,K=128,V=128", BENCH | CASE_DEMO},
    {"gdn_decode", "B=64,H=16,HV=32,K=128,V=128", CASE_BENCH_GPU},

    {"gdn_decode", "B=2,T=2,H=1,HV=2,K=9,V=12,slots=3,slot", CASE_TINY},
    {"gdn_decode", "B=2,T=2,H=1,HV=2,K=8,V=12,slots=3,slot", CASE_TINY},

    {0},
};
