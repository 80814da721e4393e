//! `--mutants`: counts the wrong devices that fail.

use super::{VerifyArgs, by_cpu, check_interrupt, exact_cpu, prompts};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Align, Out, Paint, TextTable, Ui};
use crate::progress::ProgressDisplay;
use crate::target_args::DevicePurpose;
use millrace_runtime::LoadedModel;
use millrace_verify::mutants::{Detection, Mutant, MutationTest, sample};
use millrace_verify::verification::{Continuation, Verification};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Selection of mutants.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutants {
    /// About 40, spread over all
    Sample,
    /// Every slot of every program, in four ways
    All,
}

const SAMPLE: usize = 40;

/// Minimum share of mutants that must fail.
const LEAST: f64 = 0.95;

/// Chunk length of prompts, small enough that a short prompt has several chunks.
const CHUNK: usize = 64;

/// Length of a prompt of one and a half chunks: its second chunk attends over the cache.
const TWO_CHUNKS: usize = 96;

/// Number of shorter prompts before it.
const N_SHORT: usize = 4;

/// Number of steps after a prompt.
const N_STEPS: usize = 4;

type MutantRow = (Mutant, Detection);

pub(super) fn run(
    args: &VerifyArgs,
    which: Mutants,
    model: &Arc<LoadedModel>,
    ui: Ui,
) -> CommandResult {
    let continuations = continuations(args, model, ui)?;
    let longest = continuations.iter().map(|c| c.prompt.len()).max();
    let n_ctx = longest.unwrap_or(1) + N_STEPS;
    let wanted = DevicePurpose {
        prefill_tokens: Some(CHUNK as u64),
        ..DevicePurpose::context(n_ctx)
    };
    let npu = args.target.load(model, &args.cpu, &wanted, ui)?;
    let cpu = exact_cpu(&args.cpu)?;
    let verification = Verification::new(&cpu, &npu)?;
    let baselines = continuations
        .into_iter()
        .map(|continuation| verification.baseline(continuation));
    let baselines = baselines.collect::<Result<Vec<_>, _>>()?;
    let mutation = MutationTest::new(npu, baselines)?;
    let honest = mutation.honest()?;
    if !matches!(honest, Detection::Missed { .. }) {
        let message = format!("the device fails without a mutant: {}", words(&honest));
        return Err(CommandFailure::new(Exit::Failed, message));
    }
    let chosen = match which {
        Mutants::All => mutation.mutants().to_vec(),
        Mutants::Sample => sample(mutation.mutants(), SAMPLE),
    };
    let progress = ProgressDisplay::steps(ui, chosen.len() as u64);
    progress.message("making slots wrong");
    let mut rows: Vec<MutantRow> = Vec::new();
    for mutant in chosen {
        check_interrupt()?;
        let detection = mutation.test(&mutant)?;
        rows.push((mutant, detection));
        progress.advance(1);
    }
    drop(progress);
    print(args.json, model, mutation.mutants().len(), &rows)?;
    let share = DetectionCounts::of(&rows);
    match share.detected() >= LEAST && !rows.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::new(
            Exit::Failed,
            format!(
                "{} of {} wrong devices pass; at least {:.0} % must fail",
                share.n_missed + share.n_equal,
                rows.len(),
                100.0 * LEAST
            ),
        )),
    }
}

/// Short prompts, and then one of two chunks.
fn continuations(
    args: &VerifyArgs,
    model: &Arc<LoadedModel>,
    ui: Ui,
) -> CommandResult<Vec<Continuation>> {
    let mut short = prompts::of(prompts::PromptSet::Full, model, N_STEPS)?;
    short.truncate(N_SHORT);
    short.extend(prompts::long_prompt(model, TWO_CHUNKS, N_STEPS)?);
    let cases = by_cpu(args, model, short, ui)?.cases;
    let continuation = |case: super::PromptCase| Continuation {
        prompt: case.prompt,
        choices: case.steps,
    };
    Ok(cases
        .into_iter()
        .map(|case| continuation(case).cut(N_STEPS))
        .collect())
}

