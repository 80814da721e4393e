"""Gemma 4."""

from . import Fixture, rope, tiny

LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
ROPES = {
    "full_attention": rope(1000000.0, "proportional", partial_rotary_factor=0.25),
    "sliding_attention": rope(10000.0),
}


# Scores have no factor. Norms of heads as large as the others would make them so large that rounding changes choices.
HEAD_NORMS = 0.5


def sizes(**more):
    out = dict(
        num_hidden_layers=3,
        global_head_dim=32,
        layer_types=LAYERS,
        sliding_window=9,
        final_logit_softcapping=30.0,
        tie_word_embeddings=True,
        hidden_size_per_layer_input=0,
        rope_parameters=ROPES,
    )
    out.update(more)
    return tiny(**out)


FIXTURES = {
    # Embeddings of each layer; two of five layers share keys and values, with networks twice as wide.
    "gemma4": Fixture(
        "gemma4",
        37,
        sizes(
            num_hidden_layers=5,
            layer_types=LAYERS + LAYERS[1:],
            num_key_value_heads=1,
            num_kv_shared_layers=2,
            use_double_wide_mlp=True,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=263,
        ),
        gguf=True,
        config_class="Gemma4TextConfig",
        head_norms=HEAD_NORMS,
    ),
    # Global layers use keys as values, and have another number of key heads.
    "gemma4-keys": Fixture(
        "gemma4",
        33,
        sizes(
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            use_bidirectional_attention="vision",
        ),
        gguf=True,
        config_class="Gemma4TextConfig",
        head_norms=HEAD_NORMS,
    ),
    # Experts beside the network, with a separate norm for the choice.
    "gemma4-experts": Fixture(
        "gemma4",
        35,
        sizes(
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            enable_moe_block=True,
            num_experts=5,
            top_k_experts=2,
            moe_intermediate_size=16,
            use_bidirectional_attention="vision",
        ),
        gguf=True,
        config_class="Gemma4TextConfig",
        head_norms=HEAD_NORMS,
    ),
    # The text model within a wrapper, with biases; all pairs of global heads rotate.
    "gemma4-multimodal": Fixture(
        "gemma4",
        29,
        sizes(
            vocab_size=131,
            pad_token_id=0,
            num_hidden_layers=4,
            layer_types=["full_attention", "sliding_attention"] * 2,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=131,
            attention_bias=True,
            tie_word_embeddings=False,
            rope_parameters={
                "full_attention": rope(500000.0),
                "sliding_attention": rope(20000.0),
            },
        ),
        config_class="Gemma4TextConfig",
        head_norms=HEAD_NORMS,
        wrapper=("Gemma4", {"vision_config": None, "audio_config": None}),
    ),
}
