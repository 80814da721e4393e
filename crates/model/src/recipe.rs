//! Recipes: which format each weight gets when a model is written as `Q4_K_M`, `Q8_0`, `BF16`…
//!
//! The names and the choices are llama.cpp's (`llama_tensor_get_type_impl`, with and without an importance matrix), for
//! the roles of the families here. A mix spends more bits on the head, on V and on the down projection. It does so in
//! the first and last eighth of the layers and every third between. One choice differs. Without an importance matrix Q
//! and K of IQ3_XXS stay in it, where llama.cpp takes IQ2_S, which needs one.

use millrace_quant::{DType, FileType};

use crate::Error;
use crate::config::ModelConfig;
use crate::names::{ParameterKind, TensorName, WeightRole};

/// A named choice of formats: [`Recipe::choose`] makes it, [`fitting`] adapts it to a shape,
/// [`Recipe::dtype_for`] does both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    file_type: FileType,
    /// The format of matrices without a rule.
    base: DType,
    mix: Mix,
    /// Every matrix in the base format.
    pure: bool,
    /// Whether the encoders know the importance of columns.
    weighted: bool,
}

/// The rules a recipe follows beyond its base format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// No rules.
    Plain,
    /// A wider head, nothing else.
    Head,
    Q2K,
    Q2KS,
    Q3KM,
    Q3KL,
    Q4KS,
    /// Q4_K_M and Q5_K_M.
    MoreBits,
    /// IQ4_NL and IQ4_XS.
    Iq4,
    Iq3Xxs,
    Iq3Xs,
    Iq3S,
    Iq3M,
    /// IQ2_S and IQ2_M.
    Iq2Wide,
    /// IQ2_XXS and IQ2_XS.
    Iq2,
    /// IQ1_S and IQ1_M.
    Iq1,
    /// A table in Q4_K: for formats that hardly suit any but trained weights.
    Ternary,
    /// Head and table in Q8_0.
    Mxfp4,
    /// The embedding table in BF16, unless it is the head too.
    Q4nx,
}

/// Recipes with special rules, by name. Others store the head in [`HEAD`]'s format, where that is not narrower.
const MIXES: [(&str, Mix); 26] = [
    ("Q2_K", Mix::Q2K),
    ("Q2_K_S", Mix::Q2KS),
    ("Q3_K_M", Mix::Q3KM),
    ("Q3_K_L", Mix::Q3KL),
    ("Q4_K_S", Mix::Q4KS),
    ("Q4_K_M", Mix::MoreBits),
    ("Q5_K_M", Mix::MoreBits),
    ("IQ4_NL", Mix::Iq4),
    ("IQ4_XS", Mix::Iq4),
    ("IQ3_XXS", Mix::Iq3Xxs),
    ("IQ3_XS", Mix::Iq3Xs),
    ("IQ3_S", Mix::Iq3S),
    ("IQ3_M", Mix::Iq3M),
    ("IQ2_XXS", Mix::Iq2),
    ("IQ2_XS", Mix::Iq2),
    ("IQ2_S", Mix::Iq2Wide),
    ("IQ2_M", Mix::Iq2Wide),
    ("IQ1_S", Mix::Iq1),
    ("IQ1_M", Mix::Iq1),
    ("TQ1_0", Mix::Ternary),
    ("TQ2_0", Mix::Ternary),
    ("Q2_0", Mix::Ternary),
    ("MXFP4", Mix::Mxfp4),
    ("MXFP4_OLLAMA", Mix::Mxfp4),
    ("Q4NX", Mix::Q4nx),
    ("Q4NX_SUB", Mix::Q4nx),
];

/// The head's format where its rows divide into the base format's blocks.
const HEAD: DType = DType::Q6K;

/// Its format in recipes of fewer than three bits, and in IQ3_XXS.
const SMALL_HEAD: DType = DType::Q5K;

/// A name without a size means the middle one, as in llama.cpp: Q4_K for Q4_K_M.
const MIDDLE_SUFFIX: &str = "_M";

/// llama.cpp's name of MXFP4, which it uses for experts only. Dense models would have none.
const MXFP4_ALIAS: &str = "MXFP4_MOE";

/// Suffix of the name of a recipe without its rules.
const PURE_SUFFIX: &str = "_PURE";

