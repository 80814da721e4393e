#!/usr/bin/env python3
"""Makes the vision fixtures of testdata/vision: images drawn for this project with the results of Pillow
and transformers' processor, and tiny random models with a vision encoder, with the results of
transformers for them (float32, CPU).

    python tools/make_vision_goldens.py [--out DIR] [--only NAME ...] [--llama-cpp DIR]

Needs torch, transformers, safetensors, numpy, gguf and Pillow 12. With --llama-cpp (a source tree of llama.cpp), the models of
Qwen (`goldens/qwen_vision.py`), Gemma 4 and Mistral (`goldens/axial_vision.py`) also get mmproj.gguf from llama.cpp's own
converter.

    images/*              the images: PNG, JPEG, WebP; broken and animated ones
    images.safetensors    decoded/NAME u8 [h, w, 3]; resized/NAME/SIZE/FILTER u8 [s, s, 3];
                            sampled/NAME (every 97th value of 896 x 896); pixel_values f32 [3, 112, 112];
                            crops/NAME i64 [n, 2] (width and height of the crops of pan and scan)
    MODEL/config.json, model.safetensors, preprocessor_config.json
    MODEL/mmproj.gguf       the tower as llama.cpp's converter writes it
    MODEL/expected.safetensors
        tokens i64 [n] with a placeholder for every row of an image; logits f32 [n, vocab];
        hidden.<i>; for each image image.<i>.image u8 [h, w, 3], image.<i>.pixel_values,
        image.<i>.encoder (after the last norm) and image.<i>.projected

Weights depend only on the seed and the parameter names. All are exact in F16.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import PIL
import torch
import transformers
from goldens import axial_vision, qwen_vision
from make_goldens import (
    BIAS_STD,
    DECAY_MEAN,
    EMBED_STD,
    GAIN,
    NORM_STD,
    Lenient,
    generator,
    rope,
)
from PIL import Image, ImageDraw, ImageOps
from safetensors.numpy import save_file
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

BOI, EOI, SOFT = 260, 261, 262


# ---- Images ----------------------------------------------------------------------------------


def scene(width, height, mode="RGB"):
    """Draws a red ball on a meadow under a sky, with fine stripes that a wrong filter blurs."""
    x, y = np.meshgrid(np.arange(width) / width, np.arange(height) / height)
    sky = np.stack([90 + 80 * y, 140 + 70 * y, 250 - 30 * x], -1)
    meadow = np.stack([40 + 50 * x, 160 - 60 * y, 50 + 20 * x], -1)
    rgb = np.where((y < 0.6)[..., None], sky, meadow)
    stripes = (np.arange(width) % 2 == 0)[None, :] & (y > 0.85)
    rgb[stripes] = [250, 250, 40]
    image = Image.fromarray(np.clip(rgb, 0, 255).astype(np.uint8))
    box = [int(0.3 * width), int(0.35 * height), int(0.6 * width), int(0.8 * height)]
    ImageDraw.Draw(image).ellipse(box, fill=(220, 30, 30), outline=(90, 0, 0))
    if mode == "RGBA":
        alpha = np.clip(255 * (1.2 - x - 0.4 * y), 0, 255).astype(np.uint8)
        image.putalpha(Image.fromarray(alpha))
    return image


def draw(folder):
    folder.mkdir(parents=True, exist_ok=True)
    scene(160, 90).save(folder / "wide.png", optimize=True)
    scene(61, 143).save(folder / "tall.png", optimize=True)
    scene(96, 96).save(folder / "square.png", optimize=True)
    scene(17, 9).save(folder / "small.png", optimize=True)
    scene(130, 112).save(folder / "as-tall.png", optimize=True)
    scene(80, 60, "RGBA").save(folder / "alpha.png", optimize=True)
    scene(80, 60).convert("L").save(folder / "grey.png", optimize=True)
    scene(80, 60).convert("P", palette=Image.Palette.ADAPTIVE).save(folder / "palette.png")
    scene(120, 80).save(folder / "photo.jpg", quality=92, subsampling=0)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated by 90 degrees clockwise
    scene(120, 80).save(folder / "turned.jpg", quality=92, subsampling=0, exif=exif)
    scene(120, 80).save(folder / "lossless.webp", lossless=True)
    scene(120, 80).save(folder / "lossy.webp", quality=90)
    frames = [scene(24, 16), scene(24, 16).transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    frames[0].save(folder / "animated.webp", save_all=True, append_images=frames[1:], duration=99)
    frames[0].save(folder / "animated.png", save_all=True, append_images=frames[1:], duration=99)
    frames[0].save(folder / "still.gif")
    whole = (folder / "wide.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[: len(whole) // 2])


def decoded(path):
    """The image that transformers' processor gets from an opened file. From a path, load_image would drop alpha."""
    image = ImageOps.exif_transpose(Image.open(path))
    array = transformers.image_transforms.convert_to_rgb(image, return_numpy=True)
    return np.ascontiguousarray(np.asarray(array, dtype=np.uint8))


