#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times WarpDrive against PyTorch (eager, torch.compile) and flash-linear-attention on the same shapes.

usage: tools/compare_peers.py [--device cpu|cuda] [--dtype f32|bf16] [--tool build/warpdrive] [--only WORD] ...

Ours are `warpdrive bench --json`; the peers run here, from random inputs of the same kind. On a CPU a round is one run
after the caches were emptied by reading 256 MiB, ours and theirs take turns, and all have the same number of threads.
On a GPU, where ours come first, it is (N x (flush + work) - N x flush) / N. Times are medians. Before a peer is timed,
its result is compared with the same formula in float64 (the column `error`, relative); one that is off by more than 5 %
has no time. Peers that cannot be imported, or refuse a shape, are left out with the reason. No peer at all is no error.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CHUNK = 64
FLUSH_BYTES = 256 << 20

# (device, operation, SHAPE as `warpdrive bench` reads it). T is a multiple of 64 here.
CASES = [
    ("both", "fp8_quant", "tokens=256,hidden=4096,group=128"),
    ("cuda", "fp8_quant", "tokens=256,hidden=8192,group=128"),
    ("both", "fp8_quant", "tokens=4096,hidden=7168,group=128"),
    ("both", "fp8_quant", "tokens=4096,hidden=7168,group=128,q_dtype=e4m3"),
    ("cuda", "causal_conv1d", "B=1,D=1536,S=2048,W=4,bias"),
    ("cuda", "causal_conv1d", "B=1,D=2560,S=2048,W=4,bias"),
    ("both", "causal_conv1d", "B=1,D=2560,S=4096,W=4,bias"),
    ("both", "causal_conv1d", "B=1,D=2560,S=4096,W=4,layout=bsd,bias"),
    ("cuda", "causal_conv1d", "B=4,D=8192,S=8192,W=4,bias"),
    ("both", "causal_conv1d_update", "B=64,D=8192,W=4,bias,act=silu"),
    ("both", "recompute_w_u", "B=2,T=1024,H=3,HV=3,K=64,V=64"),
    ("both", "recompute_w_u", "B=2,T=1536,H=4,HV=4,K=128,V=128"),
    ("cuda", "recompute_w_u", "B=1,T=8192,H=32,HV=32,K=128,V=128"),
    ("both", "chunk_fwd_h", "B=2,T=1024,H=3,HV=3,K=64,V=64"),
    ("both", "chunk_fwd_h", "B=2,T=1536,H=4,HV=4,K=128,V=128"),
    ("cuda", "chunk_fwd_h", "B=1,T=8192,H=32,HV=32,K=128,V=128"),
    ("both", "chunk_fwd_o", "B=2,T=1024,H=3,HV=3,K=64,V=64"),
    ("both", "chunk_fwd_o", "B=2,T=1536,H=4,HV=4,K=128,V=128"),
    ("cuda", "chunk_fwd_o", "B=1,T=8192,H=32,HV=32,K=128,V=128"),
    ("cpu", "gdn_prepare", "B=1,T=2048,H=4,HV=8,K=128"),
    ("cuda", "gdn_prepare", "B=1,T=8192,H=16,HV=32,K=128"),
    ("cpu", "gdn_forward", "B=1,T=2048,H=4,HV=8,K=128,V=128,initial_state,final_state"),
    ("cuda", "gdn_forward", "B=1,T=1024,H=16,HV=32,K=128,V=128,initial_state,final_state"),
    ("cuda", "gdn_forward", "B=8,T=2048,H=16,HV=32,K=128,V=128,initial_state,final_state"),
    ("cuda", "gdn_forward", "B=1,T=8192,H=16,HV=32,K=128,V=128,initial_state,final_state"),
    ("both", "gdn_decode", "B=1,H=16,HV=32,K=128,V=128"),
    ("both", "gdn_decode", "B=16,H=16,HV=32,K=128,V=128"),
    ("cuda", "gdn_decode", "B=64,H=16,HV=32,K=128,V=128"),
]


def parse_shape(text):
    """"B=1,bias" -> {"B": 1, "bias": True}"""
    shape = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        shape[name] = int(value) if value.isdigit() else value or True
    return shape


