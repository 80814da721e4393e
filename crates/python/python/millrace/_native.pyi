import sys
from os import PathLike
from types import TracebackType
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypedDict,
    Union,
    overload,
)

if sys.version_info >= (3, 12):
    from typing import Unpack
else:
    from typing_extensions import Unpack

__version__: str

Message = Mapping[str, Any]
"""`role`, `content` (a text, or parts of type `text`), and whatever else the model's chat template looks at."""

Messages = Sequence[Message]
Prompt = Union[str, Sequence[int], Messages]
"""A text to continue, tokens, or messages to answer."""

Prompts = Union[List[str], List[List[int]], List[List[Message]]]
"""Prompts to compute together."""

Adapter = Union[str, PathLike[str], Tuple[Union[str, PathLike[str]], float]]
"""A path, or a path and a factor."""

FinishReason = Literal["stop", "stop_text", "length", "context_full", "cancelled"]

class ModelArguments(TypedDict, total=False):
    """How a model is opened. What is missing or None is as Millrace has it."""

    cancel: Optional[CancelToken]
    """Stops a download."""
    context: Optional[int]
    """Tokens of a sequence, prompt and answer together; what the model was trained for, at most 8,192."""
    device: Optional[str]
    """`cpu`, or an NPU of `devices()`."""
    draft: Optional[str]
    """What guesses tokens ahead: `ngram`, or a smaller model of the same vocabulary."""
    kv_type: Optional[str]
    """Format of cached keys and values on the CPU."""
    level: Optional[str]
    """Instruction set of the CPU, one of `levels()`; the best there is."""
    lora: Optional[Union[Adapter, Sequence[Adapter]]]
    """LoRA adapters: GGUF files or PEFT folders, each with a factor on what it adds if not 1."""
    mmproj: Optional[Union[str, PathLike[str]]]
    """The GGUF file with the model's vision encoder."""
    mode: Optional[str]
    """How an NPU's plans are made."""
    offline: Optional[bool]
    """Whether the network is left alone."""
    sequences: Optional[int]
    """Sequences alive at a time: streams, and prompts that are computed together; 4."""
    set: Optional[Sequence[str]]
    """Changes of an NPU's machine: `cols=4`."""
    threads: Optional[int]
    """Threads to compute with; one for each physical core."""

class Options(TypedDict, total=False):
    """How text is chosen and when it ends. What is missing or None is as the model's files say."""

    cancel: Optional[CancelToken]
    frequency_penalty: Optional[float]
    ignore_end: Optional[bool]
    images: Optional[Sequence[Union[str, PathLike[str], bytes]]]
    """Files, or their bytes: PNG, JPEG or WebP."""
    logit_bias: Optional[Dict[int, float]]
    max_tokens: Optional[int]
    min_p: Optional[float]
    mirostat: Optional[Tuple[float, float]]
    """Mirostat 2 in place of other choices: the surprise to keep, and how fast its bound follows."""
    penalty_last_n: Optional[int]
    presence_penalty: Optional[float]
    repetition_penalty: Optional[float]
    seed: Optional[int]
    """Equal seeds give equal texts."""
    show_special: Optional[bool]
    stop: Optional[Union[str, Sequence[str]]]
    stop_tokens: Optional[Sequence[int]]
    temperature: Optional[float]
    """0 always takes the likeliest token."""
    top_k: Optional[int]
    top_p: Optional[float]
    typical_p: Optional[float]

class CancelToken:
    """Stops what it was given to, from any thread."""

    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    def reset(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

class Completion:
    """A finished text."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> List[int]: ...
    @property
    def finish_reason(self) -> FinishReason: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def timings(self) -> Dict[str, float]: ...

class Stream(Iterator[str]):
    """An iterator over pieces of text."""

    def __iter__(self) -> Stream: ...
    def __next__(self) -> str: ...
    def __enter__(self) -> Stream: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def completion(self) -> Optional[Completion]: ...

class Logits:
    """Logits of tokens, f32 `[n_tokens, vocab_size]`. `numpy.asarray` takes them without a copy."""

    @property
    def shape(self) -> Tuple[int, int]: ...
    @property
    def __array_interface__(self) -> Dict[str, Any]: ...
    def numpy(self) -> Any: ...
    def tolist(self) -> List[List[float]]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> List[float]: ...

class Model:
    """A model on a device: `demo`, a file, a folder, or `hf:OWNER/REPO[:QUANT]`. Any thread may use it."""

    def __init__(
        self, model: Union[str, PathLike[str]], **arguments: Unpack[ModelArguments]
    ) -> None: ...
    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream: ...
    @overload
    def generate(
        self,
        prompt: Prompts,
        *,
        stream: Literal[False] = False,
        **options: Unpack[Options],
    ) -> List[str]: ...
    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> str: ...
    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream: ...
    @overload
    def chat(
        self,
        messages: List[List[Message]],
        *,
        stream: Literal[False] = False,
        **options: Unpack[Options],
    ) -> List[str]: ...
    @overload
    def complete(
        self,
        prompt: Prompt,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[Options],
    ) -> Completion: ...
    @overload
    def complete(
        self,
        prompt: Prompts,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[Options],
    ) -> List[Completion]: ...
    @overload
    def complete(
        self,
        prompt: Sequence[Any],
        *,
        return_exceptions: Literal[True],
        **options: Unpack[Options],
    ) -> List[Union[Completion, Exception]]: ...
    @overload
    def embed(
        self,
        text: str,
        *,
        pooling: Optional[Literal["mean", "first", "last"]] = None,
        normalize: bool = True,
        truncate: bool = False,
    ) -> List[float]: ...
    @overload
    def embed(
        self,
        text: List[str],
        *,
        pooling: Optional[Literal["mean", "first", "last"]] = None,
        normalize: bool = True,
        truncate: bool = False,
    ) -> List[List[float]]: ...
    def logits(self, prompt: Prompt) -> Logits: ...
    def prompt_tokens(self, prompt: Prompt) -> List[int]: ...
    def logprobs(
        self, tokens: Sequence[int], *, first: int = 1, top: int = 0
    ) -> List[Tuple[float, List[Tuple[int, float]]]]: ...
    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> List[int]: ...
    def detokenize(self, tokens: Sequence[int], *, show_special: bool = False) -> str: ...
    def close(self) -> None: ...
    def __enter__(self) -> Model: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def max_sequences(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def trained_context(self) -> int: ...
    @property
    def rope_base(self) -> Optional[float]: ...
    @property
    def warnings(self) -> List[str]: ...
    @property
    def bos_token(self) -> Optional[int]: ...
    @property
    def eos_token(self) -> Optional[int]: ...

def devices() -> List[Tuple[str, str]]: ...
def levels() -> List[str]: ...
