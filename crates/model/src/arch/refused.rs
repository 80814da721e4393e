//! Families that are known but not computed, with the reasons: for messages and for the list of them.

/// Models that are refused for one reason.
#[derive(Debug)]
pub struct RefusedFamilies {
    /// Architectures of GGUF files and `model_type`s of `config.json`.
    pub names: &'static [&'static str],
    /// Names of the models.
    pub models: &'static str,
    /// Why, in words that follow "it".
    pub why: &'static str,
}

static REFUSED: &[RefusedFamilies] = &[
    RefusedFamilies {
        names: &[
            "arwkv7",
            "bailing_hybrid",
            "bailingmoe3",
            "glm5-next",
            "kimi-k3",
            "minimax",
            "minimax-01",
            "plamo2",
            "qwen4_exp",
            "qwen4exp",
            "recurrent_gemma",
            "rwkv",
            "rwkv6",
            "rwkv6qwen2",
            "xlstm",
            "zamba",
            "zamba2",
        ],
        models: "RWKV 4 to 6, Zamba, Kimi K3, Ling 3, MiniMax 01, PLaMo 2, Qwen 4 (experimental)",
        why: "has recurrent layers of a kind that is not computed here",
    },
    RefusedFamilies {
        names: &["t5encoder"],
        models: "T5's encoder",
        why: "has learned biases by distance, which are not computed",
    },
    RefusedFamilies {
        names: &["bart", "mbart", "t5", "t5gemma", "umt5", "whisper"],
        models: "T5, BART, Whisper",
        why: "has an encoder beside the decoder",
    },
    RefusedFamilies {
        names: &["diffusion_gemma", "dream", "llada", "llada-moe", "rnd1"],
        models: "Dream, LLaDA, RND1",
        why: "fills gaps of a text by diffusion, not one token after the other",
    },
    RefusedFamilies {
        names: &["pockettts", "qwen3tts", "wavtokenizer-dec"],
        models: "Qwen 3 TTS, Pocket TTS, WavTokenizer",
        why: "makes sound, not text",
    },
    RefusedFamilies {
        names: &["clip"],
        models: "CLIP and other vision encoders (mmproj)",
        why: "sees images for a text model, which is the one to name",
    },
    RefusedFamilies {
        names: &["mllama"],
        models: "Llama 3.2 Vision",
        why: "attends to images in layers of their own",
    },
    RefusedFamilies {
        names: &["cogvlm"],
        models: "CogVLM",
        why: "has weights of their own for the elements of images",
    },
    RefusedFamilies {
        names: &["chameleon"],
        models: "Chameleon",
        why: "has norms of heads behind their rotation, and writes images",
    },
    RefusedFamilies {
        names: &["deepseek2-ocr", "hunyuan_vl", "paddleocr", "paddleocr_vl"],
        models: "DeepSeek OCR, Hunyuan OCR, PaddleOCR",
        why: "reads images by an encoder that is not computed here, and has no use without it",
    },
    RefusedFamilies {
        names: &[
            "deepseek32",
            "deepseek4",
            "deepseek_v32",
            "deepseek_v4",
            "dots3_note",
            "dots3note",
            "glm-dsa",
            "glm_moe_dsa",
            "hy_v4",
            "minimax-m3",
            "minimax_m3",
        ],
        models: "DeepSeek V3.2 and later, GLM 5, Hunyuan 4, MiniMax M3, dots3",
        why: "chooses the keys that a query sees by an indexer",
    },
    RefusedFamilies {
        names: &["arctic", "grok"],
        models: "Snowflake Arctic, Grok",
        why: "has experts and a dense network side by side",
    },
    RefusedFamilies {
        names: &["grovemoe"],
        models: "GroveMoE",
        why: "has experts that groups of experts share",
    },
    RefusedFamilies {
        names: &["maple"],
        models: "Maple",
        why: "has bounds in its experts of which sources differ",
    },
    RefusedFamilies {
        names: &["graniteswitch"],
        models: "Granite Switch",
        why: "has adapters within it that tokens switch",
    },
    RefusedFamilies {
        names: &["hrm_text", "nanbeige"],
        models: "HRM Text, Nanbeige (looped)",
        why: "goes through its blocks several times for a token",
    },
    RefusedFamilies {
        names: &["talkie"],
        models: "Talkie",
        why: "adds the embedding to the stream again behind each block, and has gains of heads",
    },
    RefusedFamilies {
        names: &["plamo", "plamo3"],
        models: "PLaMo, PLaMo 3",
        why: "has query heads in an order of its own, or several widths",
    },
    RefusedFamilies {
        names: &[
            "dflash",
            "eagle3",
            "Eagle3DraftModel",
            "Eagle3LlamaForCausalLM",
            "Eagle3Speculator",
            "LlamaForCausalLMEagle3",
            "muse_glimmer_assistant",
        ],
        models: "EAGLE-3 and DFlash heads, Muse Glimmer's assistant",
        why: "drafts from the states between several blocks of the model that it helps, which engines here do not hand over; take a \
              smaller model or `ngram` as --draft",
    },
];

/// All of them.
pub fn refused() -> impl Iterator<Item = &'static RefusedFamilies> {
    REFUSED.iter()
}

/// Why an architecture is not computed, where the reason is not just that it is unknown.
pub(crate) fn why(name: &str) -> Option<&'static str> {
    let row = refused().find(|row| row.names.contains(&name));
    row.map(|row| row.why)
}
