"""The whole text of llama.cpp's program llama-completion.

Its log is written by a thread, and the program may end before that thread wrote the last words (llama.cpp of llama-cpp-python 0.3.36: 5 of 14
runs, with no plugin). A text that does not have the end of the log is asked for again.
"""

import sys

# What the program writes last.
END = "\n\n"
ATTEMPTS = 16


def whole_text(complete):
    """Text of a finished llama-completion, which `complete()` runs."""
    for _ in range(ATTEMPTS):
        text = complete()
        if text.endswith(END):
            return text.strip()
    sys.exit(f"llama-completion did not write its whole text in {ATTEMPTS} attempts; the last one:\n{text}")
