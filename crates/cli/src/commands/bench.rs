//! `millrace bench`: tokens per second, with llama-bench's tests and columns.

mod drafted;
pub(crate) mod measure;
mod report;

use crate::describe::CheckpointSummary;
use crate::draft_args::DraftArgs;
use crate::engine_args::{kv_type_parser, level_parser};
use crate::exit::{CommandFailure, CommandResult};
use crate::lora_args::LoraArgs;
use crate::machine;
use crate::model_arg::ModelArgs;
use crate::output::{Out, Ui};
use crate::progress::ProgressDisplay;
use crate::ranks::{self, MpiArgs};
use crate::target_args::{DeviceArgs, examples};
use measure::{BenchSession, Test};
use millrace_runtime::{EngineOptions, KvType, Level, LoadedModel};
use report::{BenchRow, ReportFormat, Reporter};
use std::path::PathBuf;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  millrace bench model.gguf                          pp512 and tg128, five times each
  millrace bench model.gguf -p 512,2048 -n 64 -t 1,2    every combination
  millrace bench model.gguf -d 0,4096 -r 3           with 0 and 4096 tokens already in the context
  millrace bench model.gguf -p 0 -n 0 -pg 512,128    a prompt and its answer as one test
  millrace bench model.gguf -p 0 -n 64 --sequences 1,8   eight sequences in every step
  millrace bench demo --device {npu} -p 64 -n 8 -r 1    an NPU, by its modelled times
  millrace bench model.gguf -o json > run.json       also csv and jsonl
  millrace bench demo --draft demo-draft -r 3        with and without a draft model, in turn
  millrace bench demo --draft ngram -n 256 -o json   the same with drafts from the text itself

With --draft, -n tokens are generated of three texts: a story by the model, the prompt repeated, and prose
without repetition. The speed with drafts is shown beside the speed without, measured in turn.

pp: prompt tokens computed per second. tg: tokens generated per second, one at a time. With --sequences,
the total over all sequences; the test's name then ends in their number, as tg64 x8. The numbers are measured,
without tokenizing and sampling. Flags and columns are those of llama-bench.";

/// Measure tokens per second
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Prompt lengths to test; 0 for none
    #[arg(
        short = 'p',
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "512"
    )]
    n_prompt: Vec<usize>,
    /// Numbers of tokens to generate; 0 for none
    #[arg(
        short = 'n',
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "128"
    )]
    n_gen: Vec<usize>,
    /// Prompt and answer as one test (also -pg). May be repeated
    #[arg(long, value_name = "PP,TG", value_parser = parse_pair)]
    pg: Vec<(usize, usize)>,
    /// Tokens in the context before each test
    #[arg(
        short = 'd',
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "0"
    )]
    n_depth: Vec<usize>,
    /// Numbers of sequences that run together; each has a prompt or an answer of that length
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1", value_parser = parse_count)]
    sequences: Vec<usize>,
    /// Numbers of threads [default: one for each physical core]
    #[arg(
        short,
        long,
        value_name = "N,..",
        value_delimiter = ',',
        env = "MILLRACE_THREADS",
        hide_env_values = true
    )]
    threads: Vec<usize>,
    /// Formats of the cached keys and values
    #[arg(long, value_name = "TYPE,..", value_delimiter = ',', default_value = "f16", value_parser = kv_type_parser())]
    kv_type: Vec<KvType>,
    /// Instruction set to use [default: the best this CPU has]
    #[arg(long, value_name = "LEVEL", env = "MILLRACE_CPU_LEVEL", hide_env_values = true, value_parser = level_parser())]
    cpu_level: Option<Level>,
    /// Number of runs of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Skip the warm-up run
    #[arg(long)]
    no_warmup: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t = ReportFormat::Md)]
    output: ReportFormat,
    /// With --draft: text to repeat and continue, instead of the built-in prose
    #[arg(long, value_name = "FILE", requires = "draft", value_hint = clap::ValueHint::FilePath)]
    text: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    lora: LoraArgs,
    #[command(flatten)]
    ranks: MpiArgs,
}

