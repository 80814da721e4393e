"""Dense families that equal a known one except for names or one addition."""

import numpy as np
import torch
import transformers
from torch import nn
from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

from . import Fixture, rope, tiny


def said(config, model_type, architecture, words):
    """A configuration with another type, some renamed keys, and RoPE as before transformers 5."""
    out = {words.get(key, key): value for key, value in config.items() if key != "rope_parameters"}
    parameters = dict(config["rope_parameters"])
    out["rope_theta"] = parameters.pop("rope_theta")
    out.update(model_type=model_type, architectures=[architecture])
    return out


def renamed(tensors, names):
    """Tensors with parts of their names replaced."""
    out = {}
    for key, x in tensors.items():
        for old, new in names.items():
            key = key.replace(old, new)
        out[key] = x
    return out


def fused_qkv(tensors, name):
    """Stacks queries, keys and values in one matrix."""
    out = {}
    for key, x in tensors.items():
        stem, _, kind = key.rpartition(".")
        if stem.endswith(("self_attn.k_proj", "self_attn.v_proj")):
            continue
        if stem.endswith("self_attn.q_proj"):
            block = stem.removesuffix("self_attn.q_proj")
            parts = [tensors[f"{block}self_attn.{part}_proj.{kind}"] for part in "qkv"]
            out[f"{block}{name}.{kind}"] = np.concatenate(parts)
        else:
            out[key] = x
    return out


