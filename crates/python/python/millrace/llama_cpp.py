"""Drop-in for the class `Llama` of llama-cpp-python, with its common methods.

    from millrace.llama_cpp import Llama      # in place of: from llama_cpp import Llama

Arguments, their order, their defaults and the shapes of results are those of llama-cpp-python 0.3.36. Arguments that change no text
(`n_gpu_layers`, `verbose`, `use_mmap` and similar ones) are accepted without effect. Any other argument that Millrace lacks is refused by
name, unless it has its default.
"""

from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _openai
from ._errors import InvalidValueError
from ._llama_arguments import DEFAULT_SEED, KV_TYPES, POOLING, check_rope, mirostat, refuse, seed_of, stops, text_of
from ._native import Completion, Model

# Old arguments that llama-cpp-python still accepts and ignores.
_WITHOUT_EFFECT = ("n_parts", "f16_kv")


class LlamaGrammar:
    """Placeholder that LangChain imports along with `Llama`. Its constructors are refused: only `millrace serve` has grammars."""

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> "LlamaGrammar":
        """Refused."""
        raise _no_grammar("from_string")

    @classmethod
    def from_file(cls, file: Any, verbose: bool = True) -> "LlamaGrammar":
        """Refused."""
        raise _no_grammar("from_file")

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> "LlamaGrammar":
        """Refused."""
        raise _no_grammar("from_json_schema")


def _no_grammar(call: str) -> InvalidValueError:
    return InvalidValueError(f"`LlamaGrammar.{call}` is not here", "`millrace serve` has grammars and forms of JSON")


