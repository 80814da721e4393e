"""The C interface by Python's ctypes, without the Python package: `.ci/capi` runs this where there is a Python.

    python3 crates/capi/examples/hello.py target/release/libmillrace_c.so
"""

import ctypes as c
import sys

millrace = c.CDLL(sys.argv[1])


class Tokens(c.Structure):
    _fields_ = [("data", c.POINTER(c.c_uint32)), ("n", c.c_size_t)]


class Generation(c.Structure):
    _fields_ = [
        ("text", c.c_char_p),
        ("tokens", Tokens),
        ("finish", c.c_int),
        ("n_prompt_tokens", c.c_size_t),
        ("prefill_s", c.c_double),
        ("decode_s", c.c_double),
    ]


class Message(c.Structure):
    _fields_ = [("role", c.c_char_p), ("content", c.c_char_p)]


TextCallback = c.CFUNCTYPE(c.c_bool, c.c_char_p, c.c_size_t, c.c_void_p)


def check(status, error):
    if status != 0:
        raise RuntimeError(f"status {status}: {error.value.decode()}")


model, error = c.c_void_p(), c.c_char_p()
check(millrace.millrace_open(b"demo", None, c.byref(model), c.byref(error)), error)

question = Message(b"user", b"What is 7 plus 5?")
pieces = []
on_text = TextCallback(lambda text, n_bytes, user: pieces.append(text) or True)
answer = Generation()
status = millrace.millrace_chat(
    model, c.byref(question), c.c_size_t(1), None, on_text, None, c.byref(answer), c.byref(error)
)
check(status, error)
assert b"".join(pieces) == answer.text, (pieces, answer.text)
print(answer.text.decode(), f"({answer.tokens.n} tokens)")
millrace.millrace_generation_free(c.byref(answer))
millrace.millrace_close(model)
