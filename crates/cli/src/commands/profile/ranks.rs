//! A model that ranks share, on CPUs: bytes and time of a token by rank, measured here.

mod tables;

use super::ProfileArgs;
use super::measured::PROMPT_TOKENS;
use super::subject::ProfileSubject;
use crate::exit::{CommandFailure, CommandResult};
use crate::interrupt;
use crate::output::{Out, Ui, rate};
use crate::ranks::{MAX_RANKS, MpiArgs, share_of_cores};
use millrace_runtime::ranks::{
    GatherTime, LeaderEngine, LinkMeasurement, LocalRanks, RankProfile, follow, local_ranks, plan,
};
use millrace_runtime::{BatchItem, Engine, EngineOptions, Error, LoadedModel, SeqId, StepOutput};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model that several ranks share, instead of an NPU
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Several machines")]
pub(super) struct RanksArgs {
    /// Share the model among N ranks of this process, each with its share of the cores, and measure each one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS), conflicts_with = "mpi")]
    ranks: Option<u32>,
    #[command(flatten)]
    mpi: MpiArgs,
}

impl RanksArgs {
    /// Whether ranks on CPUs are asked for.
    pub(super) fn are_asked_for(&self) -> bool {
        self.ranks.is_some() || self.mpi.mpi
    }
}

/// Measurements of the ranks.
#[derive(Serialize)]
struct RanksDocument {
    model: String,
    n_ranks: usize,
    /// Transport between the ranks.
    carrier: &'static str,
    /// Threads of rank 0.
    n_threads: usize,
    prompt: RankPhase,
    decode: RankPhase,
    link: Option<LinkRows>,
    predictor: Predictor,
}

/// Passes of one kind, by rank. Times are sums over all of them.
#[derive(Serialize)]
struct RankPhase {
    n_tokens: usize,
    /// From the first pass to the end of the last, as rank 0 sees it.
    wall_ns: u64,
    ranks: Vec<RankRow>,
}

#[derive(Serialize)]
struct RankRow {
    rank: usize,
    products_ns: u64,
    attention_ns: u64,
    sums_ns: u64,
    waiting_ns: u64,
    pass_ns: u64,
    n_gathers: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

#[derive(Serialize)]
struct LinkRows {
    gathers: Vec<GatherRow>,
    message_ns: f64,
    gbit_per_s: Option<f64>,
}

#[derive(Serialize)]
struct GatherRow {
    bytes: u64,
    n_gathers: usize,
    median_ns: u64,
    least_ns: u64,
}

/// Parameters from which `millrace info --ranks` predicts other numbers of machines.
#[derive(Serialize)]
struct Predictor {
    /// Weight bytes per token of the slowest rank, over the time of its products and attention.
    memory_gb_per_s: f64,
    /// Rank 0's time per token outside products, attention and gathers.
    undivided_us: f64,
    gather_us: Option<f64>,
    message_us: Option<f64>,
    link_gbit_per_s: Option<f64>,
}

pub(super) fn run(args: &ProfileArgs, ui: Ui) -> CommandResult {
    refuse_others(args)?;
    let subject = ProfileSubject::open(args, ui)?;
    let ProfileSubject::Files(model) = &subject else {
        return Err(CommandFailure::usage(
            "--ranks and --mpi run a model: name its file",
        ));
    };
    let prompt = prompt(args, &subject)?;
    let options = EngineOptions {
        // The warm-up token comes before the measured ones.
        n_ctx: Some(prompt.len() + 1 + args.n_tokens as usize),
        ..args.cpu.options()
    };
    let ranks = &args.ranks;
    if ranks.mpi.is_follower()? {
        return ranks.mpi.follow(model, options, ui);
    }
    let n_tokens = args.n_tokens as usize;
    let document = match ranks.ranks {
        Some(n_ranks) => in_this_process(model, &options, n_ranks as usize, (&prompt, n_tokens))?,
        None => {
            let mut engine = ranks.mpi.lead(model, options.clone(), ui)?;
            let subject = (&**model, &options);
            profile(&mut engine, subject, "MPI", (&prompt, n_tokens))?
        }
    };
    let mut out = Out::new();
    match args.json {
        true => out.json(&document)?,
        false => document.print(&mut out)?,
    }
    out.flush()
}

/// Refuses options for predictions of an NPU.
fn refuse_others(args: &ProfileArgs) -> CommandResult {
    let given = [
        (args.geometry.is_some(), "--geometry"),
        (args.paper.is_some(), "--paper"),
        (args.timing_only, "--timing-only"),
        (args.features, "--features"),
        (args.trace.is_some(), "--trace"),
        (args.html.is_some(), "--html"),
        (args.chips.is_some(), "--chips"),
        (args.markdown, "--markdown"),
        (args.with_image, "--with-image"),
        (args.context.is_some(), "--context"),
    ];
    match given.into_iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, option)) => {
            let message = format!("{option} is of an NPU; --ranks and --mpi measure CPUs");
            Err(CommandFailure::usage(message).hint(format!("leave out {option}")))
        }
    }
}

