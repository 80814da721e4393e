"""Millrace in LangChain and LlamaIndex: each test is skipped where its package is missing."""

import sys
import unittest
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import millrace.llama_cpp

QUESTION = "What is 7 plus 5?"
ANSWER = "7 plus 5 is 12."
SMALL = {"threads": 1, "context": 128}
# LlamaIndex's class for llama.cpp requires an existing file.
DEMO = Path(__file__).resolve().parents[3] / "models" / "demo" / "demo.gguf"


def has(name):
    """Whether a module is installed. Its package may be missing too."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class InPlaceOfLlamaCpp(unittest.TestCase):
    """Base of tests that import Millrace's drop-in as `llama_cpp`."""

    def setUp(self):
        replaced = patch.dict(sys.modules, llama_cpp=millrace.llama_cpp)
        replaced.start()
        self.addCleanup(replaced.stop)


@unittest.skipIf(find_spec("langchain_core") is None, "no langchain-core")
class LangChain(unittest.TestCase):
    def setUp(self):
        from millrace.langchain import ChatMillrace

        self.chat = ChatMillrace(model="demo", model_arguments=SMALL, options={"temperature": 0.0})

    def test_a_chat(self):
        answer = self.chat.invoke([("system", "Answer."), ("human", QUESTION)])
        self.assertTrue(answer.content)
        answer = self.chat.invoke(QUESTION)
        self.assertEqual(answer.content, ANSWER)
        self.assertEqual(answer.response_metadata["finish_reason"], "stop")
        self.assertGreater(answer.usage_metadata["input_tokens"], 3)

    def test_a_stream(self):
        chunks = list(self.chat.stream(QUESTION))
        self.assertGreater(len(chunks), 3)
        self.assertEqual("".join(chunk.content for chunk in chunks), ANSWER)

    def test_a_chain_and_a_stop(self):
        from langchain_core.prompts import ChatPromptTemplate

        chain = ChatPromptTemplate.from_messages([("human", "What is {a} plus {b}?")]) | self.chat
        self.assertEqual(chain.invoke({"a": 7, "b": 5}).content, ANSWER)
        self.assertEqual(self.chat.invoke(QUESTION, stop=[" is"]).content, "7 plus 5")

    def test_embeddings(self):
        from millrace.langchain import MillraceEmbeddings

        embeddings = MillraceEmbeddings("demo", **SMALL)
        self.assertEqual(embeddings.embed_documents(["Tom"])[0], embeddings.embed_query("Tom"))
        self.assertEqual(embeddings.embed_documents([]), [])


@unittest.skipUnless(has("langchain_community"), "no langchain-community")
class LangChainForLlamaCpp(InPlaceOfLlamaCpp):
    """LangChain's own classes for llama.cpp. Their default arguments are accepted."""

    SMALL = {"model_path": "demo", "n_ctx": 128, "n_threads": 1, "verbose": False}

    def test_texts(self):
        from langchain_community.llms import LlamaCpp

        llm = LlamaCpp(**self.SMALL, temperature=0.0, max_tokens=12, repeat_penalty=1.0)
        expected = millrace.llama_cpp.Llama("demo", n_ctx=128, n_threads=1)("The dog", max_tokens=12, temperature=0.0)
        text = expected["choices"][0]["text"]
        self.assertEqual(llm.invoke("The dog"), text)
        self.assertEqual("".join(llm.stream("The dog")), text)
        self.assertGreater(llm.get_num_tokens("The dog"), 1)
        self.assertNotIn("a", llm.invoke("The dog", stop=["a"]))

    def test_chats(self):
        from langchain_community.chat_models import ChatLlamaCpp

        for streaming in (False, True):
            chat = ChatLlamaCpp(**self.SMALL, temperature=0.0, repeat_penalty=1.0, streaming=streaming)
            self.assertEqual(chat.invoke(QUESTION).content, ANSWER)
        self.assertEqual("".join(chunk.content for chunk in chat.stream(QUESTION)), ANSWER)
        with self.assertRaises(ValueError) as caught:
            ChatLlamaCpp(**self.SMALL, grammar='root ::= "a"')
        self.assertIn("LlamaGrammar", str(caught.exception))

    def test_embeddings(self):
        from langchain_community.embeddings import LlamaCppEmbeddings

        embeddings = LlamaCppEmbeddings(**self.SMALL)
        first, second = embeddings.embed_documents(["Tom", "The dog"])
        self.assertEqual(embeddings.embed_query("Tom"), first)
        self.assertNotEqual(first, second)

    def test_frequencies_of_another_model(self):
        from langchain_community.llms import LlamaCpp

        with self.assertRaises(ValueError) as caught:
            LlamaCpp(**self.SMALL, rope_freq_base=500000.0)
        self.assertIn("rope_freq_base", str(caught.exception))


@unittest.skipUnless(has("llama_index.llms.llama_cpp"), "no llama-index-llms-llama-cpp")
class LlamaIndexForLlamaCpp(InPlaceOfLlamaCpp):
    """LlamaIndex's own class for llama.cpp."""

    def test_texts_and_chats(self):
        from llama_index.core.llms import ChatMessage
        from llama_index.llms.llama_cpp import LlamaCPP

        def in_words(messages):
            return "\n".join(message.content for message in messages)

        llm = LlamaCPP(
            model_path=str(DEMO),
            temperature=0.0,
            max_new_tokens=12,
            context_window=128,
            model_kwargs={"n_threads": 1},
            messages_to_prompt=in_words,
            verbose=False,
        )
        done = llm.complete("The dog")
        self.assertTrue(done.text)
        self.assertEqual(list(llm.stream_complete("The dog"))[-1].text, done.text)
        self.assertEqual(llm.chat([ChatMessage(role="user", content="The dog")]).message.content, done.text)
        self.assertEqual(llm.metadata.context_window, 128)


@unittest.skipIf(find_spec("llama_index") is None, "no llama-index-core")
class LlamaIndex(unittest.TestCase):
    def setUp(self):
        from millrace.llama_index import Millrace

        self.llm = Millrace(model="demo", model_arguments=SMALL, options={"temperature": 0.0, "max_tokens": 12})

    def test_a_completion(self):
        done = self.llm.complete("Once upon a time")
        self.assertTrue(done.text)
        pieces = list(self.llm.stream_complete("Once upon a time"))
        self.assertEqual(pieces[-1].text, done.text)
        self.assertEqual("".join(piece.delta for piece in pieces), done.text)

    def test_a_chat(self):
        from llama_index.core.llms import ChatMessage

        messages = [ChatMessage(role="user", content=QUESTION)]
        self.assertEqual(self.llm.chat(messages).message.content, ANSWER)
        self.assertEqual(list(self.llm.stream_chat(messages))[-1].message.content, ANSWER)
        self.assertEqual(self.llm.metadata.context_window, 128)

    def test_an_embedding(self):
        from millrace.llama_index import MillraceEmbedding

        embedding = MillraceEmbedding(model="demo", model_arguments=SMALL)
        row = embedding.get_text_embedding("Tom")
        self.assertEqual(len(row), 256)
        self.assertEqual(embedding.get_text_embedding_batch(["Tom", "dog"])[0], row)


if __name__ == "__main__":
    unittest.main()
