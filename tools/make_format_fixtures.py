"""Writes the files under crates/format/tests/fixtures with the formats' reference implementations.

    python tools/make_format_fixtures.py

Needs the Python packages gguf (0.19), safetensors (0.8), torch and numpy. Contents are fixed, so running
it again changes nothing. `expected.json` holds the expected results of reading: the metadata of each file and,
for each tensor, its type, shape (slowest dimension first) and bytes in hex.
"""

import json
import shutil
from pathlib import Path

import gguf
import gguf.gguf_writer
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Kind
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parent.parent / "crates/format/tests/fixtures"
RNG = np.random.default_rng(2)

PLAIN = [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64]
BLOCKS = [
    Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K,
    Type.Q6_K, Type.Q8_K, Type.BF16, Type.IQ4_NL, Type.MXFP4,
]


def add_metadata(writer: gguf.GGUFWriter) -> dict:
    """One value of every kind, and the arrays that models carry."""
    expected = {"general.architecture": ["str", "llama"]}

    def add(kind: Kind, name: str, value):
        writer.add_key_value(f"test.{name}", value, kind)
        expected[f"test.{name}"] = [name, value]

    add(Kind.UINT8, "u8", 250)
    add(Kind.INT8, "i8", -5)
    add(Kind.UINT16, "u16", 65000)
    add(Kind.INT16, "i16", -30000)
    add(Kind.UINT32, "u32", 4_000_000_000)
    add(Kind.INT32, "i32", -2_000_000_000)
    add(Kind.UINT64, "u64", 2**63 + 1)
    add(Kind.INT64, "i64", -(2**62))
    add(Kind.FLOAT32, "f32", 0.15625)
    add(Kind.FLOAT64, "f64", 1e-300)
    add(Kind.BOOL, "bool", True)
    add(Kind.STRING, "str", "naïve 你好 🦙")
    for name, value in [
        ("array of str", ["<s>", "", "▁the"]),
        ("array of i32", [1, -2, 3]),
        ("array of f32", [0.5, -0.25]),
        ("array of bool", [True, False]),
        ("array of arrays", [[1, 2], [3]]),
    ]:
        writer.add_array(f"test.{name}", value)
        expected[f"test.{name}"] = [name, value]
    return expected


def add_tensors(writer: gguf.GGUFWriter) -> dict:
    """One tensor of every type this project reads; block types hold random bytes."""
    expected = {}
    for dtype in PLAIN:
        name = np.dtype(dtype).name
        data = RNG.integers(-100, 100, size=(2, 3)).astype(dtype)
        writer.add_tensor(f"plain.{name}", data)
        short = f"{name[0]}{np.dtype(dtype).itemsize * 8}"
        expected[f"plain.{name}"] = {"type": short, "shape": [2, 3], "hex": data.tobytes().hex()}
    for block in BLOCKS:
        elems, size = gguf.GGML_QUANT_SIZES[block]
        k = elems if elems > 1 else 4
        data = RNG.integers(0, 256, size=(2, k // elems * size), dtype=np.uint8)
        writer.add_tensor(f"blocks.{block.name}", data, raw_dtype=block)
        expected[f"blocks.{block.name}"] = {
            "type": block.name.lower(),
            "shape": [2, k],
            "hex": data.tobytes().hex(),
        }
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    writer.add_tensor("cube", cube)
    expected["cube"] = {"type": "f32", "shape": [2, 3, 4], "hex": cube.tobytes().hex()}
    return expected


def finish(writer: gguf.GGUFWriter):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(path: Path, version: int = 3, alignment: int | None = None, big_endian: bool = False, split: int = 0):
    # The package writes only the current version; version 2 differs only in the number.
    gguf.gguf_writer.GGUF_VERSION = version
    endianess = gguf.GGUFEndian.BIG if big_endian else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=endianess, split_max_tensors=split)
    if alignment:
        writer.add_custom_alignment(alignment)
    metadata = add_metadata(writer)
    tensors = add_tensors(writer)
    finish(writer)
    return {"version": version, "alignment": alignment or 32, "metadata": metadata, "tensors": tensors}


SHORT = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int8: "i8",
    torch.uint8: "u8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool",
    torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
}


def describe(tensors: dict) -> dict:
    return {
        name: {
            "type": SHORT[t.dtype],
            "shape": list(t.shape),
            "hex": t.contiguous().flatten().view(torch.uint8).numpy().tobytes().hex(),
        }
        for name, t in tensors.items()
    }


def write_safetensors(folder: Path) -> dict:
    values = torch.from_numpy(RNG.integers(0, 100, size=(2, 3)))
    tensors = {f"t.{short}": values.to(dtype) for dtype, short in SHORT.items()}
    tensors["odd"] = torch.zeros(5, dtype=torch.bfloat16)
    tensors["empty"] = torch.zeros(0, 4)
    tensors["vector"] = torch.ones(1)
    save_file(tensors, folder / "types.safetensors", metadata={"format": "pt", "note": "naïve"})
    save_file({"w": torch.zeros(4, dtype=torch.float8_e4m3fn)}, folder / "float8.safetensors")
    return {"metadata": {"format": "pt", "note": "naïve"}, "tensors": describe(tensors)}


def write_sharded(folder: Path) -> dict:
    folder.mkdir()
    shards = [{"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}, {"c": torch.full((4,), 2.0)}]
    weight_map = {}
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map.update({tensor: name for tensor in shard})
    index = {"metadata": {"total_size": 48}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return {"tensors": {name: row for shard in shards for name, row in describe(shard).items()}}


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    for name in ["gguf", "safetensors"]:
        (ROOT / name).mkdir(parents=True)
    g, s = ROOT / "gguf", ROOT / "safetensors"
    expected = {
        "gguf/v3.gguf": write_gguf(g / "v3.gguf"),
        "gguf/v2.gguf": write_gguf(g / "v2.gguf", version=2),
        "gguf/align64.gguf": write_gguf(g / "align64.gguf", alignment=64),
        "gguf/split-00001-of-00003.gguf": write_gguf(g / "split.gguf", split=8),
        "safetensors/types.safetensors": write_safetensors(s),
        "safetensors/sharded": write_sharded(s / "sharded"),
    }
    write_gguf(g / "big_endian.gguf", big_endian=True)
    (ROOT / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
