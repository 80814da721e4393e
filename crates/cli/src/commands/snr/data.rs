//! Weights to quantise, and the activations they are multiplied by.

use super::SnrArgs;
use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use crate::progress::ProgressDisplay;
use millrace_graph::{MatrixProduct, Node, Weight, WeightId, WeightSource};
use millrace_kernels::{Cpu, CpuOptions};
use millrace_quant::decode_rows;
use millrace_runtime::LoadedModel;
use millrace_runtime::sampling::Rng;
use millrace_text::EncodeOptions;
use millrace_verify::reference::visit_products;
use std::collections::HashMap;

/// Rows of a matrix, and activations.
pub(super) struct SnrSample {
    pub(super) name: String,
    /// Elements of a row.
    pub(super) k: usize,
    /// `[n_rows, k]`.
    pub(super) weights: Vec<f32>,
    /// `[n_tokens, k]`.
    pub(super) x: Vec<f32>,
}

/// Number of rows that tiled formats take together.
const TILE_ROWS: usize = 32;

/// Maximum tokens taken from the text.
const MOST_TOKENS: usize = 64;

const TEXT: &str = "Once upon a time, there was a little fox who lived near the old mill. Every morning the water \
                    turned the wheel, and the miller ground the corn of the whole village. What did the fox see?";

impl SnrSample {
    /// `x · wᵀ`, `[n_tokens, n_rows]`.
    pub(super) fn outputs(&self, x: &[f32], weights: &[f32]) -> Vec<f32> {
        let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
        let tokens = x.chunks_exact(self.k);
        tokens
            .flat_map(|x| weights.chunks_exact(self.k).map(move |w| dot(x, w)))
            .collect()
    }
}

/// Normally distributed numbers (Box and Muller), with 16 rows of them as activations.
pub(super) fn gaussian(n: usize, k: usize) -> SnrSample {
    let mut rng = Rng::new(1);
    let mut normal = |n: usize| -> Vec<f32> {
        let mut one = || {
            let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
            (radius * (std::f64::consts::TAU * rng.unit()).cos()) as f32
        };
        (0..n).map(|_| one()).collect()
    };
    SnrSample {
        name: "normal".to_owned(),
        k,
        weights: normal(n * k),
        x: normal(16 * k),
    }
}

/// The requested matrices, or those of three blocks, with their activations on a text.
pub(super) fn of_model(
    model: &LoadedModel,
    args: &SnrArgs,
    ui: Ui,
) -> CommandResult<Vec<SnrSample>> {
    let graph = &model.model().graph;
    let name_of = |node: &Node| {
        let product = node.op.product()?.plain()?;
        Some(matrix_name(&graph.weights[product.weight.0]))
    };
    let last = model.model().config.n_layers.saturating_sub(1);
    let wanted: Vec<String> = match args.tensor.as_slice() {
        [] => {
            let blocks = [0, last / 2, last];
            let nodes = graph
                .nodes
                .iter()
                .filter(|n| n.layer.is_some_and(|l| blocks.contains(&l)));
            nodes.filter_map(name_of).collect()
        }
        names => names.to_vec(),
    };
    for name in &wanted {
        if !graph
            .nodes
            .iter()
            .any(|node| name_of(node).as_deref() == Some(name))
        {
            let known: Vec<String> = graph.nodes.iter().filter_map(name_of).take(8).collect();
            return Err(CommandFailure::not_found(format!(
                "{} has no matrix `{name}`",
                model.name()
            ))
            .hint(format!("its matrices are {}, …", known.join(", "))));
        }
    }
    let mut activations = activations(model, args, &wanted, ui)?;
    let mut samples = Vec::new();
    for name in wanted {
        let Some(x) = activations.remove(&name) else {
            continue;
        };
        let Some(id) = graph.weights.iter().position(|w| matrix_name(w) == name) else {
            continue;
        };
        samples.push(SnrSample {
            weights: rows(model, WeightId(id), args.rows as usize)?,
            name,
            k: graph.weights[id].k,
            x,
        });
    }
    Ok(samples)
}

/// Name of a matrix. Where matrices share a tensor, it includes the row range.
fn matrix_name(weight: &Weight) -> String {
    match weight.source {
        WeightSource::Rows { first, .. } => {
            format!("{}[{first}..{}]", weight.name, first + weight.n)
        }
        _ => weight.name.clone(),
    }
}

/// Runs of rows, spread over a matrix.
fn rows(model: &LoadedModel, weight: WeightId, most: usize) -> CommandResult<Vec<f32>> {
    let spec = &model.model().graph.weights[weight.0];
    let (n, k, dtype, name) = (spec.n, spec.k, spec.dtype, &spec.name);
    let bytes = model.weight_bytes(weight);
    let run = TILE_ROWS.min(n);
    let n_runs = (most.div_ceil(run)).clamp(1, (n / run).max(1));
    let mut all = Vec::new();
    for i in 0..n_runs {
        let first = (n / run * i / n_runs) * run;
        let mut part = vec![0.0; run * k];
        decode_rows(dtype, bytes, n, k, first..first + run, &mut part)
            .map_err(|error| CommandFailure::bad_input(format!("{name}: {error}")))?;
        all.extend(part);
    }
    Ok(all)
}

/// Activations that the named matrices are multiplied by.
fn activations(
    model: &LoadedModel,
    args: &SnrArgs,
    names: &[String],
    ui: Ui,
) -> CommandResult<HashMap<String, Vec<f32>>> {
    let own = args
        .text
        .as_deref()
        .map(crate::prompt::read_file)
        .transpose()?;
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let text = own.as_deref().unwrap_or(TEXT);
    let mut tokens = model.tokenizer()?.encode(text, options);
    tokens.truncate(MOST_TOKENS);
    let cpu = Cpu::new(CpuOptions {
        n_threads: args.cpu.threads,
        level: args.cpu.cpu_level,
    })
    .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let _progress = ProgressDisplay::spinner(ui, "running the model for its activations");
    let graph = &model.model().graph;
    let mut found = HashMap::new();
    visit_products(&cpu, model, &tokens, &mut |node, inputs| {
        if let Some(product) = node.op.product().and_then(MatrixProduct::plain) {
            let name = matrix_name(&graph.weights[product.weight.0]);
            if names.contains(&name) {
                found.insert(name, inputs[0].to_vec());
            }
        }
    })?;
    Ok(found)
}
