#!/usr/bin/env python3
"""Compares fixtures of testdata/goldens with llama.cpp. `millrace quantize` converts each folder, and llama.cpp's server opens the
file. After some prefixes of the prompt, its probabilities are compared with the fixture's.

    python tools/check_llama_cpp.py --server llama-server --millrace target/release/millrace NAME ...

Needs numpy and safetensors. With --own, the server opens the fixture's model.f32.gguf, which llama.cpp's converter wrote.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

PORT = 18_732


def byte_symbols():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def tokenizer(folder, vocab_size):
    """Writes a vocabulary of the bytes, filled up with tokens that no text produces."""
    symbols = [*byte_symbols(), "Ġt"]
    vocab = {symbol: i for i, symbol in enumerate(symbols)}
    added = [f"<|unused{i}|>" for i in range(vocab_size - len(symbols))]
    vocab_of_all = vocab | {text: len(symbols) + i for i, text in enumerate(added)}
    written = {
        "version": "1.0",
        "added_tokens": [
            dict(id=vocab_of_all[text], content=text, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
            for text in added
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["Ġ t"]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(written))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": added[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def ask(tokens, vocab_size):
    """llama.cpp's log-probabilities of the token after these tokens."""
    request = dict(prompt=tokens, n_predict=1, n_probs=vocab_size, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, cache_prompt=False)
    request["samplers"] = []
    url, headers = f"http://127.0.0.1:{PORT}/completion", {"Content-Type": "application/json"}
    # If the text ends at once, the server returns no probabilities.
    for seed in range(50):
        data = json.dumps(request | {"seed": seed}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as reply:
            found = json.load(reply).get("completion_probabilities")
        if found:
            break
    else:
        sys.exit("llama.cpp gives no probabilities")
    out = np.full(vocab_size, np.nan)
    for row in found[0]["top_logprobs"]:
        out[row["id"]] = row["logprob"]
    return out


def wait(server):
    for _ in range(200):
        if server.poll() is not None:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health") as reply:
                if reply.status == 200:
                    return True
        except OSError:
            time.sleep(0.1)
    return False


def check(name, arguments, temp):
    golden = arguments.goldens / name
    expected = load_file(golden / "expected.safetensors")
    tokens, logits = expected["tokens"].tolist(), expected["logits"].astype(np.float64)
    file = golden / "model.f32.gguf"
    if not arguments.own:
        folder = temp / name
        shutil.copytree(golden, folder, ignore=shutil.ignore_patterns("*.gguf"))
        tokenizer(folder, logits.shape[1])
        file = temp / f"{name}.gguf"
        subprocess.run([arguments.millrace, "quantize", folder, file, "F32"], check=True, stdout=subprocess.DEVNULL)
    log = open(temp / f"{name}.log", "w")
    command = [arguments.server, "-m", file, "--port", str(PORT), "-c", "512", "-ngl", "0", "-t", "1", "-ctk", "f32", "-ctv", "f32"]
    command += ["-fa", "off", "--no-warmup", "-np", "1", "--swa-full"]
    server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        if not wait(server):
            print(f"{name}: llama.cpp does not open the file")
            print("".join((temp / f"{name}.log").read_text().splitlines(keepends=True)[-12:]))
            return False
        worst = 0.0
        for n in sorted({1, 2, len(tokens) // 3, len(tokens) // 2, len(tokens) - 1, len(tokens)}):
            ours = logits[n - 1] - np.logaddexp.reduce(logits[n - 1])
            theirs = ask(tokens[:n], logits.shape[1])
            seen = ~np.isnan(theirs) & (ours > -20)
            worst = max(worst, float(np.abs(ours - theirs)[seen].max()))
        print(f"{name}: {worst:.5f} apart at most, of logarithms over {logits.shape[1]} tokens")
        return worst < arguments.bound
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--millrace", type=Path, default=root / "target/release/millrace")
    parser.add_argument("--goldens", type=Path, default=root / "testdata/goldens")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--bound", type=float, default=0.02)
    arguments = parser.parse_args()
    arguments.server, arguments.millrace = arguments.server.resolve(), arguments.millrace.resolve()
    with tempfile.TemporaryDirectory() as temp:
        results = [check(name, arguments, Path(temp)) for name in arguments.names]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
