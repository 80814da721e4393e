#!/usr/bin/env python3
"""Makes the fixtures of testdata/encoders: tiny random encoders, and the hidden states transformers computes.

    python3 tools/make_encoder_goldens.py [--only NAME ...] [--llama-cpp DIR]

Each folder holds `config.json` and `model.safetensors` as transformers writes them, `expected.safetensors` with the
tokens, what enters each block and leaves the last (of a ranker the score of a pair), and with --llama-cpp what llama.cpp's converter makes of it.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.numpy import save_file

from goldens.encoder_references import REFERENCES
from make_goldens import convert, fill, generator


def sizes(**more):
    out = dict(
        vocab_size=263,
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=5,
        max_position_embeddings=70,
        pad_token_id=0,
    )
    out.update(more)
    return out


# The class without its ending, arguments, tokens, whether llama.cpp converts it.
FIXTURES = {
    # Learned positions, two kinds of text.
    "bert": ("Bert", sizes(), 37, True),
    # Positions behind that of the padding token, one kind of text; another activation.
    "xlm-roberta": ("XLMRoberta", sizes(pad_token_id=1, type_vocab_size=1), 41, True),
    "bert-tanh": ("Bert", sizes(vocab_size=131, hidden_act="gelu_new", layer_norm_eps=1e-5), 19, False),
    # Windows that reach to both sides, norms of heads, a norm at the end.
    "gemma-embedding": (
        "Gemma3Text",
        sizes(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16,
            use_bidirectional_attention=True,
            sliding_window=9,
            num_hidden_layers=6,
            intermediate_size=24,
            max_position_embeddings=512,
        ),
        39,
        True,
    ),
    # Rotated heads, gates, no biases.
    "nomic-bert": ("NomicBert", sizes(), 33, False),
    # Windows in two layers of three, which rotate by another base; the first block has no norm before attention.
    "modern-bert": (
        "ModernBert",
        sizes(
            num_hidden_layers=5,
            local_attention=14,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 3000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
            },
            **{f"{token}_token_id": 2 for token in ("bos", "eos", "cls", "sep")},
        ),
        43,
        True,
    ),
    # Llama's blocks with attention both ways.
    "eurobert": (
        "EuroBert",
        sizes(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            # llama.cpp's converter knows this way and `cls`, not the usual one.
            classifier_pooling="mean",
            rope_parameters={"rope_type": "default", "rope_theta": 700.0},
            **{f"{token}_token_id": 2 for token in ("bos", "eos", "mask")},
        ),
        35,
        True,
    ),
    # BERT's blocks with rotated heads in place of positions.
    "jina-bert-v3": (
        "JinaEmbeddingsV3",
        sizes(type_vocab_size=1, rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
        31,
        True,
    ),
}

# What published folders say where transformers' class has other words, for llama.cpp's converter.
CONVERTED_AS = {"jina-bert-v3": dict(architectures=["XLMRobertaModel"], lora_adaptations=["none"])}


def convert_as(name, folder, vocab_size, llama_cpp):
    with tempfile.TemporaryDirectory() as temp:
        temp = Path(temp)
        config = json.loads((folder / "config.json").read_text()) | CONVERTED_AS.get(name, {})
        (temp / "config.json").write_text(json.dumps(config))
        shutil.copyfile(folder / "model.safetensors", temp / "model.safetensors")
        convert(temp, vocab_size, llama_cpp)
        shutil.copyfile(temp / "model.f32.gguf", folder / "model.f32.gguf")


def make_by_reference(name, out):
    config, shapes, hidden, n_tokens = REFERENCES[name]
    weights = {}
    for parameter, shape in shapes(config).items():
        values = generator(name, parameter).standard_normal(shape)
        if "norm" in parameter.lower() or "emb_ln" in parameter:
            values = 0.25 * values + (1.0 if parameter.endswith("weight") else 0.0)
        elif len(shape) == 1:
            values = 0.5 * values
        else:
            values = values * (0.4 if "embeddings" in parameter else 1.5 / shape[1] ** 0.5)
        weights[parameter] = values.astype(np.float16).astype(np.float32)
    tokens = generator(name, "tokens").integers(4, config["vocab_size"], n_tokens)
    exact = {key: torch.from_numpy(value).double() for key, value in weights.items()}
    states = [state.float().numpy() for state in hidden(exact, config, torch.from_numpy(tokens))]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    expected = {"tokens": tokens.astype(np.int64), "last": states[-1]}
    expected.update({f"hidden.{i}": np.ascontiguousarray(state) for i, state in enumerate(states)})
    save_file(expected, folder / "expected.safetensors")
    for file in ("model.safetensors", "expected.safetensors"):
        (folder / file).chmod(0o644)


def make(name, out):
    kind, arguments, n_tokens, _ = FIXTURES[name]
    config = getattr(transformers, f"{kind}Config")(**arguments)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    model = model.to(torch.float32).eval()
    is_gemma = kind == "Gemma3Text"
    fill(model, name, unit_norms=is_gemma)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            # Weights of norms, whatever they are called.
            if not is_gemma and "norm" in parameter_name.lower() and parameter_name.endswith("weight"):
                values = generator(name, parameter_name).standard_normal(tuple(parameter.shape))
                values = (1.0 + 0.25 * values).astype(np.float16).astype(np.float32)
                parameter.copy_(torch.from_numpy(values))
    tokens = generator(name, "tokens").integers(4, arguments["vocab_size"], n_tokens)
    states = []
    if hasattr(model, "norm") or hasattr(model, "final_norm"):
        # What leaves the last block is not what leaves the norm behind it.
        model.layers[-1].register_forward_hook(
            lambda _module, _args, output: states.append(output[0] if isinstance(output, tuple) else output)
        )
    with torch.no_grad():
        given = model(torch.from_numpy(tokens)[None], output_hidden_states=True)
    states = [*given.hidden_states[:-1], *(states or given.hidden_states[-1:])]
    expected = {"tokens": tokens.astype(np.int64), "last": given.last_hidden_state[0].numpy()}
    expected.update({f"hidden.{i}": np.ascontiguousarray(state[0].numpy()) for i, state in enumerate(states)})
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temp) / file, folder / file)
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)


# Rankers: the class without its ending, arguments, special tokens in the order of their numbers.
PAIR = ("What runs to the river?", "A dog ran along, and saw the river.")
RANKERS = {
    "bert-rank": ("Bert", sizes(vocab_size=64), ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]),
    "xlm-roberta-rank": (
        "XLMRoberta",
        sizes(vocab_size=64, pad_token_id=1, type_vocab_size=1),
        ["<s>", "<pad>", "</s>", "<unk>"],
    ),
    # A layer with GELU and a norm over the mean of all tokens.
    "modern-bert-rank": (
        "ModernBert",
        sizes(
            vocab_size=263,
            local_attention=14,
            classifier_pooling="mean",
            classifier_bias=True,
            **{f"{token}_token_id": 2 for token in ("bos", "eos", "cls", "sep")},
        ),
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
    ),
}


def tokenizer_of(kind, special, folder):
    """A vocabulary of letters, and the pair of texts as published tokenizers put them together."""
    letters = "abcdefghijklmnopqrstuvwxyz?.,'"
    if kind != "XLMRoberta":
        vocab = {t: i for i, t in enumerate([*special, *letters, *("##" + c for c in letters[:26])])}
        made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
        made.normalizer = tokenizers.normalizers.BertNormalizer()
        made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        made.decoder = tokenizers.decoders.WordPiece()
        first, last, pair = "[CLS]", "[SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        names = dict(unk_token="[UNK]", sep_token="[SEP]", cls_token="[CLS]", pad_token="[PAD]")
    else:
        scores = [*((t, 0.0) for t in special), ("\u2581", -2.0)]
        scores += [(c, -3.0 - i / 100) for i, c in enumerate(letters + letters[:26].upper())][:55]
        vocab = {t: i for i, (t, _) in enumerate(scores)}
        made = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=3))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
        made.decoder = tokenizers.decoders.Metaspace()
        first, last, pair = "<s>", "</s>", "<s> $A </s> </s> $B </s>"
        names = dict(unk_token="<unk>", sep_token="</s>", cls_token="<s>", bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    made.add_special_tokens(special)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=pair, special_tokens=[(t, vocab[t]) for t in (first, last)]
    )
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    whole.save_pretrained(folder)
    return whole


JUDGE_NAME = "qwen3-rank"
# What the page of Qwen3-Reranker has around a pair.
JUDGE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def make_judge(name, out):
    """A causal model that answers yes or no."""
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocab = {t: i for i, t in enumerate([*sorted(letters), "ye", "yes", "no"])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("y", "e"), ("ye", "s"), ("n", "o")]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>")
    config = transformers.Qwen3Config(
        **sizes(num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=1024)
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.to(torch.float32).eval()
    fill(model, name, unit_norms=False)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        tokenizer.save_pretrained(temp)
        for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(Path(temp) / file, folder / file)
    tokens = tokenizer(JUDGE.format(*PAIR), return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(tokens).logits[0, -1]
    score = logits[vocab["yes"]] - logits[vocab["no"]]
    expected = {"tokens": tokens[0].numpy().astype(np.int64), "hidden.0": score.numpy().reshape(1, 1)}
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)
    print("  score", score)


def make_ranker(name, out):
    kind, arguments, special = RANKERS[name]
    config = getattr(transformers, f"{kind}Config")(num_labels=1, **arguments)
    model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    model = model.to(torch.float32).eval()
    fill(model, name, unit_norms=False)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        tokenizer = tokenizer_of(kind, special, temp)
        for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(Path(temp) / file, folder / file)
    given = tokenizer(*PAIR, return_tensors="pt", return_token_type_ids=kind == "Bert")
    with torch.no_grad():
        score = model(**given).logits[0]
    expected = {"tokens": given["input_ids"][0].numpy().astype(np.int64), "hidden.0": score.numpy()[None]}
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)
    print("  score", score)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = Path(__file__).resolve().parent.parent / "testdata" / "encoders"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", choices=[*FIXTURES, *REFERENCES, *RANKERS, JUDGE_NAME], metavar="NAME")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only or [*FIXTURES, *REFERENCES, *RANKERS, JUDGE_NAME]:
        print(name)
        if name == JUDGE_NAME:
            make_judge(name, arguments.out)
            continue
        if name in RANKERS:
            make_ranker(name, arguments.out)
            converts = RANKERS[name][1]["vocab_size"] == 263
        elif name in REFERENCES:
            make_by_reference(name, arguments.out)
            converts = True
        else:
            make(name, arguments.out)
            converts = FIXTURES[name][3]
        if converts and arguments.llama_cpp:
            convert_as(name, arguments.out / name, 263, arguments.llama_cpp)


if __name__ == "__main__":
    main()
