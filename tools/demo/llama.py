"""A plain Llama in PyTorch: RMSNorm, rotary positions (half-split), grouped-query attention, SwiGLU, tied embeddings."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class Config:
    """Dimensions of a model."""

    vocab_size: int = 2048
    d_model: int = 256
    n_layers: int = 6
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 64
    d_ff: int = 768
    context: int = 512
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


class RmsNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, in float32."""

    def __init__(self, d_model: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., d_model]."""
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and added to its input."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        d_q, d_kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
        self.attn_norm = RmsNorm(c.d_model, c.norm_eps)
        self.q = nn.Linear(c.d_model, d_q, bias=False)
        self.k = nn.Linear(c.d_model, d_kv, bias=False)
        self.v = nn.Linear(c.d_model, d_kv, bias=False)
        self.o = nn.Linear(d_q, c.d_model, bias=False)
        self.ffn_norm = RmsNorm(c.d_model, c.norm_eps)
        self.gate = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.up = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.down = nn.Linear(c.d_ff, c.d_model, bias=False)

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Self-attention; x: [batch, n_tokens, d_model]; mask as `attention_mask` makes it.

        Written as two batched products, where the queries of a head group are stacked on their shared keys. On a CPU
        with bf16 products, this is faster than the fused kernel at these lengths.
        """
        c, (b, t, _) = self.c, x.shape
        group = c.n_heads // c.n_kv_heads
        q = rotate(self.q(x).view(b, t, c.n_heads, c.head_dim).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(b, t, c.n_kv_heads, c.head_dim).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, t, c.n_kv_heads, c.head_dim).transpose(1, 2)
        q = (q * c.head_dim**-0.5).reshape(b * c.n_kv_heads, group * t, c.head_dim)
        k, v = k.flatten(0, 1), v.flatten(0, 1)
        scores = torch.baddbmm(mask, q, k.transpose(1, 2))
        # Autocast would copy the scores to float32; the kernel accumulates in float32 anyway.
        with torch.autocast("cpu", enabled=False):
            weights = scores.softmax(-1)
        y = torch.bmm(weights, v).view(b, c.n_heads, t, c.head_dim)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """x: [batch, n_tokens, d_model]."""
        x = x + self.attention(self.attn_norm(x), cos, sin, mask)
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on the pairs (i, i + head_dim / 2); x: [batch, heads, n_tokens, head_dim]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention_mask(c: Config, docs: Tensor, dtype: torch.dtype) -> Tensor:
    """Mask to add to the scores: 0 for earlier tokens of the same document, else a large negative number.

    docs: [batch, n_tokens], the document of each token; result: [batch * n_kv_heads, group * n_tokens, n_tokens].
    """
    b, t = docs.shape
    seen = (docs[:, :, None] == docs[:, None, :]).tril()
    mask = torch.zeros(b, t, t, dtype=dtype).masked_fill(~seen, -1e9)
    group = c.n_heads // c.n_kv_heads
    return mask[:, None, None].expand(b, c.n_kv_heads, group, t, t).reshape(b * c.n_kv_heads, group * t, t)


class Llama(nn.Module):
    """The whole model; the output head is the embedding table."""

    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocab_size, c.d_model)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.n_layers))
        self.norm = RmsNorm(c.d_model, c.norm_eps)
        inv = c.rope_theta ** -(torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        angle = torch.outer(torch.arange(c.context).float(), inv)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.init()

    def init(self) -> None:
        """Initialises weights from a normal distribution, smaller for matrices that write to the residual stream."""
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith((".o.weight", ".down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * self.c.n_layers) ** 0.5 if out else 0.02)

    def hidden(self, ids: Tensor, docs: Tensor) -> Tensor:
        """Last hidden states [batch, n_tokens, d_model] of ids [batch, n_tokens]; tokens see only their own document."""
        t = ids.shape[1]
        x = self.embed(ids)
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
        cos, sin = self.cos[:t].to(x.dtype), self.sin[:t].to(x.dtype)
        mask = attention_mask(self.c, docs, x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [batch, n_tokens, vocab] of ids [batch, n_tokens], one document a row."""
        return F.linear(self.hidden(ids, torch.zeros_like(ids)), self.embed.weight)

    def losses(self, ids: Tensor, labels: Tensor, docs: Tensor, ignore: int) -> Tensor:
        """Cross entropy of each label (already shifted), 0 where it is `ignore`; all [batch, n_tokens]."""
        logits = F.linear(self.hidden(ids, docs), self.embed.weight)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=ignore, reduction="none")
        return losses.view_as(labels)

    @torch.no_grad()
    def generate(self, ids: list[int], max_tokens: int, stop: set[int]) -> list[int]:
        """Greedy continuation of `ids`, up to a stop token, which is left out."""
        out: list[int] = []
        while len(out) < max_tokens and len(ids) + len(out) < self.c.context:
            token = int(self(torch.tensor([ids + out]))[0, -1].argmax())
            if token in stop:
                break
            out.append(token)
        return out
