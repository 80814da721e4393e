"""Mixtures of experts of 2025 and 2026, and of the first generation, which transformers has no class for."""

import torch
import transformers

from . import Fixture, rope, tiny
from .renamed import fused_qkv, renamed, said


def with_shared_experts(config):
    """Llama's attention, Qwen 3's experts and a shared network: DeepSeek MoE and Ling of the first generation.

    Their own code computes the same: softmax over all experts, with or without normalising the weights of the chosen.
    """
    from transformers.models.llama.modeling_llama import LlamaMLP
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    class Mixture(Qwen3MoeSparseMoeBlock):
        def __init__(self, sizes):
            super().__init__(sizes)
            wide = transformers.LlamaConfig(
                hidden_size=sizes.hidden_size,
                intermediate_size=sizes.moe_intermediate_size * sizes.n_shared_experts,
            )
            self.shared_experts = LlamaMLP(wide)

        def forward(self, x):
            out = super().forward(x)
            out = out[0] if isinstance(out, tuple) else out
            return out + self.shared_experts(x)

    sizes = transformers.Qwen3MoeConfig(**config.mixture, hidden_size=config.hidden_size)
    sizes.n_shared_experts = config.n_shared_experts
    sizes._experts_implementation = "eager"
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager")
    for layer in model.model.layers[config.n_dense:]:
        layer.mlp = Mixture(sizes)
    return model


def apart(tensors):
    """One tensor per expert, as published."""
    out = {}
    for key, x in tensors.items():
        if key.endswith(".experts.gate_up_proj"):
            half = x.shape[1] // 2
            for i, matrix in enumerate(x):
                stem = key.replace("gate_up_proj", str(i))
                out[f"{stem}.gate_proj.weight"] = matrix[:half].copy()
                out[f"{stem}.up_proj.weight"] = matrix[half:].copy()
        elif key.endswith(".experts.down_proj"):
            for i, matrix in enumerate(x):
                out[f"{key.replace('down_proj', str(i))}.down_proj.weight"] = matrix.copy()
        else:
            out[key] = x
    return out


BAILING = {
    "model.embed_tokens": "model.word_embeddings",
    "self_attn.qkv_proj": "attention.query_key_value",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
    "gate.e_score_correction_bias": "gate.expert_bias",
}


def bailing(tensors):
    return renamed(fused_qkv(tensors, "self_attn.qkv_proj"), BAILING)


def bailing2_config(config):
    """dots.llm1's configuration with Ling 2's keys."""
    words = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}
    out = said(config, "bailing_moe", "BailingMoeV2ForCausalLM", words)
    out.update(use_qk_norm=True, score_function="sigmoid", partial_rotary_factor=1.0, use_bias=False, use_qkv_bias=False)
    return out


def first_generation(model_type, architecture, words):
    def rewrite(config):
        out = said(config, model_type, architecture, {})
        for key, value in out.pop("mixture").items():
            out[words.get(key, key)] = value
        out[words.get("n_shared_experts", "n_shared_experts")] = out.pop("n_shared_experts")
        out["first_k_dense_replace"] = out.pop("n_dense")
        return out

    return rewrite


FIXTURES = {
    # Windows in most layers; these rotate without the scaling of the others.
    "mellum": Fixture(
        "mellum",
        45,
        tiny(
            num_hidden_layers=4,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            sliding_window=11,
            layer_types=["sliding_attention"] * 3 + ["full_attention"],
            rope_parameters={
                "full_attention": rope(
                    50000.0, "yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=1.0
                ),
                "sliding_attention": rope(50000.0),
            },
        ),
        gguf=True,
        config_class="MellumConfig",
        salt="-1",
    ),
    # Gates on the attention's output, norms before and after, heads that rotate only in layers with a window.
    "afmoe": Fixture(
        "afmoe",
        37,
        tiny(
            num_hidden_layers=4,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            num_shared_experts=1,
            num_dense_layers=1,
            route_scale=1.5,
            sliding_window=11,
            mup_enabled=True,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="AfmoeConfig",
        salt="-1",
    ),
    # Sigmoid with a bias for the choice, a dense first layer, windows, and layers that do not rotate.
    "exaone-moe": Fixture(
        "exaone-moe",
        37,
        tiny(
            num_hidden_layers=4,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            num_shared_experts=2,
            routed_scaling_factor=1.5,
            sliding_window=11,
            sliding_window_pattern=4,
            rope_parameters=rope(1000000.0),
        ),
        gguf=True,
        config_class="ExaoneMoeConfig",
        salt="-2",
    ),
    "hy-v3": Fixture(
        "hy-v3",
        33,
        tiny(
            num_hidden_layers=3,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            num_shared_experts=1,
            router_scaling_factor=1.5,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="HYV3Config",
        salt="-1",
    ),
    # Experts in parallel with attention, averaged with a shared network; the dense layer rotates although it has no window.
    "cohere2moe": Fixture(
        "cohere2moe",
        37,
        tiny(
            vocab_size=67,
            num_hidden_layers=5,
            num_experts=6,
            num_experts_per_tok=2,
            num_shared_experts=1,
            first_k_dense_replace=1,
            prefix_dense_intermediate_size=32,
            expert_selection_fn="sigmoid",
            rms_norm_eps=None,
            sliding_window=11,
            logit_scale=0.25,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="Cohere2MoeConfig",
        salt="-2",
    ),
    # Softmax over the chosen experts.
    "cohere2moe-softmax": Fixture(
        "cohere2moe",
        29,
        tiny(
            vocab_size=67,
            num_hidden_layers=4,
            num_experts=6,
            num_experts_per_tok=2,
            rms_norm_eps=None,
            sliding_window=11,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="Cohere2MoeConfig",
        salt="-1",
    ),
    # dots.llm1's class with Ling 2's names: groups of experts, one matrix for queries, keys and values.
    "bailingmoe2": Fixture(
        "bailingmoe2",
        33,
        tiny(
            num_hidden_layers=3,
            n_routed_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            n_shared_experts=1,
            n_group=4,
            topk_group=2,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
            first_k_dense_replace=1,
            rope_parameters=rope(600000.0),
        ),
        gguf=True,
        config_class="Dots1Config",
        rewrite=bailing2_config,
        publish=bailing,
        salt="-1",
    ),
    # Normalised weights of the chosen experts.
    "bailingmoe": Fixture(
        "bailingmoe",
        33,
        tiny(
            hidden_size=64,
            head_dim=None,
            num_hidden_layers=2,
            mixture=dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True),
            n_shared_experts=2,
            n_dense=0,
            rope_parameters=rope(600000.0),
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=with_shared_experts,
        rewrite=first_generation(
            "bailing_moe", "BailingMoeForCausalLM", {"n_shared_experts": "num_shared_experts"}
        ),
        publish=lambda tensors: bailing(apart(tensors)),
        salt="-1",
    ),
    # Unnormalised weights, a dense first layer.
    "deepseek": Fixture(
        "deepseek",
        33,
        tiny(
            hidden_size=64,
            head_dim=None,
            num_hidden_layers=3,
            mixture=dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=False),
            n_shared_experts=2,
            n_dense=1,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=with_shared_experts,
        rewrite=first_generation("deepseek", "DeepseekForCausalLM", {"num_experts": "n_routed_experts"}),
        publish=apart,
        salt="-1",
    ),
}
