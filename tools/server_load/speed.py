"""Measures tokens a second and delays of an OpenAI-style server for several numbers of clients. No package is needed.

    millrace serve m=model.gguf --port 8080 -c 1024 &
    python3 tools/server_load/speed.py http://127.0.0.1:8080 m --clients 1,4,8 --prompt 128 --tokens 64

Each client sends one request at a time, of random token ids (so that no cache helps), and reads the answer as a stream.
The script works with any server that takes token ids in /v1/completions, such as llama.cpp's. It prints a table, measured.
With `--shared N`, each prompt begins with the same N tokens, which only the first request computes.
"""

import argparse
import asyncio
import json
import random
import time
from urllib.parse import urlsplit


async def one(url, body):
    """Sends a request. Returns the times of the pieces of text, and the number of generated tokens."""
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    data = json.dumps(body).encode()
    writer.write(f"POST /v1/completions HTTP/1.1\r\nhost: {url.netloc}\r\nconnection: close\r\n"
                 f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    start = time.monotonic()
    status = int((await reader.readline()).split()[1])
    if status != 200:
        raise SystemExit((await reader.read(-1)).decode())
    times, written = [], 0
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if any(choice.get("logprobs") for choice in event["choices"]):
            times.append(time.monotonic() - start)
        written = (event.get("usage") or {}).get("completion_tokens", written)
    writer.close()
    return times, written


def quantile(values, share):
    values = sorted(values)
    return values[min(int(len(values) * share), len(values) - 1)] if values else float("nan")


async def run(url, args, n_clients):
    random.seed(args.seed + n_clients)
    shared = [random.randrange(10, args.vocab) for _ in range(args.shared)]
    results = []

    async def client():
        for _ in range(args.rounds):
            prompt = shared + [random.randrange(10, args.vocab) for _ in range(args.prompt)]
            # Log-probabilities mark each token, since tokens from random weights are often not whole characters.
            body = {"model": args.model, "prompt": prompt, "max_tokens": args.tokens, "ignore_eos": True, "stream": True,
                    "stream_options": {"include_usage": True}, "temperature": args.temperature, "logprobs": 1, "seed": 1}
            results.append(await one(url, body))

    start = time.monotonic()
    await asyncio.gather(*[client() for _ in range(n_clients)])
    seconds = time.monotonic() - start
    written = sum(n for _, n in results)
    first = [times[0] for times, _ in results]
    between = [b - a for times, _ in results for a, b in zip(times, times[1:])]
    writing = max(times[-1] for times, _ in results) - min(first)
    print(f"| {n_clients} | {written / seconds:.1f} | {written / max(writing, 1e-9):.1f} | {quantile(first, .5):.3f} | "
          f"{quantile(first, .95):.3f} | {quantile(between, .5) * 1e3:.1f} | {quantile(between, .95) * 1e3:.1f} | "
          f"{max(between, default=0) * 1e3:.1f} |", flush=True)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--vocab", type=int, default=10_000)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| clients | tokens/s | while writing | first token s, median | p95 | between tokens ms, median | p95 | most |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for n_clients in map(int, args.clients.split(",")):
        await run(urlsplit(args.url), args, n_clients)


asyncio.run(main())
