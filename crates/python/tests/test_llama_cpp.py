"""`millrace.llama_cpp.Llama`: the calls and shapes of llama-cpp-python."""

import ast
import inspect
import math
import os
import unittest
from pathlib import Path

import millrace
from millrace._llama_arguments import check_rope
from millrace.llama_cpp import Llama, LlamaGrammar

PROMPT = "Once upon a time"
QUESTION = [{"role": "user", "content": "What is 7 plus 5?"}]


EMPTY = "(none)"

# Signatures of llama-cpp-python 0.3.36: arguments in order, with their defaults. With `LLAMA_CPP_PYTHON=.../llama_cpp/llama.py`, a test
# compares them with the real file.
SIGNATURES = {
    "__init__": {
        "model_path": EMPTY,
        "n_gpu_layers": 0,
        "split_mode": 1,
        "main_gpu": 0,
        "tensor_split": None,
        "vocab_only": False,
        "use_mmap": True,
        "use_mlock": False,
        "kv_overrides": None,
        "seed": 0xFFFFFFFF,
        "n_ctx": 512,
        "n_batch": 512,
        "n_ubatch": 512,
        "n_threads": None,
        "n_threads_batch": None,
        "rope_scaling_type": -1,
        "pooling_type": -1,
        "attention_type": -1,
        "rope_freq_base": 0.0,
        "rope_freq_scale": 0.0,
        "yarn_ext_factor": -1.0,
        "yarn_attn_factor": 1.0,
        "yarn_beta_fast": 32.0,
        "yarn_beta_slow": 1.0,
        "yarn_orig_ctx": 0,
        "logits_all": False,
        "embedding": False,
        "offload_kqv": True,
        "flash_attn": False,
        "op_offload": None,
        "swa_full": None,
        "no_perf": False,
        "last_n_tokens_size": 64,
        "lora_base": None,
        "lora_scale": 1.0,
        "lora_path": None,
        "numa": False,
        "chat_format": None,
        "chat_handler": None,
        "draft_model": None,
        "tokenizer": None,
        "type_k": None,
        "type_v": None,
        "spm_infill": False,
        "verbose": True,
    },
    "from_pretrained": {
        "repo_id": EMPTY,
        "filename": EMPTY,
        "additional_files": None,
        "local_dir": None,
        "local_dir_use_symlinks": "auto",
        "cache_dir": None,
    },
    "tokenize": {
        "text": EMPTY,
        "add_bos": True,
        "special": False,
    },
    "detokenize": {
        "tokens": EMPTY,
        "prev_tokens": None,
        "special": False,
    },
    "set_seed": {
        "seed": EMPTY,
    },
    "reset": {},
    "create_completion": {
        "prompt": EMPTY,
        "suffix": None,
        "max_tokens": 16,
        "temperature": 0.8,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1.0,
        "logprobs": None,
        "echo": False,
        "stop": [],
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repeat_penalty": 1.0,
        "top_k": 40,
        "stream": False,
        "seed": None,
        "tfs_z": 1.0,
        "mirostat_mode": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "model": None,
        "stopping_criteria": None,
        "logits_processor": None,
        "grammar": None,
        "logit_bias": None,
    },
    "__call__": {
        "prompt": EMPTY,
        "suffix": None,
        "max_tokens": 16,
        "temperature": 0.8,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1.0,
        "logprobs": None,
        "echo": False,
        "stop": [],
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repeat_penalty": 1.0,
        "top_k": 40,
        "stream": False,
        "seed": None,
        "tfs_z": 1.0,
        "mirostat_mode": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "model": None,
        "stopping_criteria": None,
        "logits_processor": None,
        "grammar": None,
        "logit_bias": None,
    },
    "create_chat_completion": {
        "messages": EMPTY,
        "functions": None,
        "function_call": None,
        "tools": None,
        "tool_choice": None,
        "temperature": 0.2,
        "top_p": 0.95,
        "top_k": 40,
        "min_p": 0.05,
        "typical_p": 1.0,
        "stream": False,
        "stop": [],
        "seed": None,
        "response_format": None,
        "max_tokens": None,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repeat_penalty": 1.0,
        "tfs_z": 1.0,
        "mirostat_mode": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "model": None,
        "logits_processor": None,
        "grammar": None,
        "logit_bias": None,
        "logprobs": None,
        "top_logprobs": None,
    },
    "create_embedding": {
        "input": EMPTY,
        "model": None,
    },
    "embed": {
        "input": EMPTY,
        "normalize": False,
        "truncate": True,
        "return_count": False,
    },
    "n_ctx": {},
    "n_embd": {},
    "n_vocab": {},
    "token_eos": {},
    "token_bos": {},
    "close": {},
}


