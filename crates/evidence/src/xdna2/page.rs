//! The page of `docs`: what was published of Llama-3.2-1B beside both modes' predictions.

mod published;

use super::fidelity;
use millrace_model::graph::Graph;
use millrace_plan::predict::cells::{self, count, ms, whole};
use millrace_plan::predict::{
    CallCost, PassCost, PredictError, Prediction, Totals, Work, times, variants, with_settings,
};
use millrace_plan::{Planner, Settings};
use millrace_xdna2::lower;
use millrace_xdna2::predict::HostKind;
use millrace_xdna2::target::{self, Row, machine};
use published::Modes;
use std::fmt::Write;

/// A model whose page it is, and on what.
struct Subject<'a> {
    graph: &'a Graph,
    settings: &'a Settings,
}

impl Subject<'_> {
    /// In a mode, on the machine and with the constants asked for.
    fn settings(&self, mode: &str) -> Settings {
        Settings {
            machine: self.settings.machine.clone(),
            profile: self.settings.profile.clone(),
            set: self.settings.set.clone(),
            mode: Some(mode.to_owned()),
            ..Settings::default()
        }
    }

    fn predict(&self, mode: &str, work: &Work) -> Result<Prediction, PredictError> {
        with_settings(self.graph, &Row, &self.settings(mode), work)
    }
}

const INTRODUCTION: &str = "\
What mlir-air published of this model on a Strix NPU beside what Millrace predicts for its own plans of it: \
`--mode reference`, which makes the published stack's programs, and `--mode best`. Rows `N…` are those of \
`crates/evidence/data/xdna2/measured.csv`; *guide* is the project's implementation guide of this model, on which there are \
[notes](llama-3.2-1b-notes.md). Errors are predicted / published − 1.

