#!/usr/bin/env python3
"""Writes what Hugging Face transformers chooses in bf16: the reference that `millrace verify` compares with.

    python crates/cli/src/commands/verify/reference_hf.py MODEL --prompts PROMPTS.json --out REFERENCE.json [--tokens 32]
        [--hidden HIDDEN.safetensors]

MODEL is a Hugging Face folder, or a GGUF file of an architecture that transformers reads. PROMPTS.json has
the prompts as tokens; any reference file of `millrace verify --save` will do, what it has beside `text` and
`prompt` is ignored. Every prompt is continued greedily with a KV cache, on the CPU, weights and
activations in bf16: the arithmetic of the published NPU stack's own verification.

The result is JSON:

    {"format": "millrace-reference-1",
     "model": name, "source": versions of what wrote it,
     "prompts": [{"text": for people, "prompt": [tokens],
                  "steps": [{"token": the likeliest, "top": [the ten likeliest, best first]}, …]}]}

Equal logits, which bf16 has many of, are ordered by token, as millrace does. A continuation ends early with
an end token of the model's configuration.

--hidden writes the hidden states of the first prompt too, for `millrace diagnose --reference`: safetensors
with `tokens` i64 [n] and `hidden.<i>` f32 [n, d_model], what enters block i and, for i = n_layers, what
leaves the last one. `hidden.0` is the embeddings as they enter the first block.

Needs torch and transformers; gguf for GGUF files.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers

FORMAT = "millrace-reference-1"
# More than the five that verification asks for, so that a report can tell how far off a token is.
RECORDED = 10


def load(path):
    """The model in bf16."""
    path = Path(path)
    options = dict(dtype=torch.bfloat16, attn_implementation="eager")
    if path.suffix.lower() == ".gguf":
        folder, name = path.parent, path.name
        return transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, **options)
    return transformers.AutoModelForCausalLM.from_pretrained(path, **options)


def choice(logits):
    """The likeliest tokens of a row, best first, equal ones by their number."""
    values = logits.float()
    if not torch.isfinite(values).all():
        raise SystemExit("the model gives logits that are no numbers")
    order = sorted(range(len(values)), key=lambda i: (-values[i].item(), i))[:RECORDED]
    return {"token": order[0], "top": order}


def end_tokens(model):
    ends = model.config.eos_token_id
    if ends is None:
        return set()
    return set(ends) if isinstance(ends, (list, tuple)) else {ends}


@torch.inference_mode()
def continue_greedily(model, prompt, n_tokens):
    """Up to `n_tokens` choices after a prompt."""
    ends = end_tokens(model)
    tokens, cache, steps = torch.tensor([prompt]), None, []
    while len(steps) < n_tokens:
        output = model(input_ids=tokens, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        steps.append(choice(output.logits[0, -1]))
        token = steps[-1]["token"]
        if token in ends:
            break
        tokens = torch.tensor([[token]])
    return steps


@torch.inference_mode()
def hidden_states(model, prompt):
    """What enters each block, and what leaves the last one, before the final norm."""
    found = []
    blocks = model.model.layers
    hooks = [blocks[0].register_forward_pre_hook(lambda _, args: found.append(args[0]))]
    for block in blocks:
        leaves = lambda _, args, out: found.append(out[0] if isinstance(out, tuple) else out)
        hooks.append(block.register_forward_hook(leaves))
    model(input_ids=torch.tensor([prompt]))
    for hook in hooks:
        hook.remove()
    return [state.reshape(len(prompt), -1).float().contiguous() for state in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="Hugging Face folder or GGUF file")
    parser.add_argument("--prompts", required=True, help="JSON with the prompts as tokens")
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to write for each prompt")
    parser.add_argument("--name", help="the model's name in the file [default: the path's]")
    parser.add_argument("--hidden", help="safetensors file for the first prompt's hidden states")
    args = parser.parse_args()
    prompts = json.loads(Path(args.prompts).read_text())["prompts"]
    model = load(args.model).eval()
    cases = []
    for case in prompts:
        steps = continue_greedily(model, case["prompt"], args.tokens)
        cases.append({"text": case.get("text", ""), "prompt": case["prompt"], "steps": steps})
    reference = {
        "format": FORMAT,
        "model": args.name or Path(args.model).name,
        "source": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, bf16 on the CPU",
        "prompts": cases,
    }
    Path(args.out).write_text(json.dumps(reference, ensure_ascii=False) + "\n")
    if args.hidden:
        from safetensors.torch import save_file

        prompt = prompts[0]["prompt"]
        tensors = {f"hidden.{i}": state for i, state in enumerate(hidden_states(model, prompt))}
        save_file({"tokens": torch.tensor(prompt), **tensors}, args.hidden)


if __name__ == "__main__":
    main()
