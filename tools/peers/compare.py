#!/usr/bin/env python3
"""Compares the speed of Millrace, llama.cpp and ik_llama.cpp on this machine: the same files, in turn, in one run.

    python tools/peers/compare.py --work /tmp/models --out docs/cpu-speed.md

The script first installs the peer into a virtual environment of its own: PyPI's `llama-cpp-python`, compiled
for this machine, which needs a C++ compiler and takes minutes. It writes random-weight models (`millrace
synth`) and measures the machine's limits (`millrace hwbench`). Then it runs both programs A B A B ..., each
run in a new process, and writes the table after every row. It needs a release build of Millrace and only
Python's standard library.

`--llama-bench FILE` uses that program of an existing llama.cpp build instead of the package.
`--ik-llama-bench FILE` adds ik_llama.cpp (github.com/ikawrakow/ik_llama.cpp) as a second peer:
    cmake -B build -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF
    cmake --build build --target llama-bench

Rows with `avx2` need a second peer without AVX-512, given as --peer-python-avx2 or --llama-bench-avx2. Build it with
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" \\
        pip install --no-binary llama-cpp-python llama-cpp-python
Rows with `avxvnni` need one with -DGGML_AVX_VNNI=ON as well, given as --peer-python-avxvnni or --llama-bench-avxvnni.
--ik-llama-bench-avx2 and --ik-llama-bench-avxvnni take an ik_llama.cpp built with the same definitions.

Mixtures of experts are cut to six layers, since their layers are alike and whole files are too large for many machines.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time

PEER = "llama-cpp-python==0.3.36"

# Our file, the peer's file, tests: prompt 512 and 2048, generate 64, generate 32 at depth 4096.
PLAN = [
    ("Q4_K_M", "Q4_K_M", ["pp512", "pp2048", "tg64", "tg32@4096"]),
    ("Q4_0", "Q4_0", ["pp512", "tg64"]),
    ("Q8_0", "Q8_0", ["pp512", "tg64"]),
    ("Q4_1", "Q4_1", ["pp512", "tg64"]),
    ("Q4NX", "Q4_1", ["pp512", "tg64"]),
    ("BF16", "BF16", ["pp512", "tg64"]),
    ("F16", "F16", ["pp512", "tg64"]),
    ("IQ4_XS", "IQ4_XS", ["pp512", "tg64"]),
    ("Q6_K", "Q6_K", ["pp512", "tg64"]),
    ("Q5_K", "Q5_K", ["pp512", "tg64"]),
]
# Short prompts, like the turns of a chat.
SHORT_PLAN = [("Q4_K_M", "Q4_K_M", ["pp8", "pp16", "pp48"])]
# Mixtures of experts: geometry, layers and type.
MIXTURES = ["olmoe-1b-7b/6/Q4_K_M", "olmoe-1b-7b/6/MXFP4", "qwen3-30b-a3b/6/Q4_K_M", "qwen3-30b-a3b/6/MXFP4"]
MIXTURE_PLAN = [(kind, kind, ["pp512", "tg64"]) for kind in MIXTURES]
# Formats for the levels of laptops, without AVX-512: each kind of arithmetic once.
AVX2_KINDS = ["Q4_K_M", "Q8_0", "Q4_0", "Q6_K", "Q5_K", "IQ4_XS", "BF16", "F16"]
AVX2_PLAN = [(kind, kind, ["pp512", "tg64"]) for kind in AVX2_KINDS]
# Sizes for a trial of every kind of row within a minute or two.
QUICK = {"pp512": "pp32", "pp2048": "pp64", "tg64": "tg8", "tg32@4096": "tg4@64"}

# About 16 tokens in the vocabulary of `synth`, which has letters but hardly any words.
PROMPT = "once upon a time"


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


class Peer:
    """A program to compare with."""

    def __init__(self, name, path, is_program, has_depth=True):
        self.name, self.path, self.is_program, self.has_depth = name, path, is_program, has_depth


class Bench:
    """All programs and their files."""

    def __init__(self, args):
        self.args = args
        self.prefix = shlex.split(args.prefix)
        self.script = pathlib.Path(__file__).with_name("llama_cpp_bench.py")

    def path(self, kind):
        """Path of the model in that format, which is written if it is missing. Models other than the run's have a geometry and layers."""
        args = self.args
        if "/" in kind:
            geometry, layers, dtype = kind.split("/")
            path = args.work / f"{geometry}-{layers}-{dtype}.gguf"
            if not path.exists():
                run([args.binary, "synth", geometry, path, "--type", dtype, "--layers", layers])
            return path
        if kind != "Q4NX":
            path = args.work / f"{args.geometry}-{kind}.gguf"
            if not path.exists():
                run([args.binary, "synth", args.geometry, path, "--type", kind])
            return path
        path = args.work / f"{args.geometry}-Q4NX"
        if not path.exists():
            run([args.binary, "quantize", self.path("BF16"), path, "Q4NX"])
        return path

    def test(self, name):
        return QUICK.get(name, name) if self.args.quick else name

    def ours(self, kind, test, threads=None, level=None, sequences=1):
        """Tokens a second of one run."""
        name, _, depth = self.test(test).partition("@")
        prompt, generate = (name[2:], "0") if name.startswith("pp") else ("0", name[2:])
        command = [*self.prefix, self.args.binary, "bench", self.path(kind), "-p", prompt, "-n", generate,
                   "-d", depth or "0", "-r", "1", "-t", threads or self.args.threads,
                   "--sequences", sequences, "-o", "json"]
        if level:
            command += ["--cpu-level", level]
        return json.loads(run(command))[0]["avg_ts"]

    def opens(self, peer, kind):
        """Whether a peer can open the file. If not, a message is printed."""
        if not peer.is_program:
            return True
        command = [peer.path, "-m", self.path(kind), "-p", "1", "-n", "0", "-r", "1", "-o", "json"]
        opened = subprocess.run([str(part) for part in command], capture_output=True).returncode == 0
        if not opened:
            print(f"{peer.name} does not open {self.path(kind)}", file=sys.stderr, flush=True)
        return opened

    def theirs(self, peer, kind, test):
        """Tokens a second of one run of a peer: a Python with the package, or a `llama-bench`."""
        if not peer.is_program:
            command = [*self.prefix, peer.path, self.script, self.path(kind), "-t", self.args.threads,
                       "-r", "1", self.test(test)]
            return json.loads(run(command).splitlines()[-1])["ts"][0]
        name, _, depth = self.test(test).partition("@")
        prompt, generate = (name[2:], "0") if name.startswith("pp") else ("0", name[2:])
        command = [*self.prefix, peer.path, "-m", self.path(kind), "-p", prompt, "-n", generate, "-r", "1",
                   "-t", self.args.threads, "-o", "json", *(["-d", depth] if depth else [])]
        return json.loads(run(command))[0]["avg_ts"]

    def turns(self, *runs):
        """A B A B ...: the results of each of `runs` over all rounds."""
        results = [[] for _ in runs]
        for _ in range(self.args.rounds):
            for result, once in zip(results, runs):
                result.append(once())
        return results

    def start(self, kind):
        """Seconds from starting a process to its first token after a prompt of about 16 tokens, and
        its peak memory, including the mapped file."""
        command = [*self.prefix, self.args.binary, "run", self.path(kind), PROMPT, "-n", "1", "--greedy",
                   "--ignore-eos", "--json", "-t", self.args.threads]
        begin = time.perf_counter()
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{shlex.join(map(str, command))}: exit status {process.returncode}")
        return seconds, usage.ru_maxrss * 1024, json.loads(out)["timings"]["n_prompt"]


