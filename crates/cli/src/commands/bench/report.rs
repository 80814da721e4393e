//! Results as Markdown, CSV, JSON or JSON lines, a row at a time.

use super::measure::Test;
use crate::describe::CheckpointSummary;
use crate::exit::CommandResult;
use crate::output::Out;
use crate::ranks;
use millrace_runtime::{Engine, KvType};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ReportFormat {
    /// A Markdown table
    Md,
    /// Comma-separated values, with headings
    Csv,
    /// One JSON array at the end
    Json,
    /// One JSON object per line
    Jsonl,
}

/// A measured test.
pub(super) struct BenchRow<'a> {
    pub(super) summary: &'a CheckpointSummary,
    pub(super) cpu_name: &'a str,
    pub(super) engine: &'a dyn Engine,
    pub(super) kv_type: KvType,
    pub(super) test: &'a Test,
    /// Start time.
    pub(super) test_time: String,
    /// Time of each repetition.
    pub(super) samples_ns: Vec<u64>,
}

impl BenchRow<'_> {
    fn samples_ts(&self) -> Vec<f64> {
        let n = self.test.n_measured() as f64;
        self.samples_ns
            .iter()
            .map(|ns| n * 1e9 / *ns as f64)
            .collect()
    }

    fn n_threads(&self) -> usize {
        self.engine.cpu().pool().n_threads()
    }

    /// `CPU`, or the device's target.
    fn backend(&self) -> String {
        match self.engine.device_model() {
            None => "CPU".to_owned(),
            Some(npu) => npu.device().info().target.clone(),
        }
    }

    /// Name of the backend, with the CPU's instruction set, which decides its speed.
    fn backend_and_level(&self) -> String {
        match self.engine.device_model() {
            None => format!("CPU {}", self.engine.cpu().level()),
            Some(_) => self.backend(),
        }
    }

    /// Source of the times: `measured` here, or the device's statement.
    fn times(&self) -> String {
        let times = self.engine.device_time();
        times.map_or_else(|| "measured".to_owned(), |times| times.to_string())
    }

    /// `llama 1B Q4_K_M`.
    fn model_type(&self) -> String {
        let family = self.engine.model().model().config.family;
        let params = self.summary.n_params as f64;
        let size = match self.summary.n_params {
            0..1_000_000_000 => format!("{:.0}M", params / 1e6),
            _ => format!("{:.1}B", params / 1e9),
        };
        format!("{family} {size} {}", self.summary.quantization)
    }

    fn markdown(&self) -> [String; COLUMNS.len()] {
        let (mean, deviation) = mean_and_deviation(&self.samples_ts());
        [
            self.model_type(),
            gibibytes(self.summary.size_bytes),
            billions(self.summary.n_params),
            self.backend_and_level(),
            self.n_threads().to_string(),
            self.test.name(),
            format!("{mean:.2} ± {deviation:.2}"),
        ]
    }

    /// The fields of llama-bench that apply here, in its order, and three more.
    fn fields(&self) -> serde_json::Map<String, Value> {
        let samples_ts = self.samples_ts();
        let samples_ns: Vec<f64> = self.samples_ns.iter().map(|ns| *ns as f64).collect();
        let (avg_ns, stddev_ns) = mean_and_deviation(&samples_ns);
        let (avg_ts, stddev_ts) = mean_and_deviation(&samples_ts);
        let fields = json!({
            "millrace_version": env!("CARGO_PKG_VERSION"),
            "cpu_info": self.cpu_name,
            "gpu_info": "",
            "backends": self.backend(),
            "times": self.times(),
            "cpu_level": self.engine.cpu().level().name(),
            "model_filename": self.summary.name,
            "model_type": self.model_type(),
            "model_size": self.summary.size_bytes,
            "model_n_params": self.summary.n_params,
            "n_batch": self.engine.limits().max_chunk,
            "n_ubatch": self.engine.limits().max_chunk,
            "n_threads": self.n_threads(),
            "type_k": self.kv_type.name(),
            "type_v": self.kv_type.name(),
            "n_prompt": self.test.n_prompt,
            "n_gen": self.test.n_gen,
            "n_depth": self.test.n_depth,
            "n_sequences": self.test.n_sequences,
            "test_time": self.test_time,
            "avg_ns": avg_ns.round() as u64,
            "stddev_ns": stddev_ns.round() as u64,
            "avg_ts": avg_ts,
            "stddev_ts": stddev_ts,
            "samples_ns": self.samples_ns,
            "samples_ts": samples_ts,
        });
        match fields {
            Value::Object(mut fields) => {
                if let Some(ranks) = ranks::json(self.engine) {
                    fields.insert("ranks".to_owned(), ranks);
                }
                fields
            }
            _ => serde_json::Map::new(),
        }
    }
}