# ---- The operations in PyTorch, as one would write them; inputs as dicts ----


def chunked(x):
    """[B][T][H][...] -> [B][H][NT][64][...]"""
    return x.unflatten(1, (-1, CHUNK)).movedim(3, 1)


def flat(x):
    """The way back."""
    return x.movedim(1, 3).flatten(1, 2)


def heads(x, hv):
    """q and k of H heads for HV heads."""
    return x if x.shape[2] == hv else x.repeat_interleave(hv // x.shape[2], 2)


def fp8_quant(i, s):
    x = i["x"].unflatten(-1, (-1, s["group"]))
    x = x if x.dtype == torch.float64 else x.float()
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-10) / 448
    q = (x / scale).clamp(-448, 448).flatten(-2)
    if s.get("q_dtype") == "e4m3" and q.dtype == torch.float32:
        q = q.to(torch.float8_e4m3fn)
    return q, scale.squeeze(-1)


def causal_conv1d(i, s):
    bsd = s.get("layout") == "bsd"
    x = i["x"].transpose(1, 2) if bsd else i["x"]
    out = F.conv1d(F.pad(x, (s["W"] - 1, 0)), i["weight"][:, None], i["bias"], groups=s["D"])
    return (out.transpose(1, 2) if bsd else out,)


def causal_conv1d_update(i, s):
    held = torch.cat((i["state"], i["x"][..., None]), -1)
    i["state"].copy_(held[..., 1:])
    return (F.silu((held * i["weight"]).sum(-1) + i["bias"]),)


def recompute_w_u(i, s):
    A, beta, g = chunked(i["A"]), chunked(i["beta"])[..., None], chunked(i["g"])[..., None]
    k, v = chunked(heads(i["k"], i["v"].shape[2])), chunked(i["v"])
    kind = i["k"].dtype
    return flat(A @ (k * (beta * g.exp())).to(kind)), flat(A @ (v * beta).to(kind))


def chunk_fwd_h(i, s):
    k, w, u, g = chunked(heads(i["k"], i["u"].shape[2])), chunked(i["w"]), chunked(i["u"]), chunked(i["g"])
    state = i["state"] if "state" in i else k.new_zeros(*k.shape[:2], k.shape[-1], u.shape[-1], dtype=g.dtype)
    h, v_new = [], []
    for c in range(k.shape[2]):
        h.append(state.to(k.dtype))
        fresh = u[:, :, c] - w[:, :, c] @ h[-1]
        last = g[:, :, c, -1:]
        decayed = (fresh * (last - g[:, :, c]).exp()[..., None]).to(k.dtype)
        state = state * last.exp()[..., None] + k[:, :, c].transpose(-1, -2) @ decayed
        v_new.append(fresh)
    return torch.stack(h, 1), flat(torch.stack(v_new, 2)), state


def chunk_fwd_o(i, s):
    q, k = (chunked(heads(i[n], i["v_new"].shape[2])) for n in "qk")
    v, g, h = chunked(i["v_new"]), chunked(i["g"]), i["h"].movedim(2, 1)
    decay = (g[..., :, None] - g[..., None, :]).tril().exp().tril()
    inner = ((q @ k.transpose(-1, -2)) * decay).to(v.dtype) @ v
    return (flat((q @ h) * g.exp()[..., None] + inner).mul(q.shape[-1] ** -0.5).to(v.dtype),)


def gdn_prepare(i, s):
    k = chunked(heads(i["k"], i["beta"].shape[2]))
    k = k.to(i["beta"].dtype)
    g, beta = chunked(i["gate"]).cumsum(-1), chunked(i["beta"])
    decay = (g[..., :, None] - g[..., None, :]).tril().exp()
    lower = ((k @ k.transpose(-1, -2)) * decay * beta[..., None]).tril(-1)
    eye = torch.eye(CHUNK, dtype=k.dtype, device=k.device)
    A = torch.linalg.solve_triangular(eye + lower, eye, upper=False, unitriangular=True)
    return flat(g), flat(A).to(i["k"].dtype)


