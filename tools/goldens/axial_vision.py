"""Gemma 4 and Mistral models whose vision encoders rotate heads by rows and columns. Their text models do not.

The files are as in `make_vision_goldens.py`, with one difference: `encoder` is the output of the last block. Its patches are in squares
that become one row together, from left to right and top to bottom. The rows of a Mistral image include the embedding of the token
between its lines.
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.numpy import save_file

from . import rope, tiny
from .gemma4 import HEAD_NORMS, LAYERS, sizes
from .qwen_vision import prompt, write_mmproj

START, END, PAD = 260, 261, 262
# Token between the lines of a Mistral image. It has its published id, since the models have no vocabulary.
BREAK = 12


class Model:
    """`rows` is the maximum for an image (Gemma 4), or the pixels of its longer side (Mistral)."""

    def __init__(self, kind, text, tower, rows, images, counts, **config):
        self.kind, self.text, self.tower, self.rows = kind, text, tower, rows
        self.images, self.counts, self.config = images, counts, config


def gemma_text(**more):
    return sizes(vocab_size=512, vocab_size_per_layer_input=512, pad_token_id=0, **more)


def gemma_vision(**more):
    out = dict(hidden_size=48, intermediate_size=40, num_hidden_layers=2, patch_size=4, position_embedding_size=80)
    out.update(more)
    out["num_key_value_heads"] = out["num_attention_heads"]
    out["head_dim"] = out["hidden_size"] // out["num_attention_heads"]
    return out


def mistral_text(**more):
    return tiny(vocab_size=512, num_hidden_layers=3, sliding_window=None, rope_parameters=rope(1000000.0), **more)


MODELS = {
    # Rows attend to each other in layers with windows, which are shorter than an image; pooled values are shifted and scaled.
    "gemma4-vision": Model(
        "Gemma4",
        gemma_text(
            num_hidden_layers=4,
            layer_types=["sliding_attention", "full_attention"] * 2,
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            use_bidirectional_attention="vision",
        ),
        gemma_vision(num_attention_heads=3, standardize=True),
        24,
        ["wide.png", "small.png", "tall.png"],
        [5, 3, 1, 7],
    ),
    # Rows attend to earlier ones only; embeddings of each layer; bounds on the inputs and outputs of matrices; squares of 2 by 2;
    # heads of 12, which kernels do not take as they are.
    "gemma4-vision-small": Model(
        "Gemma4",
        gemma_text(
            num_hidden_layers=5,
            layer_types=LAYERS + LAYERS[1:],
            num_key_value_heads=1,
            num_kv_shared_layers=2,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=8,
        ),
        gemma_vision(num_attention_heads=4, use_clipped_linears=True, pooling_kernel_size=2),
        20,
        ["tall.png", "square.png"],
        [4, 6, 5],
    ),
    # Squares of 2 by 2 merged by a matrix; SiLU.
    "mistral3-vision": Model(
        "Mistral3",
        mistral_text(model_type="mistral", tie_word_embeddings=False),
        dict(
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=3,
            patch_size=4,
            image_size=48,
            hidden_act="silu",
        ),
        48,
        ["wide.png", "small.png", "tall.png"],
        [5, 3, 2, 7],
        spatial_merge_size=2,
        tie_word_embeddings=False,
    ),
    # One row per patch; GELU; biases in the projector.
    "pixtral-vision": Model(
        "Llava",
        mistral_text(model_type="mistral", tie_word_embeddings=False),
        dict(
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            patch_size=8,
            image_size=56,
            hidden_act="gelu",
        ),
        56,
        ["tall.png", "as-tall.png"],
        [4, 6, 5],
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    ),
}


def is_gemma(made):
    return made.kind == "Gemma4"


def config_of(made):
    text = {k: v for k, v in made.text.items() if v is not None}
    if is_gemma(made):
        text_config = transformers.Gemma4TextConfig(**text)
        vision_config = transformers.Gemma4VisionConfig(**made.tower)
        ids = dict(boi_token_id=START, eoi_token_id=END, image_token_id=PAD)
        return transformers.Gemma4Config(
            text_config=text_config, vision_config=vision_config, audio_config=None, **ids, **made.config
        )
    text.pop("model_type")
    # Without it the class would use its default window.
    text_config = transformers.MistralConfig(sliding_window=None, **text)
    vision_config = transformers.PixtralVisionConfig(**made.tower)
    kind = getattr(transformers, f"{made.kind}Config")
    return kind(text_config=text_config, vision_config=vision_config, image_token_index=PAD, **made.config)


def processor_of(made):
    """The processor, and the side of a row in pixels."""
    patch = made.tower["patch_size"]
    if is_gemma(made):
        from transformers.models.gemma4 import image_processing_pil_gemma4 as module

        merge = made.tower.get("pooling_kernel_size", 3)
        # Published models have at least 70 rows.
        module._SUPPORTED_SOFT_TOKENS = (made.rows,)
        kind = module.Gemma4ImageProcessorPil
        return kind(patch_size=patch, max_soft_tokens=made.rows, pooling_kernel_size=merge), patch * merge
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    side = patch * made.config.get("spatial_merge_size", 1)
    processor = PixtralImageProcessorPil(
        size={"longest_edge": made.rows},
        patch_size={"height": side, "width": side},
        image_mean=[0.5, 0.45, 0.4],
        image_std=[0.5, 0.25, 0.3],
    )
    return processor, side


def look(made, processor, image):
    """The model's arguments for one image, its pixel values `[3, h, w]` as the tower takes them, and its patch rows and columns."""
    seen = processor(image, return_tensors="np")
    patch = made.tower["patch_size"]
    if is_gemma(made):
        places = seen["image_position_ids"][0]
        n = int((places >= 0).all(-1).sum())
        width, height = places[:n].max(0) + 1
        patches = seen["pixel_values"][0].astype(np.float32)
        blocks = patches[:n].reshape(height, width, patch, patch, 3)
        pixels = 2.0 * (blocks.transpose(4, 0, 2, 1, 3).reshape(3, height * patch, width * patch) - 0.5)
        arguments = dict(pixel_values=patches[None], image_position_ids=places[None])
        return arguments, pixels, (int(height), int(width))
    values = seen["pixel_values"][0].astype(np.float32)
    arguments = dict(pixel_values=values[None], image_sizes=np.asarray(seen["image_sizes"]))
    return arguments, values, (values.shape[1] // patch, values.shape[2] // patch)


def by_squares(rows, height, width, merge):
    """Reorders patches by squares. They come from left to right and top to bottom."""
    rows = rows[: height * width].reshape(height // merge, merge, width // merge, merge, -1)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3, 4).reshape(height * width, -1))


def fill(model, name, generator, spreads):
    """Fills the model with random parameters, each exact in F16 and large enough that a wrong mask, position or norm shows."""
    def draw(key, shape):
        return generator(name, key).standard_normal(tuple(shape))

    with torch.no_grad():
        for key, parameter in model.named_parameters():
            values = draw(key, parameter.shape)
            if "norm" in key or "ln_pre" in key:
                # Scores of normalised heads have no factor.
                mean = HEAD_NORMS if "q_norm" in key or "k_norm" in key else 1.0
                values = values * spreads.norm + mean
            elif parameter.ndim == 1:
                values = values * spreads.bias
            elif "embed_tokens" in key or "position_embedding" in key:
                values = values * spreads.embed
            else:
                gain = next((g for part, g in spreads.gains.items() if part in key), 1.0)
                values = values * gain / np.sqrt(np.prod(parameter.shape[1:]))
            parameter.copy_(torch.from_numpy(values.astype(np.float16).astype(np.float32)))
        for key, buffer in model.named_buffers():
            if key.endswith(("layer_scalar", "std_scale")):
                values = 1.0 + draw(key, buffer.shape) * spreads.norm
            elif key.endswith("std_bias"):
                values = draw(key, buffer.shape)
            elif key.endswith(("input_min", "input_max", "output_min", "output_max")):
                # About a tenth of the values exceed the bound.
                sign = -1.0 if key.endswith("min") else 1.0
                values = sign * (1.25 + 0.25 * draw(key, buffer.shape))
            else:
                continue
            values = np.asarray(values).astype(np.float16).astype(np.float32)
            buffer.copy_(torch.from_numpy(values))


def placed(made, counts, sizes, generator, name):
    """Tokens, with a placeholder for every row and the break tokens between the lines of an image."""
    tokens = prompt(name, counts, [h * w for h, w in sizes], generator).tolist()
    if is_gemma(made):
        return np.asarray(tokens)
    out, left = [], iter(sizes)
    at = 0
    while at < len(tokens):
        if tokens[at] != START:
            out.append(tokens[at])
            at += 1
            continue
        height, width = next(left)
        lines = [[PAD] * width] * height
        out += [token for line in lines for token in line + [BREAK]][:-1] + [END]
        at += height * width + 2
    return np.asarray(out)


def run(model, tokens, looks):
    """Logits, hidden states, and for each image the output of the tower's blocks and its rows."""
    text = model.model.language_model
    tower = model.model.vision_tower
    seen, encoders, projected = {}, [], []

    def enters(index):
        def hook(_module, args, kwargs):
            value = args[0] if args else kwargs["hidden_states"]
            seen[index] = value.detach()[0].clone()

        return hook

    def leaves(_module, _args, output):
        value = output[0] if isinstance(output, tuple) else output
        seen["last"] = value.detach()[0].clone()

    blocks = tower.encoder.layers if hasattr(tower, "encoder") else tower.transformer.layers
    handles = [l.register_forward_pre_hook(enters(i), with_kwargs=True) for i, l in enumerate(text.layers)]
    handles.append(text.layers[-1].register_forward_hook(leaves))

    def block_hook(_module, _args, output):
        value = output[0] if isinstance(output, tuple) else output
        encoders.append(value.detach()[0].clone())

    dtype = next(model.parameters()).dtype
    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        handle = blocks[-1].register_forward_hook(block_hook)
        for arguments, _, _ in looks:
            arguments = {k: torch.from_numpy(v) for k, v in arguments.items()}
            arguments["pixel_values"] = arguments["pixel_values"].to(dtype)
            rows = model.get_image_features(**arguments, return_dict=True).pooler_output
            rows = torch.cat(list(rows), dim=0) if isinstance(rows, (tuple, list)) else rows
            projected.append(rows.reshape(-1, rows.shape[-1]).clone())
        handle.remove()
        if "Gemma4" in type(model).__name__:
            keys = ("pixel_values", "image_position_ids")
            stacked = {key: torch.from_numpy(np.concatenate([one[key] for one, _, _ in looks])) for key in keys}
            stacked["pixel_values"] = stacked["pixel_values"].to(dtype)
            logits = model(input_ids=ids, mm_token_type_ids=(ids == PAD).int(), use_cache=False, **stacked).logits[0]
        else:
            # Images of different sizes cannot be stacked.
            embeds = text.get_input_embeddings()(ids)
            embeds[ids == PAD] = torch.cat(projected).to(dtype)
            logits = model(inputs_embeds=embeds, use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    hidden = [seen[i] for i in range(len(text.layers))] + [seen["last"]]
    return logits, hidden, encoders, projected


def with_breaks(rows, height, embedding):
    """Rows of an image with the embedding of the break token between its lines."""
    lines = rows.reshape(height, -1, rows.shape[-1])
    out = [row for line in lines for row in [*line, embedding]][:-1]
    return np.stack(out)


def settings_of(made, processor):
    settings = json.loads(processor.to_json_string())
    if not is_gemma(made):
        # As in published files: the processor multiplies it.
        settings["patch_size"] = made.tower["patch_size"]
    return settings


def make(name, out, decoded, generator, spreads, llama_cpp, lenient):
    made = MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model_class = getattr(transformers, f"{made.kind}ForConditionalGeneration")
    model = model_class._from_config(config_of(made), attn_implementation="eager")
    model = model.to(torch.float32).eval()
    fill(model, name, generator, spreads)
    processor, side = processor_of(made)
    merge = side // made.tower["patch_size"]
    arrays = [decoded(out / "images" / image) for image in made.images]
    looks = [look(made, processor, Image.fromarray(array)) for array in arrays]
    row_sizes = [(h // merge, w // merge) for _, _, (h, w) in looks]
    tokens = placed(made, made.counts, row_sizes, generator, name)
    logits, hidden, encoders, projected = run(model, tokens, looks)
    exact, *_ = run(model.to(torch.float64), tokens, looks)
    model.to(torch.float32)
    spread = float(exact.max() - exact.min())
    error = float((exact - logits.double()).abs().max()) / spread
    print(f"  {name}: rows {row_sizes}, logit range {spread:.2f}, float32 against float64: {error:.1e} of it")
    assert error < 1e-5, f"{name}: badly conditioned"

    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temp) / file, folder / file)
    settings = settings_of(made, processor)
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    expected = {"tokens": tokens.astype(np.int64), "logits": logits.numpy()}
    expected.update({f"hidden.{i}": value.numpy() for i, value in enumerate(hidden)})
    for i, array in enumerate(arrays):
        _, pixels, (height, width) = looks[i]
        expected[f"image.{i}.image"] = array
        expected[f"image.{i}.pixel_values"] = pixels
        expected[f"image.{i}.encoder"] = by_squares(encoders[i].numpy(), height, width, merge)
        rows = projected[i].numpy()
        if not is_gemma(made):
            table = model.model.language_model.get_input_embeddings().weight.detach().numpy()
            rows = with_breaks(rows, row_sizes[i][0], table[BREAK])
        expected[f"image.{i}.projected"] = rows
    expected = {key: np.ascontiguousarray(value) for key, value in expected.items()}
    save_file(expected, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    if llama_cpp:
        names = folder / "tokenizer_config.json"
        if not is_gemma(made):
            # The converter requires it.
            names.write_text(json.dumps({"added_tokens_decoder": {str(BREAK): {"content": "[IMG_BREAK]"}}}))
        # The converter leaves it out, since it is 3 in all published models.
        more = {"clip.vision.projector.scale_factor": merge} if is_gemma(made) and merge != 3 else {}
        write_mmproj(folder, llama_cpp, lenient, more)
        names.unlink(missing_ok=True)
