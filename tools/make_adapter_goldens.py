#!/usr/bin/env python3
"""Makes the LoRA fixtures of testdata/adapters: tiny random adapters for models of testdata/goldens, with PEFT's logits (float32, CPU).

    python tools/make_adapter_goldens.py [--out DIR] [--llama-cpp DIR]

Needs torch, transformers, peft, safetensors and numpy. With --llama-cpp (a source tree of llama.cpp), fixtures whose factor is
lora_alpha / r also get adapter.f32.gguf from llama.cpp's own converter. Without it, existing GGUF files stay as they are.

Each fixture is a folder:
    adapter_config.json         as PEFT writes it
    adapter_model.safetensors   F32; every value is exact in F16
    adapter.f32.gguf            llama.cpp's conversion (some fixtures)
    expected.safetensors        tokens i64 [n]; logits f32 [n, vocab]
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parent.parent / "testdata"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# Base model in testdata/goldens, and the adapter's configuration.
FIXTURES = {
    # Every matrix of attention and feed-forward; GGUF files permute rows of queries and keys.
    "llama-all": ("llama-llama3", dict(r=3, lora_alpha=6, target_modules=ALL)),
    # Two matrices, another factor; one of the matrices has its own rank and numerator.
    "llama-rslora": (
        "llama-llama3",
        dict(
            r=4,
            lora_alpha=6,
            target_modules=["q_proj", "down_proj"],
            use_rslora=True,
            rank_pattern={"down_proj": 2},
            alpha_pattern={"down_proj": 3},
        ),
    ),
}


def numbers(name, shape):
    """Random numbers, exact in F16, that depend only on the name."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    values = np.random.default_rng(seed).normal(0.0, 0.15, size=shape)
    return torch.from_numpy(values.astype(np.float16).astype(np.float32))


def make(out, base, config):
    model = AutoModelForCausalLM.from_pretrained(ROOT / "goldens" / base, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config)).eval()
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.data = numbers(name, tuple(parameter.shape))
    out.mkdir(parents=True, exist_ok=True)
    model.peft_config["default"].base_model_name_or_path = base
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for name in ["adapter_config.json", "adapter_model.safetensors"]:
            shutil.copy(Path(folder) / name, out / name)
    tokens = [(37 * i + 11) % 250 for i in range(40)]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    save_file(
        {"tokens": np.array(tokens, dtype=np.int64), "logits": logits.numpy()},
        out / "expected.safetensors",
    )


def convert(llama_cpp, out, base):
    command = [sys.executable, str(llama_cpp / "convert_lora_to_gguf.py"), "--outtype", "f32"]
    command += ["--outfile", str(out / "adapter.f32.gguf"), "--base", str(ROOT / "goldens" / base)]
    subprocess.run([*command, str(out)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "adapters")
    parser.add_argument("--llama-cpp", type=Path)
    args = parser.parse_args()
    for name, (base, config) in FIXTURES.items():
        make(args.out / name, base, config)
        # The converter supports no factor except lora_alpha / rank.
        if args.llama_cpp and not config.get("use_rslora"):
            convert(args.llama_cpp, args.out / name, base)
        print(name)


if __name__ == "__main__":
    main()
