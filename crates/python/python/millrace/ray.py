"""Millrace on many machines with Ray: batch inference with Ray Data, and a deployment for Ray Serve.

    import ray
    from millrace.ray import generate

    rows = ray.data.read_parquet("prompts")                     # a column `prompt`
    done = generate(rows, "model.gguf", workers=4, threads=8, options={"temperature": 0.0, "max_tokens": 200})
    done.write_parquet("answers")                               # adds `text`, `finish_reason`, `n_tokens`, `error`

It needs `ray[data]`, and `ray[serve]` for `deployment`. Each worker is a process with its own model, on cores that no other worker of
the machine has. Ray restarts a worker that died, and gives it the rows that had no result. A failed row has the reason in `error`, and
the job continues.
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
from typing import IO, Any, Dict, List, Optional, Union

import ray

from ._errors import Error, InvalidValueError
from ._native import Completion, Model


class _Cores:
    """Cores of this machine that are reserved for this worker as long as its process lives."""

    def __init__(self, n: int) -> None:
        folder = Path(tempfile.gettempdir()) / f"millrace-cores-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.held: Dict[int, IO[bytes]] = {}
        for core in sorted(os.sched_getaffinity(0)):
            if len(self.held) == n:
                break
            file = open(folder / str(core), "ab")
            try:
                # The system drops the lock when the process ends, for any reason.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self.held[core] = file
        if len(self.held) < n:
            self.release()

    def release(self) -> None:
        """Frees the cores for other workers."""
        for file in self.held.values():
            file.close()
        self.held = {}

    def pin(self) -> None:
        """Keeps this process and its threads on these cores. If too few were free, the system places the process."""
        if self.held:
            os.sched_setaffinity(0, self.held)


class BatchWorker:
    """Worker for `Dataset.map_batches`: it adds the columns `text`, `finish_reason`, `n_tokens` and `error` to the rows.

    `column` holds texts to continue, or lists of messages. The rows of a batch are computed together, and common beginnings of prompts
    once, in pages of 64 tokens. A row can fail: its prompt may be longer than the context, or its cell not a prompt. It then has no
    text, the `finish_reason` `error`, and the reason in `error`. For all other rows `error` is empty.
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
        done = self.model.complete(prompts, return_exceptions=True, **self.options) if prompts else []
        rows = [_row(one) for one in done]
        return {**batch, **{name: [row[name] for row in rows] for name in _COLUMNS}}


# Empty texts in place of null: in a block where a whole column is null, that column would have another type than in other blocks.
_COLUMNS = ("text", "finish_reason", "n_tokens", "error")


def _row(done: Union[Completion, Exception]) -> Dict[str, Any]:
    if isinstance(done, Exception):
        return {"text": "", "finish_reason": "error", "n_tokens": 0, "error": str(done) or type(done).__name__}
    return {"text": done.text, "finish_reason": done.finish_reason, "n_tokens": len(done.tokens), "error": ""}


def _prompt(value: Any) -> Any:
    """Converts a cell to a prompt: Arrow gives arrays for lists. Other values are returned as they are, and refused later."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    parts = [part.item() if hasattr(part, "item") else part for part in value]
    return [dict(part) if hasattr(part, "keys") else part for part in parts]


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
    """Returns the dataset with a text for each row, written by `workers` processes with `threads` threads each.

    If `options` have a seed or a temperature of 0, a row's text does not depend on the worker that writes it.
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
    """Replica of a deployment: a process of `millrace serve`, on a free port of this machine.

    With `threads`, the process gets that many cores that no other worker or replica of the machine has, if enough are free.
    """

    def __init__(
        self,
        model: str,
        arguments: Optional[List[str]] = None,
        start_s: float = 600.0,
        threads: Optional[int] = None,
    ) -> None:
        self.cores = None
        arguments = list(arguments or [])
        if threads is not None:
            self.cores = _Cores(threads)
            arguments = ["--threads", str(threads), *arguments]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        command = [_program(), "serve", model, "--host", "127.0.0.1", "--port", str(port), *arguments]

        def prepare() -> None:
            _end_with_parent()
            if self.cores is not None:
                self.cores.pin()

        # The server ends with the replica, for any reason.
        self.process = subprocess.Popen(command, preexec_fn=prepare)
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
        """Raises an error if the server ended; Ray Serve then replaces the replica."""
        code = self.process.poll()
        if code is not None:
            raise Error(f"`millrace serve` ended with code {code}")

    async def __call__(self, request: Any) -> Any:
        """Passes a request to the server, and streams its answer back."""
        import aiohttp
        from starlette.responses import StreamingResponse

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        url = self.address + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        # Headers that belong to one connection are not passed on.
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
    """Called in the child: has Linux end it when the thread that started it ends."""
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def deployment(model: str, *, replicas: int = 1, threads: int, arguments: Optional[List[str]] = None) -> Any:
    """Returns an application for `ray.serve.run`: replicas of `millrace serve`, with the APIs of OpenAI, Anthropic and Ollama.

    Each replica's server has its own `threads` cores. If a server ends, its replica is replaced within some seconds.
    """
    from ray import serve

    replica = serve.deployment(
        name="millrace",
        num_replicas=replicas,
        ray_actor_options={"num_cpus": threads},
        health_check_period_s=3,
    )(Server)
    return replica.bind(model, arguments, threads=threads)
