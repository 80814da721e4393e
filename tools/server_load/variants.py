"""Variants of the built-in demo model: other templates, and an adapter. No package is needed."""

import json
import random
import struct
from pathlib import Path

TURNS = "{{bos_token}}{% for m in messages %}<|{{m.role}}|>{{m.content}}<|end|>{% endfor %}"
# Begins a thought, unless thinking is disabled.
THINKER = TURNS + "<|assistant|><think>{% if enable_thinking is false %}</think>{% endif %}"
# Shows functions in the format of Qwen Coder.
CODER = TURNS + "{{tools|tojson if tools}}<|assistant|>{#<tool_call><function=x><parameter=y>#}"


def rewritten(template):
    """The demo model with another template, at most as long as its own."""
    model = (Path(__file__).resolve().parents[2] / "models/demo/demo.gguf").read_bytes()
    start, end = b"{{ bos_token }}{% for message in messages %}", b"{{ '<|assistant|>' }}{% endif %}"
    first = model.index(start)
    last = model.index(end, first) + len(end)
    text = template.encode()
    return model[:first] + text + b"{#" + b" " * (last - first - len(text) - 4) + b"#}" + model[last:]


def adapter(folder, n_layers=6, d_model=256, rank=2, seed=7):
    """Writes a PEFT folder with a random adapter for the demo's queries, large enough to change its text."""
    folder = Path(folder)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none", "target_modules": ["q_proj"]}))
    numbers, header, data = random.Random(seed), {}, b""
    for layer in range(n_layers):
        for half, shape in (("A", [rank, d_model]), ("B", [d_model, rank])):
            name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{half}.weight"
            n = shape[0] * shape[1]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
            data += struct.pack(f"<{n}f", *(numbers.uniform(-0.3, 0.3) for _ in range(n)))
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