def size_bytes(path):
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.name.startswith("model"))
    return path.stat().st_size


class Limits:
    """Upper bounds of the machine for each test, in tokens a second."""

    def __init__(self, bench):
        args = bench.args
        out = run([*bench.prefix, args.binary, "hwbench", "64,256", "--format", "q4_0", "-m", "1", "-t",
                   args.threads, "--time", "1", "--json"])
        self.roofs = json.loads(out)["roofs"]
        self.bench, self.infos = bench, {}

    def info(self, kind):
        """Output of `info` for a file, cached."""
        if kind not in self.infos:
            out = run([self.bench.args.binary, "info", self.bench.path(kind), "--json"])
            self.infos[kind] = json.loads(out)
        return self.infos[kind]

    def roof(self, key, level=None):
        wanted = [roof for roof in self.roofs if level in (None, roof["level"])]
        return max((roof[key] or 0.0 for roof in wanted), default=0.0)

    def rate(self, path, kind, test, level=None):
        """Upper bound: for prefill, the multiplications of the layers' matrices; for generation, reading weights, keys and values."""
        if "/" in kind:
            # The bytes read depend on which experts a prompt or a token uses.
            return None
        info = self.info("Q4_K_M")
        config, n_params = info["config"], info["model"]["n_params"]
        name, _, depth = test.partition("@")
        if name.startswith("pp"):
            head = config["vocab_size"] * config["d_model"]
            matrices = n_params - head * (1 if config["tied_head"] else 2)
            keys = ["bf16_flops_per_s", "f32_flops_per_s"] if kind == "BF16" else ["int8_ops_per_s"]
            return max(self.roof(key, level) for key in keys) / (2 * matrices)
        # K and V in f16.
        kv_bytes = 4 * config["n_layers"] * config["n_kv_heads"] * config["head_dim"] * int(depth or 0)
        return self.roof("read_bytes_per_s") / (size_bytes(path) + kv_bytes)


