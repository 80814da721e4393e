#!/usr/bin/env python3
"""Runs llama.cpp's own programs with and without the plugin, in turn, and prints a table in Markdown.

    tools/peers/build_llama_cpp.sh
    cargo build --release -p millrace-ggml-plugin
    python tools/peers/ggml_plugin.py --programs target/llama.cpp/build/bin --models FOLDER [--text FILE] > table.md

FOLDER has the .gguf files to time (`millrace synth llama-3.2-1b FOLDER/Q4_K_M.gguf --type Q4_K_M`, ...); those named in --perplexity
are scored on --text instead. The script runs test-backend-ops on each device, and compares perplexities. Greedy text in F16 must be the
same, and the plugin must have computed it: a product that is made to fail must end the program.
--crossings times steps of 1 to 32 tokens instead, with every product in the plugin; crates/ggml-plugin/src/rows.rs uses the results.
"""

import argparse
import csv
import io
import os
import pathlib
import re
import statistics
import subprocess
import sys

from completion import whole_text

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGIN = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "libggml_millrace.so"
# Programs with a built-in CPU backend look for plugins only if an option names devices or buffer types. This one has no other effect.
LOAD = ["-ot", "none=CPU"]
ATTEMPTS = 8
PROMPT = "Once upon a time there was a little girl named Lily who lived in a small house near the forest with her mother and her"
LEVEL = "MILLRACE_GGML_LEVEL"


def run(command, plugin, **variables):
    """Result of a program, with the plugin or without."""
    is_ours = lambda name: name == "GGML_BACKEND_PATH" or (name.startswith("MILLRACE_GGML_") and name != LEVEL)
    env = {name: value for name, value in os.environ.items() if not is_ours(name)}
    if plugin:
        env["GGML_BACKEND_PATH"] = str(plugin)
    env.update(variables)
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env, check=False)