/// Number of mutants by the check that detected them.
#[derive(Default)]
struct DetectionCounts {
    n_logits: usize,
    n_ops: usize,
    n_missed: usize,
    n_equal: usize,
}

impl DetectionCounts {
    fn of<'a>(rows: impl IntoIterator<Item = &'a MutantRow>) -> DetectionCounts {
        let mut share = DetectionCounts::default();
        for (_, detection) in rows {
            match detection {
                Detection::Logits(_) | Detection::Error(_) => share.n_logits += 1,
                Detection::Ops(_) => share.n_ops += 1,
                Detection::Missed { changed: true } => share.n_missed += 1,
                Detection::Missed { changed: false } => share.n_equal += 1,
            }
        }
        share
    }

    fn n(&self) -> usize {
        self.n_logits + self.n_ops + self.n_missed + self.n_equal
    }

    fn by_logits(&self) -> f64 {
        self.n_logits as f64 / self.n().max(1) as f64
    }

    fn detected(&self) -> f64 {
        (self.n_logits + self.n_ops) as f64 / self.n().max(1) as f64
    }
}

/// The check that detected a mutant, in words.
fn words(detection: &Detection) -> String {
    match detection {
        Detection::Logits(name) => format!("logits: {name}"),
        Detection::Error(error) => format!("ends with an error: {error}"),
        Detection::Ops(slot) => format!("ops: {slot}"),
        Detection::Missed { changed: true } => "passes".to_owned(),
        Detection::Missed { changed: false } => {
            "passes: the device is right, no byte of the slot was another".to_owned()
        }
    }
}

fn print(as_json: bool, model: &LoadedModel, n_all: usize, rows: &[MutantRow]) -> CommandResult {
    let mut out = Out::new();
    let share = DetectionCounts::of(rows);
    if as_json {
        let row = |(mutant, detection): &MutantRow| json!({ "mutant": mutant.to_string(), "by": words(detection) });
        return out.json(&json!({
            "model": model.name(),
            "n_all": n_all,
            "n": rows.len(),
            "n_fail_by_logits": share.n_logits,
            "n_fail_by_ops_only": share.n_ops,
            "n_pass": share.n_missed + share.n_equal,
            "n_pass_unchanged": share.n_equal,
            "share_by_logits": share.by_logits(),
            "share": share.detected(),
            "passes": share.detected() >= LEAST,
            "mutants": rows.iter().map(row).collect::<Vec<Value>>(),
        }));
    }
    out.line(format!(
        "{}: {} of {n_all} devices that are wrong in one slot of one program",
        model.name(),
        rows.len()
    ))?;
    table(rows).print(&mut out)?;
    for (mutant, detection) in rows
        .iter()
        .filter(|(_, c)| matches!(c, Detection::Missed { .. }))
    {
        out.line(format!("  {mutant}: {}", words(detection)))?;
    }
    let good = share.detected() >= LEAST;
    out.line(format!(
        "{} {:.1} % fail, {:.1} % by their logits alone; at least {:.0} % must fail",
        if good {
            Paint::Good.stdout("PASS")
        } else {
            Paint::Error.stdout("FAIL")
        },
        100.0 * share.detected(),
        100.0 * share.by_logits(),
        100.0 * LEAST,
    ))?;
    out.flush()
}

/// Table by program and kind of corruption.
fn table(rows: &[MutantRow]) -> TextTable {
    let mut table = TextTable::new(&[
        ("program", Align::Left),
        ("slot is made", Align::Left),
        ("mutants", Align::Right),
        ("fail by logits", Align::Right),
        ("only by an op", Align::Right),
        ("pass", Align::Right),
    ]);
    let mut groups: BTreeMap<(&str, &str), Vec<&MutantRow>> = BTreeMap::new();
    for row in rows {
        let key = (row.0.program.as_str(), row.0.how.name());
        groups.entry(key).or_default().push(row);
    }
    for ((program, how), rows) in groups {
        let share = DetectionCounts::of(rows);
        table.row(vec![
            program.to_owned(),
            how.to_owned(),
            share.n().to_string(),
            share.n_logits.to_string(),
            share.n_ops.to_string(),
            (share.n_missed + share.n_equal).to_string(),
        ]);
    }
    table
}
