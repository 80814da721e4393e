"""Results in the shapes of OpenAI's completions and chat completions, as llama-cpp-python returns them."""

import time
import uuid
from codecs import getincrementaldecoder
from typing import Any, Dict, Iterator, List, Optional

from ._native import Completion, Model, Stream

_REASONS = {
    "stop": "stop",
    "stop_text": "stop",
    "cancelled": "stop",
    "length": "length",
    "context_full": "length",
}


def finish_reason(done: Completion) -> str:
    """OpenAI's name for the reason why a text ended."""
    return _REASONS[done.finish_reason]


def head(prefix: str, kind: str, model: str) -> Dict[str, Any]:
    """Common first fields of every answer and chunk."""
    return {
        "id": f"{prefix}-{uuid.uuid4()}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def completion_chunks(
    head: Dict[str, Any], echoed: str, stream: Stream
) -> Iterator[Dict[str, Any]]:
    def chunk(text: str, finish: Optional[str]) -> Dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice]}

    with stream:
        if echoed:
            yield chunk(echoed, None)
        for piece in stream:
            yield chunk(piece, None)
        yield chunk("", _ended(stream))


def chat_chunks(head: Dict[str, Any], stream: Stream) -> Iterator[Dict[str, Any]]:
    def chunk(delta: Dict[str, str], finish: Optional[str]) -> Dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice]}

    with stream:
        yield chunk({"role": "assistant"}, None)
        for piece in stream:
            yield chunk({"content": piece}, None)
        yield chunk({}, _ended(stream))


def _ended(stream: Stream) -> str:
    done = stream.completion
    assert done is not None, "a stream that ended has its text"
    return finish_reason(done)


def logprobs(
    model: Model, prompt: Any, done: Completion, n_top: int, echo: bool = False
) -> Dict[str, Any]:
    """Log-probabilities of a text's tokens, in the shape of OpenAI's completions. With `echo`, those of the prompt come first.
    Prompt and text are computed once more."""
    before = model.prompt_tokens(prompt)
    tokens = before + list(done.tokens)
    start = len(before)
    if echo:
        start = 1 if before[0] == model.bos_token else 0
    # The first token has no log-probability.
    rows: List[Any] = [None] if start == 0 else []
    rows += model.logprobs(tokens, first=max(start, 1), top=n_top)
    if echo:
        rows[0] = None
    offset = 0 if echo or not isinstance(prompt, str) else len(prompt)
    # An offset counts whole characters, whose bytes may come in several tokens.
    characters = getincrementaldecoder("utf-8")(errors="ignore")
    listed: Dict[str, List[Any]] = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
    for at, row in enumerate(rows, start):
        text = _token_text(model, tokens[at])
        listed["tokens"].append(text)
        listed["text_offset"].append(offset)
        offset += len(characters.decode(model.token_bytes([tokens[at]])))
        if row is None:
            listed["token_logprobs"].append(None)
            listed["top_logprobs"].append(None)
            continue
        logprob, top = row
        likeliest = {_token_text(model, token): value for token, value in top}
        likeliest[text] = logprob
        listed["token_logprobs"].append(logprob)
        listed["top_logprobs"].append(likeliest)
    return listed


def _token_text(model: Model, token: int) -> str:
    """A token as it continues a text. Bytes of a character that it only begins or ends are left out, as in llama-cpp-python."""
    return model.token_bytes([token]).decode(errors="ignore")


def chat_logprobs(listed: Dict[str, List[Any]]) -> Dict[str, Any]:
    """Log-probabilities of a completion, in the shape of OpenAI's chat completions."""
    content = [
        {
            "token": token,
            "bytes": None,
            "logprob": logprob,
            "top_logprobs": [
                {"token": other, "logprob": value, "bytes": None} for other, value in likeliest.items()
            ],
        }
        for token, logprob, likeliest in zip(listed["tokens"], listed["token_logprobs"], listed["top_logprobs"])
    ]
    return {"content": content, "refusal": None}


def usage(done: Completion) -> Dict[str, int]:
    n_tokens = len(done.tokens)
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": n_tokens,
        "total_tokens": done.prompt_tokens + n_tokens,
    }
