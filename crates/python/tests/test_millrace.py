"""Tests of the Python module with the built-in model. They need no network and no package; numpy's is skipped if it is missing.

    python -m unittest discover -s crates/python/tests
"""

import _thread
import gc
import inspect
import math
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref
from importlib.util import find_spec
from pathlib import Path

import millrace

PROMPT = "Once upon a time"
QUESTION = [{"role": "user", "content": "What is 7 plus 5?"}]
GREEDY = {"temperature": 0.0, "max_tokens": 12}


def setUpModule():
    global model
    model = millrace.Model("demo", threads=1, context=256, sequences=4)


class Text(unittest.TestCase):
    def test_pieces_of_a_stream_are_the_text(self):
        whole = model.generate(PROMPT, **GREEDY)
        stream = model.generate(PROMPT, stream=True, **GREEDY)
        self.assertIsNone(stream.completion)
        pieces = list(stream)
        self.assertGreater(len(pieces), 3)
        self.assertEqual("".join(pieces), whole)
        self.assertEqual(stream.completion.text, whole)
        self.assertEqual(len(stream.completion.tokens), 12)
        self.assertEqual(stream.completion.finish_reason, "length")

    def test_chat_answers(self):
        answer = model.chat(QUESTION, temperature=0)
        self.assertEqual(answer, "7 plus 5 is 12.")
        parts = [{"role": "user", "content": [{"type": "text", "text": "What is 7 plus 5?"}]}]
        self.assertEqual(model.chat(parts, temperature=0), answer)
        self.assertEqual("".join(model.chat(QUESTION, temperature=0, stream=True)), answer)
        self.assertEqual(model.chat([QUESTION, QUESTION], temperature=0), [answer, answer])

    def test_a_batch_is_each_by_itself(self):
        prompts = [PROMPT, "The dog", "Tom", "One day", "A cat", "The end"]
        together = model.generate(prompts, **GREEDY)
        self.assertEqual(together, [model.generate(prompt, **GREEDY) for prompt in prompts])

    def test_what_prompts_share_is_read_once(self):
        beginning = "Tom saw a dog and a cat in the park. " * 12
        done = model.complete([beginning + f"It was day {n}" for n in range(4)], **GREEDY)
        cached = [one.timings["cached_tokens"] for one in done]
        self.assertEqual(cached[0], 0)
        self.assertTrue(all(n >= 64 for n in cached[1:]), cached)

    def test_a_prompt_that_fails_has_its_exception(self):
        prompts = [PROMPT, "b " * 400, QUESTION, 7, []]
        one, long, answer, number, empty = model.complete(prompts, return_exceptions=True, **GREEDY)
        self.assertEqual(one.text, model.generate(PROMPT, **GREEDY))
        self.assertIsInstance(long, millrace.ContextOverflowError)
        self.assertEqual(answer.text, model.chat(QUESTION, **GREEDY))
        self.assertIsInstance(number, TypeError)
        self.assertIsInstance(empty, millrace.InvalidValueError)
        self.assertEqual(model.complete([], return_exceptions=True), [])

    def test_tokens_are_a_prompt(self):
        tokens = model.tokenize(PROMPT)
        self.assertEqual(model.detokenize(tokens), PROMPT)
        done = model.complete(tokens, **GREEDY)
        self.assertEqual(done.text, model.generate(PROMPT, **GREEDY))
        self.assertEqual(done.prompt_tokens, len(tokens))
        self.assertEqual(model.detokenize(done.tokens), done.text)
        self.assertEqual(done.timings["decode_tokens"], 12)

    def test_prompts_of_an_iterator_are_those_of_a_list(self):
        prompts = [PROMPT, "Tom", "The dog"]
        texts = model.generate(prompts, **GREEDY)
        self.assertEqual(model.generate(iter(prompts), **GREEDY), texts)
        self.assertEqual(model.generate((prompt for prompt in prompts), **GREEDY), texts)
        self.assertEqual(model.generate(iter(model.tokenize(PROMPT)), **GREEDY), texts[0])
        self.assertEqual(model.chat(iter(QUESTION), **GREEDY), model.chat(QUESTION, **GREEDY))
        done = model.complete(iter(prompts), return_exceptions=True, **GREEDY)
        self.assertEqual([one.text for one in done], texts)

    def test_bytes_of_tokens_may_cut_a_character(self):
        tokens = model.tokenize("A dog 🦙", add_special=False)
        pieces = [model.token_bytes([token]) for token in tokens]
        self.assertGreater(len(tokens), 4)
        self.assertEqual(b"".join(pieces), model.token_bytes(tokens))
        self.assertEqual(model.token_bytes(tokens).strip().decode(), "A dog 🦙")
        with self.assertRaises(UnicodeDecodeError):
            pieces[-1].decode()
        self.assertEqual(model.token_bytes([model.eos_token, 1 << 20]), b"")
        self.assertNotEqual(model.token_bytes([model.eos_token], show_special=True), b"")

    def test_seed_stop_and_bias(self):
        def story(seed):
            return model.generate(PROMPT, seed=seed, temperature=1.0, max_tokens=20)

        self.assertEqual(story(1), story(1))
        self.assertNotEqual(story(1), story(2))
        stopped = model.complete(PROMPT, temperature=0, stop=["lived"])
        self.assertEqual(stopped.finish_reason, "stop_text")
        self.assertNotIn("lived", stopped.text)
        surprised = model.generate(PROMPT, seed=1, temperature=1.0, max_tokens=20, mirostat=(1.0, 0.1))
        self.assertNotEqual(surprised, story(1))
        first = model.complete(PROMPT, **GREEDY).tokens[0]
        banned = model.complete(PROMPT, logit_bias={first: float("-inf")}, **GREEDY)
        self.assertNotEqual(banned.tokens[0], first)

    def test_control_tokens(self):
        end = model.eos_token
        spelled = model.detokenize([end], show_special=True)
        self.assertEqual(model.detokenize([end]), "")
        self.assertEqual(model.tokenize(spelled, add_special=False, parse_special=True), [end])
        self.assertNotIn(end, model.tokenize(spelled))

    def test_attributes(self):
        self.assertEqual((model.name, model.n_ctx, model.max_sequences), ("demo", 256, 4))
        self.assertEqual((model.vocab_size, model.d_model), (2048, 256))
        self.assertIn("cpu", model.device)
        self.assertIn("scalar", millrace.levels())
        self.assertEqual(millrace.devices()[0][0], "cpu")