def gdn_forward(i, s):
    g, A = gdn_prepare(i, s)
    w, u = recompute_w_u({**i, "g": g, "A": A}, s)
    h, v_new, state = chunk_fwd_h({**i, "g": g, "w": w, "u": u}, s)
    return (*chunk_fwd_o({**i, "g": g, "h": h, "v_new": v_new.to(i["v"].dtype)}, s), state)


def gdn_decode(i, s):
    S, hv = i["state"], i["v"].shape[1]
    q, k = (heads(i[n][:, None], hv)[:, 0].to(S.dtype) for n in "qk")
    S.mul_(i["gate"].exp()[..., None, None])
    delta = (i["v"] - torch.einsum("bhk,bhkv->bhv", k, S)) * i["beta"][..., None]
    S.add_(k[..., None] * delta[..., None, :])
    return ((torch.einsum("bhk,bhkv->bhv", q, S) * q.shape[-1] ** -0.5).to(i["v"].dtype),)


OPERATIONS = {f.__name__: f for f in (fp8_quant, causal_conv1d, causal_conv1d_update, recompute_w_u, chunk_fwd_h,
                                      chunk_fwd_o, gdn_prepare, gdn_forward, gdn_decode)}


# ---- Random inputs ----


def make_inputs(op, s, dtype, device):
    def normal(*dims, kind=None):
        return torch.randn(*dims, device=device).to(kind or dtype)

    def unit(*dims):
        return F.normalize(torch.randn(*dims, device=device), dim=-1).to(dtype)

    def gate(*dims):
        return -0.1 * torch.rand(*dims, device=device)

    f32 = torch.float32
    if op == "fp8_quant":
        return {"x": normal(s["tokens"], s["hidden"])}
    if op.startswith("causal_conv1d"):
        B, D, W = s["B"], s["D"], s["W"]
        i = {"weight": normal(D, W), "bias": normal(D)}
        if op == "causal_conv1d_update":
            return {**i, "x": normal(B, D), "state": normal(B, D, W - 1)}
        return {**i, "x": normal(B, s["S"], D) if s.get("layout") == "bsd" else normal(B, D, s["S"])}
    B, H, HV, K, V = s["B"], s["H"], s["HV"], s["K"], s.get("V", 0)
    if op == "gdn_decode":
        return {"q": unit(B, H, K), "k": unit(B, H, K), "v": normal(B, HV, V), "gate": gate(B, HV),
                "beta": torch.rand(B, HV, device=device), "state": normal(B, HV, K, V, kind=f32)}
    T = s["T"]
    i = {"k": unit(B, T, H, K), "beta": torch.rand(B, T, HV, device=device), "gate": gate(B, T, HV)}
    i["g"] = flat(chunked(i["gate"]).cumsum(-1)).contiguous()
    i["g2"] = i["g"] * 1.4426950408889634
    if op == "recompute_w_u":
        A = torch.eye(CHUNK, device=device) + (torch.randn(B, HV, T // CHUNK, CHUNK, CHUNK, device=device) / 8).tril(-1)
        return {**i, "v": normal(B, T, HV, V), "A": flat(A).contiguous().to(dtype)}
    if op == "chunk_fwd_h":
        return {**i, "w": 0.5 * unit(B, T, HV, K), "u": normal(B, T, HV, V)}
    if op == "chunk_fwd_o":
        return {**i, "q": unit(B, T, H, K), "v_new": normal(B, T, HV, V), "h": normal(B, T // CHUNK, HV, K, V)}
    if op == "gdn_forward":
        return {**i, "q": unit(B, T, H, K), "v": normal(B, T, HV, V), "state": normal(B, HV, K, V, kind=f32)}
    return i


# ---- Peers: name -> function(inputs, shape) -> outputs, or None where there is none ----


def fla_form(op, log2):
    """flash-linear-attention's form of an operation. Some versions take sums of gates in base 2: log2. Tensors must be
    contiguous: the inner forms do not look."""
    g = "g2" if log2 else "g"
    if op == "recompute_w_u":
        from fla.ops.gated_delta_rule.wy_fast import recompute_w_u_fwd
        return lambda i, s: recompute_w_u_fwd(k=i["k"], v=i["v"], beta=i["beta"], A=i["A"], g=i[g])
    if op == "chunk_fwd_h":
        from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
        return lambda i, s: chunk_gated_delta_rule_fwd_h(k=i["k"], w=i["w"], u=i["u"], g=i[g])[:2]
    if op == "chunk_fwd_o":
        from fla.ops.common.chunk_o import chunk_fwd_o as form
        return lambda i, s: (form(q=i["q"], k=i["k"], v=i["v_new"], h=i["h"], g=i[g],
                                  scale=i["q"].shape[-1] ** -0.5),)
    if op == "gdn_forward" and not log2:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        return lambda i, s: chunk_gated_delta_rule(i["q"], i["k"], i["v"], i["gate"], i["beta"],
                                                   initial_state=i["state"], output_final_state=True)
    if op == "gdn_decode" and not log2:
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
        return lambda i, s: fused_recurrent_gated_delta_rule(
            i["q"][:, None], i["k"][:, None], i["v"][:, None], g=i["gate"][:, None], beta=i["beta"][:, None],
            initial_state=i["state"], output_final_state=True)[:1]
    return None


def compiled(op, shape):
    if op in ("chunk_fwd_h", "gdn_forward") and shape["T"] > 32 * CHUNK:
        raise RuntimeError(f"unrolls a loop of {shape['T'] // CHUNK} chunks")
    return torch.compile(OPERATIONS[op], dynamic=False)


def peers(op, shape, options):
    """(name, maker); a maker may raise."""
    if not options.no_eager:
        yield "eager", lambda: OPERATIONS[op]
    if not options.no_compile:
        yield "compile", lambda: compiled(op, shape)
    if options.device == "cuda":
        yield "fla", lambda: fla_form(op, False)
        yield "fla", lambda: fla_form(op, True)


def relative_error(got, want):
    """The worst of all outputs, relative Frobenius. A peer may leave out the last ones."""
    worst = 0.0
    for a, b in zip(got, want):
        a, b = a.double().reshape(b.shape), b.double()
        worst = max(worst, ((a - b).norm() / b.norm()).item())
    return worst if worst == worst else float("inf")


def copied(inputs, dtype=None):
    """Operations change states in place."""
    return {n: x.to(dtype) if dtype else x.clone() for n, x in inputs.items()}


# ---- Time ----


class Meter:
    def __init__(self, device):
        self.cuda = device == "cuda"
        self.scratch = torch.ones(FLUSH_BYTES // 4, device=device)

    def flush(self):
        if self.cuda:
            self.scratch.fill_(1)
        else:
            self.scratch.sum()

    def seconds(self, times, *steps):
        if self.cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            for step in steps:
                step()
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def once(self, work):
        """One round, in ns."""
        if not self.cuda:
            self.flush()
            return 1e9 * self.seconds(1, work)
        n = 10
        return max(0.0, 1e9 * (self.seconds(n, self.flush, work) - self.seconds(n, self.flush)) / n)


def ours(cases, options):
    """What `warpdrive bench` says of these (operation, SHAPE), in one process."""
    with tempfile.NamedTemporaryFile("w", suffix=".shapes") as file:
        file.writelines(f"{op} {shape}\n" for op, shape in cases)
        file.flush()
        command = [options.tool, "bench", "--shapes", file.name, "--dtype", options.dtype, "--json", "--budget",
                   str(options.budget), "--device", "gpu" if options.device == "cuda" else "cpu"]
        environment = {**os.environ, "POCL_AFFINITY": "1", "POCL_MAX_PTHREAD_COUNT": str(options.threads)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    try:
        results = json.loads(done.stdout)["results"]
    except (ValueError, LookupError):
        results = []
    none = {"ok": False, "fault": done.stderr.strip()[-200:] or "no output"}
    return results + [none] * (len(cases) - len(results))


def prepare_peers(op, shape, inputs, options):
    """Runs each peer once against float64; {name: (function, error)}, {name: why not}."""
    ready, refused = {}, {}
    want = OPERATIONS[op](copied(inputs, torch.float64), shape)
    for name, make in peers(op, shape, options):
        if name in ready:
            continue
        try:
            form = make()
            if form is None:
                continue
            error = relative_error(form(copied(inputs), shape), want)
            if error < 0.05:
                ready[name] = (form, error)
                refused.pop(name, None)
            else:
                refused[name] = f"its result is off by {error:.1e}"
        except Exception as e:  # a peer may fail in any way; the table says how
            refused.setdefault(name, f"{type(e).__name__}: {str(e).splitlines()[0][:100] if str(e) else ''}")
    return ready, refused


def compare(op, text, known, meter, options):
    """One row of the table as a dict. `known`: our result; None: ours and theirs take turns."""
    shape = parse_shape(text)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    inputs = make_inputs(op, shape, dtype, options.device)
    ready, refused = prepare_peers(op, shape, inputs, options)
    mine, times = [], {name: [] for name in ready}
    result = {"ok": True}
    turns, rounds = (1, options.turns * options.rounds) if known else (options.turns, options.rounds)
    for _ in range(turns):
        result = known or ours([(op, text)], options)[0]
        if not result["ok"]:
            break
        mine.append(result["median_ns"])
        for name, (form, _) in ready.items():
            form(inputs, shape)
            for _ in range(rounds):
                times[name].append(meter.once(lambda f=form: f(inputs, shape)))
    row = {"operation": op, "shape": text, "dtype": options.dtype, "fault": result.get("fault"), "refused": refused,
           "peers": {n: {"ns": statistics.median(t), "error": ready[n][1]} for n, t in times.items() if t}}
    if mine:
        row.update(ns=statistics.median(mine), error=result["error"], floor_ns=result["floor_ns"],
                   variant=result["choice"])
    return row


def print_row(row):
    def cell(name):
        peer = row["peers"].get(name)
        return f'{peer["ns"] / 1e3:10.1f} {peer["error"]:7.0e}' if peer else f'{"-":>10} {"":7}'

    if row["fault"]:
        print(f'{row["operation"]} {row["shape"]}: {row["fault"]}')
        return
    best = min((p["ns"] for p in row["peers"].values()), default=None)
    ratio = f'{best / row["ns"]:6.2f}' if best else f'{"-":>6}'
    print(f'{row["operation"]:21}{row["ns"] / 1e3:10.1f} {row["error"]:7.0e}{cell("eager")}{cell("compile")}'
          f'{cell("fla")} {ratio} {row["floor_ns"] / 1e3:9.1f}  {row["shape"]}', flush=True)
    for name, why in row["refused"].items():
        print(f"    {name}: {why}")


def options_of(argv):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--tool", default="build/warpdrive")
    p.add_argument("--only", default="", help="cases whose operation or shape holds this")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="of the CPU, for all")
    p.add_argument("--turns", type=int, default=3, help="how often ours and theirs take turns on a CPU")
    p.add_argument("--rounds", type=int, default=5, help="of a peer in each turn")
    p.add_argument("--budget", type=int, default=200, help="ms for our rounds in each turn")
    p.add_argument("--tf32", action="store_true", help="let the peers use TF32 for f32 products")
    p.add_argument("--no-eager", action="store_true", help="its gdn_forward takes a minute and more")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--json", help="write the rows to this file as well")
    return p.parse_args(argv)


def main(argv):
    options = options_of(argv)
    if torch is None:
        print("no peer here: PyTorch cannot be imported; nothing was compared")
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no peer here: PyTorch sees no CUDA device; nothing was compared")
        return 0
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high" if options.tf32 else "highest")
    meter = Meter(options.device)
    print(f"PyTorch {torch.__version__}, {options.device}, {options.dtype}; times in us, errors against float64; "
          "best/ours: the fastest peer over ours")
    print(f'{"operation":21}{"ours":>10} {"error":7}{"eager":>10} {"error":7}{"compile":>10} {"error":7}{"fla":>10} '
          f'{"error":7} {"best/ours"[:6]:>6} {"floor":>9}  shape')
    rows = []
    cases = [(op, text) for device, op, text in CASES
             if device in ("both", options.device) and options.only in f"{op} {text}"]
    known = ours(cases, options) if options.device == "cuda" else [None] * len(cases)
    for (op, text), result in zip(cases, known):
        rows.append(compare(op, text, result, meter, options))
        print_row(rows[-1])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


try:
    import torch
    import torch.nn.functional as F
except (ImportError, OSError):
    torch = None

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
