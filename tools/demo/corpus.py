"""The corpus of the demo model: little stories and short chats.

Every sentence comes from the grammar in `grammar/`, written for this project and under its licence
(MIT or Apache-2.0); it contains no text by others. A document depends only on its seed, so the same
seeds give the same corpus on every machine.

    python tools/demo/corpus.py --documents 20 --seed 7      # print some documents
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from grammar.chats import chat
from grammar.stories import tell



@dataclass(frozen=True)
class Mix:
    """Documents of a training phase: the share of plain stories, and the chats that are more frequent.

    Stories are longer than chats, so their share of the tokens is larger.
    """

    story_share: float
    boost: dict[str, float] = field(default_factory=dict)


MIXES = {
    "stories": Mix(0.36),
    # The chats that are hardest to learn are more frequent in the second phase.
    "chats": Mix(0.15, {"word_problem": 2, "numbers": 3, "category": 3, "calendar": 3, "story": 1.5}),
}
# Validation documents have seeds from here on, training documents lower ones.
VALIDATION_SEED = 1 << 40


@dataclass
class Document:
    """A story (`text`), or a chat (`system`, and `turns` of user, assistant and the key of a right answer)."""

    text: str = ""
    system: str | None = None
    turns: list[tuple[str, str, str]] = field(default_factory=list)

    def is_story(self) -> bool:
        """Whether this is a plain story."""
        return not self.turns

    def messages(self) -> list[dict[str, str]]:
        """The chat as messages of the usual roles."""
        out = [{"role": "system", "content": self.system}] if self.system else []
        for user, assistant, _ in self.turns:
            out += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        return out


def document(seed: int, mix: Mix) -> Document:
    """The document of one seed."""
    rng = random.Random(seed)
    if rng.random() < mix.story_share:
        return Document(text=tell(rng))
    system, turns = chat(rng, mix.boost)
    return Document(system=system, turns=turns)


def documents(first_seed: int, count: int) -> Iterator[Document]:
    """`count` documents of the first mix from consecutive seeds."""
    return (document(first_seed + i, MIXES["stories"]) for i in range(count))


def main() -> None:
    """Prints documents, one JSON object per line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first document")
    args = parser.parse_args()
    for doc in documents(args.seed, args.documents):
        print(json.dumps({"text": doc.text} if doc.is_story() else {"messages": doc.messages()}))


if __name__ == "__main__":
    main()
