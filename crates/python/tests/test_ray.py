"""`millrace.ray` with real Ray on this machine: two workers, of which one is killed in mid-job. Skipped where Ray is missing."""

import json
import os
import signal
import tempfile
import threading
import time
import unittest
import urllib.request
from importlib.util import find_spec
from pathlib import Path

N_ROWS = 240


def setUpModule():
    if find_spec("ray") is None:
        raise unittest.SkipTest("no ray")
    # Ray's proxy imports for longer than its 5 s on a machine that is busy.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "50")
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")


def tearDownModule():
    import ray

    ray.shutdown()


class Batches(unittest.TestCase):
    def test_a_killed_worker_costs_no_row(self):
        import ray

        from millrace.ray import BatchWorker, generate

        folder = Path(tempfile.mkdtemp())

        class Watched(BatchWorker):
            """Notes its process and each batch."""

            def __call__(self, batch):
                with open(folder / f"{os.getpid()}", "a") as log:
                    log.write(f"{len(batch['prompt'])}\n")
                time.sleep(0.05)
                return super().__call__(batch)

        starts = ["Once upon a time", "The dog", "Tom", "One day"]
        rows = [{"id": i, "prompt": starts[i % len(starts)]} for i in range(N_ROWS)]
        data = ray.data.from_items(rows, override_num_blocks=N_ROWS // 8)
        import millrace.ray as under_test

        original, under_test.BatchWorker = under_test.BatchWorker, Watched
        self.addCleanup(setattr, under_test, "BatchWorker", original)
        done = generate(
            data,
            "demo",
            workers=2,
            threads=1,
            batch_size=8,
            context=64,
            options={"temperature": 0.0, "max_tokens": 8},
        )
        killed = []

        def kill():
            ends = time.monotonic() + 120
            while time.monotonic() < ends:
                for log in sorted(folder.iterdir()):
                    if log.read_text().count("\n") >= 3:
                        os.kill(int(log.name), signal.SIGKILL)
                        killed.append(int(log.name))
                        return
                time.sleep(0.01)

        killer = threading.Thread(target=kill)
        killer.start()
        found = done.take_all()
        killer.join()
        self.assertEqual(len(killed), 1)
        # Two began, one was killed, one came in its place.
        self.assertGreaterEqual(len(list(folder.iterdir())), 3)
        self.assertEqual(sorted(row["id"] for row in found), list(range(N_ROWS)))
        texts = {row["prompt"]: row["text"] for row in found}
        self.assertTrue(all(row["text"] == texts[row["prompt"]] for row in found))
        self.assertEqual({row["n_tokens"] for row in found}, {8})

    def test_workers_have_cores_of_their_own(self):
        from millrace.ray import _Cores

        first, rest = _Cores(1), _Cores(1)
        self.assertFalse(set(first.held) & set(rest.held))

    def test_a_missing_column_is_named(self):
        from millrace import InvalidValueError
        from millrace.ray import BatchWorker

        worker = BatchWorker("demo", context=32, threads=1)
        with self.assertRaises(InvalidValueError) as caught:
            worker({"text": ["x"]})
        self.assertIn("prompt", str(caught.exception))


@unittest.skipIf(find_spec("starlette") is None, "no ray[serve]")
class Deployment(unittest.TestCase):
    def test_it_answers_as_openai(self):
        from ray import serve

        from millrace.ray import deployment

        serve.start(http_options={"host": "127.0.0.1", "port": 18231})
        self.addCleanup(serve.shutdown)
        serve.run(deployment("demo", replicas=1, threads=1), name="millrace", route_prefix="/")
        body = {"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]}

        def ask(extra):
            request = urllib.request.Request(
                "http://127.0.0.1:18231/v1/chat/completions",
                json.dumps({**body, **extra}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()

        answer = json.loads(ask({}))
        self.assertEqual(answer["choices"][0]["message"]["content"], "7 plus 5 is 12.")
        events = [line[6:] for line in ask({"stream": True}).splitlines() if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        deltas = (json.loads(event)["choices"] for event in events[:-1])
        text = "".join(choice[0]["delta"].get("content") or "" for choice in deltas if choice)
        self.assertEqual(text, "7 plus 5 is 12.")


if __name__ == "__main__":
    unittest.main()
