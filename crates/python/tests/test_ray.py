"""Tests of `millrace.ray` with real Ray on this machine, with one of two workers killed in mid-job. Skipped if Ray is missing."""

import json
import os
import signal
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import uuid
from importlib.util import find_spec
from pathlib import Path

N_ROWS = 240
RUN = uuid.uuid4().hex


def setUpModule():
    if find_spec("ray") is None:
        raise unittest.SkipTest("no ray")
    # On a busy machine, the imports of Ray's proxy take longer than its limit of 5 s.
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "50")
    # Ray starts its workers with the niceness 15. On a machine whose cores are busy, their imports alone then take minutes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    # Processes that Ray starts inherit this variable and are found by it.
    os.environ["MILLRACE_TEST_RUN"] = RUN
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
            """Worker that records its process and each batch."""

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
        # Two workers started, one was killed, one replaced it.
        self.assertGreaterEqual(len(list(folder.iterdir())), 3)
        self.assertEqual(sorted(row["id"] for row in found), list(range(N_ROWS)))
        texts = {row["prompt"]: row["text"] for row in found}
        self.assertTrue(all(row["text"] == texts[row["prompt"]] for row in found))
        self.assertEqual({row["n_tokens"] for row in found}, {8})

    def test_parquet_in_and_out_with_a_row_that_fails(self):
        import pyarrow
        import pyarrow.parquet as parquet
        import ray

        from millrace.ray import generate

        folder = Path(tempfile.mkdtemp())
        (folder / "in").mkdir()
        prompts = ["The dog", "b " * 300, "Tom", None, "One day", "A cat"]
        for part in range(2):
            cells = prompts[3 * part : 3 * part + 3]
            ids = range(3 * part, 3 * part + 3)
            table = pyarrow.table({"id": list(ids), "prompt": pyarrow.array(cells, pyarrow.string())})
            parquet.write_table(table, folder / "in" / f"{part}.parquet")
        done = generate(
            ray.data.read_parquet(str(folder / "in")),
            "demo",
            workers=1,
            threads=1,
            batch_size=2,
            context=64,
            options={"temperature": 0.0, "max_tokens": 4},
        )
        done.write_parquet(str(folder / "out"))
        rows = sorted(parquet.read_table(folder / "out").to_pylist(), key=lambda row: row["id"])
        self.assertEqual([row["prompt"] for row in rows], prompts)
        self.assertEqual([row["finish_reason"] == "error" for row in rows], [False, True, False, True, False, False])
        for row in rows:
            if row["finish_reason"] == "error":
                self.assertEqual((row["text"], row["n_tokens"]), ("", 0))
                self.assertTrue(row["error"])
            else:
                self.assertEqual((row["error"], row["n_tokens"]), ("", 4))
                self.assertTrue(row["text"])
        self.assertIn("context", rows[1]["error"])
        self.assertIn("NoneType", rows[3]["error"])

    def test_conversations_are_prompts_and_what_they_share_is_read_once(self):
        from millrace.ray import BatchWorker

        class Noted(BatchWorker):
            pass

        worker = Noted("demo", context=256, threads=1, sequences=8, options={"temperature": 0.0, "max_tokens": 8})
        done = []
        complete = worker.model.complete

        class Model:
            def complete(self, prompts, **options):
                done.extend(complete(prompts, **options))
                return done

        worker.model = Model()
        beginning = "Tom saw a dog and a cat in the park. " * 16
        question = [{"role": "user", "content": "What is 7 plus 5?"}]
        rows = worker({"prompt": [beginning + f"It was day {n}" for n in range(6)] + [question]})
        self.assertEqual(rows["text"][-1], "7 plus 5 is 12.")
        cached = [one.timings["cached_tokens"] for one in done[:-1]]
        self.assertEqual(cached[0], 0)
        self.assertTrue(all(n >= 128 for n in cached[1:]), cached)

    def test_cores_are_handed_out_once(self):
        from millrace.ray import _Cores

        all_cores = os.sched_getaffinity(0)
        before, tempfile.tempdir = tempfile.tempdir, tempfile.mkdtemp()
        self.addCleanup(setattr, tempfile, "tempdir", before)
        everything = _Cores(len(all_cores))
        self.assertEqual(set(everything.held), all_cores)
        self.assertEqual(set(_Cores(1).held), set())
        everything.release()
        first = _Cores(1)
        self.assertEqual(len(first.held), 1)
        if len(all_cores) > 1:
            second = _Cores(1)
            self.assertEqual(len(second.held), 1)
            self.assertFalse(set(first.held) & set(second.held))

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_workers_compute_on_cores_of_their_own(self):
        import ray

        from millrace.ray import BatchWorker

        class Placed(BatchWorker):
            def cores(self):
                """Cores that the model's threads may run on: the threads that started after the process was pinned."""
                self({"prompt": ["Tom"]})
                return sorted(os.sched_getaffinity(0))

        actor = ray.remote(num_cpus=1)(Placed)
        workers = [actor.remote("demo", context=32, threads=1, options={"max_tokens": 1}) for _ in range(2)]
        first, second = ray.get([worker.cores.remote() for worker in workers])
        for worker in workers:
            ray.kill(worker)
        self.assertEqual((len(first), len(second)), (1, 1))
        self.assertNotEqual(first, second)

    def test_a_missing_column_is_named(self):
        from millrace import InvalidValueError
        from millrace.ray import BatchWorker

        worker = BatchWorker("demo", context=32, threads=1)
        with self.assertRaises(InvalidValueError) as caught:
            worker({"text": ["x"]})
        self.assertIn("prompt", str(caught.exception))


