"""Measures the rows a second of `millrace.ray` with one and two workers, with real Ray on this computer, and simulates more workers.

    pip install 'ray[data]' millrace_llm-*.whl
    python tools/scale_out/ray_throughput.py [--model demo] [--batches 40] [--batch-size 8] [--tokens 32]
        [--long-batch-s 10] [--json FILE]

Measurement: the same job on one worker and on two, each with one thread on its own core, without start-up. The texts must be the same.
Since other programs take processor time, the processor time per row is measured too. On idle cores, two workers can compute at most
twice the rows, less the extra processor time that a row takes beside another worker.

Simulation: a driver serves N workers one after the other. A batch takes the processor time that it took on the one measured worker, which
has one thread on its own core. The driver's time per batch is measured with a job whose workers do nothing. On a busy machine it is too
long, and the simulation is then too pessimistic. A second simulation has batches of `--long-batch-s`, as a larger model has.

The exit code is 1 if a text differs or a row is missing; times do not affect it.
"""

import argparse
import heapq
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import ray

import millrace.ray as millrace_ray
from millrace.ray import BatchWorker

STARTS = ["Once upon a time", "The dog", "Tom", "One day", "Lily had a", "The sun", "A cat", "Ben and"]

# Batches of a simulated job per worker: enough that the end, where workers become idle, hardly matters.
BATCHES_A_WORKER = 200


class TimedWorker(BatchWorker):
    """Worker that records the start, end and processor time of each batch."""

    def __init__(self, *arguments, folder, **named):
        self.log = Path(folder) / str(os.getpid())
        super().__init__(*arguments, **named)

    def __call__(self, batch):
        began, cpu = time.time(), time.process_time()
        done = super().__call__(batch)
        with open(self.log, "a") as log:
            log.write(json.dumps([began, time.time(), time.process_time() - cpu, len(batch["id"])]) + "\n")
        return done


class IdleWorker:
    """Worker that returns rows unchanged."""

    def __init__(self, *_arguments, folder, **_named):
        self.log = Path(folder) / str(os.getpid())

    def __call__(self, batch):
        now = time.time()
        with open(self.log, "a") as log:
            log.write(json.dumps([now, time.time(), 0.0, len(batch["id"])]) + "\n")
        return {**batch, "text": batch["prompt"]}


def job(worker, workers, args):
    """Runs a job. Returns texts by row, and for each worker its batches `[began, ended, processor, rows]`."""
    rows = [{"id": i, "prompt": STARTS[i % len(STARTS)]} for i in range(args.batches * args.batch_size)]
    data = ray.data.from_items(rows, override_num_blocks=args.batches)
    folder = tempfile.mkdtemp()
    original, millrace_ray.BatchWorker = millrace_ray.BatchWorker, worker
    try:
        done = millrace_ray.generate(
            data,
            args.model,
            workers=workers,
            threads=1,
            batch_size=args.batch_size,
            context=args.tokens + 64,
            options={"temperature": 0.0, "max_tokens": args.tokens},
            folder=folder,
        ).take_all()
    finally:
        millrace_ray.BatchWorker = original
    logs = [[json.loads(line) for line in log.read_text().splitlines()] for log in Path(folder).iterdir()]
    return {row["id"]: row["text"] for row in done}, [log for log in logs if log]


def rows_a_second(logs):
    """Rows a second of all workers together, from the start of the first batch to the end of the last."""
    batches = [batch for log in logs for batch in log]
    return sum(batch[3] for batch in batches) / (max(b[1] for b in batches) - min(b[0] for b in batches))


def processor_s_a_row(logs):
    batches = [batch for log in logs for batch in log]
    return sum(batch[2] for batch in batches) / sum(batch[3] for batch in batches)


def simulate(workers, batch_s, driver_s, n_batches, seed=1):
    """Seconds of a job. The driver takes `driver_s` per batch, and gives it to the worker that has been free longest."""
    draws = random.Random(seed)
    free = [0.0] * workers
    driver = ended = 0.0
    for _ in range(n_batches):
        # The driver prepares batches ahead, one after the other. A worker starts when it is free and its batch is ready.
        driver += driver_s
        begins = max(driver, heapq.heappop(free))
        ends = begins + draws.choice(batch_s)
        heapq.heappush(free, ends)
        ended = max(ended, ends)
    return ended


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--long-batch-s", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    # By default, Ray runs workers at a lower priority than all other programs.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False

    texts, logs = {}, {}
    for workers in (1, 2):
        texts[workers], logs[workers] = job(TimedWorker, workers, args)
    _, idle = job(IdleWorker, 2, args)
    ray.shutdown()

    rate = {workers: rows_a_second(logs[workers]) for workers in (1, 2)}
    cpu_s = {workers: processor_s_a_row(logs[workers]) for workers in (1, 2)}
    batch_s = [processor_s for log in logs[1] for _, _, processor_s, _ in log]
    driver_s = args.batch_size / rows_a_second(idle)
    print(f"measured   1 worker   {rate[1]:8.1f} rows/s   {1e3 * cpu_s[1]:6.2f} ms of a processor a row")
    print(f"measured   2 workers  {rate[2]:8.1f} rows/s   {1e3 * cpu_s[2]:6.2f} ms of a processor a row   {rate[2] / rate[1]:.2f} times")
    print(f"on two cores of their own, by processor time: {2 * cpu_s[1] / cpu_s[2]:.2f} times at most")
    print(f"a batch takes a worker {1e3 * statistics.median(batch_s):.1f} ms of a processor (median), the driver {1e3 * driver_s:.2f} ms")
    alone = simulate(1, batch_s, driver_s, args.batches)
    both = simulate(2, batch_s, driver_s, args.batches)
    print(f"simulated  2 workers, this job: {alone / both:.2f} times")
    longer = args.long_batch_s / statistics.median(batch_s)
    simulated = {}
    for workers in (1, 2, 4, 8, 16, 32, 64):
        n_batches = BATCHES_A_WORKER * workers
        for name, times in (("measured", batch_s), ("long", [longer * s for s in batch_s])):
            seconds = simulate(workers, times, driver_s, n_batches)
            simulated[name, workers] = n_batches * args.batch_size / seconds
        short, long = (simulated[name, workers] / simulated[name, 1] for name in ("measured", "long"))
        print(f"simulated  {workers:2} workers  {short:6.2f} times   with batches of {args.long_batch_s:g} s {long:6.2f} times")
    if args.json:
        rows = [{"batches": name, "workers": workers, "rows_per_s": value} for (name, workers), value in simulated.items()]
        fields = {"rows_per_s": rate, "processor_s_per_row": cpu_s, "driver_s_per_batch": driver_s, "simulated": rows}
        args.json.write_text(json.dumps(fields, indent=2) + "\n")

    n_rows = args.batches * args.batch_size
    if any(sorted(texts[workers]) != list(range(n_rows)) for workers in texts):
        raise SystemExit("rows are missing or twice")
    if texts[1] != texts[2]:
        raise SystemExit("two workers wrote another text than one")
    print(f"all {n_rows} rows once, with the same text by one worker and by two")


if __name__ == "__main__":
    main()
