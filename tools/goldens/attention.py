"""Families whose attention, rotation or norms differ."""

from . import Fixture, rope, tiny

SLIDING = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]


def without_types(config):
    """Leaves the layer types to the class's own pattern."""
    return {k: v for k, v in config.items() if k != "layer_types"}


def flat(config):
    """Spelling of transformers 4: text keys beside the others, sections under their old name."""
    out = {k: v for k, v in config.items() if k not in ("text_config", "dtype")}
    text = {k: v for k, v in config["text_config"].items() if k not in ("model_type", "layer_types", "dtype")}
    rotation = dict(text.pop("rope_parameters"))
    text["rope_theta"] = rotation.pop("rope_theta")
    out.update(text, rope_scaling={"type": "mrope", "mrope_section": rotation["mrope_section"]})
    return out


# Vision towers of the wrappers, which text does not use.
PIXTRAL = dict(
    model_type="pixtral",
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    head_dim=8,
    image_size=28,
    patch_size=14,
)
QWEN2_TOWER = dict(depth=1, embed_dim=16, hidden_size=32, num_heads=2, mlp_ratio=1, patch_size=4)
QWEN2_5_TOWER = dict(
    depth=1, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, out_hidden_size=48, fullatt_block_indexes=[0]
)
QWEN3_TOWER = dict(
    depth=1,
    hidden_size=16,
    intermediate_size=24,
    num_heads=2,
    patch_size=4,
    out_hidden_size=40,
    num_position_embeddings=16,
    deepstack_visual_indexes=[0],
)

FIXTURES = {
    # Attention and feed-forward in parallel, LayerNorm, adjacent elements rotate together, a factor on logits.
    "cohere": Fixture(
        "cohere",
        37,
        tiny(
            hidden_size=32,
            head_dim=None,
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            logit_scale=0.25,
            tie_word_embeddings=True,
            model_max_length=512,
            rope_parameters=rope(500000.0),
        ),
        gguf=True,
        config_class="CohereConfig",
    ),
    # Norms with separate weights for each head, as in Command R+.
    "cohere-plus": Fixture(
        "cohere",
        23,
        tiny(
            hidden_size=32,
            intermediate_size=24,
            head_dim=None,
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            logit_scale=0.25,
            use_qk_norm=True,
            tie_word_embeddings=True,
            model_max_length=512,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="CohereConfig",
    ),
    # The same with every bias of attention and an untied head.
    "cohere-bias": Fixture(
        "cohere",
        31,
        tiny(
            vocab_size=131,
            hidden_size=48,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=None,
            rms_norm_eps=None,
            attention_bias=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="CohereConfig",
    ),
    # Three layers with a window; the fourth does not rotate.
    "cohere2": Fixture(
        "cohere2",
        45,
        tiny(
            hidden_size=32,
            head_dim=None,
            num_hidden_layers=5,
            rms_norm_eps=None,
            layer_norm_eps=1e-5,
            logit_scale=0.5,
            rotary_pct=1.0,
            sliding_window=11,
            tie_word_embeddings=True,
            rope_parameters=rope(50000.0),
        ),
        v4=without_types,
        gguf=True,
        config_class="Cohere2Config",
    ),
    # Norms only after each half of a block, and over whole projections.
    "olmo2": Fixture(
        "olmo2",
        39,
        tiny(
            hidden_size=32,
            head_dim=None,
            rope_parameters=rope(500000.0),
        ),
        gguf=True,
        config_class="Olmo2Config",
    ),
    "olmo2-bias": Fixture(
        "olmo2",
        29,
        tiny(
            vocab_size=131,
            hidden_size=48,
            num_attention_heads=6,
            head_dim=None,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="Olmo2Config",
    ),
    # The same with windows; only global layers have a scaled rotation.
    "olmo3": Fixture(
        "olmo3",
        47,
        tiny(
            hidden_size=32,
            head_dim=None,
            num_hidden_layers=5,
            sliding_window=13,
            rope_parameters={
                "full_attention": rope(
                    500000.0,
                    "yarn",
                    factor=8.0,
                    original_max_position_embeddings=512,
                    beta_fast=32.0,
                    beta_slow=1.0,
                    attention_factor=1.2079441541679836,
                ),
                "sliding_attention": rope(500000.0),
            },
        ),
        gguf=True,
        config_class="Olmo3Config",
    ),
    # Norms of heads. With windows, the global layers do not rotate; without windows, all do.
    "exaone4": Fixture(
        "exaone4",
        43,
        tiny(
            num_hidden_layers=5,
            sliding_window=9,
            rope_parameters=rope(1000000.0),
        ),
        v4=lambda config: {**without_types(config), "sliding_window_pattern": 4},
        gguf=True,
        config_class="Exaone4Config",
    ),
    "exaone4-full": Fixture(
        "exaone4",
        29,
        tiny(
            vocab_size=131,
            sliding_window=None,
            layer_types=["full_attention"] * 2,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0, "linear", factor=2.0),
        ),
        config_class="Exaone4Config",
    ),
    # A factor on queries that grows with the position.
    "mistral3": Fixture(
        "mistral3",
        41,
        tiny(
            sliding_window=None,
            rope_parameters=rope(
                1000000.0,
                "yarn",
                factor=4.0,
                original_max_position_embeddings=16,
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.3,
            ),
        ),
        gguf=True,
        config_class="Ministral3Config",
    ),
    # The text model of a wrapper, an unchanged Mistral.
    "mistral3-small": Fixture(
        "mistral3",
        29,
        tiny(rope_parameters=rope(100000.0), sliding_window=None),
        gguf=True,
        config_class="MistralConfig",
        wrapper=("Mistral3", {"vision_config": PIXTRAL}),
    ),
    # For text, the three sections of a head rotate as one.
    "qwen2vl": Fixture(
        "qwen2vl",
        37,
        tiny(
            hidden_size=32,
            head_dim=None,
            rope_parameters=rope(1000000.0, mrope_section=[2, 1, 1]),
        ),
        v4=flat,
        gguf=True,
        config_class="Qwen2VLTextConfig",
        wrapper=("Qwen2VL", {"vision_config": QWEN2_TOWER}),
    ),
    "qwen2_5vl-window": Fixture(
        "qwen2vl",
        41,
        tiny(
            vocab_size=131,
            hidden_size=48,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=None,
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=11,
            max_window_layers=1,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0, mrope_section=[2, 3, 3]),
        ),
        config_class="Qwen2_5_VLTextConfig",
        wrapper=("Qwen2_5_VL", {"vision_config": QWEN2_5_TOWER}),
    ),
    "qwen3vl": Fixture(
        "qwen3vl",
        35,
        tiny(
            tie_word_embeddings=True,
            rope_parameters=rope(5000000.0, mrope_section=[4, 2, 2], mrope_interleaved=True),
        ),
        gguf=True,
        config_class="Qwen3VLTextConfig",
        wrapper=("Qwen3VL", {"vision_config": QWEN3_TOWER}),
    ),
    # Norms before both projections to the residual stream, a squared ReLU.
    "bitnet": Fixture(
        "bitnet",
        33,
        tiny(
            vocab_size=131,
            hidden_size=32,
            head_dim=None,
            rope_parameters=rope(500000.0),
        ),
        config_class="BitNetConfig",
    ),
}
