//! Report of a comparison, as tables or JSON.

use super::compare::{CompareReport, Divergence, PromptReport};
use super::reference::{DeviceReference, PromptCase};
use crate::device_stats;
use crate::exit::CommandResult;
use crate::output::{Align, Out, Paint, TextTable};
use millrace_plan::Phase;
use millrace_runtime::LoadedModel;
use millrace_runtime::npu::NpuSession;
use millrace_verify::verification::{RECORDED, Statistic, TOP};
use serde_json::{Value, json};

pub(super) fn print(
    as_json: bool,
    model: &LoadedModel,
    reference: &DeviceReference,
    found: &CompareReport,
    session: &NpuSession,
) -> CommandResult {
    let mut out = Out::new();
    let failure = found.failure();
    if as_json {
        return out.json(&as_value(model, reference, found, session));
    }
    print_statistics(&mut out, model, reference, found, session)?;
    match &failure {
        None => out.line(format!(
            "{} {} prompts, {} steps: no statistic beyond its bound, no op beyond its rounding",
            Paint::Good.stdout("PASS"),
            found.prompts.len(),
            n_steps(found),
        ))?,
        Some(failure) => out.line(format!("{} {failure}", Paint::Error.stdout("FAIL")))?,
    }
    if let (Some(_), Some(finding)) = (&failure, &found.ops.finding) {
        out.line(format!(
            "     first wrong op: {}",
            crate::commands::diagnose::headline(finding)
        ))?;
    }
    let engine = session.engine();
    let lines = [
        device_stats::line(engine),
        device_stats::substitutes(engine),
    ];
    for line in lines.into_iter().flatten() {
        out.line(line)?;
    }
    out.flush()
}

fn n_steps(found: &CompareReport) -> usize {
    found.prompts.iter().map(|p| p.steps.len()).sum()
}

/// Prints the tables, and an explanation of their terms.
fn print_statistics(
    out: &mut Out,
    model: &LoadedModel,
    reference: &DeviceReference,
    found: &CompareReport,
    session: &NpuSession,
) -> CommandResult {
    out.line(format!(
        "{} on {}, beside {}, along the reference's tokens",
        model.name(),
        session.model().device_name(),
        reference.source
    ))?;
    table(model, reference, &found.prompts).print(out)?;
    out.line("")?;
    statistics(&found.verdict.statistics).print(out)?;
    out.line(
        "KL: divergence of the device's probabilities of the next token from the model's in f32, in nats; 0 if they are equal. \
         Rounding: the same for the model on this CPU, with values rounded to the device's number format.",
    )?;
    out.line(format!(
        "{} ops computed again in f64 from the device's own operands, {} slots compared with where their bytes came from",
        found.ops.n_ops, found.ops.n_moved
    ))?;
    if let Some((mean_kl, n_lost)) = found.conversion {
        let n_steps = n_steps(found);
        out.line(format!(
            "The device keeps matrices in a format that the file's numbers do not all fit, and is held to the model with \
             the numbers that it keeps. From the model in the file they are at a mean KL of {mean_kl:.1e}, and {n_lost} of \
             the reference's five likeliest of {n_steps} steps are not among theirs",
        ))?;
    }
    Ok(())
}

fn as_value(
    model: &LoadedModel,
    reference: &DeviceReference,
    found: &CompareReport,
    session: &NpuSession,
) -> Value {
    let failure = found.failure();
    json!({
        "model": model.name(),
        "device": session.model().device_name(),
        "reference": reference.source,
        "k": TOP,
        "passes": failure.is_none(),
        "failure": failure,
        "prompts": rows(reference, &found.prompts),
        "statistics": found.verdict.statistics.iter().map(statistic).collect::<Vec<_>>(),
        "choices_unlike_the_model": found.n_strange,
        "conversion": found.conversion.map(|(mean_kl, n_lost)| json!({
            "mean_kl": mean_kl,
            "likeliest_lost": n_lost,
        })),
        "ops": crate::commands::diagnose::ops_json(&found.ops),
        "npu": device_stats::json(session.engine()),
    })
}

