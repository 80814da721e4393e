"""Tests three servers (`millrace serve`) behind a stock haproxy, on this computer. No Python package is needed.

    apt-get install haproxy
    python3 tools/scale_out/run.py target/release/millrace [--requests 60] [--together 12]

Starts three servers on the demo model, and haproxy with tools/scale_out/haproxy.cfg. It sends chats through the proxy, half of them
streamed, and checks that

- every answer equals the one that a server gives directly, and streams send their first bytes before their last,
- all three servers work, by the counters with vLLM's names in their /metrics,
- each conversation with a name (header x-conversation) stays at one server, whose cache has the first turn for the second,
- no request is lost if a server is asked to stop under load (it completes its requests, and the proxy sends it no more),
- no request is lost if an idle server is killed.

Prints a table; the exit code is 1 if a check fails.
"""

import argparse
import concurrent.futures
import http.client
import json
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

problems = []


def check(name, ok, found=""):
    print(f"{'ok  ' if ok else 'FAIL'}  {name}" + ("" if ok else f": {found!r}"), flush=True)
    if not ok:
        problems.append(name)


class Server:
    def __init__(self, binary, name):
        self.name = name
        command = [binary, "serve", "demo", "--port", "0", "--quiet", "--ctx", "512", "--threads", "1", "--grace", "60", "--linger", "2"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def counters(self):
        status, text, _ = get(self.port, "/metrics")
        assert status == 200, text
        values = dict(re.findall(r'^(vllm:\w+)\{[^}]*model_name="demo"[^}]*\} (\S+)$', text, re.M))
        done = re.findall(r'^vllm:request_success_total\{[^}]*\} (\S+)$', text, re.M)
        values["requests"] = sum(map(float, done))
        return {name: float(value) for name, value in values.items()}


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode(), dict(response.headers)


def chat(port, messages, stream=False, x_conversation=None, **fields):
    """Status, text, cached tokens, the answering server, and the time between the first and last bytes."""
    body = {"model": "demo", "messages": messages, "temperature": 0, "max_tokens": 40} | fields
    headers = {"content-type": "application/json"} | ({"x-conversation": x_conversation} if x_conversation else {})
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    by = response.headers.get("x-served-by")
    if not stream or response.status != 200:
        raw = response.read()
        if response.status != 200:
            return response.status, raw.decode(), 0, by, 0
        answer = json.loads(raw)
        return 200, answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"]["cached_tokens"], by, 0
    first, text, cached, ended = None, "", 0, False
    for line in response:
        first = first or time.monotonic()
        if line == b"data: [DONE]\n":
            ended = True
        elif line.startswith(b"data: "):
            event = json.loads(line[6:])
            usage = event.get("usage") or {}
            cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", cached)
            text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    return (200 if ended else 599), text, cached, by, time.monotonic() - first


def question(i):
    return [{"role": "user", "content": f"What is {1 + i % 9} plus {1 + i * 7 % 9}?"}]


def load(port, n, together, during=None):
    """Sends n chats, and calls `during` once a third of them ended."""
    with concurrent.futures.ThreadPoolExecutor(together) as pool:
        futures = [pool.submit(chat, port, question(i), i % 2 == 1) for i in range(n)]
        for i, future in enumerate(concurrent.futures.as_completed(futures)):
            if during and i == n // 3:
                during()
        return [future.result() for future in futures]


def right(results, expected):
    wrong = [(i, result) for i, result in enumerate(results) if result[:2] != (200, expected[i % 63])]
    return not wrong, wrong[:2]


def until_ready(port):
    for _ in range(300):
        try:
            if get(port, "/ready")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"port {port} does not become ready")


def use(servers, port, args):
    expected = [chat(servers[0].port, question(i))[1] for i in range(63)]
    before = [server.counters()["requests"] for server in servers]
    start = time.monotonic()
    results = load(port, args.requests, args.together)
    seconds = time.monotonic() - start
    check(f"{args.requests} chats through the proxy are answered as without it", *right(results, expected))
    done = [server.counters()["requests"] - was for server, was in zip(servers, before)]
    check("each server has its share, by vllm:request_success_total", min(done) > args.requests / 12 and sum(done) == args.requests, done)
    tell = [{"role": "user", "content": "Tell me a story."}]
    *_, whole = chat(port, tell, True, max_tokens=300, ignore_eos=True)
    check("a stream is passed on as it comes", whole > 0.05, whole)
    print("\n| server | requests | prompt tokens | of them cached | tokens written |\n|---|---:|---:|---:|---:|")
    for server, n in zip(servers, done):
        counters = server.counters()
        names = ("vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total", "vllm:generation_tokens_total")
        print(f"| {server.name} | {n:.0f} | " + " | ".join(f"{counters[name]:.0f}" for name in names) + " |")
    print(f"\n{args.requests} chats, {args.together} together, in {seconds:.1f} s, measured\n")

    story = "Ben went to the lake with a dog. " * 12
    first = {}
    for name in ("amber", "birch", "cedar", "dune", "elm"):
        first[name] = chat(port, [{"role": "user", "content": f"{name}. {story}"}], x_conversation=name)
    moved, cold = [], []
    for name, (_, text, _, by, _) in first.items():
        turns = [{"role": "user", "content": f"{name}. {story}"}, {"role": "assistant", "content": text}, *question(3)]
        for _ in range(2):
            _, _, cached, again, _ = chat(port, turns, x_conversation=name)
            moved += [name] if again != by else []
            cold += [name] if cached < 64 else []
    check("a conversation stays at its server", not moved, moved)
    check("where it finds its past in the cache", not cold, cold)

    stopped = servers[0]
    results = load(port, args.requests, args.together, lambda: stopped.process.send_signal(signal.SIGTERM))
    check("a server that is asked to stop amid the load costs no request", *right(results, expected))
    check("and ends well", stopped.process.wait(timeout=60) == 0)
    killed = servers[1]
    killed.process.kill()
    killed.process.wait()
    results = load(port, args.requests // 3, args.together)
    check("nor does one that is killed while it has none", *right(results, expected))
    check("the last one answers all", {result[3] for result in results} == {servers[2].name}, results[:1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--together", type=int, default=12)
    args = parser.parse_args()
    servers = [Server(args.binary, name) for name in ("one", "two", "three")]
    proxy = None
    try:
        for server in servers:
            until_ready(server.port)
        text = (Path(__file__).parent / "haproxy.cfg").read_text()
        port = free_port()
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        for i, server in enumerate(servers):
            text = text.replace(f"127.0.0.1:808{i + 1}", f"127.0.0.1:{server.port}")
        with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
            config.write(text)
            config.flush()
            subprocess.run(["haproxy", "-c", "-q", "-f", config.name], check=True)
            proxy = subprocess.Popen(["haproxy", "-db", "-q", "-f", config.name])
            until_ready(port)
            use(servers, port, args)
    finally:
        for process in [proxy, *[server.process for server in servers]]:
            if process and process.poll() is None:
                process.terminate()
                process.wait()
    print(f"{len(problems)} failed" if problems else "all passed")
    raise SystemExit(bool(problems))


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


main()
