//! Models of published geometries, two layers each, in every format. Compares the logits of every level with the scalar level's, for
//! prompts of one to 600 tokens.
//!
//! Tiny models are narrower than the chunks in which kernels multiply, so faults of cutting do not show there. `cargo test` runs a
//! sample (a format for each way of multiplying, one layer, few tokens); `MILLRACE_TEST_ALL=1` runs every geometry, format, level and prompt, best with `--release`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use millrace_format::{TensorInfo, TensorType};
use millrace_kernels::matmul::PanelLayout;
use millrace_kernels::table;
use millrace_model::convert::Recipe;
use millrace_model::synth::{self, ModelGeometry, SynthOptions};
use millrace_quant::DType;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, Level, LoadedModel, LogitsFor,
};
use millrace_testkit::compare::Agreement;
use millrace_testkit::golden::GoldenMatrix;
use millrace_testkit::sample;

/// Small, so that files are: the head is as wide as its model all the same.
const VOCAB_SIZE: usize = 288;

const GEOMETRIES: [&str; 4] = ["qwen3-0.6b", "llama-3.2-1b", "gemma-3-4b", "llama-3.1-8b"];

/// Lengths of prompts: few tokens that are multiplied directly, sizes around register tiles, several passes.
const PROMPTS: [usize; 10] = [1, 2, 3, 5, 8, 9, 17, 33, 65, 600];

/// How much more than the model's budget one position may have.
const POSITION: f64 = 4.0;

/// Allowed loss of a level with weights of a format: normalised mean square error of the logits. `quality.rs` has the same figures, by
/// format, on deeper models.
fn budget(dtype: DType, level: Level) -> f64 {
    match table::pick(dtype, level, 1, false).layout {
        PanelLayout::F32 | PanelLayout::F32Columns | PanelLayout::F32Eights => 1e-11,
        PanelLayout::Bf16Columns | PanelLayout::Bf16Tiles | PanelLayout::F16Tiles => 8e-5,
        PanelLayout::Block32
        | PanelLayout::Block32Min
        | PanelLayout::Block32Wide
        | PanelLayout::Block16 => 1e-3,
        PanelLayout::Super16
        | PanelLayout::Super16Min
        | PanelLayout::Super32Min
        | PanelLayout::Planes
        | PanelLayout::Planes16Min
        | PanelLayout::Planes32Min => 2e-3,
    }
}

/// A model in a format and the prompts that are compared.
struct Case<'a> {
    geometry: &'a str,
    recipe: Recipe,
    n_layers: usize,
    prompts: &'a [usize],
}