fn parse_pair(text: &str) -> Result<(usize, usize), String> {
    let pair = text
        .split_once(',')
        .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    pair.filter(|(pp, tg)| *pp > 0 && *tg > 0)
        .ok_or_else(|| "write PP,TG, as 512,128".to_owned())
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.trim().parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "write a number of at least 1".to_owned())
}

/// The tests of one engine, in llama-bench's order.
fn tests(args: &BenchArgs) -> Vec<Test> {
    let mut tests = Vec::new();
    let depths = args.n_depth.iter();
    let settings = depths.flat_map(|&depth| args.sequences.iter().map(move |&n| (depth, n)));
    for (n_depth, n_sequences) in settings {
        let prompts = args.n_prompt.iter().map(|&n_prompt| (n_prompt, 0));
        let answers = args.n_gen.iter().map(|&n_gen| (0, n_gen));
        let all = prompts.chain(answers).chain(args.pg.iter().copied());
        let all = all.filter(|test| *test != (0, 0));
        tests.extend(all.map(|(n_prompt, n_gen)| Test {
            n_prompt,
            n_gen,
            n_depth,
            n_sequences,
        }));
    }
    tests
}

pub(crate) fn run(args: &BenchArgs, ui: Ui) -> CommandResult {
    let tests = tests(args);
    let Some(n_ctx) = tests.iter().map(Test::n_tokens).max() else {
        return Err(CommandFailure::usage(
            "nothing to measure: -p and -n are 0 and there is no -pg",
        ));
    };
    if n_ctx >= 1 << 31 {
        return Err(CommandFailure::usage(format!(
            "-p, -n, --pg and -d ask for a context of {n_ctx} tokens; there can be 2^31 - 1"
        )));
    }
    let model = args.model.load(ui)?;
    let settings = settings(args, n_ctx);
    if args.ranks.mpi && args.draft.draft.is_some() {
        return Err(CommandFailure::usage(
            "bench measures --draft on one machine: leave out --mpi, or measure `run --draft --mpi`",
        ));
    }
    if args.ranks.is_follower()? {
        // One engine for each setting, as rank 0 makes them.
        return settings
            .into_iter()
            .try_for_each(|options| args.ranks.follow(&model, options, ui));
    }
    if !machine::IS_OPTIMISED {
        ui.note(format_args!(
            "this build is not optimised throughout; measure with `cargo install --locked --path crates/cli`"
        ));
    }
    if args.draft.draft.is_some() {
        return run_drafted(args, &model, ui);
    }
    measure_all(args, &model, (&tests, settings), ui)
}

/// Runs every test on one engine per setting.
fn measure_all(
    args: &BenchArgs,
    model: &Arc<LoadedModel>,
    (tests, settings): (&[Test], Vec<EngineOptions>),
    ui: Ui,
) -> CommandResult {
    let adapters = args.lora.open(model, ui)?;
    let summary = CheckpointSummary::of(model.checkpoint());
    let cpu_name = machine::processor().name.unwrap_or_default();
    let total = tests.len() * settings.len();
    let progress = ProgressDisplay::steps(ui, (total * args.repetitions as usize) as u64);
    let mut reporter = Reporter::new(args.output, Out::new());
    for options in settings {
        let kv_type = options.kv_type;
        let options = EngineOptions {
            adapters: adapters.clone(),
            ..options
        };
        let make = || args.ranks.make(&args.device, model, options, ui);
        let engine = progress.suspend(make)?;
        if let Some(times) = engine.device_time() {
            progress.suspend(|| {
                ui.note(format_args!(
                    "times are the device's, {times}; steps of the host are not in them"
                ));
            });
        }
        let mut bench = BenchSession::new(engine)?;
        for test in tests {
            let (test_time, samples_ns) = repeat(args, &mut bench, test, &progress)?;
            let row = BenchRow {
                summary: &summary,
                cpu_name: &cpu_name,
                engine: bench.engine(),
                kv_type,
                test,
                test_time,
                samples_ns,
            };
            progress.suspend(|| reporter.row(&row))?;
        }
        if let Some(line) = ranks::line(bench.engine()) {
            progress.suspend(|| ui.note(format_args!("[{line}]")));
        }
    }
    drop(progress);
    reporter.finish()
}