@unittest.skipIf(find_spec("starlette") is None, "no ray[serve]")
class Deployment(unittest.TestCase):
    def setUp(self):
        from ray import serve

        serve.start(http_options={"host": "127.0.0.1", "port": 18231})
        self.addCleanup(serve.shutdown)

    def deploy(self, replicas):
        from ray import serve

        from millrace.ray import deployment

        serve.run(deployment("demo", replicas=replicas, threads=1), name="millrace", route_prefix="/")

    def ask(self, **extra):
        body = {"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}], **extra}
        request = urllib.request.Request(
            "http://127.0.0.1:18231/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def servers(self):
        """Processes of `millrace serve` that this run started."""
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                is_ours = f"MILLRACE_TEST_RUN={RUN}".encode() in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if is_ours and b"serve" in command and command[0].endswith(b"millrace"):
                found.add(int(entry.name))
        return found

    def test_it_answers_as_openai(self):
        self.deploy(1)
        answer = json.loads(self.ask())
        self.assertEqual(answer["choices"][0]["message"]["content"], "7 plus 5 is 12.")
        events = [line[6:] for line in self.ask(stream=True).splitlines() if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        deltas = (json.loads(event)["choices"] for event in events[:-1])
        text = "".join(choice[0]["delta"].get("content") or "" for choice in deltas if choice)
        self.assertEqual(text, "7 plus 5 is 12.")

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one core")
    def test_replicas_have_cores_of_their_own_and_one_is_replaced(self):
        self.deploy(2)
        first = self.servers()
        self.assertEqual(len(first), 2)
        cores = [frozenset(os.sched_getaffinity(pid)) for pid in first]
        self.assertEqual([len(one) for one in cores], [1, 1])
        self.assertEqual(len(set(cores)), 2, "both on one core")
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            now = self.servers() - {killed}
            if len(now) == 2:
                break
            time.sleep(0.5)
        self.assertEqual(len(now), 2, "no other server came in place of the one that ended")
        # The new replica may still be loading.
        while time.monotonic() < ends:
            try:
                answers = {json.loads(self.ask())["choices"][0]["message"]["content"] for _ in range(8)}
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.5)
        self.assertEqual(answers, {"7 plus 5 is 12."})


if __name__ == "__main__":
    unittest.main()