# Values of constants that the real file names.
CONSTANTS = {
    "LLAMA_SPLIT_MODE_LAYER": 1,
    "LLAMA_DEFAULT_SEED": 0xFFFFFFFF,
    "LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED": -1,
    "LLAMA_POOLING_TYPE_UNSPECIFIED": -1,
    "LLAMA_ATTENTION_TYPE_UNSPECIFIED": -1,
}


def read_signatures(path):
    """Reads the table from a `llama.py` without importing it, since that would need llama.cpp."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (kind,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Llama")

    def value(node):
        if isinstance(node, ast.Attribute):
            return CONSTANTS[node.attr]
        return ast.literal_eval(node)

    found = {}
    for node in kind.body:
        if not isinstance(node, ast.FunctionDef) or node.name not in SIGNATURES:
            continue
        plain = node.args.args[1:]
        defaults = [None] * (len(plain) - len(node.args.defaults)) + node.args.defaults
        pairs = [*zip(plain, defaults), *zip(node.args.kwonlyargs, node.args.kw_defaults)]
        found[node.name] = {argument.arg: EMPTY if default is None else value(default) for argument, default in pairs}
    return found


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


def _is_text(data):
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


class Tokens(unittest.TestCase):
    def test_there_and_back(self):
        tokens = llama.tokenize(b"The dog saw a ball.")
        self.assertEqual(llama.detokenize(tokens), b"The dog saw a ball.")
        # Put together, tokens that cut characters give the text, with `prev_tokens` and without.
        tokens = llama.tokenize("A dog 🦙 é".encode(), add_bos=False)
        self.assertGreater(len([token for token in tokens if not _is_text(llama.detokenize([token]))]), 1)
        for before in (None, tokens):
            self.assertEqual(b"".join(llama.detokenize([token], prev_tokens=before) for token in tokens).strip(), "A dog 🦙 é".encode())
        self.assertEqual((llama.n_ctx(), llama.n_vocab(), llama.n_embd()), (256, 2048, 256))
        self.assertGreaterEqual(llama.token_eos(), 0)

    def test_embeddings(self):
        embedding = llama.embed("The dog")
        self.assertEqual(len(embedding), 256)
        length = math.sqrt(sum(x * x for x in embedding))
        self.assertGreater(abs(length - 1.0), 0.01)
        for x, y in zip(llama.embed("The dog", normalize=True), embedding):
            self.assertAlmostEqual(x, y / length, places=5)
        # A text that is too long is cut; with `truncate=False` it is refused.
        long = "a dog " * 400
        self.assertEqual(len(llama.embed(long)), 256)
        self.assertEqual(llama.embed(long, return_count=True)[1], llama.n_ctx())
        with self.assertRaises(millrace.ContextOverflowError):
            llama.embed(long, truncate=False)
        both = llama.create_embedding(["The dog", "Tom"])
        self.assertEqual([row["index"] for row in both["data"]], [0, 1])
        self.assertEqual(both["data"][0]["embedding"], embedding)
        self.assertGreater(both["usage"]["prompt_tokens"], 2)


class Logprobs(unittest.TestCase):
    def test_the_greedy_token_is_the_likeliest(self):
        done = llama(PROMPT, max_tokens=6, temperature=0.0, logprobs=2)
        (choice,) = done["choices"]
        listed = choice["logprobs"]
        self.assertEqual(set(listed), {"tokens", "text_offset", "token_logprobs", "top_logprobs"})
        self.assertEqual("".join(listed["tokens"]), choice["text"])
        self.assertEqual([len(likeliest) for likeliest in listed["top_logprobs"]], [2] * 6)
        for text, logprob, likeliest in zip(listed["tokens"], listed["token_logprobs"], listed["top_logprobs"]):
            self.assertEqual(logprob, max(likeliest.values()))
            self.assertEqual(likeliest[text], logprob)
            self.assertLess(sum(math.exp(value) for value in likeliest.values()), 1.0 + 1e-9)
        whole = PROMPT + choice["text"]
        for text, offset in zip(listed["tokens"], listed["text_offset"]):
            self.assertTrue(whole[offset:].startswith(text), (text, offset))

    def test_an_echo_tells_of_the_prompt(self):
        (choice,) = llama(PROMPT, max_tokens=2, temperature=0.0, logprobs=0, echo=True)["choices"]
        listed = choice["logprobs"]
        self.assertEqual("".join(listed["tokens"]), choice["text"])
        self.assertIsNone(listed["token_logprobs"][0])
        self.assertTrue(all(value <= 0.0 for value in listed["token_logprobs"][1:]))

    def test_a_chat_has_them_in_its_shape(self):
        answer = llama.create_chat_completion(QUESTION, temperature=0.0, logprobs=True, top_logprobs=3)
        (choice,) = answer["choices"]
        content = choice["logprobs"]["content"]
        self.assertEqual("".join(row["token"] for row in content), choice["message"]["content"])
        self.assertEqual(set(content[0]), {"token", "bytes", "logprob", "top_logprobs"})
        self.assertEqual(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"])


class Signatures(unittest.TestCase):
    """Arguments, their order and their defaults are those of llama-cpp-python."""

    def signature(self, name):
        found = {}
        for argument in inspect.signature(getattr(Llama, name)).parameters.values():
            if argument.name == "self" or argument.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            found[argument.name] = EMPTY if argument.default is inspect.Parameter.empty else argument.default
        return found

    def compare(self, table, path):
        for name, arguments in table.items():
            found = self.signature(name)
            # Millrace's own arguments come after theirs.
            self.assertEqual(list(found)[: len(arguments)], list(arguments), f"{name} of {path}")
            for argument, default in arguments.items():
                ours = found[argument]
                ours = list(ours) if isinstance(ours, tuple) else ours
                if (name, argument) == ("from_pretrained", "filename"):
                    # Here a repository with one model needs no file name.
                    continue
                self.assertEqual(ours, default, f"{name}({argument}) of {path}")

    def test_as_the_table_has_them(self):
        self.compare(SIGNATURES, "the table")

    @unittest.skipIf("LLAMA_CPP_PYTHON" not in os.environ, "LLAMA_CPP_PYTHON names no llama_cpp/llama.py")
    def test_as_the_real_file_has_them(self):
        path = Path(os.environ["LLAMA_CPP_PYTHON"])
        real = read_signatures(path)
        self.assertEqual(real, SIGNATURES, f"the table is not that of {path}")

    def test_arguments_by_position(self):
        by_name = llama(PROMPT, suffix=None, max_tokens=4, temperature=0.0)["choices"]
        self.assertEqual(llama(PROMPT, None, 4, 0.0)["choices"], by_name)
        answer = llama.create_chat_completion(QUESTION, None, None, None, None, 0.0)
        self.assertEqual(answer["choices"][0]["message"]["content"], "7 plus 5 is 12.")

    def test_defaults_that_are_spelled_out_change_nothing(self):
        given = {name: value for name, value in SIGNATURES["__init__"].items() if value is not EMPTY}
        spelled = Llama("demo", **given)
        given = {name: value for name, value in SIGNATURES["create_completion"].items() if value is not EMPTY}
        given.update(temperature=0.0, max_tokens=4)
        self.assertEqual(spelled(PROMPT, **given)["choices"], llama(PROMPT, max_tokens=4, temperature=0.0)["choices"])
        given = {name: value for name, value in SIGNATURES["create_chat_completion"].items() if value is not EMPTY}
        given.update(temperature=0.0, response_format={"type": "text"}, tool_choice="none")
        answer = spelled.create_chat_completion(QUESTION, **given)
        self.assertEqual(answer["choices"][0]["message"]["content"], "7 plus 5 is 12.")
        spelled.close()

    def test_what_others_send_without_being_asked(self):
        # LangChain's defaults: the base is the demo's own, and the others have no effect.
        sent = Llama("demo", rope_freq_base=10000.0, rope_freq_scale=1.0, n_parts=-1, f16_kv=True, n_ctx=64)
        self.assertEqual(sent(PROMPT, max_tokens=4, temperature=0.0)["choices"], llama(PROMPT, max_tokens=4, temperature=0.0)["choices"])
        self.assertEqual(sent.context_params.n_ctx, 64)
        sent.close()

    def test_frequencies_of_another_model_are_refused(self):
        check_rope(None, 0.0, None)
        check_rope(500000.0, 500000.0, 1.0)
        for own, base, scale in [(None, 10000.0, 0.0), (None, 0.0, 1.0), (500000.0, 10000.0, 1.0), (10000.0, 10000.0, 0.25)]:
            with self.subTest(own=own), self.assertRaises(millrace.InvalidValueError):
                check_rope(own, base, scale)

    def test_what_the_engine_has_is_handed_on(self):
        kept = Llama("demo", n_ctx=64, type_k=8, type_v=8, pooling_type=3)
        last = kept.embed("The dog saw a ball.")
        self.assertNotEqual(last, llama.embed("The dog saw a ball."))
        kept.close()
        draws = [llama(PROMPT, seed=3, mirostat_mode=mode, mirostat_tau=1.0)["choices"][0]["text"] for mode in (0, 2)]
        self.assertNotEqual(*draws)


class Refusals(unittest.TestCase):
    def test_what_is_not_there_is_refused_by_name(self):
        for call, name in [
            (lambda: llama(PROMPT, logprobs=3, stream=True), "logprobs"),
            (lambda: llama(PROMPT, tfs_z=0.9), "tfs_z"),
            (lambda: llama(PROMPT, mirostat_mode=1), "mirostat_mode"),
            (lambda: Llama("demo", rope_freq_base=500000.0), "rope_freq_base"),
            (lambda: Llama("demo", rope_freq_scale=0.5), "rope_freq_scale"),
            (lambda: LlamaGrammar.from_string("root ::= \"a\""), "from_string"),
            (lambda: Llama("demo", pooling_type=0), "pooling_type"),
            (lambda: Llama("demo", type_k=8), "type_v"),
            (lambda: Llama("demo", no_such_thing=1), "no_such_thing"),
            (lambda: Llama.from_pretrained("a/b", "c.gguf", local_dir="x"), "local_dir"),
            (lambda: llama(PROMPT, grammar=object()), "grammar"),
            (lambda: llama(PROMPT, suffix="."), "suffix"),
            (lambda: llama.create_chat_completion(QUESTION, tools=[{}]), "tools"),
            (lambda: llama.create_chat_completion(QUESTION, response_format={"type": "json_object"}), "response_format"),
            (lambda: Llama("demo", chat_format="chatml"), "chat_format"),
            (lambda: Llama.from_pretrained("a/b", "a[0].gguf"), "a[0].gguf"),
        ]:
            with self.subTest(name=name), self.assertRaises(millrace.InvalidValueError) as caught:
                call()
            self.assertIn(name, str(caught.exception))

    def test_an_adapter_is_looked_for(self):
        with self.assertRaises(millrace.Error) as caught:
            Llama("demo", lora_path="no-such-adapter.gguf")
        self.assertIn("no-such-adapter.gguf", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
