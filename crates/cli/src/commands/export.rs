//! `millrace export`: writes a model's programs as source for a vendor's own toolchain.

use crate::exit::{CommandFailure, CommandResult};
use crate::output::{Out, Ui};
use crate::plan_args::PlanArgs;
use crate::target_args::{examples, targets};
use millrace_format::output;
use millrace_plan::{Export, SourceFile};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace export demo --device {exporter} --out demo-device       source for the vendor's toolchain, with its requirements
  millrace export --geometry llama-3.2-1b --device {exporter} --out 1b-device
  millrace export demo --device {exporter} --prompt-tokens 64 --context 2048 --out demo-device

The export covers one pass of a prompt and one of a token; the folder's README.md lists further requirements.
For a device that cannot be exported, the error names the devices that can.";

/// Write a model's programs as source for the vendor's own toolchain
#[derive(clap::Args, Debug)]
#[command(after_help = examples(EXAMPLES))]
pub(crate) struct ExportArgs {
    /// Folder to write
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    out: PathBuf,
    /// Tokens in the prompt's pass
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    prompt_tokens: u64,
    /// Tokens of context in the token's pass
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    context: u64,
    #[command(flatten)]
    plan: PlanArgs,
}

/// Limit above the context of any model.
const MOST: u64 = 1 << 22;

/// Refuses a folder whose README.md an export of this model did not write: its files would be replaced.
fn check_folder(out: &Path, files: &[SourceFile]) -> CommandResult {
    const README: &str = "README.md";
    let path = out.join(README);
    let Ok(found) = std::fs::read_to_string(&path) else {
        return Ok(());
    };
    let ours = files.iter().find(|file| file.path == README);
    match ours.is_some_and(|file| file.text.lines().next() != found.lines().next()) {
        true => Err(CommandFailure::usage(format!(
            "{} is not from an export of this model, and would be replaced",
            path.display()
        ))
        .hint("name a new folder with --out")),
        false => Ok(()),
    }
}

pub(crate) fn run(args: &ExportArgs, ui: Ui) -> CommandResult {
    let target = args.plan.target.device;
    let planned = args.plan.read(ui)?;
    let planner = args.plan.target.planner(planned.graph())?;
    let longest = args.context.max(args.prompt_tokens);
    let sequences = planned.sequences(&*planner, &[longest]);
    let mut kinds = sequences.prefills(&[args.prompt_tokens]);
    kinds.truncate(1);
    kinds.push(sequences.decode(args.context - 1));
    let settings = args.plan.target.settings(planned.graph())?;
    let request = Export {
        model: planned.name(),
        graph: planned.graph(),
        settings: &settings,
        kinds: &kinds,
    };
    let exporter = target.exporter().ok_or_else(|| {
        let forms = targets().iter().filter_map(|target| {
            let form = target.exporter()?.form();
            Some(format!("--device {} writes {form}", target.name()))
        });
        let message = format!(
            "programs of {} have no form for a vendor's toolchain; {}",
            target.name(),
            forms.collect::<Vec<_>>().join(", ")
        );
        CommandFailure::usage(message)
    })?;
    let files = exporter.export(&request)?;
    check_folder(&args.out, &files)?;
    for file in &files {
        let path = args.out.join(&file.path);
        let folder = path.parent().unwrap_or(&args.out);
        std::fs::create_dir_all(folder)
            .map_err(|error| CommandFailure::io(folder.display(), &error))?;
        output::write(&path, file.text.as_bytes())
            .map_err(|error| CommandFailure::writing(&error))?;
    }
    let mut out = Out::new();
    let (n, dir) = (files.len(), args.out.display());
    out.line(format!(
        "{n} files in {dir}; README.md there says what is needed beyond them"
    ))?;
    out.flush()
}