def find_peers(args):
    """The peers of this run."""
    if args.no_peer:
        return []
    peers = []
    if args.llama_bench:
        peers.append(Peer("llama.cpp", args.llama_bench, is_program=True))
    else:
        peers.append(Peer("llama.cpp", install_peer(args), is_program=False))
    if args.ik_llama_bench:
        # ik_llama.cpp's llama-bench has no tests at a depth.
        peers.append(Peer("ik_llama.cpp", args.ik_llama_bench, is_program=True, has_depth=False))
    return peers


def peers_without_avx512(args, level):
    """The peers that were built for one of the levels below AVX-512."""
    given = lambda name: getattr(args, f"{name}_{level}")
    peers = []
    if given("llama_bench") or given("peer_python"):
        program = given("llama_bench")
        peers.append(Peer("llama.cpp", program or given("peer_python"), is_program=bool(program)))
    if given("ik_llama_bench"):
        peers.append(Peer("ik_llama.cpp", given("ik_llama_bench"), is_program=True, has_depth=False))
    return peers


def own_kernels(program):
    """File with the kernels that a peer's program runs: a library in its own folder or another, or the program itself."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines()
    found = [line.split("=>")[1].split("(")[0].strip() for line in listed if "libggml" in line and "=>" in line]
    cpu = [path for path in found if "libggml-cpu" in path] or found
    return os.path.realpath(cpu[0] if cpu else program)


def check_levels(args):
    """Checks that a peer for a level below AVX-512 does not load the native peer's library, whose path its build may have recorded."""
    for name in ("llama_bench", "ik_llama_bench"):
        native = getattr(args, name)
        for level in ("avx2", "avxvnni"):
            program = getattr(args, f"{name}_{level}")
            if native and program and own_kernels(native) == own_kernels(program):
                option = f"--{name}_{level}".replace("_", "-")
                sys.exit(f"{option}: {program} runs the kernels of {own_kernels(native)}, as the native peer does. "
                         "Name a script that sets LD_LIBRARY_PATH to its own libraries, or build it with -DBUILD_SHARED_LIBS=OFF.")


def install_peer(args):
    """The Python that has the peer. If none was given, the peer is installed."""
    if args.peer_python:
        return args.peer_python
    venv = args.work / "peer-venv"
    python = venv / "bin" / "python"
    if not python.exists():
        print(f"installing {PEER} into {venv} (compiles for minutes)", file=sys.stderr, flush=True)
        run([sys.executable, "-m", "venv", venv])
    run([python, "-m", "pip", "install", "-q", "--no-binary", "llama-cpp-python", PEER])
    return str(python)


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor()


