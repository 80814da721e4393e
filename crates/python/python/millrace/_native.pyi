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
"""One message: `role`, `content` (a text, or parts of type `text`), and any other keys that the model's chat template reads."""

Messages = Sequence[Message]
"""A conversation, oldest message first."""

Prompt = Union[str, Sequence[int], Messages]
"""A text to continue, tokens to continue, or messages to answer."""

Prompts = Union[List[str], List[List[int]], List[List[Message]]]
"""A list of prompts, which are computed together."""

Adapter = Union[str, PathLike[str], Tuple[Union[str, PathLike[str]], float]]
"""A LoRA adapter: a path, or a path and a scale factor."""

FinishReason = Literal["stop", "stop_text", "length", "context_full", "cancelled"]
"""Reason why a text ended: the end token, a text of `stop`, `max_tokens`, a full context, or a `CancelToken`."""

class ModelArguments(TypedDict, total=False):
    """Keyword arguments of `Model`. A missing argument or None means the default."""

    cancel: Optional[CancelToken]
    """Token that stops a download from another thread."""
    context: Optional[int]
    """Tokens of a sequence, prompt and answer together. Default: the trained context, at most 8,192."""
    device: Optional[str]
    """Device to run on: a name of `devices()`. Default: `cpu`."""
    draft: Optional[str]
    """Source of draft tokens: `ngram` (repetitions in the text), `mtp` (the model's own layer), the model's assistant, or a
    small model of the same vocabulary."""
    kv_type: Optional[str]
    """Format of cached keys and values on the CPU, such as `f16`, `q8_0`."""
    level: Optional[str]
    """Instruction set of the CPU, one of `levels()`. Default: the best."""
    lora: Optional[Union[Adapter, Sequence[Adapter]]]
    """LoRA adapters: GGUF files or PEFT folders, each with its scale factor if that is not 1."""
    mmproj: Optional[Union[str, PathLike[str]]]
    """GGUF file with the model's vision encoder. Default: the mmproj file beside the model's own."""
    mode: Optional[str]
    """Mode of an NPU's planner, such as `fast`; `millrace devices -v` lists them."""
    offline: Optional[bool]
    """Whether to stay off the network. Models of the hub must then be in the cache."""
    sequences: Optional[int]
    """Maximum number of sequences alive at a time: streams, and prompts computed together. Default: 4."""
    set: Optional[Sequence[str]]
    """Changes to an NPU's machine, each as `name=value`: `cols=4`."""
    threads: Optional[int]
    """Number of compute threads. Default: one for each physical core."""

class Options(TypedDict, total=False):
    """Options of one call: how tokens are sampled, and when the text ends. A missing option or None means the recommendation
    of the model's files, or else the default named here."""

    cancel: Optional[CancelToken]
    """Token that stops the call from another thread. The call then returns the text so far."""
    frequency_penalty: Optional[float]
    """Subtracted from the logits of recent tokens for each occurrence. Default: 0."""
    ignore_end: Optional[bool]
    """Whether to continue past the model's end-of-text tokens. Default: False."""
    images: Optional[Sequence[Union[str, PathLike[str], bytes]]]
    """Images for one prompt: paths, or the bytes of files, in PNG, JPEG or WebP."""
    logit_bias: Optional[Dict[int, float]]
    """Added to the logits of these tokens; minus infinity bans a token."""
    max_tokens: Optional[int]
    """Maximum number of tokens to generate. Default: until the model ends the text or the context is full."""
    min_p: Optional[float]
    """Leaves out tokens less likely than this times the likeliest. Default: 0.05."""
    mirostat: Optional[Tuple[float, float]]
    """Mirostat 2, in place of the samplers that leave tokens out: the target surprise in bits, and the learning rate."""
    penalty_last_n: Optional[int]
    """Number of recent tokens that the penalties consider. Default: 64."""
    presence_penalty: Optional[float]
    """Subtracted from the logits of recent tokens, once each. Default: 0."""
    repetition_penalty: Optional[float]
    """Divides positive logits of recent tokens, and multiplies negative ones. Default: 1."""
    seed: Optional[int]
    """Seed of the sampler: equal seeds give equal texts. Default: a new seed for each call."""
    show_special: Optional[bool]
    """Whether control tokens show in the text, including the one that ends it. Default: False."""
    stop: Optional[Union[str, Sequence[str]]]
    """Texts that end the generation. The result ends before them."""
    stop_tokens: Optional[Sequence[int]]
    """Tokens that end the generation, in addition to the model's own."""
    temperature: Optional[float]
    """Higher values give more varied text; 0 always takes the likeliest token. Default: 0.8."""
    top_k: Optional[int]
    """Samples from this many of the likeliest tokens; 0 for all. Default: 40."""
    top_p: Optional[float]
    """Samples from the likeliest tokens that together have this probability. Default: 0.95."""
    typical_p: Optional[float]
    """Samples from tokens of typical surprise up to this probability; 1 is off. Default: 1."""

