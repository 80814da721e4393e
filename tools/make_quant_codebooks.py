#!/usr/bin/env python3
"""Writes crates/quant/src/formats/codebook/points.rs: the points of ggml's codebooks, as gaps between their numbers.

The reference is the PyPI package `gguf` (`pip install gguf`, written with 0.19.0), whose tables are those of
ggml-common.h. Run from anywhere; output is deterministic.

A point is N levels, and its number is `Σ level_i · n_levels^i` with levels counted from 0. Points are sorted by
number. A gap is written as a digit of base 64; a gap of 63 or more begins with `/` for each 63.
With `--digests` the script prints the digests that the test beside the tables compares.
"""

import sys
from pathlib import Path

import numpy as np
from gguf import quants

TARGET = Path(__file__).resolve().parent.parent / "crates/quant/src/formats/codebook/points.rs"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MORE = len(DIGITS) - 1
WIDTH = 100
CODEBOOKS = ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]


def numbers_of(name: str) -> np.ndarray:
    format_ = getattr(quants, name)
    format_.init_grid()
    points = format_.grid.reshape(format_.grid_shape)
    levels = np.searchsorted(np.array(format_.grid_map, np.float32), points)
    numbers = (levels * len(format_.grid_map) ** np.arange(points.shape[1])).sum(axis=1)
    assert (np.diff(numbers) > 0).all(), f"{name} is not in the order of its numbers"
    return numbers


def encoded(numbers: np.ndarray) -> str:
    gaps = np.diff(numbers, prepend=0)
    return "".join(DIGITS[MORE] * (gap // MORE) + DIGITS[gap % MORE] for gap in gaps.tolist())


def digest(name: str) -> str:
    """FNV-1a of all levels, as the test in codebook.rs compares it."""
    value = 0xCBF29CE484222325
    for byte in getattr(quants, name).grid.astype(np.int8).tobytes():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def main() -> None:
    if sys.argv[1:] == ["--digests"]:
        for name in CODEBOOKS:
            numbers_of(name)
            print(f'        "{digest(name)}", // {name}')
        return
    lines = [
        "//! The points of ggml's codebooks (`iq1s_grid`, `iq2xxs_grid`, … of ggml-common.h), written by",
        "//! `tools/make_quant_codebooks.py`: gaps between the points' numbers, in base 64.",
    ]
    for name in CODEBOOKS:
        text = encoded(numbers_of(name))
        lines += ["", f'pub(super) const {name}: &str = "\\']
        rows = [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]
        lines += [f"    {row}\\" for row in rows[:-1]] + [f'    {rows[-1]}";']
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
