#!/usr/bin/env python3
"""Times llama.cpp (PyPI `llama-cpp-python`) on one GGUF file, as llama-bench would.

Prints one JSON object per test on stdout: {"test": "pp512", "ts": [tokens/s of each repetition]}.
It uses random tokens, computes logits only of the last token, does not sample, and does one warm-up run.
"""

import argparse
import ctypes
import json
import random
import time

import llama_cpp as lc


def open_context(path, n_ctx, threads):
    lc.llama_backend_init()
    silent = lc.llama_log_callback(lambda level, text, data: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    open_context.keep = silent  # the C side holds a bare pointer to it
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    params = lc.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = 2048
    params.n_ubatch = 512
    params.n_threads = threads
    params.n_threads_batch = threads
    context = lc.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"llama.cpp cannot make a context of {n_ctx} tokens")
    return model, context


def decode(context, tokens, n_batch):
    for start in range(0, len(tokens), n_batch):
        part = tokens[start : start + n_batch]
        array = (lc.llama_token * len(part))(*part)
        if lc.llama_decode(context, lc.llama_batch_get_one(array, len(part))) != 0:
            raise SystemExit("llama_decode failed")
    lc.llama_synchronize(context)


def run_test(context, vocab, prompt, generate, depth):
    lc.llama_memory_clear(lc.llama_get_memory(context), True)
    if depth:
        decode(context, [random.randrange(vocab) for _ in range(depth)], 2048)
    tokens = [random.randrange(vocab) for _ in range(prompt)]
    start = time.perf_counter()
    if tokens:
        decode(context, tokens, 2048)
    for _ in range(generate):
        decode(context, [random.randrange(vocab)], 1)
    return (prompt + generate) / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", action="store_true", help="only print versions and CPU features")
    parser.add_argument("model", nargs="?")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument(
        "tests", nargs="*", help="pp512, tg64, tg32@4096 (generate 32 at depth 4096)"
    )
    args = parser.parse_intermixed_args()
    if args.version:
        info = lc.llama_print_system_info().decode().strip(" |")
        print(json.dumps({"version": lc.__version__, "system_info": info}))
        return
    if not args.model or not args.tests:
        parser.error("name a model and at least one test")
    tests = []
    for name in args.tests:
        kind, _, depth = name.partition("@")
        count = int(kind[2:])
        tests.append((name, count if kind.startswith("pp") else 0,
                      count if kind.startswith("tg") else 0, int(depth or 0)))
    # At least the context that the warm-up needs.
    n_ctx = max(36, *(prompt + generate + depth for _, prompt, generate, depth in tests)) + 8
    model, context = open_context(args.model, n_ctx, args.threads)
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    random.seed(1)
    run_test(context, vocab, 32, 4, 0)
    for name, prompt, generate, depth in tests:
        rates = [run_test(context, vocab, prompt, generate, depth)
                 for _ in range(args.repetitions)]
        print(json.dumps({"test": name, "ts": rates}), flush=True)


if __name__ == "__main__":
    main()