impl Recipe {
    /// The recipe of a name, in any case: a format (`F16`, `Q8_0`, `Q4NX`), one of llama.cpp's
    /// mixtures (`Q4_K_M`), or either with `_PURE` behind it, which gives every matrix the format the
    /// name begins with.
    pub fn parse(name: &str) -> Option<Recipe> {
        let upper = name.to_ascii_uppercase();
        let (stem, pure) = match upper.strip_suffix(PURE_SUFFIX) {
            Some(stem) => (stem, true),
            None => (upper.as_str(), false),
        };
        let stem = match stem {
            MXFP4_ALIAS => stem.split('_').next().unwrap_or_default(),
            _ => stem,
        };
        let named = |name: &str| Recipe::all().find(|recipe| recipe.name() == name);
        let recipe = named(stem).or_else(|| named(&format!("{stem}{MIDDLE_SUFFIX}")))?;
        Some(Recipe { pure, ..recipe })
    }

    /// As [`Recipe::parse`].
    ///
    /// # Errors
    /// [`Error::UnknownRecipe`], which lists the names.
    pub fn from_name(name: &str) -> Result<Recipe, Error> {
        Recipe::parse(name).ok_or_else(|| Error::UnknownRecipe {
            found: name.chars().take(40).collect(),
            known: Recipe::all()
                .map(Recipe::name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// All recipes, without the pure variants.
    pub fn all() -> impl Iterator<Item = Recipe> {
        DType::all().flat_map(|base| {
            let of_type = move |file_type: &FileType| Recipe::of(base, *file_type);
            base.file_types().iter().map(of_type)
        })
    }

    fn of(base: DType, file_type: FileType) -> Recipe {
        let mix = MIXES.iter().find(|(name, _)| *name == file_type.name);
        let widens_head = base.bits_per_element() <= HEAD.bits_per_element();
        let usual = if widens_head { Mix::Head } else { Mix::Plain };
        Recipe {
            file_type,
            base,
            mix: mix.map_or(usual, |(_, mix)| *mix),
            pure: false,
            weighted: false,
        }
    }

    /// The recipe for encoders that have an importance matrix, or have none: some choices differ.
    pub fn weighted(self, weighted: bool) -> Recipe {
        Recipe { weighted, ..self }
    }

    /// llama.cpp's name, without the suffix of a pure variant: `Q4_K_M`.
    pub fn name(self) -> &'static str {
        self.file_type.name
    }

    /// The format of matrices that no rule names.
    pub fn base(self) -> DType {
        self.base
    }

    /// `general.file_type` of GGUF files; `None` where GGUF has no number for it.
    pub fn file_type(self) -> Option<u32> {
        self.file_type.number
    }

    /// Whether matrices are plain numbers.
    pub fn is_float(self) -> bool {
        self.base.is_float()
    }

    /// Whether matrices are Q4NX tiles, which only Q4NX bundles hold.
    pub fn is_q4nx(self) -> bool {
        self.base.is_tiled()
    }

    /// The format of one weight of this shape: [`Recipe::choose`], then [`fitting`].
    pub fn dtype_for(self, name: TensorName, shape: &[usize], config: &ModelConfig) -> DType {
        let chosen = self.choose(name, shape, config);
        match *shape {
            [n, k] => fitting(chosen, n, k),
            [n_experts, n, k] => fitting(chosen, n_experts * n, k),
            _ => chosen,
        }
    }

    /// Formats of tables and heads, and a mix's format for all tensors; `k` is the length of a row.
    fn of_vocabulary(self, role: WeightRole, k: usize, config: &ModelConfig) -> Option<DType> {
        let Recipe { base, mix, .. } = self;
        let is_table = role == WeightRole::TokenEmbedding;
        let is_head = role == WeightRole::Output || (is_table && config.tied_head);
        Some(match mix {
            Mix::Q4nx if is_table && !config.tied_head => DType::BF16,
            Mix::Q4nx => base,
            Mix::Mxfp4 if is_table || is_head => DType::Q8_0,
            _ if is_head && !k.is_multiple_of(base.block_elems()) => DType::Q8_0,
            Mix::Iq1 | Mix::Iq2 | Mix::Iq2Wide | Mix::Iq3Xxs if is_head => SMALL_HEAD,
            _ if is_head => HEAD,
            Mix::Iq1 | Mix::Iq2 if is_table => DType::Q2K,
            Mix::Iq2Wide | Mix::Iq3Xxs if is_table => DType::Iq3S,
            Mix::Ternary if is_table => DType::Q4K,
            // In a mixture only experts have few bits.
            Mix::Mxfp4 if config.experts.is_some() && !role.is_of_experts() => DType::Q8_0,
            _ => return None,
        })
    }

    /// The format the rules give a weight of this shape, whether or not its rows divide into blocks. Vectors,
    /// biases and routers are F32 always; in bundles, which are made for devices that compute in BF16, matrices of
    /// these are BF16.
    pub fn choose(self, name: TensorName, shape: &[usize], config: &ModelConfig) -> DType {
        let Recipe { base, mix, .. } = self;
        let (&[.., k], true) = (shape, shape.len() > 1) else {
            return DType::F32;
        };
        if name.role.is_never_quantised() || name.part == ParameterKind::Bias {
            return match mix {
                Mix::Q4nx => DType::BF16,
                _ => DType::F32,
            };
        }
        if self.pure || mix == Mix::Plain {
            return base;
        }
        if let Some(dtype) = self.of_vocabulary(name.role, k, config) {
            return dtype;
        }
        let Some(layer) = name.layer else {
            return base;
        };
        let role = role_by_name(name.role);
        if let Some(dtype) = self.of_eight_experts(role, layer, config) {
            return dtype;
        }
        if let Some(dtype) = self.of_weighted(role, layer, config) {
            return dtype;
        }
        match role {
            WeightRole::AttnV => value_projection(base, mix, layer, config),
            WeightRole::FfnDown => down_projection(base, mix, layer, config.n_layers),
            WeightRole::AttnOutput => match mix {
                Mix::Q2K => DType::Q3K,
                Mix::Q3KM | Mix::Iq3M => DType::Q4K,
                Mix::Q3KL => DType::Q5K,
                Mix::Iq3Xxs | Mix::Iq2Wide => DType::Iq3S,
                Mix::Iq1 => DType::Iq2Xxs,
                _ => base,
            },
            WeightRole::AttnQ | WeightRole::AttnK if mix == Mix::Iq3Xs => DType::Iq3Xxs,
            WeightRole::FfnGate | WeightRole::FfnUp if mix == Mix::Iq3Xs => {
                let eighth = config.n_layers / 8;
                let is_outer = layer < eighth || layer >= 7 * config.n_layers / 8;
                if is_outer { base } else { DType::Iq3Xxs }
            }
            _ => base,
        }
    }
}

impl Recipe {
    /// Formats for mixtures of eight experts: keys and values are small there.
    fn of_eight_experts(
        self,
        role: WeightRole,
        layer: usize,
        config: &ModelConfig,
    ) -> Option<DType> {
        config
            .experts
            .as_ref()
            .filter(|experts| experts.n_experts == 8 && self.mix != Mix::Mxfp4)?;
        let name = self.name();
        let is_smallest = name.starts_with("IQ1") || name.starts_with("IQ2");
        match role {
            WeightRole::AttnK | WeightRole::AttnV if is_smallest => Some(DType::Q4K),
            WeightRole::AttnK | WeightRole::AttnV => Some(DType::Q8_0),
            WeightRole::AttnOutput if is_smallest || WIDE_OUTPUT_OF_EIGHT.contains(&name) => {
                Some(DType::Q5K)
            }
            WeightRole::AttnOutput => Some(self.base),
            WeightRole::FfnDown if name == "IQ3_M" && more_bits(layer, config.n_layers) => {
                Some(DType::Q4K)
            }
            _ => None,
        }
    }
}

impl Recipe {
    /// Choices that differ with an importance matrix.
    fn of_weighted(self, role: WeightRole, layer: usize, config: &ModelConfig) -> Option<DType> {
        if !self.weighted {
            return None;
        }
        let first_eighth = layer < config.n_layers / 8;
        let shared_by_four = config.n_heads >= 4 * config.n_kv_heads;
        match (self.mix, role) {
            (Mix::Iq3Xxs, WeightRole::AttnQ | WeightRole::AttnK) => Some(DType::Iq2S),
            (Mix::Iq3Xxs, WeightRole::AttnV) if !shared_by_four => Some(self.base),
            (Mix::Iq3Xxs | Mix::Iq4, WeightRole::FfnDown) => Some(self.base),
            (_, WeightRole::FfnDown) if first_eighth => match self.base {
                DType::Q4_0 => Some(DType::Q4_1),
                DType::Q5_0 => Some(DType::Q5_1),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Recipes that store the attention's output in Q5_K in mixtures of eight experts.
const WIDE_OUTPUT_OF_EIGHT: [&str; 11] = [
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M",
    "IQ4_NL", "IQ4_XS",
];

/// The role whose rules apply: llama.cpp goes by parts of names, which experts share with dense networks.
fn role_by_name(role: WeightRole) -> WeightRole {
    use WeightRole::*;
    match role {
        AttnQkv | AttnKvB => AttnV,
        AttnLinear => AttnOutput,
        ExpertsDown | SharedDown => FfnDown,
        ExpertsGate | ExpertsGateUp | SharedGate => FfnGate,
        ExpertsUp | SharedUp => FfnUp,
        other => other,
    }
}

fn value_projection(base: DType, mix: Mix, layer: usize, config: &ModelConfig) -> DType {
    let shared_by_four = config.n_heads >= 4 * config.n_kv_heads;
    let dtype = match mix {
        Mix::Q2K if shared_by_four => DType::Q4K,
        Mix::Q2K => DType::Q3K,
        Mix::Q3KM if layer < 2 => DType::Q5K,
        Mix::Q3KM => DType::Q4K,
        Mix::Q3KL => DType::Q5K,
        Mix::Iq4 if shared_by_four => DType::Q5K,
        Mix::Iq3M => DType::Q4K,
        Mix::Q2KS | Mix::Iq3S | Mix::Iq3Xs | Mix::Iq3Xxs if shared_by_four => DType::Q4K,
        Mix::Iq1 | Mix::Iq2 | Mix::Iq2Wide if shared_by_four => DType::Q4K,
        Mix::Iq3Xxs | Mix::Iq2Wide => DType::Iq3S,
        Mix::Iq1 | Mix::Iq2 => DType::Q2K,
        Mix::MoreBits if more_bits(layer, config.n_layers) => DType::Q6K,
        Mix::Q4KS if layer < 4 => DType::Q5K,
        _ => base,
    };
    // The 70B's eight query heads a value head make V small beside the tensors that depend on it.
    let is_70b = config.n_layers == 80 && config.n_heads != config.n_kv_heads;
    match dtype {
        DType::Q3K | DType::Q4K if is_70b => DType::Q5K,
        _ => dtype,
    }
}

fn down_projection(base: DType, mix: Mix, layer: usize, n_layers: usize) -> DType {
    let first_eighth = layer < n_layers / 8;
    match mix {
        Mix::Q2K => DType::Q3K,
        Mix::Q3KM if layer < n_layers / 16 => DType::Q5K,
        Mix::Q3KM => DType::Q4K,
        Mix::Q3KL => DType::Q5K,
        Mix::MoreBits if more_bits(layer, n_layers) => DType::Q6K,
        Mix::Q4KS | Mix::Iq4 if first_eighth => DType::Q5K,
        Mix::Q2KS | Mix::Iq3M | Mix::Iq3Xxs if first_eighth => DType::Q4K,
        Mix::Iq3Xxs => DType::Q3K,
        Mix::Iq2Wide if first_eighth => DType::Iq3S,
        Mix::Iq1 | Mix::Iq2 if first_eighth => DType::Q2K,
        _ => base,
    }
}

/// Layers that get more bits: the first and last eighth, and every third between (llama.cpp,
/// `use_more_bits`).
fn more_bits(layer: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

/// The format itself where a matrix `[n, k]` divides into its blocks, else [`DType::narrower`], else F16.
pub fn fitting(wanted: DType, n: usize, k: usize) -> DType {
    let divides = |dtype: DType| dtype.size_bytes(n, k).is_some();
    if divides(wanted) {
        return wanted;
    }
    let narrow = wanted.narrower();
    if divides(narrow) { narrow } else { DType::F16 }
}

impl std::fmt::Display for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        if self.pure {
            f.write_str(PURE_SUFFIX)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