class Numbers(unittest.TestCase):
    def test_embeddings_have_length_one(self):
        one = model.embed("The dog saw a ball.")
        self.assertEqual(len(one), model.d_model)
        self.assertAlmostEqual(sum(x * x for x in one), 1.0, places=5)
        self.assertEqual(model.embed(["The dog saw a ball.", "Tom"])[0], one)
        self.assertNotEqual(model.embed("The dog saw a ball.", pooling="last"), one)
        first = model.embed("The dog saw a ball.", pooling="first")
        self.assertEqual(first, model.embed("The cat", pooling="first"))

    def test_embeddings_as_the_model_gives_them(self):
        raw = model.embed("The dog saw a ball.", normalize=False)
        length = sum(x * x for x in raw) ** 0.5
        self.assertGreater(abs(length - 1.0), 0.01)
        for x, y in zip(model.embed("The dog saw a ball."), raw):
            self.assertAlmostEqual(x, y / length, places=6)
        long = "a dog " * 400
        with self.assertRaises(millrace.ContextOverflowError):
            model.embed(long)
        self.assertEqual(len(model.embed(long, truncate=True)), model.d_model)

    def test_logprobs_are_those_of_the_logits(self):
        done = model.complete(PROMPT, **GREEDY)
        before = model.prompt_tokens(PROMPT)
        self.assertEqual(before, model.tokenize(PROMPT))
        tokens = before + done.tokens
        rows = model.logprobs(tokens, first=len(before), top=3)
        self.assertEqual(len(rows), len(done.tokens))
        for token, (logprob, top), logits in zip(done.tokens, rows, model.logits(tokens).tolist()[len(before) - 1 :]):
            self.assertEqual(top[0], (token, logprob))
            self.assertEqual([one for one, _ in top], sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:3])
            most = max(logits)
            expected = logits[token] - most - math.log(sum(math.exp(x - most) for x in logits))
            self.assertAlmostEqual(logprob, expected, places=6)
        self.assertEqual(model.logprobs(tokens, first=len(tokens)), [])
        with self.assertRaises(millrace.InvalidValueError):
            model.logprobs(tokens, first=0)

    @unittest.skipIf(find_spec("numpy") is None, "no numpy")
    def test_logits_are_numpys_without_a_copy(self):
        import numpy

        logits = model.logits(PROMPT)
        array = numpy.asarray(logits)
        self.assertEqual(array.shape, (len(model.tokenize(PROMPT)), model.vocab_size))
        self.assertEqual(array.dtype, numpy.float32)
        self.assertEqual(array.ctypes.data, logits.__array_interface__["data"][0])
        self.assertEqual(logits.numpy().ctypes.data, array.ctypes.data)
        self.assertEqual(logits[-1], array[-1].tolist())
        self.assertEqual(logits.tolist(), array.tolist())
        with self.assertRaises(ValueError):
            array[0, 0] = 0.0
        first = model.complete(PROMPT, **GREEDY).tokens[0]
        self.assertEqual(int(array[-1].argmax()), first)
        # The array keeps the logits alive.
        row = array[-1].copy()
        del logits
        gc.collect()
        model.logits("something else, so that the memory would be used again")
        self.assertTrue((array[-1] == row).all())

    def test_rows_beyond_the_last(self):
        logits = model.logits(PROMPT)
        for index in (len(logits), -len(logits) - 1):
            with self.assertRaises(IndexError):
                logits[index]


