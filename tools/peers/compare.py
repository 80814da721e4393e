#!/usr/bin/env python3
"""Millrace beside llama.cpp on this machine: the same files, in turn, in one run.

    python tools/peers/compare.py --work /tmp/models --out docs/cpu-speed.md

Needs `pip install llama-cpp-python` (built from source for this machine) and a release build of
Millrace. For each file type it writes a random-weight Llama-3.2-1B (`millrace synth`), then runs both
programs A B A B …, each run a process of its own, and writes a table of tokens/s (median and best)
with the ratio of medians, and what share of the machine's read bandwidth decode reaches.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

# File type, then the tests: prompt 512 and 2048, generate 64, generate 32 at depth 4096.
PLAN = [
    ("Q4_K_M", ["pp512", "pp2048", "tg64", "tg32@4096"]),
    ("Q4_0", ["pp512", "tg64"]),
    ("Q8_0", ["pp512", "tg64"]),
    ("Q4_1", ["pp512", "tg64"]),
    ("BF16", ["pp512", "tg64"]),
    ("Q6_K", ["pp512", "tg64"]),
    ("Q5_K", ["pp512", "tg64"]),
]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def ours(binary, path, test, threads):
    kind, _, depth = test.partition("@")
    prompt, generate = (kind[2:], "0") if kind.startswith("pp") else ("0", kind[2:])
    out = run([binary, "bench", str(path), "-p", prompt, "-n", generate, "-d", depth or "0",
               "-r", "1", "-t", str(threads), "-o", "json"])
    return json.loads(out)[0]["avg_ts"]


def theirs(path, test, threads):
    script = pathlib.Path(__file__).with_name("llama_cpp_bench.py")
    out = run([sys.executable, str(script), str(path), "-t", str(threads), "-r", "1", test])
    return json.loads(out.splitlines()[-1])["ts"][0]


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/millrace")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for the files")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="file types")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind, tests in PLAN:
        if args.only and kind not in args.only:
            continue
        path = args.work / f"llama-3.2-1b-{kind}.gguf"
        if not path.exists():
            run([args.binary, "synth", "llama-3.2-1b", str(path), "--type", kind])
        for test in tests:
            a, b = [], []
            for _ in range(args.rounds):
                a.append(ours(args.binary, path, test, args.threads))
                b.append(theirs(path, test, args.threads))
            ratio = statistics.median(a) / statistics.median(b)
            gb_s = statistics.median(a) * path.stat().st_size / 1e9 if test == "tg64" else None
            rows.append((kind, test, a, b, ratio, gb_s))
            print(f"{kind} {test}: {statistics.median(a):.1f} against {statistics.median(b):.1f}, "
                  f"ratio {ratio:.2f}", file=sys.stderr, flush=True)
    lines = [
        f"Measured {datetime.date.today()} on {cpu_name()}, {args.threads} threads, "
        f"{args.rounds} runs of each in turn; load average at the end {os.getloadavg()[0]:.1f}.",
        f"llama.cpp: llama-cpp-python {importlib.metadata.version('llama-cpp-python')}, built here.",
        "",
        "| file | test | Millrace t/s (median, best) | llama.cpp t/s (median, best) | ratio | weights read |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for kind, test, a, b, ratio, gb_s in rows:
        cell = lambda x: f"{statistics.median(x):.1f}, {max(x):.1f}"
        read = f"{gb_s:.1f} GB/s" if gb_s else ""
        lines.append(f"| {kind} | {test} | {cell(a)} | {cell(b)} | {ratio:.2f} | {read} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("# CPU speed beside llama.cpp\n\n" + text)


if __name__ == "__main__":
    main()
