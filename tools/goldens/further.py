"""Families with kinds of heads, chunks, expert choices or widths that the other families lack."""

from . import Fixture, definitions, rope, tiny
from .attention import PIXTRAL
from .renamed import renamed, said


def by_definition(block):
    """A model made of a block of `definitions`."""
    return lambda config: definitions.of_blocks(config, block)


def smallthinker(config):
    out = said(config, "smallthinker", "SmallThinkerForCausalLM", {})
    for key in ("hidden_act", "intermediate_size", "attention_bias", "mlp_bias"):
        out.pop(key, None)
    return out


def openelm(config):
    keys = ("vocab_size", "num_query_heads", "num_kv_heads", "ffn_multipliers", "ffn_dim_divisor", "head_dim")
    out = {key: config[key] for key in keys}
    out.update(
        model_type="openelm",
        architectures=["OpenELMForCausalLM"],
        model_dim=config["hidden_size"],
        num_transformer_layers=config["num_hidden_layers"],
        max_context_length=config["max_position_embeddings"],
        rope_freq_constant=config["rope_parameters"]["rope_theta"],
        share_input_output_layers=True,
        activation_fn_name="swish",
        normalization_layer_name="rms_norm",
        normalize_qk_projections=True,
        ffn_with_glu=True,
    )
    return out


def openelm_names(tensors):
    words = {"model.embed_tokens": "transformer.token_embeddings", "model.": "transformer."}
    return renamed({key: x for key, x in tensors.items() if key != "lm_head.weight"}, words)


def rwkv7(config):
    ranks = config["rwkv_ranks"]
    return dict(
        model_type="rwkv7",
        architectures=["RWKV7ForCausalLM"],
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_hidden_layers=config["num_hidden_layers"],
        num_heads=config["hidden_size"] // config["rwkv_head_dim"],
        head_dim=config["rwkv_head_dim"],
        value_dim=[config["hidden_size"]] * config["num_hidden_layers"],
        decay_low_rank_dim=ranks["w"],
        a_low_rank_dim=ranks["a"],
        v_low_rank_dim=ranks["v"],
        gate_low_rank_dim=ranks["g"],
        norm_eps=config["rms_norm_eps"],
        norm_first=True,
        norm_bias=True,
        hidden_act="sqrelu",
        attn=None,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )


def deci(config):
    return said(config, "nemotron-nas", "DeciLMForCausalLM", {})


def deci_block(group, factor, is_matrix=False):
    attention = {"n_heads_in_group": group, "no_op": False, "replace_with_linear": is_matrix}
    return {"attention": attention, "ffn": {"ffn_mult": factor, "no_op": factor is None, "replace_with_linear": False}}


