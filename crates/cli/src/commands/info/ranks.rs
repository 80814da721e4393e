//! A model on several machines: the share and the traffic of each, and the time per token.

use super::InfoArgs;
use crate::commands::ceiling::{parse_cost, parse_positive};
use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Align, Out, Paint, TextTable, bytes};
use millrace_model::Model;
use millrace_runtime::EngineOptions;
use millrace_runtime::ranks::{LinkModel, RankPlan, plan};
use serde::Serialize;
use std::collections::BTreeSet;

/// Numbers of machines to predict a token's time for, beside the one asked for.
const MACHINES: [usize; 5] = [1, 2, 4, 8, 16];

/// Assumed speed of machines and networks, for --ranks
#[derive(clap::Args, Clone, Debug)]
pub(super) struct LinkArgs {
    /// With --ranks: memory that the model may use on each machine, in GB of 10^9 bytes; prints whether it fits
    #[arg(long, value_name = "GB", requires = "ranks", value_parser = parse_positive)]
    memory_gb: Option<f64>,
    /// With --ranks: rate at which a machine computes with weights, in GB/s; `millrace profile --mpi` measures it, and
    /// `millrace ceiling` the rate that its memory allows
    #[arg(long, value_name = "GB/S", default_value_t = 40.0, value_parser = parse_positive)]
    memory_gb_per_s: f64,
    /// With --ranks: time of a token's work that every machine does in full, in microseconds; `millrace profile --mpi`
    /// measures it
    #[arg(long, value_name = "US", default_value_t = 0.0, value_parser = parse_cost)]
    undivided_us: f64,
    /// With --ranks: time of a small gather between two machines, in microseconds; `millrace profile --mpi` measures it
    #[arg(long, value_name = "US", default_value_t = 50.0, value_parser = parse_positive)]
    gather_us: f64,
    /// With --ranks: time to send or receive one more message, in microseconds; `millrace profile --mpi` measures it
    #[arg(long, value_name = "US", default_value_t = 2.0, value_parser = parse_cost)]
    message_us: f64,
    /// With --ranks: networks to predict for, in Gbit/s
    #[arg(long, value_name = "GBIT,..", value_delimiter = ',', default_value = "10,100", value_parser = parse_positive)]
    link_gbit_per_s: Vec<f64>,
}

/// A plan for several machines.
#[derive(Debug, Serialize)]
pub(super) struct RanksPlan {
    n_ctx: usize,
    ranks: Vec<RankRow>,
    /// Memory of a machine for the model, if given.
    memory_bytes: Option<u64>,
    /// Whether every rank's part fits into that memory.
    fits: Option<bool>,
    predictions: Vec<Prediction>,
    link_gbit_per_s: Vec<f64>,
    memory_gb_per_s: f64,
    undivided_us: f64,
    gather_us: f64,
    message_us: f64,
}

#[derive(Debug, Serialize)]
struct RankRow {
    weight_bytes: u64,
    kv_bytes: u64,
    scratch_bytes: u64,
    gathers_per_token: usize,
    sent_bytes_per_token: u64,
    received_bytes_per_token: u64,
}

/// For a number of machines: bytes on the fullest, and milliseconds per token by network.
#[derive(Debug, Serialize)]
struct Prediction {
    n_ranks: usize,
    largest_bytes: u64,
    fits: Option<bool>,
    token_ms: Vec<f64>,
}

impl RankRow {
    /// Total bytes; saturates.
    fn total_bytes(&self) -> u64 {
        let total = self.weight_bytes.saturating_add(self.kv_bytes);
        total.saturating_add(self.scratch_bytes)
    }
}

/// Bytes of the rank that needs most.
fn largest_bytes(ranks: &[RankPlan]) -> u64 {
    let totals = ranks.iter().map(|rank| RankRow::from(rank).total_bytes());
    totals.max().unwrap_or(0)
}

impl From<&RankPlan> for RankRow {
    fn from(plan: &RankPlan) -> RankRow {
        RankRow {
            weight_bytes: plan.weight_bytes,
            kv_bytes: plan.kv_bytes,
            scratch_bytes: plan.scratch_bytes,
            gathers_per_token: plan.n_gathers,
            sent_bytes_per_token: plan.sent_bytes,
            received_bytes_per_token: plan.received_bytes,
        }
    }
}

