//! Published figures of Llama-3.2-1B compared with mode mlir-air, and which of them are tests.

use super::prompt;
use crate::xdna2::fidelity::Measurement;
use millrace_plan::predict::cells::{count, lines, ms};
use millrace_plan::predict::{LaunchCost, Prediction, Totals};
use std::fmt::Write;

/// Both modes.
pub(super) struct Modes<'p> {
    pub(super) mlir_air: Prediction,
    pub(super) fast: Prediction,
    pub(super) published: Vec<Measurement>,
    /// Ids of the rows that a constant of the profile was fitted on.
    pub(super) fitted: Vec<&'p str>,
}

/// Rows that are sums with fitted rows among the terms.
const HOLD_FITTED: [&str; 6] = ["N0135", "N0136", "N0154", "N0166", "N0174", "N0186"];

impl Modes<'_> {
    /// A published value by its row.
    fn value(&self, id: &str) -> Option<f64> {
        let row = self.published.iter().find(|row| row.id == id);
        row.map(|row| row.value)
    }

    fn is_fitted(&self, id: &str) -> bool {
        self.fitted.contains(&id)
    }

    /// The row with its mark.
    fn marked(&self, id: &str) -> String {
        match id {
            id if self.is_fitted(id) => format!("{id} \\*"),
            id if HOLD_FITTED.contains(&id) => format!("{id} †"),
            id => id.to_owned(),
        }
    }

    /// Writes a row `| what | published | row | mlir-air | error | fast |`.
    fn row(
        &self,
        out: &mut String,
        what: &str,
        (id, scale): (&str, f64),
        of: impl Fn(&Prediction) -> f64,
    ) {
        let (mlir_air, fast) = (of(&self.mlir_air), of(&self.fast));
        let (value, error) = match self.value(id).map(|value| value * scale) {
            Some(value) => (ms(value), percent(mlir_air, value)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let _ = writeln!(
            out,
            "| {what} | {value} | {} | {} | {error} | {} |",
            self.marked(id),
            ms(mlir_air),
            ms(fast)
        );
    }
}

fn percent(predicted: f64, published: f64) -> String {
    format!("{:+.1} %", 100.0 * (predicted / published - 1.0))
}

pub(super) fn totals(out: &mut String, modes: &Modes<'_>) {
    let length = count(modes.fast.prompt_tokens);
    let _ = writeln!(out, "## A prompt of {length} tokens and a token after it\n");
    out.push_str(
        "| | published | row | mlir-air | error | fast |\n|---|---:|---|---:|---:|---:|\n",
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
        "| dispatches, prompt + token | 49 + 33 | guide | {} | exact | {} |",
        calls(&modes.mlir_air),
        calls(&modes.fast)
    );
    let percent = |p: &Prediction| format!("{:.1} %", 100.0 * p.token.totals.u_mem_rd);
    let _ = writeln!(
        out,
        "| U_mem^rd of a token | – | – | {} | – | {} |\n",
        percent(&modes.mlir_air),
        percent(&modes.fast)
    );
}

/// A part of a pass that published rows give, and that constants were fitted on. It has a name, the rows with how often
/// they count, and its prediction in milliseconds.
type FittedPart = (
    &'static str,
    &'static [(&'static str, f64)],
    fn(&Prediction) -> f64,
);

/// N0167 is a sum: of N0171, 16 times 1.1 ms.
const OF_A_PROMPT: [FittedPart; 4] = [
    ("the host's steps", &[("N0167", 1.0), ("N0168", 1.0)], |p| {
        prompt(p, |t| t.host_ns) / 1e6
    }),
    ("BO writes", &[("N0173", 1.0)], |p| {
        prompt(p, |t| t.write_ns) / 1e6
    }),
    ("BO reads", &[("N0175", 1.0)], |p| {
        prompt(p, |t| t.read_ns) / 1e6
    }),
    ("NPU runs of rms_gemms_rope", &[("N0163", 16.0)], |p| {
        let programs = p.prefill.iter().flat_map(|pass| &pass.programs);
        let runs = programs.filter(|program| program.name == "rms_gemms_rope");
        runs.map(|p| p.calls as f64 * p.run_ns).sum::<f64>() / 1e6
    }),
];

const OF_A_TOKEN: [FittedPart; 1] = [("the host's steps", &[("N0185", 1.0)], |p| {
    p.token.totals.host_ns / 1e6
})];

/// A published total and its prediction, in milliseconds.
struct FittedTotal {
    title: &'static str,
    id: &'static str,
    /// Milliseconds of a unit of the published row.
    scale: f64,
    predicted: f64,
    parts: &'static [FittedPart],
}

