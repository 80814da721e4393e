"""`Llama` with the common calls of llama-cpp-python's class of that name.

    from millrace.llama_cpp import Llama      # in place of: from llama_cpp import Llama

Arguments, defaults and the shapes of results are those of llama-cpp-python. What it has and Millrace has not is refused by name,
never left aside: only what changes no text (`n_gpu_layers`, `verbose`, `use_mmap` and their like) is taken and ignored.
"""

import time
import uuid
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from ._errors import InvalidValueError
from ._native import Completion, Model, Stream

# What changes where and how fast something is computed in llama.cpp, and no text.
_IGNORED = frozenset(
    "n_gpu_layers split_mode main_gpu tensor_split use_mmap use_mlock n_batch n_ubatch n_threads_batch flash_attn "
    "offload_kqv op_offload swa_full numa verbose embedding logits_all last_n_tokens_size spm_infill "
    "no_perf kv_unified chat_handler_verbose".split()
)

_FINISH = {
    "stop": "stop",
    "stop_text": "stop",
    "cancelled": "stop",
    "length": "length",
    "context_full": "length",
}


def _refuse(call: str, given: Dict[str, Any]) -> None:
    """Refuses what was given of arguments that Millrace does not have."""
    for name, value in given.items():
        if value is None or value is False or (name in _IGNORED and call == "Llama"):
            continue
        raise InvalidValueError(
            f"`{call}` has no `{name}` here", "leave it out, or use `millrace serve`"
        )


def _stop(stop: Optional[Union[str, Sequence[str]]]) -> List[str]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else list(stop)


def _text(text: Union[str, bytes]) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


