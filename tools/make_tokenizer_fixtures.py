#!/usr/bin/env python3
"""Trains tiny tokenizers of every supported kind, and writes the reference results for many texts.

The references are Hugging Face `tokenizers` and Google's `sentencepiece`. For each kind two files go to
crates/text/tests/fixtures/tokenizers: NAME.json, the tokenizer (`tokenizer.json`, or the pieces of a SentencePiece
model), and NAME.cases.json, the texts with their ids. pretokenizers.json beside that folder has the package's splits of
some texts, by the expressions that `tokenizer.ggml.pre` names. The Rust tests need no Python.

    python tools/make_tokenizer_fixtures.py [OUT_DIR [NAME ...]]

With names, only those fixtures are made. Needs the packages `tokenizers`, `transformers` and `sentencepiece`. Training breaks some ties at random, so a
new run may train other tokenizers; each comes with its own cases.
"""

import base64
import io
import json
import random
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPLIT_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLIT_QWEN2 = SPLIT_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPLIT_TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLIT_DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]

WORDS = """the a and of to in is was that it he she they we you river mill stone water wheel turns slowly quickly
morning evening light dark bread flour grain sack miller boat bridge village never always because however although
don't it's we've I'm they'll who'd Hello World GPU NPU HTTP parseJson camelCase snake_case return function value
über Straße größe façade naïve café señor año où déjà здравствуй мир вода мельница река хлеб Привет
我们 水车 面包 河流 你好 世界 こんにちは 世界 水車 パン 안녕하세요 세계 강물 नमस्ते दुनिया पानी שלום עולם مرحبا بالعالم
12 345 6789 2024 3.14 1,000 50% $9.99 #42 @user http://example.org/path?x=1 a+b==c x*=2; {} [] () <b> </b> -> => !=
🦙 😁 🚀 👩‍👩‍👧 ✅ → ½ ² Ⅷ""".split()

SEPARATORS = [" "] * 14 + ["  ", "\n", "\n\n", "\t", ", ", ". ", "! ", "? ", "; ", ": ", "    ", "\r\n", " - "]

FIXED = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", "\r\n", " \n ", "a", " a", "a ", " a ", "  a  b  ", "\u00a0a\u00a0",
    "Hello, World!", "hello world", "HELLO WORLD", "helloWORLD HelloWorld", "I'm can't WE'LL they'Ve he'D 'tis o'clock ''",
    "it\u2019s", "1 12 123 1234 12345 1234567890", "3.14159 1,000,000 1e-5 0x1F", "a1b2c3", "½ ² Ⅷ ٣٤",
    "e\u0301 \u00e9 n\u0303 a\u0302\u0301", "\u0301 leading mark", "Cửa Việt", "ÅÅÅ A\u030a", "ﬁ ﬂ ① ｆｕｌｌ", "ß ẞ ſ Ǆ ǅ ʰ",
    "我想在apple工作1314151天～", "こんにちは、世界。カタカナ", "안녕하세요 세계", "가 ᄀ\u1161", "नमस्ते दुनिया", "שלום עולם", "مرحبا بالعالم",
    "нещо на Български", "កាន់តែពិសេសអាចខលចេញ", "🚀 (normal) 😶‍🌫️ (joined) ✅", "👩‍👩‍👧👨🏽‍💻🇩🇪", "🦙🦙🦙",
    "\u0000", "a\u0000b", "\u0001\u0007\u001b[0m", "\u007f\u0080\u0085x", "\u200b\u200d\ufeff\u2060", "\ufffd", "\U0010ffff", "\ue000",
    "\u2028\u2029\u3000\u1680\u2003", "▁", "▁▁a", "a▁b ▁ c", "<0x41> <0xE2>", "Ġa Ċ â",
    "def f(x):\n    return {\"a\": [1, 2, 3]}\n\n\nprint(f('x'))\t# ok\n", "x = y*2; // comment\r\n/* a/b/c */\n",
    "https://example.org/a?b=c&d=%20#e", "a@b.c, \"quoted\" 'single' `code`", "!!!!!!", "??? ... --- ___ === ###",
    "(a).\n\nb", "    indented\n        more\n\tmixed \t x", " \u00a0 \t\n \n  x", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "a" * 300, " " * 70 + "x", "\n" * 40, "mill" * 60, "水" * 80, "the river " * 20,
]

