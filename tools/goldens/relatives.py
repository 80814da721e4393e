"""Variants of other families: fewer norms, other names, windows in some layers, other position tables."""

from . import Fixture, rope, tiny
from .renamed import fused_qkv, renamed, said

WINDOWS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SOLAR = dict(
    num_hidden_layers=3,
    n_routed_experts=6,
    num_experts_per_tok=2,
    n_shared_experts=2,
    moe_intermediate_size=16,
    routed_scaling_factor=1.5,
)


def headless(tensors):
    """Tensor names of a class without a head."""
    return renamed({key: x for key, x in tensors.items() if key != "lm_head.weight"}, {"model.": ""})


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def sarvam(config):
    """The configuration with the keys of published files."""
    words = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"}
    out = said(config, "sarvam_moe", "SarvamMoEForCausalLM", words)
    out["score_function"] = "sigmoid"
    return without(out, "n_group", "topk_group", "num_nextn_predict_layers")


def opt(**sizes):
    """Arguments of OPT's class."""
    out = dict(
        vocab_size=263,
        hidden_size=64,
        ffn_dim=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        word_embed_proj_dim=None,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    out.update(sizes)
    return out


def codeshell(config):
    """StarCoder2's configuration with CodeShell's keys."""
    out = said(config, "codeshell", "CodeShellForCausalLM", {})
    return dict(
        model_type="codeshell",
        architectures=out["architectures"],
        vocab_size=out["vocab_size"],
        n_embd=out["hidden_size"],
        n_layer=out["num_hidden_layers"],
        n_head=out["num_attention_heads"],
        n_inner=out["intermediate_size"],
        n_positions=out["max_position_embeddings"],
        num_query_groups=out["num_key_value_heads"],
        group_query_attention=True,
        position_embedding_type="rope",
        rope_scaling=None,
        activation_function="gelu_pytorch_tanh",
        layer_norm_epsilon=out["norm_epsilon"],
        tie_word_embeddings=False,
    )


CODESHELL = {
    "model.layers": "transformer.h",
    "model.embed_tokens": "transformer.wte",
    "model.norm": "transformer.ln_f",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.o_proj": "attn.c_proj",
}


FIXTURES = {
    # Positions start at the third row of their table.
    "opt": Fixture("opt", 37, opt(), config_class="OPTConfig"),
    # Galactica: biases only in norms, another activation, an untied head.
    "opt-galactica": Fixture(
        "opt",
        29,
        opt(activation_function="gelu", enable_bias=False, tie_word_embeddings=False),
        config_class="OPTConfig",
    ),
    # OPT 350M: norms behind the sums and none at the end, a table narrower than the stream.
    "opt-350m": Fixture(
        "opt",
        31,
        opt(word_embed_proj_dim=24, do_layer_norm_before=False),
        config_class="OPTConfig",
    ),
    # Biases by distance, the network behind the attention.
    "falcon-rw": Fixture(
        "falcon",
        37,
        tiny(
            hidden_size=48,
            num_attention_heads=4,
            num_key_value_heads=None,
            head_dim=None,
            intermediate_size=None,
            ffn_hidden_size=56,
            alibi=True,
            bias=True,
            multi_query=False,
            parallel_attn=False,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="FalconConfig",
        attention="sdpa",
    ),
    # Queries, keys and values within a bound that a third of them reaches.
    "olmoe-clip": Fixture(
        "olmoe",
        33,
        tiny(
            hidden_size=64,
            head_dim=None,
            num_experts=6,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            clip_qkv=1.0,
            rope_parameters=rope(10000.0),
        ),
        config_class="OlmoeConfig",
    ),
    # OLMo 2's blocks with experts.
    "flex-olmo": Fixture(
        "flex_olmo",
        33,
        tiny(num_experts=5, num_experts_per_tok=3, rope_parameters=rope(500000.0)),
        config_class="FlexOlmoConfig",
    ),
    # Norms of heads with biases, half of a head that rotates.
    "persimmon": Fixture(
        "persimmon",
        35,
        tiny(
            hidden_size=64,
            num_key_value_heads=None,
            head_dim=None,
            intermediate_size=56,
            rope_parameters=rope(25000.0),
        ),
        config_class="PersimmonConfig",
    ),
    # OPT's positions and names, embeddings with a factor.
    "biogpt": Fixture(
        "biogpt",
        33,
        tiny(
            hidden_size=48,
            num_key_value_heads=None,
            head_dim=None,
            intermediate_size=56,
            max_position_embeddings=128,
            tie_word_embeddings=True,
        ),
        config_class="BioGptConfig",
    ),
    # Sines and cosines of positions from the third on.
    "xglm": Fixture(
        "xglm",
        37,
        dict(
            vocab_size=263,
            d_model=48,
            ffn_dim=56,
            num_layers=2,
            attention_heads=4,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        config_class="XGLMConfig",
    ),
    # Scores without a factor, a window shorter than the prompt in every second layer.
    "gptneo": Fixture(
        "gptneo",
        37,
        dict(
            vocab_size=263,
            hidden_size=64,
            num_layers=4,
            num_heads=4,
            intermediate_size=56,
            window_size=11,
            max_position_embeddings=128,
            attention_types=[[["global", "local"], 2]],
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        config_class="GPTNeoConfig",
        # Without a factor, the usual spread makes softmax choose a single key.
        qk_gain=0.7,
    ),
    # Windows on layers that form no regular pattern.
    "gptneo-layers": Fixture(
        "gptneo",
        31,
        dict(
            vocab_size=263,
            hidden_size=64,
            num_layers=3,
            num_heads=4,
            intermediate_size=None,
            window_size=7,
            max_position_embeddings=128,
            attention_types=[[["local"], 2], [["global"], 1]],
            activation_function="gelu_new",
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        config_class="GPTNeoConfig",
        qk_gain=0.7,
    ),
    # Gemma 2 with two norms a block.
    "vaultgemma": Fixture(
        "vaultgemma",
        39,
        tiny(
            num_hidden_layers=3,
            query_pre_attn_scalar=24,
            sliding_window=13,
            attn_logit_softcapping=20.0,
            final_logit_softcapping=10.0,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="VaultGemmaConfig",
    ),
    # Rotation in adjacent pairs, in folders too.
    "helium": Fixture(
        "helium",
        33,
        tiny(hidden_size=64, rope_parameters=rope(100000.0)),
        config_class="HeliumConfig",
    ),
    # Granite's factors, norms after both halves, multiplied logits.
    "hyperclovax": Fixture(
        "hyperclovax",
        33,
        tiny(
            embedding_multiplier=2.0,
            attention_multiplier=0.2,
            residual_multiplier=0.5,
            logits_scaling=0.25,
            rope_parameters=rope(100000000.0),
        ),
        config_class="HyperCLOVAXConfig",
    ),
    "iquestcoder": Fixture(
        "iquestcoder",
        31,
        tiny(mlp_bias=True, rope_parameters=rope(500000.0)),
        config_class="IQuestCoderConfig",
    ),
    # A window in some layers.
    "ministral": Fixture(
        "ministral",
        39,
        tiny(num_hidden_layers=4, sliding_window=9, layer_types=WINDOWS, rope_parameters=rope(1000000.0)),
        config_class="MinistralConfig",
        qk_gain=1.0,
    ),
    # The class's default types, for a file that names none: the first of four layers has no window.
    "cwm": Fixture(
        "cwm",
        39,
        tiny(
            num_hidden_layers=5,
            sliding_window=9,
            bos_token_id=1,
            rope_parameters=rope(
                1000000.0,
                "llama3",
                factor=16.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        config_class="CwmConfig",
        qk_gain=1.0,
        rewrite=lambda config: without(config, "layer_types"),
    ),
    # Heads that rotate as a whole, experts in every layer.
    "solar-open": Fixture(
        "solar-open",
        33,
        without(tiny(**SOLAR, attention_bias=True, rope_parameters=rope(1000000.0)), "intermediate_size"),
        config_class="SolarOpenConfig",
        # Published files have this key, and without it llama.cpp's converter assumes one half.
        rewrite=lambda config: {**config, "partial_rotary_factor": 1.0},
    ),
    # Norms of heads; a dense layer; queries, keys and values in one matrix.
    "sarvam-moe": Fixture(
        "sarvam-moe",
        33,
        tiny(**{**SOLAR, "n_shared_experts": 1}, hidden_size=64, first_k_dense_replace=1, use_qk_norm=True, rope_parameters=rope(8000000.0)),
        config_class="SarvamMoEConfig",
        rewrite=sarvam,
    ),
    # An activation that no published BitNet has.
    "bitnet-gelu": Fixture(
        "bitnet",
        27,
        tiny(hidden_size=64, hidden_act="gelu", rope_parameters=rope(500000.0)),
        config_class="BitNetConfig",
    ),
    # StarCoder 2's blocks, one matrix for queries, keys and values.
    "codeshell": Fixture(
        "codeshell",
        33,
        tiny(hidden_size=64, intermediate_size=256, use_bias=True, norm_epsilon=1e-5, rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="Starcoder2Config",
        rewrite=codeshell,
        publish=lambda tensors: renamed(fused_qkv(tensors, "attn.c_attn"), CODESHELL),
    ),
    # A window in most layers, a shared expert, a layer that does not rotate.
    "granite-moe-swa": Fixture(
        "granite-moe-swa",
        37,
        tiny(
            hidden_size=64,
            head_dim=None,
            num_hidden_layers=5,
            num_local_experts=4,
            num_experts_per_tok=2,
            shared_intermediate_size=32,
            embedding_multiplier=2.0,
            attention_multiplier=0.25,
            residual_multiplier=0.5,
            logits_scaling=4.0,
            sliding_window=11,
            layer_rope_theta=[10000.0, 10000.0, 0, 10000.0, 10000.0],
            rope_parameters=rope(10000.0),
        ),
        # llama.cpp's converter does not record which layers do not rotate.
        config_class="GraniteMoeSWAConfig",
    ),
    # Queries from one matrix.
    "sarvam-mla": Fixture(
        "sarvam-mla",
        33,
        tiny(
            **SOLAR,
            hidden_size=64,
            num_key_value_heads=4,
            head_dim=None,
            first_k_dense_replace=1,
            kv_lora_rank=24,
            q_lora_rank=None,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            rope_parameters=rope(
                10000.0,
                "yarn",
                factor=8.0,
                original_max_position_embeddings=64,
                beta_fast=8.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
            ),
        ),
        config_class="SarvamMLAConfig",
        keep_none=("q_lora_rank",),
    ),
    # An embedding model: the class without a head, where the table serves as one.
    "mistral-headless": Fixture(
        "mistral",
        33,
        tiny(sliding_window=9, tie_word_embeddings=True, rope_parameters=rope(10000.0)),
        rewrite=lambda config: {**config, "architectures": ["MistralModel"], "tie_word_embeddings": False},
        publish=headless,
    ),
}
