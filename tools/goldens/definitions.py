"""Blocks of families that transformers has no class for, by their definition. `tools/check_llama_cpp.py` compares the resulting
models with llama.cpp, which has these families."""

import math

import torch
import transformers
from torch import nn
from torch.nn import functional


def scores_mask(n, window=None):
    """Mask of the keys that a query does not see: later ones, and those outside the window."""
    at = torch.arange(n)
    distance = at[:, None] - at[None, :]
    unseen = distance < 0
    if window is not None:
        unseen |= distance >= window
    return unseen


def slopes(n_heads):
    """Slopes by which scores fall with the distance (Press, Smith and Lewis 2022), also for numbers that are not a power of 2."""
    whole = 2 ** int(math.log2(n_heads))
    of_power = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    of_twice = [2 ** (-4 * (i + 1) / whole) for i in range(2 * whole)]
    return of_power + of_twice[0::2][: n_heads - whole]


def attend(q, k, v, scale, window=None, slopes=None):
    """Causal attention of heads `[n, heads, elements]`. Adjacent query heads share a key head. Scores fall with the distance by
    the slopes, one a head."""
    n, n_heads, _ = q.shape
    group = n_heads // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if slopes is not None:
        at = torch.arange(n, dtype=q.dtype)
        scores = scores - torch.tensor(slopes, dtype=q.dtype)[:, None, None] * (at[:, None] - at[None, :])
    scores = scores.masked_fill(scores_mask(n, window), float("-inf"))
    out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
    return out.reshape(n, -1)


def rotate(x, theta, n_rot=None, interleaved=False):
    """RoPE of the first `n_rot` elements of heads `[n, heads, elements]`."""
    n_rot = n_rot or x.shape[-1]
    freqs = theta ** (-torch.arange(0, n_rot, 2).double() / n_rot)
    angles = torch.outer(torch.arange(x.shape[0]).double(), freqs).float()[:, None]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    head, rest = x[..., :n_rot], x[..., n_rot:]
    if interleaved:
        a, b = head[..., 0::2], head[..., 1::2]
        head = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = head.chunk(2, -1)
        head = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([head, rest], -1)


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def of_blocks(config, block):
    """Llama's model with these blocks: `block(config, layer)` makes a module that maps rows to rows."""

    class Layer(nn.Module):
        def __init__(self, layer):
            super().__init__()
            for name, module in block(config, layer).named_children():
                self.add_module(name, module)
            self.compute = type(block(config, layer)).compute
            self.config, self.layer = config, layer

        def forward(self, x, **_more):
            return self.compute(self, x[0])[None]

    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager")
    layers = nn.ModuleList(Layer(layer) for layer in range(config.num_hidden_layers))
    model.model.layers = layers
    return model


def matrix(n_in, n_out, bias=False):
    return nn.Linear(n_in, n_out, bias=bias)


class SelfAttention(nn.Module):
    """The four projections of self-attention."""

    def __init__(self, config, n_heads=None, n_kv_heads=None):
        super().__init__()
        self.n_heads = n_heads or config.num_attention_heads
        self.n_kv_heads = n_kv_heads or config.num_key_value_heads
        self.head_dim = config.head_dim
        width, kv_width = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        self.q_proj = matrix(config.hidden_size, width)
        self.k_proj = matrix(config.hidden_size, kv_width)
        self.v_proj = matrix(config.hidden_size, kv_width)
        self.o_proj = matrix(width, config.hidden_size)

    def heads(self, x):
        """Queries, keys and values `[n, heads, elements]`."""
        of = (self.q_proj, self.k_proj, self.v_proj)
        return tuple(project(x).unflatten(-1, (-1, self.head_dim)) for project in of)


class Network(nn.Module):
    """Gate, up and down projections under the given names."""

    def __init__(self, width, d_ff, names=("gate", "up", "down")):
        super().__init__()
        self.names = names
        for name, sizes in zip(names, [(width, d_ff), (width, d_ff), (d_ff, width)]):
            self.add_module(name, matrix(*sizes))

    def forward(self, x, act=functional.silu):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(act(gate(x)) * up(x))


