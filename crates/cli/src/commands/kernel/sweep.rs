//! All legal tilings of a kernel, ranked by predicted time: an autotuner by model.

use super::Args;
use crate::exit::{Failure, Outcome};
use crate::output::{Align, Out, Table, Ui};
use crate::progress::Progress;
use millrace_xdna2::mapping::{Mapping, Shape, Tiling};
use millrace_xdna2::timing;
use millrace_xdna2::verify::verify;
use millrace_xdna2::{Machine, Profile};
use serde_json::json;

/// A tiling with its prediction.
struct Ranked {
    tiling: Tiling,
    ns: f64,
    tflop_per_s: f64,
    bottleneck: String,
    is_default: bool,
}

pub(super) fn run(
    args: &Args,
    mapping: &dyn Mapping,
    shape: &Shape,
    machine: &Machine,
    profile: &Profile,
    ui: Ui,
) -> Outcome {
    let tilings = mapping.tilings(shape, machine);
    let default = mapping.default_tiling(shape, machine);
    let progress = Progress::steps(ui, tilings.len() as u64);
    let mut refused = 0usize;
    let mut ranked = Vec::new();
    for tiling in tilings {
        progress.message(tiling.to_string());
        match predict(mapping, shape, &tiling, machine, profile) {
            Some((ns, bottleneck)) => ranked.push(Ranked {
                tflop_per_s: mapping.work(shape).flops as f64 / ns / 1e3,
                is_default: tiling == default,
                ns,
                tiling,
                bottleneck,
            }),
            None => refused += 1,
        }
        progress.advance(1);
    }
    drop(progress);
    if ranked.is_empty() {
        let why = match mapping.build(shape, &default, machine) {
            Err(error) => error.to_string(),
            Ok(_) => format!("the verifier refuses all {refused} of them"),
        };
        return Err(Failure::usage(format!(
            "no tiling of this shape is legal: {why}"
        )));
    }
    ranked.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    print(args, mapping, shape, profile, &ranked, refused)
}

/// Time and bottleneck of the longest launch; `None` where the verifier refuses.
fn predict(
    mapping: &dyn Mapping,
    shape: &Shape,
    tiling: &Tiling,
    machine: &Machine,
    profile: &Profile,
) -> Option<(f64, String)> {
    let program = mapping.build(shape, tiling, machine).ok()?;
    verify(&program, machine).ok()?;
    let timing = timing::predict(&program, machine, profile).ok()?;
    let longest = timing
        .launches
        .iter()
        .max_by(|a, b| a.ns.total_cmp(&b.ns))?;
    Some((timing.total_ns, longest.bottleneck.resource.clone()))
}

fn print(
    args: &Args,
    mapping: &dyn Mapping,
    shape: &Shape,
    profile: &Profile,
    ranked: &[Ranked],
    refused: usize,
) -> Outcome {
    let mut out = Out::new();
    let shown = &ranked[..ranked.len().min(args.top)];
    if args.json {
        let rows = shown.iter().map(|r| {
            json!({ "tiling": r.tiling.to_string(), "predicted_ns": r.ns,
                "tflop_per_s": r.tflop_per_s, "bottleneck": r.bottleneck, "default": r.is_default })
        });
        out.json(&json!({
            "kernel": mapping.name(), "shape": shape.to_string(), "profile": profile.name,
            "n_tilings": ranked.len(), "n_refused": refused, "tilings": rows.collect::<Vec<_>>(),
        }))?;
        return out.flush();
    }
    let mut table = Table::new(&[
        ("predicted", Align::Right),
        ("TFLOP/s", Align::Right),
        ("tiling", Align::Left),
        ("bound by", Align::Left),
    ]);
    for r in shown {
        let mark = if r.is_default { " (default)" } else { "" };
        table.row(vec![
            super::report::duration(r.ns),
            format!("{:.2}", r.tflop_per_s),
            format!("{}{mark}", r.tiling),
            r.bottleneck.clone(),
        ]);
    }
    table.print(&mut out)?;
    out.line(format!(
        "  {} tilings, {} shown, {refused} refused by the verifier; modelled({})",
        ranked.len(),
        shown.len(),
        profile.name
    ))?;
    out.flush()
}
