#!/usr/bin/env python3
"""Makes the model fixtures of testdata/goldens: tiny random models of every family, with the logits
and hidden states that Hugging Face transformers computes for them in float32 on the CPU.

    python tools/make_goldens.py [--out DIR] [--only NAME ...] [--llama-cpp DIR]

Needs torch, transformers, safetensors and numpy. With --llama-cpp (a source tree of llama.cpp) the
fixtures that ask for it also get model.f32.gguf, written by llama.cpp's own converter; that part
needs nothing else. Without it, existing GGUF files stay as they are.

Each fixture is a folder:
    config.json           as transformers 5 writes it
    config.v4.json        the same model as transformers 4 spells it (some fixtures)
    model.safetensors     F32 weights; every value is exact in F16, so converting to F16 loses nothing
    model.f32.gguf        llama.cpp's conversion (some fixtures)
    expected.safetensors  tokens i64 [n]; logits f32 [n, vocab]; hidden.<i> f32 [n, d_model]:
                          input of block i, and for i = n_layers the output of the last block

The numbers depend only on the seed and the parameter names, not on library versions.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from goldens import Fixture, common, rope, v4_flat
from goldens import attention, dense, experts, further, gemma3n, gemma4, mixtures, newer, recurrent, relatives, renamed, various

# Standard deviations, relative to 1/sqrt(inputs) for matrices. They are large enough that logits spread over
# several units and attention is far from uniform, so that a wrong mask, scale or rotation shows.
GAIN = {"q_proj": 2.0, "k_proj": 2.0, "lm_head": 3.0, "attn.x_": 4.0, "mlp.gate.": 3.0, "mixer.gate.": 3.0, "router": 3.0}
EMBED_STD = 0.4
NORM_STD = 0.25
BIAS_STD = 0.5
CHOICE_STD = 0.1
# Mean of the logarithm of a state's decay: a state remembers some ten tokens.
DECAY_MEAN = -2.0

# Families whose norm weights are added to 1, except those of a gated delta net.
UNIT_NORMS = ("gemma", "gemma2", "gemma3", "muse-glimmer", "nemotron", "qwen3_5", "qwen3_5_moe", "qwen3_next", "step35", "vaultgemma")


# Types for whose configurations transformers has no class, or one with other keys.
OTHER_CODE = ("PanguEmbedded", "baichuan", "bailing_moe", "deepseek", "gpt_refact", "internlm2", "jais", "llama_bidirec", "maincoder", "mimo_v2_flash", "nemotron-nas", "neobert", "openelm", "orion", "plm", "qwen", "rwkv7", "sarvam_moe", "smallthinker", "solar_open", "spark2_5", "step3p5", "xverse")

LLAMA3 = dict(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)


def v4_gemma(config, pattern):
    """Spelling of transformers 4: two bases, one scaling (of the global layers), a pattern in place of types."""
    out = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype", "layer_types")}
    full = dict(config["rope_parameters"]["full_attention"])
    out["rope_theta"] = full.pop("rope_theta")
    out["rope_scaling"] = full if full["rope_type"] != "default" else None
    out["rope_local_base_freq"] = config["rope_parameters"]["sliding_attention"]["rope_theta"]
    out["sliding_window_pattern"] = pattern
    out["torch_dtype"] = "float32"
    out["transformers_version"] = "4.51.3"
    return out


FIXTURES = {
    # Plain RoPE, as many key heads as query heads, a head size other than d_model / n_heads.
    "llama-mha": Fixture(
        "llama",
        41,
        common(num_attention_heads=2, num_key_value_heads=2, rope_parameters=rope()),
    ),
    # Heads of 4, as in test models of other programs.
    "llama-narrow": Fixture(
        "llama",
        41,
        common(hidden_size=16, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=4, rope_parameters=rope()),
    ),
    # Llama 3.2: llama3 scaling whose three ranges all occur, a tied head.
    "llama-llama3": Fixture(
        "llama",
        97,
        common(tie_word_embeddings=True, rope_parameters=rope(500000.0, "llama3", **LLAMA3)),
        v4=v4_flat,
        gguf=True,
    ),
    # Linear scaling, every bias, heads of 80.
    "llama-linear-bias": Fixture(
        "llama",
        53,
        common(
            vocab_size=131,
            head_dim=80,
            num_attention_heads=2,
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=rope(10000.0, "linear", factor=4.0),
        ),
        v4=v4_flat,
    ),
    # Default head size d_model / n_heads, which is 16; eight query heads per key head.
    "llama-gqa8": Fixture(
        "llama",
        37,
        common(
            vocab_size=197,
            hidden_size=128,
            intermediate_size=96,
            num_attention_heads=8,
            head_dim=None,
            rope_parameters=rope(),
        ),
        v4=lambda c: {k: v for k, v in v4_flat(c).items() if k != "head_dim"},
    ),
    # A window shorter than the prompt on every layer.
    "mistral-window": Fixture(
        "mistral",
        61,
        common(sliding_window=17, rope_parameters=rope()),
        v4=v4_flat,
    ),
    "mistral-full": Fixture(
        "mistral",
        43,
        common(
            vocab_size=131,
            num_attention_heads=2,
            sliding_window=None,
            rope_parameters=rope(1000000.0),
        ),
    ),
    # Biases on Q, K and V; tied.
    "qwen2": Fixture(
        "qwen2",
        47,
        common(
            num_attention_heads=2,
            hidden_size=128,
            intermediate_size=56,
            head_dim=None,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        v4=v4_flat,
        gguf=True,
    ),
    # Windows on the upper layers: by max_window_layers in version 4, by layer_types in version 5.
    "qwen2-window": Fixture(
        "qwen2",
        45,
        common(
            vocab_size=131,
            num_hidden_layers=3,
            num_attention_heads=2,
            hidden_size=96,
            intermediate_size=64,
            head_dim=None,
            use_sliding_window=True,
            sliding_window=11,
            max_window_layers=1,
            rope_parameters=rope(1000000.0),
        ),
        v4=lambda c: {k: v for k, v in v4_flat(c).items() if k != "layer_types"},
    ),
    # Norms on Q and K, heads of 128.
    "qwen3": Fixture(
        "qwen3",
        49,
        common(
            hidden_size=40,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=128,
            intermediate_size=80,
            rope_parameters=rope(1000000.0),
        ),
        v4=v4_flat,
        gguf=True,
    ),
    "qwen3-bias-tied": Fixture(
        "qwen3",
        39,
        common(
            vocab_size=199,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
    ),
    # Five layers with a window for each global one; linear scaling of the global layers, as in the 4B.
    "gemma3-pattern": Fixture(
        "gemma3",
        67,
        common(
            hidden_size=40,
            intermediate_size=56,
            num_hidden_layers=7,
            num_attention_heads=2,
            query_pre_attn_scalar=64,
            sliding_window=13,
            tie_word_embeddings=True,
            rope_parameters={
                "full_attention": rope(1000000.0, "linear", factor=8.0),
                "sliding_attention": rope(10000.0),
            },
        ),
        v4=lambda c: v4_gemma(c, pattern=6),
        gguf=True,
    ),
    # Heads of 256 as in the 1B, a score scale that does not follow from the head size, another pattern.
    "gemma3-256": Fixture(
        "gemma3",
        33,
        common(
            vocab_size=131,
            hidden_size=32,
            intermediate_size=56,
            num_attention_heads=4,
            head_dim=256,
            query_pre_attn_scalar=168,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention"],
            tie_word_embeddings=True,
            rope_parameters={
                "full_attention": rope(1000000.0),
                "sliding_attention": rope(10000.0),
            },
        ),
        v4=lambda c: v4_gemma(c, pattern=2),
    ),
    # The text part of a multimodal checkpoint: an inner configuration, other tensor names, a vision
    # tower that must be ignored.
    "gemma3-multimodal": Fixture(
        "gemma3",
        29,
        common(
            vocab_size=131,
            hidden_size=40,
            intermediate_size=56,
            num_attention_heads=2,
            query_pre_attn_scalar=64,
            sliding_window=13,
            layer_types=["sliding_attention", "full_attention"],
            tie_word_embeddings=True,
            rope_parameters={
                "full_attention": rope(1000000.0, "linear", factor=8.0),
                "sliding_attention": rope(10000.0),
            },
        ),
        multimodal=True,
    ),
}


for more in (experts, dense, attention, gemma3n, gemma4, recurrent, mixtures, renamed, further, relatives, newer, various):
    FIXTURES.update(more.FIXTURES)


def make_config(fixture):
    if fixture.config_class:
        # Without these keys, a class uses default tokens beyond the small vocabularies.
        given = lambda k, v: v is not None or k.endswith("_token_id") or k in ("sliding_window", *fixture.keep_none)
        arguments = {k: v for k, v in fixture.config.items() if given(k, v)}
        config = getattr(transformers, fixture.config_class)(**arguments)
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            # Some classes replace `None` by their default.
            setattr(config, key, fixture.config[key])
        if not fixture.wrapper:
            return config
        name, more = fixture.wrapper
        outer = getattr(transformers, f"{name}Config")
        return outer(text_config=config.to_dict(), tie_word_embeddings=config.tie_word_embeddings, **more)
    classes = {
        "llama": transformers.LlamaConfig,
        "mistral": transformers.MistralConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
        "gemma3": transformers.Gemma3TextConfig,
    }
    arguments = dict(fixture.config)
    if arguments["head_dim"] is None:
        del arguments["head_dim"]
    text = classes[fixture.family](**arguments)
    if not fixture.multimodal:
        return text
    vision = transformers.SiglipVisionConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    return transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, tie_word_embeddings=True
    )


def make_model(fixture, config):
    if fixture.wrapper:
        name = f"{fixture.wrapper[0]}ForConditionalGeneration"
        model = getattr(transformers, name)._from_config(config, attn_implementation="eager")
        model.config.text_config._experts_implementation = "eager"
    elif fixture.compose:
        model = fixture.compose(config)
    elif fixture.multimodal:
        model = transformers.Gemma3ForConditionalGeneration._from_config(
            config, attn_implementation="eager"
        )
    else:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=fixture.attention)
        # The plain loop over experts: the other implementations do not support float64.
        model.config._experts_implementation = "eager"
    return model.to(torch.float32).eval()


def generator(*labels):
    digest = hashlib.sha256("/".join(labels).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


def fill(model, fixture_name, unit_norms, qk_gain=None, head_norms=1.0):
    """Fills the model with random parameters, each exact in F16."""
    gains = dict(GAIN, q_proj=qk_gain, k_proj=qk_gain) if qk_gain else GAIN
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = generator(fixture_name, name).standard_normal(tuple(parameter.shape))
            if "norm" in name and parameter.ndim == 1:
                mean = head_norms if "q_norm" in name or "k_norm" in name else 1.0
                values = values * NORM_STD + (mean - 1.0 if unit_norms and "linear_attn" not in name else mean)
            elif "A_log" in name:
                values = values * BIAS_STD + DECAY_MEAN
            elif parameter.ndim == 1:
                values = values * BIAS_STD
            elif "embed" in name:
                values = values * EMBED_STD
            else:
                gain = next((g for part, g in gains.items() if part in name), 1.0)
                # Matrices of experts are stacked: a sum has as many terms as the last dimension.
                n_terms = parameter.shape[-1] if parameter.ndim == 3 else np.prod(parameter.shape[1:])
                values = values * gain / np.sqrt(n_terms)
            values = values.astype(np.float16).astype(np.float32)
            parameter.copy_(torch.from_numpy(values))
        # Learned tensors that transformers keeps as buffers.
        for name, buffer in model.named_buffers():
            if any(part in name for part in ("e_score_correction_bias", "moe_statics", "expert_bias")):
                values = generator(fixture_name, name).standard_normal(tuple(buffer.shape))
                values = (values * CHOICE_STD).astype(np.float16).astype(np.float32)
                buffer.copy_(torch.from_numpy(values))
            if name.endswith("layer_scalar"):
                values = generator(fixture_name, name).standard_normal(tuple(buffer.shape))
                values = (1.0 + values * NORM_STD).astype(np.float16).astype(np.float32)
                buffer.copy_(torch.from_numpy(values))


def text_model(model):
    inner = model.base_model
    inner = getattr(inner, "language_model", inner)
    inner = getattr(inner, "decoder", inner)
    # In some classes the base is the model itself.
    return inner.model if inner is model else inner


def run(model, tokens):
    """Logits, the input of each block, and the output of the last."""
    inner = text_model(model)
    layers = next(getattr(inner, name) for name in ("layers", "h", "blocks") if hasattr(inner, name))
    hidden = {}
    # The active one of several streams; after the last block they are merged.
    active = getattr(inner.config, "altup_active_idx", None)

    def enters(index):
        def hook(_module, args, kwargs):
            value = args[0] if args else kwargs["hidden_states"]
            value = value[active] if value.ndim == 4 else value
            hidden[index] = value.detach()[0].clone()

        return hook

    def leaves(_module, _args, output):
        value = output[0] if isinstance(output, tuple) else output
        hidden[len(layers)] = value.detach()[0].clone()

    handles = [
        layer.register_forward_pre_hook(enters(i), with_kwargs=True)
        for i, layer in enumerate(layers)
    ]
    if active is None:
        handles.append(layers[-1].register_forward_hook(leaves))
    else:
        handles.append(inner.norm.register_forward_pre_hook(enters(len(layers)), with_kwargs=True))
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    return logits, [hidden[i] for i in range(len(layers) + 1)]


def check_conditioning(name, model, tokens, logits):
    """Checks that the fixture does not amplify rounding: float64 must agree far within the tests' bound."""
    # Its masks are of the default type, in which those of float64 have no place.
    needs_default = model.config.model_type == "xglm"
    torch.set_default_dtype(torch.float64 if needs_default else torch.float32)
    exact, _ = run(model.to(torch.float64), tokens)
    torch.set_default_dtype(torch.float32)
    spread = float(exact.max() - exact.min())
    error = float((exact - logits.double()).abs().max()) / spread
    model.to(torch.float32)
    print(f"  logit range {spread:.2f}, float32 against float64: {error:.1e} of it")
    # RoPE angles are float32 in both runs, so this covers only the other arithmetic.
    assert error < 1e-5, f"{name}: badly conditioned"


