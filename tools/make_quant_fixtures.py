#!/usr/bin/env python3
"""Writes the known answers of the `quant` crate: crates/quant/tests/fixtures/{decode,encode}/<format>.bin.

A file is a little-endian u32 (the number of bytes of encoded data), the encoded data, and the corresponding f32 numbers:
the decoded values, or the encoder's input.

The reference is the PyPI package `gguf` (`pip install gguf`, written with 0.19.0). Formats that it
lacks (Q8_1, Q8_K, Q1_0, Q2_0, Q4NX) are decoded here by their definition. Run from anywhere; output is deterministic.
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

FIXTURES = Path(__file__).resolve().parent.parent / "crates/quant/tests/fixtures"

# Format -> (byte offsets of its f16 fields, blocks in the fixture).
DECODED_BY_GGUF = {
    "F16": ([0], 64),
    "BF16": ([], 64),
    "Q4_0": ([0], 8),
    "Q4_1": ([0, 2], 8),
    "Q5_0": ([0], 8),
    "Q5_1": ([0, 2], 8),
    "Q8_0": ([0], 8),
    "Q2_K": ([80, 82], 3),
    "Q3_K": ([108], 3),
    "Q4_K": ([0, 2], 3),
    "Q5_K": ([0, 2], 3),
    "Q6_K": ([208], 3),
    "IQ4_NL": ([0], 8),
    "MXFP4": ([], 8),
}
# The same for more formats, which come last so that the fixtures above keep their bytes.
ADDED = {
    "IQ4_XS": ([0], 3),
    "IQ3_XXS": ([0], 3),
    "IQ3_S": ([0], 3),
    "IQ2_XXS": ([0], 3),
    "IQ2_XS": ([0], 3),
    "IQ2_S": ([0], 3),
    "IQ1_S": ([0], 3),
    "IQ1_M": ([], 3),
    "TQ1_0": ([52], 3),
    "TQ2_0": ([64], 3),
    "NVFP4": ([], 64),
}
ENCODED_BY_GGUF = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]


def write(folder: str, name: str, encoded: np.ndarray, numbers: np.ndarray) -> None:
    path = FIXTURES / folder / f"{name.lower()}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = np.ascontiguousarray(encoded).view(np.uint8).tobytes()
    numbers = numbers.astype("<f4").ravel()
    path.write_bytes(np.array([len(data)], "<u4").tobytes() + data + numbers.tobytes())


def finite_halves(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random bit patterns of f16 without infinities and NaN, but with subnormals."""
    bits = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
    return np.where((bits & 0x7C00) == 0x7C00, bits & 0x83FF, bits).astype("<u2")


def random_blocks(rng: np.random.Generator, block_bytes: int, halves: list[int], n: int) -> np.ndarray:
    blocks = rng.integers(0, 256, (n, block_bytes), dtype=np.uint8)
    for at in halves:
        blocks[:, at : at + 2] = finite_halves(rng, (n, 1)).view(np.uint8)
    return blocks


def decode_by_gguf(rng: np.random.Generator) -> None:
    for name, (halves, n) in DECODED_BY_GGUF.items():
        kind = GGMLQuantizationType[name]
        blocks = random_blocks(rng, GGML_QUANT_SIZES[kind][1], halves, n)
        if name == "BF16":
            bits = blocks.view("<u2")
            blocks = np.where((bits & 0x7F80) == 0x7F80, bits & 0x807F, bits).astype("<u2").view(np.uint8)
        if name == "MXFP4":
            # Every interesting exponent: the two subnormal scales, the smallest normal, one, a large one.
            blocks[:6, 0] = [0, 1, 2, 127, 128, 250]
        write("decode", name, blocks, quants.dequantize(blocks, kind))