class Stops(unittest.TestCase):
    def test_a_token_stops_from_another_thread(self):
        token = millrace.CancelToken()
        timer = threading.Timer(0.1, token.cancel)
        timer.start()
        began = time.monotonic()
        # In an optimised module, one text fills the context before the timer fires.
        done = model.complete([PROMPT] * 400, ignore_end=True, cancel=token)
        self.assertEqual(done[-1].finish_reason, "cancelled")
        self.assertLess(time.monotonic() - began, 5.0)
        self.assertTrue(token.cancelled)
        token.reset()
        self.assertEqual(model.complete(PROMPT, cancel=token, **GREEDY).finish_reason, "length")

    def test_a_token_stops_a_batch(self):
        token = millrace.CancelToken()
        token.cancel()
        done = model.complete([PROMPT, "Tom"], ignore_end=True, cancel=token)
        self.assertEqual([one.finish_reason for one in done], ["cancelled", "cancelled"])

    def test_closing_a_stream_gives_its_sequence_back(self):
        for _ in range(2 * model.max_sequences):
            with model.generate(PROMPT, stream=True, ignore_end=True) as stream:
                next(stream)
            self.assertEqual(stream.completion.finish_reason, "cancelled")
            self.assertEqual(list(stream), [])
        # Dropping a stream does the same.
        for _ in range(2 * model.max_sequences):
            next(model.generate(PROMPT, stream=True))

    def test_ctrl_c_raises_and_the_model_goes_on(self):
        # A program that a shell starts in the background ignores the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        for work in (
            lambda: model.generate(PROMPT, ignore_end=True),
            lambda: model.generate([PROMPT] * 4, ignore_end=True),
            lambda: list(model.generate(PROMPT, ignore_end=True, stream=True)),
        ):
            timer = threading.Timer(0.05, _thread.interrupt_main)
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                work()
                # The text may end before the signal comes.
                time.sleep(5.0)
        self.assertEqual(len(model.complete(PROMPT, **GREEDY).tokens), 12)

    def test_other_threads_run_meanwhile(self):
        ended = threading.Event()
        n_turns = 0

        def generate():
            model.generate([PROMPT] * 16, ignore_end=True, max_tokens=200)
            ended.set()

        worker = threading.Thread(target=generate)
        longest = 0.0
        before = began = time.monotonic()
        worker.start()
        while not ended.is_set():
            n_turns += 1
            now = time.monotonic()
            longest = max(longest, now - before)
            before = now
            time.sleep(0)
        took = time.monotonic() - began
        worker.join()
        # If the interpreter's lock were held, there would be one or two turns, one of them as long as the work.
        self.assertGreater(n_turns, 20)
        self.assertLess(longest, took / 2)


