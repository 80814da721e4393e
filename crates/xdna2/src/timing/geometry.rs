//! Dimensions of published models, as data.

/// A dense decoder's dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Name as its publisher writes it.
    pub name: &'static str,
    /// Width of the residual stream.
    pub d_model: u64,
    /// Layers.
    pub n_layers: u64,
    /// Query heads.
    pub n_heads: u64,
    /// Key-value heads.
    pub n_kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Width of the feed-forward.
    pub d_ff: u64,
    /// Tokens of the vocabulary.
    pub vocab: u64,
    /// Rows of the LM head as a fused decode streams them: the vocabulary filled up to whole chunks.
    pub head_rows: u64,
    /// Layers with a sliding window: its length, and the period in which one layer has none.
    pub window: Option<(u64, u64)>,
    /// RMS norms of a layer over `d_model`.
    pub norms: u64,
    /// What its attention has beside the plain one.
    pub extra: Extra,
    /// The gate is GELU rather than SiLU.
    pub gelu: bool,
}

/// Operations between the projections and RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// None.
    Plain,
    /// RMS norm of each head of Q and K.
    HeadNorm,
    /// A bias added to Q, K and V.
    Bias,
}

/// The models, with dimensions from the `config.json` that each publisher put beside its weights.
/// `head_rows` of Llama-3.2, Llama-3.1-8B, Gemma3-4B, Qwen3-8B and Qwen2.5-7B follow from the packed
/// sizes in mlir-air `llms/bench/decode_geometry.py` (checked in the tests where the rows are public);
/// for the others it is the vocabulary.
pub const MODELS: &[Geometry] = &[
    llama(
        "Llama-3.2-1B",
        [2048, 16, 32, 8, 64, 8192],
        128_256,
        129_024,
    ),
    llama(
        "Llama-3.2-3B",
        [3072, 28, 24, 8, 128, 8192],
        128_256,
        129_024,
    ),
    llama(
        "Llama-3.1-8B",
        [4096, 32, 32, 8, 128, 14336],
        128_256,
        131_072,
    ),
    llama("SmolLM2-1.7B", [2048, 24, 32, 32, 64, 8192], 49_152, 49_152),
    llama("Phi-4-mini", [3072, 32, 24, 8, 128, 8192], 200_064, 200_064),
    gemma(
        "Gemma3-1B",
        [1152, 26, 4, 1, 256, 6912],
        262_144,
        262_144,
        512,
    ),
    gemma(
        "Gemma3-4B",
        [2560, 34, 8, 4, 256, 10240],
        262_208,
        263_680,
        1024,
    ),
    qwen3("Qwen3-0.6B", [1024, 28, 16, 8, 128, 3072], 151_936),
    qwen3("Qwen3-1.7B", [2048, 28, 16, 8, 128, 6144], 151_936),
    qwen3("Qwen3-4B", [2560, 36, 32, 8, 128, 9728], 151_936),
    qwen3("Qwen3-8B", [4096, 36, 32, 8, 128, 12288], 155_648),
    qwen2("Qwen2.5-0.5B", [896, 24, 14, 2, 64, 4864], 151_936),
    qwen2("Qwen2.5-1.5B", [1536, 28, 12, 2, 128, 8960], 151_936),
    qwen2("Qwen2.5-3B", [2048, 36, 16, 2, 128, 11008], 151_936),
    qwen2("Qwen2.5-7B", [3584, 28, 28, 4, 128, 18944], 154_112),
];

const fn llama(name: &'static str, dims: [u64; 6], vocab: u64, head_rows: u64) -> Geometry {
    let [d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff] = dims;
    Geometry {
        name,
        d_model,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim,
        d_ff,
        vocab,
        head_rows,
        window: None,
        norms: 2,
        extra: Extra::Plain,
        gelu: false,
    }
}

const fn gemma(
    name: &'static str,
    dims: [u64; 6],
    vocab: u64,
    head_rows: u64,
    window: u64,
) -> Geometry {
    Geometry {
        window: Some((window, 6)),
        norms: 4,
        extra: Extra::HeadNorm,
        gelu: true,
        ..llama(name, dims, vocab, head_rows)
    }
}

