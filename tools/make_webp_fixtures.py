#!/usr/bin/env python3
"""Makes the WebP fixtures of testdata/webp: images of several textures, which libwebp writes with several groups of prefix codes, and
statistics of these codes from an independent reader.

    python tools/make_webp_fixtures.py [--out DIR]

Needs Pillow (13.0, with libwebp 1.6) and numpy.

    *.webp       the images
    codes.txt    one line per image: its name, groups, codes of more than one symbol, entries of tables of at most 10 bits per code,
                 nodes: two for each longer symbol, three for a code that is stored as two symbols

The reader continues to the last pixel, which must be in the last byte of the data. After a wrongly read bit it would not be.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image

ORDER = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]


# ---- Images ----------------------------------------------------------------------------------


def textures(width, height, seed, levels):
    """Tiles of 32 x 32, each a gradient with its own range of noise in each colour."""
    random = np.random.default_rng(seed)
    rgb = np.zeros((height, width, 3), np.int64)
    for top in range(0, height, 32):
        for left in range(0, width, 32):
            h, w = min(32, height - top), min(32, width - left)
            y, x = np.mgrid[:h, :w]
            for c in range(3):
                ramp = x * random.integers(-3, 4) + y * random.integers(-3, 4) + random.integers(256)
                noise = random.integers(0, random.choice(levels), (h, w))
                rgb[top : top + h, left : left + w, c] = ramp + noise
    return Image.fromarray((rgb % 256).astype(np.uint8))


def images():
    """Names and files of the images."""
    few = textures(160, 128, 1, [1, 1, 2, 9])
    alpha = few.copy()
    alpha.putalpha(textures(160, 128, 2, [1, 1, 6]).convert("L"))
    palette = few.quantize(200).convert("RGB")
    four = few.quantize(4).convert("RGB")
    lossless = {"lossless": True, "quality": 100, "method": 6, "exact": True}
    rows = {
        "textures.webp": (few, lossless),
        "quick.webp": (few, lossless | {"quality": 0, "method": 0}),
        "alpha.webp": (alpha, lossless),
        "palette.webp": (palette, lossless),
        "four-colours.webp": (four, lossless),
        "lossy-alpha.webp": (alpha, {"quality": 30, "method": 6, "alpha_quality": 100}),
    }
    for name, (image, options) in rows.items():
        file = io.BytesIO()
        image.save(file, "WEBP", **options)
        yield name, file.getvalue()


# ---- A reader of lossless data -------------------------------------------------------------------


class Stream:
    def __init__(self, data):
        self.data, self.at = data, 0

    def read(self, n):
        value = 0
        for i in range(n):
            value |= (self.data[self.at >> 3] >> (self.at & 7) & 1) << i
            self.at += 1
        return value

    def symbol(self, code):
        """Reads a symbol by a code: a dictionary of symbols by length and bits, the first bit being the highest."""
        if (0, 0) in code:
            return code[0, 0]
        bits = 0
        for length in range(1, 16):
            bits = bits << 1 | self.read(1)
            if (length, bits) in code:
                return code[length, bits]
        raise ValueError("no symbol")

    def number(self, symbol):
        if symbol < 4:
            return symbol + 1
        extra = (symbol - 2) >> 1
        return ((2 + (symbol & 1)) << extra) + self.read(extra) + 1


def canonical(lengths):
    used = [s for s, length in enumerate(lengths) if length]
    if len(used) == 1:
        return {(0, 0): used[0]}
    code, bits, before = {}, 0, 0
    for symbol in sorted(used, key=lambda s: (lengths[s], s)):
        bits <<= lengths[symbol] - before
        before = lengths[symbol]
        code[before, bits] = symbol
        bits += 1
    assert bits == 1 << before, "not complete"
    return code


def read_code(stream, size):
    if stream.read(1):
        two = stream.read(1)
        symbols = [stream.read(8 if stream.read(1) else 1)]
        if not two:
            return {(0, 0): symbols[0]}, (0, 0, 0)
        symbols.append(stream.read(8))
        return {(1, 0): symbols[0], (1, 1): symbols[1]}, (1, 2, 3)
    of_lengths = [0] * 19
    for i in range(4 + stream.read(4)):
        of_lengths[ORDER[i]] = stream.read(3)
    of_lengths = canonical(of_lengths)
    most = 2 + stream.read(2 + 2 * stream.read(3)) if stream.read(1) else size
    lengths, last = [], 8
    for _ in range(most):
        if len(lengths) >= size:
            break
        symbol = stream.symbol(of_lengths)
        if symbol < 16:
            lengths.append(symbol)
            last = symbol or last
        elif symbol == 16:
            lengths += [last] * (3 + stream.read(2))
        else:
            lengths += [0] * (3 + stream.read(3) if symbol == 17 else 11 + stream.read(7))
    code = canonical(lengths)
    if (0, 0) in code:
        return code, (0, 0, 0)
    return code, (1, 1 << min(10, max(lengths)), 2 * sum(length > 10 for length in lengths))


def near_distances():
    near = [(x, y) for y in range(8) for x in range(-7, 9) if y > 0 or x > 0]
    return sorted(near, key=lambda p: (p[0] ** 2 + p[1] ** 2, abs(p[0]), p[0] < 0))


NEAR = near_distances()


def read_image(stream, width, height, is_main=False):
    """Pixels, each a number of alpha, red, green and blue, and the totals of the codes."""
    cache_bits = stream.read(4) if stream.read(1) else 0
    meta_bits, names = 0, [0]
    if is_main and stream.read(1):
        meta_bits = 2 + stream.read(3)
        columns = -(-width >> meta_bits)
        pixels, _ = read_image(stream, columns, -(-height >> meta_bits))
        names = [pixel >> 8 & 0xFFFF for pixel in pixels]
    groups, found = [], [max(names) + 1, 0, 0, 0]
    for _ in range(max(names) + 1):
        group = []
        for size in [280 + (1 << cache_bits if cache_bits else 0), 256, 256, 256, 40]:
            code, counts = read_code(stream, size)
            group.append(code)
            found[1:] = [a + b for a, b in zip(found[1:], counts)]
        groups.append(group)
    cache, pixels = [0] * (1 << cache_bits), []
    while len(pixels) < width * height:
        y, x = divmod(len(pixels), width)
        name = names[(y >> meta_bits) * columns + (x >> meta_bits)] if meta_bits else 0
        green, red, blue, alpha, distances = groups[name]
        symbol = stream.symbol(green)
        if symbol < 256:
            new = [symbol << 8 | stream.symbol(red) << 16]
            new[0] |= stream.symbol(blue) | stream.symbol(alpha) << 24
        elif symbol < 280:
            length = stream.number(symbol - 256)
            distance = stream.number(stream.symbol(distances))
            if distance > 120:
                distance -= 120
            else:
                dx, dy = NEAR[distance - 1]
                distance = max(1, dx + dy * width)
            assert distance <= len(pixels)
            new = [pixels[len(pixels) - distance + i % distance] for i in range(length)]
        else:
            new = [cache[symbol - 280]]
        pixels += new
        for pixel in new if cache_bits else []:
            cache[(pixel * 0x1E35A7BD & 0xFFFFFFFF) >> (32 - cache_bits)] = pixel
    assert len(pixels) == width * height
    return pixels, found


def codes(data, size):
    """Totals of the codes in a chunk `VP8L`, or in a chunk `ALPH` after its first byte. For `ALPH`, `size` is given."""
    stream = Stream(data)
    if size is None:
        assert stream.read(8) == 0x2F
        size = stream.read(14) + 1, stream.read(14) + 1
        stream.read(4)
    width, height = size
    while stream.read(1):
        kind = stream.read(2)
        if kind < 2:
            bits = 2 + stream.read(3)
            read_image(stream, -(-width >> bits), -(-height >> bits))
        elif kind == 3:
            colours = stream.read(8) + 1
            read_image(stream, colours, 1)
            width = -(-width >> (3 if colours <= 2 else 2 if colours <= 4 else 1 if colours <= 16 else 0))
    _, found = read_image(stream, width, height, is_main=True)
    assert (stream.at + 7) // 8 == len(data), (stream.at, len(data))
    return found


def chunks(file):
    at = 12
    while at < len(file):
        length = int.from_bytes(file[at + 4 : at + 8], "little")
        yield file[at : at + 4], file[at + 8 : at + 8 + length]
        at += 8 + length + length % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "testdata/webp")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, file in images():
        (out / name).write_bytes(file)
        parts = dict(chunks(file))
        size = Image.open(io.BytesIO(file)).size
        if b"VP8L" in parts:
            found = codes(parts[b"VP8L"], None)
        else:
            assert parts[b"ALPH"][0] & 3 == 1, "not compressed"
            found = codes(parts[b"ALPH"][1:], size)
        lines.append(" ".join([name, *map(str, found)]))
        print(lines[-1], len(file))
    (out / "codes.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
