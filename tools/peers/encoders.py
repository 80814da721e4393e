#!/usr/bin/env python3
"""Measures the texts a second of encoders: `millrace embed`, ONNX Runtime and llama.cpp's `llama-embedding`, with the same weights.

    python tools/peers/encoders.py [--models minilm-l6 bge-small bge-base nomic] [--texts 256] [--runs 5]
        [--binary target/release/millrace] [--llama-embedding PATH] [--threads 2] [--out FILE.json]

The weights are random, in the shapes of the published models, so nothing is downloaded. There are three forms: a folder
that transformers writes, the GGUF file that `millrace quantize` makes from it, and the graph that torch exports. All
programs compute in float32. They are measured in turn, one run each per round, and medians are printed. The time of a run
is the time for a long list of texts minus that for a list of one text, so that opening a model does not count. ONNX
Runtime, which runs in this process, is timed in the same way. Texts have mixed lengths; ONNX Runtime gets them sorted and
padded in batches, which is fastest for it. Vectors are compared before anything is timed.

Needs torch, transformers, onnx, onnxscript, onnxruntime, numpy.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers

LETTERS = "abcdefghijklmnopqrstuvwxyz"

# Sizes as published; the class without its suffix.
MODELS = {
    "minilm-l6": ("Bert", dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)),
    "bge-small": ("Bert", dict(hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536)),
    "bge-base": ("Bert", dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)),
    "nomic": ("NomicBert", dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)),
}
VOCAB_SIZE = 30522
# Mean lengths of texts, in words: queries, sentences, passages.
LENGTHS = (6, 20, 120)


def word(i):
    """Word number `i`, of two to four letters."""
    n = len(LETTERS)
    text = LETTERS[i % n] + LETTERS[i // n % n]
    i //= n * n
    while i:
        text += LETTERS[i % n]
        i //= n
    return text


def tokenizer_of(folder):
    """A WordPiece tokenizer of such words, like BERT's."""
    import tokenizers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocab = {token: i for i, token in enumerate([*special, *(word(i) for i in range(VOCAB_SIZE - len(special)))])}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(special)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])],
    )
    names = dict(unk_token="[UNK]", sep_token="[SEP]", cls_token="[CLS]", pad_token="[PAD]", mask_token="[MASK]")
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
    whole.save_pretrained(folder)
    return whole


def texts_of(n):
    rng = np.random.default_rng(7)
    words = [int(max(1, rng.poisson(LENGTHS[i % len(LENGTHS)]))) for i in range(n)]
    return [" ".join(word(int(i)) for i in rng.integers(0, VOCAB_SIZE - 5, length)) for length in words]


def make(name, folder, binary):
    """Writes the model as a folder, a graph and a GGUF file, and its tokenizer."""
    kind, sizes = MODELS[name]
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(vocab_size=VOCAB_SIZE, max_position_embeddings=512, **sizes)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    model.save_pretrained(folder)
    tokenizer = tokenizer_of(folder)
    pooling = folder / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text(
        json.dumps(dict(word_embedding_dimension=config.hidden_size, pooling_mode_mean_tokens=True))
    )
    graph = folder.parent / f"{name}.onnx"

    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            rows = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(rows.dtype)
            return torch.nn.functional.normalize((rows * mask).sum(1) / mask.sum(1), dim=1)

    ids = torch.randint(5, VOCAB_SIZE, (2, 9))
    axes = {0: torch.export.Dim("batch", min=1, max=1024), 1: torch.export.Dim("tokens", min=2, max=512)}
    torch.onnx.export(
        Pooled(),
        (ids, torch.ones_like(ids)),
        str(graph),
        input_names=["input_ids", "attention_mask"],
        output_names=["vectors"],
        dynamic_shapes={"input_ids": axes, "attention_mask": axes},
        dynamo=True,
    )
    gguf = folder.parent / f"{name}.gguf"
    subprocess.run([binary, "-q", "quantize", folder, gguf, "F32"], check=True)
    return tokenizer, graph, gguf


