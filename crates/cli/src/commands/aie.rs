//! `millrace aie`: designs in MLIR's aie dialect, checked, run, timed and listed without hardware.

mod report;
mod time;
mod words;

use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::output::{Align, Out, TextTable, Ui, printable};
use crate::progress::ProgressDisplay;
use millrace_aie::{
    Design, Footprint, HostNumber, ReadOptions, RunOptions, RunReport, SyntaxError, UnsetMemory,
    Verdict,
};
use report::{print_report, print_verdict, report_json};
use serde_json::json;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  millrace aie run design.mlir                            run it on numbers 1, 2, 3, …; PASS, HANG or FAIL
  millrace aie run design.mlir --input a.bin --input b.bin --output out    with files, bytes as in memory
  millrace aie verify design.mlir                         checks places, routes, fields and programs, without a run
  millrace aie words design.mlir --output insts.bin       the transaction stream that firmware would execute
  millrace aie time design.mlir                           modelled time, never measured, and the busiest component
  millrace aie run two.mlir --sequence second             one of several sequences; --device-name likewise
  millrace aie run design.mlir --trace t.json             activity of DMA, locks and cores; opens in Perfetto

A design is the output of `aie-opt` or of IRON's `print(module)`. Each --input file supplies the next argument
that the sequence reads; --output writes `argN.bin` for each argument that it writes. Times are modelled with the
constants of a profile, like those of `millrace kernel`.
`PASS on routes of ours` means that packet streams take routes that the text does not give: with the routes of
mlir-aie's router the design may hang. `aie-opt --aie-create-pathfinder-flows` prints those; append them to the
design to use them.
Exit codes: 0 PASS, 1 HANG or FAIL, 3 for an unsupported construct, with line, column and op, or CANNOT TELL:
the output depends on memory that nothing has set.";

/// Run designs of MLIR's aie dialect on a register-level model of the NPU
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AieArgs {
    #[command(subcommand)]
    command: AieCommand,
}

#[derive(clap::Subcommand, Debug)]
enum AieCommand {
    /// Run a design, in several orders of its actors
    Run(RunArgs),
    /// Check a design without running it
    Verify(DesignArgs),
    /// List the transaction stream
    Words(words::WordsArgs),
    /// Model the time of a run, and what bounds it
    Time(time::TimeArgs),
}

#[derive(clap::Args, Debug)]
struct DesignArgs {
    /// Design to read
    #[arg(value_name = "DESIGN.mlir", value_hint = clap::ValueHint::FilePath)]
    design: PathBuf,
    /// Device to use, by name or number, where several have a sequence
    #[arg(long, value_name = "NAME")]
    device_name: Option<String>,
    /// Sequence to use, where a device has several
    #[arg(long, value_name = "NAME")]
    sequence: Option<String>,
    /// Wait for a free place before each task that may find its channel's queue full, as mlir-aie does since
    /// September 2026; without these waits a fifth task is lost, and the run fails
    #[arg(long)]
    queue_waits: bool,
    /// Number that the host supplies: an argument of the sequence (`n=4`), a parameter of the scratchpad by name, or
    /// a word of it by number (`scratchpad0=20`)
    #[arg(long, value_name = "NAME=VALUE", value_parser = number)]
    number: Vec<(String, HostNumber)>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Parses `NAME=VALUE`.
fn number(text: &str) -> Result<(String, HostNumber), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let whole = value.parse().ok().map(HostNumber::Whole);
    let point = || value.parse().ok().map(HostNumber::Point);
    let value = whole.or_else(point);
    let value = value.ok_or_else(|| format!("`{text}` has no number behind the sign"))?;
    Ok((name.trim_start_matches('%').to_owned(), value))
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Number of random orders of the actors to try
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    orders: u64,
    /// At most this many further orders, in each of which one group of actors moves only when no other
    /// can: the sequence, all DMA, all cores, each core, each channel
    #[arg(long, value_name = "N", default_value_t = 24)]
    slow_orders: usize,
    /// Accept written elements in any order, as merging streams deliver them; without it, bytes that
    /// depend on which stream is faster are a failure
    #[arg(long)]
    any_order: bool,
    /// Let memories of tiles begin as zeros where nothing sets them; without it they hold noise, and a run whose bytes
    /// depend on it cannot be judged
    #[arg(long)]
    zero_memory: bool,
}

/// A design with its data.
#[derive(clap::Args, Debug)]
struct DataArgs {
    #[command(flatten)]
    of: DesignArgs,
    /// File with the bytes of the next argument that the sequence reads
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    input: Vec<PathBuf>,
    /// Write the arguments that the sequence writes to files in this folder
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Limit on the instructions of a core
    #[arg(long, value_name = "N", default_value_t = 1 << 28)]
    max_instructions: u64,
    /// Write the activity of DMA channels, locks and cores over modelled time, for a run that
    /// passes (Chrome trace-event format)
    #[arg(long, value_name = "FILE.json", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
}

