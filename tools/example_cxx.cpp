// SPDX-License-Identifier: MIT
//
// The five kernels from C++17, on any device: fp8_quant, causal_conv1d, and the chain recompute_w_u, chunk_fwd_h,
// chunk_fwd_o, which together with gdn_prepare is what gdn_forward computes in one call.
//
//     example_cxx [DEVICE]
//
// The header is C; all that C++ adds is who releases what (Context, Buffer) and exceptions for wd_status (must).

#include <warpdrive.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace
{

void must(wd_status status)
{
    if (status != WD_OK)
        throw std::runtime_error(wd_last_error());
}

struct ContextDeleter {
    void operator()(wd_context *ctx) const
    {
        wd_context_destroy(ctx);
    }
};
using Context = std::unique_ptr<wd_context, ContextDeleter>;

Context open(const char *device)
{
    wd_context *ctx = nullptr;
    must(wd_open(device, &ctx));
    return Context(ctx);
}

// Floats on the device.
class Buffer
{
  public:
    Buffer(const Context &ctx, std::size_t count) : ctx_(ctx.get()), count_(count)
    {
        must(wd_buffer_create(ctx_, count * sizeof(float), nullptr, &mem_));
    }
    Buffer(const Context &ctx, const std::vector<float> &values) : Buffer(ctx, values.size())
    {
        must(wd_buffer_write(ctx_, mem_, 0, count_ * sizeof(float), values.data()));
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer()
    {
        wd_buffer_destroy(mem_);
    }

    std::vector<float> read() const
    {
        std::vector<float> values(count_);
        must(wd_buffer_read(ctx_, mem_, 0, count_ * sizeof(float), values.data()));
        return values;
    }

    // The whole buffer as a packed tensor: what most arguments are.
    operator wd_tensor() const
    {
        wd_tensor t{};
        t.mem = mem_;
        return t;
    }

  private:
    wd_context *ctx_;
    std::size_t count_;
    cl_mem mem_ = nullptr;
};

// An args struct with its size set and everything else at its default.
template <class Args> Args defaults()
{
    Args args{};
    args.struct_size = sizeof(Args);
    return args;
}

std::vector<float> random_values(std::size_t count, float low, float high)
{
    static std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), [&] { return uniform(generator); });
    return values;
}

// |x - want| / |want|
double relative_error(const std::vector<float> &x, const std::vector<float> &want)
{
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < x.size(); i++) {
        const double d = double(x[i]) - double(want[i]);
        difference += d * d;
        norm += double(want[i]) * double(want[i]);
    }
    return std::sqrt(difference / norm);
}

bool report(const char *what, double error, double bar)
{
    const bool ok = error <= bar; // not so for NaN
    std::printf("%-14s relative error %.1e  %s\n", what, error, ok ? "ok" : "WRONG");
    return ok;
}

// Activations to FP8's range and back.
bool fp8_quant(const Context &ctx)
{
    const std::size_t tokens = 64, hidden = 1024, group = 128;
    const std::vector<float> x = random_values(tokens * hidden, -3, 3);
    const Buffer x_in(ctx, x), q_out(ctx, x.size()), s_out(ctx, x.size() / group);
    auto args = defaults<wd_fp8_quant_args>();
    args.tokens = tokens;
    args.hidden = hidden;
    args.group = group;
    args.x = x_in;
    args.q = q_out;
    args.s = s_out;
    must(wd_fp8_quant(ctx.get(), &args, nullptr));

    std::vector<float> back = q_out.read();
    const std::vector<float> s = s_out.read();
    for (std::size_t i = 0; i < back.size(); i++)
        back[i] *= s[i / group];
    return report("fp8_quant", relative_error(back, x), 1e-6);
}

