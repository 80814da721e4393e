"""Encoders that transformers has no class for: hidden states by their definition, in float64 of torch.

Each function takes weights by their published names, `config.json` and tokens. It returns the input of each block and the output of
the last, and that of the norm behind it if there is one.
"""

import math

import torch


def norm(w, name, x, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)


def linear(w, name, x):
    return torch.nn.functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def heads_of(x, n_heads):
    return x.view(x.shape[0], n_heads, -1).transpose(0, 1)


def attend(q, k, v, bias):
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias
    out = torch.softmax(scores, -1) @ v
    return out.transpose(0, 1).reshape(q.shape[1], -1)


def slopes(n_heads):
    """Press, Smith and Lewis 2022, with their code's rule for numbers that are not a power of 2."""
    whole = 2 ** int(math.log2(n_heads))
    of_power = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    of_twice = [2 ** (-4 * (i + 1) / whole) for i in range(2 * whole)]
    return of_power + of_twice[0::2][: n_heads - whole]


def jina_bert_v2(w, config, tokens):
    n_heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    positions = torch.arange(len(tokens))
    distance = (positions[:, None] - positions[None]).abs().double()
    bias = -torch.tensor(slopes(n_heads), dtype=torch.float64)[:, None, None] * distance
    x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(w, "embeddings.LayerNorm", x, eps)
    states = [x]
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}"
        q, k, v = (heads_of(linear(w, f"{at}.attention.self.{n}", x), n_heads) for n in ("query", "key", "value"))
        out = linear(w, f"{at}.attention.output.dense", attend(q, k, v, bias))
        x = norm(w, f"{at}.attention.output.LayerNorm", x + out, eps)
        gate, up = linear(w, f"{at}.mlp.gated_layers", x).chunk(2, -1)
        out = linear(w, f"{at}.mlp.wo", torch.nn.functional.gelu(gate) * up)
        x = norm(w, f"{at}.mlp.layernorm", x + out, eps)
        states.append(x)
    return states


def rotated(x, theta):
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def nomic_experts(w, at, config, x):
    """Mixture whose weights come from a softmax over all experts, without normalising those of the chosen."""
    n, width = config["num_experts"], config["n_inner"]
    scores = torch.softmax(linear(w, f"{at}.router.layer", x), -1)
    weights, chosen = scores.topk(config["moe_top_k"], -1)
    w1, w2 = (w[f"{at}.experts.mlp.{part}"].view(n, width, -1) for part in ("w1", "w2"))
    rows = []
    for row, row_weights, row_chosen in zip(x, weights, chosen):
        parts = [p * (torch.nn.functional.gelu(row @ w1[e].T) @ w2[e]) for p, e in zip(row_weights, row_chosen)]
        rows.append(sum(parts))
    return torch.stack(rows)


def nomic_bert_moe(w, config, tokens):
    n_heads, eps, theta = config["n_head"], config["layer_norm_epsilon"], config["rotary_emb_base"]
    x = w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(w, "emb_ln", x, eps)
    states = [x]
    for i in range(config["n_layer"]):
        at = f"encoder.layers.{i}"
        q, k, v = (heads_of(part, n_heads) for part in linear(w, f"{at}.attn.Wqkv", x).chunk(3, -1))
        out = attend(rotated(q, theta), rotated(k, theta), v, 0.0)
        x = norm(w, f"{at}.norm1", x + linear(w, f"{at}.attn.out_proj", out), eps)
        if i % config["moe_every_n_layers"] == 1:
            out = nomic_experts(w, f"{at}.mlp", config, x)
        else:
            out = linear(w, f"{at}.mlp.fc2", torch.nn.functional.gelu(linear(w, f"{at}.mlp.fc1", x)))
        x = norm(w, f"{at}.norm2", x + out, eps)
        states.append(x)
    return states


def rms(w, name, x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w[f"{name}.weight"]


def rotated_in_pairs(x, theta):
    """RoPE of neighbouring elements of heads `[heads, n, elements]`."""
    size = x.shape[-1]
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1).flatten(-2)


def neo_bert(w, config, tokens):
    """Each head's queries, keys and values lie together in one matrix."""
    n_heads, eps = config["num_attention_heads"], config["norm_eps"]
    x = w["encoder.weight"][tokens]
    states = [x]
    for i in range(config["num_hidden_layers"]):
        at = f"transformer_encoder.{i}"
        heads = heads_of(linear(w, f"{at}.qkv", rms(w, f"{at}.attention_norm", x, eps)), n_heads)
        q, k, v = heads.chunk(3, -1)
        x = x + linear(w, f"{at}.wo", attend(rotated_in_pairs(q, 10000.0), rotated_in_pairs(k, 10000.0), v, 0.0))
        gate, up = linear(w, f"{at}.ffn.w12", rms(w, f"{at}.ffn_norm", x, eps)).chunk(2, -1)
        x = x + linear(w, f"{at}.ffn.w3", torch.nn.functional.silu(gate) * up)
        states.append(x)
    return [*states, rms(w, "layer_norm", x, eps)]