def processor(size, **more):
    return Gemma3ImageProcessorPil(size={"height": size, "width": size}, **more)


def make_images(out):
    folder = out / "images"
    draw(folder)
    tensors = {}
    plain = ["wide.png", "tall.png", "square.png", "small.png", "as-tall.png", "alpha.png"]
    plain += ["grey.png", "palette.png", "photo.jpg", "turned.jpg", "lossless.webp", "lossy.webp"]
    for name in plain:
        tensors[f"decoded/{name}"] = decoded(folder / name)
    for name in ["wide.png", "tall.png", "small.png", "as-tall.png", "square.png"]:
        image = Image.open(folder / name)
        for size in [56, 112]:
            for label, filter in [("bilinear", Image.BILINEAR), ("bicubic", Image.BICUBIC)]:
                resized = np.asarray(image.resize((size, size), filter))
                tensors[f"resized/{name}/{size}/{label}"] = np.ascontiguousarray(resized)
        large = np.asarray(image.resize((896, 896), Image.BILINEAR)).reshape(-1)
        tensors[f"sampled/{name}"] = np.ascontiguousarray(large[::97])
    values = processor(112)(Image.open(folder / "wide.png"), return_tensors="np")["pixel_values"][0]
    tensors["pixel_values"] = np.ascontiguousarray(values.astype(np.float32))
    pan = processor(
        56,
        do_pan_and_scan=True,
        pan_and_scan_min_crop_size=24,
        pan_and_scan_max_num_crops=4,
        pan_and_scan_min_ratio_to_activate=1.2,
    )
    for name in ["wide.png", "tall.png", "square.png", "as-tall.png", "small.png"]:
        array = np.moveaxis(decoded(folder / name), -1, 0)
        crops = pan.pan_and_scan(array, 24, 4, 1.2)
        sizes = [[crop.shape[2], crop.shape[1]] for crop in crops]
        tensors[f"crops/{name}"] = np.asarray(sizes, dtype=np.int64).reshape(-1, 2)
        for i, crop in enumerate(crops):
            tensors[f"crop/{name}/{i}"] = np.ascontiguousarray(np.moveaxis(crop, 0, -1))
    save_file(tensors, out / "images.safetensors")
    (out / "images.safetensors").chmod(0o644)


# ---- Models ------------------------------------------------------------------------------------


def text_config(**sizes):
    values = dict(
        vocab_size=263,
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        query_pre_attn_scalar=64,
        sliding_window=13,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": rope(1000000.0, "linear", factor=8.0),
            "sliding_attention": rope(10000.0),
        },
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    values.update(sizes)
    return transformers.Gemma3TextConfig(**values)


def vision_config(**sizes):
    values = dict(
        hidden_size=144,
        intermediate_size=100,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=112,
        patch_size=14,
        vision_use_head=False,
    )
    values.update(sizes)
    return transformers.SiglipVisionConfig(**values)


