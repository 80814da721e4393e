#!/usr/bin/env python3
"""Makes the fixtures of testdata/encoders: tiny random encoders, and the hidden states that transformers computes.

    python3 tools/make_encoder_goldens.py [--only NAME ...] [--llama-cpp DIR]

Each folder holds `config.json` and `model.safetensors` as transformers writes them, and `expected.safetensors`. The latter has the
tokens, the input of each block and the output of the last; for a ranker, it has the score of a pair. With --llama-cpp there is also the
file that llama.cpp's converter makes.
"""

import argparse
import json
import shutil
import sys
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


# The class without its suffix, arguments, number of tokens, and whether llama.cpp converts it.
FIXTURES = {
    # Learned positions, two kinds of text.
    "bert": ("Bert", sizes(), 37, True),
    # Positions start after that of the padding token; one kind of text; another activation.
    "xlm-roberta": ("XLMRoberta", sizes(pad_token_id=1, type_vocab_size=1), 41, True),
    "bert-tanh": ("Bert", sizes(vocab_size=131, hidden_act="gelu_new", layer_norm_eps=1e-5), 19, False),
    # Windows in both directions, norms of heads, a norm at the end.
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
    "nomic-bert": ("NomicBert", sizes(), 33, True),
    # Windows in two of three layers, which have another rotary base; no norm before the first block's attention.
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
    # Llama's blocks with bidirectional attention.
    "eurobert": (
        "EuroBert",
        sizes(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            # llama.cpp's converter supports this pooling and `cls`, not the usual one.
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
    # BERT's blocks without kinds of text.
    "distilbert": (
        "DistilBert",
        dict(vocab_size=263, dim=40, hidden_dim=56, n_layers=3, n_heads=5, max_position_embeddings=70),
        33,
        True,
    ),
    # EuroBERT's class computes the same.
    "llama-embed": (
        "EuroBert",
        sizes(
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            rope_parameters={"rope_type": "default", "rope_theta": 900.0},
            **{f"{token}_token_id": 2 for token in ("bos", "eos", "mask")},
        ),
        29,
        True,
    ),
}

# Keys of published folders of a family that transformers computes with another family's class.
REWRITTEN = {"llama-embed": dict(model_type="llama_bidirec", architectures=["LlamaBidirectionalModel"], pooling="avg")}

# Keys of published folders that transformers' class names differently, for llama.cpp's converter.
CONVERTED_AS = {
    "jina-bert-v3": dict(architectures=["XLMRobertaModel"], lora_adaptations=["none"]),
    "nomic-bert": dict(
        activation_function="swiglu",
        causal=False,
        layer_norm_epsilon=1e-12,
        max_trained_positions=2048,
        mlp_fc1_bias=False,
        mlp_fc2_bias=False,
        n_embd=40,
        n_head=5,
        n_inner=56,
        n_layer=3,
        n_positions=8192,
        prenorm=False,
        qkv_proj_bias=False,
        rotary_emb_base=1000.0,
        rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False,
        rotary_emb_scale_base=None,
    ),
}


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
            is_table = "embeddings" in parameter or parameter == "encoder.weight"
            values = values * (0.4 if is_table else 1.5 / shape[1] ** 0.5)
        weights[parameter] = values.astype(np.float16).astype(np.float32)
    tokens = generator(name, "tokens").integers(4, config["vocab_size"], n_tokens)
    exact = {key: torch.from_numpy(value).double() for key, value in weights.items()}
    states = [state.float().numpy() for state in hidden(exact, config, torch.from_numpy(tokens))]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    expected = {"tokens": tokens.astype(np.int64), "last": states[-1]}
    # A norm may follow the last block.
    states = states[: config.get("num_hidden_layers", config.get("n_layer")) + 1]
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
            # Weights of norms, under any name.
            if not is_gemma and "norm" in parameter_name.lower() and parameter_name.endswith("weight"):
                values = generator(name, parameter_name).standard_normal(tuple(parameter.shape))
                values = (1.0 + 0.25 * values).astype(np.float16).astype(np.float32)
                parameter.copy_(torch.from_numpy(values))
    tokens = generator(name, "tokens").integers(4, arguments["vocab_size"], n_tokens)
    states = []
    if hasattr(model, "norm") or hasattr(model, "final_norm"):
        # The output of the last block differs from that of the norm after it.
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
    if name in REWRITTEN:
        config = json.loads((folder / "config.json").read_text()) | REWRITTEN[name]
        write_json(folder / "config.json", config)
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)


# Rankers: the class without its suffix, arguments, special tokens in the order of their ids.
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
    """A vocabulary of letters, which joins pairs of texts as published tokenizers do."""
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
# Prompt around a pair, from the model page of Qwen3-Reranker.
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
        **sizes(num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=1024),
        # This key marks a judge for vLLM, and for Millrace.
        is_original_qwen3_reranker=True,
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


def vocabulary_of(folder, writer):
    """Writes the tokenizer of a ranker's folder into a GGUF file, as llama.cpp's converter spells its kind."""
    read = json.loads((folder / "tokenizer.json").read_text())
    model, added = read["model"], {token["id"] for token in read["added_tokens"]}
    if model["type"] == "Unigram":
        tokens, scores = (list(column) for column in zip(*model["vocab"]))
        writer.add_tokenizer_model("t5")
        writer.add_tokenizer_pre("default")
        size = json.loads((folder / "config.json").read_text())["vocab_size"]
        writer.add_token_scores(scores + [-10000.0] * (size - len(scores)))
        writer.add_add_space_prefix(True)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
    else:
        known = model["vocab"] | {token["content"]: token["id"] for token in read["added_tokens"]}
        tokens = sorted(known, key=known.get)
        if model["type"] == "WordPiece":
            spelled = [t[2:] if t.startswith("##") else "\u2581" + t for t in tokens]
            tokens = [t if i in added else spelled[i] for i, t in enumerate(tokens)]
            writer.add_tokenizer_model("bert")
            writer.add_tokenizer_pre("jina-v2-en")
            writer.add_token_type_count(2)
            writer.add_bos_token_id(2)
            writer.add_sep_token_id(3)
        else:
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre("qwen2")
            writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
            writer.add_add_bos_token(False)
    if model["type"] == "Unigram":
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(2)
        writer.add_sep_token_id(2)
        writer.add_token_type_count(1)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    kinds = [3 if i in added else 1 for i in range(len(tokens))] + [5] * (size - len(tokens))
    if model["type"] == "Unigram":
        kinds[model["unk_id"]] = 2
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(len(tokens), size)])
    writer.add_token_types(kinds)


