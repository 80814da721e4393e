//! Tables of `docs/tcp.md`.

use millrace_model::ModelConfig;
use millrace_model::synth::ModelGeometry;
use millrace_tcp::lower::reduction::{Reduction, product};
use millrace_tcp::lower::{self, Dims, PassSizes, Target, TcpLowerOptions, Weights};
use millrace_tcp::parallel::{ParallelModel, Plan, PlanError, Split};
use millrace_tcp::program::{Command, Place, View};
use millrace_tcp::timing::{self, TimedProgram};
use millrace_tcp::verify::Rule;
use millrace_tcp::walk::llama_3_1_70b;
use millrace_tcp::{Machine, Profile, Program};

/// The rules in Markdown.
pub fn rules() -> String {
    let mut text = String::from("| rule | states | source |\n|---|---|---|\n");
    for rule in Rule::ALL {
        text += &format!("| {rule} | {} | {} |\n", rule.states(), rule.source());
    }
    text
}

fn models() -> [(&'static str, ModelConfig); 2] {
    let small = ModelGeometry::named("llama-3.1-8b").map(|geometry| geometry.config(None));
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

/// Which models fit on one to eight chips with their layers shared, in Markdown.
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
                let model = ParallelModel {
                    config,
                    options: TcpLowerOptions::plain(weights),
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
        let plain = TcpLowerOptions::plain(weights);
        for (i, options) in [plain, plain.read_ahead()].into_iter().enumerate() {
            let model = ParallelModel {
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

/// Times of products in bf16, in microseconds, in Markdown. Their rows are cut over slices and in parts, and weights
/// are read ahead. The ways are the fewest that fit and twice as many. There is no time where registers or data memory
/// do not hold the product.
pub fn reductions(machine: &Machine, profile: &Profile) -> String {
    let mut text = String::from(
        "| product | K | N | tokens | ways | slice, µs | split, µs | ways | slice, µs | split, µs |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let options = TcpLowerOptions::plain(Weights::Bf16).read_ahead();
    for (name, config) in &models() {
        let (d, f) = (config.d_model as u64, config.d_ff as u64);
        for (op, k, n) in [("queries", d, d), ("gate", d, f), ("down", f, d)] {
            for n_tokens in [1, 512] {
                let cell = |by| {
                    let ns = reduced_ns(machine, profile, options, [n_tokens, k, n], by);
                    ns.map_or_else(|| "–".to_owned(), |ns| format!("{:.1}", ns * 1e-3))
                };
                let ways = |ways: u64| -> [String; 3] {
                    let both = [Reduction::Slice(ways), Reduction::Split(ways)].map(cell);
                    let [slice, split] = both;
                    [ways.to_string(), slice, split]
                };
                let all = [2, 4, 8, 16, 32].map(ways);
                let fits = |row: &&[String; 3]| row[1] != "–" || row[2] != "–";
                let cells: Vec<String> =
                    all.iter().filter(fits).take(2).flatten().cloned().collect();
                let cells = cells.join(" | ");
                text += &format!("| {name} {op} | {k} | {n} | {n_tokens} | {cells} |\n");
            }
        }
    }
    text
}

/// Nanoseconds of a product; none where it does not fit.
fn reduced_ns(
    machine: &Machine,
    profile: &Profile,
    options: TcpLowerOptions,
    shape: [u64; 3],
    by: Reduction,
) -> Option<f64> {
    let program = product(machine, options, shape, by).ok()?.program;
    millrace_tcp::verify(&program, machine).ok()?;
    let timed = TimedProgram::new(&program, machine, profile).ok()?;
    Some(timing::predict(&timed, machine, profile).total_ns)
}

/// Cost of a layer's reshapes beyond its arithmetic, in Markdown: moves within data memory, by purpose, and the time of
/// the layer alone. A reshape that a layer lacks has no command.
///
/// # Errors
/// [`PlanError`], where a machine changed by hand does not take a plan.
pub fn moves(machine: &Machine, profile: &Profile) -> Result<String, PlanError> {
    let mut text = String::from(
        "| layer, fp8 | tokens | results to where rows rest | heads to the slices of their keys | layer, alone |\n|---|---:|---:|---:|---:|\n",
    );
    for (name, config) in &models() {
        let dims = Dims::of(config, 1)?;
        for n_tokens in [1, 512] {
            let target = Target {
                machine,
                dims: &dims,
                options: TcpLowerOptions::plain(Weights::Fp8),
                call: PassSizes {
                    batch: 1,
                    n_tokens,
                    n_keys: 1024,
                    n_cache: 1024,
                },
            };
            let mut sums = [(0, 0.0); 2];
            let mut total_ns = 0.0;
            for lowered in [lower::attention(target)?, lower::feed_forward(target)?] {
                let program = lowered.program;
                let timed = TimedProgram::new(&program, machine, profile);
                let timed = timed.map_err(|broken| PlanError::Broken {
                    program: program.name.clone(),
                    message: broken.message,
                })?;
                total_ns += timing::predict(&timed, machine, profile).total_ns;
                for (at, command) in program.commands.iter().enumerate() {
                    if !is_within(&program, command) {
                        continue;
                    }
                    let is_query = timed.command_name(at).starts_with("queries");
                    let (count, ns) = &mut sums[usize::from(is_query)];
                    *count += 1;
                    *ns += timed.command_cost(at).alone_ns(machine, profile);
                }
            }
            let [rest, queries] = sums.map(|(n, ns)| format!("{n}, {:.1} µs", ns * 1e-3));
            let total = total_ns * 1e-3;
            text += &format!("| {name} | {n_tokens} | {rest} | {queries} | {total:.0} µs |\n");
        }
    }
    Ok(text)
}

/// Whether a command moves from data memory to data memory.
fn is_within(program: &Program, command: &Command) -> bool {
    let in_dm = |view: &View| matches!(program.tensors[view.tensor].place, Place::Dm { .. });
    matches!(command, Command::Dma(dma) if in_dm(&dma.from) && in_dm(&dma.to))
}

/// Time to write a pass's scores to HBM, in f32, and to read them for each of softmax's three passes, at the memory's
/// attained rate, in Markdown.
///
/// # Errors
/// [`PlanError`], where a machine changed by hand does not take a plan.
pub fn scores(machine: &Machine, profile: &Profile) -> Result<String, PlanError> {
    let mut text = String::from(
        "| model, fp8 | pass | scores of a layer | all layers, written once and read three times | pass |\n|---|---|---:|---:|---:|\n",
    );
    let rate = machine.hbm_gb_per_s * profile.hbm_efficiency;
    for ((name, config), n_chips) in models().iter().zip([1, 2]) {
        let model = ParallelModel {
            config,
            options: TcpLowerOptions::plain(Weights::Fp8),
            machine,
            profile,
        };
        let plan = Plan {
            split: Split::Pipeline,
            n_chips,
        };
        let token = model.token(plan, 1, 1024)?.total_ns;
        let prompt = model.prompt(plan, 512)?.total_ns;
        for (pass, n_tokens, n_keys, ns) in [
            ("token", 1, 1024, token),
            ("prompt of 512", 512, 512, prompt),
        ] {
            let bytes = (config.n_heads * n_tokens * n_keys * 4) as f64;
            let moved = 4.0 * bytes * config.n_layers as f64 / rate;
            text += &format!(
                "| {name} | {pass} | {:.2} MB | {:.2} ms | {:.1} ms |\n",
                bytes * 1e-6,
                moved * 1e-6,
                ns * 1e-6
            );
        }
    }
    Ok(text)
}
