"""Families with recurrent layers."""

from . import Fixture, rope, tiny

MROPE = dict(partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True)


def delta(**sizes):
    """Sizes with three value heads per key head, so that a wrong order shows."""
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


def mamba(**sizes):
    """Sizes with four heads of 16 in two groups, so that a group's wrong norm or keys show."""
    out = tiny(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=None,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_n_groups=2,
        mamba_d_state=24,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_chunk_size=32,
    )
    out.update(sizes)
    return out


GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=0.5)


def by_old_names(config):
    """Layer types by their names in transformers 4, which llama.cpp's converter looks for."""
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    return {**config, "layer_types": [names[kind] for kind in config["layer_types"]]}


def nemotron(kinds, **sizes):
    out = tiny(
        hidden_size=32,
        num_hidden_layers=None,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=None,
        layer_norm_epsilon=1e-5,
        layers_block_type=kinds,
        mamba_num_heads=4,
        mamba_head_dim=16,
        n_groups=2,
        ssm_state_size=24,
        chunk_size=32,
    )
    out.update(sizes)
    return out


def as_pattern(config):
    """Layers as letters, and no keys for experts, as in dense models. llama.cpp's converter depends on both."""
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
    is_of_experts = lambda key: any(part in key for part in ("expert", "moe_", "topk", "n_group")) and key != "n_groups"
    out = {key: value for key, value in config.items() if not is_of_experts(key)}
    kinds = out.pop("layers_block_type")
    return {**out, "num_hidden_layers": len(kinds), "hybrid_override_pattern": "".join(letters[kind] for kind in kinds)}


def with_extra_keys(**keys):
    return lambda config: {**config, **keys}


FALCON = dict(
    embedding_multiplier=3.0,
    lm_head_multiplier=0.5,
    mlp_multipliers=[0.75, 1.5],
    key_multiplier=0.625,
    attention_out_multiplier=1.25,
    attention_in_multiplier=1.5,
    ssm_multipliers=[0.75, 1.25, 1.5, 0.875, 0.625],
    ssm_in_multiplier=1.125,
    ssm_out_multiplier=0.75,
)

