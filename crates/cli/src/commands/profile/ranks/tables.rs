//! Measurements of the ranks, as text.

use super::{LinkRows, RankPhase, RanksDocument};
use crate::exit::CommandResult;
use crate::output::{Align, Out, Paint, TextTable, bytes, duration, rate};

impl RanksDocument {
    pub(super) fn print(&self, out: &mut Out) -> CommandResult {
        let name = Paint::Bold.stdout(&self.model);
        let (n_ranks, n_threads) = (self.n_ranks, self.n_threads);
        out.line(format!(
            "{name} on {n_ranks} ranks over {}, rank 0 with {n_threads} threads; measured",
            self.carrier
        ))?;
        for (phase, what) in [(&self.prompt, "prompt"), (&self.decode, "writing")] {
            phase.print(what, out)?;
        }
        if let Some(link) = &self.link {
            link.print(out)?;
        }
        out.line(format!(
            "\nOther numbers of such machines:\n  {}",
            self.predictor.line(&self.model)
        ))
    }
}

impl RankPhase {
    fn print(&self, what: &str, out: &mut Out) -> CommandResult {
        let n_tokens = self.n_tokens.max(1) as u64;
        let each = |ns: u64| duration(ns as f64 / n_tokens as f64);
        let title = format!(
            "A token of {what}, of {} in {} each",
            self.n_tokens,
            each(self.wall_ns)
        );
        out.line(format!("\n{}", Paint::Bold.stdout(&title)))?;
        let columns = [
            "rank",
            "products",
            "attention",
            "sums",
            "waiting",
            "pass",
            "gathers",
            "sent",
            "received",
        ];
        let mut table = TextTable::new(&columns.map(|name| (name, Align::Right)));
        for row in &self.ranks {
            let times = [
                row.products_ns,
                row.attention_ns,
                row.sums_ns,
                row.waiting_ns,
                row.pass_ns,
            ];
            let mut cells = vec![row.rank.to_string()];
            cells.extend(times.map(each));
            cells.push(rate(row.n_gathers as f64 / n_tokens as f64));
            cells.extend([row.sent_bytes, row.received_bytes].map(|sum| bytes(sum / n_tokens)));
            table.row(cells);
        }
        table.print(out)
    }
}

impl LinkRows {
    fn print(&self, out: &mut Out) -> CommandResult {
        out.line(format!(
            "\n{}",
            Paint::Bold.stdout("Gathers of nothing else")
        ))?;
        let columns = ["each gives", "times", "median", "least"];
        let mut table = TextTable::new(&columns.map(|name| (name, Align::Right)));
        for row in &self.gathers {
            table.row(vec![
                bytes(row.bytes),
                row.n_gathers.to_string(),
                duration(row.median_ns as f64),
                duration(row.least_ns as f64),
            ]);
        }
        table.print(out)?;
        let speed = match self.gbit_per_s {
            Some(gbit) => format!("{} Gbit/s each way", rate(gbit)),
            None => "large gathers took no longer than small ones".to_owned(),
        };
        out.line(format!(
            "  {speed}; rank 0 hands a message over in {}",
            duration(self.message_ns)
        ))
    }
}