def decode_added(rng: np.random.Generator) -> None:
    for name, (halves, n) in ADDED.items():
        kind = GGMLQuantizationType[name]
        blocks = random_blocks(rng, GGML_QUANT_SIZES[kind][1], halves, n)
        if name == "IQ1_M":
            # The nibbles of an f16 are the upper ones of four u16, lowest first.
            d = finite_halves(rng, (n, 1))
            words = blocks[:, 48:].copy().view("<u2")
            words = words & 0x0FFF | (d >> np.array([0, 4, 8, 12], np.uint16) & 15) << 12
            blocks[:, 48:] = words.astype("<u2").view(np.uint8)
        if name == "NVFP4":
            # Every scale.
            blocks[:, :4] = np.arange(256, dtype=np.uint8).reshape(64, 4)
        write("decode", name, blocks, quants.dequantize(blocks, kind))

    # ggml's block_q1_0 and block_q2_0 (ggml-common.h): f16 d, then bits from the lowest of a byte on.
    for name, bits, elems in (("q1_0", 1, 128), ("q2_0", 2, 64)):
        blocks = random_blocks(rng, 18, [0], 8)
        d = blocks[:, :2].copy().view("<f2").astype(np.float32)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        q = (blocks[:, 2:, None] >> shifts & (1 << bits) - 1).reshape(8, elems).astype(np.float32)
        write("decode", name, blocks, d * (2 * q - 1 if bits == 1 else q - 1))

    # Ollama's MXFP4: adjacent elements share a byte, where ggml pairs the halves of a block.
    blocks = random_blocks(rng, 17, [], 8)
    nibbles = np.stack([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=2).reshape(8, 32)
    as_ggml = np.concatenate([blocks[:, :1], nibbles[:, :16] | nibbles[:, 16:] << 4], axis=1)
    write("decode", "mxfp4_ollama", blocks, quants.dequantize(as_ggml, GGMLQuantizationType.MXFP4))


def decode_by_definition(rng: np.random.Generator) -> None:
    bits = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    bits = np.where((bits & 0x7F800000) == 0x7F800000, bits & 0x807FFFFF, bits).astype("<u4")
    write("decode", "f32", bits, bits.view("<f4"))

    blocks = random_blocks(rng, 36, [0, 2], 8)
    d = blocks[:, :2].copy().view("<f2").astype(np.float32)
    write("decode", "q8_1", blocks, d * blocks[:, 4:].view(np.int8).astype(np.float32))

    blocks = random_blocks(rng, 292, [], 3)
    blocks[:, :4] = rng.standard_normal((3, 1)).astype("<f4").view(np.uint8)
    d = blocks[:, :4].copy().view("<f4")
    write("decode", "q8_k", blocks, d * blocks[:, 4:260].view(np.int8).astype(np.float32))


def decode_q4nx(rng: np.random.Generator) -> None:
    """One tile: bf16 scale[8][32], bf16 offset[8][32], nibbles[2 halves][256 columns][8]."""
    scale = rng.standard_normal((8, 32)).astype(np.float32).view(np.uint32) >> 16
    offset = (4 * rng.standard_normal((8, 32))).astype(np.float32).view(np.uint32) >> 16
    nibbles = rng.integers(0, 256, (2, 256, 8), dtype=np.uint8)
    tile = np.concatenate(
        [scale.astype("<u2").view(np.uint8).ravel(), offset.astype("<u2").view(np.uint8).ravel(), nibbles.ravel()]
    )
    q = np.empty((32, 256), np.float32)
    for row in range(32):
        pair = nibbles[row // 16, :, row % 16 // 2]
        q[row] = pair >> 4 if row % 2 else pair & 15
    per_element = [
        np.repeat((field.astype(np.uint32) << 16).view(np.float32).T, 32, axis=1) for field in (scale, offset)
    ]
    scale, offset = per_element
    write("decode", "q4nx", tile, scale * q + offset)
    write("decode", "q4nx_sub", tile, scale * (q - offset))


def encode_inputs(rng: np.random.Generator) -> np.ndarray:
    """Blocks of 32: normal data of several sizes, then constant, one-hot, alternating, halfway and skewed ones."""
    rows = [rng.standard_normal(32) * scale for scale in (1.0, 0.02, 300.0, 1e-3, 1.0, 1.0)]
    rows += [np.zeros(32), np.full(32, 0.7), np.full(32, -3.0), np.eye(32)[5] * -2.5]
    rows += [np.where(np.arange(32) % 2, 1.0, -1.0), np.arange(32) - 16.0, np.arange(32) / 2 - 8]
    rows += [np.exp(rng.standard_normal(32)), -np.abs(rng.standard_normal(32))]
    return np.array(rows, dtype=np.float32)


def main() -> None:
    rng = np.random.default_rng(20260)
    decode_by_gguf(rng)
    decode_by_definition(rng)
    decode_q4nx(rng)
    x = encode_inputs(rng)
    for name in ENCODED_BY_GGUF:
        write("encode", name, quants.quantize(x, GGMLQuantizationType[name]), x)
    decode_added(rng)


if __name__ == "__main__":
    main()
