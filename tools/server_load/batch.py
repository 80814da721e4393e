"""Kills `millrace batch` at random points and looks whether anything is lost or repeated. No package is needed.

    python3 tools/server_load/batch.py target/release/millrace [--lines 10000] [--kills 5] [--seed 1]

Writes a file of requests with shared beginnings, functions and errors among them, and starts the batch. It is killed (SIGKILL)
after a random number of answers, as often as asked, and each time half a line is put at the end of what is there, as a
write that was cut would leave it. Then it runs to its end. It wants every custom_id once, the answers of the requests that are
alike to be alike, and a status of 200 but for those that are wrong. The exit code is 1 if something is not as it should be.
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

# Requests that are asked again and again: their answers must be alike.
N_KINDS = 50
STORY = "Ben went to the lake with a dog. " * 6


def request(i):
    """A request of kind `i % N_KINDS`, with what it is to answer."""
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
    """What of an answer must be alike."""
    body = answer["response"]["body"]
    if "choices" in body:
        return json.dumps([choice.get("text") or choice.get("message") for choice in body["choices"]])
    return json.dumps(body.get("data") or body.get("error"))


def n_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check(path, n):
    """What is wrong with the answers to `n` requests."""
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
            file.write(b'{"custom_id":"request 1","error":nu')
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    problems += check(out, args.lines)
    for problem in problems[:20]:
        print("PROBLEM", problem)
    print(f"{json.loads(told)}, {time.monotonic() - start:.0f} s; {len(problems)} problems")
    raise SystemExit(bool(problems))


main()
