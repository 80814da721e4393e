"""Gemma 3n."""

import numpy as np

from . import Fixture, rope, tiny
from .gemma4 import HEAD_NORMS

SLIDES, SEES_ALL = "sliding_attention", "full_attention"


def sizes(**more):
    out = dict(
        num_hidden_layers=6,
        layer_types=[SLIDES, SLIDES, SEES_ALL] * 2,
        sliding_window=9,
        final_logit_softcapping=30.0,
        tie_word_embeddings=True,
        num_key_value_heads=1,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=263,
        laurel_rank=6,
        altup_num_inputs=4,
        activation_sparsity_pattern=[0.6, 0.6, 0.0, 0.75, 0.0, 0.0],
        rope_parameters={
            "full_attention": rope(1000000.0),
            "sliding_attention": rope(10000.0),
        },
    )
    out.update(more)
    return tiny(**out)


def v4(config):
    """Spelling of transformers 4: two bases."""
    out = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype")}
    out["rope_theta"] = config["rope_parameters"]["full_attention"]["rope_theta"]
    out["rope_scaling"] = None
    out["rope_local_base_freq"] = config["rope_parameters"]["sliding_attention"]["rope_theta"]
    out["torch_dtype"] = "float32"
    out["transformers_version"] = "4.53.0"
    return out


def published(tensors):
    """Tensors as in published folders: the text model within a wrapper, and unused tensors of layers that share."""
    out = {}
    for name, tensor in tensors.items():
        out[name.replace("model.", "model.language_model.", 1)] = tensor
        if ".2.self_attn." in name and "_proj" in name and name.split(".")[-2] in ("k_proj", "v_proj"):
            # The last layer shares keys and values.
            out[name.replace("model.layers.2", "model.language_model.layers.3")] = tensor
    some = np.ones((2, 2), dtype=np.float32)
    return out | {"model.vision_tower.timm_model.blocks.0.weight": some, "model.audio_tower.conformer.0.weight": some}


def within(config):
    outer = {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n"}
    text = {key: value for key, value in config.items() if key != "architectures"}
    return outer | {"text_config": text, "vision_config": {"model_type": "gemma3n_vision"}, "audio_config": {}}


FIXTURES = {
    # Streams, low-rank residuals, sparse gates, embeddings of each layer, layers that share keys and values, networks of two widths.
    "gemma3n": Fixture(
        "gemma3n",
        43,
        sizes(intermediate_size=[24, 24, 24, 24, 40, 40]),
        v4=v4,
        gguf=True,
        config_class="Gemma3nTextConfig",
        head_norms=HEAD_NORMS,
    ),
    # Three streams, the second active; tokens beyond the table of layer embeddings; an untied head.
    "gemma3n-streams": Fixture(
        "gemma3n",
        31,
        sizes(
            vocab_size=131,
            vocab_size_per_layer_input=111,
            num_hidden_layers=3,
            layer_types=[SEES_ALL, SLIDES, SLIDES],
            num_key_value_heads=2,
            num_kv_shared_layers=0,
            altup_num_inputs=3,
            altup_active_idx=1,
            activation_sparsity_pattern=[0.5, 0.0, 0.3],
            tie_word_embeddings=False,
        ),
        config_class="Gemma3nTextConfig",
        head_norms=HEAD_NORMS,
    ),
    # The text model within a wrapper.
    "gemma3n-multimodal": Fixture(
        "gemma3n",
        29,
        sizes(
            vocab_size=131,
            vocab_size_per_layer_input=120,
            num_hidden_layers=4,
            layer_types=[SLIDES, SEES_ALL] * 2,
            num_kv_shared_layers=1,
            activation_sparsity_pattern=[0.6, 0.6, 0.0, 0.0],
        ),
        config_class="Gemma3nTextConfig",
        head_norms=HEAD_NORMS,
        publish=published,
        rewrite=within,
    ),
}
