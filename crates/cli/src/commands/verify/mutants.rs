//! `--mutants`: how many wrong devices fail.

use super::{Args, by_cpu, check_interrupt, exact_cpu, prompts};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{Align, Out, Paint, Table, Ui};
use crate::progress::Progress;
use crate::target_args::Wanted;
use millrace_runtime::LoadedModel;
use millrace_runtime::gate::{Caught, Mutant, Mutation, Path, Yardstick, every};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which mutants.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutants {
    /// About 40, spread over all
    Sample,
    /// Every slot of every program, in four ways
    All,
}

const SAMPLE: usize = 40;

/// The least share of them that must fail.
const LEAST: f64 = 0.95;

/// Prompts are cut in chunks of so many tokens, so that a short one has several.
const CHUNK: usize = 64;

/// A prompt of a chunk and a half: its second chunk attends over the cache.
const TWO_CHUNKS: usize = 96;

/// Shorter prompts before it.
const N_SHORT: usize = 4;

/// Steps after a prompt.
const N_STEPS: usize = 4;

type Row = (Mutant, Caught);

pub(super) fn run(args: &Args, which: Mutants, model: &Arc<LoadedModel>, ui: Ui) -> Outcome {
    let paths = paths(args, model, ui)?;
    let longest = paths.iter().map(|path| path.prompt.len()).max();
    let n_ctx = longest.unwrap_or(1) + N_STEPS;
    let wanted = Wanted {
        prefill_tokens: Some(CHUNK as u64),
        ..Wanted::context(n_ctx)
    };
    let npu = args.target.load(model, &args.cpu, &wanted, ui)?;
    let cpu = exact_cpu(&args.cpu)?;
    let yardsticks = paths
        .into_iter()
        .map(|path| Yardstick::new(&cpu, &npu, path));
    let yardsticks = yardsticks.collect::<Result<Vec<_>, _>>()?;
    let mutation = Mutation::new(npu, yardsticks)?;
    let honest = mutation.honest()?;
    if !matches!(honest, Caught::Missed { .. }) {
        let message = format!("the device fails without a mutant: {}", words(&honest));
        return Err(Failure::new(Exit::Failed, message));
    }
    let chosen = match which {
        Mutants::All => mutation.mutants().to_vec(),
        Mutants::Sample => every(mutation.mutants(), SAMPLE),
    };
    let progress = Progress::steps(ui, chosen.len() as u64);
    progress.message("making slots wrong");
    let mut rows: Vec<Row> = Vec::new();
    for mutant in chosen {
        check_interrupt()?;
        let caught = mutation.test(&mutant)?;
        rows.push((mutant, caught));
        progress.advance(1);
    }
    drop(progress);
    print(args.json, model, mutation.mutants().len(), &rows)?;
    let share = Share::of(&rows);
    match share.caught() >= LEAST && !rows.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(
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

/// Short prompts, and at last one of two chunks.
fn paths(args: &Args, model: &Arc<LoadedModel>, ui: Ui) -> Outcome<Vec<Path>> {
    let mut short = prompts::of(prompts::PromptSet::Full, model, N_STEPS)?;
    short.truncate(N_SHORT);
    short.extend(prompts::long_prompt(model, TWO_CHUNKS, N_STEPS)?);
    let cases = by_cpu(args, model, short, ui)?.cases;
    let path = |case: super::Case| Path {
        prompt: case.prompt,
        choices: case.steps,
    };
    Ok(cases
        .into_iter()
        .map(|case| path(case).cut(N_STEPS))
        .collect())
}

/// How many of them what caught.
#[derive(Default)]
struct Share {
    n_logits: usize,
    n_ops: usize,
    n_missed: usize,
    n_equal: usize,
}

impl Share {
    fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Share {
        let mut share = Share::default();
        for (_, caught) in rows {
            match caught {
                Caught::Logits(_) | Caught::Error(_) => share.n_logits += 1,
                Caught::Ops(_) => share.n_ops += 1,
                Caught::Missed { changed: true } => share.n_missed += 1,
                Caught::Missed { changed: false } => share.n_equal += 1,
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

    fn caught(&self) -> f64 {
        (self.n_logits + self.n_ops) as f64 / self.n().max(1) as f64
    }
}

/// What tells it, in words.
fn words(caught: &Caught) -> String {
    match caught {
        Caught::Logits(name) => format!("logits: {name}"),
        Caught::Error(error) => format!("ends with an error: {error}"),
        Caught::Ops(slot) => format!("ops: {slot}"),
        Caught::Missed { changed: true } => "passes".to_owned(),
        Caught::Missed { changed: false } => {
            "passes: the device is right, no byte of the slot was another".to_owned()
        }
    }
}

fn print(as_json: bool, model: &LoadedModel, n_all: usize, rows: &[Row]) -> Outcome {
    let mut out = Out::new();
    let share = Share::of(rows);
    if as_json {
        let row =
            |(mutant, caught): &Row| json!({ "mutant": mutant.to_string(), "by": words(caught) });
        return out.json(&json!({
            "model": model.name(),
            "n_all": n_all,
            "n": rows.len(),
            "n_fail_by_logits": share.n_logits,
            "n_fail_by_ops_only": share.n_ops,
            "n_pass": share.n_missed + share.n_equal,
            "n_pass_unchanged": share.n_equal,
            "share_by_logits": share.by_logits(),
            "share": share.caught(),
            "passes": share.caught() >= LEAST,
            "mutants": rows.iter().map(row).collect::<Vec<Value>>(),
        }));
    }
    out.line(format!(
        "{}: {} of {n_all} devices that are wrong in one slot of one program",
        model.name(),
        rows.len()
    ))?;
    table(rows).print(&mut out)?;
    for (mutant, caught) in rows
        .iter()
        .filter(|(_, c)| matches!(c, Caught::Missed { .. }))
    {
        out.line(format!("  {mutant}: {}", words(caught)))?;
    }
    let good = share.caught() >= LEAST;
    out.line(format!(
        "{} {:.1} % fail, {:.1} % by their logits alone; at least {:.0} % must fail",
        if good {
            Paint::Good.stdout("PASS")
        } else {
            Paint::Error.stdout("FAIL")
        },
        100.0 * share.caught(),
        100.0 * share.by_logits(),
        100.0 * LEAST,
    ))?;
    out.flush()
}

/// By program and way of being wrong.
fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("program", Align::Left),
        ("slot is made", Align::Left),
        ("mutants", Align::Right),
        ("fail by logits", Align::Right),
        ("only by an op", Align::Right),
        ("pass", Align::Right),
    ]);
    let mut groups: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = (row.0.program.as_str(), row.0.how.name());
        groups.entry(key).or_default().push(row);
    }
    for ((program, how), rows) in groups {
        let share = Share::of(rows);
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
