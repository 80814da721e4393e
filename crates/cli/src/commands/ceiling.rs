//! `millrace ceiling`: the upper bound on tokens per second, and the changes that would raise it.

use crate::engine_args::{CpuArgs, kv_type_parser};
use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Align, Out, TextTable, Ui, bytes, rate};
use crate::plan_args::{PlanSubject, SubjectArgs};
use crate::roofs::{Setting, element_bytes};
use crate::target_args::{DeviceArgs, examples};
use millrace_plan::bound::{Demand, Limit, Roofs, StepBound, StepOf, expected_tokens};
use millrace_runtime::KvType;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  millrace ceiling demo                                this CPU, with its measured memory bandwidth
  millrace ceiling model.gguf -d 4096 --kv-type q8_0   after 4096 tokens, with a smaller cache
  millrace ceiling --geometry llama-3.2-1b --device {npu} -d 1024
  millrace ceiling --geometry llama-3.1-8b --type Q4_K_M --bandwidth 256 -d 8192
                                                       a machine of which only the memory bandwidth is known
  millrace ceiling model.gguf --acceptance 0.44 --drafts 8 --draft-cost 0.2 --json

A token reads every weight and the cache of its sequence once. It cannot be generated faster than memory delivers
them, nor faster than the arithmetic is done. The first row shows that bound; each other row shows it with one
change.";

/// Compute the upper bound on tokens per second, and the changes that would raise it
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct CeilingArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Tokens in the context
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    depth: u64,
    /// Format of the cached keys and values
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = kv_type_parser())]
    kv_type: KvType,
    /// Memory bandwidth of another machine, in GB/s. Without a --device its arithmetic is not limited [default:
    /// measured, or the device's]
    #[arg(long, value_name = "GB/S", value_parser = parse_positive)]
    bandwidth: Option<f64>,
    /// Share of drafted tokens that are accepted
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = parse_share)]
    acceptance: f64,
    /// Tokens drafted per step
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=63))]
    drafts: u64,
    /// Time to draft a token, in steps of the model
    #[arg(long, value_name = "STEPS", default_value_t = 0.1, value_parser = parse_cost)]
    draft_cost: f64,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

fn number(text: &str, what: &str, holds: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number = text
        .trim()
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && holds(*n));
    number.ok_or_else(|| format!("write {what}"))
}

pub(crate) fn parse_positive(text: &str) -> Result<f64, String> {
    number(text, "a number over 0", |n| n > 0.0)
}

fn parse_share(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |n| (0.0..=1.0).contains(&n))
}

pub(crate) fn parse_cost(text: &str) -> Result<f64, String> {
    number(text, "a number of at least 0", |n| n >= 0.0)
}

/// The bound under one changed condition.
#[derive(Clone, Debug, Serialize)]
struct CeilingRow {
    what: String,
    /// Sum over all sequences.
    tokens_per_s: f64,
    /// Ratio to the first row.
    factor: f64,
    limit: Limit,
}

/// Inputs of the computation.
struct Question<'a> {
    demand: &'a Demand,
    roofs: &'a Roofs,
    /// Bytes of a cached element in the present format.
    element_bytes: f64,
    acceptance: f64,
    drafts: u64,
    draft_cost: f64,
}

const ONE: StepOf = StepOf {
    n_sequences: 1,
    n_rows: 1,
    n_passes: 1,
};

/// Machines with one limit raised, each with a description.
fn better_machines(roofs: &Roofs) -> Vec<(&'static str, Roofs)> {
    let faster = Roofs {
        bytes_per_s: 1.5 * roofs.bytes_per_s,
        ..*roofs
    };
    let wider = Roofs {
        flops_per_s: 2.0 * roofs.flops_per_s,
        ..*roofs
    };
    let free = Roofs {
        launch_ns: 0.0,
        ..*roofs
    };
    let mut machines = vec![("memory 1.5 times as fast", faster)];
    if roofs.flops_per_s.is_finite() {
        machines.push(("twice the columns or cores", wider));
    }
    if roofs.launch_ns > 0.0 {
        machines.push(("launches for nothing", free));
    }
    machines
}

