//! Recipes: which format each weight gets when a model is written as `Q4_K_M`, `Q8_0`, `BF16`…
//!
//! The names and the choices are llama.cpp's (`llama_tensor_get_type_impl` without an importance
//! matrix), for the roles the families here have: a mix spends more bits on the head, on V and on
//! the down projection, in the first and last eighth of the layers and every third between.

use millrace_quant::DType;

use crate::Error;
use crate::config::ModelConfig;
use crate::names::{TensorName, WeightRole};

/// A named choice of formats: [`Recipe::choose`] makes it, [`fitting`] adapts it to a shape,
/// [`Recipe::dtype_for`] does both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    row: &'static RecipeRow,
    /// Every matrix in the base format.
    pure: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct RecipeRow {
    name: &'static str,
    /// The format of matrices without a rule.
    base: DType,
    /// `general.file_type` of GGUF files, where GGUF has a number.
    file_type: Option<u32>,
    mix: Mix,
}

/// The rules a recipe follows beyond its base format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// No rules.
    Plain,
    /// A wider head, nothing else.
    Head,
    Q2K,
    Q3KM,
    Q3KL,
    Q4KS,
    /// Q4_K_M and Q5_K_M.
    MoreBits,
    Iq4Nl,
    /// Head and table in Q8_0.
    Mxfp4,
    /// The embedding table in BF16, unless it is the head too.
    Q4nx,
}

const fn row(name: &'static str, base: DType, file_type: Option<u32>, mix: Mix) -> RecipeRow {
    RecipeRow {
        name,
        base,
        file_type,
        mix,
    }
}

/// One row a name. Numbers: `enum llama_ftype`.
static TABLE: [RecipeRow; 21] = [
    row("F32", DType::F32, Some(0), Mix::Plain),
    row("F16", DType::F16, Some(1), Mix::Plain),
    row("BF16", DType::BF16, Some(32), Mix::Plain),
    row("Q8_0", DType::Q8_0, Some(7), Mix::Plain),
    row("Q4_0", DType::Q4_0, Some(2), Mix::Head),
    row("Q4_1", DType::Q4_1, Some(3), Mix::Head),
    row("Q5_0", DType::Q5_0, Some(8), Mix::Head),
    row("Q5_1", DType::Q5_1, Some(9), Mix::Head),
    row("Q2_K", DType::Q2K, Some(10), Mix::Q2K),
    row("Q3_K_S", DType::Q3K, Some(11), Mix::Head),
    row("Q3_K_M", DType::Q3K, Some(12), Mix::Q3KM),
    row("Q3_K_L", DType::Q3K, Some(13), Mix::Q3KL),
    row("Q4_K_S", DType::Q4K, Some(14), Mix::Q4KS),
    row("Q4_K_M", DType::Q4K, Some(15), Mix::MoreBits),
    row("Q5_K_S", DType::Q5K, Some(16), Mix::Head),
    row("Q5_K_M", DType::Q5K, Some(17), Mix::MoreBits),
    row("Q6_K", DType::Q6K, Some(18), Mix::Head),
    row("IQ4_NL", DType::Iq4Nl, Some(25), Mix::Iq4Nl),
    row("MXFP4", DType::Mxfp4, Some(38), Mix::Mxfp4),
    row("Q4NX", DType::Q4nx, None, Mix::Q4nx),
    row("Q4NX_SUB", DType::Q4nxSub, None, Mix::Q4nx),
];

/// Names without a size stand for the middle one, as in llama.cpp.
const ALIASES: [(&str, &str); 3] = [("Q3_K", "Q3_K_M"), ("Q4_K", "Q4_K_M"), ("Q5_K", "Q5_K_M")];

