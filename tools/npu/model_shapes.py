#!/usr/bin/env python3
"""Every XDNA2 kernel at the shapes of Llama-3.2-1B and Gemma-3-4B, computed and compared.

    python tools/npu/model_shapes.py --out docs/xdna2-shapes.md

Runs `millrace kernel` for all projections at 2,048 tokens and at one, and for what lies between
them, on random data through the virtual array's data movement, and writes a table: whether the
result is the reference's, how long this computer took, and the predicted time. Exit status 1 if a
result differs. Takes a few minutes; needs a release build and Python's standard library.
"""

import argparse
import json
import pathlib
import subprocess
import sys

# d_model, width of all query heads, of all key heads, d_ff, heads as the attention kernel writes them, ..., window of local layers.
MODELS = {
    "Llama-3.2-1B": (2048, 2048, 512, 8192, "32q/8kv d64", 32, 8, 64, "silu-mul", None),
    "Gemma-3-4B": (2560, 2048, 1024, 10240, "8q/4kv d256", 8, 4, 256, "gelu-mul", 1024),
}
TOKENS = 2048


def cases(model):
    d_model, d_q, d_kv, d_ff, heads, n_heads, n_kv_heads, head_dim, glu, window = MODELS[model]
    projections = [
        ("q", d_model, d_q), ("k", d_model, d_kv), ("v", d_model, d_kv), ("o", d_q, d_model),
        ("gate", d_model, d_ff), ("up", d_model, d_ff), ("down", d_ff, d_model),
    ]
    for what, k, n in projections:
        yield what, "gemm-fused-cast", f"{TOKENS}x{k}x{n}"
        yield f"{what}, one token", "gemv", f"{n}x{k}"
    yield "q, megatiles", "gemm-megatile", f"{TOKENS}x{d_model}x{d_q}"
    for what, k, n in (projections[0], projections[4], projections[6]):
        yield f"{what}, 8-bit integers", "gemm-i8", f"{TOKENS}x{k}x{n}"
        yield f"{what}, 8-bit integers, one token", "gemv-i8", f"{n}x{k}"
    yield "norm", "rmsnorm", f"{TOKENS}x{d_model}"
    yield "RoPE of q", "rope", f"{TOKENS * n_heads}x{head_dim}"
    yield "RoPE of k, one token", "rope", f"{n_kv_heads}x{head_dim}"
    yield "gate and up", glu, f"{TOKENS * d_ff}"
    yield "residual", "add-2d", f"{TOKENS}x{d_model}"
    yield "attention", "flash-attention", f"{TOKENS} {heads} causal"
    qkv, gate_up = f"{d_q}+{d_kv}+{d_kv}", f"{d_ff}+{d_ff}"
    for what, k, n in (("q, k and v", d_model, qkv), ("gate and up", d_model, gate_up), ("down", d_ff, d_model)):
        for kernel in ("gemm-q4nx", "gemm-q4nx-ddr"):
            yield f"{what}, 4 bits", kernel, f"{TOKENS}x{k}x{n}"
        yield f"{what}, 4 bits, one token", "fused-dqp", f"{n}x{k}"
    windows = [""] if window is None else ["", f" window {window}"]
    for kernel in ("prompt-attention", "flow-qkv"):
        for of in windows:
            yield f"attention{of}", kernel, f"{TOKENS}x{TOKENS} {heads}{of} own"
        yield "attention over the cache", kernel, f"{TOKENS}x{2 * TOKENS} {heads}"
    for kernel in ("cached-attention", "flow-kv"):
        yield "attention, one token", kernel, f"1x{TOKENS} {heads}"
    if window is not None:
        yield f"attention window {window}, one token", "flow-kv", f"1x{window + 32} {heads} window {window}"
        yield "attention of an image's patches", "flow-qkv", "4096x4096 16q/16kv d72 full"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/millrace")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here too")
    args = parser.parse_args()
    lines = ["| model | what | kernel | shape | result | this computer | predicted |", "|---|---|---|---|---|---:|---:|"]
    failed = False
    print("\n".join(lines))
    for model in MODELS:
        for what, kernel, shape in cases(model):
            done = subprocess.run([args.binary, "kernel", kernel, shape, "--json"], capture_output=True, text=True)
            if done.returncode != 0 and not done.stdout:
                result, host, predicted = done.stderr.strip().splitlines()[0], "", ""
                failed = True
            else:
                report = json.loads(done.stdout)
                computed = report["computed"]
                same = computed["n_unequal"] == 0
                result = "equal bit for bit" if same else f"{computed['n_unequal']} elements differ"
                failed |= computed["wrong"] is not None
                host = f"{computed['host_s']:.2f} s"
                predicted = f"{report['predicted']['total_ns'] / 1e6:.3f} ms"
            line = f"| {model} | {what} | `{kernel}` | {shape} | {result} | {host} | {predicted} |"
            print(line, flush=True)
            lines.append(line)
    if args.out:
        head = "# XDNA2 kernels at the shapes of two models\n\nWritten by `tools/npu/model_shapes.py`: random data " \
               "through the virtual array, compared with the\nscalar reference. Predicted times are modelled " \
               "(profile `air-strix-2026`).\n\n"
        args.out.write_text(head + "\n".join(lines) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