/// The two totals without the parts that are right by definition.
pub(super) fn left(out: &mut String, modes: &Modes<'_>) {
    out.push_str(
        "### Without what constants were fitted on\n\n\
         | | published | rows | mlir-air | error |\n|---|---:|---|---:|---:|\n",
    );
    let mlir_air = &modes.mlir_air;
    let prompt = FittedTotal {
        title: "prompt to first token",
        id: "N0135",
        scale: 1e3,
        predicted: mlir_air.ttft_ns / 1e6,
        parts: &OF_A_PROMPT,
    };
    let token = FittedTotal {
        title: "a token",
        id: "N0136",
        scale: 1.0,
        predicted: mlir_air.token.totals.total_ns / 1e6,
        parts: &OF_A_TOKEN,
    };
    let by_definition = total_left(out, modes, &prompt);
    total_left(out, modes, &token);
    let _ = writeln!(
        out,
        "\n{} of the {} ms that are predicted for the prompt, the host and the buffers, are reproduced by \
         definition. The runs of `rms_gemms_rope` gave the rate of the compiler's GEMMs, which those of `o_ffn` then \
         have: that they agree is a test of one constant on other shapes, not a blind one. The token's products take no \
         constant of this model.\n",
        ms(by_definition),
        ms(mlir_air.ttft_ns / 1e6)
    );
}

/// Writes a total without its parts that constants were fitted on. Returns the predicted time of those parts that are
/// the host's and the buffers'.
fn total_left(out: &mut String, modes: &Modes<'_>, total: &FittedTotal) -> f64 {
    let FittedTotal {
        title,
        id,
        predicted,
        ..
    } = *total;
    let mut by_definition = 0.0;
    let Some(value) = modes.value(id).map(|value| value * total.scale) else {
        return by_definition;
    };
    let (mut published_left, mut left) = (value, predicted);
    let _ = writeln!(
        out,
        "| {title}, ms | {} | {id} | {} | |",
        ms(value),
        ms(predicted)
    );
    for (what, rows, of) in total.parts {
        // A part whose constants come from elsewhere is a prediction like any other.
        if !rows.iter().any(|(id, _)| modes.is_fitted(id)) {
            continue;
        }
        let values = rows.iter().filter_map(|(id, n)| Some(n * modes.value(id)?));
        let (value, predicted): (f64, f64) = (values.sum(), of(&modes.mlir_air));
        published_left -= value;
        left -= predicted;
        if !what.starts_with("NPU") {
            by_definition += predicted;
        }
        let ids = rows.iter().map(|(id, n)| match n {
            1.0 => (*id).to_owned(),
            n => format!("{n} × {id}"),
        });
        let _ = writeln!(
            out,
            "| less {what} | {} | {} \\* | {} | |",
            ms(value),
            ids.collect::<Vec<_>>().join(", "),
            ms(predicted)
        );
    }
    let _ = writeln!(
        out,
        "| **what is left of {title}** | {} | | {} | {} |",
        ms(published_left),
        ms(left),
        percent(left, published_left)
    );
    by_definition
}

/// Writes the guide's figures of the feed-forward block.
pub(super) fn feed_forward(out: &mut String, modes: &Modes<'_>) {
    let p = &modes.mlir_air;
    let parts = p.prefill.iter().flat_map(|pass| &pass.parts);
    let Some(part) = parts
        .clone()
        .find(|part| part.name == "feed-forward products")
    else {
        return;
    };
    let all = prompt(p, |t| t.rate.flops as f64);
    let _ = writeln!(
        out,
        "\nThe guide gives the three products of the feed-forward block 207 GFLOP a layer, \"≈ 60 % of per-layer \
         compute\", and divides sixteen of them by the whole prompt: 2.6 TFLOP/s. Here they are {} GFLOP a layer, {:.0} % of \
         the operations and {:.0} % of the time on the NPU; over the whole prompt {} TFLOP/s, over their own time {}.",
        ms(part.rate.flops as f64 / 16e9),
        100.0 * part.rate.flops as f64 / all,
        100.0 * part.run_share,
        ms(part.rate.flops as f64 / p.ttft_ns / 1e3),
        ms(part.rate.flops_per_s / 1e12),
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

pub(super) fn programs(out: &mut String, modes: &Modes<'_>) {
    out.push_str(
        "## The six programs, milliseconds of a call\n\n\
         | program | published call | row | predicted | error | published NPU run | row | predicted | error |\n\
         |---|---:|---|---:|---:|---:|---|---:|---:|\n",
    );
    let passes = || modes.mlir_air.prefill.iter().chain([&modes.mlir_air.token]);
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
                    modes.marked(id),
                    ms(found),
                    percent(found, value),
                ]),
                None => cells.extend(["–".to_owned(), String::new(), ms(found), "–".to_owned()]),
            }
        }
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push_str("\nMode fast cuts its programs elsewhere; what they take:\n\n");
    out.push_str("| pass | program | calls | launches | ms a call | NPU run | total ms | GFLOP/s | % of peak |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (title, pass) in [
        ("prompt", modes.fast.prefill.first()),
        ("token", Some(&modes.fast.token)),
    ] {
        let Some(pass) = pass else { continue };
        for line in lines(pass).iter().filter(|line| !line.is_host) {
            let n = line.calls.max(1) as f64;
            let _ = writeln!(
                out,
                "| {title} | {} | {} | {} | {} | {} | {} | {} |",
                line.name,
                line.calls,
                line.launches,
                ms(line.total / n),
                ms(line.parts[1] / n),
                ms(line.total),
                millrace_plan::predict::cells::rate_cells(line.rate).join(" | ")
            );
        }
    }
    out.push('\n');
}

