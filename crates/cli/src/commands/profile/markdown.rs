//! The page of `docs`: what was published of Llama-3.2-1B beside both modes' predictions.

use super::cells::{self, count, lines, ms, whole};
use super::features;
use super::predict;
use super::subject::Subject;
use crate::exit::Outcome;
use millrace_runtime::npu::{Features, Mode};
use millrace_xdna2::fidelity::{self, Measured};
use millrace_xdna2::predict::{
    CallCost, PassCost, Prediction, REFERENCE_TOKENS, Timer, Totals, Work,
};
use std::fmt::Write;

/// Both modes.
struct Modes {
    reference: Prediction,
    best: Prediction,
    published: Vec<Measured>,
}

const INTRODUCTION: &str = "\
What mlir-air published of this model on a Strix NPU beside what Millrace predicts for its own plans of it: \
`--mode reference`, which makes the published stack's programs, and `--mode best`. Rows `N…` are those of \
`crates/xdna2/data/measured.csv`; *B5*, *B7* and *B8* are parts of the seed document. Errors are \
predicted / published − 1.

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

/// The page, for the subject at `work`'s prompt and context.
pub(super) fn page(subject: &Subject, timer: &mut Timer<'_>, work: &Work) -> Outcome<String> {
    let at = |features: Features| Work {
        context: work.context,
        ..Work::new(features, work.prompt_tokens)
    };
    let best_work = at(Features::of(Mode::Best));
    let modes = Modes {
        reference: predict(subject, timer, &at(Features::NONE))?,
        best: predict(subject, timer, &best_work)?,
        published: fidelity::measurements(),
    };
    let mut out = String::new();
    let name = subject.name();
    let _ = writeln!(out, "# {name} on XDNA2: the published tables beside ours\n");
    let _ = writeln!(
        out,
        "Output of `millrace profile --geometry {name} --markdown`. {INTRODUCTION}\n"
    );
    let _ = writeln!(
        out,
        "Times are {}: the median error of single kernels that no constant was fitted on.\n",
        modes.best.provenance
    );
    totals(&mut out, &modes);
    programs(&mut out, &modes);
    parts(&mut out, &modes);
    bytes(&mut out, &modes);
    lengths(&mut out, subject, timer)?;
    bought(&mut out, subject, timer, &best_work, &modes.best)?;
    launches(&mut out, "reference", &modes.reference);
    launches(&mut out, "best", &modes.best);
    let _ = writeln!(out, "## What is assumed\n\n{ASSUMED}");
    Ok(out)
}

impl Modes {
    /// A published value by its row.
    fn value(&self, id: &str) -> Option<f64> {
        let row = self.published.iter().find(|row| row.id == id);
        row.map(|row| row.value)
    }

    /// `| what | published | row | reference | error | best |`.
    fn row(
        &self,
        out: &mut String,
        what: &str,
        (id, scale): (&str, f64),
        of: impl Fn(&Prediction) -> f64,
    ) {
        let (reference, best) = (of(&self.reference), of(&self.best));
        let (value, error) = match self.value(id).map(|value| value * scale) {
            Some(value) => (
                ms(value),
                format!("{:+.1} %", 100.0 * (reference / value - 1.0)),
            ),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let _ = writeln!(
            out,
            "| {what} | {value} | {id} | {} | {error} | {} |",
            ms(reference),
            ms(best)
        );
    }
}

fn prompt(prediction: &Prediction, of: impl Fn(&Totals) -> f64) -> f64 {
    prediction.prefill.iter().map(|pass| of(&pass.totals)).sum()
}

fn totals(out: &mut String, modes: &Modes) {
    let length = count(modes.best.prompt_tokens);
    let _ = writeln!(out, "## A prompt of {length} tokens and a token after it\n");
    out.push_str(
        "| | published | row | reference | error | best |\n|---|---:|---|---:|---:|---:|\n",
    );
    let ns = 1e-6;
    let ttft = "prompt to first token, ms";
    modes.row(out, ttft, ("N0135", 1e3), |p| p.ttft_ns * ns);
    for (what, id, of) in [
        (
            "its calls, ms",
            "N0166",
            (|t| t.total_ns - t.host_ns) as fn(&Totals) -> f64,
        ),
        ("their NPU runs, ms", "N0174", |t| t.run_ns),
        ("their BO writes, ms", "N0173", |t| t.write_ns),
        ("their BO reads, ms", "N0175", |t| t.read_ns),
    ] {
        modes.row(out, what, (id, 1.0), |p| prompt(p, of) * ns);
    }
    modes.row(out, "a token, ms", ("N0136", 1.0), |p| {
        p.token.totals.total_ns * ns
    });
    modes.row(out, "tokens/s", ("N0186", 1.0), |p| p.tokens_per_s);
    modes.row(out, "host steps of a token, ms", ("N0185", 1.0), |p| {
        p.token.totals.host_ns * ns
    });
    let calls = |p: &Prediction| {
        format!(
            "{} + {}",
            prompt(p, |t| t.n_calls as f64),
            p.token.totals.n_calls
        )
    };
    let _ = writeln!(
        out,
        "| dispatches, prompt + token | 49 + 33 | B1 | {} | exact | {} |",
        calls(&modes.reference),
        calls(&modes.best)
    );
    let percent = |p: &Prediction| format!("{:.1} %", 100.0 * p.token.totals.u_mem_rd);
    let _ = writeln!(
        out,
        "| U_mem^rd of a token | – | – | {} | – | {} |\n",
        percent(&modes.reference),
        percent(&modes.best)
    );
}

/// A published time of a program: its name, the row of a call, the row of its NPU run.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("rms_gemms_rope", "N0154", "N0163"),
    ("flash_attn", "N0153", "N0160"),
    ("o_ffn", "N0152", "N0157"),
    ("lm_head_gemv", "N0155", "N0165"),
    ("rms_gemv_rope", "N0181", "N0180"),
    ("o_gemv_ffn", "", "N0182"),
];

