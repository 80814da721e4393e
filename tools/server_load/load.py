"""Puts `millrace serve` under load, with faulty clients, and checks its answers and memory. No package is needed.

    python3 tools/server_load/load.py target/release/millrace [--requests 10000] [--together 64]
        [--warm-up 5000] [--minutes 0] [--model demo]

Starts the server, and first asks a set of questions one at a time to learn their answers (texts, calls, forms and thoughts). Then it
sends many requests at once. Some are complete, of this and other APIs, with schemas, functions, thoughts, adapters and scores of
prompts. Some streams are read slowly or abandoned in the middle. Others are faulty: connections dropped after half a request, text that
is not JSON, bodies beyond the limit, wrong fields, deadlines that are too short. A warm-up sends the same, twice as many at once, and
then contexts that fill the cache. Without it, the server would not yet have touched its whole cache, nor its allocator have reached
its peak. At the end the script checks that

- every complete answer equals the one to the question asked alone (no answers are mixed),
- every status is one that its kind allows,
- nothing is running or waiting, and no keys and values are held,
- the process is alive, and its own memory (without pages of files) is within 2 % of that after the warm-up. Both are
  read at rest: no request is running, and idle threads had time to end.

Prints a table of kinds, statuses and times, measured; the exit code is 1 if a check fails.
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

from variants import THINKER, adapter, rewritten

KINDS = {  # kind: (weight, allowed statuses; None is a closed connection)
    "complete": (25, {200, 429}),
    "other API": (10, {200, 429}),
    "stream": (15, {200, 429}),
    "slow": (6, {200, 429}),
    "left": (14, {None, 429}),
    "half": (10, {None}),
    "no_json": (6, {400}),
    "huge": (3, {413, None}),
    "wrong": (6, {400, 404}),
    "deadline": (5, {200, 429, 504}),
}


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "name": {"type": "string", "maxLength": 9}},
          "required": ["n", "name"], "additionalProperties": False}
LAMP = {"type": "function", "function": {"name": "lamp", "parameters": SCHEMA}}
# Extra fields of some questions: forced or optional calls, and forms, also for a model that thinks.
EXTRAS = {
    1: {"tools": [LAMP], "tool_choice": "required", "parallel_tool_calls": False},
    2: {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    5: {},
    13: {"tools": [LAMP]},
    21: {"tools": [LAMP], "tool_choice": "required"},
    29: {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
}


def questions(model):
    out = []
    for i in range(40):
        text = f"What is {1 + i % 9} plus {1 + i * 7 % 9}?"
        if i % 4 == 3:
            text = "Ben went to the lake with a dog. " * (5 + i) + text
        # Some use a model that thinks, some an adapter.
        asked = {5: "thinker", 6: "style"}.get(i % 8, model)
        out.append({"model": asked, "messages": [{"role": "user", "content": text}], "seed": i, "logprobs": True,
                    "temperature": [0, 1][i % 2], "max_tokens": 8 + i, "ignore_eos": i % 5 == 0, "thinking_budget": 1 + i % 7})
        extra = EXTRAS.get(i) or EXTRAS.get(i % 8, {})
        if extra:
            out[-1] |= extra | {"max_tokens": 120, "ignore_eos": False}
    return out


def others(model):
    """Requests of every other kind: path, body, and the part of the answer that must be the same as alone."""
    ask = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}
    schema, tool = SCHEMA, LAMP
    chat, choice = "/v1/chat/completions", lambda answer: answer["choices"][0]["message"]["content"]
    return [
        ("/v1/completions", {"model": model, "prompt": "Once upon a time", "seed": 5, "max_tokens": 20, "n": 2},
         lambda answer: [choice["text"] for choice in answer["choices"]]),
        ("/v1/responses", {"model": model, "temperature": 0, "input": "What is 7 plus 5?"},
         lambda answer: answer["output"][0]["content"]),
        ("/v1/messages", ask | {"max_tokens": 30}, lambda answer: answer["content"]),
        ("/v1/messages/count_tokens", ask, lambda answer: answer),
        ("/api/chat", ask | {"stream": False, "options": {"temperature": 0}}, lambda answer: answer["message"]),
        ("/api/generate", {"model": model, "prompt": "Hello", "stream": False, "options": {"seed": 3}},
         lambda answer: answer["response"]),
        ("/v1/embeddings", {"model": model, "input": ["Ben went to the lake", "The dog"]}, lambda answer: answer["data"]),
        (chat, ask | {"max_tokens": 40, "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": schema}}}, choice),
        (chat, ask | {"max_tokens": 40, "tools": [tool], "tool_choice": "required"},
         lambda answer: [call["function"] for call in answer["choices"][0]["message"].get("tool_calls", [])]),
        (chat, ask | {"structured_outputs": {"regex": "[a-z]{3,9} [0-9]+"}, "max_tokens": 20}, choice),
        (chat, ask | {"model": "thinker", "max_tokens": 30, "thinking_budget": 4},
         lambda answer: answer["choices"][0]["message"]),
        (chat, ask | {"model": "thinker", "max_tokens": 60, "thinking_budget": 4, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}, choice),
        ("/v1/messages", ask | {"model": "thinker", "max_tokens": 40, "thinking": {"type": "enabled", "budget_tokens": 8}},
         lambda answer: [block.get("thinking") or block.get("text") for block in answer["content"]]),
        (chat, ask | {"model": "style", "max_tokens": 20}, choice),
        (chat, ask | {"lora": [{"id": 0, "scale": 0.5}], "max_tokens": 20}, choice),
        (chat, ask | {"prompt_logprobs": 2, "max_tokens": 4}, lambda answer: answer["prompt_logprobs"]),
        ("/v1/completions", {"model": model, "prompt": "Ben went to the lake. " * 20, "echo": True, "logprobs": 1,
                             "max_tokens": 0}, lambda answer: answer["choices"]),
        ("/tokenize", {"model": model, "content": "Ben went to the lake. " * 30}, lambda answer: answer["tokens"]),
        ("/apply-template", ask, lambda answer: answer["prompt"]),
        ("/api/show", {"model": model}, lambda answer: answer["model_info"]),
    ]


# Counters that are summed over the models.
COUNTERS = ("n_running", "n_waiting", "kv_used_bytes", "prompt_tokens", "cached_tokens", "generated_tokens", "passes",
            "preemptions", "aborted", "failed", "refused")
# Tokens of one context, and of the whole cache.
CONTEXT, CACHED = 512, 2048


class Connection:
    def __init__(self, host, port):
        self.host, self.port = host, port

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def send(self, body, cut=None, headers="", length=None, path="/v1/chat/completions"):
        head = (f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}"
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
        """The body, with chunks joined."""
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


def said(choice):
    """Content of a complete answer: its text, thought, calls, and tokens with their log-probabilities."""
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    return message["content"] or "", message.get("reasoning_content", ""), calls, choice["logprobs"]["content"]


def streamed(raw):
    """Content of a streamed answer, and whether the stream is complete."""
    text, thought, calls, tokens, ended = "", "", {}, [], False
    for block in unchunked(raw).decode().split("\n\n"):
        if block == "data: [DONE]":
            ended = True
        elif block.startswith("data: "):
            event = json.loads(block[6:])
            if "error" in event:
                return None, False
            for choice in event["choices"]:
                delta = choice["delta"]
                text += delta.get("content") or ""
                thought += delta.get("reasoning_content") or ""
                for call in delta.get("tool_calls", []):
                    name, arguments = calls.get(call["index"], ("", ""))
                    function = call["function"]
                    calls[call["index"]] = (name + (function.get("name") or ""), arguments + (function.get("arguments") or ""))
                tokens += (choice.get("logprobs") or {}).get("content", [])
    return (text, thought, [calls[index] for index in sorted(calls)], tokens), ended


class Load:
    def __init__(self, host, port, model):
        self.host, self.port = host, port
        self.questions = questions(model)
        self.others = others(model)
        self.answers, self.other_answers = [], []
        self.forget()

    def forget(self):
        self.problems = []
        self.statuses = defaultdict(Counter)
        self.times = defaultdict(list)

    async def ask(self, body, path="/v1/chat/completions"):
        async with Connection(self.host, self.port) as connection:
            await connection.send(json.dumps(body).encode(), path=path)
            status = await connection.status()
            return status, await connection.rest()

    async def learn(self):
        for body in self.questions:
            status, raw = await self.ask(body)
            assert status == 200, raw
            self.answers.append(said(json.loads(raw)["choices"][0]))
        # The requested parts must occur, or the comparisons would be empty.
        assert any(calls for _, _, calls, _ in self.answers), "no question was answered by a call"
        assert any(thought for _, thought, _, _ in self.answers), "no question was thought about"
        for path, body, part in self.others:
            status, raw = await self.ask(body, path)
            assert status == 200, raw
            self.other_answers.append(part(json.loads(raw)))

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
                    self.compare(kind, i, said(json.loads(raw)["choices"][0]))
            elif kind == "other API":
                i = random.randrange(len(self.others))
                path, body, part = self.others[i]
                await connection.send(json.dumps(body).encode(), path=path)
                status = await connection.status()
                raw = await connection.rest()
                if status == 200 and part(json.loads(raw)) != self.other_answers[i]:
                    self.problems.append(f"{path}: another's answer: {raw[:200]!r}")
            elif kind in ("stream", "slow"):
                await connection.send(json.dumps(body | {"stream": True}).encode())
                status = await connection.status()
                raw = await connection.rest(slow=kind == "slow")
                if status == 200:
                    answer, ended = streamed(raw)
                    if not ended:
                        self.problems.append(f"{kind}: question {i}: a stream without its end")
                    self.compare(kind, i, answer)
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
            self.problems.append(f"{kind}: question {i} has another's answer: {answer and answer[:3]!r}")

    async def run(self, n, together, minutes, progress):
        kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
        left = n

        start = time.monotonic()

        async def worker():
            nonlocal left
            while left > 0:
                left -= 1
                # Bursts, spread over the requested time.
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

    async def fill(self):
        """Touches every page of keys and values, which have no memory before, with contexts that nearly fill it and share nothing."""
        async def one(i):
            prompt = [(7 * i + 13 * j) % 1000 + 10 for j in range(CONTEXT - 32)]
            body = {"model": ("m", "thinker")[i % 2], "prompt": prompt, "max_tokens": 30, "ignore_eos": True}
            status, _ = await self.ask(body, "/v1/completions")
            if status != 200:
                self.problems.append(f"a context of {len(prompt)} tokens: status {status}")

        await asyncio.gather(*[one(i) for i in range(8 * CACHED // CONTEXT)])

    async def settle(self):
        """Waits until no request is running, and then until idle threads ended (10 s after their last work)."""
        for _ in range(200):
            models = await self.counters()
            counters = {name: sum(of[name] for of in models) for name in COUNTERS}
            if not (counters["n_running"] or counters["n_waiting"] or counters["kv_used_bytes"]):
                break
            await asyncio.sleep(0.1)
        else:
            self.problems.append(f"something is stuck: {counters}")
        await asyncio.sleep(12)
        return counters

    async def counters(self):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(b"GET /v1/system HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        raw = await reader.read(-1)
        writer.close()
        models = json.loads(raw.split(b"\r\n\r\n", 1)[1])["models"]
        return [model["counters"] for model in models]


def memory_kib(pid):
    """Resident memory: the process's own, and pages of files (the program with its built-in model)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(name + r":\s+(\d+)", status).group(1)) for name in ("RssAnon", "RssFile")]


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--together", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=5000, help="requests before anything is counted, twice as many together")
    parser.add_argument("--minutes", type=float, default=0, help="spread the requests over this time")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    folder = tempfile.TemporaryDirectory()
    thinker = Path(folder.name) / "thinker.gguf"
    thinker.write_bytes(rewritten(THINKER))
    style = adapter(Path(folder.name) / "style")
    command = [args.binary, "serve", f"m={args.model}", f"thinker={thinker}", "--lora", f"m:style={style}", "--port", "0", "--quiet", "--ctx", str(CONTEXT), "--kv-tokens", str(CACHED),
               "--max-body", "2"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
        load = Load(host, int(port), "m")
        await load.learn()
        told = set()

        def progress(done):
            if done % 500 == 0 and done not in told:
                told.add(done)
                own, files = memory_kib(server.pid)
                print(f"{done} requests, {time.monotonic() - start:.0f} s, {own} KiB and {files} of files", flush=True)

        start = time.monotonic()
        await load.run(args.warm_up, 2 * args.together, 0, progress)
        await load.fill()
        await load.settle()
        before = memory_kib(server.pid)
        print(f"warm: {before[0]} KiB and {before[1]} of files", flush=True)
        warm_up_problems = load.problems
        load.forget()
        told.clear()
        start = time.monotonic()
        await load.run(args.requests, args.together, args.minutes, progress)
        seconds = time.monotonic() - start
        counters = await load.settle()
        after = memory_kib(server.pid)
        load.problems += warm_up_problems
        if after[0] > before[0] * 1.02:
            load.problems.append(f"its own memory grew from {before[0]} to {after[0]} KiB")
        if server.poll() is not None:
            load.problems.append(f"the server ended with code {server.returncode}")
        report(load, args, seconds, before, after, counters)
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
    print(f"\nmemory, its own and pages of files, {before} -> {after} KiB; " + ", ".join(
        f"{name} {counters[name]}" for name in COUNTERS[3:]))


asyncio.run(main())
