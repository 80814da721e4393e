//! Options of every command that computes: threads, instruction set, context, cache format.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;

use millrace_kernels::{Cpu, CpuOptions};
use millrace_runtime::{EngineOptions, KvType, Level, LoadedModel};

/// Options for the CPU.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "CPU")]
pub(crate) struct CpuArgs {
    /// Threads to compute with [default: one for each physical core]
    #[arg(
        short,
        long,
        value_name = "N",
        env = "MILLRACE_THREADS",
        hide_env_values = true
    )]
    pub(crate) threads: Option<usize>,
    /// Instruction set to use, for tests and comparisons [default: the best this CPU has]
    #[arg(long, value_name = "LEVEL", env = "MILLRACE_CPU_LEVEL", hide_env_values = true, value_parser = level_parser())]
    pub(crate) cpu_level: Option<Level>,
}

/// Size and format of a sequence's context.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Memory")]
pub(crate) struct ContextArgs {
    /// Tokens of context, prompt and answer together [default: the model's training context, at most 8192]
    #[arg(short, long, value_name = "TOKENS")]
    pub(crate) ctx: Option<usize>,
    /// Format of the cached keys and values
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = kv_type_parser())]
    pub(crate) kv_type: KvType,
}

/// Options for keeping a conversation's computed state between runs.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Memory")]
pub(crate) struct SessionArgs {
    /// Keep the conversation in a file: its computed state is read at the start and written at the end. Changes the
    /// time, not the text. A file of another model, level or --kv-type is refused
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "images"], value_hint = clap::ValueHint::FilePath)]
    pub(crate) session: Option<PathBuf>,
}

/// Accepts a level's name. Lists only those of this processor architecture; another one is refused when it is used.
pub(crate) fn level_parser() -> impl TypedValueParser<Value = Level> {
    let value = |level: Level| PossibleValue::new(level.name()).hide(!level.is_native());
    PossibleValuesParser::new(Level::ALL.map(value))
        .map(|name| name.parse::<Level>().expect("one of the possible values"))
}

/// Accepts a cache format's name.
pub(crate) fn kv_type_parser() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(KvType::ALL.map(KvType::name)).map(|name| {
        let found = KvType::ALL
            .into_iter()
            .find(|kv_type| kv_type.name() == name);
        found.expect("one of the possible values")
    })
}

/// Warns if a sequence may grow beyond the context that the model was trained for, which requires
/// an explicit `--ctx`. Models seldom write useful text there. `n_new` is none without a limit.
pub(crate) fn warn_beyond_training(
    ui: Ui,
    model: &LoadedModel,
    n_ctx: usize,
    n_prompt: usize,
    n_new: Option<usize>,
) {
    let trained = model.model().config.context_length;
    let longest = n_new.map_or(n_ctx, |n_new| n_prompt.saturating_add(n_new).min(n_ctx));
    if longest > trained {
        ui.warn(format_args!(
            "{} was trained for a context of {trained} tokens, and this may reach {longest}: beyond \
             {trained} expect nonsense; leave out --ctx to stop there",
            model.name()
        ));
    }
}

impl CpuArgs {
    /// Refuses a number of threads or a level with which nothing can compute here.
    pub(crate) fn check(&self) -> CommandResult {
        let options = CpuOptions {
            n_threads: self.threads,
            level: self.cpu_level,
        };
        let cpu = Cpu::new(options);
        cpu.map(|_| ())
            .map_err(|error| CommandFailure::usage(error.to_string()))
    }

    /// Engine options with only these set.
    pub(crate) fn options(&self) -> EngineOptions {
        EngineOptions {
            n_threads: self.threads,
            level: self.cpu_level,
            ..EngineOptions::default()
        }
    }

    /// Engine options with these and a context.
    pub(crate) fn with_context(&self, context: &ContextArgs) -> EngineOptions {
        EngineOptions {
            n_ctx: context.ctx,
            kv_type: context.kv_type,
            ..self.options()
        }
    }
}