pub(super) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Prefill => "prefill",
        Phase::Decode => "decode",
    }
}

fn statistic(statistic: &Statistic) -> Value {
    json!({
        "name": statistic.name,
        "phase": statistic.phase.map(phase_name),
        "n_steps": statistic.n_steps,
        "device": statistic.found,
        "rounding": statistic.rounding,
        "bound": statistic.bound,
        "passes": statistic.passes(),
    })
}

fn statistics(statistics: &[Statistic]) -> TextTable {
    let mut table = TextTable::new(&[
        ("after a", Align::Left),
        ("statistic", Align::Left),
        ("steps", Align::Right),
        ("device", Align::Right),
        ("rounding", Align::Right),
        ("bound", Align::Right),
        ("", Align::Left),
    ]);
    for s in statistics {
        let number = |x: f64| match x.fract() == 0.0 || x >= 1.0 {
            true => format!("{x:.0}"),
            false => format!("{x:.2e}"),
        };
        let phase = match s.phase {
            Some(Phase::Prefill) => "prompt",
            Some(Phase::Decode) => "token",
            None => "any",
        };
        table.row(vec![
            phase.to_owned(),
            s.name.to_owned(),
            s.n_steps.to_string(),
            number(s.found),
            number(s.rounding),
            number(s.bound),
            if s.passes() { "pass" } else { "FAIL" }.to_owned(),
        ]);
    }
    table
}

fn rows(reference: &DeviceReference, prompts: &[PromptReport]) -> Vec<Value> {
    let cases = reference.cases.iter().zip(prompts);
    let row = |(case, prompt): (&PromptCase, &PromptReport)| {
        json!({
            "prompt": case.text,
            "n_prompt_tokens": case.prompt.len(),
            "n_steps": prompt.steps.len(),
            "n_equal": prompt.n_equal,
            "divergence": prompt.divergence,
            "mean_kl": prompt.mean_kl[0],
            "mean_kl_rounding": prompt.mean_kl[1],
        })
    };
    cases.map(row).collect()
}

fn table(model: &LoadedModel, reference: &DeviceReference, prompts: &[PromptReport]) -> TextTable {
    let mut table = TextTable::new(&[
        ("prompt", Align::Left),
        ("tokens", Align::Right),
        ("mean KL", Align::Right),
        ("rounding", Align::Right),
        ("same", Align::Right),
        ("parts at", Align::Right),
        ("reference's token (rank on device)", Align::Left),
        ("device's token (rank in reference)", Align::Left),
    ]);
    for (case, prompt) in reference.cases.iter().zip(prompts) {
        let divergence = prompt.divergence;
        let cell = |pick: fn(Divergence) -> (u32, Option<usize>)| {
            divergence.map_or("–".to_owned(), |d| token(model, pick(d)))
        };
        table.row(vec![
            shortened(&case.text),
            case.prompt.len().to_string(),
            format!("{:.1e}", prompt.mean_kl[0]),
            format!("{:.1e}", prompt.mean_kl[1]),
            prompt.n_equal.to_string(),
            divergence.map_or("–".to_owned(), |d| d.step.to_string()),
            cell(|d| (d.reference_token, Some(d.reference_rank))),
            cell(|d| (d.device_token, d.device_rank)),
        ]);
    }
    table
}

/// `" the" 262 (2)`.
fn token(model: &LoadedModel, (id, rank): (u32, Option<usize>)) -> String {
    let text = model.tokenizer().map(|t| t.token_text(id).to_owned());
    let rank = rank.map_or(format!("> {RECORDED}"), |rank| rank.to_string());
    match text {
        Ok(text) => format!("{text:?} {id} ({rank})"),
        Err(_) => format!("{id} ({rank})"),
    }
}

/// The end of a prompt, from which the model continues.
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
