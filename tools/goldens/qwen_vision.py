"""Qwen models with vision encoders: images of any size, positions on three axes.

The files are as in `make_vision_goldens.py`, with an addition for each image:
    image.<i>.deepstack.<k>   values added to its rows after layer k of the text model
`encoder` is the output of the last block, in the tower's order of patches.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import save_file

from . import rope, tiny

START, END, PAD = 260, 261, 262


def text(**sizes):
    """Text sizes, with 512 tokens: enough for a vocabulary with image tokens."""
    out = tiny(vocab_size=512, hidden_size=48, num_hidden_layers=3, tie_word_embeddings=True)
    out.update(sizes)
    return out


def tower(**sizes):
    out = dict(depth=3, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
    out.update(sizes)
    return out


MROPE = dict(mrope_section=[4, 2, 2], mrope_interleaved=True)
QWEN35 = dict(
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
)


class Model:
    """`limits` are the pixels of an image, at least and at most; `counts` the text tokens around the images."""

    def __init__(self, kind, text, tower, limits, images, counts, unit_norms=False):
        self.kind, self.text, self.tower, self.limits = kind, text, tower, limits
        self.images, self.counts, self.unit_norms = images, counts, unit_norms


MODELS = {
    # Heads of 16; a 6 by 6 position table resized to each image; two tapped blocks; small images enlarged, large ones reduced.
    "qwen3vl-vision": Model(
        "Qwen3VL",
        text(rope_parameters=rope(5000000.0, **MROPE)),
        tower(
            hidden_size=32,
            intermediate_size=40,
            out_hidden_size=48,
            num_position_embeddings=36,
            deepstack_visual_indexes=[0, 2],
        ),
        (8 * 8 * 4, 8 * 8 * 20),
        ["wide.png", "small.png", "tall.png"],
        [5, 3, 1, 7],
    ),
    # A recurrent text model; heads of 12, which kernels do not take as they are; no tapped blocks.
    "qwen35-vision": Model(
        "Qwen3_5",
        text(
            rope_parameters=rope(
                10000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True
            ),
            **QWEN35,
        ),
        tower(hidden_size=36, num_heads=3, intermediate_size=40, out_hidden_size=48, num_position_embeddings=49, depth=2),
        (8 * 8 * 2, 8 * 8 * 24),
        ["tall.png", "as-tall.png"],
        [4, 6, 5],
        unit_norms=True,
    ),
    # No table of positions, quick GELUs, contiguous sections.
    "qwen2vl-vision": Model(
        "Qwen2VL",
        text(
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=None,
            rope_parameters=rope(1000000.0, mrope_section=[2, 3, 3]),
        ),
        tower(embed_dim=32, hidden_size=48, mlp_ratio=2),
        (8 * 8 * 4, 8 * 8 * 20),
        ["square.png", "small.png", "wide.png"],
        [5, 3, 2, 7],
    ),
    # Windows of 2 by 2 squares in all blocks but one; RMS norms and gates.
    "qwen2_5vl-vision": Model(
        "Qwen2_5_VL",
        text(
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=None,
            rope_parameters=rope(1000000.0, mrope_section=[2, 3, 3]),
        ),
        tower(
            hidden_size=32,
            intermediate_size=40,
            out_hidden_size=48,
            window_size=16,
            depth=4,
            fullatt_block_indexes=[1, 3],
        ),
        (8 * 8 * 4, 8 * 8 * 30),
        ["wide.png", "tall.png"],
        [6, 2, 5],
    ),
}


def config_of(model):
    """The configuration, with its text and vision parts."""
    kind = getattr(transformers, f"{model.kind}Config")
    parts = kind.sub_configs
    texts = {k: v for k, v in model.text.items() if v is not None}
    return kind(
        text_config=parts["text_config"](**texts).to_dict(),
        vision_config=parts["vision_config"](**model.tower).to_dict(),
        image_token_id=PAD,
        vision_start_token_id=START,
        vision_end_token_id=END,
        tie_word_embeddings=True,
    )


def processor_of(model):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    low, high = model.limits
    return Qwen2VLImageProcessorPil(
        size={"shortest_edge": low, "longest_edge": high},
        patch_size=model.tower["patch_size"],
        merge_size=model.tower["spatial_merge_size"],
        image_mean=[0.5, 0.45, 0.4],
        image_std=[0.5, 0.25, 0.3],
    )


def pixels_of(values, grid, patch, merge):
    """Reassembles the patches of one image to `[3, height, width]`."""
    _, height, width = grid
    shape = (height // merge, width // merge, merge, merge, 3, 2, patch, patch)
    blocks = np.asarray(values).reshape(shape)
    assert (blocks[..., 0, :, :] == blocks[..., 1, :, :]).all()
    pixels = blocks[..., 0, :, :].transpose(4, 0, 2, 5, 1, 3, 6)
    return np.ascontiguousarray(pixels.reshape(3, height * patch, width * patch))


def fill(model, name, unit_norms, generator, spreads):
    """Fills the model with random parameters, each exact in F16 and large enough that a wrong mask, position or norm shows."""
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            values = generator(name, parameter_name).standard_normal(tuple(parameter.shape))
            is_vision_encoder = "visual" in parameter_name
            is_norm = "norm" in parameter_name or "ln_q" in parameter_name
            if is_norm and parameter_name.endswith("weight"):
                is_near_zero = unit_norms and not is_vision_encoder and "linear_attn" not in parameter_name
                values = values * spreads.norm + (0.0 if is_near_zero else 1.0)
            elif "A_log" in parameter_name:
                values = values * spreads.bias + spreads.decay
            elif parameter.ndim == 1:
                values = values * spreads.bias
            elif "embed_tokens" in parameter_name or "pos_embed" in parameter_name:
                values = values * spreads.embed
            else:
                gain = next((g for part, g in spreads.gains.items() if part in parameter_name), 1.0)
                values = values * gain / np.sqrt(np.prod(parameter.shape[1:]))
            values = values.astype(np.float16).astype(np.float32)
            parameter.copy_(torch.from_numpy(values))


def prompt(name, counts, n_rows, generator):
    draws = generator(name, "tokens")
    tokens = []
    for i, count in enumerate(counts):
        if i > 0:
            tokens += [START] + [PAD] * n_rows[i - 1] + [END]
        tokens += draws.integers(0, START, count).tolist()
    return np.asarray(tokens)


def run(model, tokens, values, grids):
    """Logits, hidden states, and the outputs of tower, merger and taps."""
    layers = model.model.language_model.layers
    seen = {}

    def enters(index):
        def hook(_module, args, kwargs):
            value = args[0] if args else kwargs["hidden_states"]
            seen[index] = value.detach()[0].clone()

        return hook

    def leaves(_module, _args, output):
        value = output[0] if isinstance(output, tuple) else output
        seen["last"] = value.detach()[0].clone()

    def looks(_module, _args, output):
        seen["encoder"] = output.last_hidden_state.detach().clone()
        seen["projected"] = output.pooler_output.detach().clone()
        taps = getattr(output, "deepstack_features", None) or []
        seen["deepstack"] = [tap.detach().clone() for tap in taps]

    handles = [l.register_forward_pre_hook(enters(i), with_kwargs=True) for i, l in enumerate(layers)]
    handles.append(layers[-1].register_forward_hook(leaves))
    handles.append(model.model.visual.register_forward_hook(looks))
    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            pixel_values=values,
            image_grid_thw=grids,
            mm_token_type_ids=(ids == PAD).int(),
            use_cache=False,
        ).logits[0]
    for handle in handles:
        handle.remove()
    hidden = [seen[i] for i in range(len(layers))] + [seen["last"]]
    return logits, hidden, seen


def make(name, out, decoded, generator, spreads, llama_cpp, lenient):
    made = MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(made)
    model_class = getattr(transformers, f"{made.kind}ForConditionalGeneration")
    model = model_class._from_config(config, attn_implementation="eager")
    model = model.to(torch.float32).eval()
    fill(model, name, made.unit_norms, generator, spreads)
    processor = processor_of(made)
    arrays = [decoded(out / "images" / image) for image in made.images]
    images = [Image.fromarray(array) for array in arrays]
    seen = processor(images, return_tensors="np")
    values, grids = seen["pixel_values"].astype(np.float32), seen["image_grid_thw"]
    merge, patch = made.tower["spatial_merge_size"], made.tower["patch_size"]
    n_patches = [int(np.prod(grid)) for grid in grids]
    n_rows = [n // merge**2 for n in n_patches]
    tokens = prompt(name, made.counts, n_rows, generator)
    torch_grids = torch.from_numpy(np.asarray(grids))
    logits, hidden, found = run(model, tokens, torch.from_numpy(values), torch_grids)
    exact, *_ = run(model.to(torch.float64), tokens, torch.from_numpy(values).double(), torch_grids)
    model.to(torch.float32)
    spread = float(exact.max() - exact.min())
    error = float((exact - logits.double()).abs().max()) / spread
    print(f"  {name}: {n_rows} rows, logit range {spread:.2f}, float32 against float64: {error:.1e} of it")
    assert error < 1e-5, f"{name}: badly conditioned"

    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temp) / file, folder / file)
    settings = json.loads(processor.to_json_string())
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    expected = {"tokens": tokens.astype(np.int64), "logits": logits.numpy()}
    expected.update({f"hidden.{i}": value.numpy() for i, value in enumerate(hidden)})
    patches = np.split(values, np.cumsum(n_patches)[:-1])
    encoder = np.split(found["encoder"].numpy(), np.cumsum(n_patches)[:-1])
    projected = np.split(found["projected"].numpy(), np.cumsum(n_rows)[:-1])
    for i, array in enumerate(arrays):
        expected[f"image.{i}.image"] = array
        expected[f"image.{i}.pixel_values"] = pixels_of(patches[i], grids[i], patch, merge)
        expected[f"image.{i}.encoder"] = encoder[i]
        expected[f"image.{i}.projected"] = projected[i]
        for k, tap in enumerate(found["deepstack"]):
            expected[f"image.{i}.deepstack.{k}"] = np.split(tap.numpy(), np.cumsum(n_rows)[:-1])[i]
    expected = {key: np.ascontiguousarray(value) for key, value in expected.items()}
    save_file(expected, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    if llama_cpp:
        side = made.tower.get("window_size")
        # llama.cpp's converter omits it, since it is 112 in all published models.
        write_mmproj(folder, llama_cpp, lenient, {"clip.vision.window_size": side} if side else {})


def write_mmproj(folder, llama_cpp, lenient, more):
    """Runs llama.cpp's own converter on the tower, in F16. `more` adds integers to the metadata."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import gguf

    for table in ("MODEL_ARCH", "MODEL_TENSOR", "VisionProjectorType"):
        # The package may be older than the converter, which refers to all known names at import.
        setattr(gguf, table, lenient(getattr(gguf, table)))
    if not hasattr(gguf, "LazyChunkedTensor"):
        gguf.LazyChunkedTensor = type("LazyChunkedTensor", (), {})
    from conversion import get_model_class

    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    with torch.inference_mode():
        converter = get_model_class(architecture, mmproj=True)
        model = converter(
            folder, gguf.LlamaFileType.MOSTLY_F16, folder / "mmproj.gguf", model_name=folder.name
        )
        for key, value in more.items():
            model.gguf_writer.add_uint32(key, value)
        model.write()
