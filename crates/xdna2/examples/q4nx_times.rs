//! Predictions of mode int4, from lowered programs, compared with FastFlowLM's published figures of the same models.
//! The tables of `docs/gemma3.md` are its output.
//!
//! ```text
//! cargo run --release -p millrace-xdna2 --example q4nx_times
//! ```

use millrace_format::Source;
use millrace_model::Model;
use millrace_model::recipe::Recipe;
use millrace_model::synth::ModelGeometry;
use millrace_plan::predict::{PromptWorkload, with_settings};
use millrace_plan::{FactSource, Settings};
use millrace_xdna2::target::Xdna2Target;
use std::error::Error;

/// Weights expanded within every product.
const FUSED: &str = "int4 without faster-expansion";

/// Prompt tokens and cached tokens.
const WORK: [(u64, u64); 2] = [(1024, 1024), (2048, 2048)];

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| profile | mode | model | prompt | first token, ms | prompt, tokens/s | tokens/s | of a token: work, loads, calls and host, ms | memory, MB |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---|---:|");
    for profile in ["air-krackan-2026", "air-strix-2026"] {
        for mode in ["int4", FUSED, "fastflowlm", "fast"] {
            for name in ["gemma-3-1b", "gemma-3-4b", "llama-3.2-1b"] {
                for work in WORK {
                    row(profile, mode, name, work)?;
                }
            }
        }
    }
    Ok(())
}

fn row(
    profile: &str,
    mode: &str,
    name: &str,
    (prompt_tokens, context): (u64, u64),
) -> Result<(), Box<dyn Error>> {
    let geometry = ModelGeometry::named(name).ok_or("no such model")?;
    let recipe = Recipe::parse("bf16").ok_or("recipe")?;
    let graph = Model::without_weights(geometry, None, recipe, Source::HuggingFace)?.graph;
    let settings = Settings {
        profile: Some(FactSource::Named(profile.to_owned())),
        mode: Some(mode.split(' ').next().unwrap_or(mode).to_owned()),
        without: match mode {
            FUSED => vec!["faster-expansion".to_owned()],
            _ => Vec::new(),
        },
        ..Settings::default()
    };
    let work = PromptWorkload {
        prompt_tokens,
        context,
    };
    let p = with_settings(&graph, &Xdna2Target, &settings, &work)?;
    let ms = |ns: f64| ns / 1e6;
    let (mut work_ns, mut load_ns) = (0.0, 0.0);
    for program in &p.token.programs {
        let launches: f64 = program.launches.iter().map(|l| l.ns).sum();
        work_ns += program.calls as f64 * launches;
        load_ns += program.calls as f64 * program.load_ns;
    }
    let token_ns = 1e9 / p.tokens_per_s;
    println!(
        "| {profile} | {mode} | {name} | {prompt_tokens} | {:.0} | {:.0} | {:.1} | {:.1}, {:.1}, {:.1} | {:.0} |",
        ms(p.ttft_ns),
        p.prompt_tokens_per_s,
        p.tokens_per_s,
        ms(work_ns),
        ms(load_ns),
        ms(token_ns - work_ns - load_ns),
        p.memory.total_bytes as f64 / 1e6,
    );
    Ok(())
}
