//! Choices of recipes.

use super::*;
use crate::synth::ModelGeometry;

fn dtype(recipe: &str, geometry: &str, layer: usize, role: WeightRole) -> DType {
    let config = ModelGeometry::named(geometry).unwrap().config(None);
    let name = match role.is_per_layer() {
        true => TensorName::block(layer, role),
        false => TensorName::global(role),
    };
    let shape = config.shape_of(name);
    let recipe = Recipe::parse(recipe).unwrap();
    recipe.dtype_for(name, &shape, &config)
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
    assert_eq!(Recipe::parse("mxfp4_moe").unwrap().name(), "MXFP4");
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
        ("IQ4_XS", Some(30)),
        ("Q2_K_S", Some(21)),
        ("IQ2_S", Some(28)),
        ("Q1_0", Some(40)),
        ("BF16", Some(32)),
        ("MXFP4", Some(38)),
        ("Q4NX", None),
    ];
    for (name, number) in numbers {
        assert_eq!(Recipe::parse(name).unwrap().file_type(), number, "{name}");
    }
}

/// The choices of `llama-quantize` for Llama 3.2 1B: 16 layers, tied head, four query heads a value head.
#[test]
fn choices_for_llama_1b() {
    let mixed: Vec<usize> = (0..16)
        .filter(|&layer| dtype("Q4_K_M", "llama-3.2-1b", layer, WeightRole::AttnV) == DType::Q6K)
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
        ("Q2_K_S", 1, WeightRole::FfnDown, DType::Q4K),
        ("Q2_K_S", 2, WeightRole::FfnDown, DType::Q2K),
        ("IQ4_XS", 0, WeightRole::AttnV, DType::Q5K),
        ("IQ4_XS", 1, WeightRole::FfnDown, DType::Q5K),
        ("IQ4_XS", 2, WeightRole::FfnDown, DType::Iq4Xs),
        ("IQ3_XXS", 0, WeightRole::TokenEmbedding, DType::Q5K),
        ("IQ3_XXS", 2, WeightRole::FfnDown, DType::Q3K),
        ("IQ3_XXS", 0, WeightRole::AttnOutput, DType::Iq3S),
        ("IQ3_XXS", 0, WeightRole::AttnK, DType::Iq3Xxs),
        ("IQ3_XS", 0, WeightRole::FfnUp, DType::Iq3S),
        ("IQ3_XS", 2, WeightRole::FfnUp, DType::Iq3Xxs),
        ("IQ3_XS", 0, WeightRole::AttnQ, DType::Iq3Xxs),
        ("IQ3_M", 2, WeightRole::AttnV, DType::Q4K),
        ("IQ2_XS", 0, WeightRole::AttnV, DType::Q4K),
        ("IQ2_XS", 0, WeightRole::FfnDown, DType::Q2K),
        ("IQ2_S", 2, WeightRole::FfnDown, DType::Iq2Xs),
        ("IQ2_M", 0, WeightRole::FfnDown, DType::Iq3S),
        ("IQ1_M", 2, WeightRole::AttnOutput, DType::Iq2Xxs),
        ("TQ2_0", 0, WeightRole::TokenEmbedding, DType::Q6K),
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
