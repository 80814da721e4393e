#!/usr/bin/env python3
"""Makes the fixtures of testdata/assistants: tiny random assistants, and the drafts that transformers makes with them for the
models of testdata/goldens.

    python3 tools/make_assistant_goldens.py [--only NAME ...] [--llama-cpp DIR]

Each folder holds the assistant, `config.json` and `model.safetensors`, and `expected.safetensors`. That file has `tokens`, and
`lengths`: numbers of tokens that the model reads. Behind each of them transformers' `SinglePositionMultiTokenCandidateGenerator`
drafts four tokens from the token that follows: `drafts`, with their `logits`. `states` are the states that the model gives it.
With --llama-cpp there is also the file that llama.cpp's converter makes from the folder.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4TextConfig
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator

from make_goldens import convert, fill, generator

ROOT = Path(__file__).resolve().parent.parent / "testdata"
N_TOKENS = 33
N_DRAFTS = 4
# Within the window of nine tokens, at its end, and beyond it.
LENGTHS = [1, 3, 9, 10, 11, 12, 20, 32]

# Assistant, by the name of its target's fixture in testdata/goldens: changes to the configuration.
ASSISTANTS = {
    "gemma4": dict(num_hidden_layers=4, layer_types=["sliding_attention"] * 3 + ["full_attention"]),
    "gemma4-keys": dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]),
}


def make_config(target, changes):
    """The configuration of an assistant with the target's heads, windows and rotations."""
    n_layers = changes["num_hidden_layers"]
    of_global = target["per_layer_config"][str(target["layer_types"].index("full_attention"))]
    copied = ("vocab_size", "num_key_value_heads", "head_dim", "sliding_window", "rope_parameters", "rms_norm_eps")
    text = Gemma4TextConfig(
        hidden_size=24,
        intermediate_size=36,
        num_attention_heads=target["num_attention_heads"],
        max_position_embeddings=target["max_position_embeddings"],
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
        num_kv_shared_layers=n_layers,
        per_layer_config={str(n_layers - 1): of_global},
        attention_k_eq_v=target["attention_k_eq_v"],
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **{key: target[key] for key in copied},
        **changes,
    )
    return Gemma4AssistantConfig(text_config=text, backbone_hidden_size=target["hidden_size"])


def draft(model, assistant, tokens, length):
    """The state behind `length` tokens, the drafts behind the next one, and their logits."""
    given = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        outputs = model(given[:, :length], use_cache=False, output_hidden_states=True, return_shared_kv_states=True)
    candidates = SinglePositionMultiTokenCandidateGenerator(
        assistant_model=assistant,
        target_model_input_embeddings=model.get_input_embeddings(),
        generation_config=model.generation_config,
    )
    candidates.num_assistant_tokens = N_DRAFTS
    candidates.main_model_max_length = 2 * N_TOKENS
    ids, logits = candidates.get_candidates(
        input_ids=given[:, : length + 1],
        model_kwargs={},
        model_outputs=outputs,
        is_first_iteration=False,
        n_last_matches=0,
    )
    return outputs.hidden_states[-1][0, -1], ids[0, length + 1 :], logits[0]


def make(name, out):
    source = ROOT / "goldens" / name
    target = json.loads((source / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    assistant = Gemma4AssistantForCausalLM(make_config(target, ASSISTANTS[name])).to(torch.float32).eval()
    assistant.set_attn_implementation("eager")
    fill(assistant, f"assistants/{name}", False)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    assistant.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = generator(f"assistants/{name}", "tokens").integers(0, target["vocab_size"], N_TOKENS)
    made = [draft(model, assistant, tokens, length) for length in LENGTHS]
    expected = {
        "tokens": tokens.astype(np.int64),
        "lengths": np.array(LENGTHS, dtype=np.int64),
        "states": np.stack([state.numpy() for state, _, _ in made]),
        "drafts": np.concatenate([ids.numpy() for _, ids, _ in made]).astype(np.int64),
        "logits": np.concatenate([logits.numpy() for _, _, logits in made]),
    }
    save_file({key: np.ascontiguousarray(value) for key, value in expected.items()}, folder / "expected.safetensors")
    for file in ("model.safetensors", "expected.safetensors"):
        (folder / file).chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "assistants")
    parser.add_argument("--only", nargs="*", choices=ASSISTANTS, metavar="NAME")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only or ASSISTANTS:
        print(name)
        make(name, arguments.out)
        if arguments.llama_cpp:
            vocab_size = json.loads((ROOT / "goldens" / name / "config.json").read_text())["vocab_size"]
            convert(arguments.out / name, vocab_size, arguments.llama_cpp, with_draft=True)


if __name__ == "__main__":
    main()
