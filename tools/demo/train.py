"""Trains a demo model from nothing: corpus, tokenizer, weights.

    python tools/demo/train.py demo         # about an hour on one core with bf16 products
    python tools/demo/train.py demo-draft   # the small draft model of the same vocabulary, some minutes

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
from corpus import MIXES, VALIDATION_SEED, Document, document, documents
from llama import Config, Llama
from packing import Batch, batches

TOKENIZER_DOCUMENTS = 20_000
VALIDATION_DOCUMENTS = 1_200
# Texts of validation documents with at least this many characters are never trained on. Shorter ones
# (greetings, sums) have few forms, so they must be in both sets.
HELD_OUT_CHARS = 160


@dataclass
class Phase:
    """A stretch of training with its own documents and schedule."""

    mix: str
    first_seed: int
    steps: int
    peak_rate: float
    warmup_steps: int = 100
    final_rate: float = 0.05


@dataclass
class Recipe:
    """Dimensions and phases of one model."""

    model: Config
    phases: list[Phase]
    rows_per_step: int = 8
    weight_decay: float = 0.1


RECIPES = {
    "demo": Recipe(Config(), [Phase("stories", 0, 4000, 3e-3), Phase("chats", 1 << 39, 650, 1e-3)]),
    "demo-draft": Recipe(
        Config(n_layers=2, n_heads=2, n_kv_heads=1, d_ff=256),
        [Phase("stories", 0, 1500, 4e-3), Phase("chats", 1 << 39, 500, 1.5e-3)],
    ),
}


def content(doc: Document) -> str:
    """All text of a document."""
    return doc.text or "\n".join(m["content"] for m in doc.messages())


def tokenizer_in(out: Path):
    """The tokenizer saved in `out`, which is trained first if there is none."""
    path = out / "tokenizer.json"
    if not path.exists():
        vocab.train(content(d) for d in documents(0, TOKENIZER_DOCUMENTS)).save(str(path))
    return vocab.load(path)


def rate(phase: Phase, step: int) -> float:
    """Learning rate: linear warm-up, then a cosine decay to a share of the peak."""
    if step < phase.warmup_steps:
        return phase.peak_rate * (step + 1) / phase.warmup_steps
    x = (step - phase.warmup_steps) / max(1, phase.steps - phase.warmup_steps)
    low = phase.final_rate
    return phase.peak_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * x)))


def optimizer_for(model: Llama, weight_decay: float) -> torch.optim.Optimizer:
    """AdamW; norms and the embedding table do not decay."""
    decay = [p for n, p in model.named_parameters() if p.dim() == 2 and n != "embed.weight"]
    rest = [p for n, p in model.named_parameters() if p.dim() != 2 or n == "embed.weight"]
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=True)


@torch.no_grad()
def validation_loss(model: Llama, data: list[Batch]) -> float:
    """Mean cross entropy, in nats a token, of the labels of some batches."""
    total, n = 0.0, 0
    for batch in data:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = model.losses(batch.ids, batch.labels, batch.docs, vocab.IGNORE)
        total, n = total + losses.sum().item(), n + int((batch.labels != vocab.IGNORE).sum())
    return total / n


class Run:
    """The training of one model in a folder."""

    def __init__(self, name: str, out: Path):
        self.name, self.out, self.recipe = name, out, RECIPES[name]
        self.encoder = vocab.Encoder(tokenizer_in(out))
        held_out = list(documents(VALIDATION_SEED, VALIDATION_DOCUMENTS))
        self.held_out = {content(d) for d in held_out if len(content(d)) >= HELD_OUT_CHARS}
        self.validation = {
            "stories": list(self.batches((d for d in held_out if d.is_story()), 6))[:6],
            "chats": list(self.batches((d for d in held_out if not d.is_story()), 6))[:6],
        }
        torch.manual_seed(0)
        self.model = Llama(self.recipe.model)

    def batches(self, docs: Iterator[Document], size: int) -> Iterator[Batch]:
        """Packed batches of documents."""
        return batches(docs, self.encoder, self.recipe.model.context, size, self.encoder.id[vocab.EOS])

    def data(self, phase: Phase) -> Iterator[Batch]:
        """Endless batches of a phase, without held-out documents."""
        docs = (document(seed, MIXES[phase.mix]) for seed in count(phase.first_seed))
        return self.batches((d for d in docs if content(d) not in self.held_out), self.recipe.rows_per_step)

    def step(self, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
        """One update; returns the weighted loss."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = self.model.losses(batch.ids, batch.labels, batch.docs, vocab.IGNORE)
        weights = batch.weights * (batch.labels != vocab.IGNORE)
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    def save(self, line: dict) -> None:
        """Replaces the checkpoint atomically, so that it is always complete."""
        saved = {"config": asdict(self.recipe.model), "weights": self.model.state_dict(), "log": line}
        torch.save(saved, self.out / "partial.pt")
        (self.out / "partial.pt").replace(self.out / f"{self.name}.pt")

    def train(self, number: int) -> None:
        """Trains phase `number` (from 0). It starts from the saved weights, unless it is the first."""
        if number > 0:
            self.model.load_state_dict(torch.load(self.out / f"{self.name}.pt", weights_only=True)["weights"])
        phase, data = self.recipe.phases[number], self.data(self.recipe.phases[number])
        optimizer = optimizer_for(self.model, self.recipe.weight_decay)
        log = (self.out / f"{self.name}-training-log.jsonl").open("a" if number else "w", buffering=1)
        head = {"model": self.name, "parameters": sum(p.numel() for p in self.model.parameters())}
        print(json.dumps(head | asdict(self.recipe.model) | {"phase": asdict(phase)}), file=log)
        start, trained_s, n_tokens, recent = time.monotonic(), 0.0, 0, []
        for step in range(phase.steps):
            began = time.monotonic()
            for group in optimizer.param_groups:
                group["lr"] = rate(phase, step)
            batch = next(data)
            recent.append(self.step(batch, optimizer))
            n_tokens += batch.ids.numel()
            trained_s += time.monotonic() - began
            done, last = step + 1, step + 1 == phase.steps
            if done % 50 == 0 or last:
                line = {"step": done, "tokens": n_tokens, "train_loss": round(sum(recent) / len(recent), 4), "rate": round(rate(phase, step), 6),
                        "tokens_per_s": round(n_tokens / trained_s), "elapsed_s": round(time.monotonic() - start)}
                if done % 150 == 0 or last:
                    line |= {f"validation_loss_{k}": round(validation_loss(self.model, v), 4) for k, v in self.validation.items()}
                    self.save(line)
                print(json.dumps(line), file=log)
                recent = []


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=RECIPES)
    parser.add_argument("--out", type=Path, default=Path("demo-run"), help="folder for checkpoints and logs")
    parser.add_argument("--phase", type=int, default=1, help="start at this phase, from the saved weights of the one before")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args.model, args.out)
    for number in range(args.phase - 1, len(run.recipe.phases)):
        run.train(number)


if __name__ == "__main__":
    main()