class CancelToken:
    """Stops work from any thread: pass it to a call as `cancel`, and call its method `cancel`."""

    def __init__(self) -> None: ...
    def cancel(self) -> None:
        """Stops the work that has this token, and all work that gets it before `reset`."""
    def reset(self) -> None:
        """Makes the token usable for new work."""
    @property
    def cancelled(self) -> bool:
        """Whether cancellation was requested."""

class Completion:
    """A finished text with its tokens, the reason why it ended, and timings."""

    @property
    def text(self) -> str:
        """The text, up to a stop text."""
    @property
    def tokens(self) -> List[int]:
        """Generated tokens, without the one that ended the text."""
    @property
    def finish_reason(self) -> FinishReason:
        """Reason why the text ended."""
    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of the prompt, including those from the cache."""
    @property
    def timings(self) -> Dict[str, float]:
        """Counts, and times in seconds: `cached_tokens`, `prefill_tokens`, `prefill_s`, `decode_tokens`, `decode_s`."""

class Stream(Iterator[str]):
    """Iterator over pieces of text. `close`, the end of a `with` block, or dropping it ends the generation."""

    def __iter__(self) -> Stream: ...
    def __next__(self) -> str: ...
    def __enter__(self) -> Stream: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...
    def close(self) -> None:
        """Ends the generation. The text so far stays in `completion`."""
    @property
    def completion(self) -> Optional[Completion]:
        """The whole text with its tokens and timings; None before the end."""

class Logits:
    """Logits after each token, f32 `[n_tokens, vocab_size]`. `numpy.asarray` takes them without a copy, and keeps them alive."""

    @property
    def shape(self) -> Tuple[int, int]:
        """`(n_tokens, vocab_size)`."""
    @property
    def __array_interface__(self) -> Dict[str, Any]:
        """numpy's array protocol, version 3, read-only."""
    def numpy(self) -> Any:
        """Read-only numpy array over the same memory."""
    def tolist(self) -> List[List[float]]:
        """All logits as a list of lists."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> List[float]:
        """Logits of one token as a list."""

class Model:
    """A model on a device. Any thread may use it; a process that was forked may not."""

    def __init__(
        self, model: Union[str, PathLike[str]], **arguments: Unpack[ModelArguments]
    ) -> None:
        """Opens a model: `demo` (built in), a GGUF file, a Hugging Face folder, or `hf:OWNER/REPO[:QUANT]` from the hub."""
    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> str:
        """Returns the text after a prompt."""
    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream:
        """Returns an iterator over the pieces of the text after a prompt."""
    @overload
    def generate(
        self,
        prompt: Prompts,
        *,
        stream: Literal[False] = False,
        **options: Unpack[Options],
    ) -> List[str]:
        """Returns one text for each prompt. Each is the same as alone, to the bit."""
    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> str:
        """Returns the answer to messages, which go through the model's chat template."""
    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream:
        """Returns an iterator over the pieces of the answer to messages, which go through the model's chat template."""
    @overload
    def chat(
        self,
        messages: List[List[Message]],
        *,
        stream: Literal[False] = False,
        **options: Unpack[Options],
    ) -> List[str]:
        """Returns one answer for each conversation."""
    @overload
    def complete(
        self,
        prompt: Prompt,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[Options],
    ) -> Completion:
        """Returns the text after a prompt or the answer to messages, with its tokens, timings and finish reason."""
    @overload
    def complete(
        self,
        prompt: Prompts,
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[Options],
    ) -> List[Completion]:
        """Returns one completion for each prompt."""
    @overload
    def complete(
        self,
        prompt: Sequence[Any],
        *,
        return_exceptions: Literal[True],
        **options: Unpack[Options],
    ) -> List[Union[Completion, Exception]]:
        """Returns one completion for each prompt. A prompt that fails has its exception in its place, as in `asyncio.gather`."""
    @overload
    def embed(
        self,
        text: str,
        *,
        pooling: Optional[Literal["mean", "first", "last"]] = None,
        normalize: bool = True,
        truncate: bool = False,
    ) -> List[float]:
        """Returns the embedding of a text, `d_model` numbers.

        pooling: how the token vectors become one; by default the model's files decide, or else `mean`.
        normalize: whether to scale the embedding to length 1.
        truncate: whether to cut a text that is longer than the context; otherwise it is an error.
        """
    @overload
    def embed(
        self,
        text: List[str],
        *,
        pooling: Optional[Literal["mean", "first", "last"]] = None,
        normalize: bool = True,
        truncate: bool = False,
    ) -> List[List[float]]:
        """Returns one embedding for each text. The arguments are those for a single text."""
    def logits(self, prompt: Prompt) -> Logits:
        """Returns the logits after every token of a prompt."""
    def prompt_tokens(self, prompt: Prompt) -> List[int]:
        """Returns the tokens of a prompt. Messages go through the model's chat template."""
    def logprobs(
        self, tokens: Sequence[int], *, first: int = 1, top: int = 0
    ) -> List[Tuple[float, List[Tuple[int, float]]]]:
        """Returns, for each token from `first` (at least 1), its log-probability after the tokens before it, and the `top`
        likeliest tokens at that position, each with its log-probability.

        All tokens are computed once more, with the same bits as in a generation.
        """
    def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> List[int]:
        """Returns the tokens of a text.

        add_special: whether to add the tokens that the model puts around every text.
        parse_special: whether spelled-out control tokens become control tokens.
        """
    def detokenize(self, tokens: Sequence[int], *, show_special: bool = False) -> str:
        """Returns the text of tokens. With `show_special`, control tokens show in it."""
    def token_bytes(self, tokens: Sequence[int], *, show_special: bool = False) -> bytes:
        """Returns the bytes of tokens, each as it continues a text. The first and the last may be a part of a character.

        With `show_special`, control tokens give the bytes of their texts.
        """
    def close(self) -> None:
        """Frees the memory. Running streams continue; every later call raises `ClosedError`."""
    def __enter__(self) -> Model: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...
    @property
    def name(self) -> str:
        """Name of the model for messages."""
    @property
    def device(self) -> str:
        """Device that the model runs on: `cpu (avx512)`."""
    @property
    def n_ctx(self) -> int:
        """Tokens of a sequence, prompt and answer together."""
    @property
    def max_sequences(self) -> int:
        """Maximum number of sequences alive at a time."""
    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
    @property
    def d_model(self) -> int:
        """Number of elements of an embedding."""
    @property
    def trained_context(self) -> int:
        """Context length that the model was trained for, in tokens."""
    @property
    def rope_base(self) -> Optional[float]:
        """Base of RoPE's frequencies; None if they are scaled or differ by layer."""
    @property
    def warnings(self) -> List[str]:
        """Parts of the model's files that are ignored or overruled, as sentences."""
    @property
    def bos_token(self) -> Optional[int]:
        """The BOS token; None for a model without one."""
    @property
    def eos_token(self) -> Optional[int]:
        """The EOS token; None for a model without one."""

def devices() -> List[Tuple[str, str]]:
    """Returns the devices that a model can run on: names and titles."""

def levels() -> List[str]:
    """Returns the instruction sets of this computer's CPU that have kernels, lowest first."""