class Onnx:
    """ONNX Runtime in this process."""

    def __init__(self, graph, tokenizer, threads, batch):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self.tokenizer, self.batch = tokenizer, batch

    def vectors(self, texts):
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out = [None] * len(texts)
        for first in range(0, len(order), self.batch):
            part = order[first : first + self.batch]
            given = self.tokenizer([texts[i] for i in part], padding=True, return_tensors="np")
            given = {key: given[key].astype(np.int64) for key in ("input_ids", "attention_mask")}
            for i, vector in zip(part, self.session.run(["vectors"], given)[0]):
                out[i] = vector
        return np.array(out)


class Millrace:
    def __init__(self, binary, model, threads, folder):
        self.command = [binary, "-q", "embed", model, "-t", str(threads), "--batch", "32"]
        self.folder = folder

    def vectors(self, texts):
        path = self.folder / "texts.txt"
        path.write_text("\n".join(texts) + "\n")
        done = subprocess.run([*self.command, path], check=True, capture_output=True, text=True)
        return np.array([json.loads(line)["embedding"] for line in done.stdout.splitlines()])


class LlamaEmbedding:
    def __init__(self, binary, model, threads, folder):
        self.command = [binary, "-m", model, "-t", str(threads), "--pooling", "mean", "--embd-output-format", "array"]
        self.command += ["-b", "2048", "-ub", "2048", "--log-verbosity", "0"]
        self.folder = folder

    def vectors(self, texts):
        path = self.folder / "texts.txt"
        path.write_text("\n".join(texts))
        done = subprocess.run([*self.command, "-f", path], check=True, capture_output=True, text=True)
        # At verbosity 0, its log, which shares the stream, has only the vectors. The closing brackets may be missing, since
        # the program does not always wait for the end of its log.
        rows = done.stdout.strip().strip("[],").split("],[")
        return np.array([[float(x) for x in row.split(",")] for row in rows])


def seconds(program, texts):
    begin = time.perf_counter()
    program.vectors(texts)
    return time.perf_counter() - begin


def measure(programs, texts, runs):
    """Texts a second by program: medians of runs in turn."""
    found = {name: [] for name in programs}
    for _ in range(runs):
        for name, program in programs.items():
            opening = seconds(program, texts[:1])
            found[name].append((len(texts) - 1) / max(seconds(program, texts) - opening, 1e-9))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--binary", type=Path, default=Path("target/release/millrace"))
    parser.add_argument("--llama-embedding", type=Path, metavar="PATH")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    texts = texts_of(arguments.texts)
    rows = []
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as temp:
            temp = Path(temp)
            folder = temp / name
            tokenizer, graph, gguf = make(name, folder, arguments.binary.resolve())
            programs = {
                "millrace, folder": Millrace(arguments.binary.resolve(), folder, arguments.threads, temp),
                "millrace, GGUF": Millrace(arguments.binary.resolve(), gguf, arguments.threads, temp),
                "ONNX Runtime": Onnx(graph, tokenizer, arguments.threads, 32),
            }
            if arguments.llama_embedding:
                peer = arguments.llama_embedding.resolve()
                programs["llama.cpp"] = LlamaEmbedding(peer, gguf, arguments.threads, temp)
            expected = programs["ONNX Runtime"].vectors(texts[:24])
            for label, program in programs.items():
                worst = float(np.abs(program.vectors(texts[:24]) - expected).max())
                print(f"{name}: {label} differs from ONNX Runtime by {worst:.1e}", flush=True)
                assert worst < 1e-3, "not the same model"
            found = measure(programs, texts, arguments.runs)
            for label, speeds in found.items():
                median = statistics.median(speeds)
                spread = f"{min(speeds):.1f} to {max(speeds):.1f}"
                print(f"{name:10} {label:18} {median:8.1f} texts/s ({spread})", flush=True)
                rows.append(dict(model=name, program=label, texts_per_s=median, runs=speeds))
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
