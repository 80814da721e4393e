"""Abuses `millrace serve` and looks for what it must not do. No package is needed.

    python3 tools/server_load/load.py target/release/millrace [--requests 10000] [--together 64]
        [--minutes 0] [--model demo]

Starts the server, asks a set of questions one at a time to know their answers, then sends requests of these kinds,
many together: complete ones, streams read slowly, streams left in the middle, connections dropped after
half a request, text that is not JSON, bodies beyond the limit, wrong fields, deadlines too short to keep. At the end it wants

- every complete answer equal to the one asked alone (no answer mixed into another's),
- no answer with a status other than what its kind allows,
- nothing running or waiting, no keys and values held,
- the process alive, its memory back to within 2 % of what it was after the first fifth of the requests.

Prints a table of kinds, statuses and times, measured; the exit code is 1 if something is not as it should be.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path

KINDS = {  # kind: (weight, statuses that are right; None is a connection that was closed)
    "complete": (30, {200, 429}),
    "stream": (20, {200, 429}),
    "slow": (6, {200, 429}),
    "left": (14, {None, 429}),
    "half": (10, {None}),
    "no_json": (6, {400}),
    "huge": (3, {413, None}),
    "wrong": (6, {400, 404}),
    "deadline": (5, {200, 429, 504}),
}


def questions(model):
    out = []
    for i in range(40):
        text = f"What is {1 + i % 9} plus {1 + i * 7 % 9}?"
        if i % 4 == 3:
            text = "Ben went to the lake with a dog. " * (5 + i) + text
        out.append({"model": model, "messages": [{"role": "user", "content": text}], "seed": i, "logprobs": True,
                    "temperature": [0, 1][i % 2], "max_tokens": 8 + i, "ignore_eos": i % 5 == 0})
    return out


class Connection:
    def __init__(self, host, port):
        self.host, self.port = host, port

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def send(self, body, cut=None, headers="", length=None):
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}"
                f"content-length: {length or len(body)}\r\n\r\n").encode()
        data = head + body
        self.writer.write(data[:cut])
        await self.writer.drain()

    async def status(self):
        line = await self.reader.readline()
        if not line:
            return None
        status = int(line.split()[1])
        while (await self.reader.readline()).strip():
            pass
        return status

    async def rest(self, slow=False):
        """The body; chunks are put together."""
        raw = b""
        while piece := await self.reader.read(256 if slow else 65536):
            raw += piece
            if slow:
                await asyncio.sleep(0.02)
        return raw


def unchunked(raw):
    out, at = b"", 0
    while at < len(raw):
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end], 16)
        out += raw[end + 2:end + 2 + size]
        at = end + 4 + size
    return out


def streamed(raw):
    """The text and tokens of a stream, and whether it has its end."""
    text, tokens, ended = "", [], False
    for block in unchunked(raw).decode().split("\n\n"):
        if block == "data: [DONE]":
            ended = True
        elif block.startswith("data: "):
            event = json.loads(block[6:])
            if "error" in event:
                return None, None, False
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                tokens += (choice["logprobs"] or {}).get("content", [])
    return text, tokens, ended


class Load:
    def __init__(self, host, port, model):
        self.host, self.port = host, port
        self.questions = questions(model)
        self.answers = []
        self.problems = []
        self.statuses = defaultdict(Counter)
        self.times = defaultdict(list)

    async def ask(self, body, headers=""):
        async with Connection(self.host, self.port) as connection:
            await connection.send(json.dumps(body).encode(), headers=headers)
            status = await connection.status()
            return status, await connection.rest()

    async def learn(self):
        for body in self.questions:
            status, raw = await self.ask(body)
            assert status == 200, raw
            choice = json.loads(raw)["choices"][0]
            self.answers.append((choice["message"]["content"], choice["logprobs"]["content"]))

    async def one(self, kind):
        i = random.randrange(len(self.questions))
        body = self.questions[i]
        start = time.monotonic()
        status = None
        async with Connection(self.host, self.port) as connection:
            if kind == "complete":
                await connection.send(json.dumps(body).encode())
                status = await connection.status()
                raw = await connection.rest()
                if status == 200:
                    choice = json.loads(raw)["choices"][0]
                    self.compare(kind, i, (choice["message"]["content"], choice["logprobs"]["content"]))
            elif kind in ("stream", "slow"):
                await connection.send(json.dumps(body | {"stream": True}).encode())
                status = await connection.status()
                raw = await connection.rest(slow=kind == "slow")
                if status == 200:
                    text, tokens, ended = streamed(raw)
                    if not ended:
                        self.problems.append(f"{kind}: question {i}: a stream without its end")
                    self.compare(kind, i, (text, tokens))
            elif kind == "left":
                endless = body | {"stream": random.random() < 0.7, "ignore_eos": True, "max_tokens": 400}
                await connection.send(json.dumps(endless).encode())
                await asyncio.sleep(random.random() * 0.3)
            elif kind == "half":
                data = json.dumps(body).encode()
                await connection.send(data, cut=random.randrange(1, len(data)))
                await asyncio.sleep(random.random() * 0.2)
            elif kind == "no_json":
                await connection.send(random.choice([b"{", b"\xff\xfe\x00", b"[" * 5000, b'{"model": }', b"null"]))
                status = await connection.status()
            elif kind == "huge":
                try:
                    await connection.send(b" " * (1 << 20), length=64 << 20)
                    status = await connection.status()
                except (ConnectionError, OSError):
                    pass
            elif kind == "wrong":
                wrong = random.choice([{"temperature": "hot"}, {"model": "other"}, {"messages": []}, {"n": 10**9},
                                       {"stop": 5}, {"tools": [{}]}, {"seed": "x"}])
                await connection.send(json.dumps(body | wrong).encode())
                status = await connection.status()
            elif kind == "deadline":
                endless = body | {"ignore_eos": True, "max_tokens": 400}
                await connection.send(json.dumps(endless).encode(), headers="x-request-timeout-ms: 50\r\n")
                status = await connection.status()
        self.statuses[kind][status] += 1
        if status not in KINDS[kind][1]:
            self.problems.append(f"{kind}: status {status}")
        self.times[kind].append(time.monotonic() - start)

    def compare(self, kind, i, answer):
        if answer != self.answers[i]:
            self.problems.append(f"{kind}: question {i} has another's answer: {answer[0]!r}")

    async def run(self, n, together, minutes, progress):
        kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
        left = n

        start = time.monotonic()

        async def worker():
            nonlocal left
            while left > 0:
                left -= 1
                # In bursts, spread over the time that was asked for.
                due = (n - left) // together * together / n * minutes * 60
                await asyncio.sleep(max(0, start + due - time.monotonic()))
                kind = random.choices(kinds, weights)[0]
                try:
                    await asyncio.wait_for(self.one(kind), 300)
                except (ConnectionError, OSError) as error:
                    self.problems.append(f"{kind}: {error!r}")
                except TimeoutError:
                    self.problems.append(f"{kind}: no end after 300 s")
                progress(n - left)

        await asyncio.gather(*[worker() for _ in range(together)])

    async def counters(self):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(b"GET /v1/system HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        raw = await reader.read(-1)
        writer.close()
        return json.loads(raw.split(b"\r\n\r\n", 1)[1])["models"][0]["counters"]


def memory_kib(pid):
    """Resident memory: the process's own, and pages of files (the program, with the built-in model in it)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(name + r":\s+(\d+)", status).group(1)) for name in ("RssAnon", "RssFile")]


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--together", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=0, help="spread the requests over this time")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    command = [args.binary, "serve", f"m={args.model}", "--port", "0", "--quiet", "--ctx", "512", "--kv-tokens", "2048",
               "--max-body", "2"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
        load = Load(host, int(port), "m")
        start = time.monotonic()
        await load.learn()
        baseline, told = {}, set()

        def progress(done):
            # After the caches and allocators have seen some of everything.
            if done >= args.requests // 5 and not baseline:
                baseline["kib"] = memory_kib(server.pid)
            if done % 500 == 0 and done not in told:
                told.add(done)
                own, files = memory_kib(server.pid)
                print(f"{done} requests, {time.monotonic() - start:.0f} s, {own} KiB and {files} of files", flush=True)

        await load.run(args.requests, args.together, args.minutes, progress)
        for _ in range(200):
            counters = await load.counters()
            if not (counters["n_running"] or counters["n_waiting"] or counters["kv_used_bytes"]):
                break
            await asyncio.sleep(0.1)
        else:
            load.problems.append(f"something is stuck: {counters}")
        after = memory_kib(server.pid)
        if sum(after) > sum(baseline["kib"]) * 1.02:
            load.problems.append(f"memory grew from {baseline['kib']} to {after} KiB (its own, of files)")
        if server.poll() is not None:
            load.problems.append(f"the server ended with code {server.returncode}")
        report(load, args, time.monotonic() - start, baseline["kib"], after, counters)
    finally:
        server.terminate()
        code = server.wait(timeout=60)
    if code != 0:
        load.problems.append(f"it ended with code {code}")
    for problem in load.problems[:20]:
        print("PROBLEM", problem)
    print(f"{len(load.problems)} problems")
    raise SystemExit(bool(load.problems))


def report(load, args, seconds, before, after, counters):
    print(f"\n{args.requests} requests, {args.together} together, {seconds:.0f} s, measured")
    print("| kind | requests | statuses | median s | p95 s |\n|---|---:|---|---:|---:|")
    for kind in KINDS:
        times = sorted(load.times[kind])
        if not times:
            continue
        statuses = ", ".join(f"{status or 'closed'}: {n}" for status, n in load.statuses[kind].most_common())
        print(f"| {kind} | {len(times)} | {statuses} | {times[len(times) // 2]:.2f} | {times[len(times) * 95 // 100]:.2f} |")
    print(f"\nmemory, its own and pages of files, {before} -> {after} KiB; " + ", ".join(f"{name} {counters[name]}" for name in (
        "prompt_tokens", "cached_tokens", "generated_tokens", "passes", "preemptions", "aborted", "failed", "refused")))


asyncio.run(main())
