"""Sends hostile requests to `millrace serve`, and checks that it withstands them. No package is needed.

    python3 tools/server_load/hostile.py target/release/millrace [--requests 20000] [--together 16]
        [--timeout 5] [--minutes 30] [--seed 1] [--keep DIR]

The bodies are generated from the server's own /openapi.json: every route that takes JSON, and every field that it names,
with values that fit, nearly fit, or do not fit. For conversations, functions, schemas, grammars and images, the values come
from hostile_values.py: chains of references, products of patterns, deep nesting, images of odd sizes. Other requests have
odd heads. Meanwhile, the script keeps asking a plain question.

At the end it checks that
- every request was answered, or its connection closed, at most a second after the deadline of --timeout seconds;
- no status was 500 or 502, since no request may cause a server error;
- the plain question was answered as at the start, each time;
- nothing is running or waiting, and memory at rest is within 10 % of its value after half of the requests;
- the process is alive, and ends with code 0 within its grace period.

Prints a table of routes, statuses and times, measured; the exit code is 1 if a check fails. With --keep, the body of each
request behind a problem goes to a file in that folder. The same seed sends the same requests.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import hostile_values

FINE = {200, 204, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 417, 422, 429, 431, 501, 503, 504, 505}
GRACE_S = 5
MAX_BODY_MIB = 2


async def exchange(address, raw, limit_s):
    """Sends bytes. Returns the status (None if the connection was closed without one), the whole answer, and the time in seconds."""
    start = time.monotonic()
    status, answer = None, b""
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(raw)
                await writer.drain()
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (ConnectionError, OSError) as error:
        if isinstance(error, TimeoutError):
            return "late", answer, time.monotonic() - start
    if answer.startswith(b"HTTP/1."):
        status = int(answer.split(b" ", 2)[1])
    return status, answer, time.monotonic() - start


def post(path, body, headers=()):
    head = [f"POST {path} HTTP/1.1", "host: localhost", "connection: close", "content-type: application/json",
            f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Hostile:
    def __init__(self, address, args, routes, process):
        self.address, self.args, self.routes, self.process = address, args, routes, process
        self.problems = []
        self.statuses = defaultdict(Counter)
        self.times = defaultdict(list)
        self.plain_times = []

    def is_alive(self):
        return self.process.poll() is None

    def problem(self, name, text, raw=b""):
        self.problems.append(f"{name}: {text}")
        print("PROBLEM", self.problems[-1][:400], flush=True)
        if self.args.keep and raw:
            Path(self.args.keep).mkdir(parents=True, exist_ok=True)
            Path(self.args.keep, f"{len(self.problems):04}.request").write_bytes(raw)

    async def plain(self):
        body = {"model": "text", "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}
        status, answer, seconds = await exchange(self.address, post("/v1/chat/completions", json.dumps(body).encode()), 60)
        text = None
        if status == 200:
            text = json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"][0]["message"]["content"]
        return status, text, seconds

    async def keep_asking(self, expected):
        while self.is_alive():
            status, text, seconds = await self.plain()
            self.plain_times.append(seconds)
            if (status, text) != (200, expected) and status != 429:
                self.problem("the plain question", f"status {status} after {seconds:.1f} s, {text!r}")
            await asyncio.sleep(0.5)

    async def one(self, i):
        rng = random.Random(self.args.seed * 1_000_003 + i)
        name, raw = hostile_values.request(rng, self.routes)
        limit_s = self.args.timeout + 1
        # The script waits beyond the limit, to distinguish a slow answer from one that never comes.
        status, answer, seconds = await exchange(self.address, raw, 10 * limit_s)
        self.statuses[name][status] += 1
        self.times[name].append(seconds)
        if not self.is_alive():
            # Another running request may be the cause; one of them is kept.
            self.problem(name, f"request {i}: the server ended with code {self.process.returncode}", raw)
        elif seconds > limit_s:
            self.problem(name, f"request {i}: {status} after {seconds:.1f} s, the deadline was {self.args.timeout} s", raw)
        # If a body exceeds the server's limit, the connection may be closed before the answer is read.
        if status is None and len(raw) <= MAX_BODY_MIB << 20 and name != "an odd head":
            self.problem(name, f"request {i}: the connection was closed without an answer", raw)
        if status is not None and status not in FINE:
            self.problem(name, f"request {i}: status {status}: {answer[-300:]!r}", raw)
        if status == 200 and b'"engine"' in answer and b'"error"' in answer:
            self.problem(name, f"request {i}: an error of the engine in the answer: {answer[-300:]!r}", raw)

    async def run(self, first, last, until):
        at = first

        async def worker():
            nonlocal at
            while at < last and time.monotonic() < until and self.is_alive():
                i, at = at, at + 1
                await self.one(i)
                if (i + 1) % 1000 == 0:
                    print(f"{i + 1} requests", flush=True)

        await asyncio.gather(*[worker() for _ in range(self.args.together)])
        return at

    async def settle(self):
        """Waits until no request is running, then until the heap's free pages were returned."""
        for _ in range(300):
            if not self.is_alive():
                return
            _, answer, _ = await exchange(self.address, b"GET /v1/system HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 10)
            models = json.loads(answer.split(b"\r\n\r\n", 1)[1])["models"]
            counters = [model["counters"] for model in models]
            if not any(c["n_running"] or c["n_waiting"] for c in counters):
                break
            await asyncio.sleep(0.1)
        else:
            self.problem("at rest", f"something is stuck: {counters}")
        await asyncio.sleep(8)


def memory_kib(pid, name="RssAnon"):
    return int(re.search(name + r":\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))


async def attack(args, process, address):
    _, answer, _ = await exchange(address, b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 10)
    hostile_values.images()
    routes = hostile_values.routes(json.loads(answer.split(b"\r\n\r\n", 1)[1]))
    hostile = Hostile(address, args, routes, process)
    for _ in range(600):
        status, expected, _ = await hostile.plain()
        if status == 200:
            break
        await asyncio.sleep(0.1)
    until = time.monotonic() + 60 * args.minutes
    asking = asyncio.create_task(hostile.keep_asking(expected))
    start = time.monotonic()
    # After this, every bounded cache has been filled.
    done = await hostile.run(0, args.requests // 2, until)
    await hostile.settle()
    before = memory_kib(process.pid) if hostile.is_alive() else 0
    done = await hostile.run(done, args.requests, until)
    seconds = time.monotonic() - start
    asking.cancel()
    await hostile.settle()
    if not hostile.is_alive():
        return hostile
    after, peak = memory_kib(process.pid), memory_kib(process.pid, "VmHWM")
    if after > before * 1.1:
        hostile.problem("memory", f"grew from {before} to {after} KiB at rest")
    print(f"\n{done} requests, {args.together} together, {seconds:.0f} s, measured")
    report(hostile)
    times = sorted(hostile.plain_times)
    print(f"\nthe plain question: {len(times)} times, median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")
    print(f"own memory at rest {before} -> {after} KiB, most at any time {peak} KiB of all")
    if done < args.requests:
        print(f"the time of {args.minutes} minutes ended it after {done} of {args.requests} requests")
    return hostile


def report(hostile):
    print("| request | number | statuses | median s | longest s |\n|---|---:|---|---:|---:|")
    for name, times in sorted(hostile.times.items()):
        times = sorted(times)
        statuses = ", ".join(f"{status or 'closed'}: {n}" for status, n in hostile.statuses[name].most_common())
        print(f"| {name} | {len(times)} | {statuses} | {times[len(times) // 2]:.2f} | {times[-1]:.2f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--together", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=5, help="the server's deadline for a request, in seconds")
    parser.add_argument("--minutes", type=float, default=30, help="stop after this time, whatever is left")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="folder for the requests behind problems")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        see = f"{folder}/see.gguf"
        subprocess.run([args.binary, "synth", "gemma-tiny", see, "--type", "F32", "--vision", "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        command = [args.binary, "serve", "text=demo", f"see={see}", "--mmproj", f"see={folder}/mmproj-see.gguf", "--port", "0", "--quiet",
                   "--ctx", "512", "--max-body", str(MAX_BODY_MIB), "--request-timeout", f"{args.timeout:g}", "--grace", str(GRACE_S), "--queue", "64"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
        problems = ["it did not come to an end"]
        try:
            hostile = asyncio.run(attack(args, process, (host, int(port))))
            problems = hostile.problems
        finally:
            process.terminate()
            try:
                if code := process.wait(timeout=GRACE_S + 6):
                    problems.append(f"it ended with code {code}")
            except subprocess.TimeoutExpired:
                process.kill()
                problems.append(f"it did not end within {GRACE_S + 6} s of being asked to")
    for problem in problems[:20]:
        print("PROBLEM", problem[:600])
    print(f"{len(problems)} problems")
    raise SystemExit(bool(problems))


main()