/// Ends the name of a recipe without its rules.
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
        let alias = ALIASES.iter().find(|(alias, _)| *alias == stem);
        let stem = alias.map_or(stem, |(_, full)| full);
        let row = TABLE.iter().find(|row| row.name == stem)?;
        Some(Recipe { row, pure })
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
        TABLE.iter().map(|row| Recipe { row, pure: false })
    }

    /// llama.cpp's name, without the suffix of a pure variant: `Q4_K_M`.
    pub fn name(self) -> &'static str {
        self.row.name
    }

    /// The format of matrices that no rule names.
    pub fn base(self) -> DType {
        self.row.base
    }

    /// `general.file_type` of GGUF files; `None` where GGUF has no number for it.
    pub fn file_type(self) -> Option<u32> {
        self.row.file_type
    }

    /// Whether matrices are plain numbers.
    pub fn is_float(self) -> bool {
        self.row.base.is_float()
    }

    /// Whether matrices are Q4NX tiles, which only Q4NX bundles hold.
    pub fn is_q4nx(self) -> bool {
        matches!(self.row.base, DType::Q4nx | DType::Q4nxSub)
    }

    /// The format of one weight: [`Recipe::choose`], then [`fitting`].
    pub fn dtype_for(self, name: TensorName, config: &ModelConfig) -> DType {
        let chosen = self.choose(name, config);
        match config.shape_of(name)[..] {
            [n, k] => fitting(chosen, n, k),
            _ => chosen,
        }
    }

    /// The format the rules give a weight, whether or not its rows divide into blocks. Vectors are
    /// F32 always.
    pub fn choose(self, name: TensorName, config: &ModelConfig) -> DType {
        let RecipeRow { base, mix, .. } = *self.row;
        let [_, k] = config.shape_of(name)[..] else {
            return DType::F32;
        };
        let is_table = name.role == WeightRole::TokenEmbedding;
        let is_head = name.role == WeightRole::Output || (is_table && config.tied_head);
        if self.pure || mix == Mix::Plain {
            return base;
        }
        match mix {
            Mix::Q4nx if is_table && !config.tied_head => return DType::BF16,
            Mix::Q4nx => return base,
            Mix::Mxfp4 if is_table || is_head => return DType::Q8_0,
            _ if is_head && k.is_multiple_of(base.block_elems()) => return DType::Q6K,
            _ if is_head => return DType::Q8_0,
            _ => {}
        }
        let Some(layer) = name.layer else {
            return base;
        };
        match name.role {
            WeightRole::AttnV => value_projection(base, mix, layer, config),
            WeightRole::FfnDown => down_projection(base, mix, layer, config.n_layers),
            WeightRole::AttnOutput => match mix {
                Mix::Q2K => DType::Q3K,
                Mix::Q3KM => DType::Q4K,
                Mix::Q3KL => DType::Q5K,
                _ => base,
            },
            _ => base,
        }
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
        Mix::Iq4Nl if shared_by_four => DType::Q5K,
        Mix::MoreBits if more_bits(layer, config.n_layers) => DType::Q6K,
        Mix::Q4KS if layer < 4 => DType::Q5K,
        _ => base,
    };
    // The 70B's eight query heads a value head make V small next to what depends on it.
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
        Mix::Q4KS | Mix::Iq4Nl if first_eighth => DType::Q5K,
        _ => base,
    }
}