def early(**sizes):
    """Arguments of GPT-2's class and of classes with the same keys."""
    out = dict(vocab_size=263, n_embd=40, n_layer=2, n_head=4, n_inner=56, n_positions=512)
    out.update(dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")), **sizes)
    return out


SMALLTHINKER = dict(
    num_hidden_layers=5,
    moe_num_primary_experts=6,
    moe_num_active_primary_experts=2,
    moe_ffn_hidden_size=16,
    moe_primary_router_apply_softmax=False,
    moe_layer_layout=[1] * 5,
    moe_enable_early_router=True,
    moe_enable_secondary_experts=False,
    rope_layout=[0, 1, 1, 1, 0],
    sliding_window_layout=[0, 1, 1, 1, 0],
    rope_parameters=rope(10000.0),
)

FIXTURES = {
    # DeepSeek's latent attention with a factor on queries by position; experts by softmax, and a shared one.
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
        # llama.cpp's converter omits the factor.
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
    # Chunks shorter than the prompt, a layer without rotation but with a factor by position, alternating dense layers.
    "llama4": Fixture(
        "llama4",
        43,
        tiny(
            num_hidden_layers=4,
            intermediate_size=16,
            intermediate_size_mlp=40,
            num_local_experts=4,
            interleave_moe_layer_step=2,
            attention_chunk_size=12,
            floor_scale=8,
            attn_scale=0.4,
            rope_parameters=rope(
                500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
            ),
        ),
        # llama.cpp's converter records neither chunks nor factors.
        config_class="Llama4TextConfig",
    ),
    # Experts in every layer, chunks longer than the prompt.
    "llama4-scout": Fixture(
        "llama4",
        31,
        tiny(
            num_hidden_layers=4,
            intermediate_size=16,
            intermediate_size_mlp=32,
            num_local_experts=4,
            rope_parameters=rope(500000.0),
        ),
        gguf=True,
        config_class="Llama4TextConfig",
    ),
    # No norms of heads, no chunks, one dense layer that follows no step.
    "llama4-maverick": Fixture(
        "llama4",
        31,
        tiny(
            num_hidden_layers=3,
            intermediate_size=16,
            intermediate_size_mlp=32,
            num_local_experts=4,
            moe_layers=[0, 2],
            use_qk_norm=False,
            attention_chunk_size=None,
            no_rope_layers=[1, 0, 1],
            attn_temperature_tuning=False,
            rope_parameters=rope(500000.0),
        ),
        config_class="Llama4TextConfig",
        keep_none=("attention_chunk_size",),
    ),
    # A window shorter than the prompt, weights by sigmoid.
    "smallthinker": Fixture(
        "smallthinker",
        37,
        tiny(**SMALLTHINKER, sliding_window_size=11),
        config_class="LlamaConfig",
        # With half of all seeds, bf16 or an 8-bit cache changes too many choices of experts; with this one they hold.
        salt="-22",
        compose=by_definition(definitions.SmallThinker),
        rewrite=smallthinker,
    ),
    # The window of every published file, which llama.cpp assumes; weights by softmax.
    "smallthinker-softmax": Fixture(
        "smallthinker",
        29,
        tiny(
            **{**SMALLTHINKER, "moe_primary_router_apply_softmax": True},
            sliding_window_size=4096,
            tie_word_embeddings=True,
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=by_definition(definitions.SmallThinker),
        rewrite=smallthinker,
    ),
    # Heads and widths that grow from layer to layer.
    "openelm": Fixture(
        "openelm",
        37,
        tiny(
            num_hidden_layers=3,
            num_query_heads=[2, 4, 6],
            num_kv_heads=[1, 2, 2],
            ffn_multipliers=[0.5, 1.0, 1.7],
            ffn_dim_divisor=8,
            ffn_widths=[24, 40, 72],
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=by_definition(definitions.OpenElm),
        rewrite=openelm,
        publish=openelm_names,
    ),
    # Blocks: a plain one, a matrix in place of attention, neither attention nor network, no attention, other key heads.
    "deci": Fixture(
        "deci",
        37,
        tiny(
            num_hidden_layers=5,
            hidden_size=64,
            num_key_value_heads=None,
            intermediate_size=None,
            block_configs=[
                deci_block(2, 6.0),
                deci_block(None, 12.0, is_matrix=True),
                deci_block(None, None),
                deci_block(None, 6.0),
                deci_block(4, 6.0),
            ],
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=by_definition(definitions.Deci),
        rewrite=deci,
    ),
    # No attention: a recurrence per head, mixing with the previous row, values of the first layer.
    "rwkv7": Fixture(
        "rwkv7",
        71,
        tiny(
            hidden_size=128,
            intermediate_size=72,
            # For smaller heads, llama.cpp reads out of bounds.
            rwkv_head_dim=64,
            rwkv_ranks=dict(w=8, a=12, v=4, g=20),
            rope_parameters=rope(10000.0),
        ),
        gguf=True,
        config_class="LlamaConfig",
        compose=definitions.rwkv7,
        rewrite=rwkv7,
        publish=lambda tensors: renamed(tensors, {"model.embed_tokens": "model.embeddings"}),
    ),
    # One head of keys and values, learned positions.
    "starcoder": Fixture(
        "gpt_bigcode",
        37,
        early(n_embd=64, n_inner=256),
        gguf=True,
        config_class="GPTBigCodeConfig",
    ),
    # A part of each head rotates, in adjacent pairs; both halves after one norm; a bias on the output head.
    "gptj": Fixture("gptj", 37, early(n_embd=64, rotary_dim=8), config_class="GPTJConfig"),
    # Queries, values and keys in four shards of one matrix.
    "codegen": Fixture("codegen", 33, early(n_embd=64, n_head=8, rotary_dim=4), config_class="CodeGenConfig"),
    # Clamped queries, keys and values.
    "olmo-clamped": Fixture(
        "olmo",
        31,
        tiny(hidden_size=64, head_dim=None, clip_qkv=1.25, rope_parameters=rope(10000.0)),
        gguf=True,
        config_class="OlmoConfig",
    ),
    "mpt-clamped": Fixture(
        "mpt",
        29,
        dict(
            vocab_size=263,
            d_model=40,
            n_layers=2,
            n_heads=5,
            max_seq_len=128,
            attn_config=dict(clip_qkv=1.25),
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        ),
        config_class="MptConfig",
    ),
    # Norms of heads after a rotation in adjacent pairs.
    "maincoder": Fixture(
        "maincoder",
        33,
        tiny(rope_parameters=rope(1000000.0)),
        gguf=True,
        config_class="LlamaConfig",
        compose=by_definition(definitions.Maincoder),
        rewrite=lambda config: said(config, "maincoder", "MaincoderForCausalLM", {}),
    ),
}
