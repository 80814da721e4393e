"""LangChain classes that run a model in the process.

    from millrace.langchain import ChatMillrace, MillraceEmbeddings

    chat = ChatMillrace(model="demo")
    print(chat.invoke("What is 7 plus 5?").content)

This module needs `langchain-core`. For a Millrace server, use `ChatOpenAI(base_url="http://127.0.0.1:8080/v1", ...)`.
"""

from typing import Any, Dict, Iterator, List, Optional, Sequence

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.embeddings import Embeddings
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field, PrivateAttr

from ._errors import InvalidValueError
from ._native import Completion, Model

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


def _message(message: BaseMessage) -> Dict[str, Any]:
    """Converts a message to the form that chat templates expect."""
    role = getattr(message, "role", None) or _ROLES.get(message.type)
    if role is None:
        raise InvalidValueError(f"a message of type `{message.type}` has no role in a chat template")
    content = message.content
    if not isinstance(content, str):
        content = [{"text": part} if isinstance(part, str) else part for part in content]
    return {"role": role, "content": content}


def _usage(done: Completion) -> Dict[str, int]:
    n_new = len(done.tokens)
    return {
        "input_tokens": done.prompt_tokens,
        "output_tokens": n_new,
        "total_tokens": done.prompt_tokens + n_new,
    }


class ChatMillrace(BaseChatModel):
    """Chat model. `model_arguments` go to `millrace.Model`, `options` to `Model.chat`."""

    model: str
    model_arguments: Dict[str, Any] = Field(default_factory=dict)
    options: Dict[str, Any] = Field(default_factory=dict)
    _opened: Model = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._opened = Model(self.model, **self.model_arguments)

    @property
    def _llm_type(self) -> str:
        return "millrace"

    @property
    def _identifying_params(self) -> Dict[str, Any]:
        return {"model": self.model, **self.model_arguments, **self.options}

    def _all_options(self, stop: Optional[List[str]], given: Dict[str, Any]) -> Dict[str, Any]:
        return {**self.options, **given, **({"stop": stop} if stop else {})}

    def _generate(
        self,
        messages: List[BaseMessage],
        stop: Optional[List[str]] = None,
        run_manager: Optional[CallbackManagerForLLMRun] = None,
        **options: Any,
    ) -> ChatResult:
        prompt = [_message(message) for message in messages]
        done = self._opened.complete(prompt, **self._all_options(stop, options))
        message = AIMessage(
            content=done.text,
            usage_metadata=_usage(done),
            response_metadata={"finish_reason": done.finish_reason, "model_name": self.model},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: List[BaseMessage],
        stop: Optional[List[str]] = None,
        run_manager: Optional[CallbackManagerForLLMRun] = None,
        **options: Any,
    ) -> Iterator[ChatGenerationChunk]:
        prompt = [_message(message) for message in messages]
        options = self._all_options(stop, options)
        with self._opened.chat(prompt, stream=True, **options) as stream:
            for piece in stream:
                chunk = ChatGenerationChunk(message=AIMessageChunk(content=piece))
                if run_manager:
                    run_manager.on_llm_new_token(piece, chunk=chunk)
                yield chunk
            done = stream.completion
            assert done is not None, "a stream that ended has its text"
            last = AIMessageChunk(
                content="",
                usage_metadata=_usage(done),
                response_metadata={"finish_reason": done.finish_reason},
            )
            yield ChatGenerationChunk(message=last)


class MillraceEmbeddings(Embeddings):
    """Embeddings of length 1. `model` is a model's name, or an open `millrace.Model`."""

    def __init__(self, model: "str | Model", **arguments: Any) -> None:
        self._model = model if isinstance(model, Model) else Model(model, **arguments)

    def embed_documents(self, texts: Sequence[str]) -> List[List[float]]:
        return self._model.embed(list(texts)) if texts else []

    def embed_query(self, text: str) -> List[float]:
        return self._model.embed(text)