/// Layers that get more bits: the first and last eighth, and every third between (llama.cpp,
/// `use_more_bits`).
fn more_bits(layer: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

/// The format itself where a matrix `[n, k]` divides into its blocks, else the nearest one that does
/// (llama.cpp, `tensor_type_fallback`): blocks of 32 for blocks of 256, then F16; BF16 for Q4NX.
pub fn fitting(wanted: DType, n: usize, k: usize) -> DType {
    let divides = |dtype: DType| dtype.size_bytes(n, k).is_some();
    if divides(wanted) {
        return wanted;
    }
    let narrow = match wanted {
        DType::Q2K | DType::Q3K => DType::Q4_0,
        DType::Q4K => DType::Q5_0,
        DType::Q5K => DType::Q5_1,
        DType::Q6K => DType::Q8_0,
        DType::Q4nx | DType::Q4nxSub => DType::BF16,
        _ => DType::F16,
    };
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
mod tests {
    use super::*;
    use crate::synth::ModelGeometry;

    fn dtype(recipe: &str, geometry: &str, layer: usize, role: WeightRole) -> DType {
        let config = ModelGeometry::named(geometry).unwrap().config(None);
        let name = match role.is_per_layer() {
            true => TensorName::block(layer, role),
            false => TensorName::global(role),
        };
        Recipe::parse(recipe).unwrap().dtype_for(name, &config)
    }

    #[test]
    fn names_parse_back_in_any_case() {
        for recipe in Recipe::all() {
            assert_eq!(Recipe::parse(&recipe.name().to_lowercase()), Some(recipe));
        }
        assert_eq!(Recipe::parse("q4_k").unwrap().name(), "Q4_K_M");
        let pure = Recipe::parse("q6_k_pure").unwrap();
        assert_eq!(
            (pure.to_string().as_str(), pure.base()),
            ("Q6_K_PURE", DType::Q6K)
        );
        assert_eq!(Recipe::parse("Q4_K_XL"), None);
        let error = Recipe::from_name("Q4_K_XL").unwrap_err().to_string();
        assert!(
            error.contains("Q4_K_XL") && error.contains("IQ4_NL"),
            "{error}"
        );
    }

    /// What `llama-quantize` chooses for Llama 3.2 1B: 16 layers, tied head, four query heads a
    /// value head.
    #[test]
    fn choices_for_llama_1b() {
        let mixed: Vec<usize> = (0..16)
            .filter(|&layer| {
                dtype("Q4_K_M", "llama-3.2-1b", layer, WeightRole::AttnV) == DType::Q6K
            })
            .collect();
        assert_eq!(mixed, [0, 1, 4, 7, 10, 13, 14, 15]);
        let cases = [
            ("Q4_K_M", 0, WeightRole::TokenEmbedding, DType::Q6K),
            ("Q4_K_M", 2, WeightRole::FfnDown, DType::Q4K),
            ("Q4_K_M", 4, WeightRole::FfnDown, DType::Q6K),
            ("Q4_K_M", 4, WeightRole::AttnNorm, DType::F32),
            ("Q4_K_S", 3, WeightRole::AttnV, DType::Q5K),
            ("Q4_K_S", 4, WeightRole::AttnV, DType::Q4K),
            ("Q4_0", 0, WeightRole::TokenEmbedding, DType::Q6K),
            ("Q4_0", 0, WeightRole::AttnQ, DType::Q4_0),
            ("Q4_0_pure", 0, WeightRole::TokenEmbedding, DType::Q4_0),
            ("Q8_0", 0, WeightRole::TokenEmbedding, DType::Q8_0),
            ("BF16", 0, WeightRole::TokenEmbedding, DType::BF16),
            ("Q2_K", 9, WeightRole::AttnV, DType::Q4K),
            ("Q2_K", 9, WeightRole::AttnOutput, DType::Q3K),
            ("Q3_K_M", 0, WeightRole::FfnDown, DType::Q5K),
            ("Q3_K_M", 1, WeightRole::FfnDown, DType::Q4K),
            ("Q4NX", 0, WeightRole::TokenEmbedding, DType::Q4nx),
            ("Q4NX", 0, WeightRole::FfnDown, DType::Q4nx),
        ];
        for (recipe, layer, role, expected) in cases {
            assert_eq!(
                dtype(recipe, "llama-3.2-1b", layer, role),
                expected,
                "{recipe} {role:?}"
            );
        }
    }

    /// Gemma 3 1B's rows of 1152 hold no whole blocks of 256.
    #[test]
    fn rows_that_do_not_divide_get_a_smaller_block() {
        assert_eq!(
            dtype("Q4_K_M", "gemma-3-1b", 3, WeightRole::AttnQ),
            DType::Q5_0
        );
        assert_eq!(
            dtype("Q4_K_M", "gemma-3-1b", 0, WeightRole::TokenEmbedding),
            DType::Q8_0
        );
        assert_eq!(
            dtype("Q4_K_M", "gemma-3-1b", 0, WeightRole::FfnDown),
            DType::Q6K
        );
        // Its bundle's tiles reach beyond them.
        assert_eq!(
            dtype("Q4NX", "gemma-3-1b", 3, WeightRole::AttnQ),
            DType::Q4nx
        );
        assert_eq!(
            dtype("Q4NX", "llama-3.1-8b", 0, WeightRole::TokenEmbedding),
            DType::BF16
        );
        let substitutes = [
            (DType::Q4K, 256, DType::Q4K),
            (DType::Q4K, 96, DType::Q5_0),
            (DType::Q3K, 96, DType::Q4_0),
            (DType::Q4K, 100, DType::F16),
            (DType::Q8_0, 100, DType::F16),
            (DType::Q4nx, 128, DType::Q4nx),
            (DType::Q4nx, 100, DType::BF16),
        ];
        for (wanted, k, expected) in substitutes {
            assert_eq!(fitting(wanted, 64, k), expected, "{wanted} {k}");
        }
        assert_eq!(fitting(DType::Q4nx, 33, 256), DType::BF16);
    }
}
