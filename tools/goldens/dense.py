"""Dense families beside Llama."""

from . import Fixture, rope, tiny, v4_flat

LONG = dict(
    short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
    long_factor=[1.0, 1.4, 2.0, 3.5, 6.0, 8.0],
)


def minicpm(config):
    """Granite's configuration with MiniCPM's keys."""
    out = {k: v for k, v in config.items() if not k.endswith(("_multiplier", "_scaling"))}
    out.update(architectures=["MiniCPMForCausalLM"], model_type="minicpm")
    out["rope_theta"] = out.pop("rope_parameters")["rope_theta"]
    out.update(scale_emb=2.0, scale_depth=1.4, dim_model_base=16)
    return out


def exaone(config):
    """The configuration as published, with keys that transformers names differently."""
    words = {"num_hidden_layers": "num_layers", "hidden_act": "activation_function", "rms_norm_eps": "layer_norm_epsilon"}
    out = {words.get(k, k): v for k, v in config.items() if k != "rope_parameters"}
    rope = dict(config["rope_parameters"])
    out["rope_theta"] = rope.pop("rope_theta")
    out.update(rope_scaling=rope, architectures=["ExaoneForCausalLM"])
    return out


def without_kv_heads(config):
    """The configuration as published: `multi_query` gives the number of key heads."""
    return {k: v for k, v in config.items() if k != "num_kv_heads"}


def gptneox_v4(config):
    """Spelling of transformers 4: other keys for the rotated share of a head and the base."""
    out = {k: v for k, v in config.items() if k != "rope_parameters"}
    parameters = config["rope_parameters"]
    out.update(rotary_pct=parameters["partial_rotary_factor"], rotary_emb_base=parameters["rope_theta"])
    return out