def shapes_of_neo(config):
    d = config["hidden_size"]
    ff = -(-int(2 * config["intermediate_size"] / 3) // 8) * 8
    out = dense("encoder", config["vocab_size"], d, False) | {"layer_norm.weight": (d,)}
    for i in range(config["num_hidden_layers"]):
        at = f"transformer_encoder.{i}"
        out |= dense(f"{at}.qkv", 3 * d, d, False) | dense(f"{at}.wo", d, d, False)
        out |= dense(f"{at}.ffn.w12", 2 * ff, d, False) | dense(f"{at}.ffn.w3", d, ff, False)
        out |= {f"{at}.attention_norm.weight": (d,), f"{at}.ffn_norm.weight": (d,)}
    return out


def post_norms(*names, size):
    return {f"{name}.{part}": (size,) for name in names for part in ("weight", "bias")}


def dense(name, n, k, bias=True):
    return {f"{name}.weight": (n, k)} | ({f"{name}.bias": (n,)} if bias else {})


def shapes_of_jina(config):
    d, ff = config["hidden_size"], config["intermediate_size"]
    out = dense("embeddings.word_embeddings", config["vocab_size"], d, False)
    out |= dense("embeddings.token_type_embeddings", 2, d, False) | post_norms("embeddings.LayerNorm", size=d)
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            out |= dense(f"{at}.attention.{name}", d, d)
        out |= post_norms(f"{at}.attention.output.LayerNorm", f"{at}.mlp.layernorm", size=d)
        out |= dense(f"{at}.mlp.gated_layers", 2 * ff, d, False) | dense(f"{at}.mlp.wo", d, ff)
    return out


def shapes_of_nomic(config):
    d, ff, n = config["n_embd"], config["n_inner"], config["num_experts"]
    out = dense("embeddings.word_embeddings", config["vocab_size"], d, False)
    out |= dense("embeddings.token_type_embeddings", 1, d, False) | post_norms("emb_ln", size=d)
    for i in range(config["n_layer"]):
        at = f"encoder.layers.{i}"
        out |= dense(f"{at}.attn.Wqkv", 3 * d, d) | dense(f"{at}.attn.out_proj", d, d)
        out |= post_norms(f"{at}.norm1", f"{at}.norm2", size=d)
        if i % config["moe_every_n_layers"] == 1:
            out |= dense(f"{at}.mlp.router.layer", n, d, False)
            out |= {f"{at}.mlp.experts.mlp.{part}": (n * ff, d) for part in ("w1", "w2")}
        else:
            out |= dense(f"{at}.mlp.fc1", ff, d) | dense(f"{at}.mlp.fc2", d, ff)
    return out


JINA = dict(
    architectures=["JinaBertModel"],
    model_type="bert",
    vocab_size=263,
    hidden_size=40,
    intermediate_size=56,
    num_hidden_layers=3,
    num_attention_heads=5,
    max_position_embeddings=70,
    type_vocab_size=2,
    layer_norm_eps=1e-12,
    hidden_act="gelu",
    position_embedding_type="alibi",
    feed_forward_type="geglu",
)
NOMIC = dict(
    architectures=["NomicBertModel"],
    model_type="nomic_bert",
    activation_function="gelu",
    vocab_size=263,
    n_embd=40,
    n_inner=56,
    n_layer=4,
    n_head=5,
    n_positions=2048,
    max_trained_positions=2048,
    type_vocab_size=1,
    layer_norm_epsilon=1e-5,
    rotary_emb_base=700.0,
    rotary_emb_fraction=1.0,
    rotary_emb_interleaved=False,
    rotary_emb_scale_base=None,
    prenorm=False,
    causal=False,
    qkv_proj_bias=True,
    mlp_fc1_bias=True,
    mlp_fc2_bias=True,
    moe_every_n_layers=2,
    num_experts=4,
    moe_top_k=2,
)
NEO = dict(
    architectures=["NeoBERT"],
    model_type="neobert",
    vocab_size=263,
    hidden_size=40,
    intermediate_size=84,
    num_hidden_layers=3,
    num_attention_heads=5,
    max_length=128,
    norm_eps=1e-5,
    pad_token_id=0,
)
# Configuration, shapes of weights, hidden states, tokens.
REFERENCES = {
    "jina-bert-v2": (JINA, shapes_of_jina, jina_bert_v2, 29),
    "neo-bert": (NEO, shapes_of_neo, neo_bert, 31),
    "nomic-bert-moe": (NOMIC, shapes_of_nomic, nomic_bert_moe, 27),
}
