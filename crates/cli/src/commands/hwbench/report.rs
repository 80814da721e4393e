//! Report of the machine's limits and the kernels' times, as tables or as JSON.

use super::check::Slower;
use super::measure::HwbenchRow;
use super::shape::MatrixCase;
use crate::exit::CommandResult;
use crate::machine;
use crate::output::{Align, Out, Paint, TextTable, bytes, rate};
use millrace_kernels::roof::Roof;
use millrace_kernels::{Cpu, Level};
use millrace_quant::DType;
use serde_json::{Value, json};

/// Settings that all rows share.
pub(super) struct Setting<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) roofs: &'a [(Level, Roof)],
    pub(super) stream_bytes: usize,
    pub(super) load: Option<f64>,
    /// Formats that cannot hold the shape.
    pub(super) unfit: &'a [DType],
}

/// Prints blocks as they arrive, or everything at the end as one JSON object.
pub(super) struct HwbenchReport<'a> {
    setting: &'a Setting<'a>,
    out: Out,
    /// Rows so far, where JSON is asked for.
    rows: Option<Vec<Value>>,
}

impl<'a> HwbenchReport<'a> {
    pub(super) fn new(json: bool, setting: &'a Setting<'a>) -> HwbenchReport<'a> {
        HwbenchReport {
            setting,
            out: Out::new(),
            rows: json.then(Vec::new),
        }
    }

    /// Prints the machine and its limits.
    pub(super) fn begin(&mut self) -> CommandResult {
        if self.rows.is_some() {
            return Ok(());
        }
        let Setting { cpu, roofs, .. } = self.setting;
        let name = machine::processor().name;
        self.out.line(format!(
            "{}, {} threads, {}",
            name.as_deref().unwrap_or("unnamed processor"),
            cpu.pool().n_threads(),
            cpu.level()
        ))?;
        let read = roofs.first().map_or(0.0, |(_, roof)| roof.read_bytes_per_s);
        self.out.line(format!(
            "\n{}  reading {} at {} GB/s; GOP/s in registers:",
            Paint::Bold.stdout("limits"),
            bytes(self.setting.stream_bytes as u64),
            rate(read / 1e9)
        ))?;
        let columns = ["f32", "bf16", "int8"].map(|name| (name, Align::Right));
        let mut table = TextTable::new(&[&[("level", Align::Left)], &columns[..]].concat());
        for (level, roof) in *roofs {
            let cell = |n: Option<f64>| n.map_or("-".to_owned(), |n| rate(n / 1e9));
            table.row(vec![
                level.to_string(),
                cell(Some(roof.f32_flops_per_s)),
                cell(roof.bf16_flops_per_s),
                cell(roof.int8_ops_per_s),
            ]);
        }
        table.print(&mut self.out)?;
        self.out.flush()
    }

    /// Prints or stores the rows of one matrix.
    pub(super) fn block(&mut self, case: &MatrixCase, block: Vec<HwbenchRow>) -> CommandResult {
        if let Some(rows) = &mut self.rows {
            rows.extend(block.iter().map(row_json));
            return Ok(());
        }
        let MatrixCase { dtype, n, k, .. } = case;
        self.out.line(format!(
            "\n{}  {n} x {k}, {}",
            Paint::Bold.stdout(dtype.name()),
            bytes(case.size_bytes as u64)
        ))?;
        let mut table = TextTable::new(&[
            ("kernel", Align::Left),
            ("level", Align::Left),
            ("m", Align::Right),
            ("min", Align::Right),
            ("median", Align::Right),
            ("GB/s", Align::Right),
            ("GOP/s", Align::Right),
            ("limit", Align::Right),
            ("", Align::Left),
        ]);
        for row in &block {
            table.row(cells(row));
        }
        table.print(&mut self.out)?;
        self.out.flush()
    }

    /// Ends the report; `slower` is given if the picks were checked.
    pub(super) fn finish(mut self, slower: Option<&[Slower]>) -> CommandResult {
        let Setting {
            cpu,
            roofs,
            stream_bytes,
            load,
            unfit,
        } = *self.setting;
        let unfit: Vec<&str> = unfit.iter().map(|dtype| dtype.name()).collect();
        if let Some(rows) = self.rows {
            return self.out.json(&json!({
                "millrace_version": env!("CARGO_PKG_VERSION"),
                "cpu": machine::processor().name,
                "n_threads": cpu.pool().n_threads(),
                "level": cpu.level().name(),
                "load_average": load,
                "stream_bytes": stream_bytes,
                "roofs": roofs.iter().map(roof_json).collect::<Vec<_>>(),
                "rows": rows,
                "unfit_formats": unfit,
                "slower_picks": slower.map(|slower| slower.iter().map(slower_json).collect::<Vec<_>>()),
            }));
        }
        if !unfit.is_empty() {
            let line = format!("\nblocks do not fit this shape: {}", unfit.join(", "));
            self.out.line(line)?;
        }
        self.out.flush()
    }
}

fn cells(row: &HwbenchRow) -> Vec<String> {
    let partial = if row.is_partial() { "*" } else { "" };
    let mark = if row.picked_at.is_empty() {
        String::new()
    } else {
        format!("<-- {}", level_names(&row.picked_at).join(", "))
    };
    vec![
        row.kernel.name(),
        row.kernel.level.to_string(),
        row.m.to_string(),
        format!("{}{partial}", time(row.min_s)),
        time(row.median_s),
        rate(row.bytes_per_s() / 1e9),
        rate(row.ops_per_s() / 1e9),
        format!("{:.0} % {}", 100.0 * row.share(), row.bound.name),
        mark,
    ]
}

/// Formats a time with three or four digits and a unit.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} µs", rate(s * 1e6)),
        s if s < 1.0 => format!("{} ms", rate(s * 1e3)),
        s => format!("{} s", rate(s)),
    }
}

fn level_names(levels: &[Level]) -> Vec<&'static str> {
    levels.iter().map(|level| level.name()).collect()
}

fn roof_json((level, roof): &(Level, Roof)) -> Value {
    json!({
        "level": level.name(),
        "read_bytes_per_s": roof.read_bytes_per_s,
        "f32_flops_per_s": roof.f32_flops_per_s,
        "bf16_flops_per_s": roof.bf16_flops_per_s,
        "int8_ops_per_s": roof.int8_ops_per_s,
    })
}

fn row_json(row: &HwbenchRow) -> Value {
    json!({
        "kernel": row.kernel.name(),
        "dtype": row.case.dtype.name(),
        "level": row.kernel.level.name(),
        "m": row.m,
        "n": row.case.n,
        "k": row.case.k,
        "size_bytes": row.case.size_bytes,
        "n_timed": row.sampling.n_timed,
        "n_samples": row.n_samples,
        "min_ns": row.min_s * 1e9,
        "median_ns": row.median_s * 1e9,
        "bytes_per_s": row.bytes_per_s(),
        "ops_per_s": row.ops_per_s(),
        "limit": row.bound.name,
        "limit_share": row.share(),
        "picked_at": level_names(&row.picked_at),
    })
}

fn slower_json(slower: &Slower) -> Value {
    json!({
        "dtype": slower.case.dtype.name(),
        "n": slower.case.n,
        "k": slower.case.k,
        "m": slower.m,
        "levels": level_names(&slower.levels),
        "pick": slower.pick,
        "faster": slower.faster,
        "ratio": slower.ratio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_fits() {
        for (seconds, text) in [
            (42e-6, "42.0 µs"),
            (999e-6, "999.0 µs"),
            (2.5e-3, "2.50 ms"),
            (0.25, "250.0 ms"),
            (3.0, "3.00 s"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