fn prompt(args: &ProfileArgs, subject: &ProfileSubject) -> CommandResult<Vec<u32>> {
    if let Some(text) = &args.prompt {
        let tokens = subject.encode(text)?;
        return match tokens.is_empty() {
            true => Err(CommandFailure::usage("the prompt has no tokens")),
            false => Ok(tokens),
        };
    }
    let vocab_size = subject.model().config.vocab_size as u64;
    let n_tokens = args.prompt_tokens.unwrap_or(PROMPT_TOKENS);
    // The choice of tokens does not change the time.
    Ok((0..n_tokens)
        .map(|i| (i * 7919 % vocab_size) as u32)
        .collect())
}

/// Runs the ranks as threads of this process.
fn in_this_process(
    model: &Arc<LoadedModel>,
    options: &EngineOptions,
    n_ranks: usize,
    work: (&[u32], usize),
) -> CommandResult<RanksDocument> {
    let options = share_of_cores(options.clone(), n_ranks);
    // A thread does not get lost: only a panic ends it, and that closes its channels.
    let mut ranks = local_ranks(n_ranks, Duration::MAX);
    let others = ranks.split_off(1);
    let own = ranks.pop().map(Box::new);
    let own = own.ok_or_else(|| CommandFailure::usage("--ranks takes a number of at least 1"))?;
    std::thread::scope(|scope| {
        let start = |other: LocalRanks| {
            let options = options.clone();
            scope.spawn(move || follow(model, options, Box::new(other)))
        };
        let others: Vec<_> = others.into_iter().map(start).collect();
        let led = LeaderEngine::new(model, options.clone(), own)
            .map_err(CommandFailure::from)
            .and_then(|mut engine| {
                let subject = (&**model, &options);
                profile(&mut engine, subject, "threads of this process", work)
            });
        // Rank 0 only knows that a rank ended; the rank itself knows why.
        let mut ended = others.into_iter().filter_map(|other| match other.join() {
            Ok(followed) => followed.err(),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let own_reason = ended.find(|error| !matches!(error, Error::Rank(_)));
        match own_reason {
            Some(error) => Err(error.into()),
            None => led,
        }
    })
}

/// Runs a prompt and generates tokens, on rank 0. The engine has only its own part of the model.
fn profile(
    engine: &mut LeaderEngine,
    (model, options): (&LoadedModel, &EngineOptions),
    carrier: &'static str,
    (prompt, n_tokens): (&[u32], usize),
) -> CommandResult<RanksDocument> {
    let mut output = StepOutput::default();
    let mut step = |engine: &mut LeaderEngine, seq: SeqId, tokens: &[u32]| -> CommandResult {
        if interrupt::is_raised() {
            return Err(CommandFailure::interrupted());
        }
        Ok(engine.step(&[BatchItem::last(seq, tokens)], &mut output)?)
    };
    // The first pass touches the weights and wakes the threads.
    let seq = engine.create()?;
    step(engine, seq, prompt)?;
    engine.release(seq)?;
    let seq = engine.create()?;
    let prompt_phase = phase(engine, prompt.len(), |engine| step(engine, seq, prompt))?;
    step(engine, seq, &prompt[..1])?;
    let decode = phase(engine, n_tokens, |engine| {
        (0..n_tokens).try_for_each(|i| {
            let token = prompt[i % prompt.len()];
            step(engine, seq, &[token])
        })
    })?;
    let link = engine.measure_link()?;
    let n_ranks = decode.ranks.len();
    let plans = plan(model.model(), options, n_ranks)?;
    let read_bytes: Vec<u64> = plans.iter().map(|plan| plan.read_bytes).collect();
    Ok(RanksDocument {
        model: model.name().to_owned(),
        n_ranks,
        carrier,
        n_threads: engine.cpu().pool().n_threads(),
        predictor: Predictor::of(&decode, &read_bytes, link.as_ref()),
        prompt: prompt_phase,
        decode,
        link: link.as_ref().map(LinkRows::of),
    })
}

fn phase(
    engine: &mut LeaderEngine,
    n_tokens: usize,
    run: impl FnOnce(&mut LeaderEngine) -> CommandResult,
) -> CommandResult<RankPhase> {
    let before = engine.profiles()?;
    let start = Instant::now();
    run(engine)?;
    let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let after = engine.profiles()?;
    let ranks = after.iter().zip(&before).enumerate();
    let ranks = ranks.map(|(rank, (after, before))| RankRow::of(rank, &after.since(before)));
    Ok(RankPhase {
        n_tokens,
        wall_ns,
        ranks: ranks.collect(),
    })
}

impl RankRow {
    fn of(rank: usize, profile: &RankProfile) -> RankRow {
        RankRow {
            rank,
            products_ns: profile.products_ns,
            attention_ns: profile.attention_ns,
            sums_ns: profile.sums_ns(),
            waiting_ns: profile.traffic.wait_ns,
            pass_ns: profile.pass_ns,
            n_gathers: profile.traffic.n_gathers,
            sent_bytes: profile.traffic.sent_bytes,
            received_bytes: profile.traffic.received_bytes,
        }
    }

    fn divided_ns(&self) -> u64 {
        self.products_ns + self.attention_ns
    }
}

impl LinkRows {
    fn of(link: &LinkMeasurement) -> LinkRows {
        let row = |gather: &GatherTime| GatherRow {
            bytes: gather.bytes,
            n_gathers: gather.n_gathers,
            median_ns: gather.median_ns,
            least_ns: gather.least_ns,
        };
        LinkRows {
            gathers: link.gathers.iter().map(row).collect(),
            message_ns: link.message_ns,
            gbit_per_s: link.bytes_per_s().map(gbit),
        }
    }
}

fn gbit(bytes_per_s: f64) -> f64 {
    bytes_per_s * 8.0 / 1e9
}

impl Predictor {
    /// Computes the parameters from tokens that were decoded one by one.
    fn of(decode: &RankPhase, read_bytes: &[u64], link: Option<&LinkMeasurement>) -> Predictor {
        let n_tokens = decode.n_tokens.max(1) as f64;
        let speed = |(row, read_bytes): (&RankRow, &u64)| {
            *read_bytes as f64 * n_tokens / row.divided_ns().max(1) as f64
        };
        let speeds = decode.ranks.iter().zip(read_bytes).map(speed);
        let leader = decode.ranks.first();
        let known_ns = leader.map_or(0, |row| row.divided_ns() + row.waiting_ns);
        let undivided_ns = decode.wall_ns.saturating_sub(known_ns) as f64 / n_tokens;
        Predictor {
            memory_gb_per_s: speeds.fold(f64::INFINITY, f64::min),
            undivided_us: undivided_ns / 1e3,
            gather_us: link.map(|link| link.gather_s() * 1e6),
            message_us: link.map(|link| link.message_ns / 1e3),
            link_gbit_per_s: link.and_then(LinkMeasurement::bytes_per_s).map(gbit),
        }
    }

    fn line(&self, model: &str) -> String {
        let options = [
            ("--memory-gb-per-s", Some(self.memory_gb_per_s)),
            ("--undivided-us", Some(self.undivided_us)),
            ("--gather-us", self.gather_us),
            ("--message-us", self.message_us),
        ];
        let mut line = format!("millrace info {model} --ranks N");
        for (option, value) in options {
            if let Some(value) = value {
                line += &format!(" {option} {}", rate(value));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predictor_is_of_the_slowest_ranks_products_and_rank_0s_rest() {
        let row = |rank, products_ns| RankRow {
            rank,
            products_ns,
            attention_ns: 1000,
            sums_ns: 0,
            waiting_ns: 2000,
            pass_ns: 0,
            n_gathers: 0,
            sent_bytes: 0,
            received_bytes: 0,
        };
        let decode = RankPhase {
            n_tokens: 2,
            wall_ns: 20_000,
            ranks: vec![row(0, 9000), row(1, 15_000)],
        };
        let predictor = Predictor::of(&decode, &[15_000, 16_000], None);
        // A token is 15 kB in 5 µs, and 16 kB in 8 µs; the rest 20 less 9, 1 and 2 µs for two of them.
        assert_eq!(predictor.memory_gb_per_s, 2.0);
        assert_eq!(predictor.undivided_us, 4.0);
        assert_eq!(
            predictor.line("m.gguf"),
            "millrace info m.gguf --ranks N --memory-gb-per-s 2.00 --undivided-us 4.00"
        );
    }
}