impl RanksPlan {
    pub(super) fn of(args: &InfoArgs, model: &Model, n_ranks: usize) -> CommandResult<RanksPlan> {
        let usual = model.config.usual_context();
        let n_ctx = match args.ctx {
            Some(n_ctx) => n_ctx as usize,
            None => usual.min(EngineOptions::DEFAULT_MAX_CTX),
        };
        let options = EngineOptions {
            n_ctx: Some(n_ctx),
            kv_type: args.kv_type,
            ..EngineOptions::default()
        };
        let ranks = plan(model, &options, n_ranks)?;
        let link = &args.link;
        let memory_bytes = link.memory_gb.map(|gb| (gb * 1e9) as u64);
        let fits = |ranks: &[RankPlan]| memory_bytes.map(|most| largest_bytes(ranks) <= most);
        let mut predictions = Vec::new();
        for n_ranks in BTreeSet::from_iter(MACHINES.into_iter().chain([n_ranks])) {
            let ranks = plan(model, &options, n_ranks)?;
            let networks = link.link_gbit_per_s.iter();
            let token_ms = networks.map(|gbit| 1e3 * link.model(*gbit).token_s(&ranks));
            predictions.push(Prediction {
                n_ranks,
                largest_bytes: largest_bytes(&ranks),
                fits: fits(&ranks),
                token_ms: token_ms.collect(),
            });
        }
        Ok(RanksPlan {
            n_ctx,
            memory_bytes,
            fits: fits(&ranks),
            ranks: ranks.iter().map(RankRow::from).collect(),
            predictions,
            link_gbit_per_s: link.link_gbit_per_s.clone(),
            memory_gb_per_s: link.memory_gb_per_s,
            undivided_us: link.undivided_us,
            gather_us: link.gather_us,
            message_us: link.message_us,
        })
    }

    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        let title = format!(
            "{} ranks, a context of {} tokens",
            self.ranks.len(),
            self.n_ctx
        );
        out.line(format!("\n{}", Paint::Bold.stdout(&title)))?;
        let columns = [
            "rank", "weights", "cache", "scratch", "total", "given", "taken",
        ];
        let mut table = TextTable::new(&columns.map(|name| (name, Align::Right)));
        for (rank, row) in self.ranks.iter().enumerate() {
            let mut cells = vec![rank.to_string()];
            let parts = [row.weight_bytes, row.kv_bytes, row.scratch_bytes];
            let memory = parts.into_iter().chain([row.total_bytes()]);
            let moved = [row.sent_bytes_per_token, row.received_bytes_per_token];
            cells.extend(memory.chain(moved).map(bytes));
            table.row(cells);
        }
        table.print(out)?;
        let n_gathers = self.ranks.first().map_or(0, |row| row.gathers_per_token);
        out.line(format!(
            "  given and taken: bytes a token, in {n_gathers} gathers. Beside the weights stands the table of tokens, of \
             which rows are read"
        ))?;
        self.print_fit(out)?;
        self.print_predictions(out)
    }

    /// The exit code's failure, if the ranks do not fit into the memory that was given.
    pub(super) fn check_fits(&self) -> CommandResult {
        match self.fits {
            Some(false) => Err(CommandFailure::new(Exit::Failed, "")),
            _ => Ok(()),
        }
    }

    /// Prints whether it fits, and a setting that would.
    fn print_fit(&self, out: &mut Out) -> CommandResult {
        let Some(memory_bytes) = self.memory_bytes else {
            return Ok(());
        };
        let totals = self.ranks.iter().map(RankRow::total_bytes);
        let Some((rank, largest)) = totals.enumerate().max_by_key(|(_, total)| *total) else {
            return Ok(());
        };
        let (largest, memory) = (bytes(largest), bytes(memory_bytes));
        if self.fits == Some(true) {
            let fits = Paint::Good.stdout("fits");
            return out.line(format!(
                "  {fits}: rank {rank} takes most, {largest} of {memory}"
            ));
        }
        let no = Paint::Warning.stdout("does not fit");
        let enough = self.predictions.iter().find(|row| row.fits == Some(true));
        let advice = match enough {
            Some(row) => format!("{} machines would hold it", row.n_ranks),
            None => "take a shorter context (-c), a smaller --kv-type, or more machines".to_owned(),
        };
        out.line(format!(
            "  {no}: rank {rank} takes {largest} of {memory}; {advice}"
        ))
    }

    fn print_predictions(&self, out: &mut Out) -> CommandResult {
        let title = "Milliseconds a token on machines of such a network, modelled";
        out.line(format!("\n{}", Paint::Bold.stdout(title)))?;
        let networks = self.link_gbit_per_s.iter();
        let mut columns = vec![
            ("machines".to_owned(), Align::Right),
            ("most memory".to_owned(), Align::Right),
        ];
        columns.extend(networks.map(|gbit| (format!("{gbit} Gbit/s"), Align::Right)));
        let mut table = TextTable::new(&columns);
        for row in &self.predictions {
            let mut cells = vec![row.n_ranks.to_string(), bytes(row.largest_bytes)];
            cells.extend(row.token_ms.iter().map(|ms| format!("{ms:.2}")));
            table.row(cells);
        }
        table.print(out)?;
        out.line(format!(
            "  weights at {} GB/s, {} us undivided, {} us a gather of two and {} us a message of more, one token at a time \
             behind a short prompt; nothing overlaps",
            self.memory_gb_per_s, self.undivided_us, self.gather_us, self.message_us
        ))
    }
}

impl LinkArgs {
    fn model(&self, gbit: f64) -> LinkModel {
        LinkModel {
            memory_bytes_per_s: self.memory_gb_per_s * 1e9,
            undivided_s: self.undivided_us * 1e-6,
            gather_s: self.gather_us * 1e-6,
            message_s: self.message_us * 1e-6,
            link_bytes_per_s: gbit * 1e9 / 8.0,
        }
    }
}
