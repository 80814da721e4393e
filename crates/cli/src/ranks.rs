//! `--mpi`: one model on all processes that `mpirun` started.
//!
//! Rank 0 runs the command as usual, over an engine that tells the other ranks its work. They open the same model and
//! follow, and write nothing to standard output.

#[cfg(not(feature = "mpi"))]
mod absent;
#[cfg(feature = "mpi")]
mod mpi;

#[cfg(not(feature = "mpi"))]
use absent as process;
#[cfg(feature = "mpi")]
use mpi as process;

use crate::exit::{CommandFailure, CommandResult};
use crate::machine;
use crate::output::{Ui, bytes};
use crate::target_args::{DeviceArgs, ModelPlacement};
use millrace_runtime::ranks::{LeaderEngine, RankTraffic, Ranks, follow};
use millrace_runtime::{Engine, EngineOptions, LoadedModel};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of ranks to plan for.
pub(crate) const MAX_RANKS: i64 = 64;

pub(crate) use process::{finish, has_failed};

/// Whether other processes share the model
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Several machines")]
pub(crate) struct MpiArgs {
    /// Share the model with all processes that `mpirun` started: each reads its part of the weights and keeps its part
    /// of the cache. Needs a build with the feature `mpi`
    #[arg(long)]
    pub(crate) mpi: bool,
    /// With --mpi: seconds in which a process must deliver its part of a value; one that does not counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    rank_timeout: u64,
}

impl MpiArgs {
    /// Whether this process follows another one. Starts MPI, with `--mpi`.
    pub(crate) fn is_follower(&self) -> CommandResult<bool> {
        Ok(self.mpi && self.start()?.ranks.place().rank > 0)
    }

    /// Follows rank 0 for the lifetime of one engine.
    pub(crate) fn follow(
        &self,
        model: &Arc<LoadedModel>,
        options: EngineOptions,
        ui: Ui,
    ) -> CommandResult {
        let job = self.start()?;
        let (options, rank) = (job.options(options), job.ranks.place().rank);
        let traffic = follow(model, options, job.ranks)?;
        ui.note(format_args!("[rank {rank}: {}]", traffic_text(&traffic)));
        Ok(())
    }

    /// An engine on the device, or over all ranks.
    pub(crate) fn make(
        &self,
        device: &DeviceArgs,
        model: &Arc<LoadedModel>,
        options: EngineOptions,
        ui: Ui,
    ) -> CommandResult<Box<dyn Engine>> {
        if !self.mpi {
            return device.make(model, options, ui);
        }
        if let ModelPlacement::Target(target) = device.device {
            let message = format!("--mpi shares a model among CPUs, not on {}", target.name());
            return Err(CommandFailure::usage(message).hint("leave out --device"));
        }
        Ok(Box::new(self.lead(model, options, ui)?))
    }

    /// The engine of rank 0 over all ranks.
    pub(crate) fn lead(
        &self,
        model: &Arc<LoadedModel>,
        options: EngineOptions,
        ui: Ui,
    ) -> CommandResult<LeaderEngine> {
        let job = self.start()?;
        let options = job.options(options);
        let engine = LeaderEngine::new(model, options, job.ranks)?;
        ui.detail(format_args!(
            "{}, {} threads, context {}",
            engine.name(),
            engine.cpu().pool().n_threads(),
            engine.limits().n_ctx,
        ));
        Ok(engine)
    }

    fn start(&self) -> CommandResult<MpiJob> {
        process::start(Duration::from_secs(self.rank_timeout))
    }
}

/// The processes of an `mpirun`.
struct MpiJob {
    ranks: Box<dyn Ranks>,
    /// Processes on this machine.
    n_here: usize,
}

impl MpiJob {
    fn options(&self, options: EngineOptions) -> EngineOptions {
        share_of_cores(options, self.n_here)
    }
}

/// Sets the threads of one of `n_here` ranks on this machine, where none were asked for, to its share of the cores.
pub(crate) fn share_of_cores(options: EngineOptions, n_here: usize) -> EngineOptions {
    let cores = machine::processor().cores;
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let share = |cores: usize| (cores / n_here.max(1)).clamp(1, allowed);
    EngineOptions {
        n_threads: options.n_threads.or(cores.map(share)),
        ..options
    }
}

/// Traffic of this rank, in words; `None` where no others share the model.
pub(crate) fn line(engine: &dyn Engine) -> Option<String> {
    Some(format!("rank 0: {}", traffic_text(&engine.rank_traffic()?)))
}

/// Traffic of this rank, as JSON.
pub(crate) fn json(engine: &dyn Engine) -> Option<Value> {
    let traffic = engine.rank_traffic()?;
    Some(json!({
        "tokens": traffic.n_tokens,
        "gathers": traffic.n_gathers,
        "sent_bytes": traffic.sent_bytes,
        "received_bytes": traffic.received_bytes,
        "wait_ms": traffic.wait_ns as f64 / 1e6,
    }))
}

fn traffic_text(traffic: &RankTraffic) -> String {
    let n_tokens = traffic.n_tokens.max(1);
    let wait_us = traffic.wait_ns as f64 / 1e3;
    format!(
        "{} tokens, each gave {} and took {} in {:.2} ms; {} gathers of {:.0} us",
        traffic.n_tokens,
        bytes(traffic.sent_bytes / n_tokens),
        bytes(traffic.received_bytes / n_tokens),
        wait_us / 1e3 / n_tokens as f64,
        traffic.n_gathers,
        wait_us / traffic.n_gathers.max(1) as f64,
    )
}