class Table:
    """Rows of the report. The file is written after each row, so an interrupted run leaves the finished rows."""

    def __init__(self, args, header, peers):
        self.args, self.header, self.peers = args, header, peers
        self.rows, self.notes, self.raw = [], [], []

    def row(self, label, test, ours, theirs, limit):
        """Adds a row. `theirs` has the rates of each peer; they are empty for a peer without such a test."""
        median = statistics.median
        cell = lambda values: f"{median(values):.1f}, {min(values):.1f}"
        cells = []
        for values in theirs:
            ratios = [a / b for a, b in zip(ours, values)]
            cells.append(cell(values) if values else "")
            cells.append(f"{median(ratios):.2f}, {min(ratios):.2f}" if ratios else "")
        share = f"{100 * median(ours) / limit:.0f} %" if limit else ""
        line = (label, test, cell(ours), *cells, share)
        self.rows.append("| " + " | ".join(line) + " |")
        self.raw.append({"file": label, "test": test, "ours": ours, "theirs": theirs, "limit": limit})
        print(self.rows[-1], file=sys.stderr, flush=True)
        self.write()

    def note(self, text, **raw):
        self.notes.append(f"- {text}")
        self.raw.append(raw)
        print(text, file=sys.stderr, flush=True)
        self.write()

    def text(self):
        peers = "".join(f"{peer.name} t/s (median, min) | ratio (median, min) | " for peer in self.peers)
        head = [f"| file | test | Millrace t/s (median, min) | {peers}of the limit |",
                "|---|---|---:|" + "---:|---:|" * len(self.peers) + "---:|"]
        load = f"Load average at the end {os.getloadavg()[0]:.1f}."
        parts = [*self.header, load, "", *head, *self.rows]
        return "\n".join(parts + (["", *self.notes] if self.notes else [])) + "\n"

    def write(self):
        if self.args.out:
            self.args.out.parent.mkdir(parents=True, exist_ok=True)
            self.args.out.write_text("# CPU speed beside llama.cpp\n\n" + self.text(), encoding="utf-8")
        if self.args.json:
            self.args.json.write_text(json.dumps(self.raw, indent=1), encoding="utf-8")


def header(args, bench, limits, peers):
    packages = [peer for peer in peers if not peer.is_program]
    version = json.loads(run([packages[0].path, bench.script, "--version"])) if packages else None
    gb, tops = limits.roof("read_bytes_per_s") / 1e9, limits.roof("int8_ops_per_s") / 1e12
    bf16 = max(limits.roof("bf16_flops_per_s"), limits.roof("f32_flops_per_s")) / 1e12
    lines = [
        f"Measured {datetime.date.today()} on {cpu_name()} ({platform.machine()}, Linux {platform.release()}), "
        f"{args.threads} threads, {args.rounds} rounds of each in turn, {args.geometry} with random weights. "
        f"Load average at the start {os.getloadavg()[0]:.1f}.",
        f"Millrace: {run([args.binary, '--version']).strip()}, level {limits.roofs[-1]['level']}.",
        f"Limits measured here: reading {gb:.1f} GB/s, int8 {tops:.2f} TOPS, bf16 or f32 {bf16:.2f} TFLOP/s. "
        "Generation is held against reading weights, keys and values once, prompts against the "
        "multiplications of the layers' matrices.",
    ]
    if version:
        lines.append(f"llama.cpp: llama-cpp-python {version['version']}, built here: {version['system_info']}")
    for peer in peers:
        if peer.is_program:
            build = json.loads(run([peer.path, "-m", bench.path("Q4_K_M"), "-p", "1", "-n", "0", "-r", "1", "-o", "json"]))
            lines.append(f"{peer.name}: built here, {build[0].get('build_commit')}.")
    return lines


def speed_rows(bench, table, limits, peers, plan, level=None):
    for kind, peer_kind, tests in plan:
        if bench.args.only and kind.rsplit("/")[-1] not in bench.args.only:
            continue
        label = kind + (f" {level}" if level else "") + (f" (llama.cpp: {peer_kind})" if kind != peer_kind else "")
        openers = [peer for peer in peers if bench.opens(peer, peer_kind)]
        for test in tests:
            able = [peer for peer in openers if peer.has_depth or "@" not in test]
            runs = [lambda peer=peer: bench.theirs(peer, peer_kind, test) for peer in able]
            ours, *theirs = bench.turns(lambda: bench.ours(kind, test, level=level), *runs)
            by_peer = dict(zip((peer.name for peer in able), theirs))
            limit = limits.rate(bench.path(kind), kind, bench.test(test), level)
            table.row(label, bench.test(test), ours, [by_peer.get(peer.name, []) for peer in table.peers], limit)