ALPHABET = list("abstrevmldSTREVMLDéÉßſяЯ我水가ก019²½٣ \t\n\r.,!?'\"/-_()$+=<|>▁~") + [
    " ", " ", " ", "\n", "'", "\u0301", "\u0302", "\u00a0", "\u3000", "\u2003", "\u200d", "\ufe0f", "🦙", "😁", "\u0000",
]


def corpus(seed: int, lines: int) -> list[str]:
    """Lines of words in many scripts. A few words are much more frequent, as in real text."""
    rng = random.Random(seed)
    weights = [1.0 / (1 + i % 40) for i in range(len(WORDS))]
    out = []
    for _ in range(lines):
        words = rng.choices(WORDS, weights, k=rng.randint(4, 16))
        out.append("".join(word + rng.choice(SEPARATORS) for word in words))
    return out


def texts(special: list[str]) -> list[str]:
    """The fixed texts, texts with special tokens in them, and random ones."""
    rng = random.Random(7)
    out = list(FIXED)
    for token in special:
        out += [token, f"a{token}b", f" {token} ", f"\n{token}\n\n{token}  x", f"{token}{token} {token[:-1]}", f"word{token}, {token}."]
    out += ["".join(rng.choices(ALPHABET, k=rng.randint(1, 24))) for _ in range(70)]
    out += corpus(11, 12)
    pieces = special + WORDS[:40] + [" ", "\n", "  "]
    out += ["".join(rng.choices(pieces, k=rng.randint(2, 10))) for _ in range(25)]
    return out


def train(tokenizer: Tokenizer, vocab_size: int, **options) -> None:
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, **options)
    tokenizer.train_from_iterator(corpus(3, 1500), trainer)


def byte_level(split: list, vocab_size: int = 700, **model) -> Tokenizer:
    """Byte-level BPE; `split` are the steps before `ByteLevel`."""
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return tokenizer


def isolated(pattern: str):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def special(tokenizer: Tokenizer, *contents: str) -> None:
    tokenizer.add_special_tokens([AddedToken(content, special=True, normalized=False) for content in contents])