impl Question<'_> {
    /// The bound, and its value under each change.
    fn rows(&self) -> Vec<CeilingRow> {
        let (demand, roofs) = (self.demand, self.roofs);
        let base = StepBound::of(demand, roofs, ONE);
        let row = |what: String, tokens: f64, ns: f64, limit: Limit| CeilingRow {
            what,
            tokens_per_s: tokens * 1e9 / ns,
            factor: tokens * base.ns() / ns,
            limit,
        };
        let of = |what: &str, demand: &Demand, roofs: &Roofs, step: StepOf| {
            let bound = StepBound::of(demand, roofs, step);
            row(
                what.to_owned(),
                step.n_sequences as f64,
                bound.ns(),
                bound.limit(),
            )
        };
        let mut rows = vec![of("as it is", demand, roofs, ONE)];
        rows.extend(
            self.smaller_caches()
                .map(|(what, demand)| of(&what, &demand, roofs, ONE)),
        );
        for n in [8, 64] {
            let step = StepOf {
                n_sequences: n,
                ..ONE
            };
            rows.push(of(
                &format!("{n} sequences in one pass"),
                demand,
                roofs,
                step,
            ));
        }
        let checked = StepBound::of(
            demand,
            roofs,
            StepOf {
                n_rows: self.drafts + 1,
                ..ONE
            },
        );
        let drafting = self.drafts as f64 * self.draft_cost * base.ns();
        let what = format!(
            "{} drafts, {:.0} % drawn, each for {} of a step",
            self.drafts,
            self.acceptance * 100.0,
            self.draft_cost
        );
        let tokens = expected_tokens(self.acceptance, self.drafts);
        rows.push(row(what, tokens, checked.ns() + drafting, checked.limit()));
        for (what, roofs) in better_machines(roofs) {
            rows.push(of(what, demand, &roofs, ONE));
        }
        rows
    }

    /// Demand of a step with smaller cache elements.
    fn smaller_caches(&self) -> impl Iterator<Item = (String, Demand)> {
        let formats = [KvType::Q8_0, KvType::Q4_0].map(|kv| (kv.name(), element_bytes(kv)));
        let formats = formats.into_iter().chain([("fp8", 1.0)]);
        let smaller = formats.filter(|(_, bytes)| *bytes < self.element_bytes);
        smaller.map(|(name, bytes)| {
            let cache_bytes = self.demand.cache_bytes * bytes / self.element_bytes;
            let demand = Demand {
                cache_bytes,
                ..*self.demand
            };
            (format!("cache in {name}"), demand)
        })
    }

    /// Summary in words.
    fn verdict(&self, rows: &[CeilingRow], reached: Option<f64>) -> String {
        let base = StepBound::of(self.demand, self.roofs, ONE);
        let memory = base.weights_ns + base.cache_ns;
        let of_weights = 100.0 * base.weights_ns / memory.max(f64::MIN_POSITIVE);
        let mut text = format!(
            "A token is bound by {}: of what it reads {of_weights:.0} % are weights and {:.0} % cache.",
            base.limit().words(),
            100.0 - of_weights
        );
        let best = rows
            .iter()
            .skip(1)
            .max_by(|a, b| a.factor.total_cmp(&b.factor));
        if let Some(best) = best {
            text += &format!(" Most would be won by {} ({:.1}x).", best.what, best.factor);
        }
        let no_use: Vec<&str> = rows
            .iter()
            .skip(1)
            .filter(|r| r.factor < 1.02)
            .map(|r| r.what.as_str())
            .collect();
        if !no_use.is_empty() {
            text += &format!(" Of no use: {}.", no_use.join("; "));
        }
        if let Some(reached) = reached {
            text += &format!(
                " The plan as it is reaches {:.0} % of the bound.",
                reached * 100.0
            );
        }
        text
    }
}

pub(crate) fn run(args: &CeilingArgs, ui: Ui) -> CommandResult {
    let planned = args.subject.read(ui)?;
    if args.depth >= planned.model().config.context_length as u64 {
        ui.warn(format_args!(
            "{} was trained for {} tokens; {} lie behind the one that is looked at",
            planned.name(),
            planned.model().config.context_length,
            args.depth
        ));
    }
    let at = (args.depth, args.kv_type);
    let bytes_per_s = args.bandwidth.map(|gb| gb * 1e9);
    let setting = Setting::of(&planned, &args.device, &args.cpu, at, bytes_per_s, ui)?;
    let kv_type = match setting.token {
        Some(_) if args.kv_type != KvType::F16 => {
            let asked = args.kv_type.name();
            return Err(CommandFailure::usage(format!(
                "--kv-type {asked} is the CPU's: devices keep keys and values in bf16"
            )));
        }
        Some(_) => KvType::BF16,
        None => args.kv_type,
    };
    let question = Question {
        demand: &setting.demand,
        roofs: &setting.roofs,
        element_bytes: element_bytes(kv_type),
        acceptance: args.acceptance,
        drafts: args.drafts,
        draft_cost: args.draft_cost,
    };
    let rows = question.rows();
    let reached = setting.token.as_ref().map(|(token, _)| {
        StepBound::of(&setting.demand, &setting.roofs, ONE).ns() / token.totals.total_ns
    });
    let verdict = question.verdict(&rows, reached);
    print(args, &planned, (&setting, kv_type), &rows, &verdict)
}

impl Setting {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "device": self.name,
            "demand": self.demand,
            "roofs": self.roofs,
            "limits_are": self.source,
            "predicted_token_ns": self.token.as_ref().map(|(token, _)| token.totals.total_ns),
            "predicted_by": self.token.as_ref().map(|(_, by)| by),
            "bound": StepBound::of(&self.demand, &self.roofs, ONE),
        })
    }
}

