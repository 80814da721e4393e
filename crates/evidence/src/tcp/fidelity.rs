//! Published measurements compared with their predictions.
//!
//! A row that a constant was fitted on is starred and proves nothing. If a row lacks data that its prediction needs,
//! the note states the assumption, or why there is no prediction.

use millrace_model::ModelConfig;
use millrace_model::synth::ModelGeometry;
use millrace_tcp::lower::{TcpLowerOptions, Weights};
use millrace_tcp::parallel::{ParallelModel, Plan, PlanError, Split};
use millrace_tcp::timing::closed;
use millrace_tcp::walk::llama_3_1_70b;
use millrace_tcp::{Element, Machine, Profile};

/// A published row.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpFidelityRow {
    /// Its number in the data.
    pub id: u32,
    /// Hardware, model, type and phase.
    pub what: String,
    /// The figure's name with its unit.
    pub metric: String,
    /// As published; several figures of one row are not numbers.
    pub measured: String,
    /// Predicted, in the same unit.
    pub predicted: Option<f64>,
    /// Whether some constant was fitted on it.
    pub is_fitted: bool,
    /// Assumptions, or why there is no prediction.
    pub note: String,
}

impl TcpFidelityRow {
    /// Prediction over measurement, less one.
    pub fn error(&self) -> Option<f64> {
        let measured: f64 = self.measured.parse().ok()?;
        Some(self.predicted? / measured - 1.0)
    }
}

/// The data, as gathered.
const DATA: &str = include_str!("../../data/tcp/measured.csv");

fn llama_3_1_8b() -> ModelConfig {
    let geometry = ModelGeometry::named("llama-3.1-8b").map(|geometry| geometry.config(None));
    geometry.expect("the geometry is in the table")
}

/// Fields of a line, quotes taken off.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

/// All rows, predicted with the stack that was measured: weights not read ahead.
///
/// # Errors
/// [`PlanError`], where a machine or profile changed by hand makes a plan impossible.
pub fn rows(machine: &Machine, profile: &Profile) -> Result<Vec<TcpFidelityRow>, PlanError> {
    let predictor = TcpPredictor {
        machine,
        profile,
        small: llama_3_1_8b(),
        large: llama_3_1_70b(),
    };
    let fitted = profile.calibration_rows();
    let mut rows = Vec::new();
    for line in DATA.lines().skip(1) {
        let fields = fields(line);
        let field = |i: usize| fields.get(i).cloned().unwrap_or_default();
        let Ok(id) = field(0).parse() else { continue };
        let (predicted, note) = predictor.row(id)?;
        rows.push(TcpFidelityRow {
            id,
            what: format!("{}, {}, {}, {}", field(2), field(3), field(4), field(5)),
            metric: field(8),
            measured: field(9),
            predicted,
            is_fitted: fitted.contains(&id.to_string().as_str()),
            note: note.to_owned(),
        });
    }
    Ok(rows)
}

struct TcpPredictor<'p> {
    machine: &'p Machine,
    profile: &'p Profile,
    small: ModelConfig,
    large: ModelConfig,
}

const PP4: Plan = Plan {
    split: Split::Pipeline,
    n_chips: 4,
};
const ONE: Plan = Plan {
    split: Split::Pipeline,
    n_chips: 1,
};

