#!/usr/bin/env python3
"""Measures the error of Millrace's and llama.cpp's kernels (PyPI `llama-cpp-python`) for each weight format.

    python tools/peers/quality.py --work /tmp/models

Both programs compute the logits of the same file with quantised random weights. The reference is
Millrace's scalar level on that file: weights decoded to f32, multiplied in f32, keys and values in
f32. The table shows the normalised mean square error of each against it. Exit status 1 if, for any format, ours is
larger than llama.cpp's by more than --margin in the mean of all models. For a single model the two differ by a
tenth either way, since rounding errors are random. Needs numpy, which the peer brings.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys

import llama_cpp as lc
import numpy as np

FORMATS = ["F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0", "IQ4_NL", "Q3_K", "Q2_K"]
TOKENS = [i * 37 % 499 for i in range(192)]


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")


def ours(args, model, level, kv_type):
    out = args.work / "logits.safetensors"
    command = [args.binary, "logits", model, "--tokens", ",".join(map(str, TOKENS)), "--all", "--out", out,
               "--kv-type", kv_type]
    run(command + (["--cpu-level", level] if level else []))
    data = out.read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    info = json.loads(data[8:8 + n_header])["logits"]
    start, end = info["data_offsets"]
    numbers = np.frombuffer(data[8 + n_header + start:8 + n_header + end], dtype="<f4")
    return numbers.reshape(info["shape"]).astype(np.float64)


def theirs(model):
    # Keys and values are f32, so that only the kernels for weights differ.
    peer = lc.Llama(str(model), n_ctx=len(TOKENS) + 16, n_threads=2, logits_all=True, verbose=False,
                    type_k=lc.GGML_TYPE_F32, type_v=lc.GGML_TYPE_F32)
    peer.eval(TOKENS)
    return np.array(peer.scores[:len(TOKENS)], dtype=np.float64)


def nmse(found, expected):
    return float(((found - expected) ** 2).sum() / (expected ** 2).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/millrace")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for the files")
    parser.add_argument("--geometry", nargs="*", default=["llama-tiny", "qwen-tiny", "gemma-tiny"])
    parser.add_argument("--level", help="CPU level of ours [default: the best]")
    parser.add_argument("--formats", nargs="*", default=FORMATS)
    parser.add_argument("--margin", type=float, default=1.1, help="factor by which ours may be larger")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    bases = {name: args.work / f"{name}-quality-F32.gguf" for name in args.geometry}
    for geometry, base in bases.items():
        run([args.binary, "synth", geometry, base, "--type", "F32"])
    print("| format | Millrace | llama.cpp | ratio |\n|---|---:|---:|---:|")
    failed = False
    for kind in args.formats:
        errors = []
        for geometry, base in bases.items():
            model = args.work / f"{geometry}-quality-{kind}.gguf"
            run([args.binary, "quantize", base, model, kind])
            expected = ours(args, model, "scalar", "f32")
            errors.append((nmse(ours(args, model, args.level, "f32"), expected), nmse(theirs(model), expected)))
            model.unlink()
        a, b = (sum(values) / len(values) for values in zip(*errors))
        # Errors below float32's own noise are not compared.
        worse = a > max(args.margin * b, 1e-9)
        failed |= worse
        print(f"| {kind} | {a:.2e} | {b:.2e} | {a / max(b, 1e-30):.2f}{' WORSE' if worse else ''} |", flush=True)
    for base in bases.values():
        base.unlink()
    sys.exit(failed)


if __name__ == "__main__":
    main()