def own_rows(bench, table, limits, kind="Q4_K_M"):
    """Rows without a peer: parallel sequences, scaling, memory, start."""
    test = bench.test("tg64")
    many, one = bench.turns(lambda: bench.ours(kind, "tg64", sequences=8), lambda: bench.ours(kind, "tg64"))
    ratio = statistics.median(a / b for a, b in zip(many, one))
    table.note(f"8 sequences decoding together, {kind}: {statistics.median(many):.1f} t/s in all, "
               f"{ratio:.2f} times {test} of one", row="sequences", many=many, one=one)
    two, one = bench.turns(lambda: bench.ours(kind, "pp512", threads=2), lambda: bench.ours(kind, "pp512", threads=1))
    ratio = statistics.median(a / b for a, b in zip(two, one))
    table.note(f"{bench.test('pp512')}, {kind}, 2 threads: {ratio:.2f} times 1 thread", row="scaling", two=two, one=one)
    runs = [bench.start(kind) for _ in range(bench.args.rounds + 1)][1:]
    seconds, n_prompt = [run[0] for run in runs], runs[0][2]
    held, size = max(run[1] for run in runs), size_bytes(bench.path(kind))
    table.note(f"From a new process to the first token of a prompt of {n_prompt} tokens, {kind}, file in the page "
               f"cache: {statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (slowest)",
               row="start", seconds=seconds, n_prompt=n_prompt)
    table.note(f"Most memory that process held, the mapped file included: {held / 1e6:.0f} MB, the file "
               f"{size / 1e6:.0f} MB: {(held - size) / 1e6:+.0f} MB", row="memory", held=held, size=size)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/millrace")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for files and the peer")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here too, after each row")
    parser.add_argument("--json", type=pathlib.Path, help="write every sample here")
    parser.add_argument("--geometry", default="llama-3.2-1b", help="of `millrace synth`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="file types")
    rows = ["speed", "short", "mixtures", "avx2", "avxvnni", "own"]
    parser.add_argument("--rows", nargs="*", choices=rows, default=rows)
    parser.add_argument("--llama-bench", help="llama.cpp's program, instead of the package")
    parser.add_argument("--ik-llama-bench", help="that of ik_llama.cpp, a second peer")
    parser.add_argument("--peer-python", help="a Python with llama-cpp-python, instead of installing one")
    parser.add_argument("--llama-bench-avx2", help="that of a llama.cpp without AVX-512")
    parser.add_argument("--llama-bench-avxvnni", help="the same with AVX-VNNI")
    parser.add_argument("--ik-llama-bench-avx2", help="that of an ik_llama.cpp without AVX-512")
    parser.add_argument("--ik-llama-bench-avxvnni", help="the same with AVX-VNNI")
    parser.add_argument("--peer-python-avx2", help="one whose llama.cpp was built without AVX-512")
    parser.add_argument("--peer-python-avxvnni", help="one built without AVX-512 and with AVX-VNNI")
    parser.add_argument("--no-peer", action="store_true", help="only Millrace")
    parser.add_argument("--quick", action="store_true", help="short tests, to try the script")
    parser.add_argument("--prefix", default="", help="put before each timed command, as `taskset -c 0,1`")
    return parser.parse_args()


def main():
    args = arguments()
    check_levels(args)
    args.work.mkdir(parents=True, exist_ok=True)
    peers = find_peers(args)
    bench = Bench(args)
    limits = Limits(bench)
    table = Table(args, header(args, bench, limits, peers), peers)
    for rows, plan in [("speed", PLAN), ("short", SHORT_PLAN), ("mixtures", MIXTURE_PLAN)]:
        if rows in args.rows:
            speed_rows(bench, table, limits, peers, plan)
    for level in ("avx2", "avxvnni"):
        beside = peers_without_avx512(args, level)
        if level in args.rows and (beside or args.no_peer):
            speed_rows(bench, table, limits, beside, AVX2_PLAN, level=level)
    if "own" in args.rows:
        own_rows(bench, table, limits)
    print(table.text())


if __name__ == "__main__":
    main()
