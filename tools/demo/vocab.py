"""The demo models' tokenizer: a byte-level BPE trained on the corpus, its special tokens and chat form."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import Document

VOCAB_SIZE = 2048
BOS, EOS, USER, ASSISTANT, SYSTEM, END = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>",
)
SPECIALS = [BOS, EOS, USER, ASSISTANT, SYSTEM, END, *(f"<|reserved_{i}|>" for i in range(10))]
# The split of Llama 3, which GGUF files call "llama-bpe".
LLAMA_BPE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('roles are system, user and assistant, not ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# Label of a token that is only context.
IGNORE = -100
# Answers of up to this many tokens weigh more than stories: they have few of the tokens, and each of their words matters.
SHORT_ANSWER, SHORT_ANSWER_WEIGHT = 100, 4.0


def train(texts: Iterable[str]) -> Tokenizer:
    """Trains the vocabulary; the special tokens come last, as in Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(LLAMA_BPE), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIALS), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(SPECIALS)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(f"the corpus gave {tokenizer.get_vocab_size()} tokens, expected {VOCAB_SIZE}: use more documents")
    return tokenizer


def load(path: Path) -> Tokenizer:
    """Reads a saved tokenizer."""
    return Tokenizer.from_file(str(path))


class Encoder:
    """Turns documents into token ids and labels."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.id = {s: tokenizer.token_to_id(s) for s in SPECIALS}

    def text(self, text: str) -> list[int]:
        """Ids of plain text. Markers in it are not special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a chat up to the assistant's turn, as the chat template renders it."""
        ids = [self.id[BOS]]
        for m in messages:
            ids += [self.id[f"<|{m['role']}|>"], *self.text(m["content"].strip()), self.id[END]]
        return [*ids, self.id[ASSISTANT]]

    def document(self, doc: Document) -> tuple[list[int], list[int], list[float]]:
        """(ids, labels, weights): a token's label is the token itself, or IGNORE in the turns of others."""
        if doc.is_story():
            ids = [self.id[BOS], *self.text(doc.text), self.id[EOS]]
            return ids, [IGNORE, *ids[1:]], [1.0] * len(ids)
        ids, labels, weights = [self.id[BOS]], [IGNORE], [0.0]
        for m in doc.messages():
            part = [self.id[f"<|{m['role']}|>"], *self.text(m["content"]), self.id[END]]
            learn = m["role"] == "assistant"
            ids += part
            labels += [IGNORE, *part[1:]] if learn else [IGNORE] * len(part)
            weights += [SHORT_ANSWER_WEIGHT if len(part) <= SHORT_ANSWER else 1.0] * len(part)
        return [*ids, self.id[EOS]], [*labels, self.id[EOS]], [*weights, 1.0]
