//! Dimensions of published models, as data.

use millrace_graph::Activation;
use millrace_model::synth;
use std::sync::LazyLock;

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
    /// Operations that its attention adds to the plain one.
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

/// The models. Dimensions are those of the [synthetic models](synth::ModelGeometry) of the same name. For models that
/// cannot be made up they come from the `config.json` that each publisher put with its weights. `head_rows` of
/// Llama-3.2, Llama-3.1-8B, Gemma3-4B, Qwen3-8B and Qwen2.5-7B follow from the packed sizes in mlir-air
/// `llms/bench/decode_geometry.py` (checked in the tests where the rows are public). For the others it is the
/// vocabulary.
pub fn models() -> &'static [Geometry] {
    static MODELS: LazyLock<Vec<Geometry>> = LazyLock::new(|| {
        let synthetic = SYNTHETIC.iter();
        let synthetic = synthetic.filter_map(|&(name, head_rows)| of_synthetic(name, head_rows));
        synthetic.chain(OTHERS.iter().copied()).collect()
    });
    &MODELS
}

/// Models with a synthetic one, and their rows of the head.
const SYNTHETIC: &[(&str, u64)] = &[
    ("Llama-3.2-1B", 129_024),
    ("Llama-3.2-3B", 129_024),
    ("Llama-3.1-8B", 131_072),
    ("Llama-3.1-70B", 128_256),
    ("Gemma3-1B", 262_144),
    ("Gemma3-4B", 263_680),
    ("Qwen3-0.6B", 151_936),
    ("Qwen2.5-0.5B", 151_936),
];

const OTHERS: &[Geometry] = &[
    llama("SmolLM2-1.7B", [2048, 24, 32, 32, 64, 8192], 49_152, 49_152),
    llama("Phi-4-mini", [3072, 32, 24, 8, 128, 8192], 200_064, 200_064),
    qwen3("Qwen3-1.7B", [2048, 28, 16, 8, 128, 6144], 151_936),
    qwen3("Qwen3-4B", [2560, 36, 32, 8, 128, 9728], 151_936),
    qwen3("Qwen3-8B", [4096, 36, 32, 8, 128, 12288], 155_648),
    qwen2("Qwen2.5-1.5B", [1536, 28, 12, 2, 128, 8960], 151_936),
    qwen2("Qwen2.5-3B", [2048, 36, 16, 2, 128, 11008], 151_936),
    qwen2("Qwen2.5-7B", [3584, 28, 28, 4, 128, 18944], 154_112),
];

fn of_synthetic(name: &'static str, head_rows: u64) -> Option<Geometry> {
    let made = synth::ModelGeometry::all().find(|made| plain(made.name()) == plain(name))?;
    let config = made.config(None);
    let dims = [
        config.d_model,
        config.n_layers,
        config.n_heads,
        config.n_kv_heads,
        config.head_dim,
        config.d_ff,
    ];
    let vocab = config.vocab_size as u64;
    let global = config.layer_windowed.iter().position(|windowed| !windowed);
    let window = config.window.zip(global);
    let (norms, extra) = match config.family {
        "gemma3" => (4, Extra::HeadNorm),
        "qwen3" => (2, Extra::HeadNorm),
        "qwen2" => (2, Extra::Bias),
        _ => (2, Extra::Plain),
    };
    Some(Geometry {
        window: window.map(|(window, global)| (window as u64, global as u64 + 1)),
        norms,
        extra,
        gelu: config.activation == Activation::GeluTanh,
        ..llama(name, dims.map(|dim| dim as u64), vocab, head_rows)
    })
}

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

/// A name without case and punctuation.
fn plain(name: &str) -> String {
    let kept = name.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

/// The model of that name; case and punctuation do not count (`LLaMA 3.2 1B`).
pub fn find(name: &str) -> Option<&'static Geometry> {
    let name = plain(name);
    let known = |g: &&Geometry| {
        let own = plain(g.name);
        own == name || (own == "phi4mini" && matches!(name.as_str(), "phi4" | "phi4mini4b"))
    };
    models().iter().find(known)
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
    pub fn attention_lengths(&self, length: u64, windows: bool) -> [(u64, u64); 2] {
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
        let [(global, all), (local, window)] = self.attention_lengths(length, true);
        pairs(global, all) + pairs(local, window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_model() {
        assert_eq!(models().len(), SYNTHETIC.len() + OTHERS.len());
        let gemma = find("gemma-3-4b").unwrap();
        assert_eq!((gemma.d_model, gemma.d_ff), (2560, 10_240));
        assert_eq!(gemma.window, Some((1024, 6)));
        assert_eq!(
            (gemma.norms, gemma.extra, gemma.gelu),
            (4, Extra::HeadNorm, true)
        );
        let llama = find("LLaMA 3.2 1B").unwrap();
        assert_eq!((llama.d_model, llama.vocab), (2048, 128_256));
        assert_eq!(
            (llama.window, llama.extra, llama.gelu),
            (None, Extra::Plain, false)
        );
        let qwen = find("Qwen2.5-0.5B").unwrap();
        assert_eq!((qwen.n_heads, qwen.extra), (14, Extra::Bias));
        // Figures published of mixtures and of recurrent layers on this device are of whole models alone.
        let is_published = |made: &synth::ModelGeometry| {
            let config = made.config(None);
            let is_plain = config.experts.is_none() && config.recurrent.is_none();
            !made.name().ends_with("-tiny") && is_plain
        };
        for made in synth::ModelGeometry::all().filter(is_published) {
            assert!(find(made.name()).is_some(), "{}", made.name());
        }
    }
}
