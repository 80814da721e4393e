//! Losses of the fast levels: their logits and perplexity against the scalar level's, on the same
//! file, stay within named budgets.
//!
//! The scalar level decodes weights to f32 and multiplies in f32. Faster levels round activations to
//! eight bits (a scale for 32 or 256 of them) or to bf16, depending on the weights; the budgets bound
//! the loss. The loss of the formats themselves is covered by `converted.rs`. `tools/peers/quality.py`
//! compares the same losses with llama.cpp's.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_format::Checkpoint;
use millrace_model::convert::{Conversion, ConversionTarget, OutputContainer, Recipe};
use millrace_runtime::sampling::log_softmax;
use millrace_runtime::{
    BatchItem, CpuEngine, Engine, EngineOptions, KvType, Level, LoadedModel, LogitsFor,
};
use millrace_testkit::compare::Agreement;
use millrace_testkit::golden::GoldenMatrix;
use millrace_testkit::sample;
use millrace_text::EncodeOptions;

use crate::converted::random;

/// Allowed loss of a faster level with one format.
struct Budget {
    recipe: &'static str,
    /// Normalised mean square error of the logits of models with random weights. This is the hardest
    /// case, since errors of layers add up and the models were not trained to tolerate them.
    random_nmse: f64,
    /// The same for the demo model on a text of its kind.
    demo_nmse: f64,
    /// Change of the demo model's mean negative log-likelihood, in nats a token, either way. Its
    /// exponential is the change of the perplexity.
    demo_nats: f64,
}

const fn budget(recipe: &'static str, random_nmse: f64, demo_nmse: f64, demo_nats: f64) -> Budget {
    Budget {
        recipe,
        random_nmse,
        demo_nmse,
        demo_nats,
    }
}

/// About twice the measured loss on the worst of the levels. Formats whose activations share a
/// scale among 256 lose twice as much as those with a scale among 32.
const BUDGETS: [Budget; 12] = [
    budget("F32", 1e-11, 1e-11, 1e-6),
    budget("F16", 1e-11, 1e-11, 1e-6),
    budget("BF16", 8e-5, 2e-5, 1e-3),
    budget("Q8_0", 1e-3, 2.5e-4, 2.5e-3),
    budget("Q6_K", 2e-3, 6e-4, 3.5e-3),
    budget("Q5_K", 2e-3, 6e-4, 3.5e-3),
    budget("Q5_0", 1e-3, 2.5e-4, 2.5e-3),
    budget("Q4_K", 2e-3, 6e-4, 3.5e-3),
    budget("Q4_1", 1e-3, 2.5e-4, 2.5e-3),
    budget("Q4_0", 1e-3, 2.5e-4, 2.5e-3),
    budget("IQ4_NL", 1e-3, 2.5e-4, 2.5e-3),
    budget("Q4NX", 1e-3, 2.5e-4, 2.5e-3),
];

/// Geometries of the models with random weights.
const MODELS: [&str; 3] = ["llama-tiny", "qwen-tiny", "gemma-tiny"];

const STORY: &str = "Once upon a time, there was a little girl named Wendy who lived in a cottage near \
the woods. Wendy was helpful and good, and she loved to play outside.\n\nOne night Wendy saw a star \
fall from the sky. It came down somewhere near the farm. Wendy put on her shoes and ran to the farm. \
There, in the grass, lay a little star. It was no bigger than a nut, and its light was very weak. \
\"Are you hurt?\" asked Wendy. \"I slipped off a cloud,\" said the star. \"I want to go home. If I am \
not back by morning, my light will go out.\"";

fn levels() -> impl Iterator<Item = Level> {
    Level::supported()
        .into_iter()
        .filter(|level| *level != Level::Scalar)
}

