"""The template language of the demo corpus.

A template is text with two constructs:

* ``[a|b|c]``   one of the alternatives, each a template itself; ``[a|]`` is optional text;
* ``{x.attr}``  an attribute of the slot ``x`` of the story (``{x}`` its plain form), and
  ``{~list}``   a fresh pick from a word list.

A blank line separates paragraphs; other line breaks are spaces. Capital letters at the start of a
sentence or of speech and the choice between "a" and "an" are made after rendering, so templates
can ignore them.
"""

import random
import re
from functools import lru_cache
from typing import Protocol


class Slots(Protocol):
    """Interface of a story for templates."""

    rng: random.Random

    def text(self, slot: str, attr: str) -> str:
        """The text of ``{slot.attr}``."""


def _split(text: str) -> list[str]:
    """Splits `text` at the bars outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == "|" and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


@lru_cache(maxsize=None)
def _parse(text: str) -> tuple:
    """Nodes of a template: str (literal), (slot, attr), or a list of alternatives (node tuples)."""
    nodes, i = [], 0
    while i < len(text):
        if text[i] == "[":
            depth, j = 1, i + 1
            while depth:
                if j >= len(text):
                    raise ValueError(f"unclosed bracket in template: {text!r}")
                depth += (text[j] == "[") - (text[j] == "]")
                j += 1
            nodes.append([_parse(part) for part in _split(text[i + 1 : j - 1])])
        elif text[i] == "{":
            j = text.index("}", i) + 1
            slot, _, attr = text[i + 1 : j - 1].partition(".")
            nodes.append((slot, attr))
        else:
            match = re.compile(r"[^\[{]+").match(text, i)
            j = match.end()
            if "]" in match.group() or "|" in match.group():
                raise ValueError(f"stray bracket or bar in template: {text!r}")
            nodes.append(match.group())
        i = j
    return tuple(nodes)


def _expand(nodes: tuple, slots: Slots, out: list[str]) -> None:
    for node in nodes:
        if isinstance(node, str):
            out.append(node)
        elif isinstance(node, list):
            _expand(node[int(slots.rng.random() * len(node))], slots, out)
        else:
            text = slots.text(*node)
            if "[" in text or "{" in text:
                _expand(_parse(text), slots, out)
            else:
                out.append(text)


_AN = re.compile(r"\b([Aa]) (?=(?:[aeio]|u(?!ni|se)|hour|honest)(?!ne\b))", re.IGNORECASE)
_SENTENCE = re.compile(r'(?:^|(?<=[.!?] )|(?<=\n)|(?<=\." )|(?<=[^,] ")|(?<=\n")|(?<=^"))[a-z]')
_TAG = r"(?= (?:(?:he|she|it|they) )?(?:said|asked|thought|cried|called|shouted|replied|answered|whispered)\b)"


def tidy(text: str) -> str:
    """Fixes paragraphs, spaces, articles and capital letters of a rendered template."""
    paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
    text = "\n\n".join(p for p in paragraphs if p)
    text = re.sub(r" (?=[,.!?;])", "", text)
    text = _AN.sub(r"\1n ", text)
    # A speech may be chosen with or without its full stop. The text after it decides between "," and ".".
    text = re.sub(r'([a-z])\.?"' + _TAG, r'\1,"', text)
    text = re.sub(r'([a-z])"(?=\s|$)', r'\1."', text)
    text = re.sub(r"([?!.]),", r"\1", text)
    return _SENTENCE.sub(lambda m: m.group().upper(), text)


def render(template: str, slots: Slots) -> str:
    """One rendering of `template`."""
    out: list[str] = []
    _expand(_parse(template), slots, out)
    return tidy("".join(out))
