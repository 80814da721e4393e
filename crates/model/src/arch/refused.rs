//! Families that are known and not computed, and why: for messages and for the list of them.

/// Models that one reason keeps out.
#[derive(Debug)]
pub struct RefusedFamilies {
    /// Architectures of GGUF files and `model_type`s of `config.json`.
    pub names: &'static [&'static str],
    /// What they are called.
    pub models: &'static str,
    /// Why, in words that follow "it".
    pub why: &'static str,
}

static REFUSED: &[RefusedFamilies] = &[
    RefusedFamilies {
        names: &[
            "arwkv7",
            "kimi-linear",
            "kimi_linear",
            "minimax",
            "olmo_hybrid",
            "plamo2",
            "recurrent_gemma",
            "rwkv",
            "rwkv6",
            "rwkv6qwen2",
            "rwkv7",
            "xlstm",
            "zamba",
            "zamba2",
        ],
        models: "RWKV, Zamba, Kimi Linear",
        why: "has recurrent layers of a kind that is not computed here",
    },
    RefusedFamilies {
        names: &["distilbert", "neo-bert", "t5encoder"],
        models: "NeoBERT, DistilBERT",
        why: "is an encoder of a kind that is not computed",
    },
    RefusedFamilies {
        names: &["bart", "mbart", "t5", "t5gemma", "umt5", "whisper"],
        models: "T5, BART, Whisper",
        why: "has an encoder beside the decoder",
    },
    RefusedFamilies {
        names: &["diffusion_gemma", "dream", "llada", "llada-moe"],
        models: "Dream, LLaDA",
        why: "fills gaps of a text by diffusion, not one token after the other",
    },
    RefusedFamilies {
        names: &["gemma3n", "gemma3n_text"],
        models: "Gemma 3n",
        why: "has embeddings a layer and several streams (AltUp)",
    },
    RefusedFamilies {
        names: &["llama4", "llama4_text"],
        models: "Llama 4",
        why: "attends in chunks",
    },
    RefusedFamilies {
        names: &["mllama"],
        models: "Llama 3.2 Vision",
        why: "attends to images in layers of their own",
    },
    RefusedFamilies {
        names: &["deepseek_v32", "deepseek_v4", "glm_moe_dsa"],
        models: "DeepSeek V3.2 and later",
        why: "chooses the keys that a query sees by an indexer",
    },
    RefusedFamilies {
        names: &["bloom", "jais", "mpt"],
        models: "BLOOM, MPT, Jais",
        why: "has biases by distance (ALiBi) in place of RoPE",
    },
    RefusedFamilies {
        names: &["apertus"],
        models: "Apertus",
        why: "has an activation with learned factors (xIELU)",
    },
    RefusedFamilies {
        names: &["dbrx"],
        models: "DBRX",
        why: "clamps queries, keys and values",
    },
    RefusedFamilies {
        names: &["arctic"],
        models: "Snowflake Arctic",
        why: "has experts and a dense network side by side",
    },
    RefusedFamilies {
        names: &["deci", "nemotron-nas", "openelm"],
        models: "OpenELM, Llama Nemotron (pruned)",
        why: "has heads or widths that differ by layer",
    },
    RefusedFamilies {
        names: &[
            "gemma4-assistant",
            "gemma4_assistant",
            "gemma4_unified_assistant",
        ],
        models: "Gemma 4 assistants",
        why: "drafts with the keys and values of the model that it helps, which engines here keep to themselves; take a smaller \
              Gemma 4 or `ngram` as --draft",
    },
    RefusedFamilies {
        names: &[
            "dflash",
            "eagle3",
            "Eagle3DraftModel",
            "Eagle3LlamaForCausalLM",
            "Eagle3Speculator",
            "LlamaForCausalLMEagle3",
        ],
        models: "EAGLE-3 and DFlash heads",
        why: "drafts from the states between several blocks of the model that it helps, which engines here do not hand over; take a \
              smaller model or `ngram` as --draft",
    },
];

/// All of them.
pub fn refused() -> impl Iterator<Item = &'static RefusedFamilies> {
    REFUSED.iter()
}

/// Why an architecture is not computed, where there is more to say than that it is unknown.
pub(crate) fn why(name: &str) -> Option<&'static str> {
    let row = refused().find(|row| row.names.contains(&name));
    row.map(|row| row.why)
}