def succeed(done):
    if done.returncode != 0:
        sys.exit(f"{done.args} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done


def cases(args):
    """Options of test-backend-ops that choose cases by their parameters."""
    return ["-p", args.cases] if args.cases else []


def ops(args):
    """Runs llama.cpp's test of single ops: every case that a device supports must pass."""
    for device in args.devices:
        for op in ("MUL_MAT", "MUL_MAT_ID"):
            variables = {"MILLRACE_GGML_DEVICES": device}
            # All cases, not only those with as many tokens as the device takes in models. Devices that multiply 8-bit numbers are
            # excluded: the test draws new numbers each time, and by chance a few results near zero exceed its tolerance.
            if device == "Millrace":
                variables["MILLRACE_GGML_LEAST_ROWS"] = "1"
            command = [args.programs / "test-backend-ops", "test", "-b", device, "-o", op, *cases(args)]
            text = succeed(run(command, args.plugin, **variables)).stdout
            passed = re.search(r"(\d+)/(\d+) tests passed", text)
            if not passed or passed[1] != passed[2] or passed[1] == "0":
                sys.exit(f"{op} on {device}: {passed and passed[0]}\n{text[-3000:]}")
            tokens = ", every number of tokens" if "MILLRACE_GGML_LEAST_ROWS" in variables else ""
            print(f"- `test-backend-ops test -b {device} -o {op}`{tokens}: {passed[0]}", flush=True)
        # Ops that a device does not support are reported so, and must not fail.
        command = [args.programs / "test-backend-ops", "test", "-b", device, *cases(args)]
        text = succeed(run(command, args.plugin, MILLRACE_GGML_DEVICES=device)).stdout
        passed = re.search(r"(\d+)/(\d+) tests passed", text)
        if not passed or passed[1] != passed[2]:
            sys.exit(f"{device}: {passed and passed[0]}\n{text[-3000:]}")
        print(f"- `test-backend-ops test -b {device}`, all ops: {passed[0]}, the others not supported", flush=True)


def perplexity(args):
    for model in args.perplexity:
        found = []
        for plugin in (None, args.plugin):
            command = [args.programs / "llama-perplexity", "-m", model, "-f", args.text, "-c", 512, "-b", 512, "-t", args.threads, *LOAD]
            # With and without the plugin, llama-perplexity sometimes ends before its last line is in the pipe.
            for _ in range(ATTEMPTS):
                done = succeed(run(command, plugin))
                estimate = re.search(r"Final estimate: PPL = ([\d.]+)", done.stdout + done.stderr)
                if estimate:
                    break
            else:
                sys.exit(f"{command} printed no estimate in {ATTEMPTS} attempts\n{done.stderr[-2000:]}")
            found.append(float(estimate[1]))
        change = 100 * (found[1] / found[0] - 1)
        print(f"- perplexity of {pathlib.Path(model).name}: {found[0]:.4f} without, {found[1]:.4f} with Millrace ({change:+.3f} %)", flush=True)


def greedy(args):
    if not args.greedy:
        return
    command = [args.programs / "llama-completion", "-m", args.greedy, "-p", PROMPT, "-n", 60, "--temp", 0, "-t", args.threads, "-no-cnv", *LOAD]
    # Every token goes through the plugin, not only the prompt.
    complete = lambda plugin: succeed(run(command, plugin, MILLRACE_GGML_LEAST_ROWS="1")).stdout
    texts = [whole_text(lambda: complete(plugin)) for plugin in (None, args.plugin)]
    if not texts[0] or texts[0] != texts[1]:
        sys.exit(f"greedy text differs:\n{texts[0]}\n{texts[1]}")
    # The text would also be the same if the plugin computed nothing.
    failed = run(command, args.plugin, MILLRACE_GGML_LEAST_ROWS="1", MILLRACE_GGML_FAIL="ffn_out")
    if failed.returncode == 0 or "injected by MILLRACE_GGML_FAIL" not in failed.stderr + failed.stdout:
        sys.exit(f"a product that is made to fail changed nothing, so the plugin computed no text: {failed.returncode}\n{failed.stderr[-2000:]}")
    print(f"- greedy text of {pathlib.Path(args.greedy).name}, 60 tokens: the same", flush=True)


def rates(args, model, plugin, *tests, **variables):
    """Tokens a second of llama-bench, by test."""
    command = [args.programs / "llama-bench", "-m", model, "-t", args.threads, "-o", "csv", *tests]
    rows = csv.DictReader(io.StringIO(succeed(run(command, plugin, **variables)).stdout))
    return {f"pp{row['n_prompt']}" if row["n_prompt"] != "0" else f"tg{row['n_gen']}": float(row["avg_ts"]) for row in rows}


def crossings(args):
    steps = [2, 3, 4, 8, 16, 32]
    print("\n| file | " + " | ".join(f"{m} tokens" for m in [1, *steps]) + " |\n|---" + "|---:" * (1 + len(steps)) + "|")
    tests = ["-r", 3, "-p", ",".join(map(str, steps)), "-n", 32]
    for model in sorted(args.models.glob("*.gguf")):
        found = {}
        for _ in range(args.rounds):
            without = rates(args, model, None, *tests)
            with_it = rates(args, model, args.plugin, *tests, MILLRACE_GGML_LEAST_ROWS="1")
            for test, rate in without.items():
                found.setdefault(test, []).append(with_it[test] / rate)
        cells = [f"{statistics.median(found[test]):.2f}" for test in ["tg32", *(f"pp{m}" for m in steps)]]
        print(f"| {model.stem} | " + " | ".join(cells) + " |", flush=True)


def speed(args):
    print("\n| file | test | llama.cpp t/s | with Millrace t/s | ratio of a round: median (least, most) |\n|---|---|---:|---:|---:|")
    for model in sorted(args.models.glob("*.gguf")):
        found = {}
        for _ in range(args.rounds):
            for plugin in (None, args.plugin):
                for test, rate in rates(args, model, plugin, "-p", 512, "-n", args.generate, "-r", 1).items():
                    found.setdefault(test, ([], []))[plugin is not None].append(rate)
        for test, (without, with_it) in found.items():
            a, b = statistics.median(without), statistics.median(with_it)
            ratios = sorted(b / a for a, b in zip(without, with_it))
            median = statistics.median(ratios)
            print(f"| {model.stem} | {test} | {a:.1f} | {b:.1f} | {median:.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder with llama-bench and the others")
    parser.add_argument("--models", type=pathlib.Path, help="folder with files to time")
    parser.add_argument("--plugin", type=pathlib.Path, default=PLUGIN)
    parser.add_argument("--devices", nargs="*", default=["Millrace"], help="devices whose ops are tested")
    parser.add_argument("--cases", help="regular expression of the parameters of ops; '^(?!.*n_mats=128)' leaves out cases of many minutes")
    parser.add_argument("--perplexity", nargs="*", default=[], help="files to score on --text")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "ARCHITECTURE.md")
    parser.add_argument("--greedy", help="an F16 file whose greedy text must not change")
    parser.add_argument("--only-speed", action="store_true", help="time, and check nothing")
    parser.add_argument("--crossings", action="store_true", help="time steps of few tokens instead of prompts")
    parser.add_argument("--level", help="instructions of the plugin, for a llama.cpp that was built for no more")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--generate", type=int, default=32)
    args = parser.parse_args()
    args.plugin = args.plugin.resolve()
    if not args.plugin.exists():
        sys.exit(f"{args.plugin} is not there: cargo build --release -p millrace-ggml-plugin")
    os.environ.pop(LEVEL, None)
    if args.level:
        os.environ[LEVEL] = args.level
    if not args.only_speed:
        ops(args)
        perplexity(args)
        greedy(args)
    if args.models and args.crossings:
        crossings(args)
    elif args.models:
        speed(args)


if __name__ == "__main__":
    main()
