"""Families with mixtures of experts."""

from . import Fixture, rope, tiny

FIXTURES = {
    # Weights of the chosen are normalised.
    "qwen3moe": Fixture(
        "qwen3moe",
        41,
        tiny(
            num_experts=6,
            num_experts_per_tok=3,
            moe_intermediate_size=24,
            norm_topk_prob=True,
            rope_parameters=rope(1000000.0),
        ),
        gguf=True,
        config_class="Qwen3MoeConfig",
    ),
    # Every second layer has experts, one of those is dense by name; one expert a token.
    "qwen3moe-dense": Fixture(
        "qwen3moe",
        29,
        tiny(
            vocab_size=131,
            num_hidden_layers=4,
            num_experts=4,
            num_experts_per_tok=1,
            moe_intermediate_size=24,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
            rope_parameters=rope(1000000.0),
        ),
        config_class="Qwen3MoeConfig",
    ),
    # A shared expert behind a gate, weights that are not normalised, biases on Q, K and V.
    "qwen2moe": Fixture(
        "qwen2moe",
        37,
        tiny(
            hidden_size=64,
            head_dim=None,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=32,
            norm_topk_prob=False,
            rope_parameters=rope(1000000.0),
        ),
        gguf=True,
        config_class="Qwen2MoeConfig",
    ),
}