pub(crate) fn run(args: &AieArgs, ui: Ui) -> CommandResult {
    match &args.command {
        AieCommand::Run(args) => run_design(args, ui),
        AieCommand::Verify(args) => verify(args),
        AieCommand::Words(args) => words::words(args),
        AieCommand::Time(args) => time::time(args, ui),
    }
}

fn read(args: &DesignArgs) -> Result<Design, CommandFailure> {
    let (text, options) = text(args)?;
    Design::read_with(&text, &options).map_err(|error| refused(&args.design, &error))
}

/// Text of the design, and the choice of device and sequence.
fn text(args: &DesignArgs) -> Result<(String, ReadOptions), CommandFailure> {
    let path = &args.design;
    let text = std::fs::read(path).map_err(|error| CommandFailure::reading_file(path, &error))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CommandFailure::bad_input(format!("{}: byte {at} is no UTF-8", path.display()))
    })?;
    let options = ReadOptions {
        device: args.device_name.clone(),
        sequence: args.sequence.clone(),
        queue_waits: args.queue_waits,
        numbers: args.number.iter().cloned().collect(),
    };
    Ok((text, options))
}

fn refused(path: &Path, error: &SyntaxError) -> CommandFailure {
    CommandFailure::bad_input(format!("{}: {error}", path.display()))
}

fn check(path: &Path, design: &Design) -> Result<Footprint, CommandFailure> {
    design.check().map_err(|error| refused(path, &error))
}

fn run_design(args: &RunArgs, ui: Ui) -> CommandResult {
    let data = &args.data;
    let (text, options) = text(&data.of)?;
    let all =
        Design::read_all(&text, &options).map_err(|error| refused(&data.of.design, &error))?;
    if let [(_, design)] = &all[..] {
        let report = run_one(args, design, ui)?;
        let mut out = Out::new();
        match data.of.json {
            true => out.json(&report_json(design, &report))?,
            false => print_report(design, &report, &mut out)?,
        }
        out.flush()?;
        return end(&report);
    }
    run_all(args, &all, ui)
}

/// Runs a design.
fn run_one(args: &RunArgs, design: &Design, ui: Ui) -> Result<RunReport, CommandFailure> {
    let data = &args.data;
    let path = &data.of.design;
    let footprint = check(path, design)?;
    let arguments = arguments(data, design, &footprint)?;
    let options = RunOptions {
        orders: args.orders,
        slow_orders: args.slow_orders,
        any_order: args.any_order,
        unset: match args.zero_memory {
            true => UnsetMemory::Zeros,
            false => UnsetMemory::Noise,
        },
        ..options(data)
    };
    let report = {
        let _progress = ProgressDisplay::spinner(ui, "running");
        let ran = millrace_aie::run(design, &arguments, options);
        ran.map_err(|error| refused(path, &error))?
    };
    if data.trace.is_some() && report.verdict.is_pass() {
        time::timed(data, design, None, ui)?;
    }
    if let Some(folder) = &data.output {
        write_outputs(folder, &report)?;
    }
    Ok(report)
}

/// Runs each design of a text separately; fails with the first one that does not pass.
fn run_all(args: &RunArgs, all: &[(ReadOptions, Design)], ui: Ui) -> CommandResult {
    let data = &args.data;
    if !data.input.is_empty() || data.output.is_some() || data.trace.is_some() {
        let names: Vec<String> = all.iter().map(|row| chosen(&row.0)).collect();
        let message = format!(
            "files are for one design, and the text has {}: {}",
            all.len(),
            names.join("; ")
        );
        return Err(CommandFailure::usage(message));
    }
    let mut out = Out::new();
    let mut reports = Vec::new();
    let mut ended = Ok(());
    for (choice, design) in all {
        let ran = run_one(args, design, ui);
        if data.of.json {
            let mut row = match &ran {
                Ok(report) => report_json(design, report),
                Err(failure) => json!({ "verdict": "refused", "problem": failure.message }),
            };
            row["device_name"] = json!(choice.device);
            row["sequence"] = json!(choice.sequence);
            reports.push(row);
        } else {
            out.line(printable(&chosen(choice)))?;
            match &ran {
                Ok(report) => print_report(design, report, &mut out)?,
                Err(failure) => out.line(printable(&format!("refused: {}", failure.message)))?,
            }
        }
        ended = ended.and(ran.and_then(|report| end(&report)));
    }
    if data.of.json {
        out.json(&json!({ "designs": reports }))?;
    }
    out.flush()?;
    ended
}

/// A choice of device and sequence, spelled as options.
fn chosen(choice: &ReadOptions) -> String {
    let device = choice
        .device
        .iter()
        .map(|name| format!("--device-name {name}"));
    let sequence = choice
        .sequence
        .iter()
        .map(|name| format!("--sequence {name}"));
    let parts: Vec<String> = device.chain(sequence).collect();
    parts.join(" ")
}

