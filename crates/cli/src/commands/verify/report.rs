//! The verdicts as a table or JSON.

use super::Verdict;
use super::gate::{Divergence, K};
use super::reference::Reference;
use super::runner::Runner;
use crate::exit::Outcome;
use crate::npu_stats;
use crate::output::{Align, Out, Paint, Table};
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::NpuSession;
use serde_json::{Value, json};

pub(super) fn print(
    as_json: bool,
    model: &LoadedModel,
    reference: &Reference,
    verdicts: &[Verdict],
    session: &NpuSession,
) -> Outcome {
    let mut out = Out::new();
    let passes = verdicts.iter().all(Verdict::passes);
    if as_json {
        return out.json(&json!({
            "model": model.name(),
            "device": session.name(),
            "reference": reference.source,
            "k": K,
            "passes": passes,
            "prompts": rows(reference, verdicts),
            "npu": npu_stats::json(session),
        }));
    }
    out.line(format!(
        "{} on {}, beside {}",
        model.name(),
        session.name(),
        reference.source
    ))?;
    table(model, reference, verdicts).print(&mut out)?;
    let agreed: usize = verdicts.iter().map(|v| v.n_equal).sum();
    out.line(format!(
        "{} {} prompts, {agreed} tokens the same; at a divergence each token must be among the other side's {K} likeliest",
        if passes { Paint::Good.stdout("PASS") } else { Paint::Error.stdout("FAIL") },
        verdicts.len(),
    ))?;
    out.line(npu_stats::line(session))?;
    out.flush()
}

fn rows(reference: &Reference, verdicts: &[Verdict]) -> Vec<Value> {
    let cases = reference.cases.iter().zip(verdicts);
    let row = |(case, verdict): (&super::Case, &Verdict)| {
        json!({
            "prompt": case.text,
            "n_prompt_tokens": case.prompt.len(),
            "n_equal": verdict.n_equal,
            "divergence": verdict.divergence,
            "passes": verdict.passes(),
        })
    };
    cases.map(row).collect()
}

fn table(model: &LoadedModel, reference: &Reference, verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[
        ("prompt", Align::Left),
        ("same", Align::Right),
        ("diverges at", Align::Right),
        ("reference's token (rank on device)", Align::Left),
        ("device's token (rank in reference)", Align::Left),
        ("", Align::Left),
    ]);
    for (case, verdict) in reference.cases.iter().zip(verdicts) {
        let divergence = verdict.divergence;
        let cell = |pick: fn(Divergence) -> (u32, Option<usize>)| {
            divergence.map_or("–".to_owned(), |d| token(model, pick(d)))
        };
        table.row(vec![
            shortened(&case.text),
            verdict.n_equal.to_string(),
            divergence.map_or("–".to_owned(), |d| d.step.to_string()),
            cell(|d| (d.reference_token, d.reference_rank)),
            cell(|d| (d.device_token, d.device_rank)),
            if verdict.passes() { "pass" } else { "FAIL" }.to_owned(),
        ]);
    }
    table
}

/// `" the" 262 (2)`.
fn token(model: &LoadedModel, (id, rank): (u32, Option<usize>)) -> String {
    let text = model.tokenizer().map(|t| t.token_text(id).to_owned());
    let rank = rank.map_or(format!("> {}", super::gate::RECORDED), |rank| {
        rank.to_string()
    });
    match text {
        Ok(text) => format!("{text:?} {id} ({rank})"),
        Err(_) => format!("{id} ({rank})"),
    }
}

/// The end of a prompt, which is what the model goes on from.
fn shortened(text: &str) -> String {
    const WIDTH: usize = 32;
    let text = text.replace('\n', " ");
    let n = text.chars().count();
    if n <= WIDTH {
        return text;
    }
    let end: String = text.chars().skip(n - WIDTH + 1).collect();
    format!("…{end}")
}