def check_v4(fixture, folder, tokens, logits):
    """Checks that transformers reads both spellings as the same model."""
    with tempfile.TemporaryDirectory() as temp:
        shutil.copy(folder / "config.v4.json", Path(temp) / "config.json")
        shutil.copy(folder / "model.safetensors", temp)
        reader = transformers.AutoModelForCausalLM
        if fixture.wrapper:
            reader = getattr(transformers, f"{fixture.wrapper[0]}ForConditionalGeneration")
        model = reader.from_pretrained(
            temp, attn_implementation="eager", dtype=torch.float32
        )
        again, _ = run(model.eval(), tokens)
    assert torch.equal(again, logits), "config.v4.json is another model"


def make(name, fixture, out):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    config = make_config(fixture)
    model = make_model(fixture, config)
    fill(model, name + fixture.salt, unit_norms=fixture.family in UNIT_NORMS, qk_gain=fixture.qk_gain, head_norms=fixture.head_norms)
    vocab_size = fixture.config["vocab_size"]
    tokens = generator(name, "tokens").integers(0, vocab_size, fixture.n_tokens)
    logits, hidden = run(model, tokens)
    check_conditioning(name, model, tokens, logits)

    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temp) / file, folder / file)
    if fixture.publish:
        tensors = fixture.publish(load_file(folder / "model.safetensors"))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
    if fixture.rewrite:
        written = json.loads((folder / "config.json").read_text())
        text = json.dumps(fixture.rewrite(written), indent=2) + "\n"
        (folder / "config.json").write_text(text)
    expected = {"tokens": tokens.astype(np.int64), "logits": logits.numpy()}
    expected.update({f"hidden.{i}": value.numpy() for i, value in enumerate(hidden)})
    expected = {key: np.ascontiguousarray(value) for key, value in expected.items()}
    save_file(expected, folder / "expected.safetensors")
    (folder / "expected.safetensors").chmod(0o644)
    if fixture.v4:
        written = json.loads((folder / "config.json").read_text())
        text = json.dumps(fixture.v4(written), indent=2) + "\n"
        (folder / "config.v4.json").write_text(text)
        check_v4(fixture, folder, tokens, logits)


