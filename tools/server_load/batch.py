"""Kills `millrace batch` at random points, and checks that no answer is lost or repeated. No package is needed.

    python3 tools/server_load/batch.py target/release/millrace [--lines 10000] [--kills 5] [--seed 1]

Writes a file of requests, some with shared beginnings, functions and errors, and starts the batch. It is killed (SIGKILL)
--kills times, after a random number of answers each. Each time half a line is appended to the output, like an interrupted
write. Then the batch runs to its end. Every custom_id must occur once, equal requests must have equal answers, and the status
must be 200 for all but the invalid requests. The exit code is 1 if a check fails.
"""

import argparse
import json
import random
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

# Number of different requests. Each is repeated, and its answers must be equal.
N_KINDS = 50
STORY = "Ben went to the lake with a dog. " * 6


def request(i):
    """A request of kind `i % N_KINDS`."""
    kind = i % N_KINDS
    chat = {"model": "demo", "temperature": 0, "max_tokens": 6,
            "messages": [{"role": "user", "content": (STORY if kind % 3 else "") + f"What is {kind % 9} plus {kind % 5}?"}]}
    if kind == 7:
        url, body = "/v1/chat/completions", chat | {"temperature": "hot"}
    elif kind % 5 == 0:
        url, body = "/v1/completions", {"model": "demo", "prompt": STORY + str(kind), "max_tokens": 4, "temperature": 0}
    elif kind % 11 == 0:
        url, body = "/v1/embeddings", {"model": "demo", "input": STORY + str(kind)}
    else:
        url, body = "/v1/chat/completions", chat
    return {"custom_id": f"request {i}", "method": "POST", "url": url, "body": body}


def essence(answer):
    """The part of an answer that must be equal for equal requests."""
    body = answer["response"]["body"]
    if "choices" in body:
        return json.dumps([choice.get("text") or choice.get("message") for choice in body["choices"]])
    return json.dumps(body.get("data") or body.get("error"))


def n_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check(path, n):
    """Problems with the answers to `n` requests."""
    seen, by_kind, problems = set(), defaultdict(set), []
    for line in path.read_text().splitlines():
        answer = json.loads(line)
        i = int(answer["custom_id"].removeprefix("request "))
        if i in seen:
            problems.append(f"request {i} is answered twice")
        seen.add(i)
        status, expected = answer["response"]["status_code"], 400 if i % N_KINDS == 7 else 200
        if status != expected:
            problems.append(f"request {i}: status {status}, expected {expected}")
        by_kind[i % N_KINDS].add(essence(answer))
    if lost := set(range(n)) - seen:
        problems.append(f"{len(lost)} requests have no answer, request {min(lost)} first")
    return problems + [f"requests of kind {kind} have {len(found)} answers" for kind, found in by_kind.items() if len(found) > 1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random.seed(args.seed)
    folder = tempfile.TemporaryDirectory()
    requests, out = Path(folder.name) / "in.jsonl", Path(folder.name) / "out.jsonl"
    requests.write_text("".join(json.dumps(request(i)) + "\n" for i in range(args.lines)))
    command = [args.binary, "batch", str(requests), "--out", str(out), "--parallel", "16", "--quiet", "--json"]
    start, problems = time.monotonic(), []
    for point in sorted(random.sample(range(1, args.lines), args.kills)):
        batch = subprocess.Popen(command, stdout=subprocess.PIPE)
        while n_lines(out) < point and batch.poll() is None:
            time.sleep(0.02)
        batch.send_signal(signal.SIGKILL)
        code = batch.wait()
        if code != -signal.SIGKILL:
            problems.append(f"it ended by itself with code {code} before {point} answers")
        print(f"killed behind {n_lines(out)} answers, {time.monotonic() - start:.0f} s", flush=True)
        with out.open("ab") as file:
            file.write(b'{"id":"batch_req_1","custom_id":"request 1","error":nu')
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    problems += check(out, args.lines)
    for problem in problems[:20]:
        print("PROBLEM", problem)
    print(f"{json.loads(told)}, {time.monotonic() - start:.0f} s; {len(problems)} problems")
    raise SystemExit(bool(problems))


main()
