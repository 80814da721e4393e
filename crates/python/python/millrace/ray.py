"""Millrace on many machines by Ray: batch inference with Ray Data, and a deployment of Ray Serve.

    import ray
    from millrace.ray import generate

    rows = ray.data.read_parquet("prompts")                     # a column `prompt`
    done = generate(rows, "model.gguf", workers=4, threads=8, options={"temperature": 0.0, "max_tokens": 200})
    done.write_parquet("answers")                               # columns `text`, `finish_reason`, `n_tokens` beside it

It needs `ray[data]`, and `ray[serve]` for `deployment`. Each worker is a process with a model of its own, on cores that no other
worker of the machine has. Ray starts a worker that died again, and gives it the rows that had no result.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Dict, List, Optional

import ray

from ._errors import Error, InvalidValueError
from ._native import Model


class _Cores:
    """Cores of this machine that no other worker has, as long as this process lives."""

    def __init__(self, n: int) -> None:
        folder = Path(tempfile.gettempdir()) / f"millrace-cores-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.held: Dict[int, IO[bytes]] = {}
        for core in sorted(os.sched_getaffinity(0)):
            if len(self.held) == n:
                break
            file = open(folder / str(core), "ab")
            try:
                # The system drops it with the process, however that ends.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self.held[core] = file
        if len(self.held) < n:
            for file in self.held.values():
                file.close()
            self.held = {}

    def pin(self) -> None:
        """Keeps this process and its threads on these cores. Without enough free ones it runs where the system puts it."""
        if self.held:
            os.sched_setaffinity(0, self.held)


class BatchWorker:
    """A worker of `Dataset.map_batches`: rows in, the same rows out with `text`, `finish_reason` and `n_tokens`.

    `column` holds texts to continue, or lists of messages. The rows of a batch are computed together; what prompts have in common is
    computed once.
    """

    def __init__(
        self,
        model: str,
        *,
        column: str = "prompt",
        threads: Optional[int] = None,
        options: Optional[Dict[str, Any]] = None,
        **arguments: Any,
    ) -> None:
        self.column = column
        self.options = dict(options or {})
        self.cores = None
        if threads is not None:
            self.cores = _Cores(threads)
            self.cores.pin()
        self.model = Model(model, threads=threads, **arguments)

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        if self.column not in batch:
            raise InvalidValueError(
                f"the rows have no column `{self.column}`, but {', '.join(batch)}", "name it by `column`"
            )
        prompts = [_prompt(value) for value in batch[self.column]]
        done = self.model.complete(prompts, **self.options) if prompts else []
        return {
            **batch,
            "text": [one.text for one in done],
            "finish_reason": [one.finish_reason for one in done],
            "n_tokens": [len(one.tokens) for one in done],
        }


def _prompt(value: Any) -> Any:
    """A cell as a prompt: Arrow gives arrays for lists."""
    return value if isinstance(value, str) else [dict(message) for message in value]


def generate(
    dataset: "ray.data.Dataset",
    model: str,
    *,
    workers: int,
    threads: int,
    column: str = "prompt",
    batch_size: int = 16,
    options: Optional[Dict[str, Any]] = None,
    **arguments: Any,
) -> "ray.data.Dataset":
    """A dataset with a text for each row, by `workers` processes of `threads` threads each.

    A row's text is the same whatever worker writes it, if `options` have a seed or a temperature of 0.
    """
    arguments.setdefault("sequences", batch_size)
    return dataset.map_batches(
        BatchWorker,
        fn_constructor_args=(model,),
        fn_constructor_kwargs={"column": column, "threads": threads, "options": options, **arguments},
        batch_size=batch_size,
        num_cpus=threads,
        compute=ray.data.ActorPoolStrategy(size=workers),
    )


def _program() -> str:
    beside = Path(sys.executable).parent / "millrace"
    found = str(beside) if beside.exists() else shutil.which("millrace")
    if found is None:
        raise Error("the program `millrace` is not there", "install the wheel, which brings it")
    return found


class Server:
    """`millrace serve` as a process of its own, on a free port of this machine; the replica of a deployment."""

    def __init__(self, model: str, arguments: Optional[List[str]] = None, start_s: float = 600.0) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        command = [_program(), "serve", model, "--host", "127.0.0.1", "--port", str(port), *(arguments or [])]
        # It ends with the replica, however that ends.
        self.process = subprocess.Popen(command, preexec_fn=_end_with_parent)
        self._session: Any = None
        self._wait(start_s)

    def _wait(self, start_s: float) -> None:
        from urllib.error import URLError
        from urllib.request import urlopen

        ends = time.monotonic() + start_s
        while True:
            try:
                with urlopen(f"{self.address}/ready", timeout=5):
                    return
            except (URLError, OSError):
                self.check_health()
                if time.monotonic() > ends:
                    raise Error(f"`millrace serve` was not ready in {start_s:.0f} s") from None
                time.sleep(0.1)

    def check_health(self) -> None:
        """Ray Serve replaces a replica whose server ended."""
        code = self.process.poll()
        if code is not None:
            raise Error(f"`millrace serve` ended with code {code}")

    async def __call__(self, request: Any) -> Any:
        """Hands a request to the server, and its answer back as it comes."""
        import aiohttp
        from starlette.responses import StreamingResponse

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        url = self.address + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        # What belongs to one connection is not the next one's.
        drop = {"host", "connection", "content-length", "transfer-encoding", "origin"}
        headers = {name: value for name, value in request.headers.items() if name.lower() not in drop}
        body = await request.body()
        answer = await self._session.request(request.method, url, headers=headers, data=body)

        async def pieces() -> Any:
            async with answer:
                async for piece in answer.content.iter_any():
                    yield piece

        kept = {k: v for k, v in answer.headers.items() if k.lower() not in drop | {"content-encoding"}}
        return StreamingResponse(pieces(), status_code=answer.status, headers=kept)

    def __del__(self) -> None:
        process = getattr(self, "process", None)
        if process is not None and process.poll() is None:
            process.terminate()


def _end_with_parent() -> None:
    """In the child: Linux ends it when the thread that started it is gone."""
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def deployment(model: str, *, replicas: int = 1, threads: int, arguments: Optional[List[str]] = None) -> Any:
    """An application for `ray.serve.run`: replicas of `millrace serve`, with the APIs of OpenAI, Anthropic and Ollama."""
    from ray import serve

    replica = serve.deployment(
        name="millrace", num_replicas=replicas, ray_actor_options={"num_cpus": threads}
    )(Server)
    return replica.bind(model, ["--threads", str(threads), *(arguments or [])])
