//! Content of tables of predictions, in text, Markdown or on a page: rows of cells, and numbers as text.

use super::{LaunchCost, Memory, PartCost, PassCost, Prediction, ProgramCost, Totals, Variant};
use crate::units::rate;
use std::collections::BTreeMap;

/// A figure: its name, its value, and its format.
pub type Figure = (&'static str, fn(&Prediction) -> f64, fn(f64) -> String);

/// Figures that two predictions are compared by.
pub const FIGURES: [Figure; 11] = [
    ("time to first token, ms", |p| p.ttft_ns / 1e6, ms),
    ("prompt, tokens/s", |p| p.prompt_tokens_per_s, rate),
    (
        "prompt, TFLOP/s",
        |p| of_prompt(p, |t| t.rate.flops as f64) / p.ttft_ns / 1e3,
        ms,
    ),
    (
        "of the array's peak, %",
        |p| 1e11 * of_prompt(p, |t| t.rate.flops as f64) / p.ttft_ns / p.peak_flops_per_s,
        ms,
    ),
    ("a token, ms", |p| p.token.totals.total_ns / 1e6, ms),
    ("tokens/s", |p| p.tokens_per_s, rate),
    (
        "dispatches of the prompt",
        |p| of_prompt(p, |t| t.n_calls as f64),
        whole,
    ),
    (
        "dispatches of a token",
        |p| p.token.totals.n_calls as f64,
        whole,
    ),
    ("prompt moves, MB", |p| of_prompt(p, moved) / 1e6, ms),
    (
        "U_mem^rd of a token, %",
        |p| 100.0 * p.token.totals.u_mem_rd,
        ms,
    ),
    ("memory, MB", |p| p.memory.total_bytes as f64 / 1e6, whole),
];

/// Bytes that cross between host and buffers.
pub fn moved(totals: &Totals) -> f64 {
    (totals.crossing.written_bytes + totals.crossing.read_bytes) as f64
}

fn of_prompt(prediction: &Prediction, of: impl Fn(&Totals) -> f64) -> f64 {
    prediction.prefill.iter().map(|pass| of(&pass.totals)).sum()
}

/// Figures before and after a change of the machine, and their ratio.
pub fn compared(before: &Prediction, after: &Prediction) -> Vec<[String; 4]> {
    let prompt = count(after.prompt_tokens);
    let mut rows = vec![[
        "prompt, tokens".to_owned(),
        prompt.clone(),
        prompt,
        String::new(),
    ]];
    for (name, of, show) in FIGURES {
        let (before, after) = (of(before), of(after));
        let ratio = match before > 0.0 {
            true => format!("× {:.2}", after / before),
            false => String::new(),
        };
        rows.push([name.to_owned(), show(before), show(after), ratio]);
    }
    rows
}

/// A pass of a prompt in words: chunk `number` of `n_passes`.
pub fn title(pass: &PassCost, number: usize, n_passes: usize) -> String {
    let chunk = &pass.chunk;
    let padded = match chunk.n_padded > chunk.n_tokens {
        true => format!(", padded to {}", count(chunk.n_padded)),
        false => String::new(),
    };
    let part = match n_passes {
        1 => String::new(),
        n => format!(
            ", chunk {} of {n}, {} cached",
            number + 1,
            count(chunk.first)
        ),
    };
    format!("The prompt: {} tokens{padded}{part}", count(chunk.n_tokens))
}

/// A line of a pass: a program's calls or the host's steps of one kind, in milliseconds over the pass.
pub struct PassLine {
    /// The program, or the kind of step.
    pub name: String,
    /// Number of calls or steps.
    pub calls: u64,
    /// Kernels of a call.
    pub launches: u64,
    /// BO write, NPU run, BO read, the call.
    pub parts: [f64; 4],
    /// Sum of the parts.
    pub total: f64,
    /// Bytes written and read.
    pub bytes: [u64; 2],
    /// GFLOP/s over its runs on the NPU, and percent of the array's peak; none for the host.
    pub rate: Option<[f64; 2]>,
    /// Whether the host does it.
    pub is_host: bool,
}

/// Programs in order, then the host's steps by kind.
pub fn lines(pass: &PassCost) -> Vec<PassLine> {
    let mut lines: Vec<PassLine> = (pass.programs.iter())
        .map(|program| PassLine {
            name: program.name.clone(),
            calls: 0,
            launches: program.launches.len() as u64,
            parts: [0.0; 4],
            total: 0.0,
            bytes: [0; 2],
            rate: Some([
                program.rate.flops_per_s / 1e9,
                100.0 * program.rate.peak_share,
            ]),
            is_host: false,
        })
        .collect();
    for call in pass.calls() {
        let Some(line) = lines.get_mut(call.program) else {
            continue;
        };
        line.calls += call.n_dispatches;
        let parts = [call.write_ns, call.run_ns, call.read_ns, call.call_ns];
        for (sum, part) in line.parts.iter_mut().zip(parts) {
            *sum += part / 1e6;
        }
        line.total += call.ns / 1e6;
        line.bytes[0] += call.crossing.written_bytes;
        line.bytes[1] += call.crossing.read_bytes;
    }
    let mut host: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
    for step in pass.host_steps() {
        let sums = host.entry(step.name).or_default();
        sums.0 += 1;
        sums.1 += step.ns / 1e6;
    }
    lines.extend(host.into_iter().map(|(name, (calls, total))| PassLine {
        name: name.to_owned(),
        calls,
        launches: 0,
        parts: [0.0; 4],
        total,
        bytes: [0; 2],
        rate: None,
        is_host: true,
    }));
    lines
}

/// GFLOP/s and percent of the peak as cells; empty ones for the host.
pub fn rate_cells(rate: Option<[f64; 2]>) -> [String; 2] {
    match rate {
        Some([gflops, percent]) => [ms(gflops), format!("{percent:.1}")],
        None => [String::new(), String::new()],
    }
}

/// Headings of [`part_rows`].
pub const PART_HEADINGS: [&str; 7] = [
    "part of the model",
    "ms",
    "% of NPU runs",
    "GFLOP",
    "% of FLOP",
    "GFLOP/s",
    "% of peak",
];

/// Cells of the table with the share of each part of a model in a pass.
pub fn part_rows(pass: &PassCost) -> Vec<Vec<String>> {
    let all = (pass.totals.rate.flops as f64).max(1.0);
    let row = |part: &PartCost| {
        let flops = part.rate.flops as f64;
        vec![
            part.name.to_owned(),
            ms(part.ns / 1e6),
            format!("{:.1}", 100.0 * part.run_share),
            ms(flops / 1e9),
            format!("{:.1}", 100.0 * flops / all),
            ms(part.rate.flops_per_s / 1e9),
            format!("{:.1}", 100.0 * part.rate.peak_share),
        ]
    };
    pass.parts.iter().map(row).collect()
}

/// `work: 4,545 GFLOP, 3.61 TFLOP/s over the pass, …`.
pub fn work_text(t: &Totals, peak_flops_per_s: f64) -> String {
    format!(
        "work: {} GFLOP, {} TFLOP/s over the pass ({:.1} % of the array's peak of {}), {} while the NPU runs",
        ms(t.rate.flops as f64 / 1e9),
        ms(t.rate.flops_per_s / 1e12),
        100.0 * t.rate.peak_share,
        ms(peak_flops_per_s / 1e12),
        ms(t.run_flops_per_s / 1e12)
    )
}

/// The parts of a pass's time.
pub fn parts(t: &Totals) -> [(&'static str, f64); 7] {
    [
        ("launches at work", t.launches_ns),
        ("loading cores", t.load_ns),
        ("dispatch", t.dispatch_ns),
        ("calls on the host", t.call_ns),
        ("BO write", t.write_ns),
        ("BO read", t.read_ns),
        ("host steps", t.host_ns),
    ]
}

/// Cells of the table of launches: neighbours of equal work in one row, and each program once. A program whose launches
/// are all among another's has a note only.
pub fn launch_rows(prediction: &Prediction) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut shown: Vec<(&str, u64)> = Vec::new();
    for pass in prediction.prefill.iter().chain([&prediction.token]) {
        for program in &pass.programs {
            let key = (program.name.as_str(), program.run_ns.to_bits());
            if shown.contains(&key) {
                continue;
            }
            shown.push(key);
            if let Some(whole) = pass.programs.iter().find(|other| is_part(program, other)) {
                let mut row = vec![program.name.clone(), format!("as in {}", whole.name)];
                row.resize(11, String::new());
                rows.push(row);
                continue;
            }
            for (number, equal) in program.launches.chunk_by(same).enumerate() {
                let first = if number == 0 {
                    program.name.as_str()
                } else {
                    ""
                };
                rows.push(launch_cells(first, equal));
            }
        }
    }
    rows
}

fn same(a: &LaunchCost, b: &LaunchCost) -> bool {
    (&a.kernel, &a.shape, &a.tiling) == (&b.kernel, &b.shape, &b.tiling)
}

/// Whether a program's launches are a stretch of a longer program's.
fn is_part(program: &ProgramCost, other: &ProgramCost) -> bool {
    let n = program.launches.len();
    let equal = |stretch: &[LaunchCost]| {
        stretch
            .iter()
            .zip(&program.launches)
            .all(|(a, b)| same(a, b))
    };
    n > 1 && n < other.launches.len() && other.launches.windows(n).any(equal)
}

/// Sizes without repetitions.
fn short_shape(shape: &str) -> String {
    let sizes: Vec<&str> = shape.split('x').collect();
    let short = |equal: &[&str]| match equal.len() {
        0..3 => equal.join("x"),
        n => format!("({} {n} times)", equal[0]),
    };
    let parts: Vec<String> = sizes.chunk_by(|a, b| a == b).map(short).collect();
    parts.join("x")
}

fn launch_cells(program: &str, equal: &[LaunchCost]) -> Vec<String> {
    let (Some(launch), Some(last)) = (equal.first(), equal.last()) else {
        return Vec::new();
    };
    let name = match equal.len() {
        1 => launch.name.clone(),
        n => format!("{} … {} ({n})", launch.name, last.name),
    };
    let gb_per_s = |bytes: f64| format!("{:.1}", bytes / launch.ns.max(1e-9));
    vec![
        program.to_owned(),
        name,
        launch.kernel.clone(),
        short_shape(&launch.shape),
        ms(launch.ns / 1e6),
        ms(launch.load_ns / 1e6),
        launch.cores.len().to_string(),
        format!("{:.0}", 100.0 * launch.utilization),
        gb_per_s(launch.ddr_read_bytes),
        gb_per_s(launch.ddr_write_bytes),
        bound(&launch.bottleneck.resource, launch.bottleneck.utilization),
    ]
}

/// The resource without its coordinates, and how busy it is.
pub fn bound(resource: &str, utilization: f64) -> String {
    let short = match resource.split_once(" (") {
        Some((kind, _)) => kind,
        None => resource.split(',').next().unwrap_or(resource),
    };
    let short = short.split(" `").next().unwrap_or(short);
    format!("{short} {:.0} %", 100.0 * utilization)
}

/// Uses of memory, with their bytes.
pub fn memory_rows(memory: &Memory) -> [(&'static str, u64); 6] {
    [
        ("weights in buffers", memory.weight_bytes),
        ("of those, second copies", memory.second_copy_bytes),
        ("RoPE tables", memory.table_bytes),
        ("values", memory.value_bytes),
        ("keys and values", memory.cache_bytes),
        ("together", memory.total_bytes),
    ]
}

/// Cells of the table of features; the others are compared with the first row.
pub fn variant_cells(rows: &[Variant]) -> Vec<Vec<String>> {
    let all = rows.first();
    let cells = |row: &Variant| {
        let slower = |of: fn(&Variant) -> f64| match all.map(of) {
            Some(base) if base > 0.0 => format!("{:+.1} %", 100.0 * (of(row) / base - 1.0)),
            _ => String::new(),
        };
        vec![
            row.name.clone(),
            ms(row.ttft_ns / 1e6),
            slower(|r| r.ttft_ns),
            ms(row.token_ns / 1e6),
            slower(|r| r.token_ns),
            ms(row.moved_bytes as f64 / 1e6),
            format!("{} + {}", row.prompt_dispatches, row.token_dispatches),
            whole(row.memory_bytes as f64 / 1e6),
            row.summary.clone(),
        ]
    };
    rows.iter().map(cells).collect()
}

/// A number with three or four digits that carry meaning.
pub fn ms(value: f64) -> String {
    match value {
        v if v >= 1000.0 => whole(v),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// A whole number, grouped.
pub fn whole(value: f64) -> String {
    count(value.round() as u64)
}

/// `2,048`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!(count(0), "0");
        assert_eq!(count(2048), "2,048");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(ms(1270.4), "1,270");
        assert_eq!(short_shape("2048x16x16x16"), "2048x(16 3 times)");
        assert_eq!(short_shape("64x64x2"), "64x64x2");
        assert_eq!(ms(0.0704), "0.070");
        assert_eq!(bound("core (0, 3) of `mm`", 0.876), "core 88 %");
        assert_eq!(bound("DDR reads", 1.0), "DDR reads 100 %");
        assert_eq!(
            bound("shim channel `w` (DDR at shim 0 -> memory tile 0)", 0.5),
            "shim channel 50 %"
        );
    }
}