# name: (text sizes, vision sizes, tokens per image, images, text tokens around them)
MODELS = {
    # Heads of 72, as published; a window smaller than an image; two images.
    "gemma3-vision": ({}, {}, 16, ["wide.png", "tall.png"], [5, 4, 7]),
    # Heads of 16, one row of patches pooled to one; a window larger than an image.
    "gemma3-vision-small": (
        dict(sliding_window=40, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]),
        dict(hidden_size=48, num_attention_heads=3, intermediate_size=72, num_hidden_layers=3, image_size=56),
        4,
        ["square.png", "small.png", "wide.png"],
        [3, 1, 2, 6],
    ),
}


def fill(model, name):
    """Fills the model with random parameters, each exact in F16 and large enough that a wrong mask or norm shows."""
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            values = generator(name, parameter_name).standard_normal(shape)
            vision = "vision_tower" in parameter_name
            if parameter.ndim == 1 and "norm" in parameter_name and parameter_name.endswith("weight"):
                # The tower's layer norms are near 1; Gemma's store the weight minus 1.
                values = values * NORM_STD + (1.0 if vision else 0.0)
            elif parameter.ndim == 1:
                values = values * BIAS_STD
            elif "embed_tokens" in parameter_name or "position_embedding" in parameter_name:
                values = values * EMBED_STD
            else:
                gain = next((g for part, g in GAIN.items() if part in parameter_name), 1.0)
                inputs = shape[0] if "input_projection" in parameter_name else np.prod(shape[1:])
                values = values * gain / np.sqrt(inputs)
            values = values.astype(np.float16).astype(np.float32)
            parameter.copy_(torch.from_numpy(values))


def prompt(name, counts, n_soft):
    """Text, then begin, placeholders and end of each image, with text between."""
    draws = generator(name, "tokens")
    tokens = []
    for i, count in enumerate(counts):
        if i > 0:
            tokens += [BOI] + [SOFT] * n_soft + [EOI]
        tokens += draws.integers(0, BOI, count).tolist()
    return np.asarray(tokens)


def run(model, tokens, pixel_values):
    """Logits, hidden states, and the outputs of tower and projector."""
    layers = model.model.language_model.layers
    seen = {}

    def enters(index):
        def hook(_module, args, kwargs):
            value = args[0] if args else kwargs["hidden_states"]
            seen[index] = value.detach()[0].clone()

        return hook

    def leaves(key):
        def hook(_module, _args, output):
            value = getattr(output, "last_hidden_state", output)
            value = value[0] if isinstance(value, tuple) else value
            seen[key] = value.detach().clone()

        return hook

    handles = [l.register_forward_pre_hook(enters(i), with_kwargs=True) for i, l in enumerate(layers)]
    handles.append(layers[-1].register_forward_hook(leaves("last")))
    handles.append(model.model.vision_tower.register_forward_hook(leaves("encoder")))
    handles.append(model.model.multi_modal_projector.register_forward_hook(leaves("projected")))
    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        logits = model(
            input_ids=ids,
            pixel_values=pixel_values,
            token_type_ids=(ids == SOFT).long(),
            use_cache=False,
        ).logits[0]
    for handle in handles:
        handle.remove()
    hidden = [seen[i] for i in range(len(layers))] + [seen["last"][0]]
    return logits, hidden, seen["encoder"], seen["projected"]


def make_model(name, out):
    text, vision, n_soft, images, counts = MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    config = transformers.Gemma3Config(
        text_config=text_config(**text),
        vision_config=vision_config(**vision),
        mm_tokens_per_image=n_soft,
        boi_token_index=BOI,
        eoi_token_index=EOI,
        image_token_index=SOFT,
        tie_word_embeddings=True,
    )
    model = transformers.Gemma3ForConditionalGeneration._from_config(
        config, attn_implementation="eager"
    )
    model = model.to(torch.float32).eval()
    fill(model, name)
    size = config.vision_config.image_size
    arrays = [decoded(out / "images" / image) for image in images]
    images = [Image.fromarray(array) for array in arrays]
    values = np.stack(
        [processor(size)(image, return_tensors="np")["pixel_values"][0] for image in images]
    ).astype(np.float32)
    tokens = prompt(name, counts, n_soft)
    logits, hidden, encoder, projected = run(model, tokens, torch.from_numpy(values))
    exact, *_ = run(model.to(torch.float64), tokens, torch.from_numpy(values).double())
    model.to(torch.float32)
    spread = float(exact.max() - exact.min())
    error = float((exact - logits.double()).abs().max()) / spread
    print(f"  {name}: logit range {spread:.2f}, float32 against float64: {error:.1e} of it")
    assert error < 1e-5, f"{name}: badly conditioned"

    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temp) / file, folder / file)
    settings = json.loads(processor(size).to_json_string())
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    expected = {"tokens": tokens.astype(np.int64), "logits": logits.numpy()}
    expected.update({f"hidden.{i}": value.numpy() for i, value in enumerate(hidden)})
    for i, array in enumerate(arrays):
        expected[f"image.{i}.image"] = array
        expected[f"image.{i}.pixel_values"] = values[i]
        expected[f"image.{i}.encoder"] = encoder[i].numpy()
        expected[f"image.{i}.projected"] = projected[i].numpy()
    expected = {key: np.ascontiguousarray(value) for key, value in expected.items()}
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)
    write_mmproj(folder, model, config)


