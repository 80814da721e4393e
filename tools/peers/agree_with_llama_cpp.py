#!/usr/bin/env python3
"""Checks that Millrace and llama.cpp (PyPI `llama-cpp-python`) agree on a GGUF file.

Both continue the same prompts greedily, from the same token ids. The script reports the first token where
they differ. Exit status 0 if they agree on every prompt for at least --tokens tokens or to its end.

    python tools/peers/agree_with_llama_cpp.py models/demo/demo.gguf --tokens 200
"""

import argparse
import json
import subprocess
import sys

import llama_cpp as lc

PROMPTS = [
    "Once upon a time",
    "One day, a little fox",
    "Tom and Lily went to the river.",
    "The old bear was",
    "It was a rainy day.",
]


def millrace(binary, model, prompt, n_tokens):
    command = [binary, "run", model, prompt, "-n", str(n_tokens), "--greedy", "--ignore-eos",
               "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--binary", default="target/release/millrace")
    parser.add_argument("--prompt", dest="prompts", action="append", help="instead of the usual five; may be repeated")
    args = parser.parse_args()
    peer = lc.Llama(args.model, n_ctx=512, n_threads=1, verbose=False)
    failed = False
    for prompt in args.prompts or PROMPTS:
        result = millrace(args.binary, args.model, prompt, args.tokens)
        ours = result["tokens"]
        ids = peer.tokenize(prompt.encode(), add_bos=True, special=True)
        theirs = []
        for token in peer.generate(ids, temp=0.0, top_k=1):
            theirs.append(token)
            if len(theirs) == len(ours):
                break
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(ours))
        ok = same == len(ours) >= args.tokens
        failed |= not ok
        print(f"{'ok  ' if ok else 'FAIL'} {same} of {args.tokens} tokens agree: {prompt!r}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
