#!/usr/bin/env python3
"""Makes the fixtures of testdata/drafts: tiny random models with a layer that predicts the token after the next (MTP), and the
results of transformers' `MtpModel` for it.

    python3 tools/make_draft_goldens.py [--only NAME ...] [--llama-cpp DIR]

Each folder holds `config.json`, `model.safetensors` with the published names for the layer's tensors, and
`expected.safetensors`. That file has `tokens`, and `states`: the last norm's output at each token but the last. `normed` and `logits` are
the layer's output for the tokens after them, before and after its head. With --llama-cpp there is also the file that llama.cpp's converter
makes from the folder.
"""

import argparse
import copy
import json
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers.modeling_layers import MtpModel

from make_goldens import FIXTURES, UNIT_NORMS, convert, fill, generator, make_config, make_model

N_TOKENS = 31

# Base fixture of tools/goldens, changes to it, and whether llama.cpp's converter writes the layer.
DRAFTS = {
    "qwen35": ("qwen35", dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"]), True),
    "qwen35moe": ("qwen35moe", dict(vocab_size=131), False),
    "qwen3next": ("qwen3next", dict(vocab_size=131), False),
    "glm4moe": ("glm4moe", dict(num_hidden_layers=2), True),
    "deepseek-v3": ("deepseek-v3", dict(vocab_size=131), False),
}

# Names of the layer's tensors in files where it is separate.
BESIDE = {
    "eh_proj": "fc",
    "enorm": "pre_fc_norm_embedding",
    "hnorm": "pre_fc_norm_hidden",
    "post_norm": "norm",
}


def per_expert(name, values):
    """Splits stacked matrices of experts into one tensor each."""
    stem = name.split(".experts.")[0] + ".experts"
    for expert, matrix in enumerate(values):
        if name.endswith("gate_up_proj"):
            gate, up = np.split(matrix, 2)
            yield f"{stem}.{expert}.gate_proj.weight", gate
            yield f"{stem}.{expert}.up_proj.weight", up
        else:
            yield f"{stem}.{expert}.down_proj.weight", matrix


def published(draft, model, written):
    """The layer's tensors under their published names."""
    n_layers = model.config.num_hidden_layers
    stands_alone = model.config.model_type.startswith("qwen3")
    is_stacked = any(name.endswith("experts.gate_up_proj") for name in written)
    out = {}
    for name, values in draft.state_dict().items():
        found = re.fullmatch(r"layers\.0\.(.*)", name)
        if not found:
            continue
        rest, values = found[1], values.numpy()
        module, _, kind = rest.rpartition(".")
        if rest.startswith("mtp_block."):
            inner = rest.removeprefix("mtp_block.")
            spelled = f"mtp.layers.0.{inner}" if stands_alone else f"model.layers.{n_layers}.{inner}"
        elif stands_alone:
            spelled = f"mtp.{BESIDE[module]}.{kind}"
        else:
            called = "shared_head.norm" if module == "post_norm" else module
            spelled = f"model.layers.{n_layers}.{called}.{kind}"
        if ".mlp.experts." in spelled and not is_stacked:
            out.update(per_expert(spelled, values))
        else:
            out[spelled] = values
    if not stands_alone:
        # Copies of the table and the head, as published files have them.
        out[f"model.layers.{n_layers}.embed_tokens.weight"] = written["model.embed_tokens.weight"].copy()
        out[f"model.layers.{n_layers}.shared_head.head.weight"] = written["lm_head.weight"].copy()
    return {name: np.ascontiguousarray(values) for name, values in out.items()}


def make(name, out):
    base, changes, _ = DRAFTS[name]
    fixture = copy.copy(FIXTURES[base])
    fixture.config = {**fixture.config, **changes}
    config = make_config(fixture)
    config.num_mtp_layers = 1
    if getattr(config, "layer_types", None) is not None:
        config.mtp_layer_types = ["full_attention"]
    if getattr(config, "mlp_layer_types", None) is not None:
        config.mtp_mlp_layer_types = ["sparse"]
    model = make_model(fixture, config)
    draft = MtpModel(model, 1).to(torch.float32).eval()
    draft.config._attn_implementation = "eager"
    draft.config._experts_implementation = "eager"
    unit_norms = fixture.family in UNIT_NORMS
    # Table and head belong to the model, so the model is filled last.
    fill(draft, f"drafts/{name}", unit_norms)
    fill(model, f"drafts/{name}/model", unit_norms)
    tokens = generator(f"drafts/{name}", "tokens").integers(0, fixture.config["vocab_size"], N_TOKENS)
    given = torch.from_numpy(tokens)[None]
    positions = torch.arange(1, N_TOKENS)[None]
    with torch.no_grad():
        states = model.model(given, use_cache=False).last_hidden_state[:, :-1]
        normed = draft.forward_layer(0, states, positions, None, input_ids=given[:, 1:])
        logits = draft._project_to_logits(normed)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        written = load_file(Path(temp) / "model.safetensors")
        shutil.copyfile(Path(temp) / "config.json", folder / "config.json")
    written.update(published(draft, model, written))
    save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
    write_config(folder / "config.json")
    expected = {
        "tokens": tokens.astype(np.int64),
        "states": states[0].numpy(),
        "normed": normed[0].numpy(),
        "logits": logits[0].numpy(),
    }
    expected = {key: np.ascontiguousarray(value) for key, value in expected.items()}
    save_file(expected, folder / "expected.safetensors")
    for file in ("model.safetensors", "expected.safetensors"):
        (folder / file).chmod(0o644)


def write_config(path):
    """Rewrites the configuration with the published key for the number of such layers."""
    config = json.loads(path.read_text())
    for key in ("num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"):
        config.pop(key, None)
    kind = config["model_type"]
    if kind.startswith("qwen3_5"):
        config["mtp_num_hidden_layers"] = 1
    elif not kind.startswith("qwen3"):
        config["num_nextn_predict_layers"] = 1
    path.write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = Path(__file__).resolve().parent.parent / "testdata" / "drafts"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", choices=DRAFTS, metavar="NAME")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only or DRAFTS:
        print(name)
        make(name, arguments.out)
        base, changes, converts = DRAFTS[name]
        if converts and arguments.llama_cpp:
            vocab_size = changes.get("vocab_size", FIXTURES[base].config["vocab_size"])
            convert(arguments.out / name, vocab_size, arguments.llama_cpp, with_draft=True)


if __name__ == "__main__":
    main()