def mixture(x, experts, weights, numbers, act):
    """Weighted sum of the outputs of the chosen experts. `weights` and `numbers` are `[n, used]`."""
    rows = []
    for row, row_weights, row_numbers in zip(x, weights, numbers):
        parts = [w * experts[int(i)](row, act) for w, i in zip(row_weights, row_numbers)]
        rows.append(sum(parts))
    return torch.stack(rows)


class SmallThinker(nn.Module):
    """ReLU experts, chosen by the input of the block."""

    def __init__(self, config, layer):
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(config)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        mixture = nn.Module()
        mixture.primary_router = matrix(config.hidden_size, config.moe_num_primary_experts)
        of = (config.hidden_size, config.moe_ffn_hidden_size)
        mixture.experts = nn.ModuleList(Network(*of) for _ in range(config.moe_num_primary_experts))
        self.block_sparse_moe = mixture

    def compute(self, x):
        config, layer = self.config, self.layer
        scores = self.block_sparse_moe.primary_router(x)
        best, numbers = scores.topk(config.moe_num_active_primary_experts, dim=-1)
        if config.moe_primary_router_apply_softmax:
            weights = best.softmax(-1)
        else:
            weights = best.sigmoid()
            weights = weights / weights.sum(-1, keepdim=True)
        q, k, v = self.self_attn.heads(self.input_layernorm(x))
        if config.rope_layout[layer]:
            q, k = (rotate(heads, config.rope_parameters["rope_theta"]) for heads in (q, k))
        window = config.sliding_window_size if config.sliding_window_layout[layer] else None
        x = x + self.self_attn.o_proj(attend(q, k, v, config.head_dim**-0.5, window))
        normed = self.post_attention_layernorm(x)
        return x + mixture(normed, self.block_sparse_moe.experts, weights, numbers, functional.relu)