def llama3() -> Tokenizer:
    tokenizer = byte_level([isolated(SPLIT_LLAMA3)], ignore_merges=True)
    special(tokenizer, "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")
    bos = "<|begin_of_text|>"
    template = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2() -> Tokenizer:
    tokenizer = byte_level([isolated(SPLIT_QWEN2)])
    tokenizer.normalizer = normalizers.NFC()
    special(tokenizer, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer.add_tokens([AddedToken(content, normalized=False) for content in ("<think>", "</think>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def gpt2() -> Tokenizer:
    """GPT-2's rules, and added tokens with every condition that they may have."""
    tokenizer = byte_level([])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("``", '"'), normalizers.Replace(Regex(r"-{3,}"), "—")])
    special(tokenizer, "<|endoftext|>")
    tokenizer.add_tokens([
        AddedToken("<mask>", lstrip=True, normalized=False),
        AddedToken("<sep>", rstrip=True, normalized=True),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("mill", single_word=True, normalized=True),
        AddedToken("ﬁn", normalized=True),
    ])
    end = "<|endoftext|>"
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {end}", pair=f"$A {end} $B:1 {end}:1", special_tokens=[(end, tokenizer.token_to_id(end))])
    return tokenizer


def smollm() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    special(tokenizer, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return tokenizer


def tekken() -> Tokenizer:
    tokenizer = byte_level([isolated(SPLIT_TEKKEN)], ignore_merges=True)
    special(tokenizer, "<s>", "</s>", "[INST]", "[/INST]")
    return tokenizer


def deepseek() -> Tokenizer:
    tokenizer = byte_level([isolated(pattern) for pattern in SPLIT_DEEPSEEK])
    special(tokenizer, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
    return tokenizer


def partial_alphabet() -> Tokenizer:
    """Byte-level BPE that lacks most bytes and has no unknown token: such bytes vanish."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=200, show_progress=False)
    tokenizer.train_from_iterator(["the river turns the mill wheel, slowly. and it is the mill! the mill"] * 5, trainer)
    return tokenizer


SP_SPECIAL = ["<unk>", "<s>", "</s>"]


def with_byte_tokens(tokenizer: Tokenizer, **options) -> Tokenizer:
    """The same model with the 256 byte tokens after the first three, as in converted SentencePiece models."""
    model = json.loads(tokenizer.to_str())["model"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    texts = SP_SPECIAL + bytes_ + [t for t in sorted(model["vocab"], key=model["vocab"].get) if t not in SP_SPECIAL]
    vocab = {text: i for i, text in enumerate(texts)}
    merges = [tuple(merge) for merge in model["merges"]]
    return Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True, **options))


def sentencepiece_decoder(strip: bool):
    rules = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(rules + ([decoders.Strip(" ", 1, 0)] if strip else []))


def metaspace_bpe(prepend_scheme: str) -> Tokenizer:
    """BPE over characters with spaces as marks, trained word by word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    train(tokenizer, 700, special_tokens=SP_SPECIAL, limit_alphabet=120)
    return tokenizer


def llama2() -> Tokenizer:
    tokenizer = with_byte_tokens(metaspace_bpe("always"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = sentencepiece_decoder(strip=True)
    special(tokenizer, *SP_SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def mistral() -> Tokenizer:
    """Llama 2's model as newer files write it: `Metaspace` prepends the mark, once."""
    tokenizer = with_byte_tokens(metaspace_bpe("always"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = sentencepiece_decoder(strip=True)
    special(tokenizer, *SP_SPECIAL)
    tokenizer.add_special_tokens([AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def gemma() -> Tokenizer:
    """Gemma's rules: no mark in front, runs of spaces and line breaks as separate tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    train(tokenizer, 700, special_tokens=SP_SPECIAL, limit_alphabet=120)
    tokenizer = with_byte_tokens(tokenizer)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = sentencepiece_decoder(strip=False)
    special(tokenizer, *SP_SPECIAL, "<start_of_turn>", "<end_of_turn>")
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ["\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>"]])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace() -> Tokenizer:
    """`Metaspace` on both sides, no byte tokens: unknown characters are fused."""
    tokenizer = metaspace_bpe("always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special(tokenizer, *SP_SPECIAL)
    return tokenizer


def word_piece(**normalizer) -> Tokenizer:
    """BERT's kind of tokenizer, WordPiece."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(clean_text=True, **normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=600, limit_alphabet=130, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(corpus(3, 1500), trainer)
    # Tokens before which the decoder writes no space.
    tokenizer.add_tokens([AddedToken("n't", normalized=False)])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def bert_uncased() -> Tokenizer:
    tokenizer = word_piece(handle_chinese_chars=True, strip_accents=None, lowercase=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def bert_cased() -> Tokenizer:
    tokenizer = word_piece(handle_chinese_chars=False, strip_accents=False, lowercase=False)
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


# A few rules of NFKC and of white space. SentencePiece's whole map takes a quarter of a megabyte.
MAPPED = {
    **{chr(c): chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)}, "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u2028": " ",
    "ﬁ": "fi", "ﬂ": "fl", "①": "1", "½": "1⁄2", "²": "2", "Ⅷ": "VIII", "e\u0301": "é", "n\u0303": "ñ", "A\u030a": "\u00c5", "\u212b": "\u00c5", "ᄀ\u1161": "가",
    "\u200b": " ", "\ufeff": "", "\u0007": "", "…": "...", "ｶ\uff9e": "ガ",
}


def train_unigram(**options) -> bytes:
    """Trains a SentencePiece model of kind Unigram, with the small map."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as rules:
        for source, target in MAPPED.items():
            codes = [" ".join(f"{ord(c):X}" for c in text) for text in (source, target)]
            rules.write("\t".join(codes) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus(3, 1500)), model_writer=model, model_type="unigram", character_coverage=0.98,
            normalization_rule_tsv=rules.name, hard_vocab_limit=False, num_threads=1, minloglevel=2, **{"vocab_size": 600, **options},
        )
    return model.getvalue()


def protobuf_fields(message: bytes):
    """Numbers and values of the fields of a message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            length = {1: 8, 5: 4}.get(key & 7) or number()
            yield key >> 3, message[at:at + length]
            at += length


def charsmap(model: bytes) -> bytes:
    """`normalizer_spec.precompiled_charsmap` of a SentencePiece model."""
    return dict(protobuf_fields(dict(protobuf_fields(model))[3]))[2]


def unigram(model: bytes, **options) -> Tokenizer:
    """A SentencePiece model in the form of `tokenizer.json`."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [(processor.id_to_piece(id), processor.get_score(id)) for id in range(processor.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=processor.unk_id(), **options))
    special(tokenizer, *SP_SPECIAL)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def t5() -> Tokenizer:
    model = train_unigram()
    tokenizer = unigram(model)
    tokenizer.normalizer = normalizers.Precompiled(charsmap(model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 2)])
    return tokenizer


def xlm_roberta() -> Tokenizer:
    model = train_unigram(byte_fallback=True, vocab_size=800)
    tokenizer = unigram(model, byte_fallback=True)
    runs = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(model)), normalizers.Strip(left=False, right=True), runs])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    special(tokenizer, "<mask>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def albert() -> Tokenizer:
    model = train_unigram(byte_fallback=True, vocab_size=700)
    tokenizer = unigram(model, byte_fallback=True)
    replace = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    small = [normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence([*replace, *small, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def without_special(value: dict) -> Tokenizer:
    """The tokenizer with a Unigram model that reads the spelling of a special token as text, as SentencePiece does. The
    package's own model would make the special token."""
    value = json.loads(json.dumps(value))
    contents = [token["content"] for token in value["added_tokens"] if token["special"]]
    value["added_tokens"] = [token for token in value["added_tokens"] if not token["special"]]
    for piece in value["model"]["vocab"]:
        if piece[0] in contents:
            piece[0] = "\U0010fffd" + piece[0]
    return Tokenizer.from_str(json.dumps(value))


def write_tokenizer(out: Path, name: str, tokenizer: Tokenizer) -> None:
    value = json.loads(tokenizer.to_str())
    if name in ("gpt2", "llama2"):
        value["model"]["merges"] = [" ".join(merge) for merge in value["model"]["merges"]]
    write(out / f"{name}.json", value)
    tokenizer = Tokenizer.from_str(json.dumps(value))
    added = [token["content"] for token in value["added_tokens"]]
    plain = without_special(value) if value["model"]["type"] == "Unigram" else tokenizer
    cases = []
    for text in texts(added[:6]):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids, "special": tokenizer.encode(text).ids}
        plain.encode_special_tokens = True
        case["plain"] = plain.encode(text, add_special_tokens=False).ids
        plain.encode_special_tokens = False
        case["decoded"] = tokenizer.decode(case["special"], skip_special_tokens=False)
        case["skipped"] = tokenizer.decode(case["special"], skip_special_tokens=True)
        cases.append(compact(case, {"special": "ids", "plain": "ids", "decoded": "text", "skipped": "text"}))
    write(out / f"{name}.cases.json", cases)


def compact(case: dict, same_as: dict) -> dict:
    """Drops fields that equal another one."""
    return {key: value for key, value in case.items() if key not in same_as or value != case[same_as[key]]}


def token_type(processor: sentencepiece.SentencePieceProcessor, id: int, user_defined: list[str]) -> int:
    """The token's number in `tokenizer.ggml.token_type`."""
    if processor.is_unknown(id):
        return 2
    if processor.is_control(id):
        return 3
    if processor.id_to_piece(id) in user_defined:
        return 4
    if processor.is_unused(id):
        return 5
    return 6 if processor.is_byte(id) else 1


def write_unigram(out: Path, name: str, **options) -> None:
    """Writes a SentencePiece Unigram model as in GGUF files, with the ids that SentencePiece itself gives."""
    model = train_unigram(**options)
    more = {
        "remove_extra_whitespaces": options.get("remove_extra_whitespaces", True),
        "precompiled_charsmap": base64.b64encode(charsmap(model)).decode(),
    }
    write_pieces(out, name, model, options, more)


def write_sentencepiece(out: Path, name: str, **options) -> None:
    """Writes a SentencePiece BPE model as in GGUF files, with the ids that SentencePiece itself gives."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(3, 1500)), model_writer=model, model_type="bpe", vocab_size=800, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        minloglevel=2, **options,
    )
    write_pieces(out, name, model.getvalue(), options, {})


def write_pieces(out: Path, name: str, model: bytes, options: dict, more: dict) -> None:
    """Writes the pieces of a model, and SentencePiece's results for the texts."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    user_defined = options.get("user_defined_symbols", [])
    ids = range(processor.get_piece_size())
    write(out / f"{name}.json", {
        "tokens": [processor.id_to_piece(id) for id in ids],
        "scores": [processor.get_score(id) for id in ids],
        "token_types": [token_type(processor, id, user_defined) for id in ids],
        "add_space_prefix": options.get("add_dummy_prefix", True),
        **more,
    })
    cases = []
    for text in texts(user_defined):
        # SentencePiece ends a string at NUL, and cannot distinguish a mark in the text from a space.
        if "\0" in text or "▁" in text:
            continue
        ids = processor.encode(text)
        # SentencePiece prints a sign for unknown pieces, which is not part of the text.
        decoded = processor.decode(ids).replace(" ⁇ ", "")
        cases.append(compact({"text": text, "ids": ids, "decoded": decoded}, {"decoded": "text"}))
    write(out / f"{name}.cases.json", cases)


def write(path: Path, value) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path}: {len(text.encode()) // 1024} KiB")


# The expressions of `tokenizer.ggml.pre`, from the models' `tokenizer.json`; llama.cpp's `llama-vocab.cpp` quotes them.
O200K = SPLIT_TEKKEN.replace("]*|", "]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|").replace("]+|[^", "]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^")
SPLIT_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
HAN = r"&&[^\p{Han}]"
UPPER, LOWER = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{HAN}]", rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{HAN}]"
ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
LINES = r"[^\n]+|[\n]+"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
PRETOKENIZERS = {
    "llama-bpe": [SPLIT_LLAMA3], "glm5": [SPLIT_LLAMA3], "jina-v5-nano": [SPLIT_LLAMA3],
    "modern-bert": [SPLIT_GPT2], "roberta-bpe": [SPLIT_GPT2],
    "f2llmv2": [SPLIT_QWEN2],
    "minimax-m2": [O200K.replace(r"|\p{N}|", r"|\p{N}{1,3}|")],
    "granite-embed-multi-97m": [O200K.replace(r"|\p{N}|", r"|\p{N}{1,3}|")],
    "hunyuan-dense": SPLIT_DEEPSEEK, "joyai-llm": SPLIT_DEEPSEEK,
    "minicpm5": [r"\p{N}{1,3}", SPLIT_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")],
    "kimi-k2": ["|".join([
        r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}",
        r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
    ])],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "exaone-moe": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K.replace(r"|\p{N}|", r"|\p{N}{1,3}|")],
    "laguna": [LINES, SPLIT_QWEN2],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        "[一-鿿㐀-䶿\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
        SPLIT_DEEPSEEK[2],
    ],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\u3001-\u303f\ufe30-\ufe4f]+|[ㄅ-ㄯ]+|[一-龥\u3040-\u309f\u30a0-\u30ff]+", O200K,
    ],
    "spark2_5": [SPLIT_DEEPSEEK[0], SPLIT_DEEPSEEK[1], SPLIT_DEEPSEEK[2].replace(r"+[\r\n]*|\s*[\r\n]+|", r"+|[\r\n]|"), r"\p{N}"],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "jais-2": [SPLIT_LLAMA3.replace(r"\s+(?!\S)|\s+", "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"\s{1}")],
    "ufakzeka": [SPLIT_QWEN2.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)|", "")],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", SPLIT_GPT2],
    "bloom": [BLOOM], "poro-chat": [BLOOM], "viking": [BLOOM, r"\p{N}"],
    "gemma4": [LINES], "sarvam-moe": [LINES],
}

PRETOKENIZED = [
    "Hello,  World 1234! it's\r\n\n x=(a|b);  ", "Größe Ω ЖУК наб 你好世界，再见。한국어 ひらがな ١٢٣ don't", "\tif x:\n\t\treturn 3.14 // ok?\n",
    "a…b । نص، 😀 e\u0301  ", "1234567 12345678 123456789 1a12b123c1234d 12,345.6 ½1234² ٣٤٥٦٧", "PARSEJson camelCaseWords HTTPServer 你hello世界World我's",
    "ab cd  ef\u0301 gh\n\n\nij / k/\n", "     x         y" + " " * 70 + "z\n   \n", "<sentinel:12>IMGIMGABZ IMGIMGZ\t\t    a", "안녕！…ㄱㄴ「引用」ㄅㄆ ไทยคำ ລາວ ខ្មែរ မြန်မာ",
    "'S 'Re it'LL we’ve ſ'ſ", "x!y #tag @user $5 a_b __init__ (z) --flag", "\n\n", " ", "", "\u00a0\u2003 \u3000x", "नमस्ते दुनिया ภาษา שָׁלוֹם مُرَحَّب",
]


def write_pretokenizers(path: Path) -> None:
    """Writes the package's splits of some texts."""
    out = {}
    for name, patterns in PRETOKENIZERS.items():
        cut = pre_tokenizers.Sequence([isolated(pattern) for pattern in patterns])
        out[name] = [[piece for piece, _ in cut.pre_tokenize_str(text)] for text in PRETOKENIZED]
    cut = pre_tokenizers.WhitespaceSplit()
    out["whitespace"] = [[piece for piece, _ in cut.pre_tokenize_str(text)] for text in PRETOKENIZED]
    write(path, {"texts": PRETOKENIZED, "pieces": out})


END = "<|endoftext|>"
# What folders with vocab.json and merges.txt say in tokenizer_config.json: a class, tokens, what is put around a text.
SEPARATE = [
    {"tokenizer_class": "GPT2Tokenizer"},
    {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True, "bos_token": None, "pad_token": "<pad>"},
    # OPT: the end token is the first one too, and begins every text.
    {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>",
     "pad_token": {"__type": "AddedToken", "content": "<pad>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}},
    {"tokenizer_class": "GPT2Tokenizer", "add_eos_token": True, "added_tokens_decoder": {
        "702": {"content": "<|new|>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False, "special": True},
        "703": {"content": "mill wheel", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False, "special": False}}},
    {"tokenizer_class": "CodeGenTokenizer", "add_prefix_space": False},
    {"tokenizer_class": "RobertaTokenizer"},
    {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]},
]


def write_separate(out: Path) -> None:
    """Writes vocab.json and merges.txt of a tokenizer, and transformers' results for folders of them."""
    from transformers import AutoTokenizer

    trained = byte_level([], vocab_size=698)
    special(trained, END, "</s>")
    with tempfile.TemporaryDirectory() as folder:
        trained.model.save(folder)
        vocab = json.loads((Path(folder) / "vocab.json").read_text())
        vocab.update({END: 698, "</s>": 699})
        (Path(folder) / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
        merges = (Path(folder) / "merges.txt").read_text(encoding="utf-8")
        folders = []
        for config in SEPARATE:
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
            tokenizer = AutoTokenizer.from_pretrained(folder)
            assert type(tokenizer).__name__ == config["tokenizer_class"].removesuffix("Fast"), type(tokenizer)
            cases = []
            for text in texts([END, "<|new|>", "mill wheel", "<|im_start|>"])[::2]:
                ids = tokenizer.encode(text, add_special_tokens=False)
                case = {"text": text, "ids": ids, "special": tokenizer.encode(text)}
                cases.append(compact(case, {"special": "ids"}))
            folders.append({"config": config, "cases": cases})
    write(out / "separate.json", {"vocab": vocab, "merges": merges, "folders": folders})


# The same for SentencePiece's pieces.
SEPARATE_PIECES = [
    {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False},
    {"tokenizer_class": "LlamaTokenizerFast", "legacy": True, "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False,
     "normalized": True, "rstrip": False, "single_word": False}},
    {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False, "add_eos_token": True, "pad_token": "[PAD]"},
    {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "added_tokens_decoder": {
        "600": {"content": "[INST]", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": False}}},
]


def write_separate_pieces(out: Path) -> None:
    """Writes a SentencePiece model, and transformers' results for folders of it. Needs the package `protobuf`."""
    from transformers import AutoTokenizer

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(3, 1500)), model_writer=model, model_type="bpe", vocab_size=600, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1, minloglevel=2,
        user_defined_symbols=["<|mark|>", "a  b"],
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.model").write_bytes(model.getvalue())
        folders = []
        for config in SEPARATE_PIECES:
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
            tokenizer = AutoTokenizer.from_pretrained(folder)
            assert type(tokenizer).__name__ == config["tokenizer_class"].removesuffix("Fast"), type(tokenizer)
            cases = []
            for text in texts(["<s>", "<|mark|>", "a  b", "[INST]"])[::2]:
                ids = tokenizer.encode(text, add_special_tokens=False)
                case = {"text": text, "ids": ids, "special": tokenizer.encode(text)}
                cases.append(compact(case, {"special": "ids"}))
            folders.append({"config": config, "cases": cases})
    write(out / "separate_pieces.json", {"model": base64.b64encode(model.getvalue()).decode(), "folders": folders})


BUILDERS = (
    llama3, qwen2, gpt2, smollm, tekken, deepseek, partial_alphabet, llama2, mistral, gemma, metaspace, bert_uncased, bert_cased, t5, xlm_roberta, albert,
)


def main() -> None:
    default = Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/tokenizers"
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    names = sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)

    def wanted(name: str) -> bool:
        return not names or name in names

    for build in BUILDERS:
        if wanted(build.__name__):
            write_tokenizer(out, build.__name__, build())
    if wanted("pretokenizers"):
        write_pretokenizers(out.parent / "pretokenizers.json")
    if wanted("separate"):
        write_separate(out)
    if wanted("separate_pieces"):
        write_separate_pieces(out)
    if wanted("spm_llama"):
        write_sentencepiece(out, "spm_llama", split_digits=True)
    if wanted("spm_gemma"):
        write_sentencepiece(
            out, "spm_gemma", add_dummy_prefix=False, user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n\n", "[x]"],
            allow_whitespace_only_pieces=True,
        )
    if wanted("spm_t5"):
        write_unigram(out, "spm_t5")
    if wanted("spm_unigram"):
        write_unigram(
            out, "spm_unigram", add_dummy_prefix=False, remove_extra_whitespaces=False, byte_fallback=True, vocab_size=800,
            split_by_whitespace=False,
        )


if __name__ == "__main__":
    main()