/// Headings and widths of the Markdown table; all columns but the first are right-aligned.
const COLUMNS: [(&str, usize); 7] = [
    ("model", 30),
    ("size", 10),
    ("params", 10),
    ("backend", 14),
    ("threads", 7),
    ("test", 15),
    ("t/s", 20),
];

/// Prints rows as they arrive.
pub(super) struct Reporter {
    format: ReportFormat,
    out: Out,
    rows: Vec<Value>,
    is_first: bool,
}

impl Reporter {
    pub(super) fn new(format: ReportFormat, out: Out) -> Reporter {
        Reporter {
            format,
            out,
            rows: Vec::new(),
            is_first: true,
        }
    }

    pub(super) fn row(&mut self, row: &BenchRow<'_>) -> CommandResult {
        let is_first = std::mem::take(&mut self.is_first);
        match self.format {
            ReportFormat::Md => {
                if is_first {
                    self.out
                        .line(markdown_line(COLUMNS.map(|(name, _)| name.to_owned())))?;
                    self.out.line(markdown_rule())?;
                }
                self.out.line(markdown_line(row.markdown()))?;
            }
            ReportFormat::Csv => {
                let mut fields = row.fields();
                fields.retain(|name, _| !name.starts_with("samples"));
                if is_first {
                    self.out.line(
                        fields
                            .keys()
                            .map(String::as_str)
                            .collect::<Vec<_>>()
                            .join(","),
                    )?;
                }
                self.out
                    .line(fields.values().map(csv_cell).collect::<Vec<_>>().join(","))?;
            }
            ReportFormat::Jsonl => self.out.line(Value::Object(row.fields()))?,
            ReportFormat::Json => self.rows.push(Value::Object(row.fields())),
        }
        self.out.flush()
    }

    pub(super) fn finish(mut self) -> CommandResult {
        if self.format == ReportFormat::Json {
            self.out.json(&self.rows)?;
        }
        self.out.flush()
    }
}

fn markdown_line(cells: [String; COLUMNS.len()]) -> String {
    let padded =
        cells
            .into_iter()
            .zip(COLUMNS)
            .enumerate()
            .map(|(i, (cell, (_, width)))| match i {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
    format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
}

fn markdown_rule() -> String {
    let rules = COLUMNS.iter().enumerate().map(|(i, (_, width))| match i {
        0 => "-".repeat(width + 2),
        _ => format!("{}:", "-".repeat(width + 1)),
    });
    format!("|{}|", rules.collect::<Vec<_>>().join("|"))
}

/// Quotes every cell, as llama-bench does.
fn csv_cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn gibibytes(n: u64) -> String {
    match n as f64 / f64::from(1 << 20) {
        mebibytes if mebibytes < 1024.0 => format!("{mebibytes:.2} MiB"),
        mebibytes => format!("{:.2} GiB", mebibytes / 1024.0),
    }
}

fn billions(n: u64) -> String {
    match n as f64 / 1e6 {
        millions if millions < 1000.0 => format!("{millions:.2} M"),
        millions => format!("{:.2} B", millions / 1000.0),
    }
}

/// Mean and sample standard deviation.
fn mean_and_deviation(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    if samples.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// Now, as `2026-11-21T04:05:06Z`.
pub(super) fn utc_now() -> String {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    utc(since_1970.as_secs())
}

/// Converts seconds since 1970 to date and time. Years are counted from March, so that leap days come last.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468; // from 1 March of the year 0
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn deviation_is_the_samples() {
        assert_eq!(mean_and_deviation(&[4.0]), (4.0, 0.0));
        let (mean, deviation) = mean_and_deviation(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (deviation - 1.0).abs() < 1e-12);
    }

    #[test]
    fn cells_are_quoted() {
        assert_eq!(csv_cell(&json!("a \"b\", c")), "\"a \"\"b\"\", c\"");
        assert_eq!(csv_cell(&json!(5)), "\"5\"");
    }

    #[test]
    fn table_lines_have_equal_length() {
        let heading = markdown_line(COLUMNS.map(|(name, _)| name.to_owned()));
        assert_eq!(heading.chars().count(), markdown_rule().chars().count());
    }
}
