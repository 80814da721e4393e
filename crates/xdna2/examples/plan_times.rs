//! Times of a model's programs on the array, launch by launch, and the time to lower them.
//!
//! ```text
//! cargo run --release -p millrace-xdna2 --example plan_times -- decode
//! cargo run --release -p millrace-xdna2 --example plan_times -- 64 llama-3.2-1b --without=one-copy
//! ```
//! Host steps and transfers are not in these times.

use millrace_format::Source;
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_xdna2::lower::{self, Feature, Features, LowerOptions, Mode, Plan};
use millrace_xdna2_machine::{Machine, Profile, timing};
use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut phase, mut name) = ("decode".to_owned(), "llama-3.2-1b".to_owned());
    let mut features = Features::of(Mode::Fast);
    for (i, arg) in std::env::args().skip(1).enumerate() {
        match (arg.strip_prefix("--without="), i) {
            (Some("all"), _) => features = Features::PUBLISHED,
            (Some(feature), _) => features = features.without(feature.parse::<Feature>()?),
            (None, 0) => phase = arg,
            (None, _) => name = arg,
        }
    }
    let geometry = ModelGeometry::named(&name).ok_or("no such model")?;
    let recipe = Recipe::parse("bf16").ok_or("recipe")?;
    let graph = Model::without_weights(geometry, None, recipe, Source::HuggingFace)?.graph;
    let machine = Machine::npu2();
    let options = |n_tokens| LowerOptions {
        features,
        ..LowerOptions::new(Mode::Fast, n_tokens)
    };
    let start = Instant::now();
    let plan = match phase.parse() {
        Ok(n_tokens) => lower::prefill(&graph, &machine, &options(n_tokens))?,
        Err(_) => lower::decode(&graph, &machine, &options(2048))?,
    };
    let lowered = start.elapsed();
    print_times(&plan, &machine)?;
    println!("lowered in {:.0} ms", lowered.as_secs_f64() * 1e3);
    Ok(())
}

fn print_times(plan: &Plan, machine: &Machine) -> Result<(), Box<dyn Error>> {
    let profile = Profile::builtin(Profile::DEFAULT).ok_or("profile")?;
    let mut calls: HashMap<usize, u32> = HashMap::new();
    for call in plan.calls() {
        *calls.entry(call.program).or_default() += 1;
    }
    let start = Instant::now();
    let mut total_ns = 0.0;
    for (i, planned) in plan.programs.iter().enumerate() {
        let timing = timing::predict(
            lower::program_of(planned).ok_or("no tile program")?,
            machine,
            &profile,
        )?;
        let n = calls.get(&i).copied().unwrap_or_default();
        total_ns += f64::from(n) * timing.total_ns;
        let (us, dispatch) = (timing.total_ns / 1e3, timing.dispatch_ns / 1e3);
        println!(
            "{n} x {us:.0} us, {dispatch:.0} of it dispatch: {}",
            timing.program
        );
        for launch in &planned.launches {
            let physical = &timing.launches[launch.physical.clone()];
            let us: f64 = physical.iter().map(|l| l.ns / 1e3).sum();
            let read: f64 = physical.iter().map(|l| l.ddr_read_bytes / 1e3).sum();
            let cores: usize = physical.iter().map(|l| l.cores.len()).sum();
            println!(
                "  {us:8.1} us {:5.1} GB/s {cores:2} cores  {} {} {}: {}",
                read / us,
                launch.name,
                launch.kernel,
                launch.shape,
                launch.tiling
            );
        }
    }
    println!(
        "{} calls, {:.2} ms; predicted in {:.0} ms",
        plan.calls().count(),
        total_ns / 1e6,
        start.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}
