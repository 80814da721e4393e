"""Families with recurrent layers."""

from . import Fixture, rope, tiny

MROPE = dict(partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True)


def delta(**sizes):
    """Three value heads a key head, so that their order shows."""
    out = tiny(
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
    out.update(sizes)
    return out


FIXTURES = {
    # Short convolutions, attention in the second layer alone, a feed-forward whose width is adjusted.
    "lfm2": Fixture(
        "lfm2",
        83,
        tiny(
            hidden_size=32,
            num_attention_heads=4,
            head_dim=None,
            num_hidden_layers=3,
            rms_norm_eps=None,
            norm_eps=1e-5,
            intermediate_size=60,
            block_multiple_of=8,
            block_ffn_dim_multiplier=1.3,
            layer_types=["conv", "full_attention", "conv"],
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        gguf=True,
        config_class="Lfm2Config",
    ),
    # Biases of the convolution and both projections, four taps, a width as it is, a head of its own.
    "lfm2-bias": Fixture(
        "lfm2",
        31,
        tiny(
            vocab_size=131,
            hidden_size=32,
            num_attention_heads=4,
            head_dim=None,
            num_hidden_layers=3,
            rms_norm_eps=None,
            norm_eps=1e-5,
            conv_bias=True,
            conv_L_cache=4,
            block_auto_adjust_ff_dim=False,
            layer_types=["full_attention", "conv", "conv"],
            rope_parameters=rope(10000.0),
        ),
        config_class="Lfm2Config",
    ),
    # Experts behind a dense layer, chosen by a sigmoid with a bias.
    "lfm2moe": Fixture(
        "lfm2_moe",
        71,
        tiny(
            hidden_size=32,
            num_attention_heads=4,
            head_dim=None,
            num_hidden_layers=3,
            rms_norm_eps=None,
            norm_eps=1e-5,
            num_dense_layers=1,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            layer_types=["conv", "full_attention", "conv"],
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        gguf=True,
        config_class="Lfm2MoeConfig",
    ),
    # The usual pattern, value heads in two orders, sections that rotate interleaved.
    "qwen35": Fixture(
        "qwen3_5",
        83,
        delta(tie_word_embeddings=True, rope_parameters=rope(10000000.0, **MROPE)),
        gguf=True,
        config_class="Qwen3_5TextConfig",
    ),
    # Attention in layers of no pattern, biases, values wider than keys, as many value heads as key heads.
    "qwen35-wide": Fixture(
        "qwen3_5",
        29,
        delta(
            vocab_size=131,
            num_hidden_layers=3,
            linear_num_value_heads=2,
            linear_value_head_dim=24,
            linear_conv_kernel_dim=3,
            attention_bias=True,
            layer_types=["full_attention", "linear_attention", "full_attention"],
            rope_parameters=rope(10000.0, **MROPE),
        ),
        config_class="Qwen3_5TextConfig",
    ),
    # Experts and a shared one behind a gate.
    "qwen35moe": Fixture(
        "qwen3_5_moe",
        79,
        delta(
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=32,
            rope_parameters=rope(10000000.0, **MROPE),
        ),
        gguf=True,
        config_class="Qwen3_5MoeTextConfig",
    ),
    # The projections of a key head in one matrix.
    "qwen3next": Fixture(
        "qwen3_next",
        77,
        delta(
            num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"],
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=32,
            rope_parameters=rope(10000000.0, partial_rotary_factor=0.25),
        ),
        gguf=True,
        config_class="Qwen3NextConfig",
    ),
}