type PredictedTimes = (Option<f64>, &'static str);

impl TcpPredictor<'_> {
    fn model<'c>(&'c self, config: &'c ModelConfig, weights: Weights) -> ParallelModel<'c> {
        ParallelModel {
            config,
            options: TcpLowerOptions::plain(weights),
            machine: self.machine,
            profile: self.profile,
        }
    }

    /// Milliseconds for one token of each of so many sequences.
    fn token(&self, is_large: bool, batch: u64, n_keys: u64) -> Result<f64, PlanError> {
        let time = match is_large {
            true => self
                .model(&self.large, Weights::Fp8)
                .token(PP4, batch, n_keys)?,
            false => self
                .model(&self.small, Weights::Bf16)
                .token(ONE, batch, n_keys)?,
        };
        Ok(time.total_ns * 1e-6)
    }

    /// Milliseconds of a prompt.
    fn prompt(&self, is_large: bool, n_tokens: u64) -> Result<f64, PlanError> {
        let time = match is_large {
            true => self
                .model(&self.large, Weights::Fp8)
                .prompt(PP4, n_tokens)?,
            false => self
                .model(&self.small, Weights::Bf16)
                .prompt(ONE, n_tokens)?,
        };
        Ok(time.total_ns * 1e-6)
    }

    fn row(&self, id: u32) -> Result<PredictedTimes, PlanError> {
        Ok(match id {
            1 => (Some(self.prompt(true, 474)?), "bucket of 512 tokens"),
            2 => (Some(self.prompt(true, 936)?), "bucket of 960 tokens"),
            3 => (Some(self.token(true, 1, 600)?), "bucket of 1,024 keys"),
            4..=7 => {
                let batch = 8 << (id - 4);
                let note = "length unstated: 1,024 keys; prompts of other requests, which come between, are not in it";
                (Some(self.token(true, batch, 1024)?), note)
            }
            8 => {
                let (prompt, token) = (self.prompt(true, 1024)?, self.token(true, 100, 1280)?);
                let seconds = (100.0 * prompt + 512.0 * token) * 1e-3;
                (
                    Some(100.0 * 512.0 / seconds),
                    "one prompt after the other, then 512 steps of a batch of 128",
                )
            }
            9 => {
                let model = self.model(&self.small, Weights::Fp8);
                let prompt = model.prompt(ONE, 128)?.total_ns;
                let token = model.token(ONE, 128, 2176)?.total_ns;
                let seconds = (128.0 * prompt + 4096.0 * token) * 1e-9;
                let note = "batch unstated: 128; 4,096 keys on average, cache in bf16";
                (Some(128.0 * 4096.0 / seconds), note)
            }
            12 => {
                let mean = self.prompt(false, 1236)?;
                let note = "20 prompts of the mean length, one after the other; half of the others wait before one";
                (Some(mean * 21.0 / 2.0), note)
            }
            13 => (
                Some(self.token(false, 20, 1580)?),
                "batch bucket of 32, 2,048 keys",
            ),
            14 => (Some(self.token(false, 1, 1580)?), "2,048 keys"),
            15 => (Some(self.token(false, 8, 1580)?), "batch of 8, 2,048 keys"),
            16 => (
                Some(self.one_element(2048.0) * 1e-3),
                "one of eight elements: an eighth of the rates",
            ),
            17 => (
                Some(self.one_element(1.0) * 1e-3),
                "one DMA engine an element, assumed",
            ),
            _ => (None, without(id)),
        })
    }

    /// Nanoseconds of gate and up of a shard of Llama 3.1 8B on one of a chip's eight processing elements.
    fn one_element(&self, n_tokens: f64) -> f64 {
        let (d, f) = (
            self.small.d_model as f64,
            2.0 * self.small.d_ff as f64 / 8.0,
        );
        let n_macs = n_tokens * d * f;
        if n_tokens > 1.0 {
            let all = 8.0 * n_macs;
            return closed::contraction_ns(self.machine, self.profile, all, Element::Bf16, 0.0);
        }
        closed::move_ns(self.machine, self.profile, 2.0 * d * f, 1.0)
    }
}

/// Why a row has no prediction.
fn without(id: u32) -> &'static str {
    match id {
        10 => "neither batch nor plan of the eight chips is stated",
        11 => "a rounded figure without model, type, lengths or batch",
        18 | 19 => {
            "kernels of Gemma 4 in NVFP4, written by hand, in cycles of a counter whose clock is inferred"
        }
        20 => "gpt-oss-120b, a mixture of experts: not lowered",
        21 => "GPT-J: not lowered",
        22 => "a ratio of performance per watt; no power is modelled",
        _ => "not predicted",
    }
}

/// The rows as a table in Markdown.
pub fn markdown(rows: &[TcpFidelityRow]) -> String {
    let mut text = String::from(
        "| row | what | figure | measured | modelled | error | |\n|---|---|---|---:|---:|---:|---|\n",
    );
    for row in rows {
        let star = if row.is_fitted { "*" } else { "" };
        let predicted = row.predicted.map_or("–".to_owned(), |p| match p {
            p if p >= 1000.0 => format!("{p:.0}"),
            p => format!("{p:.1}"),
        });
        let error = row
            .error()
            .map_or("–".to_owned(), |e| format!("{:+.1} %", 100.0 * e));
        text += &format!(
            "| {}{star} | {} | {} | {} | {predicted} | {error} | {} |\n",
            row.id, row.what, row.metric, row.measured, row.note
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_prediction_or_a_reason() {
        let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
        let rows = rows(&machine, &profile).unwrap();
        println!("{}", markdown(&rows));
        assert_eq!(rows.len(), 22);
        assert!(
            rows.iter()
                .all(|row| !row.note.is_empty() && row.note != "not predicted")
        );
        let error = |id: u32| rows[id as usize - 1].error().unwrap();
        let stars: Vec<u32> = rows.iter().filter(|r| r.is_fitted).map(|r| r.id).collect();
        assert_eq!(stars, [14, 16]);
        for id in [14, 16] {
            assert!(error(id).abs() < 0.01, "row {id}: {}", error(id));
        }
        // Llama 3.1 70B on four chips, one sequence.
        for id in [1, 2, 3] {
            assert!(error(id).abs() < 0.10, "row {id}: {}", error(id));
        }
        // Llama 3.1 8B, several sequences.
        for id in [13, 15] {
            assert!(error(id).abs() < 0.20, "row {id}: {}", error(id));
        }
    }

    #[test]
    fn several_sequences_of_8b_are_within_a_fifth() {
        let (machine, profile) = (Machine::rngd(), Profile::furiosa_llm());
        let config = llama_3_1_8b();
        let model = ParallelModel {
            config: &config,
            options: TcpLowerOptions::plain(Weights::Bf16),
            machine: &machine,
            profile: &profile,
        };
        // From the notes of row 15: two and four sequences.
        for (batch, measured) in [(2, 16.9), (4, 18.6)] {
            let predicted = model.token(ONE, batch, 1580).unwrap().total_ns * 1e-6;
            let error = predicted / measured - 1.0;
            assert!(error.abs() < 0.20, "batch {batch}: {error}");
        }
    }
}