/// Start time of a test, and the time of each repetition.
fn repeat(
    args: &BenchArgs,
    bench: &mut BenchSession,
    test: &Test,
    progress: &ProgressDisplay,
) -> CommandResult<(String, Vec<u64>)> {
    progress.message(test.name());
    if !args.no_warmup {
        bench.run(&test.warmup())?;
    }
    let test_time = report::utc_now();
    let mut samples_ns = Vec::new();
    for _ in 0..args.repetitions {
        samples_ns.push(bench.run(test)?);
        progress.advance(1);
    }
    Ok((test_time, samples_ns))
}

/// Settings of each engine.
fn settings(args: &BenchArgs, n_ctx: usize) -> Vec<EngineOptions> {
    let threads = match args.threads.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let settings = threads
        .iter()
        .flat_map(|n| args.kv_type.iter().map(move |kv_type| (*n, *kv_type)));
    let options = settings.map(|(n_threads, kv_type)| EngineOptions {
        n_threads,
        level: args.cpu_level,
        kv_type,
        n_ctx: Some(n_ctx),
        max_sequences: args.sequences.iter().copied().max().unwrap_or(1),
        ..EngineOptions::default()
    });
    options.collect()
}

/// Measures with and without drafts, at the first of the settings.
fn run_drafted(args: &BenchArgs, model: &Arc<LoadedModel>, ui: Ui) -> CommandResult {
    let several = args.threads.len() > 1 || args.kv_type.len() > 1;
    let others = args.sequences != [1] || args.n_depth != [0] || !args.pg.is_empty();
    if several || others {
        return Err(CommandFailure::usage(
            "--draft measures one sequence at one setting: -t and --kv-type take one value, --pg, -d and \
             --sequences none",
        ));
    }
    if args.output == ReportFormat::Csv || args.output == ReportFormat::Jsonl {
        return Err(CommandFailure::usage(
            "--draft prints a table (-o md) or JSON (-o json)",
        ));
    }
    let options = EngineOptions {
        n_threads: args.threads.first().copied(),
        level: args.cpu_level,
        kv_type: args.kv_type.first().copied().unwrap_or(KvType::F16),
        adapters: args.lora.open(model, ui)?,
        ..EngineOptions::default()
    };
    let setup = drafted::Setup {
        args,
        device: &args.device,
        options,
    };
    drafted::run(setup, model, ui)
}

#[cfg(test)]
mod cases {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct BenchLine {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn tests_come_in_llama_benchs_order() {
        let line = "x m.gguf -p 16,32 -n 0 --pg 8,4 -d 0,64";
        let args = BenchLine::parse_from(line.split(' ')).args;
        let names: Vec<String> = tests(&args).iter().map(Test::name).collect();
        assert_eq!(
            names,
            [
                "pp16",
                "pp32",
                "pp8+tg4",
                "pp16 @ d64",
                "pp32 @ d64",
                "pp8+tg4 @ d64"
            ]
        );
    }

    #[test]
    fn sequences_multiply_the_tests() {
        let line = "x m.gguf -p 16 -n 4 --sequences 1,8 -d 32";
        let args = BenchLine::parse_from(line.split(' ')).args;
        let names: Vec<String> = tests(&args).iter().map(Test::name).collect();
        let expected = ["pp16 @ d32", "tg4 @ d32", "pp16 x8 @ d32", "tg4 x8 @ d32"];
        assert_eq!(names, expected);
        assert!(BenchLine::try_parse_from("x m.gguf --sequences 0".split(' ')).is_err());
    }

    #[test]
    fn pairs_are_two_positive_numbers() {
        assert_eq!(parse_pair("512,128"), Ok((512, 128)));
        for bad in ["512", "0,1", "1,0", "a,b", "1,2,3"] {
            assert!(parse_pair(bad).is_err(), "{bad}");
        }
    }
}
