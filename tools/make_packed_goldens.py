#!/usr/bin/env python3
"""Makes the fixtures of testdata/packed: tiny models whose matrices are packed as quantisers publish them (FP8,
compressed-tensors, ModelOpt, GPTQ, AWQ), with the logits that transformers computes from the unpacked weights in float32.

    python tools/make_packed_goldens.py [--out DIR] [--only NAME ...]

Needs the packages of tools/make_goldens.py. If the package compressed-tensors is installed too, its own unpacking is compared
with the one below. GPTQ's layout is that of `QuantLinear` in AutoGPTQ and GPTQModel, AWQ's that of `WQLinear_GEMM` in
AutoAWQ.

Each fixture is a folder:
    config.json           with `quantization_config`
    model.safetensors     packed matrices; everything else F32
    expected.safetensors  tokens i64 [n]; logits f32 [n, vocab]; weight.<name>: some unpacked matrices, f32
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import make_goldens
from goldens import Fixture, rope, tiny

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(codes, bits):
    """Packs the last dimension into words, lowest bits first."""
    per_word = 32 // bits
    groups = codes.astype(np.uint32).reshape(*codes.shape[:-1], -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint32) * bits
    return torch.from_numpy((groups << shifts).sum(-1, dtype=np.uint32).view(np.int32))


def integers(weight, bits, group, symmetric, scale_type, listed=None):
    """Codes [n, k], zero points and scales [n, groups], and the matrix that they represent."""
    n, k = weight.shape
    group = k if group == -1 else group
    of = np.arange(k) // group if listed is None else listed
    top, middle = 2**bits - 1, 2 ** (bits - 1)
    scales, zeros = np.zeros((n, k // group), np.float32), np.full((n, k // group), middle)
    for g in range(k // group):
        part = weight[:, of == g]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        step = np.abs(part).max(1) / (middle - 0.5) if symmetric else (high - low) / top
        scales[:, g] = torch.from_numpy(step).to(scale_type).float().numpy()
        if not symmetric:
            zeros[:, g] = np.clip(np.round(-low / scales[:, g]), 0, top)
    codes = np.clip(np.round(weight / scales[:, of]) + zeros[:, of], 0, top).astype(np.int64)
    return codes, zeros, scales, scales[:, of] * (codes - zeros[:, of])


def gptq(weight, bits=4, group=32, symmetric=True, order=False, name=""):
    k = weight.shape[1]
    n_groups = 1 if group == -1 else k // group
    listed = np.arange(k) // (k // n_groups)
    if order:
        listed = make_goldens.generator(name, "order").permutation(listed)
    codes, zeros, scales, plain = integers(weight, bits, group, symmetric, torch.float16, listed)
    parts = {
        "qweight": words(codes, bits).T,
        "qzeros": words((zeros.T - 1) & (2**bits - 1), bits),
        "scales": torch.from_numpy(scales.T).half(),
        "g_idx": torch.from_numpy(listed.astype(np.int32)),
        # Some quantisers write a bias for modules that have none.
        "bias": torch.zeros(weight.shape[0], dtype=torch.float16),
    }
    return parts, plain


def awq(weight, group=32, name=""):
    codes, zeros, scales, plain = integers(weight, 4, group, False, torch.float16)
    order = lambda x: x.reshape(x.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(x.shape)
    parts = {
        "qweight": words(order(codes.T), 4),
        "qzeros": words(order(zeros.T), 4),
        "scales": torch.from_numpy(scales.T).half(),
    }
    return parts, plain


def pack_quantized(weight, bits=4, group=32, symmetric=True, order=False, name=""):
    n, k = weight.shape
    n_groups = 1 if group == -1 else k // group
    listed = make_goldens.generator(name, "order").permutation(np.arange(k) // group) if order else None
    codes, zeros, scales, plain = integers(weight, bits, group, symmetric, torch.bfloat16, listed)
    parts = {
        "weight_packed": words(codes, bits),
        "weight_scale": torch.from_numpy(scales).bfloat16(),
        "weight_shape": torch.tensor([n, k]),
    }
    if not symmetric:
        parts["weight_zero_point"] = words(zeros.T, bits).T
    if order:
        parts["weight_g_idx"] = torch.from_numpy(listed.astype(np.int32))
    else:
        compare_with_package(parts, plain, bits, group, symmetric)
    return parts, plain


def compare_with_package(parts, plain, bits, group, symmetric):
    try:
        from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    except ImportError:
        return
    strategy = "channel" if group == -1 else "group"
    arguments = QuantizationArgs(
        num_bits=bits, group_size=None if group == -1 else group, symmetric=symmetric, strategy=strategy
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    parts = {key: value.contiguous() for key, value in parts.items()}
    parts["weight_scale"] = parts["weight_scale"].float()
    found = PackedQuantizationCompressor.decompress(parts, scheme)["weight"]
    assert torch.equal(found.float(), torch.from_numpy(plain).float())


def int_quantized(weight, name=""):
    codes, _, scales, plain = integers(weight, 8, -1, True, torch.bfloat16)
    parts = {
        "weight": torch.from_numpy((codes - 128).astype(np.int8)),
        "weight_scale": torch.from_numpy(scales).bfloat16(),
    }
    return parts, plain


def float8(weight, rows, columns, scale_name, scale_type, shape=None, name=""):
    """FP8 with scales for blocks of `rows` by `columns`; 0 means all of them."""
    n, k = weight.shape
    rows, columns = rows or n, columns or k
    scales = np.zeros((-(-n // rows), -(-k // columns)), np.float32)
    full = lambda: np.repeat(np.repeat(scales, rows, 0), columns, 1)[:n, :k]
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = weight[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            scales[i, j] = np.abs(part).max() / 448
    scales = torch.from_numpy(scales).to(scale_type)
    stored, scales = scales, scales.float().numpy()
    codes = torch.from_numpy(weight / full()).to(torch.float8_e4m3fn)
    parts = {"weight": codes, scale_name: stored.reshape(shape) if shape is not None else stored}
    if scale_name == "weight_scale":
        parts["input_scale"] = torch.tensor(1.0)
    return parts, codes.float().numpy() * full()


LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def pairs(weight, scales, group):
    """E2M1 codes, two per byte, and the numbers that they represent with these scales, one per group."""
    full = np.repeat(scales, group, 1)
    size = np.abs(weight / full)
    codes = np.abs(size[..., None] - LEVELS).argmin(-1)
    plain = np.where(weight < 0, -1, 1) * LEVELS[codes] * full
    codes = codes + 8 * (weight < 0)
    return torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)), plain


def group_sizes(weight, group):
    return np.abs(weight.reshape(weight.shape[0], -1, group)).max(-1)


def ternary(weight, name=""):
    """BitNet: -1, 0 and 1 in two bits, four rows per byte, and one scale for the matrix (transformers, `pack_weights`)."""
    from transformers.integrations.bitnet import pack_weights

    scale = torch.tensor([np.abs(weight).mean()]).to(torch.bfloat16)
    codes = torch.clamp(torch.round(torch.from_numpy(weight) / scale.float()), -1, 1)
    parts = dict(weight=pack_weights(codes.clone()), weight_scale=scale)
    return parts, codes.numpy() * scale.float().numpy()


def nvfp4(weight, names, divides, name=""):
    """NVFP4. `names` are those of the codes, their scales, and the scale of the whole matrix."""
    # The largest group scale is the maximum of E4M3.
    whole = np.float32(448 * 6 / np.abs(weight).max())
    scales = torch.from_numpy(group_sizes(weight, 16) / 6 * whole).to(torch.float8_e4m3fn)
    codes, plain = pairs(weight, scales.float().numpy() / whole, 16)
    number = torch.tensor([whole if divides else 1 / whole], dtype=torch.float32)
    parts = dict(zip(names, (codes, scales, number if divides else number.reshape(()))))
    if divides:
        compare_floats_with_package("nvfp4", "NVFP4", parts, plain, group_size=16, strategy="tensor_group")
        parts["input_global_scale"] = torch.tensor([1.0])
    return parts, plain


def mxfp4(weight, name=""):
    exponents = np.floor(np.log2(group_sizes(weight, 32))).astype(np.int32) - 2
    codes, plain = pairs(weight, np.exp2(exponents).astype(np.float32), 32)
    parts = {"weight_packed": codes, "weight_scale": torch.from_numpy((exponents + 127).astype(np.uint8))}
    compare_floats_with_package("mxfp4", "MXFP4", parts, plain, group_size=32, strategy="group")
    return parts, plain


def mxfp8(weight, name=""):
    exponents = np.floor(np.log2(group_sizes(weight, 32))).astype(np.int32) - 8
    full = np.repeat(np.exp2(exponents).astype(np.float32), 32, 1)
    codes = torch.from_numpy(np.clip(weight / full, -448, 448)).to(torch.float8_e4m3fn)
    parts = {"weight": codes, "weight_scale": torch.from_numpy((exponents + 127).astype(np.uint8))}
    return parts, codes.float().numpy() * full


def compare_floats_with_package(module, prefix, parts, plain, **arguments):
    try:
        import importlib

        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

        compressor = importlib.import_module(f"compressed_tensors.compressors.{module}.base")
    except ImportError:
        return
    compressor = getattr(compressor, f"{prefix}PackedCompressor")
    arguments = QuantizationArgs(num_bits=4, type="float", symmetric=True, **arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    found = compressor.decompress(dict(parts), scheme)["weight"].float()
    # The package computes in BF16.
    assert torch.allclose(found, torch.from_numpy(plain).float(), rtol=2**-7, atol=0), (found, plain)


def groups(**weights):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def packed_as(format, **weights):
    return dict(groups(**weights), format=format)


DENSE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, head_dim=32, vocab_size=131)
LLAMA = Fixture("llama", 29, tiny(**DENSE, rope_parameters=rope()), config_class="LlamaConfig")
QWEN2 = Fixture("qwen2", 29, tiny(**DENSE, rope_parameters=rope()), config_class="Qwen2Config")
# Rows and columns that are no multiple of 128, and one matrix per expert.
MOE = Fixture(
    "qwen3_moe",
    29,
    tiny(
        hidden_size=160,
        num_hidden_layers=1,
        head_dim=32,
        vocab_size=131,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        norm_topk_prob=True,
        rope_parameters=rope(),
    ),
    config_class="Qwen3MoeConfig",
)

# Rows of an expert's last matrix are no multiple of an NVFP4 block.
MOE_64 = Fixture(
    "qwen3_moe",
    29,
    tiny(
        hidden_size=64,
        num_hidden_layers=1,
        head_dim=32,
        vocab_size=131,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        norm_topk_prob=True,
        rope_parameters=rope(),
    ),
    config_class="Qwen3MoeConfig",
)

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False, "checkpoint_format": "gptq"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
INTS = dict(type="int", strategy="group", group_size=32)

NV_GROUPS = dict(type="float", strategy="tensor_group", group_size=16)
NVFP4 = ("weight_packed", "weight_scale", "weight_global_scale")

# The model, `quantization_config`, and the function that packs a matrix. A module whose name ends in an entry of `unpacked` is not packed.
# Rows of 256, and of 192 after the activation.
BITNET = Fixture(
    "bitnet",
    31,
    tiny(vocab_size=67, hidden_size=256, intermediate_size=192, head_dim=None, num_attention_heads=8, num_key_value_heads=4),
    config_class="BitNetConfig",
)

FIXTURES = {
    "fp8-block": (MOE, FP8, lambda w, name: float8(w, 128, 128, "weight_scale_inv", torch.float32)),
    "fp8-power": (
        LLAMA,
        dict(FP8, weight_block_size=[32, 64], scale_fmt="ue8m0", modules_to_not_convert=["lm_head"]),
        lambda w, name: float8(w, 32, 64, "weight_scale_inv", torch.float8_e8m0fnu),
    ),
    "fp8-tensor": (
        LLAMA,
        packed_as("float-quantized", num_bits=8, type="float", strategy="tensor"),
        lambda w, name: float8(w, 0, 0, "weight_scale", torch.float32, shape=()),
    ),
    "fp8-channel": (
        LLAMA,
        packed_as("float-quantized", num_bits=8, type="float", strategy="channel"),
        lambda w, name: float8(w, 1, 0, "weight_scale", torch.bfloat16),
    ),
    "pack-int4": (LLAMA, packed_as("pack-quantized", num_bits=4, symmetric=True, **INTS), lambda w, name: pack_quantized(w)),
    "pack-int4-zeros": (
        QWEN2,
        packed_as("pack-quantized", num_bits=4, symmetric=False, **INTS),
        lambda w, name: pack_quantized(w, symmetric=False),
    ),
    "pack-int4-order": (
        LLAMA,
        packed_as("pack-quantized", num_bits=4, symmetric=True, actorder="group", **INTS),
        lambda w, name: pack_quantized(w, order=True, name=name),
    ),
    "pack-int8": (
        LLAMA,
        packed_as("pack-quantized", num_bits=8, symmetric=True, type="int", strategy="channel"),
        lambda w, name: pack_quantized(w, bits=8, group=-1),
    ),
    "int8": (
        LLAMA,
        packed_as("int-quantized", num_bits=8, symmetric=True, type="int", strategy="channel"),
        lambda w, name: int_quantized(w),
    ),
    "nvfp4": (LLAMA, packed_as("nvfp4-pack-quantized", num_bits=4, **NV_GROUPS), lambda w, name: nvfp4(w, NVFP4, True)),
    # Factors are applied before biases.
    "nvfp4-bias": (QWEN2, packed_as("nvfp4-pack-quantized", num_bits=4, **NV_GROUPS), lambda w, name: nvfp4(w, NVFP4, True)),
    "nvfp4-experts": (MOE_64, packed_as("nvfp4-pack-quantized", num_bits=4, **NV_GROUPS), lambda w, name: nvfp4(w, NVFP4, True)),
    "nvfp4-modelopt": (
        LLAMA,
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
        lambda w, name: nvfp4(w, ("weight", "weight_scale", "weight_scale_2"), False),
    ),
    "mxfp4": (
        LLAMA,
        packed_as("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32),
        lambda w, name: mxfp4(w),
    ),
    "mxfp8": (
        LLAMA,
        packed_as("mxfp8-quantized", num_bits=8, type="float", strategy="group", group_size=32),
        lambda w, name: mxfp8(w),
    ),
    "bitnet": (
        BITNET,
        {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline", "modules_to_not_convert": None},
        lambda w, name: ternary(w),
    ),
    "gptq": (LLAMA, GPTQ, lambda w, name: gptq(w)),
    "gptq-zeros": (QWEN2, dict(GPTQ, sym=False), lambda w, name: gptq(w, symmetric=False)),
    "gptq-order": (LLAMA, dict(GPTQ, sym=False, desc_act=True), lambda w, name: gptq(w, symmetric=False, order=True, name=name)),
    "gptq-8": (LLAMA, dict(GPTQ, bits=8, group_size=-1), lambda w, name: gptq(w, bits=8, group=-1)),
    "awq": (QWEN2, AWQ, lambda w, name: awq(w)),
}

# Matrices whose numbers the tests compare; then those that are not packed.
KEPT = ("layers.0.self_attn.k_proj.weight", "layers.0.mlp.down_proj.weight", "experts.1.down_proj.weight")
UNPACKED = ("lm_head.weight", "embed_tokens.weight", "mlp.gate.weight", "norm.weight")


def make(name, out):
    fixture, quantization, pack = FIXTURES[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model = make_goldens.make_model(fixture, make_goldens.make_config(fixture))
    make_goldens.fill(model, name, unit_norms=False)
    with tempfile.TemporaryDirectory() as temp:
        model.save_pretrained(temp)
        config = json.loads((Path(temp) / "config.json").read_text())
        plain = load_file(Path(temp) / "model.safetensors")
    stored, expected = {}, {}
    for key, value in plain.items():
        if value.ndim != 2 or key.endswith(UNPACKED):
            stored[key] = value
            continue
        module = key.removesuffix(".weight")
        parts, numbers = pack(value.numpy(), name=f"{name}/{module}")
        plain[key] = torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.float32))
        for part, tensor in parts.items():
            if not (part == "bias" and f"{module}.bias" in plain):
                stored[f"{module}.{part}"] = tensor.contiguous()
        if key.endswith(KEPT):
            expected[f"weight.{key}"] = plain[key]
    config["quantization_config"] = quantization
    with tempfile.TemporaryDirectory() as temp:
        (Path(temp) / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "quantization_config"}))
        save_file(plain, Path(temp) / "model.safetensors", metadata={"format": "pt"})
        model = type(model).from_pretrained(temp, attn_implementation="eager", dtype=torch.float32).eval()
    model.config._experts_implementation = "eager"
    tokens = make_goldens.generator(name, "tokens").integers(0, fixture.config["vocab_size"], fixture.n_tokens)
    logits, _ = make_goldens.run(model, tokens)
    make_goldens.check_conditioning(name, model, tokens, logits)
    expected.update(tokens=torch.from_numpy(tokens.astype(np.int64)), logits=logits.contiguous())
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(stored, folder / "model.safetensors")
    save_file(expected, folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    default = Path(__file__).resolve().parent.parent / "testdata" / "packed"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only", nargs="*", choices=FIXTURES, metavar="NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only or FIXTURES:
        print(name)
        make(name, arguments.out)


if __name__ == "__main__":
    main()
