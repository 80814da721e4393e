"""Families with states beside attention, and with biases by distance."""

import numpy as np

from . import Fixture, definitions, rope, tiny
from .recurrent import delta
from .relatives import without
from .renamed import renamed

JAIS = dict(by_size=True, embed_scale=3.5, output_scale=0.75)
GPT2_NAMES = {"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "model.norm": "transformer.ln_f"}


def gpt2_words(config, model_type, architecture, **more):
    """A configuration under the keys of GPT-2."""
    return dict(
        model_type=model_type,
        architectures=[architecture],
        vocab_size=config["vocab_size"],
        n_embd=config["hidden_size"],
        n_layer=config["num_hidden_layers"],
        n_head=config["num_attention_heads"],
        n_positions=config["max_position_embeddings"],
        layer_norm_epsilon=config["rms_norm_eps"],
        tie_word_embeddings=config["tie_word_embeddings"],
        **more,
    )


def jais(config):
    factors = config["jais"]
    return gpt2_words(
        config,
        "jais",
        "JAISLMHeadModel",
        n_inner=config["intermediate_size"],
        activation_function="swiglu",
        position_embedding_type="alibi",
        mup_embeddings_scale=factors["embed_scale"],
        mup_output_alpha=1.5,
        mup_width_scale=factors["output_scale"] / 1.5,
        mup_scale_qk_dot_by_d=factors["by_size"],
    )


def jais_tensors(tensors):
    """Matrices transposed. Published files also have the slopes, which llama.cpp's converter cannot read from a file that it opens
    lazily."""
    out = renamed(tensors, GPT2_NAMES)
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight", "c_fc2.weight")
    return {key: np.ascontiguousarray(x.T) if key.endswith(turned) else x for key, x in out.items()}


def convolutions(tensors):
    """Convolutions of queries, keys and values as in published folders. transformers 5.24 saves three parts of one length, whatever
    the widths are; it joins them again when it reads them."""
    out = dict(tensors)
    for key in tensors:
        if not key.endswith("q_conv1d.weight"):
            continue
        names = [key.replace("q_conv1d", f"{part}_conv1d") for part in "qkv"]
        widths = [len(tensors[name.replace("conv1d", "proj")]) for name in names]
        parts = np.split(np.concatenate([tensors[name] for name in names]), np.cumsum(widths)[:-1])
        out.update({name: np.ascontiguousarray(part) for name, part in zip(names, parts)})
    return out


SPARK_ROPES = {
    "full_attention": {"rope_theta": 500000.0, "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_theta": 10000.0, "partial_rotary_factor": 1.0},
}


def spark(config):
    out = dict(config, model_type="spark2_5", architectures=["Spark2_5ForCausalLM"], rope_parameters=config["spark_ropes"])
    out.update(hidden_act="gelu", headwise_attn_output_gate=True, gate_attn_act_mode="sigmoid")
    return without(out, "spark_ropes")


FIXTURES = {
    # States that may change their sign, value heads larger than key heads; attention with norms behind it, without rotations.
    "olmo-hybrid": Fixture(
        "olmo_hybrid",
        73,
        delta(
            head_dim=None,
            hidden_size=48,
            num_hidden_layers=3,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            linear_num_value_heads=2,
            linear_value_head_dim=24,
            rope_parameters={"rope_type": "default", "rope_theta": None},
        ),
        config_class="OlmoHybridConfig",
        publish=convolutions,
    ),
    # Factors on embeddings, scores and logits; a number of heads that is no power of 2.
    "jais": Fixture(
        "jais",
        37,
        tiny(num_attention_heads=5, num_key_value_heads=5, head_dim=8, jais=JAIS, rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="LlamaConfig",
        compose=definitions.jais,
        rewrite=jais,
        publish=jais_tensors,
    ),
    # One key head; a number of heads that is no power of 2.
    "refact": Fixture(
        "gpt_refact",
        35,
        tiny(intermediate_size=256, num_attention_heads=5, num_key_value_heads=1, head_dim=8, rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="LlamaConfig",
        compose=definitions.refact,
        rewrite=lambda config: gpt2_words(config, "gpt_refact", "GPTRefactForCausalLM", multi_query=True),
        publish=lambda tensors: renamed(tensors, {**GPT2_NAMES, "model.norm": "ln_f"}),
    ),
    # Experts of attention share heads of keys and values; biases behind the sums of experts.
    "jetmoe": Fixture(
        "jetmoe",
        31,
        dict(
            vocab_size=263,
            hidden_size=40,
            intermediate_size=24,
            num_hidden_layers=2,
            num_key_value_heads=2,
            kv_channels=16,
            num_local_experts=5,
            num_experts_per_tok=3,
            max_position_embeddings=512,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
            rope_parameters=rope(10000.0),
        ),
        config_class="JetMoeConfig",
    ),
    # Windows in layers that rotate otherwise, gates of heads, GELU.
    "spark2_5": Fixture(
        "spark2_5",
        33,
        tiny(
            num_hidden_layers=4,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            sliding_window=11,
            tie_word_embeddings=True,
            spark_ropes=SPARK_ROPES,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=lambda config: definitions.of_blocks(config, definitions.Spark),
        rewrite=spark,
        publish=lambda tensors: {key: x for key, x in tensors.items() if key != "lm_head.weight"},
    ),
}
