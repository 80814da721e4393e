"""Families whose layers differ: in heads, in rotations, in gates of the attention's output; and others of 2024 to 2026."""

from . import Fixture, rope, tiny
from .relatives import without
from .renamed import renamed

EXPERTS = dict(num_experts_per_tok=3, moe_intermediate_size=24)
FOUR = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
# The order that readers of GGUF files take where a file has none.
PERIOD = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]
BY_KIND = {
    "full_attention": rope(500000.0, partial_rotary_factor=0.5),
    "sliding_attention": rope(10000.0, partial_rotary_factor=1.0),
}
LAGUNA = dict(
    num_hidden_layers=4,
    layer_types=PERIOD,
    sliding_window=11,
    num_attention_heads_per_layer=[4, 6, 6, 8],
    num_experts=6,
    shared_expert_intermediate_size=32,
    moe_routed_scaling_factor=1.5,
)
# The smallest encoder that Step 3.7's class takes; its tensors are dropped.
STEP_VISION = dict(width=8, layers=1, heads=2, mlp_ratio=1.0, image_size=28, patch_size=14, max_position_embeddings=4)


def step(config):
    """The text model's configuration with the keys of published files of Step 3.5."""
    text = config["text_config"]
    n_layers, types = text["num_hidden_layers"], text["layer_types"]
    kept = """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads head_dim rms_norm_eps
        max_position_embeddings moe_intermediate_size layer_types sliding_window swiglu_limits swiglu_limits_shared
        moe_router_scaling_factor tie_word_embeddings attention_bias mlp_bias""".split()
    ropes = [text["rope_parameters"][kind] for kind in types]
    full = dict(text["rope_parameters"]["full_attention"])
    scaling = {k: v for k, v in full.items() if k not in ("rope_theta", "partial_rotary_factor")}
    sparse = [str(i) for i in range(n_layers) if text["mlp_layer_types"][i] == "sparse"]
    # Lists of published files go on for the layers that predict further tokens.
    return {
        **{key: text[key] for key in kept},
        "architectures": ["Step3p5ForCausalLM"],
        "model_type": "step3p5",
        "num_attention_groups": text["num_key_value_heads"],
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": text["num_sliding_attention_heads"],
            "num_attention_groups": text["num_key_value_heads"],
            "head_dim": text["head_dim"],
        },
        "layer_types": types + ["full_attention"],
        "moe_num_experts": text["n_routed_experts"],
        "moe_top_k": text["num_experts_per_tok"],
        "share_expert_dim": text["share_expert_dim"],
        "moe_layers_enum": ",".join(sparse),
        "rope_theta": [one["rope_theta"] for one in ropes] + [full["rope_theta"]],
        "partial_rotary_factors": [one["partial_rotary_factor"] for one in ropes] + [full["partial_rotary_factor"]],
        "rope_scaling": scaling if scaling["rope_type"] != "default" else None,
        "swiglu_limits": text["swiglu_limits"] and text["swiglu_limits"] + [0.0],
        "swiglu_limits_shared": text["swiglu_limits_shared"] and text["swiglu_limits_shared"] + [0.0],
        "num_nextn_predict_layers": 1,
        "use_head_wise_attn_gate": True,
        "zero_centered": True,
    }


def mimo(config):
    """MiMo's configuration with the keys of published files."""
    named = ("layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps", "routed_scaling_factor")
    types, ropes = config["layer_types"], config["rope_parameters"]
    return {
        **without(config, *named),
        "hybrid_layer_pattern": [int(kind == "sliding_attention") for kind in types],
        "moe_layer_freq": [int(kind == "sparse") for kind in config["mlp_layer_types"]],
        "layernorm_epsilon": config["rms_norm_eps"],
        "rope_theta": ropes["full_attention"]["rope_theta"],
        "swa_rope_theta": ropes["sliding_attention"]["rope_theta"],
        "partial_rotary_factor": ropes["full_attention"]["partial_rotary_factor"],
        "routed_scaling_factor": None,
        # Published files have the same number twice. transformers adds 1 to this one; llama.cpp takes the other as it is.
        "sliding_window_size": config["sliding_window"] - 1,
        "swa_num_key_value_heads": 2 * config["num_key_value_heads"],
        "swa_num_attention_heads": config["num_attention_heads"],
        "swa_head_dim": config["head_dim"],
        "swa_v_head_dim": config["v_head_dim"],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    }


def text_alone(tensors):
    """Drops the tensors of the vision encoder."""
    vision = ("vision_model.", "vit_large_projector.", "model.vision_model.", "model.multi_modal_projector.")
    return {key: x for key, x in tensors.items() if not key.startswith(vision)}


