#!/usr/bin/env python3
"""Serves llama.cpp's remote procedure calls with the plugin's device MillraceNode, and compares llama.cpp's texts over them.

    RPC=1 tools/peers/build_llama_cpp.sh
    cargo build --release -p millrace-ggml-plugin
    python tools/peers/rpc.py --programs target/llama.cpp/build/bin --greedy F16.gguf [--time Q4_K_M.gguf ...] [--servers 2]

Stock ggml-rpc-server programs run on loopback, on their CPU backend and then on MillraceNode. Greedy text of --greedy must be the same as
without servers, through one server and through --servers of them that share the layers. A product that is made to fail must end the run,
and the server must report it. Files of --time are timed over both backends, in turn.
"""

import argparse
import contextlib
import csv
import io
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

from completion import whole_text

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parents[2] / "target"))
PLUGIN = TARGET / "release" / "libggml_millrace.so"
PROMPT = "Once upon a time there was a little girl named Lily who lived in a small house near the forest with her mother and her"
START_S = 20


def environment(plugin, fail=""):
    """Environment of a server, with the plugin's device or without. Products of tensors with `fail` in their names fail."""
    env = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH" and not name.startswith("MILLRACE_GGML_")}
    if plugin:
        env |= {"GGML_BACKEND_PATH": str(plugin), "MILLRACE_GGML_DEVICES": "MillraceNode", "MILLRACE_GGML_FAIL": fail}
    return env


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(server, port):
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit(f"{server.args} ended with {server.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    sys.exit(f"{server.args} did not listen within {START_S} s")


@contextlib.contextmanager
def servers(args, n, plugin, fail=""):
    """Context with n running servers. Yields their addresses in the form of --rpc."""
    started = []
    try:
        for _ in range(n):
            port = free_port()
            command = [args.programs / "ggml-rpc-server", "-H", "127.0.0.1", "-p", str(port), "-t", str(max(1, args.threads // n))]
            log = open(args.log, "a", encoding="utf-8")
            server = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, env=environment(plugin, fail))
            started.append(server)
            wait_for(server, port)
            server.address = f"127.0.0.1:{port}"
        yield ",".join(server.address for server in started)
    finally:
        for server in started:
            server.terminate()
        for server in started:
            server.wait()


def run(command):
    done = attempt(command)
    if done.returncode != 0:
        sys.exit(f"{done.args} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def attempt(command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment(None), check=False)


def greedy(args):
    command = [args.programs / "llama-completion", "-m", args.greedy, "-p", PROMPT, "-n", 60, "--temp", 0, "-t", args.threads, "-no-cnv"]
    expected = whole_text(lambda: run(command))
    if not expected:
        sys.exit("llama-completion wrote nothing")
    for n in sorted({1, args.servers}):
        with servers(args, n, args.plugin) as addresses:
            found = whole_text(lambda: run([*command, "--rpc", addresses, "-ngl", 99]))
        if found != expected:
            sys.exit(f"greedy text over {n} servers differs:\n{expected}\n{found}")
        print(f"- greedy text of {pathlib.Path(args.greedy).name}, 60 tokens, over {n} ggml-rpc-server on MillraceNode: the same", flush=True)
    with servers(args, 1, args.plugin, fail="ffn_out") as addresses:
        if attempt([*command, "--rpc", addresses, "-ngl", 99]).returncode == 0:
            sys.exit("a product that fails on the server changed nothing: the plugin does not compute there")
    # The injected failure must be the reason why it ended.
    if "injected by MILLRACE_GGML_FAIL" not in args.log.read_text(encoding="utf-8", errors="replace"):
        sys.exit(f"llama-completion failed, but no server says that a product did: {args.log}")
    print("- a product that fails on the server ends llama-completion", flush=True)


def rates(args, model, plugin):
    with servers(args, args.servers, plugin) as addresses:
        command = [args.programs / "llama-bench", "-m", model, "--rpc", addresses, "-ngl", 99, "-t", args.threads, "-p", 256, "-n", 32, "-r", 1]
        rows = csv.DictReader(io.StringIO(run([*command, "-o", "csv"])))
        return {f"pp{row['n_prompt']}" if row["n_prompt"] != "0" else f"tg{row['n_gen']}": float(row["avg_ts"]) for row in rows}


def speed(args):
    print("\n| file | test | servers | their CPU backend, t/s | MillraceNode, t/s | ratio of a round: median (least, most) |\n|---|---|---:|---:|---:|---:|")
    for model in args.time:
        found = {}
        for _ in range(args.rounds):
            for plugin in (None, args.plugin):
                for test, rate in rates(args, model, plugin).items():
                    found.setdefault(test, ([], []))[plugin is not None].append(rate)
        for test, (without, with_it) in found.items():
            a, b = statistics.median(without), statistics.median(with_it)
            ratios = sorted(b / a for a, b in zip(without, with_it))
            cells = f"{a:.1f} | {b:.1f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f})"
            print(f"| {pathlib.Path(model).stem} | {test} | {args.servers} | {cells} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder with ggml-rpc-server, llama-completion and llama-bench")
    parser.add_argument("--plugin", type=pathlib.Path, default=PLUGIN)
    parser.add_argument("--greedy", help="a file of a narrow model whose greedy text must not change")
    parser.add_argument("--time", nargs="*", default=[], help="files to time")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log", type=pathlib.Path, default=TARGET / "rpc.log", help="what servers print")
    args = parser.parse_args()
    args.plugin = args.plugin.resolve()
    if not args.plugin.exists():
        sys.exit(f"{args.plugin} is not there: cargo build --release -p millrace-ggml-plugin")
    if not args.greedy and not args.time:
        parser.error("nothing to do: name a file with --greedy, or files with --time")
    args.log.parent.mkdir(parents=True, exist_ok=True)
    args.log.unlink(missing_ok=True)
    if args.greedy:
        greedy(args)
    if args.time:
        speed(args)


if __name__ == "__main__":
    main()
