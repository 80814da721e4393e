"""Checks with llama.cpp that an exported GGUF file equals the PyTorch model: tokens, greedy text, chat.

    python tools/demo/verify.py demo --run demo-run --models models

Fails (exit 1) when tokenizations or greedy continuations differ.
"""

import argparse
import sys
from pathlib import Path

import torch
from jinja2 import Environment
from llama_cpp import Llama as LlamaCpp

import vocab
from corpus import VALIDATION_SEED, documents
from llama import Config, Llama
from train import content

PROMPTS = ["", "Once upon a time", "One day, a little girl named Mia", "Long ago, in a small village", "There was once a dragon"]
CHATS = [
    [{"role": "user", "content": "Tell me a story about a fox named Rolo."}],
    [{"role": "user", "content": "Ben put the ball under the bench. Then he went to the lake. Lucy came and took the ball. Who took the ball?"}],
    [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "What is 7 plus 5?"}],
    [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hello! How can I help you?"}, {"role": "user", "content": "What is the opposite of big?"}],
]


def load(run: Path, name: str) -> tuple[Llama, vocab.Encoder]:
    """A checkpoint's model, its matrices rounded to F16 as in the exported file, and its encoder."""
    saved = torch.load(run / f"{name}.pt", weights_only=True)
    model = Llama(Config(**saved["config"]))
    model.load_state_dict(saved["weights"])
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 2:
                p.copy_(p.half().float())
    return model.eval(), vocab.Encoder(vocab.load(run / "tokenizer.json"))


def tokens_differ(cpp: LlamaCpp, encoder: vocab.Encoder) -> int:
    """Number of test texts that the two tokenizers split differently."""
    texts = [content(d) for d in documents(VALIDATION_SEED, 300)] + ["", " ", "\n\n\n", "  two  spaces", "Ünïcödé 東京 🙂", "12345 don't WON'T", "tab\tend "]
    return sum(cpp.tokenize(t.encode(), add_bos=False, special=False) != encoder.text(t) for t in texts)


def greedy(cpp: LlamaCpp, ids: list[int], max_tokens: int, stop: set[int]) -> list[int]:
    """llama.cpp's greedy continuation, without the stop token."""
    out = []
    for token in cpp.generate(ids, temp=0.0, top_k=1, reset=True):
        if token in stop or len(out) == max_tokens:
            break
        out.append(token)
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--run", type=Path, default=Path("demo-run"))
    parser.add_argument("--models", type=Path, default=Path("models"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, encoder = load(args.run, args.model)
    cpp = LlamaCpp(str(args.models / args.model / f"{args.model}.gguf"), n_ctx=512, n_threads=1, verbose=False)
    stops = {encoder.id[vocab.EOS], encoder.id[vocab.END]}
    failed = tokens_differ(cpp, encoder)
    print(f"tokenizations that differ: {failed}")
    template = Environment().from_string(cpp.metadata["tokenizer.chat_template"])
    prompts = [(p, [encoder.id[vocab.BOS], *encoder.text(p)]) for p in PROMPTS]
    for messages in CHATS:
        text = template.render(messages=messages, bos_token=vocab.BOS, eos_token=vocab.EOS, add_generation_prompt=True)
        ids = cpp.tokenize(text.encode(), add_bos=False, special=True)
        failed += ids != encoder.prompt(messages)
        prompts.append((messages[-1]["content"], ids))
    for prompt, ids in prompts:
        a = model.generate(ids, 200, stops)
        b = greedy(cpp, ids, 200, stops)
        same = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        print(f"{prompt[:40]!r}: {same} of {len(a)} tokens the same{'' if a == b else '  DIFFERENT'}")
        failed += a != b
        print("   ", encoder.tokenizer.decode(b)[:100].replace("\n", " "))
    reply = cpp.create_chat_completion([{"role": "user", "content": "Who are you?"}], max_tokens=40, temperature=0.0)
    print("chat:", reply["choices"][0]["message"]["content"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
