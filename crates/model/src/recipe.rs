//! Recipes: which format each weight gets when a model is written as `Q4_K_M`, `Q8_0`, `BF16`…
//!
//! The names and the choices are llama.cpp's (`llama_tensor_get_type_impl` without an importance
//! matrix), for the roles the families here have: a mix spends more bits on the head, on V and on
//! the down projection, in the first and last eighth of the layers and every third between.

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

/// Recipes that follow rules of their own, by name. Others widen the head, if it is the wider for it.
const MIXES: [(&str, Mix); 10] = [
    ("Q2_K", Mix::Q2K),
    ("Q3_K_M", Mix::Q3KM),
    ("Q3_K_L", Mix::Q3KL),
    ("Q4_K_S", Mix::Q4KS),
    ("Q4_K_M", Mix::MoreBits),
    ("Q5_K_M", Mix::MoreBits),
    ("IQ4_NL", Mix::Iq4Nl),
    ("MXFP4", Mix::Mxfp4),
    ("Q4NX", Mix::Q4nx),
    ("Q4NX_SUB", Mix::Q4nx),
];

/// What the head gets where its rows divide into the base format's blocks.
const HEAD: DType = DType::Q6K;

/// A name without a size stands for the middle one, as in llama.cpp: Q4_K for Q4_K_M.
const MIDDLE_SUFFIX: &str = "_M";

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
        }
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

    /// The format the rules give a weight of this shape, whether or not its rows divide into blocks. Vectors,
    /// biases and routers are F32 always; in bundles, which are made for devices that compute in BF16, matrices of
    /// these are BF16.
    pub fn choose(self, name: TensorName, shape: &[usize], config: &ModelConfig) -> DType {
        let Recipe { base, mix, .. } = self;
        let (&[.., k], true) = (shape, shape.len() > 1) else {
            return DType::F32;
        };
        let is_router = matches!(name.role, WeightRole::Router | WeightRole::SharedRouter);
        if is_router || name.part == ParameterKind::Bias {
            return if mix == Mix::Q4nx {
                DType::BF16
            } else {
                DType::F32
            };
        }
        let is_table = name.role == WeightRole::TokenEmbedding;
        let is_head = name.role == WeightRole::Output || (is_table && config.tied_head);
        if self.pure || mix == Mix::Plain {
            return base;
        }
        match mix {
            Mix::Q4nx if is_table && !config.tied_head => return DType::BF16,
            Mix::Q4nx => return base,
            Mix::Mxfp4 if is_table || is_head => return DType::Q8_0,
            _ if is_head && k.is_multiple_of(base.block_elems()) => return HEAD,
            _ if is_head => return DType::Q8_0,
            // In a mixture experts alone are small numbers.
            Mix::Mxfp4 if config.experts.is_some() && !name.role.is_of_experts() => {
                return DType::Q8_0;
            }
            _ => {}
        }
        let Some(layer) = name.layer else {
            return base;
        };
        let role = role_by_name(name.role);
        if let Some(dtype) = self.of_eight_experts(role, layer, config) {
            return dtype;
        }
        match role {
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

impl Recipe {
    /// What mixtures of eight experts get instead: keys and values are small there.
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

/// Recipes that give the attention's output Q5_K in mixtures of eight experts.
const WIDE_OUTPUT_OF_EIGHT: [&str; 11] = [
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M",
    "IQ4_NL", "IQ4_XS",
];

/// Whose rules a role follows: llama.cpp goes by parts of names, which experts share with what is dense.
fn role_by_name(role: WeightRole) -> WeightRole {
    use WeightRole::*;
    match role {
        AttnQkv | AttnKvB => AttnV,
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
mod tests {
    use super::*;
    use crate::synth::ModelGeometry;

    fn dtype(recipe: &str, geometry: &str, layer: usize, role: WeightRole) -> DType {
        let config = ModelGeometry::named(geometry).unwrap().config(None);
        let name = match role.is_per_layer() {
            true => TensorName::block(layer, role),
            false => TensorName::global(role),
        };
        let shape = config.shape_of(name);
        Recipe::parse(recipe)
            .unwrap()
            .dtype_for(name, &shape, &config)
    }

    #[test]
    fn names_parse_back_in_any_case() {
        for recipe in Recipe::all() {
            assert_eq!(Recipe::parse(&recipe.name().to_lowercase()), Some(recipe));
        }
        for alias in ["q3_k", "q4_k", "q5_k"] {
            let full = format!("{}_M", alias.to_uppercase());
            assert_eq!(Recipe::parse(alias).unwrap().name(), full);
        }
        for no_recipe in ["Q8_1", "Q8_K", "Q6", "Q4", "M", "_M", "", "_PURE"] {
            assert_eq!(Recipe::parse(no_recipe), None, "{no_recipe}");
        }
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

    /// Every kind of file of every format for weights is a recipe, and every rule is some recipe's.
    #[test]
    fn recipes_are_the_formats_kinds_of_files() {
        for dtype in DType::all() {
            let of_dtype = Recipe::all().filter(|recipe| recipe.base() == dtype);
            let is_none = of_dtype.count() == 0;
            assert_eq!(is_none, dtype.is_for_activations(), "{dtype}");
        }
        for (name, mix) in MIXES {
            assert_eq!(
                Recipe::parse(name).map(|recipe| recipe.mix),
                Some(mix),
                "{name}"
            );
        }
        let plain = Recipe::all().filter(|recipe| recipe.mix == Mix::Plain);
        let plain: Vec<&str> = plain.map(Recipe::name).collect();
        assert_eq!(plain, ["F32", "F16", "BF16", "Q8_0"]);
        let numbers = [
            ("F16", Some(1)),
            ("Q8_0", Some(7)),
            ("Q4_K_M", Some(15)),
            ("Q5_K_S", Some(16)),
            ("IQ4_NL", Some(25)),
            ("BF16", Some(32)),
            ("MXFP4", Some(38)),
            ("Q4NX", None),
        ];
        for (name, number) in numbers {
            assert_eq!(Recipe::parse(name).unwrap().file_type(), number, "{name}");
        }
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