def scans_alone(**sizes):
    """Arguments of a model of scans only, with the keys of Mamba's classes."""
    out = dict(
        vocab_size=263,
        hidden_size=32,
        num_hidden_layers=3,
        layer_norm_epsilon=1e-5,
        expand=2,
        conv_kernel=4,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    out.update(sizes)
    return out


def kimi_config(config):
    """The configuration as published: lists of layer numbers, from 1, for each kind, and the number of dense layers."""
    kinds, networks = config.pop("layer_types"), config.pop("mlp_layer_types")
    layers = lambda kind: [i + 1 for i, found in enumerate(kinds) if found == kind]
    config["linear_attn_config"] = dict(
        full_attn_layers=layers("full_attention"),
        kda_layers=layers("linear_attention"),
        head_dim=config.pop("linear_head_dim"),
        num_heads=config.pop("linear_num_heads"),
        short_conv_kernel_size=config.pop("linear_conv_kernel_dim"),
    )
    config["first_k_dense_replace"] = networks.count("dense")
    config["moe_router_activation_func"] = "sigmoid"
    config["mla_use_nope"] = True
    return config


FIXTURES = {
    # A rate for each channel and state element, a tied head.
    "mamba": Fixture(
        "mamba",
        73,
        scans_alone(state_size=24, time_step_rank=5, tie_word_embeddings=True),
        gguf=True,
        config_class="MambaConfig",
    ),
    # Biases of both projections but not of the convolution, three taps, as many channels as the stream, sizes that are no multiple of
    # a vector, an untied head.
    "mamba-bias": Fixture(
        "mamba",
        37,
        scans_alone(
            vocab_size=131,
            hidden_size=40,
            num_hidden_layers=2,
            expand=1,
            state_size=7,
            conv_kernel=3,
            use_bias=True,
            use_conv_bias=False,
            time_step_rank="auto",
            tie_word_embeddings=False,
        ),
        config_class="MambaConfig",
    ),
    # Norms without weights on the inputs of steps, keys and queries.
    "falcon_mamba": Fixture(
        "falcon_mamba",
        67,
        scans_alone(state_size=16, time_step_rank=6, tie_word_embeddings=False),
        gguf=True,
        config_class="FalconMambaConfig",
    ),
    # Four heads of 16 in two groups.
    "mamba2": Fixture(
        "mamba2",
        73,
        scans_alone(num_heads=4, head_dim=16, n_groups=2, state_size=24, chunk_size=32),
        gguf=True,
        config_class="Mamba2Config",
    ),
    # Biases of both projections but not of the convolution, clamped steps, a tied head.
    "mamba2-bias": Fixture(
        "mamba2",
        37,
        scans_alone(
            vocab_size=131,
            num_hidden_layers=2,
            num_heads=3,
            head_dim=32,
            expand=3,
            n_groups=1,
            state_size=16,
            chunk_size=32,
            conv_kernel=3,
            use_bias=True,
            use_conv_bias=False,
            time_step_limit=[0.2, 0.8],
            tie_word_embeddings=True,
        ),
        config_class="Mamba2Config",
    ),
    # Scans with a rate for each channel; attention without rotation in the second layer; experts in the first and third.
    "jamba": Fixture(
        "jamba",
        71,
        tiny(
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=None,
            attn_layer_period=3,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=0,
            num_experts=5,
            num_experts_per_tok=2,
            mamba_d_state=8,
            mamba_d_conv=4,
            mamba_expand=2,
            mamba_dt_rank=5,
        ),
        gguf=True,
        config_class="JambaConfig",
    ),
    # Selective scans; attention in the second layer, with half of each head rotated.
    "bamba": Fixture(
        "bamba",
        71,
        mamba(attn_layer_indices=[1], rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
        config_class="BambaConfig",
    ),
    # Layers of one part each: a scan, a network, attention.
    "nemotron_h": Fixture(
        "nemotron_h",
        73,
        nemotron(["linear_attention", "mlp", "full_attention", "linear_attention"]),
        gguf=True,
        config_class="NemotronHConfig",
        rewrite=as_pattern,
    ),
    # Biases of projections and networks but not of the convolution, steps of at least 0.5, a network first.
    "nemotron_h-bias": Fixture(
        "nemotron_h",
        35,
        nemotron(
            ["mlp", "linear_attention", "full_attention"],
            vocab_size=131,
            use_bias=True,
            mlp_bias=True,
            use_conv_bias=False,
            time_step_min=0.5,
            conv_kernel=3,
        ),
        config_class="NemotronHConfig",
    ),
    # Experts on a latent, chosen by a sigmoid with a bias, and a shared expert.
    "nemotron_h-experts": Fixture(
        "nemotron_h",
        69,
        nemotron(
            ["linear_attention", "moe", "full_attention", "moe"],
            n_routed_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            moe_shared_expert_intermediate_size=40,
            moe_latent_size=16,
            routed_scaling_factor=2.5,
        ),
        gguf=True,
        config_class="NemotronHConfig",
    ),
    # A scan and attention in parallel, a factor on everything, a norm after the gate.
    "falcon_h1": Fixture(
        "falcon_h1",
        71,
        mamba(
            mamba_d_ssm=64,
            num_hidden_layers=2,
            mamba_rms_norm=True,
            mamba_norm_before_gate=False,
            rope_parameters=rope(100000.0),
            **FALCON,
        ),
        gguf=True,
        config_class="FalconH1Config",
        # llama.cpp's converter requires this key.
        rewrite=with_extra_keys(head_dim=8),
    ),
    # A tied head, every bias, a norm before the gate, heads of a size that is no half of a whole.
    "falcon_h1-bias": Fixture(
        "falcon_h1",
        33,
        mamba(
            vocab_size=131,
            num_hidden_layers=2,
            mamba_d_ssm=48,
            mamba_n_heads=3,
            mamba_n_groups=1,
            mamba_rms_norm=True,
            mamba_norm_before_gate=True,
            mamba_proj_bias=True,
            projectors_bias=True,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
            **FALCON,
        ),
        config_class="FalconH1Config",
    ),
    # No norm, no factors.
    "falcon_h1-plain": Fixture(
        "falcon_h1",
        33,
        mamba(
            vocab_size=131,
            num_hidden_layers=2,
            mamba_d_ssm=None,
            mamba_conv_bias=False,
            rope_parameters=rope(10000.0),
        ),
        config_class="FalconH1Config",
        keep_none=("mamba_d_ssm",),
    ),
    # Experts beside a shared network, Granite's factors, no rotation.
    "granitehybrid": Fixture(
        "granitemoehybrid",
        79,
        mamba(
            intermediate_size=16,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            num_local_experts=5,
            num_experts_per_tok=2,
            shared_intermediate_size=32,
            tie_word_embeddings=True,
            **GRANITE,
        ),
        gguf=True,
        config_class="GraniteMoeHybridConfig",
        rewrite=by_old_names,
    ),
    # One network, rotation, biases of attention and projections but not of the convolution, clamped steps, three taps.
    "granitehybrid-dense": Fixture(
        "granitemoehybrid",
        41,
        mamba(
            vocab_size=131,
            layer_types=["full_attention", "linear_attention", "linear_attention"],
            num_local_experts=0,
            shared_intermediate_size=32,
            position_embedding_type="rope",
            attention_bias=True,
            mamba_conv_bias=False,
            mamba_proj_bias=True,
            mamba_n_heads=2,
            mamba_d_head=32,
            mamba_n_groups=1,
            mamba_d_conv=3,
            time_step_limit=[0.2, 0.8],
            rope_parameters=rope(10000.0),
            **GRANITE,
        ),
        config_class="GraniteMoeHybridConfig",
    ),
    # Short convolutions, attention only in the second layer, a feed-forward whose width is adjusted.
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
    # Biases of the convolution and both projections, four taps, an unadjusted width, an untied head.
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
    # Experts after a dense layer, chosen by a sigmoid with a bias.
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
    # The usual pattern, value heads in two orders, interleaved rotary sections.
    "qwen35": Fixture(
        "qwen3_5",
        83,
        delta(tie_word_embeddings=True, rope_parameters=rope(10000000.0, **MROPE)),
        gguf=True,
        config_class="Qwen3_5TextConfig",
    ),
    # Attention in irregular layers, biases, values wider than keys, as many value heads as key heads.
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
    # Experts, and a gated shared expert.
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
    # Kimi delta attention with a decay for each key element; latent attention without rotation.
    "kimi-linear": Fixture(
        "kimi_linear",
        75,
        dict(
            vocab_size=263,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
            model_max_length=512,
            kv_lora_rank=24,
            q_lora_rank=None,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=20,
            num_experts=6,
            num_experts_per_token=2,
            num_shared_experts=1,
            moe_intermediate_size=16,
            routed_scaling_factor=2.446,
            first_k_dense_replace=1,
            linear_attn_config=dict(
                full_attn_layers=[2], kda_layers=[1, 3], head_dim=24, num_heads=2, short_conv_kernel_size=4
            ),
        ),
        gguf=True,
        config_class="KimiLinearConfig",
        keep_none=("q_lora_rank",),
        # transformers gives the dense network the name of the experts; published files do not.
        publish=lambda tensors: {
            name.replace("block_sparse_moe", "mlp") if ".layers.0." in name else name: tensor
            for name, tensor in tensors.items()
        },
        rewrite=kimi_config,
    ),
}
