"""Writes a trained demo model as one F16 GGUF file.

    python tools/demo/export.py demo --run demo-run --out models
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

import vocab
from llama import Config

AUTHOR = "The Millrace authors"
NAMES = {"demo": "Millrace Demo", "demo-draft": "Millrace Demo Draft"}
DESCRIPTION = "A small model of little stories and short chats, trained from scratch on a corpus made by a grammar."
LAYER_TENSORS = {
    "attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}


def interleaved(weight: Tensor, n_heads: int) -> Tensor:
    """Reorders the rows of Q or K from half-split rotary pairs (i, i + head_dim / 2) to adjacent ones, as GGUF's llama has them."""
    n, k = weight.shape
    return weight.reshape(n_heads, 2, n // n_heads // 2, k).transpose(1, 2).reshape(n, k)


def add_metadata(w: gguf.GGUFWriter, name: str, c: Config) -> None:
    """General keys and the architecture's dimensions."""
    w.add_name(NAMES[name])
    w.add_author(AUTHOR)
    w.add_license("MIT OR Apache-2.0")
    w.add_description(DESCRIPTION)
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_custom_alignment(32)
    w.add_sampling_temp(0.7)
    w.add_sampling_top_k(40)
    w.add_sampling_top_p(0.95)
    w.add_context_length(c.context)
    w.add_embedding_length(c.d_model)
    w.add_block_count(c.n_layers)
    w.add_feed_forward_length(c.d_ff)
    w.add_head_count(c.n_heads)
    w.add_head_count_kv(c.n_kv_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(c.rope_theta)
    w.add_layer_norm_rms_eps(c.norm_eps)
    w.add_vocab_size(c.vocab_size)


def add_tokenizer(w: gguf.GGUFWriter, path: Path) -> None:
    """Tokens, merges, special ids and the chat template."""
    tokenizer = vocab.load(path)
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    special = set(vocab.SPECIALS)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges([" ".join(pair) for pair in json.loads(path.read_text())["model"]["merges"]])
    w.add_bos_token_id(tokens.index(vocab.BOS))
    w.add_eos_token_id(tokens.index(vocab.EOS))
    w.add_eot_token_id(tokens.index(vocab.END))
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template(vocab.CHAT_TEMPLATE)


def add_tensors(w: gguf.GGUFWriter, weights: dict[str, Tensor], c: Config) -> None:
    """Matrices in F16 and norms in F32. There is no output head, since it is tied to the embedding table."""

    def add(name: str, tensor: Tensor) -> None:
        kind = np.float16 if tensor.dim() == 2 else np.float32
        w.add_tensor(name, tensor.float().contiguous().numpy().astype(kind))

    add("token_embd.weight", weights["embed.weight"])
    for i in range(c.n_layers):
        for ours, theirs in LAYER_TENSORS.items():
            tensor = weights[f"blocks.{i}.{ours}.weight"]
            if ours in ("q", "k"):
                tensor = interleaved(tensor, c.n_heads if ours == "q" else c.n_kv_heads)
            add(f"blk.{i}.{theirs}.weight", tensor)
    add("output_norm.weight", weights["norm.weight"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=NAMES)
    parser.add_argument("--run", type=Path, default=Path("demo-run"), help="folder train.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the GGUF file")
    args = parser.parse_args()
    saved = torch.load(args.run / f"{args.model}.pt", weights_only=True)
    config = Config(**saved["config"])
    writer = gguf.GGUFWriter(args.out / f"{args.model}.gguf", "llama")
    add_metadata(writer, args.model, config)
    add_tokenizer(writer, args.run / "tokenizer.json")
    add_tensors(writer, saved["weights"], config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{args.model}: step {saved['log']['step']}, {(args.out / f'{args.model}.gguf').stat().st_size} bytes")


if __name__ == "__main__":
    main()