fn programs(out: &mut String, modes: &Modes) {
    out.push_str(
        "## The six programs, milliseconds of a call\n\n\
         | program | published call | row | predicted | error | published NPU run | row | predicted | error |\n\
         |---|---:|---|---:|---:|---:|---|---:|---:|\n",
    );
    let passes = || {
        modes
            .reference
            .prefill
            .iter()
            .chain([&modes.reference.token])
    };
    for (name, call_id, run_id) in PROGRAMS {
        let Some(pass) = passes().find(|pass| pass.programs.iter().any(|p| p.name == name)) else {
            continue;
        };
        let mut calls = pass.calls();
        let Some(call) = calls.find(|c| pass.programs[c.program].name == name) else {
            continue;
        };
        let mut cells = vec![name.to_owned()];
        for (id, ns) in [(call_id, call.ns), (run_id, call.run_ns)] {
            let found = ns / 1e6;
            match modes.value(id) {
                Some(value) => cells.extend([
                    ms(value),
                    id.to_owned(),
                    ms(found),
                    format!("{:+.1} %", 100.0 * (found / value - 1.0)),
                ]),
                None => cells.extend(["–".to_owned(), String::new(), ms(found), "–".to_owned()]),
            }
        }
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push_str("\nMode best cuts its programs elsewhere; what they take:\n\n");
    out.push_str("| pass | program | calls | launches | ms a call | NPU run | total ms |\n|---|---|---:|---:|---:|---:|---:|\n");
    for (title, pass) in [
        ("prompt", modes.best.prefill.first()),
        ("token", Some(&modes.best.token)),
    ] {
        let Some(pass) = pass else { continue };
        for line in lines(pass).iter().filter(|line| !line.is_host) {
            let n = line.calls.max(1) as f64;
            let _ = writeln!(
                out,
                "| {title} | {} | {} | {} | {} | {} | {} |",
                line.name,
                line.calls,
                line.launches,
                ms(line.total / n),
                ms(line.parts[1] / n),
                ms(line.total)
            );
        }
    }
    out.push('\n');
}

fn parts(out: &mut String, modes: &Modes) {
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
        "640 (B5)",
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
        "about 1,000 (B7: a prompt's weights in part)",
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

fn bytes(out: &mut String, modes: &Modes) {
    out.push_str("## Bytes\n\n| | published | reference | best |\n|---|---:|---:|---:|\n");
    for (what, published, of) in BYTES {
        let [reference, best] = [&modes.reference, &modes.best].map(of);
        let _ = writeln!(out, "| {what} | {published} | {reference} | {best} |");
    }
    out.push('\n');
}

/// Other lengths of prompt and context.
fn lengths(out: &mut String, subject: &Subject, timer: &mut Timer<'_>) -> Outcome {
    out.push_str(
        "## Other lengths\n\n\
         | prompt | first token ms, reference | best | | token ms after it, reference | best | tokens/s, best |\n\
         |---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for prompt_tokens in [30, 128, 512, 2048, 4096, 8192] {
        let mut of = |mode| {
            predict(
                subject,
                timer,
                &Work::new(Features::of(mode), prompt_tokens),
            )
        };
        let best = of(Mode::Best)?;
        let mut cells = vec![count(prompt_tokens)];
        let best_cells = [ms(best.ttft_ns / 1e6), ms(best.token.totals.total_ns / 1e6)];
        // The published stack takes no more at once.
        if prompt_tokens <= REFERENCE_TOKENS {
            let reference = of(Mode::Reference)?;
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
    subject: &Subject,
    timer: &mut Timer<'_>,
    work: &Work,
    best: &Prediction,
) -> Outcome {
    let long = features::rows(subject, timer, work, best)?;
    let short_work = Work {
        prompt_tokens: 30,
        ..*work
    };
    let short = predict(subject, timer, &short_work)?;
    let short = features::rows(subject, timer, &short_work, &short)?;
    let _ = writeln!(
        out,
        "## What each improvement buys\n\nMode best with one left out, then none with our host, then the \
         published stack. Prompts of {} and of 30 tokens.\n",
        count(work.prompt_tokens)
    );
    out.push_str(
        "| | first token ms | | of 30 tokens | | a token ms | | moved MB | dispatches | memory MB | what it is |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    let short = cells::without_cells(&short);
    for (cells, short) in cells::without_cells(&long).iter().zip(short) {
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
        "| program | launch | mapping | shape | ms | load | cores | busy % | read GB/s | write GB/s | bound by |\n\
         |---|---|---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for cells in cells::launch_rows(prediction) {
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}
