//! `bench --draft`: speed with and without drafts, in turn, on texts that repeat themselves and texts that do not.

use super::BenchArgs;
use super::report::ReportFormat;
use crate::draft_args::{self, Draft};
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::output::{Align, Out, TextTable, Ui, rate};
use crate::progress::ProgressDisplay;
use crate::target_args::DeviceArgs;
use millrace_runtime::{
    BatchItem, Engine, EngineOptions, GenerateParams, GenerationEvent, LoadedModel, LogitsFor,
    SeqId, SpeculationStats, Speculator, StepOutput, Turn, speculate_turn,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// Beginning of a story, for the text that the model itself writes.
const STORY: &str = "Once upon a time, there was a little";

/// Prose in which hardly three words repeat; written for this.
const PROSE: &str = include_str!("prose.txt");

/// A text to write, and its origin.
struct Workload {
    name: &'static str,
    what: &'static str,
    prompt: Vec<u32>,
    /// Tokens to write; empty where the model draws them.
    forced: Vec<u32>,
}

/// Times of writing one text.
#[derive(Clone, Copy, Debug, Default)]
struct WritingTimes {
    n_tokens: usize,
    ns: u64,
}

/// A workload's result.
struct SpeculationRow {
    name: &'static str,
    what: &'static str,
    n_gen: usize,
    plain: Vec<WritingTimes>,
    drafted: Vec<WritingTimes>,
    stats: SpeculationStats,
}

fn tokens_per_s(samples: &[WritingTimes]) -> f64 {
    let n: usize = samples.iter().map(|s| s.n_tokens).sum();
    let ns: u64 = samples.iter().map(|s| s.ns).sum();
    n as f64 * 1e9 / ns.max(1) as f64
}

impl SpeculationRow {
    fn speed_up(&self) -> f64 {
        tokens_per_s(&self.drafted) / tokens_per_s(&self.plain).max(f64::MIN_POSITIVE)
    }
}

/// The texts, of `n_gen` tokens each.
fn workloads(model: &LoadedModel, n_gen: usize, own: Option<&str>) -> CommandResult<Vec<Workload>> {
    let tokenizer = model.tokenizer()?;
    let encode = |text: &str| tokenizer.encode_continued(text, false).0;
    let prose = encode(own.unwrap_or(PROSE));
    // A passage and its repetition; the beginning of a longer text and its continuation.
    let n_passage = n_gen.min(prose.len());
    let n_before = (prose.len() / 4).clamp(1, 64).min(prose.len());
    let n_behind = n_gen.min(prose.len() - n_before);
    if n_behind < 16 {
        return Err(CommandFailure::usage(format!(
            "the text has {} tokens: too few to measure on",
            prose.len()
        ))
        .hint("give a text of at least a few hundred words"));
    }
    let all = [
        Workload {
            name: "story",
            what: "as the model draws it, greedily",
            prompt: encode(STORY),
            forced: Vec::new(),
        },
        Workload {
            name: "repeat",
            what: "the prompt again, forced",
            prompt: prose[..n_passage].to_vec(),
            forced: prose[..n_passage].to_vec(),
        },
        Workload {
            name: "prose",
            what: "hardly a word twice, forced",
            prompt: prose[..n_before].to_vec(),
            forced: prose[n_before..n_before + n_behind].to_vec(),
        },
    ];
    Ok(all.into())
}

/// An engine and its drafter.
struct Pair {
    engine: Box<dyn Engine>,
    speculator: Speculator,
}

impl Pair {
    /// Nanoseconds so far: the sum of both devices' clocks where there are devices, else measured here.
    fn clock(&self, start: Instant) -> u64 {
        if self.engine.device_time().is_none() {
            return u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        let drafter = self.speculator.draft_engine();
        self.engine.counters().device_ns + drafter.map_or(0, |d| d.counters().device_ns)
    }

    /// Computes a prompt except its last token, which is computed with the answer's first.
    fn write_prompt(&mut self, seq: SeqId, prompt: &[u32]) -> CommandResult {
        let mut output = StepOutput::default();
        let prompt = &prompt[..prompt.len() - 1];
        if !prompt.is_empty() {
            let item = BatchItem::new(seq, prompt, LogitsFor::None);
            self.engine.step(&[item], &mut output)?;
        }
        Ok(())
    }

    /// Writes a text. The time covers the tokens after the first, which comes with the prompt.
    fn write(
        &mut self,
        workload: &Workload,
        n_gen: usize,
        with_drafts: bool,
    ) -> CommandResult<(WritingTimes, Vec<u32>)> {
        let start = Instant::now();
        let seq = self.engine.create()?;
        let params = GenerateParams {
            max_tokens: Some(match workload.forced.len() {
                0 => n_gen,
                n => n,
            }),
            ignore_end: true,
            ..GenerateParams::default()
        };
        let n_ctx = self.engine.limits().n_ctx;
        let turn = Turn::new(self.engine.model(), &workload.prompt, &params, n_ctx)?;
        let turn = turn.forcing(&workload.forced);
        let first = &mut None;
        let is_measured_here = self.engine.device_time().is_none();
        let mut on_event = |event: GenerationEvent<'_>| {
            if let GenerationEvent::Prefill { done, total } = event
                && done == total
            {
                *first = Some(Instant::now());
            }
        };
        // A device's clock stops while nothing runs: the prompt is written before the clock is read.
        let before_ns = if is_measured_here {
            0
        } else {
            self.write_prompt(seq, &workload.prompt)?;
            self.clock(start)
        };
        let speculator = with_drafts.then_some(&mut self.speculator);
        let flag = interrupt::flag();
        let done = speculate_turn(
            &mut *self.engine,
            seq,
            turn,
            speculator,
            flag,
            &mut on_event,
        )?;
        let ns = match (is_measured_here, *first) {
            (true, Some(first)) => u64::try_from(first.elapsed().as_nanos()).unwrap_or(u64::MAX),
            _ => self.clock(start) - before_ns,
        };
        if interrupt::is_raised() {
            return Err(CommandFailure::interrupted());
        }
        self.engine.release(seq)?;
        self.speculator.forget(seq)?;
        // On a device the first token is a step like any other.
        let n_tokens = done.timings.n_decode - usize::from(is_measured_here);
        Ok((WritingTimes { n_tokens, ns }, done.tokens))
    }
}

/// Setup of a measurement.
pub(super) struct Setup<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) device: &'a DeviceArgs,
    pub(super) options: EngineOptions,
}