class Errors(unittest.TestCase):
    def test_classes_and_words(self):
        long = "a text that is longer than the context " * 60
        cases = [
            (lambda: millrace.Model("dmeo"), millrace.ModelNotFoundError, "did you mean `demo`"),
            (lambda: millrace.Model(__file__), millrace.ModelFileError, "test_millrace.py"),
            (lambda: millrace.Model("demo", device="gpu9"), millrace.DeviceError, "gpu9"),
            (lambda: millrace.Model("demo", mode="int8"), millrace.Error, "`mode` is a setting of an NPU"),
            (lambda: millrace.Model("demo", set=["cols=4"]), millrace.Error, "`set` is a setting of an NPU"),
            (lambda: millrace.Model("demo", mmproj="no-such.gguf"), Exception, "no-such.gguf"),
            (lambda: millrace.Model("demo", level="mmx"), millrace.InvalidValueError, "mmx"),
            (lambda: millrace.Model("demo", thread=1), TypeError, "did you mean `threads`"),
            (lambda: millrace.Model("demo", threads="two"), TypeError, "`threads`"),
            (lambda: model.generate(long), millrace.ContextOverflowError, "`context`"),
            (lambda: model.generate(PROMPT, temperature=-1.0), millrace.Error, "temperature"),
            (lambda: model.generate(PROMPT, temprature=0.5), TypeError, "`temperature`"),
            (lambda: model.generate(PROMPT, stop=""), millrace.InvalidValueError, "empty"),
            (lambda: model.generate(PROMPT, max_tokens=-1), (TypeError, OverflowError, ValueError), "max_tokens"),
            (lambda: model.generate([]), millrace.InvalidValueError, "empty list"),
            (lambda: model.generate(7), TypeError, "found int"),
            (lambda: model.generate([PROMPT, 7]), TypeError, "found int"),
            (lambda: model.generate([PROMPT, "Tom"], stream=True), millrace.InvalidValueError, "one prompt"),
            (lambda: model.generate([1 << 20]), millrace.Error, str(1 << 20)),
            (lambda: model.chat("hello"), TypeError, "messages"),
            (lambda: model.chat([{"content": "hello"}]), millrace.InvalidValueError, "role"),
            (lambda: model.chat([{"role": "user", "content": [{"type": "image_url"}]}]), millrace.InvalidValueError, "images="),
            (lambda: model.generate(PROMPT.encode()), TypeError, "found bytes"),
            (lambda: model.generate(QUESTION[0]), TypeError, "found dict"),
            (lambda: model.generate(PROMPT, images="no.png"), TypeError, "list of paths"),
            (lambda: model.generate(PROMPT, images=["no.png"]), millrace.Error, "no.png"),
            (lambda: model.generate(PROMPT, images=[b"no image"]), millrace.InvalidValueError, "image 0"),
            (lambda: millrace.Model("demo", lora="no-adapter.gguf"), millrace.Error, "no-adapter.gguf"),
            (lambda: millrace.Model("demo", lora=[("no-adapter.gguf", 0.5)]), millrace.Error, "no-adapter.gguf"),
            (lambda: millrace.Model("demo", lora=3), TypeError, "`lora`"),
            (lambda: model.generate(PROMPT, mirostat=5.0), TypeError, "`mirostat`"),
            (lambda: model.generate([-1]), millrace.InvalidValueError, "token"),
            (lambda: model.detokenize([-1]), millrace.InvalidValueError, "token"),
            (lambda: model.generate(PROMPT, stop=[1]), TypeError, "`stop` is a str or a list of str; found int"),
            (lambda: model.generate(PROMPT, top_p=2), millrace.InvalidValueError, "`top_p` is 2"),
            (lambda: model.embed(b"x"), TypeError, "`text` is a str or a list of str; found int"),
            (lambda: model.embed(7), TypeError, "found int"),
            (lambda: millrace.Model("demo", threads=0), millrace.InvalidValueError, "1 to 1024 threads"),
            (lambda: millrace.Model("demo", context=0), millrace.InvalidValueError, "`context` is 0"),
            (lambda: millrace.Model("demo", sequences=0), millrace.InvalidValueError, "`sequences` is 0"),
            (lambda: millrace.Model("demo", sequences=10**9), millrace.InvalidValueError, "`sequences`"),
            (lambda: model.embed("x", pooling="max"), millrace.InvalidValueError, "max"),
        ]
        for call, kind, words in cases:
            with self.subTest(words=words), self.assertRaises(kind) as caught:
                call()
            self.assertIn(words, str(caught.exception))
            # No advice in the words of the command line.
            self.assertNotIn("--", str(caught.exception))
        self.assertEqual(len(model.complete(PROMPT, **GREEDY).tokens), 12)

    def test_advice_is_apart_from_the_message(self):
        with self.assertRaises(millrace.ModelNotFoundError) as caught:
            millrace.Model("dmeo")
        self.assertEqual(caught.exception.advice, "did you mean `demo`?")
        self.assertNotIn("did you mean", caught.exception.message)

    def test_a_closed_model_says_so(self):
        with millrace.Model("demo", threads=1, context=32) as closed:
            closed.generate(PROMPT, max_tokens=1)
        with self.assertRaises(millrace.ClosedError):
            closed.generate(PROMPT)
        self.assertIn("closed", repr(closed))

    def test_a_fork_is_refused_and_does_not_hang(self):
        code = (
            "import os, millrace\n"
            "model = millrace.Model('demo', threads=1, context=32)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n"
            "        model.generate('x')\n"
            "    except millrace.Error as error:\n"
            "        os._exit(7 if 'spawn' in str(error) else 8)\n"
            "    os._exit(9)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout.strip(), "7", done.stderr)

    def test_a_fork_ends_with_the_parents_model_and_stream_in_it(self):
        code = (
            "import os, sys, millrace\n"
            "model = millrace.Model('demo', threads=2, context=32)\n"
            "stream = model.generate('x', stream=True, ignore_end=True)\n"
            "next(stream)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    for refused in (lambda: next(stream), lambda: stream.completion, lambda: model.name):\n"
            "        try:\n"
            "            refused()\n"
            "        except millrace.InvalidValueError as error:\n"
            "            assert 'spawn' in str(error), error\n"
            "        else:\n"
            "            os._exit(9)\n"
            "    stream.close()\n"
            "    with model:\n"
            "        assert 'another process' in repr(model), model\n"
            "    del stream\n"
            "    sys.exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(stream)) > 0)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout.strip(), "7 True", done.stderr)


class Stubs(unittest.TestCase):
    def setUp(self):
        self.text = (Path(millrace.__file__).parent / "_native.pyi").read_text()

    def members(self, name):
        body = re.search(rf"^class {name}\b.*?(?=^\S|\Z)", self.text, re.S | re.M).group(0)
        return set(re.findall(r"^    (?:def )?([a-z]\w*)[(:]", body, re.M))

    def test_every_member_has_a_stub_and_the_other_way(self):
        for kind in (millrace.Model, millrace.Stream, millrace.Completion, millrace.Logits, millrace.CancelToken):
            members = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
            self.assertEqual(self.members(kind.__name__), members, kind)

    def test_every_argument_has_a_stub(self):
        def known(call):
            with self.assertRaises(TypeError) as caught:
                call()
            return set(str(caught.exception).split("there are ")[1].split(", "))

        self.assertEqual(self.members("Options"), known(lambda: model.generate(PROMPT, zzz=1)))
        self.assertEqual(self.members("ModelArguments"), known(lambda: millrace.Model("demo", zzz=1)))
        self.assertTrue((Path(millrace.__file__).parent / "py.typed").exists())


if __name__ == "__main__":
    unittest.main()
