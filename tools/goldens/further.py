"""Families whose heads, chunks, choices of experts or widths no family before them has."""

from . import Fixture, rope, tiny
from .attention import PIXTRAL

FIXTURES = {
    # DeepSeek's latent attention with a factor on queries by position, experts by softmax beside a shared one.
    "mistral4": Fixture(
        "mistral4",
        41,
        tiny(
            hidden_size=64,
            num_hidden_layers=3,
            num_key_value_heads=4,
            head_dim=None,
            first_k_dense_replace=1,
            kv_lora_rank=24,
            q_lora_rank=20,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            n_group=1,
            topk_group=1,
            n_routed_experts=6,
            num_experts_per_tok=2,
            n_shared_experts=1,
            moe_intermediate_size=16,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
            rope_parameters=rope(
                10000.0,
                "yarn",
                factor=8.0,
                original_max_position_embeddings=16,
                beta_fast=8.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.3,
            ),
        ),
        # llama.cpp's converter leaves the factor out.
        config_class="Mistral4Config",
        wrapper=("Mistral3", {"vision_config": PIXTRAL}),
    ),
    # No factor, no dense layer.
    "mistral4-even": Fixture(
        "mistral4",
        29,
        tiny(
            vocab_size=263,
            num_key_value_heads=4,
            head_dim=None,
            kv_lora_rank=16,
            q_lora_rank=12,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            v_head_dim=12,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_shared_experts=2,
            moe_intermediate_size=16,
            rope_parameters=rope(
                10000.0,
                "yarn",
                factor=4.0,
                original_max_position_embeddings=64,
                beta_fast=8.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.0,
            ),
        ),
        gguf=True,
        config_class="Mistral4Config",
        wrapper=("Mistral3", {"vision_config": PIXTRAL}),
    ),
}