def convert_ranker(folder, llama_cpp):
    """Runs llama.cpp's converter on a ranker, with the ranker's own vocabulary."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import gguf
    from conversion import get_model_class

    with tempfile.TemporaryDirectory() as temp:
        # The converter recognises a judge by its folder's name.
        temp = Path(temp) / ("Qwen3-Reranker" if folder.name == JUDGE_NAME else folder.name)
        files = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
        shutil.copytree(folder, temp, ignore=lambda _, names: [name for name in names if name not in files])
        config = json.loads((temp / "config.json").read_text())
        if config.get("num_labels") is None and "id2label" not in config:
            config["id2label"] = {"0": "LABEL_0"}
        (temp / "config.json").write_text(json.dumps(config))
        with torch.inference_mode():
            converter = get_model_class(config["architectures"][0])
            path = folder / "model.f32.gguf"
            model = converter(temp, gguf.LlamaFileType.ALL_F32, path, model_name=folder.name)
            inner = getattr(model, "impl", model)
            inner.set_vocab = lambda: vocabulary_of(folder, inner.gguf_writer)
            model.write()


# Encoders with the modules that sentence-transformers adds after them: the class, arguments, pooling, and for each dense layer its width,
# whether it has a bias, and its activation.
TANH, IDENTITY = "torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity"
SMALL = dict(vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=1, num_attention_heads=3)
DENSE = {
    "bert-dense": ("Bert", sizes(**SMALL), "cls", [(16, True, TANH)]),
    # As in EmbeddingGemma.
    "gemma-embedding-dense": (
        "Gemma3Text",
        sizes(
            **SMALL | dict(num_attention_heads=2),
            num_key_value_heads=1,
            head_dim=16,
            query_pre_attn_scalar=16,
            use_bidirectional_attention=True,
            sliding_window=9,
        ),
        "mean",
        [(40, False, IDENTITY), (20, False, IDENTITY)],
    ),
}
PROMPTS = dict(prompts=dict(query="task: search result | query: ", document="title: none | text: "), default_prompt_name=None)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def make_dense(name, out):
    """Writes a folder of sentence-transformers, and the vector that its classes compute for a text."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    kind, arguments, pooling, layers = DENSE[name]
    config = getattr(transformers, f"{kind}Config")(**arguments)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    model = model.to(torch.float32).eval()
    fill(model, name, unit_norms=True)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temp) / file, folder / file)
    width = arguments["hidden_size"]
    steps = [Pooling(width, pooling_mode=pooling)]
    listed = [("Transformer", ""), ("Pooling", "1_Pooling")]
    keys = dict(mean="mean_tokens", cls="cls_token")
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    modes = {f"pooling_mode_{mode}": mode == keys[pooling] for mode in modes}
    write_json(folder / "1_Pooling" / "config.json", dict(word_embedding_dimension=width, **modes, include_prompt=True))
    for number, (n, bias, activation) in enumerate(layers, start=2):
        path = f"{number}_Dense"
        function = torch.nn.Tanh() if activation == TANH else torch.nn.Identity()
        step = Dense(width, n, bias=bias, activation_function=function)
        with torch.no_grad():
            for parameter_name, parameter in step.named_parameters():
                values = generator(name, f"{path}.{parameter_name}").standard_normal(tuple(parameter.shape))
                parameter.copy_(torch.from_numpy((values / width**0.5).astype(np.float32)))
        steps.append(step)
        listed.append(("Dense", path))
        keys = dict(in_features=width, out_features=n, bias=bias, activation_function=activation)
        write_json(folder / path / "config.json", keys)
        weights = {key: value.numpy() for key, value in step.state_dict().items()}
        save_file(weights, folder / path / "model.safetensors", metadata={"format": "pt"})
        (folder / path / "model.safetensors").chmod(0o644)
        width = n
    steps.append(Normalize())
    listed.append(("Normalize", f"{len(listed)}_Normalize"))
    listed = enumerate(listed)
    listed = [
        dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}") for i, (kind, path) in listed
    ]
    write_json(folder / "modules.json", listed)
    write_json(folder / "config_sentence_transformers.json", PROMPTS)
    tokens = generator(name, "tokens").integers(4, arguments["vocab_size"], 23)
    with torch.no_grad():
        ids = torch.from_numpy(tokens)[None]
        rows = model(ids).last_hidden_state
        features = dict(token_embeddings=rows, attention_mask=torch.ones_like(ids))
        for step in steps:
            features = step(features)
    expected = {"tokens": tokens.astype(np.int64), "embedding": features["sentence_embedding"].numpy()}
    expected["last"] = rows[0].numpy()
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = Path(__file__).resolve().parent.parent / "testdata" / "encoders"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", choices=[*FIXTURES, *REFERENCES, *RANKERS, *DENSE, JUDGE_NAME], metavar="NAME")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only or [*FIXTURES, *REFERENCES, *RANKERS, *DENSE, JUDGE_NAME]:
        print(name)
        if name == JUDGE_NAME:
            make_judge(name, arguments.out)
            if arguments.llama_cpp:
                convert_ranker(arguments.out / name, arguments.llama_cpp)
            continue
        if name in DENSE:
            make_dense(name, arguments.out)
            converts = False
        elif name in RANKERS:
            make_ranker(name, arguments.out)
            converts = RANKERS[name][1]["vocab_size"] == 263
            # llama.cpp's converter drops a layer of BERT's, so its file is refused.
            if arguments.llama_cpp and not converts:
                convert_ranker(arguments.out / name, arguments.llama_cpp)
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
