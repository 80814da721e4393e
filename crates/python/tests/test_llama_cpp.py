"""`millrace.llama_cpp.Llama`: the calls and shapes of llama-cpp-python."""

import unittest

import millrace
from millrace.llama_cpp import Llama

PROMPT = "Once upon a time"
QUESTION = [{"role": "user", "content": "What is 7 plus 5?"}]


def setUpModule():
    global llama
    llama = Llama("demo", n_ctx=256, n_threads=1, n_gpu_layers=-1, verbose=False)


class Completions(unittest.TestCase):
    def test_the_shape_of_a_completion(self):
        done = llama(PROMPT, max_tokens=8, temperature=0.0)
        self.assertEqual(set(done), {"id", "object", "created", "model", "choices", "usage"})
        self.assertTrue(done["id"].startswith("cmpl-"))
        self.assertEqual((done["object"], done["model"]), ("text_completion", "demo"))
        (choice,) = done["choices"]
        self.assertEqual(set(choice), {"text", "index", "logprobs", "finish_reason"})
        self.assertEqual((choice["index"], choice["logprobs"], choice["finish_reason"]), (0, None, "length"))
        n = len(llama.tokenize(PROMPT.encode()))
        self.assertEqual(done["usage"], {"prompt_tokens": n, "completion_tokens": 8, "total_tokens": n + 8})
        echoed = llama.create_completion(PROMPT, max_tokens=8, temperature=0.0, echo=True)
        self.assertEqual(echoed["choices"][0]["text"], PROMPT + choice["text"])
        tokens = llama.tokenize(PROMPT.encode())
        self.assertEqual(llama(tokens, max_tokens=8, temperature=0.0)["choices"], done["choices"])

    def test_sixteen_tokens_if_nothing_is_said(self):
        self.assertEqual(llama(PROMPT)["usage"]["completion_tokens"], 16)

    def test_the_shape_of_a_stream(self):
        whole = llama(PROMPT, max_tokens=8, temperature=0.0)["choices"][0]
        chunks = list(llama(PROMPT, max_tokens=8, temperature=0.0, stream=True))
        self.assertEqual("".join(chunk["choices"][0]["text"] for chunk in chunks), whole["text"])
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        self.assertEqual(reasons, [None] * (len(chunks) - 1) + ["length"])
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)

    def test_the_shape_of_a_chat(self):
        done = llama.create_chat_completion(QUESTION, temperature=0.0)
        self.assertEqual(done["object"], "chat.completion")
        (choice,) = done["choices"]
        self.assertEqual(choice["message"], {"role": "assistant", "content": "7 plus 5 is 12."})
        self.assertEqual(choice["finish_reason"], "stop")
        chunks = list(llama.create_chat_completion(QUESTION, temperature=0.0, stream=True))
        self.assertEqual({chunk["object"] for chunk in chunks}, {"chat.completion.chunk"})
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        self.assertEqual((deltas[0], deltas[-1]), ({"role": "assistant"}, {}))
        self.assertEqual("".join(delta["content"] for delta in deltas[1:-1]), "7 plus 5 is 12.")
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "stop")

    def test_a_stop_text_and_a_seed(self):
        done = llama(PROMPT, max_tokens=None, temperature=0.0, stop="lived")
        self.assertEqual(done["choices"][0]["finish_reason"], "stop")
        self.assertNotIn("lived", done["choices"][0]["text"])
        self.assertEqual(llama(PROMPT, seed=3)["choices"], llama(PROMPT, seed=3)["choices"])
        llama.reset()


class Tokens(unittest.TestCase):
    def test_there_and_back(self):
        tokens = llama.tokenize(b"The dog saw a ball.")
        self.assertEqual(llama.detokenize(tokens), b"The dog saw a ball.")
        self.assertEqual(llama.detokenize(tokens[3:], prev_tokens=tokens[:3]), llama.detokenize(tokens)[len(llama.detokenize(tokens[:3])):])
        self.assertEqual((llama.n_ctx(), llama.n_vocab(), llama.n_embd()), (256, 2048, 256))
        self.assertGreaterEqual(llama.token_eos(), 0)

    def test_embeddings(self):
        embedding = llama.embed("The dog")
        self.assertEqual(len(embedding), 256)
        both = llama.create_embedding(["The dog", "Tom"])
        self.assertEqual([row["index"] for row in both["data"]], [0, 1])
        self.assertEqual(both["data"][0]["embedding"], embedding)
        self.assertGreater(both["usage"]["prompt_tokens"], 2)


class Refusals(unittest.TestCase):
    def test_what_is_not_there_is_refused_by_name(self):
        for call, name in [
            (lambda: llama(PROMPT, logprobs=3), "logprobs"),
            (lambda: llama(PROMPT, grammar=object()), "grammar"),
            (lambda: llama(PROMPT, suffix="."), "suffix"),
            (lambda: llama.create_chat_completion(QUESTION, tools=[{}]), "tools"),
            (lambda: llama.create_chat_completion(QUESTION, response_format={"type": "json_object"}), "response_format"),
            (lambda: Llama("demo", lora_path="x"), "lora_path"),
            (lambda: Llama("demo", chat_format="chatml"), "chat_format"),
            (lambda: Llama.from_pretrained("a/b", "a[0].gguf"), "a[0].gguf"),
        ]:
            with self.subTest(name=name), self.assertRaises(millrace.InvalidValueError) as caught:
                call()
            self.assertIn(name, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