def byte_symbols():
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, spare = {}, 256
    for byte in range(256):
        if byte in printable:
            symbols[byte] = chr(byte)
        else:
            symbols[byte], spare = chr(spare), spare + 1
    return [symbols[byte] for byte in range(256)]


class Lenient:
    """Enumeration in which an unknown name stands for itself."""

    def __init__(self, table):
        self.table = table if not isinstance(table, Lenient) else table.table

    def __getattr__(self, name):
        return getattr(self.table, name, name)

    def __iter__(self):
        return iter(self.table)


def convert(folder, vocab_size, llama_cpp, with_draft=False):
    """Runs llama.cpp's converter, with a byte-level vocabulary in place of a tokenizer."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import gguf
    for table in ("MODEL_ARCH", "MODEL_TENSOR", "VisionProjectorType"):
        # The package may be older than the converter, which refers to all known names at import.
        setattr(gguf, table, Lenient(getattr(gguf, table)))
    if not hasattr(gguf, "LazyChunkedTensor"):
        gguf.LazyChunkedTensor = type("LazyChunkedTensor", (), {})
    from conversion import get_model_class

    tokens = byte_symbols() + ["<|end|>"]
    tokens += [f"<|unused{i}|>" for i in range(vocab_size - len(tokens))]
    types = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL]
    types += [gguf.TokenType.UNUSED] * (vocab_size - len(types))

    def set_vocab(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        writer.add_token_merges(["Ġ t"])
        writer.add_eos_token_id(256)
        writer.add_add_bos_token(False)

    with tempfile.TemporaryDirectory() as temp:
        temp = Path(temp)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(folder / file, temp)
        # Gemma's conversion counts these tokens, to cut the padding of the embedding table.
        vocabulary = {t: i for i, t in enumerate(tokens)}
        # Nomic's conversion reads the tokenizer's kind.
        counted = {"model": {"type": "WordPiece", "vocab": vocabulary}, "added_tokens": []}
        (temp / "tokenizer.json").write_text(json.dumps(counted))
        with torch.inference_mode():
            converter = get_model_class(architecture(folder))
            # Blocks that predict further tokens are written only for draft fixtures.
            converter.no_mtp = not with_draft
            config = json.loads((folder / "config.json").read_text())
            # transformers adds keys that such a file lacks, and they would mislead the converter.
            has_own_words = "hybrid_override_pattern" in config or "n_embd" in config
            has_own_words |= config["model_type"] in ("exaone", "falcon", *OTHER_CODE)
            if config["model_type"] == "gpt_neox":
                # The converter knows only the keys of transformers 4.
                config = json.loads((folder / "config.v4.json").read_text())
                has_own_words = True
            as_it_is = {"hparams": config} if has_own_words else {}
            model = converter(
                temp,
                gguf.LlamaFileType.ALL_F32,
                folder / "model.f32.gguf",
                model_name=folder.name,
                **as_it_is,
            )
            # A wrapper's converter contains the text model's.
            inner = getattr(model, "impl", model)
            inner.set_vocab = lambda: set_vocab(inner.gguf_writer)
            model.write()


def architecture(folder):
    return json.loads((folder / "config.json").read_text())["architectures"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = Path(__file__).resolve().parent.parent / "testdata" / "goldens"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", choices=FIXTURES, metavar="NAME")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only or FIXTURES:
        print(name)
        fixture = FIXTURES[name]
        make(name, fixture, arguments.out)
        if fixture.gguf and arguments.llama_cpp:
            convert(arguments.out / name, fixture.config["vocab_size"], arguments.llama_cpp)


if __name__ == "__main__":
    main()