/// Writes a case's model.
fn write(case: &Case<'_>, dir: &Path) -> Arc<LoadedModel> {
    let name = if case.recipe.is_q4nx() {
        "bundle"
    } else {
        "model.gguf"
    };
    let (path, geometry) = (dir.join(name), ModelGeometry::named(case.geometry).unwrap());
    let options = SynthOptions {
        recipe: case.recipe,
        vocab: None,
        vision: false,
        n_layers: Some(case.n_layers),
        seed: 1,
        n_threads: Some(2),
    };
    let geometry = geometry.with_vocab_size(VOCAB_SIZE);
    synth::write(geometry, &path, &options, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
    Arc::new(LoadedModel::open(&path).unwrap_or_else(|error| panic!("{error}")))
}

fn engine(model: &Arc<LoadedModel>, level: Level) -> CpuEngine {
    let options = EngineOptions {
        level: Some(level),
        kv_type: KvType::F32,
        n_ctx: Some(PROMPTS[PROMPTS.len() - 1]),
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    CpuEngine::new(Arc::clone(model), options).unwrap()
}

fn logits(engine: &mut CpuEngine, tokens: &[u32]) -> GoldenMatrix {
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    let data = engine.compute(&[item]).unwrap().logits(0).to_vec();
    engine.release(seq).unwrap();
    GoldenMatrix {
        width: VOCAB_SIZE,
        data,
    }
}

/// The first `n` rows.
fn first(rows: &GoldenMatrix, n: usize) -> GoldenMatrix {
    GoldenMatrix {
        width: rows.width,
        data: rows.data[..n * rows.width].to_vec(),
    }
}

/// Compares all levels on one model; losses over their budgets are added to `exceeded`.
fn check(case: &Case<'_>, exceeded: &mut Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let model = write(case, dir.path());
    let most = case.prompts.iter().copied().max().unwrap();
    let tokens: Vec<u32> = (0..most as u32).map(|i| i * 37 % 251).collect();
    // A token's logits do not depend on later tokens: one pass is the reference for every prompt.
    let scalar = logits(&mut engine(&model, Level::Scalar), &tokens);
    assert!(scalar.data.iter().all(|logit| logit.is_finite()));
    let of_tensor = |tensor: &TensorInfo| match tensor.tensor_type {
        TensorType::Weights(dtype) => Some(dtype),
        _ => None,
    };
    let dtypes: Vec<DType> = model
        .checkpoint()
        .tensors()
        .iter()
        .filter_map(of_tensor)
        .collect();
    for level in Level::supported()
        .into_iter()
        .filter(|level| *level != Level::Scalar)
    {
        let budget = dtypes
            .iter()
            .map(|dtype| budget(*dtype, level))
            .fold(0.0, f64::max);
        let mut engine = engine(&model, level);
        for &n in case.prompts {
            let found = logits(&mut engine, &tokens[..n]);
            let nmse = Agreement::of(&found, &first(&scalar, n)).nmse;
            let of_position = |i: usize| {
                let row = |rows: &GoldenMatrix| GoldenMatrix {
                    width: VOCAB_SIZE,
                    data: rows.row(i).to_vec(),
                };
                Agreement::of(&row(&found), &row(&scalar)).nmse
            };
            let worst = (0..n).map(of_position).fold(0.0, f64::max);
            let line = format!(
                "{} in {} at {level}, {n} tokens: NMSE {nmse:.2e}, worst position {worst:.2e}, budget {budget:.0e}",
                case.geometry, case.recipe
            );
            println!("{line}");
            if !(nmse <= budget && worst <= POSITION * budget) {
                exceeded.push(line);
            }
        }
    }
}

/// Recipes that differ in the way of multiplying at some level, the first of each. Formats that share it share tiles, cuts and sums;
/// the kernels' own tests run every format at these widths.
fn ways() -> Vec<Recipe> {
    let mut seen = HashSet::new();
    let way = |recipe: &Recipe| -> Vec<PanelLayout> {
        let levels = Level::supported().into_iter();
        let of = |level| table::pick(recipe.base(), level, 1, false).layout;
        levels.map(of).collect()
    };
    Recipe::all()
        .filter(|recipe| seen.insert(way(recipe)))
        .collect()
}

/// Every way of multiplying on the smallest geometry, and every geometry in one format.
fn few() -> Vec<Case<'static>> {
    let case = |geometry, recipe, prompts| Case {
        geometry,
        recipe,
        n_layers: 1,
        prompts,
    };
    let formats = ways()
        .into_iter()
        .map(|recipe| case("qwen3-0.6b", recipe, &[1, 2, 9][..]));
    let geometries = [
        ("qwen3-0.6b", "Q8_0", &PROMPTS[..9]),
        ("llama-3.2-1b", "Q4_K_M", &[2, 5]),
        ("gemma-3-4b", "Q4_0", &[3]),
        ("llama-3.1-8b", "Q4_0", &[2]),
    ];
    let of_geometry =
        |(geometry, recipe, prompts)| case(geometry, Recipe::parse(recipe).unwrap(), prompts);
    formats.chain(geometries.map(of_geometry)).collect()
}

fn all() -> Vec<Case<'static>> {
    let case = |geometry, recipe| Case {
        geometry,
        recipe,
        n_layers: 2,
        prompts: &PROMPTS,
    };
    let formats_of = |geometry| Recipe::all().map(move |recipe| case(geometry, recipe));
    GEOMETRIES.into_iter().flat_map(formats_of).collect()
}

#[test]
fn every_level_computes_the_scalar_levels_logits_at_published_geometries() {
    let cases = if sample::is_whole() { all() } else { few() };
    let mut exceeded = Vec::new();
    for case in &cases {
        check(case, &mut exceeded);
    }
    println!(
        "{} models; MILLRACE_TEST_ALL=1 runs all {}",
        cases.len(),
        all().len()
    );
    assert!(exceeded.is_empty(), "over budget:\n{}", exceeded.join("\n"));
}