bool causal_conv1d(const Context &ctx)
{
    const std::size_t B = 2, D = 48, S = 200, W = 4;
    const std::vector<float> x = random_values(B * D * S, -1, 1), weight = random_values(D * W, -1, 1);
    const Buffer x_in(ctx, x), weight_in(ctx, weight), out(ctx, x.size());
    auto args = defaults<wd_causal_conv1d_args>();
    args.B = B;
    args.D = D;
    args.S = S;
    args.W = W;
    args.x = x_in;
    args.weight = weight_in;
    args.out = out;
    must(wd_causal_conv1d(ctx.get(), &args, nullptr));

    std::vector<float> want(x.size());
    for (std::size_t row = 0; row < B * D; row++)
        for (std::size_t t = 0; t < S; t++)
            for (std::size_t w = 0; w < W; w++)
                if (t + w + 1 >= W)
                    want[row * S + t] += weight[row % D * W + w] * x[row * S + t + w + 1 - W];
    return report("causal_conv1d", relative_error(out.read(), want), 1e-6);
}

// Sizes that all calls of the gated delta net share.
template <class Args> Args gated_delta_net()
{
    auto args = defaults<Args>();
    args.B = 1;
    args.T = 300;
    args.H = 2;
    args.HV = 4;
    args.K = 64;
    return args;
}

// The chain against the one call that does it all.
bool chunks(const Context &ctx)
{
    const auto n = gated_delta_net<wd_gdn_prepare_args>();
    const std::size_t V = 128, keys = n.T * n.H * n.K, heads = n.T * n.HV;
    const std::size_t states = wd_gdn_chunks(n.T, 0) * n.HV * n.K * V;
    const Buffer q(ctx, random_values(keys, -0.2f, 0.2f)), k(ctx, random_values(keys, -0.2f, 0.2f));
    const Buffer v(ctx, random_values(heads * V, -1, 1)), beta(ctx, random_values(heads, 0, 1));
    const Buffer gate(ctx, random_values(heads, -0.1f, 0));
    const Buffer g(ctx, heads), A(ctx, heads * WD_GDN_CHUNK), w(ctx, heads * n.K), u(ctx, heads * V);
    const Buffer h(ctx, states), v_new(ctx, heads * V), o(ctx, heads * V), o_at_once(ctx, heads * V);

    auto prepare = n;
    prepare.k = k;
    prepare.gate = gate;
    prepare.beta = beta;
    prepare.g = g;
    prepare.A = A;
    must(wd_gdn_prepare(ctx.get(), &prepare, nullptr));

    auto w_u = gated_delta_net<wd_recompute_w_u_args>();
    w_u.V = V;
    w_u.k = k;
    w_u.v = v;
    w_u.beta = beta;
    w_u.A = A;
    w_u.g = g;
    w_u.w = w;
    w_u.u = u;
    w_u.A_is_lower = true; // gdn_prepare makes it so
    must(wd_recompute_w_u(ctx.get(), &w_u, nullptr));

    auto fwd_h = gated_delta_net<wd_chunk_fwd_h_args>();
    fwd_h.V = V;
    fwd_h.k = k;
    fwd_h.w = w;
    fwd_h.u = u;
    fwd_h.g = g;
    fwd_h.h = h;
    fwd_h.v_new = v_new;
    must(wd_chunk_fwd_h(ctx.get(), &fwd_h, nullptr));

    auto fwd_o = gated_delta_net<wd_chunk_fwd_o_args>();
    fwd_o.V = V;
    fwd_o.q = q;
    fwd_o.k = k;
    fwd_o.v_new = v_new;
    fwd_o.h = h;
    fwd_o.g = g;
    fwd_o.o = o;
    must(wd_chunk_fwd_o(ctx.get(), &fwd_o, nullptr));

    auto forward = gated_delta_net<wd_gdn_forward_args>();
    forward.V = V;
    forward.q = q;
    forward.k = k;
    forward.v = v;
    forward.g = gate;
    forward.beta = beta;
    forward.o = o_at_once;
    must(wd_gdn_forward(ctx.get(), &forward, nullptr));
    return report("chunk kernels", relative_error(o.read(), o_at_once.read()), 1e-5);
}

} // namespace

int main(int argc, char **argv)
{
    try {
        const Context ctx = open(argc > 1 ? argv[1] : nullptr);
        const bool results[] = {fp8_quant(ctx), causal_conv1d(ctx), chunks(ctx)};
        return std::all_of(std::begin(results), std::end(results), [](bool ok) { return ok; }) ? 0 : 1;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