FIXTURES = {
    # YaRN whose three ranges of pairs all occur.
    "qwen2-yarn": Fixture(
        "qwen2",
        61,
        tiny(
            hidden_size=64,
            head_dim=None,
            rope_parameters=rope(
                10000.0, "yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=1.0
            ),
        ),
        gguf=True,
        config_class="Qwen2Config",
    ),
    # YaRN with bounds within pairs, and the attention factor from two scales.
    "llama-yarn": Fixture(
        "llama",
        41,
        tiny(
            vocab_size=131,
            rope_parameters=rope(
                10000.0,
                "yarn",
                factor=8.0,
                original_max_position_embeddings=48,
                mscale=1.2,
                mscale_all_dim=0.7,
                truncate=False,
            ),
        ),
        config_class="LlamaConfig",
    ),
    # Dynamic NTK, which scales nothing up to the trained context.
    "llama-dynamic": Fixture(
        "llama",
        29,
        tiny(vocab_size=131, rope_parameters=rope(10000.0, "dynamic", factor=4.0)),
        config_class="LlamaConfig",
    ),
    # The first pairs of a head rotate with the frequencies of the whole head.
    "llama-proportional": Fixture(
        "llama",
        29,
        tiny(
            vocab_size=131,
            rope_parameters=rope(10000.0, "proportional", factor=2.0, partial_rotary_factor=0.5),
        ),
        config_class="LlamaConfig",
    ),
    # Phi 3: fused projections, partly rotated heads, a window on every layer, the short list of LongRoPE.
    "phi3": Fixture(
        "phi3",
        41,
        tiny(
            hidden_size=64,
            head_dim=None,
            sliding_window=17,
            original_max_position_embeddings=128,
            rope_parameters=rope(
                10000.0, "longrope", partial_rotary_factor=0.75, original_max_position_embeddings=128, **LONG
            ),
        ),
        gguf=True,
        config_class="Phi3Config",
    ),
    # Phi 3.5: a prompt beyond the original context uses the long list.
    "phi3-long": Fixture(
        "phi3",
        61,
        tiny(
            hidden_size=64,
            head_dim=None,
            tie_word_embeddings=True,
            original_max_position_embeddings=32,
            rope_parameters=rope(
                10000.0, "longrope", partial_rotary_factor=0.75, original_max_position_embeddings=32, **LONG
            ),
        ),
        gguf=True,
        config_class="Phi3Config",
    ),
    # Norms that add 1 to their weights, scaled embeddings, the old name of the activation.
    "gemma": Fixture(
        "gemma",
        29,
        tiny(
            num_key_value_heads=1,
            hidden_act="gelu_pytorch_tanh",
            tie_word_embeddings=True,
            rope_parameters=rope(),
        ),
        gguf=True,
        config_class="GemmaConfig",
        v4=lambda c: {**{k: v for k, v in v4_flat(c).items()}, "hidden_act": "gelu"},
    ),
    # Soft caps that scores and logits reach, a window on every second layer.
    "gemma2": Fixture(
        "gemma2",
        41,
        tiny(
            num_hidden_layers=3,
            query_pre_attn_scalar=16,
            sliding_window=13,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=5.0,
            tie_word_embeddings=True,
            rope_parameters=rope(),
        ),
        gguf=True,
        config_class="Gemma2Config",
    ),
    # A score scale that does not follow from the head size, and no cap on scores.
    "gemma2-scale": Fixture(
        "gemma2",
        29,
        tiny(
            vocab_size=131,
            query_pre_attn_scalar=24,
            sliding_window=9,
            attn_logit_softcapping=None,
            layer_types=["full_attention", "sliding_attention"],
            tie_word_embeddings=True,
            rope_parameters=rope(),
        ),
        config_class="Gemma2Config",
        keep_none=("attn_logit_softcapping",),
    ),
    # Granite's four factors, and every bias.
    "granite": Fixture(
        "granite",
        37,
        tiny(
            hidden_size=64,
            head_dim=None,
            attention_bias=True,
            tie_word_embeddings=True,
            embedding_multiplier=3.0,
            attention_multiplier=0.3,
            residual_multiplier=0.5,
            logits_scaling=6.0,
            rope_parameters=rope(),
        ),
        gguf=True,
        config_class="GraniteConfig",
    ),
    # Every fourth layer does not rotate.
    "smollm3": Fixture(
        "smollm3",
        37,
        tiny(
            num_hidden_layers=4,
            hidden_size=64,
            head_dim=None,
            tie_word_embeddings=True,
            rope_parameters=rope(2000000.0),
        ),
        gguf=True,
        config_class="SmolLM3Config",
        qk_gain=1.0,
    ),
    # Another pattern, given as a list; windows on the layers that do not rotate.
    "smollm3-window": Fixture(
        "smollm3",
        31,
        tiny(
            vocab_size=131,
            num_hidden_layers=3,
            hidden_size=64,
            head_dim=None,
            no_rope_layers=[0, 1, 0],
            use_sliding_window=True,
            sliding_window=11,
            tie_word_embeddings=True,
            rope_parameters=rope(2000000.0),
        ),
        config_class="SmolLM3Config",
    ),
    "seed-oss": Fixture(
        "seed-oss",
        29,
        tiny(rope_parameters=rope(1000000.0)),
        gguf=True,
        config_class="SeedOssConfig",
    ),
    # The class's other biases.
    "seed-oss-bias": Fixture(
        "seed-oss",
        29,
        tiny(
            vocab_size=131,
            attention_bias=False,
            attention_out_bias=True,
            mlp_bias=True,
            rope_parameters=rope(1000000.0),
        ),
        config_class="SeedOssConfig",
    ),
    # LayerNorms, an ungated network, every bias.
    "starcoder2": Fixture(
        "starcoder2",
        37,
        tiny(
            hidden_size=64,
            intermediate_size=40,
            head_dim=None,
            norm_epsilon=1e-5,
            tie_word_embeddings=True,
            rope_parameters=rope(100000.0),
        ),
        gguf=True,
        config_class="Starcoder2Config",
    ),
    "starcoder2-window": Fixture(
        "starcoder2",
        37,
        tiny(
            vocab_size=131,
            hidden_size=64,
            intermediate_size=40,
            head_dim=None,
            norm_epsilon=1e-4,
            use_bias=False,
            sliding_window=11,
            rope_parameters=rope(100000.0),
        ),
        config_class="Starcoder2Config",
    ),
    # Half of each head rotates, in adjacent pairs; norms after both halves of a block.
    "glm4": Fixture(
        "glm4",
        37,
        tiny(partial_rotary_factor=0.5, rope_parameters=rope(10000.0, partial_rotary_factor=0.5)),
        gguf=True,
        config_class="Glm4Config",
    ),
    # Heads rotate in adjacent pairs.
    "ernie4.5": Fixture(
        "ernie4.5",
        33,
        tiny(tie_word_embeddings=True, rope_parameters=rope(500000.0)),
        gguf=True,
        config_class="Ernie4_5Config",
    ),
    "ernie4.5-bias": Fixture(
        "ernie4.5",
        29,
        tiny(vocab_size=131, use_bias=True, rope_parameters=rope(500000.0)),
        config_class="Ernie4_5Config",
    ),
    # Norms of heads after their rotation.
    "hunyuan": Fixture(
        "hunyuan",
        37,
        tiny(rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="HunYuanDenseV1Config",
    ),
    # A RoPE base scaled by `alpha`; biases.
    "hunyuan-alpha": Fixture(
        "hunyuan",
        31,
        tiny(
            vocab_size=131,
            attention_bias=True,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0, "dynamic", factor=1.0, alpha=50.0),
        ),
        config_class="HunYuanDenseV1Config",
    ),
    # An ungated squared ReLU.
    "arcee": Fixture(
        "arcee",
        29,
        tiny(
            intermediate_size=40,
            attention_bias=True,
            mlp_bias=False,
            rope_parameters=rope(10000.0, "yarn", factor=4.0, original_max_position_embeddings=32),
        ),
        gguf=True,
        config_class="ArceeConfig",
    ),
    # An activation with factors per layer, norms of heads.
    "apertus": Fixture(
        "apertus",
        29,
        tiny(
            intermediate_size=40,
            hidden_size=64,
            head_dim=None,
            attention_bias=False,
            rope_parameters=rope(
                12000000.0,
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        gguf=True,
        config_class="ApertusConfig",
    ),
    # LayerNorms without weights.
    "olmo": Fixture(
        "olmo",
        29,
        tiny(hidden_size=64, head_dim=None, rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="OlmoConfig",
    ),
    # Attention and network in parallel, biases everywhere, including the head.
    "phi2": Fixture(
        "phi2",
        29,
        tiny(
            hidden_size=64,
            intermediate_size=256,
            num_key_value_heads=4,
            head_dim=None,
            layer_norm_eps=1e-5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        ),
        gguf=True,
        config_class="PhiConfig",
    ),
    # Llama with other names of tensors, and the keys of the published files.
    "exaone": Fixture(
        "exaone",
        23,
        tiny(
            hidden_size=32,
            head_dim=None,
            tie_word_embeddings=True,
            rope_parameters=rope(
                500000.0,
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        gguf=True,
        config_class="ExaoneConfig",
        rewrite=exaone,
    ),
    # Queries, keys and values of a head together; attention and network, each after its own norm.
    "gptneox": Fixture(
        "gptneox",
        23,
        tiny(
            hidden_size=24,
            intermediate_size=40,
            num_attention_heads=3,
            head_dim=None,
            num_key_value_heads=None,
            layer_norm_eps=1e-5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        ),
        v4=gptneox_v4,
        gguf=True,
        config_class="GPTNeoXConfig",
    ),
    # The network after the attention, no biases of attention.
    "gptneox-sequential": Fixture(
        "gptneox",
        29,
        tiny(
            vocab_size=67,
            hidden_size=32,
            intermediate_size=40,
            head_dim=None,
            num_key_value_heads=None,
            layer_norm_eps=1e-5,
            use_parallel_residual=False,
            attention_bias=False,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.25),
        ),
        config_class="GPTNeoXConfig",
    ),
    # One key head, one norm.
    "falcon": Fixture(
        "falcon",
        23,
        tiny(
            hidden_size=24,
            num_attention_heads=3,
            num_key_value_heads=None,
            head_dim=None,
            intermediate_size=None,
            # llama.cpp's converter requires these two.
            max_position_embeddings=2048,
            ffn_hidden_size=96,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="FalconConfig",
        rewrite=without_kv_heads,
    ),
    # Groups of query heads with one key head each, two norms.
    "falcon-grouped": Fixture(
        "falcon",
        29,
        tiny(
            vocab_size=67,
            hidden_size=48,
            num_attention_heads=6,
            num_key_value_heads=None,
            num_kv_heads=2,
            head_dim=None,
            intermediate_size=None,
            ffn_hidden_size=56,
            new_decoder_architecture=True,
            bias=True,
            rope_parameters=rope(10000.0),
        ),
        config_class="FalconConfig",
    ),
    # Learned positions, transposed matrices.
    "gpt2": Fixture(
        "gpt2",
        23,
        dict(
            vocab_size=263,
            n_embd=24,
            n_layer=2,
            n_head=3,
            # llama.cpp's converter requires it.
            n_inner=96,
            n_positions=128,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        gguf=True,
        config_class="GPT2Config",
        rewrite=lambda config: dict(config, n_ctx=config["n_positions"]),
    ),
    # ALiBi with a number of heads that is not a power of 2, a norm after the embedding.
    "bloom": Fixture(
        "bloom",
        37,
        dict(
            vocab_size=263,
            hidden_size=48,
            n_layer=2,
            n_head=6,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        gguf=True,
        config_class="BloomConfig",
        # As in published files; without it the converter uses the width.
        rewrite=lambda config: dict(config, seq_length=128),
    ),
    # The same without biases of products and norms, with its own factor on scores.
    "mpt": Fixture(
        "mpt",
        37,
        dict(
            vocab_size=263,
            d_model=40,
            n_layers=2,
            n_heads=5,
            max_seq_len=128,
            attn_config=dict(softmax_scale=0.5),
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        config_class="MptConfig",
    ),
    # LayerNorms, a quarter of each head rotates.
    "stablelm": Fixture(
        "stablelm",
        29,
        tiny(
            hidden_size=64,
            head_dim=None,
            use_qkv_bias=True,
            layer_norm_eps=1e-5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.25),
        ),
        gguf=True,
        config_class="StableLmConfig",
    ),
    # The 12B: attention and network in parallel, a separate LayerNorm for each query and key head. llama.cpp's converter fails at
    # those.
    "stablelm-12b": Fixture(
        "stablelm",
        31,
        tiny(
            hidden_size=64,
            head_dim=None,
            qk_layernorm=True,
            use_parallel_residual=True,
            layer_norm_eps=1e-5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.25),
        ),
        config_class="StableLmConfig",
    ),
    # Only norms of heads.
    "stablelm-heads": Fixture(
        "stablelm",
        29,
        tiny(
            vocab_size=131,
            hidden_size=48,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=None,
            qk_layernorm=True,
            use_qkv_bias=True,
            layer_norm_eps=1e-4,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        ),
        config_class="StableLmConfig",
    ),
    # Half of each head rotates, in adjacent pairs. The converter takes the width for the context.
    "glm": Fixture(
        "glm",
        37,
        tiny(
            hidden_size=64,
            max_position_embeddings=64,
            partial_rotary_factor=0.5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        ),
        gguf=True,
        config_class="GlmConfig",
    ),
    # transformers has no such class: this is Granite's, with factors that the files give under other keys.
    "minicpm": Fixture(
        "minicpm",
        29,
        tiny(
            hidden_size=64,
            num_hidden_layers=2,
            head_dim=None,
            embedding_multiplier=2.0,
            attention_multiplier=0.25,
            residual_multiplier=1.4 / 2**0.5,
            logits_scaling=4.0,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="GraniteConfig",
        rewrite=minicpm,
    ),
    # Latent attention, halves of heads rotate; factors that no GGUF file records.
    "minicpm3": Fixture(
        "minicpm3",
        23,
        tiny(
            hidden_size=32,
            num_key_value_heads=4,
            head_dim=None,
            q_lora_rank=12,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            scale_emb=12,
            scale_depth=1.4,
            dim_model_base=256,
            tie_word_embeddings=True,
            rope_parameters=rope(
                10000.0,
                "longrope",
                short_factor=[1.0, 1.05, 1.2, 1.5],
                long_factor=[1.0, 1.4, 3.5, 8.0],
                original_max_position_embeddings=512,
            ),
        ),
        gguf=True,
        config_class="MiniCPM3Config",
    ),
    # LayerNorms whose weights are added to 1, an ungated squared ReLU, half of each head rotates.
    "nemotron": Fixture(
        "nemotron",
        37,
        tiny(
            hidden_size=64,
            norm_eps=1e-5,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
        ),
        gguf=True,
        config_class="NemotronConfig",
    ),
}