fn options(args: &DataArgs) -> RunOptions {
    RunOptions {
        max_instructions: args.max_instructions,
        ..RunOptions::default()
    }
}

/// Turns the verdict of a run into the command's result.
fn end(report: &RunReport) -> CommandResult {
    if report.verdict.is_pass() {
        return Ok(());
    }
    let problem = report.problem.as_deref().unwrap_or_default();
    let verdict = report.verdict.name();
    let message = format!("{verdict}: {problem}");
    Err(match report.verdict {
        Verdict::CannotTell => CommandFailure::bad_input(message),
        _ => CommandFailure::new(Exit::Failed, message),
    })
}

/// Bytes of all arguments. Those that are read come from files, in order, or else hold the numbers from 1
/// on; those that are only written hold zeros.
fn arguments(
    args: &DataArgs,
    design: &Design,
    footprint: &Footprint,
) -> Result<Vec<Vec<u8>>, CommandFailure> {
    if args.input.len() > footprint.reads.len() {
        let (given, reads) = (args.input.len(), footprint.reads.len());
        let message = format!("{given} files of --input, and the sequence reads {reads} arguments");
        return Err(CommandFailure::usage(message));
    }
    if footprint.takes_control_packets && args.input.is_empty() {
        let message = format!(
            "{}: its control packets come from the host, and numbers from 1 on are none: give what the sequence reads (arguments {:?}) by --input",
            args.of.design.display(),
            footprint.reads
        );
        return Err(CommandFailure::bad_input(message));
    }
    let mut files = args.input.iter();
    let mut all = Vec::new();
    for (i, (name, of, n_bytes)) in design.arguments().enumerate() {
        let file = footprint.reads.contains(&i).then(|| files.next()).flatten();
        let bytes = match file {
            Some(path) => {
                let bytes = std::fs::read(path);
                bytes.map_err(|error| CommandFailure::reading_file(path, &error))?
            }
            None if footprint.reads.contains(&i) => design.counting(i),
            None => vec![0; n_bytes as usize],
        };
        if let (Some(path), true) = (file, bytes.len() as u64 != n_bytes) {
            let message = format!(
                "{} has {} bytes; argument {i} (%{name}: {of}) has {n_bytes}",
                path.display(),
                bytes.len()
            );
            return Err(CommandFailure::bad_input(message));
        }
        all.push(bytes);
    }
    Ok(all)
}

fn write_outputs(folder: &Path, report: &RunReport) -> CommandResult {
    let failed = |path: &Path, error: &std::io::Error| {
        CommandFailure::io(format_args!("cannot write {}", path.display()), error)
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    for output in &report.outputs {
        let path = folder.join(format!("arg{}.bin", output.argument));
        std::fs::write(&path, &output.bytes).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn verify(args: &DesignArgs) -> CommandResult {
    let design = read(args)?;
    let footprint = check(&args.design, &design)?;
    let mut out = Out::new();
    if args.json {
        let tiles = footprint.tiles.iter().map(|tile| {
            json!({
                "tile": tile.tile, "memory_bytes": tile.memory_bytes, "capacity_bytes": tile.capacity_bytes,
                "locks": tile.n_locks, "descriptors": tile.n_descriptors, "instructions": tile.n_instructions,
            })
        });
        out.json(&json!({
            "device": design.device,
            "tiles": tiles.collect::<Vec<_>>(),
            "streams": footprint.n_streams,
            "operations": footprint.n_operations,
            "stream_bytes": footprint.stream_bytes,
            "reads": footprint.reads,
            "writes": footprint.writes,
            "unknown_kernels": footprint.unknown_kernels,
            "notes": footprint.notes,
        }))?;
        return out.flush();
    }
    out.line(printable(&design.summary()))?;
    for note in &footprint.notes {
        out.line(printable(&format!("  {note}")))?;
    }
    for name in &footprint.unknown_kernels {
        out.line(format!(
            "  @{name} is not known: a run would not compute its values"
        ))?;
    }
    let mut table = TextTable::new(&[
        ("tile", Align::Left),
        ("bytes", Align::Right),
        ("of", Align::Right),
        ("locks", Align::Right),
        ("descriptors", Align::Right),
    ]);
    for tile in &footprint.tiles {
        table.row(vec![
            tile.tile.clone(),
            tile.memory_bytes.to_string(),
            tile.capacity_bytes.to_string(),
            tile.n_locks.to_string(),
            tile.n_descriptors.to_string(),
        ]);
    }
    table.print(&mut out)?;
    out.line(format!(
        "{} streams are routed; the transaction stream has {} operations, {} bytes",
        footprint.n_streams, footprint.n_operations, footprint.stream_bytes
    ))?;
    out.flush()
}