class Llama:
    """A model, as llama-cpp-python has one."""

    def __init__(
        self,
        model_path: str,
        *,
        n_ctx: int = 512,
        n_threads: Optional[int] = None,
        seed: Optional[int] = None,
        n_seq_max: Optional[int] = None,
        vocab_only: bool = False,
        **others: Any,
    ) -> None:
        if vocab_only:
            raise InvalidValueError("`vocab_only` models are not opened", "leave it out")
        _refuse("Llama", others)
        self.model_path = model_path
        # 0xFFFFFFFF is llama.cpp's word for a new seed each time.
        self._seed = None if seed in (None, -1, 0xFFFFFFFF) else seed
        self._model = Model(
            model_path,
            # 0 is llama.cpp's word for what the model was trained for.
            context=n_ctx or None,
            threads=n_threads or None,
            sequences=n_seq_max,
        )

    @classmethod
    def from_pretrained(
        cls, repo_id: str, filename: Optional[str] = None, **arguments: Any
    ) -> "Llama":
        """Opens a model of the Hugging Face Hub. `filename` is a file's name, or a pattern such as `*Q4_K_M.gguf`."""
        pick = filename
        if filename is not None and any(c in filename for c in "*?["):
            pick = filename.strip("*").removesuffix(".gguf").strip("*-._")
            if any(c in pick for c in "*?["):
                raise InvalidValueError(
                    f"`{filename}` is no pattern that the hub's names are found by",
                    "give a file's name, or `*QUANT.gguf`",
                )
        reference = f"hf:{repo_id}" if not pick else f"hf:{repo_id}:{pick}"
        return cls(reference, **arguments)

    # --- Text ---

    def __call__(self, prompt: Union[str, List[int]], **arguments: Any) -> Any:
        """As `create_completion`."""
        return self.create_completion(prompt, **arguments)

    def create_completion(
        self,
        prompt: Union[str, List[int]],
        suffix: Optional[str] = None,
        max_tokens: Optional[int] = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: Optional[int] = None,
        echo: bool = False,
        stop: Optional[Union[str, Sequence[str]]] = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: Optional[int] = None,
        model: Optional[str] = None,
        logit_bias: Optional[Dict[int, float]] = None,
        **others: Any,
    ) -> Union[Dict[str, Any], Iterator[Dict[str, Any]]]:
        """Text after a prompt, in the shape of OpenAI's completions."""
        _refuse("create_completion", {"suffix": suffix, "logprobs": logprobs, **others})
        options = self._options(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            stop=_stop(stop),
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repetition_penalty=repeat_penalty,
            top_k=top_k,
            seed=seed,
            logit_bias=logit_bias,
        )
        if not isinstance(prompt, str):
            prompt = list(prompt)
        echoed = ""
        if echo:
            echoed = prompt if isinstance(prompt, str) else self._model.detokenize(prompt)
        head = self._head("cmpl", "text_completion", model)
        if stream:
            return self._completion_chunks(head, echoed, self._model.generate(prompt, stream=True, **options))
        done = self._model.complete(prompt, **options)
        choice = {
            "text": echoed + done.text,
            "index": 0,
            "logprobs": None,
            "finish_reason": _FINISH[done.finish_reason],
        }
        return {**head, "choices": [choice], "usage": _usage(done)}

    def create_chat_completion(
        self,
        messages: List[Dict[str, Any]],
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: Optional[Union[str, Sequence[str]]] = (),
        seed: Optional[int] = None,
        max_tokens: Optional[int] = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        model: Optional[str] = None,
        logit_bias: Optional[Dict[int, float]] = None,
        response_format: Optional[Dict[str, Any]] = None,
        **others: Any,
    ) -> Union[Dict[str, Any], Iterator[Dict[str, Any]]]:
        """The answer to messages, in the shape of OpenAI's chat completions."""
        if response_format is not None and response_format.get("type") != "text":
            others["response_format"] = response_format
        _refuse("create_chat_completion", others)
        options = self._options(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            stop=_stop(stop),
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repetition_penalty=repeat_penalty,
            top_k=top_k,
            seed=seed,
            logit_bias=logit_bias,
        )
        if stream:
            head = self._head("chatcmpl", "chat.completion.chunk", model)
            return self._chat_chunks(head, self._model.chat(messages, stream=True, **options))
        done = self._model.complete(messages, **options)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": done.text},
            "logprobs": None,
            "finish_reason": _FINISH[done.finish_reason],
        }
        head = self._head("chatcmpl", "chat.completion", model)
        return {**head, "choices": [choice], "usage": _usage(done)}

    # --- Tokens and embeddings ---

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        """The tokens of a text."""
        return self._model.tokenize(_text(text), add_special=add_bos, parse_special=special)

    def detokenize(
        self,
        tokens: List[int],
        prev_tokens: Optional[List[int]] = None,
        special: bool = False,
    ) -> bytes:
        """The text of tokens; behind `prev_tokens`, whose own text is left out."""
        if not prev_tokens:
            return self._model.detokenize(tokens, show_special=special).encode()
        before = self._model.detokenize(prev_tokens, show_special=special)
        both = self._model.detokenize(list(prev_tokens) + list(tokens), show_special=special)
        return both[len(before) :].encode()

    def embed(
        self,
        input: Union[str, List[str]],
        normalize: bool = True,
        truncate: bool = False,
        return_count: bool = False,
    ) -> Any:
        """Embeddings of length 1. `normalize=False` and `truncate=True` are refused: Millrace has neither."""
        _refuse("embed", {"normalize=False": not normalize, "truncate": truncate})
        embeddings = self._model.embed(input)
        if not return_count:
            return embeddings
        texts = [input] if isinstance(input, str) else input
        return embeddings, sum(len(self._model.tokenize(text)) for text in texts)

    def create_embedding(
        self, input: Union[str, List[str]], model: Optional[str] = None
    ) -> Dict[str, Any]:
        """Embeddings in the shape of OpenAI's."""
        texts = [input] if isinstance(input, str) else list(input)
        embeddings, n_tokens = self.embed(texts, return_count=True)
        data = [
            {"object": "embedding", "embedding": embedding, "index": index}
            for index, embedding in enumerate(embeddings)
        ]
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    def n_ctx(self) -> int:
        """Tokens of context."""
        return self._model.n_ctx

    def n_embd(self) -> int:
        """Elements of an embedding."""
        return self._model.d_model

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self._model.vocab_size

    def token_bos(self) -> int:
        """The token that begins a text; -1 for a model without one."""
        token = self._model.bos_token
        return -1 if token is None else token

    def token_eos(self) -> int:
        """The token that ends a text; -1 for a model without one."""
        token = self._model.eos_token
        return -1 if token is None else token

    def set_seed(self, seed: int) -> None:
        """The seed of calls that bring none."""
        self._seed = seed

    def reset(self) -> None:
        """Nothing: calls share no state that a text could depend on. What the cache keeps changes no bit."""

    def close(self) -> None:
        """Gives memory back."""
        self._model.close()

    # --- Within ---

    def _options(self, max_tokens: Optional[int], seed: Optional[int], **options: Any) -> Dict[str, Any]:
        # None, and whatever is not positive, is all that the context holds.
        if max_tokens is not None and max_tokens > 0:
            options["max_tokens"] = max_tokens
        # Whatever is not positive is all tokens.
        options["top_k"] = max(options["top_k"], 0)
        options["seed"] = self._seed if seed is None else seed
        return options

    def _head(self, prefix: str, kind: str, model: Optional[str]) -> Dict[str, Any]:
        return {
            "id": f"{prefix}-{uuid.uuid4()}",
            "object": kind,
            "created": int(time.time()),
            "model": model or self.model_path,
        }

    @staticmethod
    def _completion_chunks(
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

    @staticmethod
    def _chat_chunks(head: Dict[str, Any], stream: Stream) -> Iterator[Dict[str, Any]]:
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
    return _FINISH[done.finish_reason]


def _usage(done: Completion) -> Dict[str, int]:
    n_tokens = len(done.tokens)
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": n_tokens,
        "total_tokens": done.prompt_tokens + n_tokens,
    }
