"""Millrace on many machines by Ray: batch inference with Ray Data, and a deployment of Ray Serve.

    import ray
    from millrace.ray import generate

    rows = ray.data.read_parquet("prompts")                     # a column `prompt`
    done = generate(rows, "model.gguf", workers=4, threads=8, options={"temperature": 0.0, "max_tokens": 200})
    done.write_parquet("answers")                               # columns `text`, `finish_reason`, `n_tokens`, `error` beside it

It needs `ray[data]`, and `ray[serve]` for `deployment`. Each worker is a process with a model of its own, on cores that no other
worker of the machine has. Ray starts a worker that died again, and gives it the rows that had no result. A row that cannot be done
says why in `error`, and ends no job.
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
            self.release()

    def release(self) -> None:
        """Lets others have them."""
        for file in self.held.values():
            file.close()
        self.held = {}

    def pin(self) -> None:
        """Keeps this process and its threads on these cores. Without enough free ones it runs where the system puts it."""
        if self.held:
            os.sched_setaffinity(0, self.held)


class BatchWorker:
    """A worker of `Dataset.map_batches`: rows in, the same rows out with `text`, `finish_reason`, `n_tokens` and `error`.

    `column` holds texts to continue, or lists of messages. The rows of a batch are computed together; what prompts have in common is
    computed once, in pages of 64 tokens. A row that cannot be done (a prompt longer than the context, a cell that is no prompt) has no
    text, the `finish_reason` `error`, and what is wrong in `error`, which is empty for all others.
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


# Empty texts stand where others have null: a block in which a column is null throughout would have another type than the rest.
_COLUMNS = ("text", "finish_reason", "n_tokens", "error")


def _row(done: Union[Completion, Exception]) -> Dict[str, Any]:
    if isinstance(done, Exception):
        return {"text": "", "finish_reason": "error", "n_tokens": 0, "error": str(done) or type(done).__name__}
    return {"text": done.text, "finish_reason": done.finish_reason, "n_tokens": len(done.tokens), "error": ""}


def _prompt(value: Any) -> Any:
    """A cell as a prompt: Arrow gives arrays for lists. What is no prompt stays, and is refused as what it is."""
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
    """`millrace serve` as a process of its own, on a free port of this machine; the replica of a deployment.

    With `threads` the process has as many cores that no other worker or replica of the machine has, if there are so many.
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

        # It ends with the replica, however that ends.
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
    """An application for `ray.serve.run`: replicas of `millrace serve`, with the APIs of OpenAI, Anthropic and Ollama.

    Each replica's server has `threads` cores of its own. One that ended is noticed within some seconds, and its replica replaced.
    """
    from ray import serve

    replica = serve.deployment(
        name="millrace",
        num_replicas=replicas,
        ray_actor_options={"num_cpus": threads},
        health_check_period_s=3,
    )(Server)
    return replica.bind(model, arguments, threads=threads)