fn table(rows: &[CeilingRow]) -> TextTable {
    let right = Align::Right;
    let mut table = TextTable::new(&[
        ("if", Align::Left),
        ("tokens/s at most", right),
        ("factor", right),
        ("bound by", Align::Left),
    ]);
    for row in rows {
        table.row(vec![
            row.what.clone(),
            rate(row.tokens_per_s),
            format!("{:.2}x", row.factor),
            row.limit.words().to_owned(),
        ]);
    }
    table
}

fn print(
    args: &CeilingArgs,
    planned: &PlanSubject,
    (setting, kv_type): (&Setting, KvType),
    rows: &[CeilingRow],
    verdict: &str,
) -> CommandResult {
    let mut out = Out::new();
    let (demand, roofs) = (&setting.demand, &setting.roofs);
    if args.json {
        let mut report = setting.json();
        report["model"] = planned.name().into();
        report["depth"] = args.depth.into();
        report["kv_type"] = kv_type.name().into();
        report["rows"] = serde_json::json!(rows);
        report["verdict"] = verdict.into();
        return out.json(&report);
    }
    out.line(format!("{} on {}", planned.name(), setting.name))?;
    out.line(format!(
        "  a token behind {} others reads {} of weights and {} of cache ({}), and does {:.2} GFLOP",
        args.depth,
        bytes(demand.weight_bytes as u64),
        bytes(demand.cache_bytes as u64),
        kv_type.name(),
        demand.flops / 1e9
    ))?;
    let arithmetic = match roofs.flops_per_s.is_finite() {
        true => format!(" and does {:.2} TFLOP/s", roofs.flops_per_s / 1e12),
        false => String::new(),
    };
    out.line(format!(
        "  the machine reads {:.1} GB/s{arithmetic}; {}",
        roofs.bytes_per_s / 1e9,
        setting.source
    ))?;
    if let Some((token, provenance)) = &setting.token {
        out.line(format!(
            "  its plan takes {:.2} ms a token, {provenance}",
            token.totals.total_ns / 1e6
        ))?;
    }
    out.line("")?;
    table(rows).print(&mut out)?;
    out.line(format!("\n{verdict}"))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(demand: Demand, roofs: Roofs) -> (Vec<CeilingRow>, String) {
        let question = Question {
            demand: &demand,
            roofs: &roofs,
            element_bytes: 2.0,
            acceptance: 0.444,
            drafts: 8,
            draft_cost: 43.7 / 212.0,
        };
        let rows = question.rows();
        let verdict = question.verdict(&rows, None);
        (rows, verdict)
    }

    /// A published run: an 8B model in 4.9 GB at 43.7 tokens a second, and a draft model at 212.
    #[test]
    fn a_dear_draft_is_a_loss_without_any_wall() {
        let demand = Demand {
            weight_bytes: 4.92e9,
            cache_bytes: 131_072.0 * 512.0,
            flops: 16e9,
            ..Demand::default()
        };
        let roofs = Roofs {
            bytes_per_s: 43.7 * (4.92e9 + 131_072.0 * 512.0),
            flops_per_s: 30e12,
            launch_ns: 0.0,
        };
        let (rows, verdict) = rows(demand, roofs);
        assert!((rows[0].tokens_per_s - 43.7).abs() < 0.01);
        let drafts = rows.iter().find(|r| r.what.contains("drafts")).unwrap();
        assert!((0.6..0.8).contains(&drafts.factor), "{drafts:?}");
        let many = rows.iter().find(|r| r.what.starts_with("8 seq")).unwrap();
        assert!(many.factor > 6.0, "{many:?}");
        assert!(
            verdict.contains("bytes of weights") && verdict.contains("99 %"),
            "{verdict}"
        );
        assert!(verdict.contains("twice the columns"), "{verdict}");
    }

    #[test]
    fn a_deep_cache_is_what_a_smaller_one_helps() {
        let demand = Demand {
            weight_bytes: 1e9,
            cache_bytes: 9e9,
            flops: 1e9,
            ..Demand::default()
        };
        let roofs = Roofs {
            bytes_per_s: 1e11,
            flops_per_s: 1e13,
            launch_ns: 0.0,
        };
        let (rows, verdict) = rows(demand, roofs);
        assert!(rows[1].what.contains("q8_0") && rows[1].factor > 1.7);
        assert!(
            verdict.starts_with("A token is bound by bytes of cache"),
            "{verdict}"
        );
    }

    #[test]
    fn numbers_have_ranges() {
        assert!(parse_share("1.1").is_err() && parse_share("0.5").is_ok());
        assert!(parse_positive("0").is_err() && parse_positive("nan").is_err());
        assert!(parse_cost("-1").is_err() && parse_cost("0").is_ok());
    }
}
