//! Tables of `docs/tcp.md`, as the crate has them.

use crate::fidelity::llama_3_1_70b;
use crate::lower::{Options, Weights};
use crate::parallel::{Model, Plan, PlanError, Split};
use crate::verify::Rule;
use crate::{Machine, Profile};
use millrace_model::ModelConfig;
use millrace_model::synth::Geometry;

/// The rules in Markdown.
pub fn rules() -> String {
    let mut text = String::from("| rule | states | source |\n|---|---|---|\n");
    for rule in Rule::ALL {
        text += &format!("| {rule} | {} | {} |\n", rule.states(), rule.source());
    }
    text
}

fn models() -> [(&'static str, ModelConfig); 2] {
    let small = Geometry::named("llama-3.1-8b").map(|geometry| geometry.config(None));
    [
        ("8B", small.expect("the geometry is in the table")),
        ("70B", llama_3_1_70b()),
    ]
}

const FORMATS: [(&str, Weights); 3] = [
    ("bf16", Weights::Bf16),
    ("fp8", Weights::Fp8),
    ("int4", Weights::Int4),
];

/// What fits on one to eight chips, layers shared, in Markdown.
///
/// # Errors
/// [`PlanError`], where a machine changed by hand does not take a plan.
pub fn fits(machine: &Machine, profile: &Profile) -> Result<String, PlanError> {
    let mut text =
        String::from("| model | weights | 1 chip | 2 | 4 | 8 |\n|---|---|---|---|---|---|\n");
    for (name, config) in &models() {
        for (format, weights) in FORMATS {
            text += &format!("| {name} | {format} |");
            for n_chips in [1, 2, 4, 8] {
                let model = Model {
                    config,
                    options: Options::plain(weights),
                    machine,
                    profile,
                };
                let split = Split::Tensor;
                let fit = model.fit(Plan { split, n_chips })?;
                let size = fit.weight_bytes as f64 * 1e-9;
                text += &match fit.n_tokens {
                    Some(n) => format!(" {size:.1} GB, {}k |", n / 1000),
                    None => format!(" no ({size:.1} GB) |"),
                };
            }
            text += "\n";
        }
    }
    Ok(text)
}

/// Times of a token and of a prompt by plan, plain and with weights read ahead, in Markdown.
///
/// # Errors
/// [`PlanError`], where a machine changed by hand does not take a plan.
pub fn times(machine: &Machine, profile: &Profile) -> Result<String, PlanError> {
    let mut text = String::from(
        "| model | plan | token, ms | read ahead | prompt, ms | read ahead | token at the rate of memory, ms |\n|---|---|---:|---:|---:|---:|---:|\n",
    );
    let [small, large] = models();
    let plans = [
        (&small, Weights::Bf16, Split::Pipeline, 1),
        (&small, Weights::Fp8, Split::Pipeline, 1),
        (&large, Weights::Fp8, Split::Pipeline, 2),
        (&large, Weights::Fp8, Split::Pipeline, 4),
        (&large, Weights::Fp8, Split::Tensor, 2),
        (&large, Weights::Fp8, Split::Tensor, 4),
        (&large, Weights::Fp8, Split::Tensor, 8),
        (&large, Weights::Bf16, Split::Tensor, 4),
    ];
    for ((name, config), weights, split, n_chips) in plans {
        let plan = Plan { split, n_chips };
        let mut cells = [0.0; 4];
        let mut roof = 0.0;
        let plain = Options::plain(weights);
        for (i, options) in [plain, plain.read_ahead()].into_iter().enumerate() {
            let model = Model {
                config,
                options,
                machine,
                profile,
            };
            let token = model.token(plan, 1, 1024)?;
            cells[i] = token.total_ns * 1e-6;
            cells[2 + i] = model.prompt(plan, 512)?.total_ns * 1e-6;
            let rate = machine.hbm_gb_per_s * profile.hbm_efficiency;
            roof = token.hbm_bytes / rate * 1e-6;
        }
        let format = FORMATS
            .iter()
            .find(|(_, w)| *w == weights)
            .map_or("", |f| f.0);
        let split = match (split, n_chips) {
            (_, 1) => "one chip".to_owned(),
            (Split::Pipeline, n) => format!("pipeline of {n}"),
            (Split::Tensor, n) => format!("tensor over {n}"),
        };
        let [token, ahead, prompt, prompt_ahead] = cells;
        text += &format!(
            "| {name} {format} | {split} | {token:.1} | {ahead:.1} | {prompt:.0} | {prompt_ahead:.0} | {roof:.1} |\n"
        );
    }
    Ok(text)
}