FIXTURES = {
    # Heads of values smaller than those of keys; twice as many key heads, and sinks, in layers with a window.
    "mimo2-rotations": Fixture(
        "mimo2",
        41,
        tiny(
            **EXPERTS,
            num_hidden_layers=4,
            layer_types=FOUR,
            head_dim=24,
            v_head_dim=16,
            sliding_window=11,
            n_routed_experts=8,
            n_group=2,
            topk_group=1,
            attention_value_scale=0.7,
            attention_bias=True,
            rope_parameters={
                "full_attention": rope(5000000.0, partial_rotary_factor=0.334),
                "sliding_attention": rope(10000.0, partial_rotary_factor=0.5),
            },
        ),
        config_class="MiMoV2FlashConfig",
    ),
    # The same with the published keys.
    "mimo2": Fixture(
        "mimo2",
        41,
        tiny(
            **EXPERTS,
            num_hidden_layers=4,
            layer_types=FOUR,
            head_dim=24,
            v_head_dim=16,
            sliding_window=11,
            n_routed_experts=8,
            attention_value_scale=0.7,
            rope_parameters={
                "full_attention": rope(5000000.0, partial_rotary_factor=0.334),
                "sliding_attention": rope(10000.0, partial_rotary_factor=0.334),
            },
        ),
        gguf=True,
        config_class="MiMoV2FlashConfig",
        rewrite=mimo,
    ),
    # More query heads in layers with a window, a scaling in the others, bounds in the last two networks.
    "step35": Fixture(
        "step35",
        41,
        tiny(
            **EXPERTS,
            num_hidden_layers=4,
            layer_types=FOUR,
            sliding_window=11,
            pad_token_id=0,
            num_sliding_attention_heads=6,
            n_routed_experts=6,
            share_expert_dim=32,
            mlp_layer_types=["dense", "sparse", "dense", "sparse"],
            moe_router_scaling_factor=1.5,
            swiglu_limits=[0.0, 0.0, 0.0, 0.5],
            swiglu_limits_shared=[0.0, 0.0, 0.4, 0.6],
            rope_parameters={
                "full_attention": rope(
                    500000.0,
                    "llama3",
                    partial_rotary_factor=0.5,
                    factor=4.0,
                    low_freq_factor=1.0,
                    high_freq_factor=4.0,
                    original_max_position_embeddings=64,
                ),
                "sliding_attention": rope(10000.0, partial_rotary_factor=1.0),
            },
        ),
        gguf=True,
        config_class="Step3p7TextConfig",
        wrapper=("Step3p7", {"vision_config": STEP_VISION}),
        rewrite=step,
        publish=text_alone,
    ),
    # A gate for each head; YaRN in layers without a window.
    "laguna": Fixture(
        "laguna",
        41,
        tiny(
            **EXPERTS,
            **LAGUNA,
            rope_parameters={
                **BY_KIND,
                "full_attention": rope(
                    500000.0,
                    "yarn",
                    partial_rotary_factor=0.5,
                    factor=8.0,
                    original_max_position_embeddings=64,
                    beta_fast=8.0,
                    beta_slow=1.0,
                ),
            },
        ),
        gguf=True,
        config_class="LagunaConfig",
    ),
    # A gate for each element, biases, a soft bound of the router's scores, no window.
    "laguna-elements": Fixture(
        "laguna",
        33,
        tiny(
            **EXPERTS,
            **{**LAGUNA, "num_hidden_layers": 2, "layer_types": None, "num_attention_heads_per_layer": None},
            gating="per-element",
            attention_bias=True,
            moe_router_logit_softcapping=2.0,
            rope_parameters=BY_KIND,
        ),
        config_class="LagunaConfig",
    ),
    # Convolutions, a window in one layer that attends, norms behind both halves of a block, gates of heads.
    "lfm3": Fixture(
        "lfm3",
        41,
        without(
            tiny(
                num_hidden_layers=5,
                norm_eps=1e-5,
                conv_L_cache=5,
                sliding_window=11,
                tie_word_embeddings=True,
            ),
            "rms_norm_eps",
        ),
        config_class="Lfm3Config",
    ),
    # None of the switches, biases everywhere, an untied head, another rotation.
    "lfm3-plain": Fixture(
        "lfm3",
        33,
        without(
            tiny(
                num_hidden_layers=3,
                norm_eps=1e-5,
                layer_types=["conv", "full_attention", "sliding_attention"],
                sliding_window=9,
                conv_bias=True,
                attention_bias=True,
                use_sandwich_norm=False,
                use_attention_gate=False,
                rope_parameters={"full_attention": rope(100000.0), "sliding_attention": rope(10000.0)},
            ),
            "rms_norm_eps",
        ),
        config_class="Lfm3Config",
    ),
    "nanochat": Fixture(
        "nanochat",
        37,
        tiny(hidden_size=64, head_dim=None, final_logit_softcapping=6.0, rope_parameters=rope(10000.0)),
        config_class="NanoChatConfig",
    ),
    "dbrx": Fixture(
        "dbrx",
        37,
        dict(
            vocab_size=263,
            d_model=64,
            n_heads=4,
            n_layers=2,
            max_seq_len=512,
            attn_config=dict(kv_n_heads=2, clip_qkv=1.5, rope_theta=500000.0),
            ffn_config=dict(ffn_hidden_size=24, moe_num_experts=6, moe_top_k=3, ffn_act_fn={"name": "silu"}),
            rope_parameters=rope(500000.0),
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        gguf=True,
        config_class="DbrxConfig",
    ),
}