class Llama:
    """A model with the methods of llama-cpp-python's `Llama`."""

    def __init__(
        self,
        model_path: str,
        *,
        n_gpu_layers: int = 0,
        split_mode: int = 1,
        main_gpu: int = 0,
        tensor_split: Optional[List[float]] = None,
        vocab_only: bool = False,
        use_mmap: bool = True,
        use_mlock: bool = False,
        kv_overrides: Optional[Dict[str, Any]] = None,
        seed: int = DEFAULT_SEED,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_ubatch: int = 512,
        n_threads: Optional[int] = None,
        n_threads_batch: Optional[int] = None,
        rope_scaling_type: Optional[int] = -1,
        pooling_type: int = -1,
        attention_type: int = -1,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0,
        yarn_beta_fast: float = 32.0,
        yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0,
        logits_all: bool = False,
        embedding: bool = False,
        offload_kqv: bool = True,
        flash_attn: bool = False,
        op_offload: Optional[bool] = None,
        swa_full: Optional[bool] = None,
        no_perf: bool = False,
        last_n_tokens_size: int = 64,
        lora_base: Optional[str] = None,
        lora_scale: float = 1.0,
        lora_path: Optional[str] = None,
        numa: Union[bool, int] = False,
        chat_format: Optional[str] = None,
        chat_handler: Optional[Any] = None,
        draft_model: Optional[Any] = None,
        tokenizer: Optional[Any] = None,
        type_k: Optional[int] = None,
        type_v: Optional[int] = None,
        spm_infill: bool = False,
        verbose: bool = True,
        n_seq_max: Optional[int] = None,
        **others: Any,
    ) -> None:
        refuse(
            "Llama",
            vocab_only=(vocab_only, False),
            kv_overrides=(kv_overrides, None),
            rope_scaling_type=(rope_scaling_type, -1),
            attention_type=(attention_type, -1),
            yarn_ext_factor=(yarn_ext_factor, -1.0),
            yarn_attn_factor=(yarn_attn_factor, 1.0),
            yarn_beta_fast=(yarn_beta_fast, 32.0),
            yarn_beta_slow=(yarn_beta_slow, 1.0),
            yarn_orig_ctx=(yarn_orig_ctx, 0),
            lora_base=(lora_base, None),
            chat_format=(chat_format, None),
            chat_handler=(chat_handler, None),
            draft_model=(draft_model, None),
            tokenizer=(tokenizer, None),
            spm_infill=(spm_infill, False),
            **{name: (value, None) for name, value in others.items() if name not in _WITHOUT_EFFECT},
        )
        if pooling_type not in POOLING:
            raise InvalidValueError(
                f"`Llama` has no `pooling_type={pooling_type}` here",
                "there are -1 (the model's), 1 (mean), 2 (first token) and 3 (last token)",
            )
        if type_k != type_v or (type_k is not None and type_k not in KV_TYPES):
            raise InvalidValueError(
                f"`Llama` has no `type_k={type_k}` with `type_v={type_v}` here",
                "give both the same: 0 (F32), 1 (F16), 2 (Q4_0), 6 (Q5_0), 8 (Q8_0) or 30 (BF16)",
            )
        self.model_path = model_path
        self._seed = seed_of(seed)
        self._pooling = POOLING[pooling_type]
        self._model = Model(
            model_path,
            # 0 means the trained context in llama.cpp.
            context=n_ctx or None,
            threads=n_threads or None,
            sequences=n_seq_max,
            kv_type=None if type_k is None else KV_TYPES[type_k],
            lora=None if lora_path is None else [(lora_path, lora_scale)],
        )
        check_rope(self._model.rope_base, rope_freq_base, rope_freq_scale)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: Optional[str] = None,
        additional_files: Optional[List[str]] = None,
        local_dir: Optional[str] = None,
        local_dir_use_symlinks: Union[bool, str] = "auto",
        cache_dir: Optional[str] = None,
        **arguments: Any,
    ) -> "Llama":
        """Opens a model from the Hugging Face Hub. `filename` is a file's name, or a pattern such as `*Q4_K_M.gguf`.

        Files go to the hub's cache, at `HF_HOME`; `local_dir` and `cache_dir` are refused. The other parts of a split model are found
        without `additional_files`.
        """
        refuse(
            "from_pretrained",
            "set HF_HOME to the folder of the hub's cache",
            local_dir=(local_dir, None),
            cache_dir=(cache_dir, None),
        )
        pick = filename
        if filename is not None and any(c in filename for c in "*?["):
            pick = filename.strip("*")
            if pick.endswith(".gguf"):
                pick = pick[: -len(".gguf")]
            pick = pick.strip("*-._")
            if any(c in pick for c in "*?["):
                raise InvalidValueError(
                    f"`{filename}` is no pattern that the hub's names are found by",
                    "give a file's name, or `*QUANT.gguf`",
                )
        reference = f"hf:{repo_id}" if not pick else f"hf:{repo_id}:{pick}"
        return cls(reference, **arguments)

    # --- Text ---

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
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: Optional[str] = None,
        stopping_criteria: Optional[Any] = None,
        logits_processor: Optional[Any] = None,
        grammar: Optional[Any] = None,
        logit_bias: Optional[Dict[int, float]] = None,
    ) -> Union[Dict[str, Any], Iterator[Dict[str, Any]]]:
        """Continues a prompt, with a result in the shape of OpenAI's completions. `logprobs` computes prompt and text once more."""
        refuse(
            "create_completion",
            suffix=(suffix, None),
            tfs_z=(tfs_z, 1.0),
            stopping_criteria=(stopping_criteria, None),
            logits_processor=(logits_processor, None),
            grammar=(grammar, None),
        )
        if stream:
            refuse("create_completion(stream=True)", "leave `stream` out", logprobs=(logprobs, None))
        options = self._options(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            stop=stops(stop),
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repetition_penalty=repeat_penalty,
            top_k=top_k,
            seed=seed,
            mirostat=mirostat("create_completion", mirostat_mode, mirostat_tau, mirostat_eta),
            logit_bias=logit_bias,
        )
        if not isinstance(prompt, str):
            prompt = list(prompt)
        echoed = ""
        if echo:
            echoed = prompt if isinstance(prompt, str) else self._model.detokenize(prompt)
        head = _openai.head("cmpl", "text_completion", model or self.model_path)
        if stream:
            return _openai.completion_chunks(head, echoed, self._model.generate(prompt, stream=True, **options))
        done = self._model.complete(prompt, **options)
        choice = {
            "text": echoed + done.text,
            "index": 0,
            "logprobs": None if logprobs is None else _openai.logprobs(self._model, prompt, done, logprobs, echo),
            "finish_reason": _openai.finish_reason(done),
        }
        return {**head, "choices": [choice], "usage": _openai.usage(done)}

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: List[Dict[str, Any]],
        functions: Optional[List[Any]] = None,
        function_call: Optional[Any] = None,
        tools: Optional[List[Any]] = None,
        tool_choice: Optional[Any] = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: Optional[Union[str, Sequence[str]]] = (),
        seed: Optional[int] = None,
        response_format: Optional[Dict[str, Any]] = None,
        max_tokens: Optional[int] = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        tfs_z: float = 1.0,
        mirostat_mode: int = 0,
        mirostat_tau: float = 5.0,
        mirostat_eta: float = 0.1,
        model: Optional[str] = None,
        logits_processor: Optional[Any] = None,
        grammar: Optional[Any] = None,
        logit_bias: Optional[Dict[int, float]] = None,
        logprobs: Optional[bool] = None,
        top_logprobs: Optional[int] = None,
    ) -> Union[Dict[str, Any], Iterator[Dict[str, Any]]]:
        """Answers messages, with a result in the shape of OpenAI's chat completions. `logprobs` computes prompt and answer once more."""
        is_form = response_format is not None and response_format.get("type") != "text"
        call = "create_chat_completion"
        refuse(
            call,
            functions=(functions or None, None),
            function_call=(function_call, "none"),
            tools=(tools or None, None),
            tool_choice=(tool_choice, "none"),
            response_format=(response_format if is_form else None, None),
            tfs_z=(tfs_z, 1.0),
            logits_processor=(logits_processor, None),
            grammar=(grammar, None),
        )
        if stream:
            refuse(f"{call}(stream=True)", "leave `stream` out", logprobs=(logprobs, False))
        options = self._options(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            stop=stops(stop),
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repetition_penalty=repeat_penalty,
            top_k=top_k,
            seed=seed,
            mirostat=mirostat(call, mirostat_mode, mirostat_tau, mirostat_eta),
            logit_bias=logit_bias,
        )
        if stream:
            head = _openai.head("chatcmpl", "chat.completion.chunk", model or self.model_path)
            return _openai.chat_chunks(head, self._model.chat(messages, stream=True, **options))
        done = self._model.complete(messages, **options)
        listed = None
        if logprobs:
            listed = _openai.chat_logprobs(_openai.logprobs(self._model, messages, done, top_logprobs or 0))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": done.text},
            "logprobs": listed,
            "finish_reason": _openai.finish_reason(done),
        }
        head = _openai.head("chatcmpl", "chat.completion", model or self.model_path)
        return {**head, "choices": [choice], "usage": _openai.usage(done)}

    # --- Tokens and embeddings ---

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        """Returns the tokens of a text."""
        return self._model.tokenize(text_of(text), add_special=add_bos, parse_special=special)

    def detokenize(
        self,
        tokens: List[int],
        prev_tokens: Optional[List[int]] = None,
        special: bool = False,
    ) -> bytes:
        """Returns the bytes of tokens; a character may be cut. As in llama-cpp-python, `prev_tokens` changes nothing, and the space before
        a text goes only behind the BOS token."""
        output = self._model.token_bytes(tokens, show_special=special)
        is_beginning = len(tokens) > 0 and tokens[0] == self._model.bos_token
        return output[1:] if is_beginning and output.startswith(b" ") else output

    def embed(
        self,
        input: Union[str, List[str]],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """Returns one embedding for each text. Without `pooling_type`, the model's file decides how to pool, or else the mean is taken.
        `truncate` cuts texts to the context; llama-cpp-python cuts them to `n_batch`."""
        embeddings = self._model.embed(input, pooling=self._pooling, normalize=normalize, truncate=truncate)
        if not return_count:
            return embeddings
        texts = [input] if isinstance(input, str) else input
        lengths = (len(self._model.tokenize(text)) for text in texts)
        return embeddings, sum(min(length, self._model.n_ctx) if truncate else length for length in lengths)

    def create_embedding(
        self, input: Union[str, List[str]], model: Optional[str] = None
    ) -> Dict[str, Any]:
        """Returns embeddings in the shape of OpenAI's."""
        texts = [input] if isinstance(input, str) else list(input)
        embeddings, n_tokens = self.embed(texts, return_count=True)
        data = [
            {"object": "embedding", "embedding": embedding, "index": index}
            for index, embedding in enumerate(embeddings)
        ]
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    @property
    def context_params(self) -> SimpleNamespace:
        """The one context setting of llama.cpp that other packages read: `n_ctx`."""
        return SimpleNamespace(n_ctx=self._model.n_ctx)

    def n_ctx(self) -> int:
        """Length of the context in tokens."""
        return self._model.n_ctx

    def n_embd(self) -> int:
        """Number of elements of an embedding."""
        return self._model.d_model

    def n_vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return self._model.vocab_size

    def token_bos(self) -> int:
        """The BOS token; -1 for a model without one."""
        token = self._model.bos_token
        return -1 if token is None else token

    def token_eos(self) -> int:
        """The EOS token; -1 for a model without one."""
        token = self._model.eos_token
        return -1 if token is None else token

    def set_seed(self, seed: int) -> None:
        """Sets the seed for calls without one."""
        self._seed = seed_of(seed)

    def reset(self) -> None:
        """Does nothing: no text depends on earlier calls, and cached prefixes change no bit."""

    def close(self) -> None:
        """Frees the memory."""
        self._model.close()

    # --- Internal ---

    def _options(self, max_tokens: Optional[int], seed: Optional[int], **options: Any) -> Dict[str, Any]:
        # None, zero and negative numbers mean no limit but the context.
        if max_tokens is not None and max_tokens > 0:
            options["max_tokens"] = max_tokens
        # Zero and negative numbers mean all tokens.
        options["top_k"] = max(options["top_k"], 0)
        options["seed"] = self._seed if seed is None else seed_of(seed)
        return options
