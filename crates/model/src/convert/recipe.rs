//! Which number format each tensor gets: plain types, and the mixtures that llama.cpp names.
//!
//! A mixture gives a few tensors that matter more than their size a wider format: values, the
//! feed-forward's way back, the head. The rules are those of llama.cpp's quantiser for models
//! without experts and without an importance matrix.

use std::fmt;

use millrace_quant::DType;

use super::Error;
use crate::ModelConfig;
use crate::names::{Part, Role, TensorName};

/// A named choice of formats.
#[derive(Clone, Copy)]
pub struct Recipe {
    row: &'static Row,
    pure: bool,
}

/// One line of the table.
struct Row {
    name: &'static str,
    /// `general.file_type`, ggml's number of the mixture; `None` where GGUF has none.
    file_type: Option<u32>,
    /// The format of matrices that no rule names.
    base: DType,
    mix: Mix,
}

/// The rules of a mixture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// Every matrix alike.
    Plain,
    /// Every matrix alike, but a wider head.
    Head,
    Q2K,
    Q3KM,
    Q3KL,
    Q4KS,
    /// Q4_K_M and Q5_K_M.
    MoreBits,
    Iq4Nl,
    Mxfp4,
}

const fn row(name: &'static str, file_type: Option<u32>, base: DType, mix: Mix) -> Row {
    Row { name, file_type, base, mix }
}

/// One row a name. Numbers: `enum llama_ftype`.
static TABLE: [Row; 20] = [
    row("F32", Some(0), DType::F32, Mix::Plain),
    row("F16", Some(1), DType::F16, Mix::Plain),
    row("BF16", Some(32), DType::BF16, Mix::Plain),
    row("Q4_0", Some(2), DType::Q4_0, Mix::Head),
    row("Q4_1", Some(3), DType::Q4_1, Mix::Head),
    row("Q5_0", Some(8), DType::Q5_0, Mix::Head),
    row("Q5_1", Some(9), DType::Q5_1, Mix::Head),
    row("Q8_0", Some(7), DType::Q8_0, Mix::Plain),
    row("Q2_K", Some(10), DType::Q2K, Mix::Q2K),
    row("Q3_K_S", Some(11), DType::Q3K, Mix::Head),
    row("Q3_K_M", Some(12), DType::Q3K, Mix::Q3KM),
    row("Q3_K_L", Some(13), DType::Q3K, Mix::Q3KL),
    row("Q4_K_S", Some(14), DType::Q4K, Mix::Q4KS),
    row("Q4_K_M", Some(15), DType::Q4K, Mix::MoreBits),
    row("Q5_K_S", Some(16), DType::Q5K, Mix::Head),
    row("Q5_K_M", Some(17), DType::Q5K, Mix::MoreBits),
    row("Q6_K", Some(18), DType::Q6K, Mix::Head),
    row("IQ4_NL", Some(25), DType::Iq4Nl, Mix::Iq4Nl),
    row("MXFP4", Some(38), DType::Mxfp4, Mix::Mxfp4),
    row("Q4NX", None, DType::Q4nx, Mix::Plain),
];

/// Names without a size stand for the middle one, as in llama.cpp.
const ALIASES: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Ends the name of a recipe without its rules.
const PURE_SUFFIX: &str = "_PURE";

