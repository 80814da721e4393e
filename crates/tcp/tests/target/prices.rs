//! Prices of whole models.

use super::{best, document, settings};
use millrace_format::Source;
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_plan::predict::{self, PromptWorkload};
use millrace_plan::{Settings, Target};
use millrace_tcp::lower::{TcpLowerOptions, Weights};
use millrace_tcp::target::TcpTarget;
use millrace_tcp::{Machine, Profile, parallel};
use std::time::Instant;

fn pipeline(n_chips: u64) -> parallel::Plan {
    parallel::Plan {
        split: parallel::Split::Pipeline,
        n_chips,
    }
}

/// Whole models are priced without weights, in seconds; one program an op beside blocks, as in the document.
#[test]
fn models_are_priced() {
    let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
    let (small, large) = ("llama-3.1-8b", "llama-3.1-70b");
    let document = document();
    let start = Instant::now();
    let mut lacks = Vec::new();
    for (name, format, weights) in [
        (small, "bf16", Weights::Bf16),
        (small, "fp8", Weights::Fp8),
        (large, "fp8", Weights::Fp8),
    ] {
        let geometry = ModelGeometry::named(name).unwrap();
        let recipe = Recipe::parse("bf16").unwrap();
        let model = Model::without_weights(geometry, None, recipe, Source::HuggingFace).unwrap();
        let predicted = |settings: &Settings| {
            let planner = TcpTarget.planner(settings).unwrap();
            let mut pricer = planner.pricer().unwrap();
            let work = PromptWorkload::new(512);
            predict::model(&model.graph, &*planner, &mut *pricer, &work).unwrap()
        };
        let ops = predicted(&settings(format));
        let best = predicted(&best(format));
        let blocks = |options| parallel::ParallelModel {
            config: &model.config,
            options,
            machine: &machine,
            profile: &profile,
        };
        let plan = pipeline(if name == large { 2 } else { 1 });
        let plain = blocks(TcpLowerOptions::plain(weights));
        let token = plain.token(plan, 1, 1024).unwrap();
        let prompt = plain.prompt(plan, 512).unwrap().total_ns;
        let ahead = blocks(TcpLowerOptions::plain(weights).read_ahead());
        let ahead = ahead.token(plan, 1, 1024).unwrap().total_ns;
        let peak = token.hbm_bytes / machine.hbm_gb_per_s;
        let ms = |ns: f64| ns * 1e-6;
        let row = format!(
            "| {name} {format} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} % | {:.1} | {:.0} | {:.0} | {:.0} |",
            ms(ops.token.totals.total_ns),
            ms(best.token.totals.total_ns),
            ms(ahead),
            ms(peak),
            100.0 * peak / best.token.totals.total_ns,
            ms(token.total_ns),
            ms(ops.ttft_ns),
            ms(best.ttft_ns),
            ms(prompt),
        );
        println!("{row}");
        if !document.contains(&row) {
            lacks.push(row);
        }
        assert!(ops.token.totals.total_ns > token.total_ns && token.total_ns > ahead);
        assert!(ahead > peak);
    }
    println!("{:?}", start.elapsed());
    assert!(lacks.is_empty(), "docs/tcp.md lacks\n{}", lacks.join("\n"));
}
