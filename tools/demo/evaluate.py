"""Measures an exported demo model with llama.cpp: share of right answers by kind of question, and sample stories.

    python tools/demo/evaluate.py models/demo/demo.gguf

The seeds of the questions were not used in training. An answer is right if it contains the key from the
question's maker. Short questions (sums, opposites) have few forms, so most of them also occurred in training.
"""

import argparse
import random

from llama_cpp import Llama

from grammar import chats

FIRST_SEED = 1 << 41
OPENINGS = ["Once upon a time", "Once upon a time, there was a fox", "One day, a little girl named Mia", "Long ago, in a small village", "The old robot"]


def answer(model: Llama, question: str, **sampling) -> str:
    """The assistant's reply to one question, through the chat template of the file."""
    reply = model.create_chat_completion([{"role": "user", "content": question}], max_tokens=400, **sampling)
    return reply["choices"][0]["message"]["content"]


def accuracy(model: Llama, maker, count: int) -> tuple[float, str]:
    """Share of right greedy answers to the first questions of `count` chats, and one wrong example."""
    right, wrong = 0, ""
    for i in range(count):
        question, _, key = maker(random.Random(FIRST_SEED + i))[0]
        reply = answer(model, question, temperature=0.0)
        if key.lower() in reply.lower():
            right += 1
        else:
            wrong = f"{question!r} -> {reply[:200]!r} (wants {key!r})"
    return right / count, wrong


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", help="model file")
    parser.add_argument("--count", type=int, default=100, help="questions of each kind")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    model = Llama(args.gguf, n_ctx=512, n_threads=args.threads, n_threads_batch=args.threads, seed=1, verbose=False)
    for opening in OPENINGS:
        for temperature in (0.0, 0.8):
            out = model(opening, max_tokens=450, temperature=temperature, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0)
            print(f"--- temperature {temperature}, {out['choices'][0]['finish_reason']}\n{opening}{out['choices'][0]['text']}\n", flush=True)
    for maker, _ in chats.KINDS:
        share, wrong = accuracy(model, maker, args.count if maker is not chats.story else max(1, args.count // 10))
        print(f"{maker.__name__:14} {share:6.1%}  {wrong}", flush=True)


if __name__ == "__main__":
    main()