fn logits(model: &Arc<LoadedModel>, level: Level, tokens: &[u32]) -> GoldenMatrix {
    let options = EngineOptions {
        level: Some(level),
        kv_type: KvType::F32,
        n_threads: Some(2),
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(Arc::clone(model), options).unwrap();
    let seq = engine.create().unwrap();
    let item = BatchItem::new(seq, tokens, LogitsFor::All);
    GoldenMatrix {
        width: model.model().config.vocab_size,
        data: engine.compute(&[item]).unwrap().logits(0).to_vec(),
    }
}

/// Converts `from` and opens the result.
fn converted(from: &Path, dir: &Path, recipe: &str) -> Arc<LoadedModel> {
    let is_q4nx = recipe == "Q4NX";
    let (container, out) = if is_q4nx {
        (OutputContainer::Q4nx, dir.join("bundle"))
    } else {
        (OutputContainer::Gguf, dir.join(format!("{recipe}.gguf")))
    };
    let recipe = Recipe::parse(recipe).unwrap();
    let checkpoint = Checkpoint::open(from).unwrap();
    let plan = Conversion::new(&checkpoint, ConversionTarget { container, recipe }).unwrap();
    plan.write(&out, 2, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    Arc::new(LoadedModel::open(&out).unwrap())
}

/// Mean negative log-likelihood of each token after those before it.
fn nats(logits: &GoldenMatrix, tokens: &[u32]) -> f64 {
    let each = tokens[1..].iter().enumerate();
    let sum: f64 = each
        .map(|(i, next)| -log_softmax(logits.row(i))(*next))
        .sum();
    sum / (tokens.len() - 1) as f64
}

/// Fails with all that exceed their budgets, so that one run tells the whole story.
fn assert_none(exceeded: &[String]) {
    assert!(exceeded.is_empty(), "over budget:\n{}", exceeded.join("\n"));
}

#[test]
fn the_demo_models_perplexity_and_logits_stay_within_their_budgets() {
    let demo: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../models/demo/demo.gguf"]
        .iter()
        .collect();
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let model = LoadedModel::open(&demo).unwrap();
    let tokens = model.tokenizer().unwrap().encode(STORY, options);
    assert!(tokens.len() > 100, "{} tokens", tokens.len());
    let dir = tempfile::tempdir().unwrap();
    let mut exceeded = Vec::new();
    for budget in &BUDGETS {
        let model = converted(&demo, dir.path(), budget.recipe);
        let scalar = logits(&model, Level::Scalar, &tokens);
        let expected = nats(&scalar, &tokens);
        for level in levels() {
            let found = logits(&model, level, &tokens);
            let nmse = Agreement::of(&found, &scalar).nmse;
            let change = nats(&found, &tokens) - expected;
            let line = format!(
                "{} at {level}: NMSE {nmse:.2e}, {change:+.2e} nats on {expected:.4}",
                budget.recipe
            );
            println!("{line}");
            if nmse > budget.demo_nmse || change.abs() > budget.demo_nats {
                exceeded.push(line);
            }
        }
    }
    assert_none(&exceeded);
}

#[test]
#[ignore = "takes long; .ci/full runs it"]
fn random_models_logits_stay_within_their_budgets() {
    let dir = tempfile::tempdir().unwrap();
    let mut exceeded = Vec::new();
    for (i, name) in MODELS.into_iter().enumerate() {
        let float = random(name, dir.path());
        let tokens: Vec<u32> = (0..48).map(|i| i * 5 % 200).collect();
        // Each format on one of the models, unless all pairs are requested.
        for budget in sample::part(BUDGETS.iter(), MODELS.len(), i) {
            let out = tempfile::tempdir().unwrap();
            let model = converted(&float, out.path(), budget.recipe);
            let scalar = logits(&model, Level::Scalar, &tokens);
            for level in levels() {
                let nmse = Agreement::of(&logits(&model, level, &tokens), &scalar).nmse;
                let line = format!("{name} in {} at {level}: NMSE {nmse:.2e}", budget.recipe);
                println!("{line}");
                if nmse > budget.random_nmse {
                    exceeded.push(line);
                }
            }
        }
    }
    assert_none(&exceeded);
}