/// A launch of the published stack: program, launch, its tiling, and the tiling's source. The builders are those of
/// mlir-air's `programming_examples/llama32_1b` at commit 4216fa49.
const TILES: [(&str, &str, &str, &str); 14] = [
    ("rms_gemms_rope", "attn_norm", "8 × 1 cores", "guide"),
    (
        "rms_gemms_rope",
        "attn_q",
        "8 × 4, m 64, k 64 and 32, n 128",
        "rms_gemms_rope_multi.py",
    ),
    (
        "rms_gemms_rope",
        "attn_k",
        "8 × 4, m 64, k 64 and 32, n 128",
        "rms_gemms_rope_multi.py",
    ),
    ("rms_gemms_rope", "attn_q_rope", "8 × 1 cores", "guide"),
    (
        "flash_attn",
        "attn",
        "4 tiles of queries × 4 cascade stages, 2 heads at once",
        "guide",
    ),
    (
        "o_ffn",
        "attn_output",
        "8 × 4, m 64, k 256 and 32, n 64",
        "o_ffn_multi.py",
    ),
    (
        "o_ffn",
        "attn_residual",
        "8 × 1 cores, 2048",
        "o_ffn_multi.py",
    ),
    (
        "o_ffn",
        "ffn_gate",
        "8 × 4, m 64, k 64 and 32, n 128",
        "o_ffn_multi.py",
    ),
    ("o_ffn", "ffn_glu", "8 × 1 cores, 4096", "o_ffn_multi.py"),
    (
        "o_ffn",
        "ffn_down",
        "8 × 4, m 64, k 256 and 32, n 64",
        "o_ffn_multi.py",
    ),
    (
        "rms_gemv_rope",
        "attn_q",
        "8 × 1 cores, rows 8, 4 a call",
        "guide",
    ),
    ("rms_gemv_rope", "attn_q_rope", "1 × 1 core", "guide"),
    ("o_gemv_ffn", "ffn_down", "8 × 1 cores, rows 2", "guide"),
    (
        "lm_head_gemv",
        "lm_head_p0",
        "8 × 1 cores, 8 parts of 16,384 rows",
        "guide",
    ),
];

/// Writes published tiles next to those of the plans.
pub(super) fn tiles(out: &mut String, modes: &Modes<'_>) {
    out.push_str(
        "## Tiles\n\nWhere those of the published stack are known; of products m, k (a memory tile's and a core's) and \
         n. Mode mlir-air takes one tiling for all products of a kind: what the published ones would change is not in \
         its times.\n\n\
         | program | launch | published | where | mode mlir-air | mode fast |\n|---|---|---|---|---|---|\n",
    );
    let launch = |p: &Prediction, program: &str, name: &str| -> Option<LaunchCost> {
        let passes = || p.prefill.iter().chain([&p.token]);
        // Mode fast joins programs and launches; the phase tells which is meant.
        let in_decode = program.contains("gemv") && program != "lm_head_gemv";
        let passes = passes().filter(|pass| (pass.phase == "decode") == in_decode);
        let launches = passes.flat_map(|pass| pass.programs.iter().flat_map(|p| &p.launches));
        // Mode fast computes several products in one launch, whose name is theirs together.
        let part = name.trim_end_matches("_p0");
        let joined = |l: &&LaunchCost| l.kernel.starts_with("gem") && l.name.contains(part);
        let mut exact = launches.clone().filter(|l| l.name == name);
        exact
            .next()
            .or_else(|| launches.clone().find(joined))
            .cloned()
    };
    for (program, name, tiles, source) in TILES {
        let of = |p: &Prediction| match launch(p, program, name) {
            Some(launch) => format!("{}: {}", launch.kernel, short(&launch.tiling)),
            None => "–".to_owned(),
        };
        let (mlir_air, fast) = (of(&modes.mlir_air), of(&modes.fast));
        let _ = writeln!(
            out,
            "| {program} | {name} | {tiles} | {source} | {mlir_air} | {fast} |"
        );
    }
    out.push('\n');
}

/// A tiling without the parameters that every kernel has.
fn short(tiling: &str) -> String {
    let kept = tiling.split(',').filter(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        !["l1_depth", "l2_copies", "streamed"].contains(&name) && value != "0"
    });
    kept.collect::<Vec<_>>().join(" ")
}