Rows marked \\* are those that a constant was fitted on: that they agree says nothing. Rows marked † hold such \
parts; what is left of them without is [claimed apart](#without-what-constants-were-fitted-on).

Nothing here was measured on an NPU by Millrace. `docs/fidelity-models.md` says how far whole models were off \
that had been measured, and `docs/timing-model.md` what is modelled.";

const ASSUMED: &str = "\
- The host of mode reference is the published one: 8.9 ms of Python and cache work a layer of a prompt, 0.31 ms a \
layer of a token at a short context (it does not grow here, though the published one's does), as the profile's `host` section has them.
- The host of mode best is this repository's, and nobody has measured it beside an NPU: what it copies or attends \
to goes at the rate of one copying thread (`host.write_gb_per_s`), nothing overlaps with the array, tokenising and \
sampling are left out. A dispatch costs as much as the published one's.
- U_mem^rd is the weights and tables of a pass, each read once, over its time and the peak of the machine's DDR.
- Memory counts buffer objects and keys and values; the checkpoint's own pages are not in it, nor what the \
published stack holds in numpy beside its buffers.";

/// What others published, as settings to predict beside those asked for.
pub(super) fn comparisons() -> Vec<(&'static str, Settings)> {
    let published = |mode: &str, host: HostKind| Settings {
        mode: Some(mode.to_owned()),
        host: Some(host.name().to_owned()),
        ..Settings::default()
    };
    vec![
        ("published, our host", published("reference", HostKind::Own)),
        (
            "the published stack",
            published("reference", HostKind::Published),
        ),
        (
            "the same, all rows through the head",
            published("first", HostKind::Published),
        ),
    ]
}

/// The page, for the model at `work`'s prompt and context.
pub(super) fn page(
    name: &str,
    graph: &Graph,
    settings: &Settings,
    work: &Work,
) -> Result<String, PredictError> {
    let subject = &Subject { graph, settings };
    let (_, profile) = machine(settings)?;
    let modes = Modes {
        reference: subject.predict("reference", work)?,
        best: subject.predict("best", work)?,
        published: fidelity::measurements(),
        fitted: profile.calibration_rows(),
    };
    let planner = target::planner(settings)?;
    let pricer = planner.pricer();
    let times = times(
        &modes.best.provenance,
        pricer.as_ref().and_then(|p| p.model_error()).as_ref(),
        pricer.as_ref().and_then(|p| p.kernel_error_percent()),
    );
    let mut out = String::new();
    let _ = writeln!(out, "# {name} on XDNA2: the published tables beside ours\n");
    let _ = writeln!(
        out,
        "Output of `millrace profile --geometry {name} --markdown`. {INTRODUCTION}\n"
    );
    let _ = writeln!(out, "Times are {times}.\n");
    published::totals(&mut out, &modes);
    published::left(&mut out, &modes);
    published::programs(&mut out, &modes);
    work_done(&mut out, &modes);
    published::tiles(&mut out, &modes);
    parts(&mut out, &modes);
    bytes(&mut out, &modes);
    lengths(&mut out, subject)?;
    bought(&mut out, subject, work, &modes.best)?;
    launches(&mut out, "reference", &modes.reference);
    launches(&mut out, "best", &modes.best);
    let _ = writeln!(out, "## What is assumed\n\n{ASSUMED}");
    Ok(out)
}

/// Sum over the chunks of a prompt.
fn prompt(prediction: &Prediction, of: impl Fn(&Totals) -> f64) -> f64 {
    prediction.prefill.iter().map(|pass| of(&pass.totals)).sum()
}

fn parts(out: &mut String, modes: &Modes<'_>) {
    out.push_str(
        "## Where the time goes, milliseconds\n\n\
         | | prompt, reference | | prompt, best | | token, reference | | token, best | |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let [reference, best] = [&modes.reference, &modes.best];
    let columns: Vec<&Totals> = [reference.prefill.first(), best.prefill.first()]
        .into_iter()
        .flatten()
        .chain([&reference.token, &best.token])
        .map(|pass: &PassCost| &pass.totals)
        .collect();
    for number in 0..7 {
        let mut cells = Vec::new();
        for t in &columns {
            let (name, ns) = cells::parts(t)[number];
            if cells.is_empty() {
                cells.push(name.to_owned());
            }
            cells.extend([ms(ns / 1e6), format!("{:.1} %", 100.0 * ns / t.total_ns)]);
        }
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    let sums = columns
        .iter()
        .map(|t| format!("{} | ", ms(t.total_ns / 1e6)));
    let _ = writeln!(
        out,
        "| together | {} |\n",
        sums.collect::<Vec<_>>().join("| ")
    );
}

/// A figure of a prediction as text, with what was published of it.
type ByteRow = (&'static str, &'static str, fn(&Prediction) -> String);

const BYTES: [ByteRow; 10] = [
    (
        "Q, K, V and attention's output of a prompt between programs, down and up, MiB",
        "640 (guide)",
        |p| mib(2 * around_attention(p)),
    ),
    ("the same with the block's input, MiB", "–", |p| {
        mib(of_prompt(p, |t| t.crossing.relayed_bytes))
    }),
    (
        "a prompt's buffer writes, MB",
        "604, and 134 of zeros (N0173)",
        |p| mb(of_prompt(p, |t| t.crossing.written_bytes)),
    ),
    ("a prompt's buffer reads, MB", "–", |p| {
        mb(of_prompt(p, |t| t.crossing.read_bytes))
    }),
    ("read from DDR by the array in a prompt, GB", "–", |p| {
        ms(prompt(p, |t| t.ddr_read_bytes) / 1e9)
    }),
    ("read from DDR by the array in a token, GB", "–", |p| {
        ms(p.token.totals.ddr_read_bytes / 1e9)
    }),
    (
        "weights in buffers, MB",
        "about 1,000 (guide: a prompt's weights in part)",
        |p| mb(p.memory.weight_bytes),
    ),
    ("of those second copies, MB", "–", |p| {
        mb(p.memory.second_copy_bytes)
    }),
    ("other buffers, MB", "–", |p| {
        mb(p.memory.value_bytes + p.memory.table_bytes)
    }),
    ("keys and values, MB", "–", |p| mb(p.memory.cache_bytes)),
];

fn mb(bytes: u64) -> String {
    whole(bytes as f64 / 1e6)
}

fn mib(bytes: u64) -> String {
    whole(bytes as f64 / 1_048_576.0)
}

fn of_prompt(prediction: &Prediction, of: impl Fn(&Totals) -> u64) -> u64 {
    prediction.prefill.iter().map(|pass| of(&pass.totals)).sum()
}

/// What attention's calls take and give.
fn around_attention(prediction: &Prediction) -> u64 {
    let calls = prediction.prefill.iter().flat_map(|pass| {
        let is_attention = |program: usize| pass.programs[program].name.starts_with("flash");
        pass.calls().filter(move |call| is_attention(call.program))
    });
    let moved = |call: &CallCost| call.crossing.written_bytes + call.crossing.read_bytes;
    calls.map(moved).sum()
}

fn bytes(out: &mut String, modes: &Modes<'_>) {
    out.push_str("## Bytes\n\n| | published | reference | best |\n|---|---:|---:|---:|\n");
    for (what, published, of) in BYTES {
        let [reference, best] = [&modes.reference, &modes.best].map(of);
        let _ = writeln!(out, "| {what} | {published} | {reference} | {best} |");
    }
    out.push('\n');
}

/// Operations by part of the model.
fn work_done(out: &mut String, modes: &Modes<'_>) {
    out.push_str("## Work\n\n");
    let passes = [
        ("a prompt, reference", modes.reference.prefill.first()),
        ("a prompt, best", modes.best.prefill.first()),
        ("a token, reference", Some(&modes.reference.token)),
        ("a token, best", Some(&modes.best.token)),
    ];
    let _ = writeln!(out, "| pass | {} |", cells::PART_HEADINGS.join(" | "));
    out.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    for (title, pass) in passes {
        for (number, cells) in pass
            .map(cells::part_rows)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            let title = if number == 0 { title } else { "" };
            let _ = writeln!(out, "| {title} | {} |", cells.join(" | "));
        }
    }
    out.push('\n');
    for (title, pass) in passes {
        let Some(pass) = pass else { continue };
        let text = cells::work_text(&pass.totals, modes.best.peak_flops_per_s);
        let _ = writeln!(out, "- {title}: {}", text.trim_start_matches("work: "));
    }
    published::feed_forward(out, modes);
    out.push('\n');
}

/// Other lengths of prompt and context.
fn lengths(out: &mut String, subject: &Subject<'_>) -> Result<(), PredictError> {
    out.push_str(
        "## Other lengths\n\n\
         | prompt | first token ms, reference | best | | token ms after it, reference | best | tokens/s, best |\n\
         |---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for prompt_tokens in [30, 128, 512, 2048, 4096, 8192] {
        let of = |mode| subject.predict(mode, &Work::new(prompt_tokens));
        let best = of("best")?;
        let mut cells = vec![count(prompt_tokens)];
        let best_cells = [ms(best.ttft_ns / 1e6), ms(best.token.totals.total_ns / 1e6)];
        // The published stack takes no more at once.
        if prompt_tokens <= lower::REFERENCE_TOKENS {
            let reference = of("reference")?;
            let [ttft, token] = best_cells;
            cells.extend([ms(reference.ttft_ns / 1e6), ttft]);
            cells.push(format!("{:.1} ×", reference.ttft_ns / best.ttft_ns));
            cells.extend([ms(reference.token.totals.total_ns / 1e6), token]);
        } else {
            let [ttft, token] = best_cells;
            let none = "–".to_owned();
            cells.extend([none.clone(), ttft, none.clone(), none, token]);
        }
        cells.push(format!("{:.1}", best.tokens_per_s));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    Ok(())
}

fn bought(
    out: &mut String,
    subject: &Subject<'_>,
    work: &Work,
    best: &Prediction,
) -> Result<(), PredictError> {
    let settings = subject.settings("best");
    let of = |work: &Work, all: &Prediction| {
        let others = comparisons();
        variants(subject.graph, &Row, &settings, work, all, &others)
    };
    let long = of(work, best)?;
    let short_work = Work {
        prompt_tokens: 30,
        ..*work
    };
    let short = of(&short_work, &subject.predict("best", &short_work)?)?;
    let _ = writeln!(
        out,
        "## What each improvement buys\n\nMode best with one left out; what the published stack has, with our host and with its \
         own; and that stack before its head took a single row. Prompts of {} and of 30 tokens.\n",
        count(work.prompt_tokens)
    );
    out.push_str(
        "| | first token ms | | of 30 tokens | | a token ms | | moved MB | dispatches | memory MB | what it is |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let short = cells::variant_cells(&short);
    for (cells, short) in cells::variant_cells(&long).iter().zip(short) {
        let [
            name,
            ttft,
            more,
            token,
            token_more,
            moved,
            dispatches,
            memory,
            what,
        ] = &cells[..]
        else {
            continue;
        };
        let name = if name == "as asked for" {
            "mode best"
        } else {
            name
        };
        let _ = writeln!(
            out,
            "| {name} | {ttft} | {more} | {} | {} | {token} | {token_more} | {moved} | {dispatches} | {memory} | {what} |",
            short[1], short[2]
        );
    }
    out.push('\n');
    Ok(())
}

fn launches(out: &mut String, mode: &str, prediction: &Prediction) {
    let _ = writeln!(out, "## Launches, mode {mode}\n");
    out.push_str(
        "| program | launch | kernel | shape | ms | load | cores | busy % | read GB/s | write GB/s | bound by |\n\
         |---|---|---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for cells in cells::launch_rows(prediction) {
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}
