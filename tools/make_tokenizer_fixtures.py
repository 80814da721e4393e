#!/usr/bin/env python3
"""Trains tiny tokenizers of every supported kind and writes what the reference makes of many texts.

The references are Hugging Face `tokenizers` and Google's `sentencepiece`. For each kind two files go to
crates/text/tests/fixtures/: NAME.json, the tokenizer (`tokenizer.json`, or the pieces of a SentencePiece
model), and NAME.cases.json, the texts with their ids. The Rust tests need no Python.

    python tools/make_tokenizer_fixtures.py [OUT_DIR]

Needs the packages `tokenizers` and `sentencepiece`. Training breaks some ties at random, so that a new run may
train other tokenizers; each comes with its own cases.
"""

import io
import json
import random
import sys
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
    """Lines of words of many scripts; a few words are much more frequent, as in real text."""
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
    """GPT-2's rules, with every condition that an added token may have."""
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
    """The same model with the 256 byte tokens behind the first three, as converted SentencePiece models have them."""
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
    """Llama 2's model as newer files write it: the mark is put in front by `Metaspace`, once."""
    tokenizer = with_byte_tokens(metaspace_bpe("always"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = sentencepiece_decoder(strip=True)
    special(tokenizer, *SP_SPECIAL)
    tokenizer.add_special_tokens([AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def gemma() -> Tokenizer:
    """Gemma's rules: no mark in front, runs of spaces and line breaks as tokens of their own."""
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


def write_tokenizer(out: Path, name: str, tokenizer: Tokenizer) -> None:
    value = json.loads(tokenizer.to_str())
    if name in ("gpt2", "llama2"):
        value["model"]["merges"] = [" ".join(merge) for merge in value["model"]["merges"]]
    write(out / f"{name}.json", value)
    tokenizer = Tokenizer.from_str(json.dumps(value))
    added = [token["content"] for token in value["added_tokens"]]
    cases = []
    for text in texts(added[:6]):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids, "special": tokenizer.encode(text).ids}
        tokenizer.encode_special_tokens = True
        case["plain"] = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        case["decoded"] = tokenizer.decode(case["special"], skip_special_tokens=False)
        case["skipped"] = tokenizer.decode(case["special"], skip_special_tokens=True)
        cases.append(compact(case, {"special": "ids", "plain": "ids", "decoded": "text", "skipped": "text"}))
    write(out / f"{name}.cases.json", cases)


def compact(case: dict, same_as: dict) -> dict:
    """Drops what equals another field."""
    return {key: value for key, value in case.items() if key not in same_as or value != case[same_as[key]]}


def token_type(processor: sentencepiece.SentencePieceProcessor, id: int, user_defined: list[str]) -> int:
    """The number of `tokenizer.ggml.token_type`."""
    if processor.is_unknown(id):
        return 2
    if processor.is_control(id):
        return 3
    if processor.id_to_piece(id) in user_defined:
        return 4
    if processor.is_unused(id):
        return 5
    return 6 if processor.is_byte(id) else 1


def write_sentencepiece(out: Path, name: str, **options) -> None:
    """A SentencePiece BPE model as GGUF files carry it, with the ids that SentencePiece itself gives."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(3, 1500)), model_writer=model, model_type="bpe", vocab_size=800, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        minloglevel=2, **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    user_defined = options.get("user_defined_symbols", [])
    ids = range(processor.get_piece_size())
    write(out / f"{name}.json", {
        "tokens": [processor.id_to_piece(id) for id in ids],
        "scores": [processor.get_score(id) for id in ids],
        "token_types": [token_type(processor, id, user_defined) for id in ids],
        "add_space_prefix": options.get("add_dummy_prefix", True),
    })
    cases = []
    for text in texts(user_defined):
        # A NUL ends a string for SentencePiece, and a mark in the text is indistinguishable from a space.
        if "\0" in text or "▁" in text:
            continue
        ids = processor.encode(text)
        cases.append(compact({"text": text, "ids": ids, "decoded": processor.decode(ids)}, {"decoded": "text"}))
    write(out / f"{name}.cases.json", cases)


def write(path: Path, value) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path}: {len(text.encode()) // 1024} KiB")


def main() -> None:
    default = Path(__file__).resolve().parent.parent / "crates/text/tests/fixtures/tokenizers"
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    out.mkdir(parents=True, exist_ok=True)
    for build in (llama3, qwen2, gpt2, smollm, tekken, deepseek, partial_alphabet, llama2, mistral, gemma, metaspace):
        write_tokenizer(out, build.__name__, build())
    write_sentencepiece(out, "spm_llama", split_digits=True)
    write_sentencepiece(
        out, "spm_gemma", add_dummy_prefix=False, user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n\n", "[x]"],
        allow_whitespace_only_pieces=True,
    )


if __name__ == "__main__":
    main()