def grouped_qkv(n_kv_heads, head_dim):
    """InternLM 2's order: each key head after its query heads and before its value head."""

    def publish(tensors):
        out = {}
        for key, x in tensors.items():
            if ".self_attn.k_proj." in key or ".self_attn.v_proj." in key:
                continue
            if ".self_attn.q_proj." not in key:
                out[key] = x
                continue
            parts = [tensors[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            rows = [part.reshape(n_kv_heads, -1, x.shape[1]) for part in parts]
            matrix = np.concatenate(rows, axis=1).reshape(-1, x.shape[1])
            out[key.replace("self_attn.q_proj", "attention.wqkv")] = np.ascontiguousarray(matrix)
        names = {
            "model.embed_tokens": "model.tok_embeddings",
            "input_layernorm": "attention_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.o_proj": "attention.wo",
            "mlp.gate_proj": "feed_forward.w1",
            "mlp.up_proj": "feed_forward.w3",
            "mlp.down_proj": "feed_forward.w2",
            "lm_head": "output",
        }
        return renamed(out, names)

    return publish


def internlm2(config):
    return {**said(config, "internlm2", "InternLM2ForCausalLM", {}), "bias": False}


def internlm3(config):
    words = {"attention_bias": "qkv_bias", "mlp_bias": "bias"}
    return said(config, "internlm3", "InternLM3ForCausalLM", words)


def pangu(config):
    out = said(config, "PanguEmbedded", "PanguEmbeddedForCausalLM", {"attention_bias": "bias"})
    out.pop("mlp_bias")
    return out


def orion(config):
    """StableLM's configuration, with the epsilon under the published key, which belongs to another kind of norm."""
    drop = ("use_qkv_bias", "qk_layernorm", "use_parallel_residual", "partial_rotary_factor")
    out = said(config, "orion", "OrionForCausalLM", {"layer_norm_eps": "rms_norm_eps"})
    return {key: value for key, value in out.items() if key not in drop}


def qwen(config):
    """Qwen 2's configuration with the keys of the first generation, which counts gate and up projection together."""
    words = {"rms_norm_eps": "layer_norm_epsilon"}
    out = said(config, "qwen", "QWenLMHeadModel", words)
    drop = ("use_sliding_window", "max_window_layers", "sliding_window", "layer_types", "num_key_value_heads", "hidden_act")
    out = {key: value for key, value in out.items() if key not in drop}
    out.update(
        intermediate_size=2 * config["intermediate_size"],
        kv_channels=config["hidden_size"] // config["num_attention_heads"],
        rotary_emb_base=out.pop("rope_theta"),
        rotary_pct=1.0,
        seq_length=config["max_position_embeddings"],
        no_bias=True,
        use_dynamic_ntk=True,
        use_logn_attn=True,
    )
    return out


QWEN = {
    "model.layers": "transformer.h",
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.up_proj": "mlp.w1",
    "mlp.gate_proj": "mlp.w2",
    "mlp.down_proj": "mlp.c_proj",
}


def without_gates(config):
    """DeepSeek V2 without experts. Its networks are an ungated squared ReLU."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
            self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

        def forward(self, x):
            return self.down_proj(self.up_proj(x).relu().square())

    model = transformers.DeepseekV2ForCausalLM._from_config(config, attn_implementation="eager")
    for layer in model.model.layers:
        layer.mlp = Network()
    return model


def without_rotations(config):
    """Llama without rotations, whose scores fall with the distance of the key (ALiBi)."""
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager")

    class Still(nn.Module):
        def forward(self, x, position_ids):
            ones = x.new_ones(1, position_ids.shape[-1], config.hidden_size // config.num_attention_heads)
            return ones, torch.zeros_like(ones)

    def sink(_module, args, kwargs):
        mask = kwargs["attention_mask"]
        heads = _get_alibi_slopes(config.num_attention_heads, mask.device).to(mask.dtype)
        keys = torch.arange(mask.shape[-1], dtype=mask.dtype)
        distance = keys[:, None] - keys
        kwargs["attention_mask"] = mask - heads[:, None, None] * distance
        return args, kwargs

    model.model.rotary_emb = Still()
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(sink, with_kwargs=True)
    return model


class UnitHead(nn.Linear):
    """Output head whose rows are normalised to length 1."""

    def forward(self, x):
        return nn.functional.linear(x, nn.functional.normalize(self.weight))


def with_unit_head(config):
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager")
    model.lm_head.__class__ = UnitHead
    return model


def baichuan_2(config):
    """Configuration of the second generation, which a key of its class marks."""
    return {**said(config, "baichuan", "BaichuanForCausalLM", {}), "z_loss_weight": 0}


def baichuan_13b(config):
    """The 13B's configuration: another key for the context, and none for rotations."""
    out = said(config, "baichuan", "BaichuanForCausalLM", {"max_position_embeddings": "model_max_length"})
    out.pop("rope_theta")
    return out


def plm(config):
    words = """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads
        max_position_embeddings rms_norm_eps tie_word_embeddings q_lora_rank kv_lora_rank qk_nope_head_dim
        qk_rope_head_dim v_head_dim attention_bias""".split()
    out = said(config, "plm", "PLMForCausalLM", {})
    out = {key: out[key] for key in [*words, "rope_theta", "model_type", "architectures"]}
    return {**out, "hidden_act": "relu2"}


LLAMA = dict(hidden_size=64, head_dim=None)

FIXTURES = {
    # Gates on the attention's output, norms without weights, heads that rotate only in layers with a window.
    "muse-glimmer": Fixture(
        "muse-glimmer",
        37,
        tiny(
            num_hidden_layers=4,
            sliding_window=11,
            qk_scale_factor=1.5,
            output_multiplier=0.5,
            final_logit_softcapping=6.0,
            rope_parameters=rope(10000.0),
        ),
        config_class="MuseGlimmerTextConfig",
        wrapper=(
            "MuseGlimmer",
            {
                "vision_config": dict(
                    hidden_size=8,
                    intermediate_size=8,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    pos_emb_height=2,
                    pos_emb_width=2,
                    patch_size=2,
                ),
                "out_hidden_size": 32,
                "projector_hidden_size": 8,
            },
        ),
        gguf=True,
    ),
    # Sinks, a window in most layers, one layer that does not rotate.
    "granite-swa": Fixture(
        "granite-swa",
        37,
        tiny(
            **LLAMA,
            num_hidden_layers=5,
            embedding_multiplier=2.0,
            attention_multiplier=0.25,
            residual_multiplier=0.5,
            logits_scaling=4.0,
            sliding_window=11,
            layer_rope_theta=[10000.0, 10000.0, 0, 10000.0, 0],
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="GraniteSWAConfig",
    ),
    "internlm2": Fixture(
        "internlm2",
        33,
        tiny(**LLAMA, rope_parameters=rope(1000000.0)),
        config_class="LlamaConfig",
        rewrite=internlm2,
        publish=grouped_qkv(2, 16),
    ),
    "internlm3": Fixture(
        "internlm3",
        33,
        tiny(**LLAMA, attention_bias=True, mlp_bias=True, rope_parameters=rope(1000000.0)),
        config_class="InternLM3Config",
        rewrite=internlm3,
    ),
    "xverse": Fixture(
        "xverse",
        31,
        tiny(**LLAMA, rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="LlamaConfig",
        rewrite=lambda config: said(config, "xverse", "XverseForCausalLM", {}),
    ),
    "orion": Fixture(
        "orion",
        31,
        tiny(**LLAMA, partial_rotary_factor=1.0, layer_norm_eps=1e-5, rope_parameters=rope(10000.0)),
        config_class="StableLmConfig",
        rewrite=orion,
    ),
    "baichuan": Fixture(
        "baichuan",
        31,
        tiny(**LLAMA, num_key_value_heads=4, rope_parameters=rope(10000.0)),
        config_class="LlamaConfig",
        rewrite=lambda config: said(config, "baichuan", "BaichuanForCausalLM", {}),
        publish=lambda tensors: fused_qkv(tensors, "self_attn.W_pack"),
    ),
    # An output head with normalised rows.
    "baichuan-2": Fixture(
        "baichuan",
        31,
        tiny(**LLAMA, num_key_value_heads=4, rope_parameters=rope(10000.0)),
        config_class="LlamaConfig",
        compose=with_unit_head,
        rewrite=baichuan_2,
        publish=lambda tensors: fused_qkv(tensors, "self_attn.W_pack"),
    ),
    # The number of layers by which readers recognise the 13B.
    "baichuan-13b": Fixture(
        "baichuan",
        31,
        tiny(
            hidden_size=16,
            intermediate_size=8,
            num_hidden_layers=40,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=None,
            rope_parameters=rope(10000.0),
        ),
        config_class="LlamaConfig",
        # So many layers would amplify rounding.
        qk_gain=0.5,
        compose=without_rotations,
        rewrite=baichuan_13b,
        publish=lambda tensors: fused_qkv(tensors, "self_attn.W_pack"),
    ),
    "pangu-embedded": Fixture(
        "pangu-embedded",
        31,
        tiny(**LLAMA, attention_bias=True, rope_parameters=rope(1000000.0)),
        gguf=True,
        config_class="LlamaConfig",
        rewrite=pangu,
    ),
    # LayerNorms and biases everywhere, a squared ReLU.
    "jais2": Fixture(
        "jais2",
        31,
        tiny(**LLAMA, rope_parameters=rope(500000.0)),
        config_class="Jais2Config",
    ),
    "qwen": Fixture(
        "qwen",
        31,
        tiny(
            **{**LLAMA, "num_key_value_heads": 4, "rms_norm_eps": 1e-6},
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="Qwen2Config",
        rewrite=qwen,
        publish=lambda tensors: renamed(fused_qkv(tensors, "attn.c_attn"), QWEN),
    ),
    "plm": Fixture(
        "plm",
        31,
        tiny(
            hidden_size=32,
            head_dim=None,
            num_key_value_heads=4,
            rms_norm_eps=1e-6,
            q_lora_rank=None,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            v_head_dim=12,
            first_k_dense_replace=2,
            tie_word_embeddings=True,
            rope_parameters=rope(100000.0),
        ),
        gguf=True,
        config_class="DeepseekV2Config",
        keep_none=("q_lora_rank",),
        compose=without_gates,
        rewrite=plm,
    ),
}
