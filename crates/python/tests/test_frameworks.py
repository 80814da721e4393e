"""Millrace in LangChain and LlamaIndex: each test is skipped where its package is missing."""

import unittest
from importlib.util import find_spec

QUESTION = "What is 7 plus 5?"
ANSWER = "7 plus 5 is 12."
SMALL = {"threads": 1, "context": 128}


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