const fn qwen3(name: &'static str, dims: [u64; 6], head_rows: u64) -> Geometry {
    Geometry {
        extra: Extra::HeadNorm,
        ..llama(name, dims, 151_936, head_rows)
    }
}

const fn qwen2(name: &'static str, dims: [u64; 6], head_rows: u64) -> Geometry {
    Geometry {
        extra: Extra::Bias,
        ..llama(name, dims, 151_936, head_rows)
    }
}

/// The model of that name; case and punctuation do not count (`LLaMA 3.2 1B`).
pub fn find(name: &str) -> Option<&'static Geometry> {
    let plain = |text: &str| -> String {
        let kept = text.chars().filter(char::is_ascii_alphanumeric);
        kept.map(|c| c.to_ascii_lowercase()).collect()
    };
    let name = plain(name);
    let known = |g: &&Geometry| {
        let own = plain(g.name);
        own == name || (own == "phi4mini" && matches!(name.as_str(), "phi4" | "phi4mini4b"))
    };
    MODELS.iter().find(known)
}

impl Geometry {
    /// Weights of the linear layers, LM head excepted.
    pub fn linear_weights(&self) -> u64 {
        let heads = 2 * self.n_heads + 2 * self.n_kv_heads;
        self.n_layers * self.d_model * (heads * self.head_dim + 3 * self.d_ff)
    }

    /// Weights that a token of fused decode streams, LM head included.
    pub fn streamed_weights(&self) -> u64 {
        self.linear_weights() + self.head_rows * self.d_model
    }

    /// Positions that each layer attends to from position `length`: layers without a window and
    /// their positions, layers with one and theirs.
    pub fn attended(&self, length: u64, windows: bool) -> [(u64, u64); 2] {
        match self.window.filter(|_| windows) {
            Some((window, period)) => {
                let global = self.n_layers / period;
                let local = self.n_layers - global;
                [(global, length), (local, length.min(window))]
            }
            None => [(self.n_layers, length), (0, 0)],
        }
    }

    /// Pairs of a query and a key over a causal prompt of that length, summed over layers.
    pub fn causal_pairs(&self, length: u64) -> u64 {
        let pairs = |layers: u64, window: u64| {
            let full = length.min(window);
            layers * (full * (full + 1) / 2 + (length - full) * window)
        };
        let [(global, all), (local, window)] = self.attended(length, true);
        pairs(global, all) + pairs(local, window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_model::graph::Activation;
    use millrace_model::synth;

    /// What is predicted under a published name and what is made up under it are one model.
    #[test]
    fn models_have_the_dimensions_that_synthetic_ones_have() {
        let mut n_compared = 0;
        for made in synth::Geometry::all().filter(|made| !made.name().ends_with("-tiny")) {
            let geometry = find(made.name()).expect("every published geometry has a row");
            let config = made.config(None);
            let found = [
                geometry.n_layers,
                geometry.d_model,
                geometry.n_heads,
                geometry.n_kv_heads,
                geometry.head_dim,
                geometry.d_ff,
                geometry.vocab,
            ];
            let expected = [
                config.n_layers,
                config.d_model,
                config.n_heads,
                config.n_kv_heads,
                config.head_dim,
                config.d_ff,
                config.vocab_size,
            ];
            assert_eq!(found, expected.map(|x| x as u64), "{}", made.name());
            let period = config.layer_windowed.iter().position(|windowed| !windowed);
            let period = period.map(|at| at as u64 + 1);
            let expected = config.window.map(|window| window as u64).zip(period);
            assert_eq!(geometry.window, expected, "{}", made.name());
            let gelu = config.activation != Activation::Silu;
            assert_eq!(geometry.gelu, gelu, "{}", made.name());
            n_compared += 1;
        }
        assert!(n_compared >= 7, "{n_compared}");
    }
}
