"""LlamaIndex classes that run a model in the process.

    from millrace.llama_index import Millrace, MillraceEmbedding

    llm = Millrace(model="demo")
    print(llm.complete("Once upon a time"))

This module needs `llama-index-core`. For a Millrace server, use `OpenAILike(api_base="http://127.0.0.1:8080/v1", ...)`.
"""

from typing import Any, Dict, List, Sequence

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM

from ._native import Model


def _messages(messages: Sequence[ChatMessage]) -> List[Dict[str, Any]]:
    return [{"role": message.role.value, "content": message.content or ""} for message in messages]


def _answer(text: str, delta: "str | None" = None) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=delta)


class Millrace(CustomLLM):
    """Language model. `model_arguments` go to `millrace.Model`, `options` to `Model.generate`."""

    model: str = Field(description="A name that millrace.Model takes.")
    model_arguments: Dict[str, Any] = Field(default_factory=dict)
    options: Dict[str, Any] = Field(default_factory=dict)
    _opened: Model = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._opened = Model(self.model, **self.model_arguments)

    @classmethod
    def class_name(cls) -> str:
        return "Millrace"

    @property
    def metadata(self) -> LLMMetadata:
        most = self.options.get("max_tokens") or self._opened.n_ctx
        return LLMMetadata(
            context_window=self._opened.n_ctx,
            num_output=most,
            is_chat_model=True,
            model_name=self._opened.name,
        )

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
        done = self._opened.complete(prompt, **{**self.options, **options})
        return CompletionResponse(text=done.text, additional_kwargs={"finish_reason": done.finish_reason})

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponseGen:
        def pieces() -> CompletionResponseGen:
            text = ""
            with self._opened.generate(prompt, stream=True, **{**self.options, **options}) as stream:
                for piece in stream:
                    text += piece
                    yield CompletionResponse(text=text, delta=piece)

        return pieces()

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        return _answer(self._opened.chat(_messages(messages), **{**self.options, **options}))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponseGen:
        def pieces() -> ChatResponseGen:
            text = ""
            prompt = _messages(messages)
            with self._opened.chat(prompt, stream=True, **{**self.options, **options}) as stream:
                for piece in stream:
                    text += piece
                    yield _answer(text, piece)

        return pieces()


class MillraceEmbedding(BaseEmbedding):
    """Embeddings of length 1. `model_arguments` go to `millrace.Model`."""

    model: str = Field(description="A name that millrace.Model takes.")
    model_arguments: Dict[str, Any] = Field(default_factory=dict)
    _opened: Model = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._opened = Model(self.model, **self.model_arguments)

    @classmethod
    def class_name(cls) -> str:
        return "MillraceEmbedding"

    def _get_text_embedding(self, text: str) -> List[float]:
        return self._opened.embed(text)

    def _get_text_embeddings(self, texts: List[str]) -> List[List[float]]:
        return self._opened.embed(texts)

    def _get_query_embedding(self, query: str) -> List[float]:
        return self._opened.embed(query)

    async def _aget_query_embedding(self, query: str) -> List[float]:
        return self._opened.embed(query)
