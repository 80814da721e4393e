"""Trains a demo model from nothing: corpus, tokenizer, weights.

    python train.py demo          # about an hour on one core with bf16 products
    python train.py demo-draft    # the small draft model of the same vocabulary, a few minutes

Writes `tokenizer.json`, `<model>.pt` (newest checkpoint) and `<model>-training-log.jsonl` to `--out`.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import torch

import vocab
from corpus import VALIDATION_SEED, Document, document, documents
from llama import Config, Llama
from packing import Batch, batches

TOKENIZER_DOCUMENTS = 20_000
VALIDATION_DOCUMENTS = 1_200
# Texts of at least this many characters that are validation documents are never trained on. Shorter ones
# (greetings, sums) are few in kind and must be in both.
HELD_OUT_CHARS = 160


@dataclass
class Recipe:
    """Dimensions and schedule of one model."""

    model: Config
    steps: int
    peak_rate: float
    rows_per_step: int = 8
    warmup_steps: int = 100
    final_rate: float = 0.05
    weight_decay: float = 0.1


RECIPES = {
    "demo": Recipe(Config(), steps=4000, peak_rate=3e-3),
    "demo-draft": Recipe(Config(n_layers=2, n_heads=2, n_kv_heads=1, d_ff=256), steps=1200, peak_rate=4e-3),
}


def content(doc: Document) -> str:
    """All text of a document."""
    return doc.text or "\n".join(m["content"] for m in doc.messages())


def tokenizer_in(out: Path):
    """The tokenizer saved in `out`, trained first when there is none."""
    path = out / "tokenizer.json"
    if not path.exists():
        vocab.train(content(d) for d in documents(0, TOKENIZER_DOCUMENTS)).save(str(path))
    return vocab.load(path)


def training_documents(held_out: set[str]) -> Iterator[Document]:
    """Documents without end, seeds from 0."""
    return (d for d in map(document, count()) if content(d) not in held_out)


def rate(recipe: Recipe, step: int) -> float:
    """Learning rate: linear warm-up, then a cosine down to a share of the peak."""
    if step < recipe.warmup_steps:
        return recipe.peak_rate * (step + 1) / recipe.warmup_steps
    x = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    low = recipe.final_rate
    return recipe.peak_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * x)))


def optimizer_for(model: Llama, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW; norms and the embedding table do not decay."""
    decay = [p for n, p in model.named_parameters() if p.dim() == 2 and n != "embed.weight"]
    rest = [p for n, p in model.named_parameters() if p.dim() != 2 or n == "embed.weight"]
    groups = [{"params": decay, "weight_decay": recipe.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=recipe.peak_rate, betas=(0.9, 0.95), fused=True)


@torch.no_grad()
def validation_loss(model: Llama, data: list[Batch]) -> float:
    """Mean cross entropy, in nats a token, of the labels of some batches."""
    total, n = 0.0, 0
    for batch in data:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = model.losses(batch.ids, batch.labels, batch.docs, vocab.IGNORE)
        total, n = total + losses.sum().item(), n + int((batch.labels != vocab.IGNORE).sum())
    return total / n


def train(name: str, out: Path, recipe: Recipe) -> None:
    """Trains one model; logs a line every 50 steps and validates every 150."""
    tokenizer = tokenizer_in(out)
    encoder = vocab.Encoder(tokenizer)
    length, pad = recipe.model.context, encoder.id[vocab.EOS]
    held_out_docs = list(documents(VALIDATION_SEED, VALIDATION_DOCUMENTS))
    validation = {
        kind: list(batches((d for d in held_out_docs if d.is_story() == (kind == "stories")), encoder, length, 6, pad))[:n]
        for kind, n in (("stories", 6), ("chats", 6))
    }
    held_out = {content(d) for d in held_out_docs if len(content(d)) >= HELD_OUT_CHARS}
    data = batches(training_documents(held_out), encoder, length, recipe.rows_per_step, pad)

    torch.manual_seed(0)
    model = Llama(recipe.model)
    optimizer = optimizer_for(model, recipe)
    n_params = sum(p.numel() for p in model.parameters())
    log = (out / f"{name}-training-log.jsonl").open("w", buffering=1)
    print(json.dumps({"model": name, "parameters": n_params, **asdict(recipe)}), file=log)
    start, trained_s, n_tokens, recent = time.monotonic(), 0.0, 0, []
    for step in range(recipe.steps):
        began = time.monotonic()
        batch = next(data)
        for group in optimizer.param_groups:
            group["lr"] = rate(recipe, step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = model.losses(batch.ids, batch.labels, batch.docs, vocab.IGNORE)
        weights = batch.weights * (batch.labels != vocab.IGNORE)
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        recent.append(loss.item())
        n_tokens += batch.ids.numel()
        trained_s += time.monotonic() - began
        done, last = step + 1, step + 1 == recipe.steps
        if done % 50 == 0 or last:
            line = {"step": done, "tokens": n_tokens, "train_loss": round(sum(recent) / len(recent), 4), "rate": round(rate(recipe, step), 6),
                    "tokens_per_s": round(n_tokens / trained_s), "elapsed_s": round(time.monotonic() - start)}
            if done % 150 == 0 or last:
                line |= {f"validation_loss_{k}": round(validation_loss(model, v), 4) for k, v in validation.items()}
                torch.save({"config": asdict(recipe.model), "weights": model.state_dict(), "log": line}, out / "partial.pt")
                (out / "partial.pt").replace(out / f"{name}.pt")
            print(json.dumps(line), file=log)
            recent = []


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=RECIPES)
    parser.add_argument("--out", type=Path, default=Path("demo-run"), help="folder for checkpoints and logs")
    parser.add_argument("--steps", type=int, help="instead of the recipe's number")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    recipe = RECIPES[args.model]
    if args.steps:
        recipe.steps = args.steps
    args.out.mkdir(parents=True, exist_ok=True)
    train(args.model, args.out, recipe)


if __name__ == "__main__":
    main()