class OpenElm(nn.Module):
    """Numbers of heads and widths differ by layer; norms of heads."""

    def __init__(self, config, layer):
        super().__init__()
        n_heads, n_kv_heads = config.num_query_heads[layer], config.num_kv_heads[layer]
        width, head_dim = config.hidden_size, config.head_dim
        self.attn_norm = Norm(width, config.rms_norm_eps)
        self.attn = nn.Module()
        self.attn.qkv_proj = matrix(width, (n_heads + 2 * n_kv_heads) * head_dim)
        self.attn.q_norm = Norm(head_dim, config.rms_norm_eps)
        self.attn.k_norm = Norm(head_dim, config.rms_norm_eps)
        self.attn.out_proj = matrix(n_heads * head_dim, width)
        d_ff = config.ffn_widths[layer]
        self.ffn_norm = Norm(width, config.rms_norm_eps)
        self.ffn = nn.Module()
        self.ffn.proj_1 = matrix(width, 2 * d_ff)
        self.ffn.proj_2 = matrix(d_ff, width)

    def compute(self, x):
        config, layer = self.config, self.layer
        theta, n_kv = config.rope_parameters["rope_theta"], config.num_kv_heads[layer]
        heads = self.attn.qkv_proj(self.attn_norm(x)).unflatten(-1, (-1, config.head_dim))
        q, k, v = heads.split([config.num_query_heads[layer], n_kv, n_kv], dim=1)
        q, k = rotate(self.attn.q_norm(q), theta), rotate(self.attn.k_norm(k), theta)
        x = x + self.attn.out_proj(attend(q, k, v, config.head_dim**-0.5))
        gate, up = self.ffn.proj_1(self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn.proj_2(functional.silu(gate) * up)


class Deci(nn.Module):
    """Llama's block, or the parts of it that an architecture search kept."""

    def __init__(self, config, layer):
        super().__init__()
        of = config.block_configs[layer]
        group, width = of["attention"]["n_heads_in_group"], config.hidden_size
        if group or of["attention"]["replace_with_linear"]:
            self.input_layernorm = Norm(width, config.rms_norm_eps)
        if group:
            self.self_attn = SelfAttention(config, n_kv_heads=config.num_attention_heads // group)
        elif of["attention"]["replace_with_linear"]:
            self.self_attn = nn.Module()
            self.self_attn.linear_attn = matrix(width, width)
        if of["ffn"]["ffn_mult"]:
            d_ff = int(2 * of["ffn"]["ffn_mult"] * width / 3)
            d_ff = -(-d_ff // 256) * 256
            self.post_attention_layernorm = Norm(width, config.rms_norm_eps)
            self.mlp = Network(width, d_ff, ("gate_proj", "up_proj", "down_proj"))

    def compute(self, x):
        config = self.config
        attention = getattr(self, "self_attn", None)
        if isinstance(attention, SelfAttention):
            theta = config.rope_parameters["rope_theta"]
            q, k, v = attention.heads(self.input_layernorm(x))
            q, k = rotate(q, theta), rotate(k, theta)
            x = x + attention.o_proj(attend(q, k, v, config.head_dim**-0.5))
        elif attention is not None:
            x = x + attention.linear_attn(self.input_layernorm(x))
        if hasattr(self, "mlp"):
            x = x + self.mlp(self.post_attention_layernorm(x))
        return x


class Maincoder(nn.Module):
    """Llama's block with norms of heads after a rotation of adjacent elements."""

    def __init__(self, config, layer):
        super().__init__()
        width = config.hidden_size
        self.input_layernorm = Norm(width, config.rms_norm_eps)
        self.self_attn = SelfAttention(config)
        self.self_attn.q_norm = Norm(config.head_dim, config.rms_norm_eps)
        self.self_attn.k_norm = Norm(config.head_dim, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(width, config.rms_norm_eps)
        self.mlp = Network(width, config.intermediate_size, ("gate_proj", "up_proj", "down_proj"))

    def compute(self, x):
        config, attention = self.config, self.self_attn
        theta = config.rope_parameters["rope_theta"]
        q, k, v = attention.heads(self.input_layernorm(x))
        q = attention.q_norm(rotate(q, theta, interleaved=True))
        k = attention.k_norm(rotate(k, theta, interleaved=True))
        x = x + attention.o_proj(attend(q, k, v, config.head_dim**-0.5))
        return x + self.mlp(self.post_attention_layernorm(x))


class Rwkv7(nn.Module):
    """RWKV 7's recurrence and network, with the names of flash-linear-attention. Blocks compute in order: the first leaves its
    values for the others."""

    first_values = None

    def __init__(self, config, layer):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        if layer == 0:
            self.pre_norm = nn.LayerNorm(width, eps)
        self.attn_norm, self.ffn_norm = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        attn = nn.Module()
        for name in "rwkvag":
            attn.register_parameter(f"x_{name}", nn.Parameter(torch.zeros(1, 1, width)))
        for name in ("k_k", "k_a"):
            attn.register_parameter(name, nn.Parameter(torch.zeros(width)))
        attn.r_k = nn.Parameter(torch.zeros(width // config.rwkv_head_dim, config.rwkv_head_dim))
        for name in "rkvo":
            attn.add_module(f"{name}_proj", matrix(width, width))
        between = {"w": nn.Tanh(), "a": nn.Identity(), "v": nn.Identity(), "g": nn.Sigmoid()}
        for name, rank in config.rwkv_ranks.items():
            if name != "v" or layer > 0:
                low_rank = nn.Module()
                up = matrix(rank, width, bias=name != "g")
                low_rank.lora = nn.Sequential(matrix(width, rank), between[name], up)
                attn.add_module(f"{name}_lora", low_rank)
        attn.g_norm = nn.LayerNorm(width)
        self.attn = attn
        ffn = nn.Module()
        ffn.x_k = nn.Parameter(torch.zeros(width))
        ffn.key, ffn.value = matrix(width, config.intermediate_size), matrix(config.intermediate_size, width)
        self.ffn = ffn

    def compute(self, x):
        if self.layer == 0:
            x = self.pre_norm(x)
        x = x + Rwkv7.mix(self.attn, self.config, self.layer, self.attn_norm(x))
        normed = self.ffn_norm(x)
        before = functional.pad(normed, (0, 0, 1, 0))[:-1]
        rows = normed + (before - normed) * self.ffn.x_k
        return x + self.ffn.value(functional.relu(self.ffn.key(rows)) ** 2)

    @staticmethod
    def mix(attn, config, layer, x):
        before = functional.pad(x, (0, 0, 1, 0))[:-1]
        row = {name: x + (before - x) * getattr(attn, f"x_{name}")[0] for name in "rwkvag"}
        r, k, v = attn.r_proj(row["r"]), attn.k_proj(row["k"]), attn.v_proj(row["v"])
        decay = torch.exp(-math.exp(-0.5) * attn.w_lora.lora(row["w"]).sigmoid())
        rate = attn.a_lora.lora(row["a"]).sigmoid()
        if layer == 0:
            Rwkv7.first_values = v
        else:
            v = torch.lerp(v, Rwkv7.first_values, attn.v_lora.lora(row["v"]).sigmoid())
        heads = lambda rows: rows.unflatten(-1, (-1, config.rwkv_head_dim))
        lost = functional.normalize(heads(k * attn.k_k), dim=-1)
        r, k, v, decay, rate = map(heads, (r, k * (1 + (rate - 1) * attn.k_a), v, decay, rate))
        state = torch.zeros(*k.shape[1:], k.shape[-1], dtype=x.dtype)
        rows = []
        for t in range(len(x)):
            # `[heads, keys, values]`.
            seen = torch.einsum("hkv,hk->hv", state, lost[t])
            state = decay[t][..., None] * state
            state = state - torch.einsum("hk,hv->hkv", lost[t] * rate[t], seen)
            state = state + torch.einsum("hk,hv->hkv", k[t], v[t])
            rows.append(torch.einsum("hkv,hk->hv", state, r[t]))
        out = functional.layer_norm(torch.stack(rows), (config.rwkv_head_dim,), eps=64e-5).flatten(1)
        out = out * attn.g_norm.weight + attn.g_norm.bias
        out = out + ((r * k * attn.r_k).sum(-1, keepdim=True) * v).flatten(1)
        return attn.o_proj(out * attn.g_lora.lora(row["g"]))


def rwkv7(config):
    """RWKV 7: its blocks, and a LayerNorm at the end."""
    model = of_blocks(config, Rwkv7)
    model.model.norm = nn.LayerNorm(config.hidden_size, config.rms_norm_eps)
    return model


class Scaled(nn.Module):
    """A table or a head with a factor on its rows."""

    def __init__(self, inner, factor):
        super().__init__()
        self.weight, self.inner, self.factor = inner.weight, [inner], factor

    def forward(self, x):
        return self.inner[0](x) * self.factor


class Jais(nn.Module):
    """GPT-2's block with a gated network and biases by distance."""

    def __init__(self, config, layer):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = matrix(width, 3 * width, True), matrix(width, width, True)
        for name in ("c_fc", "c_fc2"):
            self.mlp.add_module(name, matrix(width, config.intermediate_size, True))
        self.mlp.c_proj = matrix(config.intermediate_size, width, True)

    def compute(self, x):
        n_heads = self.config.num_attention_heads
        q, k, v = (part.unflatten(-1, (n_heads, -1)) for part in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
        scale = q.shape[-1] ** (-1.0 if self.config.jais["by_size"] else -0.5)
        x = x + self.attn.c_proj(attend(q, k, v, scale, slopes=slopes(n_heads)))
        normed, mlp = self.ln_2(x), self.mlp
        return x + mlp.c_proj(mlp.c_fc(normed) * functional.silu(mlp.c_fc2(normed)))


def jais(config):
    """Jais: its blocks, a LayerNorm at the end, factors on embeddings and logits."""
    model = of_blocks(config, Jais)
    model.model.norm = nn.LayerNorm(config.hidden_size, config.rms_norm_eps)
    factors = config.jais
    model.model.embed_tokens = Scaled(model.model.embed_tokens, factors["embed_scale"])
    model.lm_head = Scaled(model.lm_head, factors["output_scale"])
    return model


class Refact(nn.Module):
    """One head of keys and values, biases by distance, LayerNorms without biases."""

    def __init__(self, config, layer):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.ln_1, self.ln_2 = (nn.LayerNorm(width, eps, bias=False) for _ in range(2))
        self.attn, self.mlp = nn.Module(), nn.Module()
        head_dim = width // config.num_attention_heads
        self.attn.q, self.attn.kv, self.attn.c_proj = matrix(width, width), matrix(width, 2 * head_dim), matrix(width, width)
        self.mlp.gate_up_proj = matrix(width, 2 * config.intermediate_size)
        self.mlp.c_proj = matrix(config.intermediate_size, width)

    def compute(self, x):
        n_heads, normed = self.config.num_attention_heads, self.ln_1(x)
        q = self.attn.q(normed).unflatten(-1, (n_heads, -1))
        k, v = (part[:, None] for part in self.attn.kv(normed).chunk(2, -1))
        out = attend(q, k, v, q.shape[-1] ** -0.5, slopes=slopes(n_heads))
        x = x + self.attn.c_proj(out)
        gate, up = self.mlp.gate_up_proj(self.ln_2(x)).chunk(2, -1)
        return x + self.mlp.c_proj(functional.silu(gate) * up)


def refact(config):
    """Refact: its blocks, and a LayerNorm without a bias at the end."""
    model = of_blocks(config, Refact)
    model.model.norm = nn.LayerNorm(config.hidden_size, config.rms_norm_eps, bias=False)
    return model


class Spark(nn.Module):
    """Windows and rotations by type of layer, a gate for each head, GELU."""

    def __init__(self, config, layer):
        super().__init__()
        width, n_heads = config.hidden_size, config.num_attention_heads
        self.input_layernorm = Norm(width, config.rms_norm_eps)
        self.self_attn = nn.Module()
        n_rows = (n_heads + 2 * config.num_key_value_heads) * config.head_dim
        self.self_attn.q_k_v_proj, self.self_attn.g_proj = matrix(width, n_rows), matrix(width, n_heads)
        self.self_attn.o_proj = matrix(n_heads * config.head_dim, width)
        self.post_attention_layernorm = Norm(width, config.rms_norm_eps)
        self.mlp = Network(width, config.intermediate_size, ("gate_proj", "up_proj", "down_proj"))

    def compute(self, x):
        config, attention, kind = self.config, self.self_attn, self.config.layer_types[self.layer]
        rope, size = config.spark_ropes[kind], config.head_dim
        normed = self.input_layernorm(x)
        heads = attention.q_k_v_proj(normed).unflatten(-1, (-1, size))
        n_kv = config.num_key_value_heads
        q, k, v = heads.split([config.num_attention_heads, n_kv, n_kv], dim=1)
        n_rot = int(size * rope["partial_rotary_factor"])
        q, k = (rotate(part, rope["rope_theta"], n_rot) for part in (q, k))
        window = config.sliding_window if kind == "sliding_attention" else None
        out = attend(q, k, v, size**-0.5, window).unflatten(-1, (-1, size))
        out = out * attention.g_proj(normed).sigmoid()[..., None]
        x = x + attention.o_proj(out.flatten(1))
        return x + self.mlp(self.post_attention_layernorm(x), functional.gelu)