impl Recipe {
    /// The recipe of a name, in any case: a type (`F16`, `Q8_0`, `Q4NX`), one of llama.cpp's
    /// mixtures (`Q4_K_M`), or a type with `_PURE` behind it, which gives every matrix that type
    /// (`Q4_K_PURE`).
    ///
    /// # Errors
    /// [`Error::UnknownRecipe`], which lists the names.
    pub fn from_name(name: &str) -> Result<Recipe, Error> {
        let upper = name.to_ascii_uppercase();
        let (stem, pure) = match upper.strip_suffix(PURE_SUFFIX) {
            Some(stem) => (stem, true),
            None => (upper.as_str(), false),
        };
        let alias = ALIASES.iter().find(|(alias, _)| *alias == stem);
        let stem = alias.map_or(stem, |(_, full)| full);
        match TABLE.iter().find(|row| row.name == stem) {
            Some(row) => Ok(Recipe { row, pure }),
            None => Err(Error::UnknownRecipe {
                found: name.to_owned(),
                known: Recipe::names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// Every recipe's name, without the `_PURE` variants.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name)
    }

    /// The name, as llama.cpp spells it.
    pub fn name(self) -> &'static str {
        self.row.name
    }

    /// The format of matrices that no rule of the mixture names.
    pub fn base(self) -> DType {
        self.row.base
    }

    /// `general.file_type` of the GGUF file; `None` where GGUF has no number for it.
    pub fn file_type(self) -> Option<u32> {
        self.row.file_type
    }

    pub(super) fn is_float(self) -> bool {
        self.row.base.is_float()
    }

    pub(super) fn is_q4nx(self) -> bool {
        self.row.base == DType::Q4nx
    }

    /// The format a GGUF file gets for a weight, before [`fitting`] has looked at its shape.
    ///
    /// Vectors are F32 always. `config` decides the rules that depend on the model: its number of
    /// layers, the heads that share a key, whether the table serves as the head.
    pub fn choose(self, name: TensorName, config: &ModelConfig) -> DType {
        let is_vector = name.part == Part::Bias || config.shape_of(name).len() < 2;
        if is_vector || name.role.is_norm() {
            return DType::F32;
        }
        if self.pure {
            return self.row.base;
        }
        let is_head = match name.role {
            Role::Output => true,
            Role::TokenEmbedding => config.tied_head,
            _ => false,
        };
        if is_head {
            return self.head(config.d_model);
        }
        let layer = name.layer.unwrap_or(0);
        let wider = match name.role {
            Role::AttnV => self.attn_v(layer, config),
            Role::FfnDown => self.ffn_down(layer, config.n_layers),
            Role::AttnOutput => self.attn_output(),
            Role::TokenEmbedding if self.row.mix == Mix::Mxfp4 => Some(DType::Q8_0),
            _ => None,
        };
        wider.unwrap_or(self.row.base)
    }

    fn head(self, k: usize) -> DType {
        match self.row.mix {
            Mix::Plain => self.row.base,
            Mix::Mxfp4 => DType::Q8_0,
            _ if !k.is_multiple_of(self.row.base.block_elems()) => DType::Q8_0,
            _ => DType::Q6K,
        }
    }

    fn attn_v(self, layer: usize, config: &ModelConfig) -> Option<DType> {
        let shared = config.n_heads / config.n_kv_heads >= 4;
        let wider = match self.row.mix {
            Mix::Q2K if shared => Some(DType::Q4K),
            Mix::Q2K => Some(DType::Q3K),
            Mix::Q3KM if layer < 2 => Some(DType::Q5K),
            Mix::Q3KM => Some(DType::Q4K),
            Mix::Q3KL => Some(DType::Q5K),
            Mix::Q4KS if layer < 4 => Some(DType::Q5K),
            Mix::MoreBits if gets_more_bits(layer, config.n_layers) => Some(DType::Q6K),
            Mix::Iq4Nl if shared => Some(DType::Q5K),
            _ => None,
        };
        // Eight heads share each value head of the 70B models: their values are cheap to widen.
        let is_70b = config.n_layers == 80 && config.n_heads != config.n_kv_heads;
        match wider.unwrap_or(self.row.base) {
            DType::Q3K | DType::Q4K if is_70b => Some(DType::Q5K),
            _ => wider,
        }
    }

    fn ffn_down(self, layer: usize, n_layers: usize) -> Option<DType> {
        match self.row.mix {
            Mix::Q2K => Some(DType::Q3K),
            Mix::Q3KM if layer < n_layers / 16 => Some(DType::Q5K),
            Mix::Q3KM => Some(DType::Q4K),
            Mix::Q3KL => Some(DType::Q5K),
            Mix::Q4KS | Mix::Iq4Nl if layer < n_layers / 8 => Some(DType::Q5K),
            Mix::MoreBits if gets_more_bits(layer, n_layers) => Some(DType::Q6K),
            _ => None,
        }
    }

    fn attn_output(self) -> Option<DType> {
        match self.row.mix {
            Mix::Q2K => Some(DType::Q3K),
            Mix::Q3KM => Some(DType::Q4K),
            Mix::Q3KL => Some(DType::Q5K),
            _ => None,
        }
    }
}

/// The first and the last eighth of the layers, and every third between.
fn gets_more_bits(layer: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

/// The format nearest to `wanted` whose blocks divide rows of `k` elements: blocks of 256 give way
/// to blocks of 32, and those to F16.
pub(super) fn fitting(wanted: DType, k: usize) -> DType {
    let divides = |dtype: DType| k.is_multiple_of(dtype.block_elems());
    if divides(wanted) {
        return wanted;
    }
    let narrow = match wanted {
        DType::Q2K | DType::Q3K => DType::Q4_0,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        _ => DType::F16,
    };
    if divides(narrow) { narrow } else { DType::F16 }
}

impl PartialEq for Recipe {
    fn eq(&self, other: &Recipe) -> bool {
        self.row.name == other.row.name && self.pure == other.pure
    }
}

impl Eq for Recipe {}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipe({self})")
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row.name)?;
        if self.pure { f.write_str(PURE_SUFFIX) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