/// Measures a model with a drafter.
pub(super) fn run(setup: Setup<'_>, model: &Arc<LoadedModel>, ui: Ui) -> CommandResult {
    let Setup {
        args,
        device,
        options,
    } = setup;
    let own = args
        .text
        .as_deref()
        .map(crate::prompt::read_file)
        .transpose()?;
    let sizes: Vec<usize> = args.n_gen.iter().copied().filter(|n| *n > 0).collect();
    let mut all = Vec::new();
    for n_gen in &sizes {
        for workload in workloads(model, *n_gen, own.as_deref())? {
            all.push((*n_gen, workload));
        }
    }
    let most = all
        .iter()
        .map(|(n, w)| w.prompt.len() + n.max(&w.forced.len()) + 1);
    let Some(n_ctx) = most.max() else {
        return Err(CommandFailure::usage("nothing to measure: -n is 0"));
    };
    let options = EngineOptions {
        n_ctx: Some(n_ctx),
        ..options
    };
    let opened = args.draft.open(model, &args.model, device, &options, ui)?;
    let draft: Draft = opened.ok_or_else(|| CommandFailure::usage("--draft is missing"))?;
    let engine = device.make(model, options.clone(), ui)?;
    let speculator = draft.speculator(&*engine, device, &options, ui)?;
    let mut pair = Pair { engine, speculator };
    let progress = ProgressDisplay::steps(ui, (all.len() * args.repetitions as usize) as u64);
    let mut rows = Vec::new();
    for (n_gen, workload) in &all {
        progress.message(workload.name);
        rows.push(measure(&mut pair, workload, *n_gen, args, &progress)?);
    }
    drop(progress);
    print(args, &pair, &rows)
}