def write_mmproj(folder, model, config):
    """Writes the tower with the names, shapes and metadata of llama.cpp's converter (conversion/gemma.py)."""
    import gguf

    vision = config.vision_config
    writer = gguf.GGUFWriter(str(folder / "mmproj.gguf"), "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "gemma3")
    writer.add_bool("clip.use_gelu", True)
    for key, value in {
        "image_size": vision.image_size,
        "patch_size": vision.patch_size,
        "embedding_length": vision.hidden_size,
        "feed_forward_length": vision.intermediate_size,
        "block_count": vision.num_hidden_layers,
        "projection_dim": config.text_config.hidden_size,
        "attention.head_count": vision.num_attention_heads,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", vision.layer_norm_eps)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    side = vision.image_size // vision.patch_size
    factor = side // int(config.mm_tokens_per_image**0.5)
    if factor != 4:
        writer.add_uint32("clip.vision.projector.scale_factor", factor)
    leaves = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_out",
        "layer_norm1": "ln1",
        "layer_norm2": "ln2",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
    }
    for name, parameter in model.named_parameters():
        value = parameter.detach().numpy()
        if "language_model" in name or "lm_head" in name:
            continue
        stem, part = name.rsplit(".", 1)
        if "multi_modal_projector" in name:
            if "soft_emb_norm" in name:
                new, value = "mm.soft_emb_norm.weight", value + 1.0
            else:
                new = "mm.input_projection.weight"
        elif "patch_embedding" in name:
            new = f"v.patch_embd.{part}"
        elif "position_embedding" in name:
            new = "v.position_embd.weight"
        elif "post_layernorm" in name:
            new = f"v.post_ln.{part}"
        else:
            layer, leaf = stem.split("layers.")[1].split(".", 1)
            new = f"v.blk.{layer}.{leaves[leaf]}.{part}"
        keep = value.ndim == 1 or "embd" in new
        writer.add_tensor(new, np.ascontiguousarray(value if keep else value.astype(np.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = Path(__file__).resolve().parent.parent / "testdata" / "vision"
    parser.add_argument("--out", type=Path, default=default)
    modules = [axial_vision, qwen_vision]
    names = [*MODELS, *(name for module in modules for name in module.MODELS)]
    parser.add_argument("--only", nargs="+", choices=names, help="these models, and no images")
    parser.add_argument("--llama-cpp", type=Path)
    arguments = parser.parse_args()
    assert PIL.__version__.startswith("12."), f"Pillow {PIL.__version__}, not 12"
    torch.set_num_threads(1)
    if not arguments.only:
        make_images(arguments.out)
    spreads = SimpleNamespace(
        norm=NORM_STD, bias=BIAS_STD, embed=EMBED_STD, decay=DECAY_MEAN, gains=GAIN
    )
    for name in arguments.only or names:
        if name in MODELS:
            make_model(name, arguments.out)
        else:
            more = (decoded, generator, spreads, arguments.llama_cpp, Lenient)
            module = next(module for module in modules if name in module.MODELS)
            module.make(name, arguments.out, *more)


if __name__ == "__main__":
    main()