/// Measures both ways in turn, so that other load on the machine affects both alike.
fn measure(
    pair: &mut Pair,
    workload: &Workload,
    n_gen: usize,
    args: &BenchArgs,
    progress: &ProgressDisplay,
) -> CommandResult<SpeculationRow> {
    if !args.no_warmup {
        pair.write(workload, n_gen.min(16), false)?;
        pair.write(workload, n_gen, true)?;
    }
    let before = pair.speculator.stats();
    let (mut plain, mut drafted) = (Vec::new(), Vec::new());
    for i in 0..args.repetitions {
        let drafts_first = i % 2 == 1;
        let (a, tokens_a) = pair.write(workload, n_gen, drafts_first)?;
        let (b, tokens_b) = pair.write(workload, n_gen, !drafts_first)?;
        // On a device, passes of a different length may round differently; on the CPU they may not.
        if tokens_a != tokens_b && pair.engine.device_time().is_none() {
            let message = format!(
                "{}: drafts changed the text; please report this",
                workload.name
            );
            return Err(CommandFailure::new(crate::exit::Exit::Failed, message));
        }
        let (of_plain, of_drafted) = if drafts_first { (b, a) } else { (a, b) };
        plain.push(of_plain);
        drafted.push(of_drafted);
        progress.advance(1);
    }
    Ok(SpeculationRow {
        name: workload.name,
        what: workload.what,
        n_gen: plain[0].n_tokens,
        plain,
        drafted,
        stats: draft_args::since(pair.speculator.stats(), before),
    })
}

/// A row with the model, the drafter, the engine and the source of the times.
fn to_json(
    row: &SpeculationRow,
    (model, draft, engine, times): &(&str, &str, String, String),
) -> serde_json::Value {
    json!({
        "model": model,
        "draft": draft,
        "engine": engine,
        "times": times,
        "workload": row.name,
        "n_gen": row.n_gen,
        "plain_tokens_per_s": tokens_per_s(&row.plain),
        "drafted_tokens_per_s": tokens_per_s(&row.drafted),
        "speed_up": row.speed_up(),
        "speculation": draft_args::json(&row.stats),
        "plain_samples_ns": row.plain.iter().map(|s| s.ns).collect::<Vec<_>>(),
        "drafted_samples_ns": row.drafted.iter().map(|s| s.ns).collect::<Vec<_>>(),
    })
}

fn print(args: &BenchArgs, pair: &Pair, rows: &[SpeculationRow]) -> CommandResult {
    let mut out = Out::new();
    let times = pair.engine.device_time();
    let times = times.map_or_else(|| "measured".to_owned(), |times| times.to_string());
    let draft = args.draft.draft.as_deref().unwrap_or_default();
    if args.output != ReportFormat::Md {
        let place = (args.model.model.as_str(), draft, pair.engine.name(), times);
        let rows: Vec<_> = rows.iter().map(|row| to_json(row, &place)).collect();
        return out.json(&rows);
    }
    out.line(format!(
        "{} with --draft {draft} on {}, times {times}",
        args.model.model,
        pair.engine.name()
    ))?;
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("text", Align::Left),
        ("tokens", right),
        ("plain t/s", right),
        ("with drafts", right),
        ("speed-up", right),
        ("drafted", right),
        ("drawn", right),
        ("steps without", right),
        ("what is written", Align::Left),
    ]);
    for row in rows {
        let n = u64::from(args.repetitions).max(1);
        table.row(vec![
            row.name.to_owned(),
            row.n_gen.to_string(),
            rate(tokens_per_s(&row.plain)),
            rate(tokens_per_s(&row.drafted)),
            format!("{:.2}x", row.speed_up()),
            (row.stats.n_drafted / n).to_string(),
            row.stats
                .acceptance()
                .map_or_else(|| "-".to_owned(), |a| format!("{:.0} %", a * 100.0)),
            (row.stats.n_plain / n).to_string(),
            row.what.to_owned(),
        ]);
    }
    table.print(&mut out)?;
    out.flush()
}
